"""Appointments that are over: whether a memory says nothing but one, and whether a message asks about the past."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from satchel.memory.data_files import read_lines
from satchel.memory.store.decay import LASTING_IMPORTANCE
from satchel.memory.text.statements import read_statements, section_of, sentences_of, without_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.memory.records import MemoryRecord
    from satchel.memory.text.dates import ResolvedDate
    from satchel.memory.text.statements import Sentence

_MOST_CHARS: Final = 200
"""A longer memory says more than an appointment."""
_MOST_OTHER_WORDS: Final = 4
"""Of a part of a sentence that names no day: "dentist on 5 May, third floor"."""
_MOST_DAYS: Final = 8
"""A longer time is no appointment: "February's food cost"."""
_BEFORE_CHARS: Final = 25
_LASTING_SECTIONS: Final = ("name", "answers", "health", "work", "people")
"""What has words of these outlives its day. "Home" is not among them: "moved to" is also said of appointments."""
_PART_END: Final = re.compile(r"[,;:\uff0c\uff1b\uff1a\u3001](?=\D)|\s[-\u2013\u2014]\s")
_DAY: Final = "\0"
"""Stands for every character of a day that was read."""
_YEAR: Final = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_READ_CHARS: Final = 2_000


def asks_about_past(text: str) -> bool:
    """Whether a message has a word that asks what happened, or when: "when was the dentist"."""
    return _asks().search(text[:_READ_CHARS]) is not None


def is_past_appointment(memory: MemoryRecord, today: date) -> bool:
    """Whether a memory says nothing but what was to happen on days that are over.

    What was over already when it was said is no appointment: that the cat died on 3 March holds for good. Facts are
    often noted after the day, with the year left out: such a day counts as over when it is over in either year.
    """
    if memory.importance >= LASTING_IMPORTANCE or len(memory.content) > _MOST_CHARS:
        return False
    if not any(char.isdecimal() for char in memory.content):
        return False
    last = _last_day(memory.content, memory.said_at)
    return last is not None and last < today


@cache
def _asks() -> re.Pattern[str]:
    return re.compile("|".join(read_lines("past.txt")), re.IGNORECASE)


@cache
def _begins() -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(read_lines('lasting_from.txt'))})$", re.IGNORECASE)


@lru_cache(maxsize=2_000)
def _last_day(text: str, said_at: datetime) -> date | None:
    """The last day of appointments that are all that a text tells; None where it tells something else."""
    from satchel.memory.text.dates import resolve_dates  # noqa: PLC0415 - loading it takes 0.1 s

    sentences = sentences_of(text)
    if not sentences or section_of(text) in _LASTING_SECTIONS:
        return None
    if any(one.yearly for one in read_statements(text, said_at, is_own=False)):
        return None  # "Mara's birthday is on Friday (2026-12-04)" comes again.
    mentions = resolve_dates(text, said_at)
    if _tells_more(text, sentences, mentions):
        return None
    last: date | None = None
    for sentence in sentences:
        for one in (one for one in mentions if sentence.start <= one.offset < sentence.end):
            before = text[max(sentence.start, one.offset - _BEFORE_CHARS) : one.offset]
            if one.start is None or one.end is None or one.end - one.start >= timedelta(days=_MOST_DAYS):
                return None
            if _begins().search(before):
                return None
            day = _ahead(one.start, one.end, one.text, said_at.date())
            if day is None:
                return None
            last = day if last is None else max(last, day)
    return last


def _tells_more(text: str, sentences: Sequence[Sentence], mentions: Sequence[ResolvedDate]) -> bool:
    """Whether there is a figure that belongs to no day, or a part of a sentence that says something else."""
    blank = list(text)
    for one in mentions:
        blank[one.offset : one.offset + len(one.text)] = _DAY * len(one.text)
    rest = without_times("".join(blank))
    if any(char.isdecimal() for char in rest):
        return True
    for sentence in sentences:
        first, *others = _PART_END.split("".join(blank[sentence.start : sentence.end]))
        if _DAY not in first or any(_DAY not in part and _words(part) > _MOST_OTHER_WORDS for part in others):
            return True
    return False


def _words(part: str) -> float:
    """Words; in a script without spaces, two characters are one."""
    return len(part.split()) + sum(char > "\u2e80" for char in part) / 2


def _ahead(first: date, last: date, words: str, said: date) -> date | None:
    """The last of some days that were ahead when they were spoken of; None where they were not."""
    if first >= said:
        return last
    if _YEAR.search(words) or not any(char.isdecimal() for char in words):
        return None
    return last + timedelta(days=365) if (said - first).days < 365 else None
