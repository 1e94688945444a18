"""The profile: what holds about the user at all times, so that it need not be searched for. Reads only.

It consists of what the user pinned, of current facts in the user's own words by importance, and of the user's own
lasting statements where no fact says them; never of anything that came from outside. Where no page stands in its place,
the user's last turns follow, whole: no score says as well what a conversation goes on from. The same store gives the
same bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from satchel.memory.records import MemoryRecord
from satchel.memory.show.standing import Standing, StandingLine
from satchel.memory.spheres import is_granted
from satchel.memory.store import decay, statement_rows
from satchel.memory.store.statement_rows import AGENDA_DAYS
from satchel.memory.text import lexicon
from satchel.memory.text.framing import (
    LATELY_HEAD,
    LINE_TOKENS,
    PROFILE_HEAD,
    PROFILE_TAIL,
    Restated,
    estimate_tokens,
    excerpt,
    profile_line,
    tokens_of,
)
from satchel.memory.text.statements import SECTIONS, only_asks, says_habit, section_of, shown_words

if TYPE_CHECKING:
    from satchel.memory.store.space import Space
    from satchel.memory.store.statement_rows import ProfileCandidates

PROFILE_TOKENS: Final = 300
"""Of what holds (issue 11): eight facts, or ten statements."""
LATELY: Final = 2
"""So many times as much for the last turns, where no page is: see decision 109."""

ID_CHARS: Final = 17
"""A letter and 16 hexadecimal digits."""
SAID_LAST: Final = "said last"
"""Why one of the last turns is there."""
_MOST_LEFT_OUT: Final = 40
_SAME_SHARE: Final = 0.5
"""Of the telling words of the shorter statement that two about the same thing share."""
_OWN_SHARE: Final = 0.5
"""Of a model's fact, the telling words that the user said in that turn: it is in the user's own words."""
_CORE: Final[Mapping[str, float]] = {
    "name": 1.6, "answers": 1.6, "health": 1.6, "home": 1.2, "work": 1.2, "people": 1.2,
}  # fmt: skip
"""What a model must know in every conversation comes before what is merely important. On `life-dev`, 300 tokens of
facts cover .478 of what is needed with it, and .468 with 1 for home, work and people: inside the interval."""
_OLD: Final = 0.3
_HALF_LIFE_DAYS: Final = 120.0
"""What was said lately is needed more; what is old keeps `_OLD` of its weight however old it is. With the exponents
below, the best of a coarse grid on `life-dev` (benchmarks/statements.py); neighbours on the grid differ by .01."""
_MOST_OF_ONE: Final = 2
"""Statements of one memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileLine(StandingLine):
    """One line of the profile: why it is there, and its section, of `statements.SECTIONS` or "lately"."""

    why: str
    section: str


class Profile(Standing[ProfileLine]):
    """What holds about the user at all times; its `text` is "" where nothing is known."""

    __slots__ = ()


async def compose(
    space: Space,
    *,
    budget_tokens: int,
    granted: Collection[str],
    lately_tokens: int = 0,
    exclude_session: str | None = None,
) -> Profile:
    """Compose the profile of a space; see `Memory.standing`. `lately_tokens` are for the user's last turns."""
    now = space.clock.now()
    last: list[ProfileLine] = []
    if lately_tokens > 0:
        turns = await space.read(statement_rows.lately, at=space.now_micros())
        last = _lately([one for one in turns if is_granted(one.spheres, granted)], lately_tokens)
    said = {id for line in last for id in line.whole_ids}
    found = await space.read(statement_rows.profile_candidates, at=space.now_micros(), today=now.date())
    found = replace(
        found,
        pinned=[one for one in found.pinned if is_granted(one.spheres, granted)],
        facts=[one for one in found.facts if is_granted(one.spheres, granted)],
        # What stands below with all its words makes room for what was said before.
        statements=[
            one
            for one in found.statements
            if is_granted(one[0].spheres, granted)
            and one[0].id not in said
            and (exclude_session is None or one[0].source.session != exclude_session)
        ],
    )
    return _compose(found, now, budget_tokens, last)


