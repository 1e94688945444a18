"""`satchel memory rebuild`: make the memories again from the journal and the session logs."""

from __future__ import annotations

import anyio
import click

from satchel.cli.commands import json_option
from satchel.cli.output import say, say_json, tell
from satchel.cli.settings import read_settings
from satchel.runtime.lines import counted, returned_line
from satchel.runtime.rebuilding import rebuild as rebuild_home

__all__ = ["rebuild"]


@click.command()
@json_option
def rebuild(as_json: bool) -> None:
    """Store what the database lacks of the journal, the session logs and the folders of capabilities.

    A damaged database is set aside, and a new one is made. What was forgotten stays forgotten. Nothing that is there is
    changed, so this can be repeated.
    """
    settings = read_settings()

    async def body() -> None:
        done = await rebuild_home(settings)
        if as_json:
            say_json(
                {
                    "journal": done.journal,
                    "messages": done.logs.lacking,
                    "capabilities": list(done.capabilities),
                    "damaged_logs": list(done.logs.damaged),
                    "set_aside": None if done.aside is None else str(done.aside),
                }
            )
            return
        if done.aside is not None:
            say(f"The database was damaged, and is now {done.aside}.")
        say(
            f"From the journal: {counted(done.journal.memories, 'memory', 'memories')} and "
            f"{counted(done.journal.changes, 'change')}; forgotten again: {done.journal.forgotten}."
        )
        say(f"From the session logs: {counted(done.logs.lacking, 'message')}.")
        if done.capabilities:
            say(returned_line(done.capabilities))
        for text in done.logs.damaged:
            tell(f"! {text}")

    anyio.run(body)
