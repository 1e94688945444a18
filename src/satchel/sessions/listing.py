"""The list of conversations as rows, so that a page reads only the entries that it shows.

An entry is derived from the rows of `session_log` of its branches, in the transaction that changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, delete, func, insert, select, update

from satchel.sessions.branches import folded
from satchel.sessions.summary import SessionInfo
from satchel.sessions.tables import session_entry, session_log

InfoOf: TypeAlias = Callable[[Any], SessionInfo | None]
"""What a list shows of a row of `session_log`."""

_LIST: Final = "list"
_ARCHIVE: Final = "archive"
_MOST_ENTRIES: Final = 200
"""The most that one statement names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationPart:
    """Some of the entries of a list of conversations: pinned ones first, then the one that was active last.

    Attributes:
        total, pinned: How many are in the whole list, and how many of these are pinned.
        others: How many are in the other list: the archive, or what is not archived.
    """

    infos: Sequence[SessionInfo]
    total: int
    pinned: int
    others: int


def entry_of(info: SessionInfo) -> str:
    """The key of the entry that a session belongs to: its conversation and its project, whose ids have no spaces."""
    return f"{info.conversation} {info.project}"


def relist(connection: Connection, entries: Collection[str], info_of: InfoOf) -> None:
    """Derive some entries again."""
    for some in _slices(entries):
        connection.execute(delete(session_entry).where(session_entry.c.entry.in_(some)))
        _insert(connection, _members(connection, some), info_of)


def relist_all(connection: Connection, info_of: InfoOf) -> None:
    """Derive all entries again, also of rows that an older version wrote."""
    connection.execute(delete(session_entry))
    rows = connection.execute(select(session_log)).all()
    for row in rows:
        info = info_of(row)
        if info is not None and entry_of(info) != row.entry:
            here = update(session_log).where(session_log.c.name == row.name)
            connection.execute(here.values(entry=entry_of(info)))
    _insert(connection, rows, info_of)


def _insert(connection: Connection, rows: Iterable[Any], info_of: InfoOf) -> None:
    infos = sorted(filter(None, map(info_of, rows)), key=lambda info: (info.last_at, info.id), reverse=True)
    spent: dict[str, str] = {}
    for info in infos:
        entry = entry_of(info)
        spent[entry] = max([spent.get(entry, ""), *(row.day for row in info.spent)])
    entries = [
        {
            "entry": entry_of(info),
            "place": _place(info),
            "pinned": int(info.pinned),
            "last_at": round(info.last_at.timestamp() * 1_000_000),
            "spent_day": spent[entry_of(info)],
        }
        for info in folded(infos)
    ]
    if entries:
        connection.execute(insert(session_entry), entries)


def _place(info: SessionInfo) -> str:
    if info.is_build or not info.turns:
        return ""
    return _ARCHIVE if info.archived else _LIST


def part_of(infos: Collection[SessionInfo], *, archived: bool, first: int, most: int) -> ConversationPart:
    """The same of the entries of all conversations, where they are not rows."""
    place = _ARCHIVE if archived else _LIST
    here = [info for info in infos if _place(info) == place]
    return ConversationPart(
        infos=sorted(here, key=lambda info: not info.pinned)[first : first + most],
        total=len(here),
        pinned=sum(info.pinned for info in here),
        others=sum(_place(info) not in ("", place) for info in infos),
    )


def part(
    connection: Connection, info_of: InfoOf, *, archived: bool, first: int, most: int
) -> ConversationPart:
    """Entries of a list, from the place `first` on."""
    place = _ARCHIVE if archived else _LIST
    counts = select(session_entry.c.place, session_entry.c.pinned, func.count()).group_by(
        session_entry.c.place, session_entry.c.pinned
    )
    found = [tuple(row) for row in connection.execute(counts)]
    ordered = (
        select(session_entry.c.entry)
        .where(session_entry.c.place == place)
        .order_by(session_entry.c.pinned.desc(), session_entry.c.last_at.desc(), session_entry.c.entry.desc())
        .offset(first)
        .limit(most)
    )
    wanted = connection.execute(ordered).scalars().all()
    infos = {entry_of(info): info for info in folded(members(connection, wanted, info_of))}
    return ConversationPart(
        infos=[infos[entry] for entry in wanted if entry in infos],
        total=sum(count for where, _, count in found if where == place),
        pinned=sum(count for where, pinned, count in found if where == place and pinned),
        others=sum(count for where, _, count in found if where not in ("", place)),
    )


def spent_since(connection: Connection, info_of: InfoOf, day: str) -> list[SessionInfo]:
    """The sessions of the conversations that spent something on a local day, or after it."""
    query = select(session_entry.c.entry).where(session_entry.c.spent_day >= day)
    return members(connection, connection.execute(query).scalars().all(), info_of)


def members(connection: Connection, entries: Collection[str], info_of: InfoOf) -> list[SessionInfo]:
    """The sessions of some entries, the one that was active last first."""
    rows = (row for some in _slices(entries) for row in _members(connection, some))
    return sorted(filter(None, map(info_of, rows)), key=lambda info: (info.last_at, info.id), reverse=True)


def entries_of(connection: Connection, names: Sequence[str]) -> Sequence[str]:
    """The entries of logs that the index knows."""
    query = select(session_log.c.entry).where(session_log.c.name.in_(names)).distinct()
    return connection.execute(query).scalars().all()


def _members(connection: Connection, entries: Collection[str]) -> Sequence[Any]:
    return connection.execute(select(session_log).where(session_log.c.entry.in_(entries))).all()


def _slices(entries: Collection[str]) -> Iterator[list[str]]:
    every = list(entries)
    for start in range(0, len(every), _MOST_ENTRIES):
        yield every[start : start + _MOST_ENTRIES]
