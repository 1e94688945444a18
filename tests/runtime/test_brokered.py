"""Capabilities that use tools of MCP servers and ask a model: tried, approved, counted, and within the rules."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from satchel.capabilities import Wanted
from satchel.clock import local_day
from satchel.config import load
from satchel.messages import ToolResultBlock, Usage
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import ModelRequest
from satchel.models.scripted import Call, Reply, ScriptedModel
from satchel.runtime import Satchel
from tests.builder.world import register, tries, write
from tests.capabilities.world import draft
from tests.capabilities.world import register as registered
from tests.requirements import requirement
from tests.runtime.world import opened
from tests.tools.mcp.conftest import stranger

pytestmark = pytest.mark.anyio

CODE = """
from satchel_calls import call

def run(args: dict) -> str:
    if not args["city"]:
        raise ValueError("no city")
    return call("mcp:good.work", {}) + ", " + call("model", {"prompt": "Shorten " + args["city"]})
"""
CASES = (
    '{"name": "a", "input": {"city": "Ulm"}, "expect": {"equals": "done, short"}, "network": true}\n'
    '{"name": "b", "input": {"city": ""}, "expect": {"error": "no city"}}\n'
)
HOSTS = ["mcp:good.work", "model"]
FAILS = 'from main import run\ntry:\n    print(run({"city": "Ulm"}))\nexcept RuntimeError as error:\n    print(error)'


def thinks(request: ModelRequest) -> Reply | str:
    rounds = sum(message.role == "assistant" for message in request.messages)
    newest = request.messages[-1]
    if "You are the Builder" in request.system:
        steps = (
            [write("main.py", CODE), write("tests/cases.jsonl", CASES)],
            [tries(FAILS), tries(FAILS, hosts=HOSTS)],
            [register(hosts=HOSTS)],
        )
        return Reply(calls=steps[rounds])
    if newest.text.startswith("Shorten"):
        return "short"
    if results := [block.content for block in newest.blocks if isinstance(block, ToolResultBlock)]:
        return f"It says: {results[0]}"
    return Reply(calls=[Call(name="cap_brief", input={"city": "Ulm"}, id=f"use_{len(request.messages)}")])


@requirement("capabilities:calls:outside")
@pytest.mark.parametrize("trusts", [True, False])
async def test_a_capability_uses_a_tool_of_a_server_and_the_model_within_rules_and_budget(
    tmp_path: Path, trusts: bool
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    entry = stranger("good", name="good")
    config = home / "config.toml"
    config.write_text(
        f"[mcp_servers.good]\ncommand = {json.dumps(entry.command)}\nargs = {json.dumps(list(entry.args))}\n"
        f"trust_annotations = {json.dumps(trusts)}\n"
    )
    settings = load(
        {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "OLLAMA_HOST": "127.0.0.1:9"},
        cwd=work,
        home=home,
        overrides={
            "agent.mode": "bypass",
            "background.titles": "off",
            "background.earned": "off",
            "memory.distill": "off",
            "sandbox.allow_unsafe": True,
            "background.day_tokens": 100,
        },
    )
    model = ScriptedModel(thinks)
    async with Satchel.open(settings, model=model, embedder=HashingEmbedder()) as satchel:
        assert satchel.builds is not None
        assert satchel.capabilities is not None
        with anyio.fail_after(120):
            await satchel.tools()
            while satchel.mcp.find("good.work") is None:  # noqa: ASYNC110 - another process tells its tools
                await anyio.sleep(0.01)
            sums = {
                "type": "object",
                "properties": {
                    "table": {"type": "string", "format": "file"},
                    "columns": {"type": "array", "items": {"type": "string"}},
                    "unit": {"enum": ["g", "kg"]},
                    "at": {
                        "type": "object",
                        "properties": {"day": {"type": "string", "format": "date"}},
                        "required": ["day"],
                    },
                },
                "required": ["table", "columns"],
            }
            await registered(satchel.capabilities.catalogue, "sums", draft(input_schema=sums))
            asked = await satchel.builds.build(Wanted(name="brief", description="Greet a city."))
            questions = []
            async for message in satchel.builds.follow(asked.build_id):
                if message.type == "question":
                    questions.append(message.text)
                    await satchel.builds.answer(asked.build_id, message.id, "yes")
        [question] = questions
        assert "brief may use work of the MCP server good" in question
        assert "brief may ask your language model" in question
        building = [request for request in model.requests if "You are the Builder" in request.system]
        told = building[0].messages[0].text
        assert ("- mcp:good.work(" in told, "neither run_code nor a case can call it" in told) == (
            True,
            not trusts,
        )
        fields = 'table: file, columns: [string], unit?: "g" | "kg", at?: {day: date}'
        assert f"- sums({fields}): Greet a city by its name." in told
        assert "while" not in question, "that of the server is called only later"
        said = [m.text async for m in satchel.builds.follow(asked.build_id)][-1]
        left_out = "1 case passed, 1 left out: it calls mcp:good.work, which may change something"
        assert ("2 cases passed" if trusts else left_out) in said
        tried = [b.content for m in building[-1].messages for b in m.blocks if isinstance(b, ToolResultBlock)]
        assert "brief may not call 'mcp:good.work'" in tried[2]
        assert tried[3] == ("done, short" if trusts else tried[3])
        assert trusts or "may change something" in tried[3]
        [version] = await satchel.capabilities.catalogue.versions("brief")
        assert [check["passed"] for check in version.checks] == [trusts or None, True]
        built = [row.calls for row in await satchel.usage() if row.purpose == "capability"]
        assert built == ([2] if trusts else []), "tried once by run_code, and once by a case"
        # In a session, its model is asked, and its usage has the cost.
        session = await satchel.session()
        assert (await session.run_turn("Go.")).text.endswith("done, short")
        spent = {row.purpose: row.calls for row in await satchel.usage() if row.session_id == session.id}
        assert spent["capability"] == 1
        run = await satchel.capabilities.runner.run("brief", {"city": "Ulm"})
        assert [(c.by, c.capability, c.status) for c in run.calls] == [
            ("brief", "mcp:good.work", "ok"),
            ("brief", "model", "ok"),
        ]
        today = local_day(satchel.clock.now())
        assert (await satchel.home.background_day(today)).kinds["capability"][0] == 1
        # The budget of the background is spent at some time, where no session counts.
        for _ in range(100):
            run = await satchel.capabilities.runner.run("brief", {"city": "Ulm"})
            if not run.ok:
                break
        assert "background.day_tokens" in run.error
        assert run.calls[-1].status == "refused"
        # A rule that the user has written since holds for calls by code.
        config.write_text(config.read_text() + '[[permissions]]\naction = "deny"\ntool = "mcp__good__work"\n')
        assert "Refused" in (await session.run_turn("Go.")).text


MANY = """
from satchel_calls import call

