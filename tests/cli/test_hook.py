"""`satchel hook` in a process of its own: what it prints, its exit code, and what it doesn't load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from satchel.runtime.serving import HOOKS_FILE, Serving, serving
from tests.cli.programs import PROGRAM, environ_for, satchel
from tests.requirements import requirement
from tests.tools.external.executables import processes_that_say

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


@contextmanager
def answering(folder: Path) -> Iterator[dict[str, str]]:
    """An environment in which a hook may start a server, which is ended afterwards."""
    environ = environ_for(folder, SATCHEL_MEMORY_WORKER="auto")
    try:
        yield environ
    finally:
        # One that is still starting is known by no file.
        for found in processes_that_say(f"SATCHEL_HOME={environ['SATCHEL_HOME']}"):
            with suppress(ProcessLookupError):
                os.kill(int(found.partition(":")[0]), signal.SIGTERM)


def _server(folder: Path) -> Serving | None:
    return serving(folder / "home", file=HOOKS_FILE)


def told(environ: dict[str, str], *, session: str = "s1") -> tuple[str, set[str]]:
    """What the model is told by a hook, and the modules that its process loaded."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "satchel", "hook"],
        input=json.dumps({**ASKED, "session_id": session}).encode(),
        env=environ,
        capture_output=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.decode().splitlines()}
    if not ended.stdout:
        return "", loaded
    return json.loads(ended.stdout)["hookSpecificOutput"]["additionalContext"], loaded


@requirement("agents:hook:light", "agents:hook:server")
async def test_the_first_hook_starts_a_server_and_the_others_load_nothing_that_takes_long(
    tmp_path: Path,
) -> None:
    await satchel(tmp_path, "memory", "add", ALLERGY)
    with answering(tmp_path) as environ:
        assert _until_told(environ, "s0")
        first = _server(tmp_path)
        assert first is not None
        text, loaded = told(environ, session="s1")
        assert ALLERGY in text
        assert "satchel.runtime.other_agents.asking" in loaded
        assert loaded.isdisjoint(HEAVY)
        assert _server(tmp_path) == first
        # What a killed server left is not taken for one that runs.
        os.kill(first.pid, signal.SIGKILL)
        assert _until_told(environ, "s2")
        again = _server(tmp_path)
        assert again is not None
        assert again.pid != first.pid


@requirement("agents:hook:server")
async def test_hooks_that_begin_at_once_start_one_server(tmp_path: Path) -> None:
    await satchel(tmp_path, "memory", "add", ALLERGY)
    with answering(tmp_path) as environ:
        hooks = []
        for number in range(3):
            hook = subprocess.Popen(
                [*PROGRAM, "hook"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environ
            )
            assert hook.stdin is not None
            hook.stdin.write(json.dumps({**ASKED, "session_id": f"s{number}"}).encode())
            hook.stdin.close()
            hooks.append(hook)
        assert [hook.wait(timeout=280) for hook in hooks] == [0, 0, 0]
        # Another one would still be starting, or have said that it is not needed.
        home = f"SATCHEL_HOME={environ['SATCHEL_HOME']}".encode()
        commands = [
            _of(place)
            for place in Path("/proc").glob("[0-9]*/cmdline")
            if home in _of(place.with_name("environ"))
        ]
        assert sum(b"memory\0answer" in command for command in commands) == 1
        assert "already" not in (tmp_path / "home" / "logs" / "memory-answer.log").read_text()
        assert _until_told(environ, "s9")


def _of(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError:
        return b""


@requirement("agents:hook:server")
async def test_a_server_of_another_version_is_replaced_and_named_where_it_is_in_the_way(
    tmp_path: Path,
) -> None:
    await satchel(tmp_path, "memory", "add", ALLERGY)
    backup = tmp_path / "home.tar.gz"
    await satchel(tmp_path, "backup", str(backup))
    with answering(tmp_path) as environ:
        assert _until_told(environ, "s0")
        old = _server(tmp_path)
        assert old is not None
        file = tmp_path / "home" / HOOKS_FILE
        file.write_text(file.read_text().replace(f'"{old.version}"', '"0.0.1"'))
        assert _until_told(environ, "s1")
        new = _server(tmp_path)
        assert new is not None
        assert (new.version, new.pid == old.pid) == (old.version, False)
        refused = await satchel(tmp_path, "restore", str(backup), "--yes")
        assert refused.code != 0
        assert f"Process {new.pid} answers hooks" in refused.err


def _until_told(environ: dict[str, str], session: str) -> bool:
    """Whether hooks tell something in the end: on a busy machine, the first may not wait long enough."""
    failed = Path(environ["SATCHEL_HOME"]) / "agents" / "serve.failed"
    for attempt in range(100):
        if ALLERGY in told(environ, session=f"{session}-{attempt}")[0]:
            return True
        failed.unlink(missing_ok=True)
    return False


@requirement("agents:hook:never-blocks")
async def test_after_a_start_that_failed_no_hook_waits_for_another(tmp_path: Path) -> None:
    await satchel(tmp_path, "memory", "add", ALLERGY)
    home = tmp_path / "home"
    # A hook does not read this, and a server ends with it.
    (home / "config.toml").write_text('[agent]\nmode = "nonsense"\n')
    with answering(tmp_path) as environ:
        assert told(environ)[0] == ""
        assert (home / "agents" / "serve.failed").exists()
        text, loaded = told(environ)
        assert (text, "subprocess" in loaded) == ("", False)
    assert "no server answers" in (home / "logs" / "hook.log").read_text()


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
