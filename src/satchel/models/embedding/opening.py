"""Opens an embedder by its name in the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from satchel.clock import Clock
from satchel.config import ProviderSettings
from satchel.config.providers import builtin_providers
from satchel.errors import ConfigError
from satchel.models.embedding.fetching import Progress
from satchel.models.embedding.hashing import HashingEmbedder
from satchel.models.embedding.minilm import MiniLmEmbedder
from satchel.models.embedding.records import record_of
from satchel.models.embedding.use import UseEmbedder
from satchel.models.port import Embedder

DEFAULT_EMBEDDER: Final = "minilm"
DEFAULT_SECOND_EMBEDDER: Final = "use-multilingual"
"""What reads the languages that the default doesn't."""

_FORMS: Final = '"minilm", "use-multilingual", "hash", "ollama:MODEL" or "PROVIDER:MODEL"'


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
            compares words and not meanings; or "PROVIDER:MODEL" with Ollama or a configured provider that uses OpenAI's
            wire format.
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
    known = providers or builtin_providers({})
    provider = known.get(provider_name)
    if provider is None:
        raise ConfigError(
            f'{setting} = "{name}": there is no provider "{provider_name}" (there are: '
            f'{", ".join(sorted(known))}). Allowed is {_FORMS}, or "none".'
        )
    if provider.kind not in ("openai", "ollama"):
        raise ConfigError(
            f'{setting} = "{name}": the provider "{provider_name}" is of kind "{provider.kind}", which '
            'has no embeddings; use one of kind "openai" or "ollama".'
        )
    if provider.kind == "ollama":
        if "://" in model:
            raise ConfigError(
                f'{setting} = "{name}": the address belongs in base_url of [providers.{provider_name}].'
            )
        # Ollama's OpenAI-compatible API.
        base_url = f"{provider.base_url.rstrip('/').removesuffix('/v1')}/v1"
        provider = replace(provider, base_url=base_url)
    # Only who asks an endpoint pays for the import.
    from satchel.models.embedding.remote import RemoteEmbedder  # noqa: PLC0415

    return RemoteEmbedder(
        record_of(model, id=f"{provider_name}:{model}"),
        settings=provider,
        model=model,
        clock=clock,
        api_key=secret(provider.env_api_key),
    )
