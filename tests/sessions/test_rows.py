"""Conversations on a server: two machines of one home, what one of them does while the other dies or is away."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import psycopg
import pytest
from sqlalchemy import Connection, text

from satchel.clock import ManualClock
from satchel.errors import NotFound, SessionInUse, StorageError, StorageLocked, UsageError
from satchel.events import Event, Notice, Observation
from satchel.sessions import SessionStore, Words, moving
from satchel.sessions.moving import copy_conversations, take_in
from satchel.sessions.row_uploads import RowUploads
from satchel.storage import HEAD, Database
from tests.forking import Program
from tests.postgresql import Server, server_of
from tests.requirements import requirement
from tests.sessions.worlds import exchange, observed, said, started

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return server_of(tmp_path_factory)


@pytest.fixture
def url(server: Server, tmp_path: Path) -> str:
    return server.copy(tmp_path)


@asynccontextmanager
async def machine(url: str, folder: Path) -> AsyncIterator[SessionStore]:
    async with Database.open(url) as database:
        yield SessionStore(folder / "sessions", database, clock=ManualClock())


def run(url: str, statement: str, *values: object) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


def move_elsewhere(url: str) -> None:
    """Let the writers seem to be processes of another machine, of which nobody here knows whether they live."""
    run(url, "UPDATE conversations SET writer = regexp_replace(writer, '^[^ ]+ [^ ]+', 'elsewhere attic')")


async def texts(store: SessionStore, session_id: str) -> list[str]:
    return [
        record.event.text
        for record in (await store.load(session_id)).records
        if isinstance(record.event, Notice)
    ]


def note(words: str) -> Notice:
    return Notice(part="test", text=words)


@requirement("storage:postgres:conversations")
async def test_another_machine_lists_finds_reads_and_continues_what_the_first_one_began(
    url: str, tmp_path: Path
) -> None:
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        async with await a.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), *exchange("The heron nests", "Noted.")])
        assert [info.title for info in await b.list()] == ["The heron nests"]
        assert [hit.session_id for hit in await b.search("heron nest")] == ["s1"]
        await b.post("s1", source="b", text="a parcel")
        assert [entry.text for entry in await a.inbox.waiting("s1")] == ["a parcel"]
        async with await b.open("s1") as journal:
            await journal.append(exchange("And the kestrel?", "No.", turn=2))
        assert [hit.turn for hit in await a.search("kestrel")] == [2]
        assert [record.seq for record in await a.records("s1", after_seq=4)] == list(range(5, 10))
        assert not list(tmp_path.rglob("*.jsonl"))
        with pytest.raises(UsageError, match="exists already"):
            await b.create("/w", session_id="s1")


@requirement("storage:postgres:conversations")
async def test_a_second_writer_is_told_who_has_the_session_and_gets_it_when_the_lease_is_over(
    url: str, tmp_path: Path
) -> None:
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        journal = await a.create("/w", session_id="s1")
        await journal.append([started("s1", "/w"), note("first")])
        with pytest.raises(SessionInUse, match="already open in this process"):
            await b.open("s1")
        move_elsewhere(url)
        with pytest.raises(SessionInUse, match=rf"process {os.getpid()} on attic"):
            await b.open("s1")
        assert await b.writer("s1") == os.getpid()
        run(url, "UPDATE conversations SET until = until - 60000")
        assert await b.writer("s1") is None
        async with await b.open("s1") as later:
            await later.append([note("second")])
            # The first one was only away. It writes nothing beside the second, and can't end its lease.
            with pytest.raises(SessionInUse, match=rf"taken over by process {os.getpid()}"):
                await journal.append([note("lost")])
            await journal.aclose()
            assert await a.writer("s1") == os.getpid()
            await later.append([note("third")])
        assert await texts(a, "s1") == ["first", "second", "third"]
        assert await a.writer("s1") is None


@requirement("storage:postgres:servers")
async def test_who_gives_a_session_up_is_asked_for_it_and_answers(url: str, tmp_path: Path) -> None:
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        a.hand_over()
        journal = await a.create("/w", session_id="s1")
        await journal.append([started("s1", "/w"), note("first")])
        assert (await a.asked(), await b.writer("s1", keeps=True)) == ([], None)

        async def answer(busy: bool) -> None:
            while await a.asked() != ["s1"]:
                await anyio.lowlevel.checkpoint()
            await (a.refuse("s1") if busy else journal.aclose())

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(answer, True)
                with pytest.raises(SessionInUse, match=rf"busy in process {os.getpid()}: a turn"):
                    await b.open("s1")
            async with anyio.create_task_group() as group:
                group.start_soon(answer, False)
                async with await b.open("s1") as later:
                    await later.append([note("second")])
                    # It has another writer, which gives it up to nobody.
                    with pytest.raises(SessionInUse, match="is already open|is open in"):
                        await a.open("s1")
        assert await texts(a, "s1") == ["first", "second"]


@requirement("storage:postgres:servers")
async def test_a_request_reaches_the_writer_that_had_the_session_once_and_no_later_one(
    url: str, tmp_path: Path
) -> None:
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        a.hand_over()
        journal = await a.create("/w", session_id="s1")
        await journal.append([started("s1", "/w"), note("first")])
        with pytest.raises(SessionInUse) as told:
            await b.check_served("s1")
        assert told.value.served == "s1"
        given: list[bytes | None] = []

        async def ask() -> None:
            given.append(await b.pass_on("s1", lambda _: b"the answer is heron"))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                while not (taken := await a.passed_on()):
                    await anyio.lowlevel.checkpoint()
                assert [(one.session_id, one.last_seq, one.content) for one in taken] == [
                    ("s1", 2, b"the answer is heron")
                ]
                assert (await a.passed_on(), await b.passed_on()) == ([], [])
                await a.answer_passed(taken[0].number, b"done")
            assert given == [b"done"]
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                while run(url, "SELECT content FROM conversation_requests") == []:
                    await anyio.lowlevel.checkpoint()
                # The next writer, in the same process, has another epoch.
                await journal.aclose()
                async with await a.open("s1") as later:
                    assert await a.passed_on() == []
                    await later.append([note("second")])
            assert given == [b"done", None]
            async with await a.open("s1"), anyio.create_task_group() as group:
                group.start_soon(take_and_vanish, a, url)
                with pytest.raises(StorageLocked, match="Look whether it was done"):
                    await b.pass_on("s1", lambda _: b"yes")
        assert run(url, "SELECT * FROM conversation_requests") == []


async def take_and_vanish(store: SessionStore, url: str) -> None:
    while not await store.passed_on():
        await anyio.lowlevel.checkpoint()
    run(url, "UPDATE conversations SET epoch = epoch + 1")


@requirement("storage:postgres:servers")
async def test_the_sessions_of_a_killed_server_on_another_machine_are_waited_for(
    url: str, tmp_path: Path
) -> None:
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        a.hand_over()
        journal = await a.create("/w", session_id="s1")
        await journal.append([started("s1", "/w"), note("first")])
        move_elsewhere(url)

        async def end() -> None:
            while run(url, "SELECT count(*) FROM conversations WHERE handover = 2") != [(1,)]:
                await anyio.lowlevel.checkpoint()
            run(url, "UPDATE conversations SET until = 0")

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(end)
                async with await b.open("s1") as later:
                    with pytest.raises(SessionInUse, match="taken over"):
                        await journal.append([note("lost")])
                    await later.append([note("second")])
        assert await texts(b, "s1") == ["first", "second"]


@requirement("storage:postgres:conversations")
async def test_a_writer_that_waits_for_its_user_keeps_the_session(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.sessions.rows._RENEW_S", 0.01)
    async with (
        machine(url, tmp_path / "a") as a,
        machine(url, tmp_path / "b") as b,
        await a.create("/w", session_id="s1") as journal,
    ):
        await journal.append([started("s1", "/w"), note("first")])
        run(url, "UPDATE conversations SET until = 0")
        with anyio.fail_after(60):
            while await b.writer("s1") is None:
                pass
        with pytest.raises(SessionInUse):
            await b.open("s1")


_WRITES = """
import sys, anyio
from pathlib import Path
from tests.sessions.test_rows import machine, note
from tests.sessions.worlds import started
async def main():
    async with machine(sys.argv[1], Path(sys.argv[2])) as store:
        journal = await store.create("/w", session_id="s1")
        await journal.append([started("s1", "/w")])
        for number in range(10_000):
            await journal.append([note(str(number))], durable=True)
            print(number, flush=True)
