"""The requests and responses of the HTTP API, as OpenAPI describes them.

Requests with unknown fields are refused. Responses may get more fields; these stay.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from satchel.capabilities.cases import CaseResult
from satchel.config import Mode
from satchel.events import Consent
from satchel.memory import Discretion, Kind, MemoryRecord, MemoryType, Source, Tier, Trust
from satchel.memory.store.cues import MOST_CUE_CHARS, MOST_CUES
from satchel.memory.toolset import MOST_SHARED_CHARS
from satchel.messages import FileBlock
from satchel.runtime.people import Role
from satchel.runtime.session_state import RunningState
from satchel.sessions.attachments import MOST_FILES


class FromOutside(BaseModel):
    """A request: unknown fields are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Answered(BaseModel):
    model_config = ConfigDict(extra="allow")


def _for_instance(**example: Any) -> ConfigDict:
    """With an example of the whole request."""
    return ConfigDict(json_schema_extra={"examples": [example]})


def _dated(moment: datetime) -> datetime:
    # Arithmetic with other years overflows where time zones are added.
    if not 1 <= moment.year - 1600 <= 1400:
        raise ValueError("the year must be between 1601 and 3000")
    return moment


def _encodable(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise ValueError("the input has a number, a character or a depth that JSON doesn't allow") from None
    return value


Moment: TypeAlias = Annotated[datetime, AfterValidator(_dated)]
"""A time. Without an offset, it is local."""
Input: TypeAlias = Annotated[dict[str, Any], AfterValidator(_encodable)]
"""The arguments of a call."""
Text: TypeAlias = Annotated[str, Field(max_length=16_000_000)]
_Word: TypeAlias = Annotated[str, Field(max_length=200)]
_Turn: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000_000)]


# Conversations


class AttachedFile(FromOutside):
    """A file that was sent before with POST /api/attachments."""

    type: Literal["file"] = "file"
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    filename: Annotated[str, Field(max_length=1_000)] = Field("", description="What the user calls it.")
    media_type: str = Field("", description="As it was answered; Satchel looks at the bytes again.")
    size: int = Field(0, description="As it was answered, in bytes.")

    def block(self) -> FileBlock:
        """What it is in a message."""
        return FileBlock(
            sha256=self.sha256, media_type=self.media_type, name=self.filename or "file", size=self.size
        )


_Files: TypeAlias = Annotated[
    list[AttachedFile],
    Field(description="Files that were sent with POST /api/attachments.", max_length=MOST_FILES),
]


class AttachmentResponse(_Answered):
    """A file that waits for its message, for a day."""

    type: Literal["file"]
    sha256: str
    media_type: str = Field(description="What the bytes are, whatever the name says.")
    filename: str
    size: int


class ChatRequest(FromOutside):
    """A message to the agent."""

    model_config = _for_instance(message="What did I say about the router?")

    message: Text = Field(description="The user's words. Not needed with Last-Event-ID.", default="")
    session_id: _Word | None = Field(None, description="The conversation. Without it, a new one starts.")
    model: _Word | None = Field(
        None, description='"provider:model". Without it, the session keeps its model.'
    )
    memory: bool = Field(
        True, description="Whether memories are shown to the model and the turn is remembered."
    )
    private: bool = Field(False, description="The new session is private: nothing of it is remembered.")
    project: _Word | None = Field(None, description="The project of a new session, by its id or name.")
    mode: Mode | None = Field(
        None, description="For a new session: how calls that no rule covers are decided."
    )
    interactive: bool = Field(
        False,
        description="The client answers `question` events by POST /api/sessions/{id}/answer, and the turn waits for "
        "it. Otherwise calls that need permission are refused.",
    )
    attachments: _Files = Field(default_factory=list)


