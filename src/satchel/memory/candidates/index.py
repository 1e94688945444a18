"""One space of memory as arrays: what a search compares with. Derived from the database, refreshed by its changes."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from satchel.memory.candidates.array_file import NewColumn
from satchel.memory.candidates.arrays import Floats, Ints, Matrix, distinct
from satchel.memory.candidates.columns import Column
from satchel.memory.candidates.entries import Entries, EntryArrays, Postings, Spread, SpreadCounts
from satchel.memory.candidates.sittings import Sittings, label_of, seat
from satchel.memory.candidates.tokens import Bag, unpack
from satchel.memory.candidates.vectors import BestPassages, Cosines, Second, Vectors
from satchel.memory.lexicon import ASKED
from satchel.memory.repository import Changes

__all__ = ["BY_ASSISTANT", "HAS_CUES", "Index", "Rows"]

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

_MAX_BAG_BYTES = 16 << 20
"""Of token vectors that are kept: those of 12,000 turns. The others are read when they are compared, 8 µs each."""

MAX_SPREAD_BYTES = 32 << 20
"""Of what `SpreadCounts` keeps: the commonest 80 stems of 100,000 rows, or thousands of others."""

_MOST_STREAMS = 64
"""Changes in more conversations than this are rare, and everything is seated anew."""

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
}
"""What is known of each row, one value each; see `Index._read`."""


class Rows:
    """The row of each memory that is alive, by its rid."""

    def __init__(self) -> None:
        self._sorted: Ints = np.empty(0, dtype=np.int64)
        self._is_there: Any = np.empty(0, dtype=np.bool_)
        self._later: dict[int, int] = {}

    def append(self, rids: Ints, first: int) -> None:
        """Add rows from `first` on; the first ones, which are many, in ascending order of rids."""
        if not first:
            self._sorted = rids.copy()
            self._is_there = np.ones(len(rids), dtype=np.bool_)
        else:
            self._later.update(zip(rids.tolist(), range(first, first + len(rids)), strict=True))

    def pop(self, rid: int) -> int | None:
        """Remove a rid; gives its row, or None where it has none."""
        row = self._later.pop(rid, None)
        if row is None:
            row = self._early(rid)
            if row is not None:
                self._is_there[row] = False
        return row

    def _early(self, rid: int) -> int | None:
        at = int(np.searchsorted(self._sorted, rid))
        is_row = at < len(self._sorted) and self._sorted[at] == rid and self._is_there[at]
        return at if is_row else None

    def get(self, rid: int) -> int | None:
        """The row of a rid, or None."""
        row = self._later.get(rid)
        return self._early(rid) if row is None else row

    def of(self, rids: Iterable[int]) -> Ints:
        """The row of each rid, in their order; -1 for those that have none."""
        wanted = np.fromiter(rids, dtype=np.int64)
        rows = np.full(len(wanted), -1, dtype=np.int64)
        if len(self._sorted):
            at = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
            rows = np.where((self._sorted[at] == wanted) & self._is_there[at], at, -1)
        if self._later:
            for place in np.flatnonzero(rows < 0).tolist():
                rows[place] = self._later.get(int(wanted[place]), -1)
        return rows


class Index:
    """The rows of one space, in the order in which they were written; rows that were forgotten are dead.

    One thread at a time uses it; only the counts may be read by others. A row here is a number from 0; a rid is the
    number of the memory in the database.

    Attributes:
        changed: The change of the space up to which the rows are complete; `vectors_changed` is the same for the
            vectors.
        model: The id of the embedding model whose vectors these are, or None.
        dimension: Of its vectors.
        second: The model of the rows in other languages, where there is one; `second_changed` is as `vectors_changed`.
        alive_count: The number of memories; `embedded_count` is how many of them have a vector.
        cued_count: How many of them have cues; `cues_embedded_count` is how many of these have vectors of their cues.
        unkept: How many rows came or went since the arrays were read from a file or written to one.
    """

    def __init__(self) -> None:
        """An empty index that knows nothing yet."""
        self.changed = 0
        self.model: int | None = None
        self.vectors_changed = 0
        self.dimension = 0
        self.second: Second | None = None
        self.second_changed = 0
        self.alive_count = 0
        self.cued_count = 0
        self.rows = Rows()
        self._columns = {name: Column(dtype) for name, dtype in _COLUMNS.items()}
        self._has_vector = Column(np.bool_)
        self._has_cue_vectors = Column(np.bool_)
        self._has_second = Column(np.bool_)
        self._has_second_cues = Column(np.bool_)
        self._second_vectors: Vectors | None = None
        self._second_cues: Vectors | None = None
        self._moved = False
        self._entries = Entries()
        self._spread = SpreadCounts(MAX_SPREAD_BYTES)
        self._speakers: Mapping[str, int] = {}
        self._sitting = Column(np.int64)
        self._before = Column(np.int64)
        self._after = Column(np.int64)
        self._next_sitting = 0
        self._derived: dict[str, Any] = {}
        self.unkept = 0
        self._clear_vectors()

    @classmethod
    def of(cls, arrays: Mapping[str, Any], *, changed: int) -> Index:
        """An index of what `freeze` gave, as it was read from a file. Vectors are not in it.

        Args:
            arrays: By name; large ones are used where they are.
            changed: The change that they are complete up to.
        """
        index = cls()
        count = len(arrays["rid"])
        for name, column in index._columns.items():
            column.extend(np.ones(count) if name == "alive" else arrays[name])
        for flags in (
            index._has_vector,
            index._has_cue_vectors,
            index._has_second,
            index._has_second_cues,
        ):
            flags.extend(np.zeros(count, dtype=np.bool_))
        index._entries = Entries(
            EntryArrays(arrays["entry_stem"], arrays["entry_row"], arrays["entry_count"])
        )
        index.rows.append(index.rids, 0)
        index.alive_count = count
        index.cued_count = int(index.has_feature(HAS_CUES).sum())
        index._seat(np.arange(count, dtype=np.int64))
        index.changed = changed
        return index

    def freeze(self) -> dict[str, NewColumn]:
        """What is alive, as the columns of a file, in the order of rids. Words are in it as hashes of stems, and names
        as hashes. Nothing may change until the columns are written.
        """
        alive = np.flatnonzero(self.alive)
        rows = alive[np.argsort(self.rids[alive], kind="stable")]
        number = np.full(len(self), -1, dtype=np.int32)
        number[rows] = np.arange(len(rows), dtype=np.int32)
        columns = {
            name: NewColumn.of(self._values(name)[rows], np.dtype(dtype).newbyteorder("<").str)
            for name, dtype in _COLUMNS.items()
            if name != "alive"
        }
        return columns | self._entries.freeze(number)

    def first_rids(self, *, without: Iterable[int]) -> list[int]:
        """One memory of each speaker, leaving out some memories."""
        speakers = self.speakers
        rows = np.flatnonzero(
            self.alive & (speakers >= 0) & ~np.isin(self.rids, np.fromiter(without, dtype=np.int64))
        )
        rows = rows[np.argsort(speakers[rows], kind="stable")]
        is_first = np.ones(len(rows), dtype=np.bool_)
        is_first[1:] = speakers[rows[1:]] != speakers[rows[:-1]]
        return [int(rid) for rid in self.rids[rows[is_first]]]

    def name_speakers(self, names: Iterable[str]) -> None:
        """Take in the names of speakers."""
        # A new mapping: the old one may be read by another thread now.
        self._speakers = {**self._speakers, **{name: number_of(name) for name in names}}

    def _clear_vectors(self) -> None:
        self._vectors: Vectors | None = None
        self._has_vector.values[:] = False
        self._clear_second()
        self._cues: Vectors | None = None
        self.cues_embedded_count = 0
        self._has_cue_vectors.values[:] = False
        self._bags: dict[int, Bag] = {}
        self._bag_bytes = 0

    def _clear_second(self) -> None:
        self._second_vectors = self._second_cues = None
        self._has_second.values[:] = False
        self._has_second_cues.values[:] = False
        self._moved = False
        self.embedded_count = int((self._has_vector.values & self.alive).sum())

    def __len__(self) -> int:
        """Rows, the dead ones included."""
        return len(self._columns["rid"])

    def use_model(self, model: int | None) -> None:
        """Take vectors of this model from now on; those of another are thrown away, never mixed."""
        if model != self.model:
            self.model = model
            self.vectors_changed = self.second_changed = 0
            self._clear_vectors()

    def use_second(self, second: Second | None) -> None:
        """Take vectors of a second model too from now on, or of none."""
        if (second is None) != (self.second is None) or (
            second is not None and self.second is not None and second.model != self.second.model
        ):
            self.second_changed = 0
            self._clear_second()
            self._forget_places()
        self.second = second

    def apply(self, changes: Changes) -> None:
        """Take in what `repository.load_changes` found."""
        if changes.memories or changes.gone:
            self._derived.clear()
            died = self._kill([*changes.gone, *(row.rid for row in changes.memories)])
            born = self._append(changes.memories)
            self.unkept += len(died) + len(born)
            self._seat(distinct(np.concatenate([died, born])))
        self.changed = changes.changed
        if self.model is not None:
            if changes.vectors:
                self._append_vectors(changes.vectors)
            if changes.cue_vectors:
                self._append_cues(changes.cue_vectors)
            self.vectors_changed = changes.changed
        if self.second is not None:
            if changes.second:
                self._append_second(changes.second)
            if changes.second_cues:
                self._append_second_cues(changes.second_cues)
            self.second_changed = changes.changed
            self._moved = bool((self._has_vector.values & self._has_second.values).any())

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes, with what is mapped."""
        columns = sum(int(column.values.nbytes) for column in self._columns.values())
        parts = (self._vectors, self._second_vectors, self._cues, self._second_cues)
        vectors = sum(part.size_bytes for part in parts if part is not None)
        return columns + self._entries.size_bytes + vectors + self._bag_bytes

    @property
    def cues_waiting(self) -> int:
        """How many memories have cues that have no vectors yet."""
        return self.cued_count - self.cues_embedded_count

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
        rows = [row for row in map(self.rows.pop, rids) if row is not None]
        died = np.array(rows, dtype=np.int64)
        if rows:
            self.alive[died] = False
            self.alive_count -= len(rows)
            self.embedded_count -= int((self._has_vector.values[died] | self._has_second.values[died]).sum())
            if self.cued_count:
                self.cued_count -= int(self.has_feature(HAS_CUES)[died].sum())
                self.cues_embedded_count -= int(self._has_cue_vectors.values[died].sum())
            self._entries.note_deaths()
            for row in rows:
                self._drop_bag(row)
        return died

    def _append(self, found: Sequence[Any]) -> Ints:
        """Add rows; gives their numbers."""
        first = len(self)
        if not found:
            return np.empty(0, dtype=np.int64)
        values, entries = _read(found, first)
        for name, column in self._columns.items():
            column.extend(values[name])
        for flags in (
            self._has_vector,
            self._has_cue_vectors,
            self._has_second,
            self._has_second_cues,
        ):
            flags.extend(np.zeros(len(found), dtype=np.bool_))
        self._entries.append(entries)
        self.rows.append(values["rid"], first)
        self.alive_count += len(found)
        self.cued_count += sum(row.cued for row in found)
        names = {row.speaker for row in found if row.speaker} - self._speakers.keys()
        if names:
            self.name_speakers(names)
        return np.arange(first, first + len(found), dtype=np.int64)

    def _append_cues(self, found: Sequence[Any]) -> None:
        rows = self._lacking(found, self._has_cue_vectors.values)
        if rows:
            if self._cues is None:
                self._cues = Vectors(self.dimension)
            self._cues.append(rows)
            self._has_cue_vectors.values[[row for row, _ in rows]] = True
            self.cues_embedded_count += len(rows)

    def _lacking(self, found: Sequence[Any], have: Any) -> list[tuple[int, bytes]]:
        """Rows with the vectors that were read for them, without those that have some."""
        placed = self.rows.of(rid for rid, _ in found).tolist()
        return [
            (row, blob) for row, (_, blob) in zip(placed, found, strict=True) if row >= 0 and not have[row]
        ]

    def _append_vectors(self, found: Sequence[Any]) -> None:
        have = self._has_vector.values
        rows = self._lacking(found, have)
        if not rows:
            return
        if self._vectors is None:
            # A row of the table holds whole vectors of one model; the model's dimension was checked as they were made.
            self._vectors = Vectors(self.dimension)
        self._vectors.append(rows)
        numbers = [row for row, _ in rows]
        have[numbers] = True
        self.embedded_count += int((~self._has_second.values[numbers]).sum())
        self._forget_places()

    def _append_second(self, found: Sequence[Any]) -> None:
        assert self.second is not None
        have = self._has_second.values
        rows = self._lacking(found, have)
        if not rows:
            return
        if self._second_vectors is None:
            self._second_vectors = Vectors(self.second.dimension)
        self._second_vectors.append(rows)
        numbers = [row for row, _ in rows]
        have[numbers] = True
        self.embedded_count += int((~self._has_vector.values[numbers]).sum())
        self._forget_places()

    def _append_second_cues(self, found: Sequence[Any]) -> None:
        assert self.second is not None
        rows = self._lacking(found, self._has_second_cues.values)
        if rows:
            if self._second_cues is None:
                self._second_cues = Vectors(self.second.dimension)
            self._second_cues.append(rows)
            self._has_second_cues.values[[row for row, _ in rows]] = True

    def _forget_places(self) -> None:
        for name in ("vectors_in_order", "passage_counts"):
            self._derived.pop(name, None)

    def _seat(self, changed: Ints) -> None:
        """Find out who sat together where rows came or went: in the conversations of those rows, and in no others."""
        for column in (self._sitting, self._before, self._after):
            column.extend(np.full(len(self) - len(column), -1, dtype=np.int64))
        streams = distinct(self._values("stream")[changed])
        streams = streams[streams >= 0]
        of_row = self._values("stream")
        if len(streams) > _MOST_STREAMS:
            concerned = of_row >= 0
        else:
            concerned = np.zeros(len(self), dtype=np.bool_)
            for stream in streams.tolist():
                concerned |= of_row == stream
        rows = np.flatnonzero(concerned)
        names = {"rids": "rid", "streams": "stream", "turns": "turn", "positions": "position"}
        names |= {"minutes": "minute", "voices": "voice", "alive": "alive"}
        seated = seat(**{given: self._values(name)[rows] for given, name in names.items()})
        moved = [changed]
        for column, values in ((self._before, seated.before), (self._after, seated.after)):
            places = np.where(values >= 0, rows[values], -1)
            moved.append(rows[column.values[rows] != places])
            column.values[rows] = places
        sat = seated.number >= 0
        self._sitting.values[rows] = np.where(sat, seated.number + self._next_sitting, -1)
        self._next_sitting += int(seated.number.max(initial=-1)) + 1
        self._spread.touch(distinct(np.concatenate([*moved, *self._beside(changed)])))

    def _beside(self, rows: Ints) -> list[Ints]:
        """What stands before and after rows."""
        beside = [self._before.values[rows], self._after.values[rows]]
        return [found[found >= 0] for found in beside]

    def _values(self, name: str) -> Any:
        return self._columns[name].values

    # What a search reads.

    @property
    def rids(self) -> Ints:
        """The rid of each row."""
        return self._values("rid")  # type: ignore[no-any-return]

    @property
    def alive(self) -> Any:
        """Which rows are memories still."""
        return self._values("alive")

    @property
    def days(self) -> Any:
        """The day that each row was said on, counted from 1970-01-01."""
        return self._values("day")

    @property
    def speakers(self) -> Any:
        """The number of each row's speaker, or -1."""
        return self._values("speaker")

    @property
    def speaker_numbers(self) -> Mapping[str, int]:
        """The speakers by name."""
        return self._speakers

    @property
    def words(self) -> Floats:
        """How many words each row has."""
        return self._values("words")  # type: ignore[no-any-return]

    @property
    def stem_counts(self) -> Floats:
        """How many stems each row has, repeated ones counted."""
        return self._values("stem_count")  # type: ignore[no-any-return]

    def has_feature(self, bit: int) -> Any:
        """Which rows have a bit of `lexicon.WordList.features`, `BY_ASSISTANT` or `HAS_CUES`."""
        return (self._values("features") & bit) != 0

    def sittings(self) -> Sittings:
        """Which rows were said one after the other."""
        return Sittings(self._sitting.values, self._before.values, self._after.values)

    def neighbours(self) -> tuple[Ints, Ints]:
        """The row before and the row after each row in its sitting; -1 where there is none."""
        return self._before.values, self._after.values

    def derived(self, name: str, compute: Any) -> Any:
        """What `compute()` gives, kept until the rows change."""
        if name not in self._derived:
            self._derived[name] = compute()
        return self._derived[name]

    def postings(self, stem: int) -> Postings:
        """The living rows that have a stem."""
        return self._entries.postings(stem, self.alive)

    def spread(self, stem: int, *, spread: Callable[[], Spread], fix: Callable[[Ints], Floats]) -> Spread:
        """What is kept of a stem's counts, neighbours included; see `SpreadCounts.get`."""
        return self._spread.get(stem, rows=len(self), spread=spread, fix=fix)

    def vector_counts(self, query: Floats | None = None) -> tuple[Any, Any]:
        """The rows that have vectors, and how many each has; with a query, in the order of what `cosines` compares."""
        if self._second_vectors is None:
            return self._first.counts()
        first, second = (None, None) if query is None else self._split(query)
        found = []
        if first is None or first.any():
            rows, counts = self._first.counts()
            kept = ~self._has_second.values[rows]
            found.append((rows[kept], counts[kept]))
        if query is None or second is not None:
            found.append(self._second_vectors.counts())
        rows, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return rows, counts

    @property
    def _first(self) -> Vectors:
        return Vectors(self.dimension) if self._vectors is None else self._vectors

    def is_second(self, row: int) -> bool:
        """Whether a row's vectors are those of the second model."""
        return bool(self._has_second.values[row])

    def widened(self, vector: Floats, *, of_second: bool) -> Floats:
        """A vector of one model as a query that only its rows are compared with."""
        if self.second is None:
            return vector
        wide = np.zeros(self.dimension + self.second.dimension, dtype=np.float32)
        if of_second:
            wide[self.dimension :] = vector
        else:
            wide[: self.dimension] = vector
        return wide

    def _split(self, query: Floats) -> tuple[Floats, Floats | None]:
        """The parts of a query for each model; the second is None where nothing is to be compared with it."""
        if self._second_vectors is None or len(query) == self.dimension:
            return query[: self.dimension], None
        rest = query[self.dimension :]
        return query[: self.dimension], rest if rest.any() else None

    def cosines(self, query: Floats) -> Cosines:
        """Compare queries with every vector; shape (d,) or (d, m), unit length. Those of a second model stand after
        those of the first; see `Second`.
        """
        first, second = self._split(query)
        if self._second_vectors is None or (second is None and not self._moved):
            return self._first.cosines(first)
        return self._both(first, second, lambda vectors, part: vectors.cosines(part), self._has_second.values)

    def cosines_of(self, query: Floats, wanted: Any) -> Cosines:
        """The same for some rows alone: which, shape (rows,), bool."""
        first, second = self._split(query)
        if self._second_vectors is None:
            return self._first.cosines_of(first, wanted)
        wanted_first = wanted & ~self._has_second.values
        return self._both(
            first,
            second,
            lambda vectors, part: vectors.cosines_of(
                part, wanted if vectors is self._second_vectors else wanted_first
            ),
            None,
        )

    def _both(
        self,
        first: Floats,
        second: Floats | None,
        compare: Callable[[Vectors, Floats], Cosines],
        moved: Any,
    ) -> Cosines:
        """What both models find, on the scale of the first; without the rows that moved to the second, if given."""
        found = []
        if first.any() or second is None:
            one = compare(self._first, first)
            found.append(self._first.without(one, moved) if moved is not None and self._moved else one)
        if second is not None and self._second_vectors is not None:
            other = compare(self._second_vectors, second)
            scale = None if self.second is None else self.second.scale
            if scale is not None:
                other = other._replace(best=scale(other.best), every=scale(other.every))
            found.append(other)
        if len(found) == 1:
            return found[0]
        return Cosines(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def cue_cosines(self, vectors: Matrix) -> Floats | None:
        """The best cosine of any of the vectors, shape (q, d), and any cue of each row: shape (rows,), 0 where a row
        has no cue. None if no row has one.
        """
        if self._cues is None or not self.cues_embedded_count:
            return None
        query = np.ascontiguousarray(vectors.T)
        best = np.zeros(len(self), dtype=np.float32)
        found = self._cues.cosines(query[: self.dimension])
        best[found.rows] = found.best.max(axis=1)
        if self._second_cues is not None and self.second is not None and len(query) > self.dimension:
            # Cues have vectors of both models. Those of the second count for rows in other languages, and for a
            # question that the first doesn't read.
            found = self._second_cues.cosines(query[self.dimension :])
            values = found.best if self.second.scale is None else self.second.scale(found.best)
            by_second = np.zeros(len(self), dtype=np.float32)
            by_second[found.rows] = values.max(axis=1)
            reads = query[: self.dimension].any()
            best = np.where(self._has_second.values, by_second, best) if reads else by_second
        if self.dead_count:
            best[~self.alive] = 0
        return best

    def best_passages(self, rows: Ints, query: Floats) -> BestPassages:
        """The passages of some rows that are nearest to a query; shape (d,), unit length. With two models, the vectors
        are as wide as those of both, so that rows of different models are not alike.
        """
        if self.second is None:
            return self._first.best_passages(rows, query)
        first, second = query[: self.dimension], query[self.dimension :]
        if not len(second):
            second = np.zeros(self.second.dimension, dtype=np.float32)
        found = self._first.best_passages(rows, first)
        vectors = np.zeros((len(rows), self.dimension + self.second.dimension), dtype=np.float32)
        vectors[:, : self.dimension] = found.vectors
        numbers = found.numbers.copy()
        if self._second_vectors is not None:
            of_second = np.flatnonzero(self._has_second.values[rows])
            other = self._second_vectors.best_passages(rows[of_second], second)
            vectors[of_second] = 0
            vectors[of_second, self.dimension :] = other.vectors
            numbers[of_second] = other.numbers
        return BestPassages(vectors, numbers)

    # Tokens: read from the database when a search compares them, and kept as long as there is room.

    def bags(self, rows: Ints) -> tuple[dict[int, Bag], list[int]]:
        """The tokens that are known of some rows, by row, and the rids of those whose tokens have to be read. Rows
        without a vector have none.
        """
        known: dict[int, Bag] = {}
        lacking = []
        embedded = rows[self._has_vector.values[rows] & ~self._has_second.values[rows]]
        for row, rid in zip(embedded.tolist(), self.rids[embedded].tolist(), strict=True):
            bag = self._bags.get(row)
            if bag is None:
                lacking.append(rid)
            else:
                known[row] = bag
        return known, lacking

    def take_tokens(self, found: Mapping[int, bytes]) -> dict[int, Bag]:
        """Keep what was read for these rids; gives it by row. Where there is too much, what was kept first goes."""
        taken: dict[int, Bag] = {}
        kept = self._bags
        for row, packed in zip(self.rows.of(found).tolist(), found.values(), strict=True):
            if row >= 0 and row not in kept:
                taken[row] = kept[row] = unpack(packed)
                self._bag_bytes += len(packed)
            elif row >= 0:  # Another search was first.
                taken[row] = kept[row]
        if self._bag_bytes > _MAX_BAG_BYTES:
            # Many at once: finding the first one passes over all that were taken out before it.
            for row in list(islice(kept, len(kept) // 4 + 1)):
                self._drop_bag(row)
        return taken

    def _drop_bag(self, row: int) -> None:
        bag = self._bags.pop(row, None)
        if bag is not None:
            self._bag_bytes -= _size(bag)


def _size(bag: Bag) -> int:
    """Of what `unpack` was given."""
    return 2 + 2 * len(bag.counts) + len(bag.asks) + len(bag.vectors)


@lru_cache(maxsize=4096)
def number_of(name: str) -> int:
    """The number that stands for a name, the same in every process: 63 bits of a hash, so that no two share one."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _read(found: Sequence[Any], first: int) -> tuple[Mapping[str, Any], EntryArrays]:
    """The columns and the entries of rows as `repository.load_changes` gives them.

    Args:
        found: The rows.
        first: The number of the first one.
    """
    voices = [_voice_of(row) for row in found]
    # 4 bytes of stem and 2 of count for each entry.
    sizes = np.array([len(row.stems) // 6 for row in found], dtype=np.int64)
    stems = b"".join(row.stems[: size * 4] for row, size in zip(found, sizes.tolist(), strict=True))
    counts = np.frombuffer(
        b"".join(row.stems[size * 4 :] for row, size in zip(found, sizes.tolist(), strict=True)), "<u2"
    )
    owners = np.repeat(np.arange(len(found), dtype=np.int32), sizes)
    values = {
        "rid": np.array([row.rid for row in found], dtype=np.int64),
        "alive": np.ones(len(found), dtype=np.bool_),
        "stream": [_stream_of(row, voice) for row, voice in zip(found, voices, strict=True)],
        "voice": voices,
        "minute": [row.said_at // _MINUTE_MICROS for row in found],
        "turn": [(row.source_session is not None and row.source_turn) or 0 for row in found],
        "position": [row.source_position or 0 for row in found],
        # The day on the calendar of the place where it was said.
        "day": [(row.said_at + row.said_offset_min * _MINUTE_MICROS) // _DAY_MICROS for row in found],
        "speaker": [number_of(row.speaker) if row.speaker else -1 for row in found],
        "words": [row.words for row in found],
        "stem_count": np.bincount(owners, weights=counts & (ASKED - 1), minlength=len(found)),
        "features": [
            (row.features & _SENTENCE_FEATURES)
            | (BY_ASSISTANT if _is_by_assistant(row) else 0)
            | (HAS_CUES if row.cued else 0)
            for row in found
        ],
    }
    return values, EntryArrays(np.frombuffer(stems, "<u4"), owners + np.int32(first), counts)


def _voice_of(row: Any) -> int:
    """Who speaks in what is no episode, as a number of 32 bits; -1 where nobody does. What was drawn from a
    conversation, with the words that it rests on, was not said in it.
    """
    if row.kind == "episode" or row.source_quote is not None:
        return -1
    name = row.speaker or label_of(row.opening)
    return zlib.crc32(name.casefold().encode("utf-8", "surrogatepass")) if name else -1


def _is_by_assistant(row: Any) -> bool:
    """Whether an assistant said a row, by its trust or by the name of its speaker, whatever name is displayed."""
    return (row.kind == "episode" and row.trust != "user") or row.speaker.casefold() in _ASSISTANTS


def _stream_of(row: Any, voice: int) -> int:
    """The conversation that a row may be part of; -1 for none. Plain memories are never between the episodes of
    their session, and those without one are taken as they were stored.
    """
    if row.kind == "episode":
        return -1 if row.source_session is None else number_of(f"episode {row.source_session}")
    return -1 if voice < 0 else number_of(f"plain {row.source_session}")
