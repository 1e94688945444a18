"""Surfacing: what a model should be shown now, or nothing. Reads only; what was shown is counted afterwards."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from satchel.memory import decay, graph, judging
from satchel.memory.block import Said, block_of, gist, said_texts
from satchel.memory.candidates.evidence import ComparedMessage as AskedFor
from satchel.memory.choosing import (
    LINE_FEATURES,
    NeedWeights,
    is_assistants,
    line_features,
    need_of,
    shipped_weights,
    sureness,
)
from satchel.memory.discretion import HELD_BACK, asks_about
from satchel.memory.filters import CheckedFilters
from satchel.memory.following import FollowedMemory, follow
from satchel.memory.framing import is_mere_question, restates
from satchel.memory.graph import Successor
from satchel.memory.need import asked_about
from satchel.memory.newest import attribute_of, newest_of_each
from satchel.memory.passages import passages
from satchel.memory.past import asks_about_past, is_past_appointment
from satchel.memory.question import is_widespread, possible_names, read_question
from satchel.memory.records import Context, Discretion, Hit, MemoryRecord, Recall
from satchel.memory.repository import (
    faded_rids,
    read_records,
    rids_of,
    rids_of_session,
    sessions_with_facts,
    turns_over,
)
from satchel.memory.sphere_fit import Likeness, closed_spheres
from satchel.memory.sphere_rows import vectors_of
from satchel.memory.spheres import FOR_GUESTS, is_granted
from satchel.memory.weighed import Weighed

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.candidates.arrays import Floats, Matrix
    from satchel.memory.candidates.evidence import Evidence
    from satchel.memory.ports import VisibleOf
    from satchel.memory.question import ParsedQuestion
    from satchel.memory.relevance import RelevanceGate
    from satchel.memory.search import Search
    from satchel.memory.space import Space
    from satchel.memory.spending import Asked
    from satchel.models.port import ChatModel

__all__ = ["Showing", "Surface", "SurfaceResult", "Weighed", "choose", "with_later"]

_MESSAGES = 3  # The number of messages that are searched for (DESIGN 5).
_THRESHOLD = 0.5
_DECIDES = 0.9
"""How sure a memory must be without the names that are everywhere, so that it is what was asked for."""
_EACH = 16
"""Candidates of each arm. Of what is needed, .94 is among the first twenty of a search (life-dev, profile counted)."""
_EXPLAINED = 10  # Memories of a plain search that `recall` gives a reason for.

_MESSAGE_CHARS = 4_000
"""Of a message: its beginning and its end. What is asked of a pasted log stands before or after it."""
_BEFORE_CHARS = 300
_BEFORE_MESSAGE_CHARS = 1_000
_LONG_WORDS = 40
_PARTS = 4
"""A message of more than forty words is compared by its parts too: at most so many, from both ends."""

_ECHO_ALIKE = 0.7
_SAME_ALIKE = 0.6
"""The cosine from which two things said in one turn, or one after the other, are one thing."""


_BESIDE = 0.3
"""From this weight of a link `may_replace` on, the later memory is shown before the earlier one."""

_OUTSIDE_SHARE = 3
"""One in three lines at most, and always one, comes from outside: what fits every message must not crowd out others."""


_WHY_CLOSED: Final[Mapping[Discretion, str]] = {
    "confidential": "is confidential, and you did not ask about it",
    "withheld": "is held back, because you asked not to keep it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """What may be shown; see `Memory.surface`."""

    budget_tokens: int = 500
    limit: int = 8
    exclude: Collection[str] = ()
    standing: Collection[str] = ()
    known: Collection[str] = ()
    exclude_session: str | None = None
    threshold: float | None = None
    as_of: datetime | None = None
    include_superseded: bool = False
    judge: ChatModel | None = None
    spheres: Collection[str] | None = None
    granted: Collection[str] = ()
    is_guests: bool = False

    def may_tell(self, memory: MemoryRecord) -> bool:
        """Whether whoever is told may know of a memory at all."""
        if self.is_guests and (memory.discretion != "open" or not is_granted(memory.spheres, FOR_GUESTS)):
            return False
        return is_granted(memory.spheres, self.granted)

    @property
    def why_not(self) -> str:
        """Why they may not."""
        return (
            "somebody else is speaking" if self.is_guests else "is of no sphere that this agent was granted"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceResult:
    """What is shown, and what came near, each with the reason why it is not shown.

    Attributes:
        cost: Of the language model that chose; nothing if none was asked.
    """

    context: Context = field(default_factory=Context)
    left_out: tuple[tuple[Hit, str], ...] = ()
    cost: tuple[Asked, ...] = ()


class Surface:
    """Chooses the memories of a space that a model is shown before a turn."""

    def __init__(self, space: Space, search: Search) -> None:
        """Surface memories of this space, found by this search."""
        self._space = space
        self._search = search

    async def shown(self, messages: Sequence[Said] | Said, showing: Showing) -> SurfaceResult:
        """Choose the memories for a conversation; see `Memory.surface`."""
        said = said_texts(messages)[-_MESSAGES:]
        if not said or showing.limit < 1:
            return SurfaceResult()
        moment = self._space.aware(showing.as_of)
        with_past = showing.judge is not None or moment is not None or asks_about_past(said[-1][1])
        corrections = [hit for hit in await self._corrections(showing) if showing.may_tell(hit.memory)]
        visible = self._visible(showing, with_over=with_past, asked=True)
        weighed = await self.weigh([text for _, text in said], visible)
        if weighed is None or not weighed.records:
            context = block_of(
                corrections, stems=(), budget_tokens=showing.budget_tokens, limit=showing.limit
            )
            return SurfaceResult(context=context, left_out=() if weighed is None else weighed.left_out)
        at_least = _THRESHOLD if showing.threshold is None else showing.threshold
        weights = shipped_weights(with_vectors="message" in weighed.features)
        sure, chosen, one_with = choose(weighed, weights, at_least=at_least, limit=showing.limit)
        order = np.argsort(-sure, kind="stable").tolist()
        cost: tuple[Asked, ...] = ()
        standing_at = [at for at in chosen if weighed.records[at].id in showing.standing]
        told = {at for older in weighed.kinds.values() for at in older}

        def is_open(record: MemoryRecord) -> bool:
            """Whether its words may be read here at all: to judge it, or as the earlier value of another."""
            asked = record.discretion == "open" or asks_about(said[-1][1], record.content)
            return asked and showing.may_tell(record)

        candidates = [
            at
            for at in order
            if at not in one_with
            and at not in told
            and weighed.records[at].id not in showing.standing
            and is_open(weighed.records[at])
        ]
        is_judged = False
        if showing.judge is not None and candidates:
            judgement = await judging.judge(
                showing.judge,
                [text for _, text in said],
                [(weighed.records[at], int(weighed.passages[at])) for at in candidates],
                stems=weighed.question.stems,
                now=self._space.clock.now(),
            )
            cost = judgement.cost
            is_judged = judgement.chosen is not None
            if judgement.chosen is not None:
                picked = [*standing_at, *(candidates[place] for place in judgement.chosen)]
                chosen, one_with = _one_line_each(picked, weighed, limit=showing.limit)
        for at in await self._told_before(chosen, weighed, showing):
            chosen.remove(at)
            one_with[at] = "a newer value is before the model"
        with_past = is_judged or moment is not None or asks_about_past(said[-1][1])
        turns = [] if with_past else [weighed.records[at].id for at in chosen if weighed.told[at]]
        over = await self._space.read(turns_over, turns, at=self._space.now_micros()) if turns else set()
        now = self._space.clock.now()

        def read() -> tuple[list[tuple[int, MemoryRecord]], dict[int, str]]:
            found = with_later(chosen, weighed, there=showing.standing)
            if with_past:
                return found
            return _without_past(found, weighed, over, now)

        # Reading the days in a text takes 0.3 ms: too long for the event loop.
        lines, out_of_date = await self._space.thread.run(read)
        elsewhere = await self._elsewhere(lines, weighed, said[-1][1], showing.spheres) | {
            record.id: showing.why_not for _, record in lines if not showing.may_tell(record)
        }
        lines, closed = _without_closed(lines, said[-1][1], elsewhere)

        def hit(at: int) -> Hit:
            return _hit(weighed, at, float(sure[at]))

        def of_kind(record: MemoryRecord) -> tuple[MemoryRecord, ...]:
            older = (weighed.kinds[at] for at in weighed.kinds if weighed.records[at].id == record.id)
            return tuple(one for at in next(older, ()) if is_open(one := weighed.records[at]))

        fresh = await self._search.hits_as_of(
            [
                replace(hit(at), memory=record, before=of_kind(record), is_over=record.is_over(now))
                for at, record in lines
            ],
            moment,
        )
        if weighed.vectors is not None and weighed.likely is not None and moment is None:
            followed = await self._with_followed(fresh, weighed, showing)
            fresh = tuple(
                replace(hit, before=tuple(filter(is_open, hit.before)))
                for hit in followed
                if is_open(hit.memory)
            )
        standing = tuple(hit for hit in fresh if hit.memory.id in showing.standing)
        fresh = tuple(hit for hit in fresh if hit.memory.id not in showing.standing)
        fresh = (*corrections, *fresh)
        context = block_of(
            fresh,
            stems=weighed.question.stems,
            budget_tokens=showing.budget_tokens,
            limit=showing.limit,
            best={
                record.id: int(number)
                for record, number in zip(weighed.records, weighed.passages, strict=True)
            },
        )
        if standing:
            context = replace(context, standing=standing)
        shown = {hit.memory.id for hit in context.memories}
        rest = [(hit, _why_not_shown(hit, context)) for hit in fresh if hit.memory.id not in shown]
        rest += [(replace(hit(at), memory=record), why) for at, record, why in closed]
        rest += [
            (hit(at), why)
            for at, why in (one_with | out_of_date).items()
            if weighed.records[at].id not in shown
        ]
        return SurfaceResult(context=context, left_out=(*weighed.left_out, *rest), cost=cost)

    async def _told_before(self, chosen: Sequence[int], weighed: Weighed, showing: Showing) -> list[int]:
        """Which of the chosen give an older value of what was shown before, or said in this session."""
        stating = [at for at in chosen if attribute_of(weighed.records[at].content) is not None]
        if not stating:
            return []

        def read(connection: Connection, number: int) -> list[MemoryRecord]:
            ids = {*showing.exclude, *showing.known, *showing.standing}
            rids = rids_of(connection, number, list(ids)) if ids else []
            if showing.exclude_session is not None:
                rids = [*rids, *rids_of_session(connection, number, showing.exclude_session)]
            return list(read_records(connection, number, rids).values())

        there = await self._space.read(read)
        kinds = newest_of_each([*(weighed.records[at] for at in stating), *there])
        return [
            stating[one] for newest, older in kinds.items() for one in older if newest >= len(stating) > one
        ]

    async def _with_followed(
        self, hits: Sequence[Hit], weighed: Weighed, showing: Showing
    ) -> tuple[Hit, ...]:
        """The same, and behind each what its value leads to; see `following`."""
        assert weighed.vectors is not None
        assert weighed.likely is not None
        followed = await follow(
            self._space,
            weighed.question,
            weighed.vectors,
            [hit.memory for hit in hits],
            visible=self._visible(showing),
            likely=weighed.likely,
        )
        led: dict[str, list[FollowedMemory]] = {}
        for one in followed:
            led.setdefault(one.because_of, []).append(one)

        def with_led(hit: Hit) -> list[Hit]:
            more = [
                Hit(memory=one.memory, score=hit.score, signals={"message": one.cosine}, before=one.before)
                for one in led.get(hit.memory.id, ())
            ]
            return [hit, *(two for one in more for two in with_led(one))]

        return tuple(one for hit in hits for one in with_led(hit))

    async def recall(self, messages: Sequence[Said] | Said, showing: Showing) -> Recall:
        """Explain what would be shown and why other memories are left out; see `Memory.recall`."""
        found = await self.shown(messages, showing)
        said = said_texts(messages)[-_MESSAGES:]
        if not said:
            return Recall(context=found.context)
        near = await self._search.hits(
            said[-1][1],
            limit=_EXPLAINED,
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
            elif not showing.may_tell(memory):
                why = showing.why_not
            elif memory.discretion != "open":
                why = _WHY_CLOSED[memory.discretion]
            elif showing.exclude_session is not None and memory.source.session == showing.exclude_session:
                why = "was said in this session"
            elif memory.valid_to is not None and memory.valid_to <= now:
                why = "is no longer valid"
            elif decay.priority_now(memory, now, cycles=passed.get(memory.id)) < decay.FLOOR:
                why = "has faded: it was not used for a long time"
            else:
                why = _why_not_new(memory, known) or "not relevant enough"
            left_out.append((hit, why))
        return Recall(context=found.context, left_out=tuple(left_out))

    async def _corrections(self, showing: Showing) -> list[Hit]:
        """What has superseded something that is before the model already, and is not before it itself."""
        if not showing.known:
            return []
        space, visible = self._space, self._visible(showing)

        def read(connection: Connection, number: int) -> list[MemoryRecord]:
            known = rids_of(connection, number, list(showing.known))
            later = graph.read_later(connection, known)
            if not any(one.is_certain for some in later.values() for one in some):
                return []
            later = graph.read_later(connection, list(later), shows=visible(connection).shows)
            rids = {one.rid for some in later.values() for one in some if one.is_certain} - set(known)
            records = read_records(connection, number, sorted(rids))
            return sorted(records.values(), key=lambda record: (record.said_at, record.id))

        return [Hit(memory=record, score=1.0, signals={}) for record in await space.read(read)]

    async def _elsewhere(
        self,
        found: Sequence[tuple[int, MemoryRecord]],
        weighed: Weighed,
        text: str,
        opened: Collection[str] | None,
    ) -> dict[str, str]:
        """Of what was chosen, the memories that belong to a sphere that the message doesn't open, with the reason."""
        dense, likeness = self._space.dense, None
        vectors: Mapping[str, Floats] = {}
        if dense is not None and dense.model is not None and weighed.vectors is not None:
            message = weighed.vectors[0, : dense.dimension]  # Zeros where another embedder reads it.
            centres = await dense.associations()
            if centres is not None and any(centres.spheres) and message.any():
                likeness = Likeness(centres, message)
                ids = [record.id for _, record in found if not record.spheres]
                if opened is not None and ids:
                    vectors = await self._space.read(
                        vectors_of, ids, model=dense.model, dimension=dense.dimension
                    )
        closed = {
            record.id: closed_spheres(record, text=text, opened=opened, likeness=likeness, vectors=vectors)
            for _, record in found
        }
        return {
            id: f"belongs to {spheres}, which the message is not about"
            for id, spheres in closed.items()
            if spheres
        }

    def _visible(self, showing: Showing, *, with_over: bool = False, asked: bool = False) -> VisibleOf:
        """The memories that may be shown: valid, not shown before, not said in this session, and not held back.

        With `asked`, what is confidential is among them: a message may ask about it.
        """
        return self._search.visible(
            CheckedFilters(as_of=self._space.aware(showing.as_of)),
            include_superseded=showing.include_superseded or showing.as_of is not None,
            without_session=showing.exclude_session,
            exclude=showing.exclude,
            with_over=with_over,
            without=("withheld",) if asked else HELD_BACK,
        )

    async def weigh(self, texts: Sequence[str], visible: VisibleOf | None) -> Weighed | None:
        """Measure the memories that may be worth showing before a message; None where there are none.

        Args:
            texts: What was said last, oldest first; the last is the message.
            visible: Reads which memories may be shown; None for all.
        """
        space = self._space
        if space.dense is not None:
            await space.dense.open()
        if not space.candidates.contents.count:
            return None
        text = asked_about(_ends_of(texts[-1]))
        names = possible_names(text)
        having = await space.candidates.count_having(names) if names else {}
        everywhere = [
            name for name, count in having.items() if is_widespread(count, space.candidates.contents.count)
        ]
        if everywhere:
            # A name that is everywhere brings all that have it, and hides what was asked for. If the rest of the
            # message finds something, the rest decides; if not, the message is about whoever has the name.
            found = await self._weigh(text, texts, visible, without=everywhere)
            if found is not None and _most_sure(found) >= _DECIDES:
                return found
        return await self._weigh(text, texts, visible)

    async def _weigh(
        self, text: str, texts: Sequence[str], visible: VisibleOf | None, *, without: Collection[int] = ()
    ) -> Weighed | None:
        """The same, by the message without some names."""
        space = self._space
        dense = space.dense
        speakers = space.candidates.contents.speakers.items()
        question = read_question(text, speakers, widespread=without)
        rest = tuple(stem for stem in question.stems if stem not in without)
        question = replace(question, stems=rest or question.stems)
        vectors = gate = None
        if dense is not None:
            before = [one[-_BEFORE_CHARS:] for one in texts[:-1]]
            joined = "\n".join([*before, text[:_BEFORE_MESSAGE_CHARS]]) if before else text
            vectors = await self._vectors(
                question.text, read_question(joined, speakers, widespread=without).text
            )
            gate = None if vectors is None else await dense.gate_for(vectors[0])
        asked = await self._asked(question, vectors, gate)
        now, by_request = space.now_micros(), space.by_request

        def read(connection: Connection, found: Evidence | None) -> _Read | None:
            if found is None:
                return None
            rids = found.rids.tolist()
            faded = faded_rids(connection, space.id, rids, at=now, floor=decay.FLOOR, by_request=by_request)
            later = graph.read_later(connection, rids)
            outdated = {rid for rid, some in later.items() if any(one.is_certain for one in some)}
            if later and visible is not None:
                later = graph.read_later(connection, list(later), shows=visible(connection).shows)
            wanted = {*rids, *(one.rid for some in later.values() for one in some)}
            records = read_records(connection, space.id, sorted(wanted))
            told = sessions_with_facts(connection, space.id, [records[rid] for rid in rids if rid in records])
            return _Read(found, records, faded, later, outdated, told)

        found = await space.candidates.evidence(asked, visible=visible, each=_EACH, then=read)
        if found is None:
            return None
        return _measured(
            found,
            question=question,
            text=text,
            known={gist(one) for one in texts},
            gate=gate,
            vectors=vectors,
        )

    async def _vectors(self, message: str, joined: str) -> Matrix | None:
        """The message alone, the message after what was said before it, and its parts: shape (q, d)."""
        space = self._space
        dense = space.dense
        assert dense is not None
        parts = _parts_of(message)
        found = await dense.asked([message, *([] if joined == message else [joined]), *parts])
        if space.candidates.contents.model is None and dense.model is not None:
            # The first answer of some embedders tells which model it is.
            await space.refresh()
        dense.waiting = (
            0 if dense.any_trouble else space.candidates.contents.count - space.candidates.contents.embedded
        )
        if found is None or not space.candidates.contents.embedded:
            return None
        return np.vstack([found[:1], found]) if joined == message else found

    async def _asked(
        self, question: ParsedQuestion, vectors: Matrix | None, gate: RelevanceGate | None
    ) -> AskedFor:
        dense = self._space.dense
        if vectors is None or gate is None or dense is None:
            return AskedFor(stems=question.stems)
        centres = await dense.associations_for(vectors[0])
        if centres is None:
            return AskedFor(stems=question.stems, vectors=vectors)
        calls = centres.calls(vectors[:2], likely=gate.mean + gate.deviation)
        return AskedFor(
            stems=question.stems,
            vectors=vectors,
            topics=calls.topics,
            calls=calls.strengths,
            likely=gate.mean + 2 * gate.deviation,
        )


