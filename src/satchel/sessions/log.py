"""Records as lines of a JSONL file, which can be read back whatever state the file is in."""

from __future__ import annotations

import gzip
import json
import os
import re
import time
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import IO, Any

from satchel.errors import StorageError, UsageError
from satchel.events import Record, event_to_json, record_from_json

PAGE_BYTES = 4_000_000
"""Bytes of lines that one call of `read_records` decodes, at most one line more: about 50 ms of work."""
_GZIP = b"\x1f\x8b"
"""How a compressed log begins (RFC 1952). A line of a plain one begins with a brace."""
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a compressed log raises that was cut or changed. What stands before the damage is read."""
_MOST_SEQ = 10**15
"""No log has so many records. Satchel did not write a line with a greater number."""
_SEQ = re.compile(rb'\{"seq":\s*(\d{1,18}),')
"""Every line that Satchel writes begins like this, so the number can be read without decoding the line."""
_AT = re.compile(_SEQ.pattern + rb'\s*"at":\s*"([^"]+)"')
_TAIL = 1 << 14
"""Bytes at the end of a log in which its last line mostly begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A line that could not be read, and why. `line` counts from 1."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a log: where it begins and ends, and its record or the reason why it has none.

    The places are bytes of a file, or of rows the numbers before and of the row.
    """

    number: int
    start: int
    end: int
    raw: bytes
    record: Record | None
    reason: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the line was written to its end: it has a newline, or a complete record without one."""
        return self.raw.endswith(b"\n") or self.record is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What a log file holds.

    Attributes:
        records: In order. Their numbers have gaps only where lines were skipped.
        skipped: Lines that are broken, or whose event type is unknown to this version.
        is_torn: The last line is incomplete. It was never acknowledged and is ignored.
        length: The end of the last complete line, in bytes.
        ends_line: The last complete line has a newline.
        last_seq: The highest number in use; 0 in an empty log.
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
    """JSON data for a value unknown to the encoder: mappings become objects, sets arrays, anything else its text."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, (set, frozenset)) else str(value)


# Created once: with these options `json.dumps` would create an encoder for every line.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode
_encode_ascii = json.JSONEncoder(separators=(",", ":"), default=_plain).encode


def encode_records(records: Sequence[Record]) -> bytes:
    """Encode records as lines, each with a newline.

    Raises:
        UsageError: An event contains itself, or is nested too deeply for JSON (about 900 levels).
    """
    lines = []
    for record in records:
        try:
            lines.append(
                encode_line({"seq": record.seq, "at": record.at.isoformat(), **event_to_json(record.event)})
            )
        except (RecursionError, ValueError) as error:
            raise UsageError(
                f"An event of type {record.event.type!r} can't be recorded: {error}. "
                "Its data is nested too deeply."
            ) from error
    return b"".join(lines)


def encode_line(value: Mapping[str, Any]) -> bytes:
    """A record's JSON as a line."""
    try:
        return _encode(value).encode() + b"\n"
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form, but survives as an escape.
        return _encode_ascii(value).encode("ascii") + b"\n"


def decode_line(raw: bytes) -> tuple[Record | None, str]:
    """The record of a line; or None, and the reason."""
    try:
        record = record_from_json(json.loads(raw))
        if type(record.seq) is not int or not 0 < record.seq < _MOST_SEQ:
            return None, "its number is not that of a record"
        return record, ""
    except RecursionError:
        return None, "nested too deeply"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return None, f"{type(error).__name__}: {error}"[:200]


class Pace:
    """Lets other threads run while this one decodes a log.

    A thread that returns from the disk or the network waits up to 5 ms (`sys.getswitchinterval`) for a thread that
    computes, and a turn returns dozens of times. Therefore the decoding thread naps after each millisecond of work. If
    a nap takes much longer than asked for, other threads have work, and it sleeps longer.
    """

    _WORK_S = 0.001
    _NAP_S = 0.0001

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def __call__(self) -> None:
        """Nap if it is time to."""
        now = time.perf_counter()
        if now - self._began < self._WORK_S:
            return
        time.sleep(self._NAP_S)
        woke = time.perf_counter()
        if woke - now > 5 * self._NAP_S:
            time.sleep(2 * self._WORK_S)
            woke = time.perf_counter()
        self._began = woke


def read_lines(path: Path, *, start: int = 0, number: int = 1) -> Iterator[LogLine]:
    """Read lines, beginning at byte `start`, where line `number` begins. Empty lines are left out.

    Raises:
        StorageError: The file can't be read.
    """
    for raw in raw_lines(path, start=start):
        if raw.strip():
            record, reason = decode_line(raw)
            end = start + len(raw)
            yield LogLine(number=number, start=start, end=end, raw=raw, record=record, reason=reason)
        start += len(raw)
        number += 1


def is_compressed(path: Path) -> bool:
    """Whether a log is compressed; see `compressing`. One that can't be read is not."""
    try:
        with path.open("rb") as file:
            return file.read(len(_GZIP)) == _GZIP
    except OSError:
        return False


def open_log(path: Path) -> IO[bytes] | gzip.GzipFile:
    """Open a log, compressed or not, to read its lines. Positions in it are those of the plain log.

    Raises:
        OSError: It can't be opened.
    """
    file = path.open("rb")
    if file.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
        return file
    file.close()
    # Opened anew, because a GzipFile closes only a file that it has opened itself.
    return gzip.open(path)


