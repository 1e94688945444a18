"""What the user asks for in person, without a turn: running a tool by its name, and making room in the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from satchel.clock import Clock
from satchel.conversation import Conversation
from satchel.errors import NotFound, UsageError
from satchel.events import Compaction
from satchel.loop import closing
from satchel.loop.calls import CallEnvironment, ToolCallRecord
from satchel.loop.compaction import compact
from satchel.loop.emitter import Emit, Emitter
from satchel.loop.hooks import Hook, HookChain
from satchel.loop.limits import TurnLimits
from satchel.loop.rounds import Repeats, Round
from satchel.loop.tokens import TokenEstimator
from satchel.messages import ToolUseBlock
from satchel.models.port import ChatModel, FileReader
from satchel.tools.permissions import Decision, PlannedCall


class PermittedByUser:
    """The gate for calls that the user asks for by name."""

    async def decide(self, calls: Sequence[PlannedCall]) -> Sequence[Decision]:
        """See `Gate`."""
        return [Decision(allowed=True, by="user", rule="", reason="") for _ in calls]


async def run_call(
    name: str,
    input: Mapping[str, Any],
    *,
    call_id: str,
    turn: int,
    environment: CallEnvironment,
    emit: Emit,
    clock: Clock,
    limits: TurnLimits,
    hooks: Sequence[Hook] = (),
) -> ToolCallRecord:
    """Run one call that the user asks for, without a model; its events have round 0.

    The user is not asked for permission, and the call may access everything that the user may. The id is unique in the
    session; `turn` is what the events name. Of the environment, the gate and the roots are not used. `emit` decides
    whether anything is logged.

    Raises:
        NotFound: There is no such tool.
        UsageError: The input does not fit the schema, or the tool is client-side.
        asyncio.CancelledError: The task was cancelled; the events say so.
    """
    tool = environment.tools.get(name)
    if tool is None:
        raise NotFound(environment.tools.unknown(name))
    problem = environment.tools.problem(tool, input)
    if problem is None and tool.spec.client_side:
        problem = f"{name} is run by the program that provides it, not by Satchel."
    if problem is not None:
        raise UsageError(problem)
    emitter = Emitter(emit, limit_s=limits.emit_timeout_s)
    round = Round(
        [ToolUseBlock(id=call_id, name=name, input=input)],
        turn=turn,
        number=0,
        environment=replace(environment, gate=PermittedByUser(), roots=(Path("/"),)),
        limits=limits,
        result_chars=limits.max_result_chars,
        hooks=HookChain(hooks, emitter=emitter, limit_s=limits.hook_timeout_s),
        emitter=emitter,
        clock=clock,
        repeats=Repeats(),
    )
    try:
        await round.run()
    except anyio.get_cancelled_exc_class():
        closed = round.close(running=closing.CANCELLED_RUNNING, waiting=closing.CANCELLED_WAITING)
        await emitter(*closed, limit_s=limits.closing_timeout_s)
        raise
    if round.question is not None:
        text = f"{name} asks: {round.question.question}\nOnly a call of the model can be answered; ask for it in words."
        await emitter(*round.close(running=text, waiting=text))
    return round.steps[0]


async def compact_now(
    conversation: Conversation,
    *,
    model: ChatModel,
    emit: Emit,
    estimator: TokenEstimator,
    limits: TurnLimits,
    focus: str = "",
    session_id: str = "",
    hooks: Sequence[Hook] = (),
    read_file: FileReader | None = None,
) -> Compaction | None:
    """Replace older messages with a summary, between two turns. The conversation is changed. `focus` is what the
    summary should keep above all.

    Returns:
        What was done; None where there is nothing to leave out.

    Raises:
        ModelError: The model fails to write the summary; nothing was left out.
    """
    emitter = Emitter(emit, limit_s=limits.emit_timeout_s, apply=conversation.apply)
    chain = HookChain(hooks, emitter=emitter, limit_s=limits.hook_timeout_s)
    event = await compact(
        conversation.messages,
        model=model,
        turn=conversation.turns,
        trigger="manual",
        emit=emitter,
        estimator=estimator,
        patience=limits.patience,
        focus=focus,
        to_do=conversation.to_do.text if conversation.to_do is not None else "",
        session_id=session_id,
        on_request=chain.request,
        read_file=read_file,
    )
    if event is not None:
        await emitter(event)
    return event
