"""Answers as they come from a model, and as they may stand in a history."""

from __future__ import annotations

import pytest

from satchel.loop.answers import normalise
from satchel.messages import Block, StopReason, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, Usage
from satchel.models.port import Completion

TEXT = TextBlock(text="Hm.")
THINKING = ThinkingBlock(text="thinks", signature="proof")
CALL = ToolUseBlock(id="a", name="look", input={})


def completion(*blocks: Block, stop_reason: StopReason = "end_turn") -> Completion:
    return Completion(blocks=blocks, stop_reason=stop_reason, usage=Usage(), provider="p", model="m")


@pytest.mark.parametrize(
    ("blocks", "kept"),
    [
        ((THINKING, TEXT, CALL), (THINKING, TEXT, CALL)),
        ((TEXT, THINKING), (TEXT,)),
        ((THINKING, TextBlock(text=" \n")), ()),
        ((CALL, ToolResultBlock(tool_use_id="a", content="made up")), (CALL,)),
        ((TextBlock(text="x", origin="memory"),), (TextBlock(text="x"),)),
        ((CALL, CALL), (CALL, ToolUseBlock(id="a_2", name="look", input={}))),
        (
            (ToolUseBlock(id="", name="look", input={}), ToolUseBlock(id="", name="look", input={})),
            (
                ToolUseBlock(id="call_1", name="look", input={}),
                ToolUseBlock(id="call_2", name="look", input={}),
            ),
        ),
        (
            (ToolUseBlock(id="used", name="look", input={}),),
            (ToolUseBlock(id="used_2", name="look", input={}),),
        ),
    ],
)
def test_only_what_every_provider_takes_back_stays(
    blocks: tuple[Block, ...], kept: tuple[Block, ...]
) -> None:
    assert normalise(completion(*blocks), taken={"used"}).blocks == kept


def test_calls_of_an_answer_that_was_refused_are_left_out() -> None:
    assert normalise(completion(TEXT, CALL, stop_reason="refusal"), taken=set()).blocks == (TEXT,)
