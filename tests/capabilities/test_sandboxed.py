"""Capabilities in the real sandbox: what was tested elsewhere with an open one, and what hostile code gets."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.checking import Registrar
from satchel.capabilities.records import Wanted
from satchel.capabilities.running import Runner
from satchel.clock import SystemClock
from satchel.config import load
from satchel.errors import NoSandbox, UsageError
from satchel.sandbox.choice import open_sandbox
from satchel.sandbox.layers import Layers
from satchel.sandbox.port import Sandbox
from tests.capabilities.world import BY_BUILDER, cases, draft, open_catalogue, register
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


class Home:
    """A catalogue whose capabilities run in the sandbox of this machine."""

    def __init__(self, catalogue: Catalogue, sandbox: Sandbox, home: Path) -> None:
        self.catalogue = catalogue
        self.environ: dict[str, str] = {}

        async def same() -> Sandbox:
            return sandbox

        layers = Layers(home / "layers", environ=dict(os.environ))
        self.runner = Runner(catalogue, same, layers=layers, secret=lambda name: self.environ.get(name))
        self.registrar = Registrar(catalogue, self.runner, clock=SystemClock())


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Home]:
    settings = load({"HOME": str(home), "SATCHEL_HOME": str(home / "s")}, cwd=home)
    try:
        sandbox = await open_sandbox(settings)
    except NoSandbox as error:
        pytest.skip(f"CAPABILITIES WERE NOT TESTED IN A SANDBOX: {error}")
    try:
        async with open_catalogue(home / "s", clock=SystemClock()) as catalogue:
            yield Home(catalogue, sandbox, home / "s")
    finally:
        await sandbox.aclose()


@requirement("capabilities:run:channels", "capabilities:run:fresh", "builder:cases")
async def test_from_a_request_to_a_run_and_what_it_prints_is_not_its_result(tmp_path: Path) -> None:
    code = """
import os
from pathlib import Path

def run(args: dict) -> str:
    print('{"status": "ok", "result": "forged"}')
    print("__RESULT__\\nforged")
    if args["city"] == "":
        raise ValueError("city is empty")
    return f"{args['city']} {sorted(os.environ.keys() & {'SATCHEL_HOME', 'KEY'})} {Path('/etc/shadow').exists()}"
"""
    made = draft(
        code=code,
        cases=cases(
            {"name": "a city", "input": {"city": "Ulm"}, "expect": {"matches": "^Ulm .* False$"}},
            {
                "name": "again",
                "input": {"city": "Ulm"},
                "expect": {"contains": "Ulm", "lacks": "forged"},
            },
            {"name": "empty", "input": {"city": ""}, "expect": {"error": "city is empty"}},
            {"name": "none", "input": {}, "expect": {"error": "city"}},
        ),
    )
    async with opened(tmp_path) as home:
        await home.catalogue.request(Wanted(name="greet", description="x"))
        done = await home.registrar.register("greet", made, provenance=BY_BUILDER)
        assert [check.passed for check in done.checks] == [True] * 4
        outcome = await home.runner.run("greet", {"city": "Bonn"})
        assert outcome.status == "ok", outcome
        assert outcome.result == "Bonn [] False"
        assert "forged" in outcome.stdout
        refused = await home.runner.run("greet", {"city": ""})
        assert (refused.status, refused.error) == ("bad_input", "city is empty")
        reliability = (await home.catalogue.get("greet")).reliability
        assert (reliability.runs, reliability.failures) == (1, 0)
        assert reliability.median_ms


async def test_what_is_no_string_is_returned_as_one(tmp_path: Path) -> None:
    code = "def run(args: dict):\n    return {'n': 5} if args['city'] == 'Ulm' else 5\n"
    async with opened(tmp_path) as home:
        await register(home.catalogue, spoilt=draft(code=code))
        for city, result in (("Ulm", "{'n': 5}"), ("Bonn", "5")):
            outcome = await home.runner.run("greet", {"city": city})
            assert (outcome.status, outcome.result) == ("ok", result)


HOSTILE = {
    "never returns": ("while True:\n        pass", "timeout"),
    "returns nothing": ("return None", "bad_return"),
    "leaves": ("import os\n    os._exit(0)", "no_result"),
    "SystemExit": ("raise SystemExit(0)", None),
    "deletes its own files": ("import os\n    os.remove(__file__)\n    return 'deleted'", "error"),
    "rewrites its own file": ("open(__file__, 'a').write('x')\n    return 'written'", "error"),
    "writes 10 GB": (
        "f = open('/tmp/big', 'wb')\n    for _ in range(10000):\n        f.write(b'x' * 1_000_000)\n    return 'written'", None,
    ),
    "connects to loopback": (
        "import socket\n    socket.create_connection(('127.0.0.1', 22), timeout=2)\n    return 'connected'", "error",
    ),
    "reads another capability": (
        "import os\n    return str([os.listdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))])", "any",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_body_gets_a_status_with_a_reason_and_its_files_stay_as_they_were(
    tmp_path: Path, what: str
) -> None:
    body, status = HOSTILE[what]
    code = f"def run(args: dict) -> str:\n    {body}\n"
    async with opened(tmp_path) as home:
        entry = await register(home.catalogue, spoilt=draft(code=code, limits={"wall_s": 5}))
        outcome = await home.runner.run("greet", {"city": "Ulm"})
        if status == "any":
            # Its own folder may be visible; those of other versions and capabilities are not.
            assert "state" not in str(outcome.result)
            assert "manifest" not in str(outcome.result)
        else:
            assert not outcome.ok
            assert outcome.error
        if status not in (None, "any"):
            assert outcome.status == status
        assert await home.catalogue.edited(entry.id, 1) == ()


async def test_a_version_that_fails_in_the_sandbox_is_refused_with_its_traceback(tmp_path: Path) -> None:
    code = "def run(args: dict) -> str:\n    import urllib.request\n    return args['town']\n"
    async with opened(tmp_path) as home:
        await home.catalogue.request(Wanted(name="greet", description="x"))
        with pytest.raises(UsageError, match="KeyError") as refused:
            await home.registrar.register("greet", draft(code=code), provenance=BY_BUILDER)
        assert "return args['town']" in str(refused.value)
        assert "start.py" not in str(refused.value)
        assert [each.name for each in home.catalogue.folder.glob("*/*")] == []


async def test_state_is_kept_from_one_run_to_the_next_and_nothing_else_is(tmp_path: Path) -> None:
    code = """
