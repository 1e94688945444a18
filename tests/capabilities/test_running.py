from __future__ import annotations

from pathlib import Path

import pytest

from satchel.capabilities.access import sentences
from satchel.capabilities.records import Access
from satchel.capabilities.running import Outcome, outcome_to_json
from satchel.errors import NoSandbox, NotFound, Refused, StorageError, UsageError
from satchel.sandbox.port import PythonEntry, RunResult, Status
from tests.capabilities.world import GREET, Workbench, draft, open_workbench
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


async def approved(bench: Workbench, spoilt: object) -> None:
    await bench.register(spoilt=spoilt)  # type: ignore[arg-type]
    await bench.registrar.approve("greet")
    bench.sandbox.specs.clear()


@requirement("capabilities:run:fresh", "capabilities:run:channels")
async def test_a_run_gets_the_folder_the_arguments_and_nothing_else(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        capability = (await bench.register()).capability
        bench.sandbox.specs.clear()
        outcome = await bench.runner.run("cap_greet", {"city": "Ulm"})
        assert (outcome.ok, outcome.result, outcome.version, outcome.backend) == (
            True,
            "Hello, Ulm!",
            1,
            "open",
        )
        [spec] = bench.sandbox.specs
        assert spec.entry == PythonEntry(code_dir=capability.folder, args={"city": "Ulm"})
        assert (spec.network.mode, spec.secrets, spec.environ, spec.read_only, spec.writable) == (
            "none",
            {},
            {},
            (),
            (),
        )
        assert (await bench.catalogue.get("greet")).reliability.runs == 1


async def test_a_run_has_three_minutes_at_most(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        await bench.register(spoilt=draft(limits={"wall_s": 180, "mem_mb": 1024}))
        await bench.runner.run("greet", {"city": "Ulm"}, timeout_s=1000)
        limits = bench.sandbox.specs[-1].limits
        assert (limits.wall_s, limits.memory_mb) == (180, 1024)
        await bench.runner.run("greet", {"city": "Ulm"}, timeout_s=20)
        assert bench.sandbox.specs[-1].limits.wall_s == 20
        await bench.runner.run("greet", {"city": "Ulm"}, timeout_s=20, in_background=True)
        assert bench.sandbox.specs[-1].limits.wall_s == 900


@requirement("capabilities:run:active-only")
async def test_only_an_active_capability_runs(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        with pytest.raises(NotFound):
            await bench.runner.run("greet", {})
        await bench.register()
        await bench.catalogue.disable("greet")
        with pytest.raises(Refused, match="satchel capability enable greet"):
            await bench.runner.run("greet", {"city": "Ulm"})
        await bench.register("other", draft(hosts=["a.example"]))
        with pytest.raises(Refused, match="satchel capability approve other"):
            await bench.runner.run("other", {"city": "Ulm"})


async def test_input_that_the_schema_refuses_starts_nothing_and_is_no_failure(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        await bench.register()
        bench.sandbox.specs.clear()
        outcome = await bench.runner.run("greet", {"city": 3})
        assert outcome.status == "bad_input"
        assert "$.city: 3 is not of type 'string'" in outcome.error
        assert bench.sandbox.specs == []
        assert (await bench.catalogue.get("greet")).reliability.runs == 0


@pytest.mark.parametrize(
    ("body", "status", "runs"),
    [
        ('raise ValueError("no such city")', "bad_input", 0),
        ('raise ValueError(\n        "no such city"\n    )', "bad_input", 0),
        ('return str(int("x"))', "error", 1),
        ('raise KeyError("city")', "error", 1),
    ],
)
async def test_code_refuses_its_input_by_raising_a_value_error_and_other_errors_are_failures(
    tmp_path: Path, body: str, status: str, runs: int
) -> None:
    async with open_workbench(tmp_path) as bench:
        code = f'def run(args: dict) -> str:\n    if args["city"] == "Austin":\n        return "Hello, Austin!"\n    {body}\n'
        await bench.register(spoilt=draft(code=code))
        outcome = await bench.runner.run("greet", {"city": "x"})
        assert outcome.status == status
        assert (await bench.catalogue.get("greet")).reliability.runs == runs
        if status == "bad_input":
            assert outcome.error == "no such city"


async def test_a_secret_is_passed_by_grant_and_a_missing_one_says_its_name(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        bench.environ = {"WEATHER_KEY": "s3cret-value", "OTHER_KEY": "not asked for"}
        code = GREET.code.replace('"Hello, "', '("Hello, " if ENVIRON["WEATHER_KEY"] else "")')
        await approved(bench, draft(code=code, secrets=["WEATHER_KEY"]))
        await bench.runner.run("greet", {"city": "Ulm"})
        assert bench.sandbox.specs[-1].secrets == {"WEATHER_KEY": "s3cret-value"}
        assert "s3cret" not in repr(bench.sandbox.specs[-1])
        bench.environ.clear()
        outcome = await bench.runner.run("greet", {"city": "Ulm"})
        assert outcome.status == "missing_secret"
        assert "WEATHER_KEY" in outcome.error
        assert (await bench.catalogue.get("greet")).reliability.failures == 0


async def test_state_is_a_folder_of_its_own_and_cases_get_another(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        await approved(bench, draft(state=True))
        await bench.runner.run("greet", {"city": "Ulm"})
        capability = await bench.catalogue.get("greet")
        [spec] = bench.sandbox.specs
        assert spec.writable == (capability.path / "state",)
        assert spec.environ == {"SATCHEL_STATE": str(capability.path / "state")}
        await bench.registrar.test("greet")
        assert bench.sandbox.specs[-1].writable != spec.writable
        assert not bench.sandbox.specs[-1].writable[0].exists()
        with (capability.path / "state" / "big").open("wb") as file:
            file.truncate(64_000_001)
        with pytest.raises(StorageError, match="64,000,000 bytes"):
            await bench.runner.run("greet", {"city": "Ulm"})


@requirement("capabilities:run:requirements")
async def test_requirements_are_a_layer_and_a_capability_without_any_asks_for_none(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        await bench.register()
        assert bench.layers == []
        await bench.register(spoilt=draft(requirements=["humanize>=4", "  "]))
        assert bench.layers == [("humanize>=4",)]
        assert (
            (await bench.catalogue.get("greet")).folder / "requirements.txt"
        ).read_text() == "humanize>=4\n"


async def test_edited_code_runs_and_the_outcome_says_so(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        folder = (await bench.register()).capability.folder
        assert not (await bench.runner.run("greet", {"city": "Ulm"})).edited
        (folder / "main.py").write_text(GREET.code.replace("Hello", "Servus"))
        outcome = await bench.runner.run("greet", {"city": "Ulm"})
        assert (outcome.result, outcome.edited) == ("Servus, Ulm!", True)
        (folder / "main.py").unlink()
        with pytest.raises(UsageError, match=r"main\.py is missing"):
            await bench.runner.run("greet", {"city": "Ulm"})
        (folder / "main.py").symlink_to("/etc/passwd")
        with pytest.raises(UsageError, match="is a link"):
            await bench.runner.run("greet", {"city": "Ulm"})


async def test_the_third_failure_in_a_row_says_that_it_is_failing(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        await bench.register()
        bench.sandbox.answers = [RunResult(status=Status.TIMEOUT, error="It took too long.")] * 3
        failing = [(await bench.runner.run("greet", {"city": "Ulm"})).failing for _ in range(3)]
        assert failing == [False, False, True]
        [run, *_] = await bench.catalogue.runs("greet", failed=True)
        assert (run.status, run.error, run.input) == ("timeout", "It took too long.", {"city": "Ulm"})


async def test_no_sandbox_is_no_failure_of_the_capability(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        await bench.register()
        bench.sandbox.answers = [NoSandbox("There is none. Install bubblewrap.")]
        with pytest.raises(NoSandbox):
            await bench.runner.run("greet", {"city": "Ulm"})
        assert (await bench.catalogue.get("greet")).reliability.runs == 0


async def test_the_outcome_as_json_has_the_fields_of_the_design(tmp_path: Path) -> None:
    shown = outcome_to_json(Outcome(capability="greet", version=1, status="ok", result="x"))
    assert {"status", "result", "error", "stdout", "stderr", "wall_ms", "backend"} <= shown.keys()


@pytest.mark.parametrize(
    ("access", "said"),
    [
        (Access(), ()),
        (Access(hosts=("a.example:443",)), ("It may connect to a.example.",)),
        (
            Access(hosts=("*.a.example:8443",)),
            ("It may connect to every host below a.example on port 8443.",),
        ),
        (Access(hosts=("127.0.0.1:80",)), ("It may connect to 127.0.0.1, a private address, on port 80.",)),
        (Access(state=True), ("It keeps files of its own from one run to the next.",)),
        (
            Access(hosts=("a.example:443",), secrets=("KEY",)),
            (
                "It may connect to a.example.",
                "It gets the value of KEY from your environment, a secret, and can send it to the hosts above.",
            ),
        ),
        (
            Access(secrets=("KEY",)),
            (
                "It gets the value of KEY from your environment, a secret, and can send it to every host that it may "
                "reach.",
            ),
        ),
    ],
)
def test_what_a_capability_may_reach_is_a_sentence_each(access: Access, said: tuple[str, ...]) -> None:
    assert sentences(access) == said


async def test_a_private_address_is_reached_only_if_it_was_approved_as_an_address(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        await approved(bench, draft(hosts=["127.0.0.1:8080", "api.example.org", "localhost:9"]))
        await bench.runner.run("greet", {"city": "Ulm"})
        network = bench.sandbox.specs[-1].network
        assert network.mode == "allow"
        assert network.private == ("127.0.0.1:8080", "localhost:9")
