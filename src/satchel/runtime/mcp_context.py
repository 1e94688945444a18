"""Adds the MCP resources and prompts that a message mentions to that message, marked as coming from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from satchel.clock import Clock
from satchel.errors import SatchelError
from satchel.events import TurnStart
from satchel.loop import AddContext, CallEnvironment
from satchel.tools import ToolContext
from satchel.tools.mcp import McpToolset

LIMIT_S = 10.0
"""The time limit for one message; the loop gives a hook as long (`TurnLimits.hook_timeout_s`)."""


@dataclass(frozen=True, slots=True, eq=False)
class McpContext:
    """A hook (`satchel.loop.OnTurnStart`) that looks at the user's words.

    It reads each resource that they mention as `@SERVER:ADDRESS`, and gets the prompt if they begin with
    `/mcp__SERVER__PROMPT`.

    Attributes:
        environment: Of the session; says where long resources are stored.
        notify: Called with a sentence for each resource or prompt that is unavailable.
    """

    mcp: McpToolset
    _: KW_ONLY
    environment: CallEnvironment
    clock: Clock
    notify: Callable[[str], None]

    async def on_turn_start(self, start: TurnStart) -> AddContext | None:
        """Read what the message mentions."""
        text, context = start.message.text, self._context(start.turn)
        found = [await self._prompt(text, context)]
        mentions = await self.mcp.server_resources.mentions(text, context)
        for notice in mentions.notices:
            self.notify(notice)
        found += [attachment.text for attachment in mentions.attachments]
        added = "\n\n".join(part for part in found if part)
        return AddContext(text=added, untrusted=True) if added else None

    async def _prompt(self, text: str, context: ToolContext) -> str:
        command, _, words = text.strip().partition(" ")
        if not command.startswith("/mcp__"):
            return ""
        try:
            return (await self.mcp.server_prompts.run(command, words, context)).text
        except SatchelError as error:
            self.notify(str(error))
            return ""

    def _context(self, turn: int) -> ToolContext:
        return self.environment.context(
            turn=turn, call_id=f"mention_{turn}", progress=_unseen, clock=self.clock, timeout_s=LIMIT_S
        )


async def _unseen(_: Mapping[str, Any]) -> None:
    pass  # No call is shown yet, so there is nothing that progress could belong to.
