"""The page as it is shown now: what is over, forgotten or replaced is left out, without a model. Reads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from types import MappingProxyType
from typing import Final

from satchel.memory.framing import (
    PAGE_HEAD,
    PROFILE_TAIL,
    estimate_tokens,
    page_heading,
    page_line,
    tokens_of,
)
from satchel.memory.page.checking import content_hash_of, is_whole, stands
from satchel.memory.page.records import SECTIONS, Page, PageLine, PageVersion, Section, ShownLine
from satchel.memory.records import MemoryRecord
from satchel.memory.statements import section_of, shown_words

__all__ = ["parts_of", "rendered", "section_for", "tokens_of_line", "tokens_of_section"]

_OVER: Final = "Over: "
_KEPT_BACK: Final = "it is confidential"
_CHANGED: Final = "what it stands on has changed"
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


def tokens_of_section(section: Section) -> float:
    """Tokens of a section's heading, not rounded."""
    return tokens_of(page_heading(SECTIONS[section]) + "\n")


def rendered(
    version: PageVersion,
    held: Mapping[str, MemoryRecord],
    pinned: Sequence[MemoryRecord],
    *,
    today: date,
    budget_tokens: int,
    confidential: bool,
    ended: Mapping[str, MemoryRecord] = MappingProxyType({}),
) -> Page:
    """Show a version.

    Args:
        version: What was written.
        held: The facts of its lines that hold now, by id.
        pinned: What the user pinned: what no line stands on gets a line of its own.
        today: The local day.
        budget_tokens: Of the whole block.
        confidential: Whether the section of that name is shown.
        ended: Facts whose time ended since the user last spoke, by id. They stand once more, marked: a friend asks how
            it went, and knows what no longer binds.

    Returns:
        The page, whose `left_out` says what is not shown and why.
    """
    left_out: list[tuple[ShownLine, str]] = []
    lines: list[ShownLine] = []
    past: list[ShownLine] = []
    for line in version.shown:
        facts = tuple(held[id] for id in line.facts if id in held)
        over = tuple(ended[id] for id in line.facts if id in ended)
        if over and not facts and (line.section != "confidential" or confidential):
            past.append(_line(line, over, mark=_OVER))
            continue
        why = _not_shown(line, held, today)
        is_secret = line.section == "confidential"
        is_held_back = line.by == "model" and any(fact.discretion != "open" for fact in facts)
        if not why and ((is_secret and not confidential) or (is_held_back and not is_secret)):
            why = _KEPT_BACK
        if facts and not why:
            lines.append(_line(line, facts))
        elif facts:
            left_out.append((_line(line, facts), why))
            if why == _CHANGED:
                lines += [_line(alone, (held[alone.facts[0]],)) for alone in parts_of(line, held)]
    there = {fact.id for line in lines for fact in line.facts}
    lines += [_pin(memory) for memory in pinned if memory.id not in there]
    # The user's lines and pins come before what a model chose, and of that what matters most and was said last.
    ranked = [*sorted(lines, key=_rank), *sorted(past, key=_rank)]
    lines += past
    left = budget_tokens - tokens_of(PAGE_HEAD.format(day=version.written_at.date()) + PROFILE_TAIL)
    kept: list[ShownLine] = []
    for one in ranked:
        cost = tokens_of(one.text + "\n")
        if all(other.section != one.section for other in kept):
            cost += tokens_of_section(one.section)
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
    importance = max(fact.importance for fact in line.facts)
    return line.by == "model", -importance, -max(fact.said_at.timestamp() for fact in line.facts)


def _not_shown(line: PageLine, held: Mapping[str, MemoryRecord], today: date) -> str:
    if line.until is not None and line.until < today:
        return "is over"
    if line.by == "user":
        return "" if all(id in held for id in line.facts) else "no longer holds"
    return "" if stands(line, held) else _CHANGED


def parts_of(line: PageLine, held: Mapping[str, MemoryRecord]) -> list[PageLine]:
    """What is left of a line of which a fact no longer holds: the others, each in its own words."""
    facts = [held[id] for id in line.facts if id in held]
    if len(facts) == len(line.facts):
        return []
    return [
        replace(
            line,
            text=" ".join(fact.content.split()),
            facts=(fact.id,),
            checked=content_hash_of([fact]),
        )
        for fact in facts
    ]


def _line(line: PageLine, facts: tuple[MemoryRecord, ...], *, mark: str = "") -> ShownLine:
    # The user's line is a memory of the user's: it says what that says now.
    words = " ".join(facts[0].content.split()) if line.by == "user" else line.text
    text = page_line(f"{mark}{words}")
    return ShownLine(
        memory=facts[0],
        words=words,
        text=text,
        tokens=estimate_tokens(text + "\n"),
        section=line.section,
        facts=facts,
        until=line.until,
        by=line.by,
        whole=frozenset(fact.id for fact in facts if is_whole(words, fact)),
    )


def _pin(memory: MemoryRecord) -> ShownLine:
    words = " ".join(shown_words(memory.content).split())
    text = page_line(words)
    return ShownLine(
        memory=memory,
        words=words,
        text=text,
        tokens=estimate_tokens(text + "\n"),
        section=section_for(words),
        facts=(memory,),
        until=None,
        by="pin",
        whole=frozenset([memory.id] if words == memory.content else []),
    )


def _block(version: PageVersion, lines: Sequence[ShownLine]) -> str:
    parts = [PAGE_HEAD.format(day=version.written_at.date())]
    section: Section | None = None
    for line in lines:
        if line.section != section:
            section = line.section
            parts.append(f"{page_heading(SECTIONS[section])}\n")
        parts.append(f"{line.text}\n")
    return "".join(parts) + PROFILE_TAIL
