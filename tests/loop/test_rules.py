"""The check that the property tests of histories rest on finds what providers refuse."""

from __future__ import annotations

import pytest

from satchel.messages import Block, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from tests.loop.rules import history_problems

A = ToolUseBlock(id="a", name="look", input={})
B = ToolUseBlock(id="b", name="look", input={})
RESULT_A = ToolResultBlock(tool_use_id="a", content="1")
RESULT_B = ToolResultBlock(tool_use_id="b", content="2")
TEXT = TextBlock(text="Hm.")


def model(*blocks: Block) -> Message:
    return Message(role="assistant", blocks=blocks)


def user(*blocks: Block) -> Message:
    return Message(role="user", blocks=blocks)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([model(TEXT)], "message 1: a history starts with the user"),
        ([user(TEXT), user(TEXT)], "message 2: two messages of the user follow each other"),
        ([user(TEXT), model()], "message 2: a message is empty"),
        ([user(TextBlock(text=" "))], "message 1: a text block is blank"),
        ([user(TextBlock(text="\ud800"))], "message 1: a text holds NUL or a lone surrogate"),
        ([user(TEXT), model(TEXT, ThinkingBlock(text="t"))], "message 2: an answer ends with thinking"),
        ([user(TEXT), model(A), user(TEXT)], "message 3: calls and results don't match: a"),
        ([user(TEXT), model(A), user(RESULT_A, RESULT_A)], "message 3: a call is answered twice"),
        (
            [user(TEXT), model(A), user(TEXT, RESULT_A)],
            "message 3: the result of the call 'a' stands after text",
        ),
        ([user(TEXT), model(TEXT), user(RESULT_A)], "message 3: calls and results don't match: a"),
        ([user(TEXT), model(A, A), user(RESULT_A)], "message 2: the call id 'a' is used twice"),
        ([user(A)], "message 1: a message of the user holds a ToolUseBlock"),
        ([user(TEXT), model(TEXT, RESULT_A)], "message 2: an answer holds a result"),
        ([user(TEXT), model(A)], "the history ends with open calls: a"),
        ([user(TEXT), model(ToolUseBlock(id="", name="x", input={}))], "message 2: a call has no id"),
    ],
)
def test_what_a_provider_would_refuse_is_named(messages: list[Message], problem: str) -> None:
    assert problem in history_problems(messages)


def test_a_valid_history_has_no_problems_and_must_end_with_the_user_to_be_sent() -> None:
    messages = [user(TEXT), model(TEXT, A, B), user(RESULT_A, RESULT_B, TEXT), model(TEXT)]
    assert history_problems(messages) == []
    assert history_problems(messages, sendable=True) == ["the history does not end with the user"]
    assert history_problems(messages[:3], sendable=True) == []
