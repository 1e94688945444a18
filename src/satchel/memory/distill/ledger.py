"""The SQL of distilling: finding pending episodes, and writing the results of a window in one transaction.

Every function runs inside a transaction of `storage.Database`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, literal, or_, select, update

from satchel.errors import NotFound, UsageError
from satchel.memory.cues import cues_of, replace_cues
from satchel.memory.distill.asking import Asked
from satchel.memory.distill.checking import CheckedFact
from satchel.memory.distill.records import DistillStatus, Outcome, SpentRow
from satchel.memory.distill.windows import Piece, Window
from satchel.memory.history import find_row
from satchel.memory.lifecycle import relate
from satchel.memory.records import MemoryRecord
from satchel.memory.repository import Draft, count_up, from_micros, insert_drafts, to_micros
from satchel.memory.tables import compared, distill_windows, distilled, edges, memories, usage
from satchel.messages import Usage

__all__ = [
    "add_usage",
    "Written",
    "claim_name",
    "failures_of",
    "is_due",
    "next_session",
    "read_spent",
    "read_status",
    "write_failure",
    "write_window",
]

_MAX_EPISODES = 200
"""The number of pending episodes of a session that are loaded at once."""
_EPISODES_BEFORE = 6
"""The number of episodes before them that are loaded as context."""

_WHO = "distill"
_DOUBTFUL = 0.5
"""The weight of a correction that, as the extractor says, ends nothing: both are shown (`graph.read_later`)."""

_READ = func.coalesce(distilled.c.chars, 0)
_LENGTH = func.length(memories.c.content)
_PENDING = (
    select(memories.c.rid)
    .select_from(memories.outerjoin(distilled, distilled.c.rid == memories.c.rid))
    .where(memories.c.kind == "episode", or_(distilled.c.rid.is_(None), distilled.c.chars < _LENGTH))
)


def _pending(space: int) -> Any:
    return _PENDING.where(memories.c.space_id == space)


def _failures(space: int) -> Any:
    """The windows that failed since the last one that was read."""
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


def is_due(connection: Connection, space: int, *, every: int, before: int) -> bool:
    """Whether `every` episodes are pending, or one that was stored before a time in microseconds."""
    many = _pending(space).limit(every).subquery()
    if int(connection.execute(select(func.count()).select_from(many)).scalar_one()) >= every:
        return True
    old = _pending(space).where(memories.c.created_at <= before).limit(1)
    return connection.execute(old).first() is not None


def count_pending(connection: Connection, space: int) -> int:
    """The number of pending episodes."""
    return int(connection.execute(select(func.count()).select_from(_pending(space).subquery())).scalar_one())


def claim_name(space: int, session: str) -> str:
    """The name of a claim on a session. It doesn't reveal the session's name."""
    return hashlib.sha256(f"{space}\n{session}".encode()).hexdigest()[:32]


def next_session(
    connection: Connection, space: int, *, skip: Sequence[str], held: Collection[str]
) -> list[Piece]:
    """The pending episodes of the session that has waited longest, in order, after a few that were read already.

    Args:
        connection: In a transaction.
        space: The space to read.
        skip: Sessions to leave out.
        held: The names of claims of other processes; see `claim_name`.

    Returns:
        Whole episodes; empty if no session is left.
    """
    name = func.coalesce(memories.c.source_session, "")
    pending = _pending(space).with_only_columns(memories.c.source_session)
    if skip:
        pending = pending.where(name.not_in(list(skip)))
    # If no session is claimed, the first row is enough; it is found without sorting.
    oldest = (
        pending.group_by(name).order_by(func.min(memories.c.rid))
        if held
        else pending.order_by(memories.c.rid)
    )
    sessions = connection.execute(oldest.limit(len(held) + 1)).scalars()
    free = [session for session in sessions if claim_name(space, session or "") not in held]
    if not free:
        return []
    session = free[0]
    here = memories.c.source_session.is_(None) if session is None else memories.c.source_session == session
    order = (memories.c.source_turn, memories.c.source_position, memories.c.rid)
    columns = (memories, _READ.label("read"))
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
    return [_piece(row) for row in (*before, *rows)]


def _piece(row: Any) -> Piece:
    total = len(row.content)
    return Piece(
        rid=row.rid,
        id=row.id,
        session=row.source_session or "",
        turn=row.source_turn or 0,
        position=row.source_position or 0,
        speaker=row.speaker,
        trust=row.trust,
        said_at=from_micros(row.said_at, row.said_offset_min),
        text=row.content,
        start=min(row.read, total),
        end=total,
        total=total,
    )


def place_of(window: Window) -> str:
    """Identifies a window by where it begins."""
    first = window.new[0]
    return f"{first.id}:{first.start}"


def failures_of(connection: Connection, space: int, place: str) -> int:
    """How often the window that begins at a place failed."""
    query = select(func.count()).where(
        distill_windows.c.space_id == space,
        distill_windows.c.place == place,
        distill_windows.c.outcome == "failed",
    )
    return int(connection.execute(query).scalar_one())


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The results of a window: ids of new facts, ids of facts that were confirmed, and why other facts were dropped."""

    facts: tuple[str, ...]
    confirmed: tuple[str, ...]
    dropped: tuple[str, ...]


