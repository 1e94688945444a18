"""Random models, tools, failures and cancellations: whatever happens, the history is valid and the log is whole."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import anyio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from satchel.conversation import Conversation
from satchel.errors import ContextOverflow, ModelAuthError, ModelError, ModelUnavailable
from satchel.events import Event, MemorySurfaced, Notice, Record
from satchel.loop import PrefixWatch, TokenEstimator, TurnLimits, TurnOutcome, TurnRunner
from satchel.messages import Message, Usage
from satchel.models.port import ModelRequest
from satchel.models.scripted import Call, Reply
from satchel.tools import client_tool
from satchel.tools.port import Effect, ToolContext, ToolResult
from tests.loop.rules import check_anthropic, check_events, check_openai, history_problems
from tests.loop.world import World, asks, fails, gives, tool
from tests.requirements import requirement

TEXTS = st.sampled_from(["", " ", "Yes.", "It is \ud800 done.", "word " * 300])
INPUTS = st.sampled_from([{}, {"x": 1}, {"x": "y" * 50}, {"unknown": 1}, "{", "[1]", ""])
NAMES = st.sampled_from(
    ["look", "long", "error", "break", "hang", "ask_user", "yield", "nope", "odd name!", "theirs"]
)
CALLS = st.builds(Call, name=NAMES, input=INPUTS, id=st.sampled_from(["", "", "", "same", "odd id"]))
ERRORS = st.sampled_from(
    [
        ModelAuthError("The key was refused."),
        ModelUnavailable("It is down."),
        ContextOverflow("It is too long."),
    ]
)
REPLIES = st.one_of(
    st.builds(
        Reply,
        text=TEXTS,
        thinking=st.sampled_from(["", "hm"]),
        signature=st.sampled_from(["", "proof"]),
        calls=st.lists(CALLS, max_size=4),
        chunk=st.sampled_from([0, 7]),
        error=st.one_of(st.none(), st.none(), st.none(), ERRORS),
        cut=st.sampled_from([False, False, False, True]),
        stop_reason=st.sampled_from([None, None, None, "max_tokens", "refusal", "other"]),
        usage=st.sampled_from([None, Usage(input_tokens=100, output_tokens=10, cost_usd=0.1)]),
    ),
    ERRORS,
)

Fault = Literal["none", "cancel", "cancel outside", "cancel the task", "emit fails once", "emit fails"]


@dataclass(frozen=True)
class Trial:
    """One turn: what the model says in it, and what goes wrong at which event."""

    replies: Sequence[Reply | ModelError]
    fault: Fault
    at_event: int
    hooks_fail: bool
    memory: Literal["", "text", "down"]


TRIALS = st.builds(
    Trial,
    replies=st.lists(REPLIES, max_size=5),
    fault=st.sampled_from(
        ["none", "none", "cancel", "cancel outside", "cancel the task", "emit fails once", "emit fails"]
    ),
    at_event=st.integers(1, 25),
    hooks_fail=st.booleans(),
    memory=st.sampled_from(["", "text", "down"]),
)


def replayed(events: Sequence[Event]) -> Conversation:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Conversation.from_records(
        Record(seq=number, at=at, event=event) for number, event in enumerate(events, start=1)
    )


class FailingHook:
    async def on_turn_start(self, start: object) -> None:
        raise RuntimeError("start")

    async def on_action(self, action: object) -> None:
        raise RuntimeError("action")

    async def on_observation(self, action: object, result: object) -> None:
        raise RuntimeError("observation")

    async def on_final(self, final: object) -> None:
        raise RuntimeError("final")


class AddingHook:
    def on_turn_start(self, start: object) -> str:
        return "It is Thursday.\ud800"

    async def on_request(self, request: ModelRequest) -> None:
        await anyio.lowlevel.checkpoint()


async def hang(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
    await anyio.sleep_forever()
    raise AssertionError


async def give_way(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
    for step in range(3):
        await context.progress({"step": step})
        await anyio.lowlevel.checkpoint()
    return ToolResult(text="at last")


def writes_one_thing(input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
    return [Effect(resource="thing", writes=True)]


class Trials:
    """A session of trials."""

    def __init__(self, *, context_window: int | None) -> None:
        self.replies: list[Reply | ModelError] = []
        self.world = World(
            self.reply,
            gives("rain"),
            gives("long " * 2_000, "long"),
            gives("It did not work.", "error", is_error=True),
            fails(ValueError("bad luck")),
            tool("hang", hang, timeout_s=0.002),
            tool("yield", give_way, effects=writes_one_thing),
            asks("Which one?"),
            client_tool(name="theirs", description="Theirs.", input_schema={"type": "object"}),
            context_window=context_window,
        )
        self.watch = PrefixWatch()
        self.estimator = TokenEstimator()
        self.unwritten = False

    def reply(self, request: ModelRequest) -> Reply | str:
        if not self.replies:
            return "The end."
        reply = self.replies.pop(0)
        if isinstance(reply, ModelError):
            raise reply
        return reply

    async def run(self, trial: Trial) -> None:
        world = self.world
        world.events.clear()
        self.replies = list(trial.replies)
        count = 0
        outside = anyio.CancelScope()
        task: asyncio.Task[Any] | None = None

        async def disturb(event: Event) -> None:
            nonlocal count
            count += 1
            now = count == trial.at_event
            if now and trial.fault == "cancel":
                turn.cancel()
            elif now and trial.fault == "cancel outside":
                outside.cancel()
            elif now and trial.fault == "cancel the task" and task is not None:
                task.cancel()
            await anyio.lowlevel.checkpoint()
            if (now and trial.fault == "emit fails once") or (
                count >= trial.at_event and trial.fault == "emit fails"
            ):
                self.unwritten = True
                raise OSError(28, "No space left on device")

        async def surface(messages: Sequence[Message]) -> MemorySurfaced | None:
            await anyio.lowlevel.checkpoint()
            if trial.memory == "down":
                raise RuntimeError("no index")
            if not trial.memory:
                return None
            return MemorySurfaced(
                turn=world.conversation.turns, text="<memory>old</memory>", memories=(), tokens=3
            )

        world.on_emit = disturb
        turn: TurnRunner = world.turn(
            f"Message {world.conversation.turns}.",
            limits=TurnLimits(max_rounds=4, max_calls=3, max_result_chars=4_000, max_answer_bytes=2_000),
            hooks=[FailingHook()] if trial.hooks_fail else [AddingHook()],
            surface=surface,
            watch=self.watch,
            estimator=self.estimator,
            budget=world.budget(session_usd=0.35),
        )
        returned: TurnOutcome | None = None

        async def run() -> None:
            nonlocal returned, task
            task = asyncio.current_task()
            with outside:
                returned = await turn.run()

        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
        outcome = turn.outcome
        assert outcome is not None
        assert returned in (None, outcome)
        self.check(trial, outcome)

    def check(self, trial: Trial, outcome: TurnOutcome) -> None:
        asked = outcome.question.call_id if outcome.question is not None else None
        if not self.world.conversation.calls_for_caller:
            assert history_problems(self.world.messages, question=asked) == []
        assert not [e for e in self.world.events if isinstance(e, Notice) and e.part == "cache"]
        for request in self.world.model.requests:
            assert history_problems(request.messages, sendable=True) == []
            check_anthropic(request.messages)
            check_openai(request.messages)
        self.world.model.requests.clear()
        if not trial.fault.startswith("emit"):
            check_events(self.world.events)


@requirement("loop:history:always-valid", "loop:cancel:valid-history")
@settings(max_examples=150)
@given(
    trials=st.lists(TRIALS, min_size=1, max_size=4),
    context_window=st.sampled_from([None, None, 1_500, 100_000]),
)
@example(
    trials=[
        Trial(
            replies=[Reply(calls=[Call(name="hang"), Call(name="ask_user"), Call(name="look")])],
            fault="cancel",
            at_event=n,
            hooks_fail=False,
            memory="text",
        )
        for n in range(1, 14)
    ],
    context_window=None,
)
@example(
    trials=[
        Trial(
            replies=[Reply(calls=[Call(name="look"), Call(name="nope"), Call(name="look", input="{")])],
            fault="cancel the task",
            at_event=n,
            hooks_fail=False,
            memory="",
        )
        for n in range(1, 14)
    ],
    context_window=None,
)
def test_whatever_happens_the_history_stays_valid_and_the_log_agrees(
    trials: list[Trial], context_window: int | None
) -> None:
    session = Trials(context_window=context_window)
    log: list[Event] = []

    async def run_all() -> None:
        for trial in trials:
            await session.run(trial)
            log.extend(session.world.events)
            if not session.unwritten:
                assert vars(replayed(log)) == vars(session.world.conversation)

    anyio.run(run_all)
    session.world.pool.close()
