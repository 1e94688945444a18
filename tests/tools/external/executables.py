"""Executables for tests, a place to put them, and a look at what processes are left of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from satchel.clock import ManualClock
from satchel.tools import ToolContext
from satchel.tools.external import Entry, ExternalTool, ExternalTools, ToolFolder

ENVIRON = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def schema(name: str, **more: Any) -> str:
    return json.dumps({"name": name, "description": f"Does {name}.", "parameters": {}, **more})


def script(
    name: str, body: str = "echo '{}'", *, parameters: Mapping[str, Any] | None = None, **more: Any
) -> str:
    """A shell script that answers --schema and otherwise runs `body`."""
    said = schema(name, parameters=parameters or {}, **more)
    return f"#!/bin/sh\nif [ \"$1\" = --schema ]; then\ncat <<'JSON'\n{said}\nJSON\nexit\nfi\n{body}\n"


def put(folder: Path, name: str, text: str | bytes, *, mode: int = 0o755) -> Path:
    """Write an executable."""
    if not folder.exists():
        folder.mkdir(mode=0o755, parents=True)
        folder.chmod(0o755)
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


class Bench:
    """A home with a folder of tools."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.tools = self.home / "tools"
        self.work = root / "work"
        for folder in (self.home, self.tools, self.work):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        self.clock = ManualClock()
        self.progress: list[Mapping[str, Any]] = []

    def put(self, name: str, text: str | bytes, *, mode: int = 0o755) -> Path:
        return put(self.tools, name, text, mode=mode)

    def toolset(self, folders: Sequence[ToolFolder] = (), **options: Any) -> ExternalTools:
        options.setdefault(
            "schema_timeout_s", 30.0
        )  # a shell may take longer than a second on a busy machine
        return ExternalTools(
            folders or [ToolFolder(path=self.tools, kind="user")],
            home=self.home,
            environ=ENVIRON,
            clock=self.clock,
            **options,
        )

    async def found(self, folders: Sequence[ToolFolder] = (), **options: Any) -> ExternalTools:
        external = self.toolset(folders, **options)
        with anyio.fail_after(120):
            await external.discover()
        return external

    async def entries(self, **options: Any) -> dict[str, Entry]:
        return {entry.name: entry for entry in (await self.found(**options)).entries}

    async def tool(self, name: str, **options: Any) -> ExternalTool:
        found = (await self.found(**options)).get(name)
        assert found is not None
        return found

    def context(self, *, timeout_s: float = 60.0) -> ToolContext:
        async def tell(data: Mapping[str, Any]) -> None:
            self.progress.append(data)

        async def blocking(function: Callable[..., Any], /, *args: Any) -> Any:
            return await anyio.to_thread.run_sync(function, *args)

        return ToolContext(
            session_id="s",
            turn=1,
            call_id="c",
            cwd=self.work,
            roots=[self.work],
            spill_dir=self.work,
            state={},
            progress=tell,
            blocking=blocking,
            clock=self.clock,
            timeout_s=timeout_s,
            environ=ENVIRON,
        )

    async def run(self, body: str, input: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """The envelope of one call of a script."""
        self.put("probe", script("probe", body))
        tool = await self.tool("probe", **options)
        with anyio.fail_after(120):
            return await tool.run(input or {}, self.context())


def mark_of(folder: Path) -> str:
    """A word for one test's processes: no other test has it, in this run or in one beside it."""
    return f"tool-test{folder}-".replace("/", "-")


def processes_that_say(word: str) -> list[str]:
    """Command lines and environments of running processes that hold the word."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if (entry / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z":
                continue
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if word.encode() in said:
            found.append(f"{entry.name}: {said[:200]!r}")
    return found
