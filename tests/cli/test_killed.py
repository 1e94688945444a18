"""`kill -9` to the real program in the middle of an answer: nothing of its tools outlives it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.programs import calls, chats, said_to, satchel, scripted, speaks, start
from tests.models.loopback import loopback
from tests.requirements import requirement
from tests.sandbox.lifeline import Lifeline
from tests.tools.external.executables import put, script
from tests.tools.mcp.conftest import STRANGER

pytestmark = pytest.mark.anyio


@requirement("sandbox:process:killed", "external:hostile", "tools:bash:background:ends")
async def test_processes_of_an_answer_end_when_satchel_is_killed(tmp_path: Path) -> None:
    """Two commands, one of which is in the background, a daemon of an executable, and a server that ignores its end."""
    lines = {name: Lifeline(tmp_path, name) for name in ("job", "command", "daemon", "server")}
    tools = tmp_path / "home" / "tools"
    daemon = "trap '' TERM; sleep 1000; sleep 1000"
    put(
        tools,
        "daemon",
        script("daemon", f"{lines['daemon'].hold}; setsid -f sh -c {shlex.quote(daemon)}; sleep 1000"),
    )
    server = (
        f"{lines['server'].hold}; exec {shlex.join([sys.executable, str(STRANGER), 'stays', str(tmp_path)])}"
    )
    (tmp_path / "home" / "config.toml").write_text(
        f'[mcp_servers.x]\ncommand = "sh"\nargs = ["-c", {json.dumps(server)}]\n'
    )
    job = f"{lines['job'].hold}; {daemon}"
    stopped = ("tool_call", {"name": "jobs", "input": {"id": 1, "stop": True}})
    answers = (
        calls(("bash", {"command": "sleep 1000", "background": True})),
        calls(stopped, ("bash", {"command": job, "background": True}), start=2),
        calls(
            ("bash", {"command": f"{lines['command'].hold}; sleep 1000"}),
            ("daemon", {}),
            ("mcp__x__work", {}),
            start=4,
        ),
    )
    async with loopback(scripted(*answers)) as endpoint:
        program = start(tmp_path, "ask", "--mode", "bypass", "Go.", server=endpoint)
        with program:
            try:
                for line in lines.values():
                    await line.held()
            finally:
                program.kill()
    for line in lines.values():
        await line.let_go()
        line.close()
    async with loopback(scripted(speaks("I see."), speaks("I see."))) as endpoint:
        await satchel(tmp_path, "ask", "--last", "Hello.", server=endpoint)
    told = said_to(chats(endpoint)[-1])
    assert "Background command 2 ended when Satchel did." in told
    assert "Background command 1" not in told
