"""The SQL of distilling: finding pending episodes, and writing the results of a window in one transaction.

Every function runs inside a transaction of `storage.Database`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, case, func, literal, or_, select
from sqlalchemy.dialects.sqlite import insert

from satchel.errors import NotFound, UsageError
from satchel.memory.distill.checking import CheckedFact
from satchel.memory.distill.records import DistillStatus, Outcome, WindowResult
from satchel.memory.distill.windows import MOST_OF_AGENT, WINDOW_TOKENS, EpisodePart, Window
from satchel.memory.records import MemoryRecord
from satchel.memory.store.cues import cues_of, replace_cues
from satchel.memory.store.discretion_rows import AS_ASKED, part_to_read
from satchel.memory.store.history import ChangeNote
from satchel.memory.store.lifecycle import relate
from satchel.memory.store.micros import from_micros, to_micros
from satchel.memory.store.repository import MemoryDraft, count_up, insert_drafts, rids_by_id
from satchel.memory.store.spending import read_spent
from satchel.memory.store.tables import distill_windows, distilled, edges, memories
from satchel.memory.text.framing import CHARS_A_TOKEN

_MAX_EPISODES = 200
"""The number of pending episodes that are loaded at once, or a few more."""
_EPISODES_BEFORE = 6
"""The number of episodes before them that are loaded as context."""

_WHO = "distill"

_READ = func.coalesce(distilled.c.chars, 0)
_LENGTH = func.length(memories.c.content)
_PENDING = (
    select(memories.c.rid)
    .select_from(memories.outerjoin(distilled, distilled.c.rid == memories.c.rid))
    .where(
        memories.c.kind == "episode",
        # What is withheld by its own words may say more after them, see `part_to_read`; the rest is read by nobody.
        or_(memories.c.discretion != "withheld", memories.c.kept_from.not_like(f"{AS_ASKED}%")),
        or_(distilled.c.rid.is_(None), distilled.c.chars < _LENGTH),
    )
)


def _pending(space: int) -> Any:
    return _PENDING.where(memories.c.space_id == space)


def _failures(space: int) -> Any:
    last_read = (
        select(func.coalesce(func.max(distill_windows.c.id), 0))
        .where(distill_windows.c.space_id == space, distill_windows.c.outcome.in_(("facts", "nothing")))
        .scalar_subquery()
    )
    return select(distill_windows).where(
        distill_windows.c.space_id == space,
        distill_windows.c.outcome.in_(("failed", "given_up")),
        distill_windows.c.id > last_read,
    )


def failing_since(connection: Connection, space: int) -> tuple[int, int]:
    """The number of failures since a window was last read, and the time of the last one in microseconds, or 0."""
    query = _failures(space).with_only_columns(func.count(), func.max(distill_windows.c.at))
    count, at = connection.execute(query).one()
    return int(count), int(at or 0)


class Closing(NamedTuple):
    """When unread messages are read, with times in microseconds.

    Attributes:
        every: A conversation with so many of them can be read, and is at once.
        silent: So can one without a new message since then. It waits for the others of its day, until there is more of
            them all than a window holds.
        day: The beginning of today: what was said until then waits no longer.
    """

    every: int
    silent: int
    day: int


def _sessions(space: int, closing: Closing | None) -> Any:
    """Conversations with pending episodes, the one that has waited longest first."""
    found = (
        _pending(space)
        .with_only_columns(func.max(memories.c.source_session))
        .group_by(func.coalesce(memories.c.source_session, ""))
        .order_by(func.min(memories.c.rid))
    )
    if closing is None:
        return found
    return found.having(or_(func.count() >= closing.every, func.max(memories.c.created_at) <= closing.silent))


def due(connection: Connection, space: int, closing: Closing) -> Closing | None:
    """What is to be read now: all that can be, or where only a day is over, what was said until then; None if nothing
    is.
    """
    left = _LENGTH - _READ
    most = int(MOST_OF_AGENT * CHARS_A_TOKEN)
    ready = (
        _sessions(space, closing)
        .with_only_columns(
            func.count().label("number"),
            func.max(memories.c.created_at).label("last"),
            func.sum(case(((memories.c.trust == "agent") & (left > most), most), else_=left)).label("chars"),
        )
        .order_by(None)
        .subquery()
    )
    number, last, chars = connection.execute(
        select(func.max(ready.c.number), func.min(ready.c.last), func.sum(ready.c.chars))
    ).one()
    if number is None:
        return None
    if number >= closing.every or chars >= WINDOW_TOKENS * CHARS_A_TOKEN:
        return closing
    return closing._replace(silent=min(closing.silent, closing.day - 1)) if last < closing.day else None


def newest(connection: Connection, space: int) -> int:
    """A number that grows with each episode that is stored; 0 without one."""
    query = select(func.max(memories.c.rid)).where(memories.c.space_id == space, memories.c.kind == "episode")
    return int(connection.execute(query).scalar_one() or 0)


def count_pending(connection: Connection, space: int) -> int:
    """The number of pending episodes."""
    return int(connection.execute(select(func.count()).select_from(_pending(space).subquery())).scalar_one())


def claim_name(space: int, session: str) -> str:
    """The name of a claim on a session. It doesn't reveal the session's name."""
    return hashlib.sha256(f"{space}\n{session}".encode()).hexdigest()[:32]


def next_sessions(
    connection: Connection,
    space: int,
    *,
    closing: Closing | None,
    gate: str,
    skip: Sequence[str],
    held: Collection[str],
) -> list[list[EpisodePart]]:
    """The pending episodes of some sessions, those that have waited longest first: of each in order, after a few that
    were read already.

    `closing` leaves out what is not to be read yet, None takes any; only verdicts of the version `gate` count. `held`
    are the names of claims of other processes; see `claim_name`.

    Returns:
        Whole episodes; empty if nothing is left.
    """
    if closing is not None and (closing := due(connection, space, closing)) is None:
        return []
    wanted = _sessions(space, closing)
    if skip:
        wanted = wanted.where(func.coalesce(memories.c.source_session, "").not_in(list(skip)))
    found: list[list[EpisodePart]] = []
    for session in connection.execute(wanted.limit(len(held) + _MAX_EPISODES)).scalars().all():
        if claim_name(space, session or "") not in held:
            found.append(_episodes_of(connection, space, session, gate))
        if sum(map(len, found)) >= _MAX_EPISODES:
            break
    return found


def _episodes_of(connection: Connection, space: int, session: str | None, gate: str) -> list[EpisodePart]:
    here = memories.c.source_session.is_(None) if session is None else memories.c.source_session == session
    order = (memories.c.source_turn, memories.c.source_position, memories.c.rid)
    columns = (memories, _READ.label("read"), distilled.c.worth_by)
    rows = connection.execute(
        _pending(space).with_only_columns(*columns).where(here).order_by(*order).limit(_MAX_EPISODES)
    ).all()
    begin = rows[0]
    before: Sequence[Any] = ()
    if session is not None and begin.source_turn is not None:
        earlier = (
            select(*columns)
            .select_from(memories.join(distilled, distilled.c.rid == memories.c.rid))
            .where(
                memories.c.space_id == space,
                memories.c.kind == "episode",
                here,
                distilled.c.chars >= _LENGTH,
                or_(
                    memories.c.source_turn < begin.source_turn,
                    (memories.c.source_turn == begin.source_turn)
                    & (memories.c.source_position < (begin.source_position or 0)),
                ),
            )
            .order_by(*(column.desc() for column in order))
            .limit(_EPISODES_BEFORE)
        )
        before = list(reversed(connection.execute(earlier).all()))
    return [_piece(row, gate) for row in (*before, *rows)]


def _piece(row: Any, gate: str) -> EpisodePart:
    total = len(row.content)
    return EpisodePart(
        rid=row.rid,
        id=row.id,
        session=row.source_session or "",
        turn=row.source_turn or 0,
        position=row.source_position or 0,
        speaker=row.speaker,
        trust=row.trust,
        said_at=from_micros(row.said_at, row.said_offset_min),
        text=part_to_read(row),
        start=min(row.read, total),
        end=total,
        total=total,
        is_worth=row.worth_by == gate,
    )


def place_of(read: Window) -> str:
    """Identifies a window by where it begins."""
    first = read.new[0]
    return f"{first.id}:{first.start}"


def failures_of(connection: Connection, space: int, place: str) -> int:
    """How often the window that begins at a place failed."""
    query = select(func.count()).where(
        distill_windows.c.space_id == space,
        distill_windows.c.place == place,
        distill_windows.c.outcome == "failed",
    )
    return int(connection.execute(query).scalar_one())


def write_window(
    connection: Connection,
    space: int,
    window: Window,
    facts: Sequence[tuple[CheckedFact, MemoryDraft]],
    result: WindowResult,
    *,
    at: int,
) -> WindowResult | None:
    """Write the facts of a window and mark it as read.

    Returns:
        `result` with what was written, and why other facts were dropped; None if another process read one of its
        conversations meanwhile.
    """
    read_to = _read_positions(connection, space, [piece.rid for piece in window.pieces])
    new = _still_new(connection, space, window)
    if new is None:
        return None
    lost = list(result.dropped)
    kept: list[str] = []
    confirmed: list[str] = []
    for fact, draft in facts:
        if any(piece.rid not in read_to for piece in fact.sources):
            lost.append("its source was forgotten meanwhile")
        elif (
            fact.known is not None
            and fact.proposal.relation == "restates"
            and _confirm(connection, space, fact.known.id, fact.sources, draft.cues, at)
        ):
            confirmed.append(fact.known.id)
        elif not insert_drafts(connection, space, [draft]):
            lost.append("it was forgotten before, and forgotten memories are not stored again")
        else:
            rid = rids_by_id(connection, space, [draft.id])[draft.id]
            _add_sources(connection, rid, fact.sources, at, "derived_from")
            _link_to_known(connection, space, draft.id, fact, at)
            kept.append(draft.id)
    _mark_as_read(connection, new, at)
    outcome: Outcome = "facts" if kept or confirmed else "nothing"
    _add_result(connection, space, window, at, outcome=outcome, facts=len(kept), dropped=len(lost))
    touched = {piece.session for piece in window.pieces if piece.rid not in read_to}
    return replace(
        result,
        titles={one: title for one, title in result.titles.items() if title and one not in touched},
        outcome=outcome,
        facts=tuple(kept),
        confirmed=tuple(dict.fromkeys(confirmed)),
        dropped=tuple(lost),
    )


def write_worth(connection: Connection, space: int, window: Window, *, gate: str, at: int) -> None:
    """Keep the gate's verdict that a window is worth reading, so that nobody asks again if reading it fails."""
    there = _read_positions(connection, space, [piece.rid for piece in window.new])
    _write_read(connection, there, at, worth_by=gate)


