"""What is wrong with a space, in numbers, and how it is repaired (`satchel memory doctor`).

Duplicates, restatements, undated and faded memories are counted and left alone, because they are what was said.
Injected text, secrets and indexes that don't fit the memories are defects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, exists, func, insert, or_, select, update

from satchel.memory import decay, lexicon, repository, transfer
from satchel.memory.block import strip_injected
from satchel.memory.filters import Filter
from satchel.memory.history import apply_fields, find_row, write_change
from satchel.memory.redaction import find_secrets, redact
from satchel.memory.repository import count_up, slices
from satchel.memory.tables import changes, edges, memories, tags, tokens, uses, vectors, words

if TYPE_CHECKING:
    from satchel.memory.forgetting import Forgetting
    from satchel.memory.space import Space

__all__ = ["Checkup", "Inspection", "Repaired", "TakenOut", "checkup_to_json"]

_SLICE = 500
_DAY_MICROS = 86_400_000_000
_EARLIEST = -(70 * 365 * _DAY_MICROS)
"""1900: earlier dates come from programs that had none."""
_UNIX_DAY = range(-_DAY_MICROS, _DAY_MICROS)
"""So does the first day of 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What was found in a store.

    Attributes:
        memories: How many there are; the counts below are of them.
        facts: How many of them are no episodes; `duplicates` are of these.
        duplicates: Facts in the same words as an earlier one; surfacing shows one of them.
        echoes: Hold text that Satchel itself had put into a conversation.
        restated: Facts of a model's in the words of a memory that it had been shown.
        stale: Were shown after they had ceased to hold.
        faded: Lost their priority, and are found by search alone.
        undated: Nobody knows when they were said.
        secrets: Hold something that looks like a secret, and `secret_changes` entries of histories that do.
        words_missing: Are not in the lexical index; `words_wrong` stand there with other words than they have.
        vectors_missing: Have no vectors of the embedder in use; 0 where there is no embedder.
        orphans: Rows of indexes that belong to nothing, by table.
        embedder: The id of the embedder in use, or None; `embedder_trouble` is why it does not serve, or None.
        database: What is wrong with the file itself.
        arrays: What is wrong with the file of arrays, or None; it is derived, and no result depends on it.
        problems: What should be mended, in words; empty when all is well.
        notes: What is yet to be done, and will be by itself.
        echo_ids: The memories with injected text; `secret_ids`, those with secrets.
    """

    memories: int = 0
    facts: int = 0
    duplicates: int = 0
    echoes: int = 0
    restated: int = 0
    stale: int = 0
    faded: int = 0
    undated: int = 0
    secrets: int = 0
    secret_changes: int = 0
    words_missing: int = 0
    words_wrong: int = 0
    vectors_missing: int = 0
    orphans: Mapping[str, int] = field(default_factory=dict)
    embedder: str | None = None
    embedder_trouble: str | None = None
    database: tuple[str, ...] = ()
    arrays: str | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    echo_ids: tuple[str, ...] = ()
    secret_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOut:
    """A secret that was taken out of a memory; the log of its session may still hold it."""

    text: str = field(repr=False)
    session: str | None
    turn: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What was mended.

    Attributes:
        reindexed: Memories whose words were read again.
        orphans: Rows that belonged to nothing and were removed.
        stripped: Memories out of which injected text was taken; `emptied` had nothing else and were forgotten.
        redacted: Memories out of which secrets were taken.
        embedded: Memories that got vectors.
        taken_out: The secrets.
    """

    reindexed: int = 0
    orphans: int = 0
    stripped: int = 0
    emptied: int = 0
    redacted: int = 0
    embedded: int = 0
    taken_out: tuple[TakenOut, ...] = field(default=(), repr=False)


