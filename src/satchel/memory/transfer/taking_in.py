"""Taking pieces into a store: in batches, each in one transaction, so that the next try goes on from there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, func, insert, literal, select, update

from satchel.errors import UsageError
from satchel.memory import lexicon
from satchel.memory.block import strip_injected
from satchel.memory.checking import DECAY_RATE, PRIORITY
from satchel.memory.hashing import WordHasher
from satchel.memory.redaction import redact, strip_private
from satchel.memory.repository import Draft, content_hash, insert_drafts, requests_so_far, slices
from satchel.memory.tables import (
    changes,
    compared,
    distilled,
    earlier_words,
    edges,
    memories,
    spaces,
    tombstones,
    uses,
)
from satchel.memory.transfer.files import Original, TooMuch, find_files
from satchel.memory.transfer.formats import READERS, may_be, source_of
from satchel.memory.transfer.pieces import (
    Change,
    EarlierWords,
    Head,
    Left,
    Part,
    Piece,
    Tie,
    Tombstone,
)
from satchel.memory.transfer.report import ImportReport, ImportSource, Skipped, TransferProgress

__all__ = [
    "Batch",
    "Course",
    "Prepared",
    "Tally",
    "Written",
    "batches_of",
    "known_ids",
    "prepare",
    "write_batch",
]

_BATCH_PARTS = 500
_BATCH_CHARS = 4_000_000
_MAX_EXAMPLES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some parts of one file, in their order, and how far the import is with them."""

    parts: Sequence[Part]
    file: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A batch that is ready to be written."""

    drafts: Sequence[Draft]
    pieces: Mapping[str, Piece]
    redacted: frozenset[str]
    stripped: frozenset[str]
    rest: Sequence[Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one transaction wrote."""

    new: frozenset[str] = frozenset()
    forgotten: int = 0
    edges: int = 0
    changes: int = 0
    tombstones: int = 0
    loose: int = 0


@dataclass(slots=True, kw_only=True)
class Course:
    """What the batches of one import tell those after them.

    Attributes:
        ahead: How many chat requests more this store has counted than the one that the file is of.
        numbers: The entries of histories by their numbers in the file.
        last: The last entry of each content, by its hash: several of a moment may be equal.
    """

    ahead: int = 0
    numbers: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Tally:
    """The counts of an import as it goes on."""

    files: Counter[str] = field(default_factory=Counter)
    new: int = 0
    known: int = 0
    edges: int = 0
    changes: int = 0
    tombstones: int = 0
    redacted: int = 0
    stripped: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    examples: list[Skipped] = field(default_factory=list)

    def leave(self, left: Left) -> None:
        """Count something that was left out."""
        (self.ignored if left.expected else self.skipped)[left.reason] += 1
        if not left.expected and len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(Skipped(reason=left.reason, where=left.where))

    def progress(self, batch: Batch) -> TransferProgress:
        """For the one who waits."""
        return TransferProgress(
            file=batch.file,
            done_bytes=batch.done_bytes,
            total_bytes=batch.total_bytes,
            new=self.new,
            known=self.known,
            skipped=self.skipped.total(),
        )

    def report(self, *, dry_run: bool) -> ImportReport:
        """The counts at the end."""
        return ImportReport(
            files=dict(self.files),
            new=self.new,
            known=self.known,
            edges=self.edges,
            changes=self.changes,
            tombstones=self.tombstones,
            redacted=self.redacted,
            stripped=self.stripped,
            skipped=dict(self.skipped.most_common()),
            ignored=dict(self.ignored.most_common()),
            examples=tuple(self.examples),
            dry_run=dry_run,
        )


