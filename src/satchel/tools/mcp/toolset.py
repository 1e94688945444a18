"""All configured MCP servers: their tools, resources, prompts and instructions, and their states."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from satchel.config import McpServerSettings
from satchel.errors import NotFound
from satchel.tools.box import Box
from satchel.tools.mcp.definitions import SERVER, McpDefinition, full_names
from satchel.tools.mcp.instructions import instructions_part
from satchel.tools.mcp.offers import McpPrompt, McpResource
from satchel.tools.mcp.places import Lookup
from satchel.tools.mcp.prompts import ServerPrompts
from satchel.tools.mcp.resources import ServerResources
from satchel.tools.mcp.server import START_S, McpServer, ServerBox, ServerHost, State
from satchel.tools.mcp.tool import McpTool
from satchel.tools.port import Tool

FIRST_WAIT_S = 10.0
"""How long the first message waits for servers whose tools are not known yet; they keep starting after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldTool:
    """A tool, or a server's instructions, waiting for the user's approval.

    Attributes:
        name: The tool's full name; for instructions, `mcp__SERVER`.
    """

    name: str
    before: McpDefinition | None
    now: McpDefinition

    @property
    def is_server(self) -> bool:
        """Whether these are the server's instructions rather than a tool."""
        return self.now.name == SERVER


@dataclass(frozen=True, slots=True, kw_only=True)
class McpStatus:
    """The state of one server.

    Attributes:
        state: "idle" means that its tools are known and it has not been needed yet; "off" that it is disabled.
        tools: The full names of the offered tools.
        instructions: What the server says about the use of its tools, as far as it is accepted.
        problems: One sentence for each tool that was left out.
        reason: Why it is down, as a clause, or "".
    """

    server: str
    state: State | str
    transport: str
    protocol: str = ""
    tools: tuple[str, ...] = ()
    withheld: tuple[WithheldTool, ...] = ()
    instructions: str = ""
    problems: tuple[str, ...] = ()
    reason: str = ""
    log: Path = Path()


