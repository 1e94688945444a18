"""Sets up a model: finds what is there, tries it with one message, and keeps it; for the pages and the terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Final, Literal
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from satchel.addresses import host_and_port, is_public
from satchel.clock import Clock
from satchel.config import ProviderSettings, Settings, set_values
from satchel.config.keys import store_key, stored_keys
from satchel.config.plugins import plugin_providers
from satchel.config.providers import builtin_providers, ollama_base_url
from satchel.errors import ModelAuthError, NotFound, SatchelError, UsageError
from satchel.messages import Usage
from satchel.models import default_model
from satchel.models.prices import known_window, priced
from satchel.runtime.endpoints import greet, probe_endpoint
from satchel.runtime.inventory import ProviderModels, list_models

_MOST_ANSWER_S: Final = 60.0
"""A large model on a slow machine loads its weights before its first word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModels:
    """What is there.

    Attributes:
        ready: Providers that list models: those with a key, and the servers that run on this machine.
        without_key: Providers whose key is missing.
        failed: Providers that are set up and don't answer, with the reason.
        words: Window and price of the models whose are known, by full name.
    """

    ready: Sequence[ProviderModels]
    without_key: Sequence[ProviderSettings]
    failed: Sequence[ProviderModels]
    words: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWish:
    """What the user chose.

    Attributes:
        provider: A provider's name; ignored with `base_url`.
        model: Its name there; "" takes the provider's default, or the first that it lists.
        key: What the user pasted; "" if it needs none, or has one.
        base_url: An address of the user's own; "" for a provider that is known.
    """

    provider: str
    model: str = ""
    key: str = field(default="", repr=False)
    base_url: str = ""
    kind: Literal["openai", "anthropic"] = "openai"


async def find_models(settings: Settings) -> FoundModels:
    """Ask providers that have a key, and those of this machine, for their models; all at once."""
    _, listed = await list_models(settings)
    asked = [entry for entry in listed if entry.kind not in ("none", "gguf")]
    ready = [entry for entry in asked if entry.models]
    return FoundModels(
        words=await anyio.to_thread.run_sync(_words_of, settings, ready),
        ready=ready,
        without_key=[settings.provider(entry.name) for entry in asked if entry.state == "not set up"],
        failed=[
            entry for entry in asked if entry.state == "failed" and settings.provider(entry.name).env_api_key
        ],
    )


def _words_of(settings: Settings, ready: Sequence[ProviderModels]) -> Mapping[str, str]:
    found = {}
    for entry in ready:
        base_url = settings.provider(entry.name).base_url
        for name in entry.models:
            about = {"provider": entry.name, "base_url": base_url, "model": name.partition(":")[2]}
            window = known_window(**about)
            # Of few tokens, because some prices rise with the length of a request.
            costs = [
                priced(usage, **about).cost_usd
                for usage in (Usage(input_tokens=1000), Usage(output_tokens=1000))
            ]
            words = [f"{window:,} tokens"] if window else []
            if costs[0] is not None and costs[1] is not None:
                words.append(
                    f"${costs[0] * 1000:,.2f} and ${costs[1] * 1000:,.2f} a million tokens in and out"
                )
            if words:
                found[name] = ", ".join(words)
    return found


