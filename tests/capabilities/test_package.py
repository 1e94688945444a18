"""What may be the contents of a capability: hostile drafts, manifests, schemas, names and cases."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.capabilities.archive import pack, unpack
from satchel.capabilities.cases import Case, judge, parse_cases
from satchel.capabilities.package import Draft, Package, draft_of, make_package, read_package
from satchel.capabilities.records import Provenance, check_name, skill_name
from satchel.clock import ManualClock
from satchel.errors import UsageError
from tests.capabilities.world import CITY, GREET, draft
from tests.requirements import requirement

NOW = ManualClock().now()


def made(spoilt: Draft = GREET, name: str = "greet") -> Package:
    return make_package(name, 1, spoilt, provenance=Provenance(model="m"), created_at=NOW, now=NOW)


NAMES = [
    "../../x", "a" * 10_000, "", "A", "1a", "a-b", "a b", "a/b", "a.b", "_a", "ä", "a\n", "a\0", "\ud800", "con.", "a" * 61,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="can't be the name"):
        check_name(name)
    files = dict(made().files)
    manifest = {**json.loads(files["manifest.json"]), "name": name}
    files["manifest.json"] = json.dumps(manifest).encode()
    with pytest.raises(UsageError, match="can't be the name"):
        read_package(files)


@given(st.from_regex(r"[a-z][a-z0-9_]{0,59}", fullmatch=True))
def test_every_name_gives_a_valid_name_of_an_agent_skill(name: str) -> None:
    assert check_name(name) == name
    skill = skill_name(name)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", skill)
    assert len(skill) <= 64


DEEP: dict[str, Any] = {"type": "object"}
for _ in range(500):
    DEEP = {"type": "object", "properties": {"x": DEEP}}
DRAFTS: dict[str, tuple[dict[str, Any], str]] = {
    "no code": ({"code": "  "}, "main.py is empty"),
    "no run": ({"code": "x = 1\n"}, "has no function `def run"),
    "async run": ({"code": "async def run(args):\n    return ''\n"}, "not an async one"),
    "run without an argument": ({"code": "def run():\n    return ''\n"}, "takes one argument"),
    "bad syntax": ({"code": "def run(args:\n"}, "not valid Python: line 1"),
    "null bytes": ({"code": "def run(args):\n    return '\0'\n"}, "null character"),
    "nested too deeply": ({"code": "def run(args):\n    return " + "(" * 5000 + ")" * 5000}, "Python"),
    "huge code": ({"code": "def run(args):\n    return ''\n#" + "x" * 300_000}, "at most 256,000 bytes"),
    "no description": ({"description": " "}, "`description` says"),
    "long description": ({"description": "x" * 1025}, "at most 1,024 characters"),
    "half a character": ({"description": "\ud800"}, "lone surrogate"),
    "description is no text": ({"description": 3}, "`description` says"),
    "schema is a list": ({"input_schema": []}, "`input_schema` is a JSON Schema"),
    "schema is a string": ({"input_schema": "object"}, "`input_schema` is a JSON Schema"),
    "schema of another type": ({"input_schema": {"type": "string"}}, 'of type "object"'),
    "schema is none": ({"input_schema": {"type": "object", "properties": 3}}, "is invalid"),
    "schema refers elsewhere": ({"input_schema": {"type": "object", "$ref": "file:///etc/passwd"}}, "outside of itself"),
    "schema is huge": ({"input_schema": {"type": "object", "description": "x" * 70_000}}, "at most 65,536"),
    "schema is deep": ({"input_schema": DEEP}, "input_schema"),
    "output schema is none": ({"output_schema": {"type": 3}}, "`output_schema`"),
    "tags": ({"tags": ["a\nb"]}, "`tags`"),
    "tags are no list": ({"tags": "abc"}, "`tags` is a list"),
    "many tags": ({"tags": ["x"] * 33}, "at most 32"),
    "a secret in lowercase": ({"secrets": ["path"]}, "`secrets`"),
    "a secret with a value": ({"secrets": ["KEY=abc"]}, "`secrets`"),
    "a host with a path": ({"hosts": ["a.example/x"]}, "`hosts`"),
    "a URL as host": ({"hosts": ["https://a.example"]}, "`hosts`"),
    "all hosts": ({"hosts": ["*"]}, "`hosts`"),
    "a star in the middle": ({"hosts": ["a.*.example"]}, "`hosts`"),
    "port 0": ({"hosts": ["a.example:0"]}, "from 1 to 65535"),
    "port 65536": ({"hosts": ["a.example:65536"]}, "from 1 to 65535"),
    "state is no boolean": ({"state": "yes"}, "`state`"),
    "unknown limits": ({"limits": {"cpu": 1}}, "`limits` knows"),
    "too long a limit": ({"limits": {"wall_s": 181}}, "from 1 to 180"),
    "true as a limit": ({"limits": {"mem_mb": True}}, "from 64 to 2048"),
    "a requirement with a newline": ({"requirements": ["a\n--index-url x"]}, "`requirements`"),
    "a file above": ({"files": {"../x": b""}}, "can't be the path"),
    "an absolute file": ({"files": {"/etc/x": b""}}, "can't be the path"),
    "a hidden file": ({"files": {".git/config": b""}}, "can't be the path"),
    "its own file": ({"files": {"manifest.json": b""}}, "own files"),
    "its link": ({"files": {"RUN.md": b""}}, "own files"),
    "a file and a folder": ({"files": {"a": b"", "a/b": b""}}, "both a file and a folder"),
    "two cases of a name": ({"files": {"A.txt": b"", "a.txt": b""}}, "only in case"),
    "a huge file": ({"files": {"x.bin": b"x" * 1_000_001}}, "at most 1,000,000"),
    "huge together": ({"files": {f"{n}.bin": b"x" * 900_000 for n in range(5)}}, "4,000,000 bytes together"),
    "many files": ({"files": {f"f{n}": b"" for n in range(65)}}, "at most 64 files"),
    "no cases": ({"cases": ""}, "no case with a result"),
    "only refusals": ({"cases": '{"input": {}, "expect": {"error": "x"}}\n'}, "no case with a result"),
    "no refusal": ({"cases": '{"input": {"city": "x"}, "expect": {"equals": "x"}}\n'}, "no case with a bad input"),
    "cases are no JSON": ({"cases": "{"}, "line 1: it is not JSON"),
    "a case needs a host": ({"cases": GREET.cases.replace('"name": "A', '"network": true, "name": "A')}, "`hosts` is empty"),
}  # fmt: skip


@pytest.mark.parametrize("what", DRAFTS)
def test_a_hostile_draft_is_refused_with_the_reason(what: str) -> None:
    changes, reason = DRAFTS[what]
    with pytest.raises(UsageError) as refused:
        made(draft(**changes))
    assert reason in str(refused.value)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(UsageError) as refused:
        made(draft(code="", description="", tags=["\n"], cases="{"))
    assert len(str(refused.value).splitlines()) == 4


TAMPERINGS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "version 0": (lambda m: m.update(version=0), "`version`"),
    "version true": (lambda m: m.update(version=True), "`version`"),
    "no digests": (lambda m: m.pop("sha256"), "`sha256`"),
    "digests as a list": (lambda m: m.update(sha256=[]), "`sha256`"),
    "a wrong digest": (lambda m: m["sha256"].update({"main.py": "0"}), "main.py"),
    "nested digests": (lambda m: m.update(sha256={"main.py": {}}), "sha256"),
    "more hosts than a list": (lambda m: m.update(hosts="a.example"), "`hosts` is a list"),
    "a schema from elsewhere": (
        lambda m: m.update(input_schema={"type": "object", "$ref": "http://x"}),
        "outside",
    ),
    "no name": (lambda m: m.pop("name"), "name"),
    "a name that is a list": (lambda m: m.update(name=["greet"]), "name"),
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_a_manifest_that_was_tampered_with_is_refused(what: str) -> None:
    change, reason = TAMPERINGS[what]
    files = dict(made().files)
    manifest = json.loads(files["manifest.json"])
    change(manifest)
    files["manifest.json"] = json.dumps(manifest).encode()
    with pytest.raises(UsageError) as refused:
        read_package(files)
    assert reason in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'{"name": 1}'])
def test_a_manifest_that_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError):
        read_package({**made().files, "manifest.json": content})


@given(
    st.builds(
        dict,
        description=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=200).filter(str.strip),
        document=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=200),
        tags=st.lists(st.from_regex(r"[a-z]{1,10}", fullmatch=True), max_size=3),
        hosts=st.lists(st.sampled_from(["a.example", "b.example:8443", "*.c.example", "127.0.0.1:80"]), unique=True),
        files=st.dictionaries(st.from_regex(r"[a-z]{1,8}/[a-z]{1,8}\.txt", fullmatch=True), st.binary(max_size=50), max_size=3),
    )
)  # fmt: skip
def test_a_package_reads_back_as_what_it_was_made_of(fields: dict[str, Any]) -> None:
    package = made(draft(**fields))
    assert read_package(package.files) == package
    assert unpack(pack(package.files)) == package.files
    assert unpack(pack(package.files, folder="greet")) == package.files
    again = draft_of(package)
    assert (again.code, again.cases, again.input_schema) == (GREET.code, GREET.cases, CITY)
    assert again.files == fields["files"]
    assert made(again).manifest.access == package.manifest.access


@requirement("capabilities:folder")
def test_the_document_is_a_valid_agent_skill_whatever_the_description_says() -> None:
    yaml = pytest.importorskip("yaml")
    for description in (
        'Says "hi": #1',
        "- a\n- b",
        "yes",
        "---",
        "{x}",
        "a: b",
        "it's 'so'",
        "\u2028 odd \u0085",
    ):
        document = made(draft(description=description), name="yes").document
        head, front, body = document.split("---\n", 2)
        assert head == ""
        read = yaml.safe_load(front)
        assert read["name"] == "yes"
        assert read["description"] == " ".join(description.split())
        assert read["metadata"] == {"satchel-name": "yes", "satchel-version": "1"}
        assert body.startswith("# yes\n")


# ---- Cases


@pytest.mark.parametrize(
    ("expect", "result", "passes"),
    [
        ({"equals": "a"}, "a", True),
        ({"equals": "a"}, "a ", False),
        ({"contains": "b"}, "abc", True),
        ({"contains": ["a", "z"]}, "abc", False),
        ({"lacks": ["z"]}, "abc", True),
        ({"lacks": "b"}, "abc", False),
        ({"matches": r"^\d+ °C$"}, "12 °C", True),
        ({"matches": r"^\d+$"}, "x", False),
        ({"matches": "(a+)+$"}, "a" * 100_000 + "b", False),
        ({"json": {"type": "array"}}, "[1]", True),
        ({"json": {"type": "array"}}, "{}", False),
        ({"json": {"type": "array"}}, "[", False),
        ({"json": {}}, "[" * 100_000, False),
        ({"contains": "a", "lacks": "b", "equals": "a"}, "a", True),
        ({"error": "city"}, "fine", False),
    ],
)
def test_the_property_language(expect: dict[str, Any], result: str, passes: bool) -> None:
    [case] = parse_cases(json.dumps({"name": "c", "input": {}, "expect": expect}))
    assert (judge(case, result=result, complaint="") == "") is passes


@pytest.mark.parametrize(
    ("complaint", "passes"), [("No CITY given", True), ("city", True), ("no town", False), ("", False)]
)
def test_a_refusal_is_compared_without_case(complaint: str, passes: bool) -> None:
    case = Case(name="c", input={}, expect={"error": "city"})
    assert (judge(case, result=None, complaint=complaint) == "") is passes


def test_a_case_with_a_result_fails_if_there_is_none() -> None:
    case = Case(name="c", input={}, expect={"lacks": "x"})
    assert judge(case, result=None, complaint="it broke") == "it failed: 'it broke'"


@pytest.mark.parametrize(
    "line",
    [
        "3", "[]", "{}", '{"input": {}}', '{"input": [], "expect": {"equals": ""}}', '{"input": {}, "expect": {}}',
        '{"input": {}, "expect": "x"}', '{"input": {}, "expect": {"is": "x"}}', '{"input": {}, "expect": {"equals": 3}}',
        '{"input": {}, "expect": {"error": ""}}', '{"input": {}, "expect": {"error": "x", "equals": "y"}}',
        '{"input": {}, "expect": {"contains": []}}', '{"input": {}, "expect": {"matches": "("}}',
        '{"input": {}, "expect": {"matches": "(?=x)"}}', '{"input": {}, "expect": {"json": []}}',
        '{"input": {}, "expect": {"json": {"$ref": "file:///etc/passwd"}}}', '{"input": {}, "expect": {"equals": "x"}, "x": 1}',
        '{"name": "", "input": {}, "expect": {"equals": "x"}}', '{"input": {}, "expect": {"equals": "x"}, "network": 1}',
        '{"input": {"x": "' + "y" * 70_000 + '"}, "expect": {"equals": "x"}}', "[" * 50_000,
    ],
)  # fmt: skip
def test_a_line_that_is_no_case_is_named(line: str) -> None:
    with pytest.raises(UsageError, match="line 1"):
        parse_cases(line)


def test_two_cases_of_a_name_and_too_many_cases_are_refused() -> None:
    one = '{"name": "a", "input": {}, "expect": {"equals": "x"}}\n'
    with pytest.raises(UsageError, match="two cases are named 'a'"):
        parse_cases(one * 2)
    with pytest.raises(UsageError, match="more than 50"):
        parse_cases("".join(one.replace('"a"', f'"{n}"') for n in range(60)))


@given(st.text())
def test_any_text_is_read_as_cases_or_refused(text: str) -> None:
    with suppress(UsageError):
        assert all(case.expect for case in parse_cases(text))
