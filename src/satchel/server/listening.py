"""Runs the application: binds the address, serves until it is told to stop, and stops in good order."""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import signal
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import uvicorn
from starlette.types import ASGIApp

from satchel.clock import SystemClock
from satchel.config import ServerSettings, Settings, mask_text
from satchel.errors import ConfigError, UsageError
from satchel.runtime import Satchel
from satchel.runtime.lines import counted
from satchel.runtime.people import USERS
from satchel.runtime.person_homes import folder_of, is_apart, people_of, separation, settle
from satchel.runtime.person_processes import PersonProcesses, spaces_socket
from satchel.runtime.serving import DOOR_FILE, HOOKS_FILE, SERVE_FILE, announced, ensure_token
from satchel.runtime.turns import TURN
from satchel.server.binding import check_binding, tls_files, url_of
from satchel.server.connection import GuardedConnection
from satchel.server.door import front_door
from satchel.server.door_spaces import spaces_entrance
from satchel.server.passkeys import has_passkeys

if TYPE_CHECKING:
    from satchel.server.app import App

_STOP_TURNS_S: Final = 4.0
"""The ends of turns are written within two or three seconds, see `SessionHub`; a tool that doesn't stop is left."""
_STOP_REQUESTS_S: Final = 2
"""For short requests that are being answered. Streams have ended by then, and half a request is waited for in vain."""
_CLOSE_S: Final = 1.0
_LAST_S: Final = 0.3
"""What the processes of people said last reaches their clients."""
_KEEP_ALIVE_S: Final = 15
_BACKLOG: Final = 512
_MOST_CONNECTIONS: Final = 8192
_LOG_BYTES: Final = 5_000_000


async def serve(
    satchel: Satchel,
    *,
    tell: Callable[[str], None],
    offer_login: Callable[[str], Awaitable[None]] | None = None,
    inherited: int | None = None,
    given: FrontDoorSocket | None = None,
) -> int | None:
    """Serve until SIGTERM or SIGINT, or until a page asks for a restart. A second signal exits without waiting for
    running work.

    Args:
        satchel: Stays open while this runs.
        tell: Called with a line for the user: the address, and later that the server stops.
        offer_login: Called with an address that logs in one browser within ten minutes; not after a restart.
        inherited: The socket of the server before this one, which a restart left open so that clients wait instead of
            being refused.
        given: What the front door of several people gives; None listens where the settings say.

    Returns:
        None, or the socket for the server that is to start in place of this one, which with `given` is the front door's
        task.

    Raises:
        ConfigError: The server may not listen where the settings say, or the token can't be used.
        UsageError: The port is taken, or another server of this home is running.
        StorageUnwritable: A file in the home can't be written.
    """
    home = satchel.settings.home
    with ExitStack() as stack:
        listener = given.listener if given is not None else None
        if listener is None:
            listener = stack.enter_context(_listening(satchel.settings.server, home, inherited))
        async with served(satchel, listener=listener, given=given) as (url, app):
            if given is None:
                tell(f"Satchel listens at {url}. Clients need the token in {home / 'token'}.")
            if offer_login is not None and inherited is None:
                code = await anyio.to_thread.run_sync(app.browsers.make_code)
                await offer_login(f"{url}/login?code={code}")
            restart = app.service.stopping.restart = anyio.Event()
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async with anyio.create_task_group() as group:

                    async def told() -> None:
                        async for _ in signals:
                            break
                        group.cancel_scope.cancel()

                    group.start_soon(told)
                    await restart.wait()
                    group.cancel_scope.cancel()
                running = app.service.sessions.running
                tell(
                    f"{'Restarting' if restart.is_set() else 'Stopping'}"
                    f"{f': interrupting {running} turn' if running else ''}{'s' if running > 1 else ''}."
                )
                async with anyio.create_task_group() as group:

                    async def hurry() -> None:
                        async for _ in signals:
                            group.cancel_scope.cancel()

                    group.start_soon(hurry)
                    await stop(app)
                    group.cancel_scope.cancel()
            if given is not None or not restart.is_set():
                return None
            kept = listener.dup()
    kept.set_inheritable(True)
    return kept.detach()


