"""Where the logs of sessions are: the port that everything in this room reads and writes them through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection

from satchel.errors import StorageCorrupt
from satchel.events import Record
from satchel.sessions.compressing import Replaced
from satchel.sessions.journal import Hold, Journal
from satchel.sessions.log import LogLine
from satchel.sessions.places import session_id_of
from satchel.sessions.rewriting import rewrite_file


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log, and the state by which a change is noticed.

    Attributes:
        name: Its key in the index.
        inode: Another number whenever it was rewritten. `mtime_ns` is 0 where the log isn't a file.
        size: Where its last line ends; see `LogLine`.
    """

    name: str
    path: Path
    session_id: str
    inode: int
    mtime_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class LogChanges:
    """What may have changed since the index was brought up to date.

    Attributes:
        files: The states of these logs, by name; None for one that is gone. Others are as the index knows them.
        folders: The states of folders to be noted once the index has these logs.
        is_first: Nothing was noted yet: all logs have to be looked at.
    """

    files: Mapping[str, LogFile | None]
    folders: Mapping[str, int]
    is_first: bool


class Rewriting(Protocol):
    """Makes the new lines of a log. It may be called again from the start."""

    @property
    def changed(self) -> Sequence[int]:
        """Which lines differ. Empty means that the log stays as it is."""

    def __call__(self, lines: Callable[[], Iterable[bytes]]) -> Iterator[bytes] | None:
        """One new line for each old one, in order, but for empty ones and one that was never written to its end. None
        means that no line changes.
        """


def name_of(root: Path, path: Path) -> str:
    """The key of a log in the index: its place below the sessions folder, in ASCII."""
    return str(path.relative_to(root)).encode("ascii", "backslashreplace").decode()


def path_of(root: Path, name: str) -> Path:
    """The path of the log with this key.

    Raises:
        StorageCorrupt: It is none below the sessions folder: somebody else wrote it into the database.
    """
    path = root / name
    if path.parent.parent != root or path.parent.name == ".." or session_id_of(path) is None:
        raise StorageCorrupt(f"The database names a conversation {name!r} that can't be in a home.")
    return path


