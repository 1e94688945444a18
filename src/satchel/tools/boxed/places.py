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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["PROTECTED", "PROTECTED_IN_GIT", "Unborn", "git_around", "protected_in", "real_inside"]

PROTECTED: Final = (
    # Satchel's own, and other agents': what they may do, which servers they start, what they are told
    ".satchel", ".claude", ".codex", ".agents", ".cursor", ".gemini", ".mcp.json",
    # shells and what they load by themselves
    ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zprofile", ".zshenv",
    ".zlogin", ".mise.toml", "mise.toml",
    # editors' tasks and settings
    ".vscode", ".idea", ".exrc", ".nvimrc", ".nvim.lua", ".vimrc", ".dir-locals.el",
    # git, what its hooks start, and ripgrep. HEAD makes a folder a repository if its .git is damaged
    ".gitconfig", ".husky", ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", "HEAD", ".ripgreprc",
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


@dataclass(frozen=True, slots=True)
class _Found:
    """What is at a protected path: an entry `name` of the open folder `folder`, as a path `path`."""

    folder: int
    name: str
    path: Path
    state: os.stat_result

    @property
    def identity(self) -> tuple[int, ...]:
        """Equal for the same file. The number of a removed link is often given to the next one, but not its time."""
        made = (self.state.st_ctime_ns,) if stat.S_ISLNK(self.state.st_mode) else ()
        return (self.state.st_dev, self.state.st_ino, *made)


@dataclass(slots=True)
class Unborn:
    """Protected paths that did not exist before a command, and those that did, by identity.

    Attributes:
        missing: They must not exist afterwards.
        known: Identities of those that exist; afterwards they must be the same.
        tops: Folders that no command can replace: the workspace, and the repository around it. Below them, links are
            never followed, because a command may have put them there.
    """

    tops: tuple[Path, ...]
    missing: tuple[Path, ...] = ()
    known: Mapping[Path, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def before(cls, paths: Sequence[Path], tops: Sequence[Path]) -> Unborn:
        """Look at the protected paths before a command."""
        missing, known = [], {}
        for path in paths:
            with _found(path, tops) as found:
                if found is None:
                    missing.append(path)
                else:
                    known[path] = found.identity
        return cls(tops=tuple(tops), missing=tuple(missing), known=known)

    def moved_aside(self) -> tuple[tuple[Path, Path], ...]:
        """Move aside what a command has made or put in the place of something else.

        Returns:
            Each path, and where it is now.
        """
        moved = []
        for path in (*self.missing, *self.known):
            with _found(path, self.tops) as found:
                if found is not None and self.known.get(path) != found.identity:
                    to = _move_aside(found)
                    if to is not None:
                        moved.append((found.path, to))
        return tuple(moved)


@contextlib.contextmanager
def _found(path: Path, tops: Sequence[Path]) -> Iterator[_Found | None]:
    """What is at a path; if a folder above it is a link, that link."""
    top = max((top for top in tops if path.is_relative_to(top)), key=lambda top: len(top.parts), default=None)
    if top is None or top == path:
        yield None
        return
    with contextlib.ExitStack() as opened:
        yield _walk(top, path.relative_to(top).parts, opened)


def _walk(top: Path, parts: Sequence[str], opened: contextlib.ExitStack) -> _Found | None:
    place = top
    try:
        folder = os.open(top, os.O_PATH | os.O_DIRECTORY)
        opened.callback(os.close, folder)
        for number, name in enumerate(parts):
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            place /= name
            if number == len(parts) - 1 or stat.S_ISLNK(state.st_mode):
                return _Found(folder, name, place, state)
            folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            opened.callback(os.close, folder)
    except OSError:
        pass
    return None


def _move_aside(found: _Found) -> Path | None:
    name = _free_name(found)
    try:
        os.rename(found.name, name, src_dir_fd=found.folder, dst_dir_fd=found.folder)
    except OSError:
        return None
    if stat.S_ISREG(found.state.st_mode):
        with contextlib.suppress(OSError):
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=found.folder)
            try:
                os.fchmod(file, stat.S_IMODE(found.state.st_mode) & 0o666)
            finally:
                os.close(file)
    return found.path.with_name(name)


def _free_name(found: _Found) -> str:
    first = f"{found.name}.from-sandbox"
    for name in (first, *(f"{first}-{number}" for number in range(2, 1_000))):
        try:
            os.stat(name, dir_fd=found.folder, follow_symlinks=False)
        except OSError:
            return name
    return first


def real_inside(path: Path, tops: Sequence[Path]) -> Path | None:
    """Where a protected path really is, if that is inside the folders: what a link leads to elsewhere stays hidden."""
    real = Path(os.path.realpath(path))
    if real in tops or not real.exists() or not any(real.is_relative_to(top) for top in tops):
        return None
    return real
