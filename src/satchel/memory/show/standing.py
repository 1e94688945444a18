"""What stands before a model in a whole session: the lines of the profile and of the agenda."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from satchel.memory.records import MemoryRecord
from satchel.plain import as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingLine:
    """One line: what of its memory is shown, and the line as the model sees it, without its end."""

    memory: MemoryRecord
    words: str
    text: str
    tokens: int

    @property
    def id(self) -> str:
        """The memory's id; the line has its beginning."""
        return self.memory.id

    @property
    def whole_ids(self) -> frozenset[str]:
        """The ids of those that it says whole, so that they need not be shown again."""
        return frozenset([self.memory.id] if self.words == self.memory.content else [])

    @property
    def sources(self) -> tuple[MemoryRecord, ...]:
        """All that it comes from."""
        return (self.memory,)

    def to_json(self) -> dict[str, Any]:
        """The line as plain JSON data."""
        return {"id": self.id, **as_json(self)}


LineT = TypeVar("LineT", bound=StandingLine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing(Generic[LineT]):
    """Lines in a marked block, and what came near, each with the reason why it is not in it."""

    text: str = ""
    memories: tuple[LineT, ...] = ()
    tokens: int = 0
    left_out: tuple[tuple[LineT, str], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is something to show."""
        return bool(self.memories)

    @property
    def whole_ids(self) -> frozenset[str]:
        """The ids of those that its lines say whole."""
        return frozenset(id for line in self.memories for id in line.whole_ids)

    def own_json(self) -> dict[str, Any]:
        """What only a block of this kind has, as plain JSON data."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """The block as plain JSON data."""
        return {
            **self.own_json(),
            "text": self.text,
            "tokens": self.tokens,
            "lines": [line.to_json() for line in self.memories],
            "left_out": [{**line.to_json(), "reason": why} for line, why in self.left_out],
        }
