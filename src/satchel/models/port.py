"""The two ports of this room: a language model that streams, and an embedding model.

`ChatModel` is not a conversation: it holds no history, runs no tool, writes nothing. Three ways of calling
tools (native, JSON in text, none) reach the caller as the same blocks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from satchel.events import TextDelta, ThinkingDelta, ToolInputDelta
from satchel.messages import Block, Message, StopReason, Usage

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ChatModel",
    "Completion",
    "EmbedRole",
    "Embedder",
    "EmbedderInfo",
    "ModelEvent",
    "ModelRequest",
    "Retrying",
    "TokenEmbedder",
    "TokenVectors",
    "ToolDefinition",
    "Vectors",
]

# Written as text: numpy is heavy, and only embedders need it.
Vectors: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.float32]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """A tool as a model sees it. `input_schema` is a JSON Schema of type "object"."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request.

    Attributes:
        system: The system text; its bytes stay the same during a session, so that it can be cached.
        messages: A valid history (see `Message`), ending with a user's message.
        tools: In a fixed order; empty where none may be called.
        max_tokens: Of output; None takes the model's own.
        response_schema: A JSON Schema that the text of the answer must fit, where the endpoint can do that.
        session_id: For providers that route by it, so that a prefix cache is hit.
    """

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolDefinition] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    response_schema: Mapping[str, Any] | None = None
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The end of a stream, always its last event: the whole answer.

    Attributes:
        provider: The name of the provider's entry in the configuration.
        model: What the endpoint says it ran.
    """

    blocks: tuple[Block, ...]
    stop_reason: StopReason
    usage: Usage
    provider: str
    model: str

    @property
    def message(self) -> Message:
        """The answer as a message of the assistant."""
        return Message(role="assistant", blocks=self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A request failed for a passing reason and is sent again after `delay_s`; nothing was streamed twice."""

    attempt: int
    delay_s: float
    reason: str


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | ToolInputDelta | Retrying | Completion


class ChatModel(Protocol):
    """A language model behind one endpoint.

    Attributes:
        provider: The name of the provider's entry in the configuration ("anthropic", "none", …).
        model: The model's name at that provider.
        context_window: Tokens that a request and its answer may have together, or None where unknown.
    """

    @property
    def provider(self) -> str: ...  # noqa: D102
    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def context_window(self) -> int | None: ...  # noqa: D102

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Ask, and give what comes as it comes; exactly one `Completion`, last.

        Closing the iterator early, or cancelling the task that reads it, ends the request.

        Raises:
            ModelAuthError, ModelRejected, ContextOverflow, ModelUnavailable: See `satchel.errors`. Passing
                failures were retried by then, as long as nothing had been streamed.
        """
        ...

    async def aclose(self) -> None:
        """Give back its connections. It may be called twice."""


EmbedRole: TypeAlias = Literal["query", "document"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderInfo:
    """What is known of an embedding model; it belongs to the model, never to the code that uses it.

    Attributes:
        id: Names model, weights and form so that equal ids give equal vectors ("minilm-l6-v2/int8").
        dimension: Length of a vector; 0 where only the first answer of an endpoint will tell.
        max_tokens: Longer texts are cut; the caller chunks before.
        threshold: Cosine above which two texts speak of the same thing, calibrated for this model.
        token_dimension: Length of a token's vector; 0 where it gives none (see `TokenEmbedder`).
        query_prefix: Put before a query, and `document_prefix` before a stored text, by the embedder itself.
    """

    id: str
    dimension: int
    max_tokens: int
    threshold: float
    token_dimension: int = 0
    query_prefix: str = ""
    document_prefix: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


class Embedder(Protocol):
    """An embedding model.

    Calls may come from several tasks; it orders them itself and never blocks the event loop.
    """

    @property
    def info(self) -> EmbedderInfo: ...  # noqa: D102

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed.

        Args:
            texts: Any number, any of them empty; not changed.
            role: Whether they are asked with or stored.

        Returns:
            Shape (len(texts), dimension), float32, every row finite and of unit length.

        Raises:
            EmbedderError: It cannot serve now; the message says why and what to do.
        """
        ...

    async def aclose(self) -> None:
        """Give back threads and memory. It may be called twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenVectors:
    """A text, token by token.

    Attributes:
        vectors: Shape (tokens, `EmbedderInfo.token_dimension`), float32, every row of unit length, in the order of
            the text. Marks that the model adds are left out, so an empty text has 0 rows.
        spans: Where each token stands: shape (tokens, 2), int32, first character and the one after the last,
            counted in the text as it was given.
    """

    vectors: Vectors
    spans: np.ndarray[tuple[int, int], np.dtype[np.int32]]


@runtime_checkable
class TokenEmbedder(Embedder, Protocol):
    """An embedder that can also give a vector for each token, for late interaction. Not every one can; those
    that can have a `token_dimension` in their record.
    """

    async def embed_tokens(
        self, texts: Sequence[str], role: EmbedRole
    ) -> tuple[Vectors, Sequence[TokenVectors]]:
        """Embed each text as a whole and by its tokens, in one pass of the model.

        Args:
            texts: As in `embed`.
            role: As in `embed`.

        Returns:
            What `embed` gives, and the tokens of each text, both in the order of `texts`.

        Raises:
            EmbedderError: As in `embed`.
        """
        ...
