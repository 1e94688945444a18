"""`satchel serve`: the HTTP server and its web pages."""

from __future__ import annotations

import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.to_thread
import click

from satchel.cli.commands import Text
from satchel.cli.opening import opened, tell_choice
from satchel.cli.output import is_terminal, tell
from satchel.cli.settings import read_settings
from satchel.config import Settings
from satchel.errors import StorageUnwritable
from satchel.runtime.person_homes import has_people
from satchel.runtime.serving import Serving, await_database, login_link, require_database, serving


@click.command()
@click.option("--host", type=Text, help="The address to listen on. Default: this machine only.")
@click.option("--port", type=click.IntRange(0, 65_535), help="0 takes any free port.")
@click.option("--model", type=Text, metavar="PROVIDER:MODEL", help="The model that answers.")
@click.option("--open", "opens", is_flag=True, help="Open the web pages in your browser, logged in.")
@click.option("--listener", type=int, hidden=True, help="The open socket of the server that was here before.")
@click.option("--fd", type=int, hidden=True, help="A socket that the front door of several people gives.")
@click.option("--url", type=Text, default="", hidden=True, help="Where that front door is.")
@click.option("--spaces", type=Text, hidden=True, help="Where it tells of what people share.")
def serve(
    host: str | None,
    port: int | None,
    model: str | None,
    opens: bool,
    listener: int | None,
    fd: int | None,
    url: str,
    spaces: str | None,
) -> int:
    """Serve web pages, conversations, memory and capabilities over HTTP until it is stopped.

    Clients send the token in SATCHEL_HOME/token; a browser logs in with it once, or automatically with --open. If this
    home has a server already, --open opens that one. SIGTERM and Ctrl-C stop the server: running turns are interrupted,
    and the conversation is kept.

    In a home with people (`satchel user`), people log in with their names, and each has a Satchel of their own.
    """
    if fd is not None:
        # Only here, with the person's own rights: it may have been replaced by a link.
        try:
            Path("files").mkdir(mode=0o700, exist_ok=True)
            os.chdir("files")
        except OSError as error:
            raise StorageUnwritable(f"The folder files can't be entered: {error.strerror}.") from error
    settings = read_settings({"server.host": host, "server.port": port, "model": model})
    other = serving(settings.home) if opens else None

    async def body() -> int | None:
        if other is not None:
            await _open_there(settings, other)
            return None
        # FastAPI and uvicorn are imported only here.
        from satchel.server.listening import FrontDoorSocket, serve_people  # noqa: PLC0415
        from satchel.server.listening import serve as serve_http  # noqa: PLC0415

        await await_database(settings, tell)
        if fd is None and has_people(settings):
            await serve_people(settings, tell=tell, inherited=listener)
            return None
        given = (
            None
            if fd is None
            else FrontDoorSocket(socket.socket(fileno=fd), sys.stdin.readline().strip(), url)
        )
        if given is not None and spaces is not None:
            from satchel.runtime.spaces import write_access  # noqa: PLC0415 - as above

            name = settings.environ["USER"]
            write_access(settings.home, socket=spaces, name=name, door_token=given.token)
        async with opened(settings) as satchel, anyio.create_task_group() as group:
            require_database(settings, satchel.sessions)
            if given is not None:
                group.start_soon(_end_with_stdin)
            await tell_choice(satchel)
            left = await serve_http(
                satchel, tell=tell, offer_login=_offer(opens), inherited=listener, given=given
            )
            group.cancel_scope.cancel()
        return left

    left = anyio.run(body)
    if left is not None:
        # The whole program, and not only its settings: it may have been upgraded meanwhile.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], "--listener", str(left)])
    return 0


async def _end_with_stdin() -> None:
    """Stop when the front door has ended, however it did."""
    await anyio.wait_readable(sys.stdin.fileno())
    os.kill(os.getpid(), signal.SIGTERM)


async def _open_there(settings: Settings, other: Serving) -> None:
    tell(f"A server of this home is running at {other.url}.")
    await _open(await login_link(settings.home, other))


def _offer(opens: bool) -> Callable[[str], Awaitable[None]] | None:
    """Show the login link to the user. It is a secret for ten minutes, so it is never written to a service's log."""
    if opens:
        return _open
    return _print if is_terminal(sys.stderr) else None


async def _open(link: str) -> None:
    if not await anyio.to_thread.run_sync(webbrowser.open, link):
        tell("No browser could be started.")
        await _print(link)


async def _print(link: str) -> None:
    tell(f"To log in, open this address within ten minutes; it works once:\n\n  {link}\n")
