"""The tool `ask_user`: ends the turn with a question; the answer becomes the call's result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from satchel.tools.builtin.record import BuiltIn
from satchel.tools.display import Display
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Question, Tool, ToolContext, ToolResult

DESCRIPTION = """Ask the user one question and wait for the answer: a choice that is theirs, a fact that only they \
know, permission for what can't be undone. Don't repeat it in your text."""


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


ASK_USER: Final = BuiltIn(name="ask_user", make=lambda _: ask_user_tool(), display=Display(is_question=True))
