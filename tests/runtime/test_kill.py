"""`kill -9` at any moment of a conversation with tools: what was acknowledged is there, and it goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from satchel.messages import Message, ToolResultBlock
from satchel.models import ScriptedModel
from tests.killing import Killing
from tests.loop.rules import history_problems
from tests.requirements import requirement
from tests.runtime.kill_worker import reply
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio

KILLS = 10
LINES_OF_A_TURN = 8


def results_of(messages: tuple[Message, ...]) -> dict[str, ToolResultBlock]:
    return {b.tool_use_id: b for m in messages for b in m.blocks if isinstance(b, ToolResultBlock)}


@requirement("promise:durable:kill")
async def test_nothing_acknowledged_is_lost_in_kills_and_every_session_continues(
    tmp_path: Path,
) -> None:
    chance = random.Random(20261121)
    said: dict[str, set[str]] = {}
    answered: dict[str, set[str]] = {}
    interrupted = 0
    session_id: str | None = None
    with Killing("tests.runtime.kill_worker") as killing:
        for _ in killing.rounds(KILLS, lambda: interrupted > 0):  # noqa: B023 - its value then
            if chance.random() < 0.3:
                session_id = None
            lines = killing.round(
                folder=str(tmp_path),
                session=session_id,
                after=chance.randint(1, 2 * LINES_OF_A_TURN),
                later_s=chance.choice([0, chance.uniform(0, 0.01)]),
            )
            assert lines[0][0] == "session"
            session_id = str(lines[0][1])
            said.setdefault(session_id, set()).update(line[2] for line in lines if line[0] == "said")
            answered.setdefault(session_id, set()).update(line[2] for line in lines if line[0] == "final")
            started = {line[1] for line in lines if line[0] == "action"}
            ended = {line[1] for line in lines if line[0] == "observation"}
            model = ScriptedModel(reply)
            async with opened(tmp_path, model, agent__mode="bypass") as satchel:
                assert satchel.memory is not None
                kept = {
                    r.content
                    for r in await satchel.memory.list(limit=10_000)
                    if r.source.session == session_id
                }
                assert said[session_id] <= kept
                assert answered[session_id] <= kept
                if said[session_id]:
                    session = await satchel.session(session_id)
                    texts = "\n".join(message.text for message in session.messages)
                    assert all(text in texts for text in said[session_id] | answered[session_id])
                    turn = await session.run_turn("Please go on with more")
                    assert (turn.status, turn.text) == ("done", "Done with more")
                    said[session_id].add("Please go on with more")
                    assert history_problems(session.messages) == []
                    results = results_of(session.messages)
                    for call in started - ended:
                        # It was killed after the call had been announced: either it ended and only the news of it was
                        # lost, or the model is told that nobody knows.
                        if results[call].is_error:
                            assert "interrupted; outcome unknown; check before" in results[call].content
                            interrupted += 1
                else:
                    session_id = None
