"""What all backends share: the folders of a run, its way out, its result, and sessions.

A backend says how something is run in a scene (`BaseBackend._play`). `local` is for those that start the program on
this machine; a container's engine and a hosted service start it themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import anyio

from satchel.errors import NoSandbox, SandboxError, UsageError
from satchel.sandbox import artifacts
from satchel.sandbox.job import Scene, scratch_folder
from satchel.sandbox.outcome import FLOOD, exit_code, judge, redacted, text_of
from satchel.sandbox.port import (
    Artifact,
    CommandEntry,
    Feature,
    Limits,
    Network,
    OnOutput,
    OpenBox,
    Probe,
    PythonEntry,
    RunResult,
    RunSpec,
    SandboxSession,
    SessionSpec,
    Status,
    WorkspaceBox,
)
from satchel.sandbox.process import ProcessResult, StartedProcess, Tape
from satchel.sandbox.proxy import EgressProxy, open_egress

REPORT_OVERHEAD_BYTES = 65_536
ESCAPED = 6
"""The length of an escaped character in JSON."""


class BaseBackend(ABC):
    """See the module."""

    name: str
    features: frozenset[Feature]
    proxied = True
    """Whether allowed hosts are reached through the proxy of this machine."""

    @abstractmethod
    async def _play(self, scene: Scene, *, on_output: OnOutput | None = None) -> RunResult:
        """Run once in a scene."""

    @abstractmethod
    async def probe(self) -> Probe:
        """See `Sandbox`."""

    async def run(self, spec: RunSpec, *, on_output: OnOutput | None = None) -> RunResult:
        """See `Sandbox`."""
        return await self.play_once(spec, folder=None, on_output=on_output)

    async def play_once(self, spec: RunSpec, *, folder: Path | None, on_output: OnOutput | None) -> RunResult:
        """Run once, in a scene of its own. `folder` is that of a session."""
        self._check(spec.network)
        if spec.broker is not None and Feature.CALLS not in self.features:
            raise NoSandbox(f"In the sandbox here ({self.name}), a capability can't call another one.")
        async with self._scene(spec, folder) as (scene, egress):
            result = await self._play(scene, on_output=on_output)
            return result if egress is None else replace(result, denied=tuple(egress.denied))

    def folder_owner(self, folder: Path) -> int | None:
        """The user whose files a session's folder holds; None is this one."""
        return None

    async def open(self, spec: SessionSpec) -> SandboxSession:
        """See `Sandbox`."""
        self._check(spec.network)
        return FolderSession(self, spec)

    @asynccontextmanager
    async def box(self, spec: WorkspaceBox) -> AsyncIterator[OpenBox]:
        """See `Sandbox`. By default there is none: the user's programs are not there."""
        raise NoSandbox(
            f"{self.name} runs capabilities and builds only: it lacks the programs that commands in your own folder "
            'use. Commands are asked about; backend = "bubblewrap" boxes them.'
        )
        yield  # what makes it a generator

    async def aclose(self) -> None:
        """See `Sandbox`. Nothing waits, by default."""
        return

    def _check(self, network: Network) -> None:
        """Refuse a network that can't be limited as it should be."""
        if network.mode != "none" and Feature.HOSTS not in self.features:
            raise NoSandbox(
                f"The sandbox here ({self.name}) can't limit the network to hosts, so it allows none. "
                "Install bubblewrap: sudo apt install bubblewrap."
            )

    def _group(self, spec: RunSpec) -> AbstractContextManager[Path | None]:
        """A control group for the run, where the kernel's own limits are not enough."""
        return nullcontext()

    @asynccontextmanager
    async def _scene(
        self, spec: RunSpec, folder: Path | None
    ) -> AsyncIterator[tuple[Scene, EgressProxy | None]]:
        """Make the folders of a run, and its way out, and remove them afterwards."""
        for path in (spec.code_dir, spec.layer, folder, *spec.read_only, *spec.writable):
            if path is not None and not path.exists():
                raise SandboxError(f"{str(path)!r}, which the sandbox should contain, doesn't exist.")
        with scratch_folder() as scratch, self._group(spec) as group:
            scene = Scene(spec=spec, scratch=scratch, folder=folder, group=group)
            scene.out.mkdir()
            if spec.network.mode == "none" or not self.proxied:
                yield scene, None
                return
            async with open_egress(spec.network, folder=scratch) as egress:
                yield replace(scene, socket=egress.socket), egress

    def _result(self, ended: ProcessResult, audience: Audience, scene: Scene) -> RunResult:
        """Judge a run that has ended, and collect what it left."""
        limits, values = scene.spec.limits, scene.spec.secrets.values()
        is_call = scene.spec.code_dir is not None
        verdict = judge(ended, limits, flooded=audience.flooded, is_call=is_call, backend=self.name)
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
            exit=exit_code(ended),
            wall_ms=ended.duration_s * 1000,
            peak_mb=max(ended.peak_mb, verdict.peak_kb // 1024),
            backend=self.name,
            artifacts=left.artifacts,
            omitted=left.omitted,
        )


