"""What `--schema` prints becomes what providers take (seed-1)."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import UsageError
from satchel.tools.external import parse_schema
from tests.requirements import requirement

BASH = {
    "name": "bash",
    "description": "Execute a shell command",
    "parameters": {
        "command": {"type": "string", "description": "Command to execute", "required": True},
    },
    "returns": {"type": "object", "properties": {"stdout": {"type": "string"}}},
}


def parsed(value: Any) -> Any:
    return parse_schema(json.dumps(value).encode())


@requirement("external:schema:format")
def test_the_flat_form_becomes_a_json_schema_with_its_required_flags_collected() -> None:
    found = parsed(BASH)
    assert (found.name, found.description) == ("bash", "Execute a shell command")
    assert found.input_schema == {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "Command to execute"}},
        "required": ["command"],
    }


@requirement("external:schema:empty")
@pytest.mark.parametrize("parameters", [{}, None, "left out"])
def test_no_parameters_become_an_empty_object_without_a_required_list(parameters: Any) -> None:
    value = {"name": "now", "description": "Tells the time.", "parameters": parameters}
    if parameters == "left out":
        del value["parameters"]
    assert parsed(value).input_schema == {"type": "object", "properties": {}}


@requirement("external:schema:json-schema")
@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "number"}}},
    ],
)
def test_a_whole_json_schema_is_taken_as_it_is(parameters: Any) -> None:
    assert parsed({"name": "x", "parameters": parameters}).input_schema == parameters


def test_a_whole_json_schema_without_its_type_is_recognised() -> None:
    found = parsed({"name": "x", "parameters": {"properties": {"a": {"type": "string"}}, "required": ["a"]}})
    assert found.input_schema == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
    }


def test_parameters_that_are_called_type_and_properties_are_parameters() -> None:
    flat = {
        "type": {"type": "string", "required": True},
        "properties": {"type": "object", "description": "Of the thing."},
    }
    assert parsed({"name": "x", "parameters": flat}).input_schema == {
        "type": "object",
        "properties": {"type": {"type": "string"}, "properties": flat["properties"]},
        "required": ["type"],
    }


def test_a_nested_object_keeps_its_own_list_of_required_fields() -> None:
    nested = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    found = parsed({"name": "x", "parameters": {"at": nested}})
    assert found.input_schema == {"type": "object", "properties": {"at": nested}}


@pytest.mark.parametrize(
    ("effects", "reads", "writes"),
    [(["a"], (), ("a",)), ({"reads": ["a"], "writes": ["b"]}, ("a",), ("b",)), (None, (), ())],
)
def test_effects_name_the_fields_that_are_paths(effects: Any, reads: Any, writes: Any) -> None:
    parameters = {"a": {"type": "string"}, "b": {"type": "string"}}
    found = parsed({"name": "x", "parameters": parameters, "effects": effects})
    assert (found.reads, found.writes) == (reads, writes)


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (b"", "printed nothing"),
        (b'{"name": "x", "desc', "JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1]", "not an object"),
        (b'{"description": "d"}', 'no "name"'),
        (b'{"name": "two words"}', "64 letters"),
        (b'{"name": "' + b"n" * 300 + b'"}', "64 letters"),
        (b'{"name": "mcp__a__b"}', "reserved prefix"),
        (b'{"name": "cap_a"}', "reserved prefix"),
        (b'{"name": "x", "description": 7}', "description"),
        (b'{"name": "x", "parameters": ["a"]}', "not an object"),
        (b'{"name": "x", "parameters": {"a": "string"}}', "must be an object"),
        (b'{"name": "x", "parameters": {"a": {"type": "strin"}}}', "is invalid"),
        (b'{"name": "x", "parameters": {"a": {"required": "yes"}}}', "true or false"),
        (b'{"name": "x", "parameters": {"a b": {"type": "string"}}}', "64 letters"),
        (b'{"name": "x", "parameters": {"type": "string"}}', 'the type must be "object"'),
        (b'{"name": "x", "parameters": {"a": {"$ref": "https://example.com/s"}}}', "outside of itself"),
        (b'{"name": "x", "effects": ["a"]}', "not one of its parameters"),
        (b'{"name": "x", "parameters": {"a": {"maximum": NaN}}}', "JSON"),
        (b'{"name": "x", "a": ' + b"[" * 100_000, "JSON"),
        (b'{"name": "x", "parameters": {"a": ' + b'{"items": ' * 400 + b"{}" + b"}" * 401 + b"}", ""),
        (b" " * 300_000, "more than"),
        (
            '{"name": "x", "parameters": {"a": {"type": "string", "enum": ["b\u200b"]}}}'.encode(),
            r"invisible character U\+200B",
        ),
    ],
    ids=lambda part: part[:40].decode("latin-1") if isinstance(part, bytes) else "",
)
def test_what_is_no_definition_is_refused_with_a_reason(printed: bytes, reason: str) -> None:
    if not reason:
        # Deep and valid: it may be taken or refused, and must not break anything.
        with contextlib.suppress(UsageError):
            parse_schema(printed)
        return
    with pytest.raises(UsageError, match=reason):
        parse_schema(printed)


@requirement("tools:invisible-characters")
def test_descriptions_show_their_invisible_characters() -> None:
    parameters = {"a": {"type": "string", "description": "x\u202e"}}
    found = parsed({"name": "x", "description": "Adds.\U000e0041", "parameters": parameters})
    assert found.description == "Adds.<U+E0041>"
    assert found.input_schema["properties"]["a"]["description"] == "x<U+202E>"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.dictionaries(
    st.sampled_from(["type", "properties", "required", "a", "items", "$ref", "enum"]),
    JSON
    | st.sampled_from(["object", "string", ["a"], {"type": "string"}, {"type": "string", "required": True}]),
    max_size=4,
)


@given(PARTS)
def test_whatever_parameters_are_they_become_a_valid_schema_or_an_error(parameters: Any) -> None:
    try:
        found = parsed({"name": "x", "description": "", "parameters": parameters})
    except UsageError:
        return
    assert found.input_schema["type"] == "object"
    assert isinstance(found.input_schema["properties"], dict)
    jsonschema.Draft202012Validator.check_schema(found.input_schema)
