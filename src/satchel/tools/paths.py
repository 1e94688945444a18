"""How paths are compared with permission rules, and which files may hold keys: the same for the gate and the tools."""

from __future__ import annotations

import os.path
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from satchel.config.home import expanded
from satchel.tools.patterns import Matcher, escaped, matcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The folders by which a session's paths are judged.

    Attributes:
        own: Real paths of the session's folder and others that may be read freely.
        user_home: HOME as it is written, or "".
        home: Its real path, or "".
    """

    own: tuple[str, ...]
    user_home: str
    home: str

    @classmethod
    def of(cls, folders: Sequence[Path], environ: Mapping[str, str]) -> Places:
        """Take the session's folders, and HOME from the environment."""
        user_home = environ.get("HOME", "")
        return cls(
            own=tuple(os.path.realpath(folder) for folder in folders),
            user_home=user_home,
            home=os.path.realpath(user_home) if user_home else "",
        )

    def may_hold_keys(self, real: str) -> bool:
        """Whether keys and passwords may be at a real path, so that no mode reads it by itself.

        They may be where a name is hidden, in what not everybody may read or reach, and in `/proc`: but not in a folder
        of the session, unless that is a home.
        """
        return self._holds_home(real) or self.may_be_key(real)

    def may_be_key(self, real: str) -> bool:
        """The same, for one file in a search that may be made."""
        if is_below(real, [folder for folder in self.own if not self._holds_home(folder)]):
            return False
        if is_below(real, ["/proc"]) or "/." in real:
            return True
        return not is_below(real, self.own) and (
            _lacks(real, stat.S_IROTH) or self._is_in_closed_folder(real)
        )

    def _is_in_closed_folder(self, real: str) -> bool:
        """Whether others can't reach a path. Many systems close homes, which says nothing of a file in one's own."""
        for folder in map(str, Path(real).parents):
            if self._holds_home(folder):
                break
            if _lacks(folder, stat.S_IXOTH):
                return True
        return False

    def _holds_home(self, real: str) -> bool:
        return bool(self.home) and is_below(self.home, [real])


def path_forms(path: str, *, cwd: Path, user_home: str) -> list[list[str]]:
    """The path as written and with symlinks resolved; each relative to the cwd, where it is below, and absolute."""
    # A NUL can't be in a path; the tool says so.
    path = expanded(path, user_home).replace("\0", "\ufffd")
    absolute = os.path.normpath(cwd / path)
    try:
        real = os.path.realpath(cwd / path)
    except (OSError, ValueError):
        real = absolute
    forms: list[list[str]] = []
    for whole, base in ((absolute, str(cwd)), (real, os.path.realpath(cwd))):
        below = whole.startswith(base.rstrip("/") + "/")
        forms.append([os.path.relpath(whole, base), whole] if below else [whole])
    return forms


def path_matcher(pattern: str, *, user_home: str) -> Matcher:
    """A test whether a form of a path fits a rule's pattern."""
    return matcher(plain_pattern(pattern, user_home=user_home))


def plain_pattern(pattern: str, *, user_home: str) -> str:
    """A pattern of paths with `~` resolved and without a leading `./`."""
    if user_home and pattern.startswith("~/"):
        pattern = escaped(user_home) + pattern[1:]
    return pattern.removeprefix("./")


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Whether a path is one of the folders, or in one of them."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _lacks(path: str, right: int) -> bool:
    try:
        return not Path(path).stat().st_mode & right
    except OSError:
        return False  # there is nothing to read
