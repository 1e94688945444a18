"""What memory gives and takes: memories, episodes, hits, surfaced context, receipts. Plain frozen data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final, Literal, TypeAlias, get_args

from satchel.plain import as_json

Kind: TypeAlias = Literal["episode", "fact", "summary"]
"""Something that was said, word for word; something that is known; several of them in short."""

Tier: TypeAlias = Literal["short_term", "long_term"]
MemoryType: TypeAlias = Literal[
    "general", "decision", "insight", "fact", "preference", "project", "conversation"
]
TimeKind: TypeAlias = Literal["lasting", "event", "deadline", "period", "recurrence", "past"]
"""What kind of time a fact has. "past" was over already when it was said, and holds for good."""

Trust: TypeAlias = Literal["user", "agent", "outside"]
"""Whose words they are: the user's, a model's, or somebody's who is not part of the conversation."""

Discretion: TypeAlias = Literal["open", "confidential", "withheld"]
Wished: TypeAlias = Literal["forget", "confidential", ""]
"""What somebody asks for: that something is not kept, or is shown only when they ask about it."""
"""Whether a memory is shown unasked; only when the user asks about it; never, because the user wants it forgotten."""

TRUST_RANK: Final[Mapping[Trust, int]] = {"outside": 0, "agent": 1, "user": 2}
"""A memory is superseded only by one of at least its own rank."""

OWN_SPEAKERS: Final = ("", "user", "human", "me")
"""How the user is named as a speaker, in lower case."""

Moment: TypeAlias = datetime | date | str
"""A time: a `datetime`, a `date` for its midnight, or either in ISO 8601, as "2026-03-01T18:30"."""

_EVERY: Final = re.compile(r"week( [0-6])+|month \d{1,2}|year \d{3,4}")

Mode: TypeAlias = Literal["hybrid", "lexical", "semantic", "keyword"]
"""Both arms of the search, the words alone; and the formulas of seed-2 and seed-0 (`formulas`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a memory comes from; all None for one that was stored by hand.

    Attributes:
        session: The conversation, and `turn` the exchange in it, counted from 1 by Satchel itself.
        position: Which of the things said in that turn.
        quote: The words that a distilled fact rests on.
    """

    session: str | None = None
    turn: int | None = None
    position: int | None = None
    quote: str | None = None

    @property
    def document(self) -> str:
        """The path of the document that it is a passage of; "" for all else."""
        return document_path(self.session or "")

    @property
    def place(self) -> str:
        """Where it stands there: "page 12", "part 3" of a document without pages, or "turn 4"; "" if unknown."""
        unit = "turn" if not self.document else "page" if (self.session or "").startswith(_PAGED) else "part"
        return "" if self.turn is None else f"{unit} {self.turn}"


_PAGED: Final = "document:page:"


def document_path(source: str) -> str:
    """The path in the name of a document's source, "document:UNIT:HASH:NONCE:PATH"; "" if it is none."""
    return source.split(":", 4)[4] if source.startswith("document:") and source.count(":") >= 4 else ""


