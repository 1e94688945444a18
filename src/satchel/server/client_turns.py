"""Turns for clients that keep the history themselves and send all of it with every request.

The history is matched with a session by a hash of everything up to the last answer. The session then has the same
conversation with more in it: memory, Satchel's own calls, a prompt that providers have cached. A history that matches
none (it was edited, or comes from elsewhere) begins a session that takes it over. Either way only the new words are a
turn, and only they are captured.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, Literal

from starlette.exceptions import HTTPException

from satchel.conversation import Conversation
from satchel.errors import NotFound, SatchelError, SessionInUse, StorageError, UsageError
from satchel.events import AskUser, QuestionAsked, Record, TurnStart
from satchel.messages import Block, FileBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock
from satchel.runtime import RunningTurn, Sampling, Session
from satchel.runtime.build_answers import hear_line
from satchel.runtime.turns import is_busy
from satchel.server.errands import is_errand
from satchel.server.service import Service
from satchel.server.turn_stream import TurnPosition, logged_turn
from satchel.server.v1_errors import V1Failure
from satchel.sessions import ClientPlace
from satchel.sessions.view import SessionTurn
from satchel.tools import Tool, client_tool

_REPEATED: Final = timedelta(hours=1)
"""The same request within this time asks for another answer to the same words, which are captured once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCall:
    """A call of one of the client's tools."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFile:
    """A file in a message, with its bytes."""

    name: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMessage:
    """One message as the client sent it.

    Attributes:
        role: "tool" brings the result of the call `call_id`.
        calls: The calls in an answer.
        files: What the user attached. Models get those of the newest messages; a session keeps its own.
        is_error: Whether a result is an error.
    """

    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[ClientCall, ...] = ()
    files: tuple[ClientFile, ...] = ()
    call_id: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTool:
    """A tool that the client runs."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A request of such a client.

    Attributes:
        namespace: Separates clients and users: the same words from another one are another conversation.
        said: The whole history; it ends with the user or with results.
        instructions: The client's instructions, which are added to Satchel's own.
        model: "provider:model", or None for the model of the home.
        ephemeral: Nothing is stored, not even the session; see also `is_kept`.
        is_retry: The client sends the same request once more, because it got no answer.
        after: The id of an answer that `said` continues (`keep_answer`); then no history was sent. "" if it was.
        thread: The client's own name of the conversation; then no history is compared. "" if it has none.
        interactive: The client answers questions; see `resume`.
    """

    namespace: str
    said: tuple[ClientMessage, ...]
    instructions: str = ""
    tools: tuple[ClientTool, ...] = ()
    model: str | None = None
    ephemeral: bool = False
    is_retry: bool = False
    after: str = ""
    thread: str = ""
    interactive: bool = False
    sampling: Sampling | None = None

    @property
    def _last_answer(self) -> int:
        """The number of messages up to and including the last answer."""
        return max((n for n, one in enumerate(self.said, start=1) if one.role == "assistant"), default=0)

    @property
    def history(self) -> tuple[ClientMessage, ...]:
        """Everything up to the last answer."""
        return self.said[: self._last_answer]

    @property
    def new(self) -> tuple[ClientMessage, ...]:
        """What came after it."""
        return self.said[self._last_answer :]

    @property
    def words(self) -> str:
        """What the user says now."""
        return "\n\n".join(one.text for one in self.new if one.role == "user" and one.text.strip())

    @property
    def files(self) -> tuple[ClientFile, ...]:
        """What the user attaches now."""
        return tuple(file for one in self.new for file in one.files)

    @property
    def is_errand(self) -> bool:
        """Whether the client asks on its own, for a title and the like."""
        return not self.thread and not self.after and is_errand(self.words, has_tools=bool(self.tools))

    @property
    def is_kept(self) -> bool:
        """Whether the turn becomes part of a session, and its words memories."""
        return not self.ephemeral and not self.is_errand

    @property
    def results(self) -> tuple[ToolResultBlock, ...]:
        """The results of calls that the client ran."""
        return tuple(
            ToolResultBlock(tool_use_id=one.call_id, content=one.text, is_error=one.is_error)
            for one in self.new
            if one.role == "tool"
        )

    @property
    def terms(self) -> str:
        """A name for the options that the session must be opened with."""
        tools = [[tool.name, tool.description, tool.schema] for tool in self.tools]
        return _digest([self.instructions, tools])


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTurn:
    """A turn that has begun, or began before and is read again.

    Attributes:
        records: Its records, from the first one.
        after: The number of a record before its first one.
        waited: The id of its message in the line; "" if it doesn't wait.
        goes_on: Its number, if it began before and `records` has what comes after `after` in its middle; else 0.
        waiting: The questions that it waits for already.
        instead_of: The id of the session that has the client's history, where the turn could not be: it went on
            otherwise, or a turn runs in it. "" if the turn is in that, or if there is none.
    """

    session_id: str
    records: AsyncGenerator[Record, None]
    after: int
    waited: str = ""
    goes_on: int = 0
    waiting: Sequence[QuestionAsked | AskUser] = ()
    instead_of: str = ""


async def begin(service: Service, asked: ClientRequest) -> StartedTurn:
    """Begin the turn of a request; if it is a retry, find the one that it began before.

    Raises:
        NotFound, ConfigError, ModelError: The model is unavailable.
        UsageError: There is nothing new to answer.
        V1Failure: The answer that it continues is not known.
        SessionInUse: Something runs in its conversation at another server, which carries out requests for it.
        StorageError: No session can be written.
    """
    if not asked.words and not asked.results and not asked.files:
        raise UsageError(
            "The last message must be the user's or the result of a call, and must not be empty."
        )
    request_key, continued_key = _key(asked, asked.said, "request"), _continued_key(asked)
    known: Mapping[str, ClientPlace] = {}
    if asked.is_kept:
        known = await _found(service, [request_key, continued_key])
    before = known.get(request_key)
    if asked.is_retry and before is not None:
        again = await _again(service, before)
        if again is not None:
            return again
    is_repeated = before is not None and service.satchel.clock.now() - before.at < _REPEATED
    place = known.get(continued_key)
    begun = await _continued(service, asked, place, captures=not is_repeated) if place is not None else None
    instead_of = place.session_id if place is not None and begun is None else ""
    if begun is None:
        # What is repeated of a session is found by what forgets it there only in a branch.
        branch = await _branched(service, asked, place)
        async with service.sessions.used(
            branch,
            interactive=asked.interactive,
            model=asked.model,
            ephemeral=not asked.is_kept and branch is None,
            tools=_tools(asked),
            system=_system(asked),
            terms=asked.terms,
        ) as session:
            if branch is None:
                await session.take_over(await _forked(service, asked, place) or _messages(asked.history))
            begun = session, await _start(service, session, asked, captures=not is_repeated)
    session, running = begun
    if asked.is_kept:
        places = [ClientPlace(key=request_key, session_id=session.id, number=running.after_seq)]
        if asked.thread:
            places.append(ClientPlace(key=continued_key, session_id=session.id, number=running.number))
        await _put(service, *places)
    return StartedTurn(
        session_id=session.id,
        records=running.records(),
        after=running.after_seq,
        waited=running.waited if running.waits else "",
        instead_of=instead_of,
    )


async def keep_answer(
    service: Service,
    asked: ClientRequest,
    session_id: str,
    turn: int,
    *,
    text: str,
    calls: Sequence[ClientCall],
    response_id: str = "",
    stored: Mapping[str, Any] | None = None,
) -> None:
    """Note that the history with this answer at its end is that of a session after a turn, and so is what follows the
    answer with this id, of which `stored` is kept. Call it before the client has the end of the answer.
    """
    if asked.is_kept and not asked.thread:
        answer = ClientMessage(role="assistant", text=text, calls=tuple(calls))
        keys = [] if asked.after else [_key(asked, (*asked.said, answer), "history")]
        places = [ClientPlace(key=key, session_id=session_id, number=turn) for key in keys]
        if response_id:
            own = _response_key(asked.namespace, response_id)
            places.append(ClientPlace(key=own, session_id=session_id, number=turn))
            about = json.dumps({**(stored or {}), "key": own})
            places.append(
                ClientPlace(key=_stored_key(response_id), session_id=session_id, number=turn, block=about)
            )
        await _put(service, *places)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """An answer that a client may ask for again.

    Attributes:
        about: What was kept of its request (`keep_answer`).
    """

    session_id: str
    turn: SessionTurn
    about: Mapping[str, Any]


async def stored_response(service: Service, id: str, *, namespace: str | None = None) -> StoredResponse:
    """The answer with an id, of one client and user or of any.

    Raises:
        NotFound: There is none, its session was deleted, or it is another user's.
        StorageError: It can't be read.
    """
    key = _stored_key(id)
    place = (await service.satchel.sessions.client_history.find([key])).get(key)
    about = json.loads(place.block) if place is not None and place.block else {}
    is_theirs = namespace is None or about.get("key") == _response_key(namespace, id)
    if place is not None and is_theirs:
        turn = await service.satchel.sessions.turn(place.session_id, place.number)
        if turn is not None:
            return StoredResponse(session_id=place.session_id, turn=turn, about=about)
    raise NotFound(f"There is no response {id!r} here.")


async def drop_response(service: Service, id: str) -> None:
    """Let nobody ask for an answer or continue from it any more. The conversation stays.

    Raises:
        NotFound: There is none.
        StorageError: It can't be removed.
    """
    found = await stored_response(service, id)
    await service.satchel.sessions.client_history.drop([_stored_key(id), str(found.about.get("key", ""))])


async def _branched(service: Service, asked: ClientRequest, place: ClientPlace | None) -> str | None:
    """The id of a branch of the session whose answer the request continues, if it is kept and known."""
    if not asked.after or not asked.is_kept or place is None:
        return None
    with suppress(NotFound, StorageError):
        return await service.satchel.sessions.branch(place.session_id, place.number + 1)
    return None


async def _forked(service: Service, asked: ClientRequest, place: ClientPlace | None) -> list[Message]:
    """The conversation up to the answer that the request continues, whose session went on otherwise.

    Raises:
        V1Failure: It is not known.
    """
    if not asked.after:
        return []
    conversation, seq = Conversation(), 0
    with suppress(NotFound, StorageError):
        while place is not None and conversation.turns <= place.number:
            records = await service.satchel.sessions.records(place.session_id, after_seq=seq)
            for record in records:
                if isinstance(record.event, TurnStart) and record.event.turn > place.number:
                    return [_without_files(message) for message in conversation.messages]
                conversation.apply(record.event)
                seq = record.seq
            if not records:
                break
    if not conversation.messages:
        raise V1Failure(
            400,
            f"There is no response {asked.after!r} here. Send the whole conversation as input.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return [_without_files(message) for message in conversation.messages]


def _without_files(message: Message) -> Message:
    """A session's files are its own."""
    blocks = (_named(block.name) if isinstance(block, FileBlock) else block for block in message.blocks)
    return Message(role=message.role, blocks=tuple(blocks))


