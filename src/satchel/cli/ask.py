"""`satchel ask`: one message and its answer, for the shell and for programs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import click

from satchel.cli.approvals import TerminalAnswers, follow
from satchel.cli.commands import SessionId, Text
from satchel.cli.editor import Editor
from satchel.cli.home import tell_notices
from satchel.cli.opening import exit_code_of, opened, settled, tell_choice
from satchel.cli.output import is_terminal, json_text, say, say_json, tell
from satchel.cli.settings import read_settings
from satchel.cli.shared import SessionWish, connected, usable_server
from satchel.cli.signals import run_in_good_order
from satchel.cli.view import TurnView
from satchel.clock import SystemClock
from satchel.config import Settings
from satchel.errors import NotFound, UsageError
from satchel.events import BuildPosted, Event, Notice, TurnStart, event_to_json
from satchel.messages import FileBlock
from satchel.plain import as_json
from satchel.runtime import RunningTurn, TurnResult
from satchel.runtime.attaching import attach
from satchel.runtime.build_answers import Heard, hear_line
from satchel.runtime.build_news import lets_go_on
from satchel.runtime.hosting import SharedSession
from satchel.runtime.lines import one_line
from satchel.runtime.options import chosen_option
from satchel.runtime.turns import memories_to_json

_BUILD_S = 1800.0
"""A build takes ten minutes at most, unless the settings say otherwise, and may wait for others."""
_BEGINS_S = 60.0
"""After the end of a build, the turn that goes on begins within a second or two if it does; later on a busy machine.
"""
_MOST_STDIN = 64_000_000
"""The most bytes of a prompt on stdin: far more than any model's context window, but not too many for a small
machine."""


@click.command()
@click.argument("text", nargs=-1, type=Text)
@click.option("--session", "session_id", type=SessionId, metavar="ID", help="Continue this conversation.")
@click.option("--last", is_flag=True, help="Continue this folder's last conversation.")
@click.option("--model", type=Text, metavar="PROVIDER:MODEL", help="Ask this model.")
@click.option("--json", "as_json", is_flag=True, help="Print the turn as JSON.")
@click.option(
    "--stream-json", is_flag=True, help="Print each event as a line of JSON when it happens, then the turn."
)
@click.option("--no-memory", is_flag=True, help="Don't show memories to the model, and don't remember this.")
@click.option("--private", is_flag=True, help="Don't remember this; relevant memories are still shown.")
@click.option("--project", type=Text, metavar="NAME", default="", help="Ask in this project.")
@click.option(
    "--allow",
    multiple=True,
    type=Text,
    metavar="RULE",
    help='Allow matching calls, such as "bash(git *)"; may be repeated.',
)
@click.option(
    "--attach",
    "attached",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='Attach a file, "-" for stdin; may be repeated.',
)
@click.option(
    "--mode",
    type=click.Choice(["ask", "auto", "plan", "bypass"]),
    help="How to decide calls that no rule covers.",
)
def ask(
    text: Sequence[str],
    session_id: str | None,
    last: bool,
    model: str | None,
    as_json: bool,
    stream_json: bool,
    no_memory: bool,
    private: bool,
    project: str,
    allow: Sequence[str],
    attached: Sequence[Path],
    mode: str | None,
) -> int:
    """Send one message and print the answer.

    TEXT is the message; "-" reads it from stdin. The exit code is 4 when a call was denied by a rule, or because
    nobody could be asked; stderr names the rule that denies the call, or the one that would allow it.
    """
    if session_id is not None and last:
        raise UsageError("Give either --session or --last, not both.")
    if as_json and stream_json:
        raise UsageError("Give either --json or --stream-json, not both.")
    words = _words(text, attached)
    settings = read_settings({"model": model, "agent.mode": mode})
    files = attach(settings, attached, clock=SystemClock())

    async def body() -> int:
        message = _Message(
            text=words,
            form="json" if as_json else "stream" if stream_json else "text",
            memory=not no_memory,
            files=files,
        )
        wish = SessionWish(
            session_id=session_id, last=last, model=model, mode=mode, private=private, project=project
        )
        return await _ask(message, settings, wish, allow)

    return run_in_good_order(body)


def _words(text: Sequence[str], attached: Sequence[Path]) -> str:
    if Path("-") in attached and list(text) != ["-"]:
        words = " ".join(text)
    elif list(text) == ["-"] or (not text and not attached and not is_terminal(sys.stdin)):
        raw = sys.stdin.buffer.read(_MOST_STDIN + 1)
        if len(raw) > _MOST_STDIN:
            raise UsageError(
                f"The text on stdin is longer than {_MOST_STDIN // 1_000_000} MB. "
                "Save it to a file, and name the file in your message."
            )
        words = raw.decode("utf-8", "replace")
    else:
        words = " ".join(text)
    if not words.strip() and not attached:
        raise UsageError('There is no message. Pass it as an argument, or pass "-" and write it to stdin.')
    return words


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A message, and how the user wants its answer.

    Attributes:
        form: "text", "json", or "stream" for each event as a line of JSON.
        memory: See `Session.start`; so is `files`.
    """

    text: str
    form: str
    memory: bool
    files: Sequence[FileBlock] = ()


