"""A session as its user sees it: the one reducer of its events. Faces, exports and recaps render what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, TypeVar, assert_never

from satchel.events import (
    Action,
    AskUser,
    Assistant,
    BuildPosted,
    Compaction,
    ContextAdded,
    Event,
    Failure,
    Final,
    MemoryCaptured,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    ModelCalled,
    Notice,
    Observation,
    Permission,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    RoundObserved,
    SessionBranched,
    SessionEnd,
    SessionFiled,
    SessionStart,
    SessionTitled,
    SubAgentEvent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolProgress,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from satchel.messages import ToolUseBlock, text_of

_P = TypeVar("_P", bound="Part")
_UNKNOWN = datetime.min.replace(tzinfo=UTC)
_ENDS_TURN = ("model", "turn")
"""Failures of these parts end the turn: its closing words say them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the model says.

    Attributes:
        added: The piece that came now; at the end, what was not streamed before.
        text: The whole text at its end.
        answer: The model's answer, at its end; None while it is written.
    """

    added: str
    text: str = ""
    answer: Assistant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call.

    Attributes:
        input: What it was called with; {} if that is not known.
        asked: The call as the model asked for it; None if the user runs it by hand.
        is_begun: It started.
        progress: What it reported last.
        refusal: Why it may not run.
        result: None while it runs.
        beneath: The calls of the sub-agent that works on it.
    """

    id: str
    tool: str
    input: Mapping[str, Any] = field(default_factory=dict)
    asked: ToolUseBlock | None = None
    is_begun: bool = False
    progress: Mapping[str, Any] | None = None
    refusal: Permission | None = None
    result: Observation | None = None
    beneath: tuple[ToolCall, ...] = ()

    @property
    def state(self) -> Literal["asked", "running", "refused", "done", "failed"]:
        """How it stands."""
        if self.refusal is not None:
            return "refused"
        if self.result is not None:
            return "failed" if self.result.is_error else "done"
        return "running" if self.is_begun else "asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """The last words of a turn.

    Attributes:
        rest: What the model has not said of them: Satchel's own words, such as why the turn ended early.
        question: The question that ends the turn.
        failure: What ended the turn with an error.
        provider: Whose model answered.
    """

    final: Final
    at: datetime
    rest: str
    question: AskUser | None
    failure: Failure | None
    provider: str


Part: TypeAlias = (
    TurnStart
    | TurnResumed
    | MemorySurfaced
    | ThinkingDelta
    | Said
    | ToolCall
    | QuestionAsked
    | QuestionAnswered
    | AskUser
    | BuildPosted
    | MessageWaiting
    | MessageTakenBack
    | Posted
    | Compaction
    | Notice
    | Failure
    | LastWords
    | TurnEnd
)
"""What users are shown. What is shown as it happened is an event; the others are made of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTurn:
    """A turn, and what followed it until the next one.

    Attributes:
        number: 0 for what came before the first turn.
        at: When the user said something.
        parts: What it shows, in order, each as it stands now.
        captured: The episodes that it was stored as; () if it is not to be stored.
        private: Nothing said in it becomes memory.
    """

    number: int = 0
    at: datetime = _UNKNOWN
    start: TurnStart | None = None
    parts: tuple[Part, ...] = ()
    captured: tuple[str, ...] | None = None
    private: bool = False

    @property
    def said(self) -> str:
        """The user's words."""
        return self.start.message.text if self.start is not None else ""

    @property
    def closing(self) -> LastWords | None:
        """Its last words; None where it did not come to them."""
        return next((part for part in reversed(self.parts) if isinstance(part, LastWords)), None)

    @property
    def end(self) -> TurnEnd | None:
        """Its end; None where it did not come to it."""
        return next(self.of(TurnEnd), None)

    @property
    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """The model's calls that have no result."""
        return tuple(
            call.asked for call in self.of(ToolCall) if call.asked is not None and call.result is None
        )

    @property
    def build_id(self) -> str | None:
        """The build that the last call to ask for one opened, or None."""
        came = [call.result.data for call in self.of(ToolCall) if call.result is not None]
        found = [data.get("build_id") for data in came if isinstance(data, Mapping)]
        return next((id for id in reversed(found) if isinstance(id, str) and id), None)

    def of(self, kind: type[_P]) -> Iterator[_P]:
        """The parts of one kind."""
        return (part for part in self.parts if isinstance(part, kind))


