"""Mode plan reads only, and ends in a plan that the user approves, changes or refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.models import Call, Reply, ScriptedModel
from satchel.models.port import ModelRequest
from satchel.runtime import Session
from tests.requirements import requirement
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio

STEPS = ["Read the list", "Write the letter"]
PLAN = {"plan": "A **letter** from the list.\u3164", "steps": STEPS}
WRITE = Call(name="file_write", input={"path": "letter.txt", "content": "Dear Mara"})


def planner(request: ModelRequest) -> Reply:
    """Proposes until the plan is approved, then writes the letter."""
    said = request.messages[-1].blocks
    words = "\n".join(getattr(block, "content", getattr(block, "text", "")) for block in said)
    if "approved the plan" in words:
        return Reply(calls=[WRITE])
    if "not approved" in words or "A letter, please." in words:
        return Reply(calls=[Call(name="tool_call", input={"name": "propose_plan", "input": PLAN})])
    return Reply(text="Fine.")


async def proposed(session: Session) -> None:
    turn = await session.run_turn("A letter, please.")
    assert (turn.status, session.mode) == ("asking", "plan")
    assert (
        turn.pending_question
        == "Approve this plan?\n\nA **letter** from the list.\u3164\n\nSteps:\n\n- Read the list\n- Write the letter"
    )


@requirement("plan:approved")
@pytest.mark.parametrize(
    ("before", "answer", "after"),
    [("auto", "yes", "auto"), ("auto", "Yes, in mode ask", "ask"), ("ask", "Yes, in mode auto", "auto")],
)
async def test_an_approved_plan_is_carried_out_in_the_mode_from_before_or_the_one_that_is_chosen(
    tmp_path: Path, before: str, answer: str, after: str
) -> None:
    model = ScriptedModel(planner)
    async with opened(tmp_path, model, agent__mode=before, sandbox__allow_unsafe=True) as satchel:
        session = await satchel.session(allow=["file_write"])
        session.mode = "plan"
        await proposed(session)
        assert model.requests[0].messages[-1].blocks[1].text.startswith("[Plan mode: ")  # type: ignore[union-attr]
        turn = await session.run_turn(answer)
        assert (turn.status, session.mode) == ("done", after)
        # What the answer leads to is not contradicted by the mode from before.
        assert "[Plan mode: " not in str(model.requests[-1].messages[-3:])
        assert turn.steps[0].data == [{"text": step, "status": "pending"} for step in STEPS]
        assert (tmp_path / "work" / "letter.txt").read_text() == "Dear Mara"
        # The list is the one that `todo` keeps.
        to_do = session.conversation.to_do
        assert to_do is not None
        assert to_do.data == turn.steps[0].data


@requirement("plan:changed")
async def test_other_words_change_the_plan_and_nothing_is_written_until_it_is_approved(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(planner)
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(mode="plan", allow=["file_write"])
        await proposed(session)
        turn = await session.run_turn("Yes, but in blue.")
        assert (turn.status, session.mode) == ("asking", "plan")
        assert 'The user said: "Yes, but in blue."' in turn.steps[0].result
        turn = await session.run_turn("No")
        assert (turn.status, turn.text, session.mode) == ("done", "Fine.", "plan")
        assert session.conversation.to_do is None
        assert not (tmp_path / "work" / "letter.txt").exists()
        # Without an approval, no rule and no call gets out of the mode.
        assert "propose_plan" in (await session.run_tool("tool_search", {"query": "propose a plan"})).text


@requirement("plan:changed")
async def test_who_leaves_the_mode_by_hand_has_left_it(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(planner)) as satchel:
        session = await satchel.session()
        await proposed(session)
        session.mode = "auto"
        await session.run_turn("No")
        assert session.mode == "auto"


@requirement("plan:restart")
async def test_a_plan_waits_for_its_answer_in_another_process(tmp_path: Path) -> None:
    model = ScriptedModel(planner)
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        session = await satchel.session(mode="plan")
        await proposed(session)
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        again = await satchel.session(session.id)
        # As long as it is open, nothing else happens.
        assert again.mode == "plan"
        [question] = again.open_questions
        turn = await again.run_turn("Yes, in mode bypass")
        assert (turn.status, again.mode) == ("done", "bypass")
        assert (tmp_path / "work" / "letter.txt").exists()


@requirement("plan:restart")
async def test_a_bare_yes_means_what_was_offered_first_whatever_the_settings_say_since(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, ScriptedModel(planner), agent__mode="ask") as satchel:
        session = await satchel.session(mode="plan")
        await proposed(session)
    async with opened(tmp_path, ScriptedModel(planner), agent__mode="bypass") as satchel:
        again = await satchel.session(session.id)
        await again.run_turn("yes")
        assert again.mode == "ask"


@requirement("plan:reads")
async def test_in_mode_plan_only_reading_runs_and_the_refusal_names_the_tool_that_proposes(
    tmp_path: Path,
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("buy pears")
    model = ScriptedModel(
        [Reply(calls=[Call(name="file_read", input={"path": "notes.txt"}), WRITE]), "I can't write."]
    )
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(mode="plan", allow=["file_write"])
        read, written = (await session.run_turn("Write it.")).steps
        assert "buy pears" in read.result
        assert "propose_plan" in written.result
        assert not (tmp_path / "work" / "letter.txt").exists()
