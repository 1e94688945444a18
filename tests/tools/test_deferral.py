"""Tools beyond the prompt are searched for, described and called through three that never change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from satchel.models.port import ToolDefinition
from satchel.tools import Annotations, Tool, ToolContext, ToolResult, function_tool
from satchel.tools.deferral import Bridge, document_of, split_tools
from satchel.tools.port import Redirect, Redirecting
from tests.requirements import requirement
from tests.tools.conftest import Session


def made(name: str, description: str = "Does it.", **options: Any) -> Tool:
    async def call(input: Mapping[str, Any], _: ToolContext) -> ToolResult:
        return ToolResult(text=f"{name} {dict(input)}")

    return function_tool(
        call,
        name=name,
        description=description,
        properties={"city": {"type": "string", "description": "Where"}},
        source="mcp",
        **options,
    )


class Finder:
    """Finds the tools whose name holds the query."""

    async def find(self, query: str, tools: Sequence[Tool], *, limit: int) -> Sequence[str]:
        return [tool.spec.name for tool in tools if query in tool.spec.name][:limit]


async def bridge(*tools: Tool) -> dict[str, Tool]:
    made = Bridge(Finder())
    made.defer(tools)
    return {tool.spec.name: tool for tool in made.tools}


def test_tools_that_are_not_built_in_are_deferred_when_they_are_too_many() -> None:
    own = function_tool(_never, name="bash", description="", properties={})
    others = [made(f"tool{number}") for number in range(4)]
    assert split_tools([own, *others], defer_above=4) == ((own, *others), ())
    assert split_tools([own, *others], defer_above=3) == ((own,), tuple(others))


@requirement("tools:many:bridge")
@pytest.mark.anyio
async def test_the_bridge_is_the_same_for_any_tools_behind_it() -> None:
    async def definitions(*tools: Tool) -> list[ToolDefinition]:
        return [tool.spec.definition for tool in (await bridge(*tools)).values()]

    assert await definitions(made("weather")) == await definitions(*[made(f"t{n}") for n in range(1000)])
    assert [d.name for d in await definitions()] == ["tool_search", "tool_describe", "tool_call"]


@requirement("tools:many:bridge")
@pytest.mark.anyio
async def test_a_tool_is_searched_for_and_described(session: Session) -> None:
    tools = await bridge(made("weather_now", "Tells the weather. " * 20), made("weather_week"), made("mail"))
    found = await tools["tool_search"].call({"query": "weather"}, session.context)
    assert found.data == ["weather_now", "weather_week"]
    first, second, _ = found.text.splitlines()
    assert first.startswith("- weather_now: Tells the weather.")
    assert len(first) < 200
    assert second == "- weather_week: Does it."
    described = await tools["tool_describe"].call({"name": "weather_week"}, session.context)
    assert json.loads(described.text)["input_schema"]["properties"]["city"] == {
        "type": "string",
        "description": "Where",
    }
    unknown = await tools["tool_describe"].call({"name": "weather_weak"}, session.context)
    assert (unknown.is_error, "weather_week" in unknown.text) == (True, True)
    assert (await tools["tool_search"].call({"query": "nothing like it"}, session.context)).data == []


@requirement("tools:many:bridge")
@pytest.mark.anyio
async def test_a_call_through_the_bridge_counts_as_a_call_of_the_tool(session: Session) -> None:
    weather = made("weather", annotations=Annotations(read_only=True))
    call = (await bridge(weather))["tool_call"]
    assert isinstance(call, Redirecting)
    assert call.redirect({"name": "weather", "input": {"city": "Rome"}}) == Redirect(
        tool=weather, input={"city": "Rome"}
    )
    assert call.redirect({"name": "weather"}) == Redirect(tool=weather, input={})
    assert (
        call.redirect({"name": "wether"})
        == "There is no tool 'wether' behind the bridge. Did you mean weather?"
    )
    assert not call.spec.annotations.read_only


def test_what_is_searched_are_the_words_of_name_description_and_parameters() -> None:
    assert document_of(made("mcp__github__createIssue", "Opens an issue.").spec) == (
        "mcp github create Issue: Opens an issue.\ncity Where"
    )


async def _never(input: Mapping[str, Any], _: ToolContext) -> ToolResult:
    raise AssertionError(input)