def checkup_to_json(found: Checkup) -> dict[str, Any]:
    """What was found as plain JSON data; rates are shares of all memories, of duplicates of all facts."""
    of = max(1, found.memories)
    return {
        "memories": found.memories,
        "facts": found.facts,
        "duplicates": found.duplicates,
        "duplicate_rate": round(found.duplicates / max(1, found.facts), 4),
        "echoes": found.echoes,
        "restated": found.restated,
        "echo_rate": round((found.echoes + found.restated) / of, 4),
        "stale": found.stale,
        "stale_rate": round(found.stale / of, 4),
        "faded": found.faded,
        "undated": found.undated,
        "undated_rate": round(found.undated / of, 4),
        "secrets": found.secrets,
        "secret_changes": found.secret_changes,
        "secret_rate": round(found.secrets / of, 4),
        "index": {
            "words_missing": found.words_missing,
            "words_wrong": found.words_wrong,
            "vectors_missing": found.vectors_missing,
            "orphans": dict(found.orphans),
        },
        "embedder": found.embedder,
        "embedder_trouble": found.embedder_trouble,
        "database": list(found.database),
        "arrays": found.arrays,
        "echo_ids": list(found.echo_ids),
        "secret_ids": list(found.secret_ids),
        "problems": list(found.problems),
        "notes": list(found.notes),
    }


@dataclass(slots=True)
class _Seen:
    """The counts as the memories go by."""

    memories: int = 0
    facts: int = 0
    duplicates: int = 0
    restated: int = 0
    undated: int = 0
    faded: int = 0
    echo_ids: list[str] = field(default_factory=list)
    secret_ids: list[str] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    said_before: set[int] = field(default_factory=set)
    shown_before: set[int] = field(default_factory=set)


class Inspection:
    """Checks the memories of a space and repairs them."""

    def __init__(self, space: Space, forgetting: Forgetting) -> None:
        """Take the space, and what forgets a memory that holds nothing but injected text."""
        self._space = space
        self._forgetting = forgetting

    async def check(self, *, progress: Callable[[int, int], None]) -> Checkup:
        """Look at every memory and every index, and ask the embedder whether it serves; see `Memory.check`."""
        space = self._space
        total = await space.read(repository.count_rows, Filter())
        seen = await self._looked_at(lambda done: progress(done, max(total, done)))
        secret_changes = len(await self._changes_with_secrets())
        stale = await space.read(_count_stale, space.now_micros())
        orphans = await space.backend.read(_count_orphans)
        missing, embedder, trouble = await self._embedding()
        database = (await space.backend.doctor()).problems
        found = Checkup(
            memories=seen.memories,
            facts=seen.facts,
            duplicates=seen.duplicates,
            echoes=len(seen.echo_ids),
            restated=seen.restated,
            stale=stale,
            faded=seen.faded,
            undated=seen.undated,
            secrets=len(seen.secret_ids),
            secret_changes=secret_changes,
            words_missing=len(seen.missing),
            words_wrong=len(seen.wrong),
            vectors_missing=missing,
            orphans=orphans,
            embedder=embedder,
            embedder_trouble=trouble,
            database=database,
            arrays=await space.candidates.trouble(),
            echo_ids=tuple(seen.echo_ids),
            secret_ids=tuple(seen.secret_ids),
        )
        return _with_problems(found)

    async def repair(self, *, secrets: bool, progress: Callable[[int], None]) -> Repaired:
        """Repair what `check` finds; see `Memory.repair`."""
        space = self._space
        orphans = await space.backend.write(_remove_orphans)
        if await space.candidates.trouble() is not None:
            await space.candidates.rebuild()
        seen = await self._looked_at(lambda _: None)
        broken = [*seen.missing, *seen.wrong]
        for part in slices(broken):
            await space.write(_reread, part)
        stripped = emptied = 0
        for id in seen.echo_ids:
            if await space.write(_strip, id, at=space.now_micros()):
                await self._forgetting.forget([id])
                emptied += 1
            else:
                stripped += 1
        taken: list[TakenOut] = []
        redacted = 0
        if secrets:
            for id in seen.secret_ids:
                found = await space.write(_redact, id, at=space.now_micros())
                redacted += found is not None
                taken += found or ()
            suspects = await self._changes_with_secrets()
            await space.backend.write(lambda connection: _redact_changes(connection, suspects))
            if redacted or suspects:
                await space.candidates.scrub()
                await space.backend.scrub()
        embedded = 0
        if space.dense is not None:
            await space.dense.open()
            embedded = await space.dense.fill(progress=progress)
        return Repaired(
            reindexed=len(broken),
            orphans=orphans,
            stripped=stripped,
            emptied=emptied,
            redacted=redacted,
            embedded=embedded,
            taken_out=tuple(taken),
        )

    async def _looked_at(self, progress: Callable[[int], None]) -> _Seen:
        """Go through all memories, some at a time."""
        space = self._space
        seen = _Seen()
        now, after = space.now_micros(), 0
        while rows := await space.read(_rows, after):
            await space.thread.run(_look, rows, seen)
            faded = await space.read(
                repository.faded_rids,
                [row.rid for row in rows],
                at=now,
                floor=decay.FLOOR,
                by_request=space.by_request,
            )
            seen.faded += len(faded)
            after = rows[-1].rid
            progress(seen.memories)
        return seen

    async def _changes_with_secrets(self) -> list[int]:
        """The entries of histories that hold secrets."""
        found: list[int] = []
        after = 0
        while rows := await self._space.read(_changes_after, after):
            found += await self._space.thread.run(_suspicious, rows)
            after = rows[-1].id
        return found

    async def _embedding(self) -> tuple[int, str | None, str | None]:
        space, dense = self._space, self._space.dense
        if dense is None:
            return 0, None, None
        await dense.open()
        # Whether it serves is only known by asking.
        await dense.question("Does it serve?")
        # If it never answered, nothing is embedded yet.
        missing = (
            await space.read(repository.count_rows, Filter())
            if dense.model is None
            else await dense.pending()
        )
        return missing, dense.embedder.info.id, dense.trouble


