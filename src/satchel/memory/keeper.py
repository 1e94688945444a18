"""The part of `Memory` that changes what is stored, with its history: edit, link, supersede, undo; and walks edges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from sqlalchemy import Connection

from satchel.clock import Clock
from satchel.errors import UsageError
from satchel.memory import checking, graph, history, lifecycle, repository
from satchel.memory.graph import Edge, Related
from satchel.memory.history import Change
from satchel.memory.records import MemoryRecord, MemoryType, Moment, Tier
from satchel.memory.repository import to_micros
from satchel.storage import Database

__all__ = ["KEEP", "Keeper"]

KEEP: Final = "keep"
"""Stands for "as it is" where None means something."""

_MAX_DEPTH = 20


class Keeper(ABC):
    """The changes of one user's memories in one scope. `Memory` is one; it is not opened by itself."""

    user: str
    scope: str
    _database: Database
    _space: int
    _clock: Clock

    @abstractmethod
    def _stored(self) -> None:
        """Told when something was stored or changed that has to be embedded."""

    def _aware(self, moment: Moment | None) -> datetime | None:
        """A time with its offset; one without is read on the clock's own.

        Raises:
            UsageError: It is none.
        """
        if moment is None:
            return None
        at = checking.moment_of(moment)
        return at if at.utcoffset() is not None else at.replace(tzinfo=self._clock.now().tzinfo)

    def _micros(self, moment: datetime | None) -> int | None:
        aware = self._aware(moment)
        return None if aware is None else to_micros(aware)

    @abstractmethod
    async def _redacted(self, text: str) -> str:
        """The text without secrets."""

    async def edit(
        self,
        id: str,
        *,
        content: str | None = None,
        tags: Iterable[str] | None = None,
        tier: Tier | None = None,
        memory_type: MemoryType | None = None,
        importance: int | None = None,
        priority: float | None = None,
        decay_rate: float | None = None,
        speaker: str | None = None,
        said_at: datetime | None = None,
        valid_from: datetime | Literal["keep"] | None = KEEP,
        valid_to: datetime | Literal["keep"] | None = KEEP,
        by: str = "user",
        why: str = "",
    ) -> str | None:
        """Change a memory; what is not given stays. The words it had before stay in its history.

        Args:
            id: Which one.
            content: Its new words.
            tags: All its tags.
            tier: Takes the tier's own priority and rate of decay along, where none is given.
            memory_type: What it is about.
            importance: 1 to 5.
            priority: 0 to 1.
            decay_rate: 0 to 1.
            speaker: Who said it.
            said_at: When.
            valid_from: From when on it holds; None opens it.
            valid_to: Until when it holds; None opens it.
            by: Who wants it.
            why: What for; kept in the history.

        Returns:
            The change's id, for `undo`; None where everything was so already.

        Raises:
            NotFound: There is no such memory.
            UsageError: Something is empty, out of range or unknown; nothing was changed.
        """
        fields: dict[str, Any] = {}
        if content is not None:
            fields["content"] = await self._redacted(checking.content_of(content))
            if not fields["content"]:
                raise UsageError("There are no words in this; forget the memory if it shall go.")
        if tags is not None:
            fields["tags"] = [await self._redacted(tag) for tag in checking.clean_tags(tags)]
        if tier is not None:
            fields["tier"] = checking.one_of(tier, Tier, "tier")
            fields["priority"] = checking.PRIORITY[tier]
            fields["decay_rate"] = checking.DECAY_RATE[tier]
        if memory_type is not None:
            fields["memory_type"] = checking.one_of(memory_type, MemoryType, "memory type")
        if importance is not None:
            fields["importance"] = checking.importance_of(importance)
        if priority is not None:
            fields["priority"] = checking.share_of(priority, "priority")
        if decay_rate is not None:
            fields["decay_rate"] = checking.share_of(decay_rate, "decay rate")
        if speaker is not None:
            fields["speaker"] = checking.printable(speaker)[:200]
        said = self._aware(said_at)
        if said is not None:
            fields |= {
                "said_at": to_micros(said),
                "said_offset_min": repository.offset_minutes(said),
            }
        if valid_from != KEEP:
            fields["valid_from"] = self._micros(valid_from)
        if valid_to != KEEP:
            fields["valid_to"] = self._micros(valid_to)
        at = to_micros(self._clock.now())
        change = await self._database.write(
            lambda connection: lifecycle.edit(
                connection, self._space, id, fields, at=at, who=_name(by), why=_reason(why)
            )
        )
        if content is not None:
            self._stored()
        return change

    async def link(
        self,
        source: str,
        target: str,
        relation: str = "related",
        weight: float = 1.0,
        *,
        by: str = "user",
        why: str = "",
    ) -> str | None:
        """Tie two memories, as in "`source` elaborates `target`"; a tie that is there gets the weight.

        Args:
            source: Where the edge begins.
            target: Where it ends.
            relation: One of `graph.RELATIONS`, or any word.
            weight: 0 (no tie; never followed) to 1.
            by: Who wants it.
            why: What for.

        Returns:
            The change's id, for `undo`; None where it was so already.

        Raises:
            NotFound: One of the two is not there.
            UsageError: They are the same, or the relation or the weight is none.
        """
        return await self._link(source, target, relation, lifecycle.checked_weight(weight), by, why)

    async def unlink(
        self, source: str, target: str, relation: str = "related", *, by: str = "user", why: str = ""
    ) -> str | None:
        """Take an edge away; gives the change's id, or None where there was no such edge.

        Raises:
            NotFound: One of the two is not there.
        """
        return await self._link(source, target, relation, None, by, why)

    async def _link(
        self, source: str, target: str, relation: str, weight: float | None, by: str, why: str
    ) -> str | None:
        relation = checking.clean(relation, "relation").strip()
        at = to_micros(self._clock.now())
        return await self._database.write(
            lambda connection: lifecycle.link(
                connection,
                self._space,
                source,
                target,
                relation,
                weight,
                at=at,
                who=_name(by),
                why=_reason(why),
            )
        )

    async def edges(self, id: str) -> tuple[Edge, ...]:
        """The edges that begin or end at a memory, the strongest first.

        Raises:
            NotFound: There is no such memory.
        """

        def read(connection: Connection) -> list[Edge]:
            return graph.read_edges(connection, history.find_row(connection, self._space, id).rid)

        return tuple(await self._database.read(read))

    async def related(
        self, id: str, depth: int = 2, relations: Collection[str] | None = None, *, limit: int = 100
    ) -> tuple[Related, ...]:
        """What can be reached from a memory along edges in either direction: nearest first, then the strongest.

        Args:
            id: Where to begin.
            depth: Steps at most, 1 to 20.
            relations: Which edges to follow; None for all.
            limit: At most so many.

        Raises:
            NotFound: There is no such memory.
            UsageError: The depth or the limit is out of range.
        """
        if not 1 <= depth <= _MAX_DEPTH or limit < 1:
            raise UsageError(f"A walk has 1 to {_MAX_DEPTH} steps and a limit of 1 or more.")

        def read(connection: Connection) -> list[Related]:
            start = history.find_row(connection, self._space, id).rid
            return graph.walk(connection, self._space, start, depth=depth, relations=relations, limit=limit)

        return tuple(await self._database.read(read))

    async def supersede(
        self,
        older: str,
        newer: str,
        *,
        valid_to: datetime | None = None,
        by: str = "user",
        why: str = "",
    ) -> str | None:
        """Let a newer memory take the place of an older one, which stays, with an end to its validity.

        Search and surfacing leave out the older one from then on, unless they are asked `as_of` an earlier moment.

        Args:
            older: What no longer holds.
            newer: What holds instead.
            valid_to: Until when the older one held; None takes the time from which the newer one does.
            by: Who says so.
            why: What for.

        Returns:
            The change's id; `undo` brings the older one back. None where it was so already.

        Raises:
            NotFound: One of the two is not there.
            UsageError: They are the same, or somebody said before that it is the other way round.
        """
        end, at = self._micros(valid_to), to_micros(self._clock.now())
        return await self._database.write(
            lambda connection: lifecycle.supersede(
                connection, self._space, older, newer, valid_to=end, at=at, who=_name(by), why=_reason(why)
            )
        )

    async def history(self, id: str) -> tuple[Change, ...]:
        """Every change of a memory, oldest first; the first one is that it was stored.

        Of a forgotten one only that is left, with a hash of its words.

        Raises:
            NotFound: Nothing is known of this id.
        """
        return tuple(
            await self._database.read(lambda connection: history.read_changes(connection, self._space, id))
        )

    async def undo(self, change_id: str, *, by: str = "user", why: str = "") -> str:
        """Take a change back. That is a change itself: undoing it again brings the first one back.

        Returns:
            The id of the change that this is.

        Raises:
            NotFound: There is no such change.
            UsageError: It was a storing or a forgetting, or what it changed was changed again since.
        """
        at = to_micros(self._clock.now())
        change = await self._database.write(
            lambda connection: history.undo_change(
                connection, self._space, change_id, at=at, who=_name(by), why=_reason(why)
            )
        )
        self._stored()
        return change

    async def note_use(self, ids: Iterable[str]) -> None:
        """Count that memories were used now, which reinforces them; ids that are not there are left out."""
        wanted = list(dict.fromkeys(ids))
        at = to_micros(self._clock.now())

        def write(connection: Connection) -> None:
            for part in repository.slices(wanted):
                rids = repository.rids_of(connection, self._space, part)
                if rids:
                    repository.note_uses(connection, rids, at)

        if wanted:
            await self._database.write(write)

    async def words_said(self, ids: Sequence[str]) -> tuple[tuple[MemoryRecord, tuple[str, ...]], ...]:
        """Memories, each with all the words it ever had, the present ones first: what forgetting has to look for."""

        def read(connection: Connection) -> list[tuple[MemoryRecord, tuple[str, ...]]]:
            records = repository.records_by_id(connection, self._space, ids)
            earlier = history.earlier_contents(connection, self._space, list(records))
            return [
                (record, tuple(dict.fromkeys((record.content, *earlier.get(id, ())))))
                for id, record in records.items()
            ]

        return tuple(await self._database.read(read))


def _name(by: str) -> str:
    return checking.clean(by, "name of who changes it")[:200]


def _reason(why: str) -> str:
    return checking.printable(why)[:2000]
