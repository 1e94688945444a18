"""One MCP server: started when it is needed, spoken to by any number of calls, started again when it went away."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.config import McpServerSettings
from satchel.errors import SatchelError, UserError
from satchel.tools.mcp.definitions import Definition, Listing, left_out, read_listing
from satchel.tools.mcp.log import CappedLog
from satchel.tools.mcp.pins import Pins, PinStore
from satchel.tools.mcp.places import Lookup, environment, filled_in, folder, program
from satchel.tools.mcp.questions import Answer, Elicitation, read_answer
from satchel.tools.mcp.transports import cleaned, http_transport, sse_transport, stdio_transport
from satchel.tools.port import Ask

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import InputResponses

__all__ = ["Failed", "Host", "InputNeeded", "McpServer", "Outcome", "State"]

State: TypeAlias = Literal["idle", "starting", "ready", "down"]

END_S = 15.0
"""Until a server and all that comes from it are ended: more than the sandbox takes for it."""
MAX_PAGES = 100
"""Of a list of tools; a server that always names a further page would never end."""
RELIST_S = 1.0
"""Between two readings of a list that changes: one that changes all the time costs no more."""
BACKOFF_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Before the next start, by the number of failures in a row."""
UNKNOWN_TRIES = 6
"""How often a server whose tools nobody knows yet is started by itself, half a minute in all; then on demand."""
MAX_ROUNDS = 10
"""How often one call may ask for more input."""
MAX_TRIES = 3
"""How often the user is asked again where their answer could not be read."""
PROGRESS_S = 0.1
"""Between two signs of progress that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the servers share.

    Attributes:
        environ: Of this process; a server gets only a few variables of it.
        lookup: Variables that entries refer to.
        cwd: Where programs start: the session's folder where it is trusted, else SATCHEL_HOME. `python -m` and
            `npx` run code from the folder that they start in.
        home: SATCHEL_HOME; a relative path in the user's own settings starts there.
        logs: The folder for what they write to stderr.
        spawn: Runs something in the background until the program ends.
        tell: Takes a notice for the user.
        changed: Called when the tools on offer are others than before.
        timeout_s: Of a call, where the entry has no limit of its own.
        start_s: Until a server has listed its tools.
        version: Ours, for the server.
    """

    environ: Mapping[str, str] = field(repr=False)
    lookup: Lookup
    cwd: Path
    home: Path
    logs: Path
    pins: PinStore
    clock: Clock
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
    tell: Callable[[str], None]
    changed: Callable[[], None]
    timeout_s: float
    start_s: float
    version: str
    limiter: anyio.CapacityLimiter


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A call that gave no result; `reason` says why, as a clause."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputNeeded:
    """The server needs the user's answer before it goes on, and nobody could be asked now.

    Attributes:
        key: The server's name for the question.
        state: The server's own, to be given back as it is.
    """

    key: str
    elicitation: Elicitation
    state: str | None


