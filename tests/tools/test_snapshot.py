"""What commands changed in the session's folder is undone and redone exactly, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from satchel.errors import NotFound, UsageError
from satchel.models import Call, Reply, ScriptedModel
from satchel.runtime.commands import CommandContext, CommandResult, find_command, run_command
from satchel.tools.builtin import snapshot
from satchel.tools.builtin.changes import copy_changes, redo, uncovered, undo
from satchel.tools.builtin.snapshot import Snapshot, may_write
from tests.requirements import requirement
from tests.runtime.world import opened


def state(work: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in work.rglob("*") if path.is_file()]
    return {str(path.relative_to(work)): (path.read_bytes(), path.stat().st_mode) for path in files}


@requirement("tools:undo:commands")
def test_what_a_command_changed_made_and_removed_is_undone_and_redone_with_its_mode(tmp_path: Path) -> None:
    work, spill = tmp_path / "work", tmp_path / "spill"
    (work / "src").mkdir(parents=True)
    for name, content in (("src/a.py", b"a = 1\n"), ("empty", b""), ("run.sh", b"echo\n"), ("same", b"s")):
        (work / name).write_bytes(content)
    (work / "run.sh").chmod(0o755)
    (work / ".gitignore").write_text("out/\n")
    (work / "out").mkdir()
    before = state(work)
    taken = Snapshot(work, spill)
    (work / "src/a.py").write_bytes(b"a = 2\n")
    (work / "empty").unlink()
    (work / "run.sh").unlink()
    os.utime(work / "same")
    (work / "new").mkdir()
    (work / "new/b").write_bytes(b"b")
    (work / "new/b").chmod(0o700)
    (work / "out/ignored.o").write_bytes(b"o")
    taken.keep(3)
    after = state(work)
    looked = undo(spill, only_looks=True)
    assert looked is not None
    assert looked.names == looked.by_commands
    assert [Path(name).relative_to(work) for name in looked.names] == [
        Path("empty"),
        Path("new/b"),
        Path("run.sh"),
        Path("src/a.py"),
    ]
    undo(spill)
    assert state(work) == {**before, "out/ignored.o": after["out/ignored.o"]}
    copy_changes(spill, tmp_path / "copy", before=4)  # of what stands: nothing
    assert undo(tmp_path / "copy") is None
    redo(spill)
    assert state(work) == after
    # A branch undoes it with the modes, too.
    copy_changes(spill, tmp_path / "copy", before=4)
    undo(tmp_path / "copy")
    assert state(work) == {**before, "out/ignored.o": after["out/ignored.o"]}


@requirement("tools:undo:commands")
def test_what_somebody_changed_after_the_command_stays_and_nothing_is_written(tmp_path: Path) -> None:
    work, spill = tmp_path / "work", tmp_path / "spill"
    work.mkdir()
    (work / "a").write_text("1")
    (work / "b").write_text("1")
    taken = Snapshot(work, spill)
    (work / "a").write_text("2")
    (work / "b").unlink()
    taken.keep(1)
    (work / "b").write_text("mine")
    restored = undo(spill)
    assert restored is not None
    assert restored.conflicts == (str(work / "b"),)
    assert ((work / "a").read_text(), (work / "b").read_text()) == ("2", "mine")


@requirement("tools:undo:commands")
def test_what_is_too_large_or_too_much_is_named_and_a_link_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, spill, other = tmp_path / "work", tmp_path / "spill", tmp_path / "other"
    for folder in (work / "d", other):
        folder.mkdir(parents=True)
    (other / "secret").write_text("secret")
    (work / "d/secret").write_text("mine")
    (work / "large").write_bytes(b"x" * (1 << 20) + b"x")
    taken = Snapshot(work, spill)
    (work / "large").write_bytes(b"y" * (1 << 20) + b"y")
    (work / "d/secret").unlink()
    (work / "d").rmdir()
    (work / "d").symlink_to(other)
    taken.keep(1)
    assert uncovered(spill) == (str(work / "d/secret"), str(work / "large"))
    assert undo(spill) is None
    assert not any(path.read_bytes() == b"secret" for path in spill.rglob("*") if path.is_file())
    (work / "large").unlink()
    (work / "d").unlink()
    (work / "a").write_text("1")
    taken = Snapshot(work, spill)
    monkeypatch.setattr(snapshot, "MOST_FILES", 1)
    (work / "a").write_text("2")
    (work / "b").write_text("2")
    taken.keep(2)
    assert uncovered(spill, since=2) == ("what else commands changed in a folder with more than 1 file",)
    assert undo(spill) is not None
    assert (work / "a").read_text() == "1"


@requirement("tools:undo:commands")
def test_a_command_that_changes_many_files_waits_for_the_disk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, spill = tmp_path / "work", tmp_path / "spill"
    work.mkdir()
    for number in range(50):
        (work / f"{number}").write_text(f"old {number}")
    taken = Snapshot(work, spill)
    for number in range(50):
        (work / f"{number}").write_text(f"new {number}")
    waits: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", waits.append)
        taken.keep(1)
    assert len(waits) == 1
    # So a loss of power may leave a copy incomplete: then nothing is written.
    for copy in (spill / "changes").iterdir():
        if copy.read_bytes() == b"old 49":
            copy.write_bytes(b"")
    with pytest.raises(NotFound, match="49 contained is not kept any more, so nothing was written"):
        undo(spill)
    assert {file.read_text()[:3] for file in work.iterdir()} == {"new"}


@requirement("tools:undo:commands")
def test_satchels_home_and_more_files_than_are_looked_at_are_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, spill = tmp_path / "work", tmp_path / "spill"
    (work / "home").mkdir(parents=True)
    (work / ".gitignore").write_text("*.o\n")
    database = work / "home/satchel.db"
    database.write_text("old")
    taken = Snapshot(work, spill, home=work / "home")
    database.write_text("what was remembered since")
    (work / "a").write_text("a")
    taken.keep(1)
    restored = undo(spill)
    assert restored is not None
    assert restored.names == (str(work / "a"),)
    assert database.read_text() == "what was remembered since"
    for number in range(10):
        (work / f"{number}.o").touch()
    monkeypatch.setattr(snapshot, "MOST_LOOKED_AT", 10)
    taken = Snapshot(work, spill)
    (work / "a").write_text("a")
    taken.keep(2)
    assert undo(spill) is None
    assert len(uncovered(spill, since=2)) == 1


@requirement("tools:undo:commands")
def test_what_somebody_changed_between_two_commands_of_a_turn_stays(tmp_path: Path) -> None:
    work, spill = tmp_path / "work", tmp_path / "spill"
    work.mkdir()
    file = work / "a"
    file.write_text("1")
    for mine, changed in (("1", "2"), ("2 and mine", "2 and mine, formatted")):
        file.write_text(mine)
        taken = Snapshot(work, spill)
        file.write_text(changed)
        taken.keep(1)
    restored = undo(spill)
    assert restored is not None
    assert restored.conflicts == (str(file),)
    assert file.read_text() == "2 and mine, formatted"


@requirement("tools:undo:commands")
def test_a_file_that_became_a_folder_is_no_failure_and_nothing_is_written(tmp_path: Path) -> None:
    work, spill = tmp_path / "work", tmp_path / "spill"
    work.mkdir()
    (work / "a").write_text("a")
    taken = Snapshot(work, spill)
    (work / "a").unlink()
    (work / "a").mkdir()
    (work / "a/b").write_text("b")
    taken.keep(1)
    restored = undo(spill)
    assert restored is not None
    assert restored.conflicts == (str(work / "a"),)
    assert (work / "a/b").read_text() == "b"


@requirement("tools:undo:commands")
def test_what_gitignore_named_before_the_command_is_not_removed_and_a_moved_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_FRESH_NS", -1_000_000_000)
    work, spill = tmp_path / "work", tmp_path / "spill"
    (work / "src").mkdir(parents=True)
    (work / "src/a").write_text("a")
    (work / ".gitignore").write_text(".env\n")
    (work / ".env").write_text("KEY=1")
    taken = Snapshot(work, spill)
    (work / ".gitignore").write_text("")
    (work / "src").rename(work / "lib")
    taken.keep(1)
    assert uncovered(spill) == (str(work / ".env"),)
    undo(spill)
    assert (work / ".env").read_text() == "KEY=1"
    assert (work / ".gitignore").read_text() == ".env\n"
    assert (work / "src/a").exists()
    assert not (work / "lib/a").exists()


@requirement("tools:undo:commands")
def test_two_commands_at_once_that_see_one_change_are_undone(tmp_path: Path) -> None:
    work, spill = tmp_path / "work", tmp_path / "spill"
    work.mkdir()
    (work / "a").write_text("1")
    both = Snapshot(work, spill), Snapshot(work, spill)
    (work / "a").write_text("2")
    both[0].keep(1)
    (work / "a").write_text("3")
    both[1].keep(1)
    undo(spill)
    assert (work / "a").read_text() == "1"
    # One that begins in the middle of another.
    first = Snapshot(work, spill)
    (work / "a").write_text("2")
    second = Snapshot(work, spill)
    (work / "a").write_text("3")
    first.keep(2)
    second.keep(2)
    undo(spill)
    assert (work / "a").read_text() == "1"


@requirement("tools:undo:commands")
@pytest.mark.parametrize(
    ("command", "may"),
    [
        ("ls -l | wc -l", False),
        ("cat a; sed -i s/a/b/ a", True),
        ("cat a > b", True),
        ("git checkout .", True),
    ],
)
def test_commands_that_only_print_are_not_watched(command: str, may: bool) -> None:
    assert may_write(command) is may


@requirement("tools:undo:commands", "tools:undo")
@pytest.mark.anyio
async def test_a_turn_of_edits_and_commands_is_undone_after_a_yes_and_names_what_stays(
    tmp_path: Path,
) -> None:
    calls = [
        Call(name="file_write", input={"path": "x.py", "content": "x=1\n"}),
        Call(name="bash", input={"command": "sed -i 's/=/ = /' x.py; rm kept.py; echo n > $'n\\xff.txt'"}),
    ]
    serve = Call(name="bash", input={"command": "true; sleep 0.1", "background": True})
    model = ScriptedModel([Reply(calls=calls), "Done.", Reply(calls=[serve]), "Started.", "I see."])
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        session = await satchel.session()
        work = session.cwd
        (work / "kept.py").write_text("kept")
        outcome = await session.run_turn("Write and format.")
        assert [step.is_error for step in outcome.steps] == [False, False], outcome.steps
        assert (work / "x.py").read_text() == "x = 1\n"
        context = CommandContext(satchel=satchel, session=session, show=lambda _: None, tell=lambda _: None)

        async def say(text: str) -> CommandResult:
            found = find_command(text)
            assert found is not None
            return await run_command(context, *found)

        # What the user runs is the user's, and nothing to undo.
        await session.run_tool("bash", {"command": "echo mine > mine.txt"})
        asked = await say("/undo")
        assert asked.confirm is not None
        assert asked.lines[-1].text.startswith(f"While commands ran, {work / 'x.py'}, {work / 'kept.py'}, ")
        assert (work / "n\udcff.txt").exists(), "nothing is written before the yes"
        told = await asked.confirm.proceed()
        assert "Undone: the file changes of turn 1" in told.lines[0].text
        assert told.lines[0].text.encode()
        assert {path.name for path in work.iterdir()} >= {"kept.py", "mine.txt"}
        assert not {"x.py", "n\udcff.txt"} & {path.name for path in work.iterdir()}
        assert (await say("/redo")).confirm is None
        assert (work / "x.py").read_text() == "x = 1\n"
        assert not (work / "kept.py").exists()
        await session.run_turn("Start it.")
        asked = await say("/undo")
        assert asked.confirm is not None
        done = await asked.confirm.proceed()
        assert done.lines[-1].text == "Not part of it: what commands in the background changed."
        with pytest.raises(
            UsageError, match=r"could be undone\. Not part of it: what commands in the background"
        ):
            await say("/undo")


@requirement("tools:undo:commands")
@pytest.mark.anyio
@pytest.mark.parametrize("line", ["/undo", "/rewind 1 files"])
async def test_hundreds_of_files_are_put_back_and_the_model_is_told_of_some(
    tmp_path: Path, line: str
) -> None:
    name = "a" * 100
    call = Call(name="bash", input={"command": f"for i in {{1..250}}; do echo new > {name}$i; done"})
    async with opened(
        tmp_path, ScriptedModel([Reply(calls=[call]), "Done."]), agent__mode="bypass"
    ) as satchel:
        session = await satchel.session()
        await session.run_turn("Write.")
        context = CommandContext(satchel=satchel, session=session, show=lambda _: None, tell=lambda _: None)
        found = find_command(line)
        assert found is not None
        asked = await run_command(context, *found)
        assert asked.confirm is not None
        assert sum(name in each.text for each in asked.lines) >= 250, "all are listed before the yes"
        told = await asked.confirm.proceed()
        assert any(" and 220 more" in each.text for each in told.lines)
        assert not list(session.cwd.glob("a*"))


@requirement("tools:undo:commands")
@pytest.mark.anyio
async def test_what_a_command_did_before_it_was_stopped_can_be_undone(tmp_path: Path) -> None:
    call = Call(name="bash", input={"command": "echo new > x.txt; sleep 600"})
    async with opened(tmp_path, ScriptedModel([Reply(calls=[call])]), agent__mode="bypass") as satchel:
        session = await satchel.session()
        file = session.cwd / "x.txt"
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(session.run_turn, "Write, and wait.")
                while not (file.exists() and file.read_text()):  # noqa: ASYNC110 - another process does it
                    await anyio.sleep(0.01)
                session.cancel()
        assert session.path is not None
        restored = undo(session.path.with_suffix(".spill"))
        assert restored is not None
        assert restored.by_commands == (str(file),)
        assert not file.exists()
