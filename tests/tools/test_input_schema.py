"""Inputs checked against a stranger's schema: exactly where that is cheap, and never for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from satchel.errors import UsageError
from satchel.tools.input_schema import InputSchema, check_schema
from tests.requirements import requirement

Schema = dict[str, Any]


def of(part: Any, **more: Any) -> Schema:
    return {"type": "object", "properties": {"a": part}, **more}


def doubling(keyword: str, levels: int = 40) -> Schema:
    """A schema of which each level has the next one twice: 2^levels ways down."""
    parts: Schema = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return of({"$ref": "#/$defs/d0"}, **{"$defs": {**parts, f"d{levels}": {"type": "string"}}})


def nested(levels: int) -> Schema:
    schema: Schema = {}
    for _ in range(levels):
        schema = {"items": schema}
    return of(schema)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


TWO_WAYS: Schema = {
    "anyOf": [
        {"properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["p"]},
        {"properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["q"]},
    ]
}


def chain(levels: int) -> Mapping[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


BACKTRACKING = (
    "^(a+)+$",
    "^(a|a)*$",
    "^(a|aa)+$",
    "(x+x+)+y",
    "^([a-zA-Z]+)*$",
    "(.*a){25}$",
    "^(([a-z])+.)+[A-Z]$",
)
BAIT = "a" * 5_000 + "!"


@requirement("tools:schema:bounded")
@pytest.mark.parametrize("pattern", BACKTRACKING)
def test_a_pattern_that_backtracks_for_ever_elsewhere_is_matched_at_once(pattern: str) -> None:
    [problem] = InputSchema(of({"pattern": pattern})).problems({"a": BAIT})
    assert problem.startswith("$.a: 'aaaa")
    for schema in (
        {"patternProperties": {pattern: {"type": "string"}}, "additionalProperties": True},
        {"propertyNames": {"pattern": pattern}},
        {"patternProperties": {pattern: {}}, "unevaluatedProperties": False},
        of({"$schema": "http://json-schema.org/draft-07/schema#", "pattern": pattern}),
    ):
        InputSchema({"type": "object", **schema}).problems({BAIT: 1, "a": BAIT})


@requirement("tools:schema:bounded")
@pytest.mark.parametrize(
    ("schema", "input"),
    [
        pytest.param(doubling("allOf"), {"a": "x"}, id="references that double, all of them"),
        pytest.param(doubling("anyOf"), {"a": 1}, id="references that double, any of them"),
        pytest.param(doubling("oneOf"), {"a": 1}, id="references that double, one of them"),
        pytest.param(
            of({"$ref": "#/$defs/n"}, **{"$defs": {"n": TWO_WAYS}}),
            {"a": chain(40)},
            id="two ways at each level of the input",
        ),
        pytest.param(
            {**doubling("allOf"), "unevaluatedProperties": False, "allOf": [{"$ref": "#/$defs/d0"}]},
            {"a": "x"},
            id="unevaluated properties behind doubling references",
        ),
        pytest.param(
            of({"items": {"enum": [str(n) for n in range(5_000)]}}),
            {"a": ["x"] * 20_000},
            id="a long enum for many items",
        ),
        pytest.param(
            of({"items": {"const": [[n] for n in range(5_000)]}}),
            {"a": [[[n] for n in range(4_999)]] * 1_000},
            id="a long constant for many items",
        ),
        pytest.param(
            of({"anyOf": [{"type": "integer"}] * 3_000}),
            {"a": "x" * 200_000},
            id="an error that quotes a long text for each branch",
        ),
        pytest.param(
            of({"contains": {"enum": [[n] for n in range(3_000)]}}),
            {"a": [[-1]] * 30_000},
            id="contains, compared with many",
        ),
        pytest.param(nested(300), {"a": []}, id="a schema of 300 levels"),
        pytest.param(
            of({"$ref": "#/$defs/l"}, **{"$defs": {"l": {"items": {"$ref": "#/$defs/l"}}}}),
            {"a": deep(3_000)},
            id="an input of 3,000 levels",
        ),
        pytest.param(of({"$ref": "#/properties/a"}), {"a": 1}, id="a reference to itself"),
        pytest.param({"$ref": "#"}, {"a": 1}, id="a schema that is a reference to itself"),
        pytest.param(
            {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
            {},
            id="references in a circle",
        ),
    ],
)
def test_a_schema_that_takes_too_long_to_check_is_refused(schema: Schema, input: Mapping[str, Any]) -> None:
    with pytest.raises(UsageError, match="too large|too complex|too deeply"):
        InputSchema(schema).problems(input)


@requirement("tools:schema:bounded")
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (of({"$ref": "http://h/x"}), "outside of itself"),
        (of({"$ref": "other.json"}), "outside of itself"),
        (of({"items": [{"$dynamicRef": "file:///etc/passwd"}]}), "outside of itself"),
        (of({"type": "strin"}), r"is invalid: at \$\.properties\.a\.type"),
        (of({"pattern": "("}), "which is invalid: missing"),
        (of({"patternProperties": {"[": {}}}), "which is invalid: missing"),
        (nested(500), "nested too deeply"),
        (of({"anyOf": [{"type": "string"}] * 60_000}), "too large or too complex"),
    ],
)
def test_a_schema_that_is_not_acceptable_is_refused_when_it_is_found(schema: Schema, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check_schema(schema)


@requirement("tools:schema:bounded")
def test_a_schema_that_is_nested_too_deeply_is_refused_at_any_depth_of_the_stack() -> None:
    def check(frames: int) -> None:
        if frames:
            check(frames - 1)
            return
        with pytest.raises(UsageError, match="nested too deeply"):
            check_schema(nested(500))

    for frames in range(0, 60):
        check(frames)


@requirement("tools:schema:bounded")
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_no_document_is_fetched_whatever_a_schema_calls_itself(keyword: str) -> None:
    asked: list[str] = []
    with http_server(asked) as address:
        hidden = {"$id": f"{address}/evil.json", keyword: "#/definitions/a"}
        schema = of({"$ref": "#/elsewhere"}, elsewhere=hidden)
        with pytest.raises(UsageError, match="which is not in it"):
            InputSchema(schema).problems({"a": 1})
    assert asked == []


@pytest.mark.parametrize(
    ("part", "fits", "fits_not"),
    [
        ({"pattern": "^\\d{4}-\\d\\d$"}, "2026-11", "2026-1"),
        ({"pattern": "b"}, "abc", "ac"),
        ({"pattern": "^a$"}, "a", "a\n"),
        ({"pattern": "^[\\u4e00-\\u9fff]+$"}, "漢字", "kanji"),
        ({"pattern": "^\\p{Lu}"}, "Äx", "äx"),
        ({"pattern": "^(?<year>\\d+)$"}, "2026", "x"),
        ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}], [{"a": [1.0]}, {"a": [1]}]),
        ({"enum": ["a", 1, None, {"b": [2]}]}, {"b": [2]}, True),
        ({"const": {"b": [2]}}, {"b": [2]}, {"b": [2, 2]}),
        (
            {
                "type": "object",
                "additionalProperties": False,
                "patternProperties": {"^x": {"type": "integer"}},
            },
            {"x1": 1},
            {"y": 1},
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"y": 1}, {"y": "z"}),
        ({"$ref": "#/$defs/tree"}, {"v": 1, "c": [{"v": 2}]}, {"v": 1, "c": [{"v": "2"}]}),
        # Only the tool can tell: such a pattern is not matched in linear time.
        ({"pattern": "^(?!x)"}, "x", None),
    ],
)
def test_what_is_cheap_is_checked_as_json_schema_says(part: Schema, fits: Any, fits_not: Any) -> None:
    tree = {"properties": {"v": {"type": "integer"}, "c": {"items": {"$ref": "#/$defs/tree"}}}}
    schema = InputSchema(of(part, **{"$defs": {"tree": tree}}))
    assert schema.problems({"a": fits}) == []
    assert fits_not is None or len(schema.problems({"a": fits_not})) == 1


def test_an_input_as_large_as_a_model_can_write_is_checked() -> None:
    rows = {
        "type": "array",
        "items": {"type": "object", "properties": {f"c{n}": {"type": "string"} for n in range(10)}},
    }
    assert InputSchema(of(rows)).problems({"a": [{f"c{n}": "x" for n in range(10)}] * 1_500}) == []


@contextmanager
def http_server(asked: list[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
