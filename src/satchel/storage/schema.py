"""The schema revisions that this program knows, and the newest one as SQL."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from satchel.errors import StorageTooNew

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
    "0016_journal",
    "0017_float16",
    "0018_relations",
    "0019_pages",
    "0020_discretion",
    "0021_times",
    "0022_conversations",
    "0023_conversation_files",
    "0024_handover",
    "0025_several_servers",
    "0026_row_security",
    "0027_capabilities_on_server",
    "0028_list_of_conversations",
)
"""Every migration in `migrations/versions`, in the order in which they are applied. Add new ones at the end.

A database with another revision was written by a newer program; it is refused and not changed. The list is here, not
only in the migrations, so that opening an up-to-date database doesn't import Alembic. A test checks that both agree.
"""

HEAD = REVISIONS[-1]

NEWEST = Path(__file__).with_name("newest.sql")
"""What all migrations make of an empty database. `scripts/newest_schema.py` writes it, and a test compares both."""


@cache
def newest_statements(file: Path = NEWEST) -> tuple[str, ...]:
    """The statements that make an empty database one of revision `HEAD`, in order.

    With opening it, they take 20 ms of CPU. Running the migrations takes 140 ms, and importing Alembic 270 ms more.
    """
    return tuple(file.read_text(encoding="utf-8").rstrip().removesuffix(";").split(";\n\n"))


def known_revision(revision: str, place: str) -> str:
    """The revision, if this program knows it.

    Raises:
        StorageTooNew: It doesn't.
    """
    if revision not in REVISIONS:
        raise StorageTooNew(
            f"A newer Satchel wrote the database {place}: its schema is {revision!r}, and this program knows schemas "
            f"up to {HEAD!r}. It was not touched. Upgrade Satchel, or choose another database."
        )
    return revision
