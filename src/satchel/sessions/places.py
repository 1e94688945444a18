"""Where the log of a session lies: folders and file names below `SATCHEL_HOME/sessions`."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from pathlib import Path

__all__ = ["FORBIDDEN_IN_IDS", "bucket_name", "log_name", "session_id_of"]

FORBIDDEN_IN_IDS = re.compile(r"[^A-Za-z0-9-]")
"""An id is part of a file name, and `_` separates it from the time."""

_READABLE = 80
"""Characters of the path that are kept for people; with the digest far below the 255 bytes of a file name."""
_UNSAFE = re.compile(r"[^A-Za-z0-9.]+")


def bucket_name(cwd: str) -> str:
    """The folder name of a working directory: the end of its path for people, then a digest of all of it.

    The digest (40 bits of SHA-256 over the path's bytes) keeps `/a/b` and `/a-b` apart, and paths that hold
    newlines, lone surrogates, or more than 255 bytes are names like any other.
    """
    digest = hashlib.sha256(cwd.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    readable = _UNSAFE.sub("-", cwd)[-_READABLE:].strip("-.")
    return f"{readable or 'root'}-{digest}"


def log_name(started_at: datetime, session_id: str) -> str:
    """The file name of a session that started at that local time (DESIGN 3.1)."""
    return f"{started_at:%Y-%m-%d_%H%M%S}_{session_id}.jsonl"


def session_id_of(path: Path) -> str | None:
    """The id in a log's file name, or None where it is no such name."""
    parts = path.name.removesuffix(".jsonl").split("_", 2)
    if path.suffix != ".jsonl" or len(parts) != 3 or not parts[2] or FORBIDDEN_IN_IDS.search(parts[2]):
        return None
    return parts[2]
