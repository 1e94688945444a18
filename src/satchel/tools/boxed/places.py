"""Which files of a workspace boxed programs may not change: those that start programs outside of the box.

A box is worth little if what it writes is run outside of it later: a git hook, a shell's start-up file, a task of an
editor, the settings of an agent. Such files are read-only in the box. One that does not exist can't be mounted
read-only without leaving an empty file behind, so it is looked for after each command, and moved aside.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["PROTECTED", "PROTECTED_IN_GIT", "Unborn", "git_around", "protected_in"]

PROTECTED: Final = (
    # Satchel's own, and other agents': what they may do, which servers they start, what they are told
    ".satchel", ".claude", ".codex", ".agents", ".cursor", ".gemini", ".mcp.json",
    # shells and what they load by themselves
    ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zprofile", ".zshenv",
    ".zlogin", ".mise.toml", "mise.toml",
    # editors' tasks and settings
    ".vscode", ".idea", ".exrc", ".nvimrc", ".nvim.lua", ".vimrc", ".dir-locals.el",
    # git and ripgrep
    ".gitconfig", ".ripgreprc",
)  # fmt: skip
"""Names at the top of a workspace."""
PROTECTED_IN_GIT: Final = (
    "config",
    "config.worktree",
    "hooks",
    "commondir",
    "gitdir",
    "info/attributes",
    "info/grafts",
)
"""In a git folder: what names programs, and what leads git to other settings."""
_HOOKS_PATH: Final = re.compile(r"^\s*hookspath\s*=\s*(?P<path>[^\n#;]+)", re.IGNORECASE | re.MULTILINE)


def git_around(workspace: Path, *, stop: Path) -> Path | None:
    """The git folder of the repository that holds a workspace below its top, so that commits work there too.

    Args:
        workspace: A real path.
        stop: Nothing is looked for in this folder and above: the user's home.
    """
    if os.path.lexists(workspace / ".git"):
        return None
    for folder in workspace.parents:
        if folder == stop or stop.is_relative_to(folder):
            return None
        git = folder / ".git"
        if git.is_dir() and not git.is_symlink() and (git / "HEAD").is_file():
            return git
    return None


def protected_in(workspace: Path, around: Path | None) -> tuple[Path, ...]:
    """The paths that boxed programs may not change, whether they exist or not.

    Args:
        workspace: A real path.
        around: See `git_around`. Repositories inside the workspace are protected by the sandbox itself; here only what
            does not exist yet in the workspace's own is looked for.
    """
    git = around or workspace / ".git"
    in_git = [git / name for name in PROTECTED_IN_GIT] if git.is_dir() else []
    hooks = _hooks_path(git)
    return (*(workspace / name for name in PROTECTED), *in_git, *([hooks] if hooks is not None else ()))


def _hooks_path(git: Path) -> Path | None:
    """The folder of hooks that a repository's settings name (`core.hooksPath`), if it is in the repository."""
    try:
        match = _HOOKS_PATH.search((git / "config").read_text(encoding="utf-8", errors="replace")[:65_536])
    except OSError:
        return None
    if match is None:
        return None
    folder = Path(os.path.realpath(git.parent / match["path"].strip().strip('"')))
    return folder if folder.is_relative_to(git.parent) and folder != git.parent else None


@dataclass(slots=True)
class Unborn:
    """Protected paths that did not exist before a command, and those that did, by identity.

    Attributes:
        missing: They must not exist afterwards.
        known: Device and inode of those that exist; afterwards they must be the same.
    """

    missing: tuple[Path, ...] = ()
    known: Mapping[Path, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def before(cls, paths: Sequence[Path]) -> Unborn:
        """Look at the protected paths before a command."""
        missing, known = [], {}
        for path in paths:
            try:
                found = path.lstat()
            except OSError:
                missing.append(path)
            else:
                known[path] = (found.st_dev, found.st_ino)
        return cls(missing=tuple(missing), known=known)

    def moved_aside(self) -> tuple[tuple[Path, Path], ...]:
        """Move aside what a command has made or put in the place of something else.

        Returns:
            Each path, and where it is now.
        """
        moved = []
        for path in (*self.missing, *self.known):
            try:
                found = path.lstat()
            except OSError:
                continue
            if self.known.get(path) == (found.st_dev, found.st_ino):
                continue
            to = _free_name(path)
            try:
                path.rename(to)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                with contextlib.suppress(OSError):
                    to.chmod(stat.S_IMODE(found.st_mode) & ~0o111)
            moved.append((path, to))
        return tuple(moved)


def _free_name(path: Path) -> Path:
    for number in range(1, 1_000):
        to = path.with_name(f"{path.name}.from-sandbox{'' if number == 1 else f'-{number}'}")
        if not os.path.lexists(to):
            return to
    return path.with_name(f"{path.name}.from-sandbox")
