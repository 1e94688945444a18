"""Processes that are killed at a moment of one's choice, again and again.

They are forked from one that has imported everything: starting Python anew for each round would take most of a test.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio

from tests.forking import Program, import_rooms

__all__ = ["Killing", "Line", "serve", "tell"]

Line = list[Any]


def tell(*line: object) -> None:
    """In the process that may be killed: one line for the test, in one write."""
    os.write(1, json.dumps(line).encode() + b"\n")


def serve(
    work: Callable[..., Awaitable[None]], *, warm_up: Callable[[Path], Awaitable[None]] | None = None
) -> None:
    """The main program of the process that is forked: each line of stdin holds the arguments of one round of `work`.

    Args:
        work: What is killed.
        warm_up: Does the same once, in an empty folder and before the forks, so that they find what is read and compiled
            when it is first used. What it tells is lost.
    """
    import_rooms("builder", "capabilities", "loop", "memory", "sessions", "storage")
    if warm_up is not None:
        with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
            stdout = os.dup(1)
            os.dup2(nowhere.fileno(), 1)
            anyio.run(warm_up, Path(folder))
            os.dup2(stdout, 1)
            os.close(stdout)
        # The threads of a loop that has ended are told to end, and nobody waits for them.
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(timeout=60)
    gc.freeze()
    for text in sys.stdin:
        arguments = json.loads(text)
        # Threads are not forked with the rest; whoever waits for one of them in the copy waits for ever.
        assert threading.active_count() == 1
        child = os.fork()
        if child == 0:
            anyio.run(partial(work, **arguments))
            os._exit(0)
        tell("pid", child)
        _, status = os.waitpid(child, 0)
        tell("gone", os.waitstatus_to_exitcode(status))


class Killing:
    """A module whose main program is `serve`, and what its forked processes tell until they are killed.

    Attributes:
        killed: How many were killed before they had ended by themselves.
    """

    def __init__(self, module: str) -> None:
        """Start it."""
        self.killed = 0
        self._server = Program("-c", f"import runpy; runpy.run_module({module!r}, run_name='__main__')")

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._server.__exit__()

    def rounds(self, kills: int, met: Callable[[], bool] = lambda: True) -> Iterator[int]:
        """The numbers of rounds, from 0, until so many processes were killed in the middle, and what is looked for was
        `met` among them.

        How many rounds that takes depends on the machine: the later this process wakes up, the more of them have ended.
        """
        for number in range(20 * kills):
            if self.killed >= kills and met():
                return
            yield number
        raise AssertionError(f"of {20 * kills} processes {self.killed} could be killed: {met()}")

    def round(
        self, *, after: int | Callable[[list[Line]], bool], later_s: float = 0.0, **arguments: object
    ) -> list[Line]:
        """Run one round, and kill it so long after so many lines of it have come, or those for which `after` is true.

        Returns:
            All that it told; what it told last may have come after the decision to kill it.
        """
        self._server.stdin.write(json.dumps(arguments) + "\n")
        self._server.stdin.flush()
        lines: list[Line] = []
        pid = 0
        for text in self._server.stdout:
            match json.loads(text):
                case ["pid", int(pid)]:
                    pass
                case ["gone", int(code)]:
                    assert code in (0, -signal.SIGKILL), f"it failed after {lines}"
                    return lines
                case line:
                    lines.append(line)
            if pid and (after(lines) if callable(after) else len(lines) == after):
                time.sleep(later_s)
                with suppress(ProcessLookupError):  # it may just have ended
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1
        raise AssertionError("the process that is forked has ended")
