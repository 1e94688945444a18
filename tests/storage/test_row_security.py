"""Row-level security: what a transaction for one user reads and changes without a condition, as an ordinary role."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, Executable, Table, delete, func, insert, select, update

from satchel.builder.queue import BuildQueue
from satchel.builder.records import Build
from satchel.builder.tables import metadata as builds
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.tables import capability_approvals
from satchel.capabilities.tables import metadata as capabilities
from satchel.clock import SystemClock
from satchel.errors import SatchelError, StorageUnwritable
from satchel.memory import Episode, Memory
from satchel.memory.store.tables import memories, metadata, models, spaces, tags, vectors
from satchel.memory.text.hashing import WordHasher
from satchel.models import ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.storage import Database
from tests.capabilities.world import draft, register
from tests.postgresql import Server, server_of
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 30, tzinfo=UTC)
OF_NOBODY = {"embedding_models", "memory_claims"}
"""Tables that all users of a database share: names of models, and which process is at work."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return server_of(tmp_path_factory)


@pytest.fixture
def url(server: Server, tmp_path: Path) -> str:
    return server.copy(tmp_path, role="ordinary")


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    """Memories of Ann and of Ben, with vectors."""
    async with Database.open(url) as database:
        for user in ("ann", "ben"):
            async with Memory.open(database, embedder=HashingEmbedder(), user=user) as memory:
                first = await memory.add(f"The boat of {user} is in the harbour.", tags=[user])
                await memory.add(f"The boat of {user} is green.", tags=[user])
                await memory.edit(first, content=f"The boat of {user} is at sea.")
                await memory.search("boat", limit=5)
        yield database


def run(statement: Executable, connection: Connection) -> None:
    connection.execute(statement)


def count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


