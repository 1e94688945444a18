"""The agenda: what happens, falls due, comes round, begins or ends today or in the next seven days, soonest first.
Reads only.

It goes by the days of facts, as a model said of what kind they are, and by the days that were read out of what else the
user said (`statements`). What is past is gone, and so is what was called off: its fact was superseded, it was
forgotten, or the user said later that it is cancelled or moved. Memories about one thing on one day share a line.
"""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Final

from satchel.memory.show.standing import Standing, StandingLine
from satchel.memory.spheres import is_granted
from satchel.memory.store import statement_rows
from satchel.memory.text import lexicon
from satchel.memory.text.framing import (
    AGENDA_ABOVE,
    AGENDA_EMPTY,
    AGENDA_HEAD,
    AGENDA_TAIL,
    agenda_line,
    day_of_agenda,
    days_of_agenda,
    estimate_tokens,
    tokens_of,
)
from satchel.memory.text.statements import without_days

if TYPE_CHECKING:
    from satchel.memory.records import MemoryRecord
    from satchel.memory.store.space import Space
    from satchel.memory.store.statement_rows import Appointment

AGENDA_TOKENS: Final = 100
"""Of the whole block (issue 11)."""
_SAME_SHARE: Final = 0.7
"""Of the telling words of the shorter one that two statements about one appointment share."""
_ONE_THING_SHARE: Final = 0.3
"""The same for two that may say different things about it, and so stand on one line."""
_MOST_ON_A_LINE: Final = 3
_MOST_CHECKED: Final = 40
"""The most important, then the soonest, are checked for what was said later; the agenda has room for four."""
_NEVER_DROPPED: Final = 5
"""The importance from which a deadline stands in the agenda, whatever room there is; what is today always does. What
the user stored by hand with it may be a deadline: no model has said of what kind its day is."""
_DAYS_OF_IMPORTANCE: Final = 3
"""One step of importance weighs as much as so many days."""
_SHORT_CHARS: Final = 60
"""Of the words of a line that has no room with all of them."""
_LASTS: Final = timedelta(hours=1)
"""An appointment stays for this long after its hour: its end is seldom said."""
_CLOCK: Final = re.compile(
    # "€ 3.50" and "3.50 euros" are prices, and "14.10." may be a day: without "Uhr", minutes after a dot are no month.
    r"(?<![€£$])(?<![€£$]\s)(?<!\b(?:eur|usd|gbp|chf|pln)\s)\b(?P<hour>[01]?\d|2[0-4])"
    r"(?:(?:[:h]|\.(?=\d\d\s?(?:[ap]m|uhr|h)\b|00|1[3-9]|[2-5]))(?P<minute>[0-5]\d)"
    r"(?!\d|\s?(?:[€£$]|eur|usd|gbp|chf|pln|pounds?\b|dollars?\b))(?:\s?(?P<half>[ap]m)\b)?"
    r"|\s?(?P<only>[ap]m|uhr|h)\b)",
    re.IGNORECASE,
)
_COMPUTED: Final = re.compile(r" \(\d{4}-\d\d-\d\d(?: to \d{4}-\d\d-\d\d)?\)")
"""The days that a program computed and wrote into a fact."""
_TOLD_SHARE: Final = 0.5
"""The same for a fact and a turn that speak of the same day: a fact has words of its own ("the user")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgendaLine(StandingLine):
    """One line of the agenda: its first and last day, the same with weekdays, after "by " for a deadline or "until "
    for what goes on already; why it may not take place (", perhaps called off"); and what else is said about the same
    thing on the same day, with the words.
    """

    first: date
    last: date
    days: str
    doubt: str = ""
    lead: str = ""
    more: tuple[tuple[MemoryRecord, str], ...] = ()

    @property
    def whole_ids(self) -> frozenset[str]:
        """See `StandingLine`."""
        parts = ((self.memory, self.words), *self.more)
        return frozenset(memory.id for memory, words in parts if words == memory.content)

    @property
    def sources(self) -> tuple[MemoryRecord, ...]:
        """See `StandingLine`."""
        return (self.memory, *(memory for memory, _ in self.more))

    def to_json(self) -> dict[str, Any]:
        """See `StandingLine`."""
        return {
            **StandingLine.to_json(self),
            "doubt": self.doubt.removeprefix(", "),
            "lead": self.lead.strip(),
            "more": [{"id": memory.id, "words": words} for memory, words in self.more],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda(Standing[AgendaLine]):
    """What happens in eight days from `day`, soonest first; its `text` says so where nothing is known."""

    day: date

    def own_json(self) -> dict[str, Any]:
        """See `Standing`."""
        return {"day": self.day.isoformat()}


@dataclass(frozen=True, slots=True)
class _Entry:
    """An appointment on its next day, and the telling words of it, without those of its days; `lead` stands before it:
    "by ", "until " or "".
    """

    found: Appointment
    first: date
    last: date
    stems: frozenset[int]
    doubt: str = ""
    lead: str = ""
    more: tuple[_Entry, ...] = ()

    @property
    def importance(self) -> int:
        """Of the most important memory on its line."""
        return max(one.found.memory.importance for one in (self, *self.more))

    def is_never_dropped(self, today: date) -> bool:
        """Whether it must not be missed, whatever room there is."""
        return self.first == today or any(
            (one.lead == "by " or one.found.memory.time is None)
            and one.found.memory.importance >= _NEVER_DROPPED
            for one in (self, *self.more)
        )

    def weight(self, today: date) -> float:
        """What has the lower one goes first, where there is no room."""
        return self.importance - (self.first - today).days / _DAYS_OF_IMPORTANCE


async def compose(
    space: Space,
    *,
    budget_tokens: int,
    granted: Collection[str] = (),
    standing: Collection[str] = (),
    exclude_session: str | None = None,
) -> Agenda:
    """Compose the agenda of a space; see `Memory.agenda`."""
    now = space.clock.now()
    today = now.date()
    last = today + timedelta(days=statement_rows.AGENDA_DAYS)
    found, changes, over = await space.read(
        statement_rows.appointments, at=space.now_micros(), first=today, last=last
    )
    entries = [
        entry
        for one in found
        if one.change != "cancelled"
        and is_granted(one.memory.spheres, granted)
        and (
            one.first is None
            or (one.memory.source.session, one.memory.source.turn, one.first.toordinal()) not in over
        )
        and (entry := _entry(one, today, last)) is not None
    ]
    left_out = [(_line(entry), "is over") for entry in entries if _is_over(entry, now)]
    entries = [entry for entry in entries if not _is_over(entry, now)]
    entries.sort(key=lambda entry: (-entry.importance, entry.first, entry.found.rid))
    left_out += [(_line(entry), "no room left") for entry in entries[_MOST_CHECKED:]]
    # Of one appointment, the fact says it better than the turn, and what says more comes before what says less.
    entries = sorted(
        entries[:_MOST_CHECKED],
        key=lambda entry: (
            entry.first,
            entry.found.memory.kind != "fact",
            -len(entry.stems),
            entry.found.rid,
        ),
    )
    moved = {id(entry): _said_otherwise(entry, entries) for entry in entries}
    off = _called_off([entry for entry in entries if not moved[id(entry)]], changes)
    kept: list[_Entry] = []
    for entry in entries:
        called_off, doubt = off.get(id(entry), ("", ""))
        why = called_off or moved[id(entry)] or _said_already(entry, kept)
        if why:
            left_out.append((_line(entry), why))
            continue
        entry = replace(entry, doubt=doubt)
        place = next((at for at, other in enumerate(kept) if _is_one_thing(entry, other)), None)
        if place is None:
            kept.append(entry)
        else:
            kept[place] = replace(kept[place], more=(*kept[place].more, entry))

    def why_above(entry: _Entry) -> str:
        """Why the model has all of a line before it already; "" where it hasn't."""
        memories = [one.found.memory for one in (entry, *entry.more)]
        if any(one.doubt for one in (entry, *entry.more)):
            return ""
        if all(
            one.source.session is not None
            and one.source.session == exclude_session
            and one.said_at.astimezone(now.tzinfo).date() == today
            for one in memories
        ):
            return "was said in this conversation"
        # A fact whose days a model read says them itself.
        is_standing = all(one.id in standing and one.time is not None for one in memories)
        return "stands in the profile" if is_standing else ""

    whys = [why_above(entry) for entry in kept]
    left_out += [(_line(entry), why) for entry, why in zip(kept, whys, strict=True) if why]
    left = [entry for entry, why in zip(kept, whys, strict=True) if not why]
    return _composed(left, today, budget_tokens, left_out, AGENDA_ABOVE if any(whys) else AGENDA_EMPTY)


