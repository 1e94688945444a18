"""Attaches the MCP resources that a message mentions, as context from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from satchel.clock import Clock
from satchel.events import TurnStart
from satchel.loop import AddContext, CallEnvironment
from satchel.tools import ToolContext
from satchel.tools.mcp import McpToolset

__all__ = ["MentionedResources"]

LIMIT_S = 10.0
"""For all mentions of a message: what the loop grants a hook."""


class MentionedResources:
    """A hook (`satchel.loop.OnTurnStart`) for `@SERVER:ADDRESS` in the user's words."""

    def __init__(
        self,
        mcp: McpToolset,
        *,
        environment: CallEnvironment,
        clock: Clock,
        notify: Callable[[str], None],
    ) -> None:
        """Take the servers, and what a call in the session may use.

        Args:
            mcp: Reads the resources.
            environment: Says which session it is, and where long resources are stored.
            clock: The session's.
            notify: Told about each mention that could not be read.
        """
        self._mcp = mcp
        self._environment = environment
        self._clock = clock
        self._notify = notify

    async def on_turn_start(self, start: TurnStart) -> AddContext | None:
        """Add what the message mentions."""
        found = await self._mcp.resolve_mentions(start.message.text, self._context(start.turn))
        for notice in found.notices:
            self._notify(notice)
        text = "\n\n".join(attachment.text for attachment in found.attachments)
        return AddContext(text=text, untrusted=True) if text else None

    def _context(self, turn: int) -> ToolContext:
        environment = self._environment
        return ToolContext(
            session_id=environment.session_id,
            turn=turn,
            call_id=f"mention_{turn}",
            cwd=environment.cwd,
            roots=environment.roots,
            spill_dir=environment.spill_dir,
            state=environment.state,
            progress=_unseen,
            blocking=environment.pool.run,
            clock=self._clock,
            timeout_s=LIMIT_S,
            environ=environment.environ,
        )


async def _unseen(_: Mapping[str, Any]) -> None:
    pass  # nobody follows what is read before the model is asked
