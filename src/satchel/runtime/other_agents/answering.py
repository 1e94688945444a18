"""Finds the server that answers hooks of other agents: the home's own, or one that the first hook starts.

That one is `satchel memory answer`. It takes two seconds to start and then waits for the hooks of all conversations, so
that memory is loaded once and not for each message.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from satchel.clock import SystemClock
from satchel.config.locks import FileLock
from satchel.runtime.serving import HOOKS_FILE, Serving, serving
from satchel.version import __version__

_LOOK_S: Final = 0.03
_FAILED_S: Final = 600.0
"""After a start that failed, no hook waits for another one for so long."""


def answering_server(
    home: Path, environ: Mapping[str, str], *, may_start: bool, left_s: Callable[[], float]
) -> Serving | None:
    """The server to ask; None if there is none, or if one does not start in time. `left_s` are the seconds that are
    left for its start.

    Raises:
        SandboxError, OSError: It could not be started.
    """
    if found := serving(home):
        return found
    found = serving(home, file=HOOKS_FILE)
    failed = home / "agents" / "serve.failed"
    if (found is not None and found.version == __version__) or not may_start or _is_recent(failed):
        return found
    with suppress(OSError):
        failed.parent.mkdir(mode=0o700, exist_ok=True)
    # One hook starts it, and those of other conversations wait with it.
    lock = FileLock.take(home / "agents" / "serve.starting")
    started = False
    try:
        if lock is not None:
            _start(home, environ, found, left_s)
        while not started and left_s() > 0:
            time.sleep(_LOOK_S)
            found = serving(home, file=HOOKS_FILE)
            started = found is not None and found.version == __version__
    finally:
        if lock is not None:
            lock.release()
        if not started:
            with suppress(OSError):
                failed.touch(mode=0o600)
    return found if started else None


def _start(home: Path, environ: Mapping[str, str], old: Serving | None, left_s: Callable[[], float]) -> None:
    # Imported only here: loading `subprocess` takes as long as the rest of a hook.
    from satchel.sandbox.detached import start_satchel  # noqa: PLC0415

    if old is not None:
        # It was started before an upgrade, and can't read what the new version writes.
        os.kill(old.pid, signal.SIGTERM)
        while left_s() > 0 and serving(home, file=HOOKS_FILE) is not None:
            time.sleep(_LOOK_S)
    start_satchel(home, environ, ("memory", "answer"), log="memory-answer.log")


def _is_recent(failed: Path) -> bool:
    try:
        return 0 <= SystemClock().now().timestamp() - failed.stat().st_mtime < _FAILED_S
    except OSError:
        return False
