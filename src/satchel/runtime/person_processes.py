"""The processes of people: each person's Satchel, started when it is asked for and ended when it is idle."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import httpx2

from satchel import version
from satchel.clock import Clock
from satchel.config import Settings
from satchel.config.home import ensure_home
from satchel.errors import ConfigError, ServerUnavailable, StorageError
from satchel.runtime.people import USERS, People, Person
from satchel.runtime.person_homes import PASSED, environ_of, folder_of, settle
from satchel.sandbox.original import Copy, Original

_MODULES: Final = ("satchel.cli.serve", "satchel.server.app", "satchel.server.listening", "psycopg")
"""What loads nearly all that a person's process needs."""
_BACKLOG: Final = 128
_MOST_PATH_BYTES: Final = 100
"""Of a Unix socket's address, which the kernel limits to 108, on other systems 104."""
_LOOK_S: Final = 1.0
_ANSWERS_S: Final = 10.0
"""A process that says nothing for so long is taken for one that hangs, and not for one that works on a busy machine."""
_READY_S: Final = 120.0
_AGAIN_S: Final = 15.0
"""How long the process of a front door that was killed may take to end, before the home is free for a new one."""
_PAUSE_S: Final = 0.3
_STOP_S: Final = 12.0
_STAYS_S: Final = 60.0
"""A process that was used within this time is not ended for another one while it has open requests."""
_WRITE_S: Final = 60.0
_RUNNING: Final = re.compile(r"^satchel_turns_running ([1-9])", re.MULTILINE)


@dataclass(slots=True, kw_only=True, eq=False)
class PersonProcess:
    """A process that runs.

    Attributes:
        token: What it asks for.
        client: Reaches it, with its token; it listens on a Unix socket in a folder that only the front door can enter.
        open: How many requests it is answering.
        used_s: When it was last asked or said something.
    """

    person: Person
    process: Copy
    token: str
    client: httpx2.AsyncClient
    path: Path
    used_s: float
    clock: Clock
    open: int = 0
    ends: bool = False

    def used(self) -> None:
        """Note that it was asked or said something."""
        self.used_s = self.clock.monotonic_s()


