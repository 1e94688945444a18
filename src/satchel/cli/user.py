"""`satchel user`: the people of a server, each with a home of their own."""

from __future__ import annotations

import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from satchel.cli.commands import LazyGroup, Text, confirm, json_option, said_json
from satchel.cli.output import is_terminal, say, say_rows, tell
from satchel.cli.settings import read_settings
from satchel.clock import SystemClock, local_day
from satchel.errors import Refused, SatchelError, UsageError
from satchel.runtime.memberships import forget_person, owners_without
from satchel.runtime.people import Person
from satchel.runtime.person_homes import (
    add_person,
    back_up_person,
    folder_of,
    people_of,
    remove_person,
    separation,
    usd_today,
    used_mb,
)

_ID_CHARS = 12
_limits = (
    click.option("--day-usd", type=Text, metavar="USD", help="What models may cost in a day; none lifts it."),
    click.option("--disk-mb", type=Text, metavar="MB", help="How large the folder may get; none lifts it."),
    click.option(
        "--own-keys/--shared-keys",
        default=None,
        help="Whether the person brings keys of model providers, or uses yours (the default).",
    ),
)


@click.group(cls=LazyGroup, lazy={"space": ("satchel.cli.spaces:space", "Share memories with some of them.")})
def user() -> None:
    """Let several people use this server, each with a Satchel of their own.

    With the first person, `satchel serve` becomes the front door: people log in with their name and password, and
    nobody reaches this home through it any more.
    """


@user.command()
@click.argument("name", type=Text)
@_limits[0]
@_limits[1]
@_limits[2]
@json_option
def add(name: str, day_usd: str | None, disk_mb: str | None, own_keys: bool | None) -> None:
    """Add NAME, with a home of their own. The password is asked for, or read from stdin; without one, one is made."""
    settings = read_settings()
    limits = _read_limits(day_usd, disk_mb, own_keys)
    password, is_made = _new_password()
    person = add_person(
        settings, name, password, **{"day_usd": None, "disk_mb": None, "own_keys": False, **limits}
    )
    folder = folder_of(settings.home, person)
    if said_json({"name": name, "folder": str(folder), "password": password if is_made else None}):
        return
    tell(f"{name} has a home in {folder}. {separation()}")
    tell("`satchel serve` is the front door now. Restart it if it is already running.")
    if is_made:
        say(password)


@user.command(name="list")
@json_option
def list_() -> None:
    """List the people, with what they use and may use."""
    settings = read_settings()
    day = local_day(SystemClock().now())
    found: list[dict[str, Any]] = [
        {
            "name": person.name,
            "uid": person.uid,
            "tokens": len(person.tokens),
            "own_keys": person.own_keys,
            "usd_today": usd_today(settings, person, day=day),
            "day_usd": person.day_usd,
            "used_mb": round(used_mb(settings.home, person), 1),
            "disk_mb": person.disk_mb,
            "leaving": person.leaving,
        }
        for person in people_of(settings).persons().values()
    ]
    if said_json(found):
        return
    if found:
        say_rows(
            [
                [
                    one["name"],
                    f"${one['usd_today'] or 0:.2f}"
                    + (f" of ${one['day_usd']:g} today" if one["day_usd"] is not None else " today"),
                    f"{one['used_mb']:,} MB"
                    + (f" of {one['disk_mb']:,}" if one["disk_mb"] is not None else ""),
                    f"{one['tokens']} tokens",
                    "own keys" if one["own_keys"] else "your keys",
                    "is being removed" if one["leaving"] else "",
                ]
                for one in found
            ]
        )
    else:
        tell("There is nobody: this home is yours alone. `satchel user add NAME` adds somebody.")


@user.command()
@click.argument("name", type=Text)
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def remove(name: str, yes: bool) -> None:
    """Remove NAME: log them out, back their home up, and delete it."""
    settings = read_settings()
    people = people_of(settings)
    person = people.all().get(name) or people.get(name)
    folder = folder_of(settings.home, person)
    tell(
        f"This deletes {folder} ({used_mb(settings.home, person):,.1f} MB): {_what_goes(person)}"
        f"{', and the database on the server' if person.database else ''}. A backup is made first, in "
        f"{settings.home / 'removed'}."
    )
    for space, owner in owners_without(people, name).items():
        stays = f"What {name} shared in {space} stays there, and {owner} owns it."
        tell(stays if owner else f"Nobody else is in the space {space}: it goes as well.")
    if not yes:
        confirm(f"Remove {name}?", doing="removing")
    forget_person(settings, people, name, clock=SystemClock())
    kept = remove_person(settings, person, clock=SystemClock())
    if not said_json({"name": name, "backup": [str(each) for each in kept]}):
        tell(f"Removed {name}. The backup: {', '.join(map(str, kept)) or 'there was nothing to keep'}.")


