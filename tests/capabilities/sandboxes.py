"""A sandbox that confines nothing, for code that the tests wrote themselves: it calls the code in this process.

What is tested with it is what capabilities do with a sandbox. The sandbox itself is tested in `tests/sandbox`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from satchel.sandbox.port import (
    Feature,
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

__all__ = ["OpenSandbox"]


@dataclass
class OpenSandbox:
    """Calls `main.run` here. `specs` are the runs so far; `answers` replace the results of runs to come."""

    specs: list[RunSpec] = field(default_factory=list)
    answers: list[RunResult | Exception] = field(default_factory=list)
    name: str = "open"
    features: frozenset[Feature] = frozenset()

    async def run(self, spec: RunSpec, *, on_output: OnOutput | None = None) -> RunResult:
        self.specs.append(spec)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        assert isinstance(spec.entry, PythonEntry)
        path = spec.entry.code_dir / "main.py"
        space: dict[str, Any] = {"__name__": "main", "ENVIRON": {**spec.environ, **spec.secrets}}
        try:
            exec(compile(path.read_text(), str(path), "exec"), space)  # noqa: S102
            run: Callable[[Mapping[str, object]], object] = space["run"]
            value = run(spec.entry.args)
        except Exception as error:  # noqa: BLE001 - whatever the code raises is a result
            return RunResult(
                status=Status.ERROR,
                error=str(error),
                traceback=traceback.format_exc(),
                wall_ms=1,
                backend=self.name,
            )
        if value is None:
            return RunResult(
                status=Status.BAD_RETURN, error="It returned nothing.", wall_ms=1, backend=self.name
            )
        return RunResult(status=Status.OK, result=str(value), wall_ms=1, peak_mb=1, backend=self.name)

    async def open(self, spec: SessionSpec) -> SandboxSession:
        raise NotImplementedError

    def box(self, spec: WorkspaceBox) -> AbstractAsyncContextManager[OpenBox]:
        raise NotImplementedError

    async def probe(self) -> Probe:
        return Probe(name=self.name, works=True)

    async def aclose(self) -> None:
        pass


def opened(sandbox: OpenSandbox) -> Callable[[], Any]:
    async def give() -> OpenSandbox:
        return sandbox

    return give
