"""The messages of a conversation while a turn grows them, and what makes them valid for every provider."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from satchel.errors import UsageError
from satchel.messages import Block, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from satchel.models.encoding import clean_text

__all__ = ["INTERRUPTED", "History", "history_problems", "size_of_message", "size_of_text"]

_BLOCK_OVERHEAD = 24
"""Bytes that a block's own JSON takes beside its words: `{"type":"text","text":""}` and a comma."""

INTERRUPTED = "This call was cut off: interrupted; outcome unknown; check before repeating."


def size_of_text(text: str) -> int:
    """In UTF-8, in bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def size_of_message(message: Message) -> int:
    """How large a message is in a request, in bytes, near enough to estimate its tokens."""
    size = 0
    for block in message.blocks:
        size += _BLOCK_OVERHEAD
        match block:
            case TextBlock(text=text):
                size += size_of_text(text)
            case ThinkingBlock(text=text, signature=signature):
                size += size_of_text(text) + len(signature)
            case ToolUseBlock(name=name, input=None, unparsed=unparsed):
                size += len(name) + size_of_text(unparsed)
            case ToolUseBlock(name=name, input=input):
                size += len(name) + len(json.dumps(input, ensure_ascii=True, default=str))
            case ToolResultBlock(content=content):
                size += size_of_text(content)
    return size


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


class History:
    """A conversation that only grows at its end, and is valid at every moment when it is sent.

    Every message is checked once, when it comes; nothing here reads the whole history again.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        """Take over a history.

        Args:
            messages: As another turn or `sessions.rebuild` left them. Neighbouring messages of the user are
                merged.

        Raises:
            UsageError: They are no valid history.
        """
        self._ids: set[str] = set()
        self._load(messages)

    def _load(self, messages: Iterable[Message]) -> None:
        self._messages: list[Message] = []
        self._checker = _Checker()
        self._size = 0
        self._pending: tuple[ToolUseBlock, ...] = ()
        self._partial: dict[str, ToolResultBlock] = {}
        merged: list[Message] = []
        for message in messages:
            if not message.blocks:
                continue
            if merged and merged[-1].role == message.role == "user":
                merged[-1] = Message(role="user", blocks=merged[-1].blocks + message.blocks)
            else:
                merged.append(message)
        last = merged[-1] if merged else None
        if last is not None and last.role == "user" and len(merged) > 1:
            results = {
                block.tool_use_id: block for block in last.blocks if isinstance(block, ToolResultBlock)
            }
            asked = [call.id for call in merged[-2].tool_uses]
            if set(results) < set(asked) and len(results) == len(last.blocks):
                # A question is open beside calls that ended: their results wait for its answer.
                merged.pop()
                self._partial = results
        for message in merged:
            self._append(message)

    def _append(self, message: Message) -> None:
        problem = self._checker.feed(message)
        if problem is not None:
            raise UsageError(f"The history is not valid: message {len(self._messages) + 1}: {problem}.")
        self._messages.append(message)
        self._size += size_of_message(message)
        self._pending = message.tool_uses
        self._ids.update(call.id for call in self._pending)

    def __len__(self) -> int:
        """The number of messages."""
        return len(self._messages)

    @property
    def size(self) -> int:
        """Of all messages together, in bytes."""
        return self._size

    @property
    def call_ids(self) -> set[str]:
        """The ids of all calls so far, of those that a compaction left out too. To look at, not to change."""
        return self._ids

    @property
    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        """The calls of the last answer that have no result yet."""
        return tuple(call for call in self._pending if call.id not in self._partial)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All of them. Where a question is open, the results beside it are in the last one."""
        if self._partial:
            blocks = tuple(self._partial[call.id] for call in self._pending if call.id in self._partial)
            return (*self._messages, Message(role="user", blocks=blocks))
        return tuple(self._messages)

    @property
    def is_sendable(self) -> bool:
        """Whether a model can be asked with it now."""
        return bool(self._messages) and self._messages[-1].role == "user"

    def answer(self, blocks: Sequence[Block]) -> None:
        """The model said something; nothing happens if it is nothing at all.

        Raises:
            UsageError: It is not its turn, or the blocks are no valid answer (see `answers.normalise`).
        """
        if blocks:
            self._append(Message(role="assistant", blocks=tuple(blocks)))

    def observe(self, results: Iterable[ToolResultBlock]) -> None:
        """Results of the last answer's calls. When all are there they become one message, in the order
        asked.
        """
        asked = {call.id for call in self._pending}
        self._partial |= {result.tool_use_id: result for result in results if result.tool_use_id in asked}
        if self._pending and len(self._partial) == len(self._pending):
            blocks = tuple(self._partial[call.id] for call in self._pending)
            self._partial = {}
            self._append(Message(role="user", blocks=blocks))

    def say(self, blocks: Sequence[Block]) -> None:
        """The user's side says something: in the same message, where it is still its turn.

        Raises:
            UsageError: Calls are still open, or a block is none of the user's.
        """
        if not blocks:
            return
        if not self._messages or self._messages[-1].role == "assistant":
            self._append(Message(role="user", blocks=tuple(blocks)))
            return
        addition = Message(role="user", blocks=tuple(blocks))
        if not all(isinstance(block, TextBlock) and block.text.strip() for block in blocks):
            raise UsageError("Only text that is not blank can be added to what the user said.")
        self._messages[-1] = Message(role="user", blocks=self._messages[-1].blocks + addition.blocks)
        self._size += size_of_message(addition)

    def close_calls(self, text: str = INTERRUPTED) -> None:
        """Answer every open call with an error that says so."""
        self.observe(
            ToolResultBlock(tool_use_id=call.id, content=text, is_error=True) for call in self.open_calls
        )

    def replace(self, messages: Iterable[Message]) -> None:
        """Go on with other messages: what a compaction left."""
        self._load(messages)
