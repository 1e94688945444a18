"""Checks a space and repairs it (`satchel memory doctor`).

Duplicates, restatements, undated and faded memories are only counted, because they are what was said. Injected text,
secrets and indexes that don't match the memories are defects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, exists, func, select, update

from satchel.memory import transfer
from satchel.memory.store import repository
from satchel.memory.store.cues import cues_of, replace_cues
from satchel.memory.store.filters import CheckedFilters
from satchel.memory.store.forgetting import forget
from satchel.memory.store.history import (
    ChangeNote,
    apply_fields,
    find_row,
    rewrite_changes,
    rewritten,
    write_change,
)
from satchel.memory.store.redaction import find_secrets, redact
from satchel.memory.store.repository import among, count_up, slices
from satchel.memory.store.tables import changes, cues, memories, metadata, tags, uses, vectors, words
from satchel.memory.text import lexicon
from satchel.memory.text.block import strip_injected
from satchel.plain import as_json
from satchel.wording import counted

if TYPE_CHECKING:
    from satchel.memory.store.space import Space

_SLICE = 500
_DAY_MICROS = 86_400_000_000
_EARLIEST = -(70 * 365 * _DAY_MICROS)
"""1900. Earlier dates, like the first day of 1970, come from programs that had no date."""
_UNIX_DAY = range(-_DAY_MICROS, _DAY_MICROS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """The result of checking a space. Counts are numbers of memories unless they say otherwise.

    Attributes:
        facts: Those that are not episodes.
        duplicates: Facts with the same words as an earlier one; surfacing shows one of them.
        echoes: Memories with text that Satchel itself injected into a conversation.
        stale: Memories that were shown after they had become invalid.
        faded: Memories whose priority decayed; only search finds them.
        undated: Memories without a plausible date.
        secret_changes: History entries that do.
        words_wrong: Memories whose words in the lexical index are missing, or not their own.
        vectors_missing: Memories without vectors of the embedder in use; 0 without an embedder.
        embedder_trouble: Why it is unavailable, or None.
        database: The problems of the database file.
        problems: What has to be repaired, as messages; empty if nothing is wrong.
        notes: Work that is pending and will be done automatically.
    """

    memories: int = 0
    facts: int = 0
    duplicates: int = 0
    echoes: int = 0
    stale: int = 0
    faded: int = 0
    undated: int = 0
    secrets: int = 0
    secret_changes: int = 0
    words_wrong: int = 0
    vectors_missing: int = 0
    embedder: str | None = None
    embedder_trouble: str | None = None
    database: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    secret_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOut:
    """A secret that was removed from a memory. The log of its session may still contain it."""

    text: str = field(repr=False)
    session: str | None
    turn: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The result of a repair.

    Attributes:
        reindexed: Memories whose lexical index was rebuilt.
        orphans: Rows without a memory that were deleted.
        stripped: Memories from which injected text was removed.
        emptied: Memories that consisted of injected text and were forgotten.
    """

    reindexed: int = 0
    orphans: int = 0
    stripped: int = 0
    emptied: int = 0
    redacted: int = 0
    embedded: int = 0
    taken_out: tuple[TakenOut, ...] = field(default=(), repr=False)


def checkup_to_json(found: Checkup) -> dict[str, Any]:
    """Convert a checkup to JSON data. Rates are shares of all memories, that of duplicates a share of the facts."""
    shown: dict[str, Any] = as_json(found)
    shown["index"] = {name: shown.pop(name) for name in ("words_wrong", "vectors_missing")}
    of = max(1, found.memories)
    for name, count, whole in (
        ("duplicate_rate", found.duplicates, max(1, found.facts)),
        ("echo_rate", found.echoes, of),
        ("stale_rate", found.stale, of),
        ("undated_rate", found.undated, of),
        ("secret_rate", found.secrets, of),
    ):
        shown[name] = round(count / whole, 4)
    return shown


@dataclass(slots=True)
class _Counts:
    """What was found so far; `counts` has those of `Checkup`."""

    counts: Counter[str] = field(default_factory=Counter)
    echo_ids: list[str] = field(default_factory=list)
    secret_ids: list[str] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    said_before: set[int] = field(default_factory=set)


