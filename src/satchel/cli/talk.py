"""A conversation in the terminal: reads messages and commands and shows what happens, until the user leaves."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

import anyio

from satchel.cli.approvals import TerminalAnswers, follow
from satchel.cli.editor import LineReader, keep_typed_ahead
from satchel.cli.opening import exit_code_of, settled
from satchel.cli.output import is_terminal, plain, say, wrapped
from satchel.cli.view import TurnView
from satchel.errors import SatchelError, StorageError
from satchel.events import BuildPosted, Notice, Posted, QuestionAsked, TurnStart
from satchel.runtime import RunningTurn, Satchel, Session
from satchel.runtime.commands import (
    CommandContext,
    CommandResult,
    SessionChange,
    SlashCommand,
    completions,
    find_command,
    model_name,
    run_command,
)
from satchel.runtime.lines import counted
from satchel.runtime.options import chosen_option
from satchel.runtime.recap import LastExchanges
from satchel.version import __version__

__all__ = ["Talk", "said_before"]

_MOST_SESSIONS, _MOST_SAID, _MOST_WAIT_S = 10, 200, 0.3
"""How far the arrow keys go back: sessions, messages, and seconds for reading them, so that nobody notices."""

_MOST_RECAPPED = 3
"""The most exchanges that are shown when a conversation is continued: enough to recognise it, less than a screen."""

INTERRUPTED = 130


class Talk:
    """One run of `satchel chat`.

    Attributes:
        satchel: Opened and closed by the caller.
        reader: Reads what the user types.
        view: Shows the turns.
    """

    def __init__(self, satchel: Satchel, session: Session, *, reader: LineReader, view: TurnView) -> None:
        """Talk in an open session, which is closed at the end."""
        self.satchel = satchel
        self.reader = reader
        self.view = view
        self._session = session
        self._scope = anyio.CancelScope()
        self._work: anyio.CancelScope | None = None
        self._running: RunningTurn | None = None
        self._answers = (
            TerminalAnswers(reader, view, interrupt=self.interrupt) if is_terminal(sys.stdin) else None
        )
        self._shown_seq = 0
        self._is_interrupted = False
        self._code = 0

    @property
    def session(self) -> Session:
        """The current session."""
        return self._session

    @property
    def model_name(self) -> str:
        """The model that answers."""
        return model_name(self._session)

    def note(self, text: str) -> None:
        """Show a line that is not part of the conversation."""
        self.view.note(text, "dim", wraps=True)

    def interrupt(self) -> None:
        """Stop the running turn or command; the conversation continues."""
        if self._running is not None:
            self._running.cancel()
        elif self._work is not None:
            self._work.cancel()

    async def run(self) -> int:
        """Talk until the user leaves.

        Returns:
            The exit code.
        """
        with _quiet_keys():
            async with anyio.create_task_group() as group:
                group.start_soon(self._hear_signals)
                group.start_soon(self._show_posts)
                with self._scope:
                    await self._greet()
                    await self._answer_old_questions()
                    await self._talk()
                group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._session.aclose("left")
        return INTERRUPTED if self._is_interrupted else self._code

    async def _greet(self) -> None:
        session = self._session
        private = " · private: nothing is remembered" if session.private else ""
        self.note(f"Satchel {__version__} · {self.model_name} · session {session.id}{private} · /help")
        if self.model_name == "none":
            self.note(
                "No language model is set up: Satchel remembers and recalls. "
                "`satchel model list` shows how to add one."
            )
        if session.turns:
            await self._recap()
        if session.is_interrupted and not session.open_questions:
            self.note("The last turn was interrupted. /continue resumes it; any message abandons it.")
        question = session.pending_question
        if question is not None:
            self.view.show_question(question.question, question.options)

    async def _recap(self) -> None:
        """Show the last exchanges of the conversation."""
        try:
            recap = LastExchanges(_MOST_RECAPPED)
            await self.satchel.sessions.load(self._session.id, visit=recap)
        except StorageError as error:
            self.note(f"! The earlier conversation can't be shown: {error}")
            return
        exchanges = recap.found
        earlier = self._session.turns - len(exchanges)
        if earlier > 0:
            self.note(f"… {counted(earlier, 'earlier turn')}: satchel session show {self._session.id}")
        for exchange in exchanges:
            is_open = exchange.question is not None and exchange.question == self._session.pending_question
            self.view.show_exchange(exchange, is_open=is_open)

    async def _hear_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                if number == signal.SIGINT and (self._running is not None or self._work is not None):
                    self.interrupt()
                else:
                    self._is_interrupted = True
                    self._scope.cancel()

    async def _talk(self) -> None:
        while True:
            try:
                text = await self.reader.read("› ", toolbar=f"{self.model_name} · session {self._session.id}")
            except KeyboardInterrupt:
                self.note("Press Ctrl-D to leave.")
                continue
            except EOFError:
                return
            try:
                await self._handle(text)
            except EOFError:
                return
            except KeyboardInterrupt:
                self.note("(interrupted)")
            except StorageError as error:
                self.view.note(f"! {error}", "red", wraps=True)
                if not is_terminal(sys.stdin):
                    raise
            except SatchelError as error:
                self.view.note(f"! {error}", "yellow", wraps=True)

    async def _handle(self, text: str) -> None:
        """Handle a line: a command, or a message to the model.

        Raises:
            EOFError: The user wants to leave.
        """
        if not text.strip():
            return
        found = find_command(text.strip())
        if found is None:
            if not await self._answer_build(text):
                await self._turn(text)
            return
        with anyio.CancelScope() as scope:
            self._work = scope
            try:
                result = await self._command(*found)
            finally:
                self._work, self._shown_seq = None, self._session.last_seq
                self.view.finish()
        if scope.cancelled_caught:
            self.view.note("(interrupted)", "yellow")
        elif result.leaves:
            raise EOFError
        elif result.message:
            await self._turn(result.message)
        elif result.resumes:
            await self._follow(await self._session.resume())

    async def _command(self, command: SlashCommand, rest: str) -> CommandResult:
        context = CommandContext(
            satchel=self.satchel, session=self._session, show=self.view.show, tell=self.note
        )
        result = await run_command(context, command, rest)
        if result.confirm is not None:
            self.reader.drop_typed_ahead()
        self._print(result)
        if result.confirm is not None:
            answer = await self.reader.ask(f"{result.confirm.question} [y/N] ")
            if answer.strip().lower() in ("y", "yes"):
                self._print(await result.confirm.proceed())
        if result.change is not None:
            await self._change_session(result.change)
        return result

    def _print(self, result: CommandResult) -> None:
        self.view.finish()
        for line in result.lines:
            if line.kind == "note":
                self.note(line.text)
            else:
                say(wrapped(plain(line.text), sys.stdout))
        for event in result.events:
            self.view.show(event)

    async def _answer_build(self, text: str) -> bool:
        """Hand a line to the build that asks for it. False if none does."""
        question = next(iter(self._session.build_questions), None)
        if question is None or self._session.pending_question is not None:
            return False
        await self._session.answer(question.id, chosen_option(text, question.options), by="terminal")
        return True

    async def _turn(self, text: str) -> None:
        question = self._session.pending_question
        if question is not None:
            text = chosen_option(text, question.options)
        await self._follow(await self._session.start(text))

    async def _follow(self, running: RunningTurn) -> None:
        self._running = running
        try:
            await follow(self._session, running, show=self.view.show, answers=self._answers)
        finally:
            await settled(running)
            self._running, self._shown_seq = None, self._session.last_seq
            self.view.finish()
            result = running.result_or_none
            self._note_end(1 if result is None else exit_code_of(result))

    async def _answer_old_questions(self) -> None:
        """Repeat the questions that were open when the program ended; the turn continues with the answers."""
        while self._answers is not None and self._session.is_interrupted:
            question = next((q for q in self._session.open_questions if isinstance(q, QuestionAsked)), None)
            if question is None:
                return
            await self._answers.ask(self._session, question)
            if self._session.running is not None:
                await self._follow(self._session.running)

    async def _show_posts(self) -> None:
        """Show what arrives between two turns: posts of other programs, and notices."""
        while True:
            session = self._session
            async for record in session.subscribe():
                if session is not self._session:
                    break
                is_shown = (
                    record.seq <= self._shown_seq or self._running is not None or self._work is not None
                )
                if isinstance(record.event, Posted | Notice | BuildPosted) and not is_shown:
                    self.view.show(record.event)
                    self.view.finish()
            if session is self._session:
                return

    def _note_end(self, code: int) -> None:
        """Without a terminal, the exit code reports the worst turn; at a terminal, the user has seen it."""
        if not is_terminal(sys.stdin):
            self._code = max(self._code, code)

    async def _change_session(self, change: SessionChange) -> None:
        """Continue in another session or a new one. If it can't be opened, the current one stays open."""
        if change.session_id is not None and self._session.id.startswith(change.session_id):
            self.note("You are in this session.")
            return
        before = self._session
        after = await self.satchel.session(
            change.session_id,
            cwd=None if change.session_id else before.cwd,
            interactive=self._answers is not None,
            private=change.private,
        )
        after.use_model(before.model)
        after.gate.mode = before.gate.mode
        self._session = after
        await before.aclose("left")
        await self._greet()

    async def complete(self, text: str) -> Sequence[tuple[str, str]]:
        """Completions for the line editor."""
        return await completions(text, self.satchel, self._session)


