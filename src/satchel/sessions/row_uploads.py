"""Files that were sent and are in no message yet, where several servers share a database: any of them finds them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects.postgresql import insert

from satchel.errors import StorageError, StorageUnwritable
from satchel.messages import FileBlock
from satchel.sessions.attachments import KEPT, Uploads
from satchel.sessions.tables import conversation_uploads
from satchel.storage import Database
from satchel.tools.kept import write_kept

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class RowUploads(Uploads):
    """The files as rows. The folder of the home holds one only on its way there or back."""

    def __init__(self, home: Path, database: Database) -> None:
        """`database` is on a server."""
        super().__init__(home)
        self._database = database

    def add(self, pieces: Iterable[bytes], *, name: str, now: datetime) -> FileBlock:
        """See `Uploads.add`.

        Raises:
            StorageError: The database can't take it.
        """
        file = super().add(pieces, name=name, now=now)
        try:
            at = (now - _EPOCH) // _MS
            row = {"sha256": file.sha256, "content": self._place(file).read_bytes(), "at": at}
            table = conversation_uploads

            def write(connection: Connection) -> None:
                connection.execute(delete(table).where(table.c.at < at - KEPT // _MS))
                new = insert(table).values(row)
                connection.execute(new.on_conflict_do_update(index_elements=["sha256"], set_={"at": at}))

            self._database.write_blocking(write)
        finally:
            super().drop([file])
        return file

    def take(self, files: Iterable[FileBlock], spill_dir: Path) -> list[FileBlock]:
        """See `Uploads.take`. What a program of this machine attached is in the folder."""
        wanted = list(files)
        column, key = conversation_uploads.c.content, conversation_uploads.c.sha256
        for file in wanted:
            query = select(column).where(key == file.sha256)
            content = self._database.read_blocking(lambda connection: connection.execute(query).scalar())  # noqa: B023
            if content is not None:
                try:
                    write_kept(self._place(file), bytes(content))
                except OSError as error:
                    raise StorageUnwritable(f"{file.name} can't be stored: {error.strerror}.") from error
        return super().take(wanted, spill_dir)

    def drop(self, files: Iterable[FileBlock]) -> None:
        """See `Uploads.drop`. If the database is away, they are there for the rest of the day."""
        gone = list(files)
        super().drop(gone)
        own = conversation_uploads.c.sha256.in_([file.sha256 for file in gone])
        with suppress(StorageError):
            self._database.write_blocking(
                lambda connection: connection.execute(delete(conversation_uploads).where(own))
            )
