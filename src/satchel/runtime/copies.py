"""Records where backups and exports were written, so that forgetting can name the copies that it does not change."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from satchel.clock import Clock

_LIST: Final = "copies.jsonl"

_KINDS = ("*.backup", "*.backup.part-*", "*.damaged-*")
"""The copies that Satchel makes beside a database: before an upgrade, also if it was killed meanwhile, and of a damaged
one."""


def note_copy(home: Path, copy: Path, *, clock: Clock) -> None:
    """Record in a home that a copy of its memories was written: a backup or an export."""
    if copy.absolute() in _noted(home):
        return
    line = json.dumps({"file": str(copy.absolute()), "at": clock.now().isoformat()}) + "\n"
    # A copy without this record is still good, and in a home that is not writable nothing can be forgotten either.
    with suppress(OSError):
        descriptor = os.open(home / _LIST, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(line)


def copies_of(home: Path, *folders: Path) -> list[Path]:
    """Existing files and folders that may contain a home's memories. Beside the recorded ones, these are `backups`,
    what restores have kept, and `folders` with further backups and databases that were set aside.
    """
    found = {path for path in _noted(home) if path.exists()}
    for folder in (home, home / "backups", *folders):
        found |= {path for kind in _KINDS for path in folder.glob(kind) if path.is_file()}
    if (home / "backups").is_dir():
        found |= {path for path in (home / "backups").iterdir() if path.is_file()}
    found |= set(home.parent.glob(f"{home.name}.before-restore-*"))
    return sorted(found)


def _noted(home: Path) -> set[Path]:
    """The recorded paths; a line that a crash has cut is ignored."""
    try:
        lines = (home / _LIST).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    found = set()
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            found.add(Path(json.loads(line)["file"]))
    return found
