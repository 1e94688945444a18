"""bubblewrap with a filter of system calls: the first choice.

Each run has namespaces of its own: it sees no other process, no network but a loopback interface of its own, and no
file but those that are mounted for it. An ordinary user needs a user namespace for that. Root doesn't: the program
gives up root for a user of its own, whose number nobody else has, because the kernel doesn't limit root's processes.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from satchel.sandbox import seccomp
from satchel.sandbox.bwrap import (
    ALWAYS,
    NO_SYSCTL,
    OF_A_USER,
    OF_ROOT,
    ROOT_HIDDEN,
    ROOT_HIDDEN_UID,
    find,
    named,
    parents,
    system_mounts,
)
from satchel.sandbox.cgroup import joined
from satchel.sandbox.job import (
    ENVIRON,
    GUEST,
    HOST_PROCESSES,
    JobPlaces,
    Scene,
    memory_file,
    python_program,
)
from satchel.sandbox.local import LocalSandbox
from satchel.sandbox.port import Boxed, Feature, OpenBox, Probe, Watch, WorkspaceBox
from satchel.sandbox.probing import probe_by_doing
from satchel.sandbox.workspace import open_workspace

INSIDE_GUEST = "/run/satchel"
INSIDE_CODE = "/capability"
INSIDE_LAYER = "/layer"
INSIDE_FOLDER = "/build"
INSIDE_SOCKET = "/run/proxy.sock"
FIRST_UID = 0x60000000
"""Users of runs that root started: from here to 0x6FFFFFFF. No distribution gives such numbers to anybody."""
MOST_UIDS = 1 << 28
DEV_SHM_BYTES = 1 << 20
MOST_FILES = 20_000
"""In /tmp. Each takes about a kilobyte of the kernel's memory."""


class Bubblewrap(LocalSandbox):
    """See the module."""

    name = "bubblewrap"
    features = frozenset(Feature)

    def __init__(self, *, program: str = "bwrap", spares: int = 0) -> None:
        """A program that is only a name is searched in the system's folders."""
        super().__init__(spares=spares)
        self._program = find(program) or program
        self._as_root = os.geteuid() == 0

    def _places(self, scene: Scene) -> JobPlaces:
        return JobPlaces(
            code_dir=INSIDE_CODE if scene.spec.code_dir is not None else "",
            path=(INSIDE_LAYER,) if scene.spec.layer is not None else (),
            cwd=INSIDE_FOLDER if scene.folder is not None else "/tmp",
            tmp="/tmp",
            socket=INSIDE_SOCKET if scene.socket is not None else "",
            # The user's own files stay the user's: with folders to write to, root is only hidden by a user namespace.
            uid=own_uid(scene.folder) if self._as_root and not scene.spec.writable else 0,
        )

    def _boxed(self, scene: Scene, places: JobPlaces, job_fd: int) -> Boxed:
        limits = scene.spec.limits
        who = OF_ROOT if places.uid else ROOT_HIDDEN if self._as_root else OF_A_USER
        argv = [self._program, *who, *ALWAYS, *system_mounts()]
        argv += NO_SYSCTL if self._as_root else ()
        uid = places.uid or (ROOT_HIDDEN_UID if self._as_root else os.geteuid())
        name, name_fds = named(uid, home=places.cwd)
        argv += name
        argv += ["--perms", "1777", "--size", str(limits.tmp_mb << 20), "--tmpfs", "/tmp"]
        argv += [
            "--perms",
            "1777",
            "--size",
            str(DEV_SHM_BYTES),
            "--tmpfs",
            "/dev/shm",
            "--remount-ro",
            "/dev",
        ]
        argv += [*parents(INSIDE_GUEST), "--ro-bind", str(GUEST), INSIDE_GUEST]
        if scene.spec.code_dir is not None:
            code_dir = (
                readable_by_all(scene.spec.code_dir, scene.scratch) if places.uid else scene.spec.code_dir
            )
            argv += ["--ro-bind", str(code_dir), INSIDE_CODE]
        if scene.spec.layer is not None:
            argv += ["--ro-bind", str(scene.spec.layer), INSIDE_LAYER]
        if scene.socket is not None:
            argv += ["--bind", str(scene.socket), INSIDE_SOCKET]
        if scene.folder is not None:
            argv += ["--bind", str(scene.folder), INSIDE_FOLDER]
        else:
            argv += ["--bind", str(scene.out), "/tmp/out"]
        for path in scene.spec.read_only:
            argv += [*parents(str(path)), "--ro-bind", str(path), str(path)]
        for path in scene.spec.writable:
            argv += ["--bind", str(path), str(path)]
        if places.uid:
            for ours in (scene.out, scene.socket):
                if ours is not None:
                    os.chown(ours, places.uid, places.uid)
            if scene.folder is not None:
                give_to(scene.folder, places.uid)
        which = seccomp.CAPABILITY if scene.socket is None else seccomp.CAPABILITY_WITH_PROXY
        filter_fd = memory_file(seccomp.program(which))
        argv += ["--remount-ro", "/", "--seccomp", str(filter_fd), "--chdir", "/", "--"]
        argv += [str(python_program()), "-I", "-S", f"{INSIDE_GUEST}/start.py", str(job_fd)]
        return Boxed(
            argv=argv if scene.group is None else joined(scene.group, argv),
            cwd=Path("/"),
            environ=ENVIRON,
            descriptors=(job_fd, filter_fd, *name_fds),
            watch=Watch(
                memory_mb=limits.memory_mb,
                processes=limits.processes + HOST_PROCESSES,
                folders=scene.left,
                folders_mb=limits.tmp_mb,
                inside=("/tmp",),
                files=MOST_FILES,
            ),
        )

    @asynccontextmanager
    async def box(self, spec: WorkspaceBox) -> AsyncIterator[OpenBox]:
        """See `Sandbox`."""
        async with open_workspace(spec, program=self._program, as_root=self._as_root) as box:
            yield box

    def folder_owner(self, folder: Path) -> int | None:
        """See `BaseBackend`."""
        owner = folder.stat().st_uid
        return owner if FIRST_UID <= owner < FIRST_UID + MOST_UIDS else None

    async def probe(self) -> Probe:
        """See `Sandbox`."""
        return await probe_by_doing(self)


def readable_by_all(folder: Path, scratch: Path) -> Path:
    """The folder, or a copy of it if something in it may be read by its owner alone."""
    if not any(_is_private(path) for path in (folder, *folder.rglob("*"))):
        return folder
    copy = scratch / "code"
    shutil.copytree(folder, copy, symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    return copy


def _is_private(path: Path) -> bool:
    mode = path.lstat().st_mode
    return mode & 0o055 != 0o055 and path.is_dir() or mode & 0o044 != 0o044


def own_uid(folder: Path | None) -> int:
    """A user for this run; in a session, the one that its files belong to."""
    if folder is not None and FIRST_UID <= (owner := folder.stat().st_uid) < FIRST_UID + MOST_UIDS:
        return owner
    return FIRST_UID + secrets.randbelow(MOST_UIDS)


def give_to(folder: Path, uid: int) -> None:
    """Make a user the owner of a folder and of all that is in it, unless it is already."""
    if folder.stat().st_uid == uid:
        return
    for path in (*folder.rglob("*"), folder):
        os.chown(path, uid, uid, follow_symlinks=False)
