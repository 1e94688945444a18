"""The tool `bash`: runs a command in a sandbox or on the host. The working directory persists during the session."""

from __future__ import annotations

import codecs
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from satchel.errors import SandboxError, SatchelError, UsageError
from satchel.sandbox.process import REPORT_FD, OnOutput, ProcessResult, StreamName, run_process
from satchel.tools.box import NETWORK, OUTSIDE, READ, REASON, WRITE, Box
from satchel.tools.boxed import BoxedRun, Workspaces
from satchel.tools.builtin.changes import note_uncovered
from satchel.tools.builtin.fence import EVERY_PATH
from satchel.tools.builtin.jobs import show_job, start_job
from satchel.tools.builtin.record import BuiltIn
from satchel.tools.builtin.snapshot import Snapshot, may_write
from satchel.tools.display import Display, ShownResult, ends, fields
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Effect, Tool, ToolContext, ToolResult
from satchel.wording import shown, without_overwritten

STATE_KEY = "bash.cwd"
MAX_TIMEOUT_S = 600
LEAST_DEFAULT_S = 120.0
"""Enough for the tests and builds of most projects: one that is stopped has to be run again."""
SPARE_S = 5.0
"""Seconds that the loop allows beyond a command's limit, so that a stopped command's output is still returned."""
MAX_OUTPUT_BYTES = 1_048_576
MAX_CWD_BYTES = 8192
SHOWN_BYTES = 262_144
"""How much output is shown while the command runs. After that, only its size is reported, each time it doubles."""
SINGLE_PIECES = 200
GATHERED_CHARS = 4096
"""After `SINGLE_PIECES` pieces, small ones are joined up to this size: a program may write letter by letter."""
NOTED_BYTES = 65_536
"""Of the output of a background command: in it, what the sandbox refused is looked for."""
NO_PORTS = (
    "It is in a sandbox: other commands and the browser don't reach its ports. With outside_box they do, and commands "
    "in the sandbox reach them with `network`, as in localhost:8000"
)
QUIET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Without a terminal there are no colours, and no pager or password prompt that would wait for input."""
GIT_SETTINGS = {"safe.bareRepository": "explicit", "core.fsmonitor": "false"}
SCRIPT = f"""_satchel_fd=${REPORT_FD}; unset {REPORT_FD} BASH_ENV ENV
trap 'printf "%s\\0" "$PWD" >"/dev/fd/$_satchel_fd"' EXIT
eval " $1"
"""
"""Runs the command, its first argument, in the shell itself, and reports the working directory at its end."""

DESCRIPTION = """Run a bash command; gives its exit code, stdout and stderr. The working directory persists between \
calls, variables don't. There is no stdin. What it started ends with it, unless `background` is true. \
Prefer the file tools to cat, sed, find and grep."""
SANDBOX = """ In mode auto it runs in a sandbox: the project and /tmp are writable, the home is hidden, there is no \
network. If it needs more, name it in the same call, and the user is asked: `network` (list of hosts), `read`, \
`write` (lists of paths), `outside_box` (true, for docker and sudo), with a `reason`."""
BACKGROUND: Mapping[str, Mapping[str, Any]] = {
    "background": {
        "type": "boolean",
        "description": "Return at once. It runs until the session ends, or for `timeout_s`; `jobs` reads and stops it",
    }
}


def _names(what: str) -> Mapping[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "maxItems": 32, "description": what}


WISHES: Mapping[str, Mapping[str, Any]] = {
    NETWORK: _names('Hosts, such as "registry.npmjs.org"'),
    READ: _names("Paths to read, outside of the project"),
    WRITE: _names("Existing paths to write, outside of the project"),
    OUTSIDE: {"type": "boolean", "description": "Only for what no sandbox can do: docker, sudo"},
    REASON: {"type": "string", "description": "Why, in a few words"},
}


