"""Models that Ollama runs: over its own API, so that the context window holds what is sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.errors import ContextOverflow, ModelRejected, ModelUnavailable
from satchel.events import TextDelta, ThinkingDelta
from satchel.messages import FileBlock, Message, TextBlock, ToolUseBlock
from satchel.models import ChatModel, ModelRequest
from satchel.models.abilities import AbilityStore
from satchel.models.opening import open_model
from satchel.models.port import window_of
from tests.models.loopback import (
    CLOCK,
    Answer,
    Asked,
    Loopback,
    as_events,
    as_json,
    ask,
    chat,
    loopback,
    request,
    results,
    settings_for,
    user,
)
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

SHOWN: dict[str, Any] = {
    "parameters": 'stop                           "<|im_end|>"\ntemperature                    0.6',
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960},
    "capabilities": ["completion", "tools", "vision"],
}


def lines(*said: Mapping[str, Any], reason: str = "stop") -> Answer:
    """A stream of Ollama's, in pieces that end in the middle of a line."""
    counts = {"prompt_eval_count": 70, "eval_count": 9}
    whole = [{"model": "q", "message": {"role": "assistant", **one}, "done": False} for one in said]
    whole.append({"model": "q", "message": {"role": "assistant", "content": ""}, "done": True} | counts)
    whole[-1]["done_reason"] = reason
    text = "".join(json.dumps(line) + "\n" for line in whole).encode()
    return Answer(kind="application/x-ndjson", pieces=[text[:30], text[30:75], text[75:]])


class Ollama:
    """Answers as Ollama does. `shown` is None before the model is pulled."""

    def __init__(self, answer: Answer, shown: Mapping[str, Any] | None = SHOWN) -> None:
        self.answer, self.shown = answer, shown

    def __call__(self, asked: Asked) -> Answer:
        if self.shown is None:
            return as_json({"error": "model 'q' not found"}, status=404)
        return as_json(self.shown) if asked.path == "/api/show" else self.answer


@asynccontextmanager
async def model_at(server: Loopback, folder: Path, **changes: Any) -> AsyncIterator[ChatModel]:
    settings = settings_for(server, folder, OLLAMA_HOST=f"127.0.0.1:{server.port}")
    provider = replace(settings.provider("ollama"), **changes)
    settings = replace(settings, providers={**settings.providers, "ollama": provider})
    abilities = AbilityStore(folder / "abilities.json", clock=CLOCK)
    # A name of its own: the window that a server was asked for is kept by its address and the name.
    model = open_model(f"ollama:{folder.name}", settings, abilities=abilities, clock=CLOCK)
    try:
        yield model
    finally:
        await model.aclose()


