"""Faults of what surrounds the program, with the real one in a process of its own: a model that says nothing, a clock
that is wrong.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.cli.conftest import serving
from tests.cli.programs import PROGRAM, environ_for, satchel, speaks
from tests.models.loopback import Answer, Asked, Loopback, as_json
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

LIMIT_S = 11
"""A second more than what is waited for is said after."""


async def say_nothing(stream: SocketStream) -> None:
    async with stream:
        await stream.receive()
        await anyio.sleep_forever()


async def say_comments(stream: SocketStream) -> None:
    async with stream:
        await stream.receive()
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while True:
            await stream.send(b": still here\n\n")
            await anyio.sleep(0.5)


@requirement("loop:model-silence")
async def test_a_model_that_hangs_or_sends_only_comments_is_told_of_and_ended_by_the_setting(
    tmp_path: Path,
) -> None:
    """Both at once, since the program waits for its ten seconds."""
    ends = {}

    async def ask(name: str, handle: Callable[[SocketStream], Awaitable[None]]) -> None:
        (tmp_path / name).mkdir()
        limits = {"SATCHEL_AGENT_MODEL_TIMEOUT_S": str(LIMIT_S)}
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            group.start_soon(listener.serve, handle)
            server = Loopback(listener.extra(SocketAttribute.local_port))
            ends[name] = await satchel(tmp_path / name, "ask", "Hello there", server=server, environ=limits)
            group.cancel_scope.cancel()
        shown = await satchel(tmp_path / name, "session", "list", "--json")
        assert [one["turns"] for one in shown.json] == [1]

    async with anyio.create_task_group() as both:
        both.start_soon(ask, "hangs", say_nothing)
        both.start_soon(ask, "comments", say_comments)
    for ran in ends.values():
        assert (ran.code, ran.out) == (1, "")
        assert "openai:m-1 has sent nothing for 10 s. It may take 11 s (agent.model_timeout_s)." in ran.err
        assert "openai:m-1 sent nothing for 11 s, the limit (agent.model_timeout_s)." in ran.err
    assert len(ends) == 2


class Clocked:
    """A home whose programs have a clock that is set as the test says, also while they run."""

    def __init__(self, folder: Path, server: Loopback) -> None:
        """Use the clock of the machine at first."""
        self._folder = folder
        self._file = folder / "clock"
        self._environ = environ_for(folder, server) | {
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            # Whoever sets a clock sets that of the day alone.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        (folder / "work").mkdir()
        self.set("+0")

    def set(self, offset: str) -> None:
        """Set it back or forward, by days such as "-365d"."""
        new = self._file.with_suffix(".new")
        new.write_text(offset)
        new.replace(self._file)

    def run(self, *command: str) -> str:
        """Run `satchel`; returns what it printed."""
        # faketime's own option would hold for the whole run: it is used only to find its library.
        ran = subprocess.run(
            ["faketime", "-f", "+0", "env", "-u", "FAKETIME", *PROGRAM, *command],
            env=self._environ,
            cwd=self._folder / "work",
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


@requirement("memory:clock-set-back")
@pytest.mark.skipif(not shutil.which("faketime"), reason="A WRONG CLOCK WAS NOT TESTED: no faketime here")
@pytest.mark.parametrize("offset", ["-365d", "+730d"])
def test_a_clock_that_is_set_in_the_middle_of_a_turn_and_back_again_loses_and_brings_back_nothing(
    tmp_path: Path, offset: str
) -> None:
    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/models"):
            return as_json({"data": [{"id": "m-1"}]})
        home.set(offset)
        return speaks("Noted.")

    with serving(answer) as server:
        home = Clocked(tmp_path, server)
        home.run("memory", "add", "Ann keeps beehives")
        gone = home.run("memory", "add", "Ann was in marker7777").strip()
        home.run("memory", "forget", gone, "--yes")
        (before,) = json.loads(home.run("memory", "list", "--json"))
        home.run("ask", "My cat is called Moritz")
        home.run("memory", "add", "Bob likes tea")
        added = next(m for m in json.loads(home.run("memory", "list", "--json")) if "Bob" in m["content"])
        # It was set, and years are between the two.
        assert abs(int(added["created_at"][:4]) - int(before["created_at"][:4])) in (1, 2)
        assert "beehives" in home.run("memory", "search", "beehives")
        home.run("ask", "How is my cat called?")
        home.set("+0")
        listed = {m["content"] for m in json.loads(home.run("memory", "list", "--json"))}
        assert {"Ann keeps beehives", "My cat is called Moritz", "Bob likes tea"} <= listed
        assert not any("marker7777" in content for content in listed)
        assert {one["turns"] for one in json.loads(home.run("session", "list", "--json"))} == {1}
        assert json.loads(home.run("memory", "doctor", "--json"))["problems"] == []
