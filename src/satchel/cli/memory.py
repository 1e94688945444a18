"""`satchel memory`: what is remembered, with no model in between."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar, get_args

import anyio
import click

from satchel.cli.commands import LazyGroup, Text, json_option
from satchel.cli.home import opened_home
from satchel.cli.output import is_terminal, say, say_json, tell
from satchel.cli.reindex import reindex
from satchel.cli.settings import read_settings
from satchel.cli.transfer import export, import_memories
from satchel.cli.view import one_line
from satchel.errors import NotFound, StorageError, UsageError
from satchel.memory import (
    Hit,
    Kind,
    Memory,
    MemoryRecord,
    MemoryType,
    Mode,
    Tier,
    hit_to_json,
    record_to_json,
)
from satchel.runtime.forgetting import ForgetReceipt
from satchel.runtime.home import Home

__all__ = ["hit_line", "memory", "memory_line", "receipt_text"]

T = TypeVar("T")

_MOST_ADDED = 16_000_000
"""Bytes of one memory on stdin; the store takes 16 million characters."""


def _with_satchel(function: Callable[[Home], Awaitable[T]]) -> T:
    async def body() -> T:
        async with opened_home(read_settings()) as satchel:
            return await function(satchel)

    return anyio.run(body)


def _with_memory(function: Callable[[Memory], Awaitable[T]]) -> T:
    async def body(satchel: Home) -> T:
        found = await function(_memory_of(satchel))
        if satchel.memory is not None and satchel.memory.degraded:
            tell(f"! {satchel.memory.degraded}")
        return found

    return _with_satchel(body)


def _memory_of(satchel: Home) -> Memory:
    if satchel.memory is None:
        raise StorageError(
            "Memory is off (memory.enabled) or could not be opened. `satchel doctor` says what is wrong."
        )
    return satchel.memory


def memory_line(record: MemoryRecord) -> str:
    """A memory in one line."""
    source = record.source
    place = f"session {source.session}, turn {source.turn}" if source.session else "stored by hand"
    speaker = f"{record.speaker}: " if record.speaker else ""
    tags = f"  [{', '.join(record.tags)}]" if record.tags else ""
    return (
        f"{record.id}  {record.said_at:%Y-%m-%d}  {speaker}{one_line(record.content, 160)}{tags}  ({place})"
    )


def hit_line(hit: Hit) -> str:
    """A memory that was found, in one line, with its score."""
    return f"{hit.score:.2f}  {memory_line(hit.memory)}"


# What asks a language model needs all of Satchel, and the rest of memory does not.
_LAZY = {"distill": ("satchel.cli.distill:distill", "Draw facts from what was said; show how that stands.")}


@click.group(cls=LazyGroup, lazy=_LAZY)
def memory() -> None:
    """Add, search, list, show and forget memories."""


@memory.command()
@click.argument("content", nargs=-1, type=Text)
@click.option(
    "--tag", "tags", multiple=True, type=Text, help="A word it should also be found by; may be repeated."
)
@click.option(
    "--type", "memory_type", type=click.Choice(get_args(MemoryType)), default="general", show_default=True
)
@click.option("--tier", type=click.Choice(get_args(Tier)), default="long_term", show_default=True)
@click.option("--importance", type=click.IntRange(1, 5), default=3, show_default=True, help="5 is critical.")
@click.option(
    "--said-at", type=Text, metavar="TIME", help='When it was said, as in "2026-03-01" or "2026-03-01T18:30".'
)
@json_option
def add(
    content: tuple[str, ...],
    tags: tuple[str, ...],
    memory_type: MemoryType,
    tier: Tier,
    importance: int,
    said_at: str | None,
    as_json: bool,
) -> None:
    """Remember CONTENT, word for word; "-" reads it from stdin."""
    words = (
        sys.stdin.buffer.read(_MOST_ADDED).decode("utf-8", "replace")
        if content == ("-",)
        else " ".join(content)
    )
    if not words.strip():
        raise UsageError(
            'There is nothing to remember: give it as an argument, or "-" and the text on stdin.'
        )
    when = _moment(said_at)

    async def store(memory: Memory) -> MemoryRecord:
        id = await memory.add(
            words, tags=tags, memory_type=memory_type, tier=tier, importance=importance, said_at=when
        )
        return await memory.get(id)

    record = _with_memory(store)
    if as_json:
        say_json(record_to_json(record))
    else:
        say(record.id)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time. Write it as 2026-03-01 or 2026-03-01T18:30.") from None


@memory.command()
@click.argument("query", nargs=-1, required=True, type=Text)
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="At most so many.")
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    default="hybrid",
    show_default=True,
    help="By words and meaning, by words alone, by meaning alone.",
)
@json_option
def search(query: tuple[str, ...], limit: int, mode: Mode, as_json: bool) -> None:
    """Find memories, best first."""
    hits = _with_memory(lambda memory: memory.search(" ".join(query), limit=limit, mode=mode))
    if as_json:
        say_json([hit_to_json(hit) for hit in hits])
        return
    for hit in hits:
        say(hit_line(hit))
    if not hits:
        tell("Nothing is remembered that fits.")


@memory.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Leave out so many first.")
@click.option("--kind", type=click.Choice(get_args(Kind)), help="What was said, what is known, or summaries.")
@click.option("--tag", "tags", multiple=True, type=Text, help="Only those with this tag; all of several.")
@click.option(
    "--session", "session_id", type=Text, metavar="ID", help="Only those that come from this session."
)
@json_option
def list_memories(
    limit: int, offset: int, kind: Kind | None, tags: tuple[str, ...], session_id: str | None, as_json: bool
) -> None:
    """List memories, those said last first."""

    async def read(memory: Memory) -> tuple[tuple[MemoryRecord, ...], int]:
        records = await memory.list(kind=kind, tags=tags, session=session_id, limit=limit, offset=offset)
        return records, await memory.count(kind=kind, tags=tags, session=session_id)

    records, count = _with_memory(read)
    if as_json:
        say_json([record_to_json(record) for record in records])
        return
    for record in records:
        say(memory_line(record))
    if not count:
        tell("Nothing is remembered yet." if not (kind or tags or session_id) else "No memory fits.")
    elif count > offset + len(records):
        tell(f"… and {count - offset - len(records)} more: --offset {offset + len(records)} goes on.")


@memory.command()
@click.argument("id", type=Text)
@json_option
def show(id: str, as_json: bool) -> None:
    """Show one memory whole, and where it comes from."""
    record = _with_memory(lambda memory: memory.get(id))
    if as_json:
        say_json(record_to_json(record))
        return
    say(record.content)
    for name, value in record_to_json(record).items():
        if name != "content" and value not in (None, "", []):
            shown = (
                ", ".join(f"{k} {v}" for k, v in value.items() if v is not None)
                if isinstance(value, dict)
                else value
            )
            if shown:
                tell(f"  {name}: {shown}")


@memory.command()
@click.argument("ids", nargs=-1, required=True, type=Text)
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def forget(ids: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Forget memories for good: the words, their vectors, their index entries, and the words in the session
    logs.

    What is forgotten can't be brought back, not by the same source either.
    """

    async def find(satchel: Home) -> list[MemoryRecord]:
        found = []
        for id in ids:
            try:
                found.append(await _memory_of(satchel).get(id))
            except NotFound as error:
                tell(f"satchel: {error}")
        return found

    records = _with_satchel(find)
    if not records:
        raise NotFound("There was nothing to forget.")
    if not yes:
        for record in records:
            tell(memory_line(record))
        if not is_terminal(sys.stdin):
            raise UsageError("Forgetting needs --yes where nobody can be asked.")
        click.confirm(
            "Forget this for good?" if len(records) == 1 else "Forget these for good?", abort=True, err=True
        )
    receipt = _with_satchel(lambda satchel: satchel.forget([record.id for record in records]))
    if as_json:
        say_json({"receipt": receipt.to_json()})
    else:
        tell(receipt_text(receipt))
    if receipt.is_empty:
        raise NotFound("There was nothing to forget.")
    if receipt.logs.errors:
        raise StorageError(" ".join(receipt.logs.errors))


