"""Which folders boxed programs have to see so that the programs on PATH work, wherever these are installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from satchel.tools.boxed.notes import is_hidden
from satchel.tools.paths import is_below

_PARTS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "include", "pyvenv.cfg")
"""What an installed program consists of. Beside it, in the same folder, programs keep settings and logins."""
_LIBRARIES: Final = frozenset(("lib", "lib64", "libexec", "pyvenv.cfg"))
_SHIMS: Final = "shims"
"""Programs that look for others in the folder around them, each version manager in an order of its own."""
_SHARED: Final = (".local", ".config", ".cache")
"""In a home: folders of many programs, so that one of them says nothing about the others."""
_MOST_FOLDERS, _MOST_ENTRIES = 64, 2_000


def programs_on_path(path: str, home: str) -> tuple[str, ...]:
    """The real paths of folders and files that programs on PATH need and that lie in no folder of the system.

    It is derived from what PATH names alone: each folder, what its links lead to, and the other parts of a program that
    is installed in a folder of its own (`PREFIX/bin` beside `PREFIX/lib`). `path` is the variable; neither the user's
    `home`, a real path, nor a folder above it is ever among them.
    """
    found: dict[str, None] = {}
    waiting = [Path(entry) for entry in path.split(":") if entry.startswith("/")]
    seen: set[Path] = set()
    while waiting and len(seen) < _MOST_FOLDERS:
        folder = waiting.pop(0).resolve()
        if (
            folder in seen
            or not is_hidden(str(folder), home=home)
            or _is_shared(folder, home)
            or not folder.is_dir()
        ):
            continue
        seen.add(folder)
        found |= dict.fromkeys(str(piece) for piece in _installed(folder, home))
        for target in _links(folder):
            if not is_hidden(str(target), home=home) or is_below(str(target), tuple(found)):
                continue
            if _prefix(target.parent, home) is not None:
                waiting.append(target.parent)
            elif target.is_file() and os.access(target, os.X_OK):
                found[str(target)] = None
    return tuple(each for each in found if not any(each != top and is_below(each, [top]) for top in found))


def _installed(folder: Path, home: str) -> list[Path]:
    prefix = _prefix(folder, home)
    if prefix is not None:
        return [part.resolve() for name in _PARTS if (part := prefix / name).exists()]
    return [folder.parent if folder.name == _SHIMS and not _is_shared(folder.parent, home) else folder]


def _prefix(folder: Path, home: str) -> Path | None:
    """The folder in which a program is installed alone, if this is its `bin`."""
    prefix = folder.parent
    if (
        folder.name not in ("bin", "sbin")
        or _is_shared(prefix, home)
        or not is_hidden(str(prefix), home=home)
    ):
        return None
    return prefix if any((prefix / name).exists() for name in _LIBRARIES) else None


def _is_shared(folder: Path, home: str) -> bool:
    """Whether a folder holds all kinds of things: a home, one above it, or one that many programs use."""
    return is_below(home, [str(folder)]) or folder in [Path(home, name) for name in _SHARED]


def _links(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())[:_MOST_ENTRIES]
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            yield entry.resolve()
