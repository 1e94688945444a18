"""Calls that the user asks for by name, and what the data of results becomes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.errors import NotFound, UsageError
from satchel.events import (
    Action,
    Event,
    Observation,
    Permission,
    ToolProgress,
    event_from_json,
    event_to_json,
)
from satchel.loop import Refuse, ToolCallRecord, TurnLimits, run_call
from satchel.models.scripted import Call, Reply
from satchel.tools.port import Redirect, ToolContext, ToolResult, ToolSpec
from tests.loop.world import World, asks, fails, gives, tool
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


async def call(
    world: World, name: str, input: Mapping[str, Any] | None = None, **more: Any
) -> ToolCallRecord:
    return await run_call(
        name,
        input or {},
        call_id="user_1",
        turn=3,
        environment=world.environment,
        emit=world.emit,
        clock=world.clock,
        **{"limits": TurnLimits(), **more},
    )


@requirement("loop:one-way")
async def test_a_call_of_the_user_is_written_down_before_it_runs_and_nobody_is_asked() -> None:
    seen: list[ToolContext] = []

    async def look(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        seen.append(context)
        assert [type(event) for event in world.events] == [Permission, Action]
        await context.progress({"found": 1})
        return ToolResult(text="rain", data={"mm": 3}, untrusted=True)

    world = World([], tool("look", look))
    world.gate = None
    record = await call(world, "look", {"x": 1})
    assert (record.result, record.data, record.error_code) == ("rain", {"mm": 3}, "")
    assert [type(event) for event in world.shown] == [Permission, Action, ToolProgress, Observation]
    assert world.of(Permission)[0].by == "user"
    assert {(event.turn, event.round) for event in (*world.of(Action), *world.of(Observation))} == {(3, 0)}
    assert seen[0].roots == (Path("/"),)


@requirement("loop:one-way")
@pytest.mark.parametrize(
    ("name", "input", "error"),
    [("lok", {}, NotFound), ("look", {"unknown": 1}, UsageError)],
)
async def test_what_the_user_mistyped_is_an_error_and_leaves_no_event(
    name: str, input: Mapping[str, Any], error: type[Exception]
) -> None:
    world = World([], gives("rain"))
    with pytest.raises(error):
        await call(world, name, input)
    assert world.events == []


async def hang(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
    await anyio.sleep_forever()
    raise AssertionError


@requirement("loop:one-way")
async def test_what_goes_wrong_has_a_code() -> None:
    world = World(
        [],
        tool("hang", hang, timeout_s=0.002),
        fails(ValueError("bad luck")),
        gives("No.", "error", is_error=True),
        asks("Which?"),
    )
    codes = {name: (await call(world, name)).error_code for name in ("hang", "break", "error", "ask_user")}
    assert codes == {
        "hang": "TOOL_TIMEOUT",
        "break": "TOOL_CRASHED",
        "error": "TOOL_FAILED",
        "ask_user": "NOT_RUN",
    }


@requirement("loop:one-way")
async def test_limits_and_hooks_hold_for_calls_of_the_user_too() -> None:
    class Refusing:
        async def on_action(self, action: Action) -> Refuse | None:
            return Refuse(reason="not today") if action.input else None

    world = World([], gives("long " * 1_000))
    record = await call(world, "look", limits=TurnLimits(max_result_chars=600), hooks=[Refusing()])
    assert len(record.result) <= 600
    assert world.spilled == {"user_1": "long " * 1_000}
    assert (await call(world, "look", {"x": 1}, hooks=[Refusing()])).result == "Refused: not today"


@requirement("loop:one-way")
async def test_a_call_through_the_bridge_runs_as_the_tool_that_it_names() -> None:
    class Bridge:
        spec = ToolSpec(name="bridge", description="Calls look.", input_schema={"type": "object"})

        def redirect(self, input: Mapping[str, Any]) -> Redirect:
            return Redirect(tool=look, input=input)

        def effects(self, input: Mapping[str, Any], context: ToolContext) -> list[Any]:
            return []

        async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
            raise AssertionError

    look = gives("rain")
    world = World([], Bridge())
    assert (await call(world, "bridge", {"x": 1})).result == "rain"
    assert world.of(Action)[0].tool == "look"


@requirement("loop:one-way")
async def test_a_call_of_the_user_that_is_interrupted_says_so_in_the_log() -> None:
    world = World([], tool("hang", hang))
    with anyio.CancelScope() as scope:

        async def stop(event: Event) -> None:
            if isinstance(event, Action):
                scope.cancel()

        world.on_emit = stop
        await call(world, "hang")
    [observation] = world.of(Observation)
    assert observation.is_error
    assert "what it had done by then is unknown" in observation.text


@requirement("loop:data")
@pytest.mark.parametrize(
    ("data", "logged"),
    [
        ({"id": "b1", "parts": (1, 2)}, {"id": "b1", "parts": [1, 2]}),
        ("x" * 70_000, None),
        (object(), None),
        ({"x": float("nan")}, None),
        (None, None),
    ],
)
async def test_data_reaches_the_log_where_it_is_json_and_the_record_as_it_is(data: Any, logged: Any) -> None:
    world = World([Reply(calls=[Call(name="look")]), "Done."], gives("ok", data=data))
    outcome = await world.run()
    assert outcome.steps[0].data is data
    [observation] = world.of(Observation)
    assert observation.data == logged
    assert event_from_json(event_to_json(observation)) == observation
