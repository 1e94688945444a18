"""Finds ripgrep, and the options with which it sees the same files as `tree.walk`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

SAME_FILES = (
    "--no-config",
    "--hidden",
    "--no-require-git",
    "--no-ignore-global",
    "--no-ignore-exclude",
    "--no-ignore-dot",
    "--glob=!.git",
    "--color=never",
    "--null",
)
"""Apply only `.gitignore` files, also outside a repository; include hidden files, but not `.git`."""


def find_ripgrep(environ: Mapping[str, str]) -> str | None:
    """The path of `rg` on the PATH of `environ`, or None."""
    return shutil.which("rg", path=environ.get("PATH", ""))
