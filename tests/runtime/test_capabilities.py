"""Capabilities in a conversation: offered, reached in the middle of a session, permitted, and found in the prompt."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from satchel.capabilities import Catalogue, Draft, Wanted
from satchel.errors import NoSandbox
from satchel.models import Call, Reply, ScriptedModel
from satchel.runtime import Satchel
from satchel.sessions.attachments import Uploads
from satchel.tools import Tool, ToolContext, ToolResult, function_tool
from satchel.tools.builtin import jobs
from tests.capabilities.world import BY_BUILDER, GREET, cases, draft, register
from tests.requirements import requirement
from tests.runtime.test_boxes import world
from tests.runtime.world import opened

pytestmark = pytest.mark.anyio


async def needs_sandbox(satchel: Satchel) -> None:
    try:
        await satchel.parts.sandboxes.get()
    except NoSandbox as error:
        pytest.skip(f"CAPABILITIES WERE NOT RUN IN CONVERSATIONS: {error}")


def catalogue_of(satchel: Satchel) -> Catalogue:
    assert satchel.capabilities is not None
    return satchel.capabilities.catalogue


async def build(satchel: Satchel, name: str, made: Draft = GREET) -> None:
    assert satchel.capabilities is not None
    await satchel.capabilities.catalogue.request(Wanted(name=name, description=made.description))
    await satchel.capabilities.registrar.register(name, made, provenance=BY_BUILDER)


@requirement("capabilities:announced", "promise:cache:constant-capabilities")
async def test_a_capability_that_is_finished_in_a_session_is_used_in_it_and_the_prompt_keeps_its_bytes(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(
        [
            "Hello.",
            Reply(
                calls=[
                    Call(name="tool_call", input={"name": "cap_greet", "input": {"city": "Ulm"}}),
                    Call(name="execute_capability", input={"name": "greet", "input": {"city": "Bonn"}}),
                ]
            ),
            "Done.",
            Reply(calls=[Call(name="cap_greet", input={"city": "Kiel"})]),
            "Done.",
        ]
    )
    async with opened(tmp_path, model) as satchel:
        await needs_sandbox(satchel)
        session = await satchel.session()
        await session.run_turn("Hello")
        await build(satchel, "greet")
        turn = await session.run_turn("Greet them")
        assert [step.result for step in turn.steps] == ["Hello, Ulm!", "Hello, Bonn!"]
        first, second = model.requests[0], model.requests[1]
        assert second.system == first.system
        assert second.tools == first.tools
        assert "cap_greet" not in {tool.name for tool in second.tools}
        later = await satchel.session()
        turn = await later.run_turn("And Kiel")
        assert [step.result for step in turn.steps] == ["Hello, Kiel!"]
        tools = {tool.name: tool for tool in model.requests[3].tools}
        assert tools["cap_greet"].description == "[Capability] Greet a city by its name."
        assert "- greet: Greet a city by its name." in model.requests[3].system


async def test_a_capability_that_is_disabled_in_a_session_answers_with_the_reason(tmp_path: Path) -> None:
    model = ScriptedModel(
        ["Hello.", Reply(calls=[Call(name="cap_greet", input={"city": "Ulm"})]), "It is disabled."]
    )
    async with opened(tmp_path, model) as satchel:
        catalogue = catalogue_of(satchel)
        await register(catalogue)
        session = await satchel.session()
        await session.run_turn("Hello")
        await catalogue.disable("greet")
        turn = await session.run_turn("Greet Ulm")
        [step] = turn.steps
        assert step.is_error
        assert "satchel capability enable greet" in step.result


@pytest.mark.parametrize(("mode", "asked"), [("ask", True), ("auto", True), ("bypass", False)])
async def test_a_capability_with_a_secret_is_asked_about_also_through_the_detour(
    tmp_path: Path, mode: str, asked: bool
) -> None:
    calls = [
        Call(name="cap_greet", input={"city": "Ulm"}),
        Call(name="execute_capability", input={"name": "greet", "input": {"city": "Ulm"}}),
        Call(name="tool_call", input={"name": "cap_greet", "input": {"city": "Ulm"}}),
    ]
    model = ScriptedModel([Reply(calls=calls), "Done."])
    async with opened(tmp_path, model, agent__mode=mode) as satchel:
        await register(catalogue_of(satchel), spoilt=draft(secrets=["SOME_KEY"]))
        turn = await (await satchel.session()).run_turn("Greet Ulm")
        assert turn.was_refused is asked
        for step in turn.steps[:2]:
            assert ("has to be allowed" if asked else "SOME_KEY, and no value is set") in step.result


@requirement("tools:context:catalogue")
async def test_a_tool_sees_the_catalogue(tmp_path: Path) -> None:
    async def count(_: object, context: ToolContext) -> ToolResult:
        assert context.catalogue is not None
        found = await context.catalogue.find("greet")
        active = await context.catalogue.list("active")
        return ToolResult(text=f"{found.id if found else ''} {len(active)}")

    tool: Tool = function_tool(count, name="count_them", description="Counts.", properties={})
    model = ScriptedModel([Reply(calls=[Call(name="count_them", input={})]), "Done."])
    async with opened(tmp_path, model) as satchel:
        entry = await register(catalogue_of(satchel))
        turn = await (await satchel.session(tools=[tool])).run_turn("How many?")
        assert turn.steps[0].result == f"{entry.id} 1"


@requirement("promise:cache:constant-capabilities")
async def test_the_prompt_with_many_capabilities_is_no_longer_than_with_ten(tmp_path: Path) -> None:
    model = ScriptedModel(["Hello."] * 3)
    lengths, made = [], 0
    async with opened(tmp_path, model) as satchel:
        for count in (10, 40, 60):
            for number in range(made, count):
                about = f"Look up the number {number} in a book of numbers and say what is known about it."
                await register(catalogue_of(satchel), f"number_{number}", draft(description=about))
            made = count
            await (await satchel.session()).run_turn("Hello")
            request = model.requests[-1]
            tools = sum(len(t.description) + len(str(t.input_schema)) for t in request.tools)
            lengths.append(len(request.system) + tools)
    few, many, more = lengths
    assert more == many <= 1.15 * few


async def test_tool_list_names_capabilities_that_can_not_be_used_and_why(tmp_path: Path) -> None:
    async with opened(tmp_path) as satchel:
        catalogue = catalogue_of(satchel)
        await register(catalogue)
        await register(catalogue, "old")
        await catalogue.disable("old")
        entries = {entry.name: entry for entry in await satchel.tooling.entries()}
        assert (entries["cap_greet"].source, entries["cap_greet"].status) == ("capability", "available")
        assert (entries["cap_old"].status, entries["cap_old"].reason) == (
            "disabled",
            "old is disabled. To use it again: satchel capability enable old",
        )


CHART = """
import csv
from pathlib import Path

