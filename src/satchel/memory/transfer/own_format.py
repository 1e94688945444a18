"""Satchel's own export format: a store as JSON lines, complete except for derived data (vectors and indexes).

A header is followed by memories in the order in which they were stored, edges, history entries and tombstones; the last
line has their counts. If a file is imported into an empty store and exported again, the result has the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, BinaryIO

from sqlalchemy import Connection, func, select

from satchel.memory.store.cues import cues_of
from satchel.memory.store.filters import CheckedFilters
from satchel.memory.store.micros import from_micros, to_micros
from satchel.memory.store.repository import among, ids_of, matching_rids, requests_so_far, slices, tags_of
from satchel.memory.store.tables import (
    changes,
    distilled,
    earlier_words,
    edges,
    memories,
    pages,
    spaces,
    tombstones,
    uses,
)
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.json_stream import lines
from satchel.memory.transfer.parts import (
    ExportedMemory,
    ForgottenWords,
    Header,
    ImportedChange,
    ImportedEdge,
    ImportedPage,
    InvalidField,
    LeftOut,
    Part,
    Tombstone,
    offset_of,
    read_fields,
)
from satchel.memory.transfer.report import ExportReport

FORMAT = 1
_HEAD = "satchel-memory"
_COUNTED = {"memory": "memories", "edge": "edges", "change": "changes", "tombstone": "tombstones"}


def write(
    connection: Connection,
    space: int,
    wanted: CheckedFilters,
    out: Callable[[bytes], object],
) -> ExportReport:
    """Export a space from one snapshot in bounded memory.

    With a filter, the edges and the history between the memories that it lets through are written, and no tombstones.
    """
    counts = dict.fromkeys(_COUNTED.values(), 0)
    size = 0

    def line(found: Mapping[str, Any]) -> None:
        nonlocal size
        raw = encoded(found)
        size += len(raw)
        out(raw)
        if found["type"] in _COUNTED:
            counts[_COUNTED[found["type"]]] += 1

    line(header(connection, space))
    rids = sorted(matching_rids(connection, space, wanted))
    for part in slices(rids):
        for found in memory_lines(connection, part):
            line(found)
    chosen = None if not wanted else set(rids)
    for found in edge_lines(connection, space, rids, chosen):
        line(found)
    for found in _change_lines(connection, space, rids, chosen):
        line(found)
    if chosen is None:
        for found in (*page_lines(connection, space), *forgotten_lines(connection, space)):
            line(found)
    line({"type": "end", **counts})
    return ExportReport(**counts, bytes=size)


_FIRST = ("id", "content", "kind", "tier", "memory_type", "importance", "priority", "decay_rate")
"""Columns that stand first in the line of a memory, as they are."""


def encoded(line: Mapping[str, Any]) -> bytes:
    """A line as it stands in the file."""
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def header(connection: Connection, space: int) -> dict[str, Any]:
    """The first line."""
    where = connection.execute(select(spaces).where(spaces.c.id == space)).one()
    return {
        "type": _HEAD,
        "format": FORMAT,
        "user": where.user_id,
        "scope": where.scope,
        "requests": requests_so_far(connection, space),
    }


def memory_lines(connection: Connection, rids: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The memories with these rids."""
    tagged, cued = tags_of(connection, rids), cues_of(connection, rids)
    rows = connection.execute(
        select(
            memories,
            uses.c.last_accessed,
            uses.c.access_count,
            uses.c.request.label("used_request"),
            distilled.c.chars,
            distilled.c.distilled_at,
        )
        .outerjoin(uses, uses.c.rid == memories.c.rid)
        .outerjoin(distilled, distilled.c.rid == memories.c.rid)
        .where(memories.c.rid.in_(among(rids)))
        .order_by(memories.c.rid)
    )
    for row in rows:
        yield {
            "type": "memory",
            **{name: getattr(row, name) for name in _FIRST},
            "tags": tagged.get(row.rid, []),
            "speaker": row.speaker,
            "said_at": _time(row.said_at, row.said_offset_min),
            "valid_from": _time(row.valid_from),
            "valid_to": _time(row.valid_to),
            "source": {
                name: getattr(row, f"source_{name}") for name in ("session", "turn", "position", "quote")
            },
            "trust": row.trust,
            **({"pinned": True} if row.pinned else {}),
            **({"time": json.loads(row.time)} if row.time else {}),
            **(
                {"discretion": row.discretion, "kept_from": row.kept_from} if row.discretion != "open" else {}
            ),
            **({"spheres": row.spheres.split()} if row.spheres else {}),
            **({"cues": cued[row.rid]} if row.rid in cued else {}),
            "created_at": _time(row.created_at),
            "request": row.request,
            "last_accessed": _time(row.last_accessed),
            "access_count": row.access_count or 0,
            "used_request": row.used_request or 0,
            "distilled_chars": row.chars,
            "distilled_at": _time(row.distilled_at),
        }


def edge_lines(
    connection: Connection, space: int, rids: Sequence[int], chosen: set[int] | None
) -> Iterator[dict[str, Any]]:
    """The edges that lead from these memories, to those chosen; None chooses all."""
    sources, targets = memories.alias("sources"), memories.alias("targets")
    rows = connection.execute(
        select(sources.c.id.label("source"), targets.c.id.label("target"), targets.c.space_id, edges)
        .select_from(edges)
        .join(sources, sources.c.rid == edges.c.source_rid)
        .join(targets, targets.c.rid == edges.c.target_rid)
        .where(edges.c.source_rid.in_(among(rids)))
        .order_by(edges.c.source_rid, edges.c.target_rid, edges.c.relation)
    )
    for row in rows:
        if row.space_id == space and (chosen is None or row.target_rid in chosen):
            yield _line("edge", row, created_at=_time(row.created_at))


