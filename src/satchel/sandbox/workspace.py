"""A box for ordinary commands in the user's own folder, made with bubblewrap.

The system stays visible and read-only, so that compilers, interpreters and package managers work. What belongs to the
user and not to the project is hidden, because a command that is never asked about must not be able to pass it on.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from satchel.errors import NoSandbox, SandboxError
from satchel.sandbox import seccomp
from satchel.sandbox.bwrap import (
    ALWAYS,
    NO_SYSCTL,
    OF_A_USER,
    OF_ROOT,
    ROOT_HIDDEN,
    interpreter_mounts,
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
from satchel.sandbox.port import Boxed, Denial, Egress, Network, Watch, WorkspaceBox
from satchel.sandbox.proxy import open_egress

__all__ = [
    "HIDDEN_TOPS",
    "TOOLS",
    "VISIBLE_BELOW",
    "GitFolder",
    "Mount",
    "git_folders",
    "open_workspace",
    "opened_without_links",
    "workspace_mounts",
]

INSIDE_GUEST = "/run/satchel"
INSIDE_SOCKET = "/run/satchel-proxy.sock"
PRLIMIT, SETPRIV = "/usr/bin/prlimit", "/usr/bin/setpriv"

Access: TypeAlias = Literal["read", "write", "hide", "own", "link"]
"""Visible; writable; not readable; a folder of the box's own, writable; a symbolic link."""

HIDDEN_TOPS = frozenset(
    ("boot", "dev", "home", "lost+found", "media", "mnt", "proc", "root", "run", "sys", "tmp", "var")
)
"""Other homes; sockets of the host's services; other disks, on WSL with the homes of Windows."""
VISIBLE_BELOW = ("/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman", "/run/current-system")
"""What package managers know about installed packages; the system of NixOS."""
TOOLS = (
    ".asdf", ".bun", ".cabal", ".cache/ms-playwright", ".cargo", ".conda", ".config/git/attributes",
    ".config/git/ignore", ".deno", ".dotnet", ".elan", ".fnm", ".ghcup",
    ".gvm", ".jenv", ".juliaup", ".linuxbrew", ".local/bin", ".local/lib", ".local/share/fnm",
    ".local/share/mise", ".local/share/pipx", ".local/share/pnpm", ".local/share/uv", ".m2/repository",
    ".nimble", ".nix-profile", ".nodenv", ".npm-global", ".nvm", ".opam", ".poetry/bin", ".pub-cache/bin",
    ".pyenv", ".rbenv", ".rustup", ".rvm", ".sdkman", ".swiftly", ".volta", ".yarn",
)  # fmt: skip
"""Of the entries of the home folder that begin with a dot: those that hold programs, and files that git reads. Its
settings are not among them: addresses with passwords are common there."""
CREDENTIALS = (
    ".cargo/credentials", ".cargo/credentials.toml", ".conda/.condarc", ".local/share/uv/credentials",
)  # fmt: skip
"""Below the folder of a tool, but no program."""
SETTINGS = (".cargo/config", ".cargo/config.toml")
"""Below the folder of a tool; hidden if they hold a key."""
PROTECTED = (".agents", ".claude", ".codex", ".cursor", ".idea", ".mcp.json", ".satchel", ".vscode")
"""In the workspace: what tells an agent or an editor which programs to start."""
GIT_PROTECTED = ("hooks", "config", "config.worktree", "commondir", "gitdir")
"""In a git folder: what names programs, and what names another folder that does."""
NESTED_DEPTH, MOST_FOLDERS = 3, 400
"""How far repositories inside the workspace are searched for."""
NOT_SEARCHED = frozenset(("node_modules", ".venv", "venv", "__pycache__", "target", "build", "dist"))
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
RANKS = {"link": 0, "read": 1, "own": 2, "write": 3, "hide": 4}
"""Of two mounts at one path, the last one counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One path in the box. `source` is where it comes from; for a link, its target."""

    path: Path
    access: Access
    source: str = ""


