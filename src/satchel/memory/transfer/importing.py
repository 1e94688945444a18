"""Imports memories in batches, each in one transaction, so that an interrupted import can be repeated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from anyio import CancelScope
from anyio.to_thread import run_sync
from sqlalchemy import Connection, func, literal, select, update
from sqlalchemy.dialects.sqlite import insert

from satchel.errors import UsageError
from satchel.memory.store import history, page_rows
from satchel.memory.store.checking import DECAY_RATE, PRIORITY, printable
from satchel.memory.store.redaction import redact, strip_private
from satchel.memory.store.repository import (
    MemoryDraft,
    add_earlier_words,
    among,
    content_hash,
    forgotten_words,
    insert_drafts,
    known_ids,
    records_by_id,
    requests_so_far,
    rids_by_id,
    space_changed,
    words_hash,
)
from satchel.memory.store.tables import (
    changes,
    distilled,
    edges,
    memories,
    spaces,
    tombstones,
    uses,
)
from satchel.memory.store.thread import OneThread
from satchel.memory.text import lexicon
from satchel.memory.text.block import strip_injected
from satchel.memory.text.discretion import is_wishing, wish_of
from satchel.memory.text.hashing import WordHasher
from satchel.memory.transfer.files import SourceFile, find_files
from satchel.memory.transfer.formats import NamedReader, format_of, formats, may_be
from satchel.memory.transfer.parts import (
    ExportedMemory,
    ForgottenWords,
    Header,
    ImportedChange,
    ImportedConversation,
    ImportedEdge,
    ImportedMemory,
    ImportedPage,
    LeftOut,
    Part,
    Tombstone,
)
from satchel.memory.transfer.report import ImportReport, TransferProgress
from satchel.plain import as_json
from satchel.spacing import FORGOTTEN

if TYPE_CHECKING:
    from satchel.memory.store.space import Space

_BATCH_PARTS = 500
_BATCH_CHARS = 4_000_000
_MAX_EXAMPLES = 20
_SAME = (
    *("kind", "tier", "memory_type", "importance", "speaker"),
    *("said_at", "said_offset_min", "valid_from", "valid_to", "trust"),
)
"""Columns that have what stands in the file."""


TakeConversation: TypeAlias = Callable[
    [ImportedConversation, Mapping[str, str], Callable[[str], str]], Awaitable[str]
]
"""Takes a conversation whose memories are stored: with the words of those that there are, by their ids, and what gives
another text as it would be stored. Returns what became of it, for the report."""

_New: TypeAlias = Mapping[str, tuple[ImportedMemory, MemoryDraft]]
"""Memories that are not in the store, by their ids: as they were read, and ready to be written."""


@dataclass(slots=True, kw_only=True)
class Intake:
    """Takes parts into a space, one batch after the other, and counts what becomes of them.

    Attributes:
        elsewhere: The sessions whose memories are in another scope, and so are left out.
        replays: They are from the space's own journal: secrets were removed before, and changes that are new here are
            made, too, where a memory is as it was before them.
        counts: Those of `ImportReport` that are plain numbers.
        requests_ahead: The chat requests that this store has counted, minus those of the exported store.
        change_ids: The ids of history entries in the database, by their numbers in the file.
        last_ids: The last id of each history entry with the same content, by a hash: several entries may be equal.
        counted: In a dry run, the ids that were counted as new.
    """

    space: Space
    dry_run: bool = False
    take_conversation: TakeConversation | None = None
    elsewhere: Collection[str] = ()
    replays: bool = False
    files: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    conversations: Counter[str] = field(default_factory=Counter)
    examples: list[LeftOut] = field(default_factory=list)
    requests_ahead: int = 0
    change_ids: dict[int, int] = field(default_factory=dict)
    last_ids: dict[int, int] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)

    async def read(
        self,
        root: Path,
        source: str,
        progress: Callable[[TransferProgress], None],
        *,
        reader: NamedReader | None,
    ) -> ImportReport:
        """Take in a file, an archive or everything in a folder; see `Memory.import_from`."""
        if source != "auto" and source not in formats():
            raise UsageError(f"There is no source {source!r}; there are {', '.join(('auto', *formats()))}.")
        batches = _batches_of(root, source, self, reader)
        # A reader may keep what belongs to one thread, such as a connection of sqlite3.
        thread = OneThread("satchel-import")
        try:
            while (batch := await thread.run(next, batches, None)) is not None:
                parts, file, done_bytes, total_bytes = batch
                await self.take(parts, file)
                progress(
                    TransferProgress(
                        file=file,
                        done_bytes=done_bytes,
                        total_bytes=total_bytes,
                        skipped=self.skipped.total(),
                        conversations=self.conversations.total(),
                        new=self.counts["new"],
                        known=self.counts["known"],
                    )
                )
            await self.finish()
        finally:
            with CancelScope(shield=True):
                # After a cancellation, a file may still be open.
                await thread.run(batches.close)
                thread.close()
        return self._report()

    async def take(self, parts: Sequence[Part], file: str) -> None:
        """Store a batch in one transaction. Memories in the store are not changed; forgotten ones stay forgotten."""
        space, now = self.space, self.space.now_micros()
        ids = [part.id for part in parts if isinstance(part, ImportedMemory)]
        known = await space.read(known_ids, ids) if ids else set()
        new, redacted, stripped = await run_sync(self._prepare, parts, file, known | self.counted, now)
        rest = [
            part for part in parts if not isinstance(part, ImportedMemory | ImportedConversation | LeftOut)
        ]
        if self.dry_run:
            self.counted.update(new)
            self.counts.update(new=len(new), redacted=len(redacted), stripped=len(stripped))
        elif new or rest:
            stored, counts, left_out = await space.write(self._write, new, rest, file, now)
            # Only those that were written: another process may have stored some of them meanwhile.
            self.counts.update(
                new=len(stored), redacted=len(redacted & stored), stripped=len(stripped & stored)
            )
            self.counts.update(counts)
            for left in left_out:
                self.leave_out(left)
        if self.take_conversation is not None and not self.dry_run:
            conversations = [part for part in parts if isinstance(part, ImportedConversation)]
            said = [message.id for part in conversations for message in part.messages]
            there = await space.read(records_by_id, said) if said else {}
            words = {id: record.content for id, record in there.items()}
            words |= await self._forgotten_in_branches(conversations)
            for conversation in conversations:
                self.conversations[await self.take_conversation(conversation, words, self._clean)] += 1

    async def _forgotten_in_branches(self, conversations: Sequence[ImportedConversation]) -> dict[str, str]:
        """What stands for messages of other branches whose words were forgotten, by their ids. Of a message that is in
        no branch but these, nothing is in memory.
        """
        hashes: dict[str, str] = {}
        for found in conversations:
            main = {message.id for message in found.messages}
            for message in (one for path in found.branches for one in path):
                if message.id not in main and message.id not in hashes:
                    text = self._clean(message.text)
                    hashes[message.id] = self.space.hasher.words(found.session, text, turn=message.turn)
        gone = await self.space.read(forgotten_words, set(hashes.values())) if hashes else set()
        return {id: FORGOTTEN for id, digest in hashes.items() if digest in gone}

    def _clean(self, text: str) -> str:
        """A text as a new memory would have it."""
        clean = strip_private(strip_injected(printable(text)))
        return redact(clean) if self.space.redacts else clean

    async def finish(self) -> None:
        """Have memories compared anew after the last batch, where changes were stored."""
        if self.counts["changes"]:
            await self.space.write(history.undo_comparing, at=self.space.now_micros())

    def leave_out(self, left: LeftOut) -> None:
        """Count something that was left out."""
        (self.ignored if left.expected else self.skipped)[left.reason] += 1
        if not left.expected and len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(left)

    def _report(self) -> ImportReport:
        """The final report."""
        return ImportReport(
            **self.counts,
            files=dict(self.files),
            conversations=dict(self.conversations),
            skipped=dict(self.skipped.most_common()),
            ignored=dict(self.ignored.most_common()),
            examples=tuple(self.examples),
            dry_run=self.dry_run,
        )

    def _prepare(
        self, parts: Sequence[Part], file: str, known: set[str], now: int
    ) -> tuple[_New, set[str], set[str]]:
        """The memories of a batch that are not `known`, ready for storage; injected text, private parts and secrets are
        removed. With the ids of those from which secrets were removed, and injected text.
        """
        new: dict[str, tuple[ImportedMemory, MemoryDraft]] = {}
        redacted: set[str] = set()
        stripped: set[str] = set()
        for part in parts:
            if isinstance(part, LeftOut):
                self.leave_out(part)
            elif isinstance(part, ImportedMemory) and part.session in self.elsewhere:
                reason = "of a conversation that is in a project here"
                self.leave_out(LeftOut(reason=reason, where=file, expected=True))
            elif isinstance(part, ImportedMemory) and (part.id in known or part.id in new):
                self.counts["known"] += 1
            elif isinstance(part, ImportedMemory):
                content, quote = part.content, part.quote
                cues = () if part.trust == "outside" else part.cues
                if not isinstance(part, ExportedMemory):
                    content = strip_injected(content)
                    if content != part.content:
                        stripped.add(part.id)
                    content = strip_private(content)
                if self.space.redacts and not self.replays:
                    clean = redact(content)
                    quote = None if quote is None else redact(quote)
                    cues = tuple(map(redact, cues))
                    if clean != content:
                        redacted.add(part.id)
                    content = clean
                if content.strip():
                    new[part.id] = part, _draft(part, content, quote, cues, now, self.space.hasher)
                else:
                    reason = "nothing but injected or private text in it"
                    self.leave_out(LeftOut(reason=reason, where=file, expected=True))
        return new, redacted & new.keys(), stripped & new.keys()

    def _write(
        self, connection: Connection, space: int, new: _New, rest: Sequence[Part], file: str, now: int
    ) -> tuple[set[str], dict[str, int], list[LeftOut]]:
        """Write a batch: which memories were stored, how many of the rest, and what was left out."""
        for part in rest:
            if isinstance(part, Header):
                self.requests_ahead = _requests_ahead(connection, space, part.requests)
                self.change_ids.clear()
                self.last_ids.clear()
        known = known_ids(connection, space, list(new))
        wanted = [draft for id, (_, draft) in new.items() if id not in known]
        stored = set(insert_drafts(connection, space, wanted)) if wanted else set()
        own = [new[draft.id][0] for draft in wanted if draft.id in stored]
        _write_states(connection, space, own, self.requests_ahead)
        found = [part for part in rest if isinstance(part, ImportedEdge)]
        written, dangling = _write_edges(connection, space, found, now)
        for version in (part for part in rest if isinstance(part, ImportedPage)):
            columns = {
                name: getattr(version, name) for name in ("number", "written_at", "by", "model", "state")
            }
            page_rows.take_in(connection, space, version.lines, **columns)
        counts = {
            "edges": written,
            "changes": self._write_changes(connection, space, rest),
            "tombstones": _write_forgotten(connection, space, rest),
        }
        refused = LeftOut(reason="forgotten here before", where=file)
        # Expected: the report already counts the memory at its end as left out.
        loose = LeftOut(reason="an edge to a memory that is missing", where=file, expected=True)
        return stored, counts, [refused] * (len(wanted) - len(stored)) + [loose] * dangling

    def _write_changes(self, connection: Connection, space: int, rest: Sequence[Part]) -> int:
        """Write new history entries, with references to the entries that they undo; return their number."""
        written = 0
        for change in (part for part in rest if isinstance(part, ImportedChange)):
            before, after = (json.dumps(one, ensure_ascii=False) for one in (change.before, change.after))
            values = {**asdict(change), "space_id": space, "before": before, "after": after}
            del values["number"], values["undoes"]
            key = hash(tuple(values.values()))
            query = select(func.min(changes.c.id)).where(changes.c.id > self.last_ids.get(key, 0))
            for name, value in values.items():
                query = query.where(changes.c[name].is_(None) if value is None else changes.c[name] == value)
            id = connection.execute(query).scalar()
            if id is None:
                undoes = None if change.undoes is None else self.change_ids.get(change.undoes)
                id = connection.execute(
                    insert(changes).values(**values, undoes=undoes).returning(changes.c.id)
                ).scalar_one()
                written += 1
                if self.replays and change.action != "forget":
                    history.replay(
                        connection, space, change.memory_id, change.before, change.after, at=change.at
                    )
            self.last_ids[key] = self.change_ids[change.number] = id
        return written


def _batches_of(
    root: Path, source: str, intake: Intake, reader: NamedReader | None
) -> Generator[tuple[Sequence[Part], str, int, int]]:
    """Read a file, an archive or everything in a folder, batch by batch; with a reader, all of it by that.

    Yields:
        The parts and their file, and how many bytes were read of how many.

    Raises:
        UsageError: It is a single file of an unknown format.
    """
    files: list[SourceFile] = []
    for found in find_files(root):
        if isinstance(found, LeftOut):
            intake.leave_out(found)
        elif root.is_file() and root.suffix.lower() != ".zip" or may_be(found, source):
            files.append(found)
    total = sum(file.size for file in files)
    before = 0
    for file in files:
        try:
            if reader is None:
                kind: str | None = format_of(file) if source == "auto" else source
            else:
                kind = reader.name
            if kind is None:
                if len(files) == 1 and root.is_file():
                    raise UsageError(
                        f"The format of {root} is unknown. Name it with --from {'|'.join(formats())}, or give a folder."
                    )
                intake.leave_out(LeftOut(reason="a file of an unknown format", where=file.name))
                continue
            intake.files[kind] += 1
            with file.open() as stream:
                read = formats()[kind].read if reader is None else reader.read
                for parts, done in _in_batches(read(stream, file), stream, file):
                    yield parts, file.name, before + done, total
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001 - Whatever a file does to its reader: the others are imported anyway.
            intake.leave_out(LeftOut(reason="a file that can't be read", where=f"{file.name}: {error}"[:300]))
        finally:
            before += file.size


def _in_batches(
    parts: Iterable[Part], stream: BinaryIO, file: SourceFile
) -> Iterator[tuple[list[Part], int]]:
    """Batches with the number of bytes that were read after each; 0 inside an archive, where it is unknown."""
    batch: list[Part] = []
    chars = 0
    for part in parts:
        batch.append(part)
        if isinstance(part, ImportedConversation):
            chars += sum(len(message.text) for message in part.messages)
        else:
            chars += len(part.content) if isinstance(part, ImportedMemory) else 100
        if len(batch) >= _BATCH_PARTS or chars >= _BATCH_CHARS:
            yield batch, min(stream.tell(), file.size) if stream.seekable() else 0
            batch, chars = [], 0
    yield batch, file.size


def _draft(
    memory: ImportedMemory,
    content: str,
    quote: str | None,
    cues: tuple[str, ...],
    now: int,
    hasher: WordHasher,
) -> MemoryDraft:
    # What was said when Satchel exported the file was obeyed then, and perhaps lifted since.
    is_new = not isinstance(memory, ExportedMemory) and is_wishing(memory.kind, memory.trust, memory.speaker)
    row = {
        **{name: getattr(memory, name) for name in _SAME},
        "content": content,
        "content_hash": content_hash(content),
        "priority": PRIORITY[memory.tier] if memory.priority is None else memory.priority,
        "decay_rate": DECAY_RATE[memory.tier] if memory.decay_rate is None else memory.decay_rate,
        "source_session": memory.session,
        "source_turn": memory.turn,
        "source_position": memory.position,
        "source_quote": quote,
        "created_at": memory.created_at if isinstance(memory, ExportedMemory) else now,
        "time": None if memory.time is None else json.dumps(as_json(memory.time)),
    }
    return MemoryDraft(
        id=memory.id,
        tags=memory.tags,
        cues=cues,
        words_hash=words_hash(hasher, row),
        words=lexicon.read_text(content, memory.tags),
        wish=wish_of(content) if is_new else None,
        row=row,
    )


def _requests_ahead(connection: Connection, space: int, requests: int) -> int:
    """The chat requests that this store has counted minus those of the file; an empty store adopts the file's count."""
    here = requests_so_far(connection, space)
    empty = (
        connection.execute(select(literal(1)).where(memories.c.space_id == space).limit(1)).first() is None
    )
    if empty and here < requests:
        connection.execute(update(spaces).where(spaces.c.id == space).values(requests=requests))
        here = requests
    return here - requests


