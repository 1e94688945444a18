"""Lists and searches sessions. The files are the truth; an index in the database, derived from them, makes it fast.

Whatever is wrong with the database (locked, corrupt, full, missing), the answers are the same, only slower, because
they come from the files.
"""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection, delete, func, insert, select, text, update

from satchel.errors import StorageError, StorageLocked
from satchel.plain import storable
from satchel.sessions.branches import folded
from satchel.sessions.listing import (
    ConversationPart,
    InfoOf,
    entries_of,
    entry_of,
    members,
    part,
    part_of,
    relist,
    relist_all,
    spent_since,
)
from satchel.sessions.logs import LogChanges, LogFile, Logs, name_of, path_of
from satchel.sessions.places import session_id_of
from satchel.sessions.summary import LogPassage, SessionInfo, Summary, UsageRow, passages_of, plain_line
from satchel.sessions.tables import (
    session_entry,
    session_folder,
    session_log,
    session_passage,
    session_settled,
)
from satchel.storage import Database

T = TypeVar("T")

_PAGE_S = 0.5
"""How long a page waits for others that write to the index, before it looks at the logs themselves."""
_SLICE_CHARS = 250_000
"""The text that one transaction adds or removes. It keeps the database's only writer busy for about 10 ms, and turns
need that writer to store what was said."""
_MERGE_PAGES = 64
"""Pages of 4 KB that one step of a merge writes, for the same reason."""
_SNIPPET_CHARS = 160
_EASTERNMOST: Final = timezone(timedelta(hours=14))
"""The zone in which a day begins first."""
_MORE = 100
"""How many times as many passages as are wanted are looked through for words that follow each other, on a server."""
_MOST_NAMES = 500
"""The most rows that one statement deletes."""
_TERM = re.compile(r'"([^"]+)"|(\S+)')
_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces between words. The index holds them as whole runs, so their words are searched for in the text.
_INSERT_ON_SERVER = text(
    "INSERT INTO session_passage (name, seq, turn, kind, at, text, words) "
    "VALUES (:name, :seq, :turn, :kind, :at, :text, to_tsvector('simple', :words))"
)
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A message, or the input or output of a tool, that contains all the words.

    Attributes:
        title: Of the conversation, whichever branch it is in.
        kind: "user", "assistant", or a tool's "input" or "output".
        snippet: The text around the first word, as one line.
    """

    session_id: str
    title: str
    seq: int
    turn: int
    kind: str
    at: str
    snippet: str


@dataclass(frozen=True, slots=True)
class KnownLog:
    """What is known of a log, and the position up to which it was read."""

    file: LogFile
    offset: int
    lines: int
    summary: Summary

    def is_current(self, file: LogFile) -> bool:
        """Whether the log is in the state in which it was read."""
        return (self.file.inode, self.file.mtime_ns, self.file.size) == (file.inode, file.mtime_ns, file.size)

    def continues_in(self, file: LogFile) -> bool:
        """Whether the log has only grown. If it has changed without growing, somebody edited it."""
        return self.file.inode == file.inode and file.size > self.file.size


@dataclass(frozen=True, slots=True)
class LogReading:
    """What a log holds after the known part. Where only a slice was read, `known.file.size` is the end of the slice."""

    known: KnownLog
    passages: tuple[LogPassage, ...]
    is_from_start: bool


def read_on(
    logs: Logs, file: LogFile, known: KnownLog | None, *, most_chars: int | None = None
) -> LogReading | None:
    """Read a log, or only what was added to it after `known`. Returns None if it can't be read. Stop after passages
    with `most_chars`; None reads to the end and collects no passages.
    """
    if known is not None and not known.continues_in(file):
        known = None
    summary = Summary.from_json(known.summary.to_json()) if known is not None else Summary()
    offset, lines = (known.offset, known.lines) if known is not None else (0, 0)
    passages: list[LogPassage] = []
    chars = 0
    is_first = True
    try:
        for line in logs.lines(file.path, start=offset, number=lines + 1):
            if not line.is_whole:
                break
            if line.record is not None:
                if known is not None and is_first and line.record.seq <= summary.last_seq:
                    # Somebody edited the part that was read before.
                    return read_on(logs, file, None, most_chars=most_chars)
                is_first = False
                summary.feed(line.record)
                if most_chars is not None:
                    # A branch repeats what is found in the other session.
                    found = [p for p in passages_of(line.record) if p.turn >= summary.branch_turn]
                    passages += found
                    chars += sum(len(passage.text) for passage in found)
            offset, lines = line.end, line.number
            if most_chars is not None and chars >= most_chars and offset < file.size:
                file = replace(file, size=offset)
                break
    except StorageError:
        return None
    return LogReading(KnownLog(file, offset, lines, summary), tuple(passages), known is None)


class _Listed(NamedTuple):
    """What pages ask for at each view, and the state of the logs that it was made of."""

    files: list[LogFile]
    infos: list[SessionInfo]
    conversations: list[SessionInfo]


class SessionIndex:
    """The index, which is brought up to date with the files before it answers."""

    def __init__(self, logs: Logs, database: Database | None, limiter: anyio.CapacityLimiter) -> None:
        self._logs = logs
        self._database = database
        self._limiter = limiter
        self._refreshing = anyio.Lock()
        # What was made of a row the last time.
        self._parsed: dict[str, tuple[Any, KnownLog, SessionInfo | None]] = {}
        # What is known of the logs; the stored index may be behind.
        self._reading = anyio.Lock()
        self._latest: dict[str, tuple[KnownLog, SessionInfo | None]] = {}
        self._listed: _Listed | None = None
        self._has_stored = False
        self._is_noted = False
        # What was read of logs for which the stored index is behind, by a budget that stores nothing; and when others
        # were written last.
        self._budgeting = anyio.Lock()
        self._ahead: dict[str, KnownLog] = {}
        self._newest: dict[str, tuple[LogFile, datetime | None]] = {}

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, the one that was active last first."""
        return list((await self._list()).infos)

    async def conversations(self) -> list[SessionInfo]:
        """The same, each with its branches as one entry; see `folded`."""
        return list((await self._list()).conversations)

    async def part(self, *, archived: bool, first: int, most: int) -> ConversationPart:
        """Entries of the list of conversations or of the archive, from the place `first` on. Only these are read."""
        found = await self._from_rows(
            lambda connection: part(connection, self._shown, archived=archived, first=first, most=most)
        )
        if found is None:
            found = part_of((await self._look()).conversations, archived=archived, first=first, most=most)
        return found

    async def family(self, of: SessionInfo) -> list[SessionInfo]:
        """The sessions of the same conversation and project."""
        found = await self._from_rows(lambda connection: members(connection, [entry_of(of)], self._shown))
        return [
            info
            for info in ((await self._look()).infos if found is None else found)
            if entry_of(info) == entry_of(of)
        ]

    async def _from_rows(self, read: Callable[[Connection], T]) -> T | None:
        """Bring the index up to date and read it; None if it has not all logs yet, or others write to it for long."""
        database = self._database
        try:
            if database is None or await self._is_first():
                return None
            async with self._refreshing:
                changes = await database.read(self._logs.changes)
                if changes.is_first:  # a search has replaced a broken index
                    return None
                here = changes.files
                after, is_indexed = await self._bring(here, await self._rows(here), True, wait_s=_PAGE_S)
                if not is_indexed:
                    return None
                await self._note(changes, here, after)
            return await database.read(read)
        except (StorageError, OSError, ValueError, TypeError):
            return None

    async def first_look(self) -> None:
        """Read all logs into the index, once for a home. Meanwhile, and without it, lists come from the logs."""
        with contextlib.suppress(StorageError, OSError):
            if await self._is_first():
                await self._look()  # first, because pages wait for this part
                await self._refresh()

    async def _is_first(self) -> bool:
        if not self._is_noted and self._database is not None:
            self._is_noted = not (await self._database.read(self._logs.changes)).is_first
        return not self._is_noted

    async def _note(
        self, changes: LogChanges, here: Mapping[str, LogFile | None], after: Collection[KnownLog]
    ) -> None:
        """Note that the index has what had changed. The folder of a log that can't be read is looked through again."""
        read = {known.file.name: known.file for known in after}
        if here:
            await anyio.to_thread.run_sync(self._logs.indexed, read.values(), limiter=self._limiter)
        missing = {
            name.partition("/")[0] for name, file in here.items() if file is not None and name not in read
        }
        folders = {name: at for name, at in changes.folders.items() if name not in missing}
        if (changes.is_first or folders) and self._database is not None:
            await self._database.write(
                lambda connection: _note(connection, folders, changes.is_first, self._shown), wait_s=_PAGE_S
            )

    async def _rows(self, names: Collection[str]) -> dict[str, KnownLog]:
        """What the index holds of some logs."""
        if not names or self._database is None:
            return {}
        query = select(session_log).where(session_log.c.name.in_(names))
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return {row.name: self._known(row) for row in rows}

    def _shown(self, row: Any) -> SessionInfo | None:
        return self._info(self._known(row))

    async def spent(self, day: str) -> list[UsageRow]:
        """What all sessions spent on a local day. Nothing is stored: a budget asks before each call of a model, and
        must wait neither for others that write to the database nor for an index. Of logs that the index has not read,
        only those that were written on that day are read.
        """
        infos, files = await self._infos_since(day)
        async with self._budgeting:
            ahead = {name: known for name, known in self._ahead.items() if files.get(name) is not None}
            new = [
                file for file in files.values() if file is not None and not _has(ahead.get(file.name), file)
            ]
            written = await anyio.to_thread.run_sync(self._written_since, new, day, limiter=self._limiter)
            stored: Mapping[str, KnownLog] = {}
            with contextlib.suppress(StorageError, ValueError, TypeError):
                stored = await self._rows([file.name for file in written if file.name not in ahead])
            for file in written:
                known = ahead.pop(file.name, None) or stored.get(file.name)
                if not _has(known, file):
                    reading = await anyio.to_thread.run_sync(
                        read_on, self._logs, file, known, limiter=self._limiter
                    )
                    known = reading.known if reading is not None else None
                if known is not None:
                    ahead[file.name] = known
            self._ahead = ahead
        if files:
            infos = [info for info in infos if name_of(self._logs.root, info.path) not in files]
        infos += filter(None, map(self._info, ahead.values()))
        return [row for info in infos for row in info.spent if row.day == day]

    async def _infos_since(self, day: str) -> tuple[list[SessionInfo], Mapping[str, LogFile | None]]:
        """What the index knows of sessions that spent something since a day, and the logs that it may not have read."""
        if self._database is not None:
            with contextlib.suppress(StorageError, OSError, ValueError, TypeError):
                changes, infos = await self._database.read(
                    lambda connection: (
                        self._logs.changes(connection),
                        spent_since(connection, self._shown, day),
                    )
                )
                if not changes.is_first:
                    return infos, changes.files
        files = await anyio.to_thread.run_sync(self._logs.files, limiter=self._limiter)
        return [], {file.name: file for file in files}

    def _written_since(self, files: Collection[LogFile], day: str) -> list[LogFile]:
        """Those of some logs that may have a record of a local day, wherever it begins first. Blocks."""
        begins = datetime.fromisoformat(day).replace(tzinfo=_EASTERNMOST)
        found: list[LogFile] = []
        newest: dict[str, tuple[LogFile, datetime | None]] = {}
        for file in files:
            seen, at = self._newest.get(file.name, (None, None))
            if seen != file:
                at = self._logs.newest_at(file.path)
            newest[file.name] = file, at
            if at is None or at >= begins:
                found.append(file)
        self._newest = newest
        return found

    async def _list(self) -> _Listed:
        if not self._has_stored:
            # So that the next process needn't read what this one has read. Afterwards, only searches store.
            await self._refresh()
            self._has_stored = True
        return await self._look()

    async def _look(self) -> _Listed:
        """What the logs say now. Only what was added to them is read."""
        async with self._reading:
            files = await anyio.to_thread.run_sync(self._logs.files, limiter=self._limiter)
            if self._listed is not None and self._listed.files == files:
                return self._listed
            if not self._latest:
                self._latest = {k.file.name: (k, self._info(k)) for k in (await self._stored())[0].values()}
            for file in files:
                known, _ = self._latest.get(file.name, (None, None))
                if known is None or not known.is_current(file):
                    reading = await anyio.to_thread.run_sync(
                        read_on, self._logs, file, known, limiter=self._limiter
                    )
                    self._latest.pop(file.name, None)
                    if reading is not None:
                        self._latest[file.name] = reading.known, self._info(reading.known)
            self._latest = {f.name: self._latest[f.name] for f in files if f.name in self._latest}
            found = [info for _, info in self._latest.values() if info is not None]
            infos = sorted(found, key=lambda info: (info.last_at, info.id), reverse=True)
            self._listed = _Listed(files, infos, folded(infos))
            return self._listed

    async def search(self, query: str, *, limit: int) -> list[SearchHit]:
        """Find passages that contain all words of the query, or words that begin with them, best first. Words in `"…"`
        must follow each other. What the Builder said to itself is left out, as it is out of the lists.
        """
        hits = await self._hits(query, limit)
        titles = {id: info.title for info in await self.conversations() for id in info.branches}
        return [replace(hit, title=titles.get(hit.session_id, hit.title)) for hit in hits]

    async def _hits(self, query: str, limit: int) -> list[SearchHit]:
        terms = _terms(query)
        readings, is_indexed = await self._refresh()
        readings = [known for known in readings if not known.file.session_id.startswith("build-")]
        titles = {k.file.name: k for k in readings}
        if is_indexed and terms and not _UNSPACED.search(query) and self._database is not None:
            try:
                rows = await self._database.read(lambda connection: _match(connection, terms, limit))
            except StorageError as error:
                # The full-text index is broken, but the files are not. The next search builds a new index.
                if not isinstance(error, StorageLocked):
                    with contextlib.suppress(StorageError):
                        await self._database.write(_replace_index)
            else:
                return [_hit(titles[name], passage, terms) for name, passage in rows if name in titles]
        return await anyio.to_thread.run_sync(
            _scan,
            self._logs,
            readings,
            terms or [[query.casefold()]],
            limit,
            not terms,
            limiter=self._limiter,
        )

    async def forget(self, names: Iterable[str]) -> None:
        """Remove logs and their words from the index. Logs that still exist are indexed again when it is next used."""
        gone = list(names)
        for name in gone:
            self._parsed.pop(name, None)
            self._latest.pop(name, None)
            self._ahead.pop(name, None)
        self._listed = None
        if self._database is None:
            return
        try:
            await self._remove(gone)
            unsettle = delete(session_settled).where(session_settled.c.name.in_(gone))
            await self._database.write(lambda connection: connection.execute(unsettle))
        except StorageLocked:
            raise
        except StorageError:
            # The full-text index is broken, so it is replaced, whatever words it holds.
            await self._database.write(_replace_index)
        await self._database.scrub()

    async def outdated(self) -> Sequence[str]:
        """Keys of logs that were rewritten or removed after they were read; the index may hold words that are gone."""
        if self._database is None:
            return ()
        files = await anyio.to_thread.run_sync(self._logs.files, limiter=self._limiter)
        rows = await self._database.read(
            lambda connection: connection.execute(select(session_log.c.name, session_log.c.inode)).all()
        )
        here = {file.name: file.inode for file in files}
        return [row.name for row in rows if here.get(row.name) != row.inode]

    async def unsettled(self) -> Sequence[LogFile]:
        """See `SessionStore.unsettled`."""
        files = await anyio.to_thread.run_sync(self._logs.files, limiter=self._limiter)
        if self._database is None:
            return files
        rows = await self._database.read(lambda connection: connection.execute(select(session_settled)).all())
        settled = {row.name: (row.inode, row.mtime_ns, row.size) for row in rows}
        return [file for file in files if settled.get(file.name) != (file.inode, file.mtime_ns, file.size)]

    async def settle(self, file: LogFile) -> None:
        """See `SessionStore.settle`."""
        if self._database is None:
            return

        def write(connection: Connection) -> None:
            connection.execute(delete(session_settled).where(session_settled.c.name == file.name))
            connection.execute(
                insert(session_settled).values(
                    name=file.name, inode=file.inode, mtime_ns=file.mtime_ns, size=file.size
                )
            )

        await self._database.write(write)

    async def replaced(self, path: Path, before: os.stat_result, after: os.stat_result) -> None:
        """Note that a log is another file with the same lines, so that it is not read again for that."""
        name = name_of(self._logs.root, path)
        was, now = (
            LogFile(name, path, session_id_of(path) or "", stat.st_ino, stat.st_mtime_ns, stat.st_size)
            for stat in (before, after)
        )
        known, info = self._latest.get(name, (None, None))
        if _has(known, was):
            self._latest[name] = replace(known, file=now), info
        if _has(known := self._ahead.get(name), was):
            self._ahead[name] = replace(known, file=now)
        if self._database is None:
            return

        def write(connection: Connection) -> None:
            for table in (session_log, session_settled):
                connection.execute(
                    update(table)
                    .where(
                        table.c.name == name,
                        table.c.inode == before.st_ino,
                        table.c.mtime_ns == before.st_mtime_ns,
                        table.c.size == before.st_size,
                    )
                    .values(inode=after.st_ino, mtime_ns=after.st_mtime_ns, size=after.st_size)
                )

        await self._database.write(write)

    async def _refresh(self) -> tuple[list[KnownLog], bool]:
        """Read what has changed since the last time. Also returns whether the index is complete."""
        # One refresh at a time, so that a second one finds the work done.
        async with self._refreshing:
            changes = None
            if self._database is not None:
                with contextlib.suppress(StorageError, OSError):
                    changes = await self._database.read(self._logs.changes)
            files = await anyio.to_thread.run_sync(self._logs.files, limiter=self._limiter)
            here = {file.name: file for file in files}
            after, is_indexed = await self._bring(here, *await self._stored())
            if is_indexed and changes is not None:
                with contextlib.suppress(StorageError):
                    await self._note(changes, here, after)
            return after, is_indexed

    async def _bring(
        self,
        here: Mapping[str, LogFile | None],
        before: Mapping[str, KnownLog],
        is_indexed: bool,
        *,
        wait_s: float | None = None,
    ) -> tuple[list[KnownLog], bool]:
        """Read what has changed in these logs since `before`. Also returns whether the index has all of it. A write to
        it waits for others for up to `wait_s`.
        """
        stale = {
            name
            for name, known in before.items()
            if (file := here.get(name)) is None or not (known.is_current(file) or known.continues_in(file))
        }
        if is_indexed and stale:
            is_indexed = await self._succeeds(self._remove(sorted(stale), wait_s))
        after: list[KnownLog] = []
        for file in filter(None, here.values()):
            known = before.get(file.name) if file.name not in stale else None
            if known is None or not known.is_current(file):
                known, is_indexed = await self._index(file, known, is_indexed, wait_s)
            if known is not None:
                after.append(known)
        return after, is_indexed

    async def _index(
        self, file: LogFile, known: KnownLog | None, stores: bool, wait_s: float | None
    ) -> tuple[KnownLog | None, bool]:
        """Read a log to its end and store it in slices, so that an interrupted call is continued by the next.

        Returns:
            What is known of the log, or None if it can't be read; and whether all of it was stored.
        """
        while True:
            most = _SLICE_CHARS if stores else None
            reading = await anyio.to_thread.run_sync(
                lambda: read_on(self._logs, file, known, most_chars=most),  # noqa: B023 - run before the next round
                limiter=self._limiter,
            )
            if reading is None:
                return None, stores
            if stores and reading.is_from_start and known is not None:
                stores = await self._succeeds(self._remove([file.name], wait_s))
                known = None
            if stores:
                stores = await self._succeeds(self._store(reading, known, wait_s))
            known = reading.known
            if known.file.size == file.size:
                return known, stores

    async def _succeeds(self, writing: Awaitable[bool]) -> bool:
        """Whether a write to the index succeeded. If it did not, the files still answer."""
        try:
            return await writing
        except StorageError:
            return False

    async def _store(self, reading: LogReading, known: KnownLog | None, wait_s: float | None) -> bool:
        """Store a slice that continues `known`. Returns False if another process is indexing the same log."""
        assert self._database is not None
        return await self._database.write(
            lambda connection: _write(connection, self._logs, reading, known, self._shown), wait_s=wait_s
        )

    async def _remove(self, names: Sequence[str], wait_s: float | None = None) -> bool:
        """Remove logs from the index, in many short transactions. Their rows in `session_log` go last, so that the next
        call finishes one that was interrupted.
        """
        assert self._database is not None
        write = partial(self._database.write, wait_s=wait_s)
        removed = 0
        while count := await write(lambda connection: _delete_slice(connection, names)):
            removed += count
        if removed:
            # Deleted words stay in the older segments of the full-text index until all segments are merged into one,
            # which a first step with a negative number of pages begins.
            pages = -_MERGE_PAGES
            while await write(lambda connection: _merge(connection, pages)):  # noqa: B023 - run at once
                pages = _MERGE_PAGES
        await write(lambda connection: _delete_rows(connection, names, self._shown))
        return True

    async def _stored(self) -> tuple[dict[str, KnownLog], bool]:
        """What the index holds of the logs; also whether it could be read."""
        if self._database is None:
            return {}, False
        try:
            rows = await self._database.read(lambda connection: connection.execute(select(session_log)).all())
            found = {row.name: self._known(row) for row in rows}
            self._parsed = {name: self._parsed[name] for name in found}
            return found, True
        except (StorageError, ValueError, TypeError):
            return {}, False

    def _info(self, known: KnownLog) -> SessionInfo | None:
        parsed = self._parsed.get(known.file.name)
        if parsed is not None and parsed[1] is known:
            return parsed[2]
        return known.summary.info(known.file.session_id, known.file.path)

    def _known(self, row: Any) -> KnownLog:
        parsed = self._parsed.get(row.name)
        if parsed is not None and parsed[0] == row:
            return parsed[1]
        known = self._read(row)
        self._parsed[row.name] = row, known, known.summary.info(known.file.session_id, known.file.path)
        return known

    def _read(self, row: Any) -> KnownLog:
        path = path_of(self._logs.root, row.name)
        file = LogFile(row.name, path, row.session_id, row.inode, row.mtime_ns, row.size)
        return KnownLog(file, row.offset, row.lines, Summary.from_json(row.summary))


