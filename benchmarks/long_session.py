"""Whether turns cost more in a longer session: CPU of turn 1,000 compared with turn 10, with an instant model.

Each turn is one round with a tool call and one with the answer. It is measured twice: for the loop alone,
and for a whole `Satchel.session` with its log on disk and without memory. Both turns are in the same session, so only
the ratio matters. The figures are medians of the turns from the tenth on and up to the thousandth.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median

from turn_cpu import SYSTEM, environment, versions

from satchel import Satchel
from satchel.clock import SystemClock
from satchel.config import load
from satchel.conversation import Conversation
from satchel.events import Event
from satchel.loop import PrefixWatch, TokenEstimator, TurnInput, run_turn
from satchel.messages import Message, TextBlock, ToolResultBlock, Usage
from satchel.models.port import ModelRequest
from satchel.models.scripted import Call, Reply, ScriptedModel

TURNS = 1_000
AROUND = 10
"""The number of turns in a median: the tenth and those after it, the thousandth and those before it."""
AIM = 1.3
USAGE = Usage(input_tokens=1_000, output_tokens=20)


class Forgetful(ScriptedModel):
    """A scripted model that stores no requests, because a thousand of them would distort the result."""

    async def stream(self, request: ModelRequest):  # type: ignore[no-untyped-def]
        """See `ChatModel.stream`."""
        async for event in super().stream(request):
            yield event
        self.requests.clear()


def model(tool: str, input: dict[str, str]) -> Forgetful:
    """Calls the tool once in each turn."""

    def reply(request: ModelRequest) -> Reply:
        if isinstance(request.messages[-1].blocks[0], ToolResultBlock):
            return Reply(text="It rains in Bonn.", usage=USAGE)
        return Reply(calls=[Call(name=tool, input=input)], usage=USAGE)

    return Forgetful(reply)


async def measured(turn: Callable[[], Awaitable[object]]) -> dict[str, float]:
    """CPU of the turns, in milliseconds of this process."""
    spent = []
    gc.disable()
    for _ in range(TURNS):
        before = time.process_time()
        await turn()
        spent.append((time.process_time() - before) * 1000)
        gc.collect(0)
    gc.enable()
    early = median(spent[AROUND : 2 * AROUND])
    late = median(spent[-AROUND:])
    return {"turn_10_ms": round(early, 3), "turn_1000_ms": round(late, 3), "ratio": round(late / early, 2)}


async def loop() -> dict[str, float]:
    """The loop alone; the events are discarded."""
    conversation, shop, serving = Conversation(), environment(), model("look", {"place": "Bonn"})
    clock, estimator, watch = SystemClock(), TokenEstimator(), PrefixWatch()

    async def emit(events: Sequence[Event]) -> None:
        pass

    async def turn() -> None:
        outcome = await run_turn(
            TurnInput(
                message=Message(role="user", blocks=(TextBlock(text="And in Bonn?"),)),
                conversation=conversation,
                turn=conversation.turns + 1,
                model=serving,
                system=SYSTEM,
                environment=shop,
                emit=emit,
                clock=clock,
                estimator=estimator,
                watch=watch,
            )
        )
        assert outcome.status == "done", outcome

    return await measured(turn)


async def session() -> dict[str, float]:
    """A session with its log."""
    with tempfile.TemporaryDirectory() as folder:
        serving = model("think", {"thought": "It may rain."})
        settings = load(
            {"HOME": folder, "PATH": os.environ["PATH"], "OLLAMA_HOST": "127.0.0.1:9"},
            cwd=Path(folder),
            home=Path(folder) / "home",
            overrides={"memory.enabled": False},
        )
        async with Satchel.open(settings, model=serving) as satchel:
            opened = await satchel.session()

            async def turn() -> None:
                ended = await opened.run_turn("And in Bonn?")
                assert ended.status == "done", ended

            return await measured(turn)


def main() -> None:
    """Print both ratios, with the target."""
    result = {
        "versions": versions(),
        "aim": AIM,
        "loop": asyncio.run(loop()),
        "session": asyncio.run(session()),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
