"""What was measured of the memories that may be worth showing before a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from satchel.memory.graph import Successor
from satchel.memory.records import Hit, MemoryRecord

if TYPE_CHECKING:
    from satchel.memory.question import ParsedQuestion

__all__ = ["Weighed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """The memories that may be worth showing.

    Attributes:
        text: The message, cut to its ends if it is long; `need` is `choosing.need_of` it.
        question: The message as it was read.
        records: The memories that say something new, n of them.
        features: Of each, arrays of shape (n,) by name, see `choosing.LINE_FEATURES`.
        alike: Shape (n, n): the cosines between them.
        passages: Shape (n,): which passage of each fits best; -1 where that isn't known.
        later: Of each, what was said later and takes its place, or may, and can be shown: the certain first.
        outdated: Of each, whether something took its place for certain, be that shown or not.
        told: Of each, whether facts were drawn from its session. Then they say what holds, and which ended.
        kinds: By the place of the newest statement of an attribute with one value at a time: the places of the older.
        vectors: The message's, shape (q, d); None where no embedder serves. A cosine from `likely` on says something.
        left_out: Hits that say nothing new, with the reason.
    """

    text: str
    need: float
    question: ParsedQuestion
    records: Sequence[MemoryRecord]
    features: Mapping[str, Any]
    alike: Any
    passages: Any
    later: Sequence[tuple[Successor, ...]]
    outdated: Sequence[bool]
    told: Sequence[bool]
    kinds: Mapping[int, tuple[int, ...]]
    vectors: Any = None
    likely: float | None = None
    left_out: tuple[tuple[Hit, str], ...] = ()
