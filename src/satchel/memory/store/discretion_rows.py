"""Holding back in the database: what a wish covers besides the message that has it. Runs in a transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import Any, TypeAlias

from sqlalchemy import Connection, bindparam, case, insert, select, update

from satchel.memory.records import Discretion
from satchel.memory.store.micros import from_micros, to_micros
from satchel.memory.store.tables import changes, edges, memories
from satchel.memory.text.discretion import (
    GUEST,
    DiscretionWish,
    Whose,
    beside_wish,
    is_kin,
    is_own,
    named_in,
    open_part,
    stricter,
    telling_words,
    wish_of,
)
from satchel.storage import Prepared


def part_to_read(row: Any) -> str:
    """What may be read of an episode: all of it, or where its own words ask not to keep something, what comes after
    them; blanks stand for the rest.
    """
    return _open_part(row) if row.discretion == "withheld" else str(row.content)


def _open_part(row: Any) -> str:
    """What an episode says that its own wish is not about; blanks stand for the rest, and for all of it if it is held
    back for another reason.
    """
    wish = wish_of(row.content)
    if wish is not None and row.kept_from == wish.words:
        if wish.kind == "forget":
            return open_part(row.content)
        if wish.kind == "confidential" and row.discretion == "confidential":
            return beside_wish(row.content)
    return " " * len(row.content)


UnwrittenMemory: TypeAlias = tuple[Mapping[str, Any], DiscretionWish | None]
"""A memory that is about to be written: its columns, and what the user asks for in it."""


_RANKED = case({"withheld": 2, "confidential": 1}, value=memories.c.discretion, else_=0)
_OF_TURN = Prepared(
    select(
        memories.c.rid,
        memories.c.kind,
        memories.c.speaker,
        memories.c.trust,
        memories.c.discretion,
        memories.c.kept_from,
        memories.c.content,
        memories.c.source_quote,
    )
    .where(
        memories.c.space_id == bindparam("space"),
        memories.c.source_session == bindparam("session"),
        memories.c.source_turn == bindparam("turn"),
    )
    .order_by(_RANKED.desc(), memories.c.rid)
)
_BEFORE = Prepared(
    select(memories.c.source_turn, memories.c.speaker)
    .where(
        memories.c.space_id == bindparam("space"),
        memories.c.source_session == bindparam("session"),
        memories.c.source_turn < bindparam("turn"),
        memories.c.kind == "episode",
        memories.c.trust != "agent",
    )
    .order_by(memories.c.source_turn.desc(), memories.c.rid)
    .limit(1)
)
_SAID_BETWEEN = Prepared(
    select(memories.c.source_session, memories.c.source_turn, memories.c.content)
    .where(
        memories.c.space_id == bindparam("space"),
        memories.c.said_at >= bindparam("since"),
        memories.c.said_at < bindparam("until"),
        memories.c.kind == "episode",
        memories.c.trust == "user",
        memories.c.source_session.is_not(None),
        memories.c.source_turn.is_not(None),
    )
    .order_by(memories.c.rid)
)
_NEWEST_TURN = 1 << 62
_MOST_SAID = 1_000
"""Of the user's turns, the oldest and the newest: with a language model, the others have been read for facts."""
AS_ASKED = "as asked in turn "
"""How the reason begins why a memory is held back whose own words don't say so."""


def as_asked_in(turn: int) -> str:
    """Why a memory is held back whose own words don't say so."""
    return f"{AS_ASKED}{turn}"


def as_asked_elsewhere(session: str, turn: int) -> str:
    """The same, where that was asked in another conversation."""
    return f"{AS_ASKED}{turn} of {session}"


def guest_in(connection: Connection, space: int, session: str) -> bool:
    """Whether the newest message of a session is a guest's."""
    found = _BEFORE.named(connection, {"space": space, "session": session, "turn": _NEWEST_TURN})
    return bool(found) and found[0].speaker == GUEST


