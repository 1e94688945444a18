"""Verifies proposed facts against the conversation: every quote must occur in it, and dates are computed by the
program, not taken from the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import Final, TypeAlias

from satchel.clock import in_zone_of
from satchel.memory.distill.asking import EVERY, Proposal
from satchel.memory.distill.days import DayWords, day_of, fits, is_misspelt_in, said_in
from satchel.memory.distill.windows import EpisodePart, Window
from satchel.memory.records import TRUST_RANK, FactTime, MemoryRecord, Trust
from satchel.memory.text.dates import ResolvedDate, days_meant, end_of_length, ends_of_lengths, resolve_dates

_Resolve: TypeAlias = Callable[[str, datetime | date], Sequence[ResolvedDate]]

_QUOTES: Final = "\"'“”„‟«»‘’‚‛`´"
_DASHES: Final = "-‐‑‒–—−"
_UNSPACED: Final = "\u2e80"
"""The first character of the scripts without spaces."""
_MIN_LETTERS: Final = 4
"""In the quotes of a fact: a "yes" alone supports nothing."""
_ISO: Final = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_YEAR: Final = re.compile(r"\d{4}")
_YEAR_DAYS: Final = 366
_NEAR: Final = timedelta(days=62)
_ABOUT_USER: Final = re.compile(r"(?:the\s+)?user\b", re.IGNORECASE)
"""The beginning of a fact about the user, as opposed to one that says who reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFact:
    """A fact that may be stored.

    Attributes:
        content: The text, with the days that its relative dates mean added in parentheses.
        quote: The first quote, exactly as in `source`.
        sources: The pieces that the quotes are in, `source` first.
        trust: Of the line that `quote` is in, see `_trust_of`.
        known: The fact that it restates, corrects or elaborates, or None.
        ended: Since when a corrected fact no longer holds, if the words say so.
        time: What kind of time it has, with its days; None where the model didn't say.
    """

    proposal: Proposal
    content: str
    quote: str
    sources: tuple[EpisodePart, ...]
    trust: Trust
    valid_from: datetime | None
    valid_to: datetime | None
    known: MemoryRecord | None
    ended: datetime | None = None
    time: FactTime | None = None

    @property
    def source(self) -> EpisodePart:
        """The piece that contains `quote`."""
        return self.sources[0]


