"""The messages that wait in an open session for the end of what runs. The log keeps them, also beyond the program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from satchel.errors import LineFull
from satchel.events import MessageTakenBack, MessageWaiting
from satchel.runtime.background import Background
from satchel.runtime.driver import TurnBeginning
from satchel.runtime.log_redactor import Clean
from satchel.runtime.session_log import SessionLog
from satchel.runtime.turns import RunningTurn, TurnResult

_MOST: Final = 10
"""Whoever sends in a loop must not fill the log and the day's budget while one turn runs."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A message in line.

    Attributes:
        is_written: It is in the log, so that its sender knows that it waits.
    """

    id: str
    said: TurnBeginning
    running: RunningTurn
    is_written: bool

    @property
    def message(self) -> MessageWaiting:
        said = self.said
        return MessageWaiting(
            id=self.id,
            text=said.text,
            memory=said.memory,
            attached=said.attached,
            files=tuple(said.files),
        )


class WaitingLine:
    """The line of one session.

    Attributes:
        is_held: None leaves it any more to begin its turn: the program is about to end.
    """

    def __init__(
        self, log: SessionLog, background: Background, waiting: Iterable[MessageWaiting] = ()
    ) -> None:
        """`waiting` are those that waited when the program ended."""
        self.is_held = False
        self._log = log
        self._background = background
        self._line: list[_Waiting] = []
        for one in waiting:
            said = TurnBeginning(text=one.text, memory=one.memory, attached=one.attached, files=one.files)
            self._stand(one.id, said, is_written=True)
        log.on_forgotten.append(self._forget)

    @property
    def messages(self) -> tuple[MessageWaiting, ...]:
        """The next one first."""
        return tuple(one.message for one in self._line)

    async def join(self, said: TurnBeginning) -> RunningTurn:
        """Let a message wait. It is on disk when this returns.

        Raises:
            LineFull: Too many wait.
            StorageError: It can't be written to disk; it doesn't wait.
        """
        if len(self._line) >= _MOST:
            raise LineFull(
                f"{_MOST} messages wait in session {self._log.id}, and no more may. Wait until one of them begins, "
                "or take one back."
            )
        one = self._stand(f"said-{uuid4().hex}", said, is_written=False)
        try:
            await self._log.record(one.message)
        except BaseException:
            if one in self._line:
                self._leave(one)
            raise
        one.is_written = True
        return one.running

    def next(self) -> tuple[TurnBeginning, RunningTurn] | None:
        """Take the first message out to begin its turn. None if there is none, or if it is not on disk yet: then its
        sender asks again.
        """
        if self.is_held or not self._line or not self._line[0].is_written:
            return None
        one = self._line.pop(0)
        return one.said, one.running

    async def take_back(self, id: str) -> MessageWaiting | None:
        """See `Session.take_back`."""
        one = next((one for one in self._line if one.id == id), None)
        if one is None:
            return None
        self._leave(one)
        await self._log.record(MessageTakenBack(id=id))
        return one.message

    def fail(self, error: Exception) -> None:
        """The session is closed. The log keeps the messages."""
        for one in self._line:
            one.running.finish(error)

    def _stand(self, id: str, said: TurnBeginning, *, is_written: bool) -> _Waiting:
        one = _Waiting(id, said, RunningTurn(0, self._log.broadcast, waited=id), is_written)
        one.running.stop_with(lambda: self._background.start(self.take_back, id))
        self._line.append(one)
        return one

    def _leave(self, one: _Waiting) -> None:
        self._line.remove(one)
        one.running.finish(TurnResult(session_id=self._log.id, turn=0, status="cancelled", text=""))

    def _forget(self, clean: Clean) -> None:
        for one in self._line:
            one.said = replace(one.said, text=clean(one.said.text), attached=clean(one.said.attached))
