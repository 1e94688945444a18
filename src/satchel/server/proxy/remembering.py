"""What memory adds to another agent's conversation, and what it captures of it.

A block follows the message that it was found for, where providers have cached nothing yet, and in every later
request it is repeated there, byte for byte, so that the cache stays valid. The place of a block is found by
a hash of what the user said up to there.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import anyio

from satchel.errors import SatchelError
from satchel.memory import Episode, Memory
from satchel.runtime import Satchel
from satchel.server.proxy.conversation import ProxiedConversation, UserMessage, digest_of
from satchel.server.proxy.provider_answer import ProviderAnswer
from satchel.sessions import ClientPlace

_log = logging.getLogger(__name__)

_SEARCH_WAIT_S: Final = 3.0
"""The longest that the other agent waits for memory. A search takes a tenth of a second."""
_CAPTURE_WAIT_S: Final = 2.0
_AGAIN: Final = timedelta(hours=1)
"""The same words at the end of the same history, sent again within this time, get the block that they had. Later they
are taken for another conversation with the same beginning; no provider caches anything for longer."""
_MOST_PROMPTS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What goes out with a request.

    Attributes:
        blocks: By the numbers of the messages that they are added to.
        place: Of the newest turn.
    """

    blocks: Mapping[int, str]
    place: ClientPlace


class Remembering:
    """Adds memory to conversations of other agents, and captures them."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._prompts: OrderedDict[str, None] = OrderedDict()

    @property
    def prompts(self) -> frozenset[str]:
        """The hashes of texts that models have recently written as arguments of calls."""
        return frozenset(self._prompts)

    async def replayed(self, conversation: ProxiedConversation, *, searches: bool = True) -> Replayed | None:
        """The blocks for a request; None if memory is unavailable.

        Args:
            conversation: The conversation in the request.
            searches: Look for memory for the newest turn, if it has none yet.
        """
        memory = self._satchel.memory
        if memory is None:
            return None
        try:
            return await self._replayed(memory, conversation, searches=searches)
        except SatchelError as error:
            # The other agent continues without memory. The message may quote the user, so only the class is logged.
            _log.warning("The memory proxy continues without memory: %s", type(error).__name__)
            return None

    async def _replayed(
        self, memory: Memory, conversation: ProxiedConversation, *, searches: bool
    ) -> Replayed:
        history = self._satchel.sessions.client_history
        turns = conversation.turns
        places = await history.find([turn.key for turn in turns])
        known = [places[turn.key] for turn in turns[:-1] if turn.key in places]
        place = places.get(turns[-1].key)
        is_settled = not conversation.is_new or not searches
        if place is not None and not is_settled and self._satchel.clock.now() - place.at > _AGAIN:
            place = None
        if place is None:
            place = await self._new_place(conversation, known)
            if not is_settled:
                with anyio.move_on_after(_SEARCH_WAIT_S):
                    place = await self._found(memory, conversation, place, known)
            if searches:
                await history.put(place)
        blocks = {turn.number: places[turn.key] for turn in turns[:-1] if turn.key in places}
        blocks[turns[-1].number] = place
        gone = await self._gone(memory, [id for one in blocks.values() for id in one.memory_ids])
        if gone:
            # Forgotten in the moment between the search and here; whatever is forgotten later empties the place itself.
            await history.forget(gone)
        return Replayed(
            blocks={
                number: one.block
                for number, one in blocks.items()
                if one.block and gone.isdisjoint(one.memory_ids)
            },
            place=place,
        )

    async def _new_place(
        self, conversation: ProxiedConversation, known: Sequence[ClientPlace]
    ) -> ClientPlace:
        newest = conversation.turns[-1]
        session = known[-1].session_id if known else f"proxy-{conversation.name or newest.key[:16]}"
        number = await self._satchel.sessions.client_history.last_number(session) + 1
        return ClientPlace(key=newest.key, session_id=session, number=number)

    async def _found(
        self,
        memory: Memory,
        conversation: ProxiedConversation,
        place: ClientPlace,
        known: Sequence[ClientPlace],
    ) -> ClientPlace:
        """The place, with the block that memory has for it."""
        settings = self._satchel.settings.memory
        shown = [id for one in known for id in one.memory_ids]
        parts: list[str] = []
        standing: list[str] = []
        if not known and not await memory.guest_speaks(conversation.recent):
            profile = await memory.standing(
                page_tokens=settings.page_tokens,
                profile_tokens=settings.profile_tokens,
                granted=settings.agent_spheres,
            )
            agenda = await memory.agenda(
                budget_tokens=settings.agenda_tokens,
                granted=settings.agent_spheres,
                standing=profile.whole_ids,
            )
            parts += [one.text for one in (profile, agenda) if one]
            standing += sorted(profile.whole_ids | agenda.whole_ids)
        found = await memory.surface(
            conversation.recent,
            budget_tokens=settings.budget_tokens,
            limit=settings.limit,
            threshold=settings.surface_threshold,
            granted=settings.agent_spheres,
            exclude=shown,
            standing=standing,
            known=shown,
            exclude_session=None if conversation.is_summarised else place.session_id,
        )
        if found.text:
            parts.append(found.text)
        ids = [*standing, *(hit.memory.id for hit in found.memories)]
        return replace(place, block="\n".join(parts), memory_ids=tuple(ids))

    async def _gone(self, memory: Memory, ids: Sequence[str]) -> frozenset[str]:
        return frozenset(ids) - await memory.known(list(ids))

    # Capture

    def begun(self, turn: UserMessage, place: ClientPlace) -> anyio.Event:
        """Capture what the user said: the provider has taken the request. The event is set when that has ended."""
        return self._start_capture(turn.words, place, 0, is_from_outside=False)

    async def answered(
        self,
        heard: ProviderAnswer,
        conversation: ProxiedConversation,
        place: ClientPlace,
        *,
        said: anyio.Event | None,
    ) -> None:
        """Capture the answer, if it is the last one of the turn. Waits a moment, also for `said`."""
        for argument in heard.arguments:
            self._prompts[digest_of(argument)] = None
        while len(self._prompts) > _MOST_PROMPTS:
            self._prompts.popitem(last=False)
        waiting = [said] if said is not None else []
        if heard.is_final and heard.text.strip():
            outside = conversation.has_outside
            waiting.append(self._start_capture(heard.text, place, 1, is_from_outside=outside))
        with anyio.move_on_after(_CAPTURE_WAIT_S):
            for event in waiting:
                await event.wait()

    def _start_capture(
        self, text: str, place: ClientPlace, position: int, *, is_from_outside: bool
    ) -> anyio.Event:
        ended = anyio.Event()

        async def capture() -> None:
            try:
                await self._capture(text, place, position, is_from_outside)
            finally:
                ended.set()

        self._satchel.parts.background.start(capture)
        return ended

    async def _capture(self, text: str, place: ClientPlace, position: int, is_from_outside: bool) -> None:
        memory = self._satchel.memory
        if memory is None or not self._satchel.settings.keeps_memory:
            return
        is_user = position == 0
        episode = Episode(
            session=place.session_id,
            turn=place.number,
            position=position,
            speaker="user" if is_user else "assistant",
            text=text,
            said_at=self._satchel.clock.now(),
            trust="user" if is_user else "outside" if is_from_outside else "agent",
        )
        # What can't be stored now is still in the other agent's own log.
        with suppress(SatchelError):
            await memory.add_episodes([episode])
            self._satchel.distilling.notify()