anyio.run(main)
"""


@requirement("storage:postgres:conversations")
async def test_what_was_acknowledged_before_a_kill_is_there_and_the_next_writer_need_not_wait(
    url: str, tmp_path: Path
) -> None:
    with Program("-c", _WRITES, url, tmp_path / "a") as killed:
        for line in killed.stdout:
            if line == "7\n":
                killed.send_signal(signal.SIGKILL)
                break
        acknowledged = [7, *map(int, killed.stdout.read().split())][-1]
    async with machine(url, tmp_path / "b") as b, await b.open("s1") as journal:
        await journal.append([note("after")])
        *before, last = await texts(b, "s1")
        assert last == "after"
        assert before == [str(number) for number in range(len(before))]
        assert acknowledged < len(before) <= acknowledged + 2


@requirement("storage:postgres:conversations")
async def test_a_session_goes_on_when_the_server_was_away(url: str, tmp_path: Path) -> None:
    cut = f"{url}&application_name=cut-{tmp_path.name}"
    async with machine(cut, tmp_path) as store, await store.create("/w", session_id="s1") as journal:
        await journal.append([started("s1", "/w"), note("first")])
        run(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            f"cut-{tmp_path.name}"[:63],
        )
        await journal.append([note("second")])
        assert await texts(store, "s1") == ["first", "second"]


@requirement("storage:postgres:conversations")
async def test_a_batch_whose_acknowledgement_was_lost_is_taken_back_by_the_next(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Database.open(url) as database:
        store = SessionStore(tmp_path / "sessions", database, clock=ManualClock())
        async with await store.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), note("first")])
            write = database.write

            async def lost(*arguments: object, **options: object) -> None:
                await write(*arguments, **options)  # type: ignore[arg-type]
                raise StorageError("The connection was lost.")

            with monkeypatch.context() as patched:
                patched.setattr(database, "write", lost)
                with pytest.raises(StorageError, match="lost"):
                    await journal.append([note("kestrel"), note("of nobody")])
            assert len(await store.list()) == 1  # The index has read them.
            (record,) = await journal.append([note("second")])
            assert record.seq == 3
        assert await texts(store, "s1") == ["first", "second"]
        assert (await store.info("s1")).id == "s1"


@requirement("storage:postgres:conversations")
async def test_a_writer_is_told_what_another_machine_has_forgotten_and_the_server_has_none_of_it(
    server: Server, url: str, tmp_path: Path
) -> None:
    secret = "The vault opens with zaunkoenig"
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        async with await a.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), *exchange(secret, "Noted.")])
            assert len(await b.search("vault")) == 1
            assert await journal.take_rewritten() is None
            (done,) = (await b.redact([Words(text=secret)])).sessions
            assert (done.session_id, done.open_in) == ("s1", os.getpid())
            told: list[str] = []

            async def without(words: list[str]) -> list[Event]:
                told.extend(words)
                return [note("It opens.")]

            # Nothing is written before the writer knows.
            await journal.append([note("It opens with zaunkoenig.")], forgotten=without)  # type: ignore[arg-type]
            assert told == [secret]
            assert await journal.take_rewritten() is None
            await b.redact([Words(text="It opens.")])
            assert await journal.take_rewritten() == ("It opens.",)
        assert await a.search("vault") == []
        # A long result of another machine is not here, and may have the words, too.
        async with await a.open("s1") as journal:
            await journal.append(
                [said("rohrdommel", turn=2), observed("c1", "rohrdommel", spill="/elsewhere/c1.txt")]
            )
        (error,) = (await b.redact([Words(text="rohrdommel")])).errors
        assert f"{journal.path.stem}.spill" in error
        assert not server.has("zaunkoenig")


@requirement("storage:postgres:conversations")
async def test_whoever_starts_next_knows_that_forgotten_words_may_still_be_in_the_servers_files(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed() -> bool:
        raise KeyboardInterrupt

    async with Database.open(url) as database:
        store = SessionStore(tmp_path / "sessions", database, clock=ManualClock())
        async with await store.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), note("4711")])
        with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
            patched.setattr(database, "scrub", killed)
            await store.redact([Words(text="4711")])
        assert await texts(store, "s1") == ["[forgotten]"]
    async with Database.open(url) as database:
        assert database.is_scrub_due
        assert await database.scrub()
    async with Database.open(url) as database:
        assert not database.is_scrub_due


@requirement("storage:postgres:conversations")
async def test_conversations_in_files_move_to_the_server_and_back_with_what_waits_for_them(
    url: str, tmp_path: Path
) -> None:
    root = tmp_path / "sessions"
    async with Database.open(tmp_path / "satchel.db") as local, Database.open(url) as there:
        files = SessionStore(root, local, clock=ManualClock())
        for id in ("s1", "s2", "s3"):
            async with await files.create("/w", session_id=id) as journal:
                await journal.append([started(id, "/w"), *exchange("The heron nests", "Noted.")])
        (s3,) = root.rglob("*_s3.jsonl")
        damaged = s3.read_bytes() + b'\xff broken\n\n{"seq":9,"torn'
        s3.write_bytes(damaged)
        await files.post("s1", source="test", text="a parcel")
        assert len(await files.search("heron")) == 3
        before = {path: path.read_bytes() for path in root.rglob("*.jsonl")}
        journal = await files.open("s2")
        unreadable = s3.with_name("2099-01-01_000000_zzz.jsonl")
        unreadable.mkdir()
        held = await take_in(root, local, there, clock=ManualClock())
        assert held == ["zzz", "s2"]
        unreadable.rmdir()
        await journal.aclose()
        # As if a call had been killed between writing and removing: it removes what it finds written.
        s1 = next(path for path in before if path.name.endswith("_s1.jsonl"))
        s1.write_bytes(before[s1])
        assert await take_in(root, local, there, clock=ManualClock()) == []
        assert not list(root.rglob("*.jsonl"))
        assert (
            await local.read(
                lambda connection: connection.execute(text("SELECT count(*) FROM session_passage")).scalar()
            )
            == 0
        )
        assert not [path for path in tmp_path.glob("satchel.db*") if b"heron" in path.read_bytes()]
        rows = SessionStore(root, there, clock=ManualClock())
        assert len(await rows.search("heron")) == 3
        assert (await rows.load("s3")).skipped != ()
        assert [entry.text for entry in await rows.inbox.waiting("s1")] == ["a parcel"]
        async with await rows.open("s1") as journal:
            await journal.append([said("The owl, too", turn=2)])
        # An old copy of a conversation that goes on here is one with less; one with other words stays.
        s1.write_bytes(before[s1])
        assert await take_in(root, local, there, clock=ManualClock()) == []
        s1.write_bytes(before[s1].replace(b"heron", b"stork"))
        assert await take_in(root, local, there, clock=ManualClock()) == ["s1"]
        with pytest.raises(StorageError, match="other words"):
            await copy_conversations(root, there, local, clock=ManualClock())
        s1.unlink()
        assert await copy_conversations(root, there, local, clock=ManualClock()) == 3
        assert s3.read_bytes() == damaged[: damaged.index(b"\n\n") + 1]
        assert s1.read_bytes().startswith(before[s1])
        assert [entry.text for entry in await files.inbox.waiting("s1")] == ["a parcel"]


@requirement("storage:postgres:conversations")
async def test_forgetting_reaches_a_file_that_waits_to_be_moved(url: str, tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    async with Database.open(tmp_path / "satchel.db") as local, Database.open(url) as there:
        # A process that was started while the server was away has the session open.
        begun = SessionStore(root, local, clock=ManualClock())
        async with await begun.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), *exchange("The secret heron", "Noted.")])
            assert await take_in(root, local, there, clock=ManualClock()) == ["s1"]
            rows = SessionStore(root, there, clock=ManualClock())
            done = await rows.redact([Words(text="secret heron")])
            assert [(entry.session_id, entry.open_in) for entry in done.sessions] == [("s1", os.getpid())]
        assert await take_in(root, local, there, clock=ManualClock()) == []
        assert [info.id for info in await rows.list()] == ["s1"]
        assert not await rows.search("heron")


@requirement("storage:postgres:conversations")
async def test_a_move_that_was_killed_after_its_last_file_leaves_no_words_in_the_home(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "sessions"
    async with Database.open(tmp_path / "satchel.db") as local, Database.open(url) as there:
        files = SessionStore(root, local, clock=ManualClock())
        async with await files.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), *exchange("The heron nests", "Noted.")])
        assert len(await files.search("heron")) == 1

        def killed(connection: Connection) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(moving, "_clear_local", killed)
            with pytest.raises(KeyboardInterrupt):
                await take_in(root, local, there, clock=ManualClock())
        assert not list(root.rglob("*.jsonl"))
        assert await take_in(root, local, there, clock=ManualClock()) == []
        assert (
            await local.read(
                lambda connection: connection.execute(text("SELECT count(*) FROM session_passage")).scalar()
            )
            == 0
        )
        assert not [path for path in tmp_path.glob("satchel.db*") if b"heron" in path.read_bytes()]


@requirement("storage:postgres:conversations")
async def test_a_session_is_held_once_in_a_process_and_opens_again_if_its_release_was_lost(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Database.open(url) as database:
        store = SessionStore(tmp_path / "sessions", database, clock=ManualClock())
        journal = await store.create("/w", session_id="s1")
        with pytest.raises(SessionInUse, match="already open in this process"):
            await store.create("/w", session_id="s1")
        await journal.append([started("s1", "/w"), note("first")])

        def away(function: object) -> None:
            raise StorageError("The server is away.")

        with monkeypatch.context() as patch:
            patch.setattr(database, "write_blocking", away)
            await journal.aclose()
        async with await store.open("s1") as journal:
            await journal.append([note("second")])
            assert await texts(store, "s1") == ["first", "second"]
            run(url, "UPDATE conversations SET epoch = epoch + 1")
            with pytest.raises(SessionInUse, match="taken over"):
                await journal.append([note("third")])


@requirement("storage:postgres:conversations")
async def test_results_that_cannot_be_removed_keep_their_conversation_so_that_it_can_be_deleted_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine(url, tmp_path / "a") as store:
        async with await store.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), *exchange("hello", "there")])
            journal.spill_dir.mkdir(parents=True)
            (journal.spill_dir / "long.txt").write_text("words")

        def denied(folder: Path) -> None:
            raise PermissionError(13, "Permission denied", str(folder))

        with monkeypatch.context() as patch:
            patch.setattr("satchel.sessions.rows.shutil.rmtree", denied)
            with pytest.raises(StorageError):
                await store.delete("s1")
        await store.delete("s1")
        assert not list(tmp_path.rglob("long.txt"))


@requirement("storage:postgres:conversations")
async def test_a_server_of_the_version_before_gets_the_tables_that_a_new_one_has(url: str) -> None:
    columns = (
        "SELECT table_name, column_name, data_type, collation_name, is_nullable FROM information_schema.columns "
        "WHERE table_schema = current_schema() ORDER BY 1, 2"
    )
    indexes = "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1"
    quoted = (
        "SELECT attrelid::regclass::text, attname FROM pg_attribute WHERE attstattarget = 0 AND attnum > 0 "
        "AND attrelid IN (SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = "
        "current_schema()::regnamespace) ORDER BY 1, 2"
    )
    policies = "SELECT tablename, qual FROM pg_policies WHERE schemaname = current_schema() ORDER BY 1"
    async with Database.open(url):
        pass
    wanted = [run(url, query) for query in (columns, indexes, quoted, policies)]
    assert all(wanted)

    def older(connection: Connection) -> None:
        tables = (
            "session_client_place, session_entry, session_folder, session_inbox, session_log, session_passage, "
            "session_settled"
        )
        own = ", ".join(
            f"conversation_{name}" for name in ("costs", "files", "lines", "parts", "requests", "uploads")
        )
        made = connection.execute(
            text(
                "SELECT string_agg(tablename, ', ') FROM pg_tables WHERE schemaname = current_schema() "
                "AND (tablename LIKE 'capabilit%' OR tablename LIKE 'build%')"
            )
        ).scalar_one()
        connection.execute(text(f"DROP TABLE conversations, browser_logins, {own}, {tables}, {made}"))
        for table, _ in connection.execute(text(policies)).all():
            connection.execute(text(f"DROP POLICY of_user ON {table}"))
            connection.execute(
                text(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY")
            )
        connection.execute(text("UPDATE alembic_version SET version_num = '0021_times'"))

    async with Database.open(url) as database:
        await database.write(older)
    async with Database.open(url):
        assert [run(url, query) for query in (columns, indexes, quoted, policies)] == wanted
    assert run(url, "SELECT version_num FROM alembic_version") == [(HEAD,)]


@requirement("storage:postgres:files")
async def test_a_file_that_was_sent_at_two_servers_waits_for_two_messages(url: str, tmp_path: Path) -> None:
    now = ManualClock().now()

    def send_and_take(database: Database) -> None:
        here, there = (RowUploads(tmp_path / name, database) for name in "ab")
        file = here.add([b"a,b"], name="a.csv", now=now)
        there.add([b"a,b"], name="b.csv", now=now)
        for uploads in (here, there):
            assert uploads.take([file], tmp_path / "kept") == [file]
            uploads.drop([file])
        with pytest.raises(NotFound):
            here.take([file], tmp_path / "kept")
        with pytest.raises(NotFound):
            here.take([replace(file, sha256="")], tmp_path / "kept")
        assert not [path for name in "ab" for path in (tmp_path / name / "uploads").iterdir()]

    async with Database.open(url) as database:
        await anyio.to_thread.run_sync(send_and_take, database)


@requirement("storage:postgres:files")
async def test_files_beside_a_conversation_are_on_every_machine_before_a_record_names_them(
    url: str, tmp_path: Path
) -> None:
    odd = os.fsdecode(b"attached/a %\xc3\xbc\xff.png")
    names = {"c1.txt": b"long", odd: bytes(range(256)) * 9000, "empty": b""}
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        async with await a.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), *exchange("Look", "Yes.")])
            for name, content in names.items():
                file = journal.spill_dir / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            await journal.append([observed("c1", "lo", spill=str(journal.spill_dir / "c1.txt"))])
            assert run(url, "SELECT count(*) FROM conversation_files") == [(3,)]
            # Another machine may read them while this one writes.
            folder = await b.folder_of(await b.info("s1"), "c1")
            assert [path.name for path in folder.rglob("*")] == ["c1.txt"]
        (journal.spill_dir / "c1.txt").write_bytes(b"not what was stored")
        async with await b.open("s1") as journal:
            for name, content in names.items():
                assert (journal.spill_dir / name).read_bytes() == content
            (journal.spill_dir / "c1.txt").write_bytes(b"longer")
            (journal.spill_dir / "empty").unlink()
        # What the log names is what is stored; the cache may have been emptied, or be an old one.
        async with await a.open("s1") as journal:
            assert (journal.spill_dir / "c1.txt").read_bytes() == b"longer"
            assert (journal.spill_dir / "empty").read_bytes() == b""
        branch = await b.branch("s1", 2)
        # The log names a file of the other machine's home.
        (result,) = [one.event for one in await b.records(branch) if isinstance(one.event, Observation)]
        async with await b.open(branch) as journal:
            assert result.spill == str(journal.spill_dir / "c1.txt")
            assert len([path for path in journal.spill_dir.rglob("*") if path.is_file()]) == 3
        assert await b.damaged_files() == []
        run(url, "UPDATE conversation_parts SET content = 'x' WHERE name = 'c1.txt' AND session_id = 's1'")
        assert await b.damaged_files() == ["s1: c1.txt"]
        for id in ("s1", branch):
            await a.delete(id)
        assert run(url, "SELECT count(*) FROM conversation_parts") == [(0,)]


@requirement("storage:postgres:files")
async def test_a_batch_that_is_not_stored_stores_no_file_and_what_is_for_undo_outlives_a_kill(
    url: str, tmp_path: Path
) -> None:
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        journal = await a.create("/w", session_id="s1")
        await journal.append([started("s1", "/w"), *exchange("Look", "Yes.")])
        changes = journal.spill_dir / "changes"
        changes.mkdir(parents=True)
        (changes / "journal.jsonl").write_bytes(b"1\n")
        await journal.append([observed("c1", "done")])
        run(url, "UPDATE conversations SET epoch = epoch + 1")
        (journal.spill_dir / "c2.txt").write_bytes(b"lost")
        with pytest.raises(SessionInUse):
            await journal.append([observed("c2", "lost")])
        # The process is killed here: nobody was told of the second result, and a file may have been changed.
        (changes / "journal.jsonl").write_bytes(b"1\n2\n")
        (changes / "0f").write_bytes(b"before")
        await journal.aclose()
        run(url, "UPDATE conversations SET until = 0")
        assert run(url, "SELECT name FROM conversation_files") == [("changes/journal.jsonl",)]
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        async with await a.open("s1") as journal:
            assert not (journal.spill_dir / "c2.txt").exists()
            assert (changes / "journal.jsonl").read_bytes() == b"1\n2\n"
            await journal.append([said("And now?", turn=2)])
        async with await b.open("s1") as journal:
            assert (journal.spill_dir / "changes" / "journal.jsonl").read_bytes() == b"1\n2\n"
            assert (journal.spill_dir / "changes" / "0f").read_bytes() == b"before"


@requirement("storage:postgres:files")
async def test_forgetting_reaches_the_files_of_every_machine(
    server: Server, url: str, tmp_path: Path
) -> None:
    secret = "the vault opens with rohrsaenger"
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        async with await a.create("/w", session_id="s1") as journal:
            spill = journal.spill_dir / "c1.txt"
            (journal.spill_dir / "attached").mkdir(parents=True)
            (journal.spill_dir / "attached" / "00-a.txt").write_text(secret)
            spill.write_text(f"{secret}, and more")
            await journal.append(
                [started("s1", "/w"), said(secret), observed("c1", secret, spill=str(spill))]
            )
            (done,) = (await b.redact([Words(text=secret)])).sessions
            assert (len(done.files), done.error) == (1, "")
            # The other machine has the conversation open.
            assert await journal.take_rewritten() is not None
            assert spill.read_text() == "[forgotten], and more"
            (attached,) = await b.files_beside("attached/00-", fetches=False)
            await b.remove_files([attached])
            assert await journal.take_rewritten() == ()
            assert not (journal.spill_dir / "attached" / "00-a.txt").exists()
        assert await b.search("vault") == []
        await (await a.open("s1")).aclose()
        async with Database.open(url) as database:
            assert await database.scrub()
        assert not server.has("rohrsaenger")


@requirement("storage:postgres:files")
async def test_files_of_conversations_move_there_and_back_and_old_copies_are_swept(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "sessions"
    async with Database.open(tmp_path / "satchel.db") as local, Database.open(url) as there:
        files, rows = (SessionStore(root, database, clock=ManualClock()) for database in (local, there))
        async with await files.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), *exchange("Look", "Yes.")])
            journal.spill_dir.mkdir()
            (journal.spill_dir / "c1.txt").write_bytes(b"long")
        with monkeypatch.context() as patch:
            patch.setattr("satchel.sessions.rows.damaged_files", lambda *_: [("s1", "c1.txt")])
            assert await take_in(root, local, there, clock=ManualClock()) == ["s1"]
        assert journal.path.exists()
        assert await take_in(root, local, there, clock=ManualClock()) == []
        assert run(url, "SELECT name, size FROM conversation_files") == [("c1.txt", 4)]
        gone = journal.spill_dir.with_name("2020-01-01_000000_gone.spill")
        (gone / "changes").mkdir(parents=True)
        (gone / "changes" / "0f").write_bytes(b"of nobody")
        os.utime(gone, (0, 0))
        for mtime, is_there in ((None, True), ((0, 0), False)):
            os.utime(journal.spill_dir, mtime)
            await rows.unsettled()
            assert journal.spill_dir.exists() == is_there
        assert not gone.exists()
        assert await copy_conversations(root, there, local, clock=ManualClock()) == 1
        assert (journal.spill_dir / "c1.txt").read_bytes() == b"long"
        before = await there.read(moving.digest_conversations)
        (journal.spill_dir / "c1.txt").write_bytes(b"longer")
        await rows.keep_files([journal.spill_dir / "c1.txt"])
        assert await there.read(moving.digest_conversations) != before
        run(url, "UPDATE conversation_parts SET content = 'x'")
        with pytest.raises(StorageError, match="damaged"):
            await copy_conversations(root, there, local, clock=ManualClock())


@requirement("storage:postgres:names")
@pytest.mark.parametrize(
    "name",
    [
        "../2026-01-01_000000_s1.jsonl",
        "w/../../2026-01-01_000000_s1.jsonl",
        "/tmp/x/2026-01-01_000000_s1.jsonl",
        "w/.profile",
    ],
)
async def test_a_row_that_names_another_place_writes_and_reads_nothing_there(
    url: str, tmp_path: Path, name: str
) -> None:
    root = tmp_path / "home" / "sessions"
    async with (
        machine(url, tmp_path / "a") as a,
        Database.open(url) as there,
        Database.open(tmp_path / "l.db") as local,
    ):
        async with await a.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), *exchange("The heron nests", "Noted.")])
        await a.part(most=1)
        for table in ("conversations", "session_log"):
            run(url, f"UPDATE {table} SET name = '{name}'")
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(StorageError, match="can't be in a home"):
            await copy_conversations(root, there, local, clock=ManualClock())
        with pytest.raises(StorageError, match="can't be in a home"):
            await a.part(most=1)
        assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and path.is_file()] == []


@requirement("storage:postgres:names")
async def test_a_row_is_one_line_of_a_file_whatever_somebody_wrote_into_it(url: str, tmp_path: Path) -> None:
    root = tmp_path / "home" / "sessions"
    async with (
        machine(url, tmp_path / "a") as a,
        Database.open(url) as there,
        Database.open(tmp_path / "l.db") as local,
    ):
        async with await a.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), note("first"), note("second")])
        run(url, "UPDATE conversation_lines SET line = line || '\\012'::bytea || line WHERE seq = 2")
        assert await texts(a, "s1") == ["second"]
        await copy_conversations(root, there, local, clock=ManualClock())
        assert await texts(SessionStore(root, local, clock=ManualClock()), "s1") == ["second"]


@requirement("storage:postgres:files")
async def test_files_that_were_on_one_machine_alone_are_stored_once_before_they_are_swept_or_fetched(
    url: str, tmp_path: Path
) -> None:
    names = ("c1.txt", "attached/00-a.png", "changes/0f")

    def on_disk(spill: Path) -> dict[str, bytes]:
        return {name: (spill / name).read_bytes() for name in names if (spill / name).exists()}

    async with machine(url, tmp_path / "a") as a:
        for id in ("s1", "s2"):
            async with await a.create("/w", session_id=id) as journal:
                await journal.append([started(id, "/w"), *exchange("Look", "Yes.")])
                for name in names:
                    (journal.spill_dir / name).parent.mkdir(parents=True, exist_ok=True)
                    (journal.spill_dir / name).write_bytes(name.encode())
                await journal.append([observed("c1", "lo", spill=str(journal.spill_dir / "c1.txt"))])
    spills = sorted((tmp_path / "a").rglob("*.spill"))
    wanted = [on_disk(spill) for spill in spills]
    assert [len(found) for found in wanted] == [3, 3]
    # As the version before left it.
    run(url, "DELETE FROM conversation_parts")
    run(url, "DELETE FROM conversation_files")
    (tmp_path / "a/sessions/.stored").unlink(missing_ok=True)
    for spill in spills:
        os.utime(spill, (0, 0))
    async with machine(url, tmp_path / "a") as a:
        await (await a.open("s1")).aclose()
        assert on_disk(spills[0]) == wanted[0]
        os.utime(spills[0], (0, 0))
        await a.unsettled()
        assert not any(spill.exists() for spill in spills)
        for id in ("s1", "s2"):
            await a.folder_of(await a.info(id))
        assert [on_disk(spill) for spill in spills] == wanted
        # What another machine removes afterwards stays removed.
        run(url, "DELETE FROM conversation_parts")
        run(url, "DELETE FROM conversation_files")
    async with machine(url, tmp_path / "a") as a:
        await (await a.open("s1")).aclose()
        assert [*on_disk(spills[0])] == ["changes/0f"]


@requirement("storage:postgres:conversations")
async def test_what_was_spent_is_a_sum_of_the_servers(url: str, tmp_path: Path) -> None:
    async with machine(url, tmp_path / "a") as a, machine(url, tmp_path / "b") as b:
        async with await a.create("/w", session_id="s1") as journal:
            await journal.append([started("s1", "/w"), *exchange("Look", "Yes.")])
            ((day, cost),) = {(row.day, row.usage.cost_usd) for one in await b.list() for row in one.spent}
            assert cost is not None
            assert await a.spent_on(day) == await b.spent_on(day) == pytest.approx(cost)
        async with await b.open("s1") as journal:
            await journal.append(exchange("Again", "Yes.", turn=2))
        branch = await b.branch("s1", 2)
        assert await a.spent_on(day) == await b.spent_on(day) == pytest.approx(2 * cost)
        assert cost > 0
        # What was lost with an acknowledgement is not counted twice: a batch says what the whole log costs.
        run(url, "UPDATE conversation_costs SET cost = 1000")
        async with await b.open("s1") as journal:
            await journal.append(exchange("Again", "Yes.", turn=3))
        assert await a.spent_on(day) == pytest.approx(3 * cost)
        for id in ("s1", branch):
            await a.delete(id)
        assert await a.spent_on(day) == 0
