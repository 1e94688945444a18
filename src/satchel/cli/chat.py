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
from satchel.cli.output import is_terminal, tell
from satchel.cli.settings import read_settings
from satchel.cli.talk import Talk, said_before
from satchel.cli.view import TurnView
from satchel.cli.wizard import ask_settings, is_first_start
from satchel.config import Settings, write_initial
from satchel.errors import UsageError
from satchel.runtime.inventory import list_models

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
def chat(
    session_id: str | None, last: bool, model: str | None, mode: str | None, private: bool, plain: bool
) -> int:
    """Start a conversation in the terminal."""
    del plain  # there is no other interface to choose yet
    if session_id is not None and last:
        raise UsageError("Give either --session or --last, not both.")
    overrides = {"model": model, "agent.mode": mode}
    settings = read_settings(overrides)
    if is_terminal(sys.stdin) and is_terminal(sys.stdout) and is_first_start(settings):
        _first_start(settings)
        settings = read_settings(overrides)

    async def body() -> int:
        return await _chat(settings, session_id=session_id, last=last, private=private)

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


async def _chat(settings: Settings, *, session_id: str | None, last: bool, private: bool) -> int:
    async with opened(settings, beside_prompt=is_terminal(sys.stdin)) as satchel:
        view = TurnView(
            text_out=sys.stdout,
            notes_out=sys.stdout,
            environ=settings.environ,
            monotonic_s=satchel.clock.monotonic_s,
        )
        talk: Talk | None = None

        async def complete(text: str) -> Sequence[tuple[str, str]]:
            return () if talk is None else await talk.complete(text)

        reader: LineReader = PlainLines()
        if is_terminal(sys.stdin):
            reader = Editor(complete=complete, recent=lambda: said_before(satchel))
        told = len(satchel.notices)
        session = await satchel.session(
            session_id, last=last, private=private, interactive=is_terminal(sys.stdin)
        )
        tell_notices(satchel.notices, after=told)
        await tell_choice(satchel)
        talk = Talk(satchel, session, reader=reader, view=view)
        return await talk.run()
