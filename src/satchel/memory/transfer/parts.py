"""The parts that every format is parsed into: memories, edges, other records of a store, and what was left out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from satchel.memory.checking import MAX_CONTENT_CHARS, clean_tags, printable
from satchel.memory.decay import EPISODE_DECAY_RATE
from satchel.memory.micros import to_micros
from satchel.memory.page_lines import Author, PageLine, State
from satchel.memory.records import Discretion, FactTime, Kind, MemoryType, Tier, Trust
from satchel.memory.repository import offset_minutes

__all__ = [
    "UNDATED",
    "ImportedChange",
    "ForgottenWords",
    "Header",
    "LeftOut",
    "Part",
    "ImportedMemory",
    "ImportedPage",
    "StoredState",
    "ImportedEdge",
    "Tombstone",
    "fact",
    "stable_id",
    "said",
]

UNDATED = "undated"
"""The tag of an imported memory whose source doesn't say when it was said; it has the date of the file."""

_MAX_TAGS = 64  # For one imported memory; more tags don't help to find it.
_MAX_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The state of a memory in the exported store. Times are microseconds since 1970 in UTC.

    Attributes:
        request: The number of chat requests when it was stored.
        used_request: The number of chat requests when it was last used.
        distilled_chars: The number of characters that were read for facts, or None.
        pinned: Whether the user wants it in the profile.
        discretion: Whether it may be shown unasked, with `kept_from`; and `spheres`, as the column has them.
    """

    created_at: int
    request: int = 0
    last_accessed: int | None = None
    access_count: int = 0
    used_request: int = 0
    distilled_chars: int | None = None
    distilled_at: int | None = None
    pinned: bool = False
    discretion: Discretion = "open"
    kept_from: str = ""
    spheres: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMemory:
    """A memory in a file.

    Attributes:
        id: Derived from identifiers in the file, so that importing it again finds the same memory.
        said_at: Microseconds since 1970 in UTC; `said_offset_min` is the local offset.
        state: None unless Satchel exported the file.
    """

    id: str
    content: str
    kind: Kind
    tier: Tier
    memory_type: MemoryType
    importance: int = 3
    priority: float | None = None
    decay_rate: float | None = None
    tags: tuple[str, ...] = ()
    speaker: str = ""
    said_at: int
    said_offset_min: int = 0
    valid_from: int | None = None
    valid_to: int | None = None
    session: str | None
    turn: int | None = None
    position: int | None = None
    quote: str | None = None
    trust: Trust
    cues: tuple[str, ...] = ()
    time: FactTime | None = None
    state: StoredState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedEdge:
    """An edge between two memories, by their ids. `created_at` None means the time of the import."""

    source: str
    target: str
    relation: str
    weight: float = 1.0
    created_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPage:
    """A version of the standing page. `written_at` is in microseconds since 1970."""

    number: int
    written_at: int
    by: Author
    model: str
    state: State
    lines: tuple[PageLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """The record that a memory was forgotten, with keyed hashes."""

    place_hash: str | None
    words_hash: str | None
    forgotten_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenWords:
    """The keyed hash of a text that a forgotten memory had before an edit."""

    words_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedChange:
    """A history entry. `number` identifies it in the file; `undoes` is the number of another entry."""

    number: int
    memory_id: str
    other_id: str | None
    action: str
    at: int
    who: str
    why: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    undoes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of Satchel's own format, with the number of chat requests that the store had counted."""

    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A part of a file that was left out.

    Attributes:
        reason: Why; the report counts the parts by it.
        where: The file and the position in it.
        expected: Whether the format contains such parts and they are left out on purpose, such as the output of tools.
    """

    reason: str
    where: str
    expected: bool = False


Part: TypeAlias = (
    ImportedMemory
    | ImportedEdge
    | ImportedPage
    | Tombstone
    | ForgottenWords
    | ImportedChange
    | Header
    | LeftOut
)


def stable_id(*names: object) -> str:
    """An id derived from names by an unambiguous encoding and a hash."""
    text = "".join(f"{len(str(name))}:{name};" for name in names)
    return "i" + hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def said(
    id: str,
    text: str,
    *,
    speaker: str,
    at: datetime,
    session: str,
    turn: int,
    position: int,
    trust: Trust,
    tags: tuple[str, ...] = (),
) -> ImportedMemory:
    """An episode: something that was said in a conversation."""
    return ImportedMemory(
        id=id,
        content=printable(text)[:MAX_CONTENT_CHARS],
        kind="episode",
        tier="short_term",
        memory_type="conversation",
        decay_rate=EPISODE_DECAY_RATE,
        tags=tags,
        speaker=printable(speaker)[:_MAX_NAME],
        session=printable(session)[:1000],
        turn=turn,
        position=position,
        trust=trust,
        said_at=to_micros(at),
        said_offset_min=offset_minutes(at),
    )


def fact(
    id: str,
    text: str,
    *,
    at: datetime,
    session: str,
    trust: Trust,
    tags: tuple[str, ...] = (),
    speaker: str = "",
    memory_type: MemoryType = "general",
    turn: int | None = None,
    position: int | None = None,
) -> ImportedMemory:
    """A fact."""
    return ImportedMemory(
        id=id,
        content=printable(text)[:MAX_CONTENT_CHARS],
        kind="fact",
        tier="long_term",
        memory_type=memory_type,
        tags=tuple(tag[:_MAX_NAME] for tag in clean_tags(tags))[:_MAX_TAGS],
        speaker=printable(speaker)[:_MAX_NAME],
        session=printable(session)[:1000],
        turn=turn,
        position=position,
        trust=trust,
        said_at=to_micros(at),
        said_offset_min=offset_minutes(at),
    )
