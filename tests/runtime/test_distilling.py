"""Distilling by itself while Satchel is open: when it runs, what it asks, what it costs, and how it shows."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from satchel.messages import Usage
from satchel.models import Call, ModelRequest, Reply, ScriptedModel, small_model_of
from satchel.runtime import Satchel
from satchel.runtime.health import examine
from tests.requirements import requirement
from tests.runtime.world import opened, settings_in

pytestmark = pytest.mark.anyio

AUTO = {"memory__distill": "auto"}


def reply(request: ModelRequest) -> Reply:
    usage = Usage(input_tokens=1_000, output_tokens=10, cost_usd=0.5)
    if request.system.startswith("You decide"):
        return Reply(text='{"worth": true, "reason": "a cat"}', usage=usage)
    if request.system.startswith("You write down"):
        fact = {"content": "The user has a cat called Mimi.", "quote": "my cat Mimi"}
        return Reply(text=json.dumps({"facts": [fact]}), usage=usage)
    return Reply(text="I see.", usage=usage)


async def facts_of(satchel: Satchel) -> list[str]:
    assert satchel.memory is not None
    return [record.content for record in await satchel.memory.list(kind="fact")]


async def until_read(satchel: Satchel) -> None:
    assert satchel.memory is not None
    with anyio.fail_after(20):
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
        assert checks["distilling"] == ("ok", "1 fact from 4 messages, 0 pending")


@requirement("memory:distill:trigger")
async def test_what_waited_since_another_time_is_read_when_satchel_opens(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(reply)) as satchel:
        await (await satchel.session()).run_turn("This is my cat Mimi.")
    async with opened(tmp_path, ScriptedModel(reply), memory__distill_after_s=0, **AUTO) as satchel:
        await until_read(satchel)
        assert await facts_of(satchel) == ["The user has a cat called Mimi."]


async def test_the_days_budget_holds_for_it_too(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(reply)) as satchel:
        await (await satchel.session()).run_turn("This is my cat Mimi.")
    async with opened(tmp_path, ScriptedModel(reply), budget__day_usd=0.4) as satchel:
        report = await satchel.distilling.run()
        assert report.stopped == (
            "$0.5000 was spent today, and the limit is $0.4 (budget.day_usd). Distilling continues tomorrow."
        )
        assert (report.pending, report.usage) == (2, Usage())


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
