"""The page as it is shown now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Literal

from satchel.memory.show.standing import Standing, StandingLine
from satchel.memory.store.page_lines import PageVersion, Section

PAGE_TOKENS: Final = 1_200
"""Of the whole block: a page of 600 tokens held .82 of what messages of withheld lives needed, one of 1,200 .93."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLine(StandingLine):
    """A line that is shown now, until a day.

    Attributes:
        by: "pin" for a pinned memory that no line stands on, "room" for a fact that left the page when it was full.
    """

    section: Section
    until: date | None
    by: Literal["model", "user", "pin", "room"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Standing[ShownLine]):
    """The page as it is shown now, and the version that it is made of."""

    version: PageVersion

    def own_json(self) -> dict[str, Any]:
        """See `Standing`."""
        version = self.version
        written = {"written_at": version.written_at.isoformat(), "written_by": version.by}
        return {"number": version.number, **written, "state": version.state}