def _named(name: str) -> TextBlock:
    return TextBlock(text=f"[{name} was attached here]")


async def _found(service: Service, keys: Sequence[str]) -> Mapping[str, ClientPlace]:
    try:
        return await service.satchel.sessions.client_history.find([key for key in keys if key])
    except StorageError:
        return {}  # The conversation continues in a new session.


async def _put(service: Service, *places: ClientPlace) -> None:
    with suppress(StorageError):  # The next request takes the history over.
        await service.satchel.sessions.client_history.put(*places)


async def _again(service: Service, place: ClientPlace) -> StartedTurn | None:
    """The turn that an earlier sending of the same request began."""
    start = TurnPosition(session_id=place.session_id, first=place.number, seq=place.number)
    for running in service.sessions.turns_of(place.session_id):
        if running.after_seq == place.number:
            return StartedTurn(session_id=place.session_id, records=running.records(), after=place.number)
    try:
        if not await service.satchel.sessions.records(place.session_id, after_seq=place.number, limit=1):
            return None
    except (NotFound, StorageError, UsageError):
        return None
    records = logged_turn(service.satchel, start)
    return StartedTurn(session_id=place.session_id, records=records, after=place.number)


async def _continued(
    service: Service, asked: ClientRequest, place: ClientPlace, *, captures: bool
) -> tuple[Session, RunningTurn] | None:
    """Begin the turn in the session that has this history; None if it went on otherwise, or can't be opened here."""
    sessions, id = service.sessions, place.session_id
    terms = asked.terms
    if sessions.terms_of(id) not in (None, terms):
        await sessions.close(id)
    opening: dict[str, Any] = {}
    if sessions.terms_of(id) is None:
        opening = {"model": asked.model, "tools": _tools(asked), "system": _system(asked), "terms": terms}
    try:
        async with sessions.used(id, interactive=asked.interactive, **opening) as session:
            busy = await is_busy(session.running)
            if busy and asked.thread:
                raise HTTPException(
                    409, f"A run is in progress in thread {asked.thread!r}. Wait until it ends."
                )
            if (
                (session.turns != place.number and not asked.thread)
                or busy
                or session.is_interrupted
                or (len(_open_results(session, asked)) < len(asked.results) and not asked.thread)
            ):
                return None
            model = await service.satchel.model(asked.model)
            if session.model is not model:
                session.use_model(model)
            return session, await _start(service, session, asked, captures=captures)
    except SessionInUse as error:
        if error.served:
            raise
        return None
    except (NotFound, StorageError, UsageError):
        # It was deleted; another process has it open; or somebody here has it open on other terms.
        return None


