"""Registry, wrappers and function tools."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from satchel.errors import NotFound
from satchel.tools import (
    Annotations,
    Effect,
    FunctionTool,
    Registry,
    StaticToolset,
    Tool,
    ToolContext,
    ToolResult,
    builtin_tools,
    filtered,
    function_tool,
)
from tests.requirements import requirement
from tests.tools.conftest import Session

pytestmark = pytest.mark.anyio


async def echo(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
    return ToolResult(text=str(input))


def named(name: str, **options: Any) -> Tool:
    return function_tool(
        echo, name=name, description="Echoes.", properties={"text": {"type": "string"}}, **options
    )


@requirement("tools:registry:order")
async def test_tools_come_in_the_order_of_their_toolsets() -> None:
    registry = await Registry.load([builtin_tools(), StaticToolset([named("zebra"), named("ape")])])
    assert [tool.spec.name for tool in registry.tools] == [
        "bash",
        "file_read",
        "file_write",
        "file_edit",
        "glob",
        "grep",
        "think",
        "todo",
        "ask_user",
        "jobs",
        "propose_plan",
        "delegate",
        "zebra",
        "ape",
    ]


@requirement("tools:registry:names")
async def test_tools_that_cannot_be_offered_are_left_out_and_reported() -> None:
    first, second = named("echo", origin="/a/echo"), named("echo", source="external", origin="/b/echo")
    assert isinstance(first, FunctionTool)
    odd = dataclasses.replace(first.spec, name="array", input_schema={"type": "array"})
    registry = Registry(
        [first, second, named("two words"), named("x" * 65), dataclasses.replace(first, spec=odd)]
    )
    assert registry.get("echo") is first
    assert registry.tools == (first,)
    assert registry.problems == (
        "The tool 'echo' (/b/echo) was left out: /a/echo already has a tool with that name.",
        "The tool 'two words' (builtin) was left out: a name has 1 to 64 letters, digits, underscores and "
        "hyphens.",
        f"The tool '{'x' * 65}' (builtin) was left out: a name has 1 to 64 letters, digits, underscores "
        f"and hyphens.",
        "The tool 'array' (/a/echo) was left out: its input schema is not of type 'object'.",
    )


async def test_a_misspelt_name_gets_those_that_are_close() -> None:
    registry = await Registry.load([builtin_tools()])
    assert registry.get("fileread") is None
    assert registry.close_matches("FileRead")[0] == "file_read"
    assert registry.close_matches("file-wirte")[0] == "file_write"
    assert registry.close_matches("qqqq") == ()


@requirement("tools:registry:disabled")
async def test_a_filter_takes_tools_away() -> None:
    registry = await Registry.load(
        [filtered(builtin_tools(), lambda spec: spec.name not in {"bash", "grep"})]
    )
    assert registry.get("bash") is None
    assert registry.get("glob") is not None


@requirement("tools:annotations")
async def test_built_in_tools_say_what_they_do() -> None:
    registry = await Registry.load([builtin_tools()])
    read_only = {tool.spec.name for tool in registry.tools if tool.spec.annotations.read_only}
    destructive = {tool.spec.name for tool in registry.tools if tool.spec.annotations.destructive}
    assert read_only == {
        "file_read",
        "glob",
        "grep",
        "think",
        "todo",
        "ask_user",
        "jobs",
        "propose_plan",
        "delegate",
    }
    assert destructive == {"bash", "file_write", "file_edit"}
    assert named("echo").spec.annotations == Annotations(
        read_only=False, destructive=True, idempotent=False, open_world=True
    )


@requirement("tools:context")
async def test_a_tool_called_alone_uses_what_its_context_gives_it_and_nothing_else(
    tmp_path: Path, open_session: Callable[..., Session]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    sessions = []
    for folder in (here, there):
        folder.mkdir()
        (folder / "note.md").write_text(f"I lie in {folder.name}.")
        environ = {"PATH": os.environ["PATH"], "WHERE": folder.name}
        sessions.append(open_session(folder, environ=environ))
    one, other = sessions
    # Folder and environment: not the program's own.
    for session, folder in ((one, here), (other, there)):
        ran = await session("bash", command="pwd; echo $WHERE${HOME-}")
        assert ran.data["stdout"] == f"{folder}\n{folder.name}\n"
        assert f"I lie in {folder.name}." in (await session("file_read", path="note.md")).text
    # Roots: what the context does not name is out of reach.
    assert (await one("file_read", path=str(there / "note.md"))).is_error
    one.context.roots = [here, there]
    assert not (await one("file_read", path=str(there / "note.md"))).is_error
    # State: each session has its own.
    await one("todo", items=[{"text": "only here", "status": "pending"}])
    await one("bash", command="cd /")
    assert (await other("todo")).text == "The list is empty."
    assert (await other("bash", command="pwd")).data["stdout"] == f"{there}\n"
    assert (await one("bash", command="pwd")).data["stdout"] == "/\n"
    # Progress goes to whoever made the context.
    before = len(other.progress)
    await one("bash", command="echo seen")
    assert {"stream": "stdout", "text": "seen\n"} in one.progress
    assert len(other.progress) == before


async def test_an_error_on_purpose_is_a_result_and_a_defect_is_not(session: Session) -> None:
    async def fail(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        if input["text"] == "purpose":
            raise NotFound("There is no such thing.")
        raise ZeroDivisionError

    tool = function_tool(fail, name="fail", description="Fails.", properties={"text": {"type": "string"}})
    assert await tool.call({"text": "purpose"}, session.context) == ToolResult(
        text="There is no such thing.", is_error=True
    )
    with pytest.raises(ZeroDivisionError):
        await tool.call({"text": "defect"}, session.context)


async def test_effects_name_the_real_file_and_nothing_for_a_place_that_is_refused(session: Session) -> None:
    (session.cwd / "link").symlink_to("a.txt")
    registry = await Registry.load([builtin_tools()])

    def effects(name: str, **input: Any) -> list[Effect]:
        tool = registry.get(name)
        assert tool is not None
        return list(tool.effects(input, session.context))

    real = f"path:{(session.cwd / 'a.txt').resolve()}"
    assert effects("file_read", path="./link") == [Effect(resource=real, writes=False)]
    # In one answer, a command sees the edits before it; commands run side by side.
    edits = [Effect(resource=real, writes=True)]
    assert effects("bash", command="true") == [Effect(resource="path:", writes=False)]
    assert effects("file_write", path="sub/../a.txt", content="") == edits
    assert effects("file_edit", path="link", old="a", new="b") == edits
    assert effects("file_edit", path="/etc/passwd", old="a", new="b") == []
    assert effects("todo", items=[]) == [Effect(resource="todo", writes=True)]
