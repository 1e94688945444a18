"""Asks two questions at the first start. Each can be skipped; without a terminal, neither is asked."""

from __future__ import annotations

import getpass
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import click

from satchel.cli.output import is_terminal, tell
from satchel.clock import SystemClock
from satchel.config import ProviderSettings, Settings
from satchel.config.check import closest
from satchel.config.keys import store_key, stored_keys
from satchel.errors import ConfigError, ModelAuthError, ModelError, SatchelError
from satchel.runtime.endpoints import LiveEndpoint, probe_endpoint, verify_model
from satchel.runtime.inventory import model_of
from satchel.runtime.lines import counted
from satchel.runtime.model_setup import find_models, own_key, own_provider
from satchel.tui.plain_text import plain

Values: TypeAlias = dict[str, object]

_MOST_LISTED = 12
"""The most models that are listed with a number; others are chosen by name."""
_ADDRESS = re.compile(r"https?://\S+")
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}(?:/\S*)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_first_start(settings: Settings) -> bool:
    """Whether there are no settings and no conversations yet."""
    return (
        not settings.config_path.exists()
        and not settings.model
        and settings.database_location == settings.home / "satchel.db"
        and not (settings.home / "satchel.db").exists()
    )


def ask_settings(settings: Settings) -> Values:
    """Ask which model answers, and whether conversations are remembered.

    If an answer can't work, the user is told why and asked again. An answer that can't be checked needs confirmation.

    Returns:
        Values by dotted key, for `write_initial`; None for defaults.

    Raises:
        click.Abort: The user pressed Ctrl-C or Ctrl-D.
    """
    tell("Which language model should answer?")
    found = anyio.run(find_models, settings)
    for number, entry in enumerate(found.ready, 1):
        tell(f"  {number}. {entry.name}: {counted(len(entry.models), 'model')}")
    for provider in found.without_key:
        tell(f"  {provider.name}: needs a key")
    tell(
        "Type PROVIDER:MODEL, PROVIDER, gguf:/path/model.gguf, or the address of an OpenAI-compatible server."
    )
    values: Values | None = None
    while values is None:
        answer = _read("Model [Enter: choose automatically]: ")
        if not answer:
            values = {"model": None}
        elif answer.isdecimal() and 1 <= int(answer) <= len(found.ready):
            values = _by_name(settings, found.ready[int(answer) - 1].name)
        elif _ADDRESS.fullmatch(answer):
            values = _by_address(settings, answer)
        elif _HOST_AND_PORT.fullmatch(answer) and answer.partition(":")[0] not in settings.providers:
            values = _by_address(settings, f"http://{answer}")
        else:
            values = _by_name(settings, answer)
    keeps = _agrees("Remember your conversations, on this machine?", default=True)
    return {**values, "memory.capture": None if keeps else False}


def _read(prompt: str) -> str:
    # Not `input`, which click's prompt uses: it loses a Ctrl-C that arrives just before it reads.
    print(prompt, end="", file=sys.stderr, flush=True)
    try:
        line = sys.stdin.buffer.readline()
    except KeyboardInterrupt:
        line = b""
    if not line:
        tell("")  # end the line
        raise click.Abort
    return plain(line.decode("utf-8", "replace")).strip()


def _agrees(question: str, *, default: bool) -> bool:
    words = {"": default, "y": True, "yes": True, "n": False, "no": False}
    while True:
        answer = _read(f"{question} [{'Y/n' if default else 'y/N'}]: ").lower()
        if answer in words:
            return words[answer]
        tell("Please answer y or n.")


def _by_address(settings: Settings, address: str) -> Values | None:
    """The settings for an address; None if the user wants to give another answer."""
    provider = own_provider(settings, address)
    found = _reached(settings, provider, variable=own_key(provider))
    if found is None:
        return None
    endpoint, is_checked = found
    if endpoint.provider.base_url != address:
        tell(f"The API is at {endpoint.provider.base_url}.")
    known = replace(settings, providers={**settings.providers, provider.name: endpoint.provider})
    name = _model_at(known, endpoint, is_checked=is_checked)
    if name is None:
        return None
    return {
        f"providers.{provider.name}.kind": endpoint.provider.kind,
        f"providers.{provider.name}.base_url": endpoint.provider.base_url,
        f"providers.{provider.name}.env_api_key": endpoint.provider.env_api_key or None,
        "model": f"{provider.name}:{name}",
    }


def _reached(
    settings: Settings, provider: ProviderSettings, *, variable: str = ""
) -> tuple[LiveEndpoint, bool] | None:
    """The endpoint, and whether it answered; None if it didn't and the user wants another one.

    `variable` is that of a key that the user may paste here.
    """
    while True:
        try:
            return anyio.run(probe_endpoint, provider, settings), True
        except ModelAuthError as error:
            tell(str(error))
            if variable:
                named = _key_of(settings, variable)
                if named is None:
                    return None
                provider = replace(provider, env_api_key=named)
                settings = _with_stored(settings)
                continue
        except ModelError as error:
            tell(str(error))
        if not _agrees("Use it anyway?", default=False):
            return None
        return LiveEndpoint(provider=provider, models=None), False


