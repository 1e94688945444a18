"""The agent: answers a client's requests out of an open Satchel."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, get_args

import anyio
from acp import PROTOCOL_VERSION, RequestError
from acp.helpers import update_agent_message_text, update_available_commands, update_current_mode
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    AvailableCommand,
    ClientCapabilities,
    CloseSessionResponse,
    ForkSessionResponse,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
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
from satchel.acp.contents import Message, read_prompt
from satchel.acp.updates import Translator
from satchel.config import McpServerSettings, Mode
from satchel.errors import NotFound, SatchelError, UsageError, UserError
from satchel.events import BuildPosted, Event, QuestionAnswered, QuestionAsked, TurnEnd, TurnStart
from satchel.runtime import RunningTurn, Satchel, Session
from satchel.runtime.attachments import Attachments
from satchel.runtime.commands import COMMANDS, CommandContext, CommandResult, find_command, run_command
from satchel.runtime.options import chosen_option
from satchel.runtime.tooling import mcp_tools
from satchel.tools.mcp import McpToolset
from satchel.tools.visible import visible
from satchel.version import __version__

__all__ = ["AcpAgent"]

T = TypeVar("T")
P = ParamSpec("P")

_PAGE: Final = 50
_READ: Final = 500
_LAST_UPDATES_S: Final = 30.0
"""How long the end of a prompt waits until its updates are sent; a client that reads takes milliseconds."""
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
        own: The turns that the client began; it knows what it said.
        ended: Set when the updates of a turn are with the client.
        asking: The questions that the client is asked, by id.
    """

    session: Session
    attachments: Attachments
    servers: McpToolset | None
    own: set[int] = field(default_factory=set)
    ended: dict[int, anyio.Event] = field(default_factory=dict)
    asking: dict[str, anyio.CancelScope] = field(default_factory=dict)

    def end_of(self, turn: int) -> anyio.Event:
        return self.ended.setdefault(turn, anyio.Event())


