"""Surfacing: what a model should be shown now, or nothing. Reads only; what was shown is counted afterwards.

One pipeline: `weigh` finds candidates and measures them, `choose` keeps those that are worth a line, each step after it
takes out lines and says why, and `block_of` fits the rest into a budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from satchel.memory.find.associations import associations_of
from satchel.memory.records import Context, Discretion, Hit, MemoryRecord, Recall
from satchel.memory.show import judging
from satchel.memory.show.choosing import LINE_FEATURES, NeedWeights, is_assistants, shipped_weights, sureness
from satchel.memory.show.following import follow
from satchel.memory.show.past import asks_about_past, is_past_appointment
from satchel.memory.show.sphere_fit import closed_spheres, opened_by
from satchel.memory.show.weighing import Weighed, weigh, why_not_new
from satchel.memory.spheres import FOR_GUESTS, is_granted
from satchel.memory.store import graph
from satchel.memory.store.decay import LASTING_IMPORTANCE
from satchel.memory.store.filters import CheckedFilters
from satchel.memory.store.repository import (
    faded_rids,
    read_records,
    rids_by_id,
    rids_of,
    rids_of_session,
)
from satchel.memory.text.block import Said, block_of, gist, said_texts
from satchel.memory.text.discretion import HELD_BACK, asks_about, asks_near
from satchel.memory.text.framing import restates
from satchel.memory.text.newest import attribute_of, newest_of_each
from satchel.memory.text.statements import only_asks

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.find.search import Search
    from satchel.memory.store.filters import VisibleOf
    from satchel.memory.store.space import Space
    from satchel.memory.store.spending import Asked
    from satchel.models.port import ChatModel

_MESSAGES = 3  # The number of messages that are searched for (DESIGN 5).
_THRESHOLD = 0.5
_EXPLAINED = 10  # Memories of a plain search that `recall` gives a reason for.

_ECHO_ALIKE = 0.7
_SAME_ALIKE = 0.6
"""The cosine from which two things said in one turn, or one after the other, are one thing."""

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
class SurfaceResult(Recall):
    """What is shown, and why not more; `cost` is that of the language model that chose, if one was asked."""

    cost: tuple[Asked, ...] = ()


@dataclass(slots=True)
class ChosenLine:
    """A memory on its way to a model; `why_not` is "" while it may be shown. `at` is its place in what was weighed, and
    that of the earlier one for what stands before an earlier one.
    """

    at: int
    record: MemoryRecord
    why_not: str = ""


def may_stand(lines: Sequence[ChosenLine]) -> Iterator[ChosenLine]:
    """Those that nothing speaks against so far. A reason that the caller gives one of them counts at once."""
    return (line for line in lines if not line.why_not)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The last messages, oldest first, and whether what is over is told too."""

    texts: Sequence[str]
    showing: Showing
    with_past: bool

    @property
    def message(self) -> str:
        return self.texts[-1]

    def is_open(self, record: MemoryRecord) -> bool:
        """Whether the words of a memory may be read here at all: to judge it, or as the earlier value of another."""
        return self.showing.may_tell(record) and (
            record.discretion == "open" or asks_about(self.message, record.content)
        )


