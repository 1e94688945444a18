"""The front door of several people: it finds out who asks, and passes each request on to that person's own process.

Whatever a client sends, only three things say whose process is asked: a token, a browser's cookie together with the
place that belongs to it, and at a log-in the name with its password. The process itself checks a browser again, its
forms, and the size of what is sent, as in a home with one person. See decision 93.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import quote

import anyio
import anyio.to_thread
import httpx2
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from satchel.clock import Clock
from satchel.errors import SatchelError
from satchel.runtime.people import People, Person
from satchel.runtime.person_homes import used_mb
from satchel.runtime.person_processes import PersonProcess, PersonProcesses
from satchel.runtime.serving import ensure_token
from satchel.server.binding import Hosts
from satchel.server.browser_access import values_of
from satchel.server.gate import KEY_HEADER, TOKEN_HEADER, Refusal, RequestGate, next_piece, too_slow
from satchel.server.json_answers import JsonAnswer
from satchel.server.metrics import METRICS_TYPE, Metrics, by_person
from satchel.server.pages.assets import asset_answer, asset_url
from satchel.server.pages.login import local_path, login_page
from satchel.server.pages.rendering import error_page, form_of
from satchel.server.passkeys import PATH, Passkeys, has_passkeys
from satchel.server.problems import status_of
from satchel.server.proxy.relay import OF_CONNECTION, Header
from satchel.server.rates import Rates, client_of, login_tries
from satchel.server.streams import sent, until_gone

_PERSON: Final = "satchel.person"
_METRICS: Final = "/metrics"
_HEALTH: Final = "/healthz"
_WRONG: Final = "That is not a name with its password."
_BROKEN: Final = (
    "Your Satchel ended while it was asked. Try again: it starts anew, and what was said is kept."
)
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FREES: Final = re.compile(
    r"/(logout|logout/everywhere|theme|sessions|settings)$|/.*(forget|delete|remove|archive|cancel)"
)
"""What somebody may still change whose disk is full: what makes room, or takes next to none."""
_LOGGED_IN = _LOGGED_OUT = 303
_EVERYWHERE: Final = "/logout/everywhere"
_LOG_OUT: Final = ("/logout", _EVERYWHERE)
_MEASURED_S: Final = 20.0
_AUTHORIZATION: Final = b"authorization"
_CREDENTIALS: Final = (_AUTHORIZATION, TOKEN_HEADER, KEY_HEADER)
_HERE: Final = b"(the token of the process)"
"""Where it goes. It is known by its identity, so that no client can send it."""
_SET_HERE: Final = OF_CONNECTION | {b"x-forwarded-for", b"x-forwarded-proto", b"forwarded"}
_VALUE: Final = re.compile(r"satchel_\d+=([^;]+)")
_TRIES: Final = 2
"""For a request that changes nothing, if the process dies before it answers."""
_CHECKS_AT_ONCE: Final = 2
"""Checking a password takes 64 MB and a twentieth of a second."""


def front_door(processes: PersonProcesses, *, clock: Clock) -> RequestGate:
    """The ASGI application."""
    server, people = processes.settings.server, processes.people
    passkeys = Passkeys(people, clock) if has_passkeys() else None
    log_in, metrics = _LogIn(processes, clock, passkeys), Metrics()

    async def figures(_: Request) -> Response:
        told = {
            "satchel_people": ("People of this server.", float(len(people.persons()))),
            "satchel_people_running": (
                "People whose process runs.",
                float(len(processes.running & people.persons().keys())),
            ),
        }
        text = metrics.text(gauges=told) + by_person(await processes.figures())
        return Response(text, media_type=METRICS_TYPE)

    routes = [
        Route("/login", log_in.ask, methods=["GET"]),
        Route("/login", log_in.log_in, methods=["POST"]),
        *_passkey_routes(passkeys, log_in),
        Route(_HEALTH, _healthz),
        Route("/readyz", _healthz),
        Route(_METRICS, figures),
        Route("/static/{version}/{name}", _asset),
        Route("/favicon.ico", _icon),
    ]
    return _FrontDoor(
        Starlette(routes=routes),
        access=_PeopleAccess(people, clock, ensure_token(processes.settings.home)),
        hosts=Hosts(server.host, server.allowed_hosts),
        requests_per_s=server.requests_per_s,
        clock=clock,
        metrics=metrics,
        processes=processes,
    )


@dataclass(frozen=True, slots=True)
class _PeopleAccess:
    """Lets in who is somebody, and notes who. It is the gate's `Gatekeeper`."""

    people: People
    clock: Clock
    token: str
    """The administrator's, which opens `/metrics` and nothing else here."""

    def is_token(self, given: str) -> bool:
        return self.people.with_token(given) is not None

    async def admit(self, scope: Scope) -> bool:
        given = Headers(scope=scope).get("authorization", "")
        if scope["path"] == _METRICS and compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            return True
        for value in values_of(scope):
            if (person := self.people.with_browser(value, self.clock.now())) is not None:
                scope[_PERSON] = person
                return True
        return False

    async def proves_origin(self, scope: Scope, body: bytes) -> bool:
        # Logging in and passkeys come here; other forms of people are checked by their own processes. The gate has
        # compared `Origin` with `Host` where it is there.
        headers = Headers(scope=scope)
        return scope["method"] in _SAFE or _PERSON not in scope or "origin" in headers


