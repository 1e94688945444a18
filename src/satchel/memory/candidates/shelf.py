"""The arrays of a space as a file beside the database, so that a process need not compute them again.

The file is derived, and believed only where it says what the database says: both have a stamp, a random number that
changes whenever the file is written and whenever something is forgotten. A file with another stamp is removed. So an
older copy of the database, another database under the same name, and an interrupted forgetting all end in the same
way: the arrays are made anew.

What is forgotten is overwritten in the file while the caller waits. A lock keeps writers and those who erase apart.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from satchel.memory import lexicon
from satchel.memory.candidates.array_file import ArrayFile, DamagedFile, NewColumn
from satchel.memory.candidates.stamps import Stale

__all__ = ["Shelf", "Stocked"]

_log = logging.getLogger(__name__)

_FORMAT = 4
"""Of the columns and of what they mean; a file of another format is removed."""
_LOCK_WAIT_S = 10.0
"""How long to wait for another process that writes: twenty times what 100,000 memories take."""
_LOCK_POLL_S = 0.005


class _LockBusy(Exception):
    """Another process kept the lock for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stocked:
    """Arrays that were read from a file.

    Attributes:
        changed: The change of the space that they are complete up to.
        arrays: The columns by name; see `Index.freeze`.
    """

    changed: int
    arrays: Mapping[str, Any]


