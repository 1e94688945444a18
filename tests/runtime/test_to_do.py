"""The to-do list outlives compactions and the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.messages import TextBlock
from satchel.models import Call, Reply, ScriptedModel
from satchel.models.port import ModelRequest
from tests.requirements import requirement
from tests.runtime.world import opened

ITEMS = [{"text": "Peel the pears", "status": "done"}, {"text": "Bake the cake", "status": "doing"}]
SHOWN = "[x] Peel the pears\n[~] Bake the cake"


@requirement("tools:todo:kept")
@pytest.mark.anyio
async def test_a_list_is_told_again_after_each_compaction_and_kept_by_the_session(tmp_path: Path) -> None:
    def script(request: ModelRequest) -> Reply:
        if "transcript" in request.system:
            return Reply(text="A summary that says nothing of it.")
        if request.messages[-1].text.endswith("Begin."):
            return Reply(calls=[Call(name="todo", input={"items": ITEMS})])
        if request.messages[-1].text.endswith("Where are we?"):
            return Reply(calls=[Call(name="todo", input={})])
        return Reply(text="Yes.")

    model = ScriptedModel(script)
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session()
        await session.run_turn("Begin.")
        for _ in range(2):
            for _ in range(4):
                await session.run_turn("word " * 2_000)
            assert await session.compact() is not None
            await session.run_turn("Go on.")
            notice, *_ = model.requests[-1].messages[0].blocks
            assert isinstance(notice, TextBlock)
            assert notice.text.count(SHOWN) == 1
    async with opened(tmp_path, model) as satchel:
        turn = await (await satchel.session(session.id)).run_turn("Where are we?")
        assert [step.result for step in turn.steps] == [SHOWN]


@requirement("tools:todo:kept")
@pytest.mark.anyio
async def test_what_is_forgotten_leaves_the_list_too(tmp_path: Path) -> None:
    secret = "Buy the ring for Mara"

    def script(request: ModelRequest) -> Reply:
        if "transcript" in request.system:
            return Reply(text="A summary.")
        if request.messages[-1].text.endswith(secret):
            return Reply(calls=[Call(name="todo", input={"items": [{"text": secret, "status": "doing"}]})])
        if request.messages[-1].text.endswith("Where are we?"):
            return Reply(calls=[Call(name="todo", input={})])
        return Reply(text="Yes.")

    model = ScriptedModel(script)
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session()
        await session.run_turn(secret)
        assert satchel.memory is not None
        ids = [one.id for one in await satchel.memory.list() if secret in one.content]
        await satchel.forget(ids)
        turn = await session.run_turn("Where are we?")
        assert secret not in turn.steps[0].result
        for _ in range(4):
            await session.run_turn("word " * 2_000)
        assert await session.compact() is not None
        await session.run_turn("Go on.")
    sent = "\n".join(str(block) for message in model.requests[-1].messages for block in message.blocks)
    assert secret not in sent
    assert [
        path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
    ] == []