def _answered(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Turn our errors into the protocol's."""

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
    """Satchel for one client. It is an `Agent` of the SDK."""

    def __init__(self, satchel: Satchel) -> None:
        """`satchel` stays open while the client is there."""
        self._satchel = satchel
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
        """Say what Satchel can do."""
        self._capabilities = client_capabilities
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="satchel", title="Satchel", version=__version__),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=False, audio=False, embedded_context=True),
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
        """There is nothing to log in to."""
        raise RequestError(-32602, "Satchel needs no login: it runs as its user.")

    async def close(self) -> None:
        """Give up every session; running turns are interrupted, and end validly."""
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
            raise UsageError("The cursor is not one of a page of this list.")
        first = int(cursor or "0")
        infos = [info for info in await self._satchel.sessions.list() if cwd in (None, info.cwd)]
        shown = infos[first : first + _PAGE]
        return ListSessionsResponse(
            sessions=[
                SessionInfo(
                    session_id=info.id,
                    cwd=info.cwd,
                    title=visible(info.title) or None,
                    updated_at=info.last_at.isoformat(),
                )
                for info in shown
            ],
            next_cursor=str(first + _PAGE) if len(infos) > first + _PAGE else None,
        )

    @_answered
    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse:
        """Close a session; its running turn is interrupted."""
        self._get(session_id)
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
        info = await self._known(id)
        await self._close(info)
        await self._satchel.sessions.delete(info)
        return {}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Nothing is known."""

    @_answered
    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse:
        """Change how calls are decided that no rule covers."""
        opened = self._get(session_id)
        if mode_id not in get_args(Mode):
            raise UsageError(f"There is no mode {mode_id[:40]!r}. There are: {', '.join(_MODES)}.")
        opened.session.mode = mode_id  # type: ignore[assignment]  # checked above
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
        if opened.session.running is not None and not opened.session.running.is_cancelled:
            raise UsageError("A turn is running in this session. Wait for its end, or cancel it.")
        running: RunningTurn | None
        if len(prompt) == 1 and isinstance(prompt[0], TextContentBlock) and message.text.startswith("/"):
            running = await self._command(opened, message)
        else:
            running = await self._say(opened, message)
        if running is None:
            return PromptResponse(stop_reason="end_turn")
        result = await running.result()
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
        if found is not None:
            found.session.cancel()

    async def _say(self, opened: _Open, message: Message) -> RunningTurn | None:
        session = opened.session
        asked = next(iter(session.build_questions), None)
        if asked is not None and session.pending_question is None and not message.attached:
            await session.answer(asked.id, chosen_option(message.text, asked.options), by=BY)
            return None
        text = message.text
        if session.pending_question is not None:
            text = chosen_option(text, session.pending_question.options)
        opened.attachments.waiting = message.attached
        opened.own.add(session.turns + 1)
        return await session.start(text)

    async def _command(self, opened: _Open, message: Message) -> RunningTurn | None:
        """Run a `/` command, which every face of Satchel has."""
        found = find_command(message.text)
        if found is None:
            return await self._say(opened, message)
        session, translator = opened.session, Translator(cwd=opened.session.cwd)
        events: list[Event] = []
        context = CommandContext(
            satchel=self._satchel, session=session, show=events.append, tell=lambda _: None
        )
        result = await run_command(context, *found)
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
                f"cwd is {cwd[:300]!r}, which is no folder of this machine with an absolute path."
            )
        async with self._opening:
            if session_id is not None:
                session_id = await self._known(session_id)
                await self._close(session_id)
            entries = [_server(entry) for entry in servers or ()]
            toolset = self._toolset(folder, entries) if entries else None
            attachments = Attachments()
            try:
                session = await self._satchel.session(
                    session_id,
                    cwd=folder,
                    interactive=True,
                    toolsets=[toolset] if toolset is not None else [],
                    hooks=[attachments],
                )
            except BaseException:
                if toolset is not None:
                    with anyio.CancelScope(shield=True):
                        await toolset.aclose()
                raise
            opened = self._open[session.id] = _Open(session, attachments, toolset)
        after = session.last_seq
        if replays:
            await self._replay(opened, after)
        self._satchel.parts.background.start(self._follow, opened, after)
        self._satchel.parts.background.start(self._offer_commands, session.id)
        return opened

    def _toolset(self, cwd: Path, entries: Sequence[McpServerSettings]) -> McpToolset:
        """The tools of the client's own servers, which start in the session's folder, as the client itself would."""
        parts = self._satchel.parts
        settings = replace(
            parts.settings, mcp_servers={entry.name: replace(entry, cwd=str(cwd)) for entry in entries}
        )
        return mcp_tools(settings, parts.clock, spawn=parts.background.start, notify=_unheard)

    async def _known(self, session_id: str) -> str:
        """The id, if there is such a session: the whole of it, not only its beginning.

        Raises:
            NotFound: There is none.
        """
        info = await self._satchel.sessions.info(session_id)
        if info.id != session_id:
            raise NotFound(f"There is no session {session_id[:80]!r}.")
        return info.id

    def _get(self, session_id: str) -> _Open:
        found = self._open.get(session_id)
        if found is None:
            raise NotFound(
                f"Session {session_id[:80]!r} is not open. Begin with session/new, session/load or session/resume."
            )
        return found

    async def _close(self, session_id: str) -> None:
        opened = self._open.pop(session_id, None)
        if opened is None:
            return
        for scope in opened.asking.values():
            scope.cancel()
        await opened.session.aclose()
        if opened.servers is not None:
            await opened.servers.aclose()

    # Following

    async def _replay(self, opened: _Open, last_seq: int) -> None:
        translator = Translator(cwd=opened.session.cwd, is_replay=True)
        seq = 0
        while seq < last_seq:
            records = await self._satchel.sessions.records(opened.session.id, after_seq=seq, limit=_READ)
            if not records:
                return
            for record in records:
                seq = record.seq
                if seq <= last_seq:
                    for update in translator.feed(record.event):
                        await self._send(opened.session.id, update)

    async def _follow(self, opened: _Open, after: int) -> None:
        """Show everything that happens in a session, whoever begins it, until it is closed or the client is gone."""
        session, translator = opened.session, Translator(cwd=opened.session.cwd)
        subscription = session.subscribe(after)
        try:
            async for record in subscription:
                event = record.event
                own = isinstance(event, TurnStart) and event.turn in opened.own
                for update in translator.feed(event, own=own):
                    await self._send(session.id, update)
                self._take(opened, event)
        except ConnectionError:
            pass  # The client is gone; the session is closed with the agent.
        finally:
            await subscription.aclose()
            for end in opened.ended.values():
                end.set()

    def _take(self, opened: _Open, event: Event) -> None:
        match event:
            case QuestionAsked():
                self._satchel.parts.background.start(
                    self._ask, opened, event.id, functools.partial(self._asker.settle, opened.session, event)
                )
            case BuildPosted(kind="question"):
                self._satchel.parts.background.start(
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
                pass  # Somebody else has answered, the turn is over, or the client is gone.
            except RequestError:
                # The client can't ask. Nobody else may be there, so the call is refused.
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


def _unheard(_: str) -> None:
    """What a client's server has to say is in its log."""


def _modes(session: Session) -> SessionModeState:
    return SessionModeState(
        current_mode_id=session.mode,
        available_modes=[SessionMode(id=id, name=id, description=words) for id, words in _MODES.items()],
    )


def _server(entry: Any) -> McpServerSettings:
    """A server that the client names.

    Raises:
        UsageError: Satchel can't use it.
    """
    match entry:
        case McpServerStdio():
            return McpServerSettings(
                name=_name(entry.name),
                command=entry.command,
                args=tuple(entry.args),
                env={variable.name: variable.value for variable in entry.env},
            )
        case HttpMcpServer():
            headers = {header.name: header.value for header in entry.headers}
            return McpServerSettings(name=_name(entry.name), url=entry.url, headers=headers)
        case _:
            raise UsageError(
                f"The MCP server {getattr(entry, 'name', '?')[:60]!r} has a transport that Satchel doesn't speak here. "
                "It takes stdio and http."
            )


def _name(name: str) -> str:
    """A server's name, in the characters that names of tools may have."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:40] or "server"