async def _ask(message: _Message, settings: Settings, wish: SessionWish, allow: Sequence[str]) -> int:
    view = TurnView(
        text_out=sys.stdout if message.form == "text" and is_terminal(sys.stdout) else None,
        notes_out=sys.stderr,
        environ=settings.environ,
        monotonic_s=SystemClock().monotonic_s,
        at_prompt=True,
    )
    is_asked = message.form == "text" and is_terminal(sys.stdin) and is_terminal(sys.stderr)
    # A new session needs no server, and the server takes no rules for one session.
    found = usable_server(settings) if (wish.session_id is not None or wish.last) and not allow else None
    if found is not None:
        async with connected(settings, found) as host:
            shared = await wish.opened(host, interactive=is_asked)
            return await _in_session(shared, message, view, is_asked=is_asked)
    async with opened(settings, with_notices=message.form == "text", upkeep="worker") as satchel:
        told = len(satchel.notices)
        session = await satchel.session(
            wish.session_id,
            last=wish.last,
            allow=allow,
            interactive=is_asked,
            private=wish.private,
            project=wish.project,
        )
        if message.form == "text":
            session.waits_for_builds = True
            tell_notices(satchel.notices, after=told)
            await tell_choice(satchel)
        code = await _in_session(session, message, view, is_asked=is_asked, notices=satchel.notices)
        told = len(satchel.notices)
    tell_notices(satchel.notices, after=told)  # What came while it closed.
    return code


async def _in_session(
    session: SharedSession,
    message: _Message,
    view: TurnView,
    *,
    is_asked: bool,
    notices: Sequence[Notice] = (),
) -> int:
    """Run the turn in an open session; `notices` are about missing parts."""
    form, text = message.form, message.text
    question = session.pending_question
    if question is not None:
        text = chosen_option(text, question.options)
    heard = await hear_line(session, text, by="satchel ask") if not message.files else Heard(is_message=True)
    if heard.note and heard.is_message:
        tell(heard.note)
    if not heard.is_message:
        _print(_answered(session, heard), form=form, is_shown=False)
        return 0
    began = session.last_seq
    running = await session.start(text, memory=message.memory, files=message.files)
    if running.waits:
        tell("The message waits until the turn that runs in this conversation ends.")
    turn = await _turn(session, running, form, view, is_asked, notices)
    while form == "text" and turn.status == "done" and turn.build_id is not None and session.follows:
        later = await _gone_on(session, turn, view, after_seq=began, is_asked=is_asked)
        if later is None:
            break
        turn = await _turn(session, later, form, view, is_asked, notices)
    return exit_code_of(turn)


async def _turn(
    session: SharedSession,
    running: RunningTurn,
    form: str,
    view: TurnView,
    is_asked: bool,
    notices: Sequence[Notice],
) -> TurnResult:
    """Follow a turn, and print its result."""
    answers = TerminalAnswers(Editor.for_answers(), view, interrupt=running.cancel) if is_asked else None

    def show(event: Event) -> None:
        if form == "stream":
            print(json_text(event_to_json(event)), flush=True)
        elif is_terminal(sys.stderr):
            view.show(event)

    try:
        await follow(session, running, show=show, answers=answers)
        turn = await running.result()
    except anyio.get_cancelled_exc_class():
        await settled(running)
        if form != "text" and running.result_or_none is not None:
            # A program that reads JSON needs to know how the turn ended, and which session to continue.
            _print(_with_notices(running.result_or_none, notices), form=form, is_shown=False)
        raise
    finally:
        await settled(running)
    if form != "text":
        turn = _with_notices(turn, notices)
    is_shown = form == "text" and is_terminal(sys.stdout) and is_terminal(sys.stderr)
    asked = session.pending_question
    _print(turn, form=form, is_shown=is_shown, options=asked.options if asked is not None else ())
    if wanted := dict.fromkeys(rule for step in turn.steps for rule in step.wanted):
        options = " ".join(f"--allow {shlex.quote(rule)}" for rule in wanted)
        tell(f"To allow it for one message: satchel ask {options} …")
    return turn


