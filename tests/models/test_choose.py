"""Which model serves, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from satchel.config import ProviderSettings, Settings, load, set_value
from satchel.errors import ConfigError, ModelAuthError
from satchel.models import (
    AbilityStore,
    Choice,
    RecallModel,
    available_models,
    choose_model,
    open_model,
    split_name,
)
from tests.models.loopback import CLOCK, Answer, Asked, as_json, loopback
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

NOBODY = "127.0.0.1:1"  # port 1 is reserved: nothing listens there


def settings(folder: Path, *, home: str = "home", **environ: str) -> Settings:
    return load({"OLLAMA_HOST": NOBODY, **environ}, cwd=folder, home=folder / home)


def listing(*names: str) -> Answer:
    return as_json({"object": "list", "data": [{"id": name} for name in names]})


def tried(choice: Choice) -> list[tuple[str, str]]:
    return [(each.name, each.outcome) for each in choice.tried if each.outcome != "absent"]


@requirement("models:choice:order", "models:choice:says-why")
@pytest.mark.parametrize(
    ("environ", "name", "why"),
    [
        ({"SATCHEL_MODEL": "deepseek:x", "ANTHROPIC_API_KEY": "k"}, "deepseek:x", "set by SATCHEL_MODEL"),
        ({"SATCHEL_MODEL": "none", "ANTHROPIC_API_KEY": "k"}, "none", "set by SATCHEL_MODEL"),
        ({"SATCHEL_MODEL": "gguf:/m.gguf"}, "gguf:/m.gguf", "set by SATCHEL_MODEL"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic:claude-sonnet-5-5", "the key in ANTHROPIC_API_KEY"),
        ({"OPENAI_API_KEY": "k"}, "openai:gpt-6.1-terra", "the key in OPENAI_API_KEY"),
        ({"OPENROUTER_API_KEY": "k"}, "openrouter:openrouter/auto", "the key in OPENROUTER_API_KEY"),
        ({}, "none", "no key is set and no Ollama runs"),
        ({"OPENAI_API_KEY": "  "}, "none", "no key is set and no Ollama runs"),
    ],
)  # fmt: skip
async def test_the_configured_model_is_used_then_the_first_key_then_none(
    environ: dict[str, str], name: str, why: str, tmp_path: Path
) -> None:
    choice = await choose_model(settings(tmp_path, **environ))
    assert choice.name == name
    assert why in choice.why


@requirement("config:providers:model")
async def test_a_provider_alone_means_the_model_of_its_entry_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('[providers.deepseek]\nmodel = "deepseek-mine"\n')
    found = settings(tmp_path, SATCHEL_MODEL="deepseek")
    assert (await choose_model(found)).name == "deepseek:deepseek-mine"
    by_key = settings(tmp_path, DEEPSEEK_API_KEY="k")
    assert (await choose_model(by_key)).name == "deepseek:deepseek-mine"
    named = settings(tmp_path, SATCHEL_MODEL="deepseek:other")
    assert (await choose_model(named)).name == "deepseek:other"
    opened = open_model("deepseek", found, abilities=AbilityStore(None, clock=CLOCK), clock=CLOCK)
    assert (opened.provider, opened.model) == ("deepseek", "deepseek-mine")
    await opened.aclose()
    set_value(tmp_path / "home" / "config.toml", "model", "deepseek")
    assert settings(tmp_path).model == "deepseek"
    for unknown in ("groq", "nobody"):
        with pytest.raises(ConfigError, match=f'"{unknown}" is not a model'):
            settings(tmp_path, SATCHEL_MODEL=unknown)
        with pytest.raises(ConfigError, match=f'"{unknown}" is not a model'):
            set_value(tmp_path / "home" / "config.toml", "model", unknown)


@requirement("models:choice:none-reachable")
async def test_every_provider_that_was_tried_is_listed_with_its_reason(tmp_path: Path) -> None:
    choice = await choose_model(settings(tmp_path))
    reasons = {each.name: each.reason for each in choice.tried}
    assert reasons["anthropic"] == "ANTHROPIC_API_KEY is not set"
    assert reasons["ollama"] == "nothing listens at 127.0.0.1:1"
    assert choice.failed == ()


async def test_a_running_ollama_is_used_with_its_first_chat_model(tmp_path: Path) -> None:
    async with loopback([listing("nomic-embed-text:latest", "qwen3:8b", "llama3:8b")]) as server:
        choice = await choose_model(settings(tmp_path, OLLAMA_HOST=f"127.0.0.1:{server.port}"))
    assert (choice.name, choice.why) == ("ollama:qwen3:8b", f"Ollama runs at 127.0.0.1:{server.port}")


async def test_an_ollama_with_embedding_models_only_does_not_serve_and_says_so(tmp_path: Path) -> None:
    async with loopback([listing("nomic-embed-text:latest", "bge-m3")]) as server:
        choice = await choose_model(settings(tmp_path, OLLAMA_HOST=f"127.0.0.1:{server.port}"))
    assert choice.name == "none"
    (failed,) = choice.failed
    assert failed.name == "ollama"
    assert "has no chat model: `ollama pull`" in failed.reason


async def test_an_endpoint_from_the_environment_is_used_with_any_key_or_none(tmp_path: Path) -> None:
    async with loopback([listing("text-embedding-x", "m-1"), listing("m-1"), listing("m-1")]) as server:
        url = f"{server.url}/v1"
        assert (
            await choose_model(settings(tmp_path, OPENAI_API_KEY="x", OPENAI_BASE_URL=url))
        ).name == "openai:m-1"
        assert (await choose_model(settings(tmp_path, OPENAI_BASE_URL=url))).name == "openai:m-1"
        anthropic = settings(tmp_path, ANTHROPIC_API_KEY="x", ANTHROPIC_BASE_URL=server.url)
        assert (await choose_model(anthropic)).name == "anthropic:m-1"
    assert [asked.path for asked in server.asked] == ["/v1/models"] * 3
    assert server.asked[0].headers["authorization"] == "Bearer x"
    assert server.asked[2].headers["x-api-key"] == "x"


async def test_a_default_that_the_endpoint_lists_is_preferred_to_its_first(tmp_path: Path) -> None:
    async with loopback([listing("a", "gpt-6.1-terra")]) as server:
        choice = await choose_model(settings(tmp_path, OPENAI_API_KEY="x", OPENAI_BASE_URL=server.url))
    assert choice.name == "openai:gpt-6.1-terra"


async def test_an_endpoint_that_lists_nothing_is_asked_for_the_default(tmp_path: Path) -> None:
    async with loopback([as_json({"detail": "Not Found"}, status=404)]) as server:
        choice = await choose_model(settings(tmp_path, OPENAI_API_KEY="x", OPENAI_BASE_URL=server.url))
    assert choice.name == "openai:gpt-6.1-terra"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (as_json({}, status=401), "refuses the key in OPENAI_API_KEY"),
        (Answer(kind="text/html", pieces=(b"<html>",)), "not JSON"),
        (listing("text-embedding-x"), "lists no chat model"),
        (as_json([]), "lists no chat model"),
        (as_json({"data": [None, 5, {"id": ""}]}), "lists no chat model"),
    ],
)
async def test_an_endpoint_that_does_not_work_is_skipped_and_reported(
    answer: Answer, words: str, tmp_path: Path
) -> None:
    async with loopback([answer]) as server:
        choice = await choose_model(settings(tmp_path, OPENAI_API_KEY="x", OPENAI_BASE_URL=server.url))
    assert choice.name == "none"
    assert [(failed.name, words in failed.reason) for failed in choice.failed] == [("openai", True)]


async def test_an_endpoint_that_is_down_is_passed_over_for_the_next_key(tmp_path: Path) -> None:
    environ = {"ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": f"http://{NOBODY}", "OPENAI_API_KEY": "x"}
    choice = await choose_model(settings(tmp_path, **environ))
    assert tried(choice) == [("anthropic", "failed"), ("openai:gpt-6.1-terra", "chosen")]
    assert "cannot be reached" in choice.failed[0].reason


async def test_an_unknown_provider_is_said_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no provider 'nobody'.*anthropic"):
        await choose_model(settings(tmp_path, SATCHEL_MODEL="nobody:m"))


async def test_the_list_of_an_endpoint_leaves_out_what_cannot_chat(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Answer:
        return as_json(
            {"models": [{"name": "models/gemini-x"}, {"name": "whisper-1"}, "plain", {"id": "tts-1"}]}
        )

    async with loopback(answer) as server:
        provider = ProviderSettings(name="mine", kind="openai", base_url=server.url, env_api_key="MINE_KEY")
        assert await available_models(provider, settings(tmp_path, MINE_KEY="k")) == ("gemini-x", "plain")
    refused = replace(provider, env_api_key="MINE_KEY")
    async with loopback([as_json({}, status=403)]) as server:
        with pytest.raises(ModelAuthError, match="MINE_KEY"):
            await available_models(replace(refused, base_url=server.url), settings(tmp_path))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("ollama:llama3:8b", ("ollama", "llama3:8b")),
        (" openai : gpt ", ("openai", "gpt")),
        ("none", ("none", "")),
        ("gguf:/a b/m.gguf", ("gguf", "/a b/m.gguf")),
    ],
)
def test_a_models_name_is_its_provider_and_its_name_there(name: str, parts: tuple[str, str]) -> None:
    assert split_name(name) == parts


async def test_models_are_opened_by_their_name(tmp_path: Path) -> None:
    abilities = AbilityStore(None, clock=CLOCK)
    options: dict[str, Any] = {"settings": settings(tmp_path), "abilities": abilities, "clock": CLOCK}
    for name, provider, model in (
        ("anthropic:claude-x", "anthropic", "claude-x"),
        ("ollama:llama3:8b", "ollama", "llama3:8b"),
        ("gguf:/m.gguf", "gguf", "/m.gguf"),
        ("none", "none", "recall"),
    ):
        opened = open_model(name, **options)
        assert (opened.provider, opened.model) == (provider, model)
        await opened.aclose()
        await opened.aclose()
    assert isinstance(open_model("none", **options), RecallModel)
    with pytest.raises(ConfigError, match="names only a provider"):
        open_model("openai", **options)
    with pytest.raises(ConfigError, match="no provider 'gpt-5'"):
        open_model("gpt-5", **options)
