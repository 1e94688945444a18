"""The commands of `satchel memory` that change memories, show their history, and undo changes."""

from __future__ import annotations

from typing import Any, get_args

import click

from satchel.cli.commands import Text, said_json
from satchel.cli.memory import hit_line, memory_line
from satchel.cli.output import say, tell
from satchel.cli.stores import memory_command, parse_time
from satchel.errors import UsageError
from satchel.memory import (
    RELATIONS,
    Change,
    Discretion,
    Memory,
    MemoryType,
    Tier,
    hit_to_json,
    record_to_json,
)
from satchel.runtime.lines import counted
from satchel.tui.terminal_text import one_line

_WHY = click.option("--why", type=Text, default="", metavar="TEXT", help="The reason; the history keeps it.")


@click.command()
@click.argument("id", type=Text)
@click.argument("content", required=False, type=Text)
@click.option("--tag", "tags", multiple=True, type=Text, help="Replace all its tags; may be repeated.")
@click.option("--no-tags", is_flag=True, help="Remove all its tags.")
@click.option("--type", "memory_type", type=click.Choice(get_args(MemoryType)))
@click.option(
    "--tier", type=click.Choice(get_args(Tier)), help="Also sets the tier's priority and decay rate."
)
@click.option("--importance", type=click.IntRange(1, 5), help="5 is critical.")
@click.option("--priority", type=click.FloatRange(0, 1))
@click.option("--speaker", type=Text, metavar="NAME")
@click.option("--said-at", type=Text, metavar="TIME")
@click.option("--valid-from", type=Text, metavar="TIME", help='Start of its validity; "" removes the limit.')
@click.option("--valid-to", type=Text, metavar="TIME", help='End of its validity; "" removes the limit.')
@click.option(
    "--discretion",
    type=click.Choice(get_args(Discretion)),
    help="Show it unasked (open), only when you ask about it (confidential), or to no model (withheld).",
)
@click.option("--kept-from", type=Text, metavar="WHOM", help="From whom it is kept.")
@click.option(
    "--sphere", "spheres", multiple=True, type=Text, help="Replace all its spheres; may be repeated."
)
@_WHY
@memory_command
async def edit(
    memory: Memory,
    id: str,
    content: str | None,
    tags: tuple[str, ...],
    no_tags: bool,
    memory_type: MemoryType | None,
    tier: Tier | None,
    importance: int | None,
    priority: float | None,
    speaker: str | None,
    said_at: str | None,
    valid_from: str | None,
    valid_to: str | None,
    discretion: Discretion | None,
    kept_from: str | None,
    spheres: tuple[str, ...],
    why: str,
) -> None:
    """Change the CONTENT or other fields of the memory ID. `memory undo` reverts the change."""
    given: dict[str, Any] = {
        "content": content,
        "tags": [] if no_tags else list(tags) or None,
        "memory_type": memory_type,
        "tier": tier,
        "importance": importance,
        "priority": priority,
        "speaker": speaker,
        "said_at": parse_time(said_at),
        "discretion": discretion,
        "kept_from": kept_from,
        "spheres": spheres or None,
    }
    if valid_from is not None:
        given["valid_from"] = parse_time(valid_from or None)
    if valid_to is not None:
        given["valid_to"] = parse_time(valid_to or None)
    if all(value is None for value in given.values()) and valid_from is None and valid_to is None:
        raise UsageError("Nothing to change: add new content after the id, or an option.")
    made, record = await memory.edit(id, why=why, **given), await memory.get(id)
    if said_json({"change": made, "memory": record_to_json(record)}):
        return
    say(memory_line(record))
    tell("Nothing changed." if made is None else f"Change {made}; `satchel memory undo {made}` reverts it.")


