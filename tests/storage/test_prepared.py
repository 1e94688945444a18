"""Statements that go to the driver as they are: the same transactions, the same errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    insert,
    literal,
    select,
    update,
)

from satchel.errors import StorageError, StorageUnwritable
from satchel.storage import Database, Prepared

pytestmark = pytest.mark.anyio

notes = Table(
    "notes",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("words", Text, nullable=False, unique=True),
    Column("bytes", LargeBinary),
    Column("seen", Integer, nullable=False),
)
ADD = Prepared(insert(notes).returning(notes.c.id), columns=["words", "bytes", "seen"])
SEE = Prepared(
    update(notes)
    .where(notes.c.words == bindparam("name"))
    .values(seen=notes.c.seen + 1)
    .returning(notes.c.seen, notes.c.bytes)
)


def note(words: str) -> dict[str, object]:
    return {"words": words, "bytes": b"\x00\xff", "seen": 0, "not a column": 1}


async def opened(database: Database) -> Database:
    await database.write(lambda connection: notes.create(connection))
    return database


async def test_it_takes_values_by_name_and_gives_rows_as_the_driver_does() -> None:
    async with Database.open(":memory:") as database:
        await opened(database)
        assert await database.write(lambda connection: ADD.run(connection, note('It\'s :a "ü"'))) == [(1,)]
        await database.write(lambda connection: ADD.run_all(connection, [note("b"), note("c")]))
        await database.write(lambda connection: ADD.run_all(connection, []))
        assert await database.write(lambda connection: SEE.run(connection, {"name": "c"})) == [
            (1, b"\x00\xff")
        ]
        assert await database.write(lambda connection: SEE.run(connection, {"name": "nobody"})) == []


async def test_named_rows_have_the_columns_as_attributes_and_a_list_may_be_part_of_a_statement() -> None:
    chosen = Prepared(
        select(notes.c.id, notes.c.words)
        .where(notes.c.words.in_(map(literal, ("a", "c"))))
        .order_by(notes.c.id)
    )
    async with Database.open(":memory:") as database:
        await opened(database)
        await database.write(lambda connection: ADD.run_all(connection, [note("a"), note("b"), note("c")]))
        rows = await database.read(lambda connection: chosen.named(connection, {}))
    assert [(row.id, row.words) for row in rows] == [(1, "a"), (3, "c")]


async def test_what_it_did_goes_with_its_transaction(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "notes.db") as database:
        await opened(database)

        def fail(connection: Connection) -> None:
            ADD.run(connection, note("never"))
            raise LookupError

        with pytest.raises(LookupError):
            await database.write(fail)
        assert await database.write(lambda connection: ADD.run(connection, note("kept"))) == [(1,)]


async def test_errors_of_the_driver_are_reported_like_all_others(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "notes.db") as database:
        await opened(database)
        await database.write(lambda connection: ADD.run(connection, note("twice")))
        with pytest.raises(
            StorageError, match=r"refused a statement: UNIQUE constraint failed: notes\.words"
        ):
            await database.write(lambda connection: ADD.run(connection, note("twice")))

        def fill(connection: Connection) -> None:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
            ADD.run(connection, note("x" * 100_000))

        with pytest.raises(StorageUnwritable, match="is full"):
            await database.write(fill)