def write_outcome(
    connection: Connection, space: int, read: Window, outcome: Outcome, *, error: str = "", at: int
) -> bool:
    """Record that a window "failed", so that its episodes stay pending; or mark as read what the gate
    found not worth it ("nothing"), or what was "given_up".

    Returns:
        False if another process read it meanwhile.
    """
    if outcome != "failed":
        new = _still_new(connection, space, read)
        if new is None:
            return False
        _mark_as_read(connection, new, at)
    _add_result(connection, space, read, at, outcome=outcome, error=error[:500])
    return True


def _add_result(connection: Connection, space: int, read: Window, at: int, **found: str | int) -> None:
    row = {"space_id": space, "at": at, "place": place_of(read), "facts": 0, "dropped": 0, "error": ""}
    connection.execute(insert(distill_windows).values(row | found))


def _still_new(connection: Connection, space: int, read: Window) -> list[EpisodePart] | None:
    """The new pieces whose episodes are still there; None if another process read one of them meanwhile."""
    read_to = _read_positions(connection, space, [piece.rid for piece in read.new])
    starts = {piece.rid: piece.start for piece in reversed(read.new)}
    if any(position != starts[rid] for rid, position in read_to.items()):
        return None
    return [piece for piece in read.new if piece.rid in read_to]


def _read_positions(connection: Connection, space: int, rids: Sequence[int]) -> dict[int, int]:
    """The number of characters of each episode that were read; episodes that no longer exist are left out."""
    rows = connection.execute(
        select(memories.c.rid, _READ)
        .select_from(memories.outerjoin(distilled, distilled.c.rid == memories.c.rid))
        .where(memories.c.space_id == space, memories.c.rid.in_(set(rids)))
    )
    return {row.rid: row[1] for row in rows}


