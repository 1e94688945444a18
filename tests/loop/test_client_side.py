"""Tools whose calls the caller runs: a turn ends with them, and the next message brings their results."""

from __future__ import annotations

from itertools import permutations

import pytest

from satchel.conversation import Conversation
from satchel.errors import UsageError
from satchel.events import Action, Event, Observation, Permission, RoundObserved
from satchel.loop import TokenEstimator, compact
from satchel.messages import Block, Message, TextBlock, ToolResultBlock, ToolUseBlock
from satchel.models.scripted import Call, Reply, ScriptedModel
from satchel.tools import client_tool
from tests.loop.rules import check_events, history_problems
from tests.loop.test_any_turn import replayed
from tests.loop.world import World, asks, gives, says
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

THEIRS = client_tool(
    name="theirs",
    description="Runs in the caller.",
    input_schema={"type": "object", "properties": {"x": {"type": "integer"}}},
)


def result(id: str, text: str) -> ToolResultBlock:
    return ToolResultBlock(tool_use_id=id, content=text)


def message(*blocks: Block) -> Message:
    return Message(role="user", blocks=blocks)


def calling(*more: Call) -> World:
    calls = [Call(name="theirs", input={"x": 1}), Call(name="look"), Call(name="theirs"), *more]
    return World([Reply(text="Let me see.", calls=calls), "Done."], THEIRS, gives("rain"), asks("Which?"))


@requirement("loop:client-side")
async def test_ordinary_calls_run_and_those_of_the_caller_end_the_turn_open() -> None:
    world = calling()
    outcome = await world.run()
    assert (outcome.status, outcome.text) == ("calling", "Let me see.")
    assert world.conversation.calls_for_caller == (
        ToolUseBlock(id="call_1", name="theirs", input={"x": 1}),
        ToolUseBlock(id="call_3", name="theirs", input={}),
    )
    assert [event.call_id for event in world.of(Observation)] == ["call_2"]
    assert [event.call_id for event in (*world.of(Permission), *world.of(Action))] == ["call_2", "call_2"]
    check_events(world.events)
    assert vars(replayed(world.events)) == vars(world.conversation)


@requirement("loop:client-side", "loop:conversation:replay")
@pytest.mark.parametrize("order", [*permutations([0, 1, 2])])
async def test_the_next_message_brings_results_in_any_order_and_words_beside_them(
    order: tuple[int, ...],
) -> None:
    world = calling()
    await world.run()
    blocks: list[Block] = [
        result("call_1", "one"),
        result("call_3", "three"),
        TextBlock(text="Hurry."),
    ]
    outcome = await world.run(message(*(blocks[place] for place in order)))
    assert (outcome.status, world.conversation.calls_for_caller) == ("done", ())
    assert world.model.requests[1].messages[-1] == message(
        result("call_1", "one"), result("call_2", "rain"), result("call_3", "three"), TextBlock(text="Hurry.")
    )
    assert vars(replayed(world.events)) == vars(world.conversation)


@requirement("loop:client-side")
async def test_a_call_without_a_result_gets_an_error_and_an_unknown_one_is_refused() -> None:
    world = calling()
    await world.run()
    for wrong in ("call_2", "nope"):
        with pytest.raises(UsageError, match=f"No open call has the id '{wrong}'"):
            await world.run(message(result(wrong, "x")))
    with pytest.raises(UsageError, match="given twice"):
        await world.run(message(result("call_1", "x"), result("call_1", "y")))
    await world.run(message(result("call_3", "three")))
    first, _, third = world.model.requests[1].messages[-1].blocks
    assert isinstance(first, ToolResultBlock)
    assert (first.is_error, first.content) == (True, "The program that runs this call gave no result for it.")
    assert third == result("call_3", "three")


@requirement("loop:client-side")
async def test_input_that_does_not_fit_never_reaches_the_caller() -> None:
    world = World([Reply(calls=[Call(name="theirs", input={"x": "no"})]), "Sorry."], THEIRS)
    outcome = await world.run()
    assert (outcome.status, outcome.text) == ("done", "Sorry.")
    assert "$.x" in outcome.steps[0].result
    assert outcome.steps[0].error_code == "INVALID_INPUT"


@requirement("loop:client-side")
async def test_a_question_beside_calls_of_the_caller_is_sent_back() -> None:
    world = calling(Call(name="ask_user"))
    outcome = await world.run()
    assert (outcome.status, outcome.question) == ("calling", None)
    asked = world.of(Observation)[-1]
    assert (asked.call_id, asked.is_error, asked.text[:10]) == ("call_4", True, "Not asked:")


@requirement("loop:client-side", "loop:turn:resumed")
async def test_every_prefix_of_such_a_session_gives_a_valid_history_and_can_go_on() -> None:
    world = calling()
    await world.run()
    await world.run(message(result("call_1", "one"), result("call_3", "three")))
    for end in range(1, len(world.events) + 1):
        left = replayed(world.events[:end])
        later = World(["Done."], THEIRS, gives("rain"), asks("Which?"))
        later.conversation = left
        if left.is_unfinished:
            outcome = await later.run(None)
            assert outcome.status in ("calling", "done")
        if later.conversation.status == "calling":
            await later.run("Never mind.")
        assert history_problems(later.messages) == []
        assert isinstance(later.conversation, Conversation)


async def test_a_round_of_the_callers_alone_has_nothing_to_merge() -> None:
    world = World([Reply(calls=[Call(name="theirs")])], THEIRS)
    assert (await world.run()).status == "calling"
    assert world.of(RoundObserved) == []


async def nothing(event: Event) -> None:
    raise AssertionError(event)


@requirement("loop:client-side", "loop:compaction:pairs")
async def test_a_compaction_while_calls_are_open_keeps_them_open() -> None:
    world = calling()
    world.begin_with(says("x " * 3_000), Message(role="assistant", blocks=(TextBlock(text="y " * 3_000),)))
    started = world.conversation
    await world.run()
    compacted = await compact(
        world.messages,
        model=ScriptedModel([], provider="none"),
        turn=1,
        trigger="manual",
        emit=nothing,
        estimator=TokenEstimator(),
    )
    assert compacted is not None
    world.conversation.apply(compacted)
    assert [call.id for call in world.conversation.open_calls] == ["call_1", "call_3"]
    outcome = await world.run(message(result("call_3", "three"), result("call_1", "one")))
    assert (outcome.status, outcome.text) == ("done", "Done.")
    assert [b.tool_use_id for b in world.messages[-2].blocks if isinstance(b, ToolResultBlock)] == [
        "call_1",
        "call_2",
        "call_3",
    ]
    assert history_problems(world.messages) == []
    assert world.conversation is started
