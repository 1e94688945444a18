"""The database: opening it, transactions on its own threads, migrations. Knows no table."""

from __future__ import annotations

from satchel.storage.database import Database, DatabaseReport
from satchel.storage.prepared import Prepared
from satchel.storage.schema import HEAD, REVISIONS

__all__ = ["HEAD", "REVISIONS", "Database", "DatabaseReport", "Prepared"]