Outcome: TypeAlias = "Mapping[str, Any] | Failed | InputNeeded"
"""The protocol's result of a call, or why there is none."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Flight:
    """One call that runs: its time limit stands still while the user is asked."""

    scope: anyio.CancelScope
    ask: Ask | None
    limit_s: float
    asking: int = 0
    notes: list[str] = field(default_factory=list)

    def pause(self) -> None:
        self.asking += 1
        self.scope.deadline = float("inf")

    def resume(self) -> None:
        self.asking -= 1
        if not self.asking:
            self.scope.deadline = anyio.current_time() + self.limit_s


class McpServer:
    """One entry. At most one connection, and one process, at a time."""

    def __init__(self, entry: McpServerSettings, host: Host) -> None:
        """Take the entry as it is written; nothing is started."""
        self.entry = entry
        self.state: State = "idle"
        self.reason = ""
        self.protocol = ""
        self.transport: Literal["stdio", "http", "sse"] = "stdio" if entry.command else entry.transport
        self.problems: tuple[str, ...] = ()
        self.pins: Pins | None = None
        try:
            self.pins = host.pins.load(entry)
        except UserError as error:
            # Not "never met", which would accept everything that the server says now.
            self.pins, self.problems = Pins(), (str(error),)
            host.tell(str(error))
        self.log = CappedLog(host.logs / f"mcp-{entry.name}.log")
        self._host = host
        self._client: Client | None = None
        self._changed = anyio.Event()
        self._relist = anyio.Event()
        self._gone = anyio.Event()
        self._gone_reason = ""
        self._scope = anyio.CancelScope()
        self._is_running = False
        self._is_closed = False
        self._was_told_down = False
        self._failures = 0
        self._retry_at_s = 0.0
        self._flights: list[_Flight] = []
        self._unreadable: list[str] = []
        self._ended = anyio.Event()

    @property
    def name(self) -> str:
        """Of the entry."""
        return self.entry.name

    @property
    def offered(self) -> tuple[Definition, ...]:
        """The tools that a model may be told of, in the order of their names."""
        return self.pins.offered if self.pins is not None else ()

    @property
    def limit_s(self) -> float:
        """Of one call."""
        return self.entry.timeout_s if self.entry.timeout_s is not None else self._host.timeout_s

    # Starting

    def begin(self) -> None:
        """Start it in the background, unless it runs or its pause after a failure is not over."""
        if self._is_running or self._is_closed or self._pause_s() > 0:
            return
        self._is_running = True
        self._set("starting")
        self._ended = anyio.Event()
        self._host.spawn(self._run)

    async def connected(self, limit_s: float) -> str:
        """Have it running.

        Args:
            limit_s: Of the wait.

        Returns:
            "" when it is ready, else why it is not, as a clause.
        """
        with anyio.move_on_after(limit_s):
            while self.state == "ready" and self._gone.is_set():
                # What went away is still being ended.
                await self._changed.wait()
            self.begin()
            while self.state == "starting":
                await self._changed.wait()
        if self.state == "ready":
            return ""
        if self.state == "starting":
            return f"it is still starting after {limit_s:g} s"
        pause_s = self._pause_s()
        return f"{self.reason}; it is started again in {pause_s:.0f} s" if pause_s > 0 else self.reason

    async def relisted(self, limit_s: float) -> str:
        """Have it running, and its list of tools read anew; the same returns as `connected`."""
        was_ready = self.state == "ready"
        down = await self.connected(limit_s)
        if down or not was_ready or self._client is None:
            return down
        with anyio.move_on_after(limit_s) as scope:
            # A boundary: a stranger's server; whatever it does wrong is told as a reason.
            try:
                await self._read_list(self._client)
            except Exception as error:  # noqa: BLE001
                return _words(error)
        return f"it did not list its tools within {limit_s:g} s" if scope.cancelled_caught else ""

    async def aclose(self) -> None:
        """End it and all that comes from it."""
        self._is_closed = True
        if self._is_running:
            self._scope.cancel()
            # Shielded, because this is what ends the processes; bounded, because a task that was cancelled before its
            # first step never tells that it ended.
            with anyio.move_on_after(END_S, shield=True):
                await self._ended.wait()
        self.log.close()

    def _pause_s(self) -> float:
        return self._retry_at_s - self._host.clock.monotonic_s()

    def _set(self, state: State, reason: str = "") -> None:
        self.state, self.reason = state, reason
        self._changed.set()
        self._changed = anyio.Event()

    async def _run(self) -> None:
        """Serve; a server that nobody knows yet is tried again by itself, with pauses that grow."""
        try:
            while True:
                await self._serve_once()
                if not self._goes_on():
                    return
                with anyio.CancelScope() as self._scope:
                    await anyio.sleep(max(0.0, self._pause_s()))
                    self._set("starting")
        finally:
            self._is_running = False
            self._ended.set()

    def _goes_on(self) -> bool:
        return not self._is_closed and self.pins is None and self._failures < UNKNOWN_TRIES

    async def _serve_once(self) -> None:
        if self._is_closed:
            return
        self._gone, self._gone_reason = anyio.Event(), ""
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + self._host.start_s)
        # A boundary: a stranger's server; whatever it does wrong is told as a reason.
        try:
            with self._scope:
                await self._serve()
        except Exception as error:  # noqa: BLE001
            reason = self._gone_reason or _words(error)
        else:
            reason = self._gone_reason
            if self._scope.cancelled_caught and self.state == "starting":
                reason = f"it did not start within {self._host.start_s:g} s"
        finally:
            self._client = None
            if self._is_closed:
                self._set("idle")
        if not self._is_closed:
            said = self.log.last_words if reason in ("", "it left") else ""
            self._failed(f"it left; the last that it said was: {said}" if said else reason or "it left")

    def _failed(self, reason: str) -> None:
        was_ready = self.state == "ready"
        # What ran before is started again at once; what did not start will hardly do so in the same second.
        step = self._failures if was_ready else self._failures + 1
        pause_s = BACKOFF_S[min(step, len(BACKOFF_S) - 1)]
        self._failures += 1
        self._retry_at_s = self._host.clock.monotonic_s() + pause_s
        self.log.write(f"[satchel] {reason}\n".encode("utf-8", "replace"))
        self._set("down", reason)
        if not was_ready and not self._was_told_down:
            self._was_told_down = True
            self._host.tell(
                f"The MCP server {self.name} is not available: {reason}. Its tools answer with an error until it is "
                f"back; what it said is in {self.log.path}."
            )

    # Serving

    async def _serve(self) -> None:
        await anyio.to_thread.run_sync(_load_sdk, limiter=self._host.limiter)
        entry = filled_in(self.entry, self._host.lookup)
        if entry.command:
            environ = environment(entry, self._host.environ)
            transport = stdio_transport(
                replace(entry, command=program(entry, self._host.home, environ)),
                cwd=folder(entry, self._host.cwd, environ),
                environ=environ,
                log=self.log.hear,
                on_gone=self._leave,
            )
            await self._speak(transport)
        elif self.transport == "sse":
            await self._speak(sse_transport(entry))
        else:
            await self._speak_http(entry)

    async def _speak_http(self, entry: McpServerSettings) -> None:
        try:
            await self._speak(http_transport(entry))
        except Exception as error:
            # What was ready spoke it; what can't be reached at all is not reached by SSE either.
            if self.state != "starting" or not _is_refusal(error):
                raise
            self.log.write(f"[satchel] no streamable HTTP ({_words(error)}); trying SSE\n".encode())
            self.transport = "sse"
            try:
                await self._speak(sse_transport(entry))
            except Exception:
                # The older way was a guess; the first error is what the user should read.
                if self.state == "starting":
                    self.transport = "http"
                    raise error from None
                raise

    async def _speak(self, transport: AbstractAsyncContextManager[Any]) -> None:
        from mcp import Client  # noqa: PLC0415  loaded in `_load_sdk`
        from mcp.types import (  # noqa: PLC0415
            ElicitRequestFormParams,
            ElicitRequestURLParams,
            ElicitResult,
            Implementation,
        )

        async def elicited(
            context: Any,  # noqa: ARG001  the SDK's shape
            params: ElicitRequestFormParams | ElicitRequestURLParams,
        ) -> ElicitResult:
            return ElicitResult.model_validate(await self._elicited(self._read_elicitation(params)))

        client = Client(
            cleaned(transport, self._left_out),
            client_info=Implementation(name="satchel", version=self._host.version),
            elicitation_callback=elicited,
            message_handler=self._heard,
            cache=None,
        )
        async with client:
            await self._read_list(client)
            self.protocol = client.protocol_version
            self._client = client
            self._scope.deadline = float("inf")
            self._set("ready")
            if self._was_told_down:
                self._was_told_down = False
                self._host.tell(f"The MCP server {self.name} is back.")
            async with anyio.create_task_group() as group:
                group.start_soon(self._follow_list, client)
                group.start_soon(self._listen, client)
                await self._gone.wait()
                group.cancel_scope.cancel()

    def _leave(self, reason: str) -> None:
        """The connection ended by the other side."""
        if not self._gone.is_set():
            self._gone_reason = reason
            self._gone.set()

    # Its list

    def _left_out(self, tool: str, reason: str) -> None:
        self._unreadable.append(left_out(self.name, tool, reason))

    async def _read_list(self, client: Client) -> None:
        self._unreadable = []
        raw: list[Mapping[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            raw += [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        listing = await anyio.to_thread.run_sync(
            partial(read_listing, self.name, raw), limiter=self._host.limiter
        )
        await self._learn(listing)

    async def _learn(self, listing: Listing) -> None:
        before = self.pins
        self.problems = (*self._unreadable, *listing.problems)
        try:
            pins = await anyio.to_thread.run_sync(
                self._host.pins.learn, self.entry, listing.tools, limiter=self._host.limiter
            )
        except SatchelError as error:
            # Not kept: the next process meets the server anew. For this one it holds.
            self._host.tell(f"What the MCP server {self.name} offers could not be kept: {error}")
            accepted = {definition.name: definition for definition in listing.tools}
            known = before or Pins(accepted=accepted)
            pins = known.merged(listing.tools, accept_changes=self.entry.accept_changes)
        self.use(pins)
        told = before.waiting if before is not None else {}
        fresh = [name for name, waiting in pins.waiting.items() if told.get(name) != waiting]
        if fresh:
            changed = sum(name in pins.accepted for name in fresh)
            self._host.tell(
                f"The MCP server {self.name} describes {len(fresh)} of its tools in a way that you have not approved "
                f"({changed} changed, {len(fresh) - changed} new). They are withheld: "
                f"`satchel tool list --source mcp` shows them, `satchel tool approve NAME` accepts one."
            )

    def use(self, pins: Pins) -> None:
        """Offer what these pins say from now on."""
        before, self.pins = self.offered, pins
        if self.offered != before:
            self._host.changed()

    async def _follow_list(self, client: Client) -> None:
        while True:
            await self._relist.wait()
            self._relist = anyio.Event()
            # A boundary: a stranger's server; a list that can't be read leaves the one before.
            try:
                await self._read_list(client)
            except Exception as error:  # noqa: BLE001
                self.log.write(f"[satchel] the changed list can't be read: {_words(error)}\n".encode())
            await anyio.sleep(RELIST_S)

    async def _listen(self, client: Client) -> None:
        """Hear of changes the way that the newest revision tells them; older ones tell by themselves."""
        tools = client.server_capabilities.tools
        if client.session.discover_result is None or tools is None or not tools.list_changed:
            return
        # A boundary: a stranger's server; without the stream, changes are seen at the next start.
        try:
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._relist.set()
        except Exception as error:  # noqa: BLE001
            self.log.write(f"[satchel] no news of changed tools: {_words(error)}\n".encode())

    async def _heard(self, message: Any) -> None:
        from mcp.types import ToolListChangedNotification  # noqa: PLC0415  loaded in `_load_sdk`

        if isinstance(message, ToolListChangedNotification):
            self._relist.set()
        elif isinstance(message, Exception):
            self.log.write(f"[satchel] {_words(message)}\n".encode("utf-8", "replace"))

    # Calls

    def withheld(self, name: str) -> str:
        """Why a tool must not be called now, as a clause, or ""."""
        pins = self.pins or Pins()
        if name in pins.waiting:
            return "its definition changed since it was approved"
        return (
            "" if name in pins.accepted and name in pins.listed else "the server does not offer it any more"
        )

    async def call(
        self,
        name: str,
        input: Mapping[str, Any],
        *,
        progress: Callable[[Mapping[str, Any]], Awaitable[None]],
        ask: Ask | None,
        answers: Mapping[str, Any] | None = None,
        state: str | None = None,
    ) -> tuple[Outcome, Sequence[str]]:
        """Call a tool of it; the server is started where it does not run.

        Args:
            name: The server's own.
            input: Fits the schema.
            progress: Told how far it is.
            ask: Asks the user while the call runs, or None.
            answers: To what an earlier try asked (`InputNeeded`), as the protocol has it.
            state: The earlier try's.

        Returns:
            What came of it, and what else the model should know.
        """
        limit_s = self.limit_s
        down = await self.connected(limit_s)
        if down or self._client is None:
            return Failed(reason=f"the MCP server {self.name} is not available: {down}"), ()
        why = self.withheld(name)
        if why:
            return Failed(reason=f"it is withheld: {why}"), ()
        client, gone = self._client, self._gone
        flight = _Flight(scope=anyio.CancelScope(), ask=ask, limit_s=limit_s)
        flight.scope.deadline = anyio.current_time() + limit_s
        outcome: Outcome = Failed(reason=f"it was stopped after {limit_s:g} s")
        self._flights.append(flight)
        # A boundary: a stranger's server; whatever it does wrong is an error result.
        try:
            with flight.scope:
                outcome = await self._converse(client, name, input, flight, progress, answers, state)
                self._failures = 0
        except Exception as error:  # noqa: BLE001
            outcome = Failed(reason=self._call_failure(error, gone))
        finally:
            self._flights.remove(flight)
        return outcome, flight.notes

    async def _converse(
        self,
        client: Client,
        name: str,
        input: Mapping[str, Any],
        flight: _Flight,
        tell: Callable[[Mapping[str, Any]], Awaitable[None]],
        answers: Mapping[str, Any] | None,
        state: str | None,
    ) -> Outcome:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415  loaded in `_load_sdk`
        from mcp.types import (  # noqa: PLC0415
            URL_ELICITATION_REQUIRED,
            CallToolResult,
            ElicitRequest,
            ElicitResult,
        )

        shown_s = 0.0

        async def show(progress: float, total: float | None, message: str | None) -> None:
            nonlocal shown_s
            now_s = anyio.current_time()
            if now_s - shown_s >= PROGRESS_S or (total is not None and progress >= total):
                shown_s = now_s
                await tell({"progress": progress, "total": total, "message": (message or "")[:500]})

        responses: InputResponses | None = (
            {key: ElicitResult.model_validate(value) for key, value in answers.items()} if answers else None
        )
        for _ in range(MAX_ROUNDS):
            try:
                result = await client.session.call_tool(
                    name,
                    dict(input),
                    progress_callback=show,
                    input_responses=responses,
                    request_state=state,
                    allow_input_required=True,
                )
            except MCPError as error:
                if error.code != URL_ELICITATION_REQUIRED:
                    raise
                refused = await self._sent_elsewhere(error, flight)
                if refused:
                    return Failed(reason=refused)
                continue
            if isinstance(result, CallToolResult):
                return result.model_dump(by_alias=True, mode="json", exclude_none=True)
            state = result.request_state
            responses = None
            requests = result.input_requests or {}
            if not requests:
                await anyio.sleep(PROGRESS_S)
            if len(requests) == 1 and flight.ask is None:
                key, request = next(iter(requests.items()))
                if isinstance(request, ElicitRequest):
                    return InputNeeded(
                        key=key, elicitation=self._read_elicitation(request.params), state=state
                    )
            for key, request in requests.items():
                if not isinstance(request, ElicitRequest):
                    return Failed(reason=f"the server asks for {request.method}, which is not offered to it")
                given = await self._ask(self._read_elicitation(request.params), flight)
                responses = {**(responses or {}), key: ElicitResult.model_validate(given)}
        return Failed(reason=f"the server asked for more input {MAX_ROUNDS} times")

    def _call_failure(self, error: Exception, gone: anyio.Event) -> str:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415  loaded in `_load_sdk`
        from mcp.types import CONNECTION_CLOSED  # noqa: PLC0415

        first = _first(error)
        if isinstance(first, MCPError) and first.code == CONNECTION_CLOSED:
            self._leave("the connection was closed")
        elif isinstance(first, MCPError) and "Session terminated" in first.message:
            # An HTTP server that was started again knows nothing of our session.
            self._leave("it ended our session")
            return "the server had been started again and knew nothing of the session; try again"
        if gone.is_set():
            return (
                f"the MCP server {self.name} went away during the call ({self._gone_reason}). "
                "Whether it did what was asked is unknown: check before repeating"
            )
        return _words(error)

    # Elicitation

    def _read_elicitation(self, params: Any) -> Elicitation:
        return Elicitation.read(self.name, params.model_dump(by_alias=True, mode="json", exclude_none=True))

    async def _elicited(self, elicitation: Elicitation) -> Mapping[str, Any]:
        """Answer a server of an older revision, which asks in the middle of a call and does not say of which."""
        flight = next((each for each in reversed(self._flights) if each.ask is not None), None)
        flight = flight or (self._flights[-1] if self._flights else None)
        if flight is None:
            # Nobody called it: nothing that the user did can be what it asks about.
            return {"action": "decline"}
        return await self._ask(elicitation, flight)

    async def _sent_elsewhere(self, error: Any, flight: _Flight) -> str:
        """The server does nothing before the user has been at an address; why the call can't go on, or ""."""
        data = error.data if isinstance(error.data, dict) else {}
        listed = data.get("elicitations")
        for params in listed if isinstance(listed, list) and listed else [{}]:
            elicitation = Elicitation.read(self.name, params if isinstance(params, dict) else {})
            told = await self._ask(elicitation, flight)
            if told["action"] != "accept":
                where = elicitation.url or "an address"
                return f"the user has to open {where} first, and did not: {elicitation.message}"
        return ""

    async def _ask(self, elicitation: Elicitation, flight: _Flight) -> Mapping[str, Any]:
        if flight.ask is None:
            flight.notes.append(
                f"[The MCP server {self.name} asked the user: {elicitation.message[:500]!r}. Nobody can be asked in "
                "this run, so it was declined.]"
            )
            return {"action": "decline"}
        flight.pause()
        try:
            content: dict[str, Any] = {}
            for step in elicitation.steps():
                answer = await _answer_to(step, flight.ask)
                if answer.action != "accept":
                    return _told(answer.action, None)
                content |= answer.content or {}
        finally:
            flight.resume()
        return _told("accept", None if elicitation.url else content)