async def serve_hooks(satchel: Satchel, *, idle_s: float) -> None:
    """Serve the hooks of other agents until they have asked nothing for `idle_s` seconds, or up to twice as long.

    Raises:
        UsageError: Another process of this home does.
        ConfigError, StorageUnwritable: As in `serve`.
    """
    async with served(satchel, file=HOOKS_FILE) as (_, app):
        seen = -1
        while seen != (asked := app.service.metrics.requests):
            seen = asked
            await anyio.sleep(idle_s)


async def stop(app: App) -> None:
    """Stop the application; a turn that doesn't end in time is left to the closing of its session."""
    with anyio.move_on_after(_STOP_TURNS_S):
        await app.stop()
    app.service.stopping.end_streams()


async def serve_people(
    settings: Settings, *, tell: Callable[[str], None], inherited: int | None = None
) -> None:
    """Be the front door of several people until SIGTERM or SIGINT; then end their processes. `inherited` and errors
    are as in `serve`.
    """
    server_settings, home, clock = settings.server, settings.home, SystemClock()
    people = people_of(settings)
    (home / USERS).mkdir(mode=0o700, exist_ok=True)  # it says that there are people, while the server is away
    for person in people.all().values():
        if (
            not people.is_shared or folder_of(home, person).exists()
        ):  # otherwise with the person's first request here
            settle(settings, person, people)
    with ExitStack() as stack:
        stack.enter_context(_logging_to(home / "logs" / "server.log"))
        listener = stack.enter_context(_listening(server_settings, home, inherited))
        url = url_of(server_settings, listener.getsockname()[1])
        stack.enter_context(announced(home, url, file=DOOR_FILE))
        processes = PersonProcesses(settings, people, clock, url)
        spaces = stack.enter_context(_listening_for_spaces(home))
        servers = {
            listener: _Server(_config(front_door(processes, clock=clock), server_settings, home)),
            spaces: _Server(_config(spaces_entrance(processes, clock=clock), None, home)),
        }
        tell(
            f"Satchel listens at {url}, for {counted(len(people.persons()), 'person', 'people')}. {separation()}"
        )
        async with anyio.create_task_group() as group:
            group.start_soon(processes.sweep)
            for at, server in servers.items():
                group.start_soon(server.serve, [at])
            try:
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    async for _ in signals:
                        break
                tell("Stopping.")
            finally:
                with anyio.CancelScope(shield=True):
                    await processes.aclose()  # their streams end first, with the last words
                    for server in servers.values():
                        server.should_exit = True
                    await anyio.sleep(_LAST_S)
                group.cancel_scope.cancel()


@asynccontextmanager
async def served(
    satchel: Satchel,
    *,
    file: str = SERVE_FILE,
    listener: socket.socket | None = None,
    given: FrontDoorSocket | None = None,
) -> AsyncIterator[tuple[str, App]]:
    """Serve while the block runs; gives the address and the application. `file` says where it listens; without a
    `listener`, one is made. Errors as in `serve`.
    """
    # The front door of several people serves no home, and starts a second sooner without it.
    from satchel.server.app import create_app  # noqa: PLC0415

    settings, home = satchel.settings.server, satchel.settings.home
    token = given.token if given is not None else ensure_token(home)
    with ExitStack() as stack:
        stack.enter_context(_logging_to(home / "logs" / "server.log"))
        listener = listener or stack.enter_context(_listening(settings, home))
        url = given.url if given is not None else url_of(settings, listener.getsockname()[1])
        stack.enter_context(announced(home, url, file=file))
        app = create_app(satchel, token=token)
        app.api.state.pages.person = satchel.settings.environ.get("USER", "") if given is not None else ""
        app.api.state.pages.has_passkeys = given is not None and has_passkeys()
        server = _Server(_config(app.gate, None if given is not None else settings, home))
        async with anyio.create_task_group() as group:
            group.start_soon(app.service.sessions.sweep)
            group.start_soon(satchel.sessions.first_look)
            if satchel.sessions.is_shared:
                group.start_soon(app.service.sessions.hand_over, app.passing_on.carry_out)
            # Capture what hooks of other agents queued while no server was running.
            app.service.queue.notify()
            ended = anyio.Event()

            async def run() -> None:
                try:
                    await server.serve([listener])
                finally:
                    ended.set()

            group.start_soon(run)
            try:
                yield url, app
            finally:
                with anyio.CancelScope(shield=True):
                    if not app.service.stopping.has_begun:
                        await stop(app)
                    app.service.stopping.end_streams()
                    server.should_exit = True
                    with anyio.move_on_after(_STOP_REQUESTS_S + 1):
                        await ended.wait()
                    with anyio.move_on_after(_CLOSE_S):
                        await app.aclose()
                group.cancel_scope.cancel()


