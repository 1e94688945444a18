"""Both wire formats against an endpoint on loopback: streaming, refusals, retries, cut connections."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import anyio
import pytest

from satchel.config.providers import builtin_providers
from satchel.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelRejected,
    ModelUnavailable,
)
from satchel.events import TextDelta, ThinkingDelta, ToolInputDelta
from satchel.messages import (
    FileBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from satchel.models import AbilityStore, ChatModel, ModelEvent, Retrying, open_model
from satchel.models.anthropic import AnthropicModel
from satchel.models.files import most_named
from satchel.models.hosted import HostedModel
from satchel.models.openai import OpenAIModel
from tests.models.loopback import (
    CLOCK,
    LOOK,
    Answer,
    Loopback,
    Wire,
    as_events,
    as_json,
    ask,
    begun,
    block,
    chat,
    chunk,
    ended,
    loopback,
    messages,
    request,
    results,
    says,
    settings_for,
    user,
)
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

WIRES: list[Wire] = ["openai", "anthropic"]
both = pytest.mark.parametrize("wire", WIRES)


class Waits:
    """Notes what would have been waited, and waits nothing."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def model_at(
    server: Loopback,
    wire: Wire,
    folder: Path,
    *,
    waits: Waits | None = None,
    stream: bool = True,
    **changes: Any,
) -> AsyncIterator[HostedModel]:
    settings = settings_for(server, folder, stream=stream)
    provider = replace(settings.provider(wire), **changes)
    kind = OpenAIModel if wire == "openai" else AnthropicModel
    model = kind(
        provider,
        "m-1",
        api_key=settings.secret(provider.env_api_key),
        clock=CLOCK,
        random=Random(7),
        sleep=waits or Waits(),
    )
    try:
        yield model
    finally:
        await model.aclose()


CALLS: dict[Wire, list[Any]] = {
    "openai": [
        chunk({"role": "assistant", "content": None, "reasoning_content": "Two "}),
        chunk({"reasoning_content": "looks."}),
        chunk({"content": "Let me "}),
        chunk({"content": "look."}),
        chunk({"tool_calls": [{"index": 0, "id": "id_a", "type": "function", "function": {"name": "look"}}]}),
        chunk({"tool_calls": [{"index": 1, "id": "id_b", "function": {"name": "look", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"at":'}}]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": "{oops"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"a"}'}}]}),
        chunk({}, "tool_calls"),
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 9,
                "total_tokens": 109,
                "prompt_tokens_details": {"cached_tokens": 60},
            },
        },
        "[DONE]",
    ],
    "anthropic": [
        {"type": "message_start", "message": {**begun()["message"], "usage": {
            "input_tokens": 40, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0, "output_tokens": 1}}},
        {"type": "ping"},
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Two "},
            {"type": "thinking_delta", "thinking": "looks."},
            {"type": "signature_delta", "signature": "proof"},
        ),
        *block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "Let me "},
            {"type": "text_delta", "text": "look."},
        ),
        # Pieces of two blocks may come in turns.
        {"type": "content_block_start", "index": 2,
         "content_block": {"type": "tool_use", "id": "id_a", "name": "look", "input": {}}},
        {"type": "content_block_start", "index": 3,
         "content_block": {"type": "tool_use", "id": "id_b", "name": "look", "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"at":'}},
        {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": "{oops"}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '"a"}'}},
        *ended("tool_use", 9),
    ],
}  # fmt: skip


@both
@requirement(
    "models:openai:wire",
    "models:anthropic:wire",
    "models:stream:text-thinking-arguments",
    "models:same-blocks",
    "models:arguments:unparsed",
    "models:usage",
    "models:layers:native",
)
async def test_text_thinking_and_interleaved_arguments_stream_and_end_as_the_same_blocks(
    wire: Wire, tmp_path: Path
) -> None:
    async with loopback([as_events(CALLS[wire])]) as server, model_at(server, wire, tmp_path) as model:
        events, completion = await ask(model, request())
    assert events == [
        ThinkingDelta(text="Two "),
        ThinkingDelta(text="looks."),
        TextDelta(text="Let me "),
        TextDelta(text="look."),
        ToolInputDelta(call_id="id_a", tool="look", text='{"at":'),
        ToolInputDelta(call_id="id_b", tool="look", text="{oops"),
        ToolInputDelta(call_id="id_a", tool="look", text='"a"}'),
    ]
    assert completion.blocks == (
        ThinkingBlock(text="Two looks.", signature="proof" if wire == "anthropic" else ""),
        TextBlock(text="Let me look."),
        ToolUseBlock(id="id_a", name="look", input={"at": "a"}),
        ToolUseBlock(id="id_b", name="look", input=None, unparsed="{oops"),
    )
    assert completion.stop_reason == "tool_use"
    assert completion.usage == Usage(input_tokens=100, output_tokens=9, cache_read_tokens=60)
    assert (completion.provider, completion.model) == (wire, "m-1")


@both
@requirement("models:same-blocks")
async def test_an_answer_in_one_piece_gives_the_same_blocks_as_a_stream(wire: Wire, tmp_path: Path) -> None:
    call = {"id": "id_a", "type": "function", "function": {"name": "look", "arguments": '{"at":"a"}'}}
    whole: dict[Wire, dict[str, Any]] = {
        "openai": {
            "model": "m-1",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        },
        "anthropic": {
            "type": "message",
            "role": "assistant",
            "model": "m-1",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "id_a", "name": "look", "input": {"at": "a"}},
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 7, "output_tokens": 3},
        },
    }
    # The second time a stream is asked for, and the endpoint does not care.
    async with loopback([as_json(whole[wire]), as_json(whole[wire])]) as server:
        for stream in (False, True):
            async with model_at(server, wire, tmp_path, stream=stream) as model:
                events, completion = await ask(model, request())
            assert events == [
                TextDelta(text="Let me look."),
                ToolInputDelta(call_id="id_a", tool="look", text='{"at":"a"}'),
            ]
            assert completion.blocks == (
                TextBlock(text="Let me look."),
                ToolUseBlock(id="id_a", name="look", input={"at": "a"}),
            )
            assert (completion.stop_reason, completion.usage) == (
                "tool_use",
                Usage(input_tokens=7, output_tokens=3),
            )
    assert [asked.body.get("stream", False) for asked in server.asked] == [False, True]