def _has(known: KnownLog | None, file: LogFile) -> TypeGuard[KnownLog]:
    return known is not None and known.is_current(file)


def _write(
    connection: Connection, logs: Logs, reading: LogReading, known: KnownLog | None, info_of: InfoOf
) -> bool:
    """Store a slice that continues `known`, unless the log or its row has changed since it was read."""
    new = reading.known
    row = connection.execute(
        select(session_log.c.inode, session_log.c.offset, session_log.c.entry).where(
            session_log.c.name == new.file.name
        )
    ).first()
    if (None if row is None else tuple(row[:2])) != (
        None if known is None else (known.file.inode, known.offset)
    ):
        return False  # Another process has indexed this slice.
    if not logs.is_same(connection, new.file):
        return False  # The log was rewritten to forget words, and this slice may contain them.
    info = new.summary.info(new.file.session_id, new.file.path)
    entry = entry_of(info) if info is not None else ""
    connection.execute(delete(session_log).where(session_log.c.name == new.file.name))
    connection.execute(
        insert(session_log).values(
            name=new.file.name,
            session_id=new.file.session_id,
            inode=new.file.inode,
            mtime_ns=new.file.mtime_ns,
            size=new.file.size,
            offset=new.offset,
            lines=new.lines,
            summary=new.summary.to_json(),
            entry=entry,
        )
    )
    relist(connection, {entry, row.entry if row is not None else ""} - {""}, info_of)
    if reading.passages:
        is_file = _is_file(connection)
        connection.execute(
            insert(session_passage) if is_file else _INSERT_ON_SERVER,
            [
                {
                    "name": new.file.name,
                    "seq": passage.seq,
                    "turn": passage.turn,
                    "kind": passage.kind,
                    "at": passage.at,
                    "text": storable(passage.text),
                }
                | ({} if is_file else {"words": storable(_words(passage.text)[:_SLICE_CHARS])})
                for passage in reading.passages
            ],
        )
    return True