def bash_tool(*, default_timeout_s: float, boxes: Workspaces | None = None, home: Path | None = None) -> Tool:
    """Make the tool. Without `boxes`, as in a program without a session, nothing is boxed and nothing runs in the
    background. What is in `home`, SATCHEL_HOME, is not undone.
    """
    more = {**BACKGROUND, **WISHES} if boxes is not None else {}

    async def run(argv: Sequence[str], cwd: Path, context: ToolContext, **options: Any) -> BoxedRun:
        if context.box is None:
            result = await run_process(argv, cwd=cwd, environ=_environ(context.environ), **options)
            return BoxedRun(result=result, notes=[])
        if boxes is None:
            raise SandboxError("This call was permitted in a sandbox, and there is none. It was not run.")
        # What tools saved in this session, such as files that a capability made, may be read without asking.
        saved = await context.blocking(_saved, context.spill_dir)
        return await boxes.workspace(context.cwd).run(
            argv,
            box=context.box | Box(read=saved),
            cwd=cwd,
            environ={**context.environ, **QUIET},
            can_ask=True,
            **options,
        )

    async def is_from_outside(context: ToolContext) -> bool:
        """Whether a command may print what others wrote. In a box of which nothing more is open than the workspace and
        the programs on PATH, it prints what `file_read` reads there too; and, once the conversation has read something
        from outside, what tools saved of that.
        """
        if context.box is None or boxes is None:
            return True
        if context.untrusted and await context.blocking(context.spill_dir.is_dir):
            return True
        programs = await boxes.workspace(context.cwd).programs() if context.box else ()
        return bool(Box(read=programs).lacks(context.box))

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        command = _checked(input["command"])
        argv = [_shell(context.environ), "-c", SCRIPT, "bash", command]
        if input.get("background"):
            return await _in_background(
                command,
                partial(run, argv),
                input.get("timeout_s"),
                context,
                untrusted=await is_from_outside(context),
            )
        wanted_s = min(float(input.get("timeout_s", default_timeout_s)), MAX_TIMEOUT_S)
        limit_s = max(0.1, min(wanted_s, context.timeout_s - SPARE_S))
        started_in, note = _folder(context)
        async with _kept_changes(command, context, home) as notes:
            ran = await run(
                argv,
                started_in,
                context,
                timeout_s=limit_s,
                max_output_bytes=MAX_OUTPUT_BYTES,
                max_report_bytes=MAX_CWD_BYTES,
                on_output=_Progress(context).tell,
            )
        ended_in = _reported(ran.result.report)
        # Of concurrent commands, one that does not change its directory must not undo another's `cd`.
        if ended_in is not None and ended_in != started_in:
            context.state[STATE_KEY] = str(ended_in)
        notes += [note] if note else []
        told = _result(ran.result, limit_s, ended_in or started_in, [*notes, *ran.notes], context)
        return replace(told, untrusted=await is_from_outside(context))

    return function_tool(
        call,
        name="bash",
        description=DESCRIPTION + (SANDBOX if boxes is not None else ""),
        properties={
            "command": {"type": "string", "minLength": 1},
            "timeout_s": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_TIMEOUT_S,
                "description": f"Default {default_timeout_s:g}, at most {MAX_TIMEOUT_S:g}",
            },
            **more,
        },
        required=["command"],
        seldom=tuple(more),
        effects=lambda _input, _context: [Effect(resource=EVERY_PATH, writes=False)],
        annotations=Annotations(
            read_only=False, destructive=True, idempotent=False, open_world=True, boxed=boxes is not None
        ),
        timeout_s=MAX_TIMEOUT_S + SPARE_S,
        pattern_key="command",
    )


@asynccontextmanager
async def _kept_changes(command: str, context: ToolContext, home: Path | None) -> AsyncIterator[list[str]]:
    """Keep what a command changes in the session's folder for `/undo`. Gives the notes for its result.

    What users run themselves is theirs; see `run_call`, whose calls reach everything.
    """
    notes: list[str] = []
    if not context.session_id or Path("/") in context.roots or not may_write(command):
        yield notes
        return
    before = await context.blocking(partial(Snapshot, context.cwd, context.spill_dir, home=home))
    try:
        yield notes
    finally:
        # Also what a command did that was stopped.
        with anyio.CancelScope(shield=True):
            try:
                await context.blocking(before.keep, context.turn)
            except SatchelError as error:
                notes.append(f"{error} /undo does not know it.")


async def _in_background(
    command: str,
    run: Callable[..., Awaitable[BoxedRun]],
    timeout_s: float | None,
    context: ToolContext,
    *,
    untrusted: bool,
) -> ToolResult:
    """Start a command and return, or say how it ended if it does so at once."""
    folder, note = _folder(context)
    if context.session_id:
        what = "what commands in the background changed"
        await context.blocking(note_uncovered, context.spill_dir, context.turn, what)

    async def execute(take: OnOutput) -> tuple[str, str]:
        ran = await run(
            folder,
            context,
            timeout_s=timeout_s,
            max_output_bytes=NOTED_BYTES,
            max_report_bytes=MAX_CWD_BYTES,
            on_output=take,
        )
        notes = "".join(f" [{note}]" for note in ran.notes)
        ended = _outcome(ran.result, timeout_s).replace("exit code: ", "ended with exit code ")
        return f"{ended.replace('stopped after', 'was stopped after')}{notes}", ""

    notes = [note] if note else []
    if context.box is not None:
        notes.append(NO_PORTS)
    return await start_job(context, command, execute, untrusted=untrusted, notes=notes)


