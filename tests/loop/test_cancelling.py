"""A turn that is stopped: what was said stays, every call is answered, the next turn works."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from satchel.events import Action, Assistant, Event, Final, Observation, TextDelta, TurnEnd, TurnStart
from satchel.loop import TurnLimits, TurnOutcome
from satchel.messages import Message, TextBlock
from satchel.models.scripted import Call, Reply
from satchel.tools.permissions import PlannedCall
from satchel.tools.port import ToolContext, ToolResult
from tests.loop.rules import history_problems
from tests.loop.world import World, gives, tool
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


async def forever(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
    await anyio.sleep_forever()
    raise AssertionError


def cancel_at(world: World, kind: type[Event], turn: Any) -> None:
    async def watch(event: Event) -> None:
        if isinstance(event, kind):
            turn.cancel()

    world.on_emit = watch


@requirement("loop:cancel:valid-history")
async def test_text_that_was_shown_before_the_cancellation_is_kept() -> None:
    world = World([Reply(text="The capital of", chunk=3, between=anyio.lowlevel.checkpoint), "Again."])
    turn = world.turn("Which?")
    cancel_at(world, TextDelta, turn)
    with anyio.fail_after(60):
        outcome = await turn.run()
    assert (outcome.status, outcome.text) == ("cancelled", "The")
    assert world.messages[-1] == Message(role="assistant", blocks=(TextBlock(text="The"),))
    assert [event.type for event in world.events] == ["turn_start", "assistant", "final", "turn_end"]
    [assistant] = world.of(Assistant)
    assert (assistant.stop_reason, assistant.usage.estimated) == ("other", True)


@requirement("loop:cancel:valid-history")
async def test_calls_that_run_are_answered_and_those_that_ended_keep_their_results() -> None:
    world = World(
        [Reply(calls=[Call(name="wait"), Call(name="look")]), "And now?"],
        gives("rain"),
        tool("wait", forever),
    )
    turn = world.turn()

    async def cancel_later(event: Event) -> None:
        if isinstance(event, Observation):
            world.clock.advance(4.0)
            turn.cancel()

    world.on_emit = cancel_later
    with anyio.fail_after(60):
        outcome = await turn.run()
    assert outcome.status == "cancelled"
    assert [(step.tool, step.is_error, step.duration_ms) for step in outcome.steps] == [
        ("wait", True, 4000.0),
        ("look", False, 0.0),
    ]
    assert outcome.steps[1].result == "rain"
    assert outcome.steps[0].result.startswith(
        "Cancelled by the user while it was running: what it had done by then"
    )
    assert history_problems(world.messages, sendable=True) == []
    world.on_emit = None
    assert (await world.run("Go on.")).text == "And now?"


async def test_a_turn_that_is_stopped_while_the_user_is_asked_for_permission_starts_nothing() -> None:
    class Waiting:
        async def decide(self, calls: list[PlannedCall]) -> list[Any]:
            turn.cancel()
            await anyio.sleep_forever()
            raise AssertionError

    world = World([Reply(calls=[Call(name="look")])], gives("never"), gate=Waiting())
    turn = world.turn()
    with anyio.fail_after(60):
        outcome = await turn.run()
    assert world.of(Action) == []
    assert outcome.steps[0].result == "Cancelled by the user before it was started: it had no effect."


@requirement("loop:cancel:valid-history")
@pytest.mark.parametrize("native", [True, False])
async def test_a_task_that_is_cancelled_from_outside_ends_cancelled_after_the_turn_is_written_down(
    native: bool,
) -> None:
    world = World([Reply(calls=[Call(name="wait")])], tool("wait", forever))
    turn = world.turn()
    scope = anyio.CancelScope()
    ended: list[TurnOutcome] = []

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None

        async def watch(event: Event) -> None:
            if isinstance(event, Action):
                task.cancel() if native else scope.cancel()

        world.on_emit = watch
        with scope:
            ended.append(await turn.run())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
    assert ended == []
    assert turn.outcome is not None
    assert turn.outcome.status == "cancelled"
    assert [event.type for event in world.events][-4:] == [
        "observation",
        "round_observed",
        "final",
        "turn_end",
    ]
    assert history_problems(world.messages, sendable=True) == []


async def test_a_journal_that_hangs_while_a_cancelled_turn_is_closed_is_waited_for_within_bounds() -> None:
    world = World([Reply(calls=[Call(name="wait")])], tool("wait", forever))
    turn = world.turn(limits=TurnLimits(closing_timeout_s=0.02))

    async def watch(event: Event) -> None:
        if isinstance(event, Action):
            turn.cancel()
        if isinstance(event, Final):
            await anyio.sleep_forever()

    world.on_emit = watch
    with anyio.fail_after(60):
        outcome = await turn.run()
    assert outcome.status == "failed"
    assert "The session log did not take" in str(outcome.error)
    assert history_problems(world.messages, sendable=True) == []


async def test_a_cancellation_that_comes_when_the_answer_is_there_changes_nothing() -> None:
    world = World(["Done."])
    turn = world.turn()
    cancel_at(world, Final, turn)
    outcome = await turn.run()
    assert (outcome.status, outcome.text) == ("done", "Done.")
    turn.cancel()
    assert [event.status for event in world.of(TurnEnd)] == ["done"]


async def test_a_turn_that_is_cancelled_before_it_runs_keeps_the_message() -> None:
    world = World([])
    turn = world.turn("Remember me.")
    turn.cancel()
    outcome = await turn.run()
    assert outcome.status == "cancelled"
    assert world.messages[0].text == "Remember me."
    assert [event.type for event in world.events] == ["turn_start", "final", "turn_end"]


async def test_a_very_long_message_has_longer_to_be_written() -> None:
    world = World(["Read."])
    text = "a long log " * 20_000

    async def watch(event: Event) -> None:
        if isinstance(event, TurnStart):
            await anyio.sleep(0.05)

    world.on_emit = watch
    with anyio.fail_after(120):
        outcome = await world.turn(text, limits=TurnLimits(emit_timeout_s=0.01)).run()
    assert (outcome.status, outcome.text) == ("done", "Read.")
