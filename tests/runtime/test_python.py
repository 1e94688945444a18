"""Satchel from Python, as the design writes it."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel import Satchel
from satchel.errors import UsageError
from satchel.messages import Usage
from satchel.models import ScriptedModel
from satchel.models.scripted import Call, Reply
from tests.requirements import requirement
from tests.runtime.world import settings_in

pytestmark = pytest.mark.anyio


@requirement("python:satchel", "python:turn")
async def test_a_session_runs_turns_and_streams_them(tmp_path: Path) -> None:
    usage = Usage(input_tokens=7, output_tokens=3)
    model = ScriptedModel(
        [
            Reply(calls=[Call(name="think", input={"thought": "Hm."})]),
            Reply(text="Hello.", usage=usage),
            "And now.",
        ]
    )
    async with Satchel.open(settings_in(tmp_path, memory__embedder="none"), model=model) as satchel:
        session = await satchel.session()
        turn = await session.run_turn("Hello")
        events = [event async for event in session.stream("And now?")]
    assert (turn.text, turn.status, turn.session_id, turn.turn) == ("Hello.", "done", session.id, 1)
    (step,) = turn.steps
    assert (step.tool, step.input, step.is_error) == ("think", {"thought": "Hm."}, False)
    assert (turn.usage.input_tokens >= 7, turn.usage.output_tokens >= 3) == (True, True)
    assert [event.type for event in events][0] == "turn_start"
    assert [event.type for event in events][-1] == "turn_end"


@requirement("python:satchel")
async def test_a_client_that_asked_for_it_stops_the_turn_by_leaving_its_stream_or_by_cancelling(
    tmp_path: Path,
) -> None:
    waits = Reply(calls=[Call(name="bash", input={"command": "sleep 60"})])
    model = ScriptedModel([waits, "After the stream.", waits, "After the cancelling."])
    async with Satchel.open(settings_in(tmp_path, memory__embedder="none"), model=model) as satchel:
        session = await satchel.session(mode="bypass")
        with anyio.fail_after(120):
            async with aclosing(session.stream("Begin", stop_when_left=True)) as events:
                async for event in events:
                    if event.type == "action":
                        break
            assert (await session.run_turn("And now?")).text == "After the stream."
            running = await session.start("Begin")
            async for event in running.events():
                if event.type == "action":
                    session.cancel()
                    break
            assert (await session.run_turn("And now?")).text == "After the cancelling."
        assert (await running.result()).status == "cancelled"


async def test_a_message_that_is_no_text_is_refused_in_words(tmp_path: Path) -> None:
    async with Satchel.open(
        settings_in(tmp_path, memory__embedder="none"), model=ScriptedModel([])
    ) as satchel:
        session = await satchel.session()
        nothing: Any = None
        with pytest.raises(UsageError, match="A message must be a text, not NoneType"):
            await session.run_turn(nothing)
