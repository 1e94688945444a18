"""Capture: stores what was said in a turn as episodes, also for turns that a crash kept from being stored.

The session log is written first, and a turn in the log is acknowledged; memory follows. When Satchel is opened, turns
that are in a log and not in memory are captured: those that a crash kept from being stored, and those that a database
has lost. An episode is identified by its session, turn and position, so capturing a turn twice changes nothing
(DESIGN 9).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from satchel.errors import SatchelError, StorageLocked
from satchel.events import Event, Final, MemoryCaptured, Notice, Observation, Record, SessionStart, TurnStart
from satchel.memory import Episode, Memory, Wished
from satchel.runtime.lines import counted
from satchel.sessions import FORGOTTEN, Log, SessionStore

__all__ = ["Compared", "SaidInTurn", "catch_up", "compare", "episodes_of", "is_said", "said_in"]

RECALL_PROVIDER = "none"
"""The provider that only recalls. Its answers quote memories; capturing them would store each memory again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidInTurn:
    """What both sides said in one turn, and when.

    Attributes:
        answer: "" if there was none, or if it must not be captured.
        is_from_outside: The model had read something from outside when it answered, so the answer may repeat it.
        wished: What the model has held back as the user asked; see `Episode`.
    """

    turn: int
    user: str
    user_at: datetime
    answer: str = ""
    answer_at: datetime | None = None
    is_from_outside: bool = False
    wished: Wished = ""
    wished_before: bool = False


def is_said(event: Event) -> bool:
    """Whether `said_in` reads an event while a turn is running."""
    return isinstance(event, TurnStart | Final) or (
        isinstance(event, Observation) and event.tool == "hold_back"
    )


def said_in(records: Iterable[Record], *, provider: str = "") -> tuple[SaidInTurn, ...]:
    """The turns of a log, or of a part of it, that may be captured and are not marked as captured, in order.

    Leaves out the turns of private sessions and the answers of the recall-only model.

    Args:
        records: In order.
        provider: The model's, if the records don't include the start of the session.
    """
    reader = _SaidReader(provider)
    for record in records:
        reader(record)
    return reader.said


class _SaidReader:
    """Visits the records of a log, in order, and keeps only what `said_in` returns."""

    def __init__(self, provider: str = "", *, with_captured: bool = False) -> None:
        """With `with_captured`, turns marked as captured stay, and `captured` has the ids of their episodes."""
        self._provider = provider
        self._is_private = False
        self._with_captured = with_captured
        self._said: dict[int, SaidInTurn] = {}
        self.captured: dict[int, tuple[str, ...]] = {}

    @property
    def said(self) -> tuple[SaidInTurn, ...]:
        return tuple(self._said.values())

    def __call__(self, record: Record) -> None:
        said = self._said
        match record.event:
            case SessionStart() as event:
                self._provider, self._is_private = event.provider, event.private
            case TurnStart() as event if not self._is_private:
                said[event.turn] = SaidInTurn(turn=event.turn, user=event.message.text, user_at=record.at)
            case Final(turn=turn, text=text, status="done" | "asking", untrusted=untrusted) if turn in said:
                if self._provider != RECALL_PROVIDER:
                    said[turn] = replace(
                        said[turn], answer=text, answer_at=record.at, is_from_outside=untrusted
                    )
            case Observation(
                turn=turn, tool="hold_back", data={"held_back": kind, "before": bool(before)}
            ) if turn in said and kind in ("forget", "confidential"):
                one = said[turn]
                # Of two calls in a turn, the stricter one holds.
                wished: Wished = "forget" if "forget" in (kind, one.wished) else "confidential"
                said[turn] = replace(one, wished=wished, wished_before=before or one.wished_before)
            case MemoryCaptured(turn=turn, ids=ids) if ids and self._with_captured:
                self.captured[turn] = ids
            case MemoryCaptured(turn=turn):
                said.pop(turn, None)
            case _:
                pass


def episodes_of(session_id: str, said: SaidInTurn) -> tuple[Episode, ...]:
    """The episodes of a turn: the user's words, then the answer. An empty or forgotten text is not an episode."""
    episodes = []
    if said.user.strip() not in ("", FORGOTTEN):
        episodes.append(
            Episode(
                session=session_id,
                turn=said.turn,
                speaker="user",
                text=said.user,
                said_at=said.user_at,
                position=0,
                wished=said.wished,
                wished_before=said.wished_before,
            )
        )
    if said.answer.strip() not in ("", FORGOTTEN):
        episodes.append(
            Episode(
                session=session_id,
                turn=said.turn,
                speaker="assistant",
                text=said.answer,
                said_at=said.answer_at or said.user_at,
                position=1,
                trust="outside" if said.is_from_outside else "agent",
            )
        )
    return tuple(episodes)


async def catch_up(sessions: SessionStore, memory: Memory) -> list[Notice]:
    """Capture the turns that are in a log and not in memory, for all sessions that changed since the last time.

    Returns:
        A notice for each session whose log could not be read.

    Raises:
        StorageError: The database failed, or another process holds it; the remaining sessions were not captured.
    """
    notices = []
    for entry in await sessions.unsettled():
        try:
            _, episodes = await _uncaptured(sessions, memory, entry.session_id)
            if episodes:
                await memory.add_episodes(episodes, durable=True)
            await sessions.settle(entry)
        except StorageLocked:
            raise
        except SatchelError as error:
            notices.append(
                Notice(part="memory", text=f"Session {entry.session_id} was not captured: {error}")
            )
    return notices


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The session logs beside memory.

    Attributes:
        lacking: Messages that are in a log and not in memory, though nobody forgot them.
        damaged: What can't be read of the logs, a sentence for each of them.
    """

    lacking: int
    damaged: tuple[str, ...]


async def compare(sessions: SessionStore, memory: Memory, *, capture: bool = False) -> Compared:
    """Compare all logs with memory.

    Args:
        sessions: The logs.
        memory: The memories.
        capture: Whether to store what memory lacks.

    Raises:
        StorageError: The database failed.
    """
    lacking, damaged = 0, []
    for info in await sessions.list():
        try:
            log, episodes = await _uncaptured(sessions, memory, info.id)
        except StorageLocked:
            raise
        except SatchelError as error:
            damaged.append(f"Session {info.id}: {error}")
            continue
        lacking += await memory.lacking(episodes)
        if episodes and capture:
            await memory.add_episodes(episodes, durable=True)
        if log.skipped:
            first = log.skipped[0]
            damaged.append(
                f"Session {info.id}: {counted(len(log.skipped), 'line')} of {log.path} can't be read, the first of "
                f"them {first.line}: {first.reason}"
            )
    return Compared(lacking=lacking, damaged=tuple(damaged))


async def _uncaptured(sessions: SessionStore, memory: Memory, session_id: str) -> tuple[Log, list[Episode]]:
    """A log, and what was said in it in turns that are not marked as captured, or whose memories are gone."""
    # Visited rather than loaded, because a log may have a hundred megabytes.
    reader = _SaidReader(with_captured=True)
    log = await sessions.load(session_id, visit=reader)
    kept = await memory.known([id for ids in reader.captured.values() for id in ids])
    return log, [
        episode
        for said in reader.said
        if said.turn not in reader.captured or not kept.issuperset(reader.captured[said.turn])
        for episode in episodes_of(log.session_id, said)
    ]
