"""Chooses the model when none is configured: by a key, a running Ollama, or none; and says why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import anyio

from satchel.config import ProviderSettings, Settings, mask_address
from satchel.config.providers import builtin_providers
from satchel.errors import ConfigError, ModelAuthError, ModelError, ModelUnavailable
from satchel.models.opening import split_name

# A local server answers immediately or isn't running.
_LOCAL_LIMIT_S: Final = 0.5
_LIST_LIMIT_S: Final = 5.0

# The default models for providers of which only the key is known: the provider's current model for everyday work, at a
# medium price (November 2026). For providers that are not listed here, the endpoint's list of models decides.
_DEFAULTS: Final[Mapping[str, str]] = {
    "anthropic": "claude-sonnet-5-5",
    "openai": "gpt-6.1-terra",
    "openrouter": "openrouter/auto",
    "mistral": "mistral-medium-latest",
    "gemini": "gemini-3.8-flash",
}

# The models for small tasks in the background: the provider's cheapest current model that follows instructions well
# (prices of November 2026). For providers that are not listed here, one model does both.
_SMALL: Final[Mapping[str, str]] = {
    "anthropic": "claude-haiku-5-5",
    "openai": "gpt-6-luna",
    "mistral": "mistral-small-latest",
    "gemini": "gemini-3.5-flash-lite",
    "deepseek": "deepseek-v4-flash",
}

# The models that extract facts: of medium size where a provider has three or more, else the small one. The largest
# costs several times as much, and what it proposes is checked against the words anyway.
_MIDDLE: Final = {provider: _DEFAULTS.get(provider, small) for provider, small in _SMALL.items()}

_NO_CHAT: Final = re.compile(
    r"embed|bge-|minilm|(?:^|[/-])e5-|gte-|rerank|whisper|tts|dall-e|moderation|transcribe|realtime|audio|image|sora"
    r"|guard|davinci|babbage|ocr",
    re.IGNORECASE,
)

Outcome: TypeAlias = Literal["chosen", "failed", "absent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One option that was considered.

    Attributes:
        name: The provider, or "provider:model" if a model was determined.
        outcome: "chosen"; "failed": it is configured but unavailable; "absent": it is not configured.
        reason: Why, for display.
    """

    name: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen model.

    Attributes:
        name: A name for `open_model`; "none" if no language model was found.
        why: The reason, for display: "the key in ANTHROPIC_API_KEY".
        tried: All options that were considered, in order.
    """

    name: str
    why: str
    tried: tuple[Tried, ...]

    @property
    def failed(self) -> tuple[Tried, ...]:
        """The options that are configured but unavailable, which the user should know."""
        return tuple(tried for tried in self.tried if tried.outcome == "failed")


async def choose_model(settings: Settings) -> Choice:
    """Choose the configured model, or the provider of the first key in the environment, or a running Ollama, or none.

    A configured model is used whether it is reachable or not, because only the user should change it. Otherwise a
    provider's default model is used, or the first chat model that it lists.

    Raises:
        ConfigError: The configured model's provider is unknown.
    """
    if settings.model:
        # An unknown provider is an error here and not at the first question.
        provider_name, model = split_name(settings.model)
        default = settings.provider(provider_name).model
        name = settings.model.strip() if model or not default else f"{provider_name}:{default}"
        return _chosen(name, f"set by {settings.sources.get('model', 'the settings')}", [])
    tried: list[Tried] = []
    for provider in settings.providers.values():
        if not provider.env_api_key:
            continue
        why = _why_possible(provider, settings)
        if why is None:
            tried.append(
                Tried(
                    name=provider.name, outcome="absent", reason=settings.why_no_secret(provider.env_api_key)
                )
            )
            continue
        try:
            model = await default_model(provider, settings)
        except ModelError as error:
            tried.append(Tried(name=provider.name, outcome="failed", reason=str(error)))
            continue
        return _chosen(f"{provider.name}:{model}", why, tried)
    ollama = settings.providers.get("ollama")
    if ollama is not None:
        found = await _running(ollama, settings)
        if isinstance(found, Tried):
            tried.append(found)
        else:
            return _chosen(f"ollama:{found}", f"Ollama runs at {_host(ollama)}", tried)
    return _chosen("none", "no key is set and no Ollama runs", tried)


def small_model_of(name: str, settings: Settings) -> str:
    """The model for small tasks beside another model: the configured one, or the small one of the same provider.

    Args:
        name: The current model, as "provider:model".
        settings: `small_model` takes precedence; a provider at another address has unknown models.

    Returns:
        A name for `open_model`; `name` itself if no smaller model is known.
    """
    return settings.small_model or _beside(name, _SMALL, settings) or name


def extractor_of(name: str, settings: Settings) -> str:
    """The model that extracts facts beside another model: the configured one, or one of the same provider that is not
    its largest, and not larger than a small model that the user chose.

    Args:
        name: The current model, as "provider:model".
        settings: `memory.extractor` takes precedence; a provider at another address has unknown models.

    Returns:
        A name for `open_model`; `name` itself if no other model is known.
    """
    if settings.memory.extractor or name == _beside(name, _SMALL, settings):
        return settings.memory.extractor or name
    return _beside(name, _MIDDLE, settings) or name


def _beside(name: str, models: Mapping[str, str], settings: Settings) -> str:
    """The model of a table for the provider of another model; "" if it isn't known."""
    provider = split_name(name)[0]
    found = settings.providers.get(provider)
    return (
        ""
        if found is None or provider not in models or _is_moved(found)
        else f"{provider}:{models[provider]}"
    )


