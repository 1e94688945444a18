"""A context for calling tools alone, and a way to call the built-in ones."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
import jsonschema
import pytest

from satchel.clock import ManualClock
from satchel.tools import Registry, ToolContext, ToolResult, builtin_tools
from satchel.tools.box import Box, Wish

T = TypeVar("T")


async def run_blocking(function: Callable[..., T], /, *args: Any) -> T:
    return await anyio.to_thread.run_sync(functools.partial(function, *args), abandon_on_cancel=True)


class Session:
    """What the loop is to a tool: calls of the built-in tools in one folder, with one state."""

    def __init__(
        self,
        cwd: Path,
        *,
        home: Path | None = None,
        roots: Sequence[Path] = (),
        environ: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self.cwd = cwd
        self.progress: list[Mapping[str, Any]] = []
        self.home = home
        self.spill_dir = cwd.parent / "spilled"
        self.spill_dir.mkdir(exist_ok=True)

        async def tell(data: Mapping[str, Any]) -> None:
            self.progress.append(data)

        self.context = ToolContext(
            session_id="s1",
            turn=1,
            call_id="c1",
            cwd=cwd,
            roots=roots or [cwd],
            spill_dir=self.spill_dir,
            state={},
            progress=tell,
            blocking=run_blocking,
            clock=ManualClock(),
            timeout_s=timeout_s,
            environ={"PATH": os.environ["PATH"], "HOME": str(cwd.parent)} if environ is None else environ,
        )

    async def __call__(self, name: str, /, **input: Any) -> ToolResult:
        registry = await Registry.load([builtin_tools(home=self.home)])
        tool = registry.get(name)
        assert tool is not None
        jsonschema.validate(input, tool.spec.input_schema)
        with anyio.fail_after(120):
            tool.effects(input, self.context)
            return await tool.call(input, self.context)


class Boxing:
    """A machine with a sandbox, or without one."""

    def __init__(self, lacking: str = "", on_path: tuple[str, ...] = ()) -> None:
        self.why = lacking
        self.on_path = on_path
        self.asked: list[str] = []
        self.told: list[str] = []

    async def lacking(self, source: str, *, quietly: bool = False) -> str:
        self.asked.append(source)
        if self.why and not quietly:
            self.told.append(self.why)
        return self.why

    def wish(self, tool: str) -> Wish:
        fetched = tool.startswith("mcp__fetched__")
        return Wish(box=Box(network=("registry.npmjs.org",)), reason="to fetch it") if fetched else Wish()

    @property
    def areas(self) -> tuple[str, ...]:
        return ("/srv/project",)

    def is_writable(self, path: str) -> bool:
        return path.startswith("/srv/project/") and not path.endswith(".envrc")

    def is_readable(self, path: str) -> bool:
        return path.startswith(("/srv/project/", "/usr/"))

    async def programs(self) -> tuple[str, ...]:
        return self.on_path

    def problem(self, path: str, *, reads: bool = False) -> str:
        return "No command may write there." if path.startswith("/home/ann/.satchel") else ""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def session(project: Path) -> Session:
    return Session(project)


@pytest.fixture
def open_session() -> Callable[..., Session]:
    return Session


Call = Callable[..., Awaitable[ToolResult]]