def long(tokens: int) -> ModelRequest:
    return request(user("word " * (tokens * 2 // 5)), tools=())


@requirement("models:ollama:window", "models:ollama:wire")
async def test_calls_thinking_results_and_options_go_over_ollamas_own_api(tmp_path: Path) -> None:
    called = [{"function": {"name": "look", "arguments": {"at": "a"}}}]
    said = lines({"content": "", "thinking": "Two looks."}, {"content": "Let me "}, {"tool_calls": called})
    history = (
        user("Hello"),
        Message(role="assistant", blocks=(ToolUseBlock(id="call_1", name="look", input={"at": "b"}),)),
        results(("call_1", "a door")),
    )
    async with loopback(Ollama(said)) as server, model_at(server, tmp_path) as model:
        asked = request(*history, temperature=0.5, max_tokens=100, options={"seed": 3, "top_p": 0.9})
        events, completion = await ask(model, replace(asked, response_schema={"type": "object"}))
    assert events[:2] == [ThinkingDelta(text="Two looks."), TextDelta(text="Let me ")]
    call = completion.blocks[-1]
    assert isinstance(call, ToolUseBlock)
    assert (call.name, call.input, completion.stop_reason) == ("look", {"at": "a"}, "tool_use")
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (70, 9)
    assert [each.path for each in server.asked] == ["/api/show", "/api/chat"]
    body = server.asked[-1].body
    assert body["options"] == {
        "num_ctx": 16_384,
        "num_predict": 100,
        "temperature": 0.5,
        "seed": 3,
        "top_p": 0.9,
    }
    assert body["format"] == {"type": "object"}
    assert [tool["function"]["name"] for tool in body["tools"]] == ["look"]
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_1", "function": {"name": "look", "arguments": {"at": "b"}}}],
        },
        {"role": "tool", "content": "a door", "tool_call_id": "call_1", "tool_name": "look"},
    ]
    assert model.context_window == 16_384


@requirement("models:ollama:window")
@pytest.mark.parametrize(
    ("changes", "parameters", "tokens", "window"),
    [
        ({}, "", 100, 16_384),
        ({}, "", 20_000, 32_768),
        ({}, "", 36_000, 40_960),
        ({}, "num_ctx                        8192", 100, 8_192),
        ({"context_window": 24_000}, "num_ctx                        8192", 100, 24_000),
    ],
)
async def test_the_window_is_the_users_then_the_models_own_and_grows_with_a_request(
    changes: dict[str, Any], parameters: str, tokens: int, window: int, tmp_path: Path
) -> None:
    shown = SHOWN | {"parameters": parameters}
    async with (
        loopback(Ollama(lines({"content": "Hi"}), shown)) as server,
        model_at(server, tmp_path, **changes) as m,
    ):
        await ask(m, long(tokens))
        await ask(m, long(100))
        # It stays as it is: for another window, Ollama would load the model again.
        assert [each.body["options"]["num_ctx"] for each in server.asked[1:]] == [window, window]


@requirement("models:ollama:window")
async def test_what_the_model_can_not_read_is_an_overflow_and_is_not_sent(tmp_path: Path) -> None:
    async with loopback(Ollama(lines({"content": "Hi"}))) as server, model_at(server, tmp_path) as model:
        with pytest.raises(ContextOverflow, match="40,960"):
            await ask(model, long(82_000))
        assert [each.path for each in server.asked] == ["/api/show"]


@requirement("models:ollama:wire")
async def test_pictures_go_to_a_model_that_sees_and_are_named_to_one_that_does_not(tmp_path: Path) -> None:
    picture = FileBlock(sha256="0" * 64, media_type="image/png", name="door.png", size=3)
    seen = Message(role="user", blocks=(picture, TextBlock(text="What is it?")))
    for abilities, images in (["vision"], ["cG5n"]), (["completion"], None):
        shown = SHOWN | {"capabilities": abilities}
        async with (
            loopback(Ollama(lines({"content": "A door"}), shown)) as server,
            model_at(server, tmp_path) as model,
        ):
            await ask(model, request(seen, read_file={picture: b"png"}.get))
        sent = server.asked[-1].body["messages"][-1]
        assert (sent.get("images") or None, "What is it?" in sent["content"]) == (images, True)
        assert ("You can't see pictures here." in sent["content"]) == (images is None)


@requirement("models:ollama:wire")
async def test_what_is_no_ollama_gets_chat_completions_and_is_asked_once_what_it_is(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Answer:
        return (
            as_json({"error": "no such page"}, status=404) if "show" in asked.path else as_events(chat("Hi"))
        )

    async with loopback(answer) as server, model_at(server, tmp_path) as model:
        for _ in range(2):
            assert (await ask(model, request()))[1].blocks == (TextBlock(text="Hi"),)
    assert [each.path for each in server.asked] == [
        "/api/show",
        "/v1/chat/completions",
        "/v1/chat/completions",
    ]


@requirement("models:ollama:window")
async def test_a_message_waits_a_moment_for_the_window_and_not_for_a_server_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.models.ollama.client._FIND_S", 0.2)
    free, ollama = anyio.Event(), Ollama(lines({"content": "Hi"}))

    def answer(asked: Asked) -> Answer:
        if len(server.asked) > 1:
            return ollama(asked)
        return replace(as_json(SHOWN), pieces=[b" ", json.dumps(SHOWN).encode()], hold=free)

    async with loopback(answer) as server, model_at(server, tmp_path) as model:
        with anyio.fail_after(10):
            assert await window_of(model) is None
        free.set()
        assert (await ask(model, request()))[1].blocks == (TextBlock(text="Hi"),)
        assert await window_of(model) == 16_384
    assert [each.path for each in server.asked] == ["/api/show", "/api/show", "/api/chat"]


@requirement("models:ollama:wire")
async def test_a_model_that_is_pulled_later_is_recognised_then(tmp_path: Path) -> None:
    ollama = Ollama(lines({"content": "Hi"}), shown=None)
    async with loopback(ollama) as server, model_at(server, tmp_path) as model:
        with pytest.raises(ModelRejected, match="not found"):
            await ask(model, request())
        ollama.shown = SHOWN
        await ask(model, request())
    assert server.asked[-1].path == "/api/chat"


@requirement("models:ollama:wire")
@pytest.mark.parametrize("kind", ["application/json", "text/plain", "Application/X-NDJSON"])
async def test_lines_are_read_whatever_they_call_themselves(tmp_path: Path, kind: str) -> None:
    whole = replace(lines({"content": "Hi "}, {"content": "there."}), kind=kind)
    async with loopback(Ollama(whole)) as server, model_at(server, tmp_path) as model:
        _, completion = await ask(model, request())
    assert completion.message.text == "Hi there."
    cut = replace(whole, pieces=b"".join(whole.pieces).splitlines(keepends=True)[:-1])
    async with loopback(Ollama(cut)) as server, model_at(server, tmp_path) as model:
        with pytest.raises(ModelUnavailable):
            await ask(model, request())


@requirement("models:ollama:wire")
async def test_an_error_and_a_cut_in_the_lines_are_said(tmp_path: Path) -> None:
    broken = Answer(kind="application/x-ndjson", pieces=[b'{"error":"an error was encountered: EOF"}\n'])
    async with loopback(Ollama(broken)) as server, model_at(server, tmp_path) as model:
        with pytest.raises(Exception, match="an error was encountered"):
            await ask(model, request())
