"""`satchel chat`: a conversation in the terminal."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import click

from satchel.cli.commands import SessionId, Text
from satchel.cli.editor import Editor, LineReader, PlainLines
from satchel.cli.home import tell_notices
from satchel.cli.opening import opened, tell_choice
from satchel.cli.output import current_stdout, is_terminal, tell
from satchel.cli.settings import read_settings
from satchel.cli.shared import SessionWish, connected, tell_missing, usable_server
from satchel.cli.talk import INTERRUPTED, Talk
from satchel.cli.view import TurnView
from satchel.cli.wizard import ask_settings, is_first_start
from satchel.clock import SystemClock
from satchel.config import Settings, write_initial
from satchel.errors import UsageError
from satchel.runtime.clipboard import picture_in_clipboard
from satchel.runtime.hosting import Host, LocalHost, SharedSession
from satchel.runtime.inventory import list_models
from satchel.runtime.serving import Serving

_LEAST_COLUMNS, _LEAST_LINES = 40, 12
"""A smaller terminal has no room for a question above the field."""


@click.command()
@click.option("--session", "session_id", type=SessionId, metavar="ID", help="Continue this conversation.")
@click.option("--last", is_flag=True, help="Continue this folder's last conversation.")
@click.option("--model", type=Text, metavar="PROVIDER:MODEL", help="Use this model.")
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "plan", "bypass"]),
    help="How to decide calls that no rule covers.",
)
@click.option("--private", is_flag=True, help="Don't remember this conversation.")
@click.option("--project", type=Text, metavar="NAME", default="", help="Start it in this project.")
@click.option("--plain", is_flag=True, help="Print line by line instead of using the whole screen.")
@click.option("--no-server", is_flag=True, help="Don't use the server of this home, even if one runs.")
def chat(
    session_id: str | None,
    last: bool,
    model: str | None,
    mode: str | None,
    private: bool,
    project: str,
    plain: bool,
    no_server: bool,
) -> int:
    """Start a conversation in the terminal.

    If `satchel serve` runs, the conversation is held there, and other terminals and browsers can take part in it.
    """
    if session_id is not None and last:
        raise UsageError("Give either --session or --last, not both.")
    overrides = {"model": model, "agent.mode": mode}
    settings = read_settings(overrides)
    found = None if no_server else usable_server(settings)
    if found is None and is_terminal(sys.stdin) and is_terminal(sys.stdout) and is_first_start(settings):
        _first_start(settings)
        settings = read_settings(overrides)
    wish = SessionWish(
        session_id=session_id, last=last, model=model, mode=mode, private=private, project=project
    )
    talk = _on_screen if not plain and has_screen(settings) else _on_lines

    async def body() -> int:
        if found is not None:
            return await _chat_in_server(settings, found, wish, talk)
        return await _chat_here(settings, wish, talk)

    return anyio.run(body)


def _first_start(settings: Settings) -> None:
    """Ask which model answers, unless one can answer already."""
    choice, _ = anyio.run(partial(list_models, settings, only="none"))
    if choice is not None and choice.name != "none":
        return
    tell("Welcome to Satchel. Two questions; press Enter to skip one.")
    values = ask_settings(settings)
    if any(value is not None for value in values.values()):
        tell(
            f"Settings written to {write_initial(settings.config_path, values, providers=settings.providers)}."
        )


_Talk: TypeAlias = Callable[[Host, SharedSession, Settings], Awaitable[int]]


async def _chat_here(settings: Settings, wish: SessionWish, talk: _Talk) -> int:
    async with opened(settings, beside_prompt=is_terminal(sys.stdin)) as satchel:
        told = len(satchel.notices)
        host = LocalHost(satchel)
        session = await wish.opened(host, interactive=is_terminal(sys.stdin))
        tell_notices(satchel.notices, after=told)
        await tell_choice(satchel)
        return await talk(host, session, settings)


async def _chat_in_server(settings: Settings, found: Serving, wish: SessionWish, talk: _Talk) -> int:
    async with connected(settings, found) as host:
        session = await wish.opened(host, interactive=is_terminal(sys.stdin))
        tell_missing(settings, session)
        return await talk(host, session, settings)


def has_screen(settings: Settings) -> bool:
    """Whether the conversation fits on this terminal's screen, and the user wants it there."""
    if settings.terminal.screen == "off" or settings.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return False
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        return False
    size = shutil.get_terminal_size()
    return size.columns >= _LEAST_COLUMNS and size.lines >= _LEAST_LINES


async def _on_screen(host: Host, session: SharedSession, settings: Settings) -> int:
    # Textual is imported only here.
    from satchel.tui.background import ask_background  # noqa: PLC0415
    from satchel.tui.screen import ConversationScreen  # noqa: PLC0415

    theme, typed = settings.terminal.theme, ""
    is_dark = theme == "dark"
    if theme == "auto":
        is_dark, typed = ask_background(settings.environ)
    screen = ConversationScreen(
        host,
        session,
        is_dark=is_dark,
        typed=typed,
        monotonic_s=SystemClock().monotonic_s,
    )
    code = 0
    async with anyio.create_task_group() as group:

        async def leave_on_signal() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
                async for _ in signals:
                    screen.exit(INTERRUPTED)

        group.start_soon(leave_on_signal)
        code = await screen.run_async() or 0
        group.cancel_scope.cancel()
    with anyio.CancelScope(shield=True):
        await screen.session.aclose("left")
    if screen.session.turns:
        tell(f"To go on: satchel chat --session {screen.session.id}")
    return code


async def _on_lines(host: Host, session: SharedSession, settings: Settings) -> int:
    # While the editor reads, it puts another stream in the place of stdout, which writes above the prompt.
    screen = current_stdout()
    view = TurnView(
        text_out=screen,
        notes_out=screen,
        environ=settings.environ,
        monotonic_s=SystemClock().monotonic_s,
    )
    talk: Talk | None = None

    async def complete(text: str) -> Sequence[tuple[str, str]]:
        return () if talk is None else await talk.complete(text)

    def dropped_in(pasted: str, draft: str) -> Sequence[Path]:
        return () if talk is None else talk.dropped_in(pasted, draft)

    reader: LineReader = PlainLines()
    if is_terminal(sys.stdin):
        reader = Editor(
            complete=complete,
            recent=host.said_before,
            picture=partial(picture_in_clipboard, host.settings),
            dropped_in=dropped_in,
        )
    talk = Talk(host, session, reader=reader, view=view)
    return await talk.run()
