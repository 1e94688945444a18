"""Exports of mem0: JSON with a list of memories, alone or below "results" or "memories"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from satchel.memory.transfer.files import Original
from satchel.memory.transfer.json_stream import elements, lines
from satchel.memory.transfer.pieces import UNDATED, Left, Part, fact, piece_id
from satchel.memory.transfer.wrappers import moment_of

__all__ = ["is_memory", "read"]


def is_memory(found: Mapping[str, Any]) -> bool:
    """Whether this is one of mem0's memories."""
    return _words(found) is not None and bool({"id", "hash", "user_id", "created_at"} & found.keys())


def read(stream: BinaryIO, original: Original) -> Iterator[Part]:
    """A fact for each memory; deleted ones are left out."""
    source = lines if original.base.endswith((".jsonl", ".ndjson")) else elements
    for number, found in source(stream, original.name):
        where = f"{original.name}#{number}"
        if isinstance(found, Left):
            yield found
            continue
        text = _words(found)
        if text is None:
            relation = {"source", "relationship", "target", "destination"} & found.keys()
            yield Left(
                reason="a relation, which says nothing beyond the memories"
                if relation
                else "no memory of mem0's",
                where=where,
                expected=bool(relation),
            )
            continue
        if (
            found.get("is_deleted")
            or found.get("state") in ("deleted", "archived")
            or found.get("event") == "DELETE"
        ):
            yield Left(reason="deleted", where=where, expected=True)
            continue
        if not text.strip():
            yield Left(reason="a memory without words", where=where)
            continue
        at = moment_of(found.get("updated_at")) or moment_of(found.get("created_at"))
        own, run = found.get("id"), found.get("run_id")
        yield fact(
            piece_id("mem0", own if isinstance(own, str | int) else text),
            text,
            at=at or original.modified_at,
            session=f"mem0:{run}" if isinstance(run, str) and run else "mem0",
            # A model put it in these words.
            trust="agent",
            tags=(*_tags(found), *(() if at else (UNDATED,))),
        )


def _words(found: Mapping[str, Any]) -> str | None:
    for name in ("memory", "content", "text", "data"):
        if isinstance(found.get(name), str):
            return str(found[name])
    return None


def _tags(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Its categories, and those that its metadata has."""
    tags: list[str] = []
    metadata = found.get("metadata") or found.get("metadata_")
    inner = metadata if isinstance(metadata, Mapping) else {}
    for value in (found.get("categories"), inner.get("category"), inner.get("categories"), inner.get("tags")):
        if isinstance(value, str):
            tags.append(value)
        elif isinstance(value, list):
            tags += [tag for tag in value if isinstance(tag, str)]
    return tuple(tags)
