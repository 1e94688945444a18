"""Capture: stores what was said in a turn as episodes, also for turns that a crash kept from being stored.

The session log is written first, and a turn in the log is acknowledged; memory follows. When Satchel is opened, turns
that are in a log and not in memory are captured: those that a crash kept from being stored, and those that a database
has lost. An episode is identified by its session, turn and position, so capturing a turn twice changes nothing
(DESIGN 9).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from satchel.errors import SatchelError, SessionInUse, StorageError, StorageLocked
from satchel.events import MemoryCaptured, Notice, Record, SessionFiled, SessionStart
from satchel.memory import Episode, Memory, Wished
from satchel.runtime.lines import counted, held_back_notice
from satchel.sessions import FORGOTTEN, Log, SessionStore, source_of
from satchel.sessions.view import LastWords, SessionTurn, SessionView, ToolCall

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
    pictures = tuple((file.name, file.sha256) for file in turn.start.message.files if file.is_picture)
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


MemoryIn: TypeAlias = Callable[[str], Awaitable[Memory | None]]
"""Gives the memory of a project, or the user's own for ""; see `Home.memory_in`."""


async def catch_up(sessions: SessionStore, memory_in: MemoryIn) -> list[Notice]:
    """Capture the turns that are in a log and not in memory, for all sessions that changed since the last time. What a
    crash left behind of a session that was moved to another project goes there first.

    Returns:
        A notice for each session whose log could not be read, and for each in which the user asked to hold something
        back and could not be told so; that one stands in its log, too.

    Raises:
        StorageError: The database failed, or another process holds it; the remaining sessions were not captured.
    """
    notices = []
    for entry in await sessions.unsettled():
        try:
            found = await _uncaptured(sessions, memory_in, entry.session_id)
            for project in found.left:
                memory = await memory_in(project)
                if memory is not None and await memory.count(session=entry.session_id):
                    await memory.carry(entry.session_id, found.memory)
                    await memory.release(entry.session_id)
                    found = await _uncaptured(sessions, memory_in, entry.session_id)
            if found.episodes:
                ids = await found.memory.add_episodes(found.episodes, durable=True)
                # What the log has as captured was told then.
                if held := await found.memory.just_held_back(tuple(set(ids) - found.captured)):
                    notice = Notice(part="discretion", text=held_back_notice(held))
                    if not await _logged(sessions, entry.session_id, found, notice):
                        continue  # Whoever has it open tells, or a later start.
                    notices.append(notice)
            await sessions.settle(entry)
        except StorageLocked:
            raise
        except SatchelError as error:
            notices.append(
                Notice(part="memory", text=f"Session {entry.session_id} was not captured: {error}")
            )
    return notices


async def _logged(sessions: SessionStore, session_id: str, found: _Uncaptured, notice: Notice) -> bool:
    """Write into the log that turns were captured, and a notice. False: somebody has the session open."""
    turns: dict[int, list[Episode]] = {}
    for episode in found.episodes:
        turns.setdefault(episode.turn, []).append(episode)
    marks = [
        MemoryCaptured(turn=turn, ids=await found.memory.add_episodes(said, durable=True))
        for turn, said in turns.items()
    ]
    try:
        # A server would be waited for.
        if await sessions.writer(session_id) is not None:
            return False
        async with await sessions.open(session_id) as journal:
            await journal.append([*marks, notice], durable=True)
    except SessionInUse:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The session logs beside memory.

    Attributes:
        lacking: Messages that are in a log and not in memory, though nobody forgot them.
        damaged: What can't be read of the logs, a sentence for each of them.
    """

    lacking: int
    damaged: tuple[str, ...]


async def compare(sessions: SessionStore, memory_in: MemoryIn, *, capture: bool = False) -> Compared:
    """Compare all logs with memory. With `capture`, what memory lacks is stored.

    Raises:
        StorageError: The database failed.
    """
    lacking, damaged = 0, []
    for info in await sessions.list():
        try:
            found = await _uncaptured(sessions, memory_in, info.id)
        except StorageLocked:
            raise
        except SatchelError as error:
            damaged.append(f"Session {info.id}: {error}")
            continue
        lacking += await found.memory.lacking(found.episodes)
        if found.episodes and capture:
            await found.memory.add_episodes(found.episodes, durable=True)
        if found.log.skipped:
            first, lines = found.log.skipped[0], counted(len(found.log.skipped), "line")
            damaged.append(
                f"Session {info.id}: {lines} of {found.log.path} can't be read, the first of them {first.line}: "
                f"{first.reason}"
            )
    return Compared(lacking=lacking, damaged=tuple(damaged))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Uncaptured:
    """A log beside the memory that it belongs to.

    Attributes:
        memory: That of the project that the session is in now, or the user's own.
        episodes: What was said in turns that are not marked as captured, or whose memories are gone.
        captured: The ids of what is marked as captured.
        left: The projects that it was in before, "" for none.
    """

    log: Log
    memory: Memory
    episodes: list[Episode]
    captured: frozenset[str]
    left: set[str]


async def _uncaptured(sessions: SessionStore, memory_in: MemoryIn, session_id: str) -> _Uncaptured:
    # Visited rather than loaded, because a log may have a hundred megabytes.
    turns: list[tuple[tuple[Episode, ...], int]] = []
    marked: dict[int, tuple[str, ...]] = {}  # A slow capture ends in a later turn.
    projects = [""]
    view = SessionView(lambda turn: turns.append((episodes_of(session_id, turn), turn.number)))

    def visit(record: Record) -> None:
        view(record)
        match record.event:
            case MemoryCaptured(turn=turn, ids=ids):
                marked[turn] = ids
            case SessionStart(project=str(project)) if project and record.seq == 1:
                projects[:] = [project]
            case SessionFiled(project=str(project)):
                projects.append(project)
            case _:
                pass

    log = await sessions.load(session_id, visit=visit)
    turns.append((episodes_of(session_id, view.turn), view.turn.number))
    found = [(episodes, marked.get(turn, ())) for episodes, turn in turns]
    memory = await memory_in(projects[-1])
    if memory is None:
        raise StorageError("Memory is off or could not be opened.")
    captured = frozenset(id for _, ids in found for id in ids)
    kept = await memory.known(list(captured))
    left = set(projects) - {projects[-1]}
    return _Uncaptured(
        log=log,
        memory=memory,
        episodes=[
            episode
            for episodes, ids in found
            # The rest of a turn that was forgotten in part would have other ids where it was moved to, or if it was
            # imported.
            # A turn that was captured after a crash may have gone on.
            if len(ids) < len(episodes)
            or not (kept.intersection(ids) if left or source_of(session_id) else kept.issuperset(ids))
            for episode in episodes
        ],
        captured=captured,
        left=left,
    )
