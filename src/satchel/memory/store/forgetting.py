"""Forgetting: what goes, what goes with it, and what changes in the memories that stay, in one transaction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, delete, func, insert, or_, select, update

from satchel.errors import UsageError
from satchel.memory.records import Forgotten, Receipt, Source
from satchel.memory.store import cues, page_rows, repository, tables
from satchel.memory.store.checking import printable
from satchel.memory.store.filters import CheckedFilters
from satchel.memory.store.history import (
    ChangeNote,
    apply_fields,
    drop_changes,
    earlier_contents,
    find_row,
    put_edge,
    rewrite_changes,
    write_change,
)
from satchel.memory.store.micros import to_micros
from satchel.memory.store.repository import among, count_up, place_hash, space_changed, words_hash
from satchel.memory.store.tables import (
    changes,
    earlier_words,
    edges,
    memories,
    spaces,
    tags,
    tombstones,
    vectors,
)
from satchel.memory.text import lexicon
from satchel.memory.text.framing import estimate_tokens
from satchel.memory.text.hashing import UNKEYED_BELOW, WordHasher
from satchel.spacing import FORGOTTEN, Finder, normal_form

if TYPE_CHECKING:
    from satchel.memory.store.space import Space

T = TypeVar("T")

_TELLING_TOKENS: Final = 5
"""Fewer tokens are said by chance: "Yes, please." has 4, and is nobody's echo."""
_MOST_NEEDLES: Final = 20
"""So many texts are looked for in all memories; more than that only where an echo is likely: in the same sessions, and
in what agents said."""
_LONG_CHARS: Final = 5_000
"""Longer texts are no chance, and their tokens are not counted."""
_PLAIN: Final = re.compile("[a-z0-9]+")
_OTHERWISE: Final = (
    "*[\\&\u00ad\u0300-\u036f\u0591-\u05c7\u0610-\u061c\u064b-\u065f\u1100-\u11ff\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufb00-\ufdff\ufe70-\uffef\U0001d400-\U0001d7ff\U000e0000-\U000e01ef]*"
)
"""Memories with marks that nobody sees, with escapes, or with letters in parts or in another shape."""
_IS_ODD: Final = memories.c.content.op("GLOB")(_OTHERWISE)
_BASES: Final = ("derived_from", "confirmed_by")


async def forget(
    space: Space,
    ids: str | Iterable[str] = (),
    *,
    query: str | None = None,
    session: str | None = None,
    before: datetime | None = None,
    scope: str | None = None,
    shown_in: Collection[str] = (),
    dry_run: bool = False,
) -> Receipt:
    """Remove memories for good; see `Memory.forget`."""
    now = space.clock.now()
    wanted = [ids] if isinstance(ids, str) else list(ids)
    if query is not None or session is not None or before is not None or scope is not None:
        if wanted:
            raise UsageError("Say which memories to forget by their ids or by conditions, not by both.")
        if scope is not None and scope != space.scope:
            raise UsageError(
                f"This memory's scope is {space.scope!r}, and not {scope!r}; nothing was removed."
            )
        having = None if query is None else await _having(space, query)
        fitting = CheckedFilters(session=session, until=space.aware(before))
        wanted = await space.read(_ids_to_forget, fitting, having)
    # Looking through all memories takes the longest, and nobody need wait for it.
    odd = await space.read(_find_odd)

    def forget_now(connection: Connection, number: int) -> Receipt:
        """Remove memories with all that is known of them, their changes included, and leave tombstones."""
        at, going = to_micros(now), _Going(connection, number, wanted)
        receipt = Receipt(forgotten=(), missing=tuple(going.missing), forgotten_at=now, log_emptied=True)
        if not going.rows:
            return receipt
        changed = count_up(connection, number)
        texts = _texts_of(connection, number, going.rows)
        echoes, still_said = _replace_echoes(connection, number, going, texts, changed, shown_in, odd)
        for rid in going.rows.keys() - texts.keys():
            texts[rid] = (going.rows[rid].content,)
        requoted = _requote(connection, number, going.rows, texts, changed)
        reopened = _reopen(connection, number, going.rows, at)
        forgotten = _delete(connection, number, going, at=at, changed=changed, hasher=space.hasher)
        gone = {row.id for row in going.rows.values()}
        page_rows.drop_facts(connection, number, gone, {*echoes, *requoted})
        return replace(
            receipt,
            forgotten=tuple(forgotten),
            echoes=tuple(echoes),
            still_said=tuple(still_said),
            requoted=tuple(requoted),
            reopened=tuple(reopened),
        )

    if dry_run:
        return replace(await space.write(_undone, forget_now), dry_run=True)
    await space.backend.expect_scrub()
    receipt = await space.write_durably(forget_now)
    # Also where nothing was there: an earlier call may have been interrupted right before this.
    return replace(receipt, log_emptied=await space.backend.scrub())


