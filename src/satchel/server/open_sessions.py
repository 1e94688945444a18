"""The sessions that the server's clients use. Each stays open for a minute after its last use, and while a command runs
in its background.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
from fastapi import HTTPException

from satchel.errors import SatchelError, UsageError
from satchel.runtime import RunningTurn, Satchel, Session
from satchel.server.metrics import Metrics
from satchel.server.problems import DEFECT
from satchel.sessions import PassedOn

_IDLE_S: Final = 60.0
"""A session that nobody uses is closed after this: opening it again reads its log, and while it is open here no other
process can use it."""
_LOOK_S: Final = 5.0
_ASKED_LOOK_S: Final = 0.5
"""How often is looked whether other servers ask for sessions."""

_MOST_FAILURES: Final = 1000


@dataclass(slots=True)
class _Kept:
    session: Session
    until_s: float
    terms: str = ""


class OpenSessions:
    """Opens sessions for requests, and closes those that nobody has used for a minute."""

    def __init__(self, satchel: Satchel, metrics: Metrics) -> None:
        """Nothing is open before the first use."""
        self._satchel = satchel
        self._metrics = metrics
        self._kept: dict[str, _Kept] = {}
        self._failures: dict[str, tuple[int, str]] = {}
        self._turns: dict[RunningTurn, Session] = {}

    @property
    def running(self) -> int:
        """The number of running turns that the server's clients started."""
        return len(self._turns)

    def turns_of(self, session_id: str) -> list[RunningTurn]:
        """The turns of a session that run: one, or none."""
        return [turn for turn, session in self._turns.items() if session.id == session_id]

    def failure_of(self, session_id: str) -> tuple[int, str]:
        """The newest turn of a session that an error ended without a result, and the error; 0 and "" if none."""
        return self._failures.get(session_id, (0, ""))

    def kept_session(self, session_id: str) -> Session | None:
        """The session with this full id, if clients of the server have used it lately."""
        kept = self._kept.get(session_id)
        return kept.session if kept is not None else None

    def to_stop(self, session_id: str, after: int | None) -> RunningTurn | None:
        """The running turn of a session, as far as clients have used it lately; with `after`, one that began before
        this record, because another turn is not the one that the user saw.
        """
        kept = self.kept_session(session_id)
        running = kept.running if kept is not None else None
        return running if running is not None and (after is None or running.after_seq <= after) else None

    def terms_of(self, session_id: str) -> str | None:
        """The terms that a session was opened with; None if it is not open here, and "" if nobody named any."""
        kept = self._kept.get(session_id)
        return kept.terms if kept is not None else None

    async def close(self, session_id: str) -> None:
        """Close a session that is only kept open."""
        kept = self._kept.pop(session_id, None)
        if kept is not None:
            await kept.session.aclose()

    async def delete(self, session_id: str) -> str:
        """Delete a session, whoever follows it; see `Satchel.delete_session`.

        Raises:
            HTTPException: A turn is running in it (409).
        """
        self.check_still(session_id)
        id = await self._satchel.delete_session(session_id)
        await self.close(id)
        return id

    async def delete_branches(self, session_id: str) -> None:
        """Delete a conversation with all its branches; see `delete`. While a turn runs in one, none is deleted."""
        infos = await self._satchel.sessions.branches(session_id)
        for info in infos:
            self.check_still(info.id)
        for info in reversed(infos):
            await self.delete(info.id)

    def check_still(self, session_id: str) -> None:
        """Raise an HTTPException (409) if a turn is running in a session."""
        if any(not turn.is_ending for turn in self.turns_of(session_id)):
            raise HTTPException(409, f"A turn is running in conversation {session_id}. Stop it first.")

    @asynccontextmanager
    async def used(
        self,
        session_id: str | None = None,
        *,
        interactive: bool = False,
        terms: str = "",
        keeps_empty: bool = False,
        follows: bool = False,
        **opening: Any,
    ) -> AsyncIterator[Session]:
        """A session for one request.

        Args:
            session_id: Its full id; None begins one.
            interactive: The client follows the session and answers its questions.
            terms: A name for what it is opened with; see `terms_of`.
            keeps_empty: Keep it open for a while even if nothing was said in it, because a client will join it.
            follows: The request only reads its events, so that another server may have it meanwhile.
            opening: What `Satchel.session` takes besides, for one that is not open; an open one keeps its own.

        Raises:
            NotFound, StorageLocked, ConfigError, ModelError: As `Satchel.session`.
        """
        if session_id is not None and not session_id:
            raise UsageError("The id of the session is empty.")
        session = await self._satchel.session(session_id, interactive=interactive, **opening)
        session.is_spare = follows
        try:
            yield session
        finally:
            session.is_spare = True
            session.is_interactive = False
            session.answers_later = interactive
            with anyio.CancelScope(shield=True):
                await self._keep(session, terms, even_empty=keeps_empty)

    async def _keep(self, session: Session, terms: str, *, even_empty: bool) -> None:
        """Keep a session open for a while; one hold of each is enough. A session without any message leaves no log."""
        is_empty = not session.turns and session.running is None and not even_empty
        if session.is_closed or is_empty:
            await session.aclose()
            return
        before = self._kept.get(session.id)
        terms = terms or (before.terms if before is not None else "")
        if before is not None:
            # Whoever looks again sees what was finished meanwhile.
            session.answers_later |= before.session.answers_later
        self._kept[session.id] = _Kept(session, self._satchel.clock.monotonic_s() + _IDLE_S, terms)
        if before is not None:
            await before.session.aclose()

    def follow_turn(self, session: Session, running: RunningTurn, *, interactive: bool) -> None:
        """Keep a session open until a turn has ended, whoever reads it, and count the turn."""
        self._turns[running] = session
        self._satchel.parts.background.start(self._until_over, session.id, running, interactive)

    async def _until_over(self, session_id: str, running: RunningTurn, interactive: bool) -> None:
        try:
            async with self.used(session_id, interactive=interactive):
                await running.ended()
        finally:
            self._turns.pop(running, None)
        result = running.result_or_none
        if running.error is not None:
            self._failures[session_id] = running.number, _failure(running.error)
            for id in tuple(self._failures)[:-_MOST_FAILURES]:
                del self._failures[id]
        self._metrics.turn(result.status if result is not None else "failed")

    async def sweep(self) -> None:
        """Close unused sessions; runs until it is cancelled."""
        while True:
            await anyio.sleep(_LOOK_S)
            now_s = self._satchel.clock.monotonic_s()
            for id, kept in tuple(self._kept.items()):
                with suppress(SatchelError):
                    waits = kept.session.answers_later and await kept.session.awaits_build()
                    is_busy = waits or kept.session.running is not None or kept.session.jobs.running
                    # Meanwhile a request may have kept it anew.
                    if kept.until_s <= now_s and not is_busy and self._kept.get(id) is kept:
                        del self._kept[id]
                        await kept.session.aclose("idle")

    async def hand_over(self, carry_out: Callable[[PassedOn], Coroutine[Any, Any, None]]) -> None:
        """Give up sessions that other servers of the home's database ask for, once nothing runs in them, and carry out
        what they pass on for the others; runs until it is cancelled.
        """
        store, busy, answering = self._satchel.sessions, set[str](), set[str]()

        async def answer(id: str, is_again: bool) -> None:
            try:
                await self._satchel.note_chosen()
                if await self._satchel.hand_over(id):
                    await self.close(id)
                elif is_again or any(not turn.is_ending for turn in self.turns_of(id)):
                    await store.refuse(id)
            finally:
                answering.discard(id)

        store.hand_over()
        while True:
            await anyio.sleep(_ASKED_LOOK_S)
            with suppress(SatchelError):
                await self._satchel.note_chosen()
                for passed in await store.passed_on():
                    self._satchel.parts.background.start(carry_out, passed)
                asked = {*await store.asked()}
                for id in asked - answering:
                    answering.add(id)
                    # Closing may take long, and others don't wait for that.
                    self._satchel.parts.background.start(answer, id, id in busy)
                busy = asked

    async def stop_turns(self) -> int:
        """Interrupt every turn that runs, and wait until each has ended; messages that wait stay in the log.

        Returns:
            How many turns there were.
        """
        for session in self._turns.values():
            session.hold_line()
        running = tuple(turn for turn in self._turns if not turn.waits)
        for turn in running:
            turn.cancel()
        for turn in running:
            await turn.ended()
        return len(running)


def _failure(error: Exception) -> str:
    return str(error) if isinstance(error, SatchelError) else DEFECT
