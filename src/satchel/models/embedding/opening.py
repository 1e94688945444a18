"""Opens an embedder by its name in the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from satchel.clock import Clock
from satchel.config import ProviderSettings
from satchel.errors import ConfigError
from satchel.models.embedding.fetching import Progress
from satchel.models.embedding.hashing import HashingEmbedder
from satchel.models.embedding.library import FastembedEmbedder
from satchel.models.embedding.minilm import MiniLmEmbedder
from satchel.models.embedding.records import record_of
from satchel.models.embedding.remote import RemoteEmbedder
from satchel.models.embedding.use import UseEmbedder
from satchel.models.port import Embedder

__all__ = ["DEFAULT_EMBEDDER", "DEFAULT_SECOND_EMBEDDER", "open_embedder"]

DEFAULT_EMBEDDER: Final = "minilm"
DEFAULT_SECOND_EMBEDDER: Final = "use-multilingual"
"""What reads the languages that the default doesn't."""

_OLLAMA_URL: Final = "http://127.0.0.1:11434"
_OPENAI_URL: Final = "https://api.openai.com/v1"
_FORMS: Final = (
    '"minilm", "use-multilingual", "hash", "ollama:MODEL", "ollama:MODEL@URL", "fastembed:MODEL" or '
    '"PROVIDER:MODEL"'
)


def open_embedder(
    name: str,
    *,
    home: Path,
    environ: Mapping[str, str],
    clock: Clock,
    providers: Mapping[str, ProviderSettings] | None = None,
    secret: Callable[[str], str | None] = lambda _: None,
    progress: Progress | None = None,
    setting: str = "memory.embedder",
) -> Embedder:
    """Create an embedder. Nothing is read, fetched or requested before its first call.

    Args:
        name: "minilm", the bundled one; "use-multilingual", the bundled one for other languages; "hash", which
            compares words and not meanings; "ollama:MODEL",
            "ollama:MODEL@URL"; "fastembed:MODEL"; or "PROVIDER:MODEL" with a configured provider that uses
            OpenAI's wire format.
        home: SATCHEL_HOME; models are stored in its folder `models`.
        environ: The environment of processes that fetch a model.
        clock: Determines when a failed fetch may be retried.
        providers: The providers in the settings, by name.
        secret: Returns the value of an environment variable that holds a key, like `Settings.secret`.
        progress: Called while a model is fetched, from another thread.
        setting: Where the name stands, for errors.

    Returns:
        The embedder; the one for "minilm" is a `TokenEmbedder`.

    Raises:
        ConfigError: The embedder doesn't exist.
        EmbedderError: Its library is not installed.
    """
    if name == "minilm":
        return MiniLmEmbedder(home, environ=environ, clock=clock, progress=progress)
    if name == "use-multilingual":
        return UseEmbedder(home, environ=environ, clock=clock, progress=progress)
    if name == "hash":
        return HashingEmbedder()
    provider_name, colon, model = name.partition(":")
    if not colon or not model or not provider_name:
        raise ConfigError(f'{setting} = "{name}": there is no such embedder. Allowed is {_FORMS}, or "none".')
    if provider_name == "fastembed":
        return FastembedEmbedder(model, home=home)
    provider = (providers or {}).get(provider_name)
    if provider_name == "ollama":
        model, _, url = model.partition("@")
        # A provider's address ends in /v1, which is Ollama's OpenAI-compatible API.
        configured = provider.base_url.rstrip("/").removesuffix("/v1") if provider else ""
        url = _checked(f'{setting} = "{name}"', url or configured or _OLLAMA_URL)
        info = record_of(model, id=f"ollama:{model}")
        return RemoteEmbedder(info, wire="ollama", model=model, base_url=url)
    if provider is None and provider_name != "openai":
        known = ", ".join(sorted(providers or {})) or "none"
        raise ConfigError(
            f'{setting} = "{name}": there is no provider "{provider_name}" (there are: {known}). '
            f'Allowed is {_FORMS}, or "none".'
        )
    if provider is not None and provider.kind != "openai":
        raise ConfigError(
            f'{setting} = "{name}": the provider "{provider_name}" is of kind "{provider.kind}", which '
            'has no embeddings; use one of kind "openai".'
        )
    url = _checked(f'{setting} = "{name}"', (provider.base_url if provider else "") or _OPENAI_URL)
    key = secret(provider.env_api_key if provider else "OPENAI_API_KEY")
    info = record_of(model, id=f"{provider_name}:{model}")
    return RemoteEmbedder(info, wire="openai", model=model, base_url=url, api_key=key)


def _checked(what: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f'{what}: "{url}" is not an address such as {_OLLAMA_URL}.')
    return url
