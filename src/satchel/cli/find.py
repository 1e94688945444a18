"""`satchel find`: one search over conversations, memories, documents, capabilities and settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import anyio
import click

from satchel.cli.commands import Text, json_option, said_json
from satchel.cli.opening import opened
from satchel.cli.output import say, tell
from satchel.cli.settings import read_settings

if TYPE_CHECKING:
    from satchel.server.pages.search import ResultGroup


@click.command()
@click.argument("words", nargs=-1, required=True, type=Text)
@json_option
def find(words: tuple[str, ...]) -> None:
    """Find conversations, memories, documents, capabilities and settings: the best six of each kind.

    Each result has the path of its page, as `satchel serve` shows it; in it is the id that other commands take.
    """

    async def body() -> list[ResultGroup]:
        # Imported on demand: it loads what draws pages.
        from satchel.server.pages.search import find_everything  # noqa: PLC0415

        async with opened(read_settings(), with_notices=False, upkeep="none") as satchel:
            return await find_everything(satchel, " ".join(words))

    groups = anyio.run(body)
    if said_json([asdict(group) for group in groups]):
        return
    for group in groups:
        say(f"{group.name}:")
        for result in group.results:
            say(f"  {result.words}{f' ({result.meta})' if result.meta else ''}  {result.path}")
        if group.problem:
            tell(f"! {group.problem}")
    if not groups:
        tell(f"Nothing is about {' '.join(words)!r}.")
