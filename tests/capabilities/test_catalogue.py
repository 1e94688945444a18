from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, func, select

from satchel.capabilities import folder as folders
from satchel.capabilities.catalogue import Catalogue, Staged
from satchel.capabilities.forgetting import forget_inputs
from satchel.capabilities.records import Access, Provenance, Wanted, capability_to_json
from satchel.capabilities.tables import capability_runs, metadata
from satchel.clock import ManualClock
from satchel.errors import NotFound, Refused, StorageUnwritable, UsageError
from satchel.storage import Database
from tests.capabilities.world import BY_BUILDER, GREET, cases, draft, open_catalogue, register
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

SAID = 'Ann said "call me" on Mönday'
GREETING = Wanted(name="greet", description="Greet a city.")


def tree(home: Path) -> list[str]:
    """Every file of capabilities below their folder, with "ID" for the id."""
    root = home / "capabilities"
    return sorted(
        "/".join(("ID" if len(part) == 36 else part) for part in path.relative_to(root).parts)
        for path in root.rglob("*")
        if not path.is_dir() and path.name not in (".catalogue", "record.json")
    )


V1 = [
    "ID/v1/RUN.md",
    "ID/v1/SKILL.md",
    "ID/v1/main.py",
    "ID/v1/manifest.json",
    "ID/v1/requirements.txt",
    "ID/v1/tests/cases.jsonl",
]


async def test_the_tables_are_what_the_migrations_make(tmp_path: Path) -> None:
    def differences(connection: Connection) -> list[Any]:
        def mine(_thing: object, name: str | None, kind: str, *_: object) -> bool:
            return kind != "table" or name in metadata.tables

        context = MigrationContext.configure(connection, opts={"include_object": mine, "compare_type": True})
        return list(compare_metadata(context, metadata))

    async with Database.open(tmp_path / "satchel.db") as database:
        assert await database.read(differences) == []


