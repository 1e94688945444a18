"""A database on a server: transactions, a lost connection, other programs' tables, and what deleted rows leave."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import psycopg
import pytest
from sqlalchemy import Connection, insert, select

from satchel.errors import ConfigError, StorageError, StorageLocked, StorageTooNew, StorageUnreachable
from satchel.memory import Memory
from satchel.memory.store.repository import among
from satchel.memory.store.tables import spaces
from satchel.storage import Database
from satchel.storage.postgresql import NEWEST, look
from scripts.newest_schema import newest_postgresql
from tests.postgresql import Server, server_of
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return server_of(tmp_path_factory)


@pytest.fixture
def url(server: Server, tmp_path: Path) -> str:
    return server.copy(tmp_path)


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def test_the_schema_file_has_every_table_of_memory_and_conversations() -> None:
    assert NEWEST.read_text(encoding="utf-8") == newest_postgresql(), "run scripts/newest_schema.py"


@requirement("storage:postgres:transactions")
async def test_a_change_is_made_whole_or_not_at_all_and_a_reader_sees_one_moment(url: str) -> None:
    def add(connection: Connection) -> None:
        connection.exec_driver_sql("INSERT INTO memory_spaces (user_id, scope, changed) VALUES ('a', 'b', 0)")

    def fail(connection: Connection) -> None:
        add(connection)
        raise RuntimeError

    def count(connection: Connection) -> int:
        return int(connection.exec_driver_sql("SELECT count(*) FROM memory_spaces").scalar_one())

    async with Database.open(url) as database:
        with pytest.raises(RuntimeError):
            await database.write(fail)
        assert await database.read(count) == 0
        await database.write(add)

        def count_twice(connection: Connection) -> tuple[int, int]:
            first = count(connection)
            ask(url, "INSERT INTO memory_spaces (user_id, scope, changed) VALUES ('c', 'd', 0)")
            return first, count(connection)

        assert await database.read(count_twice) == (1, 1)
        assert await database.read(count) == 2
        with pytest.raises(StorageError, match="read-only"):
            await database.read(add)


@requirement("storage:postgres:transactions")
async def test_writers_take_turns_and_one_that_waits_too_long_says_so(url: str) -> None:
    async with Database.open(url) as one, Database.open(url, lock_timeout_s=0.2) as other:
        holds, may_end = threading.Event(), threading.Event()

        def hold(_: Connection) -> None:
            holds.set()
            may_end.wait(60)

        async with anyio.create_task_group() as group:
            group.start_soon(one.write, hold)
            await anyio.to_thread.run_sync(holds.wait)
            with pytest.raises(StorageLocked, match="Others wrote"):
                await other.write(lambda _: None)
            may_end.set()
        await other.write(lambda _: None)


@requirement("storage:postgres:contract")
async def test_text_is_compared_and_sorted_as_it_is_in_a_file(url: str, tmp_path: Path) -> None:
    users = {"ann": "x", "ANNA": None, "Ängström": "B", "Zoe": "a"}

    def ask_all(connection: Connection) -> list[list[str]]:
        for user, journal in users.items():
            row = {"user_id": user, "scope": "", "changed": 0, "journal": journal}
            connection.execute(insert(spaces).values(row))
        name, journal_column = spaces.c.user_id, spaces.c.journal
        queries = (
            select(name).where(name.contains("Ann")).order_by(name),
            select(name).where(name.not_like("%ANN%")).order_by(name.desc()),
            select(name).where(name.contains("ä")).order_by(name),
            select(name).order_by(journal_column, name),
            select(name).order_by(journal_column.desc(), name),
            select(name).where(name.in_(among(["Zoe", "ann"]))).order_by(name),
            select(name).where(spaces.c.changed.not_in(among([1, 2]))).order_by(name),
        )
        return [list(connection.execute(query).scalars()) for query in queries]

    async with Database.open(url) as server, Database.open(tmp_path / "m.db") as file:
        found = await file.write(ask_all)
        assert found[0] == ["ANNA", "ann"]
        assert await server.write(ask_all) == found


@requirement("storage:postgres:lost")
async def test_a_server_that_went_away_is_found_again_and_nothing_is_stored_twice(url: str) -> None:
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut'"
    async with Memory.open(f"{url}&application_name=cut", embedder="none") as memory:
        await memory.add("The boiler is a Vaillant.")
        ask(url, cut)
        await memory.add("The plumber is called Meier.")
        ask(url, cut)
        assert len(await memory.search("plumber Meier", limit=10)) == 1

        def cut_and_write(connection: Connection) -> None:
            ask(url, cut)
            connection.exec_driver_sql("DELETE FROM memory_tags")

        with pytest.raises(StorageError, match="can't be reached"):
            await memory._space.backend.write(cut_and_write)
        assert (await memory.stats()).memories == 2


@requirement("storage:postgres:errors")
async def test_what_cannot_be_used_is_refused_without_its_password(server: Server) -> None:
    async def refused(where: str) -> str:
        with pytest.raises(StorageError) as raised:
            async with Database.open(where):
                raise AssertionError
        return str(raised.value)

    with pytest.raises(ConfigError):
        async with Database.open("postgresql://a@host:port/b"):
            raise AssertionError
    assert "hunter2" not in await refused(f"postgresql://a:hunter2@/nowhere?host={server.folder}")
    assert "can't be reached" in await refused("postgresql://a@127.0.0.1:1/b")
    url = server.url("theirs")
    ask(url, "CREATE TABLE memories (theirs text)")
    assert "'memories' of another program" in await refused(url)
    assert ask(url, "SELECT count(*) FROM memories") == [(0,)]


@contextmanager
def refusing(code: str) -> Iterator[str]:
    """The URL of a server that lets nobody in and says why in German."""
    fields = (
        "SFATAL",
        "VFATAL",
        f"C{code}",
        "MDatenbank \u201eb\u201c gibt es nicht",
        "Fx.c",
        "L1",
        "Rx",
        "",
    )
    said = b"".join(field.encode() + b"\0" for field in fields)

    def answer(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1024)
                    connection.sendall(b"E" + (len(said) + 4).to_bytes(4, "big") + said)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        try:
            port = listener.getsockname()[1]
            yield f"postgresql://a:hunter2@127.0.0.1:{port}/b?sslmode=disable&gssencmode=disable"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@requirement("storage:postgres:errors")
@pytest.mark.parametrize(
    ("code", "is_away"),
    [("28P01", False), ("28000", False), ("3D000", False), ("42501", False)]
    + [("57P03", True), ("53300", True), ("55000", True)],
)
async def test_a_refusal_in_any_language_is_none_of_a_server_that_is_away(code: str, is_away: bool) -> None:
    with refusing(code) as url, pytest.raises(StorageError) as raised:
        async with Database.open(url):
            raise AssertionError
    assert isinstance(raised.value, StorageUnreachable) == is_away
    assert ("refused the connection" in str(raised.value)) == (not is_away)
    assert "hunter2" not in str(raised.value)


@requirement("storage:postgres:errors")
async def test_a_server_that_does_not_answer_is_waited_for_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"postgresql://a@127.0.0.1:{listener.getsockname()[1]}/b?connect_timeout=2"
        with pytest.raises(StorageUnreachable):
            await anyio.to_thread.run_sync(look, url)
        listener.accept()[0].close()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@requirement("storage:postgres:errors")
async def test_a_newer_schema_is_refused(url: str) -> None:
    async with Database.open(url):
        pass
    ask(url, "UPDATE alembic_version SET version_num = '9999_later'")
    with pytest.raises(StorageTooNew, match="9999_later"):
        async with Database.open(url):
            raise AssertionError


@requirement("storage:postgres:one-home")
async def test_the_memory_of_one_home_is_not_opened_by_another(url: str, tmp_path: Path) -> None:
    for home in ("one", "other"):
        (tmp_path / home).mkdir()
    async with Memory.open(url, embedder="none", home=tmp_path / "one") as memory:
        await memory.add("The boiler is a Vaillant.")
    for other in (tmp_path / "other", None):
        with pytest.raises(StorageError, match="another home"):
            async with Memory.open(url, embedder="none", home=other):
                raise AssertionError
    async with Memory.open(url, embedder="none", home=tmp_path / "one") as memory:
        assert (await memory.stats()).memories == 1


@requirement("storage:postgres:forget")
async def test_forgotten_words_are_in_no_file_of_the_server_but_its_log(server: Server, url: str) -> None:
    async with Memory.open(url, embedder="none") as memory:
        id = await memory.add("The zwergkraken lives in the cellar.", tags=["quastenflosser"])
        for number in range(50):
            await memory.add(f"Boat {number} is in the harbour.")
        await memory.edit(id, content="The zwergkraken moved to the attic.")
        assert server.has("zwergkraken")
        receipt = await memory.forget([id])
        assert receipt.log_emptied
        assert not server.has("zwergkraken")
        assert not server.has("quastenflosser")
        assert (await memory.stats()).memories == 50


@requirement("storage:postgres:forget")
@pytest.mark.parametrize(
    ("case", "begins"),
    [
        ("reads", ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT 1")),
        ("writes", ("SELECT pg_current_xact_id()",)),
        ("elsewhere", ("SELECT pg_current_xact_id()",)),
    ],
)
async def test_a_transaction_that_still_sees_the_words_is_told_and_the_scrub_is_made_later(
    server: Server, url: str, case: str, begins: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.storage.postgresql._SCRUB_WAIT_S", 0.2)
    word = f"zwergpudel{case}"  # another case may run on this server at the same time
    # A transaction in another database of the server is older than what is deleted here, too.
    beside = server.url("public") if case == "elsewhere" else url
    async with Memory.open(url, embedder="none") as memory:
        id = await memory.add(f"The {word} lives in the cellar.")
        with psycopg.connect(beside) as reader:
            for begin in begins:
                reader.execute(begin.encode())
            assert not (await memory.forget([id])).log_emptied
            (warning,) = (await memory._space.backend.doctor()).warnings
            assert "started again" in warning
        assert server.has(word)
    monkeypatch.undo()
    async with Memory.open(url, embedder="none") as memory:
        assert not memory._space.backend.is_scrub_due
        assert not server.has(word)