@both
async def test_key_path_and_limits_go_out_as_the_provider_wants_them(wire: Wire, tmp_path: Path) -> None:
    async with loopback([as_events(says(wire, "Hi"))]) as server, model_at(server, wire, tmp_path) as model:
        await ask(model, request(max_tokens=50, temperature=0.5))
    (asked,) = server.asked
    if wire == "openai":
        assert (asked.path, asked.headers["authorization"]) == ("/v1/chat/completions", "Bearer key-o")
    else:
        assert (asked.path, asked.headers["x-api-key"]) == ("/v1/messages", "key-a")
        assert asked.headers["anthropic-version"]
    assert {key: asked.body[key] for key in ("model", "max_tokens", "temperature", "stream")} == {
        "model": "m-1",
        "max_tokens": 50,
        "temperature": 0.5,
        "stream": True,
    }


@both
@requirement("models:retry:passing", "models:error:typed")
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_passing_failures_are_asked_again_after_a_growing_wait(
    wire: Wire, status: int, tmp_path: Path
) -> None:
    refusal = as_json({"error": {"message": "busy", "type": "overloaded_error"}}, status=status)
    waits = Waits()
    async with (
        loopback([refusal, refusal, as_events(says(wire, "Hi"))]) as server,
        model_at(server, wire, tmp_path, waits=waits) as model,
    ):
        events, completion = await ask(model, request())
    retries = [event for event in events if isinstance(event, Retrying)]
    assert [retry.attempt for retry in retries] == [1, 2]
    assert [retry.delay_s for retry in retries] == waits.seconds
    assert 0.25 <= waits.seconds[0] <= 0.5 <= waits.seconds[1] <= 1.0
    assert f"answered {status}: busy" in retries[0].reason
    assert completion.message.text == "Hi"


@both
@requirement("models:retry:passing")
async def test_an_endpoint_that_says_when_to_come_back_is_waited_for(wire: Wire, tmp_path: Path) -> None:
    waits = Waits()
    busy = as_json({"error": {"message": "slow down"}}, status=429, **{"retry-after": "7"})
    async with (
        loopback([busy, as_events(says(wire, "Hi"))]) as server,
        model_at(server, wire, tmp_path, waits=waits) as model,
    ):
        await ask(model, request())
    assert waits.seconds == [7.0]