@click.command()
@click.argument("source", type=Text)
@click.argument("target", type=Text)
@click.option(
    "--relation",
    type=Text,
    default="related",
    show_default=True,
    help=f"How SOURCE relates to TARGET: {', '.join(RELATIONS)}, or any word.",
)
@click.option("--weight", type=click.FloatRange(0, 1), default=1.0, show_default=True)
@click.option("--remove", is_flag=True, help="Remove the link.")
@_WHY
@memory_command
async def link(
    memory: Memory, source: str, target: str, relation: str, weight: float, remove: bool, why: str
) -> None:
    """Link SOURCE to TARGET. With --relation supersedes, TARGET stops being valid when SOURCE was said."""
    if remove:
        made = await memory.unlink(source, target, relation, why=why)
    elif relation == "supersedes":
        made = await memory.supersede(target, source, why=why)
    else:
        made = await memory.link(source, target, relation, weight, why=why)
    if said_json({"change": made, "source": source, "target": target, "relation": relation}):
        return
    if made is None:
        tell("Nothing changed.")
    else:
        say(made)


@click.command()
@click.argument("id", type=Text)
@click.option("--depth", type=click.IntRange(1, 20), default=2, show_default=True, help="The most steps.")
@click.option(
    "--relation", "relations", multiple=True, type=Text, help="Follow only this relation; may be repeated."
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@memory_command
async def related(memory: Memory, id: str, depth: int, relations: tuple[str, ...], limit: int) -> None:
    """List the memories linked to the memory ID, directly or through others: nearest first, then strongest."""
    found = await memory.related(id, depth, relations or None, limit=limit)
    if said_json({"id": id, "related": found, "edges": await memory.edges(id)}):
        return
    for one in found:
        arrow = f"-{one.relation}->" if one.outgoing else f"<-{one.relation}-"
        say(f"{'  ' * (one.depth - 1)}{one.via} {arrow} {one.weight:.2f}  {memory_line(one.memory)}")
    if not found:
        tell("No memory is linked to it.")


@click.command()
@click.argument("id", type=Text)
@memory_command
async def history(memory: Memory, id: str) -> None:
    """Show every change of the memory ID, oldest first. `memory undo` reverts one."""
    changes = await memory.history(id)
    if said_json(changes):
        return
    for change in changes:
        say(_change_line(change))


def _change_line(change: Change) -> str:
    words = [change.id, f"{change.at:%Y-%m-%d %H:%M}", change.who, change.action]
    if change.other_id is not None:
        words.append(f"{change.memory_id} {change.other_id}")
    if change.undoes is not None:
        words.append(f"of {change.undoes}")
    if change.action != "add":
        words += [
            f"{name}: {_value(change.before.get(name))} -> {_value(change.after.get(name))}"
            for name in {**change.before, **change.after}
        ]
    if change.why:
        words.append(f"({one_line(change.why, 80)})")
    if change.undone_by is not None:
        words.append(f"[undone by {change.undone_by}]")
    return "  ".join(words)


def _value(value: object) -> str:
    if isinstance(value, dict) and "relation" in value:
        weight = value["weight"]
        return "no link" if weight is None else f"{value['relation']} {weight:g}"
    return "-" if value is None else one_line(str(value), 60)


@click.command()
@click.argument("change", type=Text)
@_WHY
@memory_command
async def undo(memory: Memory, change: str, why: str) -> None:
    """Revert CHANGE, an id from `memory history`. Undoing the undo restores it."""
    made = await memory.undo(change, why=why)
    if not said_json({"change": made, "undoes": change}):
        say(made)


@click.command()
@click.argument("text", nargs=-1, required=True, type=Text)
@click.option("--limit", type=click.IntRange(1, 100), default=8, show_default=True, help="At most so many.")
@click.option(
    "--budget", type=click.IntRange(0), default=500, show_default=True, help="Token budget of the block."
)
@memory_command
async def recall(memory: Memory, text: tuple[str, ...], limit: int, budget: int) -> None:
    """Show the memories that a model would see with the message TEXT; stderr explains what is left out."""
    found = await memory.recall(" ".join(text), limit=limit, budget_tokens=budget)
    if not said_json([hit_to_json(hit) for hit in found.context.memories]):
        for hit in found.context.memories:
            say(hit_line(hit))
    if not found.context:
        tell("No memory would be shown.")
    else:
        memories = counted(len(found.context.memories), "memory", "memories")
        tell(f"{memories} would be shown, using {counted(found.context.tokens, 'token')}.")
    for hit, why in found.left_out:
        tell(f"  not shown ({why}): {memory_line(hit.memory)}")
