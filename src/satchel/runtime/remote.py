"""Sessions in the server of this home, for an interface in another process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, assert_never

import anyio
from anyio.abc import TaskGroup

from satchel import events as kinds
from satchel.clock import Clock
from satchel.config import Mode, Settings
from satchel.errors import NotFound, SatchelError, ServerUnavailable, UsageError
from satchel.events import (
    AskUser,
    Assistant,
    BuildPosted,
    Compaction,
    Consent,
    Event,
    MessageTakenBack,
    MessageWaiting,
    ModelCalled,
    Notice,
    Observation,
    QuestionAnswered,
    QuestionAsked,
    Record,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    TurnEnd,
    TurnResumed,
    TurnStart,
    event_from_json,
    fields_from_json,
    is_transient,
    record_from_json,
)
from satchel.events import (
    Final as FinalEvent,
)
from satchel.messages import FileBlock, Usage, block_to_json
from satchel.runtime.broadcast import Broadcast, Subscription
from satchel.runtime.build_news import BuildNews
from satchel.runtime.commands import CommandResult, SlashCommand, result_from_json
from satchel.runtime.recap import MOST_SAID, Exchange, ListedSession
from satchel.runtime.server_api import ServerApi, error_of, http_client
from satchel.runtime.serving import Serving, serving
from satchel.runtime.session import Session
from satchel.runtime.session_state import SessionState
from satchel.runtime.turns import RunningTurn, TurnResult, result_of
from satchel.sessions.view import SessionView
from satchel.tasks import background_tasks
from satchel.version import __version__

_LOOK_S: Final = 0.5
"""How often a client checks whether a missing server is back."""
_RETURN_S: Final = 15.0
"""How long a message waits for a missing server: longer than a server takes to start."""
_CHECK_S: Final = 2.0
"""How often a running turn is compared with the server's state."""
_PART: Final = "server"
_INTERRUPTED: Final = (
    "The server was stopped during this turn. /continue resumes it; any message abandons it."
)


class RemoteHost:
    """The server of a home, for an interface. The server may be restarted meanwhile."""

    def __init__(self, found: Serving, *, settings: Settings, clock: Clock, group: TaskGroup) -> None:
        """Use `connected`."""
        self.url = found.url
        self._settings = settings
        self._clock = clock
        self._group = group
        self._stack = AsyncExitStack()
        self._found = found
        self._api: ServerApi | None = None
        self._opening = anyio.Lock()

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self._settings

    @classmethod
    @asynccontextmanager
    async def connected(
        cls, found: Serving, *, settings: Settings, clock: Clock
    ) -> AsyncIterator[RemoteHost]:
        """Use a server while the block runs. Its turns continue afterwards.

        Raises:
            ConfigError: The token or the certificate can't be used.
        """
        async with background_tasks() as group:
            host = cls(found, settings=settings, clock=clock, group=group)
            try:
                await host.api()
                yield host
            finally:
                with anyio.CancelScope(shield=True):
                    await host._stack.aclose()

    async def api(self) -> ServerApi:
        """The connection to the current server, or to the last one."""
        async with self._opening:
            if self._api is None:
                client = http_client(self._found, settings=self._settings)
                self._api = ServerApi(await self._stack.enter_async_context(client))
            return self._api

    async def look(self) -> str:
        """Check whether a usable server is running: "" if so, otherwise the reason."""
        found = serving(self._settings.home)
        if found is None:
            return "gone"
        if found.version != __version__:
            return other_version(found)
        if found != self._found:
            async with self._opening:
                await self._stack.aclose()
                self._found, self._api = found, None
                self.url = found.url
        return ""

    # A host

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
        like: Session | RemoteSession | None = None,
        cwd: Path | None = None,
    ) -> RemoteSession:
        """See `LocalHost`. A session that is open in the server already keeps its working directory. A new one begins
        in `cwd`, else in the directory of `like`, or of the settings.
        """
        if like is not None and session_id is None:
            model, mode = model or like.model_name, mode or like.mode
        wish = {
            "session_id": session_id,
            "last": last,
            "cwd": str(cwd or (like.cwd if like is not None else self._settings.cwd)),
            "model": model,
            "mode": mode,
            "private": private,
            "project": project or None,
        }
        state = await self.open(wish)
        session = RemoteSession(
            self, state, wish, is_interactive=interactive, clock=self._clock, group=self._group
        )
        self._group.start_soon(session.follow)
        await session.reached()
        return session

    async def open(self, wish: Mapping[str, Any]) -> SessionState:
        """Open a session in the server."""
        return fields_from_json(SessionState, await (await self.api()).post("/api/sessions", wish))

    async def command(
        self,
        session: Session | RemoteSession,
        command: SlashCommand,
        rest: str,
        *,
        show: Callable[[Event], None],
        tell: Callable[[str], None],
    ) -> CommandResult:
        """See `LocalHost`. The server runs it."""
        return await _own(session).command(f"/{command.name} {rest}".rstrip(), show=show, tell=tell)

    async def completions(self, text: str, session: Session | RemoteSession) -> Sequence[tuple[str, str]]:
        """See `LocalHost`; none while the server is gone."""
        with suppress(SatchelError):
            found = await (await self.api()).get(f"/api/sessions/{session.id}/completions", text=text)
            return [(each["word"], each["help"]) for each in found]
        return ()

    async def exchanges(self, session: Session | RemoteSession, count: int) -> Sequence[Exchange]:
        """See `LocalHost`."""
        found = await (await self.api()).get(f"/api/sessions/{session.id}/exchanges", limit=count)
        return [fields_from_json(Exchange, each) for each in found]

    async def sessions(self) -> Sequence[ListedSession]:
        """See `LocalHost`."""
        found = await (await self.api()).get("/api/sessions", limit=1000)
        return [fields_from_json(ListedSession, each) for each in found]

    async def said_before(self) -> AsyncIterator[str]:
        """See `LocalHost`; nothing while the server is gone."""
        with suppress(SatchelError):
            for text in await (await self.api()).get("/api/sessions/said", limit=MOST_SAID):
                yield text


