"""The journal: a copy of a space's memories outside of the database, from which a database that is lost is made again.

It is a growing export, one file for each space in `SATCHEL_HOME/journal`. What was stored and changed is appended; what
was forgotten is taken out by its id, and the id stays as a record of that, without words. Where a database has less
than its journal (it is new, or lost its end), what is missing is read back.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.to_thread import run_sync
from sqlalchemy import BindParameter, Connection, bindparam, exists, or_, select, update

from satchel.config.home import locked_folder, replacing, sync_folder
from satchel.errors import StorageUnwritable
from satchel.memory import transfer
from satchel.memory.store.marks import Mark, PendingLines, Rebuilt, There
from satchel.memory.store.tables import changes, distill_windows, memories, pages, spaces

if TYPE_CHECKING:
    from satchel.memory.store.space import Space

FOLDER: Final = "journal"
"""In SATCHEL_HOME."""
_NAMED: Final = re.compile(rb'"(?:id|memory_id|other_id|source|target)":"((?:[^"\\]|\\.)*)"')
"""The memories that a line names, whose words may be in it, as they are written there. In a text, the quotation marks
would be escaped.
"""

_HEAD, _PAGE, _GONE = b'{"type":"satchel-memory"', b'{"type":"page"', b'{"type":"gone"'

_OF: BindParameter[int] = bindparam("space")
_MARK = select(spaces.c.journal).where(spaces.c.id == _OF)
_HAS_NEWS = select(
    or_(
        exists().where(memories.c.space_id == _OF, memories.c.rid > bindparam("rid")),
        exists().where(changes.c.space_id == _OF, changes.c.id > bindparam("change")),
        exists().where(distill_windows.c.space_id == _OF, distill_windows.c.id > bindparam("window")),
        exists().where(pages.c.space_id == _OF, pages.c.number > bindparam("page")),
    )
)


class MemoryJournal:
    """Keeps the journal of one space."""

    def __init__(self, space: Space, home: Path) -> None:
        """Take the space, and the home that has the journal. Nothing is read or written."""
        self._space = space
        self._folder = home / FOLDER
        self._path = self._path_of(space.scope)

    def _path_of(self, scope: str) -> Path:
        name = hashlib.blake2b(f"{self._space.user}\n{scope}".encode(), digest_size=8).hexdigest()
        return self._folder / f"memories-{name}.jsonl"

    async def is_behind(self) -> bool:
        """Whether the journal has what the database doesn't: the database is new, or lost its end."""
        mark = await self._mark()
        return bool(await run_sync(self._file) != (mark.size, mark.stamp))

    async def sync(self, *, whole: bool = False) -> Rebuilt:
        """Read back what the database lacks; append what was stored and changed since the last time, by any process;
        take out what was forgotten.

        `whole` compares all of the journal with the database, and not only what comes after the mark.

        Returns:
            What was read back: nothing, if the database has grown with its journal.
        """
        rebuilt = Rebuilt()
        with anyio.CancelScope(shield=True):
            # Locked before the database is read: nobody appends what another process has forgotten meanwhile.
            async with self._locked():
                size, stamp = await run_sync(self._file)
                mark, there = await self._mark(), There()
                if whole or mark.stamp != stamp or mark.size > size:
                    mark = Mark()
                if mark.size != size:
                    rebuilt = await transfer.read_back(self._space, self._path, mark, there)
                    mark = replace(mark, size=size, stamp=stamp)
                    await self._space.write(_set_mark, mark)
                while await self._space.read(_has_news, mark):
                    pending = await self._space.read(transfer.pending, mark, there)
                    await run_sync(self._write, pending)
                    size, stamp = await run_sync(self._file)
                    mark = replace(pending.mark, size=size, stamp=stamp)
                    await self._space.write(_set_mark, mark)
        return rebuilt

    async def remove(self, scope: str) -> None:
        """Delete the journal of another scope of the user, which is gone."""
        async with self._locked():
            try:
                await run_sync(lambda: self._path_of(scope).unlink(missing_ok=True))
            except OSError as error:
                raise self._unwritable(error) from error

    async def _mark(self) -> Mark:
        text = await self._space.read(lambda at, space: at.execute(_MARK, {"space": space}).scalar())
        return Mark(**json.loads(text)) if text else Mark()

    def _file(self) -> tuple[int, str]:
        """The size of the file, and its stamp: 0 and "" if it is not there, or its first line was lost."""
        try:
            with self._path.open("rb") as stream:
                first = json.loads(stream.readline())
                return os.fstat(stream.fileno()).st_size, str(first["stamp"])
        except FileNotFoundError:
            return 0, ""
        except (ValueError, KeyError, TypeError):
            return self._path.stat().st_size, ""
        except OSError as error:
            raise self._unwritable(error) from error

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        def lock() -> ExitStack:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                locked = ExitStack()
                locked.enter_context(locked_folder(self._folder))
            except OSError as error:
                raise self._unwritable(error) from error
            return locked

        with await run_sync(lock):
            yield

    def _write(self, pending: PendingLines) -> None:
        try:
            if pending.drop or not self._file()[1]:
                self._rewrite(pending)
            else:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
                with os.fdopen(os.open(self._path, flags), "ab") as stream:
                    if not _ends_line(self._path):
                        stream.write(b"\n")  # a crash cut the last line
                    stream.writelines(pending.lines)
        except OSError as error:
            raise self._unwritable(error) from error

    def _rewrite(self, pending: PendingLines) -> None:
        """Leave out the lines of some memories for good, and what is no whole line."""
        with replacing(self._path) as out:
            out.write(json.dumps({**pending.head, "stamp": secrets.token_hex(8)}).encode() + b"\n")
            with suppress(FileNotFoundError), self._path.open("rb") as lines:
                drop = {json.dumps(id, ensure_ascii=False)[1:-1].encode() for id in pending.drop}
                out.writelines(raw for raw in lines if _stays(raw, drop))
            out.writelines(pending.lines)
        sync_folder(self._folder)

    def _unwritable(self, error: OSError) -> StorageUnwritable:
        return StorageUnwritable(f"{self._path}, the journal of memories, can't be used: {error.strerror}.")


def _ends_line(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"


def _stays(raw: bytes, drop: set[bytes]) -> bool:
    """Whether a line is whole, is no first line, and has no words of these memories. That one is gone says none; all
    versions of the page are written anew, without what was forgotten.
    """
    if not (raw.startswith(b'{"type":"') and raw.endswith(b"}\n")) or raw.startswith(_HEAD):
        return False
    if raw.startswith(_PAGE):
        return not drop
    return raw.startswith(_GONE) or drop.isdisjoint(_NAMED.findall(raw))


def _has_news(connection: Connection, space: int, mark: Mark) -> bool:
    return bool(connection.execute(_HAS_NEWS, {"space": space, **asdict(mark)}).scalar())


def _set_mark(connection: Connection, space: int, mark: Mark) -> None:
    connection.execute(update(spaces).where(spaces.c.id == space).values(journal=json.dumps(asdict(mark))))
