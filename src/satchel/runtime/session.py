"""A session as one of its clients uses it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from satchel.config import Mode
from satchel.conversation import Conversation
from satchel.errors import UsageError
from satchel.events import (
    AskUser,
    BuildPosted,
    Compaction,
    Consent,
    Event,
    MessageWaiting,
    Notice,
    Posted,
    QuestionAsked,
)
from satchel.loop import Sampling
from satchel.memory import Memory
from satchel.messages import FileBlock, Message, TextBlock, ToolResultBlock, Usage, size_of_text
from satchel.models import ChatModel
from satchel.runtime.broadcast import Subscription
from satchel.runtime.build_news import BuildNews
from satchel.runtime.driver import TurnBeginning
from satchel.runtime.hub import SessionHub
from satchel.runtime.turns import RunningTurn, TurnResult
from satchel.tools import ModeGate, Registry, ToolResult
from satchel.tools.builtin.jobs import BackgroundCommands

__all__ = ["Sampling"]


class Session:
    """One client's hold on an open session; made by `Satchel.session`.

    Any number of clients of one process share a session. Each may follow its events, send messages, answer questions
    and interrupt turns. The session is closed when its last client closes its hold, or with the `Satchel`.

    Attributes:
        is_interactive: The client follows the events and can answer questions.
        answers_later: The client isn't there now; it comes back, and then answers a turn that begins by itself.
        waits_for_builds: The client can't answer, and yet sees a turn that begins by itself.
        is_spare: The client doesn't mind if the session is closed, because it opens it again before it does anything.
    """

    def __init__(
        self, hub: SessionHub, *, is_interactive: bool, release: Callable[[Session, str], Any]
    ) -> None:
        """Use `Satchel.session`."""
        self.is_interactive = is_interactive
        self.answers_later = False
        self.waits_for_builds = False
        self.is_spare = False
        self._hub = hub
        self._release = release
        self._is_released = False

    @property
    def follows(self) -> bool:
        """Whether the client sees a turn that begins by itself, when a build has ended."""
        return self.is_interactive or self.answers_later or self.waits_for_builds

    async def awaits_build(self) -> bool:
        """See `Deliveries.awaits_build`."""
        return await self._hub.deliveries.awaits_build()

    @property
    def jobs(self) -> BackgroundCommands:
        """The commands that run in the background, until the session is closed."""
        return self._hub.jobs

    @property
    def id(self) -> str:
        """The session's permanent id."""
        return self._hub.id

    @property
    def cwd(self) -> Path:
        """Its working directory."""
        return self._hub.driver.environment.cwd

    @property
    def path(self) -> Path | None:
        """The log's file; None for an ephemeral session."""
        return self._hub.log.journal.path

    @property
    def private(self) -> bool:
        """Whether nothing said in this session is captured as memory."""
        return self._hub.private

    @property
    def gate(self) -> ModeGate:
        """The permission gate, which decides which calls may run."""
        return self._hub.driver.tools.gate

    @property
    def mode(self) -> Mode:
        """How to decide calls that no rule covers; may be changed at any time."""
        return self._hub.driver.tools.gate.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._hub.driver.tools.gate.mode = mode

    @property
    def model(self) -> ChatModel:
        """The language model that answers."""
        return self._hub.driver.model

    @property
    def model_name(self) -> str:
        """The model that answers, as the settings name it: "provider:model", or "none"."""
        model = self._hub.driver.model
        return model.provider if model.provider == "none" else f"{model.provider}:{model.model}"

    @property
    def tools(self) -> Registry:
        """The tools that the model may call."""
        return self._hub.driver.tools.registry

    @property
    def turns(self) -> int:
        """The number of turns that have begun."""
        return self._hub.log.conversation.turns

    @property
    def context_tokens(self) -> int:
        """About how many tokens the messages of the next request have, without the instructions and the tools."""
        return self._estimated(self.conversation.size)

    @property
    def memory_tokens(self) -> int:
        """How many of these come from memory: page or profile, agenda, and what was found for messages."""
        blocks = (block for message in self.messages for block in message.blocks)
        shown = (block for block in blocks if isinstance(block, TextBlock) and block.origin == "memory")
        return self._estimated(sum(size_of_text(block.text) for block in shown))

    @property
    def context_window(self) -> int | None:
        """The most tokens that a request to its model and its answer have together; None if that is not known."""
        return self._hub.driver.model.context_window

    @property
    def usage(self) -> Usage:
        """Tokens and cost of the whole session."""
        return self._hub.log.conversation.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages as the next request would contain them."""
        return self._hub.log.conversation.messages

    @property
    def conversation(self) -> Conversation:
        """The messages, the open calls and what was spent. It changes while turns run; don't modify it."""
        return self._hub.log.conversation

    @property
    def untrusted(self) -> bool:
        """Whether the model has read something from outside; then what it says and stores is marked as from there."""
        return self._hub.log.conversation.untrusted

    @property
    def last_seq(self) -> int:
        """The number of the newest event; see `subscribe`."""
        return self._hub.log.broadcast.last_seq

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more messages: it was deleted, or is open elsewhere now."""
        return self._hub.is_closing

    @property
    def running(self) -> RunningTurn | None:
        """The turn that is running, whoever began it; or None."""
        return self._hub.running

    @property
    def turns_go_on(self) -> bool:
        """False: the last client's leaving closes the session, and interrupts its turn."""
        return False

    @property
    def is_interrupted(self) -> bool:
        """Whether the program ended in the middle of the newest turn; see `resume`."""
        return self._hub.running is None and self._hub.log.conversation.is_unfinished

    @property
    def pending_question(self) -> AskUser | None:
        """The question of the tool `ask_user` that the next message answers, or None."""
        return self._hub.log.conversation.question

    @property
    def open_questions(self) -> tuple[QuestionAsked | AskUser, ...]:
        """All questions that wait for an answer, including those for permission, oldest first."""
        return self._hub.open_questions

    @property
    def posts(self) -> tuple[Posted, ...]:
        """What the next message delivers to the model, of programs and of the user's own commands, oldest first."""
        return self._hub.deliveries.next

    @property
    def build_questions(self) -> tuple[BuildPosted, ...]:
        """What the builds that this session asked for want to know, oldest first. `answer` takes the event's `id`.

        The Builder waits a minute for the answer (builder.question_wait_s). After that it goes on with its default, or
        the build waits without it until the answer comes.
        """
        return self._hub.deliveries.questions

    @property
    def build_news(self) -> BuildNews:
        """What this session knows of the builds that it asked for, their questions among it. Not to be changed."""
        return self._hub.deliveries.build_news

    async def catch_up(self) -> None:
        """Show what builds have said up to now. It is looked for every second anyway."""
        await self._hub.deliveries.collect_builds()

    # Turns

    async def run_turn(
        self, text: str = "", *, memory: bool = True, results: Sequence[ToolResultBlock] = ()
    ) -> TurnResult:
        """Send a message and wait for the end of the turn. Cancelling the task interrupts the turn in an orderly way.

        Args:
            text: The user's message.
            memory: Whether the model is shown relevant memories, and the turn is captured as memory.
            results: The results of the calls that the last turn left to the caller (`TurnResult.calls`).

        Raises:
            UsageError, LineFull: As `start`.
            StorageError: The message could not be written to disk; the model was not asked.
        """
        running = await self.start(text, memory=memory, results=results)
        try:
            return await running.result()
        except anyio.get_cancelled_exc_class():
            await running.stop()
            raise

    async def stream(
        self,
        text: str = "",
        *,
        memory: bool = True,
        results: Sequence[ToolResultBlock] = (),
        stop_when_left: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Send a message and yield the events of the turn as they happen. Closing this generator early interrupts the
        turn with `stop_when_left`; otherwise it continues (`running`). See `run_turn`.
        """
        running = await self.start(text, memory=memory, results=results)
        try:
            async for event in running.events():
                yield event
        finally:
            if stop_when_left:
                await running.stop()

    async def start(
        self,
        text: str = "",
        *,
        memory: bool = True,
        results: Sequence[ToolResultBlock] = (),
        captures: bool = True,
        sampling: Sampling | None = None,
        attached: str = "",
        files: Sequence[FileBlock] = (),
    ) -> RunningTurn:
        """Begin a turn and return at once. The turn continues in the background, whether or not anybody follows it.

        While another one runs, the message waits in line (`RunningTurn.waits`). It is on disk when this returns.

        Args:
            text: See `run_turn`.
            memory: See `run_turn`.
            results: See `run_turn`.
            captures: False shows memories and stores none: for words that were captured before.
            sampling: How the model answers in this turn.
            attached: What the user sent along and did not say, such as files: at most 20,000 characters. The model gets
                it as coming from outside, and memory doesn't keep it.
            files: Files that were sent before (`Uploads.add`). The session keeps copies.

        Raises:
            NotFound: A file isn't there.
            UsageError: The text is empty, the session is closed, or a turn is running and these are results for it.
            LineFull: Ten messages wait already.
            StorageError: A message that waits could not be written to disk.
        """
        self._check_held()
        return await self._hub.send(
            TurnBeginning(
                text=text,
                memory=memory,
                results=results,
                attached=attached,
                files=files,
                captures=captures,
                sampling=sampling,
            )
        )

    @property
    def waiting(self) -> tuple[MessageWaiting, ...]:
        """The messages that wait for their turns, the next one first.

        Those that waited when the program ended wait still: they come before the next message, or after `resume`.
        """
        return self._hub.line.messages

    async def take_back(self, id: str) -> MessageWaiting | None:
        """Take a message out of the line. None if it is not in it: its turn has begun.

        Raises:
            StorageError: The log can't be written. Its turn doesn't begin, until the session is opened again.
        """
        self._check_held()
        return await self._hub.line.take_back(id)

    def hold_line(self) -> None:
        """Begin no more turns of messages that wait: the program is about to end. The log keeps them."""
        self._hub.line.is_held = True

    async def take_over(self, history: Sequence[Message]) -> None:
        """Put a conversation that was held elsewhere before the first message. None of it is captured as memory.

        Args:
            history: Messages of both sides, in order. Calls and their results are kept; what memory or a program added
                is kept as such.

        Raises:
            UsageError: The session has turns.
            StorageError: The log can't be written.
        """
        self._check_held()
        await self._hub.take_over(history)

    async def resume(self) -> RunningTurn:
        """Continue the turn that the program left unfinished (`is_interrupted`).

        Calls that had not started run now, if they are permitted. Calls that had started are not repeated; the model is
        told "interrupted; outcome unknown; check before repeating".

        Raises:
            UsageError: No turn is unfinished, or one is running.
        """
        self._check_held()
        return self._hub.resume()

    def cancel(self) -> None:
        """Interrupt the running turn, if there is one. May be called at any time."""
        if self._hub.running is not None:
            self._hub.running.cancel()

    @property
    def memory(self) -> Memory | None:
        """What it stores in: the user's own memory, or that of its project."""
        return self._hub.driver.memory.scope.memory

    @property
    def project(self) -> str:
        """The name of the project that it is in, or ""; its id where the project is gone."""
        found = self._hub.driver.memory.scope.project
        return self._hub.project_id if found is None else found.name

    def subscribe(self, after_seq: int | None = None) -> Subscription:
        """Follow the session's events: turns, questions, compaction, tools run by hand, posts and notices.

        Each record has a number. An event that is not logged (a delta, progress) has the number of the logged one
        before it. Reading slowly, or stopping, affects neither the turn nor other clients. Live events have the words
        as they were said; replayed events have them as they are in the log, without secrets.

        Args:
            after_seq: The number of the last record that the client has: 0 starts with the session's first record, None
                with the next event.

        Raises:
            UsageError: The session has no record with this number.
        """
        self._check_held()
        return self._hub.log.broadcast.subscribe(after_seq)

    async def answer(
        self,
        id: str,
        text: str | None = None,
        *,
        consent: Consent | Mapping[str, Consent] | None = None,
        words: str = "",
        by: str = "",
    ) -> RunningTurn | None:
        """Answer an open question. If several clients answer, the first one holds.

        The answer is on disk before it takes effect.

        Args:
            id: The `id` of a `QuestionAsked` or of a `BuildPosted`, or the `call_id` of an `AskUser`.
            text: The answer to a tool's question; None declines.
            consent: The answer to a permission question, for all of its calls, or by call id.
            words: The reason for a refusal, for the model.
            by: The name of this client.

        Returns:
            The turn that the answer begins or resumes; None if the running turn continues.

        Raises:
            NotFound: No question with this id is open.
            UsageError: The question has been answered already, or the answer doesn't fit it.
            StorageError: The answer could not be written to disk; the question is still open.
        """
        self._check_held()
        return await self._hub.answer(id, text=text, consent=consent, words=words, by=by)

    # Between turns

    async def compact(self, focus: str = "") -> Compaction | None:
        """Replace older messages with a summary now. `focus` is what the summary should keep in particular.

        Returns:
            What was summarised, or None if there is nothing to leave out.

        Raises:
            UsageError: A turn is running, or a question is open.
        """
        self._check_held()
        return await self._hub.compact(focus)

    async def run_tool(
        self, name: str, input: Mapping[str, Any], *, show: Callable[[Event], None] = lambda _: None
    ) -> ToolResult:
        """Run a tool for the user, without the model. The call is logged like any other. `show` is called with the
        events of the call while it runs.

        Raises:
            NotFound: There is no such tool.
            UsageError: The input doesn't fit the tool's schema, or a turn is running.
        """
        self._check_held()
        return await self._hub.run_tool(name, input, show=show)

    async def note(self, notice: Notice) -> None:
        """Log something that the model is not shown, such as a `/` command."""
        await self._hub.log.record(notice)

    async def ensure_tools_ready(self) -> list[str]:
        """Wait until all tools of this session are known; see `SessionTools.ensure_ready`."""
        return await self._hub.driver.tools.ensure_ready()

    async def refresh_tools(self) -> Registry:
        """Look for tools again.

        Before the first message, new tools are added to the prompt. Afterwards the prompt stays the same, and the model
        finds them with `tool_search`.

        Returns:
            The tools that can be called now.

        Raises:
            UsageError: A turn is running.
        """
        self._check_held()
        self._hub.refuse_while_busy()
        return await self._hub.driver.tools.refresh()

    def use_model(self, model: ChatModel) -> None:
        """Use another model from the next turn on. The caller closes the previous one.

        Raises:
            UsageError: A turn is running.
        """
        self._check_held()
        self._hub.use_model(model)

    async def aclose(self, reason: str = "closed") -> None:
        """Give up this hold. The last one closes the session and interrupts its turn. May be called more than once."""
        if not self._is_released:
            self._is_released = True
            await self._release(self, reason)

    def _estimated(self, size: int) -> int:
        return self._hub.driver.terms.estimator.tokens(size)

    def _check_held(self) -> None:
        if self._is_released:
            raise UsageError(f"Session {self.id} is closed.")
