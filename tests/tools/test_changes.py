"""Changes of the file tools are undone and redone exactly, or not at all."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from satchel.errors import NotFound, StorageUnwritable, UsageError
from satchel.models import Call, Reply, ScriptedModel
from satchel.runtime.commands import CommandContext, CommandResult, find_command, run_command
from satchel.tools.builtin.changes import keep_change, redo, undo
from satchel.tools.builtin.fence import Place
from satchel.tools.builtin.seen import read_whole
from satchel.tools.builtin.snapshot import Snapshot
from tests.requirements import requirement
from tests.runtime.world import opened

NAMES = ("a", "b", "c/d")
Step: TypeAlias = tuple[str, bool, str, bytes | None]
STEP = st.one_of(
    st.tuples(st.just("tool"), st.booleans(), st.sampled_from(NAMES), st.binary(max_size=3)),
    st.tuples(st.just("command"), st.booleans(), st.sampled_from(NAMES), st.none() | st.binary(max_size=3)),
    st.tuples(st.just("user"), st.booleans(), st.sampled_from(NAMES), st.none() | st.binary(max_size=3)),
    st.tuples(st.sampled_from(["undo", "redo", "two"]), st.just(False), st.just(""), st.none()),
)
HUNDRED = st.lists(STEP, min_size=200, max_size=240)
"""Half of the steps are edits by tools and commands, a quarter are the user's."""


def state(work: Path) -> dict[str, bytes]:
    return {name: (work / name).read_bytes() for name in NAMES if (work / name).exists()}


