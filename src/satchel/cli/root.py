"""The `satchel` command: its subcommands, and what happens without one."""

from __future__ import annotations

import sys

import click

from satchel.cli.commands import LazyGroup
from satchel.cli.output import is_terminal
from satchel.version import __version__

_COMMANDS = {
    "chat": ("satchel.cli.chat:chat", "Start a conversation in the terminal."),
    "ask": ("satchel.cli.ask:ask", "Send one message and print the answer."),
    "session": (
        "satchel.cli.session:session",
        "List, show, search, rename, pin, archive, export and delete conversations.",
    ),
    "projects": (
        "satchel.cli.projects:projects",
        "Make, list, change and delete projects, and move conversations.",
    ),
    "memory": ("satchel.cli.memory:memory", "Add, search, list, show and forget memories."),
    "find": ("satchel.cli.find:find", "Find conversations, memories, documents, capabilities and settings."),
    "tool": ("satchel.cli.tool:tool", "List, show, run, approve and write tools."),
    "capability": (
        "satchel.cli.capability:capability",
        "List, show, build, run, approve, export and import capabilities.",
    ),
    "plugin": (
        "satchel.cli.plugin:plugin",
        "List, enable and disable packages that add tools, models and more.",
    ),
    "mcp-server": ("satchel.cli.mcp_server:mcp_server", "List, add, try and remove MCP servers, and log in."),
    "model": ("satchel.cli.model:model", "List and test language models, fetch the embedding model."),
    "config": ("satchel.cli.config:config", "Show and change the settings."),
    "serve": ("satchel.cli.serve:serve", "Serve conversations, memory and capabilities over HTTP."),
    "mcp": (
        "satchel.cli.mcp:mcp",
        "Serve memory and capabilities to another agent (MCP on stdin and stdout).",
    ),
    "acp": ("satchel.cli.acp:acp", "Be an editor's agent (Agent Client Protocol on stdin and stdout)."),
    "connect": (
        "satchel.cli.connect:connect",
        "Set up Claude Code, Codex, goose or another agent to use Satchel.",
    ),
    "hook": ("satchel.cli.hook_help:hook", "Answer a hook of another agent; `connect` sets it up."),
    "worker": ("satchel.cli.worker:worker", "Build what was asked for; Satchel starts this by itself."),
    "user": ("satchel.cli.user:user", "Let several people use this server, each with a home of their own."),
    "service": ("satchel.cli.service:service", "Keep the server running in the background, with systemd."),
    "completion": (
        "satchel.cli.completion:completion",
        "Print what lets a shell complete commands with Tab.",
    ),
    "usage": ("satchel.cli.usage:usage", "Show tokens and cost by day and model."),
    "doctor": ("satchel.cli.doctor:doctor", "Check that everything works."),
    "backup": ("satchel.cli.backup:backup", "Back up everything to one file."),
    "migrate-database": (
        "satchel.cli.moving:migrate_database",
        "Move everything said to PostgreSQL, or back.",
    ),
    "restore": ("satchel.cli.backup:restore", "Replace everything by a backup; the current state is kept."),
    "demo": ("satchel.cli.demo:demo", "Show in a few seconds what the program does; needs no key."),
}


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="satchel", message="%(prog)s %(version)s")
@click.pass_context
def root(context: click.Context) -> int | None:
    """Satchel: an agent that remembers you.

    Without a command it starts a conversation; without a terminal it reads a message from stdin and prints the
    answer.
    """
    if context.invoked_subcommand is not None:
        return None
    if is_terminal(sys.stdin) and is_terminal(sys.stdout):
        command, arguments = "chat", []
    else:
        command, arguments = "ask", ["-"]
    found = root.get_command(context, command)
    if found is None:
        raise LookupError(command)
    with found.make_context(command, arguments, parent=context) as inner:
        return int(found.invoke(inner))