@both
async def test_an_endpoint_that_asks_for_an_hour_is_not_waited_for(wire: Wire, tmp_path: Path) -> None:
    busy = as_json({"error": {"message": "slow down"}}, status=429, **{"retry-after": "3600"})
    async with loopback([busy]) as server, model_at(server, wire, tmp_path) as model:
        with pytest.raises(ModelUnavailable) as caught:
            await ask(model, request())
    assert caught.value.retry_after_s == 3600
    assert len(server.asked) == 1


@both
async def test_an_endpoint_that_stays_down_fails_after_four_requests(wire: Wire, tmp_path: Path) -> None:
    down = as_json({"error": {"message": "down"}}, status=503)
    async with loopback([down] * 4) as server, model_at(server, wire, tmp_path) as model:
        with pytest.raises(ModelUnavailable, match=r"answered 503: down\. Satchel tried 4 times\."):
            await ask(model, request())
    assert len(server.asked) == 4


@both
async def test_nobody_listening_is_said_with_the_address(wire: Wire, tmp_path: Path) -> None:
    async with loopback([]) as server:
        pass
    async with model_at(server, wire, tmp_path) as model:
        with pytest.raises(ModelUnavailable, match=rf"cannot be reached: .*127\.0\.0\.1:{server.port}"):
            await ask(model, request())


@both
@requirement("models:cut-stream")
@pytest.mark.parametrize("how", ["closed", "ended", "in the middle of an event"])
async def test_a_stream_without_its_finish_reason_is_cut_and_asked_again_when_nothing_was_shown(
    wire: Wire, how: str, tmp_path: Path
) -> None:
    whole = as_events(says(wire, "Hi"))
    head = as_events([chunk({"role": "assistant"})] if wire == "openai" else [begun()])
    half = Answer(pieces=(b'data: {"choi',), cut=True)
    cut = {"closed": replace(head, cut=True), "ended": head, "in the middle of an event": half}[how]
    async with loopback([cut, whole]) as server, model_at(server, wire, tmp_path) as model:
        events, completion = await ask(model, request())
    assert [type(event) for event in events] == [Retrying, TextDelta]
    assert completion.message.text == "Hi"
    assert len(server.asked) == 2


@both
@requirement("models:retry:nothing-twice", "models:cut-stream")
async def test_what_was_shown_is_not_asked_for_again(wire: Wire, tmp_path: Path) -> None:
    cut = as_events(says(wire, "Half an ", "answer")[: 2 if wire == "openai" else 3], cut=True)
    shown: list[ModelEvent] = []

    async def read(model: ChatModel) -> None:
        async for event in model.stream(request()):
            shown.append(event)  # noqa: PERF401  what came before the error is looked at

    async with (
        loopback([cut, as_events(says(wire, "x"))]) as server,
        model_at(server, wire, tmp_path) as model,
    ):
        with pytest.raises(ModelUnavailable, match="had already arrived") as caught, anyio.fail_after(120):
            await read(model)
    assert shown[0] == TextDelta(text="Half an ")
    assert not any(isinstance(event, Retrying) for event in shown)
    assert "closed the connection before its answer was complete" in str(caught.value)
    assert len(server.asked) == 1


@both
async def test_an_error_in_the_stream_is_the_error_that_it_says(wire: Wire, tmp_path: Path) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    async with (
        loopback([as_events([error]), as_events(says(wire, "Hi"))]) as server,
        model_at(server, wire, tmp_path) as model,
    ):
        events, _ = await ask(model, request())
    assert isinstance(events[0], Retrying)
    assert "529: Overloaded" in events[0].reason


@both
@requirement("models:error:auth-once", "models:error:typed")
@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (401, {"message": "invalid x-api-key", "type": "authentication_error"}, "Check whether the key in"),
        (403, {"message": "not for you"}, "Check whether the key in"),
        (402, {"message": "Insufficient Balance"}, "no credit left"),
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}, "no credit left"),
        (400, {"message": "Your credit balance is too low to access the API."}, "no credit left"),
    ],
)
async def test_a_wrong_key_and_no_credit_are_said_once(
    wire: Wire, status: int, error: dict[str, str], words: str, tmp_path: Path
) -> None:
    async with (
        loopback([as_json({"error": error}, status=status)]) as server,
        model_at(server, wire, tmp_path) as model,
    ):
        with pytest.raises(ModelAuthError, match=words) as caught:
            await ask(model, request())
    assert f"{wire.upper()}_API_KEY" in str(caught.value)
    assert "key-" not in str(caught.value)
    assert len(server.asked) == 1


