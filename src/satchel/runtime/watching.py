"""Watched folders: documents below them are remembered, replaced and removed as the files change.

`SATCHEL_HOME/watched` has `folders.json`, which is the user's wish, and a file for each folder with what the last look
saw, so that unchanged files are not read again and forgotten ones stay forgotten.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.to_thread import run_sync

from satchel.config.home import ensure_home, locked_folder, replace_file
from satchel.errors import NotFound, SandboxError, SatchelError, UsageError
from satchel.memory import Memory, StoredDocument
from satchel.runtime.documents import add_document, below, digest_of, is_gone, remove_documents
from satchel.runtime.home import Home
from satchel.runtime.lines import counted
from satchel.runtime.sandboxes import Sandboxes
from satchel.sandbox.detached import work_lock
from satchel.tools.builtin.tree import FoundPath
from satchel.tools.documents.reading import Document, is_small, read_small

_log = logging.getLogger(__name__)

_LOCK: Final = "watching"
_MOST_A_LOOK: Final = 100
"""Files that are read at once, so that other work of the process has its turn."""
_SAVE_EVERY: Final = 20
"""Files between two savings, and that are read together if they are small. After a kill, those that are stored already
are only compared by their hashes."""
_AGAIN_S: Final = 86_400.0
"""When a file that could not be read is tried again though it hasn't changed: a package may be there by then."""
_LEFT_OUT: Final = "It has the bytes of a document that was forgotten."


@dataclass(slots=True)
class _Seen:
    """A file when it was read, at `at`.

    Attributes:
        digest: The hash of what is remembered of it; "" if nothing is.
        error: Why it could not be remembered as it was then; "" if it was.
    """

    mtime_ns: int
    size: int
    digest: str
    error: str
    at: float


@dataclass(slots=True)
class _State:
    """What is kept of a folder.

    Attributes:
        files: By path, relative to the folder.
        forgotten: Documents that the user forgot: the hash of the path, and that of the bytes; the latter twice if
            the path is wanted again.
        left: Files that are still to be read.
        note: Why nothing was done; "" if all is well.
        at: When it was looked at, in seconds since 1970; 0 is never.
    """

    files: dict[str, _Seen] = field(default_factory=dict)
    forgotten: dict[str, str] = field(default_factory=dict)
    left: int = 0
    note: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFolder:
    """A watched folder, as lists show it.

    Attributes:
        documents: How many of its documents are remembered.
        left: How many files are still to be read.
        failed: Why files could not be read, by their paths.
        forgotten: How many of its documents the user has forgotten; they are left out.
        note: Why nothing is done now, such as that it is empty; "" if all is well.
        looked_at: When it was looked at last, in ISO 8601; None before the first time.
    """

    path: str
    documents: int
    left: int
    failed: dict[str, str]
    forgotten: int
    note: str
    looked_at: str | None


def watch(home: Home, folder: Path) -> Path:
    """Watch a folder from now on; of one that is watched already, what could not be read is tried again. Blocks.

    Returns:
        Its path without symbolic links.

    Raises:
        NotFound: It is no folder.
        UsageError: It lies in Satchel's own, or in or around a watched one, or can't be a path.
        StorageUnwritable: The home can't take it.
    """
    real = _real(folder)
    if not real.is_dir():
        raise NotFound(f"There is no folder {folder}.")
    own = home.settings.home.resolve()
    if real.is_relative_to(own) or (
        own.is_relative_to(real) and not any(part.startswith(".") for part in own.relative_to(real).parts)
    ):
        raise UsageError(f"{real} has Satchel's own files in it. Watch the folders beside them.")
    with _wished(home) as folders:
        for other in map(Path, folders):
            if other != real and (other.is_relative_to(real) or real.is_relative_to(other)):
                raise UsageError(
                    f"{other} is watched, and one of the two is in the other. Stop that one first."
                )
        if str(real) not in folders:
            folders.append(str(real))
    state = _state(home, str(real))
    for seen in state.files.values():
        seen.at = 0 if seen.error else seen.at
    _write(home, str(real), state)
    return real


async def unwatch(home: Home, memory: Memory, folder: str, *, remove: bool = False) -> int:
    """Stop watching a folder. What is remembered stays, or is removed.

    Returns:
        How many documents were removed.

    Raises:
        NotFound: It is not watched.
        UsageError: It can't be a path.
        StorageError: Memory could not be written.
    """
    path = await run_sync(_stop, home, folder)
    found = [one for one in await memory.documents() if Path(one.path).is_relative_to(path)] if remove else []
    return len(await remove_documents(found, memory))


def _stop(home: Home, folder: str) -> str:
    """Take a folder off the list; its path."""
    with _wished(home) as folders:
        found = {folder, str(_real(Path(folder)))} & {*folders}
        if not found:
            raise NotFound(f"{folder} is not watched. `satchel memory watch --list` shows what is.")
        path = found.pop()
        folders.remove(path)
        _place(home, path).unlink(missing_ok=True)
    return path


