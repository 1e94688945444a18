"""Looks at the folders of a workspace: where git folders are, and where settings are that programs act upon.

All folders are looked at before and after each command. One that has not changed since the last time isn't listed
again: the time of a folder's last change is the kernel's, and no command can set it. A folder that its owner can't
enter, because a command closed it, is opened for its owner.
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

Stamp: TypeAlias = tuple[int, int, int]
"""Device, inode and the time of the last change, in ns: no other file has had it, and no change keeps it."""
_Git: TypeAlias = Literal["common", "linked", ""]
_FRESH_NS: int = 100_000_000
"""Two changes within a tick of the kernel's clock (10 ms at most) have one time: what just changed is listed again."""
_MOST_KNOWN = 64
"""Workspaces and other tops whose folders are remembered."""
_LONG = 1000
"""Characters of a path, of up to four bytes each: a longer one may be too long for the kernel."""
_IN_GIT, _IN_BARE = ".git", "/"
"""In a folder of git, links count, since git writes through them: they alone; beside what counts everywhere."""
_KEPT_S = 1.0
"""A look before a command serves for its mounts, which are made at once."""


@dataclass(frozen=True, slots=True)
class ActiveFile:
    """A file or link that programs act upon.

    Attributes:
        key: Its path from the folder around the outermost folder of settings: ".vscode/tasks.json", "hooks/pre-push".
        stamp: See `Stamp`.
        git: It is a git folder's own: hooks, or a file of settings.
        is_link: What it leads to is acted upon.
    """

    key: str
    stamp: Stamp
    git: bool
    is_link: bool


@dataclass(slots=True)
class Tree:
    """What there is, all as absolute paths.

    Attributes:
        common: Folders from which git may take settings and hooks: called `.git`, or with `objects` and `refs` in them.
            HEAD isn't needed: a folder with a `commondir` may have it.
        linked: Folders with a file `commondir`, which leads git to one of these.
        files: Files and links `.git`, which lead git to a folder.
        settings: By path.
        special: Sockets, pipes and devices that no box made, by path.
    """

    common: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    settings: dict[str, ActiveFile] = field(default_factory=dict)
    special: dict[str, Stamp] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Listing:
    """A folder, with the paths of those in it.

    `within` is the key of a folder of settings, `_IN_GIT` or `_IN_BARE` for other folders of git, "" for any other,
    None where the rule doesn't hold.
    """

    stamp: Stamp | None
    within: str | None
    git: _Git = ""
    has_file: bool = False
    folders: tuple[tuple[str, str | None], ...] = ()
    settings: tuple[str, ...] = ()
    special: tuple[str, ...] = ()


_KNOWN: dict[str, Mapping[str, _Listing]] = {}
_KEPT: dict[str, tuple[float, Tree]] = {}
_MADE: set[Stamp] = set()


def last_look(top: str, *, opens: bool = True) -> Tree:
    """The look at a folder that was kept a moment ago, once; otherwise a new one."""
    at, tree = _KEPT.pop(top, (-_KEPT_S, Tree()))
    return tree if time.monotonic() - at < _KEPT_S else look(top, opens=opens)


def note_made(before: Tree, after: Tree) -> None:
    """Note that the sockets and pipes that are new were made by boxes, which may use them again."""
    _MADE.update(set(after.special.values()) - set(before.special.values()))


def look(top: str, *, keep: bool = False, opens: bool = True) -> Tree:
    """Look at a folder and everything below it. Links are not followed. `top` is a real path. With `opens`, folders
    that their owner can't enter are opened, because a command may have closed them. `keep` is for `last_look`.
    """
    known = _KNOWN.pop(top, {})
    seen: dict[str, _Listing] = {}
    tree = Tree()
    waiting: list[tuple[str, str | None]] = [(top, "")]
    lstat, me = os.lstat, os.geteuid()
    while waiting:
        folder, within = waiting.pop()
        listing = known.get(folder)
        try:
            if len(folder) > _LONG:
                listing = _look_far(folder, within, me if opens else None, tree)
            else:
                state = lstat(folder)
                if opens and state.st_mode & 0o500 != 0o500 and state.st_uid == me:
                    state = _open(folder)
                if (
                    listing is None
                    or listing.within != within
                    or listing.stamp != (state.st_dev, state.st_ino, state.st_ctime_ns)
                ):
                    listing = _list(folder, within, state, folder)
                if listing.git or listing.has_file or listing.settings or listing.special:
                    _add(tree, folder, listing, folder)
        except OSError:
            continue
        seen[folder] = listing
        waiting += listing.folders
    _KNOWN[top] = seen
    while len(_KNOWN) > _MOST_KNOWN:
        _KNOWN.pop(next(iter(_KNOWN)), None)
    if keep:
        _KEPT[top] = (time.monotonic(), tree)
    return tree