def _changes_after(connection: Connection, space: int, after: int) -> Sequence[Any]:
    return connection.execute(
        select(changes.c.id, changes.c.why, changes.c.before, changes.c.after)
        .where(changes.c.space_id == space, changes.c.id > after)
        .order_by(changes.c.id)
        .limit(_SLICE)
    ).all()


def _strip(connection: Connection, space: int, id: str, *, at: int) -> bool:
    """Take injected text out of a memory; gives whether there is nothing else in it. It can be undone."""
    row = find_row(connection, space, id)
    content = strip_injected(row.content)
    if not content.strip():
        return True
    if content != row.content:
        apply_fields(connection, space, row, {"content": content})
        write_change(
            connection,
            space,
            memory_id=id,
            action="edit",
            at=at,
            who="doctor",
            why="It held text that Satchel itself had put there.",
            before={"content": row.content},
            after={"content": content},
        )
    return False


def _redact(connection: Connection, space: int, id: str, *, at: int) -> list[TakenOut] | None:
    """Take the secrets out of a memory; its history says that it was, and not what."""
    row = find_row(connection, space, id)
    content = redact(row.content)
    quote = None if row.source_quote is None else redact(row.source_quote)
    if content == row.content and quote == row.source_quote:
        return None
    taken = [
        TakenOut(text=text[secret.start : secret.end], session=row.source_session, turn=row.source_turn)
        for text in (row.content, row.source_quote or "")
        for secret in find_secrets(text)
    ]
    if content != row.content:
        apply_fields(connection, space, row, {"content": content})
    connection.execute(update(memories).where(memories.c.rid == row.rid).values(source_quote=quote))
    write_change(
        connection,
        space,
        memory_id=id,
        action="edit",
        at=at,
        who="doctor",
        why="Secrets were taken out for good.",
        before={},
        after={},
    )
    return taken