def run(args: dict) -> str:
    if not args["city"]:
        raise ValueError("no city")
    said = [call("model", {"prompt": "Shorten " + args["city"]}) for _ in range(args.get("times", 1))]
    return ", ".join(said)
"""


@requirement("capabilities:calls:outside")
@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"budget__session_usd": 0.9}, "budget.session_usd"),
        ({"budget__turn_tokens": 9_000}, "budget.turn_tokens"),
    ],
)
async def test_code_that_asks_the_model_stops_at_the_limits_of_the_build_the_session_and_the_turn(
    tmp_path: Path, limits: dict[str, float], named: str
) -> None:
    shortened: list[str] = []
    tried: list[str] = []

    def answers(request: ModelRequest) -> Reply | str:
        newest = request.messages[-1]
        results = [block.content for block in newest.blocks if isinstance(block, ToolResultBlock)]
        if newest.text.startswith("Shorten"):
            shortened.append(newest.text)
            return Reply(text="short", usage=Usage(input_tokens=900, output_tokens=100, cost_usd=0.2))
        if "You are the Builder" in request.system:
            tried.extend(results)
            rounds = sum(message.role == "assistant" for message in request.messages)
            code = "from main import run\ntry:\n    run({'city': 'Ulm', 'times': 12})\nexcept RuntimeError as e: print(e)"
            lines = CASES.replace("done, short", "short")
            steps = (
                [write("main.py", MANY), write("tests/cases.jsonl", lines)],
                [tries(code, hosts=["model"])],
            )
            return Reply(calls=steps[rounds]) if rounds < 2 else "I give up."
        if results:
            return f"It says: {results[0]}"
        return Reply(calls=[Call(name="cap_many", input={"city": "Ulm", "times": 12}, id="u")])

    settings = {"agent__mode": "bypass", "sandbox__allow_unsafe": True, "builder__usd": 0.5, **limits}
    async with opened(tmp_path, ScriptedModel(answers), **settings) as satchel:
        assert satchel.builds is not None
        assert satchel.capabilities is not None
        asked = await satchel.builds.build(Wanted(name="brief", description="Greet a city."))
        async for message in satchel.builds.follow(asked.build_id):
            if message.type == "question":
                await satchel.builds.answer(asked.build_id, message.id, "yes")
        assert len(shortened) == 3, "the build may spend 0.50 dollars"
        shortened.clear()
        catalogue = satchel.capabilities.catalogue
        any_input = {"type": "object"}
        await registered(catalogue, "many", draft(code=MANY, input_schema=any_input, hosts=["model"]))
        session = await satchel.session()
        done = await session.run_turn("Go.")
        assert named in done.text
        assert 0 < len(shortened) < 12


@requirement("capabilities:calls:bounded")
async def test_neither_code_nor_a_model_calls_by_name_what_is_disabled_as_a_tool(tmp_path: Path) -> None:
    def by_name(request: ModelRequest) -> Reply | str:
        results = [
            block.content for block in request.messages[-1].blocks if isinstance(block, ToolResultBlock)
        ]
        assert "greet:" not in request.system
        call = Call(name="execute_capability", input={"name": "greet", "input": {"city": "Ulm"}})
        return results[0] if results else Reply(calls=[call])

    settings = {"sandbox__allow_unsafe": True, "tools__disabled": ["cap_greet"]}
    async with opened(tmp_path, ScriptedModel(by_name), **settings) as satchel:
        assert satchel.capabilities is not None
        await registered(satchel.capabilities.catalogue, "greet")
        assert "tools.disabled" in (await (await satchel.session()).run_turn("Greet Ulm.")).text
        code = (
            "from satchel_calls import call\n\ndef run(args: dict) -> str:\n    return call('greet', args)\n"
        )
        calls = draft(code=code, hosts=["capability:greet"])
        await registered(satchel.capabilities.catalogue, "asks", calls)
        outcome = await satchel.capabilities.runner.run("asks", {"city": "Ulm"})
        assert "tools.disabled" in outcome.error
