"""The file that the arrays of a space are kept in: what it is believed for, and what is never left in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from satchel.clock import ManualClock
from satchel.memory import Memory
from satchel.memory.candidates import engine
from satchel.memory.candidates import shelf as shelves
from satchel.memory.candidates.array_file import ArrayFile, DamagedFile
from satchel.memory.candidates.shelf import Shelf
from satchel.memory.lexicon import hash_stem
from satchel.storage import Database
from tests.memory.embedders import Wordy
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

TEXTS = [
    "Ann keeps a boat in the harbour of Lisbon.",
    "The lighthouse was painted red last summer.",
    "Bob plays the violin in the garden every evening.",
    "My sister Zerlina collects copper kettles.",
    "The router stands behind the saddle in the hall.",
    "We walked along the harbour wall until it rained.",
]
QUESTIONS = (
    "harbour boat",
    "Zerlina copper kettles",
    "violin garden",
    "router saddle",
    "what was painted red?",
)


@pytest.fixture(autouse=True)
def _small_stores_are_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.ArrayCandidates.__init__, "__kwdefaults__", {"shelf": None, "least_kept": 3})
    monkeypatch.setattr(engine, "_LEAST_UNKEPT", 3)


async def answers(path: Path, *, embedder: Any = None) -> list[list[tuple[str, float]]]:
    """What the questions find in a new `Memory`; the scores of the same rows in another order differ in the last bit."""
    async with Memory.open(
        path, embedder=embedder or Wordy(), clock=ManualClock(), back_fill=False
    ) as memory:
        return [
            [(hit.memory.id, round(hit.score, 4)) for hit in await memory.search(question)]
            for question in QUESTIONS
        ]


async def stored(path: Path) -> list[str]:
    """A store whose arrays are kept; gives the ids."""
    async with Memory.open(path, embedder=Wordy(), back_fill=False) as memory:
        ids = [await memory.add(text, speaker="Ann") for text in TEXTS]
        await memory.search("harbour")
    assert kept(path).exists()
    return ids


def kept(path: Path) -> Path:
    return Path(f"{path}.arrays") / "1.arrays"


def without_file(path: Path, folder: Path) -> Path:
    """A copy of a closed store that has its database alone."""
    copy = folder / "bare" / path.name
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(path, copy)
    key = path.parent / "forgotten.key"
    if key.exists():
        shutil.copy(key, copy.parent)
    return copy


@requirement("memory:arrays:same")
async def test_a_store_whose_arrays_are_kept_finds_what_the_database_alone_finds(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    await stored(path)
    expected = await answers(without_file(path, tmp_path))
    before = kept(path).read_bytes()
    assert await answers(path) == expected
    assert kept(path).read_bytes() == before
    assert kept(path).stat().st_mode & 0o777 == 0o600
    assert kept(path).parent.stat().st_mode & 0o777 == 0o700


@requirement("memory:arrays:same")
async def test_what_was_stored_edited_and_forgotten_since_the_file_was_written_is_taken_in(
    tmp_path: Path,
) -> None:
    path = tmp_path / "satchel.db"
    ids = await stored(path)
    async with Memory.open(path, embedder=Wordy(), back_fill=False) as memory:
        await memory.edit(ids[1], content="The lighthouse was painted blue, and the violin is sold.")
        await memory.forget(ids[4])
        await memory.add("The router moved to Bob's boat.", speaker="Bob")
        await memory.embed_pending()
    assert await answers(path) == await answers(without_file(path, tmp_path))
    async with Memory.open(path, embedder=Wordy(), back_fill=False) as memory:
        assert [hit.memory.speaker for hit in await memory.search("Bob router", limit=1)] == ["Bob"]


def flip(path: Path, at: float) -> None:
    """Turn one bit over; `at` is the place in the file, 0 to 1."""
    data = bytearray(path.read_bytes())
    data[min(int(at * len(data)), len(data) - 1)] ^= 0x10
    path.write_bytes(data)


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_a_link(path: Path) -> None:
    moved = path.rename(path.with_suffix(".moved"))
    path.symlink_to(moved)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "another file": lambda path: path.write_bytes(b"This is no array." * 1000),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 4096),
    "cut in the header": lambda path: os.truncate(path, 100),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0" * 4096),
    "zeros at the end": lambda path: path.write_bytes(path.read_bytes()[:-4096] + b"\0" * 4096),
    "a folder": become_a_folder,
    "a link": become_a_link,
    **{f"a bit at {place}": partial(flip, at=place) for place in (0, 0.01, 0.2, 0.5, 0.8, 0.99)},
}


@requirement("memory:arrays:damaged")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_a_damaged_file_changes_no_result(damage: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    await stored(path)
    expected = await answers(without_file(path, tmp_path))
    damage(kept(path))
    assert await answers(path) == expected
    assert await answers(path) == expected


@requirement("memory:arrays:damaged")
async def test_doctor_names_a_damaged_file_and_mending_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    await stored(path)
    async with Memory.open(path, embedder=Wordy(), back_fill=False) as memory:
        assert (await memory.check()).notes == ()
    flip(kept(path), 0.6)
    async with Memory.open(path, embedder=Wordy(), back_fill=False) as memory:
        found = await memory.check()
        assert found.problems == ()
        assert [note.startswith(f"{kept(path)} is damaged") for note in found.notes] == [True]
        await memory.repair()
        assert (await memory.check()).arrays is None
    assert await answers(path) == await answers(without_file(path, tmp_path))


@requirement("memory:arrays:other-history")
async def test_the_file_of_another_history_of_the_database_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    ids = await stored(path)
    older = without_file(path, tmp_path)
    async with Memory.open(path, embedder=Wordy(), back_fill=False) as memory:
        await memory.forget(ids[3])
        for text in ("The kettle is new.", "The violin is old.", "A boat for two.", "A copper roof."):
            await memory.add(text)
        await memory.search("kettle")
    # Somebody restores a backup, and as much is stored again, so that the counts of changes are equal or greater.
    shutil.copy(older, path)
    async with Memory.open(path, embedder="none") as memory:
        for at in range(9):
            await memory.add(f"Number {at} of the copper things in the garden.")
    expected = await answers(without_file(path, tmp_path))
    assert await answers(path) == expected
    assert expected[1][0][0] == ids[3]


@requirement("memory:arrays:forgotten")
async def test_nothing_of_what_was_forgotten_is_left_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    ids = await stored(path)
    known = ArrayFile.open(kept(path)).arrays
    row = 3
    stem = hash_stem("zerlina").to_bytes(4, "little")
    assert stem in kept(path).read_bytes()
    async with Memory.open(path, embedder=Wordy(), back_fill=False) as running:
        await running.search("kettles")
        async with Memory.open(path, embedder="none") as memory:
            receipt = await memory.forget(ids[row])
        assert receipt.log_emptied
        assert stem not in kept(path).read_bytes()
        # Another process that has the file mapped has lost it too, and finds the rest.
        assert not known["entry_stem"][known["entry_row"] == row].any()
        assert [hit.memory.id for hit in await running.search("Zerlina harbour boat", limit=1)] == [ids[0]]
    ArrayFile.open(kept(path))
    assert await answers(path) == await answers(without_file(path, tmp_path))


@requirement("memory:arrays:forgotten")
async def test_words_that_an_edit_took_away_leave_the_file_when_something_is_forgotten(
    tmp_path: Path,
) -> None:
    path = tmp_path / "satchel.db"
    ids = await stored(path)
    async with Memory.open(path, embedder=Wordy(), back_fill=False) as memory:
        await memory.edit(ids[3], content="My sister collects kettles.")
        await memory.forget(ids[0])
    assert hash_stem("zerlina").to_bytes(4, "little") not in kept(path).read_bytes()
    assert await answers(path) == await answers(without_file(path, tmp_path))


@requirement("memory:arrays:forgotten")
async def test_forgetting_that_was_interrupted_before_the_file_was_erased_is_finished_when_the_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "satchel.db"
    ids = await stored(path)
    with monkeypatch.context() as interrupted:

        async def nothing(*_: object, **__: object) -> bool:
            return True

        interrupted.setattr(engine.ArrayCandidates, "scrub", nothing)
        async with Memory.open(path, embedder="none") as memory:
            await memory.forget(ids[3])
    assert hash_stem("zerlina").to_bytes(4, "little") in kept(path).read_bytes()
    async with Memory.open(path, embedder="none"):
        assert not kept(path).exists()
    assert await answers(path) == await answers(without_file(path, tmp_path))


@requirement("memory:arrays:forgotten")
@pytest.mark.parametrize("step", ["pwrite", "fsync"])
async def test_a_file_that_cannot_be_erased_is_removed(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "satchel.db"
    ids = await stored(path)

    real = getattr(os, step)

    def full(fd: int, *rest: Any) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink() == path:
            return int(real(fd, *rest) or 0)
        raise OSError(28, "No space left on device")

    async with Memory.open(path, embedder="none") as memory:
        await memory.forget(ids[0])  # Makes the key for hashes.
        monkeypatch.setattr(os, step, full)
        receipt = await memory.forget(ids[3])
        monkeypatch.undo()
    assert receipt.log_emptied
    assert not kept(path).exists()


@requirement("memory:arrays:forgotten")
async def test_an_unfinished_file_is_removed_when_something_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    ids = await stored(path)
    unfinished = kept(path).with_suffix(".arrays.new")
    shutil.copy(kept(path), unfinished)
    async with Memory.open(path, embedder="none") as memory:
        await memory.forget(ids[3])
    assert not unfinished.exists()


@requirement("memory:arrays:full-disk")
async def test_a_full_disk_leaves_no_file_and_changes_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "satchel.db"

    def full(fd: int, data: bytes, at: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    async with Memory.open(path, embedder=Wordy(), back_fill=False) as memory:
        ids = [await memory.add(text, speaker="Ann") for text in TEXTS]
        assert [hit.memory.id for hit in await memory.search("Zerlina", limit=1)] == [ids[3]]
    assert [file.name for file in kept(path).parent.iterdir()] == ["1.lock"]
    monkeypatch.undo()
    assert await answers(path) == await answers(without_file(path, tmp_path))


@requirement("memory:arrays:races")
async def test_what_is_forgotten_while_another_process_writes_the_file_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "satchel.db"
    ids: list[str] = []

    class Slow(engine.ArrayCandidates):
        """Lets somebody else forget while the file is written, before it is put in place."""

        async def _keep(self) -> None:
            frozen = self._index.freeze()
            with monkeypatch.context() as slow:
                slow.setattr(self._index, "freeze", lambda: frozen)
                async with Memory.open(path, embedder="none") as other:
                    await other.forget(ids[3])
                await super()._keep()

    async with Memory.open(path, embedder=Wordy(), back_fill=False) as memory:
        ids += [await memory.add(text) for text in TEXTS]
        memory._space.candidates.__class__ = Slow
        assert [hit.memory.id for hit in await memory.search("harbour boat", limit=1)] == [ids[0]]
    if kept(path).exists():  # It was given up once, and written later.
        assert hash_stem("zerlina").to_bytes(4, "little") not in kept(path).read_bytes()
    assert await answers(path) == await answers(without_file(path, tmp_path))


@requirement("memory:arrays:races")
async def test_a_process_does_not_wait_for_another_that_writes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    ids = await stored(path)
    shelf = Shelf(kept(path).parent, 1)
    with shelf.writing() as alone:
        assert alone is not None
        with Shelf(kept(path).parent, 1).writing() as other:
            assert other is None
    async with Memory.open(path, embedder="none") as memory:
        assert [hit.memory.id for hit in await memory.search("Zerlina", limit=1)] == [ids[3]]


@requirement("memory:arrays:races")
async def test_forgetting_removes_the_file_where_its_lock_is_never_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelves, "_LOCK_WAIT_S", 0.0)
    path = tmp_path / "satchel.db"
    ids = await stored(path)
    with Shelf(kept(path).parent, 1).writing() as alone:
        assert alone is not None
        async with Memory.open(path, embedder="none") as memory:
            assert (await memory.forget(ids[3])).log_emptied
        assert not kept(path).exists()
        assert not alone.publish()


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from satchel.memory.candidates.array_file import ArrayFile, NewColumn

def chunks():
    for at in range(64):
        if at == 32:
            os.kill(os.getpid(), signal.SIGKILL)
        yield np.full((4096, 16), at, np.float32)

ArrayFile.write(Path(sys.argv[1]), {}, {"matrix": NewColumn(dtype="<f4", shape=(64 * 4096, 16), chunks=chunks())})
"""


