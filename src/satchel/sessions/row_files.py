"""What is beside a log on a server: long results, attached files, what `/undo` needs, as rows of a conversation.

The folder beside the log stays where tools find and write these files. It is a copy that may be emptied: what was
written to it is stored in the transaction that stores the next records, so that no record names what isn't there.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from io import BufferedReader
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import quote_from_bytes, unquote_to_bytes

from sqlalchemy import Connection, delete, insert, select, text

from satchel.config.home import replacing
from satchel.errors import StorageCorrupt
from satchel.sessions.tables import conversation_files, conversation_parts

_PART: Final = 1 << 20
"""Bytes of a row."""
_MOST_NAME: Final = 2000
"""A longer one is not stored: an index of PostgreSQL takes 2,700 bytes."""
_CHANGES: Final = "changes/"
"""What `/undo` needs is here before its file is changed; the next record may never come."""

_DAMAGED: Final = (
    "SELECT session_id, f.name FROM conversation_files f LEFT JOIN conversation_parts p USING (session_id, name) "
    "GROUP BY session_id, f.name, f.sha256 "
    "HAVING encode(sha256(coalesce(string_agg(p.content, '' ORDER BY p.part), '')), 'hex') <> f.sha256"
)
_DAMAGED_OF: Final = _DAMAGED.replace("GROUP BY", "WHERE session_id = :session GROUP BY")

Whose: TypeAlias = Literal["opened", "followed", "read"]


class _Known(NamedTuple):
    """A file here that is on the server as well."""

    mtime_ns: int
    size: int
    sha256: str


Changed: TypeAlias = dict[str, _Known]


class RowFiles:
    """The files beside the logs of a home. All methods block, and are called in transactions of the caller's."""

    def __init__(self) -> None:
        self._known: dict[str, Changed] = {}

    def forget(self, session_id: str) -> None:
        """Know nothing of the files of a conversation any more."""
        self._known.pop(session_id, None)

    def note(self, session_id: str, changed: Changed) -> None:
        """Note what `store` has stored, after its transaction."""
        self._known.setdefault(session_id, {}).update(changed)

    def changes(self, session_id: str, folder: Path, names: Collection[str] | None = None) -> list[str]:
        """The names of the files here, or of some of them, that may not be on the server as they are."""
        known = self._known.get(session_id, {})
        return [
            name
            for name, (_, state) in _files_in(folder).items()
            if (names is None or name in names) and not _is_as(state, known.get(name))
        ]

    def store(
        self, connection: Connection, session_id: str, folder: Path, names: Collection[str] | None = None
    ) -> Changed:
        """Store files as they are here.

        Raises:
            OSError: One can't be read.
        """
        changed: Changed = {}
        for name in self.changes(session_id, folder, names):
            with suppress(FileNotFoundError), (folder / file_path(name)).open("rb") as file:
                state, sha256 = os.fstat(file.fileno()), _digest(file)
                file.seek(0)
                if _of(connection, session_id, name).get(name, ("", 0))[0] != sha256:
                    # A tool may write to it meanwhile; then it is stored again.
                    pieces = iter(partial(file.read, _PART), b"")
                    sha256 = _write(connection, session_id, name, pieces)
                changed[name] = _Known(state.st_mtime_ns, state.st_size, sha256)
        return changed

    def fetch(
        self, connection: Connection, session_id: str, folder: Path, *, whose: Whose, beginning: str = ""
    ) -> None:
        """Let the folder hold what the server has.

        Args:
            connection: In one snapshot.
            session_id: The conversation.
            folder: Its folder.
            whose: "opened", and nobody else writes it: what the server doesn't have is removed, and what differs there
                replaced. "followed": only what is here as it was on the server. "read": only what isn't here is added,
                because a writer may be about to store the rest.
            beginning: Of the names; the others are left alone.

        Raises:
            OSError: A file can't be written.
        """
        there, here = _of(connection, session_id, beginning), _files_in(folder)
        known = self._known.setdefault(session_id, {})
        for name, (sha256, size) in there.items():
            if name in here:
                path, state = here[name]
                is_known = _is_as(state, known.get(name))
                if whose == "read" or (is_known and known[name].sha256 == sha256):
                    continue
                if not is_known and (whose == "followed" or _begins(path, state.st_size, size, sha256)):
                    if state.st_size == size and whose != "followed":
                        known[name] = _Known(state.st_mtime_ns, size, sha256)
                    continue
            path = folder / file_path(name)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(path, durable=False) as out:
                for part in _parts(connection, session_id, name):
                    out.write(part)
            state = path.stat()
            known[name] = _Known(state.st_mtime_ns, state.st_size, sha256)
        for name in here.keys() - there.keys():
            path, state = here[name]
            is_stale = whose != "read" and _is_as(state, known.get(name))
            if whose == "opened" and not name.startswith(_CHANGES):
                is_stale = name.startswith(beginning)
            if is_stale:
                path.unlink(missing_ok=True)

    def rewrite(
        self, connection: Connection, session_id: str, name: str, how: Callable[[bytes], bytes | None]
    ) -> bool | None:
        """Rewrite a file on the server, unless `how` returns None. Returns whether it was; None if it isn't there."""
        if name not in _of(connection, session_id, name):
            return None
        new = how(b"".join(_parts(connection, session_id, name)))
        if new is not None:
            _write(connection, session_id, name, (new[at : at + _PART] for at in range(0, len(new), _PART)))
        return new is not None

    def is_stored(self, connection: Connection, session_id: str, folder: Path) -> bool:
        """Whether emptying the folder loses nothing: what the server has differs in no size, and it has all that
        `/undo` needs.
        """
        there = _of(connection, session_id, "")
        return all(
            state.st_size == there[name][1] if name in there else not name.startswith(_CHANGES)
            for name, (_, state) in _files_in(folder).items()
        )


