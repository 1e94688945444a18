from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from satchel.capabilities.allowances import Allowances
from satchel.capabilities.cases import CaseResult
from satchel.capabilities.package import draft_of
from satchel.capabilities.records import Access, Provenance, Wanted
from satchel.config import PermissionRule, RuleAction, RuleOptions
from satchel.errors import NoSandbox, NotFound, UsageError
from satchel.sandbox.port import Denial, RunResult, Status
from tests.capabilities.world import GREET, cases, draft, open_workbench
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

ONLINE = draft(
    hosts=["api.example.org"],
    cases=cases(
        {"name": "offline", "input": {"city": "Ulm"}, "expect": {"contains": "Ulm"}},
        {"name": "online", "input": {"city": "Ulm"}, "expect": {"contains": "Hello"}, "network": True},
        {"name": "none", "input": {}, "expect": {"error": "city"}},
    ),
)


def staging(home: Path) -> list[Path]:
    return list((home / "capabilities").glob("*/.staging-*"))


@requirement("promise:capability:tested-first", "builder:cases")
async def test_a_version_whose_cases_pass_becomes_active_and_each_ran_in_a_sandbox_of_its_own(
    tmp_path: Path,
) -> None:
    async with open_workbench(tmp_path) as bench:
        done = await bench.register()
        assert (done.is_active, done.number, done.capability.status) == (True, 1, "active")
        assert [(check.name, check.passed) for check in done.checks] == [("Austin", True), ("no city", True)]
        # The schema refuses the second input: no sandbox is needed for that.
        assert [spec.entry.args for spec in bench.sandbox.specs] == [{"city": "Austin"}]  # type: ignore[union-attr]
        [version] = await bench.catalogue.versions("greet")
        assert [check["passed"] for check in version.checks] == [True, True]


@requirement("promise:capability:tested-first", "builder:cases")
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ('def run(args):\n    return "Bye"\n', "Case 'Austin': the result is not 'Hello, Austin!': 'Bye'"),
        ("def run(args):\n    return 1 / 0\n", "Case 'Austin': it failed: "),
        ("def run(args):\n    return 3\n", "Case 'Austin': the result is not 'Hello, Austin!': '3'"),
        ("def run(args):\n    return None\n", "it failed: 'It returned nothing.'"),
    ],
)
async def test_a_version_whose_cases_fail_is_refused_with_the_reasons_and_leaves_nothing(
    tmp_path: Path, code: str, reason: str
) -> None:
    async with open_workbench(tmp_path) as bench:
        with pytest.raises(UsageError) as refused:
            await bench.register(spoilt=draft(code=code))
        assert reason in str(refused.value)
        assert (await bench.catalogue.get("greet")).status == "building"
        assert await bench.catalogue.versions("greet") == ()
        assert staging(tmp_path) == []


async def test_a_crash_does_not_count_as_the_refusal_of_a_bad_input(tmp_path: Path) -> None:
    bad = cases(
        {"name": "good", "input": {"city": "Ulm"}, "expect": {"contains": "Ulm"}},
        {"name": "empty", "input": {"city": ""}, "expect": {"error": "city"}},
    )
    async with open_workbench(tmp_path) as bench:
        bench.sandbox.answers = [
            RunResult(status=Status.OK, result="Ulm"),
            RunResult(status=Status.MEMORY, error="It used more than 512 MiB; city."),
        ]
        with pytest.raises(UsageError, match="ended with memory"):
            await bench.register(spoilt=draft(cases=bad))


@requirement("builder:unapproved")
async def test_a_host_that_was_not_approved_is_not_told_as_an_error_of_the_code(tmp_path: Path) -> None:
    def refused(host: str) -> RunResult:
        denied = (Denial(target=host, reason="It is not allowed."),)
        return RunResult(
            status=Status.ERROR, error="no answer", traceback="URLError: no answer", denied=denied
        )

    async with open_workbench(tmp_path) as bench:
        bench.sandbox.answers = [refused("other.example:443")]
        with pytest.raises(UsageError) as error:
            await bench.register()
        assert str(error.value) == (
            "- Case 'Austin': it wants to reach other.example:443, which nobody has approved: no host is reached that "
            "the capability does not name in `hosts`. Name it there, so that the user is asked, or do without it"
        )
        # One that it names, in a case that doesn't say that it needs it.
        bench.sandbox.answers = [refused("api.example.org:443")]
        done = await bench.register(spoilt=ONLINE)
        assert (done.is_active, done.capability.status) == (False, "proposed")
        assert done.checks[0].passed is None
        assert done.checks[0].reason == "it needs api.example.org:443, which is not approved yet"


