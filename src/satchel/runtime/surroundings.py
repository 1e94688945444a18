"""What a model is told of its surroundings: the time with every message, the machine and the project with the first."""

from __future__ import annotations

import os
import platform
import pwd
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from satchel.messages import TextBlock

__all__ = ["surroundings_block", "time_block"]

_MOST_REF_BYTES = 4_096
"""Of a file that names a branch; a longer one is none."""


def time_block(now: datetime) -> TextBlock:
    """The local time, as "Thu 2026-11-19 10:04 CET": it stands at the tail of every message of the user, so that a
    session that is resumed weeks later knows today, and no byte before it changes.
    """
    # Not strftime("%a"): the day's name must not depend on the locale.
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[now.weekday()]
    zone = now.tzname() or f"{now:%z}"
    return TextBlock(text=f"[{day} {now:%Y-%m-%d %H:%M} {zone}]", origin="context")


def surroundings_block(cwd: Path, environ: Mapping[str, str]) -> TextBlock:
    """The machine, the shell, the project's git state and the user's name, where they are known."""
    shell = Path(environ.get("SHELL", "")).name
    facts = [
        f"Platform: {platform.system()} {platform.release()} ({platform.machine()})",
        *([f"shell: {shell}"] if shell else []),
        *([f"git: {state}"] if (state := _git_state(cwd)) else []),
        *([f"the user's name: {name}"] if (name := _user_name()) else []),
    ]
    return TextBlock(text=f"[{'; '.join(facts)}]", origin="context")


def _git_state(cwd: Path) -> str:
    """The branch or commit, and what is under way. Files are read and git is not run: a repository's own configuration
    can name programs that git starts.
    """
    for folder in (cwd, *cwd.parents):
        entry = folder / ".git"
        try:
            if entry.is_file():  # a worktree or a submodule
                named = _first_line(entry).removeprefix("gitdir:").strip()
                entry = folder / named
            if not entry.is_dir():
                continue
            head = _first_line(entry / "HEAD")
            operation = next(
                (
                    text
                    for name, text in (
                        ("MERGE_HEAD", "merge"),
                        ("rebase-merge", "rebase"),
                        ("rebase-apply", "rebase"),
                        ("CHERRY_PICK_HEAD", "cherry-pick"),
                        ("BISECT_LOG", "bisect"),
                    )
                    if (entry / name).exists()
                ),
                "",
            )
        except OSError:
            return ""
        branch = head.removeprefix("ref: refs/heads/")
        where = f"branch {branch}" if branch != head else f"detached at {head[:12]}"
        return f"{where}, {operation} in progress" if operation else where
    return ""


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        text = file.read(_MOST_REF_BYTES).decode("utf-8", "replace").partition("\n")[0].strip()
    return "".join(sign for sign in text if sign.isprintable())


def _user_name() -> str:
    """As the system's accounts have it; "" where they have none."""
    try:
        full_name = pwd.getpwuid(os.getuid()).pw_gecos.partition(",")[0].strip()
    except KeyError:
        return ""
    # The administrator's account is named after itself.
    return "" if full_name in ("", "root") else full_name
