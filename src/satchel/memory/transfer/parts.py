"""The parts that every format is parsed into: memories, edges, other records of a store, and what was left out.

The type of a field says what Satchel's own format may hold there, with the check that reads it. That is not pydantic's
work, which takes 60 ms to load: every process with a journal loads this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from datetime import datetime
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from satchel.errors import UsageError
from satchel.memory.records import Discretion, FactTime, Kind, MemoryType, Tier, Trust, time_from_json
from satchel.memory.store.checking import CHECKS, MAX_CONTENT_CHARS, clean, clean_tags, printable, whole
from satchel.memory.store.cues import fitting_cues
from satchel.memory.store.decay import EPISODE_DECAY_RATE
from satchel.memory.store.micros import to_micros
from satchel.memory.store.page_lines import Author, PageLine, State, lines_from_json
from satchel.memory.store.repository import digest_of, offset_minutes

T = TypeVar("T")
Check: TypeAlias = Callable[[Any], Any]
"""Gives what is stored of a value in a file; raises `ValueError` or `UsageError` if it can't be."""


class InvalidField(ValueError):
    """A field has a value that can't be stored; the message is its name."""


def read_fields(kind: type[T], line: Mapping[str, Any]) -> T:
    """Read a dataclass from JSON data. A field that is missing or null has its default, or is None if it may be.

    Raises:
        InvalidField: A field can't be read.
    """
    declared: Any = kind
    found = {}
    for name, check in _checks(declared).items():
        try:
            found[name] = check(line.get(name))
        except (TypeError, ValueError, OverflowError, UsageError):
            raise InvalidField(name) from None
    return kind(**found)


@cache
def _checks(kind: Any) -> Mapping[str, Check]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _check_of(hints[field.name], field.default) for field in fields(kind)}


def _check_of(hint: Any, default: Any) -> Check:
    options = get_args(hint)
    if default is not MISSING or NoneType in options:
        inner = options[0] if NoneType in options else hint
        check, other = _check_of(inner, MISSING), None if default is MISSING else default
        return lambda value: other if value is None else check(value)
    if get_origin(hint) is Literal:
        return lambda value: _is(isinstance(value, str) and value in options, value)
    own: Check = hint.__metadata__[0]
    return own


def _is(fits: object, value: Any) -> Any:
    if not fits:
        raise ValueError(value)
    return value


def _words(value: Any) -> str:
    return printable(_is(isinstance(value, str), value))


def _content(value: Any) -> Any:
    words = _words(value)
    return _is(words.strip() and len(words) <= MAX_CONTENT_CHARS, words)


def _hash(value: Any) -> Any:
    return _is(len(_words(value)) <= 128 and value.isalnum() and value.isascii(), value)


def _from(low: int) -> Check:
    return lambda value: _is(whole(value, "number") >= low, value)


def _micros(value: Any) -> Any:
    if type(value) is int:
        return whole(value, "time")
    moment = datetime.fromisoformat(_words(value))
    return to_micros(_is(moment.tzinfo, moment))


def offset_of(value: object) -> int:
    """The offset of a time in minutes; 0 of one that is in microseconds, or is none."""
    try:
        return offset_minutes(datetime.fromisoformat(value)) if isinstance(value, str) else 0
    except ValueError:
        return 0


def _lines(value: Any) -> tuple[PageLine, ...]:
    return tuple(
        replace(one, text=printable(one.text), of=printable(one.of)) for one in lines_from_json(value)
    )


Any64: TypeAlias = Annotated[int, partial(whole, what="number")]
From0: TypeAlias = Annotated[int, _from(0)]
From1: TypeAlias = Annotated[int, _from(1)]
Importance: TypeAlias = Annotated[int, CHECKS["importance"]]
Micros: TypeAlias = Annotated[int, _micros]
"""Microseconds since 1970 in UTC; in a file also a time in ISO 8601 with its offset."""
Share: TypeAlias = Annotated[float, CHECKS["priority"]]
Words: TypeAlias = Annotated[str, _words]
Content: TypeAlias = Annotated[str, _content]
Name: TypeAlias = Annotated[str, partial(clean, what="name")]
Hash: TypeAlias = Annotated[str, _hash]
Spheres: TypeAlias = Annotated[str, CHECKS["spheres"]]
Flag: TypeAlias = Annotated[bool, lambda value: value is True]
Tags: TypeAlias = Annotated[tuple[str, ...], CHECKS["tags"]]
Cues: TypeAlias = Annotated[tuple[str, ...], fitting_cues]
Lines: TypeAlias = Annotated[tuple[PageLine, ...], _lines]
Time: TypeAlias = Annotated[FactTime | None, time_from_json]
Fields: TypeAlias = Annotated[Mapping[str, Any], lambda value: _is(isinstance(value, Mapping), value)]

