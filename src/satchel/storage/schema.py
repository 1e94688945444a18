"""Which states of the schema this program knows: the names of the migrations, oldest first."""

from __future__ import annotations

__all__ = ["HEAD", "REVISIONS"]

REVISIONS: tuple[str, ...] = (
    "0001_memory",
    "0002_sessions",
    "0003_distilling",
    "0004_lifecycle",
    "0005_token_vectors",
    "0006_inbox",
)
"""Every migration in `migrations/versions`, in the order they are applied. Add yours at the end.

A database whose revision is not in here was written by a newer program and is refused untouched. The list
stands here, and not only in the migrations, so that opening a database that is up to date need not import
Alembic; a test checks that both agree.
"""

HEAD = REVISIONS[-1]
