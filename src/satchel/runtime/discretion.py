"""What is said, as a session log may hold it: without secrets, and without the parts that were marked as private.

The model sees every word while the session is open; the log, and with it a session that is resumed, has
`[redacted:kind]` and `[private]` in their places (docs/guides/privacy.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from satchel.events import (
    Action,
    AskUser,
    Assistant,
    Compaction,
    Event,
    Failure,
    Notice,
    Observation,
    RoundObserved,
    TurnStart,
)
from satchel.events import (
    Final as FinalEvent,
)
from satchel.loop import ToolPool
from satchel.memory.redaction import PRIVATE, hide_private, may_hold_secrets, private_parts, redact
from satchel.messages import Block, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock

__all__ = ["Discretion"]

Clean = Callable[[str], str]

_INLINE_CHARS: Final = 20_000
"""A longer text is looked at in a thread alone."""
_LEAST_HIDDEN_CHARS: Final = 6
"""Of a private part that is looked for in answers and calls: shorter words stand everywhere."""


class Discretion:
    """Takes out of the events of one session what must not be written down."""

    def __init__(self, *, redacts: bool, pool: ToolPool) -> None:
        """Take the setting, and the threads to look closely in."""
        self._redacts = redacts
        self._pool = pool
        self._hidden: list[str] = []

    async def of(self, events: Sequence[Event]) -> Sequence[Event]:
        """The same events, as the log may hold them."""
        for event in events:
            if isinstance(event, TurnStart):
                parts = private_parts(event.message.text)
                self._hidden += [part for part in parts if len(part) >= _LEAST_HIDDEN_CHARS]
        seen: list[str] = []

        def look(text: str) -> str:
            seen.append(text)
            return text

        for event in events:
            _cleaned(event, look)
        if not any(self._is_suspicious(text) for text in seen):
            return events
        return await self._pool.run(lambda: [_cleaned(event, self._clean) for event in events])

    def _is_suspicious(self, text: str) -> bool:
        return (
            (self._redacts and (len(text) > _INLINE_CHARS or may_hold_secrets(text)))
            or "<" in text
            or any(part in text for part in self._hidden)
        )

    def _clean(self, text: str) -> str:
        text = hide_private(text)
        for part in self._hidden:
            text = text.replace(part, PRIVATE)
        return redact(text) if self._redacts else text


def _cleaned(event: Event, clean: Clean) -> Event:
    match event:
        case TurnStart(message=message):
            return replace(event, message=_message(message, clean))
        case Assistant(blocks=blocks):
            return replace(event, blocks=tuple(_block(block, clean) for block in blocks))
        case Action(input=input):
            return replace(event, input=_input(input, clean))
        case Observation(text=text) | RoundObserved(text=text) | FinalEvent(text=text) | Notice(text=text):
            return replace(event, text=clean(text))
        case AskUser(question=question, options=options):
            return replace(event, question=clean(question), options=tuple(clean(text) for text in options))
        case Compaction(messages=messages, focus=focus):
            kept = tuple(_message(message, clean) for message in messages)
            return replace(event, messages=kept, focus=clean(focus))
        case Failure(message=message, traceback=traceback):
            return replace(event, message=clean(message), traceback=clean(traceback))
        case _:
            return event


def _message(message: Message, clean: Clean) -> Message:
    return replace(message, blocks=tuple(_block(block, clean) for block in message.blocks))


def _block(block: Block, clean: Clean) -> Block:
    match block:
        case TextBlock(origin="memory"):
            return block  # it came out of memory, where no secret is, and is replayed byte for byte
        case TextBlock(text=text):
            return replace(block, text=clean(text))
        case ThinkingBlock(text=text):
            shown = clean(text)
            # The proof is over the words that are gone; a provider would refuse the block.
            return block if shown == text else replace(block, text=shown, signature="")
        case ToolUseBlock(input=input, unparsed=unparsed):
            return replace(
                block, input=None if input is None else _input(input, clean), unparsed=clean(unparsed)
            )
        case ToolResultBlock(content=content):
            return replace(block, content=clean(content))


def _input(input: Mapping[str, Any], clean: Clean) -> Mapping[str, Any]:
    """Arguments of a call."""
    try:
        return {key: _value(item, clean) for key, item in input.items()}
    except RecursionError:
        # What can't be looked through is not written down.
        return {"redacted": "These arguments were nested too deeply to be looked through for secrets."}


def _value(value: Any, clean: Clean) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {key: _value(item, clean) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(item, clean) for item in value]
    return value
