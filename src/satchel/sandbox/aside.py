"""Sets aside what a box left behind that programs act upon by themselves.

What is there already is mounted read-only, or compared; see `satchel.sandbox.tree` for what counts. All is done by
descriptors that were opened step by step: links that a command left are never followed.

    python -m satchel.sandbox.aside FOLDER PID      what the warden runs when the Satchel with that pid was killed
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from satchel.errors import SandboxError
from satchel.processes import has_ended
from satchel.sandbox.gitconfig import harmless_text, setting_lines
from satchel.sandbox.named import Led, follow, roots_of
from satchel.sandbox.paths import opened
from satchel.sandbox.selfrun import ASIDE, HARMLESS_TEXTS
from satchel.sandbox.tree import ActiveFile, Stamp, Tree, look, note_made

Moved = tuple[Path, Path]
"""Where something was, and where it is now. The same path: it could not be moved."""

_MOST_BYTES: Final = 65_536
_MOST_NAMES: Final = 1_000


@dataclass(slots=True)
class Before:
    """What programs acted upon before a command.

    Attributes:
        tops: The workspace first, and folders outside of it that the command may write and for which the rule holds.
        values: Settings of git that the user has for all repositories, with their keys.
        settings: Those that were there: with their stamps by their keys, since a move of a folder changes neither.
        led: The stamps of what they led to.
        roots: What they named, whether it was there or not; see `roots_of`.
        lines: Of git's settings that were there.
    """

    tops: tuple[Path, ...]
    values: tuple[tuple[str, str], ...] = ()
    home: str = ""
    settings: set[tuple[str, Stamp]] = field(default_factory=set)
    led: set[Stamp] = field(default_factory=set)
    roots: dict[str, bool] = field(default_factory=dict)
    lines: set[tuple[str, str]] = field(default_factory=set)
    trees: dict[str, Tree] = field(default_factory=dict)

    @classmethod
    def look(cls, tops: Sequence[Path], *, values: Sequence[tuple[str, str]] = (), home: str = "") -> Before:
        """Look at the workspace before a command; see `Before`."""
        before = cls(tops=(), values=tuple(values), home=home)
        before.include(tops)
        return before

    def include(self, tops: Sequence[Path]) -> None:
        """Look at folders that a further command may write, as far as they weren't looked at."""
        further = [top for top in tops if top not in self.tops]
        if not further:
            return
        self.tops += tuple(further)
        trees = {str(top): look(str(top), keep=True) for top in further}
        self.trees.update(trees)
        roots = roots_of(self.trees, self.values, home=self.home)
        # What earlier roots lead to may be changing by now.
        further_roots = {path: is_whole for path, is_whole in roots.items() if path not in self.roots}
        self.roots.update(roots)
        self.led.update(follow(further_roots, list(self.trees)).stamps.values())
        for tree in trees.values():
            self.settings.update((setting.key, setting.stamp) for setting in tree.settings.values())
            for path, setting in tree.settings.items():
                if setting.git and setting.key in ("config", "config.worktree"):
                    self.lines.update(setting_lines(_text(Path(path)) or ""))

    def _trees(self) -> dict[str, Tree]:
        return {str(top): look(str(top)) for top in self.tops}

    def _led(self, trees: Mapping[str, Tree]) -> Led:
        self.roots.update(roots_of(trees, self.values, home=self.home))
        return follow(self.roots, list(trees))

    def set_aside(self, *, agreed: Sequence[Path]) -> tuple[Moved, ...]:
        """Set aside what is new and what has changed, after the command. The user lets the command write the paths in
        `agreed`: what they name themselves stays.
        """
        trees = self._trees()
        for top, tree in trees.items():
            note_made(self.trees[top], tree)
        moved = [each for top in self.tops for each in self._new(trees[str(top)], top, agreed)]
        # What is left of the settings may lead to other files now.
        now = self._trees() if moved else trees
        led = self._led(now)
        there = {setting.stamp for tree in now.values() for setting in tree.settings.values()}
        for named, stamp in led.stamps.items():
            if stamp in self.led or stamp in there:
                continue
            if _is_named(named, led, agreed):
                self.led.add(stamp)
            else:
                moved += _move(Path(named))
        return tuple(moved)

    def to_json(self) -> dict[str, Any]:
        """All but the trees, which `from_json` looks at again."""
        return {
            "tops": [str(top) for top in self.tops],
            "values": self.values,
            "home": self.home,
            "settings": list(self.settings),
            "led": list(self.led),
            "roots": self.roots,
            "lines": list(self.lines),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Before:
        """The reverse of `to_json`."""
        tops = tuple(Path(top) for top in saved["tops"])
        return cls(
            tops=tops,
            values=tuple((key, value) for key, value in saved["values"]),
            home=saved["home"],
            settings={(key, (device, inode, at)) for key, (device, inode, at) in saved["settings"]},
            led={(device, inode, at) for device, inode, at in saved["led"]},
            roots=dict(saved["roots"]),
            lines={(key, value) for key, value in saved["lines"]},
            trees={str(top): look(str(top)) for top in tops},
        )

    def _new(self, tree: Tree, top: Path, agreed: Sequence[Path]) -> Iterator[Moved]:
        linked = set(tree.linked) - set(tree.common)
        new, kept = {}, set()
        for path, setting in tree.settings.items():
            if _is_agreed(path, setting, agreed):
                # For other commands that still run, too. What they left meanwhile stays new.
                self.settings.add((setting.key, setting.stamp))
            if (setting.key, setting.stamp) in self.settings:
                kept.add(_outermost(path, setting))
            else:
                new[path] = setting
        done: set[str] = set()
        for path, setting in new.items():
            whole = path if setting.git or (around := _outermost(path, setting)) in kept else around
            if whole not in done:
                done.add(whole)
                yield from self._one(Path(whole), setting, top, is_linked=os.path.dirname(path) in linked)

    def _one(self, path: Path, setting: ActiveFile, top: Path, *, is_linked: bool) -> Iterator[Moved]:
        harmless = next((text for key, text in HARMLESS_TEXTS if key.fullmatch(setting.key)), None)
        may_stay = setting.git or setting.key == ".git" or harmless is not None
        text = _text(path) if may_stay else None
        if text is not None and setting.git and setting.key in ("config", "config.worktree"):
            kept = harmless_text(text, folder=path.parent, top=top, agreed=self.lines.__contains__)
            if kept != text:
                yield from _move(path, instead=kept)
        elif text is not None and setting.git and setting.key == "commondir":
            # A working tree's folder, where git makes it. In a repository, it would lead git elsewhere.
            if not is_linked or path.parent.parent.name != "worktrees" or text.strip() != "../..":
                yield from _move(path)
        elif setting.key == ".git":
            # A link, or a file that names another folder: in the workspace, or where git itself put it.
            folder = path.parent / (text or "").removeprefix("gitdir:").strip() if text is not None else path
            real = Path(os.path.realpath(folder))
            if not any(real.is_relative_to(each) for each in self.tops):
                yield from _move(path)
        elif text is None or harmless is None or not harmless.match(text):
            yield from _move(path)


def save(before: Before, folder: Path, key: str, *, agreed: Sequence[Path], warden: int) -> Path:
    """Write down what was there before a command, for `left_by_killed`. Not synced: a kill doesn't lose it.

    Args:
        before: See `Before`.
        folder: Where no box can write.
        key: Of the workspace: letters and digits.
        agreed: See `Before.set_aside`.
        warden: The pid of the process that ends what is left if this program is killed; 0 for none.

    Returns:
        The file, to be removed after the command.

    Raises:
        OSError: It can't be written.
    """
    file = folder / f"running-{os.getpid()}-{key}.json"
    saved = {"before": before.to_json(), "agreed": [str(path) for path in agreed], "warden": warden}
    _replace(file, saved)
    return file


def left_by_killed(folder: Path, key: str) -> list[Moved]:
    """Set aside what commands left whose Satchel was killed, and tell it once."""
    for file in folder.glob(f"running-*-{key}.json"):
        pid = int(file.name.split("-")[1])
        # A warden that still lives ends the processes first, and then does it.
        if has_ended(pid) and has_ended(_loaded(file).get("warden") or 0):
            _recover(file)
    moved: list[Moved] = []
    for file in folder.glob(f"moved-*-{key}.json"):
        moved += [(Path(path), Path(to)) for path, to in _loaded(file).get("moved", [])]
        file.unlink(missing_ok=True)
    return moved


def _recover(file: Path) -> None:
    saved = _loaded(file)
    if saved:
        agreed = [Path(path) for path in saved["agreed"]]
        moved = Before.from_json(saved["before"]).set_aside(agreed=agreed)
        if moved:
            told = file.with_name(file.name.replace("running", "moved", 1))
            _replace(told, {"moved": [(str(path), str(to)) for path, to in moved]})
    file.unlink(missing_ok=True)


def _replace(file: Path, content: Mapping[str, Any]) -> None:
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(content), encoding="ascii")
    temporary.replace(file)


