"""Logs as files: one JSONL file for each session, below the sessions folder."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from sqlalchemy import Connection, select

from satchel.clock import Clock
from satchel.config.home import replacing, sync_folder
from satchel.config.locks import FileLock
from satchel.errors import StorageError
from satchel.events import Record
from satchel.sessions.compressing import Replaced, compress_log, expand_log
from satchel.sessions.journal import (
    FileJournal,
    Hold,
    Lanes,
    make_folder,
    unwritable,
    writer_lock,
    writer_of,
)
from satchel.sessions.log import (
    Log,
    LogLine,
    Offsets,
    encode_records,
    newest_at,
    raw_lines,
    read_lines,
    read_log,
    read_records,
)
from satchel.sessions.logs import LogChanges, LogFile, Logs, Rewriting, name_of
from satchel.sessions.places import session_id_of
from satchel.sessions.rewriting import locked_log, rewriting_path
from satchel.sessions.tables import session_folder, session_log

_SMALL_LOG = 1_000_000
"""Reading a log of up to this many bytes is short work: about 15 ms."""
_MOST_OFFSETS = 256
"""The number of logs for which positions of records are kept."""
_BUFFER = 1 << 20
_LOCKS = ".locks"
_UNREAD = ".unread"
"""Has an empty file for each session that was opened since the index has all of its log, named after the log's place,
so that a killed process leaves a whole one. An append to a log changes no folder, so nothing else tells which of many
were appended to. It is removed under the writer's lock."""


