"""What all backends on this machine share: the job, the folders of a run, its result, spares and sessions.

A backend says how a program is started confined (`LocalSandbox._boxed`) and where things are in it (`_places`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio

from satchel.errors import NoSandbox, SandboxError
from satchel.sandbox import artifacts
from satchel.sandbox.job import Places, Scene, job_bytes, memory_file, scratch_folder
from satchel.sandbox.outcome import FLOOD, exit_code, judge, redacted, text_of
from satchel.sandbox.port import (
    Box,
    Boxed,
    Command,
    Egress,
    Feature,
    Limits,
    Network,
    OnOutput,
    Probe,
    PythonEntry,
    RunResult,
    RunSpec,
    SandboxSession,
    SessionSpec,
    WorkspaceBox,
)
from satchel.sandbox.process import ProcessResult, run_process
from satchel.sandbox.proxy import open_egress
from satchel.sandbox.session import FolderSession

__all__ = ["LocalSandbox", "Performance"]

REPORT_OVERHEAD_BYTES = 65_536
ESCAPED = 6
"""The length of an escaped character in JSON."""


class LocalSandbox(ABC):
    """A backend that starts processes on this machine."""

    name: str
    features: frozenset[Feature]

    @abstractmethod
    def _places(self, scene: Scene) -> Places:
        """Where things are. Called once for each run."""

    @abstractmethod
    def _boxed(self, scene: Scene, places: Places, job_fd: int) -> Boxed:
        """How to start `guest/start.py` with the job, confined. The descriptor is among those that are passed."""

    @abstractmethod
    def box(self, spec: WorkspaceBox) -> AbstractAsyncContextManager[Box]:
        """See `Sandbox`."""

    @abstractmethod
    async def probe(self) -> Probe:
        """See `Sandbox`."""

    async def run(self, spec: RunSpec, *, on_output: OnOutput | None = None) -> RunResult:
        """See `Sandbox`."""
        return await self.play_once(
            spec.entry,
            layer=spec.layer,
            network=spec.network,
            limits=spec.limits,
            read_only=spec.read_only,
            writable=spec.writable,
            environ=spec.environ,
            secrets=spec.secrets,
            folder=None,
            on_output=on_output,
        )

    async def play_once(
        self,
        entry: PythonEntry | Command,
        *,
        layer: Path | None,
        network: Network,
        limits: Limits,
        read_only: tuple[Path, ...],
        writable: tuple[Path, ...],
        environ: Mapping[str, str],
        secrets: Mapping[str, str],
        folder: Path | None,
        on_output: OnOutput | None,
    ) -> RunResult:
        """Run once, in a scene of its own."""
        self._check(network)
        async with self._scene(
            entry.code_dir if isinstance(entry, PythonEntry) else None,
            layer=layer,
            network=network,
            limits=limits,
            read_only=read_only,
            writable=writable,
            environ=environ,
            folder=folder,
        ) as (scene, egress):
            result = await self._play(scene, entry, secrets=secrets, on_output=on_output)
            return result if egress is None else replace(result, denied=tuple(egress.denied))

    def folder_owner(self, folder: Path) -> int | None:
        """The user whose files a session's folder holds; None is this one."""
        return None

    async def open(self, spec: SessionSpec) -> SandboxSession:
        """See `Sandbox`."""
        self._check(spec.network)
        return FolderSession(self, spec)

    def _check(self, network: Network) -> None:
        if network.mode != "none" and Feature.HOSTS not in self.features:
            raise NoSandbox(
                f"The sandbox here ({self.name}) can't limit the network to hosts, so it allows none. "
                "Install bubblewrap: sudo apt install bubblewrap."
            )

    @asynccontextmanager
    async def _scene(
        self,
        code_dir: Path | None,
        *,
        layer: Path | None,
        network: Network,
        limits: Limits,
        read_only: tuple[Path, ...],
        writable: tuple[Path, ...],
        environ: Mapping[str, str],
        folder: Path | None,
    ) -> AsyncIterator[tuple[Scene, Egress | None]]:
        """Make the folders of a run, and its way out, and remove them afterwards."""
        for path in (code_dir, layer, folder, *read_only, *writable):
            if path is not None and not path.exists():
                raise SandboxError(f"{str(path)!r}, which the sandbox should contain, doesn't exist.")
        with scratch_folder() as scratch:
            scene = Scene(
                code_dir=code_dir,
                layer=layer,
                network=network,
                limits=limits,
                read_only=read_only,
                writable=writable,
                environ=environ,
                scratch=scratch,
                folder=folder,
                socket=None,
            )
            scene.out.mkdir()
            if network.mode == "none":
                yield scene, None
                return
            async with open_egress(network, folder=scratch) as egress:
                yield replace(scene, socket=egress.socket), egress

    async def _play(
        self,
        scene: Scene,
        entry: PythonEntry | Command,
        *,
        secrets: Mapping[str, str],
        on_output: OnOutput | None = None,
    ) -> RunResult:
        """Run once in a scene."""
        places = self._places(scene)
        job_fd = memory_file(job_bytes(entry, scene, places, secrets))
        try:
            boxed = self._boxed(scene, places, job_fd)
        except BaseException:
            os.close(job_fd)
            raise
        performance = Performance(boxed, scene.limits, on_output)
        await performance.run(
            stdin=entry.stdin if isinstance(entry, Command) else None, timeout_s=scene.limits.wall_s
        )
        return self.result_of(performance, scene, entry, secrets)

    def result_of(
        self, performance: Performance, scene: Scene, entry: PythonEntry | Command, secrets: Mapping[str, str]
    ) -> RunResult:
        """Judge a run that has ended, and collect what it left."""
        ended, limits = performance.ended, scene.limits
        is_call = isinstance(entry, PythonEntry)
        verdict = judge(ended, limits, flooded=performance.flooded, is_call=is_call, backend=self.name)
        values = secrets.values()
        left = artifacts.collect(scene.out, most=limits.artifacts, most_bytes=limits.artifacts_mb * 1_048_576)
        return RunResult(
            status=verdict.status,
            result=None if verdict.result is None else redacted(verdict.result, values),
            error=redacted(verdict.error, values),
            traceback=redacted(verdict.traceback, values),
            stdout=redacted(text_of(ended.stdout), values),
            stderr=redacted(text_of(ended.stderr), values),
            truncated=bool(ended.stdout.omitted or ended.stderr.omitted),
            exit=exit_code(ended),
            wall_ms=ended.duration_s * 1000,
            peak_mb=max(ended.peak_mb, verdict.peak_kb // 1024),
            backend=self.name,
            artifacts=left.artifacts,
            omitted=left.omitted,
        )


class Performance:
    """One start of `guest/start.py`, from its start to its end.

    Attributes:
        flooded: It was ended because it printed too much.
    """

    def __init__(self, boxed: Boxed, limits: Limits, on_output: OnOutput | None) -> None:
        self.flooded = False
        self._boxed = boxed
        self._limits = limits
        self._on_output = on_output
        self._printed = 0
        self._kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._ended: ProcessResult | None = None

    @property
    def ended(self) -> ProcessResult:
        """How it ended."""
        assert self._ended is not None
        return self._ended

    def enter(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> Boxed:
        """The box that `run_process` starts it in: everything was prepared before."""
        return replace(self._boxed, environ={**self._boxed.environ, **environ})

    async def run(
        self,
        *,
        stdin: bytes | None,
        timeout_s: float | None,
        on_start: Callable[[anyio.CancelScope], None] | None = None,
    ) -> None:
        """Run it to its end."""
        limits = self._limits
        self._ended = await run_process(
            self._boxed.argv,
            cwd=Path("/"),
            environ={},
            stdin=stdin,
            timeout_s=timeout_s,
            max_output_bytes=limits.output_kb * 1024,
            max_report_bytes=ESCAPED * limits.result_kb * 1024 + REPORT_OVERHEAD_BYTES,
            on_output=self._hear,
            box=self,
            on_start=lambda scope: self._started(scope, on_start),
        )

    def _started(
        self, scope: anyio.CancelScope, on_start: Callable[[anyio.CancelScope], None] | None
    ) -> None:
        self._scope = scope
        if on_start is not None:
            on_start(scope)

    async def _hear(self, stream: Literal["stdout", "stderr"], chunk: bytes) -> None:
        self._printed += len(chunk)
        if self._printed > FLOOD * self._limits.output_kb * 1024:
            self.flooded = True
            self._scope.cancel()
        elif self._on_output is not None:
            await self._on_output(stream, chunk)
