"""Asks the user the questions of a running turn: whether calls may run, and what a tool wants to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import anyio

from satchel.cli.editor import LineReader
from satchel.cli.view import TurnView
from satchel.errors import UserError
from satchel.events import AskedCall, Event, QuestionAnswered, QuestionAsked
from satchel.runtime import RunningTurn
from satchel.runtime.hosting import SharedSession
from satchel.runtime.options import chosen_option
from satchel.tools import Approval
from satchel.tools.visible import visible
from satchel.tui.consenting import read_answer
from satchel.tui.terminal_text import call_lines, outcome_of

_CHANGES: Final = {"added": ("green",), "removed": ("red",)}


class TerminalAnswers:
    """Asks at the terminal and passes the answers to the session."""

    def __init__(self, reader: LineReader, view: TurnView, *, interrupt: Callable[[], object]) -> None:
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
        self._elsewhere: dict[str, QuestionAnswered] = {}

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
            answer = self._elsewhere.pop(question.id, None)
            self._view.note(f"({outcome_of(answer) if answer is not None else 'withdrawn'})", "dim")

    def withdraw(self, answer: QuestionAnswered) -> None:
        """Stop asking, because the question was answered, and say how."""
        scope = self._asking.get(answer.id)
        if scope is not None:
            self._elsewhere[answer.id] = answer
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
        self._view.show_question(visible(question.text), [visible(option) for option in question.options])
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
            asked, change = call_lines(call)
            if len(asked) > 1:
                self._view.note("\n".join([f"  {number}. {call.tool}", *(f"     {line}" for line in asked)]))
            else:
                self._view.note(f"  {number}. {call.tool}  {asked[0]}")
            for line in change:
                self._view.note(f"     {line.text}", *_CHANGES.get(line.style, ()))
            if call.told_reason:
                self._view.note(f"     {visible(call.told_reason)}", "yellow")
        rules = ", ".join(dict.fromkeys(visible(rule) for call in calls for rule in call.rules))
        self._view.note(
            f"  y yes · n no · s yes for this conversation · a always: {rules}", "dim", wraps=True
        )
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
    reached: Callable[[int], None] = lambda _: None,
) -> None:
    """Show a turn's events until it ends, and ask its questions.

    Args:
        session: The turn's.
        running: The turn.
        show: Shows an event.
        answers: Asks its questions; None leaves them to other clients.
        reached: Called with the number of each event that was shown.

    Raises:
        SatchelError: The error that ended the turn without a result.
    """
    async with anyio.create_task_group() as group:
        async for record in running.records():
            show(record.event)
            reached(record.seq)
            match event := record.event:
                case QuestionAsked() if answers is not None:
                    group.start_soon(answers.ask, session, event)
                case QuestionAnswered() if answers is not None:
                    answers.withdraw(event)
                case _:
                    pass
        # The turn took the question that is still on the screen with it.
        group.cancel_scope.cancel()
