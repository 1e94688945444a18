"""What a turn came to, read from its events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.events import (
    AskUser,
    Assistant,
    Event,
    Final,
    MemorySurfaced,
    Notice,
    Observation,
    Permission,
    SurfacedMemory,
    TurnEnd,
)
from satchel.messages import ToolUseBlock
from satchel.runtime.turns import Step, TurnResult

__all__ = ["TurnReader"]


class TurnReader:
    """Follows the events of one turn, from its first one.

    Attributes:
        result: None until the turn has ended.
    """

    def __init__(self, session_id: str) -> None:
        """Nothing was read yet."""
        self.result: TurnResult | None = None
        self._session_id = session_id
        self._inputs: dict[str, Mapping[str, Any]] = {}
        self._refused: set[str] = set()
        self._steps: list[Step] = []
        self._memory: tuple[SurfacedMemory, ...] = ()
        self._notices: list[str] = []
        self._text = ""
        self._question: str | None = None

    def take(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case Assistant(blocks=blocks):
                uses = [block for block in blocks if isinstance(block, ToolUseBlock)]
                self._inputs |= {use.id: use.input or {} for use in uses}
            case Permission(decision="deny", by="nobody" | "rule", call_id=call_id):
                self._refused.add(call_id)
            case Observation():
                self._observed(event)
            case MemorySurfaced(standing="", memories=memories):
                self._memory = (*memories, *self._memory)
            case Notice(text=text):
                self._notices.append(text)
            case AskUser(question=question):
                self._question = question
            case Final(text=text):
                self._text = text
            case TurnEnd():
                self._ended(event)
            case _:
                pass

    def _observed(self, event: Observation) -> None:
        self._steps.append(
            Step(
                tool=event.tool,
                input=self._inputs.get(event.call_id, {}),
                result=event.text,
                is_error=event.is_error,
                was_refused=event.call_id in self._refused,
                duration_ms=event.duration_ms,
                data=event.data,
            )
        )

    def _ended(self, event: TurnEnd) -> None:
        built = (step.data.get("build_id") for step in self._steps if isinstance(step.data, Mapping))
        self.result = TurnResult(
            session_id=self._session_id,
            turn=event.turn,
            status=event.status,
            text=self._text,
            steps=tuple(self._steps),
            usage=event.usage,
            memory=self._memory,
            pending_question=self._question if event.status == "asking" else None,
            build_id=next((id for id in reversed([*built]) if isinstance(id, str) and id), None),
            notices=tuple(self._notices),
        )
