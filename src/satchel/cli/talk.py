"""A conversation in the terminal: reads what the user says, shows what happens, until they leave."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio

from satchel import __version__
from satchel.cli.approvals import TerminalApprover
from satchel.cli.editor import LineReader
from satchel.cli.opening import exit_code_of, settled
from satchel.cli.output import is_terminal, say
from satchel.cli.slash import completions, parse
from satchel.cli.view import TurnView
from satchel.errors import SatchelError, StorageError
from satchel.events import TurnStart
from satchel.runtime import RunningTurn, Satchel, Session
from satchel.tools import ToolResult

__all__ = ["Talk", "said_before"]

_MOST_SESSIONS, _MOST_SAID, _MOST_WAIT_S = 10, 200, 0.3
"""How far the arrow keys go back: so many sessions and messages, and what can be read before somebody waits."""

INTERRUPTED = 130


class Talk:
    """One run of `satchel chat`.

    Attributes:
        satchel: Open, and owned by the caller.
        reader: Where the user types.
        view: What shows the turns.
    """

    def __init__(self, satchel: Satchel, session: Session, *, reader: LineReader, view: TurnView) -> None:
        """Take over an open session; it is closed at the end."""
        self.satchel = satchel
        self.reader = reader
        self.view = view
        self._session = session
        self._scope = anyio.CancelScope()
        self._work: anyio.CancelScope | None = None
        self._running: RunningTurn | None = None
        self._is_interrupted = False
        self._code = 0

    @property
    def session(self) -> Session:
        """The conversation that goes on."""
        return self._session

    @property
    def model_name(self) -> str:
        """What answers."""
        model = self._session.model
        return model.provider if model.provider == "none" else f"{model.provider}:{model.model}"

    def print(self, text: str) -> None:
        """What the user asked for."""
        self.view.finish()
        say(text)

    def note(self, text: str) -> None:
        """What they may want to know."""
        self.view.note(text, "dim")

    def interrupt(self) -> None:
        """Stop what runs now; the conversation goes on."""
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
                with self._scope:
                    self._greet()
                    await self._talk()
                group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._session.aclose("left")
        return INTERRUPTED if self._is_interrupted else self._code

    def _greet(self) -> None:
        private = " · private: nothing is remembered" if self._session.private else ""
        self.note(f"Satchel {__version__} · {self.model_name} · session {self._session.id}{private} · /help")
        if self.model_name == "none":
            self.note(
                "No language model is set up: I remember and recall. `satchel model list` says how to add one."
            )
        question = self._session.pending_question
        if question is not None:
            self.view.note(f"? {question.question}", "bold")

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
                self.note("Ctrl-D leaves.")
                continue
            except EOFError:
                return
            try:
                await self._take(text)
            except EOFError:
                return
            except KeyboardInterrupt:
                self.note("(interrupted)")
            except StorageError as error:
                self.view.note(f"! {error}", "red")
                if not is_terminal(sys.stdin):
                    raise
            except SatchelError as error:
                self.view.note(f"! {error}", "yellow")

    async def _take(self, text: str) -> None:
        if not text.strip():
            return
        command = parse(text.strip())
        if command is None:
            await self._turn(text)
            return
        found, rest = command
        with anyio.CancelScope() as scope:
            self._work = scope
            try:
                await found.run(self, rest)
            finally:
                self._work = None
                self.view.finish()
        if scope.cancelled_caught:
            self.view.note("(interrupted)", "yellow")

    async def _turn(self, text: str) -> None:
        running = self._running = await self._session.start(text)
        try:
            async for event in running.events():
                self.view.show(event)
        finally:
            self._running = None
            await settled(running)
            self.view.finish()
            if running.turn is None:
                self._note_end(1)
            else:
                self._note_end(exit_code_of(running.turn))

    def _note_end(self, code: int) -> None:
        """A program that talks to us is told at the end what the worst of its turns came to; a person has seen it."""
        if not is_terminal(sys.stdin):
            self._code = max(self._code, code)

    async def run_tool(self, name: str, input: Mapping[str, Any]) -> ToolResult | None:
        """Run a tool that the user asked for; None where they interrupted it."""
        return await self._session.run_tool(name, input, show=self.view.show)

    async def change_session(self, session_id: str | None, *, private: bool = False) -> None:
        """Go on in another session, or in a new one.

        Raises:
            NotFound, UsageError, StorageLocked: It can't be opened; the one before goes on.
        """
        if session_id is not None and self._session.id.startswith(session_id):
            self.note("You are in it.")
            return
        before = self._session
        approver = self.approver()
        after = await self.satchel.session(
            session_id,
            cwd=None if session_id else before.cwd,
            approver=approver,
            ask=approver.ask if approver else None,
            private=private,
        )
        after.use_model(before.model)
        after.gate.mode = before.gate.mode
        self._session = after
        await before.aclose("left")
        self._greet()

    def approver(self) -> TerminalApprover | None:
        """Asks the user, where there is one."""
        if not is_terminal(sys.stdin):
            return None
        return TerminalApprover(self.reader, self.view, interrupt=self.interrupt)

    def complete(self, text: str) -> Iterator[tuple[str, str]]:
        """Completions for the line editor."""
        tools = [tool.spec.name for tool in self._session.tools.tools]
        models = [f"{name}:" for name in self.satchel.settings.providers]
        yield from completions(text, tools=tools, models=models)


async def said_before(satchel: Satchel) -> AsyncIterator[str]:
    """What the user said in earlier sessions, the newest first, for the arrow keys."""
    began_s = satchel.clock.monotonic_s()
    seen: set[str] = set()
    for info in (await satchel.sessions.list())[:_MOST_SESSIONS]:
        if satchel.clock.monotonic_s() - began_s > _MOST_WAIT_S:
            return
        try:
            log = await satchel.sessions.load(info.id)
        except SatchelError:
            continue  # a log that can't be read gives no history and is told of elsewhere
        for record in reversed(log.records):
            if isinstance(record.event, TurnStart) and record.event.message.text not in seen:
                seen.add(record.event.message.text)
                yield record.event.message.text
                if len(seen) == _MOST_SAID:
                    return


@contextmanager
def _quiet_keys() -> Iterator[None]:
    """Between two prompts, keep what is typed from showing in an answer, and as it was typed: it waits for the next
    prompt. Ctrl-C stays a signal.
    """
    if not is_terminal(sys.stdin):
        yield
        return
    # Not there on every system, and of no use without a terminal.
    import termios  # noqa: PLC0415

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    quiet = [*before]
    # Enter would arrive at the editor as another key.
    quiet[0] = before[0] & ~termios.ICRNL
    quiet[3] = before[3] & ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
