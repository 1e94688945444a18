"""The commands of `satchel memory` that change what is remembered, and show what happened to it."""

from __future__ import annotations

from typing import Any, get_args

import click

from satchel.cli.commands import Text, json_option
from satchel.cli.memory import hit_line, memory_line
from satchel.cli.output import say, say_json, tell
from satchel.cli.stores import moment_of, scope_option, with_memory
from satchel.cli.view import one_line
from satchel.errors import UsageError
from satchel.memory import (
    RELATIONS,
    Change,
    Memory,
    MemoryRecord,
    MemoryType,
    Recall,
    Related,
    Tier,
    change_to_json,
    edge_to_json,
    hit_to_json,
    record_to_json,
    related_to_json,
)

__all__ = ["edit", "history", "link", "recall", "related", "undo"]

_WHY = click.option(
    "--why", type=Text, default="", metavar="TEXT", help="What for; it is kept in the history."
)


@click.command()
@click.argument("id", type=Text)
@click.argument("content", required=False, type=Text)
@click.option("--tag", "tags", multiple=True, type=Text, help="All its tags from now on; may be repeated.")
@click.option("--no-tags", is_flag=True, help="Take all its tags away.")
@click.option("--type", "memory_type", type=click.Choice(get_args(MemoryType)))
@click.option("--tier", type=click.Choice(get_args(Tier)), help="Takes the tier's priority and rate along.")
@click.option("--importance", type=click.IntRange(1, 5), help="5 is critical.")
@click.option("--priority", type=click.FloatRange(0, 1))
@click.option("--speaker", type=Text, metavar="NAME")
@click.option("--said-at", type=Text, metavar="TIME")
@click.option("--valid-from", type=Text, metavar="TIME", help='From when on it holds; "" opens it.')
@click.option("--valid-to", type=Text, metavar="TIME", help='Until when it holds; "" opens it.')
@_WHY
@scope_option
@json_option
def edit(
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
    why: str,
    scope: str,
    as_json: bool,
) -> None:
    """Change the memory ID: its CONTENT, or what else is given. `memory undo` takes it back."""
    given: dict[str, Any] = {
        "content": content,
        "tags": [] if no_tags else list(tags) or None,
        "memory_type": memory_type,
        "tier": tier,
        "importance": importance,
        "priority": priority,
        "speaker": speaker,
        "said_at": moment_of(said_at),
    }
    if valid_from is not None:
        given["valid_from"] = moment_of(valid_from or None)
    if valid_to is not None:
        given["valid_to"] = moment_of(valid_to or None)
    if all(value is None for value in given.values()) and valid_from is None and valid_to is None:
        raise UsageError("Say what to change: new words after the id, or an option.")

    async def change(memory: Memory) -> tuple[str | None, MemoryRecord]:
        return await memory.edit(id, why=why, **given), await memory.get(id)

    made, record = with_memory(change, scope)
    if as_json:
        say_json({"change": made, "memory": record_to_json(record)})
        return
    say(memory_line(record))
    tell(
        "Nothing changed." if made is None else f"Change {made}; `satchel memory undo {made}` takes it back."
    )


@click.command()
@click.argument("source", type=Text)
@click.argument("target", type=Text)
@click.option(
    "--relation",
    type=Text,
    default="related",
    show_default=True,
    help=f"As in SOURCE elaborates TARGET: {', '.join(RELATIONS)}, or any word.",
)
@click.option("--weight", type=click.FloatRange(0, 1), default=1.0, show_default=True)
@click.option("--remove", is_flag=True, help="Take the tie away.")
@_WHY
@scope_option
@json_option
def link(
    source: str,
    target: str,
    relation: str,
    weight: float,
    remove: bool,
    why: str,
    scope: str,
    as_json: bool,
) -> None:
    """Tie SOURCE to TARGET. With --relation supersedes, TARGET no longer holds from the time of SOURCE on."""

    async def tie(memory: Memory) -> str | None:
        if remove:
            return await memory.unlink(source, target, relation, why=why)
        if relation == "supersedes":
            return await memory.supersede(target, source, why=why)
        return await memory.link(source, target, relation, weight, why=why)

    made = with_memory(tie, scope)
    if as_json:
        say_json({"change": made, "source": source, "target": target, "relation": relation})
    elif made is None:
        tell("Nothing changed.")
    else:
        say(made)


@click.command()
@click.argument("id", type=Text)
@click.option("--depth", type=click.IntRange(1, 20), default=2, show_default=True, help="Steps at most.")
@click.option("--relation", "relations", multiple=True, type=Text, help="Only along these; may be repeated.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@scope_option
@json_option
def related(id: str, depth: int, relations: tuple[str, ...], limit: int, scope: str, as_json: bool) -> None:
    """List what can be reached from the memory ID along ties: nearest first, then the strongest."""

    async def walk(memory: Memory) -> tuple[tuple[Related, ...], list[dict[str, Any]]]:
        found = await memory.related(id, depth, relations or None, limit=limit)
        return found, [edge_to_json(edge) for edge in await memory.edges(id)]

    found, edges = with_memory(walk, scope)
    if as_json:
        say_json({"id": id, "related": [related_to_json(one) for one in found], "edges": edges})
        return
    for one in found:
        arrow = f"-{one.relation}->" if one.outgoing else f"<-{one.relation}-"
        say(f"{'  ' * (one.depth - 1)}{one.via} {arrow} {one.weight:.2f}  {memory_line(one.memory)}")
    if not found:
        tell("Nothing is tied to it.")


@click.command()
@click.argument("id", type=Text)
@scope_option
@json_option
def history(id: str, scope: str, as_json: bool) -> None:
    """Show every change of the memory ID, the first one first. `memory undo` takes one back."""
    changes = with_memory(lambda memory: memory.history(id), scope)
    if as_json:
        say_json([change_to_json(change) for change in changes])
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
        return "no tie" if weight is None else f"{value['relation']} {weight:g}"
    return "-" if value is None else one_line(str(value), 60)


@click.command()
@click.argument("change", type=Text)
@_WHY
@scope_option
@json_option
def undo(change: str, why: str, scope: str, as_json: bool) -> None:
    """Take CHANGE back, an id that `memory history` shows. Undoing that again brings it back."""
    made = with_memory(lambda memory: memory.undo(change, why=why), scope)
    if as_json:
        say_json({"change": made, "undoes": change})
    else:
        say(made)


@click.command()
@click.argument("text", nargs=-1, required=True, type=Text)
@click.option("--limit", type=click.IntRange(1, 100), default=5, show_default=True, help="At most so many.")
@click.option("--budget", type=click.IntRange(0), default=500, show_default=True, help="Tokens of the block.")
@scope_option
@json_option
def recall(text: tuple[str, ...], limit: int, budget: int, scope: str, as_json: bool) -> None:
    """Show what a model would be shown with the message TEXT, and on stderr why not more."""

    async def find(memory: Memory) -> Recall:
        return await memory.recall(" ".join(text), limit=limit, budget_tokens=budget)

    found = with_memory(find, scope)
    if as_json:
        say_json([hit_to_json(hit) for hit in found.context.memories])
    else:
        for hit in found.context.memories:
            say(hit_line(hit))
    if not found.context:
        tell("Nothing would be shown.")
    else:
        tell(f"{len(found.context.memories)} would be shown, in {found.context.tokens} tokens.")
    for hit, why in found.left_out:
        tell(f"  not shown, {why}: {memory_line(hit.memory)}")
