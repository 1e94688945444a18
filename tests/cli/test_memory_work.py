"""`satchel memory work`: what `satchel ask` leaves to a process of its own, and what becomes of it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from satchel.config.locks import FileLock
from satchel.memory import Memory
from satchel.runtime.memory_work import LOCK
from satchel.sandbox.detached import is_working
from tests.cli.programs import Ran, satchel, speaks
from tests.models.loopback import Answer, Asked, Loopback, as_json, loopback
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

FACT = {"content": "The user's cat is called Mimi.", "quote": "My cat is called Mimi"}
WORKS = {
    "SATCHEL_MEMORY_WORKER": "auto",
    "SATCHEL_MEMORY_WORKER_IDLE_S": "0",
    "SATCHEL_MEMORY_DISTILL_EVERY": "2",
}
_LOOK_S = 0.05
YES = '{"worth": true, "reason": "a pet"}'


def kind_of(asked: Asked) -> str:
    """What a request is: "chat", "gate" or "extract"."""
    system = str(asked.body["messages"][0]["content"]) if asked.body else ""
    begins = {"You decide": "gate", "You keep what": "extract"}
    return next((kind for words, kind in begins.items() if words in system), "chat")


def answering(extract: Callable[[], Answer]) -> Callable[[Asked], Answer]:
    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/models"):
            return as_json({"data": [{"id": "m-1"}]})
        kind = kind_of(asked)
        others = {"gate": YES, "chat": "Noted."}
        return extract() if kind == "extract" else speaks(others[kind])

    return answer


def facts() -> Answer:
    return speaks(json.dumps({"facts": [FACT]}))


def kinds(server: Loopback) -> list[str]:
    return [kind_of(asked) for asked in server.asked if asked.path.endswith("/chat/completions")]


class Worker:
    """The worker of a home, which nobody is the parent of."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.lock = home / "locks" / LOCK

    async def pid(self) -> int:
        """Of the one that runs, or ran last; waits for the first one."""
        while not (  # noqa: ASYNC110 - what another process writes is no event here
            self.lock.exists() and self.lock.read_text().endswith("\n")
        ):
            await anyio.sleep(_LOOK_S)
        return int(self.lock.read_text())

    async def ended(self) -> None:
        """Wait until it has released its lock."""
        await self.pid()
        await anyio.to_thread.run_sync(self._wait, abandon_on_cancel=True)

    def _wait(self) -> None:
        with self.lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)

    async def kill(self) -> None:
        os.kill(await self.pid(), signal.SIGKILL)
        await self.ended()


@asynccontextmanager
async def world(
    folder: Path, extract: Callable[[], Answer] = facts
) -> AsyncIterator[tuple[Loopback, Worker, Callable[..., Any]]]:
    """An endpoint, the worker, and `satchel` with that endpoint. The worker that is left is ended."""
    worker = Worker(folder / "home")
    async with loopback(answering(extract)) as server:

        async def run(*arguments: str, stdin: str = "", **environ: str) -> Ran:
            return await satchel(folder, *arguments, server=server, stdin=stdin, environ={**WORKS, **environ})

        try:
            with anyio.fail_after(280):
                yield server, worker, run
        finally:
            if is_working(worker.home, LOCK):
                with suppress(ProcessLookupError, ValueError):
                    os.kill(int(worker.lock.read_text()), signal.SIGKILL)


async def asked_for(server: Loopback, kind: str) -> None:
    while kind not in kinds(server):  # noqa: ASYNC110 - what another process asks is no event here
        await anyio.sleep(_LOOK_S)


async def facts_in(folder: Path) -> list[str]:
    async with Memory.open(folder / "home" / "satchel.db", embedder="none", back_fill=False) as memory:
        return [fact.content for fact in await memory.list(kind="fact")]


