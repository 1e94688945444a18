"""What is forgotten of builds together with memories: their tasks and messages, and what lies in their folders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
from sqlalchemy import Connection, select, update

from satchel.builder.records import EARNED, ENDED
from satchel.builder.tables import build_messages, builds
from satchel.config.home import replacing
from satchel.errors import StorageUnwritable
from satchel.storage import Database

_FORGOTTEN: Final = "What it came of is forgotten."


async def sessions_of_builds(database: Database) -> list[str]:
    """The sessions of all builds: their Builder was told of what was said, and of what memory knew from anywhere."""
    return [*await database.read(lambda connection: connection.scalars(select(builds.c.session_id)).all())]


@dataclass(slots=True, kw_only=True)
class Earned:
    """What came of turns that are forgotten.

    Attributes:
        cases: Those that the log gave to a tool.
        lines: Those of a skill that rest on no other turn.
        builds: The ids and sessions of all its builds, which were told of them.
    """

    cases: list[Mapping[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    builds: list[tuple[str, str]] = field(default_factory=list)


async def earned_from(
    database: Database, places: Collection[tuple[str | None, int | None]]
) -> Mapping[str, Earned]:
    """What came of these turns, by the ids of capabilities."""

    def look(connection: Connection) -> dict[str, Earned]:
        asked = select(build_messages.c.payload, builds.c.capability_id).join(
            builds, builds.c.id == build_messages.c.build_id
        )
        found: dict[str, Earned] = {}
        for encoded, id in connection.execute(asked.where(build_messages.c.id == EARNED)).all():
            payload = json.loads(encoded)
            if any(tuple(place) in places for place in payload["from"]):
                of_it = select(builds.c.id, builds.c.session_id).where(builds.c.capability_id == id)
                earned = found.setdefault(id, Earned())
                earned.cases += payload["cases"]
                earned.lines += [step["line"] for step in payload.get("steps", ()) if not _left(step, places)]
                earned.builds = [(row.id, row.session_id) for row in connection.execute(of_it)]
        return found

    return await database.read(look)


def _left(step: Mapping[str, Any], places: Collection[tuple[str | None, int | None]]) -> list[list[Any]]:
    """The turns on which a step of a skill rests besides these."""
    return [place for place in step["from"] if tuple(place) not in places]


async def forget_proposals(database: Database, places: Collection[tuple[str | None, int | None]]) -> None:
    """Empty the proposals that came of turns that are forgotten. One that waits for its answer ends, and so does a
    build that is at work. The places are sessions and numbers of turns.

    Raises:
        StorageError: A row could not be read or changed.
    """

    def change(connection: Connection) -> None:
        asked = select(build_messages).where(build_messages.c.id == EARNED)
        for row in connection.execute(asked).all():
            payload = json.loads(row.payload)
            if not any(tuple(place) in places for place in payload["from"]):
                continue
            steps = [
                {**step, "from": left} for step in payload.get("steps", ()) if (left := _left(step, places))
            ]
            # A step that other turns bear out stays, and leads to them.
            rest = [place for step in steps for place in step["from"]]
            emptied = {**payload, "text": _FORGOTTEN, "cases": [], "from": rest, "steps": steps}
            emptied |= {name: None for name in ("draft", "before") if name in payload}
            mine = builds.c.id == row.build_id
            connection.execute(
                update(build_messages)
                .where(build_messages.c.number == row.number)
                .values(payload=json.dumps(emptied))
            )
            connection.execute(update(builds).where(mine).values(task=_FORGOTTEN))
            waits = mine & builds.c.status.not_in(ENDED)
            connection.execute(update(builds).where(waits).values(status="failed", outcome=_FORGOTTEN))

    await database.write(change, durable=True)


async def forget_words(database: Database, folder: Path, redact: Callable[[str, str], str]) -> None:
    """Remove words from the builds' rows and working folders. After a crash it can be done again. `redact` takes the id
    of a build's session and a text, and returns what stays of the text.

    Raises:
        StorageError: A row or a file could not be read or changed.
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
                # Not every file is text, and the words may be in those, too.
                text = path.read_bytes().decode(errors="surrogateescape")
                kept = redact(session_id, text)
                if kept != text:
                    mode = path.stat().st_mode & 0o777
                    with replacing(path) as file:
                        os.fchmod(file.fileno(), mode)
                        file.write(kept.encode(errors="surrogateescape"))

    try:
        await anyio.to_thread.run_sync(rewrite)
    except OSError as error:
        raise StorageUnwritable(f"A file of a build could not be changed: {error}.") from error