@dataclass(slots=True)
class PersonProcesses:
    """At most `server.people_at_once` processes, at most one for each person.

    Attributes:
        settings: The administrator's.
        url: Where the front door is reached.
    """

    settings: Settings
    people: People
    clock: Clock
    url: str
    _original: Original = field(init=False)
    _running: dict[str, PersonProcess] = field(default_factory=dict)
    _locks: dict[str, anyio.Lock] = field(default_factory=dict)
    _room: anyio.Lock = field(default_factory=anyio.Lock)
    _reading: anyio.Lock = field(default_factory=anyio.Lock)
    _read_s: float = -math.inf

    def __post_init__(self) -> None:
        given = self.settings.environ
        environ = {name: given[name] for name in PASSED if name in given}
        self._original = Original(_MODULES, environ, Path(version.__file__))

    @asynccontextmanager
    async def use(self, person: Person) -> AsyncIterator[PersonProcess]:
        """The person's process, which is started if it doesn't run; it isn't ended for idleness meanwhile.

        Raises:
            ServerUnavailable: It doesn't start, or as many as may run are at work.
            SandboxError: It can't be started.
        """
        async with self._locks.setdefault(person.name, anyio.Lock()):
            found = self._running.get(person.name)
            if (
                found is None
                or found.process.has_ended
                or found.ends
                or _needs(found.person) != _needs(person)
            ):
                if found is not None:
                    await self._end(found)
                found = await self._started(person)
            found.open += 1
        found.used()
        try:
            yield found
        finally:
            found.open -= 1

    async def sweep(self) -> None:
        """End what is idle, what died, and those of people who leave or have a new password; until it is cancelled."""
        await anyio.to_thread.run_sync(self._original.load)  # so that the first who come don't wait for it
        while True:
            await anyio.sleep(_LOOK_S)
            with suppress(StorageError):
                await self.fresh()
            known, idle_s = self.people.all(), self.settings.server.people_idle_s
            for one in list(self._running.values()):
                now = known.get(one.person.name)
                is_idle = not one.open and self.clock.monotonic_s() - one.used_s > idle_s
                leaves = now is None or now.leaving or now.stamp != one.person.stamp or one.process.has_ended
                if leaves or (is_idle and not await self._is_working(one)):
                    await self._end(one)

    async def fresh(self) -> None:
        """Know what other processes and machines have changed about people until now. Errors as in `People.refresh`."""
        if not self.people.is_shared:
            return  # a file is looked at whenever somebody is asked for
        came_s = self.clock.monotonic_s()
        async with self._reading:
            if self._read_s <= came_s:  # otherwise another request has asked since then
                began_s = self.clock.monotonic_s()
                await anyio.to_thread.run_sync(self.people.refresh)
                self._read_s = began_s

    async def aclose(self) -> None:
        """End all of them."""
        async with anyio.create_task_group() as group:
            for one in list(self._running.values()):
                group.start_soon(self._end, one)
        self._original.close()

    async def _started(self, person: Person) -> PersonProcess:
        give_up_s = self.clock.monotonic_s() + _AGAIN_S
        while True:
            async with self._room:
                await self._make_room()
                started = await self._start(person)
                self._running[person.name] = started
            if await self._is_ready(started):
                started.open -= 1
                return started
            await self._end(started)
            if self.clock.monotonic_s() > give_up_s:
                raise ServerUnavailable(
                    f"The Satchel of {person.name} doesn't start. Why is in {self._log(person)}, which the "
                    "administrator can read."
                )
            await anyio.sleep(_PAUSE_S)

    async def _start(self, person: Person) -> PersonProcess:
        folder = ensure_home(self.settings.home / "door")
        path = folder / str(person.number)
        if len(str(path).encode()) > _MOST_PATH_BYTES:
            raise ConfigError(f"{path} is too long for a socket. Use a SATCHEL_HOME with a shorter path.")
        person = await anyio.to_thread.run_sync(settle, self.settings, person, self.people)
        path.unlink(missing_ok=True)
        token = self.people.door_token(person)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            # It is made here and inherited: the folder stays closed to the process. Only the process keeps it, so that
            # whoever waits for it learns that it died.
            listener.bind(str(path))
            listener.listen(_BACKLOG)
            start = partial(
                self._original.start,
                ("satchel", "serve", "--url", self.url, *self._spaces(person), "--fd"),
                cwd=folder_of(self.settings.home, person),
                environ=environ_of(self.settings, person) | self._hosts(),
                log=self._log(person),
                uid=person.uid,
                fd=listener.fileno(),
                first_line=token,
            )
            process = await anyio.to_thread.run_sync(start)
        client = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(
                uds=str(path), limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20)
            ),
            base_url="http://satchel",
            headers={"authorization": f"Bearer {token}", "host": "localhost"},
            # A stream may say nothing for long; whether the process lives is seen without a time limit.
            timeout=httpx2.Timeout(connect=_READY_S, read=None, write=_WRITE_S, pool=None),
            trust_env=False,
        )
        return PersonProcess(
            person=person,
            process=process,
            token=token,
            client=client,
            path=path,
            used_s=self.clock.monotonic_s(),
            clock=self.clock,
            open=1,  # until it has started, so that it isn't taken for idle
        )

    def _spaces(self, person: Person) -> tuple[str, ...]:
        return () if person.is_space else ("--spaces", str(spaces_socket(self.settings.home)))

    def _hosts(self) -> dict[str, str]:
        """The names by which clients may address the front door, which has checked them."""
        server = self.settings.server
        names = (*server.allowed_hosts, server.host, self.url.partition("://")[2].rpartition(":")[0])
        return {"SATCHEL_SERVER_HOST": "127.0.0.1", "SATCHEL_SERVER_ALLOWED_HOSTS": ",".join(names)}

    async def _is_ready(self, one: PersonProcess) -> bool:
        with anyio.move_on_after(_READY_S), suppress(httpx2.HTTPError):
            return (await one.client.get("/healthz")).is_success
        return False

    async def _is_working(self, one: PersonProcess) -> bool:
        """Whether a turn runs, which may go on though its client has left."""
        return bool(_RUNNING.search(await self._figures(one)))

    @property
    def running(self) -> frozenset[str]:
        """Whose process runs."""
        return frozenset(self._running)

    async def figures(self) -> dict[str, str]:
        """The figures of each process that runs, in the format of Prometheus, by the person's name.

        Asking keeps no process from ending for idleness.
        """
        found: dict[str, str] = {}

        async def ask(name: str, one: PersonProcess) -> None:
            if text := await self._figures(one):
                found[name] = text

        async with anyio.create_task_group() as group:
            for name, one in self._running.items():
                group.start_soon(ask, name, one)
        return dict(sorted(found.items()))

    async def _figures(self, one: PersonProcess) -> str:
        with anyio.move_on_after(_ANSWERS_S), suppress(httpx2.HTTPError):
            return (await one.client.get("/metrics")).text
        return ""

    async def _make_room(self) -> None:
        while len(self._running) >= self.settings.server.people_at_once:
            now_s = self.clock.monotonic_s()
            for one in sorted(self._running.values(), key=lambda each: (each.open > 0, each.used_s)):
                is_in_use = one.open > 0 and now_s - one.used_s < _STAYS_S
                if not one.ends and not is_in_use and not await self._is_working(one):
                    await self._end(one)
                    break
            else:
                raise ServerUnavailable(
                    "As many people as this server has room for are at work. Try again in a minute. The administrator "
                    "can raise server.people_at_once."
                )

    async def _end(self, one: PersonProcess) -> None:
        one.ends = True
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(self._original.end, one.process, wait_s=_STOP_S))
            await one.client.aclose()
            if self._running.get(one.person.name) is one:
                del self._running[one.person.name]
                one.path.unlink(missing_ok=True)

    def _log(self, person: Person) -> Path:
        return self.settings.home / "logs" / f"{person.name}.log"


def spaces_socket(home: Path) -> Path:
    """Where the front door of an administrator's home listens for people's processes that ask for their spaces."""
    return home / USERS / ".spaces"


def _needs(person: Person) -> tuple[object, ...]:
    """What a process is told at its start: with another value, it is started anew."""
    return person.stamp, person.number, person.uid, person.day_usd, person.own_keys, person.database