def name_of(connection: Connection, space: int, name: str) -> Whose:
    """Whose name it is, by what the facts of a space are about (see `named_in`), or else by what the user said of
    themselves and of theirs, or else by what facts speak of. The user's own comes first.
    """
    contents = select(memories.c.content).where(memories.c.space_id == space)
    found = {
        named_in(name, content) for content in connection.scalars(contents.where(memories.c.kind == "fact"))
    }
    for whose in ("own", "other"):
        if whose in found:
            return whose
    said = contents.where(memories.c.kind == "episode", memories.c.trust == "user")
    # People introduce themselves at the beginning.
    parts = (
        said.order_by(memories.c.said_at).limit(_MOST_SAID),
        said.order_by(memories.c.said_at.desc()).limit(_MOST_SAID),
    )
    texts = {content for part in parts for content in connection.scalars(part)}
    if any(is_own(name, text) for text in texts):
        return "own"
    return "other" if "named" in found or any(is_kin(name, text) for text in texts) else ""


def obey(
    connection: Connection, space: int, drafts: Sequence[UnwrittenMemory]
) -> tuple[list[dict[str, Any]], list[int]]:
    """What becomes of the rows of new memories by what was said in their conversation, before they are written.

    A message that says so holds back its whole turn, and the turn before where it points there, with the facts drawn
    from them. What is said after a guest announced themselves, until the user is back, is the guest's.

    The drafts stand in the order in which they were said.

    Returns:
        The columns to write instead, for each draft; and the rids of stored memories that are held back now.
    """
    turns: dict[tuple[str, int], _Turn] = {}
    instead: list[dict[str, Any]] = []
    for row, wish in drafts:
        session, turn = row["source_session"], row["source_turn"]
        if session is None or turn is None:
            instead.append({})
            continue
        place = (session, turn)
        if place not in turns:
            turns[place] = _Turn(connection, space, session, turn, turns)
        instead.append(turns[place].take(row, wish))
    held: list[int] = []
    for (session, turn), one in turns.items():
        if one.discretion == "open":
            continue
        held += _hold_back(connection, space, one, at=drafts[0][0]["created_at"])
        # What stands in the same batch and came before the wish.
        for change, (row, wish) in zip(instead, drafts, strict=True):
            if (row["source_session"], row["source_turn"]) == (session, turn):
                if one.is_open(row.get("source_quote")):
                    continue  # It was said after the wish, which is not about it.
                own: Discretion = change.get("discretion") or row.get("discretion") or "open"
                change["discretion"] = stricter(own, one.discretion)
                # Only the message that asks has its words: they are forgotten with it.
                is_asking = wish is not None and wish.discretion == one.discretion
                change["kept_from"] = wish.words if wish and is_asking else one.why
    return instead, held


class _Turn:
    """One turn of a conversation, as far as it is known."""

    def __init__(
        self,
        connection: Connection,
        space: int,
        session: str,
        turn: int,
        others: dict[tuple[str, int], _Turn],
    ) -> None:
        self._others = others
        self._connection, self._space, self._session, self._turn = connection, space, session, turn
        self.discretion: Discretion = "open"
        self.why = ""
        self.open_part = ""
        rows = _OF_TURN.named(connection, {"space": space, "session": session, "turn": turn})
        for row in [row for row in rows if row.kind == "episode"][:1]:
            if row.discretion != "open":
                self.hold_back(
                    row.discretion, turn if not row.kept_from.startswith(AS_ASKED) else row.kept_from
                )
                self.open_part = _open_part(row)
        self.rids = [row.rid for row in rows if not self.is_open(row.source_quote)]
        earlier = max((number for name, number in others if name == session and number < turn), default=-1)
        before = _BEFORE.named(connection, {"space": space, "session": session, "turn": turn})
        stored = before[0].source_turn if before else -1
        self._previous = max(earlier, stored)
        said = [row.speaker for row in rows if row.kind == "episode" and row.trust != "agent"]
        if said:
            # What is drawn from a turn later is whose the turn was, also where it ended a guest's.
            self.is_guests = GUEST in said
        elif earlier >= 0 and earlier >= stored:
            self.is_guests = others[session, earlier].is_guests
        else:
            self.is_guests = bool(before) and before[0].speaker == GUEST

    def is_open(self, quote: str | None) -> bool:
        """Whether a quote was said after the wish, which is not about it."""
        return bool(quote and quote in self.open_part)

    def take(self, row: Mapping[str, Any], wish: DiscretionWish | None) -> dict[str, Any]:
        """What becomes of a memory that was said in this turn."""
        if wish is not None:
            whose = name_of(self._connection, self._space, wish.name) if wish.name else ""
            is_guests = wish.is_guests(whose)
            if is_guests is not None:
                self.is_guests = is_guests
            elif not self.is_guests:
                self.hold_back(wish.discretion, self._turn)
                places = [(self._session, self._previous)] if wish.points_back and self._previous >= 0 else []
                if wish.kind == "forget":
                    places += _said_then(self._connection, self._space, row, wish)
                elsewhere = as_asked_elsewhere(self._session, self._turn)
                for place in places:
                    if place not in self._others:
                        self._others[place] = _Turn(self._connection, self._space, *place, self._others)
                    why = self._turn if place[0] == self._session else elsewhere
                    self._others[place].hold_back(wish.discretion, why)
        if self.is_guests:
            return {"trust": "outside", **({"speaker": GUEST} if row["trust"] == "user" else {})}
        return {}

    def hold_back(self, discretion: Discretion, asked: int | str) -> None:
        """Hold it back as asked in a turn, or for a reason that stands there already."""
        if stricter(self.discretion, discretion) != self.discretion:
            self.discretion = discretion
            self.why = asked if isinstance(asked, str) else as_asked_in(asked)


