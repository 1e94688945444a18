"""Old logs are compressed, and everything that reads, continues or forgets in them works as before."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from satchel.clock import ManualClock
from satchel.errors import StorageError, StorageUnwritable
from satchel.events import Event
from satchel.sessions import SessionStore, Words, index
from satchel.storage import Database
from tests.requirements import requirement
from tests.sessions.worlds import began, exchange, observed, started

pytestmark = pytest.mark.anyio

TURNS: tuple[Event, ...] = (
    *exchange("Where is the spare key?", "Behind the red door."),
    *exchange("And the quagga?", "In the barn with Jonas.", turn=2),
    began("c1", turn=3),
    observed("c1", "a line of output\n" * 500, turn=3),
)


@pytest.fixture(params=["without the index", "with the index"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    if request.param == "without the index":
        yield SessionStore(tmp_path / "sessions", None, clock=ManualClock())
        return
    async with Database.open(tmp_path / "satchel.db") as database:
        yield SessionStore(tmp_path / "sessions", database, clock=ManualClock())


async def make(store: SessionStore) -> Path:
    async with await store.create("/w", session_id="s1") as journal:
        await journal.append([started("s1", "/w"), *TURNS])
    return journal.path


async def compress(store: SessionStore) -> Path:
    path = await make(store)
    (info,) = await store.list()
    assert await store.compress(info)
    return path


async def seen(store: SessionStore) -> list[Any]:
    """All that the store says of the session."""
    return [
        await store.list(),
        await store.search("quagga"),
        await store.search("output"),
        (await store.load("s1")).records,
        await store.records("s1", after_seq=4, limit=3),
        await store.records("s1", after_seq=8),
        await store.export("s1", form="json"),
        await store.spent_on("2026-01-01"),
    ]


@requirement("sessions:compressed")
async def test_a_compressed_log_is_a_tenth_as_large_and_reads_as_before(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await make(store)
    before, stat = await seen(store), path.stat()
    (info,) = await store.list()
    assert await store.compress(info)
    assert not await store.compress(info)
    with monkeypatch.context() as patch:
        patch.setattr(index, "read_on", None)
        assert await store.spent_on("2026-01-01") == before[-1]
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert path.stat().st_size < stat.st_size / 10
    assert (path.stat().st_mtime_ns, path.stat().st_mode) == (stat.st_mtime_ns, stat.st_mode)
    assert list(path.parent.iterdir()) == [path]
    assert await seen(store) == before
    if store._index._database is not None:
        # The index knows it already.
        monkeypatch.setattr(index, "read_on", None)
        assert (await store.search("quagga"))[0].session_id == "s1"


@requirement("sessions:compressed")
async def test_a_session_with_a_compressed_log_goes_on_in_a_plain_one(store: SessionStore) -> None:
    path = await compress(store)
    records = (await store.load("s1")).records
    async with await store.open("s1") as journal:
        await journal.append(exchange("More", "Sure.", turn=4))
        (info,) = await store.list()
        assert not await store.compress(info)
    assert path.read_bytes().startswith(b'{"seq":1,')
    assert (await store.load("s1")).records[: len(records)] == records
    assert [hit.turn for hit in await store.search("sure")] == [4]


@requirement("sessions:compressed", "promise:forget:session-log")
async def test_words_are_forgotten_in_a_compressed_log(store: SessionStore) -> None:
    path = await compress(store)
    redaction = await store.redact([Words(text="And the quagga?", session="s1")])
    assert [entry.session_id for entry in redaction.sessions] == ["s1"]
    assert not redaction.errors
    assert b"quagga" not in path.read_bytes()
    assert await store.search("quagga") == []
    assert [hit.kind for hit in await store.search("barn")] == ["assistant"]


@requirement("sessions:compressed")
async def test_what_stands_before_the_damage_in_a_compressed_log_is_read_and_nothing_is_lost_besides(
    store: SessionStore,
) -> None:
    path = await make(store)
    records = (await store.load("s1")).records
    # In blocks, as a long log is.
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(gzip.compress(line) for line in lines)[:-20])
    log = await store.load("s1")
    assert log.records == records[:-1]
    assert [skipped.line for skipped in log.skipped] == [len(lines)]
    assert await store.records("s1", after_seq=5) == records[5:-1]
    damaged = path.read_bytes()
    with pytest.raises(StorageError, match="damaged"):
        await store.open("s1")
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("fails", ["fsync", "utime"])
async def test_a_full_disk_leaves_the_log_as_it_is(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = await make(store)
    before = path.read_bytes()
    (info,) = await store.list()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(f"satchel.sessions.compressing.os.{fails}", full)
        with pytest.raises(StorageUnwritable):
            await store.compress(info)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
