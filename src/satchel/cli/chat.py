"""`satchel chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

import anyio
import click

from satchel.cli.commands import Text
from satchel.cli.editor import Editor, LineReader, PlainLines
from satchel.cli.home import tell_notices
from satchel.cli.opening import opened, tell_choice
from satchel.cli.output import current_stdout, is_terminal, tell
from satchel.cli.settings import read_settings
from satchel.cli.shared import Wish, connected, tell_missing, usable_server
from satchel.cli.talk import Talk
from satchel.cli.view import TurnView
from satchel.cli.wizard import ask_settings, is_first_start
from satchel.clock import SystemClock
from satchel.config import Settings, write_initial
from satchel.errors import UsageError
from satchel.runtime.hosting import Host, LocalHost, SharedSession
from satchel.runtime.inventory import list_models
from satchel.runtime.serving import Serving

__all__ = ["chat"]


@click.command()
@click.option("--session", "session_id", type=Text, metavar="ID", help="Continue this session.")
@click.option("--last", is_flag=True, help="Continue this folder's last session.")
@click.option("--model", type=Text, metavar="PROVIDER:MODEL", help="Use this model.")
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "plan", "bypass"]),
    help="How to decide calls that no rule covers.",
)
@click.option("--private", is_flag=True, help="Don't remember this conversation.")
@click.option(
    "--plain",
    is_flag=True,
    help="Don't take over the screen. This is always the case until there is a full-screen interface.",
)
@click.option("--no-server", is_flag=True, help="Don't use the server of this home, even if one runs.")
def chat(
    session_id: str | None,
    last: bool,
    model: str | None,
    mode: str | None,
    private: bool,
    plain: bool,
    no_server: bool,
) -> int:
    """Start a conversation in the terminal.

    If `satchel serve` runs, the conversation is held there, and other terminals and browsers can take part in it.
    """
    del plain  # there is no other interface to choose yet
    if session_id is not None and last:
        raise UsageError("Give either --session or --last, not both.")
    overrides = {"model": model, "agent.mode": mode}
    settings = read_settings(overrides)
    found = None if no_server else usable_server(settings)
    if found is None and is_terminal(sys.stdin) and is_terminal(sys.stdout) and is_first_start(settings):
        _first_start(settings)
        settings = read_settings(overrides)
    wish = Wish(session_id=session_id, last=last, model=model, mode=mode, private=private)

    async def body() -> int:
        if found is not None:
            return await _chat_in_server(settings, found, wish)
        return await _chat_here(settings, wish)

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


async def _chat_here(settings: Settings, wish: Wish) -> int:
    async with opened(settings, beside_prompt=is_terminal(sys.stdin)) as satchel:
        told = len(satchel.notices)
        host = LocalHost(satchel)
        # The settings have the model and the mode already.
        session = await host.session(
            wish.session_id, last=wish.last, private=wish.private, interactive=is_terminal(sys.stdin)
        )
        tell_notices(satchel.notices, after=told)
        await tell_choice(satchel)
        return await _talk(host, session, settings)


async def _chat_in_server(settings: Settings, found: Serving, wish: Wish) -> int:
    async with connected(settings, found) as host:
        session = await wish.opened(host, interactive=is_terminal(sys.stdin))
        tell_missing(settings, session)
        return await _talk(host, session, settings)


async def _talk(host: Host, session: SharedSession, settings: Settings) -> int:
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

    reader: LineReader = PlainLines()
    if is_terminal(sys.stdin):
        reader = Editor(complete=complete, recent=host.said_before)
    talk = Talk(host, session, reader=reader, view=view)
    return await talk.run()