def _real(folder: Path) -> Path:
    try:
        real = folder.expanduser().resolve()
        real.exists()  # raises if the path is too long
    except (RuntimeError, ValueError, OSError) as error:  # an unknown user, a NUL
        raise UsageError(
            f"{str(folder)!a} can't be the path of a folder: {error}".rstrip(".") + "."
        ) from error
    return real


async def watched(home: Home, memory: Memory) -> tuple[WatchedFolder, ...]:
    """The watched folders, by their paths."""
    documents = [Path(one.path) for one in await memory.documents()]
    return tuple(
        WatchedFolder(
            path=path,
            documents=sum(one.is_relative_to(path) for one in documents),
            left=state.left,
            failed={
                name: seen.error for name, seen in state.files.items() if seen.error not in ("", _LEFT_OUT)
            },
            forgotten=len(state.forgotten),
            note=state.note,
            looked_at=datetime.fromtimestamp(state.at).astimezone().isoformat() if state.at else None,
        )
        for path in sorted(_folders(home))
        for state in [_state(home, path)]
    )


def has_watched(home: Path) -> bool:
    """Whether any folder is watched."""
    return (home / "watched" / "folders.json").exists()


def folder_line(one: WatchedFolder) -> str:
    """What is said of a watched folder after its path."""
    parts = [counted(one.documents, "document")]
    if one.left:
        parts.append(f"{one.left:,} still to be read")
    if one.failed:
        parts.append(f"{len(one.failed):,} could not be read")
    if one.forgotten:
        parts.append(f"{one.forgotten:,} forgotten and left out")
    if one.looked_at is None:
        parts.append("not looked at yet")
    return ", ".join(parts) + (f". {one.note}" if one.note else "")


class Watching:
    """Looks at the watched folders of an open home."""

    def __init__(self, home: Home, sandboxes: Sandboxes) -> None:
        """Nothing runs before `keep_looking` or `look`."""
        self._home = home
        self._sandboxes = sandboxes
        self._wake = anyio.Event()

    def wake(self) -> None:
        """Look now: a folder is new."""
        self._wake.set()

    async def keep_looking(self) -> None:
        """Look at the folders again and again, every `memory.watch_every_s`."""
        while True:
            self._wake = anyio.Event()
            try:
                while await self.look():
                    pass
            except SatchelError as error:
                _log.info("Watched folders were not looked at: %s", error)
            with anyio.move_on_after(self._home.settings.memory.watch_every_s):
                await self._wake.wait()

    async def look(self, tell: Callable[[str], None] = lambda _: None) -> bool:
        """Take in what has changed, a hundred files at most. Nothing is done if another process is at it.

        Returns:
            Whether there is more to be read.

        Raises:
            StorageError: Memory or the home could not be written.
        """
        memory, home = self._home.memory, self._home.settings.home
        if memory is None or not has_watched(home):
            return False
        lock = await run_sync(work_lock, home, _LOCK)
        if lock is None:
            return False
        try:
            has_more = False
            for path in _folders(self._home):
                try:
                    has_more |= await self._look_at(path, memory, tell)
                except SandboxError as error:
                    state = _state(self._home, path)
                    state.note = f"It can't be read now. {error}"
                    self._save(path, state)
            return has_more
        finally:
            lock.release()

    async def _look_at(self, path: str, memory: Memory, tell: Callable[[str], None]) -> bool:
        folder, now = Path(path), self._home.clock.now().timestamp()
        state = _state(self._home, path)
        state.note, state.left, state.at = "", 0, now
        inside = path.rstrip("/") + "/"
        known = {
            one.path.removeprefix(inside): one
            for one in await memory.documents()
            if one.path.startswith(inside)
        }
        found = await run_sync(lambda: {one.path: one for one in below(folder)})
        if not found and known:
            missing = "It is empty" if await run_sync(folder.is_dir) else "It is not there"
            state.note = (
                f"{missing}, or not mounted. Its {counted(len(known), 'document stays', 'documents stay')} until "
                f"you say: satchel memory watch --stop --remove {path}"
            )
            self._save(path, state)
            return False
        gone = await run_sync(
            lambda: [name for name in {*known, *state.files} - found.keys() if is_gone(folder / name)]
        )
        for name in gone:
            state.files.pop(name, None)
        for name in [name for name, seen in state.files.items() if seen.digest and name not in known]:
            state.forgotten[_hash(name)] = state.files.pop(name).digest
        for name, stored in known.items():
            if (digest := state.forgotten.pop(_hash(name), stored.digest)) != stored.digest:
                state.forgotten[digest] = digest
            if name in state.files:
                state.files[name].digest = stored.digest
        blocked = {*state.forgotten.values()} - {stored.digest for stored in known.values()}
        due = [one for one in found.values() if _is_due(one, state, now)]
        state.left = len(due)
        # Saved first: after a kill in between, nobody forgot what is removed here.
        if not self._save(path, state):
            return False
        removed = await remove_documents([known.pop(name) for name in gone if name in known], memory)
        counts = {"removed": len(removed)}
        for at in range(0, min(len(due), _MOST_A_LOOK), _SAVE_EVERY):
            state.left = len(due) - at
            if not self._save(path, state):
                return False
            group = due[at : at + _SAVE_EVERY]
            digests, ready = await self._ready(folder, group, known, blocked)
            for one in group:
                digest = digests.get(one.path, "")
                document = ready.get(folder / one.path)
                old = known.get(one.path)
                if old is None and digest in blocked:
                    outcome, digest, error = "left out", "", _LEFT_OUT
                else:
                    done = await add_document(
                        folder / one.path,
                        old,
                        memory,
                        self._sandboxes,
                        ready=None if document is None else (digest, document),
                    )
                    outcome = done.outcome
                    error = done.error or ("" if done.passages else "There is nothing in it to remember.")
                    if error:
                        digest = old.digest if old and done.error else ""
                    if path not in _folders(self._home):
                        # Whoever stopped it has removed the others, or wants no more of them.
                        if outcome == "added":
                            found_now = await memory.documents()
                            await remove_documents(
                                [one for one in found_now if one.path == done.path], memory
                            )
                        return False
                state.files[one.path] = _Seen(one.mtime_ns, one.size, digest, error, now)
                counts[outcome] = counts.get(outcome, 0) + 1
        state.left = max(0, len(due) - _MOST_A_LOOK)
        if said := ", ".join(
            f"{number} {what}" for what, number in counts.items() if number and what != "unchanged"
        ):
            tell(f"documents of a watched folder: {said}")
        return self._save(path, state) and state.left > 0

    async def _ready(
        self,
        folder: Path,
        group: Sequence[FoundPath],
        known: Mapping[str, StoredDocument],
        blocked: Set[str],
    ) -> tuple[dict[str, str], dict[Path, Document]]:
        """The hashes of some files, and what the small ones of them say that are new."""
        digests: dict[str, str] = {}
        small = []
        for one in group:
            with suppress(OSError):  # `add_document` says why
                digest, _ = await run_sync(digest_of, folder / one.path)
                digests[one.path] = digest
                stored = known.get(one.path)
                if is_small(folder / one.path, one.size) and (
                    digest not in blocked if stored is None else digest != stored.digest
                ):
                    small.append(folder / one.path)
        return digests, await read_small(small, await self._sandboxes.get()) if len(small) > 1 else {}

    def _save(self, path: str, state: _State) -> bool:
        """Keep the state; False if the folder is not watched any more."""
        with locked_folder(self._home.settings.home / "watched"):
            if path not in _folders(self._home):
                return False
            _write(self._home, path, state)
        return True


