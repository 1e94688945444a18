"""Servers that behave: reached in three ways, asked in two revisions of the protocol, with all that a result may hold."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from satchel.config import McpServerSettings
from satchel.tools import Annotations, ModeGate, PlannedCall, Question
from satchel.tools.kept import kept_path
from satchel.tools.port import Resumable
from tests.requirements import requirement
from tests.tools.mcp.conftest import STRANGER, Open, let_pass, stranger, until

pytestmark = pytest.mark.anyio
WELCOME = Path(__file__).with_name("welcome.py")


@asynccontextmanager
async def serving(mode: str, folder: Path) -> AsyncIterator[str]:
    """The address of a server that runs over HTTP."""
    port = folder / "port"
    process = subprocess.Popen([sys.executable, WELCOME, mode, port], stderr=subprocess.DEVNULL)
    try:
        await until(port.exists)
        yield f"http://127.0.0.1:{port.read_text()}/mcp"
    finally:
        process.kill()
        process.wait(timeout=280)


@requirement("mcp:stdio", "mcp:protocol", "mcp:progress")
async def test_a_program_is_spoken_to_in_the_newest_revision(open_servers: Open) -> None:
    entry = McpServerSettings(name="w", command=sys.executable, args=(str(WELCOME), "stdio"))
    async with open_servers(entry) as servers:
        assert await servers.names() == [
            "mcp__w__add",
            "mcp__w__header",
            "mcp__w__learn",
            "mcp__w__steps",
            "mcp__w__where",
        ]
        status = servers.toolset.status()[0]
        assert (status.state, status.transport, status.protocol) == ("ready", "stdio", "2026-07-28")
        result = await servers.call("mcp__w__add", a=2, b=3)
        assert (result.text, result.data, result.is_error, result.untrusted) == (
            "5",
            {"result": 5},
            False,
            True,
        )
        await servers.call("mcp__w__steps")
        assert servers.progress[-1] == {"progress": 2.0, "total": 2.0, "message": "all"}


@requirement("mcp:list-changed")
@pytest.mark.parametrize("accepts", [True, False])
async def test_news_of_a_changed_list_are_heard_in_the_newest_revision_too(
    open_servers: Open, accepts: bool
) -> None:
    entry = McpServerSettings(
        name="w", command=sys.executable, args=(str(WELCOME), "stdio"), accept_changes=accepts
    )
    async with open_servers(entry) as servers:
        await servers.call("mcp__w__learn")
        if accepts:
            version = servers.toolset.version
            await until(lambda: servers.toolset.version > version or len(servers.toolset.known()) == 6)
            assert (await servers.call("mcp__w__subtract", a=5, b=3)).text == "2"
        else:
            await until(lambda: bool(servers.toolset.withheld("*")))
            assert [tool.name for tool in servers.toolset.withheld("*")] == ["mcp__w__subtract"]
            assert "mcp__w__subtract" not in await servers.names()


@requirement("mcp:protocol", "mcp:progress")
async def test_a_program_that_knows_only_older_revisions_is_spoken_to_in_one_of_them(
    open_servers: Open,
) -> None:
    async with open_servers(stranger("tells-progress")) as servers:
        assert (await servers.call("mcp__x__work")).text == "done"
        assert servers.toolset.status()[0].protocol == "2025-06-18"
        assert servers.progress[-1] == {"progress": 2.0, "total": 2.0, "message": "half"}


@requirement("mcp:http")
@pytest.mark.parametrize("mode", ["http", "sse"])
async def test_an_address_is_reached_by_streamable_http_or_as_a_last_resort_by_sse(
    open_servers: Open, tmp_path: Path, mode: str
) -> None:
    async with serving(mode, tmp_path) as url:
        entry = McpServerSettings(name="w", url=url, headers={"x-token": "${TOKEN}"})
        async with open_servers(entry, environ={"TOKEN": "hunter2", "HOME": str(tmp_path)}) as servers:
            assert (await servers.call("mcp__w__add", a=2, b=3)).text == "5"
            assert (await servers.call("mcp__w__header")).text == "hunter2"
            status = servers.toolset.status()[0]
            assert (status.state, status.transport) == ("ready", mode)


@requirement("mcp:http", "mcp:down")
async def test_an_address_where_nobody_is_costs_a_reason(open_servers: Open) -> None:
    async with open_servers(McpServerSettings(name="w", url="http://127.0.0.1:9/mcp")) as servers:
        assert await servers.names() == []
        assert servers.toolset.status()[0].reason == "ConnectError: All connection attempts failed"


@requirement("mcp:environment")
async def test_a_server_gets_the_variables_that_its_entry_names_and_what_every_program_needs(
    open_servers: Open, tmp_path: Path
) -> None:
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "LC_ALL": "C",
        "OPENAI_API_KEY": "secret",
        "MINE": "hunter2",
    }
    entry = stranger("environment", env={"GIVEN": "x-${MINE}", "OTHER": "${NOT_SET:-default}"})
    async with open_servers(entry, environ=environ) as servers:
        got = json.loads((await servers.call("mcp__x__work")).text)
    # Python itself may add LC_CTYPE; the mark is how everything that it starts is found.
    got = {name: value for name, value in got.items() if name not in ("LC_CTYPE", "_SATCHEL_RUN")}
    assert got == {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "LC_ALL": "C",
        "GIVEN": "x-hunter2",
        "OTHER": "default",
    }


@requirement("mcp:environment")
async def test_a_variable_that_is_not_set_is_named_in_the_reason(open_servers: Open) -> None:
    async with open_servers(stranger("good", env={"TOKEN": "${NOT_SET}"})) as servers:
        await servers.names()
        assert servers.toolset.status()[0].reason == (
            "[mcp_servers.x] needs the environment variable NOT_SET, which is not set"
        )


async def test_images_and_resources_become_files_and_words(open_servers: Open, tmp_path: Path) -> None:
    async with open_servers(stranger("parts")) as servers:
        result = await servers.call("mcp__x__work")
    image, resource = (kept_path(tmp_path / "spilled", file) for file in result.files)
    assert (image.suffix, image.read_bytes(), resource.read_bytes()) == (".png", b"hello", b"hello")
    assert result.text.splitlines() == [
        "see",
        f"[image, image/png, 5 bytes, in {image}]",
        "[image, image/png: its data is not base64]",
        "[link to a resource: a file:///a, the first]",
        "[resource file:///b]",
        "words",
        f"[resource, application/octet-stream, 5 bytes, in {resource}, from file:///c]",
        "{",
        ' "n": 7',
        "}",
    ]
    assert result.data == {"n": 7}


@requirement("mcp:elicitation")
async def test_what_an_older_server_asks_is_asked_in_the_middle_of_the_call(open_servers: Open) -> None:
    asked: list[Question] = []

    async def ask(question: Question) -> str:
        asked.append(question)
        return "Bonn"

    async with open_servers(stranger("asks")) as servers:
        answered = await servers.call("mcp__x__work", ask=ask)
        refused = await servers.call("mcp__x__work")
    assert json.loads(answered.text) == {"action": "accept", "content": {"city": "Bonn"}}
    assert asked == [
        Question(
            text="The MCP server 'x' asks: Which city?\nAnswer with city (text), or 'decline'.",
            options=("decline",),
        )
    ]
    assert refused.text == (
        "[The MCP server x asked the user: 'Which city?'. Nobody can be asked in this run, so it was declined.]\n"
        '{"action": "decline"}'
    )


@requirement("mcp:elicitation")
async def test_the_time_that_the_user_takes_does_not_count_for_the_call(
    open_servers: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(_: Question) -> str:
        let_pass(monkeypatch, 100)
        await anyio.sleep(0.01)
        return "Bonn"

    async with open_servers(stranger("asks", timeout_s=90)) as servers:
        await servers.names()
        assert not (await servers.call("mcp__x__work", ask=ask)).is_error


@requirement("mcp:elicitation", "mcp:protocol")
async def test_what_a_newer_server_asks_can_wait_for_the_next_message_and_another_process(
    open_servers: Open,
) -> None:
    entry = stranger("modern-asks")
    async with open_servers(entry) as servers:
        first = await servers.call("mcp__x__work")
        assert first.question == Question(
            text="The MCP server 'x' asks: Really delete?\nAnswer with sure (yes or no), or 'decline'.",
            options=("decline",),
            resumable=True,
        )
    async with open_servers(entry) as servers:
        work = await servers.tool("mcp__x__work")
        assert isinstance(work, Resumable)
        result = await work.resume("yes", servers.context())
        assert json.loads(result.text) == [
            {"q": {"action": "accept", "content": {"sure": True}}},
            "sealed",
            {},
        ]
        # It waits no longer.
        again = await work.resume("yes", servers.context())
        assert (again.is_error, again.text.split(".")[0]) == (
            True,
            "This call is no longer waiting for an answer",
        )


@requirement("mcp:elicitation")
async def test_where_the_user_can_be_asked_a_newer_server_gets_its_answer_at_once(open_servers: Open) -> None:
    async def ask(_: Question) -> str:
        return "decline"

    async with open_servers(stranger("modern-asks")) as servers:
        result = await servers.call("mcp__x__work", ask=ask)
    assert json.loads(result.text)[0] == {"q": {"action": "decline"}}


async def test_what_a_server_says_of_its_tools_counts_only_where_the_user_vouches_for_it(
    open_servers: Open, tmp_path: Path
) -> None:
    allowed = {}
    for trusts in (False, True):
        async with open_servers(stranger("good", trust_annotations=trusts)) as servers:
            spec = (await servers.tool("mcp__x__work")).spec
        gate = ModeGate("auto", [], cwd=tmp_path)
        (decision,) = await gate.decide([PlannedCall(call_id="c", spec=spec, input={})])
        allowed[trusts] = (decision.allowed, spec.annotations)
    said = Annotations(read_only=True, destructive=False, idempotent=False, open_world=False)
    assert allowed == {False: (False, Annotations()), True: (True, said)}


@requirement("mcp:where-servers-start")
@pytest.mark.parametrize("is_project", [False, True])
async def test_relative_paths_start_at_the_folder_whose_settings_name_them(
    open_servers: Open, tmp_path: Path, is_project: bool
) -> None:
    own = tmp_path / ("project" if is_project else "home")
    (own / "sub").mkdir(parents=True)
    (own / "serve").write_text(f'#!/bin/sh\nexec {sys.executable} {STRANGER} "$@"\n')
    (own / "serve").chmod(0o755)
    (tmp_path / "sub").mkdir()
    entry = McpServerSettings(
        name="x", command="./serve", args=("folder",), cwd="sub", base=own if is_project else None
    )
    async with open_servers(entry) as servers:
        where = (await servers.call("mcp__x__work")).text
    assert where == str((own if is_project else tmp_path) / "sub")