def batches_of(root: Path, source: ImportSource, tally: Tally) -> Generator[Batch]:
    """Read everything below a path, batch by batch.

    Raises:
        NotFound: There is nothing there.
        StorageError: It can't be read.
        UsageError: It is one file, and of no known format.
    """
    originals: list[Original] = []
    for found in find_files(root):
        if isinstance(found, Left):
            tally.leave(found)
        elif root.is_file() and root.suffix.lower() != ".zip" or may_be(found, source):
            originals.append(found)
    total = sum(original.size for original in originals)
    before = 0
    for original in originals:
        try:
            kind = source_of(original) if source == "auto" else source
            if kind is None:
                if len(originals) == 1 and root.is_file():
                    raise UsageError(
                        f"{root} is of no format that is known. Name its source: "
                        f"--from {'|'.join(READERS)}, or give a folder."
                    )
                tally.leave(Left(reason="a file of no known format", where=original.name))
                continue
            tally.files[kind] += 1
            with original.open() as stream:
                for parts, share in _cut(READERS[kind](stream, original), stream, original):
                    yield Batch(
                        parts=parts,
                        file=original.name,
                        done_bytes=before + share,
                        total_bytes=total,
                    )
        except TooMuch:
            tally.leave(Left(reason="it unpacks to far more than it can honestly hold", where=original.name))
        except (OSError, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
            # Of the file, or of its compression: the others are read nevertheless.
            tally.leave(Left(reason="a file that can't be read", where=f"{original.name}: {error}"[:300]))
        except Exception as error:
            if type(error).__name__ not in ("error", "LZMAError", "BadZipFile"):
                raise
            tally.leave(Left(reason="an archive that is damaged", where=f"{original.name}: {error}"[:300]))
        finally:
            before += original.size


def _cut(parts: Iterable[Part], stream: object, original: Original) -> Iterator[tuple[list[Part], int]]:
    some: list[Part] = []
    chars = 0
    for part in parts:
        some.append(part)
        chars += len(part.content) if isinstance(part, Piece) else 100
        if len(some) >= _BATCH_PARTS or chars >= _BATCH_CHARS:
            yield some, _share(stream, original)
            some, chars = [], 0
    yield some, original.size


def _share(stream: object, original: Original) -> int:
    try:
        at = stream.tell()  # type: ignore[attr-defined]
    except (OSError, AttributeError, ValueError):
        at = 0
    return min(int(at), original.size)


def known_ids(connection: Connection, space: int, ids: Sequence[str]) -> set[str]:
    """Which of the ids are in a space."""
    known: set[str] = set()
    for part in slices(ids):
        known.update(
            connection.execute(
                select(memories.c.id).where(memories.c.space_id == space, memories.c.id.in_(part))
            ).scalars()
        )
    return known


def prepare(
    batch: Batch, known: set[str], *, now: int, redacts: bool, hasher: WordHasher, tally: Tally
) -> Prepared:
    """Read the words of what is new: injected text, private parts and secrets are taken out of them.

    Args:
        batch: Some parts.
        known: Ids that are in the store.
        now: Microseconds since 1970.
        redacts: Whether secrets are taken out.
        hasher: Recognises what was forgotten.
        tally: Counts what is known and what is left out.
    """
    drafts: list[Draft] = []
    pieces: dict[str, Piece] = {}
    redacted: set[str] = set()
    stripped: set[str] = set()
    rest: list[Part] = []
    for part in batch.parts:
        if isinstance(part, Left):
            tally.leave(part)
        elif not isinstance(part, Piece):
            rest.append(part)
        elif part.id in known or part.id in pieces:
            tally.known += 1
        else:
            content, quote = part.content, part.quote
            if part.state is None:
                content = strip_injected(content)
                if content != part.content:
                    stripped.add(part.id)
                content = strip_private(content)
            if redacts:
                clean = redact(content)
                quote = None if quote is None else redact(quote)
                if clean != content:
                    redacted.add(part.id)
                content = clean
            if not content.strip():
                tally.leave(
                    Left(reason="nothing but injected or private text in it", where=batch.file, expected=True)
                )
                continue
            pieces[part.id] = part
            drafts.append(_draft(part, content, quote, now, hasher))
    return Prepared(
        drafts=drafts,
        pieces=pieces,
        redacted=frozenset(redacted),
        stripped=frozenset(stripped),
        rest=rest,
    )


def _draft(piece: Piece, content: str, quote: str | None, now: int, hasher: WordHasher) -> Draft:
    placed = piece.turn is not None and piece.position is not None
    return Draft(
        id=piece.id,
        tags=piece.tags,
        words_hash=None
        if piece.session is None
        else hasher.words(piece.session, content, turn=piece.turn if placed else None),
        words=lexicon.read_text(content, piece.tags),
        row={
            "kind": piece.kind,
            "content": content,
            "content_hash": content_hash(content),
            "tier": piece.tier,
            "memory_type": piece.memory_type,
            "importance": piece.importance,
            "priority": PRIORITY[piece.tier] if piece.priority is None else piece.priority,
            "decay_rate": DECAY_RATE[piece.tier] if piece.decay_rate is None else piece.decay_rate,
            "speaker": piece.speaker,
            "said_at": piece.said_at,
            "said_offset_min": piece.said_offset_min,
            "valid_from": piece.valid_from,
            "valid_to": piece.valid_to,
            "source_session": piece.session,
            "source_turn": piece.turn,
            "source_position": piece.position,
            "source_quote": quote,
            "trust": piece.trust,
            "created_at": now if piece.state is None else piece.state.created_at,
        },
    )


def write_batch(connection: Connection, space: int, batch: Prepared, *, now: int, course: Course) -> Written:
    """Write a batch: what is in the store stays as it is, and what was forgotten stays forgotten.

    Args:
        connection: In a transaction that writes.
        space: Where to.
        batch: What.
        now: Microseconds since 1970.
        course: What the batches before it told.
    """
    for part in batch.rest:
        if isinstance(part, Head):
            course.ahead = _counted(connection, space, part.requests)
            course.numbers.clear()
            course.last.clear()
    known = known_ids(connection, space, [draft.id for draft in batch.drafts])
    wanted = [draft for draft in batch.drafts if draft.id not in known]
    new = frozenset(insert_drafts(connection, space, wanted)) if wanted else frozenset()
    stated = [batch.pieces[draft.id] for draft in wanted if draft.id in new]
    _write_states(connection, space, stated, course.ahead)
    ties = [part for part in batch.rest if isinstance(part, Tie)]
    stored_edges, loose = _write_ties(connection, space, ties, now)
    history = [part for part in batch.rest if isinstance(part, Change)]
    return Written(
        new=new,
        forgotten=len(wanted) - len(new),
        edges=stored_edges,
        loose=loose,
        changes=_write_changes(connection, space, history, course),
        tombstones=_write_forgotten(connection, space, batch.rest),
    )


def _counted(connection: Connection, space: int, requests: int) -> int:
    """How far this store's count of chat requests is ahead of the file's; an empty store takes the file's."""
    here = requests_so_far(connection, space)
    empty = (
        connection.execute(select(literal(1)).where(memories.c.space_id == space).limit(1)).first() is None
    )
    if empty and here < requests:
        connection.execute(update(spaces).where(spaces.c.id == space).values(requests=requests))
        here = requests
    return here - requests


def _write_states(connection: Connection, space: int, pieces: Sequence[Piece], ahead: int) -> None:
    known = [(piece.id, piece.state) for piece in pieces if piece.state is not None]
    if not known:
        return
    rids = _rids(connection, space, [id for id, _ in known])
    used, read, paired = [], [], []
    for id, state in known:
        rid = rids[id]
        connection.execute(
            update(memories).where(memories.c.rid == rid).values(request=state.request + ahead)
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
        if state.compared_at is not None:
            paired.append({"rid": rid, "compared_at": state.compared_at})
    for table, rows in ((uses, used), (distilled, read), (compared, paired)):
        if rows:
            connection.execute(insert(table), rows)


def _rids(connection: Connection, space: int, ids: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in slices(ids):
        rows = connection.execute(
            select(memories.c.id, memories.c.rid).where(memories.c.space_id == space, memories.c.id.in_(part))
        )
        found.update((row.id, row.rid) for row in rows)
    return found


def _write_ties(connection: Connection, space: int, ties: Sequence[Tie], now: int) -> tuple[int, int]:
    """Write the edges that are new and whose ends are there; gives their number, and that of the loose ones."""
    if not ties:
        return 0, 0
    rids = _rids(connection, space, list({name for tie in ties for name in (tie.source, tie.target)}))
    wanted: dict[tuple[int, int, str], Tie] = {}
    loose = 0
    for tie in ties:
        source, target = rids.get(tie.source), rids.get(tie.target)
        if source is None or target is None or source == target:
            loose += 1
        else:
            wanted.setdefault((source, target, tie.relation), tie)
    there: set[tuple[int, int, str]] = set()
    for part in slices(sorted({source for source, _, _ in wanted})):
        there.update(
            (row.source_rid, row.target_rid, row.relation)
            for row in connection.execute(
                select(edges.c.source_rid, edges.c.target_rid, edges.c.relation).where(
                    edges.c.source_rid.in_(part)
                )
            )
        )
    rows = [
        {
            "source_rid": key[0],
            "target_rid": key[1],
            "relation": key[2],
            "weight": tie.weight,
            "created_at": now if tie.created_at is None else tie.created_at,
        }
        for key, tie in wanted.items()
        if key not in there
    ]
    if rows:
        connection.execute(insert(edges), rows)
    return len(rows), loose


def _write_changes(connection: Connection, space: int, found: Sequence[Change], course: Course) -> int:
    """Write the entries of histories that are new, and point those that undo others to them."""
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
        query = select(func.min(changes.c.id)).where(changes.c.id > course.last.get(key, 0))
        for name, value in values.items():
            query = query.where(changes.c[name].is_(None) if value is None else changes.c[name] == value)
        id = connection.execute(query).scalar()
        if id is None:
            undoes = None if change.undoes is None else course.numbers.get(change.undoes)
            id = connection.execute(
                insert(changes).values(**values, undoes=undoes).returning(changes.c.id)
            ).scalar_one()
            written += 1
        course.last[key] = course.numbers[change.number] = id
    return written


def _write_forgotten(connection: Connection, space: int, rest: Sequence[Part]) -> int:
    """Write what was forgotten elsewhere, so that it does not come back here either."""
    stones = [part for part in rest if isinstance(part, Tombstone)]
    written = 0
    if stones:
        # Below zero: the database gives a rid above it to every memory, and the same never twice.
        lowest = min(
            0, int(connection.execute(select(func.coalesce(func.min(tombstones.c.rid), 0))).scalar_one())
        )
        there = {
            (row.place_hash, row.words_hash)
            for part in slices([stone.forgotten_at for stone in stones])
            for row in connection.execute(
                select(tombstones.c.place_hash, tombstones.c.words_hash).where(
                    tombstones.c.space_id == space, tombstones.c.forgotten_at.in_(part)
                )
            )
        }
        changed = connection.execute(select(spaces.c.changed).where(spaces.c.id == space)).scalar_one()
        rows: list[dict[str, object]] = []
        for stone in stones:
            key = stone.place_hash, stone.words_hash
            if key not in there:
                there.add(key)
                rows.append(
                    {
                        "rid": lowest - 1 - len(rows),
                        "space_id": space,
                        "place_hash": stone.place_hash,
                        "words_hash": stone.words_hash,
                        "forgotten_at": stone.forgotten_at,
                        "changed": changed,
                    }
                )
        if rows:
            connection.execute(insert(tombstones), rows)
        written = len(rows)
    words = {part.words_hash for part in rest if isinstance(part, EarlierWords)}
    known: set[str] = set()
    for part in slices(sorted(words)):
        known.update(
            connection.execute(
                select(earlier_words.c.words_hash).where(
                    earlier_words.c.space_id == space, earlier_words.c.words_hash.in_(part)
                )
            ).scalars()
        )
    if words - known:
        connection.execute(
            insert(earlier_words), [{"space_id": space, "words_hash": one} for one in sorted(words - known)]
        )
    return written
