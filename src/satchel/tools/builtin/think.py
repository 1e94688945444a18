"""The tool `think`: lets models without reasoning of their own reason between calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from satchel.tools.builtin.record import BuiltIn
from satchel.tools.display import Display, ShownResult, fields
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Tool, ToolContext, ToolResult
from satchel.wording import one_line

NOTED = "Noted."
DESCRIPTION = """Write down a thought, to consider what a result means or to plan the next step. It has no other \
effect."""


def think_tool() -> Tool:
    """Make the tool."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:  # noqa: ARG001  # the port's shape
        return ToolResult(text=NOTED)

    return function_tool(
        call,
        name="think",
        description=DESCRIPTION,
        properties={"thought": {"type": "string"}},
        required=["thought"],
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        is_deferred=True,
    )


THINK: Final = BuiltIn(
    name="think",
    make=lambda _: think_tool(),
    display=Display(
        call=fields("thought"),
        result=lambda _, text: ShownResult(summary="" if text == NOTED else one_line(text)),
        kind="think",
    ),
)
