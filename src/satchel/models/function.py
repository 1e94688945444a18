"""A function as a language model, for programs that embed Satchel and use no endpoint."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias, cast

import anyio.lowlevel

from satchel.errors import ModelRejected, SatchelError, UsageError
from satchel.events import TextDelta
from satchel.messages import TextBlock, ToolUseBlock, Usage
from satchel.models.identifiers import CallIds
from satchel.models.json_answer import JsonAnswerReader
from satchel.models.port import ChatModel, Completion, ModelEvent, ModelRequest

ModelFunction: TypeAlias = Callable[
    [ModelRequest], str | Completion | AsyncIterator[str] | Awaitable[str | Completion]
]
"""Answers a request with text, with a `Completion` (which may contain tool calls), or with an iterator of pieces of
text. It may be async. If tools are offered, the text may be or contain `{"action": …}`, `{"actions": …}` or
`{"final": …}` (see `json_answer`)."""


class FunctionModel:
    """A `ChatModel` made from a function."""

    provider = "function"
    context_window: int | None = None

    def __init__(self, function: ModelFunction) -> None:
        """Store the function; its name is the name of the model."""
        self._function = function
        self.model: str = getattr(function, "__name__", type(function).__name__)

    @classmethod
    def of(cls, model: ChatModel | ModelFunction) -> ChatModel:
        """A `ChatModel` is returned unchanged; a function becomes one.

        Raises:
            UsageError: The argument is neither.
        """
        if hasattr(model, "stream") and hasattr(model, "provider") and not isinstance(model, type):
            ready: Any = model
            return cast("ChatModel", ready)
        if isinstance(model, type) or not callable(model):
            raise UsageError(
                f"The model is {model!r}. Pass a name such as 'ollama:qwen3', a ChatModel, or a function that takes a "
                "ModelRequest and returns text or a Completion."
            )
        return cls(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `ChatModel`.

        Raises:
            ModelRejected: The function raised, or returned something that isn't an answer.
        """
        try:
            async with aclosing(self._answered(request)) as events:
                async for event in events:
                    yield event
        except SatchelError:
            raise
        # A boundary: the function is the program's code.
        except Exception as error:
            raise ModelRejected(
                f"The function {self.model} failed: {type(error).__name__}: {error}"
            ) from error

    async def _answered(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        answer = self._function(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Completion):
            yield answer
            return
        # A function that returns text has no other way to call tools than the JSON of seed-3.
        reader = JsonAnswerReader() if request.tools else None
        said: list[str] = []
        if isinstance(answer, str):
            said.append(answer)
            if shown := reader.feed(answer) if reader else answer:
                yield TextDelta(text=shown)
        elif isinstance(answer, AsyncIterator):
            async for piece in answer:
                if not isinstance(piece, str):
                    raise self._no_answer(piece, "a piece of an answer is text")
                said.append(piece)
                if shown := reader.feed(piece) if reader else piece:
                    yield TextDelta(text=shown)
                # The function may never await anything. Other tasks must still run, and the turn must be
                # interruptible.
                await anyio.lowlevel.checkpoint()
        else:
            raise self._no_answer(answer, "an answer is text or a Completion")
        rest, blocks = (
            reader.finish(CallIds.of(request)) if reader else ("", (TextBlock(text="".join(said)),))
        )
        if rest:
            yield TextDelta(text=rest)
        calls = any(isinstance(block, ToolUseBlock) for block in blocks)
        yield Completion(
            blocks=blocks,
            stop_reason="tool_use" if calls else "end_turn",
            usage=Usage(),
            provider=self.provider,
            model=self.model,
        )

    def _no_answer(self, given: object, wanted: str) -> ModelRejected:
        return ModelRejected(f"The function {self.model} gave {repr(given)[:200]}; {wanted}.")

    async def aclose(self) -> None:
        """There is nothing to close."""
