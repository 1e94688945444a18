"""Embedding models behind an endpoint, with Ollama's own API or the OpenAI-compatible one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import anyio

from satchel.errors import EmbedderError
from satchel.models.embedding.base import BaseEmbedder
from satchel.models.encoding import encode
from satchel.models.port import EmbedderInfo, EmbedRole

if TYPE_CHECKING:
    import httpx2

    from satchel.models.port import Vectors

__all__ = ["RemoteEmbedder", "Wire"]

Wire: TypeAlias = Literal["ollama", "openai"]

_TEXTS_AT_ONCE: Final = 64
"""Texts in one request: few enough for a laptop to answer within the time limit, and far below OpenAI's 2,048."""
_CHARS_A_TOKEN: Final = 3
"""Texts are truncated to this many characters per token, fewer than the four or so of English, because some endpoints
refuse a text that is too long."""
_MAX_ANSWER_BYTES: Final = 64 << 20
"""64 vectors of 8,192 numbers take 12 MB as JSON, so a longer response isn't an answer."""
_CONNECT_LIMIT_S: Final = 5.0
_ANSWER_LIMIT_S: Final = 60.0
"""Ollama may have to load the model first."""
_TRIES: Final = 3
_TEMPORARY: Final = frozenset({408, 429, 500, 502, 503, 504, 529})
_LONGEST_WAIT_S: Final = 8.0