def _is_due(one: FoundPath, state: _State, now: float) -> bool:
    """Whether a file has to be read."""
    seen = state.files.get(one.path)
    if state.forgotten and _hash(one.path) in state.forgotten:
        return False
    if seen is None or (seen.mtime_ns, seen.size) != (one.mtime_ns, one.size):
        return True
    return bool(seen.error) and not 0 <= now - seen.at < _AGAIN_S


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _folders(home: Home) -> list[str]:
    try:
        found: list[str] = json.loads(
            (home.settings.home / "watched" / "folders.json").read_text(encoding="utf-8")
        )
    except (OSError, ValueError):
        return []
    return found


@contextmanager
def _wished(home: Home) -> Iterator[list[str]]:
    """The watched folders, which are written back unless an exception is raised."""
    place = ensure_home(home.settings.home / "watched")
    with locked_folder(place):
        folders = _folders(home)
        yield folders
        replace_file(place / "folders.json", json.dumps(folders))


def _place(home: Home, path: str) -> Path:
    return home.settings.home / "watched" / f"{_hash(path)}.json"


def _state(home: Home, path: str) -> _State:
    try:
        kept: dict[str, Any] = json.loads(_place(home, path).read_text(encoding="utf-8"))
        files = {name: _Seen(*seen) for name, seen in kept.pop("files").items()}
        return _State(files=files, **kept)
    except (OSError, ValueError, TypeError, KeyError):
        return _State()  # All is compared again by its hash.


def _write(home: Home, path: str, state: _State) -> None:
    # By hand, because this is done for every twenty files: `asdict` copies each of ten thousand records first.
    files = {
        name: (seen.mtime_ns, seen.size, seen.digest, seen.error, seen.at)
        for name, seen in state.files.items()
    }
    kept = {
        "files": files,
        "forgotten": state.forgotten,
        "left": state.left,
        "note": state.note,
        "at": state.at,
    }
    replace_file(_place(home, path), json.dumps(kept))
