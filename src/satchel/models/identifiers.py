"""Names and ids of calls, within what each provider admits."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Set

from satchel.models.port import ModelRequest

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

    def __init__(self, taken: Callable[[], Set[str]], *, seed: Callable[[], str] | None = None) -> None:
        """Take the doors to the history; they are opened when the first id is asked for, and made, only.

        Args:
            taken: The ids that are in the history.
            seed: A text that goes into every id that is made, so that it differs from those of histories before
                this one; None counts only.
        """
        self._look_up = taken
        self._seed = seed
        self._taken: set[str] | None = None

    @classmethod
    def of(cls, request: ModelRequest) -> CallIds:
        """The ids of an answer to this request.

        A compacted history begins with another message than the one before it, so that what is made after it differs
        from what was made before, though the session's log holds both.
        """

        def taken() -> set[str]:
            return {call.id for message in request.messages for call in message.tool_uses}

        def seed() -> str:
            first = request.messages[0].text if request.messages else ""
            return f"{request.session_id}\n{len(request.messages)}\n{first}"

        return cls(taken, seed=seed)

    def claim(self, proposed: str) -> str:
        """The id to use for a call that the endpoint named `proposed` (perhaps "")."""
        if self._taken is None:
            self._taken = set(self._look_up())
        chosen, number = proposed, len(self._taken)
        while not chosen or chosen in self._taken:
            number += 1
            chosen = self._made(number)
        self._taken.add(chosen)
        return chosen

    def _made(self, number: int) -> str:
        if self._seed is None:
            return f"call_{number}"
        text = f"{number}\n{self._seed()}"
        return f"call_{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
