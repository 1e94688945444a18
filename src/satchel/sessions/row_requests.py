"""Requests for conversations that another server has open. They reach it as rows, and so do its answers.

A request is for one writer, which is known by its epoch: whoever writes the conversation next doesn't get it. The
writer takes it before it carries it out, so that it is carried out once. Whoever sent it takes it back when nobody can
take it any more. What is in a row is the server's matter, which encrypts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from satchel.sessions.tables import conversation_requests, conversations

__all__ = ["PassedOn", "answer", "answer_to", "put", "take", "waiting", "withdraw"]

_LEFT_MS: Final = 600_000
"""A row that is older was left by a server that was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOn:
    """A request that another server passed on.

    Attributes:
        last_seq: The number of the conversation's newest record at that time.
    """

    number: int
    session_id: str
    last_seq: int
    content: bytes


def put(
    connection: Connection, session_id: str, content: bytes, *, epoch: int, last_seq: int, now: int
) -> int:
    """Pass a request on to the writer with this epoch. Returns its number."""
    rows = conversation_requests
    connection.execute(delete(rows).where(rows.c.at < now - _LEFT_MS))
    row = {"session_id": session_id, "epoch": epoch, "last_seq": last_seq, "at": now, "content": content}
    return int(connection.execute(insert(rows).values(row).returning(rows.c.number)).scalar_one())


def answer_to(connection: Connection, number: int) -> bytes | None:
    """The answer to a request; None if there is none yet."""
    column = conversation_requests.c.answer
    return connection.execute(select(column).where(conversation_requests.c.number == number)).scalar()


def withdraw(connection: Connection, number: int, *, taken: bool = False) -> bool:
    """Remove a request; with `taken`, also one that was carried out. Returns whether it was there."""
    rows = conversation_requests
    gone = delete(rows).where(rows.c.number == number)
    return bool(connection.execute(gone if taken else gone.where(rows.c.content.is_not(None))).rowcount)


def waiting(connection: Connection, writer: str) -> list[int]:
    """The numbers of the requests that wait for a writer, in the order in which they came: one short read."""
    rows = conversation_requests
    own = rows.c.session_id == conversations.c.session_id, rows.c.epoch == conversations.c.epoch
    query = select(rows.c.number).where(*own, conversations.c.writer == writer, rows.c.content.is_not(None))
    return list(connection.execute(query.order_by(rows.c.number)).scalars())


def take(connection: Connection, numbers: list[int]) -> list[PassedOn]:
    """Take requests, those that were withdrawn meanwhile left out."""
    rows = conversation_requests
    wanted = rows.c.number.in_(numbers), rows.c.content.is_not(None)
    found = connection.execute(select(rows).where(*wanted).order_by(rows.c.number).with_for_update()).all()
    connection.execute(update(rows).where(*wanted).values(content=None))
    return [
        PassedOn(
            number=row.number, session_id=row.session_id, last_seq=row.last_seq, content=bytes(row.content)
        )
        for row in found
    ]


def answer(connection: Connection, number: int, content: bytes) -> None:
    """Answer a request. If its sender has left, nothing is kept."""
    rows = conversation_requests
    connection.execute(update(rows).where(rows.c.number == number).values(answer=content))