async def _having(space: Space, query: str) -> frozenset[int]:
    """The rids of the memories that have every telling word of a text."""
    stems = set(lexicon.stems_of(printable(query)))
    if not stems:
        raise UsageError("There is no telling word in this; nothing was removed.")
    await space.candidates.refresh()
    return await space.candidates.having(list(stems))


def _ids_to_forget(
    connection: Connection, space: int, wanted: CheckedFilters, having: Collection[int] | None
) -> list[str]:
    """The ids of the memories that fit a filter, and are among the rids given where some are."""
    rids = repository.matching_rids(connection, space, wanted)
    if having is not None:
        rids = [rid for rid in rids if rid in having]
    return repository.ids_of(connection, space, rids)


def _find_odd(connection: Connection, space: int) -> ColumnElement[bool]:
    """A condition for the memories that may repeat words without a plain word of them, see `_OTHERWISE`: those that
    are found now, and of what changes later what is one then.
    """
    query = select(memories.c.rid).where(memories.c.space_id == space, _IS_ODD)
    found = memories.c.rid.in_(among(connection.execute(query).scalars().all()))
    return or_(found, (memories.c.changed > space_changed(connection, space)) & _IS_ODD)


def _undone(connection: Connection, space: int, statement: Callable[[Connection, int], T]) -> T:
    """What a statement would do: it is done, and taken back before anybody sees it."""
    undone = connection.begin_nested()
    try:
        return statement(connection, space)
    finally:
        undone.rollback()


def drop_sources(
    connection: Connection, space: int, sources: Collection[str], *, at: int, hasher: WordHasher | None
) -> None:
    """Remove all that comes from some sources and what rests on it alone. Words elsewhere stay: the document that takes
    their place repeats most of them. Without a hasher, none of it is refused if it comes back.
    """
    query = select(memories.c.id).where(
        memories.c.space_id == space, memories.c.source_session.in_(among(sources))
    )
    found = connection.execute(query).scalars().all() if sources else ()
    if not found:
        return
    going = _Going(connection, space, found)
    changed = count_up(connection, space)
    _reopen(connection, space, going.rows, at)
    _delete(connection, space, going, at=at, changed=changed, hasher=hasher)
    page_rows.drop_facts(connection, space, {row.id for row in going.rows.values()}, set())


def release(connection: Connection, space: int, session: str, *, at: int) -> int:
    """Remove all that comes from a conversation, which goes on in another space, and refuse none of it if it comes
    back. Returns how many memories went.
    """
    # A fact that was drawn from another conversation, too, stays and quotes that, as after forgetting.
    other = memories.alias()
    drawn = select(edges.c.source_rid).join(other, other.c.rid == edges.c.target_rid)
    elsewhere = drawn.where(edges.c.relation == "derived_from", other.c.source_session != session)
    query = select(memories.c.id).where(memories.c.space_id == space, memories.c.source_session == session)
    own = connection.execute(query.where(memories.c.rid.not_in(elsewhere))).scalars().all()
    going = _Going(connection, space, own)
    if going.rows:
        texts = _texts_of(connection, space, going.rows)
        _requote(connection, space, going.rows, texts, count_up(connection, space))
    drop_sources(connection, space, [session], at=at, hasher=None)
    return len(going.rows)


