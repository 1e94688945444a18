"""The log of an open session: what happens is written, then shown to all who follow it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

import anyio

from satchel.clock import Clock
from satchel.errors import NotFound, StorageError
from satchel.events import (
    Durable,
    Event,
    ModelCalled,
    Observation,
    Record,
    SessionTitled,
    SubAgentEvent,
    is_transient,
)
from satchel.loop import PrefixWatch
from satchel.memory.store.spending import Asked
from satchel.models import Completion
from satchel.runtime.broadcast import Broadcast
from satchel.runtime.log_redactor import Clean, LogRedactor
from satchel.runtime.replay import Replay
from satchel.runtime.session_files import SessionFiles
from satchel.sessions import EphemeralJournal, Journal, SessionStore, Words, live_redactor

Redact: TypeAlias = Callable[[str, str, bool], str]
"""Takes forgotten words out of a text; see `live_redactor`."""


def _without_title(event: Event) -> Event:
    return replace(event, title="") if isinstance(event, SessionTitled) and event.by == "model" else event


class SessionLog:
    """The log of one open session and the conversation that it makes. Every event passes through `record` or `show`.

    Attributes:
        conversation: As the model sees it. It is read anew after words were forgotten, so nobody else keeps it.
        files: What is kept beside the log.
        watch: Whether each request only adds to the one before it.
        is_redacted: Whether something in it was forgotten, so that no model names it: a title says in other words what
            it was made of.
        activity: What runs in the session, as the beginning of a sentence, or "". Meanwhile, the conversation is not
            read anew.
        followers: Called with each event that was logged, once it is published.
        on_forgotten: Called with what takes forgotten words out of a text.
        on_read: Called with what the log holds when it is read anew.
    """

    def __init__(
        self,
        journal: Journal | EphemeralJournal,
        replay: Replay,
        *,
        sessions: SessionStore,
        files: SessionFiles,
        redactor: LogRedactor,
        clock: Clock,
    ) -> None:
        """`replay` has visited the log."""
        self.id = journal.session_id
        self.journal = journal
        self.conversation = replay.conversation
        self.is_redacted = replay.is_redacted
        self.files = files
        self.redactor = redactor
        self.broadcast = Broadcast(last_seq=journal.last_seq, read=journal.records)
        self.watch = PrefixWatch()
        self.activity = ""
        self.followers: list[Callable[[Event], Awaitable[None]]] = []
        self.on_forgotten: list[Callable[[Clean], None]] = []
        self.on_read: list[Callable[[Replay], None]] = []
        self._clock = clock
        self._sessions = sessions
        self._recording = anyio.Lock(fast_acquire=True)
        self._must_read = False

    async def record(self, *events: Event) -> tuple[Record, ...]:
        """Log events, then publish them, so that nothing is shown that a crash could take back. Events that are never
        logged are only shown, or left out beside others.

        Returns:
            Their records, as they are in the log.

        Raises:
            StorageError: The log can't be written; nothing was published.
        """
        lasting = [event for event in events if not is_transient(event)]
        if not lasting:
            for event in events:
                self.show(event)
            return ()
        for event in lasting:
            of_call = event.event if isinstance(event, SubAgentEvent) else event
            if isinstance(of_call, Observation):
                await self.files.make_readable(of_call.files)

        async def without(forgotten: Sequence[str]) -> Sequence[Event]:
            self._forget_taken(forgotten)
            lasting[:] = map(_without_title, lasting)
            return await self.redactor.redacted(lasting)

        async with self._recording:
            if self.is_redacted:
                lasting[:] = map(_without_title, lasting)
            written = await self.journal.append(
                await self.redactor.redacted(lasting),
                durable=any(isinstance(event, Durable) for event in lasting),
                forgotten=without,
            )
            for record, event in zip(written, lasting, strict=True):
                self.broadcast.publish(replace(record, event=event))
        for event in lasting:
            for follower in self.followers:
                await follower(event)
        return written

    async def note(self, *events: Event) -> None:
        """Record events that don't matter if the log can't be written any more."""
        with suppress(StorageError):
            await self.record(*events)

    def show(self, event: Event, *, is_kept: bool = True) -> None:
        """Show an event that is never logged; see `Broadcast.publish_transient`."""
        self.broadcast.publish_transient(event, at=self._clock.now(), is_kept=is_kept)

    async def count(self, purpose: str, answer: Completion | Asked) -> None:
        """Log a model call that is not part of the conversation, so that the session's usage includes it."""
        event = ModelCalled(
            turn=self.conversation.turns,
            purpose=purpose,
            provider=answer.provider,
            model=answer.model,
            usage=answer.usage,
        )
        await self.record(event)
        self.conversation.apply(event)

    # Forgetting

    def forget(self, redact: Redact, ids: Sequence[str]) -> None:
        """Take forgotten words out of the conversation at once, and out of all that is written while something runs."""
        is_surfaced = self.conversation.has_shown(ids)

        def clean(text: str) -> str:
            return redact(self.id, text, is_surfaced)

        self.is_redacted |= self.conversation.rewrite(clean, ids)
        self.watch.restart()
        if self.activity:
            self.redactor.forget(clean)
            self._must_read = True
        for forgets in self.on_forgotten:
            forgets(clean)

    def _forget_taken(self, texts: Sequence[str]) -> None:
        """The same for what another process has forgotten while something runs, which a new conversation would not
        reach.
        """
        self.is_redacted = self._must_read = True
        if texts:
            self.forget(live_redactor([Words(text=text) for text in texts]), ())

    async def forget_taken(self) -> None:
        """Forget what another process has forgotten; nothing else tells this one."""
        if (texts := await self._take_rewritten()) is not None:
            self._forget_taken(texts)

    async def take_in(self) -> None:
        """The same before anything is said: read the log again."""
        if await self._take_rewritten() is not None or self._must_read:
            await self._read()

    async def _take_rewritten(self) -> Sequence[str] | None:
        async with self._recording:  # a title is written before this, or by what it says
            texts = await self.journal.take_rewritten()
            self.is_redacted |= texts is not None
            return texts

    async def reload(self) -> None:
        """Read the log again, because words in it were forgotten. If something runs, this happens when it ends."""
        self._must_read = True
        if not self.activity:
            await self._read()

    async def rest(self) -> None:
        """Nothing runs any more. A log that can't be read now is read before anything is said; see `take_in`."""
        self.redactor.end_turn()
        try:
            with suppress(StorageError):
                while self._must_read:
                    await self._read()
        finally:
            self.activity = ""

    async def _read(self) -> None:
        self._must_read = False
        with suppress(NotFound):  # nothing was logged yet
            replay = Replay()
            try:
                log = await self._sessions.load(self.id, visit=replay)
            except StorageError:
                self._must_read = True
                raise
            replay.conversation.end(log.last_seq)
            self.conversation = replay.conversation
            self.is_redacted |= replay.is_redacted
            for takes in self.on_read:
                takes(replay)
        self.broadcast.forget()
        self.watch.restart()
