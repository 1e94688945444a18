"""A process that is spoken to while it runs, and that is gone after its block."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from satchel.errors import SandboxError
from satchel.sandbox.running import run_alongside

pytestmark = pytest.mark.anyio
ECHO = "import sys\nfor line in sys.stdin:\n    sys.stderr.write('heard\\n'); sys.stderr.flush(); print(line, end='', flush=True)"
ENVIRON = {"PATH": "/usr/bin:/bin"}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def test_input_is_answered_and_stderr_is_separate(tmp_path: Path) -> None:
    heard: list[bytes] = []
    with anyio.fail_after(120):
        async with run_alongside(
            [sys.executable, "-c", ECHO], cwd=tmp_path, environ=ENVIRON, on_stderr=heard.append
        ) as process:
            await process.send(b"one\n")
            assert await process.receive() == b"one\n"
            await process.send(b"x" * 300_000 + b"\n")
            got = b""
            while not got.endswith(b"\n"):
                got += await process.receive()
            assert len(got) == 300_001
            pid = process.pid
    assert not is_running(pid)
    assert b"".join(heard).startswith(b"heard\n")


async def test_a_process_that_left_gives_an_end_and_takes_nothing_more(tmp_path: Path) -> None:
    with anyio.fail_after(120):
        async with run_alongside(
            [sys.executable, "-c", "pass"], cwd=tmp_path, environ=ENVIRON, on_stderr=lambda _: None
        ) as process:
            assert await process.receive() == b""
            await process.exited()
            with pytest.raises(SandboxError, match="no longer reads its input"):
                await process.send(b"x")


async def test_a_process_that_ignores_signals_is_ended_after_a_cancelled_block(tmp_path: Path) -> None:
    program = "import signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(1000)"
    pid = 0
    with anyio.fail_after(120):
        async with (
            anyio.create_task_group() as group,
            run_alongside(
                [sys.executable, "-c", program],
                cwd=tmp_path,
                environ=ENVIRON,
                on_stderr=lambda _: None,
                grace_s=0.1,
            ) as process,
        ):
            assert await process.receive() == b"up\n"
            pid = process.pid
            group.cancel_scope.cancel()
            await anyio.sleep_forever()
    assert pid
    assert not is_running(pid)
