"""`satchel memory rebuild`: make the memories again from the journal and the session logs."""

from __future__ import annotations

import anyio
import click

from satchel.cli.commands import json_option, said_json
from satchel.cli.output import say, tell
from satchel.cli.settings import read_settings
from satchel.runtime.lines import counted, returned_line
from satchel.runtime.rebuilding import rebuild as rebuild_home


@click.command()
@json_option
def rebuild() -> None:
    """Store what the database lacks of the journal, the session logs and the folders of capabilities.

    A damaged database is set aside, and a new one is made. What was forgotten stays forgotten. Nothing that is there is
    changed, so this can be repeated.
    """
    done = anyio.run(rebuild_home, read_settings())
    data = {
        "journal": done.journal,
        "messages": done.logs.lacking,
        "capabilities": list(done.capabilities),
        "damaged_logs": list(done.logs.damaged),
        "set_aside": done.aside,
    }
    if said_json(data):
        return
    if done.aside is not None:
        say(f"The database was damaged, and is now {done.aside}.")
    say(
        f"From the journal: {counted(done.journal.memories, 'memory', 'memories')} and "
        f"{counted(done.journal.changes, 'change')}; forgotten again: {done.journal.forgotten}."
    )
    say(f"From the conversation logs: {counted(done.logs.lacking, 'message')}.")
    if done.capabilities:
        say(returned_line(done.capabilities))
    for text in done.logs.damaged:
        tell(f"! {text}")