def check(
    proposal: Proposal,
    window: Window,
    known: Mapping[str, MemoryRecord],
    *,
    locale: str = "",
    is_again: bool = False,
) -> CheckedFact | str:
    """Verify a proposal against a window.

    `known` are the facts that the model was shown, by their ids; a relation to any other fact is ignored. If the model
    was asked for it again, it loses the dates that nobody said and stays.

    Returns:
        The fact to store, or the reason why it is dropped.
    """
    if "[redacted" in proposal.content:
        return "it is about something that was redacted"
    found = _quoted(proposal, window)
    if isinstance(found, str):
        return found
    quote, sources = found
    if all(piece.trust == "outside" for piece in sources) and _ABOUT_USER.match(proposal.content):
        return "it states as true about the user what only an outside source says"
    said_at = sources[0].said_at
    said = _dates_in(window, sources, quote, partial(resolve_dates, locale=locale))
    places = _Places(window, sources, locale, said)
    time_of_it = places.time_of(proposal)
    before = None if proposal.relation == "new" else known.get(proposal.to)
    unnamed = places.unnamed(proposal, time_of_it, known.values())
    if unnamed and not (is_again and all(map(_ISO.fullmatch, unnamed))):
        return "it names a day that nobody said"
    # A wrong day is worse than none; a note that is lost is worse than one without a day.
    for day in unnamed:
        proposal = replace(proposal, content=re.sub(rf"\b{day}\b", "…", proposal.content))
    ended = places.days(proposal.ended, is_past=True)
    valid_from = valid_to = None
    if time_of_it is not None:
        began = time_of_it.first if time_of_it.kind in ("lasting", "period") and proposal.when else None
        if began is not None and began <= said_at.date():
            valid_from = in_zone_of(said_at, datetime.combine(began, time()))
        if time_of_it.ends and time_of_it.last is not None:
            valid_to = _day_after(time_of_it.last, said_at)
    return CheckedFact(
        proposal=proposal,
        content=places.with_days(proposal, time_of_it),
        quote=quote,
        sources=sources,
        trust=_trust_of(quote, sources),
        valid_from=valid_from,
        valid_to=valid_to,
        known=before,
        ended=None if ended is None else in_zone_of(said_at, datetime.combine(ended[0], time())),
        time=time_of_it,
    )


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the words for a time stand in what was said: it tells on which day they were said, in which language."""

    window: Window
    sources: Sequence[EpisodePart]
    locale: str
    said: Mapping[str, ResolvedDate]

    def _piece(self, words: str) -> EpisodePart | None:
        """The piece that words stand in: a source of the fact, or else the last one; where none has them so, one that
        has them misspelt. None where nobody said them.
        """
        pieces = (*self.sources, *reversed(self.window.pieces))
        said = (piece for piece in pieces if find_quote(words, piece.text) is not None)
        misspelt = (piece for piece in pieces if is_misspelt_in(words, piece.text))
        return next(said, None) or next(misspelt, None)

    def days(self, words: str, *, is_past: bool) -> tuple[date, date] | None:
        """The days that words mean, if they were said."""
        piece = self._piece(words)
        if piece is None:
            return None
        return days_meant(words, piece.said_at, is_past=is_past, context=piece.text, locale=self.locale)

    def _end(self, words: str, first: date) -> date | None:
        """The last day of what lasts so long from a day on."""
        piece = self._piece(words)
        return None if piece is None else end_of_length(words, first, context=piece.text)

    def time_of(self, proposal: Proposal) -> FactTime | None:
        """The days of a fact: as the model reads them, if the words for its time agree and say more than a distance
        from today; otherwise as they are computed.
        """
        computed, read = self._computed(proposal), self.read(proposal)
        if computed is None or read is None or not proposal.time:
            return computed
        first, last = read
        if proposal.time == "recurrence":
            return replace(computed, every=_every(proposal, read))
        if proposal.until and not said_in(proposal.until).is_dated:
            last = self._end(proposal.until, first) or last  # A length is computed.
        if proposal.time == "deadline":
            first = last
        ends = proposal.time != "period" or proposal.last or proposal.until
        kind = proposal.time if proposal.time == "lasting" or last >= self._said_on else "past"
        return FactTime(kind=kind, first=first, last=last if ends else None)

    @property
    def _said_on(self) -> date:
        return self.sources[0].said_at.date()

    def read(self, proposal: Proposal) -> tuple[date, date] | None:
        """The days that the model reads in the words for a time; None where the words have others, nobody said them, or
        they are computed. In place of the words it may write a day that was said.
        """
        first = day_of(proposal.first or proposal.when, self._said_on)
        last = day_of(proposal.last or proposal.until, self._said_on)
        first, last = first or last, last or first
        if first is None or last is None or last < first:
            return None
        words = " ".join(words for words in (proposal.when, proposal.until) if self._piece(words) is not None)
        if not words:
            days = [
                ResolvedDate(text=str(day), offset=0, start=day, end=day)
                for text, day in ((proposal.when, first), (proposal.until, last))
                if _ISO.fullmatch(text)
            ]
            is_said = days and all(_is_named(day, self.said.values(), self.sources) for day in days)
            return (first, last) if is_said else None
        said = said_in(words)
        if not fits(said, first, last, self._said_on):
            return None
        # Of what lasts, the grammar doesn't know whether its days are over.
        is_computed = not said.is_dated and proposal.time != "lasting" and self._can_compute(proposal)
        return None if is_computed else (first, last)

    def _can_compute(self, proposal: Proposal) -> bool:
        return bool(proposal.every) or any(
            self.days(words, is_past=False)
            or self.days(words, is_past=True)
            or self._end(words, self._said_on)
            for words in (proposal.when, proposal.until)
            if words
        )

    def _computed(self, proposal: Proposal) -> FactTime | None:
        """The days of a fact, computed from the words for its time."""
        if not proposal.time:
            return None
        said = self.sources[0].said_at.date()
        if proposal.time in ("past", "lasting"):
            began = self.days(proposal.when, is_past=True)
            return FactTime(kind=proposal.time, first=began and began[0], last=began and began[1])
        when = self.days(proposal.when, is_past=False)
        if proposal.time == "recurrence":
            return FactTime(kind="recurrence", every=_every(proposal, when))
        until = self.days(proposal.until, is_past=False)
        if proposal.time == "period" and when is None:
            when = self.days(proposal.when, is_past=True)  # It goes on, "since Monday".
        first, last = when or (None, None)
        if proposal.time == "deadline":
            last = until[1] if until is not None else last
            last = last or self._end(proposal.until or proposal.when, said)
            first = last
        elif until is not None:
            last = until[1]
        else:
            end = self._end(proposal.until, first or said) if proposal.until else None
            is_beginning = proposal.time == "period" and when is not None and when[0] == when[1]
            last = end if end is not None or is_beginning else last
        if proposal.time == "period":
            first = first or said
        if first is not None and last is not None and last < first:
            when = self.days(proposal.when, is_past=True)  # "From March until Friday": it has begun.
            first, last = (when[0], last) if when is not None and when[0] <= last else (None, None)
        # What was over when it was said is nothing that ends: the cat that died yesterday stays dead.
        kind = "past" if last is not None and last < said else proposal.time
        return FactTime(kind=kind, first=first, last=last)

    def with_days(self, proposal: Proposal, found: FactTime | None) -> str:
        """The note, with the days behind words that mean others when they are read later: "tomorrow", "on Friday", "for
        four weeks". None stand beside a day that is there with its month or its date.
        """
        content, until = proposal.content, proposal.until
        added: dict[int, tuple[date, date]] = {}
        there: set[date] = set()
        for mention in resolve_dates(content, self.sources[0].said_at, locale=self.locale):
            days = self._days_of(mention.text, proposal, found)
            if days is not None and _says_month(mention.text, days[0]):
                there.add(days[0])
            elif days is not None:
                added[mention.offset + len(mention.text)] = days
        place = find_quote(until, content)
        length = self._length(until, found)
        if place is not None and length is not None:
            added.setdefault(place[1], length)
        # Once, and behind the whole of "tomorrow, Wednesday".
        for end, (first, last) in sorted(added.items(), reverse=True):
            if first not in there and str(first) not in proposal.content:
                there.add(first)
                days_of_it = f"{first}" if first == last else f"{first} to {last}"
                content = f"{content[:end]} ({days_of_it}){content[end:]}"
        return content

    def _days_of(self, words: str, proposal: Proposal, found: FactTime | None) -> tuple[date, date] | None:
        """What a date in the note means: as it was said, where the model gives the note no time; the days of its time,
        where it is that; else what it means whether it was over or not.
        """
        if found is None:
            one = self.said.get(_key(words))
            return None if one is None or one.start is None or one.end is None else (one.start, one.end)
        key = _key(words)
        roles = [
            bool(own) and (key in own or own in key) for own in map(_key, (proposal.when, proposal.until))
        ]
        if any(roles):
            if found.kind == "recurrence":
                return None if self.read(proposal) else self.days(words, is_past=False)
            first = found.first if roles[0] else found.last
            last = found.last if roles[1] or not proposal.until else found.first
            if first is None or (roles[1] and last is None):
                return None
            length = self._length(proposal.until, found) if roles[1] else None
            return length or (first, last or first)
        # In "her morning shift", beside days that the model says, no word is a day.
        if self.read(proposal) is not None:
            return None
        days = self.days(words, is_past=True)
        if days is None or days != self.days(words, is_past=False):
            return None
        # A day that is counted from far away ("three years ago") is not that day.
        return days if min(abs(day - self._said_on) for day in days) <= _NEAR else None

    def _length(self, words: str, found: FactTime | None) -> tuple[date, date] | None:
        """The days of a time if the words say how long it lasts."""
        if found is None or found.first is None or found.last is None:
            return None
        return None if self._end(words, found.first) is None else (found.first, found.last)

    def unnamed(
        self, proposal: Proposal, found: FactTime | None, known: Collection[MemoryRecord]
    ) -> list[str]:
        """The dates in the note that were not said, are not known, and can't be counted from one that was said."""
        meant = list(self.said.values())
        if found is not None and (first := found.first or found.last) is not None:
            meant.append(ResolvedDate(text="", offset=0, start=first, end=found.last or first))
        there = "\n".join(fact.content for fact in known)
        of_it = next((fact.content for fact in known if fact.id == proposal.to), "")
        bases = {one.start for one in meant if one.start == one.end and one.start is not None}
        bases |= {date.fromisoformat(day) for day in _ISO.findall(of_it) if day_of(day, self._said_on)}

        def is_known(day: date) -> bool:
            return str(day) in there or any(
                _is_said(day, piece) or _is_near(day, piece) or _is_counted(day, bases, piece)
                for piece in self.sources
            )

        # Alone, for in some company ("from Fri 2026-03-20 9.30") a date is unsure.
        texts = [*_ISO.findall(proposal.content), _ISO.sub("", proposal.content)]
        return [
            one.text
            for text in texts
            for one in resolve_dates(text, self.sources[0].said_at, locale=self.locale)
            if one.start is not None and one.end is not None and _is_absolute(one, self.locale)
            if not _is_named(one, meant, self.sources)
            and find_quote(one.text, there) is None
            and not (is_known(one.start) and is_known(one.end))
        ]