class Answer(FromOutside):
    """The answer to an open question."""

    model_config = _for_instance(id="q1", consent="once")

    id: _Word = Field(description="The id of the question.")
    text: Text | None = Field(
        None, description="The answer to a tool's question or to a build's; null declines."
    )
    consent: Consent | dict[str, Consent] | None = Field(
        None, description="To a permission question: for all of its calls, or by call id."
    )
    words: Annotated[str, Field(max_length=10_000)] = Field("", description="Why not, for the model.")
    by: _Word = Field("", description="The name of this client.")


class AnsweredResponse(_Answered):
    """An answer that was taken."""

    turn: int | None = Field(
        description="The turn that the answer began or resumed; null if the running turn continues."
    )


class Opening(FromOutside):
    """A conversation to open, so that a client can follow it before anything is said."""

    model_config = _for_instance(cwd="/home/ann/garden")

    session_id: _Word | None = Field(
        None, description="The conversation's id, or the beginning of it. Without it, a new one starts."
    )
    last: bool = Field(
        False, description="Open the newest conversation of the working directory instead, if there is one."
    )
    cwd: Annotated[str, Field(max_length=4096)] | None = Field(
        None, description="The absolute working directory of a new conversation. Default: the server's."
    )
    model: _Word | None = Field(None, description='"provider:model". Without it, nothing changes.')
    mode: Mode | None = Field(
        None, description="How calls that no rule covers are decided. Without it, nothing changes."
    )
    private: bool = Field(False, description="The new conversation is private: nothing of it is remembered.")
    project: _Word | None = Field(
        None,
        description="The project of a new conversation, by its id or name; with `last`, of the newest one.",
    )


class BegunTurnResponse(_Answered):
    """A turn that was begun, or whose message waits until the running one ends."""

    turn: int = Field(description="Its number; 0 while its message waits.")
    after_seq: int
    waiting: str = Field(
        description="The id of the message in line: the `turn_start` whose `inbox` has it begins its turn."
    )


class SessionStateResponse(_Answered):
    """The state of a conversation."""

    id: str
    cwd: str
    private: bool
    turns: int
    model: str
    mode: str
    usage: dict[str, Any]
    last_seq: int = Field(description="The number of the newest event.")
    running: RunningState | None
    is_interrupted: bool = Field(description="The program stopped during the newest turn.")
    question: dict[str, Any] | None = Field(
        description="The question that the next message answers, as an event."
    )
    questions: list[dict[str, Any]] = Field(description="The turn's open questions, as events.")
    builds: list[dict[str, Any]] = Field(description="The open questions of builds, as events.")
    waiting: list[dict[str, Any]] = Field(description="The messages in line, as events.")
    failed_turn: int = Field(description="The newest turn that an error ended without a result; 0 for none.")
    failure: str
    project: str = Field(description="The name of the project that it is in, or empty.")
    folder: str = Field(
        description="The folder whose AGENTS.md, settings and tools the server uses, or empty."
    )


class TurnRequest(FromOutside):
    """A message; its events come by `GET /api/sessions/{id}/events`."""

    model_config = _for_instance(text="And when is it?", turn=2)

    text: Text = ""
    turn: _Turn | None = Field(
        None,
        description="The number that the turn has to get. A client that repeats a request of which it doesn't know "
        "whether it arrived gets a 409 if it did.",
    )
    memory: bool = Field(
        True, description="Whether memories are shown to the model and the turn is remembered."
    )
    interactive: bool = Field(
        False, description="Somebody can answer this turn's questions, so it waits for the answers."
    )
    attached: Annotated[str, Field(max_length=20_000)] = Field(
        "",
        description="What the user sent along and did not say, such as files: from outside, and not remembered.",
    )
    files: _Files = Field(default_factory=list)


class Command(FromOutside):
    """A `/` command, as it is typed in the terminal."""

    model_config = _for_instance(text="/memory list")

    text: Annotated[str, Field(min_length=2, max_length=1_000_000)]
    confirmed: bool = Field(False, description="The user has confirmed what the command asks first.")


