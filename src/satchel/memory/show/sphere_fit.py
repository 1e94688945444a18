"""Which spheres of a life a message opens, and which memories stay out because they belong to another one.

The spheres of a memory are those that an extractor or the user gave it. Those of a message may be given by the caller,
or are judged by likeness to the statements in the table of associations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from satchel.memory.spheres import PERSON

if TYPE_CHECKING:
    from satchel.memory.find.associations import Associations
    from satchel.memory.find.candidates.arrays import Floats
    from satchel.memory.records import MemoryRecord

_SOFT: Final = 0.12
"""Of cosines with topics: how much nearer one sphere must be to be e times as likely as another."""
_OPEN_FROM: Final = 0.1
"""A sphere is open from this share of the likeliest one's likelihood on. Both were chosen on five development lives: if
every memory had the sphere that it is most like, needed falls by .007 there, and by .003 on five others."""


def opened_by(table: Associations, message: Floats) -> frozenset[str]:
    """The spheres that a message, a unit vector of shape (d,), opens, by the topics of a table."""
    cosines = table.topics @ message
    near: dict[str, float] = {}
    for name, cosine in zip(table.spheres, cosines.tolist(), strict=True):
        if name:
            near[name] = max(cosine, near.get(name, -1.0))
    least = max(near.values()) + _SOFT * math.log(_OPEN_FROM)
    return frozenset(name for name, cosine in near.items() if cosine >= least)


def closed_spheres(record: MemoryRecord, *, text: str, opened: Collection[str] | None) -> str:
    """The spheres for which a memory stays out of what is shown for a message, in words; "" if it may be shown.

    A memory may be shown if the message opens all the parts of a life that it belongs to, or if it belongs to none. One
    that belongs to nothing but persons may be shown if one of them is named. Where nothing tells what the message opens
    (None), all may be shown.
    """
    if opened is None:
        return ""
    parts = [one for one in record.spheres if not one.startswith(PERSON)]
    closed = [one for one in parts if one not in opened]
    if record.spheres and not parts and not any(_is_named(one, text, opened) for one in record.spheres):
        closed = [one.removeprefix(PERSON) for one in record.spheres]
    return " and ".join(closed)


def _is_named(person: str, text: str, opened: Collection[str]) -> bool:
    name = person.removeprefix(PERSON).replace("-", " ")
    return person in opened or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text.casefold()) is not None
