"""The single writer of a session's log. What it has acknowledged survives whatever happens next.

A log in a file has three locks, each with one purpose. `.locks/<id>`, held while the journal is open, keeps a second
writer out and names the first. A short lock on the log itself, taken around every write, lets another process rewrite
the file to forget words. A lock in memory keeps the tasks of this process in order.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeAlias

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.config.home import sync_folder
from satchel.config.locks import FileLock, held
from satchel.errors import SessionInUse, StorageError, StorageUnwritable
from satchel.events import Event, Record, SessionEnd, SessionFiled, SessionStart, is_transient
from satchel.processes import has_ended
from satchel.sessions.log import Log, Offsets, encode_records, read_log, read_records
from satchel.sessions.rewriting import words_taken

OnForgotten: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[Event]]]
"""Gets the words that another writer has taken out of a log, and gives a batch of events without them."""

_HELD_ELSEWHERE = (errno.EWOULDBLOCK, errno.EACCES)
_GOING_S = 2.0


def unwritable(path: Path, error: OSError) -> StorageUnwritable:
    """The error for a path that can't be written, with advice."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "Free some space and try again; what was acknowledged before is safe."
    elif error.errno == errno.EROFS:
        advice = "The file system is read-only: set SATCHEL_HOME to a folder that can be written."
    else:
        advice = "Check the folder's owner and rights, or set SATCHEL_HOME to another folder."
    return StorageUnwritable(f"{path} can't be written: {error.strerror or error}. {advice}")


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner may enter, and its missing parents.

    Raises:
        StorageUnwritable: It can't be created.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_folder(folder.parent)
        make_folder(folder)
    except OSError as error:
        raise unwritable(folder, error) from error


def writer_lock(path: Path, *, session_id: str) -> FileLock:
    """Lock a session for the process that writes it. It blocks for at most `_GOING_S`, and only while the one that
    wrote it has just died: a process that is killed while it starts a program shares its locks with the new process for
    the few milliseconds until that executes the program. Or while a list notes that it has read the log, which takes
    less.

    Raises:
        SessionInUse: Another journal holds it; the message names its process.
        StorageUnwritable: The lock file can't be created.
    """
    make_folder(path.parent)
    give_up_s = time.monotonic() + _GOING_S
    while True:
        try:
            lock = FileLock.take(path, str(os.getpid()), removes=True)
        except OSError as error:
            raise unwritable(path, error) from error
        if lock is not None:
            return lock
        pid = held(path)
        is_going = not pid or (pid.isdecimal() and has_ended(int(pid)))
        if time.monotonic() > give_up_s or not is_going:
            raise _in_use(session_id, pid or "")
        time.sleep(_GOING_S / 100)


def _in_use(session_id: str, pid: str) -> SessionInUse:
    if pid == str(os.getpid()):
        return SessionInUse(f"Session {session_id} is already open in this process. Close it there first.")
    owner = f"process {pid}" if pid else "another process"
    return SessionInUse(
        f"Session {session_id} is open in {owner}. Close it there, or go on in a new session."
    )


def writer_of(lock: Path) -> int | None:
    """The id of the process that holds a writer's lock, or None."""
    pid = held(lock)
    return int(pid) if pid is not None and pid.isdecimal() else None


def _leads_to(path: Path, fd: int) -> bool:
    """Whether the path still leads to the open file."""
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev)


def _words_taken(before: int, after: int) -> tuple[str, ...]:
    """See `words_taken`, for two open files. Both stay open; appending does not depend on where reading ended."""
    with os.fdopen(before, "rb", closefd=False) as old, os.fdopen(after, "rb", closefd=False) as new:
        old.seek(0)
        new.seek(0)
        return words_taken(old, new)


def _sync(fd: int) -> None:
    if sys.platform == "darwin":
        # On macOS, fsync does not flush the drive's own cache.
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def _lane(threads: int) -> Callable[[], anyio.CapacityLimiter]:
    return lambda: anyio.CapacityLimiter(threads)


@dataclass(frozen=True, slots=True)
class Lanes:
    """How many of anyio's worker threads the sessions of a store may use at once. Idle threads end by themselves.

    Attributes:
        short: For calls that a turn waits for: syncing and closing a log, reading a page of it. They wait for the disk
            and use little processor time, so the sessions don't delay each other.
        long: For work on whole logs: lists, searches, rewriting, opening a large session. It needs processor time, and
            a Python process has one core of that.
    """

    short: anyio.CapacityLimiter = field(default_factory=_lane(32))
    long: anyio.CapacityLimiter = field(default_factory=_lane(2))


class Hold(Protocol):
    """The right to write a session's log."""

    def release(self) -> None:
        """Let another writer have it. May be called more than once."""


