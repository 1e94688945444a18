"""Runs a GGUF file inside the process with xllamacpp, and speaks with it as with any OpenAI-compatible server.

The library always opens a port on loopback; a random key keeps others out.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.config import ProviderSettings
from satchel.errors import ConfigError, ModelUnavailable
from satchel.models.openai.client import OpenAIModel
from satchel.models.port import ModelEvent, ModelRequest
from satchel.wording import install_extra

# Fits most files and 2 GB of memory; `context_window` of the provider overrides it.
_CONTEXT: Final = 8192
# Without a limit, a small model may continue until its context window is full.
_MAX_TOKENS: Final = 2048
# On a busy machine with two cores, two threads of llama.cpp spin and are slower than one.
_THREADS: Final = 1
_ESCAPED_CLASS: Final = re.compile(r"\\[A-Za-z]")
r"""Classes such as \d, \w and \b."""


class GGUFModel(OpenAIModel):
    """A `ChatModel` in the process. It is loaded on the first request and answers one request at a time.

    A grammar enforces `response_schema`. A cancelled request stops at the model's next token.
    """

    def __init__(self, settings: ProviderSettings, model: str, *, clock: Clock) -> None:
        """Store the path of the file; nothing is loaded yet."""
        settings = replace(
            settings,
            context_window=settings.context_window or _CONTEXT,
            max_tokens=settings.max_tokens or _MAX_TOKENS,
        )
        path = str(Path(model).expanduser())
        super().__init__(settings, path, api_key=secrets.token_urlsafe(32), clock=clock)
        self._takes = "text"
        self._uses_proxies = False
        self._server: Any = None
        self._loading = anyio.Lock()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See `ChatModel.stream`.

        Raises:
            ConfigError: The extra is not installed, or the file doesn't exist.
            ModelUnavailable: The file could not be loaded.
        """
        async with self._loading:
            if self._server is None:
                self._server = await anyio.to_thread.run_sync(self._load)
                self._settings = replace(self._settings, base_url=f"{self._server.listening_address}/v1")
        if request.response_schema is not None:
            request = replace(request, response_schema=_for_grammar(request.response_schema))
        async with aclosing(super().stream(request)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """Release the model's memory once the current answer has stopped."""
        await super().aclose()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._unload)

    def _load(self) -> Any:
        if not Path(self._model).is_file():
            raise ConfigError(f"There is no model file {self._model}. Name it as gguf:/path/to/model.gguf.")
        try:
            # Part of the extra `local`: 34 MB that only users of model files need.
            import xllamacpp  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                f"A GGUF model needs the package xllamacpp. Type: {install_extra('local')}"
            ) from error
        parameters = xllamacpp.CommonParams()
        parameters.model.path = self._model
        parameters.n_ctx = self.context_window
        parameters.n_parallel = 1
        parameters.cpuparams.n_threads = _THREADS
        parameters.cpuparams_batch.n_threads = _THREADS
        parameters.warmup = False
        parameters.verbosity = -1
        parameters.ui = False
        parameters.api_keys = [self._api_key]
        try:
            return xllamacpp.Server(parameters)
        except RuntimeError as error:
            raise ModelUnavailable(
                f"{self._model} could not be loaded: {error} Is it a GGUF file, and is there memory for it?"
            ) from error

    def _unload(self) -> None:
        self._server = None


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