@requirement("storage:postgres:rows-of-a-user")
async def test_a_query_without_a_condition_finds_only_rows_of_its_user(database: Database) -> None:
    def counts(connection: Connection) -> dict[str, int]:
        return {table.name: count(connection, table) for table in metadata.sorted_tables}

    everything = await database.read(counts)
    assert {spaces.name, memories.name, tags.name, vectors.name} <= {
        n for n, rows in everything.items() if rows
    }
    for user in ("ann", "ben"):
        own = await database.of(user).read(counts)
        shared = OF_NOBODY & set(everything)
        assert own == {name: rows if name in shared else rows // 2 for name, rows in everything.items()}
        said = await database.of(user).read(
            lambda connection: connection.execute(select(tags.c.tag)).scalars().all()
        )
        assert set(said) == {user}
    stranger = await database.of("eve").read(counts)
    assert {name for name, rows in stranger.items() if rows} <= OF_NOBODY
    assert await database.read(counts) == everything


@requirement("storage:postgres:rows-of-a-user")
async def test_a_change_without_a_condition_leaves_other_users_rows(database: Database) -> None:
    ann = database.of("ann")
    bens = await database.of("ben").read(
        lambda connection: connection.execute(select(memories.c.rid)).scalars().all()
    )
    space = await database.of("ben").read(
        lambda connection: connection.execute(select(spaces.c.id)).scalar_one()
    )
    mine = await ann.read(lambda connection: connection.execute(select(memories.c.rid)).scalars().all())

    def contents(connection: Connection) -> Sequence[str]:
        return connection.execute(select(memories.c.content).order_by(memories.c.rid)).scalars().all()

    before = await database.of("ben").read(contents)
    for refused in (
        insert(tags).values(rid=bens[0], tag="hers", position=9),
        insert(spaces).values(user_id="ben", scope="hers", changed=0),
        update(memories).values(space_id=space),
        update(tags).where(tags.c.rid == mine[0]).values(rid=bens[0]),
    ):
        with pytest.raises(StorageUnwritable, match="row-level security"):
            await ann.write(partial(run, refused))
    await ann.write(partial(run, update(memories).values(content="Nothing.")))
    assert set(await ann.read(contents)) == {"Nothing."}
    for table in (tags, vectors, memories, spaces):
        await ann.write(partial(run, delete(table)))
    assert await database.of("ben").read(contents) == before
    assert await database.read(lambda connection: count(connection, memories)) == len(before)


@requirement("storage:postgres:rows-of-a-user", "storage:postgres:capabilities")
async def test_two_users_have_capabilities_of_one_name_and_neither_reaches_the_others(
    url: str, tmp_path: Path
) -> None:
    clock, seal, tables = SystemClock(), WordHasher(tmp_path / "forgotten.key"), capabilities.sorted_tables
    async with Database.open(url) as database:

        async def of(user: str) -> Catalogue:
            return await Catalogue.open(database, home=tmp_path, clock=clock, user=user, seal=seal)

        def counts(connection: Connection) -> dict[str, int]:
            return {table.name: count(connection, table) for table in (*tables, *builds.sorted_tables)}

        ids = {}
        for user in ("ann", "ben"):
            catalogue = await of(user)
            made = await register(catalogue, "greet", draft(secrets=[f"KEY_OF_{user.upper()}"]))
            await register(catalogue, "gone")
            await catalogue.remove("gone")
            ids[user] = made.id
            await catalogue.record_run(
                "greet",
                version=1,
                status="crashed",
                wall_ms=1.0,
                peak_mb=1.0,
                backend="open",
                input={"city": user},
            )
            queue, now = BuildQueue(database, clock=clock, user_id=user), clock.now()
            build = Build(id=user, capability_id=made.id, name="greet", kind="repair", task="", asked_by="",
                          session_id=user, model="", created_at=now, updated_at=now)  # fmt: skip
            await queue.add(build)
            await queue.tell(user, id="q", type="question", payload={"text": "Which?"})
        everything = await database.read(counts)
        assert {name for name, rows in everything.items() if rows == 0} <= {"capability_vectors"}
        for user in ("ann", "ben"):
            assert await database.of(user).read(counts) == {name: n // 2 for name, n in everything.items()}
            [mine] = await (await of(user)).list()
            assert (mine.id, mine.access.secrets) == (ids[user], (f"KEY_OF_{user.upper()}",))
            assert await (await of(user)).find(ids["ben" if user == "ann" else "ann"]) is None
            assert [b.id for b in await BuildQueue(database, clock=clock, user_id=user).open_builds()] == [
                user
            ]
        assert set((await database.of("eve").read(counts)).values()) == {0}
        granted = {"capability_id": ids["ben"], "kind": "secret", "value": "HOME", "approved_at": 0}
        with pytest.raises(StorageUnwritable, match="row-level security"):
            await database.of("ann").write(partial(run, insert(capability_approvals).values(granted)))
        for table in (*reversed(builds.sorted_tables), *reversed(tables)):
            await database.of("ann").write(partial(run, delete(table)))
        assert await database.read(counts) == {name: n // 2 for name, n in everything.items()}
        # What Ann's rows have lost comes back from the folders that both share, and Ben's stays as it was.
        assert [each.id for each in await (await of("ann")).list()] == [ids["ann"]]
        bens = await of("ben")
        assert (await bens.checkout(await bens.get("greet"))).edited is False
        await (await of("ann")).remove("greet")
        assert [each.id for each in await bens.list()] == [ids["ben"]]
        assert bens.returned == ()


@requirement("storage:postgres:rows-of-a-user")
async def test_a_transaction_for_all_users_looks_for_the_owner_of_no_row(database: Database) -> None:
    def plan(connection: Connection) -> Sequence[str]:
        explain = "EXPLAIN (ANALYZE, TIMING OFF) SELECT count(*) FROM memory_words"
        return connection.exec_driver_sql(explain).scalars().all()

    owners = [line for line in await database.read(plan) if " on memor" in line and "_words" not in line]
    assert owners
    assert all("never executed" in line for line in owners)


@requirement("storage:postgres:rows-of-a-user")
async def test_every_table_of_memory_is_secured_also_after_an_upgrade(url: str) -> None:
    def secured() -> dict[str, tuple[object, ...]]:
        with psycopg.connect(url) as connection:
            rows = connection.execute(
                "SELECT relname, relrowsecurity, relforcerowsecurity, polcmd, pg_get_expr(polqual, oid) "
                "FROM (SELECT c.*, p.polcmd, p.polqual FROM pg_class c JOIN pg_policy p ON p.polrelid = c.oid) found "
                "WHERE relnamespace = current_schema()::regnamespace"
            ).fetchall()
        return {name: tuple(rest) for name, *rest in rows}

    async with Database.open(url):
        new = secured()
    of_users = (*metadata.sorted_tables, *capabilities.sorted_tables, *builds.sorted_tables)
    assert set(new) == {table.name for table in of_users} - OF_NOBODY
    assert models.name in OF_NOBODY
    assert {each[:3] for each in new.values()} == {(True, True, "*")}
    with psycopg.connect(url) as connection:
        for table in (*reversed(builds.sorted_tables), *reversed(capabilities.sorted_tables)):
            connection.execute(f"DROP TABLE {table}".encode())
        connection.execute("DROP TABLE session_entry, session_folder")
        connection.execute("ALTER TABLE session_log DROP COLUMN entry")
        for table in new.keys() & {table.name for table in metadata.sorted_tables}:
            connection.execute(f"DROP POLICY of_user ON {table}".encode())
            connection.execute(
                f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY".encode()
            )
        connection.execute("UPDATE alembic_version SET version_num = '0025_several_servers'")
    assert not secured()
    async with Database.open(url):
        assert secured() == new


@requirement("storage:postgres:rows-of-a-user")
async def test_doctor_names_a_role_that_row_level_security_does_not_hold_where_users_share_tables(
    server: Server, url: str
) -> None:
    above = url.replace("ordinary@", "satchel@")
    for user in ("ann", "bob"):
        async with Memory.open(url, user=user, embedder="none") as memory:
            await memory.add("The heron nests in the reeds.")
        if user == "ann":
            async with Database.open(above) as database:
                assert not (await database.doctor()).warnings
    async with Database.open(url) as database:
        assert not (await database.doctor()).warnings
    async with Database.open(above) as database:
        (warning,) = (await database.doctor()).warnings
        assert "2 users share the tables" in warning
        assert "satchel is a superuser" in warning


async def asked_of_everything(memory: Memory, ids: Sequence[str], folder: Path) -> str:
    """Call every public method of a memory with each of these ids, hashes and names, and return all that it says."""
    said: list[str] = []
    model = ScriptedModel(lambda _: "[]")
    for name, method in inspect.getmembers(Memory, inspect.iscoroutinefunction):
        for id in ids if not name.startswith("_") else ():
            values = {
                "id": id, "ids": [id], "change_id": id, "source": id, "target": ids[0], "older": id, "newer": ids[0],
                "scope": id, "session": id, "path": id, "sources": [id], "memories": [], "episodes": [], "asked": [],
                "passages": [(None, "", "A boat.")], "title": id, "digest": id, "written_at": NOW, "moment": NOW,
                "content": "A boat.", "text": "# People\nBen: sails", "query": "code of the boat", "question": "the code",
                "messages": "What is the code of the boat?", "into": memory, "where": folder / "export.jsonl",
                "every": 1, "after_s": 0.0, "model": model,
            }  # fmt: skip
            parameters = [*inspect.signature(method).parameters.values()][1:]
            wanted = [
                each
                for each in parameters
                if each.default is each.empty and not each.kind.name.startswith("VAR")
            ]
            known = {each.name: values[each.name] for each in wanted}
            if "ids" in (each.name for each in parameters):
                known["ids"] = [id]
            try:
                said.append(str(await getattr(memory, name)(**known)))
            except SatchelError as error:
                said.append(str(error))
            said += [file.read_text() for file in folder.glob("*.jsonl")]
    return "".join([*said, str(model.requests)])


@requirement("storage:postgres:rows-of-a-user", "people:apart:doors")
async def test_no_method_of_memory_reaches_another_users_words_in_the_same_tables(
    url: str, tmp_path: Path
) -> None:
    async with Database.open(url) as database:
        open = partial(Memory.open, database, embedder=HashingEmbedder())
        async with open(user="ann") as ann:
            fact = await ann.add("The code of the boat is marzipan.", tags=["boat"])
            await ann.edit(fact, content="The code of the boat is marzipan again.")
            said = Episode(session="s-ann", turn=1, speaker="user", text="The code: marzipan.", said_at=NOW)
            [turn] = await ann.add_episodes([said])
            await ann.put_document(
                "/ann/boat.txt", [(None, "", "marzipan")], title="b", digest="d", written_at=NOW
            )
            await ann.edit_page("# People\nThe code of the boat: marzipan")
            await ann.search("boat")
            change = (await ann.history(fact))[0].id
        ids = [fact, turn, change, "s-ann", "/ann/boat.txt", "default"]

        def rows(connection: Connection) -> dict[str, list[str]]:
            found = {table.name: connection.execute(select(table)).all() for table in metadata.sorted_tables}
            return {name: sorted(map(str, each)) for name, each in found.items() if name not in OF_NOBODY}

        before = await database.of("ann").read(rows)
        async with open(user="ben") as ben:
            assert "marzipan" not in await asked_of_everything(ben, ids, tmp_path)
        assert await database.of("ann").read(rows) == before
        # By herself, she is told all of it.
        async with open(user="ann") as ann:
            assert (await asked_of_everything(ann, ids[:1], tmp_path)).count("marzipan") > 10
