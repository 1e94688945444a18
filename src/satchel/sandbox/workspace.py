"""A box for ordinary commands in the user's own folder, made with bubblewrap.

The system stays visible and read-only, so that compilers, interpreters and package managers work. Everything else is
hidden, the user's home first of all, apart from the paths that the spec names, because a command that is never asked
about must not be able to pass on what belongs to the user and not to the project.

Those paths are mounted by descriptors that were opened step by step, without following links: whatever a command may
have put there, in this box or an earlier one, decides no mount.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from anyio import to_thread

from satchel.errors import NoSandbox, SandboxError
from satchel.sandbox import seccomp
from satchel.sandbox.bwrap import (
    ALWAYS,
    NO_SYSCTL,
    OF_A_USER,
    OF_ROOT,
    ROOT_HIDDEN,
    ROOT_HIDDEN_UID,
    interpreter_mounts,
    named,
    parents,
)
from satchel.sandbox.cgroup import joined, process_group
from satchel.sandbox.job import (
    GUEST,
    HOST_PROCESSES,
    command_job,
    memory_file,
    python_program,
    scratch_folder,
)
from satchel.sandbox.named import follow, roots_of
from satchel.sandbox.paths import LedElsewhere, make_folder, opened, step_by_step
from satchel.sandbox.port import Boxed, Denial, Network, Watch, WorkspaceBox
from satchel.sandbox.proxy import EgressProxy, open_egress
from satchel.sandbox.selfrun import kind_of
from satchel.sandbox.tree import Tree, last_look, look

INSIDE_GUEST = "/run/satchel"
INSIDE_SOCKET = "/run/satchel-proxy.sock"
PRLIMIT, SETPRIV = "/usr/bin/prlimit", "/usr/bin/setpriv"

Access: TypeAlias = Literal["read", "write", "hide", "own", "link", "pin"]
"""Visible; writable; not readable; a folder of the box's own; a symbolic link; writable, and can't be moved."""

SYSTEM_TOPS = (
    "bin", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "usr",
)  # fmt: skip
"""The folders of the system itself. All others may hold homes, other disks, sockets of services, or what they keep."""
VISIBLE_BELOW = ("/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman", "/run/current-system")
"""What package managers know about installed packages; the system of NixOS."""
_OF_PROCESSES = re.compile(r"/proc/(?:\d+|sys|bus|irq)")
"""Processes of a box's own, and what bwrap takes care of."""
MOST_PRIVATE = 500
"""Paths of the system that are hidden one by one."""
GIT_PROTECTED = ("hooks", "config", "config.worktree", "commondir", "gitdir")
"""In a git folder: what names programs, and what names another folder that does."""
MOST_PATH = 4_000
"""Bytes of a path that can be a mount's place in a box."""
MOST_FOLDERS = 400
"""Submodules of a repository outside of the workspace that are looked at."""
MOST_REPOSITORIES = 300
"""Each is several mounts. A workspace with more has no box, because the rest would not be protected."""
UNSET = frozenset(
    (
        "DBUS_SESSION_BUS_ADDRESS",
        "DISPLAY",
        "GPG_AGENT_INFO",
        "SSH_AUTH_SOCK",
        "WAYLAND_DISPLAY",
        "XDG_RUNTIME_DIR",
    )
)
"""They lead to sockets that aren't there."""
SHARED_MEMORY_BYTES = 256 << 20
MEMORY_SHARE = 0.75
RANKS = {"link": 0, "pin": 0, "read": 1, "own": 2, "write": 3, "hide": 4}
"""Of two mounts at one path, the last one counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One path in the box.

    Attributes:
        source: Where it comes from; for a link, its target. Without one, a path that is read or written is the same
            outside, and is opened step by step.
    """

    path: Path
    access: Access
    source: str = ""


