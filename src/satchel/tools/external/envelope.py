"""The envelope around every result of an external tool (seed-1, "Tool Result Format")."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from satchel.tools.port import ToolResult
from satchel.wording import cut_text

ErrorCode: TypeAlias = Literal[
    "TOOL_TIMEOUT",
    "TOOL_CRASHED",
    "INVALID_OUTPUT",
    "INVALID_INPUT",
    "NOT_FOUND",
    "NOT_EXECUTABLE",
    "NOT_APPROVED",
]
"""Satchel's error codes, in this order: the tool ran too long; it failed; it did not print JSON; the input is
invalid; its file no longer exists; its file can't be run; its file has changed since it was approved. A tool's own
codes, such as MISSING_CREDENTIALS, are passed on."""

SHOWN_CHARS = 16_384
"""The most characters of stdout, and of stderr, in a failure. The middle is left out: the reason is usually at the
beginning or at the end."""


def success(result: Any) -> dict[str, Any]:
    """The envelope of a successful call; `result` is any JSON data."""
    return {"tool_success": True, "result": result}


def failure(
    error: str, code: ErrorCode | str, *, exit_code: int | None = None, stdout: str = "", stderr: str = ""
) -> dict[str, Any]:
    """The envelope of a call that failed.

    Args:
        error: What happened, in a sentence.
        code: See `ErrorCode`; or the tool's own code.
        exit_code: The exit code, or 128 + N if signal N ended the process; None if Satchel stopped it.
        stdout: The captured output, possibly incomplete.
        stderr: The same.
    """
    return {
        "tool_success": False,
        "error": error,
        "error_code": code,
        "exit_code": exit_code,
        "stdout": _short(stdout),
        "stderr": _short(stderr),
    }


def is_success(envelope: Mapping[str, Any]) -> bool:
    """Whether the call succeeded."""
    return envelope.get("tool_success") is True


def to_text(envelope: Mapping[str, Any]) -> str:
    """The envelope as JSON for the model."""
    return json.dumps(envelope, ensure_ascii=False)


def as_result(envelope: Mapping[str, Any]) -> ToolResult:
    """The envelope as a `ToolResult`."""
    return ToolResult(text=to_text(envelope), is_error=not is_success(envelope), data=dict(envelope))


def _short(text: str) -> str:
    return cut_text(text, SHOWN_CHARS // 2, SHOWN_CHARS // 2, what="characters left out")