def document_source(path: str, digest: str, nonce: str, *, is_paged: bool) -> str:
    """The reverse of `document_path`. The nonce differs each time, so that old words can come again."""
    return f"document:{'page' if is_paged else 'part'}:{digest}:{nonce}:{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """A document that is remembered.

    Attributes:
        path: Where it was read.
        source: The `Source.session` of its passages.
        digest: Of its bytes, in hex.
        title: From the document itself, or its file's name.
    """

    path: str
    source: str
    digest: str
    title: str
    passages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FactTime:
    """What kind of time a fact has, as the model that read it says, and its days, which the program computed.

    Attributes:
        first: The first day; None where no day was said, or what was said can't be known.
        last: The last day: of a deadline, the day by which it is due. None where it has no end.
        every: When a recurrence comes round: weekdays by their numbers ("week 0 3", Monday is 0), a day of the month
            ("month 15"), or a day of the year as 100 * month + day ("year 602"); "" for all else.
    """

    kind: TimeKind
    first: date | None = None
    last: date | None = None
    every: str = ""

    @property
    def ends(self) -> bool:
        """Whether it is over by itself after its last day."""
        return self.last is not None and self.kind in ("event", "deadline", "period")


SHARED: Final = "shared:"
"""Begins the scope of what is shared with others; the name of their space follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """One memory.

    Attributes:
        id: Names it in its store; the same for the same place of the same conversation.
        importance: 1 (trivial) to 5 (critical).
        priority: 0 to 1, as it was set; `decay_rate` is what it loses a day.
        speaker: Who said it, or "".
        said_at: When it was said, with the offset of the place where it was.
        valid_from: From when on it holds, and `valid_to` until when; None where open.
        last_accessed: When it was last shown to a model, or None.
        pinned: The user wants it in the profile.
        time: What kind of time a fact that a model read has; None for everything else.
        discretion: Whether it may be shown unasked; `kept_from` has the words that say so, or from whom it is kept.
        spheres: To which parts of the user's life it belongs; empty where nobody said so.
        scope: Where it is kept; see `shared_in`.
    """

    id: str
    content: str
    kind: Kind
    tier: Tier
    memory_type: MemoryType
    importance: int
    priority: float
    decay_rate: float
    tags: tuple[str, ...]
    speaker: str
    said_at: datetime
    valid_from: datetime | None
    valid_to: datetime | None
    source: Source
    trust: Trust
    created_at: datetime
    last_accessed: datetime | None
    access_count: int
    scope: str
    user: str
    pinned: bool = False
    time: FactTime | None = None
    discretion: Discretion = "open"
    kept_from: str = ""
    spheres: tuple[str, ...] = ()

    @property
    def shared_in(self) -> str:
        """The space that it is shared in with others; "" for what is the user's alone."""
        return self.scope.removeprefix(SHARED) if self.scope.startswith(SHARED) else ""

    def is_over(self, now: datetime) -> bool:
        """Whether its time is over, so that it is told as past; what a later memory replaced is something else."""
        ends = self.time is not None and self.time.ends
        return ends and self.valid_to is not None and self.valid_to <= now


PICTURE: Final = "picture"
"""The tag of what is remembered of a picture; another is `picture_tag`."""
DESCRIBED: Final = "\nDescribed by a model: "
"""What stands between the name of a picture, with the words that it came with, and what a model says it shows."""