def _delete_slice(connection: Connection, names: Sequence[str]) -> int:
    """Delete some passages of these logs, and return how many."""
    found = connection.execute(
        select(session_passage.c.id, func.length(session_passage.c.text))
        .where(session_passage.c.name.in_(names))
        .limit(_MOST_NAMES)
    )
    ids: list[int] = []
    chars = 0
    for id, length in found:
        ids.append(id)
        chars += length
        if chars >= _SLICE_CHARS:
            break
    if ids:
        connection.execute(delete(session_passage).where(session_passage.c.id.in_(ids)))
    return len(ids)


def _delete_rows(connection: Connection, names: Sequence[str], info_of: InfoOf) -> None:
    """Delete what is known of logs. Their folders are looked through again: some of the logs may still be there."""
    entries = entries_of(connection, names)
    connection.execute(delete(session_log).where(session_log.c.name.in_(names)))
    folders = {name.partition("/")[0] for name in names}
    connection.execute(delete(session_folder).where(session_folder.c.name.in_(folders)))
    relist(connection, entries, info_of)


def _note(connection: Connection, folders: Mapping[str, int], is_first: bool, info_of: InfoOf) -> None:
    """Note the states of folders of which the index has all."""
    connection.execute(delete(session_folder).where(session_folder.c.name.in_(["", *folders])))
    noted = {"": 1, **folders}
    rows = [{"name": name, "mtime_ns": mtime_ns} for name, mtime_ns in noted.items() if mtime_ns]
    connection.execute(insert(session_folder), rows)
    if is_first:
        relist_all(connection, info_of)


