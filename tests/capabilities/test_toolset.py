from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from satchel.capabilities.lookup import Lookup
from satchel.capabilities.records import Provenance, Wanted
from satchel.capabilities.toolset import CapabilityTools
from satchel.clock import ManualClock
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import Embedder
from satchel.sandbox.port import Artifact, RunResult, Status
from satchel.tools.builtin.fence import Fence
from satchel.tools.port import Redirect, Redirecting, ToolContext, ToolResult
from tests.capabilities.world import Workbench, draft, open_workbench, register
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

OWN = ["lookup_capability", "request_capability", "execute_capability", "read_docs"]


class Tools:
    """A workbench with its toolset, and calls as the loop makes them."""

    def __init__(self, bench: Workbench, toolset: CapabilityTools, folder: Path) -> None:
        self.bench, self.toolset, self.folder = bench, toolset, folder
        self.roots: tuple[Path, ...] = ()

    async def names(self) -> list[str]:
        return [tool.spec.name for tool in await self.toolset.tools()]

    async def call(self, tool_name: str, /, **input: Any) -> ToolResult:
        tools = {tool.spec.name: tool for tool in await self.toolset.tools()}
        tool, given = tools[tool_name], input
        if isinstance(tool, Redirecting):
            target = tool.redirect(given)
            if not isinstance(target, Redirect):
                return ToolResult(text=target, is_error=True)
            tool, given = target.tool, dict(target.input)
        return await tool.call(given, context(self.folder, self.roots))


def context(folder: Path, roots: tuple[Path, ...]) -> ToolContext:
    async def nothing(_: Mapping[str, Any]) -> None: ...

    async def here(function: Callable[..., Any], /, *args: Any) -> Any:
        return function(*args)

    return ToolContext(
        session_id="s1", turn=1, call_id="c1", cwd=folder, roots=roots, spill_dir=folder / "spilled", state={},
        progress=nothing, blocking=here, clock=ManualClock(), timeout_s=100,
    )  # fmt: skip


@asynccontextmanager
async def open_tools(home: Path, *, embedder: Embedder | str = "none") -> AsyncIterator[Tools]:
    async with open_workbench(home) as bench:
        lookup = Lookup(bench.catalogue, bench.catalogue._database, embedder=embedder)
        yield Tools(
            bench,
            CapabilityTools(
                bench.catalogue, runner=bench.runner, lookup=lookup, fence=lambda: Fence(home=home)
            ),
            home,
        )


