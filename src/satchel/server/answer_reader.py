"""Reads the records of a turn for clients without sessions: the growing text, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from satchel import errors
from satchel.errors import SatchelError
from satchel.events import (
    MemorySurfaced,
    Record,
    SurfacedMemory,
    TurnEnd,
    TurnResumed,
    TurnStart,
    TurnStatus,
)
from satchel.messages import ToolUseBlock, Usage
from satchel.server.problems import status_of_class
from satchel.sessions.view import Closing, Said, SessionView

__all__ = ["AnswerReader"]

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
    _goes_on: bool = False
    _view: SessionView = field(default_factory=SessionView)

    def feed(self, record: Record) -> str:
        """Take the next record. Returns what it adds to the text."""
        part = self._view(record)
        match part:
            case TurnStart():
                self.turn = part.turn
            case TurnResumed():
                self._goes_on = False
            case MemorySurfaced(standing=""):
                self.memories += part.memories
            case Said(added=text, answer=answer):
                added = self._more(text)
                if answer is not None:
                    self.text, self._goes_on = part.text, False
                return added
            case Closing(rest=rest, final=final, failure=failure):
                self.text = final.text
                if failure is not None:
                    self.failed = failure.error, status_of_class(_class_of(failure.error))
                return self._more(rest)
            case TurnEnd():
                self.status, self.usage = part.status, part.usage
                self.calls = self._view.turn.open_calls if part.status == "calling" else ()
            case _:
                pass
        return ""

    def _more(self, text: str) -> str:
        """More of the text; what the model says after its calls stands apart."""
        gap = _BETWEEN if text and self.said and not self._goes_on else ""
        self._goes_on = self._goes_on or bool(text)
        self.said += gap + text
        return gap + text


def _class_of(name: str) -> type[SatchelError]:
    found: type[SatchelError] = getattr(errors, name) if name in errors.__all__ else SatchelError
    return found
