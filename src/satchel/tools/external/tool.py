"""Runs an external tool: checks its file, starts it, passes it JSON and wraps its answer in the envelope."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from satchel.errors import SandboxError
from satchel.plain import json_in
from satchel.sandbox.process import ProcessResult, StreamName
from satchel.tools.boxed import BoxedRun, Workspaces
from satchel.tools.external.discovery import run_when_free, start_problem
from satchel.tools.external.envelope import SHOWN_CHARS, as_result, failure, success
from satchel.tools.external.folders import Stamp, digest_of, stamp_of
from satchel.tools.external.schema import ExternalDefinition, printed_json
from satchel.tools.port import Annotations, Effect, ToolContext, ToolResult, ToolSpec

SPARE_S = 5.0
"""Time that the loop adds to a call's limit, so that the partial output of a stopped call is kept."""
MAX_STDOUT_BYTES = 8_388_608
"""The largest result. The model sees `[agent] max_result_chars` of it; the rest is saved to a file."""
MAX_LINE_BYTES = 16_384
"""A longer line on stderr is not a progress report."""
MOST_PROGRESS = 500
"""After this many reports, only those whose number is a power of two are passed on."""
SIGNAL_BASE = 128
"""Shells add this to a signal's number to form an exit code."""


class ExternalTool:
    """An executable as a tool.

    Attributes:
        path: Its file; may be a symbolic link.
        sha256: The hash of the approved content.
    """

    def __init__(
        self,
        path: Path,
        definition: ExternalDefinition,
        *,
        stamp: Stamp,
        sha256: str,
        timeout_s: float,
        boxes: Workspaces | None = None,
    ) -> None:
        """Make the tool. `stamp` is the file's state when its content had the hash `sha256`."""
        self.path = path
        self.definition = definition
        self.sha256 = sha256
        self.timeout_s = timeout_s
        self._stamp = stamp
        self._boxes = boxes
        self.spec = ToolSpec(
            name=definition.name,
            description=definition.description,
            input_schema=definition.input_schema,
            returns=definition.returns,
            source="external",
            origin=str(path),
            # A tool's own word that it is harmless would not count, so the contract has no field for it.
            annotations=Annotations(boxed=boxes is not None),
            timeout_s=timeout_s + SPARE_S,
        )

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        """The paths in the fields that its schema names under `effects`."""
        found = []
        for fields, writes in ((self.definition.writes, True), (self.definition.reads, False)):
            for field in fields:
                value = input.get(field)
                for path in value if isinstance(value, list) else [value]:
                    if isinstance(path, str) and "\0" not in path:
                        real = os.path.realpath(context.cwd / Path(path).expanduser())
                        found.append(Effect(resource=f"path:{real}", writes=writes))
        return found

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run it. Failures are reported in the envelope."""
        return as_result(await self.run(input, context))

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
        """Run it and return the envelope."""
        name = self.definition.name
        try:
            stdin = json.dumps(dict(input), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return failure(f"The input of '{name}' can't be written as JSON: {error}", "INVALID_INPUT")
        problem = await self._changed(context)
        if problem is not None:
            return problem
        limit_s = max(0.05, min(self.timeout_s, context.timeout_s - SPARE_S))
        output = _Output(context.progress)
        ran: BoxedRun | None = None
        try:
            with output.flood:
                ran = await self._start(stdin, limit_s, output, context)
        except SandboxError as error:
            code, words = start_problem(self.path, error)
            return failure(f"Tool '{name}' ({self.path}): {words}", code)
        if ran is None:
            return failure(
                f"Tool '{name}' printed more than {MAX_STDOUT_BYTES // 2**20} MB and was stopped",
                "INVALID_OUTPUT",
                stdout=output.beginning.decode(errors="replace"),
            )
        return _with_notes(self._envelope(ran.result, limit_s), name, ran.notes)

    async def _start(self, stdin: bytes, limit_s: float, output: _Output, context: ToolContext) -> BoxedRun:
        options: dict[str, Any] = {
            "stdin": stdin,
            "timeout_s": limit_s,
            # Of a longer output, the first half is kept without a gap, which is a complete result.
            "max_output_bytes": 2 * MAX_STDOUT_BYTES,
            "on_output": output.take,
        }
        argv = [str(self.path)]
        if context.box is None:
            result = await run_when_free(argv, cwd=context.cwd, environ=context.environ, **options)
            return BoxedRun(result=result, notes=[])
        if self._boxes is None:
            raise SandboxError("This call was permitted in a sandbox, and there is none. It was not run.")
        return await self._boxes.workspace(context.cwd).run(
            argv, box=context.box, cwd=context.cwd, environ=context.environ, **options
        )

    async def _changed(self, context: ToolContext) -> dict[str, Any] | None:
        """Check the file just before it is started; an envelope if it is not the approved one."""
        name = self.definition.name
        try:
            state = self.path.stat()
            if not stat.S_ISREG(state.st_mode):
                return failure(f"Tool '{name}': {self.path} is no longer a regular file", "NOT_EXECUTABLE")
            if not os.access(self.path, os.X_OK):
                return failure(f"Tool '{name}': {self.path} is no longer executable", "NOT_EXECUTABLE")
            if stamp_of(state) != self._stamp:
                digest, stamp = await context.blocking(digest_of, self.path)
                if digest != self.sha256:
                    return failure(
                        f"Tool '{name}' was not run: {self.path} has changed since it was approved. "
                        f"Ask the user to review it and type: satchel tool approve {name}",
                        "NOT_APPROVED",
                    )
                self._stamp = stamp
        except FileNotFoundError:
            return failure(f"Tool '{name}': {self.path} no longer exists", "NOT_FOUND")
        except OSError as error:
            return failure(f"Tool '{name}': {self.path} can't be read: {error.strerror}", "NOT_EXECUTABLE")
        return None

    def _envelope(self, result: ProcessResult, limit_s: float) -> dict[str, Any]:
        name = self.definition.name
        out, err = result.stdout.text, _without_progress(result.stderr.text)
        if result.timed_out:
            return failure(
                f"Tool '{name}' timed out after {limit_s:g}s", "TOOL_TIMEOUT", stdout=out, stderr=err
            )
        if result.signal is not None:
            return failure(
                f"Tool '{name}' was ended by signal {result.signal}",
                "TOOL_CRASHED",
                exit_code=SIGNAL_BASE + result.signal,
                stdout=out,
                stderr=err,
            )
        problem, value = "", None
        try:
            value = printed_json(result.stdout.data)
        except ValueError as why:
            problem = str(why)
        if result.exit_code != 0:
            error, code = f"Tool '{name}' ended with exit code {result.exit_code}", "TOOL_CRASHED"
            if isinstance(value, dict) and isinstance(value.get("error"), str):
                # A tool's own message and code, such as MISSING_CREDENTIALS, say more.
                error = value["error"]
                code = value["error_code"] if isinstance(value.get("error_code"), str) else code
            return failure(error, code, exit_code=result.exit_code, stdout=out, stderr=err)
        if problem:
            return failure(
                f"Tool '{name}' did not print JSON: {problem}",
                "INVALID_OUTPUT",
                exit_code=0,
                stdout=out,
                stderr=err,
            )
        return success(value)


def _with_notes(envelope: dict[str, Any], name: str, notes: Sequence[str]) -> dict[str, Any]:
    """The envelope of a failure, with what the sandbox had to do with it."""
    if not notes or envelope["tool_success"]:
        return envelope
    rules = f"The user can allow it by a rule: allow {name} network=HOST, or allow {name} boxed=false"
    error = " ".join([f"{envelope['error'].rstrip('.')}.", *notes, rules])
    return {**envelope, "error": error}


class _Output:
    """Reads a running tool's output: passes on progress, and stops a tool that prints too much."""

    def __init__(self, progress: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        self.flood = anyio.CancelScope()
        self.beginning = bytearray()
        self._progress = progress
        self._printed = 0
        self._line = bytearray()
        self._told = 0

    async def take(self, stream: StreamName, chunk: bytes) -> None:
        """Process one piece of output."""
        if stream == "stderr":
            await self._take_lines(chunk)
            return
        self.beginning += chunk[: SHOWN_CHARS - len(self.beginning)]
        self._printed += len(chunk)
        if self._printed > MAX_STDOUT_BYTES:
            # This is too long for a result: stop the tool now.
            self.flood.cancel()
            await anyio.lowlevel.checkpoint()

    async def _take_lines(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            data = _progress_in(bytes(self._line) + line)
            self._line.clear()
            if data is not None:
                self._told += 1
                if self._told <= MOST_PROGRESS or self._told & (self._told - 1) == 0:
                    await self._progress(data)
        # Of a line that is too long, only enough is kept to recognise that.
        self._line += rest[: MAX_LINE_BYTES + 1 - len(self._line)]


def _progress_in(line: bytes) -> Mapping[str, Any] | None:
    """The data of a progress report, or None if the line is something else."""
    text = line.strip()
    if not text.startswith(b"{") or len(text) > MAX_LINE_BYTES or b'"progress"' not in text:
        return None
    value = json_in(text)
    return {"progress": value["progress"]} if isinstance(value, dict) and "progress" in value else None


def _without_progress(text: str) -> str:
    if '"progress"' not in text:
        return text
    return "".join(line for line in text.splitlines(keepends=True) if _progress_in(line.encode()) is None)