class CompletionResponse(_Answered):
    """What the last word may become."""

    word: str
    help: str


class CancelledResponse(_Answered):
    """Whether a turn was running and is interrupted now."""

    cancelled: bool


class Post(FromOutside):
    """Something for a session's inbox; the next message delivers it to the model."""

    model_config = _for_instance(text="The backup ended without errors.", source="nightly backup")

    text: Annotated[str, Field(min_length=1, max_length=20_000)]
    source: _Word = Field("a program", description="Who posts, in one line.")
    untrusted: bool = Field(False, description="The text comes from outside.")


class PostedResponse(_Answered):
    """A post that was stored."""

    id: str


class Listing(FromOutside):
    """What lists show of a conversation. What is left out stays as it is."""

    model_config = _for_instance(title="Dinner for six", pinned=True)

    title: Annotated[str, Field(min_length=1, max_length=60)] | None = Field(None, description="One line.")
    pinned: bool | None = Field(None, description="Lists show it first.")
    archived: bool | None = Field(None, description="Lists leave it out, until something is said in it.")
    project: Annotated[str, Field(max_length=100)] | None = Field(
        None, description="The project that it moves into, by its id or name; empty moves it out."
    )


class ProjectFields(FromOutside):
    """What a project is to be. What is left out stays as it is."""

    model_config = _for_instance(name="Kitchen", instructions="We have 12 m² and gas.")

    name: Annotated[str, Field(min_length=1, max_length=60)] | None = Field(None, description="One line.")
    instructions: Annotated[str, Field(max_length=20_000)] | None = Field(
        None, description="What every conversation in it is told."
    )
    own_memory_only: bool | None = Field(
        None, description="Its conversations don't see the user's other memories."
    )
    archived: bool | None = Field(None, description="Lists leave it out.")


class NewProject(ProjectFields):
    """A new project."""

    name: Annotated[str, Field(min_length=1, max_length=60)] = Field(description="One line.")


class ProjectResponse(_Answered):
    """A project."""

    id: str
    name: str
    instructions: str
    own_memory_only: bool
    archived: bool
    created_at: str
    conversations: int
    memories: int = Field(description="How many memories it has, passages of documents too.")
    documents: int = Field(description="How many documents were given to it.")


class NewSpace(FromOutside):
    """A new shared space."""

    model_config = _for_instance(name="household")

    name: Annotated[str, Field(min_length=1, max_length=32)] = Field(
        description="Lowercase letters, digits, - and _; it begins with a letter."
    )


class NewMember(FromOutside):
    """Who is invited to a shared space."""

    model_config = _for_instance(name="ben")

    name: _Word


class NewShared(FromOutside):
    """Something to share."""

    model_config = _for_instance(content="The boiler is serviced in May.")

    content: Annotated[Text, Field(min_length=1, max_length=MOST_SHARED_CHARS)]


class SpaceResponse(_Answered):
    """A shared space."""

    name: str
    you: Role = Field(description="What the user is in it.")
    members: dict[str, Role] = Field(description="Everybody in it or invited, by name.")


class Branching(FromOutside):
    """Where a branch of a conversation begins."""

    model_config = _for_instance(turn=3)

    turn: Annotated[int, Field(ge=1, description="The first turn that it doesn't repeat.")]
    files: Annotated[
        bool, Field(description="Put the files back that tools changed since: all of them exactly, or none.")
    ] = False


class FilesSinceResponse(_Answered):
    """The files that tools changed from a turn on."""

    model_config = _for_instance(files=["/home/ada/notes/list.md"], conflicts=[])

    files: Annotated[list[str], Field(description="Those that would be put back.")]
    conflicts: Annotated[
        list[str],
        Field(description="Those that somebody else has changed too; if there are any, none is put back."),
    ]


