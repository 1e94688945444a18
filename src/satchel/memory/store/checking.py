"""Checks what is given for a memory: the same for storing and for editing. What can't be stored is a `UsageError`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any, Final, TypedDict, get_args

from satchel.errors import UsageError
from satchel.memory.records import Discretion, Kind, MemoryType, Moment, Tier, Trust
from satchel.memory.spheres import clean_spheres

MAX_CONTENT_CHARS = 16_000_000
"""Of one memory: more than the longest prompt that is let in, and less than what would fill a machine's
memory.
"""

# seed-0, "Memory tiers and decay": the middle of each tier's range.
PRIORITY: dict[Tier, float] = {"short_term": 0.55, "long_term": 0.85}
DECAY_RATE: dict[Tier, float] = {"short_term": 0.02, "long_term": 0.005}


class _Words(TypedDict, total=False):
    content: str | None


class _Fields(TypedDict, total=False):
    tags: Iterable[str] | None
    tier: Tier | None
    memory_type: MemoryType | None
    importance: int | None
    priority: float | None
    decay_rate: float | None
    speaker: str | None
    said_at: Moment | None
    valid_from: Moment | None
    valid_to: Moment | None
    discretion: Discretion | None
    kept_from: str | None
    spheres: Iterable[str] | None


class NewFields(_Fields, total=False):
    """What can be said of a new memory besides its words; what is left out or None has its default.

    Attributes:
        kind: What it is; a fact.
        tags: More words to find it by.
        tier: How long it is meant to matter; long_term.
        memory_type: What it is about; general.
        importance: 1 (trivial) to 5 (critical); 3.
        priority: 0 to 1; the tier's own.
        decay_rate: What the priority loses a day, 0 to 1; the tier's own.
        speaker: Who said it.
        said_at: When; the clock's time. A time without an offset is local.
        valid_from: From when on it holds.
        valid_to: Until when it holds.
        session: The conversation that it comes from.
        turn: The exchange in it.
        quote: The words in it that it rests on.
        trust: Whose words they are; the user's.
        cues: Up to six situations in which it will matter, a few words each, such as "choosing a restaurant": a request
            that doesn't mention it finds it by them. They are never shown. What comes from outside has none.
        discretion: Whether a model may be shown it unasked ("open", the default), only when the user asks about it
            ("confidential"), or not at all ("withheld").
        kept_from: From whom it is kept, in words.
        spheres: To which parts of the user's life it belongs: health, love, family, money, work, belief, leisure, home,
            or "person:NAME". Without any, it is shown whatever a message is about.
    """

    kind: Kind | None
    session: str | None
    turn: int | None
    quote: str | None
    trust: Trust | None
    cues: Iterable[str] | None


class Edits(_Words, _Fields, total=False):
    """Fields of a memory that are to change, as in `NewFields`; what is left out or None stays as it is.

    Attributes:
        content: Its new words.
        tier: Also sets the tier's own priority and rate of decay, where none is given.
        valid_from: None removes it, and so it is with `valid_to`.
    """


def refuse_unknown(given: Mapping[str, object], fields: type, what: str) -> None:
    """Raise `TypeError` for a name that isn't one of these fields."""
    if unknown := given.keys() - fields.__annotations__.keys():
        raise TypeError(f"There is no {what} {min(unknown)!r}.")


def moment_of(moment: Moment) -> datetime:
    """A time in any of its forms."""
    if isinstance(moment, datetime):
        return moment
    try:
        return datetime.fromisoformat(moment.isoformat() if isinstance(moment, date) else moment)
    except (TypeError, ValueError):
        raise UsageError(
            f"{moment!r} is no time; give a datetime, or write it as 2026-03-01 or 2026-03-01T18:30."
        ) from None


def printable(text: str) -> str:
    """The text as UTF-8 can hold it and SQLite can compare it: no NUL, no lone surrogate."""
    if not isinstance(text, str):
        raise UsageError(f"Memory keeps text, and this is a {type(text).__name__}: {text!r:.100}")
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")


def clean(name: str, what: str) -> str:
    """A name that keys are made of."""
    cleaned = printable(name)
    if not cleaned.strip() or len(cleaned) > 1000:
        raise UsageError(f"The {what} is empty or longer than 1,000 characters; give it a name.")
    return cleaned


def clean_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags without blanks around them and without repetitions, in order."""
    if isinstance(tags, str):
        tags = tags.split(",")
    return tuple(dict.fromkeys(tag for tag in (printable(tag).strip() for tag in tags) if tag))


def _content(text: str) -> str:
    """The words of a memory as they are stored; empty where there are none."""
    content = printable(text)
    if len(content) > MAX_CONTENT_CHARS:
        raise UsageError(
            f"A memory has at most {MAX_CONTENT_CHARS:,} characters, and this one has {len(content):,}. "
            "Store it in parts."
        )
    return content if content.strip() else ""


def _importance(value: object) -> int:
    importance = whole(value, "importance")
    if not 1 <= importance <= 5:
        raise UsageError(f"The importance is {importance}; it goes from 1 (trivial) to 5 (critical).")
    return importance


def _share(value: float, what: str) -> float:
    """A number from 0 to 1; what is none, infinite ones among them, is refused."""
    share = float(value)
    if not 0 <= share <= 1:
        raise UsageError(f"The {what} is {share:g}; it goes from 0 to 1.")
    return share


def whole(value: object, what: str) -> int:
    """A whole number that a database can hold."""
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise UsageError(f"The {what} is {value!r}; it is a whole number.")
    return value


def one_of(value: str, allowed: Any, what: str) -> Any:
    """A value of a closed set."""
    if value not in get_args(allowed):
        raise UsageError(f"There is no {what} {value!r}; there are {', '.join(get_args(allowed))}.")
    return value


def _short(text: str) -> str:
    return printable(text)[:200]


CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "content": _content,
    "tags": clean_tags,
    "kind": partial(one_of, allowed=Kind, what="kind"),
    "tier": partial(one_of, allowed=Tier, what="tier"),
    "memory_type": partial(one_of, allowed=MemoryType, what="memory type"),
    "trust": partial(one_of, allowed=Trust, what="trust"),
    "discretion": partial(one_of, allowed=Discretion, what="discretion"),
    "importance": _importance,
    "priority": partial(_share, what="priority"),
    "decay_rate": partial(_share, what="decay rate"),
    "speaker": _short,
    "kept_from": _short,
    "spheres": clean_spheres,
}
"""What each field of a memory may be; they give it as it is stored, and raise `UsageError`."""
