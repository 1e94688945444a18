from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Run
from tests.requirements import requirement

NO_EMBEDDER = {"SATCHEL_MEMORY_EMBEDDER": "none"}


def _memory_of(run: Run) -> Callable[..., str]:
    """`satchel memory`, by words alone: what it prints, where it ends with `code`."""

    def satchel(*arguments: str, code: int = 0) -> str:
        ran = run("memory", *arguments, environ=NO_EMBEDDER)
        assert ran.code == code, ran.err
        return ran.out.strip()

    return satchel


@requirement("memory:history", "memory:supersede")
def test_a_memory_is_edited_tied_and_superseded_and_its_history_takes_all_of_it_back(run: Run) -> None:
    satchel = _memory_of(run)
    old = satchel(
        "add", "We decided on MySQL for the database", "--type", "decision", "--said-at", "2026-01-05"
    )
    new = satchel(
        "add", "PostgreSQL is our database, we decided", "--type", "decision", "--said-at", "2026-02-05"
    )
    satchel("link", new, old, "--relation", "supersedes", "--why", "outgrown")
    question = "what did we decide about the database"
    hits = json.loads(satchel("search", question, "--json"))
    assert [hit["memory"]["id"] for hit in hits] == [new]
    hits = json.loads(satchel("search", question, "--as-of", "2026-01-20", "--mode", "lexical", "--json"))
    assert [hit["memory"]["id"] for hit in hits] == [old]
    shown = run("memory", "recall", question, "--json", environ=NO_EMBEDDER)
    assert [hit["memory"]["id"] for hit in json.loads(shown.out)] == [new]
    assert f"not shown (is no longer valid): {old}" in shown.err
    walk = json.loads(satchel("related", old, "--json"))
    assert [(one["memory"]["id"], one["relation"], one["outgoing"]) for one in walk["related"]] == [
        (new, "supersedes", False)
    ]
    edited = json.loads(
        satchel("edit", old, "We decided on MariaDB", "--tag", "db", "--why", "a slip", "--json")
    )
    assert (edited["memory"]["content"], edited["memory"]["tags"]) == ("We decided on MariaDB", ["db"])
    history = json.loads(satchel("history", old, "--json"))
    assert [change["action"] for change in history if change["who"] == "user"][-1] == "edit"
    assert history[-1]["before"] == {"content": "We decided on MySQL for the database", "tags": []}
    satchel("undo", edited["change"])
    assert json.loads(satchel("list", "--tag", "db", "--json")) == []
    assert [one["id"] for one in json.loads(satchel("list", "--until", "2026-01-20", "--json"))] == [old]
    assert run("memory", "edit", "gone", "--importance", "1", environ=NO_EMBEDDER).code == 3
    assert run("memory", "edit", old, environ=NO_EMBEDDER).code == 2
    assert run("memory", "undo", "c999", environ=NO_EMBEDDER).code == 3


@requirement("memory:discretion:obeyed")
def test_what_is_added_as_confidential_is_shown_only_when_it_is_asked_about(run: Run) -> None:
    satchel = _memory_of(run)
    told = json.loads(
        satchel(
            "add", "The new job begins in May", "--discretion", "confidential", "--kept-from", "my boss",
            "--sphere", "work", "--sphere", "money", "--json",
        )
    )  # fmt: skip
    assert (told["discretion"], told["kept_from"], told["spheres"]) == (
        "confidential",
        "my boss",
        ["work", "money"],
    )
    assert "new job" not in satchel("recall", "Write to my boss about the new job")
    assert "new job" in satchel("recall", "When does the new job begin?")


@requirement("memory:forget:query", "memory:scopes")
def test_forgetting_shows_a_preview_first_and_scopes_are_separate_stores(run: Run) -> None:
    satchel = _memory_of(run)
    bike = satchel("add", "The red bicycle is in the shed")
    other = satchel("add", "The red bicycle is in the shed", "--scope", "session:7")
    assert [hit["memory"]["id"] for hit in json.loads(satchel("search", "bicycle", "--json"))] == [bike]
    assert satchel("forget", "--query", "bicycles", "--preview").startswith(bike)
    satchel("forget", "--query", "bicycles", code=2)
    satchel("forget", code=2)
    receipt = json.loads(satchel("forget", "--query", "bicycles", "--yes", "--json"))["receipt"]
    assert [entry["id"] for entry in receipt if entry["where"] == "store"] == [bike]
    satchel("forget", "--query", "bicycles", "--yes", code=3)
    assert [one["id"] for one in json.loads(satchel("list", "--scope", "session:7", "--json"))] == [other]
    satchel("forget", "--all", "--yes", "--scope", "session:7")
    assert satchel("list", "--scope", "session:7") == ""
    satchel("list", "--scope", "project", code=2)


