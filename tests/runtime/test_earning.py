"""Tools that are earned: noticed after three times, proposed once, built against the log, put away when they fail."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest
from anyio import to_thread

from satchel.builder.records import BuildMessage
from satchel.clock import ManualClock
from satchel.errors import BudgetExceeded
from satchel.messages import TextBlock, ToolResultBlock, Usage
from satchel.models.embedding import HashingEmbedder
from satchel.models.port import ModelRequest
from satchel.models.scripted import Call, Reply, ScriptedModel
from satchel.runtime import Satchel
from satchel.runtime.earning import Earning
from satchel.sandbox.detached import work_lock
from satchel.sessions import LogFile, SessionInfo, SessionStore
from satchel.sessions.view import SessionTurn
from tests.builder.world import register, tries, write
from tests.requirements import requirement
from tests.runtime.world import opened, settings_in

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"miles": {"type": "number"}}, "required": ["miles"]}
KM = """
def run(args: dict) -> str:
    if args["miles"] < 0:
        raise ValueError("miles are not below 0")
    return f"{args['miles'] * FACTOR:.2f} km"
"""
CASES = (
    '{"name": "none", "input": {"miles": 0}, "expect": {"equals": "0.00 km"}}\n'
    '{"name": "below 0", "input": {"miles": -1}, "expect": {"error": "below 0"}}\n'
)


class Scripted(Protocol):
    """What answers for a model."""

    scripted: ScriptedModel


class Model:
    """The model of the conversation, of the Builder, and of what is noticed.

    Attributes:
        noticed: What it was asked about in the background.
        wrong: The code that the Builder registers first.
        refused: What the Builder was told of its first registration.
        invents: Makes the result of what came out.
        runs: The commands that it runs for other messages.
        time: Which time each use is said to be, if it is not its own.
    """

    def __init__(self) -> None:
        self.noticed: list[str] = []
        self.task = ""
        self.wrong = KM.replace("FACTOR", "1.6")
        self.refused = ""
        self.invents: Callable[[str], str] = str
        self.time: float = 0
        self.counts = Usage(input_tokens=900, output_tokens=40)
        self.runs: dict[str, list[str]] = {}
        self.scripted = ScriptedModel(self._answer)

    def _answer(self, request: ModelRequest) -> Reply | str:
        newest = request.messages[-1]
        results = [block.content for block in newest.blocks if isinstance(block, ToolResultBlock)]
        if "had something done several times" in request.system:
            self.noticed.append(newest.text)
            return "It is one task.\n" + json.dumps(self._tool(newest.text))
        if "You are the Builder" in request.system:
            return self._build(request, results)
        if newest.text.startswith("Make yourself a tool"):
            asked = {"name": "miles_to_km", "description": "Convert miles to kilometres."}
            return Reply(calls=[Call(name="request_capability", input=asked, id="ask")])
        if results:
            return f"That is {results[0].splitlines()[-1].strip()}."
        if commands := self.runs.get(newest.text):
            about = len(request.messages)
            return Reply(calls=[Call(name="bash", input={"command": c}, id=f"{about}{c}") for c in commands])
        if found := re.search(r"Pour (\S+) gallons", newest.text):
            code = f"python3 -c 'litres = 3.785 * {found[1]}; print(litres)'"
            return Reply(calls=[Call(name="bash", input={"command": code}, id=f"g{len(request.messages)}")])
        if found := re.search(r"Convert (\S+) miles", newest.text):
            code = f"python3 -c 'print(round({found[1]} * 1.609344, 2), \"km\")'"
            if found[1] in ("3", "8") or "Kindly" in newest.text:
                code = code.replace("print(", f"{'kind' if 'Kindly' in newest.text else 'odd'}_km = print(")
            call = Call(name="bash", input={"command": code}, id=f"c{len(request.messages)}")
            return Reply(calls=[call], usage=self.counts)
        return "Well."

    def _tool(self, told: str) -> dict[str, Any]:
        times = re.findall(r"Convert (\S+) miles.*\n(?:.*\n)*?The answer: That is (.*)\.", told)
        uses = [
            {
                "time": self.time or number,
                "input": {"miles": float(miles)},
                "result": self.invents(km),
            }
            for number, (miles, km) in enumerate(times, start=1)
        ]
        about = {"name": "miles_to_km", "description": "Convert miles to kilometres."}
        return {"worth": True, **about, "input_schema": SCHEMA, "uses": uses}

    def _build(self, request: ModelRequest, results: list[str]) -> Reply:
        about = {"description": "Convert miles to kilometres.", "input_schema": SCHEMA}
        test = tries('from main import run; run({"miles": 1})')
        match sum(message.role == "assistant" for message in request.messages):
            case 0:
                self.task = request.messages[0].text
                wrong = write("main.py", self.wrong)
                return Reply(calls=[wrong, write("tests/cases.jsonl", CASES), test, register(**about)])
            case _:
                self.refused = results[-1]
                return Reply(
                    calls=[write("main.py", KM.replace("FACTOR", "1.609344")), test, register(**about)]
                )


def opens(folder: Path, model: Scripted, **more: Any) -> Any:
    settings = {"background__earned": "auto", "agent__mode": "bypass", "sandbox__allow_unsafe": True, **more}
    return opened(folder, model.scripted, **settings)


async def convert(satchel: Satchel, *miles: str, **more: Any) -> None:
    session = await satchel.session(**more)
    for each in miles:
        assert (await session.run_turn(f"Convert {each} miles to km.")).text.startswith("That is ")
    await session.aclose()


async def until(found: Callable[[], Awaitable[Any]]) -> Any:
    with anyio.fail_after(60):
        while not (got := await found()):  # noqa: ASYNC110 - the background does it
            await anyio.sleep(0.01)
    return got


async def proposals(satchel: Satchel) -> tuple[BuildMessage, ...]:
    assert satchel.builds is not None
    return await satchel.builds.queue.open_questions()


async def proposed(satchel: Satchel) -> BuildMessage:
    asked: BuildMessage = (await until(lambda: proposals(satchel)))[0]
    return asked


@requirement("capabilities:earned")
async def test_what_was_done_three_times_becomes_a_tool_that_gives_what_the_log_says(tmp_path: Path) -> None:
    model = Model()
    async with opens(tmp_path, model) as satchel:
        assert satchel.builds is not None
        assert satchel.capabilities is not None
        catalogue, builds = satchel.capabilities.catalogue, satchel.builds
        await convert(satchel, "12", "26.2")
        assert satchel.earning is not None
        await satchel.earning.look()
        assert model.noticed == []
        await convert(satchel, "5")
        asked = await proposed(satchel)
        assert "done 3 times, such as “Convert 26.2 miles to km.” and “Convert 5 miles to km.”" in asked.text
        assert re.search(r"would save about 59 tokens\b", asked.text)
        assert asked.options == ("yes", "no")
        # Nobody reads here, so nobody was told; the next one who does is told, once.
        assert await _notices(satchel) == []
        reader = await satchel.session(interactive=True)
        await reader.run_turn("Hello.")
        told = await until(lambda: _notices(satchel))
        assert "/answer miles_to_km yes" in told[0]
        # It waits, and nothing is built.
        assert (await builds.queue.get(asked.build_id)).status == "waiting"
        assert (await catalogue.get("miles_to_km")).status == "building"
        await convert(satchel, "7")
        await satchel.earning.look()
        assert (len(model.noticed), len(await proposals(satchel))) == (1, 1)
        await builds.answer(asked.build_id, asked.id, "yes")
        told = await until(lambda: _notices(satchel, 2))
        assert [text for text in told[1:] if "/answer" in text] == []
        assert told[-1].startswith("miles_to_km is ready (version 1, 5 cases passed)")
        await reader.aclose()
        assert '"input": {"miles": 26.2}, "expect": {"contains": "42.16 km"}' in model.task
        assert "as in the log" in model.refused, "a version that gives something else is not registered"
        tool = await catalogue.get("miles_to_km")
        [version] = await catalogue.versions(tool.id)
        assert (tool.status, len(version.checks)) == ("active", 5)
        assert all(check["passed"] for check in version.checks)
        for _ in range(2):
            assert (await satchel.capabilities.runner.run(tool.id, {"miles": 10})).result == "16.09 km"
        used = await catalogue.get(tool.id)
        before_s, after_s = asked.payload["saves"][2], (used.reliability.median_ms or 0) / 1000
        saved_s = round(max(0.0, before_s - after_s) * 2, 1)
        assert before_s > 0
        assert await builds.saved(used) == {"calls": 0, "tokens": 118, "seconds": saved_s}
        kinds = (await satchel.home.background_day(satchel.clock.now().date().isoformat())).kinds
        assert kinds["earn"][0] == 1
        # What repairs it has to pass them, too.
        model.refused = ""
        again = await builds.repair("miles_to_km")
        async for _ in builds.follow(again.build_id):
            pass
        assert "as in the log" in model.refused
        assert len((await catalogue.versions(tool.id))[-1].checks) == 5
        # What the version before has saved is not forgotten.
        assert await builds.saved(await catalogue.get(tool.id)) == await builds.saved(used)
        for _ in range(3):
            await catalogue.record_run(tool.id, version=2, status="error", wall_ms=1, peak_mb=1, backend="x")
        await looked(satchel)
        tool = await catalogue.get(tool.id)
        why = "because version 2 has failed three times in a row."
        assert (tool.version, tool.reasons) == (1, (f"miles_to_km is at version 1 again, {why}",))


@requirement("capabilities:earned")
async def test_what_would_be_saved_counts_calls_and_results_where_the_endpoint_counts_no_calls(
    tmp_path: Path,
) -> None:
    model = Model()
    model.counts = Usage(input_tokens=900)
    async with opens(tmp_path, model) as satchel:
        await convert(satchel, "12", "26.2", "5")
        # The snippet was written once and read once, with its result.
        assert re.search(r"would save about 42 tokens\b", (await proposed(satchel)).text)


async def _notices(satchel: Satchel, least: int = 0) -> list[str]:
    texts = [notice.text for notice in satchel.notices if notice.part == "capabilities"]
    return texts if len(texts) >= least else []


@requirement("capabilities:earned", "builder:goes-on")
async def test_who_asks_for_what_was_proposed_has_said_yes_and_hears_of_its_end(tmp_path: Path) -> None:
    model = Model()
    async with opens(tmp_path, model) as satchel:
        assert satchel.capabilities is not None
        await convert(satchel, "12", "26.2", "5")
        await proposed(satchel)
        session = await satchel.session(interactive=True)
        await session.run_turn("Make yourself a tool for that.")

        async def told() -> list[str]:
            texts = [b.text for m in session.messages for b in m.blocks if isinstance(b, TextBlock)]
            return [text for text in texts if "miles_to_km is ready" in text]

        await until(told)
        assert (await satchel.capabilities.catalogue.get("miles_to_km")).status == "active"
        assert [text for text in await _notices(satchel) if "/answer" not in text] == []


@requirement("capabilities:earned")
async def test_a_number_of_the_log_is_not_given_again_by_a_part_of_another_one(tmp_path: Path) -> None:
    model = Model()
    model.invents = lambda km: km.split()[0]
    model.wrong = KM.replace("FACTOR:.2f} km", "1.6:.2f} km on 2026-{args['miles'] * 1.609344:.2f}")
    async with opens(tmp_path, model) as satchel:
        assert satchel.builds is not None
        assert satchel.capabilities is not None
        await convert(satchel, "12", "26.2", "5")
        asked = await proposed(satchel)
        await satchel.builds.answer(asked.build_id, asked.id, "yes")
        async for _ in satchel.builds.follow(asked.build_id):
            pass
        assert model.refused.count("as in the log") == 3
        assert (await satchel.capabilities.catalogue.get("miles_to_km")).status == "active"


@requirement("capabilities:earned:asked-once")
async def test_a_no_ends_it_for_good_and_what_the_log_does_not_bear_out_is_not_proposed(
    tmp_path: Path,
) -> None:
    model = Model()
    async with opens(tmp_path, model) as satchel:
        assert satchel.builds is not None
        assert satchel.capabilities is not None
        await convert(satchel, "1", "2", "3")
        asked = await proposed(satchel)
        await satchel.builds.answer(asked.build_id, asked.id, "no")
        async for _ in satchel.builds.follow(asked.build_id):
            pass
        assert await satchel.capabilities.catalogue.list() == ()
        assert model.task == ""
    async with opens(tmp_path, model) as satchel:
        # Nor is what has another key in common with two of them, or another shape with the same name.
        await convert(satchel, "4", "5", "8")
        await until(lambda: _captured(satchel, 6))
        await looked(satchel)
        assert (len(model.noticed), await proposals(satchel)) == (1, ())
        session = await satchel.session()
        for miles in ("4", "5", "6"):
            await session.run_turn(f"Kindly Convert {miles} miles into km.")
        await session.aclose()
        await until(lambda: _noticed(model, 2))
        await looked(satchel)
        assert await proposals(satchel) == ()


@requirement("capabilities:earned:asked-once")
@pytest.mark.parametrize(
    ("before", "job"),
    [
        (
            {f"Where is {city}": [f"python3 -c 'print(\"{city}\")'"] for city in ("Ulm", "Bonn", "Rome")},
            {
                f"slugify {word} please": [f'python3 -c \'print("{word}".lower().replace("o", "-"))\'']
                for word in ("Oslo", "London", "Porto")
            },
        ),
        (
            {"What weather is it": ["echo a", "echo b"]},
            {f"tidy up the report for {name}": [f"echo {name}", "echo b"] for name in ("ann", "bob", "carl")},
        ),
    ],
)
async def test_what_only_looks_alike_is_no_group_and_hides_none(
    tmp_path: Path, before: dict[str, list[str]], job: dict[str, list[str]]
) -> None:
    model = Model()
    model.runs = {**before, **job}
    async with opens(tmp_path, model) as satchel:
        session = await satchel.session()
        for message in before:
            await session.run_turn(message)
        await until(lambda: _captured(satchel, len(before)))
        assert satchel.earning is not None
        await satchel.earning.look()
        assert model.noticed == []
        for message in job:
            await session.run_turn(message)
        await session.aclose()
        [told] = await until(lambda: _noticed(model))
        assert re.findall("The user: (.*)", told) == list(job)


async def looked(satchel: Satchel) -> None:
    """Look, and wait for a look that was under way."""
    assert satchel.earning is not None
    for _ in range(2):
        await satchel.earning.look()
        lock = await until(lambda: to_thread.run_sync(work_lock, satchel.settings.home, "earning"))
        lock.release()


async def _captured(satchel: Satchel, turns: int) -> bool:
    infos = await satchel.sessions.listed()
    found: list[SessionTurn] = []
    for info in infos:
        await satchel.sessions.read_turns(info.id, found.append)
    return sum(bool(turn.captured) for turn in found) >= turns


@requirement("capabilities:earned:asked-once")
@pytest.mark.parametrize(
    ("settings", "turns", "asked", "invents"),
    [
        # What the model makes up is not proposed: nothing, a part of a word, what is the same for any input.
        ({}, {}, 1, lambda km: "7"),
        ({}, {}, 1, lambda km: km[:-1]),
        ({}, {}, 1, lambda km: "km"),
        ({}, {"private": True}, 0, str),
        ({"background__earned": "off"}, {}, 0, str),
        ({"background__models": "off"}, {}, 0, str),
        ({"background__day_tokens": 0}, {}, 0, str),
    ],
)
async def test_nothing_is_proposed_that_is_invented_private_switched_off_or_beyond_the_budget(
    tmp_path: Path, settings: dict[str, Any], turns: dict[str, Any], asked: int, invents: Callable[[str], str]
) -> None:
    model = Model()
    model.invents = invents
    async with opens(tmp_path, model, **settings) as satchel:
        await convert(satchel, "1", "2", "3", **turns)
        if asked:
            await until(lambda: _noticed(model))
            await looked(satchel)
        else:
            assert satchel.earning is not None
            with suppress(BudgetExceeded):
                await satchel.earning.look()
        assert (len(model.noticed), await proposals(satchel)) == (asked, ())


@requirement("capabilities:earned")
async def test_a_call_that_failed_and_was_made_again_hides_no_time(tmp_path: Path) -> None:
    model = Model()
    for miles in ("12", "26.2", "5"):
        good = f"python3 -c 'print(round({miles} * 1.609344, 2), \"km\")'"
        model.runs[f"Convert {miles} miles to km."] = [good, "exit 3"]
    async with opens(tmp_path, model) as satchel:
        await convert(satchel, "12", "26.2", "5")
        assert (await proposed(satchel)).name == "miles_to_km"


@requirement("capabilities:earned")
async def test_a_look_asks_once_which_logs_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    states = SessionStore.states

    async def counted(store: SessionStore, infos: Sequence[SessionInfo]) -> Sequence[LogFile | None]:
        asked.append(len(infos))
        return await states(store, infos)

    async def has_asked_for_all() -> bool:
        return 3 in asked

    monkeypatch.setattr(SessionStore, "states", counted)
    async with opens(tmp_path, Model()) as satchel:
        for _ in range(3):
            session = await satchel.session()
            await session.run_turn("Hello.")
            await session.aclose()
        await until(has_asked_for_all)


@requirement("capabilities:earned")
async def test_what_fails_once_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, demote, fails = Model(), Earning._demote, [True]

    async def breaks(earning: Earning) -> None:
        if fails:
            fails.clear()
            raise RuntimeError("Once.")
        await demote(earning)

    monkeypatch.setattr(Earning, "_demote", breaks)
    model.time = math.inf
    async with opens(tmp_path, model) as satchel:
        await convert(satchel, "1", "2", "3")
        assert len(await until(lambda: _noticed(model))) == 1
        assert not fails
        gone = await satchel.session()
        await gone.run_turn("Pour 1 gallons into the pot.")
        await gone.aclose()
        Path((await satchel.sessions.info(gone.id)).path).unlink()
        session = await satchel.session()
        for gallons in ("2", "3", "4"):
            await session.run_turn(f"Pour {gallons} gallons into the pot.")
        await session.aclose()
        assert len(await until(lambda: _noticed(model, 2))) == 2


@requirement("capabilities:earned")
async def test_what_a_process_that_ends_did_not_hear_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, never = Model(), anyio.Event()

    async def silent(*_: object, **__: object) -> None:
        model.noticed.append("")
        await never.wait()

    with monkeypatch.context() as patched:
        patched.setattr("satchel.runtime.earning.complete", silent)
        async with opens(tmp_path, model) as satchel:
            await convert(satchel, "12", "26.2", "5")
            await until(lambda: _noticed(model))
    async with opens(tmp_path, model) as satchel:
        assert (await proposed(satchel)).name == "miles_to_km"


async def _noticed(model: Model, least: int = 1) -> list[str]:
    return model.noticed if len(model.noticed) >= least else []


@requirement("capabilities:earned:forgotten")
async def test_a_proposal_goes_with_what_it_came_of(tmp_path: Path) -> None:
    model = Model()
    async with opens(tmp_path, model) as satchel:
        assert satchel.builds is not None
        assert satchel.capabilities is not None
        assert satchel.memory is not None
        await convert(satchel, "26.2", "13.1", "1234567.5")
        asked = await proposed(satchel)
        memories = await satchel.memory.list()
        await satchel.forget([one.id for one in memories if "26.2" in one.content])
        assert await proposals(satchel) == ()
        build = await satchel.builds.queue.get(asked.build_id)
        messages = await satchel.builds.queue.messages(asked.build_id)
        assert "26.2" not in str((build, messages))
        await satchel.earning.look()
        assert await satchel.capabilities.catalogue.list() == ()


@requirement("capabilities:earned:forgotten")
@pytest.mark.parametrize("is_edited", [False, True])
async def test_an_earned_tool_and_its_builds_lose_the_inputs_that_are_forgotten(
    tmp_path: Path, is_edited: bool
) -> None:
    async with opens(tmp_path, Model()) as satchel:
        assert satchel.builds is not None
        assert satchel.capabilities is not None
        assert satchel.memory is not None
        await convert(satchel, "26.2", "12", "5")
        asked = await proposed(satchel)
        await satchel.builds.answer(asked.build_id, asked.id, "yes")
        async for _ in satchel.builds.follow(asked.build_id):
            pass
        again = await satchel.builds.repair("miles_to_km", wish="Say it shorter.")
        async for _ in satchel.builds.follow(again.build_id):
            pass
        catalogue = satchel.capabilities.catalogue
        tool = await catalogue.get("miles_to_km")
        assert tool.version == 2
        if is_edited:
            (tool.path / "v2" / "main.py").write_text(KM.replace("FACTOR", "1.61"))
        held = [path for path in tmp_path.rglob("*") if path.is_file() and b"26.2" in path.read_bytes()]
        assert "cases.jsonl" in {path.name for path in held}
        memories = await satchel.memory.list()
        await satchel.forget([one.id for one in memories if "26.2" in one.content])
        left = [
            p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".db" and b"26.2" in p.read_bytes()
        ]
        assert [path for path in left if "builds" in path.parts or "capabilities" in path.parts] == []
        assert [path for path in left if path.name.count("build-")] == []
        for version in await catalogue.versions(tool.id):
            package = await catalogue.registered(tool.id, version.number)
            assert (
                {case.name for case in package.cases}
                == {check["name"] for check in version.checks}
                == {"none", "below 0"}
            )
        edited = await catalogue.edited(tool.id, 2)
        assert ("main.py" in edited) is is_edited
        factor = "16.10 km" if is_edited else "16.09 km"
        assert (await satchel.capabilities.runner.run(tool.id, {"miles": 10})).result == factor
        assert (await satchel.capabilities.registrar.test(tool.id)).passed


@requirement("capabilities:earned:demoted")
async def test_an_earned_tool_that_fails_or_that_nobody_uses_is_put_away_with_the_reason(
    tmp_path: Path,
) -> None:
    model, clock = Model(), ManualClock()
    settings = settings_in(
        tmp_path, background__earned="auto", agent__mode="bypass", sandbox__allow_unsafe=True
    )
    async with Satchel.open(
        settings, model=model.scripted, embedder=HashingEmbedder(), clock=clock
    ) as satchel:
        assert satchel.builds is not None
        assert satchel.capabilities is not None
        catalogue = satchel.capabilities.catalogue
        await convert(satchel, "1", "2", "3")
        asked = await proposed(satchel)
        await satchel.builds.answer(asked.build_id, asked.id, "yes")
        async for _ in satchel.builds.follow(asked.build_id):
            pass
        reader = await satchel.session(interactive=True)
        await reader.run_turn("Hello.")
        clock.advance(10)
        for _ in range(3):
            await catalogue.record_run(
                "miles_to_km", version=1, status="error", wall_ms=1, peak_mb=1, backend="x"
            )
        await looked(satchel)
        tool = await catalogue.get("miles_to_km")
        assert (tool.status, "failed three times in a row" in tool.reasons[0]) == ("disabled", True)
        why = "miles_to_km is disabled, because it has failed three times in a row."
        how = "To use it again: /capability enable miles_to_km"

        async def put_away() -> list[str]:
            return [text for text in await _notices(satchel) if "is disabled" in text]

        assert await until(put_away) == [f"{why} {how}"]
        # What the user enables again stays, until nobody has used it for thirty days.
        clock.advance(10)
        await catalogue.enable(tool.id)
        await looked(satchel)
        tool = await catalogue.get(tool.id)
        assert (tool.status, tool.reasons) == ("active", ())
        clock.advance(timedelta(days=31).total_seconds())
        await looked(satchel)
        tool = await catalogue.get(tool.id)
        assert (tool.status, "not been used for 30 days" in tool.reasons[0]) == ("disabled", True)