@both
async def test_what_is_said_and_the_key_are_sent_on_to_no_other_address(wire: Wire, tmp_path: Path) -> None:
    async with loopback([]) as other:
        elsewhere = Answer(status=307, headers={"location": f"{other.url}/v1"})
        async with loopback([elsewhere]) as server, model_at(server, wire, tmp_path) as model:
            with pytest.raises(ModelRejected, match="answered 307"):
                await ask(model, request())
        assert other.asked == []


@both
async def test_a_key_that_cannot_be_one_is_said_before_anything_is_sent(wire: Wire, tmp_path: Path) -> None:
    async with loopback([]) as server:
        settings = settings_for(server, tmp_path, OPENAI_API_KEY="schlüssel", ANTHROPIC_API_KEY="schlüssel")
        model = open_model(f"{wire}:m-1", settings, abilities=AbilityStore(None, clock=CLOCK), clock=CLOCK)
        with pytest.raises(ModelAuthError, match="characters that can't be part of a key"):
            await ask(model, request())
        await model.aclose()
    assert server.asked == []


@both
async def test_a_hosted_provider_without_its_key_says_which_one_to_set(wire: Wire, tmp_path: Path) -> None:
    async with loopback([]) as server:
        settings = settings_for(server, tmp_path)
    own = replace(
        settings.provider(wire),
        base_url={"openai": "https://api.openai.com/v1"}.get(wire, "https://api.anthropic.com"),
    )
    kind = OpenAIModel if wire == "openai" else AnthropicModel
    with pytest.raises(ModelAuthError, match=f"needs a key: set {wire.upper()}_API_KEY"):
        await ask(kind(own, "m-1", api_key=None, clock=CLOCK), request())


@both
@requirement("models:error:overflow")
async def test_a_request_that_is_too_long_is_a_context_overflow(wire: Wire, tmp_path: Path) -> None:
    words = {
        "openai": {
            "message": "This model's maximum context length is 8192 tokens.",
            "code": "context_length_exceeded",
        },
        "anthropic": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 210000 tokens > 200000 maximum",
        },
    }
    async with (
        loopback([as_json({"error": words[wire]}, status=400)]) as server,
        model_at(server, wire, tmp_path) as model,
    ):
        with pytest.raises(ContextOverflow):
            await ask(model, request())


async def test_a_web_page_instead_of_an_answer_asks_about_the_address(tmp_path: Path) -> None:
    page = Answer(kind="text/html", pieces=(b"<html><h1>Welcome</h1></html>",))
    async with loopback([page]) as server, model_at(server, "openai", tmp_path) as model:
        with pytest.raises(ModelRejected, match=r"not JSON: <html>.*Is its address .* right\?"):
            await ask(model, request())


async def test_a_stream_that_calls_itself_text_is_read_all_the_same(tmp_path: Path) -> None:
    stream = replace(as_events(chat("Hi")), kind="text/plain")
    async with loopback([stream]) as server, model_at(server, "openai", tmp_path) as model:
        _, completion = await ask(model, request())
    assert completion.message.text == "Hi"


@both
async def test_giving_up_a_stream_ends_the_request(wire: Wire, tmp_path: Path) -> None:
    held = replace(as_events(says(wire, "One ", "two")), hold=anyio.Event())
    async with loopback([held]) as server, model_at(server, wire, tmp_path) as model:
        with anyio.fail_after(120):
            async with aclosing(cast("Any", model.stream(request()))) as events:
                assert await anext(events) == TextDelta(text="One ")
            held.hold.set()  # type: ignore[union-attr]
            await server.hung_up.wait()


