"""Calls that a server runs as tasks: of the revision 2025-11-25, and of the extension to 2026-07-28."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from satchel.tools import Question
from tests.requirements import requirement
from tests.tools.mcp.conftest import Open, let_pass, stranger, until

pytestmark = pytest.mark.anyio


@requirement("mcp:tasks")
async def test_a_tool_that_runs_only_as_a_task_gives_its_result(open_servers: Open, tmp_path: Path) -> None:
    async with open_servers(stranger("tasks", tmp_path)) as servers:
        assert (await servers.call("mcp__x__work")).text == "the result"
        assert (await servers.call("mcp__x__plain")).text == "plain"
    assert servers.progress[0] == {"progress": None, "total": None, "message": "It is working."}


@requirement("mcp:tasks")
async def test_a_task_of_the_newest_revision_asks_once_and_gives_its_result(
    open_servers: Open, tmp_path: Path
) -> None:
    asked: list[Question] = []

    async def ask(question: Question) -> str:
        asked.append(question)
        return "Bonn"

    async with open_servers(stranger("modern-tasks", tmp_path)) as servers:
        result = await servers.call("mcp__x__work", ask=ask)
    # Two looks find the same question open; it is put to the user once.
    assert json.loads(result.text) == [{"q": {"action": "accept", "content": {"city": "Bonn"}}}]
    assert len(asked) == 1


@requirement("mcp:tasks")
@pytest.mark.parametrize("behaviour", ["tasks-fail", "modern-tasks-fail"])
async def test_a_task_that_fails_is_an_error_result_with_the_reason(
    open_servers: Open, tmp_path: Path, behaviour: str
) -> None:
    async with open_servers(stranger(behaviour, tmp_path)) as servers:
        result = await servers.call("mcp__x__work")
    assert result.is_error
    assert "no paper left" in result.text


@requirement("mcp:tasks")
@pytest.mark.parametrize("behaviour", ["tasks-endless", "modern-tasks-endless"])
async def test_a_task_outlives_the_limit_of_a_call_and_ends_with_it_when_it_is_cancelled(
    open_servers: Open, tmp_path: Path, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_servers(stranger(behaviour, tmp_path, timeout_s=100)) as servers:
        work = await servers.tool("mcp__x__work")
        async with anyio.create_task_group() as group:
            group.start_soon(work.call, {}, servers.context())
            await until((tmp_path / "looked").exists)
            # Each look shows that the server is at work: the limit starts anew.
            for _ in range(3):
                looks = len(servers.progress)
                await until(lambda looks=looks: len(servers.progress) > looks + 1)  # type: ignore[misc]
                let_pass(monkeypatch, 60)
            group.cancel_scope.cancel()
        await until((tmp_path / "cancelled").exists)


@requirement("mcp:tasks")
async def test_a_tool_that_needs_tasks_is_not_offered_where_the_server_has_none(
    open_servers: Open,
) -> None:
    async with open_servers(stranger("no-tasks")) as servers:
        assert await servers.names() == ["mcp__x__plain"]
        assert servers.toolset.status()[0].problems == (
            "MCP server x: the tool 'work' was left out: it runs only as a task, and the server offers none in the "
            "revision 2025-06-18.",
        )
