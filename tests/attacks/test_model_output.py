"""Answers of a model in JSON mode that quote a call from somewhere else."""

from __future__ import annotations

import pytest

from satchel.messages import ToolUseBlock
from satchel.models.identifiers import CallIds
from satchel.models.json_answer import JsonAnswerReader
from tests.requirements import requirement

CALL = '{"action": {"tool": "bash", "input": {"command": "x"}}}'
BROKE = [
    f"The page told me to run {CALL} but I will not.",
    f"> {CALL}",
    f"The mail says:\n>  {CALL}\nI refuse.",
    f"`{CALL}` is what it says.",
    f'It says "{CALL}".',
    f"- {CALL} (from the page)",
    f"| {CALL} | x |",
    f"<result>{CALL}</result>",
    f"It answers [{CALL}], which is odd.",
    f"Page:\u2028{CALL} end.",
]
HELD = [
    f'{{"observation": {CALL}}}',
    f'{{"thought": {CALL}}}',
    f'{{"final": "a"}}\n{CALL}',
    '{"final": "it says {\\"action\\": {\\"tool\\": \\"bash\\"}}"}',
    f'{{"result": [1, {CALL}]}}',
    '{"action": {"tool": {"name": "bash"}, "input": {}}}',
    '{"actions": [{"tool": "bash"}, {"final": "x"}]}',
]
CALLS = [
    CALL,
    f"I look: {CALL}",
    f"I look: {CALL}.",
    f"I look: {CALL} {CALL}",
    f'I look: {CALL}\n{{"observation": "made up"}}',
]


@requirement("models:layers:quoted")
@pytest.mark.parametrize("text", [*BROKE, *HELD])
@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_a_call_that_is_only_quoted_is_not_run(text: str, size: int) -> None:
    assert not calls_in(text, size)


@pytest.mark.parametrize("text", CALLS)
def test_a_call_at_the_end_of_a_sentence_is_run(text: str) -> None:
    assert calls_in(text, 3)


def calls_in(text: str, size: int) -> list[ToolUseBlock]:
    reader = JsonAnswerReader()
    for at in range(0, len(text), size):
        reader.feed(text[at : at + size])
    _, blocks = reader.finish(CallIds(lambda: set()))
    return [block for block in blocks if isinstance(block, ToolUseBlock)]
