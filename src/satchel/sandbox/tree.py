"""Looks at the folders of a workspace: where git folders are, and where settings are that programs act upon.

All folders are looked at before and after each command. One that has not changed since the last time isn't listed
again: the time of a folder's last change is the kernel's, and no command can set it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from satchel.sandbox.selfrun import GIT_SETTINGS, kind_of

__all__ = ["Setting", "Stamp", "Tree", "look"]

Stamp: TypeAlias = tuple[int, int, int]
"""Device, inode and the time of the last change, in ns: no other file has had it, and no change keeps it."""
_Git: TypeAlias = Literal["common", "linked", ""]
_FRESH_NS: int = 100_000_000
"""Two changes within a tick of the kernel's clock (10 ms at most) have one time: what just changed is listed again."""
_MOST_KNOWN = 8
"""Workspaces whose folders are remembered."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A file or link that programs act upon.

    Attributes:
        key: Its path from the folder around the outermost folder of settings: ".vscode/tasks.json", "hooks/pre-push".
        stamp: See `Stamp`.
        git: It is a git folder's own.
    """

    key: str
    stamp: Stamp
    git: bool


@dataclass(slots=True)
class Tree:
    """What there is, all as absolute paths.

    Attributes:
        common: Folders from which git may take settings and hooks: called `.git`, or with `objects` and `refs` in them.
            HEAD isn't needed: a folder with a `commondir` may have it.
        linked: Folders with a file `commondir`, which leads git to one of these.
        files: Files and links `.git`, which lead git to a folder.
        settings: By path.
    """

    common: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    settings: dict[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Listing:
    """A folder, with the paths of those in it.

    `within` is the key of a folder of settings, "" for any other, None where the rule doesn't hold.
    """

    stamp: Stamp | None
    within: str | None
    git: _Git = ""
    has_file: bool = False
    folders: tuple[tuple[str, str | None], ...] = ()
    settings: tuple[str, ...] = ()


_KNOWN: dict[str, Mapping[str, _Listing]] = {}


def look(top: str) -> Tree:
    """Look at a folder and everything below it. Links are not followed."""
    known = _KNOWN.pop(top, {})
    seen: dict[str, _Listing] = {}
    tree = Tree()
    waiting: list[tuple[str, str | None]] = [(top, "")]
    lstat = os.lstat
    while waiting:
        folder, within = waiting.pop()
        listing = known.get(folder)
        try:
            state = lstat(folder)
            if listing is None or listing.stamp != _stamp(state) or listing.within != within:
                listing = _list(folder, within, state)
        except OSError:
            continue
        seen[folder] = listing
        waiting += listing.folders
        if listing.git or listing.has_file or listing.settings:
            _add(tree, folder, listing)
    _KNOWN[top] = seen
    while len(_KNOWN) > _MOST_KNOWN:
        _KNOWN.pop(next(iter(_KNOWN)), None)
    return tree


def _stamp(state: os.stat_result) -> Stamp:
    return (state.st_dev, state.st_ino, state.st_ctime_ns)


def _add(tree: Tree, folder: str, listing: _Listing) -> None:
    if listing.git:
        (tree.common if listing.git == "common" else tree.linked).append(folder)
    if listing.has_file:
        tree.files.append(f"{folder}/.git")
    for name in listing.settings:
        path = f"{folder}/{name}"
        key = f"{listing.within}/{name}" if listing.within else name
        with contextlib.suppress(OSError):
            tree.settings[path] = Setting(
                key, _stamp(os.lstat(path)), bool(listing.git) or listing.within == "hooks"
            )


def _list(folder: str, within: str | None, state: os.stat_result) -> _Listing:
    entries = {entry.name: entry.is_dir(follow_symlinks=False) for entry in _entries(folder, state)}
    git: _Git = ""
    if folder.endswith("/.git") or ("objects" in entries and "refs" in entries):
        git = "common"
    elif "commondir" in entries:
        git = "linked"
    folders: list[tuple[str, str | None]] = []
    settings: list[str] = []
    for name, is_folder in entries.items():
        inside: str | None
        if name == ".git":
            inside = None
        elif git and (name == "hooks" or name in GIT_SETTINGS):
            inside = name
        elif within is None:
            inside = "" if name == "git-rebase-todo" and not is_folder else None
        elif within:
            inside = None if within == "hooks" and name.endswith(".sample") else f"{within}/{name}"
        else:
            kind = kind_of(name)
            inside = name if kind == "settings" else "" if kind == "ordinary" and is_folder else None
        if is_folder:
            folders.append((f"{folder}/{name}", inside))
        elif inside is not None:
            settings.append(name)
    now = time.time_ns()
    return _Listing(
        stamp=None if now - state.st_ctime_ns < _FRESH_NS else _stamp(state),
        within=within,
        git=git,
        has_file=entries.get(".git") is False,
        folders=tuple(folders),
        settings=tuple(settings),
    )


def _entries(folder: str, state: os.stat_result) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return list(listing)
    except PermissionError:
        if state.st_uid != os.geteuid():
            raise
    # A command took the right to list it, and left the right to use what is in it.
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    link = f"/proc/self/fd/{descriptor}"
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.chmod(link, mode | 0o500)
        try:
            with os.scandir(link) as listing:
                found = list(listing)
                for entry in found:
                    entry.is_dir(follow_symlinks=False)
            return found
        finally:
            os.chmod(link, mode)
    finally:
        os.close(descriptor)
