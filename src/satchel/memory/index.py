"""One space of memory as arrays: what a search compares with. Derived from the database, refreshed by its
changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from satchel.memory.arrays import Floats, Ints, Matrix
from satchel.memory.lexicon import ASKED
from satchel.memory.repository import Changes
from satchel.memory.sittings import Sittings, label_of, seat
from satchel.memory.tokens import Bag, unpack
from satchel.models.embedding import product

__all__ = ["Cosines", "Index", "Postings"]


_DAY_MICROS = 86_400_000_000
_MAX_POSTINGS = 4096  # Stems whose rows are remembered; a conversation of days asks for fewer.


_MAX_BAG_BYTES = 128 << 20  # The tokens of 150,000 turns.


class Postings(NamedTuple):
    """The rows that have a stem, ascending, how often each has it, and those that have it in a question."""

    rows: Ints
    counts: Floats
    asked: Ints


class Cosines(NamedTuple):
    """How near a query is to the vectors of an index.

    Attributes:
        best: The best cosine of each row that has vectors; `rows` says which. Dead rows are among them.
        every: The cosine of every vector.
    """

    best: Floats
    rows: Any
    every: Floats


class _Column:
    """An array that grows at its end without being copied each time."""

    __slots__ = ("_array", "_length")

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self._length = 0
        self._array = np.empty(0 if width is None else (0, width), dtype=dtype)

    def extend(self, values: Any) -> None:
        values = np.asarray(values, dtype=self._array.dtype)
        need = self._length + len(values)
        if need > len(self._array):
            # Half as much again: a store that grows row by row is copied ten times on its way to a
            # hundredfold.
            grown = np.empty(
                (max(need, len(self._array) * 3 // 2), *self._array.shape[1:]), self._array.dtype
            )
            grown[: self._length] = self._array[: self._length]
            self._array = grown
        self._array[self._length : need] = values
        self._length = need

    @property
    def values(self) -> Any:
        """The filled part; a view, valid until the next `extend`."""
        return self._array[: self._length]

    def __len__(self) -> int:
        return self._length


class Index:
    """The rows of one user and scope, in the order they were written; rows that were forgotten are dead.

    It is used by one thread at a time. A row here is a number from 0; a rid is the number of the memory in
    the database.

    Attributes:
        changed: The change of the space up to which the rows are complete; `vectors_changed` the same for the
        vectors.
        model: The id of the embedding model that the vectors are of, or None.
    """

    def __init__(self) -> None:
        """An empty index that knows nothing yet."""
        self.changed = 0
        self.model: int | None = None
        self.vectors_changed = 0
        self._clear()

    def _clear(self) -> None:
        self.rows: dict[int, int] = {}
        self._rid = _Column(np.int64)
        self._alive = _Column(np.bool_)
        self._stream = _Column(np.int32)
        self._voice = _Column(np.int32)
        self._minute = _Column(np.int64)
        self._turn = _Column(np.int64)
        self._position = _Column(np.int64)
        self._day = _Column(np.int32)
        self._speaker = _Column(np.int32)
        self._words = _Column(np.float32)
        self._stem_count = _Column(np.float32)
        self._features = _Column(np.uint8)
        # The lexical arm: one entry for each different stem of a row.
        self._entry_stem = _Column(np.uint32)
        self._entry_row = _Column(np.int32)
        self._entry_count = _Column(np.uint16)
        self._streams: dict[tuple[str | None, bool], int] = {}
        self._voices: dict[str, int] = {}
        self._speakers: dict[str, int] = {}
        self._dead = 0
        self._clear_vectors()
        self._forget_derived()

    def _clear_vectors(self) -> None:
        self._vectors: _Column | None = None
        # Row and first vector of each row that has vectors, in the order of the matrix.
        self._vector_row = _Column(np.int32)
        self._vector_start = _Column(np.int64)
        self._has_vector: set[int] = set()
        self._bags: dict[int, Bag] = {}
        self._bag_bytes = 0

    def _forget_derived(self) -> None:
        self._sittings: Sittings | None = None
        self._postings: dict[int, Postings] = {}
        self._derived: dict[str, Any] = {}

    def __len__(self) -> int:
        """Rows, the dead ones included."""
        return len(self._rid)

    @property
    def alive_count(self) -> int:
        """Memories."""
        return len(self._rid) - self._dead

    def use_model(self, model: int | None) -> None:
        """Take vectors of this model from now on; those of another are thrown away, never mixed."""
        if model != self.model:
            self.model = model
            self.vectors_changed = 0
            self._clear_vectors()

    def apply(self, changes: Changes) -> None:
        """Take in what `repository.load_changes` found."""
        if changes.memories or changes.gone:
            self._forget_derived()
            self._kill(changes.gone)
            self._kill([row.rid for row in changes.memories if row.rid in self.rows])
            self._append(changes.memories)
        self.changed = changes.changed
        if self.model is not None:
            if changes.vectors:
                self._append_vectors(changes.vectors)
            self.vectors_changed = changes.changed

    @property
    def needs_rebuild(self) -> bool:
        """Whether so many rows are dead that it should be loaded anew."""
        return self._dead > 1000 and self._dead * 4 > len(self._rid)

    def _kill(self, rids: Sequence[int]) -> None:
        for rid in rids:
            row = self.rows.pop(rid, None)
            if row is not None:
                self._alive.values[row] = False
                self._dead += 1
                self._bags.pop(row, None)

    def _append(self, found: Sequence[Any]) -> None:
        if not found:
            return
        first = len(self._rid)
        self.rows.update((row.rid, first + at) for at, row in enumerate(found))
        self._rid.extend([row.rid for row in found])
        self._alive.extend(np.ones(len(found), dtype=np.bool_))
        voices = [self._voice_of(row) for row in found]
        self._voice.extend(voices)
        self._stream.extend([self._stream_of(row, voice) for row, voice in zip(found, voices, strict=True)])
        self._minute.extend([row.said_at // 60_000_000 for row in found])
        self._turn.extend([(row.source_session is not None and row.source_turn) or 0 for row in found])
        self._position.extend([row.source_position or 0 for row in found])
        # The day on the calendar of the place where it was said.
        self._day.extend([(row.said_at + row.said_offset_min * 60_000_000) // _DAY_MICROS for row in found])
        self._speaker.extend(
            [
                self._speakers.setdefault(row.speaker, len(self._speakers)) if row.speaker else -1
                for row in found
            ]
        )
        self._words.extend([row.words for row in found])
        self._features.extend([row.features for row in found])
        # 4 bytes of stem and 2 of count for each entry.
        sizes = np.array([len(row.stems) // 6 for row in found], dtype=np.int64)
        stems = np.frombuffer(
            b"".join(row.stems[: size * 4] for row, size in zip(found, sizes, strict=True)), "<u4"
        )
        counts = np.frombuffer(
            b"".join(row.stems[size * 4 :] for row, size in zip(found, sizes, strict=True)), "<u2"
        )
        owners = np.repeat(np.arange(first, first + len(found), dtype=np.int32), sizes)
        self._entry_stem.extend(stems)
        self._entry_row.extend(owners)
        self._entry_count.extend(counts)
        self._stem_count.extend(
            np.bincount(owners - first, weights=counts & (ASKED - 1), minlength=len(found))
        )

    def _voice_of(self, row: Any) -> int:
        """Who speaks in what is no episode; -1 where nobody does. What was drawn from a conversation, with the words
        that it rests on, was not said in it.
        """
        if row.kind == "episode" or row.source_quote is not None:
            return -1
        name = row.speaker or label_of(row.opening)
        return self._voices.setdefault(name.casefold(), len(self._voices)) if name else -1

    def _stream_of(self, row: Any, voice: int) -> int:
        """The conversation that a row may be part of; -1 for none. Plain memories are never between the episodes of
        their session, and those without one are taken as they were stored.
        """
        if row.kind == "episode":
            session = row.source_session
            place = None if session is None else (session, True)
        else:
            place = None if voice < 0 else (row.source_session, False)
        return -1 if place is None else self._streams.setdefault(place, len(self._streams))

    def _append_vectors(self, found: Sequence[Any]) -> None:
        rows = [(self.rows[rid], blob) for rid, blob in found if rid in self.rows]
        rows = [(row, blob) for row, blob in rows if row not in self._has_vector]
        if not rows:
            return
        if self._vectors is None:
            # A row of the table holds whole vectors of one model; the model's dimension was checked as they
            # were made.
            self._vectors = _Column(np.float32, self.dimension)
        width = self.dimension * 4
        start = len(self._vectors)
        counts = np.array([len(blob) // width for _, blob in rows], dtype=np.int64)
        self._vectors.extend(
            np.frombuffer(b"".join(blob for _, blob in rows), "<f4").reshape(-1, self.dimension)
        )
        self._vector_row.extend([row for row, _ in rows])
        self._vector_start.extend(start + np.cumsum(counts) - counts)
        self._has_vector.update(row for row, _ in rows)

    dimension = 0
    """Of a vector; set before vectors are taken in."""

    # What a search reads.

    @property
    def rids(self) -> Ints:
        """The rid of each row."""
        return self._rid.values  # type: ignore[no-any-return]

    @property
    def alive(self) -> Any:
        """Which rows are memories still."""
        return self._alive.values

    @property
    def days(self) -> Any:
        """The day that each row was said on, counted from 1970-01-01."""
        return self._day.values

    @property
    def speakers(self) -> Any:
        """The number of each row's speaker, or -1."""
        return self._speaker.values

    @property
    def speaker_numbers(self) -> Mapping[str, int]:
        """The speakers by name."""
        return self._speakers

    @property
    def words(self) -> Floats:
        """How many words each row has."""
        return self._words.values  # type: ignore[no-any-return]

    @property
    def stem_counts(self) -> Floats:
        """How many stems each row has, repeated ones counted."""
        return self._stem_count.values  # type: ignore[no-any-return]

    def has_feature(self, bit: int) -> Any:
        """Which rows have a bit of `lexicon.WordList.features`."""
        return (self._features.values & bit) != 0

    @property
    def embedded_count(self) -> int:
        """Memories with a vector."""
        return (
            sum(1 for row in self._has_vector if self._alive.values[row])
            if self._dead
            else len(self._has_vector)
        )

    def sittings(self) -> Sittings:
        """Which rows were said one after the other."""
        if self._sittings is None:
            self._sittings = seat(
                rids=self._rid.values,
                streams=self._stream.values,
                turns=self._turn.values,
                positions=self._position.values,
                minutes=self._minute.values,
                voices=self._voice.values,
                alive=self._alive.values,
            )
        return self._sittings

    def neighbours(self) -> tuple[Ints, Ints]:
        """The row before and the row after each row in its sitting; -1 where there is none."""
        sittings = self.sittings()
        return sittings.before, sittings.after

    def derived(self, name: str, compute: Any) -> Any:
        """What `compute()` gives, kept until the rows change."""
        if name not in self._derived:
            self._derived[name] = compute()
        return self._derived[name]

    def postings(self, stem: int) -> Postings:
        """The living rows that have a stem."""
        known = self._postings.get(stem)
        if known is None:
            # A scan: 1 ms for three million entries, and nothing to sort or to keep in order while the store
            # grows.
            at = np.flatnonzero(self._entry_stem.values == np.uint32(stem))
            rows = self._entry_row.values[at].astype(np.int64)
            counts = self._entry_count.values[at]
            if self._dead:
                living = self._alive.values[rows]
                rows, counts = rows[living], counts[living]
            if len(self._postings) >= _MAX_POSTINGS:
                self._postings.clear()
            known = self._postings[stem] = Postings(
                rows=rows,
                counts=(counts & (ASKED - 1)).astype(np.float32),
                asked=rows[(counts & ASKED) != 0],
            )
        return known

    # Tokens: read from the database when a search compares them, and kept as long as there is room.

    def lacking_tokens(self, rows: Ints) -> list[int]:
        """The rids of those rows whose tokens are to be read; rows without a vector have none."""
        have = self._has_vector
        rids = self._rid.values
        return [int(rids[row]) for row in rows.tolist() if row in have and row not in self._bags]

    def take_tokens(self, found: Mapping[int, bytes]) -> None:
        """Keep what was read for these rids."""
        for rid, packed in found.items():
            row = self.rows.get(rid)
            if row is not None:
                self._bags[row] = unpack(packed)
                self._bag_bytes += len(packed)
        while self._bag_bytes > _MAX_BAG_BYTES and self._bags:
            # The one that was read first.
            gone = self._bags.pop(next(iter(self._bags)))
            self._bag_bytes -= len(gone.asks) + len(gone.vectors) + 2 + 2 * len(gone.counts)

    def bags(self, rows: Ints) -> list[Bag | None]:
        """The tokens of each row, where they are known."""
        return [self._bags.get(row) for row in rows.tolist()]

    def cosines(self, query: Floats) -> Cosines:
        """Compare a query with every vector; shape (d,), unit length."""
        if self._vectors is None or not len(self._vectors):
            nothing = np.empty(0, dtype=np.float32)
            return Cosines(best=nothing, rows=np.empty(0, dtype=np.int64), every=nothing)
        matrix: Matrix = self._vectors.values
        every = product(matrix, query)
        starts = self._vector_start.values
        best = every if len(starts) == len(every) else np.maximum.reduceat(every, starts)
        return Cosines(best=best, rows=self._vector_row.values, every=every)
