"""One round of calls: validated, permitted, logged, run concurrently, answered in the order asked.

Every call runs here: those of a model, one that resumes with the user's answer (`Round` with an `answer`), and one that
the user asks for by name (`satchel.loop.direct`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from satchel.clock import Clock
from satchel.events import Action, AskUser, Event, Observation, Permission, RoundObserved, ToolProgress
from satchel.loop.calls import (
    OUTSIDE_MARK,
    CallEnvironment,
    RoundCall,
    ToolCallRecord,
    describe,
    failure_event,
    shorten,
    unparsed_text,
)
from satchel.loop.emitter import Emitter
from satchel.loop.hooks import HookChain, Refuse
from satchel.loop.limits import TurnLimits
from satchel.messages import ToolUseBlock, clean_text
from satchel.tools.permissions import Decision, PlannedCall
from satchel.tools.port import Effect, Foreseeing, Redirecting, Resumable, Tool, ToolContext, ToolResult

_LEAST_RESULT = 500
"""Characters that every result of a round may have, however small the model's window is."""


@dataclass(slots=True)
class _Rounds:
    """Rounds in a row without anything new."""

    number: int = 0
    last: int = 0

    def note(self, round: int, *, is_new: bool) -> None:
        """Count a round at its first call, and none of its calls if one is new."""
        if is_new:
            self.number, self.last = 0, round
        elif self.last != round:
            self.number, self.last = self.number + 1, round


class Repeats:
    """Detects a model that makes the same call with the same result, round after round, or goes round in circles."""

    def __init__(self) -> None:
        self._stale, self._repeated = _Rounds(), _Rounds()
        self._made: set[str] = set()
        self._streaks: dict[str, tuple[int, int]] = {}

    @property
    def stale(self) -> int:
        """In how many rounds in a row, up to the last one, each call and its result had been there before."""
        return self._stale.number

    @property
    def repeated(self) -> int:
        """The same of the calls alone, whatever came of them: results of tests have the time that they took."""
        return self._repeated.number

    def count(self, round: int, tool: str, input: Any, result: str) -> int:
        """Record a call, and return in how many rounds in a row, this one included, it gave this result."""
        call, key = _digest(tool, input), _digest(tool, input, result)
        last, streak = self._streaks.get(key, (0, 0))
        self._stale.note(round, is_new=not streak)
        self._repeated.note(round, is_new=call not in self._made)
        self._made.add(call)
        if last != round:
            streak = streak + 1 if last == round - 1 else 1
            self._streaks[key] = (round, streak)
        return streak


