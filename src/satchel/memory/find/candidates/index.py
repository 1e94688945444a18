"""One space of memory as arrays: what a search compares with. Derived from the database, refreshed by its changes."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, repeat
from typing import Any, NamedTuple

import numpy as np

from satchel.memory.find.candidates.arrays import Column, Floats, Ints, Matrix, distinct, is_in
from satchel.memory.find.candidates.entries import Entries, Postings
from satchel.memory.find.candidates.sittings import label_of, seat
from satchel.memory.find.candidates.tokens import Bag, unpack
from satchel.memory.find.candidates.vectors import BestPassages, Cosines, Second, Vectors
from satchel.memory.store.repository import ChangedMemory, Changes
from satchel.memory.text.lexicon import ASKED

BY_ASSISTANT = 4
"""The bit of a row's features for what an assistant said; the others are `lexicon.WordList.features`."""

HAS_CUES = 8
"""The bit of what has cues, embedded or not."""

_SENTENCE_FEATURES = 3
"""The bits of `lexicon.WordList.features` that are kept here; above them stands the language."""

_ASSISTANTS = frozenset({"assistant", "ai", "agent", "bot", "model", "system", "tool"})
"""What programs call the party of a conversation that is no person."""

_DAY_MICROS = 86_400_000_000
_MINUTE_MICROS = 60_000_000

MAX_STEMS_BYTES = 32 << 20
"""Of what is kept for stems: the commonest 80 of 100,000 rows, or thousands of others."""

_AT_ONCE = 4096
"""Rows that are read before they are taken in: what is read needs no memory of its own."""

_COLUMNS: Mapping[str, Any] = {
    "rid": np.int64,
    "alive": np.bool_,
    "stream": np.int64,
    "voice": np.int64,
    "minute": np.int64,
    "turn": np.int64,
    "position": np.int64,
    "day": np.int32,
    "speaker": np.int64,
    "words": np.float32,
    "stem_count": np.float32,
    "features": np.uint8,
    "sitting": np.int64,
    "before": np.int64,
    "after": np.int64,
}
"""What is known of each row, one value each: `day` is counted from 1970-01-01, `speaker` is a number or -1, `words` and
`stem_count` are how many it has; `Index._seat` finds `sitting`, `before` and `after`, and `_read` the others."""


class StemScores(NamedTuple):
    """What a stem adds to the scores of rows, which are numbers or a slice of all."""

    rows: Any
    scores: Floats


class _OfModel:
    """The vectors of one model, of memories and of their cues, complete up to a change."""

    def __init__(self, model: int | None = None, dimension: int = 0, rows: int = 0) -> None:
        self.model = model
        self.changed = 0
        self.texts, self.cues = Vectors(dimension), Vectors(dimension)
        self.texts.add_rows(rows)
        self.cues.add_rows(rows)


