"""Titles of conversations, which the small model makes in the background after the first turns."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import anyio

from satchel.clock import local_day
from satchel.errors import SatchelError
from satchel.events import Event, SessionTitled
from satchel.loop import HardBudget
from satchel.memory.store.spending import Asked, complete
from satchel.messages import Message, TextBlock
from satchel.models import ModelRequest
from satchel.runtime.background_models import TITLE
from satchel.runtime.home import Home
from satchel.runtime.parts import Parts
from satchel.runtime.replay import TITLE_TURNS
from satchel.runtime.session_log import SessionLog
from satchel.sessions import title_of

_log = logging.getLogger(__name__)

_EXCERPT_CHARS: Final = 1_500
_ANSWER_TOKENS: Final = 2_000
"""Enough for models that think before they answer."""
_SYSTEM: Final = (
    "You name conversations. Answer with a title for the one below: what it is about, in two to six words, in the "
    "language of the user. Only the title: no quotation marks, no full stop, no explanation. If nothing was said yet "
    "that could name it, such as in a mere greeting, answer with a single hyphen."
)
_AROUND: Final = re.compile(r"^(?:title:|[\W_])+|[\s\"'“”«»*_`.]+$", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class Titling:
    """Gives one session a title, unless it has one.

    Attributes:
        is_titled: It has one, of the user or of a model.
    """

    log: SessionLog
    _: KW_ONLY
    parts: Parts
    home: Home
    is_titled: bool
    budget: Callable[[], HardBudget]
    _scope: anyio.CancelScope | None = field(default=None, init=False)
    _ended: anyio.Event = field(default_factory=anyio.Event, init=False)

    def __post_init__(self) -> None:
        """Follow the log."""
        self.log.followers.append(self._follow)
        self.log.on_forgotten.append(lambda _: self.stop())

    async def _follow(self, event: Event) -> None:
        self.is_titled = self.is_titled or isinstance(event, SessionTitled)

    def begin(self) -> None:
        """A turn has ended: ask for a title in the background, if one is due and the settings want it."""
        background, conversation = self.parts.settings.background, self.log.conversation
        if (
            self.is_titled
            or self._scope is not None
            or self.log.is_redacted
            or conversation.turns > TITLE_TURNS
            or "off" in (background.models, background.titles)
        ):
            return
        said = "\n\n".join(
            f"{'User' if one.role == 'user' else 'Assistant'}: {one.text.strip()[:_EXCERPT_CHARS]}"
            for one in conversation.last_words(2 * TITLE_TURNS)
        )
        self._scope, self._ended = anyio.CancelScope(), anyio.Event()
        self.parts.background.start(self._run, self._scope, said)

    def stop(self) -> None:
        """Drop the title that is being made: the session is closed, or words were forgotten that may be in it."""
        if self._scope is not None:
            self._scope.cancel()

    async def aclose(self) -> None:
        """The same, and wait until its cost is logged."""
        self.stop()
        if self._scope is not None:
            await self._ended.wait()

    async def _run(self, scope: anyio.CancelScope, said: str) -> None:
        try:
            with scope:
                title = await self._made(said)
                if title and not (self.is_titled or self.log.is_redacted):
                    await self.log.record(self.home.titled(title, by="model"))
        except SatchelError as error:
            _log.info("No title was made: %s", error)  # The first words name the session.
        finally:
            self._scope = None
            self._ended.set()

    async def _made(self, said: str) -> str:
        """A title of at most 60 characters, or "" where there is none to be had."""
        small = await self.parts.models.small()
        if small.provider == "none":
            return ""
        if self.parts.settings.background.is_limited:
            (await self.home.background_day(local_day(self.parts.clock.now()))).check()
        await self.budget().check_call()
        message = Message(role="user", blocks=(TextBlock(text=said),))
        request = ModelRequest(system=_SYSTEM, messages=(message,), max_tokens=_ANSWER_TOKENS)
        asked: list[Asked] = []
        try:
            answer = await complete(small, request, purpose=TITLE, asked=asked)
        finally:
            with anyio.CancelScope(shield=True):
                for each in asked:
                    await self.log.count(TITLE, each)
        return title_of(_AROUND.sub("", answer.message.text.strip().partition("\n")[0]))