def _every(proposal: Proposal, when: tuple[date, date] | None) -> str:
    """When a recurrence comes round, as `FactTime.every`; "" where no day of it is known."""
    if "year" in proposal.every or "month" in proposal.every:
        if when is None or when[0] != when[1]:
            return ""
        day = when[0]
        return f"year {100 * day.month + day.day}" if "year" in proposal.every else f"month {day.day}"
    return f"week {' '.join(str(EVERY.index(day)) for day in proposal.every)}" if proposal.every else ""


def _trust_of(quote: str, sources: Sequence[EpisodePart]) -> Trust:
    """Whose word a fact is: of whom its first quote is, because the lines that the others are in only complete it. "Not
    Thursday, Friday the 13th now" is the user's, though the assistant's line says what is on that day.

    A line from outside lowers it to outside, and a mere "yes" is not the user's own words.
    """
    lowest = min((piece.trust for piece in sources), key=TRUST_RANK.__getitem__)
    return lowest if lowest == "outside" or not _is_long_enough(quote) else sources[0].trust


def _day_after(day: date, said_at: datetime) -> datetime | None:
    if day == date.max:
        return None
    return in_zone_of(said_at, datetime.combine(day + timedelta(days=1), time()))


def _quoted(proposal: Proposal, window: Window) -> tuple[str, tuple[EpisodePart, ...]] | str:
    """The first quote as its source has it, and the pieces that contain the quotes; or why the quotes are rejected."""
    if not proposal.quotes:
        return "it has no quote"
    places: list[tuple[str, EpisodePart]] = []
    for quote in proposal.quotes:
        place = _place_of(quote, window)
        if place is None:
            return "its quote is not in the conversation"
        places.append(place)
    if not any(piece.is_new for _, piece in places):
        return "it is supported only by text that was read before"
    if not any(_is_long_enough(text) for text, _ in places):
        return "its quote is too short to support it"
    places.sort(key=lambda place: not place[1].is_new)
    sources: dict[int, EpisodePart] = {}
    for _, piece in places:
        sources.setdefault(piece.rid, piece)
    return places[0][0], tuple(sources.values())


