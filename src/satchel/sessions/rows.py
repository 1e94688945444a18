"""Logs as rows on a server: any machine with the home's key reads them, and one process at a time writes each.

A writer has a lease, which it renews while it has the session open, and an epoch, which each change of writers raises.
Every batch is written in a transaction that finds both unchanged, so a writer that was away for longer than its lease
can't write beside the next one; the rows' primary key is the last fence. See `row_files` for what is beside a log.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    insert,
    or_,
    select,
    text,
    update,
)

from satchel.clock import Clock
from satchel.config.home import replacing
from satchel.errors import SatchelError, SessionInUse, StorageError
from satchel.events import (
    Event,
    Observation,
    QuestionAsked,
    Record,
    SubAgentEvent,
    TurnEnd,
    TurnStart,
    is_transient,
)
from satchel.processes import has_ended, machine_name
from satchel.sessions.files import FileLogs
from satchel.sessions.journal import Hold, Journal, Lanes, OnForgotten, is_empty, make_folder, unwritable
from satchel.sessions.log import PAGE_BYTES, LogLine, Pace, decode_line, encode_records, log_of, raw_lines
from satchel.sessions.logs import LogChanges, LogFile, Logs, Rewriting, name_of, path_of
from satchel.sessions.places import beside, session_id_of
from satchel.sessions.rewriting import rewriting_path, words_taken
from satchel.sessions.row_files import (
    Changed,
    RowFiles,
    Whose,
    damaged_files,
    file_path,
    has_files,
    name_in,
    quoted,
    remove_files,
)
from satchel.sessions.row_requests import PassedOn, RowRequests
from satchel.sessions.summary import add_cost
from satchel.sessions.tables import (
    NOW,
    conversation_costs,
    conversation_files,
    conversation_lines,
    conversations,
    session_folder,
    session_log,
)
from satchel.storage import Database, Prepared

T = TypeVar("T")
_Reads: TypeAlias = Callable[[Callable[[Connection], Any]], Any]

_LEASE_MS: Final = 30_000
_CHOSEN_MS: Final = 60_000
_RENEW_S: Final = 10.0
_PAGE: Final = 200
"""Lines that are read at once. Long results are spilled, so that few lines have more than 30 KB."""
_OFTEN: Final = 3
"""How often a log is rewritten beside a writer that appends to it, before others have to wait."""
_MOST_SEQ: Final = 1 << 30
_STORED: Final = ".stored"
"""Is in the folder of the logs once `RowLogs.store_beside` has run on this machine."""
_NAMING: Final = (TurnStart, Observation, SubAgentEvent, QuestionAsked, TurnEnd)
"""Records that may name files beside the log, or come after such a one."""
_KEPT, _OFFERED, _ASKED, _BUSY = range(4)
"""`conversations.handover`: the writer gives it up to nobody, or to whoever asks; somebody asks; it was refused."""

_HEADS = select(conversations)
_HEAD = Prepared(_HEADS.where(conversations.c.session_id == bindparam("session")))
_BEHIND = (
    select(conversations)
    .outerjoin(session_log, session_log.c.name == conversations.c.name)
    .where(
        or_(
            session_log.c.name.is_(None),
            session_log.c.inode != conversations.c.generation,
            session_log.c.size != conversations.c.last_seq,
        )
    )
)
_GONE = (
    select(session_log.c.name)
    .outerjoin(conversations, session_log.c.name == conversations.c.name)
    .where(conversations.c.name.is_(None))
)
_WRITTEN = Prepared(
    select(
        *(conversations.c[name] for name in ("session_id", "generation", "last_seq", "writer")),
    ).where(
        conversations.c.writer != "", conversations.c.writer != bindparam("me"), conversations.c.until > NOW
    )
)
_LINES = Prepared(
    select(conversation_lines.c.seq, conversation_lines.c.line)
    .where(
        conversation_lines.c.session_id == bindparam("session"), conversation_lines.c.seq > bindparam("after")
    )
    .order_by(conversation_lines.c.seq)
    .limit(bindparam("most"))
)
_ADD = Prepared(
    text(
        "INSERT INTO conversation_lines (session_id, seq, line) SELECT CAST(:session AS TEXT), * "
        "FROM unnest(CAST(:seqs AS INTEGER[]), CAST(:lines AS BYTEA[]))"
    )
)
_APPENDED = Prepared(
    update(conversations)
    .where(conversations.c.session_id == bindparam("session"))
    .values(last_seq=bindparam("last"), generation=bindparam("number"), until=NOW + _LEASE_MS)
)
_SPENT_ON = Prepared(text("SELECT coalesce(sum(cost), 0) AS cost FROM conversation_costs WHERE day = :day"))
_SPENT = Prepared(
    text(
        "INSERT INTO conversation_costs (day, session_id, cost) VALUES (:day, :session, :cost) "
        "ON CONFLICT (day, session_id) DO UPDATE SET cost = EXCLUDED.cost"
    )
)


_OWN: Final[set[str]] = set()
"""The writers of this process."""


def _is_gone(writer: str) -> bool:
    """Whether a writer is known to have ended, by whoever is on its machine."""
    machine, _, pid, _ = writer.split(" ")
    if machine != machine_name():
        return False
    # After a restart of a container, this process may have the number of that one.
    return has_ended(int(pid)) or (int(pid) == os.getpid() and writer not in _OWN)


def _who(writer: str) -> str:
    machine, host, pid, _ = writer.split(" ")
    return f"process {pid}" if machine == machine_name() else f"process {pid} on {host}"


def _in_use(session_id: str, writer: str) -> SessionInUse:
    machine, _, pid, _ = writer.split(" ")
    if machine == machine_name() and int(pid) == os.getpid():
        return SessionInUse(f"Session {session_id} is already open in this process. Close it there first.")
    return SessionInUse(
        f"Session {session_id} is open in {_who(writer)}. Close it there, or go on in a new session."
    )


def _busy(session_id: str, writer: str) -> SessionInUse:
    return SessionInUse(
        f"Session {session_id} is busy in {_who(writer)}: a turn, a command or a build runs there. "
        "Wait until it ends.",
        served=session_id,
    )


def _head(connection: Connection, session_id: str) -> Any:
    """The row of a conversation, or None."""
    found = _HEAD.named(connection, {"session": session_id})
    return found[0] if found else None


def _now(connection: Connection) -> int:
    return int(connection.execute(select(NOW)).scalar_one())


def _id(path: Path) -> str:
    return session_id_of(path) or ""


def _chosen(row: Any, now: int) -> str:
    """What was chosen for a conversation; nothing once nobody has had it open for a minute."""
    return str(row.chosen) if now - row.until < _CHOSEN_MS else ""


def _change(connection: Connection, session_id: str, **values: Any) -> None:
    connection.execute(update(conversations).where(conversations.c.session_id == session_id).values(**values))


def _delete(connection: Connection, session_id: str) -> None:
    remove_files(connection, session_id)
    for table in (conversation_costs, conversation_lines, conversations):
        connection.execute(delete(table).where(table.c.session_id == session_id))


def _add(connection: Connection, session_id: str, lines: Sequence[tuple[int, bytes]]) -> None:
    seqs, raw = [seq for seq, _ in lines], [line for _, line in lines]
    _ADD.run(connection, {"session": session_id, "seqs": seqs, "lines": raw})


class _Lease:
    """The right to write a session; see `Logs.hold`. Epoch 0 is that of a session without a log."""

    def __init__(self, logs: RowLogs, session_id: str, epoch: int) -> None:
        self._logs: RowLogs | None = logs
        self.session_id = session_id
        self.epoch = epoch
        self.chosen = ""

    def release(self) -> None:
        """See `Hold.release`."""
        logs, self._logs = self._logs, None
        if logs is not None:
            logs.let_go(self)


class RowLogs(Logs):
    """The logs in a database on a server."""

    is_shared = True

    def __init__(self, root: Path, database: Database, *, clock: Clock, lanes: Lanes) -> None:
        self.root = root
        self.database = database
        self.clock = clock
        self.lanes = lanes
        self.me = f"{machine_name()} {socket.gethostname().replace(' ', '-')} {os.getpid()} {token_hex(6)}"
        _OWN.add(self.me)
        self.beside = RowFiles()
        self.requests = RowRequests(database)
        self._storing = threading.Lock()
        self._has_stored = False
        self._leases: set[_Lease] = set()
        self._leasing = threading.Lock()
        self._renewing: threading.Event | None = None

    # Reading

    def paths(self, beginning: str = "") -> list[Path]:
        """See `Logs.paths`."""
        return [file.path for file in self._files(beginning)]

    def files(self) -> list[LogFile]:
        """See `Logs.files`."""
        return self._files("")

    def _files(self, beginning: str) -> list[LogFile]:
        query = _HEADS
        if beginning:
            query = query.where(conversations.c.session_id.startswith(beginning, autoescape=True))
        rows = self.database.read_blocking(lambda connection: connection.execute(query).all())
        files = [self._file(row) for row in rows if row.session_id.startswith(beginning)]
        return sorted(files, key=lambda file: file.path.name, reverse=True)

    def _file(self, row: Any) -> LogFile:
        path = path_of(self.root, row.name)
        return LogFile(row.name, path, row.session_id, row.generation, 0, row.last_seq)

    def file(self, path: Path) -> LogFile | None:
        """See `Logs.file`."""
        row = self.database.read_blocking(lambda connection: _head(connection, _id(path)))
        return None if row is None else self._file(row)

    def changes(self, connection: Connection) -> LogChanges:
        """See `Logs.changes`. The server compares."""
        is_first = connection.execute(select(session_folder)).first() is None
        if is_first:
            return LogChanges({}, {}, is_first)
        gone: dict[str, LogFile | None] = {row.name: None for row in connection.execute(_GONE)}
        behind = {row.name: self._file(row) for row in connection.execute(_BEHIND)}
        return LogChanges({**gone, **behind}, {}, is_first)

    def is_same(self, connection: Connection, file: LogFile) -> bool:
        """See `Logs.is_same`."""
        row = _head(connection, file.session_id)
        return row is not None and row.generation == file.inode

    def is_small(self, path: Path) -> bool:
        """See `Logs.is_small`. The database's own threads limit what is read at once."""
        return True

    def lines(self, path: Path, *, start: int = 0, number: int = 1) -> Iterator[LogLine]:
        """See `Logs.lines`."""
        pace = Pace()
        for seq, raw in self.rows(_id(path), start):
            pace()
            record, reason = decode_line(raw)
            yield LogLine(number=number, start=start, end=seq, raw=raw, record=record, reason=reason)
            start = seq
            number += 1

    def rows(
        self, session_id: str, after: int = 0, *, most: int = _MOST_SEQ, reads: _Reads | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """The lines up to one with their numbers, each with its newline. Without `reads`, each page is a reading of its
        own.
        """
        reads = reads or self.database.read_blocking
        while after < most:
            values = {"session": session_id, "after": after, "most": _PAGE}
            page = reads(lambda connection: _LINES.run(connection, values))  # noqa: B023 - run at once
            for seq, line in page:
                if seq > most:
                    return
                # A line of a file is one of the server, whatever somebody else wrote there: JSON escapes newlines.
                yield int(seq), bytes(line).replace(b"\n", b" ") + b"\n"
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def records(self, path: Path, *, after_seq: int, limit: int) -> tuple[Record, ...]:
        """See `Logs.records`."""
        found: list[Record] = []
        size = 0
        for _, raw in self.rows(_id(path), after_seq):
            record, _ = decode_line(raw)
            if record is not None and record.seq > after_seq:
                found.append(record)
                size += len(raw)
                if len(found) >= limit or size >= PAGE_BYTES:
                    break
        return tuple(found)

    async def spent(self, day: str) -> float:
        """See `Logs.spent`."""
        ((cost,),) = await self.database.read(lambda connection: _SPENT_ON.run(connection, {"day": day}))
        return float(cost)

    # What is beside them

    def store_beside(self) -> None:
        """Store what is beside conversations of which the server has no file, once on each machine: until migration 23,
        these files were nowhere else. Later, a conversation without files may be one in which they were forgotten.

        Raises:
            StorageUnwritable, StorageError: A file can't be read or stored. Nothing was removed, and the next call
                tries again.
        """
        with self._storing:
            marker = self.root / _STORED
            if self._has_stored or marker.exists():
                self._has_stored = True
                return
            for folder in sorted(self.root.glob("*/*.spill")):
                path = folder.with_suffix(".jsonl")
                # Beside a file is what is moved to the server with it.
                if not path.exists() and self.beside.changes(_id(path), folder):
                    self._store_first(_id(path), folder)
            make_folder(self.root)
            try:
                marker.touch(mode=0o600)
            except OSError as error:
                raise unwritable(marker, error) from error
            self._has_stored = True

    def _store_first(self, session_id: str, folder: Path) -> None:
        def write(connection: Connection) -> Changed:
            is_there = _head(connection, session_id) is not None
            if not is_there or has_files(connection, session_id):
                return {}
            return self.beside.store(connection, session_id, folder)

        try:
            self.beside.note(session_id, self.database.write_blocking(write))
        except OSError as error:
            raise unwritable(folder, error) from error

    def fetch(self, path: Path, beginning: str = "") -> None:
        """See `Logs.fetch`. Where a process of this machine writes the session, its folder is newer than the server."""

        def whose(connection: Connection) -> Whose:
            row = _head(connection, _id(path))
            is_here = row is None or (
                row.writer.startswith(f"{machine_name()} ") and row.until > _now(connection)
            )
            return "read" if is_here and (row is None or not _is_gone(row.writer)) else "opened"

        self.bring(path, whose, beginning)

    def bring(self, path: Path, whose: Callable[[Connection], Whose], beginning: str = "") -> None:
        """See `RowFiles.fetch`.

        Raises:
            StorageUnwritable, StorageError: A file can't be read or written.
        """
        self.store_beside()
        folder = path.with_suffix(".spill")
        try:
            self.database.read_blocking(
                lambda connection: self.beside.fetch(
                    connection, _id(path), folder, whose=whose(connection), beginning=quoted(beginning)
                )
            )
        except OSError as error:
            raise unwritable(folder, error) from error

    def keep(self, path: Path, files: Collection[Path]) -> None:
        """See `Logs.keep`."""
        session_id, folder = _id(path), path.with_suffix(".spill")
        names = {name_in(folder, file) or "" for file in files}

        def write(connection: Connection) -> Changed:
            is_there = _head(connection, session_id) is not None
            return self.beside.store(connection, session_id, folder, names) if is_there else {}

        if self.beside.changes(session_id, folder, names):
            try:
                self.beside.note(session_id, self.database.write_blocking(write))
            except OSError as error:
                raise unwritable(folder, error) from error

    def named(self, beginning: str, session_id: str = "") -> list[Path]:
        """See `Logs.named`."""
        self.store_beside()
        names = conversation_files.c.name
        query = (
            select(conversations.c.name, names)
            .join(conversations, conversations.c.session_id == conversation_files.c.session_id)
            .where(names.startswith(quoted(beginning), autoescape=True))
        )
        if session_id:
            query = query.where(conversation_files.c.session_id == session_id)
        rows = self.database.read_blocking(lambda connection: connection.execute(query).all())
        return sorted((self.root / log).with_suffix(".spill") / file_path(name) for log, name in rows)

    def rewrite_files(
        self, path: Path, files: Mapping[Path, Callable[[bytes], bytes | None]]
    ) -> tuple[list[Path], bool]:
        """See `Logs.rewrite_files`."""
        session_id, folder = _id(path), path.with_suffix(".spill")
        # Elsewhere, the home may have another path.
        places = {beside(folder, str(file)): how for file, how in files.items()}

        def write(connection: Connection) -> dict[Path, bool | None]:
            done = {
                place: self.beside.rewrite(connection, session_id, name, how)
                for place, how in places.items()
                if (name := name_in(folder, place)) is not None
            }
            if any(done.values()):
                self._note_rewritten(connection, session_id)
            return done

        done = self.database.write_blocking(write) if files else {}
        here, _ = super().rewrite_files(path, places)
        is_lacking = any(done.get(place) is None and not place.exists() for place in places)
        return sorted({*here, *(place for place, is_changed in done.items() if is_changed)}), is_lacking

    def _note_rewritten(self, connection: Connection, session_id: str) -> None:
        self.database.note_scrub(connection)
        _change(connection, session_id, generation=conversations.c.generation + 1)

    def remove_files(self, path: Path, files: Collection[Path]) -> None:
        """See `Logs.remove_files`."""
        session_id, folder = _id(path), path.with_suffix(".spill")

        def write(connection: Connection) -> None:
            for name in filter(None, (name_in(folder, file) for file in files)):
                remove_files(connection, session_id, name)
            self._note_rewritten(connection, session_id)

        self.database.write_blocking(write)
        super().remove_files(path, files)

    def damaged(self) -> list[str]:
        """See `Logs.damaged`."""
        found = self.database.read_blocking(damaged_files)
        return [f"{session_id}: {name}" for session_id, name in found]

    def sweep(self, before_s: float) -> None:
        """See `Logs.sweep`: the folders here of sessions that nobody has open, whose files are on the server. What
        another machine has forgotten goes with them.
        """
        self.store_beside()
        for folder in self.root.glob("*/*.spill"):
            path = folder.with_suffix(".jsonl")
            try:
                # Beside a file is what waits to be moved to the server.
                is_old = folder.lstat().st_mtime < before_s and _id(path) and not path.exists()
                hold = self.hold(_id(path)) if is_old else None
            except (OSError, SessionInUse):
                continue
            if hold is not None:
                try:
                    # A hold without an epoch is that of a conversation that is gone.
                    if not hold.epoch or self.database.read_blocking(
                        lambda connection: self.beside.is_stored(connection, _id(path), folder)  # noqa: B023
                    ):
                        shutil.rmtree(folder, ignore_errors=True)
                        self.beside.forget(_id(path))
                finally:
                    hold.release()

    # Who writes

    def hold(self, session_id: str) -> _Lease:
        """See `Logs.hold`."""

        def take(connection: Connection) -> int:
            row = _head(connection, session_id)
            if row is None:
                return 0
            now = _now(connection)
            # A lease of this process that isn't held could not be given back.
            if row.writer not in ("", self.me) and row.until > now and not _is_gone(row.writer):
                raise _in_use(session_id, row.writer)
            _change(
                connection,
                session_id,
                writer=self.me,
                epoch=row.epoch + 1,
                until=now + _LEASE_MS,
                handover=self.handover,
                chosen=_chosen(row, now),
            )
            lease.chosen = _chosen(row, now)
            return int(row.epoch) + 1

        lease = _Lease(self, session_id, 0)
        with self._leasing:
            if any(other.session_id == session_id for other in self._leases):
                raise _in_use(session_id, self.me)
            self._leases.add(lease)
            if self._renewing is None:
                self._renewing = threading.Event()
                threading.Thread(
                    target=self._renew, args=(self._renewing,), daemon=True, name="satchel-leases"
                ).start()
        try:
            lease.epoch = self.database.write_blocking(take)
        except BaseException:
            self.drop(lease)
            raise
        return lease

    def _renew(self, ended: threading.Event) -> None:
        """Renew this process's leases until it has none. What fails is tried again; the epoch guards the log."""

        def renew(connection: Connection) -> None:
            with self._leasing:
                held = [lease.session_id for lease in self._leases]
            own = update(conversations).where(
                conversations.c.writer == self.me, conversations.c.session_id.in_(held)
            )
            connection.execute(own.values(until=NOW + _LEASE_MS))

        while not ended.wait(_RENEW_S):
            with suppress(SatchelError, RuntimeError):  # the server is away, or the database is being closed
                self.database.write_blocking(renew)

    def drop(self, lease: _Lease) -> None:
        """Renew a lease no more."""
        with self._leasing:
            self._leases.discard(lease)
            if not self._leases and self._renewing is not None:
                self._renewing.set()
                self._renewing = None

    def let_go(self, lease: _Lease) -> None:
        """Let another writer have what is leased. If the server is away, the lease ends by itself."""
        self.drop(lease)
        if lease.epoch:
            with suppress(SatchelError):
                self.database.write_blocking(
                    lambda connection: connection.execute(
                        update(conversations)
                        .where(
                            conversations.c.session_id == lease.session_id,
                            conversations.c.writer == self.me,
                            conversations.c.epoch == lease.epoch,
                        )
                        .values(writer="", until=NOW)
                    )
                )

    def writer(self, session_id: str, *, keeps: bool = False) -> int | None:
        """See `Logs.writer`."""
        row = self._held(session_id)
        if row is None or (keeps and row.handover != _KEPT):
            return None
        return int(row.writer.split(" ")[2])

    def open_elsewhere(self) -> dict[str, tuple[int, int]]:
        """See `Logs.open_elsewhere`."""
        rows = self.database.read_blocking(lambda connection: _WRITTEN.named(connection, {"me": self.me}))
        return {row.session_id: (row.generation, row.last_seq) for row in rows if not _is_gone(row.writer)}

    def _held(self, session_id: str) -> Any:
        """The row of a session that has a writer; None if nobody writes it."""
        row, now = self.database.read_blocking(
            lambda connection: (_head(connection, session_id), _now(connection))
        )
        is_free = row is None or not row.writer or row.until <= now or _is_gone(row.writer)
        return None if is_free else row

    @property
    def handover(self) -> int:
        """What `conversations.handover` is when this process begins to write."""
        return _OFFERED if self.hands_over else _KEPT

    def ask(self, session_id: str, *, again: bool) -> bool:
        """See `Logs.ask`."""
        row = self._held(session_id)
        if row is None:
            return True
        if row.writer == self.me:  # it is looked at, or just being opened
            return False
        if row.handover == _KEPT:
            raise _in_use(session_id, row.writer)
        if row.handover == _BUSY and again:
            raise _busy(session_id, row.writer)
        if row.handover in (_OFFERED, _BUSY):
            self._answer(session_id, row.writer, _ASKED)
        return False

    def asked(self) -> list[str]:
        """See `Logs.asked`."""
        with self._leasing:
            held = [lease.session_id for lease in self._leases]
        if not held:
            return []
        own = conversations.c.session_id.in_(held), conversations.c.writer == self.me
        query = select(conversations.c.session_id).where(*own, conversations.c.handover == _ASKED)
        return list(self.database.read_blocking(lambda connection: connection.execute(query).scalars().all()))

    def refuse(self, session_id: str) -> None:
        """See `Logs.refuse`."""
        self._answer(session_id, self.me, _BUSY)

    def chosen(self, session_id: str) -> str:
        """See `Logs.chosen`."""
        row, now = self.database.read_blocking(
            lambda connection: (_head(connection, session_id), _now(connection))
        )
        return "" if row is None else _chosen(row, now)

    def note_chosen(self, session_id: str, chosen: str) -> None:
        """See `Logs.note_chosen`."""
        own = conversations.c.session_id == session_id, conversations.c.writer == self.me
        change = update(conversations).where(*own).values(chosen=chosen)
        self.database.write_blocking(lambda connection: connection.execute(change))

    # Requests for what another server has open

    def served(self, session_id: str) -> Any:
        """The row of a session that another server has open, and carries out requests for; None if none has."""
        row = self._held(session_id)
        return None if row is None or row.writer == self.me or row.handover == _KEPT else row

    def check_served(self, session_id: str) -> None:
        """Check that no other server has a session open.

        Raises:
            SessionInUse: One has; the message names its process.
        """
        if (row := self.served(session_id)) is not None:
            raise _busy(session_id, row.writer)

    def is_at(self, session_id: str, epoch: int) -> bool:
        """Whether the writer with this epoch still has a session."""
        row = self._held(session_id)
        return row is not None and row.epoch == epoch

    def take_requests(self) -> list[PassedOn]:
        """The requests that other servers passed on. They are taken: nobody gets them again."""
        with self._leasing:
            held = {(lease.session_id, lease.epoch) for lease in self._leases}
        return self.requests.take(self.me, held) if held else []

    def _answer(self, session_id: str, writer: str, handover: int) -> None:
        own = conversations.c.session_id == session_id, conversations.c.writer == writer
        change = update(conversations).where(*own).values(handover=handover)
        self.database.write_blocking(lambda connection: connection.execute(change))

    # Writing

    def begin(
        self, path: Path, session_id: str, hold: Hold, *, cwd: str, closed: Callable[[], object]
    ) -> RowJournal:
        """See `Logs.begin`."""
        assert isinstance(hold, _Lease)
        return RowJournal(self, path, hold, cwd=cwd, costs={}, closed=closed)

    def resume(
        self,
        path: Path,
        session_id: str,
        hold: Hold,
        *,
        visit: Callable[[Record], object],
        costs: dict[str, float],
        closed: Callable[[], object],
    ) -> RowJournal:
        """See `Logs.resume`."""
        assert isinstance(hold, _Lease)
        journal = RowJournal(self, path, hold, cwd="", costs=costs, closed=closed)
        journal.chosen = hold.chosen
        journal.read(visit)
        return journal

    def create(self, path: Path, session_id: str, records: Sequence[Record]) -> None:
        """See `Logs.create`."""
        raw = encode_records(records).splitlines()
        self._write_whole(path, [(record.seq, line) for record, line in zip(records, raw, strict=True)])

    def _write_whole(self, path: Path, lines: Sequence[tuple[int, bytes]]) -> None:
        costs: dict[str, float] = {}
        for _, line in lines:
            record, _ = decode_line(line)
            if record is not None:
                add_cost(costs, record)

        def write(connection: Connection) -> Changed:
            start_log(connection, path, self.root, last_seq=lines[-1][0] if lines else 0)
            _add(connection, _id(path), lines)
            _note_costs(connection, _id(path), costs)
            return self.beside.store(connection, _id(path), path.with_suffix(".spill"))

        self.beside.forget(_id(path))
        self.beside.note(_id(path), self.database.write_blocking(write))

    def remove(self, path: Path) -> None:
        """See `Logs.remove`."""

        def write(connection: Connection) -> None:
            self.database.note_scrub(connection)
            _delete(connection, _id(path))

        # First, so that what can't be removed is found again with the conversation.
        spill = path.with_suffix(".spill")
        try:
            if spill.is_dir() and not spill.is_symlink():
                shutil.rmtree(spill)
        except OSError as error:
            raise unwritable(spill, error) from error
        self.database.write_blocking(write)
        self.beside.forget(_id(path))

    def rewrite(self, path: Path, rewriting: Rewriting) -> None:
        """See `Logs.rewrite`."""
        session_id = _id(path)

        def changes(connection: Connection) -> tuple[Any, list[tuple[int, bytes]]]:
            head = _head(connection, session_id)
            if head is None:
                return None, []

            def rows() -> Iterator[tuple[int, bytes]]:
                return self.rows(session_id, most=head.last_seq, reads=lambda read: read(connection))

            lines = rewriting(lambda: (raw for _, raw in rows()))
            pairs = () if lines is None else zip(rows(), lines, strict=True)
            return head, [(seq, new[:-1]) for (seq, old), new in pairs if new != old]

        def write(connection: Connection, head: Any, changed: Sequence[tuple[int, bytes]]) -> bool:
            now = _head(connection, session_id)
            if now is not None and (now.generation, now.last_seq) != (head.generation, head.last_seq):
                return False
            if now is not None:
                self.database.note_scrub(connection)
                for seq, line in changed:
                    connection.execute(
                        update(conversation_lines)
                        .where(conversation_lines.c.session_id == session_id, conversation_lines.c.seq == seq)
                        .values(line=line)
                    )
                _change(connection, session_id, generation=head.generation + 1)
            return True

        for _ in range(_OFTEN):
            # One snapshot, because the log may be removed meanwhile.
            head, changed = self.database.read_blocking(changes)
            if not changed or self.database.write_blocking(lambda c: write(c, head, changed)):  # noqa: B023
                return

        def alone(connection: Connection) -> None:
            head, changed = changes(connection)
            if changed:
                write(connection, head, changed)

        self.database.write_blocking(alone)

    # Between files and rows

    def take_in(self, files: FileLogs) -> list[str]:
        """Move logs in files here with what is beside them, each when it was written and read back.

        Returns:
            The ids of those that stay files: another process has them open, they can't be read or removed, or there is
            another log with that id here.

        Raises:
            StorageError: The server failed. Those that are still files stay so.
        """
        left: list[str] = []
        for path in files.paths():
            session_id = _id(path)
            try:
                hold = files.hold(session_id)
            except SessionInUse:
                left.append(session_id)
                continue
            try:
                try:
                    lines = _numbered(files.lines(path))
                except StorageError:
                    left.append(session_id)
                    continue
                if self.file(path) is None:
                    self._write_whole(path, lines)
                # What went on here since another machine had this file has more.
                here = (raw[:-1] for _, raw in self.rows(session_id))
                bad = self.database.read_blocking(lambda c: damaged_files(c, session_id))  # noqa: B023
                if not bad and all(line == next(here, None) for _, line in lines):
                    rewriting_path(path).unlink(missing_ok=True)
                    path.unlink()
                else:
                    left.append(session_id)
            except OSError:
                left.append(session_id)
            finally:
                hold.release()
        return left

    def write_out(self, root: Path) -> int:
        """Write all logs as files below a folder, each whole or not at all. Returns how many there are.

        Raises:
            StorageError: One can't be read or written, or there is another file in its place.
        """
        files = self.files()
        for file in files:
            path = path_of(root, file.name)
            make_folder(path.parent)
            try:
                if path.exists() and not self._begins_like(path):
                    raise StorageError(f"{path} is there already, with other words. Move it away.")
                with replacing(path) as out:
                    out.writelines(raw for _, raw in self.rows(file.session_id))
                self.write_files(path)
                if not self._begins_like(path):
                    raise StorageError(f"{path} is not what was written. Nothing was removed; try again.")
            except OSError as error:
                raise unwritable(path, error) from error
        return len(files)

    def write_files(self, path: Path) -> None:
        """Write what is beside a log to the folder beside a file, and read it back."""
        folder, written = path.with_suffix(".spill"), RowFiles()

        def write(connection: Connection) -> bool:
            for _ in range(2):  # the second time finds all of them equal
                written.fetch(connection, _id(path), folder, whose="opened")
                written.forget(_id(path))
            return not damaged_files(connection, _id(path))

        if not self.database.read_blocking(write):
            raise StorageError(
                f"A file of session {_id(path)} is damaged on the server. Nothing was removed."
            )

    def _begins_like(self, path: Path) -> bool:
        """Whether all lines of a file are the first ones of the log."""
        here = self.rows(_id(path))
        own = (line for line in raw_lines(path) if line.strip())
        return all(line.rstrip(b"\n") == next(here, (0, b"\n"))[1][:-1] for line in own)


def _numbered(lines: Iterable[LogLine]) -> list[tuple[int, bytes]]:
    """The whole lines of a file, each with a number above the one before."""
    found: list[tuple[int, bytes]] = []
    for line in lines:
        if line.is_whole:
            known = found[-1][0] if found else 0
            own = line.record.seq if line.record is not None else 0
            found.append((max(known + 1, own if own < _MOST_SEQ else 0), line.raw.rstrip(b"\n")))
    return found


def start_log(
    connection: Connection,
    path: Path,
    root: Path,
    *,
    last_seq: int,
    writer: str = "",
    epoch: int = 0,
    handover: int = _KEPT,
) -> None:
    """Add the row of a log that isn't there.

    Raises:
        SessionInUse: It is there.
    """
    session_id = _id(path)
    if _head(connection, session_id) is not None:
        raise SessionInUse(f"A session {session_id} exists already.")
    connection.execute(
        insert(conversations).values(
            session_id=session_id,
            name=name_of(root, path),
            generation=1,
            last_seq=last_seq,
            writer=writer,
            epoch=epoch,
            until=NOW + _LEASE_MS if writer else 0,
            handover=handover,
        )
    )


def _note_costs(connection: Connection, session_id: str, costs: Mapping[str, float]) -> None:
    for day, cost in costs.items():
        _SPENT.run(connection, {"day": day, "session": session_id, "cost": cost})


class RowJournal(Journal):
    """A journal whose log is rows."""

    def __init__(
        self,
        logs: RowLogs,
        path: Path,
        lease: _Lease,
        *,
        cwd: str,
        costs: dict[str, float],
        closed: Callable[[], object],
    ) -> None:
        """Use `SessionStore.create` or `SessionStore.open`."""
        self.session_id = lease.session_id
        self.path = path
        self.cwd = cwd
        self._logs = logs
        self._lanes = logs.lanes
        self._lease = lease
        self._costs = costs
        self._closed = closed
        self._seq = 0
        self._generation = 0
        # The lines, compressed, because the rows of a rewritten log don't tell which words they lost.
        self._kept: list[bytes] = []
        self._taken: tuple[str, ...] | None = None
        self._order = anyio.Lock(fast_acquire=True)
        self._hurries = False

    def stop_waiting(self) -> None:
        """See `Journal.stop_waiting`."""
        self._hurries = True

    def read(self, visit: Callable[[Record], object]) -> None:
        """Take in the log of a session that goes on. Blocks."""
        head = self._logs.database.read_blocking(lambda connection: _head(connection, self.session_id))
        if head is None:
            raise self._removed()
        self._generation = head.generation
        log = log_of(self._keeping(self._logs.lines(self.path)), self.path, self.session_id, visit=visit)
        self._seq = log.last_seq
        self._logs.beside.forget(self.session_id)
        self._logs.bring(self.path, lambda _: "opened")

    def _keeping(self, lines: Iterator[LogLine]) -> Iterator[LogLine]:
        for line in lines:
            self._kept.append(zlib.compress(line.raw, 1))
            yield line

    def _read(self, after_seq: int, limit: int) -> tuple[Record, ...]:
        return self._logs.records(self.path, after_seq=after_seq, limit=limit)

    async def append(
        self,
        events: Sequence[Event],
        *,
        durable: bool = False,
        forgotten: OnForgotten | None = None,
        at: datetime | None = None,
    ) -> tuple[Record, ...]:
        """See `Journal.append`."""
        if self._broken is not None:
            raise self._broken
        lasting = [event for event in events if not is_transient(event)]
        if not lasting:
            return ()
        async with self._order:
            # If the first batch's acknowledgement is lost, the lease has to be given back all the same.
            self._lease.epoch = self._lease.epoch or 1
            while True:
                if forgotten is not None and self._taken is not None:
                    taken, self._taken = self._taken, None
                    lasting = list(await forgotten(taken))
                when = at or self._logs.clock.now()
                records = tuple(
                    Record(seq=seq, at=when, event=event) for seq, event in enumerate(lasting, self._seq + 1)
                )
                raw = encode_records(records).splitlines(keepends=True)
                lines = [(record.seq, line[:-1]) for record, line in zip(records, raw, strict=True)]
                costs = dict(self._costs)
                for record in records:
                    add_cost(costs, record)
                try:
                    put = await self._logs.database.write(
                        lambda c: self._put(c, lines, lasting, costs),  # noqa: B023 - run at once
                        durable=durable,
                        repeats=lambda: not self._hurries,
                    )
                except OSError as error:
                    raise unwritable(self.spill_dir, error) from error
                if put is not None:
                    break
                await self._follow()
            self._hurries = False
            self._generation, changed = put
            self._logs.beside.note(self.session_id, changed)
            self._kept += (zlib.compress(line, 1) for line in raw)
            self._costs.update(costs)
            self._seq += len(records)
        return records

    def _put(
        self,
        connection: Connection,
        lines: Sequence[tuple[int, bytes]],
        events: Sequence[Event],
        costs: Mapping[str, float],
    ) -> tuple[int, Changed] | None:
        """Write lines, and the files that they may name. Returns the log's generation and these files; None, and
        nothing is written, if the log was rewritten.
        """
        row, last_seq = _head(connection, self.session_id), lines[-1][0]
        if row is None and self._seq == 0:
            logs, generation = self._logs, 1
            start_log(
                connection,
                self.path,
                logs.root,
                last_seq=last_seq,
                writer=logs.me,
                epoch=1,
                handover=logs.handover,
            )
        else:
            self._check_own(row)
            generation = row.generation
            if self._generation not in (0, generation):
                return None
            if row.last_seq > self._seq:
                # A batch whose acknowledgement was lost with the connection: nobody was told of it.
                after = conversation_lines.c.seq > self._seq
                own = conversation_lines.c.session_id == self.session_id
                connection.execute(delete(conversation_lines).where(own, after))
                connection.execute(
                    delete(conversation_costs).where(conversation_costs.c.session_id == self.session_id)
                )
                generation += 1
            values = {"session": self.session_id, "last": last_seq, "number": generation}
            _APPENDED.run(connection, values)
        _add(connection, self.session_id, lines)
        if generation == self._generation:
            costs = {day: cost for day, cost in costs.items() if cost != self._costs.get(day)}
        _note_costs(connection, self.session_id, costs)
        changed: Changed = {}
        if any(isinstance(event, _NAMING) for event in events):
            changed = self._logs.beside.store(connection, self.session_id, self.spill_dir)
        return int(generation), changed

    def _check_own(self, row: Any) -> None:
        """Check that this journal may still write the log with this row."""
        if row is None:
            raise self._removed()
        if row.writer != self._logs.me or row.epoch != self._lease.epoch:
            self._logs.drop(self._lease)
            self._broken = SessionInUse(
                f"Session {self.session_id} was taken over"
                + (f" by {_who(row.writer)}" if row.writer else "")
                + " while this process could not be reached. Open it again to go on."
            )
            raise self._broken

    def _removed(self) -> StorageError:
        return StorageError(f"Session {self.session_id} was removed while it was open. Start a new session.")

    async def take_rewritten(self) -> tuple[str, ...] | None:
        """See `Journal.take_rewritten`."""
        async with self._order:
            if self._seq:
                await self._follow()
            taken, self._taken = self._taken, None
        return taken

    async def _follow(self) -> None:
        """If the log was rewritten, note which words it lacks."""
        reads = self._logs.database.read

        def look(connection: Connection) -> tuple[int, list[bytes] | None]:
            row = _head(connection, self.session_id)
            if row is None:
                raise self._removed()
            if row.generation == self._generation:
                return row.generation, None
            rows = self._logs.rows(
                self.session_id, most=self._seq, reads=lambda function: function(connection)
            )
            return row.generation, [raw for _, raw in rows]

        generation, lines = await reads(look)
        if lines is not None:
            before, self._kept = self._kept, [zlib.compress(raw, 1) for raw in lines]
            self._generation = generation
            taken = await anyio.to_thread.run_sync(
                lambda: words_taken(map(zlib.decompress, before), lines), limiter=self._lanes.short
            )
            self._taken = (self._taken or ()) + taken
            await anyio.to_thread.run_sync(
                lambda: self._logs.bring(self.path, lambda _: "followed"), limiter=self._lanes.short
            )

    def _close(self) -> None:
        # Each opening takes two records.
        if 0 < self._seq <= 2 * _OFTEN and is_empty(
            log_of(map(self._read_line, self._kept), self.path, self.session_id)
        ):
            with suppress(SatchelError):
                self._logs.database.write_blocking(self._delete_own)
        elif self._seq:
            with suppress(SatchelError, OSError):  # no record names what could not be stored
                self._store_rest()
        self._lease.release()

    def _store_rest(self) -> None:
        beside = self._logs.beside
        if beside.changes(self.session_id, self.spill_dir):

            def write(connection: Connection) -> Changed:
                self._check_own(_head(connection, self.session_id))
                return beside.store(connection, self.session_id, self.spill_dir)

            beside.note(self.session_id, self._logs.database.write_blocking(write))

    def _delete_own(self, connection: Connection) -> None:
        self._check_own(_head(connection, self.session_id))
        _delete(connection, self.session_id)

    @staticmethod
    def _read_line(kept: bytes) -> LogLine:
        raw = zlib.decompress(kept)
        record, reason = decode_line(raw)
        return LogLine(number=1, start=0, end=0, raw=raw, record=record, reason=reason)