@both
async def test_cancelling_the_reader_ends_the_request(wire: Wire, tmp_path: Path) -> None:
    held = replace(as_events(says(wire, "One ", "two")), hold=anyio.Event())
    async with loopback([held]) as server, model_at(server, wire, tmp_path) as model:
        with anyio.fail_after(120):
            async with anyio.create_task_group() as group:
                async for event in model.stream(request()):
                    if event == TextDelta(text="two"):
                        break
                    group.cancel_scope.cancel()
            held.hold.set()  # type: ignore[union-attr]
            await server.hung_up.wait()


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        ("stream_options", "Extra inputs are not permitted: stream_options"),
        ("temperature", "Unsupported value: 'temperature' does not support 0.5 with this model."),
        ("response_format", "This response_format type is unavailable now"),
    ],
)
async def test_an_optional_parameter_that_is_refused_is_left_out_from_then_on(
    refused: str, words: str, tmp_path: Path
) -> None:
    answers = [as_json({"error": {"message": words}}, status=400), *[as_events(chat("Hi"))] * 2]
    asked = request(temperature=0.5, response_schema={"type": "object"})
    async with loopback(answers) as server, model_at(server, "openai", tmp_path) as model:
        for _ in range(2):
            _, completion = await ask(model, asked)
            assert completion.message.text == "Hi"
    assert [refused in each.body for each in server.asked] == [True, False, False]


async def test_the_output_limit_has_the_name_that_the_model_accepts(tmp_path: Path) -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    answers = [as_json({"error": {"message": words}}, status=400), as_events(chat("Hi"))]
    async with loopback(answers) as server, model_at(server, "openai", tmp_path) as model:
        await ask(model, request(max_tokens=9))
    assert [each.body.get("max_completion_tokens") for each in server.asked] == [None, 9]
    assert "max_tokens" not in server.asked[1].body


async def test_a_limit_above_the_models_own_is_lowered_to_it(tmp_path: Path) -> None:
    words = "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for m-1"
    answers = [as_json({"error": {"message": words}}, status=400), as_events(messages("Hi"))]
    async with loopback(answers) as server, model_at(server, "anthropic", tmp_path) as model:
        await ask(model, request())
    assert [each.body["max_tokens"] for each in server.asked] == [16000, 8192]


@both
async def test_an_endpoint_that_cannot_stream_is_asked_in_one_piece(wire: Wire, tmp_path: Path) -> None:
    whole = {
        "openai": {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]},
        "anthropic": {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"},
    }
    refusal = as_json({"error": {"message": "Streaming is not supported by this model."}}, status=400)
    async with loopback([refusal, as_json(whole[wire])]) as server, model_at(server, wire, tmp_path) as model:
        _, completion = await ask(model, request())
    assert completion.message.text == "Hi"
    assert completion.usage.estimated
    assert completion.usage.input_tokens > 10
    assert "stream" not in server.asked[1].body


async def test_an_endpoint_that_refuses_everything_is_not_asked_for_ever(tmp_path: Path) -> None:
    def refuse(asked: object) -> Answer:
        return as_json(
            {"error": {"message": "unsupported max_tokens, max_completion_tokens, temperature"}}, status=400
        )

    async with loopback(refuse) as server, model_at(server, "openai", tmp_path) as model:
        with pytest.raises(ModelRejected):
            await ask(model, request(max_tokens=5, temperature=1.0))
    assert len(server.asked) <= 7


async def test_reasoning_goes_back_with_its_calls_where_the_endpoint_insists(tmp_path: Path) -> None:
    words = "Missing `reasoning_content` field in the assistant message at message index 2"
    call = ToolUseBlock(id="id_a", name="look", input={"at": "a"})
    history = (
        user("Look"),
        Message(role="assistant", blocks=(ThinkingBlock(text="Hm."), call)),
        results(("id_a", "A wall.")),
    )
    answers = [as_json({"error": {"message": words}}, status=400), as_events(chat("A wall."))]
    async with loopback(answers) as server, model_at(server, "openai", tmp_path) as model:
        await ask(model, request(*history))
    assert [each.body["messages"][2].get("reasoning_content") for each in server.asked] == [None, "Hm."]