class Surface:
    """Chooses the memories of a space that a model is shown before a turn."""

    def __init__(self, space: Space, search: Search) -> None:
        self._space = space
        self._search = search

    async def shown(self, messages: Sequence[Said] | Said, showing: Showing) -> SurfaceResult:
        """Choose the memories for a conversation; see `Memory.surface`."""
        texts = [text for _, text in said_texts(messages)[-_MESSAGES:]]
        if not texts or showing.limit < 1:
            return SurfaceResult()
        asked = _Asked(
            texts=texts,
            showing=showing,
            with_past=asks_about_past(texts[-1]),
        )
        corrections = [hit for hit in await self._corrections(showing) if showing.may_tell(hit.memory)]
        over_from = 0 if asked.with_past or showing.judge is not None else LASTING_IMPORTANCE
        weighed = await weigh(self._space, texts, self._visible(showing, over_from=over_from, asked=True))
        if weighed is None:
            context = block_of(
                corrections, stems=(), budget_tokens=showing.budget_tokens, limit=showing.limit
            )
            return SurfaceResult(context=context)
        sure, lines = choose(
            weighed,
            shipped_weights(with_vectors="message" in weighed.features),
            at_least=_THRESHOLD if showing.threshold is None else showing.threshold,
            limit=showing.limit,
        )
        cost: tuple[Asked, ...] = ()
        if showing.judge is not None:
            judged, cost = await self._judged(showing.judge, lines, sure, weighed, asked)
            if judged is not None:
                lines, asked = judged, replace(asked, with_past=True)
        await self._leave_out_told_before(lines, weighed, showing)
        lines = with_later(lines, weighed, there=showing.standing)
        await self._leave_out_read(lines, weighed, asked)
        if not asked.with_past:
            await self._leave_out_over(lines, weighed)
        await self._leave_out_closed(lines, weighed, asked)
        hits = await self._hits(lines, weighed, sure, asked)
        standing = tuple(hit for hit in hits if hit.memory.id in showing.standing)
        fresh = [*corrections, *(hit for hit in hits if hit.memory.id not in showing.standing)]
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
        shown = {hit.memory.id for hit in context.memories}
        left_out = [
            *((Hit(memory=record, score=0.0, signals={}), why) for record, why in weighed.left_out),
            *((hit, _why_no_room(hit, context)) for hit in fresh if hit.memory.id not in shown),
            *(
                (_hit(line, weighed, sure), line.why_not)
                for line in lines
                if line.why_not and line.record.id not in shown
            ),
        ]
        return SurfaceResult(
            context=replace(context, standing=standing) if standing else context,
            left_out=tuple(left_out),
            cost=cost,
        )

    async def _judged(
        self, model: ChatModel, lines: Sequence[ChosenLine], sure: Any, weighed: Weighed, asked: _Asked
    ) -> tuple[list[ChosenLine] | None, tuple[Asked, ...]]:
        """The lines that a model chooses, and what stands there already; None if it gave no answer. And the cost."""
        showing, records = asked.showing, weighed.records
        doubled = {line.at for line in lines if line.why_not} | weighed.older
        standing = [line.at for line in may_stand(lines) if line.record.id in showing.standing]
        candidates = [
            at
            for at in np.argsort(-sure, kind="stable").tolist()
            if at not in doubled and records[at].id not in showing.standing and asked.is_open(records[at])
        ]
        if not candidates:
            return None, ()
        judgement = await judging.judge(
            model,
            asked.texts,
            [(records[at], int(weighed.passages[at])) for at in candidates],
            stems=weighed.question.stems,
            now=self._space.clock.now(),
        )
        if judgement.chosen is None:
            return None, judgement.cost
        chosen = [
            ChosenLine(at, records[at])
            for at in (*standing, *(candidates[place] for place in judgement.chosen))
        ]
        _leave_out_doubled(chosen, weighed, limit=showing.limit)
        return chosen, judgement.cost

    async def _leave_out_told_before(
        self, lines: Sequence[ChosenLine], weighed: Weighed, showing: Showing
    ) -> None:
        """Leave out what gives an older value of what was shown before, or said in this session, or less of it."""
        standing = list(may_stand(lines))
        stating = [line for line in standing if attribute_of(line.record.content) is not None]
        if not standing:
            return

        def read(connection: Connection, number: int) -> tuple[list[MemoryRecord], frozenset[str]]:
            ids = {*showing.exclude, *showing.known, *showing.standing}
            rids = rids_of(connection, number, list(ids)) if ids else []
            if showing.exclude_session is not None:
                rids = [*rids, *rids_of_session(connection, number, showing.exclude_session)]
            records = read_records(connection, number, rids) if stating else {}
            return list(records.values()), graph.elaborated_by(connection, rids)

        there, elaborated = await self._space.read(read)
        for line in standing:
            if line.record.id in elaborated:
                line.why_not = "what adds to it is before the model"
        kinds = newest_of_each([*(line.record for line in stating), *there])
        for newest, older in kinds.items():
            for one in older:
                if newest >= len(stating) > one:
                    stating[one].why_not = "a newer value is before the model"

    async def _leave_out_read(self, lines: Sequence[ChosenLine], weighed: Weighed, asked: _Asked) -> None:
        """Leave out turns of the user that a model has read and that add nothing to the facts: nothing was drawn from
        one that asks, or all that was drawn is before the model or over. What a message asks about it gets whole.
        """
        turns = {
            line.record.id: line
            for line in may_stand(lines)
            if line.record.kind == "episode"
            and weighed.told[line.at]
            and line.record.id == weighed.records[line.at].id
            and line.record.trust == "user"
        }
        if not turns:
            return
        showing, now = asked.showing, self._space.clock.now()
        there = {*showing.exclude, *showing.standing, *(line.record.id for line in may_stand(lines))}

        def read(connection: Connection, number: int) -> tuple[dict[str, list[MemoryRecord]], frozenset[str]]:
            rids = rids_by_id(connection, number, list(turns))
            drawn: dict[int, list[int]] = {}
            for fact, turn in graph.facts_and_turns(connection, list(rids.values()), are_facts=False):
                drawn.setdefault(turn, []).append(fact)
            records = read_records(
                connection, number, sorted({fact for some in drawn.values() for fact in some})
            )
            facts = {
                id: [records[fact] for fact in drawn.get(rid, ()) if fact in records]
                for id, rid in rids.items()
            }
            return facts, graph.elaborated_by(connection, rids_of(connection, number, list(there)))

        facts, elaborated = await self._space.read(read)
        there |= elaborated
        for id, line in turns.items():
            left = [fact for fact in facts[id] if fact.discretion == "open" and fact.id not in there]
            if not facts[id]:
                line.why_not = "is only a question" if only_asks(line.record.content) else ""
            elif asks_near(asked.message, line.record.content):
                continue
            elif not left:
                line.why_not = "what was drawn from it is before the model"
            elif not asked.with_past and all(
                fact.time is not None and fact.valid_to is not None and fact.valid_to <= now for fact in left
            ):
                line.why_not = "is over"

    async def _leave_out_over(self, lines: Sequence[ChosenLine], weighed: Weighed) -> None:
        """Leave out what is over, and what tells only of that, unless one stands beside what it may have replaced.

        A fact that mattered most is told as past where the message is about it: what an operation leaves to take care
        of is needed long after its day.
        """
        now = self._space.clock.now()
        alone = {line.at for line in lines if line.why_not}
        own = [
            line
            for line in may_stand(lines)
            if line.at in alone or line.record.id == weighed.records[line.at].id
        ]

        def read() -> None:
            for line in own:
                record = line.record
                is_over = record.importance < LASTING_IMPORTANCE and record.is_over(now)
                if is_over or is_past_appointment(record, now.date()):
                    line.why_not = "is over"

        # Reading the days in a text takes 0.3 ms: too long for the event loop.
        await self._space.thread.run(read)

    async def _leave_out_closed(self, lines: Sequence[ChosenLine], weighed: Weighed, asked: _Asked) -> None:
        """Leave out what whoever is told may not know, what belongs to a sphere that the message doesn't open, and what
        is confidential and not asked about.
        """
        showing = asked.showing
        opened, dense = showing.spheres, self._space.dense
        if opened is None and dense is not None and weighed.vectors is not None:
            message = weighed.vectors[0, : dense.dimension]  # Zeros where another embedder reads it.
            table = associations_of(dense.embedder.info.id)
            if table is not None and message.any():
                opened = opened_by(table, message)
        for line in may_stand(lines):
            record = line.record
            spheres = closed_spheres(record, text=asked.message, opened=opened)
            if not showing.may_tell(record):
                line.why_not = showing.why_not
            elif spheres:
                line.why_not = f"belongs to {spheres}, which the message is not about"
            elif not asked.is_open(record):
                line.why_not = _WHY_CLOSED[record.discretion]

    async def _hits(
        self, lines: Sequence[ChosenLine], weighed: Weighed, sure: Any, asked: _Asked
    ) -> list[Hit]:
        now = self._space.clock.now()
        older = {weighed.records[at].id: places for at, places in weighed.kinds.items()}

        def hit(line: ChosenLine) -> Hit:
            before = (weighed.records[at] for at in older.get(line.record.id, ()))
            return replace(
                _hit(line, weighed, sure),
                before=tuple(filter(asked.is_open, before)),
                is_over=line.record.is_over(now),
            )

        hits = [hit(line) for line in may_stand(lines)]
        if weighed.vectors is None or weighed.likely is None:
            return hits
        followed = await follow(
            self._space,
            weighed.question,
            weighed.vectors,
            [hit.memory for hit in hits],
            visible=self._visible(asked.showing),
            likely=weighed.likely,
        )

        def with_led(hit: Hit) -> Iterator[Hit]:
            yield hit
            for one in followed.get(hit.memory.id, ()):
                if asked.is_open(one.memory):
                    before = tuple(filter(asked.is_open, one.before))
                    yield from with_led(replace(one, score=hit.score, before=before))

        return [one for hit in hits for one in with_led(hit)]

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
        now = self._space.clock.now()

        def read(connection: Connection, number: int) -> set[str]:
            rids = rids_by_id(connection, number, [hit.memory.id for hit in near])
            at, by_request = self._space.now_micros(), self._space.by_request
            faded = faded_rids(connection, number, list(rids.values()), at=at, by_request=by_request)
            return {id for id, rid in rids.items() if rid in faded}

        faded = await self._space.read(read)
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
                why = "was already shown in this conversation"
            elif not showing.may_tell(memory):
                why = showing.why_not
            elif memory.discretion != "open":
                why = _WHY_CLOSED[memory.discretion]
            elif showing.exclude_session is not None and memory.source.session == showing.exclude_session:
                why = "was said in this conversation"
            elif memory.valid_to is not None and memory.valid_to <= now:
                why = "is no longer valid"
            elif memory.id in faded:
                why = "has faded: it was not used for a long time"
            else:
                why = why_not_new(memory, known) or "not relevant enough"
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
            if not any(any(some.values()) for some in later.values()):
                return []
            later = graph.read_later(connection, list(later), shows=visible(connection).shows)
            rids = {rid for some in later.values() for rid in some if some[rid]} - set(known)
            records = read_records(connection, number, sorted(rids))
            return sorted(records.values(), key=lambda record: (record.said_at, record.id))

        return [Hit(memory=record, score=1.0, signals={}) for record in await space.read(read)]

    def _visible(
        self, showing: Showing, *, over_from: int = LASTING_IMPORTANCE + 1, asked: bool = False
    ) -> VisibleOf:
        """The memories that may be shown: valid, not shown before, not said in this session, and not held back.

        With `asked`, what is confidential is among them: a message may ask about it.
        """
        return self._search.visible(
            CheckedFilters(),
            include_superseded=False,
            without_session=showing.exclude_session,
            exclude=showing.exclude,
            over_from=over_from,
            without=("withheld",) if asked else HELD_BACK,
        )


