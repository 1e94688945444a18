"""What of a hit is shown: of a long text the passage that the question is about, with its place, and for a short reply
the question that it answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import select, tuple_

from satchel.memory.records import MemoryRecord, Passage
from satchel.memory.store.tables import memories
from satchel.memory.text import lexicon
from satchel.memory.text.passages import passages
from satchel.tools.documents.tables import head_of_part

if TYPE_CHECKING:
    from sqlalchemy import Connection

_REPLY_WORDS = 12
"""A longer reply mostly says what it is about. Not measured: a question costs one line, and harms nothing."""

_MOST_READ_CHARS = 200_000
"""Of one text."""

_PASSAGE_WORDS = 60


def best_passage(content: str, stems: Sequence[int]) -> Passage | None:
    """The passage of a long text that has most of a question's stems, rare ones counting more; the first of several.
    None if the text is one passage.
    """
    parts = passages(content[:_MOST_READ_CHARS], words=_PASSAGE_WORDS, counts_bars=True)
    if len(parts) < 2:
        return None
    weights = {stem: -math.log(lexicon.commonness(stem)) for stem in stems}

    def worth(part: str) -> float:
        return sum(weights.get(stem, 0.0) for stem in set(lexicon.stems_of(part)))

    number = max(range(len(parts)), key=lambda at: worth(parts[at]))
    text = f"{head_of_part(parts[number], content)}\n{parts[number]}".lstrip("\n")
    return Passage(text=text, number=number + 1, of=len(parts))


def is_short_reply(memory: MemoryRecord) -> bool:
    """Whether a memory is a turn of a conversation that is so short that it may need what was said before it."""
    return (
        memory.kind == "episode"
        and memory.source.session is not None
        and memory.source.turn is not None
        and len(memory.content.split(maxsplit=_REPLY_WORDS)) <= _REPLY_WORDS
    )


def questions_before(
    connection: Connection, space: int, replies: Sequence[MemoryRecord]
) -> Mapping[str, str]:
    """The question right before each reply in its session, by the reply's id. Nothing from outside is one."""
    asked: dict[str, str] = {}
    for memory in replies:
        source = memory.source
        before = connection.execute(
            select(memories.c.content, memories.c.trust)
            .where(
                memories.c.space_id == space,
                memories.c.kind == "episode",
                memories.c.source_session == source.session,
                tuple_(memories.c.source_turn, memories.c.source_position)
                < tuple_(source.turn, source.position or 0),
            )
            .order_by(memories.c.source_turn.desc(), memories.c.source_position.desc())
            .limit(1)
        ).first()
        if before is None or before.trust == "outside":
            continue
        text = before.content[-_MOST_READ_CHARS:]
        if spans := lexicon.question_spans(text):
            start, end = spans[-1]
            asked[memory.id] = text[start:end].strip()
    return asked