class Journal(ABC):
    """Appends the events of one open session to its log. `SessionStore.create` and `SessionStore.open` return one.

    Tasks may append at the same time; each batch is written whole. The first batch creates the log, so a session in
    which nothing happened leaves nothing behind.

    Attributes:
        path: The log's place in the sessions folder. There is a file if the logs of the home are files.
        chosen: See `SessionStore.note_chosen`.
    """

    session_id: str
    cwd: str
    path: Path
    chosen: str = ""
    _seq: int
    _lanes: Lanes
    _broken: StorageError | None = None
    _closed: Callable[[], object]

    @property
    def spill_dir(self) -> Path:
        """The folder for results that are too long for the log. It is deleted and redacted together with the log."""
        return self.path.with_suffix(".spill")

    @property
    def last_seq(self) -> int:
        """The number of the newest record; 0 before the first."""
        return self._seq

    async def records(self, after_seq: int = 0, limit: int = 1000) -> tuple[Record, ...]:
        """Read the records with numbers above `after_seq` from the log, in order.

        Args:
            after_seq: 0 starts at the first record.
            limit: The most to return. Large records come fewer at a time; an empty result means that there are no more.

        Raises:
            StorageError: The log can't be read.
        """
        if after_seq >= self._seq:
            return ()
        return await anyio.to_thread.run_sync(self._read, after_seq, limit, limiter=self._lanes.short)

    @abstractmethod
    def _read(self, after_seq: int, limit: int) -> tuple[Record, ...]:
        """`records`, in a thread."""

    def stop_waiting(self) -> None:  # noqa: B027 - there is no server
        """Fail instead of waiting for a server that went away, until it is back: the user has interrupted the turn."""

    @abstractmethod
    async def append(
        self,
        events: Sequence[Event],
        *,
        durable: bool = False,
        forgotten: OnForgotten | None = None,
        at: datetime | None = None,
    ) -> tuple[Record, ...]:
        """Write the events as one batch, in order. Transient events are left out.

        Args:
            events: Any number.
            durable: Return only when they would survive a loss of power. They survive the death of the process in any
                case.
            forgotten: Called before anything is written if words were taken out of the log since the last batch, with
                those that say enough to be looked for; what it returns is written instead, as many events. Nothing is
                written if words are taken out meanwhile.
            at: When it happened; None means now.

        Returns:
            The records written. All records of a batch have the same time.

        Raises:
            StorageUnwritable: The disk is full or read-only. No part of the batch is in the log.
            StorageError: The log was removed, or the journal is closed, perhaps because of an earlier failure.
        """

    @abstractmethod
    async def take_rewritten(self) -> tuple[str, ...] | None:
        """The words that were taken out of the log, by any process, since it was opened or this was last asked.

        Returns:
            None if the log was not rewritten.

        Raises:
            StorageError: The log was removed, or can't be read.
        """

    async def aclose(self) -> None:
        """Release the session for another writer. May be called more than once.

        Deletes a log in which nothing was ever said.
        """
        if self._broken is None:
            self._broken = StorageError(f"Session {self.session_id} is closed.")
        with anyio.CancelScope(shield=True):
            try:
                await anyio.to_thread.run_sync(self._close, limiter=self._lanes.short)
            finally:
                self._closed()

    @abstractmethod
    def _close(self) -> None:
        """`aclose`, in a thread."""

    async def __aenter__(self) -> Journal:
        """Return this journal."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it."""
        await self.aclose()