async def _start(service: Service, session: Session, asked: ClientRequest, *, captures: bool) -> RunningTurn:
    files: list[FileBlock] = []
    try:
        for file in asked.files:
            files.append(await service.uploaded(file.content, file.name))  # noqa: PERF401  # one may be refused
        running = await session.start(
            asked.words,
            attached=await _told_of(session, asked),
            # A title is about the conversation alone.
            memory=not asked.is_errand,
            results=_open_results(session, asked),
            captures=captures,
            sampling=asked.sampling,
            files=files,
        )
    except SatchelError:
        await service.drop_uploaded(files)
        raise
    service.sessions.follow_turn(session, running, interactive=asked.interactive)
    return running


async def _told_of(session: Session, asked: ClientRequest) -> str:
    """What the model learns of words that answer a build, which gets them, or that may: such a client hears all from
    the model. "" if they are for the model.
    """
    if not asked.words or asked.is_errand:
        return ""
    with suppress(NotFound, UsageError):  # the question was settled at the same moment
        heard = await hear_line(session, asked.words, by="a program")
        if heard.answered is not None:
            return heard.note or f"The Builder of {heard.answered.capability} asked for this, and has it now."
        if not heard.is_message:
            return f"This may be meant for a build, and no build has it. {heard.note}"
        if heard.note:
            return f"This is no answer to a build that waits for the user. Tell them. {heard.note}"
    return ""


