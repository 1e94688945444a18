"""The tools' own threads, for functions that block.

Not the default executor: on two cores that has six threads, so eight calls of a round would take two waves,
and the interpreter waits at its exit for every one that hangs. These threads are daemons, and one that hangs
is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import anyio

from satchel.errors import SatchelError

__all__ = ["ToolPool"]

T = TypeVar("T")

_MOST_LOST = 64
"""Threads that may hang in abandoned functions before the pool takes no more: each costs about 100 KB of
memory and a thread of the process's limit; a program that lost so many has to be restarted anyway."""


class _Job:
    """One function to run, and where its outcome goes."""

    __slots__ = ("context", "done", "error", "finished", "function", "loop", "lost", "result", "started")

    def __init__(self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.function = function
        self.loop = loop
        self.context = contextvars.copy_context()
        self.done = anyio.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        self.started = False
        self.finished = False
        self.lost = False

    def run(self) -> None:
        """In a thread: run it and wake the task that waits, if it still does."""
        try:
            self.result = self.context.run(self.function)
        # A boundary between threads: whatever it is, the task that waits raises it.
        except BaseException as error:  # noqa: BLE001
            self.error = error
        # A loop that closed meanwhile has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.done.set)


class ToolPool:
    """Runs blocking functions on at most `workers` threads at a time, first come, first served.

    A function that is abandoned (its call timed out or was cancelled) can't be stopped: its thread is
    counted as lost and replaced, and leaves when the function returns at last. No thread keeps the
    interpreter from exiting.
    """

    def __init__(self, workers: int = 16) -> None:
        """Start nothing yet: threads come when they are needed.

        Args:
            workers: At least 1.
        """
        self._workers = workers
        self._condition = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._threads = 0
        self._idle = 0
        self._lost = 0
        self._closed = False

    async def run(self, function: Callable[..., T], /, *args: Any) -> T:
        """Run `function(*args)` in a thread and give its result. Cancelling the wait abandons the function.

        Raises:
            SatchelError: The pool is closed, or too many functions hang in it.
            BaseException: Whatever the function raised.
        """
        job = _Job(lambda: function(*args), asyncio.get_running_loop())
        self._submit(job)
        try:
            await job.done.wait()
        except BaseException:
            self._abandon(job)
            raise
        if job.error is not None:
            error = job.error
            # `StopIteration` would end a coroutine silently; it can't be raised through an await.
            if isinstance(error, StopIteration | GeneratorExit):
                raise RuntimeError(f"The function raised {type(error).__name__}.") from error
            raise error
        result: T = job.result
        return result

    def close(self) -> None:
        """Take no more; idle threads leave, busy ones when their function returns. It may be called twice."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _submit(self, job: _Job) -> None:
        with self._condition:
            if self._closed:
                raise SatchelError("The tools' threads have been closed: the session is over.")
            if self._lost >= _MOST_LOST:
                raise SatchelError(
                    f"{self._lost} functions of tools hang and can't be stopped. Restart the program."
                )
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._condition.notify()
            elif self._threads < self._workers:
                self._start_thread()

    def _abandon(self, job: _Job) -> None:
        with self._condition:
            if not job.started:
                # Nobody waits for it any more: it must not run at all.
                self._jobs.remove(job)
            elif not job.finished:
                job.lost = True
                self._lost += 1
                self._threads -= 1
                if self._jobs:
                    self._start_thread()

    def _start_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name="satchel-tool", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._condition:
                while not self._jobs:
                    if self._closed:
                        self._threads -= 1
                        return
                    self._idle += 1
                    self._condition.wait()
                    self._idle -= 1
                job = self._jobs.popleft()
                job.started = True
            job.run()
            with self._condition:
                job.finished = True
                if job.lost:
                    # It was replaced when it was given up: it is one too many now.
                    self._lost -= 1
                    return
