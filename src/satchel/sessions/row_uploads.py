"""Files that were sent and are in no message yet, where several servers share a database: any of them finds them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from satchel.errors import StorageError
from satchel.messages import FileBlock
from satchel.sessions.attachments import KEPT, Uploads, upload_key
from satchel.sessions.tables import conversation_uploads
from satchel.storage import Database

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class RowUploads(Uploads):
    """The files as rows. The folder of the home holds one only on its way there."""

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
            row = {"sha256": upload_key(file.sha256), "content": super()._content(file), "at": at}
            table = conversation_uploads

            def write(connection: Connection) -> None:
                connection.execute(delete(table).where(table.c.at < at - KEPT // _MS))
                connection.execute(insert(table).values(row))

            self._database.write_blocking(write)
        finally:
            super()._drop(file)
        return file

    def _content(self, file: FileBlock) -> bytes | None:
        """What a program of this machine attached is in the folder."""
        query = select(conversation_uploads.c.content).where(_sent(file)).limit(1)
        content = self._database.read_blocking(lambda connection: connection.execute(query).scalar())
        return super()._content(file) if content is None else bytes(content)

    def _drop(self, file: FileBlock) -> bool:
        """If the database is away, it is there for the rest of the day."""
        if super()._drop(file):
            return True
        key = conversation_uploads.c.sha256
        one = delete(conversation_uploads).where(key.in_(select(key).where(_sent(file)).limit(1)))
        with suppress(StorageError):
            self._database.write_blocking(lambda connection: connection.execute(one))
        return True


def _sent(file: FileBlock) -> ColumnElement[bool]:
    """Its rows: their keys begin with its hash."""
    return conversation_uploads.c.sha256.startswith(file.sha256, autoescape=True)