def _open_results(session: Session, asked: ClientRequest) -> list[ToolResultBlock]:
    """The results of calls that wait for them; a front end also repeats those of Satchel's own calls."""
    waiting = {call.id for call in session.conversation.calls_for_caller}
    return [result for result in asked.results if result.tool_use_id in waiting]


async def session_of_thread(service: Service, namespace: str, thread: str) -> str:
    """The id of the session that continues a thread.

    Raises:
        NotFound: There is none.
    """
    key = _thread_key(namespace, thread)
    place = (await _found(service, [key])).get(key)
    if place is None:
        raise NotFound(f"There is no thread {thread!r}.")
    return place.session_id


def _tools(asked: ClientRequest) -> list[Tool]:
    return [
        client_tool(name=tool.name, description=tool.description, input_schema=tool.schema)
        for tool in asked.tools
    ]


def _system(asked: ClientRequest) -> Any:
    if not asked.instructions:
        return None
    return lambda own: f"{own}\n\n{asked.instructions}"


def _messages(history: Sequence[ClientMessage]) -> list[Message]:
    messages = []
    for one in history:
        blocks: tuple[Block, ...]
        match one.role:
            case "tool":
                result = ToolResultBlock(tool_use_id=one.call_id, content=one.text, is_error=one.is_error)
                messages.append(Message(role="user", blocks=(result,)))
            case "user":
                # A history that is taken over has no files of its own.
                names = [_named(file.name).text for file in one.files]
                messages.append(Message(role="user", blocks=_text("\n".join([*names, one.text]))))
            case "assistant":
                blocks = (*_text(one.text), *(_call(call) for call in one.calls))
                messages.append(Message(role="assistant", blocks=blocks))
    return messages


def _text(text: str) -> tuple[TextBlock, ...]:
    return (TextBlock(text=text),) if text.strip() else ()


def _call(call: ClientCall) -> ToolUseBlock:
    input = _plain_arguments(call.arguments)
    if isinstance(input, dict):
        return ToolUseBlock(id=call.id, name=call.name, input=input)
    return ToolUseBlock(id=call.id, name=call.name, input=None, unparsed=call.arguments)


def _continued_key(asked: ClientRequest) -> str:
    """The key of the place where the last answer ended; "" at the beginning of a conversation."""
    if asked.thread:
        return _thread_key(asked.namespace, asked.thread)
    if asked.after:
        return _response_key(asked.namespace, asked.after)
    return _key(asked, asked.history, "history") if asked.history else ""


def _response_key(namespace: str, id: str) -> str:
    return _digest(["response", namespace, id])


def _stored_key(id: str) -> str:
    return _digest(["stored response", id])


def _thread_key(namespace: str, thread: str) -> str:
    return _digest(["thread", namespace, thread])


def _key(asked: ClientRequest, said: Sequence[ClientMessage], what: str) -> str:
    return _digest([what, asked.namespace, asked.thread or asked.after, [_plain(one) for one in said]])


def _plain(one: ClientMessage) -> list[Any]:
    """The parts that clients return unchanged. They trim texts and reformat arguments."""
    calls = [[call.id, call.name, _plain_arguments(call.arguments)] for call in one.calls]
    files = [sha256(file.content).hexdigest() for file in one.files]
    return [one.role, one.text.strip(), calls, one.call_id, *([files] if files else [])]


def _plain_arguments(arguments: str) -> Any:
    """Arguments as JSON data, or as they are: also with NaN, which is none, and with what is nested too deeply."""
    try:
        found = json.loads(arguments or "{}")
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        return arguments
    return found


def _digest(value: Any) -> str:
    # UTF-8 can't encode lone surrogates, so they are escaped.
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