class McpToolset:
    """See `satchel.tools.Toolset`. Whoever opens it must close it; `aclose` stops every server.

    Known tools are offered at once; their server starts with the first call. A server whose tools are not known is
    started by `begin`, and `tools` waits for it, ten seconds at most.

    Attributes:
        version: Grows whenever the offered tools change.
    """

    def __init__(
        self,
        entries: Mapping[str, McpServerSettings],
        host: ServerHost,
        *,
        first_wait_s: float = FIRST_WAIT_S,
        waits: bool = False,
    ) -> None:
        """Take the entries. Nothing is started. The host is this toolset's from now on. With `waits`, programs that
        were never met are not started by `begin`, but by `begin_first`, because somebody decides first where they run.
        """
        self.version = 0
        self._first_wait_s = first_wait_s
        self._host = host
        host.changed = self._changed
        self._waits = waits and host.boxes is not None
        self._entries = dict(entries)
        self._servers = {
            name: McpServer(entries[name], host) for name in sorted(entries) if entries[name].enabled
        }
        self.server_resources = ServerResources(self._servers)
        self.server_prompts = ServerPrompts(self._servers)
        self._waited = False

    async def use(self, entries: Mapping[str, McpServerSettings], lookup: Lookup) -> None:
        """Take other entries, and other values of what they refer to.

        A server whose entry and values stay goes on. The others are stopped; a call starts them as they are now.
        """
        kept = {
            name: server
            for name, server in self._servers.items()
            if server.entry == entries.get(name) and server.refers_to_same(self._host.lookup, lookup)
        }
        gone = [server for name, server in self._servers.items() if name not in kept]
        self._host.lookup = lookup
        self._entries = dict(entries)
        now = {
            name: kept.get(name) or McpServer(entries[name], self._host)
            for name in sorted(entries)
            if entries[name].enabled
        }
        # In place: what finds resources and prompts looks here as well.
        self._servers.clear()
        self._servers.update(now)
        self._waited = False
        self._changed()
        async with anyio.create_task_group() as group:
            for server in gone:
                group.start_soon(server.aclose)

    def begin(self) -> None:
        """Start the servers whose tools are not known yet, in the background."""
        for server in self._servers.values():
            if server.pins is None and not (self._waits and server.can_box):
                server.begin()

    def unmet(self) -> tuple[McpServerSettings, ...]:
        """The programs that were never started, and that wait for `begin_first` or `hold_back`."""
        return tuple(
            server.entry
            for server in self._servers.values()
            if self._waits
            and server.can_box
            and server.pins is None
            and not server.refusal
            and server.current.state == "idle"
        )

    def begin_first(self, name: str, box: Box | None, folder: Path) -> None:
        """Start a server whose tools are not known. `box` is what it may reach beyond the sandbox of the folder; None
        starts it outside.
        """
        server = self._servers[name]
        (server if box is None else server.in_box(ServerBox(folder=folder, box=box))).begin()

    def hold_back(self, name: str, reason: str) -> None:
        """Don't start a server whose tools are not known, because the user refused it."""
        self._servers[name].refusal = reason
        self._host.tell(f"The MCP server {name} was not started. {reason}")

    async def tools(self) -> Sequence[Tool]:
        """The offered tools, by server and name. The first call, and that after `use`, waits for unknown servers."""
        unknown = [server for server in self._servers.values() if server.pins is None and not server.refusal]
        if unknown and not self._waited:
            self._waited = True
            async with anyio.create_task_group() as group:
                for server in unknown:
                    group.start_soon(self._first_connected, server)
        return self.known()

    def known(self) -> Sequence[Tool]:
        """The offered tools that are known now, by server and name; then the tools for resources."""
        tools: list[Tool] = [tool for server in self._servers.values() for tool in _tools_of(server)]
        return [*tools, *self.server_resources.tools()]

    def find(self, address: str) -> McpTool | None:
        """The offered tool with this address (`McpTool.address`), as known now; None if there is none."""
        tools = (tool for server in self._servers.values() for tool in _tools_of(server))
        return next((tool for tool in tools if tool.address == address), None)

    def outages(self) -> tuple[str, ...]:
        """A sentence for each server that is down now, for a conversation that begins."""
        return tuple(outage for server in self._servers.values() if (outage := server.current.outage))

    # Instructions, resources, prompts, roots

    def instructions(self) -> str:
        """The accepted instructions of all servers as a part of the system text, marked and bounded; or "".

        Take it once when a session begins: it changes when the user approves something.
        """
        return instructions_part(self._servers.values())

    async def resources(self) -> tuple[McpResource, ...]:
        """What all servers let be read, templates included; the servers are started for it."""
        found, problems = await self.server_resources.all()
        for problem in problems:
            self._host.tell(problem)
        return found

    async def prompts(self, *, start: bool = True) -> tuple[McpPrompt, ...]:
        """The prompts of all servers, which users run as commands. Without `start`, only the servers that run are
        asked.
        """
        found, problems = await self.server_prompts.all(start=start)
        for problem in problems:
            self._host.tell(problem)
        return found

    # How they are

    def status(self) -> tuple[McpStatus, ...]:
        """The state of every server, by name."""
        return tuple(
            _status(self._servers[name])
            if name in self._servers
            else McpStatus(
                server=name,
                state="off",
                transport="stdio" if entry.command else entry.transport,
            )
            for name, entry in sorted(self._entries.items())
        )

    async def refresh(self, limit_s: float = START_S, *, only: str = "") -> tuple[McpStatus, ...]:
        """Start every server that is not running, read all lists again, and return the states. `limit_s` is for each.
        With `only`, that server alone is meant, and starts even if it failed a moment ago.
        """

        async def one(server: McpServer) -> None:
            await server.current.relisted(limit_s)

        async with anyio.create_task_group() as group:
            for server in self._servers.values():
                if only == server.name:
                    server.refusal = ""
                    server.current.retry()
                if only in ("", server.name):
                    group.start_soon(one, server)
        return self.status()

    def withheld(self, pattern: str) -> tuple[WithheldTool, ...]:
        """What waits for approval under a name; `*` stands for any characters."""
        return tuple(
            tool for server in self._servers.values() for tool in _withheld(server) if _fits(tool, pattern)
        )

    async def approve(self, pattern: str) -> tuple[WithheldTool, ...]:
        """Approve what waits under a name.

        Args:
            pattern: A full name; `*` stands for any characters, and `mcp__SERVER__*` covers the instructions too.

        Returns:
            What was approved.

        Raises:
            NotFound: Nothing of that name waits.
            StorageError, ConfigError: It could not be saved; nothing changed.
        """
        found = self.withheld(pattern)
        if not found:
            raise NotFound(f"Nothing of an MCP server that matches {pattern!r} is waiting for approval.")
        for server in tuple(self._servers.values()):
            names = [tool.now.name for tool in _withheld(server) if tool in found]
            if names and server.pins is not None:
                approved = {name: pin for name, pin in server.pins.waiting.items() if name in names}
                await self._host.pins.tell(server.entry, approved)
                approve = partial(self._host.pins.approve, server.entry, names)
                server.use(await anyio.to_thread.run_sync(approve, limiter=self._host.limiter))
        return found

    async def approve_agreed(self) -> None:
        """Approve what waits here and was approved at another machine."""
        for server in tuple(self._servers.values()):
            if server.pins is not None and server.pins.waiting:
                approve = partial(self._host.pins.approve_agreed, server.entry)
                server.use(await anyio.to_thread.run_sync(approve, limiter=self._host.limiter))

    async def aclose(self) -> None:
        """Stop every server."""
        async with anyio.create_task_group() as group:
            for server in self._servers.values():
                group.start_soon(server.aclose)

    async def _first_connected(self, server: McpServer) -> None:
        await server.current.connected(self._first_wait_s)
        # Told here: one that has failed may be starting again by the time the others are ready.
        if server.pins is None and server.current.state == "starting":
            self._host.tell(
                f"The MCP server {server.name} is still starting. Its tools will be available later."
            )

    def _changed(self) -> None:
        self.version += 1


