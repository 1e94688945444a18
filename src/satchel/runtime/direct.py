"""A tool that the user asks for by name, without a model: checked, run and written down like any other call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from satchel.clock import Clock
from satchel.errors import NotFound, UsageError
from satchel.events import Action, Event, Observation, ToolProgress
from satchel.loop import CallEnvironment, Emit
from satchel.tools import Registry, ToolContext, ToolResult

__all__ = ["run_directly"]


async def run_directly(
    name: str,
    input: Mapping[str, Any],
    *,
    call_id: str,
    turn: int,
    registry: Registry,
    environment: CallEnvironment,
    emit: Emit,
    clock: Clock,
    timeout_s: float,
) -> ToolResult:
    """Run one call. The user asked for it in person, so nobody is asked for permission.

    Args:
        name: Of the tool.
        input: Its arguments.
        call_id: Unique in the session.
        turn: The turn that it is written down with.
        registry: Where the tool is.
        environment: What the call may use.
        emit: Gets `Action` before the tool starts and `Observation` after it ended.
        clock: Measures the duration.
        timeout_s: Where the tool has no limit of its own.

    Raises:
        NotFound: There is no such tool.
        UsageError: The input does not fit its schema.
    """
    tool = registry.get(name)
    if tool is None:
        close = registry.close_matches(name)
        hint = f" Did you mean {' or '.join(close)}?" if close else " /tool lists the tools."
        raise NotFound(f"There is no tool {name!r}.{hint}")
    problem = environment.tools.problem(tool, input)
    if problem:
        raise UsageError(problem)
    limit_s = tool.spec.timeout_s or timeout_s

    async def progress(data: Mapping[str, Any]) -> None:
        await emit([ToolProgress(call_id=call_id, tool=name, data=data)])

    context = ToolContext(
        session_id=environment.session_id,
        turn=turn,
        call_id=call_id,
        cwd=environment.cwd,
        # The user asked for this call in person: they may go wherever they may go.
        roots=(Path("/"),),
        spill_dir=environment.spill_dir,
        state=environment.state,
        progress=progress,
        blocking=environment.pool.run,
        clock=clock,
        timeout_s=limit_s,
        environ=environment.environ,
        ask=environment.ask,
    )
    await emit([Action(turn=turn, round=0, call_id=call_id, tool=name, input=input)])
    started_s = clock.monotonic_s()
    result = ToolResult(text=f"Tool '{name}' was stopped after {limit_s:g} s.", is_error=True)
    try:
        with anyio.move_on_after(limit_s):
            result = await tool.call(input, context)
    except anyio.get_cancelled_exc_class():
        text = f"Tool '{name}' was interrupted by the user; what it had done by then is unknown."
        result = ToolResult(text=text, is_error=True)
        raise
    # A boundary: a tool's defect is told like any other failure of it.
    except Exception as error:  # noqa: BLE001
        result = ToolResult(text=f"The tool failed: {type(error).__name__}: {error}", is_error=True)
    finally:
        ended: list[Event] = [
            Observation(
                turn=turn,
                round=0,
                call_id=call_id,
                tool=name,
                text=result.text,
                is_error=result.is_error,
                duration_ms=(clock.monotonic_s() - started_s) * 1000,
                untrusted=result.untrusted,
            )
        ]
        with anyio.CancelScope(shield=True):
            await emit(ended)
    return result
