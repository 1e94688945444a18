"""A conversation in the terminal: reads messages and commands and shows what happens, until the user leaves."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio

from satchel.cli.approvals import TerminalAnswers, follow
from satchel.cli.editor import LineReader, keep_typed_ahead
from satchel.cli.opening import exit_code_of, settled
from satchel.cli.output import is_terminal, say, wrapped
from satchel.cli.view import TurnView
from satchel.errors import SatchelError, ServerUnavailable, StorageError
from satchel.events import (
    Action,
    BuildPosted,
    Compaction,
    Event,
    Notice,
    Observation,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    TurnStart,
)
from satchel.runtime import RunningTurn
from satchel.runtime.attaching import dropped_in, files_named, remove_sent
from satchel.runtime.build_answers import hear_line
from satchel.runtime.commands import CommandResult, SessionChange, SlashCommand, find_command
from satchel.runtime.hosting import Host, SharedSession
from satchel.runtime.lines import counted
from satchel.runtime.options import chosen_option
from satchel.tui.plain_text import plain
from satchel.version import __version__
from satchel.wording import yes_or_no

_MOST_RECAPPED = 3
"""The most exchanges that are shown when a conversation is continued: enough to recognise it, less than a screen."""

_MOST_OTHERS = 2_000
"""The most characters of a message that another client sent. Its sender has seen it."""

INTERRUPTED = 130


class Talk:
    """One run of `satchel chat`.

    Attributes:
        host: Where the sessions are; opened and closed by the caller.
        reader: Reads what the user types.
        view: Shows the turns.
    """

    def __init__(self, host: Host, session: SharedSession, *, reader: LineReader, view: TurnView) -> None:
        """Talk in an open session, which is closed at the end."""
        self.host = host
        self.reader = reader
        self.view = view
        self._session = session
        self._scope = anyio.CancelScope()
        self._work: anyio.CancelScope | None = None
        self._running: RunningTurn | None = None
        self._prompting: anyio.CancelScope | None = None
        self._answers = (
            TerminalAnswers(reader, view, interrupt=self.interrupt) if is_terminal(sys.stdin) else None
        )
        self._shown_seq = 0
        self._followed_seq = 0
        self._waiting: list[Record] = []
        self._is_interrupted = False
        self._code = 0

    @property
    def session(self) -> SharedSession:
        """The current session."""
        return self._session

    @property
    def model_name(self) -> str:
        """The model that answers."""
        return self._session.model_name

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
                group.start_soon(self._watch)
                with self._scope:
                    await self._greet()
                    await self._talk()
                group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._session.aclose("left")
        return INTERRUPTED if self._is_interrupted else self._code

    async def _greet(self) -> None:
        session = self._session
        private = " · private: nothing is remembered" if session.private else ""
        private += f" · project {session.project}" if session.project else ""
        where = f" · in the server at {self.host.url}" if self.host.url else ""
        self.note(
            f"Satchel {__version__} · {self.model_name} · conversation {session.id}{where}{private} · /help"
        )
        if self.model_name == "none":
            self.note(
                "No language model is set up: Satchel remembers and recalls. "
                "`satchel model list` shows how to add one."
            )
        if session.turns:
            await self._recap()
        if session.is_interrupted and not session.open_questions:
            self.note("The last turn was interrupted. /continue resumes it; any message abandons it.")
        for message in session.waiting:
            self.view.show(message)
        question = session.pending_question
        if question is not None:
            self.view.show_question(question.question, question.options)

    async def _recap(self) -> None:
        """Show the last exchanges of the conversation."""
        try:
            exchanges = await self.host.exchanges(self._session, _MOST_RECAPPED)
        except SatchelError as error:
            self.note(f"! The earlier conversation can't be shown: {error}")
            return
        earlier = self._session.turns - len(exchanges)
        # One that runs is followed from its beginning.
        running = self._session.running
        exchanges = [each for each in exchanges if running is None or each.turn != running.number]
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
            text = ""
            try:
                await self._answer_old_questions()
                if self._session.running is not None:
                    await self._follow_other(self._session.running)
                text = await self._read()
                await self._handle(text)
            except EOFError:
                return
            except KeyboardInterrupt:
                self.note("(interrupted)" if text else "Press Ctrl-D to leave.")
            except ServerUnavailable as error:
                self.view.note(f"! {error}", "red", wraps=True)
                self.reader.keep(text)
                if not is_terminal(sys.stdin):
                    raise
            except StorageError as error:
                self.view.note(f"! {error}", "red", wraps=True)
                if not is_terminal(sys.stdin):
                    raise
            except SatchelError as error:
                self.view.note(f"! {error}", "yellow", wraps=True)

    async def _read(self) -> str:
        """What the user types; "" if a turn that somebody else began takes the terminal meanwhile."""
        waiting, self._waiting = self._waiting, []
        for record in waiting:
            self._show_news(record)
        with anyio.CancelScope() as scope:
            self._prompting = scope
            try:
                toolbar = f"{self.model_name} · conversation {self._session.id}"
                return await self.reader.read("› ", toolbar=toolbar)
            finally:
                self._prompting = None
        return ""

    async def _handle(self, text: str) -> None:
        """Handle a line: a command, or a message to the model.

        Raises:
            EOFError: The user wants to leave.
        """
        if not text.strip():
            return
        found = find_command(text.strip())
        if found is None:
            heard = await hear_line(self._session, text, by="terminal")
            if heard.note:
                self.note(heard.note)
            if heard.is_message:
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
        with self.view.own.running(command, rest):
            result = await self.host.command(
                self._session, command, rest, show=self.view.show, tell=self.note
            )
        if result.confirm is not None:
            self.reader.drop_typed_ahead()
        self._print(result)
        if result.confirm is not None:
            answer = await self.reader.ask(f"{result.confirm.question} [y/N] ")
            if yes_or_no(answer):
                result = await result.confirm.proceed()
                self._print(result)
        if result.change is not None:
            await self._change_session(result.change)
        return result

    def _print(self, result: CommandResult) -> None:
        self.view.own.show(result)
        self.view.finish()
        for line in result.lines:
            if line.kind == "note":
                self.note(line.text)
            else:
                say(wrapped(plain(line.text), sys.stdout))
        for event in result.events:
            self.view.show(event)

    async def _turn(self, text: str) -> None:
        question = self._session.pending_question
        if question is not None:
            text = chosen_option(text, question.options)
        running = await self._started(text)
        if running is not None:
            if running.waits:
                self.note("Your message waits until the running turn ends. Ctrl-C takes it back.")
            await self._follow(running)

    async def _started(self, text: str) -> RunningTurn | None:
        """Begin a turn; None if the user interrupts the waiting for a server that has gone."""
        with anyio.CancelScope() as scope:
            self._work = scope
            try:
                files = await anyio.to_thread.run_sync(
                    files_named, self.host.settings, text, self._session.cwd, self.reader.given
                )
                if files:
                    self.note(f"Attached: {', '.join(file.name for file in files)}")
                running = await self._session.start(text, files=files)
                await anyio.to_thread.run_sync(remove_sent, text, self.reader.pictures)
                return running
            finally:
                self._work = None
        self.reader.keep(text)
        self.view.note("(interrupted)", "yellow")
        return None

    async def _follow_other(self, running: RunningTurn) -> None:
        """Follow a turn that another client of this session began."""

        def show(event: Event) -> None:
            if isinstance(event, TurnStart):
                words = event.message.text
                rest = f" … {counted(len(words) - _MOST_OTHERS, 'more character')}"
                if words:  # a turn that goes on after a build has none
                    rest = rest if len(words) > _MOST_OTHERS else ""
                    self.view.note(f"» {words[:_MOST_OTHERS]}{rest}", "bold", wraps=True)
            self.view.show(event)

        await self._follow(running, show)

    async def _follow(self, running: RunningTurn, show: Callable[[Event], None] | None = None) -> None:
        self._running = running
        try:
            await follow(
                self._session,
                running,
                show=show or self.view.show,
                answers=self._answers,
                reached=self._reached,
            )
        finally:
            if not self._session.turns_go_on:
                await settled(running)
            elif not running.is_over:
                self.note("The turn goes on in the server.")
            self._running, self._shown_seq = None, self._session.last_seq
            self.view.finish()
            result = running.result_or_none
            self._note_end(1 if result is None else exit_code_of(result))

    def _reached(self, seq: int) -> None:
        self._followed_seq = max(self._followed_seq, seq)

    async def _answer_old_questions(self) -> None:
        """Repeat the questions that were open when the program ended; the turn continues with the answers."""
        while self._answers is not None and self._session.is_interrupted:
            question = next((q for q in self._session.open_questions if isinstance(q, QuestionAsked)), None)
            if question is None:
                return
            await self._answers.ask(self._session, question)
            if self._session.running is not None:
                await self._follow(self._session.running)

    async def _watch(self) -> None:
        """Show what happens between two turns, and make room for a turn that another client begins."""
        while True:
            session = self._session
            async for record in session.subscribe():
                if session is not self._session:
                    break
                if isinstance(record.event, QuestionAnswered) and self._answers is not None:
                    self._answers.withdraw(record.event)
                if self._running is not None or self._work is not None:
                    if isinstance(record.event, Posted):
                        self.view.own.has(record.event)  # while its command is known to run
                    if isinstance(record.event, Posted | BuildPosted):
                        self._waiting.append(record)
                    continue
                if session.running is not None and self._prompting is not None:
                    self._prompting.cancel()
                else:
                    self._show_news(record)
            if session is self._session:
                return

    def _show_news(self, record: Record) -> None:
        if self._is_news(record):
            self.view.show(record.event)
            self.view.finish()

    def _is_news(self, record: Record) -> bool:
        match record.event:
            case Notice(part="server"):
                return True  # it is not part of the session, so it has no number of its own
            case Posted() | BuildPosted():
                # A turn shows them, too. A command doesn't, and neither does a turn that is no longer followed.
                return record.seq > self._followed_seq
            case Notice() | Compaction():
                return record.seq > self._shown_seq
            case Action(round=0) | Observation(round=0):
                return record.seq > self._shown_seq  # another client runs a tool
            case _:
                return False

    def _note_end(self, code: int) -> None:
        """Without a terminal, the exit code reports the worst turn; at a terminal, the user has seen it."""
        if not is_terminal(sys.stdin):
            self._code = max(self._code, code)

    async def _change_session(self, change: SessionChange) -> None:
        """Continue in another session or a new one. If it can't be opened, the current one stays open."""
        if change.session_id is not None and self._session.id.startswith(change.session_id):
            self.note("You are in this conversation.")
            return
        before = self._session
        after = await self.host.session(
            change.session_id,
            private=change.private,
            project=change.project,
            interactive=self._answers is not None,
            like=before,
        )
        self._session, self._followed_seq, self._waiting = after, 0, []
        await before.aclose("left")
        await self._greet()
        if change.draft:
            self.reader.keep(change.draft)

    async def complete(self, text: str) -> Sequence[tuple[str, str]]:
        """Completions for the line editor."""
        return await self.host.completions(text, self._session)

    def dropped_in(self, pasted: str, draft: str) -> Sequence[Path]:
        """The files that a pasted text attaches to a draft; none to the answer to a question."""
        is_answer = self._session.pending_question is not None
        return () if is_answer else dropped_in(pasted, draft=draft)


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
