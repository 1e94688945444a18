"""The sessions of a home: create, open, list, search, export, delete and redact their logs, and post into them."""

from __future__ import annotations

import builtins
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeVar

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.errors import NotFound, SessionInUse, StorageError, StorageLocked, StorageUnwritable, UsageError
from satchel.events import Record, SessionStart
from satchel.sessions.branches import as_listed, by_age, told_once
from satchel.sessions.branching import write_branch
from satchel.sessions.client_history import ClientHistory
from satchel.sessions.compressing import Replaced
from satchel.sessions.ephemeral import EphemeralJournal
from satchel.sessions.export import Told, told_as_json, told_as_markdown, write_archive
from satchel.sessions.files import FileLogs
from satchel.sessions.inbox import Inbox
from satchel.sessions.index import SearchHit, SessionIndex
from satchel.sessions.journal import Hold, Journal, Lanes, unwritable
from satchel.sessions.listing import ConversationPart
from satchel.sessions.log import Log, is_compressed, log_of
from satchel.sessions.logs import LogFile, Logs, name_of
from satchel.sessions.places import FORBIDDEN_IN_IDS, bucket_name, log_name, session_id_of
from satchel.sessions.redaction import (
    Matchers,
    Redacted,
    Redaction,
    Sieve,
    Words,
    inbox_redactor,
    live_redactor,
    redact_log,
)
from satchel.sessions.row_requests import PassedOn
from satchel.sessions.summary import SessionInfo, Summary, UsageRow, add_cost, source_of
from satchel.sessions.view import SessionTurn, SessionView
from satchel.storage import Database
from satchel.tools.kept import FOLDER

if TYPE_CHECKING:
    from satchel.sessions.rows import RowLogs

T = TypeVar("T")
_OLD_LOCK_S = 3600.0
_ASK_S = 0.1
_MOST_LOOKS = 600
_MOST_ASKS = 400
"""Another machine that was killed has its sessions for up to 30 seconds."""


def _new_id() -> str:
    """48 random bits as hex digits: short enough to type, and unique for any number of sessions that a person has."""
    return secrets.token_hex(6)