class _Going:
    """The memories that go: those asked for, and what rests on them alone.

    Attributes:
        rows: By rid.
        because: The id of the memory that each of them rests on or repeats; None for those asked for.
        missing: Ids that were asked for and are not there.
    """

    def __init__(self, connection: Connection, space: int, ids: Iterable[str]) -> None:
        self._connection = connection
        asked = list(dict.fromkeys(ids))
        found = connection.execute(
            select(memories).where(memories.c.space_id == space, memories.c.id.in_(among(asked)))
        )
        self.rows: dict[int, Any] = {row.rid: row for row in found}
        there = {row.id for row in self.rows.values()}
        self.missing = [id for id in asked if id not in there]
        self.because: dict[int, str | None] = dict.fromkeys(self.rows)
        self._follow(list(self.rows))

    def add(self, row: Any, because: str) -> None:
        """Let another one go, with what rests on it."""
        self.rows[row.rid] = row
        self.because[row.rid] = because
        self._follow([row.rid])

    def _follow(self, frontier: list[int]) -> None:
        while frontier:
            derived = _resting_on(self._connection, frontier, self.rows.keys())
            frontier = []
            for row, source in derived:
                if row.rid not in self.rows:
                    self.rows[row.rid] = row
                    self.because[row.rid] = self.rows[source].id
                    frontier.append(row.rid)


def _resting_on(
    connection: Connection, frontier: Sequence[int], going: Collection[int]
) -> list[tuple[Any, int]]:
    """What is derived from the frontier and from nothing that stays, with one memory that it rested on."""
    found: dict[int, int] = {}
    for derived, source in _edges(connection, ("derived_from",), edges.c.target_rid, frontier):
        if derived not in going:
            found.setdefault(derived, source)
    orphans: list[tuple[Any, int]] = []
    for derived, source in found.items():
        bases = _edges(connection, ("derived_from",), edges.c.source_rid, [derived])
        if all(base in going for _, base in bases):
            row = connection.execute(select(memories).where(memories.c.rid == derived)).one()
            orphans.append((row, source))
    return orphans


def _edges(
    connection: Connection, relations: Sequence[str], end: Any, rids: Iterable[int]
) -> list[tuple[int, int]]:
    """Source and target of the edges of some relations that have one of these memories at one end."""
    query = select(edges.c.source_rid, edges.c.target_rid)
    rows = connection.execute(query.where(edges.c.relation.in_(relations), end.in_(among(rids))))
    return [(row.source_rid, row.target_rid) for row in rows]


def _texts_of(connection: Connection, space: int, rows: Mapping[int, Any]) -> dict[int, tuple[str, ...]]:
    earlier = earlier_contents(connection, space, [row.id for row in rows.values()])
    return {rid: tuple(dict.fromkeys((row.content, *earlier.get(row.id, ())))) for rid, row in rows.items()}


# ---- Memories that repeat the words


