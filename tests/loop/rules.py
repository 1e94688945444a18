"""What must be true of every turn, whatever happened in it: of its history, its requests and its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from satchel.events import (
    Action,
    AskUser,
    Assistant,
    Event,
    Final,
    Observation,
    Permission,
    TurnEnd,
    TurnStart,
)
from satchel.messages import Message, ToolUseBlock
from satchel.models.anthropic.wire import message_to_wire as to_anthropic
from satchel.models.openai.wire import message_to_wire as to_openai

__all__ = ["check_anthropic", "check_events", "check_openai"]


def check_anthropic(messages: Sequence[Message]) -> None:
    """What the Messages API refuses: written down anew here, from its documentation, on the mapped JSON."""
    wire = [to_anthropic(message) for message in messages]
    assert None not in wire, "a message vanishes, so two of one role would follow each other"
    turns: list[dict[str, Any]] = [message for message in wire if message is not None]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"]
    asked: list[str] = []
    for turn in turns:
        content = turn["content"]
        assert content
        for block in content:
            assert block["type"] != "text" or block["text"].strip()
        answered = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        assert [block["type"] for block in content[: len(answered)]] == ["tool_result"] * len(answered)
        assert answered == asked
        asked = [block["id"] for block in content if block["type"] == "tool_use"]
        assert turn["role"] == "user" or content[-1]["type"] not in ("thinking", "redacted_thinking")
    assert asked == []
    ids = [block["id"] for turn in turns for block in turn["content"] if block["type"] == "tool_use"]
    assert len(ids) == len(set(ids))


def check_openai(messages: Sequence[Message]) -> None:
    """What the Chat Completions API refuses."""
    wire = [part for message in messages for part in to_openai(message)]
    asked: list[str] = []
    for part in wire:
        if part["role"] == "tool":
            assert part["tool_call_id"] == asked.pop(0)
            continue
        assert asked == [], "calls are answered before anything else is said"
        if part["role"] == "assistant":
            asked = [call["id"] for call in part.get("tool_calls", [])]
            assert part["content"] or asked
        else:
            assert part["content"]
    assert asked == []
    assert wire[-1]["role"] in ("user", "tool")


def check_events(events: Sequence[Event]) -> None:
    """The grammar of one turn's events (see `Turn`)."""
    types = [event.type for event in events]
    assert types[0] == "turn_start"
    assert types[-1] == "turn_end"
    for once in (TurnStart, Final, TurnEnd):
        assert sum(isinstance(event, once) for event in events) == 1
    final = next(event for event in events if isinstance(event, Final))
    assert events[-1].status == final.status  # type: ignore[union-attr]
    after_final = types[types.index("final") + 1 : -1]
    assert set(after_final) <= {"error"}, "only hooks may fail between the two"
    questions = [event for event in events if isinstance(event, AskUser)]
    assert len(questions) == (final.status == "asking")

    open_calls: dict[str, ToolUseBlock] = {}
    permitted: set[str] = set()
    started: set[str] = set()
    observed: set[str] = set()
    asked = questions[0].call_id if questions else None
    for event in events:
        match event:
            case Assistant(blocks=blocks):
                assert set(open_calls) <= observed, "the model goes on when all calls are answered"
                open_calls = {block.id: block for block in blocks if isinstance(block, ToolUseBlock)}
            case Permission(call_id=call_id, decision=decision):
                assert call_id in open_calls
                if decision == "allow":
                    permitted.add(call_id)
            case Action(call_id=call_id):
                assert call_id in permitted
                assert not started & observed & set(open_calls), "all are written down before one ends"
                started.add(call_id)
            case Observation(call_id=call_id):
                assert call_id in open_calls
                assert call_id not in observed, "each call is answered once"
                observed.add(call_id)
            case _:
                pass
    assert set(open_calls) - observed == ({asked} if asked else set())