class SessionStore:
    """The sessions of one Satchel home.

    Several processes may use the same home, but a session has one writer at a time. Blocking work runs in worker
    threads, so sessions don't wait for each other; see `Lanes`.

    Attributes:
        client_history: Places in conversations whose history a client holds.
        inbox: What was posted into sessions and waits for their next turn.
    """

    def __init__(
        self,
        root: Path,
        database: Database | None,
        *,
        clock: Clock,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        """Create the store; it touches nothing before the first use.

        Args:
            root: `SATCHEL_HOME/sessions`.
            database: Holds the index and the inboxes. With None, lists and searches read the files. If it is on a
                server, it holds the logs as well.
            clock: Gives the times of events and file names.
            new_id: Gives the ids of new sessions and inbox entries: ASCII letters, digits and hyphens.
        """
        self._root = root
        self._clock = clock
        self._new_id = new_id
        self._lanes = Lanes()
        self._logs: Logs = FileLogs(root, clock=clock, lanes=self._lanes)
        self._rows: RowLogs | None = None
        if database is not None and database.is_on_server:
            from satchel.sessions.rows import RowLogs  # noqa: PLC0415 - most homes have files

            self._logs = self._rows = RowLogs(root, database, clock=clock, lanes=self._lanes)
        self._index = SessionIndex(self._logs, database, self._lanes.long)
        self._open: dict[str, Journal] = {}
        self._found: dict[str, Path] = {}
        self.inbox = Inbox(database, clock=clock, new_id=new_id)
        self.client_history = ClientHistory(database, clock=clock)

    @property
    def is_shared(self) -> bool:
        """Whether other machines write sessions, too."""
        return self._logs.is_shared

    async def create(self, cwd: Path | str, *, session_id: str | None = None) -> Journal:
        """Begin a session. The first append creates its file.

        Raises:
            UsageError: The id has characters that are not allowed, or is in use.
            StorageUnwritable: The home can't be written.
        """
        wanted = session_id or self._new_id()
        hold = await self._run(lambda: self._claim(wanted, is_given=session_id is not None))
        path = self._root / bucket_name(str(cwd)) / log_name(self._clock.now().astimezone(), wanted)
        return self._opened(
            self._logs.begin(path, wanted, hold, cwd=str(cwd), closed=lambda: self._open.pop(wanted, None))
        )

    def _claim(self, wanted: str, *, is_given: bool) -> Hold:
        if FORBIDDEN_IN_IDS.search(wanted) or not 1 <= len(wanted) <= 64:
            raise UsageError(f"{wanted!r} can't be a session's id: use up to 64 letters, digits and hyphens.")
        # An id of 48 random bits is new, and looking through all logs takes longer the more there are.
        if is_given and any(session_id_of(path) == wanted for path in self._logs.paths(wanted)):
            raise UsageError(f"A session {wanted} exists already.")
        return self._logs.hold(wanted)

    def _opened(self, journal: Journal) -> Journal:
        self._open[journal.session_id] = journal
        return journal

    async def branch(self, session_id: str, turn: int, *, undoes: bool = False) -> str:
        """Make a session that repeats another one up to a turn, to go on otherwise from there. The other one stays.
        `turn` is the first one that is not repeated. With `undoes`, what the file tools changed in those that are can
        be undone in it as well.

        Returns:
            The id of the branch.

        Raises:
            NotFound: There is no such session or turn.
            UsageError: Several ids begin like this.
            StorageUnwritable, StorageError: The log can't be read or written.
        """
        info = await self.info(session_id)
        if not 1 <= turn <= info.turns + 1:
            raise NotFound(f"Session {info.id} has no turn {turn}.")
        id = self._new_id()
        path = info.path.parent / log_name(self._clock.now().astimezone(), id)
        await self._run(
            lambda: write_branch(
                self._logs, info.path, info.id, turn=turn, path=path, session_id=id, undoes=undoes
            ),
            lane=self._lane_of(info.path),
        )
        return id

    async def repeating(
        self, session_id: str, turn: int | None, *, project: str | None = None
    ) -> Sequence[str]:
        """The ids of the branches that repeat a turn of a session, or any of it: also branches of branches. With the id
        of a project, those that are in it. An imported branch may have any turn: which one was current was another at
        each import.
        """
        return [
            info.id
            for info in await self._index.sessions()
            if (before := info.repeats.get(session_id)) is not None
            and (turn is None or source_of(info.id) or turn < before)
            if project in (None, info.project)
        ]

    async def places(self) -> dict[str, Path]:
        """Where the logs are, by the ids of their sessions."""
        found = await self._run(self._logs.paths)
        self._found = {id: path for path in found if (id := session_id_of(path)) is not None}
        return dict(self._found)

    def place(self, session_id: str, cwd: str, started_at: datetime) -> Path:
        """Where the log of a session that began then goes."""
        return self._root / bucket_name(cwd) / log_name(started_at.astimezone(), session_id)

    async def write(self, path: Path, session_id: str, records: Sequence[Record]) -> None:
        """Write the log of a session that was held elsewhere, whose memories are stored. It is durable then. The files
        that the records name are there.

        Raises:
            SessionInUse: Another process does the same, or has done it meanwhile.
            UsageError: The id has characters that are not allowed.
            StorageUnwritable, StorageError: It can't be written. There is no log.
        """
        if FORBIDDEN_IN_IDS.search(session_id):
            raise UsageError(f"{session_id!r} can't be a session's id.")

        def write() -> LogFile | None:
            hold = self._logs.hold(session_id)
            try:
                if self._logs.file(path) is not None:
                    raise SessionInUse(f"A session {session_id} exists already.")
                self._logs.create(path, session_id, records)
                return self._logs.file(path)
            except OSError as error:
                raise unwritable(path, error) from error
            finally:
                hold.release()

        file = await self._run(write, lane=self._lanes.long)
        if file is not None:
            await self.settle(file)

    def ephemeral(self, cwd: Path | str) -> EphemeralJournal:
        """Begin a session that leaves nothing on disk."""
        return EphemeralJournal(session_id=self._new_id(), cwd=str(cwd), clock=self._clock)

    async def open(self, session_id: str, *, visit: Callable[[Record], object] | None = None) -> Journal:
        """Open a session for writing.

        Args:
            session_id: The session's id, or the beginning of one if it is unique.
            visit: Called with each record of the log, in order, in a worker thread. A large log is thus never in memory
                as a whole, and does not occupy the event loop.

        Raises:
            NotFound: There is no such session.
            UsageError: Several ids begin like this.
            SessionInUse: The session is open already; the message names the process.
            StorageUnwritable, StorageError: The log can't be written or read.
        """
        path, full_id = await self._run(lambda: self._find(session_id))
        hold = await self._hold(full_id)
        costs: dict[str, float] = {}
        cwds: builtins.list[str] = []

        def take(record: Record) -> None:
            if isinstance(record.event, SessionStart):
                cwds.append(record.event.cwd)
            add_cost(costs, record)
            if visit is not None:
                visit(record)

        try:
            await self._replace(path, self._logs.expand)
            journal = await self._run(
                lambda: self._logs.resume(
                    path,
                    full_id,
                    hold,
                    visit=take,
                    costs=costs,
                    closed=lambda: self._open.pop(full_id, None),
                ),
                lane=self._lane_of(path),
            )
            journal.cwd = cwds[0] if cwds else ""
            return self._opened(journal)
        except BaseException:
            await self._release(hold)
            raise

    async def last(self, cwd: Path | str, *, project: str = "") -> SessionInfo | None:
        """The session of a working directory that the user held here last, or that of a project, whatever the folder;
        leaving out archived ones, those without a message, and those that other programs hold or brought. Or None.
        """
        bucket = bucket_name(str(cwd))
        held: frozenset[str] = frozenset()
        with suppress(StorageError):
            held = await self.client_history.sessions()
        for info in await self._index.sessions():
            belongs = info.project == project and (bool(project) or info.path.parent.name == bucket)
            is_users = not (info.is_build or info.is_elsewhere or info.id in held)
            if belongs and is_users and info.turns and not info.archived:
                return info
        return None

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, those that were active last first."""
        return await self._index.sessions()

    async def listed(self, *, archived: bool = False) -> Sequence[SessionInfo]:
        """What lists of conversations show: each with its branches as one entry (see `folded`), without builds, pinned
        ones first, and either the archive or the rest.
        """
        infos = [
            info
            for info in await self._index.conversations()
            if info.archived == archived and not info.is_build and (info.turns or not info.branch_of)
        ]
        return sorted(infos, key=lambda info: not info.pinned)

    async def part(self, *, archived: bool = False, first: int = 0, most: int) -> ConversationPart:
        """The entries from the place `first` on of what `listed` returns, but for those in which nothing was said. It
        takes no longer where there are more of them.
        """
        return await self._index.part(archived=archived, first=first, most=most)

    async def first_look(self) -> None:
        """Read all logs into the index, once for a home, so that `part` reads only what changed. It may take long, and
        whoever lists sessions meanwhile doesn't wait for it.
        """
        await self._index.first_look()

    async def branches(self, of: SessionInfo | str) -> Sequence[SessionInfo]:
        """All branches of the conversation of a session that are in its project, with itself, the oldest first. Errors
        as in `load`.
        """
        wanted = await self.info(of) if isinstance(of, str) else of
        others = [info for info in await self._index.family(wanted) if info.id != wanted.id]
        return by_age([wanted, *others])

    async def spent_on(self, day: str) -> float:
        """What all sessions of the home spent on a local day, in US dollars: a sum of the server's, or that of `spent`.
        The day is in ISO 8601.
        """
        known = await self._logs.spent(day)
        return known if known is not None else sum(row.usage.cost_usd or 0.0 for row in await self.spent(day))

    async def spent(self, day: str) -> Sequence[UsageRow]:
        """The same by session, model and purpose. It waits for no index, and doesn't make one: of logs that are not in
        the index, it reads those that were written on that day.
        """
        return await self._index.spent(day)

    async def info(self, session_id: str) -> SessionInfo:
        """One session, by its id or the unique beginning of it. Errors as in `load`."""
        summary = Summary()
        log = await self.load(session_id, visit=summary.feed)
        info = summary.info(log.session_id, log.path)
        if info is None:
            raise StorageError(f"Nothing in the log {log.path} can be read.")
        return info

    async def load(self, session_id: str, *, visit: Callable[[Record], object] | None = None) -> Log:
        """Read a session, even while it is open elsewhere.

        Args:
            session_id: The session's id, or the beginning of one if it is unique.
            visit: Called with each record, in order, in a worker thread. `Log.records` then stays empty.

        Raises:
            NotFound, UsageError: As in `open`.
            StorageError: The log can't be read.
        """
        path, full_id = await self._run(lambda: self._find(session_id))
        return await self._run(
            lambda: log_of(self._logs.lines(path), path, full_id, visit=visit), lane=self._lane_of(path)
        )

    async def read_turns(self, session_id: str, visit: Callable[[SessionTurn], object]) -> Log:
        """Read a session turn by turn: `visit` gets each in order, in a worker thread. Errors as in `load`."""
        view = SessionView(visit)
        log = await self.load(session_id, visit=view)
        visit(view.turn)
        return log

    async def turn(self, session_id: str, number: int) -> SessionTurn | None:
        """Read one turn of a session; None if it has no such turn. Errors as in `load`."""
        found: list[SessionTurn] = []
        await self.read_turns(session_id, lambda turn: found.append(turn) if turn.number == number else None)
        return found[0] if found else None

    async def records(self, session_id: str, *, after_seq: int = 0, limit: int = 1000) -> tuple[Record, ...]:
        """Read the records of a session with numbers above `after_seq`, even while it is open elsewhere.

        The records before them are not decoded and, from the second call on, mostly not read.

        Args:
            session_id: The session's id, or the beginning of one if it is unique.
            after_seq: 0 starts at the first record.
            limit: The most to return. Large records come fewer at a time; an empty result means that there are no more.

        Raises:
            NotFound, UsageError: As in `open`.
            StorageError: The log can't be read.
        """
        path, _ = await self._run(lambda: self._find(session_id))
        return await self._run(lambda: self._logs.records(path, after_seq=after_seq, limit=limit))

    async def state(self, info: SessionInfo) -> LogFile | None:
        """The state of a session's log, which is another one when the log has changed; None if it is gone."""
        return (await self.states([info]))[0]

    async def states(self, infos: Sequence[SessionInfo]) -> Sequence[LogFile | None]:
        """The same for several sessions, in their order."""
        return await self._run(lambda: [self._logs.file(info.path) for info in infos])

    # The inbox

    async def post(self, session_id: str, *, source: str, text: str, untrusted: bool = False) -> str:
        """Put an entry into a session's inbox. The session may be closed, or open in any process. The session is named
        by its id or a unique beginning of it. The text has at most `inbox.MAX_CHARS` characters; the caller has removed
        secrets.

        Returns:
            The entry's id.

        Raises:
            NotFound: There is no such session.
            UsageError: The text is empty or too long, the inbox is full, or several ids begin like this.
            StorageError: The database is unavailable.
        """
        _, full_id = await self._run(lambda: self._find(session_id))
        return await self.inbox.post(full_id, source=source, text=text, untrusted=untrusted)

    async def search(self, query: str, *, limit: int = 20) -> Sequence[SearchHit]:
        """Search what was said and the inputs and outputs of tools, in all sessions.

        Args:
            query: Words that must all be there, or begin a word that is. Case and accents are ignored. Words in `"…"`
                must follow each other.
            limit: The most hits to return.

        Raises:
            UsageError: The query is empty.
        """
        if not query.strip():
            raise UsageError("There is nothing to search for: give at least one word.")
        return await self._index.search(query, limit=limit)

    async def told(self, session_id: str) -> builtins.list[tuple[SessionInfo, int]]:
        """A conversation in the order in which a file tells it: the session with 0, then its other branches, each
        with the first turn that was not told before. Others that are private are left out: a file, or a program, tells
        what was asked for to somebody else. Errors as in `load`.
        """
        info = await self.info(session_id)
        family = [each for each in await self.branches(info) if each.id == info.id or not each.private]
        others = [each for each in family if each.id != info.id]
        return builtins.list(told_once([as_listed(info, family), *others]))

    async def export(self, session_id: str, *, form: Literal["markdown", "json"]) -> str:
        """The whole conversation as text, with its branches. Errors as in `load`."""
        told = await self._told_with_records(session_id)
        return told_as_markdown(told) if form == "markdown" else told_as_json(told)

    async def export_with_files(self, session_id: str, target: BinaryIO) -> None:
        """Write the whole conversation as a zip with its files; see `write_archive`. Errors as in `load`.

        Raises:
            StorageUnwritable: It can't be written.
        """
        told = await self._told_with_records(session_id)
        folders = [await self.folder_of(info, FOLDER) for info, _, _ in told]
        try:
            await self._run(lambda: write_archive(target, told, folders))
        except OSError as error:
            raise StorageUnwritable(f"The archive can't be written: {error.strerror}.") from error

    async def _told_with_records(self, session_id: str) -> builtins.list[Told]:
        return [
            (info, first, (await self.load(info.id)).records) for info, first in await self.told(session_id)
        ]

    async def delete(self, session_id: str, *, by_user: bool = True) -> str:
        """Delete a session: its log, its spilled results, its inbox, and its words in the index. An imported one that
        the user deletes stays away from later imports.

        Returns:
            The full id.

        Raises:
            NotFound, UsageError: As in `open`.
            StorageLocked: The session is open, or another process holds the database. Nothing was deleted.
            StorageUnwritable: The log can't be removed.
        """
        path, full_id = await self._run(lambda: self._find(session_id))
        hold = await self._hold(full_id)
        try:
            # First, because this can fail: what waits for a session that is gone would stay for ever.
            await self.inbox.remove(full_id)
            await self.client_history.remove(full_id)
            if by_user and source_of(full_id):
                await self.client_history.mark_deleted(full_id)
            await self._run(lambda: self._logs.remove(path))
        finally:
            await self._release(hold)
        await self._index.forget([name_of(self._root, path)])
        return full_id

    async def compress(self, info: SessionInfo) -> bool:
        """Compress the log of a session. It is read as before, and is plain again when the session goes on.

        Returns:
            Whether it was compressed now. It is not if it was already, or if somebody has the session open.

        Raises:
            StorageUnwritable, StorageError: It can't be read or replaced, and is unchanged.
        """
        if self._logs.is_shared or await self._run(lambda: is_compressed(info.path)):
            return False
        try:
            hold = await self._run(lambda: self._logs.hold(info.id))
        except SessionInUse:
            return False
        try:
            return await self._replace(info.path, self._logs.compress)
        finally:
            await self._release(hold)

    async def _replace(self, path: Path, how: Callable[[Path], Replaced | None]) -> bool:
        """Replace a log that is held by one with the same lines. Returns whether it was replaced."""
        states = await self._run(lambda: how(path), lane=self._lane_of(path))
        if states is not None:
            # Where that fails, the index reads the log again.
            with suppress(StorageError):
                await self._index.replaced(path, *states)
        return states is not None

    async def redact(
        self,
        words: Sequence[Words],
        *,
        memory_ids: Collection[str] = (),
        told: Collection[str] = (),
        only_open: bool = False,
    ) -> Redaction:
        """Remove words from all logs, spilled results and inboxes and from the index, and put "[forgotten]" in their
        place. Blocks that were added to conversations of clients are emptied.

        A session that is open, here or in another process, continues in the rewritten log. A program that has its
        messages in memory must rebuild them (`Redacted.open_in`). A log that can't be rewritten stays as it is and is
        named in the result; the others are rewritten. Any of the words may stand in the sessions `told`, whatever
        session they are from. Memories that were surfaced with `memory_ids` are forgotten, too. With `only_open`, the
        logs that nobody writes now are left out.
        """
        if not words and not memory_ids:
            return Redaction()
        matchers = Matchers()
        sieve = Sieve(words, memory_ids, matchers)
        await self.client_history.forget(memory_ids, without=live_redactor(words, matchers))
        places: builtins.list[Logs] = [self._logs]
        if self._logs.is_shared:
            # Files that wait until they can be moved to the server.
            places.append(FileLogs(self._root, clock=self._clock, lanes=self._lanes))
        found = [(logs, path) for logs in places for path in await self._run(logs.paths)]
        anywhere = [Words(text=text) for text in sorted({one.text for one in words})] if told else []
        done: builtins.list[Redacted] = []
        stale: builtins.list[str] = []
        for logs, path in found:
            session_id = session_id_of(path) or ""
            if only_open and await self._run(partial(logs.writer, session_id)) is None:
                continue
            try:
                entry = await self._run(
                    lambda logs=logs, path=path, session_id=session_id: redact_log(  # type: ignore[misc]
                        logs,
                        path,
                        session_id,
                        words=anywhere if session_id in told else words,
                        memory_ids=memory_ids,
                        matchers=matchers,
                        sieve=None if session_id in told else sieve,
                    ),
                    lane=self._lanes.long,
                )
            except StorageError as error:
                entry = Redacted(session_id=session_id, error=str(error))
            if entry is not None:
                open_in = await self._run(partial(logs.writer, session_id))
                done.append(replace(entry, open_in=open_in))
                stale.append(name_of(self._root, path))
        # Includes the logs that an earlier, interrupted call rewrote.
        stale += await self._index.outdated()
        if await self.inbox.rewrite(inbox_redactor(words, matchers)) or stale:
            await self._index.forget(stale)
        return Redaction(sessions=tuple(done))

    async def unsettled(self) -> Sequence[LogFile]:
        """The logs that have changed since `settle`. What was said in them may be missing from memory.

        Returns:
            Their ids and states, the newest first. Without a database, all logs.

        Raises:
            StorageError: The database is unavailable.
        """
        await self._run(lambda: self._logs.sweep(self._clock.now().timestamp() - _OLD_LOCK_S))
        return await self._index.unsettled()

    async def settle(self, file: LogFile) -> None:
        """Note that everything said in a log, in the state that `unsettled` returned, is in memory.

        Raises:
            StorageError: The database is unavailable.
        """
        await self._index.settle(file)

    async def folder_of(self, info: SessionInfo, beginning: str = "") -> Path:
        """The folder beside the log of a session, with the files whose names begin like this in it.

        Raises:
            StorageUnwritable, StorageError: They can't be read or written.
        """
        await self._run(lambda: self._logs.fetch(info.path, beginning))
        return info.path.with_suffix(".spill")

    async def files_beside(
        self, beginning: str, session_id: str = "", *, fetches: bool = True
    ) -> builtins.list[Path]:
        """The files beside the logs, or one of them, whose names begin like this. Errors as in `folder_of`."""

        def find() -> builtins.list[Path]:
            found = self._logs.named(beginning, session_id)
            for log in {_log_of(path) for path in found} if fetches else ():
                self._logs.fetch(log, beginning)
            return found

        return await self._run(find)

    async def keep_files(self, paths: Collection[Path]) -> None:
        """Keep files beside logs that are closed. Errors as in `folder_of`."""
        for log in {_log_of(path) for path in paths}:
            await self._run(lambda: self._logs.keep(log, [one for one in paths if _log_of(one) == log]))  # noqa: B023

    async def remove_files(self, paths: Collection[Path]) -> None:
        """Remove files beside logs. Errors as in `folder_of`."""
        for log in {_log_of(path) for path in paths}:
            here = [one for one in paths if _log_of(one) == log]
            await self._run(lambda: self._logs.remove_files(log, here))  # noqa: B023

    async def damaged_files(self) -> Sequence[str] | None:
        """Session and name of the files beside logs that are not what was stored; None where all files are here.

        Raises:
            StorageError: The database failed.
        """
        return await self._run(self._logs.damaged)

    async def writer(self, session_id: str, *, keeps: bool = False) -> int | None:
        """The process that has a session open for writing, this one included; None if none has. With `keeps`, a process
        that gives it up if it is asked and idle is left out.
        """
        return await self._run(lambda: self._logs.writer(session_id, keeps=keeps))

    async def open_elsewhere(self) -> Mapping[str, tuple[int, int]]:
        """The sessions that other processes have open, by full id, with the generation of each log, which another one
        has once it was rewritten, and the number of its newest record. Of logs in files, nothing is known.

        Raises:
            StorageError: The database failed.
        """
        return await self._run(self._logs.open_elsewhere)

    def hand_over(self) -> None:
        """From now on, sessions that this process opens are given up to processes of other machines that ask for them:
        the caller looks for `asked` again and again.
        """
        self._logs.hands_over = True

    async def asked(self) -> Sequence[str]:
        """The sessions that are open here and that other processes ask for.

        Raises:
            StorageError: The database failed.
        """
        return await self._run(self._logs.asked)

    async def refuse(self, session_id: str) -> None:
        """Tell whoever asks for a session that something runs in it. Errors as in `asked`."""
        await self._run(lambda: self._logs.refuse(session_id))

    async def chosen(self, session_id: str) -> str:
        """What was noted with `note_chosen` for a session, by its full id. Errors as in `asked`."""
        return await self._run(lambda: self._logs.chosen(session_id))

    async def note_chosen(self, session_id: str, chosen: str) -> None:
        """Note what was chosen for a session that is open here. Whoever opens it next, on a server and within a minute,
        finds it in `Journal.chosen`. Errors as in `asked`.
        """
        await self._run(lambda: self._logs.note_chosen(session_id, chosen))

    # Requests for what another server has open

    async def check_served(self, session_id: str) -> None:
        """Check that no other server has a session open, by its full id.

        Raises:
            SessionInUse: One has, and carries out requests for it; see `pass_on`.
            StorageError: The database failed.
        """
        if (rows := self._rows) is not None:
            await self._run(lambda: rows.check_served(session_id))

    async def pass_on(self, session_id: str, sealed: Callable[[int], bytes]) -> bytes | None:
        """Have the server that has a session open carry out a request, and wait for its answer.

        Args:
            session_id: The full id.
            sealed: Gives what is passed on, by the epoch of the writer that it is for.

        Returns:
            The answer. None if it was not carried out, because no other server has the session open any more.

        Raises:
            StorageLocked: There is no answer. The message says whether it may have been carried out.
            StorageError: The database failed, and the same is unknown.
        """
        rows = self._rows
        row = await self._run(lambda: rows.served(session_id)) if rows is not None else None
        if rows is None or row is None:
            return None
        requests = rows.requests
        number = await self._run(lambda: requests.put(row, sealed(row.epoch)))
        try:
            for _ in range(_MOST_LOOKS):
                has_it = await self._run(lambda: rows.is_at(session_id, row.epoch))
                if (found := await self._run(lambda: requests.answer_to(number))) is not None:
                    return found
                if not has_it:
                    if await self._run(lambda: requests.withdraw(number)):
                        return None
                    raise StorageLocked(
                        f"The server that had session {session_id} open gave it up, or has ended. Look whether it was "
                        "done."
                    )
                await anyio.sleep(_ASK_S)
            done = "was not" if await self._run(lambda: requests.withdraw(number)) else "may yet be"
            raise StorageLocked(f"The server that has session {session_id} doesn't answer. It {done} done.")
        finally:
            with anyio.CancelScope(shield=True), suppress(StorageError):
                await self._run(lambda: requests.withdraw(number, taken=True))

    async def passed_on(self) -> Sequence[PassedOn]:
        """The requests that other servers passed on to this one. They are not returned again: carry each out, and
        `answer_passed` it.

        Raises:
            StorageError: The database failed.
        """
        return await self._run(self._rows.take_requests) if self._rows is not None else []

    async def answer_passed(self, number: int, content: bytes) -> None:
        """Answer a request that was passed on. Errors as in `passed_on`."""
        if (rows := self._rows) is not None:
            await self._run(lambda: rows.requests.answer(number, content))

    async def _hold(self, session_id: str) -> Hold:
        """Hold a session. A server that has it open is asked for it, and one that was killed is waited for."""
        for number in range(_MOST_ASKS):
            if not number or await self._run(partial(self._logs.ask, session_id, again=number > 1)):
                try:
                    return await self._run(lambda: self._logs.hold(session_id))
                except SessionInUse:
                    if session_id in self._open:
                        raise
            else:
                await anyio.sleep(_ASK_S)
        return await self._run(lambda: self._logs.hold(session_id))

    async def _release(self, hold: Hold) -> None:
        # Also where the caller is cancelled.
        with anyio.CancelScope(shield=True):
            await self._run(hold.release)

    def _find(self, prefix: str) -> tuple[Path, str]:
        wanted = prefix.strip()
        # Looking through all names for each of many sessions takes the square of their number.
        if (known := self._found.get(wanted)) is not None and (file := self._logs.file(known)) is not None:
            return file.path, wanted
        found: dict[str, Path] = {}
        for path in self._logs.paths(wanted):
            session_id = session_id_of(path) or ""
            if session_id == wanted:
                self._found[wanted] = path
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
            f"There is no conversation {wanted!r}. `satchel session list` shows the existing ones."
        )

    def _lane_of(self, path: Path) -> anyio.CapacityLimiter:
        return self._lanes.short if self._logs.is_small(path) else self._lanes.long

    async def _run(self, function: Callable[[], T], *, lane: anyio.CapacityLimiter | None = None) -> T:
        return await anyio.to_thread.run_sync(function, limiter=lane or self._lanes.short)


def _log_of(file: Path) -> Path:
    """The log that a file is beside."""
    folder = next(each for each in file.parents if each.suffix == ".spill")
    return folder.with_suffix(".jsonl")
