"""The common part of all models behind an HTTP endpoint: send, read, classify failures.

No SDK: bodies are put together as bytes and answers are read as plain JSON (decision 7), so that of a provider's SDK
only an HTTP client with a few headers was in use, for 65 MB (decision 67).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias
from urllib.parse import urlsplit

import anyio

from satchel.clock import Clock
from satchel.config import ProviderSettings, mask_address
from satchel.config.providers import builtin_providers
from satchel.errors import ModelAuthError, ModelRejected, ModelUnavailable
from satchel.events import TextDelta, ThinkingDelta, ToolInputDelta
from satchel.messages import Block, StopReason, ToolUseBlock, Usage, size_of_message, size_of_text
from satchel.models.failures import Endpoint, failure_of, retry_after_s
from satchel.models.files import Takes, less, most_named, with_newest_pictures
from satchel.models.identifiers import CallIds
from satchel.models.port import Completion, FileReader, ModelEvent, ModelRequest
from satchel.models.prefix import MessageCache
from satchel.models.prices import known_window, priced
from satchel.models.retry import RetryPolicy, retried
from satchel.models.sse import EventReader, LineReader
from satchel.version import __version__

if TYPE_CHECKING:
    import httpx2

Delta: TypeAlias = TextDelta | ThinkingDelta | ToolInputDelta

# A local model may need minutes to read a long prompt; the limit of the providers' SDKs is also 600 s.
READ_LIMIT_S: Final = 600.0
CONNECT_LIMIT_S: Final = 10.0
CLOSE_LIMIT_S: Final = 1.0

# More than any model can say in one answer (1,000,000 tokens of 4 characters), so a longer answer is a runaway.
MAX_ANSWER_CHARS: Final = 4_000_000

# The size of the cache for the converted history; 16 MB hold several full context windows.
_CACHE_BYTES: Final = 16_000_000

# A request has fewer optional parameters than this.
MAX_ADAPTATIONS: Final = 6


class AnswerAssembler(ABC):
    """Assembles one answer from what arrives over the wire.

    Attributes:
        model: As the endpoint calls it; "" if it doesn't say.
        stop: Why the endpoint stopped, in its own word; None while the answer is not complete.
        usage: None if the endpoint reported none.
    """

    stop_reasons: ClassVar[Mapping[str, StopReason]]
    """Ours for the endpoint's words."""

    def __init__(self, ids: CallIds) -> None:
        self._ids = ids
        self.model = ""
        self.stop: str | None = None
        self.usage: Usage | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the endpoint said why it stopped, so that the answer is complete."""
        return self.stop is not None

    @abstractmethod
    def feed(self, data: dict[str, Any]) -> list[Delta]:
        """Add the data of one event of the stream."""

    @abstractmethod
    def feed_whole(self, body: dict[str, Any]) -> list[Delta]:
        """Add an answer that arrived in one piece."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """The answer so far."""

    @property
    def stop_reason(self) -> StopReason:
        """Why it stopped."""
        stop = self.stop_reasons.get(self.stop or "", "other")
        if stop in ("end_turn", "other") and any(isinstance(block, ToolUseBlock) for block in self.blocks):
            # Some endpoints also say "stop" after calls.
            return "tool_use"
        return stop


def _estimated_usage(request: ModelRequest, blocks: tuple[Block, ...]) -> Usage:
    """An estimate for endpoints that report no usage: one token for 4 bytes, the usual rule for English text."""
    sent = size_of_text(request.system) + sum(map(size_of_message, request.messages))
    sent += sum(len(str(tool)) for tool in request.tools)
    said = sum(len(str(getattr(block, "text", "") or getattr(block, "input", ""))) for block in blocks)
    return Usage(input_tokens=sent // 4, output_tokens=(said + 3) // 4, estimated=True)


class HostedModel(ABC):
    """A `ChatModel` behind one endpoint. Subclasses define the wire format."""

    def __init__(
        self,
        settings: ProviderSettings,
        model: str,
        *,
        api_key: str | None,
        clock: Clock,
        policy: RetryPolicy | None = None,
        random: Random | None = None,
        sleep: Callable[[float], Any] = anyio.sleep,
    ) -> None:
        """Store the parameters. Nothing is imported and no connection is made before the first request.

        Args:
            settings: The provider's entry in the configuration.
            model: The model's name there.
            api_key: The key, or None.
            clock: For `Retry-After` dates.
            policy: When to retry; None means the default.
            random: For the jitter of the delays.
            sleep: Waits between two attempts.
        """
        self._settings = settings
        self._model = model
        self._api_key = api_key
        self._clock = clock
        self._policy = policy or RetryPolicy()
        self._random = random or Random()
        self._sleep = sleep
        self._client: httpx2.AsyncClient | None = None
        self._uses_proxies = True
        self._streams = settings.stream
        self._takes: Takes = "all"
        self._most_pictures = settings.max_pictures
        self._read_file: FileReader | None = None
        self._cache = new_cache()
        self._window = settings.context_window
        self._window_known = settings.context_window is not None
        self._endpoint = Endpoint(
            provider=settings.name,
            model=model,
            place="" if self._is_at_home() else _place(settings.base_url),
            env_api_key=settings.env_api_key,
        )

    @property
    def provider(self) -> str:
        """The provider's name in the configuration."""
        return self._settings.name

    @property
    def model(self) -> str:
        """The model's name at the provider."""
        return self._model

    @property
    def place(self) -> str:
        """The address without user and password, under which abilities are stored; the provider without one."""
        return _place(self._settings.base_url) or self.provider

    @property
    def context_window(self) -> int | None:
        """The configured value, or the one in the table of prices."""
        if not self._window_known:
            self._window_known = True
            self._window = known_window(
                provider=self.provider, base_url=self._settings.base_url, model=self._model
            )
        return self._window

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `ChatModel.stream`."""
        return retried(
            lambda: self._attempt(request), policy=self._policy, random=self._random, sleep=self._sleep
        )

    def price(self, usage: Usage) -> Usage:
        """See `price_by`."""
        return priced(usage, provider=self.provider, base_url=self._settings.base_url, model=self._model)

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @abstractmethod
    def _url(self) -> str:
        """Where requests are sent."""

    @abstractmethod
    def _headers(self, api_key: str) -> dict[str, str]:
        """What identifies the user and the version of the wire format."""

    @abstractmethod
    def _body(self, request: ModelRequest) -> bytes:
        """The request in the wire format."""

    @abstractmethod
    def _answer(self, request: ModelRequest) -> AnswerAssembler:
        """An empty answer."""

    @abstractmethod
    def _adapt_to(self, refusal: str, sent: bytes) -> bool:
        """Change later requests according to what the endpoint refused in this one.

        Returns:
            Whether anything was changed, so that the request can be sent again.
        """

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        offered_tools = bool(request.tools)
        self._read_file = request.read_file
        for retries_left in reversed(range(MAX_ADAPTATIONS + 1)):
            messages = with_newest_pictures(
                request.messages,
                request.read_file,
                most=self._most_pictures,
                most_mb=self._settings.max_pictures_mb,
            )
            sent = replace(request, messages=messages)
            body = self._body(sent)
            try:
                response = await self.post(body, offered_tools=offered_tools)
                break
            except ModelRejected as refusal:
                # Only a plain refusal can be about an optional parameter; subclasses of the error have another cause.
                plain = type(refusal) is ModelRejected
                if not plain or not retries_left:
                    raise
                if (most := most_named(str(refusal), messages)) is not None:
                    self._most_pictures = most
                elif (takes := less(self._takes, str(refusal), request.messages)) is not None:
                    self._takes, self._cache = takes, new_cache()
                elif not self._adapt_to(str(refusal), body):
                    raise
        else:  # pragma: no cover  the last refusal was raised
            raise AssertionError
        answer = self._answer(request)
        chars = 0
        try:
            async with aclosing(self._read(response, answer, offered_tools)) as batches:
                async for deltas in batches:
                    for delta in deltas:
                        chars += len(delta.text)
                        yield delta
                    if chars > MAX_ANSWER_CHARS:
                        break
        finally:
            # Complete or abandoned: release the connection immediately, also while this task is being cancelled.
            with anyio.move_on_after(CLOSE_LIMIT_S, shield=True):
                await response.aclose()
        blocks = answer.blocks
        usage = answer.usage
        if usage is None or not usage.input_tokens:  # some report zeros
            usage = _estimated_usage(sent, blocks)
        model = answer.model or self._model
        yield Completion(
            blocks=blocks,
            stop_reason="max_tokens" if chars > MAX_ANSWER_CHARS else answer.stop_reason,
            usage=priced(usage, provider=self.provider, base_url=self._settings.base_url, model=model),
            provider=self.provider,
            model=model,
        )

    async def post(self, body: bytes, *, offered_tools: bool = False, url: str = "") -> httpx2.Response:
        """Send the request, to `_url()` unless another is given, and return the response with its body unread.

        What was said and the key go where the settings say and nowhere else: a redirect is a refusal.

        Raises:
            ModelError: The request was refused, or there was no response.
        """
        # Imported here because it takes 0.2 s, and only a model on the network needs it.
        import httpx2  # noqa: PLC0415

        if self._client is None:
            self._client = httpx2.AsyncClient(
                headers={
                    "Accept": "application/json",
                    "Content-Type": "application/json",
                    "User-Agent": f"Satchel/{__version__}",
                    **self._headers(self._checked_key()),
                },
                timeout=httpx2.Timeout(READ_LIMIT_S, connect=CONNECT_LIMIT_S),
                trust_env=self._uses_proxies,
            )
        try:
            asked = self._client.build_request("POST", url or self._url(), content=body)
            response = await self._client.send(asked, stream=True)
        except httpx2.TimeoutException as error:
            raise ModelUnavailable(f"{self._endpoint.name} did not answer in time.") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ModelUnavailable(
                f"{self._endpoint.name} cannot be reached: {str(error) or type(error).__name__}. "
                f"Is it running, and is its address ({_place(self._settings.base_url or self._url())}) right?"
            ) from error
        if not response.is_success:
            try:
                said = _json((await response.aread()).decode("utf-8", "replace"))
                if response.is_redirect:
                    said = f"It leads to {mask_address(response.headers['location'])}, which is not followed."
            except httpx2.HTTPError as error:
                raise self._cut(error) from error
            raise failure_of(
                response.status_code,
                said,
                endpoint=self._endpoint,
                offered_tools=offered_tools,
                wait_s=retry_after_s(response.headers, self._clock.now()),
            )
        return response

    async def _read(
        self, response: httpx2.Response, answer: AnswerAssembler, offered_tools: bool
    ) -> AsyncGenerator[list[Delta], None]:
        """Yield deltas in the batches of the network; at the end the answer is complete.

        Raises:
            ModelError: The stream was cut off or contained an error.
        """
        import httpx2  # noqa: PLC0415  see `post`

        try:
            kind = response.headers.get("content-type", "").lower()
            if "text/event-stream" in kind or "ndjson" in kind:
                reader = EventReader() if "event" in kind else LineReader()
                async with aclosing(response.aiter_bytes()) as pieces:
                    async for piece in pieces:
                        yield self._deltas(reader.feed(piece), answer, offered_tools)
                yield self._deltas(reader.finish(), answer, offered_tools)
            else:
                yield self._whole(await response.aread(), answer, offered_tools)
                # Some endpoints omit the reason in an answer in one piece, which can't have been cut off.
                if not answer.is_finished and not answer.blocks:
                    raise ModelUnavailable(
                        f"{self._endpoint.name} answered with JSON that contains no answer."
                    )
                return
        except httpx2.HTTPError as error:
            if not answer.is_finished:
                raise self._cut(error) from error
        if not answer.is_finished:
            raise self._cut(None)

    def _deltas(self, events: Iterable[str], answer: AnswerAssembler, offered_tools: bool) -> list[Delta]:
        deltas: list[Delta] = []
        for data in events:
            if not data.startswith("[DONE]"):
                deltas += answer.feed(self._checked(_json_object(data), data, offered_tools))
        return deltas

    def _whole(self, body: bytes, answer: AnswerAssembler, offered_tools: bool) -> list[Delta]:
        """An answer that didn't arrive as a stream, whether one was requested or not."""
        text = body.decode("utf-8", "replace")
        value = _json_object(text)
        if value is not None:
            return answer.feed_whole(self._checked(value, text, offered_tools))
        start = text.lstrip()
        is_lines = _json_object(start.partition("\n")[0]) is not None
        if is_lines or start.startswith(("data:", "event:", "id:", "retry:", ":")):
            # A stream with the wrong content type.
            reader = LineReader() if is_lines else EventReader()
            deltas = self._deltas([*reader.feed(body), *reader.finish()], answer, offered_tools)
            if not answer.is_finished:
                raise self._cut(None)
            return deltas
        raise ModelRejected(
            f"{self._endpoint.name} answered with something that is not JSON: "
            f"{' '.join(text.split())[:200] or 'nothing'}. Is its address "
            f"({_place(self._settings.base_url or self._url())}) right?"
        )

    def _checked(self, value: dict[str, Any] | None, data: str, offered_tools: bool) -> dict[str, Any]:
        """The data of the event, unless it is an error."""
        if value is None:
            raise ModelUnavailable(f"{self._endpoint.name} sent an event that is not JSON: {data[:200]}")
        if value.get("error"):
            raise failure_of(None, value, endpoint=self._endpoint, offered_tools=offered_tools)
        return value

    def _cut(self, error: Exception | None) -> ModelUnavailable:
        cause = "" if error is None else f" ({str(error) or type(error).__name__})"
        return ModelUnavailable(
            f"{self._endpoint.name} closed the connection before its answer was complete{cause}."
        )

    def _checked_key(self) -> str:
        """The key to send.

        Raises:
            ModelAuthError: A required key is missing, or it can't be a key.
        """
        key, variable = self._api_key, self._settings.env_api_key
        if key is None:
            if variable and self._is_at_home():
                raise ModelAuthError(
                    f"{self._endpoint.name} needs a key: set {variable}, or choose another model."
                )
            # Some endpoints demand a key and ignore what it says.
            return "none"
        if not (key.isascii() and key.isprintable()):
            raise ModelAuthError(
                f"The key in {variable} contains characters that can't be part of a key. Was something else pasted?"
            )
        return key

    def _is_at_home(self) -> bool:
        """Whether the address is the built-in one of a hosted provider, so that the provider itself runs it."""
        own = builtin_providers({}).get(self._settings.name)
        return own is not None and bool(own.env_api_key) and own.base_url == self._settings.base_url


def new_cache() -> MessageCache[bytes]:
    """An empty cache of messages in the wire format."""
    return MessageCache(limit=_CACHE_BYTES, weigh=len)


def _json(text: str) -> Any:
    """The text as JSON data, or the text if it isn't JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _json_object(text: str) -> dict[str, Any] | None:
    value = _json(text)
    return value if isinstance(value, dict) else None


def _place(base_url: str) -> str:
    """The address without user, password and query, for messages."""
    if not base_url:
        return ""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