@requirement("memory:arrays:damaged")
async def test_what_a_killed_process_left_is_neither_believed_nor_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    await stored(path)
    expected = await answers(without_file(path, tmp_path))
    unfinished = kept(path).with_suffix(".arrays.new")
    done = subprocess.run([sys.executable, "-c", KILLED, str(unfinished)], check=False, timeout=280)
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(DamagedFile):
        ArrayFile.open(unfinished)
    # As the present file, too.
    shutil.copy(unfinished, kept(path))
    assert await answers(path) == expected
    assert ArrayFile.open(kept(path)).facts["space"] == 1


@requirement("memory:arrays:same")
async def test_a_store_without_vectors_in_use_keeps_its_words_and_takes_vectors_in_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "satchel.db"
    async with Memory.open(path, embedder="none") as memory:
        for text in TEXTS:
            await memory.add(text)
        await memory.search("harbour")
    # Vectors are not in the file, so that nobody writes it again for their sake.
    before = kept(path).read_bytes()
    expected = await answers(without_file(path, tmp_path))
    assert await answers(path) == expected
    async with Memory.open(path, embedder="none") as memory:
        assert (await memory.search("Zerlina", limit=1))[0].memory.content == TEXTS[3]
    assert kept(path).read_bytes() == before


@requirement("memory:arrays:same")
async def test_another_embedder_never_meets_the_vectors_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    await stored(path)
    other = without_file(path, tmp_path)
    assert await answers(path, embedder=Wordy("other")) == await answers(other, embedder=Wordy("other"))


async def test_a_database_in_memory_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with Database.open(":memory:") as database, Memory.open(database, embedder="none") as memory:
        for text in TEXTS:
            await memory.add(text)
        await memory.search("harbour")
        await memory.forget(session="s1")
    assert list(tmp_path.iterdir()) == []
