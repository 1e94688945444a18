"""The cues of memories: situations in which one matters ("choosing a restaurant"), so that a request which doesn't
mention what it needs finds it. They are embedded apart from the words and shown nowhere.

Every function with a connection runs inside a transaction of `storage.Database`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, delete, insert, or_, select

from satchel.errors import UsageError
from satchel.memory.store.checking import printable
from satchel.memory.store.redaction import strip_private
from satchel.memory.store.repository import listed, mark_changed
from satchel.memory.store.tables import cue_vectors, cues, memories
from satchel.storage import Prepared

MOST_CUES: Final = 6
"""Of one memory: an extractor names three to six (issue 11). With more, one memory would fit too much."""
MOST_CUE_CHARS: Final = 120
"""Of one cue: twice the longest of `life-dev`. A situation takes a few words."""

_MOST_LOOKED_FOR: Final = 20
"""Up to so many texts are looked for by the database first, each by its longest word."""


def clean_cues(found: Iterable[str]) -> tuple[str, ...]:
    """Check the cues that a program gives: without private parts, empty ones and repetitions, in order.

    Raises:
        UsageError: There are too many, or one is too long.
    """
    some = _plain([found] if isinstance(found, str) else found)
    if len(some) > MOST_CUES:
        raise UsageError(f"A memory has at most {MOST_CUES} cues, and this one has {len(some)}.")
    if any(len(cue) > MOST_CUE_CHARS for cue in some):
        raise UsageError(
            f"A cue has at most {MOST_CUE_CHARS} characters: name a situation in a few words, such as "
            '"choosing a restaurant".'
        )
    return some


def fitting_cues(found: object) -> tuple[str, ...]:
    """The cues in what a model or a file gives: the first few that are short texts, whatever else is there."""
    some = _plain(cue for cue in found if isinstance(cue, str)) if isinstance(found, list | tuple) else ()
    return tuple(cue for cue in some if len(cue) <= MOST_CUE_CHARS)[:MOST_CUES]


def _plain(found: Iterable[str]) -> tuple[str, ...]:
    texts = (" ".join(strip_private(printable(cue)).split()) for cue in found)
    return tuple(dict.fromkeys(cue for cue in texts if any(char.isalnum() for char in cue)))


_CUES_OF = Prepared(
    select(cues.c.rid, cues.c.cue)
    .where(cues.c.rid.in_(listed(bindparam("rids"))))
    .order_by(cues.c.rid, cues.c.place)
)


def cues_of(connection: Connection, rids: Sequence[int]) -> dict[int, list[str]]:
    """The cues of memories in their order, by rid; a memory without cues is left out."""
    found: dict[int, list[str]] = {}
    for rid, cue in _CUES_OF.run(connection, {"rids": json.dumps(list(rids))}):
        found.setdefault(rid, []).append(cue)
    return found


# ---- Changing


def replace_cues(connection: Connection, rid: int, found: Sequence[str], *, changed: int) -> None:
    """Give a memory other cues, whose vectors are made anew; `changed` is the number of this change."""
    connection.execute(delete(cues).where(cues.c.rid == rid))
    connection.execute(delete(cue_vectors).where(cue_vectors.c.rid == rid))
    if found:
        connection.execute(
            insert(cues), [{"rid": rid, "place": place, "cue": cue} for place, cue in enumerate(found)]
        )
    mark_changed(connection, [rid], changed)


def drop_cues_with(
    connection: Connection,
    space: int,
    needles: Collection[str],
    is_in: Callable[[str], bool],
    *,
    changed: int,
) -> None:
    """Remove the cues that contain forgotten words, whichever memories they belong to."""
    short = [needle for needle in needles if len(needle) <= MOST_CUE_CHARS]
    if not short:
        return
    query = select(cues.c.rid, cues.c.cue).join(memories, memories.c.rid == cues.c.rid)
    query = query.where(memories.c.space_id == space)
    if len(short) <= _MOST_LOOKED_FOR:
        telling = {max(needle.split(), key=len) for needle in short}
        query = query.where(or_(*(cues.c.cue.contains(word, autoescape=True) for word in telling)))
    found = sorted({rid for rid, cue in connection.execute(query) if is_in(cue)})
    for rid, some in cues_of(connection, found).items():
        replace_cues(connection, rid, [cue for cue in some if not is_in(cue)], changed=changed)
