"""`satchel capability`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from satchel.capabilities.archive import pack
from satchel.capabilities.package import Draft, make_package
from satchel.capabilities.records import Provenance
from satchel.clock import ManualClock
from satchel.config import load
from satchel.errors import NoSandbox
from satchel.sandbox.choice import open_sandbox
from tests.capabilities.world import GREET, cases, draft
from tests.cli.conftest import Run
from tests.requirements import requirement

NOW = ManualClock().now()


@pytest.fixture(autouse=True, scope="module")
def needs_sandbox(tmp_path_factory: pytest.TempPathFactory) -> None:
    import anyio  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("probe")

    async def probe() -> None:
        sandbox = await open_sandbox(load({"HOME": str(folder), "SATCHEL_HOME": str(folder)}, cwd=folder))
        await sandbox.aclose()

    try:
        anyio.run(probe)
    except NoSandbox as error:
        pytest.skip(f"THE COMMANDS FOR CAPABILITIES WERE NOT TESTED: {error}")


def archive(folder: Path, name: str, made: Draft = GREET, version: int = 1) -> Path:
    package = make_package(name, version, made, provenance=Provenance(), created_at=NOW, now=NOW)
    path = folder / f"{name}-{version}.zip"
    path.write_bytes(pack(package.files, folder=name))
    return path


@requirement("cli:capability")
def test_from_import_to_run_to_removal(run: Run, tmp_path: Path) -> None:
    assert run("capability", "list", "--json").json == []
    imported = run("capability", "import", str(archive(tmp_path, "greet")), "--yes", "--json").json
    assert (imported["status"], imported["active"], imported["version"]) == ("active", True, 1)
    ran = run("capability", "run", "greet", '{"city": "Ulm"}', "--json")
    assert ran.code == 0
    assert (
        ran.json.items()
        >= {"status": "ok", "result": "Hello, Ulm!", "error": "", "stdout": "", "stderr": ""}.items()
    )
    assert ran.json["wall_ms"] > 0
    assert ran.json["backend"]
    assert run("capability", "run", "greet", '{"city": "Ulm"}').out == "Hello, Ulm!\n"
    [entry] = run("capability", "list", "--json").json
    assert (entry["name"], entry["reliability"]["runs"]) == ("greet", 2)
    assert run("capability", "test", "greet", "--json").json["passed"] is True
    shown = run("capability", "show", "greet", "--json").json
    assert (shown["files"][0], shown["edited"], shown["may"]) == ("SKILL.md", [], [])
    assert "def run" in run("capability", "show", "greet", "--source").out
    exported = run("capability", "export", "greet", str(tmp_path / "out")).out.strip()
    assert Path(exported) == tmp_path / "out" / "greet"
    assert run("capability", "disable", "greet").out == "greet  disabled, version 1\n"
    assert run("capability", "run", "greet", '{"city": "Ulm"}').code == 4
    assert run("capability", "enable", "greet").code == 0
    refused = run("capability", "remove", "greet")
    assert (refused.code, "--yes" in refused.err) == (4, True)
    assert run("capability", "remove", "greet", "--yes", "--json").json["removed"] == "greet"
    assert run("capability", "run", "greet", "{}").code == 3


def test_versions_are_compared_activated_and_rolled_back(run: Run, tmp_path: Path) -> None:
    louder = draft(code=GREET.code.replace("!", "!!!"), cases=GREET.cases.replace("!", "!!!"))
    run("capability", "import", str(archive(tmp_path, "greet")), "--yes")
    second = run("capability", "import", str(archive(tmp_path, "greet", louder)), "--yes")
    assert (second.code, "satchel capability activate greet 2" in second.err) == (0, True)
    listed = run("capability", "versions", "greet", "--json").json
    assert [(v["version"], v["status"], v["active"]) for v in listed] == [
        (1, "ready", True),
        (2, "ready", False),
    ]
    assert run("capability", "activate", "greet", "2", "--json").json["version"] == 2
    assert run("capability", "run", "greet", '{"city": "Ulm"}').out == "Hello, Ulm!!!\n"
    diff = run("capability", "versions", "greet", "--diff", "1", "2").out
    assert (
        '-    return "Hello, " + args["city"] + "!"\n+    return "Hello, " + args["city"] + "!!!"\n' in diff
    )
    assert run("capability", "rollback", "greet", "--json").json["version"] == 1
    assert run("capability", "rollback", "greet").code == 3
    assert run("capability", "activate", "greet", "9").code == 3


@requirement("capabilities:approval")
def test_without_a_terminal_nothing_is_approved_and_nothing_of_an_import_runs(
    run: Run, tmp_path: Path
) -> None:
    place = archive(tmp_path, "online", draft(hosts=["api.example.org"]))
    imported = run("capability", "import", str(place))
    assert "online may connect to api.example.org." in imported.err
    assert run("capability", "list", "--json").json[0]["status"] == "proposed"
    refused = run("capability", "approve", "online")
    assert (refused.code, "satchel capability approve online --yes" in refused.err) == (4, True)
    assert run("capability", "run", "online", '{"city": "Ulm"}').code == 4
    approved = run("capability", "approve", "online", "--yes", "--json").json
    assert (approved["status"], approved["reasons"], approved["hosts"]) == (
        "active",
        [],
        ["api.example.org:443"],
    )
    assert run("capability", "approve", "online", "--yes").code == 3


def test_edits_are_shown_tested_and_kept(run: Run, tmp_path: Path) -> None:
    run("capability", "import", str(archive(tmp_path, "greet")), "--yes")
    path = Path(run("capability", "show", "greet", "--json").json["versions"][0]["path"])
    (path / "main.py").write_text(GREET.code.replace("Hello", "Servus"))
    assert '-    return "Hello, "' in run("capability", "show", "greet", "--edits").out
    ran = run("capability", "run", "greet", '{"city": "Ulm"}', "--json").json
    assert (ran["result"], ran["edited"]) == ("Servus, Ulm!", True)
    failed = run("capability", "test", "greet")
    assert (failed.code, "FAILED   Austin" in failed.out) == (1, True)
    (path / "tests" / "cases.jsonl").write_text(GREET.cases.replace("Hello", "Servus"))
    assert run("capability", "test", "greet", "--json").json["adopted"] == 2
    assert run("capability", "list", "--json").json[0]["version"] == 2


def test_a_failure_says_why_and_ends_with_1(run: Run, tmp_path: Path) -> None:
    code = 'def run(args: dict) -> str:\n    print("looking")\n    if args["city"] == "x":\n        raise ValueError("no such city")\n    return "Hello, " + args["city"] + "!" * (1 // len(args["city"]) + 1)\n'
    made = draft(
        code=code,
        cases=cases(
            {"input": {"city": "Ulm"}, "expect": {"equals": "Hello, Ulm!"}},
            {"input": {}, "expect": {"error": "city"}},
        ),
    )
    run("capability", "import", str(archive(tmp_path, "greet", made)), "--yes")
    crashed = run("capability", "run", "greet", '{"city": ""}')
    assert (crashed.code, "ZeroDivisionError" in crashed.err, "looking" in crashed.err) == (1, True, True)
    refused = run("capability", "run", "greet", '{"city": "x"}', "--json")
    assert (refused.code, refused.json["status"], refused.json["error"]) == (1, "bad_input", "no such city")
    assert run("capability", "run", "greet", "[]").code == 2
    assert run("capability", "run", "greet", "{").code == 2
    assert run("capability", "run", "greet", "-", stdin='{"city": "Ulm"}').out == "Hello, Ulm!\n"


def test_what_an_import_says_can_not_control_the_terminal(run: Run, tmp_path: Path) -> None:
    made = draft(code=GREET.code + "# \x1b]0;evil\x07\u202e\n")
    shown = run("capability", "import", str(archive(tmp_path, "greet", made)))
    assert "\x1b" not in shown.err
    assert "\u202e" not in shown.err


def test_a_skill_of_others_and_a_missing_file_are_told_apart(run: Run, tmp_path: Path) -> None:
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "SKILL.md").write_text("---\nname: skill\n---\n")
    assert run("capability", "import", str(tmp_path / "skill"), "--yes").code == 2
    assert run("capability", "import", str(tmp_path / "none"), "--yes").code == 3


def test_a_build_without_a_model_says_how_to_get_one(run: Run) -> None:
    asked = run("capability", "build", "greet", "Greet a city.")
    assert asked.code == 2
    assert "language model" in asked.err
    assert json.loads(run("capability", "list", "--json").out) == []
