"""What a line that the user types says to calls that wait for permission, on the screen and line by line."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from satchel.events import Consent
from satchel.tools import Approval
from satchel.wording import yes_or_no

_WORDS: Final[Mapping[str, Consent]] = {
    "y": "once", "yes": "once", "once": "once", "n": "no", "no": "no", "s": "session", "session": "session",
    "a": "always", "always": "always",
}  # fmt: skip


def numbers_in(text: str) -> Collection[int] | None:
    """The numbers, if the text is nothing else."""
    words = text.replace(",", " ").split()
    return {int(word) for word in words} if all(re.fullmatch(r"[0-9]{1,9}", word) for word in words) else None


def read_answer(text: str, count: int, left_out: Collection[int] = ()) -> list[Approval] | None:
    """Parse the user's answer to `count` requests; None if it can't be understood.

    "y", "s", "a" and "n", or another plain yes or no, answer all requests but those `left_out`, which get no. Followed
    by numbers, the letters answer those, and the others get no. Numbers alone mean yes. Any other words mean no and are
    passed on to the model.
    """
    agreed = yes_or_no(text)
    first, *rest = text.strip().lower().replace(",", " ").split() or ["n"]
    if agreed is not None:
        kind: Consent = "once" if agreed else "no"
        rest = []
    elif first in _WORDS:
        kind = _WORDS[first]
    else:
        kind, rest = "once", [first, *rest]
    named = numbers_in(" ".join(rest))
    if named is None:
        return [Approval(answer="no", words=text.strip())] * count
    if any(not 1 <= number <= count for number in named):
        return None
    others: Consent = "once" if kind == "no" and named else "no"
    chosen = named or {*range(1, count + 1)} - {*left_out}
    return [
        Approval(answer=kind if number in chosen else "no" if number in left_out else others)
        for number in range(1, count + 1)
    ]
