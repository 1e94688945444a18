"""`satchel hook` as click knows it; `cli.main` answers a hook before click is loaded."""

from __future__ import annotations

import click

from satchel.cli.hook import answer


@click.command()
def hook() -> int:
    """Answer one event of another agent's hook: JSON on stdin, the answer on stdout.

    `satchel connect` sets it up. It understands the hooks of Claude Code, Codex, goose, Letta Code and Hermes: it gives
    them what Satchel remembers, and captures what is said there. If anything goes wrong, it prints nothing and exits
    with 0; SATCHEL_HOME/logs/hook.log has the reason.
    """
    return answer()
