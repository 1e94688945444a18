"""The tool `bash`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.tools import ToolResult
from tests.requirements import requirement
from tests.tools.conftest import Session

pytestmark = pytest.mark.anyio


@requirement("tools:bash:runs")
async def test_exit_code_and_streams_are_labelled(session: Session) -> None:
    result = await session("bash", command="echo out; echo err >&2; exit 3")
    assert result == ToolResult(
        text="exit code: 3\nstdout:\nout\nstderr:\nerr",
        is_error=True,
        data={
            "exit_code": 3,
            "signal": None,
            "timed_out": False,
            "stdout": "out\n",
            "stderr": "err\n",
            "cwd": str(session.cwd),
        },
        untrusted=True,
    )
    assert (await session("bash", command="true")).text == "exit code: 0"


@requirement("tools:bash:cwd")
async def test_the_working_directory_lasts_also_out_of_the_project_and_with_a_line_break_in_it(
    session: Session,
) -> None:
    (session.cwd / "a\nb").mkdir()
    assert (await session("bash", command="cd 'a\nb'")).text.endswith(r"project/a\nb]")
    assert (await session("bash", command="pwd; exit 1")).text.splitlines()[2:4] == [
        str(session.cwd / "a"),
        "b",
    ]
    assert (await session("bash", command="cd / && false")).text.splitlines()[-1] == "[working directory: /]"
    assert (await session("bash", command="pwd")).data["stdout"] == "/\n"
    await session("bash", command=f"cd {session.cwd}")
    assert (await session("bash", command="pwd")).text == f"exit code: 0\nstdout:\n{session.cwd}"


async def test_variables_do_not_last_and_traps_of_the_command_do_no_harm(session: Session) -> None:
    await session("bash", command="export X=1; trap 'echo mine' EXIT; cd /")
    assert (await session("bash", command="echo [$X]; pwd")).data["stdout"] == f"[]\n{session.cwd}\n"


async def test_a_folder_that_is_gone_sends_the_shell_home(session: Session) -> None:
    (session.cwd / "sub").mkdir()
    await session("bash", command="cd sub")
    (session.cwd / "sub").rmdir()
    result = await session("bash", command="pwd")
    assert result.data["stdout"] == f"{session.cwd}\n"
    assert result.text.endswith(
        f"[{session.cwd / 'sub'} no longer exists; the command ran in {session.cwd}.]"
    )


async def test_a_command_cannot_report_a_folder_that_does_not_exist(session: Session) -> None:
    await session("bash", command="printf '/nonexistent\\0relative\\0' >&$_satchel_fd; trap - EXIT")
    assert (await session("bash", command="pwd")).data["stdout"] == f"{session.cwd}\n"


@requirement("tools:bash:progress")
async def test_output_is_shown_while_the_command_runs(session: Session) -> None:
    gate = session.cwd / "gate"
    os.mkfifo(gate)

    came = anyio.Event()
    tell = session.context.progress

    async def tell_and_note(data: Mapping[str, Any]) -> None:
        await tell(data)
        came.set()

    session.context.progress = tell_and_note

    async def release() -> None:
        with anyio.fail_after(120):
            await came.wait()
        handle = os.open(gate, os.O_WRONLY)
        os.write(handle, "é\n".encode())
        os.close(handle)

    async with anyio.create_task_group() as group:
        group.start_soon(release)
        await session("bash", command="printf 'wait\\n\\xc3'; read x < gate; printf '\\xa9'; echo $x >&2")
    shown = {
        stream: "".join(p["text"] for p in session.progress if p["stream"] == stream)
        for stream in ("stdout", "stderr")
    }
    assert shown == {"stdout": "wait\né", "stderr": "é\n"}


async def test_a_flood_is_cut_in_the_result_which_states_its_size(session: Session) -> None:
    result = await session("bash", command="echo first; yes | head -c 20000000; echo last")
    assert len(result.text) < 1_100_000
    assert result.text.startswith("exit code: 0\nstdout:\nfirst\ny\n")
    assert result.text.endswith("y\nlast")
    assert "bytes left out" in result.text
    assert len(session.progress) < 300
    assert sum(len(data.get("text", "")) for data in session.progress) <= 262_144
    assert session.progress[-1]["bytes"] > 5_000_000


async def test_output_that_arrives_letter_by_letter_is_reported_in_larger_pieces(session: Session) -> None:
    result = await session("bash", command="for i in {1..20000}; do printf x; done")
    assert result.data["stdout"] == "x" * 20_000
    assert len(session.progress) < 210


@requirement("tools:bash:group")
async def test_a_command_over_its_time_is_ended_with_all_it_started(session: Session) -> None:
    os.mkfifo(session.cwd / "lifeline")
    reader = os.open(session.cwd / "lifeline", os.O_RDONLY | os.O_NONBLOCK)
    command = "exec 9>lifeline; echo held; setsid -f sleep 1000; sleep 1000 | sleep 1000"
    limit_s, text = 0.25, ""
    while "held" not in text:  # on a busy machine, it may not have begun by then
        limit_s *= 2
        result = await session("bash", command=command, timeout_s=limit_s)
        assert result.is_error
        text = result.text
    assert text == f"stopped after {limit_s:g} s, with everything that it had started\nstdout:\nheld"
    with anyio.fail_after(120):
        await anyio.wait_readable(reader)
    assert os.read(reader, 10) == b""
    os.close(reader)


async def test_background_processes_end_with_the_call_and_it_says_so(session: Session) -> None:
    result = await session("bash", command="sleep 1000 & echo started")
    assert result.text == (
        "exit code: 0\nstdout:\nstarted\n[1 background process was still running and stopped with the command]"
    )


async def test_it_ends_before_the_loop_would_cut_it_off(
    open_session: Callable[..., Session], project: Path
) -> None:
    limit_s, text = 0.1, ""
    while "early" not in text:  # on a busy machine, it may not have begun by then
        limit_s *= 2
        hurried = open_session(project, timeout_s=5 + limit_s)
        text = (await hurried("bash", command="echo early; sleep 1000", timeout_s=600)).text
    assert text == f"stopped after {limit_s:g} s, with everything that it had started\nstdout:\nearly"


async def test_there_is_no_stdin_no_terminal_and_no_colour(session: Session) -> None:
    result = await session("bash", command="cat; (: >/dev/tty) 2>/dev/null || echo none; echo $TERM $PAGER")
    assert result.data["stdout"] == "none\ndumb cat\n"


async def test_the_environment_is_the_given_one(open_session: Callable[..., Session], project: Path) -> None:
    bare = open_session(
        project, environ={"PATH": os.environ["PATH"], "GREETING": "hello", "BASH_ENV": "/nonexistent"}
    )
    assert (await bare("bash", command="echo $GREETING; env | grep -c SATCHEL_REPORT")).data[
        "stdout"
    ] == "hello\n0\n"


async def test_without_bash_no_other_shell_runs_the_command(
    open_session: Callable[..., Session], project: Path
) -> None:
    bare = open_session(project, environ={"PATH": "/nonexistent"})
    assert await bare("bash", command="cd /; echo $0") == ToolResult(
        text="There is no bash on the PATH, and this tool can't use another shell. Install bash.",
        is_error=True,
    )


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo a\0b", "The command contains a NUL character, which no shell accepts."),
        ("echo \ud800", "The command contains a lone surrogate at character 6."),
    ],
)
async def test_what_no_shell_takes_is_said(session: Session, command: str, text: str) -> None:
    assert await session("bash", command=command) == ToolResult(text=text, is_error=True)


async def test_what_a_progress_display_overwrote_is_left_out(session: Session) -> None:
    printed = {
        "a  1%%\\b\\b\\b\\b 99%%": "a 99%",
        " 5 of 9\\r\\033[Kdone\\r": "done\r",
        "5 of 9\\r\\033[2Kdone": "done",
        "result: 42\\rwarning": "warning 42",
        "FAILED test_a\\r": "FAILED test_a\r",
        "abc\\b\\b": "abc",
        "\\033[32mPASS\\033[0m\\r.": ".ASS",
        "日本\\rab": "ab本",
        "a\\tb\\rx\\ty": "x       y",
        "abcdef\\rx\\ty": "xbcdef  y",
        "a\\tb": "a\tb",
        "end": "end",
    }
    command = "printf '" + "\\n".join(printed) + "'"
    result = await session("bash", command=command)
    assert result.text == "exit code: 0\nstdout:\n" + "\n".join(printed.values())


async def test_output_that_is_no_text_has_marks_in_its_place(session: Session) -> None:
    assert (await session("bash", command="printf 'a\\xff\\x00b'")).data["stdout"] == "a\ufffd\0b"


async def test_a_command_may_begin_with_a_hyphen(session: Session) -> None:
    result = await session("bash", command="-x")
    assert (result.data["exit_code"], "-x: command not found" in result.text) == (127, True)


async def test_a_syntax_error_is_a_result(session: Session) -> None:
    result = await session("bash", command="if then")
    assert result.is_error
    assert "syntax error" in result.text
