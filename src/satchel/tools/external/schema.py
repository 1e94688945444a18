"""Parses the output of `--schema` into a definition that providers accept (seed-1, "Tool Schema Format")."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from satchel.errors import UsageError
from satchel.tools.input_schema import check_schema
from satchel.tools.visible import hidden_in_schema, visible, visible_schema
from satchel.wording import one_line

MAX_SCHEMA_BYTES = 262_144
"""The most that `--schema` may print: ten times the longest definition that a model could use."""
MAX_DESCRIPTION_CHARS = 16_384
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The tool names that both wire formats accept."""
PARAMETER = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""The parameter names that Anthropic accepts; OpenAI accepts more."""
RESERVED = ("cap_", "mcp__")
"""Prefixes that belong to other sources of tools."""
EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDefinition:
    """What a tool says about itself.

    Attributes:
        input_schema: JSON Schema of type "object".
        reads: Input fields with paths that a call reads.
        writes: Input fields with paths that a call writes.
        returns: A description of its results, usually a JSON Schema, or None. It is shown to users and never sent to
            a model.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    returns: Mapping[str, Any] | None = None


def parse_schema(printed: bytes) -> ExternalDefinition:
    """Parse the output of `--schema`. Unknown fields are ignored. It is UTF-8, and its `parameters` are either flat,
    `{name: {type, description, required}}`, or a complete JSON Schema.

    Raises:
        UsageError: It does not define a tool. The message says what is wrong and fits after "it was skipped:".
    """
    value = _json(printed)
    if not isinstance(value, dict):
        _wrong("--schema printed JSON that is not an object")
    name = value.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        _wrong(
            f"its name is {_short(name)}, but a name must have 1 to 64 letters, digits, underscores and hyphens"
            if isinstance(name, str)
            else 'its schema has no "name"'
        )
    if name.startswith(RESERVED):
        _wrong(f"its name {name!r} begins with a reserved prefix ({', '.join(RESERVED)})")
    description = value.get("description", "")
    if not isinstance(description, str) or len(description) > MAX_DESCRIPTION_CHARS:
        _wrong(f'its "description" is not a text of at most {MAX_DESCRIPTION_CHARS:,} characters')
    schema = _input_schema(value.get("parameters"))
    reads, writes = _effects(value.get("effects"), schema)
    returns = value.get("returns")
    return ExternalDefinition(
        name=name,
        description=_clean(description),
        input_schema=schema,
        reads=reads,
        writes=writes,
        # It is only shown, so a malformed one is left out and the tool is still used.
        returns=visible_schema(returns)
        if isinstance(returns, dict) and not hidden_in_schema(returns)
        else None,
    )


def definition_from_json(value: Any) -> ExternalDefinition:
    """A definition out of the JSON data of its fields.

    Raises:
        KeyError, TypeError, ValueError: It is damaged.
    """
    if not NAME.fullmatch(value["name"]) or value["input_schema"]["type"] != "object":
        raise ValueError("not a definition")
    return ExternalDefinition(
        name=value["name"],
        description=str(value["description"]),
        input_schema=dict(value["input_schema"]),
        reads=tuple(map(str, value["reads"])),
        writes=tuple(map(str, value["writes"])),
        returns=dict(value["returns"]) if value["returns"] is not None else None,
    )


def _json(printed: bytes) -> Any:
    if len(printed) > MAX_SCHEMA_BYTES:
        _wrong(f"--schema printed more than {MAX_SCHEMA_BYTES // 1024} KB")
    try:
        return printed_json(printed)
    except ValueError as error:
        _wrong(f"--schema did not print JSON: {error}")


def printed_json(printed: bytes) -> Any:
    """What a tool printed, as JSON data.

    Raises:
        ValueError: It is no JSON; says why, as a clause.
    """
    if not printed.strip():
        raise ValueError("it printed nothing")
    try:
        return json.loads(printed.decode("utf-8"), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1:,} is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(one_line(str(error), 200)) from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _input_schema(parameters: Any) -> Mapping[str, Any]:
    if parameters is None or parameters == {}:
        return dict(EMPTY)
    if not isinstance(parameters, dict):
        _wrong('its "parameters" is not an object')
    schema = _whole(parameters) if _is_whole(parameters) else _from_flat(parameters)
    _check(schema)
    hidden = hidden_in_schema(schema)
    if hidden:
        _wrong(f'a name or a value in its "parameters" contains the invisible character {hidden}')
    shown: Mapping[str, Any] = visible_schema(schema)
    return shown


def _is_whole(parameters: Mapping[str, Any]) -> bool:
    """Whether it is a complete JSON Schema. In the flat form, every value is an object that describes a parameter."""
    if isinstance(parameters.get("type"), str) or isinstance(parameters.get("required"), list):
        return True
    properties = parameters.get("properties")
    return isinstance(properties, dict) and all(isinstance(part, dict) for part in properties.values())


def _whole(parameters: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", **parameters}
    if schema["type"] != "object":
        _wrong(
            f'its "parameters" are a JSON Schema of type {_short(schema["type"])}, but the type must be "object"'
        )
    properties = schema.setdefault("properties", {})
    if not isinstance(properties, dict):
        _wrong('the "properties" of its "parameters" is not an object')
    _check_names(properties)
    return schema


def _from_flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    _check_names(parameters)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, part in parameters.items():
        if not isinstance(part, dict):
            _wrong(
                f"its parameter {name!r} is described by {_short(part)}, but it must be an object with a type"
            )
        flag = part.get("required", False)
        if isinstance(flag, list):
            # Not a flag, but the list of required fields in a nested object's schema.
            properties[name] = dict(part)
            continue
        if not isinstance(flag, bool):
            _wrong(f'"required" of its parameter {name!r} is {_short(flag)}, but it must be true or false')
        properties[name] = {key: value for key, value in part.items() if key != "required"}
        if flag:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema


def _check_names(properties: Mapping[str, Any]) -> None:
    for name in properties:
        if not PARAMETER.fullmatch(name):
            _wrong(
                f"a parameter is called {_short(name)}, but names must have 1 to 64 letters, digits, '_', '-' and '.'"
            )


def _check(schema: Mapping[str, Any]) -> None:
    try:
        check_schema(schema, subject='the schema in its "parameters"')
    except UsageError as error:
        _wrong(one_line(str(error), 200))


def _effects(value: Any, schema: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields that hold paths: `["path"]` (all of which are written) or `{"reads": […], "writes": […]}`."""
    if value is None:
        return (), ()
    parts = {"writes": value} if isinstance(value, list) else value
    if not isinstance(parts, dict) or not set(parts) <= {"reads", "writes"}:
        _wrong('its "effects" is neither a list of parameters nor an object with "reads" and "writes"')
    known = schema.get("properties", {})
    for names in parts.values():
        if not isinstance(names, list) or not all(isinstance(name, str) and name in known for name in names):
            _wrong('its "effects" names something that is not one of its parameters')
    return tuple(parts.get("reads", ())), tuple(parts.get("writes", ()))


def _clean(text: str) -> str:
    """The text with invisible characters escaped, and lone surrogates too, which requests can't contain."""
    return visible(text).strip()


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _wrong(reason: str) -> NoReturn:
    raise UsageError(f"{reason}.")
