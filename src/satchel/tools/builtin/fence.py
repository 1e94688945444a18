"""Decides which files the file tools may access, and opens them so that no swapped symlink leads elsewhere."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from satchel.config.home import expanded
from satchel.config.keys import KEYS_FILE
from satchel.errors import NotFound, Refused, SatchelError, StorageUnwritable, UsageError
from satchel.tools.paths import Places, path_forms, path_matcher
from satchel.tools.port import Effect, ToolContext
from satchel.wording import shown

# O_PATH opens folders that may be entered but not listed. Where it doesn't exist, O_RDONLY has to do.
FOLDER_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
# O_NONBLOCK: opening a FIFO must not wait for the other end.
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
EVERY_PATH = "path:"
"""The resource that commands read, so that one sees the edits before it in the same answer."""
PROTECTED = frozenset({".git", ".satchel"})
"""Folders that are never written to: their files are run, or decide what may run (hooks, settings, rules)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path without symlinks, in one of the folders that may be accessed.

    Attributes:
        root: That folder.
        parts: The path below it; empty for the folder itself.
        name: The name for the model: escaped, and relative to the session's folder if it is inside.
    """

    root: Path
    parts: tuple[str, ...]
    name: str

    @property
    def path(self) -> Path:
        """The whole path."""
        return self.root.joinpath(*self.parts)

    def effects(self, *, writes: bool) -> list[Effect]:
        """The effects of reading or writing it."""
        return [Effect(resource=f"path:{self.path}", writes=writes)]

    def open(self) -> int:
        """Open the file or folder for reading; the caller closes the descriptor.

        Raises:
            NotFound, Refused, UsageError: See `failure`.
        """
        try:
            if not self.parts:
                return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with self._folder(create=False) as folder:
                return os.open(self.parts[-1], READ_FLAGS, dir_fd=folder)
        except OSError as error:
            raise self.failure(error) from error

    def replace(
        self, data: bytes, *, expected: os.stat_result | None, mode: int | None = None
    ) -> os.stat_result:
        """Replace the whole file atomically, and create its folders.

        Args:
            data: The new content.
            expected: The state of the existing file, whose mode is kept; None if there is none.
            mode: Of a file that does not exist; None takes the usual one.

        Returns:
            The new file's state.

        Raises:
            UsageError: The file is no longer in the expected state.
            Refused, StorageUnwritable: It can't be written.
        """
        temporary = f".satchel-{secrets.token_hex(8)}"
        try:
            with self._folder(create=True) as folder:
                created = 0o600 if expected is not None else 0o666 if mode is None else mode & 0o777
                handle = os.open(
                    temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, created, dir_fd=folder
                )
                try:
                    with os.fdopen(handle, "wb") as file:
                        file.write(data)
                        file.flush()
                        if expected is not None:
                            # If we may not change the owner, a file of another user becomes ours.
                            with contextlib.suppress(PermissionError):
                                os.fchown(file.fileno(), expected.st_uid, expected.st_gid)
                            os.fchmod(file.fileno(), stat.S_IMODE(expected.st_mode))
                        os.fsync(file.fileno())
                        written = os.fstat(file.fileno())
                    self._check_unchanged(folder, expected)
                    os.replace(temporary, self.parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary, dir_fd=folder)
                    raise
                return written
        except OSError as error:
            raise self.failure(error) from error

    def remove(self, *, expected: os.stat_result | None) -> None:
        """Remove the file.

        Raises:
            UsageError: It is no longer in the expected state.
            NotFound, Refused: It can't be removed.
        """
        try:
            with self._folder(create=False) as folder:
                self._check_unchanged(folder, expected)
                os.unlink(self.parts[-1], dir_fd=folder)
        except OSError as error:
            raise self.failure(error) from error

    def failure(self, error: OSError) -> SatchelError:
        """The Satchel error for a system error at this place."""
        match error.errno:
            case errno.ENOENT:
                return NotFound(f"There is no {self.name}.{self._close_names()}")
            case errno.ENOTDIR | errno.ELOOP:
                return UsageError(
                    f"{self.name} can't be reached: a part of the path is not a folder, or is a symlink that loops or "
                    "changed just now."
                )
            case errno.EISDIR:
                return UsageError(f"{self.name} is a folder.")
            case errno.EACCES | errno.EPERM:
                return Refused(f"{self.name}: the system denies access to this user.")
            case errno.ENOSPC | errno.EDQUOT | errno.EROFS:
                return StorageUnwritable(
                    f"{self.name} could not be written: {error.strerror}. The old file is unchanged."
                )
            case errno.ENXIO:
                return UsageError(f"{self.name} is not a regular file.")
            case _:
                return UsageError(f"{self.name}: {error.strerror or error}.")

    def _close_names(self) -> str:
        try:
            names = [entry.name for entry in self.path.parent.iterdir()]
        except OSError:
            return f" Its folder {shown(str(self.path.parent))} doesn't exist either."
        wanted = self.parts[-1].casefold() if self.parts else ""
        folded = {name.casefold(): name for name in names}
        close = difflib.get_close_matches(wanted, folded, n=3, cutoff=0.6)
        return f" Similar names: {', '.join(shown(folded[name]) for name in close)}." if close else ""

    def _check_unchanged(self, folder: int, expected: os.stat_result | None) -> None:
        try:
            now = os.stat(self.parts[-1], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            now = None
        if _state(now) != _state(expected):
            raise UsageError(
                f"{self.name} was just changed by another program; nothing was written. Read it again."
            )

    @contextlib.contextmanager
    def _folder(self, *, create: bool) -> Iterator[int]:
        """Open the folder that contains the place, walking down from the root without following symlinks."""
        if not self.parts:
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        folder = os.open(self.root, FOLDER_FLAGS & ~os.O_NOFOLLOW)
        try:
            for part in self.parts[:-1]:
                try:
                    below = os.open(part, FOLDER_FLAGS, dir_fd=folder)
                except FileNotFoundError:
                    if not create:
                        raise
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                    below = os.open(part, FOLDER_FLAGS, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Decides which places the file tools may access.

    Attributes:
        home: SATCHEL_HOME, or None. Nothing in it is written, and its `token` and logins are not read.
        withheld: Patterns of paths for which a rule denies reading or asks first. Searches leave them out.
    """

    home: Path | None = None
    withheld: tuple[str, ...] = ()

    def locate(self, text: str, context: ToolContext, *, writing: bool = False) -> Place:
        """Resolve a path.

        Args:
            text: As the model wrote it: absolute, beginning with `~`, or relative to `context.cwd`. It need not exist.
            context: `roots` (folders or single files) may be accessed; `spill_dir` may be read.
            writing: Whether the place will be written.

        Raises:
            UsageError: It is not a path.
            Refused: It is outside of these folders, or protected.
        """
        if not text:
            raise UsageError("The path is empty.")
        path = expanded(text, context.environ.get("HOME", ""))
        try:
            os.fsencode(path)
            real = Path(os.path.realpath(context.cwd / path))
        except ValueError as error:
            raise UsageError(
                f"{shown(text)} is not a path: it contains a NUL or a lone surrogate."
            ) from error
        except OSError as error:
            raise UsageError(f"{shown(text)} can't be reached: {error.strerror}.") from error
        name = self.name(real, context)
        roots = [
            Path(os.path.realpath(root))
            for root in (*context.roots, *([] if writing else [context.spill_dir]))
        ]
        # The longest root, so that the walk down from it is the shortest.
        root = max(
            (root for root in roots if real.is_relative_to(root)), key=lambda r: len(r.parts), default=None
        )
        if root is None:
            allowed = ", ".join(shown(str(folder)) for folder in context.roots)
            leads = (
                ""
                if str(real) == os.path.normpath(context.cwd / path)
                else f" (it links to {shown(str(real))})"
            )
            raise Refused(
                f"{shown(text)} is outside of what the file tools may access{leads}. They may access: "
                f"{allowed}."
            )
        # A root that is a single file need not exist. It is reached from its nearest folder, like any other file.
        while not root.is_dir():
            root = root.parent
        place = Place(root=root, parts=real.relative_to(root).parts, name=name)
        self._check_protected(place, writing=writing)
        return place

    def is_outside(self, place: Place, context: ToolContext) -> bool:
        """Whether the content comes from outside the session's folder."""
        return not place.path.is_relative_to(os.path.realpath(context.cwd))

    def search_filter(self, base: Place, context: ToolContext) -> Callable[[Path], bool]:
        """A test for files that a search may show: those that `file_read` may read without asking.

        Args:
            base: What the call names and was permitted for. If that itself may hold keys, the user has agreed.
            context: The call's context.
        """
        places = Places.of((context.cwd, context.spill_dir), context.environ)
        rules = [path_matcher(pattern, user_home=places.user_home) for pattern in self.withheld]
        # Users who run a tool themselves may search everything that they can access.
        in_person = tuple(context.roots) == (Path("/"),) and os.path.realpath(context.cwd) != "/"
        is_named = in_person or places.may_be_key(str(base.path))

        def may_show(path: Path) -> bool:
            if self.hides(path):
                return False
            if rules and not in_person:
                forms = path_forms(str(path), cwd=context.cwd, user_home=places.user_home)
                if any(fits(form) for fits in rules for forms_of in forms for form in forms_of):
                    return False
            return is_named or not places.may_be_key(str(path))

        return may_show

    def hides(self, real: Path) -> bool:
        """Whether a file's content is never shown."""
        if self.home is None:
            return False
        home = Path(os.path.realpath(self.home))
        return real in (home / "token", home / KEYS_FILE) or real.is_relative_to(home / "oauth")

    def name(self, real: Path, context: ToolContext) -> str:
        """A resolved path for the model: escaped, and relative to the session's folder if it is inside."""
        cwd = Path(os.path.realpath(context.cwd))
        return shown(str(real.relative_to(cwd) if real.is_relative_to(cwd) else real))

    def _check_protected(self, place: Place, *, writing: bool) -> None:
        if self.hides(place.path):
            raise Refused(f"{place.name} is a secret of Satchel itself and is never shown.")
        if not writing:
            return
        folded = {part.casefold() for part in place.path.parts}
        inside_home = self.home is not None and place.path.is_relative_to(os.path.realpath(self.home))
        if inside_home or folded & PROTECTED:
            raise Refused(
                f"{place.name} can't be written by tools: files there are run, or decide what may run (hooks, rules, "
                "settings, tools). Ask the user to change it."
            )


def describe_kind(mode: int) -> str:
    """The kind of a file that is neither regular nor a folder, in words."""
    for test, words in (
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISLNK, "a symlink"),
    ):
        if test(mode):
            return words
    return "a special file"


def _state(found: os.stat_result | None) -> tuple[int, int, int] | None:
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)