def fact_weight(importance: int, words: str, *, age_days: float, tokens: float) -> float:
    """How much a fact matters for what it costs."""
    return importance**2 / math.sqrt(tokens) * _recency(age_days) * _CORE.get(section_of(words), 1.0)


def statement_weight(strength: float, words: str, *, age_days: float, tokens: float) -> float:
    """The same for a statement: `strength` is its log-odds to last."""
    chance = 1 / (1 + math.exp(-max(-30.0, min(30.0, strength))))
    return chance / math.sqrt(tokens) * _recency(age_days) * _CORE.get(section_of(words), 1.0)


def _recency(age_days: float) -> float:
    return _OLD + (1 - _OLD) * math.exp2(-max(age_days, 0.0) / _HALF_LIFE_DAYS)


def _compose(
    found: ProfileCandidates, now: datetime, budget_tokens: int, last: Sequence[ProfileLine]
) -> Profile:
    pinned, others, left_out = _lines(found, now)
    others = _later_first(others, found.later)
    left = budget_tokens - tokens_of(PROFILE_HEAD + PROFILE_TAIL)
    taken: list[ProfileLine] = []
    said = Restated()
    lines_of: Counter[str] = Counter()
    for line in (*pinned, *others):
        if lines_of[line.id] >= _MOST_OF_ONE:
            left_out.append((line, "other words of it are there"))
            continue
        if said.by(line.words):
            left_out.append((line, "says what another line says"))
            continue
        cost = tokens_of(line.text + "\n")
        if cost > left:
            left_out.append((line, "no room left" if left > 0 else "no room left for pins either"))
            continue
        left -= cost
        lines_of[line.id] += 1
        taken.append(line)
        said.add(line.words)
    taken.sort(key=lambda line: (SECTIONS.index(line.section), line.memory.said_at))
    body = "".join(f"{line.text}\n" for line in taken)
    if last:
        body += LATELY_HEAD + "".join(f"{line.text}\n" for line in last)
    text = PROFILE_HEAD + body + PROFILE_TAIL if body else ""
    return Profile(
        text=text,
        memories=(*taken, *last),
        tokens=estimate_tokens(text),
        left_out=tuple(left_out[:_MOST_LEFT_OUT]),
    )


def _lately(turns: Sequence[MemoryRecord], budget_tokens: int) -> list[ProfileLine]:
    """The last turns, oldest first, of which `turns` has the newest first; a long one is cut. What only asked says
    nothing of who asked: of 818 needs in seven lived lives, four come from such a message.
    """
    left = budget_tokens - tokens_of(LATELY_HEAD)
    lines: list[ProfileLine] = []
    said = Restated()
    for memory in turns:
        words = excerpt(memory.content, (), LINE_TOKENS)
        if not words or only_asks(memory.content) or said.by(words):
            continue
        line = _line(memory, words, SAID_LAST, "lately")
        left -= tokens_of(line.text + "\n")
        if left < 0:
            break
        lines.append(line)
        said.add(words)
    return lines[::-1]


