"""Runs a GGUF file inside the process with xllamacpp, on its own thread."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from satchel.config import ProviderSettings
from satchel.errors import ConfigError, ModelError, ModelUnavailable
from satchel.models.failures import Endpoint, failure_of
from satchel.models.hosted import estimated_usage
from satchel.models.identifiers import CallIds
from satchel.models.openai.wire import (
    ChatAnswer,
    message_to_wire,
    response_format_to_wire,
    tool_choice_to_wire,
    tools_to_wire,
)
from satchel.models.port import OPTIONS, SAMPLING_OPTIONS, Completion, ModelEvent, ModelRequest
from satchel.wording import install_extra

__all__ = ["GGUFModel"]

# Fits most files and 2 GB of memory; `context_window` of the provider overrides it.
_CONTEXT: Final = 8192
# Without a limit, a small model may continue until its context window is full.
_MAX_TOKENS: Final = 2048
# On a busy machine with two cores, two threads of llama.cpp spin and are slower than one.
_THREADS: Final = 1
_ESCAPED_CLASS: Final = re.compile(r"\\[A-Za-z]")
r"""Classes such as \d, \w and \b."""


class GGUFModel:
    """A `ChatModel` in the process. It is loaded on the first request and answers one request at a time.

    A grammar enforces `response_schema`. A cancelled request stops at the model's next token.
    """

    options = OPTIONS

    def __init__(self, settings: ProviderSettings, model: str) -> None:
        """Store the path of the file; nothing is loaded yet."""
        self._settings = settings
        self._path = Path(model).expanduser()
        self._server: Any = None
        self._thread: ThreadPoolExecutor | None = None
        self._endpoint = Endpoint(provider=settings.name, model=str(self._path))

    @property
    def provider(self) -> str:
        """The provider's name in the configuration."""
        return self._settings.name

    @property
    def model(self) -> str:
        """The file's path."""
        return str(self._path)

    @property
    def context_window(self) -> int | None:
        """The configured value, or 8192."""
        return self._settings.context_window or _CONTEXT

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `ChatModel.stream`.

        Raises:
            ConfigError: The extra is not installed, or the file doesn't exist.
            ModelUnavailable: The file could not be loaded.
        """
        thread = self._own_thread()
        token = anyio.lowlevel.current_token()
        send, receive = anyio.create_memory_object_stream[dict[str, Any] | ModelError | ConfigError](
            float("inf")
        )
        is_cancelled = False

        def on_chunk(chunk: dict[str, Any]) -> bool:
            # This runs on the model's thread; True ends the answer.
            return is_cancelled or not _send(send, chunk, token)

        thread.submit(self._answer, request, on_chunk, send, token)
        body = _body(request, self._settings.max_tokens)
        answer = ChatAnswer(CallIds.of(request))
        try:
            async for event in self._events(receive, answer, bool(request.tools)):
                yield event
        finally:
            is_cancelled = True
            receive.close()
            send.close()
        result = answer.result()
        yield Completion(
            blocks=result.blocks,
            stop_reason=result.stop_reason,
            usage=result.usage or estimated_usage(len(str(body)), result.blocks),
            provider=self.provider,
            model=self.model,
        )

    async def aclose(self) -> None:
        """Release the model's memory once the current answer has stopped."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.submit(self._unload)
            thread.shutdown(wait=False)

    def _own_thread(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="satchel-gguf")
        return self._thread

    async def _events(
        self,
        chunks: MemoryObjectReceiveStream[dict[str, Any] | ModelError | ConfigError],
        answer: ChatAnswer,
        offered_tools: bool,
    ) -> AsyncIterator[ModelEvent]:
        async for chunk in chunks:
            if isinstance(chunk, ModelError | ConfigError):
                raise chunk
            if chunk.get("error"):
                raise failure_of(None, chunk, endpoint=self._endpoint, offered_tools=offered_tools)
            for event in answer.feed(chunk):
                yield event
        if not answer.is_finished:
            raise ModelUnavailable(f"{self._endpoint.name} stopped before its answer was complete.")

    def _answer(
        self, request: ModelRequest, on_chunk: Any, send: MemoryObjectSendStream[Any], token: Any
    ) -> None:
        """Runs on the model's thread: load the model if needed, answer, and signal the end."""
        try:
            self._load()
            self._server.handle_chat_completions(_body(request, self._settings.max_tokens), on_chunk)
        except (ConfigError, ModelError) as error:
            _send(send, error, token)
        except Exception as error:  # noqa: BLE001  the boundary to native code: any exception is a failure of the model
            _send(send, ModelUnavailable(f"{self._endpoint.name} failed: {error}."), token)
        finally:
            _send(send, None, token)

    def _load(self) -> None:
        if self._server is not None:
            return
        if not self._path.is_file():
            raise ConfigError(f"There is no model file {self._path}. Name it as gguf:/path/to/model.gguf.")
        try:
            # Part of the extra `local`: 34 MB that only users of model files need.
            import xllamacpp  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                f"A GGUF model needs the package xllamacpp. Type: {install_extra('local')}"
            ) from error
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self._path)
        parameters.n_ctx = self.context_window
        parameters.n_parallel = 1
        parameters.cpuparams.n_threads = _THREADS
        parameters.cpuparams_batch.n_threads = _THREADS
        parameters.warmup = False
        parameters.verbosity = -1
        parameters.ui = False
        # The library always opens a port on loopback; a random key keeps others out.
        parameters.api_keys = [secrets.token_urlsafe(32)]
        try:
            self._server = xllamacpp.Server(parameters)
        except RuntimeError as error:
            raise ModelUnavailable(
                f"{self._path} could not be loaded: {error} Is it a GGUF file, and is there memory for it?"
            ) from error

    def _unload(self) -> None:
        self._server = None


def _body(request: ModelRequest, max_tokens: int | None) -> dict[str, Any]:
    messages = [wire for message in request.messages for wire in message_to_wire(message)]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    body: dict[str, Any] = {
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": request.max_tokens or max_tokens or _MAX_TOKENS,
        "cache_prompt": True,
    }
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.tools:
        body |= {"tools": tools_to_wire(request.tools), **tool_choice_to_wire(request.options)}
    body |= {name: request.options[name] for name in SAMPLING_OPTIONS if name in request.options}
    if request.response_schema is not None:
        body["response_format"] = response_format_to_wire(_for_grammar(request.response_schema))
    return body


def _for_grammar(schema: Any) -> Any:
    """The schema without patterns that the grammar converter doesn't support. It would accept any text for them and
    print a warning for each request. Tools validate their input against the complete schema.
    """
    if isinstance(schema, Mapping):
        return {
            name: _for_grammar(value)
            for name, value in schema.items()
            if not (name == "pattern" and isinstance(value, str) and _ESCAPED_CLASS.search(value))
        }
    return [_for_grammar(value) for value in schema] if isinstance(schema, list | tuple) else schema


def _send(send: MemoryObjectSendStream[Any], what: Any, token: Any) -> bool:
    """Send an item to the event loop; None signals the end.

    Returns:
        Whether there is a receiver. There is none if the request was cancelled or the program is exiting.
    """
    try:
        if what is None:
            anyio.from_thread.run_sync(send.close, token=token)
        else:
            anyio.from_thread.run_sync(send.send_nowait, what, token=token)
    except (RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return False
    return True
