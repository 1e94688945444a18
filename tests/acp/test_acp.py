"""Satchel as an editor's agent: the official client on pipes, and what is no message on the same pipes."""

from __future__ import annotations

import json
import os
import re
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest
from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, spawn_agent_process
from acp.client.connection import ClientSideConnection
from acp.helpers import (
    embedded_blob_resource,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
    text_block,
)
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    McpServerStdio,
    PermissionOption,
    RequestPermissionResponse,
    SseMcpServer,
)

from satchel.acp.places import LocalPlace, ServedPlace, SessionPlace
from satchel.acp.serving import Wire, serve_lines
from satchel.clock import SystemClock
from satchel.errors import StorageError
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.runtime import Satchel
from satchel.runtime.commands import COMMANDS
from satchel.runtime.hosting import LocalHost
from satchel.runtime.remote import RemoteHost
from satchel.runtime.serving import serving as find_server
from satchel.runtime.stdio import Lines
from tests.cli.programs import environ_for
from tests.requirements import requirement
from tests.runtime.world import opened, settings_in
from tests.server.test_attachments import PNG
from tests.server.world import WORDS, World, chat, serving
from tests.tools.mcp.conftest import STRANGER

pytestmark = pytest.mark.anyio
FORMS = ClientCapabilities(elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()))
MOST_S = 300
SHOWN = {"type": "image", "data": b64encode(PNG).decode(), "mimeType": "image/png"}


def model(hold: anyio.Event | None = None) -> ScriptedModel:
    """Does what the message says: runs a command, asks, keeps a list, or holds its answer back."""

    def reply(request: ModelRequest) -> Reply | str:
        newest = request.messages[-1].text
        number = len(request.messages)
        if run := re.search(r"run `(.+)`", newest):
            return Reply(
                text="Let me see.", calls=[Call(name="bash", input={"command": run[1]}, id=f"c{number}")]
            )
        if newest == "view":
            return Reply(calls=[Call(name="file_read", input={"path": "a.png"}, id="v1")])
        if named := re.search(r"call (\w+)", newest):
            return Reply(calls=[Call(name=named[1], input={}, id=f"c{number}")])
        if "change" in newest:
            one = {"old": "dig", "new": "sow"}
            change = {"edits": [{"old": "sow", "new": "reap"}]} if "edits" in newest else one
            return Reply(calls=[Call(name="file_edit", input={"path": "a.txt", **change}, id=f"c{number}")])
        if "propose" in newest:
            proposed = {"plan": "Till it.", "steps": ["dig", "sow"]}
            return Reply(calls=[Call(name="propose_plan", input=proposed, id=f"c{number}")])
        if "plan" in newest:
            items = [{"text": "dig", "status": "done"}, {"text": "sow", "status": "doing"}]
            return Reply(calls=[Call(name="todo", input={"items": items}, id=f"c{number}")])
        if "ask me" in newest:
            question = {"question": "Which colour?", "options": ["red", "blue"]}
            return Reply(calls=[Call(name="ask_user", input=question, id=f"c{number}")])
        if "hold" in newest and hold is not None:
            return Reply(text="one two three four", chunk=4, between=hold.wait)
        return f"You said: {newest.splitlines()[0] if newest else 'nothing'}"

    return ScriptedModel(reply)


@dataclass
class Editor:
    """A client: keeps what it is shown, and answers what it is asked."""

    consent: str = "once"
    form: dict[str, Any] = field(default_factory=lambda: {"answer": "Ulm"})
    updates: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    seen: anyio.Event = field(default_factory=anyio.Event)
    told: anyio.Event = field(default_factory=anyio.Event)

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        shown = update.model_dump(by_alias=True, exclude_none=True)
        self.updates.append(shown)
        if shown["sessionUpdate"] == "agent_message_chunk":
            self.seen.set()
        if shown["sessionUpdate"] == "agent_thought_chunk":
            self.told.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[PermissionOption], **kwargs: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call.title, [option.option_id for option in options]))
        if self.consent == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.consent))

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> AcceptElicitationResponse:
        self.asked.append((message, []))
        return AcceptElicitationResponse(action="accept", content=self.form)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        pass

    def said(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one["content"]["text"] for one in self.updates if one["sessionUpdate"] == kind)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.updates if one["sessionUpdate"] == kind]


