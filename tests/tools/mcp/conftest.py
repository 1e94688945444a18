"""MCP servers in a home of their own, and contexts for calling their tools."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest

from satchel.clock import ManualClock
from satchel.config import McpServerSettings
from satchel.tools import Ask, Tool, ToolContext, ToolResult
from satchel.tools.mcp import McpToolset, Sampler
from satchel.tools.mcp.server import ServerHost

T = TypeVar("T")
STRANGER = Path(__file__).with_name("stranger.py")


class Servers:
    """What a session is to the servers: their tools by name, called with one context."""

    def __init__(self, toolset: McpToolset, folder: Path, clock: ManualClock, notices: list[str]) -> None:
        self.toolset = toolset
        self.clock = clock
        self.folder = folder
        self.notices = notices
        self.progress: list[Mapping[str, Any]] = []

    def take_notices(self) -> tuple[str, ...]:
        taken = tuple(self.notices)
        self.notices.clear()
        return taken

    async def names(self) -> list[str]:
        return [tool.spec.name for tool in await self.toolset.tools()]

    async def tool(self, name: str) -> Tool:
        return {tool.spec.name: tool for tool in await self.toolset.tools()}[name]

    def context(self, *, ask: Ask | None = None, call_id: str = "c1", session_id: str = "s1") -> ToolContext:
        async def tell(data: Mapping[str, Any]) -> None:
            self.progress.append(data)

        async def blocking(function: Callable[..., T], /, *args: Any) -> T:
            return await anyio.to_thread.run_sync(functools.partial(function, *args))

        return ToolContext(
            session_id=session_id,
            turn=1,
            call_id=call_id,
            cwd=self.folder,
            roots=[self.folder],
            spill_dir=self.folder / "spilled",
            state={},
            progress=tell,
            blocking=blocking,
            clock=self.clock,
            timeout_s=3600.0,
            ask=ask,
        )

    async def call(self, name: str, /, *, ask: Ask | None = None, **input: Any) -> ToolResult:
        with anyio.fail_after(120):
            return await (await self.tool(name)).call(input, self.context(ask=ask))


Open = Callable[..., AbstractAsyncContextManager[Servers]]


@pytest.fixture
def open_servers(tmp_path: Path) -> Open:
    """Opens the servers of the given entries; twice in one test is two processes after each other."""

    @asynccontextmanager
    async def opened(
        *entries: McpServerSettings,
        environ: Mapping[str, str] | None = None,
        timeout_s: float = 110.0,
        start_s: float = 110.0,
        first_wait_s: float = 110.0,
        roots: Sequence[Path] = (),
        sampler: Sampler | None = None,
    ) -> AsyncIterator[Servers]:
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} if environ is None else environ
        clock = ManualClock()
        async with anyio.create_task_group() as group:

            def spawn(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
                group.start_soon(function)

            notices: list[str] = []
            host = ServerHost(
                home=tmp_path / "home",
                cwd=tmp_path,
                environ=environ,
                lookup=environ.get,
                clock=clock,
                spawn=spawn,
                tell=notices.append,
                timeout_s=timeout_s,
                version="1",
                roots=roots,
                sampler=sampler,
                start_s=start_s,
            )
            toolset = McpToolset({entry.name: entry for entry in entries}, host, first_wait_s=first_wait_s)
            try:
                toolset.begin()
                yield Servers(toolset, tmp_path, clock, notices)
            finally:
                with anyio.fail_after(120, shield=True):
                    await toolset.aclose()
                group.cancel_scope.cancel()

    return opened


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does; it can't set an event of ours."""
    with anyio.fail_after(120):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)


def let_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let time pass for the timers of this event loop."""
    loop = asyncio.get_running_loop()
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + seconds)


def stranger(
    behaviour: str, folder: Path | None = None, *, name: str = "x", **more: Any
) -> McpServerSettings:
    """The entry of a server that behaves like that."""
    args = (str(STRANGER), behaviour, *([str(folder)] if folder is not None else []))
    return McpServerSettings(name=name, command=sys.executable, args=args, **more)
