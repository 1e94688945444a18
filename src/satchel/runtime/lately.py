"""What happened lately, read from the newest session logs, each again only when it changed: they alone keep it.

What tools did, what the user was asked about them, and what models were shown of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar

from satchel.errors import NotFound, StorageError
from satchel.events import Consent, MemorySurfaced, QuestionAnswered, QuestionAsked, SurfacedMemory
from satchel.runtime.lines import one_line
from satchel.runtime.tool_display import text_for_people
from satchel.sessions import LogFile, SessionInfo, SessionStore
from satchel.sessions.view import SessionTurn, ToolCall

_MOST_SESSIONS: Final = 40
_MOST_RESULT: Final = 160
_MOST_SAID: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _InTurn:
    """Something that happened in a turn, which began at `at`; with the session's id and title."""

    session: str
    title: str
    turn: int
    at: datetime


_T = TypeVar("_T", bound=_InTurn)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse(_InTurn):
    """One call of a tool.

    Attributes:
        state: As in `ToolCall`.
        took_ms: How long it took; None if it has no result.
        words: The beginning of the result.
    """

    tool: str
    state: Literal["asked", "running", "refused", "done", "failed"]
    took_ms: float | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRule(_InTurn):
    """A rule with which a question about a call, or its refusal, could be spared.

    Attributes:
        answer: What the user said; "nobody" if nobody could be asked, "" if nobody answered.
    """

    tool: str
    rule: str
    answer: Consent | Literal["nobody", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfacedBlock(_InTurn):
    """One block of memories that a model was shown.

    Attributes:
        words: The beginning of the message that it was shown with.
        memories: What it contained, best first, with what spoke most for each.
        standing: As in `MemorySurfaced`.
    """

    words: str
    memories: tuple[SurfacedMemory, ...]
    standing: Literal["", "profile", "agenda"]


class Lately:
    """Reads the sessions that were used last. A log that can't be read is left out."""

    def __init__(self, sessions: SessionStore) -> None:
        self._sessions = sessions
        self._read: dict[str, tuple[LogFile | None, tuple[_InTurn, ...]]] = {}

    async def uses(self, prefix: str) -> Sequence[ToolUse]:
        """The calls of tools whose names begin with this, newest first."""
        return [one for one in _newest_first(await self._found(ToolUse)) if one.tool.startswith(prefix)]

    async def asked(self) -> Sequence[AskedRule]:
        """What was asked, newest first; each rule once."""
        found = sorted(await self._found(AskedRule), key=attrgetter("at"))
        return list({one.rule: one for one in found}.values())[::-1]

    async def surfaced(self) -> Sequence[SurfacedBlock]:
        """What was shown of memory, newest first."""
        return _newest_first(await self._found(SurfacedBlock))

    async def surfaced_with(self, memory_id: str) -> Sequence[tuple[SurfacedBlock, SurfacedMemory]]:
        """When one memory was shown, newest first."""
        blocks = await self.surfaced()
        return [(one, memory) for one in blocks for memory in one.memories if memory.id == memory_id]

    async def _found(self, kind: type[_T]) -> list[_T]:
        infos = sorted(await self._sessions.list(), key=lambda info: info.last_at, reverse=True)
        read: dict[str, tuple[LogFile | None, tuple[_InTurn, ...]]] = {}
        for info in infos[:_MOST_SESSIONS]:
            try:
                # A log from which words were removed is another file.
                stamp = await self._sessions.state(info)
                known = self._read.get(info.id)
                is_known = known is not None and known[0] == stamp
                read[info.id] = known if known is not None and is_known else (stamp, await self._in(info))
            except (NotFound, StorageError, OSError):
                continue
        self._read = read
        return [one for _, of_log in read.values() for one in of_log if isinstance(one, kind)]

    async def _in(self, info: SessionInfo) -> tuple[_InTurn, ...]:
        found: list[_InTurn] = []
        await self._sessions.read_turns(info.id, lambda turn: found.extend(_found_in(info, turn)))
        return tuple(found)


def _newest_first(found: list[_T]) -> list[_T]:
    return sorted(found, key=attrgetter("at"), reverse=True)


def _found_in(info: SessionInfo, turn: SessionTurn) -> Iterator[_InTurn]:
    where: dict[str, Any] = {"session": info.id, "title": info.title, "turn": turn.number, "at": turn.at}
    answers = {
        consent.call_id: consent.consent
        for answer in turn.of(QuestionAnswered)
        for consent in answer.consents
    }
    for question in turn.of(QuestionAsked):
        for asked in question.calls:
            for rule in asked.rules:
                yield AskedRule(**where, tool=asked.tool, rule=rule, answer=answers.get(asked.call_id, ""))
    for call in turn.of(ToolCall):
        result, refusal = call.result, call.refusal
        yield ToolUse(
            **where,
            tool=call.tool,
            state=call.state,
            took_ms=result.duration_ms if result is not None else None,
            words=one_line(text_for_people(result), _MOST_RESULT) if result is not None else "",
        )
        if refusal is not None and refusal.by == "nobody":
            for rule in refusal.wanted:
                yield AskedRule(**where, tool=call.tool, rule=rule, answer="nobody")
    for shown in turn.of(MemorySurfaced):
        if shown.memories:
            words = one_line(turn.said, _MOST_SAID)
            yield SurfacedBlock(**where, words=words, memories=shown.memories, standing=shown.standing)
