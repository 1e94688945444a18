"""Many users in one process: how much memory their arrays may take together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.errors import StorageError
from satchel.memory import Memory
from satchel.memory.find.candidates.cache import cache_of
from satchel.memory.find.candidates.engine import Candidates
from satchel.memory.find.candidates.index import Index
from satchel.memory.store.thread import OneThread
from satchel.memory.text.lexicon import hash_stem
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


@requirement("memory:candidates:lru")
async def test_users_whose_arrays_were_let_go_find_what_they_found_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[int] = []
    apply = Index.apply

    def counted(index: Index, changes: object) -> None:
        loads.append(len(index))
        apply(index, changes)  # type: ignore[arg-type]

    async with Database.open(tmp_path / "satchel.db") as database, AsyncExitStack() as stack:
        users = [
            await stack.enter_async_context(
                Memory.open(
                    database,
                    user=name,
                    embedder=Wordy(),
                    clock=ManualClock(),
                    back_fill=False,
                    home=tmp_path,
                )
            )
            for name in ("ann", "bob", "eve")
        ]
        for user in users:
            for text in ("a boat in the harbour", f"the violin of {user.user}", "a copper kettle"):
                await user.add(text, speaker=user.user)
        before = [await user.search("harbour violin of ann") for user in users]
        monkeypatch.setattr(Index, "apply", counted)
        assert [await user.search("harbour violin of ann") for user in users] == before
        assert loads == []
        cache_of(database).most_bytes = 1
        for _ in range(2):
            assert [await user.search("harbour violin of ann") for user in users] == before
        assert len(loads) >= 5
        # One whose arrays are let go between two steps of a search.
        candidates = users[0]._space.candidates
        await users[0].search("kettle")
        assert isinstance(candidates, Candidates)
        candidates.let_go()
        assert (
            candidates.contents.count,
            candidates.contents.embedded,
            set(candidates.contents.speakers),
        ) == (3, 3, {"ann"})
        assert len(await candidates.having([hash_stem("kettle")])) == 1


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
