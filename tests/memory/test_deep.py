from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from satchel.errors import ModelUnavailable
from satchel.memory import Memory
from satchel.memory.toolset import MemoryTools
from satchel.models.embedding import HashingEmbedder
from satchel.models.scripted import Reply, ScriptedModel
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("memory:deep:expand", "memory:deep:fuse", "memory:deep:synthesise", "memory:deep:progress")
async def test_a_small_model_expands_and_answers_and_cites_only_what_was_found(tmp_path: Path) -> None:
    events: list[Mapping[str, Any]] = []

    async def progress(event: Mapping[str, Any]) -> None:
        events.append(event)

    async with Memory.open(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:
        thai = await memory.add("User loves Thai cuisine", tags=["food"])
        nuts = await memory.add("An allergy: peanuts")
        tied = await memory.add("The green curry place closes at nine")
        await memory.link(thai, tied, "related", 0.9)
        for number in range(30):
            await memory.add(f"cuisine note {number}")
        model = ScriptedModel(
            [
                Reply(text='```json\n[["cuisine"], ["allergy", "peanuts"], ["Thai"]]\n```'),
                Reply(text=f"Thai food [{thai}], no peanuts [{nuts}] [m00000000000000ff]."),
            ]
        )
        found = await memory.deep("What should the user eat?", model=model, progress=progress)
        assert found.text == f"Thai food [{thai}], no peanuts [{nuts}] ."
        assert (found.cited, found.by_model) == ((thai, nuts), True)
        assert found.angles == ("What should the user eat?", "cuisine", "allergy peanuts", "Thai")
        ids = [hit.memory.id for hit in found.hits]
        assert len(ids) == len(set(ids)) <= 10
        assert {thai, nuts, tied} <= set(ids)
        assert [event["status"] for event in events] == ["expanding", "searching", "found"]
        assert events[2]["count"] == len(ids)
        assert (await memory.get(thai)).access_count == 1
        assert {(row.purpose, row.calls) for row in await memory.spent()} == {("expand", 1), ("answer", 1)}


async def test_without_a_model_or_with_one_that_is_down_it_quotes_what_several_angles_find(
    tmp_path: Path,
) -> None:
    async with Memory.open(tmp_path / "m.db", embedder="none") as memory:
        await memory.add("Lena collects old maps of Vienna", tags=["hobby"])
        await memory.add("The maps hang in the hall")
        down = ScriptedModel([Reply(error=ModelUnavailable("down"))] * 2)
        for model in (None, down):
            found = await memory.deep("Which maps does Lena have, and where do they hang?", model=model)
            assert not found.by_model
            assert 3 <= len(found.angles) <= 5
            assert [line[:3] for line in found.text.splitlines()] == ["- [", "- ["]
            assert len(found.cited) == 2
        assert (await memory.deep("xyzzy")).text == "Nothing was found."


async def test_no_schema_of_memorys_tools_has_a_choice_at_its_top() -> None:
    async with Memory.open(":memory:", embedder="none") as memory:
        tools = await MemoryTools(memory).tools()
    assert [tool.spec.name for tool in tools] == [
        "store_memory",
        "recall_memory",
        "deep_memory",
        "forget_memory",
    ]
    assert not any({"anyOf", "oneOf", "allOf"} & set(tool.spec.input_schema) for tool in tools)
