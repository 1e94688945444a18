"""What memory does in a session: what stands in it, what a message is shown, and what its turns leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Literal

import anyio

from satchel.clock import local_day
from satchel.errors import SatchelError, StorageError
from satchel.events import Event, MemoryCaptured, MemorySurfaced, Notice, Observation, SurfacedMemory
from satchel.loop import Room
from satchel.memory import Agenda, Context, Episode, Hit, Page, Profile
from satchel.memory.show.profile import SAID_LAST
from satchel.memory.show.reasons import who_said, why_shown
from satchel.messages import Message, TextBlock
from satchel.models import ChatModel
from satchel.runtime.capture import RECALL_PROVIDER, episodes_of
from satchel.runtime.distilling import Distilling
from satchel.runtime.home import Home
from satchel.runtime.lines import held_back_notice
from satchel.runtime.parts import Parts
from satchel.runtime.projects import SessionScope
from satchel.runtime.session_log import SessionLog
from satchel.sessions import FORGOTTEN, Words
from satchel.sessions.view import SessionTurn

_CAPTURE_WAIT_S: Final = 2.0
"""How long the end of a turn waits for its capture, which usually takes milliseconds. A database that another process
holds must not delay the turn; it is captured when the database is free, or when Satchel is opened again."""
_MOST_OF_SESSION: Final = 10_000
_PAGE_WAITS: Final = (
    "A page was written from what memory knows. It stands before no model until you accept it: /page shows it, and "
    "/page accept lets it be used."
)


class SessionMemory:
    """Memory as one open session uses it. It keeps what was composed and named, so that nothing stands twice."""

    def __init__(
        self,
        log: SessionLog,
        *,
        parts: Parts,
        home: Home,
        scope: SessionScope,
        distilling: Distilling,
        branch_turn: int = 0,
    ) -> None:
        """Without memory in `scope`, nothing is shown and nothing stored.

        `branch_turn` is the first turn that a branch doesn't repeat.
        """
        self._log = log
        self._parts = parts
        self._home = home
        self.scope = scope
        self._distilling = distilling
        self._branch_turn = branch_turn
        self._profile_for: int | None = None
        self._agenda_for: tuple[int, str] | None = None
        # What stands in profile or agenda and was named in a turn's result.
        self._named: set[str] = set()
        log.followers.append(self._check_shown)

    @property
    def is_on(self) -> bool:
        """Whether there is a memory to read and to store in."""
        return self.scope.memory is not None

    def absent(self, model: ChatModel, *, wanted: bool) -> tuple[TextBlock, ...]:
        """The notice that the recall-only model answers with if memory is not used."""
        if model.provider != RECALL_PROVIDER or (wanted and self.is_on):
            return ()
        if not self._parts.settings.memory.enabled:
            why = "Memory is switched off (memory.enabled)"
        elif not wanted:
            why = "Memory is left out of this message"
        else:
            why = "Memory is unavailable now"
        return (
            TextBlock(
                text=f"{why}, so I looked nothing up. This message is only in the session's log.",
                origin="notice",
            ),
        )

    async def _judge(self) -> ChatModel | None:
        """The small model; None where it is not wanted, may do no more today, or can't be had: then memory chooses
        without it.
        """
        settings = self._parts.settings
        if settings.memory.surface_judge == "none" or settings.background.models == "off":
            return None
        try:
            # Without a limit, nothing is counted, which takes longer the more sessions there are.
            if (
                settings.background.is_limited
                and (await self._home.background_day(local_day(self._parts.clock.now()))).spent
            ):
                return None
            return await self._parts.models.small()
        except SatchelError as error:
            text = f"No small model chooses among the memories (memory.surface_judge): {error}"
            self._parts.notices.post_once(Notice(part="memory", text=text))
            return None

    async def surface(
        self, messages: Sequence[Message], *, model: ChatModel, is_guests: bool
    ) -> tuple[MemorySurfaced | None, tuple[SurfacedMemory, ...]]:
        """The memories to add to the newest message, or None, and those that stand in the session and fit it.

        The model does not see what it was shown before if somebody else writes now (`is_guests`).
        """
        conversation = self._log.conversation
        settings = self._parts.settings.memory
        budget = Room.of(model.context_window).memory_tokens(settings.budget_tokens)
        recalls_only = model.provider == RECALL_PROVIDER
        judge = None if recalls_only else await self._judge()
        replaced = await self._replaced() if conversation.turns == self._branch_turn else frozenset()
        found: list[Context] = []
        for memory in self.scope.memories:
            # A project's own memories first; the user's others get what is left of the room.
            left = settings.limit - sum(len(context.memories) for context in found)
            if found and left <= 0:
                break
            found.append(
                await memory.surface(
                    messages[-1:] if recalls_only else messages,
                    budget_tokens=budget - sum(context.tokens for context in found),
                    limit=left,
                    threshold=settings.surface_threshold,
                    # A model still sees the memories that it was shown; the recall-only model answers each message
                    # anew.
                    exclude=()
                    if recalls_only or is_guests
                    else conversation.surfaced_ids | self._named | replaced,
                    standing=() if is_guests else conversation.standing_ids,
                    known=() if recalls_only or is_guests else conversation.shown_ids,
                    exclude_session=None if recalls_only or conversation.is_compacted else self._log.id,
                    judge=judge,
                )
            )
        left = settings.limit - sum(len(context.memories) for context in found)
        room = budget - sum(context.tokens for context in found)
        if self.scope.spaces is not None and not is_guests and left > 0 and room > 0:
            shared, away = await self.scope.spaces.surface(
                messages[-1:] if recalls_only else messages,
                budget_tokens=room,
                limit=left,
                exclude=() if recalls_only else conversation.surfaced_ids,
            )
            found.append(shared)
            if away:
                text = (
                    f"Nothing of {', '.join(away)} can be shown now: the server's front door can't ask them."
                )
                self._parts.notices.post_once(Notice(part="memory", text=text))
        stood = [hit for context in found for hit in context.standing]
        self._named.update(hit.memory.id for hit in stood)
        hits = [hit for context in found for hit in context.memories]
        if not hits:
            return None, tuple(map(_surfaced, stood))
        shown = MemorySurfaced(
            turn=conversation.turns,
            text="\n".join(context.text for context in found if context),
            memories=tuple(map(_surfaced, hits)),
            tokens=sum(context.tokens for context in found if context),
            untrusted=any(hit.memory.trust == "outside" for hit in hits),
        )
        return shown, tuple(map(_surfaced, stood))

    async def _replaced(self) -> frozenset[str]:
        """What was said in the other versions of a branch's first turn: what is said anew is not to repeat it."""
        infos = await self._home.sessions.list()
        conversation = next((info.conversation for info in infos if info.id == self._log.id), None)
        others = [info.id for info in infos if info.conversation == conversation and info.id != self._log.id]
        return frozenset(
            [
                one.id
                for memory in self.scope.memories
                for id in others
                for one in await memory.list(session=id, limit=_MOST_OF_SESSION)
                if one.source.turn == self._branch_turn
            ]
        )

    async def is_guests(self, text: str | None) -> bool:
        """Whether somebody else than the user writes this message, or wrote the last one."""
        said: list[Message | str] = [*self._log.conversation.messages, *([] if text is None else [text])]
        try:
            return any(
                [await memory.guest_speaks(said, session=self._log.id) for memory in self.scope.memories]
            )
        except StorageError:
            return False

    async def stand(self, model: ChatModel) -> list[MemorySurfaced]:
        """The page or the profile, where neither stands in the conversation, and the agenda of a new day.

        Both are composed with the first message of an open session, which may be resumed. They keep
        their place and their bytes; a compaction that took them away brings them back with the next message.
        """
        conversation, memories = self._log.conversation, self.scope.memories
        # The recall-only model would answer every message with them.
        if model.provider == RECALL_PROVIDER:
            return []
        settings = self._parts.settings.memory
        room = Room.of(model.context_window)
        events: list[MemorySurfaced] = []
        if self._profile_for != conversation.compactions:
            there = conversation.standing("profile")
            # One that was composed before a compaction leaves out words that no longer stand before the model.
            if there is None or there.turn <= conversation.compacted_in:
                profiles = [
                    await memory.standing(
                        page_tokens=room.memory_tokens(settings.page_tokens),
                        profile_tokens=room.memory_tokens(settings.profile_tokens),
                        confidential=True,
                        # A conversation that goes on has its own words before the model.
                        lately=conversation.turns <= 1,
                        exclude_session=None if conversation.is_compacted else self._log.id,
                    )
                    for memory in reversed(memories)
                ]
                if any(profiles) and (there is None or _joined(profiles) != there.text):
                    events.append(self._standing_event("profile", profiles, ""))
                own = self.scope.memory
                if settings.page_tokens and own is not None and await own.page_waits():
                    self._parts.notices.post_once(Notice(part="memory", text=_PAGE_WAITS))
            self._profile_for = conversation.compactions
        today = local_day(self._parts.clock.now())
        if self._agenda_for != (conversation.compactions, today):
            before = conversation.standing("agenda")
            profile = events[0] if events else conversation.standing("profile")
            stand = {one.id for one in profile.memories if not one.is_part} if profile else ()
            agendas = [
                await memory.agenda(
                    budget_tokens=settings.agenda_tokens,
                    standing=stand,
                    exclude_session=None if conversation.is_compacted else self._log.id,
                )
                for memory in reversed(memories)
            ]
            text = _joined(agendas)
            has_news = text != before.text if before is not None else any(agendas)
            if text and has_news:
                events.append(self._standing_event("agenda", agendas, today))
            self._agenda_for = (conversation.compactions, today)
        return events

    def _standing_event(
        self, name: Literal["profile", "agenda"], shown: Sequence[Profile | Page | Agenda], day: str
    ) -> MemorySurfaced:
        return MemorySurfaced(
            turn=self._log.conversation.turns,
            text=_joined(shown),
            memories=tuple(
                SurfacedMemory(
                    id=memory.id,
                    content=line.words,
                    score=1.0,
                    session=memory.source.session,
                    source_turn=memory.source.turn,
                    is_part=memory.id not in line.whole_ids,
                    why=SAID_LAST if getattr(line, "section", "") == "lately" else "",
                    said_by=who_said(memory),
                    said_at=memory.said_at,
                )
                for part in shown
                for line in part.memories
                for memory in line.sources
            ),
            tokens=sum(part.tokens for part in shown),
            standing=name,
            day=day,
        )

    async def capture(
        self, turn: int, turns: Iterable[SessionTurn], *, forgotten: Sequence[Callable[[str], str]]
    ) -> list[Notice]:
        """Store what was said in a turn as memory. It is in the log already, so a failure is made up for later. `turns`
        is what was said in it, without secrets; `forgotten` take the words out that were forgotten since it began.

        Returns:
            What the user should know.
        """
        memory = self.scope.memory
        if memory is None:
            return []
        episodes = [
            kept
            for said in turns
            for episode in episodes_of(self._log.id, said)
            if (kept := _without_forgotten(episode, forgotten)).text != FORGOTTEN
        ]
        ended = anyio.Event()
        told: list[Notice] = []
        is_late = False

        async def store() -> None:
            try:
                # The log is synced at the end of the turn: it must not say that something was stored which a power
                # failure takes back.
                ids = await memory.add_episodes(episodes, durable=True)
                held = await memory.just_held_back(ids)
                notices = [Notice(part="discretion", text=held_back_notice(held))] if held else []
                late = notices if is_late else []
                told.extend([] if is_late else notices)
                # In one batch: what is not told is not marked as captured, and told when Satchel is started again.
                await self._log.note(MemoryCaptured(turn=turn, ids=tuple(ids)), *late)
                self._distilling.notify()
            except SatchelError as error:
                told.append(_not_captured(str(error)))
            finally:
                ended.set()

        self._parts.background.start(store)
        with anyio.move_on_after(_CAPTURE_WAIT_S):
            await ended.wait()
        is_late = not ended.is_set()
        return [*told, _not_captured("The database is busy.")] if is_late else told

    async def _check_shown(self, event: Event) -> None:
        """Take what an event shows out of the logs, if another process forgot the memories before this one had logged
        their texts. What is forgotten later is found in the log by whoever forgets it.
        """
        match event:
            case MemorySurfaced():
                shown = {memory.id: memory.content for memory in event.memories}
            case Observation(tool="recall_memory", data=[*hits]):
                shown = {hit["memory"]["id"]: hit["memory"]["content"] for hit in hits}
            case _:
                return
        memories = self.scope.memories
        # What is shared belongs to others as well: who was shown it keeps it.
        shown = {id: text for id, text in shown.items() if "/" not in id}
        if not memories or not shown:
            return
        with suppress(StorageError):
            kept = {id for memory in memories for id in await memory.known(list(shown))}
            gone = {id: text for id, text in shown.items() if id not in kept}
            if gone:
                words = [Words(text=text) for text in gone.values()]
                await self._home.sessions.redact(words, memory_ids=list(gone), only_open=True)


def _not_captured(why: str) -> Notice:
    text = f"This turn is in the session log and not yet in memory; it will be captured later. {why}"
    return Notice(part="memory", text=text)


def _joined(shown: Sequence[Profile | Page | Agenda]) -> str:
    """The blocks below each other."""
    return "\n".join(part.text for part in shown if part.text)


def _surfaced(hit: Hit) -> SurfacedMemory:
    return SurfacedMemory(
        id=hit.memory.id,
        content=hit.memory.content,
        score=round(hit.score, 4),
        session=hit.memory.source.session,
        source_turn=hit.memory.source.turn,
        why=why_shown(hit),
        said_by=who_said(hit.memory),
        said_at=hit.memory.said_at,
    )


def _without_forgotten(episode: Episode, forgotten: Iterable[Callable[[str], str]]) -> Episode:
    text = episode.text
    for clean in forgotten:
        text = clean(text)
    return episode if text == episode.text else replace(episode, text=text)
