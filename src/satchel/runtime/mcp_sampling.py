"""Answers the requests of MCP servers to a session's model; see `satchel.tools.mcp.sampling`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from satchel.errors import ModelUnavailable, NotFound, UsageError
from satchel.messages import text_of
from satchel.models import Completion, ModelRequest
from satchel.runtime.hub import SessionHub
from satchel.tools.mcp.sampling import Sampled, SamplingRequest
from satchel.tools.patterns import matcher


class SessionSampler:
    """See `satchel.tools.mcp.sampling.Sampler`."""

    def __init__(self, find: Callable[[str], SessionHub | None]) -> None:
        """`find` returns the open session with an id, or None."""
        self._find = find

    async def consent(self, rule_name: str, *, session_id: str) -> Literal["allow", "ask", "deny"]:
        """See `Sampler`."""
        rules = [rule for rule in self._hub(session_id).driver.tools.gate.rules if rule.pattern is None]
        if any(rule.action == "deny" and matcher(rule.tool)(rule_name) for rule in rules):
            return "deny"
        if any(rule.action == "ask" and matcher(rule.tool)(rule_name) for rule in rules):
            return "ask"
        return "allow" if any(rule.action == "allow" and rule.tool == rule_name for rule in rules) else "ask"

    async def sample(self, request: SamplingRequest, *, session_id: str) -> Sampled:
        """See `Sampler`."""
        hub = self._hub(session_id)
        model = hub.driver.model
        if model.provider == "none":
            raise UsageError("There is no language model in this session.")
        await hub.driver.terms.budget().check_call()
        wanted = ModelRequest(
            system=request.system,
            messages=request.messages,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
        )
        answer: Completion | None = None
        async for event in model.stream(wanted):
            if isinstance(event, Completion):
                answer = event
        if answer is None:
            raise ModelUnavailable(f"{model.provider}:{model.model} ended without an answer.")
        await hub.log.count(f"mcp:{request.server}", answer)
        text, cut = _before(text_of(answer.blocks), request.stop_sequences)
        return Sampled(
            text=text,
            model=answer.model,
            stop_reason="stopSequence"
            if cut
            else "maxTokens"
            if answer.stop_reason == "max_tokens"
            else "endTurn",
        )

    def _hub(self, session_id: str) -> SessionHub:
        hub = self._find(session_id)
        if hub is None:
            raise NotFound(f"No session {session_id!r} is open.")
        return hub


def _before(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """The text up to the first stop sequence, and whether there was one. Not every provider cuts there."""
    places = [text.index(stop) for stop in stops if stop and stop in text]
    return (text[: min(places)], True) if places else (text, False)
