"""Background tasks of an open Satchel. They belong to one task group, and a failure ends only the task itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVarTuple

from anyio.abc import TaskGroup

_log = logging.getLogger(__name__)

Ts = TypeVarTuple("Ts")


class Background:
    """Starts tasks that run until they finish or Satchel is closed."""

    def __init__(self, group: TaskGroup, *, report: Callable[[str], None]) -> None:
        """`group` owns the tasks; `report` tells the user that one of them failed."""
        self._group = group
        self._report = report

    def start(self, function: Callable[[*Ts], Coroutine[Any, Any, object]], *args: *Ts) -> None:
        """Run `function(*args)` in the background. An exception is logged and reported, and ends no other task."""
        self._group.start_soon(self._run, function, args)

    async def _run(self, function: Callable[..., Coroutine[Any, Any, object]], args: tuple[Any, ...]) -> None:
        try:
            await function(*args)
        # A boundary: a task group would cancel all its tasks, and the others are somebody else's conversations.
        except Exception as error:  # noqa: BLE001
            name = getattr(function, "__qualname__", repr(function))
            _log.exception("The background task %s failed.", name)
            self._report(f"A background task failed ({name}): {type(error).__name__}: {error}")
