"""think, todo, ask_user."""

from __future__ import annotations

import pytest

from satchel.tools import Question, ToolResult
from tests.requirements import requirement
from tests.tools.conftest import Session

pytestmark = pytest.mark.anyio


@requirement("tools:think")
async def test_think_changes_nothing(session: Session) -> None:
    assert await session("think", thought="Hm.") == ToolResult(text="Noted.")
    assert session.context.state == {}


@requirement("tools:todo")
async def test_todo_replaces_the_list_and_shows_it(session: Session) -> None:
    assert (await session("todo")).text == "The list is empty."
    items = [
        {"text": "one", "status": "done"},
        {"text": "two", "status": "doing"},
        {"text": "three", "status": "pending"},
    ]
    await session("todo", items=items[:1])
    assert await session("todo", items=items) == ToolResult(text="[x] one\n[~] two\n[ ] three", data=items)
    assert (await session("todo")).data == items
    assert (await session("todo", items=[])).text == "The list is empty."


@requirement("tools:ask-user")
async def test_ask_user_hands_the_question_on(session: Session) -> None:
    result = await session("ask_user", question="Which one?", options=["a", "b"])
    assert result.question == Question(text="Which one?", options=("a", "b"))
    assert (await session("ask_user", question="Why?")).question == Question(text="Why?")
