"""Who follows what, and who is told: lists, resources and log messages, in the way of each revision of the protocol.

From 2026-07-28 on, a client opens a stream for what it wants to hear. Before, it subscribes to resources and sets a
level for log messages, and both hold for its connection. The newest revision advises new servers against log messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, get_args

import anyio
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.types import (
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    ToolListChangedNotification,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from satchel.errors import NotFound, StorageError, UsageError
from satchel.server.mcp.resources import Resources
from satchel.tools.visible import visible

_LOOK_S: Final = 1.0
"""How often lists and resources are compared, while a client follows them."""
_MOST_RESOURCES: Final = 1_000
"""That one client subscribes to: each costs a comparison a second."""
_LEVELS: Final[tuple[LoggingLevel, ...]] = get_args(LoggingLevel)
_NOTIFICATIONS: Final[Mapping[type[ServerEvent], Any]] = {
    ToolsListChanged: ToolListChangedNotification,
    ResourcesListChanged: ResourceListChangedNotification,
    PromptsListChanged: PromptListChangedNotification,
}

_Context = ServerRequestContext[Any, Any]


@dataclass(slots=True)
class _Follower:
    """A client of an older revision: what it subscribed to, and the lowest level of messages that it wants."""

    uris: set[str] = field(default_factory=set)
    level: LoggingLevel | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The lists, and a state of each resource, by its address."""

    lists: Mapping[type[Any], object] = field(default_factory=dict)
    resources: dict[str, object] = field(default_factory=dict)


class Following:
    """Compares what may change with what it was a moment ago, and tells those who follow it."""

    def __init__(
        self, resources: Resources, lists: Callable[[], Awaitable[Mapping[type[Any], object]]]
    ) -> None:
        """Look at nothing yet.

        Args:
            resources: What may be subscribed to.
            lists: The state of each list, by its event; equal states mean that nothing changed.
        """
        self._resources = resources
        self._lists = lists
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._streams = 0
        self._streamed: Counter[str] = Counter()
        self._followers: dict[Connection, _Follower] = {}
        self._before = _Seen()
        self._is_failing = False

    async def watch(self) -> None:
        """Tell clients what changes; runs until it is cancelled."""
        while True:
            await anyio.sleep(_LOOK_S)
            if not self._is_followed:
                continue
            before = self._before
            try:
                now = await self._look()
            except StorageError as error:
                await self._failing(error)
                continue
            self._is_failing = False
            for event, state in now.lists.items():
                if before.lists.get(event) != state:
                    await self.tell(event)
            for uri in (*now.resources, *(uri for uri in before.resources if uri not in now.resources)):
                if now.resources.get(uri) != before.resources.get(uri):
                    await self._tell_of(uri)
            self._before = now

    def end_streams(self) -> None:
        """End the streams of clients in good order."""
        self._listening.close()

    # What clients ask

    async def listen(
        self, context: _Context, params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve a stream of the newest revision."""
        uris = tuple(map(str, params.notifications.resource_subscriptions or ()))[:_MOST_RESOURCES]
        await self._begin()
        for uri in uris:
            with suppress(NotFound, StorageError):
                await self._note(uri)
        self._streams += 1
        self._streamed.update(uris)
        try:
            return await self._listening(context, params)
        finally:
            self._streams -= 1
            self._streamed.subtract(uris)
            self._streamed += Counter()  # without those that nobody follows any more

    async def begin(self, context: _Context) -> None:
        """Tell a client of an older revision when lists change, until its connection ends."""
        await self._begin()
        self._follower(context)

    async def subscribe(self, context: _Context, uri: str) -> None:
        """Tell a client of an older revision when a resource changes.

        Raises:
            NotFound: There is no such resource.
            UsageError: The client has subscribed to too many.
            StorageError: It can't be read.
        """
        await self._begin()
        await self._note(uri)
        uris = self._follower(context).uris
        if len(uris) >= _MOST_RESOURCES:
            raise UsageError(f"A client can subscribe to {_MOST_RESOURCES} resources. Unsubscribe from some.")
        uris.add(uri)

    def unsubscribe(self, context: _Context, uri: str) -> None:
        """Take it back; without a subscription, nothing happens."""
        self._follower(context).uris.discard(uri)

    def set_level(self, context: _Context, level: LoggingLevel) -> None:
        """Send a client of an older revision what is logged at this level and above. Before, it gets nothing."""
        self._follower(context).level = level

    async def log(self, context: _Context, level: LoggingLevel, data: Mapping[str, Any]) -> None:
        """Log something about a request, to its client, if the client of an older revision wants it."""
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        if self._wants(self._follower(context), level):
            await context.session.send_notification(
                _message(level, data), related_request_id=context.request_id
            )

    # Telling

    async def tell(self, event: type[Any]) -> None:
        """Tell everybody who follows a list that it has changed."""
        await self._bus.publish(event())
        for connection in tuple(self._followers):
            await connection.notify(_NOTIFICATIONS[event]().method, None)

    async def _tell_of(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri=uri))
        params = ResourceUpdatedNotificationParams(uri=uri)
        notification = ResourceUpdatedNotification(params=params)
        for connection, follower in tuple(self._followers.items()):
            if uri in follower.uris:
                await connection.notify(
                    notification.method, params.model_dump(by_alias=True, mode="json", exclude_none=True)
                )

    async def _failing(self, error: StorageError) -> None:
        """Say once that what changes can't be seen."""
        if self._is_failing:
            return
        self._is_failing = True
        message = _message("error", {"message": visible(str(error))})
        data = message.model_dump(by_alias=True, mode="json", exclude_none=True)
        for connection, follower in tuple(self._followers.items()):
            if self._wants(follower, "error"):
                await connection.notify(data["method"], data["params"])

    # What there is

    @property
    def _is_followed(self) -> bool:
        return bool(self._followers or self._streams)

    async def _look(self) -> _Seen:
        resources: dict[str, object] = dict(await self._resources.moments())
        lists = dict(await self._lists())
        lists[ResourcesListChanged] = (frozenset(resources), lists.get(ResourcesListChanged))
        followed = {*self._streamed, *(uri for one in self._followers.values() for uri in one.uris)}
        for uri in followed - resources.keys():
            with suppress(NotFound):
                resources[uri] = await self._resources.state(uri)
        return _Seen(lists, resources)

    async def _note(self, uri: str) -> None:
        """Compare a resource with what it is now. Errors as in `Resources.state`."""
        state = await self._resources.state(uri)
        self._before.resources.setdefault(uri, state)

    async def _begin(self) -> None:
        """Compare with what is now, if nobody has followed anything so far."""
        if not self._is_followed:
            with suppress(StorageError):
                self._before = await self._look()

    def _follower(self, context: _Context) -> _Follower:
        # The SDK gives handlers no other access to what outlives their request.
        connection: Connection = context.session._connection
        if connection not in self._followers:
            self._followers[connection] = _Follower()
            connection.exit_stack.callback(self._followers.pop, connection, None)
        return self._followers[connection]

    @staticmethod
    def _wants(follower: _Follower, level: LoggingLevel) -> bool:
        return follower.level is not None and _LEVELS.index(level) >= _LEVELS.index(follower.level)


def _message(level: LoggingLevel, data: Mapping[str, Any]) -> LoggingMessageNotification:
    params = LoggingMessageNotificationParams(level=level, logger="satchel", data=dict(data))
    return LoggingMessageNotification(params=params)
