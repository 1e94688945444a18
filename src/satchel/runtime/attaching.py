"""Attaching files of this machine to a message: by their paths, or as `@path` in the user's words."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from satchel.clock import Clock, SystemClock
from satchel.config import Settings
from satchel.errors import UsageError
from satchel.messages import FileBlock
from satchel.sessions.attachments import MOST_FILES, Uploads

__all__ = ["attach", "files_named", "keep", "named_in", "names_completing"]

_PIECE: Final = 1 << 20
_MOST_NAMES: Final = 200
_MENTION: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')


def attach(settings: Settings, paths: Sequence[Path], *, clock: Clock) -> list[FileBlock]:
    """Keep files for the next message; "-" is stdin. Blocks.

    Raises:
        UsageError: A file can't be read, is empty or too long, or there are too many.
        StorageUnwritable: The home can't take it.
    """
    if len(paths) > MOST_FILES:
        raise UsageError(f"A message may have {MOST_FILES} files at most.")
    uploads, now = Uploads(settings.home), clock.now()
    files = []
    for path in paths:
        if str(path) == "-":
            files.append(uploads.add(_pieces(sys.stdin.buffer), name="stdin", now=now))
            continue
        try:
            if not path.expanduser().is_file():
                raise UsageError("there is no such file.")
            with path.expanduser().open("rb") as file:
                files.append(uploads.add(_pieces(file), name=path.name, now=now))
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
        except OSError as error:
            raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    return files


def named_in(text: str, cwd: Path) -> list[Path]:
    """The files that a message names as `@path` or `@"path with spaces"`. A word that names no file is only a word.

    Only files below `cwd`, and none that is hidden: a text that the user pastes may name others, such as keys.
    """
    found: dict[Path, None] = {}
    for quoted, word in _MENTION.findall(text):
        for name in (quoted,) if quoted else (word, word.rstrip(".,;:!?)")):
            path = (cwd / name).resolve()
            parts = path.relative_to(cwd.resolve()).parts if path.is_relative_to(cwd.resolve()) else (".",)
            if not any(part.startswith(".") for part in parts) and path.is_file():
                found[path] = None
                break
    return list(found)


def names_completing(mention: str, cwd: Path) -> list[str]:
    """What `@path` may become: of the folder that it names the entries that `named_in` takes; folders end with a slash.

    Blocks.
    """
    folder, slash, begin = mention.removeprefix("@").rpartition("/")
    place = (cwd / folder).resolve()
    if not place.is_relative_to(cwd.resolve()):
        return []
    try:
        entries = sorted((entry.name, entry.is_dir()) for entry in place.iterdir())
    except OSError:
        return []
    return [
        f"@{folder}{slash}{name}{'/' if is_folder else ''}"
        for name, is_folder in entries
        if name.startswith(begin) and not name.startswith(".") and not re.search(r"\s", name)
    ][:_MOST_NAMES]


def keep(settings: Settings, contents: Sequence[tuple[str, bytes]]) -> list[FileBlock]:
    """Keep files that came as names and bytes for the next message. Blocks.

    Raises:
        UsageError: One is empty or too long.
        StorageUnwritable: The home can't take it.
    """
    uploads, now = Uploads(settings.home), SystemClock().now()
    return [uploads.add([content], name=name, now=now) for name, content in contents]


def files_named(settings: Settings, text: str, cwd: Path) -> list[FileBlock]:
    """Attach the files that a message names; see `named_in` and `attach`."""
    return attach(settings, named_in(text, cwd), clock=SystemClock())


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    return iter(partial(file.read, _PIECE), b"")
