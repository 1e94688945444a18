"""Weighing: what a search finds for a message, and everything that is measured of it before it is judged.

The first half of surfacing; `surface` is the second. Reads only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from satchel.memory.find.associations import associations_of
from satchel.memory.find.candidates.evidence import ComparedMessage
from satchel.memory.find.question import is_widespread, possible_names, read_question
from satchel.memory.show.choosing import asked_about, line_features, need_of, shipped_weights, sureness
from satchel.memory.store import graph
from satchel.memory.store.graph import Successor
from satchel.memory.store.repository import faded_rids, read_records, sessions_with_facts
from satchel.memory.text.block import gist
from satchel.memory.text.framing import is_mere_question
from satchel.memory.text.newest import newest_of_each
from satchel.memory.text.passages import passages

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.find.candidates.arrays import Matrix
    from satchel.memory.find.candidates.evidence import Evidence
    from satchel.memory.find.question import ParsedQuestion
    from satchel.memory.find.relevance import RelevanceGate
    from satchel.memory.records import MemoryRecord
    from satchel.memory.store.filters import VisibleOf
    from satchel.memory.store.space import Space

_EACH = 16
"""Candidates of each arm. Of what is needed, .94 is among the first twenty of a search (life-dev, profile counted)."""
_DECIDES = 0.9
"""How sure a memory must be without the names that are everywhere, so that it is what was asked for."""

_MESSAGE_CHARS = 4_000
"""Of a message: its beginning and its end. What is asked of a pasted log stands before or after it."""
_BEFORE_CHARS = 300
_BEFORE_MESSAGE_CHARS = 1_000
_LONG_WORDS = 40
_PARTS = 4
"""A message of more than forty words is compared by its parts too: at most so many, from both ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """The memories that may be worth showing before a message.

    Attributes:
        text: The message, cut to its ends if it is long; `need` is `choosing.need_of` it.
        question: The message as it was read.
        records: The memories that say something new, n of them.
        features: Of each, arrays of shape (n,) by name, see `choosing.LINE_FEATURES`.
        alike: Shape (n, n): the cosines between them.
        passages: Shape (n,): which passage of each fits best; -1 where that isn't known.
        later: Of each, what was said later and takes its place, or may, and can be shown: the certain first.
        outdated: Of each, whether something took its place for certain, be that shown or not.
        told: Of each, whether facts were drawn from its session. Then they say what holds, and which ended.
        kinds: By the place of the newest statement of an attribute with one value at a time: the places of the older.
        vectors: The message's, shape (q, d); None where no embedder serves. A cosine from `likely` on says something.
        left_out: Memories that say nothing new, with the reason.
    """

    text: str
    need: float
    question: ParsedQuestion
    records: Sequence[MemoryRecord]
    features: Mapping[str, Any]
    alike: Any
    passages: Any
    later: Sequence[tuple[Successor, ...]]
    outdated: Sequence[bool]
    told: Sequence[bool]
    kinds: Mapping[int, tuple[int, ...]]
    vectors: Any = None
    likely: float | None = None
    left_out: tuple[tuple[MemoryRecord, str], ...] = ()

    @property
    def older(self) -> frozenset[int]:
        """The places of those that gave an attribute an older value."""
        return frozenset(at for older in self.kinds.values() for at in older)


async def weigh(space: Space, texts: Sequence[str], visible: VisibleOf) -> Weighed | None:
    """Measure what may be worth showing before the last of `texts`; None where there are no memories."""
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
        found = await _weigh(space, text, texts, visible, without=everywhere)
        if found is not None and _most_sure(found) >= _DECIDES:
            return found
    return await _weigh(space, text, texts, visible)


def why_not_new(memory: MemoryRecord, known: Collection[tuple[str, str]]) -> str:
    """Why a memory says nothing new in this conversation, or ""; `known` are the gists of what was said in it."""
    if gist(memory.content) in known:
        return "repeats what was just said"
    return "is only a question" if is_mere_question(memory) else ""


