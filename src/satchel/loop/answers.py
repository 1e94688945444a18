"""One answer of a model: read it while it streams, and normalise it for the history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field, replace
from typing import assert_never

import anyio

from satchel.errors import ModelUnavailable
from satchel.events import Event, Notice, TextDelta, ThinkingDelta, ToolInputDelta
from satchel.loop.limits import Patience
from satchel.messages import (
    Block,
    FileBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    clean_text,
    size_of_text,
)
from satchel.models.port import ChatModel, Completion, ModelRequest, Retrying, closing_stream


@dataclass(slots=True)
class PartialAnswer:
    """What has arrived of an answer. It outlives the task that reads it, so a cancelled turn keeps the words.

    Attributes:
        pieces: The text, in the order in which it streamed.
        size: Text, thinking and arguments that streamed, in bytes.
        completion: The whole answer; None until it is complete.
    """

    pieces: list[str] = field(default_factory=list)
    size: int = 0
    completion: Completion | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The text that streamed. Thinking without its signature and incomplete calls can't be replayed."""
        text = clean_text("".join(self.pieces))
        return (TextBlock(text=text),) if text.strip() else ()


async def read_answer(
    model: ChatModel,
    request: ModelRequest,
    *,
    answer: PartialAnswer,
    emit: Callable[[Event], Awaitable[None]],
    max_bytes: int,
    patience: Patience,
) -> None:
    """Ask the model, emit what arrives, and store it in `answer`. `emit` receives the deltas, and a `Notice` for each
    retry and for a long silence. An answer whose text, thinking and arguments have more than `max_bytes` together is
    stopped.

    Raises:
        ModelError: The model gave no complete answer, or sent nothing for too long.
    """
    silence = _Silence(model, emit, patience)
    async with anyio.create_task_group() as group:
        group.start_soon(silence.watch, group.cancel_scope)
        try:
            await _read(model, request, answer=answer, emit=emit, max_bytes=max_bytes, silence=silence)
        except Exception as error:  # noqa: BLE001 (raised below: a task group would wrap it)
            silence.error = error
        group.cancel_scope.cancel()
    if silence.error is not None:
        raise silence.error


async def _read(
    model: ChatModel,
    request: ModelRequest,
    *,
    answer: PartialAnswer,
    emit: Callable[[Event], Awaitable[None]],
    max_bytes: int,
    silence: _Silence,
) -> None:
    async with closing_stream(model.stream(request)) as stream:
        async for event in stream:
            silence.broken()
            match event:
                case Completion():
                    answer.completion = event
                    return
                case Retrying(attempt=attempt, delay_s=delay_s, reason=reason):
                    text = f"{reason} Trying again in {delay_s:.1f} s (attempt {attempt})."
                    silence.broken(for_s=delay_s)
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
                return
    raise ModelUnavailable(
        f"{model.provider}:{model.model} ended its answer without saying that it is complete."
    )


class _Silence:
    """Watches how long a model has sent nothing that belongs to an answer. Comments that keep a connection open don't.

    Attributes:
        error: Why reading the answer ended, if it failed.
    """

    def __init__(
        self, model: ChatModel, emit: Callable[[Event], Awaitable[None]], patience: Patience
    ) -> None:
        self._name = f"{model.provider}:{model.model}"
        self._emit = emit
        self._patience = patience
        # Read for every piece that arrives, so without asking anyio each time which loop runs.
        self._now = asyncio.get_running_loop().time
        self._since = self._now()
        self.error: Exception | None = None

    def broken(self, *, for_s: float = 0.0) -> None:
        self._since = self._now() + for_s

    async def watch(self, scope: anyio.CancelScope) -> None:
        """Tell the user once, then end the scope."""
        tell_s, end_s = self._patience.tell_s, self._patience.end_s
        await self._lasts(min(tell_s, end_s))
        if tell_s < end_s:
            text = f"{self._name} has sent nothing for {tell_s:g} s. It may take {end_s:g} s (agent.model_timeout_s)."
            try:
                await self._emit(Notice(part="model", text=text))
            except Exception as error:  # noqa: BLE001 (raised by `read_answer`)
                self.error = error
                scope.cancel()
                return
            await self._lasts(end_s)
        self.error = ModelUnavailable(
            f"{self._name} sent nothing for {end_s:g} s, the limit (agent.model_timeout_s)."
        )
        scope.cancel()

    async def _lasts(self, seconds: float) -> None:
        # What arrives meanwhile moves the end: no event is set for each delta.
        while (left := self._since + seconds - self._now()) > 0:  # noqa: ASYNC110
            await anyio.sleep(left)


def normalise(completion: Completion, *, taken: Set[str], prefix: str = "") -> Completion:
    """Make an answer valid for the history.

    Blank text and results are removed, and so is thinking at the end, which no provider accepts back there. Calls get
    ids that are unique in the conversation. If the provider refused to continue the answer, its calls are removed.
    `taken` are the ids of all earlier calls; `prefix` begins those of these.
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
                    unique = _unique(prefix + id, taken, used)
                    used.add(unique)
                    blocks.append(block if unique == id else replace(block, id=unique))
            case ToolResultBlock() | FileBlock():
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
