"""`satchel connect`: sets up hooks and the MCP entry in another agent, and removes them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click

from satchel.cli.commands import confirm, json_option, said_json, wants_json
from satchel.cli.output import is_terminal, say, tell
from satchel.cli.settings import read_settings
from satchel.clock import SystemClock
from satchel.config import Settings, process_environ
from satchel.config.home import default_home
from satchel.errors import UsageError
from satchel.runtime.lines import counted
from satchel.runtime.other_agents.connecting import (
    AGENTS,
    Agent,
    FileChange,
    Program,
    apply,
    diff_of,
    is_connected,
    plan,
)

_NOTES: dict[Agent, str] = {
    "claude-code": "The change takes effect in the next session. `/hooks` and `/mcp` in Claude Code show the entries.",
    "codex": "Codex asks you to review new hooks before it runs them. Versions that know no hooks yet need "
    "codex_hooks = true under [features] in config.toml.",
    "goose": "goose gives hooks no way to add to the conversation, so they only capture it; its model reads memory "
    "with the tools of the extension.",
    "generic": "The agent's model uses memory with tools. Without hooks, nothing is captured automatically.",
}


@click.command()
@click.argument("agent", type=click.Choice(get_args(Agent)), required=False)
@click.option("--project", is_flag=True, help="Change the files of the current folder, not your own.")
@click.option(
    "--file", type=click.Path(dir_okay=False, path_type=Path), help="For generic: the list of MCP servers."
)
@click.option("--remove", is_flag=True, help="Remove Satchel's entries, and nothing else.")
@click.option("--dry-run", is_flag=True, help="Only show the change.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def connect(
    agent: Agent | None,
    project: bool,
    file: Path | None,
    remove: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Set up AGENT to use Satchel's memory, and to have your conversations with it captured.

    claude-code, codex and goose get hooks and an entry for `satchel mcp`; generic gets the entry alone, in .mcp.json or
    another FILE. The change is shown as a diff before anything is written, and the files are copied into
    SATCHEL_HOME/agents/backups. Without AGENT, the command shows which agents are connected.
    """
    settings = read_settings()
    environ = process_environ()
    if agent is None:
        _overview(settings)
        return
    if file is not None and agent != "generic":
        raise UsageError("--file is for `satchel connect generic` only.")
    changes = plan(
        agent,
        _program(settings),
        environ=environ,
        project=settings.cwd if project else None,
        file=None if file is None else file.expanduser().absolute(),
        remove=remove,
    )
    data: dict[str, Any] = {
        "changes": [_json_of(change) for change in changes],
        "backups": [],
        "written": False,
    }
    if (dry_run or not changes) and said_json(data):
        return
    if not changes:
        tell(f"{AGENTS[agent]} {'has no Satchel entries' if remove else 'is connected already'}.")
        return
    if not wants_json():
        say("\n".join(diff_of(change) for change in changes))
    if dry_run:
        return
    if not yes:
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise UsageError("Nothing was changed. Without a terminal, confirm the change with --yes.")
        confirm(f"Change {counted(len(changes), 'file')}?", default=True)
    backups = apply(changes, home=settings.home, clock=SystemClock())
    if said_json({**data, "backups": [str(path) for path in backups], "written": True}):
        return
    _tell_done(agent, backups, settings, remove=remove)


def _tell_done(agent: Agent, backups: Sequence[Path], settings: Settings, *, remove: bool) -> None:
    for path in backups:
        tell(f"Backup: {path}")
    if remove:
        tell(f"{AGENTS[agent]} is no longer connected.")
        return
    tell(f"{AGENTS[agent]} is connected. {_NOTES[agent]}")
    if not settings.keeps_memory:
        tell("! memory.enabled or memory.capture is off, so nothing is captured.")


def _overview(settings: Settings) -> None:
    environ = process_environ()
    home = Path(environ.get("HOME") or Path.home()).resolve()
    found = {
        name: {
            "user": name != "generic" and is_connected(name, environ=environ),
            # In the home folder, a project's files are the user's own.
            "project": settings.cwd != home and is_connected(name, environ=environ, project=settings.cwd),
        }
        for name in AGENTS
    }
    if said_json(found):
        return
    for name, places in found.items():
        where = " and ".join(
            words for place, words in (("user", "for you"), ("project", "in this folder")) if places[place]
        )
        say(f"{name:12}  {f'connected {where}' if where else 'not connected'}")


def _json_of(change: FileChange) -> dict[str, str]:
    what = "create" if change.before is None else "remove" if change.after is None else "change"
    return {"path": str(change.path), "action": what, "diff": diff_of(change)}


def _program(settings: Settings) -> Program:
    """How other agents start this very program.

    By its name only where the PATH has a link to it, as after `uv tool install`. An environment itself is on the PATH
    of one shell, and the agent may be started from another.
    """
    here = Path(sys.executable).with_name("satchel")
    on_path = shutil.which("satchel", path=settings.environ.get("PATH"))
    is_link = on_path is not None and Path(on_path) != here and Path(on_path).resolve() == here.resolve()
    command = "satchel" if is_link else str(here) if here.exists() else on_path
    if command is None:
        raise UsageError(
            "There is no program `satchel` beside this Python or on the PATH that another agent could start. "
            "Install it with `uv tool install` or `pipx install`."
        )
    environ = settings.environ
    own = {} if settings.home == default_home(environ) else {"SATCHEL_HOME": str(settings.home)}
    return Program(command=command, environ=own)
