"""The sandboxes of a workspace: opened when a call needs one, and shared by the calls that may do the same."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from satchel.config import Settings
from satchel.config.home import ensure_home, replace_file
from satchel.errors import NoSandbox, SandboxError, StorageUnwritable
from satchel.sandbox.aside import Before, Moved, left_by_killed, save
from satchel.sandbox.bwrap import interpreter_folders
from satchel.sandbox.paths import identity, make_folder
from satchel.sandbox.port import Feature, Network, OpenBox, Pinned, Probe, Sandbox, WorkspaceBox
from satchel.sandbox.process import ProcessResult, run_process, watch_notes
from satchel.sandbox.running import RunningProcess, run_alongside
from satchel.sandbox.selfrun import has_settings
from satchel.sandbox.workspace import common_of, look_at_readable, protected_in_git
from satchel.tools.box import Box, Wish
from satchel.tools.boxed.environ import boxed_environ, git_settings_text
from satchel.tools.boxed.notes import NOT_FOUND, OF_SERVICES, is_hidden, refusal_notes
from satchel.tools.boxed.places import git_around
from satchel.tools.boxed.programs import programs_on_path
from satchel.tools.paths import is_below

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]

_MOST_OPEN: Final = 8
"""Boxes of a workspace that stay open: one for each set of hosts and paths that calls were granted."""
_OWN_FOLDERS: Final = ("/tmp", "/var/tmp")
"""Every box has its own."""
_OWN_PROGRAM: Final = (Path(os.path.realpath(sys.prefix)), Path(__file__).resolve().parents[2])
"""Satchel's environment and code, which are in the workspace of those who work on Satchel."""
_OPEN_S: Final = 60.0
"""A box opens in less than a second; with a load of thirty on two cores, it took more than twenty."""
_CLOSE_S: Final = 10.0
_GIT_S: Final = 60.0
"""For git to list the user's settings, which takes some milliseconds on a quiet machine."""
_OFFLINE: Final = {"UV_OFFLINE": "1", "npm_config_prefer_offline": "true"}
"""Package runners start from their caches what they have fetched before, instead of failing to look for news."""
_NEEDED: Final = frozenset(
    {Feature.FILES, Feature.NO_NETWORK, Feature.PROCESSES, Feature.SYSCALLS, Feature.WORKSPACE}
)
"""What a box must guarantee to be one. `bash` needs HIDING as well, which protects `.git/hooks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxedRun:
    """A program that ran in a box.

    Attributes:
        notes: What the box refused to it, as far as that can be told; see `refusal_notes`.
    """

    result: ProcessResult
    notes: list[str]


@dataclass(slots=True)
class _Open:
    """An open box, held by a task of its own: whoever opens a box must close it in the same task."""

    box: OpenBox | None = None
    error: SandboxError | None = None
    ready: anyio.Event = field(default_factory=anyio.Event)
    closing: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    users: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a box is made of at the moment."""

    spec: WorkspaceBox
    tops: tuple[Path, ...]
    granted: tuple[Path, ...]
    writable: tuple[str, ...]