@requirement("capabilities:request:background", "capabilities:status")
async def test_a_request_writes_an_entry_that_is_being_built_and_no_folder(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        asked = await catalogue.request(GREETING, session_id="s1")
        assert (asked.capability.name, asked.capability.status, asked.is_new) == ("greet", "building", True)
        assert asked.build_id
        assert asked.capability.build_id == asked.build_id
        assert asked.capability.provenance.session_id == "s1"
        assert await catalogue.building(asked.build_id) == asked.capability
        assert tree(tmp_path) == []


async def test_of_requests_for_one_name_at_once_one_opens_the_build(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as one, open_catalogue(tmp_path) as other:
        asked = []

        async def ask(catalogue: Catalogue) -> None:
            asked.append(await catalogue.request(GREETING))

        async with anyio.create_task_group() as group:
            for catalogue in (one, other, one, other):
                group.start_soon(ask, catalogue)
        assert sorted(each.is_new for each in asked) == [False, False, False, True]
        assert len({each.build_id for each in asked}) == 1
        assert len({each.capability.id for each in asked}) == 1


@requirement("capabilities:folder", "capabilities:fields")
async def test_a_registered_version_is_a_folder_with_the_files_of_an_agent_skill(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        capability = await register(catalogue)
        assert (capability.status, capability.version, capability.build_id) == ("active", 1, "")
        assert tree(tmp_path) == V1
        assert (capability.folder / "RUN.md").readlink() == Path("SKILL.md")
        assert (
            (capability.folder / "SKILL.md")
            .read_text()
            .startswith(
                '---\nname: greet\ndescription: "Greet a city by its name."\nmetadata:\n  satchel-name: greet\n'
            )
        )
        fields = capability_to_json(capability)
        assert {
            "id", "name", "description", "version", "status", "input_schema", "output_schema", "tags", "path",
            "created_at", "updated_at",
        } <= fields.keys()  # fmt: skip
        assert fields["input_schema"] == GREET.input_schema


@requirement("promise:capability:versions")
async def test_versions_stay_side_by_side_and_any_of_them_can_be_made_active(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        first = await register(catalogue)
        second = await register(catalogue, spoilt=draft(description="Greet a city loudly."))
        assert (second.version, second.description) == (2, "Greet a city loudly.")
        assert (first.folder / "main.py").is_file()
        assert (second.folder / "main.py").is_file()
        back = await catalogue.rollback("greet")
        assert (back.version, back.description) == (1, "Greet a city by its name.")
        assert (await catalogue.activate("greet", 2)).version == 2
        with pytest.raises(NotFound):
            await catalogue.activate("greet", 3)
        await catalogue.rollback("greet")
        with pytest.raises(NotFound):
            await catalogue.rollback("greet")


async def test_a_version_that_waits_for_approval_leaves_the_active_one_in_use(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await register(catalogue)
        staged = await catalogue.stage("greet", draft(hosts=["api.example.org"]), provenance=BY_BUILDER)
        assert staged.access_to_approve == Access(hosts=("api.example.org:443",))
        now = await catalogue.commit(staged, checks=[], status="proposed", reasons=["It wants a host."])
        assert (now.status, now.version, now.access) == ("active", 1, Access())
        with pytest.raises(Refused, match="proposed"):
            await catalogue.activate("greet", 2)
        await catalogue.approve("greet", staged.access_to_approve)
        after = await catalogue.settle("greet", 2, status="ready", checks=[])
        assert (after.status, after.version, after.access.hosts) == ("active", 2, ("api.example.org:443",))


async def test_a_first_version_that_waits_for_approval_makes_the_capability_proposed(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await catalogue.request(GREETING)
        staged = await catalogue.stage("greet", draft(secrets=["KEY"]), provenance=BY_BUILDER)
        now = await catalogue.commit(staged, checks=[], status="proposed", reasons=["It wants a secret."])
        assert (now.status, now.version, now.build_id) == ("proposed", 0, "")
        failed = await catalogue.settle("greet", 1, status="failed", checks=[], reasons=["A case failed."])
        assert (failed.status, failed.reasons) == ("failed", ("A case failed.",))


async def test_a_build_that_fails_keeps_its_reasons_and_can_be_asked_for_again(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        first = await catalogue.request(GREETING)
        failed = await catalogue.fail("greet", ["The host is down."], build_id=first.build_id)
        assert (failed.status, failed.reasons, failed.build_id) == ("failed", ("The host is down.",), "")
        again = await catalogue.request(GREETING)
        assert again.is_new
        assert again.build_id != first.build_id
        assert again.capability.id == failed.id
        # The story of an older build says nothing about the newer one.
        assert (await catalogue.fail("greet", ["late"], build_id=first.build_id)).status == "building"


async def test_a_rebuild_that_fails_leaves_the_active_version_in_use(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await register(catalogue)
        build = await catalogue.rebuild("greet")
        assert (build.is_new, build.capability.status) == (True, "active")
        assert not (await catalogue.rebuild("greet")).is_new
        failed = await catalogue.fail("greet", ["no"], build_id=build.build_id)
        assert (failed.status, failed.version, failed.reasons) == ("active", 1, ("no",))


async def test_a_capability_is_found_by_name_tool_name_and_id(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        capability = await register(catalogue)
        for name in ("greet", "cap_greet", capability.id):
            assert await catalogue.get(name) == capability
        for name in ("", "Greet", "cap_", "cap_cap_greet", "x' OR 1=1 --", "\ud800"):
            assert await catalogue.find(name) is None


async def test_disabled_is_disabled_until_it_is_enabled(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await register(catalogue)
        assert (await catalogue.disable("greet")).status == "disabled"
        with pytest.raises(UsageError):
            await catalogue.disable("greet")
        # A new version of a disabled capability does not switch it on.
        assert (await register(catalogue)).status == "disabled"
        assert (await catalogue.enable("greet")).status == "active"


async def test_removing_leaves_nothing(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await register(catalogue)
        await catalogue.record_run("greet", version=1, status="ok", wall_ms=3.0, peak_mb=1, backend="none")
        await catalogue.remove("greet")
        assert await catalogue.list() == ()
        assert tree(tmp_path) == []
        count = select(func.count()).select_from(capability_runs)
        assert await catalogue._database.read(lambda connection: connection.execute(count).scalar()) == 0


# ---- Nothing half-registered


async def test_a_folder_that_was_lost_is_restored_on_opening(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        folder = (await register(catalogue)).folder
        before = {path: (folder / path).read_bytes() for path in ("main.py", "manifest.json", "SKILL.md")}
        folders.discard(folder)
    async with open_catalogue(tmp_path):
        assert tree(tmp_path) == V1
        assert {path: (folder / path).read_bytes() for path in before} == before


async def test_a_folder_without_a_row_is_moved_aside_and_kept(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        capability = await register(catalogue)
        stray = capability.path / "v2"
        stray.mkdir()
        (stray / "main.py").write_text("mine")
        other = tmp_path / "capabilities" / "0" / "v7"
        other.mkdir(parents=True)
    async with open_catalogue(tmp_path) as catalogue:
        assert not stray.exists()
        assert not other.exists()
        [kept] = (tmp_path / "capabilities" / ".unregistered").glob("*-v2-*/main.py")
        assert kept.read_text() == "mine"
        assert (await catalogue.get("greet")).version == 1


async def test_what_a_registration_left_that_was_cut_off_is_removed_after_a_day(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_catalogue(tmp_path, clock=clock) as catalogue:
        await catalogue.request(GREETING)
        staged = await catalogue.stage("greet", GREET, provenance=BY_BUILDER)
        written = clock.now().timestamp()
        os.utime(staged.folder, (written, written))
    async with open_catalogue(tmp_path, clock=clock):
        assert staged.folder.exists()
    clock.advance(86_401)
    async with open_catalogue(tmp_path, clock=clock):
        assert not staged.folder.exists()


async def add(catalogue: Catalogue, staged: Staged | None) -> None:
    staged = staged or await catalogue.stage("greet", GREET, provenance=BY_BUILDER)
    await catalogue.commit(staged, checks=[])


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fails", ["mkdir", "write", "fsync", "rename"])
async def test_a_full_disk_registers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise FULL

    async with open_catalogue(tmp_path) as catalogue:
        await catalogue.request(GREETING)
        staged = await catalogue.stage("greet", GREET, provenance=BY_BUILDER) if fails == "rename" else None
        with monkeypatch.context() as patched:
            target = {"mkdir": Path, "write": os, "fsync": os, "rename": Path}[fails]
            patched.setattr(target, {"write": "fdopen"}.get(fails, fails), full)
            with pytest.raises(StorageUnwritable):
                await add(catalogue, staged)
        assert (await catalogue.get("greet")).status == "building"
        assert await catalogue.versions("greet") == ()
        assert tree(tmp_path) == []
        assert (await register(catalogue)).version == 1


async def test_a_row_that_can_not_be_written_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await catalogue.request(GREETING)
        staged = await catalogue.stage("greet", GREET, provenance=BY_BUILDER)
        write = catalogue._database.write

        async def moved_then_full(function: Any, *, durable: bool = False) -> Any:
            def fails(connection: Connection) -> None:
                function(connection)
                raise StorageUnwritable("full")

            return await write(fails, durable=durable)

        with monkeypatch.context() as patched:
            patched.setattr(catalogue._database, "write", moved_then_full)
            with pytest.raises(StorageUnwritable):
                await catalogue.commit(staged, checks=[])
        assert tree(tmp_path) == []
        assert await catalogue.versions("greet") == ()


async def test_files_that_can_not_be_packed_leave_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await catalogue.request(GREETING)
        staged = await catalogue.stage("greet", GREET, provenance=BY_BUILDER)

        def full(_: object) -> bytes:
            raise FULL

        with monkeypatch.context() as patched:
            patched.setattr("satchel.capabilities.archive.pack", full)
            with pytest.raises(StorageUnwritable):
                await catalogue.commit(staged, checks=[])
        assert tree(tmp_path) == []
        assert await catalogue.versions("greet") == ()


@requirement("builder:cancel")
async def test_a_build_that_was_closed_registers_nothing(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        first = await catalogue.request(GREETING)
        late = await catalogue.stage("greet", GREET, provenance=Provenance(build_id=first.build_id))
        await catalogue.fail("greet", ["It was cancelled."], build_id=first.build_id)
        with pytest.raises(Refused, match="has ended"):
            await catalogue.commit(late, checks=[])
        # Nor does it when the capability is being built again.
        second = await catalogue.request(GREETING)
        late = await catalogue.stage("greet", GREET, provenance=Provenance(build_id=first.build_id))
        with pytest.raises(Refused):
            await catalogue.commit(late, checks=[])
        assert tree(tmp_path) == []
        ready = await catalogue.stage("greet", GREET, provenance=Provenance(build_id=second.build_id))
        assert (await catalogue.commit(ready, checks=[])).version == 1


async def test_of_two_registrations_of_one_version_one_fails_and_leaves_the_other_whole(
    tmp_path: Path,
) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await catalogue.request(GREETING)
        one = await catalogue.stage("greet", GREET, provenance=BY_BUILDER)
        other = await catalogue.stage("greet", draft(description="Another."), provenance=BY_BUILDER)
        await catalogue.commit(one, checks=[])
        with pytest.raises(UsageError, match="another process"):
            await catalogue.commit(other, checks=[])
        assert tree(tmp_path) == V1
        assert await catalogue.edited("greet", 1) == ()


# ---- What the user edits


@requirement("capabilities:users-edits")
async def test_edits_are_told_and_a_new_version_leaves_them_alone(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        capability = await register(catalogue)
        assert await catalogue.edited("greet", 1) == ()
        (capability.folder / "main.py").write_text('def run(args):\n    return "Mine"\n')
        (capability.folder / "notes.txt").write_text("mine")
        (capability.folder / "__pycache__").mkdir()
        assert await catalogue.edited("greet", 1) == ("main.py", "notes.txt")
        await register(catalogue, spoilt=draft(description="Another."))
        assert "Mine" in (capability.folder / "main.py").read_text()
        await catalogue.rollback("greet")
        assert "Mine" in (capability.folder / "main.py").read_text()


async def test_edits_that_became_a_version_of_their_own_are_undone_by_going_back(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        capability = await register(catalogue)
        mine = 'def run(args: dict) -> str:\n    return "Mine, " + args["city"]\n'
        (capability.folder / "main.py").write_text(mine)
        kept = await register(catalogue, spoilt=draft(code=mine), by=Provenance(made_by="user"))
        assert (kept.folder / "main.py").read_text() == mine
        await catalogue.rollback("greet")
        assert await catalogue.edited("greet", 1) == ()


# ---- Runs


@requirement("capabilities:reliability")
async def test_three_failures_in_a_row_mark_a_capability_and_a_success_clears_the_mark(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with open_catalogue(tmp_path, clock=clock) as catalogue:
        await register(catalogue)

        async def run(status: str, wall_ms: float) -> Any:
            return (
                await catalogue.record_run(
                    "greet", version=1, status=status, wall_ms=wall_ms, peak_mb=wall_ms / 2, backend="b",
                    error="" if status == "ok" else "no", input={"city": status},
                )
            ).reliability  # fmt: skip

        changed = await catalogue.version()
        await run("ok", 10)
        await run("error", 30)
        assert (await run("timeout", 20)).failing_since is None
        marked = await run("error", 20)
        assert (marked.runs, marked.failures, marked.median_ms, marked.peak_mb) == (4, 3, 20, 15)
        assert marked.failing_since == clock.now()
        assert [each.status for each in await catalogue.runs("greet")] == ["error", "timeout", "error", "ok"]
        newest = (await catalogue.runs("greet", failed=True))[0]
        assert (newest.error, newest.input) == ("no", {"city": "error"})
        assert (await run("ok", 10)).failing_since is None
        # Models need not notice runs.
        assert await catalogue.version() == changed


async def test_a_new_version_begins_with_a_clean_record_and_old_runs_are_let_go(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await register(catalogue)
        for _ in range(205):
            await catalogue.record_run("greet", version=1, status="error", wall_ms=1, peak_mb=1, backend="b")
        assert len(await catalogue.runs("greet", limit=1000)) == 200
        assert (await register(catalogue)).reliability.runs == 0


async def test_forgetting_empties_the_inputs_and_errors_that_records_of_runs_keep(tmp_path: Path) -> None:
    async with open_catalogue(tmp_path) as catalogue:
        await register(catalogue)
        await catalogue.record_run(
            "greet", version=1, status="error", wall_ms=1, peak_mb=1, backend="b",
            error="no Ulm", input={"city": "Ulm"},
        )  # fmt: skip
        await forget_inputs(catalogue._database)
        [run] = await catalogue.runs("greet")
        assert (run.status, run.error, run.input) == ("error", "", None)


@requirement("capabilities:earned:forgotten")
@pytest.mark.parametrize(
    "place",
    [
        {"cases": cases({"name": "b", "input": {"city": f"{SAID}!"}, "expect": {"contains": "Hello"}})},
        {"code": GREET.code + f"# {json.dumps(SAID)}\n"},
        {"code": GREET.code + "EXAMPLE = 'Ann said \"call me\" on M\\u00f6nday'\n"},
        {"description": f"Greets, as in '{SAID}'."},
        {},
    ],
)
async def test_a_forgotten_input_is_found_however_it_is_written(
    tmp_path: Path, place: dict[str, Any]
) -> None:
    case = {"name": "a", "input": {"city": SAID}, "expect": {"contains": "Hello"}}
    lines = GREET.cases + cases(case) + place.pop("cases", "")
    async with open_catalogue(tmp_path) as catalogue:
        await register(catalogue, spoilt=draft(cases=lines, **place))
        assert await catalogue.forget_cases("greet", [case]) is (
            lines == GREET.cases + cases(case) and not place
        )
