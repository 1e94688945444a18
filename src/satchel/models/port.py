"""The two ports of this room: a language model that streams its answers, and an embedding model.

A `ChatModel` is not a conversation: it keeps no history, runs no tools and writes nothing. The three ways of calling
tools (native, JSON in text, none) produce the same blocks for the caller.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from satchel.events import TextDelta, ThinkingDelta, ToolInputDelta
from satchel.messages import Block, FileBlock, Message, StopReason, Usage

if TYPE_CHECKING:
    import numpy as np

# A string, because numpy is expensive to import and only embedders need it.
Vectors: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.float32]]"


SAMPLING_OPTIONS: Final = ("top_p", "stop", "presence_penalty", "frequency_penalty", "seed")
OPTIONS: Final = frozenset({*SAMPLING_OPTIONS, "tool_choice", "parallel_tool_calls"})
"""Every name in `ModelRequest.options`."""

FileReader: TypeAlias = Callable[[FileBlock], bytes | None]
"""Blocks for as long as reading a file of some megabytes takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool as a model sees it. `input_schema` is a JSON Schema of type "object"."""

    name: str
    description: str
    input_schema: Mapping[str, Any]

    @property
    def size(self) -> int:
        """In a request, in bytes."""
        return len(self.name) + len(self.description) + len(json.dumps(self.input_schema, default=str)) + 48


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request.

    Attributes:
        system: The system text. Its bytes don't change during a session, so that it can be cached.
        messages: A valid history (see `Message`) that ends with a message of the user.
        tools: In a fixed order; empty if no tool may be called.
        max_tokens: The limit for the output; None uses the model's own.
        response_schema: A JSON Schema that the text of the answer must match, if the endpoint supports it.
        options: Further parameters by the names and values of OpenAI's chat completions; only such as are among
            `options_of` the model. `tool_choice` is "required" or the name of a tool.
        session_id: For providers that use it for routing, so that requests reach the same prefix cache.
        read_file: Reads the bytes of a `FileBlock`; None where they are gone. Without it, models get no files.
    """

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolDefinition] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    response_schema: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    session_id: str = ""
    read_file: FileReader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The complete answer; always the last event of a stream.

    Attributes:
        provider: The name of the provider's entry in the configuration.
        model: The model that the endpoint says it used.
    """

    blocks: tuple[Block, ...]
    stop_reason: StopReason
    usage: Usage
    provider: str
    model: str

    @property
    def message(self) -> Message:
        """The answer as an assistant message."""
        return Message(role="assistant", blocks=self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A request failed temporarily and is sent again after `delay_s`; nothing is streamed twice."""

    attempt: int
    delay_s: float
    reason: str


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | ToolInputDelta | Retrying | Completion


class ChatModel(Protocol):
    """A language model behind one endpoint.

    Attributes:
        provider: The name of the provider's entry in the configuration ("anthropic", "none", …).
        model: The model's name at that provider.
        context_window: The maximum number of tokens of a request and its answer together; None if unknown.
    """

    @property
    def provider(self) -> str: ...  # noqa: D102
    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def context_window(self) -> int | None: ...  # noqa: D102

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Send the request and yield events as they arrive; exactly one `Completion` comes last.

        Closing the iterator early, or cancelling the task that reads it, ends the request.

        Raises:
            ModelAuthError, ModelRejected, ContextOverflow, ModelUnavailable: See `satchel.errors`. Temporary
                failures have been retried before, unless something had been streamed already.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections. It may be called twice."""


def options_of(model: ChatModel) -> frozenset[str]:
    """The names of `ModelRequest.options` that a model passes on: its attribute `options`, which it need not have."""
    return frozenset(getattr(model, "options", ()))


async def window_of(model: ChatModel) -> int | None:
    """The model's window, from its endpoint if need be: by its method `find_window`, which it need not have."""
    find = getattr(model, "find_window", None)
    window: int | None = model.context_window if find is None else await find()
    return window


def price_by(model: ChatModel, usage: Usage) -> Usage:
    """The usage with its cost if the model knows its price, by its method `price`, which it need not have."""
    price = getattr(model, "price", None)
    priced: Usage = price(usage) if price is not None else usage
    return priced


def closing_stream(
    stream: AsyncIterator[ModelEvent],
) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
    """End the request when the reader leaves early. An iterator that can't be closed has nothing to end."""
    closable: Any = stream
    return aclosing(closable) if hasattr(stream, "aclose") else nullcontext(stream)


EmbedRole: TypeAlias = Literal["query", "document"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderInfo:
    """The properties of an embedding model, which no code may assume.

    Attributes:
        id: Identifies model, weights and precision, so that equal ids mean equal vectors ("minilm-l6-v2/int8").
        dimension: The length of a vector; 0 if it is known only after the endpoint's first answer.
        max_tokens: Longer texts are truncated, so the caller splits them.
        threshold: The cosine above which two texts are about the same thing, calibrated for this model.
        token_dimension: The length of a token's vector; 0 without token vectors (see `TokenEmbedder`).
        query_prefix: The embedder prepends it to a query, and `document_prefix` to a stored text.
        script: The only script that the model reads, as it begins the Unicode names of its letters ("LATIN"); "" if it
            reads more. The vectors of other texts mean nothing.
        languages: The languages that it reads, by ISO 639-1 code; empty if that isn't known or it reads many more.
    """

    id: str
    dimension: int
    max_tokens: int
    threshold: float
    token_dimension: int = 0
    query_prefix: str = ""
    document_prefix: str = ""
    script: str = ""
    languages: tuple[str, ...] = ()


class Embedder(Protocol):
    """An embedding model.

    It may be called from several tasks at once, and never blocks the event loop.
    """

    @property
    def info(self) -> EmbedderInfo: ...  # noqa: D102

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts.

        Args:
            texts: Any number of texts, which may be empty; not modified.
            role: Whether they are queries or stored documents.

        Returns:
            Shape (len(texts), dimension), float32, every row finite and of unit length.

        Raises:
            EmbedderError: The embedder is unavailable; the message says why and what to do.
        """
        ...

    async def aclose(self) -> None:
        """Release threads and memory. It may be called twice."""


@runtime_checkable
class FetchedEmbedder(Embedder, Protocol):
    """An embedder whose files are fetched when it is first called, which may take minutes."""

    def is_here(self) -> bool:
        """Whether its files are on this machine, so that a call waits for no connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenVectors:
    """The token vectors of a text.

    Attributes:
        vectors: Shape (tokens, `EmbedderInfo.token_dimension`), float32, every row of unit length, in the order of
            the text. Special tokens of the model are left out, so an empty text has 0 rows.
        spans: The position of each token: shape (tokens, 2), int32, the first character and the one after the last,
            in the original text.
    """

    vectors: Vectors
    spans: np.ndarray[tuple[int, int], np.dtype[np.int32]]


@runtime_checkable
class TokenEmbedder(Embedder, Protocol):
    """An embedder that also returns a vector for each token, for late interaction. Its record has a
    `token_dimension`.
    """

    async def embed_tokens(
        self, texts: Sequence[str], role: EmbedRole
    ) -> tuple[Vectors, Sequence[TokenVectors]]:
        """Embed each text and its tokens in one pass of the model.

        Args:
            texts: As in `embed`.
            role: As in `embed`.

        Returns:
            The result of `embed`, and the tokens of each text, both in the order of `texts`.

        Raises:
            EmbedderError: As in `embed`.
        """
        ...
