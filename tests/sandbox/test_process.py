"""Starting processes: output, limits, and that nothing is left of them however they end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from satchel.errors import SandboxError
from satchel.sandbox import process
from satchel.sandbox.detached import is_starting, start_working, work_lock
from satchel.sandbox.process import MARK, REPORT_FD, Captured, ProcessResult, StreamName, run_process
from tests.requirements import requirement
from tests.sandbox.lifeline import Lifeline

pytestmark = pytest.mark.anyio
ENVIRON: Mapping[str, str] = {"PATH": os.environ["PATH"]}


async def bash(command: str, cwd: Path, **options: object) -> ProcessResult:
    with anyio.fail_after(120):
        return await run_process(["bash", "-c", command], cwd=cwd, environ=ENVIRON, **options)  # type: ignore[arg-type]


async def too_long(command: str, cwd: Path, **options: object) -> ProcessResult:
    """Run what says "up" and is ended by its time limit. On a busy machine the limit may end it before it says so, which
    shows nothing; it is run again then, with twice the time.
    """
    limit_s = 0.3
    while True:
        result = await bash(command, cwd, timeout_s=limit_s, **options)
        assert result.timed_out
        if b"up" in result.stdout.data:
            return result
        limit_s *= 2


@pytest.fixture
def lifeline(tmp_path: Path) -> Lifeline:
    return Lifeline(tmp_path)


async def test_stdin_is_given_whole_and_closed(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    result = await bash("cat", tmp_path, stdin=data)
    assert result.stdout == Captured(
        head=data[: len(result.stdout.head)], tail=data[len(result.stdout.head) :]
    )


@requirement("sandbox:process:output")
async def test_a_flood_keeps_its_head_and_tail_and_counts_the_rest(tmp_path: Path) -> None:
    result = await bash("echo first; yes | head -c 5000000; echo last", tmp_path, max_output_bytes=1000)
    assert len(result.stdout.head) == len(result.stdout.tail) == 500
    assert result.stdout.head.startswith(b"first\ny\n")
    assert result.stdout.tail.endswith(b"y\nlast\n")
    assert result.stdout.omitted == 6 + 5_000_000 + 5 - 1000
    assert f"[… {result.stdout.omitted:,} bytes left out …]" in result.stdout.text


async def test_output_at_the_limit_is_whole(tmp_path: Path) -> None:
    result = await bash("printf 0123456789", tmp_path, max_output_bytes=10)
    assert result.stdout == Captured(head=b"01234", tail=b"56789")
    assert result.stdout.text == "0123456789"


async def test_an_endless_flood_is_stopped_by_the_time_limit(tmp_path: Path) -> None:
    result = await bash("yes", tmp_path, timeout_s=0.3, max_output_bytes=1000)
    assert (result.timed_out, result.exit_code) == (True, None)
    assert len(result.stdout.data) == 1000


async def test_what_the_listener_raises_ends_the_program(tmp_path: Path, lifeline: Lifeline) -> None:
    async def tell(stream: StreamName, chunk: bytes) -> None:
        raise ValueError("enough")

    with pytest.raises(ExceptionGroup) as caught:
        await bash(f"{lifeline.hold}; echo x; sleep 1000", tmp_path, on_output=tell)
    assert caught.group_contains(ValueError, match="enough")
    await lifeline.held()
    await lifeline.let_go()


async def test_sigterm_lets_a_program_say_goodbye(tmp_path: Path) -> None:
    command = "trap 'echo bye; exit 5' TERM; echo up; while true; do read -t 1 x <> <(:); done"
    result = await too_long(command, tmp_path, grace_s=60)
    assert (result.stdout.data, result.exit_code) == (b"up\nbye\n", 5)


@requirement("sandbox:process:group")
async def test_cancelling_the_caller_ends_everything_first(tmp_path: Path, lifeline: Lifeline) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(bash, f"{lifeline.hold}; setsid -f sleep 1000; sleep 1000", tmp_path)
        await lifeline.held()
        group.cancel_scope.cancel()
    await lifeline.let_go()


async def test_someone_who_holds_the_pipe_and_escaped_does_not_hang_us(tmp_path: Path) -> None:
    # `env -i` takes the mark away, the second fork the parent: the documented limit. We return all the same.
    note = tmp_path / "pid"
    escape = (
        f'setsid env -i {sys.executable} -S -c "import os,time; os.fork() and os._exit(0); '
        f"open('{note}','w').write(str(os.getpid())); time.sleep(60)\""
    )
    result = await bash(f"({escape} &); while [ ! -s {note} ]; do sleep 0.05; done; echo done", tmp_path)
    assert (result.exit_code, result.stdout.data) == (0, b"done\n")
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(note.read_text()), signal.SIGKILL)


async def test_a_process_substitution_gets_a_moment_to_finish(tmp_path: Path) -> None:
    result = await bash("echo a > >(cat; echo b)", tmp_path)
    assert (result.stdout.data, result.left_behind) == (b"a\nb\n", 0)


async def test_the_moment_does_not_run_while_a_process_waits_for_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine, seen from the process: it has 20 ms before it is looked at, and needs more.
    monkeypatch.setattr(process, "LINGER_S", 0.02)
    monkeypatch.setattr(process, "_is_held_up", lambda pid: process._stat(pid) is not None)
    result = await bash("echo a > >(cat; sleep 0.2; echo b)", tmp_path)
    assert (result.stdout.data, result.left_behind) == (b"a\nb\n", 0)


async def test_processes_that_start_new_ones_when_killed_lose_the_race(
    tmp_path: Path, lifeline: Lifeline
) -> None:
    worker = "(trap '' TERM; while true; do sleep 1000; done)"
    command = f"{lifeline.hold}; for i in 1 2 3 4 5 6 7 8 9; do {worker} & done; echo up; wait"
    await too_long(command, tmp_path, grace_s=0.05)
    await lifeline.held()
    await lifeline.let_go()


async def test_nothing_is_left_as_a_zombie_of_ours(tmp_path: Path) -> None:
    for command in ("true", "sleep 1000 & true", "kill -9 $$"):
        await bash(command, tmp_path)
    # One runs, the warden, and none has ended without being taken notice of.
    assert os.waitpid(-1, os.WNOHANG) == (0, 0)


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    await bash("true", tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        await bash("sleep 1000 & echo x", tmp_path, stdin=b"x", max_report_bytes=10)
    with pytest.raises(SandboxError):
        await run_process(["/nonexistent/program"], cwd=tmp_path, environ=ENVIRON)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("argv", "cwd", "why"),
    [
        (["/nonexistent/program"], "/", "No such file or directory"),
        (["/"], "/", "Permission denied"),
        (["true"], "/nonexistent", "No such file or directory"),
        (["echo", "a\0b"], "/", "null byte"),
        (["echo", "\ud800"], "/", "surrogates not allowed"),
    ],
)
async def test_what_can_not_be_started_says_why(argv: list[str], cwd: str, why: str) -> None:
    with pytest.raises(SandboxError, match=why):
        await run_process(argv, cwd=Path(cwd), environ=ENVIRON)


async def test_a_file_of_another_architecture_says_so(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(57))
    program.chmod(0o755)
    with pytest.raises(SandboxError, match="Exec format error"):
        await run_process([str(program)], cwd=tmp_path, environ=ENVIRON)


async def test_the_environment_is_the_given_one_and_the_mark(tmp_path: Path) -> None:
    result = await run_process(["/usr/bin/env"], cwd=tmp_path, environ={"A": "1", MARK: "outer"})
    names = dict(line.split("=", 1) for line in result.stdout.text.splitlines())
    assert names.keys() == {"A", MARK}
    assert names[MARK].startswith("outer:")


async def test_a_report_comes_by_its_own_descriptor_and_is_cut(tmp_path: Path) -> None:
    result = await bash(f"printf 0123456789 >&${REPORT_FD}; echo out", tmp_path, max_report_bytes=4)
    assert (result.report, result.stdout.data) == (b"0123", b"out\n")


@requirement("sandbox:process:group")
async def test_the_interpreters_exit_ends_what_still_runs(tmp_path: Path, lifeline: Lifeline) -> None:
    program = textwrap.dedent(
        f"""
        import os, threading, anyio
        from pathlib import Path
        from satchel.sandbox.process import run_process
        def work():
            anyio.run(lambda: run_process(
                ["bash", "-c", "trap '' TERM; {lifeline.hold}; setsid -f sleep 1000; sleep 1000"],
                cwd=Path("/"), environ={{"PATH": os.environ["PATH"]}}))
        threading.Thread(target=work, daemon=True).start()
        input()
        """
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as interpreter:
        await lifeline.held()
        interpreter.communicate(b"\n")
    await lifeline.let_go()
    assert interpreter.returncode == 0


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process that is not its own")
def test_work_is_started_once_and_again_as_soon_as_a_start_has_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, worker = tmp_path / "told", tmp_path / "worker"
    os.mkfifo(told)
    worker.write_text(f"#!/bin/sh\necho $$ > {told}\nexec sleep 60\n")
    worker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(worker))

    def start() -> None:
        start_working(tmp_path / "home", "work", ENVIRON, (), log="log")

    for _ in range(2):
        start()
        start()  # one is just starting
        (pid,) = map(int, told.read_text().split())
        dies = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        assert select.select([dies], [], [], 5)[0]
        os.close(dies)
    lock = work_lock(tmp_path / "home", "work")
    assert lock is not None
    start()  # one works
    assert [path.name for path in (tmp_path / "home" / "locks").iterdir()] == ["work"]
    lock.release()


def test_a_start_that_hangs_keeps_no_other_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, told, worker = tmp_path / "home", tmp_path / "told", tmp_path / "worker"
    os.mkfifo(told)
    # Open for writing here as well, so that nobody waits for the other end.
    pids = os.open(told, os.O_RDWR | os.O_NONBLOCK)
    worker.write_text(f"#!/bin/sh\necho $$ > {told}\nexec sleep 60\n")
    worker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(worker))
    mark = home / "locks" / "work.starting"

    def started() -> int:
        start_working(home, "work", ENVIRON, (), log="log")
        assert select.select([pids], [], [], 10)[0]
        return int(os.read(pids, 100))

    hangs = []
    try:
        hangs.append(started())
        assert is_starting(home, "work")
        for began in (0, 2**32):  # long ago, and of a clock that was set back
            os.utime(mark, (began, began))
            assert not is_starting(home, "work")
            hangs.append(started())
            assert is_starting(home, "work")
    finally:
        for pid in hangs:
            os.kill(pid, signal.SIGKILL)
        os.close(pids)
    assert len(set(hangs)) == 3
