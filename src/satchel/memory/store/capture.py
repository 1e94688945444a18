"""Storing: checks what is given, removes secrets, reads the words, and writes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from satchel.errors import UsageError
from satchel.memory.records import PICTURE, Episode, FactTime, Tier, Trust, Wished, picture_tag
from satchel.memory.store import repository
from satchel.memory.store.checking import (
    CHECKS,
    DECAY_RATE,
    PRIORITY,
    NewFields,
    clean,
    printable,
    refuse_unknown,
    whole,
)
from satchel.memory.store.cues import clean_cues
from satchel.memory.store.decay import EPISODE_DECAY_RATE
from satchel.memory.store.discretion_rows import as_asked_in
from satchel.memory.store.echoes import may_repeat, said_only
from satchel.memory.store.history import earlier_contents
from satchel.memory.store.micros import to_micros
from satchel.memory.store.redaction import strip_private
from satchel.memory.store.repository import MemoryDraft, place_hash
from satchel.memory.store.space import INLINE_CHARS, Space
from satchel.memory.text import lexicon
from satchel.memory.text.block import strip_injected
from satchel.memory.text.discretion import DiscretionWish, is_wishing, stricter, wish_of
from satchel.plain import as_json
from satchel.wording import one_line

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PLAIN = ("kind", "memory_type", "importance", "speaker", "discretion", "spheres")
"""Fields that are stored as they are once they are checked."""
_PICTURES_FROM: Final = 2
"""The places of a turn's pictures, after the user's words and the answer."""
_MOST_AROUND: Final = 300
"""Characters of the words that a picture came with."""


class CapturedFields(NewFields, total=False):
    """The same with what only Satchel itself says of a memory.

    Attributes:
        id: A new one if none is given.
        position: The place in its turn, counted from 0; only what was said has one.
        time: What kind of time a fact has.
        wished: What the user asks for in it, as a model understands it, with or without the turn before
            (`wished_before`).
    """

    id: str
    position: int
    time: FactTime | None
    wished: Wished
    wished_before: bool


_DEFAULTS: Final[NewFields] = {
    "kind": "fact",
    "tags": (),
    "tier": "long_term",
    "memory_type": "general",
    "importance": 3,
    "speaker": "",
    "trust": "user",
    "cues": (),
    "discretion": "open",
    "kept_from": "",
    "spheres": (),
}


class Capture:
    """Stores memories in a space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    async def add(self, content: str, **fields: Unpack[NewFields]) -> str:
        """Store one memory and return its id; see `Memory.add`."""
        refuse_unknown(fields, NewFields, "field")
        draft = await self.draft(content, **fields)
        if draft is None:
            raise UsageError("There are no words to remember in this; nothing was stored.")
        ids = await self._space.write(repository.insert_drafts, [draft], fresh=True)
        if not ids:
            raise UsageError(
                f"These words of session {fields.get('session')} were forgotten, and what is forgotten is not stored "
                "again from the same source. Store them without the session if you mean to keep them."
            )
        return ids[0]

    async def add_episodes(self, episodes: Iterable[Episode], *, durable: bool) -> tuple[str, ...]:
        """Store what was said, in one transaction; see `Memory.add_episodes`."""
        drafts, counted = await self._episode_drafts(episodes)

        def write(connection: Connection, space: int) -> list[str]:
            _refuse_taken(connection, space, counted)
            return repository.insert_drafts(connection, space, drafts)

        store = self._space.write_durably if durable else self._space.write
        return tuple(await store(write)) if drafts else ()

    async def lacking(self, episodes: Iterable[Episode]) -> int:
        """How many of these, which have their positions, are not stored though nobody forgot them."""
        drafts, _ = await self._episode_drafts(episodes)
        return len(await self._space.read(repository.lacking_drafts, drafts)) if drafts else 0

    async def _episode_drafts(
        self, episodes: Iterable[Episode]
    ) -> tuple[list[MemoryDraft], list[MemoryDraft]]:
        """What is to be stored, and of that what was given no position."""
        counted: dict[tuple[str, int], int] = {}
        drafts: list[MemoryDraft] = []
        unplaced: list[MemoryDraft] = []
        own = f"{self._space.user}\n{self._space.scope}"
        for episode in episodes:
            session, turn = clean(str(episode.session), "session"), whole(episode.turn, "turn")
            position = episode.position
            if position is None:
                position = counted.get((session, turn), 0)
            position = whole(position, "position")
            counted[session, turn] = position + 1
            draft = await self.draft(
                strip_private(await self._said_only(printable(episode.text))),
                id="e" + place_hash(f"{own}\n{session}", turn, position)[:16],
                kind="episode",
                tier="short_term",
                memory_type="conversation",
                decay_rate=EPISODE_DECAY_RATE,
                speaker=episode.speaker,
                said_at=episode.said_at,
                session=session,
                turn=turn,
                position=position,
                trust=episode.trust,
                wished=episode.wished,
                wished_before=episode.wished_before,
            )
            if draft is not None:
                drafts.append(draft)
                unplaced += [draft] if episode.position is None else []
            for number, (name, sha256) in enumerate(episode.pictures):
                place = _PICTURES_FROM + number
                picture = await self.draft(
                    _of_picture(name, "" if draft is None else draft.row["content"]),
                    id="p" + place_hash(f"{own}\n{session}", turn, place)[:16],
                    tags=(PICTURE, picture_tag(sha256)),
                    speaker=PICTURE,
                    said_at=episode.said_at,
                    session=session,
                    turn=turn,
                    position=place,
                    trust="outside",
                )
                if picture is not None:
                    drafts.append(picture)
        return drafts, unplaced

    async def _said_only(self, text: str) -> str:
        return await self._space.read(said_only, text) if may_repeat(text) else strip_injected(text)

    async def draft(self, content: str, **fields: Unpack[CapturedFields]) -> MemoryDraft | None:
        """Check what was given and read its words. None if it has no words.

        Raises:
            UsageError: A value is out of range or unknown, or the memory would cease to hold before it begins to.
        """
        space = self._space
        content = CHECKS["content"](content)
        if not content:
            return None
        content = await space.redacted(content)
        given = {name: value for name, value in fields.items() if value is not None}
        new: Any = {**dict.fromkeys(CapturedFields.__annotations__), **_DEFAULTS, **given}
        tier: Tier = CHECKS["tier"](new["tier"])
        now = space.clock.now()
        said_at = space.aware(new["said_at"]) or now
        valid_from, valid_to = space.micros(new["valid_from"]), space.micros(new["valid_to"])
        if valid_from is not None and valid_to is not None and valid_to < valid_from:
            raise UsageError(
                f"It would cease to hold ({new['valid_to']}) before it begins to ({new['valid_from']}); nothing was "
                "stored."
            )
        tags = tuple([await space.redacted(tag) for tag in CHECKS["tags"](new["tags"])])
        trust: Trust = CHECKS["trust"](new["trust"])
        # What comes from outside doesn't say when it is to be shown.
        cues = () if trust == "outside" else clean_cues(new["cues"])
        session, turn, quote = new["session"], new["turn"], new["quote"]
        row = {
            **{name: CHECKS[name](new[name]) for name in _PLAIN},
            "content": content,
            "content_hash": repository.content_hash(content),
            "tier": tier,
            "priority": CHECKS["priority"](given.get("priority", PRIORITY[tier])),
            "decay_rate": CHECKS["decay_rate"](given.get("decay_rate", DECAY_RATE[tier])),
            "said_at": to_micros(said_at),
            "said_offset_min": repository.offset_minutes(said_at),
            "valid_from": valid_from,
            "valid_to": valid_to,
            "source_session": None if session is None else clean(session, "session"),
            "source_turn": None if turn is None else whole(turn, "turn"),
            "source_position": new["position"],
            "source_quote": None if quote is None else await space.redacted(printable(quote)),
            "trust": trust,
            "kept_from": await space.redacted(CHECKS["kept_from"](new["kept_from"])),
            "created_at": to_micros(now),
            "time": None if new["time"] is None else json.dumps(as_json(new["time"])),
        }
        return MemoryDraft(
            id=new["id"] or "m" + secrets.token_hex(8),
            tags=tags,
            cues=tuple([await space.redacted(cue) for cue in cues]),
            words=lexicon.read_text(content, tags)
            if len(content) <= INLINE_CHARS
            else await space.thread.run(lexicon.read_text, content, tags),
            words_hash=repository.words_hash(space.hasher, row),
            wish=_wish_in(fields, content) if is_wishing(new["kind"], trust, new["speaker"]) else None,
            row=row,
        )


