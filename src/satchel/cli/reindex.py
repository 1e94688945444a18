"""`satchel memory reindex`: the vectors of the store, made anew."""

from __future__ import annotations

import sys
from dataclasses import asdict

import anyio
import click

from satchel.cli.commands import Text, json_option
from satchel.cli.home import opened_home
from satchel.cli.output import is_terminal, say_json, tell
from satchel.cli.settings import read_settings
from satchel.config import set_value
from satchel.errors import EmbedderError, StorageError
from satchel.memory import Reindexed

__all__ = ["EmbeddingLine", "reindex"]


@click.command()
@click.option(
    "--embedder",
    type=Text,
    metavar="NAME",
    help="Go over to this embedder, and set memory.embedder to it when it is done.",
)
@click.option(
    "--calibrate", is_flag=True, help="Show the embedder the example messages that surfacing measures with."
)
@click.option(
    "--drop-old", is_flag=True, help="Remove vectors of embedders out of use now, not after a week."
)
@json_option
def reindex(embedder: str | None, calibrate: bool, drop_old: bool, as_json: bool) -> None:
    """Give every memory the vectors that it lacks.

    With another embedder its vectors are made beside the old ones, which serve until all are there. Interrupted, it
    goes on where it was.
    """
    settings = read_settings({"memory.embedder": embedder})
    line = EmbeddingLine()

    async def body() -> Reindexed:
        async with opened_home(settings, with_notices=False) as home:
            if home.memory is None:
                raise StorageError(
                    "Memory is off (memory.enabled) or could not be opened. `satchel doctor` says what is wrong."
                )
            return await home.memory.reindex(calibrate=calibrate, drop_old=drop_old, progress=line)

    try:
        done = anyio.run(body)
    finally:
        line.end()
    if embedder is not None and done.in_use:
        set_value(read_settings().config_path, "memory.embedder", embedder)
    if as_json:
        say_json(asdict(done))
    else:
        _tell(done, switched=embedder is not None)
    if done.trouble is not None:
        raise EmbedderError(f"{done.embedder} did not take over, and nothing is lost. {done.trouble}")


def _tell(done: Reindexed, *, switched: bool) -> None:
    tell(f"{done.embedded:,} memories embedded with {done.embedder}.")
    if switched and done.in_use:
        tell(f"Searches go by {done.embedder} from now on (memory.embedder in the settings).")
    for name in done.dropped:
        tell(f"The vectors of {name} were removed.")
    if done.calibration is not None:
        found = done.calibration
        tell(
            f"Calibrated on {found.examples} example messages: two of them are {found.mean:.2f} ± "
            f"{found.deviation:.2f} alike, and it tells {found.told_apart:.0%} of them right."
        )


class EmbeddingLine:
    """One line that counts, where a person can see it."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        """So many of them are done."""
        if is_terminal(sys.stderr):
            self._shown = True
            print(f"\r\x1b[K{done:,} of {total:,} memories embedded", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._shown:
            print(file=sys.stderr)
            self._shown = False
