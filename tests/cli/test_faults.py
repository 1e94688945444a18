"""Faults of what surrounds the program, with the real one in a process of its own: a model that says nothing, a clock
that is wrong.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.cli.conftest import serving
from tests.cli.programs import PROGRAM, environ_for, satchel, scripted, speaks
from tests.models.loopback import Loopback, loopback
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

LIMIT_S = 11
"""A second more than what is waited for is said after."""


async def say_nothing(stream: SocketStream) -> None:
    async with stream:
        await stream.receive()
        await anyio.sleep_forever()


async def say_comments(stream: SocketStream) -> None:
    async with stream:
        await stream.receive()
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        with suppress(anyio.BrokenResourceError):  # the program has ended
            while True:
                await stream.send(b": still here\n\n")
                await anyio.sleep(0.5)


@requirement("loop:model-silence")
async def test_a_model_that_hangs_or_sends_only_comments_is_told_of_and_ended_by_the_setting(
    tmp_path: Path,
) -> None:
    """Both at once, since the program waits for its ten seconds."""
    ends = {}

    async def ask(name: str, handle: Callable[[SocketStream], Awaitable[None]]) -> None:
        (tmp_path / name).mkdir()
        limits = {"SATCHEL_AGENT_MODEL_TIMEOUT_S": str(LIMIT_S)}
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listener.serve, handle)
            server = Loopback(listener.extra(SocketAttribute.local_port))
            ends[name] = await satchel(tmp_path / name, "ask", "Hello there", server=server, environ=limits)
            group.cancel_scope.cancel()
        shown = await satchel(tmp_path / name, "session", "list", "--json")
        assert [one["turns"] for one in shown.json] == [1]

    async with anyio.create_task_group() as both:
        both.start_soon(ask, "hangs", say_nothing)
        both.start_soon(ask, "comments", say_comments)
    for ran in ends.values():
        assert (ran.code, ran.out) == (1, "")
        assert "openai:m-1 has sent nothing for 10 s. It may take 11 s (agent.model_timeout_s)." in ran.err
        assert "openai:m-1 sent nothing for 11 s, the limit (agent.model_timeout_s)." in ran.err
    assert len(ends) == 2


@requirement("memory:clock-set-back")
@pytest.mark.skipif(not shutil.which("faketime"), reason="A WRONG CLOCK WAS NOT TESTED: no faketime here")
@pytest.mark.parametrize("offset", ["-365d", "+730d"])
def test_a_clock_that_is_set_in_a_conversation_and_back_again_loses_and_brings_back_nothing(
    tmp_path: Path, offset: str
) -> None:
    (tmp_path / "work").mkdir()

    def run(*command: str) -> str:
        ran = anyio.run(partial(satchel, tmp_path, *command, server=server))
        assert ran.code == 0, ran.err
        return ran.out

    def run_then(*command: str) -> str:
        """Run `satchel` with a clock that is wrong, for which it is started anew."""
        ran = subprocess.run(
            ["faketime", "-f", offset, *PROGRAM, *command],
            env=environ_for(tmp_path, server),
            cwd=tmp_path / "work",
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    # After years, the background has questions, too.
    with serving(scripted(*[speaks("Moritz.")] * 20)) as server:
        run("memory", "add", "Ann keeps beehives")
        gone = run("memory", "add", "Ann was in marker7777").strip()
        run("memory", "forget", gone, "--yes")
        session = json.loads(run("ask", "My cat is called Moritz", "--json"))["session_id"]
        run_then("ask", "--session", session, "How is my cat called?")
        run_then("memory", "add", "Bob likes tea")
        assert "beehives" in run_then("memory", "search", "beehives")
        (found,) = json.loads(run("session", "list", "--json"))
        listed = {one["content"]: one for one in json.loads(run("memory", "list", "--json"))}
    assert found["turns"] == 2
    said = {"My cat is called Moritz", "How is my cat called?", "Moritz."}
    assert {"Ann keeps beehives", "Bob likes tea", *said} <= listed.keys()
    assert not any("marker7777" in content for content in listed)
    years = [int(listed[text]["created_at"][:4]) for text in ("Ann keeps beehives", "Bob likes tea")]
    assert years[0] != years[1]  # the clock was indeed another


def damage(home: Path, fault: str) -> None:
    database, (log,) = home / "satchel.db", home.glob("sessions/*/*.jsonl")
    if fault in ("missing", "empty", "malformed"):
        for end in ("-wal", "-shm"):
            database.with_name(database.name + end).unlink(missing_ok=True)
    match fault:
        case "missing":
            database.unlink()
        case "empty":
            database.write_bytes(b"")
        case "malformed":
            database.write_bytes(b"SQLite format 3\0" + b"\x5a" * 40_000)
        case "without its end":
            # As it was before the last turn, which its write-ahead log had.
            for end in ("-wal", "-shm"):
                database.with_name(database.name + end).unlink(missing_ok=True)
            shutil.copyfile(home.parent / "before.db", database)
        case "without a journal":
            for journal in home.glob("journal/*"):
                journal.unlink()
        case "compressed":
            lines = log.read_bytes().splitlines(keepends=True)
            log.write_bytes(b"".join(gzip.compress(line) for line in lines)[:-20])
        case _:
            first, second, *rest = log.read_bytes().splitlines(keepends=True)
            spoilt = second[: len(second) // 2] if fault == "cut" else b"\0" * len(second)
            log.write_bytes(b"".join((first, spoilt, b"\n", *rest)))


@pytest.mark.parametrize(
    "fault",
    [
        "missing",
        "empty",
        "malformed",
        "without its end",
        "without a journal",
        "cut",
        "NULs",
        "compressed",
    ],
)
async def test_what_befalls_a_database_or_a_log_is_said_by_doctor_and_nothing_acknowledged_is_lost(
    tmp_path: Path, fault: str
) -> None:
    async with loopback(scripted(*[speaks("Moritz.")] * 4)) as server:
        run = partial(satchel, tmp_path, server=server)
        await run("memory", "add", "Ann keeps beehives")
        gone = (await run("memory", "add", "Ann was in marker7777")).out.strip()
        await run("memory", "forget", gone, "--yes")
        shutil.copyfile(tmp_path / "home/satchel.db", tmp_path / "before.db")
        assert (await run("ask", "My cat is called Moritz")).code == 0
        damage(tmp_path / "home", fault)
        doctor = await run("doctor")
        is_database = fault in ("missing", "empty", "malformed")
        assert (doctor.code == 1) == (is_database or fault == "without its end"), doctor.out
        if fault == "without its end":
            assert "The database lacked 2 memories" in doctor.out
        elif is_database:
            assert "satchel memory rebuild" in doctor.out
            assert (await run("memory", "rebuild")).code == 0
        elif fault in ("cut", "NULs", "compressed"):
            assert ".jsonl" in doctor.out
        listed = {one["content"] for one in (await run("memory", "list", "--json")).json}
    assert {"Ann keeps beehives", "My cat is called Moritz"} <= listed
    assert not any("marker7777" in content for content in listed)
