"""One MCP server: started on demand, shared by all calls, and restarted after it failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.config import McpServerSettings
from satchel.errors import SandboxError, SatchelError, UserError
from satchel.tools.box import Box
from satchel.tools.boxed import Workspaces, moved_notes
from satchel.tools.mcp.connection import Connection, connect
from satchel.tools.mcp.definitions import PROMPTS, RESERVED, RESOURCES, SERVER, McpDefinition, ToolListing
from satchel.tools.mcp.exchange import Caller, Failed, InputNeeded, ServerRequest, roots_result
from satchel.tools.mcp.failures import first_error, is_refusal, load_sdk, reason_of
from satchel.tools.mcp.log import CappedLog
from satchel.tools.mcp.logins import LoginStore, collecting_refusals
from satchel.tools.mcp.offers import McpPrompt, McpResource
from satchel.tools.mcp.pins import Pins, PinStore
from satchel.tools.mcp.places import Lookup, environment, filled_in, folder, program
from satchel.tools.mcp.sampling import Sampler
from satchel.tools.mcp.transports import http_transport, sse_transport, stdio_transport
from satchel.tools.pins import ApprovedElsewhere

if TYPE_CHECKING:
    from httpx2 import Auth

T = TypeVar("T")

State: TypeAlias = Literal["idle", "starting", "ready", "down"]

START_S = 60.0
"""The limit for starting a server: a package runner may have to download it first."""
END_S = 15.0
"""For ending a server and all its processes; the sandbox takes less."""
BACKOFF_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""The pause before the next start, by the number of failures in a row."""
UNKNOWN_TRIES = 6
"""Automatic starts of a server whose tools are not known yet, over half a minute; after that, it starts on demand."""


