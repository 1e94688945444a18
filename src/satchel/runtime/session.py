"""A session as one of its clients holds it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from satchel.config import Mode
from satchel.conversation import Conversation
from satchel.errors import UsageError
from satchel.events import AskUser, Compaction, Consent, Event, Notice, QuestionAsked
from satchel.messages import Message, ToolResultBlock, Usage
from satchel.models import ChatModel
from satchel.runtime.broadcast import Subscription
from satchel.runtime.hub import SessionHub
from satchel.runtime.turns import RunningTurn, TurnResult
from satchel.tools import ModeGate, Registry, ToolResult

__all__ = ["Session"]


class Session:
    """A client's hold on a conversation; made by `Satchel.session`.

    Any number of clients of one process share a session: each follows its events, talks, answers and interrupts. The
    session is closed when the last of them closes its hold, or with the `Satchel`.

    Attributes:
        is_interactive: Somebody follows this hold and can answer questions.
    """

    def __init__(
        self, hub: SessionHub, *, is_interactive: bool, release: Callable[[Session, str], Any]
    ) -> None:
        """Use `Satchel.session`."""
        self.is_interactive = is_interactive
        self._hub = hub
        self._release = release
        self._is_released = False

    @property
    def id(self) -> str:
        """Names the session for ever."""
        return self._hub.id

    @property
    def cwd(self) -> Path:
        """Its working directory."""
        return self._hub.cwd

    @property
    def path(self) -> Path | None:
        """The log's file; None for an ephemeral session."""
        return self._hub.path

    @property
    def private(self) -> bool:
        """Whether nothing that is said is captured as memory."""
        return self._hub.private

    @property
    def gate(self) -> ModeGate:
        """Decides which calls may run."""
        return self._hub.gate

    @property
    def mode(self) -> Mode:
        """How calls are decided that no rule covers; may be changed."""
        return self._hub.gate.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._hub.gate.mode = mode

    @property
    def model(self) -> ChatModel:
        """What answers."""
        return self._hub.model

    @property
    def tools(self) -> Registry:
        """What the model may call."""
        return self._hub.tools.registry

    @property
    def turns(self) -> int:
        """How many turns were begun."""
        return self._hub.conversation.turns

    @property
    def usage(self) -> Usage:
        """Tokens and money of the whole session."""
        return self._hub.conversation.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages as the model would get them."""
        return self._hub.conversation.messages

    @property
    def conversation(self) -> Conversation:
        """The same with what is open and what was spent. It grows while turns run; read it only."""
        return self._hub.conversation

    @property
    def untrusted(self) -> bool:
        """Whether something from outside is before the model: what it says and stores is kept as from there."""
        return self._hub.conversation.untrusted

    @property
    def last_seq(self) -> int:
        """The number of the newest event; see `subscribe`."""
        return self._hub.broadcast.last_seq

    @property
    def running(self) -> RunningTurn | None:
        """The turn that runs now, whoever began it; or None."""
        return self._hub.running

    @property
    def is_interrupted(self) -> bool:
        """Whether the program stopped in the middle of the newest turn; see `resume`."""
        return self._hub.running is None and self._hub.conversation.is_unfinished

    @property
    def pending_question(self) -> AskUser | None:
        """The question that the next message answers, or None."""
        return self._hub.conversation.question

    @property
    def open_questions(self) -> tuple[QuestionAsked | AskUser, ...]:
        """Every question that waits for an answer, permissions included, oldest first."""
        return self._hub.open_questions

    # Talking

    async def run_turn(
        self, text: str = "", *, memory: bool = True, results: Sequence[ToolResultBlock] = ()
    ) -> TurnResult:
        """Say something and wait for the answer. Cancelling the task interrupts the turn in good order.

        Args:
            text: What the user says.
            memory: Whether fitting memories are shown to the model, and this exchange is kept as one.
            results: Of the calls that the last turn left to the caller (`TurnResult.calls`).

        Raises:
            UsageError: The text is empty, or a turn is running.
            StorageError: It could not be written down; nothing was asked of the model.
        """
        running = await self.start(text, memory=memory, results=results)
        try:
            return await running.result()
        except anyio.get_cancelled_exc_class():
            await self._hub.stop(running)
            raise

    async def stream(
        self,
        text: str = "",
        *,
        memory: bool = True,
        results: Sequence[ToolResultBlock] = (),
        stop_when_left: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """The same, event by event while it happens.

        Args:
            text: As in `run_turn`, and so for `memory` and `results`.
            memory: See `run_turn`.
            results: See `run_turn`.
            stop_when_left: Leaving the loop early interrupts the turn; else the turn goes on and `running` follows it.
        """
        running = await self.start(text, memory=memory, results=results)
        try:
            async for event in running.events():
                yield event
        finally:
            if stop_when_left:
                await self._hub.stop(running)

    async def start(
        self,
        text: str = "",
        *,
        memory: bool = True,
        results: Sequence[ToolResultBlock] = (),
    ) -> RunningTurn:
        """Begin a turn that goes on by itself, whoever follows it.

        Args:
            text: As in `run_turn`, and so for `memory` and `results`.
            memory: See `run_turn`.
            results: See `run_turn`.

        Raises:
            UsageError: The text is empty, a turn is running, or the session is closed.
        """
        self._check_held()
        running = self._hub.running
        if running is not None and running.is_cancelled:
            await running.ended()
        return self._hub.start(text, memory=memory, results=results)

    async def resume(self) -> RunningTurn:
        """Go on with a turn that the program left unfinished (`is_interrupted`).

        Calls that had not started run now, after the same permissions; calls that had started are answered for the
        model with "interrupted; outcome unknown; check before repeating".

        Raises:
            UsageError: No turn was left unfinished, or one is running.
        """
        self._check_held()
        return self._hub.resume()

    def cancel(self) -> None:
        """Interrupt the running turn, if there is one. It may be called at any time."""
        self._hub.cancel()

    def subscribe(self, after_seq: int | None = None) -> Subscription:
        """Follow the session's events: turns, questions, compaction, tools run by hand, posts and notices.

        Each record has its number. An event that is not logged (a delta, progress) has the number of the logged one
        before it. Reading slowly, or no longer, holds up nothing and ends nothing.

        Args:
            after_seq: The number of the last record that the client has: 0 begins with the session's first, None with
                what happens from now on. Live events have the words as they were said; replayed ones have them as the
                log does, without secrets.

        Raises:
            UsageError: The session has no event of this number.
        """
        self._check_held()
        return self._hub.subscribe(after_seq)

    async def answer(
        self,
        id: str,
        text: str | None = None,
        *,
        consent: Consent | Mapping[str, Consent] | None = None,
        words: str = "",
        by: str = "",
    ) -> RunningTurn | None:
        """Answer a question from this session's events. The answer is on disk before it takes effect; the first holds.

        Args:
            id: The `id` of a `QuestionAsked`, or the `call_id` of an `AskUser`.
            text: The answer in words; None declines a tool's question.
            consent: The answer to a permission question: one for all calls, or one for each call id.
            words: Told to the model with a refusal.
            by: How this client names itself.

        Returns:
            The turn that this begins or resumes; None where a running turn goes on.

        Raises:
            NotFound: No question of this id is open.
            UsageError: It was answered already, or the answer doesn't fit.
            StorageError: It could not be written down; the question is still open.
        """
        self._check_held()
        return await self._hub.answer(id, text=text, consent=consent, words=words, by=by)

    # Beside the turns

    async def compact(self, focus: str = "") -> Compaction | None:
        """Replace older messages with a summary now.

        Args:
            focus: What the summary should keep above all.

        Returns:
            What was done, or None where there is nothing to leave out.

        Raises:
            UsageError: A turn is running, or a question is open.
        """
        self._check_held()
        return await self._hub.compact(focus)

    async def run_tool(
        self, name: str, input: Mapping[str, Any], *, show: Callable[[Event], None] = lambda _: None
    ) -> ToolResult:
        """Run a tool that the user asked for, without a model; it is written down like any other call.

        Args:
            name: Of the tool.
            input: Its arguments.
            show: Gets the call's events while it runs.

        Raises:
            NotFound: There is no such tool.
            UsageError: The input doesn't fit its schema, or a turn is running.
        """
        self._check_held()
        return await self._hub.run_tool(name, input, show=show)

    async def note(self, notice: Notice) -> None:
        """Write something down that belongs in the log and not before the model, such as a `/` command."""
        await self._hub.note(notice)

    async def ensure_tools_ready(self) -> list[str]:
        """Wait until everything is there that this session can offer; see `SessionHub.ensure_tools_ready`."""
        return await self._hub.ensure_tools_ready()

    async def refresh_tools(self) -> Registry:
        """Look for tools again.

        Before the first message what is found stands in the prompt. Afterwards the prompt keeps its bytes, and new
        tools are reached through `tool_search`.

        Returns:
            What can be called now.

        Raises:
            UsageError: A turn is running.
        """
        self._check_held()
        return await self._hub.refresh_tools()

    def use_model(self, model: ChatModel) -> None:
        """Let another model answer from the next turn on. The caller closes the one before.

        Raises:
            UsageError: A turn is running.
        """
        self._check_held()
        self._hub.use_model(model)

    async def aclose(self, reason: str = "closed") -> None:
        """Give up this hold; the last one closes the session, which interrupts what runs. It may be called twice."""
        if not self._is_released:
            self._is_released = True
            await self._release(self, reason)

    def _check_held(self) -> None:
        if self._is_released:
            raise UsageError(f"Session {self.id} is closed.")