class Shelf:
    """The file of one space. Its calls block; they are made on memory's own thread."""

    def __init__(self, folder: Path, space: int) -> None:
        """Nothing is touched before the first call.

        Args:
            folder: Where the files of all spaces are; made where it is missing.
            space: The id of the space.
        """
        self._folder = folder
        self._space = space
        self.path = folder / f"{space}.arrays"
        self._unfinished = folder / f"{space}.arrays.new"
        self._lock_path = folder / f"{space}.lock"

    @property
    def exists(self) -> bool:
        """Whether there is a file, or the rest of one."""
        return self.path.exists() or self._unfinished.exists()

    def load(self, *, stamp: str | None, changed: int) -> Stocked | None:
        """What the file holds, or None where there is none that can be believed; such a file is removed.

        Args:
            stamp: What the database says.
            changed: The change that the space has come to; a file can't be newer.
        """
        if not self.path.exists():
            return None
        try:
            with self._locked(fcntl.LOCK_SH):
                file = ArrayFile.open(self.path)
                found = self._read(file.facts, stamp)
        except FileNotFoundError:
            return None
        except _LockBusy:
            return None  # It is being written; the database has everything.
        except (DamagedFile, OSError) as error:
            _log.info("The arrays of memory in %s are made anew: %s", self.path, error)
            self.discard()
            return None
        if found is None or found["changed"] > changed:
            self.discard()
            return None
        return Stocked(changed=found["changed"], arrays=file.arrays)

    def _read(self, facts: Mapping[str, Any], stamp: str | None) -> dict[str, Any] | None:
        """The facts of a file that is ours and has this stamp."""
        if stamp is None or any(facts.get(name) != value for name, value in self._own(stamp).items()):
            return None
        return dict(facts)

    def _own(self, stamp: str) -> dict[str, Any]:
        return {"format": _FORMAT, "lexicon": lexicon.VERSION, "space": self._space, "stamp": stamp}

    @contextmanager
    def writing(self) -> Iterator[Shelf | None]:
        """Hold the lock for `write`; gives None where another process writes now."""
        try:
            with self._locked(fcntl.LOCK_EX, wait_s=0.0):
                yield self
        except (_LockBusy, OSError):
            yield None

    def write(self, columns: Mapping[str, NewColumn], *, changed: int, stamp: str) -> bool:
        """Write a file beside the present one. `publish` puts it in its place, once the database has the stamp.

        The caller is in `writing`.

        Args:
            columns: See `Index.freeze`.
            changed: The change of the space that they are complete up to.
            stamp: What the database will say.

        Returns:
            Whether it was written; a full disk is no error, since the database has everything.
        """
        facts = {**self._own(stamp), "changed": changed}
        try:
            self._unfinished.unlink(missing_ok=True)
            ArrayFile.write(self._unfinished, facts, columns)
        except OSError as error:
            _log.warning(
                "The arrays of memory can't be kept in %s: %s", self._folder, error.strerror or error
            )
            self.drop_unfinished()
            return False
        return True

    def publish(self) -> bool:
        """Put what was written in the place of the present file."""
        try:
            self._unfinished.replace(self.path)
            _sync(self._folder)
        except OSError:
            # Who could not wait for the lock has removed it.
            self.drop_unfinished()
            return False
        return True

    def drop_unfinished(self) -> None:
        """Remove what was written and is not to be published."""
        with suppress(OSError):
            self._unfinished.unlink(missing_ok=True)

    def changed(self) -> int | None:
        """The change that the file is complete up to, or None where there is no file."""
        try:
            return int(ArrayFile.read_facts(self.path)["changed"])
        except (DamagedFile, OSError, KeyError, TypeError, ValueError):
            return None

    def scrub(self, stale: Stale, *, before: str | None) -> bool:
        """Erase what is gone or has changed since the file was written, or remove the file where that can't be done.

        Args:
            stale: What the database says, read after `changed` of this shelf.
            before: The stamp that the database had until something was forgotten just now; None where nothing was.

        Returns:
            Whether nothing of them is left.
        """
        if not self.exists:
            return True
        try:
            with self._locked(fcntl.LOCK_EX):
                # Whoever wrote it is dead, since we have the lock.
                self._unfinished.unlink(missing_ok=True)
                self._erase(stale, before=before)
        except FileNotFoundError:
            return True
        except (DamagedFile, _LockBusy, OSError, KeyError, ValueError):
            return self.discard()
        return True

    def _erase(self, stale: Stale, *, before: str | None) -> None:
        file = ArrayFile.open(self.path)
        facts = self._read(file.facts, before) or self._read(file.facts, stale.stamp)
        if facts is None or facts["changed"] < stale.since:
            raise DamagedFile("It is of another time.")
        # What another process wrote meanwhile is newer than the oldest of these changes, and is not read again.
        rids = [rid for rid, changed in stale.rids.items() if changed > facts["changed"]]
        spans = spans_of(file.arrays, rids)
        if spans or facts["stamp"] != stale.stamp:
            ArrayFile.erase(self.path, spans, facts={**facts, "stamp": stale.stamp})

    def has_stamp(self, stamp: str | None) -> bool:
        """Whether there is no file, or one with this stamp; its arrays are not checked."""
        if not self.path.exists():
            return True
        try:
            return self._read(ArrayFile.read_facts(self.path), stamp) is not None
        except FileNotFoundError:
            return True
        except (DamagedFile, OSError):
            return False

    def trouble(self, stamp: str | None) -> str | None:
        """Why the file is not believed, in words for the user; None where it is, or where there is none."""
        if not self.path.exists():
            return None
        try:
            with self._locked(fcntl.LOCK_SH):
                file = ArrayFile.open(self.path)
        except (FileNotFoundError, _LockBusy):
            return None
        except (DamagedFile, OSError) as error:
            return f"{self.path} is damaged: {error}"
        if self._read(file.facts, stamp) is None:
            return f"{self.path} belongs to another state of the database."
        return None

    def discard(self) -> bool:
        """Remove the file; gives whether it is gone. A process that has mapped it keeps what it has."""
        try:
            self.path.unlink(missing_ok=True)
            self._unfinished.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s can't be removed: %s", self.path, error.strerror or error)
            return False
        return True

    @contextmanager
    def _locked(self, kind: int, *, wait_s: float = _LOCK_WAIT_S) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            give_up_at = time.monotonic() + wait_s
            while True:
                try:
                    fcntl.flock(fd, kind | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() >= give_up_at:
                        raise _LockBusy(f"{self._lock_path} is locked.") from error
                time.sleep(_LOCK_POLL_S)
            yield
        finally:
            os.close(fd)


def spans_of(arrays: Mapping[str, Any], rids: Collection[int]) -> dict[str, Sequence[tuple[int, int]]]:
    """Where the columns of a file hold what is known of some memories; empty where they hold nothing."""
    known = arrays["rid"]
    wanted = np.array(sorted(rids), dtype=np.int64)
    rows = np.flatnonzero(np.isin(known, wanted))
    if not len(rows):
        return {}
    # A row keeps its rid, which the database's own tombstone has too, so that the rows stay in order.
    spans: dict[str, Sequence[tuple[int, int]]] = {
        name: [(row, row + 1) for row in rows.tolist()]
        for name, values in arrays.items()
        if len(values) == len(known) and name in _ERASED
    }
    first, last = (np.searchsorted(arrays["entry_row"], rows, side=side) for side in ("left", "right"))
    entries = [span for span in zip(first.tolist(), last.tolist(), strict=True) if span[1] > span[0]]
    spans["entry_stem"] = spans["entry_count"] = entries
    return spans


_ERASED = (
    "stream",
    "voice",
    "minute",
    "turn",
    "position",
    "day",
    "speaker",
    "words",
    "stem_count",
    "features",
)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
