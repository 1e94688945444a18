"""From a model's name in the configuration to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from satchel.clock import Clock
from satchel.config import ProviderSettings, Settings
from satchel.errors import ConfigError
from satchel.models.abilities import AbilityStore
from satchel.models.json_tools import AdaptiveTools
from satchel.models.port import ChatModel
from satchel.models.recall import RecallModel

if TYPE_CHECKING:
    from satchel.models.hosted import HostedModel

__all__ = ["open_model", "split_name"]


def split_name(name: str) -> tuple[str, str]:
    """The provider and the model of "provider:model"; the model is "" where only a provider is named."""
    provider, _, model = name.strip().partition(":")
    return provider.strip(), model.strip()


def open_model(name: str, settings: Settings, *, abilities: AbilityStore, clock: Clock) -> ChatModel:
    """The model of that name. Nothing is imported, connected or loaded before it is first asked.

    Args:
        name: "provider:model", "gguf:PATH" or "none".
        settings: Where the providers are.
        abilities: What was found out about models, and where to remember what will be.
        clock: For the dates that endpoints ask to wait for.

    Raises:
        ConfigError: The provider is unknown, or the name lacks its model.
    """
    provider_name, model = split_name(name)
    provider = settings.provider(provider_name)
    if provider.kind == "none":
        return RecallModel(provider=provider.name)
    model = model or provider.model
    if not model:
        raise ConfigError(
            f"The model {name!r} names only a provider. Write it as {provider_name}:MODEL, or set "
            f"providers.{provider_name}.model; `satchel model list {provider_name}` lists the models."
        )
    endpoint = _endpoint_of(provider)
    inner: ChatModel
    if provider.kind == "gguf":
        # xllamacpp is an extra: its adapter is imported for the user's own files only.
        from satchel.models.gguf.client import GGUFModel  # noqa: PLC0415

        # A file has no endpoint that could refuse tools; its template may drop them silently, so JSON is the
        # rule.
        inner = GGUFModel(provider, model)
        tool_use = "json" if provider.tool_use == "auto" else provider.tool_use
        return AdaptiveTools(inner, tool_use=tool_use, abilities=abilities, endpoint=endpoint)
    inner = _hosted(provider, model, settings, clock)
    return AdaptiveTools(inner, tool_use=provider.tool_use, abilities=abilities, endpoint=endpoint)


def _hosted(provider: ProviderSettings, model: str, settings: Settings, clock: Clock) -> HostedModel:
    # One program talks to one of them: the other's adapter stays out of memory.
    if provider.kind == "anthropic":
        from satchel.models.anthropic.client import AnthropicModel  # noqa: PLC0415

        return AnthropicModel(provider, model, api_key=settings.secret(provider.env_api_key), clock=clock)
    from satchel.models.openai.client import OpenAIModel  # noqa: PLC0415

    return OpenAIModel(provider, model, api_key=settings.secret(provider.env_api_key), clock=clock)


def _endpoint_of(provider: ProviderSettings) -> str:
    """The address under which abilities are remembered, without user and password."""
    if not provider.base_url:
        return provider.name
    parts = urlsplit(provider.base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
