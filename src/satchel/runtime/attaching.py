"""Attaching files of this machine to a message: by their paths, or as `@path` in the user's words."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote

from satchel.clock import Clock, SystemClock
from satchel.config import Settings
from satchel.errors import UsageError
from satchel.messages import FileBlock
from satchel.sessions.attachments import MOST_FILES, Uploads
from satchel.tools.builtin.tree import walk

_PIECE: Final = 1 << 20
_MOST_NAMES: Final = 200
_MOST_WALKED: Final = 20_000
"""Files and folders, so that a key is followed by its menu also in a large tree."""
_MENTION: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')


def attach(
    settings: Settings, paths: Sequence[Path], *, clock: Clock, follow: bool = True
) -> list[FileBlock]:
    """Keep files for the next message; "-" is stdin. Blocks. Without `follow`, a path that leads through a link is
    refused: a command in a box may have put it there after the path was looked at.

    Raises:
        UsageError: A file can't be read, is empty or too long, or there are too many.
        StorageUnwritable: The home can't take it.
    """
    if len(paths) > MOST_FILES:
        raise UsageError(f"A message may have {MOST_FILES} files at most.")
    now = clock.now()
    with _all_or_none(Uploads(settings.home)) as (uploads, files):
        for path in paths:
            if str(path) == "-":
                files.append(uploads.add(_pieces(sys.stdin.buffer), name="stdin", now=now))
                continue
            try:
                if not path.expanduser().is_file():
                    raise UsageError("there is no such file.")
                with path.expanduser().open("rb") as file:
                    if not follow and not _is_at(file, path):
                        raise UsageError("it was replaced by a link.")
                    files.append(uploads.add(_pieces(file), name=path.name, now=now))
            except UsageError as error:
                raise UsageError(f"{path}: {error}") from error
            except OSError as error:
                raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    return files


@contextmanager
def _all_or_none(uploads: Uploads) -> Iterator[tuple[Uploads, list[FileBlock]]]:
    """A list for what is added; if that fails, none of it is kept."""
    files: list[FileBlock] = []
    try:
        yield uploads, files
    except BaseException:
        uploads.drop(files)
        raise


def dropped_in(pasted: str, *, draft: str) -> list[Path]:
    """The files that a paste into a message attaches. A terminal pastes the paths of what is dragged into it: on one
    line, plain, quoted for a shell, or as addresses.

    Every other pasted text attaches none: one with paths among its words, one that names a hidden file or one in a
    hidden folder, such as keys, and one that goes on with a word, a command or a line for the shell. Blocks. `draft` is
    what has been written of the message.

    Returns:
        Paths without links.
    """
    if not pasted.startswith(("/", "'", '"', "file:///")) or "\n" in pasted.strip():
        return []
    if draft.lstrip().startswith(("!", "/")) or (draft and not draft[-1].isspace()):
        return []
    try:
        for words in ([pasted.strip()], shlex.split(pasted)):
            paths = [
                Path(unquote(word.removeprefix("file://")) if ":" in word[:5] else word) for word in words
            ]
            if all(path.is_absolute() and _is_shown(path) and '"' not in str(path) for path in paths):
                return [path.resolve() for path in paths]
    except (OSError, ValueError):  # too long, a NUL, or a quotation mark alone
        pass
    return []


def mentions_of(paths: Sequence[Path]) -> str:
    """The words that name the paths in a message; see `named_in`."""
    return " ".join(f'@"{path}"' if re.search(r"\s", str(path)) else f"@{path}" for path in paths)


def named_in(text: str, cwd: Path, *, given: Collection[Path] = ()) -> list[Path]:
    """The files that a message names as `@path` or `@"path with spaces"`. A word that names no file is only a word.

    Only files below `cwd`, and none that is hidden: a text that the user pastes may name others, such as keys. Those of
    `given` may be anywhere.

    Args:
        text: The message.
        cwd: What paths are relative to.
        given: What the user dragged here or pasted as a picture, without links. What has become one is not theirs.

    Returns:
        Paths without links.
    """
    found: dict[Path, None] = {}
    for quoted, word in _MENTION.findall(text):
        for name in (quoted,) if quoted else (word, word.rstrip(".,;:!?)")):
            path = cwd / name
            if (path in given and path.is_file() and path.resolve() == path) or _is_taken(path, cwd):
                found[path.resolve()] = None
                break
    return list(found)


def names_completing(mention: str, cwd: Path) -> list[str]:
    """What `@path` may become: of the folder that it names the entries that `named_in` takes; folders end with a slash.
    Where nothing begins so, the files anywhere below whose names have it, in any case. Blocks.
    """
    folder, slash, begin = mention.removeprefix("@").rpartition("/")
    place = _taken(cwd / f"{folder}{slash}", cwd)
    try:
        names = sorted(entry.name for entry in place.iterdir()) if place else []
    except OSError:
        return []
    found = (
        f"@{folder}{slash}{name}{'/' if path.is_dir() else ''}"
        for name in names
        if name.startswith(begin) and not name.startswith(".") and not re.search(r"\s", name)
        if (path := _taken(cwd / f"{folder}{slash}{name}", cwd)) and (path.is_dir() or path.is_file())
    )
    return list(islice(found, _MOST_NAMES)) or (_named_like(begin, cwd) if begin and not slash else [])


def _named_like(part: str, cwd: Path) -> list[str]:
    part = part.casefold()
    below = islice(walk(cwd.resolve(), skips=lambda name: name.startswith(".")), _MOST_WALKED)
    found = [
        (not name.startswith(part), len(one.path), f"@{one.path}")
        for one in below
        if not one.is_folder and part in (name := one.path.rpartition("/")[2].casefold())
        if not re.search(r"\s", one.path)
    ]
    return [mention for *_, mention in sorted(found)[:_MOST_NAMES]]


def _taken(path: Path, cwd: Path) -> Path | None:
    """Where a path leads that is below `cwd` and not hidden; None for others, and where nothing is."""
    try:
        found, root = path.resolve(), cwd.resolve()
        found.stat()
    except (OSError, RuntimeError, ValueError):  # too long, a link to itself, a NUL
        return None
    is_below = found.is_relative_to(root)
    return None if not is_below or any(at.startswith(".") for at in found.relative_to(root).parts) else found


def _is_taken(path: Path, cwd: Path) -> bool:
    found = _taken(path, cwd)
    return found is not None and found.is_file()


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is the one at a path, and no link leads there. Where the kernel tells the name of an open
    file, no exchange of folders in between is missed.
    """
    name = Path(f"/proc/self/fd/{file.fileno()}")
    if name.is_symlink():
        return name.readlink() == path
    return path.resolve() == path and os.path.samestat(os.fstat(file.fileno()), path.stat())


def _is_shown(path: Path) -> bool:
    found = path.resolve()
    return found.is_file() and not any(at.startswith(".") for at in (*path.parts, *found.parts))


def keep(settings: Settings, contents: Sequence[tuple[str, bytes]]) -> list[FileBlock]:
    """Keep files that came as names and bytes for the next message. Blocks.

    Raises:
        UsageError: One is empty or too long.
        StorageUnwritable: The home can't take it.
    """
    now = SystemClock().now()
    with _all_or_none(Uploads(settings.home)) as (uploads, files):
        files += (uploads.add([content], name=name, now=now) for name, content in contents)
    return files


def files_named(settings: Settings, text: str, cwd: Path, given: Collection[Path]) -> list[FileBlock]:
    """Attach the files that a message names; see `named_in` and `attach`."""
    return attach(settings, named_in(text, cwd, given=given), clock=SystemClock(), follow=False)


def remove_sent(text: str, pictures: Collection[Path]) -> None:
    """Remove the pictures of the clipboard that a message named, once it is sent. Blocks."""
    for path in pictures:
        if str(path) in text:
            with suppress(OSError):
                path.unlink()


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    return iter(partial(file.read, _PIECE), b"")
