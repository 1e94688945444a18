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
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import anyio

from satchel.errors import SatchelError

T = TypeVar("T")

_MOST_LOST = 64
"""The number of hanging threads at which the pool refuses new work. Each costs about 100 KB of memory and counts
against the process's thread limit; a program with so many has to be restarted anyway."""


class ToolPool:
    """Runs blocking functions on up to `workers` threads, in the order in which they were submitted.

    A function whose call timed out or was cancelled can't be stopped. Its thread counts as lost and is replaced, and
    ends when the function returns. No thread keeps the interpreter from exiting.
    """

    def __init__(self, workers: int = 16) -> None:
        """Create the pool; threads are started when they are needed. There is at least one worker."""
        self._free = anyio.Semaphore(workers, fast_acquire=True)
        self._idle: list[SimpleQueue[Callable[[], None] | None]] = []
        """What each idle thread waits for: its next job, or None to end."""
        self._lost = 0
        self._closed = False

    async def run(self, function: Callable[..., T], /, *args: Any) -> T:
        """Run `function(*args)` in a thread and return its result. Cancelling the wait abandons the function.

        Raises:
            SatchelError: The pool is closed, or too many functions hang in it.
            BaseException: What the function raised.
        """
        if self._closed:
            raise SatchelError("The threads for tools are closed, because the session has ended.")
        if self._lost >= _MOST_LOST:
            raise SatchelError(f"{self._lost} tool functions hang and can't be stopped. Restart the program.")
        async with self._free:
            error, result = await self._run(lambda: function(*args))
        if error is not None:
            # `StopIteration` can't pass through an await: it would end the coroutine silently.
            if isinstance(error, StopIteration | GeneratorExit):
                raise RuntimeError(f"The function raised {type(error).__name__}.") from error
            raise error
        found: T = result
        return found

    async def _run(self, function: Callable[[], Any]) -> tuple[BaseException | None, Any]:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        ended: asyncio.Future[tuple[BaseException | None, Any]] = loop.create_future()
        thread = self._idle.pop() if self._idle else _start_thread()

        def end(error: BaseException | None, result: Any) -> None:
            is_lost = ended.cancelled()
            self._lost -= is_lost
            if not is_lost:
                ended.set_result((error, result))
            if is_lost or self._closed:
                thread.put(None)
            else:
                self._idle.append(thread)

        def work() -> None:
            error, result = None, None
            try:
                # If it was cancelled before it began, nobody waits for it: it must not run.
                result = None if ended.cancelled() else context.run(function)
            # A boundary between threads: the waiting task raises whatever the function raised.
            except BaseException as raised:  # noqa: BLE001
                error = raised
            # If the event loop was closed meanwhile, nobody waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end, error, result)

        thread.put(work)
        try:
            return await ended
        except BaseException:
            ended.cancel()
            self._lost += ended.cancelled()
            raise

    def close(self) -> None:
        """Refuse new work. Idle threads end now, busy ones when their function returns. It may be called twice."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)


def _start_thread() -> SimpleQueue[Callable[[], None] | None]:
    jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job()

    threading.Thread(target=work, name="satchel-tool", daemon=True).start()
    return jobs