def _merge(connection: Connection, pages: int) -> bool:
    """One step of merging the segments of the full-text index. Returns whether there may be more to merge."""
    if not _is_file(connection):
        return False
    driver = connection.connection.driver_connection
    assert driver is not None
    before = driver.total_changes
    connection.exec_driver_sql("INSERT INTO session_fts (session_fts, rank) VALUES ('merge', ?)", (pages,))
    # Fewer than two changes mean that nothing was left to merge (sqlite.org/fts5.html).
    return bool(driver.total_changes - before >= 2)


def clear_index(connection: Connection) -> None:
    """Remove all that the index knows, and what was settled: the logs are elsewhere now."""
    for table in (session_log, session_passage, session_settled, session_entry, session_folder):
        connection.execute(delete(table))
    _replace_index(connection)


def _replace_index(connection: Connection) -> None:
    """Replace the whole index by an empty one, as the migration `0002_sessions` made it. The next refresh fills it."""
    if not _is_file(connection):
        return  # What failed there is the connection.
    for table in (session_entry, session_folder):
        connection.execute(delete(table))
    for statement in (
        "DROP TRIGGER IF EXISTS session_passage_insert",
        "DROP TRIGGER IF EXISTS session_passage_delete",
        "DROP TABLE IF EXISTS session_fts",
        "DELETE FROM session_passage",
        "DELETE FROM session_log",
        "CREATE VIRTUAL TABLE session_fts USING fts5(text, content='session_passage', content_rowid='id', "
        "tokenize='unicode61 remove_diacritics 2')",
        "CREATE TRIGGER session_passage_insert AFTER INSERT ON session_passage BEGIN "
        "INSERT INTO session_fts (rowid, text) VALUES (new.id, new.text); END",
        "CREATE TRIGGER session_passage_delete AFTER DELETE ON session_passage BEGIN "
        "INSERT INTO session_fts (session_fts, rowid, text) VALUES ('delete', old.id, old.text); END",
    ):
        connection.exec_driver_sql(statement)


