"""Copies of what is remembered outside the store: where they were written, so that forgetting can name them."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from satchel.clock import Clock

__all__ = ["copies_of", "note_copy"]

_LIST: Final = "copies.jsonl"


def note_copy(home: Path, copy: Path, *, clock: Clock) -> None:
    """Keep in a home that a copy of what it remembers was written: a backup, or an export."""
    if copy.absolute() in _noted(home):
        return
    line = json.dumps({"file": str(copy.absolute()), "at": clock.now().isoformat()}) + "\n"
    # The copy is good without the note, and where the home can't be written, nothing can be forgotten either.
    with suppress(OSError):
        descriptor = os.open(home / _LIST, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(line)


def copies_of(home: Path, *folders: Path) -> list[Path]:
    """Files and folders that hold what a home remembered once, and are still there.

    Args:
        home: SATCHEL_HOME: what was noted in it, what is in its `backups`, and what a restore put aside beside it.
        folders: Where copies from before a migration lie, besides the home itself.
    """
    found = {path for path in _noted(home) if path.exists()}
    for folder in (home, home / "backups", *folders):
        found |= {path for path in folder.glob("*.backup") if path.is_file()}
    if (home / "backups").is_dir():
        found |= {path for path in (home / "backups").iterdir() if path.is_file()}
    found |= set(home.parent.glob(f"{home.name}.before-restore-*"))
    return sorted(found)


def _noted(home: Path) -> set[Path]:
    """What the list names; lines that were cut by a crash name nothing."""
    try:
        lines = (home / _LIST).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    found = set()
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            found.add(Path(json.loads(line)["file"]))
    return found