class _Read(NamedTuple):
    """What was measured of some memories, those memories by rid, which of them have faded, what came later and can be
    shown, which ones something took the place of, and from which of their sessions facts were drawn.
    """

    evidence: Evidence
    records: Mapping[int, MemoryRecord]
    faded: Collection[int]
    later: Mapping[int, tuple[graph.Later, ...]]
    outdated: Collection[int]
    told: Collection[str]


def _measured(
    found: _Read,
    *,
    question: ParsedQuestion,
    text: str,
    known: Collection[tuple[str, str]],
    gate: RelevanceGate | None,
    vectors: Matrix | None,
) -> Weighed:
    """What is known of the memories that say something new and have not faded."""
    evidence, rids = found.evidence, found.evidence.rids.tolist()
    there = [at for at, rid in enumerate(rids) if rid in found.records and rid not in found.faded]
    why = {at: _why_not_new(found.records[rids[at]], known) for at in there}
    kept = np.array([at for at in there if not why[at]], dtype=np.int64)
    records = [found.records[rids[at]] for at in kept.tolist()]
    need = need_of(text, shipped_weights(with_vectors=gate is not None).need)
    told = [record.source.session in found.told for record in records]
    later = [
        tuple(
            Successor(memory=found.records[one.rid], weight=one.weight, is_certain=one.is_certain)
            for one in found.later.get(rids[at], ())
            if one.rid in found.records
        )
        for at in kept.tolist()
    ]
    return Weighed(
        text=text,
        need=need,
        question=question,
        records=records,
        features=line_features(
            evidence.some(kept),
            records,
            gate=gate,
            message=None if vectors is None else vectors[0],
            need=need,
        )
        | {"told": np.array(told, dtype=bool)},
        alike=evidence.alike[np.ix_(kept, kept)],
        passages=evidence.passages[kept],
        later=later,
        outdated=[rids[at] in found.outdated for at in kept.tolist()],
        told=told,
        kinds=newest_of_each(records),
        vectors=vectors,
        likely=None if gate is None else gate.mean + gate.deviation,
        left_out=tuple(
            (Hit(memory=found.records[rids[at]], score=0.0, signals={}), reason)
            for at, reason in why.items()
            if reason
        ),
    )


