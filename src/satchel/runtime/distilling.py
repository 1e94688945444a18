"""Extracts facts in the background while Satchel is open, as settings and budget allow."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio

from satchel.clock import local_day
from satchel.errors import BudgetExceeded, SatchelError, UsageError
from satchel.memory.distill.records import DistillReport, WindowResult
from satchel.models import ChatModel
from satchel.runtime.home import Home
from satchel.runtime.parts import Parts

_log = logging.getLogger(__name__)

_WINDOWS_A_RUN = 10
"""The maximum in the background for each turn, so that thousands of imported messages are read over time. `memory
distill` reads them at once."""
_LAST_WINDOW_S = 3.0
"""How long closing waits for the current window, because the answers of the model are already paid for."""
_LOOK_S = 1.0
_LONGEST_LOOK_S = 60.0
"""The shortest and the longest time after which a silent conversation is noticed."""
_LONGEST_PAUSE_S = 3_600.0
"""The limit of the pause after a failure, which starts at a minute and doubles each time."""


class Distilling:
    """Extracts facts from what was said in the sessions of an open Satchel.

    Attributes:
        has_news: Whether something was said since Satchel was opened.
        on_news: Called when something was said.
        name: Called with a session and what its reader called it.
    """

    def __init__(self, parts: Parts, home: Home) -> None:
        """Nothing runs before `start`."""
        self._parts = parts
        self._home = home
        self.has_news = False
        self.on_news: list[Callable[[], None]] = []
        self.name: Callable[[str, str], Awaitable[None]] | None = None
        self._wake = anyio.Event()
        self._scope = anyio.CancelScope()
        self._idle = anyio.Event()
        self._idle.set()
        self._not_before_s = 0.0
        self._pause_s = 60.0
        self._windows_left = _WINDOWS_A_RUN

    def start(self) -> None:
        """Check now, because messages may be left from last time, and after each turn."""
        if self.is_on and self._home.memory is not None:
            self._parts.background.start(self._loop)

    @property
    def is_on(self) -> bool:
        """Whether what is said is read in the background."""
        settings = self._parts.settings
        is_on = settings.background.models == settings.memory.distill == "auto"
        return is_on and settings.keeps_memory

    def notify(self) -> None:
        """A turn was captured: check whether distilling is due."""
        self.has_news = True
        self.allow_more()
        self._wake.set()
        for tell in self.on_news:
            tell()

    def allow_more(self) -> None:
        """Something was said: `read_closed` may read some more windows."""
        self._windows_left = _WINDOWS_A_RUN

    async def close(self) -> None:
        """Give the current window a few seconds to finish, then stop."""
        with anyio.move_on_after(_LAST_WINDOW_S):
            await self._idle.wait()
        self._scope.cancel()

    async def run(
        self,
        *,
        most_windows: int | None = None,
        closed: tuple[int, float] | None = None,
        is_asked: bool = True,
        progress: Callable[[WindowResult], None] = lambda _: None,
    ) -> DistillReport:
        """Distil what is pending now, in the user's own memory, then in those of projects; see `Memory.distill`. Where
        the user did not ask for it (`is_asked`), the budget of the background holds.

        Raises:
            UsageError: Memory is off, or there is no language model.
            ConfigError, ModelError: The models are unavailable.
            StorageError: The store failed.
        """
        if self._home.memory is None:
            raise UsageError("Memory is off or could not be opened, so nothing can be distilled.")
        extractor, small = await self._models()
        name = self.name if self._parts.settings.background.titles == "auto" else None

        async def tell(window: WindowResult) -> None:
            progress(window)
            if name is not None:
                for session, title in window.titles.items():
                    await name(session, title)

        done = DistillReport()
        for memory in await self._home.memories():
            report = await memory.distill(
                model=extractor,
                small_model=small,
                most_windows=None if most_windows is None else most_windows - len(done.windows),
                closed=closed,
                may_spend=self.may_spend if is_asked else self.may_spend_unasked,
                page_tokens=self._parts.settings.memory.page_tokens,
                progress=tell,
            )
            done = replace(
                report,
                windows=(*done.windows, *report.windows),
                usage=done.usage + report.usage,
                pending=done.pending + report.pending,
            )
            if report.stopped or len(done.windows) == most_windows:
                break
        return done

    async def _models(self) -> tuple[ChatModel, ChatModel]:
        extractor, small = await self._parts.models.extractor(), await self._parts.models.small()
        return extractor, extractor if small.provider == "none" else small

    async def read_closed(self, *, silent_s: float | None = None) -> DistillReport | None:
        """Read one window of what is due, if the settings want that: of a day that is over, of a conversation that is
        long, or of all that waits, if that is much. What had a message within `silent_s` is left alone; None, and what
        is longer, is `memory.distill_after_s`.

        Returns:
            What was read; None if nothing is due, if the last failure was too recent, or if many windows were read
            since something was said.
        """
        settings, memory = self._parts.settings.memory, self._home.memory
        if memory is None or not self.is_on or self._windows_left <= 0:
            return None
        if self._parts.clock.monotonic_s() < self._not_before_s:
            return None
        after_s = settings.distill_after_s
        closed = (settings.distill_every, after_s if silent_s is None else min(silent_s, after_s))
        due = [
            await one.distill_is_due(every=closed[0], after_s=closed[1])
            for one in await self._home.memories()
        ]
        if not any(due):
            return None
        if (await self._models())[0].provider == "none":
            return None  # Memory works with episodes alone; `doctor` and `memory distill --status` say so.
        try:
            # One window per call, so that the process can stop between two of them.
            report = await self.run(most_windows=1, closed=closed, is_asked=False)
        except SatchelError as error:
            self._later(str(error))
            raise
        self._windows_left -= 1
        if any(window.outcome == "failed" for window in report.windows):
            self._later(report.windows[-1].error)
        elif report.windows:
            self._pause_s = 60.0
        else:
            self._windows_left = 0  # Another process reads it, or the budget is spent.
        return report

    async def may_spend_unasked(self) -> None:
        """Refuse what nobody asked for where the budget of the background, or that of the day, is spent.

        Raises:
            BudgetExceeded: It is.
        """
        (await self._home.background_day(local_day(self._parts.clock.now()))).check()
        await self.may_spend()

    async def may_spend(self) -> None:
        """The same for what somebody asked for: the budget of the day alone."""
        limit = self._parts.settings.budget.day_usd
        if limit is None:
            return
        spent = await self._home.spent_on(local_day(self._parts.clock.now()))
        if spent >= limit:
            raise BudgetExceeded(
                f"${spent:.4f} was spent today, and the limit is ${limit:g} (budget.day_usd). "
                "It continues tomorrow."
            )

    async def _loop(self) -> None:
        every_s = min(max(self._parts.settings.memory.distill_after_s, _LOOK_S), _LONGEST_LOOK_S)
        with self._scope:
            while True:
                self._wake = anyio.Event()
                self._idle = anyio.Event()
                try:
                    while await self.read_closed():
                        pass
                except SatchelError:
                    pass  # It waits for the next time, and `doctor` reports it.
                except Exception:  # noqa: BLE001 - a boundary: a defect here must not disturb the user
                    _log.exception("Distilling in the background failed.")
                    self._later("a defect, see the log")
                finally:
                    self._idle.set()
                # A conversation is due after a silence too.
                with anyio.move_on_after(every_s):
                    await self._wake.wait()

    def _later(self, reason: str) -> None:
        # Only logged: `doctor` and `memory distill --status` report it, and it matters to no turn.
        _log.info("Distilling failed and is tried again in %g s: %s", self._pause_s, reason)
        self._not_before_s = self._parts.clock.monotonic_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
