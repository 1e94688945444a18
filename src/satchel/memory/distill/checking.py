"""Verifies proposed facts against the conversation: every quote must occur in it, and dates are computed by the
program, not taken from the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import Final, Literal, TypeAlias

from satchel.clock import in_zone_of
from satchel.memory.dates import ResolvedDate, resolve_dates
from satchel.memory.distill.asking import Proposal
from satchel.memory.distill.windows import Piece, Window
from satchel.memory.records import TRUST_RANK, MemoryRecord, Trust

__all__ = ["CheckedFact", "check", "find_quote"]

_Resolve: TypeAlias = Callable[[str, datetime | date], Sequence[ResolvedDate]]

_QUOTES: Final = "\"'“”„‟«»‘’‚‛`´"
_DASHES: Final = "-‐‑‒–—−"
_MIN_LETTERS: Final = 4
"""In the quotes of a fact: a "yes" alone supports nothing."""
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
    """

    proposal: Proposal
    content: str
    quote: str
    sources: tuple[Piece, ...]
    trust: Trust
    valid_from: datetime | None
    valid_to: datetime | None
    known: MemoryRecord | None
    ended: datetime | None = None

    @property
    def source(self) -> Piece:
        """The piece that contains `quote`."""
        return self.sources[0]


def check(
    proposal: Proposal, window: Window, known: Mapping[str, MemoryRecord], *, locale: str = ""
) -> CheckedFact | str:
    """Verify a proposal against a window.

    Args:
        proposal: What a model proposed.
        window: What it was shown.
        known: The facts that it was shown, by their short ids. A relation to any other fact is ignored.
        locale: The user's; see `resolve_dates`.

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
    meant = _dates_in(window, sources, quote, resolve)
    content = _with_days(proposal.content, sources[0], meant, resolve)
    if content is None:
        return "it names a day that nobody said"
    said_at = sources[0].said_at
    since = _range_of(proposal.since, meant, said_at, "began", resolve)
    until = _range_of(proposal.until, meant, said_at, "will end", resolve)
    ended = _range_of(proposal.ended, meant, said_at, "began", resolve)
    valid_from = None if since is None else in_zone_of(said_at, datetime.combine(since[0], time()))
    valid_to = None if until is None else _day_after(until[1], said_at)
    if valid_from is not None and valid_to is not None and valid_to <= valid_from:
        valid_from = valid_to = None
    return CheckedFact(
        proposal=proposal,
        content=content,
        quote=quote,
        sources=sources,
        trust=_trust_of(quote, sources),
        valid_from=valid_from,
        valid_to=valid_to,
        known=None if proposal.relation == "new" else known.get(proposal.to),
        ended=None if ended is None else in_zone_of(said_at, datetime.combine(ended[0], time())),
    )


def _trust_of(quote: str, sources: Sequence[Piece]) -> Trust:
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


def _quoted(proposal: Proposal, window: Window) -> tuple[str, tuple[Piece, ...]] | str:
    """The first quote as its source has it, and the pieces that contain the quotes; or why the quotes are rejected."""
    if not proposal.quotes:
        return "it has no quote"
    places: list[tuple[str, Piece]] = []
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
    sources: dict[int, Piece] = {}
    for _, piece in places:
        sources.setdefault(piece.rid, piece)
    return places[0][0], tuple(sources.values())


def _is_long_enough(quote: str) -> bool:
    """Whether a quote can support a fact: two words, or a few letters of a script without spaces."""
    letters = [char for char in quote if char.isalnum()]
    return len(letters) >= _MIN_LETTERS and (
        len(quote.split()) > 1 or any(char > "\u2e7f" for char in letters)
    )


def _place_of(quote: str, window: Window) -> tuple[str, Piece] | None:
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
    # Only whole words: "art" doesn't match in "party".
    before = r"(?<!\w)" if words[0][0].isalnum() else ""
    after = r"(?!\w)" if words[-1][-1].isalnum() else ""
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
    window: Window, sources: Sequence[Piece], quote: str, resolve: _Resolve
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
    content: str, source: Piece, meant: Mapping[str, ResolvedDate], resolve: _Resolve
) -> str | None:
    """Add the days that relative dates mean to a fact; None if it names a day that the conversation doesn't."""
    parts: list[str] = []
    at = 0
    for found in resolve(content, source.said_at):
        end = found.offset + len(found.text)
        known = meant.get(_key(found.text))
        if (
            known is None
            and found.start is not None
            and found.end is not None
            and _is_absolute(found, resolve)
        ):
            said = [m for m in meant.values() if m.start is not None and m.end is not None]
            if not any(m.start <= found.start and found.end <= m.end for m in said):  # type: ignore[operator]
                return None
        if known is None or known.start is None or known.end is None or _is_absolute(found, resolve):
            continue
        days = f"{known.start}" if known.start == known.end else f"{known.start} to {known.end}"
        if days in content:
            continue
        parts += (content[at:end], f" ({days})")
        at = end
    return "".join([*parts, content[at:]])


def _is_absolute(found: ResolvedDate, resolve: _Resolve) -> bool:
    """Whether the words mean the same day whenever they are said."""
    alone = [resolve(found.text, day) for day in (date(1990, 3, 14), date(2031, 8, 30))]
    return all(len(read) == 1 and (read[0].start, read[0].end) == (found.start, found.end) for read in alone)


def _range_of(
    words: str,
    meant: Mapping[str, ResolvedDate],
    said_at: datetime,
    tense: Literal["began", "will end"],
    resolve: _Resolve,
) -> tuple[date, date] | None:
    """The first and last day of a time, if the conversation contains its words and they can be resolved."""
    wanted = _key(words)
    if not wanted:
        return None
    # Longest first: "March 2025" before "March".
    for key in sorted(meant, key=len, reverse=True):
        found = meant[key]
        if key in wanted or wanted in key:
            if found.start is not None and found.end is not None:
                return found.start, found.end
            # "Since March" means the last March, "until Friday" the next Friday.
            for sentence in (f"It {tense} {found.text}", f"It {tense} in {found.text}"):
                for read in resolve(sentence, said_at):
                    if read.start is not None and read.end is not None:
                        return read.start, read.end
            return None
    return None
