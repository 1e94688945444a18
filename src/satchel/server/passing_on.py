"""Requests for a conversation in which something runs at another server of the database: they are carried out there.

A balancer may give the answer to a question, or a click on Stop, to any server. One that doesn't have the conversation
open passes the request on as a row, encrypted with a key that follows from `forgotten.key`, which all these servers
have: an answer may be a password. The gate has checked the request here, and nobody without the key can write one. Nor
can anybody have one carried out again who has copied a row: what is encrypted says for which conversation and writer it
is, and has a number that the writer takes once; an answer has the number of its request.
"""

from __future__ import annotations

import base64
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Scope

from satchel.errors import SatchelError, SessionInUse, StorageCorrupt
from satchel.events import AskUser, BuildPosted, QuestionAsked
from satchel.server.browser_access import as_passed_on, browser_of, place_of, replayed
from satchel.server.client_turns import StartedTurn
from satchel.server.gate import log_defect
from satchel.server.json_answers import JsonAnswer
from satchel.server.problems import DEFECT, PROBLEM_TYPE, problem_body
from satchel.server.service import Service
from satchel.server.turn_stream import begun_elsewhere, records_elsewhere, written
from satchel.sessions import PassedOn

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_log = logging.getLogger(__name__)

_LOOK: Final = "Look whether what you asked for was done."
_PASSED: Final = "satchel.passed"
_PATHS: Final = ("/api/sessions/", "/chat/", "/api/chat")
"""Below these, answers are short: of a turn that is streamed, only the place is passed back. See also `begin`."""
BEGUN: Final = 202
"""The status of an answer that only says which turn has begun: what `begun_elsewhere` is called with."""


def passed_after(scope: Scope) -> int | None:
    """The number of the conversation's newest record when another server passed this request on; None if none did."""
    found: int | None = scope.get(_PASSED)
    return found


def is_passed_on(scope: Scope) -> bool:
    """Whether another server passed this request on, so that its answer has to be short."""
    return _PASSED in scope


_PLACE: Final = ("session_id", "after", "waited", "goes_on", "instead_of")
"""What another server is told of a turn that has begun here, beside its questions."""


