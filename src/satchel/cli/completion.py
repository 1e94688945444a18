"""`satchel completion`: prints what a shell needs to complete commands, options and values with Tab."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from satchel.cli.output import say

_VARIABLE = "_SATCHEL_COMPLETE"
_WHERE = {
    "bash": "satchel completion bash > ~/.local/share/bash-completion/completions/satchel",
    "zsh": "satchel completion zsh > ~/.zfunc/_satchel    (with fpath+=~/.zfunc before compinit in .zshrc)",
    "fish": "satchel completion fish > ~/.config/fish/completions/satchel.fish",
}


@click.command(epilog="\b\n" + "\n".join(_WHERE.values()))
@click.argument("shell", type=click.Choice(tuple(_WHERE)))
def completion(shell: str) -> None:
    """Print the script that lets SHELL complete the commands of Satchel."""
    found = get_completion_class(shell)
    assert found is not None
    # No command is needed for `source`: the script runs the program when Tab is pressed.
    script = found(click.Command("satchel"), {}, "satchel", _VARIABLE)
    if shell == "bash":
        # click would start bash here, to refuse versions before 4.4.
        say(script.source_template % script.source_vars())
    else:
        say(script.source())