@requirement("tools:capability-tools", "capabilities:prefix", "capabilities:description")
async def test_active_capabilities_are_tools_after_the_four_in_the_order_of_their_age(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        assert await tools.names() == OWN
        await register(tools.bench.catalogue, "zebra")
        await register(tools.bench.catalogue, "ant")
        await tools.bench.catalogue.request(Wanted(name="later", description="x"))
        assert sorted(await tools.names()) == sorted([*OWN, "cap_ant", "cap_zebra"])
        await tools.bench.catalogue.disable("ant")
        assert await tools.names() == [*OWN, "cap_zebra"]
        spec = (await tools.toolset.tools())[-1].spec
        assert spec.description == "[Capability] Greet a city by its name."
        assert spec.input_schema["required"] == ["city"]
        assert (spec.source, spec.origin) == ("capability", "capability zebra, version 1")


@requirement("capabilities:dispatch")
async def test_a_call_runs_the_capability_of_that_name_directly_and_through_execute_capability(
    tmp_path: Path,
) -> None:
    async with open_tools(tmp_path) as tools:
        await register(tools.bench.catalogue)
        direct = await tools.call("cap_greet", city="Ulm")
        assert (direct.text, direct.is_error, direct.untrusted) == ("Hello, Ulm!", False, False)
        assert direct.data["status"] == "ok"
        for name in ("greet", "cap_greet", (await tools.bench.catalogue.get("greet")).id):
            assert (
                await tools.call("execute_capability", name=name, input={"city": "Bonn"})
            ).text == "Hello, Bonn!"
        unknown = await tools.call("execute_capability", name="x" * 1000)
        assert unknown.is_error
        assert "lookup_capability" in unknown.text


@requirement("capabilities:background")
@pytest.mark.parametrize(
    ("keeps_files", "why"), [(False, "only in a conversation"), (True, "not in the background")]
)
async def test_no_call_is_in_the_background_without_a_conversation_or_of_one_that_keeps_files(
    tmp_path: Path, keeps_files: bool, why: str
) -> None:
    async with open_tools(tmp_path) as tools:
        await register(tools.bench.catalogue, spoilt=draft(state=keeps_files))
        done = await tools.call("execute_capability", name="greet", input={"city": "Ulm"}, background=True)
        assert done.is_error
        assert why in done.text


@requirement("capabilities:lookup:unknown")
@pytest.mark.parametrize("embedder", ["none", HashingEmbedder()])
async def test_lookup_says_that_nothing_is_found_or_what_is(tmp_path: Path, embedder: Embedder | str) -> None:
    async with open_tools(tmp_path, embedder=embedder) as tools:
        assert (await tools.call("lookup_capability", query="weather")).data == {"found": False}
        capability = await register(tools.bench.catalogue)
        await register(tools.bench.catalogue, "bill", draft(description="Write an invoice for a customer."))
        for query in ("greet", "cap_greet", "greet a city", "Greeting cities"):
            answer = await tools.call("lookup_capability", query=query)
            assert (
                answer.data.items()
                >= {"found": True, "id": capability.id, "name": "greet", "status": "active"}.items()
            )
            assert answer.data["input_schema"] == capability.input_schema
            assert json.loads(answer.text) == answer.data
        assert (await tools.call("lookup_capability", query="quantum chromodynamics")).data == {
            "found": False
        }
        for odd in ("%", "_", "' OR 1=1", "\ud800", "x" * 10_000, "  "):
            assert (await tools.call("lookup_capability", query=odd)).data == {"found": False}


@requirement("capabilities:search")
async def test_only_active_capabilities_are_found_by_words_and_others_by_their_state(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        await register(tools.bench.catalogue)
        await tools.bench.catalogue.request(Wanted(name="city_map", description="Draw a map of a city."))
        found = await tools.call("lookup_capability", query="city")
        assert (found.data["name"], found.data["others"]) == ("greet", [])
        building = await tools.call("lookup_capability", query="map")
        assert (building.data["name"], building.data["status"]) == ("city_map", "building")
        assert building.data["build_id"]


@requirement("capabilities:request:answer", "capabilities:request:dedup")
async def test_a_request_answers_with_the_build_and_a_second_one_with_the_same(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        first = (await tools.call("request_capability", name="greet", description="Greet a city.")).data
        assert first["status"] == "building"
        again = (await tools.call("request_capability", name="greet", description="Something else.")).data
        assert (again["capability_id"], again["build_id"]) == (first["capability_id"], first["build_id"])
        await register(tools.bench.catalogue)
        there = (await tools.call("request_capability", name="greet", description="Greet a city.")).data
        assert (there["status"], there["capability_id"]) == ("active", first["capability_id"])
        assert "build_id" not in there


@requirement("capabilities:request:dedup")
@pytest.mark.parametrize("embedder", ["none", HashingEmbedder()])
async def test_a_request_for_the_same_under_another_name_finds_what_is_there_unless_it_insists(
    tmp_path: Path, embedder: Embedder | str
) -> None:
    async with open_tools(tmp_path, embedder=embedder) as tools:
        one = await register(
            tools.bench.catalogue, "city_greeting", draft(description="Greet a city by its name.")
        )
        same = await tools.call(
            "request_capability", name="greeting_city", description="Greet a city by the name."
        )
        assert (same.data["capability_id"], same.data["similar"]) == (one.id, True)
        if embedder != "none":
            # What `lookup_capability` finds by the description is found here, too, whatever the name is.
            odd = await tools.call(
                "request_capability", name="qa_wb_ec_rd_tf", description="Greet a city by its name."
            )
            assert odd.data["similar"]
        other = await tools.call(
            "request_capability", name="invoice", description="Write a bill for a customer."
        )
        assert other.data["status"] == "building"
        insisted = await tools.call(
            "request_capability", name="greeting_city", description="Greet a city by the name.", distinct=True
        )
        assert insisted.data["status"] == "building"


@requirement("capabilities:request:dedup")
@pytest.mark.parametrize("named", ["city_greeting", "cap_city_greeting", "`city_greeting`"])
async def test_what_a_request_names_is_to_be_used_and_is_no_duplicate(tmp_path: Path, named: str) -> None:
    async with open_tools(tmp_path, embedder=HashingEmbedder()) as tools:
        await register(tools.bench.catalogue, "city_greeting", draft(description="Greet a city by its name."))
        letter = f"Greet a city by its name, in a letter; use {named} for the greeting."
        asked = await tools.call("request_capability", name="city_letter", description=letter)
        assert "similar" not in asked.data
        again = "Greet a city by its name, in a letter."
        assert (await tools.call("request_capability", name="greeting_city", description=again)).data[
            "similar"
        ]


async def test_the_same_words_the_other_way_round_mean_something_else(tmp_path: Path) -> None:
    async with open_tools(tmp_path, embedder=HashingEmbedder()) as tools:
        await register(tools.bench.catalogue, "csv_to_json", draft(description="Convert CSV to JSON."))
        back = await tools.call("request_capability", name="json_to_csv", description="Convert JSON to CSV.")
        assert back.data["status"] == "building"


@requirement("capabilities:docs-on-demand")
async def test_documents_are_read_on_demand(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        await register(tools.bench.catalogue, spoilt=draft(document="Give coordinates as lat,lon."))
        assert "Give coordinates as lat,lon." in (await tools.call("read_docs", name="cap_greet")).text
        assert "def run" in (await tools.call("read_docs", name="greet", file="main.py")).text
        for name, file in (("greet", "../../x"), ("greet", "nothing.md"), ("nobody", "")):
            assert (await tools.call("read_docs", name=name, file=file)).is_error


@requirement("promise:cache:constant-capabilities", "capabilities:docs-on-demand")
async def test_the_prompt_has_a_line_for_each_up_to_a_budget_then_the_ones_used_last(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        assert tools.toolset.lines() == []
        await register(tools.bench.catalogue)
        await tools.toolset.tools()
        assert tools.toolset.lines() == ["greet: Greet a city by its name."]
        for number in range(40):
            await register(tools.bench.catalogue, f"one_{number}", draft(description="word " * 30))
        await tools.toolset.tools()
        lines = tools.toolset.lines()
        assert sum(map(len, lines)) < 2_200
        assert lines[-1].endswith("more, which lookup_capability and tool_search find")
        assert all(len(line) < 200 for line in lines)


async def test_a_failure_tells_the_model_why_and_a_repeated_one_how_it_is_repaired(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        await register(tools.bench.catalogue)
        tools.bench.sandbox.answers = [
            RunResult(status=Status.ERROR, error="KeyError: 'x'", traceback="Traceback …\nKeyError: 'x'")
        ] * 3
        first = await tools.call("cap_greet", city="Ulm")
        assert first.is_error
        assert first.text == "greet failed (error): KeyError: 'x'\nTraceback …\nKeyError: 'x'"
        await tools.call("cap_greet", city="Ulm")
        assert "name greet, change = true" in (await tools.call("cap_greet", city="Ulm")).text
        assert (await tools.call("lookup_capability", query="greet")).data["failing_since"]


async def test_files_that_a_run_leaves_are_kept_where_the_file_tools_read_them(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        await register(tools.bench.catalogue)
        left = (
            Artifact(path="a/b.txt", content=b"x"),
            Artifact(path="a/chart.bin", content=b"GIF89a"),
            Artifact(path="../../evil", content=b"x"),
            Artifact(path="/e", content=b"x"),
        )
        tools.bench.sandbox.answers = [RunResult(status=Status.OK, result="Done.", artifacts=left)]
        assert [file.name for file in (await tools.call("cap_greet", city="Ulm")).files[:2]] == [
            "b.txt",
            "chart.bin",
        ]
        tools.bench.sandbox.answers, tools.roots = (
            [RunResult(status=Status.OK, result="Done.", artifacts=left)],
            (tmp_path,),
        )
        result = await tools.call("cap_greet", city="Ulm")
        kept = tmp_path / "spilled" / "c1-files" / "a" / "b.txt"
        assert result.text == f"Done.\nFiles that it made: {kept}, {kept.with_name('chart.bin')}"
        assert [(file.name, file.media_type) for file in result.files] == [("chart.bin", "image/gif")]
        assert kept.read_bytes() == b"x"
        assert not (tmp_path / "evil").exists()


async def test_what_comes_from_hosts_or_from_imported_code_is_from_outside(tmp_path: Path) -> None:
    async with open_tools(tmp_path) as tools:
        await register(tools.bench.catalogue, "online", draft(hosts=["a.example"]))
        await register(tools.bench.catalogue, "foreign", by=Provenance(made_by="import"))
        assert (await tools.call("cap_online", city="Ulm")).untrusted
        assert (await tools.call("cap_foreign", city="Ulm")).untrusted
        assert (await tools.call("read_docs", name="foreign")).untrusted
        await register(tools.bench.catalogue, "greet")
        for name, hosts, is_outside in (
            ("greets", ["capability:greet"], False),
            ("passes_on", ["capability:foreign"], True),
            ("asks", ["capability:greet", "model"], True),
            ("looks_up", ["capability:online", "a.example"], True),
        ):
            await register(tools.bench.catalogue, name, draft(hosts=hosts))
            assert (await tools.call(f"cap_{name}", city="Ulm")).untrusted is is_outside


@pytest.mark.parametrize(
    ("changes", "read_only", "destructive"),
    [
        ({}, True, False),
        ({"hosts": ["a.example"]}, False, False),
        ({"secrets": ["KEY"]}, False, True),
        ({"state": True}, False, False),
    ],
)
async def test_a_capability_with_a_secret_is_asked_about_and_one_without_is_not(
    tmp_path: Path, changes: dict[str, Any], read_only: bool, destructive: bool
) -> None:
    async with open_tools(tmp_path) as tools:
        await register(tools.bench.catalogue, spoilt=draft(**changes))
        notes = (await tools.toolset.tools())[-1].spec.annotations
        assert (notes.read_only, notes.destructive, notes.open_world) == (read_only, destructive, False)


async def test_vectors_are_made_once_and_again_for_a_changed_description(tmp_path: Path) -> None:
    class Counting(HashingEmbedder):
        documents = 0

        async def embed(self, texts: Any, role: Any) -> Any:
            self.documents += len(texts) if role == "document" else 0
            return await super().embed(texts, role)

    embedder = Counting()
    async with open_tools(tmp_path, embedder=embedder) as tools:
        await register(tools.bench.catalogue)
        await register(tools.bench.catalogue, "other", draft(description="Something else."))
        await tools.call("lookup_capability", query="greet")
    async with open_tools(tmp_path, embedder=embedder) as tools:
        await tools.call("lookup_capability", query="city")
        assert embedder.documents == 2
        await register(tools.bench.catalogue, "other", draft(description="Rent a bicycle."))
        assert (await tools.call("lookup_capability", query="bicycle")).data["name"] == "other"
        assert embedder.documents == 3


@requirement("capabilities:files")
async def test_whoever_has_no_folder_can_give_no_file(tmp_path: Path) -> None:
    (tmp_path / "spilled").mkdir()
    (tmp_path / "spilled" / "a.csv").write_text("somebody else's")
    schema = {"type": "object", "properties": {"city": {"type": "string", "format": "file"}}}
    async with open_tools(tmp_path) as tools:
        await register(tools.bench.catalogue, spoilt=draft(input_schema=schema))
        given = await tools.call("cap_greet", city="spilled/a.csv")
        assert (given.is_error, "named in a conversation" in given.text) == (True, True)
        assert tools.bench.sandbox.specs == []


async def test_a_copy_that_can_not_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "format": "file"}}}
    async with open_tools(tmp_path) as tools:
        await register(tools.bench.catalogue, spoilt=draft(input_schema=schema))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
        (tmp_path / "full").mkdir()
        name = "a" * 300
        outcome = await tools.bench.runner.run("greet", {"city": name}, read_file=lambda _: b"")
        assert (outcome.status, outcome.error.startswith("A copy in ")) == ("bad_input", True)
        assert list((tmp_path / "full").iterdir()) == []
