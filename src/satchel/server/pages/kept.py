"""The newest results that pages keep between a form and the page after it, because they are stored nowhere else."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import anyio
from starlette.requests import Request

from satchel.capabilities import Outcome, Tested
from satchel.config import McpServerSettings, Settings
from satchel.errors import SatchelError
from satchel.memory import Checkup
from satchel.runtime import Satchel
from satchel.runtime.forgetting import ForgetReceipt
from satchel.runtime.health import Check
from satchel.runtime.lately import Lately
from satchel.runtime.servers import log_in

T = TypeVar("T")

_MOST: Final = 20


class Newest(Generic[T]):
    """The newest twenty values, by unguessable names."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, T] = OrderedDict()

    def keep(self, value: T) -> str:
        """Keep a value, and return its name."""
        name = secrets.token_hex(8)
        self._kept[name] = value
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
        return name

    def get(self, name: str) -> T | None:
        """The value with a name; None if it isn't kept any more."""
        return self._kept.get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShown:
    """A run that was started on a page: its capability, input and outcome."""

    capability_id: str
    input: Mapping[str, Any]
    outcome: Outcome
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedServer:
    """An MCP server that the user is shown before it is saved, and the values that its entry refers to. It may replace
    the one of its name.
    """

    entry: McpServerSettings
    values: Mapping[str, str] = field(repr=False)
    is_change: bool = False


class ServerLogin:
    """A login at an MCP server that goes on in a browser.

    Attributes:
        address: Where the user logs in; "" before the server has said it.
        problem: Why it failed, or "".
        is_over: It succeeded or failed.
    """

    def __init__(self) -> None:
        self.address = ""
        self.problem = ""
        self.is_over = False
        self._has_address = anyio.Event()
        self._has_ended = anyio.Event()
        self._offer: Callable[[str], bool] = lambda _: False
        self._scope = anyio.CancelScope()

    async def run(
        self, settings: Settings, name: str, *, then: Callable[[], Awaitable[object]], limit_s: float
    ) -> None:
        """Log in, and run `then` if that succeeded before it counts as over."""

        async def show(address: str) -> None:
            self.address = address
            self._has_address.set()

        async def pasted(offer: Callable[[str], bool]) -> None:
            self._offer = offer
            await anyio.sleep_forever()

        try:
            with self._scope:
                await log_in(settings, name, show=show, pasted=pasted, limit_s=limit_s)
                await then()
        except SatchelError as error:
            self.problem = str(error)
        finally:
            self.is_over = True
            self._has_address.set()
            self._has_ended.set()

    def cancel(self) -> None:
        """Give it up."""
        self._scope.cancel()

    async def begun(self, limit_s: float) -> None:
        """Wait until there is an address, or it is over."""
        with anyio.move_on_after(limit_s):
            await self._has_address.wait()

    async def take(self, address: str, limit_s: float) -> bool:
        """Take the address to which the browser was sent, and wait for the end. Returns whether it is this login's."""
        if not self._offer(address):
            return False
        with anyio.move_on_after(limit_s):
            await self._has_ended.wait()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The doctor's findings: their time, the duration in seconds, and the monotonic time of their end."""

    checks: Sequence[Check]
    at: datetime
    took_s: float
    until_s: float


@dataclass(slots=True)
class Kept:
    """What the pages of one server keep."""

    lately: Lately
    receipts: Newest[ForgetReceipt] = field(default_factory=Newest)
    runs: Newest[RunShown] = field(default_factory=Newest)
    tests: Newest[Tested] = field(default_factory=Newest)
    servers: Newest[PlannedServer] = field(default_factory=Newest)
    logins: dict[str, ServerLogin] = field(default_factory=dict)
    examined: Examined | None = None
    examining: anyio.Lock = field(default_factory=anyio.Lock)
    checkup: Checkup | None = None

    @classmethod
    def of(cls, satchel: Satchel) -> Kept:
        """Start empty."""
        return cls(Lately(satchel.sessions))


def kept_of(request: Request) -> Kept:
    """The results that this server's pages keep."""
    found: Kept = request.app.state.kept
    return found
