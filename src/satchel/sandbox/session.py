"""A session on this machine: a folder that stays, and a fresh sandbox for each command in it.

Nothing runs between two commands, so a session that was interrupted by a kill needs no repair, and a command leaves
nothing running that a later one could meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import anyio

from satchel.errors import SandboxError, UsageError
from satchel.sandbox import artifacts
from satchel.sandbox.port import (
    Artifact,
    CommandEntry,
    Feature,
    Limits,
    OnOutput,
    PythonEntry,
    RunResult,
    RunSpec,
    SessionSpec,
    Status,
)


class Player(Protocol):
    """The backend, as a session uses it."""

    name: str
    features: frozenset[Feature]

    async def play_once(self, spec: RunSpec, *, folder: Path | None, on_output: OnOutput | None) -> RunResult:
        """Run once; `folder` is the session's."""
        ...

    def folder_owner(self, folder: Path) -> int | None:
        """The user whose files the folder holds; None is this one."""
        ...


__all__ = ["FolderSession", "Player"]


class FolderSession:
    """See `SandboxSession`."""

    def __init__(self, sandbox: Player, spec: SessionSpec) -> None:
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

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> RunResult:
        """See `SandboxSession`."""
        return await self._play(
            CommandEntry(argv=tuple(argv), stdin=stdin),
            timeout_s=timeout_s,
            on_output=on_output,
            folder=self._spec.folder,
        )

    async def call(self, args: Mapping[str, object], *, timeout_s: float) -> RunResult:
        """See `SandboxSession`."""
        entry = PythonEntry(code_dir=self._spec.folder, args=args)
        return await self._play(entry, timeout_s=timeout_s, on_output=None, folder=None)

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
        self,
        entry: CommandEntry | PythonEntry,
        *,
        timeout_s: float,
        on_output: OnOutput | None,
        folder: Path | None,
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
                        replace(run, broker=broker), folder=folder, on_output=on_output
                    )
            finally:
                self._scopes.discard(scope)
                self._left_s -= anyio.current_time() - began_s
        raise SandboxError("The session was closed while a command ran.")