def _of_picture(name: str, said: str) -> str:
    words = one_line(said, _MOST_AROUND)
    return f"Picture {name}, sent with: “{words}”" if words else f"Picture {name}"


def _refuse_taken(connection: Connection, space: int, drafts: Sequence[MemoryDraft]) -> None:
    """Raise `UsageError` where a place that was only counted has other words already, which would be lost there."""
    ids = [draft.id for draft in drafts]
    known = repository.records_by_id(connection, space, ids) if ids else {}
    earlier = earlier_contents(connection, space, list(known)) if known else {}
    for draft in (draft for draft in drafts if draft.id in known):
        if draft.row["content"] not in (known[draft.id].content, *earlier.get(draft.id, ())):
            raise UsageError(
                f"Turn {draft.row['source_turn']} of session {draft.row['source_session']!r} has other words already. "
                "Give each Episode its position in the turn, counted from 0."
            )


def _wish_in(new: CapturedFields, content: str) -> DiscretionWish | None:
    """What the user asks for: in words that are known, or as a model understood them, whichever shows less."""
    wish, asked_for, turn = wish_of(content), new.get("wished"), new.get("turn")
    if not asked_for or turn is None:
        return wish
    asked = DiscretionWish(
        kind=asked_for, words=as_asked_in(turn), points_back=new.get("wished_before", False)
    )
    if wish is None or stricter(wish.discretion, asked.discretion) != wish.discretion:
        return asked
    return wish._replace(points_back=wish.points_back or asked.points_back)