async def test_a_proof_that_came_with_a_call_goes_back_where_the_endpoint_insists(tmp_path: Path) -> None:
    signed = {"index": 0, "id": "id_a", "function": {"name": "look", "arguments": '{"at":"a"}'}}
    signed["extra_content"] = {"google": {"thought_signature": "proof"}}
    words = [
        {
            "error": {
                "code": 400,
                "message": "Function call is missing a thought_signature in functionCall parts.",
            }
        }
    ]
    stream = as_events([chunk({"tool_calls": [signed]}), chunk({}, "tool_calls")])
    answers = [stream, as_json(words, status=400), as_events(chat("A wall."))]
    async with loopback(answers) as server, model_at(server, "openai", tmp_path) as model:
        _, first = await ask(model, request())
        older = Message(role="assistant", blocks=(ToolUseBlock(id="id_0", name="look", input={"at": "b"}),))
        history = (
            user("Look"),
            older,
            results(("id_0", "A door.")),
            first.message,
            results(("id_a", "A wall.")),
        )
        await ask(model, request(*history))
    assert first.blocks[0] == ThinkingBlock(text="", signature="google:proof")
    sent = [
        message.get("tool_calls", [{}])[0].get("extra_content")
        for message in server.asked[2].body["messages"]
    ]
    unsigned = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert [each for each in sent if each] == [unsigned, {"google": {"thought_signature": "proof"}}]
    assert "extra_content" not in server.asked[1].raw.decode()


async def test_an_answer_in_one_piece_may_lack_its_reason_but_not_its_words(tmp_path: Path) -> None:
    whole = as_json({"choices": [{"message": {"content": "Hi"}}]})
    async with loopback([whole, *[as_json({})] * 4]) as server, model_at(server, "openai", tmp_path) as model:
        _, completion = await ask(model, request())
        assert (completion.message.text, completion.stop_reason) == ("Hi", "other")
        with pytest.raises(ModelUnavailable, match="contains no answer"):
            await ask(model, request())


async def test_an_input_that_is_no_object_keeps_its_words(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "id_a", "name": "look", "input": "{oops"}
    whole = as_json({"content": [call, {**call, "id": "id_b", "input": [1]}], "stop_reason": "tool_use"})
    async with loopback([whole]) as server, model_at(server, "anthropic", tmp_path) as model:
        _, completion = await ask(model, request())
    assert [(each.input, each.unparsed) for each in completion.message.tool_uses] == [
        (None, "{oops"),
        (None, "[1]"),
    ]


@requirement("models:text:hostile")
@both
async def test_what_is_no_text_is_made_safe_on_its_way_out(wire: Wire, tmp_path: Path) -> None:
    text = "a\0b \ud83d \ud83d\ude00 \\u0000 c"
    async with loopback([as_events(says(wire, "Hi"))]) as server, model_at(server, wire, tmp_path) as model:
        await ask(model, request(user(text)))
    message = server.asked[0].body["messages"][-1]
    sent = message["content"] if wire == "openai" else message["content"][0]["text"]
    assert sent == "a\ufffdb \ufffd \U0001f600 \\u0000 c"