def _terms(query: str) -> list[list[str]]:
    """The terms of a query: single words, or several that must follow each other (quoted, or joined by punctuation)."""
    found = (_WORD.findall(quoted or bare) for quoted, bare in _TERM.findall(query))
    return [[_fold(word) for word in words] for words in found if words]


def _fold(words: str) -> str:
    """Without case and accents, like the index's tokenizer `unicode61 remove_diacritics 2`."""
    decomposed = unicodedata.normalize("NFKD", words)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()


_BUILDS: Final = f"%/{18 * '_'}build-%"
"""The logs of builds, by their name: a folder, the time, and the id of the session."""


def _match(
    connection: Connection, terms: Sequence[Sequence[str]], limit: int
) -> list[tuple[str, LogPassage]]:
    if not _is_file(connection):
        return _match_on_server(connection, terms, limit)
    query = " AND ".join(f'"{storable(" ".join(words))}"*' for words in terms)
    rows = connection.execute(
        text(
            "SELECT p.name, p.seq, p.turn, p.kind, p.at, p.text FROM session_fts "
            "JOIN session_passage p ON p.id = session_fts.rowid "
            "WHERE session_fts MATCH :query AND p.name NOT LIKE :builds "
            "ORDER BY session_fts.rank, p.at DESC LIMIT :limit"
        ),
        {"query": query, "limit": limit, "builds": _BUILDS},
    )
    return [
        (row.name, LogPassage(seq=row.seq, turn=row.turn, kind=row.kind, at=row.at, text=row.text))
        for row in rows
    ]