class _FrontDoor(RequestGate):
    """The gate, which passes on what it has admitted instead of answering it."""

    asks_for = (
        "Send your token: Authorization: Bearer TOKEN. The administrator makes it: satchel user token NAME"
    )

    def __init__(
        self, app: Starlette, *, access: _PeopleAccess, processes: PersonProcesses, **more: Any
    ) -> None:
        super().__init__(app, access=access, **more)
        self._people = access.people
        self._processes = processes
        self._has_passkeys = has_passkeys()
        self._measured: dict[str, tuple[float, float]] = {}

    async def _prepare(self, scope: Scope) -> Refusal | None:
        try:
            if scope["path"] != _HEALTH:
                await self._processes.fresh()
        except SatchelError as error:
            return Refusal(status_of(error), str(error), ((b"retry-after", b"5"),))
        return None

    async def _serve(self, scope: Scope, receive: Receive, answer: Send) -> Refusal | None:
        person, headers = self._whose(scope)
        if person is None or self._is_doors_own(scope):
            return await super()._serve(scope, receive, answer)
        if await self._is_full(person, scope):
            return Refusal(
                507,
                f"Your folder is full: the administrator gave you {person.disk_mb:,} MB. Delete conversations "
                "or files, or ask for more.",
            )

        async def told(message: Message) -> None:
            if scope["path"] in _LOG_OUT and message.get("status") == _LOGGED_OUT:
                gone = None if scope["path"] == _EVERYWHERE else [*values_of(scope)]
                await anyio.to_thread.run_sync(self._people.log_out, person, gone)
            await answer(message)

        try:
            refusal: Refusal | None = None
            for _ in range(_TRIES if scope["method"] in _SAFE and not _has_body(headers) else 1):
                async with self._processes.use(person) as process:
                    refusal = await _passed_on(process, scope, headers, receive, told)
                if refusal is None:
                    break
            return refusal
        except SatchelError as error:
            return Refusal(status_of(error), str(error), ((b"retry-after", b"5"),))

    def _is_doors_own(self, scope: Scope) -> bool:
        """Whether the door answers what a browser that is logged in asks for."""
        return _PERSON in scope and self._has_passkeys and scope["path"].partition("?")[0].startswith(PATH)

    def _whose(self, scope: Scope) -> tuple[Person | None, list[Header]]:
        """Who asks, and the headers without anybody's token; a token of the person is where the process's will be.

        The tokens come first, as in the gate, which has admitted the request for one of both. What stays is a key of a
        model provider, which the process passes on.
        """
        person, headers = None, []
        for name, value in scope["headers"]:
            if name not in _CREDENTIALS:
                headers.append((name, value))
                continue
            text = value.decode("latin-1").strip()
            found = self._people.with_token(
                text.partition(" ")[2].strip() if name == _AUTHORIZATION else text
            )
            if found is None:
                if text and name != TOKEN_HEADER:
                    headers.append((name, value))
            elif person is None and self._has_token({**scope, "headers": [(name, value)]}):
                person = found
                headers.append((name, _HERE))
        return person or scope.get(_PERSON), headers

    async def _is_full(self, person: Person, scope: Scope) -> bool:
        if person.disk_mb is None or scope["method"] in (*_SAFE, "DELETE") or _FREES.match(scope["path"]):
            return False
        now_s = self._clock.monotonic_s()
        at_s, used = self._measured.get(person.name, (-_MEASURED_S, 0.0))
        if now_s - at_s >= _MEASURED_S or used > person.disk_mb:  # they may just have made room
            used = await anyio.to_thread.run_sync(used_mb, self._processes.settings.home, person)
            self._measured[person.name] = (now_s, used)
        return used > person.disk_mb