class Index:
    """The rows of one space, in the order in which they were written; rows that were forgotten are dead.

    One thread at a time uses it; only the counts may be read by others. A row here is a number from 0; a rid is the
    number of the memory in the database.

    Attributes:
        changed: The change of the space up to which the rows are complete.
        second: The model of the rows in other languages, where there is one.
        speaker_numbers: The number of each speaker, by name.
        alive_count: The number of memories; `embedded_count` is how many of them have a vector.
        cues_waiting: How many memories have cues that have no vectors yet.
    """

    def __init__(self) -> None:
        self.changed = 0
        self.second: Second | None = None
        self.speaker_numbers: Mapping[str, int] = {}
        self.alive_count = self.embedded_count = self.cues_waiting = 0
        self._row_of: dict[int, int] = {}  # Of each memory, by its rid.
        self._columns = {name: Column(dtype) for name, dtype in _COLUMNS.items()}
        self._next_sitting = 0
        self._entries = Entries()
        self._first, self._other = _OfModel(), _OfModel()
        self._derived: dict[str, Any] = {}
        self._of_stems: dict[int, StemScores] = {}
        self._of_stems_bytes = 0

    def __len__(self) -> int:
        """Rows, the dead ones included."""
        return len(self._columns["rid"])

    @property
    def dimension(self) -> int:
        """Of the vectors of `model`."""
        return self._first.texts.dimension

    @property
    def model(self) -> int | None:
        """The id of the embedding model whose vectors these are, or None."""
        return self._first.model

    @property
    def models(self) -> list[tuple[int, int]]:
        """The models whose vectors these are, each with the change up to which they are complete."""
        return [(one.model, one.changed) for one in (self._first, self._other) if one.model is not None]

    def use_model(self, model: int, dimension: int) -> None:
        """Take vectors of this model from now on; those of another are thrown away, never mixed."""
        if model != self.model:
            self._first = _OfModel(model, dimension, len(self))
            self.use_second(None)

    def use_second(self, second: Second | None) -> None:
        """Take vectors of a second model too from now on, or of none."""
        if (second and second.model) != self._other.model:
            model, dimension = (None, 0) if second is None else (second.model, second.dimension)
            self._other = _OfModel(model, dimension, len(self))
        self.second = second

    def apply(self, changes: Changes) -> None:
        """Take in what `repository.load_changes` found."""
        changed = [self._kill(changes.gone)]
        for part in _in_parts(changes.memories):
            changed += self._kill(row[0] for row in part), self._append(part)
        self._seat(distinct(np.concatenate(changed)))
        self.changed = changes.changed
        for known, (texts, cues) in zip((self._first, self._other), changes.vectors, strict=False):
            self._take(known.texts, texts)
            self._take(known.cues, cues)
            known.changed = changes.changed
        self._count()

    def _count(self) -> None:
        alive = self["alive"]
        self.alive_count = len(self._row_of)
        self.embedded_count = int(((self._first.texts.has() | self._other.texts.has()) & alive).sum())
        self.cues_waiting = int((self.has_feature(HAS_CUES) & alive & ~self._first.cues.has()).sum())

    @property
    def _all_vectors(self) -> tuple[Vectors, ...]:
        return self._first.texts, self._first.cues, self._other.texts, self._other.cues

    @property
    def dead_count(self) -> int:
        """Rows that are no memories any more."""
        return len(self) - self.alive_count

    @property
    def needs_rebuild(self) -> bool:
        """Whether so many rows are dead that it should be loaded anew."""
        return self.dead_count > 1000 and self.dead_count * 4 > len(self)

    # Changes.

    def _kill(self, rids: Iterable[int]) -> Ints:
        """Let rows die; gives those that lived."""
        rows = [row for row in (self._row_of.pop(rid, None) for rid in rids) if row is not None]
        died = np.array(rows, dtype=np.int64)
        if rows:
            self._forget_derived()
            self["alive"][died] = False
            self._entries.note_deaths()
        return died

    def _forget_derived(self) -> None:
        self._derived.clear()
        self._of_stems.clear()
        self._of_stems_bytes = 0

    def _append(self, found: Sequence[Any]) -> Ints:
        self._forget_derived()
        first = len(self)
        born = np.arange(first, first + len(found), dtype=np.int64)
        values, entries, names = _read(found, first)
        for name, column in self._columns.items():
            column.extend(values[name] if name in values else np.full(len(found), -1))
        for vectors in self._all_vectors:
            vectors.add_rows(len(found))
        self._entries.append(*entries)
        self._row_of.update(zip(values["rid"], born.tolist(), strict=True))
        if names.keys() - self.speaker_numbers.keys():
            # A new mapping: the old one may be read by another thread now.
            self.speaker_numbers = {**self.speaker_numbers, **names}
        return born

    def _take(self, vectors: Vectors, found: Iterable[Any]) -> None:
        for part in _in_parts(found):
            rids, stored = zip(*part, strict=True)
            vectors.append(self.rows_of(rids), stored)

    def _seat(self, changed: Ints) -> None:
        """Find out who sat together where rows came or went: in the conversations of those rows, and in no others."""
        streams = distinct(self["stream"][changed])
        rows = np.flatnonzero(is_in(streams[streams >= 0], self["stream"]))
        names = {"rids": "rid", "streams": "stream", "turns": "turn", "positions": "position"}
        names |= {"minutes": "minute", "voices": "voice", "alive": "alive"}
        seated = seat(**{given: self[name][rows] for given, name in names.items()})
        for name, values in (("before", seated.before), ("after", seated.after)):
            self[name][rows] = np.where(values >= 0, rows[values], -1)
        sat = seated.number >= 0
        self["sitting"][rows] = np.where(sat, seated.number + self._next_sitting, -1)
        self._next_sitting += int(seated.number.max(initial=-1)) + 1

    def __getitem__(self, name: str) -> Any:
        """A column of all rows, the dead ones included; see `_COLUMNS`."""
        return self._columns[name].values

    # What a search reads.

    def has_feature(self, bit: int) -> Any:
        """Which rows have a bit of `lexicon.WordList.features`, `BY_ASSISTANT` or `HAS_CUES`."""
        return (self["features"] & bit) != 0

    def rows_of(self, rids: Iterable[int]) -> Ints:
        """The row of each rid, in their order; -1 for those that have none."""
        return np.fromiter(map(self._row_of.get, rids, repeat(-1)), dtype=np.int64)

    def derived(self, name: str, compute: Any) -> Any:
        """What `compute()` gives, kept until the rows change."""
        if name not in self._derived:
            self._derived[name] = compute()
        return self._derived[name]

    def postings(self, stem: int) -> Postings:
        """The living rows that have a stem."""
        return self._entries.postings(stem, self["alive"])

    def of_stem(self, stem: int, compute: Callable[[], StemScores]) -> StemScores:
        """What `compute()` gives for a stem, kept until the rows change: the commonest words are in every other
        question, and have the most rows.
        """
        if stem not in self._of_stems:
            if self._of_stems_bytes > MAX_STEMS_BYTES:
                self._of_stems.clear()
                self._of_stems_bytes = 0
            found = self._of_stems[stem] = compute()
            self._of_stems_bytes += found.scores.nbytes + getattr(found.rows, "nbytes", 0)
        return self._of_stems[stem]

    def passage_counts(self, rows: Ints) -> Any:
        """How many passages with a vector each of some rows has: uint8, at least 1."""
        counts = self._other.texts.counts_of(rows)
        return np.clip(np.where(counts > 0, counts, self._first.texts.counts_of(rows)), 1, 255).astype(
            np.uint8
        )

    def _split(self, query: Floats) -> tuple[Floats, Floats | None]:
        """The parts of a query for each model; the second is None where nothing is to be compared with it."""
        second = query[self.dimension :]
        return query[: self.dimension], second if len(self._other.texts) and second.any() else None

    def cosines(self, query: Floats) -> Cosines:
        """Compare a query with every vector of a memory; shape (d,), unit length. Those of a second model stand after
        those of the first, on its scale; see `Second`.
        """
        first, second = self._split(query)
        found = []
        if second is None or first.any():
            one = self._first.texts.cosines(first)
            found.append(one.only((self["alive"] & ~self._other.texts.has())[one.rows]))
        if second is not None and self.second is not None:
            other = self._other.texts.cosines(second).scaled(self.second.scale)
            found.append(other.only(self["alive"][other.rows]))
        return found[0] if len(found) == 1 else Cosines(*map(np.concatenate, zip(*found, strict=True)))

    def cue_cosines(self, vectors: Matrix) -> Floats | None:
        """The best cosine of any of the vectors, shape (q, d), and any cue of each row: shape (rows,), 0 where a row
        has no cue. None if no row has one.
        """
        if not (self._first.cues.has() & self["alive"]).any():
            return None
        query = np.ascontiguousarray(vectors.T)
        best = self._best_of(self._first.cues.cosines(query[: self.dimension]))
        if len(self._other.cues) and self.second is not None and len(query) > self.dimension:
            # Cues have vectors of both models. Those of the second count for rows in other languages, and for a
            # question that the first doesn't read.
            found = self._other.cues.cosines(query[self.dimension :]).scaled(self.second.scale)
            reads = query[: self.dimension].any()
            best = np.where(self._other.texts.has() | ~reads, self._best_of(found), best)
        best[~self["alive"]] = 0
        return best

    def _best_of(self, found: Cosines) -> Floats:
        best = np.zeros(len(self), dtype=np.float32)
        best[found.rows] = found.best.max(axis=1)
        return best

    def best_passages(self, rows: Ints, query: Floats) -> BestPassages:
        """The passages of some rows that are nearest to a query; shape (d,), unit length. With two models, the vectors
        are as wide as those of both, so that rows of different models are not alike.
        """
        first, second = query[: self.dimension], query[self.dimension :]
        found = self._first.texts.best_passages(rows, first)
        if self.second is None:
            return found
        if not len(second):
            second = np.zeros(self.second.dimension, dtype=np.float32)
        other = self._other.texts.best_passages(rows, second)
        of_second = other.numbers >= 0
        found.vectors[of_second] = 0
        return BestPassages(
            np.hstack([found.vectors, other.vectors]), np.where(of_second, other.numbers, found.numbers)
        )

    def bags(self, rows: Ints, read: Callable[[Sequence[int]], Mapping[int, bytes]]) -> dict[int, Bag]:
        """The tokens of some rows, by row; `read` reads them from the database, packed, by rid, 8 µs each. Rows without
        a vector have none.
        """
        embedded = rows[self._first.texts.has(rows) & ~self._other.texts.has(rows)]
        found = read(self["rid"][embedded].tolist())
        return dict(zip(self.rows_of(found).tolist(), map(unpack, found.values()), strict=True))


