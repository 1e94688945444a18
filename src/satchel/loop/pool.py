"""A pool of threads for the blocking functions of tools.

The default executor is not used: on two cores it has six threads, so the eight calls of a round would run in two
waves, and the interpreter waits at exit for every thread that hangs. The threads of this pool are daemons, and one that
hangs is replaced.
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
"""The number of hanging threads at which the pool refuses new work. Each costs about 100 KB of memory and counts
against the process's thread limit; a program with so many has to be restarted anyway."""


class _Job:
    """One function to run, and its outcome."""

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
        """Run the function in the current thread, and wake the task that waits for it."""
        try:
            self.result = self.context.run(self.function)
        # A boundary between threads: the waiting task raises whatever the function raised.
        except BaseException as error:  # noqa: BLE001
            self.error = error
        # If the event loop was closed meanwhile, nobody waits.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.done.set)


class ToolPool:
    """Runs blocking functions on up to `workers` threads, in the order in which they were submitted.

    A function whose call timed out or was cancelled can't be stopped. Its thread counts as lost and is replaced, and
    ends when the function returns. No thread keeps the interpreter from exiting.
    """

    def __init__(self, workers: int = 16) -> None:
        """Create the pool; threads are started when they are needed.

        Args:
            workers: The number of threads; at least 1.
        """
        self._workers = workers
        self._condition = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._threads = 0
        self._idle = 0
        self._lost = 0
        self._closed = False

    async def run(self, function: Callable[..., T], /, *args: Any) -> T:
        """Run `function(*args)` in a thread and return its result. Cancelling the wait abandons the function.

        Raises:
            SatchelError: The pool is closed, or too many functions hang in it.
            BaseException: What the function raised.
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
            # `StopIteration` can't pass through an await: it would end the coroutine silently.
            if isinstance(error, StopIteration | GeneratorExit):
                raise RuntimeError(f"The function raised {type(error).__name__}.") from error
            raise error
        result: T = job.result
        return result

    def close(self) -> None:
        """Refuse new work. Idle threads end now, busy ones when their function returns. It may be called twice."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _submit(self, job: _Job) -> None:
        with self._condition:
            if self._closed:
                raise SatchelError("The threads for tools are closed, because the session has ended.")
            if self._lost >= _MOST_LOST:
                raise SatchelError(
                    f"{self._lost} tool functions hang and can't be stopped. Restart the program."
                )
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._condition.notify()
            elif self._threads < self._workers:
                self._start_thread()

    def _abandon(self, job: _Job) -> None:
        with self._condition:
            if not job.started:
                # It has not started, and nobody waits for it: it must not run.
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
                    # A new thread took its place when it was abandoned.
                    self._lost -= 1
                    return
