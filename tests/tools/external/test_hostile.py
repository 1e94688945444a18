"""What a folder of tools may hold besides tools, and what a tool may do: each costs a reason or an error with a code.

After every case nothing of it runs any more, and the tool beside it serves.
"""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from tests.requirements import requirement
from tests.tools.external.executables import Bench, mark_of, processes_that_say, schema, script

pytestmark = pytest.mark.anyio

FOREIGN_ELF = (
    b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (0xF3).to_bytes(2, "little") + bytes(200)
)
"""The header of a program for RISC-V."""
DAEMON = (
    "(setsid sh -c 'trap \"\" TERM HUP; sleep 600 & sleep 600; sleep 600' </dev/null >/dev/null 2>&1 &) ; "
)


def answering(said: str) -> str:
    return f"#!/bin/sh\ncat <<'JSON'\n{said}\nJSON\n"


def fifo(bench: Bench) -> None:
    os.mkfifo(bench.tools / "bad", 0o700)


def dangling(bench: Bench) -> None:
    (bench.tools / "bad").symlink_to(bench.work / "nothing")


def circle(bench: Bench) -> None:
    (bench.tools / "bad").symlink_to(bench.tools / "bad")


def folder(bench: Bench) -> None:
    (bench.tools / "bad").mkdir()


def put(text: str | bytes, mode: int = 0o755, name: str = "bad") -> Callable[[Bench], None]:
    def make(bench: Bench) -> None:
        bench.put(name, text, mode=mode)

    return make


AT_DISCOVERY: dict[str, tuple[Callable[[Bench], None], str]] = {
    "hangs": (put("#!/bin/sh\nsleep 600\n"), "did not answer within 1 s"),
    "hangs and ignores SIGTERM": (
        put("#!/bin/sh\ntrap '' TERM HUP INT\nwhile :; do sleep 600; done\n"),
        "did not answer within 1 s",
    ),
    "computes for ever": (put("#!/bin/sh\nwhile :; do :; done\n"), "did not answer within 1 s"),
    "prints 1 GB": (put("#!/bin/sh\nhead -c 1000000000 /dev/zero\n"), "printed more than"),
    "prints 1 GB of errors": (put("#!/bin/sh\nhead -c 1000000000 /dev/zero >&2\n"), "printed more than"),
    "prints for ever": (put("#!/bin/sh\nyes\n"), "printed more than"),
    "prints half of its JSON": (put(answering(schema("bad")[:20])), "did not print JSON"),
    "prints JSON and dies": (put(answering(schema("bad")) + "kill -KILL $$\n"), "ended by signal 9"),
    "prints JSON and fails": (put(answering(schema("bad")) + "echo oh >&2; exit 3\n"), "exit code 3: oh"),
    "prints JSON and never ends": (put(answering(schema("bad")) + "sleep 600\n"), "did not answer"),
    "prints nothing": (put("#!/bin/sh\n"), "printed nothing"),
    "forks a daemon and then hangs": (put(f"#!/bin/sh\n{DAEMON}sleep 600\n"), "did not answer"),
    "has a name with spaces": (put(script("my tool")), "64 letters"),
    "has a name of 300 characters": (put(script("n" * 300)), "64 letters"),
    "has the name of a built-in": (put(script("think")), "a built-in tool is called think"),
    "is a folder": (folder, "it is a folder"),
    "is a dangling link": (dangling, "does not exist"),
    "is a link to itself": (circle, "can't be reached"),
    "is a FIFO": (fifo, "a named pipe"),
    "is not executable": (put(script("bad"), 0o644), "chmod u+x"),
    "is for another architecture": (put(FOREIGN_ELF), "not a program for this machine"),
    "has no first line": (put("echo no\n"), "not a program for this machine"),
    "has an interpreter that is not there": (put("#!/no/such/python\n"), "(#!/no/such/python) is missing"),
    "has a first line that is a folder": (put("#!/tmp\n"), "can't be started"),
    "is empty": (put(""), "not a program for this machine"),
    "has a name that is no text": (
        put(script("bad"), name=os.fsdecode(b"bad\xff")),
        "not UTF-8",
    ),
    "has a name that steers a terminal": (put("#!/bin/sh\n", name="bad\x1b[2J"), "printed nothing"),
}


@requirement("external:hostile", "external:discovery:failed")
@pytest.mark.parametrize("case", AT_DISCOVERY)
async def test_what_is_no_tool_is_skipped_with_a_reason(bench: Bench, tmp_path: Path, case: str) -> None:
    make, reason = AT_DISCOVERY[case]
    make(bench)
    bench.put("good", script("good", "echo 1"))
    word = mark_of(tmp_path)
    external = bench.toolset(builtin=["think"], schema_timeout_s=1.0 if "did not answer" in reason else 30.0)
    external._environ = {**external._environ, "TOOL_TEST": word}
    with anyio.fail_after(120):
        await external.discover()
        while external.get("good") is None:  # a second may be too short for it, too, on a busy machine
            await external.refresh()
    bad = next(entry for entry in external.entries if entry.path.name != "good")
    assert bad.status == "skipped"
    assert reason in bad.reason
    assert [tool.spec.name for tool in await external.tools()] == ["good"]
    good = external.get("good")
    assert good is not None
    assert (await good.run({}, bench.context()))["result"] == 1
    assert processes_that_say(word) == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    body: str
    code: str
    says: str