class FileLogs(Logs):
    """The logs below a folder."""

    def __init__(self, root: Path, *, clock: Clock, lanes: Lanes) -> None:
        self.root = root
        self._clock = clock
        self._lanes = lanes
        self._offsets: OrderedDict[Path, Offsets] = OrderedDict()
        self._known: dict[str, LogFile] = {}

    def paths(self, beginning: str = "") -> list[Path]:
        """See `Logs.paths`."""
        return sorted(
            (
                path
                for path in self.root.glob("*/*.jsonl")
                if (id := session_id_of(path)) is not None and id.startswith(beginning)
            ),
            key=lambda path: path.name,
            reverse=True,
        )

    def files(self) -> list[LogFile]:
        """See `Logs.files`."""
        files = _files_in(self.root, self._known)
        self._known = {str(file.path): file for file in files}
        return files

    def file(self, path: Path) -> LogFile | None:
        """See `Logs.file`."""
        return stat_log(self.root, path)

    def changes(self, connection: Connection) -> LogChanges:
        """See `Logs.changes`. Whatever replaces, adds or removes a log changes its folder."""
        noted = {row.name: row.mtime_ns for row in connection.execute(select(session_folder))}
        is_first = noted.pop("", None) is None
        folders = {
            entry.name: entry.stat().st_mtime_ns
            for entry in _entries(self.root)
            if entry.name not in (_LOCKS, _UNREAD) and entry.is_dir()
        }
        changed = {
            name: folders.get(name, 0)
            for name in folders.keys() | noted
            if folders.get(name) != noted.get(name)
        }
        places = set() if is_first else {self.root / _place(mark) for mark in self._unread()}
        for folder in () if is_first else changed:
            beginning = name_of(self.root, self.root / folder / "_")[:-1]
            known = {
                row.name: row.inode
                for row in connection.execute(
                    select(session_log.c.name, session_log.c.inode).where(
                        session_log.c.name.startswith(beginning, autoescape=True)
                    )
                )
            }
            for entry in _entries(self.root / folder):
                path = Path(entry.path)
                if (
                    entry.name.endswith(".jsonl")
                    and known.pop(name_of(self.root, path), None) != entry.inode()
                ):
                    places.add(path)
            places |= {self.root / name for name in known}
        files = {name_of(self.root, path): stat_log(self.root, path) for path in places}
        return LogChanges(files, changed, is_first)

    def indexed(self, files: Collection[LogFile]) -> None:
        """See `Logs.indexed`. What somebody has open stays noted."""
        states = {file.name: file for file in files}
        for mark in self._unread():
            with contextlib.suppress(OSError):  # the next one notes it
                path = self.root / _place(mark)
                lock = FileLock.take(self._lock_path(session_id_of(path) or ""), removes=True)
                if lock is None:
                    continue
                try:
                    there = stat_log(self.root, path)
                    if there is None or there == states.get(there.name):
                        (self.root / _UNREAD / mark).unlink(missing_ok=True)
                finally:
                    lock.release()

    def _unread(self) -> list[str]:
        """The names of the files for logs that were opened."""
        marks = [entry.name for entry in _entries(self.root / _UNREAD)]
        return [mark for mark in marks if session_id_of(Path(_place(mark)))]

    def _note_unread(self, path: Path) -> None:
        """Note that a log that is held may grow from now on."""
        mark = self.root / _UNREAD / f"{path.parent.name}@{path.stem}"
        try:
            make_folder(mark.parent)
            mark.touch(0o600)
        except OSError as error:
            raise unwritable(mark, error) from error

    def is_same(self, connection: Connection, file: LogFile) -> bool:
        """See `Logs.is_same`."""
        del connection
        try:
            return file.path.stat().st_ino == file.inode
        except OSError:
            return False

    def is_small(self, path: Path) -> bool:
        """See `Logs.is_small`."""
        try:
            return path.stat().st_size <= _SMALL_LOG
        except OSError:
            return True  # Reading it raises the error.

    def lines(self, path: Path, *, start: int = 0, number: int = 1) -> Iterator[LogLine]:
        """See `Logs.lines`."""
        return read_lines(path, start=start, number=number)

    def newest_at(self, path: Path) -> datetime | None:
        """See `Logs.newest_at`."""
        return newest_at(path)

    def records(self, path: Path, *, after_seq: int, limit: int) -> tuple[Record, ...]:
        """See `Logs.records`."""
        return read_records(path, after_seq=after_seq, limit=limit, offsets=self._offsets_of(path))

    def hold(self, session_id: str) -> FileLock:
        """See `Logs.hold`."""
        return writer_lock(self._lock_path(session_id), session_id=session_id)

    def writer(self, session_id: str, *, keeps: bool = False) -> int | None:
        """See `Logs.writer`."""
        del keeps
        return writer_of(self._lock_path(session_id))

    def begin(
        self, path: Path, session_id: str, hold: Hold, *, cwd: str, closed: Callable[[], object]
    ) -> FileJournal:
        """See `Logs.begin`."""
        self._note_unread(path)
        log = Log(session_id=session_id, path=path)
        return self._journal(log, hold, cwd=cwd, is_new=True, closed=closed)

    def resume(
        self,
        path: Path,
        session_id: str,
        hold: Hold,
        *,
        visit: Callable[[Record], object],
        costs: dict[str, float],
        closed: Callable[[], object],
    ) -> FileJournal:
        """See `Logs.resume`. What it costs is in the index."""
        del costs
        self._note_unread(path)
        log = read_log(path, session_id, offsets=self._offsets_of(path), visit=visit)
        if log.is_torn:  # Nothing may be appended to a torn last line.
            try:
                with path.open("r+b") as file:
                    file.truncate(log.length)
            except OSError as error:
                raise unwritable(path, error) from error
        return self._journal(log, hold, cwd="", is_new=False, closed=closed)

    def _journal(
        self,
        log: Log,
        hold: Hold,
        *,
        cwd: str,
        is_new: bool,
        closed: Callable[[], object],
    ) -> FileJournal:
        return FileJournal(
            log=log,
            cwd=cwd,
            lock=hold,
            clock=self._clock,
            lanes=self._lanes,
            is_new=is_new,
            offsets=self._offsets_of(log.path),
            closed=closed,
        )

    def create(self, path: Path, session_id: str, records: Sequence[Record]) -> None:
        """See `Logs.create`."""
        del session_id
        make_folder(path.parent)
        with replacing(path) as file:
            file.write(encode_records(records))
        sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        """See `Logs.remove`."""
        try:
            spill = path.with_suffix(".spill")
            if spill.is_dir() and not spill.is_symlink():
                shutil.rmtree(spill)
            rewriting_path(path).unlink(missing_ok=True)
            path.unlink()
            sync_folder(path.parent)
        except OSError as error:
            raise unwritable(path, error) from error

    def rewrite(self, path: Path, rewriting: Rewriting) -> None:
        """See `Logs.rewrite`."""
        temporary = rewriting_path(path)
        try:
            with contextlib.ExitStack() as stack:
                mode = stack.enter_context(locked_log(path))
                lines = rewriting(lambda: raw_lines(path))
                if lines is None:
                    return
                out = stack.enter_context(temporary.open("wb", buffering=_BUFFER))
                os.fchmod(out.fileno(), mode)
                out.writelines(lines)
                if rewriting.changed:
                    out.flush()
                    os.fsync(out.fileno())
                    temporary.replace(path)
                    sync_folder(path.parent)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def compress(self, path: Path) -> Replaced | None:
        """See `Logs.compress`."""
        return compress_log(path)

    def expand(self, path: Path) -> Replaced | None:
        """See `Logs.expand`."""
        return expand_log(path)

    def sweep(self, before_s: float) -> None:
        """See `Logs.sweep`. Opening a session again would remove its lock, but many are never opened.

        Only old ones go, because a session whose lock is held for this moment can't be opened by another process.
        """
        with contextlib.suppress(FileNotFoundError):
            for path in (self.root / _LOCKS).iterdir():
                if path.lstat().st_mtime < before_s and writer_of(path) is None:
                    with contextlib.suppress(StorageError):
                        writer_lock(path, session_id=path.name).release()

    def _lock_path(self, session_id: str) -> Path:
        return self.root / _LOCKS / session_id

    def _offsets_of(self, path: Path) -> Offsets:
        """The known positions in a log, shared by all readers and the writer in this process."""
        offsets = self._offsets.pop(path, None) or Offsets()
        self._offsets[path] = offsets
        if len(self._offsets) > _MOST_OFFSETS:
            self._offsets.popitem(last=False)
        return offsets


