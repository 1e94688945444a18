"""What runs in the background, commands and calls of capabilities, and the tool `jobs`, which reads and stops them.

They belong to an open session and end with it. What they print is kept in memory, its newest part only.
"""

from __future__ import annotations

import codecs
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from satchel.clock import Clock
from satchel.errors import NotFound, SatchelError, UsageError
from satchel.sandbox.process import StreamName
from satchel.tools.builtin.record import BuiltIn
from satchel.tools.display import Display, ShownResult, any_result, ends, fields
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Tool, ToolContext, ToolResult
from satchel.wording import without_overwritten

STATE_KEY = "bash.jobs"
MAX_WAIT_S = 600
SPARE_S = 5.0
"""Seconds that the loop allows beyond the longest wait."""
KEPT_BYTES: Final = 524_288
"""Of what one command prints: the newest, up to twice as much in memory."""
MOST_RUNNING: Final = 8
MOST_ENDED: Final = 12
"""Commands that have ended whose output can still be read."""
COMMAND_CHARS: Final = 120
_HINT: Final = "Read or stop it"

USERS_CALL: Final = "user_"
"""What the ids of the user's own calls begin with."""
AT_ONCE_S: Final = 0.5
"""How long a call waits for what it starts, so that the model is told at once of what fails at once."""
MOST_RESULT: Final = 16_000
"""Characters of a result in the message that tells of the end."""

Execute = Callable[[Callable[[StreamName, bytes], Awaitable[None]]], Awaitable[tuple[str, str]]]
"""Runs something to its end, given what takes its output. Returns how it ended, in words, and its result, or ""."""


class Job:
    """One command.

    Attributes:
        number: From 1 on; a session never uses one twice.
        untrusted: Its output counts as coming from outside.
        outcome: How it ended; "" while it runs.
        result: What is told with its end; a command has none.
        ended: Set when it and everything that it started have ended.
    """

    def __init__(self, number: int, command: str, *, untrusted: bool, clock: Clock) -> None:
        self.number = number
        self.command = _whole_words(command)
        self.untrusted = untrusted
        self.outcome = ""
        self.result = ""
        self.ended = anyio.Event()
        self.is_awaited = False
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._scope = anyio.CancelScope()
        self._why = ""
        self._kept = bytearray()
        self._total = 0
        self._seen = 0

    @property
    def line(self) -> str:
        """The command and how it is doing."""
        if self.outcome:
            return f"{self.number}  {self.outcome}  {self.command}"
        for_s = self._clock.monotonic_s() - self._began_s
        age = f"{for_s:.0f} s" if for_s < 100 else f"{for_s / 60:.0f} min"
        return f"{self.number}  running for {age}  {self.command}"

    @property
    def state(self) -> str:
        """A sentence that says how it is doing."""
        return f"Background command {self.number} {self.outcome or 'is running'}."

    async def run(self, execute: Execute) -> None:
        """Run it to its end, or until it is stopped."""
        outcome = "failed"
        try:
            with self._scope:
                outcome, self.result = await execute(self._take)
            if self._scope.cancelled_caught:
                outcome = self._why
        except SatchelError as error:
            outcome = f"did not start: {error}".rstrip(".")
        finally:
            self.outcome = outcome

    def stop(self, why: str) -> None:
        """Begin to end it and everything that it started, which takes a second if they ignore SIGTERM."""
        self._why = why
        self._scope.cancel()

    async def wait(self, limit_s: float) -> None:
        """Wait for its end, at most so long. The caller tells the model how it ended."""
        self.is_awaited = True
        try:
            with anyio.move_on_after(limit_s):
                await self.ended.wait()
        finally:
            self.is_awaited = False

    def new_output(self) -> str:
        """What it printed since the last time."""
        start = max(self._seen, self._total - len(self._kept))
        text, read = codecs.utf_8_decode(self._tail(self._total - start), "replace", bool(self.outcome))
        omitted, self._seen = start - self._seen, start + read
        return f"[… {omitted:,} bytes left out …]\n{text}" if omitted else text

    def last_output(self, chars: int) -> str:
        """The end of what it printed, whether it was read before or not."""
        return self._tail(4 * chars).decode(errors="replace")[-chars:]

    def _tail(self, size: int) -> bytes:
        return bytes(self._kept[max(0, len(self._kept) - size) :])

    async def _take(self, _stream: StreamName, chunk: bytes) -> None:
        self._total += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]


