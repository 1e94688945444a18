"""What backends share that start the program on this machine: how it gets its job, and spares.

A backend says how a program is started confined (`LocalSandbox._boxed`) and where things are in it (`_places`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from satchel.errors import SandboxError
from satchel.sandbox.backend import Audience, BaseBackend
from satchel.sandbox.broker import brokered
from satchel.sandbox.cgroup import process_group
from satchel.sandbox.job import HOST_PROCESSES, JobPlaces, Scene, job_bytes, memory_file, scratch_folder
from satchel.sandbox.port import Boxed, OnOutput, RunResult, RunSpec
from satchel.sandbox.process import StartedProcess

PIPE_BYTES = 60_000
"""A larger job doesn't fit into a pipe at once."""
SPARE_S = 120.0
"""How long a spare waits."""


class LocalSandbox(BaseBackend):
    """A backend that starts processes on this machine."""

    def __init__(self, *, spares: int = 0) -> None:
        """Take how many sandboxes are started ahead for what was run last."""
        self._most_spares = spares
        self._spares: list[Spare] = []
        self._closed = False

    @abstractmethod
    def _places(self, scene: Scene) -> JobPlaces:
        """Where things are. Called once for each run."""

    @abstractmethod
    def _boxed(self, scene: Scene, places: JobPlaces, job_fd: int) -> Boxed:
        """How to start `guest/start.py` with the job, confined. The descriptor is among those that are passed."""

    async def run(self, spec: RunSpec, *, on_output: OnOutput | None = None) -> RunResult:
        """See `Sandbox`."""
        can_wait = spec.code_dir is not None and spec.broker is None
        spare = self._take_spare(spec) if can_wait else None
        if spare is not None:
            scene = replace(spare.scene, spec=spec)
            job = job_bytes(scene, spare.places)
            if len(job) <= PIPE_BYTES:
                result = await self._run_spare(spare, scene, job, on_output)
                self._prepare_soon(spec)
                return result
            spare.discard()
        result = await super().run(spec, on_output=on_output)
        self._prepare_soon(spec)
        return result

    async def aclose(self) -> None:
        """See `Sandbox`."""
        self._closed = True
        for spare in tuple(self._spares):
            self._expire(spare)

    def _group(self, spec: RunSpec) -> AbstractContextManager[Path | None]:
        # Only root that stays root, because it has files to write, needs more than the kernel's limits.
        if os.geteuid() == 0 and spec.writable:
            return process_group(spec.limits.processes + HOST_PROCESSES)
        return contextlib.nullcontext()

    async def _play(self, scene: Scene, *, on_output: OnOutput | None = None) -> RunResult:
        """Run once in a scene."""
        places = self._places(scene)
        stdin = scene.spec.stdin
        audience = Audience(scene.spec.limits, on_output)
        async with brokered(scene.spec.broker) as broker_fd:
            job_fd = memory_file(job_bytes(scene, places, broker_fd=broker_fd))
            started = self._started(scene, places, job_fd, has_stdin=stdin is not None, broker_fd=broker_fd)
            ended = await audience.listen(started, stdin=stdin)
        return self._result(ended, audience, scene)

    def _started(
        self,
        scene: Scene,
        places: JobPlaces,
        job_fd: int,
        *,
        has_stdin: bool = False,
        warm: bool = False,
        broker_fd: int = -1,
    ) -> StartedProcess:
        try:
            boxed = self._boxed(scene, places, job_fd)
        except BaseException:
            os.close(job_fd)
            raise
        if broker_fd >= 0:
            boxed = replace(boxed, descriptors=(*boxed.descriptors, broker_fd))
        if warm:
            boxed = replace(boxed, argv=(*boxed.argv, "warm"))
        return StartedProcess(
            boxed.argv,
            cwd=Path("/"),
            environ={},
            has_stdin=has_stdin,
            has_report=True,
            box=PreparedBox(boxed),
        )

    async def _run_spare(
        self, spare: Spare, scene: Scene, job: bytes, on_output: OnOutput | None
    ) -> RunResult:
        with spare.scratch:
            with contextlib.suppress(BrokenPipeError):
                os.write(spare.job_fd, job)
            os.close(spare.job_fd)
            audience = Audience(scene.spec.limits, on_output)
            ended = await audience.listen(spare.started, stdin=None)
            return self._result(ended, audience, scene)

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
        if self._most_spares == 0 or self._closed or spec.code_dir is None:
            return
        if (
            spec.network.mode != "none"
            or spec.writable
            or spec.broker is not None
            or any(spare.key == _key(spec) for spare in self._spares)
        ):
            return
        with contextlib.suppress(SandboxError), contextlib.ExitStack() as made:
            scratch = made.enter_context(scratch_folder())
            scene = Scene(spec=spec, scratch=scratch)
            scene.out.mkdir()
            key = _key(spec)  # before the code is copied
            places = self._places(scene)
            theirs, ours = os.pipe2(os.O_CLOEXEC)
            try:
                started = self._started(scene, places, theirs, warm=True)
            except SandboxError:
                os.close(ours)
                raise
            spare = Spare(key, scene, places, started, ours, made.pop_all())
            spare.expiry = asyncio.get_running_loop().call_later(SPARE_S, self._expire, spare)
            self._spares.append(spare)
        while len(self._spares) > self._most_spares:
            self._expire(self._spares[0])

    def _expire(self, spare: Spare) -> None:
        if spare in self._spares:
            self._spares.remove(spare)
            spare.expiry.cancel()
            spare.discard()


@dataclass(frozen=True, slots=True)
class PreparedBox:
    """A box that was prepared before."""

    boxed: Boxed

    def enter(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> Boxed:
        """See `Entrance`."""
        return replace(self.boxed, environ={**self.boxed.environ, **environ})


@dataclass(slots=True, eq=False)
class Spare:
    """A sandbox that waits for its job. It serves one run."""

    key: object
    scene: Scene
    places: JobPlaces
    started: StartedProcess
    job_fd: int
    scratch: contextlib.ExitStack
    expiry: asyncio.TimerHandle = field(init=False)

    def discard(self) -> None:
        """End it unused."""
        with self.scratch:
            os.close(self.job_fd)
            self.started.discard()


def _key(spec: RunSpec) -> object:
    """What two runs have in common that can use the same spare: everything but arguments and secrets."""
    # A folder of the same name that was made anew isn't the one that is mounted. Of the code, root's spare has a copy.
    code = () if spec.code_dir is None else (spec.code_dir, *sorted(spec.code_dir.rglob("*")))
    found = [(path, _state(path)) for path in (*code, spec.layer) if path is not None]
    return (tuple(found), spec.limits, spec.read_only, spec.writable, tuple(sorted(spec.environ.items())))


def _state(path: Path) -> tuple[int, ...] | None:
    """What changes with whatever is written to a file; None if it is gone."""
    try:
        info = path.stat()
    except OSError:
        return None
    is_folder = stat.S_ISDIR(info.st_mode)
    return (info.st_dev, info.st_ino, *(() if is_folder else (info.st_size, info.st_ctime_ns)))
