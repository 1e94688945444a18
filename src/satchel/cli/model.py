"""`satchel model`: list and test language models, and fetch the embedding model."""

from __future__ import annotations

from functools import partial

import anyio
import click

from satchel.cli.commands import CommandGroup, Text, json_option, said_json
from satchel.cli.home import fetch_line
from satchel.cli.opening import opened
from satchel.cli.output import say, tell
from satchel.cli.settings import read_settings
from satchel.plain import as_json
from satchel.runtime.inventory import BundledEmbedder, fetch_embedding_model, list_models, try_model
from satchel.runtime.lines import usage_line
from satchel.tui.terminal_text import one_line

_MOST_SHOWN = 12


@click.group(cls=CommandGroup)
def model() -> None:
    """List and test language models, fetch the embedding model."""


@model.command("list")
@click.argument("provider", required=False, type=Text)
@json_option
def list_(provider: str | None) -> None:
    """Show which model answers and why, and the models of each provider, or all models of PROVIDER."""
    choice, providers = anyio.run(partial(list_models, read_settings(), only=provider))
    chosen = (choice.name, choice.why) if choice is not None else (None, None)
    if said_json({"chosen": chosen[0], "why": chosen[1], "providers": list(providers)}):
        return
    if choice is not None:
        tell(f"{choice.name} answers: {choice.why}.")
    for entry in providers:
        shown = entry.models if provider else entry.models[:_MOST_SHOWN]
        for name in shown:
            say(name)
        if len(shown) < len(entry.models):
            tell(f"… and {len(entry.models) - len(shown)} more: satchel model list {entry.name}")
        if entry.reason:
            tell(f"{entry.name}: {entry.reason}")
    tell("Choose one with: satchel config set model PROVIDER:MODEL")


@model.command()
@click.argument("name", required=False, type=Text)
@json_option
def test(name: str | None) -> None:
    """Ask a model for a greeting, and to call a tool. NAME is PROVIDER:MODEL; default: the model that answers."""
    settings = read_settings({"model": name})

    async def body() -> None:
        async with opened(settings, with_notices=False) as satchel:
            found = await try_model(satchel)
        data = {
            "model": found.name,
            "text": found.text,
            "calls_tools": found.calls_tools,
            "first_ms": round(found.first_ms, 1),
            "total_ms": round(found.total_ms, 1),
            "usage": as_json(found.usage),
        }
        if said_json(data):
            return
        say(f"{found.name} answers: {one_line(found.text) or '(no text)'}")
        tools = "calls tools" if found.calls_tools else "does not call tools"
        tell(f"{tools} · first token after {found.first_ms:.0f} ms, complete after {found.total_ms:.0f} ms")
        if usage_line(found.usage):
            tell(usage_line(found.usage))

    anyio.run(body)


@model.command()
@click.argument("name", type=click.Choice(["minilm", "use-multilingual"]), default="minilm")
def fetch(name: BundledEmbedder) -> None:
    """Fetch an embedding model now instead of when it is first needed.

    minilm, the default, reads English (about 90 MB). use-multilingual reads fourteen other languages (33 MB, and 78 MB
    unpacked).
    """
    fetch = partial(fetch_embedding_model, read_settings(), name, progress=fetch_line())
    folder, source = anyio.run(fetch)
    tell(f"The embedding model is in {folder}, from {source}.")
