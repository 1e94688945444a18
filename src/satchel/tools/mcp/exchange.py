"""One request to a server, and what the server asks of the user and of the model until it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio

from satchel.errors import SatchelError
from satchel.tools.mcp.questions import Elicitation, ElicitationAnswer, read_answer
from satchel.tools.mcp.sampling import Sampled, Sampler, read_sampling
from satchel.tools.port import Ask
from satchel.tools.visible import visible
from satchel.wording import yes_or_no

if TYPE_CHECKING:
    from mcp.types import CreateMessageResult, ErrorData, InputRequiredResult, InputResponses

T = TypeVar("T")
MAX_ROUNDS = 10
"""How often one request may ask for more input."""
MAX_TRIES = 3
"""How often the user is asked again when their answer can't be read."""
PAUSE_S = 0.1
"""Before a request is sent again to a server that answered "not yet" and asked nothing."""
MAX_QUESTIONS = 20
"""Questions to the user during one request; the rest is declined for them."""
_MAX_TOLD = 500
"""Characters of a server's words in a reason."""
MAX_NOTES = 10
"""Notes for the model about one request."""
MAX_SAMPLES = 5
"""Answers of the model that a server may ask for during one request."""
MAX_SESSION_SAMPLES = 50
"""Answers of the model that a server may ask for in one session."""

