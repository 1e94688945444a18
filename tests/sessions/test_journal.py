"""One session's log: what is acknowledged is there, whole, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import anyio
import anyio.lowlevel
import pytest

from satchel.clock import ManualClock
from satchel.errors import NotFound, StorageError, StorageLocked, StorageUnwritable, UsageError
from satchel.events import Event, Notice, QuestionAsked, Record, TextDelta
from satchel.messages import Usage
from satchel.plain import as_json
from satchel.sessions import EphemeralJournal, Journal, SessionStore, Skipped, Words, log
from tests.forking import Program, run_python
from tests.requirements import requirement
from tests.sessions.worlds import began, exchange, said, started

pytestmark = pytest.mark.anyio


def store_in(folder: Path, *ids: str) -> SessionStore:
    names = iter(ids or ("a1b2c3",))
    return SessionStore(folder / "sessions", None, clock=ManualClock(), new_id=lambda: next(names))


def note(text: str) -> Notice:
    return Notice(part="test", text=text)


@requirement("sessions:path")
async def test_a_log_lies_below_its_working_directory_under_time_and_id_and_only_its_owner_reads_it(
    tmp_path: Path,
) -> None:
    async with await store_in(tmp_path).create("/home/ann/my kitchen") as journal:
        await journal.append([started("a1b2c3"), said("hi")], durable=True)
    local = ManualClock().now().astimezone()
    assert journal.path.name == f"{local:%Y-%m-%d_%H%M%S}_a1b2c3.jsonl"
    assert journal.path.parent.name.startswith("home-ann-my-kitchen-")
    assert journal.path.parent.parent == tmp_path / "sessions"
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(journal.path.parent.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a/b", "/a-b"),
        ("/a\n/b", "/a/b"),
        ("/" + "x" * 4000, "/" + "x" * 4001),
        ("/\udc80", "/\udc81"),
        ("/", ""),
    ],
)
async def test_two_working_directories_never_share_a_folder(tmp_path: Path, one: str, other: str) -> None:
    store = store_in(tmp_path, "s1", "s2")
    async with await store.create(one) as first, await store.create(other) as second:
        await first.append([started("s1", one), said("hi")])
        await second.append([started("s2", other), said("hi")])
    assert first.path.parent != second.path.parent
    last_one, last_other = await store.last(one), await store.last(other)
    assert last_one is not None
    assert last_other is not None
    assert (last_one.id, last_one.cwd, last_other.id, last_other.cwd) == ("s1", one, "s2", other)


async def test_records_are_numbered_without_gaps_over_batches_and_openings(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with await store.create("/w") as journal:
        first = await journal.append([started("a1b2c3"), TextDelta(text="not logged"), said("one")])
        second = await journal.append([note("two")], durable=True)
        nothing = await journal.append([TextDelta(text="nor this")], durable=True)
    found: list[Record] = []
    async with await store.open("a1", visit=found.append) as again:
        third = await again.append([note("three")])
    assert [record.seq for record in (*first, *second, *third)] == [1, 2, 3, 4]
    assert nothing == ()
    whole = await store.load("a1b2c3")
    assert whole.records == (*first, *second, *third)
    assert (whole.skipped, whole.is_torn, whole.last_seq) == ((), False, 4)
    assert found == [*first, *second]


async def test_tasks_that_append_at_the_same_time_write_whole_batches(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    got: list[tuple[Record, ...]] = []
    async with await store.create("/w") as journal, anyio.create_task_group() as group:

        async def append(number: int) -> None:
            got.append(
                await journal.append([note(f"{number}a"), note(f"{number}b")], durable=number % 2 == 0)
            )

        for number in range(20):
            group.start_soon(append, number)
    whole = await store.load("a1b2c3")
    assert [record.seq for record in whole.records] == list(range(1, 41))
    assert sorted(got, key=lambda batch: batch[0].seq) == [whole.records[i : i + 2] for i in range(0, 40, 2)]


@pytest.mark.parametrize(
    "text", ["\x00\x1b[31m\u2028", "\ud800 and \udfff", "ß日本🎒", "a\r\nb\\", "x" * 3_000_000]
)
async def test_any_text_is_read_back_unchanged(tmp_path: Path, text: str) -> None:
    store = store_in(tmp_path)
    async with await store.create("/w") as journal:
        written = await journal.append([said(text), note("after")])
    assert (await store.load("a1b2c3")).records == written
    assert journal.path.read_bytes().count(b"\n") == 2


async def test_an_event_that_json_cannot_hold_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    store = store_in(tmp_path)
    async with await store.create("/w") as journal:
        await journal.append([said("hi")])
        with pytest.raises(UsageError, match="nested too deeply"):
            await journal.append([note("one"), began("c1", input=deep)])
        with anyio.fail_after(60):
            (record,) = await journal.append([note("two")])
    assert record.seq == 2


@requirement("sessions:torn-line")
@pytest.mark.parametrize("cut", [1, 20, 60])
async def test_a_torn_last_line_counts_as_not_there_and_nothing_is_glued_to_it(
    tmp_path: Path, cut: int
) -> None:
    store = store_in(tmp_path)
    async with await store.create("/w") as journal:
        (first, _) = await journal.append(
            [said("one"), note("a longer text, so that there is something to cut off")]
        )
    path = journal.path
    data = path.read_bytes()
    path.write_bytes(data[:-cut] if cut > 1 else data[:-2])
    torn = await store.load("a1b2c3")
    assert (torn.records, torn.is_torn) == ((first,), True)
    async with await store.open("a1b2c3") as again:
        (second,) = await again.append([note("new")])
    assert second.seq == 2
    healed = await store.load("a1b2c3")
    assert (healed.records, healed.is_torn) == ((first, second), False)


async def test_a_last_line_that_lacks_only_its_newline_is_kept(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with await store.create("/w") as journal:
        first = await journal.append([said("one"), note("two")])
    journal.path.write_bytes(journal.path.read_bytes().removesuffix(b"\n"))
    async with await store.open("a1b2c3") as again:
        second = await again.append([note("three")])
    assert (await store.load("a1b2c3")).records == (*first, *second)


async def test_lines_that_cannot_be_read_are_skipped_and_counted(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with await store.create("/w") as journal:
        first = await journal.append([said("one"), note("two")])
    lines = journal.path.read_bytes().splitlines(keepends=True)
    unknown = b'{"seq": 2, "at": "2026-01-01T12:00:00+00:00", "type": "hologram"}\n'
    journal.path.write_bytes(
        lines[0] + unknown + b'{"half": \n' + b"\x00" * 50 + b"\n" + b"[" * 100_000 + b"\n\n" + lines[1]
    )
    whole = await store.load("a1b2c3")
    assert whole.records == first
    assert [entry.line for entry in whole.skipped] == [2, 3, 4, 5]
    assert whole.skipped[0] == Skipped(line=2, reason="ValueError: No event is of type 'hologram'.")
    async with await store.open("a1b2c3") as again:
        (record,) = await again.append([note("on")])
    assert record.seq == whole.last_seq + 1 == 7


@pytest.mark.parametrize(
    ("type", "field"),
    [
        (cls.type, name)
        for cls in get_args(Event)
        for name, kind in get_type_hints(cls).items()
        if get_origin(kind) is Literal and "other" not in get_args(kind)
    ],
)
async def test_an_event_with_a_value_that_only_a_newer_version_knows_is_skipped(
    tmp_path: Path, type: str, field: str
) -> None:
    fields = {
        "turn": 1, "round": 1, "rounds": 1, "id": "i", "build_id": "b", "number": 1, "capability": "c", "call_id": "c",
        "tool": "t", "text": "", "title": "", "memories": [], "messages": [], "blocks": [], "tokens": 0,
        "before_tokens": 2, "after_tokens": 1, "provider": "p", "model": "m", "usage": as_json(Usage()),
        "duration_ms": 1.0, "decision": "allow", "by": "user", "trigger": "auto", "status": "done",
        "stop_reason": "end_turn", "kind": "tool" if type == QuestionAsked.type else "answer",
    }  # fmt: skip
    line = {"seq": 2, "at": "2026-01-01T12:00:00+00:00", "type": type, **fields}
    store = store_in(tmp_path)
    async with await store.create("/w") as journal:
        first = await journal.append([said("one")])
    log = journal.path.read_bytes()
    journal.path.write_bytes(log + json.dumps(line).encode() + b"\n")
    assert (await store.load("a1b2c3")).skipped == ()
    journal.path.write_bytes(log + json.dumps({**line, field: "hologram"}).encode() + b"\n")
    whole = await store.load("a1b2c3")
    assert whole.records == first
    assert whole.skipped == (Skipped(line=2, reason="ValueError: 'hologram' is unknown to this version."),)


@requirement("sessions:one-writer")
async def test_a_second_writer_is_told_which_process_has_the_session(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with await store.create("/w") as journal:
        await journal.append([said("hi")])
        with pytest.raises(StorageLocked, match="is already open in this process"):
            await store.open("a1b2c3")
        child = run_python(_OPENER, str(tmp_path / "sessions"))
        assert f"Session a1b2c3 is open in process {os.getpid()}." in child.stdout
        assert len((await store.load("a1b2c3")).records) == 1
    async with await store.open("a1b2c3"):
        pass
    assert list((tmp_path / "sessions" / ".locks").iterdir()) == []


_OPENER = """
import sys, anyio
from contextlib import aclosing
from pathlib import Path
from satchel.clock import SystemClock
from satchel.errors import StorageLocked
from satchel.sessions import SessionStore