def _mark_as_read(connection: Connection, pieces: Sequence[EpisodePart], at: int) -> None:
    # The gate judges the rest of a long one by itself.
    _write_read(connection, {piece.rid: piece.end for piece in pieces}, at, worth_by="")


def _write_read(connection: Connection, ends: Mapping[int, int], at: int, *, worth_by: str) -> None:
    """Write how far episodes were read, and which gate found the rest worth it."""
    columns = ("chars", "distilled_at", "worth_by")
    rows = [{"rid": rid} | dict(zip(columns, (end, at, worth_by), strict=True)) for rid, end in ends.items()]
    if rows:
        new = insert(distilled)
        set_ = {name: new.excluded[name] for name in columns}
        connection.execute(new.on_conflict_do_update(index_elements=["rid"], set_=set_), rows)


def _confirm(
    connection: Connection,
    space: int,
    id: str,
    sources: Sequence[EpisodePart],
    cues: Sequence[str],
    at: int,
) -> bool:
    """Add sources to a known fact, and cues if it has none, such as one that was stored before there were cues. False
    if the fact no longer exists.
    """
    row = connection.execute(
        select(memories.c.rid, memories.c.trust).where(memories.c.space_id == space, memories.c.id == id)
    ).first()
    if row is None:
        return False
    derived = (edges.c.source_rid == row.rid) & (edges.c.relation == "derived_from")
    # A fact that was stored by hand doesn't depend on these episodes, and is kept if they are forgotten.
    is_derived = connection.execute(select(literal(1)).where(derived).limit(1)).first() is not None
    _add_sources(connection, row.rid, sources, at, "derived_from" if is_derived else "confirmed_by")
    if cues and row.trust != "outside" and not cues_of(connection, [row.rid]):
        replace_cues(connection, row.rid, cues, changed=count_up(connection, space))
    return True