def stamp_of(state: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return (state.st_dev, state.st_ino, state.st_ctime_ns)


def _look_far(folder: str, within: str | None, me: int | None, tree: Tree) -> _Listing:
    """Look at a folder whose path is longer than the kernel takes one; open it if it is closed and belongs to `me`."""
    above = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    rest = folder[1:]
    try:
        while rest:
            cut = rest.rfind("/", 0, _LONG) if len(rest) > _LONG else len(rest)
            step, rest = rest[:cut], rest[cut + 1 :]
            below = os.open(step, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            os.close(above)
            above = below
        there = f"/proc/self/fd/{above}"
        state = os.fstat(above)
        if state.st_mode & 0o500 != 0o500 and state.st_uid == me:
            os.chmod(there, stat.S_IMODE(state.st_mode) | 0o500)
        listing = _list(folder, within, state, there)
        _add(tree, folder, listing, there)
        return listing
    finally:
        os.close(above)


def _open(folder: str) -> os.stat_result:
    """Let the owner of a folder list and enter it."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        link = f"/proc/self/fd/{descriptor}"
        os.chmod(link, stat.S_IMODE(os.fstat(descriptor).st_mode) | 0o500)
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _add(tree: Tree, folder: str, listing: _Listing, there: str) -> None:
    if listing.git:
        (tree.common if listing.git == "common" else tree.linked).append(folder)
    if listing.has_file:
        tree.files.append(f"{folder}/.git")
    for name in listing.settings:
        within = listing.within
        key = name if within in (None, "", _IN_GIT, _IN_BARE) else f"{listing.within}/{name}"
        with contextlib.suppress(OSError):
            state = os.lstat(f"{there}/{name}")
            tree.settings[f"{folder}/{name}"] = ActiveFile(
                key,
                stamp_of(state),
                within == "hooks" or (bool(listing.git) and name in ("hooks", *GIT_SETTINGS)),
                # Results change, and what is a link to them by its place alone leads to nothing else.
                stat.S_ISLNK(state.st_mode)
                and (bool(within) or kind_of(name, is_folder=False) == "settings"),
            )
    for name in listing.special:
        with contextlib.suppress(OSError):
            stamp = stamp_of(os.lstat(f"{there}/{name}"))
            if stamp not in _MADE:
                tree.special[f"{folder}/{name}"] = stamp


def _leads_to_results(folder: str, name: str) -> bool:
    """Whether a link gives another name to results, in which the rule doesn't hold."""
    try:
        target = os.path.normpath(f"{folder}/{os.readlink(f'{folder}/{name}')}")
    except OSError:
        return False
    here = folder.split("/")
    return any(kind_of(each, is_folder=True) == "built" for each in target.split("/") if each not in here)


def _list(folder: str, within: str | None, state: os.stat_result, there: str) -> _Listing:
    """List a folder; `there` is a path that leads to it now."""
    special: list[str] = []
    links: set[str] = set()
    entries: dict[str, bool] = {}
    with os.scandir(there) as listed:
        for entry in listed:
            is_folder = entry.is_dir(follow_symlinks=False)
            entries[entry.name] = is_folder
            if is_folder or entry.is_file(follow_symlinks=False):
                continue
            if entry.is_symlink():
                links.add(entry.name)
            else:
                special.append(entry.name)
    git: _Git = ""
    if folder.endswith("/.git") or ("objects" in entries and "refs" in entries):
        git = "common"
    elif "commondir" in entries:
        git = "linked"
    around = os.path.basename(folder)
    folders: list[tuple[str, str | None]] = []
    settings: list[str] = []
    of_git = bool(git) or within in (_IN_GIT, _IN_BARE)
    for name, is_folder in entries.items():
        inside: str | None
        if name == ".git":
            inside = _IN_GIT
        elif git and (name == "hooks" or name in GIT_SETTINGS):
            inside = name
        elif within is None or within == _IN_GIT:
            acts = name == "git-rebase-todo" or (of_git and name in links)
            inside = _IN_GIT if (of_git if is_folder else acts) else None
        elif within not in ("", _IN_BARE):
            inside = None if within == "hooks" and name.endswith(".sample") else f"{within}/{name}"
        elif (kind := kind_of(name, is_folder=is_folder, around=around)) == "settings":
            inside = name
        elif kind == "ordinary" and is_folder:
            inside = _IN_BARE if of_git else ""
        else:
            acts = name in links and (of_git or _leads_to_results(folder, name))
            inside = _IN_GIT if (of_git if is_folder else acts) else None
        if is_folder:
            folders.append((f"{folder}/{name}", inside))
        elif inside is not None:
            settings.append(name)
    now = time.time_ns()
    return _Listing(
        stamp=None if now - state.st_ctime_ns < _FRESH_NS else stamp_of(state),
        within=within,
        git=git,
        has_file=entries.get(".git") is False,
        folders=tuple(folders),
        settings=tuple(settings),
        special=tuple(special),
    )
