"""The tool `delegate`: a sub-agent with a context of its own does a bounded piece of research or review."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from satchel.tools.builtin.record import BuiltIn
from satchel.tools.display import Display, ShownResult, ends, fields
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Effect, Tool, ToolContext, ToolResult

_LIMIT_S: Final = 3_600.0
"""What really bounds a sub-agent are its rounds and tokens; its time counts the user's answers to its questions too."""
DESCRIPTION = """Give a bounded piece of research or review to a sub-agent with messages of its own: only its answer \
comes here. It knows nothing of this conversation, so `task` says all it needs, and what to answer. It reads files and \
the web; `tools` names others that it may use. Several calls in one answer run at the same time."""


def delegate_tool() -> Tool:
    """Make the tool."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if context.delegate is None:
            return ToolResult(text="There are no sub-agents here. Do it yourself.", is_error=True)
        return await context.delegate(input["task"], input.get("tools", ()), context)

    def effects(input: Mapping[str, Any], context: ToolContext) -> list[Effect]:  # noqa: ARG001  # the port's shape
        # Two that may change something could change the same.
        return [Effect(resource="delegate", writes=True)] if input.get("tools") else []

    return function_tool(
        call,
        name="delegate",
        description=DESCRIPTION,
        properties={
            "task": {"type": "string", "minLength": 1},
            "tools": {"type": "array", "items": {"type": "string"}, "maxItems": 50},
        },
        required=["task"],
        # By itself it does nothing: each call of the sub-agent passes the session's gate.
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        effects=effects,
        timeout_s=_LIMIT_S,
        is_deferred=True,
    )


def _show(_input: Mapping[str, Any], text: str) -> ShownResult:
    *rows, last = text.strip().splitlines() or [""]
    return ShownResult(summary=last.strip("[]"), lines=ends([row for row in rows if row.strip()]))


DELEGATE: Final = BuiltIn(
    name="delegate",
    make=lambda _: delegate_tool(),
    display=Display(call=fields("task"), result=_show, kind="think"),
)
