"""The file and shell tools as stand-alone programs that follow the contract of external tools (seed-1).

`NAME --schema` prints the definition; a call reads JSON from stdin and prints JSON: the result, or
`{"error", "error_code"}` and exit code 1. The programs in `libexec/` call `main`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from satchel.clock import SystemClock
from satchel.config import process_environ
from satchel.errors import SatchelError
from satchel.tools.builtin.bash import MAX_TIMEOUT_S
from satchel.tools.builtin.fence import Fence
from satchel.tools.builtin.record import ToolParts
from satchel.tools.builtin.seen import look, read_whole, remember
from satchel.tools.builtin.toolset import BUILT_IN
from satchel.tools.input_schema import InputSchema
from satchel.tools.port import Tool, ToolContext, ToolResult

T = TypeVar("T")

SHIPPED: Final = tuple(name for name, tool in BUILT_IN.items() if tool.returns is not None)


def shipped_path(name: str) -> Path:
    """Where the program is."""
    return Path(__file__).resolve().parents[2] / "libexec" / name


def flat_schema(name: str) -> dict[str, Any]:
    """What `--schema` prints."""
    spec = _tool(name).spec
    required = spec.input_schema["required"]
    return {
        "name": spec.name,
        "description": BUILT_IN[name].described or spec.description,
        "parameters": {
            # Without a type there is only an `enum`, whose values are strings.
            key: {"type": "string", **part, **({"required": True} if key in required else {})}
            for key, part in spec.input_schema["properties"].items()
        },
        "returns": {"type": "object", "properties": dict(BUILT_IN[name].returns or {})},
    }


def to_json(name: str, result: ToolResult) -> tuple[Any, bool]:
    """A result as JSON data, and whether it is an error.

    A failed bash command is an ordinary result: its exit code says so.
    """
    if name == "bash" and isinstance(result.data, dict):
        return result.data, False
    if result.is_error:
        return {"error": result.text, "error_code": "TOOL_FAILED"}, True
    if isinstance(result.data, dict):
        return {"text": result.text, **result.data}, False
    return {"text": result.text} if result.data is None else {"text": result.text, "data": result.data}, False


def main(name: str) -> int:
    """Run one tool as a program. `name` is one of `SHIPPED`.

    Returns:
        The exit code.
    """
    arguments = sys.argv[1:]
    if arguments == ["--schema"]:
        return _print(flat_schema(name), code=0)
    if arguments:
        return _wrong(f"{name} takes --schema, or no arguments and JSON on stdin.")
    try:
        input = json.loads(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        return _wrong(f"The input is not JSON: {error}")
    tool = _tool(name)
    problem = _problem(tool, input)
    if problem:
        return _wrong(problem)
    value, is_error = to_json(name, anyio.run(_call, tool, input))
    return _print(value, code=1 if is_error else 0)


def _tool(name: str) -> Tool:
    return BUILT_IN[name].make(ToolParts(fence=Fence(home=None)))


def _problem(tool: Tool, input: Any) -> str:
    """Why an input is invalid, or "" if it is valid."""
    problems = InputSchema(tool.spec.input_schema).problems(input)
    return f"The input is wrong: {problems[0]}" if problems else ""


async def _call(tool: Tool, input: Mapping[str, Any]) -> ToolResult:
    environ = process_environ()
    context = ToolContext(
        session_id="",
        turn=0,
        call_id="",
        cwd=Path.cwd(),
        # The user who runs a program may use it wherever their own permissions allow.
        roots=(Path("/"),),
        spill_dir=Path.cwd(),
        state={},
        progress=_progress,
        blocking=_blocking,
        clock=SystemClock(),
        timeout_s=MAX_TIMEOUT_S,
        environ=environ,
    )
    if tool.spec.name == "file_write":
        take_as_seen(input["path"], context)
    return await tool.call(input, context)


def take_as_seen(path: str, context: ToolContext) -> None:
    """Allow a call without a session to replace a file: there is no session in which it could have been read."""
    try:
        place = Fence(home=None).locate(path, context, writing=True)
        content, state = read_whole(place)
    except SatchelError:
        return  # the call itself will report what is wrong
    remember(context, place.path, look(state, content))


async def _progress(data: Mapping[str, Any]) -> None:
    sys.stderr.write(json.dumps({"progress": dict(data)}) + "\n")
    sys.stderr.flush()


async def _blocking(function: Callable[..., T], /, *args: Any) -> T:
    return await anyio.to_thread.run_sync(function, *args, limiter=anyio.CapacityLimiter(1))


def _wrong(error: str) -> int:
    return _print({"error": error, "error_code": "INVALID_INPUT"}, code=1)


def _print(value: Any, *, code: int) -> int:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
    return code
