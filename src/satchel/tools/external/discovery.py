"""Asks executables for their schemas, concurrently and only if their content has changed."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel

from satchel.errors import SandboxError, UsageError
from satchel.sandbox.process import ProcessResult, StreamName, run_process
from satchel.tools.box import Box
from satchel.tools.boxed import Workspace
from satchel.tools.external.folders import Candidate
from satchel.tools.external.schema import MAX_SCHEMA_BYTES, ExternalDefinition, parse_schema

Status: TypeAlias = Literal["available", "changed", "overridden", "disabled", "skipped"]

MOST_AT_ONCE = 32
"""The most executables that are asked at the same time. Fifty tools take two rounds, and those that need the
processor (Python takes 40 ms to start) still answer within a second on two cores."""
FEW_AT_ONCE = 4
"""Executables that were too slow are asked once more, this many at a time, in case the others, or the rest of what the
machine does, slowed them down."""
BUSY_TRIES = 5
BUSY_S = 0.02
GRACE_S = 0.2
"""Time between SIGTERM and SIGKILL for a `--schema` that runs too long. It needs no time to clean up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of `tool list` about an external tool.

    Attributes:
        name: The tool's name, or the file's name if the tool gave none.
        status: "available": it is offered. "changed": its content is not the approved one. "overridden": another tool
            has its name. "disabled": by `[tools] disabled`. "skipped": it can't be used.
        reason: Why it is not offered, or a remark about it; may be "".
    """

    name: str
    status: Status
    path: Path
    description: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """How an executable is started for its schema.

    Attributes:
        run: Takes the arguments of `run_process` but its environment, and raises what that raises.
        remark: What to add to the reason why one gave none; may be "".
    """

    run: Callable[..., Awaitable[ProcessResult]]
    remark: str = ""


def in_sandbox(workspace: Workspace, environ: Mapping[str, str]) -> Start:
    """Start it in a sandbox that has no network and no project: a folder of its own is all that it may write."""

    async def run(argv: Sequence[str], **options: Any) -> ProcessResult:
        return (await workspace.run(argv, box=Box(), environ=environ, **options)).result

    remark = (
        " It was asked in the sandbox of mode auto. With SATCHEL_AGENT_MODE=ask, `satchel tool refresh` asks it "
        "with your rights."
    )
    return Start(run, remark)


async def ask_all(
    candidates: Sequence[Candidate],
    *,
    start: Start,
    limit_s: float,
) -> dict[Path, ExternalDefinition | str]:
    """Ask executables for their schemas, concurrently. `limit_s` is for each.

    Returns:
        By path: the definition, or a sentence that says why there is none.
    """
    answers: dict[Path, ExternalDefinition | str] = {}
    slow: list[Candidate] = []

    async def one(candidate: Candidate, places: anyio.Semaphore, is_last: bool) -> None:
        async with places:
            found = await ask(candidate, start=start, limit_s=limit_s)
        if found is None and not is_last:
            slow.append(candidate)
            return
        answers[candidate.path] = (
            found
            if found is not None
            else f"--schema did not answer within {limit_s:g} s. `satchel tool refresh` asks again.{start.remark}"
        )

    async def wave(of: Iterable[Candidate], most: int, *, is_last: bool) -> None:
        places = anyio.Semaphore(most)
        async with anyio.create_task_group() as group:
            for candidate in of:
                group.start_soon(one, candidate, places, is_last)

    await wave(candidates, MOST_AT_ONCE, is_last=False)
    if slow:
        await wave(list(slow), FEW_AT_ONCE, is_last=True)
    return answers


async def ask(candidate: Candidate, *, start: Start, limit_s: float) -> ExternalDefinition | str | None:
    """Ask one executable for its schema.

    Returns:
        The definition; or why it gave no usable one; or None if it took too long.
    """
    printed = 0
    flood = anyio.CancelScope()

    async def count(_: StreamName, chunk: bytes) -> None:
        nonlocal printed
        printed += len(chunk)
        if printed > 2 * MAX_SCHEMA_BYTES:
            # Stop it. Reading to the end would let it print forever.
            flood.cancel()
            await anyio.lowlevel.checkpoint()

    result: ProcessResult | None = None
    try:
        with flood:
            result = await start.run(
                [str(candidate.path), "--schema"],
                cwd=candidate.folder.path,
                timeout_s=limit_s,
                max_output_bytes=2 * MAX_SCHEMA_BYTES,
                on_output=count,
                grace_s=GRACE_S,
            )
    except SandboxError as error:
        return start_problem(candidate.path, error)[1]
    if result is None:
        return f"--schema printed more than {2 * MAX_SCHEMA_BYTES // 1024} KB."
    if result.timed_out:
        return None
    if result.exit_code != 0:
        how = (
            f"ended with exit code {result.exit_code}"
            if result.exit_code is not None
            else f"was ended by signal {result.signal}"
        )
        said = " ".join(result.stderr.text.split())[:200]
        return f"--schema {how}{f': {said}' if said else '.'}{start.remark}"
    try:
        return parse_schema(result.stdout.data)
    except UsageError as error:
        return f"{error}{start.remark}"


async def run_when_free(argv: Sequence[str], **options: Any) -> ProcessResult:
    """Call `run_process`, and retry while the file is busy.

    When a file was just written, a process that is starting at the same moment may still hold it open for writing.

    Raises:
        SandboxError: As `run_process`.
    """
    for _ in range(BUSY_TRIES):
        try:
            return await run_process(argv, **options)
        except SandboxError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.ETXTBSY:
                raise
        await anyio.sleep(BUSY_S)
    return await run_process(argv, **options)


def start_problem(path: Path, error: SandboxError) -> tuple[Literal["NOT_FOUND", "NOT_EXECUTABLE"], str]:
    """The error code and a message for a program that could not be started."""
    cause = error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    match number:
        case errno.ENOENT if path.exists():
            return (
                "NOT_EXECUTABLE",
                f"it can't be started: the interpreter in its first line{_first_line(path)} is missing.",
            )
        case errno.ENOENT | errno.ENOTDIR:
            return "NOT_FOUND", "it no longer exists."
        case errno.EACCES | errno.EPERM:
            return (
                "NOT_EXECUTABLE",
                "it can't be started: the system denies it (not executable, or mounted noexec).",
            )
        case errno.ENOEXEC:
            return (
                "NOT_EXECUTABLE",
                "it can't be started: it is not a program for this machine, or a script without a first line such as "
                "#!/usr/bin/env python3.",
            )
        case errno.ETXTBSY:
            return "NOT_EXECUTABLE", "it can't be started: another process is writing to it."
        case _:
            return "NOT_EXECUTABLE", f"it can't be started: {error}"


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            line = file.readline(200).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return f" ({line})" if line.startswith("#!") else ""
