"""A live connection to a server: what it lists, the requests to it, and its news of changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from satchel.errors import UsageError
from satchel.tools.input_schema import InputSchema
from satchel.tools.mcp.cleaning import cleaned
from satchel.tools.mcp.definitions import (
    MAX_TOOLS,
    OUTPUT_SCHEMA_KEY,
    ToolListing,
    about_server,
    left_out,
    read_listing,
)
from satchel.tools.mcp.exchange import Failed, InputNeeded, ServerRequest
from satchel.tools.mcp.failures import reason_of
from satchel.tools.mcp.offers import MAX_OFFERS, McpPrompt, McpResource, prompt_from, resource_from
from satchel.tools.mcp.tasks import call_as_task, follow, tasks_extension
from satchel.tools.visible import visible

if TYPE_CHECKING:
    from anyio.abc import TaskStatus
    from mcp import Client

MAX_PAGES = 100
"""Pages of a list; a server that always names a further page would never end."""
RELIST_S = 1.0
"""Between two readings of a list that changes, so that one that changes all the time costs no more."""
OFFERS_S = 5.0
"""For a server to list its resources, or its prompts, when it starts; one that is slower counts as having none."""
SUBSCRIBE_S = 3.0
"""For a server to take the subscription to its changes; one that is slower may have changed its list unnoticed."""
PROGRESS_S = 0.1
"""Between two signs of progress that are shown."""


class Connection:
    """One connection, from the handshake on; made by `connect`."""

    def __init__(
        self,
        server: str,
        client: Client,
        unreadable: list[str],
        log: Callable[[str], None],
        limiter: anyio.CapacityLimiter,
    ) -> None:
        """Use `connect`."""
        self.protocol: str = client.protocol_version
        self._server = server
        self._client = client
        self._unreadable = unreadable
        self._log = log
        self._limiter = limiter
        self._task_tools: frozenset[str] = frozenset()
        self._output_schemas: dict[str, InputSchema] = {}
        self._resources: tuple[McpResource, ...] | None = None
        self._prompts: tuple[McpPrompt, ...] | None = None
        self._lists_changed = anyio.Event()

    # Lists

    async def tools(self) -> ToolListing:
        """Its tools, and under reserved names what else it says (`about_server`)."""
        self._unreadable.clear()
        # One more than is allowed, so that the rest is told of.
        raw = await self._listed(self._client.list_tools, "tools", most=MAX_TOOLS + 1)
        self._output_schemas = {
            tool["name"]: InputSchema(tool["_meta"][OUTPUT_SCHEMA_KEY]) for tool in raw if "_meta" in tool
        }
        problems: list[str] = []
        self._task_tools = frozenset(
            tool["name"] for tool in raw if tool.get("execution", {}).get("taskSupport") == "required"
        )
        if self._task_tools and not self._runs_tasks():
            raw = [tool for tool in raw if tool["name"] not in self._task_tools]
            reason = f"it runs only as a task, and the server offers none in the revision {self.protocol}"
            problems += [left_out(self._server, name, reason) for name in sorted(self._task_tools)]
        listing = await anyio.to_thread.run_sync(
            partial(read_listing, self._server, raw), limiter=self._limiter
        )
        # Many servers announce resources and prompts, and have none.
        offered = self._client.server_capabilities
        about = about_server(
            self._client.instructions or "",
            resources=offered.resources is not None and await self._has_any(self.resources),
            prompts=offered.prompts is not None and await self._has_any(self.prompts),
        )
        return ToolListing(
            tools=(*about, *listing.tools),
            problems=(*self._unreadable, *problems, *listing.problems),
        )

    async def resources(self) -> tuple[McpResource, ...]:
        """What it lets be read, then the templates; kept until it says that they changed."""
        if self._resources is None:
            listed = await self._listed(self._client.list_resources, "resources", most=MAX_OFFERS)
            try:
                fetch = self._client.list_resource_templates
                listed += await self._listed(fetch, "resource_templates", most=MAX_OFFERS - len(listed))
            except Exception as error:  # noqa: BLE001  a boundary: many servers don't know the method
                self._log(f"no templates: {reason_of(error)}")
            self._resources = tuple(resource_from(self._server, each) for each in listed)
        return self._resources

    async def prompts(self) -> tuple[McpPrompt, ...]:
        """Its prompts; kept until it says that they changed."""
        if self._prompts is None:
            listed = await self._listed(self._client.list_prompts, "prompts", most=MAX_OFFERS)
            self._prompts = tuple(prompt_from(self._server, each) for each in listed)
        return self._prompts

    async def _has_any(self, listed: Callable[[], Awaitable[Sequence[Any]]]) -> bool:
        # A boundary: a stranger's server, whose tools are of use without this.
        try:
            with anyio.move_on_after(OFFERS_S):
                return bool(await listed())
        except Exception as error:  # noqa: BLE001
            self._log(f"a list can't be read: {reason_of(error)}")
        return False

    async def _listed(
        self, fetch: Callable[..., Awaitable[Any]], field: str, *, most: int
    ) -> list[dict[str, Any]]:
        """The entries of a list, from as many pages as it takes to have enough."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await fetch(cursor=cursor)
            found += [_plain(each) for each in getattr(page, field)[: most - len(found)]]
            cursor = page.next_cursor
            if cursor is None or len(found) >= most:
                break
        return found

    def _runs_tasks(self) -> bool:
        tasks = self._client.server_capabilities.tasks
        requests = tasks.requests if tasks is not None else None
        return requests is not None and requests.tools is not None and requests.tools.call is not None

    # Requests

    async def call(
        self,
        name: str,
        input: Mapping[str, Any],
        exchange: ServerRequest,
        *,
        answers: Mapping[str, Any] | None = None,
        state: str | None = None,
    ) -> Mapping[str, Any] | Failed | InputNeeded:
        """Call a tool; the protocol's result. `answers` and `state` are those of an earlier try (`InputNeeded`)."""
        session = self._client.session
        shown_s = 0.0

        async def tell(data: Mapping[str, Any]) -> None:
            if exchange.caller.progress is not None:
                await exchange.caller.progress(data)

        async def show(progress: float, total: float | None, message: str | None) -> None:
            nonlocal shown_s
            now_s = anyio.current_time()
            if now_s - shown_s >= PROGRESS_S or (total is not None and progress >= total):
                shown_s = now_s
                await tell({"progress": progress, "total": total, "message": visible((message or "")[:500])})

        async def send(responses: Any, state: str | None) -> Any:
            return await session.call_tool(
                name,
                dict(input),
                progress_callback=show,
                input_responses=responses,
                request_state=state,
                allow_input_required=True,
                allow_claimed=True,
            )

        if name in self._task_tools:
            result: Any = await call_as_task(session, name, input, exchange=exchange, tell=tell)
        else:
            result = await exchange.converse(send, answers=answers, state=state, may_wait=True)
            if not isinstance(result, Failed | InputNeeded):
                result = await follow(session, result, exchange=exchange, tell=tell)
        if isinstance(result, Failed | InputNeeded):
            return result
        plain = _plain(result)
        unfit = await self._unfit(name, plain)
        return Failed(reason=unfit) if unfit else plain

    async def _unfit(self, name: str, result: Mapping[str, Any]) -> str:
        """Why a result is not what its tool declared, as a clause, or ""."""
        schema = self._output_schemas.get(name)
        if schema is None or result.get("isError"):
            return ""
        if "structuredContent" not in result:
            return "it declared a structured result and returned none"
        try:
            problems = await anyio.to_thread.run_sync(
                schema.problems, result["structuredContent"], limiter=self._limiter
            )
        except UsageError as error:
            # The server's schema is of no use; its result may be.
            self._log(f"results of {name} can't be checked: {error}")
            return ""
        if not problems:
            return ""
        return visible(f"its result does not fit the schema that the server declared: {problems[0]}")

    async def read(self, uri: str, exchange: ServerRequest) -> Mapping[str, Any] | Failed | InputNeeded:
        """Read a resource; the protocol's result."""
        return await self._get(partial(self._client.session.read_resource, uri), exchange)

    async def prompt(
        self, name: str, arguments: Mapping[str, str], exchange: ServerRequest
    ) -> Mapping[str, Any] | Failed | InputNeeded:
        """Get a prompt; the protocol's result."""
        return await self._get(partial(self._client.session.get_prompt, name, dict(arguments)), exchange)

    async def _get(
        self, request: Callable[..., Awaitable[Any]], exchange: ServerRequest
    ) -> Mapping[str, Any] | Failed | InputNeeded:
        async def send(responses: Any, state: str | None) -> Any:
            return await request(input_responses=responses, request_state=state, allow_input_required=True)

        result = await exchange.converse(send)
        return result if isinstance(result, Failed | InputNeeded) else _plain(result)

    # News

    def heard(self, message: Any) -> None:
        """Take a notification, or an error of the connection."""
        from mcp.types import (  # noqa: PLC0415  loaded in `load_sdk`
            PromptListChangedNotification,
            ResourceListChangedNotification,
            ToolListChangedNotification,
        )

        match message:
            case ToolListChangedNotification():
                self._lists_changed.set()
            case ResourceListChangedNotification():
                self._resources = None
                self._lists_changed.set()
            case PromptListChangedNotification():
                self._prompts = None
                self._lists_changed.set()
            case Exception():
                self._log(reason_of(message))
            case _:
                pass

    async def follow(
        self, on_change: Callable[[], Awaitable[None]], *, task_status: TaskStatus[None]
    ) -> None:
        """Follow changes until cancelled; started once the server has taken the subscription."""
        async with anyio.create_task_group() as group:
            subscribed = anyio.Event()
            group.start_soon(self._listen, subscribed)
            with anyio.move_on_after(SUBSCRIBE_S):
                await subscribed.wait()
            task_status.started()
            while True:
                await self._lists_changed.wait()
                self._lists_changed = anyio.Event()
                # A boundary: a stranger's server; a list that can't be read leaves the one before.
                try:
                    await on_change()
                except Exception as error:  # noqa: BLE001
                    self._log(f"the changed list can't be read: {reason_of(error)}")
                await anyio.sleep(RELIST_S)

    async def _listen(self, subscribed: anyio.Event) -> None:
        """Subscribe to changes, as the newest revision wants it; servers of older ones tell without being asked."""
        offered = self._client.server_capabilities
        tools = offered.tools is not None and bool(offered.tools.list_changed)
        resources = offered.resources is not None and bool(offered.resources.list_changed)
        prompts = offered.prompts is not None and bool(offered.prompts.list_changed)
        # A boundary: a stranger's server; without the stream, changes are seen at the next start.
        try:
            if self._client.session.discover_result is not None and (tools or resources or prompts):
                async with self._client.listen(
                    tools_list_changed=tools, resources_list_changed=resources, prompts_list_changed=prompts
                ) as events:
                    subscribed.set()
                    async for _ in events:
                        pass  # `heard` gets the same as notifications
        except Exception as error:  # noqa: BLE001
            self._log(f"no news of changes: {reason_of(error)}")
        finally:
            subscribed.set()