def _composed(
    entries: Sequence[_Entry],
    today: date,
    budget_tokens: int,
    left_out: list[tuple[AgendaLine, str]],
    empty: str,
) -> Agenda:
    head = AGENDA_HEAD.format(day=day_of_agenda(today))
    by_weight = sorted(
        range(len(entries)),
        key=lambda at: (not entries[at].is_never_dropped(today), -entries[at].weight(today), at),
    )
    left = budget_tokens - tokens_of(head + AGENDA_TAIL)
    taken: dict[int, AgendaLine] = {}
    for at in by_weight if budget_tokens > 0 else ():
        line = _line(entries[at])
        if tokens_of(line.text + "\n") > left and not entries[at].is_never_dropped(today):
            line = _line(entries[at], _SHORT_CHARS)
        cost = tokens_of(line.text + "\n")
        if cost > left and not entries[at].is_never_dropped(today):
            left_out.append((line, "no room left"))
            continue
        left -= cost
        taken[at] = line
    lines = [taken[at] for at in sorted(taken)]
    body = "".join(f"{line.text}\n" for line in lines) or f"{empty}\n"
    text = head + body + AGENDA_TAIL
    return Agenda(
        day=today, text=text, memories=tuple(lines), tokens=estimate_tokens(text), left_out=tuple(left_out)
    )


