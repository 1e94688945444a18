"""The agent: answers a client's requests from an open Satchel."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, get_args

import anyio
from acp import PROTOCOL_VERSION, RequestError
from acp.helpers import (
    image_block,
    update_agent_message_text,
    update_agent_thought_text,
    update_available_commands,
    update_current_mode,
)
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    AvailableCommand,
    ClientCapabilities,
    CloseSessionResponse,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionModeResponse,
    StopReason,
    TextContentBlock,
    Usage,
)

from satchel.acp.asking import BY, Asker
from satchel.acp.contents import PromptContent, read_prompt
from satchel.acp.places import Held, SessionPlace
from satchel.acp.updates import Translator
from satchel.config import Mode
from satchel.errors import NotFound, SatchelError, UsageError, UserError
from satchel.events import BuildPosted, Event, Posted, QuestionAnswered, QuestionAsked, TurnEnd, TurnStart
from satchel.runtime import RunningTurn
from satchel.runtime.attaching import keep
from satchel.runtime.broadcast import Subscription
from satchel.runtime.build_answers import hear_line
from satchel.runtime.commands import COMMANDS, CommandResult, OwnPosts, find_command
from satchel.runtime.hosting import SharedSession
from satchel.runtime.options import chosen_option
from satchel.runtime.pictures import pictures_in
from satchel.tools.visible import visible
from satchel.version import __version__

T = TypeVar("T")
P = ParamSpec("P")

_PAGE: Final = 50
_READ: Final = 500
_LAST_UPDATES_S: Final = 30.0
"""How long the end of a prompt waits until its updates are sent. That takes a reading client milliseconds."""
_MODES: Final[dict[str, str]] = {
    "ask": "Ask before calls that change something",
    "auto": "Run commands in a sandbox without asking",
    "plan": "Read only",
    "bypass": "Run everything without asking",
}
_STOPPED: Final[dict[str, StopReason]] = {"limit": "max_turn_requests", "cancelled": "cancelled"}
_NOT_FOUND: Final = -32002


@dataclass(slots=True, eq=False)
class _Open:
    """A session that the client has open.

    Attributes:
        own: The turns that the client started. It needs no echo of their messages.
        ended: Set when the updates of a turn were sent to the client.
        asking: The questions that the client is asked, by id.
        mode: The one that the client knows of.
        posts: Those of the client's own commands.
    """

    held: Held
    own: set[int] = field(default_factory=set)
    ended: dict[int, anyio.Event] = field(default_factory=dict)
    asking: dict[str, anyio.CancelScope] = field(default_factory=dict)
    mode: str = ""
    posts: OwnPosts = field(default_factory=OwnPosts)

    @property
    def session(self) -> SharedSession:
        return self.held.session

    def end_of(self, turn: int) -> anyio.Event:
        return self.ended.setdefault(turn, anyio.Event())


def _answered(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Turns Satchel's errors into the protocol's."""

    @functools.wraps(function)
    async def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        except SatchelError as error:
            code = (
                _NOT_FOUND
                if isinstance(error, NotFound)
                else -32602
                if isinstance(error, UserError)
                else -32603
            )
            raise RequestError(code, visible(str(error))) from error

    return wrapped