async def main():
    try:
        await SessionStore(Path(sys.argv[1]), None, clock=SystemClock()).open("a1b2c3")
    except StorageLocked as error:
        print(error)

anyio.run(main)
"""

_WRITER = """
import sys, anyio
from contextlib import aclosing
from pathlib import Path
from satchel.clock import SystemClock
from satchel.events import Notice
from satchel.sessions import SessionStore

async def main():
    store = SessionStore(Path(sys.argv[1]), None, clock=SystemClock(), new_id=lambda: "a1b2c3")
    journal = await store.create("/w")
    number = 0
    while True:
        number += 1
        await journal.append([Notice(part="test", text=f"{number} " + "x" * 5000)], durable=number % 3 == 0)
        print(number, flush=True)

anyio.run(main)
"""


_FORKER = """
import os, sys, anyio
from contextlib import aclosing
from pathlib import Path
from satchel.clock import SystemClock
from satchel.events import Notice
from satchel.sessions import SessionStore

async def main():
    store = SessionStore(Path(sys.argv[1]), None, clock=SystemClock(), new_id=lambda: "a1b2c3")
    journal = await store.create("/w")
    await journal.append([Notice(part="test", text="x")], durable=True)
    if os.fork() == 0:
        os.read(0, 1)
        os._exit(0)
    print("forked", flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


async def test_a_session_opens_although_a_program_that_was_being_started_outlives_its_killed_writer(
    tmp_path: Path,
) -> None:
    """Between fork and exec, the new process shares the writer's lock."""
    with subprocess.Popen(
        [sys.executable, "-c", _FORKER, str(tmp_path / "sessions")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"forked\n"
        child.send_signal(signal.SIGKILL)
        child.wait()

        async def open_session() -> None:
            async with await store_in(tmp_path).open("a1b2c3"):
                opened.set()

        opened = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(open_session)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            assert not opened.is_set()
            child.stdin.close()
    assert opened.is_set()


async def test_what_was_acknowledged_before_a_kill_is_there_and_the_session_opens_again(
    tmp_path: Path,
) -> None:
    child = Program("-c", _WRITER, str(tmp_path / "sessions"))
    acknowledged = 0
    while acknowledged < 7:
        acknowledged = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    rest = child.communicate()[0].split()
    acknowledged = int(rest[-1]) if rest else acknowledged
    found: list[Record] = []
    # Whoever looks for what memory lacks sweeps what the killed process left.
    locks = tmp_path / "sessions" / ".locks"
    assert [path.name for path in locks.iterdir()] == ["a1b2c3"]
    await store_in(tmp_path).unsettled()
    assert [*locks.iterdir()], "it is new"
    os.utime(locks / "a1b2c3", (0, 0))
    await store_in(tmp_path).unsettled()
    assert not [*locks.iterdir()]
    async with await store_in(tmp_path).open("a1b2c3", visit=found.append) as journal:
        assert len(found) in (acknowledged, acknowledged + 1)
        (record,) = await journal.append([note("alive")], durable=True)
    assert record.seq == len(found) + 1


_FULL = """
import resource, signal, sys, anyio
from contextlib import aclosing
from pathlib import Path
from satchel.clock import SystemClock
from satchel.errors import StorageUnwritable
from satchel.events import Notice
from satchel.sessions import SessionStore

async def main():
    store = SessionStore(Path(sys.argv[1]), None, clock=SystemClock(), new_id=lambda: "a1b2c3")
    journal = await store.create("/w")
    if sys.argv[2] == "later":
        await journal.append([Notice(part="test", text="small")], durable=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    try:
        await journal.append([Notice(part="test", text="a"), Notice(part="test", text="x" * 5000)])
    except StorageUnwritable as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if sys.argv[2] == "later":
        (record,) = await journal.append([Notice(part="test", text="again")], durable=True)
        print(record.seq)

anyio.run(main)
"""


@requirement("sessions:full-disk")
@pytest.mark.parametrize("when", ["first", "later"])
async def test_a_write_that_fails_half_way_leaves_nothing_half_written(tmp_path: Path, when: str) -> None:
    child = run_python(_FULL, str(tmp_path / "sessions"), when)
    assert "can't be written: File too large" in child.stdout, child.stderr
    logs = list((tmp_path / "sessions").glob("*/*.jsonl"))
    if when == "first":
        assert logs == []
    else:
        assert child.stdout.splitlines()[-1] == "2"
        assert [json.loads(line)["text"] for line in logs[0].read_bytes().splitlines()] == ["small", "again"]


@requirement("sessions:full-disk")
async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("not a folder")
    with pytest.raises(StorageUnwritable, match=r"sessions.* can't be written: .*Check the folder"):
        await store_in(tmp_path).create("/w")


async def test_a_log_that_was_removed_under_its_writer_is_an_error_and_not_a_silent_loss(
    tmp_path: Path,
) -> None:
    async with await store_in(tmp_path).create("/w") as journal:
        await journal.append([said("hi")])
        journal.path.unlink()
        with pytest.raises(StorageError, match="was removed while the session was open"):
            await journal.append([note("lost?")])


async def test_a_session_in_which_nothing_was_said_leaves_nothing(tmp_path: Path) -> None:
    store = store_in(tmp_path, "s1", "s2")
    async with await store.create("/w") as silent:
        await silent.append([started("s1")], durable=True)
    async with await store.create("/w"):
        pass
    assert list((tmp_path / "sessions").glob("*/*.jsonl")) == []
    assert await store.list() == []


async def test_ids_are_checked_and_found_by_their_beginning(tmp_path: Path) -> None:
    store = store_in(tmp_path, "abc1", "abc2", "x")
    for _ in range(3):
        async with await store.create("/w") as journal:
            await journal.append([started(journal.session_id), *exchange("hi", "hello")])
    assert (await store.load("abc2")).session_id == "abc2"
    with pytest.raises(UsageError, match="2 sessions begin with 'abc'"):
        await store.load("abc")
    with pytest.raises(NotFound, match="no conversation 'nope'.*satchel session list"):
        await store.open("nope")
    with pytest.raises(NotFound):
        await store.open("")
    with pytest.raises(UsageError, match="A session x exists already"):
        await store.create("/w", session_id="x")
    for bad in ("../x", "a/b", "a_b", "a\n", "x" * 65):
        with pytest.raises(UsageError, match="can't be a session's id"):
            await store.create("/w", session_id=bad)


async def all_after(journal: Journal | EphemeralJournal, after_seq: int, limit: int) -> list[Record]:
    found: list[Record] = []
    while page := await journal.records(found[-1].seq if found else after_seq, limit):
        assert len(page) <= limit
        found += page
    return found


@requirement("sessions:replay")
async def test_records_are_read_from_any_number_on_while_the_log_is_written_and_after(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    written: list[Record] = []
    async with await store.create("/w") as journal:
        for number in range(0, 300, 3):
            written += await journal.append([note(f"{n} " + "x" * 3000) for n in range(number, number + 3)])
            assert await journal.records(journal.last_seq - 2) == tuple(written[-2:])
        for after in (0, 1, 22, 150, 299):
            assert await all_after(journal, after, 40) == written[after:]
        assert await journal.records(300) == await journal.records(10_000) == ()
    async with await store.open("a1b2c3") as again:
        assert await again.records(290) == tuple(written[290:])
    assert await store.records("a1", after_seq=299) == tuple(written[299:])


@requirement("sessions:replay")
async def test_reading_from_a_number_on_decodes_and_reads_only_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_in(tmp_path)
    async with await store.create("/w") as journal:
        await journal.append([note("x" * 50_000) for _ in range(100)])
    await store.records("a1b2c3", after_seq=99)
    # What the log holds at its beginning is no longer readable, and nobody notices who does not ask for it.
    data = journal.path.read_bytes()
    half = data.index(b'\n{"seq":50,') + 1
    journal.path.write_bytes(b"{" * (half - 1) + b"\n" + data[half:])
    decoded: list[bytes] = []
    decode = log.decode_line

    def spy(raw: bytes) -> tuple[Record | None, str]:
        decoded.append(raw)
        return decode(raw)

    monkeypatch.setattr(log, "decode_line", spy)
    (last,) = await store.records("a1b2c3", after_seq=99)
    assert last.seq == 100
    assert len(decoded) == 1


async def test_records_are_read_on_after_the_log_was_rewritten(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with await store.create("/w") as journal:
        await journal.append([note(f"secret {number} " + "x" * 9000) for number in range(50)])
        await journal.records(40)
        await store.redact([Words(text="secret")])
        await journal.append([note("after")])
        found = await all_after(journal, 30, 7)
        assert [record.seq for record in found] == list(range(31, 52))
        assert "[forgotten] 30 x" in str(found[0].event)


@requirement("sessions:ephemeral")
async def test_an_ephemeral_session_numbers_and_replays_like_any_other_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    store = store_in(tmp_path)
    async with aclosing(store.ephemeral("/w")) as journal:
        first = await journal.append(
            [started("a1b2c3"), TextDelta(text="not kept"), *exchange("hi", "hello")]
        )
        second = await journal.append([note("more")], durable=True)
        assert [record.seq for record in (*first, *second)] == [1, 2, 3, 4, 5, 6]
        assert await all_after(journal, 2, 3) == [*first, *second][2:]
        spilled = journal.spill_dir / "result.txt"
        spilled.write_text("long")
    assert not spilled.parent.exists()
    with pytest.raises(StorageError, match="is closed"):
        await journal.append([note("late")])
    assert list(tmp_path.iterdir()) == []
    assert await store.list() == []
