"""The Tasks extension of MCP (SEP-2663, revision 2026-07-28): a call that takes long is answered with a task, which the
client asks after.

Without it, a client that gives up after a minute never learns what a capability of ten minutes found.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    EmptyResult,
    InputRequiredResult,
    RequestParams,
    Result,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from satchel.clock import Clock
from satchel.runtime.background import Background

_log = logging.getLogger(__name__)

EXTENSION: Final = "io.modelcontextprotocol/tasks"
PROMPT_S = 5.0
"""A call that takes longer becomes a task, if the client knows tasks. Most calls take milliseconds."""
_TTL: Final = timedelta(hours=1)
"""How long a task is kept: longer than a call may take."""
_POLL_MS: Final = 1_000
_MOST_TASKS: Final = 100
"""That run at once: further calls are answered with their results, however long they take. Of those that ended, so many
are kept.
"""

_Context = ServerRequestContext[Any, Any]
_Tell = Callable[[str], bool]


class TaskParams(RequestParams):
    """Of `tasks/get`, `tasks/update` and `tasks/cancel`."""

    task_id: str


@dataclass(slots=True, eq=False)
class _Task:
    """A call that runs or has run."""

    created: datetime
    status: Literal["working", "completed", "failed", "cancelled"] = "working"
    message: str = ""
    result: Result | None = None
    error: MCPError | None = None
    is_open: bool = True
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)

    def as_json(self, id: str) -> dict[str, Any]:
        told: dict[str, Any] = {
            "taskId": id,
            "status": self.status,
            "createdAt": self.created.isoformat(),
            "ttlMs": int(_TTL.total_seconds() * 1000),
            "pollIntervalMs": _POLL_MS,
        }
        if self.message:
            told["statusMessage"] = self.message
        if self.status == "completed" and self.result is not None:
            told["result"] = self.result.model_dump(by_alias=True, mode="json", exclude_none=True)
        if self.error is not None:
            told["error"] = {"code": self.error.code, "message": self.error.message}
        return told


class ServedTasks:
    """The tasks of one server's clients. They end with the process."""

    def __init__(self, server: Server[Any], background: Background, clock: Clock) -> None:
        self._background = background
        self._clock = clock
        self._tasks: dict[str, _Task] = {}
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", TaskParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    async def answer(
        self, context: _Context, call: Callable[[_Tell], Awaitable[Result]]
    ) -> Result | dict[str, Any]:
        """The result of a call, or the task that it has become.

        Args:
            context: Of the request.
            call: Runs it. It is given a function that takes how far the call is, for a client that asks after the task,
                and says whether the request is still open.
        """
        self._tidy()
        capabilities = context.session.client_capabilities
        known = capabilities is not None and EXTENSION in (capabilities.extensions or {})
        if (
            not known
            or context.protocol_version not in MODERN_PROTOCOL_VERSIONS
            or sum(task.status == "working" for task in self._tasks.values()) >= _MOST_TASKS
        ):
            return await call(lambda _: True)
        id, task = secrets.token_urlsafe(24), _Task(self._clock.now())
        self._tasks[id] = task
        self._background.start(self._run, task, call)
        try:
            with anyio.move_on_after(PROMPT_S):
                await task.ended.wait()
        except anyio.get_cancelled_exc_class():
            task.scope.cancel()
            del self._tasks[id]
            raise
        if task.status == "working":
            task.is_open = False
            return {"resultType": "task"} | task.as_json(id)
        del self._tasks[id]
        if task.error is not None:
            raise task.error
        assert task.result is not None
        return task.result

    async def _run(self, task: _Task, call: Callable[[_Tell], Awaitable[Result]]) -> None:
        def tell(message: str) -> bool:
            task.message = message
            return task.is_open

        failed = None
        try:
            with task.scope:
                task.result = await call(tell)
        except MCPError as error:
            failed = error
        # A boundary: whoever asks after the task has to learn that it ended.
        except Exception:  # noqa: BLE001
            _log.exception("A call over MCP failed.")
            failed = MCPError(INTERNAL_ERROR, "Internal server error")
        if not task.is_open and isinstance(task.result, InputRequiredResult):
            failed = MCPError(INVALID_PARAMS, "It needs an answer of the user first: call it again.")
        task.error = failed
        if failed is not None:
            task.status = "failed"
        else:
            task.status = "cancelled" if task.result is None else "completed"
        task.ended.set()

    async def _get(self, _: _Context, params: TaskParams) -> dict[str, Any]:
        return self._found(params.task_id).as_json(params.task_id)

    async def _update(self, _: _Context, params: TaskParams) -> EmptyResult:
        # A task of Satchel asks nothing: its questions come before it begins.
        self._found(params.task_id)
        return EmptyResult()

    async def _cancel(self, _: _Context, params: TaskParams) -> EmptyResult:
        self._found(params.task_id).scope.cancel()
        return EmptyResult()

    def _found(self, id: str) -> _Task:
        self._tidy()
        if (task := self._tasks.get(id)) is None:
            raise MCPError(INVALID_PARAMS, "There is no such task; one is kept for an hour.")
        return task

    def _tidy(self) -> None:
        before = self._clock.now() - _TTL
        self._tasks = {id: task for id, task in self._tasks.items() if task.created > before}
        ended = [id for id, task in self._tasks.items() if task.status != "working"]
        for id in ended[:-_MOST_TASKS]:
            del self._tasks[id]
