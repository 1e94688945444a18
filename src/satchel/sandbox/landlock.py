"""Landlock with a filter of system calls: where namespaces are forbidden, as in most containers.

It denies instead of hiding: no other process can be signalled or traced, there is no socket at all, and no file can be
opened but those that are named. But names can be seen, and single files of a writable folder can't be protected. The
kernel limits single processes only; a supervisor outside of it all and a watchdog hold the rest.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from satchel.errors import NoSandbox, SandboxError
from satchel.sandbox import seccomp
from satchel.sandbox.bwrap import ETC, SYSTEM, interpreter_folders
from satchel.sandbox.job import (
    ENVIRON,
    GUEST,
    JobPlaces,
    Scene,
    command_job,
    memory_file,
    python_program,
    scratch_folder,
)
from satchel.sandbox.local import LocalSandbox
from satchel.sandbox.port import Boxed, Denial, Feature, OpenBox, Probe, Watch, WorkspaceBox
from satchel.sandbox.probing import probe_by_doing
from satchel.sandbox.workspace import (
    UNSET,
    VISIBLE_BELOW,
    open_as_agreed,
    refuse_home,
    special_in,
    system_folders,
    watched,
)

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
FACTS = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu")
"""What programs ask the machine about, and what says nothing about other processes."""
LOOK_S = 0.025
"""The watchdog counts processes here, so it looks more often."""
MARGIN = 64
"""The kernel counts all processes of the user. Those that the user starts meanwhile must not be missing here."""


class Landlock(LocalSandbox):
    """See the module."""

    name = "landlock"
    features = frozenset(Feature) - {Feature.HIDING, Feature.HOSTS}

    def __init__(self, *, as_root: bool | None = None, spares: int = 0) -> None:
        """Take who runs it; None finds out."""
        super().__init__(spares=spares)
        self._as_root = os.geteuid() == 0 if as_root is None else as_root

    def _places(self, scene: Scene) -> JobPlaces:
        if self._as_root:
            raise NoSandbox(
                "Landlock needs an ordinary user: root may do too much for it. Run Satchel as an ordinary user, or "
                "install bubblewrap: sudo apt install bubblewrap."
            )
        cwd = scene.folder if scene.folder is not None else scene.scratch
        shown = [scene.spec.code_dir, scene.spec.layer, GUEST, *scene.spec.read_only, *interpreter_folders()]
        return JobPlaces(
            code_dir=str(scene.spec.code_dir) if scene.spec.code_dir is not None else "",
            path=(str(scene.spec.layer),) if scene.spec.layer is not None else (),
            cwd=str(cwd),
            tmp=str(scene.scratch),
            socket="",
            supervise=_rules(
                [*SYSTEM, *ETC, *FACTS, *(path for path in shown if path is not None)],
                [path.resolve() for path in (scene.scratch, cwd, *scene.spec.writable)],
            ),
            other_tasks=tasks_of(os.getuid()) + MARGIN,
        )

    def _boxed(self, scene: Scene, places: JobPlaces, job_fd: int) -> Boxed:
        limits = scene.spec.limits
        return Boxed(
            argv=[str(python_program()), "-I", "-S", str(GUEST / "start.py"), str(job_fd)],
            cwd=scene.scratch,
            environ=ENVIRON,
            descriptors=(job_fd,),
            watch=Watch(
                memory_mb=limits.memory_mb,
                processes=limits.processes,
                folders=(scene.scratch,) if scene.folder is None else (scene.scratch, scene.folder),
                folders_mb=limits.tmp_mb,
                every_s=LOOK_S,
            ),
        )

    @asynccontextmanager
    async def box(self, spec: WorkspaceBox) -> AsyncIterator[OpenBox]:
        """See `Sandbox`."""
        self._check(spec.network)
        refuse_home(spec)
        with scratch_folder() as scratch:
            box = _Workspace(spec, scratch)
            try:
                yield box
            finally:
                box.closed = True

    async def probe(self) -> Probe:
        """See `Sandbox`."""
        if self._as_root:
            return Probe(
                name=self.name,
                works=False,
                reason="Landlock needs an ordinary user: root may do too much for it.",
                fix="Run Satchel as an ordinary user.",
            )
        return await probe_by_doing(self)


class _Workspace:
    """An open box."""

    backend = "landlock"
    denied: Sequence[Denial] = ()

    def __init__(self, spec: WorkspaceBox, scratch: Path) -> None:
        self.closed = False
        self._spec = spec
        self._scratch = scratch

    def enter(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> Boxed:
        """See `OpenBox`."""
        if self.closed:
            raise SandboxError("The box is closed.")
        limits = {
            "RLIMIT_FSIZE": self._spec.file_mb << 20,
            "RLIMIT_CORE": 0,
            "RLIMIT_NPROC": tasks_of(os.getuid()) + self._spec.processes + MARGIN,
        }
        held: list[int] = []
        try:
            rules = self._rules_now(held)
            job_fd = memory_file(
                command_job(argv, cwd=cwd.resolve(), socket="", limits=limits, supervise=rules)
            )
        except BaseException:
            for descriptor in held:
                os.close(descriptor)
            raise
        scratch = str(self._scratch)
        return Boxed(
            argv=[str(python_program()), "-I", "-S", str(GUEST / "start.py"), str(job_fd)],
            cwd=self._scratch,
            environ={name: value for name, value in environ.items() if name not in UNSET}
            | {"TMPDIR": scratch, "XDG_CACHE_HOME": f"{scratch}/cache"},
            descriptors=(job_fd, *held),
            watch=watched(self._spec, self._scratch, every_s=LOOK_S),
        )

    def _rules_now(self, held: list[int]) -> dict[str, object]:
        """The rules for one command. What the spec names is opened here, and the descriptors are added to `held`."""
        spec = self._spec

        def opened(paths: Iterable[Path]) -> list[int]:
            found = [each for path in paths if (each := open_as_agreed(path, spec)) is not None]
            held.extend(found)
            return found

        readable: list[int] = []
        split: list[tuple[int, list[str], list[str]]] = []
        for path in spec.read_only:
            # The longer path decides: what was named stays visible in a folder that is hidden.
            secrets = [one for one in spec.hidden if one not in path.parents]
            pieces = list(_without(path, secrets + special_in(path)))
            if pieces == [(path, True)]:
                readable += opened([path])
            elif pieces and (top := opened([path])):
                whole = [piece for piece, is_whole in pieces if is_whole]
                # Who may list a folder may also list all folders below it, so that none with secrets is among them.
                listed = [
                    piece
                    for piece, is_whole in pieces
                    if not is_whole and not any(one.is_relative_to(piece) for one in secrets)
                ]
                split.append((top[0], _below(path, whole), _below(path, listed)))
        system: list[str | Path] = [*system_folders(), *VISIBLE_BELOW, *FACTS, GUEST, *interpreter_folders()]
        rules = _rules([*system, *readable], [self._scratch, *opened((spec.workspace, *spec.writable))])
        return {**rules, "split": split}


def tasks_of(uid: int) -> int:
    """How many processes and threads a user has."""
    tasks = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    tasks += len(os.listdir(f"/proc/{name}/task"))
    return tasks


def _rules(readable: Iterable[str | Path | int], writable: Iterable[Path | int]) -> dict[str, object]:
    """The rules for `guest/confine.py`; numbers are descriptors."""
    return {
        "readable": [path if isinstance(path, int) else str(path) for path in readable],
        "writable": [path if isinstance(path, int) else str(path) for path in writable],
        "devices": list(DEVICES),
        "split": [],
        "filter": seccomp.program(seccomp.NO_SOCKETS),
    }


def _below(top: Path, paths: Iterable[Path]) -> list[str]:
    return [str(path.relative_to(top)) for path in paths]


def _without(path: Path, hidden: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """The path, or what is in it, without what is hidden. Landlock can allow, but not take back.

    With each path comes whether it is one as a whole; if not, it is a folder of which some is hidden.
    """
    if any(path.is_relative_to(secret) for secret in hidden) or path.is_symlink():
        return
    if not any(secret.is_relative_to(path) for secret in hidden):
        yield path, True
        return
    yield path, False
    try:
        below = sorted(path.iterdir())
    except OSError:
        return
    for entry in below:
        yield from _without(entry, hidden)
