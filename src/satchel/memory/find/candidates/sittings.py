"""Which memories were said one after the other: what a search may take for their context.

Episodes say where they belong. Turns of a conversation that were stored as plain memories (`add`, with a speaker or as
"Ann: what she said") are recognised by who speaks and when.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from satchel.memory.find.candidates.arrays import Ints

PAUSE_MINUTES = 180
"""Between two turns; what comes after it is another sitting of the same session. Shorter ones are somebody thinking,
and those between two sittings of a day are rarely shorter."""

# "Ann: ", "Ann Lee: " or "[2023-05-08 13:56] Ann: ". A time (12:30) and an address (https:) are no names.
_LABEL = re.compile(r"\s*(?:\[[^\]\n]{1,40}\]\s*)?([^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){0,2}):\s")


class Sittings(NamedTuple):
    """Of each row the number of its sitting, and the rows before and after it there; -1 where there is none."""

    number: Ints
    before: Ints
    after: Ints


def label_of(opening: str) -> str | None:
    """Whose words a text says it is, where it begins as the lines of a transcript do."""
    found = _LABEL.match(opening)
    return found.group(1) if found else None


def seat(
    *, rids: Ints, streams: Ints, turns: Ints, positions: Ints, minutes: Ints, voices: Ints, alive: Ints
) -> Sittings:
    """Find the sittings.

    What is no episode counts only in a sitting where at least two speak, and one of them again: facts that happen to
    be stored together, each about somebody, have no context.

    Each row has a rid, in the order in which rows were stored; a stream, its conversation or -1; the exchange (`turns`)
    and the place in it; the minute; and a voice, who speaks in what is no episode, -1 for episodes.
    """
    count = len(rids)
    number = np.full(count, -1, dtype=np.int64)
    before = np.full(count, -1, dtype=np.int64)
    after = np.full(count, -1, dtype=np.int64)
    inside = np.flatnonzero((streams >= 0) & alive)
    if not len(inside):
        return Sittings(number, before, after)
    order = inside[np.lexsort([key[inside] for key in (rids, positions, turns, streams)])]
    stream, turn, voice = streams[order], turns[order], voices[order]
    paused = np.abs(np.diff(minutes[order])) > PAUSE_MINUTES
    # An answer belongs to its question, however long it took.
    paused &= (turn[1:] != turn[:-1]) | (voice[1:] >= 0)
    place = np.cumsum(np.r_[0, (stream[1:] != stream[:-1]) | paused])
    if (voice >= 0).any():
        # Each pair of a sitting and a voice as one number: ten times quicker than distinct pairs.
        voices_and_none = int(voice.max()) + 2
        heard = np.unique(place * voices_and_none + voice + 1) // voices_and_none
        different = np.bincount(heard, minlength=place[-1] + 1)
        talks = (different >= 2) & (np.bincount(place) > different)
        kept = (voice < 0) | talks[place]
        order, place = order[kept], place[kept]
    number[order] = place
    same = place[1:] == place[:-1]
    first, second = order[:-1][same], order[1:][same]
    before[second] = first
    after[first] = second
    return Sittings(number, before, after)