def remove_files(connection: Connection, session_id: str, name: str | None = None) -> None:
    """Remove a file of a conversation, or all."""
    for table in (conversation_parts, conversation_files):
        gone = delete(table).where(table.c.session_id == session_id)
        connection.execute(gone if name is None else gone.where(table.c.name == name))


def has_files(connection: Connection, session_id: str) -> bool:
    """Whether the server has any file of a conversation."""
    return bool(_of(connection, session_id, ""))


def damaged_files(connection: Connection, session_id: str | None = None) -> list[tuple[str, str]]:
    """Session and name of the files on the server whose bytes are not those of their hash."""
    query = _DAMAGED if session_id is None else _DAMAGED_OF
    return [(id, name) for id, name in connection.execute(text(query), {"session": session_id})]


def name_in(folder: Path, path: Path) -> str | None:
    """The name of a file beside a log; None for another one."""
    return quoted(str(path.relative_to(folder))) if path.is_relative_to(folder) else None


@lru_cache(maxsize=4096)
def quoted(name: str) -> str:
    """A name, or the beginning of one, as it is stored."""
    return quote_from_bytes(os.fsencode(name), safe="/ ")


def _files_in(folder: Path) -> dict[str, tuple[Path, os.stat_result]]:
    """The plain files below a folder. Those that are being written begin with a dot."""
    found: dict[str, tuple[Path, os.stat_result]] = {}
    for at, _, files in os.walk(folder):  # follows no links
        for each in files:
            path = f"{at}/{each}"
            name = quoted(path[len(str(folder)) + 1 :])
            with suppress(FileNotFoundError):
                state = os.lstat(path)
                if stat.S_ISREG(state.st_mode) and not each.startswith(".") and len(name) <= _MOST_NAME:
                    found[name] = Path(path), state
    return found


def file_path(name: str) -> Path:
    """The path of a file below the folder beside its log."""
    path = Path(os.fsdecode(unquote_to_bytes(name)))
    if path.is_absolute() or ".." in path.parts:
        raise StorageCorrupt(f"The server names a file {name!r} that can't be beside a conversation.")
    return path


def _is_as(state: os.stat_result, known: _Known | None) -> bool:
    return known is not None and (state.st_mtime_ns, state.st_size) == known[:2]


def _digest(file: BufferedReader) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _begins(path: Path, here: int, size: int, sha256: str) -> bool:
    """Whether a file is the one on the server, or longer: a process was killed before it stored the rest."""
    if here != size and not 0 < size < here:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (piece := file.read(min(size, _PART))):
            digest.update(piece)
            size -= len(piece)
    return size == 0 and digest.hexdigest() == sha256


def _of(connection: Connection, session_id: str, beginning: str) -> dict[str, tuple[str, int]]:
    """Hash and size of the files of a conversation whose names begin like this."""
    names = conversation_files.c.name
    query = select(names, conversation_files.c.sha256, conversation_files.c.size).where(
        conversation_files.c.session_id == session_id, names.startswith(beginning, autoescape=True)
    )
    return {name: (sha256, int(size)) for name, sha256, size in connection.execute(query)}


def _parts(connection: Connection, session_id: str, name: str) -> Iterator[bytes]:
    part = 0
    while True:
        query = select(conversation_parts.c.content).where(
            conversation_parts.c.session_id == session_id,
            conversation_parts.c.name == name,
            conversation_parts.c.part == part,
        )
        if (content := connection.execute(query).scalar()) is None:
            return
        yield bytes(content)
        part += 1


def _write(connection: Connection, session_id: str, name: str, content: Iterator[bytes]) -> str:
    """Store a file, and return its hash."""
    remove_files(connection, session_id, name)
    digest, size = hashlib.sha256(), 0
    for part, piece in enumerate(content):
        values = {"session_id": session_id, "name": name, "part": part, "content": piece}
        connection.execute(insert(conversation_parts).values(values))
        digest.update(piece)
        size += len(piece)
    values = {"session_id": session_id, "name": name, "sha256": digest.hexdigest(), "size": size}
    connection.execute(insert(conversation_files).values(values))
    return digest.hexdigest()
