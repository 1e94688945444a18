"""Where an interface finds its sessions: in its own process, or in the server of the home."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from satchel.config import Mode, Settings
from satchel.errors import SatchelError
from satchel.events import AskUser, BuildPosted, Consent, Event, MessageWaiting, QuestionAsked
from satchel.messages import FileBlock, Usage
from satchel.runtime.broadcast import Subscription
from satchel.runtime.build_news import BuildNews
from satchel.runtime.commands import CommandContext, CommandResult, SlashCommand, completions, run_command
from satchel.runtime.recap import Exchange, exchange_of
from satchel.runtime.satchel import Satchel
from satchel.runtime.session import Session
from satchel.runtime.turns import RunningTurn
from satchel.sessions.view import SessionTurn

__all__ = [
    "MOST_SAID",
    "Host",
    "ListedSession",
    "LocalHost",
    "SharedSession",
    "last_exchanges",
    "said_before",
]

_MOST_SESSIONS, MOST_SAID, _MOST_WAIT_S = 10, 200, 0.3
"""The limits of earlier messages for the arrow keys: sessions, messages, and seconds for reading them."""


class SharedSession(Protocol):
    """A session as an interface uses it, local or shared. `Session` documents the members."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def follows(self) -> bool:
        """Whether the client sees a turn that begins by itself."""
        ...

    @property
    def private(self) -> bool:
        """Whether nothing said in it is remembered."""
        ...

    @property
    def model_name(self) -> str:
        """The model that answers."""
        ...

    @property
    def mode(self) -> Mode:
        """How calls that no rule covers are decided."""
        ...

    @property
    def turns(self) -> int:
        """The number of its turns."""
        ...

    @property
    def usage(self) -> Usage:
        """Its tokens and cost."""
        ...

    @property
    def last_seq(self) -> int:
        """The number of the newest event."""
        ...

    @property
    def running(self) -> RunningTurn | None:
        """The turn that runs."""
        ...

    @property
    def is_interrupted(self) -> bool:
        """Whether its last turn was interrupted."""
        ...

    @property
    def pending_question(self) -> AskUser | None:
        """The question that the next message answers."""
        ...

    @property
    def open_questions(self) -> tuple[QuestionAsked | AskUser, ...]:
        """The questions that wait for an answer."""
        ...

    @property
    def build_questions(self) -> tuple[BuildPosted, ...]:
        """The open questions of builds."""
        ...

    @property
    def build_news(self) -> BuildNews:
        """What is known of the builds that it asked for."""
        ...

    @property
    def waiting(self) -> tuple[MessageWaiting, ...]:
        """The messages that wait for their turns."""
        ...

    @property
    def cwd(self) -> Path:
        """Its working directory."""
        ...

    @property
    def turns_go_on(self) -> bool:
        """Whether a turn continues after this interface leaves, because the session stays open."""
        ...

    async def catch_up(self) -> None: ...  # noqa: D102
    def subscribe(self, after_seq: int | None = None) -> Subscription: ...  # noqa: D102
    async def start(  # noqa: D102
        self, text: str = "", *, memory: bool = True, attached: str = "", files: Sequence[FileBlock] = ()
    ) -> RunningTurn: ...
    async def resume(self) -> RunningTurn: ...  # noqa: D102
    async def answer(  # noqa: D102
        self,
        id: str,
        text: str | None = None,
        *,
        consent: Consent | Mapping[str, Consent] | None = None,
        words: str = "",
        by: str = "",
    ) -> RunningTurn | None: ...
    async def aclose(self, reason: str = "closed") -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession:
    """A session in a list; `title` is the user's first message, shortened."""

    id: str
    title: str
    last_at: datetime
    turns: int


class Host(Protocol):
    """Opens sessions for an interface, and does what needs more than one session.

    Attributes:
        url: The address of the server; "" in this process.
        settings: Those of the home, which is on this machine in any case.
    """

    @property
    def url(self) -> str: ...  # noqa: D102
    @property
    def settings(self) -> Settings: ...  # noqa: D102

    async def session(
        self,
        session_id: str | None = None,
        *,
        last: bool = False,
        model: str | None = None,
        mode: Mode | None = None,
        private: bool = False,
        interactive: bool = False,
        like: SharedSession | None = None,
    ) -> SharedSession:
        """Begin a session, or continue one.

        Args:
            session_id: The id, or the beginning of it.
            last: Continue the newest one of the working directory, if there is one.
            model: The model that answers, as "provider:model"; None keeps it.
            mode: How calls that no rule covers are decided; None keeps it.
            private: Nothing said in it is remembered.
            interactive: The interface answers questions.
            like: A session whose model and mode it takes over, and its working directory if it is new.

        Raises:
            SatchelError: As `Satchel.session`.
        """
        ...

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
        ...

    async def completions(self, text: str, session: SharedSession) -> Sequence[tuple[str, str]]:
        """See `commands.completions`."""
        ...

    async def exchanges(self, session: SharedSession, count: int) -> Sequence[Exchange]:
        """The last exchanges of a session, the oldest first."""
        ...

    async def sessions(self) -> Sequence[ListedSession]:
        """The sessions, the most recent first."""
        ...

    def said_before(self) -> AsyncIterator[str]:
        """The user's messages in earlier sessions, the newest first, for the arrow keys."""
        ...


class LocalHost:
    """Sessions of this process."""

    url = ""

    def __init__(self, satchel: Satchel) -> None:
        """`satchel` is opened and closed by the caller."""
        self._satchel = satchel

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self._satchel.settings

    async def session(
        self,
        session_id: str | None = None,
        *,
        last: bool = False,
        model: str | None = None,
        mode: Mode | None = None,
        private: bool = False,
        interactive: bool = False,
        like: SharedSession | None = None,
    ) -> Session:
        """See `Host`."""
        cwd = like.cwd if like is not None and session_id is None else None
        session = await self._satchel.session(
            session_id, last=last, cwd=cwd, model=model, mode=mode, private=private, interactive=interactive
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
        """See `Host`."""
        context = CommandContext(satchel=self._satchel, session=_own(session), show=show, tell=tell)
        return await run_command(context, command, rest)

    async def completions(self, text: str, session: SharedSession) -> Sequence[tuple[str, str]]:
        """See `Host`."""
        return await completions(text, self._satchel, _own(session))

    async def exchanges(self, session: SharedSession, count: int) -> Sequence[Exchange]:
        """See `Host`."""
        return await last_exchanges(self._satchel, session.id, count)

    async def sessions(self) -> Sequence[ListedSession]:
        """See `Host`."""
        return [
            ListedSession(id=info.id, title=info.title, last_at=info.last_at, turns=info.turns)
            for info in await self._satchel.sessions.listed()
        ]

    def said_before(self) -> AsyncIterator[str]:
        """See `Host`."""
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
