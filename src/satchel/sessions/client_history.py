"""Places in conversations whose history a client holds and sends with every request.

A place is found by the hash of everything that the client sent up to it, so that no id of a client is needed, and a
conversation goes on after a restart. Besides the session, a place keeps the memory that was put there, so that later
requests repeat it byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select, update

from satchel.clock import Clock
from satchel.sessions.tables import session_client_place
from satchel.storage import Database

MOST_PLACES: Final = 50_000
"""About a year of heavy use, and 50 MB with a block of memory at each place. The oldest go first."""
_SPARE: Final = 1_000
"""So many more may be there before the oldest are deleted, because each deletion looks at all."""
_DELETED: Final = "deleted "
_MOST_KEYS: Final = 500
"""In one query; SQLite takes many more."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlace:
    """A place in a conversation that a client holds.

    Attributes:
        key: The hash of all that stands before it, in hexadecimal.
        session_id: The session, or the name under which the conversation is captured.
        number: What finds the place there: a turn, or the number of an event.
        block: What was added to the conversation at this place; "" if nothing was.
        memory_ids: The memories in `block`.
        at: When it was written, in UTC.
    """

    key: str
    session_id: str
    number: int
    block: str = ""
    memory_ids: tuple[str, ...] = ()
    at: datetime = _EPOCH


class ClientHistory:
    """The places of one home."""

    def __init__(self, database: Database | None, *, clock: Clock) -> None:
        """Without a database, no place is ever found."""
        self._database = database
        self._clock = clock

    async def find(self, keys: Sequence[str]) -> Mapping[str, ClientPlace]:
        """The places with these keys, by key; unknown ones are left out.

        Raises:
            StorageError: The database can't be read.
        """
        if self._database is None or not keys:
            return {}
        table = session_client_place

        def read(connection: Connection) -> dict[str, ClientPlace]:
            found: dict[str, ClientPlace] = {}
            for first in range(0, len(keys), _MOST_KEYS):
                query = select(table).where(table.c.key.in_(keys[first : first + _MOST_KEYS]))
                found |= {row.key: _place(row) for row in connection.execute(query)}
            return found

        return await self._database.read(read)

    async def put(self, *places: ClientPlace) -> None:
        """Write places, with the present time; each replaces what was known of its key.

        Raises:
            StorageError: The database can't be written.
        """
        if self._database is None or not places:
            return
        now_us = (self._clock.now() - _EPOCH) // timedelta(microseconds=1)
        table = session_client_place
        rows = [
            {
                "key": place.key,
                "session_id": place.session_id,
                "number": place.number,
                "block": place.block,
                "memory_ids": json.dumps(place.memory_ids),
                "written_at": now_us,
            }
            for place in places
        ]

        def write(connection: Connection) -> None:
            connection.execute(delete(table).where(table.c.key.in_([row["key"] for row in rows])))
            connection.execute(insert(table), rows)
            count = connection.execute(select(func.count()).select_from(table)).scalar_one()
            if count > MOST_PLACES + _SPARE:
                oldest = (
                    select(table.c.key)
                    .where(table.c.session_id != "")
                    .order_by(table.c.written_at)
                    .limit(count - MOST_PLACES)
                )
                connection.execute(delete(table).where(table.c.key.in_(oldest)))

        await self._database.write(write)

    async def last_number(self, session_id: str) -> int:
        """The highest number of a place in this session; 0 if there is none.

        Raises:
            StorageError: The database can't be read.
        """
        if self._database is None:
            return 0
        table = session_client_place
        query = select(func.max(table.c.number)).where(table.c.session_id == session_id)
        return int(await self._database.read(lambda connection: connection.execute(query).scalar()) or 0)

    async def sessions(self) -> frozenset[str]:
        """The ids of the sessions that have places.

        Raises:
            StorageError: The database can't be read.
        """
        if self._database is None:
            return frozenset()
        query = select(session_client_place.c.session_id).distinct()
        return frozenset(
            await self._database.read(lambda connection: connection.execute(query).scalars().all())
        )

    async def remove(self, session_id: str) -> None:
        """Remove the places of a session that is being deleted.

        Raises:
            StorageError: The database can't be written.
        """
        if self._database is not None:
            gone = delete(session_client_place).where(session_client_place.c.session_id == session_id)
            await self._database.write(lambda connection: connection.execute(gone))

    async def mark_deleted(self, session_id: str) -> None:
        """Note that the user deleted an imported session, so that another import leaves it away.

        Raises:
            StorageError: The database can't be written.
        """
        await self.put(ClientPlace(key=f"{_DELETED}{session_id}", session_id="", number=0))

    async def deleted(self) -> frozenset[str]:
        """The ids of the sessions that `mark_deleted` was told of.

        Raises:
            StorageError: The database can't be read.
        """
        if self._database is None:
            return frozenset()
        query = select(session_client_place.c.key).where(session_client_place.c.session_id == "")
        keys = await self._database.read(lambda connection: connection.execute(query).scalars().all())
        return frozenset(key.removeprefix(_DELETED) for key in keys)

    async def drop(self, keys: Sequence[str]) -> None:
        """Remove the places with these keys.

        Raises:
            StorageError: The database can't be written.
        """
        if self._database is not None:
            gone = delete(session_client_place).where(session_client_place.c.key.in_(keys))
            await self._database.write(lambda connection: connection.execute(gone))

    async def forget(
        self,
        memory_ids: Collection[str],
        *,
        without: Callable[[str, str, bool], str] = lambda _, text, __: text,
    ) -> None:
        """Empty the blocks with one of these memories, and those that `without` changes (see `live_redactor`): a
        client's next request goes out without them.

        Raises:
            StorageError: The database can't be written.
        """
        if self._database is None:
            return
        gone = frozenset(memory_ids)
        table = session_client_place

        def write(connection: Connection) -> None:
            rows = connection.execute(
                select(table.c.key, table.c.session_id, table.c.block, table.c.memory_ids).where(
                    # What is noted of a stored response begins so; it holds nothing that was said.
                    (table.c.block != "") & ~table.c.block.startswith("{")
                )
            ).all()
            keys = [
                row.key
                for row in rows
                if not gone.isdisjoint(json.loads(row.memory_ids))
                or without(row.session_id, row.block, True) != row.block
            ]
            for first in range(0, len(keys), _MOST_KEYS):
                found = table.c.key.in_(keys[first : first + _MOST_KEYS])
                connection.execute(update(table).where(found).values(block="", memory_ids="[]"))

        await self._database.write(write, durable=True)


def _place(row: Any) -> ClientPlace:
    return ClientPlace(
        key=row.key,
        session_id=row.session_id,
        number=row.number,
        block=row.block,
        memory_ids=tuple(json.loads(row.memory_ids)),
        at=_EPOCH + timedelta(microseconds=row.written_at),
    )
