"""`satchel hook`: answers one event of another agent's hook. It imports little; see `runtime.other_agents.hook`."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from satchel.clock import SystemClock
from satchel.config.brief import environment
from satchel.runtime.other_agents.hook import answer_hook
from satchel.runtime.other_agents.payloads import MOST_BYTES


def answer() -> int:
    """Read an event from stdin, and print the answer.

    Returns:
        Always 0: another exit code would stop some agents.
    """
    # The process is too short-lived to need garbage collection.
    gc.disable()
    try:
        raw = b"" if sys.stdin is None else sys.stdin.buffer.read(MOST_BYTES + 1)
        text = answer_hook(raw, environ=environment(), cwd=_cwd(), clock=SystemClock())
        if text:
            sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.flush()
    # A boundary: the other agent has closed its pipes, or interrupted this process. It must not notice.
    except BaseException:  # noqa: BLE001
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _cwd() -> Path:
    try:
        return Path.cwd()
    except OSError:
        return Path("/")
