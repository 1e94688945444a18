"""Reads the records of a turn for clients without sessions: the growing text, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from satchel import errors
from satchel.errors import SatchelError
from satchel.events import (
    Assistant,
    Failure,
    MemorySurfaced,
    Observation,
    Record,
    SurfacedMemory,
    TextDelta,
    TurnEnd,
    TurnResumed,
    TurnStart,
    TurnStatus,
)
from satchel.events import (
    Final as FinalEvent,
)
from satchel.messages import ToolUseBlock, Usage, text_of
from satchel.server.problems import status_of_class

__all__ = ["AnswerReader", "memories_to_json"]

_BETWEEN = "\n\n"
"""Separates the model's text before its own calls from the text after them."""


@dataclass(slots=True)
class AnswerReader:
    """Reads the records of one turn in order.

    Attributes:
        turn: Its number; 0 before its first record.
        said: All that `feed` returned, joined.
        text: The answer alone, without what was said before the model's own calls.
        status: How the turn ended; None before.
        calls: The calls that the client is to run, once the turn has ended.
        failed: The class of the error that ended the turn, and the status of an answer that tells of it.
    """

    turn: int = 0
    said: str = ""
    text: str = ""
    status: TurnStatus | None = None
    usage: Usage = field(default_factory=Usage)
    calls: tuple[ToolUseBlock, ...] = ()
    memories: list[SurfacedMemory] = field(default_factory=list)
    failed: tuple[str, int] = ("SatchelError", 500)
    _round: str = ""
    _open: dict[str, ToolUseBlock] = field(default_factory=dict)

    def feed(self, record: Record) -> str:
        """Take the next record. Returns what it adds to the text."""
        event = record.event
        match event:
            case TurnStart():
                self.turn = event.turn
            case TurnResumed():
                self._round = ""
            case MemorySurfaced(standing=""):
                self.memories += event.memories
            case TextDelta():
                return self._more(event.text)
            case Assistant():
                rest = text_of(event.blocks)[len(self._round) :]
                added = self._more(rest)
                self._open = {block.id: block for block in event.blocks if isinstance(block, ToolUseBlock)}
                self.text, self._round = self._round, ""
                return added
            case Observation():
                self._open.pop(event.call_id, None)
            case Failure(part="model"):
                self.failed = event.error, status_of_class(_class_of(event.error))
            case FinalEvent():
                return self._end(event.text)
            case TurnEnd():
                self.status, self.usage = event.status, event.usage
                self.calls = tuple(self._open.values()) if event.status == "calling" else ()
            case _:
                pass
        return ""

    def _end(self, final: str) -> str:
        """The final text for the user, whose beginning the model may already have written."""
        before, self.text, self._round = self.text, final, ""
        if self.said.endswith(final):
            return ""
        if before and final.startswith(before):
            rest = final[len(before) :]
            self.said += rest
            return rest
        return self._more(final)

    def _more(self, text: str) -> str:
        gap = _BETWEEN if text and self.said and not self._round else ""
        self._round += text
        self.said += gap + text
        return gap + text


def _class_of(name: str) -> type[SatchelError]:
    found: type[SatchelError] = getattr(errors, name) if name in errors.__all__ else SatchelError
    return found


def memories_to_json(memories: list[SurfacedMemory]) -> list[Mapping[str, Any]]:
    """As `satchel ask --json` writes them."""
    return [
        {
            "id": memory.id,
            "content": memory.content,
            "score": memory.score,
            "source": {"session": memory.session, "turn": memory.source_turn},
        }
        for memory in memories
    ]
