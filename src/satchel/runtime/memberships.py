"""Who is in which shared space, and what each may do there (decision 153)."""

from __future__ import annotations

import secrets
from typing import Final

from satchel.clock import Clock
from satchel.config import Settings
from satchel.errors import NotFound, Refused, UsageError
from satchel.runtime.people import People, Person, Role, owner_of
from satchel.runtime.person_homes import add_person, remove_person

_MOST_OWNED: Final = 10
"""Each is a folder and, while it is used, a process."""
_MOST_MEMBERS: Final = 100


def spaces_of(people: People, who: str, *, invited: bool = False) -> dict[str, Person]:
    """The spaces that somebody is in, by name; with `invited`, also those to which somebody is invited."""
    return {
        name: one
        for name, one in people.all().items()
        if not one.leaving and (role := one.members.get(who)) and (invited or role != "invited")
    }


def space_of(people: People, name: str, who: str, *, invited: bool = False, owner: bool = False) -> Person:
    """A space that somebody is in; with `invited`, or is invited to; with `owner`, owns.

    Raises:
        NotFound: There is none. It says the same of a space of others, so that nobody learns of it.
        Refused: Somebody else owns it.
    """
    found = spaces_of(people, who, invited=invited).get(name)
    if found is None:
        raise _no_space(name)
    if owner and found.members[who] != "owner":
        raise Refused(f"Only {owner_of(found.members)}, who owns {name}, may do that.")
    return found


def make_space(settings: Settings, people: People, name: str, owner: Person) -> Person:
    """Make a space. It may become as large as its owner's own folder.

    Raises:
        UsageError: The name is none, or is taken; or the owner has too many.
        ConfigError, StorageError: As `add_person`.
    """
    owned = [one for one in spaces_of(people, owner.name).values() if one.members[owner.name] == "owner"]
    if len(owned) >= _MOST_OWNED:
        raise UsageError(f"You own {_MOST_OWNED} spaces, which is the most. Delete one first.")
    # Nobody is told the password, and no name of a space is asked for one.
    return add_person(
        settings,
        name,
        secrets.token_hex(32),
        day_usd=None,
        disk_mb=owner.disk_mb,
        own_keys=False,
        members={owner.name: "owner"},
    )


def invite(people: People, space: Person, who: str) -> None:
    """Invite somebody.

    Raises:
        NotFound: There is nobody of this name.
        UsageError: They are in it or invited already, or it has too many.
    """
    person = people.get(who)
    if person.leaving:
        raise NotFound(f"{who} is being removed from this server.")

    def change(members: dict[str, Role]) -> None:
        if who in members:
            raise UsageError(
                f"{who} is {'invited already' if members[who] == 'invited' else f'in {space.name} already'}."
            )
        if len(members) >= _MOST_MEMBERS:
            raise UsageError(f"A space has {_MOST_MEMBERS} members at most.")
        members[person.name] = "invited"

    people.change_members(space.name, change)


def accept(people: People, space: Person, who: str) -> None:
    """Accept an invitation.

    Raises:
        NotFound: It was taken back.
    """

    def change(members: dict[str, Role]) -> None:
        if who not in members:
            raise _no_space(space.name)
        if members[who] == "invited":
            # At the end: the space goes to whoever has been in it longest.
            del members[who]
            members[who] = "member"

    people.change_members(space.name, change)


def take_out(people: People, space: Person, who: str, *, by: str) -> None:
    """Let a member leave, decline an invitation, or have the owner remove somebody. What they shared stays.

    Raises:
        NotFound: They aren't in it.
        Refused: They are somebody else, and `by` doesn't own it; or nobody else is in it.
    """

    def change(members: dict[str, Role]) -> None:
        if by != who and members.get(by) != "owner":
            raise Refused(f"Only {owner_of(members)}, who owns {space.name}, removes others.")
        if who not in members:
            raise NotFound(f"{who} isn't in {space.name}.")
        if not _take_out(members, who):
            raise Refused(f"Nobody else is in {space.name}. Delete it, if it isn't needed any more.")

    people.change_members(space.name, change)


def owners_without(people: People, who: str) -> dict[str, str]:
    """Who owns each space of somebody's when they are removed; "" where nobody is left, so that the space goes too."""
    found: dict[str, str] = {}
    for name, space in spaces_of(people, who).items():
        members = dict(space.members)
        found[name] = owner_of(members) if _take_out(members, who) else ""
    return found


def forget_person(settings: Settings, people: People, who: str, *, clock: Clock) -> None:
    """Let in no more who is removed, and take them out of every space. Errors as in `remove_person`."""
    # First, so that they come into no space meanwhile, which would belong to the next of this name.
    people.set(who, leaving=True)
    for name, space in spaces_of(people, who, invited=True).items():
        is_left = False

        def change(members: dict[str, Role]) -> None:
            nonlocal is_left
            now = dict(members)
            is_left = not _take_out(now, who)
            if not is_left:  # a space without members would be a person
                members.clear()
                members.update(now)

        people.change_members(name, change)
        if is_left:
            remove_person(settings, space, clock=clock)


def _take_out(members: dict[str, Role], who: str) -> bool:
    """Take somebody out; the owner's place goes to who has been in it longest. Returns whether anybody is in it now."""
    role = members.pop(who, None)
    stay = [name for name, other in members.items() if other != "invited"]
    if role == "owner" and stay:
        members[stay[0]] = "owner"
    return bool(stay)


def _no_space(name: str) -> NotFound:
    return NotFound(f"You are in no space named {name!r}.")
