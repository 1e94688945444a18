"""Satchel from Python, as the design writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel import Satchel
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