def _is_long_enough(quote: str) -> bool:
    """Whether a quote can support a fact: two words, or a few letters of a script without spaces."""
    letters = [char for char in quote if char.isalnum()]
    return len(letters) >= _MIN_LETTERS and (
        len(quote.split()) > 1 or any(char >= _UNSPACED for char in letters)
    )


def _place_of(quote: str, window: Window) -> tuple[str, EpisodePart] | None:
    """The matched text and its piece: new pieces before old ones, later before earlier; None if there is no match."""
    for piece in sorted(window.pieces, key=lambda piece: (piece.is_new, piece.rid), reverse=True):
        span = find_quote(quote, piece.text)
        if span is not None:
            return piece.text[span[0] : span[1]], piece
    return None


def find_quote(quote: str, text: str) -> tuple[int, int] | None:
    """Find a quote in a text, ignoring case, white space and the kinds of quotation marks and dashes.

    Returns:
        The start and end in characters, or None.
    """
    words = quote.strip(f"{_QUOTES} \t\r\n.…,;:").split()
    if not words:
        return None
    pattern = r"\s+".join("".join(_class_of(char) for char in word) for word in words)
    # Only whole words: "art" doesn't match in "party". Some scripts have no spaces between words.
    before = r"(?<!\w)" if words[0][0].isalnum() and words[0][0] < _UNSPACED else ""
    after = r"(?!\w)" if words[-1][-1].isalnum() and words[-1][-1] < _UNSPACED else ""
    match = re.search(f"{before}{pattern}{after}", text, re.IGNORECASE)
    return None if match is None else match.span()


