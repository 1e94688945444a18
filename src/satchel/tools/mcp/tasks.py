"""Long-running calls: a server answers with a task, which is asked after until it has the result.

Revision 2025-11-25 has tasks that the client asks for (`execution.taskSupport` of a tool), and `tasks/result`. From
2026-07-28 on they are an extension: the server decides, and `tasks/get` brings the result. The SDK has neither; what
it does have are requests of any method, and claims on the type of a call's result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import anyio

from satchel.tools.mcp.exchange import Failed, ServerRequest
from satchel.tools.visible import visible

if TYPE_CHECKING:
    from mcp.client import ClientSession
    from mcp.client.extension import ClientExtension
    from mcp.types import CallToolResult

TASK_KEY = "satchel/task"
"""Where `cleaning` puts the task of a call's result, for which the SDK's model of 2025-11-25 has no field."""
EXTENSION = "io.modelcontextprotocol/tasks"
TTL_MS = 3_600_000
"""How long a server should keep a task: as long as a call may take in all."""
POLL_S = 1.0
"""Between two looks at a task, where the server proposes no time."""
MIN_POLL_S, MAX_POLL_S = 0.1, 10.0
CANCEL_S = 2.0
"""For telling the server that a task is no longer wanted."""

Tell = Callable[[Mapping[str, Any]], Awaitable[None]]


async def call_as_task(
    session: ClientSession, name: str, input: Mapping[str, Any], *, exchange: ServerRequest, tell: Tell
) -> CallToolResult | Failed:
    """Call a tool that runs only as a task, on a server of the revision 2025-11-25."""
    from mcp.types import (  # noqa: PLC0415  loaded in `load_sdk`
        CallToolRequest,
        CallToolRequestParams,
        CallToolResult,
        TaskMetadata,
    )

    params = CallToolRequestParams(name=name, arguments=dict(input), task=TaskMetadata(ttl=TTL_MS))
    result = await session.send_request(CallToolRequest(params=params), CallToolResult)
    return await follow(session, result, exchange=exchange, tell=tell)


async def follow(
    session: ClientSession, result: Any, *, exchange: ServerRequest, tell: Tell
) -> CallToolResult | Failed:
    """Wait for the result of a task; a result that is none is returned as it is.

    Whoever cancels the wait cancels the task. Its time limit starts anew with each sign of life. `tell` is told what
    the server says about the task.
    """
    from mcp.types import CallToolResult  # noqa: PLC0415  loaded in `load_sdk`

    created = isinstance(result, _types().created)
    task = result.model_dump(by_alias=True) if created else (result.meta or {}).get(TASK_KEY)
    if not isinstance(task, Mapping):
        assert isinstance(result, CallToolResult)
        return result
    task_id = str(task.get("taskId", ""))
    answered: set[str] = set()
    is_done = False
    try:
        while task.get("status") in ("working", "input_required"):
            await tell(
                {"progress": None, "total": None, "message": str(task.get("statusMessage") or "")[:500]}
            )
            if task["status"] == "input_required" and created:
                refused = await _give_input(session, task_id, task.get("inputRequests"), answered, exchange)
                if refused:
                    return Failed(reason=refused)
            elif task["status"] == "input_required":
                break  # the server asks its questions while it is asked for the result
            await anyio.sleep(_pause_s(task))
            task = await _send(session, "tasks/get", {"taskId": task_id})
            exchange.extend()
        if task.get("status") not in ("completed", "failed", "input_required"):
            is_done = True
            return Failed(reason=f"the task ended as {visible(str(task.get('status'))[:40])!r}{_why(task)}")
        if not created:
            value = await _send(session, "tasks/result", {"taskId": task_id})
        elif task["status"] == "failed":
            value = None
        else:
            value = task.get("result")
        is_done = True
        if not isinstance(value, Mapping):
            return Failed(reason=f"the task failed{_why(task)}")
        return CallToolResult.model_validate(value, by_name=False)
    finally:
        if not is_done:
            with anyio.move_on_after(CANCEL_S, shield=True):
                await _cancel(session, task_id)


def tasks_extension() -> ClientExtension:
    """What a client is made with that takes tasks from servers of the revision 2026-07-28."""
    return _types().extension()


async def _give_input(
    session: ClientSession, task_id: str, requests: Any, answered: set[str], exchange: ServerRequest
) -> str:
    """Answer what a task asks, each question once; why one was refused, or ""."""
    from mcp.types import ErrorData, InputRequest  # noqa: PLC0415  loaded in `load_sdk`
    from pydantic import TypeAdapter  # noqa: PLC0415

    responses: dict[str, Any] = {}
    for key, raw in requests.items() if isinstance(requests, Mapping) else ():
        if key in answered:
            continue
        answered.add(key)
        response = await exchange.respond(TypeAdapter(InputRequest).validate_python(raw, by_name=False))
        if isinstance(response, ErrorData):
            return response.message
        responses[key] = response.model_dump(by_alias=True, mode="json", exclude_none=True)
    if responses:
        await _send(session, "tasks/update", {"taskId": task_id, "inputResponses": responses})
    return ""


async def _send(session: ClientSession, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    from pydantic import RootModel  # noqa: PLC0415  loaded with the SDK

    request = _types().request(method=method, params=dict(params))
    return (await session.send_request(request, RootModel[dict[str, Any]])).root


async def _cancel(session: ClientSession, task_id: str) -> None:
    # A boundary: a stranger's server, which is told of something that nobody waits for.
    try:
        await _send(session, "tasks/cancel", {"taskId": task_id})
    except Exception:  # noqa: BLE001
        return


def _pause_s(task: Mapping[str, Any]) -> float:
    for key in ("pollIntervalMs", "pollInterval"):
        wanted = task.get(key)
        if isinstance(wanted, int | float) and not isinstance(wanted, bool):
            # NaN, which JSON in Python may hold, compares as False.
            return min(wanted / 1000, MAX_POLL_S) if wanted / 1000 >= MIN_POLL_S else MIN_POLL_S
    return POLL_S


def _why(task: Mapping[str, Any]) -> str:
    error = task.get("error")
    message = error.get("message") if isinstance(error, Mapping) else task.get("statusMessage")
    return f": {visible(' '.join(str(message).split())[:500]).rstrip('.')}" if message else ""


class _Types:
    """Classes that derive from the SDK's, which is loaded late."""

    def __init__(self) -> None:
        from typing import Literal  # noqa: PLC0415

        from mcp.client.extension import ClientExtension, ResultClaim  # noqa: PLC0415
        from mcp.types import Request, Result  # noqa: PLC0415

        class TaskRequest(Request[dict[str, Any], str]):
            name_param = "taskId"

        class TaskCreated(Result):
            result_type: Literal["task"] = "task"
            task_id: str
            status: str = "working"
            status_message: str | None = None
            poll_interval_ms: float | None = None

        async def unused(*_: Any) -> Any:
            raise NotImplementedError

        class Tasks(ClientExtension):
            identifier = EXTENSION

            def claims(self) -> Any:
                return (ResultClaim(result_type="task", model=TaskCreated, resolve=unused),)

        self.request, self.created, self.extension = TaskRequest, TaskCreated, Tasks


@cache
def _types() -> _Types:
    return _Types()
