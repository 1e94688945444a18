"""The tool `todo`: a session's to-do list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Effect, Tool, ToolContext, ToolResult

__all__ = ["todo_tool"]

STATE_KEY = "todo.items"
SIGNS = {"pending": "[ ]", "doing": "[~]", "done": "[x]"}
DESCRIPTION = """Keep a to-do list for work of three or more steps. Give the whole list each time; one item is \
`doing`."""


def todo_tool() -> Tool:
    """Make the tool."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if "items" in input:
            context.state[STATE_KEY] = [
                {"text": item["text"], "status": item["status"]} for item in input["items"]
            ]
        items: list[dict[str, str]] = context.state.get(STATE_KEY, [])
        rows = [f"{SIGNS[item['status']]} {item['text']}" for item in items]
        return ToolResult(text="\n".join(rows) or "The list is empty.", data=items)

    def effects(input: Mapping[str, Any], context: ToolContext) -> list[Effect]:  # noqa: ARG001  # the port's shape
        return [Effect(resource="todo", writes="items" in input)]

    return function_tool(
        call,
        name="todo",
        description=DESCRIPTION,
        properties={
            "items": {
                "type": "array",
                "maxItems": 100,
                "items": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}, "status": {"enum": list(SIGNS)}},
                    "required": ["text", "status"],
                    "additionalProperties": False,
                },
            }
        },
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        effects=effects,
    )
