"""From the log back to the messages, exactly as the loop had them, so that a resumed session sends the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from satchel.events import (
    Action,
    AskUser,
    Assistant,
    Compaction,
    Final,
    MemorySurfaced,
    Observation,
    Record,
    SessionStart,
    TurnEnd,
    TurnStart,
    TurnStatus,
)
from satchel.messages import Block, Message, TextBlock, ToolResultBlock, Usage
from satchel.models.encoding import clean_text

__all__ = ["History", "rebuild"]

_INTERRUPTED = (
    # The words of DESIGN 4.
    "The program ended while this call was running: interrupted; outcome unknown; check before repeating."
)
_NOT_STARTED = "Not started: the program ended before this call began. It had no effect."
_UNREADABLE = "(What was said here can't be read any more.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A session as a model would see it.

    Attributes:
        messages: A valid history (see `Message`) up to one exception: while `question` is set, its call is
        the one
            that has no result yet; the loop gives it the next message.
        turns: The number of the newest turn, 0 before the first.
        question: The question that the last turn ended with, or None.
        surfaced_ids: The memories whose block still stands in `messages`, so that they need not be shown
        again.
        status: How the newest turn ended; None where it never ended: the program was stopped in the middle.
        usage: Tokens and money of the whole session.
        provider: Of the last answer or, before the first, of the session's start; so is `model`.
        untrusted: A result or a memory from outside was put before the model, however long ago: what was said since, a
            summary included, may come from there.
    """

    messages: tuple[Message, ...]
    turns: int = 0
    question: AskUser | None = None
    surfaced_ids: frozenset[str] = frozenset()
    status: TurnStatus | None = None
    usage: Usage = field(default_factory=Usage)
    provider: str = ""
    model: str = ""
    untrusted: bool = False


class _Builder:
    """Reads one event after the other; holds the calls of the newest answer that have no result yet."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.results: dict[str, ToolResultBlock] = {}
        self.started: set[str] = set()
        self.question: AskUser | None = None

    def say(self, blocks: tuple[Block, ...]) -> None:
        """The user's side says something: after what it said before, in the same message."""
        if self.messages and self.messages[-1].role == "user":
            self.messages[-1] = Message(role="user", blocks=self.messages[-1].blocks + blocks)
        elif blocks:
            self.messages.append(Message(role="user", blocks=blocks))

    def start_turn(self, event: TurnStart) -> None:
        answered = self.question.call_id if self.question is not None else event.answers
        blocks = event.message.blocks
        if answered is not None and answered in self.open_calls:
            self.results[answered] = ToolResultBlock(tool_use_id=answered, content=event.message.text)
            # The words are the call's result and stand there alone.
            blocks = tuple(b for b in blocks if not (isinstance(b, TextBlock) and b.origin == "said"))
        self.close_calls(keep=None)
        self.question = None
        self.say(blocks)

    def answer(self, event: Assistant) -> None:
        self.close_calls(keep=None)
        if not event.blocks:
            return
        if not self.messages or self.messages[-1].role == "assistant":
            # A line of the log could not be read: what stood between the two is unknown, but two answers in a
            # row
            # are refused by every provider.
            self.say((TextBlock(text=_UNREADABLE, origin="notice"),))
        self.messages.append(Message(role="assistant", blocks=event.blocks))

    def restart(self, event: Compaction) -> None:
        self.messages = list(event.messages)
        answered = {
            block.tool_use_id
            for message in event.messages[-1:]
            for block in message.blocks
            if isinstance(block, ToolResultBlock)
        }
        self.results = {call: result for call, result in self.results.items() if call not in answered}

    @property
    def open_calls(self) -> tuple[str, ...]:
        """The calls of the newest message that have no result in the history yet."""
        if not self.messages or self.messages[-1].role != "assistant":
            return ()
        return tuple(call.id for call in self.messages[-1].tool_uses)

    def close_calls(self, *, keep: str | None) -> None:
        """Give every open call its result, in the order asked; all but `keep`, which the user still has to
        answer.
        """
        blocks: list[Block] = []
        for call in self.open_calls:
            result = self.results.get(call)
            if result is None:
                if call == keep:
                    continue
                text = _INTERRUPTED if call in self.started else _NOT_STARTED
                result = ToolResultBlock(tool_use_id=call, content=text, is_error=True)
            blocks.append(result)
        self.say(tuple(blocks))
        self.results.clear()
        self.started.clear()


def rebuild(records: Iterable[Record]) -> History:
    """Rebuild the history from the records of one session, in order.

    A call that was started and never ended is answered for the model with "… interrupted; outcome unknown; …", one
    that was never started with "Not started: …"; only a question to the user stays open. Any prefix of a log
    gives a valid history.
    """
    builder = _Builder()
    turns = 0
    surfaced: dict[str, str] = {}
    status: TurnStatus | None = None
    usage = Usage()
    provider = model = ""
    untrusted = False
    for record in records:
        match record.event:
            case SessionStart() as event:
                provider, model = event.provider, event.model
            case TurnStart() as event:
                builder.start_turn(event)
                turns, status = max(turns, event.turn), None
            case MemorySurfaced() as event:
                if event.text.strip():
                    builder.say((TextBlock(text=clean_text(event.text), origin="memory"),))
                surfaced.update((memory.id, event.text) for memory in event.memories)
                untrusted = untrusted or event.untrusted
            case Assistant() as event:
                builder.answer(event)
                usage += event.usage
                provider, model = event.provider, event.model
            case Action() as event:
                builder.started.add(event.call_id)
            case Observation() as event:
                builder.results[event.call_id] = ToolResultBlock(
                    tool_use_id=event.call_id, content=event.text, is_error=event.is_error
                )
                # Round 0 is a call that the user ran by hand: the model does not see what came of it.
                untrusted = untrusted or (event.untrusted and event.round > 0)
            case AskUser() as event:
                builder.question = event
            case Compaction() as event:
                builder.restart(event)
                usage += event.usage
                kept = {b.text for m in event.messages for b in m.blocks if isinstance(b, TextBlock)}
                surfaced = {id: text for id, text in surfaced.items() if text in kept}
            case Final() as event:
                # It may have been said after a call that waited for the user went on, which has no observation.
                untrusted = untrusted or event.untrusted
            case TurnEnd() as event:
                status = event.status
            case _:
                pass
    question = builder.question
    if question is not None and question.call_id not in builder.open_calls:
        question = None
    builder.close_calls(keep=question.call_id if question is not None else None)
    return History(
        messages=tuple(builder.messages),
        turns=turns,
        question=question,
        surfaced_ids=frozenset(surfaced),
        status=status,
        usage=usage,
        provider=provider,
        model=model,
        untrusted=untrusted,
    )
