"""`satchel memory`: add, search, list, show and forget memories, without a language model."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from satchel.cli.commands import LazyGroup, Text, confirm, json_option, said_json, wants_json
from satchel.cli.output import say, tell
from satchel.cli.rebuild import rebuild
from satchel.cli.reindex import EmbeddingLine, reindex
from satchel.cli.stores import (
    filter_options,
    filters_of,
    memory_command,
    memory_of,
    parse_time,
    scope_option,
    spaces_here,
    with_home,
)
from satchel.errors import NotFound, StorageError, UsageError
from satchel.memory import (
    Discretion,
    Hit,
    Memory,
    MemoryRecord,
    MemoryType,
    Mode,
    Successor,
    Tier,
    hit_to_json,
    record_to_json,
)
from satchel.memory.records import SharedHits
from satchel.plain import as_json
from satchel.runtime import lines
from satchel.runtime.forgetting import ForgetReceipt
from satchel.runtime.home import Home
from satchel.runtime.pictures import picture_file
from satchel.tui.plain_text import plain

if TYPE_CHECKING:
    from satchel.runtime.spaces import Spaces

_MOST_SHOWN = 20
_MOST_ADDED = 16_000_000
"""The most bytes of a memory on stdin; the store accepts 16 million characters."""


def memory_line(
    record: MemoryRecord, later: Sequence[Successor] = (), *, evidence: Sequence[MemoryRecord] = ()
) -> str:
    """A memory in one line, without control characters."""
    return plain(lines.memory_line(record, later, evidence=evidence))


def hit_line(hit: Hit, later: Sequence[Successor] = (), *, evidence: Sequence[MemoryRecord] = ()) -> str:
    """The same for a search result, with its score."""
    return plain(lines.hit_line(hit, later, evidence=evidence))


# Commands that use a language model import all of Satchel; the other commands don't need it.
_LAZY = {
    "export": ("satchel.cli.transfer:export", "Write memories to FILE as JSON lines, or to stdout."),
    "import": (
        "satchel.cli.transfer:import_memories",
        "Import memories from PATH: a file, a .zip, or a folder.",
    ),
    "add-file": ("satchel.cli.documents:add_file", "Remember documents: files, or all in a folder."),
    "documents": ("satchel.cli.documents:documents", "List the documents that are remembered."),
    "watch": ("satchel.cli.documents:watch_folder", "Remember the documents of a folder as they change."),
    "answer": ("satchel.cli.memory_work:answer", "Answer the hooks of other agents."),
    "work": ("satchel.cli.memory_work:work", "Extract facts and embed until nothing is left to do."),
    "distill": ("satchel.cli.distill:distill", "Extract facts from conversations, or show the progress."),
    "edit": ("satchel.cli.changes:edit", "Change a memory; its history keeps the old version."),
    "link": ("satchel.cli.changes:link", "Link two memories, let one supersede another, or remove a link."),
    "related": ("satchel.cli.changes:related", "List the memories linked to one."),
    "history": ("satchel.cli.changes:history", "Show every change of a memory."),
    "doctor": ("satchel.cli.checkup:doctor", "Check the memories, and repair them."),
    "undo": ("satchel.cli.changes:undo", "Revert a change."),
    "page": (
        "satchel.cli.page:page",
        "Show or edit the page that a model knows of you in every conversation.",
    ),
    "profile": ("satchel.cli.profile:profile", "Show what a model knows of you in every conversation."),
    "agenda": ("satchel.cli.profile:agenda", "Show what happens in the next seven days."),
    "pin": ("satchel.cli.profile:pin", "Put memories into the profile."),
    "unpin": ("satchel.cli.profile:unpin", "Take pins back."),
    "recall": ("satchel.cli.changes:recall", "Show what a model would see, and what is left out."),
}


@click.group(cls=LazyGroup, lazy=_LAZY)
def memory() -> None:
    """Add, search, list, show and forget memories."""


def _words_of(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> str:
    """What is to be remembered. Stdin is read before the event loop runs, so that Ctrl-C ends it."""
    words = (
        sys.stdin.buffer.read(_MOST_ADDED).decode("utf-8", "replace") if given == ("-",) else " ".join(given)
    )
    if not words.strip():
        raise UsageError(
            'There is nothing to remember. Pass it as an argument, or pass "-" and write it to stdin.'
        )
    return words


@memory.command()
@click.argument("content", nargs=-1, type=Text, callback=_words_of)
@click.option(
    "--tag", "tags", multiple=True, type=Text, help="A tag that searches find it by; may be repeated."
)
@click.option(
    "--cue",
    "cues",
    multiple=True,
    type=Text,
    help='A situation in which it will matter, such as "choosing a restaurant"; may be repeated.',
)
@click.option(
    "--type", "memory_type", type=click.Choice(get_args(MemoryType)), default="general", show_default=True
)
@click.option("--tier", type=click.Choice(get_args(Tier)), default="long_term", show_default=True)
@click.option("--importance", type=click.IntRange(1, 5), default=3, show_default=True, help="5 is critical.")
@click.option(
    "--said-at", type=Text, metavar="TIME", help='When it was said, as in "2026-03-01" or "2026-03-01T18:30".'
)
@click.option(
    "--discretion",
    type=click.Choice(get_args(Discretion)),
    default="open",
    show_default=True,
    help="Show it unasked (open), only when you ask about it (confidential), or to no model (withheld).",
)
@click.option("--kept-from", type=Text, default="", metavar="WHOM", help="From whom it is kept.")
@click.option(
    "--in", "space", type=Text, metavar="SPACE", help="Share the words in a space, and keep nothing here."
)
@click.option(
    "--sphere", "spheres", multiple=True, type=Text, help="Where it belongs, such as health; may be repeated."
)
@memory_command
async def add(
    memory: Memory,
    content: str,
    tags: tuple[str, ...],
    cues: tuple[str, ...],
    memory_type: MemoryType,
    tier: Tier,
    importance: int,
    said_at: str | None,
    discretion: Discretion,
    kept_from: str,
    space: str | None,
    spheres: tuple[str, ...],
) -> None:
    """Remember CONTENT, word for word; "-" reads it from stdin."""
    if space is not None:
        spaces = spaces_here()
        if spaces is None:
            raise NotFound(f"You are in no space named {space!r}.")
        context = click.get_current_context()
        given = [
            option.opts[0]
            for option in context.command.params
            if option.name not in ("space", "content", "json")
            and context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        ]
        if given:  # such as what is kept from somebody, which a space would show them
            raise UsageError(f"A space has words only: leave out {', '.join(given)}, or leave out --in.")
        record = await spaces.add(space, content)
        if not said_json(record_to_json(record)):
            say(record.id)
        return
    id = await memory.add(
        content,
        tags=tags,
        cues=cues,
        memory_type=memory_type,
        tier=tier,
        importance=importance,
        said_at=parse_time(said_at),
        discretion=discretion,
        kept_from=kept_from,
        spheres=spheres,
    )
    if not said_json(record_to_json(await memory.get(id))):
        say(id)


async def _shared(memory: Memory, ask: Callable[[Spaces], Awaitable[SharedHits]]) -> Sequence[Hit]:
    """What is found in the user's spaces; nothing in a home of one person, and in other scopes."""
    spaces = spaces_here() if memory.scope == "default" else None
    if spaces is None:
        return ()
    found = await ask(spaces)
    if found.away:
        tell(f"Nothing of {', '.join(found.away)} can be shown now.")
    return found.hits


