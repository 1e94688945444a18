"""Two questions at the first start; each can be skipped, and nothing is asked without a terminal."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import anyio
import click

from satchel.cli.output import plain, tell
from satchel.config import ProviderSettings, Settings
from satchel.errors import ModelError
from satchel.runtime.inventory import model_of

__all__ = ["ask_settings", "is_first_start"]

_NAME = "own"
"""The name that a provider gets which is only known by its address."""


def is_first_start(settings: Settings) -> bool:
    """Whether nothing was configured and nothing was ever said here."""
    return (
        not settings.config_path.exists()
        and not settings.model
        and settings.database_location == settings.home / "satchel.db"
        and not (settings.home / "satchel.db").exists()
    )


def ask_settings(settings: Settings) -> dict[str, object]:
    """Ask which model answers, and whether what is said is kept.

    Returns:
        Values by dotted key, for `write_initial`; None where the default is good.
    """
    hosted = [p for p in settings.providers.values() if p.env_api_key]
    tell("Which language model should answer?")
    for provider in hosted:
        there = "its key is set" if settings.secret(provider.env_api_key) else f"needs {provider.env_api_key}"
        tell(f"  {provider.name}: {there}")
    tell(
        "Write PROVIDER:MODEL, PROVIDER, gguf:/path/model.gguf, or the address of an OpenAI-compatible server."
    )
    values = _model(settings, _read("Model [Enter: choose by what is there]: "))
    keeps = _read("Keep what is said as memory, on this machine? [Y/n]: ").lower() not in ("n", "no")
    return {**values, "memory.capture": None if keeps else False}


def _read(prompt: str) -> str:
    try:
        # click's own prompt repeats itself on an empty answer; here that is an answer.
        text: str = click.prompt(prompt, default="", show_default=False, prompt_suffix="", err=True)
    except click.Abort:
        tell("")
        return ""
    return plain(text).strip()


def _model(settings: Settings, answer: str) -> dict[str, object]:
    if not answer:
        return {"model": None}
    if re.match(r"https?://", answer) and urlsplit(answer).hostname:
        name = _read("Its model's name [Enter: the first that it lists]: ")
        own = ProviderSettings(name=_NAME, kind="openai", base_url=answer)
        return {
            f"providers.{_NAME}.kind": own.kind,
            f"providers.{_NAME}.base_url": own.base_url,
            "model": f"{_NAME}:{name}" if name else _default_of(own, settings),
        }
    name, _, model = answer.partition(":")
    provider = settings.providers.get(name)
    if provider is None:
        tell(f"There is no provider {name!r}; there are {', '.join(settings.providers)}. Nothing was set.")
        return {"model": None}
    if provider.env_api_key and not settings.secret(provider.env_api_key):
        tell(
            f"Set {provider.env_api_key} in your environment before you start Satchel; keys are never written down."
        )
    return {"model": answer if model or provider.kind == "none" else _default_of(provider, settings)}


def _default_of(provider: ProviderSettings, settings: Settings) -> str | None:
    """The model of a provider that alone was named; None where none can be chosen, which is told."""
    reason = "A model file has to be named."
    if provider.kind != "gguf":
        try:
            return anyio.run(model_of, provider, settings)
        except ModelError as error:
            reason = str(error)
    example = "/path/to/model.gguf" if provider.kind == "gguf" else "MODEL"
    tell(f"{reason} Set it later: satchel config set model {provider.name}:{example}")
    return None