def _write_states(connection: Connection, space: int, new: Sequence[ImportedMemory], ahead: int) -> None:
    known = [memory for memory in new if isinstance(memory, ExportedMemory)]
    if not known:
        return
    rids = rids_by_id(connection, space, [memory.id for memory in known])
    used, read = [], []
    for memory in known:
        rid = rids[memory.id]
        state = {
            "request": memory.request + ahead,
            "pinned": int(memory.pinned),
            **{name: getattr(memory, name) for name in ("discretion", "kept_from", "spheres")},
        }
        connection.execute(update(memories).where(memories.c.rid == rid).values(**state))
        if memory.last_accessed is not None:
            use = {"last_accessed": memory.last_accessed, "access_count": memory.access_count}
            used.append({"rid": rid, **use, "request": memory.used_request + ahead})
        if memory.distilled_chars is not None and memory.distilled_at is not None:
            read.append({"rid": rid, "chars": memory.distilled_chars, "distilled_at": memory.distilled_at})
    for table, rows in ((uses, used), (distilled, read)):
        if rows:
            connection.execute(insert(table), rows)


def _write_edges(
    connection: Connection, space: int, found: Sequence[ImportedEdge], now: int
) -> tuple[int, int]:
    """Write new edges whose ends exist; return their number and the number of dangling ones."""
    if not found:
        return 0, 0
    rids = rids_by_id(connection, space, list({id for edge in found for id in (edge.source, edge.target)}))
    # PostgreSQL counts the rows of an INSERT only if it is asked to.
    add = insert(edges).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
    written = dangling = 0
    for edge in found:
        source, target = rids.get(edge.source), rids.get(edge.target)
        if source is None or target is None or source == target:
            dangling += 1
            continue
        row = {
            "source_rid": source,
            "target_rid": target,
            "relation": edge.relation,
            "weight": edge.weight,
            "created_at": now if edge.created_at is None else edge.created_at,
        }
        written += connection.execute(add, row).rowcount
    return written, dangling


def _write_forgotten(connection: Connection, space: int, rest: Sequence[Part]) -> int:
    """Write the tombstones of the exported store, so that its forgotten memories aren't stored here either."""
    stones = [part for part in rest if isinstance(part, Tombstone)]
    written = 0
    if stones:
        # Negative rids, because the database assigns positive ones to memories and never reuses them.
        lowest = connection.execute(select(func.min(0, func.min(tombstones.c.rid)))).scalar() or 0
        times = among(stone.forgotten_at for stone in stones)
        here = (tombstones.c.space_id == space) & tombstones.c.forgotten_at.in_(times)
        query = select(tombstones.c.place_hash, tombstones.c.words_hash).where(here)
        there = {tuple(row) for row in connection.execute(query)}
        changed = space_changed(connection, space)
        for stone in stones:
            key = stone.place_hash, stone.words_hash
            if key not in there:
                there.add(key)
                written += 1
                row = {**asdict(stone), "rid": lowest - written, "space_id": space, "changed": changed}
                connection.execute(insert(tombstones), row)
    add_earlier_words(
        connection, space, {part.words_hash for part in rest if isinstance(part, ForgottenWords)}
    )
    return written
