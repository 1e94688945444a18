"""`satchel memory profile`, `agenda`, `pin` and `unpin`: what a model knows of the user in every session."""

from __future__ import annotations

from typing import Any

import click

from satchel.cli.commands import Text, json_option
from satchel.cli.memory import memory_line
from satchel.cli.output import plain, say, say_json, tell
from satchel.cli.settings import read_settings
from satchel.cli.stores import scope_option, with_memory
from satchel.memory import Memory, MemoryRecord, agenda_to_json, always_to_json, record_to_json
from satchel.runtime.lines import agenda_lines, standing_lines

__all__ = ["agenda", "pin", "profile", "unpin"]


@click.command()
@scope_option
@json_option
def profile(scope: str, as_json: bool) -> None:
    """Show what a model knows of you in every session, why, and what does not fit: the page, where there is one."""
    settings = read_settings().memory
    found = with_memory(
        lambda memory: memory.standing(
            page_tokens=settings.page_tokens, profile_tokens=settings.profile_tokens, confidential=True
        ),
        scope,
    )
    _show(always_to_json(found) if as_json else standing_lines(found, settings))


@click.command()
@scope_option
@json_option
def agenda(scope: str, as_json: bool) -> None:
    """Show what happens today and in the next seven days, as far as you said it."""
    budget = read_settings().memory.agenda_tokens
    found = with_memory(lambda memory: memory.agenda(budget_tokens=budget), scope)
    _show(agenda_to_json(found) if as_json else agenda_lines(found, budget_tokens=budget))


@click.command()
@click.argument("ids", nargs=-1, required=True, type=Text)
@scope_option
@json_option
def pin(ids: tuple[str, ...], scope: str, as_json: bool) -> None:
    """Put the memories IDS into the profile, before everything that isn't pinned."""
    _set(ids, scope, as_json, pinned=True)


@click.command()
@click.argument("ids", nargs=-1, required=True, type=Text)
@scope_option
@json_option
def unpin(ids: tuple[str, ...], scope: str, as_json: bool) -> None:
    """Take pins back. The profile may still hold the memories for their importance."""
    _set(ids, scope, as_json, pinned=False)


def _set(ids: tuple[str, ...], scope: str, as_json: bool, *, pinned: bool) -> None:
    async def change(memory: Memory) -> list[tuple[str | None, MemoryRecord]]:
        return [(await (memory.pin(id) if pinned else memory.unpin(id)), await memory.get(id)) for id in ids]

    made = with_memory(change, scope)
    if as_json:
        say_json([{"change": change, "memory": record_to_json(record)} for change, record in made])
        return
    for number, record in made:
        say(memory_line(record))
        if number is None:
            tell("It was pinned already." if pinned else "It was not pinned.")
        else:
            tell(f"Change {number}; `satchel memory undo {number}` reverts it.")


def _show(found: dict[str, Any] | tuple[list[str], list[str]]) -> None:
    """Print JSON data, or lines and, apart from them, notes."""
    if isinstance(found, dict):
        say_json(found)
        return
    lines, notes = found
    for line in lines:
        say(plain(line))
    for note in notes:
        tell(plain(note))
