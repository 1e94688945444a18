"""The browsers that are logged in, where several servers share a database on a server: each of them knows all."""

from __future__ import annotations

import hmac
import secrets
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, Text, bindparam, delete, select
from sqlalchemy.dialects.postgresql import insert

from satchel.clock import Clock
from satchel.runtime.browsers import (
    CODE_LASTS_S,
    LOGIN_LASTS,
    MOST_BROWSERS,
    MOST_CODES,
    SECRET_BYTES,
    Browsers,
)
from satchel.storage import Database, Prepared

rows = MetaData()
"""Tables that only a server has."""

browser_logins = Table(
    "browser_logins",
    rows,
    # Of what a browser sends, or of a code, with a key of the home.
    Column("digest", Text, primary_key=True),
    # "browser", or "code" for one that logs one in.
    Column("kind", Text, nullable=False),
    # The digest of the token with which it logged in.
    Column("token", Text, nullable=False),
    # Milliseconds since 1970.
    Column("until", BigInteger, nullable=False),
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST: Final = {"browser": MOST_BROWSERS, "code": MOST_CODES}
_KNOWN: Final = Prepared(
    select(browser_logins.c.until).where(
        browser_logins.c.digest == bindparam("digest"),
        browser_logins.c.kind == "browser",
        browser_logins.c.token == bindparam("token"),
    )
)


class SharedBrowsers(Browsers):
    """Browsers in the database. All methods but `known` block, and raise `StorageError` if it can't be used."""

    def __init__(self, home: Path, database: Database, *, token: str, key: bytes, clock: Clock) -> None:
        """`database` is on a server; `key` is what its servers have, and it has not."""
        super().__init__(home, token=token, clock=clock)
        self._database = database
        self._key = key

    def make_code(self) -> str:
        """See `Browsers.make_code`. Any of the servers takes it."""
        code = secrets.token_urlsafe(SECRET_BYTES)
        self._keep(code, "code", timedelta(seconds=CODE_LASTS_S))
        return code

    def use_code(self, code: str) -> bool:
        """See `Browsers.use_code`: once at all servers together."""
        own = browser_logins.c.digest == self._digest(code), browser_logins.c.kind == "code"
        gone = delete(browser_logins).where(*own, browser_logins.c.until > self._now_ms())
        return self._database.write_blocking(lambda connection: bool(connection.execute(gone).rowcount))

    def keep(self, value: str) -> None:
        """See `Browsers.keep`."""
        self._keep(value, "browser", LOGIN_LASTS)

    async def known(self, value: str) -> bool:
        """See `Browsers.known`: one short read, so that who logs out is logged out at every server."""
        named = {"digest": self._digest(value), "token": self._token}
        found = await self._database.read(lambda connection: _KNOWN.run(connection, named))
        return bool(found) and int(found[0][0]) > self._now_ms()

    def log_out(self, value: str) -> None:
        """See `Browsers.log_out`."""
        self._delete(browser_logins.c.digest == self._digest(value))

    def log_out_all(self) -> None:
        """See `Browsers.log_out_all`."""
        self._delete(browser_logins.c.kind == "browser")

    def _digest(self, text: str) -> str:
        # With a key: whoever can write to the database can add a row, and must not be able to log in by it.
        return hmac.new(self._key, text.encode("utf-8", "surrogateescape"), sha256).hexdigest()

    def _delete(self, which: object) -> None:
        gone = delete(browser_logins).where(which)  # type: ignore[arg-type]
        self._database.write_blocking(lambda connection: connection.execute(gone))

    def _keep(self, value: str, kind: str, lasts: timedelta) -> None:
        now = self._now_ms()
        row = {"digest": self._digest(value), "kind": kind, "token": self._token, "until": now + lasts // _MS}

        def write(connection: Connection) -> None:
            table = browser_logins
            new = insert(table).values(row)
            connection.execute(new.on_conflict_do_update(index_elements=["digest"], set_=row))
            own = table.c.kind == kind, table.c.token == self._token
            newest = select(table.c.digest).where(*own).order_by(table.c.until.desc()).limit(_MOST[kind])
            connection.execute(delete(table).where(*own, table.c.digest.not_in(newest)))
            connection.execute(delete(table).where(table.c.until <= now))

        self._database.write_blocking(write)

    def _now_ms(self) -> int:
        return (self._clock.now() - _EPOCH) // _MS


_MS: Final = timedelta(milliseconds=1)