def other_version(found: Serving) -> str:
    """What to tell the user about a server of another version."""
    version = f"version {found.version}" if found.version else "another version"
    return (
        f"The server at {found.url} is Satchel {version}, and this is {__version__}. Restart the server with this "
        "version to share conversations with it."
    )


def _own(session: Session | RemoteSession) -> RemoteSession:
    # Interfaces pass back only sessions that this host opened.
    assert isinstance(session, RemoteSession)
    return session


class RemoteSession:
    """One client's view of a session in the server, from `RemoteHost.session`.

    It follows the session's events all the time. When the connection breaks, it looks for the server, continues after
    the last event that it has, and reports both in a `Notice`.
    """

    turns_go_on = True

    def __init__(
        self,
        host: RemoteHost,
        state: SessionState,
        wish: Mapping[str, Any],
        *,
        is_interactive: bool,
        clock: Clock,
        group: TaskGroup,
    ) -> None:
        """Use `RemoteHost.session`. `wish` opens the session again if the server ends before anything was said."""
        self._host = host
        self._wish = wish
        self._is_interactive = is_interactive
        self._clock = clock
        self._group = group
        self._state = state
        self._turns = state.turns
        self._usage = state.usage
        self._counted_seq = state.last_seq
        """The usage is that of the events up to here."""
        self._question = state.question
        self._questions = {asked.id: asked for asked in state.questions}
        self._builds = BuildNews()
        self._running: RunningTurn | None = None
        self._ended: RunningTurn | None = None
        self._view = SessionView()
        self._line: dict[str, MessageWaiting] = {}
        self._in_line: dict[str, RunningTurn] = {}
        self._broadcast = Broadcast(last_seq=state.last_seq, read=self._read)
        self._streamed = _Streamed()
        self._scope = anyio.CancelScope()
        self._is_connected = False
        self._reached = anyio.Event()
        self._take_state(state)

    @property
    def id(self) -> str:
        """See `Session`."""
        return self._state.id

    @property
    def follows(self) -> bool:
        """See `Session`."""
        return self._is_interactive

    @property
    def cwd(self) -> Path:
        """See `Session`."""
        return Path(self._state.cwd)

    @property
    def private(self) -> bool:
        """See `Session`."""
        return self._state.private

    @property
    def model_name(self) -> str:
        """See `Session`."""
        return self._state.model

    @property
    def mode(self) -> Mode:
        """See `Session`."""
        return self._state.mode

    @property
    def turns(self) -> int:
        """See `Session`."""
        return self._turns

    @property
    def usage(self) -> Usage:
        """See `Session`."""
        return self._usage

    @property
    def last_seq(self) -> int:
        """See `Session`."""
        return self._broadcast.last_seq

    @property
    def running(self) -> RunningTurn | None:
        """See `Session`."""
        return self._running

    @property
    def is_interrupted(self) -> bool:
        """See `Session`."""
        return self._running is None and self._state.is_interrupted

    @property
    def pending_question(self) -> AskUser | None:
        """See `Session`."""
        return self._question

    @property
    def open_questions(self) -> tuple[QuestionAsked | AskUser, ...]:
        """See `Session`."""
        own = self._question if self._running is None else None
        return (*self._questions.values(), *([own] if own is not None else []))

    @property
    def build_questions(self) -> tuple[BuildPosted, ...]:
        """See `Session`."""
        return tuple(self._builds.questions.values())

    @property
    def build_news(self) -> BuildNews:
        """See `Session.build_news`."""
        return self._builds

    async def catch_up(self) -> None:
        """See `Session.catch_up`. Without a connection, nothing new is known."""
        with suppress(ServerUnavailable):
            answer = await (await self._host.api()).get(f"/api/sessions/{self.id}/state")
            self._take_builds(fields_from_json(SessionState, answer))

    @property
    def waiting(self) -> tuple[MessageWaiting, ...]:
        """See `Session`."""
        return tuple(self._line.values())

    def subscribe(self, after_seq: int | None = None) -> Subscription:
        """See `Session`."""
        return self._broadcast.subscribe(after_seq)

    async def start(
        self, text: str = "", *, memory: bool = True, attached: str = "", files: Sequence[FileBlock] = ()
    ) -> RunningTurn:
        """See `Session`. A message whose acknowledgement was lost is sent again, unless it has arrived.

        Raises:
            UsageError: It can't be sent now.
            ServerUnavailable: The server is gone; the message was not sent.
        """
        number, before = self._turns + 1, set(self._line)
        body = {
            "text": text,
            "memory": memory,
            "turn": number,
            "interactive": self._is_interactive,
            "attached": attached,
            "files": [block_to_json(file) for file in files],
        }
        while True:
            try:
                begun = await self._post("turns", body)
            except ServerUnavailable:
                await self._returned("The message was not sent.")
                for id, message in self._line.items():
                    if id not in before and message.text == text:
                        return self._of_line(id)
                if self._turns < number:
                    continue
                await self._check_mine(number, text)
                return await self._begun(number)
            if begun["waiting"]:
                return self._of_line(begun["waiting"])
            return await self._begun(begun["turn"])

    def _of_line(self, id: str) -> RunningTurn:
        """The turn of a message that waits. Its events may come before the answer to the request."""
        running = self._in_line.get(id)
        if running is None:
            running = self._in_line[id] = RunningTurn(0, self._broadcast, waited=id)
            running.stop_with(lambda: self._begin_taking_back(id))
        return running

    def _begin_taking_back(self, id: str) -> None:
        self._group.start_soon(self._take_back, id)

    async def _take_back(self, id: str) -> None:
        with suppress(SatchelError):
            await self.command(f"/back {id}", show=lambda _: None, tell=lambda _: None)

    async def _check_mine(self, number: int, text: str) -> None:
        """Check that turn `number`, which has begun, is the one whose acknowledgement was lost."""
        exchanges = await self._host.exchanges(self, 1)
        if not exchanges or exchanges[-1].turn != number or exchanges[-1].said.strip() != text.strip():
            raise UsageError(
                "The connection broke while your message was sent, and another one came in between. Check whether it "
                "has arrived, and send it again if not."
            )

    async def resume(self) -> RunningTurn:
        """See `Session`. Errors as in `start`."""
        return await self._begun((await self._post("resume", {}))["turn"])

    async def answer(
        self,
        id: str,
        text: str | None = None,
        *,
        consent: Consent | Mapping[str, Consent] | None = None,
        words: str = "",
        by: str = "",
    ) -> RunningTurn | None:
        """See `Session`. An answer whose acknowledgement was lost is sent again; the first one is used."""
        body = {
            "id": id,
            "text": text,
            "consent": dict(consent) if isinstance(consent, Mapping) else consent,
            "words": words,
            "by": by,
        }
        try:
            answered = await self._post("answer", body)
        except ServerUnavailable:
            await self._returned("The answer was not sent.")
            if id not in self._questions and id not in self._builds.questions:
                return self._running  # this answer has arrived, or another client's
            answered = await self._post("answer", body)
        return await self._begun(answered["turn"]) if answered["turn"] is not None else None

    async def command(
        self,
        text: str,
        *,
        show: Callable[[Event], None],
        tell: Callable[[str], None],
        confirmed: bool = False,
    ) -> CommandResult:
        """Run a `/` command in the server. Leaving interrupts it.

        Raises:
            SatchelError: It can't be done.
            ServerUnavailable: The server is gone; whether it was done is unknown.
        """

        async def proceed() -> CommandResult:
            return await self.command(text, show=show, tell=tell, confirmed=True)

        api = await self._host.api()
        body = {"text": text, "confirmed": confirmed}
        async with api.stream("POST", f"/api/sessions/{self.id}/command", body=body) as events:
            async for name, data in events:
                match name:
                    case "tell":
                        tell(data["text"])
                    case "event":
                        show(event_from_json(data))
                    case "error":
                        raise error_of(data)
                    case "result":
                        result = result_from_json(data, proceed=proceed)
                        await self._refresh()
                        # Its events were shown already.
                        await self._has(self._state.last_seq)
                        return result
                    case _:
                        pass
        raise ServerUnavailable(
            "The server was stopped while it ran this command. Check whether it took effect."
        )

    async def aclose(self, reason: str = "closed") -> None:
        """See `Session`. A running turn continues."""
        del reason  # the server logs it when the last client has left
        self._scope.cancel()
        self._broadcast.close()

    @property
    def folder(self) -> str:
        """The folder whose files the server uses, or ""; see `SessionState`."""
        return self._state.folder

    @property
    def project(self) -> str:
        """See `Session`."""
        return self._state.project

    # Following

    async def reached(self) -> None:
        """Wait until the events come.

        Raises:
            ServerUnavailable: They don't.
        """
        with anyio.move_on_after(_RETURN_S):
            await self._reached.wait()
            return
        raise ServerUnavailable(
            f"The server at {self._host.url} doesn't send the events of session {self.id}."
        )

    async def follow(self) -> None:
        """Follow the session until `aclose`, across restarts of the server."""
        with self._scope:
            while True:
                try:
                    await self._follow_once()
                except NotFound as error:
                    if self._turns:
                        self._tell(f"{error} Another client has deleted it.")
                        self._end(error)
                        return
                    await self._begin_again()
                    await anyio.sleep(_LOOK_S)
                    continue
                except SatchelError as error:
                    self._lose(error)
                else:
                    self._lose(ServerUnavailable("The server has ended the connection."))
                await self._wait_for_server()

    async def _follow_once(self) -> None:
        api = await self._host.api()
        self._streamed.rewind()
        async with api.stream(
            "GET",
            f"/api/sessions/{self.id}/events",
            after=self.last_seq,
            interactive="true" if self._is_interactive else "false",
        ) as events:
            await self._refresh()
            if self._reached.is_set() and not self._is_connected:
                self._tell("The server is back.")
            self._is_connected = True
            self._reached.set()
            async for _, data in events:
                self._take(record_from_json(data))

    def _lose(self, error: SatchelError) -> None:
        if self._is_connected:
            self._is_connected = False
            self._tell(f"{error} Waiting until it is back.")

    async def _wait_for_server(self) -> None:
        told = ""
        while True:
            await anyio.sleep(_LOOK_S)
            why = await self._host.look()
            if not why:
                return
            if why not in ("gone", told):
                told = why
                self._tell(why)

    async def _begin_again(self) -> None:
        """Open another session: the server stopped before the first message, so this one left no log."""
        with suppress(SatchelError):
            state = await self._host.open(self._wish)
            self._broadcast.forget()
            self._broadcast.last_seq = self._counted_seq = state.last_seq
            self._take_state(state)

    def _end(self, error: SatchelError) -> None:
        if self._running is not None:
            self._running.finish(error)
            self._running = None
        for waiting in self._in_line.values():
            if waiting.waits:
                waiting.finish(error)
        self._broadcast.close()

    def _tell(self, text: str) -> None:
        """Show a line that is not part of the session."""
        notice = Notice(part=_PART, text=text)
        self._broadcast.publish_transient(notice, at=self._clock.now(), is_kept=False)

    async def _read(self, after_seq: int, limit: int) -> Sequence[Record]:
        """Records that are not kept here; it waits for a server that stops meanwhile."""
        path, asked = f"/api/sessions/{self.id}", {"after": after_seq, "limit": limit}
        try:
            shown = await (await self._host.api()).get(path, **asked)
        except ServerUnavailable:
            await self._returned("The events before are missing.")
            shown = await (await self._host.api()).get(path, **asked)
        return [record_from_json(value) for value in shown["events"]]

    async def _refresh(self) -> None:
        """Get the session's state."""
        before = self._running
        answer = await (await self._host.api()).get(f"/api/sessions/{self.id}/state")
        self._take_state(fields_from_json(SessionState, answer), before)

    def _take_state(self, state: SessionState, before: RunningTurn | None = None) -> None:
        """Take over the session's state; `before` is the turn that was running when it was requested."""
        self._state = state
        if state.last_seq >= self._counted_seq:
            self._usage, self._counted_seq = state.usage, state.last_seq
        self._question = state.question
        self._questions = {asked.id: asked for asked in state.questions}
        self._line = {message.id: message for message in state.waiting}
        self._take_builds(state)
        if state.running is not None:
            self._turn(state.running.turn, state.running.waited).after_seq = min(
                state.running.after_seq, self.last_seq
            )
        elif before is not None and before is self._running and self.last_seq >= state.last_seq:
            # The server no longer has this turn, and no event of it will follow.
            self._abandon(before, state)
        self._turns = max(self._turns, state.turns)

    async def _look_at_mode(self) -> None:
        """Get the mode, which a plan that is proposed or approved may have changed."""
        with suppress(SatchelError):
            answer = await (await self._host.api()).get(f"/api/sessions/{self.id}/state")
            self._state = replace(self._state, mode=fields_from_json(SessionState, answer).mode)

    def _take_builds(self, state: SessionState) -> None:
        self._builds = BuildNews()
        for asked in state.builds:
            self._builds.take(asked)
        self._builds.fresh = set(state.fresh)
        self._builds.settled = list(state.settled)
        self._builds.went_on = state.went_on
        self._builds.under_way = set(state.under_way)

    def _abandon(self, running: RunningTurn, state: SessionState) -> None:
        if state.failed_turn == running.number:
            self._finish(SatchelError(state.failure))
        elif state.turns < running.number:
            self._finish(TurnResult(session_id=self.id, turn=running.number, status="cancelled", text=""))
        else:
            self._finish(SatchelError(_INTERRUPTED))

    def _take(self, record: Record) -> None:
        """Take the next event from the server: update the state, and pass the event on."""
        event = record.event
        if is_transient(event) or record.seq == self.last_seq:
            fresh = self._streamed.fresh(event)
            if fresh is not None:
                self._broadcast.publish_transient(fresh, at=record.at)
            return
        self._streamed.logged(event)
        match event:
            case TurnStart(turn=turn, inbox=inbox):
                self._question = None
                self._builds.begin_turn(event.message.text)
                waited = next((id for id in inbox if id in self._line), "")
                self._line.pop(waited, None)
                self._turn(turn, waited)
            case TurnResumed(turn=turn):
                self._turn(turn)
            case QuestionAsked(id=id):
                self._questions[id] = event
            case QuestionAnswered(id=id):
                self._questions.pop(id, None)
            case AskUser():
                self._question = event
                self._group.start_soon(self._look_at_mode)
            case Observation(round=0):
                self._group.start_soon(self._look_at_mode)
            case FinalEvent() if self._running is not None:
                self._running.said_all()
            case BuildPosted():
                self._builds.take(event)
            case MessageWaiting():
                self._line[event.id] = event
            case MessageTakenBack(id=id):
                self._line.pop(id, None)
                self._of_line(id).finish(TurnResult(session_id=self.id, turn=0, status="cancelled", text=""))
            case Assistant() | Compaction() | ModelCalled() if record.seq > self._counted_seq:
                # As the server counts. A state that was asked for in the middle of a turn has some of the turn's.
                self._usage, self._counted_seq = self._usage + event.usage, record.seq
            case (
                Observation() | FinalEvent() | Assistant() | Compaction() | ModelCalled() | kinds.SessionStart()
                | kinds.ContextAdded() | kinds.MemorySurfaced() | kinds.MemoryCaptured() | kinds.Permission()
                | kinds.Action() | kinds.RoundObserved() | kinds.SubAgentEvent() | kinds.Posted() | Notice()
                | kinds.Failure() | TurnEnd() | kinds.SessionTitled() | kinds.SessionFiled()
                | kinds.SessionBranched() | kinds.SessionEnd() | kinds.Transient()
            ):  # fmt: skip
                pass
            case _:
                assert_never(event)
        self._broadcast.publish(record)
        self._view(record)
        if isinstance(event, TurnEnd) and self._running is not None:
            self._finish(result_of(self.id, self._view.turn))

    async def _begun(self, number: int) -> RunningTurn:
        """The turn that a request started. All its events may have come before the answer to the request, or the end of
        the turn before it may still be on its way.
        """
        while (running := self._running) is not None and running.number < number:
            await running.ended()
        ended = self._ended
        return ended if ended is not None and ended.number == number else self._turn(number)

    def _turn(self, number: int, waited: str = "") -> RunningTurn:
        """The running turn, which has this number; `waited` is the id that its message had in line."""
        self._turns = max(self._turns, number)
        running = self._running
        if running is None or running.number != number:
            running = self._of_line(waited) if waited else RunningTurn(number, self._broadcast)
            self._running = running
            running.begin(number)
            running.stop_with(lambda: self._stop(running))
            self._group.start_soon(self._watch, running)
        return running

    def _finish(self, outcome: TurnResult | Exception) -> None:
        running, self._running = self._running, None
        self._questions = {}
        if running is not None:
            self._ended = running
            running.finish(outcome)

    async def _watch(self, running: RunningTurn) -> None:
        """Detect a turn that ends without an event, because it could not be logged or was stopped before it began."""
        while not running.is_over:
            with anyio.move_on_after(_CHECK_S) as waiting:
                await running.ended()
            if waiting.cancelled_caught and self._is_connected:
                with suppress(SatchelError):
                    await self._refresh()

    def _stop(self, running: RunningTurn) -> None:
        self._group.start_soon(self._cancel, running)

    async def _cancel(self, running: RunningTurn) -> None:
        try:
            await self._post("cancel", {})
            await self._refresh()
        except SatchelError as error:
            if running is self._running:
                self._finish(SatchelError(f"{error} The turn may still be running there."))

    # Requests

    async def _post(self, what: str, body: Mapping[str, Any]) -> Any:
        self._ended = None
        return await (await self._host.api()).post(f"/api/sessions/{self.id}/{what}", body)

    async def _returned(self, otherwise: str) -> None:
        """Wait until the server is back, and this client has all events.

        Raises:
            ServerUnavailable: It doesn't come back.
        """
        with anyio.move_on_after(_RETURN_S):
            while True:
                await anyio.sleep(_LOOK_S)
                if self._is_connected:
                    with suppress(SatchelError):
                        await self._refresh()
                        await self._has(self._state.last_seq)
                        return
        raise ServerUnavailable(f"The server doesn't answer. {otherwise}")

    async def _has(self, seq: int) -> None:
        """Wait until the events up to a number have come, at most as long as for a missing server."""
        with anyio.move_on_after(_RETURN_S):
            while self.last_seq < seq:
                await self._broadcast.wait()


