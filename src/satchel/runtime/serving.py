"""How the programs of one home find its server: the token, and the file that says where it listens."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from satchel.config.home import ensure_home, locked_folder, replace_file
from satchel.config.locks import FileLock, held
from satchel.errors import ConfigError, StorageError, StorageUnreachable, StorageUnwritable, UsageError
from satchel.version import __version__

if TYPE_CHECKING:
    from satchel.config import Settings
    from satchel.sessions.store import SessionStore

TOKEN_FILE = "token"
SERVE_FILE = "serve.json"
DOOR_FILE = "door.json"
"""Of the front door of several people."""
SPACES_FILE = "spaces.json"
"""In the home of one of several people: how its programs reach what is shared (`satchel.runtime.spaces`)."""
HOOKS_FILE = "agents/serve.json"
"""Of the server that hooks of other agents start for themselves; no other program asks it."""

_AWAY_S = 60.0
_LOOK_S = 0.5
_TOKEN_BYTES = 32
_FEWEST_TOKEN_CHARS = 20
"""The minimum length of a token that the user wrote: shorter ones could be guessed."""
_MOST_BYTES = 4096
_LINK_WAIT_S = 5.0


class Serving(NamedTuple):
    """A running server: its address, such as "http://127.0.0.1:7437", its process, and its version of Satchel ("" if
    it is older than this field).
    """

    url: str
    pid: int
    version: str = ""


def read_token(home: Path) -> str | None:
    """The token that clients of this home's server send; None if there is none yet.

    Raises:
        ConfigError: The file can be read by others, or its content is not a token.
        StorageUnwritable: It can't be read.
    """
    path = home / TOKEN_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageUnwritable(f"The token {path} can't be read: {error.strerror}.") from error
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
        if mode & 0o077:
            raise ConfigError(
                f"The token {path} can be read by others (mode {mode:o}), so it is not used. Remove the file; a new "
                "token is made at the next start of the server."
            )
        token = file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
    if len(token) < _FEWEST_TOKEN_CHARS or not all("!" <= char <= "~" for char in token):
        raise ConfigError(
            f"{path} holds no token: it needs at least {_FEWEST_TOKEN_CHARS} characters, printable ASCII without "
            "blanks. Remove the file; a new token is made at the next start of the server."
        )
    return token


def ensure_token(home: Path) -> str:
    """The token of this home; the first call makes it. Only the owner can read the file.

    Raises:
        ConfigError, StorageUnwritable: As in `read_token`, or the file can't be written.
    """
    ensure_home(home)
    with locked_folder(home):
        token = read_token(home)
        if token is None:
            # Imported on demand: hooks of other agents import this module and create no token.
            import secrets  # noqa: PLC0415

            token = secrets.token_urlsafe(_TOKEN_BYTES)
            replace_file(home / TOKEN_FILE, f"{token}\n")
    return token


@contextmanager
def announced(home: Path, url: str, *, file: str = SERVE_FILE) -> Iterator[None]:
    """Publish the address of this home's server in a file of it while the block runs.

    The process holds a lock on the file, so that a file left by a killed server is recognised.

    Raises:
        UsageError: Another server of this home is running.
        StorageUnwritable: The file can't be written.
    """
    path = home / file
    ensure_home(path.parent)
    text = json.dumps({"url": url, "pid": os.getpid(), "version": __version__})
    try:
        lock = FileLock.take(path, text, removes=True)
    except OSError as error:
        raise StorageUnwritable(f"{path} could not be written: {error.strerror}.") from error
    if lock is None:
        other = serving(home, file=file)
        where = f" at {other.url} (process {other.pid})" if other is not None else ""
        raise UsageError(f"A server of this home is running already{where}. Stop that one first.")
    try:
        yield
    finally:
        lock.release()


async def await_database(settings: Settings, tell: Callable[[str], None]) -> None:
    """Wait for a database on a server that is away, for a minute at most, as turns do. A server that started without it
    would not use it later.

    Raises:
        StorageUnreachable: It is still away.
        ConfigError, StorageError: It can't be used.
    """
    # Hooks of other agents load this module, and need neither.
    import anyio.to_thread  # noqa: PLC0415

    from satchel.storage import is_server  # noqa: PLC0415

    where = settings.database_location
    if not is_server(where):
        return
    from satchel.storage.postgresql import look  # noqa: PLC0415 - the driver takes 0.3 s of CPU

    said = ""
    with anyio.move_on_after(_AWAY_S):
        while True:
            try:
                await anyio.to_thread.run_sync(look, str(where))
            except StorageUnreachable as error:
                if not said:
                    said = str(error)
                    tell(f"{said} Waiting for it, for {_AWAY_S:g} s at most.")
                await anyio.sleep(_LOOK_S)
            else:
                return
    raise StorageUnreachable(said or f"The database didn't answer within {_AWAY_S:g} s.")


def require_database(settings: Settings, sessions: SessionStore) -> None:
    """Refuse to serve with files in place of a database on a server; notices say why it can't be used.

    Raises:
        StorageError: The conversations are not there.
    """
    from satchel.storage import is_server  # noqa: PLC0415 - hooks of other agents don't need it

    if is_server(settings.database_location) and not sessions.is_shared:
        raise StorageError("A server doesn't go on without its database; what is wrong is said above.")


def serving(home: Path, *, file: str = SERVE_FILE) -> Serving | None:
    """The running server of this home, or None. A file without a process is ignored."""
    try:
        found = json.loads(held(home / file) or "null")
        return Serving(url=str(found["url"]), pid=int(found["pid"]), version=str(found.get("version", "")))
    except (ValueError, KeyError, TypeError):
        return None  # there is none, or it is starting


async def login_link(home: Path, server: Serving) -> str:
    """An address that logs in one browser at a running server, once, within ten minutes.

    Raises:
        ConfigError, StorageUnwritable: The token can't be used; see `read_token`.
        UsageError: The server doesn't provide one.
    """
    # Imported on demand: other users of this module need no HTTP client.
    import httpx2  # noqa: PLC0415

    headers = {"authorization": f"Bearer {read_token(home)}"}
    try:
        async with httpx2.AsyncClient(timeout=_LINK_WAIT_S, trust_env=False) as client:
            answer = await client.post(f"{server.url}/login/link", headers=headers)
            answer.raise_for_status()
            return f"{server.url}{answer.json()['path']}"
    except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"The server at {server.url} did not give a login link: {type(error).__name__}. Log in with the token in "
            f"{home / TOKEN_FILE}."
        ) from error
