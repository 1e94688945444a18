"""Changes of the file tools are undone and redone exactly, or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.models import Call, Reply, ScriptedModel
from satchel.runtime.commands import CommandContext, find_command, run_command
from satchel.tools.builtin.changes import keep_change, redo, undo
from satchel.tools.builtin.fence import Place
from satchel.tools.builtin.seen import read_whole
from tests.requirements import requirement
from tests.runtime.world import opened

NAMES = ("a", "b", "c/d")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tool"), st.booleans(), st.sampled_from(NAMES), st.binary(max_size=3)),
        st.tuples(st.just("user"), st.booleans(), st.sampled_from(NAMES), st.none() | st.binary(max_size=3)),
        st.tuples(st.sampled_from(["undo", "redo"]), st.none(), st.none(), st.none()),
    ),
    max_size=100,
)


def state(work: Path) -> dict[str, bytes]:
    return {name: (work / name).read_bytes() for name in NAMES if (work / name).exists()}


@requirement("tools:undo")
@given(STEPS)
def test_edits_of_tools_and_user_undone_and_redone_in_any_order_are_exact_or_untouched(
    steps: list[tuple[str, bool, str, bytes | None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work, spill = Path(folder, "work"), Path(folder, "spill")
        work.mkdir()
        (work / "a").write_bytes(b"first")
        turn = 0
        # Each turn that stands, and each that was taken back: the files that it changed, before and after.
        done: list[dict[str, tuple[bytes | None, bytes | None]]] = []
        taken_back: list[dict[str, tuple[bytes | None, bytes | None]]] = []
        for kind, is_new_turn, name, content in steps:
            if kind == "tool":
                assert content is not None
                if is_new_turn or not done or taken_back:
                    turn += 1
                    done.append({})
                taken_back.clear()
                before = state(work).get(name)
                place = Place(root=work, parts=tuple(name.split("/")), name=name)
                keep_change(spill, turn, place, before, content)
                place.replace(content, expected=read_whole(place)[1] if before is not None else None)
                done[-1][name] = done[-1].get(name, (before, None))[0], content
            elif kind == "user":
                (work / name).parent.mkdir(exist_ok=True)
                (work / name).write_bytes(content) if content is not None else (work / name).unlink(
                    missing_ok=True
                )
            else:
                source, target = (done, taken_back) if kind == "undo" else (taken_back, done)
                there = state(work)
                restored = (undo if kind == "undo" else redo)(spill)
                if not source:
                    assert restored is None
                    continue
                assert restored is not None
                changed = source[-1]
                strange = {name for name, known in changed.items() if there.get(name) not in known}
                if strange:
                    assert {str(work / name) for name in strange} == set(restored.conflicts)
                    assert state(work) == there
                    continue
                target.append(source.pop())
                wanted = {name: known[0 if kind == "undo" else 1] for name, known in changed.items()}
                expected = {**there, **{n: c for n, c in wanted.items() if c is not None}}
                assert state(work) == {n: c for n, c in expected.items() if wanted.get(n, c) is not None}


@requirement("tools:undo")
@pytest.mark.anyio
async def test_a_command_undoes_a_turn_and_the_model_is_told(tmp_path: Path) -> None:
    calls = [Call(name="file_write", input={"path": name, "content": "new"}) for name in ("x.txt", "y.txt")]
    model = ScriptedModel([Reply(calls=calls), "Done.", "I see."])
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        session = await satchel.session()
        work = session.cwd
        outcome = await session.run_turn("Write them.")
        assert [step.is_error for step in outcome.steps] == [False, False], outcome.steps
        assert (work / "x.txt").read_text() == "new"
        context = CommandContext(satchel=satchel, session=session, show=lambda _: None, tell=lambda _: None)

        async def say(text: str) -> str:
            found = find_command(text)
            assert found is not None
            return "\n".join(line.text for line in (await run_command(context, *found)).lines)

        assert "Undone: the file changes of turn 1" in await say("/undo")
        assert not (work / "x.txt").exists()
        assert "Done again" in await say("/redo")
        assert (work / "x.txt").read_text() == "new"
        (work / "y.txt").write_text("mine")
        try:
            told = await say("/undo")
        except Exception as error:  # noqa: BLE001
            told = str(error)
        assert "have changed since turn 1" in told
        assert (work / "x.txt").read_text() == "new"
        assert (work / "y.txt").read_text() == "mine"
        await session.run_turn("Go on.")
    sent = "\n".join(getattr(block, "text", "") for block in model.requests[-1].messages[-1].blocks)
    assert "the user's /undo" in sent
