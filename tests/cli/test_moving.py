"""`memory export`, `memory import`, `memory doctor`, `backup` and `restore`, as they are typed."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from satchel.cli.home import FetchLine
from tests.cli.conftest import Run
from tests.requirements import requirement

FILES = Path(__file__).parent.parent / "memory" / "transfer" / "files"


@requirement("memory:export:round-trip", "memory:import:transcripts")
def test_an_import_reports_its_counts_and_another_scope_can_import_an_export(
    run: Run, tmp_path: Path
) -> None:
    done = run("memory", "import", str(FILES / "claude"))
    assert done.code == 0
    assert done.out == ""
    assert done.err.splitlines()[:4] == [
        "2 files of claude-code",
        "3 new, 0 known, 1 skipped",
        "  1 conversation new",
        "  1 memory whose secrets were removed",
    ]
    again = run("memory", "import", str(FILES / "claude"), "--json").json
    assert (again["new"], again["known"], again["skipped"]) == (0, 3, 1)
    whole = run("memory", "export").out
    assert run("memory", "export", str(tmp_path / "m.jsonl"), "--json").json["memories"] == 3
    assert (tmp_path / "m.jsonl").read_text() == whole
    assert run("memory", "import", str(tmp_path / "m.jsonl"), "--scope", "copy").code == 0
    assert run("memory", "export", "--scope", "copy").out.splitlines()[1:] == whole.splitlines()[1:]
    some = run("memory", "export", "--since", "2026-03-02T09:03+00:00").out.splitlines()
    assert [json.loads(line)["type"] for line in some] == ["satchel-memory", "memory", "end"]


def test_imports_that_find_nothing_end_with_the_exit_code_that_says_why(run: Run, tmp_path: Path) -> None:
    assert run("memory", "import", str(tmp_path / "none")).code == 3
    (tmp_path / "x.jsonl").write_text("hello\n")
    assert run("memory", "import", str(tmp_path / "x.jsonl")).code == 2
    (tmp_path / "empty").mkdir()
    done = run("memory", "import", str(tmp_path / "empty"))
    assert done.code == 2
    assert "contains no file of a supported format" in done.err
    assert run("memory", "import", str(FILES), "--from", "diary").code == 2
    assert run("memory", "import", str(FILES), "--dry-run", "--json").json["new"] == 32
    assert run("memory", "stats", "--json").json["memories"] == 0
    assert run("memory", "export", "--json").code == 2


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@requirement("memory:doctor")
def test_the_doctor_fails_while_there_is_a_secret_and_takes_it_out_with_yes(run: Run) -> None:
    assert run("memory", "doctor").code == 0
    loose = {"SATCHEL_MEMORY_REDACT": "false"}
    run("memory", "add", f"The token is {SECRET}", environ=loose)
    found = run("memory", "doctor", "--json", environ=loose)
    assert found.code == 1
    assert found.json["secrets"] == 1
    assert found.json["problems"] == ["1 memory has something that looks like a secret."]
    kept = run("memory", "doctor", "--fix")
    assert kept.code == 1
    assert "--yes removes them" in kept.err
    fixed = run("memory", "doctor", "--fix", "--yes", "--json")
    assert fixed.code == 0
    assert fixed.json["repaired"]["redacted"] == 1
    assert SECRET not in run("memory", "export").out


@requirement("cli:backup")
def test_a_backup_brings_back_what_was_there(run: Run, tmp_path: Path) -> None:
    run("memory", "add", "Ann likes tea")
    file = tmp_path / "b.tar.gz"
    assert run("backup", str(file), "--json").json["bytes"] == file.stat().st_size
    run("memory", "add", "later")
    refused = run("restore", str(file))
    assert refused.code == 2
    assert "--yes" in refused.err
    done = run("restore", str(file), "--yes", "--json").json
    assert [one["content"] for one in run("memory", "list", "--json").json] == ["Ann likes tea"]
    assert Path(done["aside"]).is_dir()
    assert run("restore", str(tmp_path / "none"), "--yes").code == 3


def test_what_fetching_a_model_says_stands_once_above_the_bar_of_an_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    line = FetchLine()
    with Progress(console=Console(file=shown, force_terminal=True)):
        for percent in range(1, 100):
            line("downloading", percent, 100)
    assert shown.getvalue().count("embedding model: downloading") == 1
    line("checking", 1, 100)  # without a bar, the line changes
    line("checking", 2, 100)
    assert shown.getvalue().endswith(
        "\r\x1b[Kembedding model: checking 1 %\r\x1b[Kembedding model: checking 2 %"
    )
