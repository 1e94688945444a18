"""A disk that is full, before or in the middle of whatever is done: a real one, in memory, that only the test sees."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from satchel.storage import REVISIONS
from tests.builder.world import CASES, GREET, SCHEMA
from tests.cli.conftest import serving
from tests.cli.programs import Ran, calls, environ_for, satchel, speaks
from tests.models.loopback import Answer, Asked, as_json
from tests.requirements import requirement
from tests.storage.test_database import make_old

DISK = 'mount -t tmpfs -o size=12m none "$1" && echo mounted && read _'
pytestmark = pytest.mark.anyio

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


async def on_a_full_disk(
    folder: Path, commands: Sequence[Sequence[str]], again: Sequence[Sequence[str]], *left_bytes: int
) -> list[tuple[list[Ran], list[Ran]]]:
    """For each amount of room that is left: how the commands end, and what follows when there is room again."""
    disk = folder / "disk"
    disk.mkdir()
    editor = folder / "editor"
    editor.write_text('#!/bin/sh\necho "- Ann has a quagga" >> "$1"\n')
    editor.chmod(0o700)
    environ = {
        "SATCHEL_HOME": str(disk / "home"),
        "EDITOR": str(editor),
        "SATCHEL_SANDBOX_ALLOW_UNSAFE": "true",
    }
    rounds = []
    with (
        serving(answer) as server,
        subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", DISK, "sh", disk],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as mounting,
    ):
        assert mounting.stdout is not None
        if mounting.stdout.readline() != "mounted\n":
            assert mounting.stderr is not None
            pytest.skip(f"A FULL DISK WAS NOT TESTED: {mounting.stderr.read().strip()}")

        async def run(parts: Sequence[str]) -> Ran:
            arguments = [part.format(disk=disk, folder=folder) for part in parts]
            return await satchel(folder, *arguments, server=server, environ=environ, mounts_of=mounting.pid)

        seen = Path(f"/proc/{mounting.pid}/root", *disk.parts[1:])  # the disk, where it isn't mounted
        for left in left_bytes:
            shutil.copytree(folder / "home", seen / "home")
            (seen / "filler").write_bytes(bytes(shutil.disk_usage(seen).free - left))
            tried = [await run(command) for command in commands]
            (seen / "filler").unlink()
            rounds.append((tried, [await run(command) for command in again]))
            with suppress(OSError, ValueError):  # the Builder's process would leave ten seconds later
                os.kill(int((seen / "home" / "locks" / "worker").read_text()), signal.SIGTERM)
            for each in seen.iterdir():
                shutil.rmtree(each, ignore_errors=True)
        mounting.communicate("\n")
    return rounds


@requirement("storage:errors:full", "sessions:full-disk", "storage:migrations:full")
@pytest.mark.parametrize("step", STEPS)
async def test_what_meets_a_full_disk_says_so_loses_nothing_and_succeeds_when_there_is_room(
    tmp_path: Path, step: str
) -> None:
    home = Path(environ_for(tmp_path)["SATCHEL_HOME"])
    if step == "an upgrade":
        home.mkdir()
        make_old(home / "satchel.db", REVISIONS[0])
    kept = [] if step == "an upgrade" else ["Ann keeps beehives", "Bob likes tea"]
    for text in kept:
        assert (await satchel(tmp_path, "memory", "add", text)).code == 0
    assert (await satchel(tmp_path, "backup", str(tmp_path / "old.tar.gz"))).code == 0
    if step == "forgetting":
        kept.remove("Ann keeps beehives")
    command = STEPS[step]
    rounds = await on_a_full_disk(tmp_path, [command], [command, LIST], 0, MIDDLE_KB.get(step, 72) << 10)
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
async def test_on_a_full_disk_everything_is_read_exported_and_backed_up_to_another_one(
    tmp_path: Path,
) -> None:
    assert (await satchel(tmp_path, "memory", "add", "Ann keeps beehives")).code == 0
    reading = [
        ["memory", "search", "beehives"],
        ["memory", "export", "{folder}/all.jsonl"],
        ["backup", "{folder}/b.tar.gz"],
        ["doctor", "--json"],
    ]
    [([searched, exported, backed_up, looked], [listed])] = await on_a_full_disk(tmp_path, reading, [LIST], 0)
    assert "beehives" in searched.out
    assert "the disk is full. What is stored is read from a copy of it" in searched.err
    assert (exported.code, "beehives" in (tmp_path / "all.jsonl").read_text()) == (0, True), exported.err
    assert backed_up.code == 0, backed_up.err
    assert looked.json
    assert "the disk is full" in looked.out + looked.err
    assert (await satchel(tmp_path, "restore", str(tmp_path / "b.tar.gz"), "--yes")).code == 0
    assert "beehives" in (await satchel(tmp_path, "memory", "list")).out
    assert len(listed.json) == 1
