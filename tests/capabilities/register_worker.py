"""Registers versions until it is killed: its main program is forked for each round."""

from __future__ import annotations

from pathlib import Path

from satchel.capabilities.records import Wanted
from satchel.clock import SystemClock
from tests.capabilities.world import BY_BUILDER, draft, open_catalogue
from tests.killing import serve, tell

VERSIONS = 6


async def register(folder: str, name: str) -> None:
    """Request one capability and register version after version of it, telling each step that is done."""
    async with open_catalogue(Path(folder), clock=SystemClock()) as catalogue:
        tell("opened", name)
        await catalogue.request(Wanted(name=name, description="Greet a city."))
        tell("requested", name)
        for number in range(VERSIONS):
            staged = await catalogue.stage(
                name, draft(description=f"Version {number}."), provenance=BY_BUILDER
            )
            tell("staged", name)
            done = await catalogue.commit(staged, checks=[])
            tell("registered", name, done.version)
    tell("closed", name)


if __name__ == "__main__":
    serve(register)
