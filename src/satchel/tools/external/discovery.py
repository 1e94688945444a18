"""Asks executables what they are: all side by side, each at most once for one content of its file."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel

from satchel.errors import SandboxError, UsageError
from satchel.sandbox.process import ProcessResult, StreamName, run_process
from satchel.tools.external.asked import Asked
from satchel.tools.external.folders import Candidate
from satchel.tools.external.schema import MAX_SCHEMA_BYTES, Definition, parse_schema

__all__ = ["Entry", "Status", "ask", "ask_all", "is_known", "run_when_free", "start_problem"]

Status: TypeAlias = Literal["available", "changed", "overridden", "disabled", "skipped"]

MOST_AT_ONCE = 32
"""Processes that are asked at the same time: tools that wait are then through in two waves of fifty, and tools that
compute (a Python that starts: 40 ms) still answer within their second on two cores."""
FEW_AT_ONCE = 4
"""Who was too slow in a crowd is asked once more in a company that can't slow it down."""
BUSY_TRIES = 5
BUSY_S = 0.02
FAILED_AGAIN_S = 3600.0
"""A file that gave no schema is asked again after so long: what it needs may have been installed since."""
GRACE_S = 0.2
"""Between SIGTERM and SIGKILL for a `--schema` that runs too long: it has nothing to put in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of what `tool list` shows of the folders.

    Attributes:
        name: The tool's; the file's where it did not tell one.
        status: "available": it is offered. "changed": it is not what was approved. "overridden": another tool has its
            name. "disabled": by `[tools] disabled`. "skipped": it can't be used.
        reason: Why it is not offered, or what to know of it; "" where there is nothing.
        path: Its file.
    """

    name: str
    status: Status
    path: Path
    description: str = ""
    reason: str = ""


def is_known(asked: Asked, candidate: Candidate, *, now: datetime, asks_failed: bool) -> bool:
    """Whether what was asked before still holds. The content is compared where only the ctime tells of a change."""
    if asked.definition is None and (asks_failed or now.timestamp() - asked.asked_at > FAILED_AGAIN_S):
        return False
    old, new = asked.stamp, candidate.stamp
    return (old.size, old.mtime_ns, old.inode) == (new.size, new.mtime_ns, new.inode)


async def ask_all(
    candidates: Sequence[Candidate],
    *,
    environ: Mapping[str, str],
    limit_s: float,
) -> dict[Path, Definition | str]:
    """Ask for the schemas, side by side.

    Args:
        candidates: Whom to ask.
        environ: The environment that they get.
        limit_s: What each may take.

    Returns:
        By path: what it said, or in a sentence why it said nothing.
    """
    answers: dict[Path, Definition | str] = {}
    slow: list[Candidate] = []

    async def one(candidate: Candidate, places: anyio.Semaphore, is_last: bool) -> None:
        async with places:
            found = await ask(candidate, environ=environ, limit_s=limit_s)
        if found is None and not is_last:
            slow.append(candidate)
            return
        answers[candidate.path] = (
            found
            if found is not None
            else f"--schema did not answer within {limit_s:g} s. `satchel tool refresh` asks again."
        )

    async def wave(of: Iterable[Candidate], most: int, *, is_last: bool) -> None:
        places = anyio.Semaphore(most)
        async with anyio.create_task_group() as group:
            for candidate in of:
                group.start_soon(one, candidate, places, is_last)

    await wave(candidates, MOST_AT_ONCE, is_last=len(candidates) <= FEW_AT_ONCE)
    if slow:
        await wave(list(slow), FEW_AT_ONCE, is_last=True)
    return answers


async def ask(candidate: Candidate, *, environ: Mapping[str, str], limit_s: float) -> Definition | str | None:
    """Ask one for its schema.

    Returns:
        What it said; why it said nothing that can be used; or None where it took too long.
    """
    printed = 0
    flood = anyio.CancelScope()

    async def count(_: StreamName, chunk: bytes) -> None:
        nonlocal printed
        printed += len(chunk)
        if printed > 2 * MAX_SCHEMA_BYTES:
            # Who prints so much is stopped, not read to the end.
            flood.cancel()
            await anyio.lowlevel.checkpoint()

    result: ProcessResult | None = None
    try:
        with flood:
            result = await run_when_free(
                [str(candidate.path), "--schema"],
                cwd=candidate.folder.path,
                environ=environ,
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
        return f"--schema {how}{f': {said}' if said else '.'}"
    try:
        return parse_schema(result.stdout.data)
    except UsageError as error:
        return str(error)


async def run_when_free(argv: Sequence[str], **options: Any) -> ProcessResult:
    """`run_process`, again where the file is busy: one that was just written may still be held for an instant by
    another process that is being started.

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
    """The code and the words for a program that could not be started."""
    cause = error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    match number:
        case errno.ENOENT if path.exists():
            return (
                "NOT_EXECUTABLE",
                f"it can't be started: the interpreter in its first line{_first_line(path)} is missing.",
            )
        case errno.ENOENT | errno.ENOTDIR:
            return "NOT_FOUND", "it is gone."
        case errno.EACCES | errno.EPERM:
            return (
                "NOT_EXECUTABLE",
                "it can't be started: the system denies it (not executable, or mounted noexec).",
            )
        case errno.ENOEXEC:
            return (
                "NOT_EXECUTABLE",
                "it can't be started: it is no program for this machine, and no script with a first line such as "
                "#!/usr/bin/env python3.",
            )
        case errno.ETXTBSY:
            return "NOT_EXECUTABLE", "it can't be started: someone is writing to it."
        case _:
            return "NOT_EXECUTABLE", f"it can't be started: {error}"


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            line = file.readline(200).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return f" ({line})" if line.startswith("#!") else ""
