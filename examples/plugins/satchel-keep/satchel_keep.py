"""Imports notes of Google Keep, as Google Takeout exports them: a JSON file for each note.

satchel memory import Takeout/Keep --from keep
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import BinaryIO

from satchel.memory.transfer import ImportedMemory, LeftOut, SourceFile, fact, stable_id


def read(stream: BinaryIO, file: SourceFile) -> Iterator[ImportedMemory | LeftOut]:
    """One fact for each note that isn't in the trash."""
    if not file.base.endswith(".json"):
        yield LeftOut(reason="not a note of Keep", where=file.name, expected=True)
        return
    note = json.loads(stream.read())
    if note.get("isTrashed"):
        yield LeftOut(reason="in the trash", where=file.name, expected=True)
        return
    items = [f"- {item['text']}" for item in note.get("listContent", []) if not item.get("isChecked")]
    text = "\n".join(filter(None, [note.get("title"), note.get("textContent"), *items]))
    if not text.strip():
        yield LeftOut(reason="a note without text", where=file.name)
        return
    changed = note.get("userEditedTimestampUsec")
    at = datetime.fromtimestamp(changed / 1_000_000, UTC) if isinstance(changed, int) else file.modified_at
    labels = tuple(label["name"] for label in note.get("labels", []))
    yield fact(stable_id("keep", file.base), text, at=at, session="keep", trust="user", tags=labels)


def importers() -> Mapping[str, Callable[[BinaryIO, SourceFile], Iterator[ImportedMemory | LeftOut]]]:
    """See the guide on plugins."""
    return {"keep": read}