def raw_lines(path: Path, *, start: int = 0) -> Iterator[bytes]:
    """The lines of a log as they are, empty ones too, beginning at byte `start`. For the damaged rest of a compressed
    log there is one line that says so, and is no record.

    Raises:
        StorageError: The file can't be read.
    """
    try:
        with open_log(path) as file:
            file.seek(start)
            pace = Pace()
            for raw in file:
                pace()
                yield raw
    except _DAMAGED as error:
        yield f"The rest of the compressed log can't be read: {error}\n".encode()
    except OSError as error:
        raise _unreadable(path, error) from error


def newest_at(path: Path) -> datetime | None:
    """The time of a log's last line, read from its end; None if there is none, or it doesn't begin as Satchel's do. A
    compressed log is read to its end, and not decoded.
    """
    try:
        with open_log(path) as file:
            if isinstance(file, gzip.GzipFile):
                last = b"".join(deque(file, maxlen=1))
            else:
                end, size = file.seek(0, os.SEEK_END), _TAIL
                while True:
                    file.seek(-min(size, end), os.SEEK_END)
                    _, newline, last = file.read().rstrip().rpartition(b"\n")
                    if newline or size >= end:
                        break
                    size *= 8
        found = _AT.match(last)
        at = datetime.fromisoformat(found[2].decode()) if found else None
        return at if at is not None and at.tzinfo is not None else None
    except (OSError, ValueError, *_DAMAGED):
        return None


class Offsets:
    """The positions of some records in a log's file, so that reading can begin close to any number.

    There is a mark about every 64 KB: the number of a record, and the byte at which its line begins. Marks are checked
    against the file before use, because another process may have rewritten the log. Threads may share an instance.
    """

    _STEP = 1 << 16

    def __init__(self) -> None:
        self._lock = Lock()
        self._marks: list[tuple[int, int]] = []

    def note(self, seq: int, start: int) -> None:
        """Note that the line of record `seq` begins at byte `start`; ignored close to an earlier mark."""
        with self._lock:
            if not self._marks or (start >= self._marks[-1][1] + self._STEP and seq > self._marks[-1][0]):
                self._marks.append((seq, start))

    def seek(self, file: IO[bytes] | gzip.GzipFile, seq: int) -> int:
        """Move `file` to the last known beginning of a line at or before record `seq`, and return the position."""
        with self._lock:
            found = bisect_right(self._marks, seq, key=lambda mark: mark[0])
            marked, start = self._marks[found - 1] if found else (0, 0)
            if start:
                file.seek(start - 1)
                before, line = file.read(1), file.readline(64)
                if before != b"\n" or _seq_of(line) != marked:
                    self._marks.clear()
                    start = 0
            file.seek(start)
            return start


def _seq_of(raw: bytes) -> int | None:
    """The number at the beginning of a line, or None."""
    found = _SEQ.match(raw)
    return int(found[1]) if found else None


def read_records(path: Path, *, after_seq: int, limit: int, offsets: Offsets) -> tuple[Record, ...]:
    """Read the records with numbers above `after_seq`, in order, without decoding the others. A missing file has none.
    Large records come fewer at a time than `limit`. Reading adds to `offsets`, the known positions in the file.

    Raises:
        StorageError: The file can't be read.
    """
    records: list[Record] = []
    size = 0
    try:
        with open_log(path) as file:
            start = offsets.seek(file, after_seq + 1)
            for raw in file:
                seq = _seq_of(raw)
                if seq is not None:
                    offsets.note(seq, start)
                start += len(raw)
                if seq is not None and seq <= after_seq:
                    continue
                record, _ = decode_line(raw)
                if record is None or record.seq <= after_seq:
                    continue
                records.append(record)
                size += len(raw)
                if len(records) >= limit or size >= PAGE_BYTES:
                    break
    except FileNotFoundError:
        return ()
    except _DAMAGED:
        pass
    except OSError as error:
        raise _unreadable(path, error) from error
    return tuple(records)


def _unreadable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"The session log {path} can't be read: {error.strerror or error}.")


def read_log(
    path: Path,
    session_id: str,
    *,
    offsets: Offsets | None = None,
    visit: Callable[[Record], object] | None = None,
) -> Log:
    """Read a whole log in a file; see `log_of`."""
    return log_of(read_lines(path), path, session_id, offsets=offsets, visit=visit)


def log_of(
    lines: Iterable[LogLine],
    path: Path,
    session_id: str,
    *,
    offsets: Offsets | None = None,
    visit: Callable[[Record], object] | None = None,
) -> Log:
    """What all lines of a log hold. With `visit`, which gets each record in order, `Log.records` stays empty, so that a
    large log is never in memory as a whole. Reading adds positions to `offsets`.

    Raises:
        StorageError: The file can't be read.
    """
    records: list[Record] = []
    take = visit or records.append
    skipped: list[Skipped] = []
    length = last_seq = 0
    ends_line, is_torn = True, False
    for line in lines:
        if not line.is_whole:
            is_torn = True
            break
        length = line.end
        ends_line = line.raw.endswith(b"\n")
        if line.record is None:
            skipped.append(Skipped(line=line.number, reason=line.reason))
            # The line was written with a number, even if it can no longer be read.
            last_seq += 1
        else:
            take(line.record)
            if offsets is not None:
                offsets.note(line.record.seq, line.start)
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