class SessionView:
    """Takes the events of a session in order, logged ones and streamed ones, from any place on.

    Attributes:
        title: The newest title that was given, or "".
    """

    def __init__(
        self, passed: Callable[[SessionTurn], object] = lambda _: None, *, provider: str = ""
    ) -> None:
        """Nothing was taken yet.

        Args:
            passed: Gets each turn when the next one begins; `turn` is the newest one. So a large log is never in memory
                as a whole.
            provider: Of the model, where the events don't begin with the session's start.
        """
        self.title = ""
        self._passed = passed
        self._provider = provider
        self._private = False
        self._at = _UNKNOWN
        self._turn = SessionTurn()
        self._parts: dict[str | int, Part] = {}
        self._said: list[str] = []
        self._streamed_chars = 0
        self._failure: Failure | None = None
        self._sub_agents: dict[str, SessionView] = {}

    @property
    def turn(self) -> SessionTurn:
        """The newest turn."""
        return replace(self._turn, parts=tuple(self._parts.values()))

    def __call__(self, record: Record) -> Part | None:
        """Take the next record; see `take`."""
        self._at = record.at
        return self.take(record.event)

    def take(self, event: Event) -> Part | None:
        """Take the next event. Returns the part that it makes or changes, as it stands now, or None."""
        number = getattr(event, "turn", 0)
        if number > self._turn.number and not isinstance(event, TurnStart):
            # Its start can't be read any more, or these events begin in its middle.
            if self._turn.number:
                self._next(SessionTurn(number=number, at=self._at))
            self._turn = replace(self._turn, number=number)
        match event:
            case TurnStart():
                self._next(SessionTurn(number=event.turn, at=self._at, start=event, private=self._private))
                return event
            case TurnResumed():
                self._streamed_chars = 0
                return self._keep(event)
            case TextDelta():
                self._streamed_chars += len(event.text)
                return Said(added=event.text)
            case Assistant():
                return self._answered(event)
            case Action():
                return self._call(event, input=event.input, is_begun=True)
            case ToolProgress():
                return self._call(event, progress=event.data)
            case Permission(decision="deny"):
                return self._call(event, refusal=event)
            case Observation():
                return self._call(event)
            case SubAgentEvent(event=TurnStart()):
                return None  # the task is the call's input
            case SubAgentEvent(call_id=call_id):
                view = self._sub_agents.setdefault(call_id, SessionView())
                view.take(event.event)
                call = self._parts.get(call_id)
                if isinstance(call, ToolCall):
                    # Shown with what the call reports next.
                    self._parts[call_id] = replace(call, beneath=tuple(view.turn.of(ToolCall)))
                return None
            case Failure(part=part) if part in _ENDS_TURN:
                self._failure = event
                return None
            case Final():
                return self._closed(event)
            case Posted(id=id) if id.startswith("build-"):
                return None  # the build's own message says it
            case (
                MemorySurfaced()
                | QuestionAsked()
                | QuestionAnswered()
                | AskUser()
                | BuildPosted()
                | MessageWaiting()
                | MessageTakenBack()
                | Posted()
                | Compaction()
                | Notice()
                | Failure()
                | TurnEnd()
            ):
                return self._keep(event)
            case ThinkingDelta():
                return event
            case MemoryCaptured():
                if event.turn == self._turn.number:  # a slow one may come in the next turn
                    self._turn = replace(self._turn, captured=event.ids)
                return None
            case SessionStart():
                self._provider, self._private = event.provider, event.private
                return None
            case SessionTitled(title=title):
                self.title = title
                return None
            case (
                ToolInputDelta()
                | Permission()
                | ContextAdded()
                | RoundObserved()
                | ModelCalled()
                | SessionFiled()
                | SessionBranched()
                | SessionEnd()
            ):
                return None
            case _:
                assert_never(event)

    def _next(self, turn: SessionTurn) -> None:
        if self._turn.number or self._parts:
            self._passed(self.turn)
        self._turn = turn
        self._parts, self._said, self._streamed_chars, self._failure = {}, [], 0, None
        self._sub_agents = {}

    def _keep(self, part: _P, key: str | None = None) -> _P:
        self._parts[key or len(self._parts)] = part
        return part

    def _answered(self, event: Assistant) -> Said:
        text = text_of(event.blocks)
        said = Said(added=text[self._streamed_chars :], text=text, answer=event)
        self._streamed_chars = 0
        if text:
            self._said.append(text.strip())
            self._keep(said)
        for block in event.blocks:
            if isinstance(block, ToolUseBlock):
                self._keep(
                    ToolCall(id=block.id, tool=block.name, input=block.input or {}, asked=block), block.id
                )
        return said

    def _call(self, event: Action | ToolProgress | Permission | Observation, **changes: Any) -> Part:
        call = self._parts.get(event.call_id)
        if not isinstance(call, ToolCall):
            call = ToolCall(id=event.call_id, tool=event.tool)
        # A call keeps the name under which it started, also if it stands for another tool's.
        tool = call.tool if call.is_begun else event.tool
        if isinstance(event, Observation):
            changes["result"] = replace(event, tool=tool)
        return self._keep(replace(call, tool=tool, **changes), event.call_id)

    def _closed(self, event: Final) -> LastWords:
        last = self._said[-1] if self._said else ""
        rest = "" if event.text.strip() in self._said else event.text.removeprefix(last)
        return self._keep(
            LastWords(
                final=event,
                at=self._at,
                rest=rest.strip(),
                question=next(self.turn.of(AskUser), None),
                failure=self._failure,
                provider=self._provider,
            )
        )


def turns_in(records: Iterable[Record], *, provider: str = "") -> Iterator[SessionTurn]:
    """The turns in records, each as it stands at its end; `provider` as in `SessionView`."""
    turns: list[SessionTurn] = []
    view = SessionView(turns.append, provider=provider)
    for record in records:
        view(record)
        yield from turns
        turns.clear()
    yield view.turn
