"""The page as a text that the user edits, and what an edit changes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

from satchel.errors import UsageError
from satchel.memory.store.page_lines import (
    MOST_CHARS,
    SECTIONS,
    PageLine,
    PageVersion,
    Section,
    section_named,
)

_UNTIL: Final = re.compile(r"\s*\(until (\d{4}-\d\d-\d\d)\)$")
_MOST_LINES: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What the user changed: the lines that are new or have other words, without facts, and those that are gone."""

    added: tuple[PageLine, ...]
    removed: tuple[PageLine, ...]

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.added or self.removed)


def as_text(lines: Sequence[PageLine]) -> str:
    """Lines as a text: headings that begin with "#", and one line for each."""
    parts: list[str] = []
    for section, head in SECTIONS.items():
        own = [line for line in lines if line.section == section and line.text]
        if own:
            parts.append("\n".join([f"# {head}", *map(_written, own)]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _written(line: PageLine) -> str:
    return line.text if line.until is None else f"{line.text} (until {line.until.isoformat()})"


def edit_of(text: str, before: Sequence[PageLine]) -> Edit:
    """What a text changes in the lines that it was made of.

    Raises:
        UsageError: A line stands below no heading of the page, is too long, or there are too many.
    """
    section: Section | None = None
    wanted: list[PageLine] = []
    for raw in text.splitlines():
        words = " ".join(raw.split())
        if words.startswith("#"):
            section = section_named(words.lstrip("# "))
            if section is None:
                raise UsageError(
                    f"The page has no section {words.lstrip('# ')!r}: {', '.join(SECTIONS.values())}."
                )
            continue
        words = words.removeprefix("- ")
        until: date | None = None
        if (match := _UNTIL.search(words)) is not None:
            try:
                until = date.fromisoformat(match[1])
            except ValueError:
                raise UsageError(f"{match[1]} is no day.") from None
            words = words[: match.start()]
        if not words:
            continue
        if section is None:
            raise UsageError("The first line of the page has to be a heading, such as # People.")
        if len(words) > MOST_CHARS:
            raise UsageError(f"A line of the page has at most {MOST_CHARS} characters.")
        wanted.append(PageLine(section=section, text=words, until=until, by="user"))
    if len(wanted) > _MOST_LINES:
        raise UsageError(f"The page has at most {_MOST_LINES} lines.")
    left = [line for line in before if line.text]
    added: list[PageLine] = []
    for line in wanted:
        same = next((old for old in left if _key(old) == _key(line)), None)
        if same is None:
            added.append(line)
        else:
            left.remove(same)
    return Edit(added=tuple(added), removed=tuple(left))


def _key(line: PageLine) -> tuple[str, str, date | None]:
    return line.section, line.text, line.until


def apply(edit: Edit, lines: Sequence[PageLine]) -> tuple[PageLine, ...]:
    """The lines after an edit, which may have been made in an earlier version of them.

    What the user took off or rewrote leaves its facts behind, so that no model brings them back.
    """
    gone = {_key(line) for line in edit.removed}
    off = {id for line in edit.removed for id in line.facts}
    off -= {id for line in edit.added for id in line.facts}
    kept: list[PageLine] = []
    for line in lines:
        if line.text and (_key(line) in gone or (line.by == "model" and off.intersection(line.facts))):
            off.update(line.facts if _key(line) in gone else ())
            continue
        kept.append(line)
    known = {id for line in kept if not line.text and line.by == "user" for id in line.facts}
    stubs = [
        replace(line, text="", by="user", until=None) for line in edit.removed if set(line.facts) - known
    ]
    return (*kept, *edit.added, *stubs)


def difference(old: PageVersion | None, new: PageVersion) -> list[str]:
    """What changed between two versions, as lines that begin with "+", "-" or a blank."""
    before = as_text(old.lines).splitlines() if old is not None else []
    after = as_text(new.lines).splitlines()
    return [line for line in difflib.ndiff(before, after) if not line.startswith("?") and line[2:].strip()]