def picture_tag(sha256: str) -> str:
    """The tag by which the memories of one picture, by its hash, are found wherever it was sent."""
    return f"{PICTURE}:{sha256[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Something that was said in a conversation, to be kept word for word.

    Attributes:
        session: The conversation, and `turn` the exchange in it.
        speaker: Who said it.
        said_at: When; None takes the clock's time. Without an offset it is read as local time.
        position: Which of the things said in that turn; None counts them in the order given, from 0.
        pictures: Names and hashes of the pictures that came with it. Each is a memory of its own, found by its name and
            the words that it came with. The text may be empty then.
        trust: Whose words they are.
        wished: What the user asks for in it, as the model that answers them understands it: that it is forgotten, or
            confidential, with the turn before (`wished_before`) or without it.
    """

    session: str
    turn: int
    speaker: str
    text: str
    said_at: Moment | None = None
    position: int | None = None
    pictures: tuple[tuple[str, str], ...] = ()
    trust: Trust = "user"
    wished: Wished = ""
    wished_before: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A part of a long memory.

    Attributes:
        number: Which part it is, from 1, `of` so many.
    """

    text: str
    number: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A memory that was found.

    Attributes:
        score: Higher is better; comparable within one search only.
        signals: What the score is made of; "dense" is None where no vector could be compared.
        passage: Of a long memory, the part that the question is about. Only the first hits of a search have it.
        answers: For a short reply, the question right before it, which it means something beside.
        is_over: Its time is over: it is told as past.
        before: Older memories that gave the same attribute another value, newest first. They are not shown themselves.
    """

    memory: MemoryRecord
    score: float
    signals: Mapping[str, float | None]
    passage: Passage | None = None
    answers: str | None = None
    is_over: bool = False
    before: tuple[MemoryRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedHits:
    """What was found in shared spaces; `away` are those that could not be asked."""

    hits: tuple[Hit, ...]
    away: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What to show a model now.

    Attributes:
        text: The marked block, or "" where nothing is relevant.
        memories: What it shows, best first; their scores are in [0, 1].
        tokens: Of `text`, estimated.
        standing: What bears on the conversation too and is before the model already, in its profile or agenda.
    """

    text: str = ""
    memories: tuple[Hit, ...] = ()
    tokens: int = 0
    standing: tuple[Hit, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is something to show."""
        return bool(self.memories)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What would be shown to a model now, and why not more.

    Attributes:
        left_out: What came near, each with the reason why it is not shown, in words.
    """

    context: Context = field(default_factory=Context)
    left_out: tuple[tuple[Hit, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """One memory that is gone: what it was, without its words.

    Attributes:
        content_hmac: HMAC-SHA-256 of its words, with a key that never leaves the home: nobody else can test a guess.
        because_of: The id of the memory that it rested on, where it was not asked for itself.
        vectors: Rows of vectors that went with it, one for each embedder; likewise `edges`, `tags` and `cues`.
    """

    id: str
    kind: Kind
    source: Source
    content_hmac: str
    because_of: str | None
    vectors: int
    edges: int
    tags: int
    cues: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What `forget` removed, and what it changed in the memories that stay.

    Attributes:
        forgotten: Everything that is gone.
        missing: Ids that were asked for and not there.
        forgotten_at: When.
        log_emptied: Whether the words are also out of the database's write-ahead log. If not, another process was
            reading; the log is emptied when the last process closes the database.
        dry_run: Nothing was removed: this is what would be.
        echoes: Ids of memories that repeated the words and now have "[forgotten]" in their place.
        still_said: Ids of memories that say the same words in their own right. They are unchanged.
        requoted: Ids of facts that rest on something else as well. They no longer quote what is gone.
        reopened: Ids of memories that what is gone had superseded. They hold again.
    """

    forgotten: tuple[Forgotten, ...]
    missing: tuple[str, ...]
    forgotten_at: datetime
    log_emptied: bool
    dry_run: bool = False
    echoes: tuple[str, ...] = ()
    still_said: tuple[str, ...] = ()
    requoted: tuple[str, ...] = ()
    reopened: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a store holds for one user and scope.

    Attributes:
        memories: All of them; `by_kind`, `by_tier` and `by_type` split them.
        embedded: How many have a vector of the embedder in use; `embedder` names it, None where there is none
        yet.
        forgotten: How many were forgotten.
        oldest: When the first of them was said, and `newest` the last.
    """

    memories: int
    by_kind: Mapping[str, int]
    by_tier: Mapping[str, int]
    by_type: Mapping[str, int]
    sessions: int
    embedder: str | None
    embedded: int
    forgotten: int
    oldest: datetime | None
    newest: datetime | None


def record_to_json(memory: MemoryRecord, evidence: Sequence[MemoryRecord] = ()) -> dict[str, Any]:
    """A memory as plain JSON data (DESIGN 3.3); times in ISO 8601. `evidence`: the turns that it rests on, by id."""
    return {**as_json(memory), **({"evidence": [turn.id for turn in evidence]} if evidence else {})}


def time_from_json(found: object) -> FactTime | None:
    """The time of a fact from JSON data; None where it is none."""
    if not isinstance(found, Mapping) or found.get("kind") not in get_args(TimeKind):
        return None
    try:
        first, last = (
            date.fromisoformat(found[name]) if found.get(name) else None for name in ("first", "last")
        )
    except (TypeError, ValueError):
        return None
    every = found.get("every")
    return FactTime(
        kind=found["kind"],
        first=first,
        last=last,
        every=every if isinstance(every, str) and _EVERY.fullmatch(every) else "",
    )


def hit_to_json(hit: Hit, evidence: Sequence[MemoryRecord] = ()) -> dict[str, Any]:
    """A hit as plain JSON data (DESIGN 3.3), and its evidence as in `record_to_json`."""
    seldom = {name for name in ("passage", "answers", "is_over", "before") if not getattr(hit, name)}
    found = {name: value for name, value in as_json(hit).items() if name not in seldom}
    return {**found, "memory": record_to_json(hit.memory, evidence)}


def receipt_to_json(receipt: Receipt) -> dict[str, Any]:
    """A receipt as plain JSON data (DESIGN 3.3): one entry for each memory under `receipt`."""
    shown: dict[str, Any] = as_json(receipt)
    gone = shown.pop("forgotten")
    for one in gone:
        counts = {name: one.pop(name) for name in ("vectors", "edges", "tags", "cues")}
        one["removed"] = {"memory": 1, "index_entry": 1, **counts}
    return {"receipt": gone, **shown}
