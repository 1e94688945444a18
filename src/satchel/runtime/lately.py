"""What tools did lately, and what the user was asked about them, read from the session logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from satchel.events import Consent, Observation, Permission, QuestionAnswered, QuestionAsked
from satchel.runtime.lines import one_line
from satchel.runtime.newest_logs import NewestLogs
from satchel.runtime.tool_display import text_for_people
from satchel.sessions import SessionInfo, SessionStore
from satchel.sessions.view import SessionTurn, ToolCall

__all__ = ["AskedRule", "Lately", "ToolUse"]

_MOST_WORDS: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """One call of a tool.

    Attributes:
        at: When the turn began.
        state: As in `ToolCall`.
        took_ms: How long it took; None if it has no result.
        words: The beginning of the result.
    """

    session: str
    title: str
    turn: int
    at: datetime
    tool: str
    state: Literal["asked", "running", "refused", "done", "failed"]
    took_ms: float | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRule:
    """A rule with which a question about a call, or its refusal, could be spared.

    Attributes:
        answer: What the user said; "nobody" if nobody could be asked, "" if nobody answered.
    """

    session: str
    title: str
    turn: int
    at: datetime
    tool: str
    rule: str
    answer: Consent | Literal["nobody", ""]


class Lately:
    """Reads the newest sessions."""

    def __init__(self, sessions: SessionStore) -> None:
        """Read nothing yet."""
        self._logs = NewestLogs(sessions, _found_in)

    async def uses(self, prefix: str) -> Sequence[ToolUse]:
        """The calls of tools whose names begin with this, newest first."""
        found = [one for one in await self._logs.read() if isinstance(one, ToolUse)]
        return sorted(
            (one for one in found if one.tool.startswith(prefix)), key=lambda one: one.at, reverse=True
        )

    async def asked(self) -> Sequence[AskedRule]:
        """What was asked, newest first; each rule once."""
        found = [one for one in await self._logs.read() if isinstance(one, AskedRule)]
        newest = sorted(found, key=lambda one: one.at)
        return list({one.rule: one for one in newest}.values())[::-1]


def _found_in(info: SessionInfo, turn: SessionTurn) -> Iterator[ToolUse | AskedRule]:
    answers = {
        consent.call_id: consent.consent
        for answer in turn.of(QuestionAnswered)
        for consent in answer.consents
    }
    asked: list[tuple[str, str, Consent | Literal["nobody", ""]]] = [
        (call.tool, rule, answers.get(call.call_id, ""))
        for question in turn.of(QuestionAsked)
        for call in question.calls
        for rule in call.rules
    ]
    for call in turn.of(ToolCall):
        result: Observation | None = call.result
        refusal: Permission | None = call.refusal
        if refusal is not None and refusal.by == "nobody":
            asked += [(call.tool, rule, "nobody") for rule in refusal.wanted]
        yield ToolUse(
            session=info.id,
            title=info.title,
            turn=turn.number,
            at=turn.at,
            tool=call.tool,
            state=call.state,
            took_ms=result.duration_ms if result is not None else None,
            words=one_line(text_for_people(result), _MOST_WORDS) if result is not None else "",
        )
    for tool, rule, answer in asked:
        yield AskedRule(
            session=info.id,
            title=info.title,
            turn=turn.number,
            at=turn.at,
            tool=tool,
            rule=rule,
            answer=answer,
        )
