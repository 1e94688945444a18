"""Reads the file of the MCP reference memory server: entities, observations and relations as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, BinaryIO

from satchel.addons.importers.transcripts import moment_of
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.json_stream import lines
from satchel.memory.transfer.parts import (
    UNDATED,
    ImportedEdge,
    ImportedMemory,
    LeftOut,
    Part,
    fact,
    stable_id,
)


def is_own_line(line: Mapping[str, Any]) -> bool:
    """Whether a line was written by that server."""
    return (line.get("type") == "entity" and "name" in line) or (
        line.get("type") == "relation" and "from" in line and "to" in line
    )


def read(stream: BinaryIO, file: SourceFile) -> Iterator[Part]:
    """Read a fact for each entity, observation and relation; edges connect entities, and each fact with its entity."""
    seen: set[str] = set()
    for number, line in lines(stream, file.name):
        where = f"{file.name}:{number}"
        if isinstance(line, LeftOut):
            yield line
            continue
        match line:
            case {"type": "entity", "name": str(name)} if name.strip():
                yield from _entity(name, line, file, seen, where)
            case {"type": "relation", "from": str(begin), "to": str(end), "relationType": str(relation)} if (
                begin.strip() and end.strip() and relation.strip()
            ):
                yield from _relation(begin, end, relation.strip()[:200], line, file, seen)
            case {"type": "entity" | "relation"}:
                yield LeftOut(reason="an entity or a relation without a name", where=where)
            case _:
                yield LeftOut(reason="a line that is neither an entity nor a relation", where=where)


def _entity(
    name: str, line: Mapping[str, Any], file: SourceFile, seen: set[str], where: str
) -> Iterator[Part]:
    kind = line.get("entityType")
    at = moment_of(line.get("lastModified") or line.get("createdAt"))
    yield _node(name, kind if isinstance(kind, str) else "", at, file)
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
            yield LeftOut(reason="an observation without text", where=f"{where} observation {place}")
            continue
        id = stable_id("mcp", "observation", name, text)
        # The observation is prefixed with the name unless it begins with it.
        whole = text if text.lower().startswith(name.lower()) else f"{name}: {text}"
        yield _fact(id, whole, when, file, name, [name, kind])
        yield ImportedEdge(source=id, target=stable_id("mcp", "entity", name), relation="elaborates")


def _relation(
    begin: str, end: str, relation: str, line: Mapping[str, Any], file: SourceFile, seen: set[str]
) -> Iterator[Part]:
    at = moment_of(line.get("lastModified") or line.get("createdAt"))
    for name in (begin, end):
        if name not in seen:
            seen.add(name)
            yield _node(name, "", None, file)
    source, target = stable_id("mcp", "entity", begin), stable_id("mcp", "entity", end)
    id = stable_id("mcp", "relation", begin, relation, end)
    words = " ".join(relation.replace("_", " ").split())
    yield _fact(id, f"{begin} {words} {end}", at, file, begin, [begin, end])
    yield ImportedEdge(source=id, target=source, relation="elaborates")
    if source != target:
        yield ImportedEdge(source=id, target=target, relation="related")
        yield ImportedEdge(source=source, target=target, relation=relation)


def _node(name: str, kind: str, at: datetime | None, file: SourceFile) -> ImportedMemory:
    words = f"{name} ({kind})" if kind.strip() else name
    return _fact(stable_id("mcp", "entity", name), words, at, file, name, [name, kind])


def _fact(
    id: str, text: str, at: datetime | None, file: SourceFile, entity: str, tags: list[object]
) -> ImportedMemory:
    words = [tag for tag in tags if isinstance(tag, str)]
    # Models call that server's tools, so a model wrote all of it.
    return fact(
        id,
        text,
        at=at or file.modified_at,
        session=f"mcp:{entity}",
        trust="agent",
        tags=(*words, *(() if at else (UNDATED,))),
    )
