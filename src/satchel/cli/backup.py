"""`satchel backup` and `satchel restore`: everything in one file, and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import click

from satchel.cli.commands import confirm, json_option, said_json
from satchel.cli.output import tell
from satchel.cli.settings import read_settings
from satchel.clock import SystemClock
from satchel.runtime.backup import back_up
from satchel.runtime.backup import restore as put_back
from satchel.runtime.lines import counted
from satchel.runtime.moving import copy_from_server


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def backup(file: Path) -> None:
    """Back up memories, conversations, settings and tools to FILE, a .tar.gz.

    Satchel may be in use meanwhile. The backup contains neither the providers' keys nor embedding models, which can be
    fetched again. What you forget later stays in the backup; delete backups for which that matters.
    """
    settings = read_settings()
    clock = SystemClock()
    add: Callable[[Path, Path], None] | None = None
    if isinstance(settings.database_location, str):

        def add(copy: Path, sessions: Path) -> None:
            anyio.run(partial(copy_from_server, settings, copy, sessions, clock=clock))

    done = back_up(settings.home, settings.home_database, file.absolute(), clock=clock, add=add)
    data = {"file": str(done.path), "files": done.files, "bytes": done.bytes, "left_out": list(done.left_out)}
    if not said_json(data):
        tell(
            f"Backed up the memories and {counted(done.files, 'file')} to {done.path} ({done.bytes:,} bytes)."
        )
        for name in done.left_out:
            tell(f"! Left out: {name}, a link that is not followed, or a folder that can't be read.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def restore(file: Path, yes: bool) -> None:
    """Replace SATCHEL_HOME by the backup FILE; the current one is kept beside it.

    What was forgotten since the backup was made comes back.
    """
    settings = read_settings()
    home = settings.home
    if home.exists() and not yes:
        confirm(f"Replace {home} by {file}? The current folder is kept.", doing="restoring")
    if settings.database:
        where = (
            "on a server" if isinstance(settings.database_location, str) else str(settings.database_location)
        )
        tell(f"! The setting `database` is {where}, but the backup restores {home / 'satchel.db'}.")
    done = put_back(file.absolute(), home, clock=SystemClock())
    if said_json({"home": done.home, "files": done.files, "aside": done.aside}):
        return
    tell(f"Restored the memories and {counted(done.files, 'file')} from {file} to {done.home}.")
    if done.aside is not None:
        tell(f"The previous folder is now {done.aside}.")