class FrontDoorSocket(NamedTuple):
    """What a person's process gets from the front door: its socket, what clients send, and where they find it."""

    listener: socket.socket
    token: str
    url: str


class _Server(uvicorn.Server):
    """Leaves the signals to `serve`, which stops the turns first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _config(gate: ASGIApp, settings: ServerSettings | None, home: Path) -> uvicorn.Config:
    """`settings` None: the front door speaks TLS, and says who its client is and how it came."""
    tls: dict[str, Any] = {}
    if settings is not None and settings.tls_cert:
        cert, key = tls_files(settings, home)
        tls = {"ssl_certfile": str(cert), "ssl_keyfile": str(key)}
    return uvicorn.Config(
        gate,
        http=GuardedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=settings is None,
        forwarded_allow_ips="*",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_REQUESTS_S,
        limit_concurrency=_MOST_CONNECTIONS,
        backlog=_BACKLOG,
        **tls,
    )


@contextlib.contextmanager
def _listening(
    settings: ServerSettings, home: Path, inherited: int | None = None
) -> Generator[socket.socket, None, None]:
    """A socket that listens where the settings say."""
    check_binding(settings, home)
    _allow_many_files()
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"server.host is {settings.host!r}, which is no address of this machine: {error}."
        ) from error
    if inherited is not None:
        with socket.socket(fileno=inherited) as listener:
            listener.set_inheritable(False)
            listener.setblocking(False)
            bound = listener.getsockname()
            if bound[0] == address[0] and settings.port in (0, bound[1]):
                yield listener
                return
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise UsageError(
                f"The server can't listen on {settings.host} port {settings.port}: {error.strerror}. To use "
                "another port: satchel serve --port PORT"
            ) from error
        listener.setblocking(False)
        yield listener


@contextlib.contextmanager
def _listening_for_spaces(home: Path) -> Generator[socket.socket, None, None]:
    """A socket that people's processes can reach, whoever they run as: they have to say whose they are."""
    path = spaces_socket(home)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(str(path))
        except OSError as error:
            raise ConfigError(
                f"{path} can't be a socket: {error}. Use a SATCHEL_HOME with a shorter path."
            ) from error
        path.chmod(0o666 if is_apart() else 0o600)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _allow_many_files() -> None:
    """Raise the limit on open files: each connection needs a descriptor, and many systems allow 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = (
        _MOST_CONNECTIONS + 1024 if hard == resource.RLIM_INFINITY else min(hard, _MOST_CONNECTIONS + 1024)
    )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def _logging_to(path: Path) -> Generator[None, None, None]:
    """Write warnings, errors and the end of each turn to a file that only its owner can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8")
    path.chmod(0o600)
    handler.setFormatter(_JsonLines())
    loggers = [logging.getLogger(name) for name in ("satchel", "uvicorn.error")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    logging.getLogger("satchel.turns").setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
        handler.close()


class _JsonLines(logging.Formatter):
    """A JSON object a line, with the session and the turn that it is about.

    Exceptions are without their messages, which may quote the user, and what looks like a key is masked.
    """

    def format(self, record: logging.LogRecord) -> str:
        """See `Formatter.format`."""
        line: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask_text(record.getMessage()),
        }
        if (turn := TURN.get(None)) is not None:
            line |= {"session": turn[0], "turn": turn[1]}
        if record.exc_info:
            line["error"] = mask_text(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name of the standard library
        """The traceback and the class, without the message."""
        return f"{''.join(traceback.format_tb(ei[2]))}{ei[0].__name__}"
