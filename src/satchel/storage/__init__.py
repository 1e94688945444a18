"""The database: opening it, transactions on its own threads, migrations. This room knows no tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.storage.database import Database, DatabaseReport, is_server
    from satchel.storage.prepared import Prepared
    from satchel.storage.reading import Rows
    from satchel.storage.schema import HEAD, REVISIONS

__all__ = ["HEAD", "REVISIONS", "Database", "DatabaseReport", "Prepared", "Rows", "is_server"]

# A hook of another agent only reads, without SQLAlchemy.
__getattr__ = on_demand(
    __name__,
    {
        "database": ("Database", "DatabaseReport", "is_server"),
        "prepared": ("Prepared",),
        "reading": ("Rows",),
        "schema": ("HEAD", "REVISIONS"),
    },
)