def _match_on_server(
    connection: Connection, terms: Sequence[Sequence[str]], limit: int
) -> list[tuple[str, LogPassage]]:
    """The same on a server. The last word of each term may go on; the order of words is checked here."""
    patterns = [_pattern(words) for words in terms if len(words) > 1]
    query = " & ".join(f"{word}:*" if word is words[-1] else word for words in terms for word in words)
    rows = connection.execute(
        text(
            "SELECT p.name, p.seq, p.turn, p.kind, p.at, p.text "
            "FROM session_passage p, to_tsquery('simple', :query) query WHERE p.words @@ query "
            "AND p.name NOT LIKE :builds "
            "ORDER BY ts_rank_cd(p.words, query) DESC, p.at DESC LIMIT :most"
        ),
        {"query": storable(query), "most": limit * (_MORE if patterns else 1), "builds": _BUILDS},
    )
    found: list[tuple[str, LogPassage]] = []
    for row in rows:
        folded = _fold(row.text) if patterns else ""
        if all(pattern.search(folded) for pattern in patterns):
            passage = LogPassage(seq=row.seq, turn=row.turn, kind=row.kind, at=row.at, text=row.text)
            found.append((row.name, passage))
            if len(found) == limit:
                break
    return found


def _words(words: str) -> str:
    """The words of a text as they are searched for on a server."""
    return " ".join(_WORD.findall(_fold(words)))


