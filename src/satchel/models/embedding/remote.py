"""Embedding models behind an OpenAI-compatible endpoint, of which Ollama has one."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import TYPE_CHECKING, Any, Final

import anyio

from satchel.clock import Clock
from satchel.config import ProviderSettings
from satchel.errors import EmbedderError, ModelError, ModelUnavailable
from satchel.messages import clean_text
from satchel.models.embedding.embedder import BaseEmbedder
from satchel.models.encoding import encode
from satchel.models.openai.client import OpenAIModel
from satchel.models.port import EmbedderInfo, EmbedRole, Retrying
from satchel.models.retry import RetryPolicy, retried

if TYPE_CHECKING:
    from satchel.models.port import Vectors

_TEXTS_AT_ONCE: Final = 64
"""Texts in one request: few enough for a laptop to answer within the time limit, and far below OpenAI's 2,048."""
_CHARS_A_TOKEN: Final = 3
"""Texts are truncated to this many characters per token, fewer than the four or so of English, because some endpoints
refuse a text that is too long."""
_MAX_ANSWER_BYTES: Final = 64 << 20
"""64 vectors of 8,192 numbers take 12 MB as JSON, so a longer response isn't an answer."""
_ANSWER_LIMIT_S: Final = 60.0
"""Ollama may have to load the model first."""
_POLICY: Final = RetryPolicy(retries=2, longest_asked_s=8.0)
"""A search waits for it."""


class RemoteEmbedder(BaseEmbedder):
    """An embedding endpoint. Each call sends a request; nothing is opened before the first call."""

    def __init__(
        self,
        info: EmbedderInfo,
        *,
        settings: ProviderSettings,
        model: str,
        clock: Clock,
        api_key: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """Store the parameters.

        Args:
            info: The model's record; if its dimension is 0, the first answer sets it.
            settings: The provider's entry in the configuration.
            model: The endpoint's name for it.
            clock: For `Retry-After` dates.
            api_key: Sent only to the provider's address.
            sleep: Waits between two attempts.
        """
        super().__init__(info)
        self._model = model
        self._url = f"{settings.base_url.rstrip('/')}/embeddings"
        self._sleep = sleep
        self._endpoint = OpenAIModel(settings, model, api_key=api_key, clock=clock)

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`."""
        import numpy as np  # noqa: PLC0415  - takes 0.1 s, and only embedding needs it

        prefix = self._info.query_prefix if role == "query" else self._info.document_prefix
        longest = self._info.max_tokens * _CHARS_A_TOKEN
        parts = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            asked = texts[start : start + _TEXTS_AT_ONCE]
            # Endpoints refuse an empty text, so a space is sent.
            part = [clean_text(prefix + text[:longest]) or " " for text in asked]
            parts.append(self._checked(await self._ask(part), count=len(part)))
        return np.concatenate(parts) if parts else np.zeros((0, self._info.dimension), np.float32)

    async def aclose(self) -> None:
        """Close its connections. Later calls are refused."""
        self._closed = True
        await self._endpoint.aclose()

    async def _ask(self, texts: list[str]) -> list[Any]:
        """Send texts, and retry after temporary failures.

        Raises:
            EmbedderError: It gave no vectors.
        """
        self._check_open()
        body = encode({"model": self._model, "input": texts, "encoding_format": "float"})

        async def attempt() -> AsyncGenerator[bytes, None]:
            yield await self._answer(body)

        try:
            async with aclosing(
                retried(attempt, policy=_POLICY, random=Random(), sleep=self._sleep)
            ) as events:
                async for event in events:
                    if not isinstance(event, Retrying):
                        return self._rows_of(json.loads(event))
        except ModelError as error:
            raise EmbedderError(str(error)) from error
        except (ValueError, RecursionError) as error:
            raise EmbedderError(f"{self._info.id} answered with something that is not JSON.") from error
        raise AssertionError("The last try returns or raises.")

    async def _answer(self, body: bytes) -> bytes:
        import httpx2  # noqa: PLC0415  - 0.15 s; only who asks an endpoint needs it

        answer = bytearray()
        try:
            # The client's time limits apply to each read; this one applies to the whole answer.
            with anyio.fail_after(_ANSWER_LIMIT_S):
                response = await self._endpoint.post(body, url=self._url)
                async with aclosing(response):
                    async for data in response.aiter_bytes():
                        answer += data
                        if len(answer) > _MAX_ANSWER_BYTES:
                            raise EmbedderError(
                                f"{self._info.id} sent more than {_MAX_ANSWER_BYTES >> 20} MB; given up."
                            )
        except TimeoutError as error:
            raise ModelUnavailable(f"{self._info.id} did not answer within {_ANSWER_LIMIT_S:g} s.") from error
        except httpx2.HTTPError as error:
            raise ModelUnavailable(f"{self._info.id} broke off its answer: {error}.") from error
        return bytes(answer)

    def _rows_of(self, answer: Any) -> list[Any]:
        """The rows of an answer, in the order of the texts; `unit_rows` checks them.

        Raises:
            EmbedderError: It contains no rows, or numbers them wrongly.
        """
        found = answer.get("data") if isinstance(answer, dict) else None
        rows: dict[Any, Any] = {}
        for place, item in enumerate(found if isinstance(found, list) else [None]):
            if not isinstance(item, dict) or not isinstance(item.get("embedding"), list):
                raise EmbedderError(f"{self._info.id} answered without vectors. Is it an embedding model?")
            # Use the index if there is one, because the order is not guaranteed.
            number = item.get("index", place)
            rows[number if isinstance(number, int) else None] = item["embedding"]
        if rows.keys() != set(range(len(found or ()))):
            raise EmbedderError(f"{self._info.id} numbered its vectors wrongly; none of them was used.")
        return [rows[place] for place in range(len(rows))]
