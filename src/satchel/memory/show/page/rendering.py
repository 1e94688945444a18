"""The page as it is shown now: what is over, forgotten or replaced is left out. Reads nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta
from types import MappingProxyType
from typing import Final, Literal

from satchel.memory.records import MemoryRecord
from satchel.memory.show.page.records import Page, ShownLine
from satchel.memory.spheres import is_granted
from satchel.memory.store.page_lines import SECTIONS, PageVersion, Section
from satchel.memory.store.page_rows import words_of
from satchel.memory.text.framing import (
    PAGE_HEAD,
    PROFILE_TAIL,
    estimate_tokens,
    page_line,
    tokens_of,
)
from satchel.memory.text.statements import section_of, shown_words

FILLED: Final = 0.8
"""The share of the room that is filled: what comes on top until the next reading fits into the rest."""
_OVER: Final = "Over: "
_STAYS: Final = ("answers", "user", "people", "limits")
_DATED_AFTER: Final = timedelta(days=60)
"""What was said longer ago stands with its day, but in the sections of what stays: a debt may have been paid."""
_KEPT_BACK: Final = "it is confidential"
_NOT_GRANTED: Final = "is of no sphere that was granted"
_SECTION_OF: Final[Mapping[str, Section]] = {
    "name": "user", "answers": "answers", "health": "limits", "home": "home", "work": "work", "people": "people",
    "more": "user",
}  # fmt: skip
"""Where a fact stands that no model gave a place."""


def section_for(words: str) -> Section:
    """The section of a fact that no model gave a place, by its words."""
    return _SECTION_OF[section_of(words)]


def tokens_of_line(text: str) -> float:
    """Tokens of a line, not rounded."""
    return tokens_of(page_line(text) + "\n")


def _tokens_of_section(section: Section) -> float:
    return tokens_of(f"{SECTIONS[section]}:\n")


FRAME_TOKENS: Final = tokens_of(PAGE_HEAD + PROFILE_TAIL) + sum(map(_tokens_of_section, SECTIONS))
"""Of a page without a line, with all headings."""


def rendered(
    version: PageVersion,
    held: Mapping[str, MemoryRecord],
    pinned: Sequence[MemoryRecord],
    *,
    today: date,
    budget_tokens: int,
    confidential: bool,
    granted: Collection[str] = (),
    ended: Mapping[str, MemoryRecord] = MappingProxyType({}),
) -> Page:
    """Show a version; `left_out` says what is not shown and why. Facts in `ended` stand once more, marked as over: a
    friend asks how it went, and knows what no longer binds. What left the page when it was full is shown with its day
    where there is room. `granted` are the spheres whose facts are shown; empty is all.
    """
    left_out: list[tuple[ShownLine, str]] = []
    lines: list[ShownLine] = []
    past: list[ShownLine] = []
    for line in version.shown:
        is_secret = line.section == "confidential"
        for id in line.facts:
            if (fact := held.get(id) or ended.get(id)) is None:
                continue
            mark = "" if id in held else _OVER
            one = _line(fact, line.section, until=line.until, by=line.by, today=today, mark=mark)
            if not is_granted(fact.spheres, granted):
                left_out.append((one, _NOT_GRANTED))
            elif id not in held:
                past += [one] if confidential or not is_secret else []
            elif line.until is not None and line.until < today:
                left_out.append((one, "is over"))
            elif not confidential if is_secret else (line.by == "model" and fact.discretion != "open"):
                left_out.append((one, _KEPT_BACK))
            else:
                lines.append(one)
    there = {line.id for line in lines}
    lines += [
        _line(memory, section_for(memory.content), by="pin", today=today, words=shown_words(memory.content))
        for memory in pinned
        if memory.id not in there and is_granted(memory.spheres, granted)
    ]
    there |= {line.id for line in lines}
    told = {line.words for line in lines}
    # The user's lines and pins come before what a model chose, and of that what matters most and was said last.
    ranked = [*sorted(lines, key=_rank), *sorted(past, key=_rank)]
    more = [
        _line(held[id], line.section, by="room", today=today)
        for line in version.rested
        for id in line.facts
        if id in held
        and id not in there
        and words_of(held[id]) not in told
        and held[id].discretion == "open"
        and is_granted(held[id].spheres, granted)
    ]
    ranked += sorted(more, key=_rank)
    lines += past + more
    left = budget_tokens - tokens_of(PAGE_HEAD.format(day=version.written_at.date()) + PROFILE_TAIL)
    kept: list[ShownLine] = []
    for one in ranked:
        cost = tokens_of(one.text + "\n")
        if all(other.section != one.section for other in kept):
            cost += _tokens_of_section(one.section)
        if cost > left:
            left_out.append((one, "no room left"))
            continue
        left -= cost
        kept.append(one)
    shown = tuple(one for section in SECTIONS for one in lines if one in kept and one.section == section)
    text = _block(version, shown) if shown else ""
    return Page(
        version=version,
        text=text,
        memories=shown,
        tokens=estimate_tokens(text),
        left_out=tuple(left_out),
    )


def _rank(line: ShownLine) -> tuple[bool, int, float]:
    return line.by == "model", -line.memory.importance, -line.memory.said_at.timestamp()


def _line(
    fact: MemoryRecord,
    section: Section,
    *,
    until: date | None = None,
    by: Literal["model", "user", "pin", "room"],
    today: date,
    words: str = "",
    mark: str = "",
) -> ShownLine:
    # The line says what its memory says now.
    words = " ".join(words.split()) or words_of(fact)
    is_old = section not in _STAYS and today - fact.said_at.date() > _DATED_AFTER
    text = page_line(f"{mark}{words}", said_at=fact.said_at if is_old or by == "room" else None)
    return ShownLine(
        memory=fact,
        words=words,
        text=text,
        tokens=estimate_tokens(text + "\n"),
        section=section,
        until=until,
        by=by,
    )


def _block(version: PageVersion, lines: Sequence[ShownLine]) -> str:
    parts = [PAGE_HEAD.format(day=version.written_at.date())]
    section: Section | None = None
    for line in lines:
        if line.section != section:
            section = line.section
            parts.append(f"{SECTIONS[section]}:\n")
        parts.append(f"{line.text}\n")
    return "".join(parts) + PROFILE_TAIL
