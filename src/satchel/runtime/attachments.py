"""What a face attaches to the next message: context that the user sent along and did not say."""

from __future__ import annotations

from satchel.events import TurnStart
from satchel.loop import AddContext


class Attachments:
    """Adds what was sent along to the message that it came with. It is a hook of the session.

    It is not part of the user's words, so memory doesn't take it for something that the user said.
    """

    def __init__(self) -> None:
        self.waiting = ""

    async def on_turn_start(self, start: TurnStart) -> AddContext | None:
        """See `Hook`."""
        attached, self.waiting = self.waiting, ""
        return AddContext(text=attached, untrusted=True) if attached else None
