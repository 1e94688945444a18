"""Extracts facts in the background while Satchel is open, as far as the settings and the budget allow."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio

from satchel.clock import local_day
from satchel.errors import BudgetExceeded, SatchelError, UsageError
from satchel.memory.distill import DistillReport, WindowResult
from satchel.runtime.home import Home
from satchel.runtime.parts import Parts

__all__ = ["Distilling"]

_log = logging.getLogger(__name__)

_WINDOWS_A_RUN = 10
"""The maximum of one background run, so that thousands of imported messages are read over time. `memory distill` reads
them at once."""
_LAST_WINDOW_S = 3.0
"""How long closing waits for the current window, because the answers of the model are already paid for."""
_LONGEST_PAUSE_S = 3_600.0
"""The limit of the pause after a failure, which starts at a minute and doubles each time."""


class Distilling:
    """Extracts facts from what was said in the sessions of an open Satchel."""

    def __init__(self, parts: Parts, home: Home) -> None:
        """Nothing runs before `start`."""
        self._parts = parts
        self._home = home
        self._wake = anyio.Event()
        self._scope = anyio.CancelScope()
        self._idle = anyio.Event()
        self._idle.set()
        self._not_before_s = 0.0
        self._pause_s = 60.0

    def start(self) -> None:
        """Check now, because messages may be left from last time, and after each turn."""
        settings = self._parts.settings
        if settings.memory.distill == "auto" and settings.keeps_memory and self._home.memory is not None:
            self._parts.background.start(self._loop)

    def notify(self) -> None:
        """A turn was captured: check whether distilling is due."""
        self._wake.set()

    async def close(self) -> None:
        """Give the current window a few seconds to finish, then stop."""
        with anyio.move_on_after(_LAST_WINDOW_S):
            await self._idle.wait()
        self._scope.cancel()

    async def run(
        self, *, most_windows: int | None = None, progress: Callable[[WindowResult], None] = lambda _: None
    ) -> DistillReport:
        """Distil what is pending now.

        Raises:
            UsageError: Memory is off, or there is no language model.
            ConfigError, ModelError: The models are unavailable.
            StorageError: The store failed.
        """
        memory = self._home.memory
        if memory is None:
            raise UsageError("Memory is off or could not be opened, so nothing can be distilled.")
        return await memory.distill(
            model=await self._parts.models.model(),
            small_model=await self._parts.models.small(),
            most_windows=most_windows,
            may_spend=self._may_spend,
            progress=progress,
        )

    async def _may_spend(self) -> None:
        limit = self._parts.settings.budget.day_usd
        if limit is None:
            return
        spent = await self._home.spent_on(local_day(self._parts.clock.now()))
        if spent >= limit:
            raise BudgetExceeded(
                f"${spent:.4f} was spent today, and the limit is ${limit:g} (budget.day_usd). "
                "Distilling continues tomorrow."
            )

    async def _loop(self) -> None:
        with self._scope:
            while True:
                self._wake = anyio.Event()
                try:
                    await self._once()
                except SatchelError as error:
                    self._later(str(error))
                except Exception:  # noqa: BLE001 - a boundary: a defect here must not disturb the user
                    _log.exception("Distilling in the background failed.")
                    self._later("a defect, see the log")
                await self._wake.wait()

    async def _once(self) -> None:
        settings = self._parts.settings.memory
        memory = self._home.memory
        if memory is None or self._parts.clock.monotonic_s() < self._not_before_s:
            return
        if not await memory.distill_is_due(every=settings.distill_every, after_s=settings.distill_after_s):
            return
        if (await self._parts.models.model()).provider == "none":
            return  # Memory works with episodes alone; `doctor` and `memory distill --status` say so.
        self._idle = anyio.Event()
        try:
            # One window per call, so that closing can stop between two of them.
            for _ in range(_WINDOWS_A_RUN):
                report = await self.run(most_windows=1)
                if any(window.outcome == "failed" for window in report.windows):
                    self._later(report.windows[-1].error)
                    return
                if not report.pending or not report.windows:
                    break
                if self._scope.cancel_called:
                    return
            self._pause_s = 60.0
        finally:
            self._idle.set()

    def _later(self, reason: str) -> None:
        # Only logged: `doctor` and `memory distill --status` report it, and it matters to no turn.
        _log.info("Distilling failed and is tried again in %g s: %s", self._pause_s, reason)
        self._not_before_s = self._parts.clock.monotonic_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