@asynccontextmanager
async def piped(place: SessionPlace) -> AsyncIterator[Lines]:
    """An agent on pipes; gives the client's ends. At the end, the client closes its stream, and the agent ends."""
    into_agent, from_client = os.pipe()
    into_client, from_agent = os.pipe()
    with anyio.fail_after(MOST_S):
        async with anyio.create_task_group() as group:
            group.start_soon(serve_lines, place, Lines(into_agent, from_agent))
            try:
                yield Lines(into_client, from_client)
            finally:
                os.close(from_client)
    for end in (into_agent, into_client, from_agent):
        os.close(end)


@asynccontextmanager
async def connected(
    at: Satchel | SessionPlace, editor: Editor, capabilities: ClientCapabilities | None = None
) -> AsyncIterator[ClientSideConnection]:
    async with piped(LocalPlace(at) if isinstance(at, Satchel) else at) as lines:
        client = connect_to_agent(cast("Any", editor), Wire(lines), use_unstable_protocol=True)
        try:
            await client.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=capabilities)
            yield client
        finally:
            await client.close()


async def say(client: ClientSideConnection, session_id: str, *words: Any) -> str:
    blocks = [text_block(word) if isinstance(word, str) else word for word in words]
    return (await client.prompt(session_id=session_id, prompt=blocks)).stop_reason


@requirement("acp:agent")
async def test_a_turn_streams_its_words_calls_and_plan_and_asks_before_it_runs_a_command(
    tmp_path: Path,
) -> None:
    editor = Editor()
    async with opened(tmp_path, model()) as satchel, connected(satchel, editor) as client:
        session = await client.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])
        assert session.modes is not None
        assert session.modes.current_mode_id == "ask"
        id = session.session_id
        assert await say(client, id, "please run `echo pear`") == "end_turn"
        assert editor.asked == [("bash: echo pear", ["once", "session", "always", "no"])]
        (start,) = editor.of("tool_call")
        assert (start["title"], start["kind"], start["status"]) == (
            "bash: echo pear",
            "execute",
            "in_progress",
        )
        last = editor.of("tool_call_update")[-1]
        assert (last["toolCallId"], last["status"]) == (start["toolCallId"], "completed")
        assert "pear" in last["content"][0]["content"]["text"]
        assert editor.said().startswith("Let me see.")
        assert await say(client, id, "plan it") == "end_turn"
        (plan,) = editor.of("plan")
        assert [(e["content"], e["status"]) for e in plan["entries"]] == [
            ("dig", "completed"),
            ("sow", "in_progress"),
        ]
        editor.consent = "no"
        assert await say(client, id, "run `echo never`") == "end_turn"
        assert editor.of("tool_call_update")[-1]["status"] == "failed"
        editor.consent = "cancelled"
        assert await say(client, id, "run `echo never`") == "end_turn"
        assert "never\n" not in json.dumps(editor.of("tool_call_update"))
        editor.consent = "session"
        count = len(editor.asked)
        assert await say(client, id, "run `echo fig`") == "end_turn"
        assert await say(client, id, "run `echo fig`") == "end_turn"
        assert len(editor.asked) == count + 1


@requirement("acp:agent")
@requirement("tools:file-edit:several")
async def test_a_change_is_shown_as_one_by_its_call_or_by_its_result(tmp_path: Path) -> None:
    editor = Editor()
    async with opened(tmp_path, model()) as satchel, connected(satchel, editor) as client:
        id = (await client.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])).session_id
        (tmp_path / "work" / "a.txt").write_text("dig")
        for words in ("change it", "change it with edits"):
            assert await say(client, id, words) == "end_turn"
        # What was undone is shown once, by the command and not by what the model is told of it.
        assert await say(client, id, "/undo") == "end_turn"
        while "[the user's /undo]" not in editor.said():
            editor.seen = anyio.Event()
            await editor.seen.wait()
        assert editor.said().count("Undone: the file changes") == 1
        # What another client did is shown nowhere else.
        other = await satchel.session(id)
        await LocalHost(satchel).command(
            other, COMMANDS["redo"], "", show=lambda _: None, tell=lambda _: None
        )
        while "[the user's /redo] Done again: the file changes of turn 2 (" not in editor.said():
            editor.seen = anyio.Event()
            await editor.seen.wait()
    by_call, by_result = editor.of("tool_call")
    assert [(c["type"], c["oldText"], c["newText"]) for c in by_call["content"]] == [("diff", "dig", "sow")]
    assert "content" not in by_result
    first, second = (update.get("content") for update in editor.of("tool_call_update"))
    assert first is None
    assert second is not None
    assert "-sow\n+reap" in second[0]["content"]["text"]


