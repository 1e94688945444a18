"""Where an editor's sessions are held: in this process, or in the server of the home."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import anyio
from acp.schema import HttpMcpServer, McpServerStdio

from satchel.config import McpServerSettings
from satchel.errors import NotFound, UsageError
from satchel.messages import FileBlock
from satchel.runtime import Satchel
from satchel.runtime.hosting import LocalHost, SharedSession
from satchel.runtime.pictures import content_of
from satchel.runtime.remote import RemoteHost
from satchel.runtime.tooling import mcp_tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A session that was opened for the editor.

    Attributes:
        notice: A note for the user; "" if there is none.
        release: Releases what else belongs to the session.
    """

    session: SharedSession
    notice: str
    release: Callable[[], Awaitable[None]]


class LocalPlace:
    """Sessions of this process."""

    def __init__(self, satchel: Satchel) -> None:
        """`satchel` is opened and closed by the caller."""
        self.host = LocalHost(satchel)
        self._satchel = satchel

    async def open(self, session_id: str | None, *, cwd: Path, servers: Sequence[Any]) -> Held:
        """Begin a session, or open one by its full id.

        Args:
            session_id: None begins one.
            cwd: Its working directory.
            servers: The MCP servers that the editor wants used in it. They start in its folder, as the editor itself
                would start them.

        Raises:
            UsageError: A server can't be used.
            SatchelError: As `Satchel.session`.
        """
        entries = [replace(_entry(server), cwd=str(cwd)) for server in servers]
        if not entries:
            session = await self._satchel.session(session_id, cwd=cwd, interactive=True)
            return Held(session=session, notice="", release=_nothing)
        parts = self._satchel.parts
        settings = replace(parts.settings, mcp_servers={entry.name: entry for entry in entries})
        toolset = mcp_tools(settings, parts.clock, spawn=parts.background.start, tell=_unheard)
        try:
            session = await self._satchel.session(session_id, cwd=cwd, interactive=True, toolsets=[toolset])
        except BaseException:
            with anyio.CancelScope(shield=True):
                await toolset.aclose()
            raise
        return Held(session=session, notice="", release=toolset.aclose)

    async def content_of(self, session_id: str, file: FileBlock) -> bytes:
        """The bytes of a file of a result. Raises SatchelError or OSError if it can't be had."""
        return await content_of(self._satchel.sessions, session_id, file)

    async def delete(self, session_id: str) -> None:
        """Delete the logs of a conversation and its branches.

        Raises:
            NotFound: There is none.
        """
        for info in reversed(await self._satchel.sessions.branches(session_id)):
            await self._satchel.sessions.delete(info.id)


class ServedPlace:
    """Sessions of the server of the home: a browser and a terminal take part in them, too."""

    def __init__(self, host: RemoteHost) -> None:
        """`host` is connected and left by the caller."""
        self.host = host

    async def open(self, session_id: str | None, *, cwd: Path, servers: Sequence[Any]) -> Held:
        """See `LocalPlace`. The server has its own MCP servers; the editor's are not sent to it."""
        entries = [_entry(server) for server in servers]
        session = await self.host.session(session_id, cwd=cwd, interactive=True)
        notice = ""
        if entries:
            names = ", ".join(entry.name for entry in entries)
            notice = (
                f"This conversation is held in Satchel's server, which doesn't use the editor's MCP servers ({names}). "
                "Add them with `satchel mcp-server add`, or start the agent with `satchel acp --no-server`.\n\n"
            )
        return Held(session=session, notice=notice, release=_nothing)

    async def content_of(self, session_id: str, file: FileBlock) -> bytes:
        """See `LocalPlace`."""
        return await (await self.host.api()).content(f"/chat/{session_id}/attached/{quote(file.file_name)}")

    async def delete(self, session_id: str) -> None:
        """See `LocalPlace`."""
        if not re.fullmatch(r"[A-Za-z0-9:-]{1,64}", session_id):
            raise NotFound(f"There is no session {session_id[:80]!r}.")
        await (await self.host.api()).delete(f"/api/sessions/{session_id}")


SessionPlace: TypeAlias = LocalPlace | ServedPlace
"""Opens and lists sessions."""


async def _nothing() -> None:
    pass


def _unheard(_: str) -> None:
    """The messages of an editor's server are in its log."""


def _entry(server: Any) -> McpServerSettings:
    """A server that the editor names.

    Raises:
        UsageError: Satchel can't use it.
    """
    match server:
        case McpServerStdio():
            return McpServerSettings(
                name=_name(server.name),
                command=server.command,
                args=tuple(server.args),
                env={variable.name: variable.value for variable in server.env},
            )
        case HttpMcpServer():
            headers = {header.name: header.value for header in server.headers}
            return McpServerSettings(name=_name(server.name), url=server.url, headers=headers)
        case _:
            raise UsageError(
                f"The MCP server {getattr(server, 'name', '?')[:60]!r} has a transport that Satchel doesn't speak. "
                "It supports stdio and http."
            )


def _name(name: str) -> str:
    """A server's name, in the characters that names of tools may have."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:40] or "server"