class Logs(ABC):
    """The logs of the sessions of a home. All methods block.

    A log has a path below `root` wherever it is, which names it. Beside it is the folder of its files.

    Attributes:
        root: `SATCHEL_HOME/sessions`.
        is_shared: Whether other machines write logs, too.
        hands_over: This process gives up what others ask for, once it is idle; see `asked`. Set before the first hold.
    """

    root: Path
    is_shared = False
    hands_over = False

    # Reading

    @abstractmethod
    def paths(self, beginning: str = "") -> list[Path]:
        """The logs of the sessions whose ids begin like this, in descending order of their names."""

    @abstractmethod
    def files(self) -> list[LogFile]:
        """The states of all logs, in the same order."""

    @abstractmethod
    def file(self, path: Path) -> LogFile | None:
        """The state of one; None if it was removed."""

    @abstractmethod
    def changes(self, connection: Connection) -> LogChanges:
        """What may have changed, asked on a reading thread of the database with the index. It takes no longer where
        there are more logs, unless some were added or replaced.
        """

    def indexed(self, files: Collection[LogFile]) -> None:  # noqa: B027 - rows are compared with rows
        """Note that the index has what these logs hold in these states."""

    @abstractmethod
    def is_same(self, connection: Connection, file: LogFile) -> bool:
        """Whether a log was not rewritten since, asked on the thread of the database that writes the index."""

    @abstractmethod
    def is_small(self, path: Path) -> bool:
        """Whether reading it is short work; see `Lanes`."""

    @abstractmethod
    def lines(self, path: Path, *, start: int = 0, number: int = 1) -> Iterator[LogLine]:
        """Read lines, from the place `start` on, where line `number` begins. Empty ones are left out.

        Raises:
            StorageError: It can't be read.
        """

    def newest_at(self, path: Path) -> datetime | None:
        """The time of the newest record of a log, read without the others; None where that can't be told."""
        del path
        return None

    @abstractmethod
    def records(self, path: Path, *, after_seq: int, limit: int) -> tuple[Record, ...]:
        """See `Journal.records`. A log that isn't there has none."""

    # Writing

    @abstractmethod
    def hold(self, session_id: str) -> Hold:
        """Keep other writers of a session out, whether it has a log or not.

        Raises:
            SessionInUse: Another writer has it; the message names its process.
            StorageUnwritable: It can't be noted.
        """

    @abstractmethod
    def writer(self, session_id: str, *, keeps: bool = False) -> int | None:
        """The process that writes a session, as its own machine numbers it; None if none does. With `keeps`, one that
        gives it up counts as none.
        """

    def open_elsewhere(self) -> dict[str, tuple[int, int]]:
        """The sessions that other processes have open, with the generation of each log and the number of its newest
        record. Of files, nothing is known.
        """
        return {}

    def ask(self, session_id: str, *, again: bool) -> bool:
        """Ask the writer of a session to give it up. If it was asked before, `again`, its refusal counts.

        Returns:
            Whether nobody has it any more. If somebody has, ask again a moment later.

        Raises:
            SessionInUse: The writer keeps it; the message names its process.
        """
        self.hold(session_id).release()
        return True

    def asked(self) -> list[str]:
        """The sessions held here that other processes ask for."""
        return []

    def refuse(self, session_id: str) -> None:  # noqa: B027 - files are never asked for
        """Tell whoever asks for a session that something runs in it."""

    def chosen(self, session_id: str) -> str:
        """What was noted with `note_chosen` by whoever had a session open last, if that was within a minute."""
        del session_id
        return ""

    def note_chosen(self, session_id: str, chosen: str) -> None:  # noqa: B027 - files have one server
        """Note what was chosen for a session that is open here, for whoever opens it next."""

    @abstractmethod
    def begin(
        self, path: Path, session_id: str, hold: Hold, *, cwd: str, closed: Callable[[], object]
    ) -> Journal:
        """The journal of a session without a log."""

    @abstractmethod
    def resume(
        self,
        path: Path,
        session_id: str,
        hold: Hold,
        *,
        visit: Callable[[Record], object],
        costs: dict[str, float],
        closed: Callable[[], object],
    ) -> Journal:
        """The journal of a session that goes on. `visit` is called with each record, and has added what it
        cost to `costs` then; `cwd` is still to be set.

        Raises:
            StorageUnwritable, StorageError: The log can't be read or written.
        """

    @abstractmethod
    def create(self, path: Path, session_id: str, records: Sequence[Record]) -> None:
        """Write a whole log that isn't there.

        Raises:
            OSError, StorageError: It can't be written. There is no log.
        """

    @abstractmethod
    def remove(self, path: Path) -> None:
        """Remove a log that is held, and what was spilled from it.

        Raises:
            StorageUnwritable, StorageError: It can't be removed.
        """

    @abstractmethod
    def rewrite(self, path: Path, rewriting: Rewriting) -> None:
        """Replace the lines of a log, which may be open, in one step or not at all.

        Raises:
            OSError, StorageError: It can't be read or written, and is unchanged.
        """

    async def spent(self, day: str) -> float | None:
        """What was spent on a day in US dollars; None where only the logs tell."""
        del day
        return None

    # What is beside a log: long results, attached files, what `/undo` needs

    def fetch(self, path: Path, beginning: str = "") -> None:  # noqa: B027 - files are there
        """Let the folder beside a log hold its files, or those whose names begin like this.

        Raises:
            StorageUnwritable, StorageError: They can't be read or written.
        """

    def keep(self, path: Path, files: Collection[Path]) -> None:  # noqa: B027 - files stay
        """Keep files beside a log that something else than its journal wrote.

        Raises:
            StorageUnwritable, StorageError: They can't be read or written.
        """

    def named(self, beginning: str, session_id: str = "") -> list[Path]:
        """The files beside the logs, or one of them, whose names begin like this: "attached/…"."""
        return sorted(self.root.glob(f"*/*{session_id}.spill/{beginning}*"))

    def rewrite_files(
        self, path: Path, files: Mapping[Path, Callable[[bytes], bytes | None]]
    ) -> tuple[list[Path], bool]:
        """Rewrite files beside a log unless their function returns None.

        Returns:
            Those that were rewritten, and whether some are on another machine.
        """
        del path
        return [file for file, how in files.items() if rewrite_file(file, how, self.root.parent)], False

    def remove_files(self, path: Path, files: Collection[Path]) -> None:
        """Remove files beside a log."""
        del path
        for file in files:
            file.unlink(missing_ok=True)

    def damaged(self) -> list[str] | None:
        """The files beside the logs that are not what was stored; None where files are files."""
        return None

    def compress(self, path: Path) -> Replaced | None:
        """Make a log that is held smaller; None if it is so already."""
        del path
        return None

    def expand(self, path: Path) -> Replaced | None:
        """Make a log that is held one that can be written; None if it is so already."""
        del path
        return None

    @abstractmethod
    def sweep(self, before_s: float) -> None:
        """Remove what is from before a time and not needed: holds of processes that were killed, copies."""
