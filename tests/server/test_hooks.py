"""Hooks of other agents while a server runs: it is asked, and it captures what they queue."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import anyio

from satchel.clock import SystemClock
from satchel.memory import Episode, Memory
from satchel.runtime.other_agents.hook import answer_hook
from satchel.runtime.other_agents.notebook import has_queue
from satchel.runtime.serving import announced
from tests.requirements import requirement
from tests.server.world import World

SAID = "We broke the mast of the boat near Izola yesterday."
ASKED = "Where did we break the mast of the boat?"


def hook(home: Path, event: str, **payload: Any) -> str:
    environ = {"SATCHEL_HOME": str(home), "HOME": str(home.parent), "SATCHEL_MEMORY_WORKER": "off"}
    raw = json.dumps({"hook_event_name": event, "session_id": "served", "cwd": "/", **payload}).encode()
    return answer_hook(raw, environ=environ, cwd=home, clock=SystemClock())


def context(answer: str) -> str:
    found = json.loads(answer)
    assert "systemMessage" not in found
    return str(found["hookSpecificOutput"]["additionalContext"])


async def _add(memory: Memory, said: str) -> None:
    await memory.add_episodes([Episode(session="sailing", turn=1, speaker="user", text=said)])
    await memory.keep_up()


@requirement("agents:hook:server")
def test_a_hook_asks_the_server_and_has_it_capture(world: World, tmp_path: Path) -> None:
    memory = world.satchel.memory
    assert memory is not None
    world.call(memory.add, "My aunt Vera is allergic to walnuts.")
    begun = context(hook(world.home, "SessionStart", source="startup"))
    assert "Vera" in begun
    world.call(_add, memory, SAID)
    told = context(hook(world.home, "UserPromptSubmit", prompt=ASKED))
    assert SAID in told
    assert hook(world.home, "UserPromptSubmit", prompt=ASKED) == ""
    lines = [
        {
            "type": "user",
            "uuid": "q1",
            "message": {"role": "user", "content": "The boat's engine is a Yanmar."},
        },
        {"type": "assistant", "uuid": "q2", "message": {"role": "assistant", "content": "Noted."}},
    ]
    transcript = tmp_path / "t.jsonl"
    transcript.write_text("".join(json.dumps({**line, "sessionId": "served"}) + "\n" for line in lines))
    assert hook(world.home, "Stop", transcript_path=str(transcript)) == ""

    async def captured() -> list[str]:
        while not (found := await memory.list(session="claude-code:served")):  # noqa: ASYNC110 - another task stores
            await anyio.sleep(0.02)
        return sorted(one.content for one in found)

    assert world.call(captured) == ["Noted.", "The boat's engine is a Yanmar."]


@requirement("agents:hook:never-blocks")
def test_a_hook_works_without_a_server_that_is_gone_or_answers_nonsense(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "token").write_text("t" * 40 + "\n")
    (home / "token").chmod(0o600)
    answers = [
        b"",
        b"HTTP/1.1 500 Oh no\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n[1",
        b"HTTP/1.1 200 OK\r\n\r\n[]",
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with announced(home, f"http://127.0.0.1:{listener.getsockname()[1]}"):
            # After one answer that makes no sense, it is not asked again for the same event.
            for _ in answers:
                assert hook(home, "UserPromptSubmit", prompt="Where is the boat?") == ""
            thread.join(timeout=120)
        assert not thread.is_alive()
    log = (home / "logs" / "hook.log").read_text()
    assert "did not answer" in log or "answered ''" in log
    assert "500 Oh no" in log
    assert not has_queue(home)
