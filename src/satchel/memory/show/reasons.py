"""Why a memory is shown, in a few words for its user."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from satchel.memory.records import OWN_SPEAKERS, PICTURE, Hit, MemoryRecord
from satchel.memory.text.lexicon import commonness, hash_stem, words_of

_SIGNALS: Final = {
    "message": "close in meaning to what you said",
    "part": "close in meaning to a part of what you said",
    "context": "close in meaning to what was said before",
    "cue": "meant for a situation like this",
}
"""All on the scale of the embedder: how many deviations above chance."""
_READ: Final = ("a document", "a picture")
"""What says nothing itself."""
_FEWEST_CALLED: Final = 1.0
"""Of the association's cosine times ten, see `choosing.LINE_FEATURES`: below it, everything is a little called for."""
_READ_CHARS: Final = 4000
_COMMON: Final = 0.05
"""A word that stands in so many English texts explains nothing: half as many as contain "house"."""


def why_shown(hit: Hit) -> str:
    """What the strongest signal of a memory says that was chosen for a message; "" where only words were compared."""
    signals = {name: value for name in _SIGNALS if (value := hit.signals.get(name)) is not None}
    strongest = max(signals, key=lambda name: signals[name], default="")
    called = hit.signals.get("called") or 0.0
    if called >= _FEWEST_CALLED and (not strongest or signals[strongest] < 2):
        return "needed in a situation like this"
    return _SIGNALS.get(strongest, "")


def who_said(memory: MemoryRecord) -> str:
    """Whose words a memory has: "you", a name, "a model", "a document", "a picture", or "somebody else". Of what is
    shared, a name and the space.
    """
    if memory.shared_in:
        return f"{memory.speaker} in {memory.shared_in}"
    if memory.source.document:
        return "a document"
    if PICTURE in memory.tags:
        return "a picture"
    if memory.speaker.lower() not in OWN_SPEAKERS and memory.trust != "agent":
        return memory.speaker[:60]
    return {"agent": "a model", "outside": "somebody else"}.get(memory.trust, "you")


def said_words(who: str, at: datetime, now: datetime) -> str:
    """Who said it and when: "you said so on 3 May", "from a document of 3 May"; the year where it is another one."""
    day = f"{at.day} {at:%B}" if at.year == now.year else f"{at.day} {at:%B %Y}"
    return f"from {who} of {day}" if who in _READ else f"{who} said so on {day}"


def shared_word(said: str, content: str) -> str:
    """A word of a message that a memory contains too, as the message writes it; "" if there is none.

    Names go before other words, and rare words before common ones.
    """
    there = {hash_stem(word) for word in words_of(content[:_READ_CHARS])} - {0}
    found: dict[str, tuple[bool, float]] = {}
    for match in re.finditer(r"[^\W_]+(?:['’-][^\W_]+)*", said[:_READ_CHARS]):
        written = match[0]
        is_name = written[0].isupper() and re.search(r"[\w,;] $", said[: match.start()][-2:]) is not None
        for number in (hash_stem(word) for word in words_of(written)):
            if number in there and len(written) > 2 and commonness(number) <= _COMMON:
                found.setdefault(written, (not is_name, commonness(number)))
    return min(found, key=lambda each: (found[each], each), default="")