UNDATED = "undated"
"""The tag of an imported memory whose source doesn't say when it was said; it has the date of the file."""

_MAX_TAGS = 64  # For one imported memory; more tags don't help to find it.
_MAX_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMemory:
    """A memory in a file.

    Attributes:
        id: Derived from identifiers in the file, so that importing it again finds the same memory.
        said_at: Microseconds since 1970 in UTC; `said_offset_min` is the local offset.
    """

    id: Name
    content: Content
    kind: Kind
    tier: Tier
    memory_type: MemoryType
    importance: Importance = 3
    priority: Share | None = None
    decay_rate: Share | None = None
    tags: Tags = ()
    speaker: Words = ""
    said_at: Micros
    said_offset_min: Any64 = 0
    valid_from: Micros | None = None
    valid_to: Micros | None = None
    session: Words | None
    turn: Any64 | None = None
    position: Any64 | None = None
    quote: Words | None = None
    trust: Trust
    cues: Cues = ()
    time: Time = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedMemory(ImportedMemory):
    """A memory in a file of Satchel's own, with its state in the exported store.

    Attributes:
        request: The number of chat requests when it was stored.
        used_request: The number of chat requests when it was last used.
        distilled_chars: The number of characters that were read for facts, or None.
        pinned: Whether the user wants it in the profile.
        discretion: Whether it may be shown unasked, with `kept_from`; and `spheres`, as the column has them.
    """

    created_at: Micros
    request: Any64 = 0
    last_accessed: Micros | None = None
    access_count: From0 = 0
    used_request: Any64 = 0
    distilled_chars: Any64 | None = None
    distilled_at: Micros | None = None
    pinned: Flag = False
    discretion: Discretion = "open"
    kept_from: Words = ""
    spheres: Spheres = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedEdge:
    """An edge between two memories, by their ids. `created_at` None means the time of the import."""

    source: Name
    target: Name
    relation: Name
    weight: Share = 1.0
    created_at: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPage:
    """A version of the standing page. `written_at` is in microseconds since 1970."""

    number: From1
    written_at: Micros
    by: Author
    model: Words = ""
    state: State
    lines: Lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """The record that a memory was forgotten, with keyed hashes."""

    place_hash: Hash | None
    words_hash: Hash | None
    forgotten_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenWords:
    """The keyed hash of a text that a forgotten memory had before an edit."""

    words_hash: Hash


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedChange:
    """A history entry. `number` identifies it in the file; `undoes` is the number of another entry."""

    number: From1
    memory_id: Name
    other_id: Name | None
    action: Name
    at: Micros
    who: Words = ""
    why: Words = ""
    before: Fields
    after: Fields
    undoes: Any64 | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of Satchel's own format, with the number of chat requests that the store had counted."""

    requests: From0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file that belongs to a message. `read` gives its bytes; it blocks, and may raise `OSError`."""

    name: str
    read: Callable[[], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage:
    """A message of a conversation.

    Attributes:
        id: Of the memory that holds its words, if any does.
        turn: Counted from 1; each message of the user begins one.
        model: Which model said it; "" if the file doesn't say.
    """

    id: str
    role: Literal["user", "assistant"]
    text: str
    at: datetime
    turn: int
    model: str = ""
    files: tuple[ImportedFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedConversation:
    """A conversation, after the memories of its messages.

    Attributes:
        session: The name that its memories have as their session: the format, a colon, and the conversation's own id.
        title: "" if it has none.
        cwd: The folder that it was held in; "" for none.
        branches: Its other branches, each from the first message on.
    """

    session: str
    title: str
    cwd: str
    messages: tuple[ImportedMessage, ...]
    branches: tuple[tuple[ImportedMessage, ...], ...] = ()


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
    | ImportedConversation
    | LeftOut
)


def stable_id(*names: object) -> str:
    """An id derived from names."""
    return "i" + digest_of(*names, size=8)


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
        kind="episode",
        tier="short_term",
        memory_type="conversation",
        decay_rate=EPISODE_DECAY_RATE,
        tags=tags,
        turn=turn,
        position=position,
        trust=trust,
        **_given(id, text, speaker, at, session),
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
        kind="fact",
        tier="long_term",
        memory_type=memory_type,
        tags=tuple(tag[:_MAX_NAME] for tag in clean_tags(tags))[:_MAX_TAGS],
        turn=turn,
        position=position,
        trust=trust,
        **_given(id, text, speaker, at, session),
    )


def _given(id: str, text: str, speaker: str, at: datetime, session: str) -> dict[str, Any]:
    return {
        "id": id,
        "content": printable(text)[:MAX_CONTENT_CHARS],
        "speaker": printable(speaker)[:_MAX_NAME],
        "session": printable(session)[:1000],
        "said_at": to_micros(at),
        "said_offset_min": offset_minutes(at),
    }
