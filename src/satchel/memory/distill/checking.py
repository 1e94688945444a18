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
from satchel.memory.text.dates import ResolvedDate, days_meant, end_of_length, resolve_dates

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
    resolve = partial(resolve_dates, locale=locale)
    said_at = sources[0].said_at
    said = _dates_in(window, sources, quote, resolve)
    places = _Places(window, sources, locale, said)
    time_of_it = places.time_of(proposal)
    if places.read(proposal) is not None:
        # A note with days of its own has them as dates; in "her morning shift", no word is a day.
        said = {f"\0{words}": day for words, day in said.items()}
    meant = {**said, **places.meant(proposal, time_of_it)}
    before = None if proposal.relation == "new" else known.get(proposal.to)
    named = {day for fact in known.values() for day in _ISO.findall(fact.content)}
    content = _with_days(proposal.content, sources, meant, named, resolve, is_again=is_again)
    if content is None:
        return "it names a day that nobody said"
    content = _with_end(content, proposal.until, time_of_it)
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
        content=content,
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
            is_said = days and all(_is_named(day, self.said, (), self.sources) for day in days)
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
        elif proposal.until:
            last = self._end(proposal.until, first or said) or last
        if proposal.time == "period":
            first = first or said
            if until is None and not proposal.until and when is not None and when[0] == when[1]:
                last = None  # Only its beginning was said.
        if first is not None and last is not None and last < first:
            when = self.days(proposal.when, is_past=True)  # "From March until Friday": it has begun.
            first, last = (when[0], last) if when is not None and when[0] <= last else (None, None)
        # What was over when it was said is nothing that ends: the cat that died yesterday stays dead.
        kind = "past" if last is not None and last < said else proposal.time
        return FactTime(kind=kind, first=first, last=last)

    def meant(self, proposal: Proposal, found: FactTime | None) -> dict[str, ResolvedDate]:
        """What the dates in the fact's own sentence mean: those of its time as they were computed, others only where
        that doesn't depend on whether they were over ("the same people as on the 15th").
        """
        if found is None:
            return {}
        meant: dict[str, ResolvedDate] = {}
        first, last = found.first or found.last, found.last or found.first
        if first is not None and last is not None:
            meant["\0"] = ResolvedDate(text="\0", offset=0, start=first, end=last)
        is_read = self.read(proposal) is not None
        said_at = self.sources[0].said_at
        is_past = found.kind in ("past", "lasting")
        for date_of in resolve_dates(proposal.content, said_at, locale=self.locale):
            key = _key(date_of.text)
            own = next(
                (words for words in (proposal.when, proposal.until) if key in _key(words)),
                "",
            )
            if not own and is_read:
                continue
            if own and is_read:
                start = last if own == proposal.until else first
                end = first if own == proposal.when and proposal.until else last
            else:
                readings = {
                    self.days(date_of.text, is_past=past) for past in ((is_past,) if own else (True, False))
                }
                start, end = (readings.pop() if len(readings) == 1 else None) or (None, None)
            meant[key] = replace(date_of, start=start, end=end)
        return meant


def _every(proposal: Proposal, when: tuple[date, date] | None) -> str:
    """When a recurrence comes round, as `FactTime.every`; "" where no day of it is known."""
    if "year" in proposal.every or "month" in proposal.every:
        if when is None or when[0] != when[1]:
            return ""
        day = when[0]
        return f"year {100 * day.month + day.day}" if "year" in proposal.every else f"month {day.day}"
    return f"week {' '.join(str(EVERY.index(day)) for day in proposal.every)}" if proposal.every else ""


def _with_end(content: str, words: str, time: FactTime | None) -> str:
    """A fact with the day on which it ends behind the words for how long it lasts."""
    if time is None or time.last is None or str(time.last) in content:
        return content
    place = find_quote(words, content)
    if place is None:
        return content
    days = str(time.last) if time.first == time.last else f"{time.first} to {time.last}"
    return f"{content[: place[1]]} ({days}){content[place[1] :]}"


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


def _with_days(
    content: str,
    sources: Sequence[EpisodePart],
    meant: Mapping[str, ResolvedDate],
    named: Collection[str],
    resolve: _Resolve,
    *,
    is_again: bool,
) -> str | None:
    """Add the days that relative dates mean to a fact; None if it names a day that neither the conversation nor what
    was known before does (`named`). If it `is_again`, "…" stands for such a date: a wrong day is worse than none, and
    a note that is lost is worse than one without a day.
    """
    parts: list[str] = []
    at = 0
    for found in resolve(content, sources[0].said_at):
        end = found.offset + len(found.text)
        known = meant.get(_key(found.text))
        is_absolute = _is_absolute(found, resolve)
        is_known = known is not None and known.start is not None
        if is_absolute and not is_known and not _is_named(found, meant, named, sources):
            if not is_again or not _ISO.fullmatch(found.text):
                return None
            parts += (content[at : found.offset], "…")
            at = end
            continue
        if known is None or known.start is None or known.end is None or is_absolute:
            continue
        days = f"{known.start}" if known.start == known.end else f"{known.start} to {known.end}"
        if days in content or str(known.start) in content:
            continue
        parts += (content[at:end], f" ({days})")
        at = end
    return "".join([*parts, content[at:]])


def _is_named(
    found: ResolvedDate,
    meant: Mapping[str, ResolvedDate],
    named: Collection[str],
    sources: Sequence[EpisodePart],
) -> bool:
    """Whether an absolute date is one that was said: it lies within one that the words mean, or is a longer time that
    such a one belongs to, its numbers were said and it is near, it is the day on which it was said, or was known.
    """
    start, end = found.start, found.end
    assert start is not None
    assert end is not None
    for words, one in meant.items():
        if one.start is not None and one.end is not None:
            if one.start <= start and end <= one.end:
                return True
            # In "told us on Easter, it is for 24 October", the reader knows which year is meant.
            is_day = (
                start == end
                and one.start == one.end
                and (one.start.month, one.start.day) == (start.month, start.day)
            )
            if is_day and abs((start - one.start).days) <= _YEAR_DAYS and not _YEAR.search(words):
                return True
            if start < end and one.start <= end and start <= one.end:
                return True
    return all(
        str(day) in named or any(_is_said(day, piece) for piece in sources) for day in (start, end)
    ) or (start < end and any(_is_month_said(start, end, piece) for piece in sources))


def _is_said(day: date, piece: EpisodePart) -> bool:
    said_on = piece.said_at.date()
    number = day.day in said_in(piece.text).numbers
    return day == said_on or (number and fits(DayWords((), (day.day,)), day, day, said_on))


def _is_month_said(first: date, last: date, piece: EpisodePart) -> bool:
    """Whether the month of some days is named, and near: "june", in May, for June 2026."""
    month = frozenset({("month", first.month)})
    is_one = first.month == last.month and any(month & meant for meant in said_in(piece.text).names)
    return is_one and fits(DayWords((month,), ()), first, last, piece.said_at.date())


def _is_absolute(found: ResolvedDate, resolve: _Resolve) -> bool:
    """Whether the words mean the same day whenever they are said."""
    if found.start is None:
        return False
    alone = [resolve(found.text, day) for day in (date(1990, 3, 14), date(2031, 8, 30))]
    return all(len(read) == 1 and (read[0].start, read[0].end) == (found.start, found.end) for read in alone)
