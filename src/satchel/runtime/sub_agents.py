"""Sub-agents of a session: bounded tasks with messages of their own, under the session's gate, budget and log."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio

from satchel.capabilities import toolset as capability_tools
from satchel.conversation import Conversation
from satchel.events import (
    Action,
    Assistant,
    Compaction,
    Event,
    ModelCalled,
    Notice,
    RoundObserved,
    SubAgentEvent,
    is_transient,
)
from satchel.loop import (
    Budget,
    Hook,
    OnAction,
    OnObservation,
    OnRequest,
    Toolbox,
    TurnInput,
    TurnOutcome,
    Verdict,
    run_turn,
)
from satchel.memory import toolset as memory_tools
from satchel.messages import Block, Message, TextBlock, Usage
from satchel.models import ChatModel
from satchel.runtime.driver import Driver
from satchel.runtime.session_log import SessionLog
from satchel.runtime.surroundings import surroundings_block, time_block
from satchel.runtime.tool_display import describe_call
from satchel.runtime.web import close_state
from satchel.tools import Decision, Gate, PlannedCall, Tool, ToolContext, ToolResult, deferral
from satchel.wording import counted

_READING: Final = ("file_read", "glob", "grep", "web_search", "web_fetch", "read_docs", "tool_describe")
"""What every sub-agent may use, where the session has it."""
_NEVER: Final = frozenset(
    (*memory_tools.DISPLAYS, *capability_tools.DISPLAYS, *deferral.DISPLAYS)
    + ("ask_user", "todo", "propose_plan", "delegate", "think")
) - set(_READING)
"""What belongs to the conversation: its memory, its user, its list, its builds; and sub-agents of its own."""
_MOST_AT_ONCE: Final = 4
_CONCLUDE: Final = (
    "Your rounds or tokens are used up. Answer now from what you have seen; say what is missing."
)


@dataclass(slots=True)
class _Share:
    """What one sub-agent may spend of the session's budget.

    Attributes:
        tokens: At most.
        whole: The session's budget.
        log: Of the session, whose usage includes this sub-agent's.
        is_used_up: The sub-agent may ask for nothing more because of `tokens`.
    """

    tokens: int
    whole: Budget
    log: SessionLog
    is_used_up: bool = False

    async def check(self, spent: Usage, *, unpriced: int, ahead_tokens: int) -> Verdict:
        """See `Budget`."""
        verdict = await self.whole.check(
            self.log.conversation.turn_usage, unpriced=unpriced, ahead_tokens=ahead_tokens
        )
        if not verdict.exceeded and spent.total_tokens + ahead_tokens > self.tokens:
            self.is_used_up = True
            limit = f"The budget of a sub-agent, {self.tokens:,} tokens (agent.sub_agent_tokens), is used up."
            return replace(verdict, exceeded=limit)
        return verdict


@dataclass(frozen=True, slots=True)
class _Gate:
    """The session's gate, which is told who calls."""

    whole: Gate

    async def decide(self, calls: Sequence[PlannedCall]) -> Sequence[Decision]:
        """See `Gate`."""
        return await self.whole.decide([replace(call, for_sub_agent=True) for call in calls])


class _OnCalls:
    """The part of a program's hook that is about requests and calls, which may also be a sub-agent's."""

    def __init__(self, hook: Hook) -> None:
        if isinstance(hook, OnRequest):
            self.on_request = hook.on_request
        if isinstance(hook, OnAction):
            self.on_action = hook.on_action
        if isinstance(hook, OnObservation):
            self.on_observation = hook.on_observation