def _replace_echoes(
    connection: Connection,
    space: int,
    going: _Going,
    texts: Mapping[int, Sequence[str]],
    changed: int,
    shown_in: Collection[str],
    odd: ColumnElement[bool],
) -> tuple[list[str], list[str]]:
    """Take the words out of the memories that repeat them; those that say nothing else go too.

    An echo is what an agent or somebody outside said, and a fact that nothing else bears out. What the user said
    again in words of their own choosing is theirs, and only told of. What an agent said in a session in which they were
    shown repeats them however short they are, and a part of them if that is long enough: the log of that session has
    lost them as well.

    Returns:
        The ids of the echoes that stay, and of the memories that still say the words.
    """
    owners = {form: rid for rid, said in texts.items() for text in said if (form := normal_form(text))}
    if not owners:
        return [], []
    telling = {form for form in owners if len(form) > _LONG_CHARS or estimate_tokens(form) >= _TELLING_TOKENS}
    plain, shown = Finder(telling), Finder(owners, parts=True)
    echoes: list[str] = []
    still_said: list[str] = []
    rows = {row.rid: row for row in _candidates(connection, space, going.rows, telling, shown_in, odd)}
    for row in rows.values():
        finder = shown if row.trust == "agent" and row.source_session in shown_in else plain
        content, _, found = finder.subn(row.content, FORGOTTEN)
        if content == row.content or row.rid in going.rows:
            continue
        bases = [base for base in _bases_of(connection, row.rid) if base.rid not in going.rows]
        borne_out = any(plain.finds(base.content) for base in bases)
        if (
            borne_out
            or (row.trust == "user" and row.kind == "episode")
            or (row.trust == "user" and row.source_session is None and not bases)
        ):
            still_said.append(row.id)
        elif any(char.isalnum() for char in content.replace(FORGOTTEN, "")):
            whole = find_row(connection, space, row.id)
            apply_fields(connection, space, whole, {"content": content})
            cues.replace_cues(connection, row.rid, (), changed=changed)
            rewrite_changes(connection, space, changes.c.memory_id == row.id, partial(_without, finder))
            echoes.append(row.id)
        else:
            because = going.rows[owners.get(found, next(iter(owners.values())))].id
            going.add(find_row(connection, space, row.id), because)
    cues.drop_cues_with(connection, space, telling, plain.finds, changed=changed)
    return [id for id in echoes if id not in {row.id for row in going.rows.values()}], still_said


def _without(finder: Finder, text: str) -> str:
    return finder.subn(text, FORGOTTEN)[0]


def _candidates(
    connection: Connection,
    space: int,
    rows: Mapping[int, Any],
    needles: Collection[str],
    shown_in: Collection[str],
    odd: ColumnElement[bool],
) -> Iterator[Any]:
    query = select(
        memories.c.rid,
        memories.c.id,
        memories.c.kind,
        memories.c.content,
        memories.c.trust,
        memories.c.source_session,
    ).where(memories.c.space_id == space)
    if shown_in:
        told = memories.c.source_session.in_(among(shown_in))
        yield from connection.execute(query.where(memories.c.trust == "agent", told))
    if not needles:
        return
    if len(needles) <= _MOST_NEEDLES:
        # A plain word of each stands in whatever repeats it, but where something is written in another way.
        telling = {max(_PLAIN.findall(needle) or needle.split(), key=len) for needle in needles}
        same = [memories.c.content.contains(word, autoescape=True) for word in telling]
        query = query.where(or_(odd, *same))
        yield from connection.execute(query.order_by(memories.c.rid))
        return
    sessions = {row.source_session for row in rows.values() if row.source_session is not None}
    said_there = memories.c.source_session.in_(among(sessions))
    yield from connection.execute(
        query.where(or_(memories.c.trust != "user", said_there)).order_by(
            memories.c.trust == "user", memories.c.rid
        )
    )


def _bases_of(connection: Connection, rid: int) -> list[Any]:
    """The memories that one rests on, as they were stored."""
    return list(
        connection.execute(
            select(memories)
            .join(edges, edges.c.target_rid == memories.c.rid)
            .where(edges.c.source_rid == rid, edges.c.relation.in_(_BASES))
            .order_by(memories.c.rid)
        )
    )


# ---- Facts that stay


