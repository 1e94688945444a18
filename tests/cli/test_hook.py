"""`satchel hook` in a process of its own: what it prints, its exit code, and what it doesn't load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.programs import PROGRAM, environ_for, satchel
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

ALLERGY = "My sister Mara is allergic to shellfish."
ASKED = {
    "hook_event_name": "UserPromptSubmit",
    "session_id": "s1",
    "transcript_path": "/nowhere/t.jsonl",
    "cwd": "/",
    "permission_mode": "default",
    "prompt": "What should I keep in mind when I cook for Mara?",
}
HEAVY = (
    "numpy",
    "sqlalchemy",
    "pydantic",
    "click",
    "anyio",
    "httpx2",
    "onnxruntime",
    "subprocess",
    "inspect",
)
"""Each takes between five and two hundred milliseconds to load."""


@requirement("agents:hook:light")
async def test_a_hook_answers_without_loading_what_takes_long(tmp_path: Path) -> None:
    await satchel(tmp_path, "memory", "add", ALLERGY)
    environ = environ_for(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "satchel", "hook"],
        input=json.dumps(ASKED).encode(),
        env=environ,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0
    assert ALLERGY in json.loads(ended.stdout)["hookSpecificOutput"]["additionalContext"]
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.decode().splitlines()}
    assert "satchel.memory.glance" in loaded
    assert loaded.isdisjoint(HEAVY)


@requirement("agents:hook:never-blocks")
def test_a_hook_whose_agent_hangs_up_or_sends_garbage_exits_with_0(tmp_path: Path) -> None:
    environ = environ_for(tmp_path)
    (tmp_path / "home").mkdir(mode=0o700)
    for payload in (b"garbage", json.dumps(ASKED).encode()):
        ended = subprocess.run(
            [*PROGRAM, "hook"], input=payload, env=environ, capture_output=True, check=False
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert "not JSON" in (tmp_path / "home" / "logs" / "hook.log").read_text()
    with subprocess.Popen(
        [*PROGRAM, "hook"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    ) as hook:
        assert hook.stdin is not None
        assert hook.stdout is not None
        hook.stdout.close()
        hook.stdin.write(
            json.dumps({**ASKED, "hook_event_name": "SessionStart", "source": "startup"}).encode()
        )
        hook.stdin.close()
        assert hook.wait(timeout=280) == 0


@requirement("memory:surface:newest", "agents:hook:light")
async def test_a_hook_shows_the_newest_value_with_the_older_one_on_its_line(tmp_path: Path) -> None:
    for day, city in ((1, "Oslo"), (2, "Bergen")):
        words = f"The headquarters of Kendrix is located in the city of {city}."
        await satchel(tmp_path, "memory", "add", words, "--said-at", f"2026-03-0{day}T12:00:00+00:00")
    asked = {**ASKED, "prompt": "Which city is the headquarters of Kendrix located in?"}
    ended = subprocess.run(
        [sys.executable, "-m", "satchel", "hook"],
        input=json.dumps(asked).encode(),
        env=environ_for(tmp_path),
        capture_output=True,
        check=True,
    )
    shown = json.loads(ended.stdout)["hookSpecificOutput"]["additionalContext"]
    (line,) = [line for line in shown.splitlines() if "Kendrix" in line]
    assert line.endswith('city of Bergen." (earlier, 2026-03-01: "Oslo")')