def _tools_of(server: McpServer) -> list[McpTool]:
    offered = server.offered
    names = _names(server)
    return [McpTool(server, definition, name=names[definition.name]) for definition in offered]


def _names(server: McpServer) -> dict[str, str]:
    """Full names by the server's own names. All that was ever accepted is counted in, so that no name changes.

    The server's instructions are called `mcp__SERVER`.
    """
    known = {**server.pins.approved, **server.pins.waiting} if server.pins is not None else {}
    return {
        **full_names(server.name, [name for name in known if name != SERVER]),
        SERVER: f"mcp__{server.name}",
    }


def _fits(tool: WithheldTool, pattern: str) -> bool:
    # `mcp__files__*` means everything of the server, its instructions included.
    names = [tool.name, f"{tool.name}__"] if tool.is_server else [tool.name]
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _withheld(server: McpServer) -> tuple[WithheldTool, ...]:
    if server.pins is None:
        return ()
    names, approved = _names(server), server.pins.approved
    return tuple(
        WithheldTool(
            name=names[name], before=approved[name].shown if name in approved else None, now=pin.shown
        )
        for name, pin in sorted(server.pins.waiting.items())
    )


def _status(server: McpServer) -> McpStatus:
    names = _names(server)
    process = server.current
    return McpStatus(
        server=server.name,
        state=process.state,
        transport=process.transport,
        protocol=process.protocol,
        tools=tuple(names[definition.name] for definition in server.offered),
        withheld=_withheld(server),
        instructions=server.instructions,
        problems=process.problems,
        reason=server.refusal or process.reason,
        log=process.log.path,
    )