def _rows(connection: Connection, space: int, after: int) -> Sequence[Any]:
    """Some memories with what the index has of them, by rid."""
    tagged = (
        select(func.group_concat(tags.c.tag, "\x1f"))
        .where(tags.c.rid == memories.c.rid)
        .correlate(memories)
        .scalar_subquery()
    )
    return connection.execute(
        select(
            memories.c.rid,
            memories.c.id,
            memories.c.kind,
            memories.c.content,
            memories.c.source_quote,
            memories.c.trust,
            memories.c.said_at,
            memories.c.created_at,
            tagged.label("tagged"),
            words.c.version,
            words.c.words,
            words.c.features,
            words.c.stems,
            uses.c.access_count,
        )
        .outerjoin(words, words.c.rid == memories.c.rid)
        .outerjoin(uses, uses.c.rid == memories.c.rid)
        .where(memories.c.space_id == space, memories.c.rid > after)
        .order_by(memories.c.rid)
        .limit(_SLICE)
    ).all()


def _look(rows: Sequence[Any], seen: _Seen) -> None:
    for row in rows:
        seen.memories += 1
        tagged = row.tagged.split("\x1f") if row.tagged else []
        same = hash(" ".join(lexicon.words_of(row.content)))
        if row.kind != "episode":
            seen.facts += 1
            seen.duplicates += same in seen.said_before
            seen.restated += row.trust == "agent" and same in seen.shown_before
            seen.said_before.add(same)
        if row.access_count:
            seen.shown_before.add(same)
        seen.undated += (
            transfer.UNDATED in tagged
            or row.said_at < _EARLIEST
            or row.said_at in _UNIX_DAY
            or row.said_at > row.created_at + _DAY_MICROS
        )
        if strip_injected(row.content) != row.content:
            seen.echo_ids.append(row.id)
        if find_secrets(row.content) or (row.source_quote and find_secrets(row.source_quote)):
            seen.secret_ids.append(row.id)
        if row.version is None:
            seen.missing.append(row.rid)
            continue
        read = lexicon.read_text(row.content, tagged)
        if row.version != lexicon.VERSION or (read.words, read.features) != (row.words, row.features):
            seen.wrong.append(row.rid)
        elif sorted(_entries(read.to_bytes())) != sorted(_entries(row.stems)):
            # The order of the stems follows that of the tags and means nothing.
            seen.wrong.append(row.rid)