@dataclass(frozen=True)
class PassingOn:
    """Passes requests on to other servers, and carries out theirs.

    Attributes:
        service: Has the conversations.
        routes: The application behind the gate.
    """

    service: Service
    routes: ASGIApp
    _taken: set[str] = field(default_factory=set)
    """The numbers of what was carried out. A later process has later epochs, so it needn't know them."""

    async def answer(self, request: Request, error: SatchelError) -> Response | None:
        """The answer of the server that has the conversation open, to a request that failed because of that.

        Returns:
            None if it failed because of something else, or is none that is passed on.

        Raises:
            StorageError: There is no answer; see `SessionStore.pass_on`.
        """
        scope = request.scope
        if not isinstance(error, SessionInUse) or not error.served:
            return None
        if not scope["path"].startswith(_PATHS) or _PASSED in scope:
            return None
        answer = await self._answer_elsewhere(request, error.served)
        if answer.status_code == BEGUN:
            begun = json.loads(bytes(answer.body))
            return self.service.stream(begun_elsewhere(self.service, **begun))
        return answer

    async def begin(
        self, request: Request, start: Callable[[], Awaitable[StartedTurn]]
    ) -> StartedTurn | Response:
        """Begin the turn of a client that keeps the history itself, or go on with it, at the server that has its
        conversation open if something runs in that. `start` does so here.

        Returns:
            The turn; or what the request is to be answered with, because another server passed it on, or refuses it.

        Raises:
            StorageError: There is no answer; see `SessionStore.pass_on`. Others as `start`.
        """
        try:
            begun = await start()
        except SessionInUse as error:
            if not error.served or is_passed_on(request.scope):
                raise
            answer = await self._answer_elsewhere(request, error.served)
            if answer.status_code != BEGUN:
                return answer
            place = json.loads(bytes(answer.body))
            asks, id, after = place.pop("waiting"), place["session_id"], place["after"]
            there = (await self.service.elsewhere.seen([id] if asks else ())).get(id)
            asked = there.questions if there is not None else ()
            return StartedTurn(
                records=written(self.service.satchel, id, after)
                if place["goes_on"]
                else records_elsewhere(self.service, id, after, place["waited"]),
                waiting=[one for one in asked if not isinstance(one, BuildPosted) and _id(one) in asks],
                **place,
            )
        if is_passed_on(request.scope):
            place = {name: getattr(begun, name) for name in _PLACE}
            return JsonAnswer(
                {**place, "waiting": [_id(asked) for asked in begun.waiting]}, status_code=BEGUN
            )
        return begun

    async def _answer_elsewhere(self, request: Request, id: str) -> Response:
        """The answer of the server that has a session open; see `SessionStore.pass_on`."""
        scope = request.scope
        asked = {
            **{key: scope[key] for key in ("method", "path", "scheme", "http_version")},
            "query_string": scope["query_string"].decode("latin-1"),
            "headers": _texts(scope["headers"]),
            "browser": browser_of(scope),
            "place": place_of(scope),
            "body": base64.b64encode(await request.body()).decode(),
        }
        once = secrets.token_hex(16)
        given = await self.service.satchel.sessions.pass_on(
            id, lambda epoch: self._sealed({**asked, "for": [id, epoch], "once": once})
        )
        # None: it was given up there meanwhile, so that it can be opened here.
        answer = self._opened(given) if given is not None else await self._answered(asked, None)
        if given is not None and answer.get("answers") != once:
            raise StorageCorrupt(f"What the database has is no answer to this request. {_LOOK}")
        return _response(answer)

    async def carry_out(self, passed: PassedOn) -> None:
        """Carry out a request of another server, unless it was for another writer, or was carried out before.

        Raises:
            StorageError: The answer could not be stored.
        """
        try:
            asked = self._opened(passed.content)
        except StorageCorrupt as error:
            _log.warning("%s", error)
            return
        once = asked.get("once")
        if asked.get("for") != [passed.session_id, passed.epoch] or once is None or once in self._taken:
            _log.warning(
                "A request for session %s was passed on a second time, or changed.", passed.session_id
            )
            return
        self._taken.add(once)
        answer = await self._answered(asked, passed.last_seq)
        sealed = self._sealed({**answer, "answers": once})
        await self.service.satchel.sessions.answer_passed(passed.number, sealed)

    async def _answered(self, asked: Mapping[str, Any], last_seq: int | None) -> Mapping[str, Any]:
        scope: Scope = {
            "type": "http",
            **{key: asked[key] for key in ("method", "path", "scheme", "http_version")},
            "raw_path": asked["path"].encode(),
            "query_string": asked["query_string"].encode("latin-1"),
            "root_path": "",
            "headers": [
                (name.encode("latin-1"), value.encode("latin-1")) for name, value in asked["headers"]
            ],
            "client": None,
            "server": None,
            _PASSED: last_seq,
        }
        scope = as_passed_on(scope, browser=asked["browser"], place=asked["place"])
        status, headers, body = 500, [["content-type", PROBLEM_TYPE]], b""

        async def send(message: Message) -> None:
            nonlocal status, headers, body
            if message["type"] == "http.response.start":
                status, headers = message["status"], _texts(message["headers"])
            else:
                body += message.get("body", b"")

        try:
            await self.routes(scope, replayed(base64.b64decode(asked["body"]), _stays), send)
        # A boundary, as the gate: a defect must not leave the other server without an answer.
        except Exception as error:  # noqa: BLE001
            log_defect(scope, error)
            body = body or problem_body(500, DEFECT)
        return {"status": status, "headers": headers, "body": base64.b64encode(body).decode()}

    @cached_property
    def _box(self) -> Fernet:
        from cryptography.fernet import Fernet  # noqa: PLC0415 - most homes have one server

        return Fernet(base64.urlsafe_b64encode(self.service.satchel.home.shared_key("requests")))

    def _sealed(self, content: Mapping[str, Any]) -> bytes:
        return self._box.encrypt(json.dumps(content).encode())

    def _opened(self, content: bytes) -> dict[str, Any]:
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - as above

        try:
            found: dict[str, Any] = json.loads(self._box.decrypt(content))
        except InvalidToken:
            raise StorageCorrupt(
                f"A row of the database was not written by a server of this home. {_LOOK}"
            ) from None
        return found


def _id(asked: QuestionAsked | AskUser) -> str:
    return asked.call_id if isinstance(asked, AskUser) else asked.id


async def _stays() -> Message:
    """Nothing, because a server that waits for an answer doesn't leave."""
    await anyio.sleep_forever()
    raise AssertionError


def _texts(headers: Sequence[tuple[bytes, bytes]]) -> list[list[str]]:
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]


def passing_on_of(request: Request) -> PassingOn:
    """That of the application that answers a request."""
    found: PassingOn = request.app.state.passing_on
    return found


def _response(answer: Mapping[str, Any]) -> Response:
    response = Response(base64.b64decode(answer["body"]), status_code=answer["status"])
    response.raw_headers = [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in answer["headers"]
    ]
    return response
