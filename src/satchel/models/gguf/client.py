"""A GGUF file, run inside the process by xllamacpp, on a thread of its own."""

from __future__ import annotations

import re
import secrets
import sys
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
from satchel.models.openai.wire import ChatAnswer, message_to_wire, response_format_to_wire, tools_to_wire
from satchel.models.port import Completion, ModelEvent, ModelRequest

__all__ = ["GGUFModel"]

# What fits most files and 2 GB of memory; `context_window` of the provider sets another.
_CONTEXT: Final = 8192
# Without a limit a small model may go on until the window is full.
_MAX_TOKENS: Final = 2048
# Two threads of llama.cpp on a busy machine of two cores spin and are slower than one.
_THREADS: Final = 1
_ESCAPED_CLASS: Final = re.compile(r"\\[A-Za-z]")
r"""\d, \w, \b and the like."""


class GGUFModel:
    """A `ChatModel` in the process. It is loaded at the first request, and answers one request at a time.

    Answers are held to `response_schema` by a grammar. A request that is given up stops at the model's next
    token.
    """

    def __init__(self, settings: ProviderSettings, model: str) -> None:
        """Take the file's path; nothing is loaded yet."""
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
        """As configured, else 8192."""
        return self._settings.context_window or _CONTEXT

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `ChatModel.stream`.

        Raises:
            ConfigError: The extra is not installed, or there is no such file.
            ModelUnavailable: The file could not be loaded.
        """
        thread = self._own_thread()
        token = anyio.lowlevel.current_token()
        send, receive = anyio.create_memory_object_stream[dict[str, Any] | ModelError | ConfigError](
            float("inf")
        )
        is_given_up = False

        def take(chunk: dict[str, Any]) -> bool:
            # It runs on the model's thread; True ends the answer.
            return is_given_up or not _tell(send, chunk, token)

        thread.submit(self._answer, request, take, send, token)
        body = _body(request, self._settings.max_tokens)
        answer = ChatAnswer(CallIds.of(request))
        try:
            async for event in self._events(receive, answer, bool(request.tools)):
                yield event
        finally:
            is_given_up = True
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
        """Let go of the model's memory, once the answer that is under way has stopped."""
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
            raise ModelUnavailable(f"{self._endpoint.name} stopped before its answer was whole.")

    def _answer(
        self, request: ModelRequest, take: Any, send: MemoryObjectSendStream[Any], token: Any
    ) -> None:
        """On the model's thread: load where needed, answer, and say that it is over."""
        try:
            self._load()
            self._server.handle_chat_completions(_body(request, self._settings.max_tokens), take)
        except (ConfigError, ModelError) as error:
            _tell(send, error, token)
        except Exception as error:  # noqa: BLE001  the boundary to foreign native code: whatever it raises is its failure
            _tell(send, ModelUnavailable(f"{self._endpoint.name} failed: {error}."), token)
        finally:
            _tell(send, None, token)

    def _load(self) -> None:
        if self._server is not None:
            return
        if not self._path.is_file():
            raise ConfigError(f"There is no model file {self._path}. Name it as gguf:/path/to/model.gguf.")
        try:
            # The extra `local`: 34 MB that only a user of own files needs.
            import xllamacpp  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                f"A GGUF model needs the package xllamacpp. Type: {sys.executable} -m pip install xllamacpp"
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
        # The library opens a port on loopback whether it is wanted or not: nobody knows its key.
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
        body["tools"] = tools_to_wire(request.tools)
    if request.response_schema is not None:
        body["response_format"] = response_format_to_wire(_for_grammar(request.response_schema))
    return body


def _for_grammar(schema: Any) -> Any:
    """The schema without the patterns that the grammar's maker does not know: it would accept any text in their place,
    and complain on stderr at each request. The tools check their input by the whole schema.
    """
    if isinstance(schema, Mapping):
        return {
            name: _for_grammar(value)
            for name, value in schema.items()
            if not (name == "pattern" and isinstance(value, str) and _ESCAPED_CLASS.search(value))
        }
    return [_for_grammar(value) for value in schema] if isinstance(schema, list | tuple) else schema


def _tell(send: MemoryObjectSendStream[Any], what: Any, token: Any) -> bool:
    """Hand something to the loop's side; None says that nothing more comes.

    Returns:
        Whether somebody is there to take it: not where the request was given up, or the program is ending.
    """
    try:
        if what is None:
            anyio.from_thread.run_sync(send.close, token=token)
        else:
            anyio.from_thread.run_sync(send.send_nowait, what, token=token)
    except (RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return False
    return True
