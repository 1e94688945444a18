"""The schema revisions that this program knows: the names of the migrations, oldest first."""

from __future__ import annotations

__all__ = ["HEAD", "REVISIONS"]

REVISIONS: tuple[str, ...] = (
    "0001_memory",
    "0002_sessions",
    "0003_distilling",
    "0004_lifecycle",
    "0005_token_vectors",
    "0006_inbox",
    "0007_keyed_hashes",
    "0008_capabilities",
    "0009_builds",
    "0010_arrays",
    "0011_claims",
    "0012_statements",
    "0013_cues",
    "0014_verdicts",
    "0015_client_places",
)
"""Every migration in `migrations/versions`, in the order in which they are applied. Add new ones at the end.

A database with another revision was written by a newer program; it is refused and not changed. The list is here, not
only in the migrations, so that opening an up-to-date database doesn't import Alembic. A test checks that both agree.
"""

HEAD = REVISIONS[-1]
