"""A disk that is full, before or in the middle of whatever is done: a real one, in memory, that only the test sees."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from satchel.storage import REVISIONS
from tests.builder.world import CASES, GREET, SCHEMA
from tests.cli.conftest import serving
from tests.cli.programs import Ran, calls, environ_for, speaks
from tests.models.loopback import Answer, Asked, as_json
from tests.requirements import requirement
from tests.storage.test_database import make_old

DISK = """
import json, os, shutil, subprocess, sys
disk, whole, commands, again = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", disk], check=True)
home, filler = f"{disk}/home", f"{disk}/filler"
def run(command):
    ran = subprocess.run([sys.executable, "-m", "satchel", *command], capture_output=True, text=True, stdin=-3)
    return [ran.returncode, ran.stdout, ran.stderr]
for left in map(int, sys.argv[5:]):
    shutil.copytree(whole, home)
    with open(filler, "wb") as file:
        file.write(bytes(shutil.disk_usage(disk).free - left))
    tried = [run(command) for command in commands]
    os.unlink(filler)
    print(json.dumps([tried, [run(command) for command in again]]))
    try:
        os.kill(int(open(f"{home}/locks/worker").read()), 15)  # it would leave ten seconds later
    except (OSError, ValueError):
        pass
    shutil.rmtree(disk, ignore_errors=True)
"""
LIST = ["memory", "list", "--json"]
STEPS: dict[str, list[str]] = {
    "an addition": ["memory", "add", "Ann has a quagga"],
    "a turn": ["ask", "My cat is called Moritz"],
    "the page": ["memory", "page", "--edit"],
    "a backup": ["backup", "{disk}/new.tar.gz"],
    "a restore": ["restore", "{folder}/old.tar.gz", "--yes"],
    "an upgrade": ["memory", "add", "Ann has a quagga"],
    "a build": ["capability", "build", "greet", "Greet a city."],
    "a setting": ["config", "set", "agent.max_rounds", "12"],
    "forgetting": ["memory", "forget", "--query", "beehives", "--yes"],
}
MIDDLE_KB = {"a backup": 300, "a restore": 300, "an upgrade": 450}
"""How much room is left at the second try, so that the disk is full in the middle. A change of the database needs more
than 72 KB; where it gets by with less, it has to succeed."""


def answer(asked: Asked) -> Answer:
    if asked.path.endswith("/models"):
        return as_json({"data": [{"id": "m-1"}]})
    messages = asked.body["messages"]
    if "You are the Builder" not in str(messages[0]["content"]):
        return speaks("Noted.")
    return calls(
        ("write_file", {"path": "main.py", "content": GREET}),
        ("write_file", {"path": "tests/cases.jsonl", "content": CASES}),
        ("run_code", {"code": 'from main import run; run({"city": "Austin"})'}),
        ("register_capability", {"description": "Greet a city.", "input_schema": SCHEMA}),
        start=10 * len(messages),
    )


def on_a_full_disk(
    folder: Path, commands: Sequence[Sequence[str]], again: Sequence[Sequence[str]], *left_bytes: int
) -> list[tuple[list[Ran], list[Ran]]]:
    """For each amount of room that is left: how the commands end, and what follows when there is room again."""
    disk = folder / "disk"
    disk.mkdir()
    editor = folder / "editor"
    editor.write_text('#!/bin/sh\necho "- Ann has a quagga" >> "$1"\n')
    editor.chmod(0o700)
    places = {"disk": disk, "folder": folder}
    given = [
        json.dumps([[part.format(**places) for part in one] for one in each]) for each in (commands, again)
    ]
    with serving(answer) as server:
        ran = subprocess.run(
            [
                "unshare",
                "-rm",
                sys.executable,
                "-c",
                DISK,
                disk,
                folder / "home",
                *given,
                *map(str, left_bytes),
            ],
            env=environ_for(folder, server, SATCHEL_HOME=str(disk / "home"), EDITOR=str(editor))
            | {"SATCHEL_SANDBOX_ALLOW_UNSAFE": "true"},
            cwd=folder / "work",
            capture_output=True,
            text=True,
        )
    if "unshare:" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip(f"A FULL DISK WAS NOT TESTED: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr

    def ended(runs: list[Any]) -> list[Ran]:
        return [Ran(code=code, out=out, err=err) for code, out, err in runs]

    return [(ended(tried), ended(then)) for tried, then in map(json.loads, ran.stdout.splitlines())]


@requirement("storage:errors:full", "sessions:full-disk", "storage:migrations:full")
@pytest.mark.parametrize("step", STEPS)
def test_what_meets_a_full_disk_says_so_loses_nothing_and_succeeds_when_there_is_room(
    tmp_path: Path, run: Callable[..., Ran], step: str
) -> None:
    home = Path(environ_for(tmp_path)["SATCHEL_HOME"])
    if step == "an upgrade":
        home.mkdir()
        make_old(home / "satchel.db", REVISIONS[0])
    kept = [] if step == "an upgrade" else ["Ann keeps beehives", "Bob likes tea"]
    for text in kept:
        assert run("memory", "add", text).code == 0
    assert run("backup", str(tmp_path / "old.tar.gz")).code == 0
    if step == "forgetting":
        kept.remove("Ann keeps beehives")
    command = STEPS[step]
    rounds = on_a_full_disk(tmp_path, [command], [command, LIST], 0, MIDDLE_KB.get(step, 72) << 10)
    for number, ([tried], [then, listed]) in enumerate(rounds):
        if number == 0 or tried.code:
            assert tried.code == 1
            assert "is full" in tried.err or "o space left" in tried.err or "Free some space" in tried.err, (
                tried.err
            )
        assert "Traceback" not in tried.err
        # What was forgotten at the first try is not there to be forgotten.
        assert then.code == 0 or (step == "forgetting" and not tried.code), then.err
        contents = [one["content"] for one in listed.json]
        assert set(kept) <= set(contents)
        assert ("Ann has a quagga" in contents) is (step in ("an addition", "an upgrade", "the page"))
        assert ("My cat is called Moritz" in contents) is (step == "a turn")
        assert ("Ann keeps beehives" in contents) is (kept[:1] == ["Ann keeps beehives"])
    assert len(rounds) == 2


@requirement("storage:errors:full")
def test_on_a_full_disk_everything_is_read_exported_and_backed_up_to_another_one(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    assert run("memory", "add", "Ann keeps beehives").code == 0
    reading = [
        ["memory", "search", "beehives"],
        ["memory", "export", "{folder}/all.jsonl"],
        ["backup", "{folder}/b.tar.gz"],
        ["doctor", "--json"],
    ]
    [([searched, exported, backed_up, looked], [listed])] = on_a_full_disk(tmp_path, reading, [LIST], 0)
    assert "beehives" in searched.out
    assert "the disk is full. What is stored is read from a copy of it" in searched.err
    assert (exported.code, "beehives" in (tmp_path / "all.jsonl").read_text()) == (0, True), exported.err
    assert backed_up.code == 0, backed_up.err
    assert looked.json
    assert "the disk is full" in looked.out + looked.err
    assert run("restore", str(tmp_path / "b.tar.gz"), "--yes").code == 0
    assert "beehives" in run("memory", "list").out
    assert len(listed.json) == 1
