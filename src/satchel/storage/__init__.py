"""The database: opening it, transactions on its own threads, migrations. This room knows no tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.storage.database import Database as Database
    from satchel.storage.database import DatabaseReport as DatabaseReport
    from satchel.storage.database import is_server as is_server
    from satchel.storage.prepared import Prepared as Prepared
    from satchel.storage.reading import Rows as Rows
    from satchel.storage.schema import HEAD as HEAD
    from satchel.storage.schema import REVISIONS as REVISIONS

# A hook of another agent only reads, without SQLAlchemy.
__getattr__ = on_demand(__name__)