def _entry(found: Appointment, today: date, last: date) -> _Entry | None:
    """An appointment on its next day, or None where that is none of these days."""
    begins, ends, lead = found.first, found.last, ""
    kind = "" if found.memory.time is None else found.memory.time.kind
    if found.yearly:
        begins = ends = _next_of(found.yearly, today)
    elif found.every:
        days = (today + timedelta(days=number) for number in range((last - today).days + 1))
        begins = ends = next((day for day in days if found.every in statement_rows.rounds_of(day)), None)
    if begins is None or ends is None or ends < today or begins > last:
        return None
    if kind == "deadline":
        begins, lead = ends, "by "
    elif kind == "period" and begins < today:
        # It goes on; that it ends these days is worth a line.
        if ends > last:
            return None
        begins, lead = ends, "until "
    return _Entry(found, begins, ends, frozenset(lexicon.stems_of(without_days(found.words))), lead=lead)


def _is_over(entry: _Entry, now: datetime) -> bool:
    """Whether its hour is past by more than `_LASTS`. An hour that may be one of the evening is taken for one."""
    if entry.last != now.date() or entry.found.yearly:
        return False
    said = [_latest_minute(match) for match in _CLOCK.finditer(entry.found.words)]
    return (
        bool(said) and timedelta(hours=now.hour, minutes=now.minute) > timedelta(minutes=max(said)) + _LASTS
    )


def _latest_minute(match: re.Match[str]) -> int:
    """The latest minute of a day that a time may mean: "10:30" may be 22:30; "9 am" and "14:00" are what they say."""
    hour, is_morning = int(match["hour"]), (match["half"] or match["only"] or "").lower() == "am"
    if is_morning:
        hour %= 12
    elif hour < 12:
        hour += 12
    return hour * 60 + int(match["minute"] or 0)


def _next_of(yearly: int, today: date) -> date:
    """The next time that a month and a day come round; 29 February is the 28th where there is none."""
    month, day = divmod(yearly, 100)
    this_year, next_year = (
        date(year, month, 28 if (month, day) == (2, 29) and not isleap(year) else day)
        for year in (today.year, today.year + 1)
    )
    return this_year if this_year >= today else next_year


def _shares(one: frozenset[int], other: frozenset[int], share: float) -> bool:
    shared = len(one & other)
    return shared > 0 and shared >= share * min(len(one), len(other))


def _is_later(one: Appointment, other: Appointment) -> bool:
    return (one.memory.said_at, one.rid) > (other.memory.said_at, other.rid)


