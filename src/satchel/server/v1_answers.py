"""What the answers to a chat completion and to a response have in common: words, calls and the end of a turn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from satchel import errors
from satchel import events as kinds
from satchel.errors import SatchelError
from satchel.events import Record, TurnStatus
from satchel.messages import ToolUseBlock, Usage
from satchel.runtime.turns import TurnResult, memories_to_json, result_of
from satchel.server.client_turns import ClientCall, ClientRequest, StartedTurn, keep_answer
from satchel.server.problems import status_of_class
from satchel.server.service import Service
from satchel.server.v1_errors import V1Failure
from satchel.sessions.view import LastWords, Said, SessionView, ToolCall


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an answer; `about` is what Satchel adds to it."""

    text: str
    calls: Sequence[ClientCall]
    status: TurnStatus
    usage: Usage
    about: Mapping[str, Any]


def client_calls(calls: Sequence[ToolUseBlock]) -> tuple[ClientCall, ...]:
    """Calls of the client's tools as it gets them."""
    return tuple(
        ClientCall(
            id=call.id,
            name=call.name,
            arguments=json.dumps(call.input, ensure_ascii=False) if call.input is not None else call.unparsed,
        )
        for call in calls
    )


@dataclass(slots=True)
class Answering:
    """One answer while it is made.

    Attributes:
        model: The model as the request names it.
        created: Unix time in seconds.
        said: The text so far.
    """

    service: Service
    asked: ClientRequest
    begun: StartedTurn
    model: str
    created: int = 0
    said: str = ""
    goes_on: bool = False
    view: SessionView = field(default_factory=SessionView)

    def __post_init__(self) -> None:
        """Note the time."""
        self.created = int(self.service.satchel.clock.now().timestamp())

    @property
    def is_held(self) -> bool:
        """Whether the text is shown only at its end: what the model says before its own calls is in no format."""
        return self.asked.sampling is not None and self.asked.sampling.response_schema is not None

    def feed(self, record: Record) -> str:
        """Take the next record of the turn. Returns what it adds to the text."""
        match self.view(record):
            case Said(added=text, answer=answer):
                return self._more(text, is_end=answer is not None)
            case LastWords(rest=text):
                return self._more(text, is_end=True)
            case (
                None | kinds.TurnStart() | kinds.TurnResumed() | kinds.MemorySurfaced() | kinds.ThinkingDelta()
                | ToolCall() | kinds.QuestionAsked() | kinds.QuestionAnswered() | kinds.AskUser()
                | kinds.BuildPosted() | kinds.MessageWaiting() | kinds.MessageTakenBack() | kinds.Posted()
                | kinds.Compaction() | kinds.Notice() | kinds.Failure() | kinds.TurnEnd()
            ):  # fmt: skip
                return ""

    def _more(self, text: str, *, is_end: bool) -> str:
        # The model's text before its own calls stands apart from the text after them.
        added = f"\n\n{text}" if text and self.said and not self.goes_on else text
        self.goes_on = not is_end and (self.goes_on or bool(text))
        self.said += added
        return "" if self.is_held else added

    async def ended(self, *, in_full: bool, response_id: str = "") -> Ended:
        """Keep the answer: all that was said, or the last words alone.

        Args:
            in_full: The client was sent all that was said.
            response_id: The name by which the client may continue the conversation; see `ClientRequest.after`.

        Raises:
            V1Failure: The turn ended without an answer.
        """
        turn = self.view.turn
        result = result_of(self.begun.session_id, turn)
        if turn.end is None or result.status == "cancelled":
            raise V1Failure(503, "The turn was interrupted.", code="interrupted")
        if result.status == "failed":
            name = turn.closing.failure.error if turn.closing and turn.closing.failure else "SatchelError"
            raise self._failure(name, result)
        calls = client_calls(result.calls)
        in_full = in_full and not self.is_held
        text = self.said if in_full else result.text
        await keep_answer(
            self.service,
            self.asked,
            self.begun.session_id,
            result.turn,
            text=text,
            calls=calls,
            response_id=response_id,
            stored={
                "model": self.model,
                "created": self.created,
                "after": self.asked.after,
                "in_full": in_full,
            },
        )
        about = {
            "session_id": self.begun.session_id,
            **({"instead_of": self.begun.instead_of} if self.begun.instead_of else {}),
            "turn": result.turn,
            "memories": memories_to_json(result.memory),
        }
        return Ended(text, calls, result.status, result.usage, about)

    def _failure(self, name: str, result: TurnResult) -> V1Failure:
        """The failure of a turn. An endpoint that refuses a parameter of the client's names it in its refusal."""
        text = result.text or "The turn failed."
        cls = getattr(errors, name) if name in errors.__all__ else SatchelError
        options = self.asked.sampling.options if self.asked.sampling is not None else {}
        param = next((option for option in options if option in text), None)
        if param is not None and issubclass(cls, errors.ModelRejected):
            return V1Failure(400, text, param=param, code="unsupported_value")
        return V1Failure(status_of_class(cls), text, code=name)
