"""The inbox: what others post into a session waits until a turn delivers it, once."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.errors import NotFound, StorageError, StorageLocked, UsageError
from satchel.events import Posted
from satchel.sessions import SessionStore, Words
from satchel.storage import Database
from tests.forking import run_python
from tests.requirements import requirement
from tests.sessions.worlds import exchange, started

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    async with Database.open(tmp_path / "satchel.db") as database:
        yield SessionStore(tmp_path / "sessions", database, clock=ManualClock())


async def session(store: SessionStore, id: str) -> str:
    async with await store.create("/w", session_id=id) as journal:
        await journal.append([started(id), *exchange("hi", "hello")])
    return id


async def texts(store: SessionStore, id: str) -> list[str]:
    return [entry.text for entry in await store.inbox.waiting(id)]


_POSTER = """
import sys, anyio
from pathlib import Path
from satchel.clock import SystemClock
from satchel.sessions import SessionStore
from satchel.storage import Database

async def main():
    home = Path(sys.argv[1])
    async with Database.open(home / "satchel.db") as database:
        store = SessionStore(home / "sessions", database, clock=SystemClock())
        await store.post("abc", source="builder", text="from another process", untrusted=True)

anyio.run(main)
"""


@requirement("sessions:inbox")
async def test_posts_of_any_process_wait_in_order_and_change_the_version(
    store: SessionStore, tmp_path: Path
) -> None:
    await session(store, "abc1")
    before = await store.inbox.version()
    first = await store.post("abc1", source="builder", text="built")
    after = await store.inbox.version()
    run_python(_POSTER, tmp_path).check_returncode()
    assert len({before, after, await store.inbox.version()}) == 3
    mine, other = await store.inbox.waiting("abc1")
    assert mine == Posted(id=first, source="builder", text="built")
    assert (other.text, other.untrusted) == ("from another process", True)


@requirement("sessions:inbox")
async def test_an_entry_that_the_log_names_as_delivered_is_not_given_again_after_a_kill(
    store: SessionStore,
) -> None:
    await session(store, "abc1")
    first = await store.post("abc1", source="s", text="one")
    second = await store.post("abc1", source="s", text="two")
    assert [entry.id for entry in await store.inbox.waiting("abc1", delivered={first})] == [second]
    await store.inbox.delivered([first, "unknown"])
    assert await texts(store, "abc1") == ["two"]
    version = await store.inbox.version()
    await store.inbox.delivered([second])
    await store.post("abc1", source="s", text="three")
    assert await store.inbox.version() != version


async def test_what_cannot_be_posted_is_refused_with_the_reason(store: SessionStore, tmp_path: Path) -> None:
    await session(store, "abc1")
    with pytest.raises(NotFound, match="no conversation 'nope'"):
        await store.post("nope", source="s", text="hi")
    with pytest.raises(UsageError, match="at most 20,000 characters; this one has 20,001"):
        await store.post("abc1", source="s", text="x" * 20_001)
    with pytest.raises(UsageError, match="empty"):
        await store.post("abc1", source="s", text=" ")
    without = SessionStore(tmp_path / "sessions", None, clock=ManualClock())
    with pytest.raises(StorageError, match="database is unavailable"):
        await without.post("abc1", source="s", text="hi")
    assert (await without.inbox.waiting("abc1"), await without.inbox.version()) == ((), 0)


async def test_an_inbox_that_nobody_reads_does_not_grow_without_end(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.sessions.inbox._MAX_WAITING", 5)
    await session(store, "abc1")
    await session(store, "other")
    for number in range(5):
        await store.post("abc1", source="s", text=str(number))
    with pytest.raises(UsageError, match="5 entries are waiting in the inbox of session abc1"):
        await store.post("abc1", source="s", text="one more")
    await store.post("other", source="s", text="fits")


@requirement("sessions:inbox:forgotten")
async def test_forgetting_and_deleting_reach_the_inbox(store: SessionStore, tmp_path: Path) -> None:
    await session(store, "abc1")
    await session(store, "other")
    for id in ("abc1", "other"):
        await store.post(id, source="s", text="the garden gate code is 4711")
    await store.redact([Words(text="gate code is 4711", session="abc1", turn=1)])
    assert await texts(store, "abc1") == ["the garden [forgotten]"]
    assert await texts(store, "other") == ["the garden gate code is 4711"]
    await store.delete("other")
    assert await texts(store, "other") == []
    for file in tmp_path.glob("satchel.db*"):
        assert b"4711" not in file.read_bytes()


@requirement("sessions:inbox:forgotten")
async def test_a_session_whose_inbox_cannot_be_emptied_is_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "satchel.db"
    async with Database.open(path, lock_timeout_s=0.02) as database:
        store = SessionStore(tmp_path / "sessions", database, clock=ManualClock())
        await session(store, "abc1")
        await store.post("abc1", source="s", text="waits")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageLocked):
                await store.delete("abc1")
        assert (await store.load("abc1")).records
        await store.delete("abc1")
        assert await texts(store, "abc1") == []
