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
from satchel.events import Notice, Observation, Record
from satchel.memory import Episode, Memory, Wished
from satchel.runtime.lines import counted
from satchel.sessions import FORGOTTEN, Log, SessionStore
from satchel.sessions.view import Call, Closing, Turn, turns_in

__all__ = ["Compared", "SaidInTurn", "catch_up", "compare", "episodes_of", "said_in"]

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


def said_in(records: Iterable[Record], *, provider: str = "") -> tuple[SaidInTurn, ...]:
    """The turns of a log, or of a part of it, that may be captured and are not marked as captured, in order.

    Leaves out the turns of private sessions and the answers of the recall-only model.

    Args:
        records: In order.
        provider: The model's, if the records don't include the start of the session.
    """
    turns = turns_in(records, provider=provider)
    return tuple(said for turn in turns if turn.captured is None and (said := _said(turn)) is not None)


def _said(turn: Turn) -> SaidInTurn | None:
    """What was said in a turn; None where it may not be captured."""
    if turn.start is None or turn.private or turn.captured == ():
        return None
    said = SaidInTurn(turn=turn.number, user=turn.said, user_at=turn.at)
    for closing in turn.of(Closing):
        final = closing.final
        if final.status in ("done", "asking") and closing.provider != RECALL_PROVIDER:
            said = replace(said, answer=final.text, answer_at=closing.at, is_from_outside=final.untrusted)
    for call in turn.of(Call):
        match call.result:
            case Observation(
                tool="hold_back",
                data={"held_back": "forget" | "confidential" as kind, "before": bool(before)},
            ):
                # Of two calls in a turn, the stricter one holds.
                wished: Wished = "forget" if "forget" in (kind, said.wished) else "confidential"
                said = replace(said, wished=wished, wished_before=before or said.wished_before)
            case _:
                pass
    return said


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
    found: list[tuple[SaidInTurn, tuple[str, ...]]] = []

    def visit(turn: Turn) -> None:
        said = _said(turn)
        if said is not None:
            found.append((said, turn.captured or ()))

    log = await sessions.read_turns(session_id, visit)
    kept = await memory.known([id for _, ids in found for id in ids])
    return log, [
        episode
        for said, ids in found
        if not ids or not kept.issuperset(ids)
        for episode in episodes_of(log.session_id, said)
    ]