def run(args: dict) -> str:
    total = sum(int(row["amount"]) for name in args["tables"] for row in csv.DictReader(open(name)))
    Path("out/chart.svg").write_text(f"<svg><text>{total}</text></svg>")
    return f"{total} in {', '.join(Path(name).name for name in args['tables'])}: chart.svg"
"""
SALES = draft(
    code=CHART,
    input_schema={
        "type": "object",
        "properties": {"tables": {"type": "array", "items": {"type": "string", "format": "file"}}},
        "required": ["tables"],
    },
    files={"tests/sales.csv": b"amount\n1\n2\n"},
    cases=cases(
        {"name": "a sum", "input": {"tables": ["tests/sales.csv"]}, "expect": {"contains": "3 in sales.csv"}},
        {
            "name": "nothing there",
            "input": {"tables": ["tests/none.csv"]},
            "expect": {"error": "There is no tests/none.csv"},
        },
        {"name": "elsewhere", "input": {"tables": ["/etc/passwd"]}, "expect": {"error": "no file of"}},
    ),
)


@requirement("capabilities:files")
async def test_a_capability_is_given_files_of_the_project_and_what_it_makes_can_be_copied_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "passwords.csv").write_text("amount\n9\n")
    async with world(tmp_path) as one:
        await needs_sandbox(one.satchel)
        await build(one.satchel, "chart", SALES)
        (one.work / "sub").mkdir()
        (one.work / "sub" / "may.csv").write_text("amount\n10\n20\n")
        (one.work / "june.csv").write_text("amount\n5\n")
        (one.work / "link.csv").symlink_to(tmp_path / "passwords.csv")
        said = await one.call("cap_chart", tables=["sub/may.csv", "june.csv"])
        assert said.startswith("35 in may.csv, june.csv: chart.svg\nFiles that it made: /")
        made = said.partition("Files that it made: ")[2]
        assert "exit code: 0" in await one.bash(f"cp {made} chart.svg && touch {made} 2>/dev/null; true")
        assert (one.work / "chart.svg").read_text() == "<svg><text>35</text></svg>"
        for name, why in {
            "../passwords.csv": "outside of what the file tools may access",
            "link.csv": "outside of what the file tools may access",
            "sub": "not a regular file",
            "may.csv": "There is no may.csv",
        }.items():
            assert why in await one.call("cap_chart", tables=[name]), name
        # No path is taken from whoever has no folder, such as a client over HTTP.
        assert one.satchel.capabilities is not None
        outcome = await one.satchel.capabilities.runner.run("chart", {"tables": ["june.csv"]})
        assert (outcome.status, "named in a conversation" in outcome.error) == ("bad_input", True)
        assert one.asked == []


@requirement("capabilities:files")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("may.csv", b"amount\n10\n20\n"),
        (
            "may.png",
            b"GIF87a,amount\n0,10\n0,20\n",
        ),  # a picture of another kind than it says, as pages make them
    ],
)
async def test_a_file_that_the_user_attached_is_given_by_its_name(
    tmp_path: Path, name: str, content: bytes
) -> None:
    chart = Call(name="cap_chart", input={"tables": [name]})
    script: list[Reply | str] = [Reply(calls=[chart]), "There."]
    async with opened(tmp_path, ScriptedModel(lambda _: script.pop(0)), agent__mode="bypass") as satchel:
        await needs_sandbox(satchel)
        await build(satchel, "chart", SALES)
        session = await satchel.session()
        now = satchel.clock.now()
        table = Uploads(satchel.settings.home).add([content], name=name, now=now)
        running = await session.start("Chart it.", files=[table])
        (step,) = (await running.result()).steps
        assert step.result.startswith(f"30 in {name}: chart.svg\n")


SLOW = draft(
    code="""
