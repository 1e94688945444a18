"""The folders and file names of session logs, below `SATCHEL_HOME/sessions`."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from pathlib import Path

FORBIDDEN_IN_IDS = re.compile(r"[^A-Za-z0-9:-]")
"""An id is part of a file name, where `_` separates it from the time."""

_READABLE = 80
"""Characters of the path that are kept for people. With the digest, the name stays far below the limit of 255 bytes."""
_UNSAFE = re.compile(r"[^A-Za-z0-9.]+")


def bucket_name(cwd: str) -> str:
    """The folder name for a working directory: the end of its path, for people, and a digest of the whole path.

    The digest, 40 bits of SHA-256 over the path's bytes, tells `/a/b` from `/a-b`, and makes a valid name of paths with
    newlines, lone surrogates, or more than 255 bytes.
    """
    digest = hashlib.sha256(cwd.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    readable = _UNSAFE.sub("-", cwd)[-_READABLE:].strip("-.")
    return f"{readable or 'root'}-{digest}"


def log_name(started_at: datetime, session_id: str) -> str:
    """The file name of a session that started at this local time (DESIGN 3.1)."""
    return f"{started_at:%Y-%m-%d_%H%M%S}_{session_id}.jsonl"


def session_id_of(path: Path) -> str | None:
    """The id in the file name of a log; None for other files."""
    parts = path.name.removesuffix(".jsonl").split("_", 2)
    if path.suffix != ".jsonl" or len(parts) != 3 or not parts[2] or FORBIDDEN_IN_IDS.search(parts[2]):
        return None
    return parts[2]


def beside(folder: Path, place: str) -> Path:
    """A path that a log names, if it is in the folder beside it: on another machine the home may have another path."""
    _, found, rest = place.rpartition(f"/{folder.name}/")
    return folder / rest if found else Path(place)
