"""What a session has seen of files, so that no file is overwritten that has changed since."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from satchel.errors import UsageError
from satchel.tools.builtin.fence import Place, describe_kind
from satchel.tools.port import ToolContext

STATE_KEY = "file.seen"
WHOLE_BYTES = 10_485_760
"""Files up to this size are read completely, so that their content can be compared; larger ones are read in pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A file when it was last read or written.

    Attributes:
        digest: SHA-256 of its content, or "" if it is too large; then time and size are compared.
    """

    size: int
    mtime_ns: int
    inode: int
    digest: str = ""

    def is_still(self, other: Seen) -> bool:
        """Whether the file is unchanged in `other`; compared by content if both know it."""
        if self.digest and other.digest:
            return self.digest == other.digest
        return (self.size, self.mtime_ns, self.inode) == (other.size, other.mtime_ns, other.inode)


def look(state: os.stat_result, content: bytes | None) -> Seen:
    """A file's current state; `content` is all of it, or None if it was not read completely."""
    digest = "" if content is None else hashlib.sha256(content).hexdigest()
    return Seen(size=state.st_size, mtime_ns=state.st_mtime_ns, inode=state.st_ino, digest=digest)


def last_seen(context: ToolContext, path: Path) -> Seen | None:
    """What the session last saw of a file, or None."""
    found: Seen | None = context.state.get(STATE_KEY, {}).get(str(path))
    return found


def remember(context: ToolContext, path: Path, seen: Seen) -> None:
    """Remember a file's state as long as the session is open."""
    context.state.setdefault(STATE_KEY, {})[str(path)] = seen


def read_whole(place: Place) -> tuple[bytes, os.stat_result]:
    """A regular file's content and state.

    Raises:
        NotFound: There is no such file.
        UsageError: It is not a regular file, or too large to keep in memory.
        Refused: It can't be read.
    """
    handle = place.open()
    try:
        state = os.fstat(handle)
        if stat.S_ISDIR(state.st_mode):
            raise UsageError(f"{place.name} is a folder.")
        if not stat.S_ISREG(state.st_mode):
            raise UsageError(f"{place.name} is {describe_kind(state.st_mode)}, not a regular file.")
        if state.st_size > WHOLE_BYTES:
            raise UsageError(
                f"{place.name} has {state.st_size:,} bytes, too many to change with this tool. Use bash."
            )
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(), state
    except OSError as error:
        raise place.failure(error) from error
    finally:
        os.close(handle)
