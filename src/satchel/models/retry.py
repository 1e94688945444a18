"""Retries requests that failed temporarily, unless a part of the answer was already shown."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import anyio

from satchel.errors import ModelUnavailable
from satchel.models.port import Retrying

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how soon to retry.

    The delays double from `first_delay_s` up to `longest_delay_s`. Each is shortened by a random share of up to one
    half, so that many clients don't return at the same time. The defaults are close to those of the official SDKs (two
    retries from 0.5 s, at most 8 s), with one more retry because a turn is worth more than a single request.

    Attributes:
        retries: Requests after the first.
        longest_asked_s: If an endpoint asks for a longer delay than this, the request fails and the user is told.
    """

    retries: int = 3
    first_delay_s: float = 0.5
    longest_delay_s: float = 8.0
    longest_asked_s: float = 60.0

    def delay_s(self, attempt: int, asked_s: float | None, random: Random) -> float:
        """The delay in seconds after failed attempt number `attempt`, counted from 1."""
        delay = min(self.first_delay_s * 2.0 ** (attempt - 1), self.longest_delay_s)
        delay *= 1 - random.random() / 2
        return max(delay, asked_s or 0.0)


async def retried(
    attempt: Callable[[], AsyncGenerator[T, None]],
    *,
    policy: RetryPolicy,
    random: Random,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> AsyncGenerator[T | Retrying, None]:
    """The events of the first attempt that succeeds, with a `Retrying` event before each retry.

    Raises:
        ModelUnavailable: The last attempt failed, or an attempt failed after its first event. Such an attempt is not
            retried, because nothing may be shown twice.
    """
    number = 0
    while True:
        number += 1
        has_started = False
        try:
            async with aclosing(attempt()) as events:
                async for event in events:
                    has_started = True
                    yield event
            return
        except ModelUnavailable as error:
            if has_started:
                raise ModelUnavailable(
                    f"{error} Part of the answer had already arrived, so the request was not repeated. "
                    "Say “continue” to get the rest.",
                    retry_after_s=error.retry_after_s,
                ) from error
            asked_s = error.retry_after_s
            if asked_s is not None and asked_s > policy.longest_asked_s:
                raise
            if number > policy.retries:
                if policy.retries:
                    raise ModelUnavailable(
                        f"{error} Satchel tried {number} times.", retry_after_s=asked_s
                    ) from error
                raise
            delay_s = policy.delay_s(number, asked_s, random)
            notice = Retrying(attempt=number, delay_s=delay_s, reason=str(error))
        yield notice
        await sleep(delay_s)
