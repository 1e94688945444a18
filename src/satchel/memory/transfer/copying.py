"""What passes between a journal and its database: what is new in the database, and what a database lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from sqlalchemy import Connection, func, select
from sqlalchemy.dialects.sqlite import insert

from satchel.memory.store.forgetting import forget
from satchel.memory.store.marks import Mark, PendingLines, Rebuilt, There
from satchel.memory.store.repository import among, ids_of, known_ids, rids_by_id, slices
from satchel.memory.store.tables import changes, distill_windows, distilled, memories, spaces
from satchel.memory.transfer import own_format
from satchel.memory.transfer.importing import Intake
from satchel.memory.transfer.parts import ImportedEdge, ImportedMemory

if TYPE_CHECKING:
    from satchel.memory.store.space import Space

_AT_ONCE: Final = 2_000
"""Memories, or changes, that are copied in one step: a tenth of a second."""
_GONE, _MEMORY, _DISTILLED = b'{"type":"gone"', b'{"type":"memory"', b'{"type":"distilled"'


def pending(connection: Connection, space: int, mark: Mark, there: There) -> PendingLines:
    """What was stored, changed and forgotten since a mark and is not there, from one snapshot."""
    changed = connection.execute(select(spaces.c.changed).where(spaces.c.id == space)).scalar_one()
    stored = connection.execute(
        select(memories.c.rid, memories.c.id)
        .where(memories.c.space_id == space, memories.c.rid > mark.rid)
        .order_by(memories.c.rid)
        .limit(_AT_ONCE)
    ).all()
    entries = connection.execute(
        select(changes.c.id, changes.c.memory_id, changes.c.action)
        .where(changes.c.space_id == space, changes.c.id > mark.change)
        .order_by(changes.c.id)
        .limit(_AT_ONCE)
    ).all()
    windows = distill_windows.c.id
    window = connection.execute(
        select(func.max(windows)).where(distill_windows.c.space_id == space, windows > mark.window)
    ).scalar()
    read = [] if window is None else _newly_distilled(connection, space, mark)
    drop: set[str] = set()
    lines: list[dict[str, Any]] = []
    rids = [row.rid for row in stored if row.id not in there.ids]
    numbers = [row.id for row in entries if row.id not in there.changes]
    gone = [row.memory_id for row in entries if row.action == "forget" and row.id not in there.changes]
    if gone:
        # Whatever repeated the words was changed with them: its lines are written anew.
        here, ours = memories.c.space_id == space, changes.c.space_id == space
        known = (memories.c.changed > mark.changed) & (memories.c.rid <= mark.rid)
        altered = connection.execute(select(memories.c.rid).where(here, known)).scalars().all()
        ids = ids_of(connection, space, altered)
        theirs = connection.execute(select(changes.c.id).where(ours, changes.c.memory_id.in_(among(ids))))
        drop = {*gone, *ids}
        lines += [{"type": "gone", "id": id} for id in gone]
        rids = sorted({*rids, *altered})
        numbers = sorted({*numbers, *theirs.scalars()})
    lines += own_format.memory_lines(connection, rids)
    lines += own_format.edge_lines(connection, space, rids, None)
    lines += own_format.change_lines(connection, numbers)
    lines += read
    written = list(own_format.page_lines(connection, space, after=0 if gone else mark.page))
    lines += written
    if gone:
        lines += own_format.forgotten_lines(connection, space, since=mark.changed)
    return PendingLines(
        head=own_format.header(connection, space),
        lines=[own_format.encoded(line) for line in lines],
        drop=drop,
        mark=Mark(
            rid=stored[-1].rid if stored else mark.rid,
            change=entries[-1].id if entries else mark.change,
            window=mark.window if window is None else window,
            # Where there is more to come, so may be what was forgotten with what has changed by now.
            changed=changed if len(entries) < _AT_ONCE else mark.changed,
            page=max([mark.page, *(line["number"] for line in written)]),
            distilled=max([mark.distilled, *(line["at"] for line in read)]),
        ),
    )


def _newly_distilled(connection: Connection, space: int, mark: Mark) -> list[dict[str, Any]]:
    rows = connection.execute(
        select(memories.c.id, distilled.c.chars, distilled.c.distilled_at)
        .join(distilled, distilled.c.rid == memories.c.rid)
        .where(memories.c.space_id == space, distilled.c.distilled_at > mark.distilled)
    )
    return [{"type": "distilled", "id": row.id, "chars": row.chars, "at": row.distilled_at} for row in rows]


# ---- What the database lacks


async def read_back(space: Space, path: Path, mark: Mark, there: There) -> Rebuilt:
    """Store what stands in a journal after a mark and is not in the database; lines that are damaged are left out.

    `path` is the journal, which is locked; `there` is told what was read.
    """
    intake = Intake(space=space, replays=True)
    lacking: set[str] = set()
    forgotten = await anyio.to_thread.run_sync(_forgotten_in, path)
    batches = _batches(path, mark.size)
    while (lines := await anyio.to_thread.run_sync(next, batches, None)) is not None:
        parts = [
            part
            for part in own_format.parts_of(lines, path.name)
            if not isinstance(part, ImportedMemory) or part.id not in forgotten
        ]
        ids = [part.id for part in parts if isinstance(part, ImportedMemory)]
        known = await space.read(known_ids, ids) if ids else set()
        lacking.update(id for id in ids if id not in known)
        # Of memories that the database has, it has the edges, too, or the changes say what became of them.
        parts = [part for part in parts if not isinstance(part, ImportedEdge) or part.source in lacking]
        await intake.take(parts, path.name)
        await space.write(_write_distilled, lines)
        there.ids.update(ids)
        there.changes.update(intake.change_ids.values())
    await intake.finish()
    again = sorted(await space.read(known_ids, sorted(forgotten))) if forgotten else []
    if again:
        await forget(space, again)
    counts = intake.counts
    return Rebuilt(memories=counts["new"], changes=counts["changes"], forgotten=len(again))


def _forgotten_in(path: Path) -> set[str]:
    found: set[str] = set()
    with suppress(FileNotFoundError), path.open("rb") as lines:
        for raw in lines:
            is_gone = raw.startswith(_GONE)
            if is_gone or (found and raw.startswith(_MEMORY)):
                with suppress(ValueError):
                    id = str(json.loads(raw).get("id"))
                    (found.add if is_gone else found.discard)(id)
    return found


def _batches(path: Path, start: int) -> Iterator[Sequence[bytes]]:
    with suppress(FileNotFoundError), path.open("rb") as stream:
        stream.seek(start)
        while lines := stream.readlines(1 << 20):
            yield from slices(lines)


def _write_distilled(connection: Connection, space: int, lines: Sequence[bytes]) -> None:
    """What was distilled is not read for facts again."""
    read = {line["id"]: line for raw in lines if raw.startswith(_DISTILLED) for line in (json.loads(raw),)}
    rows = [
        {"rid": rid, "chars": read[id]["chars"], "distilled_at": read[id]["at"]}
        for id, rid in rids_by_id(connection, space, list(read)).items()
    ]
    if rows:
        connection.execute(insert(distilled).on_conflict_do_nothing(), rows)