def _loaded(file: Path) -> dict[str, Any]:
    """The content of a file; nothing if it is gone, or was cut off when the machine lost its power."""
    try:
        found = json.loads(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _outermost(path: str, setting: ActiveFile) -> str:
    """The outermost folder of settings around a path; the path itself if there is none."""
    depth = setting.key.count("/")
    return path.rsplit("/", depth)[0] if depth else path


def _is_agreed(path: str, setting: ActiveFile, agreed: Sequence[Path]) -> bool:
    """Whether the user lets commands write it: a folder of sources isn't enough, the setting itself has to be named.

    A git folder is named by a name that ends with `.git`; under any other, a command may have made it one since.
    """
    git = path[: -len(setting.key) - 1] if setting.git else ""
    named = git if git.endswith(".git") else _outermost(path, setting)
    return any(Path(path).is_relative_to(each) for each in agreed if each.is_relative_to(named))


def _is_named(path: str, led: Led, agreed: Sequence[Path]) -> bool:
    """The same for what a setting leads to."""
    return any(
        Path(path).is_relative_to(each) and any(each.is_relative_to(end) for end in (path, *led.ends))
        for each in agreed
    )


def _text(path: Path) -> str | None:
    """The text of a file; None if it is something else, or too long."""
    with _folder(path) as folder:
        if folder is None:
            return None
        try:
            file = os.open(
                path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
            )
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            found = os.read(file, _MOST_BYTES + 1)
            return found.decode() if len(found) <= _MOST_BYTES else None
        except (OSError, UnicodeDecodeError):
            return None
        finally:
            os.close(file)


@contextmanager
def _folder(path: Path) -> Iterator[int | None]:
    """The folder around a path, by a descriptor; None if it is gone or a link is on the way."""
    with contextlib.ExitStack() as stack:
        folder = None
        with contextlib.suppress(SandboxError):
            folder = stack.enter_context(opened(path.parent))
        yield folder


def _move(path: Path, *, instead: str | None = None) -> Iterator[Moved]:
    """Give something a name that nothing looks for; if there is a text, a new file with it takes its place."""
    with _folder(path) as folder:
        if folder is None:
            return
        try:
            state = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return
        name = _free_name(folder, path.name)
        try:
            with _writable(folder):
                os.rename(path.name, name, src_dir_fd=folder, dst_dir_fd=folder)
                if instead is not None:
                    _write(folder, path.name, instead, state)
            if stat.S_ISREG(state.st_mode):
                _no_program(folder, name, state)
        except OSError:
            name = path.name if os.path.lexists(path) and instead is None else name
        yield path, path.with_name(name)


@contextmanager
def _writable(folder: int) -> Iterator[None]:
    """A folder whose owner a command took the right to write it gets it for a moment."""
    link, mode = f"/proc/self/fd/{folder}", stat.S_IMODE(os.fstat(folder).st_mode)
    changed = mode & 0o300 != 0o300
    if changed:
        os.chmod(link, mode | 0o300)
    try:
        yield
    finally:
        if changed:
            os.chmod(link, mode)


def _write(folder: int, name: str, text: str, state: os.stat_result) -> None:
    file = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
    )
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(text)
        if (state.st_uid, state.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(file, state.st_uid, state.st_gid)
        os.fchmod(file, stat.S_IMODE(state.st_mode) & 0o666)


def _no_program(folder: int, name: str, state: os.stat_result) -> None:
    file = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            os.chmod(f"/proc/self/fd/{file}", stat.S_IMODE(state.st_mode) & 0o666)
    finally:
        os.close(file)


def _free_name(folder: int, name: str) -> str:
    first = f"{name[:200]}{ASIDE}"
    for each in (first, *(f"{first}-{number}" for number in range(2, _MOST_NAMES))):
        try:
            os.stat(each, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return each
    return first


if __name__ == "__main__":
    for running in Path(sys.argv[1]).glob(f"running-{int(sys.argv[2])}-*.json"):
        _recover(running)
