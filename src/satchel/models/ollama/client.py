"""A model that Ollama runs, over Ollama's own API.

Ollama's OpenAI-compatible endpoint has no parameter for the context window. It uses the server's default, 4,096 tokens
on most machines, and drops the beginning of longer requests without an error: the system text first (Ollama's FAQ, "How
can I specify the context window size?").
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

import anyio

from satchel.errors import ContextOverflow, ModelError, ModelRejected
from satchel.messages import Message
from satchel.models.encoding import encode, parse_object
from satchel.models.hosted import Delta, new_cache
from satchel.models.identifiers import CallIds, wire_id, wire_name
from satchel.models.openai.client import OpenAIModel
from satchel.models.openai.wire import (
    MAX_ID,
    ChatAnswer,
    message_to_wire,
    tools_to_wire,
    usage_from_wire,
)
from satchel.models.port import OPTIONS, SAMPLING_OPTIONS, ModelEvent, ModelRequest

_WINDOW: Final = 16_384
"""Tokens, unless the settings or the model's own parameters say otherwise. A model of 8 billion parameters needs 2 GB
of memory for them (Llama 3.1: 128 kB for each), and four first requests with their answers fit.
"""

_ANSWER_TOKENS: Final = 2_048
"""What is left for an answer without a limit."""

_BYTES_PER_TOKEN: Final = 2
"""Of what is dense in tokens, such as tables of numbers; English text has 4. So a window may be twice as large as
needed, which costs memory. One that is too small cuts the beginning off.
"""

_MOST_BYTES_PER_TOKEN: Final = 4
"""Of English text. What doesn't fit the largest window even so is refused here, and the conversation is compacted."""

_LEAST_ANSWER_PART: Final = 8
"""The largest window may have no room for `_ANSWER_TOKENS`: an eighth of it is left at least."""

_FIND_S: Final = 3.0
"""Ollama says in milliseconds what a model is. Until then, a message is neither shown nor logged."""

_PICTURE_TOKENS: Final = 1_600
"""Of the largest picture, as for other providers."""

_PICTURE: Final = re.compile(rb'"images":\[[^]]*\]')

_loaded: Final[dict[tuple[str, str, int | None], int]] = {}
"""The window last asked for, by server, model and the window that was set, so that two users of a model don't take
turns in loading it."""

_SET_WINDOW: Final = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)


class OllamaModel(OpenAIModel):
    """See `satchel.models.port.ChatModel`. What doesn't know Ollama's API gets OpenAI's chat completions."""

    options = OPTIONS - {"tool_choice", "parallel_tool_calls"}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_native: bool | None = None
        self._most = 0
        self._asked_for = 0
        self._called: dict[str, str] = {}

    @property
    def _root(self) -> str:
        return self._settings.base_url.rstrip("/").removesuffix("/v1")

    @property
    def _loads(self) -> tuple[str, str, int | None]:
        return self._root, self._model, self._settings.context_window

    def _url(self) -> str:
        return f"{self._root}/api/chat" if self._is_native else super()._url()

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        was_known = self._is_native is not None
        if not was_known:
            self._is_native = await self._look()
            self._cache = new_cache()
        has_answered = False
        try:
            async with aclosing(super()._attempt(request)) as events:
                async for event in events:
                    if not has_answered and self._is_native:
                        # Not before: a machine may have too little memory for it.
                        _loaded[self._loads] = self._asked_for
                    has_answered = True
                    yield event
        finally:
            if not (was_known or self._is_native or has_answered):
                # Both refused: perhaps the model has to be pulled first, so look again next time.
                self._is_native = None

    async def find_window(self) -> int | None:
        """See `window_of`. What can't be reached or hangs, or has no such model yet, is asked again by the first
        request.
        """
        if self._is_native is None:
            with suppress(ModelError), anyio.move_on_after(_FIND_S):
                self._is_native = await self._look() or None
                self._cache = new_cache()
        return self._window if self._is_native else self._settings.context_window

    async def _look(self) -> bool:
        """Ask what the model is. Returns whether the endpoint knows Ollama's API and has the model.

        Raises:
            ModelUnavailable: It can't be reached.
        """
        try:
            response = await self.post(encode({"model": self._model}), url=f"{self._root}/api/show")
        except ModelRejected:
            return False
        import httpx2  # noqa: PLC0415  as in `HostedModel`

        try:
            shown = parse_object((await response.aread()).decode("utf-8", "replace")) or {}
        except httpx2.HTTPError as error:
            raise self._cut(error) from error
        finally:
            await response.aclose()
        about = shown.get("model_info")
        about = about if isinstance(about, Mapping) else {}
        lengths = [
            value
            for name, value in about.items()
            if str(name).endswith(".context_length") and isinstance(value, int)
        ]
        if not lengths:
            return False
        self._most = max(lengths)
        if self._window is None:
            chosen = _SET_WINDOW.search(str(shown.get("parameters", "")))
            self._window = min(int(chosen[1]) if chosen else _WINDOW, self._most)
        self._window_known = True
        abilities = shown.get("capabilities")
        if self._takes == "all":
            # It takes no documents. Servers before 0.6.4 don't say what a model can do.
            sees = not isinstance(abilities, list) or "vision" in abilities
            self._takes = "pictures" if sees else "text"
        return True

    def _body(self, request: ModelRequest) -> bytes:
        if not self._is_native:
            return super()._body(request)
        self._called = {
            wire_id(call.id, max_length=MAX_ID): wire_name(call.name)
            for message in request.messages
            for call in message.tool_uses
        }
        messages = [self._cache.get(message, self._message) for message in request.messages]
        if request.system:
            messages.insert(0, encode({"role": "system", "content": request.system}))
        tools = encode(tools_to_wire(request.tools)) if request.tools else b""
        limit = request.max_tokens or self._settings.max_tokens
        sent = sum(map(_tokens_in, messages)) + len(tools) // _BYTES_PER_TOKEN
        num_ctx = self._room_for(sent, max(limit or 0, _ANSWER_TOKENS))
        options: dict[str, Any] = {"num_ctx": num_ctx}
        if limit:
            options["num_predict"] = limit
        if request.temperature is not None:
            options["temperature"] = request.temperature
        options |= {name: request.options[name] for name in SAMPLING_OPTIONS if name in request.options}
        head: dict[str, Any] = {"model": self._model, "stream": self._streams, "options": options}
        if request.response_schema is not None:
            head["format"] = request.response_schema
        parts = [encode(head)[:-1], b',"messages":[', b",".join(filter(None, messages)), b"]"]
        if tools:
            parts += [b',"tools":', tools]
        return b"".join((*parts, b"}"))

    def _room_for(self, sent: int, answer: int) -> int:
        """The window in tokens, doubled until a request and its answer fit, or up to the largest; Ollama loads the
        model anew for another window.

        Raises:
            ContextOverflow: The model can't read as much, even if the request is plain English.
        """
        most = self._settings.context_window or self._most
        window = max(min(_loaded.get(self._loads, 0), most), self._window or _WINDOW)
        while window < min(sent + answer, most):
            window = min(2 * window, most)
        least = sent * _BYTES_PER_TOKEN // _MOST_BYTES_PER_TOKEN + min(answer, most // _LEAST_ANSWER_PART)
        if window < least:
            raise ContextOverflow(
                f"{self._endpoint.name}: the request and its answer need about {least:,} tokens, and the context "
                f"window has {most:,}."
            )
        self._asked_for = window
        return window

    def _message(self, message: Message) -> bytes:
        if not self._is_native:
            return super()._message(message)
        wire = message_to_wire(message, read_file=self._read_file, takes=self._takes)
        return encode([_native(one, self._called) for one in wire])[1:-1]

    def _answer(self, request: ModelRequest) -> ChatAnswer:
        return _Answer(CallIds.of(request)) if self._is_native else super()._answer(request)


