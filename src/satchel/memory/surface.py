"""Surfacing: what a model should be shown now, or nothing. Reads only; what was shown is counted afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from satchel.memory import decay
from satchel.memory.block import Said, block_of, is_mere_question, restates, said_texts, says
from satchel.memory.filters import Filter, Visible
from satchel.memory.grouping import with_later_words
from satchel.memory.records import Context, Hit, Recall
from satchel.memory.relevance import CONSIDERED, judge, judge_by_words
from satchel.memory.repository import read_records, rids_of

if TYPE_CHECKING:
    from satchel.memory.candidates.ranking import Ranked
    from satchel.memory.question import Question
    from satchel.memory.search import Search
    from satchel.memory.space import Space

__all__ = ["Showing", "Surface", "Surfaced"]

_MESSAGES = 3  # The last messages of the conversation count (DESIGN 5).
_SURE_ENOUGH = 0.5
_SPARE = 10  # Hits beyond those that are judged: some of them only ask, or say what was just said.


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """What may be shown; see `Memory.surface`."""

    budget_tokens: int = 500
    limit: int = 5
    exclude: Collection[str] = ()
    exclude_session: str | None = None
    threshold: float | None = None
    as_of: datetime | None = None
    include_superseded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Surfaced:
    """What is shown, and what came near, each with the reason why it is not shown."""

    context: Context = field(default_factory=Context)
    left_out: tuple[tuple[Hit, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What is worth showing, surest first; all that was judged, best first; and what says nothing new."""

    question: Question
    passing: Sequence[tuple[Ranked, float]]
    considered: Sequence[Ranked]
    left_out: tuple[tuple[Hit, str], ...]


class Surface:
    """Chooses what of a space a model is shown before a turn."""

    def __init__(self, space: Space, search: Search) -> None:
        """Take the space and the search over it."""
        self._space = space
        self._search = search

    async def shown(self, messages: Sequence[Said] | Said, showing: Showing) -> Surfaced:
        """Choose what to show for a conversation; see `Memory.surface`."""
        said = said_texts(messages)[-_MESSAGES:]
        if not said or showing.limit < 1:
            return Surfaced()
        visible = await self._visible(showing)
        at_least = _SURE_ENOUGH if showing.threshold is None else showing.threshold
        known = _without_blanks(text for _, text in said)
        most = max(CONSIDERED, showing.limit)
        found = await self._judged(said[-1][1], known, at_least=at_least, visible=visible, most=most)
        if not found.passing and len(said) > 1:
            # "And what can she eat?" means something only after what came before.
            together = "\n".join(text for _, text in said)
            found = await self._judged(together, known, at_least=at_least, visible=visible, most=most)
        if not found.passing:
            return Surfaced(left_out=found.left_out)
        sure = {ranked.rid for ranked, _ in found.passing}
        near = [(ranked, 0.0) for ranked in found.considered if ranked.rid not in sure]
        moment = self._space.aware(showing.as_of)
        fresh = with_later_words(
            await self._search.hits_as_of(await self._search.fetch(found.passing), moment),
            await self._search.hits_as_of(await self._search.fetch(near), moment),
        )
        context = block_of(
            fresh, stems=found.question.stems, budget_tokens=showing.budget_tokens, limit=showing.limit
        )
        shown = {hit.memory.id for hit in context.memories}
        no_room = [(hit, _no_room(hit, context)) for hit in fresh if hit.memory.id not in shown]
        return Surfaced(context=context, left_out=(*found.left_out, *no_room))

    async def recall(self, messages: Sequence[Said] | Said, showing: Showing) -> Recall:
        """Say what would be shown, and why not more; see `Memory.recall`."""
        found = await self.shown(messages, showing)
        said = said_texts(messages)[-_MESSAGES:]
        if not said:
            return Recall(context=found.context)
        near = await self._search.hits(
            said[-1][1],
            limit=2 * CONSIDERED,
            mode="hybrid",
            include_superseded=True,
            filters={},
        )
        passed = await self._search.requests_since([hit.memory.id for hit in near])
        now = self._space.clock.now()
        known = _without_blanks(text for _, text in said)
        told = {hit.memory.id for hit in found.context.memories} | {
            hit.memory.id for hit, _ in found.left_out
        }
        left_out = list(found.left_out)
        for hit in near:
            memory = hit.memory
            if memory.id in told:
                continue
            if memory.id in showing.exclude:
                why = "was shown in this session already"
            elif showing.exclude_session is not None and memory.source.session == showing.exclude_session:
                why = "was said in this session"
            elif memory.valid_to is not None and memory.valid_to <= now:
                why = "no longer holds"
            elif decay.priority_now(memory, now, cycles=passed.get(memory.id)) < decay.FLOOR:
                why = "faded: it was not used for long"
            else:
                why = _says_nothing_new(hit, known) or "not relevant enough"
            left_out.append((hit, why))
        return Recall(context=found.context, left_out=tuple(left_out))

    async def _visible(self, showing: Showing) -> Visible:
        """What may be shown at all: it holds, was not shown before, and was not said in this session."""
        visible = await self._search.visible(
            Filter(as_of=self._space.aware(showing.as_of)),
            include_superseded=showing.include_superseded or showing.as_of is not None,
            without=None if showing.exclude_session is None else Filter(session=showing.exclude_session),
        )
        if not showing.exclude:
            return visible
        excluded = await self._space.read(rids_of, list(showing.exclude))
        return replace(visible, hidden=visible.hidden.union(excluded))

    async def _judged(
        self, text: str, known: Collection[str], *, at_least: float, visible: Visible, most: int
    ) -> _Judged:
        """Judge the `most` memories that fit a text best and say something new."""
        question, found, vector = await self._search.find(
            text, limit=most + _SPARE, mode="hybrid", visible=visible, for_showing=True
        )
        ranked = [hit for hit in found.ranked if hit.score > 0]
        records = await self._space.read(read_records, [hit.rid for hit in ranked])
        considered: list[Ranked] = []
        left_out: list[tuple[Hit, str]] = []
        for one in ranked:
            if one.rid not in records or len(considered) == most:
                continue
            hit = Hit(memory=records[one.rid], score=round(one.score, 6), signals=one.signals)
            reason = _says_nothing_new(hit, known)
            if reason:
                left_out.append((hit, reason))
            else:
                considered.append(one)
        found = replace(found, ranked=tuple(considered))
        dense = self._space.dense
        gate = None if vector is None or dense is None or not considered else await dense.gate()
        return _Judged(
            question=question,
            passing=judge_by_words(considered, at_least=at_least, most=most)
            if gate is None or vector is None
            else judge(found, gate, vector, at_least=at_least, most=most),
            considered=considered,
            left_out=tuple(left_out),
        )


def _says_nothing_new(hit: Hit, known: Collection[str]) -> str:
    """Why a memory adds nothing to what was just said, or ""."""
    if says(hit.memory.content, known):
        return "says what was just said"
    return "only asks" if is_mere_question(hit.memory) else ""


def _no_room(hit: Hit, context: Context) -> str:
    if any(restates(hit.memory.content, shown.memory.content) for shown in context.memories):
        return "restates what is shown"
    return "no room left"


def _without_blanks(texts: Iterable[str]) -> set[str]:
    return {" ".join(text.split()) for text in texts}