@asynccontextmanager
async def open_workspace(spec: WorkspaceBox, *, program: str, as_root: bool) -> AsyncIterator[_Workspace]:
    """Open a box.

    Raises:
        NoSandbox: The workspace is or contains the home folder.
        SandboxError: The folders of the box can't be made.
    """
    refuse_home(spec)
    async with contextlib.AsyncExitStack() as opened:
        scratch = opened.enter_context(scratch_folder())
        owner = spec.workspace.stat()
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
            spec, program=program, as_root=as_root, owner=other, group=group, scratch=scratch, egress=egress
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
        egress: Egress | None,
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
        self._mounts = workspace_mounts(spec, scratch=scratch, as_root=as_root)

    @property
    def denied(self) -> Sequence[Denial]:
        """See `Box`."""
        return self._egress.denied if self._egress is not None else ()

    def enter(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> Boxed:
        """See `Box`."""
        if self.closed:
            raise SandboxError("The box is closed.")
        spec = self._spec
        repositories = git_folders(spec.workspace.resolve())
        mounts = [
            *self._mounts,
            *_tools_on_path(spec.home, environ.get("PATH", "")),
            *_protected(spec, repositories),
        ]
        who = OF_ROOT if self._owner is not None else ROOT_HIDDEN if self._as_root else OF_A_USER
        start = [self._program, *who, *ALWAYS, *(NO_SYSCTL if self._as_root else ())]
        workspace = spec.workspace.resolve()
        held: list[int] = []
        for mount in sorted(mounts, key=lambda mount: (len(mount.path.parts), RANKS[mount.access])):
            is_inside = mount.path != workspace and mount.path.is_relative_to(workspace)
            if mount.access == "write" or (mount.access == "read" and is_inside):
                found = opened_without_links(mount.path)
                if found is not None:
                    held.append(found)
                    start += [
                        *([] if is_inside else parents(str(mount.path))),
                        "--ro-bind-fd" if mount.access == "read" else "--bind-fd",
                        str(found),
                        str(mount.path),
                    ]
                continue
            start += [*parents(str(mount.path)), *self._arguments(mount)]
        start += ["--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        for mount in mounts:
            if mount.access == "hide" and mount.path.is_dir():
                start += ["--remount-ro", str(mount.path)]
        environ = {name: value for name, value in environ.items() if name not in UNSET} | {"TMPDIR": "/tmp"}
        filter_fd = memory_file(seccomp.program(seccomp.WORKSPACE))
        descriptors = [filter_fd, *held]
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
            start += interpreter_mounts()
            command = [str(python_program()), "-I", "-S", f"{INSIDE_GUEST}/start.py", str(job_fd)]
        start += [
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

    def _arguments(self, mount: Mount) -> list[str]:
        path = str(mount.path)
        if mount.access == "link":
            return ["--symlink", mount.source, path]
        if mount.access == "hide":
            if mount.path.is_dir():
                # One may pass through to what is shown below it, but not list it.
                return ["--perms", "0111", "--tmpfs", path]
            return ["--ro-bind", str(self._nothing), path]
        return ["--ro-bind" if mount.access == "read" else "--bind", mount.source or path, path]


def opened_without_links(path: Path) -> int | None:
    """A descriptor of an absolute path; None if it doesn't exist, or if a link is on the way.

    Whoever decided that a box may write somewhere resolved the path then. A program in a box may put a link into any
    folder that it can write, at any time.
    """
    folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in path.parts[1:]:
            below = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        if stat.S_ISLNK(os.fstat(folder).st_mode):
            os.close(folder)
            return None
    except OSError:
        os.close(folder)
        return None
    return folder


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
        disks=(spec.workspace, scratch),
        disk_mb=spec.disk_mb,
        every_s=every_s,
    )


def workspace_mounts(spec: WorkspaceBox, *, scratch: Path, as_root: bool) -> tuple[Mount, ...]:
    """What is where in the box, apart from the files of the workspace that are protected."""
    workspace, home = spec.workspace.resolve(), spec.home.resolve()
    mounts = [*_system(), *_home(home, scratch), Mount(path=workspace, access="write")]
    if as_root:
        mounts += [Mount(path=Path(path), access="hide") for path in _for_root_alone()]
    mounts += [
        Mount(path=Path("/tmp"), access="own", source=str(scratch / "tmp")),
        Mount(path=Path("/var/tmp"), access="own", source=str(scratch / "var-tmp")),
    ]
    mounts += [Mount(path=path.resolve(), access="read") for path in spec.read_only if path.exists()]
    mounts += [Mount(path=path, access="write") for path in spec.writable]
    mounts += [Mount(path=path.resolve(), access="hide") for path in spec.hidden if path.exists()]
    if spec.home != home:
        mounts.append(Mount(path=spec.home, access="link", source=str(home)))
    return tuple(mounts)


def top_folders() -> list[Path]:
    """The folders of the system that are visible."""
    return [Path("/", name) for name in sorted(os.listdir("/")) if name not in HIDDEN_TOPS]


def home_entries(home: Path) -> list[Path]:
    """What is visible of the home folder: what isn't private by its name, and tools."""
    names = [name for name in _listed(home) if not name.startswith(".")]
    return [home / name for name in (*names, *TOOLS)]


def _system() -> Iterator[Mount]:
    for path in top_folders():
        if path.is_symlink():
            yield Mount(path=path, access="link", source=os.readlink(path))
        elif path.is_dir():
            yield Mount(path=path, access="read")
    for below in VISIBLE_BELOW:
        if os.path.isdir(below):
            yield Mount(path=Path(below), access="read", source=os.path.realpath(below))


def _home(home: Path, scratch: Path) -> Iterator[Mount]:
    """The home folder: a new one, with what isn't private of the old one."""
    yield Mount(path=home, access="own", source=str(scratch / "home"))
    for path in home_entries(home):
        if path.is_symlink():
            yield Mount(path=path, access="link", source=os.readlink(path))
        elif path.exists() and (path.is_dir() or path.is_file()) and os.access(path, os.R_OK):
            yield Mount(path=path, access="read")
    for name in CREDENTIALS:
        if (home / name).exists():
            yield Mount(path=home / name, access="hide")
    for name in SETTINGS:
        if _holds_token(home / name):
            yield Mount(path=home / name, access="hide")


def _holds_token(path: Path) -> bool:
    try:
        return "token" in path.read_text(encoding="utf-8", errors="replace").lower()
    except OSError:
        return False


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _tools_on_path(home: Path, path: str) -> Iterator[Mount]:
    """Folders of programs in the home folder that have no known name."""
    for entry in path.split(":"):
        folder = Path(entry)
        if (
            folder.is_absolute()
            and folder.is_relative_to(home)
            and folder != home
            and folder.relative_to(home).parts[0].startswith(".")
            and not any(folder.is_relative_to(home / tool) for tool in TOOLS)
            and folder.resolve() == folder
            and folder.is_dir()
        ):
            yield Mount(path=folder, access="read")


@cache
def _for_root_alone() -> tuple[str, ...]:
    """What an ordinary user couldn't read in /etc: password hashes, keys. Root's commands don't get it either."""
    found: list[str] = []
    waiting = ["/etc"]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as listing:
            for entry in listing:
                mode = entry.stat(follow_symlinks=False).st_mode
                if entry.is_dir(follow_symlinks=False):
                    if mode & 0o005 == 0o005:
                        waiting.append(entry.path)
                    else:
                        found.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and not mode & 0o004:
                    found.append(entry.path)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitFolder:
    """A repository's folder of data.

    Attributes:
        is_common: It holds hooks and config itself; a linked working tree's folder points to another's.
        is_between: A folder above such folders inside `.git`, which must not be renamed with them.
    """

    path: Path
    is_common: bool
    is_between: bool = False


def git_folders(workspace: Path) -> tuple[GitFolder, ...]:
    """The git folders that commands in the workspace need to write to, and whose hooks and config they must not."""
    found: list[GitFolder] = []
    own = workspace / ".git"
    if own.is_file():
        found += _linked(own)
    for folder in _folders_with_git(workspace):
        git = folder / ".git"
        if git.is_dir() and not git.is_symlink():
            found.append(GitFolder(path=git, is_common=True))
            found += _submodules(git / "modules")
            found += _trees_elsewhere(git, workspace)
    return tuple(found)


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


def _folders_with_git(workspace: Path) -> Iterator[Path]:
    looked = 0
    level = [workspace]
    for _ in range(NESTED_DEPTH):
        following: list[Path] = []
        for folder in level:
            looked += 1
            if looked > MOST_FOLDERS:
                return
            with contextlib.suppress(OSError), os.scandir(folder) as listing:
                for entry in listing:
                    if entry.name == ".git":
                        yield folder
                    elif (
                        entry.name not in NOT_SEARCHED
                        and not entry.name.startswith(".")
                        and entry.is_dir(follow_symlinks=False)
                    ):
                        following.append(Path(entry.path))
        level = following


def _protected(spec: WorkspaceBox, repositories: Sequence[GitFolder]) -> Iterator[Mount]:
    workspace = spec.workspace.resolve()
    for name in PROTECTED:
        path = workspace / name
        if path.exists() and not path.is_symlink():
            yield Mount(path=path, access="read")
    if (workspace / ".git").is_file():
        yield Mount(path=workspace / ".git", access="read")
    for git in repositories:
        # A mount of its own, so that the folder can't be renamed and replaced by another.
        yield Mount(path=git.path, access="write")
        if git.is_between:
            continue
        if git.is_common:
            with contextlib.suppress(OSError):
                (git.path / "hooks").mkdir(exist_ok=True)
        for name in GIT_PROTECTED:
            path = git.path / name
            if path.exists() and not path.is_symlink():
                yield Mount(path=path, access="read")


def _remove_planted(repositories: Sequence[GitFolder]) -> None:
    """A file `commondir` in a repository's own folder makes git take hooks and config from elsewhere."""
    for git in repositories:
        if git.is_common:
            with contextlib.suppress(OSError):
                (git.path / "commondir").unlink()


@cache
def machine_memory_mb() -> int:
    """The memory of the machine, in MiB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
