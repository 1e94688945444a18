"""MCP servers that no one here wrote, from PyPI and npm: listed, called, elicited, killed and back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from satchel.config import McpServerSettings
from satchel.tools import Question
from tests.requirements import requirement
from tests.tools.mcp.conftest import Open, until

pytestmark = pytest.mark.anyio
ZONE: dict[str, Any] = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}


def from_pypi(name: str) -> McpServerSettings:
    return McpServerSettings(name=name, command=sys.executable, args=("-m", f"mcp_server_{name}"))


def from_npm(name: str, *args: str, **env: str) -> McpServerSettings:
    """A server that set-up installed beside the environment, or one on the PATH."""
    program = f"mcp-server-{name}"
    installed = Path(sys.executable).parents[1] / "npm/node_modules/.bin" / program
    found = str(installed) if installed.exists() else shutil.which(program)
    if found is None or shutil.which("node") is None:
        pytest.skip(f"{program} is NOT tested: it is from npm, which `make test` sets up where npm is")
    return McpServerSettings(name=name, command=found, args=args, env=env)


@asynccontextmanager
async def over_http(program: str) -> AsyncIterator[str]:
    """The address of npm's everything server, which takes a port and not a socket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "streamableHttp"],
        env={"PATH": os.environ["PATH"], "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await until(lambda: _listens(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(timeout=280)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def children(argument: str) -> list[int]:
    """The processes that this one started with an argument."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and argument in stat.with_name("cmdline").read_text().split("\0"):
                found.append(int(stat.parent.name))
    assert found
    return found


@requirement("mcp:real-servers")
async def test_the_time_server_is_listed_called_killed_and_back(open_servers: Open) -> None:
    async with open_servers(from_pypi("time")) as servers:
        assert await servers.names() == ["mcp__time__convert_time", "mcp__time__get_current_time"]
        before = await servers.call("mcp__time__convert_time", **ZONE)
        assert "Asia/Tokyo" in before.text
        for pid in children("mcp_server_time"):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: servers.toolset.status()[0].state == "down")
        assert (await servers.call("mcp__time__convert_time", **ZONE)).text == before.text


@requirement("mcp:real-servers", "mcp:environment")
async def test_the_memory_server_stores_its_data_where_its_entry_says(
    open_servers: Open, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.jsonl"
    entity = {"name": "Momo", "entityType": "cat", "observations": ["likes fish"]}
    async with open_servers(from_npm("memory", MEMORY_FILE_PATH=str(kept))) as servers:
        await servers.names()
        await servers.call("mcp__memory__create_entities", entities=[entity])
        found = await servers.call("mcp__memory__search_nodes", query="fish")
    assert found.data["entities"][0]["name"] == "Momo"
    assert json.loads(kept.read_text())["observations"] == ["likes fish"]


@requirement("mcp:real-servers", "mcp:elicitation")
async def test_the_everything_server_is_called_elicited_killed_and_back(open_servers: Open) -> None:
    answers: dict[str, Any] = {
        "name": "Ann",
        "check": "yes",
        "email": "ann@example.com",
        "integer": "7",
        "titledMultipleSelectEnum": "salmon, Trout",
    }
    asked: list[str] = []

    async def ask(question: Question) -> str:
        asked.append(question.text)
        (line,) = [line for line in question.text.splitlines() if " of 13: " in line]
        field = line.partition(": ")[2].partition(" (")[0]
        return str(answers.get(field, ""))

    entry = from_npm("everything")
    async with open_servers(entry) as servers:
        await servers.names()
        assert (await servers.call("mcp__everything__get-sum", a=2, b=3)).text == "The sum of 2 and 3 is 5."
        told = await servers.call("mcp__everything__trigger-elicitation-request", ask=ask)
        assert len(asked) == 13
        content = json.loads(told.text[told.text.index('{\n  "action"') :])["content"]
        expected = {"name": "Ann", "check": True, "email": "ann@example.com", "integer": 7}
        assert expected.items() <= content.items()
        assert content["titledMultipleSelectEnum"] == ["fish-2", "fish-3"]
        image = await servers.call("mcp__everything__get-tiny-image")
        assert "[image, image/png" in image.text
        for pid in children(entry.command):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: servers.toolset.status()[0].state == "down")
        assert (await servers.call("mcp__everything__echo", message="hi")).text == "Echo: hi"


@requirement("mcp:real-servers", "mcp:tasks")
async def test_the_everything_servers_long_running_task_is_followed_to_its_result(
    open_servers: Open,
) -> None:
    """Its `simulate-research-query` runs only as a task, takes four seconds and asks the user in between."""
    asked: list[str] = []

    async def ask(question: Question) -> str:
        asked.append(question.text)
        return "snake"

    async with open_servers(from_npm("everything")) as servers:
        await servers.names()
        result = await servers.call(
            "mcp__everything__simulate-research-query", topic="python", ambiguous=True, ask=ask
        )
    assert "Research Report: python (snake)" in result.text
    assert not result.is_error
    assert len(asked) == 1
    assert "Gathering sources..." in [told["message"] for told in servers.progress]


@requirement("mcp:real-servers", "mcp:resources", "mcp:prompts", "mcp:instructions", "mcp:roots")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_everything_servers_resources_prompts_instructions_and_roots(
    open_servers: Open, tmp_path: Path, transport: str
) -> None:
    async with AsyncExitStack() as stack:
        entry = from_npm("everything")
        if transport == "http":
            url = await stack.enter_async_context(over_http(entry.command))
            entry = McpServerSettings(name="everything", url=url)
        servers = await stack.enter_async_context(open_servers(entry, roots=[tmp_path]))
        assert "read_mcp_resource" in await servers.names()
        toolset, context = servers.toolset, servers.context()
        assert "# Everything Server" in toolset.instructions()
        uris = [resource.uri for resource in await toolset.resources()]
        assert "demo://resource/dynamic/text/{resourceId}" in uris
        assert "demo://resource/static/document/features.md" in uris
        read = await servers.call(
            "read_mcp_resource", server="everything", uri="demo://resource/dynamic/text/7"
        )
        assert "Resource 7: This is a plaintext resource" in read.text
        mentioned = await toolset.server_resources.mentions(
            "See @everything:demo://resource/static/document/features.md.", context
        )
        assert len(mentioned.attachments) == 1
        assert not mentioned.notices
        prompts = {prompt.command: prompt.usage for prompt in await toolset.prompts()}
        assert prompts["mcp__everything__args-prompt"] == "/mcp__everything__args-prompt CITY [STATE]"
        run = await toolset.server_prompts.run("/mcp__everything__args-prompt", "Bonn NRW", context)
        assert run.text.endswith("What's weather in Bonn, NRW?")
        assert tmp_path.as_uri() in (await servers.call("mcp__everything__get-roots-list")).text
