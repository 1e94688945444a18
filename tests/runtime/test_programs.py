"""What a program that embeds Satchel may bring (seed-3): tools, system text, token counter, sinks, model, hooks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import Field

from satchel import Satchel
from satchel.config import load
from satchel.errors import UsageError
from satchel.events import Record, TextDelta
from satchel.messages import TextBlock, ToolResultBlock, ToolUseBlock, Usage
from satchel.models import Call, Completion, ModelRequest, Reply, ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.tools import (
    StaticToolset,
    ToolContext,
    client_tool,
    tool_from_function,
)
from tests.models.loopback import as_events, chat, loopback
from tests.requirements import requirement
from tests.runtime.world import opened, settings_in

pytestmark = pytest.mark.anyio


def temperature(city: Annotated[str, Field(description="Its name")], celsius: bool = True) -> dict[str, Any]:
    """Tell the temperature in a city."""
    return {"city": city, "degrees": 21 if celsius else 70}


async def greet(name: str, context: ToolContext) -> str:
    """Greet somebody."""
    return f"Hello, {name}, in session {context.session_id}."


@requirement("embed:tools")
async def test_plain_functions_tools_and_toolsets_of_the_program_are_offered_and_run(tmp_path: Path) -> None:
    made = tool_from_function(greet, name="greet_by_tool")
    in_set = tool_from_function(greet, name="greet_by_set")
    model = ScriptedModel(
        [
            Reply(
                calls=[
                    Call(name="temperature", input={"city": "Bern"}),
                    Call(name="greet", input={"name": "Ann"}),
                    Call(name="greet_by_tool", input={"name": "Ben"}),
                    Call(name="greet_by_set", input={"name": "Cyd"}),
                    Call(name="temperature", input={"town": "Bern"}),
                ]
            ),
            "Done.",
        ]
    )
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(tools=[temperature, greet, made, StaticToolset([in_set])])
        turn = await session.run_turn("Go.")
    assert [step.result for step in turn.steps[:4]] == [
        '{"city": "Bern", "degrees": 21}',
        *(f"Hello, {name}, in session {session.id}." for name in ("Ann", "Ben", "Cyd")),
    ]
    assert "$.city: is missing" in turn.steps[4].result
    schema = next(tool.input_schema for tool in model.requests[0].tools if tool.name == "temperature")
    assert schema["properties"]["city"]["description"] == "Its name"
    assert schema["required"] == ["city"]
    definition = next(tool for tool in model.requests[0].tools if tool.name == "greet")
    assert (definition.description, list(definition.input_schema["properties"])) == (
        "Greet somebody.",
        ["name"],
    )


@requirement("embed:tools")
async def test_what_is_no_tool_is_refused_with_the_reason(tmp_path: Path) -> None:
    def many(*values: str) -> None: ...

    class Opaque: ...

    def opaque(value: Opaque) -> None: ...

    wrong: Any = 7
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        for tool, reason in (
            (many, "arguments by name"),
            (opaque, "opaque can't be a tool"),
            (wrong, "is not a tool"),
        ):
            with pytest.raises(UsageError, match=reason):
                await satchel.session(tools=[tool])


@requirement("embed:tools", "embed:system", "embed:token-counter", "embed:sinks", "embed:hooks")
async def test_what_a_session_can_not_use_is_refused_before_there_is_one(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"mode": "careful"}, "There is no mode 'careful'. The modes are ask, auto, plan, bypass"),
        ({"allow": "bash"}, "takes a list of rules, such as \\['bash'\\]"),
        (
            {"hooks": [object()]},
            "is not a hook: it has none of the methods on_turn_start, on_request, on_action",
        ),
        ({"sinks": [object()]}, "it has no method append"),
        ({"token_counter": "cl100k"}, "The token counter is 'cl100k'"),
        ({"system": 7}, "The system prompt is 7"),
        ({"system": lambda own: len(own)}, "The function for the system prompt returned [0-9]+"),
    ]
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        for options, reason in wrong:
            with pytest.raises(UsageError, match=reason):
                await satchel.session(**options)
    with pytest.raises(UsageError, match="This Satchel is closed"):
        await satchel.session()


@requirement("embed:system")
async def test_the_system_text_is_the_programs_or_made_from_satchels(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two.", "Three."])
    async with opened(tmp_path, model) as satchel:
        for system in (None, "You are a pirate.", lambda own: own + "\nYou are a pirate."):
            await (await satchel.session(system=system)).run_turn("Hello")
    own, replaced, extended = (request.system for request in model.requests)
    assert replaced == "You are a pirate."
    assert extended == own + "\nYou are a pirate."


@requirement("embed:sinks")
async def test_every_logged_event_reaches_the_programs_sink_in_order(tmp_path: Path) -> None:
    class Sink:
        def __init__(self) -> None:
            self.records: list[Record] = []

        async def append(self, record: Record) -> None:
            self.records.append(record)

    class Broken:
        def append(self, record: Record) -> None:
            raise RuntimeError("The database is gone.")

    sink = Sink()
    async with opened(tmp_path, ScriptedModel(["Hello."])) as satchel:
        session = await satchel.session(sinks=[Broken(), sink])
        assert (await session.run_turn("Hi")).text == "Hello."
        await session.aclose()
        logged = (await satchel.sessions.load(session.id)).records
    assert sink.records == list(logged)


@requirement("embed:model")
@pytest.mark.parametrize("before", ["", "I look it up. "])
async def test_a_function_calls_tools_and_answers_with_json_in_its_text(before: str, tmp_path: Path) -> None:
    answers = iter(
        (
            before + '{"action": {"tool": "greet", "input": {"name": "Ann"}}}',
            before + '{"final": "She is greeted."}',
        )
    )
    settings = settings_in(tmp_path, memory__embedder="none", agent__mode="bypass")
    async with Satchel.open(settings, model=lambda _: next(answers)) as satchel:
        session = await satchel.session(tools=[greet])
        turn = await session.run_turn("Greet Ann.")
        assert [(step.tool, dict(step.input)) for step in turn.steps] == [("greet", {"name": "Ann"})]
        assert turn.text == "She is greeted."


@requirement("embed:model")
async def test_a_function_may_be_the_model(tmp_path: Path) -> None:
    def text(request: ModelRequest) -> str:
        return f"{len(request.messages)} messages"

    async def pieces(request: ModelRequest) -> AsyncIterator[str]:
        for piece in ("one ", "two"):
            yield piece

    async def whole(request: ModelRequest) -> Completion:
        return Completion(
            blocks=(TextBlock(text="whole"),),
            stop_reason="end_turn",
            usage=Usage(),
            provider="own",
            model="x",
        )

    settings = settings_in(tmp_path, memory__embedder="none")
    for function, answer in ((text, "1 messages"), (pieces, "one two"), (whole, "whole")):
        async with Satchel.open(settings, model=function) as satchel:
            assert (await (await satchel.session()).run_turn("Hi")).text == answer
    async with Satchel.open(settings, model="none") as satchel:
        session = await satchel.session()
        assert (session.model.provider, satchel.settings.model) == ("none", "none")

    def broken(request: ModelRequest) -> str:
        raise ZeroDivisionError("division by zero")

    async def numbers(request: ModelRequest) -> AsyncIterator[Any]:
        yield 7

    wrong: list[tuple[Any, str]] = [
        (broken, "The function broken failed: ZeroDivisionError: division by zero"),
        (numbers, "The function numbers gave 7; a piece of an answer is text."),
        (lambda request: None, "The function <lambda> gave None; an answer is text or a Completion."),
    ]
    for function, reason in wrong:
        async with Satchel.open(settings, model=function) as satchel:
            turn = await (await satchel.session()).run_turn("Hi")
            assert (turn.status, reason in turn.text) == ("failed", True)
    with pytest.raises(UsageError, match="The model is 7"):
        async with Satchel.open(settings, model=7):  # type: ignore[arg-type]
            pass


@requirement("embed:model")
async def test_a_turn_is_interrupted_although_the_function_that_answers_never_waits(tmp_path: Path) -> None:
    async def endless(request: ModelRequest) -> AsyncIterator[str]:
        while True:
            yield "and so on "

    async with Satchel.open(settings_in(tmp_path, memory__embedder="none"), model=endless) as satchel:
        session = await satchel.session()
        async with aclosing(session.stream("Tell me everything.")) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        running = session.running
        assert running is not None
        session.cancel()
        assert (await running.result()).status == "cancelled"


@requirement("embed:embedder")
async def test_an_embedder_is_named_handed_over_or_a_function(tmp_path: Path) -> None:
    def embed(texts: Sequence[str], role: str) -> list[list[float]]:
        return [[float(len(text)), 1.0] for text in texts]

    embedders: tuple[Any, ...] = ("none", "minilm", HashingEmbedder(), embed)
    for embedder in embedders:
        async with Satchel.open(settings_in(tmp_path), model="none", embedder=embedder) as satchel:
            assert satchel.memory is not None


@requirement("prompt:time")
async def test_every_message_states_its_time_and_is_replayed_byte_for_byte(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two.", "Three."])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session()
        await session.run_turn("Hello")
        await session.run_turn("And now?")
    async with opened(tmp_path, model) as satchel:
        await (await satchel.session(session.id)).run_turn("Weeks later?")
    first, second, third = (request.messages for request in model.requests)
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    for message in third[::2]:
        (stamp,) = [b.text for b in message.blocks if isinstance(b, TextBlock) and b.text.startswith("[")][
            -1:
        ]
        day, date, clock, *_ = stamp.strip("[]").split()
        assert (len(day), len(date), len(clock)) == (3, 10, 5)
    assert "Platform: " in str(first[0].blocks)
    assert "Platform: " not in str(third[-1].blocks)
    episodes = [memory.content for memory in await _memories(tmp_path)]
    assert not [text for text in episodes if "Platform" in text or "[" in text]


async def _memories(folder: Path) -> Sequence[Any]:
    async with opened(folder, ScriptedModel([])) as satchel:
        assert satchel.memory is not None
        return await satchel.memory.list(limit=50)


@requirement("tools:bridge:always")
async def test_a_tool_that_appears_during_a_session_is_reached_without_changing_the_prompt(
    tmp_path: Path,
) -> None:
    tools = tmp_path / "home" / "tools"
    tools.mkdir(parents=True, mode=0o700)
    model = ScriptedModel(
        [
            "Hello.",
            Reply(calls=[Call(name="tool_search", input={"query": "forecast"})]),
            Reply(calls=[Call(name="tool_call", input={"name": "forecast"})]),
            "Sunny.",
        ]
    )
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(mode="bypass")
        await session.run_turn("Hello")
        path = tools / "forecast"
        path.write_text(
            '#!/bin/sh\n[ "$1" = --schema ] && echo \'{"name": "forecast", "description": "A forecast."}\' && exit\n'
            "echo '\"sunny\"'\n"
        )
        path.chmod(0o700)
        await session.refresh_tools()
        turn = await session.run_turn("What will the weather be?")
    assert [request.tools for request in model.requests] == [model.requests[0].tools] * 4
    assert "forecast" in turn.steps[0].result
    assert '"sunny"' in turn.steps[1].result or "sunny" in turn.steps[1].result


async def test_what_a_sink_takes_long_for_holds_up_no_turn(tmp_path: Path) -> None:
    hold = anyio.Event()

    class Slow:
        async def append(self, record: Record) -> None:
            await hold.wait()

    async with opened(tmp_path, ScriptedModel(["Hello."])) as satchel:
        session = await satchel.session(sinks=[Slow()])
        with anyio.fail_after(60):
            assert (await session.run_turn("Hi")).text == "Hello."
        hold.set()


@requirement("loop:client-side")
async def test_a_turn_ends_with_client_side_calls_and_continues_with_their_results(
    tmp_path: Path,
) -> None:
    door = {"type": "object", "properties": {"door": {"type": "string"}}, "required": ["door"]}
    tool = client_tool(name="open_door", description="Opens a door of the house.", input_schema=door)
    calls = [Call(name="open_door", input={"door": door}, id=door) for door in ("front", "back")]
    model = ScriptedModel(
        [Reply(calls=[*calls, Call(name="think", input={"thought": "Hm."})]), "Both are open."]
    )
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(tools=[tool], ephemeral=True)
        turn = await session.run_turn("Open both.")
        assert turn.status == "calling"
        assert turn.calls == tuple(
            ToolUseBlock(id=d, name="open_door", input={"door": d}) for d in ("front", "back")
        )
        done = [ToolResultBlock(tool_use_id=call.id, content="open") for call in turn.calls]
        assert (await session.run_turn(results=done)).text == "Both are open."
        assert not await satchel.sessions.list()
    assert not list((tmp_path / "home" / "sessions").glob("*/*.jsonl"))


@requirement("embed:token-counter", "sessions:metadata:tokenizer")
async def test_the_programs_token_counter_decides_when_room_is_made_and_the_log_names_it(
    tmp_path: Path,
) -> None:
    def by_words(text: str) -> int:
        return len(text.split())

    model = ScriptedModel(lambda _: Reply(text="Yes."), context_window=100_000)
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(token_counter=by_words)
        await session.run_turn("Hello")
        start = (await satchel.sessions.load(session.id)).records[0].event
    assert start.tokenizer == "by_words"  # type: ignore[union-attr]


@requirement("tools:context:messages", "tools:context:memory")
async def test_a_tool_of_the_program_reads_the_conversation_and_the_memory(tmp_path: Path) -> None:
    async def look(context: ToolContext) -> str:
        """Look around."""
        assert context.memory is not None
        await context.memory.add("The cat is called Momo.")
        hits = await context.memory.search("What is the cat called?", limit=1)
        return f"{context.messages()[0].text}; {hits[0].memory.content}"

    model = ScriptedModel([Reply(calls=[Call(name="look")]), "Done."])
    async with opened(tmp_path, model) as satchel:
        turn = await (await satchel.session(tools=[look])).run_turn("Look around.")
    assert turn.steps[0].result == "Look around.; The cat is called Momo."


@requirement("models:layers:unasked")
async def test_a_model_that_wrote_a_call_as_json_is_asked_for_json_in_later_sessions(tmp_path: Path) -> None:
    calls = '{"action": {"tool": "todo", "input": {}}}'
    answers = iter([calls, '{"final": "One."}', '{"final": "Two."}'])
    async with loopback(lambda asked: as_events(chat(next(answers)))) as server:
        settings = load(
            {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{server.url}/v1"},
            cwd=tmp_path,
            home=tmp_path / "home",
            overrides={"memory.embedder": "none", "memory.distill": "off"},
        )
        for expected in ("One.", "Two."):
            async with Satchel.open(settings, model="openai:m-1") as satchel:
                session = await satchel.session(ephemeral=True)
                assert (await session.run_turn("Hello")).text == expected
        assert ["tools" in asked.body for asked in server.asked] == [True, False, False]
