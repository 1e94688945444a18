"""What goes to a hosted machine and comes back: two tar files, for `guest/remote.py`.

What comes back is untrusted: it is read with limits, and only regular files with acceptable names are written, into
folders of this machine, without following links.
"""

from __future__ import annotations

import json
import marshal
import os
import shutil
import stat
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from satchel.errors import SandboxError, UsageError
from satchel.sandbox import artifacts
from satchel.sandbox.job import ENVIRON, GUEST, Scene
from satchel.sandbox.port import Status

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""What must be there, too: a layer is made for it."""
HERE = "/run/satchel"
STAGE = f"{HERE}/stage.tar"
LEFT = f"{HERE}/left.tar"
MOST_FILES = 20_000
"""That a run may leave: each takes time and a kilobyte to carry."""
HEADER_BYTES = 2048
"""Of one entry of a tar file, with its padding and a long name."""
REGULAR, RUNNABLE = 0o644, 0o755
MOST_OMITTED = 100
STOPPED: Mapping[str, Status | None] = {
    "": None,
    "timeout": None,
    "memory": Status.MEMORY,
    "disk": Status.DISK,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A folder that goes to the machine and comes back.

    Attributes:
        here: On this machine.
        there: On the hosted one.
    """

    here: Path
    there: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a run left, besides its files.

    Attributes:
        code: The exit code; 128 + N for signal N.
        stopped: The limit on memory or files for which it was ended, or None.
        timed_out: It was ended because of its time.
        peak_mb: The most memory that was seen, in MiB.
        report: What it wrote to the descriptor of the report.
        omitted: Entries of the first folder that were not taken, with the reason.
    """

    code: int
    stopped: Status | None
    timed_out: bool
    peak_mb: int
    report: bytes
    omitted: tuple[str, ...]


def pack(
    path: Path,
    scene: Scene,
    *,
    code_dir: str,
    layer: str,
    folders: Sequence[Sync],
    job: bytes,
    stdin: bytes,
    uid: int,
    most_report_bytes: int,
) -> None:
    """Write the tar file with everything that a run needs.

    Raises:
        SandboxError: It can't be written.
    """
    plan: dict[str, object] = {
        "python": PYTHON,
        "machine": os.uname().machine if scene.spec.layer is not None else "",
        "uid": uid,
        "environ": dict(ENVIRON),
        "job": job,
        "stdin": stdin,
        "folders": [folder.there for folder in folders],
        "wall_s": scene.spec.limits.wall_s,
        "memory_mb": scene.spec.limits.memory_mb,
        "tmp_mb": scene.spec.limits.tmp_mb,
        "files": MOST_FILES,
        "shown": [str(shown) for shown in scene.spec.read_only],
        "report_bytes": most_report_bytes,
    }
    read_only = [(GUEST, HERE), (scene.spec.code_dir, code_dir), (scene.spec.layer, layer)]
    read_only += [(shown, str(shown)) for shown in scene.spec.read_only]
    try:
        with tarfile.open(path, "w") as tar:
            _add_text(tar, f"{HERE}/plan", marshal.dumps(plan, 2))
            for source, there in read_only:
                if source is not None:
                    _add(tar, source, there, uid=0)
            for folder in folders:
                _add(tar, folder.here, folder.there, uid=uid)
    except OSError as error:
        raise SandboxError(f"What the run needs can't be packed: {error}.") from error


def _add_text(tar: tarfile.TarFile, there: str, content: bytes) -> None:
    info = tarfile.TarInfo(there.lstrip("/"))
    info.size, info.mode = len(content), 0o600
    tar.addfile(info, BytesIO(content))


def _add(tar: tarfile.TarFile, source: Path, there: str, *, uid: int) -> None:
    def owned(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not (info.isreg() or info.isdir() or info.issym()):
            return None
        info.uid = info.gid = uid
        info.uname = info.gname = ""
        # What only its owner may read here belongs to somebody else there.
        info.mode = RUNNABLE if info.isdir() or info.mode & 0o100 else REGULAR
        return info

    tar.add(source, there.lstrip("/"), filter=owned)


def most_left_bytes(tmp_mb: int, report_bytes: int) -> int:
    """How much may come back."""
    return (tmp_mb << 20) + report_bytes + MOST_FILES * HEADER_BYTES


def unpack(path: Path, into: Sequence[Path], *, most_report_bytes: int) -> Left:
    """Read what came back. The files of the folders are written into the empty folders `into`.

    Raises:
        SandboxError: It isn't what `guest/remote.py` writes.
    """
    report = b""
    ended: Mapping[str, object] = {}
    omitted: list[str] = []
    try:
        with tarfile.open(path, "r:") as tar:
            for count, info in enumerate(tar):
                number, _, name = info.name.partition("/")
                if count > 2 * MOST_FILES:
                    raise ValueError("more files than a run may leave")
                if info.name == "report":
                    report = _content(tar, info, most_report_bytes)
                elif info.name == "ended":
                    ended = json.loads(_content(tar, info, HEADER_BYTES))
                elif not (number.isascii() and number.isdecimal()) or int(number) >= len(into):
                    raise ValueError(f"a file {info.name[:100]!r}")
                elif (why := _take(tar, info, name, into[int(number)])) and number == "0":
                    omitted.append(f"{name[:200]}: {why}")
            code, stopped, peak_kb = ended.get("code"), ended.get("stopped"), ended.get("peak_kb")
            if not isinstance(code, int) or not isinstance(peak_kb, int) or not isinstance(stopped, str):
                raise ValueError("nothing says how it ended")
            if stopped not in STOPPED:
                raise ValueError(f"it was stopped by {stopped[:100]!r}")
    except (tarfile.TarError, ValueError, RecursionError, AttributeError, OSError) as error:
        raise SandboxError(f"What came back from the hosted machine can't be read: {error}.") from error
    return Left(
        code=code & 0xFF,
        stopped=STOPPED[stopped],
        timed_out=stopped == "timeout",
        peak_mb=max(0, peak_kb) >> 10,
        report=report,
        omitted=tuple(omitted[:MOST_OMITTED]),
    )


def _content(tar: tarfile.TarFile, info: tarfile.TarInfo, most: int) -> bytes:
    # A sparse file has a size that nothing stands behind.
    file = tar.extractfile(info) if info.isreg() and not info.issparse() else None
    if file is None or info.size > most:
        raise ValueError(f"{info.name[:100]!r} is not a file of at most {most:,} bytes")
    return file.read(most)


def _take(tar: tarfile.TarFile, info: tarfile.TarInfo, name: str, folder: Path) -> str:
    """Write one entry into a folder in which there are no links. Returns why not, or ""."""
    try:
        target = folder.joinpath(*artifacts.parts_of(name))
        # The name must be one that can be stored, as those of local files.
        name.encode()
        if info.isdir():
            target.mkdir(exist_ok=True)
            return ""
        if info.islnk():
            return "a file with several names"
        if not info.isreg() or info.issparse():
            return "not a regular file"
        with target.open("xb") as file:
            file.write(_content(tar, info, info.size))
        target.chmod(RUNNABLE if info.mode & 0o100 else REGULAR)
        os.utime(target, (info.mtime, info.mtime))
    except UsageError:
        return "not a name that can be kept"
    except OSError as error:
        return str(error.strerror)
    return ""


def mirror(source: Path, folder: Path) -> None:
    """Make a folder like another one, whose files are moved into it. No link is followed.

    Raises:
        SandboxError: A file can't be written or removed.
    """
    try:
        for path in sorted(folder.iterdir()):
            other = source / path.name
            if stat.S_ISDIR(path.lstat().st_mode):
                if not other.is_dir():
                    shutil.rmtree(path)
            elif not other.is_file():
                path.unlink()
        for path in sorted(source.iterdir()):
            target = folder / path.name
            if path.is_dir():
                target.mkdir(exist_ok=True)
                mirror(path, target)
            else:
                # Beside its place first, so that the file is there whole or not at all.
                half = target.with_name(f".{target.name[:100]}.{os.getpid()}.tmp")
                shutil.move(path, half)
                half.replace(target)
    except OSError as error:
        raise SandboxError(f"{str(folder)!r} can't be written to: {error}.") from error