@asynccontextmanager
async def open_workspace(spec: WorkspaceBox, *, program: str, as_root: bool) -> AsyncIterator[_Workspace]:
    """Open a box.

    Raises:
        NoSandbox: The workspace is or contains the home folder.
        SandboxError: The workspace is gone, or the folders of the box can't be made.
    """
    refuse_home(spec)
    # For an ordinary user, the kernel refuses what others keep outside of /etc.
    private = await to_thread.run_sync(private_in, (*SYSTEM_TOPS, "proc") if as_root else ("etc",))
    async with contextlib.AsyncExitStack() as opened:
        scratch = opened.enter_context(scratch_folder())
        try:
            owner = spec.workspace.stat()
        except OSError as error:
            raise SandboxError(
                f"The sandbox can't be opened in {spec.workspace}: {error.strerror}."
            ) from error
        # In a container, root often works in a folder of the host's user, whose files only that user may write
        # without root's rights. Then commands run as that user, and need no user namespace.
        other = (owner.st_uid, owner.st_gid) if as_root and owner.st_uid != 0 else None
        group = None
        if as_root and other is None:
            group = opened.enter_context(process_group(spec.processes + HOST_PROCESSES))
        egress = None
        if spec.network.mode != "none":
            egress = await opened.enter_async_context(open_egress(spec.network, folder=scratch))
        box = _Workspace(
            spec,
            program=program,
            as_root=as_root,
            owner=other,
            group=group,
            scratch=scratch,
            egress=egress,
            private=private,
        )
        try:
            yield box
        finally:
            box.closed = True


