"""Where an interface finds its sessions: in its own process, or in the server of the home."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from satchel.config import Mode, Settings
from satchel.errors import SatchelError
from satchel.events import Event
from satchel.runtime.commands import CommandContext, CommandResult, SlashCommand, completions, run_command
from satchel.runtime.recap import MOST_SAID, Exchange, ListedSession, exchange_of
from satchel.runtime.satchel import Satchel
from satchel.runtime.session import Session
from satchel.sessions.view import SessionTurn

if TYPE_CHECKING:
    from satchel.runtime.remote import RemoteHost, RemoteSession

_MOST_SESSIONS, _MOST_WAIT_S = 10, 0.3
"""More limits of earlier messages for the arrow keys: sessions, and seconds for reading them."""


SharedSession: TypeAlias = "Session | RemoteSession"
"""A session as an interface uses it, local or shared. `Session` documents the members."""
Host: TypeAlias = "LocalHost | RemoteHost"
"""Opens sessions for an interface, and does what needs more than one session. `LocalHost` documents the members."""


class LocalHost:
    """Sessions of this process.

    Attributes:
        url: The address of the server; "" in this process.
    """

    url = ""

    def __init__(self, satchel: Satchel) -> None:
        """`satchel` is opened and closed by the caller."""
        self._satchel = satchel

    @property
    def settings(self) -> Settings:
        """Those of the home, which is on this machine in any case."""
        return self._satchel.settings

    async def session(
        self,
        session_id: str | None = None,
        *,
        last: bool = False,
        model: str | None = None,
        mode: Mode | None = None,
        private: bool = False,
        project: str = "",
        interactive: bool = False,
        like: SharedSession | None = None,
    ) -> Session:
        """Begin a session, or continue one.

        Args:
            session_id: The id, or the beginning of it.
            last: Continue the newest one of the working directory, if there is one.
            model: The model that answers, as "provider:model"; None keeps it.
            mode: How calls that no rule covers are decided; None keeps it.
            private: Nothing said in it is remembered.
            project: The project of a new session, by its id or name.
            interactive: The interface answers questions.
            like: A session whose model and mode it takes over, and its working directory if it is new.

        Raises:
            SatchelError: As `Satchel.session`.
        """
        cwd = like.cwd if like is not None and session_id is None else None
        session = await self._satchel.session(
            session_id,
            last=last,
            cwd=cwd,
            model=model,
            mode=mode,
            private=private,
            project=project,
            interactive=interactive,
        )
        if like is not None:
            before = _own(like)
            session.use_model(before.model)
            if not session.conversation.proposes_plan:
                session.mode = before.mode
        return session

    async def command(
        self,
        session: SharedSession,
        command: SlashCommand,
        rest: str,
        *,
        show: Callable[[Event], None],
        tell: Callable[[str], None],
    ) -> CommandResult:
        """Run a `/` command; see `CommandContext`."""
        context = CommandContext(satchel=self._satchel, session=_own(session), show=show, tell=tell)
        return await run_command(context, command, rest)

    async def completions(self, text: str, session: SharedSession) -> Sequence[tuple[str, str]]:
        """See `commands.completions`."""
        return await completions(text, self._satchel, _own(session))

    async def exchanges(self, session: SharedSession, count: int) -> Sequence[Exchange]:
        """The last exchanges of a session, the oldest first."""
        return await last_exchanges(self._satchel, session.id, count)

    async def sessions(self) -> Sequence[ListedSession]:
        """The sessions, the most recent first."""
        return [
            ListedSession(
                id=info.id,
                title=info.title,
                last_at=info.last_at,
                turns=info.turns,
                cwd=info.cwd,
                branches=info.branches,
            )
            for info in await self._satchel.sessions.listed()
        ]

    def said_before(self) -> AsyncIterator[str]:
        """The user's messages in earlier sessions, the newest first, for the arrow keys."""
        return said_before(self._satchel)


def _own(session: SharedSession) -> Session:
    # Interfaces pass back only sessions that this host opened.
    assert isinstance(session, Session)
    return session


async def last_exchanges(satchel: Satchel, session_id: str, count: int) -> Sequence[Exchange]:
    """The last exchanges of a session, the oldest first.

    Raises:
        NotFound: There is no such session.
        StorageError: Its log can't be read.
    """
    turns: deque[SessionTurn] = deque(maxlen=count)
    await satchel.sessions.read_turns(session_id, turns.append)
    return [exchange_of(turn) for turn in turns if turn.start is not None]


async def said_before(satchel: Satchel) -> AsyncIterator[str]:
    """The user's messages in earlier sessions, the newest first: at most `MOST_SAID`."""
    began_s = satchel.clock.monotonic_s()
    seen: set[str] = set()
    for info in (await satchel.sessions.list())[:_MOST_SESSIONS]:
        if satchel.clock.monotonic_s() - began_s > _MOST_WAIT_S:
            return
        turns: list[SessionTurn] = []
        try:
            await satchel.sessions.read_turns(info.id, turns.append)
        except SatchelError:
            continue  # a log that can't be read is reported when it is opened
        for turn in reversed(turns):
            if turn.start is not None and turn.said not in seen:
                seen.add(turn.said)
                yield turn.said
                if len(seen) == MOST_SAID:
                    return