def _in_parts(found: Iterable[Any]) -> Iterator[list[Any]]:
    reading = iter(found)
    while part := list(islice(reading, _AT_ONCE)):
        yield part


@lru_cache(maxsize=4096)
def number_of(name: str) -> int:
    """The number that stands for a name, the same in every process: 63 bits of a hash, so that no two share one."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _read(found: Sequence[Any], first: int) -> tuple[dict[str, Any], tuple[Any, ...], dict[str, int]]:
    """The columns and the entries of rows, and the numbers of their speakers.

    `found` has rows with the columns of `repository.ChangedMemory`, at least one; `first` is the number of the first.
    """
    read: Any = ChangedMemory._make(zip(*found, strict=True))
    # What was drawn from a conversation, with the words that it rests on, was not said in it.
    voices = [
        -1 if kind == "episode" or quote is not None else _voice_of(speaker or label_of(opening))
        for kind, quote, speaker, opening in zip(
            read.kind, read.source_quote, read.speaker, read.opening, strict=True
        )
    ]
    # 4 bytes of stem and 2 of count for each entry.
    sizes = np.fromiter(map(len, read.stems), dtype=np.int64) // 6
    ends = (sizes * 4).tolist()
    stems = b"".join([blob[:end] for blob, end in zip(read.stems, ends, strict=True)])
    counts = np.frombuffer(b"".join([blob[end:] for blob, end in zip(read.stems, ends, strict=True)]), "<u2")
    owners = np.repeat(np.arange(len(found), dtype=np.int32), sizes)
    names = {name: number_of(name) for name in set(read.speaker) if name}
    said = np.array(read.said_at)
    values = {
        "rid": read.rid,
        "alive": np.ones(len(found), dtype=np.bool_),
        "stream": list(map(_stream_of, read.kind, read.source_session, voices)),
        "voice": voices,
        "minute": said // _MINUTE_MICROS,
        "turn": [
            (session is not None and turn) or 0
            for session, turn in zip(read.source_session, read.source_turn, strict=True)
        ],
        "position": [position or 0 for position in read.source_position],
        # The day on the calendar of the place where it was said.
        "day": (said + np.array(read.said_offset_min) * _MINUTE_MICROS) // _DAY_MICROS,
        "speaker": [names.get(name, -1) for name in read.speaker],
        "words": read.words,
        "stem_count": np.bincount(owners, weights=counts & (ASKED - 1), minlength=len(found)),
        "features": (np.array(read.features) & _SENTENCE_FEATURES)
        | np.where(list(map(_is_by_assistant, read.kind, read.trust, read.speaker)), BY_ASSISTANT, 0)
        | np.where(read.cued, HAS_CUES, 0),
    }
    return values, (np.frombuffer(stems, "<u4"), owners + np.int32(first), counts), names


def _voice_of(name: str | None) -> int:
    """Who speaks in what is no episode, as a number of 32 bits; -1 where nobody does."""
    return zlib.crc32(name.casefold().encode("utf-8", "surrogatepass")) if name else -1


@lru_cache(maxsize=4096)
def _is_by_assistant(kind: str, trust: str, speaker: str) -> bool:
    """Whether an assistant said a row, by its trust or by the name of its speaker, whatever name is displayed."""
    return (kind == "episode" and trust != "user") or speaker.casefold() in _ASSISTANTS


@lru_cache(maxsize=4096)
def _stream_of(kind: str, session: str | None, voice: int) -> int:
    """The conversation that a row may be part of; -1 for none. Plain memories are never between the episodes of
    their session, and those without one are taken as they were stored.
    """
    if kind == "episode":
        return -1 if session is None else number_of(f"episode {session}")
    return -1 if voice < 0 else number_of(f"plain {session}")
