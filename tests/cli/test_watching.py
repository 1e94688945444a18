"""`satchel memory watch`: folders whose documents follow their files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from satchel.errors import StorageError
from satchel.runtime import watching
from satchel.runtime.documents import add_document, remove_documents
from tests.cli.conftest import Run
from tests.requirements import requirement

NOTE = """---
title: The boiler
# a comment
tags: [house]
---
It stands beside the [[Heating/Pump|pump]].

# Descaling
Citric acid, every ninety days.
"""


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    (folder / "Heating").mkdir(parents=True)
    (folder / "Heating" / "Boiler.md").write_text(NOTE)
    (folder / "attic.txt").write_text("The attic holds the sledge.")
    return folder


def work(run: Run) -> None:
    done = run("memory", "work", environ={"SATCHEL_MEMORY_WORKER_IDLE_S": "0"})
    assert done.code == 0, done.err


def names(run: Run) -> list[str]:
    return sorted(Path(one["path"]).name for one in run("memory", "documents", "--json").json)


def shown(run: Run) -> dict[str, Any]:
    [one] = run("memory", "watch", "--list", "--json").json
    return dict(one)


@requirement("documents:watched", "documents:vault")
def test_documents_follow_the_files_of_a_watched_folder(run: Run, vault: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("A parsnip.")
    (vault / "way").symlink_to(outside)
    (vault / "link.md").symlink_to(outside / "secret.md")
    for hidden in (".trash", ".git", "node_modules", "build"):
        (vault / hidden).mkdir()
        (vault / hidden / "a.md").write_text("A parsnip.")
    (vault / ".gitignore").write_text("build/\n")
    assert run("memory", "watch", str(vault)).code == 0
    assert shown(run)["looked_at"] is None
    work(run)
    assert names(run) == ["Boiler.md", "attic.txt"]
    assert run("memory", "search", "parsnip").out == ""
    assert "The boiler (Boiler.md) title: The boiler # a comment tags: [house]" in run(
        "memory", "search", "--limit", "1", "comment house"
    ).out.replace("\\n", " ")
    assert "[[Heating/Pump|pump]]" in run("memory", "search", "beside").out
    assert "The boiler › Descaling" in run("memory", "search", "--limit", "1", "citric").out

    (vault / "attic.txt").write_text("The attic holds the canoe.")
    (vault / "Heating" / "Boiler.md").unlink()
    (vault / "new.md").write_text("The cellar is damp.")
    work(run)
    assert names(run) == ["attic.txt", "new.md"]
    assert run("memory", "search", "sledge").out == ""
    assert "canoe" in run("memory", "search", "canoe").out


@requirement("documents:watched")
def test_what_was_forgotten_stays_forgotten_whatever_its_file_is_called(run: Run, vault: Path) -> None:
    run("memory", "watch", str(vault))
    work(run)
    assert run("memory", "forget", "--document", "attic.txt", "--yes").code == 0
    work(run)
    (vault / "attic.txt").rename(vault / "loft.txt")
    work(run)
    (vault / "attic.txt").write_text("The attic holds the canoe.")
    work(run)
    assert names(run) == ["Boiler.md"]
    assert (shown(run)["forgotten"], shown(run)["left"]) == (1, 0)
    # What the user adds by hand is wanted again.
    run("memory", "add-file", str(vault / "attic.txt"))
    work(run)
    assert names(run) == ["Boiler.md", "attic.txt"]


@requirement("documents:watched")
@pytest.mark.parametrize("by", ["add-file", "a killed look"])
def test_what_was_removed_with_its_file_comes_back_with_it(
    run: Run, vault: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    run("memory", "watch", str(vault))
    work(run)
    text = (vault / "attic.txt").read_text()
    (vault / "attic.txt").unlink()
    if by == "add-file":
        assert run("memory", "add-file", str(vault)).code == 0
    else:

        async def killed(*given: Any) -> Any:
            await remove_documents(*given)
            raise StorageError("killed")

        with monkeypatch.context() as patch:
            patch.setattr(watching, "remove_documents", killed)
            assert run("memory", "work", environ={"SATCHEL_MEMORY_WORKER_IDLE_S": "0"}).code != 0
    assert names(run) == ["Boiler.md"]
    work(run)
    (vault / "attic.txt").write_text(text)
    work(run)
    assert (names(run), shown(run)["forgotten"]) == (["Boiler.md", "attic.txt"], 0)


@requirement("documents:watched")
def test_forgetting_one_of_two_files_with_the_same_bytes_leaves_the_other(run: Run, vault: Path) -> None:
    (vault / "loft.txt").write_text((vault / "attic.txt").read_text())
    run("memory", "watch", str(vault))
    work(run)
    run("memory", "forget", "--document", "attic.txt", "--yes")
    work(run)
    os.utime(vault / "loft.txt", (1, 1))
    (vault / "third.txt").write_text((vault / "attic.txt").read_text())
    work(run)
    assert names(run) == ["Boiler.md", "loft.txt", "third.txt"]
    (vault / "loft.txt").write_text("The attic holds the canoe.")
    work(run)
    assert names(run) == ["Boiler.md", "loft.txt", "third.txt"]
    assert "canoe" in run("memory", "search", "canoe").out
    assert (shown(run)["forgotten"], shown(run)["failed"]) == (1, {})


@requirement("documents:watched")
def test_a_new_file_from_a_forgotten_template_is_read_when_it_says_more(run: Run, vault: Path) -> None:
    run("memory", "watch", str(vault))
    work(run)
    run("memory", "forget", "--document", "attic.txt", "--yes")
    work(run)
    (vault / "today.txt").write_text((vault / "attic.txt").read_text())
    work(run)
    assert (names(run), shown(run)["failed"]) == (["Boiler.md"], {})
    (vault / "today.txt").write_text("Today the sledge was sold.")
    work(run)
    assert names(run) == ["Boiler.md", "today.txt"]


def meanwhile(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Run a command in another process before the next look reads its first file."""

    async def late(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(watching, "add_document", add_document)
        subprocess.run([sys.executable, "-m", "satchel", "memory", *arguments], check=True)
        return await add_document(*given, **named)

    monkeypatch.setattr(watching, "add_document", late)


@requirement("documents:watched")
@pytest.mark.parametrize("is_read", [True, False])
def test_what_is_forgotten_during_a_look_stays_forgotten(
    run: Run, vault: Path, monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    run("memory", "watch", str(vault))
    work(run)
    (vault / "attic.txt").write_bytes(b"The attic holds the canoe." if is_read else b"\x7fELF\0\0")
    if is_read:
        meanwhile(monkeypatch, "forget", "--document", "attic.txt", "--yes")
        work(run)
    else:
        work(run)
        run("memory", "watch", str(vault))
        run("memory", "forget", "--document", "attic.txt", "--yes")
    (vault / "attic.txt").write_text("The attic holds the kayak.")
    work(run)
    work(run)
    assert (names(run), shown(run)["forgotten"]) == (["Boiler.md"], 1)


@requirement("documents:watched")
def test_a_folder_that_is_stopped_during_a_look_leaves_no_document(
    run: Run, vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("memory", "watch", str(vault))
    meanwhile(monkeypatch, "watch", "--stop", "--remove", str(vault))
    work(run)
    assert (names(run), run("memory", "watch", "--json").json) == ([], [])


@requirement("documents:watched", "documents:watched:faces")
@pytest.mark.parametrize("is_there", [True, False])
def test_an_emptied_folder_removes_nothing_before_the_user_says_so(
    run: Run, vault: Path, is_there: bool
) -> None:
    run("memory", "watch", str(vault))
    work(run)
    vault.rename(vault.with_name("elsewhere"))
    if is_there:
        vault.mkdir()
    work(run)
    assert names(run) == ["Boiler.md", "attic.txt"]
    said = (
        f"It is {'empty' if is_there else 'not there'}, or not mounted. Its 2 documents stay until you say:"
    )
    assert said in run("memory", "watch").out
    assert said in run("doctor").out
    if is_there:
        vault.rmdir()
    vault.with_name("elsewhere").rename(vault)
    work(run)
    assert shown(run)["note"] == ""
    assert run("memory", "watch", "--stop", "--remove", str(vault)).code == 0
    assert (names(run), run("memory", "watch", "--json").json) == ([], [])
    assert (vault / "attic.txt").exists()


@requirement("documents:watched")
def test_a_file_that_cannot_be_read_is_named_and_read_when_it_has_changed(run: Run, vault: Path) -> None:
    (vault / "lying.txt").write_bytes(b"\x7fELF\0\0")
    run("memory", "watch", str(vault))
    work(run)
    assert names(run) == ["Boiler.md", "attic.txt"]
    assert list(shown(run)["failed"]) == ["lying.txt"]
    assert "lying.txt could not be read. It is not text." in run("memory", "watch").err
    (vault / "lying.txt").write_text("It is text now.")
    work(run)
    assert names(run) == ["Boiler.md", "attic.txt", "lying.txt"]
    assert run("memory", "watch", "--stop", str(vault)).code == 0
    assert len(names(run)) == 3


KILLED = """
import os, signal
from satchel.cli import main
from satchel.runtime import watching

add_document, added = watching.add_document, []

async def add(*given, **named):
    if len(added) == 30:
        os.kill(os.getpid(), signal.SIGKILL)
    added.append(await add_document(*given, **named))
    return added[-1]

watching.add_document = add
main(["memory", "work"])
"""
"""A look that is killed before its 31st document; what it has done is written down after each twenty."""


@requirement("documents:watched")
def test_a_killed_look_goes_on_where_it_was(run: Run, vault: Path, tmp_path: Path) -> None:
    for at in range(58):
        (vault / f"n{at}.md").write_text(f"Words {at}.")
    run("memory", "watch", str(vault))
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path / "work", check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(names(run)) == 30
    assert 0 < shown(run)["left"] <= 40
    work(run)
    assert len(names(run)) == 60
    found = run("memory", "export").out
    assert found.count("Words 7.") == 1


@requirement("documents:watched:faces")
def test_folders_that_can_not_be_watched_are_refused(run: Run, vault: Path, tmp_path: Path) -> None:
    assert run("memory", "watch", str(vault / "none")).code == 3
    assert run("memory", "watch", "--stop", str(vault)).code == 3
    assert run("memory", "watch", "--stop").code == 2
    for odd in ("~nosuchuser/x", "/" + "a" * 5000):
        for stop in ([], ["--stop"]):
            refused = run("memory", "watch", *stop, odd)
            assert (refused.code, "can't be the path of a folder" in refused.err) == (2, True)
    assert run("memory", "watch", str(vault)).code == 0
    assert (
        "is watched, and one of the two is in the other" in run("memory", "watch", str(vault / "Heating")).err
    )
    assert "Satchel's own files" in run("memory", "watch", str(tmp_path / "home")).err
    assert "Satchel's own files" in run("memory", "watch", str(tmp_path)).err
    assert run("memory", "watch").out.count("\n") == 1
