"""Executables in a conversation: four languages in both wire formats, found in the background, refreshed while it runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.config import load, trust
from satchel.events import Notice, ToolProgress
from satchel.models import ScriptedModel
from satchel.models.embedding import HashingEmbedder
from satchel.models.scripted import Call, Reply
from satchel.runtime import Satchel
from tests.models.loopback import (
    Answer,
    Asked,
    Wire,
    as_events,
    as_json,
    begun,
    block,
    chat,
    chunk,
    ended,
    loopback,
    messages,
    settings_for,
)
from tests.requirements import requirement
from tests.runtime.world import opened
from tests.tools.external.executables import put, schema, script

pytestmark = pytest.mark.anyio

GREETING = {"who": {"type": "string", "description": "Who is greeted.", "required": True}}
SAID = schema("NAME", parameters=GREETING)

BASH_TOOL = f"""#!/usr/bin/env bash
if [[ ${{1:-}} == --schema ]]; then cat <<'JSON'
{SAID.replace("NAME", "greet_bash")}
JSON
exit; fi
[[ $(cat) =~ \\"who\\":\\ *\\"([^\\"]*)\\" ]] && printf '{{"greeting": "bash: %s"}}' "${{BASH_REMATCH[1]}}"
"""
PYTHON_TOOL = f"""#!/usr/bin/env python3
import json, sys
if sys.argv[1:] == ["--schema"]:
    print({SAID.replace("NAME", "greet_python")!r})
else:
    print(json.dumps({{"greeting": "python: " + json.load(sys.stdin)["who"]}}))