def write(path: Path, content: bytes | None) -> None:
    """In place; None removes it."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content) if content is not None else path.unlink(missing_ok=True)


def sent_to(model: ScriptedModel) -> str:
    """What the model was told in its last request."""
    blocks = [block for message in model.requests[-1].messages for block in message.blocks]
    return "\n".join(getattr(block, "text", "") for block in blocks)


@requirement("tools:undo")
@example(
    [
        ("tool", True, "a", b"new"),
        ("user", False, "a", b"mine"),
        ("command", False, "a", b"new"),
        ("undo", False, "", None),
    ]
)
@given(st.lists(STEP))
def test_edits_of_tools_commands_and_user_undone_and_redone_in_any_order_are_exact_or_untouched(
    steps: list[Step],
) -> None:
    play(steps)


@requirement("tools:undo", "tools:undo:commands")
@settings(max_examples=5)
@given(HUNDRED)
def test_so_are_a_hundred_of_them(steps: list[Step]) -> None:
    play(steps)


def play(steps: list[Step]) -> None:
    """Take the steps in a folder of their own; after each undo and redo, compare the files with what they have to be."""
    with tempfile.TemporaryDirectory() as folder:
        work, spill = Path(folder, "work"), Path(folder, "spill")
        work.mkdir()
        (work / "a").write_bytes(b"first")
        turn = 0
        # Each turn that stands, and each that was taken back: the files that it changed, before and after.
        done: list[dict[str, tuple[bytes | None, bytes | None]]] = []
        numbers: list[int] = []
        taken_back: list[list[tuple[int, dict[str, tuple[bytes | None, bytes | None]]]]] = []
        # What the user changed between two changes of one turn.
        strangers: set[tuple[int, str]] = set()

        def note(name: str, before: bytes | None, content: bytes | None) -> None:
            first, then = done[-1].get(name, (before, before))
            if before not in (first, then):
                strangers.add((turn, name))
            done[-1][name] = first, content

        for kind, is_new_turn, name, content in steps:
            if kind == "tool":
                assert content is not None
                if is_new_turn or not done or taken_back:
                    turn += 1
                    done.append({})
                    numbers.append(turn)
                taken_back.clear()
                before = state(work).get(name)
                place = Place(root=work, parts=tuple(name.split("/")), name=name)
                keep_change(spill, turn, place, before, content)
                place.replace(content, expected=read_whole(place)[1] if before is not None else None)
                note(name, before, content)
            elif kind == "command":
                before = state(work).get(name)
                if before == content:
                    continue
                if is_new_turn or not done or taken_back:
                    turn += 1
                    done.append({})
                    numbers.append(turn)
                taken_back.clear()
                taken = Snapshot(work, spill)
                write(work / name, content)
                taken.keep(turn)
                note(name, before, content)
            elif kind == "user":
                write(work / name, content)
            else:
                there = state(work)
                count = 0 if kind == "redo" else min(len(done), 2 if kind == "two" else 1)
                if kind == "redo":
                    changes = (taken_back or [[]])[-1]
                    restored = redo(spill)
                else:
                    changes = [*zip(numbers, done, strict=True)][-count:] if count else []
                    restored = undo(spill, since=changes[0][0] if kind == "two" and changes else None)
                if not changes:
                    assert restored is None
                    continue
                assert restored is not None
                changed: dict[str, tuple[bytes | None, bytes | None]] = {}
                strange = set()
                for number, files in changes:
                    for name, (before, after) in files.items():
                        first, then = changed.get(name, (before, before))
                        strange |= {name} if then != before or (number, name) in strangers else set()
                        changed[name] = first, after
                strange |= {name for name, known in changed.items() if there.get(name) not in known}
                if strange:
                    assert {str(work / name) for name in strange} == set(restored.conflicts)
                    assert state(work) == there
                    continue
                if kind == "redo":
                    for number, files in taken_back.pop():
                        done.append(files)
                        numbers.append(number)
                else:
                    taken_back.append(changes)
                    del done[-count:], numbers[-count:]
                wanted = {name: known[1 if kind == "redo" else 0] for name, known in changed.items()}
                expected = {**there, **{n: c for n, c in wanted.items() if c is not None}}
                assert state(work) == {n: c for n, c in expected.items() if wanted.get(n, c) is not None}


@requirement("tools:undo:killed")
def test_an_undo_that_is_killed_before_any_of_its_steps_leaves_each_file_whole_and_the_next_ends_it(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tests.tools.undo_worker", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30


@requirement("tools:undo")
def test_turns_that_could_not_be_undone_together_are_undone_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = tmp_path / "spill"
    for turn, name in enumerate("abc", 1):
        place = Place(root=tmp_path, parts=(name,), name=name)
        keep_change(spill, turn, place, None, name.encode())
        place.replace(name.encode(), expected=None)

    def fails(*_: Any, **__: Any) -> None:
        raise StorageUnwritable("The disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(Place, "remove", fails)
        with pytest.raises(StorageUnwritable):
            undo(spill, since=1)
    restored = undo(spill)
    assert restored is not None
    assert (restored.turn, restored.last) == (3, 3)
    assert [name for name in "abc" if (tmp_path / name).exists()] == ["a", "b"]


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
    assert "the user's /undo" in sent_to(model)


@requirement("sessions:rewind")
@pytest.mark.anyio
async def test_a_conversation_goes_back_with_its_files_or_not_at_all(tmp_path: Path) -> None:
    def writes(content: str) -> Reply:
        return Reply(calls=[Call(name="file_write", input={"path": "x.txt", "content": content})])

    model = ScriptedModel(
        [writes("one"), "One.", writes("two"), "Two.", writes("three"), "Three.", "I see.", "Here, too."]
    )
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        old = await satchel.session()
        file = old.cwd / "x.txt"
        for words in ("Write one", "Write two", "Write three"):
            assert not (await old.run_turn(words)).steps[0].is_error
        context = CommandContext(satchel=satchel, session=old, show=lambda _: None, tell=lambda _: None)

        async def result_of(text: str) -> CommandResult:
            found = find_command(text)
            assert found is not None
            return await run_command(context, *found)

        assert [line.text.split(maxsplit=1) for line in (await result_of("/rewind")).lines[:-1]] == [
            ["1", "Write one"], ["2", "Write two"], ["3", "Write three"]
        ]  # fmt: skip
        for wrong in ("/rewind 4", "/rewind 0", "/rewind 2 all"):
            with pytest.raises((NotFound, UsageError)):
                await result_of(wrong)
        # What somebody else changed stays, and the conversation too.
        file.write_text("mine")
        with pytest.raises(UsageError, match="Nothing was written.*x.txt"):
            await result_of("/rewind 2 files")
        assert file.read_text() == "mine"
        assert len(await satchel.sessions.list()) == 1
        file.write_text("three")
        asked = await result_of("/rewind 2 files")
        assert asked.lines[0].text == str(file)
        assert asked.confirm is not None
        assert file.read_text() == "three"
        gone = await asked.confirm.proceed()
        assert file.read_text() == "one"
        assert gone.change is not None
        assert gone.change.draft == "Write two"
        new = await satchel.session(gone.change.session_id)
        assert new.turns == 1
        await new.run_turn("What now?")
        sent = sent_to(model)
        assert "Write one" in sent
        assert "Write two" not in sent
        assert f"are as they were before: {file}" in sent
        # The branch goes on undoing, and the old conversation makes its changes again.
        assert "Done again: the file changes of turns 2 to 3" in (await result_of("/redo")).lines[0].text
        assert file.read_text() == "three"
        await result_of("/undo")
        await result_of("/undo")
        context = CommandContext(satchel=satchel, session=new, show=lambda _: None, tell=lambda _: None)
        await result_of("/undo")
        assert not file.exists()
        await result_of("/redo")
        # Without the files, the model hears that they stay changed.
        context = CommandContext(satchel=satchel, session=old, show=lambda _: None, tell=lambda _: None)
        await result_of("/redo")
        told = await result_of("/rewind 1")
        assert told.change is not None
        assert told.change.session_id not in [info.id for info in await satchel.sessions.listed()]
        first = await satchel.session(told.change.session_id)
        await first.run_turn("And now?")
        assert f"stay changed: {file}" in sent_to(model)


@requirement("tools:file-write")
@pytest.mark.anyio
async def test_a_file_that_is_read_in_the_same_answer_is_replaced(tmp_path: Path) -> None:
    calls = [
        Call(name="file_read", input={"path": "x.txt"}),
        Call(name="file_write", input={"path": "x.txt", "content": "new"}),
    ]
    async with opened(
        tmp_path, ScriptedModel([Reply(calls=calls), "Done."]), agent__mode="bypass"
    ) as satchel:
        session = await satchel.session()
        (file := session.cwd / "x.txt").write_text("old")
        outcome = await session.run_turn("Replace it.")
        assert [step.is_error for step in outcome.steps] == [False, False], outcome.steps
        assert file.read_text() == "new"