async def check(space: Space) -> Checkup:
    """Check every memory and index, and call the embedder; see `Memory.check`."""
    seen = await _check_memories(space)
    missing, embedder, trouble = await _check_embedder(space)
    found = Checkup(
        **dict[str, Any](seen.counts),
        echoes=len(seen.echo_ids),
        stale=await space.read(_count_stale, space.now_micros()),
        secrets=len(seen.secret_ids),
        secret_changes=len(await _changes_with_secrets(space)),
        words_wrong=len(seen.wrong),
        vectors_missing=missing,
        embedder=embedder,
        embedder_trouble=trouble,
        database=(await space.backend.doctor()).problems,
        secret_ids=tuple(seen.secret_ids),
    )
    return _with_problems(found)


async def repair(space: Space, *, secrets: bool) -> Repaired:
    """Repair what `check` finds; see `Memory.repair`."""
    orphans = await space.backend.write(_remove_orphans)
    seen = await _check_memories(space)
    for part in slices(seen.wrong):
        await space.write(_index_words, part)
    stripped = emptied = 0
    for id in seen.echo_ids:
        if await space.write(_strip, id, at=space.now_micros()):
            await forget(space, [id])
            emptied += 1
        else:
            stripped += 1
    taken: list[TakenOut] = []
    redacted = 0
    if secrets:
        for id in seen.secret_ids:
            found = await space.write(_redact, id, at=space.now_micros())
            redacted += bool(found)
            taken += found
        suspects = await _changes_with_secrets(space)
        await space.write(rewrite_changes, changes.c.id.in_(among(suspects)), redact)
        if redacted or suspects:
            await space.backend.scrub()
    embedded = 0
    if space.dense is not None:
        await space.dense.open()
        embedded = await space.dense.fill()
    return Repaired(
        reindexed=len(seen.wrong),
        orphans=orphans,
        stripped=stripped,
        emptied=emptied,
        redacted=redacted,
        embedded=embedded,
        taken_out=tuple(taken),
    )


async def _check_memories(space: Space) -> _Counts:
    seen = _Counts()
    now, after = space.now_micros(), 0
    while rows := await space.read(_rows, after):
        await space.thread.run(_check_rows, rows, seen)
        faded = await space.read(
            repository.faded_rids,
            [row.rid for row in rows],
            at=now,
            by_request=space.by_request,
        )
        seen.counts["faded"] += len(faded)
        after = rows[-1].rid
    return seen


async def _changes_with_secrets(space: Space) -> list[int]:
    found: list[int] = []
    after = 0
    while rows := await space.read(_changes_after, after):
        found += await space.thread.run(_with_secrets, rows)
        after = rows[-1].id
    return found


async def _check_embedder(space: Space) -> tuple[int, str | None, str | None]:
    """The number of memories without vectors, the embedder's id, and why it is unavailable."""
    dense = space.dense
    if dense is None:
        return 0, None, None
    await dense.open()
    await dense.question("Is it available?")
    # If it has never answered, nothing is embedded.
    missing = (
        await space.read(repository.count_rows, CheckedFilters())
        if dense.model is None
        else await dense.pending()
    )
    return missing, dense.embedder.info.id, dense.any_trouble


def _changes_after(connection: Connection, space: int, after: int) -> Sequence[Any]:
    return connection.execute(
        select(changes.c.id, changes.c.why, changes.c.before, changes.c.after)
        .where(changes.c.space_id == space, changes.c.id > after)
        .order_by(changes.c.id)
        .limit(_SLICE)
    ).all()


def _strip(connection: Connection, space: int, id: str, *, at: int) -> bool:
    """Remove injected text from a memory, which can be undone. If there is no other text, return True instead."""
    row = find_row(connection, space, id)
    content = strip_injected(row.content)
    if not content.strip():
        return True
    if content != row.content:
        apply_fields(connection, space, row, {"content": content})
        note = ChangeNote(at=at, who="doctor", why="It contained text that Satchel itself had injected.")
        write_change(connection, space, "edit", id, {"content": row.content}, {"content": content}, note)
    return False


def _redact(connection: Connection, space: int, id: str, *, at: int) -> list[TakenOut]:
    """Remove the secrets from a memory. The history entry doesn't contain them, so this can't be undone."""
    row = find_row(connection, space, id)
    own_cues = cues_of(connection, [row.rid]).get(row.rid, [])
    taken = [
        TakenOut(text=text[secret.start : secret.end], session=row.source_session, turn=row.source_turn)
        for text in (row.content, row.source_quote or "", *own_cues)
        for secret in find_secrets(text)
    ]
    if taken:
        apply_fields(connection, space, row, {"content": redact(row.content)})
        quote = None if row.source_quote is None else redact(row.source_quote)
        connection.execute(update(memories).where(memories.c.rid == row.rid).values(source_quote=quote))
        replace_cues(connection, row.rid, list(map(redact, own_cues)), changed=count_up(connection, space))
        note = ChangeNote(at=at, who="doctor", why="Secrets were removed.")
        write_change(connection, space, "edit", id, {}, {}, note)
    return taken


