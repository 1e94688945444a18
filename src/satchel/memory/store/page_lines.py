"""The page as it is stored: versions of lines, each of which is a fact in a section."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from satchel.plain import as_json

if TYPE_CHECKING:
    from satchel.memory.records import MemoryRecord

MOST_CHARS: Final = 400
"""Of a line: some 110 tokens, a tenth of the page."""

Section: TypeAlias = Literal[
    "answers", "user", "people", "limits", "home", "work", "running", "deadlines", "confidential"
]
Author: TypeAlias = Literal["model", "user"]
State: TypeAlias = Literal["used", "proposed"]

SECTIONS: Final[Mapping[Section, str]] = {
    "answers": "How to answer",
    "user": "Who the user is",
    "people": "People",
    "limits": "Health, diet and money",
    "home": "Home",
    "work": "Work",
    "running": "Running",
    "deadlines": "Deadlines",
    "confidential": "Confidential",
}
"""The sections in their order, with their headings."""


def section_named(text: str) -> Section | None:
    """The section with this name or heading, whatever its case; None where there is none."""
    wanted = text.strip().casefold()
    return next((name for name, head in SECTIONS.items() if wanted in (name, head.casefold())), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLine:
    """One line of a version.

    Attributes:
        text: The words of its fact when it was written; "" where the line was taken off the page.
        facts: The ids of the memories that it stands on: one, but for lines of older programs. Of a line that the user
            took off, or rewrote, they may not come back.
        until: The last day on which it is shown.
        by: Who wrote it, or took it off.
    """

    section: Section
    text: str
    facts: tuple[str, ...] = ()
    until: date | None = None
    by: Author = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageVersion:
    """The page as it was written once.

    Attributes:
        by: Who wrote this version; each line says who wrote it.
        model: As "provider:model", of versions by older programs; otherwise "".
        state: "proposed" until the user accepts the first page of a home that had facts before.
        changed: The number of the space's last change whose facts were taken to it.
    """

    number: int
    written_at: datetime
    by: Author
    model: str
    state: State
    changed: int
    lines: tuple[PageLine, ...]

    @property
    def shown(self) -> tuple[PageLine, ...]:
        """The lines that have words."""
        return tuple(line for line in self.lines if line.text)

    @property
    def rested(self) -> tuple[PageLine, ...]:
        """Those that a model took off the page when it was full, but for what the user wrote or took off."""
        own = {id for line in self.lines if line.by == "user" for id in line.facts}
        gone = (line for line in self.lines if not line.text and line.by == "model")
        return tuple(line for line in gone if own.isdisjoint(line.facts))


def lines_to_json(lines: Sequence[PageLine]) -> str:
    """Lines as they are stored."""
    return json.dumps(as_json(tuple(lines)), ensure_ascii=False)


def lines_from_json(found: Any) -> tuple[PageLine, ...]:
    """Lines from JSON data.

    Raises:
        ValueError: They have another form.
    """
    try:
        return tuple(
            PageLine(
                section=_one_of(line["section"], tuple(SECTIONS)),
                text=str(line["text"]),
                facts=tuple(str(id) for id in line["facts"]),
                until=None if line["until"] is None else date.fromisoformat(line["until"]),
                by=_one_of(line["by"], get_args(Author)),
            )
            for line in found
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("these are no lines of a page") from error


def _one_of(value: Any, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        raise ValueError(f"{value!r} is none of {allowed}")
    return value


def version_to_json(version: PageVersion) -> dict[str, Any]:
    """A version as plain JSON data, with the lines that have words."""
    found: dict[str, Any] = as_json(replace(version, lines=version.shown))
    del found["changed"]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """What stands on the page, for whoever reads a conversation.

    Attributes:
        facts: The facts with their sections, in the page's order.
        used: How many letters they have.
        room: How many letters the page may have; 0 where there is no page.
    """

    facts: tuple[tuple[Section, MemoryRecord], ...] = ()
    used: int = 0
    room: int = 0