def _class_of(char: str) -> str:
    if char in _QUOTES:
        return f"[{re.escape(_QUOTES)}]"
    if char in _DASHES:
        return f"[{re.escape(_DASHES)}]"
    return re.escape(char)


def _key(words: str) -> str:
    return " ".join(words.lower().split())


def _dates_in(
    window: Window, sources: Sequence[EpisodePart], quote: str, resolve: _Resolve
) -> dict[str, ResolvedDate]:
    """The dates in a window by their words. If the same words occur twice, the fact's own sources take precedence."""
    meant: dict[str, ResolvedDate] = {}
    for piece in (*sources, *reversed(window.pieces)):
        for found in resolve(piece.text, piece.said_at):
            meant.setdefault(_key(found.text), found)
    # The quote alone may have another tense than its context ("Anna wrote that she will leave in June"). A date with
    # two readings is unknown.
    for alone in resolve(quote, sources[0].said_at):
        key = _key(alone.text)
        if key in meant and (meant[key].start, meant[key].end) != (alone.start, alone.end):
            meant[key] = replace(alone, start=None, end=None)
    return meant


def _is_named(found: ResolvedDate, meant: Collection[ResolvedDate], sources: Sequence[EpisodePart]) -> bool:
    """Whether an absolute date is one that was said: it lies within one that the words mean, or is a longer time that
    such a one belongs to, its numbers were said and it is near, or it is the day on which it was said.
    """
    start, end = found.start, found.end
    assert start is not None
    assert end is not None
    for one in meant:
        if one.start is not None and one.end is not None:
            if one.start <= start and end <= one.end:
                return True
            # In "told us on Easter, it is for 24 October", the reader knows which year is meant.
            is_day = (
                start == end
                and one.start == one.end
                and (one.start.month, one.start.day) == (start.month, start.day)
            )
            if is_day and abs((start - one.start).days) <= _YEAR_DAYS and not _YEAR.search(one.text):
                return True
            if start < end and one.start <= end and start <= one.end:
                return True
    is_said = all(any(_is_said(day, piece) for piece in sources) for day in (start, end))
    return is_said or (start < end and any(_is_month_said(start, end, piece) for piece in sources))


def _is_said(day: date, piece: EpisodePart) -> bool:
    said_on = piece.said_at.date()
    number = day.day in said_in(piece.text).numbers
    return day == said_on or (number and fits(DayWords((), (day.day,)), day, day, said_on))


def _is_month_said(first: date, last: date, piece: EpisodePart) -> bool:
    """Whether the month of some days is named, and near: "june", in May, for June 2026."""
    month = frozenset({("month", first.month)})
    is_one = first.month == last.month and any(month & meant for meant in said_in(piece.text).names)
    return is_one and fits(DayWords((month,), ()), first, last, piece.said_at.date())


def _is_near(day: date, piece: EpisodePart) -> bool:
    """Whether it is the day of the next week whose weekday was named."""
    weekday = ("weekday", day.weekday())
    is_ahead = 0 < (day - piece.said_at.date()).days <= 7
    return is_ahead and any(weekday in one for one in said_in(piece.text).names)


def _is_counted(day: date, bases: Collection[date], piece: EpisodePart) -> bool:
    """Whether a length that was said lies between it and a day that was: "two weeks before", "a day later"."""
    return any(
        0 <= (max(day, base) - end).days <= 1
        for base in {piece.said_at.date(), *bases}
        for end in ends_of_lengths(piece.text, min(day, base))
    )


def _says_month(words: str, day: date) -> bool:
    """Whether words say a day with its month, or a year."""
    said = said_in(words)
    is_named = any(kind == "month" for meant in said.names for kind, _ in meant)
    return said.has_year or is_named or (len(said.numbers) > 1 and day.month in said.numbers)


def _is_absolute(found: ResolvedDate, locale: str) -> bool:
    """Whether the words mean the same day whenever they are said."""
    alone = [resolve_dates(found.text, day, locale=locale) for day in (date(1990, 3, 14), date(2031, 8, 30))]
    return all(len(read) == 1 and (read[0].start, read[0].end) == (found.start, found.end) for read in alone)
