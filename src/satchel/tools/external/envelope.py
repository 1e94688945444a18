"""The envelope that every result of an external tool comes in (seed-1, "Tool Result Format")."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from satchel.tools.port import ToolResult

__all__ = ["ErrorCode", "as_result", "failure", "is_success", "success", "to_text"]

ErrorCode: TypeAlias = Literal[
    "TOOL_TIMEOUT",
    "TOOL_CRASHED",
    "INVALID_OUTPUT",
    "INVALID_INPUT",
    "NOT_FOUND",
    "NOT_EXECUTABLE",
    "NOT_APPROVED",
]
"""Satchel's own codes: it ran too long; it failed; it printed no JSON; the input does not fit; its file is gone; its
file can't be run; its file is not what was approved. A tool's own codes, such as MISSING_CREDENTIALS, pass through."""

SHOWN_CHARS = 16_384
"""Of stdout and stderr each in a failure: the reason stands at the beginning or at the end."""


def success(result: Any) -> dict[str, Any]:
    """The envelope of a call that gave a result, any JSON data."""
    return {"tool_success": True, "result": result}


def failure(
    error: str, code: ErrorCode | str, *, exit_code: int | None = None, stdout: str = "", stderr: str = ""
) -> dict[str, Any]:
    """The envelope of a call that failed.

    Args:
        error: What happened, in a sentence.
        code: See `ErrorCode`; or the tool's own.
        exit_code: Of the process, 128 + N where signal N ended it; None where it did not end by itself.
        stdout: What was captured, also where it is only a part.
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
    """Whether the call gave a result."""
    return envelope.get("tool_success") is True


def to_text(envelope: Mapping[str, Any]) -> str:
    """The envelope as JSON, as the model gets it."""
    return json.dumps(envelope, ensure_ascii=False)


def as_result(envelope: Mapping[str, Any]) -> ToolResult:
    """The envelope as a tool's result."""
    return ToolResult(text=to_text(envelope), is_error=not is_success(envelope), data=dict(envelope))


def _short(text: str) -> str:
    if len(text) <= SHOWN_CHARS:
        return text
    half = SHOWN_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"
