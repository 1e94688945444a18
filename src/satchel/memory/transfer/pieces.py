"""What every format is read into: memories, edges, what else a store holds, and what was left out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from satchel.memory.checking import MAX_CONTENT_CHARS, clean_tags, printable
from satchel.memory.decay import EPISODE_DECAY_RATE
from satchel.memory.records import Kind, MemoryType, Tier, Trust
from satchel.memory.repository import offset_minutes, to_micros

__all__ = [
    "UNDATED",
    "Change",
    "EarlierWords",
    "Head",
    "Left",
    "Part",
    "Piece",
    "State",
    "Tie",
    "Tombstone",
    "fact",
    "piece_id",
    "said",
]

UNDATED = "undated"
"""The tag of an imported memory whose source does not say when it was said: its date is the file's."""

_MAX_TAGS = 64  # Of one imported memory; what a foreign file lists beyond that is no help in finding it.
_MAX_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a store knows of a memory beyond what was said; times are microseconds since 1970 in UTC.

    Attributes:
        request: How many chat requests had been counted when it was stored; `used_request` when it was last used.
        distilled_chars: How much of it was read for facts, or None; `compared_at` when it was compared, or None.
    """

    created_at: int
    request: int = 0
    last_accessed: int | None = None
    access_count: int = 0
    used_request: int = 0
    distilled_chars: int | None = None
    distilled_at: int | None = None
    compared_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A memory that a file holds.

    Attributes:
        id: Follows from the file's own names, so that reading it again finds the same memory.
        said_at: Microseconds since 1970 in UTC; `said_offset_min` is the offset of the place where it was said.
        state: Only Satchel's own files know it.
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
    state: State | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """An edge, by the ids of its ends; `created_at` is None for the time of the import."""

    source: str
    target: str
    relation: str
    weight: float = 1.0
    created_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """That something was forgotten, by hashes."""

    place_hash: str | None
    words_hash: str | None
    forgotten_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierWords:
    """What a forgotten memory had said before, by its hash."""

    words_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One entry of a memory's history; `number` counts them in their file, and `undoes` is such a number."""

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
class Head:
    """The beginning of Satchel's own file: how many chat requests its store had counted."""

    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Something that was left out.

    Attributes:
        reason: The same words for the same reason: they are counted by it.
        where: The file and the place in it.
        expected: It belongs to the format and is left out on purpose, such as the output of tools.
    """

    reason: str
    where: str
    expected: bool = False


Part: TypeAlias = Piece | Tie | Tombstone | EarlierWords | Change | Head | Left


def piece_id(*names: object) -> str:
    """An id that follows from names; no two lists of names give the same text to hash."""
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
) -> Piece:
    """Something that was said in a conversation, word for word."""
    return Piece(
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
) -> Piece:
    """Something that is known."""
    return Piece(
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
