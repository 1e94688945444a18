"""Everything that happens in a session: one closed union of frozen dataclasses.

The session log, the faces and the hooks all read it. An event says what happened; `Record` adds its number and its
time. Deltas and progress are shown while they stream and never logged: the `Assistant` and `Observation` events that
follow carry the same content in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import partial
from types import UnionType
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from satchel.messages import (
    Block,
    FileBlock,
    Message,
    StopReason,
    Usage,
    block_from_json,
    block_to_json,
    file_from_json,
)

TurnStatus: TypeAlias = Literal["done", "asking", "calling", "limit", "cancelled", "failed"]
"""How a turn ended (DESIGN 3.3): with an answer; with an open question to the user; with calls that the caller runs
itself; at a limit or a budget; interrupted by the user; with an error."""

Consent: TypeAlias = Literal["no", "once", "session", "always"]
"""The user's answer to a permission question: no, or yes for this call, for this session, or permanently."""


class Transient:
    """An event that is only shown, and not logged."""

    __slots__ = ()


class Durable:
    """An event that must survive a power failure before anything else happens: what is acknowledged, and what a tool is
    about to do.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStart:
    """A session was opened.

    Attributes:
        resumed: The session existed before.
        private: Nothing said in it is captured as memory.
        project: The id of the project that a new session belongs to, or ""; `SessionFiled` says where it is later.
        tokenizer: The token counter for providers that report no counts: "estimate", or the name of the caller's own.
    """

    type: ClassVar = "session_start"
    session_id: str
    cwd: str
    provider: str
    model: str
    version: str
    resumed: bool = False
    private: bool = False
    tokenizer: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart(Durable):
    """The user said something. On disk before a model is asked.

    Attributes:
        message: The user's words and what Satchel added to them; or the results of calls that the caller ran.
        answers: The call id of the `AskUser` that this message answers.
        resumes: The answered call goes on with this answer: an `Action` and an `Observation` with the same call id and
            round 0 follow, and that observation is the call's result. Without it, the message is.
        inbox: The ids of the `Posted` entries that this message delivers to the model, and of the `MessageWaiting` that
            it was.
    """

    type: ClassVar = "turn_start"
    turn: int
    message: Message
    answers: str | None = None
    resumes: bool = False
    inbox: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResumed(Durable):
    """A turn that the program left unfinished continues without a new message."""

    type: ClassVar = "turn_resumed"
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAdded:
    """A hook appended this text, byte for byte, to the user's message of this turn."""

    type: ClassVar = "context_added"
    turn: int
    source: str
    text: str
    untrusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfacedMemory:
    """A memory that was shown to the model: its id, content, score in [0, 1], and the turn that it comes from.

    Attributes:
        is_part: `content` is only a part of it; the rest was not shown.
        why: What spoke most for showing it, in a few words for the user; "" where that is not known.
        said_by: Who said it: "you", "a model", "a document", "a picture" or a name; "" in logs of earlier versions.
        said_at: When.
    """

    id: str
    content: str
    score: float
    session: str | None = None
    source_turn: int | None = None
    is_part: bool = False
    why: str = ""
    said_by: str = ""
    said_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySurfaced:
    """Memories were appended to the user's message of this turn; `text` is the block, byte for byte.

    Attributes:
        untrusted: Whether one of the memories comes from outside.
        standing: "profile" or "agenda", which are shown whatever is said; "" for what bears on the message.
        day: The local day of an agenda, as "2026-11-23".
    """

    type: ClassVar = "memory_surfaced"
    turn: int
    text: str
    memories: tuple[SurfacedMemory, ...]
    tokens: int
    untrusted: bool = False
    standing: Literal["", "profile", "agenda"] = ""
    day: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCaptured:
    """What was said in this turn was stored; `ids` are the ids of its episodes."""

    type: ClassVar = "memory_captured"
    turn: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Transient):
    """A piece of the answer's text."""

    type: ClassVar = "text_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta(Transient):
    """A piece of the model's reasoning."""

    type: ClassVar = "thinking_delta"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInputDelta(Transient):
    """A piece of a call's arguments, as JSON text."""

    type: ClassVar = "tool_input_delta"
    call_id: str
    tool: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """The model answered a request of this turn; rounds are counted from 1."""

    type: ClassVar = "assistant"
    turn: int
    round: int
    blocks: tuple[Block, ...]
    stop_reason: StopReason
    provider: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """One call that the user is asked to permit.

    Attributes:
        key: The input field that says what the call does, such as "command", or "".
        rules: The rules that the answers "session" and "always" add.
        reason: Why the call needs permission.
    """

    call_id: str
    tool: str
    input: Mapping[str, Any]
    key: str = ""
    rules: tuple[str, ...] = ()
    reason: str = ""

    @property
    def told_reason(self) -> str:
        """The reason, unless it is only that the mode asks, which the user knows."""
        return "" if re.fullmatch(r"mode \w+", self.reason) else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class CallConsent:
    """The user's answer for one call; `words` are told to the model."""

    call_id: str
    consent: Consent
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(Durable):
    """A running turn waits for the user. Any client may answer; the first answer holds.

    Attributes:
        id: Names the question; unique in the session, and the same when the question is asked again after a restart.
        kind: "permission" asks about `calls`; "tool" is what a running call wants to know.
        text: The question of a tool, and `options` the suggested answers.
        is_secret: The answer is not logged, and other clients don't see it.
    """

    type: ClassVar = "question_asked"
    id: str
    turn: int
    kind: Literal["permission", "tool"]
    calls: tuple[AskedCall, ...] = ()
    text: str = ""
    options: tuple[str, ...] = ()
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered(Durable):
    """A question has its answer. On disk before the answer takes effect.

    Attributes:
        id: Of the `QuestionAsked`.
        consents: The answer to a permission question, one entry a call, in the order asked.
        text: The answer to a tool's question; None where the user declined.
        by: The client that answered, as it named itself; "" where the question was withdrawn because its turn ended.
        seal: The proof that somebody with the home's key gave these consents to these calls, in this turn
            of this session.
    """

    type: ClassVar = "question_answered"
    id: str
    consents: tuple[CallConsent, ...] = ()
    text: str | None = None
    by: str = ""
    seal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A call was allowed or refused.

    Attributes:
        by: Who decided: the mode, a rule, the user, or nobody because no one could be asked.
        rule: The text of the rule, if a rule decided.
        box: How an allowed call is boxed: "workspace", followed by what else it may reach, as a rule says it
            ("workspace network=pypi.org"); "" outside the sandbox.
        wanted: The rules that would have allowed the call, if nobody was there to be asked.
    """

    type: ClassVar = "permission"
    turn: int
    call_id: str
    tool: str
    decision: Literal["allow", "deny"]
    by: Literal["mode", "rule", "user", "nobody"]
    rule: str = ""
    reason: str = ""
    box: str = ""
    wanted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Durable):
    """A tool is about to start. On disk before it does."""

    type: ClassVar = "action"
    turn: int
    round: int
    call_id: str
    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(Transient):
    """A running tool reports its progress; the tool defines the format of `data`."""

    type: ClassVar = "tool_progress"
    call_id: str
    tool: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A call ended, or was refused before it started; `text` is the result for the model.

    Attributes:
        spill: The file with the complete result, if it was cut.
        untrusted: Whether `text` comes from outside: the web, somebody else's server, or a memory of those.
        duration_ms: The time from start to end; 0 for a call that never started.
        data: The result as JSON data, for programs; None if the tool returned none.
        files: The pictures and files that belong to it, with their bytes beside the log.
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
    data: Any = None
    files: tuple[FileBlock, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundObserved:
    """All calls of a round have ended; `text` merges the results in the format of seed-3, in the order of the calls."""

    type: ClassVar = "round_observed"
    turn: int
    round: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUser(Durable):
    """The turn ends with a question; the next message answers the call `call_id`.

    Attributes:
        resumable: The call goes on with the answer (see `TurnStart.resumes`).
    """

    type: ClassVar = "ask_user"
    turn: int
    call_id: str
    question: str
    options: tuple[str, ...] = ()
    resumable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction(Durable):
    """Older messages were replaced by a summary.

    Attributes:
        messages: The complete history from here on: the summary and the messages that were kept. Replay starts here.
        before_tokens: The estimated tokens of the history before; `after_tokens` is the estimate after.
        focus: What the user asked the summary to focus on, or "".
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
class ModelCalled:
    """A model was asked beside the conversation, such as by an MCP server that the user allowed it.

    Attributes:
        purpose: Who asked, such as "mcp:files".
    """

    type: ClassVar = "model_called"
    turn: int
    purpose: str
    provider: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgentEvent:
    """Something happened in the work of a sub-agent. Its tokens are in a `ModelCalled` of their own.

    Attributes:
        call_id: The call of `delegate` that it belongs to.
        event: What happened, as in a turn of the sub-agent's own: its start is the task.
    """

    type: ClassVar = "sub_agent"
    turn: int
    call_id: str
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted(Durable):
    """Something arrived in the session's inbox, such as a finished build. The next turn's message delivers it.

    Attributes:
        id: Names the entry; unique in a home.
        source: Who posted it.
        untrusted: `text` comes from outside.
    """

    type: ClassVar = "posted"
    id: str
    source: str
    text: str
    untrusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageWaiting(Durable):
    """The user said something while a turn ran. It waits in line: on disk, so that it outlives the program.

    The `TurnStart` whose `inbox` has its id is its turn.

    Attributes:
        id: Names the message; unique in its session.
        memory: Whether the model is shown memories, and the turn is captured as memory.
        attached: What the user sent along and did not say.
        files: The files that the user attached; their copies are with the session.
    """

    type: ClassVar = "message_waiting"
    id: str
    text: str
    memory: bool = True
    attached: str = ""
    files: tuple[FileBlock, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTakenBack(Durable):
    """A message that waited is no longer in line: its sender took it back."""

    type: ClassVar = "message_taken_back"
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPosted(Durable):
    """A build that this session asked for says something, or was answered. The model is told of its end by a `Posted`.

    Attributes:
        id: Names a question in this session, for its answer.
        build_id: The build.
        number: The order of the messages of all builds in a home.
        capability: The name of the capability that is built.
        kind: A question waits for the user's words; "answer" says that they came, from this client or another; the last
            two say how the build ended.
        question_id: The question in its build: of a question itself, of an answer, and of the progress that says that
            the Builder no longer waits; else "".
        options: Suggested answers to a question.
        status: Of an ended build: "active", "proposed" or "failed"; "waiting" of the progress that says that the build
            has been laid aside until the user answers; else "".
    """

    type: ClassVar = "build_posted"
    id: str
    build_id: str
    number: int
    capability: str
    kind: Literal["question", "answer", "progress", "complete", "error"]
    text: str = ""
    question_id: str = ""
    options: tuple[str, ...] = ()
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that the user should know and that doesn't stop the turn; `part` says what it is about."""

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
class Final(Durable):
    """The turn's answer.

    Attributes:
        untrusted: Whether the model had read something from outside, in this turn or an earlier one of the session, so
            that its words may come from there.
    """

    type: ClassVar = "final"
    turn: int
    text: str
    status: TurnStatus
    untrusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd(Durable):
    """The turn is over, and all its events are on disk."""

    type: ClassVar = "turn_end"
    turn: int
    status: TurnStatus
    rounds: int
    usage: Usage
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTitled:
    """The session got a title, which lists show instead of the first message. One that the user gave stays.

    Attributes:
        title: "" if words were forgotten that a model had made it of.
        by: Who gave it.
    """

    type: ClassVar = "session_titled"
    title: str
    by: Literal["user", "model"] = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFiled(Durable):
    """The user gave the session another place in lists. None leaves a part as it is.

    Attributes:
        pinned: Lists show it first.
        archived: Lists leave it out, until something is said in it.
        project: The id of the project that it belongs to from now on, with all that was said in it; "" is none.
    """

    type: ClassVar = "session_filed"
    pinned: bool | None = None
    archived: bool | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBranched:
    """The session goes on from another one, whose turns before one of its turns it repeats.

    Attributes:
        session_id: The other one.
        turn: The first turn that is not repeated.
        repeats: For each session of which turns are repeated, also through others that may be deleted: the first turn
            that is not.
    """

    type: ClassVar = "session_branched"
    session_id: str
    turn: int
    repeats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """The session was closed in an orderly way."""

    type: ClassVar = "session_end"
    reason: str


Event: TypeAlias = (
    SessionStart
    | TurnStart
    | TurnResumed
    | ContextAdded
    | MemorySurfaced
    | MemoryCaptured
    | TextDelta
    | ThinkingDelta
    | ToolInputDelta
    | Assistant
    | QuestionAsked
    | QuestionAnswered
    | Permission
    | Action
    | ToolProgress
    | Observation
    | RoundObserved
    | AskUser
    | Compaction
    | ModelCalled
    | SubAgentEvent
    | Posted
    | MessageWaiting
    | MessageTakenBack
    | BuildPosted
    | Notice
    | Failure
    | Final
    | TurnEnd
    | SessionTitled
    | SessionFiled
    | SessionBranched
    | SessionEnd
)

_CLASSES: dict[str, type[Any]] = {cls.type: cls for cls in get_args(Event)}


def is_transient(event: Event) -> bool:
    """Whether the event is only shown and not logged."""
    return isinstance(event, Transient)


def event_to_json(event: Event) -> dict[str, Any]:
    """The event as plain JSON data, with `type` first."""
    return {"type": event.type, **fields_to_json(event)}


def event_from_json(value: Mapping[str, Any]) -> Event:
    """Inverse of `event_to_json`. Unknown fields are ignored.

    Raises:
        ValueError: The type is unknown, or one of a field's fixed values is.
        KeyError, TypeError: A field is missing or has the wrong form.
    """
    cls = _CLASSES.get(value["type"])
    if cls is None:
        raise ValueError(f"No event is of type {value['type']!r}.")
    event: Event = fields_from_json(cls, value)
    return event


_D = TypeVar("_D")
_Convert: TypeAlias = Callable[[Any], Any]
_Codec: TypeAlias = tuple[_Convert, _Convert] | None
"""How a field is converted to JSON data and back; None if it is JSON data already."""
_KNOWN: dict[type[Any], dict[str, _Codec]] = {}


def fields_to_json(value: Any) -> dict[str, Any]:
    """A dataclass as plain JSON data: its fields in order, events and messages in them too."""
    return {
        name: codec[0](getattr(value, name)) if codec else getattr(value, name)
        for name, codec in _codecs(type(value)).items()
    }


def fields_from_json(cls: type[_D], value: Mapping[str, Any]) -> _D:
    """Inverse of `fields_to_json`. Unknown fields are ignored.

    Raises:
        ValueError, KeyError, TypeError: It is no such dataclass.
    """
    return cls(
        **{
            name: codec[1](value[name]) if codec else value[name]
            for name, codec in _codecs(cls).items()
            if name in value
        }
    )


def _codecs(cls: type[Any]) -> dict[str, _Codec]:
    """The fields of a dataclass in order, each with its codec, which follows from the field's type."""
    if cls not in _KNOWN:
        types = get_type_hints(cls)
        _KNOWN[cls] = {f.name: _codec(types[f.name]) for f in fields(cls)}
    return _KNOWN[cls]


def _codec(annotation: Any) -> _Codec:
    if annotation == Event:
        return event_to_json, event_from_json
    if annotation == Block:
        return block_to_json, block_from_json
    if annotation is FileBlock:
        return block_to_json, file_from_json
    if get_origin(annotation) is tuple:
        item = _codec(get_args(annotation)[0])
        if item is None:
            return list, tuple
        return (lambda values: [item[0](v) for v in values]), (
            lambda values: tuple(item[1](v) for v in values)
        )
    if get_origin(annotation) in (Union, UnionType):
        held = [codec for part in get_args(annotation) if (codec := _codec(part)) is not None]
        if not held:
            return None
        assert len(get_args(annotation)) == 2, f"{annotation} needs a codec of its own"
        to, back = held[0]
        return (lambda value: None if value is None else to(value)), (
            lambda value: None if value is None else back(value)
        )
    if annotation is datetime:
        return datetime.isoformat, datetime.fromisoformat
    if get_origin(annotation) is Literal:
        return _as_it_is, partial(_one_of, frozenset(get_args(annotation)))
    if is_dataclass(annotation):
        cls: Any = annotation
        if cls in _CLASSES.values():
            return event_to_json, lambda value: _event_of(cls, value)
        return fields_to_json, lambda value: fields_from_json(cls, value)
    return None


def _as_it_is(value: Any) -> Any:
    return value


def _one_of(known: frozenset[str], value: Any) -> Any:
    """The value if this version knows it, otherwise "other".

    Raises:
        ValueError: The field has no "other".
    """
    if value in known:
        return value
    if "other" not in known:
        raise ValueError(f"{value!r} is unknown to this version.")
    return "other"


def _event_of(cls: type[_D], value: Mapping[str, Any]) -> _D:
    event = event_from_json(value)
    if not isinstance(event, cls):
        raise ValueError(f"An event of type {event.type!r} stands where another belongs.")
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