def choose(
    weighed: Weighed, weights: NeedWeights, *, at_least: float, limit: int
) -> tuple[Any, list[ChosenLine]]:
    """Choose what to show: how sure each memory is, shape (n,); and those that are sure enough, surest first, some with
    the reason why not.
    """
    sure = sureness(weights, weighed.features, text=weighed.text, need=weighed.need)
    for newest, older in weighed.kinds.items():
        # An older one fits as well as the newest, in whose line it stands.
        sure[newest] = max(sure[[newest, *older]])
    lines = [
        ChosenLine(at, weighed.records[at], "a newer value is shown" if at in weighed.older else "")
        for at in np.argsort(-sure, kind="stable").tolist()
        if sure[at] >= at_least
    ]
    _leave_out_doubled(lines, weighed, limit=limit)
    return sure, lines


def _leave_out_doubled(lines: Sequence[ChosenLine], weighed: Weighed, *, limit: int) -> None:
    """Keep one line for each thing: a fact rather than its turn, either rather than the assistant's echo of it."""
    facts = [line for line in may_stand(lines) if line.record.kind != "episode"]
    kept: list[ChosenLine] = []
    from_outside = 0
    for line in may_stand(lines):
        others = [*kept, *(facts if line.record.kind == "episode" else ())]
        if any(
            _is_same(line.record, other.record, weighed.alike[line.at, other.at])
            for other in others
            if other is not line
        ):
            line.why_not = "says the same as a line that is shown"
        elif line.record.trust == "outside" and from_outside >= max(1, limit // _OUTSIDE_SHARE):
            line.why_not = "enough from outside is shown"
        else:
            from_outside += line.record.trust == "outside"
            kept.append(line)


def with_later(
    lines: Sequence[ChosenLine], weighed: Weighed, *, there: Collection[str] = ()
) -> list[ChosenLine]:
    """Put what took the place of a memory, or may have, before it, so that an old value never stands alone; a turn
    whose fact was superseded is left out where the later one can't be shown beside it. `there` are the ids of what is
    before the model already. Returns what may be shown, surest first, each memory once, and behind it what is left out.
    """
    shown: dict[str, ChosenLine] = {}
    for line in may_stand(lines):
        later = weighed.later[line.at][:1]
        for one in later:
            shown.setdefault(one.memory.id, ChosenLine(line.at, one.memory))
        is_beside = any(one.is_certain and one.memory.id not in there for one in later)
        if weighed.outdated[line.at] and line.record.kind == "episode" and not is_beside:
            line.why_not = "was corrected"
        else:
            shown.setdefault(line.record.id, line)
    return [*shown.values(), *(line for line in lines if line.why_not)]


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


def _hit(line: ChosenLine, weighed: Weighed, sure: Any) -> Hit:
    features = weighed.features
    return Hit(
        memory=line.record,
        score=round(float(sure[line.at]), 6),
        signals={
            name: round(float(features[name][line.at]), 4) for name in LINE_FEATURES if name in features
        },
    )


def _why_no_room(hit: Hit, context: Context) -> str:
    if any(restates(hit.memory.content, shown.memory.content) for shown in context.memories):
        return "restates a memory that is shown"
    return "no room left"
