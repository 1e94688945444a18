"""`satchel projects`: conversations that share instructions and a memory of their own."""

from __future__ import annotations

import sys
from typing import Any

import click

from satchel.cli.commands import CommandGroup, SessionId, Text, confirm, json_option, said_json
from satchel.cli.output import say, tell
from satchel.cli.session import say_session
from satchel.cli.stores import with_home
from satchel.errors import UsageError
from satchel.runtime.home import Home
from satchel.runtime.lines import counted, session_line
from satchel.runtime.projects import Project, project_to_json, what_goes
from satchel.sessions import SessionInfo, info_to_json
from satchel.sessions.branches import folded

_NAME = click.argument("name", type=Text)
_INSTRUCTIONS = click.option(
    "--instructions", type=Text, metavar="TEXT", help="What its conversations are told; - reads stdin."
)


@click.group(cls=CommandGroup)
def projects() -> None:
    """Make, list, change and delete projects, and move conversations.

    A project is named by its name or its id. `satchel chat --project NAME` begins a conversation in it; its memories
    are `satchel memory list --scope project:ID`.
    """


def _line(project: Project, conversations: int) -> str:
    own = ", own memory only" if project.own_memory_only else ""
    archived = ", archived" if project.archived else ""
    return f"{project.id}  {project.name}  ({counted(conversations, 'conversation')}{own}{archived})"


def _text_of(instructions: str | None) -> str | None:
    return sys.stdin.read() if instructions == "-" else instructions


@projects.command("list")
@click.option("--archived", is_flag=True, help="The archived ones instead.")
@json_option
def list_projects(archived: bool) -> None:
    """List projects, by name."""

    async def body(home: Home) -> list[tuple[Project, int]]:
        wanted = [one for one in home.projects.all() if one.archived == archived]
        return [(one, len(folded(await home.sessions_in(one.id)))) for one in wanted]

    found = with_home(body)
    if said_json([project_to_json(project, conversations=count) for project, count in found]):
        return
    for project, count in found:
        say(_line(project, count))
    if not found:
        tell("There is no project. `satchel projects create NAME` makes one.")


@projects.command()
@_NAME
@json_option
def show(name: str) -> None:
    """Show a project: its instructions and its conversations."""

    async def body(home: Home) -> tuple[Project, list[SessionInfo], int]:
        project = home.projects.find(name)
        memory = await home.memory_in(project.id)
        count = await memory.count() if memory is not None else 0
        return project, folded(await home.sessions_in(project.id)), count

    project, infos, memories = with_home(body)
    shown = project_to_json(project, conversations=len(infos), memories=memories)
    if said_json({**shown, "sessions": [info_to_json(info) for info in infos]}):
        return
    say(_line(project, len(infos)))
    if project.instructions:
        say(project.instructions)
    for info in infos:
        say(session_line(info))
    tell(f"{counted(memories, 'memory', 'memories')}: satchel memory list --scope project:{project.id}")


@projects.command()
@_NAME
@_INSTRUCTIONS
@click.option("--own-memory-only", is_flag=True, help="Its conversations don't see your other memories.")
@json_option
def create(name: str, instructions: str | None, own_memory_only: bool) -> None:
    """Make a project."""
    text = _text_of(instructions) or ""

    async def body(home: Home) -> Project:
        return home.projects.create(name, instructions=text, own_memory_only=own_memory_only)

    _say(with_home(body))


@projects.command()
@_NAME
@click.option("--name", "new_name", type=Text, metavar="NAME", help="Rename it.")
@_INSTRUCTIONS
@click.option("--own-memory-only/--all-memory", default=None, help="Whether it sees its own memories alone.")
@json_option
def change(name: str, new_name: str | None, instructions: str | None, own_memory_only: bool | None) -> None:
    """Change the name, the instructions or what memories a project sees."""
    given = {"name": new_name, "instructions": _text_of(instructions), "own_memory_only": own_memory_only}
    fields = {key: value for key, value in given.items() if value is not None}
    if not fields:
        raise UsageError("Say what to change: --name, --instructions, --own-memory-only or --all-memory.")
    _change(name, **fields)


@projects.command()
@_NAME
@json_option
def archive(name: str) -> None:
    """Leave a project out of lists."""
    _change(name, archived=True)


@projects.command()
@_NAME
@json_option
def unarchive(name: str) -> None:
    """Take a project out of the archive."""
    _change(name, archived=False)


def _change(wanted: str, /, **fields: Any) -> None:
    async def body(home: Home) -> Project:
        return home.projects.change(home.projects.find(wanted), **fields)

    _say(with_home(body))


def _say(project: Project) -> None:
    if not said_json(project_to_json(project)):
        say(f"{project.id}  {project.name}")


@projects.command()
@click.argument("id", type=SessionId)
@click.argument("name", type=Text, required=False, default="")
@json_option
def move(id: str, name: str) -> None:
    """Move a conversation into a project, or out of one if no project is named, with what was learnt from it."""

    async def body(home: Home) -> SessionInfo:
        project = home.projects.find(name).id if name else ""
        info = await home.sessions.info(id)
        for one in await home.sessions.branches(info):
            await home.move(one.id, project)
        return await home.sessions.info(info.id)

    say_session(with_home(body))


@projects.command()
@_NAME
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def delete(name: str, yes: bool) -> None:
    """Delete a project permanently, with its instructions, conversations and memories."""

    async def body(home: Home) -> Project:
        project = home.projects.find(name)
        infos, memory = await home.sessions_in(project.id), await home.memory_in(project.id)
        count = await memory.count() if memory is not None else 0
        documents = await memory.documents() if memory is not None else ()
        tell(what_goes(project, conversations=len(folded(infos)), memories=count, documents=documents))
        if not yes:
            confirm("Delete it?")
        for info in infos:
            await home.sessions.delete(info.id)
        await home.remove_project(project)
        return project

    project = with_home(body, with_notices=False)
    if not said_json({"deleted": project.id}):
        say(f"Deleted {project.name}.")
