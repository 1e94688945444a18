"""`satchel plugin`: packages that add tools, search engines, language models and importers."""

from __future__ import annotations

import click

from satchel.cli.commands import CommandGroup, confirm, json_option, said_json
from satchel.cli.output import say, say_rows, tell
from satchel.cli.settings import read_settings
from satchel.config.plugins import Plugin, disable, enable, find_plugins, problems


@click.group(cls=CommandGroup)
def plugin() -> None:
    """List, enable and disable plugins.

    A plugin is a Python package that was installed beside Satchel and offers tools, search engines, language models or
    importers. Its code runs only after you enabled it, and can then do what Satchel can.
    """


@plugin.command("list")
@json_option
def list_() -> None:
    """List the installed plugins, and those that are enabled and gone."""
    home = read_settings().home
    found, wrong = find_plugins(home), problems(home)
    if said_json([_to_json(each, wrong.get(each.name, "")) for each in found]):
        return
    say_rows((each.name, each.version, each.state, _modules(each)) for each in found)
    for name, problem in wrong.items():
        tell(f"! {name}: {problem}")
    if not found:
        tell("No plugin is installed. docs/guides/plugins.md shows how to write one.")


@plugin.command("enable")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
def enable_(name: str, yes: bool) -> None:
    """Let a plugin be loaded, as it is now; after a change of its files, you are asked again."""
    home = read_settings().home
    found = next((each for each in find_plugins(home) if each.name == name), None)
    if found is not None and not yes:
        tell(f"{found.name} {found.version} ({_modules(found)}), SHA-256 {found.digest}")
        tell("Its code, and that of the packages that it needs, will run with all that Satchel may do:")
        tell("your files, your keys, your memory. No sandbox holds it.")
        confirm(f"Enable {found.name}?")
    done = enable(home, name)
    say(f"{done.name} {done.version} is enabled. New conversations have it.")


@plugin.command("disable")
@click.argument("name")
def disable_(name: str) -> None:
    """Let a plugin not be loaded any more."""
    disable(read_settings().home, name)
    say(f"{name} is disabled. Programs that run keep it until they end.")


def _modules(found: Plugin) -> str:
    return ", ".join(entry.value for entry in found.entries)


def _to_json(found: Plugin, problem: str) -> dict[str, object]:
    return {
        "name": found.name,
        "version": found.version,
        "state": found.state,
        "digest": found.digest,
        "modules": [entry.value for entry in found.entries],
        "problem": problem,
    }