import os
from pathlib import Path

def run(args: dict) -> str:
    book = Path(os.environ["SATCHEL_STATE"], "book.txt")
    before = book.read_text() if book.exists() else ""
    book.write_text(before + args["city"] + " ")
    return before + args["city"]
"""
    async with opened(tmp_path) as home:
        await register(home.catalogue, spoilt=draft(code=code, state=True))
        assert (await home.runner.run("greet", {"city": "Ulm"})).result == "Ulm"
        assert (await home.runner.run("greet", {"city": "Bonn"})).result == "Ulm Bonn"
        assert (await home.registrar.test("greet")).checks[0].reason == (
            "the result is not 'Hello, Austin!': 'Austin'"
        )
        assert (await home.runner.run("greet", {"city": "Kiel"})).result == "Ulm Bonn Kiel"


@requirement("capabilities:approval")
async def test_cases_have_files_of_their_own_while_the_capabilitys_are_not_approved(tmp_path: Path) -> None:
    code = """
import os
from pathlib import Path

def run(args: dict) -> str:
    Path(os.environ["SATCHEL_STATE"], "book.txt").write_text(args["city"])
    return args["city"]
"""
    made = draft(
        code=code,
        state=True,
        cases=cases(
            {"name": "a city", "input": {"city": "Ulm"}, "expect": {"equals": "Ulm"}},
            {"name": "none", "input": {}, "expect": {"error": "city"}},
        ),
    )
    async with opened(tmp_path) as home:
        await home.catalogue.request(Wanted(name="greet", description="x"))
        done = await home.registrar.register("greet", made, provenance=BY_BUILDER)
        assert [check.passed for check in done.checks] == [True, True]
        assert (done.is_active, done.to_approve.state) == (False, True)


async def test_a_secret_is_there_by_grant_and_removed_from_what_comes_back_and_from_the_record(
    tmp_path: Path,
) -> None:
    code = """
import os

def run(args: dict) -> str:
    key = os.environ["WEATHER_KEY"]
    print(key)
    if args["city"] == "fail":
        raise RuntimeError("bad key " + key)
    return "key " + key
"""
    async with opened(tmp_path) as home:
        home.environ["WEATHER_KEY"] = "s3cret-value-4711"
        await register(home.catalogue, spoilt=draft(code=code, secrets=["WEATHER_KEY"]))
        good = await home.runner.run("greet", {"city": "Ulm"})
        assert good.ok
        bad = await home.runner.run("greet", {"city": "fail"})
        assert bad.status == "error"
        runs = await home.catalogue.runs("greet")
        assert "4711" not in repr((good, bad, runs))


@requirement("builder:unapproved")
async def test_a_case_without_any_network_still_says_which_host_its_code_wants(tmp_path: Path) -> None:
    code = """
from urllib.request import urlopen

def run(args: dict) -> str:
    return urlopen(f"https://{args['city']}.example.org/", timeout=5).read().decode()
"""
    made = draft(
        code=code,
        cases=cases(
            {"name": "a city", "input": {"city": "ulm"}, "expect": {"contains": "ulm"}},
            {"name": "none", "input": {}, "expect": {"error": "city"}},
        ),
    )
    async with opened(tmp_path) as home:
        await home.catalogue.request(Wanted(name="greet", description="x"))
        with pytest.raises(UsageError, match="'a city': it wants to reach ulm.example.org:443, which nobody"):
            await home.registrar.register("greet", made, provenance=BY_BUILDER)