class FileJournal(Journal):
    """A journal whose log is a file."""

    def __init__(
        self,
        *,
        log: Log,
        cwd: str,
        lock: Hold,
        clock: Clock,
        lanes: Lanes,
        is_new: bool,
        offsets: Offsets,
        closed: Callable[[], object],
    ) -> None:
        """Use `SessionStore.create` or `SessionStore.open`."""
        self.session_id = log.session_id
        self.path = log.path
        self.cwd = cwd
        self._lock = lock
        self._clock = clock
        self._lanes = lanes
        self._offsets = offsets
        self._closed = closed
        self._creates_file = is_new
        self._name_synced = not is_new
        self._seq = log.last_seq
        self._fd = -1
        self._taken: tuple[str, ...] | None = None  # since the log was rewritten
        self._length = log.length
        self._separator = b"" if log.ends_line else b"\n"
        self._written = 0  # batches
        self._synced = 0
        self._order = anyio.Lock(fast_acquire=True)
        self._syncing = anyio.Lock(fast_acquire=True)
        if not is_new:
            self._open_file()  # An open file shows whether the log is rewritten from now on.

    def _read(self, after_seq: int, limit: int) -> tuple[Record, ...]:
        return read_records(self.path, after_seq=after_seq, limit=limit, offsets=self._offsets)

    async def append(
        self,
        events: Sequence[Event],
        *,
        durable: bool = False,
        forgotten: OnForgotten | None = None,
        at: datetime | None = None,
    ) -> tuple[Record, ...]:
        """See `Journal.append`. No other process can rewrite the log while `forgotten` runs."""
        lasting = [event for event in events if not is_transient(event)]
        if lasting:
            async with self._order:
                await self._lock_file()
                try:
                    if forgotten is not None and self._taken is not None:
                        taken, self._taken = self._taken, None
                        lasting = list(await forgotten(taken))
                    when = at or self._clock.now()
                    records = tuple(
                        Record(seq=seq, at=when, event=event)
                        for seq, event in enumerate(lasting, self._seq + 1)
                    )
                    start = self._length + len(self._separator)
                    self._write(self._separator + encode_records(records))
                    self._offsets.note(records[0].seq, start)
                    self._separator = b""
                    self._seq += len(records)
                    self._written += 1
                finally:
                    if self._fd >= 0:
                        fcntl.flock(self._fd, fcntl.LOCK_UN)
        else:
            records = ()
        if durable:
            await self._sync_up_to(self._written)
        return records

    async def take_rewritten(self) -> tuple[str, ...] | None:
        """See `Journal.take_rewritten`."""
        async with self._order:
            if self._fd >= 0 and not _leads_to(self.path, self._fd):
                await self._follow()
            taken, self._taken = self._taken, None
        return taken

    async def _lock_file(self) -> None:
        """Lock the log against rewriting, and open it where it is not open or has been rewritten."""
        if self._broken is not None:
            raise self._broken
        while True:
            if self._fd < 0:
                self._open_file()
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _HELD_ELSEWHERE:
                    raise unwritable(self.path, error) from error
                # Another process rewrites the log, which takes time in proportion to its length, so this wait is
                # bounded. It is shielded because a cancelled task would leave the file locked.
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(
                        fcntl.flock, self._fd, fcntl.LOCK_EX, limiter=self._lanes.short
                    )
            if _leads_to(self.path, self._fd):
                return
            await self._follow()

    async def _follow(self) -> None:
        """Go on in the file that has replaced the log, and note which words it lacks."""
        before, self._fd = self._fd, -1
        self._creates_file = False
        try:
            self._open_file()
            # Takes time in proportion to the log's length. Shielded because the words are known only here.
            with anyio.CancelScope(shield=True):
                taken = await anyio.to_thread.run_sync(
                    _words_taken, before, self._fd, limiter=self._lanes.short
                )
        except OSError as error:
            raise unwritable(self.path, error) from error
        finally:
            os.close(before)
        self._taken = (self._taken or ()) + taken

    def _open_file(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        if self._creates_file:
            make_folder(self.path.parent)
            flags |= os.O_CREAT | os.O_EXCL
        try:
            self._fd = os.open(self.path, flags, 0o600)
        except FileNotFoundError as error:
            raise StorageError(
                f"The log of session {self.session_id}, {self.path}, was removed while the session was open. "
                "Start a new session."
            ) from error
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._length = os.fstat(self._fd).st_size

    def _write(self, data: bytes) -> None:
        try:
            done = os.write(self._fd, data)
            while done < len(data):
                done += os.write(self._fd, memoryview(data)[done:])
        except OSError as error:
            self._undo_write(error)
            raise unwritable(self.path, error) from error
        self._length += len(data)

    def _undo_write(self, error: OSError) -> None:
        """Remove what a failed write left of its batch."""
        try:
            os.ftruncate(self._fd, self._length)
            if self._length == 0:
                self.path.unlink(missing_ok=True)
                os.close(self._fd)
                self._fd = -1
        except OSError:
            # A torn line is left, which loading ignores. Nothing may be appended to it.
            self._broken = unwritable(self.path, error)

    async def _sync_up_to(self, batch: int) -> None:
        """Wait until a batch is on the disk. One sync covers every batch that was written before it began."""
        async with self._syncing:
            if self._synced >= batch:
                return
            target = self._written
            if self._fd < 0:
                return
            # The descriptor may be closed, and its number reused, while the thread waits for the disk.
            fd = os.dup(self._fd)
            try:
                await anyio.to_thread.run_sync(self._sync, fd, limiter=self._lanes.short)
            except OSError as error:
                # After a failed fsync, only reading the file again shows what is on the disk.
                self._broken = unwritable(self.path, error)
                raise self._broken from error
            self._synced = target

    def _sync(self, fd: int) -> None:
        try:
            _sync(fd)
        finally:
            os.close(fd)
        if not self._name_synced:
            sync_folder(self.path.parent)
            sync_folder(self.path.parent.parent)
            self._name_synced = True

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if _has_nothing(self.path, self.session_id):
                self.path.unlink(missing_ok=True)
        self._lock.release()


def _has_nothing(path: Path, session_id: str) -> bool:
    """Whether nothing was said in the session of a log."""
    try:
        # Each opening takes two short lines, so a longer log holds more than that; a shorter one is read.
        return path.stat().st_size <= 4096 and is_empty(read_log(path, session_id))
    except (OSError, StorageError):
        return False


def is_empty(log: Log) -> bool:
    """Whether a log records only that its session was opened, filed and closed."""
    return not log.skipped and all(
        isinstance(record.event, SessionStart | SessionFiled | SessionEnd) for record in log.records
    )
