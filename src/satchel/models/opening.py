"""Opens a model by its name in the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.clock import Clock
from satchel.config import ProviderSettings, Settings
from satchel.config.plugins import offered
from satchel.errors import ConfigError
from satchel.models.abilities import AbilityStore
from satchel.models.function import FunctionModel
from satchel.models.json_tools import AdaptiveTools
from satchel.models.port import ChatModel
from satchel.models.recall import RecallModel

if TYPE_CHECKING:
    from satchel.models.hosted import HostedModel


def split_name(name: str) -> tuple[str, str]:
    """The provider and the model in "provider:model"; the model is "" if only a provider is named."""
    provider, _, model = name.strip().partition(":")
    return provider.strip(), model.strip()


def open_model(name: str, settings: Settings, *, abilities: AbilityStore, clock: Clock) -> ChatModel:
    """The model with that name. Nothing is imported, connected or loaded before the first request.

    Args:
        name: "provider:model", "gguf:PATH" or "none".
        settings: The providers.
        abilities: Stores what is known about models.
        clock: For `Retry-After` dates.

    Raises:
        ConfigError: The provider is unknown, or no model is named.
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
    if provider.kind == "plugin":
        return _of_plugin(provider, model, settings)
    inner = _hosted(provider, model, settings, clock)
    tool_use = provider.tool_use
    if provider.kind == "gguf" and tool_use == "auto":
        # A file has no endpoint that could refuse tools, and its template may drop them silently, so use JSON.
        tool_use = "json"
    return AdaptiveTools(inner, tool_use=tool_use, abilities=abilities, endpoint=inner.place)


def _of_plugin(provider: ProviderSettings, model: str, settings: Settings) -> ChatModel:
    for plugin, providers in offered(settings.home, "providers"):
        if provider.name in providers:
            try:
                return FunctionModel.of(providers[provider.name](model))
            # A boundary: the plugin is somebody else's code.
            except Exception as error:
                raise ConfigError(
                    f"The plugin {plugin} can't open {provider.name}:{model}: {type(error).__name__}: {error}"
                ) from error
    raise ConfigError(f"No enabled plugin offers the provider {provider.name!r}.")


def _hosted(provider: ProviderSettings, model: str, settings: Settings, clock: Clock) -> HostedModel:
    # A program usually needs only one of them, so the other adapters are not imported.
    if provider.kind == "gguf":
        from satchel.models.gguf.client import GGUFModel  # noqa: PLC0415

        return GGUFModel(provider, model, clock=clock)
    kind: type[HostedModel]
    if provider.kind == "anthropic":
        from satchel.models.anthropic.client import AnthropicModel  # noqa: PLC0415

        kind = AnthropicModel
    elif provider.kind == "ollama":
        from satchel.models.ollama.client import OllamaModel  # noqa: PLC0415

        kind = OllamaModel
    else:
        from satchel.models.openai.client import OpenAIModel  # noqa: PLC0415

        kind = OpenAIModel
    return kind(provider, model, api_key=settings.secret(provider.env_api_key), clock=clock)
