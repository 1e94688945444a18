"""Making room in the model's window."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Literal

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import ContextOverflow, ModelUnavailable
from satchel.events import Compaction, Event, ModelCalled, Notice
from satchel.loop import PrefixWatch, TokenEstimator, TurnLimits, compact
from satchel.messages import Block, FileBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock, Usage
from satchel.models.port import ModelRequest
from satchel.models.scripted import Call, Reply, ScriptedModel
from tests.loop.rules import history_problems
from tests.loop.world import World, gives, says
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def answers(text: str) -> Message:
    return Message(role="assistant", blocks=(TextBlock(text=text),))


def is_summary(request: ModelRequest) -> bool:
    return request.system.startswith("You write the summary")


async def nothing(event: Event) -> None:
    raise AssertionError(event)


TALK = (
    says("My sister Mara is allergic to shellfish. " * 20),
    answers("Noted. " * 100),
    says("We eat at eight. " * 40),
    answers("Eight it is. " * 50),
    says("What shall I cook?"),
    answers("A risotto."),
)


async def test_older_messages_become_a_summary_that_the_model_writes_with_the_focus_of_the_user() -> None:
    model = ScriptedModel(
        [Reply(text="Mara must not eat shellfish.", usage=Usage(input_tokens=500, output_tokens=9))],
        context_window=20_000,
    )
    # The originals are large; what is sent of each is small.
    boiler, label = (
        FileBlock(sha256=name[0] * 64, media_type="image/png", name=name, size=9_000_000)
        for name in ("boiler.png", "label.png")
    )
    seen = Message(role="user", blocks=(boiler, boiler, label, *TALK[0].blocks))
    event = await compact(
        (seen, *TALK[1:]),
        model=model,
        turn=3,
        trigger="manual",
        emit=nothing,
        estimator=TokenEstimator(),
        focus="the allergies",
        read_file=dict.fromkeys((boiler, boiler.small_twin, label, label.small_twin), b"jpeg").get,
    )
    assert event is not None
    assert event.messages[1:] == TALK[1:]
    note = event.messages[0].blocks[0]
    assert isinstance(note, TextBlock)
    assert note.origin == "notice"
    assert note.text.endswith("\n\nMara must not eat shellfish.")
    assert (event.trigger, event.focus, event.turn) == ("manual", "the allergies", 3)
    assert event.usage == Usage(input_tokens=500, output_tokens=9)
    assert event.after_tokens < event.before_tokens
    [request] = model.requests
    assert request.tools == ()
    assert "allergic to shellfish" in request.messages[0].blocks[0].text  # type: ignore[union-attr]
    assert request.messages[0].blocks[0].text.endswith("above all: the allergies")  # type: ignore[union-attr]
    # It describes the pictures, which the summary replaces, each after its name.
    named = [
        block.text if isinstance(block, TextBlock) else block for block in request.messages[0].blocks[1:]
    ]
    assert named == ["FILE boiler.png:", boiler, "FILE label.png:", label]
    assert request.read_file is not None
    assert request.read_file(boiler) == b"jpeg"
    assert history_problems(event.messages) == []


async def test_nothing_is_dropped_when_the_user_asks_for_a_summary_and_the_model_fails() -> None:
    model = ScriptedModel([ModelUnavailable("It is down.")])
    with pytest.raises(ModelUnavailable, match="It is down"):
        await compact(TALK, model=model, turn=3, trigger="manual", emit=nothing, estimator=TokenEstimator())


async def test_a_summary_that_fails_with_pictures_is_asked_for_without_them() -> None:
    model = ScriptedModel([ContextOverflow("Too long."), Reply(text="Mara.")], context_window=10_000)
    boiler = FileBlock(sha256="a" * 64, media_type="image/png", name="boiler.png", size=3)
    seen = Message(role="user", blocks=(boiler, *TALK[0].blocks))
    event = await compact(
        (seen, *TALK[1:]), model=model, turn=3, trigger="auto", emit=nothing, estimator=TokenEstimator()
    )
    assert event is not None
    assert event.messages[0].text == ""
    assert event.messages[0].blocks[0].text.endswith("\n\nMara.")  # type: ignore[union-attr]
    assert [request.messages[0].files for request in model.requests] == [(boiler,), ()]


async def test_without_a_language_model_the_oldest_messages_are_left_out_with_a_note() -> None:
    model = ScriptedModel([], provider="none")
    event = await compact(
        TALK, model=model, turn=3, trigger="manual", emit=nothing, estimator=TokenEstimator()
    )
    assert event is not None
    assert model.requests == []
    note = event.messages[0].blocks[0]
    assert isinstance(note, TextBlock)
    assert note.text == (
        "[Notice from Satchel: 3 older messages (2 of the user, 0 tool calls) were dropped here to make room. "
        "The session log still has them.]"
    )
    assert event.messages[1:] == TALK[3:]


@pytest.mark.parametrize(
    "reply", [ModelUnavailable("It is down."), Reply(), Reply(text="x" * 100_000, chunk=1000)]
)
async def test_a_model_that_cannot_summarise_does_not_keep_room_from_being_made(
    reply: Reply | ModelUnavailable,
) -> None:
    told: list[Event] = []

    async def tell(event: Event) -> None:
        told.append(event)

    model = ScriptedModel([reply], context_window=10_000)
    event = await compact(TALK, model=model, turn=3, trigger="auto", emit=tell, estimator=TokenEstimator())
    assert event is not None
    assert [notice.part for notice in told if isinstance(notice, Notice)] == ["compaction"]
    assert "were dropped here to make room" in event.messages[0].blocks[0].text  # type: ignore[union-attr]


async def test_a_short_history_is_not_compacted() -> None:
    model = ScriptedModel([])
    for messages in ((), (says("Hi."),), (says("Hi."), answers("Hello."))):
        event = await compact(
            messages, model=model, turn=1, trigger="manual", emit=nothing, estimator=TokenEstimator()
        )
        assert event is None


@requirement("loop:compaction:auto")
async def test_room_is_made_in_the_middle_of_a_turn_and_what_the_user_asked_stays() -> None:
    numbers = count()

    def reply(request: ModelRequest) -> Reply:
        if is_summary(request):
            return Reply(text="So far nothing was found.")
        number = next(numbers)
        return Reply(calls=[Call(name="look", input={"x": number})]) if number < 7 else Reply(text="Found.")

    world = World(reply, gives("dust " * 700), context_window=6_000)
    watch = PrefixWatch()
    outcome = await world.run("Find the ring.", watch=watch)
    assert (outcome.status, outcome.text) == ("done", "Found.")
    compactions = world.of(Compaction)
    assert len(compactions) >= 1
    for event in compactions:
        assert event.trigger == "auto"
        assert event.messages[0].text == "Find the ring."
        assert history_problems(event.messages, sendable=True) == []
    assert world.of(Notice) == [], "a compaction is no broken prefix"
    for request in world.model.requests:
        assert history_problems(request.messages, sendable=True) == []


@requirement("loop:compaction:auto")
@pytest.mark.parametrize("words", [(TextBlock(text="Find this ring."),), ()])
async def test_a_picture_stays_with_the_words_that_it_came_with_or_without(
    words: tuple[TextBlock, ...],
) -> None:
    numbers = count()

    def reply(request: ModelRequest) -> Reply:
        if is_summary(request):
            return Reply(text="So far nothing was found.")
        number = next(numbers)
        return Reply(calls=[Call(name="look", input={"x": number})]) if number < 9 else Reply(text="Found.")

    world = World(reply, gives("dust " * 3_000), context_window=30_000)
    world.begin_with(says("Where is my hat?"), answers("On the shelf."))
    ring = FileBlock(sha256="a" * 64, media_type="image/png", name="ring.png", size=3)
    outcome = await world.run(Message(role="user", blocks=(ring, *words)))
    assert outcome.text == "Found."
    assert len(world.of(Compaction)) >= 1
    asked = [request for request in world.model.requests if not is_summary(request)]
    sent = [[file for message in request.messages for file in message.files] for request in asked]
    assert sent == [[ring]] * len(asked)
    assert asked[-1].messages[0].text == "".join(block.text for block in words)


async def test_a_document_that_no_model_has_seen_yet_is_not_dropped_with_the_older_messages() -> None:
    model = ScriptedModel(["A summary."], context_window=30_000)
    plan = FileBlock(sha256="b" * 64, media_type="text/plain", name="plan.txt", size=45_000)
    asked = Message(role="user", blocks=(plan, *says("What does the plan say?").blocks))
    event = await compact(
        (*TALK, says("old " * 5_000), answers("y"), asked),
        model=model,
        turn=5,
        trigger="auto",
        emit=nothing,
        estimator=TokenEstimator(),
    )
    assert event is not None
    assert event.messages[-1].files == (plan,)


async def test_of_long_results_in_chinese_as_much_is_kept_as_there_is_room() -> None:
    model = ScriptedModel(["A summary."], context_window=40_000)
    call = Message(role="assistant", blocks=(ToolUseBlock(id="c1", name="look", input={}),))
    result = Message(role="user", blocks=(ToolResultBlock(tool_use_id="c1", content="灰尘" * 15_000),))
    event = await compact(
        (says("old " * 15_000), answers("y"), says("Find the ring."), call, result),
        model=model,
        turn=2,
        trigger="auto",
        emit=nothing,
        estimator=TokenEstimator(),
    )
    assert event is not None
    [kept] = [b for b in event.messages[-1].blocks if isinstance(b, ToolResultBlock)]
    # A third of the window in bytes, of which each character has three.
    assert 10_000 < len(kept.content) < 15_000


async def test_a_request_that_overflows_is_compacted_and_sent_once_more() -> None:
    long_ago = (says("x " * 3_000), answers("y " * 3_000))
    world = World([ContextOverflow("It is too long."), "A summary.", "Here."])
    world.begin_with(*long_ago)
    outcome = await world.run("And now?")
    assert (outcome.status, outcome.text, outcome.rounds) == ("done", "Here.", 1)
    assert [is_summary(request) for request in world.model.requests] == [False, True, False]
    assert world.model.requests[2].messages[-1].text == "And now?"


async def test_a_request_that_overflows_twice_is_reported_and_the_session_is_not_stuck() -> None:
    def reply(request: ModelRequest) -> Reply:
        if is_summary(request):
            return Reply(text="A summary.")
        if sum(len(message.text) for message in request.messages) > 10_000:
            raise ContextOverflow("It is 50,000 tokens.")
        return Reply(text="Fine.")

    world = World(reply, context_window=8_000)
    outcome = await world.run("x " * 30_000)
    assert outcome.status == "failed"
    assert "no longer fits the context window of scripted:scripted" in outcome.text
    outcome = await world.run("Short, then.")
    assert (outcome.status, outcome.text) == ("done", "Fine.")


@requirement("loop:tokens:calibrated")
async def test_estimates_follow_what_the_provider_counted() -> None:
    estimator = TokenEstimator()
    assert estimator.tokens(3_600) == 1_000
    estimator.learn(10_000, 4_000)
    assert (estimator.tokens(10_000), estimator.bytes(4_000)) == (4_000, 10_000)
    for size, tokens in ((10_000, 1), (10, 10_000), (0, 5), (5, 0)):
        estimator.learn(size, tokens)
    assert estimator.tokens(10_000) == 4_000, "a count that can't be is not believed"
    world = World([Reply(text="Hi.", usage=Usage(input_tokens=20, output_tokens=1))])
    await world.run("x" * 28, estimator=estimator)
    assert estimator.bytes_per_token == pytest.approx((28 + 24 + len("You are a test.")) / 20)


async def test_usage_that_was_only_estimated_teaches_nothing() -> None:
    estimator = TokenEstimator()
    world = World([Reply(text="Hi.", usage=Usage(input_tokens=20, output_tokens=1, estimated=True))])
    await world.run("x" * 28, estimator=estimator)
    assert estimator.bytes_per_token == TokenEstimator().bytes_per_token


async def test_compaction_counts_towards_the_usage_of_the_turn() -> None:
    def reply(request: ModelRequest) -> Reply:
        if is_summary(request):
            return Reply(text="A summary.", usage=Usage(input_tokens=1_000, output_tokens=10, cost_usd=0.5))
        return Reply(text="Fine.", usage=Usage(input_tokens=100, output_tokens=1, cost_usd=0.25))

    world = World(reply, context_window=2_000)
    world.begin_with(says("x " * 3_000), answers("y " * 3_000))
    outcome = await world.run("And now?")
    assert outcome.usage == Usage(input_tokens=1_100, output_tokens=11, cost_usd=0.75)


@pytest.mark.parametrize("trigger", ["auto", "manual"])
@pytest.mark.parametrize(
    ("talk", "reply"),
    [
        (TALK, Reply(usage=Usage(output_tokens=1, cost_usd=0.5))),
        (TALK, Reply(text="x" * 100_000, chunk=1000)),
        # Longer than what it would replace.
        (TALK[:4], Reply(text="x" * 9_000, usage=Usage(output_tokens=1, cost_usd=0.5))),
    ],
)
async def test_a_summary_that_came_to_nothing_costs_what_it_costs(
    talk: Sequence[Message], reply: Reply, trigger: Literal["auto", "manual"]
) -> None:
    model = ScriptedModel([reply], context_window=10_000)
    model.price = lambda usage: replace(usage, cost_usd=0.5)  # type: ignore[attr-defined]
    told: list[Event] = []

    async def tell(event: Event) -> None:
        told.append(event)

    done = None
    with suppress(ModelUnavailable):
        done = await compact(
            talk, model=model, turn=3, trigger=trigger, emit=tell, estimator=TokenEstimator()
        )
    called = [(each.purpose, each.usage.cost_usd) for each in told if isinstance(each, ModelCalled)]
    assert called == ([] if done else [("compaction", 0.5)])
    assert done is None or (trigger, done.usage.cost_usd) == ("auto", 0.5)


async def test_a_summary_that_is_stopped_costs_what_it_costs() -> None:
    async def stop() -> None:
        turn.cancel()
        await anyio.lowlevel.checkpoint()

    world = World([Reply(text="x" * 5_000, chunk=100, between=stop)], context_window=2_000)
    world.model.price = lambda usage: replace(usage, cost_usd=0.5)  # type: ignore[attr-defined]
    world.begin_with(says("x " * 3_000), answers("y " * 3_000))
    turn = world.turn("And now?")
    outcome = await turn.run()
    assert (outcome.status, outcome.usage.cost_usd) == ("cancelled", 0.5)


async def test_a_window_that_stays_full_is_not_summarised_again_and_again() -> None:
    numbers = count()

    def reply(request: ModelRequest) -> Reply:
        if is_summary(request):
            return Reply(text="A summary.")
        number = next(numbers)
        return Reply(calls=[Call(name="look", input={"x": number})]) if number < 5 else Reply(text="Fine.")

    # What the user said alone fills more than the threshold; nothing can be done about it.
    world = World(reply, gives("ok"), context_window=2_000)
    await world.run("x" * 8_000, limits=TurnLimits(max_rounds=10))
    assert sum(is_summary(request) for request in world.model.requests) <= 1


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    texts = st.sampled_from(["a", "word " * 20, "line\n" * 200])
    number = 0
    for _ in range(draw(st.integers(1, 8))):
        blocks: list[Block] = [TextBlock(text=draw(texts))]
        if draw(st.booleans()):
            blocks.append(TextBlock(text="<memory>", origin="memory"))
        if messages and messages[-1].role == "user":
            messages[-1] = Message(role="user", blocks=(*messages[-1].blocks, *blocks))
        else:
            messages.append(Message(role="user", blocks=tuple(blocks)))
        for _ in range(draw(st.integers(0, 4))):
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                calls.append(ToolUseBlock(id=f"c{number}", name="look", input={"x": draw(texts)}))
            messages.append(Message(role="assistant", blocks=tuple(calls)))
            results = tuple(ToolResultBlock(tool_use_id=call.id, content=draw(texts)) for call in calls)
            messages.append(Message(role="user", blocks=results))
        if draw(st.booleans()):
            messages.append(answers(draw(texts)))
    return messages


@requirement("loop:compaction:pairs")
@given(messages=histories(), window=st.sampled_from([None, 50, 500, 5_000]), fails=st.booleans())
def test_no_call_is_ever_parted_from_its_result_and_the_newest_words_stay(
    messages: list[Message], window: int | None, fails: bool
) -> None:
    async def tell(event: Event) -> None:
        assert isinstance(event, Notice)

    async def run() -> Compaction | None:
        script = [ModelUnavailable("It is down.")] if fails else ["A summary."]
        model = ScriptedModel(script, context_window=window)
        return await compact(
            messages, model=model, turn=1, trigger="auto", emit=tell, estimator=TokenEstimator()
        )

    assert history_problems(messages) == []
    event = anyio.run(run)
    if event is None:
        return
    assert history_problems(event.messages) == []
    assert event.after_tokens < event.before_tokens
    assert event.messages[-1].role == messages[-1].role
    said = [
        block
        for message in messages
        for block in message.blocks
        if block.__class__ is TextBlock and message.role == "user"
    ]
    newest = [block for block in said if block.origin == "said"][-1]
    kept = [block for message in event.messages for block in message.blocks]
    assert newest in kept
