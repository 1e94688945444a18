"""The port of everything that a model can call: a spec, one call, one result.

A tool does not know who calls it: it gets its input and a `ToolContext`. It never raises for what a caller
could have got wrong (that is an error result that tells the model what to do); an exception that does escape
is a defect of the tool: the loop logs its traceback and the model is told that the tool failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from satchel.clock import Clock
from satchel.messages import Message
from satchel.models.port import ToolDefinition
from satchel.tools.box import Box

__all__ = [
    "Annotations",
    "Ask",
    "Effect",
    "MemoryAccess",
    "Question",
    "Redirect",
    "Redirecting",
    "Resumable",
    "Source",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolSpec",
    "Toolset",
]

T = TypeVar("T")
Source: TypeAlias = Literal["builtin", "external", "capability", "mcp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """What is known of a tool's calls: MCP's four hints, and whether they can be boxed. The default is the cautious
    reading.

    Attributes:
        boxed: Its calls start a program, which mode `auto` runs in the workspace's sandbox. Satchel says this; what a
            server claims never sets it.
    """

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True
    boxed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a call touches; `resource` is a key such as "path:notes.md", with the path resolved.

    Two calls of one round whose effects name the same `resource`, one of them writing, are run in the order
    asked; everything else runs side by side.
    """

    resource: str
    writes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What is known of a tool before it is called.

    Attributes:
        name: [a-zA-Z0-9_-]{1,64}, unique in a registry.
        input_schema: JSON Schema of type "object"; inputs are validated against it before `call`.
        returns: JSON Schema of its results, or None where that is unknown. Shown to people; no provider takes it.
        source: Where it comes from; `origin` says it in words for people (a path, a server).
        timeout_s: Its own limit, or None for the default.
        vouched_for: The user's own word that `annotations` are true; without it, what a tool that is not
            built in says about itself never widens what it may do.
        client_side: Whoever runs the turn runs its calls: they end the turn and stay open until the next message
            brings their results. Nobody is asked for permission.
        pattern_key: The input field that permission patterns match ("command" for `bash(git *)`), or "".
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    returns: Mapping[str, Any] | None = None
    source: Source = "builtin"
    origin: str = ""
    annotations: Annotations = field(default_factory=Annotations)
    vouched_for: bool = False
    timeout_s: float | None = None
    pattern_key: str = ""
    client_side: bool = False

    @property
    def definition(self) -> ToolDefinition:
        """The part that a model sees."""
        return ToolDefinition(name=self.name, description=self.description, input_schema=self.input_schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to the user that ends the turn; any answer is allowed.

    Attributes:
        options: Suggested answers.
        resumable: The tool goes on with the answer (see `Resumable`). Without it, the answer is the call's result.
        is_secret: The answer to the question of a running call is not logged.
    """

    text: str
    options: tuple[str, ...] = ()
    resumable: bool = False
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a call gave.

    Attributes:
        text: For the model. Any length: the loop cuts it and spills the rest.
        is_error: The call failed; `text` says why and what to do.
        data: The same for programs, JSON data, or None.
        question: Set by a tool that needs the user: the turn ends, the next message
            becomes this call's result.
        untrusted: `text` comes from outside (the web, a stranger's server).
    """

    text: str
    is_error: bool = False
    data: Any = None
    question: Question | None = None
    untrusted: bool = False


Ask: TypeAlias = Callable[[Question], Awaitable[str | None]]
"""Shows a question to the user at once and waits for their words; None where they turn it down."""


class Blocking(Protocol):
    """Runs a blocking function on the tools' own pool of threads and gives its result."""

    async def __call__(self, function: Callable[..., T], /, *args: Any) -> T: ...


class MemoryAccess(Protocol):
    """What a tool may do with memory: a part of `satchel.memory.Memory`, whose room this one does not know."""

    async def search(self, query: str, *, limit: int = 10) -> Sequence[Any]:
        """The memories that fit, best first; see `Memory.search`."""
        ...

    async def add(self, content: str) -> Any:
        """Store something; see `Memory.add`."""
        ...


@dataclass(slots=True, kw_only=True)
class ToolContext:
    """What a call may use.

    Attributes:
        cwd: The session's working directory; `state` may hold a tool's own, such as the shell's.
        roots: Folders (with all below) and single files that file tools may touch, after symlinks are
            resolved.
        spill_dir: Where long results are kept; readable by the file tools.
        state: The session's own scratch, one key a tool ("bash.cwd"); lives as long as the session is open.
        progress: Tell how far the call is; the data is shown, not logged.
        blocking: Runs a blocking function on the tools' own threads.
        timeout_s: The call's limit; the loop enforces it by cancelling the call.
        environ: The environment that a started process gets.
        ask: Asks the user in the middle of a call and gives their words; None from it where they don't want
            to answer. None where nobody can be asked: then a question can only end the turn.
        messages: Gives the conversation so far, as the model has it; empty outside of a conversation.
        memory: The user's memory; None where there is none. Only tools that run in the program can use it.
        untrusted: The model has read something from outside in this session: what it says now may come from there.
        box: The sandbox in which the call must run, as it was permitted; None runs it outside, with the user's rights.
    """

    session_id: str
    turn: int
    call_id: str
    cwd: Path
    roots: Sequence[Path]
    spill_dir: Path
    state: dict[str, Any]
    progress: Callable[[Mapping[str, Any]], Awaitable[None]]
    blocking: Blocking
    clock: Clock
    timeout_s: float
    environ: Mapping[str, str] = field(default_factory=dict)
    ask: Ask | None = None
    messages: Callable[[], Sequence[Message]] = tuple
    memory: MemoryAccess | None = None
    untrusted: bool = False
    box: Box | None = None


class Tool(Protocol):
    """Something that a model can call."""

    @property
    def spec(self) -> ToolSpec: ...  # noqa: D102

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        """What the call would touch; empty where nothing collides with anything."""
        ...

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Do it.

        Args:
            input: Valid against `spec.input_schema`.
            context: See `ToolContext`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """The call that another call stands for."""

    tool: Tool
    input: Mapping[str, Any]


@runtime_checkable
class Redirecting(Protocol):
    """A tool whose calls stand for calls of other tools.

    Whoever runs calls asks it first and goes on with what it names: that one's schema, permissions, effects and time
    limit hold, so a detour never reaches what the straight way does not.
    """

    def redirect(self, input: Mapping[str, Any]) -> Redirect | str:
        """The call that is meant, or why there is none, for the model."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A tool whose call can go on after its question ended the turn, in another process too."""

    async def resume(self, answer: str, context: ToolContext) -> ToolResult:
        """Go on with the call `context.call_id`.

        Args:
            answer: What the user said.
            context: As for a new call.

        Returns:
            The call's result; an error where it can't go on any more.
        """
        ...


class Toolset(Protocol):
    """A source of tools. Small wrappers compose them: prefix, filter, limit."""

    async def tools(self) -> Sequence[Tool]:
        """Its tools in a fixed order. A part that is down gives fewer, never an error."""
        ...