def _add_sources(
    connection: Connection, rid: int, sources: Sequence[EpisodePart], at: int, relation: str
) -> None:
    common = {"source_rid": rid, "relation": relation, "weight": 1.0, "created_at": at}
    rows = [{**common, "target_rid": piece.rid} for piece in sources]
    connection.execute(insert(edges).on_conflict_do_nothing(), rows)


def _link_to_known(connection: Connection, space: int, id: str, fact: CheckedFact, at: int) -> None:
    """Link a new fact to the known one that it corrects or elaborates. This can be undone (`memory history`)."""
    known = fact.known
    if known is None or known.id == id:
        return
    relation = fact.proposal.relation
    if relation not in ("elaborates", "corrects"):
        return
    # The known fact may be gone or linked already; the new one is kept anyway.
    with suppress(NotFound, UsageError):
        why = "read as a correction" if relation == "corrects" else "read as an addition"
        note, end = ChangeNote(at=at, who=_WHO, why=why), _end_of_known(fact, known)
        relate(connection, space, known.id, id, relation, note, valid_to=end)


def _end_of_known(fact: CheckedFact, known: MemoryRecord) -> int:
    """When a superseded fact ceased to hold, in microseconds: when the words say so or when the new one begins, if that
    is known and plausible, otherwise when the new one was said.
    """
    said_at = to_micros(fact.source.said_at)
    for since in (fact.ended, fact.valid_from):
        if since is not None and to_micros(known.said_at) <= to_micros(since) <= said_at:
            return to_micros(since)
    return said_at


def read_status(connection: Connection, space: int) -> DistillStatus:
    """What is pending, done and failed."""
    waiting = _pending(space).subquery()
    session = func.coalesce(memories.c.source_session, "")
    pending, conversations, since = connection.execute(
        select(func.count(), func.count(session.distinct()), func.min(memories.c.created_at)).select_from(
            memories.join(waiting, waiting.c.rid == memories.c.rid)
        )
    ).one()
    episodes = connection.execute(
        select(func.count()).where(memories.c.space_id == space, memories.c.kind == "episode")
    ).scalar_one()
    facts = connection.execute(
        select(func.count(edges.c.source_rid.distinct()))
        .select_from(edges.join(memories, memories.c.rid == edges.c.source_rid))
        .where(memories.c.space_id == space, memories.c.kind == "fact", edges.c.relation == "derived_from")
    ).scalar_one()
    counted = connection.execute(
        select(distill_windows.c.outcome, func.count())
        .where(distill_windows.c.space_id == space)
        .group_by(distill_windows.c.outcome)
    )
    outcomes = {row[0]: int(row[1]) for row in counted}
    done = select(func.max(distill_windows.c.at)).where(
        distill_windows.c.space_id == space, distill_windows.c.outcome.in_(("facts", "nothing"))
    )
    last_at = connection.execute(done).scalar_one()
    errors = _failures(space).with_only_columns(distill_windows.c.error).order_by(distill_windows.c.id.desc())
    failed = connection.execute(errors).scalars().all()
    return DistillStatus(
        pending=int(pending),
        conversations=int(conversations),
        waiting_since=None if since is None else from_micros(since),
        read=int(episodes) - int(pending),
        facts=int(facts),
        windows=outcomes,
        last_at=None if last_at is None else from_micros(last_at),
        trouble=failed[0] if failed else "",
        failed_since=len(failed),
        spent=tuple(read_spent(connection, space)),
    )
