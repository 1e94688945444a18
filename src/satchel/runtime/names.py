"""Names that Tab completes on a command line, read without opening a home: conversations and capabilities."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from satchel.config import SETTINGS
from satchel.config.brief import environment, read_brief
from satchel.errors import SatchelError
from satchel.storage.reading import reading

_MOST = 50
_BUSY_MS = 100
_ANSWERS_S = 2
"""How long whoever presses Tab waits for a server; the driver takes no less."""


def setting_keys() -> list[str]:
    """The keys of settings that exist once."""
    return [each.key for each in SETTINGS if ".NAME." not in each.key and ".N." not in each.key]


def session_ids() -> list[str]:
    """The ids of the newest conversations, the newest first."""
    try:
        brief = read_brief(environment(), cwd=Path.cwd())
        logs = [path.name for path in (brief.home / "sessions").glob("*/*.jsonl")]
        if brief.server:
            logs += _names_on(brief.server)
    except (SatchelError, OSError):
        return []
    newest = sorted(logs, reverse=True)[:_MOST]
    return [name.removesuffix(".jsonl").rpartition("_")[2] for name in newest]


def _names_on(url: str) -> list[str]:
    import psycopg  # noqa: PLC0415 - only a server needs it

    query = "SELECT split_part(name, '/', 2) AS log FROM conversations ORDER BY log DESC LIMIT %s"
    with suppress(psycopg.Error), psycopg.connect(url, connect_timeout=_ANSWERS_S) as connection:
        return [log for (log,) in connection.execute(query, [_MOST])]
    return []


def capability_names() -> list[str]:
    """The names of capabilities, in alphabetical order."""
    try:
        brief = read_brief(environment(), cwd=Path.cwd())
        # Those of a home are in its file, also where its memories are on a server.
        database = brief.database or brief.home / "satchel.db"
        if not database.exists():
            return []
        with reading(database, busy_timeout_ms=_BUSY_MS, is_late=lambda: False) as rows:
            return [str(name) for (name,) in rows("SELECT DISTINCT name FROM capabilities ORDER BY name", ())]
    except (SatchelError, OSError):
        return []
