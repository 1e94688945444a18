"""The newest results that pages keep between a form and the page after it, because they are stored nowhere else."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import anyio
from starlette.requests import Request

from satchel.capabilities import Outcome, Tested
from satchel.memory import Checkup
from satchel.runtime import Satchel
from satchel.runtime.forgetting import ForgetReceipt
from satchel.runtime.health import Check
from satchel.runtime.surfacings import Surfacings

__all__ = ["Examined", "Kept", "Newest", "RunShown", "kept_of"]

T = TypeVar("T")

_MOST: Final = 20


class Newest(Generic[T]):
    """The newest twenty values, by unguessable names."""

    def __init__(self) -> None:
        """Start empty."""
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
class Examined:
    """The doctor's findings: their time, the duration in seconds, and the monotonic time of their end."""

    checks: Sequence[Check]
    at: datetime
    took_s: float
    until_s: float


@dataclass(slots=True)
class Kept:
    """What the pages of one server keep."""

    surfacings: Surfacings
    receipts: Newest[ForgetReceipt] = field(default_factory=Newest)
    runs: Newest[RunShown] = field(default_factory=Newest)
    tests: Newest[Tested] = field(default_factory=Newest)
    examined: Examined | None = None
    examining: anyio.Lock = field(default_factory=anyio.Lock)
    checkup: Checkup | None = None

    @classmethod
    def of(cls, satchel: Satchel) -> Kept:
        """Start empty."""
        return cls(Surfacings(satchel.sessions))


def kept_of(request: Request) -> Kept:
    """The results that this server's pages keep."""
    found: Kept = request.app.state.kept
    return found