def _said_then(
    connection: Connection, space: int, message: Mapping[str, Any], wish: DiscretionWish
) -> list[tuple[str, int]]:
    """The turns that a wish names by their day ("forget what I said last night"): of what the user said then, what
    shares a telling word with the message. If nothing does, all that was said the day before: an earlier day may be
    that of the matter ("about the dinner on Friday").
    """
    # Few messages take something back, and a search loads no dates.
    from satchel.memory.text.dates import resolve_dates  # noqa: PLC0415

    said_at = from_micros(message["said_at"], message["said_offset_min"])
    midnight = datetime.combine(said_at.date(), time(), said_at.tzinfo)
    for named in resolve_dates(wish.words, said_at):
        if named.start is None or named.end is None or named.start >= said_at.date():
            continue
        first, last = (said_at.date() - named.start).days, max((said_at.date() - named.end).days, 1)
        # What is said after midnight is said in the night of the day before.
        ends = midnight - timedelta(days=last - 1) + timedelta(hours=4)
        rows = _SAID_BETWEEN.named(
            connection,
            {
                "space": space,
                "since": to_micros(midnight - timedelta(days=first)),
                "until": min(to_micros(ends), message["said_at"]),
            },
        )
        own = message["source_session"], message["source_turn"]
        said = {(row.source_session, row.source_turn): row.content for row in rows}
        said.pop(own, None)
        asked = telling_words(str(message["content"]).replace(named.text, " "))
        about = [place for place, content in said.items() if asked & telling_words(content)]
        return about or (list(said) if first == 1 else [])
    return []


def _hold_back(connection: Connection, space: int, turn: _Turn, *, at: int) -> list[int]:
    """Hold the memories of a turn back, and the facts that were drawn from them, unless they are held back as much, or
    rest on its open part. The history and the journal have it like a change by the user.
    """
    facts = connection.execute(
        select(memories.c.rid, memories.c.source_quote)
        .select_from(edges)
        .join(memories, memories.c.rid == edges.c.source_rid)
        .where(edges.c.relation == "derived_from", edges.c.target_rid.in_(turn.rids))
    )
    wanted = {*turn.rids, *(row.rid for row in facts if not turn.is_open(row.source_quote))}
    less = ("open",) if turn.discretion == "confidential" else ("open", "confidential")
    found = connection.execute(
        select(memories.c.rid, memories.c.id, memories.c.discretion, memories.c.kept_from).where(
            memories.c.rid.in_(wanted), memories.c.discretion.in_(less)
        )
    ).all()
    after = {"discretion": turn.discretion, "kept_from": turn.why}
    for row in found:
        connection.execute(update(memories).where(memories.c.rid == row.rid).values(**after))
        before = {"discretion": row.discretion, "kept_from": row.kept_from}
        connection.execute(
            insert(changes).values(
                space_id=space,
                memory_id=row.id,
                action="edit",
                at=at,
                who="user",
                why=turn.why,
                before=json.dumps(before, ensure_ascii=False),
                after=json.dumps(after, ensure_ascii=False),
            )
        )
    return [row.rid for row in found]
