"""Two embedders for one store: the first reads English, and the second what the first doesn't read.

Every text gets vectors of one of them, by its language. A question is compared with the rows of both: with those of the
second as long as it reads anything, with those of the first if that reads the question. Their cosines are on different
scales, so those of the second are translated. Nothing of the second is loaded before there is a text for it, and only
the background waits until it is fetched. docs/decisions/0036-two-embedders.md has the measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from satchel.memory.find.candidates import vector_rows
from satchel.memory.find.candidates.vector_rows import Share
from satchel.memory.find.candidates.vectors import Scale, Second
from satchel.memory.find.embedding import EVERYTHING, DenseArm, Fill
from satchel.memory.find.question import AskedWith
from satchel.memory.store import repository
from satchel.memory.text.languages import CODES, language_of, numbers_of
from satchel.models.port import Embedder, FetchedEmbedder

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.clock import Clock
    from satchel.memory.find.candidates.arrays import Floats
    from satchel.memory.find.relevance import RelevanceGate
    from satchel.memory.store.claims import Claims
    from satchel.models.port import Vectors
    from satchel.storage import Database

_LOOK_S = 5.0
"""How often it is looked whether another process has begun with the second embedder."""
_FAR_DEVIATIONS = 3.0
"""Scales are matched at the mean of unrelated messages and so many deviations beside it, and at 1."""


def arms_of(
    first: Embedder,
    second: Embedder | None,
    database: Database,
    space: int,
    clock: Clock,
    claims: Claims,
) -> DenseArm:
    """The embedders of a space: both, or the first alone where it reads all languages that the second does."""
    if second is not None and _languages_of_second(first, second):
        return TwoArms(first, second, database, space, clock, claims)
    return DenseArm(first, database, space, clock, claims)


def _languages_of_second(first: Embedder, second: Embedder) -> tuple[str, ...]:
    """The languages whose texts the second embedder gets: those that it reads and the first doesn't; empty if the first
    reads all that is told apart.
    """
    if not first.info.languages:
        return ()
    reads = second.info.languages or CODES
    return tuple(code for code in reads if code in CODES and code not in first.info.languages)


class _SecondArm(DenseArm):
    """The second embedder for the memories of its languages. It is never the model in use of the store."""

    _without_it = "Texts in other languages are found only by their words"
    _counts_before_the_first = True
    _look_at = float("-inf")
    _done_to = -1

    @property
    def is_here(self) -> bool:
        """Whether it can be called without waiting for a connection."""
        return not isinstance(self.embedder, FetchedEmbedder) or self.embedder.is_here()

    async def open(self) -> None:
        """Look up whether the store has vectors of it. It is written down with its first vectors only."""
        now = self._clock.monotonic_s()
        if self.model is not None or now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        name = self.embedder.info.id
        found = await self._database.read(lambda connection: vector_rows.find_model(connection, name))
        if found is not None:
            await self._open_model(found.dimension)

    async def _open_model(self, dimension: int) -> None:
        await super()._open_model(dimension)
        self._replaces = None

    async def is_needed(self, *, everywhere: bool = False) -> bool:
        """Whether a memory waits for it; memories that were looked at are not looked at again."""
        model = self.model or 0
        space = None if everywhere else self._space

        def find(connection: Connection) -> tuple[int, bool]:
            changed = repository.space_changed(connection, self._space)
            found = vector_rows.pending_vectors(
                connection, space, model, limit=1, max_chars=1, share=self._share, since=self._done_to
            )
            # Once it is in use, it embeds the cues of all memories.
            return changed, bool(
                found or (model and vector_rows.pending_cues(connection, space, model, limit=1))
            )

        changed, needed = await self._database.read(find)
        if not needed and not everywhere:
            self._done_to = changed
        return needed

    def instead_of(self, model: int | None) -> None:
        """Take the place of this model's vectors from now on."""
        self._share = replace(self._share, instead_of=model)


