"""Imports memories in batches, each in one transaction, so that an interrupted import can be repeated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Connection, func, literal, select, update
from sqlalchemy.dialects.sqlite import insert

from satchel.errors import UsageError
from satchel.memory.store import history, page_rows
from satchel.memory.store.checking import DECAY_RATE, PRIORITY
from satchel.memory.store.redaction import redact, strip_private
from satchel.memory.store.repository import (
    MemoryDraft,
    add_earlier_words,
    among,
    content_hash,
    insert_drafts,
    known_ids,
    requests_so_far,
    rids_by_id,
    space_changed,
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
from satchel.memory.text import lexicon
from satchel.memory.text.block import strip_injected
from satchel.memory.text.discretion import is_wishing, wish_of
from satchel.memory.text.hashing import WordHasher
from satchel.memory.transfer.files import SourceFile, UnpackLimitExceeded, find_files
from satchel.memory.transfer.formats import FORMATS, NamedReader, may_be, source_of
from satchel.memory.transfer.parts import (
    ForgottenWords,
    Header,
    ImportedChange,
    ImportedEdge,
    ImportedMemory,
    ImportedPage,
    LeftOut,
    Part,
    Tombstone,
)
from satchel.memory.transfer.report import ImportReport, ImportSource, SkippedPart, TransferProgress
from satchel.plain import as_json

__all__ = [
    "Batch",
    "ImportState",
    "PreparedBatch",
    "Tally",
    "WrittenBatch",
    "batches_of",
    "prepare",
    "write_batch",
]

_BATCH_PARTS = 500
_BATCH_CHARS = 4_000_000
_MAX_EXAMPLES = 20
_SAME = (
    *("kind", "tier", "memory_type", "importance", "speaker"),
    *("said_at", "said_offset_min", "valid_from", "valid_to", "trust"),
)
"""Columns that have what stands in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Consecutive parts of one file, and the progress of the import after them."""

    parts: Sequence[Part]
    file: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBatch:
    """A batch that is ready to be written.

    Attributes:
        drafts: The new memories.
        memories: The same as they were read, by id.
        redacted: The ids of those from which secrets were removed.
        stripped: The ids of those from which injected text was removed.
        rest: The parts that are not memories.
        file: Where all of them are from.
    """

    drafts: Sequence[MemoryDraft]
    memories: Mapping[str, ImportedMemory]
    redacted: frozenset[str]
    stripped: frozenset[str]
    rest: Sequence[Part]
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatch:
    """The results of one transaction: ids of new memories, and what is counted in the report.

    Attributes:
        left_out: Memories that were forgotten before, and edges of which an end is missing.
    """

    new: frozenset[str] = frozenset()
    counts: Mapping[str, int] = field(default_factory=dict)
    left_out: Sequence[LeftOut] = ()


@dataclass(slots=True, kw_only=True)
class ImportState:
    """State that later batches of an import need.

    Attributes:
        requests_ahead: The chat requests that this store has counted, minus those of the exported store.
        change_ids: The ids of history entries in the database, by their numbers in the file.
        last_ids: The last id of each history entry with the same content, by a hash: several entries may be equal.
    """

    requests_ahead: int = 0
    change_ids: dict[int, int] = field(default_factory=dict)
    last_ids: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Tally:
    """The running counts of an import; `counts` has those of `ImportReport` that are plain numbers."""

    files: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    examples: list[SkippedPart] = field(default_factory=list)

    def leave_out(self, left: LeftOut) -> None:
        """Count something that was left out."""
        (self.ignored if left.expected else self.skipped)[left.reason] += 1
        if not left.expected and len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(SkippedPart(reason=left.reason, where=left.where))

    def progress(self, batch: Batch) -> TransferProgress:
        """The progress to report after a batch."""
        return TransferProgress(
            file=batch.file,
            done_bytes=batch.done_bytes,
            total_bytes=batch.total_bytes,
            new=self.counts["new"],
            known=self.counts["known"],
            skipped=self.skipped.total(),
        )

    def report(self, *, dry_run: bool) -> ImportReport:
        """The final report."""
        return ImportReport(
            **self.counts,
            files=dict(self.files),
            skipped=dict(self.skipped.most_common()),
            ignored=dict(self.ignored.most_common()),
            examples=tuple(self.examples),
            dry_run=dry_run,
        )


def batches_of(
    root: Path, source: ImportSource, tally: Tally, *, reader: NamedReader | None = None
) -> Generator[Batch]:
    """Read a file, an archive or everything in a folder, batch by batch; with a reader, all of it by that.

    Raises:
        NotFound: The path doesn't exist.
        StorageError: It can't be read.
        UsageError: It is a single file of an unknown format.
    """
    files: list[SourceFile] = []
    for found in find_files(root):
        if isinstance(found, LeftOut):
            tally.leave_out(found)
        elif root.is_file() and root.suffix.lower() != ".zip" or may_be(found, source):
            files.append(found)
    total = sum(file.size for file in files)
    before = 0
    for file in files:
        try:
            if reader is None:
                kind: str | None = source_of(file) if source == "auto" else source
            else:
                kind = reader.name
            if kind is None:
                if len(files) == 1 and root.is_file():
                    raise UsageError(
                        f"The format of {root} is unknown. Name it with --from {'|'.join(FORMATS)}, or give a folder."
                    )
                tally.leave_out(LeftOut(reason="a file of an unknown format", where=file.name))
                continue
            tally.files[kind] += 1
            with file.open() as stream:
                read = FORMATS[kind].read if reader is None else reader.read  # type: ignore[index]
                for parts, done in _in_batches(read(stream, file), stream, file):
                    yield Batch(parts=parts, file=file.name, done_bytes=before + done, total_bytes=total)
        except UnpackLimitExceeded:
            tally.leave_out(LeftOut(reason="it unpacks to far more than is plausible", where=file.name))
        except (OSError, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
            # Errors of the file or its compression; the other files are imported anyway.
            tally.leave_out(LeftOut(reason="a file that can't be read", where=f"{file.name}: {error}"[:300]))
        except Exception as error:
            # Decompressors are imported only when used, so their errors are recognised by name.
            if type(error).__name__ not in ("error", "LZMAError", "BadZipFile"):
                raise
            tally.leave_out(LeftOut(reason="an archive that is damaged", where=f"{file.name}: {error}"[:300]))
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
        chars += len(part.content) if isinstance(part, ImportedMemory) else 100
        if len(batch) >= _BATCH_PARTS or chars >= _BATCH_CHARS:
            yield batch, min(stream.tell(), file.size) if stream.seekable() else 0
            batch, chars = [], 0
    yield batch, file.size


def prepare(
    batch: Batch, known: set[str], *, now: int, redacts: bool, hasher: WordHasher, tally: Tally
) -> PreparedBatch:
    """Prepare the new memories of a batch for storage; injected text, private parts and secrets are removed.

    Args:
        batch: The batch.
        known: The ids that are in the store.
        now: Microseconds since 1970.
        redacts: Whether to remove secrets.
        hasher: Makes the keyed hashes that recognise forgotten memories.
        tally: Counts known memories and parts that are left out.
    """
    drafts: list[MemoryDraft] = []
    new: dict[str, ImportedMemory] = {}
    redacted: set[str] = set()
    stripped: set[str] = set()
    rest: list[Part] = []
    for part in batch.parts:
        if isinstance(part, LeftOut):
            tally.leave_out(part)
        elif not isinstance(part, ImportedMemory):
            rest.append(part)
        elif part.id in known or part.id in new:
            tally.counts["known"] += 1
        else:
            content, quote = part.content, part.quote
            cues = () if part.trust == "outside" else part.cues
            if part.state is None:
                content = strip_injected(content)
                if content != part.content:
                    stripped.add(part.id)
                content = strip_private(content)
            if redacts:
                clean = redact(content)
                quote = None if quote is None else redact(quote)
                cues = tuple(map(redact, cues))
                if clean != content:
                    redacted.add(part.id)
                content = clean
            if not content.strip():
                tally.leave_out(
                    LeftOut(
                        reason="nothing but injected or private text in it", where=batch.file, expected=True
                    )
                )
                continue
            new[part.id] = part
            drafts.append(replace(_draft(part, content, quote, now, hasher), cues=cues))
    return PreparedBatch(
        drafts=drafts,
        memories=new,
        redacted=frozenset(redacted),
        stripped=frozenset(stripped),
        rest=rest,
        file=batch.file,
    )


def _draft(
    memory: ImportedMemory, content: str, quote: str | None, now: int, hasher: WordHasher
) -> MemoryDraft:
    # What was said when Satchel exported the file was obeyed then, and perhaps lifted since.
    is_new = memory.state is None and is_wishing(memory.kind, memory.trust, memory.speaker)
    has_place = memory.turn is not None and memory.position is not None
    return MemoryDraft(
        id=memory.id,
        tags=memory.tags,
        words_hash=None
        if memory.session is None
        else hasher.words(memory.session, content, turn=memory.turn if has_place else None),
        words=lexicon.read_text(content, memory.tags),
        wish=wish_of(content) if is_new else None,
        row={
            **{name: getattr(memory, name) for name in _SAME},
            "content": content,
            "content_hash": content_hash(content),
            "priority": PRIORITY[memory.tier] if memory.priority is None else memory.priority,
            "decay_rate": DECAY_RATE[memory.tier] if memory.decay_rate is None else memory.decay_rate,
            "source_session": memory.session,
            "source_turn": memory.turn,
            "source_position": memory.position,
            "source_quote": quote,
            "created_at": now if memory.state is None else memory.state.created_at,
            "time": None if memory.time is None else json.dumps(as_json(memory.time)),
        },
    )


def write_batch(
    connection: Connection,
    space: int,
    batch: PreparedBatch,
    *,
    now: int,
    state: ImportState,
    replays: bool = False,
) -> WrittenBatch:
    """Write a batch. Memories in the store are not changed, and forgotten ones stay forgotten.

    Args:
        connection: In a transaction that writes.
        space: The space to write to.
        batch: The batch.
        now: Microseconds since 1970.
        state: The state after the previous batches; it is updated.
        replays: Whether changes that are new here are made, too, where a memory is as it was before them.
    """
    for part in batch.rest:
        if isinstance(part, Header):
            state.requests_ahead = _requests_ahead(connection, space, part.requests)
            state.change_ids.clear()
            state.last_ids.clear()
    known = known_ids(connection, space, [draft.id for draft in batch.drafts])
    wanted = [draft for draft in batch.drafts if draft.id not in known]
    new = frozenset(insert_drafts(connection, space, wanted)) if wanted else frozenset()
    stored = [batch.memories[draft.id] for draft in wanted if draft.id in new]
    _write_states(connection, space, stored, state.requests_ahead)
    found = [part for part in batch.rest if isinstance(part, ImportedEdge)]
    stored_edges, dangling = _write_edges(connection, space, found, now)
    entries = [part for part in batch.rest if isinstance(part, ImportedChange)]
    for version in (part for part in batch.rest if isinstance(part, ImportedPage)):
        page_rows.take_in(connection, space, version)
    refused = LeftOut(reason="forgotten here before", where=batch.file)
    # Expected: the report already counts the memory at its end as left out.
    loose = LeftOut(reason="an edge to a memory that is missing", where=batch.file, expected=True)
    return WrittenBatch(
        new=new,
        counts={
            "new": len(new),
            # Only those that were written: another process may have stored some of them meanwhile.
            "redacted": len(batch.redacted & new),
            "stripped": len(batch.stripped & new),
            "edges": stored_edges,
            "changes": _write_changes(connection, space, entries, state, replays=replays),
            "tombstones": _write_forgotten(connection, space, batch.rest),
        },
        left_out=[refused] * (len(wanted) - len(new)) + [loose] * dangling,
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
    known = [(memory.id, memory.state) for memory in new if memory.state is not None]
    if not known:
        return
    rids = rids_by_id(connection, space, [id for id, _ in known])
    used, read = [], []
    for id, state in known:
        rid = rids[id]
        connection.execute(
            update(memories)
            .where(memories.c.rid == rid)
            .values(
                request=state.request + ahead,
                pinned=int(state.pinned),
                discretion=state.discretion,
                kept_from=state.kept_from,
                spheres=state.spheres,
            )
        )
        if state.last_accessed is not None:
            used.append(
                {
                    "rid": rid,
                    "last_accessed": state.last_accessed,
                    "access_count": state.access_count,
                    "request": state.used_request + ahead,
                }
            )
        if state.distilled_chars is not None and state.distilled_at is not None:
            read.append({"rid": rid, "chars": state.distilled_chars, "distilled_at": state.distilled_at})
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
        written += connection.execute(insert(edges).on_conflict_do_nothing(), row).rowcount
    return written, dangling


def _write_changes(
    connection: Connection, space: int, found: Sequence[ImportedChange], state: ImportState, *, replays: bool
) -> int:
    """Write new history entries, with references to the entries that they undo; return their number."""
    written = 0
    for change in found:
        values = {
            "space_id": space,
            "memory_id": change.memory_id,
            "other_id": change.other_id,
            "action": change.action,
            "at": change.at,
            "who": change.who,
            "why": change.why,
            "before": json.dumps(change.before, ensure_ascii=False),
            "after": json.dumps(change.after, ensure_ascii=False),
        }
        key = hash(tuple(values.values()))
        query = select(func.min(changes.c.id)).where(changes.c.id > state.last_ids.get(key, 0))
        for name, value in values.items():
            query = query.where(changes.c[name].is_(None) if value is None else changes.c[name] == value)
        id = connection.execute(query).scalar()
        if id is None:
            undoes = None if change.undoes is None else state.change_ids.get(change.undoes)
            id = connection.execute(
                insert(changes).values(**values, undoes=undoes).returning(changes.c.id)
            ).scalar_one()
            written += 1
            if replays and change.action != "forget":
                history.replay(connection, space, change.memory_id, change.before, change.after, at=change.at)
        state.last_ids[key] = state.change_ids[change.number] = id
    return written


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
