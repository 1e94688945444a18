"""What memory does besides storing and reading: it embeds and counts uses, in the background and before a search.
Reads never write; they ask for this first, and go on without it where the database is busy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio

from satchel.errors import EmbedderError, SatchelError, StorageLocked, StorageUnwritable
from satchel.memory.find.embedding import DenseArm, Fill
from satchel.memory.store import repository, statement_rows
from satchel.memory.text.statements import Statement, read_statements, timed_statements

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from satchel.memory.journal import MemoryJournal
    from satchel.memory.store.space import Space

_log = logging.getLogger(__name__)

BEFORE_SEARCH = 10_000
"""The most memories that are embedded before a search by a program, for which complete is better than quick: a minute
or two, once, after an import. In a home somebody waits, and a limit of time holds; see `Memory.open`."""
BEFORE_SURFACING = 1_024
"""The same before a turn: five seconds."""
BEFORE_PROFILE = 64
"""The most memories that are read for statements before a profile or an agenda: a fifth of a second. Usually it is what
the last conversation left; more is there after an import, which the background reads."""
_READ_AT_ONCE = 16
_LOCKED_S = 2.0
"""How long a reader's upkeep waits for another process that locks the database."""
_IDLE_S = 2.0
"""A program that stores something and ends at once need not load a model for it."""


class Upkeep:
    """Keeps what is derived from the memories of a space up to date."""

    def __init__(self, space: Space, journal: MemoryJournal | None, embed_within_s: float | None) -> None:
        """Take what it works on. Nothing happens before `run` or `prepare`.

        `embed_within_s` is the most time that is spent on embedding before an answer; None sets no limit.
        """
        self._space = space
        self._embed_within_s = embed_within_s
        self._journal = journal
        self._busy_at = float("-inf")
        self._wake = anyio.Event()
        self._caught_up = -1
        self._all_read = 0  # The number of the change up to which nothing is unread.
        # The newest change when reading began at the newest memory, and the last rid read.
        self._read_down = (0, 0)
        self._reading = anyio.Lock(fast_acquire=True)

    def stored(self) -> None:
        """Something was stored or changed; `run` embeds it when the program is idle."""
        self._busy_at = anyio.current_time()
        self._wake.set()

    async def prepare(
        self, *, most: int, progress: Callable[[int, int], None] = lambda *_: None, with_gate: bool = False
    ) -> None:
        """Prepare a search: let `candidates` take in what has changed, and embed what has no vectors. If the
        database is locked, nothing is embedded.

        At most `most` memories are embedded, the newest. `with_gate` also lets the embedder see the example messages
        that surfacing measures with, once for each store.
        """
        self._busy_at = anyio.current_time()
        try:
            await self._embed(most, progress, with_gate=with_gate)
        except (StorageLocked, StorageUnwritable):
            # What is derived is worth less than an answer: the next search makes it.
            await self._space.candidates.refresh()

    async def read_statements(self, *, most: int) -> int:
        """Read out of memories what profile and agenda are made of, the newest first; nothing if the database is
        locked.

        Returns:
            How many were read.
        """
        space, done = self._space, 0

        def look(connection: Connection, id: int, limit: int) -> tuple[int, list[statement_rows.Unread]]:
            changed, since = repository.space_changed(connection, id), self._all_read
            if changed == since:
                return changed, []
            began, below = self._read_down
            if began != changed:
                below = statement_rows.NO_RID
            return changed, statement_rows.unread(connection, id, limit=limit, since=since, below=below)

        # One after the other: many conversations that begin at once would all read the same.
        async with self._reading:
            with suppress(StorageLocked):
                while done < most:
                    limit = min(_READ_AT_ONCE, most - done)
                    changed, batch = await space.read(look, limit)
                    if batch:
                        read = await space.thread.run(_read_all, batch, space.locale)
                        await space.backend.write(
                            partial(statement_rows.write_readings, space=space.id, read=read),
                            wait_s=_LOCKED_S,
                        )
                        # What is above was read: looking for it again each time takes longer with each memory.
                        self._read_down = (changed, batch[-1].rid)
                        done += len(batch)
                    if len(batch) < limit:
                        self._all_read = changed
                        break
        return done

    async def note_shown(self, ids: Sequence[str]) -> None:
        """Count that memories were shown to a model, and a request where decay counts those."""
        if not ids and not self._space.by_request:
            return
        at = self._space.now_micros()

        def note(connection: Connection) -> None:
            if self._space.by_request:
                repository.count_request(connection, self._space.id)
            if ids:
                repository.note_uses(connection, self._space.id, ids, at)

        # That a memory was used is worth less than the memory.
        with suppress(StorageLocked):
            await self._space.backend.write(note, wait_s=_LOCKED_S)

    async def catch_up(self) -> bool:
        """Embed and read everything that was stored or changed since the last time, by any process. Where the
        embedder fails, the rest is done.

        Returns:
            Whether anything was stored or changed.
        """
        space = self._space
        await space.candidates.refresh()
        changed = space.candidates.contents.changed
        if changed == self._caught_up:
            return False
        if space.dense is not None:
            try:
                await space.dense.keep_up()
            except EmbedderError as error:
                space.dense.trouble = str(error)
        while await self.read_statements(most=_READ_AT_ONCE):
            pass
        await self.copy()
        # What this changed itself is looked at once more, together with what others changed meanwhile.
        self._caught_up = changed
        return True

    async def copy(self) -> None:
        """Bring the journal up to date, if there is one."""
        if self._journal is not None:
            await self._journal.sync()

    async def run(self, dense: DenseArm | None) -> None:
        """Embed and read in the background whenever something was stored, until this is cancelled."""
        while True:
            await anyio.sleep(_IDLE_S)
            self._wake = anyio.Event()
            try:
                if dense is not None:
                    await dense.keep_up()
                await self._read_when_idle()
                await self.copy()
            except SatchelError as error:
                if dense is not None:
                    dense.trouble = str(error)
            except Exception:  # noqa: BLE001 - A background job: a defect in it must not end what the user is doing.
                _log.exception("Embedding memories in the background failed.")
            await self._wake.wait()

    async def _embed(self, most: int, progress: Callable[[int, int], None], *, with_gate: bool) -> None:
        dense, candidates = self._space.dense, self._space.candidates
        if dense is not None:
            await dense.open()
        await self._space.candidates.refresh()
        missing = min(candidates.contents.count - candidates.contents.embedded, most)
        waiting = min(candidates.contents.cues_waiting, most)
        if dense is None or not candidates.contents.count:
            return
        if missing or waiting:
            within_s = self._embed_within_s
            until_s = None if within_s is None else self._space.clock.monotonic_s() + within_s
            await dense.fill(
                Fill(
                    limit=max(missing, waiting),
                    progress=lambda done: progress(done, missing),
                    wait_s=_LOCKED_S,
                    until_s=until_s,
                )
            )
            await self._space.candidates.refresh()
        if with_gate:
            await dense.gate()

    async def _read_when_idle(self) -> None:
        """Read what was not, a little at a time, and not while somebody searches or stores."""
        while True:
            if not await self.read_statements(most=_READ_AT_ONCE):
                return
            await anyio.sleep(max(0.0, self._busy_at + _IDLE_S - anyio.current_time()))


def _read_all(
    batch: Sequence[statement_rows.Unread], locale: str
) -> list[tuple[statement_rows.Unread, tuple[Statement, ...]]]:
    return [
        (
            one,
            read_statements(one.content, one.said_at, is_own=one.is_own, locale=locale)
            if one.time is None
            else timed_statements(one.content, one.time),
        )
        for one in batch
    ]
