"""Conversations to record: the events of turns as the loop emits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from satchel.events import (
    Action,
    Assistant,
    Event,
    Final,
    MemorySurfaced,
    Observation,
    SessionStart,
    SurfacedMemory,
    TurnEnd,
    TurnStart,
)
from satchel.messages import Block, Message, TextBlock, ToolUseBlock, Usage

SPENT = Usage(input_tokens=10, output_tokens=5, cost_usd=0.5)


def started(session_id: str, cwd: str = "/home/ann/kitchen") -> SessionStart:
    return SessionStart(session_id=session_id, cwd=cwd, provider="openai", model="gpt-x", version="0.1.0")


def said(text: str, *, turn: int = 1, answers: str | None = None) -> TurnStart:
    message = Message(role="user", blocks=(TextBlock(text=text),))
    return TurnStart(turn=turn, message=message, answers=answers)


def answered(*blocks: Block | str, turn: int = 1, round: int = 1) -> Assistant:
    whole = tuple(TextBlock(text=block) if isinstance(block, str) else block for block in blocks)
    asks = any(isinstance(block, ToolUseBlock) for block in whole)
    return Assistant(
        turn=turn,
        round=round,
        blocks=whole,
        stop_reason="tool_use" if asks else "end_turn",
        provider="openai",
        model="gpt-x",
        usage=SPENT,
    )


def call(id: str, tool: str = "bash", input: Mapping[str, Any] | None = None) -> ToolUseBlock:
    return ToolUseBlock(id=id, name=tool, input=input or {"command": "ls"})


def began(id: str, *, turn: int = 1, input: Mapping[str, Any] | None = None) -> Action:
    return Action(turn=turn, round=1, call_id=id, tool="bash", input=input or {"command": "ls"})


def observed(
    id: str, text: str, *, turn: int = 1, is_error: bool = False, spill: str | None = None
) -> Observation:
    return Observation(turn=turn, round=1, call_id=id, tool="bash", text=text, is_error=is_error, spill=spill)


def surfaced(
    content: str, *, id: str = "m1", turn: int = 1, session: str | None = None, source_turn: int | None = None
) -> MemorySurfaced:
    memory = SurfacedMemory(id=id, content=content, score=0.9, session=session, source_turn=source_turn)
    return MemorySurfaced(turn=turn, text=f"<memory>\n- {content}\n</memory>", memories=(memory,), tokens=9)


def ended(*, turn: int = 1, text: str = "") -> tuple[Event, ...]:
    return (
        Final(turn=turn, text=text, status="done"),
        TurnEnd(turn=turn, status="done", rounds=1, usage=SPENT, duration_ms=1.0),
    )


def exchange(question: str, answer: str, *, turn: int = 1) -> tuple[Event, ...]:
    return (said(question, turn=turn), answered(answer, turn=turn), *ended(turn=turn, text=answer))
