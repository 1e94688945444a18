"""What a run's exit, its report and its limits mean together.

The findings of the host (exit, time, limits) outrank what the code in the sandbox says. The report is untrusted: its
form is checked, and nothing in it has an effect besides being shown.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Collection
from dataclasses import dataclass

from satchel.errors import SandboxError
from satchel.sandbox.port import Limits, Status
from satchel.sandbox.process import Captured, ProcessResult

STARTED = b"+"
"""The first byte of a report: the sandbox is up, and what follows comes from the code in it."""
FLOOD = 64
"""A run that prints this many times what is kept is ended."""
REPORTED = {
    status.value: status
    for status in (
        Status.OK,
        Status.ERROR,
        Status.BAD_RETURN,
        Status.RESULT_TOO_LARGE,
        Status.MEMORY,
        Status.DISK,
        Status.PROCESSES,
    )
}
MOST_ERROR_CHARS = 2400
MOST_TRACE_CHARS = 4000
SHORTEST_SECRET = 4
"""Removing shorter values would remove ordinary text."""
HIDDEN = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """How the run ended, with what was returned."""

    status: Status
    result: str | None = None
    error: str = ""
    traceback: str = ""
    peak_kb: int = 0


def judge(ended: ProcessResult, limits: Limits, *, flooded: bool, is_call: bool, backend: str) -> RunVerdict:
    """Decide. `ended` is the process that was started: the sandbox's. With `is_call`, a function was called, which must
    report.

    Raises:
        SandboxError: The sandbox ended before anything could run in it.
    """
    over = _over_limit(ended, limits, flooded)
    if over is not None:
        return over
    if not ended.report.startswith(STARTED):
        last = (ended.stderr.text.strip().splitlines() or [f"exit code {exit_code(ended)}"])[-1][-500:]
        raise SandboxError(f"The sandbox ({backend}) could not be set up: {last}")
    code = exit_code(ended)
    if code == 128 + signal.SIGXCPU:
        return RunVerdict(status=Status.TIMEOUT, error=f"It used up its {limits.cpu_s} s of processor time.")
    if not is_call:
        if code == 0:
            return RunVerdict(status=Status.OK)
        return RunVerdict(status=Status.ERROR, error=f"The command ended with exit code {code}.")
    report = ended.report.removeprefix(STARTED)
    if not report:
        return RunVerdict(
            status=Status.NO_RESULT,
            error=f"The process ended with exit code {code} before the function returned.",
        )
    return _read(report, limits)


def exit_code(ended: ProcessResult) -> int:
    """The exit code; 128 + N for signal N."""
    return ended.exit_code if ended.exit_code is not None else 128 + (ended.signal or 0)


def _over_limit(ended: ProcessResult, limits: Limits, flooded: bool) -> RunVerdict | None:
    if flooded:
        return RunVerdict(
            status=Status.OUTPUT,
            error=f"It printed more than {FLOOD * limits.output_kb:,} KiB and was ended.",
        )
    if ended.stopped is Status.MEMORY:
        return RunVerdict(
            status=Status.MEMORY, error=f"It used more than {limits.memory_mb:,} MiB of memory and was ended."
        )
    if ended.stopped is Status.PROCESSES:
        return RunVerdict(
            status=Status.PROCESSES, error=f"It had more than {limits.processes} processes and was ended."
        )
    if ended.stopped is not None:
        return RunVerdict(
            status=Status.DISK, error=f"Its files took more than {limits.tmp_mb:,} MiB and it was ended."
        )
    if ended.timed_out:
        return RunVerdict(
            status=Status.TIMEOUT, error=f"It took longer than {limits.wall_s:g} s and was ended."
        )
    return None


def _read(report: bytes, limits: Limits) -> RunVerdict:
    bad = RunVerdict(status=Status.BAD_RESULT, error="What arrived as the result is not a result.")
    try:
        said = json.loads(report)
    # Deep nesting, endless numbers, half of an object: anything may be here.
    except (ValueError, RecursionError):
        return bad
    if not isinstance(said, dict) or not all(isinstance(value, str) for value in said.values()):
        return bad
    status = REPORTED.get(said.get("status", ""))
    result = said.get("result")
    if status is None or (status is Status.OK) != (result is not None):
        return bad
    if result is not None and len(result.encode("utf-8", "replace")) > limits.result_kb * 1024:
        return RunVerdict(
            status=Status.RESULT_TOO_LARGE, error=f"The result is larger than {limits.result_kb:,} KiB."
        )
    peak = said.get("peak_kb", "")
    return RunVerdict(
        status=status,
        result=None if result is None else _whole(result),
        error=_whole(said.get("error", ""))[:MOST_ERROR_CHARS],
        traceback=_whole(said.get("traceback", ""))[-MOST_TRACE_CHARS:],
        peak_kb=int(peak) if peak.isascii() and peak.isdigit() and len(peak) < 12 else 0,
    )


def _whole(text: str) -> str:
    """Text that can be stored: without halves of surrogate pairs."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def text_of(output: Captured) -> str:
    """The output as text, without NUL characters, which databases and terminals don't take."""
    return output.text.replace("\0", "\ufffd")


def redacted(text: str, secrets: Collection[str]) -> str:
    """The text without the values of secrets, the longest first."""
    for secret in sorted({s for s in secrets if len(s) >= SHORTEST_SECRET}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
