"""One answer of a model: read it while it streams, and normalise it for the history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from satchel.errors import ModelUnavailable
from satchel.events import Event, Notice, TextDelta, ThinkingDelta, ToolInputDelta
from satchel.messages import (
    Block,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    clean_text,
    size_of_text,
)
from satchel.models.port import ChatModel, Completion, ModelRequest, Retrying

__all__ = ["Answer", "normalise", "read_answer"]


@dataclass(slots=True)
class Answer:
    """What has arrived of an answer. It outlives the task that reads it, so a cancelled turn keeps the words.

    Attributes:
        pieces: The text, in the order in which it streamed.
        size: Text, thinking and arguments that streamed, in bytes.
        completion: The whole answer; None until it is complete.
        is_endless: The answer was stopped because it exceeded the limit.
    """

    pieces: list[str] = field(default_factory=list)
    size: int = 0
    completion: Completion | None = None
    is_endless: bool = False

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The text that streamed. Thinking without its signature and incomplete calls can't be replayed."""
        text = clean_text("".join(self.pieces))
        return (TextBlock(text=text),) if text.strip() else ()


async def read_answer(
    model: ChatModel,
    request: ModelRequest,
    *,
    answer: Answer,
    emit: Callable[[Event], Awaitable[None]],
    max_bytes: int,
) -> None:
    """Ask the model, emit what arrives, and store it in `answer`.

    Args:
        model: The model to ask.
        request: The request.
        answer: Filled while the answer streams.
        emit: Receives the deltas, and a `Notice` for each retry.
        max_bytes: The limit for text, thinking and arguments together; a longer answer is stopped.

    Raises:
        ModelError: The model gave no complete answer.
    """
    stream = model.stream(request)
    async with _closing(stream):
        async for event in stream:
            match event:
                case Completion():
                    answer.completion = event
                    return
                case Retrying(attempt=attempt, delay_s=delay_s, reason=reason):
                    text = f"{reason} Trying again in {delay_s:.1f} s (attempt {attempt})."
                    await emit(Notice(part="model", text=text))
                case TextDelta(text=text):
                    answer.pieces.append(text)
                    await emit(event)
                    answer.size += size_of_text(text)
                case ThinkingDelta(text=text) | ToolInputDelta(text=text):
                    await emit(event)
                    answer.size += size_of_text(text)
                case _:
                    assert_never(event)
            if answer.size > max_bytes:
                answer.is_endless = True
                return
    raise ModelUnavailable(
        f"{model.provider}:{model.model} ended its answer without saying that it is complete."
    )


def _closing(stream: AsyncIterator[Any]) -> AbstractAsyncContextManager[Any]:
    """End the request when the reader leaves early. An iterator that can't be closed has nothing to end."""
    return aclosing(stream) if hasattr(stream, "aclose") else nullcontext(stream)


def normalise(completion: Completion, *, taken: Set[str]) -> Completion:
    """Make an answer valid for the history.

    Blank text and results are removed, and so is thinking at the end, which no provider accepts back there. Calls get
    ids that are unique in the conversation. If the provider refused to continue the answer, its calls are removed.

    Args:
        completion: The answer as the model gave it.
        taken: The ids of all earlier calls.
    """
    blocks: list[Block] = []
    used: set[str] = set()
    for block in completion.blocks:
        match block:
            case TextBlock(text=text):
                if text.strip():
                    blocks.append(replace(block, text=clean_text(text), origin="said"))
            case ThinkingBlock():
                blocks.append(block)
            case ToolUseBlock(id=id):
                if completion.stop_reason != "refusal":
                    unique = _unique(id, taken, used)
                    used.add(unique)
                    blocks.append(block if unique == id else replace(block, id=unique))
            case ToolResultBlock():
                pass
            case _:
                assert_never(block)
    while blocks and isinstance(blocks[-1], ThinkingBlock):
        blocks.pop()
    return replace(completion, blocks=tuple(blocks))


def _unique(id: str, taken: Set[str], used: Set[str]) -> str:
    base = id or "call"
    unique, number = base if id else f"{base}_1", 1
    while unique in taken or unique in used:
        number += 1
        unique = f"{base}_{number}"
    return unique
