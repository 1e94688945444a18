"""The interface of everything that a model can call: a spec, a call, a result.

A tool doesn't know who calls it: it gets its input and a `ToolContext`. It doesn't raise for a caller's mistake, but
returns an error result that tells the model what to do. An exception that escapes is a bug in the tool: the loop logs
the traceback and tells the model that the tool failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from satchel.clock import Clock
from satchel.config import Mode
from satchel.messages import FileBlock, Message
from satchel.models.port import ToolDefinition
from satchel.tools.box import Box

T = TypeVar("T")
Source: TypeAlias = Literal["builtin", "external", "capability", "mcp", "plugin"]


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
    """A resource that a call uses, identified by a key such as "path:/project/notes.md" with the path resolved.

    If two calls of a round collide, they run in the order in which the model made them. All other calls run
    concurrently.
    """

    resource: str
    writes: bool

    def collides_with(self, other: Effect) -> bool:
        """Whether one of them writes, and they name one resource or one within the other: "path:/a" is in "path:"."""
        ours, theirs = f"{self.resource}/", f"{other.resource}/"
        return (self.writes or other.writes) and (ours.startswith(theirs) or theirs.startswith(ours))


_BOUNDS: Final = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "pattern"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """The description of a tool.

    Attributes:
        name: [a-zA-Z0-9_-]{1,64}, unique in a registry.
        input_schema: JSON Schema of type "object"; inputs are validated against it before `call`.
        returns: JSON Schema of its results, or None if unknown. It is shown to users; providers have no field for it.
        source: Where it comes from; `origin` describes that for users (a path, a server).
        destroys_with: If it is destructive, the argument without which a call destroys nothing; "" for any call.
        timeout_s: Its own time limit, or None for the default.
        vouched_for: The user has confirmed that `annotations` are true. Without that, the annotations of a tool that
            is not built in never grant it anything.
        client_side: The program that runs the turn also runs the tool's calls: they end the turn and stay open until
            the next message brings their results. They need no permission.
        pattern_key: The input field that permission patterns match ("command" for `bash(git *)`), or "".
        repeatable: A call that the program's end interrupted runs again when its turn resumes, with the same call id.
            The tool makes sure that this has the effect of one call. Other interrupted calls are not repeated.
        seldom: The input fields that only `tool_describe` shows. They are accepted like the others.
        is_deferred: No request defines the tool: a model finds it with `tool_search`.
        comes_first: A small window has room for its definition before others.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    returns: Mapping[str, Any] | None = None
    source: Source = "builtin"
    origin: str = ""
    annotations: Annotations = field(default_factory=Annotations)
    vouched_for: bool = False
    destroys_with: str = ""
    timeout_s: float | None = None
    pattern_key: str = ""
    client_side: bool = False
    repeatable: bool = False
    seldom: Sequence[str] = ()
    is_deferred: bool = False
    comes_first: bool = False

    @property
    def definition(self) -> ToolDefinition:
        """The part that a model sees in every request.

        Of tools that are built in, bounds of fields are left out: a call that breaks one is told what is wrong.
        """
        if self.source != "builtin" or self.client_side:
            return ToolDefinition(
                name=self.name, description=self.description, input_schema=self.input_schema
            )
        unnamed = [name for name in self.seldom if f"`{name}`" not in self.description]
        more = f" Also takes {', '.join(unnamed)}: see tool_describe." if unnamed else ""
        fields = {
            name: {key: value for key, value in field.items() if key not in _BOUNDS}
            for name, field in self.input_schema.get("properties", {}).items()
            if name not in self.seldom
        }
        schema: dict[str, Any] = {"type": "object", "properties": fields}
        if required := self.input_schema.get("required"):
            schema["required"] = required
        return ToolDefinition(name=self.name, description=self.description + more, input_schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to the user that ends the turn; any answer is allowed.

    Attributes:
        options: Suggested answers.
        resumable: The tool continues with the answer (see `Resumable`). If false, the answer is the call's result.
        is_secret: The answer to the question of a running call is not logged.
    """

    text: str
    options: tuple[str, ...] = ()
    resumable: bool = False
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a call.

    Attributes:
        text: For the model, of any length: the loop truncates it and saves the rest to a file.
        is_error: The call failed; `text` says why and what to do.
        data: The same as JSON data, for programs, or None.
        question: Set by a tool that needs the user: the turn ends, and the next message becomes this call's result.
        untrusted: `text` comes from outside (the web, an MCP server).
        ends_turn: Nothing is left to do for the model: the turn ends after this round, and `text` is its answer.
        files: Pictures and files that belong to it, kept with `satchel.tools.kept.keep`. `text` names them and says
            where they are, for models that can't see.
    """

    text: str
    is_error: bool = False
    data: Any = None
    question: Question | None = None
    untrusted: bool = False
    ends_turn: bool = False
    files: tuple[FileBlock, ...] = ()


Ask: TypeAlias = Callable[[Question], Awaitable[str | None]]
"""Shows a question to the user at once and waits for the answer; None if they decline."""


class Blocking(Protocol):
    """Runs blocking functions on the tools' thread pool."""

    async def __call__(self, function: Callable[..., T], /, *args: Any) -> T:
        """Return what the function returns."""
        ...


class MemoryAccess(Protocol):
    """What a tool may do with memory: the part of `satchel.memory.Memory` that this room is allowed to know."""

    async def search(self, query: str, *, limit: int = 10) -> Sequence[Any]:
        """The matching memories, best first; see `Memory.search`."""
        ...

    async def add(self, content: str) -> Any:
        """Store a memory; see `Memory.add`."""
        ...


class CatalogueAccess(Protocol):
    """What a tool may do with capabilities: the part of `satchel.capabilities.Catalogue` that this room may know."""

    async def find(self, name: str) -> Any | None:
        """The capability with this name or id, or None; see `Catalogue.find`."""
        ...

    async def list(self, *statuses: Any) -> Sequence[Any]:
        """All capabilities, or those with one of these statuses; see `Catalogue.list`."""
        ...


class Modes(Protocol):
    """What a tool may do with the session's permission mode: the part of `ModeGate` that `propose_plan` needs."""

    mode: Mode

    @property
    def before_plan(self) -> Mode:
        """See `ModeGate`."""
        ...


class Delegate(Protocol):
    """Gives a task to a sub-agent of the session."""

    async def __call__(self, task: str, tools: Sequence[str], context: ToolContext) -> ToolResult:
        """Let it work, and return what it answers. It gets the named tools beside those that only read."""
        ...


@dataclass(slots=True, kw_only=True)
class SessionContext:
    """What all calls of a session may use.

    Attributes:
        cwd: The session's working directory. A tool may keep its own in `state`, as the shell does.
        roots: Folders (with everything below them) and single files that file tools may access, with symlinks
            resolved.
        spill_dir: Where long results are saved; the file tools may read it.
        state: Values that tools keep for the session, under keys that begin with the tool's name ("bash.cwd"). Lost
            when the session is closed.
        environ: The environment for processes that the tool starts.
        ask: Asks the user during the call (see `Ask`). None if nobody can be asked now; a question then has to end
            the turn.
        messages: Returns the conversation so far, as the model sees it; empty outside a conversation.
        memory: The user's memory, or None if there is none. Only tools that run in this process can use it.
        catalogue: The user's capabilities, or None if the database is unavailable.
        modes: The session's permission mode; None outside of a session, and for sub-agents. So is `delegate`.
    """

    session_id: str
    cwd: Path
    roots: Sequence[Path]
    spill_dir: Path
    state: dict[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    ask: Ask | None = None
    messages: Callable[[], Sequence[Message]] = tuple
    memory: MemoryAccess | None = None
    catalogue: CatalogueAccess | None = None
    modes: Modes | None = None
    delegate: Delegate | None = None


@dataclass(slots=True, kw_only=True)
class ToolContext(SessionContext):
    """What a call may use.

    Attributes:
        progress: Reports the call's progress. The data is shown and not logged.
        blocking: Runs a blocking function on the tools' thread pool.
        timeout_s: The call's time limit; the loop enforces it by cancelling the call.
        untrusted: The model has read something from outside in this session, so what it writes may come from there.
        box: The sandbox in which the call must run, as it was permitted; None runs it outside, with the user's rights.
    """

    turn: int
    call_id: str
    progress: Callable[[Mapping[str, Any]], Awaitable[None]]
    blocking: Blocking
    clock: Clock
    timeout_s: float
    untrusted: bool = False
    box: Box | None = None


class Tool(Protocol):
    """Something that a model can call."""

    @property
    def spec(self) -> ToolSpec: ...  # noqa: D102

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        """The resources that the call would use; empty if it can't conflict with other calls."""
        ...

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run the call. `input` is valid against `spec.input_schema`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """The call to make in place of another one."""

    tool: Tool
    input: Mapping[str, Any]


@runtime_checkable
class Redirecting(Protocol):
    """A tool whose calls are calls of other tools.

    The loop asks it for the real call first and continues with that. The schema, permissions, effects and time limit
    of the real tool apply, so nothing is allowed indirectly that is not allowed directly.
    """

    def redirect(self, input: Mapping[str, Any]) -> Redirect | str:
        """The real call, or an explanation for the model why there is none."""
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """A tool that knows of calls that would fail, so that nobody is asked for permission."""

    def foresee(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Why the call would fail, as the model gets it, or ""."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A tool whose call can continue after its question ended the turn, even in another process."""

    async def resume(self, answer: str, context: ToolContext) -> ToolResult:
        """Continue the call `context.call_id`.

        Returns:
            The call's result; an error if it can no longer continue.
        """
        ...


class Toolset(Protocol):
    """A source of tools."""

    async def tools(self) -> Sequence[Tool]:
        """Its tools in a fixed order. If a part of it is down, it returns fewer tools and doesn't raise."""
        ...
