"""A model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

from satchel.messages import Message
from satchel.models.encoding import encode
from satchel.models.hosted import HostedModel, new_cache
from satchel.models.identifiers import CallIds
from satchel.models.openai.wire import (
    ChatAnswer,
    message_to_wire,
    response_format_to_wire,
    tool_choice_to_wire,
    tools_to_wire,
)
from satchel.models.port import OPTIONS, SAMPLING_OPTIONS, ModelRequest, ToolDefinition

_HOME: Final = "https://api.openai.com/v1"

# These endpoints refuse a history with calls but without the reasoning that led to them.
_REPLAYS_THINKING: Final = ("deepseek.com", "moonshot.ai", "moonshot.cn")

# Optional parameters, and the words that endpoints use when they refuse them.
_OPTIONAL: Final = {
    "stream_options": re.compile(r"stream_options|include_usage", re.IGNORECASE),
    "prompt_cache_key": re.compile(r"prompt_cache_key", re.IGNORECASE),
    "response_format": re.compile(r"response_format|json_schema|grammar|structured output", re.IGNORECASE),
    "temperature": re.compile(r"temperature", re.IGNORECASE),
    "stream": re.compile(r"\bstream(?:ing)?\b", re.IGNORECASE),
}


class OpenAIModel(HostedModel):
    """See `satchel.models.port.ChatModel`. One client for every OpenAI-compatible base URL.

    Optional parameters that an endpoint refuses are left out from then on, except those that a caller chose by name.
    """

    options = OPTIONS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        host = urlsplit(self._settings.base_url or _HOME).hostname or ""
        self._is_openai = host == "api.openai.com" or host.endswith(".openai.azure.com")
        self._replays_thinking = host.endswith(_REPLAYS_THINKING)
        self._signs_calls = host.endswith("googleapis.com")
        # OpenAI's newer models refuse max_tokens; most other endpoints know only max_tokens.
        self._limit_name = "max_completion_tokens" if self._is_openai else "max_tokens"
        self._refused: set[str] = set()
        self._tools: tuple[tuple[ToolDefinition, ...], bytes] = ((), b"[]")

    def _url(self) -> str:
        return f"{(self._settings.base_url or _HOME).rstrip('/')}/chat/completions"

    def _headers(self, api_key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {api_key}"}

    def _body(self, request: ModelRequest) -> bytes:
        head: dict[str, Any] = {"model": self._model}
        if self._streams:
            head["stream"] = True
            head["stream_options"] = {"include_usage": True}
        if max_tokens := request.max_tokens or self._settings.max_tokens:
            head[self._limit_name] = max_tokens
        if request.temperature is not None:
            head["temperature"] = request.temperature
        if request.response_schema is not None:
            head["response_format"] = response_format_to_wire(request.response_schema)
        head |= {name: request.options[name] for name in SAMPLING_OPTIONS if name in request.options}
        if request.session_id and self._is_openai:
            head["prompt_cache_key"] = request.session_id[:64]
        for name in self._refused:
            head.pop(name, None)
        messages = [self._cache.get(message, self._message) for message in request.messages]
        if request.system:
            messages.insert(0, encode({"role": "system", "content": request.system}))
        parts = [encode(head)[:-1], b',"messages":[', b",".join(filter(None, messages)), b"]"]
        if request.tools:
            parts += [b',"tools":', self._tools_bytes(tuple(request.tools)), b","]
            parts.append(encode(tool_choice_to_wire(request.options))[1:-1])
        parts.append(b"}")
        return b"".join(parts)

    def _message(self, message: Message) -> bytes:
        wire = message_to_wire(
            message,
            replay_thinking=self._replays_thinking,
            sign_calls=self._signs_calls,
            read_file=self._read_file,
            takes=self._takes,
        )
        return encode(wire)[1:-1]

    def _tools_bytes(self, tools: tuple[ToolDefinition, ...]) -> bytes:
        if self._tools[0] != tools:
            self._tools = (tools, encode(tools_to_wire(tools)))
        return self._tools[1]

    def _answer(self, request: ModelRequest) -> ChatAnswer:
        return ChatAnswer(CallIds.of(request))

    def _adapt_to(self, refusal: str, sent: bytes) -> bool:
        if "reasoning_content" in refusal and not self._replays_thinking:
            self._replays_thinking, self._cache = True, new_cache()
            return True
        if "thought_signature" in refusal and not self._signs_calls:
            self._signs_calls, self._cache = True, new_cache()
            return True
        for name, other in (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")):
            # "Unsupported parameter: 'max_tokens' … Use 'max_completion_tokens' instead" names both. The refused
            # one is the one that was sent.
            if (
                name == self._limit_name
                and name in refusal
                and "nsupported" in refusal
                and f'"{name}":'.encode() in sent
            ):
                self._limit_name = other
                return True
        for name, pattern in _OPTIONAL.items():
            if name in self._refused or f'"{name}":'.encode() not in sent[: sent.find(b',"messages":[')]:
                continue
            if pattern.search(refusal):
                if name == "stream":
                    self._streams = False
                self._refused.add(name)
                return True
        return False
