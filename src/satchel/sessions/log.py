"""Records as lines of a JSONL file: written in one piece, read back whatever state the file is in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satchel.errors import StorageError, UsageError
from satchel.events import Record, event_to_json, record_from_json

__all__ = ["Line", "Log", "Skipped", "decode_line", "encode_records", "read_lines", "read_log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A line that could not be read, and why. `line` counts from 1."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a log: where it stands in the file, and its record or the reason why there is none."""

    number: int
    start: int
    raw: bytes
    record: Record | None
    reason: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether its writing was finished: it ends with a newline, or holds a whole record without it."""
        return self.raw.endswith(b"\n") or self.record is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a log file holds.

    Attributes:
        records: In order. Their `seq` has a gap where a line was skipped, nowhere else.
        skipped: Lines in the middle that are broken or of a type that this version does not know.
        is_torn: The last line was never finished; it was not acknowledged and counts as not there.
        length: Bytes up to the end of the last whole line.
        ends_line: The last whole line ends with a newline.
        last_seq: The highest number that was given, 0 in an empty log.
    """

    session_id: str
    path: Path
    records: tuple[Record, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    is_torn: bool = False
    length: int = 0
    ends_line: bool = True
    last_seq: int = 0


def _plain(value: Any) -> Any:
    """JSON data for what is not: other mappings become objects, everything else its text."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, (set, frozenset)) else str(value)


# Made once: `json.dumps` would make an encoder for every line.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode
_encode_ascii = json.JSONEncoder(separators=(",", ":"), default=_plain).encode


def encode_records(records: Sequence[Record]) -> bytes:
    """The lines of the records, each ending with a newline.

    Raises:
        UsageError: An event holds itself, or is nested too deeply for JSON (about 900 levels).
    """
    lines = []
    for record in records:
        value = {"seq": record.seq, "at": record.at.isoformat(), **event_to_json(record.event)}
        try:
            text = _encode(value)
        except (RecursionError, ValueError) as error:
            raise UsageError(
                f"An event of type {record.event.type!r} can't be recorded: {error}. "
                "Its data is nested too deeply."
            ) from error
        try:
            lines.append(text.encode())
        except UnicodeEncodeError:
            # A lone surrogate has no UTF-8; as an escape it survives.
            lines.append(_encode_ascii(value).encode("ascii"))
    lines.append(b"")
    return b"\n".join(lines)


def decode_line(raw: bytes) -> tuple[Record | None, str]:
    """The record of a line, or None and the reason."""
    try:
        return record_from_json(json.loads(raw)), ""
    except RecursionError:
        return None, "nested too deeply"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return None, f"{type(error).__name__}: {error}"[:200]


def read_lines(path: Path, *, start: int = 0, number: int = 1) -> Iterator[Line]:
    """Read the lines from byte `start` on, which is the beginning of line `number`. Empty lines are left out.

    Raises:
        StorageError: The file can't be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            for raw in file:
                if raw.strip():
                    record, reason = decode_line(raw)
                    yield Line(number=number, start=start, raw=raw, record=record, reason=reason)
                start += len(raw)
                number += 1
    except OSError as error:
        raise StorageError(f"The session log {path} can't be read: {error.strerror}.") from error


def read_log(path: Path, session_id: str) -> Log:
    """Read a whole log.

    Raises:
        StorageError: The file can't be read.
    """
    records: list[Record] = []
    skipped: list[Skipped] = []
    length = last_seq = 0
    ends_line, is_torn = True, False
    for line in read_lines(path):
        if not line.is_whole:
            is_torn = True
            break
        length = line.start + len(line.raw)
        ends_line = line.raw.endswith(b"\n")
        if line.record is None:
            skipped.append(Skipped(line=line.number, reason=line.reason))
            # Its number was given to someone, known or not.
            last_seq += 1
        else:
            records.append(line.record)
            last_seq = max(last_seq + 1, line.record.seq)
    return Log(
        session_id=session_id,
        path=path,
        records=tuple(records),
        skipped=tuple(skipped),
        is_torn=is_torn,
        length=length,
        ends_line=ends_line,
        last_seq=last_seq,
    )
