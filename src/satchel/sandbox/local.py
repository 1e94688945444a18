"""What all backends on this machine share: the job, the folders of a run, its result, spares and sessions.

A backend says how a program is started confined (`LocalSandbox._boxed`) and where things are in it (`_places`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio

from satchel.errors import NoSandbox, SandboxError
from satchel.sandbox import artifacts
from satchel.sandbox.cgroup import process_group
from satchel.sandbox.job import HOST_PROCESSES, Places, Scene, job_bytes, memory_file, scratch_folder
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
from satchel.sandbox.process import ProcessResult, StartedProcess
from satchel.sandbox.proxy import open_egress
from satchel.sandbox.session import FolderSession

__all__ = ["Audience", "LocalSandbox", "Prepared", "most_report_bytes"]

REPORT_OVERHEAD_BYTES = 65_536
ESCAPED = 6
"""The length of an escaped character in JSON."""
PIPE_BYTES = 60_000
"""A larger job doesn't fit into a pipe at once."""
SPARE_S = 120.0
"""How long a spare waits."""


class LocalSandbox(ABC):
    """A backend that starts processes on this machine."""

    name: str
    features: frozenset[Feature]

    def __init__(self, *, spares: int = 0) -> None:
        """Take how many sandboxes are started ahead for what was run last."""
        self._most_spares = spares
        self._spares: list[Spare] = []
        self._closed = False

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
        entry = spec.entry
        spare = self._take_spare(spec) if isinstance(entry, PythonEntry) else None
        if spare is not None and isinstance(entry, PythonEntry):
            job = job_bytes(entry, spare.scene, spare.places, spec.secrets)
            if len(job) <= PIPE_BYTES:
                result = await self._run_spare(spare, entry, job, spec, on_output)
                self._prepare_soon(spec)
                return result
            spare.discard()
        result = await self.run_fresh(spec, on_output=on_output)
        self._prepare_soon(spec)
        return result

    async def run_fresh(self, spec: RunSpec, *, on_output: OnOutput | None = None) -> RunResult:
        """Like `run`, but use no spare and start none."""
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

    async def aclose(self) -> None:
        """See `Sandbox`."""
        self._closed = True
        for spare in tuple(self._spares):
            self._expire(spare)

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
        # Only root that stays root, because it has files to write, needs more than the kernel's limits.
        grouped = os.geteuid() == 0 and bool(writable)
        with (
            scratch_folder() as scratch,
            process_group(limits.processes + HOST_PROCESSES)
            if grouped
            else contextlib.nullcontext() as group,
        ):
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
                group=group,
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
        stdin = entry.stdin if isinstance(entry, Command) else None
        job_fd = memory_file(job_bytes(entry, scene, places, secrets))
        started = self._started(scene, places, job_fd, has_stdin=stdin is not None)
        audience = Audience(scene.limits, on_output)
        ended = await audience.listen(started, stdin=stdin)
        return self._result(ended, audience, scene, entry, secrets)

    def _started(
        self, scene: Scene, places: Places, job_fd: int, *, has_stdin: bool = False, warm: bool = False
    ) -> StartedProcess:
        try:
            boxed = self._boxed(scene, places, job_fd)
        except BaseException:
            os.close(job_fd)
            raise
        if warm:
            boxed = replace(boxed, argv=(*boxed.argv, "warm"))
        return StartedProcess(
            boxed.argv,
            cwd=Path("/"),
            environ={},
            has_stdin=has_stdin,
            has_report=True,
            box=Prepared(boxed),
        )

    async def _run_spare(
        self, spare: Spare, entry: PythonEntry, job: bytes, spec: RunSpec, on_output: OnOutput | None
    ) -> RunResult:
        with spare.scratch:
            with contextlib.suppress(BrokenPipeError):
                os.write(spare.job_fd, job)
            os.close(spare.job_fd)
            audience = Audience(spec.limits, on_output)
            ended = await audience.listen(spare.started, stdin=None)
            return self._result(ended, audience, spare.scene, entry, spec.secrets)

    def _take_spare(self, spec: RunSpec) -> Spare | None:
        """A spare that was started for the same scene."""
        for spare in self._spares:
            if spare.key == _key(spec):
                self._spares.remove(spare)
                spare.expiry.cancel()
                if not spare.started.has_exited:
                    return spare
                spare.discard()
                return None
        return None

    def _prepare_soon(self, spec: RunSpec) -> None:
        """Start the next spare once the caller has its result."""
        if self._most_spares > 0:
            asyncio.get_running_loop().call_soon(self._prepare_spare, spec)

    def _prepare_spare(self, spec: RunSpec) -> None:
        """Start a sandbox for the next run of the same code. One that can't be started is not missed."""
        if self._most_spares == 0 or self._closed or not isinstance(spec.entry, PythonEntry):
            return
        if (
            spec.network.mode != "none"
            or spec.writable
            or any(spare.key == _key(spec) for spare in self._spares)
        ):
            return
        with contextlib.suppress(SandboxError), contextlib.ExitStack() as made:
            scratch = made.enter_context(scratch_folder())
            scene = _scene_of(spec, scratch)
            scene.out.mkdir()
            places = self._places(scene)
            theirs, ours = os.pipe2(os.O_CLOEXEC)
            try:
                started = self._started(scene, places, theirs, warm=True)
            except SandboxError:
                os.close(ours)
                raise
            spare = Spare(_key(spec), scene, places, started, ours, made.pop_all())
            spare.expiry = asyncio.get_running_loop().call_later(SPARE_S, self._expire, spare)
            self._spares.append(spare)
        while len(self._spares) > self._most_spares:
            self._expire(self._spares[0])

    def _expire(self, spare: Spare) -> None:
        if spare in self._spares:
            self._spares.remove(spare)
            spare.expiry.cancel()
            spare.discard()

    def _result(
        self,
        ended: ProcessResult,
        audience: Audience,
        scene: Scene,
        entry: PythonEntry | Command,
        secrets: Mapping[str, str],
    ) -> RunResult:
        """Judge a run that has ended, and collect what it left."""
        limits = scene.limits
        is_call = isinstance(entry, PythonEntry)
        verdict = judge(ended, limits, flooded=audience.flooded, is_call=is_call, backend=self.name)
        values = secrets.values()
        try:
            left = artifacts.collect(scene.out, most=limits.artifacts, most_bytes=limits.artifacts_mb << 20)
        except SandboxError:
            # Without namespaces, the code may have put something else in its place.
            left = artifacts.Collected(artifacts=(), omitted=("out: not a folder",))
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