async def _passed_on(
    process: PersonProcess, scope: Scope, headers: list[Header], receive: Receive, send: Send
) -> Refusal | None:
    """Pass a request on, and its answer back as it comes. A client that leaves ends it there as well."""
    has_begun = is_stalled = False
    async with anyio.create_task_group() as group:
        is_sent = anyio.Event()

        async def body() -> AsyncIterator[bytes]:
            nonlocal is_stalled
            more = True
            while more:
                message = await next_piece(receive)
                if message is None:
                    is_stalled = True
                    raise httpx2.WriteError("The client sends no more.")
                if message["type"] == "http.disconnect":
                    group.cancel_scope.cancel()
                    await anyio.sleep_forever()
                yield message.get("body", b"")
                more = message.get("more_body", False)
            is_sent.set()

        async def leave() -> None:
            await is_sent.wait()
            await until_gone(receive)
            group.cancel_scope.cancel()

        has_body = _has_body(headers)
        if not has_body:
            is_sent.set()
        group.start_soon(leave)
        try:
            request = _request(process, scope, headers, body() if has_body else None)
            answer = await process.client.send(request, stream=True)
            try:
                has_begun = True
                await _pass_back(process, answer, send)
            finally:
                with anyio.CancelScope(shield=True):
                    await answer.aclose()
        except (httpx2.InvalidURL, UnicodeError):  # such as * and http://other/
            return Refusal(400, "That is no path of this server.")
        except httpx2.HTTPError:
            if not has_begun:
                return too_slow() if is_stalled else Refusal(502, _BROKEN)
            # Otherwise the answer stays without its end, and the server closes the connection: the client sees the cut.
        finally:
            group.cancel_scope.cancel()
    return None


def _has_body(headers: list[Header]) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


def _request(
    process: PersonProcess, scope: Scope, headers: list[Header], content: AsyncIterator[bytes] | None
) -> httpx2.Request:
    token, client = process.token.encode(), scope["client"][0] if scope.get("client") else ""
    passed = [(name, value) for name, value in headers if name not in _SET_HERE]
    passed = [
        (
            name,
            (b"Bearer " + token if name == _AUTHORIZATION else token) if value is _HERE else value,
        )
        for name, value in passed
    ]
    passed += [(b"x-forwarded-for", client.encode()), (b"x-forwarded-proto", scope["scheme"].encode())]
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    url = process.client.base_url.copy_with(raw_path=scope["raw_path"] + query)
    return httpx2.Request(scope["method"], url, headers=passed, content=content)