class _Streamed:
    """Counts streamed text. After a reconnection, the server sends it again from the answer's beginning."""

    def __init__(self) -> None:
        self._came: dict[tuple[str, str], int] = {}
        self._skip: dict[tuple[str, str], int] = {}
        self._notices: set[str] = set()

    def rewind(self) -> None:
        """Skip what has already come: the stream repeats it."""
        self._skip = dict(self._came)

    def logged(self, event: Event) -> None:
        """Forget the streamed text if a logged event contains it."""
        if isinstance(event, Assistant | TurnStart | TurnResumed | TurnEnd):
            self._came, self._skip, self._notices = {}, {}, set()

    def fresh(self, event: Event) -> Event | None:
        """The part of a streamed event that has not come before; None if all of it has."""
        if isinstance(event, Notice):
            is_new = event.text not in self._notices
            self._notices.add(event.text)
            return event if is_new else None
        if not isinstance(event, TextDelta | ThinkingDelta | ToolInputDelta):
            return event
        key = (event.type, event.call_id if isinstance(event, ToolInputDelta) else "")
        skipped = min(self._skip.get(key, 0), len(event.text))
        if skipped:
            self._skip[key] -= skipped
        text = event.text[skipped:]
        if not text:
            return None
        self._came[key] = self._came.get(key, 0) + len(text)
        if not skipped:
            return event
        if isinstance(event, ToolInputDelta):
            return ToolInputDelta(call_id=event.call_id, tool=event.tool, text=text)
        return TextDelta(text=text) if isinstance(event, TextDelta) else ThinkingDelta(text=text)