@both
async def test_an_endless_answer_is_stopped(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.models.hosted.MAX_ANSWER_CHARS", 1000)
    stream = says(wire, *["x" * 100] * 50)
    async with loopback([as_events(stream)]) as server, model_at(server, wire, tmp_path) as model:
        _, completion = await ask(model, request())
    assert completion.stop_reason == "max_tokens"
    assert 1000 < len(completion.message.text) <= 5000


@requirement("models:layers:found-once", "models:layers:json")
async def test_an_endpoint_that_refuses_tools_is_driven_by_json_and_asked_only_once(tmp_path: Path) -> None:
    store = tmp_path / "abilities.json"

    def answer(asked: Any) -> Answer:
        if "tools" in asked.body:
            return as_json(
                {"error": {"message": "registry.ollama.ai/library/m does not support tools"}}, status=400
            )
        if "observation" in asked.body["messages"][-1]["content"]:
            return as_events(chat('{"final": "A wall."}'))
        return as_events(chat('{"action": {"tool": "look", ', '"input": {"at": "a"}}}'))

    async with loopback(answer) as server:
        settings = settings_for(server, tmp_path)
        for tools_refused in (1, 0):
            model: ChatModel = open_model(
                "openai:m-1", settings, abilities=AbilityStore(store, clock=CLOCK), clock=CLOCK
            )
            server.asked.clear()
            _, first = await ask(model, request())
            (call,) = first.message.tool_uses
            assert first.blocks == (ToolUseBlock(id=call.id, name="look", input={"at": "a"}),)
            assert first.stop_reason == "tool_use"
            _, second = await ask(model, request(user("Hello"), first.message, results((call.id, "Bricks."))))
            assert second.message.text == "A wall."
            assert sum("tools" in asked.body for asked in server.asked) == tools_refused
            assert server.asked[-1].body["messages"][-1] == {
                "role": "user",
                "content": '{"observation": "Bricks.", "tool": "look"}',
            }
            await model.aclose()


@both
@requirement("models:openai:tool-definitions")
async def test_tools_are_sent_in_each_providers_own_format(wire: Wire, tmp_path: Path) -> None:
    async with loopback([as_events(says(wire, "Hi"))]) as server, model_at(server, wire, tmp_path) as model:
        await ask(model, request())
    body = server.asked[0].body
    if wire == "openai":
        function = {"name": "look", "description": "Looks.", "parameters": LOOK.input_schema}
        assert body["tools"] == [{"type": "function", "function": function}]
        assert body["tool_choice"] == "auto"
    else:
        assert body["tools"] == [{"name": "look", "description": "Looks.", "input_schema": LOOK.input_schema}]


PICTURE = FileBlock(sha256="a" * 64, media_type="image/png", name="label.png", size=3)
PAPER = FileBlock(sha256="b" * 64, media_type="application/pdf", name="paper.pdf", size=5)


@requirement("content:models")
@both
async def test_an_endpoint_gets_pictures_and_documents_until_it_refuses_them_and_then_is_told_of_them(
    wire: Wire, tmp_path: Path
) -> None:
    refusals = [
        as_json({"error": {"message": words}}, status=400)
        for words in ("unknown content type: file or document", "image input is not supported")
    ]
    said = Message(role="user", blocks=(PICTURE, PAPER, TextBlock(text="What is it?")))
    asked = request(said, read_file={PICTURE: b"png", PAPER: b"%PDF-"}.get)
    answers = [*refusals, *[as_events(says(wire, "Hi"))] * 2]
    async with loopback(answers) as server, model_at(server, wire, tmp_path) as model:
        for _ in range(2):
            await ask(model, asked)
    sent = [json.dumps(each.body["messages"][-1]) for each in server.asked]
    picture, paper = base64.b64encode(b"png").decode(), base64.b64encode(b"%PDF-").decode()
    assert [picture in each for each in sent] == [True, True, False, False]
    assert [paper in each for each in sent] == [True, False, False, False]
    assert "label.png: image/png. You can't see pictures here." in sent[-1]
    assert "paper.pdf: application/pdf." in sent[-1]


@requirement("content:results")
@both
async def test_a_tools_result_shows_its_files_to_a_model_that_sees_and_else_says_what_they_are(
    wire: Wire, tmp_path: Path
) -> None:
    refused = as_json({"error": {"message": "image input is not supported"}}, status=400)
    sound = FileBlock(sha256="c" * 64, media_type="audio/ogg", name="a.ogg", size=2)
    call = Message(role="assistant", blocks=(ToolUseBlock(id="c1", name="look", input={}),))
    result = ToolResultBlock(tool_use_id="c1", content="A label.", files=(PICTURE, PAPER, sound))
    seen = Message(role="user", blocks=(result, TextBlock(text="It is noon.", origin="context")))
    contents = {PICTURE: b"png", PAPER: b"%PDF-", PAPER.text_twin: b"What it says.", sound: b"hm"}
    asked = request(user("Look."), call, seen, read_file=contents.get)
    answers = [as_events(says(wire, "Hi")), refused, refused, as_events(says(wire, "Hi"))]
    async with loopback(answers) as server, model_at(server, wire, tmp_path) as model:
        for _ in range(2):
            await ask(model, asked)
    before = 2 if wire == "anthropic" else 3  # with the system text
    first, last = (server.asked[at].body["messages"][before:] for at in (0, -1))
    picture, paper = base64.b64encode(b"png").decode(), base64.b64encode(b"%PDF-").decode()
    if wire == "anthropic":
        [shown, noon] = first[0]["content"]
        assert [part["type"] for part in shown["content"]] == ["text", "image", "document"]
        assert [part["source"]["data"] for part in shown["content"][1:]] == [picture, paper]
        assert noon["text"] == "It is noon."
        told = "\n".join(part["text"] for part in last[0]["content"][0]["content"])
    else:
        tool, shown = first
        assert (tool["role"], tool["content"]) == ("tool", "A label.\n\nIt is noon.")
        assert shown["content"] == [
            {"type": "text", "text": "[In the results of the tools: label.png, paper.pdf]"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}},
            {
                "type": "file",
                "file": {"filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{paper}"},
            },
        ]
        [tool] = last
        told = tool["content"]
    assert told.startswith("A label.")
    assert "[label.png: image/png. You can't see pictures here.]" in told
    assert "[paper.pdf]\nWhat it says." in told
    assert "a.ogg" not in json.dumps(server.asked[0].body)


