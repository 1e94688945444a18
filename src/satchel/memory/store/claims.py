"""Claims on work, as rows of a table: which process is doing which piece of it now."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from sqlalchemy import Connection, bindparam, delete, insert, select, update

from satchel.errors import StorageError
from satchel.memory.store.micros import to_micros
from satchel.memory.store.repository import among, listed
from satchel.memory.store.tables import claims
from satchel.processes import has_ended, is_of_earlier_start, machine_name
from satchel.storage import Database, Prepared
from satchel.tasks import background_tasks

if TYPE_CHECKING:
    from satchel.clock import Clock

T = TypeVar("T")

_LEASE_MICROS: Final = 60_000_000
"""How long a claim holds that nobody renews. It matters for processes in other containers; one that died here is
recognised at once."""
_RENEWED_EVERY_S: Final = 15.0


class Claims:
    """Takes pieces of work, such as memories to embed, so that no two processes do the same piece at the same time.

    What there is to do is a query over the store; a claim only says who is doing it now. It holds while its process
    lives and renews it, so that the work of a dead process is taken by another.
    """

    def __init__(self, backend: Database, clock: Clock) -> None:
        """Take where the claims are kept; the clock tells when one ends."""
        self._backend = backend
        self._clock = clock
        self._owner = f"{machine_name()} {os.getpid()} {secrets.token_hex(8)}"

    @asynccontextmanager
    async def take(
        self,
        work: str,
        find: Callable[[Connection, Collection[str]], Sequence[T]],
        *,
        name: Callable[[T], str],
        wait_s: float | None = None,
    ) -> AsyncIterator[Sequence[T]]:
        """Take pieces of work for the time of an `async with` block; none if there is nothing left to take.

        `find` returns pieces that are to be done, given the names of those that somebody is doing. `name` names a
        piece; it is stored, and must not contain anything that was said.
        """
        pieces = await self._claim(work, find, name, wait_s)
        if not pieces:
            yield ()
            return
        names = [name(piece) for piece in pieces]
        try:
            async with background_tasks() as group:
                group.start_soon(self._keep, work, names)
                yield pieces
        finally:
            # A claim that can't be released ends with its lease.
            with anyio.CancelScope(shield=True), suppress(StorageError):
                release = partial(_release, work=work, names=names, owner=self._owner)
                await self._backend.write(release, wait_s=wait_s)

    async def is_held(self, work: str) -> bool:
        """Whether somebody is doing a piece of this work now."""
        return bool(await self._backend.read(lambda connection: self._held(connection, work)))

    async def _claim(
        self,
        work: str,
        find: Callable[[Connection, Collection[str]], Sequence[T]],
        name: Callable[[T], str],
        wait_s: float | None,
    ) -> Sequence[T]:
        def claim(connection: Connection) -> Sequence[T]:
            pieces = find(connection, self._held(connection, work))
            names = [name(piece) for piece in pieces]
            _release(connection, work, names)  # Those of the dead.
            if names:
                row = {"work": work, "owner": self._owner, "until": self._lease_end()}
                _CLAIM.run_all(connection, [{**row, "piece": piece} for piece in names])
            return pieces

        # Most of the time there is nothing to do, and then nothing is written.
        if not await self._backend.read(lambda connection: find(connection, self._held(connection, work))):
            return ()
        return await self._backend.write(claim, wait_s=wait_s)

    async def _keep(self, work: str, names: Sequence[str]) -> None:
        own = update(claims).where(claims.c.work == work, claims.c.owner == self._owner)
        named = own.where(claims.c.piece.in_(among(names)))
        while True:
            await anyio.sleep(_RENEWED_EVERY_S)
            renewed = named.values(until=self._lease_end())
            with suppress(StorageError):
                await self._backend.write(partial(Connection.execute, statement=renewed))

    def _held(self, connection: Connection, work: str) -> frozenset[str]:
        now = self._micros()
        # A lease that ends later than any lease can was given before the clock was set back.
        latest = now + 2 * _LEASE_MICROS
        rows = _HELD.run(connection, {"work": work, "now": now, "latest": latest})
        dead = {owner for owner in {owner for _, owner in rows} if self._is_dead(owner)}
        return frozenset(piece for piece, owner in rows if owner not in dead)

    def _is_dead(self, owner: str) -> bool:
        """Whether a process is known to have ended. Those elsewhere are never known to; a file has none of these, as it
        is on no network file system.
        """
        place, pid, _ = owner.rsplit(" ", 2)
        if place == machine_name():
            return has_ended(int(pid))
        return not self._backend.is_on_server and is_of_earlier_start(place)

    def _lease_end(self) -> int:
        return self._micros() + _LEASE_MICROS

    def _micros(self) -> int:
        return to_micros(self._clock.now())


_HELD = Prepared(
    select(claims.c.piece, claims.c.owner).where(
        claims.c.work == bindparam("work"),
        claims.c.until > bindparam("now"),
        claims.c.until <= bindparam("latest"),
    )
)
_CLAIM = Prepared(insert(claims), columns=[column.name for column in claims.c])
_OF_PIECES = delete(claims).where(
    claims.c.work == bindparam("work"), claims.c.piece.in_(listed(bindparam("pieces")))
)
_RELEASE = Prepared(_OF_PIECES)
_RELEASE_OWN = Prepared(_OF_PIECES.where(claims.c.owner == bindparam("owner")))


def _release(connection: Connection, work: str, names: Sequence[str], *, owner: str | None = None) -> None:
    release = _RELEASE if owner is None else _RELEASE_OWN
    release.run(connection, {"work": work, "pieces": json.dumps(list(names)), "owner": owner})
