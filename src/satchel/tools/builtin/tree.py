"""Walks a folder tree without `.git`, ignored files (`.gitignore`) and symlinks."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from satchel.errors import UsageError
from satchel.tools.port import ToolContext

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MAX_ENTRIES = 200_000
"""A walk ends after this many files and folders; a large source tree has half as many."""
MAX_IGNORE_BYTES = 1_048_576
MAX_ALTERNATIVES = 64
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class GlobPattern:
    """A glob over relative paths: `*`, `?`, `[…]` within a name, `**` for any folders, `{a,b}` for either.

    Matching goes name by name and keeps a set of states (which parts of the pattern may come next), so its
    time is bounded whatever the pattern, and a folder in which nothing can match need not be entered.
    """

    def __init__(self, pattern: str) -> None:
        """Read a pattern.

        Raises:
            UsageError: It stands for more than 64 patterns.
        """
        self._alternatives: list[list[re.Pattern[str] | None]] = []
        for alternative in _without_braces(pattern):
            names = [name for name in alternative.split("/") if name not in {"", "."}]
            self._alternatives.append(
                [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]
            )

    @property
    def start(self) -> frozenset[tuple[int, int]]:
        """The states before the first name."""
        return self._closed((which, 0) for which in range(len(self._alternatives)))

    def step(self, states: frozenset[tuple[int, int]], name: str) -> frozenset[tuple[int, int]]:
        """The states after one more name; empty where nothing below can match."""
        following: list[tuple[int, int]] = []
        for which, at in states:
            parts = self._alternatives[which]
            if at == len(parts):
                continue
            part = parts[at]
            if part is None:
                following.append((which, at))
            elif part.match(name):
                following.append((which, at + 1))
        return self._closed(following)

    def accepts(self, states: frozenset[tuple[int, int]]) -> bool:
        """Whether the names so far are a match."""
        return any(at == len(self._alternatives[which]) for which, at in states)

    def matches(self, path: str) -> bool:
        """Whether a whole relative path is a match."""
        states = self.start
        for name in path.split("/"):
            states = self.step(states, name)
        return self.accepts(states)

    def _closed(
        self, states: Iterator[tuple[int, int]] | Sequence[tuple[int, int]]
    ) -> frozenset[tuple[int, int]]:
        """The states, and those that are reached by taking `**` for nothing."""
        closed: set[tuple[int, int]] = set()
        for which, at in states:
            parts = self._alternatives[which]
            closed.add((which, at))
            while at < len(parts) and parts[at] is None:
                at += 1
                closed.add((which, at))
        return frozenset(closed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPath:
    """A file or folder of a walk; `path` is relative to its base, with slashes; `size` is in bytes."""

    path: str
    is_folder: bool
    mtime_ns: int
    size: int


def walk(
    base: Path,
    *,
    pattern: GlobPattern | None = None,
    goes_on: Callable[[], bool] = lambda: True,
    skips: Callable[[str], bool] = lambda name: name == ".git",
) -> Iterator[FoundPath]:
    """Every file and folder below `base`, a folder's names in byte order, folders before what they hold.

    Args:
        base: A folder, without symlinks; rules that ignore this folder itself are not applied.
        pattern: Only matching entries are yielded, and only folders in which something can match are entered; None
            yields everything.
        goes_on: Called at every entry; the walk ends when it returns False.
        skips: Whether entries with this name are left out, with all below them.
    """
    ignore = _Ignore.above(base)
    try:
        top = os.open(base, FOLDER_FLAGS)
    except OSError:
        return
    try:
        budget = iter(range(MAX_ENTRIES))
        start = frozenset[tuple[int, int]]() if pattern is None else pattern.start
        yield from _walk(
            top,
            "",
            ignore.entered(top, ""),
            pattern,
            start,
            lambda: goes_on() and next(budget, -1) >= 0,
            skips,
        )
    finally:
        os.close(top)


async def walked(
    base: Path,
    context: ToolContext,
    *,
    pattern: GlobPattern | None = None,
    is_wanted: Callable[[FoundPath], bool] = lambda _: True,
) -> list[FoundPath]:
    """The wanted part of what `walk` finds. The thread that walks ends at the next file once the call is cancelled."""
    stopped = threading.Event()

    def find() -> list[FoundPath]:
        found = walk(base, pattern=pattern, goes_on=lambda: not stopped.is_set())
        return [each for each in found if is_wanted(each)]

    try:
        return await context.blocking(find)
    finally:
        stopped.set()


def _walk(
    folder: int,
    prefix: str,
    ignore: _Ignore,
    pattern: GlobPattern | None,
    states: frozenset[tuple[int, int]],
    goes_on: Callable[[], bool],
    skips: Callable[[str], bool],
) -> Iterator[FoundPath]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
    except OSError:
        return
    for entry in entries:
        if not goes_on():
            return
        path = prefix + entry.name
        if skips(entry.name) or entry.is_symlink():
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        if not is_folder and not entry.is_file(follow_symlinks=False):
            continue
        following = states if pattern is None else pattern.step(states, entry.name)
        if (pattern is not None and not following) or ignore.ignores(path, is_folder=is_folder):
            continue
        if pattern is None or pattern.accepts(following):
            with contextlib.suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                yield FoundPath(
                    path=path, is_folder=is_folder, mtime_ns=state.st_mtime_ns, size=state.st_size
                )
        if is_folder:
            try:
                below = os.open(entry.name, FOLDER_FLAGS, dir_fd=folder)
            except OSError:
                continue
            try:
                yield from _walk(
                    below, path + "/", ignore.entered(below, path + "/"), pattern, following, goes_on, skips
                )
            finally:
                os.close(below)


class _Ignore:
    """The `.gitignore` files that apply in one folder, the nearest last, each with the beginning of its paths."""

    def __init__(self, specs: tuple[tuple[str, str, GitIgnoreSpec], ...] = ()) -> None:
        # For each: how the walk's paths begin there, what to put before the rest, and the rules.
        self._specs = specs

    @classmethod
    def above(cls, base: Path) -> _Ignore:
        """The rules from the repository's top (else the file system's) down to the folder above `base`."""
        specs: list[tuple[str, str, GitIgnoreSpec]] = []
        folder = base
        while folder != folder.parent and not (folder / ".git").exists():
            folder = folder.parent
            spec = _read_spec(folder / ".gitignore")
            if spec is not None:
                way = base.relative_to(folder).as_posix() + "/"
                specs.insert(0, ("", way, spec))
        # Somebody who names an ignored folder wants to see its content.
        for _, way, spec in specs:
            if spec.check_file(way).include:
                return cls()
        return cls(tuple(specs))

    def entered(self, folder: int, prefix: str) -> _Ignore:
        """The rules in a folder below, whose paths begin with `prefix`."""
        spec = _read_spec(".gitignore", folder)
        return self if spec is None else _Ignore((*self._specs, (prefix, "", spec)))

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Whether the nearest file with a rule for it ignores it."""
        for prefix, way, spec in reversed(self._specs):
            verdict = spec.check_file(way + path[len(prefix) :] + ("/" if is_folder else "")).include
            if verdict is not None:
                return verdict
        return False


