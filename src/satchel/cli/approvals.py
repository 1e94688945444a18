"""Asks the user the questions of a running turn: whether calls may run, and what a tool wants to know."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from satchel.cli.editor import LineReader
from satchel.cli.view import TurnView, one_line
from satchel.errors import UserError
from satchel.events import AskedCall, Consent, Event, QuestionAnswered, QuestionAsked
from satchel.runtime import RunningTurn
from satchel.runtime.hosting import SharedSession
from satchel.runtime.lines import counted
from satchel.runtime.options import chosen_option
from satchel.tools import Approval

__all__ = ["TerminalAnswers", "follow", "input_lines", "read_answer"]

_WORDS: dict[str, Consent] = {
    "y": "once", "yes": "once", "once": "once", "n": "no", "no": "no", "s": "session", "session": "session",
    "a": "always", "always": "always",
}  # fmt: skip

_SAID = ("it ", "the rule ")
"""Reasons that say more than that the mode asks, which the user knows."""
_MOST_SHOWN = 20_000
"""The most characters of a text that are shown. Nobody reads a longer one before deciding."""
_MOST_BESIDE = 4_000
"""The same for a text that doesn't say what the call does, such as the content of a file."""
_MOST_BLANKS = 16
"""The most blanks in a row. More could push what follows off the screen."""


def input_lines(input: Mapping[str, Any], *, subject: str = "") -> list[str]:
    """A call's input, for the user who decides about it. Omissions are marked.

    A single text is shown as it is, several fields with their names, other data as JSON.

    Args:
        input: The call's input.
        subject: The field that says what the call does, or "". Less of the others is shown.
    """
    if len(input) == 1:
        (value,) = input.values()
        if isinstance(value, str):
            return _whole(value, _MOST_SHOWN).splitlines() or [""]
    lines: list[str] = []
    for name, value in input.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        most = _MOST_BESIDE if subject in input and name != subject else _MOST_SHOWN
        first, *rest = _whole(text, most).splitlines() or [""]
        # A name that the model made up must not look like another line of the question.
        lines += [f"{one_line(name)}: {first}", *(f"    {line}" for line in rest)]
    return lines


def _whole(text: str, most: int) -> str:
    if len(text) > most:
        text = f"{text[:most]}\n[not shown: {counted(len(text) - most, 'more character')}]"
    text = re.sub(
        rf"\n(?:[ \t]*\n){{{_MOST_BLANKS},}}",
        lambda m: f"\n[{m[0].count(chr(10)) - 1:,} empty lines]\n",
        text,
    )
    return re.sub(rf"[^\S\n]{{{_MOST_BLANKS + 1},}}", lambda m: f" [{len(m[0]):,} blanks] ", text)


def read_answer(text: str, count: int) -> list[Approval] | None:
    """Parse the user's answer to `count` requests; None if it can't be understood.

    "y", "s", "a" and "n" answer all requests. Followed by numbers, they answer those, and the others get no. Numbers
    alone mean yes. Any other words mean no and are passed on to the model.
    """
    words = text.strip().lower().replace(",", " ").split()
    kind: Consent = "once" if words else "no"
    if words and words[0] in _WORDS:
        kind = _WORDS[words.pop(0)]
    if words and not all(re.fullmatch(r"\d{1,9}", word) for word in words):
        return [Approval(answer="no", words=text.strip())] * count
    chosen = {int(word) for word in words}
    if any(not 1 <= number <= count for number in chosen):
        return None
    if not chosen:
        return [Approval(answer=kind)] * count
    rest: Consent = "once" if kind == "no" else "no"
    return [Approval(answer=kind if number in chosen else rest) for number in range(1, count + 1)]


