"""`satchel memory profile`, `agenda`, `pin` and `unpin`: what a model knows of the user in every session."""

from __future__ import annotations

import click

from satchel.cli.commands import Text, said_json
from satchel.cli.memory import memory_line
from satchel.cli.output import say, say_lines, tell
from satchel.cli.settings import read_settings
from satchel.cli.stores import memory_command
from satchel.memory import Memory, record_to_json
from satchel.runtime.lines import agenda_lines, standing_lines


@click.command()
@memory_command
async def profile(memory: Memory) -> None:
    """Show what a model knows of you in every session, why, and what does not fit: the page, where there is one."""
    settings = read_settings().memory
    found = await memory.standing(
        page_tokens=settings.page_tokens, profile_tokens=settings.profile_tokens, confidential=True
    )
    if not said_json(found.to_json()):
        say_lines(*standing_lines(found, settings))


@click.command()
@memory_command
async def agenda(memory: Memory) -> None:
    """Show what happens today and in the next seven days, as far as you said it."""
    budget = read_settings().memory.agenda_tokens
    found = await memory.agenda(budget_tokens=budget)
    if not said_json(found.to_json()):
        say_lines(*agenda_lines(found, budget_tokens=budget))


@click.command()
@click.argument("ids", nargs=-1, required=True, type=Text)
@memory_command
async def pin(memory: Memory, ids: tuple[str, ...]) -> None:
    """Put the memories IDS into the profile, before everything that isn't pinned."""
    await _set(memory, ids, pinned=True)


@click.command()
@click.argument("ids", nargs=-1, required=True, type=Text)
@memory_command
async def unpin(memory: Memory, ids: tuple[str, ...]) -> None:
    """Take pins back. The profile may still hold the memories for their importance."""
    await _set(memory, ids, pinned=False)


async def _set(memory: Memory, ids: tuple[str, ...], *, pinned: bool) -> None:
    made = [(await (memory.pin(id) if pinned else memory.unpin(id)), await memory.get(id)) for id in ids]
    if said_json([{"change": change, "memory": record_to_json(record)} for change, record in made]):
        return
    for number, record in made:
        say(memory_line(record))
        if number is None:
            tell("It was pinned already." if pinned else "It was not pinned.")
        else:
            tell(f"Change {number}; `satchel memory undo {number}` reverts it.")
