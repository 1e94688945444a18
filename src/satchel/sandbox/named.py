"""What settings lead to: a file of the workspace that a setting names or is a link to is acted upon as well.

Settings of git name hooks, other settings and programs, which may stand behind a shell or an interpreter. So every word
of a value is taken for a path, wherever git or a program of it might look; what git itself writes names nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from satchel.config.home import expanded
from satchel.sandbox.gitconfig import is_harmless_key, settings_in
from satchel.sandbox.selfrun import GIT_SETTINGS
from satchel.sandbox.tree import Stamp, Tree, stamp_of

_MOST_BYTES: Final = 65_536
_MOST_INCLUDED: Final = 50
_MOST_LINKS: Final = 40
"""As the kernel."""
_MOST_WORDS: Final = 40
_ACTS: Final = ("hooks", *GIT_SETTINGS)
_VARIABLE: Final = re.compile(r"\$\w+|\$\{[^}]*\}")
_BETWEEN_WORDS: Final = re.compile(r"""[\s'"`;|&()<>=,:{}!]+""")


@dataclass(slots=True)
class Led:
    """What roots lead to.

    Attributes:
        stamps: Of files, and of links on the way, by real paths.
        ends: Real paths of what was named: files and folders.
    """

    stamps: dict[str, Stamp] = field(default_factory=dict)
    ends: set[str] = field(default_factory=set)


def roots_of(
    trees: Mapping[str, Tree], values: Sequence[tuple[str, str]], *, home: str = "", only_git: bool = False
) -> dict[str, bool]:
    """What settings name, and links among them: absolute paths, and whether a folder counts.

    What is named need not exist: it may come into being.

    Args:
        trees: By their tops; the first one is the workspace.
        values: Settings of the user that hold in all repositories, with their keys.
        home: What `~` stands for.
        only_git: Leave out links.
    """
    workspace = next(iter(trees))
    roots: dict[str, bool] = {}

    def name(settings: Iterable[tuple[str, str]], bases: Sequence[str]) -> None:
        for key, value in settings:
            for path, is_whole in _paths_in(key, value, bases, home):
                roots[path] = roots.get(path, False) or is_whole

    name(values, [workspace])
    for tree in trees.values():
        working = _working_trees(tree)
        gits = set(tree.common)
        for path, setting in tree.settings.items():
            # Links to what git itself writes are another matter.
            if setting.is_link and not only_git and (not setting.git or setting.key.split("/")[0] in _ACTS):
                roots[path] = True
            if setting.git and setting.key in ("config", "config.worktree"):
                gits.add(os.path.dirname(path))
        for git in gits:
            bases = [os.path.dirname(git), git, workspace, *working.get(git, ())]
            own = [each for file in ("config", "config.worktree") for each in _read(f"{git}/{file}", home)]
            name([*values, *own], bases)
    if home:
        # Those who keep their settings in a repository have links to it in their home.
        links = (*_links_in(home), *_links_in(f"{home}/.config"))
        roots.update(
            (path, True) for path in links if os.path.basename(path).startswith(".") or ".config/" in path
        )
    return roots


def _working_trees(tree: Tree) -> dict[str, list[str]]:
    """The folders of files `.git`, by the git folders that they lead to."""
    found: dict[str, list[str]] = {}
    for file in tree.files:
        text = _text(file)
        if text is None or not text.startswith("gitdir:"):
            continue
        folder = os.path.dirname(file)
        git = os.path.realpath(os.path.join(folder, text.removeprefix("gitdir:").strip()))
        found.setdefault(git, []).append(folder)
        common = _text(f"{git}/commondir")
        if common is not None:
            found.setdefault(os.path.realpath(os.path.join(git, common.strip())), []).append(folder)
    return found


def _read(file: str, home: str) -> Iterator[tuple[str, str]]:
    """The settings in a file and in those that it includes; values that are paths of other files become absolute."""
    waiting, seen = [file], set[str]()
    while waiting and len(seen) < _MOST_INCLUDED:
        path = waiting.pop()
        if path in seen or (text := _text(path)) is None:
            continue
        seen.add(path)
        for key, value in settings_in(text):
            yield key, value
            if key.startswith(("include.", "includeif.")) and key.endswith(".path"):
                included = os.path.normpath(os.path.join(os.path.dirname(path), expanded(value, home)))
                yield key, included
                waiting.append(included)


def _paths_in(key: str, value: str, bases: Sequence[str], home: str) -> Iterator[tuple[str, bool]]:
    if not value or "\0" in value or is_harmless_key(key):
        return
    whole = expanded(value, home)
    # Folders of hooks and of templates; nothing else that acts is a folder.
    is_path = key.endswith(("path", "dir"))
    for base in bases:
        yield os.path.normpath(os.path.join(base, whole)), is_path
    words = [each for each in _BETWEEN_WORDS.split(_VARIABLE.sub(" ", value)) if each][:_MOST_WORDS]
    if words == [value]:
        return
    # A program may change the folder first, or put a variable before a path.
    around = [
        *bases,
        *(os.path.join(base, word) for base in bases for word in words if "/" in word or len(words) < 9),
    ]
    around = [*bases, *(each for each in dict.fromkeys(around) if each not in bases and os.path.isdir(each))]
    for word in words:
        bare = word.lstrip("/")
        for each in {expanded(word, home), bare, word[2:] if word.startswith("-") else bare}:
            if each:
                for base in around:
                    yield os.path.normpath(os.path.join(base, each)), False


def _text(path: str) -> str | None:
    """The text of an ordinary file, links followed; None if it is something else, or too long."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        found = os.read(file, _MOST_BYTES + 1)
        return found.decode(errors="replace") if len(found) <= _MOST_BYTES else None
    except OSError:
        return None
    finally:
        os.close(file)


def follow(roots: Mapping[str, bool], areas: Sequence[str]) -> Led:
    """Follow roots to what they lead to. What is outside of `areas`, the real paths of the folders that boxes can
    write, is left out.
    """
    led = Led()
    done: set[str] = set()
    known: dict[str, os.stat_result | None] = {}
    waiting = list(roots.items())
    while waiting:
        path, is_whole = waiting.pop()
        if path in done:
            continue
        done.add(path)
        end, state = _end(path, areas, led, known)
        if state is None or not _is_below(end, areas):
            continue
        if not stat.S_ISDIR(state.st_mode):
            led.stamps[end] = stamp_of(state)
            led.ends.add(end)
        elif is_whole:
            led.ends.add(end)
            waiting += ((f"{end}/{name}", True) for name in _listed(end))
    return led


def _end(
    path: str, areas: Sequence[str], led: Led, known: dict[str, os.stat_result | None]
) -> tuple[str, os.stat_result | None]:
    """Where a path leads, without any link on the way, and what is there; the links are noted."""
    at = ""
    rest = path.split("/")[::-1]
    links = 0
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at).rstrip("/")
            continue
        below = f"{at}/{name}"
        if below not in known:
            known[below] = _state(below)
        state = known[below]
        if state is None:
            return path, None
        if not stat.S_ISLNK(state.st_mode):
            at = below
            continue
        links += 1
        if links > _MOST_LINKS:
            return path, None
        if _is_below(below, areas):
            led.stamps[below] = stamp_of(state)
        try:
            target = os.readlink(below)
        except OSError:
            return path, None
        if target.startswith("/"):
            at = ""
        rest += target.split("/")[::-1]
    return at, known.get(at)


def _state(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def _is_below(path: str, areas: Iterable[str]) -> bool:
    return any(path.startswith(f"{area}/") for area in areas)


def _links_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as listed:
            return [entry.path for entry in listed if entry.is_symlink()]
    except OSError:
        return []


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