def most_report_bytes(limits: Limits) -> int:
    """How long a report may be."""
    return ESCAPED * limits.result_kb * 1024 + REPORT_OVERHEAD_BYTES


class Prepared:
    """A box that was prepared before."""

    def __init__(self, boxed: Boxed) -> None:
        self._boxed = boxed

    def enter(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> Boxed:
        """See `Entrance`."""
        return replace(self._boxed, environ={**self._boxed.environ, **environ})


class Audience:
    """Listens to one run until its end.

    Attributes:
        flooded: It was ended because it printed too much.
    """

    def __init__(self, limits: Limits, on_output: OnOutput | None) -> None:
        self.flooded = False
        self._limits = limits
        self._on_output = on_output
        self._printed = 0
        self._scope: anyio.CancelScope | None = None

    async def listen(self, started: StartedProcess, *, stdin: bytes | None) -> ProcessResult:
        """Let it run to its end."""
        limits = self._limits
        return await started.finish(
            stdin=stdin,
            timeout_s=limits.wall_s,
            max_output_bytes=limits.output_kb * 1024,
            max_report_bytes=most_report_bytes(limits),
            on_output=self._hear,
            on_start=self._set_scope,
        )

    def _set_scope(self, scope: anyio.CancelScope) -> None:
        self._scope = scope

    async def _hear(self, stream: Literal["stdout", "stderr"], chunk: bytes) -> None:
        self._printed += len(chunk)
        if self._printed > FLOOD * self._limits.output_kb * 1024 and self._scope is not None:
            self.flooded = True
            self._scope.cancel()
        elif self._on_output is not None:
            await self._on_output(stream, chunk)


class Spare:
    """A sandbox that waits for its job. It serves one run."""

    expiry: asyncio.TimerHandle

    def __init__(
        self,
        key: object,
        scene: Scene,
        places: Places,
        started: StartedProcess,
        job_fd: int,
        scratch: contextlib.ExitStack,
    ) -> None:
        self.key = key
        self.scene = scene
        self.places = places
        self.started = started
        self.job_fd = job_fd
        self.scratch = scratch

    def discard(self) -> None:
        """End it unused."""
        with self.scratch:
            os.close(self.job_fd)
            self.started.discard()


def _key(spec: RunSpec) -> object:
    """What two runs have in common that can use the same spare: everything but arguments and secrets."""
    code_dir = spec.entry.code_dir if isinstance(spec.entry, PythonEntry) else None
    folders = []
    for path in (code_dir, spec.layer):
        # A folder of the same name that was made anew isn't the one that is mounted.
        info = os.stat(path) if path is not None and path.exists() else None
        folders.append((path, info.st_dev, info.st_ino) if info is not None else None)
    return (tuple(folders), spec.limits, spec.read_only, spec.writable, tuple(sorted(spec.environ.items())))


def _scene_of(spec: RunSpec, scratch: Path) -> Scene:
    return Scene(
        code_dir=spec.entry.code_dir if isinstance(spec.entry, PythonEntry) else None,
        layer=spec.layer,
        network=spec.network,
        limits=spec.limits,
        read_only=spec.read_only,
        writable=spec.writable,
        environ=spec.environ,
        scratch=scratch,
        folder=None,
        socket=None,
    )
