"""`satchel migrate-database`: memories and conversations from the home to a PostgreSQL server, and back."""

from __future__ import annotations

from functools import partial

import anyio
import click

from satchel.cli.commands import Text, confirm, json_option, said_json
from satchel.cli.output import tell
from satchel.cli.settings import read_settings
from satchel.runtime.lines import counted
from satchel.runtime.moving import migrate


@click.command()
@click.option("--to", required=True, metavar="URL", type=Text, help="postgresql://USER@HOST/NAME, or sqlite.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def migrate_database(to: str, yes: bool) -> None:
    """Move memories, conversations and capabilities to a PostgreSQL server, or back to SATCHEL_HOME.

    Everything is copied and compared; then the setting `database` is changed, and what was copied is removed where it
    was. Killed at any moment, it can be started again. Don't put a password into the URL: set
    PGPASSWORD, or use ~/.pgpass.
    """
    settings = read_settings()
    if not yes:
        confirm(
            "Move all memories, conversations and capabilities, and remove them where they are now?",
            doing="moving",
        )
    done = anyio.run(partial(migrate, settings, to))
    if said_json(done):
        return
    rows = counted(sum(done.rows.values()), "row")
    memories = counted(done.rows.get("memories", 0), "memory", "memories")
    capabilities = counted(done.capabilities, "capability", "capabilities")
    tell(
        f"Moved {memories} ({rows}), {counted(done.conversations, 'conversation')} and {capabilities}, all compared, "
        f"from {done.source} to {done.target}."
    )
    for session_id in done.left:
        tell(
            f"! Session {session_id} stays a file: another process has it open, it can't be read or removed, "
            "or another one has its id there."
        )
    if not done.is_clean:
        tell(
            f"! Another transaction is open in {done.source}, whose files may keep the words. Move again later."
        )
