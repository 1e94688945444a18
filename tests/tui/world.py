"""A screen over a Satchel of its own, and what stands on it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from textual.events import Paste
from textual.pilot import Pilot

from satchel.models import ChatModel
from satchel.runtime import Satchel
from satchel.runtime.hosting import Host, LocalHost, SharedSession
from satchel.tui.screen import ConversationScreen
from tests.runtime.world import opened

WAIT_S = 120


@dataclass
class Hands:
    """What a person at the terminal does and sees."""

    app: ConversationScreen
    pilot: Pilot[int]
    satchel: Satchel | None
    clock: list[float] = field(default_factory=lambda: [0.0])

    @property
    def lines(self) -> list[str]:
        """What stands on the screen, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def picture(self) -> str:
        """The screen without what differs from run to run: times, ids, and empty lines."""
        text = re.sub(r"\b[0-9a-f]{12}\b", "<session>", self.text)
        text = re.sub(r"\b\d\d:\d\d\b", "hh:mm", text)
        text = re.sub(r"\b\d+\.\d s\b", "0.0 s", text)
        text = re.sub(r"\b[\d,]+ tokens in", "9 tokens in", text)
        text = re.sub(r"Satchel [\d.]+", "Satchel 0.0", text)
        text = re.sub(r"\b0\.\d\d\b", "0.00", text)
        text = re.sub(r"─+", "──", text)
        text = re.sub(r" {3,}", "   ", text)
        return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())

    async def see(self, words: str) -> None:
        """Wait until words stand on the screen."""
        await self.until(lambda: words in self.text, lambda: f"{words!r} never came:\n{self.text}")

    async def gone(self, words: str) -> None:
        """Wait until words stand on the screen no more."""
        await self.until(lambda: words not in self.text, lambda: f"{words!r} stayed:\n{self.text}")

    async def until(self, condition: Callable[[], bool], why: Callable[[], str] = lambda: "") -> None:
        with anyio.move_on_after(WAIT_S) as waiting:
            while not condition():
                await self.pilot.pause()
                await anyio.sleep(0.005)
        assert not waiting.cancelled_caught, why()

    async def type(self, text: str) -> None:
        """Write a text, a longer one as a terminal pastes it."""
        if len(text) <= 2:
            await self.pilot.press(*(_NAMES.get(char, char) for char in text))
        else:
            self.app.post_message(Paste(text))
            await self.pilot.pause()

    async def say(self, text: str) -> None:
        """Type a text and send it."""
        await self.type(text)
        await self.pilot.press("enter")

    def look_for_a_while(self) -> None:
        """Let a minute pass."""
        self.clock[0] += 60.0


_NAMES = {" ": "space", "/": "slash", "\n": "ctrl+j"}


@asynccontextmanager
async def screen_of(
    host: Host,
    session: SharedSession,
    *,
    size: tuple[int, int] = (80, 24),
    satchel: Satchel | None = None,
) -> AsyncIterator[Hands]:
    """The screen over an open session."""
    clock = [0.0]
    app = ConversationScreen(host, session, is_dark=True, monotonic_s=lambda: clock[0])
    async with app.run_test(size=size) as pilot:
        yield Hands(app, pilot, satchel, clock)


@asynccontextmanager
async def screen(
    folder: Path,
    model: ChatModel | None,
    *,
    size: tuple[int, int] = (80, 24),
    mode: Any = "ask",
    **overrides: Any,
) -> AsyncIterator[Hands]:
    """A screen over a new session."""
    async with opened(folder, model, **{"agent__mode": mode, **overrides}) as satchel:
        host = LocalHost(satchel)
        session = await host.session(interactive=True)
        async with screen_of(host, session, size=size, satchel=satchel) as hands:
            yield hands
        await hands.app.session.aclose()
