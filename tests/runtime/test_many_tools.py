"""Deferred tools are found by the search of memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from satchel.clock import SystemClock
from satchel.errors import ModelError
from satchel.memory.text.framing import estimate_tokens
from satchel.models import Call, Reply, ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.runtime.tool_index import ToolIndex
from satchel.tools import Tool, ToolContext, ToolResult, function_tool
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio


def made(name: str, description: str) -> Tool:
    async def call(_: Mapping[str, Any], __: ToolContext) -> ToolResult:
        return ToolResult(text=name)

    return function_tool(call, name=name, description=description, properties={}, source="mcp")


WEATHER = made("get_forecast", "Weather forecast for a city and a day.")
MAIL = made("send_mail", "Send an electronic letter to somebody.")
INVOICE = made("create_invoice", "Write a bill for a customer.")


@requirement("tools:many:found")
@pytest.mark.parametrize("embedder", [HashingEmbedder(), "none"])
async def test_the_right_tool_is_found_and_a_changed_tool_is_found_by_its_new_definition(
    tmp_path: Path, embedder: HashingEmbedder | str
) -> None:
    index = ToolIndex(tmp_path / "tools.db", embedder=embedder, clock=SystemClock(), home=tmp_path)
    tools = [WEATHER, MAIL, INVOICE]
    assert (await index.find("weather in the city", tools, limit=3))[0] == "get_forecast"
    assert (await index.find("bill a customer", tools, limit=1)) == ["create_invoice"]
    changed = made("send_mail", "Rent a bicycle.")
    assert (await index.find("bicycle", [WEATHER, changed], limit=1)) == ["send_mail"]
    assert "create_invoice" not in await index.find("bill a customer", [WEATHER, changed], limit=3)


@requirement("tools:prompt:short")
async def test_a_first_request_is_short_and_what_it_leaves_out_is_found_described_and_taken(
    tmp_path: Path,
) -> None:
    script: list[Reply | str | ModelError] = [
        Reply(
            calls=[
                Call(name="tool_search", input={"query": "click a button on a web page"}),
                Call(name="tool_describe", input={"name": "recall_memory"}),
                Call(name="recall_memory", input={"query": "boat", "speaker": "nobody"}),
            ]
        ),
        "Done.",
    ]
    model = ScriptedModel(script)
    async with opened(tmp_path, model) as satchel:
        turn = await (await satchel.session()).run_turn("hi")
    request = model.requests[0]
    definitions = [json.dumps([t.name, t.description, t.input_schema]) for t in request.tools]
    # The aim for a first message, as `estimate_tokens` counts.
    assert estimate_tokens(request.system) + sum(map(estimate_tokens, definitions)) <= 2_500
    (recall,) = (tool for tool in request.tools if tool.name == "recall_memory")
    assert "speaker" not in recall.input_schema["properties"]
    assert "speaker" in recall.description
    searched, described, recalled = turn.steps
    assert searched.result.startswith("- browser: ")
    assert "Only what this person said." in described.result
    assert not recalled.is_error


@requirement("tools:many:bridge")
async def test_above_the_limit_only_the_bridge_is_in_the_prompt_and_its_calls_need_the_tools_own_permission(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "home" / "tools"
    folder.mkdir(parents=True, mode=0o700)
    for name in ("forecast", "invoice", "letter"):
        path = folder / name
        path.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = --schema ] && echo \'{{"name": "{name}", "description": "Makes a {name}."}}\' && exit\n'
            f"echo '\"made a {name}\"'\n"
        )
        path.chmod(0o700)
    script: list[Reply | str | ModelError] = [
        Reply(calls=[Call(name="tool_search", input={"query": "forecast"})]),
        Reply(
            calls=[
                Call(name="tool_call", input={"name": "forecast"}),
                Call(name="tool_call", input={"name": "letter"}),
            ]
        ),
        "Done.",
    ]
    model = ScriptedModel(script)
    async with opened(tmp_path, model, tools__defer_above=2) as satchel:
        session = await satchel.session(allow=["forecast"])
        turn = await session.run_turn("Make me a forecast")
    names = [tool.name for tool in model.requests[0].tools]
    assert names[-3:] == ["tool_search", "tool_describe", "tool_call"]
    assert not {"forecast", "invoice", "letter"} & set(names)
    searched, forecast, letter = turn.steps
    assert searched.result.startswith("- forecast: Makes a forecast.")
    assert "made a forecast" in forecast.result
    assert (letter.is_error, letter.was_refused) == (True, True)
    assert "would allow it, as permission rules: letter" in letter.result
