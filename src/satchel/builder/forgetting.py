"""What is forgotten of builds together with memories: their tasks and messages, and what lies in their folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
from sqlalchemy import Connection, select, update

from satchel.builder.tables import build_messages, builds
from satchel.storage import Database

__all__ = ["forget_words", "sessions_of_builds"]


async def sessions_of_builds(database: Database, asked_by: str) -> list[str]:
    """The sessions of the builds that a session asked for: their Builder was told of what was said in it."""
    wanted = select(builds.c.session_id).where(builds.c.asked_by == asked_by)
    return [*await database.read(lambda connection: connection.scalars(wanted).all())]


async def forget_words(database: Database, folder: Path, redact: Callable[[str, str], str]) -> None:
    """Remove words from the builds' rows and working folders.

    Args:
        database: Where their rows are.
        folder: Where their working folders are.
        redact: Takes the id of a build's session and a text, and returns what stays of the text.
    """

    def change(connection: Connection) -> dict[str, str]:
        places: dict[str, str] = {}
        for row in connection.execute(
            select(builds.c.id, builds.c.session_id, builds.c.task, builds.c.outcome)
        ):
            places[row.id] = row.session_id
            kept = {"task": redact(row.session_id, row.task), "outcome": redact(row.session_id, row.outcome)}
            if kept != {"task": row.task, "outcome": row.outcome}:
                connection.execute(update(builds).where(builds.c.id == row.id).values(**kept))
        told = select(build_messages.c.number, build_messages.c.build_id, build_messages.c.payload)
        for number, build_id, encoded in connection.execute(told):
            payload = json.loads(encoded)
            text = payload.get("text")
            kept_text = redact(places[build_id], text) if isinstance(text, str) else text
            if kept_text != text:
                changed = json.dumps({**payload, "text": kept_text}, ensure_ascii=False)
                connection.execute(
                    update(build_messages).where(build_messages.c.number == number).values(payload=changed)
                )
        return places

    places = await database.write(change, durable=True)

    def rewrite() -> None:
        for id, session_id in places.items():
            for path in (folder / id).rglob("*"):
                if path.is_symlink() or not path.is_file():
                    continue
                try:
                    text = path.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError):
                    continue
                kept = redact(session_id, text)
                if kept != text:
                    path.write_text(kept, encoding="utf-8")

    await anyio.to_thread.run_sync(rewrite)
