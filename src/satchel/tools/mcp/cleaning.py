"""Cleans what comes from a server before the SDK reads it: the SDK refuses a whole list for one bad entry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from anyio.abc import ObjectReceiveStream

from satchel.tools.mcp.definitions import readable
from satchel.tools.mcp.offers import readable_offer
from satchel.tools.mcp.tasks import TASK_KEY

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_LISTS = {"resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}
"""The lists of results beside `tools`, and the field that names an entry."""


@asynccontextmanager
async def cleaned(
    transport: AbstractAsyncContextManager[TransportStreams], on_problem: Callable[[str, str], None]
) -> AsyncIterator[TransportStreams]:
    """The same transport, with results that the SDK can read. `on_problem` is told the name of each tool that was left
    out, and why.
    """
    async with transport as (incoming, outgoing):
        yield _Cleaned(incoming, on_problem), outgoing


class _Cleaned(ObjectReceiveStream[Any]):
    """A stream of messages, whose results are changed in place."""

    def __init__(self, inner: Any, on_problem: Callable[[str, str], None]) -> None:
        self._inner = inner
        self._on_problem = on_problem

    def __getattr__(self, name: str) -> Any:
        # The SDK looks for `last_context`, which only some streams have.
        return getattr(self._inner, name)

    async def receive(self) -> Any:
        return self._clean(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _clean(self, message: Any) -> Any:
        result = getattr(getattr(message, "message", None), "result", None)
        if not isinstance(result, dict):
            return message
        if isinstance(result.get("tools"), list):
            result["tools"] = self._tools(result["tools"])
        for name, key in _LISTS.items():
            if isinstance(result.get(name), list):
                entries = (readable_offer(entry, key=key) for entry in result[name])
                result[name] = [entry for entry in entries if entry is not None]
        task = result.get("task")
        if isinstance(task, dict) and "content" not in result:
            # A call's result of 2025-11-25 that is a task; the SDK's model demands content.
            result["content"] = []
            result["_meta"] = {TASK_KEY: task}
        elif isinstance(result.get("_meta"), dict):
            result["_meta"].pop(TASK_KEY, None)
        return message

    def _tools(self, listed: list[Any]) -> list[Any]:
        kept: list[Any] = []
        for tool in listed:
            found = readable(tool)
            if isinstance(found, str):
                self._on_problem(str(tool.get("name", "")) if isinstance(tool, dict) else "", found)
            else:
                kept.append(found)
        return kept
