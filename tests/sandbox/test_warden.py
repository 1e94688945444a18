"""SIGKILL to the program itself: what its tools run is gone a moment later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from tests.requirements import requirement
from tests.sandbox.lifeline import Lifeline

pytestmark = pytest.mark.anyio

# Runs each line of its stdin in a shell, all side by side; the word "alongside" runs it as a server is run. The words
# "copy" and "leave" fork a copy of itself that stays, and end it in good order.
PROGRAM = """
import os, signal, sys, anyio
from pathlib import Path
from satchel.sandbox.process import run_process
from satchel.sandbox.running import run_alongside

ENVIRON = {"PATH": os.environ["PATH"]}

async def run(line):
    how, _, command = line.partition(" ")
    argv = ["bash", "-c", command]
    if how == "alongside":
        async with run_alongside(argv, cwd=Path("/"), environ=ENVIRON, on_stderr=lambda _: None):
            await anyio.sleep_forever()
    else:
        await run_process(argv, cwd=Path("/"), environ=ENVIRON, grace_s=0.1)

async def main():
    async with anyio.create_task_group() as group:
        while (line := await anyio.to_thread.run_sync(sys.stdin.readline)) != "leave\\n":
            if line == "copy\\n":
                if not (copy := os.fork()):
                    while True:
                        signal.pause()
                print(copy, flush=True)
            else:
                group.start_soon(run, line.rstrip("\\n"))
        group.cancel_scope.cancel()

anyio.run(main)
"""
WAYS = {
    "waits": "run {hold}; sleep 1000",
    "is one of many": "run {hold}; (sleep 1000 | sleep 1000) & sleep 1000 & wait",
    "ignores SIGTERM": "run trap '' TERM HUP; {hold}; while :; do sleep 1000; done",
    "is stopped": "run {hold}; kill -STOP $$",
    "became another program, without a mark": "run {hold}; exec env -i sleep 1000",
    "has no mark and another group": "run {hold}; env -i bash -mc 'sleep 1000 & wait'",
    # Killed while it begins its session, it would have lost its parent, too, and escape: see decision 18.
    "has no mark and another session": "run {open}; env -i setsid -w sh -c 'echo held >&9; sleep 1000'",
    "is a daemon": "run {hold}; setsid -f bash -c '(trap \"\" TERM; sleep 1000; sleep 1000) &'; sleep 1000",
    "is a server": "alongside trap '' TERM; {hold}; while :; do sleep 1000; done",
}


@contextmanager
def started() -> Iterator[subprocess.Popen[str]]:
    """The program; it is killed at the end, if it was not before."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def tell(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdin is not None
    program.stdin.write(f"{line}\n")


def warden_of(program: int) -> int:
    """The pid of a program's warden: the one child that runs the script."""
    for _ in range(1000):  # the kernel may leave some out while others of them end, see proc_pid_task(5)
        for child in Path(f"/proc/{program}/task/{program}/children").read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):
                if "warden.sh" in Path(f"/proc/{child}/cmdline").read_text():
                    return int(child)
    raise AssertionError("it has none")


async def exited(pidfd: int) -> None:
    with anyio.fail_after(120):
        await anyio.wait_readable(pidfd)
    os.close(pidfd)


@requirement("sandbox:process:killed")
async def test_whatever_its_tools_left_is_gone_after_the_program_was_killed(tmp_path: Path) -> None:
    lines = {way: Lifeline(tmp_path, way) for way in WAYS}
    with started() as program:
        for way, command in WAYS.items():
            tell(program, command.format(hold=lines[way].hold, open=lines[way].open))
        for line in lines.values():
            await line.held()
        warden = os.pidfd_open(warden_of(program.pid))
    left = []
    for way, line in lines.items():
        try:
            await line.let_go()
        except TimeoutError:
            left.append(way)
        line.close()
    assert left == []
    await exited(warden)


@requirement("sandbox:process:killed")
async def test_a_forked_copy_of_the_program_that_lives_on_keeps_nothing_running(tmp_path: Path) -> None:
    line = Lifeline(tmp_path)
    with started() as program:
        tell(program, f"run {line.hold}; sleep 1000")
        await line.held()
        tell(program, "copy")
        assert program.stdout is not None
        copy = int(program.stdout.readline())
    try:
        await line.let_go()
        os.kill(copy, 0)
    finally:
        os.kill(copy, signal.SIGKILL)
        line.close()


@requirement("sandbox:process:killed")
async def test_who_ends_the_warden_gets_another_with_the_next_process(tmp_path: Path) -> None:
    first, second = Lifeline(tmp_path, "first"), Lifeline(tmp_path, "second")
    with started() as program:
        # Without its mark it is found by what the warden was told of it alone.
        tell(program, f"run {first.hold}; exec env -i sleep 1000")
        await first.held()
        warden = warden_of(program.pid)
        os.kill(warden, signal.SIGKILL)
        await exited(os.pidfd_open(warden))
        tell(program, f"run {second.hold}; sleep 1000")
        await second.held()
    await first.let_go()
    await second.let_go()
    first.close()
    second.close()


async def test_it_leaves_with_the_program(tmp_path: Path) -> None:
    line = Lifeline(tmp_path)
    with started() as program:
        tell(program, f"run {line.hold}; sleep 1000")
        await line.held()
        warden = warden_of(program.pid)
        tell(program, "leave")
        assert program.wait(timeout=280) == 0
        assert not Path(f"/proc/{warden}").exists()
    await line.let_go()
    line.close()
