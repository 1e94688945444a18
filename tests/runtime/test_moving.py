"""Memories that move to a PostgreSQL server and back, and the home that uses them there."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import psycopg
import pytest

from satchel.builder.queue import BuildQueue
from satchel.builder.records import Build
from satchel.capabilities import Wanted
from satchel.capabilities.records import Run
from satchel.clock import Clock, SystemClock
from satchel.config import Settings, load, set_value
from satchel.errors import NotFound, Refused, StorageError, UsageError
from satchel.events import Notice
from satchel.memory.transfer.moving import count_rows, digest_rows
from satchel.runtime.backup import restore
from satchel.runtime.home import Home
from satchel.runtime.made import has_made
from satchel.runtime.memory_work import LOCK
from satchel.runtime.moving import copy_from_server, migrate
from satchel.runtime.names import session_ids
from satchel.runtime.serving import announced
from satchel.sandbox.detached import is_working
from satchel.sessions import SessionStore
from satchel.sessions.moving import NO_CONVERSATIONS, copy_conversations, digest_conversations
from satchel.storage import Database
from satchel.storage.copies import is_in_use
from tests.capabilities.world import GREET, draft, register
from tests.forking import run_python
from tests.postgresql import Server, server_of
from tests.requirements import requirement
from tests.sessions.worlds import exchange, started

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return server_of(tmp_path_factory)


def settings_of(home: Path) -> Settings:
    home.mkdir(mode=0o700, exist_ok=True)
    return load(
        {"SATCHEL_HOME": str(home), "SATCHEL_MEMORY_EMBEDDER": "none", "SATCHEL_MEMORY_WORKER": "off"},
        cwd=home,
    )


async def remember(home: Path) -> None:
    async with Home.open(settings_of(home)) as opened:
        assert opened.memory is not None
        first = await opened.memory.add("The boiler is a Vaillant.", tags=["house"], cues=["heating fails"])
        await opened.memory.edit(first, content="The boiler is a Vaillant ecoTEC.")
        await opened.memory.pin(first)
        gone = await opened.memory.add("The code is in the drawer.", session="s", turn=1)
        await opened.memory.forget([gone])
        async with await opened.sessions.create(home, session_id="s1") as journal:
            await journal.append(
                [started("s1", str(home)), *exchange("The heron nests by the mill", "Noted.")]
            )
            journal.spill_dir.mkdir()
            (journal.spill_dir / "c1.txt").write_bytes(b"a long result")


def logs(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "sessions").rglob("*.jsonl")}


def beside(home: Path) -> list[bytes]:
    return [path.read_bytes() for path in (home / "sessions").rglob("c1.txt")]


def empty_cache(home: Path) -> None:
    for folder in (home / "sessions").rglob("*.spill"):
        shutil.rmtree(folder)


async def said_in(home: Path) -> list[tuple[str, int]]:
    """Where a home finds what was said, in all of its conversations."""
    async with Home.open(settings_of(home)) as opened:
        hits = await opened.sessions.search("heron")
        assert [info.id for info in await opened.sessions.list()] == [hit.session_id for hit in hits]
        return [(hit.session_id, hit.turn) for hit in hits]


async def digest(where: Path | str) -> str:
    async with Database.open(where) as database:
        return await database.read(digest_rows)


@requirement("storage:postgres:moving")
async def test_every_row_moves_there_and_back_and_nothing_stays_behind(
    server: Server, tmp_path: Path
) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path)
    await remember(home)
    before, files = await digest(home / "satchel.db"), logs(home)
    moved = await migrate(settings_of(home), url)
    assert (moved.rows["memories"], moved.conversations) == (1, 1)
    assert logs(home) == {}
    assert b"heron" not in (home / "satchel.db").read_bytes()
    assert settings_of(home).database == url
    assert await digest(url) == before
    async with Database.open(home / "satchel.db") as file:
        assert not any((await file.read(count_rows)).values())
    assert b"ecoTEC" not in (home / "satchel.db").read_bytes()
    async with Home.open(settings_of(home)) as opened:
        assert opened.memory is not None
        assert not opened.notices
        (hit,) = await opened.memory.search("boiler")
        assert hit.memory.pinned
        # What was forgotten in the file is known on the server, whose numbers go on where the file's ended.
        assert opened.memory.rebuilt.memories == 0
        await opened.memory.add("The plumber is called Meier.")
    assert await said_in(home) == [("s1", 1)]
    with pytest.raises(Refused, match="sqlite first"):
        await migrate(settings_of(home), server.url("elsewhere"))
    empty_cache(home)
    back = await migrate(settings_of(home), "sqlite")
    assert beside(home) == [b"a long result"]
    assert (back.rows["memories"], back.conversations) == (4, 1)
    async with Database.open(url) as database:
        assert not any((await database.read(count_rows)).values())
        assert await database.read(digest_conversations) == NO_CONVERSATIONS
    assert logs(home) == files
    assert await said_in(home) == [("s1", 1)]
    async with Home.open(settings_of(home)) as opened:
        assert opened.memory is not None
        assert (await opened.memory.stats()).memories == 4
    with pytest.raises(UsageError):
        await migrate(settings_of(home), "mysql://elsewhere")


@requirement("storage:postgres:moving", "storage:postgres:one-home")
async def test_other_memories_are_neither_overwritten_nor_taken(server: Server, tmp_path: Path) -> None:
    url = server.copy(tmp_path)
    for name in ("one", "other"):
        await remember(tmp_path / name)
    await migrate(settings_of(tmp_path / "one"), url)
    places = url, tmp_path / "other" / "satchel.db"
    kept = [await digest(place) for place in places]
    with pytest.raises(StorageError, match="another home"):
        await migrate(settings_of(tmp_path / "other"), url)
    (tmp_path / "other" / "config.toml").write_text(f'database = "{url}"\n')
    with pytest.raises(StorageError, match="another home"):
        await migrate(settings_of(tmp_path / "other"), "sqlite")
    assert [await digest(place) for place in places] == kept
    async with Home.open(settings_of(tmp_path / "other")) as opened:
        assert any("migrate-database" in notice.text for notice in opened.notices)


@requirement("storage:postgres:moving")
async def test_a_move_back_that_is_killed_goes_on_and_numbers_are_not_given_twice(
    server: Server, tmp_path: Path
) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path)
    await remember(home)
    files = logs(home)
    await migrate(settings_of(home), url)
    for moment in ("set_value", "clear_rows", "clear_conversations"):
        killed = run_python(_KILLED, home, "sqlite", moment)
        assert killed.returncode == -9, killed.stderr
        with pytest.raises(Refused, match="Another move"):
            await migrate(settings_of(home), url)
        assert logs(home) == files
    await migrate(settings_of(home), "sqlite")
    assert logs(home) == files
    async with Database.open(url) as database:
        assert not any((await database.read(count_rows)).values())
        assert await database.read(digest_conversations) == NO_CONVERSATIONS
    async with Home.open(settings_of(home)) as opened:
        assert opened.memory is not None
        for word in ("kestrel", "owl"):
            await opened.memory.forget([await opened.memory.add(f"The {word} sleeps in the attic.")])
        assert (await opened.memory.stats()).forgotten == 3


@requirement("storage:postgres:moving")
async def test_a_home_in_use_is_not_moved_and_the_server_that_uses_it_is_named(
    server: Server, tmp_path: Path
) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path)
    await remember(home)
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM memories'); print(1, flush=1); input()"
    command = [sys.executable, "-c", code, str(home / "satchel.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"1\n"
        who = rf"Process {os.getpid()} \(http://127.0.0.1:7437\) uses"
        with announced(home, "http://127.0.0.1:7437"), pytest.raises(Refused, match=who):
            await migrate(settings_of(home), url)
        with pytest.raises(Refused, match="Another process uses"):
            await migrate(settings_of(home), url)
        other.stdin.close()
    assert (await migrate(settings_of(home), url)).rows["memories"] == 1


@requirement("storage:postgres:moving")
async def test_the_process_that_does_memorys_work_is_ended_for_a_move_and_tab_completes_afterwards(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path)
    await remember(home)
    environ = {"SATCHEL_HOME": str(home), "SATCHEL_MEMORY_EMBEDDER": "none", "SATCHEL_MODEL": "none:none"}
    command = [sys.executable, "-m", "satchel", "memory", "work"]
    works = {**os.environ, **environ, "SATCHEL_MEMORY_WORKER_IDLE_S": "600"}
    with subprocess.Popen(command, env=works, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        with anyio.fail_after(60):
            while not (is_working(home, LOCK) and is_in_use(home / "satchel.db")):
                assert worker.poll() is None
                await anyio.sleep(0.05)
        assert (await migrate(settings_of(home), url)).conversations == 1
        assert worker.wait(60) == 0
    monkeypatch.setenv("SATCHEL_HOME", str(home))
    assert session_ids() == ["s1"]


_KILLED = """
import os, sys, anyio
from pathlib import Path
import satchel.runtime.moving as moving
from satchel.storage.sqlite_file import SqliteDatabase
from tests.runtime.test_moving import settings_of
name = sys.argv[3]
owner = SqliteDatabase if name == "scrub" else moving
def die(*_, **__): os.kill(os.getpid(), 9)
setattr(owner, name, die)
anyio.run(moving.migrate, settings_of(Path(sys.argv[1])), sys.argv[2])
"""


@requirement("storage:postgres:moving")
@pytest.mark.parametrize(
    "moment", ["copy_rows", "digest_rows", "set_value", "clear_rows", "take_in", "scrub"]
)
async def test_a_move_that_is_killed_goes_on(server: Server, tmp_path: Path, moment: str) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path)
    await remember(home)
    before = await digest(home / "satchel.db")
    killed = run_python(_KILLED, home, url, moment)
    assert killed.returncode == -9, killed.stderr
    assert (settings_of(home).database == url) is (moment in ("clear_rows", "take_in", "scrub"))
    await migrate(settings_of(home), url)
    assert await digest(url) == before
    async with Database.open(home / "satchel.db") as file:
        assert not any((await file.read(count_rows)).values())
    assert logs(home) == {}
    assert await said_in(home) == [("s1", 1)]


@requirement("storage:postgres:moving")
async def test_a_conversation_that_goes_on_while_it_moves_back_stays_on_the_server(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path)
    await remember(home)
    await migrate(settings_of(home), url)

    async def and_more(root: Path, there: Database, local: Database, *, clock: Clock) -> int:
        count = await copy_conversations(root, there, local, clock=clock)
        async with await SessionStore(root, there, clock=clock).open("s1") as journal:
            await journal.append([Notice(part="test", text="more")])
        return count

    monkeypatch.setattr("satchel.runtime.moving.copy_conversations", and_more)
    with pytest.raises(Refused, match="A conversation or a capability in .* changed"):
        await migrate(settings_of(home), "sqlite")
    assert settings_of(home).database == url
    assert await said_in(home) == [("s1", 1)]


async def make(home: Path) -> None:
    """Capabilities in each state, one with an edited folder, and builds with messages."""
    async with Home.open(settings_of(home)) as opened:
        catalogue = await opened.catalogue()
        await register(catalogue, "reaches", draft(secrets=["API_KEY"]))
        capability = await register(catalogue, "reaches")
        await register(catalogue, "quiet")
        await catalogue.disable("quiet")
        await register(catalogue, "gone")
        await catalogue.remove("gone")
        await catalogue.request(Wanted(name="wanted", description="Wanted."), build_id="b1")
        await catalogue.record_run(
            "reaches", version=2, status="crashed", wall_ms=1.0, peak_mb=2.0, backend="open", input={"a": 1}
        )
        (capability.folder / "main.py").write_text(f"{GREET.code}# mine\n")
        assert opened.made is not None
        queue = BuildQueue(opened.made, clock=opened.clock, user_id="default")
        now = opened.clock.now()
        await queue.add(
            Build(id="b1", capability_id="c", name="wanted", kind="build", task="Make it.", asked_by="s1",
                  session_id="build-b1", model="m:m", created_at=now, updated_at=now)
        )  # fmt: skip
        await queue.tell("b1", id="q1", type="question", payload={"text": "Which?"})


async def made(home: Path) -> list[object]:
    """All that is known of them."""
    async with Home.open(settings_of(home)) as opened:
        assert not [notice for notice in opened.notices if notice.part == "capabilities"]
        catalogue = await opened.catalogue()
        assert catalogue.returned == ()
        found: list[object] = []
        for one in await catalogue.list():
            found += [replace(one, path=one.path.relative_to(home)), await catalogue.approved(one.id)]
            found += [replace(run, number=0) for run in await catalogue.runs(one.id)]
            for version in await catalogue.versions(one.id):
                found += [replace(version, folder=version.folder.relative_to(home))]
                found += [await catalogue.registered(one.id, version.number)]
                found += [await catalogue.edited(one.id, version.number)]
        assert opened.made is not None
        queue = BuildQueue(opened.made, clock=opened.clock, user_id="default")
        return [*found, *await queue.open_builds(), *await queue.messages("b1"), await queue.version()]


@requirement("storage:postgres:moving", "storage:postgres:capabilities", "storage:postgres:backup")
async def test_capabilities_and_builds_move_there_and_back_and_are_in_backups(
    server: Server, tmp_path: Path
) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path, role="ordinary")
    await remember(home)
    await make(home)
    before = await made(home)
    assert ("main.py",) in before
    assert (await migrate(settings_of(home), url)).capabilities == 3
    async with Database.open(home / "satchel.db") as file:
        assert not await file.read(has_made)
    assert await made(home) == before
    archive = tmp_path / "b.tar.gz"
    environ = {**os.environ, "SATCHEL_HOME": str(home), "SATCHEL_MEMORY_EMBEDDER": "none"}
    subprocess.run([sys.executable, "-m", "satchel", "backup", str(archive)], env=environ, check=True)
    for restored in (tmp_path / "restored", tmp_path / "alone"):
        restore(archive, restored, clock=SystemClock())
    assert await made(tmp_path / "restored") == before
    set_value(tmp_path / "alone" / "config.toml", "database", "")
    assert await made(tmp_path / "alone") == before
    assert (await migrate(settings_of(home), "sqlite")).capabilities == 3
    async with Database.open(url) as database:
        assert not await database.read(has_made)
    assert await made(home) == before


@requirement("storage:postgres:moving", "storage:postgres:capabilities")
async def test_text_that_only_a_file_takes_holds_up_no_capability(server: Server, tmp_path: Path) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path, role="ordinary")
    await make(home)
    with closing(sqlite3.connect(home / "satchel.db")) as file, file:  # as the version before stored it
        file.execute("UPDATE capability_runs SET error = 'x' || char(0)")
        file.execute("UPDATE builds SET task = 'x' || char(0)")
    set_value(home / "config.toml", "database", url)
    before = await made(home)
    assert [one.error for one in before if isinstance(one, Run)] == ["x "]
    async with Home.open(settings_of(home)) as opened:
        assert opened.made is not None
        assert opened.made.is_on_server
        catalogue = await opened.catalogue()
        await catalogue.record_run(
            "reaches",
            version=2,
            status="crashed",
            wall_ms=1.0,
            peak_mb=2.0,
            backend="open",
            error="No file a\0b.",
        )
        assert (await catalogue.runs("reaches"))[0].error == "No file a b."
        queue = BuildQueue(opened.made, clock=opened.clock, user_id="default")
        assert (await queue.end("b1", "failed", "It said \0.")).outcome == "It said  ."
        with pytest.raises(NotFound):
            await queue.get("b1\0")


@requirement("storage:postgres:backup")
async def test_a_backup_holds_what_is_on_the_server(server: Server, tmp_path: Path) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path)
    await remember(home)
    files = logs(home)
    await migrate(settings_of(home), url)
    empty_cache(home)
    archive = home / "b.tar.gz"

    def satchel(*arguments: str) -> str:
        environ = {**os.environ, "SATCHEL_HOME": str(home), "SATCHEL_MEMORY_EMBEDDER": "none"}
        command = [sys.executable, "-m", "satchel", *arguments]
        return subprocess.run(command, env=environ, check=False, capture_output=True, text=True).stdout

    satchel("backup", str(archive))
    with tarfile.open(archive) as packed:
        assert len([name for name in packed.getnames() if Path(name).name in files]) == len(files)
    restore(archive, tmp_path / "restored", clock=SystemClock())
    assert await digest(tmp_path / "restored" / "satchel.db") == await digest(url)
    assert logs(tmp_path / "restored") == files
    assert beside(tmp_path / "restored") == [b"a long result"]
    assert "on the server as they were stored" in satchel("doctor")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE conversation_parts SET content = 'x'")
    assert "s1: c1.txt" in satchel("doctor")


@requirement("storage:postgres:backup", "storage:postgres:moving")
async def test_files_that_are_on_the_machine_alone_are_in_backups_and_move_back(
    server: Server, tmp_path: Path
) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path)
    await remember(home)
    await migrate(settings_of(home), url)

    def as_the_version_before() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DELETE FROM conversation_parts")
            connection.execute("DELETE FROM conversation_files")
        (home / "sessions" / ".stored").unlink(missing_ok=True)

    as_the_version_before()
    (tmp_path / "copy").mkdir()
    await copy_from_server(
        settings_of(home),
        tmp_path / "copy" / "satchel.db",
        tmp_path / "copy" / "sessions",
        clock=SystemClock(),
    )
    assert beside(tmp_path / "copy") == [b"a long result"]
    as_the_version_before()
    await migrate(settings_of(home), "sqlite")
    assert beside(home) == [b"a long result"]


@requirement("storage:postgres:moving")
async def test_no_setting_leaves_memories_behind_and_a_server_that_is_gone_keeps_nobody(
    server: Server, tmp_path: Path
) -> None:
    home, url = tmp_path / "home", server.copy(tmp_path)

    def set_to(where: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "satchel", "config", "set", "database", where],
            env={**os.environ, "SATCHEL_HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )

    await remember(home)
    assert "migrate-database" in set_to(url).stderr
    assert settings_of(home).database == ""
    (home / "config.toml").write_text('database = "postgresql://a@127.0.0.1:1/b"\n')
    assert "not shown" in set_to("").stderr
    assert settings_of(home).database == ""


@requirement("storage:postgres:errors")
def test_without_a_server_conversations_go_on_and_say_that_memory_is_away(tmp_path: Path) -> None:
    home = settings_of(tmp_path / "home").home
    (home / "config.toml").write_text('database = "postgresql://a@127.0.0.1:1/b"\n')
    done = subprocess.run(
        [sys.executable, "-m", "satchel", "ask", "--json", "Hello"],
        env={**os.environ, "SATCHEL_HOME": str(home), "SATCHEL_MEMORY_EMBEDDER": "none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "can't be reached" in done.stdout + done.stderr
    assert "Conversations are kept" in done.stdout + done.stderr
