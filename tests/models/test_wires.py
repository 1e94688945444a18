"""The mappings to both wire formats, and what they have in common."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.config import load
from satchel.errors import ModelUnavailable
from satchel.messages import (
    Block,
    FileBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    clean_text,
)
from satchel.models import AbilityStore, open_model
from satchel.models.anthropic import wire as anthropic_wire
from satchel.models.anthropic.wire import MessagesAnswer
from satchel.models.encoding import encode, parse_object
from satchel.models.identifiers import CallIds, wire_id, wire_name
from satchel.models.openai import wire as openai_wire
from satchel.models.openai.wire import ChatAnswer
from satchel.models.port import options_of, price_by
from satchel.models.prefix import MessageCache
from satchel.models.prices import known_window, priced
from satchel.models.scripted import ScriptedModel
from satchel.models.sse import EventReader
from tests.models.loopback import (
    CLOCK,
    Wire,
    as_events,
    ask,
    chat,
    chunk,
    loopback,
    messages,
    request,
    results,
    user,
)
from tests.models.test_endpoints import model_at
from tests.requirements import requirement


def no_ids() -> CallIds:
    return CallIds(lambda: set())


def assistant(*blocks: Block) -> Message:
    return Message(role="assistant", blocks=blocks)


CALL = ToolUseBlock(id="c1", name="look", input={"at": "a"})
BROKEN = ToolUseBlock(id="c2", name="look", input=None, unparsed="{oops")


def test_openai_gets_results_as_messages_of_their_own_before_what_was_said() -> None:
    message = Message(
        role="user",
        blocks=(
            TextBlock(text="And now?"),
            ToolResultBlock(tool_use_id="c1", content="A wall."),
            TextBlock(text="<memory>", origin="memory"),
            ToolResultBlock(tool_use_id="c2", content="", is_error=True),
        ),
    )
    assert openai_wire.message_to_wire(message) == [
        {"role": "tool", "tool_call_id": "c1", "content": "A wall."},
        {"role": "tool", "tool_call_id": "c2", "content": "(no output)"},
        {"role": "user", "content": "And now?\n\n<memory>"},
    ]


@requirement("models:arguments:unparsed")
def test_openai_gets_arguments_that_did_not_parse_inside_an_object_that_does() -> None:
    (sent,) = openai_wire.message_to_wire(
        assistant(ThinkingBlock(text="Hm."), TextBlock(text=""), CALL, BROKEN)
    )
    assert sent["content"] is None
    assert "reasoning_content" not in sent
    assert [call["function"]["arguments"] for call in sent["tool_calls"]] == [
        '{"at":"a"}',
        '{"unparsed_arguments":"{oops"}',
    ]


def test_openai_gets_no_message_that_says_nothing() -> None:
    assert openai_wire.message_to_wire(assistant(ThinkingBlock(text="Hm."))) == []
    assert openai_wire.message_to_wire(user("")) == [{"role": "user", "content": "(no text)"}]


@requirement("models:thinking:replayed")
def test_anthropic_gets_thinking_with_its_proof_and_no_other() -> None:
    sent = anthropic_wire.message_to_wire(
        assistant(
            ThinkingBlock(text="Hm.", signature="proof"),
            ThinkingBlock(text="", signature="opaque", redacted=True),
            ThinkingBlock(text="of another provider"),
            TextBlock(text=" \n"),
            CALL,
            BROKEN,
        )
    )
    assert sent == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "proof"},
            {"type": "redacted_thinking", "data": "opaque"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "a"}},
            {"type": "tool_use", "id": "c2", "name": "look", "input": {"unparsed_arguments": "{oops"}},
        ],
    }


def test_anthropic_gets_results_first_and_nothing_empty() -> None:
    message = Message(
        role="user",
        blocks=(TextBlock(text="And?"), ToolResultBlock(tool_use_id="c1", content=" ", is_error=True)),
    )
    assert anthropic_wire.message_to_wire(message) == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "is_error": True},
            {"type": "text", "text": "And?"},
        ],
    }
    assert anthropic_wire.message_to_wire(assistant(TextBlock(text=""))) is None
    assert anthropic_wire.message_to_wire(user(" ")) == {
        "role": "user",
        "content": [{"type": "text", "text": "(no text)"}],
    }


@pytest.mark.anyio
@requirement("models:cache:control")
async def test_anthropic_is_asked_to_cache_the_system_text_and_the_moving_end(tmp_path: Path) -> None:
    history = [
        user("One"),
        assistant(CALL),
        results(("c1", "A wall.")),
        assistant(TextBlock(text="So.")),
        user("Two"),
    ]
    async with (
        loopback([as_events(messages("Hi"))] * 2) as server,
        model_at(server, "anthropic", tmp_path) as model,
    ):
        await ask(model, request(*history[:3]))
        await ask(model, request(*history))
    first, second = (asked.body for asked in server.asked)
    assert first["system"] == [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert [_marked(body) for body in (first, second)] == [[0, 2], [2, 4]]
    # Without the marks, what was sent before is sent again byte for byte.
    assert _unmarked(second)[:3] == _unmarked(first)
    assert first["tools"] == second["tools"]
    assert sum(asked.raw.count(b"cache_control") <= 4 for asked in server.asked) == 2


def _marked(body: dict[str, Any]) -> list[int]:
    return [
        number for number, message in enumerate(body["messages"]) if "cache_control" in message["content"][-1]
    ]


def _unmarked(body: dict[str, Any]) -> list[str]:
    return [
        json.dumps(message).replace(', "cache_control": {"type": "ephemeral"}', "")
        for message in body["messages"]
    ]


@pytest.mark.anyio
async def test_without_tools_anthropic_gets_a_history_of_calls_as_text(tmp_path: Path) -> None:
    history = [user("One"), assistant(CALL), results(("c1", "A wall."))]
    async with (
        loopback([as_events(messages("Hi"))]) as server,
        model_at(server, "anthropic", tmp_path) as model,
    ):
        await ask(model, request(*history, tools=()))
    sent = server.asked[0].body["messages"]
    assert [part["type"] for message in sent for part in message["content"]] == ["text"] * 3
    assert "A wall." in sent[2]["content"][0]["text"]


_ASKED: dict[str, Any] = {"top_p": 0.3, "stop": ["END"], "tool_choice": "look", "parallel_tool_calls": False}


@pytest.mark.anyio
@requirement("models:options")
@pytest.mark.parametrize(
    ("wire", "options", "sent"),
    [
        ("openai", {}, {"tool_choice": "auto"}),
        ("openai", {"tool_choice": "required"}, {"tool_choice": "required"}),
        ("openai", {"seed": 0, "presence_penalty": 1.0, "frequency_penalty": -1.0},
         {"seed": 0, "presence_penalty": 1.0, "frequency_penalty": -1.0, "tool_choice": "auto"}),
        ("openai", _ASKED, {"top_p": 0.3, "stop": ["END"], "parallel_tool_calls": False,
         "tool_choice": {"type": "function", "function": {"name": "look"}}}),
        ("anthropic", {}, {}),
        ("anthropic", {"tool_choice": "required"}, {"tool_choice": {"type": "any"}}),
        ("anthropic", {"parallel_tool_calls": False},
         {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
        ("anthropic", _ASKED, {"top_p": 0.3, "stop_sequences": ["END"],
         "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True}}),
    ],
)  # fmt: skip
async def test_options_are_sent_in_the_form_of_each_wire(
    tmp_path: Path, wire: Wire, options: dict[str, Any], sent: dict[str, Any]
) -> None:
    answer = chat("Hi") if wire == "openai" else messages("Hi")
    async with loopback([as_events(answer)]) as server, model_at(server, wire, tmp_path) as model:
        assert options.keys() <= options_of(model)
        await ask(model, request(options=options))
    usual = {"model", "messages", "tools", "system", "stream", "stream_options", "max_tokens"}
    assert {name: value for name, value in server.asked[0].body.items() if name not in usual} == sent


@pytest.mark.anyio
@requirement("models:cache:control")
async def test_only_openai_itself_gets_the_session_id(tmp_path: Path) -> None:
    async with loopback([as_events(chat("Hi"))]) as server, model_at(server, "openai", tmp_path) as model:
        await ask(model, request(session_id="s-1"))
        hosted = model._body  # what would go to api.openai.com is built without sending it
        assert b"prompt_cache_key" not in hosted(request(session_id="s-1"))
        model._is_openai = True  # type: ignore[attr-defined]
        assert b'"prompt_cache_key":"s-1"' in hosted(request(session_id="s-1"))
    assert "prompt_cache_key" not in server.asked[0].body


@pytest.mark.anyio
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_a_round_maps_only_what_is_new_in_the_history(
    wire: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped: list[Message] = []
    module = openai_wire if wire == "openai" else anthropic_wire
    real = module.message_to_wire

    def counted(message: Message, **options: Any) -> Any:
        mapped.append(message)
        return real(message, **options)

    monkeypatch.setattr(f"satchel.models.{wire}.client.message_to_wire", counted)
    history = [user("go")]
    async with loopback([]) as server, model_at(server, wire, tmp_path) as model:
        for number in range(50):
            call = ToolUseBlock(id=f"c{number}", name="look", input={"at": "a"})
            history += [assistant(call), results((call.id, "A wall."))]
            model._body(request(*history))
    # Each message once; with Anthropic the newest two of the user's once more with their marks.
    assert len(mapped) <= len(history) * (1 if wire == "openai" else 3)


@pytest.mark.parametrize(
    ("id", "same"),
    [("call_1", True), ("a-b_C9", True), ("", False), ("x" * 41, False), ("a.b:c", False), ("é", False)],
)
def test_ids_fit_what_providers_admit_and_stay_apart(id: str, same: bool) -> None:
    sent = wire_id(id, max_length=40)
    assert (sent == id) is same
    assert wire_id(id, max_length=40) == sent
    assert 0 < len(sent) <= 40
    assert sent.replace("_", "").replace("-", "").isalnum()
    assert sent.isascii()


def test_names_of_tools_that_never_were_can_still_be_sent_back() -> None:
    assert [wire_name(name) for name in ("look", "my tool!", "", "x" * 99)] == [
        "look",
        "my_tool_",
        "unnamed",
        "x" * 64,
    ]


def test_calls_without_an_id_or_with_a_repeated_one_get_one_of_their_own() -> None:
    ids = CallIds(lambda: {"call_1", "call_0"})
    assert [ids.claim(proposed) for proposed in ("", "call_0", "new", "new")] == [
        "call_3",
        "call_4",
        "new",
        "call_6",
    ]


@pytest.mark.parametrize(
    "calls",
    [
        # No index: whole calls, one after the other.
        [[{"id": "a", "function": {"name": "look", "arguments": "{}"}}],
         [{"id": "b", "function": {"name": "look", "arguments": "{}"}}]],
        # The same index for each.
        [[{"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}}],
         [{"index": 0, "id": "b", "function": {"name": "look", "arguments": "{}"}}]],
        # Arguments as an object, and in the same chunk.
        [[{"index": 0, "id": "a", "function": {"name": "look", "arguments": {}}},
          {"index": 1, "id": "b", "function": {"name": "look", "arguments": ""}}]],
        # The id again with every piece.
        [[{"index": 0, "id": "a", "function": {"name": "look", "arguments": "{"}}],
         [{"index": 0, "id": "a", "function": {"arguments": "}"}}],
         [{"index": 1, "id": "b", "function": {"name": "look"}}]],
        # No index, and pieces without an id.
        [[{"id": "a", "function": {"name": "look", "arguments": "{"}}], [{"function": {"arguments": "}"}}],
         [{"id": "b", "function": {"name": "look", "arguments": "{}"}}]],
    ],
)  # fmt: skip
def test_the_ways_in_which_endpoints_send_calls_are_one_way_for_us(calls: list[list[dict[str, Any]]]) -> None:
    answer = ChatAnswer(no_ids())
    for items in calls:
        answer.feed(chunk({"tool_calls": items}))
    answer.feed(chunk({}, "stop"))
    assert answer.blocks == (
        ToolUseBlock(id="a", name="look", input={}),
        ToolUseBlock(id="b", name="look", input={}),
    )
    assert answer.stop_reason == "tool_use"


@requirement("models:usage")
@pytest.mark.parametrize(
    ("sent", "usage"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(input_tokens=9, output_tokens=2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4},
         Usage(input_tokens=9, output_tokens=2, cache_read_tokens=4)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 16,
          "completion_tokens_details": {"reasoning_tokens": 5}}, Usage(input_tokens=9, output_tokens=7)),
        ({"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16,
          "completion_tokens_details": {"reasoning_tokens": 5}}, Usage(input_tokens=9, output_tokens=7)),
        ({"prompt_tokens": None, "completion_tokens": "x", "prompt_tokens_details": None}, Usage()),
    ],
)  # fmt: skip
def test_tokens_are_counted_as_each_endpoint_counts_them(sent: dict[str, Any], usage: Usage) -> None:
    assert openai_wire.usage_from_wire(sent) == usage


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(json_values)
def test_whatever_is_sent_is_json_that_every_endpoint_can_read(value: Any) -> None:
    sent = encode({"value": value})
    text = sent.decode()
    read = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert "value" in read
    assert "\0" not in str(read)


@given(st.text(alphabet=st.characters()))
def test_clean_text_is_text(text: str) -> None:
    cleaned = clean_text(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean_text(cleaned) == cleaned


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}), ("  ", {}), ("{}", {}), ('{"a": 1}', {"a": 1}), ("[]", None), ("null", None), ("{oops", None),
        ('{"a": NaN}', None), ('{"a": Infinity}', None), ("[" * 100_000, None), ('{"a": ' + "9" * 5000 + "}", None),
        ('{"a": 1} {"b": 2}', None),
    ],
)  # fmt: skip
def test_arguments_are_an_object_or_nothing(text: str, value: Any) -> None:
    assert parse_object(text) == value


@given(st.lists(st.text(alphabet="ab:\r\n é", max_size=12), max_size=5), st.data())
def test_events_are_the_same_however_the_network_cuts_them(texts: list[str], data: st.DataObject) -> None:
    datas = [" ".join(text.split()) for text in texts]
    ends = [data.draw(st.sampled_from(["\n", "\r\n", "\r"])) for _ in datas]
    raw = "".join(
        f": note{end}event: x{end}data: {text}{end}{end}" for text, end in zip(datas, ends, strict=True)
    )
    sent = raw.encode()
    places = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    reader = EventReader()
    edges = [0, *places, len(sent)]
    read = [
        event for start, end in zip(edges, edges[1:], strict=False) for event in reader.feed(sent[start:end])
    ]
    read += reader.finish()
    assert read == datas


def test_a_mapped_message_is_forgotten_when_there_are_too_many() -> None:
    made: list[str] = []

    def make(message: Message) -> bytes:
        made.append(message.text)
        return b"x" * 40

    cache: MessageCache[bytes] = MessageCache(limit=100, weigh=len)
    one, two, three = (user(text) for text in ("1", "2", "3"))
    for message in (one, two, one, three, one, two):
        cache.get(message, make)
    assert made == ["1", "2", "3", "2"]


@requirement("models:cost")
def test_a_call_costs_what_the_table_says_and_an_unknown_price_stays_unknown(tmp_path: Path) -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=100_000, cache_read_tokens=400_000)
    known = priced(usage, provider="openai", base_url="https://api.openai.com/v1", model="gpt-4o")
    assert known.cost_usd == pytest.approx(0.6 * 2.5 + 0.4 * 1.25 + 0.1 * 10)
    assert known_window(provider="openai", base_url="https://api.openai.com/v1", model="gpt-4o") == 128_000
    # The same of what was estimated, by the model as it is opened.
    settings = load(environ={"SATCHEL_HOME": str(tmp_path)}, cwd=tmp_path)
    opened = open_model("openai:gpt-4o", settings, abilities=AbilityStore(None, clock=CLOCK), clock=CLOCK)
    assert price_by(opened, usage) == known
    assert price_by(ScriptedModel([]), usage) == usage
    for provider, base_url, model in (
        ("openai", "http://127.0.0.1:1/v1", "gpt-4o"),
        ("mine", "https://example.org/v1", "nobody-knows-it"),
    ):
        assert priced(usage, provider=provider, base_url=base_url, model=model) == usage
        assert known_window(provider=provider, base_url=base_url, model=model) is None


@requirement("models:usage")
@pytest.mark.anyio
async def test_an_endpoint_that_counts_no_input_has_not_counted(tmp_path: Path) -> None:
    begin = {"type": "message_start", "message": {"usage": {"input_tokens": 0, "output_tokens": 0}}}
    empty = chunk({"content": "Hello there."}, "stop") | {"usage": {}}
    answers: dict[Wire, list[Any]] = {"openai": [empty], "anthropic": [begin, *messages("Hello there.")[1:]]}
    for wire, answer in answers.items():
        async with loopback([as_events(answer)]) as server, model_at(server, wire, tmp_path) as model:
            _, completion = await ask(model, request(user("Hi. " * 200)))
            assert (completion.usage.estimated, completion.usage.input_tokens > 100) == (True, True)


@requirement("models:usage")
@pytest.mark.anyio
async def test_an_estimate_counts_a_picture_and_not_the_characters_that_carry_it(tmp_path: Path) -> None:
    picture = FileBlock(sha256="a" * 64, media_type="image/png", name="a.png", size=900_000)
    asked = Message(role="user", blocks=(picture, TextBlock(text="What is this?")))
    answers: dict[Wire, list[Any]] = {"openai": chat("A ring.")[:-2], "anthropic": messages("A ring.")}
    answers["anthropic"][0] = {"type": "message_start", "message": {}}
    answers["anthropic"][-2] = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    for wire, answer in answers.items():
        async with loopback([as_events(answer)]) as server, model_at(server, wire, tmp_path) as model:
            _, completion = await ask(model, request(asked, read_file=lambda _: bytes(900_000)))
            assert len(server.asked[0].raw) > 1_000_000
            assert completion.usage.estimated
            assert 1_600 < completion.usage.input_tokens < 2_000


@pytest.mark.anyio
async def test_a_stream_that_ends_too_early_is_cut_whatever_it_calls_itself(tmp_path: Path) -> None:
    answers: dict[Wire, list[Any]] = {
        "openai": [chunk({"content": "The keys are in the"})],
        "anthropic": messages("The keys are in the")[:-2],
    }
    for wire, events in answers.items():
        answer = replace(as_events(events), kind="text/plain")
        async with loopback([answer] * 9) as server, model_at(server, wire, tmp_path) as model:
            with pytest.raises(ModelUnavailable, match="before its answer was complete"):
                await ask(model, request())


def test_a_call_whose_pieces_repeat_its_id_without_an_index_is_one_call() -> None:
    answer = ChatAnswer(no_ids())
    first = {"id": "a", "function": {"name": "look", "arguments": ""}}
    second, third = ({"id": "a", "function": {"arguments": part}} for part in ('{"at":', ' "b"}'))
    # Calls that are made at the same time may take turns.
    for piece in (first, second, {"id": "c", "function": {"name": "look", "arguments": "{}"}}, third):
        answer.feed(chunk({"tool_calls": [piece]}))
    answer.feed(chunk({}, "tool_calls"))
    assert answer.blocks == (
        ToolUseBlock(id="a", name="look", input={"at": "b"}),
        ToolUseBlock(id="c", name="look", input={}),
    )


@requirement("models:lazy-import")
def test_nothing_heavy_is_imported_before_a_model_is_asked() -> None:
    code = (
        "import sys; import satchel.models; from satchel.models.openai import OpenAIModel;"
        "from satchel.models.anthropic import AnthropicModel; from satchel.models.gguf import GGUFModel;"
        "print([name for name in ('openai', 'anthropic', 'httpx2', 'genai_prices', 'xllamacpp', 'numpy', 'pydantic')"
        " if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_answers_of_hostile_endpoints_are_read_without_an_error() -> None:
    hostile: list[Any] = [
        {}, {"choices": None}, {"choices": [None, 5, {}]}, {"choices": [{"delta": 5}]}, {"choices": [{"delta": None}]},
        {"choices": [{"index": 0, "delta": {"content": 5, "tool_calls": 5}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [None, {}, {"index": "x", "function": 5}]}}]},
        {"usage": 5, "model": 5}, {"type": "content_block_delta"}, {"type": "content_block_start", "content_block": 5},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "message_start", "message": {"usage": 5}}, {"type": "message_delta", "delta": 5}, {"type": 5},
    ]  # fmt: skip
    for answer in (ChatAnswer(no_ids()), MessagesAnswer(no_ids())):
        for value in hostile:
            answer.feed(dict(value))
            answer.feed_whole(dict(value))
        assert isinstance(answer.blocks, tuple)
        assert answer.stop_reason