def _digest(*written: Any) -> str:
    text = json.dumps(written, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Round:
    """The calls of one answer."""

    def __init__(
        self,
        blocks: Sequence[ToolUseBlock],
        *,
        turn: int,
        number: int,
        environment: CallEnvironment,
        limits: TurnLimits,
        result_chars: int,
        hooks: HookChain,
        emitter: Emitter,
        clock: Clock,
        repeats: Repeats,
        untrusted: bool = False,
        answer: str | None = None,
        refusal: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the round; nothing runs yet.

        Args:
            blocks: The calls in the order asked, with unique ids.
            turn: The number of the turn.
            number: The number of the round, from 1; 0 for a call that a user asked for or answered.
            environment: Where the calls run.
            limits: The limits of the turn.
            result_chars: Characters that one result of this round may have.
            hooks: The hooks of the turn.
            emitter: Receives every event.
            clock: Measures durations.
            repeats: The results of the turn's earlier rounds.
            untrusted: The model has read something from outside.
            answer: The user's answer to the question of the only call, which resumes with it.
            refusal: Ids of calls that must not run, each with the result for the model.
        """
        self._calls = [RoundCall(block) for block in blocks]
        self._turn = turn
        self._number = number
        self._environment = environment
        self._limits = limits
        self._result_chars = max(_LEAST_RESULT, result_chars)
        self._hooks = hooks
        self._emitter = emitter
        self._clock = clock
        self._repeats = repeats
        self._untrusted = untrusted
        self._answer = answer
        # No model reads the result of a call that the user asked for.
        self._is_for_model = number > 0 or answer is not None
        self._refusal = refusal or {}
        self._is_merged = False

    # Outcome

    @property
    def question(self) -> AskUser | None:
        """The question to the user, or None."""
        return next((call.question for call in self._calls if call.question is not None), None)

    @property
    def answer_of_turn(self) -> str | None:
        """The result that ends the turn (`ToolResult.ends_turn`), or None."""
        return next((call.text for call in self._calls if call.ends_turn), None)

    @property
    def streak(self) -> int:
        """In how many rounds in a row every call of this one has given the same result."""
        return min((call.streak for call in self._calls), default=0)

    @property
    def steps(self) -> tuple[ToolCallRecord, ...]:
        """Every call with its result, in the order asked. An open call has no result yet."""
        return tuple(call.record() for call in self._calls)

    @property
    def is_left_to_caller(self) -> bool:
        """Whether the round has open calls that the caller runs."""
        return any(call.is_for_caller for call in self._calls)

    # Running it

    async def run(self) -> None:
        """Run every call that may run. When this returns, each call has its result, is the question to the user, or is
        left to the caller.

        Raises:
            Exception: What `Emit` raised. An exception of a tool, a hook or the gate becomes a result.
        """
        for position, call in enumerate(self._calls):
            await self._prepare(call, position)
        self._order(self._waiting())
        permissions = await self._permit(self._waiting())
        starting = self._waiting()
        refused = [call for call in self._calls if call.text is not None]
        for call in refused:
            call.streak = self._repeats.count(
                self._number, call.block.name, call.block.input, call.text or ""
            )
            self._remind(call)
        for call in refused:
            # Set before the write, because a write that has begun is finished even if the turn is cancelled meanwhile.
            call.is_observed = True
            call.ended.set()
        await self._emitter(
            *permissions,
            *(call.action for call in starting if call.action is not None),
            *(self._observation(call) for call in refused),
        )
        await self._run_side_by_side(starting)
        await self._settle_questions()
        merged = self._merge()
        if merged is not None:
            await self._emitter(merged)

    def _waiting(self) -> list[RoundCall]:
        """The calls that have no result yet and that Satchel runs."""
        return [call for call in self._calls if call.text is None and not call.is_for_caller]

    def close(self, *, running: str, waiting: str) -> list[Event]:
        """End a round that was stopped in the middle. `running` is the result of a call that had started, `waiting` of
        one that had not.

        Returns:
            The events that say so.
        """
        events: list[Event] = []
        for call in self._calls:
            if call.text is None:
                call.question = None
                call.resolve_with_error(running if call.is_started else waiting)
            if not call.is_observed:
                call.is_observed = True
                events.append(self._observation(call))
        merged = self._merge()
        return [*events, merged] if merged is not None else events

    def _merge(self) -> RoundObserved | None:
        """Merge the results as seed-3 does; None if there is nothing to merge, or it was done before."""
        ended = [call for call in self._calls if call.text is not None]
        if self._is_merged or not ended or self._number == 0:
            return None
        self._is_merged = True
        # One result stands alone; several get the names of their tools as headings (seed-3, "State Flow").
        alone = len(self._calls) == 1
        text = "\n\n".join(
            call.text or "" if alone else f"[{call.block.name}]: {call.text}" for call in ended
        )
        return RoundObserved(turn=self._turn, round=self._number, text=text)

    def _observation(self, call: RoundCall) -> Observation:
        return call.observation(self._turn, self._number)

    # Before a call runs

    async def _prepare(self, call: RoundCall, position: int) -> None:
        """Find the tool, show the call to the hooks, validate its input; a call that can't run is answered here."""
        block = call.block
        if block.id in self._refusal:
            call.resolve_with_error(self._refusal[block.id])
            return
        if position >= self._limits.max_calls:
            call.resolve_with_error(
                f"Not run: at most {self._limits.max_calls} calls are run in one round, and you asked for "
                f"{len(self._calls)}. Ask for the others in a later round."
            )
            return
        tool = self._environment.tools.get(block.name)
        if tool is None:
            call.resolve_with_error(self._environment.tools.unknown(block.name))
            return
        if block.input is None:
            call.resolve_with_error(unparsed_text(block), "INVALID_INPUT")
            return
        input = block.input
        # `tool_call` may lead to `execute_capability`, which leads to the capability's own tool.
        while isinstance(tool, Redirecting):
            problem = self._environment.tools.problem(tool, input)
            target = tool.redirect(input) if problem is None else problem
            if isinstance(target, str):
                call.resolve_with_error(target, "INVALID_INPUT")
                return
            tool, input = target.tool, target.input
            if tool.spec.client_side:
                # The caller gets the call as the model wrote it, so the model has to call the tool by its name.
                call.resolve_with_error(f"Call {tool.spec.name} directly.")
                return
        if self._answer is not None and not isinstance(tool, Resumable):
            call.resolve_with_error(
                f"{tool.spec.name} can't resume with the answer. Call it again to ask again."
            )
            return
        action = Action(
            turn=self._turn,
            round=self._number,
            call_id=block.id,
            tool=tool.spec.name,
            input=input,
        )
        if self._answer is not None:
            # It was validated, shown to the hooks and permitted when it first ran.
            call.tool, call.action = tool, action
            return
        seen = await self._hooks.action(action)
        if isinstance(seen, Refuse):
            call.resolve_with_error(f"Refused: {seen.reason}")
            return
        try:
            problem = self._environment.tools.problem(tool, seen.input)
        # A boundary: a schema from outside may break its validator.
        except Exception as error:  # noqa: BLE001
            await self._emitter(failure_event(f"tool {tool.spec.name}", error))
            problem = (
                f"The tool {tool.spec.name} can't be used: its input schema is broken ({describe(error)})."
            )
        if problem is not None:
            call.resolve_with_error(problem, "INVALID_INPUT")
            return
        call.tool, call.action = tool, seen
        call.is_for_caller = tool.spec.client_side

    async def _permit(self, calls: Sequence[RoundCall]) -> list[Permission]:
        """Ask the gate once for the whole round; a call that it refuses is answered here."""
        if not calls or self._answer is not None:
            return []
        planned = [
            PlannedCall(
                call_id=call.block.id,
                spec=call.tool.spec,
                input=call.action.input,
                untrusted=self._untrusted,
            )
            for call in calls
            if call.tool is not None and call.action is not None
        ]
        decisions: Sequence[Decision]
        try:
            decisions = await self._environment.gate.decide(planned)
            if len(decisions) != len(planned):
                raise ValueError(f"the gate gave {len(decisions)} decisions for {len(planned)} calls")
        # A boundary: whatever goes wrong in the gate, nothing runs without permission.
        except Exception as error:  # noqa: BLE001
            await self._emitter(failure_event("permission", error))
            reason = f"permission could not be asked for ({describe(error)})"
            decisions = [Decision(allowed=False, by="nobody", rule="", reason=reason)] * len(planned)
        permissions = []
        for call, decision in zip(calls, decisions, strict=True):
            permissions.append(
                Permission(
                    turn=self._turn,
                    call_id=call.block.id,
                    tool=call.tool.spec.name if call.tool is not None else call.block.name,
                    decision="allow" if decision.allowed else "deny",
                    by=decision.by,
                    rule=decision.rule,
                    reason=decision.reason,
                    box=decision.box.text if decision.box is not None else "",
                    wanted=decision.wanted,
                )
            )
            call.box = decision.box
            if not decision.allowed:
                call.resolve_with_error(f"Refused: {decision.reason or 'not permitted'}")
        return permissions

    def _order(self, calls: Sequence[RoundCall]) -> None:
        """Let each call wait for those before it that touch what it touches, one of the two writing. One that waits for
        none, and would fail, is answered here.
        """
        earlier: list[tuple[RoundCall, Sequence[Effect]]] = []
        for call in calls:
            if call.tool is None or call.action is None:
                continue
            try:
                effects: Sequence[Effect] = call.tool.effects(call.action.input, self._context(call))
            # A boundary: what the call would touch is not known, so it must not run beside others.
            except Exception as error:  # noqa: BLE001
                call.resolve_with_error(
                    f"Tool '{call.block.name}' failed before it started: {describe(error)}"
                )
                continue
            call.after = tuple(
                other
                for other, theirs in earlier
                if any(one.collides_with(another) for one in effects for another in theirs)
            )
            if not call.after and isinstance(call.tool, Foreseeing):
                problem = call.tool.foresee(call.action.input, self._context(call))
                if problem:
                    call.resolve_with_error(problem, "TOOL_FAILED")
                    continue
            earlier.append((call, effects))

    # While it runs

    async def _run_side_by_side(self, calls: Sequence[RoundCall]) -> None:
        try:
            async with anyio.create_task_group() as group:
                for call in calls:
                    group.start_soon(self._run_call, call)
        except BaseExceptionGroup as errors:
            # Only errors of the emitter get here, and all tasks raise the same one.
            raise _first_of(errors) from None

    async def _run_call(self, call: RoundCall) -> None:
        for other in call.after:
            await other.ended.wait()
        if call.tool is None:
            return
        call.is_started = True
        started_s = self._clock.monotonic_s()
        try:
            try:
                result = await self._guarded(call, call.tool)
            finally:
                call.duration_ms = (self._clock.monotonic_s() - started_s) * 1000
            if result.question is not None and not result.is_error:
                call.question = AskUser(
                    turn=self._turn,
                    call_id=call.block.id,
                    question=clean_text(result.question.text),
                    options=tuple(clean_text(option) for option in result.question.options),
                    resumable=result.question.resumable,
                )
            else:
                await self._finish(call, result)
        finally:
            call.ended.set()

    async def _guarded(self, call: RoundCall, tool: Tool) -> ToolResult:
        """Run the tool within its time limit; an exception becomes a result."""
        name = call.block.name
        limit_s = self._limit_s(tool)
        try:
            with anyio.move_on_after(limit_s) as scope:
                context = self._context(call)
                if self._answer is not None and isinstance(tool, Resumable):
                    result = await tool.resume(self._answer, context)
                else:
                    result = await tool.call(call.action.input if call.action else {}, context)
                if not isinstance(result, ToolResult):
                    raise TypeError(f"it gave {repr(result)[:200]} instead of a ToolResult")
                return result
        # A boundary: a tool is somebody else's code, and may even call `sys.exit`.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            await self._emitter(failure_event(f"tool {name}", error))
            call.error_code = "TOOL_CRASHED"
            return ToolResult(text=f"Tool '{name}' failed: {describe(error)}", is_error=True)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # This task was not cancelled: something that the tool waited for was.
            await self._emitter(failure_event(f"tool {name}", error))
            call.error_code = "TOOL_CRASHED"
            return ToolResult(
                text=f"Tool '{name}' failed: something it waited for was cancelled.", is_error=True
            )
        assert scope.cancelled_caught
        call.error_code = "TOOL_TIMEOUT"
        return ToolResult(text=f"Tool '{name}' was stopped after {limit_s:g} s.", is_error=True)

    def _limit_s(self, tool: Tool) -> float:
        return tool.spec.timeout_s if tool.spec.timeout_s is not None else self._limits.tool_timeout_s

    def _context(self, call: RoundCall) -> ToolContext:
        tool = call.tool

        async def progress(data: Mapping[str, Any]) -> None:
            # A thread that outlives its call may still report.
            if not call.ended.is_set():
                await self._emitter(ToolProgress(call_id=call.block.id, tool=call.block.name, data=data))

        return self._environment.context(
            turn=self._turn,
            call_id=call.block.id,
            progress=progress,
            clock=self._clock,
            timeout_s=self._limit_s(tool) if tool is not None else self._limits.tool_timeout_s,
            # The model has not read the results of this round yet.
            untrusted=self._untrusted,
            box=call.box,
        )

    # After a call ran

    async def _finish(self, call: RoundCall, result: ToolResult) -> None:
        """Show the result to the hooks, cut it to size, and log it."""
        if call.action is not None:
            result = await self._hooks.observation(call.action, result)
        text = clean_text(result.text)
        if result.untrusted and self._is_for_model:
            text = f"{OUTSIDE_MARK}\n{text}"
        # From here to the write nothing may be cancelled in between: `close` reads what is set here.
        cut, spill = await self._cut(call, text)
        call.text, call.spill, call.is_error = cut, spill, result.is_error
        call.untrusted, call.data, call.ends_turn = result.untrusted, result.data, result.ends_turn
        call.files = result.files
        call.error_code = (call.error_code or "TOOL_FAILED") if result.is_error else ""
        input = call.action.input if call.action is not None else call.block.input
        call.streak = self._repeats.count(self._number, call.block.name, input, text)
        self._remind(call)
        await self._observe(call)

    async def _observe(self, call: RoundCall) -> None:
        call.is_observed = True
        await self._emitter(self._observation(call))

    def _remind(self, call: RoundCall) -> None:
        if call.streak >= self._limits.max_repeats:
            call.text = (
                f"{call.text}\n\n[You have made this same call in {call.streak} rounds in a row, "
                "and the result was the same each time. Do something else, or tell the user what is blocking you.]"
            )

    async def _cut(self, call: RoundCall, text: str) -> tuple[str, str | None]:
        """The text at a length that the model can take, and the file that holds the whole."""
        if len(text) <= self._result_chars:
            return text, None
        path: str | None = None
        try:
            path = await self._environment.spill(call.block.id, text)
        # A boundary: the result must not be lost because the disk is full.
        except Exception as error:  # noqa: BLE001
            await self._emitter(failure_event("spill", error))
            where = f"the whole result could not be stored: {describe(error)}"
        else:
            pager = (
                ", page by page with file_read"
                if self._environment.tools.get("file_read") is not None
                else ""
            )
            where = f"the whole result is in {path}{pager}"
        return shorten(text, self._result_chars, where), path

    async def _settle_questions(self) -> None:
        """Keep one question open, or none if calls are left to the caller; answer the others with an error."""
        asking = [call for call in self._calls if call.question is not None]
        for call in asking if self.is_left_to_caller else asking[1:]:
            call.question = None
            call.resolve_with_error(
                "Not asked: other calls of this round are still open. Ask again once they have their results."
                if self.is_left_to_caller
                else "Not asked: ask one question at a time. Another one is open; ask this one after its answer."
            )
            await self._observe(call)
        # A call that ended without a result, a question or an exception is a defect; the history must stay valid.
        for call in self._waiting():
            if call.question is None:
                call.resolve_with_error(f"Tool '{call.block.name}' ended without a result.", "TOOL_CRASHED")
                await self._observe(call)


def _first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