def write_window(
    connection: Connection,
    space: int,
    window: Window,
    facts: Sequence[tuple[CheckedFact, Draft]],
    *,
    outcome: Outcome,
    dropped: Sequence[str],
    error: str,
    spent: Sequence[Asked],
    at: int,
    day: str,
) -> Written | None:
    """Write the results of a window and mark it as read.

    Returns:
        What was written; None if another process read the window meanwhile, in which case only the cost is recorded.
    """
    add_usage(connection, space, spent, day)
    read_to = _read_positions(connection, space, [piece.rid for piece in window.pieces])
    new = [piece for piece in window.new if piece.rid in read_to]
    if any(read_to[piece.rid] != _first_start(window, piece) for piece in new):
        return None
    lost = list(dropped)
    kept: list[str] = []
    confirmed: list[str] = []
    for fact, draft in facts:
        if any(piece.rid not in read_to for piece in fact.sources):
            lost.append("its source was forgotten meanwhile")
        elif (
            fact.known is not None
            and fact.proposal.relation == "restates"
            and _confirm(connection, space, fact.known.id, fact.sources, at)
        ):
            confirmed.append(fact.known.id)
            _give_cues(connection, space, fact.known.id, draft.cues)
        elif not insert_drafts(connection, space, [draft]):
            lost.append("it was forgotten before, and forgotten memories are not stored again")
        else:
            _add_sources(connection, space, draft.id, fact.sources, at)
            _link_to_known(connection, space, draft.id, fact, at)
            kept.append(draft.id)
    _mark_as_read(connection, new, at)
    connection.execute(
        insert(distill_windows).values(
            space_id=space,
            at=at,
            place=place_of(window),
            outcome=outcome if outcome == "given_up" else "facts" if kept or confirmed else "nothing",
            facts=len(kept),
            dropped=len(lost),
            error=error,
        )
    )
    return Written(facts=tuple(kept), confirmed=tuple(dict.fromkeys(confirmed)), dropped=tuple(lost))


def write_failure(
    connection: Connection,
    space: int,
    window: Window,
    *,
    error: str,
    spent: Sequence[Asked],
    at: int,
    day: str,
) -> None:
    """Record that a window failed; its episodes stay pending."""
    add_usage(connection, space, spent, day)
    connection.execute(
        insert(distill_windows).values(
            space_id=space,
            at=at,
            place=place_of(window),
            outcome="failed",
            facts=0,
            dropped=0,
            error=error[:500],
        )
    )


def _read_positions(connection: Connection, space: int, rids: Sequence[int]) -> dict[int, int]:
    """The number of characters of each episode that were read; episodes that no longer exist are left out."""
    rows = connection.execute(
        select(memories.c.rid, _READ)
        .select_from(memories.outerjoin(distilled, distilled.c.rid == memories.c.rid))
        .where(memories.c.space_id == space, memories.c.rid.in_(set(rids)))
    )
    return {row.rid: row[1] for row in rows}


def _first_start(window: Window, piece: Piece) -> int:
    return min(other.start for other in window.new if other.rid == piece.rid)


def _mark_as_read(connection: Connection, pieces: Sequence[Piece], at: int) -> None:
    ends: dict[int, int] = {}
    for piece in pieces:
        ends[piece.rid] = max(ends.get(piece.rid, 0), piece.end)
    for rid, end in ends.items():
        changed = connection.execute(
            update(distilled).where(distilled.c.rid == rid).values(chars=end, distilled_at=at)
        )
        if not changed.rowcount:
            connection.execute(insert(distilled).values(rid=rid, chars=end, distilled_at=at))


def _confirm(connection: Connection, space: int, id: str, sources: Sequence[Piece], at: int) -> bool:
    """Add sources to a known fact. False if the fact no longer exists."""
    has_sources = (
        select(literal(1))
        .select_from(edges.join(memories, memories.c.rid == edges.c.source_rid))
        .where(memories.c.space_id == space, memories.c.id == id, edges.c.relation == "derived_from")
        .limit(1)
    )
    # A fact that was stored by hand doesn't depend on these episodes, and is kept if they are forgotten.
    is_derived = connection.execute(has_sources).first() is not None
    return _add_sources(connection, space, id, sources, at, "derived_from" if is_derived else "confirmed_by")


def _give_cues(connection: Connection, space: int, id: str, found: Sequence[str]) -> None:
    """Give cues to a known fact that has none, such as one that was stored before there were cues."""
    row = connection.execute(
        select(memories.c.rid, memories.c.trust).where(memories.c.space_id == space, memories.c.id == id)
    ).first()
    if found and row is not None and row.trust != "outside" and not cues_of(connection, [row.rid]):
        replace_cues(connection, row.rid, found, changed=count_up(connection, space))


