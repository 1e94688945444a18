"""The job of `guest/start.py`: what runs, with which limits, and where things are."""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from satchel.errors import SandboxError
from satchel.sandbox.port import PythonEntry, RunSpec

GUEST = Path(__file__).with_name("guest")
"""The programs that run inside."""
ENVIRON: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    # One thread for each core, with its memory, is the default of both, whatever may be used.
    "OPENBLAS_NUM_THREADS": "2",
    "OMP_NUM_THREADS": "2",
}
ADDRESS_SPACE = 4
"""Address space per memory that may be used: allocators and threads reserve far more than they touch."""
OPEN_FILES = 256
HOST_PROCESSES = 6
"""Processes of the sandbox itself."""
SCRATCH_PREFIX = "satchel-box-"
LEFT_AFTER_S = 60.0
"""A younger folder may not be locked yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a run finds.

    Attributes:
        scratch: A folder for this run, which is removed afterwards.
        socket: The proxy's socket, or None.
        group: A control group to join, or None.
    """

    spec: RunSpec
    scratch: Path
    folder: Path | None = None
    socket: Path | None = None
    group: Path | None = None

    @property
    def out(self) -> Path:
        """The folder on the host whose files are collected."""
        return self.scratch / "out"

    @property
    def left(self) -> tuple[Path, ...]:
        """The folders on the host that keep what the run writes."""
        return (self.out,) if self.folder is None else (self.out, self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlaces:
    """Where things are, as the program in the sandbox sees them.

    Attributes:
        cwd: The working folder, and HOME.
        uid: The user to become; 0 stays who one is.
        supervise: What the supervisor of Landlock needs; None without it.
        filter: The filter of system calls that the guest loads itself; b"" where it is confined from outside.
        other_tasks: What the kernel's limit on processes counts besides those of this sandbox.
        limited: Whether the kernel's limits are set at all.
    """

    code_dir: str
    path: tuple[str, ...]
    cwd: str
    tmp: str
    socket: str
    uid: int = 0
    supervise: Mapping[str, object] | None = None
    filter: bytes = b""
    other_tasks: int = 0
    limited: bool = True


def memory_file(content: bytes) -> int:
    """A file in memory, open at its beginning. The caller closes it."""
    fd = os.memfd_create("satchel", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def python_program() -> Path:
    """Satchel's own interpreter, without its virtual environment."""
    base: str = getattr(sys, "_base_executable", "") or sys.executable
    return Path(base).resolve()


def job_bytes(scene: Scene, places: JobPlaces, *, broker_fd: int = -1) -> bytes:
    """The job of `guest/start.py`. `broker_fd` is the guest's end of the broker's descriptor, if it has one.

    Raises:
        SandboxError: The arguments contain something that JSON doesn't know.
    """
    spec, entry, limits = scene.spec, scene.spec.entry, scene.spec.limits
    call = entry if isinstance(entry, PythonEntry) else None
    kernel_limits = {
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": limits.cpu_s,
        "RLIMIT_FSIZE": limits.file_mb << 20,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_NPROC": limits.processes + places.other_tasks,
        "RLIMIT_AS": ADDRESS_SPACE * limits.memory_mb << 20,
    }
    job: dict[str, object] = {
        "supervise": None if places.supervise is None else dict(places.supervise),
        "filter": places.filter,
        "uid": places.uid,
        "gid": places.uid,
        "socket": places.socket,
        "environ": {
            "HOME": places.cwd,
            "TMPDIR": places.tmp,
            **spec.environ,
            **spec.secrets,
        },
        "cwd": places.cwd,
        "limits": kernel_limits if places.limited else {},
        "path": list(places.path),
        "code_dir": places.code_dir,
        "result_bytes": limits.result_kb * 1024,
        "own_report": False,
        "argv": [] if isinstance(entry, PythonEntry) else list(entry.argv),
        "args": dict(call.args) if call is not None else {},
        "broker": broker_fd,
    }
    try:
        return marshal.dumps(job, 2)
    except ValueError as error:
        raise SandboxError(f"The arguments can't be passed into the sandbox: {error}.") from error


def command_job(
    argv: Sequence[str],
    *,
    cwd: Path,
    socket: str,
    limits: Mapping[str, int],
    supervise: Mapping[str, object] | None = None,
    owner: tuple[int, int] | None = None,
    direct: Sequence[str] = (),
) -> bytes:
    """The job for a command in a box: it keeps the environment that the box was entered with.

    `direct` are names of hosts that programs don't reach through the proxy: their own servers in the box.
    """
    return marshal.dumps(
        {
            "supervise": None if supervise is None else dict(supervise),
            "filter": b"",
            "uid": 0 if owner is None else owner[0],
            "gid": 0 if owner is None else owner[1],
            "socket": socket,
            "environ": dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(direct)),
            "cwd": str(cwd),
            "limits": dict(limits),
            "path": [],
            # The report, if there is one, is the command's.
            "own_report": True,
            "argv": list(argv),
        },
        2,
    )


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder that is removed afterwards, with all that untrusted code put there.

    Raises:
        SandboxError: None can be made.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX))
    except OSError as error:
        raise SandboxError(f"No temporary folder can be made for the sandbox: {error.strerror}.") from error
    # The lock says that somebody needs the folder; the kernel drops it with the process, however that ends.
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _sweep(folder.parent)
        yield folder
    finally:
        shutil.rmtree(folder, onerror=_make_removable)
        os.close(lock)


@cache
def _sweep(parent: Path) -> None:
    """Once: remove the folders of programs that were killed."""
    with contextlib.suppress(OSError):
        newest = max(path.stat().st_mtime for path in parent.glob(f"{SCRATCH_PREFIX}*"))
        for folder in parent.glob(f"{SCRATCH_PREFIX}*"):
            with contextlib.suppress(OSError):
                if newest - folder.lstat().st_mtime > LEFT_AFTER_S and folder.lstat().st_uid == os.geteuid():
                    _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, onerror=_make_removable)
    finally:
        os.close(fd)


def _make_removable(_function: object, path: str, _info: object) -> None:
    """Code can take the rights to its folders away from their owner; nothing of it is running any more."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