def _rows(connection: Connection, space: int, after: int) -> Sequence[Any]:
    """The next 500 memories with their rows in the lexical index, by rid."""

    def joined(column: Any, mark: str) -> Any:
        own = select(func.group_concat(column, mark)).where(column.table.c.rid == memories.c.rid)
        return own.correlate(memories).scalar_subquery()

    return connection.execute(
        select(
            memories.c.rid,
            memories.c.id,
            memories.c.kind,
            memories.c.content,
            memories.c.source_quote,
            memories.c.said_at,
            memories.c.created_at,
            joined(tags.c.tag, "\x1f").label("tagged"),
            joined(cues.c.cue, "\n").label("cued"),
            words.c.version,
            words.c.words,
            words.c.features,
            words.c.stems,
        )
        .outerjoin(words, words.c.rid == memories.c.rid)
        .where(memories.c.space_id == space, memories.c.rid > after)
        .order_by(memories.c.rid)
        .limit(_SLICE)
    ).all()


def _check_rows(rows: Sequence[Any], seen: _Counts) -> None:
    for row in rows:
        seen.counts["memories"] += 1
        tagged = row.tagged.split("\x1f") if row.tagged else []
        if row.kind != "episode":
            same = hash(" ".join(lexicon.words_of(row.content)))
            seen.counts["facts"] += 1
            seen.counts["duplicates"] += same in seen.said_before
            seen.said_before.add(same)
        seen.counts["undated"] += (
            transfer.UNDATED in tagged
            or row.said_at < _EARLIEST
            or row.said_at in _UNIX_DAY
            or row.said_at > row.created_at + _DAY_MICROS
        )
        if strip_injected(row.content) != row.content:
            seen.echo_ids.append(row.id)
        if any(find_secrets(text) for text in (row.content, row.source_quote, row.cued) if text):
            seen.secret_ids.append(row.id)
        read = lexicon.read_text(row.content, tagged)
        expected = (lexicon.VERSION, read.words, read.features, read.to_bytes())
        if (row.version, row.words, row.features, row.stems) != expected:
            seen.wrong.append(row.rid)


def _with_secrets(rows: Sequence[Any]) -> list[int]:
    return [row.id for row in rows if rewritten(row, redact)]


def _count_stale(connection: Connection, space: int, now: int) -> int:
    return int(
        connection.execute(
            select(func.count())
            .select_from(memories.join(uses, uses.c.rid == memories.c.rid))
            .where(
                memories.c.space_id == space,
                memories.c.valid_to.is_not(None),
                memories.c.valid_to <= now,
                uses.c.last_accessed > memories.c.valid_to,
            )
        ).scalar_one()
    )


def _remove_orphans(connection: Connection) -> int:
    """Delete rows of what is made of memories without their memory. Other programs or a damaged file cause such rows;
    `Database.doctor` reports them.
    """
    removed = 0
    for table in metadata.sorted_tables:
        for key in table.foreign_key_constraints:
            if key.referred_table in (memories, vectors):
                own = (part.parent == part.column for part in key.elements)
                removed += connection.execute(
                    delete(table).where(~exists().where(*own).correlate(table))
                ).rowcount
    return removed


def _index_words(connection: Connection, space: int, rids: Sequence[int]) -> None:
    repository.index_words(connection, rids, count_up(connection, space))


def _with_problems(found: Checkup) -> Checkup:
    secret = "something that looks like a secret"
    problems = [
        *found.database,
        *(
            f"{counted(count, one, many)} {what}."
            for count, one, many, what in (
                (
                    found.echoes,
                    "memory has",
                    "memories have",
                    "text that Satchel itself put into a conversation",
                ),
                (found.secrets, "memory has", "memories have", secret),
                (found.secret_changes, "history entry has", "history entries have", secret),
                (found.words_wrong, "memory has", "memories have", "other words in the lexical index"),
            )
            if count
        ),
        *([] if found.embedder_trouble is None else [found.embedder_trouble]),
    ]
    notes = []
    if found.vectors_missing:
        have = counted(found.vectors_missing, "memory has no vector", "memories have no vectors")
        notes.append(f"{have} yet. The next search or `--fix` embeds them.")
    return replace(found, problems=tuple(problems), notes=tuple(notes))