class SessionResponse(_Answered):
    """A conversation."""

    id: str
    title: str
    started_at: str
    last_at: str
    turns: int
    cwd: str
    model: str
    private: bool
    source: str | None = Field(description="The program that it comes from, such as ChatGPT.")
    pinned: bool = Field(description="Lists show it first.")
    archived: bool = Field(description="Lists leave it out.")
    project: str | None = Field(description="The id of the project that it is in.")
    branch_of: str | None = Field(description="The conversation whose turns before `branch_turn` it repeats.")
    branch_turn: int | None
    branches: list[str] = Field(
        description="In a list: the branches that this entry stands for, if there are several, the oldest first."
    )


class SessionShownResponse(SessionResponse):
    """A conversation with a page of its events."""

    running: bool = Field(description="Whether a turn runs in it, at any server of the database.")
    last_seq: int = Field(description="The number of the last event of this page; `after` of the next one.")
    questions: list[dict[str, Any]] = Field(description="The open questions, as events.")
    events: list[dict[str, Any]]


class SessionHitResponse(_Answered):
    """A place in a conversation that was found."""

    session: str
    title: str
    seq: int
    turn: int
    kind: str
    at: str
    snippet: str


# Memory


class HitResponse(_Answered):
    """A memory that was found, with its score and what that is made of; `is_over` says that its time is over."""

    memory: MemoryRecord
    score: float
    signals: dict[str, float | None]


class ChangedResponse(_Answered):
    """A change that was made."""

    change: str | None = Field(description="Its id; null if there was nothing to change.")


class ReceiptResponse(_Answered):
    """What was forgotten: in the store, in session logs, and which backups may still hold it."""

    receipt: list[dict[str, Any]]


_Spheres = Annotated[list[_Word], Field(max_length=6)]


class NewMemory(FromOutside):
    """A memory to store."""

    model_config = _for_instance(
        content="My sister Mara is allergic to shellfish.", tags=["health", "food"], importance=5
    )

    content: Annotated[Text, Field(min_length=1)]
    tags: Annotated[list[_Word], Field(max_length=100)] = []
    kind: Kind = "fact"
    tier: Tier = "long_term"
    memory_type: MemoryType = "general"
    importance: Annotated[int, Field(ge=1, le=5)] = 3
    priority: Annotated[float, Field(ge=0, le=1)] | None = None
    decay_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    speaker: _Word = ""
    said_at: Moment | None = None
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    session: _Word | None = None
    turn: _Turn | None = None
    trust: Trust = "user"
    cues: Annotated[list[Annotated[str, Field(max_length=MOST_CUE_CHARS)]], Field(max_length=MOST_CUES)] = (
        Field([], description="Situations in which it will matter, a few words each. They are never shown.")
    )
    discretion: Discretion = "open"
    kept_from: _Word = Field("", description="From whom it is kept.")
    spheres: _Spheres = Field([], description="Parts of the user's life that it belongs to, such as health.")


class MemoryEdit(FromOutside):
    """What to change in a memory. Fields that are absent stay as they are."""

    model_config = _for_instance(
        content="My sister Mara is allergic to shellfish and nuts.", why="She told me."
    )

    content: Annotated[Text, Field(min_length=1)] | None = None
    tags: Annotated[list[_Word], Field(max_length=100)] | None = None
    tier: Tier | None = None
    memory_type: MemoryType | None = None
    importance: Annotated[int, Field(ge=1, le=5)] | None = None
    priority: Annotated[float, Field(ge=0, le=1)] | None = None
    decay_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    speaker: _Word | None = None
    said_at: Moment | None = None
    valid_from: Moment | None = Field(None, description="null removes it.")
    valid_to: Moment | None = Field(None, description="null removes it.")
    discretion: Discretion | None = Field(
        None, description="confidential: shown only when the user asks about it; withheld: to no model."
    )
    kept_from: _Word | None = None
    spheres: _Spheres | None = None
    why: Annotated[str, Field(max_length=2000)] = ""