async def _gone_on(
    session: SharedSession, turn: TurnResult, view: TurnView, *, after_seq: int, is_asked: bool
) -> RunningTurn | None:
    """Wait for the end of the build that a turn asked for, and return the turn that goes on then; None if none does."""
    async with anyio.create_task_group() as group:
        asking = anyio.CancelScope()
        with anyio.move_on_after(_BUILD_S) as waiting:
            try:
                async for record in session.subscribe(after_seq):
                    event = record.event
                    if isinstance(event, TurnStart) and event.turn > turn.turn:
                        break
                    if isinstance(event, Notice) and event.part == "builder":
                        tell(f"! {event.text}")
                        return None
                    if not isinstance(event, BuildPosted) or event.build_id != turn.build_id:
                        continue
                    if is_terminal(sys.stderr):
                        view.show(event)
                    if event.kind == "question" and is_asked:
                        asking = anyio.CancelScope()
                        group.start_soon(_answer_question, session, event, asking)
                    elif event.kind != "progress":
                        asking.cancel()
                    if event.status == "waiting" and not is_asked:
                        tell(f"! {event.text}")
                        tell(f"To continue when the build has ended: satchel ask --session {session.id} TEXT")
                        return None
                    if event.kind in ("complete", "error"):
                        if not lets_go_on(event):
                            return None
                        waiting.deadline = anyio.current_time() + _BEGINS_S
            except anyio.get_cancelled_exc_class():
                tell(f"To continue when the build has ended: satchel ask --session {session.id} TEXT")
                raise
            finally:
                asking.cancel()
    return session.running


async def _answer_question(session: SharedSession, question: BuildPosted, scope: anyio.CancelScope) -> None:
    """Ask the user what a build asks, until it has an answer."""
    with scope, suppress(EOFError, KeyboardInterrupt, NotFound):
        while True:
            text = await Editor.for_answers().ask("answer? ")
            try:
                await session.answer(question.id, chosen_option(text, question.options), by="satchel ask")
            except UsageError as error:  # neither yes nor no, or another client was faster
                tell(f"! {error}")
            else:
                return


def _answered(session: SharedSession, heard: Heard) -> TurnResult:
    """The result of a message that did not go to the model."""
    asked = heard.answered
    return TurnResult(
        session_id=session.id,
        turn=session.turns,
        status="done",
        text=heard.note
        if asked is None
        else f"The Builder of {asked.capability} has your answer to: {asked.text}",
        build_id=asked.build_id if asked is not None else None,
    )


def _with_notices(turn: TurnResult, notices: Sequence[Notice]) -> TurnResult:
    """The turn with the notices about missing parts, which a program would not see otherwise."""
    missing = tuple(notice.text for notice in notices)
    return replace(turn, notices=tuple(dict.fromkeys((*missing, *turn.notices))))


def _print(turn: TurnResult, *, form: str, is_shown: bool, options: Sequence[str] = ()) -> None:
    if form == "stream":
        print(json_text({"type": "result", **turn_to_json(turn)}))
    elif form == "json":
        say_json(turn_to_json(turn))
    elif not is_shown:
        # On a terminal, the view has written the rest to stderr already.
        told = is_terminal(sys.stderr)
        if turn.status == "failed":
            if not told:
                tell(f"satchel: {turn.text}")
        elif turn.text:
            say(turn.text)
        for notice in turn.notices if not told else ():
            tell(f"! {notice}")
    if turn.was_refused:
        for step in turn.steps:
            if step.was_refused:
                tell(step.result)
    if form == "text" and turn.status == "asking":
        if not is_terminal(sys.stderr):  # where the view has shown nothing
            for number, option in enumerate(options, 1):
                tell(f"  {number}. {one_line(option)}")
        how = ", with a number or words" if options else ""
        tell(f"To answer{how}: satchel ask --session {turn.session_id} TEXT")


def turn_to_json(turn: TurnResult) -> dict[str, Any]:
    """The turn as JSON data."""
    return {
        "session_id": turn.session_id,
        "turn": turn.turn,
        "status": turn.status,
        "text": turn.text,
        "pending_question": turn.pending_question,
        "build_id": turn.build_id,
        "usage": as_json(turn.usage),
        "steps": [
            {
                "tool": step.tool,
                "input": dict(step.input),
                "result": step.result,
                "is_error": step.is_error,
                "was_refused": step.was_refused,
                "duration_ms": round(step.duration_ms, 1),
            }
            for step in turn.steps
        ],
        "memory": memories_to_json(turn.memory),
        "notices": list(turn.notices),
    }
