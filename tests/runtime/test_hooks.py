"""What a program that embeds Satchel may change with hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.events import Action
from satchel.loop import Rewrite
from satchel.models import Call, Reply, ScriptedModel
from satchel.tools import ToolResult
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio


class Masking:
    """Reads another file than the one asked for, and masks a number before the model sees it."""

    async def on_action(self, action: Action) -> Rewrite:
        return Rewrite(input={**action.input, "path": "copy.txt"})

    async def on_observation(self, action: Action, result: ToolResult) -> ToolResult:
        return ToolResult(text=result.text.replace("4711", "****"))


@requirement("loop:middlewares")
async def test_a_hook_changes_what_a_tool_gets_and_what_the_model_sees_of_its_result(tmp_path: Path) -> None:
    model = ScriptedModel(
        [Reply(calls=[Call(name="file_read", input={"path": "original.txt"})]), Reply(text="Done.")]
    )
    async with opened(tmp_path, model) as satchel:
        (tmp_path / "work" / "original.txt").write_text("original: 4711")
        (tmp_path / "work" / "copy.txt").write_text("copy: 4711")
        session = await satchel.session(hooks=[Masking()])
        turn = await session.run_turn("Read it.")
    (step,) = turn.steps
    assert (step.input["path"], "copy: ****" in step.result) == ("copy.txt", True)
    seen = str(model.requests[1].messages)
    assert "copy: ****" in seen
    assert "4711" not in seen
