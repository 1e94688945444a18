"""What runs and asks in conversations that another process has open, as their logs say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio

from satchel.errors import NotFound
from satchel.events import (
    AskUser,
    BuildPosted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    SessionStart,
    TurnEnd,
    TurnResumed,
    TurnStart,
)
from satchel.runtime.build_news import BuildNews
from satchel.sessions import SessionStore

_PAGE: Final = 1000


@dataclass(slots=True)
class OpenElsewhere:
    """One conversation.

    Attributes:
        is_running: Whether a turn runs in it.
    """

    generation: int
    is_running: bool = False
    seq: int = 0
    _asked: dict[str, QuestionAsked] = field(default_factory=dict)
    _own: AskUser | None = None
    _builds: BuildNews = field(default_factory=BuildNews)

    @property
    def questions(self) -> tuple[QuestionAsked | AskUser | BuildPosted, ...]:
        """What it asks: the running turn, or else the one that ended with a question, then builds."""
        own = (self._own,) if self._own is not None and not self.is_running else ()
        return (*self._asked.values(), *own, *self._builds.questions.values())

    def take(self, record: Record) -> None:
        """Take the next record."""
        self.seq = record.seq
        match record.event:
            case TurnStart():
                self.is_running, self._own = True, None
            case TurnResumed():
                self.is_running = True
            case TurnEnd():
                self.is_running = False
                self._asked.clear()
            case SessionStart():  # the process ended that had it open before; see `Questions.restore`
                self.is_running = False
                self._asked = {id: asked for id, asked in self._asked.items() if asked.kind == "permission"}
            case QuestionAsked() as asked:
                self._asked[asked.id] = asked
            case QuestionAnswered(id=id):
                self._asked.pop(id, None)
            case AskUser() as asked:
                self._own = asked
            case BuildPosted() as posted:
                self._builds.take(posted)
            case _:
                pass


class Elsewhere:
    """Follows the conversations that other processes have open, as far as somebody asks. With files, it knows none."""

    def __init__(self, store: SessionStore) -> None:
        """Nothing is read before the first use."""
        self._store = store
        self._known: dict[str, OpenElsewhere] = {}
        self._reading = anyio.Lock()

    async def seen(self, ids: Collection[str]) -> Mapping[str, OpenElsewhere]:
        """Those of these sessions that another process has open, by their full ids.

        Raises:
            StorageError: The database failed.
        """
        async with self._reading:
            rows = await self._store.open_elsewhere()
            self._known = {id: one for id, one in self._known.items() if id in rows}
            for id in rows.keys() & set(ids):
                generation, last_seq = rows[id]
                known = self._known.get(id)
                if known is None or known.generation != generation or known.seq > last_seq:
                    known = OpenElsewhere(generation)
                try:
                    while known.seq < last_seq and (
                        page := await self._store.records(id, after_seq=known.seq, limit=_PAGE)
                    ):
                        for record in page:
                            known.take(record)
                except NotFound:  # it was deleted just now
                    self._known.pop(id, None)
                else:
                    self._known[id] = known
            return {id: known for id, known in self._known.items() if id in ids}
