"""`satchel memory reindex`: compute missing vectors, or switch to another embedder."""

from __future__ import annotations

import sys

import anyio
import click

from satchel.cli.commands import Text, json_option, said_json
from satchel.cli.home import opened_home
from satchel.cli.output import is_terminal, tell
from satchel.cli.settings import read_settings
from satchel.cli.stores import memory_of
from satchel.config import set_value
from satchel.errors import EmbedderError
from satchel.memory import Reindexed
from satchel.runtime.lines import counted


@click.command()
@click.option(
    "--embedder",
    type=Text,
    metavar="NAME",
    help="Switch to this embedder, and set memory.embedder when that is done.",
)
@click.option(
    "--drop-old", is_flag=True, help="Remove the vectors of unused embedders now instead of after a week."
)
@json_option
def reindex(embedder: str | None, drop_old: bool) -> None:
    """Compute the vectors that memories lack.

    The vectors of another embedder are computed beside the old ones, which stay in use until all are there. An
    interrupted run resumes where it stopped.
    """
    settings = read_settings({"memory.embedder": embedder})
    line = EmbeddingLine()

    async def body() -> Reindexed:
        async with opened_home(settings, with_notices=False) as home:
            return await memory_of(home).reindex(drop_old=drop_old, progress=line)

    try:
        done = anyio.run(body)
    finally:
        line.end()
    if embedder is not None and done.in_use:
        set_value(read_settings().config_path, "memory.embedder", embedder)
    if not said_json(done):
        _tell(done, switched=embedder is not None)
    if done.trouble is not None:
        raise EmbedderError(f"The switch to {done.embedder} is not complete; nothing is lost. {done.trouble}")


def _tell(done: Reindexed, *, switched: bool) -> None:
    tell(f"{counted(done.embedded, 'memory', 'memories')} embedded with {done.embedder}.")
    if switched and done.in_use:
        tell(f"Searches use {done.embedder} from now on (memory.embedder in the settings).")
    for name in done.dropped:
        tell(f"The vectors of {name} were removed.")


class EmbeddingLine:
    """One line on the terminal that counts embedded memories."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        """Show the count."""
        if is_terminal(sys.stderr):
            self._shown = True
            print(f"\r\x1b[K{done:,} of {total:,} memories embedded", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line, so that what comes next begins on a new one."""
        if self._shown:
            print(file=sys.stderr)
            self._shown = False
