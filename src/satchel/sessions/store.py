"""All sessions below one folder: making, opening, listing, searching, exporting, deleting and redacting their
logs.
"""

from __future__ import annotations

import builtins
import json
import secrets
import shutil
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.errors import NotFound, StorageError, UsageError
from satchel.events import Record, SessionStart
from satchel.sessions.ephemeral import EphemeralJournal
from satchel.sessions.export import to_json, to_markdown
from satchel.sessions.inbox import Inbox, InboxEntry
from satchel.sessions.index import LogFile, SearchHit, SessionIndex, log_files
from satchel.sessions.journal import Journal, Lanes, WriterLock, sync_folder, unwritable, writer_of
from satchel.sessions.log import Log, Offsets, read_log, read_records
from satchel.sessions.places import FORBIDDEN_IN_IDS, bucket_name, log_name, session_id_of
from satchel.sessions.redaction import (
    Redacted,
    Redaction,
    Words,
    half_rewritten,
    inbox_redactor,
    redact_log,
)
from satchel.sessions.spending import Spending
from satchel.sessions.summary import SessionInfo, Summary, add_cost
from satchel.storage import Database

__all__ = ["SessionStore"]

T = TypeVar("T")
_SMALL_LOG = 1_000_000
"""Bytes up to which a log is read like any other short work: some 15 ms."""
_MOST_OFFSETS = 256
"""Logs of which it is remembered where their records stand."""


def _new_id() -> str:
    """48 random bits as hex: short enough to type, no start of one is another for any number of sessions a
    person has.
    """
    return secrets.token_hex(6)


