"""The database: opening it, transactions on its own threads, migrations. This room knows no tables."""

from __future__ import annotations

from satchel.storage.database import Database, DatabaseReport
from satchel.storage.prepared import Prepared
from satchel.storage.schema import HEAD, REVISIONS

__all__ = ["HEAD", "REVISIONS", "Database", "DatabaseReport", "Prepared"]
