"""What a model is told about its surroundings: the time with each message, the machine and project with the first."""

from __future__ import annotations

import os
import platform
import pwd
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from satchel.messages import TextBlock

_MOST_REF_BYTES = 4_096
"""Read at most this much of a file in `.git` that names a branch or folder; real ones have less than 300 bytes."""


def time_block(now: datetime) -> TextBlock:
    """The local time, as in "[Thu 2026-11-19 10:04 CET]".

    It is the last block of each message of the user, so that a session that is resumed weeks later knows the date, and
    the bytes before it, which the provider has cached, don't change.
    """
    # Not strftime("%a"), because the name of the day must not depend on the locale.
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[now.weekday()]
    zone = now.tzname() or f"{now:%z}"
    return TextBlock(text=f"[{day} {now:%Y-%m-%d %H:%M} {zone}]", origin="context")


def surroundings_block(cwd: Path, environ: Mapping[str, str]) -> TextBlock:
    """The machine, and if known: the shell, the project's git state, and the user's name."""
    shell = Path(environ.get("SHELL", "")).name
    facts = [
        f"Platform: {platform.system()} {platform.release()} ({platform.machine()})",
        *([f"shell: {shell}"] if shell else []),
        *([f"git: {state}"] if (state := _git_state(cwd)) else []),
        *([f"the user's name: {name}"] if (name := _user_name()) else []),
    ]
    return TextBlock(text=f"[{'; '.join(facts)}]", origin="context")


def _git_state(cwd: Path) -> str:
    """The branch or commit, and an operation that is in progress; "" outside of a repository.

    Reads the files instead of running git, because a repository's own configuration can name programs that git starts.
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
    """The full name in the system's list of accounts; "" if there is none."""
    try:
        full_name = pwd.getpwuid(os.getuid()).pw_gecos.partition(",")[0].strip()
    except KeyError:
        return ""
    # Most systems call the administrator's account "root", which is nobody's name.
    return "" if full_name in ("", "root") else full_name