def _read_spec(path: Path | str, folder: int | None = None) -> GitIgnoreSpec | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        try:
            lines = file.read(MAX_IGNORE_BYTES).decode("utf-8", "surrogateescape").splitlines()
        except OSError:
            return None
    # Imported when used: most calls of most tools walk no folders.
    from pathspec import GitIgnoreSpec  # noqa: PLC0415

    rules = [line for line in lines if line.strip() and not line.startswith("#")]
    try:
        return GitIgnoreSpec.from_lines(rules)
    except ValueError:
        # One invalid rule must not disable the others.
        return GitIgnoreSpec.from_lines([rule for rule in rules if _is_rule(rule)])


def _is_rule(rule: str) -> bool:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  # see `_read_spec`

    try:
        GitIgnoreSpec.from_lines([rule])
    except ValueError:
        return False
    return True


def _without_braces(pattern: str) -> list[str]:
    """The patterns that `{a,b}` stands for, inner braces first."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        text = todo.pop()
        match = re.search(r"\{([^{}]*,[^{}]*)\}", text)
        if match is None:
            done.append(text)
        else:
            todo += [text[: match.start()] + choice + text[match.end() :] for choice in match[1].split(",")]
        if len(done) + len(todo) > MAX_ALTERNATIVES:
            raise UsageError(
                f"The pattern expands to more than {MAX_ALTERNATIVES} patterns. Use fewer braces."
            )
    return done[::-1]