def _requote(
    connection: Connection,
    space: int,
    rows: Mapping[int, Any],
    texts: Mapping[int, Sequence[str]],
    changed: int,
) -> list[str]:
    """Let the facts that stay quote what else they rest on, and not what goes; gives their ids."""
    said = {rid: [" ".join(text.split()) for text in texts[rid]] for rid in rows}
    tied: dict[int, set[int]] = {}
    for fact, base in _edges(connection, _BASES, edges.c.target_rid, rows):
        tied.setdefault(fact, set()).add(base)
    places: dict[tuple[str, int], set[int]] = {}
    for rid, row in rows.items():
        if row.source_session is not None and row.source_turn is not None:
            places.setdefault((row.source_session, row.source_turn), set()).add(rid)
    quoting = memories.c.source_quote.is_not(None) & (memories.c.source_quote != "")
    for (session, turn), there in places.items():
        quoted_here = connection.execute(
            select(memories.c.rid).where(
                memories.c.space_id == space,
                memories.c.source_session == session,
                memories.c.source_turn == turn,
                quoting,
            )
        ).scalars()
        for fact in quoted_here:
            tied.setdefault(fact, set()).update(there)
    requoted = []
    for fact, bases in tied.items():
        if fact in rows:
            continue
        row = connection.execute(select(memories).where(memories.c.rid == fact, quoting)).first()
        if row is None:
            continue
        why = " ".join(row.kept_from.split())
        if why and any(why in text for base in bases for text in said[base]):
            connection.execute(update(memories).where(memories.c.rid == fact).values(kept_from=""))
        quote = " ".join(row.source_quote.split())
        if not any(quote in text for base in bases for text in said[base]):
            continue
        left = [base for base in _bases_of(connection, fact) if base.rid not in rows]
        saying = [base for base in left if quote in " ".join(base.content.split())]
        values: dict[str, Any] = {}
        if not saying:
            # Not NULL: the fact was drawn from words, and was not said by anybody.
            values["source_quote"] = ""
        if saying or left:
            source = (saying or left)[0]
            values |= {"source_session": source.source_session, "source_turn": source.source_turn}
        connection.execute(update(memories).where(memories.c.rid == fact).values(**values))
        repository.mark_changed(connection, [fact], changed)
        requoted.append(row.id)
    return requoted


def _reopen(connection: Connection, space: int, rows: Mapping[int, Any], at: int) -> list[str]:
    """Let what the memories that go had superseded hold again, or be superseded by what took their own place; gives the
    ids of those that hold again.
    """
    by_target: dict[int, list[int]] = {}
    for source, target in _edges(connection, ("supersedes",), edges.c.source_rid, rows):
        if target not in rows:
            by_target.setdefault(target, []).append(source)
    reopened = []
    for target, sources in by_target.items():
        if any(source not in rows for source in _superseding(connection, target)):
            continue
        row = connection.execute(select(memories).where(memories.c.rid == target)).one()
        end = _end_without(connection, space, row, [rows[source] for source in sources])
        heir = _heir_of(connection, sources, rows)
        if heir is not None:
            edge = {"source": heir.id, "target": row.id, "relation": "supersedes"}
            put_edge(connection, heir, row, "supersedes", 1.0, at)
            before = {"valid_to": end, "edge": {**edge, "weight": None}}
            after = {"valid_to": row.valid_to, "edge": {**edge, "weight": 1.0}}
            note = ChangeNote(at=at, who="forget", why="what stood between the two was forgotten")
            write_change(connection, space, "supersede", row.id, before, after, note, other_id=heir.id)
        elif end != row.valid_to:
            before, after = {"valid_to": row.valid_to}, {"valid_to": end}
            apply_fields(connection, space, row, after)
            note = ChangeNote(at=at, who="forget", why="what had superseded it was forgotten")
            write_change(connection, space, "edit", row.id, before, after, note)
            reopened.append(row.id)
    return reopened


def _heir_of(connection: Connection, sources: Sequence[int], rows: Mapping[int, Any]) -> Any:
    """What stays and superseded one of these, directly or through others that go; None if nothing did."""
    seen, frontier = set(sources), list(sources)
    while frontier:
        for newer in _superseding(connection, frontier.pop()):
            if newer not in rows:
                return connection.execute(select(memories).where(memories.c.rid == newer)).one()
            if newer not in seen:
                seen.add(newer)
                frontier.append(newer)
    return None


def _superseding(connection: Connection, rid: int) -> list[int]:
    return [source for source, _ in _edges(connection, ("supersedes",), edges.c.target_rid, [rid])]


