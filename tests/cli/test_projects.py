"""`satchel projects`, `--project` and `/project`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run
from tests.requirements import requirement

NONE = {"SATCHEL_MODEL": "none"}


@requirement("projects:faces")
def test_projects_are_made_used_changed_and_deleted_by_commands(run: Run) -> None:
    made = json.loads(
        run("projects", "create", "Attic", "--instructions", "-", "--json", stdin="Be brief.\n").out
    )
    assert (made["name"], made["instructions"]) == ("Attic", "Be brief.")
    assert run("ask", "--project", "attic", "The sledge is called Rosebud.", environ=NONE).code == 0
    assert "Rosebud" not in run("ask", "What is the sledge called?", environ=NONE).out
    assert "Rosebud" in run("ask", "--project", "Attic", "What is the sledge called?", environ=NONE).out
    listed = json.loads(run("projects", "list", "--json").out)
    assert [(one["name"], one["conversations"]) for one in listed] == [("Attic", 2)]
    shown = json.loads(run("projects", "show", "Attic", "--json").out)
    session = shown["sessions"][-1]["id"]
    scope = f"project:{made['id']}"
    assert "Rosebud" in run("memory", "list", "--scope", scope).out
    assert json.loads(run("projects", "move", session, "--json").out)["project"] is None
    assert "Rosebud" in run("memory", "list").out
    assert run("projects", "move", session, "Attic").code == 0
    run("projects", "change", "Attic", "--name", "Loft", "--own-memory-only")
    run("projects", "archive", "Loft")
    assert run("projects", "list").out == ""
    assert "own memory only, archived" in run("projects", "list", "--archived").out
    refused = run("projects", "delete", "Loft", stdin="n\n")
    assert (refused.code, "2 conversations" in refused.err) == (1, True)
    assert run("projects", "delete", "Loft", "--yes").out == "Deleted Loft.\n"
    assert run("projects", "show", "Loft").code != 0
    assert "Rosebud" not in run("session", "list").out + run("memory", "list").out


@requirement("projects:kept")
def test_a_backup_brings_a_project_back(run: Run, tmp_path: Path) -> None:
    run("projects", "create", "Attic", "--instructions", "Speak of beams.")
    run("ask", "--project", "Attic", "The sledge is called Rosebud.", environ=NONE)
    before = run("projects", "show", "Attic").out
    assert run("backup", str(tmp_path / "b.tar.gz")).code == 0
    run("projects", "delete", "Attic", "--yes")
    assert run("restore", str(tmp_path / "b.tar.gz"), "--yes").code == 0
    assert run("projects", "show", "Attic").out == before
    assert "Rosebud" in run("ask", "--project", "Attic", "What is the sledge called?", environ=NONE).out


@requirement("projects:faces")
def test_a_conversation_in_the_terminal_begins_in_a_project_and_leaves_it(run: Run) -> None:
    run("projects", "create", "Attic")
    typed = "The sledge is called Rosebud.\n/project\n/project none\n/memory Rosebud\n/project attic\n/quit\n"
    told = run("chat", "--plain", "--project", "Attic", stdin=typed, environ=NONE)
    assert told.code == 0, told.err
    assert "Attic  ← this one" in told.out
    both = told.out + told.err
    assert both.index("In no project now.") < both.index("In the project Attic now")
    assert "Rosebud" in run("memory", "list", "--scope", "project:" + run("projects", "list").out[:8]).out
    assert "Rosebud" not in run("memory", "list").out
