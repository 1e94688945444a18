"""Models that take no tool definitions, driven by JSON in text."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest

from satchel.clock import ManualClock
from satchel.errors import ToolsUnsupported
from satchel.events import TextDelta, ThinkingDelta, ToolInputDelta
from satchel.messages import Message, TextBlock, ThinkingBlock, ToolUseBlock
from satchel.models import AbilityStore, AdaptiveTools, Call, JsonTools, Reply, ScriptedModel, ToolDefinition
from satchel.models.json_tools import answer_schema, instructions
from tests.models.loopback import CLOCK, LOOK, ask, request, results, user
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

CALL = '{"action": {"tool": "look", "input": {"at": "a"}}}'


async def test_tools_are_described_in_the_system_text_and_not_sent() -> None:
    inner = ScriptedModel(['{"final": "Hi"}'])
    await ask(JsonTools(inner), request())
    (sent,) = inner.requests
    assert sent.tools == ()
    assert sent.system == f"Be brief.\n\n{instructions([LOOK])}"
    assert '{"tool": "look", "description": "Looks.", "input": {"type": "object"' in sent.system
    assert sent.response_schema == answer_schema([LOOK])


async def test_the_system_text_keeps_its_bytes_from_request_to_request() -> None:
    inner = ScriptedModel(["a", "b"])
    model = JsonTools(inner)
    await ask(model, request())
    await ask(
        model, request(user("Hello"), Message(role="assistant", blocks=(TextBlock(text="a"),)), user("More"))
    )
    assert inner.requests[0].system == inner.requests[1].system
    assert inner.requests[0].messages[0] is inner.requests[1].messages[0] or (
        inner.requests[0].messages[0] == inner.requests[1].messages[0]
    )


@requirement("models:layers:json")
async def test_calls_and_results_in_the_history_have_the_form_that_the_model_was_given() -> None:
    inner = ScriptedModel(["x"])
    first, second = (ToolUseBlock(id=f"c{n}", name="look", input={"at": f"{n}"}) for n in (1, 2))
    broken = ToolUseBlock(id="c3", name="look", input=None, unparsed="{oops")
    history = (
        user("Look"),
        Message(role="assistant", blocks=(ThinkingBlock(text="Hm."), TextBlock(text="I will."), first)),
        results(("c1", "A wall.")),
        Message(role="assistant", blocks=(second, broken)),
        Message(
            role="user",
            blocks=(*results(("c2", "A door."), ("c3", "No JSON.")).blocks, TextBlock(text="And?")),
        ),
        Message(role="assistant", blocks=(TextBlock(text="Done."),)),
        user("Thanks"),
    )
    await ask(JsonTools(inner), request(*history))
    assert [message.text for message in inner.requests[0].messages] == [
        "Look",
        'I will.\n{"action": {"tool": "look", "input": {"at": "1"}}}',
        '{"observation": "A wall.", "tool": "look"}',
        '{"actions": [{"tool": "look", "input": {"at": "2"}}, {"tool": "look", "input": "{oops"}]}',
        '{"observation": "[look]: A door.\\n\\n[look]: No JSON."}\nAnd?',
        '{"final": "Done."}',
        "Thanks",
    ]


async def test_the_answer_is_parsed_into_calls_and_keeps_its_thinking() -> None:
    inner = ScriptedModel([Reply(thinking="Hm.", text=f"I will look.\n{CALL}", chunk=5)])
    events, completion = await ask(JsonTools(inner), request())
    (call,) = completion.message.tool_uses
    assert completion.blocks == (
        ThinkingBlock(text="Hm."),
        TextBlock(text="I will look."),
        ToolUseBlock(id=call.id, name="look", input={"at": "a"}),
    )
    assert completion.stop_reason == "tool_use"
    assert events == [
        ThinkingDelta(text="Hm."),
        TextDelta(text="I will look."),
        ToolInputDelta(call_id=call.id, tool="look", text='{"at": "a"}'),
    ]


async def test_ids_are_the_same_for_the_same_history_and_new_after_a_compaction() -> None:
    async def ids(*history: Message) -> str:
        _, completion = await ask(JsonTools(ScriptedModel([CALL])), request(*history, session_id="s"))
        return completion.message.tool_uses[0].id

    first = await ids(user("Look"))
    assert await ids(user("Look")) == first
    assert await ids(user("Summary: you looked.")) != first
    call = ToolUseBlock(id=first, name="look", input={"at": "a"})
    assert await ids(user("Look"), Message(role="assistant", blocks=(call,)), results((first, "x"))) != first


async def test_without_tools_an_answer_that_is_json_stays_as_it_is() -> None:
    inner = ScriptedModel(['{"final": "Hi"}'])
    _, completion = await ask(JsonTools(inner), request(tools=()))
    assert completion.message.text == '{"final": "Hi"}'
    assert inner.requests[0].system == "Be brief."


def test_the_schema_of_an_answer_takes_calls_that_fit_and_nothing_else() -> None:
    other = ToolDefinition(
        name="now", description="Tells the time.", input_schema={"type": "object", "properties": {}}
    )
    fits = jsonschema.Draft202012Validator(answer_schema([LOOK, other])).is_valid
    assert fits({"final": "Hi"})
    assert fits({"action": {"tool": "look", "input": {"at": "a"}}})
    assert fits({"actions": [{"tool": "now", "input": {}}]})
    assert not fits({"action": {"tool": "look", "input": {}}})
    assert not fits({"action": {"tool": "other", "input": {}}})
    assert not fits({"actions": []})
    # A choice that the caller made is in the schema.
    must = jsonschema.Draft202012Validator(answer_schema([LOOK, other], {"tool_choice": "required"})).is_valid
    assert must({"action": {"tool": "now", "input": {}}})
    assert not must({"final": "Hi"})
    look = answer_schema([LOOK, other], {"tool_choice": "look", "parallel_tool_calls": False})
    named = jsonschema.Draft202012Validator(look).is_valid
    assert named({"action": {"tool": "look", "input": {"at": "a"}}})
    assert not named({"action": {"tool": "now", "input": {}}})
    assert not named({"actions": [{"tool": "look", "input": {"at": "a"}}]})


async def test_a_choice_that_the_caller_made_goes_out_as_the_schema() -> None:
    inner = ScriptedModel(["Hi", "Hi"])
    for options in ({}, {"tool_choice": "look"}):
        await ask(JsonTools(inner), request(user("Hello"), options=options))
    schemas = [asked.response_schema for asked in inner.requests]
    assert schemas == [answer_schema([LOOK]), answer_schema([LOOK], {"tool_choice": "look"})]


def refusing() -> ScriptedModel:
    """A model that refuses tool definitions, and calls by JSON where it was told how."""

    def reply(asked: object) -> Reply | ToolsUnsupported:
        if getattr(asked, "tools", ()):
            return ToolsUnsupported("m does not support tools.")
        return Reply(text=CALL)

    return ScriptedModel(reply)


@requirement("models:layers:found-once")
async def test_a_refusal_of_tools_is_met_once_per_model_and_endpoint(tmp_path: Path) -> None:
    store = tmp_path / "home" / "abilities.json"
    for tries in (2, 1):
        inner = refusing()
        model = AdaptiveTools(
            inner, tool_use="auto", abilities=AbilityStore(store, clock=CLOCK), endpoint="http://a/v1"
        )
        _, completion = await ask(model, request())
        assert [(call.name, call.input) for call in completion.message.tool_uses] == [("look", {"at": "a"})]
        assert len(inner.requests) == tries
    elsewhere = refusing()
    model = AdaptiveTools(
        elsewhere, tool_use="auto", abilities=AbilityStore(store, clock=CLOCK), endpoint="http://b/v1"
    )
    await ask(model, request())
    assert len(elsewhere.requests) == 2


async def test_json_and_native_calls_can_be_insisted_on() -> None:
    abilities = AbilityStore(None, clock=CLOCK)
    inner = refusing()
    _, completion = await ask(
        AdaptiveTools(inner, tool_use="json", abilities=abilities, endpoint="e"), request()
    )
    assert (len(inner.requests), completion.stop_reason) == (1, "tool_use")
    with pytest.raises(ToolsUnsupported):
        await ask(AdaptiveTools(refusing(), tool_use="native", abilities=abilities, endpoint="e"), request())
    assert abilities.native_tools(endpoint="e", model="scripted") is None


async def test_what_was_found_out_is_asked_anew_after_a_month(tmp_path: Path) -> None:
    clock = ManualClock()
    path = tmp_path / "abilities.json"
    await AbilityStore(path, clock=clock).remember_native_tools(endpoint="e", model="m", native=False)
    clock.advance(timedelta(days=29).total_seconds())
    store = AbilityStore(path, clock=clock)
    assert store.native_tools(endpoint="e", model="m") is False
    clock.advance(timedelta(days=1).total_seconds())
    assert store.native_tools(endpoint="e", model="m") is None
    await store.remember_native_tools(endpoint="e", model="n", native=False)
    assert "m @ e" not in path.read_text()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b"[]",
        b'{"models": 5}',
        b'{"models": {"m @ e": {"native_tools": "no", "at": "x"}}}',
        b'{"models": {"m @ e": {"native_tools": false, "at": "2026-01-01T00:00:00"}}}',
        b"[" * 100_000,
    ],
)
async def test_a_broken_file_of_abilities_is_as_good_as_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "abilities.json"
    path.write_bytes(content)
    store = AbilityStore(path, clock=CLOCK)
    assert store.native_tools(endpoint="e", model="m") is None
    await store.remember_native_tools(endpoint="e", model="m", native=False)
    assert AbilityStore(path, clock=CLOCK).native_tools(endpoint="e", model="m") is False


async def test_a_folder_that_cannot_be_written_costs_nothing_but_the_memory_of_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = AbilityStore(tmp_path / "file" / "abilities.json", clock=CLOCK)
    await store.remember_native_tools(endpoint="e", model="m", native=False)
    assert store.native_tools(endpoint="e", model="m") is False


async def test_two_processes_keep_what_the_other_found_out(tmp_path: Path) -> None:
    path = tmp_path / "abilities.json"
    one, two = AbilityStore(path, clock=CLOCK), AbilityStore(path, clock=CLOCK)
    assert two.native_tools(endpoint="e", model="m") is None
    await one.remember_native_tools(endpoint="e", model="m", native=False)
    await two.remember_native_tools(endpoint="e", model="n", native=False)
    both = AbilityStore(path, clock=CLOCK)
    assert (both.native_tools(endpoint="e", model="m"), both.native_tools(endpoint="e", model="n")) == (
        False,
        False,
    )
    assert [each.name for each in tmp_path.iterdir()] == ["abilities.json"]


def adaptive(inner: ScriptedModel, abilities: AbilityStore) -> AdaptiveTools:
    return AdaptiveTools(inner, tool_use="auto", abilities=abilities, endpoint="e")


@requirement("models:layers:unasked")
@pytest.mark.parametrize("chunk", [0, 1, 7])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CALL, ""),
        (f"```json\n{CALL}\n```", ""),
        (f"I look.\n\n{CALL}\n", "I look."),
        (f"Use `look`:\n{CALL}", "Use `look`:"),
        ('{"actions": [{"tool": "look", "input": {"at": "a"}}]}', ""),
    ],
)
async def test_calls_that_a_model_with_native_tools_writes_as_json_are_calls_and_remembered(
    text: str, said: str, chunk: int
) -> None:
    abilities = AbilityStore(None, clock=CLOCK)
    inner = ScriptedModel([Reply(text=text, chunk=chunk), CALL])
    events, completion = await ask(adaptive(inner, abilities), request())
    assert [(call.name, call.input) for call in completion.message.tool_uses] == [("look", {"at": "a"})]
    assert (completion.stop_reason, completion.message.text) == ("tool_use", said)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)).strip() == said
    await ask(adaptive(inner, abilities), request())
    assert [bool(asked.tools) for asked in inner.requests] == [True, False]


@requirement("models:layers:unasked")
@pytest.mark.parametrize("chunk", [0, 1, 7])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"final": "It \\u00e9s done."}', "It \u00e9s done."),
        ('Sure:\n```json\n{"final": "Done."}\n```', "Sure:\n\nDone."),
    ],
)
async def test_a_final_in_json_is_unwrapped_and_proves_nothing(text: str, shown: str, chunk: int) -> None:
    abilities = AbilityStore(None, clock=CLOCK)
    events, completion = await ask(
        adaptive(ScriptedModel([Reply(text=text, chunk=chunk)]), abilities), request()
    )
    assert completion.message.text == shown
    streamed = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert streamed.split() == shown.split()
    assert abilities.native_tools(endpoint="e", model="scripted") is None


@requirement("models:layers:unasked")
@pytest.mark.parametrize("chunk", [0, 1, 7])
@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ann", "action": {"tool": "look", "input": {}}}',
        '{"action": {"tool": "unknown", "input": {}}}',
        '{"action": "run away"}',
        '{"action": {"tool": "look", "input": "not an object"}}',
        '{"final": 5}',
        '{"final": "x", "score": 1}',
        '{"final": ""}',
        '{"action": {"tool": "look", "input": {"at": "a"}}',
        f"Write this:\n{CALL}\nand wait for the result.",
        f"{CALL}\nThat is how a call looks.",
        f"The object {CALL}",
        "word " * 30 + f"\n{CALL}",
        f"```python\nprint(1)\n```\n{'word ' * 30}\n{CALL}",
        "{" * 300,
        "`",
        "```",
        "Hello, {name}!",
    ],
)
async def test_an_answer_that_only_contains_such_json_stays_an_answer(text: str, chunk: int) -> None:
    abilities = AbilityStore(None, clock=CLOCK)
    events, completion = await ask(
        adaptive(ScriptedModel([Reply(text=text, chunk=chunk)]), abilities), request()
    )
    assert completion.blocks == (TextBlock(text=text),)
    assert completion.stop_reason == "end_turn"
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text
    assert abilities.native_tools(endpoint="e", model="scripted") is None


@requirement("models:layers:unasked")
async def test_an_answer_cut_at_its_limit_and_one_without_tools_are_never_read_as_calls() -> None:
    abilities = AbilityStore(None, clock=CLOCK)
    cut = adaptive(ScriptedModel([Reply(text=CALL, stop_reason="max_tokens")]), abilities)
    events, completion = await ask(cut, request())
    assert completion.blocks == (TextBlock(text=CALL),)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == CALL
    _, completion = await ask(adaptive(ScriptedModel([CALL]), abilities), replace(request(), tools=()))
    assert completion.blocks == (TextBlock(text=CALL),)


@requirement("models:layers:unasked")
async def test_a_model_that_has_called_natively_keeps_doing_so_and_its_json_is_read_too() -> None:
    abilities = AbilityStore(None, clock=CLOCK)
    native = Reply(text="{", calls=[Call(name="look", input={"at": "b"})])
    inner = ScriptedModel([native, CALL, "Done."])
    _, first = await ask(adaptive(inner, abilities), request())
    assert (first.message.text, len(first.message.tool_uses)) == ("{", 1)
    assert abilities.native_tools(endpoint="e", model="scripted") is True
    _, second = await ask(adaptive(inner, abilities), request())
    assert [call.input for call in second.message.tool_uses] == [{"at": "a"}]
    await ask(adaptive(inner, abilities), request())
    assert all(asked.tools for asked in inner.requests)