def _tokens_in(message: bytes) -> int:
    """What an encoded message takes at most, pictures as such."""
    pictures = [each.group() for each in _PICTURE.finditer(message)]
    text = len(message) - sum(map(len, pictures))
    return text // _BYTES_PER_TOKEN + _PICTURE_TOKENS * sum(each.count(b'"') // 2 - 1 for each in pictures)


def _native(wire: Mapping[str, Any], called: Mapping[str, str]) -> dict[str, Any]:
    """A message of OpenAI's format in Ollama's.

    Args:
        wire: The message.
        called: The names of tools by the ids of their calls.
    """
    content = wire["content"] or ""
    native: dict[str, Any] = {"role": wire["role"], "content": content}
    if isinstance(content, list):
        native["content"] = "\n\n".join(part["text"] for part in content if part["type"] == "text")
        native["images"] = [
            part["image_url"]["url"].partition(";base64,")[2]
            for part in content
            if part["type"] == "image_url"
        ]
    if "tool_call_id" in wire:
        native["tool_call_id"] = wire["tool_call_id"]
        native["tool_name"] = called.get(wire["tool_call_id"], "")
    if "tool_calls" in wire:
        native["tool_calls"] = [
            {
                "id": call["id"],
                "function": {
                    "name": call["function"]["name"],
                    "arguments": parse_object(call["function"]["arguments"]) or {},
                },
            }
            for call in wire["tool_calls"]
        ]
    return native


class _Answer(ChatAnswer):
    """An answer of `/api/chat`, whose lines and whole answers have the same form."""

    def feed(self, data: dict[str, Any]) -> list[Delta]:
        """Add one line."""
        events: list[Delta] = []
        if isinstance(model := data.get("model"), str):
            self.model = model
        if isinstance(message := data.get("message"), dict):
            self._delta(message, events)
        if data.get("done"):
            # Ollama says "stop" after calls, too.
            self.stop = str(data.get("done_reason") or "stop")
            if data.get("prompt_eval_count"):
                counts = {"prompt_tokens": "prompt_eval_count", "completion_tokens": "eval_count"}
                self.usage = usage_from_wire({name: data.get(theirs) for name, theirs in counts.items()})
        return events

    def feed_whole(self, body: dict[str, Any]) -> list[Delta]:
        """Add an answer that arrived in one piece."""
        return self.feed(body)