class TerminalAnswers:
    """Asks at the terminal and passes the answers to the session."""

    def __init__(self, reader: LineReader, view: TurnView, *, interrupt: Callable[[], None]) -> None:
        """Set the terminal.

        Args:
            reader: Reads the answer.
            view: Shows the question.
            interrupt: Stops the turn; called when the user presses Ctrl-C at the question.
        """
        self._reader = reader
        self._view = view
        self._interrupt = interrupt
        # Calls run concurrently, but only one of them can use the terminal.
        self._turn = anyio.Lock()
        self._asking: dict[str, anyio.CancelScope] = {}

    async def ask(self, session: SharedSession, question: QuestionAsked) -> None:
        """Ask the user and answer the question. Another client may answer first."""
        with anyio.CancelScope() as scope:
            self._asking[question.id] = scope
            try:
                async with self._turn:
                    await self._ask(session, question)
            except UserError as error:
                self._view.note(f"! {error}", "yellow")
            finally:
                self._asking.pop(question.id, None)
        if scope.cancelled_caught:
            self._view.note("(answered by another client)", "dim")

    def withdraw(self, id: str) -> None:
        """Stop asking, because the question was answered."""
        scope = self._asking.get(id)
        if scope is not None:
            scope.cancel()

    async def _ask(self, session: SharedSession, question: QuestionAsked) -> None:
        if question.kind == "tool":
            words = await self._words(question)
            self._asking.pop(question.id, None)
            await session.answer(question.id, words, by="terminal")
            return
        approvals = await self._approvals(question.calls)
        self._asking.pop(question.id, None)
        await session.answer(
            question.id,
            consent={
                call.call_id: approval.answer
                for call, approval in zip(question.calls, approvals, strict=True)
            },
            words=approvals[0].words,
            by="terminal",
        )

    async def _words(self, question: QuestionAsked) -> str | None:
        """Ask a tool's question; Ctrl-D declines, Ctrl-C stops the turn."""
        self._reader.drop_typed_ahead()
        self._view.show_question(question.text, question.options)
        try:
            return chosen_option(await self._reader.ask("answer? "), question.options)
        except EOFError:
            return None
        except KeyboardInterrupt:
            self._interrupt()
            return None

    async def _approvals(self, calls: Sequence[AskedCall]) -> Sequence[Approval]:
        """Show the calls and read one answer for all of them."""
        self._reader.drop_typed_ahead()
        these = "this call" if len(calls) == 1 else f"these {len(calls)} calls"
        self._view.note(f"Satchel wants to run {these}:", "bold")
        for number, call in enumerate(calls, 1):
            lines = input_lines(call.input, subject=call.key)
            if len(lines) > 1:
                self._view.note("\n".join([f"  {number}. {call.tool}", *(f"     {line}" for line in lines)]))
            else:
                self._view.note(f"  {number}. {call.tool}  {''.join(lines)}")
            if call.reason.startswith(_SAID):
                self._view.note(f"     {call.reason}", "yellow")
        rules = ", ".join(dict.fromkeys(rule for call in calls for rule in call.rules))
        self._view.note(f"  y yes · n no · s yes for this session · a always: {rules}", "dim", wraps=True)
        chosen = "y 1 3 permits only these calls · " if len(calls) > 1 else ""
        self._view.note(
            f"  {chosen}any other text means no, and the model gets to read it", "dim", wraps=True
        )
        while True:
            try:
                answers = read_answer(await self._reader.ask("run? "), len(calls))
            except (EOFError, KeyboardInterrupt):
                self._interrupt()
                return [Approval(answer="no")] * len(calls)
            if answers is not None:
                return answers
            self._view.note(f"The calls are numbered from 1 to {len(calls)}.", "yellow")


async def follow(
    session: SharedSession,
    running: RunningTurn,
    *,
    show: Callable[[Event], None],
    answers: TerminalAnswers | None,
) -> None:
    """Show a turn's events until it ends, and ask its questions.

    Raises:
        SatchelError: The error that ended the turn without a result.
    """
    async with anyio.create_task_group() as group:
        async for event in running.events():
            show(event)
            match event:
                case QuestionAsked() if answers is not None:
                    group.start_soon(answers.ask, session, event)
                case QuestionAnswered(id=id) if answers is not None:
                    answers.withdraw(id)
                case _:
                    pass
        # The turn took the question that is still on the screen with it.
        group.cancel_scope.cancel()
