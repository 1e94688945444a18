"""Names and ids of calls, in the form that each provider accepts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Set

from satchel.models.port import ModelRequest

_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def wire_id(call_id: str, *, max_length: int) -> str:
    """The id in a form that providers accept: letters, digits, `_` and `-`, at most `max_length` characters.

    A valid id is unchanged. Other ids map deterministically to distinct valid ones.
    """
    if call_id and len(call_id) <= max_length and not _NOT_IN_ID.search(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest}"[:max_length]


def wire_name(tool: str) -> str:
    """The tool's name in a form that providers accept, [a-zA-Z0-9_-]{1,64}; a model may have invented the tool."""
    return _NOT_IN_ID.sub("_", tool)[:64] or "unnamed"


class CallIds:
    """Gives each call in an answer an id that is unique in the conversation.

    Some endpoints send no id, or the same one in every answer ("call_0"). Generated ids depend only on the
    conversation, so the same answer to the same history gets the same id.
    """

    def __init__(self, taken: Callable[[], Set[str]], *, seed: Callable[[], str] | None = None) -> None:
        """Store callables that read the history. Each is called only when it is needed.

        Args:
            taken: Returns the ids in the history.
            seed: Returns a text that is part of every generated id, so that ids differ from those of earlier
                histories; None only counts.
        """
        self._look_up = taken
        self._seed = seed
        self._taken: set[str] | None = None

    @classmethod
    def of(cls, request: ModelRequest) -> CallIds:
        """The ids for an answer to this request.

        A compacted history begins with another message than the history before it. Therefore ids that are generated
        after compaction differ from earlier ones, although the session log contains both.
        """

        def taken() -> set[str]:
            return {call.id for message in request.messages for call in message.tool_uses}

        def seed() -> str:
            first = request.messages[0].text if request.messages else ""
            return f"{request.session_id}\n{len(request.messages)}\n{first}"

        return cls(taken, seed=seed)

    def claim(self, proposed: str) -> str:
        """The id for a call that has the id `proposed` (perhaps "") in the endpoint's answer."""
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
