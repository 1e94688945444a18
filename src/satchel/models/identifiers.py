"""Names and ids of calls, within what each provider admits."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Set

__all__ = ["CallIds", "wire_id", "wire_name"]

_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def wire_id(call_id: str, *, max_length: int) -> str:
    """The id as a provider admits it: letters, digits, `_` and `-`, at most `max_length` characters.

    An id that fits stays as it is; another one always gives the same, and two different ones differ.
    """
    if call_id and len(call_id) <= max_length and not _NOT_IN_ID.search(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest}"[:max_length]


def wire_name(tool: str) -> str:
    """The tool's name as providers admit it, [a-zA-Z0-9_-]{1,64}: a model may call one that never was."""
    return _NOT_IN_ID.sub("_", tool)[:64] or "unnamed"


class CallIds:
    """Gives each call of an answer an id that is unique in the conversation.

    Some endpoints send none, or the same for every answer ("call_0"). What is made instead depends on the
    conversation alone, so that the same answer to the same history gets the same id.
    """

    def __init__(self, taken: Callable[[], Set[str]]) -> None:
        """Keep the door to the ids of the history; it is opened at the first call only."""
        self._look_up = taken
        self._taken: set[str] | None = None

    def claim(self, proposed: str) -> str:
        """The id to use for a call that the endpoint named `proposed` (perhaps "")."""
        if self._taken is None:
            self._taken = set(self._look_up())
        chosen, number = proposed, len(self._taken)
        while not chosen or chosen in self._taken:
            number += 1
            chosen = f"call_{number}"
        self._taken.add(chosen)
        return chosen