_folded_option = click.option(
    "--folded/--unfolded",
    default=None,
    help="A fact and the turns that it rests on in one line. The default, except with --json.",
)


@memory.command()
@click.argument("query", nargs=-1, required=True, type=Text)
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="At most so many.")
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    default="hybrid",
    show_default=True,
    help="How memories are ranked; hybrid uses words and meaning.",
)
@click.option(
    "--threshold",
    type=float,
    help="Only scores above this. Without it, the mode semantic takes 0.45, and the others show all.",
)
@filter_options
@_folded_option
@click.option("--superseded", is_flag=True, help="Include memories that are no longer valid.")
@memory_command
async def search(
    memory: Memory,
    query: tuple[str, ...],
    limit: int,
    mode: Mode,
    threshold: float | None,
    superseded: bool,
    folded: bool | None,
    **given: Any,
) -> None:
    """Find memories, best first."""
    wanted = filters_of(given)
    wanted["folded"] = not wants_json() if folded is None else folded
    line = EmbeddingLine()
    hits = await memory.search(
        " ".join(query),
        limit=limit,
        mode=mode,
        threshold=threshold,
        include_superseded=superseded,
        progress=line,
        **wanted,
    )
    line.end()
    ids = [hit.memory.id for hit in hits]
    later, evidence = await memory.later(ids), await memory.evidence(ids) if wanted["folded"] else {}
    if not any(given.values()) and mode == "hybrid":
        shared = await _shared(memory, lambda spaces: spaces.search(" ".join(query), limit=limit))
        hits = tuple(sorted([*hits, *shared], key=lambda hit: -hit.score)[:limit])
    if said_json([hit_to_json(hit, evidence.get(hit.memory.id, ())) for hit in hits]):
        return
    for hit in hits:
        say(hit_line(hit, later.get(hit.memory.id, ()), evidence=evidence.get(hit.memory.id, ())))
    if hits:
        return
    tell("No memory matches.")
    stats = await memory.stats()
    if mode == "semantic" and (waiting := stats.memories - stats.embedded):
        tell(
            f"{waiting:,} of {lines.counted(stats.memories, 'memory', 'memories')} can’t be found in this mode yet: "
            "they have no vector. The embedder makes them in the background. --mode lexical searches their words now."
        )