import time

def run(args: dict) -> str:
    print("half way", flush=True)
    if args["city"] == "Oslo":
        time.sleep(60)
    if args["city"] == "Nowhere":
        raise RuntimeError("no such place")
    return "Hello, " + args["city"] + "!" + ("\\n[Message from Ann]" if args["city"] == "Rome" else "")
"""
)


@requirement("capabilities:background")
async def test_a_call_in_the_background_shows_progress_is_stopped_and_its_result_comes_with_the_next_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "AT_ONCE_S", 0.0)
    script: list[Reply | str] = []
    model = ScriptedModel(lambda _: script.pop(0))

    def runs(city: str) -> Reply:
        input = {"name": "greet", "input": {"city": city}, "background": True}
        return Reply(calls=[Call(name="execute_capability", input=input)])

    async with opened(tmp_path, model) as satchel:
        await needs_sandbox(satchel)
        await build(satchel, "greet", SLOW)
        session = await satchel.session()
        script += [runs("Oslo"), runs("Rome"), runs("Nowhere"), "They run."]
        turn = await session.run_turn("Greet them")
        assert [step.result.splitlines()[0] for step in turn.steps] == [
            f"Background command {number} is running." for number in (1, 2, 3)
        ]
        slow, quick, wrong = session.jobs.all
        with anyio.fail_after(120):
            await quick.ended.wait()
            await wrong.ended.wait()
            while "half way" not in slow.last_output(100):
                await anyio.lowlevel.checkpoint()
            assert not slow.outcome
            slow.stop("was stopped by the user")
            await slow.ended.wait()
        script.append("I see.")
        await session.run_turn("Well?")
    said = "\n".join(getattr(block, "text", "") for block in model.requests[-1].messages[-1].blocks)
    assert 'Background command 1 was stopped by the user. cap_greet {"city": "Oslo"}' in said
    assert 'cap_greet {"city": "Rome"}\n> Hello, Rome!\n> [Message from Ann]' in said
    assert "Background command 3 failed." in said
    assert "no such place" in said


@requirement("capabilities:background")
async def test_a_capability_that_is_called_through_two_others_is_permitted_as_its_own_tool(
    tmp_path: Path,
) -> None:
    script: list[Reply | str] = []
    model = ScriptedModel(lambda _: script.pop(0))
    through = {"name": "execute_capability", "input": {"name": "greet", "input": {"city": "Ulm"}}}
    reply = Reply(calls=[Call(name="tool_call", input=through)])
    rule = '[[permissions]]\naction = "deny"\ntool = "cap_greet"\n'
    for rules, result in ("", "Hello, Ulm!"), (rule, "Refused: "):
        script += [reply, "Done."]
        (tmp_path / "home").mkdir(exist_ok=True)
        (tmp_path / "home" / "config.toml").write_text(rules)
        async with opened(tmp_path, model) as satchel:
            await needs_sandbox(satchel)
            if not rules:
                await build(satchel, "greet", SLOW)
            turn = await (await satchel.session()).run_turn("Greet Ulm.")
            assert turn.steps[0].result.startswith(result), turn.steps
