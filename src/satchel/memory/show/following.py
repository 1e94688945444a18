"""What the answer mentions, asked next: "the employer of Mara's husband" needs who he is, and then what he does.

Only a statement that gives somebody or something named in the question a value leads on (`newest.attribute_of`), and
only to the two memories that are said of the value, nearest to the question, and nearer than unrelated texts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from satchel.memory.find.candidates.evidence import ComparedMessage
from satchel.memory.records import Hit
from satchel.memory.store.filters import Visible
from satchel.memory.store.repository import read_records
from satchel.memory.text import lexicon
from satchel.memory.text.framing import is_mere_question
from satchel.memory.text.newest import attribute_of, newest_of_each

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from satchel.memory.find.candidates.arrays import Matrix
    from satchel.memory.find.candidates.evidence import Evidence
    from satchel.memory.find.question import ParsedQuestion
    from satchel.memory.records import MemoryRecord
    from satchel.memory.store.filters import VisibleOf
    from satchel.memory.store.space import Space

_MOST_STEPS: Final = 3
_EACH: Final = 2
"""Memories that each name leads to."""
_MOST_HAVING: Final = 300
"""Memories with a name; what is said of one with more is hardly found among them."""
_NEAREST: Final = 64
"""Of those, so many are read."""
_MOST_NAME_WORDS: Final = 6


async def follow(
    space: Space,
    question: ParsedQuestion,
    vectors: Matrix,
    found: Sequence[MemoryRecord],
    *,
    visible: VisibleOf,
    likely: float,
) -> dict[str, list[Hit]]:
    """Find what the values of some statements lead to, by the ids of these, nearest first. `vectors`, (q, d), are the
    question's; `found` is shown already, the surest first; a cosine from `likely` on says something.
    """

    async def said_of(name: Sequence[int], having: Collection[int]) -> list[Hit]:
        """The memories that are said of a name and nearest to the question."""

        def only(connection: Connection) -> Visible:
            seen = visible(connection)
            return Visible(allowed=frozenset(rid for rid in having if seen.shows(rid)))

        def read(connection: Connection, evidence: Evidence | None) -> list[tuple[float, MemoryRecord]]:
            if evidence is None or not len(evidence.cosines):
                return []
            nearest = dict(zip(evidence.rids.tolist(), evidence.cosines[0].tolist(), strict=True))
            return [
                (nearest[rid], record)
                for rid, record in read_records(connection, space.id, list(nearest)).items()
                if _is_said_of(record, name) and not is_mere_question(record)
            ]

        compared = ComparedMessage(stems=question.stems, vectors=vectors)
        said = await space.candidates.evidence(compared, visible=only, each=_NEAREST, then=read)
        kinds = newest_of_each([record for _, record in said])
        older = {at for places in kinds.values() for at in places}
        near = sorted(
            (at for at, (cosine, _) in enumerate(said) if at not in older and cosine >= likely),
            key=lambda at: -said[at][0],
        )
        reached = [at for at in near if said[at][1].id not in there][:_EACH]
        there.update(said[at][1].id for at in reached)
        return [
            Hit(
                memory=said[at][1],
                score=0.0,
                signals={"message": said[at][0]},
                before=tuple(said[one][1] for one in kinds.get(at, ())),
            )
            for at in reached
        ]

    followed: dict[str, list[Hit]] = {}
    there = {record.id for record in found}
    asked = set(question.stems)
    names = set(question.names)
    step: Sequence[MemoryRecord] = found
    for number in range(_MOST_STEPS):
        reached: list[Hit] = []
        for record in step:
            name = _leads_to(record, asked, names if number == 0 else None)
            having = await space.candidates.having(name) if name else frozenset()
            if 0 < len(having) <= _MOST_HAVING:
                followed[record.id] = await said_of(name, having)
                reached += followed[record.id]
            asked |= set(name)
        step = [hit.memory for hit in sorted(reached, key=lambda hit: -(hit.signals["message"] or 0.0))]
    return followed


def _leads_to(record: MemoryRecord, asked: Collection[int], names: Collection[int] | None) -> list[int]:
    """The stems of a statement's value, if it is a name that wasn't asked for, and it is said of one of `names`."""
    stated = attribute_of(record.content)
    if stated is None:
        return []
    name = lexicon.stems_of(stated.value)
    of = lexicon.stems_of(" ".join(stated.of))
    if not 0 < len(name) <= _MOST_NAME_WORDS or set(name) <= set(asked) or stated.value[:1].isdecimal():
        return []
    return name if names is None or set(of) & set(names) else []


def _is_said_of(record: MemoryRecord, name: Sequence[int]) -> bool:
    """Whether a memory has the words of a name one after the other, and not as the value that it states."""
    stated = attribute_of(record.content)
    words = lexicon.stems_of(record.content if stated is None else " ".join(stated.of))
    return any(words[at : at + len(name)] == list(name) for at in range(len(words) - len(name) + 1))
