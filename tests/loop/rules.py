"""What must be true of every turn, whatever happened in it: of its history, its requests and its events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from satchel.messages import (
    Block,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    clean_text,
)
from satchel.models.anthropic.wire import message_to_wire as to_anthropic
from satchel.models.openai.wire import message_to_wire as to_openai

__all__ = ["check_anthropic", "check_events", "check_openai", "history_problems"]


class _Checker:
    """Reads messages one after the other and says what a provider would refuse; each costs its own length
    only.
    """

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.open: tuple[str, ...] = ()
        self.last: str | None = None

    def feed(self, message: Message) -> str | None:
        """The first thing that is wrong with the next message, or None."""
        problem = self._shape(message) or (
            self._assistant(message) if message.role == "assistant" else self._user(message)
        )
        self.last = message.role
        return problem

    def _shape(self, message: Message) -> str | None:
        if self.last is None and message.role != "user":
            return "a history starts with the user"
        if self.last == message.role:
            return f"two messages of the {message.role} follow each other"
        if not message.blocks:
            return "a message is empty"
        for block in message.blocks:
            text = block.content if isinstance(block, ToolResultBlock) else getattr(block, "text", "")
            if isinstance(block, TextBlock) and not text.strip():
                return "a text block is blank"
            if clean_text(text) is not text:
                return "a text holds NUL or a lone surrogate"
        return None

    def _assistant(self, message: Message) -> str | None:
        self.open = tuple(block.id for block in message.tool_uses)
        if isinstance(message.blocks[-1], ThinkingBlock):
            return "an answer ends with thinking"
        for block in message.blocks:
            match block:
                case ToolResultBlock():
                    return "an answer holds a result"
                case ToolUseBlock(id=id):
                    if not id:
                        return "a call has no id"
                    if id in self.ids:
                        return f"the call id {id!r} is used twice"
                    self.ids.add(id)
                case _:
                    pass
        return None

    def _user(self, message: Message) -> str | None:
        answered = []
        text_came = False
        for block in message.blocks:
            match block:
                case ToolResultBlock(tool_use_id=id):
                    if text_came:
                        return f"the result of the call {id!r} stands after text"
                    answered.append(id)
                case TextBlock():
                    text_came = True
                case _:
                    return f"a message of the user holds a {type(block).__name__}"
        asked, self.open = self.open, ()
        if len(set(answered)) != len(answered):
            return "a call is answered twice"
        if set(answered) != set(asked):
            left = sorted(set(asked) - set(answered)) or sorted(set(answered) - set(asked))
            return f"calls and results don't match: {', '.join(left)}"
        return None


def history_problems(
    messages: Iterable[Message], *, sendable: bool = False, question: str | None = None
) -> list[str]:
    """What providers (the Anthropic and the OpenAI wire format) would refuse in a history; empty for a valid
    one.

    Args:
        messages: In order.
        sendable: It is about to be sent: it must also end with a message of the user.
        question: The id of a call in the last answer that may still be open, because the user is asked.
    """
    messages = list(messages)
    if question is not None:
        messages = _answered(messages, question)
    checker = _Checker()
    problems = []
    for number, message in enumerate(messages, start=1):
        problem = checker.feed(message)
        if problem is not None:
            problems.append(f"message {number}: {problem}")
    if checker.open:
        problems.append(f"the history ends with open calls: {', '.join(checker.open)}")
    if sendable and checker.last != "user":
        problems.append("the history does not end with the user")
    return problems


def _answered(messages: list[Message], question: str) -> list[Message]:
    """The same history as if the question had been answered."""
    history = [*messages]
    results: tuple[Block, ...] = ()
    if history and history[-1].role == "user":
        results = history.pop().blocks
    result = ToolResultBlock(tool_use_id=question, content="(asked)")
    return [*history, Message(role="user", blocks=(result, *results))]


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
    left = set(open_calls) - observed
    if final.status == "calling":
        assert left
        assert not left & started
    else:
        assert left == ({asked} if asked else set())