@dataclass(slots=True, kw_only=True)
class ServerHost:
    """What the servers share.

    Attributes:
        home: SATCHEL_HOME, which holds the pins, the logins and the logs; a relative path in the user's own settings
            starts there.
        cwd: Where programs start whose entry names no folder: the session's folder where it is trusted, else the home.
            `python -m` and `npx` run code from the folder that they start in.
        environ: The environment of this process; a server gets only a few variables of it.
        lookup: Variables that entries refer to.
        timeout_s: The limit of a call, unless the entry has its own.
        roots: The folders that servers may know of: the workspace if it is trusted, else none.
        sampler: Answers servers' sampling requests with a session's model; without one, they are refused.
        boxes: Where servers run that calls of mode `auto` start; None if none do.
        elsewhere: What the user approved at other machines.
        changed: Called when the offered tools have changed.
    """

    home: Path
    cwd: Path
    environ: Mapping[str, str] = field(repr=False)
    lookup: Lookup
    clock: Clock
    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
    tell: Callable[[str], None]
    timeout_s: float
    version: str
    roots: Sequence[Path] = ()
    start_s: float = START_S
    sampler: Sampler | None = None
    boxes: Workspaces | None = None
    elsewhere: ApprovedElsewhere = field(default_factory=ApprovedElsewhere)
    changed: Callable[[], None] = lambda: None
    limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2), init=False)
    pins: PinStore = field(init=False)
    logins: LoginStore = field(init=False)

    def __post_init__(self) -> None:
        """Take the stores of the home; nothing is read."""
        self.pins = PinStore(self.home, self.clock, self.elsewhere)
        self.logins = LoginStore(self.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBox:
    """A sandbox in which a server runs: that of a folder, and what it may reach beyond it."""

    folder: Path
    box: Box


Outcome: TypeAlias = "Mapping[str, Any] | Failed | InputNeeded"
"""The protocol's result of a request, or why there is none."""


class McpServer:
    """One entry of the settings, with at most one connection and one process outside of sandboxes, and one in each.

    Attributes:
        refusal: Why it must not be started for its tools to be listed, or "".
    """

    def __init__(
        self,
        entry: McpServerSettings,
        host: ServerHost,
        *,
        place: ServerBox | None = None,
        outside: McpServer | None = None,
    ) -> None:
        """Take the entry as it is written. Nothing is started. `place` is the sandbox in which it runs; `outside` the
        server outside of it, whose pins it has.
        """
        self.entry = entry
        self.refusal = ""
        self._place = place
        self._outside = outside
        self._pins: Pins | None = None
        self._boxed: dict[ServerBox, McpServer] = {}
        self._boxed_last: McpServer | None = None
        self.state: State = "idle"
        self.reason = ""
        self.protocol = ""
        self.transport: Literal["stdio", "http", "sse"] = "stdio" if entry.command else entry.transport
        self.problems: tuple[str, ...] = ()
        try:
            if outside is None:
                self.pins = host.pins.load(entry)
        except UserError as error:
            # Not "never met", which would accept everything that the server says now.
            self.pins, self.problems = Pins(), (str(error),)
            host.tell(str(error))
        self.log = CappedLog(host.home / "logs" / f"mcp-{entry.name}{'' if place is None else '-boxed'}.log")
        self._host = host
        self._connection: Connection | None = None
        self._changed = anyio.Event()
        self._gone = anyio.Event()
        self._gone_reason = ""
        self._refusals: list[str] = []
        self._scope = anyio.CancelScope()
        self._is_running = False
        self._is_closed = False
        self._was_told_down = False
        self._failures = 0
        self._retry_at_s = 0.0
        self._exchanges: list[ServerRequest] = []
        self._sampled: Counter[str] = Counter()
        self._ended = anyio.Event()

    @property
    def name(self) -> str:
        """The name of the entry."""
        return self.entry.name

    @property
    def pins(self) -> Pins | None:
        """What is known of its tools; the same in every sandbox. None before it was first met."""
        return self._pins if self._outside is None else self._outside.pins

    @pins.setter
    def pins(self, pins: Pins | None) -> None:
        if self._outside is None:
            self._pins = pins
        else:
            self._outside.pins = pins

    def refers_to_same(self, before: Lookup, now: Lookup) -> bool:
        """Whether the variables that its entry refers to have the same values in two places."""
        found: list[McpServerSettings | None] = []
        for lookup in (before, now):
            try:
                found.append(filled_in(self.entry, lookup))
            except UserError:
                found.append(None)
        return found[0] == found[1]

    @property
    def can_box(self) -> bool:
        """Whether it is a program, which can run in a sandbox."""
        return bool(self.entry.command) and self._host.boxes is not None

    @property
    def current(self) -> McpServer:
        """The process that serves requests that don't say where: the one that runs, in its sandbox if it has one.

        So a change of mode never moves a running server.
        """
        if self._is_running or self._boxed_last is None:
            return self
        return self._boxed_last

    def in_box(self, place: ServerBox) -> McpServer:
        """The server in a sandbox. One that runs and may reach at least as much serves as well."""
        for other, server in self._boxed.items():
            if other.folder == place.folder and not other.box.lacks(place.box) and server.state == "ready":
                self._boxed_last = server
                return server
        found = self._boxed.get(place)
        if found is None:
            found = self._boxed[place] = McpServer(self.entry, self._host, place=place, outside=self)
        self._boxed_last = found
        return found

    @property
    def offered(self) -> tuple[McpDefinition, ...]:
        """The tools that a model may see, sorted by name."""
        return tuple(each for each in self._accepted if each.name not in RESERVED)

    @property
    def instructions(self) -> str:
        """The server's accepted instructions for the use of its tools, or ""."""
        return next((each.description for each in self._accepted if each.name == SERVER), "")

    @property
    def has_resources(self) -> bool:
        """Whether it offered resources when it was last asked."""
        return any(each.name == RESOURCES for each in self._accepted)

    @property
    def has_prompts(self) -> bool:
        """Whether it offered prompts when it was last asked."""
        return any(each.name == PROMPTS for each in self._accepted)

    @property
    def _accepted(self) -> tuple[McpDefinition, ...]:
        return self.pins.offered if self.pins is not None else ()

    @property
    def outage(self) -> str:
        """A sentence for the user while it is down, or ""."""
        if self.state != "down":
            return ""
        return (
            f"The MCP server {self.name} is unavailable: {self.reason}. Its tools return errors until it is back. Its "
            f"output is in {self.log.path}."
        )

    @property
    def limit_s(self) -> float:
        """The limit of one request."""
        return self.entry.timeout_s if self.entry.timeout_s is not None else self._host.timeout_s

    # Starting

    def begin(self) -> None:
        """Start it in the background, unless it is running or still pausing after a failure."""
        if self._is_running or self._is_closed or self._pause_s() > 0:
            return
        self._is_running = True
        self._set("starting")
        self._ended = anyio.Event()
        self._host.spawn(self._run)

    def retry(self) -> None:
        """Let it start at once, whatever failed before: the user wants it, or has logged in."""
        self.refusal, self._retry_at_s = "", self._host.clock.monotonic_s()
        if self._is_running and self.state == "down":
            self._set("starting")
            self._scope.cancel()  # ends the pause

    async def connected(self, limit_s: float) -> str:
        """Start it if it is not running, and wait until it is ready.

        Returns:
            "" once it is ready, else the reason why it is not, as a clause.
        """
        with anyio.move_on_after(limit_s):
            while self.state == "ready" and self._gone.is_set():
                # The old connection is still being closed.
                await self._changed.wait()
            self.begin()
            while self.state == "starting":
                await self._changed.wait()
        if self._is_closed:
            return "it was switched off, changed or removed in the settings"
        if self.state == "ready":
            return ""
        if self.state == "starting":
            return f"it is still starting after {limit_s:g} s"
        pause_s = self._pause_s()
        return (
            f"{self.reason}; it can be tried again in {max(1, round(pause_s))} s"
            if pause_s > 0
            else self.reason
        )

    async def relisted(self, limit_s: float) -> str:
        """Start it if it is not running, and read its list of tools again; returns as `connected`."""
        was_ready = self.state == "ready"
        down = await self.connected(limit_s)
        if down or not was_ready or self._connection is None:
            return down
        with anyio.move_on_after(limit_s) as scope:
            # A boundary: a stranger's server. Whatever it does wrong becomes a reason.
            try:
                await self._relearn()
            except Exception as error:  # noqa: BLE001
                return reason_of(error)
        return f"it did not list its tools within {limit_s:g} s" if scope.cancelled_caught else ""

    async def aclose(self) -> None:
        """Stop it and all its processes."""
        self._is_closed = True
        async with anyio.create_task_group() as group:
            for boxed in self._boxed.values():
                group.start_soon(boxed.aclose)
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
        """Serve; retry a server whose tools are not known yet, with growing pauses."""
        try:
            while True:
                await self._serve_once()
                if not self._goes_on():
                    return
                with anyio.CancelScope() as self._scope:
                    await anyio.sleep(max(0.0, self._pause_s()))
                if not self._is_closed:
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
        # A boundary: a stranger's server. Whatever it does wrong becomes a reason.
        try:
            with self._scope, collecting_refusals() as self._refusals:
                await self._serve()
        except Exception as error:  # noqa: BLE001
            refused = self._refusals[-1] if self.state == "starting" and self._refusals else ""
            reason = refused or self._gone_reason or reason_of(error)
        else:
            reason = self._gone_reason
            if self._scope.cancelled_caught and self.state == "starting":
                reason = f"it did not start within {self._host.start_s:g} s"
        finally:
            self._connection = None
            if self._is_closed:
                self._set("idle")
        if not self._is_closed:
            said = self.log.last_words if reason in ("", "it exited") else ""
            self._failed(f"it exited; its last output was: {said}" if said else reason or "it exited")

    def _failed(self, reason: str) -> None:
        was_ready = self.state == "ready"
        # A server that was running restarts at once; one that failed to start would only fail again.
        step = self._failures if was_ready else self._failures + 1
        pause_s = BACKOFF_S[min(step, len(BACKOFF_S) - 1)]
        self._failures += 1
        self._retry_at_s = self._host.clock.monotonic_s() + pause_s
        self.log.write(f"[satchel] {reason}\n".encode("utf-8", "replace"))
        self._set("down", reason)
        if not was_ready and not self._was_told_down:
            self._was_told_down = True
            self._host.tell(self.outage)

    # Serving

    async def _serve(self) -> None:
        await anyio.to_thread.run_sync(load_sdk, limiter=self._host.limiter)
        entry = filled_in(self.entry, self._host.lookup)
        if entry.command:
            environ = environment(entry, self._host.environ)
            transport: AbstractAsyncContextManager[Any] = stdio_transport(
                replace(entry, command=program(entry, self._host.home, environ)),
                cwd=folder(entry, self._host.cwd, environ),
                environ=environ,
                log=self.log.hear,
                on_gone=self._leave,
            )
            if self._place is not None:
                transport = self._in_its_box(entry, environ, self._place)
            await self._speak(transport)
        elif self.transport == "sse":
            await self._speak(sse_transport(entry, self._auth(entry)))
        else:
            await self._speak_http(entry)

    def _in_its_box(
        self, entry: McpServerSettings, environ: Mapping[str, str], place: ServerBox
    ) -> AbstractAsyncContextManager[Any]:
        if self._host.boxes is None:
            raise SandboxError(
                "There is no sandbox, and this server was permitted in one. It was not started."
            )
        workspace = self._host.boxes.workspace(place.folder)
        named = Path(program(entry, self._host.home, environ))
        cwd = folder(entry, self._host.cwd, environ)
        # SATCHEL_HOME is hidden; what starts there outside starts in a folder of the workspace's own.
        hidden = cwd.is_relative_to(self._host.home)
        return stdio_transport(
            replace(entry, command=str(named) if "/" in entry.command else entry.command),
            cwd=workspace.server_caches if hidden else cwd,
            environ=environ,
            log=self.log.hear,
            on_gone=self._leave,
            launch=partial(
                workspace.alongside,
                box=place.box,
                read_only=(
                    *((named.parent,) if named.is_relative_to(self._host.home) else ()),
                    # What the entry names by its path, it needs: a script, or the folder that it serves.
                    *(
                        real
                        for path in (str(named), *entry.args)
                        if path.startswith("/")
                        for real in workspace.named(path)
                    ),
                ),
            ),
        )

    def _auth(self, entry: McpServerSettings) -> Auth:
        from satchel.tools.mcp.oauth import BearerAuth  # noqa: PLC0415  loads the SDK

        return BearerAuth(entry, self._host.logins, clock=self._host.clock)

    async def _speak_http(self, entry: McpServerSettings) -> None:
        try:
            await self._speak(http_transport(entry, self._auth(entry)))
        except Exception as error:
            # A server that was ready does speak it, and one that can't be reached has no SSE either.
            if self.state != "starting" or self._refusals or not is_refusal(error):
                raise
            self.log.write(f"[satchel] no streamable HTTP ({reason_of(error)}); trying SSE\n".encode())
            self.transport = "sse"
            try:
                await self._speak(sse_transport(entry, self._auth(entry)))
            except Exception:
                # SSE was a guess; the first error is the one that helps the user.
                if self.state == "starting":
                    self.transport = "http"
                    raise error from None
                raise

    async def _speak(self, transport: AbstractAsyncContextManager[Any]) -> None:
        async with (
            connect(
                self.name,
                transport,
                version=self._host.version,
                respond=self._respond,
                log=self._note,
                limiter=self._host.limiter,
            ) as connection,
            anyio.create_task_group() as group,
        ):
            self._connection = connection
            # Subscribe before the list is read, so that no change is missed.
            await group.start(connection.follow, self._relearn)
            await self._learn(await connection.tools())
            self.protocol = connection.protocol
            self._scope.deadline = float("inf")
            self._set("ready")
            if self._place is not None and self._host.boxes is not None:
                self._host.boxes.workspace(self._place.folder).note_start(self.name, self._place.box)
            if self._was_told_down:
                self._was_told_down = False
                self._host.tell(f"The MCP server {self.name} is back.")
            await self._gone.wait()
            group.cancel_scope.cancel()

    def _leave(self, reason: str) -> None:
        """Note that the other side closed the connection."""
        if not self._gone.is_set():
            self._gone_reason = reason
            self._gone.set()

    def _note(self, line: str) -> None:
        self.log.write(f"[satchel] {line}\n".encode("utf-8", "replace"))

    # Its definitions

    async def _relearn(self) -> None:
        if self._connection is not None:
            await self._learn(await self._connection.tools())

    async def _learn(self, listing: ToolListing) -> None:
        before = self.pins
        self.problems = listing.problems
        try:
            pins = await anyio.to_thread.run_sync(
                self._host.pins.learn, self.entry, listing.tools, limiter=self._host.limiter
            )
        except SatchelError as error:
            # Holds for this process only; the next one meets the server as new.
            self._host.tell(f"What the MCP server {self.name} offers could not be kept: {error}")
            pins = self._host.pins.merged(self.entry, before, listing.tools)
        self.use(pins)
        told = before.waiting if before is not None else {}
        fresh = [name for name, waiting in pins.waiting.items() if told.get(name) != waiting]
        if fresh:
            changed = sum(name in pins.approved for name in fresh)
            self._host.tell(
                f"The MCP server {self.name} says something new about itself or its tools ({changed} changed, "
                f"{len(fresh) - changed} new). It is withheld until you approve it: `satchel tool list --source mcp` "
                "shows it, `satchel tool approve NAME` approves it."
            )

    def use(self, pins: Pins) -> None:
        """Offer what these pins accept from now on."""
        before, self.pins = self._accepted, pins
        if self._accepted != before:
            self._host.changed()

    # Requests

    def withheld(self, name: str) -> str:
        """Why a tool must not be called now, as a clause, or ""."""
        pins = self.pins or Pins()
        if name in pins.waiting:
            return "its definition changed since it was approved"
        is_offered = name in pins.approved and name in pins.present
        return "" if is_offered else "the server does not offer it any more"

    async def call(
        self,
        name: str,
        input: Mapping[str, Any],
        caller: Caller,
        *,
        answers: Mapping[str, Any] | None = None,
        state: str | None = None,
    ) -> tuple[Outcome, Sequence[str]]:
        """Call one of its tools. Starts the server if it is not running. `answers` and `state` are those of an earlier
        try (`InputNeeded`).

        Returns:
            The outcome, and what else the model should know.
        """

        async def request(connection: Connection, exchange: ServerRequest) -> Outcome:
            why = self.withheld(name)
            if why:
                return Failed(reason=f"it is withheld: {why}")
            return await connection.call(name, input, exchange, answers=answers, state=state)

        return await self._request(request, caller)

    async def read(self, uri: str, caller: Caller) -> tuple[Outcome, Sequence[str]]:
        """Read one of its resources; returns as `call`."""

        async def request(connection: Connection, exchange: ServerRequest) -> Outcome:
            if not self.has_resources:
                return Failed(
                    reason=f"the MCP server {self.name} offers no resources, or they wait for approval"
                )
            return await connection.read(uri, exchange)

        return await self._request(request, caller)

    async def prompt(
        self, name: str, arguments: Mapping[str, str], caller: Caller
    ) -> tuple[Outcome, Sequence[str]]:
        """Get one of its prompts, by the server's own name; returns as `call`."""
        return await self._request(
            lambda connection, exchange: connection.prompt(name, arguments, exchange), caller
        )

    async def resources(self) -> tuple[McpResource, ...] | Failed:
        """Its resources, then its templates."""
        return await self._offers(Connection.resources) if self.has_resources else ()

    async def prompts(self) -> tuple[McpPrompt, ...] | Failed:
        """Its prompts."""
        return await self._offers(Connection.prompts) if self.has_prompts else ()

    async def _offers(self, ask: Callable[[Connection], Awaitable[T]]) -> T | Failed:
        return (await self._request(lambda connection, _: ask(connection), Caller()))[0]

    async def _request(
        self, request: Callable[[Connection, ServerRequest], Awaitable[T]], caller: Caller
    ) -> tuple[T | Failed, Sequence[str]]:
        """Make a request to the process that serves it; what one in a sandbox leaves behind meanwhile is set aside."""
        server = self.current
        if server._place is None or server._host.boxes is None:
            return await server._send(request, caller)
        workspace, box = server._host.boxes.workspace(server._place.folder), server._place.box
        try:
            async with workspace.watching(box) as moved:
                outcome, notes = await server._send(request, caller)
        except SandboxError as error:
            return Failed(reason=str(error).rstrip(".")), ()
        return outcome, [*notes, *moved_notes(moved, can_ask=False)]

    async def _send(
        self, request: Callable[[Connection, ServerRequest], Awaitable[T]], caller: Caller
    ) -> tuple[T | Failed, Sequence[str]]:
        """Start the server if necessary, and make a request within its time limit."""
        limit_s = self.limit_s
        down = await self.connected(limit_s)
        if down or self._connection is None:
            return Failed(reason=f"the MCP server {self.name} is unavailable: {down}"), ()
        connection, gone = self._connection, self._gone
        exchange = ServerRequest(
            server=self.name,
            caller=caller,
            limit_s=limit_s,
            roots=self._host.roots,
            sampler=self._host.sampler,
            sampled=self._sampled,
        )
        exchange.extend()
        outcome: T | Failed = Failed(reason=f"it was stopped after {limit_s:g} s")
        self._exchanges.append(exchange)
        # A boundary: a stranger's server. Whatever it does wrong becomes an error result.
        with collecting_refusals() as refusals:
            try:
                with exchange.scope:
                    outcome = await request(connection, exchange)
                    self._failures = 0
            except Exception as error:  # noqa: BLE001
                outcome = Failed(reason=self._failure(error, gone, refusals))
            finally:
                self._exchanges.remove(exchange)
        return outcome, exchange.notes

    def _failure(self, error: Exception, gone: anyio.Event, refusals: Sequence[str]) -> str:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415  loaded in `load_sdk`
        from mcp.types import CONNECTION_CLOSED  # noqa: PLC0415

        if refusals:
            return f"the MCP server {self.name} refused: {refusals[-1]}"
        unknown = "Whether it did what was asked is unknown: check before repeating"
        first = first_error(error)
        # Servers use this code, -32000, for errors of their own: the SDK's words tell them apart.
        is_cut = isinstance(first, MCPError) and first.code == CONNECTION_CLOSED
        if is_cut and str(first) == "Connection closed":
            self._leave("the connection was closed")
        elif is_cut and str(first).startswith("SSE stream"):
            return f"{reason_of(error)}. {unknown}"
        elif isinstance(first, MCPError) and "Session terminated" in first.message:
            # A restarted HTTP server does not know the session any more.
            self._leave("it ended the session")
            return "the server was restarted and does not know the session any more; try again"
        if gone.is_set():
            return f"the MCP server {self.name} went away during the call ({self._gone_reason}). {unknown}"
        return reason_of(error)

    async def _respond(self, request: Any) -> Any:
        """Answer a request of a server of an older revision, which does not say for which call it asks."""
        from mcp.types import (  # noqa: PLC0415  loaded in `load_sdk`
            INVALID_REQUEST,
            CreateMessageRequest,
            ElicitResult,
            ErrorData,
            ListRootsRequest,
        )

        if isinstance(request, ListRootsRequest):
            return roots_result(self._host.roots)
        asking = [each for each in self._exchanges if each.caller.ask is not None] or self._exchanges
        sessions = {each.caller.session_id for each in asking}
        if len(sessions) == 1:
            return await asking[-1].respond(request)
        # Nobody called the server, or several sessions did: another user must not answer, nor pay.
        for each in asking:
            each.note(
                f"[The MCP server {self.name} asked something without saying for which call. Calls of several "
                "sessions were running, so it was declined.]"
            )
        if isinstance(request, CreateMessageRequest):
            message = "sampling is possible during a call of one session only"
            return ErrorData(code=INVALID_REQUEST, message=message)
        return ElicitResult(action="decline")