def _change_lines(
    connection: Connection, space: int, rids: Sequence[int], chosen: set[int] | None
) -> Iterator[dict[str, Any]]:
    ids = None if chosen is None else set(ids_of(connection, space, rids))
    numbers: dict[int, int] = {}
    query = select(changes).where(changes.c.space_id == space).order_by(changes.c.id)
    for row in connection.execute(query, execution_options={"yield_per": 500}):
        if ids is None or (row.memory_id in ids and (row.other_id or row.memory_id) in ids):
            numbers[row.id] = len(numbers) + 1
            yield _change_line(row, numbers[row.id], numbers.get(row.undoes))


def change_lines(connection: Connection, ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    """History entries, numbered as they are in the database."""
    rows = connection.execute(select(changes).where(changes.c.id.in_(among(ids))).order_by(changes.c.id))
    for row in rows:
        yield _change_line(row, row.id, row.undoes)


def _change_line(row: Any, number: int, undoes: int | None) -> dict[str, Any]:
    before, after = json.loads(row.before), json.loads(row.after)
    given = {"number": number, "undoes": undoes, "at": _time(row.at), "before": before, "after": after}
    return _line("change", row, **given)


def page_lines(connection: Connection, space: int, *, after: int = 0) -> Iterator[dict[str, Any]]:
    """The versions of the standing page after one of them, in their order."""
    rows = connection.execute(
        select(pages).where(pages.c.space_id == space, pages.c.number > after).order_by(pages.c.number)
    )
    for row in rows:
        yield _line("page", row, written_at=_time(row.written_at), lines=json.loads(row.lines))


def forgotten_lines(connection: Connection, space: int, *, since: int = -1) -> Iterator[dict[str, Any]]:
    """What refuses forgotten words: the tombstones after a change of the space, and all hashes of earlier words."""
    rows = connection.execute(
        select(tombstones.c.place_hash, tombstones.c.words_hash, tombstones.c.forgotten_at)
        .where(tombstones.c.space_id == space, tombstones.c.changed > since)
        .order_by(
            tombstones.c.forgotten_at,
            func.coalesce(tombstones.c.place_hash, ""),
            func.coalesce(tombstones.c.words_hash, ""),
        )
        .group_by(tombstones.c.place_hash, tombstones.c.words_hash, tombstones.c.forgotten_at)
    )
    for row in rows:
        # A tombstone without hashes, of a memory without a source, has no effect in another store.
        if row.place_hash is not None or row.words_hash is not None:
            yield _line("tombstone", row, forgotten_at=_time(row.forgotten_at))
    found = connection.execute(
        select(earlier_words.c.words_hash)
        .where(earlier_words.c.space_id == space)
        .order_by(earlier_words.c.words_hash)
    )
    for words_hash in found.scalars():
        yield {"type": "forgotten_words", "words_hash": words_hash}


def _line(kind: str, row: Any, **given: Any) -> dict[str, Any]:
    """A line with the fields of the part that it becomes, as they are given or in the columns of a row."""
    names = [field.name for field in fields(_PARTS[kind])]
    return {"type": kind, **{name: given[name] if name in given else getattr(row, name) for name in names}}


def _time(micros: int | None, offset_min: int = 0) -> str | int | None:
    """A time in ISO 8601, or as microseconds if it is outside of the calendar. Both are exact."""
    if micros is None:
        return None
    moment = from_micros(micros, offset_min)
    return moment.isoformat() if to_micros(moment) == micros else micros


def is_own_line(line: Mapping[str, Any]) -> bool:
    """Whether a line is the header of an export of Satchel, or one of its memories."""
    return line.get("type") == _HEAD or (
        line.get("type") == "memory" and "memory_type" in line and "source" in line
    )


def read(stream: BinaryIO, file: SourceFile) -> Iterator[Part]:
    """Read an export of Satchel. Invalid lines are left out, and the reason names the invalid field."""
    ended = False
    for number, line in lines(stream, file.name):
        where = f"{file.name}:{number}"
        if isinstance(line, LeftOut):
            yield line
        elif line.get("type") == "end":
            ended = True
        elif line.get("type") == _HEAD and line.get("format") != FORMAT:
            reason = f"a file of format {line.get('format')!r}, which needs a newer Satchel"
            yield LeftOut(reason=reason, where=where)
            return
        else:
            yield _part(line, where)
    if not ended:
        yield LeftOut(reason="the file is truncated: its last line is missing", where=file.name)


def parts_of(found: Iterable[bytes], name: str) -> Iterator[Part]:
    """Read some lines of an export; those that can't be read are left out."""
    for raw in found:
        with suppress(ValueError):
            line = json.loads(raw)
            if isinstance(line, dict):
                yield _part(line, name)


def _part(line: Mapping[str, Any], where: str) -> Part:
    kind = line.get("type")
    try:
        if kind == "memory":
            source = line.get("source")
            if not isinstance(source, Mapping):
                raise InvalidField("source")
            own = {"said_offset_min": offset_of(line.get("said_at"))}
            return read_fields(ExportedMemory, {**line, **source, **own})
        found = _PARTS.get(str(kind))
        if found is None:
            return LeftOut(reason="a line of an unknown type", where=where)
        return read_fields(found, line)
    except InvalidField as error:
        return LeftOut(reason=f"a {kind} with an invalid {error}", where=where)


_PARTS: Mapping[str, type[Part]] = {
    _HEAD: Header,
    "edge": ImportedEdge,
    "change": ImportedChange,
    "page": ImportedPage,
    "tombstone": Tombstone,
    "forgotten_words": ForgottenWords,
}