class _Progress:
    """Reports output while it arrives, up to `SHOWN_BYTES` and in a bounded number of pieces."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._decoders = {
            name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")
        }
        self._pending = {"stdout": "", "stderr": ""}
        self._told = 0
        self._total = 0
        self._next_total = 2 * SHOWN_BYTES

    async def tell(self, stream: StreamName, chunk: bytes) -> None:
        """Report one piece of output."""
        self._total += len(chunk)
        if self._total <= SHOWN_BYTES:
            self._pending[stream] += self._decoders[stream].decode(chunk)
            text = self._pending[stream]
            if text and (self._told < SINGLE_PIECES or len(text) >= GATHERED_CHARS):
                self._pending[stream] = ""
                self._told += 1
                await self._context.progress({"stream": stream, "text": text})
        elif self._total >= self._next_total:
            self._next_total = 2 * self._total
            await self._context.progress({"bytes": self._total})


def _checked(command: str) -> str:
    if "\0" in command:
        raise UsageError("The command contains a NUL character, which no shell accepts.")
    try:
        command.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"The command contains a lone surrogate at character {error.start + 1}.") from error
    return command


def _shell(environ: Mapping[str, str]) -> str:
    """The path of bash. No other shell will do: permission rules are based on bash's grammar."""
    found = shutil.which("bash", path=environ.get("PATH", ""))
    if found is None:
        raise UsageError("There is no bash on the PATH, and this tool can't use another shell. Install bash.")
    return found


def _environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The command's environment. Git gets two more settings, after those that the user's environment holds.

    A checkout may contain the files of a bare repository, whose configuration names programs: git uses such a
    repository only where the command names it, and starts no file system monitor.
    """
    present = environ.get("GIT_CONFIG_COUNT", "")
    count = int(present) if present.isdecimal() else 0
    settings: dict[str, str] = {}
    for at, (key, value) in enumerate(GIT_SETTINGS.items(), start=count):
        settings |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return {**environ, **QUIET, **settings, "GIT_CONFIG_COUNT": str(count + len(GIT_SETTINGS))}


def _folder(context: ToolContext) -> tuple[Path, str]:
    """The directory in which the command starts, and a note if the last command ended in another one."""
    last = context.state.get(STATE_KEY)
    if last is None:
        return context.cwd, ""
    if Path(last).is_dir():
        return Path(last), ""
    del context.state[STATE_KEY]
    return context.cwd, f"{shown(last)} no longer exists; the command ran in {shown(str(context.cwd))}."


def _reported(report: bytes) -> Path | None:
    """The folder that the shell reported last; None if it reported none, or something that is not a folder."""
    *folders, _ = report.split(b"\0")
    if not folders:
        return None
    folder = Path(os.fsdecode(folders[-1]))
    return folder if folder.is_absolute() and folder.is_dir() else None


def _outcome(result: ProcessResult, limit_s: float | None) -> str:
    if result.timed_out:
        return f"stopped after {limit_s:g} s, with everything that it had started"
    if result.signal is not None:
        return f"ended by signal {result.signal}"
    return f"exit code: {result.exit_code}"


def _result(
    result: ProcessResult,
    limit_s: float,
    cwd: Path,
    notes: Sequence[str],
    context: ToolContext,
) -> ToolResult:
    rows = [_outcome(result, limit_s)]
    for name, captured in (("stdout", result.stdout), ("stderr", result.stderr)):
        text = without_overwritten(captured.text).rstrip("\n")
        if text:
            rows += [f"{name}:", text]
    if result.left_behind:
        were = "process was" if result.left_behind == 1 else "processes were"
        rows.append(f"[{result.left_behind} background {were} still running and stopped with the command]")
    rows += [f"[{note}]" for note in notes]
    if cwd != context.cwd:
        rows.append(f"[working directory: {shown(str(cwd))}]")
    data = {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "stdout": result.stdout.text,
        "stderr": result.stderr.text,
        "cwd": str(cwd),
    }
    return ToolResult(
        text="\n".join(rows),
        is_error=result.exit_code != 0 or result.timed_out,
        data=data,
    )


def _saved(folder: Path) -> tuple[str, ...]:
    return (os.path.realpath(folder),) if folder.is_dir() else ()


def _describe(input: Mapping[str, Any]) -> str:
    return fields("command")(input) + (" (in the background)" if input.get("background") else "")


def _show(input: Mapping[str, Any], text: str) -> ShownResult:
    outcome, *rows = text.splitlines() or [""]
    if not outcome.startswith(("exit code:", "stopped after", "ended by signal")):
        return show_job(input, text)  # in the background, refused, cancelled or failed before a command ran
    if rows and rows[0] == "stdout:":
        del rows[0]
    summary = "" if outcome == "exit code: 0" else outcome.replace("exit code: ", "exit code ")
    return ShownResult(summary=summary if rows else f"{summary}, no output".lstrip(", "), lines=ends(rows))


BASH: Final = BuiltIn(
    name="bash",
    make=lambda given: bash_tool(
        default_timeout_s=max(given.bash_timeout_s, LEAST_DEFAULT_S),
        boxes=given.boxes,
        home=given.fence.home,
    ),
    display=Display(
        call=_describe, result=_show, shows_errors=True, kind="execute", question="Run this command?"
    ),
    described="Run a shell command (bash) and get its exit code, stdout and stderr. There is no terminal and no "
    "stdin. When the command ends, everything that it started is stopped.",
    returns={
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "exit_code": {"type": ["integer", "null"]},
        "signal": {"type": ["integer", "null"]},
        "timed_out": {"type": "boolean"},
        "cwd": {"type": "string"},
    },
)