def _place(mark: str) -> str:
    """Where the log is that a file in `_UNREAD` names. Folders and logs have no "@" in their names."""
    return f"{mark.replace('@', '/', 1)}.jsonl"


def stat_log(root: Path, path: Path) -> LogFile | None:
    """The state of a log below the sessions folder; None if it was removed."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return LogFile(
        name_of(root, path), path, session_id_of(path) or "", stat.st_ino, stat.st_mtime_ns, stat.st_size
    )


def _files_in(root: Path, known: Mapping[str, LogFile] = MappingProxyType({})) -> list[LogFile]:
    """The states of all logs below the sessions folder, in descending order of their names. What has not changed since
    the states in `known`, by path, is taken from there, which takes a quarter of the time.
    """
    found: list[tuple[str, LogFile]] = []
    for folder in _entries(root):
        if not folder.is_dir():
            continue
        for entry in _entries(folder.path):
            if not entry.name.endswith(".jsonl"):
                continue
            file = known.get(entry.path)
            with contextlib.suppress(OSError):
                stat = entry.stat()
                if file is None or (file.inode, file.mtime_ns, file.size) != (
                    stat.st_ino,
                    stat.st_mtime_ns,
                    stat.st_size,
                ):
                    file = stat_log(root, Path(entry.path)) if session_id_of(Path(entry.name)) else None
                if file is not None:
                    found.append((entry.name, file))
    return [file for _, file in sorted(found, key=lambda each: each[0], reverse=True)]


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # it was removed, is no folder, or somebody else's
        return []
