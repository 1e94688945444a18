"""The hooks' files in SATCHEL_HOME/agents: what each conversation was shown, and the queue for capture.

Each hook is a new process, so everything is in small files: one for each conversation, replaced as a
whole; and the queue, one file for each transcript that has grown, or for each message of an agent that keeps
no transcript. A file is removed from the queue after its words are in memory; capturing it twice changes nothing.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from satchel.config.home import ensure_home, replacing
from satchel.errors import StorageUnwritable

_MOST_BYTES: Final = 1 << 20
_MOST_SHOWN: Final = 1_000
"""The most ids that are kept. A conversation that was shown more has been compacted since."""
_MOST_QUEUED: Final = 10_000
"""The most files that one run reads."""


class AgentConversation(NamedTuple):
    """The record of a conversation of another agent.

    Attributes:
        key: Its name in memory, such as "claude-code:3f1c…".
        has_standing: Whether it was shown the profile.
        turn: The number of prompts, where the agent keeps no transcript.
    """

    key: str
    shown: tuple[str, ...] = ()
    has_standing: bool = False
    turn: int = 0


class Queued(NamedTuple):
    """An entry of the queue.

    Attributes:
        stamp: Of that file when it was read: a newer one is not removed with it.
        key: The conversation's name in memory.
        dialect: Whose it is.
        turn: Of what was said; `position` is its place in the turn.
        role: "user" or "assistant".
        text: What was said, without secrets and private parts; "" with a transcript.
        said_at: ISO 8601.
    """

    path: Path
    stamp: int
    key: str
    dialect: str
    transcript: str = ""
    cwd: str = ""
    turn: int = 0
    position: int = 0
    role: str = "user"
    text: str = ""
    said_at: str = ""


def read_conversation(home: Path, key: str) -> AgentConversation:
    """Read the record of a conversation; an empty one if its file is missing or damaged."""
    found = _read(_conversation_file(home, key))
    if found is None or found.get("key") != key:
        return AgentConversation(key)
    shown, turn = found.get("shown"), found.get("turn")
    return AgentConversation(
        key,
        tuple(id for id in shown if isinstance(id, str)) if isinstance(shown, list) else (),
        found.get("has_standing") is True,
        turn if isinstance(turn, int) and turn >= 0 else 0,
    )


def write_conversation(home: Path, known: AgentConversation) -> None:
    """Write the record of a conversation.

    Raises:
        StorageUnwritable: The file can't be written.
    """
    shown = list(known.shown[-_MOST_SHOWN:])
    _write(_conversation_file(home, known.key), {**known._asdict(), "shown": shown})


def queue(home: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Put something into the queue; an entry of the same name is replaced.

    Raises:
        StorageUnwritable: The file can't be written.
    """
    _write(home / "agents" / "queue" / f"{_file_name(name)}.json", entry, durable=True)


def has_queue(home: Path) -> bool:
    """Whether the queue has entries."""
    return next(_queue_files(home), None) is not None


def queued(home: Path) -> Sequence[Queued]:
    """The entries of the queue, oldest first. Unusable files are removed."""
    found: list[Queued] = []
    for path in _queue_files(home):
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            continue
        one = _queued(path, stamp)
        if one is None:
            with suppress(OSError):
                path.unlink()
        else:
            found.append(one)
        if len(found) >= _MOST_QUEUED:
            break
    return sorted(found, key=lambda one: (one.stamp, one.path.name))


def _queued(path: Path, stamp: int) -> Queued | None:
    entry = _read(path)
    if entry is None or not entry.get("key") or not (entry.get("transcript") or entry.get("text")):
        return None

    def text(name: str) -> str:
        value = entry.get(name)
        return value if isinstance(value, str) else ""

    def number(name: str) -> int:
        value = entry.get(name)
        return value if isinstance(value, int) and 0 <= value < 1 << 40 else 0

    return Queued(
        path=path,
        stamp=stamp,
        key=text("key"),
        dialect=text("dialect"),
        transcript=text("transcript"),
        cwd=text("cwd"),
        turn=number("turn"),
        position=number("position"),
        role=text("role") or "user",
        text=text("text"),
        said_at=text("said_at"),
    )


def _queue_files(home: Path) -> Iterator[Path]:
    try:
        with os.scandir(home / "agents" / "queue") as entries:
            for entry in entries:
                if entry.name.endswith(".json") and entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)
    except OSError:
        return


def _conversation_file(home: Path, key: str) -> Path:
    return home / "agents" / "conversations" / f"{_file_name(key)}.json"


def _file_name(name: str) -> str:
    """A file name for a key. Two keys share one with a chance of one in four billion."""
    plain = re.sub(r"[^A-Za-z0-9-]+", "-", name)[:80].strip("-")
    return f"{plain}-{zlib.crc32(name.encode('utf-8', 'replace')):08x}"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        found = json.loads(raw) if len(raw) <= _MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, content: Mapping[str, Any], *, durable: bool = False) -> None:
    """Replace a file: readers see the old content or the new one; `durable` also after a power failure."""
    try:
        ensure_home(path.parent)
        with replacing(path, durable=durable) as file:
            file.write(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
    except OSError as error:
        raise StorageUnwritable(f"{path} could not be written: {error.strerror}.") from error
