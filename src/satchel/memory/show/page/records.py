"""The page as it is shown now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Literal

from satchel.memory.show.standing import Standing, StandingLine, standing_to_json
from satchel.memory.store.page_lines import PageVersion, Section

if TYPE_CHECKING:
    from satchel.memory.show.profile import Profile

__all__ = ["PAGE_TOKENS", "Page", "ShownLine", "always_to_json", "page_to_json"]

PAGE_TOKENS: Final = 1_200
"""Of the whole block: a page of 600 tokens held .82 of what messages of withheld lives needed, one of 1,200 .93."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLine(StandingLine):
    """A line that is shown now.

    Attributes:
        section: One of `SECTIONS`.
        until: The last day on which it is shown.
        by: Who wrote it; "pin" for a pinned memory that no line stands on.
    """

    section: Section
    until: date | None
    by: Literal["model", "user", "pin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Standing[ShownLine]):
    """The page as it is shown now.

    Attributes:
        version: The version that it is made of.
    """

    version: PageVersion


def always_to_json(found: Page | Profile) -> dict[str, Any]:
    """What stands before a model in every session as plain JSON data."""
    if isinstance(found, Page):
        return page_to_json(found)
    from satchel.memory.show.profile import profile_to_json  # noqa: PLC0415 - it loads the database, a hook has no time for

    return profile_to_json(found)


def page_to_json(page: Page) -> dict[str, Any]:
    """A page as plain JSON data."""
    found = standing_to_json(
        page,
        lambda line: {
            "section": line.section,
            "facts": [line.id],
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
