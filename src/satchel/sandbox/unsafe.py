"""No sandbox at all: programs run with all rights of the user.

It exists for those who wrote `allow_unsafe = true`, and for the tests: what an attack can do here shows that the attack
works, and that a backend which stops it does something.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from satchel.sandbox.job import ENVIRON, GUEST, JobPlaces, Scene, python_program
from satchel.sandbox.local import LocalSandbox
from satchel.sandbox.port import Boxed, Denial, Feature, OpenBox, Probe, Watch, WorkspaceBox

BOUNDLESS = Watch(memory_mb=1 << 40, processes=1 << 40, every_s=1.0)


class Unsafe(LocalSandbox):
    """See the module. Time, output and the size of the result are limited; nothing else is."""

    name = "unsafe"
    features: frozenset[Feature] = frozenset({Feature.CALLS})

    def _places(self, scene: Scene) -> JobPlaces:
        return JobPlaces(
            code_dir=str(scene.spec.code_dir) if scene.spec.code_dir is not None else "",
            path=(str(scene.spec.layer),) if scene.spec.layer is not None else (),
            cwd=str(scene.folder if scene.folder is not None else scene.scratch),
            tmp=str(scene.scratch),
            socket="",
            limited=False,
        )

    def _boxed(self, scene: Scene, places: JobPlaces, job_fd: int) -> Boxed:
        return Boxed(
            argv=[str(python_program()), "-I", "-S", str(GUEST / "start.py"), str(job_fd)],
            cwd=scene.scratch,
            environ=ENVIRON,
            descriptors=(job_fd,),
            watch=BOUNDLESS,
        )

    @asynccontextmanager
    async def box(self, spec: WorkspaceBox) -> AsyncIterator[OpenBox]:
        """See `Sandbox`."""
        yield _NoBox()

    async def probe(self) -> Probe:
        """See `Sandbox`."""
        return Probe(
            name=self.name,
            works=True,
            reason="allow_unsafe is set: code runs with all your rights, without a sandbox.",
            fix="Remove allow_unsafe from the section [sandbox] of config.toml.",
        )

    def _check(self, network: object) -> None:
        """Nothing is limited, so nothing is refused."""


class _NoBox:
    backend = "unsafe"
    denied: Sequence[Denial] = ()

    def enter(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> Boxed:
        """See `OpenBox`."""
        return Boxed(argv=argv, cwd=cwd, environ=environ, descriptors=(), watch=BOUNDLESS)