Send: TypeAlias = "Callable[[InputResponses | None, str | None], Awaitable[T | InputRequiredResult]]"
"""Sends the request, with answers to what an earlier try asked for and that try's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """On whose behalf a request is made.

    Attributes:
        session_id: "" outside of a session, where a server can't have the model answer anything.
        ask: Asks the user while the request runs; None where nobody can be asked.
    """

    session_id: str = ""
    ask: Ask | None = None
    progress: Callable[[Mapping[str, Any]], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A request without a result; `reason` says why, as a clause."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputNeeded:
    """The server needs the user's answer before it goes on, and nobody could be asked now.

    Attributes:
        key: The server's name for the question.
        state: The server's own, to be sent back unchanged.
    """

    key: str
    elicitation: Elicitation
    state: str | None


@dataclass(slots=True, kw_only=True, eq=False)
class ServerRequest:
    """One request; its time limit stands still while the user is asked.

    Attributes:
        limit_s: For the server's answer, without the time that the user takes.
        sampled: How many answers of the model the server had, by session; shared by all requests to it.
        notes: What the model should know besides the result.
    """

    server: str
    caller: Caller
    limit_s: float
    roots: Sequence[Path]
    sampler: Sampler | None
    sampled: Counter[str]
    notes: list[str] = field(default_factory=list)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _waits: int = 0
    _samples: int = 0
    _questions: int = 0

    def note(self, text: str) -> None:
        """Add to `notes`; the first `MAX_NOTES` are kept."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    def extend(self) -> None:
        """Start the time limit anew: the server has shown that it is at work."""
        if not self._waits:
            self.scope.deadline = anyio.current_time() + self.limit_s

    async def converse(
        self,
        send: Send[T],
        *,
        answers: Mapping[str, Any] | None = None,
        state: str | None = None,
        may_wait: bool = False,
    ) -> T | Failed | InputNeeded:
        """Send the request until it is answered, with what the server asks for in between.

        Args:
            send: Sends it.
            answers: To what an earlier try asked for (`InputNeeded`), as the protocol has them.
            state: That try's.
            may_wait: Return `InputNeeded` where the user has to be asked and can't be now; else decline for them.
        """
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415  loaded in `load_sdk`
        from mcp.types import (  # noqa: PLC0415
            URL_ELICITATION_REQUIRED,
            ElicitRequest,
            ElicitResult,
            ErrorData,
            InputRequiredResult,
        )

        responses: InputResponses | None = (
            {key: ElicitResult.model_validate(value) for key, value in answers.items()} if answers else None
        )
        for _ in range(MAX_ROUNDS):
            try:
                result = await send(responses, state)
            except MCPError as error:
                if error.code != URL_ELICITATION_REQUIRED:
                    raise
                refused = await self._visit(error)
                if refused:
                    return Failed(reason=refused)
                continue
            if not isinstance(result, InputRequiredResult):
                return result
            state, responses = result.request_state, None
            requests = result.input_requests or {}
            if not requests:
                await anyio.sleep(PAUSE_S)
            if may_wait and self.caller.ask is None and len(requests) == 1:
                key, request = next(iter(requests.items()))
                if isinstance(request, ElicitRequest) and not self.read(request.params).problem:
                    return InputNeeded(key=key, elicitation=self.read(request.params), state=state)
            for key, request in requests.items():
                response = await self.respond(request)
                if isinstance(response, ErrorData):
                    return Failed(reason=response.message)
                responses = {**(responses or {}), key: response}
        return Failed(reason=f"the server asked for more input {MAX_ROUNDS} times")

    async def respond(self, request: Any) -> Any:
        """Answer one request of the server's; `ErrorData` where it is refused."""
        from mcp.types import (  # noqa: PLC0415  loaded in `load_sdk`
            METHOD_NOT_FOUND,
            CreateMessageRequest,
            ElicitRequest,
            ElicitResult,
            ErrorData,
            ListRootsRequest,
        )

        match request:
            case ElicitRequest(params=params):
                return ElicitResult.model_validate(await self.elicit(self.read(params)))
            case CreateMessageRequest(params=params):
                return await self.sample(params)
            case ListRootsRequest():
                return roots_result(self.roots)
            case _:
                return ErrorData(code=METHOD_NOT_FOUND, message=f"{request.method} is not offered to servers")

    # The user

    def read(self, params: Any) -> Elicitation:
        """What the server asks the user, out of the SDK's parameters."""
        return Elicitation.read(self.server, params.model_dump(by_alias=True, mode="json", exclude_none=True))

    async def elicit(self, elicitation: Elicitation) -> Mapping[str, Any]:
        """Ask the user; the protocol's result."""
        self._questions += 1
        why = elicitation.problem
        if self.caller.ask is None:
            why = "Nobody can be asked in this run"
        elif self._questions > MAX_QUESTIONS:
            why = f"It asked more than {MAX_QUESTIONS} times"
        if why or self.caller.ask is None:
            said = visible(elicitation.message[:500])
            self.note(f"[The MCP server {self.server} asked the user: {said!r}. {why}, so it was declined.]")
            return {"action": "decline"}
        with self._waiting():
            content: dict[str, Any] = {}
            for step in elicitation.steps():
                answer = await _answer_to(step, self.caller.ask)
                if answer.action != "accept":
                    return {"action": answer.action}
                content |= answer.content or {}
        return {"action": "accept"} if elicitation.url else {"action": "accept", "content": content}

    async def _visit(self, error: Any) -> str:
        """Send the user to the addresses without which the server does nothing; why the call can't go on, or ""."""
        data = error.data if isinstance(error.data, dict) else {}
        listed = data.get("elicitations")
        for params in listed[:MAX_QUESTIONS] if isinstance(listed, list) and listed else [{}]:
            elicitation = Elicitation.read(self.server, params if isinstance(params, dict) else {})
            if (await self.elicit(elicitation))["action"] != "accept":
                where = visible(elicitation.url[:_MAX_TOLD]) or "an address"
                why = visible(elicitation.message[:_MAX_TOLD])
                return f"the user has to open {where} first, and did not: {why}"
        return ""

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Stop the clock while the user, or the model, is at work."""
        self._waits += 1
        self.scope.deadline = float("inf")
        try:
            yield
        finally:
            self._waits -= 1
            self.extend()

    # The model

    async def sample(self, params: Any) -> CreateMessageResult | ErrorData:
        """Have the model answer what the server asks of it, where the user allows that."""
        from mcp.types import CreateMessageResult, ErrorData, TextContent  # noqa: PLC0415  loaded in `load_sdk`

        answer = await self._sampled(params.model_dump(by_alias=True, mode="json", exclude_none=True))
        if isinstance(answer, str):
            self.note(f"[The MCP server {self.server} asked for an answer of the model: {answer}.]")
            # -1 is the protocol's own example for a user who rejects the request.
            return ErrorData(code=-1, message=answer)
        return CreateMessageResult(
            role="assistant",
            content=TextContent(text=answer.text),
            model=answer.model,
            stop_reason=answer.stop_reason,
        )

    async def _sampled(self, params: Mapping[str, Any]) -> Sampled | str:
        """The model's answer, or why there is none, as a clause."""
        session_id, ask = self.caller.session_id, self.caller.ask
        if self.sampler is None or not session_id:
            return "there is no conversation whose model could answer"
        request = read_sampling(self.server, params)
        if isinstance(request, str):
            return f"its request was refused: {request}"
        if self._samples >= MAX_SAMPLES or self.sampled[session_id] >= MAX_SESSION_SAMPLES:
            return (
                f"it has had {self._samples} answers in this call and {self.sampled[session_id]} in this session "
                f"({MAX_SAMPLES} and {MAX_SESSION_SAMPLES} are allowed)"
            )
        with self._waiting():
            consent = await self.sampler.consent(request.rule_name, session_id=session_id)
            if consent == "deny":
                return f"a rule denies it: {request.rule_name}"
            if consent == "ask":
                if ask is None:
                    return (
                        f"nobody can be asked whether it may (a rule that allows {request.rule_name} would)"
                    )
                if not yes_or_no(await ask(request.question()) or ""):
                    return "the user declined"
            self._samples += 1
            self.sampled[session_id] += 1
            try:
                return await self.sampler.sample(request, session_id=session_id)
            except SatchelError as error:
                return f"the model did not answer: {error}".rstrip(".")


def roots_result(roots: Sequence[Path]) -> Any:
    """The SDK's answer to `roots/list`."""
    from mcp.types import ListRootsResult, Root  # noqa: PLC0415  loaded in `load_sdk`

    return ListRootsResult(
        roots=[Root.model_validate({"uri": path.as_uri(), "name": path.name}) for path in roots]
    )


async def _answer_to(step: Elicitation, ask: Ask) -> ElicitationAnswer:
    """What the user says to one question, which is put to them again where it can't be read."""
    problem = ""
    for _ in range(MAX_TRIES):
        words = await ask(step.question(problem))
        if words is None:
            break
        answer = read_answer(step, words)
        problem = answer.problem
        if not problem:
            return answer
    return ElicitationAnswer(action="cancel")
