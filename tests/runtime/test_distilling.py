"""Distilling by itself while Satchel is open: when it runs, what it asks, what it costs, and how it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from satchel.messages import Usage
from satchel.models import Call, ModelRequest, Reply, ScriptedModel, extractor_of, small_model_of
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel
from satchel.runtime.background_models import background_lines
from satchel.runtime.health import examine
from tests.requirements import requirement
from tests.runtime.world import opened, settings_in

pytestmark = pytest.mark.anyio

AUTO = {"memory__distill": "auto", "memory__page_tokens": 0}


def reply(request: ModelRequest) -> Reply:
    usage = Usage(input_tokens=1_000, output_tokens=10, cost_usd=0.5)
    if request.system.startswith("You decide"):
        return Reply(text='{"worth": true, "reason": "a cat"}', usage=usage)
    if request.system.startswith("You keep what"):
        fact = {"content": "The user has a cat called Mimi.", "quote": "my cat Mimi"}
        return Reply(text=json.dumps({"facts": [fact]}), usage=usage)
    return Reply(text="I see.", usage=usage)


async def facts_of(satchel: Satchel) -> list[str]:
    assert satchel.memory is not None
    return [record.content for record in await satchel.memory.list(kind="fact")]


async def until_read(satchel: Satchel) -> None:
    assert satchel.memory is not None
    with anyio.fail_after(120):
        while (await satchel.memory.distill_status()).pending:
            await anyio.lowlevel.checkpoint()


@requirement("memory:distill:trigger")
async def test_what_was_said_is_read_after_so_many_messages_and_its_cost_is_shown(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(reply), memory__distill_every=4, **AUTO) as satchel:
        session = await satchel.session()
        await session.run_turn("This is my cat Mimi.")
        assert await facts_of(satchel) == []
        await session.run_turn("She is fine.")
        await until_read(satchel)
        assert await facts_of(satchel) == ["The user has a cat called Mimi."]
        rows = {(row.session_id, row.calls, row.usage.cost_usd) for row in await satchel.usage()}
        assert rows == {(session.id, 2, 1.0), ("", 1, 0.5)}
        checks = {check.part: (check.state, check.text) for check in await examine(satchel)}
        assert checks["distilling"] == ("ok", "1 fact from 4 messages")


@requirement("memory:page:written")
async def test_a_program_that_is_open_writes_the_page_when_it_has_read_what_was_said(tmp_path: Path) -> None:
    settings = {"memory__distill": "auto", "memory__distill_every": 2}
    async with opened(tmp_path, ScriptedModel(reply), **settings) as satchel:
        assert satchel.memory is not None
        await (await satchel.session()).run_turn("This is my cat Mimi.")
        with anyio.fail_after(120):
            while (page := await satchel.memory.page()) is None:
                await anyio.lowlevel.checkpoint()
        assert [line.words for line in page.memories] == ["The user has a cat called Mimi."]


@requirement("memory:distill:trigger")
async def test_what_waited_since_another_time_is_read_when_satchel_opens(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(reply)) as satchel:
        await (await satchel.session()).run_turn("This is my cat Mimi.")
    async with opened(tmp_path, ScriptedModel(reply), memory__distill_every=1, **AUTO) as satchel:
        await until_read(satchel)
        assert await facts_of(satchel) == ["The user has a cat called Mimi."]


async def test_the_days_budget_holds_for_it_too(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(reply)) as satchel:
        await (await satchel.session()).run_turn("This is my cat Mimi.")
    async with opened(tmp_path, ScriptedModel(reply), budget__day_usd=0.4) as satchel:
        report = await satchel.distilling.run()
        assert report.stopped == (
            "$0.5000 was spent today, and the limit is $0.4 (budget.day_usd). It continues tomorrow."
        )
        assert (report.pending, report.usage) == (2, Usage())


@requirement("background:budget")
async def test_one_switch_and_one_budget_hold_for_all_that_models_do_unasked(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"memory__distill_every": 1, "memory__surface_judge": "small_model"}
    asked: list[ModelRequest] = []

    def noting(request: ModelRequest) -> Reply:
        asked.append(request)
        return reply(request)

    def purposes(rows: Any) -> list[str]:
        return sorted(row.purpose for row in rows if not row.session_id)

    # Turned off: nothing reads, and nobody judges.
    off = {**settings, "memory__distill": "auto", "background__models": "off"}
    async with opened(tmp_path, ScriptedModel(noting), **off) as satchel:
        await (await satchel.session()).run_turn("This is my cat Mimi.")
        await (await satchel.session()).run_turn("What is my cat called?")
        assert await satchel.distilling.read_closed(silent_s=0) is None
        assert purposes(await satchel.usage()) == []
    # A budget that the first request uses up. What the user asks for is done all the same.
    small = {**settings, "memory__distill": "auto", "background__day_tokens": 1_000}
    async with opened(tmp_path, ScriptedModel(noting), **small) as satchel:
        assert satchel.memory is not None
        with anyio.fail_after(120):
            while not purposes(await satchel.usage()):
                await anyio.lowlevel.checkpoint()
        await satchel.distilling.close()
        today = await satchel.home.background_day(satchel.clock.now().astimezone().date().isoformat())
        assert today.spent == "1,010 of 1,000 tokens a day (background.day_tokens)"
        await (await satchel.session()).run_turn("And a dog.")
        before = len(asked)
        report = await satchel.distilling.read_closed(silent_s=0)
        assert report is not None
        assert (report.windows, len(asked)) == ((), before)
        assert "satchel memory distill" in report.stopped
        assert background_lines(today) == [
            "In the background today, of 1,000 tokens:",
            "  gate            0 calls           0 tokens",
            "  extract         1 calls       1,010 tokens  $0.5000",
            "  judge           0 calls           0 tokens",
            "  title           0 calls           0 tokens",
            "  picture         0 calls           0 tokens",
            "  earn            0 calls           0 tokens",
            "  capability      0 calls           0 tokens",
            "  total           1 calls       1,010 tokens  $0.5000",
        ]
        checks = {check.part: check.text for check in await examine(satchel)}
        assert "today's budget is used up" in checks["distilling"]
        assert (await satchel.distilling.run()).windows


async def test_a_private_session_is_never_read(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(reply)) as satchel:
        await (await satchel.session(private=True)).run_turn("This is my cat Mimi.")
        assert (await satchel.distilling.run()).windows == ()


@requirement("memory:distill:windows")
async def test_neither_the_output_of_tools_nor_system_text_is_read_for_facts(tmp_path: Path) -> None:
    asked: list[ModelRequest] = []

    def look_first(request: ModelRequest) -> Reply:
        asked.append(request)
        if request.system.startswith("You ") and not request.tools:
            return reply(request)
        if len(request.messages) == 1:
            return Reply(text="Let me look.", calls=[Call(name="file_read", input={"path": "notes.txt"})])
        return Reply(text="Mimi has an appointment.")

    async with opened(tmp_path, ScriptedModel(look_first)) as satchel:
        (tmp_path / "work" / "notes.txt").write_text("The vet's number is 555-0199.")
        await (await satchel.session()).run_turn("Does my cat Mimi have an appointment?")
        assert asked[0].system
        assert "555-0199" in str(asked[1].messages)
        turn = len(asked)
        await satchel.distilling.run()
    read = "\n".join(request.messages[0].text for request in asked[turn:])
    assert "Does my cat Mimi have an appointment?" in read
    assert "Mimi has an appointment." in read
    assert "555-0199" not in read
    assert asked[0].system.splitlines()[0] not in read


def test_the_small_model_is_the_configured_one_or_the_small_one_of_the_same_provider(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    assert small_model_of("anthropic:claude-sonnet-5-5", settings) == "anthropic:claude-haiku-5-5"
    assert small_model_of("ollama:qwen3", settings) == "ollama:qwen3"
    configured = settings_in(tmp_path, small_model="groq:tiny")
    assert small_model_of("anthropic:claude-sonnet-5-5", configured) == "groq:tiny"


@requirement("memory:distill:extractor")
@pytest.mark.parametrize(
    ("model", "extractor"),
    [
        ("anthropic:claude-opus-5-5", "anthropic:claude-sonnet-5-5"),
        ("anthropic:claude-sonnet-5-5", "anthropic:claude-sonnet-5-5"),
        ("openai:gpt-6.1-sol", "openai:gpt-6.1-terra"),
        ("mistral:mistral-large-latest", "mistral:mistral-medium-latest"),
        ("gemini:gemini-3.8-pro", "gemini:gemini-3.8-flash"),
        # Of two models, the small one; and what the user chose to pay less for is not replaced by a larger one.
        ("deepseek:deepseek-v4-pro", "deepseek:deepseek-v4-flash"),
        ("anthropic:claude-haiku-5-5", "anthropic:claude-haiku-5-5"),
        # Of other providers, no model is known.
        ("ollama:qwen3", "ollama:qwen3"),
        ("groq:large", "groq:large"),
    ],
)
def test_the_extractor_is_a_middle_model_of_the_provider_and_never_its_largest(
    tmp_path: Path, model: str, extractor: str
) -> None:
    assert extractor_of(model, settings_in(tmp_path)) == extractor
    configured = settings_in(tmp_path, memory__extractor="groq:middle")
    assert extractor_of(model, configured) == "groq:middle"
    moved = settings_in(tmp_path, environ={"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"})
    assert extractor_of("anthropic:any", moved) == "anthropic:any"


@requirement("memory:distill:extractor")
async def test_the_models_of_the_settings_are_the_ones_that_are_asked(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "model": "anthropic:claude-opus-5-5",
        "small_model": "openai:m-small",
        "memory__extractor": "openai:m-middle",
    }
    async with Satchel.open(settings_in(tmp_path, **settings), embedder=HashingEmbedder()) as satchel:
        models = satchel.parts.models
        names = [await models.model(), await models.small(), await models.extractor()]
    assert [f"{model.provider}:{model.model}" for model in names] == list(settings.values())