@requirement("content:models")
async def test_a_picture_that_is_too_large_for_the_provider_is_named_instead(tmp_path: Path) -> None:
    said = Message(role="user", blocks=(PICTURE,))
    asked = request(said, read_file={PICTURE: bytes(4_000_000)}.get)
    answers = [as_events(messages("Hi"))]
    async with loopback(answers) as server, model_at(server, "anthropic", tmp_path) as model:
        await ask(model, asked)
    [part] = server.asked[0].body["messages"][0]["content"]
    assert part["text"] == (
        "[label.png: image/png. The picture has more than the 3.7 MB that you can be sent.]"
    )


def photos(*names: str, size: int = 3) -> list[FileBlock]:
    return [
        FileBlock(sha256=name * 64, media_type="image/jpeg", name=f"{name}.jpg", size=size) for name in names
    ]


def shown_in(body: Any) -> str:
    """The pictures of a request, each as its one letter, in order."""
    return "".join(
        base64.b64decode(data).decode()
        for data in re.findall(r'"data:image/jpeg;base64,([^"]+)', json.dumps(body))
    )


def letter_of(file: FileBlock) -> bytes | None:
    return file.sha256[0].encode() if file.media_type == "image/jpeg" and "small" not in file.name else None


@requirement("content:models")
@pytest.mark.parametrize(
    ("refusal", "most"),
    [
        ("At most 1 image(s) may be provided in one request.", 1),
        ("Too many images: maximum is 2.", 2),
        ("Invalid image: maximum size is 2 MB", None),
        ("Image too large: up to 1.5 MB.", None),
    ],
)
def test_how_large_a_picture_may_be_is_not_how_many_a_request_may_have(
    refusal: str, most: int | None
) -> None:
    message = Message(role="user", blocks=(*photos("a", "b", "c"), TextBlock(text="Three of them.")))
    assert most_named(refusal, [message]) == most


@requirement("content:models")
async def test_an_endpoint_that_names_how_many_pictures_it_takes_gets_the_newest_of_them(
    tmp_path: Path,
) -> None:
    first = Message(role="user", blocks=(*photos("a", "b"), TextBlock(text="Two of them.")))
    call = Message(role="assistant", blocks=(ToolUseBlock(id="c1", name="look", input={}),))
    result = ToolResultBlock(tool_use_id="c1", content="Here.", files=tuple(photos("c")))
    newest = Message(role="user", blocks=(result, *photos("d", "e")))
    refusal = "Too many images provided. This model supports up to 3 images"
    answers = [as_json({"error": {"message": refusal}}, status=400), *[as_events(chat("Hi"))] * 3]
    async with loopback(answers) as server, model_at(server, "openai", tmp_path) as model:
        for history in ([first, call, newest], [first, call, newest], [first]):
            await ask(model, request(*history, read_file=letter_of))
    assert [shown_in(each.body) for each in server.asked] == ["abcde", "cde", "cde", "ab"]
    assert "[a.jpg: It isn't shown to you any more: there are newer pictures.]" in json.dumps(
        server.asked[1].body
    )


@requirement("content:models")
async def test_a_providers_limits_for_pictures_are_in_its_record_and_kept(tmp_path: Path) -> None:
    known = builtin_providers({})
    assert known["mistral"].max_pictures == 8
    assert known["anthropic"].max_pictures_mb == 22
    history = [
        Message(role="user", blocks=(*photos(*letters, size=900_000), TextBlock(text="Look.")))
        for letters in ("ab", "c", "d", "efgh")
    ]
    answers = [as_events(chat("Hi"))] * len(history)
    async with (
        loopback(answers) as server,
        model_at(server, "openai", tmp_path, max_pictures=3, max_pictures_mb=2.0) as model,
    ):
        for end in range(1, len(history) + 1):
            await ask(model, request(*history[:end], read_file=letter_of))
    # What was left out stays so, which keeps the provider's cache: "c" is shown with "d", and not "b" again.
    assert [shown_in(each.body) for each in server.asked] == ["ab", "c", "cd", "gh"]
