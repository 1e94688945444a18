"""`satchel backup` and `satchel restore`: everything in one file, and back again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from satchel.cli.commands import json_option
from satchel.cli.output import is_terminal, say_json, tell
from satchel.cli.settings import read_settings
from satchel.clock import SystemClock
from satchel.errors import UsageError
from satchel.runtime.backup import back_up
from satchel.runtime.backup import restore as put_back

__all__ = ["backup", "restore"]


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def backup(file: Path, as_json: bool) -> None:
    """Write memories, conversations, settings and tools into FILE, a .tar.gz.

    Satchel may be in use meanwhile. Keys of providers are not in it, and neither are models, which are fetched again.
    What is forgotten later stays in a backup: delete those that it matters for.
    """
    settings = read_settings()
    place = settings.database_location
    if not isinstance(place, Path):
        raise UsageError(f"The database {place} is a server's: back it up there.")
    done = back_up(settings.home, place, file.absolute(), clock=SystemClock())
    if as_json:
        say_json({"file": str(done.path), "files": done.files, "bytes": done.bytes})
    else:
        tell(f"{done.path}: the memories and {done.files:,} files, {done.bytes:,} bytes.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def restore(file: Path, yes: bool, as_json: bool) -> None:
    """Put what the backup FILE holds in the place of SATCHEL_HOME, which is kept beside it.

    What was forgotten since the backup was made comes back with it.
    """
    settings = read_settings()
    home = settings.home
    if home.exists() and not yes:
        if not is_terminal(sys.stdin):
            raise UsageError("Restoring needs --yes where nobody can be asked.")
        click.confirm(f"Put {file} in the place of {home}? What is there now is kept.", abort=True, err=True)
    if settings.database_location != home / "satchel.db":
        tell(
            f"! The setting database names {settings.database_location}; what is restored is {home / 'satchel.db'}."
        )
    done = put_back(file.absolute(), home, clock=SystemClock())
    if as_json:
        say_json(
            {
                "home": str(done.home),
                "files": done.files,
                "aside": None if done.aside is None else str(done.aside),
            }
        )
        return
    tell(f"{done.home} holds the memories and {done.files:,} files of {file}.")
    if done.aside is not None:
        tell(f"What was there before is in {done.aside}.")
