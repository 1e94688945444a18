"""Writes the traceback of an internal error to a log file, for a bug report."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from pathlib import Path

from satchel.clock import SystemClock
from satchel.config import ensure_home, load, process_environ
from satchel.errors import SatchelError
from satchel.version import __version__


def write_down(error: BaseException, words: Sequence[str]) -> str:
    """Write the traceback to a log in SATCHEL_HOME.

    Returns:
        What to tell the user: the log's path, or the traceback itself where it could not be written.
    """
    try:
        home = load(process_environ(), cwd=Path.cwd()).home
        folder = ensure_home(home) / "logs"
        folder.mkdir(mode=0o700, exist_ok=True)
        now = SystemClock().now()
        path = folder / f"{now:%Y-%m-%d}_errors.log"
        # The arguments are left out, because they may contain private text.
        command = " ".join(word for word in words[:2] if word.isidentifier())
        entry = f"{now.isoformat()} satchel {__version__} {command}\n{''.join(traceback.format_exception(error))}\n"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(entry)
    except (SatchelError, OSError) as failed:
        return f"It could not be logged either ({failed}):\n{''.join(traceback.format_exception(error))}"
    return f"The details are in {path}. Please include them in a bug report."
