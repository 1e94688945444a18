"""Exporting as an Agent Skill, and importing after a review."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from satchel.capabilities.archive import pack
from satchel.capabilities.moving import Mover
from satchel.capabilities.records import Access
from satchel.clock import ManualClock
from satchel.errors import NoSandbox, NotFound, UsageError
from satchel.sandbox.port import RunResult, Status
from tests.capabilities.world import GREET, Workbench, draft, open_workbench
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def home(place: Path, *, clock: ManualClock | None = None) -> AsyncIterator[tuple[Workbench, Mover]]:
    async with open_workbench(place, clock=clock) as bench:
        yield bench, Mover(bench.catalogue, bench.registrar)


async def exported(place: Path, target: Path, **changes: object) -> Path:
    """A capability that some home made and exported."""
    async with home(place) as (bench, mover):
        await bench.register("city_greeting", draft(**changes))
        if changes:
            await bench.registrar.approve("city_greeting")
        return await mover.export("city_greeting", target)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@requirement("capabilities:export")
async def test_an_exported_folder_is_named_as_the_skill_and_has_the_files_of_the_version(
    tmp_path: Path,
) -> None:
    folder = await exported(tmp_path / "one", tmp_path)
    assert folder == tmp_path / "city-greeting"
    assert (folder / "SKILL.md").read_text().startswith("---\nname: city-greeting\n")
    assert (folder / "RUN.md").readlink() == Path("SKILL.md")
    assert set(contents(folder)) == {
        "SKILL.md",
        "main.py",
        "manifest.json",
        "requirements.txt",
        "tests/cases.jsonl",
    }
    async with home(tmp_path / "one") as (_, mover):
        with pytest.raises(UsageError, match="exists already"):
            await mover.export("city_greeting", tmp_path)
        with pytest.raises(NotFound):
            await mover.export("city_greeting", tmp_path / "x", number=7)


@requirement("capabilities:import", "capabilities:export")
@pytest.mark.parametrize("form", ["folder", "zip", "the folder that was named"])
async def test_what_is_exported_and_imported_is_the_same_again_byte_for_byte(
    tmp_path: Path, form: str
) -> None:
    target = tmp_path / ("a.zip" if form == "zip" else "a")
    written = await exported(tmp_path / "one", target)
    async with home(tmp_path / "two", clock=ManualClock(elapsed_s=5)) as (bench, mover):
        review = await mover.review(target if form == "the folder that was named" else written)
        assert (review.access, review.notes, review.replaces) == (Access(), (), None)
        done = await mover.take_in(review, approve=True)
        assert (done.is_active, done.capability.name, done.capability.status) == (
            True,
            "city_greeting",
            "active",
        )
        assert done.capability.provenance.made_by == "import"
        again = await mover.export("city_greeting", tmp_path / ("b.zip" if form == "zip" else "b"))
        assert len(bench.sandbox.specs) == 1
    if form == "zip":
        assert again.read_bytes() == written.read_bytes()
    else:
        assert contents(again) == contents(written)


@requirement("capabilities:import")
async def test_nothing_runs_before_the_approval_and_then_the_cases_decide(tmp_path: Path) -> None:
    written = await exported(tmp_path / "one", tmp_path / "a.zip", hosts=["a.example"])
    async with home(tmp_path / "two") as (bench, mover):
        review = await mover.review(written)
        assert review.sentences == ("city_greeting may connect to a.example.",)
        waiting = await mover.take_in(review, approve=False)
        assert (waiting.capability.status, waiting.is_active) == ("proposed", False)
        assert bench.sandbox.specs == []
        approved = await bench.registrar.approve("city_greeting")
        assert (approved.capability.status, bench.sandbox.specs[-1].network.hosts) == (
            "active",
            ("a.example:443",),
        )


async def test_an_import_whose_cases_fail_is_failed_with_the_reasons(tmp_path: Path) -> None:
    written = await exported(tmp_path / "one", tmp_path)
    async with home(tmp_path / "two") as (bench, mover):
        bench.sandbox.answers = [RunResult(status=Status.OK, result="Bye.")]
        done = await mover.take_in(await mover.review(written), approve=True)
        assert (done.capability.status, done.is_active) == ("failed", False)
        assert done.capability.reasons == ("Case 'Austin': the result is not 'Hello, Austin!': 'Bye.'",)
        [version] = await bench.catalogue.versions("city_greeting")
        assert version.status == "failed"


async def test_without_a_sandbox_an_import_leaves_nothing(tmp_path: Path) -> None:
    written = await exported(tmp_path / "one", tmp_path)
    async with home(tmp_path / "two") as (bench, mover):
        bench.sandbox.answers = [NoSandbox("There is none.")]
        review = await mover.review(written)
        with pytest.raises(NoSandbox):
            await mover.take_in(review, approve=True)
        assert await bench.catalogue.list() == ()


async def test_an_import_over_a_capability_is_a_new_version_that_is_used_if_wanted(tmp_path: Path) -> None:
    written = await exported(tmp_path / "one", tmp_path)
    async with home(tmp_path / "two") as (bench, mover):
        await bench.register("city_greeting", draft(description="Mine."))
        ready = await mover.take_in(await mover.review(written), approve=True)
        assert (ready.number, ready.is_active, ready.capability.version) == (2, False, 1)
        with pytest.raises(NotFound):
            await bench.registrar.to_approve("city_greeting")
        active = await bench.catalogue.activate("city_greeting", 2)
        assert active.description == "Greet a city by its name."
        package = await bench.catalogue.registered("city_greeting", 2)
        assert json.loads(package.files["manifest.json"])["version"] == 2


async def test_the_same_version_is_imported_once(tmp_path: Path) -> None:
    written = await exported(tmp_path / "one", tmp_path)
    async with home(tmp_path / "two") as (_, mover):
        await mover.take_in(await mover.review(written), approve=True)
        review = await mover.review(written)
        assert review.same_as == 1
        with pytest.raises(UsageError, match="as version 1"):
            await mover.take_in(review, approve=True)


async def test_an_import_that_waits_says_so_when_it_is_imported_again(tmp_path: Path) -> None:
    written = await exported(tmp_path / "one", tmp_path)
    async with home(tmp_path / "two") as (_, mover):
        await mover.take_in(await mover.review(written), approve=False)
        again = await mover.review(written)
        with pytest.raises(
            UsageError, match="waits for your approval: satchel capability approve city_greeting"
        ):
            await mover.take_in(again, approve=True)


async def test_files_that_were_changed_after_the_export_are_named_and_imported_as_they_are(
    tmp_path: Path,
) -> None:
    folder = await exported(tmp_path / "one", tmp_path)
    (folder / "main.py").write_text(GREET.code + "# mine\n")
    async with home(tmp_path / "two") as (bench, mover):
        review = await mover.review(folder)
        [note] = review.notes
        assert "main.py" in note
        await mover.take_in(review, approve=True)
        assert b"# mine" in (await bench.catalogue.registered("city_greeting", 1)).files["main.py"]


async def test_a_skill_that_is_no_capability_is_told_where_it_belongs(tmp_path: Path) -> None:
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "SKILL.md").write_text("---\nname: skill\n---\n")
    async with home(tmp_path / "two") as (_, mover):
        with pytest.raises(UsageError, match="SATCHEL_HOME/skills"):
            await mover.review(tmp_path / "skill")
        with pytest.raises(NotFound):
            await mover.review(tmp_path / "nothing")


def entry(name: str, *, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return info


def archive_of(*entries: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def lying(size: int) -> bytes:
    """An archive that says that its file is small."""
    content = archive_of(("main.py", b"x" * size))
    return content.replace(size.to_bytes(4, "little"), (5).to_bytes(4, "little"))


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "a path above": lambda: archive_of(("../evil.py", b"x")),
    "a path above in a folder": lambda: archive_of(("a/../../evil.py", b"x")),
    "an absolute path": lambda: archive_of(("/etc/evil", b"x")),
    "a backslash": lambda: archive_of(("a\\..\\evil", b"x")),
    "a link": lambda: archive_of((entry("main.py", mode=stat.S_IFLNK | 0o777), b"/etc/passwd")),
    "a link named RUN.md to elsewhere": lambda: archive_of((entry("RUN.md", mode=stat.S_IFLNK | 0o777), b"/etc/hosts")),
    "a pipe": lambda: archive_of((entry("main.py", mode=stat.S_IFIFO | 0o644), b"")),
    "a bomb": lambda: archive_of(("main.py", b"\0" * 50_000_000)),
    "a bomb of many files": lambda: archive_of(*((f"{n}.txt", b"\0" * 900_000) for n in range(100))),
    "a bomb that lies about its size": lambda: lying(40_000_000),
    "a thousand entries": lambda: archive_of(*((f"{n}.txt", b"") for n in range(1000))),
    "a file twice": lambda: pack({"main.py": b"x"}) and _twice(),
    "no archive": lambda: b"PK\x03\x04 and nothing",
    "nothing": lambda: b"",
    "cut off": lambda: archive_of(("main.py", b"x" * 1000))[:-30],
    "too large": lambda: b"x" * 8_000_001,
}  # fmt: skip


def _twice() -> bytes:
    with pytest.warns(UserWarning, match="Duplicate"):
        return archive_of(("main.py", b"x"), ("main.py", b"y"))


@pytest.mark.parametrize("what", ARCHIVES)
async def test_a_hostile_archive_is_refused_and_changes_nothing(tmp_path: Path, what: str) -> None:
    place = tmp_path / "in" / "a.zip"
    place.parent.mkdir()
    place.write_bytes(ARCHIVES[what]())
    before = sorted(path.name for path in tmp_path.rglob("*"))
    async with home(tmp_path / "two") as (bench, mover):
        with pytest.raises(UsageError):
            await mover.review(place)
        assert await bench.catalogue.list() == ()
    assert sorted(p.name for p in tmp_path.rglob("*") if not p.is_relative_to(tmp_path / "two")) == before


@pytest.mark.parametrize("what", ["link", "folder link", "pipe", "huge", "many"])
async def test_a_hostile_folder_is_refused(tmp_path: Path, what: str) -> None:
    folder = await exported(tmp_path / "one", tmp_path)
    match what:
        case "link":
            (folder / "data.txt").symlink_to("/etc/passwd")
        case "folder link":
            (folder / "data").symlink_to("/etc")
        case "pipe":
            os.mkfifo(folder / "data.txt")
        case "huge":
            with (folder / "data.bin").open("wb") as file:
                file.truncate(10 << 30)
        case _:
            for number in range(300):
                (folder / f"f{number}").touch()
    async with home(tmp_path / "two") as (_, mover):
        with pytest.raises(UsageError):
            await mover.review(folder)