class AcpAgent:
    """Satchel for one client; implements the SDK's `Agent`."""

    def __init__(self, place: SessionPlace, spawn: Callable[..., None]) -> None:
        """Open nothing yet.

        Args:
            place: Where sessions are held.
            spawn: Runs something in the background.
        """
        self._place = place
        self._spawn = spawn
        self._client: Client | None = None
        self._capabilities: ClientCapabilities | None = None
        self._open: dict[str, _Open] = {}
        self._opening = anyio.Lock()

    def on_connect(self, conn: Client) -> None:
        """Take the client."""
        self._client = conn
        self._asker = Asker(conn, lambda: self._capabilities)

    # The connection

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        """Report Satchel's capabilities."""
        self._capabilities = client_capabilities
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="satchel", title="Satchel", version=__version__),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **kwargs: Any) -> None:
        """Satchel needs no login."""
        raise RequestError(-32602, "Satchel needs no login: it runs as its user.")

    async def close(self) -> None:
        """Close every session. Running turns are interrupted and end validly."""
        for id in tuple(self._open):
            with suppress(SatchelError):
                await self._close(id)

    # Sessions

    @_answered
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> NewSessionResponse:
        """Begin a session in a folder."""
        opened = await self._begin(None, cwd, mcp_servers)
        return NewSessionResponse(session_id=opened.session.id, modes=_modes(opened.session))

    @_answered
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Sequence[Any] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> LoadSessionResponse:
        """Open a session, and show what was said in it."""
        opened = await self._begin(session_id, cwd, mcp_servers, replays=True)
        return LoadSessionResponse(modes=_modes(opened.session))

    @_answered
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> ResumeSessionResponse:
        """Open a session without showing what was said in it."""
        opened = await self._begin(session_id, cwd, mcp_servers)
        return ResumeSessionResponse(modes=_modes(opened.session))

    @_answered
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> ListSessionsResponse:
        """List the sessions, the most recent first."""
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise UsageError("The cursor doesn't belong to this list.")
        first = int(cursor or "0")
        found = [known for known in await self._place.host.sessions() if cwd in (None, known.cwd)]
        return ListSessionsResponse(
            sessions=[
                SessionInfo(
                    session_id=known.id,
                    cwd=known.cwd,
                    title=visible(known.title) or None,
                    updated_at=known.last_at.isoformat(),
                )
                for known in found[first : first + _PAGE]
            ],
            next_cursor=str(first + _PAGE) if len(found) > first + _PAGE else None,
        )

    @_answered
    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse:
        """Close a session; its running turn is interrupted."""
        running = self._get(session_id).session.running
        if running is not None:
            running.cancel()
            await running.ended()
        await self._close(session_id)
        return CloseSessionResponse()

    @_answered
    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """`session/delete`: the SDK has no route for it, see `Wire`. Others are unknown."""
        if method != "session/delete":
            raise RequestError.method_not_found(method)
        id = params.get("sessionId")
        if not isinstance(id, str):
            raise RequestError.invalid_params({"details": "sessionId is missing"})
        if id in self._open and not self._open[id].session.turns:
            await self._close(id)  # The session had no messages, so it left no log.
            return {}
        await self._check_known(id)
        await self._close(id)
        await self._place.delete(id)
        return {}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """No extension notifications are known."""

    @_answered
    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse:
        """Change how calls are decided that no rule covers."""
        opened = self._get(session_id)
        if mode_id not in get_args(Mode):
            raise UsageError(f"There is no mode {mode_id[:40]!r}. There are: {', '.join(_MODES)}.")
        await self._place.host.command(
            opened.session, COMMANDS["mode"], mode_id, show=lambda _: None, tell=lambda _: None
        )
        opened.mode = mode_id
        await self._send(session_id, update_current_mode(mode_id))
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> None:
        """Sessions have no options but their mode."""
        raise RequestError.method_not_found("session/set_config_option")

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> ForkSessionResponse:
        """A session is one line of turns; it can't be forked."""
        raise RequestError.method_not_found("session/fork")

    # Turns

    @_answered
    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        """Send a message, and follow its turn to the end."""
        opened = self._get(session_id)
        message = read_prompt(prompt)
        running: RunningTurn | None
        if len(prompt) == 1 and isinstance(prompt[0], TextContentBlock) and message.text.startswith("/"):
            running = await self._command(opened, message)
        else:
            running = await self._say(opened, message)
        if running is None:
            return PromptResponse(stop_reason="end_turn")
        result = await running.result()
        if not running.number:
            return PromptResponse(stop_reason="cancelled")  # it was taken back
        with anyio.move_on_after(_LAST_UPDATES_S):
            await opened.end_of(running.number).wait()
        opened.ended.pop(running.number, None)
        used = result.usage
        return PromptResponse(
            stop_reason=_STOPPED.get(result.status, "end_turn"),
            usage=Usage(
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                total_tokens=used.input_tokens + used.output_tokens,
            ),
        )

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        """Interrupt the running turn. It ends with a valid history, and its prompt with "cancelled"."""
        found = self._open.get(session_id)
        running = found.session.running if found is not None else None
        if running is not None:
            running.cancel()

    async def _say(self, opened: _Open, message: PromptContent) -> RunningTurn | None:
        session = opened.session
        if not message.attached and not message.files:
            heard = await hear_line(session, message.text, by=BY)
            if heard.note:
                await self._send(session.id, update_agent_message_text(f"{heard.note}\n"))
            if not heard.is_message:
                return None
        text = message.text
        if session.pending_question is not None:
            text = chosen_option(text, session.pending_question.options)
        number = session.turns + 1
        opened.own.add(number)
        try:
            files = await anyio.to_thread.run_sync(keep, self._place.host.settings, message.files)
            running = await session.start(text, attached=message.attached, files=files)
        except SatchelError:
            opened.own.discard(number)
            raise
        if running.waits:
            opened.own.discard(number)
            await self._send(session.id, update_agent_thought_text("The message waits for its turn.\n"))
            await running.begun()
            opened.own.add(running.number)
        return running

    async def _command(self, opened: _Open, message: PromptContent) -> RunningTurn | None:
        """Run one of the `/` commands that all interfaces share."""
        found = find_command(message.text)
        if found is None:
            return await self._say(opened, message)
        session, translator = opened.session, Translator(cwd=opened.session.cwd)
        events: list[Event] = []
        command, rest = found
        with opened.posts.running(command, rest):
            result = await self._place.host.command(
                session, command, rest, show=events.append, tell=lambda _: None
            )
        while result.confirm is not None:
            await self._show(opened, translator, events, result)
            events.clear()
            if not await self._asker.agreed(session.id, result.confirm.question):
                return None
            result = await result.confirm.proceed()
        await self._show(opened, translator, events, result)
        if result.change is not None or result.leaves:
            await self._send(
                session.id, update_agent_message_text("Use the editor's own list of sessions for this.")
            )
        if result.message:
            return await self._say(opened, replace(message, text=result.message))
        return await session.resume() if result.resumes else None

    async def _show(
        self, opened: _Open, translator: Translator, events: Sequence[Event], result: CommandResult
    ) -> None:
        for event in (*events, *result.events):
            for update in translator.feed(event):
                await self._send(opened.session.id, update)
        opened.posts.show(result)
        text = "\n".join(line.text for line in result.lines)
        if text:
            await self._send(opened.session.id, update_agent_message_text(f"```\n{visible(text)}\n```\n"))

    # Opening

    async def _begin(
        self, session_id: str | None, cwd: str, servers: Sequence[Any] | None, *, replays: bool = False
    ) -> _Open:
        folder = Path(cwd)
        if not folder.is_absolute() or "\0" in cwd or not await anyio.Path(folder).is_dir():
            raise UsageError(
                f"cwd is {cwd[:300]!r}, which is not the absolute path of a folder on this machine."
            )
        async with self._opening:
            already = self._open.get(session_id or "")
            if already is not None and not already.session.turns:
                return already  # It has no messages, so it has no log to open again.
            if session_id is not None:
                await self._check_known(session_id)
                await self._close(session_id)
            held = await self._place.open(session_id, cwd=folder, servers=servers or ())
            opened = self._open[held.session.id] = _Open(held)
        session = held.session
        last_seq = session.last_seq
        subscription = session.subscribe(0 if replays else last_seq)
        if replays:
            await self._replay(opened, subscription, last_seq)
        if held.notice:
            await self._send(session.id, update_agent_message_text(held.notice))
        self._spawn(self._follow, opened, subscription)
        self._spawn(self._offer_commands, session.id)
        return opened

    async def _check_known(self, session_id: str) -> None:
        """Check that there is a session with this full id.

        Raises:
            NotFound: There is none.
        """
        known = await self._place.host.sessions()
        if not any(session_id in (each.id, *each.branches) for each in known):
            raise NotFound(f"There is no session {session_id[:80]!r}.")

    def _get(self, session_id: str) -> _Open:
        found = self._open.get(session_id)
        if found is None:
            raise NotFound(
                f"Session {session_id[:80]!r} is not open. Open it with session/new, session/load or session/resume."
            )
        return found

    async def _close(self, session_id: str) -> None:
        opened = self._open.pop(session_id, None)
        if opened is None:
            return
        for scope in opened.asking.values():
            scope.cancel()
        await opened.session.aclose()
        await opened.held.release()

    # Following

    async def _replay(self, opened: _Open, subscription: Subscription, last_seq: int) -> None:
        translator = Translator(cwd=opened.session.cwd, is_replay=True)
        if not last_seq:
            return
        async for record in subscription:
            await self._tell(opened, translator, record.event)
            if record.seq >= last_seq:
                return

    async def _follow(self, opened: _Open, subscription: Subscription) -> None:
        """Show a session's events, also from other clients' turns, until it is closed or the client is gone."""
        session, translator = opened.session, Translator(cwd=opened.session.cwd)
        opened.mode = session.mode
        try:
            async for record in subscription:
                event = record.event
                own = (isinstance(event, TurnStart) and event.turn in opened.own) or (
                    isinstance(event, Posted) and opened.posts.has(event)
                )
                await self._tell(opened, translator, event, own=own)
                if session.mode != opened.mode:  # a plan was proposed or approved
                    opened.mode = session.mode
                    await self._send(session.id, update_current_mode(session.mode))
                self._take(opened, event)
        finally:
            await subscription.aclose()
            for end in opened.ended.values():
                end.set()

    async def _tell(self, opened: _Open, translator: Translator, event: Event, *, own: bool = True) -> None:
        found = await pictures_in(event, functools.partial(self._place.content_of, opened.session.id))
        translator.pictures = [image_block(data, file.media_type) for file, data in found]
        for update in translator.feed(event, own=own):
            await self._send(opened.session.id, update)

    def _take(self, opened: _Open, event: Event) -> None:
        match event:
            case QuestionAsked():
                self._spawn(
                    self._ask, opened, event.id, functools.partial(self._asker.settle, opened.session, event)
                )
            case BuildPosted(kind="question"):
                self._spawn(
                    self._ask,
                    opened,
                    event.id,
                    functools.partial(self._asker.settle_build, opened.session, event),
                )
            case QuestionAnswered():
                self._withdraw(opened, event.id)
            case TurnEnd():
                opened.own.discard(event.turn)
                opened.end_of(event.turn).set()
            case _:
                pass

    async def _ask(self, opened: _Open, id: str, ask: Callable[[], Awaitable[None]]) -> None:
        with anyio.CancelScope() as scope:
            opened.asking[id] = scope
            try:
                await ask()
            except (NotFound, UsageError, ConnectionError):
                pass  # Another client has answered, the turn is over, or this client is gone.
            except RequestError:
                # The client can't ask, and there may be no other client, so the call is refused.
                with suppress(SatchelError):
                    await opened.session.answer(id, consent="no", by=BY)
            finally:
                opened.asking.pop(id, None)

    def _withdraw(self, opened: _Open, id: str) -> None:
        scope = opened.asking.get(id)
        if scope is not None:
            scope.cancel()

    async def _offer_commands(self, session_id: str) -> None:
        commands = [
            AvailableCommand(name=command.name, description=command.help) for command in COMMANDS.values()
        ]
        await self._send(session_id, update_available_commands(commands))

    async def _send(self, session_id: str, update: Any) -> None:
        if self._client is not None:
            with suppress(ConnectionError):
                await self._client.session_update(session_id=session_id, update=update)


def _modes(session: SharedSession) -> SessionModeState:
    return SessionModeState(
        current_mode_id=session.mode,
        available_modes=[SessionMode(id=id, name=id, description=words) for id, words in _MODES.items()],
    )