@requirement("acp:agent")
async def test_cancelling_ends_the_turn_validly_and_the_next_one_runs(tmp_path: Path) -> None:
    hold = anyio.Event()
    editor = Editor()
    async with opened(tmp_path, model(hold)) as satchel, connected(satchel, editor) as client:
        id = (await client.new_session(cwd=str(tmp_path / "work"))).session_id
        stopped: list[str] = []

        async def prompt() -> None:
            stopped.append(await say(client, id, "hold on"))

        async def later() -> None:
            stopped.append(await say(client, id, "and this?"))

        async with anyio.create_task_group() as group:
            group.start_soon(prompt)
            await editor.seen.wait()
            group.start_soon(later)
            await editor.told.wait()
            assert "waits for its turn" in editor.said("agent_thought_chunk")
            await client.cancel(session_id=id)
        assert stopped == ["cancelled", "end_turn"]
        assert "You said: and this?" in editor.said()
        assert editor.said("user_message_chunk") == ""  # the editor has shown it
        assert await say(client, id, "next") == "end_turn"
        assert "You said: next" in editor.said()


@requirement("acp:agent")
async def test_a_part_that_fails_is_told_and_the_turn_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise StorageError("The database is locked.")

    editor = Editor()
    async with opened(tmp_path, model()) as satchel, connected(satchel, editor) as client:
        assert satchel.memory is not None
        monkeypatch.setattr(satchel.memory, "surface", fail)
        id = (await client.new_session(cwd=str(tmp_path / "work"))).session_id
        await say(client, id, "pear")
        assert "memory: The database is locked." in editor.said("agent_thought_chunk")
        assert "You said: pear" in editor.said()


@requirement("acp:sessions")
async def test_sessions_are_listed_loaded_with_their_words_resumed_closed_and_deleted(tmp_path: Path) -> None:
    editor, cwd = Editor(), str(tmp_path / "work")
    async with opened(tmp_path, model()) as satchel:
        async with connected(satchel, editor) as client:
            id = (await client.new_session(cwd=cwd)).session_id
            await say(client, id, "I grow quinces")
            await say(client, id, "run `echo pear`")
        # The client went away; what was said is there for the next one.
        editor = Editor()
        async with connected(satchel, editor) as client:
            listed = (await client.list_sessions(cwd=cwd)).sessions
            assert [(one.session_id, one.title) for one in listed] == [(id, "I grow quinces")]
            assert (await client.list_sessions(cwd="/elsewhere")).sessions == []
            with pytest.raises(RequestError, match="not open"):
                await say(client, id, "hello")
            await client.load_session(cwd=cwd, session_id=id)
            assert "I grow quinces" in editor.said("user_message_chunk")
            assert "You said: I grow quinces" in editor.said()
            assert [one["status"] for one in editor.of("tool_call_update")] == ["completed"]
            shown = len(editor.said())
            await client.resume_session(cwd=cwd, session_id=id)
            assert len(editor.said()) == shown
            await client.set_session_mode(session_id=id, mode_id="plan")
            assert editor.of("current_mode_update")[-1]["currentModeId"] == "plan"
            await say(client, id, "run `echo fig`")
            assert editor.asked == []
            await client.close_session(session_id=id)
            with pytest.raises(RequestError, match="not open"):
                await say(client, id, "hello")
            await client._conn.send_request("session/delete", {"sessionId": id})
            assert (await client.list_sessions()).sessions == []


@requirement("plan:faces")
async def test_a_plan_is_approved_by_the_next_prompt_and_the_editor_shows_mode_and_steps(
    tmp_path: Path,
) -> None:
    editor = Editor()
    async with opened(tmp_path, model()) as satchel, connected(satchel, editor) as client:
        id = (await client.new_session(cwd=str(tmp_path / "work"))).session_id
        await say(client, id, "propose something")
        assert "Approve this plan?" in editor.said()
        assert "2. Yes, in mode auto" in editor.said()
        await say(client, id, "2")
        assert [one["currentModeId"] for one in editor.of("current_mode_update")] == ["plan", "auto"]
        (plan,) = editor.of("plan")
        assert [(one["content"], one["status"]) for one in plan["entries"]] == [
            ("dig", "pending"),
            ("sow", "pending"),
        ]


