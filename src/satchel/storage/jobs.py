"""The engine of `jobs.db`, the database of the job runner, whose tables are its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event

from satchel.storage import sqlite

_BUSY_TIMEOUT_MS = 30_000


def jobs_engine(path: Path) -> Engine:
    """An engine for the job runner's database, in WAL mode, which the runner itself would not set. The file is created
    for its owner only.

    Raises:
        StorageError: It can't be created, or is on a network file system.
    """
    sqlite.refuse_network(path.parent)
    sqlite.create_file(path)

    def on_connect(connection: Any, _record: object) -> None:
        # The runner's threads begin their transactions as writers; otherwise two that read first can't both write.
        connection.isolation_level = "IMMEDIATE"
        for words in (
            f"busy_timeout={_BUSY_TIMEOUT_MS}",
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "foreign_keys=ON",
        ):
            connection.execute(f"PRAGMA {words}")

    engine = create_engine(f"sqlite:///{path}", module=sqlite.driver())
    event.listen(engine, "connect", on_connect)
    return engine