async def test_a_version_that_wants_a_host_is_proposed_until_the_user_approves_it(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        done = await bench.register(spoilt=ONLINE)
        assert (done.is_active, done.capability.status) == (False, "proposed")
        assert done.to_approve == Access(hosts=("api.example.org:443",))
        assert [(check.name, check.passed) for check in done.checks] == [
            ("offline", True), ("online", None), ("none", True),
        ]  # fmt: skip
        # What is not approved is not reached, not even by a test.
        assert {spec.network.mode for spec in bench.sandbox.specs} == {"none"}
        assert await bench.registrar.to_approve("greet") == (1, Access(hosts=("api.example.org:443",)))

        approved = await bench.registrar.approve("greet")
        assert (approved.is_active, approved.capability.status) == (True, "active")
        assert [check.passed for check in approved.checks] == [True, True, True]
        assert bench.sandbox.specs[-1].network.hosts == ("api.example.org:443",)
        with pytest.raises(NotFound):
            await bench.registrar.to_approve("greet")


HOST, KEY = "api.example.org:443", "WEATHER_KEY"
ALL = Access(hosts=(HOST,), secrets=(KEY,), state=True)


def rule(tool: str, action: RuleAction = "allow", **options: Any) -> PermissionRule:
    return PermissionRule(action=action, tool=tool, options=RuleOptions(**options))


@requirement("capabilities:approval-by-rule")
@pytest.mark.parametrize(
    ("rules", "wanted", "granted"),
    [
        ([rule("cap_greet", network=(HOST,), secrets=(KEY,), state=True)], ALL, ALL),
        ([rule("cap_greet", network=("api.example.org",))], ALL, Access(hosts=(HOST,))),
        ([rule("cap_*", network=("*.example.org",))], ALL, Access(hosts=(HOST,))),
        ([rule("cap_gr*", network=("*",), state=True)], ALL, Access(hosts=(HOST,), state=True)),
        ([rule("cap_greet", network=(HOST,)), rule("cap_*", secrets=(KEY,))], ALL, replace(ALL, state=False)),
        ([rule("cap_greet")], ALL, Access()),
        ([rule("cap_other", network=("*",))], ALL, Access()),
        # The hosts of programs are not those of capabilities.
        ([rule("*", network=("*",)), rule("bash", network=("*",))], ALL, Access()),
        ([rule("cap_greet(*)", network=("*",))], ALL, Access()),
        ([rule("cap_greet", network=("api.example.org:80",))], ALL, Access()),
        ([rule("cap_greet", network=("example.org",))], ALL, Access()),
        # Other rules are stronger.
        ([rule("cap_greet", network=(HOST,)), rule("cap_*", "deny")], ALL, Access()),
        ([rule("cap_greet", network=(HOST,)), rule("cap_greet", "ask")], ALL, Access()),
        # A private address is allowed only by its name and port.
        ([rule("cap_greet", network=("*",))], Access(hosts=("127.0.0.1:8080",)), Access()),
        ([rule("cap_greet", network=("*.1",))], Access(hosts=("10.0.0.1:443",)), Access()),
        ([rule("cap_greet", network=("10.0.0.1",))], Access(hosts=("10.0.0.1:443",)), Access()),
        (
            [rule("cap_greet", network=("127.0.0.1:8080",))],
            Access(hosts=("127.0.0.1:8080", "127.0.0.1:8081")),
            Access(hosts=("127.0.0.1:8080",)),
        ),
    ],
)
def test_rules_that_name_capabilities_say_what_these_may_reach(
    rules: list[PermissionRule], wanted: Access, granted: Access
) -> None:
    assert Allowances(rules).granted("greet", wanted) == granted


@requirement("capabilities:approval-by-rule")
async def test_a_version_is_active_at_once_if_a_rule_allows_what_it_wants(tmp_path: Path) -> None:
    async with open_workbench(tmp_path, rules=[rule("cap_greet", network=("api.example.org",))]) as bench:
        done = await bench.register(spoilt=ONLINE)
        assert (done.is_active, done.to_approve) == (True, Access())
        assert [check.passed for check in done.checks] == [True, True, True]
        assert bench.sandbox.specs[-1].network.hosts == (HOST,)
        more = await bench.register(spoilt=replace(ONLINE, state=True))
        assert (more.is_active, more.to_approve) == (False, Access(state=True))
        other = await bench.register("other", spoilt=ONLINE)
        assert (other.is_active, other.capability.status) == (False, "proposed")


async def test_an_approved_version_whose_network_case_fails_is_failed_and_not_used(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        await bench.register(spoilt=ONLINE)
        bench.sandbox.answers = [
            RunResult(status=Status.OK, result="Ulm"), RunResult(status=Status.ERROR, error="503"),
        ]  # fmt: skip
        done = await bench.registrar.approve("greet")
        assert (done.is_active, done.capability.status) == (False, "failed")
        assert done.capability.reasons == ("Case 'online': it failed: '503'",)


async def test_a_new_version_that_reaches_more_asks_again_and_one_that_reaches_no_more_does_not(
    tmp_path: Path,
) -> None:
    async with open_workbench(tmp_path) as bench:
        await bench.register(spoilt=ONLINE)
        await bench.registrar.approve("greet")
        same = await bench.register(spoilt=draft(hosts=["api.example.org:443"]))
        assert (same.is_active, same.number) == (True, 2)
        more = await bench.register(spoilt=draft(hosts=["api.example.org", "b.example.org"], secrets=["KEY"]))
        assert (more.is_active, more.capability.version) == (False, 2)
        assert more.to_approve == Access(hosts=("b.example.org:443",), secrets=("KEY",))


async def test_without_a_sandbox_nothing_is_registered(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        bench.sandbox.answers = [NoSandbox("There is no sandbox here. Install bubblewrap.")]
        with pytest.raises(NoSandbox):
            await bench.register()
        assert (await bench.catalogue.get("greet")).status == "building"
        assert staging(tmp_path) == []


async def test_a_requirement_that_can_not_be_had_is_a_reason(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        with pytest.raises(UsageError, match="no package no-such-package"):
            await bench.register(spoilt=draft(requirements=["no-such-package"]))
        assert staging(tmp_path) == []


async def test_a_build_finds_what_it_registered_before_it_was_interrupted(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        assert await bench.registrar.registered("greet", "b1") is None
        asked = await bench.catalogue.request(Wanted(name="greet", description="Greet."))
        by = Provenance(build_id=asked.build_id)
        done = await bench.registrar.register("greet", ONLINE, provenance=by)
        assert await bench.registrar.registered("greet", asked.build_id) == done
        assert await bench.registrar.registered("greet", "b2") is None


@requirement("capabilities:users-edits")
async def test_edits_that_pass_their_test_become_a_version_and_stay_where_they_are(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        folder = (await bench.register()).capability.folder
        mine = GREET.code.replace("Hello", "Hullo")
        (folder / "main.py").write_text(mine)
        failed = await bench.registrar.test("greet")
        assert (failed.passed, failed.adopted) == (False, 0)
        (folder / "tests" / "cases.jsonl").write_text(GREET.cases.replace("Hello", "Hullo"))
        tested = await bench.registrar.test("greet")
        assert (tested.passed, tested.adopted, tested.capability.version) == (True, 2, 2)
        assert (folder / "main.py").read_text() == mine
        # The same edits become one version, however often they are tested.
        assert (await bench.registrar.test("greet", number=1)).adopted == 0
        assert [v.provenance.made_by for v in await bench.catalogue.versions("greet")] == ["builder", "user"]
        assert (await bench.registrar.test("greet")).checks == (
            CaseResult(name="Austin", passed=True, wall_ms=1), CaseResult(name="no city", passed=True),
        )  # fmt: skip
        # Of a later version of the Builder's, they are a change again.
        third = (await bench.register()).capability.folder
        (third / "main.py").write_text(mine)
        (third / "tests" / "cases.jsonl").write_text(GREET.cases.replace("Hello", "Hullo"))
        assert (await bench.registrar.test("greet")).adopted == 4


async def test_edits_that_want_to_reach_more_wait_for_approval(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as bench:
        folder = (await bench.register()).capability.folder
        manifest = folder / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"hosts": []', '"hosts": ["evil.example:443"]'))
        await bench.runner.run("greet", {"city": "Ulm"})
        assert bench.sandbox.specs[-1].network.mode == "none"
        tested = await bench.registrar.test("greet")
        assert (tested.adopted, tested.capability.version, tested.capability.access) == (2, 1, Access())
        assert (await bench.registrar.to_approve("greet"))[1].hosts == ("evil.example:443",)


async def test_the_draft_of_a_registered_version_is_what_it_was_made_of(tmp_path: Path) -> None:
    made = draft(
        document="Some words.\n\n# A heading\n\nMore.", tags=["a"], limits={"wall_s": 5},
        output_schema={"type": "string"}, files={"data/x.txt": b"x"}, hosts=["a.example:443"],
    )  # fmt: skip
    async with open_workbench(tmp_path) as bench:
        await bench.register(spoilt=made)
        again = draft_of(await bench.catalogue.registered("greet", 1))
        assert again == draft(
            document=made.document, tags=("a",), limits={"wall_s": 5}, output_schema={"type": "string"},
            files={"data/x.txt": b"x"}, hosts=("a.example:443",), requirements=(), secrets=(),
        )  # fmt: skip
