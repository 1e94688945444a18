"""What happens: one closed union of frozen dataclasses, read by the session log, the faces and the hooks.

An event says what happened; `Record` adds when and where. Deltas are shown while they stream and are not
logged: the `Assistant` event that follows carries the same words whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from satchel.messages import (
    Block,
    Message,
    StopReason,
    Usage,
    block_from_json,
    block_to_json,
    message_from_json,
    message_to_json,
    usage_from_json,
    usage_to_json,
)

__all__ = [
    "Action",
    "AskUser",
    "Assistant",
    "Compaction",
    "Event",
    "Failure",
    "Final",
    "MemoryCaptured",
    "MemorySurfaced",
    "Notice",
    "Observation",
    "Permission",
    "Record",
    "RoundObserved",
    "SessionEnd",
    "SessionStart",
    "SurfacedMemory",
    "TextDelta",
    "ThinkingDelta",
    "ToolInputDelta",
    "ToolProgress",
    "TurnEnd",
    "TurnStart",
    "TurnStatus",
    "event_from_json",
    "event_to_json",
    "is_transient",
    "record_from_json",
    "record_to_json",
]

TurnStatus: TypeAlias = Literal["done", "asking", "limit", "cancelled", "failed"]
"""How a turn ended (DESIGN 3.3): answered; a question to the user is open; a limit or a budget ended it; the
user interrupted it; an error ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStart:
    """A session was opened; `resumed` when it was there before."""

    type: ClassVar = "session_start"
    session_id: str
    cwd: str
    provider: str
    model: str
    version: str
    resumed: bool = False
    private: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    """The user said something. On disk before a model is asked."""

    type: ClassVar = "turn_start"
    turn: int
    message: Message
    answers: str | None = None
    """The call id of the `AskUser` that this message answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfacedMemory:
    """One memory that was shown to the model: id, words, score in [0, 1], and the turn it comes from."""

    id: str
    content: str
    score: float
    session: str | None = None
    source_turn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySurfaced:
    """Memory was appended to the user's message of this turn: `text` is the block, byte for byte.

    Attributes:
        untrusted: One of the memories comes from outside.
    """

    type: ClassVar = "memory_surfaced"
    turn: int
    text: str
    memories: tuple[SurfacedMemory, ...]
    tokens: int
    untrusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCaptured:
    """What was said in this turn is in the store: the ids of its episodes."""

    type: ClassVar = "memory_captured"
    turn: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the answer's text."""

    type: ClassVar = "text_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """A piece of the model's reasoning."""

    type: ClassVar = "thinking_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInputDelta:
    """A piece of a call's arguments, as JSON text."""

    type: ClassVar = "tool_input_delta"
    call_id: str
    tool: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """The model answered one request of the turn: round `round`, counted from 1."""

    type: ClassVar = "assistant"
    turn: int
    round: int
    blocks: tuple[Block, ...]
    stop_reason: StopReason
    provider: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A call was allowed or refused.

    Attributes:
        by: The mode, a rule, the user, or nobody (there was no one to ask).
        rule: The rule's text, where one decided.
    """

    type: ClassVar = "permission"
    turn: int
    call_id: str
    tool: str
    decision: Literal["allow", "deny"]
    by: Literal["mode", "rule", "user", "nobody"]
    rule: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A tool is about to start. On disk before it does."""

    type: ClassVar = "action"
    turn: int
    round: int
    call_id: str
    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress:
    """A running tool tells how far it is; `data` is the tool's own."""

    type: ClassVar = "tool_progress"
    call_id: str
    tool: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A call ended, or was refused before it started: `text` is what the model gets.

    Attributes:
        spill: The file that holds the whole result, where it was cut.
        untrusted: `text` comes from outside: the web, a stranger's server, a memory of such.
        duration_ms: From start to end; 0 for a call that never started.
    """

    type: ClassVar = "observation"
    turn: int
    round: int
    call_id: str
    tool: str
    text: str
    is_error: bool = False
    duration_ms: float = 0.0
    spill: str | None = None
    untrusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundObserved:
    """All calls of a round ended: the results merged as seed-3 writes them, in the order asked."""

    type: ClassVar = "round_observed"
    turn: int
    round: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUser:
    """The turn ends with a question; the next message answers the call `call_id`."""

    type: ClassVar = "ask_user"
    turn: int
    call_id: str
    question: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Older messages were replaced by a summary.

    Attributes:
        messages: The history from here on, whole: the summary and what was kept. Replay starts with it.
        before_tokens: Estimated tokens of the history before, and `after_tokens` after.
        focus: What the user asked the summary to keep, or "".
    """

    type: ClassVar = "compaction"
    turn: int
    messages: tuple[Message, ...]
    before_tokens: int
    after_tokens: int
    trigger: Literal["auto", "manual"]
    focus: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that the user should know and that does not stop the turn: `part` is what it is about."""

    type: ClassVar = "notice"
    part: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something went wrong in `part`; `traceback` is for the log, never for the model."""

    type: ClassVar = "error"
    part: str
    message: str
    error: str
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The turn's answer.

    Attributes:
        untrusted: The model had something from outside before it, from this turn or an earlier one of the session:
            what it says may come from there.
    """

    type: ClassVar = "final"
    turn: int
    text: str
    status: TurnStatus
    untrusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """The turn is over and everything that it said is on disk."""

    type: ClassVar = "turn_end"
    turn: int
    status: TurnStatus
    rounds: int
    usage: Usage
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """The session was closed in good order."""

    type: ClassVar = "session_end"
    reason: str


Event: TypeAlias = (
    SessionStart
    | TurnStart
    | MemorySurfaced
    | MemoryCaptured
    | TextDelta
    | ThinkingDelta
    | ToolInputDelta
    | Assistant
    | Permission
    | Action
    | ToolProgress
    | Observation
    | RoundObserved
    | AskUser
    | Compaction
    | Notice
    | Failure
    | Final
    | TurnEnd
    | SessionEnd
)

_CLASSES: dict[str, type[Any]] = {cls.type: cls for cls in get_args(Event)}
_FIELDS: dict[type[Any], tuple[str, ...]] = {
    cls: tuple(f.name for f in fields(cls)) for cls in [*_CLASSES.values(), SurfacedMemory]
}
_TRANSIENT = (TextDelta, ThinkingDelta, ToolInputDelta, ToolProgress)

_WRITE: dict[str, Callable[[Any], Any]] = {
    "message": message_to_json,
    "messages": lambda messages: [message_to_json(message) for message in messages],
    "blocks": lambda blocks: [block_to_json(block) for block in blocks],
    "usage": usage_to_json,
    "memories": lambda memories: [
        {name: getattr(memory, name) for name in _FIELDS[SurfacedMemory]} for memory in memories
    ],
}
_READ: dict[str, Callable[[Any], Any]] = {
    "message": message_from_json,
    "messages": lambda values: tuple(message_from_json(value) for value in values),
    "blocks": lambda values: tuple(block_from_json(value) for value in values),
    "usage": usage_from_json,
    "memories": lambda values: tuple(
        SurfacedMemory(**{name: value[name] for name in _FIELDS[SurfacedMemory] if name in value})
        for value in values
    ),
    "ids": tuple,
    "options": tuple,
}


def is_transient(event: Event) -> bool:
    """Whether the event is shown while it happens and not logged."""
    return isinstance(event, _TRANSIENT)


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as plain JSON data, its `type` first."""
    value: dict[str, Any] = {"type": event.type}
    for name in _FIELDS[type(event)]:
        # `Failure.message` is text; every other `message` is a Message.
        write = None if isinstance(event, Failure) else _WRITE.get(name)
        part = getattr(event, name)
        value[name] = write(part) if write else part
    return value


def event_from_json(value: Mapping[str, Any]) -> Event:
    """The event that `event_to_json` wrote. Fields that this version does not know are left out.

    Raises:
        ValueError: It is of no known type.
        KeyError, TypeError: A field is missing or has the wrong form.
    """
    cls = _CLASSES.get(value["type"])
    if cls is None:
        raise ValueError(f"No event is of type {value['type']!r}.")
    parts: dict[str, Any] = {}
    for name in _FIELDS[cls]:
        if name in value:
            read = None if cls is Failure else _READ.get(name)
            parts[name] = read(value[name]) if read else value[name]
    event: Event = cls(**parts)
    return event


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An event with its place: number `seq` of its session (from 1, without gaps) and its time."""

    seq: int
    at: datetime
    event: Event


def record_to_json(record: Record) -> dict[str, Any]:
    """A record as one flat JSON object: `seq`, `at` (ISO 8601 with offset), then the event."""
    return {"seq": record.seq, "at": record.at.isoformat(), **event_to_json(record.event)}


def record_from_json(value: Mapping[str, Any]) -> Record:
    """The record that `record_to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: It is not such a record.
    """
    return Record(seq=value["seq"], at=datetime.fromisoformat(value["at"]), event=event_from_json(value))
