"""What memory searches with: an engine that finds candidates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.candidates.arrays import Floats
    from satchel.memory.candidates.evidence import ComparedMessage, Evidence
    from satchel.memory.candidates.ranking import FoundRows
    from satchel.memory.candidates.vectors import Second
    from satchel.memory.filters import Visible
    from satchel.memory.question import AskedWith, ParsedQuestion
    from satchel.memory.records import Mode

__all__ = ["Candidates", "Contents", "FactorsOf", "VisibleOf"]

T = TypeVar("T")

FactorsOf = Callable[["Connection", Sequence[int]], Mapping[int, float]]
"""Given rids, what each one's score is multiplied by; rids that are not in the result keep their scores."""


VisibleOf = Callable[["Connection"], "Visible"]
"""Reads which memories may be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What `Candidates` holds.

    Attributes:
        changed: The change up to which it is complete.
        count: The number of memories; `embedded` is how many of them have a vector of a model in use.
        cues_waiting: The number of memories with cues that have no vectors yet.
        model: The id of the embedding model whose vectors it compares, or None.
        speakers: The speakers of the space and their numbers.
    """

    changed: int = 0
    count: int = 0
    embedded: int = 0
    cues_waiting: int = 0
    model: int | None = None
    speakers: Mapping[str, int] = field(default_factory=dict)


class Candidates(Protocol):
    """The searchable side of one space: which memories may answer a question, and how well each fits.

    What it holds is derived from the tables and refreshed from the count of changes (`memory_spaces.changed`). A rid is
    the number of a memory in the database.
    """

    @property
    def contents(self) -> Contents:
        """What it holds, as of the last `refresh`."""
        ...

    async def refresh(
        self, *, model: int | None = None, dimension: int = 0, second: Second | None = None
    ) -> None:
        """Take in what this and other processes have changed since the last time.

        Args:
            model: The embedding model to compare vectors of; None keeps the one in use.
            dimension: The length of its vectors.
            second: The model for other languages, where there is one.
        """
        ...

    async def find(
        self,
        question: ParsedQuestion,
        asked: AskedWith | None,
        *,
        mode: Mode,
        limit: int,
        then: Callable[[Connection, FoundRows], T],
        visible: VisibleOf | None = None,
        factors: FactorsOf | None = None,
        for_showing: bool = False,
    ) -> T:
        """Find the memories that fit a question, best first.

        Both arms give candidates, lexical and dense, and so do the neighbours of the best; what `visible` hides is
        never one of them.

        Args:
            question: What is asked.
            asked: Its vectors; None where no embedder serves.
            mode: "lexical" ignores vectors, "dense" everything else, "hybrid" compares both.
            limit: The most that are found.
            then: Reads what is wanted of what was found; `find` returns its result.
            visible: Reads which memories may be found; None for all.
            factors: Reads what scores are multiplied by before the order is final.
            for_showing: Leave out what only asks the question itself, and ask `factors` of every candidate.
        """
        ...

    async def evidence(
        self,
        asked: ComparedMessage,
        *,
        each: int,
        then: Callable[[Connection, Evidence | None], T],
        visible: VisibleOf | None = None,
    ) -> T:
        """Measure what speaks for showing memories before a message.

        Args:
            asked: The message.
            each: How many each way of finding them names: words, meaning, cues, associations.
            then: Reads what it takes of what was measured, which is None where there are no memories, in the same
                visit to the store.
            visible: Reads which memories may be shown; None for all.
        """
        ...

    async def cosines(self, vector: Floats, *, visible: Visible) -> Mapping[int, float]:
        """The cosine of a vector, shape (d,), and each visible memory's best passage, by rid; only those above 0."""
        ...

    async def count_having(self, stems: Collection[int]) -> Mapping[int, int]:
        """How many memories have each of these stems."""
        ...

    async def having(self, stems: Sequence[int]) -> frozenset[int]:
        """The rids of the memories that have every one of these stems."""
        ...
