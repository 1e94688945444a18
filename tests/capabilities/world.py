"""What the tests of capabilities share: an open catalogue, and drafts that are good until a test spoils them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from satchel.capabilities.allowances import Allowances, Rules
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.checking import Registrar, Registration
from satchel.capabilities.package import Draft
from satchel.capabilities.records import Capability, Provenance, Wanted
from satchel.capabilities.running import Runner
from satchel.clock import Clock, ManualClock
from satchel.config import PermissionRule
from satchel.errors import UsageError
from satchel.storage import Database
from tests.capabilities.sandboxes import OpenSandbox, opened

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

GREET = Draft(
    code='def run(args: dict) -> str:\n    return "Hello, " + args["city"] + "!"\n',
    description="Greet a city by its name.",
    input_schema=CITY,
    cases='{"name": "Austin", "input": {"city": "Austin"}, "expect": {"equals": "Hello, Austin!"}}\n'
    '{"name": "no city", "input": {}, "expect": {"error": "city"}}\n',
)
BY_BUILDER = Provenance(model="scripted")


def draft(**changes: Any) -> Draft:
    return replace(GREET, **changes)


def cases(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


_empty: list[bytes] = []
"""An empty database with its schema, which takes half a second to make."""


async def make_database(home: Path) -> None:
    """Put an empty database there, if there is none."""
    home.mkdir(parents=True, exist_ok=True)
    place = home / "satchel.db"
    if place.exists():
        return
    if not _empty:
        async with Database.open(place):
            pass
        _empty.append(place.read_bytes())
    else:
        place.write_bytes(_empty[0])


def _gives(rules: Sequence[PermissionRule]) -> Rules:
    async def give() -> Allowances:
        return Allowances(rules)

    return give


@asynccontextmanager
async def open_catalogue(home: Path, *, clock: Clock | None = None) -> AsyncIterator[Catalogue]:
    clock = clock or ManualClock()
    await make_database(home)
    async with Database.open(home / "satchel.db", clock=clock) as database:
        yield await Catalogue.open(database, home=home, clock=clock)


class Workbench:
    """A catalogue with what runs and checks its capabilities.

    Attributes:
        layers: The requirements of each run that had some.
        environ: Where secrets come from.
    """

    def __init__(self, catalogue: Catalogue, *, clock: Clock, rules: Sequence[PermissionRule] = ()) -> None:
        self.catalogue = catalogue
        self.sandbox = OpenSandbox()
        self.layers: list[Sequence[str]] = []
        self.environ: dict[str, str] = {}
        self.runner = Runner(
            catalogue, opened(self.sandbox), layers=self._layer, secret=lambda name: self.environ.get(name)
        )
        self.registrar = Registrar(catalogue, self.runner, clock=clock, allowances=_gives(rules))

    async def _layer(self, requirements: Sequence[str]) -> Path | None:
        self.layers.append(requirements)
        if "no-such-package" in requirements:
            raise UsageError("There is no package no-such-package.")
        return None

    async def register(self, name: str = "greet", spoilt: Draft = GREET) -> Registration:
        if await self.catalogue.find(name) is None:
            await self.catalogue.request(Wanted(name=name, description=spoilt.description or "x"))
        return await self.registrar.register(name, spoilt, provenance=BY_BUILDER)


@asynccontextmanager
async def open_workbench(
    home: Path, *, clock: Clock | None = None, rules: Sequence[PermissionRule] = ()
) -> AsyncIterator[Workbench]:
    clock = clock or ManualClock()
    async with open_catalogue(home, clock=clock) as catalogue:
        yield Workbench(catalogue, clock=clock, rules=rules)


async def register(
    catalogue: Catalogue, name: str = "greet", spoilt: Draft = GREET, *, by: Provenance = BY_BUILDER
) -> Capability:
    """An active capability, as if its cases had passed."""
    if await catalogue.find(name) is None:
        await catalogue.request(Wanted(name=name, description=spoilt.description))
    staged = await catalogue.stage(name, spoilt, provenance=by)
    await catalogue.approve(name, staged.access_to_approve)
    return await catalogue.commit(staged, checks=[])
