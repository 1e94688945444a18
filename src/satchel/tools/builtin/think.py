"""The tool `think`: room to reason between calls, for models that have none of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Tool, ToolContext, ToolResult

__all__ = ["think_tool"]

DESCRIPTION = """Write down a thought: to weigh what a result means, or to plan before acting on it. Does \
nothing else."""


def think_tool() -> Tool:
    """Make the tool."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:  # noqa: ARG001  # the port's shape
        return ToolResult(text="Noted.")

    return function_tool(
        call,
        name="think",
        description=DESCRIPTION,
        properties={"thought": {"type": "string"}},
        required=["thought"],
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
    )