class SubAgents:
    """Those of one session. It is the `delegate` of its tools (`satchel.tools.port.Delegate`)."""

    def __init__(self, driver: Driver, *, system: Callable[[], str]) -> None:
        self._driver = driver
        self._system = system
        terms, settings = driver.terms, driver.parts.settings.agent
        self._limits = replace(terms.limits, max_rounds=settings.sub_agent_rounds)
        self._hooks: tuple[Any, ...] = tuple(map(_OnCalls, terms.hooks))
        self._tokens = settings.sub_agent_tokens
        self._lane = anyio.CapacityLimiter(_MOST_AT_ONCE)

    async def __call__(self, task: str, tools: Sequence[str], context: ToolContext) -> ToolResult:
        """See `Delegate`."""
        offered = self._offered(tools)
        if isinstance(offered, str):
            return ToolResult(text=offered, is_error=True)
        async with self._lane:
            return await self._work(task, offered, context)

    def _offered(self, wanted: Sequence[str]) -> Sequence[Tool] | str:
        """The tools of a sub-agent, or why it can't have them."""
        found: dict[str, Tool] = {}
        toolbox = self._driver.environment.tools
        for name in dict.fromkeys((*_READING, *wanted)):
            tool = toolbox.get(name)
            if tool is not None and name not in _NEVER and not tool.spec.client_side:
                found[name] = tool
            elif name not in _READING:
                return (
                    f"A sub-agent can't have the tool {name[:80]!r}. Leave it out, or do that part yourself."
                )
        return tuple(found.values())

    async def _work(self, task: str, tools: Sequence[Tool], context: ToolContext) -> ToolResult:
        mine, state = Conversation(), dict[str, Any]()
        clock = self._driver.parts.clock
        began_s = clock.monotonic_s()
        # What it is told may come from there.
        mine.untrusted = context.untrusted
        share = self._share(self._tokens)
        model, environment = self._driver.model, self._driver.environment
        began = TurnInput(
            message=self._message(task, surroundings_block(context.cwd, context.environ)),
            conversation=mine,
            turn=context.turn,
            model=model,
            system=self._system(),
            environment=replace(
                environment,
                tools=Toolbox(tools),
                gate=_Gate(environment.gate),
                state=state,
                messages=lambda: mine.messages,
                memory=None,
                catalogue=None,
                modes=None,
                delegate=None,
            ),
            emit=lambda events: self._emit(events, model, context),
            clock=clock,
            limits=self._limits,
            budget=share,
            hooks=self._hooks,
            estimator=self._driver.terms.estimator,
            read_file=self._driver.log.files.read,
            # The ids of calls name questions and files of the session.
            call_prefix=f"{hashlib.sha256(context.call_id.encode()).hexdigest()[:6]}_",
        )
        try:
            outcomes = [await run_turn(began)]
            if outcomes[0].rounds >= self._limits.max_rounds or share.is_used_up:
                outcomes.append(await run_turn(self._conclusion(began)))
        finally:
            with anyio.CancelScope(shield=True):
                await close_state(state)
        took_s = clock.monotonic_s() - began_s
        return _result(outcomes, untrusted=mine.untrusted, tokens=mine.usage.total_tokens, took_s=took_s)

    def _conclusion(self, began: TurnInput) -> TurnInput:
        """A last request, so that what was found is not lost. Its calls are refused.

        The definitions stay: providers cache them, and some refuse a history of calls without any.
        """
        definitions = began.environment.tools.definitions
        return replace(
            began,
            message=self._message(_CONCLUDE),
            environment=replace(began.environment, tools=Toolbox(definitions=definitions)),
            limits=replace(self._limits, max_rounds=2),
            budget=self._share(2 * self._tokens),
        )

    def _share(self, tokens: int) -> _Share:
        return _Share(tokens, self._driver.terms.budget(), self._driver.log)

    def _message(self, text: str, *more: Block) -> Message:
        # Not as said by the user, so that nothing takes it for their words.
        block = TextBlock(text=text, origin="context")
        return Message(role="user", blocks=(block, *more, time_block(self._driver.parts.clock.now())))

    async def _emit(self, events: Sequence[Event], model: ChatModel, context: ToolContext) -> None:
        """Log what happened beneath the call, and count what it cost as the session's."""
        kept = [event for event in events if not is_transient(event) and not isinstance(event, RoundObserved)]
        spent = [
            ModelCalled(
                turn=context.turn,
                purpose="sub-agent",
                provider=model.provider,
                model=model.model,
                usage=event.usage,
            )
            for event in kept
            if isinstance(event, Assistant | Compaction | ModelCalled)
        ]
        for each in spent:
            self._driver.log.conversation.apply(each)
        if kept:
            within = [
                SubAgentEvent(turn=context.turn, call_id=context.call_id, event=event) for event in kept
            ]
            await self._driver.log.record(*within, *spent)
        for event in kept:
            match event:
                case Action(tool=tool, input=input):
                    message = f"{tool} {describe_call(tool, input)}"
                case Notice(text=message):
                    pass
                case _:
                    continue
            await context.progress({"progress": None, "message": message})


def _result(outcomes: Sequence[TurnOutcome], *, untrusted: bool, tokens: int, took_s: float) -> ToolResult:
    last = outcomes[-1]
    rounds = sum(outcome.rounds for outcome in outcomes)
    calls = sum(len(outcome.steps) for outcome in outcomes)
    work = f"{counted(rounds, 'round')}, {counted(calls, 'call')}, {counted(tokens, 'token')}, {took_s:.1f} s"
    return ToolResult(
        text=f"{last.text.strip()}\n\n[{work}]",
        is_error=last.status == "failed",
        data={"status": last.status, "rounds": rounds, "calls": calls, "tokens": tokens},
        untrusted=untrusted,
    )