AT_A_CALL: dict[str, Case] = {
    "hangs": Case(body="sleep 600", code="TOOL_TIMEOUT", says="timed out after 0.7s"),
    "ignores SIGTERM": Case(
        body="trap '' TERM HUP INT; while :; do sleep 600; done", code="TOOL_TIMEOUT", says="timed out"
    ),
    "prints for ever": Case(body="yes", code="INVALID_OUTPUT", says="printed more than 8 MB"),
    "prints 1 GB": Case(body="head -c 1000000000 /dev/zero", code="INVALID_OUTPUT", says="printed more than"),
    "prints half of its JSON": Case(
        body="printf '{\"a\":'", code="INVALID_OUTPUT", says="did not print JSON"
    ),
    "prints JSON and dies": Case(body="echo '{}'; kill -KILL $$", code="TOOL_CRASHED", says="signal 9"),
    "prints JSON and hangs": Case(body="echo '{}'; sleep 600", code="TOOL_TIMEOUT", says="timed out"),
    "closes its output and hangs": Case(
        body="exec >&- 2>&-; sleep 600", code="TOOL_TIMEOUT", says="timed out"
    ),
    "stops itself": Case(body="kill -STOP $$", code="TOOL_TIMEOUT", says="timed out"),
    "kills its group": Case(body="kill -KILL 0", code="TOOL_CRASHED", says="signal 9"),
    "forks a daemon": Case(body=f"{DAEMON} echo '{{}}'", code="", says=""),
    "forks a daemon that holds its output": Case(body="setsid sleep 600 & echo '{}'", code="", says=""),
    "closes stdin at once": Case(body="exec <&-; sleep 0.1; echo '{}'", code="", says=""),
    "never reads its stdin": Case(body="echo '{}'", code="", says=""),
}


@requirement("external:hostile", "external:codes")
@pytest.mark.parametrize("case", AT_A_CALL)
async def test_what_a_call_does_ends_with_the_call(bench: Bench, tmp_path: Path, case: str) -> None:
    wanted = AT_A_CALL[case]
    word = mark_of(tmp_path)
    bench.put("bad", script("bad", f"export TOOL_TEST={word}; {wanted.body}"))
    bench.put("good", script("good", "echo 1"))
    external = await bench.found(run_timeout_s=0.7 if wanted.code == "TOOL_TIMEOUT" else 30)
    bad, good = external.get("bad"), external.get("good")
    assert bad is not None
    assert good is not None
    with anyio.fail_after(120):
        # More than a pipe holds: whoever does not read it must not be waited for.
        envelope = await bad.run({"x": "y" * 1_000_000}, bench.context())
    if wanted.code:
        assert (envelope["tool_success"], envelope["error_code"]) == (False, wanted.code)
        assert wanted.says in envelope["error"]
        assert len(envelope["stdout"]) < 20_000
    else:
        assert envelope == {"tool_success": True, "result": {}}
    assert (await good.run({}, bench.context()))["result"] == 1
    assert processes_that_say(word) == []


TERMINAL_PROGRAM = """
import sys
from pathlib import Path
import anyio
from tests.tools.external.executables import Bench

async def main():
    bench = Bench(Path(sys.argv[1]))
    said = await bench.run("if echo SEEN 2>/dev/null >/dev/tty; then echo true; else echo false; fi")
    with open("/dev/tty", "w") as own:
        own.write(f"reached={said['result']} END")

anyio.run(main)
"""


@requirement("external:hostile")
async def test_a_tool_has_no_terminal_to_write_to(tmp_path: Path) -> None:
    """The program has one here; the tool is in a session of its own, so that /dev/tty is nobody's."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", TERMINAL_PROGRAM, str(tmp_path)])
    seen = b""
    try:
        with anyio.fail_after(120):
            while b"END" not in seen:
                await anyio.wait_readable(terminal)
                seen += os.read(terminal, 4096)
    finally:
        os.waitpid(pid, 0)
        os.close(terminal)
    assert seen == b"reached=False END"


@requirement("external:hostile")
async def test_a_tool_that_changes_between_discovery_and_call_is_not_run(bench: Bench) -> None:
    path = bench.put("probe", script("probe", "echo 1"))
    tool = await bench.tool("probe")
    state = path.stat()
    other = script("probe", "echo 2")
    assert len(other) == state.st_size
    path.write_text(other)
    # Even with the times put back.
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (await tool.run({}, bench.context()))["error_code"] == "NOT_APPROVED"


async def test_a_thousand_files_that_are_no_tools_cost_no_process(bench: Bench) -> None:
    for number in range(1000):
        bench.put(f"f{number:04}", "data", mode=0o644)
    bench.put("good", script("good"))
    external = await bench.found()
    assert [entry.status for entry in external.entries].count("skipped") == 1000
    assert [tool.spec.name for tool in await external.tools()] == ["good"]