def _entries(stems: bytes) -> Iterator[bytes]:
    """The entries of a packed list of words, six bytes each; see `lexicon.WordList`."""
    half = len(stems) * 4 // 6
    hashes, counts = stems[:half], stems[half:]
    for place in range(len(stems) // 6):
        yield hashes[place * 4 : place * 4 + 4] + counts[place * 2 : place * 2 + 2]


def _suspicious(rows: Sequence[Any]) -> list[int]:
    return [
        row.id
        for row in rows
        if redact(row.why) != row.why or any(_redacted_json(text) != text for text in (row.before, row.after))
    ]


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


def _orphans() -> dict[str, Any]:
    """What belongs to nothing, by table, as conditions: such rows come from other programs or a damaged file."""

    def there(column: Any) -> Any:
        return exists(select(memories.c.rid).where(memories.c.rid == column))

    embedded = exists(
        select(vectors.c.rid).where(vectors.c.rid == tokens.c.rid, vectors.c.model_id == tokens.c.model_id)
    )
    return {
        "words": (words, ~there(words.c.rid)),
        "tags": (tags, ~there(tags.c.rid)),
        "uses": (uses, ~there(uses.c.rid)),
        "vectors": (vectors, ~there(vectors.c.rid)),
        "tokens": (tokens, ~embedded),
        "edges": (edges, or_(~there(edges.c.source_rid), ~there(edges.c.target_rid))),
    }


def _count_orphans(connection: Connection) -> dict[str, int]:
    counts = {
        name: int(connection.execute(select(func.count()).select_from(table).where(where)).scalar_one())
        for name, (table, where) in _orphans().items()
    }
    return {name: count for name, count in counts.items() if count}


def _remove_orphans(connection: Connection) -> int:
    return sum(
        connection.execute(delete(table).where(where)).rowcount for table, where in _orphans().values()
    )


def _reread(connection: Connection, space: int, rids: Sequence[int]) -> None:
    """Read the words of memories again, and tell every process that has the index open."""
    changed = count_up(connection, space)
    contents = {
        row.rid: row.content
        for row in connection.execute(
            select(memories.c.rid, memories.c.content).where(
                memories.c.space_id == space, memories.c.rid.in_(rids)
            )
        )
    }
    tagged: dict[int, list[str]] = {}
    for rid, tag in connection.execute(
        select(tags.c.rid, tags.c.tag).where(tags.c.rid.in_(rids)).order_by(tags.c.rid, tags.c.position)
    ):
        tagged.setdefault(rid, []).append(tag)
    connection.execute(delete(words).where(words.c.rid.in_(rids)))
    rows = []
    for rid, content in contents.items():
        read = lexicon.read_text(content, tagged.get(rid, ()))
        rows.append(
            {
                "rid": rid,
                "version": lexicon.VERSION,
                "words": read.words,
                "features": read.features,
                "stems": read.to_bytes(),
            }
        )
    if rows:
        connection.execute(insert(words), rows)
        connection.execute(update(memories).where(memories.c.rid.in_(list(contents))).values(changed=changed))
        connection.execute(update(vectors).where(vectors.c.rid.in_(list(contents))).values(changed=changed))


def _redacted_json(text: str) -> str:
    """JSON with the secrets taken out of its strings."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, dict):
            return {key: clean(inner) for key, inner in value.items()}
        return [clean(inner) for inner in value] if isinstance(value, list) else value

    return json.dumps(clean(json.loads(text)), ensure_ascii=False)


def _redact_changes(connection: Connection, ids: Sequence[int]) -> None:
    for part in slices(ids):
        for row in connection.execute(select(changes).where(changes.c.id.in_(part))).all():
            connection.execute(
                update(changes)
                .where(changes.c.id == row.id)
                .values(
                    why=redact(row.why), before=_redacted_json(row.before), after=_redacted_json(row.after)
                )
            )


def _with_problems(found: Checkup) -> Checkup:
    """Put into words what should be mended."""
    problems = list(found.database)

    def tell(count: int, one: str, many: str) -> None:
        if count:
            problems.append(f"{count:,} {one if count == 1 else many}")

    tell(
        found.echoes,
        "memory holds text that Satchel itself had put into a conversation.",
        "memories hold text that Satchel itself had put into a conversation.",
    )
    tell(
        found.secrets,
        "memory holds something that looks like a secret.",
        "memories hold something that looks like a secret.",
    )
    tell(
        found.secret_changes,
        "entry of a history holds something that looks like a secret.",
        "entries of histories hold something that looks like a secret.",
    )
    tell(found.words_missing, "memory is not in the lexical index.", "memories are not in the lexical index.")
    tell(
        found.words_wrong,
        "memory stands in the lexical index with words that it does not have.",
        "memories stand in the lexical index with words that they do not have.",
    )
    tell(
        sum(found.orphans.values()),
        "row of an index belongs to nothing.",
        "rows of indexes belong to nothing.",
    )
    if found.embedder_trouble is not None:
        problems.append(found.embedder_trouble)
    notes = []
    if found.vectors_missing:
        have = "memory has no vector" if found.vectors_missing == 1 else "memories have no vectors"
        notes.append(
            f"{found.vectors_missing:,} {have} yet; the next search makes them, and so does mending."
        )
    if found.arrays is not None:
        notes.append(f"{found.arrays} The next search makes it anew, and so does mending.")
    return replace(found, problems=tuple(problems), notes=tuple(notes))
