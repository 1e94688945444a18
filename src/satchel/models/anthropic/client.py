"""A model behind an Anthropic endpoint."""

from __future__ import annotations

import re
from typing import Any, Final

from satchel.messages import Message, ToolResultBlock
from satchel.models.anthropic.wire import (
    MessagesAnswer,
    message_to_wire,
    system_to_wire,
    tool_choice_to_wire,
    tools_to_wire,
)
from satchel.models.encoding import encode
from satchel.models.hosted import HostedModel
from satchel.models.identifiers import CallIds
from satchel.models.port import ModelRequest, ToolDefinition

_HOME: Final = "https://api.anthropic.com"
_VERSION: Final = "2026-10-21"

# The endpoint requires a limit. Every model since Claude 3.7 allows this much; older ones report their limit.
_MAX_TOKENS: Final = 16_000
_TOO_MANY: Final = re.compile(r"max_tokens: \d+ > (\d+)")
_NO_STREAM: Final = re.compile(r"\bstream(?:ing)?\b", re.IGNORECASE)
_NO_CACHE: Final = re.compile(r"cache_control", re.IGNORECASE)
_NO_TEMPERATURE: Final = re.compile(r"temperature", re.IGNORECASE)


class AnthropicModel(HostedModel):
    """See `satchel.models.port.ChatModel`.

    Prompt caching is on. Cache marks are set on the tools and the system text, on the end of the newest message, and on
    the end of the previous user message, where the previous request ended. The provider looks back only some 20 blocks
    from a mark, so without the third mark a round with many calls would miss the cache entry of the round before.
    """

    options = frozenset({"top_p", "stop", "tool_choice", "parallel_tool_calls"})

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._max_tokens = _MAX_TOKENS
        self._caches = True
        self._takes_temperature = True
        self._tools: tuple[tuple[ToolDefinition, ...], bool, bytes] = ((), False, b"[]")

    def _url(self) -> str:
        # Configured addresses often contain /v1.
        home = (self._settings.base_url or _HOME).rstrip("/").removesuffix("/v1")
        return f"{home}/v1/messages"

    def _headers(self, api_key: str) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {api_key}", "anthropic-version": _VERSION}
        # Compatible endpoints often know only the older header.
        return headers if self._is_at_home() else {**headers, "X-Api-Key": api_key}

    def _body(self, request: ModelRequest) -> bytes:
        limit = request.max_tokens or self._settings.max_tokens or self._max_tokens
        head: dict[str, Any] = {"model": self._model, "max_tokens": min(limit, self._capped(limit))}
        if self._streams:
            head["stream"] = True
        if request.temperature is not None and self._takes_temperature:
            head["temperature"] = request.temperature
        if "top_p" in request.options:
            head["top_p"] = request.options["top_p"]
        if "stop" in request.options:
            head["stop_sequences"] = request.options["stop"]
        if request.tools and (choice := tool_choice_to_wire(request.options)):
            head["tool_choice"] = choice
        if request.system:
            head["system"] = system_to_wire(request.system) if self._caches else request.system
        parts = [encode(head)[:-1], b',"messages":[', b",".join(self._messages(request)), b"]"]
        if request.tools:
            cached = self._caches and not request.system
            parts += [b',"tools":', self._tools_bytes(tuple(request.tools), cached)]
        parts.append(b"}")
        return b"".join(parts)

    def _capped(self, limit: int) -> int:
        # Once an endpoint has reported its limit, no request asks for more.
        return limit if self._max_tokens == _MAX_TOKENS else self._max_tokens

    def _messages(self, request: ModelRequest) -> list[bytes]:
        messages = request.messages
        if not request.tools and any(_has_calls(message) for message in messages):
            # Rare (a summary, a closing message): converted without the cache, which keeps the usual form.
            return [part for message in messages if (part := self._encoded(message, calls_as_text=True))]
        users = [position for position, message in enumerate(messages) if message.role == "user"]
        marked = set(users[-2:]) if self._caches else set()
        mapped = (
            self._encoded(message, cached=True)
            if position in marked
            else self._cache.get(message, self._encoded)
            for position, message in enumerate(messages)
        )
        return [part for part in mapped if part]

    def _encoded(self, message: Message, *, cached: bool = False, calls_as_text: bool = False) -> bytes:
        wire = message_to_wire(
            message,
            cached=cached,
            calls_as_text=calls_as_text,
            read_file=self._read_file,
            takes=self._takes,
        )
        return b"" if wire is None else encode(wire)

    def _tools_bytes(self, tools: tuple[ToolDefinition, ...], cached: bool) -> bytes:
        if self._tools[:2] != (tools, cached):
            self._tools = (tools, cached, encode(tools_to_wire(tools, cached=cached)))
        return self._tools[2]

    def _answer(self, request: ModelRequest) -> MessagesAnswer:
        return MessagesAnswer(CallIds.of(request))

    def _adapt_to(self, refusal: str, sent: bytes) -> bool:
        if (found := _TOO_MANY.search(refusal)) and f'"max_tokens":{found[1]},'.encode() not in sent:
            self._max_tokens = int(found[1])
            return True
        if self._caches and _NO_CACHE.search(refusal):
            self._caches = False
            return True
        if self._takes_temperature and b'"temperature":' in sent and _NO_TEMPERATURE.search(refusal):
            self._takes_temperature = False
            return True
        if self._streams and _NO_STREAM.search(refusal):
            self._streams = False
            return True
        return False


def _has_calls(message: Message) -> bool:
    return bool(message.tool_uses) or any(isinstance(block, ToolResultBlock) for block in message.blocks)
