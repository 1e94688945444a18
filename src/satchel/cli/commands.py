"""Click groups. Their help is not cut, and commands are imported when used, so that `satchel --version` is fast."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from satchel.cli.output import is_terminal, say_json
from satchel.errors import UsageError

_SUMMARY_CHARS = 200
"""Of the first sentence of a command's help: longer lines are wrapped, not cut."""


def confirm(question: str, *, default: bool = False, doing: str = "") -> None:
    """Ask on the terminal; an answer of no ends the command with 1.

    Args:
        question: What is asked.
        default: The answer of Enter.
        doing: What needs `--yes` where there is no terminal; without it, the answer is read from a pipe, too.

    Raises:
        UsageError: There is no terminal.
        click.exceptions.Exit: The answer was no.
        click.Abort: It was Ctrl-C, or the end of the input.
    """
    if doing and not is_terminal(sys.stdin):
        raise UsageError(f"Nothing was changed. Without a terminal to confirm on, {doing} needs --yes.")
    if not click.confirm(question, default=default, err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(1)


class CommandGroup(click.Group):
    """A group whose help shows the first sentence of each command in full."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(self._summaries())

    def _summaries(self) -> list[tuple[str, str]]:
        """Name and summary of each command."""
        return [
            (name, each.get_short_help_str(_SUMMARY_CHARS)) for name, each in sorted(self.commands.items())
        ]


class LazyGroup(CommandGroup):
    """A group whose commands are imported when they are run."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        """Create the group.

        Args:
            *args: For `click.Group`.
            **kwargs: For `click.Group`.
            lazy: By name, in the order of the help: the location of the command ("satchel.cli.ask:ask"), and a line
                of help.
        """
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order in which they were given."""
        return [*self.commands, *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        # This must happen before a command imports numpy. It costs nothing, because every command reads the settings.
        importlib.import_module("satchel.config").prepare_libraries()
        module, _, name = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown one, the error names those that are close."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands and options that begin like this, without importing the commands."""
        found = [
            CompletionItem(name, help=line) for name, line in self._summaries() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def _summaries(self) -> list[tuple[str, str]]:
        # Without importing the commands.
        here = [(name, each.get_short_help_str(_SUMMARY_CHARS)) for name, each in self.commands.items()]
        return [*here, *((name, line) for name, (_, line) in self._lazy.items())]


class _Text(click.ParamType[str]):
    """Text from the command line. Invalid UTF-8 is replaced, because models, databases and logs accept only text."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Named(_Text):
    """Text that Tab completes."""

    def __init__(self, place: str) -> None:
        """`place` is a function without arguments that lists what there is, as "package.module:function"."""
        self._place = place

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What begins like this."""
        module, _, name = self._place.partition(":")
        names: list[str] = getattr(importlib.import_module(module), name)()
        return [CompletionItem(each) for each in names if each.startswith(incomplete)]


Text = _Text()
SettingKey = Named("satchel.runtime.names:setting_keys")
SessionId = Named("satchel.runtime.names:session_ids")
CapabilityName = Named("satchel.runtime.names:capability_names")

_JSON = "satchel.json"


def _note_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[_JSON] = value


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_note_json, help="Print JSON."
)
"""What it says is for `said_json` and `wants_json`; the command gets no argument."""


def wants_json() -> bool:
    """Whether the command that runs was given `--json`."""
    return bool(click.get_current_context().meta.get(_JSON))


def said_json(data: Any) -> bool:
    """Print the data of the command that runs, if it was given `--json`. Returns whether it was."""
    if wants_json():
        say_json(data)
    return wants_json()


def json_object(text: str, example: str) -> dict[str, Any]:
    """A JSON object from the command line.

    Raises:
        UsageError: It is none; the message has the example.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The input is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"The input must be a JSON object, such as '{example}'.")
    return value
