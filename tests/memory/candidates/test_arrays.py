"""The arrays of a space: what a search waits for, and what is read anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from satchel.errors import StorageError
from satchel.memory import Memory
from satchel.memory.find.candidates.index import Index
from satchel.memory.store.thread import OneThread
from satchel.storage import Database
from tests.memory.embedders import Wordy
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


async def test_a_warm_search_visits_the_thread_of_the_arrays_twice_and_waits_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits: list[str] = []
    run, read = OneThread.run, Database.read

    async def visited(thread: OneThread, function: Callable[..., object], *args: object) -> object:
        visits.append("arrays")
        return await run(thread, function, *args)

    async def waited(database: Database, function: Callable[..., object]) -> object:
        visits.append("database")
        return await read(database, function)

    async with Memory.open(tmp_path / "satchel.db", embedder=Wordy(), back_fill=False) as memory:
        for text in ("a boat in the harbour", "a copper kettle"):
            await memory.add(text)
        await memory.search("harbour")
        monkeypatch.setattr(OneThread, "run", visited)
        monkeypatch.setattr(Database, "read", waited)
        assert len(await memory.search("harbour")) == 2
        # To see that nothing has changed, and to find.
        assert visits == ["arrays", "arrays"]


async def test_arrays_that_were_read_in_part_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StorageError("The disk can't be read.")

    async with Memory.open(":memory:", embedder="none") as memory:
        gone = await memory.add("a boat in the harbour")
        await memory.add("a boat on the river")
        with monkeypatch.context() as broken:
            broken.setattr(Index, "_seat", fail)
            with pytest.raises(StorageError):
                await memory.search("boat")
        await memory.forget(gone)
        assert len(await memory.search("boat")) == memory._space.candidates.contents.count == 1


@requirement("memory:arrays:removed")
async def test_files_of_arrays_that_an_earlier_version_kept_are_removed_when_the_store_is_opened(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "satchel.db.arrays"
    folder.mkdir()
    (folder / "1.arrays").write_bytes(b"hashes of words")
    (folder / "1.lock").touch()
    async with Memory.open(tmp_path / "satchel.db", embedder="none"):
        assert not folder.exists()
