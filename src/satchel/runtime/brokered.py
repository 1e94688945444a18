"""What capabilities call besides each other: tools of MCP servers, under the user's rules, and the user's model."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from satchel.capabilities.records import MCP
from satchel.capabilities.running import NotTried, counted_by
from satchel.errors import NotFound, UsageError
from satchel.memory.store.spending import Asked, complete
from satchel.messages import Message, TextBlock
from satchel.models import ModelRequest
from satchel.runtime.agent_calls import AgentCalls
from satchel.runtime.background_models import CALLED_BY_CODE
from satchel.runtime.distilling import Distilling
from satchel.runtime.home import Home
from satchel.runtime.hub import SessionHub
from satchel.runtime.parts import Parts

_ANSWER_TOKENS: Final = 4_000
_MOST_PROMPT: Final = 200_000
"""Characters: what fits into the context of ordinary models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokered:
    """See `satchel.capabilities.running.Outside`."""

    parts: Parts
    home: Home
    calls: AgentCalls
    distilling: Distilling
    hubs: Mapping[str, SessionHub]

    async def __call__(
        self, name: str, input: Mapping[str, Any], *, by: str, session_id: str, is_trial: bool
    ) -> tuple[str, bool]:
        """See `OutsideCalls`."""
        if name.startswith(MCP):
            return await self._tool(name, input, by=by, is_trial=is_trial)
        return await self._ask_model(input, self.hubs.get(session_id)), True

    async def _tool(
        self, name: str, input: Mapping[str, Any], *, by: str, is_trial: bool
    ) -> tuple[str, bool]:
        tool = self.parts.mcp.find(name.removeprefix(MCP))
        if tool is None or tool.spec.name in self.parts.settings.tools.disabled:
            raise NotFound(
                f"There is no tool {name} that may be used: no such server runs here, or it has none."
            )
        if is_trial and not tool.spec.annotations.read_only:
            raise NotTried(
                f"{name} may change something, so it is called when {by} is used, and not to try it."
            )

        async def unseen(_: Mapping[str, Any]) -> None:
            return

        # The user has approved this tool for this capability. Nobody can be asked in the middle of a run.
        done = await self.calls.run(
            tool,
            input,
            permission=tool.spec,
            agent=f"capability {by}",
            call_id=f"call_{uuid.uuid4().hex[:12]}",
            approver=None,
            progress=unseen,
            allow=(tool.spec.name,),
        )
        return done.text, not done.is_error

    async def _ask_model(self, input: Mapping[str, Any], hub: SessionHub | None) -> str:
        prompt, system = input.get("prompt"), input.get("system", "")
        if not isinstance(prompt, str) or not isinstance(system, str) or input.keys() - {"prompt", "system"}:
            raise UsageError('A model is asked with {"prompt": "..."}; "system" may stand beside it.')
        if len(prompt) + len(system) > _MOST_PROMPT:
            raise UsageError(f"A model is asked with at most {_MOST_PROMPT:,} characters.")
        model = await self.parts.models.model() if hub is None else hub.driver.model
        if model.provider == "none":
            raise UsageError("There is no language model.")
        in_build = counted_by.get()
        await (
            hub.driver.terms.budget().check_call()
            if hub is not None
            else in_build[0]()
            if in_build is not None
            else self._check()
        )
        message = Message(role="user", blocks=(TextBlock(text=prompt),))
        request = ModelRequest(system=system, messages=(message,), max_tokens=_ANSWER_TOKENS)
        asked: list[Asked] = []
        try:
            return (await complete(model, request, purpose=CALLED_BY_CODE, asked=asked)).message.text
        finally:
            with anyio.CancelScope(shield=True):
                for each in asked:
                    if hub is not None:
                        await hub.log.count(CALLED_BY_CODE, each)
                    elif in_build is not None:
                        await in_build[1](each.provider, each.model, each.usage)
                if hub is None and in_build is None and self.home.memory is not None:
                    await self.home.memory.note_cost(asked)

    async def _check(self) -> None:
        """Outside of a session and of a build, the budgets of the background and of the day hold."""
        if self.home.memory is None:
            raise UsageError(
                "Outside of a session, a model's cost is counted with that of memory, which is off."
            )
        await self.distilling.may_spend_unasked()