class RemoteEmbedder(BaseEmbedder):
    """An embedding endpoint. Each call sends a request; nothing is opened before the first call."""

    def __init__(
        self,
        info: EmbedderInfo,
        *,
        wire: Wire,
        model: str,
        base_url: str,
        api_key: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """Store the parameters.

        Args:
            info: The model's record; if its dimension is 0, the first answer sets it.
            wire: "ollama" uses `/api/embed`, "openai" uses `/embeddings`.
            model: The endpoint's name for it.
            base_url: The address without that path; for "openai" it usually ends in `/v1`.
            api_key: Sent only to `base_url`.
            sleep: Waits between two attempts.
        """
        super().__init__(info)
        self._wire = wire
        self._model = model
        self._url = base_url.rstrip("/") + ("/api/embed" if wire == "ollama" else "/embeddings")
        self._api_key = api_key
        self._sleep = sleep
        # Only the host, because an address may contain a password.
        self._name = f"{model} at {urlsplit(base_url).hostname}"
        self._client: httpx2.AsyncClient | None = None

    async def embed(self, texts: Sequence[str], role: EmbedRole) -> Vectors:
        """Embed texts; see `Embedder.embed`."""

        async def ask(part: list[str]) -> list[Any]:
            return self._rows_of(await self._ask(part), count=len(part))

        limits = {"at_once": _TEXTS_AT_ONCE, "chars_a_token": _CHARS_A_TOKEN}
        return await self._in_parts(ask, texts, role, **limits, source=self._name)

    async def aclose(self) -> None:
        """Close its connections. Later calls are refused."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _ask(self, texts: list[str]) -> Any:
        """Send texts, and retry after temporary failures.

        Raises:
            EmbedderError: It did not answer with JSON.
        """
        body: dict[str, Any] = {"model": self._model, "input": texts}
        if self._wire == "openai":
            body["encoding_format"] = "float"
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._post(encode(body))
            except _Passing as failure:
                if attempt == _TRIES:
                    raise EmbedderError(f"{failure} It was asked {_TRIES} times.") from failure
                wait_s = (
                    failure.retry_after_s if failure.retry_after_s is not None else 0.5 * 2 ** (attempt - 1)
                )
                if wait_s > _LONGEST_WAIT_S:
                    raise EmbedderError(f"{failure} It asks to wait {wait_s:g} s.") from failure
                await self._sleep(wait_s)
        raise AssertionError("The last try returns or raises.")

    async def _post(self, body: bytes) -> Any:
        import httpx2  # noqa: PLC0415  - 0.15 s; only who asks an endpoint needs it

        self._check_open()
        if self._client is None:
            limits = httpx2.Timeout(_ANSWER_LIMIT_S, connect=_CONNECT_LIMIT_S)
            headers = {"content-type": "application/json"}
            if self._api_key:
                headers["authorization"] = f"Bearer {self._api_key}"
            # Redirects are not followed, because the key is for this host only.
            self._client = httpx2.AsyncClient(timeout=limits, headers=headers, follow_redirects=False)
        answer = bytearray()
        try:
            # The client's time limits apply to each read; this one applies to the whole answer.
            with anyio.fail_after(2 * _ANSWER_LIMIT_S):
                async with self._client.stream("POST", self._url, content=body) as response:
                    async for data in response.aiter_bytes():
                        answer += data
                        if len(answer) > _MAX_ANSWER_BYTES:
                            raise EmbedderError(
                                f"{self._name} sent more than {_MAX_ANSWER_BYTES >> 20} MB; given up."
                            )
        except (httpx2.TimeoutException, TimeoutError) as error:
            raise _Passing(f"{self._name} did not answer within {_ANSWER_LIMIT_S:g} s.") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise _Passing(
                f"{self._name} can't be reached: {str(error) or type(error).__name__}. Is it running?"
            ) from error
        if response.status_code in _TEMPORARY:
            raise _Passing(
                f"{self._name} answered {response.status_code}: {_shortened(answer)}.",
                retry_after_s=_seconds(response.headers.get("retry-after")),
            )
        if response.status_code in (401, 403):
            raise EmbedderError(
                f"{self._name} refused the key ({response.status_code}). Check the provider's `env_api_key`."
            )
        if response.status_code == 404 and self._wire == "ollama":
            raise EmbedderError(f"{self._name}: {_shortened(answer)}. Type: ollama pull {self._model}")
        if response.status_code != 200:
            raise EmbedderError(f"{self._name} answered {response.status_code}: {_shortened(answer)}.")
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise EmbedderError(
                f"{self._name} answered with something that is not JSON: {_shortened(answer)}."
            ) from error

    def _rows_of(self, answer: Any, *, count: int) -> list[Any]:
        """The rows of an answer, in the order of the texts; `unit_rows` checks them.

        Raises:
            EmbedderError: It contains no rows, or numbers them wrongly.
        """
        name = "embeddings" if self._wire == "ollama" else "data"
        found = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(found, list):
            raise EmbedderError(f"{self._name} answered without vectors. Is it an embedding model?")
        if self._wire == "ollama" or len(found) != count:
            return found
        rows: dict[Any, Any] = {}
        for place, item in enumerate(found):
            if not isinstance(item, dict) or not isinstance(item.get("embedding"), list):
                raise EmbedderError(f"{self._name} answered without vectors. Is it an embedding model?")
            # Use the index if there is one, because the order is not guaranteed.
            number = item.get("index", place)
            rows[number if isinstance(number, int) else None] = item["embedding"]
        if rows.keys() != set(range(count)):
            raise EmbedderError(f"{self._name} numbered its vectors wrongly; none of them was used.")
        return [rows[place] for place in range(count)]


class _Passing(Exception):
    """A temporary failure."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def _shortened(answer: bytes | bytearray) -> str:
    """The endpoint's answer, shortened to one line."""
    text = bytes(answer[:2000]).decode(errors="replace")
    try:
        value = json.loads(text)
        error = value.get("error", value.get("message")) if isinstance(value, dict) else None
        text = (
            error.get("message", text)
            if isinstance(error, dict)
            else error
            if isinstance(error, str)
            else text
        )
    except (ValueError, RecursionError):
        pass
    return " ".join(str(text).split())[:300].rstrip(".") or "nothing"


def _seconds(header: str | None) -> float | None:
    """The seconds of a Retry-After header, or None for a date and for nonsense."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