@requirement("acp:questions")
async def test_a_question_comes_as_text_and_the_next_prompt_answers_it(tmp_path: Path) -> None:
    editor = Editor()
    async with opened(tmp_path, model()) as satchel, connected(satchel, editor) as client:
        id = (await client.new_session(cwd=str(tmp_path / "work"))).session_id
        assert await say(client, id, "ask me") == "end_turn"
        assert editor.said().endswith("Which colour?\n1. red\n2. blue")
        assert await say(client, id, "2") == "end_turn"
        assert "blue" in json.dumps(editor.of("tool_call_update")) + editor.said()
        assert await say(client, id, "/help usage") == "end_turn"
        assert "Show tokens and cost." in editor.said()
        assert {"help", "compact"} <= {
            command["name"] for command in editor.of("available_commands_update")[0]["availableCommands"]
        }


@requirement("acp:servers")
@requirement("acp:questions")
@pytest.mark.parametrize("capabilities", [FORMS, None], ids=["forms", "no forms"])
async def test_the_clients_own_servers_are_used_under_the_permission_rules(
    tmp_path: Path, capabilities: ClientCapabilities | None
) -> None:
    editor = Editor()
    server = McpServerStdio(name="my server", command=sys.executable, args=[str(STRANGER), "asks"], env=[])
    async with opened(tmp_path, model()) as satchel, connected(satchel, editor, capabilities) as client:
        cwd = str(tmp_path / "work")
        id = (await client.new_session(cwd=cwd, mcp_servers=[server])).session_id
        assert await say(client, id, "call mcp__my_server__work") == "end_turn"
        assert editor.asked[0][0].startswith("mcp__my_server__work")
        result = editor.of("tool_call_update")[-1]["content"][0]["content"]["text"]
        if capabilities is None:
            assert '"action": "cancel"' in result or '"action": "decline"' in result
        else:
            assert '"city": "Ulm"' in result
            assert "Which city?" in editor.asked[1][0]
        with pytest.raises(RequestError, match="transport"):
            await client.new_session(
                cwd=cwd,
                mcp_servers=[SseMcpServer(type="sse", name="old", url="http://127.0.0.1:9", headers=[])],
            )


@requirement("acp:prompts")
async def test_what_an_editor_attaches_reaches_the_model_and_is_not_what_the_user_said(
    tmp_path: Path,
) -> None:
    editor = Editor()
    scripted = model()
    async with opened(tmp_path, scripted) as satchel, connected(satchel, editor) as client:
        id = (await client.new_session(cwd=str(tmp_path / "work"))).session_id
        attached = resource_block(
            embedded_text_resource("file:///home/ann/notes.md", "The orchard has 40 trees.")
        )
        linked = resource_link_block("plan.md", "file:///home/ann/plan.md")
        assert await say(client, id, "Count them", attached, linked) == "end_turn"
        asked = "".join(block.text for block in scripted.requests[-1].messages[0].blocks)  # type: ignore[union-attr]
        assert "The orchard has 40 trees." in asked
        assert "[plan.md](file:///home/ann/plan.md)" in asked
        assert satchel.memory is not None
        kept = " ".join(record.content for record in await satchel.memory.list(limit=10))
        assert "Count them" in kept
        assert "40 trees" not in kept
        with pytest.raises(RequestError, match="base64"):
            await say(client, id, image_block("?", "image/png"))
        paper = resource_block(embedded_blob_resource("file:///home/ann/a%20paper.pdf", "JVBERi0xLjQ="))
        assert (
            await say(client, id, text_block("Look"), image_block("aGk=", "image/png"), paper) == "end_turn"
        )
        files = scripted.requests[-1].messages[-1].files
        assert [(file.name, file.media_type) for file in files] == [
            ("picture", "text/plain"),
            ("a paper.pdf", "application/pdf"),
        ]
        with pytest.raises(RequestError, match="no text"):
            await say(client, id, "  ")
        (tmp_path / "work" / "a.png").write_bytes(PNG)
        assert await say(client, id, "view") == "end_turn"
        assert editor.of("tool_call_update")[-1]["content"][1]["content"] == SHOWN