@requirement("memory:worker:detached", "memory:worker:idle")
async def test_ask_ends_while_a_process_of_its_own_extracts_the_facts(tmp_path: Path) -> None:
    held = anyio.Event()
    async with world(tmp_path, lambda: replace(facts(), hold=held)) as (server, worker, run):
        ran = await run("ask", "My cat is called Mimi.")
        assert (ran.code, ran.out) == (0, "Noted.\n")
        # It has ended, and the extractor has not answered yet.
        await asked_for(server, "extract")
        assert "running in the background" in (await run("doctor")).out
        pid = await worker.pid()
        # The key is in its environment, as in that of `ask`, and not in its arguments, which everybody can read.
        shown = Path(f"/proc/{pid}/cmdline")
        if shown.exists():
            assert b"key-o" not in shown.read_bytes()
            assert os.getpriority(os.PRIO_PROCESS, pid) >= 15
        held.set()
        await worker.ended()
        assert await facts_in(tmp_path) == ["The user's cat is called Mimi."]
        log = (tmp_path / "home" / "logs" / "memory-work.log").read_text()
        assert "read for facts: facts; 1 new" in log
        assert "Mimi" not in log
        usage = (await run("usage", "--json")).json
        assert [(row["purpose"], row["calls"]) for row in usage] == [("conversation", 1), ("extract", 1)]
        assert "The user's cat is called Mimi." in (await run("memory", "page")).out


@requirement("capabilities:earned")
async def test_what_was_asked_for_three_times_is_proposed_where_nothing_but_ask_runs(tmp_path: Path) -> None:
    km = {"12": "19.31", "30": "48.28", "5": "8.05"}
    proposal = {
        "worth": True,
        "name": "miles_to_km",
        "description": "Convert miles to kilometres.",
        "input_schema": {
            "type": "object",
            "properties": {"miles": {"type": "number"}},
            "required": ["miles"],
        },
        "uses": [
            {"time": time, "input": {"miles": int(miles)}, "result": result}
            for time, (miles, result) in enumerate(km.items(), 1)
        ],
    }

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/models"):
            return as_json({"data": [{"id": "m-1"}]})
        if "had something done several times" in str(asked.body["messages"][0]["content"]):
            return speaks(json.dumps(proposal))
        miles = str(asked.body["messages"][-1]["content"]).split()[1]
        return speaks(f"{miles} miles are {km.get(miles, '?')} km.")

    environ = {**WORKS, "SATCHEL_MEMORY_DISTILL": "off"}
    async with loopback(answer) as server:
        worker = Worker(tmp_path / "home")

        async def run(*arguments: str) -> Ran:
            return await satchel(tmp_path, *arguments, server=server, environ=environ)

        with anyio.fail_after(280):
            for miles in km:
                assert (await run("ask", f"Convert {miles} miles to kilometres.")).code == 0
                await worker.ended()
            await run("memory", "work")
            listed = await run("capability", "list")
        assert listed.out.split()[:2] == ["miles_to_km", "waiting"]
        assert "You have had this done 3 times" in listed.err


@requirement("memory:worker:silent")
@pytest.mark.parametrize("how", [("ask", "-"), ("chat", "--plain")])
async def test_what_was_said_is_known_in_the_next_conversation_though_its_day_is_not_over(
    tmp_path: Path, how: tuple[str, ...]
) -> None:
    async with world(tmp_path) as (server, worker, run):

        async def say(text: str) -> None:
            ran = await run(*how, stdin=f"{text}\n", SATCHEL_MEMORY_DISTILL_EVERY="10")
            assert ran.code == 0, ran.err

        await say("My cat is called Mimi.")
        await worker.ended()
        await say("Who purrs?")
        assert kinds(server) == ["chat", "chat"]
        assert "My cat is called Mimi." in json.dumps(server.asked[-1].body)
        # What fills a window is read before the worker ends.
        await say("She purrs. " * 500)
        await asked_for(server, "extract")
        await worker.ended()
        assert await facts_in(tmp_path) == ["The user's cat is called Mimi."]


