"""Capture: stores what was said in a turn as episodes, also for turns that a crash kept from being stored.

The session log is written first, and a turn in the log is acknowledged; memory follows. When Satchel is opened, turns
that are in a log and not in memory are captured: those that a crash kept from being stored, and those that a database
has lost. An episode is identified by its session, turn and position, so capturing a turn twice changes nothing
(DESIGN 9).
"""

from __future__ import annotations

from dataclasses import dataclass

from satchel.errors import SatchelError, StorageLocked
from satchel.events import Notice
from satchel.memory import Episode, Memory, Wished
from satchel.runtime.lines import counted
from satchel.sessions import FORGOTTEN, Log, SessionStore
from satchel.sessions.view import LastWords, SessionTurn, ToolCall

__all__ = ["Compared", "catch_up", "compare", "episodes_of"]

RECALL_PROVIDER = "none"
"""The provider that only recalls. Its answers quote memories; capturing them would store each memory again."""


def episodes_of(session_id: str, turn: SessionTurn) -> tuple[Episode, ...]:
    """The episodes of a turn: the user's words, then the answer. An empty or forgotten text is not an episode.

    There are none of a turn that is marked as not to be captured or belongs to a private session, and the answer of the
    recall-only model is none.
    """
    if turn.start is None or turn.private or turn.captured == ():
        return ()
    episodes = []
    pictures = tuple((file.name, file.sha256) for file in turn.start.message.files if file.is_image)
    if turn.said.strip() not in ("", FORGOTTEN) or (pictures and turn.said.strip() != FORGOTTEN):
        wished, before = _wish_in(turn)
        episodes.append(
            Episode(
                session=session_id,
                turn=turn.number,
                speaker="user",
                text=turn.said,
                said_at=turn.at,
                position=0,
                pictures=pictures,
                wished=wished,
                wished_before=before,
            )
        )
    answers = [
        closing
        for closing in turn.of(LastWords)
        if closing.final.status in ("done", "asking") and closing.provider != RECALL_PROVIDER
    ]
    if answers and answers[-1].final.text.strip() not in ("", FORGOTTEN):
        final = answers[-1].final
        episodes.append(
            Episode(
                session=session_id,
                turn=turn.number,
                speaker="assistant",
                text=final.text,
                said_at=answers[-1].at,
                position=1,
                # The model had read something from outside when it answered, so the answer may repeat it.
                trust="outside" if final.untrusted else "agent",
            )
        )
    return tuple(episodes)


def _wish_in(turn: SessionTurn) -> tuple[Wished, bool]:
    """What the model has held back as the user asked; see `Episode`. Of two calls in a turn, the stricter one holds."""
    wished: Wished = ""
    was_before = False
    for call in turn.of(ToolCall):
        match call.tool, call.result and call.result.data:
            case "hold_back", {"held_back": "forget" | "confidential" as kind, "before": bool(before)}:
                wished = "forget" if "forget" in (kind, wished) else "confidential"
                was_before = was_before or before
            case _:
                pass
    return wished, was_before


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
    found: list[tuple[tuple[Episode, ...], tuple[str, ...]]] = []
    log = await sessions.read_turns(
        session_id, lambda turn: found.append((episodes_of(session_id, turn), turn.captured or ()))
    )
    kept = await memory.known([id for _, ids in found for id in ids])
    return log, [
        episode for episodes, ids in found if not ids or not kept.issuperset(ids) for episode in episodes
    ]
