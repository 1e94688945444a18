"""`kill -9` at any moment of registering: what was acknowledged is there, and nothing is half there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from satchel.clock import SystemClock
from tests.capabilities.world import make_database, open_catalogue
from tests.killing import Killing
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

KILLS = 8


@requirement("capabilities:half-registered")
async def test_kills_lose_no_registered_version_and_leave_no_half_of_one(tmp_path: Path) -> None:
    chance = random.Random(20261122)
    await make_database(tmp_path)
    registered: dict[str, set[int]] = {}
    with Killing("tests.capabilities.register_worker") as killing:
        for _ in killing.rounds(KILLS, lambda: sum(map(len, registered.values())) > KILLS):
            lines = killing.round(
                folder=str(tmp_path),
                name=f"greet_{chance.randint(1, 3)}",
                after=chance.randint(1, 10),
                later_s=chance.uniform(0, 0.03),
            )
            for what, name, *number in lines:
                if what == "registered":
                    registered.setdefault(name, set()).update(number)
            async with open_catalogue(tmp_path, clock=SystemClock()) as catalogue:
                for capability in await catalogue.list():
                    versions = await catalogue.versions(capability.id)
                    numbers = {version.number for version in versions}
                    assert registered.get(capability.name, set()) <= numbers
                    assert capability.version in (numbers or {0})
                    assert {f"v{number}" for number in numbers} == {
                        each.name for each in capability.path.glob("v*")
                    }
                    # Every file of every version is whole.
                    for version in versions[-2:]:
                        assert await catalogue.edited(capability.id, version.number) == ()
                    assert capability.status == ("active" if numbers else "building")