async def set_up_model(settings: Settings, wish: ModelWish, *, clock: Clock) -> tuple[Settings, str]:
    """Try a model with one message, and keep it, its address and its key if it answers.

    Returns:
        The settings with it, and its full name.

    Raises:
        UsageError: The address or the key is none.
        ModelError: It doesn't answer; the message says why. Nothing was kept.
        ConfigError, StorageUnwritable: It can't be kept.
    """
    provider = _provider_of(settings, wish)
    if wish.key and not provider.env_api_key:
        raise UsageError(f"{provider.name} needs no key.")
    secrets = {**settings.secrets, **({provider.env_api_key: wish.key} if wish.key else {})}
    tried = replace(settings, secrets=secrets, providers={**settings.providers, provider.name: provider})
    if wish.model and not wish.base_url:
        model = wish.model
    else:
        try:
            endpoint = await probe_endpoint(provider, tried)
        except ModelAuthError as error:
            if not wish.key:
                raise
            place = provider.base_url if wish.base_url else provider.name
            raise ModelAuthError(f"{place} refuses this key.") from error
        provider = endpoint.provider
        tried = replace(tried, providers={**tried.providers, provider.name: provider})
        model = wish.model or await default_model(provider, tried)
    name = f"{provider.name}:{model}"
    await greet(name, tried, clock=clock, limit_s=_MOST_ANSWER_S)
    place = await anyio.to_thread.run_sync(partial(_keep, tried, provider, wish, name))
    kept = {provider.env_api_key: place} if wish.key else {}
    return replace(tried, model=name, stored={**settings.stored, **kept}), name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderChange:
    """What the user changed of a provider that is set up; None leaves a part as it is.

    Attributes:
        base_url: Its address.
        key: A new key; "" removes the kept one.
        context_window: Text of a number; "" means that nothing is set.
    """

    base_url: str | None = None
    key: str | None = field(default=None, repr=False)
    context_window: str | None = None


def changeable(settings: Settings, found: FoundModels) -> Sequence[ProviderSettings]:
    """The providers that are set up, or were found: with a key, with an entry in the settings, or on this machine."""
    ready = {entry.name for entry in found.ready}
    entries = {key.split(".")[1] for key in settings.sources if key.startswith("providers.")}
    return [
        one
        for one in settings.providers.values()
        if one.kind not in ("none", "gguf")
        and (one.name in entries | ready or (one.env_api_key and settings.secret(one.env_api_key)))
    ]


async def change_provider(settings: Settings, name: str, change: ProviderChange) -> None:
    """Change a provider in the settings file. An address or a key is tried first.

    Raises:
        NotFound: There is no such provider.
        UsageError: The address is none, or the key was given for another one.
        ModelError: It doesn't answer, or refuses the key. Nothing was changed.
        ConfigError, StorageUnwritable: It can't be kept.
    """
    before = settings.providers.get(name)
    if before is None or before.kind in ("none", "gguf"):
        raise NotFound(f"There is no provider {name[:80]!r}.")
    provider = before
    if change.base_url is not None:
        address = change.base_url.strip()
        address = ollama_base_url(address) if before.kind == "ollama" else _with_scheme(address)
        if not address.startswith(("http://", "https://")) or not urlsplit(address).hostname:
            raise UsageError("The address must begin with http:// or https://.")
        provider = replace(before, base_url=address)
    variable = before.env_api_key
    moves = urlsplit(provider.base_url)[:2] != urlsplit(before.base_url)[:2]
    if moves and change.key is None and variable and settings.secret(variable):
        raise UsageError("The key was given for the address before. Give the one of the new address as well.")
    shared = _has_others(settings, variable, name)
    if change.key is not None and (moves or shared or not variable):
        # A name that nothing refers to before the address changes: no key is ever at the address of another.
        provider = replace(provider, env_api_key=_free_key(settings, provider) if change.key else "")
    own = provider.env_api_key
    secrets = {key: value for key, value in settings.secrets.items() if change.key is None or key != own}
    secrets |= {own: change.key} if change.key else {}
    if provider != before or change.key:
        tried = replace(settings, secrets=secrets, providers={**settings.providers, name: provider})
        provider = (await probe_endpoint(provider, tried)).provider

    parts: dict[str, object] = {
        part: getattr(provider, part)
        for part in ("base_url", "env_api_key")
        if getattr(provider, part) != getattr(before, part)
    }
    if change.context_window is not None:
        parts["context_window"] = change.context_window.strip() or None
    await anyio.to_thread.run_sync(
        _keep_change, settings, before, provider, parts, change.key, None if shared else variable
    )


def _keep_change(
    settings: Settings,
    before: ProviderSettings,
    provider: ProviderSettings,
    parts: Mapping[str, object],
    key: str | None,
    own: str | None,
) -> None:
    """Write the changed parts of a provider's entry and its key. `own` is the variable of its key alone."""
    is_new = provider.env_api_key != before.env_api_key
    if key and is_new:
        store_key(settings.home, provider.env_api_key, key)
    try:
        set_values(
            settings.config_path, {f"providers.{before.name}.{part}": value for part, value in parts.items()}
        )
    except SatchelError:
        if key and is_new:
            store_key(settings.home, provider.env_api_key, None)
        raise
    if key is not None and own:
        store_key(settings.home, own, None if is_new else key or None)