async def check_model(name: str, settings: Settings) -> tuple[str, ...] | None:
    """Check whether a model could answer, without sending it a message: its file, or its endpoint and the key.

    Returns:
        The models that the endpoint lists. The model may be missing, because some endpoints accept other names too.
        None if there is no endpoint.

    Raises:
        ConfigError: The provider or the file doesn't exist.
        ModelAuthError: The key is missing or refused.
        NoModelList: The endpoint can be reached but lists no models.
        ModelUnavailable: It can't be reached.
    """
    provider_name, model = split_name(name)
    provider = settings.provider(provider_name)
    if provider.kind == "gguf" and not _is_file(model):
        raise ConfigError(f"There is no model file {model}.")
    if provider.kind in ("gguf", "none", "plugin"):
        return None
    if provider.env_api_key and _why_possible(provider, settings) is None:
        raise ModelAuthError(f"{settings.why_no_secret(provider.env_api_key)}.")
    return await available_models(provider, settings)


async def available_models(provider: ProviderSettings, settings: Settings) -> tuple[str, ...]:
    """The chat models that an endpoint lists, in its order.

    Raises:
        ModelAuthError: The endpoint refuses the key.
        NoModelList: It can be reached but returns no list.
        ModelUnavailable: It can't be reached.
    """
    # Imported here because it is expensive and lists are rarely requested.
    import httpx2  # noqa: PLC0415

    base_url = provider.base_url.rstrip("/")
    key = settings.secret(provider.env_api_key)
    headers = {"accept": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    if provider.kind == "anthropic":
        base_url = base_url.removesuffix("/v1") + "/v1"
        headers |= {"x-api-key": key or "none", "anthropic-version": "2023-06-01"}
    where = f"{provider.name} at {_host(provider)}"
    try:
        async with httpx2.AsyncClient(timeout=_LIST_LIMIT_S) as client:
            response = await client.get(f"{base_url}/models", headers=headers)
            body: Any = response.json() if response.is_success else None
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeEncodeError) as error:
        raise ModelUnavailable(f"{where} cannot be reached: {str(error) or type(error).__name__}.") from error
    except ValueError as error:
        raise ModelUnavailable(f"{where} returned a list of models that is not JSON.") from error
    if response.status_code in (401, 403):
        if not provider.env_api_key:
            raise ModelAuthError(f"{where} requires a key. Name the variable that holds it as env_api_key.")
        raise ModelAuthError(f"{where} refuses the key in {provider.env_api_key}.")
    if body is None:
        raise NoModelList(
            f"{where} lists no models: {mask_address(base_url)}/models answers {response.status_code}."
        )
    return tuple(name for name in _names_in(body) if not _NO_CHAT.search(name))


def _is_file(path: str) -> bool:
    return Path(path).expanduser().is_file()


class NoModelList(ModelUnavailable):
    """The endpoint can be reached, but gives no list of models."""


def _names_in(body: Any) -> list[str]:
    listed = (body.get("data") or body.get("models")) if isinstance(body, dict) else body
    names: list[str] = []
    for entry in listed if isinstance(listed, list) else ():
        name = (entry.get("id") or entry.get("name")) if isinstance(entry, dict) else entry
        if isinstance(name, str) and name:
            # Gemini lists its models with a prefix that its endpoint doesn't need.
            names.append(name.removeprefix("models/"))
    return names


async def default_model(provider: ProviderSettings, settings: Settings) -> str:
    """The model to use if only the provider is named.

    That is the provider's configured model, or else Satchel's default for it, or else the first model that it lists.

    Raises:
        ModelError: The endpoint's list is needed and has no usable model.
    """
    if provider.model:
        return provider.model
    default = _DEFAULTS.get(provider.name, "")
    if default and not _is_moved(provider):
        return default
    try:
        models = await available_models(provider, settings)
    except NoModelList:
        # Some endpoints serve one model under any name and have no list.
        return default or "default"
    if default in models:
        return default
    if not models:
        raise ModelUnavailable(f"{provider.name} at {_host(provider)} lists no chat model.")
    return models[0]


def _why_possible(provider: ProviderSettings, settings: Settings) -> str | None:
    """Why a provider can be used, or None if nothing suggests it."""
    if settings.secret(provider.env_api_key) is not None:
        return f"the key in {provider.env_api_key}"
    if provider.builtin and _is_moved(provider):
        return f"{provider.name} is at {_host(provider)}"
    return None


def _is_moved(provider: ProviderSettings) -> bool:
    """Whether the provider's address differs from the built-in one."""
    own = builtin_providers({}).get(provider.name)
    return own is None or own.base_url != provider.base_url


async def _running(provider: ProviderSettings, settings: Settings) -> str | Tried:
    """The first chat model of a local server, or why there is none."""
    parts = urlsplit(provider.base_url)
    where = _host(provider)
    try:
        with anyio.fail_after(_LOCAL_LIMIT_S):
            # Checking the port is cheap; the HTTP client is loaded only if a server listens.
            stream = await anyio.connect_tcp(parts.hostname or "127.0.0.1", parts.port or 11434)
            await stream.aclose()
    except (OSError, TimeoutError):
        return Tried(name=provider.name, outcome="absent", reason=f"nothing listens at {where}")
    try:
        models = await available_models(provider, settings)
    except ModelError as error:
        return Tried(name=provider.name, outcome="failed", reason=str(error))
    if not models:
        return Tried(
            name=provider.name,
            outcome="failed",
            reason=f"it runs at {where} but has no chat model: `ollama pull` fetches one",
        )
    return models[0]


def _host(provider: ProviderSettings) -> str:
    parts = urlsplit(provider.base_url)
    return parts.netloc.rpartition("@")[2] or provider.base_url


def _chosen(name: str, why: str, tried: list[Tried]) -> Choice:
    return Choice(name=name, why=why, tried=(*tried, Tried(name=name, outcome="chosen", reason=why)))