def _is_file(connection: Connection) -> bool:
    return bool(connection.dialect.name == "sqlite")


def _pattern(words: Sequence[str], *, is_literal: bool = False) -> re.Pattern[str]:
    if is_literal or _UNSPACED.search("".join(words)):
        return re.compile(r"[\W_]*".join(re.escape(word) for word in words))
    return re.compile(r"(?<![^\W_])" + r"[\W_]+".join(re.escape(word) for word in words))


def _scan(
    logs: Logs, readings: Sequence[KnownLog], terms: Sequence[Sequence[str]], limit: int, is_literal: bool
) -> list[SearchHit]:
    """Search the logs themselves, the newest first, until there are enough hits."""
    patterns = [_pattern(words, is_literal=is_literal) for words in terms]
    hits: list[SearchHit] = []
    for known in sorted(readings, key=lambda k: k.summary.last_at, reverse=True):
        try:
            for line in logs.lines(known.file.path):
                for passage in passages_of(line.record) if line.record is not None else ():
                    if passage.turn < known.summary.branch_turn:
                        continue
                    words = passage.text.casefold() if is_literal else _fold(passage.text)
                    if all(pattern.search(words) for pattern in patterns):
                        hits.append(_hit(known, passage, terms))
                        if len(hits) == limit:
                            return hits
        except StorageError:
            continue  # The other logs may have hits.
    return hits


def _hit(known: KnownLog, passage: LogPassage, terms: Sequence[Sequence[str]]) -> SearchHit:
    return SearchHit(
        session_id=known.file.session_id,
        title=known.summary.title,
        seq=passage.seq,
        turn=passage.turn,
        kind=passage.kind,
        at=passage.at,
        snippet=_snippet(passage.text, terms[0]),
    )


def _snippet(words: str, term: Sequence[str]) -> str:
    """The text around the first term, as one line; the beginning of the text if accents hide the term."""
    found = re.search(re.escape(term[0]), words, re.IGNORECASE)
    start = max(0, found.start() - _SNIPPET_CHARS // 3) if found else 0
    if start:
        # Begin at a word, if one begins nearby.
        space = words.find(" ", start, start + 20)
        start = space + 1 if space >= 0 else start
    cut = words[start : start + _SNIPPET_CHARS]
    return f"{'…' if start else ''}{plain_line(cut)}{'…' if start + _SNIPPET_CHARS < len(words) else ''}"