@requirement("memory:worker:killed", "memory:distill:verdicts")
async def test_after_kill_9_the_next_one_goes_on_and_pays_no_verdict_twice(tmp_path: Path) -> None:
    held = anyio.Event()
    answers = [replace(facts(), hold=held), facts()]
    async with world(tmp_path, lambda: answers.pop(0)) as (server, worker, run):
        await run("ask", "My cat is called Mimi.")
        await asked_for(server, "extract")
        await worker.kill()
        assert await facts_in(tmp_path) == []
        assert (await run("memory", "work")).code == 0
        assert await facts_in(tmp_path) == ["The user's cat is called Mimi."]
        assert kinds(server).count("gate") == 0


@requirement("memory:worker:one")
async def test_there_is_one_for_a_home_and_it_does_what_comes_meanwhile(tmp_path: Path) -> None:
    held = anyio.Event()
    async with world(tmp_path, lambda: replace(facts(), hold=held)) as (server, worker, run):
        await run("ask", "My cat is called Mimi.")
        await asked_for(server, "extract")
        first = await worker.pid()
        second = await run("memory", "work")
        assert (second.code, second.err) == (0, "Another process is doing this work in this home.\n")
        # Its answer is stored after the second question was asked, which starts no other process.
        await run("ask", "And my dog is called Rex.")
        assert await worker.pid() == first
        held.set()
        await worker.ended()
        # The answer about the cat stands on nothing that was said of the dog, and is asked for once more.
        assert kinds(server).count("extract") == 3


@requirement("memory:worker:forget")
async def test_what_is_forgotten_while_it_works_leaves_nothing(tmp_path: Path) -> None:
    held = anyio.Event()
    async with world(tmp_path, lambda: replace(facts(), hold=held)) as (server, worker, run):
        await run("ask", "My cat is called Mimi.")
        await asked_for(server, "extract")
        gone = await run("memory", "forget", "--query", "Mimi", "--yes")
        assert gone.code == 0, gone.err
        held.set()
        await worker.ended()
        assert await facts_in(tmp_path) == []
        files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
        assert [path.name for path in files if b"Mimi" in path.read_bytes()] == []


@requirement("memory:worker:detached")
async def test_the_passages_of_a_document_are_left_to_it(tmp_path: Path) -> None:
    (note := tmp_path / "attic.md").write_text("The ladder is in the attic.")
    async with world(tmp_path) as (_, worker, run):
        assert (await run("memory", "add-file", str(note))).code == 0
        await worker.ended()
        first = worker.lock.stat().st_mtime_ns
        assert (await run("memory", "add-file", str(note))).code == 0  # nothing has changed
        assert worker.lock.stat().st_mtime_ns == first


@requirement("memory:worker:off")
async def test_off_or_impossible_leaves_the_work_to_the_next_session_and_doctor_says_so(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (server, worker, run):
        ran = await run("ask", "My cat is called Mimi.", SATCHEL_MEMORY_WORKER="off")
        assert (ran.code, worker.lock.exists()) == (0, False)
        off = (await run("doctor", SATCHEL_MEMORY_WORKER="off")).out
        assert "memory work: off (memory.worker = off)" in off
        # Where its log should be is a file, so no process can be started.
        (tmp_path / "home" / "logs").write_text("")
        ran = await run("ask", "How is my cat called?")
        assert (ran.code, worker.lock.exists()) == (0, False)
        told = " ".join((await run("doctor")).out.split())
        assert "! memory work: " in told
        assert "could not be started in the background" in told
        assert "The work waits for the next conversation, which does it itself." in told
        (tmp_path / "home" / "logs").unlink()
        # The next one does it, and the one after that can leave it again.
        await run("ask", "Thank you.")
        await worker.ended()
        assert "starts after `satchel ask`" in (await run("doctor")).out
        assert await facts_in(tmp_path) == ["The user's cat is called Mimi."]


async def test_while_the_process_starts_doctor_says_so(tmp_path: Path) -> None:
    async with world(tmp_path) as (_, worker, run):
        worker.lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        start = FileLock.take(worker.lock.with_name(f"{LOCK}.starting"))
        assert start is not None
        assert "memory work: starting in the background" in " ".join((await run("doctor")).out.split())
        start.release()