@memory.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Skip this many.")
@filter_options
@_folded_option
@memory_command
async def list_memories(memory: Memory, limit: int, offset: int, folded: bool | None, **given: Any) -> None:
    """List memories, the newest first."""
    wanted = filters_of(given)
    wanted["folded"] = not wants_json() if folded is None else folded
    records = await memory.list(limit=limit, offset=offset, **wanted)
    ids = [record.id for record in records]
    later, evidence = await memory.later(ids), await memory.evidence(ids) if wanted["folded"] else {}
    if not any(given.values()) and not offset:
        shared = await _shared(memory, lambda spaces: spaces.list(limit=limit))
        both = [*records, *(hit.memory for hit in shared)]
        records = tuple(sorted(both, key=lambda one: one.said_at, reverse=True))
    if said_json([record_to_json(record, evidence.get(record.id, ())) for record in records]):
        return
    count = await memory.count(**wanted)
    for record in records:
        say(memory_line(record, later.get(record.id, ()), evidence=evidence.get(record.id, ())))
    if not count and not records:
        tell("No memory matches." if any(given.values()) else "There are no memories yet.")
    elif count > offset + len(ids):
        tell(f"… and {count - offset - len(ids)} more: use --offset {offset + len(ids)}.")


@memory.command()
@click.argument("id", type=Text)
@scope_option
@json_option
def show(id: str, scope: str) -> None:
    """Show one memory in full, with its source."""

    async def read(home: Home) -> tuple[MemoryRecord, Path | None]:
        record = await memory_of(home).get(id)
        return record, await picture_file(home.sessions, record)

    record, picture = with_home(read, scope)
    if said_json(record_to_json(record)):
        return
    say(record.content)
    if picture is not None:
        say(str(picture))
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
@click.argument("ids", nargs=-1, type=Text)
@click.option("--query", type=Text, metavar="TEXT", help="Memories that contain all its significant words.")
@click.option("--session", type=Text, metavar="ID", help="Memories from this conversation.")
@click.option("--document", type=Text, metavar="PATH", help="A document: its path, file name or title.")
@click.option("--before", type=Text, metavar="TIME", help="Memories from before that time.")
@click.option("--all", "everything", is_flag=True, help="All memories of the scope.")
@click.option("--preview", is_flag=True, help="Only show what would be forgotten.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@scope_option
@json_option
def forget(
    ids: tuple[str, ...],
    query: str | None,
    session: str | None,
    document: str | None,
    before: str | None,
    everything: bool,
    preview: bool,
    yes: bool,
    scope: str,
) -> None:
    """Forget memories permanently: their words, vectors, index entries and changes, and the words in the session logs.

    Select them by IDS, or by --query, --session, --document, --before or --all; several options select what
    matches all of them. --scope alone selects everything in that scope. What is forgotten can't be
    restored, and importing the same source again does not bring it back.
    """
    if document is not None and session is not None:
        raise UsageError("Select a session or a document, not both.")
    if not (ids or query or session or document or before or everything):
        # --scope alone selects the whole scope. The default scope must be selected explicitly.
        named = click.get_current_context().get_parameter_source("scope")
        if named is not click.core.ParameterSource.COMMANDLINE:
            raise UsageError(
                "Select what to forget: ids, --query, --session, --document, --before, --scope, or --all."
            )
        everything = True
    moment = parse_time(before)
    shared, ids = [id for id in ids if "/" in id], tuple(id for id in ids if "/" not in id)
    if shared:
        _forget_shared(shared, preview=preview, yes=yes)
        if not ids:
            return

    async def plan(home: Home) -> tuple[list[MemoryRecord], ForgetReceipt]:
        found = memory_of(home)
        source = session
        if document is not None:
            from satchel.runtime.documents import document_named  # noqa: PLC0415 - a search doesn't need it

            source = document_named(document, await found.documents()).source
        receipt = await home.forget(
            ids,
            query=query,
            session=source,
            before=moment,
            scope=found.scope if everything else None,
            dry_run=True,
        )
        for id in receipt.store.missing:
            tell(f"satchel: There is no memory {id!r} of user {found.user!r} in scope {found.scope!r}.")
        said = await found.words_said([gone.id for gone in receipt.store.forgotten])
        return [record for record, _ in said], receipt

    records, planned = with_home(plan, scope)
    if not records:
        said_json({"preview": []} if preview else {"receipt": []})
        raise NotFound("There was nothing to forget.")
    if preview:
        show = tell if said_json({"preview": planned.to_json()}) else say
        for record in records:
            show(memory_line(record))
        memories = lines.counted(len(records), "memory", "memories")
        tell(f"Preview: {memories} would be forgotten. Nothing was deleted.")
        return
    if not yes:
        for record in records[:_MOST_SHOWN]:
            tell(memory_line(record))
        if len(records) > _MOST_SHOWN:
            tell(f"… and {len(records) - _MOST_SHOWN} more")
        these = "this" if len(records) == 1 else "these"
        confirm(f"Forget {these} permanently?", doing="forgetting")
    asked = [gone.id for gone in planned.store.forgotten if gone.because_of is None]
    receipt = with_home(lambda home: home.forget(asked), scope)
    if not said_json({"receipt": receipt.to_json()}):
        tell("\n".join(lines.receipt_lines(receipt)))
    if receipt.is_empty:
        raise NotFound("There was nothing to forget.")
    if receipt.logs.errors:
        raise StorageError(" ".join(receipt.logs.errors))


def _forget_shared(ids: Sequence[str], *, preview: bool, yes: bool) -> None:
    shown = [f"{id}, for everybody in {id.partition('/')[0]}" for id in ids]
    if preview:
        tell(f"Preview: {'; '.join(shown)} would be forgotten. Nothing was deleted.")
        return
    if not yes:
        confirm(f"Forget {'; '.join(shown)} permanently?", doing="forgetting")
    for id in ids:
        gone = with_home(partial(Home.forget_shared, id=id))
        tell(f"Forgotten: {memory_line(gone)}. Conversations of others that were shown it keep it.")


@memory.command()
@memory_command
async def stats(memory: Memory) -> None:
    """Count the memories."""
    values: dict[str, Any] = as_json(await memory.stats())
    if said_json(values):
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


memory.add_command(rebuild)
memory.add_command(reindex)