def _key_of(settings: Settings, variable: str) -> str | None:
    """The variable of the key that the user pastes, or another that the user names; None if there is none."""
    text = _pasted("Its key, or the name of the variable that holds it [Enter: another server]: ")
    if not text:
        store_key(settings.home, variable, None)  # one that was refused
        return None
    if _VARIABLE.fullmatch(text) and settings.secret(text) is not None:
        return text
    return variable if _stored(settings, variable, text) else _key_of(settings, variable)


def _pasted(prompt: str) -> str:
    """What is typed without being shown."""
    if not is_terminal(sys.stdin):
        return _read(prompt)
    try:
        return getpass.getpass(prompt, stream=sys.stderr).strip()
    except (EOFError, KeyboardInterrupt):
        tell("")
        raise click.Abort from None


def _stored(settings: Settings, variable: str, key: str) -> bool:
    try:
        store_key(settings.home, variable, key)
    except ConfigError as error:
        tell(str(error))
        return False
    tell(f"Kept in {stored_keys(settings.home).place(variable)}.")
    return True


def _with_stored(settings: Settings) -> Settings:
    """The settings with the keys that were pasted."""
    return replace(settings, secrets={**stored_keys(settings.home), **settings.secrets})


def _model_at(
    settings: Settings, endpoint: LiveEndpoint, *, is_checked: bool, default: str = ""
) -> str | None:
    """The model that the user chooses at an endpoint; None if they want to give another answer."""
    if endpoint.models:
        return _chosen(endpoint.models, default=default if default in endpoint.models else endpoint.models[0])
    name = _read(f"Name of its model [Enter: {default or 'default'}]: ") or default or "default"
    if not is_checked or _answers(f"{endpoint.provider.name}:{name}", settings):
        return name
    return None


def _chosen(models: Sequence[str], *, default: str) -> str:
    listed = [default, *(model for model in models if model != default)]
    for number, model in enumerate(listed[:_MOST_LISTED], 1):
        tell(f"  {number}. {model}")
    if len(listed) > _MOST_LISTED:
        tell(f"  … and {len(listed) - _MOST_LISTED} more; type a name to choose one of them.")
    while True:
        answer = _read("Number or name [1]: ")
        if not answer:
            return default
        if answer in models:
            return answer
        if answer.isdecimal() and 1 <= int(answer) <= min(len(listed), _MOST_LISTED):
            return listed[int(answer) - 1]
        tell(f"{answer} is not among its models.{closest(answer, models)}")
        if not answer.isdecimal() and _agrees("Use it anyway?", default=False):
            return answer


def _answers(name: str, settings: Settings) -> bool:
    """Whether a model answers, or the user wants to use it anyway."""
    tell(f"Checking {name} …")
    try:
        anyio.run(partial(verify_model, name, settings, clock=SystemClock()))
    except SatchelError as error:
        tell(str(error))
        return _agrees("Use it anyway?", default=False)
    return True


def _by_name(settings: Settings, answer: str) -> Values | None:
    """The settings for "provider:model" or a provider; None if the user wants to give another answer."""
    name, _, model = (part.strip() for part in answer.partition(":"))
    provider = settings.providers.get(name)
    if provider is None:
        tell(f"There is no provider {name!r}.{closest(name, settings.providers)}")
        tell(f"Known: {', '.join(settings.providers)}.")
        return None
    if provider.kind == "none":
        return {"model": "none"}
    if provider.kind == "gguf":
        if Path(model).expanduser().is_file():
            return {"model": answer}
        tell(f"There is no file {model}." if model else "Name the model file: gguf:/path/model.gguf")
        return None
    if provider.builtin and provider.env_api_key and settings.secret(provider.env_api_key) is None:
        return _without_key(settings, provider, model)
    if model:
        return {"model": f"{name}:{model}"} if _answers(f"{name}:{model}", settings) else None
    found = _reached(settings, provider)
    if found is None:
        return None
    endpoint, is_checked = found
    try:
        default = anyio.run(model_of, provider, settings).partition(":")[2]
    except ModelError:
        default = ""  # the user names one
    chosen = _model_at(settings, endpoint, is_checked=is_checked, default=default)
    return None if chosen is None else {"model": f"{name}:{chosen}"}


def _without_key(settings: Settings, provider: ProviderSettings, model: str) -> Values | None:
    """The settings for a hosted provider whose key is not set; without a pasted key they can only be confirmed."""
    if not model:
        try:
            model = anyio.run(model_of, provider, settings).partition(":")[2]
        except ModelError:
            model = _read("Name of its model [Enter: another provider]: ")
            if not model:
                return None
    name = f"{provider.name}:{model}"
    key = _pasted(f"Paste its key, which is not shown [Enter: set {provider.env_api_key} yourself]: ")
    if key:
        if not _stored(settings, provider.env_api_key, key):
            return None
        if _answers(name, _with_stored(settings)):
            return {"model": name}
        store_key(settings.home, provider.env_api_key, None)
        return None
    tell(f"Set {provider.env_api_key} in your environment before you start Satchel.")
    return {"model": name} if _agrees(f"Use {name}?", default=True) else None
