"""The page as it is shown now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Literal, TypeAlias

from satchel.memory.show.standing import Standing, StandingLine
from satchel.memory.store.page_lines import SECTIONS, PageVersion, Section

PAGE_TOKENS: Final = 1_200
"""Of the whole block: a page of 600 tokens held .82 of what messages of withheld lives needed, one of 1,200 .93."""
UNREAD_TOKENS: Final = 300
"""Of what was said and isn't read yet, below it: in eight lived lives a day has 114 tokens on average."""


Place: TypeAlias = Section | Literal["lately"]
HEADS: Final[Mapping[str, str]] = dict[str, str](
    SECTIONS.items(), lately="Said since; it holds where lines disagree"
)
"""The headings of what is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLine(StandingLine):
    """A line that is shown now, until a day; `by` is "pin" for a pinned memory that no line stands on, and "said" for a
    turn that nobody has read yet, whose section is "lately".
    """

    section: Place
    until: date | None
    by: Literal["model", "user", "pin", "said"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Standing[ShownLine]):
    """The page as it is shown now, and the version that it is made of."""

    version: PageVersion

    def own_json(self) -> dict[str, Any]:
        """See `Standing`."""
        version = self.version
        written = {"written_at": version.written_at.isoformat(), "written_by": version.by}
        return {"number": version.number, **written, "state": version.state}