class Piece(FromOutside):
    """A message of a conversation in another program."""

    role: Literal["user", "assistant", "other"] = Field(
        description='"other" is somebody who is not part of the conversation, such as a page that was read.'
    )
    content: Text
    speaker: _Word = Field("", description="Who said it. Default: the role.")
    said_at: Moment | None = None


class ObserveRequest(FromOutside):
    """A part of a conversation in another program. Sending the same part twice changes nothing."""

    model_config = _for_instance(
        session="editor-42",
        turn=1,
        messages=[
            {"role": "user", "content": "We chose SQLite for the shop's database."},
            {"role": "assistant", "content": "Noted."},
        ],
    )

    session: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="The conversation's own id."
    )
    turn: _Turn | None = Field(
        None, description="The number of the exchange. Default: the one after the newest."
    )
    messages: Annotated[list[Piece], Field(min_length=1, max_length=1000)]


class ObservedResponse(_Answered):
    """What was captured."""

    turn: int
    ids: list[str] = Field(
        description="The ids of the stored episodes. Empty if memory doesn't capture, or nothing was said."
    )


class QueueTakenResponse(_Answered):
    """The queue will be taken."""

    accepted: bool


class _Said(FromOutside):
    role: Literal["system", "user", "assistant", "tool"] = "user"
    content: Text


class ContextRequest(FromOutside):
    """Recent messages for which to find relevant memories."""

    model_config = _for_instance(
        messages=[{"role": "user", "content": "What should I keep in mind when I cook for Mara?"}],
        budget_tokens=500,
    )

    messages: Annotated[list[_Said], Field(min_length=1, max_length=1000)] = Field(
        description="Oldest first. The last three are used."
    )
    budget_tokens: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="The most tokens. Default: memory.budget_tokens."
    )
    limit: Annotated[int, Field(ge=1, le=100)] | None = None
    session: _Word | None = Field(None, description="The current conversation. Its own words are left out.")
    exclude: Annotated[list[_Word], Field(max_length=10_000)] = Field(
        [], description="Ids of memories that were shown before."
    )
    spheres: Annotated[list[_Word], Field(max_length=6)] | None = Field(
        None, description="The parts of the user's life that the messages are about, where the caller knows."
    )
    agent: bool = Field(False, description="Only what connected agents are granted (memory.agent_spheres).")


class ShownResponse(_Answered):
    """A memory that is shown."""

    id: str
    content: str
    score: float
    source: Source


class ContextResponse(_Answered):
    """What to show a model. `text` is empty if no memory is relevant to the messages."""

    text: str
    tokens: int
    memories: list[ShownResponse]


class ProfileResponse(_Answered):
    """What is always true of the user, and what happens in the next days."""

    text: str
    tokens: int
    lines: list[dict[str, Any]]
    agenda: AgendaResponse


class AgendaResponse(_Answered):
    """What happens in the next days."""

    day: str
    text: str
    tokens: int
    lines: list[dict[str, Any]]


ProfileResponse.model_rebuild()


class PageResponse(_Answered):
    """The page about the user, as it is shown now."""

    number: int = Field(description="The version; 0 where there is none.")
    text: str
    tokens: int
    lines: list[dict[str, Any]]
    edited: str = Field(
        description="The text to edit: headings that begin with #, and a line for each statement."
    )


class PageVersionResponse(_Answered):
    """What the page was."""

    number: int
    written_at: str
    by: str
    state: str
    lines: list[dict[str, Any]]


class NewDocuments(FromOutside):
    """Documents to remember."""

    model_config = _for_instance(paths=["/home/me/notes"])

    paths: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1_000, pattern="^/")]],
        Field(min_length=1, max_length=100, description="Absolute paths of files and folders."),
    ]


class NewFolder(FromOutside):
    """A folder to watch."""

    model_config = _for_instance(path="/home/me/notes")

    path: Annotated[
        str, Field(min_length=1, max_length=1_000, pattern="^/", description="The absolute path of a folder.")
    ]