async def _weigh(
    space: Space,
    text: str,
    texts: Sequence[str],
    visible: VisibleOf,
    *,
    without: Collection[int] = (),
) -> Weighed | None:
    """The same, by the message without some names."""
    dense = space.dense
    speakers = space.candidates.contents.speakers.items()
    question = read_question(text, speakers, widespread=without)
    rest = tuple(stem for stem in question.stems if stem not in without)
    question = replace(question, stems=rest or question.stems)
    vectors = gate = None
    if dense is not None:
        before = [one[-_BEFORE_CHARS:] for one in texts[:-1]]
        joined = "\n".join([*before, text[:_BEFORE_MESSAGE_CHARS]]) if before else text
        vectors = await _vectors(
            space, question.text, read_question(joined, speakers, widespread=without).text
        )
        gate = None if vectors is None else await dense.gate_for(vectors[0])
    known = {gist(one) for one in texts}

    def measure(connection: Connection, evidence: Evidence | None) -> Weighed | None:
        if evidence is None:
            return None
        rids = evidence.rids.tolist()
        faded = faded_rids(connection, space.id, rids, at=space.now_micros(), by_request=space.by_request)
        later = graph.read_later(connection, rids)
        outdated = {rid for rid, some in later.items() if any(some.values())}
        if later:
            later = graph.read_later(connection, list(later), shows=visible(connection).shows)
        wanted = {*rids, *(rid for some in later.values() for rid in some)}
        by_rid = read_records(connection, space.id, sorted(wanted))
        there = [at for at, rid in enumerate(rids) if rid in by_rid and rid not in faded]
        why = {at: why_not_new(by_rid[rids[at]], known) for at in there}
        kept = np.array([at for at in there if not why[at]], dtype=np.int64)
        records = [by_rid[rids[at]] for at in kept.tolist()]
        sessions = sessions_with_facts(connection, space.id, records)
        told = [record.source.session in sessions for record in records]
        need = need_of(text, shipped_weights(with_vectors=gate is not None).need)
        message = None if vectors is None else vectors[0]
        said = evidence.some(kept)
        features = line_features(said, records, gate=gate, message=message, need=need)
        return Weighed(
            text=text,
            need=need,
            question=question,
            records=records,
            features=features | {"told": np.array(told, dtype=bool)},
            alike=said.alike,
            passages=said.passages,
            later=[graph.successors(later.get(rids[at], {}), by_rid) for at in kept.tolist()],
            outdated=[rids[at] in outdated for at in kept.tolist()],
            told=told,
            kinds=newest_of_each(records),
            vectors=vectors,
            likely=None if gate is None else gate.mean + gate.deviation,
            left_out=tuple((by_rid[rids[at]], reason) for at, reason in why.items() if reason),
        )

    asked = _asked(space, question, vectors, gate)
    return await space.candidates.evidence(asked, visible=visible, each=_EACH, then=measure)


async def _vectors(space: Space, message: str, joined: str) -> Matrix | None:
    """The message alone, the message after what was said before it, and its parts: shape (q, d)."""
    dense = space.dense
    assert dense is not None
    found = await dense.asked([message, *([] if joined == message else [joined]), *_parts_of(message)])
    await space.candidates.note_asked()
    if found is None or not space.candidates.contents.embedded:
        return None
    return np.vstack([found[:1], found]) if joined == message else found


def _asked(
    space: Space, question: ParsedQuestion, vectors: Matrix | None, gate: RelevanceGate | None
) -> ComparedMessage:
    dense = space.dense
    if vectors is None or gate is None or dense is None:
        return ComparedMessage(stems=question.stems)
    if (table := associations_of(dense.embedder.info.id)) is None:
        return ComparedMessage(stems=question.stems, vectors=vectors)
    return ComparedMessage(
        stems=question.stems,
        vectors=vectors,
        calls=table.calls(vectors[:2, : dense.dimension], likely=gate.mean + gate.deviation),
        likely=gate.mean + 2 * gate.deviation,
    )


def _most_sure(weighed: Weighed) -> float:
    weights = shipped_weights(with_vectors="message" in weighed.features)
    sure = sureness(weights, weighed.features, text=weighed.text, need=weighed.need)
    return float(sure.max()) if len(sure) else 0.0


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