class Workspaces:
    """The boxes of all folders in which sessions run."""

    def __init__(
        self,
        sandbox: Callable[[], Awaitable[Sandbox]],
        settings: Settings,
        *,
        spawn: Spawn,
        tell: Callable[[str], None],
        tools: Sequence[Path] = (),
        fetching: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Nothing is opened yet.

        Args:
            sandbox: Gives the sandbox, or raises `NoSandbox`.
            settings: HOME in their environment is the user's home.
            spawn: Runs something in the background until Satchel is closed.
            tell: Takes a notice for the user; told once that there is no sandbox.
            tools: Folders of executables that boxed programs may read.
            fetching: The MCP servers that a package runner fetches, with the hosts that it needs.
        """
        self.sandbox = sandbox
        self.settings = settings
        environ = settings.environ
        named = environ.get("XDG_CACHE_HOME", "")
        around = (
            Path(named) if named.startswith("/") else Path(environ.get("HOME") or "/nonexistent", ".cache")
        )
        # Now, and never again: later a box may have put a link on the way.
        self._caches = Path(os.path.realpath(around)) / "satchel" / "boxes"
        self._probed: Probe | None = None
        self.home = Path(os.path.realpath(settings.home))
        self.environ = environ
        self.spawn = spawn
        self.tools = tuple(Path(os.path.realpath(folder)) for folder in tools)
        self.fetching = dict(fetching or {})
        self.limiter = anyio.CapacityLimiter(4)
        self._tell = tell
        self._told = False
        self.named: dict[str, Path] = {}
        self.skills: Callable[[], Sequence[Path]] = tuple
        """Gives the folders of the user's skills, which boxed programs may read: models follow what is in them."""
        self._folders: dict[Path, Workspace] = {}
        self._git_listed: str | None = None
        self._git_files = self._own_git_files()
        self._git_stamps: tuple[int, ...] = ()
        self._reading_git = anyio.Lock()

    def workspace(self, folder: Path) -> Workspace:
        """The boxes of one folder."""
        real = Path(os.path.realpath(folder))
        return self._folders.setdefault(real, Workspace(real, self))

    async def probe(self) -> Probe:
        """Whether there is a sandbox; see `Sandbox.probe`."""
        if self._probed is None:
            try:
                self._probed = await (await self.sandbox()).probe()
            except NoSandbox as error:
                self._probed = Probe(name="none", works=False, reason=str(error))
        return self._probed

    def say_once(self, text: str) -> None:
        """Tell the user why programs are not boxed, once."""
        if not self._told:
            self._told = True
            self._tell(text)

    @property
    def user_home(self) -> Path:
        """The user's home, with symlinks resolved."""
        return Path(os.path.realpath(self.environ.get("HOME") or "/nonexistent"))

    @property
    def notes(self) -> Path:
        """The folder of what Satchel writes for boxes and about them. No box can write there."""
        return self.home / "boxes"

    @property
    def git_file(self) -> Path:
        """The git settings of boxed programs."""
        return self.notes / "gitconfig"

    @property
    def caches(self) -> Path:
        """Where the caches of all boxes are: beside the user's other caches, and none of theirs."""
        return self._caches

    async def git_settings(self) -> str:
        """The git settings of boxed programs, as a file's text; see `git_settings_text`."""
        return git_settings_text(await self._listed_by_git())

    async def git_values(self) -> tuple[tuple[str, str], ...]:
        """The settings of git that the user has for all repositories, with their keys."""
        entries = [each.partition("\n") for each in (await self._listed_by_git()).split("\0")]
        return tuple((key.lower(), value) for key, _, value in entries if value)

    async def _listed_by_git(self) -> str:
        """What git lists outside of repositories, as long as its files stay the same."""
        async with self._reading_git:
            stamps = tuple(_changed(path) for path in self._git_files)
            if self._git_listed is None or stamps != self._git_stamps:
                self._git_listed = None  # also if this is cancelled
                try:
                    result = await run_process(
                        ["git", "config", "--list", "--null", "--show-origin", "--includes"],
                        cwd=Path("/"),
                        environ=self.environ,
                        timeout_s=_GIT_S,
                    )
                except SandboxError:
                    return ""  # there is no git
                if result.exit_code is None:
                    why = f"within {_GIT_S:g} s" if result.timed_out else f"(ended by signal {result.signal})"
                    raise SandboxError(
                        f"git did not list your settings {why}, so no sandbox can protect what they name."
                    )
                fields = result.stdout.text.split("\0") if result.exit_code == 0 else []
                origins = {each.removeprefix("file:") for each in fields[::2]}
                self._git_files = tuple(sorted(origins.union(self._own_git_files()) - {""}))
                self._git_listed = "\0".join(fields[1::2])
                self._git_stamps = tuple(_changed(path) for path in self._git_files)
            return self._git_listed

    def _own_git_files(self) -> tuple[str, ...]:
        """Where git looks for the user's settings."""
        home = self.environ.get("HOME") or "/nonexistent"
        around = self.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
        return ("/etc/gitconfig", f"{home}/.gitconfig", f"{around}/git/config")

    async def aclose(self) -> None:
        """Close every box."""
        async with anyio.create_task_group() as group:
            for workspace in self._folders.values():
                group.start_soon(workspace.aclose)


class Workspace:
    """The boxes of one folder. It is the `Boxing` of the permission gate."""

    def __init__(self, folder: Path, shared: Workspaces) -> None:
        """Use `Workspaces.workspace`."""
        self.folder = folder
        self._shared = shared
        self._open: dict[WorkspaceBox, _Open] = {}
        self._opening = anyio.Lock()
        self._pins: dict[Path, Pinned] = {}
        self._before: Before | None = None
        self._agreed: tuple[Path, ...] = ()
        self._saved: Path | None = None
        self._running = 0
        self._looking = anyio.Lock()
        self.caches = shared.caches / sha256(os.fsencode(folder)).hexdigest()[:16]
        # A command could leave a program or a `usercustomize.py` for an MCP server, which has keys.
        self.server_caches = self.caches.with_name(f"{self.caches.name}-servers")

    # For deciding

    async def lacking(self, source: str, *, quietly: bool = False) -> str:
        """See `Boxing`."""
        why = await self._lacking(source)
        if why and not quietly:
            self._shared.say_once(
                f"Mode auto asks before it runs programs, as ask does: {why}. `satchel doctor` says more."
            )
        return why

    async def _lacking(self, source: str) -> str:
        if self._shared.user_home.is_relative_to(self.folder):
            return (
                "the session's folder is your home folder, or holds it; a sandbox needs a folder of its own"
            )
        probe = await self._shared.probe()
        if not probe.works:
            return f"there is no sandbox here ({probe.reason.rstrip('.') or probe.name})"
        if Feature.WORKSPACE not in probe.features:
            return f"the sandbox {probe.name} runs capabilities and builds only"
        if not probe.features >= _NEEDED:
            return f"the sandbox {probe.name} does not contain programs well enough"
        if source == "builtin" and Feature.HIDING not in probe.features:
            return f"the sandbox {probe.name} can't protect .git/hooks from commands"
        return ""

    def wish(self, tool: str) -> Wish:
        """See `Boxing`. A package runner fetches an MCP server when it first starts here."""
        for server, hosts in self._shared.fetching.items():
            if tool.startswith(f"mcp__{server}__") and not self._note_of(server).exists():
                return Wish(box=Box(network=hosts), reason=f"to fetch the MCP server {server}")
        return Wish()

    def note_start(self, server: str, box: Box) -> None:
        """Note that an MCP server was started in a box: what it needs has been fetched."""
        hosts = self._shared.fetching.get(server)
        if hosts and not box.lacks(Box(network=hosts)):
            with contextlib.suppress(StorageUnwritable):
                ensure_home(self._shared.notes)
                replace_file(self._note_of(server), "")

    def _note_of(self, server: str) -> Path:
        return self._shared.notes / f"{self.server_caches.name}-fetched-{server}"

    @property
    def areas(self) -> Sequence[str]:
        """See `Boxing`."""
        return (str(self.folder), os.path.realpath(self.caches))

    def is_writable(self, path: str) -> bool:
        """See `Boxing`."""
        if path in _OWN_FOLDERS:
            return True
        if is_below(path, [str(self.caches)]):
            return True
        return is_below(path, [str(self.folder)]) and not has_settings(
            Path(path).relative_to(self.folder).parts
        )

    def is_readable(self, path: str) -> bool:
        """See `Boxing`."""
        shown = (str(self.folder), str(self.caches), *interpreter_folders())
        return not is_hidden(path, home=str(self._shared.user_home), shown=shown)

    def named(self, path: str) -> tuple[Path, ...]:
        """An absolute path of a program's settings as one that boxes show; none where they show it anyway, or may not.

        It is resolved once: links that a command makes later lead nowhere.
        """
        real = self._shared.named.setdefault(path, Path(os.path.realpath(path)))
        shown = self.is_readable(str(real)) or self.problem(str(real), reads=True)
        return () if shown else (real,)

    async def programs(self) -> tuple[str, ...]:
        """See `Boxing`."""
        shared = self._shared
        path, home = shared.environ.get("PATH", ""), str(shared.user_home)
        found = await anyio.to_thread.run_sync(programs_on_path, path, home, limiter=shared.limiter)
        return tuple(
            each for each in found if not self.is_readable(each) and not self.problem(each, reads=True)
        )

    def problem(self, path: str, *, reads: bool = False) -> str:
        """See `Boxing`."""
        verb = "read" if reads else "write"
        if is_below(path, [str(self._shared.home)]) or is_below(str(self._shared.home), [path]):
            return f"No command may {verb} {path}: Satchel's own files are there, or below it."
        if is_below(str(self._shared.user_home), [path]):
            return f"{path} holds the user's home. Name the folder or file that the command has to {verb}."
        if is_below(path, OF_SERVICES):
            return f"{path} is not given to a sandbox: sockets and devices there reach everything. Use outside_box."
        if reads:
            return ""
        if is_below(str(self._shared.caches), [path]):
            return f"No command may write {path}: what Satchel keeps about sandboxes is below it."
        if not os.path.lexists(path) and not is_below(path, [str(self.folder)]):
            return f"{path} does not exist. Name the folder in which it will be created."
        return ""

    def _git(self) -> Path | None:
        return git_around(self.folder, stop=self._shared.user_home)

    # Running

    async def run(
        self,
        argv: Sequence[str],
        *,
        box: Box,
        cwd: Path,
        environ: Mapping[str, str],
        can_ask: bool = False,
        **options: Any,
    ) -> BoxedRun:
        """Run a program to its end in a box; see `run_process`.

        Args:
            argv: The program and its arguments.
            box: What it may do beyond the workspace.
            cwd: Its working directory. A folder that the box doesn't show is replaced by the workspace.
            environ: The environment that it would have outside; the box passes on what is harmless.
            can_ask: See `refusal_notes`.
            **options: As for `run_process`.

        Raises:
            SandboxError: The box could not be opened, or the program not started. Nothing ran outside.
        """
        async with self._in_box(box) as (plan, opened):
            seen = len(opened.denied)
            async with self._set_aside(plan) as moved:
                result = await run_process(
                    argv, cwd=cwd, environ=await self._environ(environ), box=opened, **options
                )
        notes = refusal_notes(
            result,
            denied=_told(opened, seen, result),
            moved=moved,
            writable=plan.writable,
            readable=[str(path) for path in (*plan.spec.read_only, *interpreter_folders())],
            programs=[
                path
                for path in (await self.programs() if result.exit_code == NOT_FOUND else ())
                if not is_below(path, box.read)
            ],
            has_network=plan.spec.network.mode != "none",
            cwd=cwd,
            home=str(self._shared.user_home),
            can_ask=can_ask,
        )
        return BoxedRun(result=result, notes=notes)

    @asynccontextmanager
    async def alongside(
        self,
        argv: Sequence[str],
        *,
        box: Box,
        cwd: Path,
        environ: Mapping[str, str],
        on_stderr: Callable[[bytes], None],
        read_only: Sequence[Path] = (),
    ) -> AsyncIterator[RunningProcess]:
        """Run a program in a box for as long as the block lasts; see `run_alongside`. `environ` is its whole
        environment, apart from the caches and the git settings of the box; `read_only` are further folders that it may
        read.

        Raises:
            SandboxError: As `run`.
        """
        granted = dict.fromkeys(environ)
        async with (
            self._in_box(box, read_only=read_only, caches=self.server_caches) as (_, opened),
            run_alongside(
                argv,
                cwd=cwd,
                environ={
                    **await self._environ(environ, granted=granted, caches=self.server_caches),
                    **({} if box.network else _OFFLINE),
                },
                on_stderr=on_stderr,
                box=opened,
            ) as process,
        ):
            yield process

    @asynccontextmanager
    async def watching(self, box: Box) -> AsyncIterator[list[Moved]]:
        """Set aside what a program that runs `alongside` in the box leaves behind in the block; see `_set_aside`."""
        values = await self._shared.git_values()
        plan = await self._off_loop(partial(self._plan, box, (), values, caches=self.server_caches))
        async with self._set_aside(plan) as moved:
            yield moved

    @asynccontextmanager
    async def _set_aside(self, plan: _Plan) -> AsyncIterator[list[Moved]]:
        """Run a command in the block; then the list is filled with what it left behind and was set aside.

        Of commands that run at the same time, it can't be told which one wrote something. So what is new since the
        first of them began is set aside when any of them ends.
        """
        moved: list[Moved] = []
        async with self._looking:
            if self._before is None or not self._running:
                moved += await self._off_loop(left_by_killed, self._shared.notes, self.caches.name)
                values, home = await self._shared.git_values(), str(self._shared.user_home)
                self._before = await self._off_loop(partial(Before.look, plan.tops, values=values, home=home))
                self._agreed = plan.granted
            else:
                await self._off_loop(self._before.include, plan.tops)
                self._agreed += plan.granted
            self._running += 1
        try:
            async with self._looking:
                self._saved = await self._off_loop(self._save, self._before, self._agreed)
            yield moved
        finally:
            with anyio.CancelScope(shield=True):
                async with self._looking:
                    self._running -= 1
                    moved += await self._off_loop(partial(self._before.set_aside, agreed=plan.granted))
                    if not self._running and self._saved is not None:
                        await self._off_loop(partial(self._saved.unlink, missing_ok=True))

    def _save(self, before: Before, agreed: Sequence[Path]) -> Path | None:
        """Note what was there, in case that Satchel is killed; nothing in a home that can't be written."""
        notes = self._shared.notes
        try:
            ensure_home(notes)
            warden = watch_notes(notes, self._shared.environ)
            return save(before, notes, self.caches.name, agreed=agreed, warden=warden)
        except (StorageUnwritable, OSError):
            return None

    async def _environ(
        self,
        environ: Mapping[str, str],
        *,
        granted: Mapping[str, Any] | None = None,
        caches: Path | None = None,
    ) -> dict[str, str]:
        return boxed_environ(
            environ,
            caches=caches or self.caches,
            git_settings=self._shared.git_file,
            granted=(*self._shared.settings.tools.environ, *(granted or ())),
        )

    @asynccontextmanager
    async def _in_box(
        self, box: Box, *, read_only: Sequence[Path] = (), caches: Path | None = None
    ) -> AsyncIterator[tuple[_Plan, OpenBox]]:
        caches = caches or self.caches
        await self._prepare_caches(caches)
        values = await self._shared.git_values()
        plan = await self._off_loop(partial(self._plan, box, tuple(read_only), values, caches=caches))
        held = await self._hold(plan.spec)
        try:
            if held.box is None:
                raise held.error or SandboxError("The sandbox was closed.")
            await self._off_loop(look_at_readable, plan.spec.read_only)
            yield plan, held.box
        finally:
            held.users -= 1

    def _plan(
        self, box: Box, read_only: tuple[Path, ...], values: tuple[tuple[str, str], ...], *, caches: Path
    ) -> _Plan:
        """Look at the workspace, and say what a box has to be like now."""
        shared, git, common = self._shared, self._git(), common_of(self.folder)
        limits = shared.settings.sandbox
        granted = [Path(path) for path in box.write]
        read = [Path(path) for path in box.read]
        guarded = tuple(path for path in granted if self._is_guarded(path))
        tops = (self.folder, *(each for each in (git, common) if each is not None), *guarded)
        protected = (
            protected_in_git(git, self.folder, values=values, home=shared.user_home)
            if git is not None
            else []
        )
        hosts = box.network
        public = "*" in hosts
        spec = WorkspaceBox(
            workspace=self.folder,
            home=shared.user_home,
            writable=(
                caches,
                *([git] if git is not None else ()),
                *granted,
            ),
            read_only=(
                shared.git_file,
                *(path for path in protected if path not in granted),
                *(own for own in _OWN_PROGRAM if own.is_relative_to(self.folder)),
                *(folder for folder in shared.tools if folder.is_dir()),
                *(
                    folder
                    for folder in shared.skills()
                    if not any(is_below(str(each), [str(folder)]) for each in (shared.home, shared.user_home))
                ),
                *read_only,
                *(path for path in read if path not in granted),
            ),
            hidden=(shared.home,),
            guarded=guarded,
            git_values=values,
            pins=tuple(pin for path in (*granted, *read) if (pin := self._pin(path)) is not None),
            network=Network(
                mode="public" if public else "allow" if hosts else "none",
                hosts=() if public else hosts,
                private=(
                    *(host for host in hosts if _names_private(host)),
                    *(shared.settings.web.allow_private if hosts else ()),
                ),
            ),
            memory_mb=limits.memory_mb,
            processes=limits.processes,
            file_mb=limits.file_mb,
            disk_mb=limits.disk_mb,
        )
        around = (str(git),) if git is not None else ()
        writable = (str(self.folder), str(caches), *around, *box.write)
        return _Plan(spec, tops, tuple(granted), writable)

    def _is_guarded(self, path: Path) -> bool:
        """Whether a granted path is a folder outside of the workspace that is no setting itself."""
        home = self._shared.user_home
        parts = path.relative_to(home).parts if path.is_relative_to(home) else path.parts[1:]
        return path.is_dir() and not path.is_relative_to(self.folder) and not has_settings((*parts, ""))

    def _pin(self, path: Path) -> Pinned | None:
        """The folder that a path named when it was first granted."""
        if path not in self._pins and (found := identity(path)) is not None:
            self._pins[path] = Pinned(path=path, device=found[0], inode=found[1])
        return self._pins.get(path)

    async def _hold(self, spec: WorkspaceBox) -> _Open:
        """The open box for a spec, with one more user."""
        async with self._opening:
            held = self._open.get(spec)
            if held is None or held.closing.is_set() or held.ended.is_set():
                await self._make_room()
                held = self._open[spec] = _Open()
                self._shared.spawn(partial(self._keep_open, spec, held))
            held.users += 1
        with anyio.move_on_after(_OPEN_S):
            await held.ready.wait()
        if not held.ready.is_set():
            held.closing.set()
            held.error = SandboxError(f"The sandbox did not open within {_OPEN_S:g} s.")
        return held

    async def _keep_open(self, spec: WorkspaceBox, held: _Open) -> None:
        try:
            sandbox = await self._shared.sandbox()
            async with sandbox.box(spec) as box:
                held.box = box
                held.ready.set()
                await held.closing.wait()
        except SandboxError as error:
            held.error = error
        finally:
            held.box = None
            held.ready.set()
            held.ended.set()
            if self._open.get(spec) is held:
                del self._open[spec]

    async def _make_room(self) -> None:
        """Close boxes that nobody uses, the oldest first."""
        idle = [spec for spec, held in self._open.items() if not held.users]
        for spec in idle[: max(0, len(self._open) - _MOST_OPEN + 1)]:
            self._open.pop(spec).closing.set()

    async def _prepare_caches(self, caches: Path) -> None:
        text = await self._shared.git_settings()
        await self._off_loop(make_folder, caches)
        await self._off_loop(_write_git_settings, self._shared, text)

    async def _off_loop(self, function: Callable[..., Any], *args: Any) -> Any:
        return await anyio.to_thread.run_sync(function, *args, limiter=self._shared.limiter)

    async def aclose(self) -> None:
        """Close every box of the folder."""
        held = tuple(self._open.values())
        for each in held:
            each.closing.set()
        with anyio.move_on_after(_CLOSE_S):
            for each in held:
                await each.ended.wait()


def _write_git_settings(shared: Workspaces, text: str) -> None:
    """Write the git settings of boxed programs. Without them, as in a home that is read-only, git still works."""
    file = shared.git_file
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if file.read_text(encoding="utf-8") == text:
            return
    with contextlib.suppress(StorageUnwritable, OSError):
        ensure_home(file.parent)
        replace_file(file, text)
        # For boxes that run as the owner of the workspace; what is around the file is for its owner alone.
        file.chmod(0o644)


def _changed(path: str) -> int:
    """When a file changed, in ns; 0 if it isn't there."""
    try:
        return Path(path).stat().st_ctime_ns
    except OSError:
        return 0


def _told(opened: OpenBox, seen: int, result: ProcessResult) -> list[Any]:
    """What the proxy refused during a run: what is new, and what it had refused before if the program names it."""
    denied = list(opened.denied)
    said = f"{result.stderr.text}\n{result.stdout.text}" if result.exit_code != 0 else ""
    return [
        denial
        for number, denial in enumerate(denied)
        if number >= seen or denial.target.rpartition(":")[0] in said
    ]


def _names_private(host: str) -> bool:
    """Whether an entry names this machine or an address, so that the user who allows it means exactly that."""
    name = host.rpartition(":")[0] if not host.startswith("[") and host.count(":") == 1 else host
    name = name.partition("]")[0].strip("[]")
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
