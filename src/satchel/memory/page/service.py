"""`Pages`: shows the page of a space, writes it with a model, and lets the user edit it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import anyio

from satchel.clock import local_day
from satchel.errors import BudgetExceeded, ModelError, NotFound, UsageError
from satchel.memory.capture import NewMemory
from satchel.memory.distill.asking import Known, Unreadable
from satchel.memory.framing import CHARS_A_TOKEN, PAGE_HEAD, PROFILE_TAIL, page_line, tokens_of
from satchel.memory.page import rows
from satchel.memory.page.asking import Answer, Proposed, Request, ask, ask_again, request_of
from satchel.memory.page.checking import MOST_CHARS, content_hash_of, stands, unsupported
from satchel.memory.page.editing import apply, edit_of
from satchel.memory.page.records import SECTIONS, Page, PageLine, PageVersion, PageWritten, Section, State
from satchel.memory.page.rendering import parts_of, rendered, section_for, tokens_of_line, tokens_of_section
from satchel.memory.records import MemoryRecord
from satchel.memory.spending import Asked, add_usage

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.capture import Capture
    from satchel.memory.dates import ResolvedDate
    from satchel.memory.distill.engine import MaySpend
    from satchel.memory.page.rows import News
    from satchel.memory.space import Space
    from satchel.models.port import ChatModel

__all__ = ["Pages"]

_WORK: Final = "page"
_ROUNDS: Final = 3
"""So often a writing is done again because the user edited the page meanwhile."""
_OLD: Final = timedelta(days=1)
"""A home whose first page can be made of facts older than that had them before it had a page."""
_FRAME: Final = tokens_of(PAGE_HEAD + PROFILE_TAIL) + sum(map(tokens_of_section, SECTIONS))
"""Tokens of a page without a line, with all headings."""
_FILLED: Final = 0.8
"""The share of the room that a model is told of: what comes on top until the next reading fits into the rest."""
_FIRST_PAUSE_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 3_600.0
_WRITING_S: Final = 2.0
"""How long a writing that is cancelled may take to note what it cost."""
_MOST_REFUSED: Final = 20
_USERS_IMPORTANCE: Final = 4


class Pages:
    """The page of a space."""

    def __init__(self, space: Space, capture: Capture) -> None:
        """Take the space, and what stores the user's own lines as memories. Nothing is read or written."""
        self._space = space
        self._capture = capture
        self._lock = anyio.Lock()

    # Reading.

    async def page(
        self, *, budget_tokens: int, proposed: bool = False, confidential: bool = True
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
                "ended": rows.ended_since(connection, space, ids, at=at),
            }

        found = await self._space.read(read)
        if found is None:
            return None
        version, facts = found
        zone = self._space.clock.now().tzinfo
        version = replace(version, written_at=version.written_at.astimezone(zone))
        today = self._space.clock.now().date()
        return rendered(version, **facts, today=today, budget_tokens=budget_tokens, confidential=confidential)

    async def versions(self, *, limit: int) -> tuple[PageVersion, ...]:
        """See `Memory.page_versions`."""
        return tuple(await self._space.read(lambda at, space: rows.versions(at, space, limit=limit)))

    async def waits(self) -> bool:
        """See `Memory.page_waits`."""
        version = await self._space.read(rows.newest)
        return version is not None and version.state == "proposed"

    async def known(self, budget_tokens: int) -> Known:
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
        return Known(
            page=tuple(page),
            used=sum(len(page_line(fact.content)) + 1 for _, fact in page),
            # What is a little too much is still shown until the next reading makes room.
            room=max(0, int((budget_tokens * _FILLED - _FRAME) * CHARS_A_TOKEN)),
        )

    # Writing.

    async def is_due(self) -> bool:
        """See `Memory.page_is_due`."""
        now = self._space.now_micros()
        today = local_day(self._space.clock.now())

        def look(connection: Connection, space: int) -> bool:
            failures, failed_at = rows.failing_since(connection, space)
            pause_s = min(_FIRST_PAUSE_S * 2 ** (min(failures, 10) - 1), _LONGEST_PAUSE_S) if failures else 0
            if now < failed_at + int(pause_s * 1_000_000):
                return False
            news = rows.news_of(connection, space, at=now)
            if not news.fresh:
                return False
            zone = self._space.clock.now().tzinfo
            asked_on = "" if news.asked_at is None else local_day(news.asked_at.astimezone(zone))
            return news.is_urgent or asked_on < today

        return await self._space.read(look)

    async def write(
        self, *, model: ChatModel, budget_tokens: int, may_spend: MaySpend | None
    ) -> PageWritten | None:
        """Write the page if facts wait for a place on it, or its lines don't fit; see `Memory.write_page`."""

        def find(connection: Connection, held: Collection[str]) -> list[int]:
            if str(self._space.id) in held:
                return []
            news = rows.news_of(connection, self._space.id, at=self._space.now_micros())
            return [self._space.id] if news.fresh else []

        async with self._lock, self._space.claims.take(_WORK, find, name=str) as taken:
            if not taken.pieces:
                return None
            spent: list[Asked] = []
            try:
                return await self._write(model, budget_tokens, may_spend, spent)
            finally:
                # What a cancelled call cost is estimated and counted too.
                if spent:
                    with anyio.move_on_after(_WRITING_S, shield=True):
                        await self._space.write(add_usage, spent, self._day())

    async def _write(
        self, model: ChatModel, budget_tokens: int, may_spend: MaySpend | None, spent: list[Asked]
    ) -> PageWritten:
        for _ in range(_ROUNDS):
            news = await self._space.read(rows.news_of, at=self._space.now_micros())
            if not news.fresh:
                return PageWritten(stopped="another process or the user has written it meanwhile")
            try:
                if may_spend is not None:
                    await may_spend()
                lines, refused = await self._lines(model, news, budget_tokens, spent)
            except BudgetExceeded as error:
                return PageWritten(stopped=str(error))
            except (ModelError, Unreadable) as error:
                paid, spent[:] = list(spent), []
                await self._space.write(
                    rows.write_failure,
                    str(error),
                    at=self._space.now_micros(),
                    spent=paid,
                    day=self._day(),
                )
                return PageWritten(stopped=str(error))
            paid, spent[:] = list(spent), []
            version = await self._space.write(
                rows.write,
                lines,
                base=news.base.number if news.base else 0,
                by="model",
                model=f"{model.provider}:{model.model}",
                state=self._state(news),
                changed=news.changed,
                at=self._space.now_micros(),
                spent=paid,
                day=self._day(),
            )
            if version is not None:
                return PageWritten(version=version, refused=tuple(refused))
        return PageWritten(stopped="the page was changed again and again while it was written")

    async def note(
        self, sections: Mapping[str, Section | None], off: Collection[str] = ()
    ) -> PageVersion | None:
        """Take facts to the page in their own words and others off it, without asking a model: whoever read a
        conversation said where they stand, and what need not.

        Args:
            sections: Of new facts by their ids; None for what need not stand there.
            off: The ids of facts that leave it. The user's own lines stay.

        Returns:
            The version; None where nothing was changed, or the user has to see the first page before it is used.
        """
        for _ in range(_ROUNDS):
            news = await self._space.read(rows.news_of, at=self._space.now_micros())
            state = self._state(news)
            # What got a place stands there, also what is trivial or confidential.
            placed = await self._space.read(
                rows.holding,
                [id for id, section in sections.items() if section is not None],
                at=self._space.now_micros(),
            )
            there = {id for line in news.base.lines for id in line.facts} if news.base is not None else set()
            fresh = {fact.id: fact for fact in news.fresh}
            fresh |= {id: fact for id, fact in placed.items() if id not in there}
            lines = [
                line for fact in fresh.values() if (line := _noted(fact, sections.get(fact.id))) is not None
            ]
            before = _still_standing(news)
            standing = [part for line in before for part in _without(line, off, news.held)]
            # What nobody gave a place waits for the next writing.
            settled = {*sections, *off, *(id for line in standing for id in line.facts)}
            is_all = all(fact.id in settled for fact in news.fresh)
            if (not lines and standing == before) or (news.base is None and state == "proposed"):
                if news.base is not None and is_all:
                    await self._space.write(rows.note_seen, news.base.number, news.changed)
                return None
            version = await self._space.write(
                rows.write,
                [*standing, *lines],
                base=news.base.number if news.base else 0,
                by="model",
                state=state,
                changed=news.changed if is_all else news.base.changed if news.base else -1,
                at=self._space.now_micros(),
            )
            if version is not None:
                return version
        return None

    def _state(self, news: News) -> State:
        if news.base is not None:
            return news.base.state
        old = self._space.now_micros() - _OLD // timedelta(microseconds=1)
        return "proposed" if news.oldest < old else "used"

    async def _lines(
        self, model: ChatModel, news: News, budget_tokens: int, spent: list[Asked]
    ) -> tuple[list[PageLine], list[str]]:
        """Ask for the page, hold its lines to their facts, and ask once more for those that are refused."""
        today = self._space.clock.now().date()
        # With room for what is noted until it is written again.
        room = budget_tokens if news.base is None else int(budget_tokens * _FILLED)
        request = request_of(news, today=today, budget_tokens=room)
        answer, messages = await ask(model, request, spent)
        if not answer.keep and not answer.lines and news.base is not None and news.base.shown:
            raise Unreadable(f"{model.provider}:{model.model} wrote an empty page.")
        draft = _Draft(news, request, self._space.locale)
        refused = draft.take(answer)
        why = [reason for _, reason in refused]
        if refused:
            try:
                again = await ask_again(model, messages, refused[:_MOST_REFUSED], spent)
            except (ModelError, Unreadable) as error:
                why.append(str(error))
            else:
                why += [reason for _, reason in draft.take(replace(again, keep=()))]
            draft.fall_back([line for line, _ in refused])
        return draft.within(budget_tokens), why

    def _day(self) -> str:
        return local_day(self._space.clock.now())

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
            NewMemory(
                content=words, importance=_USERS_IMPORTANCE, memory_type="fact", said_at=now, trust="user"
            )
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

    async def accept(self) -> bool:
        """See `Memory.accept_page`."""
        return await self._space.write(rows.accept)

    async def _user_version(self, lines: Sequence[PageLine], last: PageVersion | None) -> PageVersion | None:
        # What no writer has seen yet stays unseen.
        return await self._space.write(
            rows.write,
            lines,
            base=last.number if last else 0,
            by="user",
            changed=last.changed if last else -1,
            at=self._space.now_micros(),
        )


