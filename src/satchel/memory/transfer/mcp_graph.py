"""The file of the MCP reference memory server: a graph of entities, observations and relations, as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, BinaryIO

from satchel.memory.transfer.files import Original
from satchel.memory.transfer.json_stream import lines
from satchel.memory.transfer.pieces import UNDATED, Left, Part, Piece, Tie, fact, piece_id
from satchel.memory.transfer.wrappers import moment_of

__all__ = ["is_line", "read"]


def is_line(line: Mapping[str, Any]) -> bool:
    """Whether a line is one of that server's."""
    return (line.get("type") == "entity" and "name" in line) or (
        line.get("type") == "relation" and "from" in line and "to" in line
    )


def read(stream: BinaryIO, original: Original) -> Iterator[Part]:
    """A fact for each entity, observation and relation; edges between entities, and from each fact to its entity."""
    seen: set[str] = set()
    for number, line in lines(stream, original.name):
        where = f"{original.name}:{number}"
        if isinstance(line, Left):
            yield line
            continue
        match line:
            case {"type": "entity", "name": str(name)} if name.strip():
                yield from _entity(name, line, original, seen, where)
            case {"type": "relation", "from": str(begin), "to": str(end), "relationType": str(relation)} if (
                begin.strip() and end.strip() and relation.strip()
            ):
                yield from _relation(begin, end, relation.strip()[:200], line, original, seen)
            case {"type": "entity" | "relation"}:
                yield Left(reason="an entity or a relation without its names", where=where)
            case _:
                yield Left(reason="a line that is neither an entity nor a relation", where=where)


def _entity(
    name: str, line: Mapping[str, Any], original: Original, seen: set[str], where: str
) -> Iterator[Part]:
    kind = line.get("entityType")
    at = moment_of(line.get("lastModified") or line.get("createdAt"))
    yield _node(name, kind if isinstance(kind, str) else "", at, original)
    seen.add(name)
    observations = line.get("observations")
    if not isinstance(observations, list):
        return
    for place, observation in enumerate(observations, start=1):
        text: object = observation
        when = at
        if isinstance(observation, Mapping):
            text = observation.get("content") or observation.get("text")
            when = moment_of(observation.get("timestamp") or observation.get("createdAt")) or at
        if not isinstance(text, str) or not text.strip():
            yield Left(reason="an observation without words", where=f"{where} observation {place}")
            continue
        id = piece_id("mcp", "observation", name, text)
        # The name goes before what was observed of it, unless that begins with it anyway.
        whole = text if text.lower().startswith(name.lower()) else f"{name}: {text}"
        yield _fact(id, whole, when, original, name, [name, kind])
        yield Tie(source=id, target=piece_id("mcp", "entity", name), relation="elaborates")


def _relation(
    begin: str, end: str, relation: str, line: Mapping[str, Any], original: Original, seen: set[str]
) -> Iterator[Part]:
    at = moment_of(line.get("lastModified") or line.get("createdAt"))
    for name in (begin, end):
        if name not in seen:
            seen.add(name)
            yield _node(name, "", None, original)
    source, target = piece_id("mcp", "entity", begin), piece_id("mcp", "entity", end)
    id = piece_id("mcp", "relation", begin, relation, end)
    words = " ".join(relation.replace("_", " ").split())
    yield _fact(id, f"{begin} {words} {end}", at, original, begin, [begin, end])
    yield Tie(source=id, target=source, relation="elaborates")
    if source != target:
        yield Tie(source=id, target=target, relation="related")
        yield Tie(source=source, target=target, relation=relation)


def _node(name: str, kind: str, at: datetime | None, original: Original) -> Piece:
    words = f"{name} ({kind})" if kind.strip() else name
    return _fact(piece_id("mcp", "entity", name), words, at, original, name, [name, kind])


def _fact(
    id: str, text: str, at: datetime | None, original: Original, entity: str, tags: list[object]
) -> Piece:
    words = [tag for tag in tags if isinstance(tag, str)]
    # A model wrote all of it: that server's tools are called by models.
    return fact(
        id,
        text,
        at=at or original.modified_at,
        session=f"mcp:{entity}",
        trust="agent",
        tags=(*words, *(() if at else (UNDATED,))),
    )
