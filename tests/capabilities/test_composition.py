"""Capabilities that call other capabilities, in the real sandbox."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.capabilities.access import sentences
from satchel.capabilities.allowances import Allowances
from satchel.capabilities.checking import Registrar
from satchel.capabilities.records import Access, Wanted
from satchel.capabilities.running import NotTried, outcome_to_json
from satchel.clock import SystemClock
from satchel.config import PermissionRule
from satchel.config.rule_texts import RuleOptions
from satchel.config.settings import RuleAction
from satchel.errors import Refused, UsageError
from satchel.sandbox.broker import brokered
from tests.capabilities.test_sandboxed import opened
from tests.capabilities.world import BY_BUILDER, cases, draft, register
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

ANY = {"type": "object"}


def calling(name: str, times: int = 1, **more: Any) -> Any:
    """A capability that calls another one, and returns its last result."""
    code = f"""
from satchel_calls import call

def run(args: dict) -> str:
    for number in range({times}):
        text = call("{name}", {{"city": "Ulm"}})
    return f"{{text}} {{number}}"
"""
    return draft(**{"code": code, "input_schema": ANY, "hosts": [f"capability:{name}"], **more})


@requirement("capabilities:calls")
async def test_a_capability_calls_another_one_once_the_user_has_approved_it_and_the_call_is_recorded(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as home:
        greets = draft(
            code="""
import os
from pathlib import Path

def run(args: dict) -> str:
    kept = Path(os.environ["SATCHEL_STATE"]) / "count"
    count = len(kept.read_text()) + 1 if kept.exists() else 1
    kept.write_text("x" * count)
    return f"{args['city']} {count}"
""",
            state=True,
        )
        await register(home.catalogue, "greet", greets)
        lines = cases(
            {"name": "asks", "input": {}, "expect": {"equals": "Ulm 1 0"}, "network": True},
            {"name": "again", "input": {}, "expect": {"equals": "Ulm 1 0"}, "network": True},
            {"name": "no list", "input": {"city": []}, "expect": {"error": "city"}},
        )
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        await home.catalogue.request(Wanted(name="twice", description="x"))
        made = calling("greet", cases=lines, input_schema=schema)
        done = await home.registrar.register("twice", made, provenance=BY_BUILDER)
        assert not done.is_active
        assert done.to_approve == Access(hosts=("capability:greet",))
        assert sentences(done.to_approve) == (
            "It may call the capability greet, and pass on what it was given.",
        )
        done = await home.registrar.approve("twice")
        assert done.is_active
        assert [check.passed for check in done.checks] == [True, True, True]
        # The cases have neither seen nor changed what `greet` keeps for the user.
        outcome = await home.runner.run("twice", {})
        assert (outcome.result, outcome.status) == ("Ulm 1 0", "ok")
        assert outcome_to_json(outcome)["calls"] == [{"by": "twice", "capability": "greet", "status": "ok"}]
        assert (await home.runner.run("twice", {})).result == "Ulm 2 0"
        assert len(await home.catalogue.runs((await home.catalogue.get("greet")).id)) == 2


@requirement("capabilities:calls:bounded")
async def test_a_call_reaches_no_further_than_its_caller_and_ends(tmp_path: Path) -> None:
    async with opened(tmp_path) as home:
        await register(home.catalogue)
        await register(home.catalogue, "weather", draft(hosts=["api.example.org:443"], secrets=["KEY"]))
        home.environ["KEY"] = "k"

        async def tries(name: str, made: Any) -> str:
            await register(home.catalogue, name, made)
            outcome = await home.runner.run(name, {})
            assert outcome.status == "error"
            assert outcome.calls[-1].status == "refused"
            assert len(outcome.calls) <= 21
            assert len(outcome.denied) <= 21
            return outcome.error

        more = await tries("more", calling("weather"))
        assert "weather reaches api.example.org:443, KEY, which more may not" in more
        assert "never may not call 'greet'" in await tries(
            "never", calling("greet", hosts=["capability:other"])
        )
        assert "at most 20 calls" in await tries("many", calling("greet", times=25))
        insists = """
from satchel_calls import call

def run(args: dict) -> str:
    for number in range(300):
        try:
            call("weather", {})
        except Exception:
            pass
    raise OSError("none of 300")
