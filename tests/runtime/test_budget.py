"""The daily budget counts what was spent today, in all sessions of the home and in nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.clock import ManualClock
from satchel.messages import Usage
from satchel.models import Call, Reply, ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel
from tests.requirements import requirement
from tests.runtime.world import settings_in

pytestmark = pytest.mark.anyio

DAY_S = 24 * 3600
ANSWER = Reply(text="Yes.", usage=Usage(input_tokens=1, output_tokens=1, cost_usd=0.6))


def rounds_of(usage: Usage) -> list[Reply]:
    return [Reply(calls=[Call(name=f"none_{number}", input={})], usage=usage) for number in range(40)]


@requirement("loop:budget:day")
async def test_what_a_session_spent_last_week_leaves_todays_budget_alone(tmp_path: Path) -> None:
    clock = ManualClock()
    rounds = rounds_of(Usage(input_tokens=1, cost_usd=0.001))
    model = ScriptedModel([*[ANSWER] * 5, *rounds, "Done."])
    settings = settings_in(tmp_path, budget__day_usd=1.0)
    async with Satchel.open(settings, model=model, embedder=HashingEmbedder(), clock=clock) as satchel:
        first = await satchel.session()
        assert [(await first.run_turn(text)).status for text in ("a", "b", "c")] == ["done", "done", "limit"]
        clock.advance(7 * DAY_S)
        # In the session that is still open, and after it was opened again.
        assert (await first.run_turn("d")).status == "done"
        await first.aclose()
        again = await satchel.session(first.id)
        assert (await again.run_turn("e")).status == "done"
        # Another session shares the day.
        other = await satchel.session()
        assert (await other.run_turn("f")).status == "limit"
        clock.advance(DAY_S)
        assert (await other.run_turn("g")).status == "done"
        # As many rounds as the work needs: the budget is the limit.
        assert (await other.run_turn("h")).text == "Done."


@requirement("loop:rounds:max")
@pytest.mark.parametrize("cost_usd", [None, 0.0, 0.01])
async def test_a_turn_has_as_many_rounds_as_its_work_needs_whatever_the_model_costs(
    tmp_path: Path, cost_usd: float | None
) -> None:
    model = ScriptedModel([*rounds_of(Usage(input_tokens=1, cost_usd=cost_usd)), "Done."])
    async with Satchel.open(settings_in(tmp_path), model=model, embedder=HashingEmbedder()) as satchel:
        assert (await (await satchel.session()).run_turn("a")).text == "Done."