"""
NODE_TOOL = f"""#!/usr/bin/env node
if (process.argv[2] === "--schema") console.log({SAID.replace("NAME", "greet_node")!r});
else {{
  const input = JSON.parse(require("fs").readFileSync(0, "utf8"));
  console.log(JSON.stringify({{ greeting: "node: " + input.who }}));
}}
"""
C_TOOL = """
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    static char input[4096];
    if (argc > 1 && !strcmp(argv[1], "--schema")) { puts(SCHEMA); return 0; }
    input[fread(input, 1, sizeof input - 1, stdin)] = 0;
    char *who = strstr(input, "\\"who\\":");
    if (!who || !(who = strchr(who + 6, '"'))) { puts("{\\"error\\": \\"no who\\"}"); return 1; }
    printf("{\\"greeting\\": \\"c: %.*s\\"}\\n", (int)strcspn(who + 1, "\\""), who + 1);
    return 0;
}
"""


def tools_in_four_languages(folder: Path) -> list[str]:
    put(folder, "greet.sh", BASH_TOOL)
    put(folder, "greet.py", PYTHON_TOOL)
    names = ["greet_bash", "greet_python"]
    if shutil.which("node"):
        put(folder, "greet.js", NODE_TOOL)
        names.append("greet_node")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler:
        source = folder.parent / "greet.c"
        source.write_text(f"#define SCHEMA {json.dumps(SAID.replace('NAME', 'greet_c'))}\n{C_TOOL}")
        subprocess.run([compiler, "-o", str(folder / "greet"), str(source)], check=True, timeout=280)
        names.append("greet_c")
    return sorted(names)


def asking(wire: Wire, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> Answer:
    """A streamed answer that calls tools."""
    if wire == "openai":
        deltas = [
            chunk(
                {
                    "tool_calls": [
                        {
                            "index": index,
                            "id": f"call_{index}",
                            "type": "function",
                            "function": {"name": name, "arguments": json.dumps(input)},
                        }
                    ]
                }
            )
            for index, (name, input) in enumerate(calls)
        ]
        return as_events([*deltas, chunk({}, "tool_calls"), *chat()[1:]])
    blocks: list[Any] = []
    for index, (name, input) in enumerate(calls):
        start = {"type": "tool_use", "id": f"call_{index}", "name": name, "input": {}}
        blocks += block(index, start, {"type": "input_json_delta", "partial_json": json.dumps(input)})
    return as_events([begun(), *blocks, *ended("tool_use")])


def results_in(wire: Wire, asked: Asked) -> list[str]:
    if wire == "openai":
        return [message["content"] for message in asked.body["messages"] if message["role"] == "tool"]
    content = asked.body["messages"][-1]["content"]
    return [
        part["content"] if isinstance(part["content"], str) else part["content"][0]["text"]
        for part in content
        if part["type"] == "tool_result"
    ]


def definitions_in(wire: Wire, asked: Asked) -> dict[str, Any]:
    if wire == "openai":
        return {tool["function"]["name"]: tool["function"]["parameters"] for tool in asked.body["tools"]}
    return {tool["name"]: tool["input_schema"] for tool in asked.body["tools"]}


@requirement(
    "external:call:json", "external:envelope:success", "external:schema:openai", "external:schema:anthropic"
)
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_tools_in_bash_python_node_and_c_serve_a_model_in_both_wire_formats(
    wire: Wire, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    names = tools_in_four_languages(tmp_path / "home" / "tools")
    answers = [
        asking(wire, [(name, {"who": "Ann"}) for name in names]),
        as_events(chat("Done.") if wire == "openai" else messages("Done.")),
    ]

    def answer(asked: Asked) -> Answer:
        return as_json({"data": []}) if asked.path.endswith("/models") else answers.pop(0)

    async with loopback(answer) as server:
        settings = settings_for(server, tmp_path / "work", PATH=os.environ["PATH"])
        settings = replace(settings, home=tmp_path / "home", model=f"{wire}:m-1")
        async with Satchel.open(settings, embedder=HashingEmbedder()) as satchel:
            session = await satchel.session(mode="bypass")
            with anyio.fail_after(120):
                turn = await session.run_turn("Greet Ann.")
        talked = [asked for asked in server.asked if not asked.path.endswith("/models")]
    assert (turn.status, turn.text) == ("done", "Done.")
    assert [(step.tool, step.is_error) for step in turn.steps] == [(name, False) for name in names]
    schema_sent = {
        "type": "object",
        "properties": {"who": {"type": "string", "description": "Who is greeted."}},
        "required": ["who"],
    }
    sent = definitions_in(wire, talked[0])
    assert {name: sent[name] for name in names} == dict.fromkeys(names, schema_sent)
    assert [json.loads(result) for result in results_in(wire, talked[1])] == [
        {"tool_success": True, "result": {"greeting": f"{name.removeprefix('greet_')}: Ann"}}
        for name in names
    ]


@requirement("external:schema:none")
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_without_tools_the_request_has_no_tools_field(wire: Wire, tmp_path: Path) -> None:
    async with loopback([as_events(chat("Hi.") if wire == "openai" else messages("Hi."))]) as server:
        settings = settings_for(server, tmp_path)
        settings = replace(settings, model=f"{wire}:m-1")
        async with Satchel.open(settings, embedder=HashingEmbedder()) as satchel:
            everything = tuple(tool.spec.name for tool in (await satchel.tools()).tools)
        settings = replace(settings, tools=replace(settings.tools, disabled=everything))
        async with Satchel.open(settings, embedder=HashingEmbedder()) as satchel:
            session = await satchel.session()
            with anyio.fail_after(120):
                await session.run_turn("Hello")
        assert "tools" not in server.asked[-1].body


def slow_script(name: str, go: Path) -> str:
    return script(name).replace("then\n", f"then\nwhile [ ! -e {go} ]; do sleep 0.02; done\n", 1)


@requirement("external:discovery:background", "external:discovery:waiting")
async def test_the_session_is_there_at_once_and_its_clients_hear_that_the_first_message_waits_for_the_tools(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    put(tmp_path / "home" / "tools", "slow", slow_script("slow", go))
    model = ScriptedModel(["Hi."])
    async with opened(tmp_path, model, tools__schema_timeout_s=30) as satchel:
        with anyio.fail_after(120):
            session = await satchel.session()
            assert session.tools.get("slow") is None
            async for event in session.stream("Hello"):
                if isinstance(event, Notice) and "Waiting for external tools" in event.text:
                    assert model.requests == []
                    go.touch()
    assert [tool.name for tool in model.requests[0].tools][-4] == "slow"


@requirement("external:call:background", "external:progress")
async def test_a_running_tool_blocks_nothing_and_reports_its_progress(tmp_path: Path) -> None:
    go = tmp_path / "go"
    body = f"""echo '{{"progress": "half"}}' >&2; while [ ! -e {go} ]; do sleep 0.02; done; echo 1"""
    put(tmp_path / "home" / "tools", "long", script("long", body))
    model = ScriptedModel([Reply(calls=[Call(name="long")]), "Done."])
    told = []
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(mode="bypass")
        with anyio.fail_after(120):
            async for event in session.stream("Go."):
                if isinstance(event, ToolProgress):
                    told.append((event.tool, event.data))
                    # The tool still runs: it ends only because we are here meanwhile.
                    go.touch()
    assert told == [("long", {"progress": "half"})]
    assert session.messages[-1].text == "Done."


@requirement("external:command:refresh")
async def test_a_refresh_changes_no_byte_of_the_prompt_and_new_tools_can_be_called(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "tools"
    put(folder, "m", script("m", "echo 1"))
    gone = put(folder, "n", script("n", "echo 2"))
    model = ScriptedModel(["One.", Reply(calls=[Call(name="a"), Call(name="n")]), "Two."])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(mode="bypass")
        with anyio.fail_after(120):
            await session.run_turn("First.")
            put(folder, "a", script("a", "echo 3"))
            gone.unlink()
            registry = await session.refresh_tools()
            turn = await session.run_turn("Second.")
    assert registry.get("n") is None
    assert model.requests[1].tools == model.requests[0].tools
    assert [json.loads(step.result).get("result", step.is_error) for step in turn.steps] == [3, True]
    assert json.loads(turn.steps[1].result)["error_code"] == "NOT_FOUND"
    assert turn.notices == ()


@requirement("external:pinned", "external:discovery:override")
async def test_notices_about_tools_are_shown_with_the_first_message(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "tools"
    changed = put(folder, "weather", script("weather"))
    put(folder, "bash", script("bash"))
    async with opened(tmp_path, ScriptedModel([])) as satchel:
        await satchel.tools()
    changed.write_text(script("weather", "echo 2"))
    model = ScriptedModel(["One.", "Two."])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session()
        with anyio.fail_after(120):
            events = [event async for event in session.stream("Hello")]
            second = await session.run_turn("And now?")
    told = [event.text for event in events if isinstance(event, Notice)]
    assert len(told) == 2
    assert "replaces the built-in tool bash" in told[0]
    assert "satchel tool approve weather" in told[1]
    assert second.notices == ()
    names = [tool.name for tool in model.requests[0].tools]
    assert names.count("bash") == 1
    assert "weather" not in names
    assert "Does bash." in [tool.description for tool in model.requests[0].tools]


@requirement("external:discovery:folders")
async def test_a_projects_tools_count_once_it_is_trusted(tmp_path: Path) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    put(work / ".satchel" / "tools", "ours", script("ours"))
    put(tmp_path / "more", "more", script("more"))
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "SATCHEL_TOOLS_DIRS": "~/more"}
    found = []
    for is_trusted in (False, True):
        if is_trusted:
            trust(home, work)
        settings = load(environ, cwd=work, home=home)
        async with Satchel.open(settings, model=ScriptedModel([]), embedder=HashingEmbedder()) as satchel:
            tools = (await satchel.tools()).tools
            found.append([tool.spec.name for tool in tools if tool.spec.source == "external"])
    assert found == [["more"], ["more", "ours"]]


@requirement("config:project:content")
async def test_a_tool_that_comes_into_a_trusted_project_is_not_even_asked_before_it_is_approved(
    tmp_path: Path,
) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    put(work / ".satchel" / "tools", "ours", script("ours"))
    trust(home, work)
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ran = tmp_path / "ran"
    put(
        work / ".satchel" / "tools",
        "theirs",
        f"#!/bin/sh\ntouch {ran}\n" + script("theirs").partition("\n")[2],
    )

    taken: dict[str, list[str]] = {}

    async def offered(approve: str = "") -> list[str]:
        settings = load(environ, cwd=work, home=home)
        async with Satchel.open(settings, model=ScriptedModel([]), embedder=HashingEmbedder()) as satchel:
            await satchel.tools()
            if approve:
                await satchel.external.approve(approve)
            tools = [tool for tool in (await satchel.tools()).tools if tool.spec.source == "external"]
            taken.update((tool.spec.name, list(tool.spec.input_schema["properties"])) for tool in tools)
            return [tool.spec.name for tool in tools]

    assert await offered() == ["ours"]
    assert not ran.exists()
    assert await offered("theirs") == ["ours", "theirs"]
    # A changed one is withheld as well, until the user has seen it in `satchel config trust` or approved it.
    put(
        work / ".satchel" / "tools",
        "ours",
        script("ours", "echo changed", parameters={"to": {"type": "string"}}),
    )
    assert await offered() == ["theirs"]
    trust(home, work)
    assert await offered() == ["ours", "theirs"]
    # Trusted again, it is asked again: the model sees what it takes now.
    assert taken["ours"] == ["to"]


async def test_calls_that_write_the_same_declared_path_run_one_after_the_other(tmp_path: Path) -> None:
    body = """echo begin >>log; sleep 0.1; echo end >>log; echo '{}'"""
    parameters = {"to": {"type": "string", "required": True}}
    put(tmp_path / "home" / "tools", "w", script("w", body, parameters=parameters, effects=["to"]))
    model = ScriptedModel(
        [Reply(calls=[Call(name="w", input={"to": "x"}), Call(name="w", input={"to": "./x"})]), "."]
    )
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(mode="bypass")
        with anyio.fail_after(120):
            await session.run_turn("Go.")
    assert (tmp_path / "work" / "log").read_text().split() == ["begin", "end", "begin", "end"]
