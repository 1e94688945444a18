"""Work in the background of an open Satchel: owned by one task group, and unable to end the program."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVarTuple

from anyio.abc import TaskGroup

__all__ = ["Background"]

_log = logging.getLogger(__name__)

Ts = TypeVarTuple("Ts")


class Background:
    """Starts tasks that run until they end or Satchel closes."""

    def __init__(self, group: TaskGroup, *, report: Callable[[str], None]) -> None:
        """Take the group that owns the tasks, and what tells the user that one of them failed."""
        self._group = group
        self._report = report

    def start(self, function: Callable[[*Ts], Coroutine[Any, Any, object]], *args: *Ts) -> None:
        """Run something in the background. An exception ends this task alone; it is logged and reported."""
        self._group.start_soon(self._run, function, args)

    async def _run(self, function: Callable[..., Coroutine[Any, Any, object]], args: tuple[Any, ...]) -> None:
        try:
            await function(*args)
        # A boundary: one failed task must not cancel its siblings, which are other people's conversations.
        except Exception as error:  # noqa: BLE001
            name = getattr(function, "__qualname__", repr(function))
            _log.exception("The background task %s failed.", name)
            self._report(f"A background task failed ({name}): {type(error).__name__}: {error}")
