"""The tool `todo`: a session's to-do list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from satchel.tools.builtin.record import BuiltIn
from satchel.tools.display import Display, Line, ShownResult, Style
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Effect, Tool, ToolContext, ToolResult
from satchel.wording import counted, one_line

STATE_KEY = "todo.items"
SIGNS = {"pending": "[ ]", "doing": "[~]", "done": "[x]"}
_SHOWN: Final[Mapping[str, tuple[str, Style]]] = {
    "[x] ": ("✔ ", "plain"),
    "[~] ": ("▸ ", "active"),
    "[ ] ": ("☐ ", "plain"),
}
_SHOWN_LINES = 20
DESCRIPTION = """Keep your to-do list. Give the whole list each time; one item is \
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


def steps_in(input: Mapping[str, Any]) -> str:
    """How many steps a call has, in words."""
    items = input.get("items", input.get("steps"))
    return counted(len(items), "step") if isinstance(items, list) else ""


def show_items(_input: Mapping[str, Any], text: str) -> ShownResult:
    """The items of a list, one a row of the text."""
    rows = text.splitlines()
    signs = [row[:4] for row in rows]
    if not all(sign in _SHOWN for sign in signs):
        return ShownResult(summary=one_line(text))
    lines = [Line(text=_SHOWN[row[:4]][0] + row[4:], style=_SHOWN[row[:4]][1]) for row in rows[:_SHOWN_LINES]]
    if len(rows) > _SHOWN_LINES:
        lines.append(Line(text=f"… {len(rows) - _SHOWN_LINES} more"))
    return ShownResult(summary=f"{signs.count('[x] ')} of {len(rows)} done", lines=tuple(lines))


TODO: Final = BuiltIn(
    name="todo",
    make=lambda _: todo_tool(),
    display=Display(call=steps_in, result=show_items, kind="think", is_plan=True),
)
