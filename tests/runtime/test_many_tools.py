"""Deferred tools are found by the search of memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from satchel.clock import SystemClock
from satchel.models.embedding import HashingEmbedder
from satchel.runtime.toolindex import ToolIndex
from satchel.tools import Tool, ToolContext, ToolResult, function_tool
from tests.requirements import requirement

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
async def test_the_tool_that_fits_is_found_and_one_that_changed_is_found_as_it_is_now(
    tmp_path: Path, embedder: HashingEmbedder | str
) -> None:
    index = ToolIndex(tmp_path / "tools.db", embedder=embedder, clock=SystemClock(), home=tmp_path)
    tools = [WEATHER, MAIL, INVOICE]
    assert (await index.find("weather in the city", tools, limit=3))[0] == "get_forecast"
    assert (await index.find("bill a customer", tools, limit=1)) == ["create_invoice"]
    changed = made("send_mail", "Rent a bicycle.")
    assert (await index.find("bicycle", [WEATHER, changed], limit=1)) == ["send_mail"]
    assert "create_invoice" not in await index.find("bill a customer", [WEATHER, changed], limit=3)
