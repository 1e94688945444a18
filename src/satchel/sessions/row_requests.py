"""Requests for conversations that another server has open. They reach it as rows, and so do its answers.

A request is for one writer, which is known by its epoch: whoever writes the conversation next doesn't get it. The
writer takes it before it carries it out, so that it is carried out once. Whoever sent it takes it back when nobody can
take it any more. What is in a row is the server's matter, which encrypts it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update

from satchel.sessions.tables import NOW, conversation_requests, conversations
from satchel.storage import Database

_rows: Final = conversation_requests
_LEFT_MS: Final = 600_000
"""A row that is older was left by a server that was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOn:
    """A request that another server passed on.

    Attributes:
        epoch: Of the writer that it is for.
        last_seq: The number of the conversation's newest record at that time.
    """

    number: int
    session_id: str
    epoch: int
    last_seq: int
    content: bytes


@dataclass(frozen=True, slots=True)
class RowRequests:
    """The requests in a database on a server. All methods block."""

    database: Database

    def put(self, row: Any, content: bytes) -> int:
        """Pass a request on to the writer in the row of a conversation. Returns its number."""

        def write(connection: Connection) -> int:
            now = connection.execute(select(NOW)).scalar_one()
            connection.execute(delete(_rows).where(_rows.c.at < now - _LEFT_MS))
            new = {"session_id": row.session_id, "epoch": row.epoch, "last_seq": row.last_seq}
            added = insert(_rows).values({**new, "at": now, "content": content}).returning(_rows.c.number)
            return int(connection.execute(added).scalar_one())

        return self.database.write_blocking(write)

    def answer_to(self, number: int) -> bytes | None:
        """The answer to a request; None if there is none yet."""
        query = select(_rows.c.answer).where(_rows.c.number == number)
        found = self.database.read_blocking(lambda connection: connection.execute(query).scalar())
        return None if found is None else bytes(found)

    def withdraw(self, number: int, *, taken: bool = False) -> bool:
        """Take a request back; with `taken`, remove it also if it is being carried out, or was. Returns whether it was
        there.
        """
        own = delete(_rows).where(_rows.c.number == number)
        gone = own if taken else own.where(_rows.c.content.is_not(None))
        return self.database.write_blocking(lambda connection: bool(connection.execute(gone).rowcount))

    def take(self, writer: str, held: Collection[tuple[str, int]]) -> list[PassedOn]:
        """Take the requests that wait for a writer, in the order in which they came. Those that were withdrawn
        meanwhile are left out, and those for a conversation and epoch that it doesn't know itself to hold: what the
        rows say of that, whoever can write to the database may have written.
        """
        own = _rows.c.session_id == conversations.c.session_id, _rows.c.epoch == conversations.c.epoch
        query = select(_rows.c.number).where(*own, conversations.c.writer == writer)
        numbers = self.database.read_blocking(
            lambda connection: connection.execute(query.where(_rows.c.content.is_not(None))).scalars().all()
        )
        wanted = _rows.c.number.in_(numbers), _rows.c.content.is_not(None)

        def write(connection: Connection) -> list[PassedOn]:
            found = connection.execute(
                select(_rows).where(*wanted).order_by(_rows.c.number).with_for_update()
            ).all()
            connection.execute(update(_rows).where(*wanted).values(content=None))
            return [
                PassedOn(
                    number=row.number,
                    session_id=row.session_id,
                    epoch=row.epoch,
                    last_seq=row.last_seq,
                    content=bytes(row.content),
                )
                for row in found
                if (row.session_id, row.epoch) in held
            ]

        return self.database.write_blocking(write) if numbers else []

    def answer(self, number: int, content: bytes) -> None:
        """Answer a request that was taken. If its sender has left, nothing is kept."""
        change = update(_rows).where(_rows.c.number == number).values(answer=content)
        self.database.write_blocking(lambda connection: connection.execute(change))