def test_backups_that_may_hold_forgotten_words_are_named(run: Run) -> None:
    id = run("memory", "add", "The code is 4711", environ=NO_EMBEDDER).out.strip()
    home = Path(run("config", "path", environ=NO_EMBEDDER).out.strip()).parent
    backup = home / "satchel.db.before-x.backup"
    backup.write_bytes(b"old")
    receipt = json.loads(run("memory", "forget", id, "--yes", "--json", environ=NO_EMBEDDER).out)["receipt"]
    assert {"where": "backup", "file": str(backup), "may_hold": True} in receipt


def test_a_receipt_names_what_satchel_itself_wrote_elsewhere(run: Run, tmp_path: Path) -> None:
    satchel = _memory_of(run)
    id = satchel("add", "Ottokar keeps bees").strip()
    copies = [tmp_path / "a.tar.gz", tmp_path / "b.jsonl", tmp_path / "gone.tar.gz"]
    for command in (["backup", copies[0]], ["memory", "export", copies[1]], ["backup", copies[2]]):
        run(*map(str, command), environ=NO_EMBEDDER)
    copies[2].unlink()
    receipt = json.loads(satchel("forget", id, "--yes", "--json"))["receipt"]
    assert [entry["file"] for entry in receipt if entry["where"] == "backup"] == [
        str(path) for path in copies[:2]
    ]


def test_what_waits_for_its_vector_is_no_fault(run: Run) -> None:
    environ = {"SATCHEL_MEMORY_EMBEDDER": "hash"}
    run("memory", "add", "Ottokar keeps bees", environ=environ)
    assert (found := run("memory", "doctor", "--json", environ=environ)).code == 0
    assert json.loads(found.out)["notes"] == [
        "1 memory has no vector yet. The next search or `--fix` embeds them."
    ]
    run("memory", "doctor", "--fix", environ=environ)
    assert json.loads(run("memory", "doctor", "--json", environ=environ).out)["notes"] == []


def test_a_scope_that_is_named_alone_is_forgotten_whole(run: Run) -> None:
    satchel = _memory_of(run)
    satchel("add", "The red bicycle is in the shed", "--scope", "session:7")
    kept = satchel("add", "The red bicycle is in the shed").strip()
    assert (
        "Preview: 1 memory would be forgotten. Nothing was deleted."
        in run("memory", "forget", "--scope", "session:7", "--preview", environ=NO_EMBEDDER).err
    )
    satchel("forget", "--scope", "session:7", "--yes")
    assert satchel("list", "--scope", "session:7") == ""
    assert satchel("list").startswith(kept)


@requirement("memory:later")
def test_the_list_and_a_search_mark_what_no_longer_holds_or_may_not(run: Run) -> None:
    satchel = _memory_of(run)
    old = satchel("add", "The rent is 950 euros a month", "--said-at", "2026-01-05")
    new = satchel("add", "The rent went up to 1,020 euros a month", "--said-at", "2026-02-05")
    (tea,) = (satchel("add", "Ann likes tea", "--said-at", "2026-01-05"),)
    coffee = satchel("add", "Ann prefers coffee, says Ben", "--said-at", "2026-02-05")
    satchel("link", new, old, "--relation", "supersedes")
    satchel("link", coffee, tea, "--relation", "may_replace", "--weight", "0.4")
    lines = {line.split()[0]: line for line in satchel("list").splitlines()}
    assert lines[old].endswith(f"until 2026-02-05  no longer holds: {new}")
    assert lines[tea].endswith(f"may no longer hold: {coffee}")
    assert "hold" not in lines[new] + lines[coffee]
    (line,) = (line for line in satchel("search", "Ann likes tea").splitlines() if tea in line)
    assert line.endswith(f"may no longer hold: {coffee}")
    satchel("link", coffee, tea, "--relation", "may_replace", "--weight", "0")
    assert "may no longer hold" not in satchel("list")


@requirement("memory:search:no-waiting")
def test_a_search_by_meaning_says_how_many_memories_wait_for_vectors_and_offers_words(run: Run) -> None:
    run("memory", "add", "The network is called kvist.", environ=NO_EMBEDDER)
    unreachable = {"SATCHEL_MEMORY_EMBEDDER": "ollama:nomic-embed-text"}
    ran = run("memory", "search", "network", "--mode", "semantic", environ=unreachable)
    assert ran.code == 0
    assert "1 of 1 memory can’t be found in this mode yet" in ran.err
    assert "--mode lexical" in ran.err
    ran = run("memory", "search", "network", "--mode", "lexical", environ=unreachable)
    assert "kvist" in ran.out
    assert "can’t be found" not in ran.err
