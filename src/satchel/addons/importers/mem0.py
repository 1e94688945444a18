"""Reads exports of mem0: JSON with a list of memories, at the top level or under "results" or "memories"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from satchel.addons.importers.transcripts import moment_of
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.json_stream import elements, lines
from satchel.memory.transfer.parts import UNDATED, LeftOut, Part, fact, stable_id


def is_memory(found: Mapping[str, Any]) -> bool:
    """Whether an object is a memory of mem0."""
    return _words(found) is not None and bool({"id", "hash", "user_id", "created_at"} & found.keys())


def is_own_line(line: Mapping[str, Any]) -> bool:
    """Whether a line is a memory, or an export as a whole."""
    return is_memory(line) or any(isinstance(line.get(key), list) for key in ("results", "memories"))


def read(stream: BinaryIO, file: SourceFile) -> Iterator[Part]:
    """Read a fact for each memory that isn't deleted."""
    source = lines if file.base.endswith((".jsonl", ".ndjson")) else elements
    for number, found in source(stream, file.name):
        where = f"{file.name}#{number}"
        if isinstance(found, LeftOut):
            yield found
            continue
        text = _words(found)
        if text is None:
            relation = {"source", "relationship", "target", "destination"} & found.keys()
            yield LeftOut(
                reason="a relation, which only repeats memories" if relation else "not a memory of mem0",
                where=where,
                expected=bool(relation),
            )
            continue
        if (
            found.get("is_deleted")
            or found.get("state") in ("deleted", "archived")
            or found.get("event") == "DELETE"
        ):
            yield LeftOut(reason="deleted", where=where, expected=True)
            continue
        if not text.strip():
            yield LeftOut(reason="a memory without text", where=where)
            continue
        at = moment_of(found.get("updated_at")) or moment_of(found.get("created_at"))
        own, run = found.get("id"), found.get("run_id")
        yield fact(
            stable_id("mem0", own if isinstance(own, str | int) else text),
            text,
            at=at or file.modified_at,
            session=f"mem0:{run}" if isinstance(run, str) and run else "mem0",
            # A model phrased it.
            trust="agent",
            tags=(*_tags(found), *(() if at else (UNDATED,))),
        )


def _words(found: Mapping[str, Any]) -> str | None:
    for name in ("memory", "content", "text", "data"):
        if isinstance(found.get(name), str):
            return str(found[name])
    return None


def _tags(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The categories of a memory, including those in its metadata."""
    tags: list[str] = []
    metadata = found.get("metadata") or found.get("metadata_")
    inner = metadata if isinstance(metadata, Mapping) else {}
    for value in (found.get("categories"), inner.get("category"), inner.get("categories"), inner.get("tags")):
        if isinstance(value, str):
            tags.append(value)
        elif isinstance(value, list):
            tags += [tag for tag in value if isinstance(tag, str)]
    return tuple(tags)