async def _pass_back(process: PersonProcess, answer: httpx2.Response, send: Send) -> None:
    headers = [
        (name.lower(), value)
        for name, value in answer.headers.raw
        if name.lower() not in OF_CONNECTION and name.lower() != b"date"
    ]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    async for piece in answer.aiter_raw():
        if not piece.startswith(b":"):  # a comment keeps a stream open, and says nothing
            process.used()
        if not await sent(send, piece):
            return
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass(slots=True)
class _LogIn:
    """Checks names and passwords, and has the person's own process log the browser in."""

    processes: PersonProcesses
    clock: Clock
    passkeys: Passkeys | None = None
    tries: Rates = field(default_factory=login_tries)
    limiter: anyio.CapacityLimiter = field(default_factory=partial(anyio.CapacityLimiter, _CHECKS_AT_ONCE))

    def page(self, request: Request, next: str, **more: Any) -> Response:
        """The page that asks who is there."""
        return login_page(request, next, people=True, passkeys=self.passkeys is not None, **more)

    async def ask(self, request: Request) -> Response:
        """The same, for a browser that comes."""
        return self.page(request, request.query_params.get("next", "/"))

    def too_many(self, request: Request) -> Response | None:
        """The refusal of somebody who tries again and again."""
        wait_s = self.tries.take(client_of(request.scope), self.clock.monotonic_s())
        if not wait_s:
            return None
        busy = error_page(request.scope, 429, "Too many attempts to log in. Try again later.")
        busy.headers["retry-after"] = str(max(1, round(wait_s)))
        return busy

    async def begin_with_passkey(self, request: Request) -> Response:
        """What a browser needs to prove that it has a passkey."""
        assert self.passkeys is not None
        return self.too_many(request) or await self.passkeys.ask(request)

    async def log_in_with_passkey(self, request: Request) -> Response:
        """Log in with a passkey; the answer says where to go on."""
        assert self.passkeys is not None
        if busy := self.too_many(request):
            return busy
        person = await self.passkeys.prove(request)
        if person is None:
            return JsonAnswer({"detail": "That passkey is not known here."}, status_code=403)
        answer = await self._let_in(person, request, local_path(request.query_params.get("next", "/")))
        if answer.status_code != _LOGGED_IN:
            return answer
        headers = {"set-cookie": answer.headers["set-cookie"]}
        return JsonAnswer({"path": answer.headers["location"]}, headers=headers)

    async def log_in(self, request: Request) -> Response:
        """Log in with a name and its password."""
        form = await form_of(request)
        next = local_path(form.get("next", "/"))
        if busy := self.too_many(request):
            return busy
        check = partial(self.processes.people.with_password, form.get("name"), form.get("password"))
        person = await anyio.to_thread.run_sync(check, limiter=self.limiter)
        if person is None:
            return self.page(request, next, error=_WRONG, status=403)
        return await self._let_in(person, request, next)

    async def _let_in(self, person: Person, request: Request, next: str) -> Response:
        try:
            async with self.processes.use(person) as process:
                answer, value = await _logged_in(process, request, next)
        except (SatchelError, httpx2.HTTPError) as error:
            detail = str(error) if isinstance(error, SatchelError) else _BROKEN
            return error_page(request.scope, 503, detail)
        await anyio.to_thread.run_sync(self.processes.people.log_in, person, value, self.clock.now())
        return answer


async def _logged_in(process: PersonProcess, request: Request, next: str) -> tuple[Response, str]:
    """The process's own answer to a log-in by a link that works once, and what the browser will send."""
    scope = {**request.scope, "method": "POST", "raw_path": b"/login/link", "query_string": b""}
    told = [
        (name, value)
        for name, value in request.scope["headers"]
        if name in (b"host", b"accept", b"user-agent")
    ]
    made = await process.client.send(_request(process, scope, [*told, (_AUTHORIZATION, _HERE)], None))
    path, _, query = made.raise_for_status().json()["path"].partition("?")
    scope |= {
        "method": "GET",
        "raw_path": path.encode(),
        "query_string": f"{query}&next={quote(next, safe='')}".encode(),
    }
    done = await process.client.send(_request(process, scope, told, None))
    cookie = _VALUE.match(done.headers.get("set-cookie", ""))
    if cookie is None:
        raise httpx2.RemoteProtocolError("The process logs nobody in.")
    headers = {"set-cookie": done.headers["set-cookie"]}
    return RedirectResponse(done.headers["location"], 303, headers), cookie[1]


def _passkey_routes(passkeys: Passkeys | None, log_in: _LogIn) -> list[Route]:
    if passkeys is None:
        return []

    def own(answer: Callable[[Request, Person], Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
        async def asked(request: Request) -> Response:
            person = request.scope.get(_PERSON)
            return (
                await answer(request, person) if person else error_page(request.scope, 403, "Log in first.")
            )

        return asked

    return [
        Route("/login/passkey/begin", log_in.begin_with_passkey, methods=["POST"]),
        Route("/login/passkey", log_in.log_in_with_passkey, methods=["POST"]),
        Route(PATH, own(passkeys.page), methods=["GET"]),
        Route(f"{PATH}/begin", own(passkeys.begin), methods=["POST"]),
        Route(f"{PATH}/add", own(passkeys.add), methods=["POST"]),
        Route(f"{PATH}/remove", own(passkeys.remove), methods=["POST"]),
    ]


async def _healthz(_: Request) -> Response:
    return JsonAnswer({"status": "ok"})


async def _asset(request: Request) -> Response:
    return await asset_answer(request.path_params["version"], request.path_params["name"], request.headers)


async def _icon(_: Request) -> Response:
    return RedirectResponse(asset_url("icon.svg"), 301)