def _provider_of(settings: Settings, wish: ModelWish) -> ProviderSettings:
    if not wish.base_url:
        return settings.provider(wish.provider)
    address = _with_scheme(wish.base_url.strip())
    if not address.startswith(("http://", "https://")):
        raise UsageError("The address must begin with http:// or https://.")
    provider = own_provider(settings, address, kind=wish.kind)
    return replace(provider, env_api_key=own_key(provider)) if wish.key else provider


def own_provider(
    settings: Settings, address: str, *, kind: Literal["openai", "anthropic"] = "openai"
) -> ProviderSettings:
    """The provider at an address of the user's own: the one that is set up there, or a new one.

    A new one is named after its host, such as "localhost-8080". If that name is taken, a number follows: a key never
    goes to another address than the one it was given for.
    """
    builtin = builtin_providers({})
    for known in settings.providers.values():
        if known.name not in builtin and (_root(known.base_url), known.kind) == (_root(address), kind):
            return known
    host = urlsplit(address).netloc.rpartition("@")[2]
    named = re.sub("[^a-z0-9]+", "-", host.lower()).strip("-")[:50] or "own"
    taken = {*settings.providers, *plugin_providers(settings.home)}
    free = (
        name for number in count(1) if (name := named if number == 1 else f"{named}-{number}") not in taken
    )
    return ProviderSettings(name=next(free), kind=kind, base_url=address)


def _root(address: str) -> str:
    """Without the "/v1" that `probe_endpoint` may have added."""
    return address.rstrip("/").removesuffix("/v1")


def own_key(provider: ProviderSettings) -> str:
    """The variable of the key of such a provider, such as "OWN_LOCALHOST_8080_API_KEY"."""
    return f"OWN_{provider.name.upper().replace('-', '_')}_API_KEY"


def _has_others(settings: Settings, variable: str, name: str) -> bool:
    """Whether other entries than this provider's refer to a variable: other providers, or MCP servers."""
    if any(variable == one.env_api_key for one in settings.providers.values() if one.name != name):
        return True
    for server in settings.mcp_servers.values():
        texts = (server.command, *server.args, server.url, *server.env.values(), *server.headers.values())
        named = any(f"${{{variable}{end}" in text for text in texts for end in ("}", ":-"))
        if named or variable == server.oauth_env_client_secret:
            return True
    return False


def _free_key(settings: Settings, provider: ProviderSettings) -> str:
    """The same, or with a number, as nothing is called yet."""
    taken = {*settings.environ, *settings.secrets, *stored_keys(settings.home)}
    taken |= {one.env_api_key for one in settings.providers.values()}
    stem = own_key(provider)
    names = (stem if number == 1 else f"{stem}_{number}" for number in count(1))
    return next(name for name in names if name not in taken)


def _with_scheme(address: str) -> str:
    """A near address as people type it, such as "localhost:8080". To a public host a key may have to be encrypted, so
    there the user says how.
    """
    host, _ = host_and_port(address.partition("/")[0])
    is_number = host.replace(".", "").isdecimal()
    is_near = not is_public(host) if is_number else host == "localhost" or host.endswith(".local")
    return f"http://{address}" if is_near else address


def _keep(settings: Settings, provider: ProviderSettings, wish: ModelWish, name: str) -> str:
    """Write it all; returns where the key is."""
    if wish.key:
        store_key(settings.home, provider.env_api_key, wish.key)
    values: dict[str, object] = {}
    if wish.base_url:
        values[f"providers.{provider.name}.kind"] = provider.kind
        values[f"providers.{provider.name}.base_url"] = provider.base_url
        values[f"providers.{provider.name}.env_api_key"] = provider.env_api_key or None
    set_values(settings.config_path, {**values, "model": name}, providers=settings.providers)
    return stored_keys(settings.home).place(provider.env_api_key)
