"""Entries that others post into sessions, such as a finished build, until the next turn delivers them.

The inbox is in the database, so that any process of the home can post into a session that another process has open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from satchel.clock import Clock
from satchel.errors import StorageError, UsageError
from satchel.events import Posted
from satchel.plain import storable
from satchel.sessions.tables import session_inbox
from satchel.storage import Database, Prepared

MAX_CHARS = 20_000
"""The limit of one entry: two thirds of the default limit of a tool result, because the model did not ask for it."""
_MAX_WAITING = 1000
"""The most entries that may wait for one session. Only a program that posts in a loop reaches it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_WAITING = Prepared(
    select(session_inbox)
    .where(session_inbox.c.session_id == bindparam("session"))
    .order_by(session_inbox.c.number)
)
_NEWEST = Prepared(select(func.coalesce(func.max(session_inbox.c.number), 0)))


class Inbox:
    """The inboxes of all sessions of a home."""

    def __init__(self, database: Database | None, *, clock: Clock, new_id: Callable[[], str]) -> None:
        """Without a database, all inboxes are empty and nothing can be posted."""
        self._database = database
        self._clock = clock
        self._new_id = new_id

    async def post(self, session_id: str, *, source: str, text: str, untrusted: bool) -> str:
        """See `SessionStore.post`; `session_id` is a full id."""
        if not text.strip():
            raise UsageError("There is nothing to post: the text is empty.")
        if len(text) > MAX_CHARS:
            raise UsageError(f"A post has at most {MAX_CHARS:,} characters; this one has {len(text):,}.")
        if self._database is None:
            raise StorageError("The database is unavailable, so nothing can be posted into a session now.")
        entry_id = self._new_id()
        row = {
            "id": entry_id,
            "session_id": session_id,
            "source": storable(source),
            "kind": "notice",
            "text": storable(text),
            "untrusted": int(untrusted),
            "posted_at": (self._clock.now() - _EPOCH) // timedelta(microseconds=1),
        }

        def write(connection: Connection) -> None:
            waiting = select(func.count()).where(session_inbox.c.session_id == session_id)
            if connection.execute(waiting).scalar_one() >= _MAX_WAITING:
                raise UsageError(
                    f"{_MAX_WAITING:,} entries are waiting in the inbox of session {session_id}."
                )
            connection.execute(insert(session_inbox).values(row))

        await self._database.write(write)
        return entry_id

    async def waiting(self, session_id: str, *, delivered: Collection[str] = ()) -> Sequence[Posted]:
        """What is in a session's inbox, in the order of arrival.

        Args:
            session_id: The full id.
            delivered: Ids of entries to leave out: those named by `TurnStart` events of the log. They prevent a second
                delivery after the program was killed between writing that event and calling `delivered`.

        Raises:
            StorageError: The database is unavailable.
        """
        if self._database is None:
            return ()
        rows = await self._database.read(
            lambda connection: _WAITING.named(connection, {"session": session_id})
        )
        return tuple(
            Posted(id=row.id, source=row.source, text=row.text, untrusted=bool(row.untrusted))
            for row in rows
            # SQLite takes values of any type in any column, so a file that something else wrote may have them.
            if row.id not in delivered
            and all(isinstance(each, str) for each in (row.id, row.source, row.text))
        )

    async def delivered(self, ids: Collection[str]) -> None:
        """Remove entries that a turn has delivered. Unknown ids are ignored.

        Raises:
            StorageError: The database is unavailable. The entries are still there.
        """
        if self._database is not None and ids:
            gone = delete(session_inbox).where(session_inbox.c.id.in_(ids))
            await self._database.write(lambda connection: connection.execute(gone))

    async def version(self) -> int:
        """A number that changes when any process posts into any session: one short read, for polling.

        Raises:
            StorageError: The database is unavailable.
        """
        if self._database is None:
            return 0
        ((version,),) = await self._database.read(lambda connection: _NEWEST.run(connection, {}))
        return int(version)

    async def remove(self, session_id: str) -> None:
        """Empty the inbox of a session that is being deleted."""
        if self._database is not None:
            gone = delete(session_inbox).where(session_inbox.c.session_id == session_id)
            await self._database.write(lambda connection: connection.execute(gone))

    async def rewrite(self, change: Callable[[str, str], str]) -> bool:
        """Replace the text of each entry by `change(session_id, text)`. Returns whether any text changed."""
        if self._database is None:
            return False

        def write(connection: Connection) -> bool:
            changed = False
            for row in connection.execute(select(session_inbox)).all():
                text = change(row.session_id, row.text)
                if text != row.text:
                    connection.execute(
                        update(session_inbox).where(session_inbox.c.number == row.number).values(text=text)
                    )
                    changed = True
            return changed

        return await self._database.write(write)
