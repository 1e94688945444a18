"""A conversation that was held elsewhere, as the turns of a session that goes on with it."""

from __future__ import annotations

from collections.abc import Sequence

from satchel.events import Assistant, Event, Final, MemoryCaptured, TurnEnd, TurnStart, TurnStatus
from satchel.messages import Block, Message, TextBlock, Usage

_BEFORE = "The beginning of this conversation is not known."


def turns_of(history: Sequence[Message], *, provider: str, model: str) -> list[Event]:
    """The events of a log that says the same.

    Each message of the user begins a turn, and the answer to it ends the turn: with the status "calling" if it has
    calls, whose results the next message brings. Messages of the same side that follow one another are joined.
    `provider` and `model` are named as what answered, because nobody knows what did.
    """
    events: list[Event] = []
    turn = 0
    joined = _joined(history)
    if joined and joined[0].role == "assistant":
        joined.insert(0, Message(role="user", blocks=(TextBlock(text=_BEFORE, origin="notice"),)))
    for message in joined:
        if message.role == "user":
            turn += 1
            events += [TurnStart(turn=turn, message=message), MemoryCaptured(turn=turn, ids=())]
            continue
        is_calling = bool(message.tool_uses)
        events.append(
            Assistant(
                turn=turn,
                round=1,
                blocks=message.blocks,
                stop_reason="tool_use" if is_calling else "end_turn",
                provider=provider,
                model=model,
                usage=Usage(),
            )
        )
        status: TurnStatus = "calling" if is_calling else "done"
        events.append(Final(turn=turn, text=message.text, status=status))
        events.append(TurnEnd(turn=turn, status=status, rounds=1, usage=Usage(), duration_ms=0.0))
    if joined and joined[-1].role == "user":
        events.append(TurnEnd(turn=turn, status="done", rounds=0, usage=Usage(), duration_ms=0.0))
    return events


def _joined(history: Sequence[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in history:
        if joined and joined[-1].role == message.role:
            blocks: tuple[Block, ...] = (*joined[-1].blocks, *message.blocks)
            joined[-1] = Message(role=message.role, blocks=blocks)
        elif message.blocks:
            joined.append(message)
    return joined
