"""Which spheres of a life a message opens, and which memories stay out because they belong to another one.

The spheres of a memory are those that an extractor or the user gave it; those of a message may be given by the caller.
What was not said is judged by likeness to the statements in `data/associations.json`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from satchel.memory.spheres import PERSON

if TYPE_CHECKING:
    from satchel.memory.find.associations import Centres
    from satchel.memory.find.candidates.arrays import Floats
    from satchel.memory.records import MemoryRecord

__all__ = ["Likeness", "closed_spheres"]

_SOFT: Final = 0.12
"""Of cosines with topics: how much nearer one sphere must be to be e times as likely as another."""
_OPEN_FROM: Final = 0.1
"""A sphere is open from this share of the likeliest one's likelihood on. Both were chosen on five development lives: if
every memory had the sphere that it is most like, needed falls by .007 there, and by .003 on five others."""


class Likeness:
    """Which spheres texts are like, by the topics of a table."""

    def __init__(self, centres: Centres, message: Floats) -> None:
        """Compare a message.

        The message has shape (d,), unit length. In the table, at least one sphere is named.
        """
        self._names = tuple(dict.fromkeys(filter(None, centres.spheres)))
        self._topics = centres.topics
        self._of = [np.array([one == name for one in centres.spheres]) for name in self._names]
        near = self._nearest(message)
        self.opened = frozenset(
            name
            for name, open_ in zip(self._names, np.exp((near - near.max()) / _SOFT), strict=True)
            if open_ >= _OPEN_FROM
        )

    def _nearest(self, vector: Floats) -> Floats:
        cosines = self._topics @ vector
        return np.array([cosines[own].max() for own in self._of], dtype=np.float32)

    def sphere_of(self, memory: Floats) -> str:
        """The sphere that a memory is most like, by its vector."""
        return self._names[int(self._nearest(memory).argmax())]


def closed_spheres(
    record: MemoryRecord,
    *,
    text: str,
    opened: Collection[str] | None,
    likeness: Likeness | None,
    vectors: Mapping[str, Floats],
) -> str:
    """The spheres for which a memory stays out, in words; "" if it may be shown.

    A memory may be shown if the message opens all the parts of a life that it belongs to. One that belongs to nothing
    but persons may be shown if one of them is named. Where nobody said the spheres of either, it may be shown.

    `opened` are the spheres that the message opens, where somebody said so; `likeness` compares what nobody said, with
    the `vectors` of memories that have no spheres, by id.
    """
    spheres: Sequence[str] = record.spheres
    if opened is None:
        if not spheres or likeness is None:
            return ""
        opened = likeness.opened
    elif not spheres:
        if likeness is None or record.id not in vectors:
            return ""
        spheres = [likeness.sphere_of(vectors[record.id])]
    parts = [one for one in spheres if not one.startswith(PERSON)]
    closed = [one for one in parts if one not in opened]
    if not parts and not any(_is_named(one, text, opened) for one in spheres):
        closed = [one.removeprefix(PERSON) for one in spheres]
    return " and ".join(closed)


def _is_named(person: str, text: str, opened: Collection[str]) -> bool:
    name = person.removeprefix(PERSON).replace("-", " ")
    return person in opened or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text.casefold()) is not None