async def _answer_to(step: Elicitation, ask: Ask) -> Answer:
    """What the user says to one question, which is put to them again where it can't be read."""
    problem = ""
    for _ in range(MAX_TRIES):
        words = await ask(step.question(problem))
        if words is None:
            break
        answer = read_answer(step, words)
        problem = answer.problem
        if not problem:
            return answer
    return Answer(action="cancel")


def _told(action: str, content: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {"action": action} if content is None else {"action": action, "content": dict(content)}


def _load_sdk() -> None:
    """Import the SDK (0.7 s, in a thread), and keep what it logs from the terminal: the user gets reasons."""
    import mcp  # noqa: F401, PLC0415

    logger = logging.getLogger("mcp")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    client = logging.getLogger("client")
    if not client.handlers:
        client.addHandler(logging.NullHandler())
        client.propagate = False


def _first(error: BaseException) -> BaseException:
    """The error itself, out of the groups that task groups wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _words(error: BaseException) -> str:
    """An error as a clause of bounded length."""
    first = _first(error)
    text = " ".join(str(first).split())[:500].rstrip(".")
    if text and (isinstance(first, SatchelError) or type(first).__name__ == "MCPError"):
        return text
    return f"{type(first).__name__}: {text}" if text else type(first).__name__


def _is_refusal(error: BaseException) -> bool:
    """Whether a server answered, and did not want to be spoken to in this way."""
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415  loaded in `_load_sdk`

    return isinstance(_first(error), MCPError)