@dataclass(slots=True, eq=False, kw_only=True)
class BackgroundCommands:
    """The background commands of one open session.

    Attributes:
        on_end: Told of each command that has ended, unless a call waits for it and says so itself.
        on_read: Told of each command that has ended when a call says so. It may have ended just before the call, and
            the model is told once.
        newest: The highest number that the session used before.
    """

    spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
    on_end: Callable[[Job], Awaitable[None]]
    on_read: Callable[[Job], None]
    clock: Clock
    newest: int = 0
    _jobs: dict[int, Job] = field(default_factory=dict, init=False)
    _is_closed: bool = field(default=False, init=False)

    @property
    def all(self) -> tuple[Job, ...]:
        """Those that run, and the newest that have ended, by their numbers."""
        return tuple(self._jobs.values())

    @property
    def running(self) -> tuple[Job, ...]:
        """Those that have not ended."""
        return tuple(job for job in self._jobs.values() if not job.outcome)

    def start(self, command: str, execute: Execute, *, untrusted: bool) -> Job:
        """Start a command.

        Raises:
            UsageError: Too many run, or the session is closing.
        """
        if self._is_closed:
            raise UsageError("The session is closing. Nothing was started.")
        if len(self.running) >= MOST_RUNNING:
            raise UsageError(f"{MOST_RUNNING} background commands are running. Stop one of them first.")
        self.newest += 1
        job = self._jobs[self.newest] = Job(self.newest, command, untrusted=untrusted, clock=self.clock)
        for old in [job for job in self.all if job.outcome][:-MOST_ENDED]:
            del self._jobs[old.number]

        async def run() -> None:
            try:
                await job.run(execute)
                if not job.is_awaited:
                    await self.on_end(job)
            finally:
                job.ended.set()

        self.spawn(run)
        return job

    def get(self, number: int) -> Job:
        """The command with this number.

        Raises:
            NotFound: There is none, or not any more.
        """
        if number not in self._jobs:
            raise NotFound(f"There is no background command {number}. {self.listed}")
        return self._jobs[number]

    @property
    def listed(self) -> str:
        """A line for each."""
        return "\n".join(job.line for job in self.all) or "No command runs in the background."

    async def aclose(self) -> None:
        """End them all, because the session is closed."""
        self._is_closed = True
        running = self.running
        for job in running:
            job.stop("was stopped, because the conversation was closed")
        for job in running:
            await job.ended.wait()


def jobs_of(context: ToolContext) -> BackgroundCommands:
    """The background commands of a call's session.

    Raises:
        UsageError: The call belongs to no session.
    """
    jobs = context.state.get(STATE_KEY)
    if not isinstance(jobs, BackgroundCommands):
        raise UsageError("A command can run in the background only in a conversation, with which it ends.")
    return jobs


async def start_job(
    context: ToolContext, command: str, execute: Execute, *, untrusted: bool, notes: Sequence[str] = ()
) -> ToolResult:
    """Start something in the background of a call's session, and say so, or how it ended if it does so at once.
    `command` is what people see of it, `notes` what the model has to know as long as it runs.

    Raises:
        UsageError: As `BackgroundCommands.start`, or the call belongs to no session.
    """
    job = jobs_of(context).start(command, execute, untrusted=untrusted)
    await job.wait(AT_ONCE_S)
    call = f'{_HINT} with tool_call: {{"name": "jobs", "input": {{"id": {job.number}}}}}'
    return described(job, *(() if job.outcome else (call, *notes)))


def described(job: Job, *notes: str) -> ToolResult:
    """What a model is told of a command: how it is doing, and what it printed since the last time."""
    rows = [job.state]
    text = without_overwritten(job.new_output()).rstrip("\n")
    if text:
        rows += ["output:", text]
    rows += [f"[{note}]" for note in notes]
    return ToolResult(
        text="\n".join(rows),
        data={"job": job.number, "running": not job.outcome},
        untrusted=job.untrusted and bool(text),
    )


def _whole_words(command: str) -> str:
    """The beginning of a command. No word is cut: half a secret is not recognised as one."""
    line = " ".join(command[: 8 * COMMAND_CHARS].split())
    if len(line) <= COMMAND_CHARS and len(command) <= 8 * COMMAND_CHARS:
        return line
    return f"{line[:COMMAND_CHARS].rpartition(' ')[0]} …".strip()


def is_users(call_id: str) -> bool:
    """Whether the user made a call, by `/run`: the model doesn't read its result."""
    return call_id.startswith(USERS_CALL)


def source_of(number: int) -> str:
    """Who tells a model that a command has ended: the source of a post."""
    return f"background command {number}"


def show_job(input: Mapping[str, Any], text: str) -> ShownResult:
    """How people see what `described` makes."""
    state, *rows = text.splitlines() or [""]
    if not state.startswith("Background command "):
        return any_result(input, text)
    if rows and rows[0] == "output:":
        del rows[0]
    return ShownResult(summary=state, lines=ends([row for row in rows if not row.startswith(f"[{_HINT}")]))


def jobs_tool() -> Tool:
    """Make the tool."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        jobs = jobs_of(context)
        if "id" not in input:
            return ToolResult(text=jobs.listed)
        job = jobs.get(input["id"])
        if input.get("stop") and context.modes is not None and context.modes.mode == "plan":
            return ToolResult(text="In mode plan nothing is stopped. Propose a plan.", is_error=True)
        limit_s = min(input.get("wait_s", 0.0), context.timeout_s - SPARE_S)
        if input.get("stop") and not job.outcome:
            job.is_awaited = True
            job.stop("was stopped")
            limit_s = context.timeout_s
        if limit_s > 0:
            await job.wait(limit_s)
        if job.outcome and not is_users(context.call_id):
            jobs.on_read(job)
        return described(job)

    return function_tool(
        call,
        name="jobs",
        description="List what runs in the background. With `id`: what one of these printed since "
        "you last looked, and how it ended. You are told when one ends.",
        properties={
            "id": {"type": "integer"},
            "wait_s": {
                "type": "number",
                "minimum": 0,
                "maximum": MAX_WAIT_S,
                "description": "Wait so long for its end first",
            },
            "stop": {"type": "boolean", "description": "End it, with all that it started"},
        },
        # It reaches nothing but what the session itself has started.
        annotations=Annotations(read_only=True, destructive=False, idempotent=False, open_world=False),
        timeout_s=MAX_WAIT_S + SPARE_S,
        is_deferred=True,
    )


def _describe(input: Mapping[str, Any]) -> str:
    return f"stop {input.get('id')}" if input.get("stop") else fields("id")(input)


JOBS: Final = BuiltIn(
    name="jobs",
    make=lambda _: jobs_tool(),
    display=Display(call=_describe, result=show_job, kind="execute"),
)