class PageEdit(FromOutside):
    """The page as the user wants it."""

    model_config = _for_instance(text="# People\nLinh: can't stand dairy", number=3)

    text: Annotated[Text, Field(max_length=200_000)]
    number: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="The version that was edited; what was written since is kept. Without it, the newest.",
    )


class PageRestore(FromOutside):
    """Which version to restore."""

    model_config = _for_instance(number=2)

    number: Annotated[int, Field(ge=1)] | None = None


# Tools, capabilities, usage


class ToolResponse(_Answered):
    """A tool."""

    name: str
    source: str
    description: str
    status: str
    reason: str
    origin: str
    input_schema: dict[str, Any] | None = None


class CapabilityResponse(_Answered):
    """A tool that the agent made."""

    id: str
    name: str
    description: str
    status: str
    version: int
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    tags: list[str]
    build_id: str
    reasons: list[str]


class VersionResponse(_Answered):
    """A version of a capability."""

    version: int
    status: str
    sha256: str
    created_at: str


class CapabilityShownResponse(CapabilityResponse):
    """A capability with its versions, its newest runs, and the files of one version."""

    may: list[str] = Field(description="What it may reach, in sentences.")
    versions: list[VersionResponse]
    runs: list[dict[str, Any]]
    saved: dict[str, float] = Field(
        description="About what an earned one has saved so far: `calls`, `tokens`, `seconds`; {} for others."
    )


class BuildWish(FromOutside):
    """A capability to be built."""

    model_config = _for_instance(name="weather_lookup", description="Looks up the weather in a city.")

    name: Annotated[str, Field(min_length=1, max_length=64)]
    description: Annotated[str, Field(min_length=1, max_length=10_000)]
    input_schema: Input = Field(default_factory=dict, description="If it is empty, the Builder chooses.")


class RepairWish(FromOutside):
    """What a new version should do differently."""

    model_config = _for_instance(wish="Give the temperature in Celsius.")

    wish: Annotated[str, Field(max_length=10_000)] = ""
    input: Input | None = Field(
        None, description="An input with which it fails. Default: that of the last failed run."
    )


class VersionNumber(FromOutside):
    """A version."""

    model_config = _for_instance(version=1)

    version: Annotated[int, Field(ge=1, le=1_000_000)]


class RunInput(FromOutside):
    """The arguments of a run."""

    model_config = _for_instance(input={"city": "Paris"})

    input: Input = Field(default_factory=dict)


class RunOutcomeResponse(_Answered):
    """How a run went; `status` is "ok" where there is a result."""

    status: str
    result: str | None
    error: str
    stdout: str
    stderr: str
    wall_ms: float
    backend: str


class TestedResponse(_Answered):
    """How the cases of a version went."""

    version: int
    passed: bool
    adopted: int
    checks: list[CaseResult]


class RegisteredResponse(CapabilityResponse):
    """A version that was checked."""

    registered: int
    active: bool
    checks: list[CaseResult]


class BuildAnswer(FromOutside):
    """The answer to a question of a build."""

    model_config = _for_instance(build_id="b1", question_id="q1", answer="Use open data only.")

    build_id: _Word
    question_id: _Word
    answer: Text | None = Field(description="null declines.")


class BuildMessageResponse(_Answered):
    """A message between a build and the user."""

    number: int
    id: str
    build_id: str
    direction: str
    type: str
    payload: dict[str, Any]
    read: bool
    created_at: str


class SpentResponse(_Answered):
    """What one model cost on one day."""

    day: str
    model: str
    purpose: str = Field(description='The purpose, such as "conversation", "gate", "extract".')
    background: bool = Field(
        description="Whether nobody asked for it: it counts towards the background's budget."
    )
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


class ReadinessResponse(_Answered):
    """Whether requests can be served."""

    ready: bool


class CheckedResponse(_Answered):
    """The server answers."""

    status: str