"""
        assert "none of 300" in await tries(
            "insists", draft(code=insists, hosts=["capability:greet"], input_schema=ANY)
        )
        await register(home.catalogue, "second", calling("first"))
        assert "first calls second calls first: that is not allowed" in await tries(
            "first", calling("second", hosts=["capability:first", "capability:second"])
        )
        # What is not named is refused where it is registered, by its name.
        refused = cases(
            {"name": "a", "input": {}, "expect": {"contains": "x"}},
            {"name": "b", "input": {}, "expect": {"error": "x"}},
        )
        with pytest.raises(UsageError, match="capability:greet, which nobody has approved"):
            await home.registrar.register(
                "never", calling("greet", hosts=[], cases=refused), provenance=BY_BUILDER
            )
        # A rule that has the user asked about each call, or forbids them, holds for calls by others.
        actions: tuple[RuleAction, ...] = ("ask", "deny")
        for action in actions:
            for rule in ("cap_greet", "cap_greet(city:Ulm)", "cap_*(*)"):
                with pytest.raises(Refused, match="is not called by another capability"):
                    Allowances([PermissionRule(action=action, tool=rule)]).check_call("greet")
        Allowances([PermissionRule(action="ask", tool="cap_other")]).check_call("greet")
        # A star is any address, and no capability.
        stars = PermissionRule(action="allow", tool="cap_*", options=RuleOptions(network=("*",)))
        wanted = Access(hosts=("api.example.org:443", "capability:greet"))
        assert Allowances([stars]).granted("x", wanted).hosts == ("api.example.org:443",)


@requirement("capabilities:calls:bounded")
@pytest.mark.parametrize(
    "words", [b"junk\n", b'{"name": 1, "input": {}}\n', b"[" * 100_000 + b"\n", b"x" * (1 << 21)]
)
async def test_what_is_no_question_ends_the_conversation_with_the_host(words: bytes) -> None:
    async def never(_name: str, _input: Any) -> tuple[str, bool]:
        raise AssertionError("nothing was asked")

    async with brokered(never) as fd:
        with socket.socket(fileno=os.dup(fd)) as guest:
            os.close(fd)
            guest.setblocking(False)
            with anyio.fail_after(60):
                rest = memoryview(words)
                while rest:
                    await anyio.wait_writable(guest)
                    try:
                        rest = rest[guest.send(rest) :]
                    except (BrokenPipeError, ConnectionResetError):
                        break
                await anyio.wait_readable(guest)
                assert guest.recv(10) == b""


@requirement("capabilities:calls:cut-off")
async def test_the_run_of_a_called_capability_is_recorded_though_its_caller_ends_first(
    tmp_path: Path,
) -> None:
    endless = """
import os, time
from pathlib import Path

def run(args: dict) -> str:
    (Path(os.environ["SATCHEL_STATE"]) / "begun").touch()
    time.sleep(60)
    return ""
"""
    async with opened(tmp_path) as home:
        greet = await register(home.catalogue, "greet", draft(code=endless, state=True))
        await register(home.catalogue, "waits", calling("greet", state=True))
        async with anyio.create_task_group() as group:
            group.start_soon(home.runner.run, "waits", {})
            with anyio.fail_after(60):
                while not (greet.path / "state" / "begun").exists():  # noqa: ASYNC110 - another process makes it
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        [run] = await home.catalogue.runs("greet")
        assert (run.status, run.input) == ("cancelled", None)
        assert run.wall_ms > 0
        reliability = (await home.catalogue.get("greet")).reliability
        assert (reliability.runs, reliability.failures) == (1, 0)
        assert await home.catalogue.runs("greet", failed=True) == ()


@requirement("capabilities:calls:outside")
async def test_a_case_is_left_out_only_if_it_fails_of_what_it_may_not_do_whoever_wanted_it(
    tmp_path: Path,
) -> None:
    async def outside(
        name: str, input: object, *, by: str, session_id: str, is_trial: bool
    ) -> tuple[str, bool]:
        if is_trial:
            raise NotTried(f"{name} may change something.")
        return "posted", True

    async with opened(tmp_path) as home:
        runner = replace(home.runner, outside=outside)
        registrar = Registrar(home.catalogue, runner, clock=SystemClock())
        post = "mcp:chat.post"
        posts = f'from satchel_calls import call\n\ndef run(args: dict) -> str:\n    return call("{post}", {{}})\n'
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        lines = cases(
            {"name": "posts", "input": {}, "expect": {"equals": "posted"}, "network": True},
            {"name": "no list", "input": {"city": []}, "expect": {"error": "city"}},
        )
        await register(home.catalogue, "post", draft(code=posts, input_schema=ANY, hosts=[post]))
        more = {"cases": lines, "input_schema": schema}
        hides = posts.replace("    return", "    try:\n        return").rstrip() + (
            '\n    except RuntimeError:\n        return "wrong"\n'
        )

        async def passed(name: str, made: Any) -> list[bool | None]:
            await home.catalogue.request(Wanted(name=name, description="x"))
            await registrar.register(name, made, provenance=BY_BUILDER)
            return [check.passed for check in (await registrar.approve(name)).checks]

        through = posts.replace(post, "post")
        hosts = ["capability:post", post]
        assert await passed("direct", draft(code=posts, hosts=[post], **more)) == [None, True]
        assert await passed("through", draft(code=through, hosts=hosts, **more)) == [None, True]
        assert await passed("hides", draft(code=hides, hosts=[post], **more)) == [False, True]


@requirement("capabilities:calls:bounded")
async def test_a_name_that_is_no_text_is_refused_and_recorded(tmp_path: Path) -> None:
    async with opened(tmp_path) as home:
        await register(home.catalogue, "odd", calling("\\ud800x", hosts=["capability:other"]))
        outcome = await home.runner.run("odd", {})
        assert [call.status for call in outcome.calls] == ["refused"]
        assert json.dumps(outcome_to_json(outcome), ensure_ascii=False).encode()