def _end_without(connection: Connection, space: int, row: Any, newer: Sequence[Any]) -> int | None:
    """Until when a memory would hold if these had never superseded it."""
    found = connection.execute(
        select(changes.c.before, changes.c.after)
        .where(
            changes.c.space_id == space,
            changes.c.memory_id == row.id,
            changes.c.other_id.in_([one.id for one in newer]),
            changes.c.action == "supersede",
        )
        .order_by(changes.c.id.desc())
    ).all()
    end: int | None = row.valid_to
    for change in found:
        before, after = json.loads(change.before), json.loads(change.after)
        # Where somebody set another end since, that one stays.
        if "valid_to" in after and after["valid_to"] == end:
            end = before["valid_to"]
    if not found and any(end in (one.valid_from, one.said_at) for one in newer):
        return None  # An import brought the edge without its history.
    return end


# ---- Rows and tombstones


def _delete(
    connection: Connection, space: int, going: _Going, *, at: int, changed: int, hasher: WordHasher | None
) -> list[Forgotten]:
    rids = list(going.rows)
    counts = {
        "vectors": _counts(connection, vectors.c.rid, rids),
        "tags": _counts(connection, tags.c.rid, rids),
        "cues": _counts(connection, tables.cues.c.rid, rids),
        "out": _counts(connection, edges.c.source_rid, rids),
        "in": _counts(connection, edges.c.target_rid, rids),
    }
    connection.execute(
        insert(tombstones),
        [_tombstone(row, space, at, changed, hasher) for row in going.rows.values()],
    )
    # Tags, words, cues, vectors, uses and edges go with it: their foreign keys cascade.
    connection.execute(delete(memories).where(memories.c.rid.in_(among(rids))))
    forgotten = [
        Forgotten(
            id=row.id,
            kind=row.kind,
            source=Source(session=row.source_session, turn=row.source_turn, position=row.source_position),
            content_hmac=hasher.content(row.content) if hasher is not None else "",
            because_of=going.because[rid],
            vectors=counts["vectors"].get(rid, 0),
            edges=counts["out"].get(rid, 0) + counts["in"].get(rid, 0),
            tags=counts["tags"].get(rid, 0),
            cues=counts["cues"].get(rid, 0),
        )
        for rid, row in going.rows.items()
    ]
    drop_changes(connection, space, forgotten, at, hasher)
    return forgotten


def _tombstone(row: Any, space: int, at: int, changed: int, hasher: WordHasher | None) -> dict[str, Any]:
    place = row.source_session, row.source_turn, row.source_position
    # Without a hasher, the row tells other processes what to take out of their indexes, and refuses nothing.
    return {
        "rid": row.rid,
        "space_id": space,
        "place_hash": None if hasher is None or None in place else place_hash(*place),
        "words_hash": None if hasher is None else words_hash(hasher, row._mapping),
        "forgotten_at": at,
        "changed": changed,
    }


def _counts(connection: Connection, column: Any, rids: Sequence[int]) -> dict[int, int]:
    query = select(column, func.count()).where(column.in_(among(rids))).group_by(column)
    return {row[0]: row[1] for row in connection.execute(query)}


# ---- Hashes that an older version stored without a key


def has_unkeyed(connection: Connection) -> bool:
    """Whether `rekey` has anything to do; asked first, so that opening a store writes nothing."""
    return any(
        connection.execute(
            select(table.c.words_hash)
            # By space, so that the index serves.
            .where(table.c.space_id.in_(select(spaces.c.id)), table.c.words_hash < UNKEYED_BELOW)
            .limit(1)
        ).first()
        is not None
        for table in (tombstones, earlier_words)
    )


def rekey(connection: Connection, hasher: WordHasher) -> None:
    """Put keyed hashes in the place of those that an older version stored, which a guess could be tested against."""
    for table in (tombstones, earlier_words):
        old = connection.execute(
            select(table.c.words_hash).where(table.c.words_hash < UNKEYED_BELOW).distinct()
        ).scalars()
        for digest in list(old):
            connection.execute(
                update(table).where(table.c.words_hash == digest).values(words_hash=hasher.rekeyed(digest))
            )