@requirement("acp:hostile")
async def test_an_invalid_line_is_answered_and_the_connection_continues(tmp_path: Path) -> None:
    async with opened(tmp_path, model()) as satchel, piped(LocalPlace(satchel)) as lines:
        answers = aiter(lines)

        async def ask(line: str) -> dict[str, Any]:
            await lines.send(line)
            answer: dict[str, Any] = json.loads(await anext(answers))
            return answer

        async def error(method: str, **params: Any) -> int:
            answer = await ask(json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}))
            assert answer["id"] == 7
            return int(answer["error"]["code"])

        assert (await ask("{"))["error"]["code"] == -32700
        assert (await ask("[" * 100_000))["error"]["code"] == -32700
        assert (await ask("[]"))["error"]["code"] == -32600
        assert (await ask('{"jsonrpc": "2.0", "id": {}, "method": "initialize"}'))["error"]["code"] == -32600
        assert (await ask('{"jsonrpc": "2.0", "id": 3, "method": 5}'))["id"] == 3
        assert await error("no/such/method") == -32601
        assert await error("_no/extension") == -32601
        assert await error("session/new") == -32602
        assert await error("session/new", cwd="relative", mcpServers=[]) == -32602
        assert await error("session/new", cwd="/nowhere\0", mcpServers=[]) == -32602
        for id in ("../../config.toml", "0" * 5_000, ""):
            assert await error("session/load", cwd=str(tmp_path), sessionId=id, mcpServers=[]) in (
                -32002,
                -32602,
            )
            assert (
                await error("session/prompt", sessionId=id, prompt=[{"type": "text", "text": "x"}]) == -32002
            )
            assert await error("session/delete", sessionId=id) in (-32002, -32602)
        assert await error("session/list", cursor="x") == -32602
        await lines.send('{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "nobody"}}')
        await lines.send('{"jsonrpc": "2.0", "id": 99, "result": {}}')
        answer = await ask('{"jsonrpc":"2.0","id":"z","method":"initialize","params":{"protocolVersion":1}}')
        assert answer["result"]["agentInfo"]["name"] == "satchel"


@requirement("acp:served")
async def test_beside_a_server_the_conversation_is_held_there_and_shared_with_its_other_clients(
    tmp_path: Path,
) -> None:
    editor, cwd = Editor(), str(tmp_path / "work")
    with serving(tmp_path, agent__mode="ask") as world:
        found = find_server(world.home)
        assert found is not None
        settings = settings_in(tmp_path)
        (tmp_path / "work" / "a.png").write_bytes(PNG)
        async with RemoteHost.connected(found, settings=settings, clock=SystemClock()) as host:
            place = ServedPlace(host)
            async with connected(place, editor) as client:
                server = McpServerStdio(name="own", command="x", args=[], env=[])
                id = (await client.new_session(cwd=cwd, mcp_servers=[server])).session_id
                assert "doesn't use the editor's MCP servers (own)" in editor.said()
                attached = resource_block(embedded_text_resource("file:///notes.md", "Forty trees."))
                assert await say(client, id, "echo pear", attached) == "end_turn"
                assert editor.asked == [("bash: echo pear", ["once", "session", "always", "no"])]
                assert editor.of("tool_call_update")[-1]["status"] == "completed"
                editor.seen = anyio.Event()
                await anyio.to_thread.run_sync(_chat, world, id)
                while "From the browser" not in editor.said("user_message_chunk"):
                    await editor.seen.wait()
                    editor.seen = anyio.Event()
                assert await say(client, id, "count") == "end_turn"
                assert WORDS in editor.said()
                assert await say(client, id, "view") == "end_turn"
                assert editor.of("tool_call_update")[-1]["content"][1]["content"] == SHOWN
                await client.set_session_mode(session_id=id, mode_id="plan")
                assert [one.session_id for one in (await client.list_sessions(cwd=cwd)).sessions] == [id]
            # The editor left; the conversation is in the server.
            editor = Editor()
            async with connected(place, editor) as client:
                await client.load_session(cwd=cwd, session_id=id)
                assert "From the browser" in editor.said("user_message_chunk")
                with pytest.raises(RequestError, match="no session"):
                    await client.load_session(cwd=cwd, session_id="../x")
                await client._conn.send_request("session/delete", {"sessionId": id})
                assert (await client.list_sessions()).sessions == []


def _chat(world: World, id: str) -> None:
    with world.client() as http:
        chat(http, "From the browser", session_id=id)


@requirement("acp:stdio")
async def test_the_command_serves_an_editor_and_ends_with_its_stream(tmp_path: Path) -> None:
    editor = Editor()
    environ = environ_for(tmp_path, SATCHEL_MODEL="none")
    with anyio.fail_after(MOST_S):
        async with spawn_agent_process(
            cast("Any", editor),
            sys.executable,
            "-m",
            "satchel",
            "acp",
            env=environ,
            cwd=tmp_path,
            use_unstable_protocol=True,
            transport_kwargs={"shutdown_timeout": MOST_S},  # else it is ended after 2 s
        ) as (client, process):
            await client.initialize(protocol_version=PROTOCOL_VERSION)
            id = (await client.new_session(cwd=str(tmp_path))).session_id
            assert await say(client, id, "Hello") == "end_turn"
            assert editor.said()
    assert process.returncode == 0