class _Workspace:
    """An open box."""

    backend = "bubblewrap"

    def __init__(
        self,
        spec: WorkspaceBox,
        *,
        program: str,
        as_root: bool,
        owner: tuple[int, int] | None,
        group: Path | None,
        scratch: Path,
        egress: EgressProxy | None,
        private: Sequence[Path],
    ) -> None:
        self.closed = False
        self._spec = spec
        self._program = program
        self._as_root = as_root
        self._owner = owner
        self._group = group
        self._scratch = scratch
        self._egress = egress
        for name in ("home", "tmp", "var-tmp"):
            (scratch / name).mkdir(mode=0o700)
            if self._owner is not None:
                # Root without its capabilities has to pass through them, until it has become that user.
                (scratch / name).chmod(0o755)
                os.chown(scratch / name, *self._owner)
        self._nothing = scratch / "nothing"
        self._nothing.touch(mode=0)
        self._mounts = (
            # What comes into being later is not mounted: a command may have put a link where it would be.
            *(each for each in workspace_mounts(spec, scratch=scratch) if each.source or each.path.exists()),
            *(Mount(path=path, access="hide") for path in private),
        )

    @property
    def denied(self) -> Sequence[Denial]:
        """See `OpenBox`."""
        return self._egress.denied if self._egress is not None else ()

    def enter(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> Boxed:
        """See `OpenBox`."""
        if self.closed:
            raise SandboxError("The box is closed.")
        spec = self._spec
        trees = {str(top): last_look(str(top)) for top in (spec.workspace.resolve(), *spec.guarded)}
        repositories = [git for top, tree in trees.items() for git in git_folders(Path(top), tree)]
        special = [each for folder in spec.read_only for each in special_in(folder)]
        mounts = [*self._mounts, *_protected(spec, trees, repositories), *_hidden(special)]
        who = OF_ROOT if self._owner is not None else ROOT_HIDDEN if self._as_root else OF_A_USER
        start = [self._program, *who, *ALWAYS, *(NO_SYSCTL if self._as_root else ())]
        mounts += pins_of(mounts)
        held: list[int] = []
        try:
            for mount in sorted(mounts, key=lambda mount: (len(mount.path.parts), RANKS[mount.access])):
                start += self._arguments(mount, held)
        except BaseException:
            for descriptor in held:
                os.close(descriptor)
            raise
        start += ["--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        for mount in mounts:
            if mount.access == "hide" and is_folder(mount.path):
                start += ["--remount-ro", str(mount.path)]
        environ = {name: value for name, value in environ.items() if name not in UNSET} | {"TMPDIR": "/tmp"}
        filter_fd = memory_file(seccomp.program(seccomp.WORKSPACE))
        name, name_fds = self._name()
        start += name
        descriptors = [filter_fd, *held, *name_fds]
        command = [PRLIMIT, f"--nproc={spec.processes}", f"--fsize={spec.file_mb << 20}", "--core=0", *argv]
        if self._owner is not None:
            uid, gid = self._owner
            command = [
                SETPRIV,
                f"--reuid={uid}",
                f"--regid={gid}",
                "--clear-groups",
                "--inh-caps=-all",
                *command,
            ]
        if self._egress is not None:
            start += [
                *parents(INSIDE_GUEST),
                "--ro-bind",
                str(GUEST),
                INSIDE_GUEST,
                "--bind",
                str(self._egress.socket),
                INSIDE_SOCKET,
            ]
            limits = {"RLIMIT_NPROC": spec.processes, "RLIMIT_FSIZE": spec.file_mb << 20, "RLIMIT_CORE": 0}
            job_fd = memory_file(
                command_job(
                    argv,
                    cwd=cwd.resolve(),
                    socket=INSIDE_SOCKET,
                    limits=limits,
                    owner=self._owner,
                    direct=_own_names(spec.network),
                )
            )
            descriptors.append(job_fd)
            command = [str(python_program()), "-I", "-S", f"{INSIDE_GUEST}/start.py", str(job_fd)]
        start += [
            *interpreter_mounts(),
            "--remount-ro",
            "/",
            "--seccomp",
            str(filter_fd),
            "--chdir",
            str(cwd.resolve()),
            "--",
            *command,
        ]
        return Boxed(
            argv=start if self._group is None else joined(self._group, start),
            cwd=Path("/"),
            environ=environ,
            descriptors=tuple(descriptors),
            watch=watched(spec, self._scratch),
            after=lambda: _remove_planted(repositories),
        )

    def _name(self) -> tuple[list[str], list[int]]:
        """A line in /etc/passwd for the user that commands run as: see `named`."""
        uid = self._owner[0] if self._owner else ROOT_HIDDEN_UID if self._as_root else os.geteuid()
        try:
            others = Path("/etc/passwd").read_text(errors="surrogateescape")
        except OSError:
            return [], []
        return named(uid, home=str(self._spec.home), others=others)

    def _arguments(self, mount: Mount, held: list[int]) -> list[str]:
        """The arguments for one mount, whose descriptor is added to those that are held."""
        path = str(mount.path)
        workspace = self._spec.workspace
        # In the workspace, nothing is made on the way.
        above = [] if workspace in mount.path.parents else parents(path)
        if mount.access == "link":
            return [*above, "--symlink", mount.source, path]
        if mount.access == "hide":
            if is_folder(mount.path):
                # One may pass through to what is shown below it, but not list it.
                return [*above, "--perms", "0111", "--tmpfs", path]
            return [*above, "--ro-bind", str(self._nothing), path] if os.path.lexists(path) else []
        if mount.access == "pin":
            held.append(self._own_folder(Path(mount.source)))
            return ["--bind-fd", str(held[-1]), path]
        if mount.source:
            return [*above, "--ro-bind" if mount.access == "read" else "--bind", mount.source, path]
        descriptor = open_as_agreed(mount.path, self._spec)
        if descriptor is None:
            if mount.path == workspace:
                raise SandboxError(f"The folder {path} is gone, so nothing can run in its sandbox.")
            return []
        held.append(descriptor)
        return [*above, "--ro-bind-fd" if mount.access == "read" else "--bind-fd", str(descriptor), path]

    def _own_folder(self, folder: Path) -> int:
        """A descriptor of a folder on the way to a mount, which is made if it is in the box's own folders."""
        descriptor = step_by_step(folder)
        if descriptor is None:
            make_folder(folder)
            descriptor = step_by_step(folder)
            if descriptor is not None and self._owner is not None:
                # As for the folder around it: root without its capabilities has to pass through.
                os.chown(f"/proc/self/fd/{descriptor}", *self._owner)
                Path(f"/proc/self/fd/{descriptor}").chmod(0o755)
        if descriptor is None:
            raise SandboxError(f"{folder} can't be opened, and the sandbox needs it.")
        return descriptor


def pins_of(mounts: Sequence[Mount]) -> list[Mount]:
    """The folders between a mount and the writable one that it is in.

    Each is a mount as well, so that no command can rename it and put a link in its place: bwrap would follow that link
    when it makes the next box, while the whole system is in its reach, and protect or make something else.
    """
    at = {mount.path: mount for mount in mounts}
    found: dict[Path, Mount] = {}
    for mount in mounts:
        around = next((at[folder] for folder in mount.path.parents if folder in at), None)
        if around is None or around.access not in ("own", "write"):
            continue
        for folder in mount.path.parents:
            if folder == around.path:
                break
            source = Path(around.source or around.path) / folder.relative_to(around.path)
            found[folder] = Mount(path=folder, access="pin", source=str(source))
    return list(found.values())


def open_as_agreed(path: Path, spec: WorkspaceBox) -> int | None:
    """A descriptor of a path that a spec names; see `step_by_step`.

    Raises:
        LedElsewhere: There is a link on the way, or it is another folder than the one that the user agreed to.
    """
    descriptor = step_by_step(path)
    if descriptor is not None:
        agreed = next((pin for pin in spec.pins if pin.path == path), None)
        state = os.fstat(descriptor)
        if agreed is not None and (state.st_dev, state.st_ino) != (agreed.device, agreed.inode):
            os.close(descriptor)
            raise LedElsewhere(
                f"{path} is another folder now than the one that a sandbox was allowed to use, so it is not given to "
                "this one. If you replaced it yourself, start Satchel again."
            )
    return descriptor


def is_folder(path: Path) -> bool:
    """Whether it is a folder itself, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def _own_names(network: Network) -> list[str]:
    """Names by which commands reach their own servers, apart from those that were allowed as the host's."""
    allowed = {host.rpartition(":")[0].strip("[]") if ":" in host else host for host in network.hosts}
    return [name for name in ("localhost", "127.0.0.1", "::1") if name not in allowed]


def refuse_home(spec: WorkspaceBox) -> None:
    """Raise NoSandbox if the workspace is or contains the home folder."""
    workspace, home = spec.workspace.resolve(), spec.home.resolve()
    if home.is_relative_to(workspace):
        raise NoSandbox(
            f"{str(workspace)!r} can't be a sandbox's workspace, because your home folder is in it, and with it your "
            "keys. Start in a folder of the project."
        )


def watched(spec: WorkspaceBox, scratch: Path, *, every_s: float = 0.1) -> Watch:
    """What is checked while a command runs."""
    return Watch(
        memory_mb=spec.memory_mb or int(machine_memory_mb() * MEMORY_SHARE),
        processes=spec.processes + HOST_PROCESSES,
        disks=(spec.workspace, scratch, *spec.writable),
        disk_mb=spec.disk_mb,
        every_s=every_s,
    )


def workspace_mounts(spec: WorkspaceBox, *, scratch: Path) -> tuple[Mount, ...]:
    """What is where in the box, apart from the files of the workspace that are protected."""
    home = spec.home.resolve()
    mounts = [
        *_system(),
        Mount(path=home, access="own", source=str(scratch / "home")),
        Mount(path=spec.workspace, access="write"),
        Mount(path=Path("/tmp"), access="own", source=str(scratch / "tmp")),
        Mount(path=Path("/var/tmp"), access="own", source=str(scratch / "var-tmp")),
    ]
    for paths, access in ((spec.read_only, "read"), (spec.writable, "write"), (spec.hidden, "hide")):
        mounts += [Mount(path=path, access=access) for path in paths]  # type: ignore[arg-type]
    if spec.home != home:
        mounts.append(Mount(path=spec.home, access="link", source=str(home)))
    return tuple(mounts)


def system_folders() -> list[Path]:
    """The folders of the system that are visible."""
    return [path for name in SYSTEM_TOPS if (path := Path("/", name)).exists()]


def _system() -> Iterator[Mount]:
    for path in system_folders():
        if path.is_symlink():
            yield Mount(path=path, access="link", source=os.readlink(path))
        else:
            yield Mount(path=path, access="read", source=str(path))
    for below in VISIBLE_BELOW:
        if os.path.isdir(below):
            yield Mount(path=Path(below), access="read", source=os.path.realpath(below))


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


@cache
def private_in(tops: tuple[str, ...]) -> tuple[Path, ...]:
    """What is readable to whoever runs this and not to everybody, in folders of the system: password hashes, keys.

    Whoever is root may read everything, and so may root's commands, but for what is hidden from them.

    Raises:
        NoSandbox: It is too much to be hidden.
    """
    found: list[Path] = []
    waiting = [f"/{top}" for top in tops if not os.path.islink(f"/{top}")]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as listing:
            for entry in listing:
                if entry.is_symlink():
                    continue
                with contextlib.suppress(OSError):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    needed = 0o005 if stat.S_ISDIR(mode) else 0o004
                    if mode & needed != needed:
                        if os.access(entry.path, os.R_OK | (os.X_OK if needed == 0o005 else 0)):
                            found.append(Path(entry.path))
                    elif stat.S_ISDIR(mode) and _OF_PROCESSES.fullmatch(entry.path) is None:
                        waiting.append(entry.path)
    if len(found) > MOST_PRIVATE:
        raise NoSandbox(
            f"{len(found):,} files of the system are for root alone, such as {found[0]}: too many to hide them from "
            "commands. Run Satchel as an ordinary user."
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitFolder:
    """A repository's folder of data.

    Attributes:
        is_common: It holds hooks and config itself; a linked working tree's folder points to another's.
        is_between: A folder above such folders inside `.git`, which must not be renamed with them.
        is_file: No folder but a file `.git`, which leads git to one.
    """

    path: Path
    is_common: bool
    is_between: bool = False
    is_file: bool = False


def git_folders(top: Path, tree: Tree) -> tuple[GitFolder, ...]:
    """The git folders that commands need to write to, and whose hooks and config they must not. `top` is the workspace,
    or another folder that they may write.

    Raises:
        NoSandbox: There are too many.
    """
    found: list[GitFolder] = []
    own = top / ".git"
    if own.is_file():
        found += _linked(own)
    count = len(tree.common) + len(tree.linked) + len(tree.files)
    if count > MOST_REPOSITORIES:
        raise NoSandbox(
            f"{str(top)!r} has {count:,} git repositories in it, which are too many to protect. Start in the folder of "
            "one project."
        )
    found += [
        GitFolder(path=Path(file), is_common=False, is_file=True) for file in tree.files if file != str(own)
    ]
    found += [GitFolder(path=Path(folder), is_common=True) for folder in tree.common]
    found += [GitFolder(path=Path(folder), is_common=False) for folder in tree.linked]
    # Where a path is too long for a mount, what a command changes is set aside.
    return tuple(git for git in found if len(os.fsencode(git.path)) < MOST_PATH)


def _submodules(modules: Path) -> Iterator[GitFolder]:
    """The repositories of submodules, whose names may have slashes and which may have submodules themselves."""
    waiting = [modules]
    for _ in range(MOST_FOLDERS):
        if not waiting:
            return
        folder = waiting.pop()
        if folder.is_symlink() or not folder.is_dir():
            continue
        is_repository = (folder / "HEAD").is_file()
        yield GitFolder(path=folder, is_common=is_repository, is_between=not is_repository)
        waiting += [folder / "modules"] if is_repository else [folder / name for name in _listed(folder)]


def _trees_elsewhere(git: Path, workspace: Path) -> Iterator[GitFolder]:
    """What leads git in working trees outside of the workspace to its settings."""
    trees = git / "worktrees"
    if trees.is_symlink() or not trees.is_dir():
        return
    yield GitFolder(path=trees, is_common=False, is_between=True)
    for name in _listed(trees):
        folder = trees / name
        try:
            tree = Path(os.path.normpath(folder / (folder / "gitdir").read_text().strip()))
        except (OSError, UnicodeDecodeError):
            continue
        if not folder.is_symlink() and not tree.is_relative_to(workspace):
            yield GitFolder(path=folder, is_common=False)


def _linked(file: Path) -> Iterator[GitFolder]:
    """A linked working tree: its own folder, and the repository's.

    A command can write the file, so it proves nothing by itself. The folder that it names must be where git puts it,
    `worktrees/NAME` in a repository, outside of the workspace, and point back here: no command here can write that.
    """
    try:
        folder = Path(file.read_text().removeprefix("gitdir:").strip())
        folder = (file.parent / folder).resolve()
        common = folder.parent.parent
        if (
            folder.parent.name != "worktrees"
            or common.is_relative_to(file.parent)
            or file.parent.is_relative_to(common)
            or not all((common / name).exists() for name in ("HEAD", "objects", "refs"))
            or (folder / (folder / "gitdir").read_text().strip()).resolve() != file
            or (folder / (folder / "commondir").read_text().strip()).resolve() != common
        ):
            return
    except (OSError, UnicodeDecodeError, ValueError):
        return
    yield GitFolder(path=common, is_common=True)
    yield from _submodules(common / "modules")
    yield from _trees_elsewhere(common, file.parent)
    yield GitFolder(path=folder, is_common=False)


def common_of(workspace: Path) -> Path | None:
    """The folder of the repository of which a workspace is a linked working tree."""
    own = workspace / ".git"
    if own.is_symlink() or not own.is_file():
        return None
    return next((git.path for git in _linked(own) if git.is_common), None)


def _protected(
    spec: WorkspaceBox, trees: Mapping[str, Tree], repositories: Sequence[GitFolder]
) -> Iterator[Mount]:
    for top, tree in trees.items():
        for name in _listed(Path(top)):
            path = Path(top, name)
            if name != ".git" and kind_of(name, is_folder=path.is_dir()) == "settings":
                yield from _kept(path, Path(top))
        if Path(top, ".git").is_file():
            yield Mount(path=Path(top, ".git"), access="read")
        yield from _hidden(tree.special)
    outside = {str(git.path): Tree(common=[str(git.path)]) for git in repositories if git.is_common}
    roots = roots_of({**trees, **outside}, spec.git_values, home=str(spec.home), only_git=True)
    for end in follow(roots, list(trees)).ends:
        path = Path(end)
        if not any(path == git.path or path in git.path.parents for git in repositories):
            yield Mount(path=path, access="read")
    for git in repositories:
        if git.is_file:
            if not git.path.is_symlink():
                yield Mount(path=git.path, access="read")
            continue
        # A mount of its own, so that the folder can't be renamed and replaced by another.
        if str(git.path) not in trees:
            yield Mount(path=git.path, access="write")
        if git.is_between:
            continue
        if git.is_common:
            _make_hooks(git.path)
        for name in GIT_PROTECTED:
            yield from _kept(git.path / name, spec.workspace.resolve())


def look_at_readable(folders: Sequence[Path]) -> None:
    """Look at folders that a command may read, for `enter`, which must not take long."""
    for folder in filter(is_folder, folders):
        look(str(folder), keep=True, opens=False)


def special_in(folder: Path) -> list[Path]:
    """Sockets and pipes in a folder that may be read: whoever may read one may also talk to the program behind it."""
    return [Path(each) for each in last_look(str(folder), opens=False).special] if is_folder(folder) else []


def _hidden(paths: Iterable[str | Path]) -> Iterator[Mount]:
    for path in paths:
        if len(os.fsencode(path)) < MOST_PATH:
            yield Mount(path=Path(path), access="hide")


def _kept(path: Path, workspace: Path) -> Iterator[Mount]:
    """A path that can't be changed, if it is there; of a link in the workspace, what it leads to."""
    if not path.is_symlink():
        if path.exists():
            yield Mount(path=path, access="read")
        return
    real = path.resolve()
    if workspace in real.parents and real.exists():
        yield Mount(path=real, access="read")


def protected_in_git(
    git: Path, workspace: Path, *, values: Sequence[tuple[str, str]], home: Path
) -> list[Path]:
    """What can't be changed in the git folder of a repository around the workspace, and what its settings name."""
    _make_hooks(git)
    top = git.parent
    trees = {str(top): Tree(common=[str(git)]), str(workspace): Tree()}
    ends = follow(roots_of(trees, values, home=str(home), only_git=True), [str(workspace)]).ends
    kept = [mount.path for name in GIT_PROTECTED for mount in _kept(git / name, top)]
    return [*kept, *(Path(end) for end in ends)]


def _make_hooks(git: Path) -> None:
    """What isn't there can't be mounted read-only."""
    with contextlib.suppress(OSError, SandboxError), opened(git) as folder:
        if folder is not None:
            os.mkdir("hooks", dir_fd=folder)


def _remove_planted(repositories: Sequence[GitFolder]) -> None:
    """A file `commondir` in a repository's own folder makes git take hooks and config from elsewhere."""
    for git in repositories:
        if git.is_common:
            with contextlib.suppress(OSError, SandboxError), opened(git.path) as folder:
                if folder is not None:
                    os.unlink("commondir", dir_fd=folder)


@cache
def machine_memory_mb() -> int:
    """The memory of the machine, in MiB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
