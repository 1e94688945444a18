"""What the gate decides about programs in mode `auto`: boxed without a question, or a question that says what for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.config import Mode, RuleOptions, rule_options, rule_text
from satchel.errors import UsageError
from satchel.tools import Annotations, Approval, Decision, ModeGate, PlannedCall, Rule, ToolSpec, parse_rule
from satchel.tools.box import Box, host_covers
from tests.requirements import requirement
from tests.tools.conftest import Boxing
from tests.tools.test_permissions import PROGRAM, Answers, bash, call

pytestmark = pytest.mark.anyio


def program(name: str, source: Any, **input: Any) -> PlannedCall:
    spec = ToolSpec(name=name, description="", input_schema={}, source=source, annotations=PROGRAM)
    return PlannedCall(call_id="c1", spec=spec, input=input)


def gate(
    mode: Mode, *rules: Rule, answers: Answers | None = None, boxing: Boxing | None = None, **options: Any
) -> ModeGate:
    return ModeGate(
        mode,
        rules,
        answers,
        cwd=Path("/srv/project"),
        environ={"HOME": "/home/ann"},
        boxing=boxing or Boxing(),
        **options,
    )


def allow(text: str) -> Rule:
    return parse_rule("allow", text)


async def decided(one: ModeGate, call: PlannedCall) -> Decision:
    (decision,) = await one.decide([call])
    return decision


# ---- In auto


@requirement("permissions:auto:boxed")
@pytest.mark.parametrize(
    "call",
    [
        bash("make test"),
        bash("for f in *.c; do gcc -c $f -o ${f%.c}.o; done > log 2>&1"),
        bash("cat <<'EOF' | python3 -\nprint(1)\nEOF"),
        bash("x=rm; $x -rf build"),
        program("weather", "external", city="Rome"),
        program("mcp__files__read", "mcp", path="x"),
    ],
)
async def test_auto_runs_programs_boxed_without_a_question(call: PlannedCall) -> None:
    decision = await decided(gate("auto"), call)
    assert (decision.allowed, decision.by, decision.box) == (True, "mode", Box())


@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        ("ask", "bash(make test)"),
        ("ask", "bash"),
        ("ask", "bash(make *) boxed=false"),
        ("bypass", "bash(make *)"),
    ],
)
async def test_in_other_modes_a_permitted_command_runs_outside(mode: Mode, rule: str) -> None:
    decision = await decided(gate(mode, allow(rule)), bash("make test"))
    assert (decision.allowed, decision.box) == (True, None)


@requirement("permissions:auto:without-a-sandbox")
async def test_without_a_sandbox_auto_asks_as_ask_does_and_says_why() -> None:
    one = gate("auto", boxing=Boxing("there is no sandbox here (no bwrap)"))
    decision = await decided(one, bash("make test"))
    assert not decision.allowed
    assert "it can't be boxed: there is no sandbox here (no bwrap)" in decision.reason
    again = gate("auto", allow("bash(make test)"), boxing=Boxing("there is no sandbox here"))
    decision = await decided(again, bash("make test"))
    assert (decision.allowed, decision.by, decision.box) == (True, "rule", None)


@requirement("permissions:rule:programs")
@pytest.mark.parametrize("mode", ["ask", "auto"])
@pytest.mark.parametrize("rule", ["bash(make *)", "bash(make test) boxed=true", "bash network=pypi.org"])
async def test_a_rule_for_the_sandbox_allows_nothing_without_one(mode: Mode, rule: str) -> None:
    boxing = Boxing("nothing to box with")
    decision = await decided(gate(mode, allow(rule), boxing=boxing), bash("make test"))
    assert not decision.allowed
    assert bool(boxing.told) is (mode == "auto")
    assert ("nothing to box with" in decision.reason) is (mode == "auto" or "(" in rule)
    assert decision.wanted == ("bash(make test)",)


async def test_a_rule_that_asks_is_asked_in_auto_and_the_command_stays_boxed() -> None:
    answers = Answers(Approval(answer="once"))
    decision = await decided(
        gate("auto", parse_rule("ask", "bash(git push *)"), answers=answers), bash("git push")
    )
    assert (decision.allowed, decision.by, decision.box) == (True, "user", Box())
    assert answers.asked[0][0].reason == "the rule 'ask bash(git push *)'"


async def test_allowing_a_command_does_not_take_its_box_away() -> None:
    decision = await decided(gate("auto", allow("bash(make *)"), allow("bash")), bash("make test"))
    assert (decision.allowed, decision.box) == (True, Box())


@requirement("permissions:auto:files")
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("src/main.c", True),
        ("/srv/project/new.txt", True),
        (".envrc", False),
        ("../other/x", False),
        ("/srv/project/../other", False),
        ("/etc/passwd", False),
        ("~/.bashrc", False),
    ],
)
async def test_in_auto_the_file_tools_write_unasked_what_a_boxed_command_could_write(
    path: str, allowed: bool
) -> None:
    planned = await call("file_write", path=path, content="x")
    assert (await decided(gate("auto"), planned)).allowed is allowed
    assert not (await decided(gate("auto", boxing=Boxing("there is no sandbox")), planned)).allowed
    assert not (await decided(gate("ask"), planned)).allowed


# ---- What needs more


@requirement("permissions:auto:reasons")
@pytest.mark.parametrize(
    ("more", "reason", "rules", "box"),
    [
        (
            {"network": ["api.example.org:8443"], "reason": "the tests call it"},
            "it wants to reach api.example.org:8443: the tests call it",
            ("bash network=api.example.org:8443",),
            Box(network=("api.example.org:8443",)),
        ),
        (
            {"write": ["~/notes", "/srv/data"]},
            "it wants to write /home/ann/notes, /srv/data",
            ("bash write=/home/ann/notes,/srv/data",),
            Box(write=("/home/ann/notes", "/srv/data")),
        ),
        (
            {"network": ["*"], "write": ["../other"]},
            "it wants to reach every public address and to write /srv/other",
            ("bash network=* write=/srv/other",),
            Box(network=("*",), write=("/srv/other",)),
        ),
        (
            {"write": [".envrc", "src/main.c"]},
            "it wants to write /srv/project/.envrc",
            ("bash write=/srv/project/.envrc",),
            Box(write=("/srv/project/.envrc",)),
        ),
        (
            {"outside_box": True, "reason": "it talks\nto docker"},
            "it wants to run outside the sandbox: it talks to docker",
            ("bash(./run it) boxed=false",),
            None,
        ),
    ],
)
async def test_what_a_command_wants_beyond_its_box_is_asked_with_the_reason(
    more: dict[str, Any], reason: str, rules: tuple[str, ...], box: Box | None
) -> None:
    answers = Answers(Approval(answer="once"))
    decision = await decided(gate("auto", answers=answers), bash("./run it", **more))
    [request] = answers.asked[0]
    assert (request.reason, request.rules) == (reason, rules)
    assert (decision.allowed, decision.by, decision.box) == (True, "user", box)


@requirement("permissions:auto:remembered")
@pytest.mark.parametrize("answer", ["session", "always"])
async def test_the_answer_is_remembered_as_a_rule_and_not_asked_again(answer: Any) -> None:
    written: list[Rule] = []

    async def keep(rule: Rule) -> None:
        written.append(rule)

    answers = Answers(Approval(answer=answer))
    one = gate("auto", answers=answers, on_always=keep)
    await decided(one, bash("npm ci", network=["registry.npmjs.org"]))
    again = await decided(one, bash("npm install left-pad", network=["registry.npmjs.org"]))
    without = await decided(one, bash("npm ls"))
    assert (again.allowed, again.by, again.box) == (True, "mode", Box(network=("registry.npmjs.org",)))
    assert without.box == again.box
    assert len(answers.asked) == 1
    expected = [parse_rule("allow", "bash network=registry.npmjs.org")] if answer == "always" else []
    assert written == expected


async def test_without_a_terminal_what_needs_more_is_refused_and_the_rule_named() -> None:
    decision = await decided(gate("auto"), bash("npm ci", network=["registry.npmjs.org"]))
    assert (decision.allowed, decision.by) == (False, "nobody")
    assert "it wants to reach registry.npmjs.org" in decision.reason
    assert "would allow it, as permission rules: bash network=registry.npmjs.org" in decision.reason


@pytest.mark.parametrize(
    "more",
    [
        {"network": ["http://x"]},
        {"network": ["a b"]},
        {"write": ["~/.satchel/tools"]},
        {"network": ["x:70000"]},
    ],
)
async def test_what_can_not_be_granted_is_refused_without_a_question(more: dict[str, Any]) -> None:
    answers = Answers()
    decision = await decided(gate("auto", answers=answers), bash("true", **more))
    assert (decision.allowed, decision.by, answers.asked) == (False, "mode", [])


async def test_the_fields_of_strangers_tools_are_no_wishes() -> None:
    decision = await decided(gate("auto"), program("fetch", "external", network=["x.org"], outside_box=True))
    assert (decision.allowed, decision.box) == (True, Box())


# ---- Rules


@requirement("permissions:rule:box-options")
@pytest.mark.parametrize(
    ("command", "network"),
    [
        ("npm ci", ("registry.npmjs.org",)),
        ("npm ci && npm test", ("registry.npmjs.org",)),
        ("cd web && npm ci 2>&1 | tail -20", ("registry.npmjs.org",)),
        ("npm ci; curl x", ()),
        ("npm ci; ./upload", ()),
        ("npm ci $(curl x)", ()),
        ("npm ci > log", ()),
        ("env npm ci", ()),
    ],
)
async def test_a_rule_with_a_pattern_gives_hosts_to_lines_of_its_programs_alone(
    command: str, network: tuple[str, ...]
) -> None:
    one = gate("auto", allow("bash(npm *) network=registry.npmjs.org"))
    assert (await decided(one, bash(command))).box == Box(network=network)


async def test_a_rule_without_a_box_lets_its_command_out_unasked_and_nothing_beside_it() -> None:
    one = gate("auto", allow("bash(docker *) boxed=false"))
    assert (await decided(one, bash("docker ps"))).box is None
    assert (await decided(one, bash("docker ps", outside_box=True))).box is None
    assert (await decided(one, bash("docker ps; make"))).box == Box()
    refused = await decided(one, bash("docker ps; make", outside_box=True))
    assert not refused.allowed


@requirement("permissions:rule:programs")
@pytest.mark.parametrize("rule", ["bash(make *)", "bash(make test) boxed=true", "bash(*)", "bash boxed=true"])
async def test_in_mode_ask_what_a_star_covers_runs_in_the_sandbox(rule: str) -> None:
    boxed = await decided(gate("ask", allow(rule)), bash("make test"))
    assert (boxed.allowed, boxed.by, boxed.box, boxed.rule) == (True, "rule", Box(), rule)
    # A rule for outside holds as well; then that is where it runs, unless another says boxed = true.
    both = await decided(gate("ask", allow(rule), allow("bash")), bash("make test"))
    assert both.box == (Box() if "boxed" in rule else None)


async def test_in_mode_ask_a_rule_with_a_pattern_allows_what_it_grants() -> None:
    for rule in ("bash(npm *) network=pypi.org", "bash(npm ci) network=pypi.org"):
        decision = await decided(gate("ask", allow(rule)), bash("cd web && npm ci | tail -3"))
        assert (decision.allowed, decision.box) == (True, Box(network=("pypi.org",)))
    assert not (await decided(gate("ask", allow("bash network=pypi.org")), bash("make test"))).allowed
    assert not (await decided(gate("ask", allow("bash(make *) boxed=true")), bash("make; ./x"))).allowed


@pytest.mark.parametrize(
    "command", ["test -v 'a[$(curl x)]'", "printf 'aa%n' PATH", "sort --compress-program=./x"]
)
async def test_what_could_start_a_program_gets_no_hosts_beside_one_that_has_them(command: str) -> None:
    one = gate("auto", allow("bash(npm *) network=registry.npmjs.org"))
    assert (await decided(one, bash(f"npm ci; {command}"))).box == Box()


@requirement("capabilities:approval-by-rule")
@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("cap_mail secrets=MAIL_KEY network=mail.example.org", True),
        ("cap_mail", True),
        ("cap_mail network=mail.example.org", False),
        ("cap_mail state=true", False),
        ("cap_other secrets=MAIL_KEY", False),
    ],
)
async def test_a_rule_that_gives_a_capability_a_secret_allows_its_calls(rule: str, allowed: bool) -> None:
    notes = Annotations(read_only=False, destructive=True, idempotent=False, open_world=False)
    spec = ToolSpec(
        name="cap_mail",
        description="",
        input_schema={},
        source="capability",
        annotations=notes,
        vouched_for=True,
    )
    call = PlannedCall(call_id="c", spec=spec, input={})
    modes: tuple[Mode, ...] = ("ask", "auto")
    for mode in modes:
        assert (await decided(gate(mode, allow(rule)), call)).allowed is allowed


async def test_the_sandbox_is_not_tried_for_calls_that_it_does_not_concern() -> None:
    boxing = Boxing()
    await decided(gate("ask", allow("bash(ls)"), boxing=boxing), bash("ls"))
    spec = ToolSpec(name="think", description="", input_schema={})
    await decided(gate("auto", boxing=boxing), PlannedCall(call_id="c", spec=spec, input={}))
    assert boxing.asked == []


@pytest.mark.parametrize(
    "text",
    [
        "bash(npm *) network=registry.npmjs.org,*.npmjs.org:443 read=~/.rustup write=~/notes,/srv/a%20b boxed=true",
        "bash network=*",
        "mcp__hub__* network=127.0.0.1:8000",
        "bash(docker *) boxed=false",
        "bash(echo) network=evil.org)",
        "cap_weather network=a.org secrets=WEATHER_KEY,OTHER state=true",
        "cap_* state=true",
    ],
)
def test_a_rule_with_options_is_written_as_it_was_read(text: str) -> None:
    assert allow(text).text == text


@given(
    st.text(min_size=1).filter(str.strip),
    st.lists(st.text(min_size=1).filter(lambda path: path.strip() and "*" not in path), max_size=3),
    st.sampled_from([(), ("a.org",), ("*.b.org:443", "c.org")]),
)
def test_no_pattern_and_no_path_can_pass_for_an_option(
    pattern: str, paths: list[str], network: tuple[str, ...]
) -> None:
    options = RuleOptions(network=network, read=tuple(paths), write=tuple(paths))
    tool = f"bash({pattern})"
    assert rule_options(rule_text(tool, options)) == (tool, options)


@pytest.mark.parametrize(
    "text",
    [
        "bash network=http://x", "bash network=", "bash write=a*", "bash boxed=maybe", "bash boxed=false network=a.org",
        "bash network=a..b", "bash network=a.org:0", "bash secrets=KEY", "bash state=true", "cap_x secrets=a-b",
        "cap_x state=perhaps",
    ],
)  # fmt: skip
def test_an_option_that_says_nothing_sensible_is_an_error(text: str) -> None:
    with pytest.raises(UsageError):
        allow(text)


def test_options_belong_to_rules_that_allow() -> None:
    with pytest.raises(UsageError, match="only rules that allow"):
        parse_rule("deny", "bash network=a.org")


@pytest.mark.parametrize(
    ("own", "wanted", "covered"),
    [
        ("a.org", "a.org", True),
        ("a.org", "A.org:443", True),
        ("a.org", "a.org:8080", False),
        ("a.org:443", "a.org", False),
        ("*.a.org", "x.a.org", True),
        ("*.a.org", "a.org", False),
        ("*.a.org", "xa.org", False),
        ("*.a.org", "x.y.a.org:80", True),
        ("*", "x.org:22", True),
        ("a.org", "*", False),
        ("x.a.org", "*.a.org", False),
        ("[::1]:80", "[::1]:80", True),
    ],
)
def test_one_host_covers_another(own: str, wanted: str, covered: bool) -> None:
    assert host_covers(own, wanted) is covered
