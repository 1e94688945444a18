"""A turn from the user's message to the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from satchel.errors import ModelAuthError, ModelUnavailable, UsageError
from satchel.events import (
    Action,
    AskUser,
    Assistant,
    Event,
    Failure,
    Final,
    MemorySurfaced,
    Notice,
    Observation,
    Permission,
    RoundObserved,
    TextDelta,
    ToolProgress,
    TurnEnd,
    TurnStart,
)
from satchel.loop import Patience, PrefixWatch, TokenEstimator, ToolCallRecord, TurnLimits
from satchel.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock, Usage, size_of_message
from satchel.models.port import ModelEvent, ModelRequest, Retrying
from satchel.models.scripted import Call, Reply, ScriptedModel
from satchel.tools.port import ToolContext, ToolResult
from tests.loop.rules import history_problems
from tests.loop.world import World, asks, gives, says, tool
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def kinds(world: World) -> list[str]:
    return [event.type for event in world.events]


@requirement("loop:rounds:end", "loop:assistant-callback")
async def test_an_answer_without_calls_ends_the_turn_with_its_text() -> None:
    world = World([Reply(text="Hello, Ann.", chunk=6)])
    outcome = await world.run("Hi, I am Ann.")
    assert (outcome.status, outcome.text, outcome.rounds) == ("done", "Hello, Ann.", 1)
    assert kinds(world) == ["turn_start", "assistant", "final", "turn_end"]
    assert [event.text for event in world.shown if isinstance(event, TextDelta)] == ["Hello,", " Ann."]
    assert world.messages == (
        says("Hi, I am Ann."),
        Message(role="assistant", blocks=(TextBlock(text="Hello, Ann."),)),
    )


@requirement("loop:trace:accumulates", "loop:write-ahead", "loop:observation:single")
async def test_a_call_is_logged_run_and_answered_and_the_model_continues() -> None:
    world = World([Reply(calls=[Call(name="look", input={"x": 1})]), "It is raining."], gives("rain"))
    outcome = await world.run("Look outside.")
    assert kinds(world) == [
        "turn_start",
        "assistant",
        "permission",
        "action",
        "observation",
        "round_observed",
        "assistant",
        "final",
        "turn_end",
    ]
    assert outcome.text == "It is raining."
    assert outcome.steps == (
        ToolCallRecord(call_id="call_1", tool="look", input={"x": 1}, result="rain", is_error=False),
    )
    assert world.of(Observation) == [
        Observation(turn=1, round=1, call_id="call_1", tool="look", text="rain", duration_ms=0.0)
    ]
    assert world.of(RoundObserved) == [RoundObserved(turn=1, round=1, text="rain")]
    assert world.model.requests[1].messages == (
        says("Look outside."),
        Message(role="assistant", blocks=(ToolUseBlock(id="call_1", name="look", input={"x": 1}),)),
        Message(role="user", blocks=(ToolResultBlock(tool_use_id="call_1", content="rain"),)),
    )


@requirement("loop:write-ahead")
async def test_no_call_of_a_round_starts_before_all_of_them_are_written_down() -> None:
    seen: list[list[str]] = []

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        seen.append([event.call_id for event in world.of(Action)])
        return ToolResult(text="ok")

    world = World([Reply(calls=[Call(name="look")] * 3), "Done."], tool("look", call))
    await world.run()
    assert seen == [["call_1", "call_2", "call_3"]] * 3
    [batch] = [write for write in world.writes if any(isinstance(event, Action) for event in write)]
    assert [type(event) for event in batch] == [Permission] * 3 + [Action] * 3


@requirement("loop:rounds:max")
async def test_after_the_last_round_the_turn_ends_with_what_was_done_and_what_is_open() -> None:
    world = World(
        lambda request: Reply(calls=[Call(name="look", input={"x": len(request.messages)})]), gives("ok")
    )
    outcome = await world.run(limits=TurnLimits(max_rounds=2))
    assert (outcome.status, outcome.rounds, len(world.model.requests)) == ("limit", 2, 2)
    assert outcome.text == (
        "I stopped after 2 rounds, the limit for one turn (agent.max_rounds). Done so far: look ×2. The results of the "
        "last calls (look) have not been looked at yet. Say “go on” and I will continue."
    )
    assert history_problems(world.messages, sendable=True) == []


@requirement("loop:rounds:max")
async def test_a_turn_that_goes_round_in_circles_ends_and_one_that_finds_something_new_goes_on() -> None:
    def circling(request: ModelRequest) -> Reply:
        asked = len(request.messages) // 2
        return Reply(calls=[Call(name="look", input={"x": "new" if asked == 8 else asked % 3})])

    world = World(circling, gives("ok"))
    outcome = await world.run()
    # Three rounds, five that repeat them, a new one, and ten more.
    assert (outcome.status, outcome.rounds) == ("limit", 19)
    assert outcome.text == (
        "I stopped because 10 rounds in a row brought nothing new: the same calls, with the same results. "
        "Done so far: look ×19. Tell me what to try instead, or say “go on”."
    )
    assert history_problems(world.messages, sendable=True) == []


@requirement("loop:rounds:max")
async def test_a_turn_that_only_repeats_calls_ends_though_each_result_has_another_time() -> None:
    times = count()

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text=f"1 failed in 0.{next(times)} s")

    world = World(lambda _: Reply(calls=[Call(name="look")]), tool("look", call))
    outcome = await world.run(limits=TurnLimits(max_rounds=100))
    assert (outcome.status, outcome.rounds) == ("limit", 51)
    assert outcome.text == (
        "I stopped because 50 rounds in a row only repeated calls that were made before. "
        "Done so far: look ×51. Tell me what to try instead, or say “go on”."
    )


async def test_the_next_turn_follows_the_results_of_a_turn_that_was_stopped_by_its_limit() -> None:
    replies = iter([Reply(calls=[Call(name="look")]), Reply(text="Fine.")])
    world = World(lambda _: next(replies), gives("ok"))
    await world.run(limits=TurnLimits(max_rounds=1))
    outcome = await world.run("Go on.")
    assert outcome.text == "Fine."
    assert world.model.requests[1].messages[-1].blocks == (
        ToolResultBlock(tool_use_id="call_1", content="ok"),
        TextBlock(text="Go on."),
    )


@requirement("loop:ask-user:ends-turn")
async def test_ask_user_ends_the_turn_with_its_question_after_its_siblings_ended() -> None:
    world = World(
        [Reply(calls=[Call(name="ask_user"), Call(name="look")])], asks("Which one?"), gives("three doors")
    )
    outcome = await world.run()
    assert (outcome.status, outcome.text) == ("asking", "Which one?")
    asked = AskUser(turn=1, call_id="call_1", question="Which one?", options=("yes", "no"))
    assert outcome.question == asked
    assert kinds(world)[-4:] == ["round_observed", "ask_user", "final", "turn_end"]
    assert [event.call_id for event in world.of(Observation)] == ["call_2"]
    assert history_problems(world.messages, question="call_1") == []
    assert world.messages[-1].blocks == (ToolResultBlock(tool_use_id="call_2", content="three doors"),)


@requirement("loop:ask-user:answer")
async def test_the_next_message_is_the_result_of_the_open_question_in_the_order_asked() -> None:
    world = World(
        [Reply(calls=[Call(name="ask_user"), Call(name="look")]), "The red one, then."],
        asks("Which one?"),
        gives("three doors"),
    )
    await world.run()
    outcome = await world.run("The red one.")
    assert outcome.status == "done"
    assert world.model.requests[1].messages[-1] == Message(
        role="user",
        blocks=(
            ToolResultBlock(tool_use_id="call_1", content="The red one."),
            ToolResultBlock(tool_use_id="call_2", content="three doors"),
        ),
    )
    assert world.of(TurnStart)[1].answers == "call_1"


async def test_only_the_first_of_two_questions_is_asked() -> None:
    world = World([Reply(calls=[Call(name="ask_user")] * 2)], asks("Which one?"))
    outcome = await world.run()
    assert outcome.question is not None
    assert outcome.question.call_id == "call_1"
    [observation] = world.of(Observation)
    assert (observation.call_id, observation.is_error) == ("call_2", True)
    assert observation.text.startswith("Not asked: ask one question at a time.")


async def test_memory_that_was_surfaced_follows_the_message_and_is_replayed_unchanged() -> None:
    async def surface(messages: object) -> MemorySurfaced:
        return MemorySurfaced(turn=1, text="<memory>Mara: no shellfish</memory>", memories=(), tokens=9)

    world = World(["Noted.", "Yes."])
    await world.run("I cook for Mara.", surface=surface)
    await world.run("Anything else?")
    first = Message(
        role="user",
        blocks=(
            TextBlock(text="I cook for Mara."),
            TextBlock(text="<memory>Mara: no shellfish</memory>", origin="memory"),
        ),
    )
    assert world.model.requests[0].messages == (first,)
    assert world.model.requests[1].messages[0] == first
    assert kinds(world)[:3] == ["turn_start", "memory_surfaced", "assistant"]


async def test_a_memory_that_is_down_is_reported_and_does_not_stop_the_turn() -> None:
    async def surface(messages: object) -> MemorySurfaced:
        raise RuntimeError("no index")

    world = World(["Hello."])
    outcome = await world.run(surface=surface)
    assert outcome.status == "done"
    [failure] = world.of(Failure)
    assert (failure.part, failure.message) == ("memory", "no index")
    assert "RuntimeError: no index" in failure.traceback


async def test_a_model_failure_is_reported_and_the_next_turn_works() -> None:
    world = World([ModelAuthError("The key in X_KEY was refused. Set another one."), "Here I am."])
    outcome = await world.run("First.")
    assert (outcome.status, outcome.rounds) == ("failed", 0)
    assert outcome.text == (
        "scripted:scripted gave no answer. The key in X_KEY was refused. Set another one."
    )
    assert isinstance(outcome.error, ModelAuthError)
    assert kinds(world) == ["turn_start", "error", "final", "turn_end"]
    outcome = await world.run("Second.")
    assert outcome.status == "done"
    assert world.model.requests[1].messages == (
        Message(role="user", blocks=(TextBlock(text="First."), TextBlock(text="Second."))),
    )


async def test_what_was_shown_of_an_answer_that_was_cut_stays_in_the_history() -> None:
    world = World([Reply(text="The capital is", thinking="hm", cut=True)])
    outcome = await world.run()
    assert outcome.status == "failed"
    assert isinstance(outcome.error, ModelUnavailable)
    assert world.messages[-1] == Message(role="assistant", blocks=(TextBlock(text="The capital is"),))
    [assistant] = world.of(Assistant)
    assert assistant.usage.estimated
    assert assistant.usage.cost_usd is None


@requirement("loop:bounded:nonsense")
async def test_an_answer_that_does_not_end_costs_about_what_the_provider_asks_for_it() -> None:
    for reply in (Reply(text="bla " * 10_000, chunk=100), Reply(text="bla " * 300, cut=True)):
        world = World([reply])
        world.model.price = lambda usage: replace(usage, cost_usd=usage.output_tokens / 100)  # type: ignore[attr-defined]
        outcome = await world.run(limits=TurnLimits(max_answer_bytes=2_000))
        assert outcome.usage.cost_usd is not None
        assert outcome.usage.cost_usd > 2


async def test_an_estimate_of_the_programs_own_counter_costs_what_it_counts() -> None:
    for estimated in (True, False):
        world = World(
            [Reply(text="bla", usage=Usage(output_tokens=9_000, cost_usd=90.0, estimated=estimated))]
        )
        world.model.price = lambda usage: replace(usage, cost_usd=usage.output_tokens / 100)  # type: ignore[attr-defined]
        outcome = await world.run(estimator=TokenEstimator(len))
        assert outcome.usage.cost_usd == outcome.usage.output_tokens / 100
        assert (outcome.usage.output_tokens < 100) == estimated


async def test_an_adapter_with_a_defect_does_not_cost_the_conversation() -> None:
    def broken(request: object) -> Reply:
        raise KeyError("choices")

    world = World(broken)
    outcome = await world.run()
    assert outcome.status == "failed"
    [failure] = world.of(Failure)
    assert (failure.part, failure.error) == ("model", "KeyError")
    assert "KeyError: 'choices'" in failure.traceback


async def test_a_retry_of_the_model_is_a_notice() -> None:
    world = World(
        [Reply(text="Hi.", retrying=[Retrying(attempt=2, delay_s=1.5, reason="It is overloaded.")])]
    )
    await world.run()
    assert world.of(Notice) == [
        Notice(part="model", text="It is overloaded. Trying again in 1.5 s (attempt 2).")
    ]


async def test_a_call_that_was_cut_off_by_the_output_limit_is_not_run() -> None:
    ran: list[object] = []

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        ran.append(input)
        return ToolResult(text="ok")

    world = World(
        [
            Reply(
                calls=[Call(name="look"), Call(name="look", input='{"x": "half')], stop_reason="max_tokens"
            ),
            "Then in pieces.",
        ],
        tool("look", call),
    )
    outcome = await world.run()
    assert outcome.status == "done"
    assert ran == [{}]
    assert [(step.is_error, step.result.split(":")[0]) for step in outcome.steps] == [
        (False, "ok"),
        (True, "Not run"),
    ]


async def test_text_that_was_cut_off_by_the_output_limit_says_so() -> None:
    world = World([Reply(text="Once upon", stop_reason="max_tokens")])
    outcome = await world.run()
    assert outcome.status == "limit"
    assert outcome.text.startswith("Once upon\n\n[The answer was cut off")


async def test_a_refusal_of_the_provider_runs_no_call_and_says_so() -> None:
    world = World([Reply(text="I", calls=[Call(name="look")], stop_reason="refusal")], gives("never"))
    outcome = await world.run()
    assert outcome.status == "failed"
    assert "scripted refused to continue this answer" in outcome.text
    assert world.of(Action) == []
    assert history_problems(world.messages) == []


async def test_an_empty_answer_is_said_to_be_empty() -> None:
    world = World([Reply(), "Now."])
    outcome = await world.run()
    assert outcome.status == "failed"
    assert outcome.text.startswith("scripted:scripted gave an empty answer.")
    assert (await world.run()).text == "Now."


async def test_an_empty_answer_after_tools_gives_what_was_said_before_them() -> None:
    world = World([Reply(text="I look, and that is all.", calls=[Call(name="look")]), Reply()], gives("ok"))
    outcome = await world.run()
    assert (outcome.status, outcome.text) == ("done", "I look, and that is all.")


@requirement("loop:budget:tokens")
async def test_the_budget_of_tokens_ends_the_turn_before_a_call_that_would_break_it() -> None:
    world = World(
        [Reply(calls=[Call(name="look")], usage=Usage(input_tokens=400, output_tokens=90))], gives("ok")
    )
    outcome = await world.run(budget=world.budget(turn_tokens=500))
    assert outcome.status == "limit"
    assert "budget.turn_tokens" in outcome.text
    assert len(world.model.requests) == 1
    assert history_problems(world.messages, sendable=True) == []


@requirement("loop:budget:money")
async def test_the_budget_of_dollars_counts_what_was_spent_before_and_starts_no_call_after_it() -> None:
    async def spent() -> float:
        return 0.90 + (world.conversation.usage.cost_usd or 0.0)

    usage = Usage(input_tokens=9, output_tokens=9, cost_usd=0.15)
    world = World([Reply(calls=[Call(name="look")], usage=usage)], gives("ok"))
    outcome = await world.run(budget=world.budget(session_usd=5.0, day_usd=1.0, spent_on_day=spent))
    assert outcome.status == "limit"
    assert outcome.text.startswith(
        "I stopped. The budget of a day, 1.00 US dollars (budget.day_usd), is used up: 1.05 are spent."
    )
    assert world.of(Action) == []
    [observation] = world.of(Observation)
    assert observation.text.startswith("Not started: The budget of a day")


async def test_a_budget_in_dollars_says_that_it_cannot_be_held_without_a_price() -> None:
    world = World([Reply(calls=[Call(name="look")]), "Done."], gives("ok"))
    outcome = await world.run(budget=world.budget(session_usd=1.0))
    assert outcome.status == "done"
    [notice] = world.of(Notice)
    assert notice.part == "budget"
    assert "No price is known" in notice.text


@requirement("loop:bounded:nonsense")
async def test_endless_text_is_stopped_and_what_came_is_kept() -> None:
    world = World([Reply(text="bla " * 10_000, chunk=100)])
    outcome = await world.run(limits=TurnLimits(max_answer_bytes=1_000))
    assert outcome.status == "limit"
    assert len(world.messages[-1].text) == 1_100
    assert outcome.text.endswith("its answer was cut off after 1,000 bytes.]")
    assert history_problems(world.messages) == []


@requirement("loop:bounded:nonsense")
async def test_the_same_call_with_the_same_result_is_pointed_out_and_then_ends_the_turn() -> None:
    world = World(lambda _: Reply(calls=[Call(name="look", input={"x": 1})]), gives("nothing"))
    outcome = await world.run()
    assert (outcome.status, outcome.rounds) == ("limit", 4)
    texts = [event.text for event in world.of(Observation)]
    assert texts[:2] == ["nothing", "nothing"]
    assert texts[2].startswith("nothing\n\n[You have made this same call in 3 rounds in a row")
    assert "the same call (look) 4 times in a row" in outcome.text


@requirement("loop:bounded:nonsense")
async def test_of_a_thousand_calls_in_one_round_some_run_and_all_are_answered() -> None:
    world = World([Reply(calls=[Call(name="look")] * 1000), "Enough."], gives("ok"))
    outcome = await world.run(limits=TurnLimits(max_calls=20))
    assert outcome.status == "done"
    assert len(world.of(Action)) == 20
    assert len(world.of(Observation)) == 1000
    assert world.of(Observation)[-1].text.startswith("ok")
    refused = [event for event in world.of(Observation) if event.is_error]
    assert len(refused) == 980
    assert refused[0].text.startswith("Not run: at most 20 calls are run in one round")
    assert history_problems(world.messages) == []


async def test_a_message_that_says_nothing_is_refused_before_anything_is_written() -> None:
    world = World([])
    with pytest.raises(UsageError, match="The message is empty"):
        await world.run(" \n")
    assert world.events == []


async def test_nul_and_lone_surrogates_are_replaced_wherever_they_come_from() -> None:
    world = World([Reply(text="a\ud800b", calls=[Call(name="look")]), "Done."], gives("c\udcffd\0"))
    outcome = await world.run("x\0y\udfff")
    assert world.messages[0].text == "x\ufffdy\ufffd"
    assert world.messages[1].text == "a\ufffdb"
    assert outcome.steps[0].result == "c\ufffdd\ufffd"
    assert history_problems(world.messages) == []


async def test_call_ids_that_come_again_are_made_unique() -> None:
    replies = iter(
        [
            Reply(calls=[Call(name="look", id="a"), Call(name="look", id="a")]),
            Reply(calls=[Call(name="look", id="a")]),
            Reply(text="Done."),
        ]
    )
    world = World(lambda _: next(replies), gives("ok"))
    outcome = await world.run()
    assert [event.call_id for event in world.of(Action)] == ["a", "a_2", "a_3"]
    assert [step.call_id for step in outcome.steps] == ["a", "a_2", "a_3"]


@requirement("loop:prompt:stable")
async def test_every_request_begins_with_the_bytes_of_the_one_before() -> None:
    replies = iter(
        [
            Reply(calls=[Call(name="look")]),
            Reply(text="One."),
            Reply(calls=[Call(name="look")] * 2),
            Reply(text="Two."),
        ]
    )
    world = World(lambda _: next(replies), gives("ok"))
    watch = PrefixWatch()
    await world.run("First.", watch=watch)
    await world.run("Second.", watch=watch)
    assert world.of(Notice) == []
    requests = world.model.requests
    for before, after in zip(requests, requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages
        assert (after.system, after.tools) == (before.system, before.tools)


@requirement("models:cache:broken-prefix")
async def test_a_broken_prefix_is_reported_with_its_cause() -> None:
    world = World(["One.", "Two."], gives("ok"))
    watch = PrefixWatch()
    await world.run("First.", watch=watch)
    world.begin_with(says("Something else."), *world.messages[1:])
    await world.run("Second.", watch=watch)
    [notice] = world.of(Notice)
    assert notice == Notice(
        part="cache",
        text="Message 1 of 1 changed after it was sent. The provider has to read the whole conversation again.",
    )


@requirement("loop:events:tool-order")
async def test_progress_comes_between_the_start_of_a_call_and_its_result() -> None:
    late: list[ToolContext] = []

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        late.append(context)
        await context.progress({"found": 3})
        return ToolResult(text="ok")

    world = World([Reply(calls=[Call(name="look")]), "Done."], tool("look", call))
    await world.run()
    await late[0].progress({"found": 4})
    shown = [e for e in world.shown if isinstance(e, Action | ToolProgress | Observation)]
    assert [type(event) for event in shown] == [Action, ToolProgress, Observation]
    assert shown[1] == ToolProgress(call_id="call_1", tool="look", data={"found": 3})


async def test_a_journal_that_breaks_ends_the_turn_before_the_tool_starts() -> None:
    ran: list[object] = []

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        ran.append(input)
        return ToolResult(text="ok")

    async def full(event: object) -> None:
        if isinstance(event, Action):
            raise OSError(28, "No space left on device")

    world = World([Reply(calls=[Call(name="look")])], tool("look", call))
    world.on_emit = full
    outcome = await world.run()
    assert ran == []
    assert outcome.status == "failed"
    assert "No space left on device" in outcome.text
    assert history_problems(world.messages, sendable=True) == []
    assert len(world.of(Final)) == len(world.of(TurnEnd)) == 1


async def test_a_question_that_could_not_be_written_down_is_not_open() -> None:
    async def full(event: object) -> None:
        if isinstance(event, AskUser):
            raise OSError(28, "No space left on device")

    world = World([Reply(calls=[Call(name="ask_user")])], asks("Which one?"))
    world.on_emit = full
    outcome = await world.run()
    assert (outcome.status, outcome.question) == ("failed", None)
    assert outcome.text.startswith("Which one?\n\nAn internal error occurred in Satchel (OSError")
    assert history_problems(world.messages, sendable=True) == []


async def test_a_turn_adds_up_what_it_used() -> None:
    world = World(
        [
            Reply(calls=[Call(name="look")], usage=Usage(input_tokens=10, output_tokens=2, cost_usd=0.5)),
            Reply(text="Done.", usage=Usage(input_tokens=20, output_tokens=3, cost_usd=0.25)),
        ],
        gives("ok"),
    )
    outcome = await world.run()
    assert outcome.usage == Usage(input_tokens=30, output_tokens=5, cost_usd=0.75)
    [end] = world.of(TurnEnd)
    assert (end.usage, end.rounds, end.status) == (outcome.usage, 2, "done")


@requirement("loop:flat-rounds")
async def test_a_round_looks_at_its_own_messages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Message] = []

    def count(message: Message) -> int:
        looked.append(message)
        return size_of_message(message)

    monkeypatch.setattr("satchel.conversation.size_of_message", count)
    world = World(
        lambda request: Reply(calls=[Call(name="look", input={"x": len(request.messages)})]), gives("ok")
    )
    await world.run(limits=TurnLimits(max_rounds=50))
    assert len(world.messages) == 101
    assert len(looked) == 101


class Silent(ScriptedModel):
    """Sends the beginning of an answer, and the rest when the test says so; by default never."""

    goes_on = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        yield TextDelta(text="Well")
        while not self.goes_on:
            await anyio.lowlevel.checkpoint()
        async for event in super().stream(request):
            yield event


@requirement("loop:model-silence")
async def test_a_model_that_sends_nothing_is_told_of_and_then_given_up() -> None:
    world = World([], limits=TurnLimits(patience=Patience(tell_s=0.01, end_s=0.02)))
    world.model = Silent([])
    outcome = await world.run("Hi.")
    [notice] = world.of(Notice)
    assert (
        notice.text
        == "scripted:scripted has sent nothing for 0.01 s. It may take 0.02 s (agent.model_timeout_s)."
    )
    assert outcome.status == "failed"
    assert "scripted:scripted sent nothing for 0.02 s, the limit (agent.model_timeout_s)." in outcome.text
    assert not history_problems(world.messages)


@requirement("loop:model-silence")
async def test_a_model_that_goes_on_after_a_silence_is_heard() -> None:
    world = World([], limits=TurnLimits(patience=Patience(tell_s=0.01)))
    model = world.model = Silent(["Hello."])

    async def on_emit(event: Event) -> None:
        if isinstance(event, Notice):
            model.goes_on = True

    world.on_emit = on_emit
    outcome = await world.run("Hi.")
    assert (outcome.status, outcome.text) == ("done", "Hello.")
    assert len(world.of(Notice)) == 1
