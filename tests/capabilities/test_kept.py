"""A database that was lost, or that lost its end, has its capabilities again; nobody else's changes become approvals."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.kept import Returned
from satchel.capabilities.records import Access, capability_to_json, version_to_json
from satchel.clock import ManualClock
from satchel.errors import StorageUnwritable
from satchel.storage import Database
from tests.capabilities.world import BY_BUILDER, GREET, draft, make_database, open_catalogue, register
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

REACHED = draft(hosts=["api.example.org"], secrets=["API_KEY"], state=True)
ACCESS = Access(hosts=("api.example.org:443",), secrets=("API_KEY",), state=True)


async def a_catalogue(catalogue: Catalogue) -> None:
    """One of each: with approvals and two versions, disabled, proposed and removed."""
    await register(catalogue, "reaches")
    await catalogue.approve("reaches", ACCESS)
    await register(catalogue, "reaches", REACHED)
    await register(catalogue, "quiet")
    await catalogue.disable("quiet")
    await register(catalogue, "waits")
    staged = await catalogue.stage("waits", REACHED, provenance=BY_BUILDER)
    await catalogue.commit(staged, checks=[], status="proposed", reasons=["It wants a host."])
    await register(catalogue, "gone")
    await catalogue.remove("gone")


async def state(catalogue: Catalogue) -> dict[str, Any]:
    """All that the user knows of the catalogue, but for the runs."""
    found = {}
    for capability in await catalogue.list():
        entry = capability_to_json(capability)
        del entry["reliability"]
        versions = [version_to_json(version) for version in await catalogue.versions(capability.id)]
        found[capability.name] = (entry, versions, await catalogue.approved(capability.id))
    return found


def lose_database(home: Path) -> None:
    for file in home.glob("satchel.db*"):
        file.unlink()


@requirement("promise:durable:capabilities")
async def test_a_home_that_has_lost_its_database_has_its_capabilities_as_they_were(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await a_catalogue(catalogue)
        before = await state(catalogue)
    lose_database(tmp_path)
    async with open_catalogue(tmp_path) as catalogue:
        assert [each.name for each in catalogue.returned] == ["quiet", "reaches", "waits"]
        assert not any(each.is_changed for each in catalogue.returned)
        assert await state(catalogue) == before
        assert await catalogue.edited("reaches", 2) == ()
        await catalogue.withdraw("reaches")
    async with open_catalogue(tmp_path) as catalogue:
        assert catalogue.returned == ()
        assert await catalogue.approved("reaches") == Access()


@requirement("promise:durable:capabilities")
async def test_a_database_that_lost_its_end_has_what_was_decided_last(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await register(catalogue, "reaches")
        await catalogue.approve("reaches", ACCESS)
        await register(catalogue, "gone")
    for file in tmp_path.glob("satchel.db*"):
        shutil.copy(file, tmp_path / f"old-{file.name}")
    async with open_catalogue(tmp_path) as catalogue:
        await catalogue.withdraw("reaches")
        await register(catalogue, "reaches", draft(description="Greet a city loudly."))
        await catalogue.remove("gone")
        before = await state(catalogue)
    lose_database(tmp_path)
    for file in tmp_path.glob("old-*"):
        file.rename(tmp_path / file.name.removeprefix("old-"))
    async with open_catalogue(tmp_path) as catalogue:
        assert await state(catalogue) == before
        assert before.keys() == {"reaches"}
        assert before["reaches"][2] == Access()


@requirement("promise:durable:capabilities")
async def test_files_that_are_not_those_that_were_registered_come_back_as_a_proposal(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await a_catalogue(catalogue)
        (folder,) = [each.folder for each in await catalogue.list("active") if each.name == "reaches"]
        old = folder.with_name("v1")
    (folder / "main.py").write_text(GREET.code.replace("Hello", "Goodbye"))
    (old / "main.py").unlink()
    lose_database(tmp_path)
    async with open_catalogue(tmp_path) as catalogue:
        assert Returned(name="reaches", is_changed=True) in catalogue.returned
        capability = await catalogue.get("reaches")
        assert (capability.status, capability.version, capability.access) == ("proposed", 0, Access())
        assert await catalogue.approved("reaches") == Access()
        (version,) = await catalogue.versions("reaches")
        assert (version.number, version.status) == (2, "proposed")
        assert b"Goodbye" in (await catalogue.registered("reaches", 2)).files["main.py"]
        assert await catalogue.edited("reaches", 2) == ()
        assert (await catalogue.get("quiet")).status == "disabled"


async def test_an_approval_that_could_not_be_stored_does_not_come_back_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await register(catalogue, "reaches")
        write = catalogue._database.write
        failed: list[bool] = []

        async def full_once(function: Callable[[Connection], Any], *, durable: bool = False) -> Any:
            def fails(connection: Connection) -> Any:
                result = function(connection)
                if not failed:
                    failed.append(True)
                    raise StorageUnwritable("full")
                return result

            return await write(fails, durable=durable)

        with monkeypatch.context() as patched:
            patched.setattr(catalogue._database, "write", full_once)
            with pytest.raises(StorageUnwritable):
                await catalogue.approve("reaches", ACCESS)
    lose_database(tmp_path)
    async with open_catalogue(tmp_path) as catalogue:
        assert (await catalogue.get("reaches")).status == "active"
        assert await catalogue.approved("reaches") == Access()


async def test_a_home_of_an_earlier_release_gets_its_records(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await a_catalogue(catalogue)
        before = await state(catalogue)
    for record in (tmp_path / "capabilities").glob("*/record.json"):
        record.unlink()
    (tmp_path / "capabilities/.catalogue").unlink()
    async with open_catalogue(tmp_path) as catalogue:
        assert catalogue.returned == ()
    lose_database(tmp_path)
    async with open_catalogue(tmp_path) as catalogue:
        assert await state(catalogue) == before


async def test_a_home_of_an_earlier_release_that_is_read_only_has_its_capabilities(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await a_catalogue(catalogue)
        before = await state(catalogue)
    (tmp_path / "capabilities/.catalogue").unlink()
    async with Database.open(tmp_path / "satchel.db") as database:
        database.refuse_writes("It is read-only.")
        catalogue = await Catalogue.open(database, home=tmp_path, clock=ManualClock())
        assert await state(catalogue) == before


async def test_a_damaged_record_makes_no_capability_and_its_folders_are_kept(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        path = (await register(catalogue)).path
    record = path / "record.json"
    record.write_text(record.read_text().replace('"active"', "7"))
    lose_database(tmp_path)
    await make_database(tmp_path)
    async with open_catalogue(tmp_path) as catalogue:
        assert await catalogue.list() == ()
        assert list((tmp_path / "capabilities/.unregistered").glob("*-v1-*/main.py"))