@asynccontextmanager
async def connect(
    server: str,
    transport: AbstractAsyncContextManager[Any],
    *,
    version: str,
    respond: Callable[[Any], Awaitable[Any]],
    log: Callable[[str], None],
    limiter: anyio.CapacityLimiter,
) -> AsyncIterator[Connection]:
    """Connect to a server, in the newest revision that both know. `respond` answers what the server asks by itself: the
    SDK's request, and its response or `ErrorData`. `limiter` is of the threads in which schemas are checked.
    """
    from mcp import Client  # noqa: PLC0415  loaded in `load_sdk`
    from mcp.types import CreateMessageRequest, ElicitRequest, Implementation, ListRootsRequest  # noqa: PLC0415

    async def elicited(context: Any, params: Any) -> Any:  # noqa: ARG001  the SDK's shape, as those below
        return await respond(ElicitRequest(params=params))

    async def sampled(context: Any, params: Any) -> Any:  # noqa: ARG001
        return await respond(CreateMessageRequest(params=params))

    async def rooted(context: Any) -> Any:  # noqa: ARG001
        return await respond(ListRootsRequest())

    connection: Connection | None = None

    async def heard(message: Any) -> None:
        if connection is not None:
            connection.heard(message)

    unreadable: list[str] = []

    def on_problem(tool: str, reason: str) -> None:
        unreadable.append(left_out(server, tool, reason))

    client = Client(
        cleaned(transport, on_problem),
        client_info=Implementation(name="satchel", version=version),
        elicitation_callback=elicited,
        sampling_callback=sampled,
        list_roots_callback=rooted,
        message_handler=heard,
        extensions=[tasks_extension()],
        cache=None,
    )
    async with client:
        connection = Connection(server, client, unreadable, log, limiter)
        yield connection


def _plain(model: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return plain
