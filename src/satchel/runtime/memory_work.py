"""Leaves memory's work (distilling, embedding) to a process of its own, and knows whether that is possible.

The process is `satchel memory work`; see `memory_worker`. There is one for a home, which holds a lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from satchel.config.home import ensure_home, replace_file
from satchel.errors import SandboxError, StorageUnwritable
from satchel.sandbox.detached import is_starting, is_working, start_working

if TYPE_CHECKING:
    from satchel.config import Settings

LOCK: Final = "memory-work"
"""The name of the worker's lock."""

WorkState: TypeAlias = Literal["off", "running", "starting", "failed", "idle"]


def can_leave_work(settings: Settings) -> bool:
    """Whether a process of its own does memory's work: the user wants it, and it could be started the last time."""
    return settings.memory.worker == "auto" and settings.memory.enabled and not why_not_left(settings.home)


def leave_work(settings: Settings) -> bool:
    """Start the process unless it runs. Where that is impossible, this is noted: the next session does the work itself,
    and tries again at its end.

    Returns:
        Whether it runs.
    """
    return leave_work_of(settings.home, {**settings.environ, **settings.secrets})


def leave_work_of(home: Path, environ: Mapping[str, str]) -> bool:
    """The same for a program that has not read the settings; `environ` is its whole environment."""
    note = _note(home)
    try:
        start_working(home, LOCK, environ, ("memory", "work"), log="memory-work.log", nicely=True)
    except SandboxError as error:
        with suppress(StorageUnwritable):
            ensure_home(note.parent)
            replace_file(note, f"{error}\n")
        return False
    with suppress(OSError):
        note.unlink(missing_ok=True)
    return True


def why_not_left(home: Path) -> str:
    """Why the process could not be started the last time, or ""."""
    try:
        return _note(home).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def work_state(settings: Settings) -> WorkState:
    """What the process is doing now."""
    if settings.memory.worker == "off":
        return "off"
    if is_working(settings.home, LOCK):
        return "running"
    if is_starting(settings.home, LOCK):
        return "starting"
    return "failed" if why_not_left(settings.home) else "idle"


def _note(home: Path) -> Path:
    return home / "locks" / f"{LOCK}.failed"
