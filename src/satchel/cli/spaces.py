"""`satchel user space`: what some of the people of a server share. A member runs these in their own home."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import click

from satchel.cli.commands import CommandGroup, Text, confirm, json_option, said_json
from satchel.cli.output import say, tell
from satchel.cli.settings import read_settings
from satchel.cli.signals import run_in_good_order
from satchel.errors import Refused
from satchel.plain import as_json
from satchel.runtime.people import Role
from satchel.runtime.person_homes import people_of
from satchel.runtime.spaces import Spaces

T = TypeVar("T")
_SPACE = click.argument("space", type=Text)
_WHO = click.argument("who", type=Text)


@click.group(cls=CommandGroup)
def space() -> None:
    """Share memories with some of the people of this server, such as a household or a team.

    Run these in a person's own home, as that person, while the server runs; people without a terminal use the page
    Shared. `satchel memory add --in SPACE` shares something.
    """


def _here() -> Spaces:
    found = Spaces.of(read_settings().home)
    if found is None:
        raise Refused(
            "Spaces belong to the people of a server. This is not the home of one of them, or the front door has not "
            "started their Satchel yet."
        )
    return found


def _asked(ask: Callable[[Spaces], Awaitable[T]]) -> T:
    spaces = _here()

    async def body() -> T:
        return await ask(spaces)

    return run_in_good_order(body)


def members_line(members: Mapping[str, Role]) -> str:
    """Who is in a space, as "ann (owner), ben (invited)"."""
    return ", ".join(name if role == "member" else f"{name} ({role})" for name, role in members.items())


@space.command("list")
@json_option
def list_() -> None:
    """List your spaces and invitations; in the administrator's home, all spaces, without what is in them."""
    settings = read_settings()
    if (here := Spaces.of(settings.home)) is not None:
        found: list[dict[str, Any]] = [as_json(one) for one in run_in_good_order(here.all)]
    else:
        everybody = people_of(settings).all().items()
        found = [
            {"name": name, "members": dict(one.members), "leaving": one.leaving}
            for name, one in everybody
            if one.is_space
        ]
    if said_json(found):
        return
    for one in found:
        invited = "  you are invited: satchel user space accept " if one.get("you") == "invited" else ""
        # Only the administrator can finish what was interrupted.
        goes = (
            f"  is being deleted: satchel user remove {one['name']} finishes it" if one.get("leaving") else ""
        )
        say(f"{one['name']}  {members_line(one['members'])}{invited and invited + one['name']}{goes}")
    if not found:
        tell("There is no space. `satchel user space add NAME` makes one, in a person's own home.")


@space.command()
@_SPACE
def add(space: str) -> None:
    """Make SPACE. You own it: you invite and remove others, and may forget everything in it."""
    _asked(lambda spaces: spaces.make(space))
    tell(f"{space} is there. `satchel user space invite {space} NAME` invites somebody.")


@space.command()
@_SPACE
@_WHO
def invite(space: str, who: str) -> None:
    """Invite WHO to SPACE. They see nothing of it before they accept."""
    tell(_asked(lambda spaces: spaces.invite(space, who)))


@space.command()
@_SPACE
def accept(space: str) -> None:
    """Accept the invitation to SPACE."""
    tell(_asked(lambda spaces: spaces.accept(space)))


@space.command()
@_SPACE
@click.option("--yes", is_flag=True, help="Don't ask.")
def leave(space: str, yes: bool) -> None:
    """Leave SPACE, or decline the invitation to it."""
    found = _asked(lambda spaces: spaces.get(space))
    if found.you != "invited":
        tell(found.leaving)
        if not yes:
            confirm(f"Leave {space}?", doing="leaving")
    tell(_asked(lambda spaces: spaces.take_out(space)))


@space.command()
@_SPACE
@_WHO
def remove(space: str, who: str) -> None:
    """Remove WHO from SPACE, or take an invitation back. What they shared stays."""
    tell(_asked(lambda spaces: spaces.take_out(space, who)))


@space.command()
@_SPACE
@click.option("--yes", is_flag=True, help="Don't ask.")
def delete(space: str, yes: bool) -> None:
    """Delete SPACE with everything in it."""
    tell(_asked(lambda spaces: spaces.get(space)).deleting)
    if not yes:
        confirm(f"Delete {space}?", doing="deleting")
    _asked(lambda spaces: spaces.delete(space))
    tell(f"{space} is deleted.")