class SessionStore:
    """The sessions of one Satchel home.

    Several processes may use one folder; each session has one writer at a time. Blocking work runs in worker threads,
    that of different sessions side by side; see `Lanes`.
    """

    def __init__(
        self,
        root: Path,
        database: Database | None,
        *,
        clock: Clock,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        """Nothing is touched before the first use.

        Args:
            root: `SATCHEL_HOME/sessions`.
            database: Where the derived index lives, migrated; None: lists and searches read the files.
            clock: Gives the times of events and file names.
            new_id: Gives the ids of new sessions: ASCII letters, digits and hyphens.
        """
        self._root = root
        self._clock = clock
        self._new_id = new_id
        self._lanes = Lanes()
        self._index = SessionIndex(root, database, self._lanes.long)
        self._spending = Spending(root, self._index, self._lanes.long)
        self._open: dict[str, Journal] = {}
        self._inbox = Inbox(database, clock=clock, new_id=new_id)
        self._offsets: OrderedDict[Path, Offsets] = OrderedDict()

    async def create(self, cwd: Path | str, *, session_id: str | None = None) -> Journal:
        """Begin a session. Its file is made by the first append.

        Args:
            cwd: The working directory that it belongs to, absolute.
            session_id: Its id; None makes one.

        Raises:
            UsageError: The id has signs that a file name can't have, or is taken.
            StorageUnwritable: The place can't be written.
        """
        wanted = session_id or self._new_id()
        log, lock = await self._run(lambda: self._claim(str(cwd), wanted))
        return self._journal(log, lock, cwd=str(cwd), is_new=True, costs={})

    def _claim(self, cwd: str, wanted: str) -> tuple[Log, WriterLock]:
        if FORBIDDEN_IN_IDS.search(wanted) or not 1 <= len(wanted) <= 64:
            raise UsageError(f"{wanted!r} can't be a session's id: it has up to 64 letters, digits, hyphens.")
        if any(session_id_of(path) == wanted for path in self._root.glob(f"*/*_{wanted}.jsonl")):
            raise UsageError(f"A session {wanted} exists already.")
        lock = WriterLock.take(self._lock_path(wanted), session_id=wanted)
        path = self._root / bucket_name(cwd) / log_name(self._clock.now().astimezone(), wanted)
        return Log(session_id=wanted, path=path), lock

    def _journal(
        self, log: Log, lock: WriterLock, *, cwd: str, is_new: bool, costs: dict[str, float]
    ) -> Journal:
        journal = Journal(
            log=log,
            cwd=cwd,
            lock=lock,
            clock=self._clock,
            lanes=self._lanes,
            is_new=is_new,
            offsets=self._offsets_of(log.path),
            costs=costs,
            closed=lambda: self._open.pop(log.session_id, None),
        )
        self._open[log.session_id] = journal
        return journal

    def ephemeral(self, cwd: Path | str) -> EphemeralJournal:
        """Begin a session that leaves nothing on disk."""
        return EphemeralJournal(session_id=self._new_id(), cwd=str(cwd), clock=self._clock)

    async def open(self, session_id: str, *, visit: Callable[[Record], object] | None = None) -> Journal:
        """Open a session for writing; `Journal.take_records` gives what it held.

        Args:
            session_id: Its id, or the unique beginning of it.
            visit: Gets each record that the log holds, in order, in a worker thread, and `take_records` gives nothing:
                a large log is then never in memory as a whole, and nothing of it is read on the event loop.

        Raises:
            NotFound: There is no such session.
            UsageError: Several begin like that.
            StorageLocked: It is open already; the message names the process.
            StorageUnwritable, StorageError: The log can't be written or read.
        """
        path, full_id = await self._run(lambda: self._find(session_id))
        lock = await self._run(lambda: WriterLock.take(self._lock_path(full_id), session_id=full_id))
        offsets = self._offsets_of(path)
        records: builtins.list[Record] = []
        keep = visit or records.append
        costs: dict[str, float] = {}
        cwds: builtins.list[str] = []

        def take(record: Record) -> None:
            if isinstance(record.event, SessionStart):
                cwds.append(record.event.cwd)
            add_cost(costs, record)
            keep(record)

        try:
            log = await self._run(
                lambda: _read_for_writing(path, full_id, offsets, take), lane=self._lane_of(path)
            )
        except BaseException:
            lock.release()
            raise
        log = replace(log, records=tuple(records))
        return self._journal(log, lock, cwd=cwds[0] if cwds else "", is_new=False, costs=costs)

    async def last(self, cwd: Path | str) -> SessionInfo | None:
        """The session of a working directory that was active last and in which something was said, or
        None.
        """
        bucket = bucket_name(str(cwd))
        for info in await self._index.sessions():
            if info.path.parent.name == bucket and info.turns:
                return info
        return None

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, the one that was active last first."""
        return await self._index.sessions()

    async def spent_on(self, day: str, *, excluding: str | None = None) -> float:
        """What all sessions of the home spent on a local day, in US dollars.

        Cheap enough to be asked before every model call: sessions that are open here keep count, and of the others only
        the logs that changed are read.

        Args:
            day: As "2026-11-21".
            excluding: A session to leave out.
        """
        # Taken before the files are looked at, so that a session that closes meanwhile is counted once.
        here = dict(self._open)
        elsewhere = await self._spending.on(day, excluding={*here, *([excluding] if excluding else ())})
        return elsewhere + sum(
            journal.cost_by_day.get(day, 0.0) for id, journal in here.items() if id != excluding
        )

    async def info(self, session_id: str) -> SessionInfo:
        """One session by its id or the unique beginning of it; errors as in `load`."""
        summary = Summary()
        log = await self.load(session_id, visit=summary.feed)
        info = summary.info(log.session_id, log.path)
        if info is None:
            raise StorageError(f"Nothing in the log {log.path} can be read.")
        return info

    async def load(self, session_id: str, *, visit: Callable[[Record], object] | None = None) -> Log:
        """Read a session, also while it is open elsewhere.

        Args:
            session_id: Its id, or the unique beginning of it.
            visit: Gets each record in place of `Log.records`, in order, in a worker thread.

        Raises:
            NotFound, UsageError: As in `open`.
            StorageError: The log can't be read.
        """
        path, full_id = await self._run(lambda: self._find(session_id))
        return await self._run(lambda: read_log(path, full_id, visit=visit), lane=self._lane_of(path))

    async def records(self, session_id: str, *, after_seq: int = 0, limit: int = 1000) -> tuple[Record, ...]:
        """Read the records of a session with numbers above `after_seq`, also while it is open elsewhere.

        What comes before them is not decoded, and from the second call on hardly read.

        Args:
            session_id: Its id, or the unique beginning of it.
            after_seq: 0 begins at the first record.
            limit: How many at most. Fewer are returned where they are large; none only where there is none.

        Raises:
            NotFound, UsageError: As in `open`.
            StorageError: The log can't be read.
        """
        path, _ = await self._run(lambda: self._find(session_id))
        offsets = self._offsets_of(path)
        return await self._run(lambda: read_records(path, after_seq=after_seq, limit=limit, offsets=offsets))

    # The inbox

    async def post(
        self, session_id: str, *, source: str, text: str, untrusted: bool = False, kind: str = "notice"
    ) -> str:
        """Put something into a session's inbox, whichever process has the session open, if any has.

        Args:
            session_id: Its id, or the unique beginning of it.
            source: Who posts.
            text: At most 20,000 characters, without secrets: the caller redacts.
            untrusted: `text` comes from outside.
            kind: What it is.

        Returns:
            The entry's id.

        Raises:
            NotFound: There is no such session.
            UsageError: The text is empty or too long, too much waits already, or several ids begin like that.
            StorageError: The database did not serve.
        """
        _, full_id = await self._run(lambda: self._find(session_id))
        return await self._inbox.post(full_id, source=source, text=text, untrusted=untrusted, kind=kind)

    async def waiting(self, session_id: str, *, delivered: Collection[str] = ()) -> Sequence[InboxEntry]:
        """What waits in a session's inbox, in the order of arrival.

        Args:
            session_id: The full id.
            delivered: Entries to leave out: those that `TurnStart` events of the log name. A program that is killed
                between writing that event and calling `delivered` does not deliver them a second time.

        Raises:
            StorageError: The database did not serve.
        """
        return await self._inbox.waiting(session_id, delivered=delivered)

    async def delivered(self, ids: Collection[str]) -> None:
        """Remove entries that a turn delivered; ids that are not there are ignored.

        Raises:
            StorageError: The database did not serve; the entries are still there.
        """
        await self._inbox.delivered(ids)

    async def inbox_version(self) -> int:
        """A number that is another one after something was posted into any session, by any process. One short read;
        meant to be asked about once a second.

        Raises:
            StorageError: The database did not serve.
        """
        return await self._inbox.version()

    async def search(self, query: str, *, limit: int = 20) -> Sequence[SearchHit]:
        """Search everything that was said and every tool's inputs and outputs, in all sessions.

        Args:
            query: Words; all must be there, each as the beginning of a word, case and accents aside; `"…"`
            keeps words
                together.
            limit: How many at most.
        """
        if not query.strip():
            raise UsageError("There is nothing to search for: give at least one word.")
        return await self._index.search(query, limit=limit)

    async def export(self, session_id: str, *, form: Literal["markdown", "json"]) -> str:
        """The whole session as text; errors as in `load`."""
        info = await self.info(session_id)
        log = await self.load(session_id)
        if form == "markdown":
            return to_markdown(info, log.records)
        return json.dumps(to_json(info, log.records), indent=2) + "\n"

    async def delete(self, session_id: str) -> str:
        """Remove a session: its log, what was spilled from it, and its words in the index.

        Returns:
            The full id.

        Raises:
            NotFound, UsageError: As in `open`.
            StorageLocked: It is open.
            StorageUnwritable: It can't be removed.
        """

        def remove() -> tuple[str, str]:
            path, full_id = self._find(session_id)
            lock = WriterLock.take(self._lock_path(full_id), session_id=full_id)
            try:
                spill = path.with_suffix(".spill")
                if spill.is_dir() and not spill.is_symlink():
                    shutil.rmtree(spill)
                half_rewritten(path).unlink(missing_ok=True)
                path.unlink()
                sync_folder(path.parent)
            except OSError as error:
                raise unwritable(path, error) from error
            finally:
                lock.release()
            return full_id, self._index.name_of(path)

        full_id, name = await self._run(remove)
        await self._inbox.remove(full_id)
        await self._index.forget([name])
        return full_id

    async def redact(self, words: Sequence[Words], *, memory_ids: Collection[str] = ()) -> Redaction:
        """Take words out of all logs, the spilled results and the index; "[forgotten]" stands there instead.

        A session that is open, here or in another process, goes on in the rewritten log; whoever holds its
        messages in
        memory has to rebuild them (`Redacted.open_in`). A log that can't be rewritten is named in the result
        and
        stays as it was; the others are done.

        Args:
            words: What to forget, and where.
            memory_ids: What was surfaced to a model under these ids is forgotten too.
        """
        if not words and not memory_ids:
            return Redaction()
        paths = await self._run(lambda: log_files(self._root))
        done: builtins.list[Redacted] = []
        stale: builtins.list[str] = []
        for path in paths:
            session_id = session_id_of(path) or ""
            try:
                entry = await self._run(
                    lambda path=path, session_id=session_id: redact_log(  # type: ignore[misc]
                        path, session_id, words=words, memory_ids=memory_ids, home=self._root.parent
                    ),
                    lane=self._lanes.long,
                )
            except StorageError as error:
                entry = Redacted(session_id=session_id, error=str(error))
            if entry is not None:
                done.append(replace(entry, open_in=writer_of(self._lock_path(session_id))))
                stale.append(self._index.name_of(path))
        # Also of logs that an earlier call had rewritten when it was interrupted.
        stale += await self._index.outdated()
        if await self._inbox.rewrite(inbox_redactor(words)) or stale:
            await self._index.forget(stale)
        return Redaction(sessions=tuple(done))

    async def unsettled(self) -> Sequence[LogFile]:
        """The logs that changed since `settle`: what was said in them may be missing in memory.

        Returns:
            Their ids and states, the newest first; all logs where there is no database.

        Raises:
            StorageError: The database did not serve.
        """
        return await self._index.unsettled()

    async def settle(self, file: LogFile) -> None:
        """Note that all that was said in a log, in the state in which `unsettled` found it, is in memory.

        Raises:
            StorageError: The database did not serve.
        """
        await self._index.settle(file)

    def _lock_path(self, session_id: str) -> Path:
        return self._root / ".locks" / session_id

    def _find(self, prefix: str) -> tuple[Path, str]:
        wanted = prefix.strip()
        found: dict[str, Path] = {}
        for path in log_files(self._root):
            session_id = session_id_of(path) or ""
            if session_id == wanted:
                return path, session_id
            if wanted and session_id.startswith(wanted):
                found.setdefault(session_id, path)
        if len(found) == 1:
            ((session_id, path),) = found.items()
            return path, session_id
        if found:
            some = ", ".join(sorted(found)[:5])
            raise UsageError(f"{len(found)} sessions begin with {wanted!r} ({some}…). Give more of the id.")
        raise NotFound(
            f"There is no session {wanted!r}. `satchel session list` shows the sessions that there are."
        )

    def _offsets_of(self, path: Path) -> Offsets:
        """What is known of a log; shared by whoever reads or writes it here."""
        offsets = self._offsets.pop(path, None) or Offsets()
        self._offsets[path] = offsets
        if len(self._offsets) > _MOST_OFFSETS:
            self._offsets.popitem(last=False)
        return offsets

    def _lane_of(self, path: Path) -> anyio.CapacityLimiter:
        try:
            is_small = path.stat().st_size <= _SMALL_LOG
        except OSError:
            is_small = True  # Reading it gives the error.
        return self._lanes.short if is_small else self._lanes.long

    async def _run(self, function: Callable[[], T], *, lane: anyio.CapacityLimiter | None = None) -> T:
        return await anyio.to_thread.run_sync(function, limiter=lane or self._lanes.short)


def _read_for_writing(
    path: Path, session_id: str, offsets: Offsets, visit: Callable[[Record], object]
) -> Log:
    """Read a log whose lock is held, and cut off a torn last line, so that nothing is ever glued to it."""
    log = read_log(path, session_id, offsets=offsets, visit=visit)
    if log.is_torn:
        try:
            with path.open("r+b") as file:
                file.truncate(log.length)
        except OSError as error:
            raise unwritable(path, error) from error
    return log