def _called_off(entries: Sequence[_Entry], changes: Sequence[Appointment]) -> dict[int, tuple[str, str]]:
    """Which appointments, by `id`, somebody called off or moved later: the reason to leave each out, and the doubt.

    Where one cancellation fits appointments on several days alike, nobody knows which is meant. All of them stay,
    marked: a line too many does less harm than an appointment that is missed.
    """
    found: dict[int, tuple[str, str]] = {}
    for change in reversed(changes):  # What was moved first can be called off next.
        words = frozenset(lexicon.stems_of(without_days(change.words))) - _WORDS_OF_CHANGE
        # The day alone tells too: "Thursday is off".
        is_day_alone = change.change == "cancelled" and change.first is not None and not words
        meant = {
            id(entry): (entry, entry.stems & words)
            for entry in entries
            if not found.get(id(entry), ("", ""))[0]
            and _is_later(change, entry.found)
            and change.rid != entry.found.rid
            and not _is_elsewhere(change, entry)
            # Of what a model read, it says which fact replaces which: "no lifting after the operation, now on Friday".
            and (change.change != "moved" or None in (entry.found.memory.time, change.memory.time))
            and (entry.stems & words or is_day_alone)
        }
        for key, (entry, shared) in meant.items():
            others = [(other, own) for other, own in meant.values() if other.first != entry.first]
            if any(shared < own for _, own in others):
                continue  # It fits another one better.
            if any(shared == own for _, own in others):
                doubt = ", perhaps moved" if change.change == "moved" else ", perhaps called off"
                found.setdefault(key, ("", doubt))
            else:
                found[key] = (f"called off by {change.memory.id}", "")
    return found


_WORDS_OF_CHANGE: Final = frozenset(
    lexicon.stems_of(
        "cancelled cancel off called abgesagt cancelado annulé moved postponed rescheduled user user's"
    )
)
"""Words that tell nothing of what is called off; facts speak of "the user"."""


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
            # Of what a model read, it says which fact replaces which.
            and None in (entry.found.memory.time, other.found.memory.time)
            and _shares(entry.stems, other.stems, _SAME_SHARE)
        ):
            return f"{other.found.memory.id} says another day"
    return ""


def _said_already(entry: _Entry, kept: Sequence[_Entry]) -> str:
    for other in kept:
        if other.first != entry.first:
            continue
        if other.found.memory.kind != entry.found.memory.kind:
            is_said = _shares(entry.stems, other.stems, _TOLD_SHARE)
        else:
            is_said = 0 < len(entry.stems & other.stems) >= _SAME_SHARE * len(entry.stems)
            is_said = is_said and _figures(entry) <= _figures(other)
        if is_said:
            return f"{other.found.memory.id} says it"
    return ""


def _figures(entry: _Entry) -> set[str]:
    """The figures of its words, but for those of its days: its hour, how many come, what it costs."""
    days = {part for day in (entry.first, entry.last) for part in re.findall(r"[1-9]\d*", str(day))}
    return set(re.findall(r"[1-9]\d*", entry.found.words)) - days


def _is_one_thing(entry: _Entry, other: _Entry) -> bool:
    """Whether an entry says something else about what a line is about, on the same days."""
    return (
        (entry.first, entry.last, entry.doubt, entry.lead)
        == (other.first, other.last, other.doubt, other.lead)
        and len(other.more) < _MOST_ON_A_LINE - 1
        and _shares(entry.stems, other.stems, _ONE_THING_SHARE)
    )


def _line(entry: _Entry, most_chars: int | None = None) -> AgendaLine:
    found = [(one.found.memory, one.found.words) for one in (entry, *entry.more)]
    if most_chars is not None:
        found = [(memory, shorten(words, most_chars, placeholder=" …")) for memory, words in found]
    (memory, words), *more = found
    # The line begins with its days, so they need not be in its words as well.
    said = [
        _COMPUTED.sub(lambda days: "" if str(entry.first) in days[0] else days[0], words)
        for _, words in found
    ]
    days = f"{entry.lead}{days_of_agenda(entry.first, entry.last)}"
    text = agenda_line(memory.id, said, days=days, doubt=entry.doubt)
    return AgendaLine(
        memory=memory,
        words=words,
        first=entry.first,
        last=entry.last,
        days=days,
        doubt=entry.doubt,
        lead=entry.lead,
        more=tuple(more),
        text=text,
        tokens=estimate_tokens(text + "\n"),
    )