def receipt_text(receipt: ForgetReceipt) -> str:
    """What was removed, for people."""
    gone = receipt.store.forgotten
    vectors, edges = sum(entry.vectors for entry in gone), sum(entry.edges for entry in gone)
    lines = [f"Forgotten: {', '.join(entry.id for entry in gone)}"]
    lines += [
        f"  {entry.id} went because it rested on {entry.because_of} alone"
        for entry in gone
        if entry.because_of
    ]
    lines.append(f"  with {len(gone)} index entries, {vectors} vectors, {edges} edges")
    for entry in receipt.logs.sessions:
        if entry.error:
            lines.append(f"  ! the log of session {entry.session_id} still has the words: {entry.error}")
        else:
            lines.append(f"  and from {len(entry.records)} records in the log of session {entry.session_id}")
        # This process read its sessions again when it forgot.
        if entry.open_in not in (None, os.getpid()):
            lines.append(
                f"  ! that session is open in process {entry.open_in}, which may still know the words until it ends"
            )
    return "\n".join(lines)


@memory.command()
@json_option
def stats(as_json: bool) -> None:
    """Count what is remembered."""
    found = _with_memory(lambda memory: memory.stats())
    values: dict[str, Any] = asdict(found)
    for name in ("oldest", "newest"):
        values[name] = values[name].isoformat() if values[name] is not None else None
    if as_json:
        say_json(values)
        return
    for name, value in values.items():
        if isinstance(value, dict):
            shown = ", ".join(f"{count} {key}" for key, count in value.items())
        elif isinstance(value, (list, tuple)):
            shown = " ".join(str(part) for part in value)
        else:
            shown = "" if value is None else str(value)
        if shown:
            say(f"{name:12} {shown}")


memory.add_command(reindex)
memory.add_command(export)
memory.add_command(import_memories)
