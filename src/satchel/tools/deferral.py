"""Three tools that search, describe and call the tools whose definitions are not in the prompt.

Their definitions are always in the prompt and never change, so the prompt stays the same while tools come and go
during a session.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from satchel.tools.display import Display, fields
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Redirect, Tool, ToolContext, ToolResult, ToolSpec
from satchel.tools.registry import Registry
from satchel.wording import one_line

_LOOKS = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)
_LINE_CHARS = 160
"""The length of a description in a list; enough for the first sentence in most cases."""
_MOST_FOUND = 20
DISPLAYS: Final[Mapping[str, Display]] = {
    "tool_call": Display(),
    "tool_describe": Display(),
    "tool_search": Display(call=fields("query"), kind="search"),
}


class ToolFinder(Protocol):
    """Finds tools by their purpose."""

    async def find(self, query: str, tools: Sequence[Tool], *, limit: int) -> Sequence[str]:
        """The names of the matching tools, best first."""
        ...


def split_tools(
    tools: Sequence[Tool], *, defer_above: int, most_bytes: int = sys.maxsize
) -> tuple[tuple[Tool, ...], tuple[Tool, ...]]:
    """Split the tools into those in the prompt and those that are deferred.

    Deferred are those that few conversations need (`ToolSpec.is_deferred`), and, if there are too many tools that are
    not built in, all of those; and those for which the model's window has no room. Those that the caller runs never
    are, because the bridge can't call them.

    Args:
        tools: In their order.
        defer_above: The most tools in the prompt that are not built in.
        most_bytes: The most that the definitions in the prompt may have. `ToolSpec.comes_first` says which have room
            before others.
    """
    others = [tool for tool in tools if tool.spec.source != "builtin" and not tool.spec.client_side]
    late = [tool for tool in tools if tool.spec.is_deferred] + (others if len(others) > defer_above else [])
    names = {tool.spec.name for tool in late}
    kept = [tool for tool in tools if tool.spec.name not in names]
    for tool in sorted(kept, key=lambda tool: (not tool.spec.client_side, not tool.spec.comes_first)):
        size = tool.spec.definition.size
        if size <= most_bytes or tool.spec.client_side:
            most_bytes -= size
        else:
            late.append(tool)
            names.add(tool.spec.name)
    return tuple(tool for tool in tools if tool.spec.name not in names), tuple(late)


def document_of(spec: ToolSpec) -> str:
    """The searchable text of a tool: its name split into words, its description, its parameters."""
    words = re.sub(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", " ", spec.name).strip()
    parts = [f"{words}: {spec.description.strip()}"]
    properties = spec.input_schema.get("properties")
    if isinstance(properties, Mapping):
        for name, schema in properties.items():
            about = schema.get("description", "") if isinstance(schema, Mapping) else ""
            parts.append(f"{re.sub(r'[_-]+', ' ', str(name))} {about}".strip())
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class _Call:
    """`tool_call`: calls another tool."""

    spec: ToolSpec
    bridge: Bridge

    def redirect(self, input: Mapping[str, Any]) -> Redirect | str:
        tool = self.bridge.find_deferred(input["name"])
        if tool is None:
            return self.bridge.unknown(input["name"])
        return Redirect(tool=tool, input=input.get("input", {}))

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Any]:
        target = self.redirect(input)
        return target.tool.effects(target.input, context) if isinstance(target, Redirect) else ()

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        # Callers that follow redirections never get here.
        return ToolResult(text="Call the tool by its own name.", is_error=True)


class Bridge:
    """`tool_search`, `tool_describe` and `tool_call` over the deferred tools.

    Attributes:
        tools: The three tools, in this order. They never change.
    """

    def __init__(self, finder: ToolFinder, *, named: Sequence[str] = ()) -> None:
        """Create the bridge to no tools yet; `finder` searches those that `defer` gives it. The model is told of the
        `named` from the beginning.
        """
        self._finder = finder
        self._named = named
        self._deferred = Registry(())
        self._others = Registry(())
        self.tools: tuple[Tool, ...] = (self._search(), self._describe(), self._call())

    @property
    def deferred(self) -> Sequence[Tool]:
        """The tools behind the bridge."""
        return self._deferred.tools

    def defer(self, tools: Sequence[Tool], *, others: Sequence[Tool] = ()) -> None:
        """Replace the tools behind the bridge, and the `others`, which it only describes."""
        self._deferred = Registry(tools)
        self._others = Registry(others)

    def find_deferred(self, name: str) -> Tool | None:
        """The tool behind the bridge with this name, or None."""
        return self._deferred.get(name)

    def unknown(self, name: str) -> str:
        """The answer to a model that asks for a tool that doesn't exist."""
        if self._others.get(name) is not None:
            return f"{name} is in your list: call it directly, with the input that tool_describe shows."
        close = self._deferred.close_matches(name)
        hint = f" Did you mean {' or '.join(close)}?" if close else " tool_search finds tools."
        return f"There is no tool {name[:80]!r} behind the bridge.{hint}"

    def _search(self) -> Tool:
        async def call(input: Mapping[str, Any], _: ToolContext) -> ToolResult:
            limit = input.get("limit", 8)
            if not self.deferred:
                return ToolResult(text="There are no other tools at the moment.", data=[])
            names = await self._finder.find(input["query"], self._deferred.tools, limit=limit)
            found = [tool for tool in map(self._deferred.get, names) if tool is not None]
            if not found:
                return ToolResult(text="No tool matches. Try other words, or do without.", data=[])
            lines = "\n".join(
                f"- {tool.spec.name}: {one_line(tool.spec.description, _LINE_CHARS)}" for tool in found
            )
            return ToolResult(
                text=f"{lines}\nUse tool_describe to see a tool's input, then tool_call to call it.",
                data=[tool.spec.name for tool in found],
            )

        return function_tool(
            call,
            name="tool_search",
            description="Find tools that are not in your list: other services, a browser, sub-agents for research, "
            f"tools built before{''.join(f', {name}' for name in self._named)}.",
            properties={
                "query": {"type": "string", "minLength": 1},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": _MOST_FOUND,
                },
            },
            required=["query"],
            annotations=_LOOKS,
        )

    def _describe(self) -> Tool:
        async def call(input: Mapping[str, Any], _: ToolContext) -> ToolResult:
            tool = self._deferred.get(input["name"]) or self._others.get(input["name"])
            if tool is None:
                return ToolResult(text=self.unknown(input["name"]), is_error=True)
            definition = {
                "name": tool.spec.name,
                "description": tool.spec.description,
                "input_schema": tool.spec.input_schema,
            }
            return ToolResult(text=json.dumps(definition, ensure_ascii=False, indent=1), data=definition)

        return function_tool(
            call,
            name="tool_describe",
            description="What a tool does, and the JSON Schema of its whole input.",
            properties={"name": {"type": "string"}},
            required=["name"],
            annotations=_LOOKS,
        )

    def _call(self) -> Tool:
        return _Call(
            ToolSpec(
                name="tool_call",
                description="Call a tool that tool_search found, with the input that tool_describe shows.",
                input_schema={
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "input": {"type": "object"},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                },
                annotations=Annotations(),
            ),
            self,
        )