@user.command()
@click.argument("name", type=Text)
def password(name: str) -> None:
    """Set another password for NAME, who may have lost theirs: every browser has to log in again; tokens stay."""
    people = people_of(read_settings())
    people.get(name)
    chosen, is_made = _new_password()
    people.set_password(name, chosen)
    tell(f"{name} has another password.")
    if is_made:
        say(chosen)


@user.command()
@click.argument("name", type=Text)
@click.option("--revoke", is_flag=True, help="Make none; all that NAME has stop working.")
def token(name: str, revoke: bool) -> None:
    """Make a token with which programs are NAME, and print it: it is shown only now."""
    people = people_of(read_settings())
    if revoke:
        people.set(name, tokens=())
        tell(f"{name} has no tokens any more.")
    else:
        say(people.make_token(name))


@user.command()
@click.argument("name", type=Text)
@click.option(
    "--remove", "id", type=Text, metavar="ID", help="Remove this one; the beginning of its id is enough."
)
@json_option
def passkeys(name: str, id: str | None) -> None:
    """List the passkeys of NAME, or remove one, such as that of a lost phone."""
    people = people_of(read_settings())
    keys = people.get(name).passkeys
    if id is not None:
        found = [key for key in keys if id and key["id"].startswith(id)]
        if len(found) != 1:
            raise UsageError(
                f"{len(found)} passkeys of {name} begin with {id!r}. Leave out --remove to list them."
            )
        keys = tuple(found)
        people.change_passkeys(name, lambda now: [key for key in now if key["id"] != found[0]["id"]])
    shown = [{field: key[field] for field in ("id", "name", "added", "origin")} for key in keys]
    if said_json(shown):
        return
    if id is not None:
        tell(f"Removed. Browsers stay logged in until you run `satchel user password {name}`.")
    elif shown:
        say_rows([[one["id"][:_ID_CHARS], one["name"], one["added"], one["origin"]] for one in shown])
    else:
        tell(f"{name} has no passkeys.")


@user.command()
@click.argument("name", type=Text)
@_limits[0]
@_limits[1]
@_limits[2]
@json_option
def quota(name: str, day_usd: str | None, disk_mb: str | None, own_keys: bool | None) -> None:
    """Limit what NAME may use, which they can't change themselves. It holds from their next request on."""
    person = people_of(read_settings()).set(name, **_read_limits(day_usd, disk_mb, own_keys))
    shown = {key: asdict(person)[key] for key in ("day_usd", "disk_mb", "own_keys")}
    if not said_json(shown):
        money = "no limit" if person.day_usd is None else f"${person.day_usd:g}"
        disk = "no limit" if person.disk_mb is None else f"{person.disk_mb:,} MB"
        tell(
            f"{name}: {money} a day, {disk} on disk, {'their own keys' if person.own_keys else 'your keys'}."
        )


@user.command()
@click.argument("folder", type=click.Path(path_type=Path))
def backup(folder: Path) -> None:
    """Back up everybody's home into FOLDER; `satchel backup` leaves them out."""
    settings = read_settings()
    failed: dict[str, SatchelError] = {}
    for person in people_of(settings).all().values():
        try:
            for path in back_up_person(settings, person, folder.absolute()):
                tell(f"Backed up {person.name} to {path}.")
        except SatchelError as error:
            failed[person.name] = error
            tell(str(error))
    if failed:
        raise Refused(f"Not backed up: {', '.join(failed)}. Why is above.")


def _what_goes(person: Person) -> str:
    if person.is_space:
        return f"what is shared by {', '.join(person.members)}"
    return (
        f"{person.name}'s memories, conversations, capabilities, settings and files. Their browsers and tokens stop "
        "working"
    )


def _new_password() -> tuple[str, bool]:
    """A password that was typed, piped, or else made, and whether it was made."""
    if is_terminal(sys.stdin):
        given = click.prompt(
            "Password (empty makes one)",
            hide_input=True,
            confirmation_prompt=True,
            default="",
            show_default=False,
            err=True,
        )
    else:
        given = sys.stdin.readline().rstrip("\r\n")
    return (given, False) if given else (secrets.token_urlsafe(12), True)


def _read_limits(day_usd: str | None, disk_mb: str | None, own_keys: bool | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if own_keys is None else {"own_keys": own_keys}
    for key, text, kind in (("day_usd", day_usd, float), ("disk_mb", disk_mb, int)):
        if text is not None:
            try:
                found[key] = None if text == "none" else kind(text)
                if found[key] is not None and not 0 <= found[key] <= 1_000_000_000:
                    raise ValueError
            except ValueError:
                raise UsageError(f"--{key.replace('_', '-')} takes a number from 0, or none.") from None
    return found