class TwoArms(DenseArm):
    """The first embedder of a store, with a second one beside it."""

    def __init__(
        self,
        first: Embedder,
        second: Embedder,
        database: Database,
        space: int,
        clock: Clock,
        claims: Claims,
    ) -> None:
        """Nothing is loaded before the first embedding; the second must read a language that the first doesn't."""
        languages = _languages_of_second(first, second)
        theirs = Share(languages=tuple(numbers_of(languages)))
        own = Share(languages=tuple(number for number in Share().languages if number not in theirs.languages))
        super().__init__(first, database, space, clock, claims, share=own)
        self._languages = frozenset(languages)
        self._second = _SecondArm(second, database, space, clock, claims, share=theirs)
        self._scale: Scale | None = None

    @property
    def second(self) -> Second | None:
        """See `DenseArm.second`."""
        found = self._second
        if found.model is None or self.model is None:
            return None
        return Second(found.model, found.dimension, self._scale)

    @property
    def any_trouble(self) -> str | None:
        """See `DenseArm.any_trouble`."""
        return self.trouble or self._second.trouble

    async def open(self) -> None:
        """See `DenseArm.open`."""
        await super().open()
        if self.model is None:
            return
        await self._second.open()
        if self._second.model is not None and self._scale is None and self._second.is_here:
            await self._match_scales()

    async def _match_scales(self) -> None:
        first, second = await super().gate(), await self._second.gate()
        if first is None or second is None:
            return
        given = [second.mean + at * second.deviation for at in (-_FAR_DEVIATIONS, 0, _FAR_DEVIATIONS)]
        wanted = [first.mean + at * first.deviation for at in (-_FAR_DEVIATIONS, 0, _FAR_DEVIATIONS)]
        self._scale = Scale((-1.0, *given, 1.0), (-1.0, *wanted, 1.0))

    def _first_reads(self, text: str) -> bool:
        return language_of(text) not in self._languages and super().reads(text)

    def reads(self, text: str) -> bool:
        """See `DenseArm.reads`."""
        return self.second is not None or super().reads(text)

    # Questions.

    async def question(self, text: str) -> AskedWith | None:
        """See `DenseArm.question`. The vector is that of both embedders; see `Second`."""
        if self.second is None:
            return None if await self._waits_for_second(text) else await super().question(text)
        first = await super().question(text) if self._first_reads(text) else None
        second = await self._second.asked([text]) if self._second.is_here else None
        wide = self._joined(None if first is None else first.vector[None], second)
        return None if wide is None else AskedWith(wide[0], None if first is None else first.tokens)

    async def asked(self, texts: Sequence[str]) -> Vectors | None:
        """See `DenseArm.asked`: the first text decides whether the first embedder reads them."""
        if self.second is None or not texts:
            return None if texts and await self._waits_for_second(texts[0]) else await super().asked(texts)
        first = await super().asked(texts) if self._first_reads(texts[0]) else None
        second = await self._second.asked(texts) if self._second.is_here else None
        return self._joined(first, second)

    async def _waits_for_second(self, text: str) -> bool:
        """Whether a text and memories are in languages of the second embedder, which isn't there yet. The first would
        find what it has read, whatever that is, and put it before memories that share words with the text.
        """
        return language_of(text) in self._languages and await self._second.is_needed()

    def _joined(self, first: Vectors | None, second: Vectors | None) -> Vectors | None:
        given = first if first is not None else second
        if given is None:
            return None
        wide = np.zeros((len(given), self.dimension + self._second.dimension), np.float32)
        if first is not None:
            wide[:, : self.dimension] = first
        if second is not None:
            wide[:, self.dimension :] = second
        return wide

    async def gate_for(self, message: Floats) -> RelevanceGate | None:
        """See `DenseArm.gate_for`: the gate of the embedder that reads the message, on the scale of the first."""
        first = await super().gate()
        if first is None or message[: self.dimension].any():
            return first
        made = await self._second.gate()
        if made is None:
            return None
        return replace(made, mean=first.mean, deviation=first.deviation, start=self.dimension)

    # Embedding what is stored.

    async def fill(self, wanted: Fill = EVERYTHING) -> int:
        """See `DenseArm.fill`."""
        done, limit, progress = await super().fill(wanted), wanted.limit, wanted.progress
        if limit is not None and done >= limit:
            return done
        second = self._second
        if self.model is None or not (wanted.fetch or second.is_here):
            return done
        if not await second.is_needed(everywhere=wanted.everywhere):
            return done
        second.instead_of(self.model)
        left = replace(
            wanted,
            limit=None if limit is None else limit - done,
            progress=None if progress is None else lambda more: progress(done + more),
        )
        done += await second.fill(left)
        if second.model is not None and self._scale is None:
            await self._match_scales()
        return done

    async def keep_up(self) -> None:
        """See `DenseArm.keep_up`; the second embedder is fetched if a memory waits for it."""
        await super().keep_up()
        await self.fill(Fill(fetch=True))

    async def pending(self, *, everywhere: bool = False) -> int:
        """See `DenseArm.pending`."""
        if self.model is None:
            return 0
        return await super().pending(everywhere=everywhere) + await self._second.pending(
            everywhere=everywhere
        )
