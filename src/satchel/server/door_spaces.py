"""The front door's second entrance, for people's processes that ask for what their people share (decision 153).

It listens on a Unix socket. What follows from a person's door token says who asks; the table of people says which
spaces these are and what each member may do. The space's own process is asked with the door's token for it, for memory
only: nothing else of it can be reached.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from hmac import compare_digest
from typing import Any, Final, TypeVar
from urllib.parse import quote

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from satchel.clock import Clock
from satchel.errors import NotFound, Refused, SatchelError, StorageUnwritable, UsageError
from satchel.memory.toolset import MOST_SHARED_CHARS
from satchel.runtime.memberships import accept, invite, make_space, space_of, spaces_of, take_out
from satchel.runtime.people import Person, owner_of
from satchel.runtime.person_homes import remove_person, used_mb
from satchel.runtime.person_processes import PersonProcesses
from satchel.runtime.server_api import ServerApi
from satchel.server.json_answers import JsonAnswer
from satchel.server.problems import problem_fields, problem_of

T = TypeVar("T")
_MOST_BODY_BYTES: Final = 1_000_000
_FOUND: Final = 50
_MOST_FOUND: Final = 1_000


def spaces_entrance(processes: PersonProcesses, *, clock: Clock) -> Starlette:
    """The ASGI application."""
    door = _Entrance(processes, clock)
    ways: list[tuple[str, str, Callable[[Request, Person], Awaitable[Any]]]] = [
        ("GET", "/spaces", door.list),
        ("POST", "/spaces/{space}", door.make),
        ("DELETE", "/spaces/{space}", door.delete),
        ("POST", "/spaces/{space}/accept", door.accept),
        ("POST", "/spaces/{space}/members/{who}", door.invite),
        ("DELETE", "/spaces/{space}/members/{who}", door.take_out),
        ("GET", "/memories", door.memories),
        ("POST", "/memories/{space}", door.add),
        ("DELETE", "/memories/{space}/{id}", door.forget),
        ("POST", "/search", door.search),
        ("POST", "/surface", door.surface),
    ]
    return Starlette(
        routes=[
            Route(path, partial(door.answered, answer), methods=[method]) for method, path, answer in ways
        ],
        exception_handlers={HTTPException: _no_such_way},
    )


async def _no_such_way(_: Request, error: Exception) -> Response:
    """The answer where no way fits, such as for a name with a slash in it."""
    assert isinstance(error, HTTPException)
    return JsonAnswer(
        problem_fields(error.status_code, "There is no such space or memory."), status_code=error.status_code
    )


class _Entrance:
    def __init__(self, processes: PersonProcesses, clock: Clock) -> None:
        self._processes = processes
        self._people = processes.people
        self._clock = clock
        self._making = anyio.Lock()  # how many somebody owns is counted before another is made

    async def answered(
        self, answer: Callable[[Request, Person], Awaitable[Any]], request: Request
    ) -> Response:
        """The answer to a request, whoever asks."""
        try:
            await self._processes.fresh()
            return JsonAnswer(await answer(request, self._asking(request)))
        except SatchelError as error:
            problem = problem_of(error)
            return JsonAnswer(problem, status_code=problem["status"])

    def _asking(self, request: Request) -> Person:
        _, name, token = (request.headers.get("authorization", "").split(" ") + ["", ""])[:3]
        found = self._people.persons().get(name)
        if found is None or found.leaving:
            raise Refused("Nobody of this name is here.")
        if not compare_digest(token.encode(), self._people.spaces_token(found).encode()):
            raise Refused(
                f"This isn't let in as {name}'s: if the password has changed, open Satchel in a browser, and try again."
            )
        return found

    async def list(self, _: Request, who: Person) -> Any:
        found = spaces_of(self._people, who.name, invited=True)
        return [
            {"name": name, "you": space.members[who.name], "members": space.members}
            for name, space in sorted(found.items())
        ]

    async def make(self, request: Request, who: Person) -> Any:
        async with self._making:
            await _in_thread(
                partial(make_space, self._processes.settings, self._people, _named(request, "space"), who)
            )
        return {}

    async def delete(self, request: Request, who: Person) -> Any:
        space = space_of(self._people, _named(request, "space"), who.name, owner=True)
        await _in_thread(partial(remove_person, self._processes.settings, space, clock=self._clock))
        return {}

    async def accept(self, request: Request, who: Person) -> Any:
        space = space_of(self._people, _named(request, "space"), who.name, invited=True)
        await _in_thread(partial(accept, self._people, space, who.name))
        return {}

    async def invite(self, request: Request, who: Person) -> Any:
        space = space_of(self._people, _named(request, "space"), who.name, owner=True)
        await _in_thread(partial(invite, self._people, space, _named(request, "who")))
        return {}

    async def take_out(self, request: Request, who: Person) -> Any:
        space = space_of(self._people, _named(request, "space"), who.name, invited=True)
        await _in_thread(partial(take_out, self._people, space, _named(request, "who"), by=who.name))
        return {}

    async def memories(self, request: Request, who: Person) -> Any:
        limit, asked = _limit(request.query_params.get("limit")), request.query_params.get("space")

        async def list_(api: ServerApi) -> Any:
            found = await api.get("/api/memories", limit=limit)
            return [{"memory": one, "score": 0.0} for one in found]

        only = self._only(asked, who)
        return await self._all(who, list_, only=only, best=lambda one: one["memory"]["said_at"], limit=limit)

    async def search(self, request: Request, who: Person) -> Any:
        given = await _body(request)
        limit, query = _limit(given.get("limit")), str(given.get("query", ""))

        async def search(api: ServerApi) -> Any:
            return await api.get("/api/memories/search", q=query, limit=limit, relevant_only=True)

        only = self._only(given.get("space"), who)
        return await self._all(who, search, only=only, best=lambda one: one["score"], limit=limit)

    async def surface(self, request: Request, who: Person) -> Any:
        given = await _body(request)
        limit = _limit(given.get("limit"))

        async def surface(api: ServerApi) -> Any:
            known = [str(id).partition("/")[2] for id in given.get("exclude", ())]
            asked = {name: given[name] for name in ("messages", "budget_tokens") if name in given}
            shown = await api.post("/api/context", {**asked, "limit": limit, "exclude": known})
            return [
                {"memory": await api.get(f"/api/memories/{one['id']}"), "score": one["score"]}
                for one in shown["memories"]
            ]

        return await self._all(who, surface, best=lambda one: one["score"], limit=limit)

    async def add(self, request: Request, who: Person) -> Any:
        space = space_of(self._people, _named(request, "space"), who.name)
        given = await _body(request)
        content = given.get("content")
        if not isinstance(content, str) or not content.strip() or len(content) > MOST_SHARED_CHARS:
            raise UsageError(f"What is shared has 1 to {MOST_SHARED_CHARS:,} characters.")
        home = self._processes.settings.home
        if space.disk_mb is not None and await _in_thread(partial(used_mb, home, space)) > space.disk_mb:
            raise StorageUnwritable(f"{space.name} is full: it may have {space.disk_mb:,} MB.")
        async with self._asked(space) as api:
            return await api.post(
                "/api/memories",
                {"content": content, "speaker": who.name, "trust": given.get("trust", "user")},
            )

    async def forget(self, request: Request, who: Person) -> Any:
        space = space_of(self._people, _named(request, "space"), who.name)
        async with self._asked(space) as api:
            found = await api.get(f"/api/memories/{quote(_named(request, 'id'), safe='')}")
            if "speaker" not in found:  # such as /api/memories/stats
                raise NotFound("There is no such memory.")
            owner = owner_of(space.members)
            if who.name not in (found["speaker"], owner):
                others = "" if found["speaker"] == owner else f", or {owner}, who owns the space"
                raise Refused(f"{found['speaker']} wrote that. Only they may forget it{others}.")
            await api.delete(f"/api/memories/{found['id']}")
            return found

    def _only(self, name: object, who: Person) -> Person | None:
        return None if name is None else space_of(self._people, str(name), who.name)

    async def _all(
        self,
        who: Person,
        ask: Callable[[ServerApi], Awaitable[Any]],
        *,
        best: Callable[[Mapping[str, Any]], Any],
        limit: int,
        only: Person | None = None,
    ) -> Any:
        """Ask each space of a person, or only one, at the same time."""
        hits: list[dict[str, Any]] = []
        away: list[str] = []

        async def one(space: Person) -> None:
            try:
                async with self._asked(space) as api:
                    hits.extend({**found, "space": space.name} for found in await ask(api))
            except SatchelError:
                away.append(space.name)

        async with anyio.create_task_group() as group:
            for space in [only] if only is not None else spaces_of(self._people, who.name).values():
                group.start_soon(one, space)
        return {"hits": sorted(hits, key=best, reverse=True)[:limit], "away": sorted(away)}

    @asynccontextmanager
    async def _asked(self, space: Person) -> AsyncIterator[ServerApi]:
        async with self._processes.use(space) as process:
            yield ServerApi(process.client)


async def _in_thread(call: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(call)


async def _body(request: Request) -> Mapping[str, Any]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BODY_BYTES:
            raise UsageError(f"The request is longer than {_MOST_BODY_BYTES:,} bytes.")
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError("The request is no JSON object.")
    return found


def _limit(given: object) -> int:
    if given is None:
        return _FOUND
    try:
        return min(max(int(str(given)), 1), _MOST_FOUND)
    except ValueError:
        raise UsageError("`limit` is a number from 1.") from None


def _named(request: Request, name: str) -> str:
    found: str = request.path_params[name]
    return found
