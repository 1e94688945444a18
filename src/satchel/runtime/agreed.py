"""What the user agrees to for good at one machine holds at all that share the home's database on a server.

That database has one signed text (decision 128). Each machine has a copy in its home, and takes a later one from the
server before it decides about a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Final

import anyio
import anyio.to_thread
from sqlalchemy import Connection

from satchel.config import Settings
from satchel.config.agreed import Agreement, read_agreement, write_agreement
from satchel.errors import ConfigError, StorageError, StorageUnreachable
from satchel.memory.text.hashing import KEY_FILE, WordHasher
from satchel.storage import Database, is_server
from satchel.tools.pins import ApprovedElsewhere

_NAME: Final = "agreed"


async def _unchanged() -> None:
    """Nobody wants to know."""


class Agreed(ApprovedElsewhere):
    """The agreement of a home; without a server, that of this machine, which only a move from a server left.

    Attributes:
        on_change: Called when it is another one than before, and again if it raised an error or was cancelled.
    """

    def __init__(self, settings: Settings, server: Database | None) -> None:
        """`server` is the home's database on one, None if it can't be used."""
        self._location = settings.database_location
        self._folder = settings.home
        self._hasher = WordHasher(settings.home / KEY_FILE)
        self._server = server
        # Another process may have written a later one since the settings were read.
        self._known = replace(read_agreement(self._folder), number=settings.agreed)
        self._changing = anyio.Lock()
        self.on_change: Callable[[], Awaitable[None]] = _unchanged

    @property
    def is_shared(self) -> bool:
        """Whether rules belong here, and not in the settings file of this machine."""
        return is_server(self._location)

    @property
    def known(self) -> Agreement:
        """What it was when this process last looked."""
        return self._known

    def has(self, tool: str) -> bool:
        """See `ApprovedElsewhere.has`."""
        return tool in self._known.tools

    async def add(self, tools: Collection[str]) -> None:
        """See `ApprovedElsewhere.add`. Errors as in `change`."""
        if self.is_shared:
            await self.change(lambda known: replace(known, tools=known.tools | frozenset(tools)))

    async def look(self) -> None:
        """Take what another machine, or another process, has changed. What was known holds if that can't be read."""
        if self._server is None:
            return
        with suppress(StorageError, ConfigError):
            theirs = self._proven(await self._server.read(_stored))
            if theirs != self._known:
                if self._newest(theirs) == theirs:
                    await self._take(theirs)
                else:  # the server was restored from an older copy, is a new one, or was tampered with
                    await self.change(lambda known: known)

    async def change(self, edit: Callable[[Agreement], Agreement]) -> None:
        """Change what is there now, alone among all machines.

        Raises:
            StorageUnreachable: The server can't be used; nothing changed.
            StorageError, ConfigError: It could not be stored.
        """

        def changed(theirs: Agreement) -> Agreement:
            now = self._newest(theirs)
            after = edit(now)
            return replace(after, number=now.number + 1) if after != now else now

        def write(connection: Connection) -> Agreement:
            from satchel.storage.postgresql import set_state  # noqa: PLC0415 - the driver takes 0.3 s of CPU

            after = changed(self._proven(_stored(connection)))
            set_state(connection, _NAME, self._hasher.signed(after.text, of=_NAME))
            return after

        if self._server is not None:
            await self._take(await self._server.write(write, durable=True))
        elif self.is_shared:
            raise StorageUnreachable("The database server of this home is not in use now.")
        else:
            await self._take(changed(Agreement()))

    async def _take(self, now: Agreement) -> None:
        async with self._changing:
            if now == self._known or now.number < self._known.number:
                return  # of a look that began earlier
            await anyio.to_thread.run_sync(write_agreement, self._folder, now)
            before, self._known = self._known, now
            try:
                await self.on_change()
            except BaseException:  # also where whoever looked was cancelled
                self._known = before
                raise

    def _proven(self, signed: str) -> Agreement:
        """What the server has; as if it had nothing, if no home with this one's key has written that."""
        text = self._hasher.proven(signed, of=_NAME)
        return Agreement.of_text(text, "The agreement on the server") if text else Agreement()

    def _newest(self, theirs: Agreement) -> Agreement:
        # Two have one number where the server lost one: then the same one wins at each machine.
        return max(theirs, read_agreement(self._folder), key=lambda one: (one.number, one.text))


def _stored(connection: Connection) -> str:
    from satchel.storage.postgresql import state_of  # noqa: PLC0415 - as above

    return str(state_of(connection, _NAME) or "")
