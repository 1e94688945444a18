"""Requirement layers: folders of installed packages that any number of runs share and none can change.

A list of requirements is resolved once into a lock, with the exact version and the hashes of every package. The lock
determines the layer: its key is a hash of the lock, the Python version and the platform. A layer is installed outside
of the sandbox, by uv, from wheels only: nothing of a package runs, neither its `setup.py` nor its `.pth` files. It is
made in a temporary folder, made read-only and renamed, so that it is there whole or not at all. A run that finds its
layer starts no program, asks no index and works offline.

Layers can be removed at any time and are installed again from their locks. Those that were not used for the longest
time are removed when all together grow too large.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import ssl
import stat
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from satchel.clock import Clock, SystemClock
from satchel.config.home import bytes_below, replacing
from satchel.config.locks import FileLock
from satchel.errors import SandboxError, UsageError
from satchel.sandbox.process import ProcessResult, run_process
from satchel.sandbox.requirements import parse_requirements
from satchel.wording import install_extra

T = TypeVar("T")

_LOCKED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)(?: ; [^\\]+)? \\")
_HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
_PASSED_ON = re.compile(
    r"HOME|PATH|LANG|LC_\w+|TMPDIR|NETRC|SSL_CERT_(FILE|DIR)|XDG_(CONFIG|CACHE|DATA)_(HOME|DIRS)|"
    r"(ALL|HTTP|HTTPS|NO)_PROXY|(all|http|https|no)_proxy|UV_(?!NO_BINARY|PYTHON|TARGET|PREFIX|OFFLINE|EXCLUDE_NEWER)\w+"
)
"""Environment variables that uv gets: where it finds the user's index, its certificates and its cache."""
_BUSY_S = 3_600.0
"""A layer that was used in the last hour may belong to a run that still goes on, and is not removed."""
_LOOK_S = 0.25
_MOST_ERROR_CHARS = 1_500
_UNREACHABLE = re.compile(
    r"error sending request|dns error|could not connect|connection refused|timed out|network is unreachable|"
    r"failed to fetch|client error \(connect\)|request failed after",
    re.IGNORECASE,
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLimits:
    """Bounds of layers.

    Attributes:
        total_mb: The size of all layers, in MiB, above which the least recently used are removed.
    """

    layer_mb: int = 1024
    total_mb: int = 4096
    lock_s: float = 90.0
    install_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """What requirements were resolved to.

    Attributes:
        text: A requirements file with an exact version and hashes for every package.
        packages: "name==version", sorted.
    """

    text: str
    packages: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Lock:
        """Read a lock.

        Raises:
            UsageError: A line is something else than a package with its version or one of its hashes.
        """
        packages = []
        for line in text.splitlines():
            if match := _LOCKED.fullmatch(line):
                packages.append(f"{match['name']}=={match['version']}")
            elif not packages or not _HASH.fullmatch(line):
                raise UsageError(
                    f"A lock has a line that names no package by version and hash: {line[:200]!r}."
                )
        return cls(text=text, packages=tuple(sorted(packages)))


class Layers:
    """Makes layers, in one folder. Several processes may use the same folder."""

    def __init__(
        self,
        folder: Path,
        *,
        environ: Mapping[str, str],
        clock: Clock | None = None,
        min_age_days: float = 3.0,
        limits: LayerLimits | None = None,
        options: Sequence[str] = (),
        uv: str | None = None,
    ) -> None:
        """Take the folder; nothing is created yet.

        Args:
            folder: Where locks and layers are kept; `SATCHEL_HOME/layers`.
            environ: The user's environment; uv gets what it needs of it, so that the user's index and proxy are used.
            clock: Tells the age of packages and layers.
            min_age_days: Versions that were published later than this many days ago are not used: a name that
                imitates another is usually noticed within days. 0 for an index that doesn't say when.
            limits: The bounds.
            options: Further options of uv, such as `--find-links`; the user's, never a capability's.
            uv: The path of uv; None finds it when it is needed.
        """
        self._folder = folder
        self._environ = {
            **_system_certificates(),
            **{name: value for name, value in environ.items() if _PASSED_ON.fullmatch(name)},
        }
        self._clock = clock or SystemClock()
        self._min_age_days = min_age_days
        self._limits = limits or LayerLimits()
        self._options = tuple(options)
        self._uv = uv
        self._threads = anyio.CapacityLimiter(2)

    async def __call__(self, requirements: Sequence[str]) -> Path | None:
        """The folder with the packages; None if none are required.

        The first time, requirements are locked; afterwards the same requirements mean the same lock.

        Raises:
            UsageError: A requirement is not acceptable, does not exist, has no wheel for this Python, conflicts with
                another, or is too large.
            SandboxError: uv is missing, the index can't be reached, or the folder can't be written to.
        """
        wanted = parse_requirements(requirements)
        if not wanted:
            return None
        if (lock := self._saved_lock(wanted)) is not None and (layer := self._used(lock)) is not None:
            return layer
        return await self.layer(await self.lock(wanted))

    async def lock(self, requirements: Sequence[str]) -> Lock:
        """Resolve requirements; the same ones that were resolved here before have the lock that they had.

        Raises:
            UsageError: As above.
            SandboxError: As above.
        """
        wanted = parse_requirements(requirements)
        if (saved := self._saved_lock(wanted)) is not None:
            return saved
        async with self._locked(_digest(*wanted)):
            if (saved := self._saved_lock(wanted)) is not None:
                return saved
            lock = await self._resolved(wanted)
            await self._in_thread(_write_whole, self._lock_path(wanted), lock.text)
        return lock

    async def layer(self, lock: Lock) -> Path:
        """The folder with the packages of a lock, installed if it isn't there.

        Raises:
            UsageError: It is too large, or a package is no longer what its hash says.
            SandboxError: As above.
        """
        if (layer := self._used(lock)) is not None:
            return layer
        async with self._locked(self._key(lock)):
            if (layer := self._used(lock)) is not None:
                return layer
            await self._install(lock)
        await self._in_thread(self._collect, self._key(lock))
        layer = self._used(lock)
        assert layer is not None
        return layer

    # ---- Where things are

    def _saved_lock(self, wanted: tuple[str, ...]) -> Lock | None:
        try:
            return Lock.parse(self._lock_path(wanted).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, UsageError):
            return None

    def _lock_path(self, wanted: tuple[str, ...]) -> Path:
        return self._folder / "locks" / f"{_digest(*wanted)}.txt"

    def _used(self, lock: Lock) -> Path | None:
        """The layer if it is there; it counts as used now."""
        layer = self._folder / self._key(lock)
        now_ns = int(self._clock.now().timestamp() * 1e9)
        try:
            os.utime(layer, ns=(now_ns, now_ns))
        except OSError:
            return None
        return layer / "packages"

    def _key(self, lock: Lock) -> str:
        return _digest(lock.text)

    # ---- uv

    async def _resolved(self, wanted: tuple[str, ...]) -> Lock:
        newest: tuple[str, ...] = ()
        if self._min_age_days > 0:
            before = self._clock.now() - timedelta(days=self._min_age_days)
            newest = ("--exclude-newer", before.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        done = await self._run_uv(
            [
                "pip",
                "compile",
                "--no-header",
                "--no-annotate",
                "--generate-hashes",
                *newest,
                *self._options,
                "-",
            ],
            stdin="".join(f"{line}\n" for line in wanted).encode(),
            limit_s=self._limits.lock_s,
        )
        if done.exit_code == 0:
            return Lock.parse(done.stdout.text)
        hint = ""
        if newest:
            hint = (
                f" Versions younger than {self._min_age_days:g} days are not used; the user can change that with "
                "[sandbox] min_package_age_days."
            )
        raise self._failure(f"These requirements can't be met: {', '.join(wanted)}.{hint}", done)

    async def _install(self, lock: Lock) -> None:
        key = self._key(lock)
        making = await self._in_thread(
            functools.partial(tempfile.mkdtemp, prefix=".making-", dir=self._folder)
        )
        building = Path(making)
        try:
            packages = building / "packages"
            await self._in_thread(_write_whole, building / "lock.txt", lock.text)
            argv = ["pip", "install", "--target", str(packages), "--require-hashes", "--no-deps"]
            argv += [
                "--compile-bytecode",
                "--link-mode",
                "copy",
                *self._options,
                "-r",
                str(building / "lock.txt"),
            ]
            # What is in uv's cache needs no index, which is faster and works without a connection.
            done = await self._run_uv([*argv, "--offline"], limit_s=self._limits.install_s, watched=building)
            if done.exit_code != 0:
                done = await self._run_uv(argv, limit_s=self._limits.install_s, watched=building)
            if done.exit_code != 0:
                raise self._failure(f"These packages can't be installed: {', '.join(lock.packages)}.", done)
            await self._in_thread(_seal, building, self._folder / key)
        except OSError as error:
            raise SandboxError(
                f"A layer of packages can't be written in {self._folder}: {error.strerror}."
            ) from error
        finally:
            with anyio.CancelScope(shield=True):
                await self._in_thread(_remove_tree, building)

    async def _run_uv(
        self, arguments: Sequence[str], *, limit_s: float, stdin: bytes = b"", watched: Path | None = None
    ) -> ProcessResult:
        argv = [
            self._uv or find_uv(self._environ),
            *arguments,
            "--only-binary",
            ":all:",
            "--python",
            sys.executable,
        ]
        argv += ["--quiet", "--no-progress", "--color", "never", "--no-python-downloads"]
        most_bytes = self._limits.layer_mb * 2**20
        done: ProcessResult | None = None
        failure: SandboxError | None = None
        async with anyio.create_task_group() as group:

            async def watch(folder: Path) -> None:
                while await self._in_thread(bytes_below, folder) <= most_bytes:  # noqa: ASYNC110 - uv tells nobody
                    await anyio.sleep(_LOOK_S)
                group.cancel_scope.cancel()

            if watched is not None:
                group.start_soon(watch, watched)
            try:
                done = await run_process(
                    argv, cwd=self._folder, environ=self._environ, stdin=stdin, timeout_s=limit_s
                )
            except SandboxError as error:
                # Through the task group it would reach the caller as an exception group.
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if done is None or (watched is not None and await self._in_thread(bytes_below, watched) > most_bytes):
            raise UsageError(f"The packages take more than {self._limits.layer_mb:,} MiB, which is the most.")
        if done.timed_out:
            raise SandboxError(
                f"The package index took longer than {limit_s:g} s. Try again, or require less."
            )
        return done

    def _failure(self, what: str, done: ProcessResult) -> UsageError | SandboxError:
        said = _ANSI.sub("", done.stderr.text).strip()
        if _UNREACHABLE.search(said):
            return SandboxError(f"{what} The package index can't be reached: {said[-_MOST_ERROR_CHARS:]}")
        return UsageError(
            f"{what} Only wheels for this Python and this system are used.\n{said[-_MOST_ERROR_CHARS:]}"
        )

    # ---- Several processes, and room

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[None]:
        """Hold a lock file, so that two processes don't do the same work at once. It is removed afterwards."""
        path = self._folder / "locks" / f"{name}.lock"
        limit_s = self._limits.lock_s + self._limits.install_s
        lock = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with anyio.move_on_after(limit_s):
                while (lock := FileLock.take(path, removes=True)) is None:  # noqa: ASYNC110 - another process holds it
                    await anyio.sleep(_LOOK_S)
        except OSError as error:
            raise SandboxError(f"{self._folder} can't be written to: {error.strerror}.") from error
        if lock is None:
            raise SandboxError(f"Another process has been installing the same packages for {limit_s:g} s.")
        try:
            yield
        finally:
            lock.release()

    def _collect(self, kept: str) -> None:
        """Remove what a killed process left half made, and the least recently used layers where they are too many."""
        now_s = self._clock.now().timestamp()
        for path in (self._folder / "locks").glob("*.lock"):
            # Nobody's: whoever made it was killed.
            if (lock := FileLock.take(path, removes=True)) is not None:
                lock.release()
        layers = []
        for entry in os.scandir(self._folder):
            idle_s = now_s - entry.stat(follow_symlinks=False).st_mtime
            if idle_s < _BUSY_S or entry.name in {kept, "locks"}:
                idle_s = 0.0
            if entry.name.startswith("."):
                if idle_s:
                    _remove_tree(Path(entry.path))
            elif entry.name != "locks":
                layers.append((idle_s, bytes_below(Path(entry.path)), Path(entry.path)))
        total_bytes = sum(size for _, size, _ in layers)
        for idle_s, size, path in sorted(layers, reverse=True):
            if total_bytes <= self._limits.total_mb * 2**20 or not idle_s:
                break
            # Renamed first: nobody finds half a layer.
            trash = path.with_name(f".old-{path.name}")
            path.rename(trash)
            _remove_tree(trash)
            total_bytes -= size

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        return await anyio.to_thread.run_sync(function, *args, limiter=self._threads)


def _system_certificates() -> dict[str, str]:
    """Have uv trust what the system trusts, as pip does: behind a proxy that inspects TLS, its own list is not enough.
    Where the system has no certificates, uv's list is better than none.
    """
    paths = ssl.get_default_verify_paths()
    return {"UV_SYSTEM_CERTS": "true"} if paths.cafile or paths.capath else {}


def find_uv(environ: Mapping[str, str]) -> str:
    """The uv that was installed with Satchel, or else the one on the PATH.

    Raises:
        SandboxError: It is not there.
    """
    try:
        # Imported when needed: most runs have their layer.
        from uv import find_uv_bin  # noqa: PLC0415

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        if (found := shutil.which("uv", path=environ.get("PATH"))) is not None:
            return found
        raise SandboxError(
            f"Packages are installed with uv, which is missing here. Type: {install_extra('packages')}"
        ) from error


def _digest(*parts: str) -> str:
    text = "\n".join([*_python_tag(), *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@functools.cache
def _python_tag() -> tuple[str, ...]:
    return (sys.implementation.cache_tag or "", sysconfig.get_platform())


def _write_whole(path: Path, text: str) -> None:
    with replacing(path, durable=False) as file:
        file.write(text.encode())


def _seal(building: Path, layer: Path) -> None:
    """Make a finished layer read-only and move it to its place."""
    packages = building / "packages"
    packages.mkdir(exist_ok=True)
    _make_read_only(packages)
    building.chmod(0o755)
    building.rename(layer)


def _make_read_only(folder: Path) -> None:
    """Files that anybody can read and nobody can write. What is neither a file nor a folder is removed."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(place) / name
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                path.chmod(0o555 if mode & stat.S_IXUSR else 0o444)
            else:
                path.unlink()
        Path(place).chmod(0o555)


def _remove_tree(folder: Path) -> None:
    """Remove a folder whose content may be read-only."""
    for place, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(place).chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)