def _add_sources(
    connection: Connection,
    space: int,
    id: str,
    sources: Sequence[Piece],
    at: int,
    relation: str = "derived_from",
) -> bool:
    """Link a fact to its source episodes. False if the fact no longer exists."""
    rid = connection.execute(
        select(memories.c.rid).where(memories.c.space_id == space, memories.c.id == id)
    ).scalar()
    if rid is None:
        return False
    for piece in sources:
        here = (
            (edges.c.source_rid == rid) & (edges.c.target_rid == piece.rid) & (edges.c.relation == relation)
        )
        if connection.execute(select(literal(1)).where(here)).first() is None:
            connection.execute(
                insert(edges).values(
                    source_rid=rid, target_rid=piece.rid, relation=relation, weight=1.0, created_at=at
                )
            )
    return True


def _link_to_known(connection: Connection, space: int, id: str, fact: CheckedFact, at: int) -> None:
    """Link a new fact to the known one that it corrects or elaborates. This can be undone (`memory history`).

    It isn't compared with older facts again: whoever read the conversation knows better.
    """
    known = fact.known
    if known is None or known.id == id:
        return
    relation = fact.proposal.relation
    if relation not in ("elaborates", "corrects"):
        return
    # The known fact may be gone or linked already; the new one is kept anyway.
    with suppress(NotFound, UsageError):
        relate(
            connection,
            space,
            known.id,
            id,
            relation,
            confidence=_DOUBTFUL if relation == "corrects" and not fact.proposal.ends else 1.0,
            ends=fact.proposal.ends,
            valid_to=_end_of_known(fact, known),
            at=at,
            who=_WHO,
            why="read as a correction" if relation == "corrects" else "read as an addition",
        )
        connection.execute(insert(compared).values(rid=find_row(connection, space, id).rid, compared_at=at))


def _end_of_known(fact: CheckedFact, known: MemoryRecord) -> int:
    """When a superseded fact ceased to hold, in microseconds: when the words say so or when the new one begins, if that
    is known and plausible, otherwise when the new one was said.
    """
    said_at = to_micros(fact.source.said_at)
    for since in (fact.ended, fact.valid_from):
        if since is not None and to_micros(known.said_at) <= to_micros(since) <= said_at:
            return to_micros(since)
    return said_at


def add_usage(connection: Connection, space: int, spent: Sequence[Asked], day: str) -> None:
    """Add the cost of model calls to the totals of a local day ("2026-11-21")."""
    for asked in spent:
        key = (
            (usage.c.space_id == space)
            & (usage.c.day == day)
            & (usage.c.purpose == asked.purpose)
            & (usage.c.provider == asked.provider)
            & (usage.c.model == asked.model)
        )
        row = connection.execute(select(usage).where(key)).first()
        before = Usage() if row is None else _usage_of(row)
        total = before + asked.usage
        values = {
            "calls": asked.calls + (0 if row is None else row.calls),
            "input_tokens": total.input_tokens,
            "output_tokens": total.output_tokens,
            "cache_read_tokens": total.cache_read_tokens,
            "cache_write_tokens": total.cache_write_tokens,
            "cost_usd": total.cost_usd,
            "estimated": int(total.estimated),
        }
        if row is None:
            connection.execute(
                insert(usage).values(
                    space_id=space,
                    day=day,
                    purpose=asked.purpose,
                    provider=asked.provider,
                    model=asked.model,
                    **values,
                )
            )
        else:
            connection.execute(update(usage).where(usage.c.id == row.id).values(**values))


def _usage_of(row: Any) -> Usage:
    return Usage(
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cache_read_tokens=row.cache_read_tokens,
        cache_write_tokens=row.cache_write_tokens,
        cost_usd=row.cost_usd,
        estimated=bool(row.estimated),
    )


def read_spent(connection: Connection, space: int) -> list[SpentRow]:
    """The cost of memory's own model calls, newest day first."""
    rows = connection.execute(
        select(usage).where(usage.c.space_id == space).order_by(usage.c.day.desc(), usage.c.id)
    )
    return [
        SpentRow(
            day=row.day,
            purpose=row.purpose,
            provider=row.provider,
            model=row.model,
            calls=row.calls,
            usage=_usage_of(row),
        )
        for row in rows
    ]


def read_status(connection: Connection, space: int) -> DistillStatus:
    """What is pending, done and failed."""
    waiting = _pending(space).subquery()
    pending, since = connection.execute(
        select(func.count(), func.min(memories.c.created_at)).select_from(
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
        waiting_since=None if since is None else from_micros(since),
        read=int(episodes) - int(pending),
        facts=int(facts),
        windows=outcomes,
        last_at=None if last_at is None else from_micros(last_at),
        trouble=failed[0] if failed else "",
        failed_since=len(failed),
        spent=tuple(read_spent(connection, space)),
    )
