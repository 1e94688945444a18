"""A tool that rolls dice, and a search engine over the bookmarks that a browser exported.

The file of bookmarks is named by the variable BOOKMARKS; web_search asks this engine before all others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated

from pydantic import Field

from satchel.errors import SatchelError
from satchel.tools import Annotations, Blocking, Tool, tool_from_function
from satchel.tools.web import Engine, Found


def roll(
    sides: Annotated[int, Field(ge=2, le=1_000, description="Of each die.")] = 6,
    dice: Annotated[int, Field(ge=1, le=100, description="How many.")] = 1,
) -> dict[str, object]:
    """Roll dice. Use it whenever chance should decide; never make up a number."""
    rolled = [random.SystemRandom().randint(1, sides) for _ in range(dice)]
    return {"rolled": rolled, "sum": sum(rolled)}


def tools() -> Sequence[Tool]:
    """See the guide on plugins."""
    return [
        tool_from_function(roll, name="roll_dice", annotations=Annotations(read_only=True, open_world=False))
    ]


class Bookmarks(HTMLParser):
    """The search engine; it finds bookmarks whose titles have all words of the query."""

    name = "bookmarks"

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self._found: list[Found] = []
        self._url = ""

    # Of `HTMLParser`.
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._url = dict(attrs).get("href") or "" if tag == "a" else ""

    def handle_data(self, data: str) -> None:
        if self._url:
            self._found.append(Found(url=self._url, title=data.strip(), text="a bookmark"))
            self._url = ""

    async def search(self, query: str, *, limit: int, blocking: Blocking) -> Sequence[Found]:
        try:
            text = await blocking(lambda: self._file.read_text(encoding="utf-8"))
        except OSError as error:
            raise SatchelError(f"The bookmarks can't be read: {error.strerror}.") from error
        self._found = []
        self.reset()
        self.feed(text)
        words = query.casefold().split()
        found = [one for one in self._found if all(word in one.title.casefold() for word in words)]
        if not found:
            raise SatchelError("No bookmark has all these words.")  # The next engine is asked.
        return found[:limit]


def search_engines() -> Sequence[Engine]:
    """See the guide on plugins."""
    file = os.environ.get("BOOKMARKS")
    return [Bookmarks(Path(file))] if file else []
