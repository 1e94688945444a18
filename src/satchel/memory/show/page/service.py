"""`Pages`: shows the page of a space, takes facts to it and off it, and lets the user edit it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from satchel.errors import NotFound, UsageError
from satchel.memory.records import MemoryRecord
from satchel.memory.show.page import noting
from satchel.memory.show.page.editing import apply, edit_of
from satchel.memory.show.page.records import Page
from satchel.memory.show.page.rendering import FILLED, FRAME_TOKENS, rendered
from satchel.memory.store import page_rows as rows
from satchel.memory.store.page_lines import SECTIONS, PageFacts, PageLine, PageVersion, Section
from satchel.memory.text.framing import CHARS_A_TOKEN, page_line

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.store.capture import Capture
    from satchel.memory.store.space import Space

_ROUNDS: Final = 3
"""So often an edit is done again because the page was changed meanwhile."""
_USERS_IMPORTANCE: Final = 4


class Pages:
    """The page of a space."""

    def __init__(self, space: Space, capture: Capture) -> None:
        """Take the space, and what stores the user's own lines as memories. Nothing is read or written."""
        self._space = space
        self._capture = capture

    # Reading.

    async def page(
        self,
        *,
        budget_tokens: int,
        proposed: bool = False,
        confidential: bool = True,
        granted: Collection[str] = (),
    ) -> Page | None:
        """See `Memory.page`."""
        if budget_tokens <= 0:
            return None
        at = self._space.now_micros()

        def read(connection: Connection, space: int) -> tuple[PageVersion, dict[str, Any]] | None:
            version = rows.newest(connection, space)
            if version is None or (version.state == "proposed" and not proposed):
                return None
            ids = {id for line in version.lines for id in line.facts}
            return version, {
                "held": rows.holding(connection, space, ids, at=at),
                "pinned": rows.pinned(connection, space, at=at),
                "ended": rows.ended(connection, space, version.lines, at=at),
            }

        found = await self._space.read(read)
        if found is None:
            return None
        version, facts = found
        zone = self._space.clock.now().tzinfo
        version = replace(version, written_at=version.written_at.astimezone(zone))
        today = self._space.clock.now().date()
        return rendered(
            version,
            **facts,
            today=today,
            budget_tokens=budget_tokens,
            confidential=confidential,
            granted=granted,
        )

    async def facts(self, budget_tokens: int) -> PageFacts:
        """What a reader of a conversation is shown of the page: its facts, each in its own words, and its room."""
        at = self._space.now_micros()
        today = self._space.clock.now().date()

        def read(connection: Connection, space: int) -> list[tuple[Section, MemoryRecord]]:
            version = rows.newest(connection, space)
            lines = version.shown if version is not None else ()
            held = rows.holding(connection, space, {id for line in lines for id in line.facts}, at=at)
            there: dict[str, tuple[Section, MemoryRecord]] = {}
            for section in SECTIONS:
                for line in lines:
                    if line.section == section and not (line.until is not None and line.until < today):
                        for id in line.facts:
                            if id in held:
                                there.setdefault(id, (section, held[id]))
            return list(there.values())

        page = await self._space.read(read)
        return PageFacts(
            facts=tuple(page),
            used=sum(len(page_line(fact.content)) + 1 for _, fact in page),
            # What is a little too much is still shown until the next reading makes room.
            room=max(0, int((budget_tokens * FILLED - FRAME_TOKENS) * CHARS_A_TOKEN)),
        )

    async def note(
        self,
        sections: Mapping[str, Section | None],
        off: Collection[str],
        *,
        replaced: Collection[str] = (),
        budget_tokens: int,
    ) -> PageVersion | None:
        """Take facts to the page and others off it, as whoever read a conversation said; see `noting.note`."""
        at = self._space.now_micros()
        return await self._space.write(
            noting.note, sections, off, replaced=replaced, budget_tokens=budget_tokens, at=at
        )

    # The user's own.

    async def edit(self, text: str, *, base: int | None) -> PageVersion:
        """See `Memory.edit_page`."""
        for _ in range(_ROUNDS):
            last = await self._space.read(rows.newest)
            number = last.number if last else 0
            if base is None:
                base = number
            before = last if base == number else await self._space.read(rows.read_version, base)
            if base and before is None:
                raise NotFound(f"The page has no version {base}.")
            edit = edit_of(text, before.lines if before else ())
            if not edit and last is not None:
                return last
            added = [await self._stored(line) for line in edit.added]
            lines = apply(replace(edit, added=tuple(added)), last.lines if last else ())
            version = await self._user_version(lines, last)
            if version is not None:
                return version
        raise UsageError("The page is being written again and again. Try once more.")

    async def _stored(self, line: PageLine) -> PageLine:
        """A line that the user wrote, on the memory that it becomes: it is found, corrected and forgotten like any."""
        now = self._space.clock.now()
        words = await self._space.redacted(line.text)
        for record in (await self._space.read(rows.said_by_user, words)).values():
            return replace(line, text=words, facts=(record.id,))
        id = await self._capture.add(
            words, importance=_USERS_IMPORTANCE, memory_type="fact", said_at=now, trust="user"
        )
        return replace(line, text=words, facts=(id,))

    async def restore(self, number: int | None) -> PageVersion:
        """See `Memory.restore_page`."""
        last = await self._space.read(rows.newest)
        wanted = (last.number if last else 0) - 1 if number is None else number
        found = await self._space.read(rows.read_version, wanted) if wanted > 0 else None
        if last is None or found is None:
            what = "earlier version" if number is None else f"version {number}"
            raise NotFound(f"The page has no {what}.")
        version = await self._user_version(found.lines, last)
        if version is None:
            raise UsageError("The page was written meanwhile. Try once more.")
        return version

    async def _user_version(self, lines: Sequence[PageLine], last: PageVersion | None) -> PageVersion | None:
        return await self._space.write(rows.write, lines, base=last, at=self._space.now_micros())
