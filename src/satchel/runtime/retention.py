"""How long conversations are kept: old logs are compressed, and deleted if the user has set that."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import anyio

from satchel.errors import SatchelError
from satchel.events import Notice
from satchel.runtime.home import Home
from satchel.runtime.lines import counted
from satchel.sessions import SessionInfo
from satchel.sessions.branches import by_age, grouped

_log = logging.getLogger(__name__)

_FIRST_S: Final = 60.0
"""After the opening: a short conversation has ended by then."""
_AGAIN_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What was done: how many logs were compressed, and the ids of the conversations that were deleted."""

    compressed: int = 0
    deleted: tuple[str, ...] = ()


async def keep_retention(home: Home, *, began: anyio.Event) -> None:
    """Do `retain` every day, the first time a minute from now, or when a session has been opened: `began` is set then
    in a process that may end sooner and leaves nothing to another one. What the user goes on with is open by that time.
    """
    with anyio.move_on_after(_FIRST_S):
        await began.wait()
    while True:
        await retain(home)
        await anyio.sleep(_AGAIN_S)


async def retain(home: Home) -> Retained:
    """Delete and compress the logs of conversations that have had no message for as long as `[sessions]` says.

    A conversation is deleted when all its branches are old; the days of an imported one begin with its import. One that
    somebody has open is left alone, and so is one with turns that memory lacks. What is deleted is said in a notice.

    Raises:
        StorageError: The list of sessions can't be read.
    """
    settings, now = home.settings.sessions, home.clock.now()
    infos = await home.sessions.list()
    deleted: list[str] = []
    if settings.delete_after_days:
        before = now - timedelta(days=settings.delete_after_days)
        unsettled = {file.session_id for file in await home.sessions.unsettled()}
        for branches in grouped(infos).values():
            if all([info.id not in unsettled and await _is_due(home, info, before) for info in branches]):
                for info in reversed(by_age(branches)):
                    try:
                        deleted.append(await home.sessions.delete(info.id, by_user=False))
                    except SatchelError as error:
                        _log.info("Session %s was not deleted: %s", info.id, error)
                        break  # what the others repeat of it is found in it alone
    if deleted:
        _log.info(
            "Deleted after %d days without a message: %s", settings.delete_after_days, ", ".join(deleted)
        )
        gone = len(grouped(info for info in infos if info.id in deleted))
        home.notices.post(
            Notice(
                part="sessions",
                text=f"{counted(gone, 'conversation')} without a message for {settings.delete_after_days} days "
                f"{'was' if gone == 1 else 'were'} deleted (sessions.delete_after_days); "
                "what memory has of them stays.",
            )
        )
    compressed = 0
    if settings.compress_after_days:
        before = now - timedelta(days=settings.compress_after_days)
        for info in infos:
            if info.last_at < before and info.id not in deleted:
                try:
                    compressed += await home.sessions.compress(info)
                except SatchelError as error:
                    _log.info("Session %s was not compressed: %s", info.id, error)
    return Retained(compressed=compressed, deleted=tuple(deleted))


async def _is_due(home: Home, info: SessionInfo, before: datetime) -> bool:
    """Whether it had its last message before then and, if it was imported, was written here before then. On a server
    nothing says when that was, so an imported one is never old there.
    """
    if info.last_at >= before or not info.source:
        return info.last_at < before
    file = await home.sessions.state(info)
    return file is not None and 0 < file.mtime_ns < before.timestamp() * 1e9
