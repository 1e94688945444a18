"""The port of the sandbox: what runs, what it may use, and what comes back.

A backend confines a program: bubblewrap, Landlock, a container, a hosted machine. All of them take the same data and
return the same data. What the program in the sandbox does wrong is a `RunResult` with a status; only a failure of the
sandbox itself is an exception (`SandboxError`, and `NoSandbox` where there is none).

There are three ways to use a sandbox:

- `Sandbox.run` runs one function of one file, or one command, in a fresh sandbox. Nothing is left of it.
- `Sandbox.open` gives a folder that stays between commands, for the Builder.
- `Sandbox.box` confines commands that work in the user's own folder: `bash`, executables, MCP servers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias

OnOutput: TypeAlias = Callable[[Literal["stdout", "stderr"], bytes], Awaitable[None]]
"""Called with each piece of output as it arrives."""

NetworkMode: TypeAlias = Literal["none", "allow", "public"]
"""No network; the named hosts only; every public address. The last two go through the proxy, never past it."""


class Status(StrEnum):
    """How a run ended. The values are public."""

    OK = "ok"
    ERROR = "error"
    """The code raised an exception, or the command ended with another exit code than 0."""
    BAD_RETURN = "bad_return"
    """The function returned something else than a string."""
    NO_RESULT = "no_result"
    """The process ended before the function returned: `os._exit`, a signal, a closed descriptor."""
    BAD_RESULT = "bad_result"
    """What arrived as the result is not a result."""
    RESULT_TOO_LARGE = "result_too_large"
    TIMEOUT = "timeout"
    """It used up its time, on the clock or on the processor."""
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    OUTPUT = "output"
    """It printed far more than is kept."""


class Feature(StrEnum):
    """What a backend guarantees. A caller that needs one that is missing is refused with `NoSandbox`."""

    FILES = "files"
    """Only the named files can be read, and only the writable ones be changed."""
    HIDING = "hiding"
    """What may not be read is not even visible; single files of a writable folder can be protected, as in `.git`."""
    NO_NETWORK = "no_network"
    """There is no network at all, not even the loopback interface of the host."""
    HOSTS = "hosts"
    """The network can be limited to named hosts."""
    PROCESSES = "processes"
    """Their number is limited, other processes can't be seen or signalled, and none survives."""
    SYSCALLS = "syscalls"
    """Calls that attack the kernel are refused."""
    MEMORY = "memory"
    DISK = "disk"
    CALLS = "calls"
    """What runs can ask the host for something, by `RunSpec.broker`."""
    WORKSPACE = "workspace"
    """Commands can be confined in the user's own folder: `Sandbox.box`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use. Each is above 0. The defaults suit a capability.

    Attributes:
        wall_s: Seconds on the clock.
        cpu_s: Seconds of processor time of one process.
        memory_mb: Memory of all processes together, in MiB. Shared pages count once.
        processes: Processes and threads at one time.
        file_mb: The size of one file, in MiB.
        tmp_mb: The size of all files together, in MiB.
        output_kb: What is kept of stdout and of stderr, in KiB each. A run that prints 64 times as much is ended.
        result_kb: The size of the result, in KiB.
        artifacts: How many files of `out/` are collected.
        artifacts_mb: Their size together, in MiB.
    """

    wall_s: float = 60.0
    cpu_s: int = 30
    memory_mb: int = 512
    processes: int = 32
    file_mb: int = 16
    tmp_mb: int = 64
    output_kb: int = 256
    result_kb: int = 1024
    artifacts: int = 64
    artifacts_mb: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What may be reached.

    Attributes:
        hosts: For the mode "allow": "api.example.org", "api.example.org:8443", "*.example.org". Without a port: 443
            and 80.
        private: Entries of `hosts` that may resolve to a private or loopback address, because the user named them.
    """

    mode: NetworkMode = "none"
    hosts: tuple[str, ...] = ()
    private: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonEntry:
    """Call `run(args)` of `code_dir/main.py`, which must return a string.

    Attributes:
        code_dir: A folder that the code can read but not change. Its parent folders stay hidden.
        args: JSON. They travel on a descriptor of their own, never in the arguments or the environment.
    """

    code_dir: Path
    args: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEntry:
    """Run a program. No shell is involved.

    Attributes:
        argv: The program and its arguments. A name without a slash is searched on the sandbox's own PATH. The name
            "python" is Satchel's own interpreter, with the layer on its path.
        stdin: Its input; None is /dev/null.
    """

    argv: tuple[str, ...]
    stdin: bytes | None = None


Broker: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[tuple[str, bool]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run in a fresh sandbox.

    Attributes:
        layer: A folder of installed packages (`layers`), put on `sys.path`; None for none.
        read_only: Files and folders of the host that can be read, at the same path as outside.
        writable: Files and folders of the host that can be changed, at the same path as outside.
        secrets: Environment variables whose values are removed from everything that comes back.
        environ: Further environment variables. Nothing else of the host's environment is passed on.
        broker: Answers what the code asks with `satchel_calls.call(name, input)`: gets both and returns the text of the
            result and whether it is one; otherwise the text says why not. Of commands, "python" can ask.
    """

    entry: PythonEntry | CommandEntry
    layer: Path | None = None
    network: Network = Network()
    limits: Limits = Limits()
    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    environ: Mapping[str, str] = field(default_factory=dict)
    broker: Broker | None = None

    @property
    def code_dir(self) -> Path | None:
        """The folder with main.py, or None for a command."""
        return self.entry.code_dir if isinstance(self.entry, PythonEntry) else None

    @property
    def stdin(self) -> bytes | None:
        """What a command reads, or None."""
        return self.entry.stdin if isinstance(self.entry, CommandEntry) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """A host that the sandbox refused.

    Attributes:
        target: "api.example.org:443".
        reason: One sentence.
    """

    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that the code left in the folder `out` of its working folder.

    Attributes:
        path: Relative to `out`, with slashes, without "..".
    """

    path: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. Everything in it that the code could write is untrusted text.

    Attributes:
        result: What the function returned; None unless `status` is OK. A command has no result, only output.
        error: One or two sentences for the user and the model; "" if all is well.
        traceback: Python's traceback if the code raised an exception, at most 4,000 characters; else "".
        exit: The exit code; 128 + N if signal N ended it.
        wall_ms: Milliseconds on the clock, with the start of the sandbox.
        peak_mb: The largest amount of memory that was seen, in MiB; 0 if unknown. Short peaks may be missed.
        artifacts: What it left in `out`, in the order of their paths.
        omitted: Files in `out` that were not collected, with the reason: "big.bin: larger than the 16 MiB allowed".
    """

    status: Status
    result: str | None = None
    error: str = ""
    traceback: str = ""
    stdout: str = ""
    stderr: str = ""
    exit: int = 0
    wall_ms: float = 0.0
    peak_mb: int = 0
    backend: str = ""
    denied: tuple[Denial, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    omitted: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the run ended as it should."""
        return self.status == Status.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """A folder in which commands run one after another, each in a fresh sandbox: the Builder's workshop.

    What a command leaves running ends with it. The folder stays when the session is closed, or when Satchel is
    killed, and can be opened again.

    Attributes:
        folder: The folder on the host. It is created if it doesn't exist. Inside it is the working folder and HOME.
        layer: As in `RunSpec`; `SandboxSession.use_layer` changes it.
        limits: Of each command. `tmp_mb` is the size of the folder.
        total_s: The time of all commands together.
        lend: Gives the broker of each command; None, and where the backend lacks `Feature.CALLS`, there is none.
    """

    folder: Path
    layer: Path | None = None
    network: Network = Network()
    limits: Limits = Limits(cpu_s=120, memory_mb=1024, processes=64, file_mb=64, tmp_mb=256)
    total_s: float = 600.0
    read_only: tuple[Path, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    environ: Mapping[str, str] = field(default_factory=dict)
    lend: Callable[[], AbstractContextManager[Broker]] | None = None


CommandResult: TypeAlias = RunResult
"""The result of one command of a session: `status`, `exit`, `stdout`, `stderr`; no result and no artifacts."""


class SandboxSession(Protocol):
    """An open session."""

    backend: str

    async def exec(
        self, argv: Sequence[str], *, timeout_s: float, stdin: bytes | None = None
    ) -> CommandResult:
        """Run one command in the folder; see `CommandEntry.argv`.

        Raises:
            SandboxError: The sandbox failed, or the session is closed.
        """
        ...

    async def call(self, args: Mapping[str, object], *, timeout_s: float) -> RunResult:
        """Call `run(args)` of `main.py` in the folder, as `Sandbox.run` would.

        Raises:
            SandboxError: As `exec`.
        """
        ...

    async def write(self, path: str, content: bytes) -> None:
        """Write a file of the folder; its parent folders are created.

        Raises:
            UsageError: The path is absolute, leaves the folder, or passes through a symbolic link; or it is full.
        """
        ...

    async def read(self, path: str, *, max_bytes: int) -> bytes:
        """At most `max_bytes` of a regular file of the folder.

        Raises:
            NotFound: There is no such regular file.
            UsageError: As `write`.
        """
        ...

    async def export(self, paths: Sequence[str] | None = None) -> tuple[Artifact, ...]:
        """The regular files of the folder, or those at `paths` and below.

        Raises:
            NotFound: There is nothing at one of the paths.
            UsageError: They are more, or larger, than the session's limits.
        """
        ...

    def use_layer(self, layer: Path | None) -> None:
        """Give the following commands another folder of packages."""
        ...

    async def aclose(self) -> None:
        """End what runs. The folder stays."""
        ...

    async def __aenter__(self) -> Self:
        """Enter the block that closes the session."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A folder as it was when the user agreed to its use: another one in its place is refused."""

    path: Path
    device: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceBox:
    """Confines ordinary commands of the user: they change the workspace and nothing else.

    The folders of the system are read-only, and all others are hidden, apart from what is named here. HOME and /tmp are
    empty and can be written to; what is written there is discarded at the end of the box.

    All paths are real ones: they are opened step by step whenever a command starts, and a symbolic link on the way is
    an error (`SandboxError`). Those that don't exist are left out.

    Attributes:
        workspace: The folder that commands may change. Hooks and settings of git, and at its top what programs act upon
            by themselves (see `selfrun`), stay read-only in it.
        home: The user's home folder.
        writable: More files and folders that may be changed.
        read_only: More files and folders that are visible. Inside the workspace: that may not be changed.
        hidden: Files and folders that can't be read, wherever they are. Of two of these paths, the longer one decides
            about what is in it; of equal ones, `hidden` does.
        guarded: Writable folders outside of the workspace in which hooks and settings stay read-only as well.
        git_values: Settings of git that the user has for all repositories, with their keys: what they name in the
            workspace stays read-only.
        pins: Folders among these paths that have to be the same as when the user agreed.
        memory_mb: Memory of all processes together, in MiB; None is three quarters of the machine's.
        processes: Processes and threads at one time.
        file_mb: The size of one file that is written, in MiB.
        disk_mb: A command is ended when what it wrote takes more than this of a disk, in MiB.
    """

    workspace: Path
    home: Path
    writable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    guarded: tuple[Path, ...] = ()
    git_values: tuple[tuple[str, str], ...] = ()
    pins: tuple[Pinned, ...] = ()
    network: Network = Network()
    memory_mb: int | None = None
    processes: int = 1024
    file_mb: int = 4096
    disk_mb: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Limits that the kernel doesn't hold by itself, and that are checked from outside while a process runs.

    Attributes:
        memory_mb: Memory of the process and its descendants together, in MiB.
        processes: Their number, with their threads and without the process itself.
        folders: Folders whose content together may have `folders_mb`, in MiB.
        disks: Files and folders that may be written. What is written takes at most `disk_mb` of a disk, in MiB.
        inside: File systems in memory, as paths in the sandbox, of which each may have `files` entries.
        pid_file: A file that will name the process to look at, where it is no descendant of the one that was started.
        every_s: The time between two looks.
    """

    memory_mb: int
    processes: int
    folders: tuple[Path, ...] = ()
    folders_mb: int = 0
    disks: tuple[Path, ...] = ()
    disk_mb: int = 0
    inside: tuple[str, ...] = ()
    files: int = 0
    pid_file: Path | None = None
    every_s: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxed:
    """How a command is started so that it runs in a box.

    Attributes:
        argv: What is started instead of the command.
        descriptors: Are inherited; whoever starts it closes its own copies afterwards.
        after: Called when it and all its descendants have ended; None for nothing.
    """

    argv: Sequence[str]
    cwd: Path
    environ: Mapping[str, str]
    descriptors: tuple[int, ...]
    watch: Watch
    after: Callable[[], None] | None = None


class Entrance(Protocol):
    """The part of a box that starting a process needs."""

    def enter(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> Boxed:
        """Say how to start a command. Called once for each start.

        Raises:
            SandboxError: The box is closed, or `cwd` isn't visible in it.
        """
        ...


class OpenBox(Entrance, Protocol):
    """An open `WorkspaceBox`. Pass it to `run_process` or `run_alongside` as `box`."""

    backend: str

    @property
    def denied(self) -> Sequence[Denial]:
        """What the proxy refused so far; it grows while commands run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Whether a backend works here, found out by running something in it.

    Attributes:
        name: "bubblewrap", "landlock", "docker", "podman", "e2b" or "none".
        reason: Why it doesn't, or what to know about it: one sentence, or "".
        fix: What the user can do about it: one or two sentences, possibly with a command; "" if nothing is to be done.
    """

    name: str
    works: bool
    reason: str = ""
    fix: str = ""
    features: frozenset[Feature] = frozenset()


class Sandbox(Protocol):
    """A backend.

    Attributes:
        name: "bubblewrap", "landlock", "docker", "podman", "e2b"; "none" refuses everything; "unsafe" confines
            nothing and exists only where the user set `allow_unsafe`.
    """

    name: str
    features: frozenset[Feature]

    async def run(self, spec: RunSpec, *, on_output: OnOutput | None = None) -> RunResult:
        """Run something once, in a fresh sandbox. If the caller is cancelled, everything is ended first.

        Raises:
            NoSandbox: There is none here, or it can't do what the spec asks for (`Network.mode`).
            SandboxError: It failed.
        """
        ...

    async def open(self, spec: SessionSpec) -> SandboxSession:
        """Open a session.

        Raises:
            NoSandbox: As `run`.
            SandboxError: The folder can't be created.
        """
        ...

    def box(self, spec: WorkspaceBox) -> AbstractAsyncContextManager[OpenBox]:
        """Open a box for commands in the user's own folder. It is inexpensive; processes start with the commands.

        Raises:
            NoSandbox: As `run`; or the workspace is the home folder, contains it, or is the root of the system.
            SandboxError: As `run`.
        """
        ...

    async def probe(self) -> Probe:
        """Try it out. The answer is kept for the life of the process."""
        ...

    async def aclose(self) -> None:
        """End what waits to be used."""
        ...