def _most_sure(weighed: Weighed) -> float:
    weights = shipped_weights(with_vectors="message" in weighed.features)
    sure = sureness(weights, weighed.features, text=weighed.text, need=weighed.need)
    return float(sure.max()) if len(sure) else 0.0


def choose(
    weighed: Weighed, weights: NeedWeights, *, at_least: float, limit: int
) -> tuple[Any, list[int], dict[int, str]]:
    """Choose what to show of what was weighed.

    Returns:
        How sure each is, shape (n,); the places of those to show, surest first; and the places of those that are sure
        enough and left out all the same, with the reason.
    """
    sure = sureness(weights, weighed.features, text=weighed.text, need=weighed.need)
    for newest, older in weighed.kinds.items():
        # An older one fits as well as the newest, in whose line it stands.
        sure[newest] = max(sure[[newest, *older]])
    passing = [at for at in np.argsort(-sure, kind="stable").tolist() if sure[at] >= at_least]
    told = {at for older in weighed.kinds.values() for at in older}
    chosen, left_out = _one_line_each([at for at in passing if at not in told], weighed, limit=limit)
    return sure, chosen, left_out | {at: "a newer value is shown" for at in passing if at in told}


def _ends_of(text: str) -> str:
    if len(text) <= _MESSAGE_CHARS:
        return text
    return f"{text[: _MESSAGE_CHARS // 2]}\n{text[-_MESSAGE_CHARS // 2 :]}"