def _lines(
    found: ProfileCandidates, now: datetime
) -> tuple[list[ProfileLine], list[ProfileLine], list[tuple[ProfileLine, str]]]:
    """Pins, then facts and statements, each the heaviest first; and what may not stand in a profile."""
    left_out: list[tuple[ProfileLine, str]] = []
    pinned: list[ProfileLine] = []
    for memory in found.pinned:
        line = _line(memory, found.words.get(memory.id) or shown_words(memory.content), "pinned")
        if memory.trust == "outside":
            left_out.append((line, "came from outside"))
        elif not _holds(memory, now):
            left_out.append((line, "no longer holds" if _is_over(memory, now) else "does not hold yet"))
        else:
            pinned.append(line)
    known = {memory.id for memory in found.pinned}
    facts: list[tuple[float, ProfileLine]] = []
    told: set[tuple[str | None, int | None]] = set()
    for memory in found.facts:
        if memory.source.session is not None:
            told.add((memory.source.session, memory.source.turn))
        if memory.id in known or not is_own(memory, found.said) or _has_faded(memory, now):
            continue
        words = shown_words(memory.content)
        if _is_appointment(words, found.dated.get(memory.id), now):
            continue
        line = _line(memory, words, f"{memory.memory_type}, importance {memory.importance}")
        weight = fact_weight(
            memory.importance, words, age_days=_age(memory, now), tokens=tokens_of(line.text + "\n")
        )
        facts.append((weight, line))
    statements: list[tuple[float, ProfileLine]] = []
    for memory, words, strength in found.statements:
        # A fact says it better.
        if memory.id in known or (memory.source.session, memory.source.turn) in told:
            continue
        if (memory.id, words) in found.over or _has_ended(memory, words, found.ended):
            continue
        line = _line(memory, words, "the user's own words, likely to last")
        weight = statement_weight(
            strength, words, age_days=_age(memory, now), tokens=tokens_of(line.text + "\n")
        )
        statements.append((weight, line))
    heaviest = (sorted(some, key=lambda one: -one[0]) for some in (facts, statements))
    return pinned, [line for some in heaviest for _, line in some], left_out


def _later_first(lines: Sequence[ProfileLine], later: Mapping[str, Sequence[str]]) -> list[ProfileLine]:
    """Put what is linked as what may replace a line before it, so that it never drops out before the older one."""
    found: dict[int, ProfileLine] = {}
    for line in lines:
        linked = later.get(line.memory.id, ())
        for one in (*(other for other in lines if other.memory.id in linked), line):
            found.setdefault(id(one), one)
    return list(found.values())


def is_own(memory: MemoryRecord, said: Mapping[tuple[str, int], str]) -> bool:
    """Whether a fact is in the user's own words: the user's, or a model's that repeats what the user said."""
    if memory.trust == "user":
        return True
    source = memory.source
    if memory.trust != "agent" or source.session is None or source.turn is None:
        return False
    stems = set(lexicon.stems_of(memory.content))
    own = set(lexicon.stems_of(said.get((source.session, source.turn), "")))
    return bool(stems) and len(stems & own) >= _OWN_SHARE * len(stems)


def _is_appointment(words: str, last: date | None, now: datetime) -> bool:
    """Whether the agenda has a fact, or had it and nothing in it lasts: a dentist's appointment, but neither
    a move nor what is done every week.
    """
    if last is None or says_habit(words):
        return False
    return section_of(words) == "more" or now.date() <= last <= now.date() + timedelta(days=AGENDA_DAYS)


def _has_ended(memory: MemoryRecord, words: str, ended: Mapping[tuple[str, int], Sequence[str]]) -> bool:
    """Whether a fact that says what a statement says was drawn from its turn and no longer holds."""
    source = memory.source
    if source.session is None or source.turn is None:
        return False
    stems = set(lexicon.stems_of(words))
    facts = (set(lexicon.stems_of(text)) for text in ended.get((source.session, source.turn), ()))
    return any(
        len(stems & fact) >= _SAME_SHARE * min(len(stems), len(fact)) for fact in facts if stems and fact
    )


def _is_over(memory: MemoryRecord, now: datetime) -> bool:
    return memory.valid_to is not None and memory.valid_to <= now


def _holds(memory: MemoryRecord, now: datetime) -> bool:
    return not _is_over(memory, now) and (memory.valid_from is None or memory.valid_from <= now)


def _has_faded(memory: MemoryRecord, now: datetime) -> bool:
    return memory.tier == "short_term" and decay.priority_now(memory, now) < decay.FLOOR


def _age(memory: MemoryRecord, now: datetime) -> float:
    return (now - memory.said_at).total_seconds() / 86_400


def _line(memory: MemoryRecord, words: str, why: str, section: str | None = None) -> ProfileLine:
    text = profile_line(memory.id, words, said_at=memory.said_at if memory.kind == "episode" else None)
    return ProfileLine(
        memory=memory,
        words=words,
        why=why,
        section=section or section_of(words),
        text=text,
        tokens=estimate_tokens(text + "\n"),
    )
