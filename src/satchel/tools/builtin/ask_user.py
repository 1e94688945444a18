"""The tool `ask_user`: ends the turn with a question, whose answer becomes the call's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Question, Tool, ToolContext, ToolResult

__all__ = ["ask_user_tool"]

DESCRIPTION = """Ask the user and wait for the answer. Only for what you can't find out yourself and would \
have to guess: a choice that is theirs, a fact that only they know, leave for something that can't be \
undone. One question; `options` are suggestions, they may answer otherwise."""


def ask_user_tool() -> Tool:
    """Make the tool."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:  # noqa: ARG001  # the port's shape
        question = Question(text=input["question"], options=tuple(input.get("options", ())))
        return ToolResult(text=question.text, question=question)

    return function_tool(
        call,
        name="ask_user",
        description=DESCRIPTION,
        properties={
            "question": {"type": "string", "minLength": 1},
            "options": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
        },
        required=["question"],
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
    )