def _parts_of(message: str) -> list[str]:
    """The parts of a long message that are compared by themselves; none of a short one."""
    if message.count(" ") <= _LONG_WORDS:
        return []
    parts = passages(message, words=_LONG_WORDS // 2)
    return parts if len(parts) <= _PARTS else [*parts[: _PARTS // 2], *parts[-_PARTS // 2 :]]


def _one_line_each(
    passing: Sequence[int], weighed: Weighed, *, limit: int
) -> tuple[list[int], dict[int, str]]:
    """Keep one line for each thing: the fact rather than its turn, and either rather than the assistant's echo of it.

    Returns:
        The places of those to show, surest first; and of those that are one with them, with the reason.
    """
    records = weighed.records
    chosen: list[int] = []
    left_out: dict[int, str] = {}
    facts = [at for at in passing if records[at].kind != "episode"]
    from_outside = 0
    for at in passing:
        others = [*chosen, *(facts if records[at].kind == "episode" else ())]
        if any(
            _is_same(records[at], records[other], weighed.alike[at, other]) for other in others if other != at
        ):
            left_out[at] = "says the same as a line that is shown"
        elif records[at].trust == "outside" and from_outside >= max(1, limit // _OUTSIDE_SHARE):
            left_out[at] = "enough from outside is shown"
        else:
            from_outside += records[at].trust == "outside"
            chosen.append(at)
    return chosen, left_out


def with_later(
    chosen: Sequence[int], weighed: Weighed, *, there: Collection[str] = ()
) -> tuple[list[tuple[int, MemoryRecord]], dict[int, str]]:
    """Put what took the place of a memory, or may have taken it, before it, so that an old value never stands alone.

    A turn whose fact was superseded is left out where the later one can't be shown beside it.

    Args:
        chosen: The places of what is to be shown, surest first.
        weighed: What they are of.
        there: The ids of what the model has before it already.

    Returns:
        What to show, each with the place of the line for which it is shown; and what is left out, with the reason.
    """
    shown: dict[str, tuple[int, MemoryRecord]] = {}
    left_out: dict[int, str] = {}
    for at in chosen:
        later = [one for one in weighed.later[at] if one.is_certain or one.weight >= _BESIDE][:1]
        lines = [one.memory for one in later]
        is_beside = any(one.is_certain and one.memory.id not in there for one in later)
        if weighed.outdated[at] and weighed.records[at].kind == "episode" and not is_beside:
            left_out[at] = "was corrected"
        else:
            lines.append(weighed.records[at])
        for record in lines:
            shown.setdefault(record.id, (at, record))
    return list(shown.values()), left_out


def _without_past(
    found: tuple[list[tuple[int, MemoryRecord]], dict[int, str]],
    weighed: Weighed,
    over: Collection[str],
    now: datetime,
) -> tuple[list[tuple[int, MemoryRecord]], dict[int, str]]:
    """Leave out what is over, and what tells only of that, unless one stands beside what it may have replaced."""
    lines, left_out = [], dict(found[1])
    for at, record in found[0]:
        is_own = record.id == weighed.records[at].id
        is_over = record.is_over(now) or record.id in over
        if not (is_own or at in left_out) or not (is_over or is_past_appointment(record, now.date())):
            lines.append((at, record))
        elif is_own:
            left_out[at] = "is over"
    return lines, left_out


def _without_closed(
    found: Sequence[tuple[int, MemoryRecord]], message: str, elsewhere: Mapping[str, str]
) -> tuple[list[tuple[int, MemoryRecord]], list[tuple[int, MemoryRecord, str]]]:
    """Leave out what is confidential and the message doesn't ask about, and what belongs elsewhere; with the reason."""
    lines: list[tuple[int, MemoryRecord]] = []
    closed: list[tuple[int, MemoryRecord, str]] = []
    for at, record in found:
        if (
            record.discretion != "open"
            and record.id not in elsewhere
            and not asks_about(message, record.content)
        ):
            closed.append((at, record, _WHY_CLOSED[record.discretion]))
        elif record.id in elsewhere:
            closed.append((at, record, elsewhere[record.id]))
        else:
            lines.append((at, record))
    return lines, closed


def _is_same(one: MemoryRecord, other: MemoryRecord, alike: float) -> bool:
    """Whether one memory adds nothing to another that is shown: a turn to its fact, an echo to what it repeats."""
    if one.source.session is None or one.source.session != other.source.session:
        return False
    if one.source.turn == other.source.turn and (one.kind == "episode") != (other.kind == "episode"):
        episode = one if one.kind == "episode" else other
        return not is_assistants(episode) or alike >= _SAME_ALIKE
    if one.kind != "episode" or other.kind != "episode" or is_assistants(one) == is_assistants(other):
        return False
    return abs((one.source.turn or 0) - (other.source.turn or 0)) <= 1 and alike >= _ECHO_ALIKE


def _hit(weighed: Weighed, at: int, sure: float) -> Hit:
    return Hit(
        memory=weighed.records[at],
        score=round(sure, 6),
        signals={
            name: round(float(weighed.features[name][at]), 4)
            for name in LINE_FEATURES
            if name in weighed.features
        },
    )


def _why_not_new(memory: MemoryRecord, known: Collection[tuple[str, str]]) -> str:
    """Why a memory says nothing new in this conversation, or ""."""
    if gist(memory.content) in known:
        return "repeats what was just said"
    return "is only a question" if is_mere_question(memory) else ""


def _why_not_shown(hit: Hit, context: Context) -> str:
    if any(restates(hit.memory.content, shown.memory.content) for shown in context.memories):
        return "restates a memory that is shown"
    return "no room left"