class FolderSession:
    """See `SandboxSession`: a folder on this machine that stays, and a fresh sandbox for each command in it.

    Nothing runs between two commands, so a session that was interrupted by a kill needs no repair, and a command leaves
    nothing running that a later one could meet.
    """

    def __init__(self, sandbox: BaseBackend, spec: SessionSpec) -> None:
        """Make the folder.

        Raises:
            SandboxError: That fails.
        """
        self.backend = sandbox.name
        self._sandbox = sandbox
        self._spec = spec
        self._left_s = spec.total_s
        self._scopes: set[anyio.CancelScope] = set()
        self._closed = False
        try:
            spec.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxError(
                f"The sandbox's folder {str(spec.folder)!r} can't be made: {error.strerror}."
            ) from error

    async def exec(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes | None = None) -> RunResult:
        """See `SandboxSession`."""
        entry = CommandEntry(argv=tuple(argv), stdin=stdin)
        return await self._play(entry, timeout_s=timeout_s, folder=self._spec.folder)

    async def call(self, args: Mapping[str, object], *, timeout_s: float) -> RunResult:
        """See `SandboxSession`."""
        entry = PythonEntry(code_dir=self._spec.folder, args=args)
        return await self._play(entry, timeout_s=timeout_s, folder=None)

    async def write(self, path: str, content: bytes) -> None:
        """See `SandboxSession`."""
        if len(content) > self._spec.limits.file_mb << 20:
            raise UsageError(
                f"{path!r} would be larger than the {self._spec.limits.file_mb} MiB of a file here."
            )
        owner = self._sandbox.folder_owner(self._spec.folder)
        artifacts.write_file(self._spec.folder, path, content, owner=owner)

    async def read(self, path: str, *, max_bytes: int) -> bytes:
        """See `SandboxSession`."""
        return artifacts.read_file(self._spec.folder, path, max_bytes=max_bytes)

    async def export(self, paths: Sequence[str] | None = None) -> tuple[Artifact, ...]:
        """See `SandboxSession`."""
        limits = self._spec.limits
        found = artifacts.collect(
            self._spec.folder,
            most=limits.artifacts,
            most_bytes=limits.artifacts_mb << 20,
            only=tuple(paths or ()),
        )
        if found.omitted:
            raise UsageError(f"Not everything can be taken from the sandbox: {'; '.join(found.omitted[:5])}.")
        return found.artifacts

    def use_layer(self, layer: Path | None) -> None:
        """See `SandboxSession`."""
        self._spec = replace(self._spec, layer=layer)

    async def aclose(self) -> None:
        """See `SandboxSession`."""
        self._closed = True
        for scope in self._scopes:
            scope.cancel()

    async def __aenter__(self) -> Self:
        """Enter the block that closes the session."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        await self.aclose()

    async def _play(
        self, entry: CommandEntry | PythonEntry, *, timeout_s: float, folder: Path | None
    ) -> RunResult:
        if self._closed:
            raise SandboxError("The session is closed.")
        if self._left_s <= 0:
            return RunResult(
                status=Status.TIMEOUT,
                error=f"The {self._spec.total_s:g} s of all commands together are used up.",
                exit=124,
                backend=self.backend,
            )
        spec = self._spec
        limits: Limits = replace(spec.limits, wall_s=min(timeout_s, self._left_s))
        run = RunSpec(
            entry=entry,
            layer=spec.layer,
            network=spec.network,
            limits=limits,
            read_only=spec.read_only,
            environ=spec.environ,
            secrets=spec.secrets,
        )
        can_call = Feature.CALLS in self._sandbox.features
        lent = spec.lend() if spec.lend is not None and can_call else nullcontext()
        began_s = anyio.current_time()
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                with lent as broker:
                    return await self._sandbox.play_once(
                        replace(run, broker=broker), folder=folder, on_output=None
                    )
            finally:
                self._scopes.discard(scope)
                self._left_s -= anyio.current_time() - began_s
        raise SandboxError("The session was closed while a command ran.")


def most_report_bytes(limits: Limits) -> int:
    """How long a report may be."""
    return ESCAPED * limits.result_kb * 1024 + REPORT_OVERHEAD_BYTES


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
            on_output=self.hear,
            on_start=self.attend,
        )

    def tape(self) -> Tape:
        """Keeps what the limits allow of one stream."""
        half = self._limits.output_kb * 512
        return Tape(head_bytes=half, tail_bytes=half)

    def attend(self, scope: anyio.CancelScope) -> None:
        """Take the scope that is cancelled if too much is printed."""
        self._scope = scope

    async def hear(self, stream: Literal["stdout", "stderr"], chunk: bytes) -> None:
        """Count and pass on a piece of output."""
        self._printed += len(chunk)
        if self._printed > FLOOD * self._limits.output_kb * 1024 and self._scope is not None:
            self.flooded = True
            self._scope.cancel()
        elif self._on_output is not None:
            await self._on_output(stream, chunk)