async def said_before(satchel: Satchel) -> AsyncIterator[str]:
    """The user's messages in earlier sessions, the newest first, for the arrow keys."""
    began_s = satchel.clock.monotonic_s()
    seen: set[str] = set()
    for info in (await satchel.sessions.list())[:_MOST_SESSIONS]:
        if satchel.clock.monotonic_s() - began_s > _MOST_WAIT_S:
            return
        try:
            log = await satchel.sessions.load(info.id)
        except SatchelError:
            continue  # a log that can't be read is reported when it is opened
        for record in reversed(log.records):
            if isinstance(record.event, TurnStart) and record.event.message.text not in seen:
                seen.add(record.event.message.text)
                yield record.event.message.text
                if len(seen) == _MOST_SAID:
                    return


@contextmanager
def _quiet_keys() -> Iterator[None]:
    """Between two prompts, keep what is typed for the next one without echoing it. Ctrl-C stays a signal."""
    if not is_terminal(sys.stdin):
        yield
        return
    # Not available on every system, and only useful with a terminal.
    import termios  # noqa: PLC0415

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    quiet = [*before]
    # Otherwise Enter would reach the editor as another key.
    quiet[0] = before[0] & ~termios.ICRNL
    quiet[3] = before[3] & ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    keep_typed_ahead()
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
