"""Old logs, compressed: the same file under the same name, with gzip around its lines.

The new file replaces the old one in one step, as when words are forgotten, so that a reader finds one or the other. All
readers of this room read both. A session that goes on, or from whose log words are taken, has a plain log again.
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeAlias

from satchel.config.home import sync_folder
from satchel.errors import StorageError
from satchel.sessions.journal import unwritable
from satchel.sessions.log import is_compressed, open_log
from satchel.sessions.rewriting import locked_log, rewriting_path

_LEVEL = 6
"""A higher one takes 1 % off, and more time. LZMA takes 6 % off, and 14 times the time (20 MB in 680 logs)."""
_BUFFER = 1 << 20


_Log: TypeAlias = IO[bytes] | gzip.GzipFile
Replaced: TypeAlias = tuple[os.stat_result, os.stat_result]
"""The states of a log's file before and after it was replaced."""


def compress_log(path: Path) -> Replaced | None:
    """Compress a log that nobody writes. One that is compressed stays as it is, which gives None.

    Raises:
        StorageUnwritable, StorageError: It can't be read or replaced, and is unchanged.
    """
    return None if is_compressed(path) else _replace(path, _pack)


def expand_log(path: Path) -> Replaced | None:
    """Make a compressed log plain again, so that it can be appended to. One that is plain stays as it is, which gives
    None.

    Raises:
        StorageError: It is damaged, can't be read or can't be replaced, and is unchanged.
    """
    return _replace(path, _unpack) if is_compressed(path) else None


def _pack(source: _Log, out: IO[bytes]) -> None:
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=out, mtime=0) as packed:
        shutil.copyfileobj(source, packed, _BUFFER)


def _unpack(source: _Log, out: IO[bytes]) -> None:
    shutil.copyfileobj(source, out, _BUFFER)


def _replace(path: Path, write: Callable[[_Log, IO[bytes]], None]) -> Replaced:
    """Put what `write` makes of a log's lines in its place, if the same lines are read from it, with the same time."""
    temporary = rewriting_path(path)
    try:
        with locked_log(path) as mode:
            with open_log(path) as source, temporary.open("wb") as out:
                os.fchmod(out.fileno(), mode)
                write(source, out)
                out.flush()
                os.fsync(out.fileno())
            if not _same_lines(path, temporary):
                raise StorageError(f"{path} was read in two ways, and was left as it is.")
            before = path.stat()
            os.utime(temporary, ns=(before.st_atime_ns, before.st_mtime_ns))
            temporary.replace(path)
            sync_folder(path.parent)
            return before, path.stat()
    except EOFError as error:
        raise StorageError(f"The session log {path} is damaged: {error}.") from error
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _same_lines(one: Path, other: Path) -> bool:
    with open_log(one) as left, open_log(other) as right:
        while piece := left.read(_BUFFER):
            if right.read(len(piece)) != piece:
                return False
        return not right.read(1)
