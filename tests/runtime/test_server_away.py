"""The database's server goes away in the middle of a turn: the turn waits for it, and the user may stop that."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import psycopg
import pytest

from satchel.errors import SessionInUse, StorageUnreachable
from satchel.events import Notice
from satchel.models import Reply, ScriptedModel
from tests.postgresql import Server, server_of
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio


class Door:
    """A way to the server. Whoever shuts it cuts what is connected, and nothing connects until it is open again."""

    def __init__(self, url: str, server: Server, folder: str) -> None:
        self.direct = url
        self.url = url.replace(str(server.folder), folder)
        self._to = str(server.folder / ".s.PGSQL.5432")
        self._at = f"{folder}/.s.PGSQL.5432"
        self._door: asyncio.Server | None = None
        self._through: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._door = await asyncio.start_unix_server(self._pass, self._at)

    async def shut(self) -> None:
        assert self._door is not None
        self._door.close()
        Path(self._at).unlink()
        for writer in self._through:
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_unix_connection(self._to)
        self._through |= {writer, there[1]}
        with suppress(OSError):
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(1 << 16):
            target.write(piece)
            await target.drain()
    finally:
        target.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return server_of(tmp_path_factory)


@pytest.fixture
async def door(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    monkeypatch.setattr("satchel.storage.postgresql._SAYS_S", -1.0)
    monkeypatch.setattr("satchel.storage.postgresql._PATIENCE_S", 1e9)
    with tempfile.TemporaryDirectory() as folder:
        door = Door(server.copy(tmp_path), server, folder)
        await door.open()
        yield door
        await door.shut()


@requirement("storage:postgres:waits")
async def test_a_turn_waits_for_the_server_and_loses_nothing(door: Door, tmp_path: Path) -> None:
    said: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    def heard(notice: Notice) -> None:
        said.append(notice.text)
        if "doesn't answer" in notice.text:
            tasks.append(asyncio.create_task(door.open()))

    model = ScriptedModel([Reply(text="By the mill.", before=door.shut), "Yes."])
    async with opened(tmp_path, model, database=door.url) as satchel:
        session = await satchel.session()
        satchel.notices.watch(heard)
        with anyio.fail_after(60):
            turn = await (await session.start("Where does the heron nest?")).result()
            assert (turn.status, turn.text) == ("done", "By the mill.")
            assert [text.rpartition(" ")[2] for text in said] == ["most.", "again."]
            assert (await (await session.start("Really?")).result()).text == "Yes."
        records = await satchel.sessions.records(session.id)
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert satchel.memory is not None
        assert await satchel.memory.search("heron")


@requirement("storage:postgres:waits")
async def test_the_user_need_not_wait_and_neither_does_anybody_once_patience_is_over(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Reply(text="Lost.", before=door.shut)
    model = ScriptedModel([lost, "Found.", lost])
    async with opened(tmp_path, model, database=door.url) as satchel:
        session = await satchel.session()
        with anyio.fail_after(60):
            running = await session.start("Where?")

            def heard(_: Notice) -> None:
                running.cancel()

            unwatch = satchel.notices.watch(heard)
            with pytest.raises(StorageUnreachable):
                await running.result()
            unwatch()
            await door.open()
        assert (await (await session.start("And now?")).result()).text == "Found."
        monkeypatch.setattr("satchel.storage.postgresql._PATIENCE_S", -1.0)
        with pytest.raises(StorageUnreachable):
            await (await session.start("Once more?")).result()
        await door.open()


@requirement("storage:postgres:waits")
async def test_a_writer_that_was_replaced_while_it_waited_writes_nothing(door: Door, tmp_path: Path) -> None:
    tasks: list[asyncio.Task[None]] = []

    def heard(notice: Notice) -> None:
        if "doesn't answer" in notice.text:
            with psycopg.connect(door.direct, autocommit=True) as connection:
                connection.execute("UPDATE conversations SET epoch = epoch + 1")
            tasks.append(asyncio.create_task(door.open()))

    model = ScriptedModel([Reply(text="Lost.", before=door.shut)])
    async with opened(tmp_path, model, database=door.url) as satchel:
        session = await satchel.session()
        satchel.notices.watch(heard)
        with anyio.fail_after(60), pytest.raises(SessionInUse, match="taken over"):
            await (await session.start("Where?")).result()
        assert "Lost." not in str(await satchel.sessions.records(session.id))