def _noted(fact: MemoryRecord, section: Section | None) -> PageLine | None:
    """A fact as a line of its own; None for what need not, or may not, stand in the section."""
    text = " ".join(fact.content.split())
    if section is None or len(text) > MOST_CHARS or (section == "answers" and not rows.is_users_own(fact)):
        return None
    if fact.discretion != "open":
        section = "confidential"
    return PageLine(section=section, text=text, facts=(fact.id,), checked=content_hash_of([fact]))


def _still_standing(news: News) -> list[PageLine]:
    """The lines of the newest version; of one that lost a fact, the others."""
    found: list[PageLine] = []
    for line in news.base.lines if news.base is not None else ():
        is_kept = line.by == "user" or not line.text or stands(line, news.held)
        found += [line] if is_kept else parts_of(line, news.held)
    return found


def _without(line: PageLine, off: Collection[str], held: Mapping[str, MemoryRecord]) -> list[PageLine]:
    """A line without some of its facts: the others in their own words. The user's own line stays as it is."""
    if line.by == "user" or not line.text or not set(off).intersection(line.facts):
        return [line]
    return parts_of(line, {id: fact for id, fact in held.items() if id not in off})


class _Draft:
    """The lines of the next version, as far as they are settled."""

    def __init__(self, news: News, request: Request, locale: str) -> None:
        self._news = news
        self._request = request
        self._base = news.base.lines if news.base is not None else ()
        # What the user wrote or took off stays.
        self._lines: list[PageLine] = [line for line in self._base if line.by == "user"]
        self._own = [line for line in self._lines if line.text]
        found = {fact.id: _days_in(fact, locale) for fact in request.facts.values()}
        self._dated = {id: [one.text for one in days] for id, days in found.items()}
        self._days = {
            id: {day for one in days for day in (one.start, one.end) if day} for id, days in found.items()
        }

    def take(self, answer: Answer) -> list[tuple[Proposed, str]]:
        """Take what can stand; gives what can't, each with the reason."""
        for number in answer.keep:
            if 1 <= number <= len(self._base):
                line = self._base[number - 1]
                if line.by == "model" and stands(line, self._news.held) and line not in self._lines:
                    self._lines.append(line)
        refused: list[tuple[Proposed, str]] = []
        for proposed in answer.lines:
            why = self._refusal(proposed)
            if why:
                refused.append((proposed, why))
            else:
                self._add(proposed.section, proposed.text, self._facts(proposed), proposed)
        return refused

    def _facts(self, proposed: Proposed) -> list[MemoryRecord]:
        return [self._request.facts[number] for number in proposed.facts if number in self._request.facts]

    def _refusal(self, proposed: Proposed) -> str:
        facts = self._facts(proposed)
        if not facts or len(facts) < len(proposed.facts):
            return "it names no fact, or one that is not there"
        if proposed.section == "answers" and not all(map(rows.is_users_own, facts)):
            return 'only what the user said themselves can stand in "answers"'
        owned = {id for line in self._own for id in line.facts}
        if owned.intersection(fact.id for fact in facts):
            return "the user has a line of their own about this"
        return unsupported(proposed.text, facts, self._dated) or ""

    def _add(
        self, section: Section, text: str, facts: Sequence[MemoryRecord], asked: Proposed | None
    ) -> None:
        if any(line.section == section and line.text == text for line in self._lines):
            return
        # The last day is one that the facts name: what was worked out by a model only is not.
        until = asked.until if asked is not None else None
        said = {fact.valid_to.date() - timedelta(days=1) for fact in facts if fact.valid_to is not None}
        said |= {day for fact in facts for day in self._days[fact.id]}
        if until not in said:
            until = None
        self._lines.append(
            PageLine(
                section=section,
                text=text,
                facts=tuple(fact.id for fact in facts),
                until=until,
                checked=content_hash_of(facts),
            )
        )

    def fall_back(self, refused: Sequence[Proposed]) -> None:
        """Let the facts of lines that were refused twice stand in their own words."""
        there = {id for line in self._lines for id in line.facts}
        for proposed in refused:
            for fact in self._facts(proposed):
                if fact.id in there:
                    continue
                section = proposed.section
                if section == "answers" and not rows.is_users_own(fact):
                    section = section_for(fact.content)
                    if section == "answers":
                        continue
                there.add(fact.id)
                self._add(section, " ".join(fact.content.split()), [fact], proposed)

    def within(self, budget_tokens: int) -> list[PageLine]:
        """The lines that fit, the user's first, then in the order in which the model gave them."""
        left = budget_tokens - tokens_of(PAGE_HEAD + PROFILE_TAIL)
        kept: list[PageLine] = []
        for line in sorted(self._lines, key=lambda line: line.by == "model"):
            if line.text:
                is_first = all(other.section != line.section or not other.text for other in kept)
                cost = tokens_of_line(line.text) + (tokens_of_section(line.section) if is_first else 0)
                if cost > left and line.by == "model":
                    continue
                left -= cost
            kept.append(line)
        return kept


def _days_in(fact: MemoryRecord, locale: str) -> tuple[ResolvedDate, ...]:
    """The days that the words of a fact name or mean."""
    from satchel.memory.dates import resolve_dates  # noqa: PLC0415 - it takes 0.1 s, and showing the page needs none

    return resolve_dates(fact.content, fact.said_at, locale=locale)
