"""Surfacing: chooses the memories to show to a model before a turn, often none. It only reads; uses are counted
afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from satchel.memory import decay
from satchel.memory.block import Said, block_of, gist, is_mere_question, restates, said_texts
from satchel.memory.filters import Filter
from satchel.memory.grouping import with_later_words
from satchel.memory.question import MAX_QUERY_CHARS
from satchel.memory.records import Context, Hit, Recall
from satchel.memory.relevance import CONSIDERED, judge, judge_by_words

if TYPE_CHECKING:
    from satchel.memory.candidates.ranking import Ranked
    from satchel.memory.ports import VisibleOf
    from satchel.memory.search import Answer, Search
    from satchel.memory.space import Space

__all__ = ["Showing", "Surface", "Surfaced"]

_MESSAGES = 3  # The number of last messages that are taken into account (DESIGN 5).
_THRESHOLD = 0.5
_SPARE = 10  # Additional hits, because some are only questions or repeat what was just said.


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """The options of `Memory.surface`."""

    budget_tokens: int = 500
    limit: int = 5
    exclude: Collection[str] = ()
    standing: Collection[str] = ()
    exclude_session: str | None = None
    threshold: float | None = None
    as_of: datetime | None = None
    include_superseded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Surfaced:
    """The memories to show, and the others that were considered, each with the reason why it is left out."""

    context: Context = field(default_factory=Context)
    left_out: tuple[tuple[Hit, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """The judgement of the hits for one text.

    Attributes:
        answer: What the search found for the text.
        passing: The hits worth showing with their probabilities, most probable first.
        considered: All hits that were judged, best first.
        left_out: Hits that say nothing new, with the reason.
    """

    answer: Answer
    passing: Sequence[tuple[Ranked, float]]
    considered: Sequence[Ranked]
    left_out: tuple[tuple[Hit, str], ...]


class Surface:
    """Chooses the memories of a space that a model is shown before a turn."""

    def __init__(self, space: Space, search: Search) -> None:
        """Surface memories of this space, found by this search."""
        self._space = space
        self._search = search

    async def shown(self, messages: Sequence[Said] | Said, showing: Showing) -> Surfaced:
        """Choose the memories for a conversation; see `Memory.surface`."""
        said = said_texts(messages)[-_MESSAGES:]
        if not said or showing.limit < 1:
            return Surfaced()
        visible = self._visible(showing)
        at_least = _THRESHOLD if showing.threshold is None else showing.threshold
        known = {gist(text) for _, text in said}
        most = max(CONSIDERED, showing.limit)
        found = await self._judged(said[-1][1], known, at_least=at_least, visible=visible, most=most)
        if not found.passing and len(said) > 1:
            # "And what can she eat?" can only be understood with the messages before it.
            together = "\n".join(text[: MAX_QUERY_CHARS // _MESSAGES] for _, text in said)
            found = await self._judged(together, known, at_least=at_least, visible=visible, most=most)
        if not found.passing:
            return Surfaced(left_out=found.left_out)
        passing = {ranked.rid for ranked, _ in found.passing}
        near = [(ranked, 0.0) for ranked in found.considered if ranked.rid not in passing]
        moment = self._space.aware(showing.as_of)
        fresh = with_later_words(
            await self._search.hits_as_of(found.answer.hits(found.passing), moment),
            await self._search.hits_as_of(found.answer.hits(near), moment),
        )
        standing = tuple(hit for hit in fresh if hit.memory.id in showing.standing)
        fresh = tuple(hit for hit in fresh if hit.memory.id not in showing.standing)
        context = block_of(
            fresh,
            stems=found.answer.question.stems,
            budget_tokens=showing.budget_tokens,
            limit=showing.limit,
        )
        if standing:
            context = replace(context, standing=standing)
        shown = {hit.memory.id for hit in context.memories}
        rest = [(hit, _why_not_shown(hit, context)) for hit in fresh if hit.memory.id not in shown]
        return Surfaced(context=context, left_out=(*found.left_out, *rest))

    async def recall(self, messages: Sequence[Said] | Said, showing: Showing) -> Recall:
        """Explain what would be shown and why other memories are left out; see `Memory.recall`."""
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
        known = {gist(text) for _, text in said}
        explained = {hit.memory.id for hit in found.context.memories} | {
            hit.memory.id for hit, _ in found.left_out
        }
        left_out = list(found.left_out)
        for hit in near:
            memory = hit.memory
            if memory.id in explained:
                continue
            if memory.id in showing.exclude:
                why = "was already shown in this session"
            elif showing.exclude_session is not None and memory.source.session == showing.exclude_session:
                why = "was said in this session"
            elif memory.valid_to is not None and memory.valid_to <= now:
                why = "is no longer valid"
            elif decay.priority_now(memory, now, cycles=passed.get(memory.id)) < decay.FLOOR:
                why = "has faded: it was not used for a long time"
            else:
                why = _why_not_new(hit, known) or "not relevant enough"
            left_out.append((hit, why))
        return Recall(context=found.context, left_out=tuple(left_out))

    def _visible(self, showing: Showing) -> VisibleOf:
        """The memories that may be shown: valid, not shown before and not said in this session."""
        return self._search.visible(
            Filter(as_of=self._space.aware(showing.as_of)),
            include_superseded=showing.include_superseded or showing.as_of is not None,
            without=None if showing.exclude_session is None else Filter(session=showing.exclude_session),
            exclude=showing.exclude,
        )

    async def _judged(
        self, text: str, known: Collection[tuple[str, str]], *, at_least: float, visible: VisibleOf, most: int
    ) -> _Judged:
        """Judge the `most` best hits for a text that say something new."""
        answer = await self._search.find(
            text, limit=most + _SPARE, mode="hybrid", visible=visible, for_showing=True
        )
        considered: list[Ranked] = []
        left_out: list[tuple[Hit, str]] = []
        for one in answer.found.ranked:
            if one.score <= 0 or one.rid not in answer.records or len(considered) == most:
                continue
            (hit,) = answer.hits([(one, one.score)])
            reason = _why_not_new(hit, known)
            if reason:
                left_out.append((hit, reason))
            else:
                considered.append(one)
        found, vector = replace(answer.found, ranked=tuple(considered)), answer.vector
        dense = self._space.dense
        gate = None if vector is None or dense is None or not considered else await dense.gate()
        return _Judged(
            answer=answer,
            passing=judge_by_words(considered, at_least=at_least, most=most)
            if gate is None or vector is None
            else judge(found, gate, vector, at_least=at_least, most=most),
            considered=considered,
            left_out=tuple(left_out),
        )


def _why_not_new(hit: Hit, known: Collection[tuple[str, str]]) -> str:
    """Why a memory says nothing new in this conversation, or ""."""
    if gist(hit.memory.content) in known:
        return "repeats what was just said"
    return "is only a question" if is_mere_question(hit.memory) else ""


def _why_not_shown(hit: Hit, context: Context) -> str:
    if any(restates(hit.memory.content, shown.memory.content) for shown in context.memories):
        return "restates a memory that is shown"
    return "no room left"
