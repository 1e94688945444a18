"""What a page consists of: versions of lines, and the lines that are shown now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from satchel.memory.records import MemoryRecord
from satchel.memory.standing import Standing, StandingLine, standing_to_json

if TYPE_CHECKING:
    from satchel.memory.profile import Profile

__all__ = [
    "PAGE_TOKENS",
    "SECTIONS",
    "Author",
    "Page",
    "PageLine",
    "PageVersion",
    "PageWritten",
    "Section",
    "ShownLine",
    "State",
    "always_to_json",
    "lines_from_json",
    "lines_to_json",
    "page_to_json",
    "section_named",
    "version_to_json",
]

PAGE_TOKENS: Final = 1_200
"""Of the whole block: a page of 600 tokens held .82 of what messages of withheld lives needed, one of 1,200 .93."""

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
        text: Its words; "" where the line was taken off the page.
        facts: The ids of the memories that it stands on. Of a line that the user took off, or rewrote, they may not
            come back; of one that lost a fact by forgetting, they wait for the next writing.
        until: The last day on which it is shown.
        by: Who wrote it, or took it off.
        checked: A hash of what its facts said when it was written; it is shown as long as they say the same.
    """

    section: Section
    text: str
    facts: tuple[str, ...] = ()
    until: date | None = None
    by: Author = "model"
    checked: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageVersion:
    """The page as it was written once.

    Attributes:
        number: From 1 on.
        by: Who wrote this version; each line says who wrote it.
        model: As "provider:model"; "" for the user.
        state: "proposed" until the user accepts the first page of a home that had facts before.
        changed: The number of the space's last change that the writer had seen.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLine(StandingLine):
    """A line that is shown now.

    Attributes:
        section: One of `SECTIONS`.
        facts: What it stands on; `memory` is the first of them.
        until: The last day on which it is shown.
        by: Who wrote it; "pin" for a pinned memory that no line stands on.
        whole: The ids of those facts of which it says every word.
    """

    section: Section
    facts: tuple[MemoryRecord, ...]
    until: date | None
    by: Literal["model", "user", "pin"]
    whole: frozenset[str] = frozenset()

    @property
    def whole_ids(self) -> frozenset[str]:
        """See `StandingLine`."""
        return self.whole

    @property
    def sources(self) -> tuple[MemoryRecord, ...]:
        """See `StandingLine`."""
        return self.facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Standing[ShownLine]):
    """The page as it is shown now.

    Attributes:
        version: The version that it is made of.
    """

    version: PageVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class PageWritten:
    """What a writing of the page brought.

    Attributes:
        version: The new version; None where nothing was written.
        refused: What a model proposed and was refused for, one sentence each, without the lines' words.
        stopped: Why nothing was written.
    """

    version: PageVersion | None = None
    refused: tuple[str, ...] = ()
    stopped: str = ""


def always_to_json(found: Page | Profile) -> dict[str, Any]:
    """What stands before a model in every session as plain JSON data."""
    if isinstance(found, Page):
        return page_to_json(found)
    from satchel.memory.profile import profile_to_json  # noqa: PLC0415 - it loads the database, a hook has no time for

    return profile_to_json(found)


def lines_to_json(lines: Sequence[PageLine]) -> str:
    """Lines as they are stored."""
    return json.dumps([_line_to_json(line) for line in lines], ensure_ascii=False)


def _line_to_json(line: PageLine) -> dict[str, Any]:
    return {
        "section": line.section,
        "text": line.text,
        "facts": list(line.facts),
        "until": None if line.until is None else line.until.isoformat(),
        "by": line.by,
        "checked": line.checked,
    }


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
                checked=str(line.get("checked", "")),
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
    """A version as plain JSON data."""
    return {
        "number": version.number,
        "written_at": version.written_at.isoformat(),
        "by": version.by,
        "model": version.model,
        "state": version.state,
        "lines": [
            {key: value for key, value in _line_to_json(line).items() if key != "checked"}
            for line in version.shown
        ],
    }


def page_to_json(page: Page) -> dict[str, Any]:
    """A page as plain JSON data."""
    found = standing_to_json(
        page,
        lambda line: {
            "section": line.section,
            "facts": [fact.id for fact in line.facts],
            "until": None if line.until is None else line.until.isoformat(),
            "by": line.by,
        },
    )
    version = page.version
    return {
        "number": version.number,
        "written_at": version.written_at.isoformat(),
        "written_by": version.by,
        "state": version.state,
        **found,
    }
