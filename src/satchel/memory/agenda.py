"""The agenda: what was said to happen today or in the next seven days, soonest first. Reads only.

It goes by the days that were read out of what the user said and of facts (`statements`). What is past is gone, and so
is what was called off: its fact was superseded, it was forgotten, or the user said later that it is cancelled or moved.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

from satchel.memory import lexicon, statement_rows
from satchel.memory.block import AGENDA_EMPTY, AGENDA_HEAD, AGENDA_TAIL, estimate_tokens, quoted, tokens_of
from satchel.memory.profile import short_id
from satchel.memory.records import MemoryRecord, record_to_json
from satchel.memory.statements import without_days

if TYPE_CHECKING:
    from satchel.memory.space import Space
    from satchel.memory.statement_rows import Appointment

__all__ = ["AGENDA_TOKENS", "Agenda", "AgendaLine", "Agendas", "agenda_to_json"]

AGENDA_TOKENS: Final = 100
"""Of the whole block (issue 11)."""
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SAME_SHARE: Final = 0.7
"""Of the telling words of the shorter one that two statements about one appointment share."""
_MOST_CHECKED: Final = 40
"""The soonest are checked for what was said later; the agenda has room for four."""
_TOLD_SHARE: Final = 0.5
"""The same for a fact and a turn that speak of the same day: a fact has words of its own ("the user")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgendaLine:
    """One line of the agenda.

    Attributes:
        memory: What it comes from.
        words: What is shown of it.
        first: The day it happens, or the first of its days; `last` is the last.
        days: The same with their weekdays, as "Thu 2026-11-26".
        text: The line as the model sees it, without its end.
        tokens: Of the line, estimated.
    """

    memory: MemoryRecord
    words: str
    first: date
    last: date
    days: str
    text: str
    tokens: int

    @property
    def id(self) -> str:
        """The memory's id; the line has its beginning."""
        return self.memory.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """What happens in the next days.

    Attributes:
        day: The first of the eight days.
        text: The marked block; it says so where nothing is known.
        memories: Its lines, soonest first.
        tokens: Of `text`, estimated.
        left_out: What happens too and is not in it, each with the reason.
    """

    day: date
    text: str = ""
    memories: tuple[AgendaLine, ...] = ()
    tokens: int = 0
    left_out: tuple[tuple[AgendaLine, str], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is something to show."""
        return bool(self.memories)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An appointment on its next day."""

    found: Appointment
    first: date
    last: date
    stems: frozenset[int]


class Agendas:
    """Composes the agenda of a space."""

    def __init__(self, space: Space) -> None:
        """Take the space."""
        self._space = space

    async def agenda(self, *, budget_tokens: int, ahead_days: int = statement_rows.AGENDA_DAYS) -> Agenda:
        """Compose the agenda; see `Memory.agenda`."""
        today = self._space.clock.now().date()
        last = today + timedelta(days=ahead_days)
        found, changes, over = await self._space.read(
            statement_rows.appointments, at=self._space.now_micros(), first=today, last=last
        )
        entries = [
            entry
            for one in found
            if one.change != "cancelled"
            and (
                one.first is None
                or (one.memory.source.session, one.memory.source.turn, one.first.toordinal()) not in over
            )
            and (entry := _entry(one, today, last)) is not None
        ]
        off = [(change, _stems(change)) for change in changes]
        # Of one appointment, the fact says it better than the turn.
        entries.sort(key=lambda entry: (entry.first, entry.found.memory.kind != "fact", entry.found.rid))
        kept: list[_Entry] = []
        left_out: list[tuple[AgendaLine, str]] = []
        for number, entry in enumerate(entries):
            if number >= _MOST_CHECKED:
                left_out.append((_line(entry), "no room left"))
                continue
            why = _called_off(entry, off) or _said_otherwise(entry, entries) or _said_already(entry, kept)
            if why:
                left_out.append((_line(entry), why))
            else:
                kept.append(entry)
        return _composed(kept, today, budget_tokens, left_out)


def agenda_to_json(agenda: Agenda) -> dict[str, Any]:
    """An agenda as plain JSON data."""

    def line(one: AgendaLine) -> dict[str, Any]:
        return {
            "id": one.id,
            "first": one.first.isoformat(),
            "last": one.last.isoformat(),
            "words": one.words,
            "tokens": one.tokens,
            "memory": record_to_json(one.memory),
        }

    return {
        "day": agenda.day.isoformat(),
        "text": agenda.text,
        "tokens": agenda.tokens,
        "lines": [line(one) for one in agenda.memories],
        "left_out": [{**line(one), "reason": why} for one, why in agenda.left_out],
    }


def _composed(
    entries: Sequence[_Entry], today: date, budget_tokens: int, left_out: list[tuple[AgendaLine, str]]
) -> Agenda:
    head = AGENDA_HEAD.format(day=_day(today))
    left = budget_tokens - tokens_of(head + AGENDA_TAIL)
    lines: list[AgendaLine] = []
    for entry in entries:
        line = _line(entry)
        cost = tokens_of(line.text + "\n")
        if cost > left:
            left_out.append((line, "no room left"))
            left = -1.0  # Soonest first: nothing later takes its place.
            continue
        left -= cost
        lines.append(line)
    body = "".join(f"{line.text}\n" for line in lines) or f"{AGENDA_EMPTY}\n"
    text = head + body + AGENDA_TAIL
    return Agenda(
        day=today, text=text, memories=tuple(lines), tokens=estimate_tokens(text), left_out=tuple(left_out)
    )


def _entry(found: Appointment, today: date, last: date) -> _Entry | None:
    """An appointment on its next day, or None where that is none of these days."""
    if found.yearly:
        day = _next_of(found.yearly, today)
        return _Entry(found, day, day, _stems(found)) if day <= last else None
    if found.first is None or found.last is None or found.last < today or found.first > last:
        return None
    return _Entry(found, found.first, found.last, _stems(found))


def _next_of(yearly: int, today: date) -> date:
    """The next time that a month and a day come round; 29 February is the 28th where there is none."""
    month, day = divmod(yearly, 100)
    this_year, next_year = (
        date(year, month, 28 if (month, day) == (2, 29) and not isleap(year) else day)
        for year in (today.year, today.year + 1)
    )
    return this_year if this_year >= today else next_year


def _stems(found: Appointment) -> frozenset[int]:
    """The telling words of what is said, without those of its days."""
    return frozenset(lexicon.stems_of(without_days(found.words)))


def _shares(one: frozenset[int], other: frozenset[int], share: float) -> bool:
    shared = len(one & other)
    return shared > 0 and shared >= share * min(len(one), len(other))


def _is_later(one: Appointment, other: Appointment) -> bool:
    return (one.memory.said_at, one.rid) > (other.memory.said_at, other.rid)


def _called_off(entry: _Entry, changes: Sequence[tuple[Appointment, frozenset[int]]]) -> str:
    """Who said later that it doesn't take place, or not then."""
    for change, stems in changes:
        if not _is_later(change, entry.found) or change.rid == entry.found.rid:
            continue
        # The day alone tells too: "Thursday is off".
        on_that_day = (
            change.change == "cancelled" and change.first is not None and not stems - _WORDS_OF_CHANGE
        )
        if (entry.stems & stems and not _is_elsewhere(change, entry)) or (
            on_that_day and change.first == entry.first
        ):
            return f"called off by {change.memory.id}"
    return ""


_WORDS_OF_CHANGE: Final = frozenset(
    lexicon.stems_of("cancelled cancel off called abgesagt cancelado annulé moved postponed rescheduled")
)


def _is_elsewhere(change: Appointment, entry: _Entry) -> bool:
    """Whether a cancellation names another day than the appointment's."""
    return change.change == "cancelled" and change.first is not None and change.first != entry.first


def _said_otherwise(entry: _Entry, entries: Sequence[_Entry]) -> str:
    """Who said later that it is on another day."""
    for other in entries:
        if (
            other.first != entry.first
            and _is_later(other.found, entry.found)
            and other.found.rid != entry.found.rid
            and not entry.found.yearly
            and _shares(entry.stems, other.stems, _SAME_SHARE)
        ):
            return f"{other.found.memory.id} says another day"
    return ""


def _said_already(entry: _Entry, kept: Sequence[_Entry]) -> str:
    for other in kept:
        is_told = other.found.memory.kind != entry.found.memory.kind
        share = _TOLD_SHARE if is_told else _SAME_SHARE
        if other.first == entry.first and _shares(entry.stems, other.stems, share):
            return f"{other.found.memory.id} says it"
    return ""


def _day(day: date) -> str:
    return f"{_WEEKDAYS[day.weekday()]} {day.isoformat()}"


def _line(entry: _Entry) -> AgendaLine:
    days = _day(entry.first) if entry.first == entry.last else f"{_day(entry.first)} to {_day(entry.last)}"
    memory = entry.found.memory
    text = f"{days} {short_id(memory.id)} {quoted(entry.found.words)}"
    return AgendaLine(
        memory=memory,
        words=entry.found.words,
        first=entry.first,
        last=entry.last,
        days=days,
        text=text,
        tokens=estimate_tokens(text + "\n"),
    )
