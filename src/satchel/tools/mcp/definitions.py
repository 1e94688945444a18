"""What an MCP server says its tools are: read, checked, named for the model, and told apart by a hash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from satchel.tools.port import Annotations

__all__ = ["Definition", "Listing", "full_names", "left_out", "read_listing", "readable", "visible"]

MAX_NAME = 64
"""Characters of a tool's name that both wire formats take."""
MAX_DESCRIPTION = 4_000
"""Characters of a description that go into the prompt; the longest of the reference servers has 2,600."""
MAX_SCHEMA = 65_536
"""Characters of one input schema as JSON: more is a document and no signature."""
MAX_LISTED_NAME = 300
"""Characters of a name in a server's list; ours for it is cut to `MAX_NAME`."""
MAX_TOOLS = 1_000
"""Of one server; more are left out with a reason."""
_SHORT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One tool of a server, as the server describes it.

    Attributes:
        name: The server's own name for it.
        hints: `readOnlyHint` and the like, as far as they are booleans; what a stranger says of itself.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    hints: Mapping[str, bool]

    @property
    def sha256(self) -> str:
        """Of everything that a model or a permission could depend on, in hexadecimal."""
        written = json.dumps(
            [self.name, self.description, self.input_schema, self.hints], sort_keys=True, ensure_ascii=True
        )
        return hashlib.sha256(written.encode()).hexdigest()

    @property
    def annotations(self) -> Annotations:
        """The hints in our words; what is not said is read cautiously."""
        is_read_only = self.hints.get("readOnlyHint", False)
        return Annotations(
            read_only=is_read_only,
            destructive=self.hints.get("destructiveHint", True) and not is_read_only,
            idempotent=self.hints.get("idempotentHint", False),
            open_world=self.hints.get("openWorldHint", True),
        )

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": dict(self.input_schema),
            "annotations": dict(self.hints),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The tools of a server by name, in the order of their names, and why others were left out."""

    tools: tuple[Definition, ...] = ()
    problems: tuple[str, ...] = ()


def read_listing(server: str, raw: Iterable[Mapping[str, Any]], *, is_known: bool = False) -> Listing:
    """Read what a server listed, or what was kept of it; nothing in it is taken for granted.

    Args:
        server: The name of its entry, for the reasons.
        raw: Each with `name`, `description`, `inputSchema`, `annotations`, as in the protocol.
        is_known: It went through here before: the schemas, whose check takes long, are as they should be.
    """
    found: dict[str, Definition] = {}
    problems: list[str] = []
    for position, entry in enumerate(raw):
        if position >= MAX_TOOLS:
            problems.append(
                f"MCP server {server}: it lists more than {MAX_TOOLS:,} tools; the rest is left out."
            )
            break
        definition = _read(entry, is_known=is_known)
        if isinstance(definition, str):
            problems.append(left_out(server, str(entry.get("name", "")), definition))
        elif definition.name in found:
            problems.append(f"MCP server {server}: the tool {definition.name[:_SHORT]!r} is listed twice.")
        else:
            found[definition.name] = definition
    return Listing(tools=tuple(found[name] for name in sorted(found)), problems=tuple(problems))


def left_out(server: str, tool: str, reason: str) -> str:
    """The sentence about a tool that is not offered."""
    return f"MCP server {server}: the tool {tool[:_SHORT]!r} was left out: {reason}."


def readable(entry: object) -> dict[str, Any] | str:
    """A tool in a list as the protocol allows it, without what is of no use; or why it is none."""
    if not isinstance(entry, Mapping):
        return "it is no object"
    name, schema = entry.get("name"), entry.get("inputSchema")
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_LISTED_NAME:
        return f"a name has 1 to {MAX_LISTED_NAME} characters"
    if not isinstance(schema, Mapping):
        return "it has no input schema"
    kind = schema.get("type", "object")
    if kind != "object":
        return f"its input schema is of type {str(kind)[:_SHORT]!r} and must be 'object'"
    found: dict[str, Any] = {"name": name, "inputSchema": {**schema, "type": "object"}}
    found |= {key: entry[key] for key in ("title", "description") if isinstance(entry.get(key), str)}
    output, hints = entry.get("outputSchema"), entry.get("annotations")
    if isinstance(output, Mapping):
        found["outputSchema"] = {**output}
    if isinstance(hints, Mapping):
        found["annotations"] = {
            key: value for key, value in hints.items() if key.endswith("Hint") and isinstance(value, bool)
        }
    return found


def _read(entry: Mapping[str, Any], *, is_known: bool) -> Definition | str:
    """The definition, or what is wrong with it."""
    found = readable(entry)
    if isinstance(found, str):
        return found
    name, description = found["name"], visible(found.get("description", ""))
    schema, hints = found["inputSchema"], found.get("annotations", {})
    checked = dict(schema) if is_known else _schema(schema)
    if isinstance(checked, str):
        return checked
    return Definition(
        name=name,
        description=description
        if len(description) <= MAX_DESCRIPTION
        else f"{description[:MAX_DESCRIPTION]} …",
        input_schema=checked,
        hints=dict(sorted(hints.items())),
    )


def _schema(schema: Mapping[str, Any]) -> dict[str, Any] | str:
    # Some endpoints refuse the dialect's address, and every validator here speaks the newest one.
    cleaned = _told({key: value for key, value in schema.items() if key != "$schema"})
    try:
        size = len(json.dumps(cleaned))
    except (RecursionError, ValueError, TypeError):
        return "its input schema is nested too deeply or is no JSON"
    if size > MAX_SCHEMA:
        return f"its input schema has {size:,} characters and may have {MAX_SCHEMA:,}"
    outside = _outside_reference(cleaned)
    if outside:
        return f"its input schema refers to {outside[:_SHORT]!r}, outside of itself"
    # Imported when a server's tools are read: 60 ms that other sessions never pay.
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415

    try:
        Draft202012Validator.check_schema(cleaned)
    except SchemaError as error:
        return f"its input schema is none: {error.message[:_SHORT]}"
    except RecursionError:
        return "its input schema is nested too deeply"
    return cleaned


def visible(text: str) -> str:
    """A stranger's text without what a person can't see and a model can read, and what moves a terminal's cursor."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def _told(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its titles and descriptions made `visible`, at any depth that JSON can have here."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            for key, value in part.items():
                if key in ("title", "description") and isinstance(value, str):
                    part[key] = visible(value)
                elif isinstance(value, dict | list):
                    waiting.append(value)
        else:
            waiting.extend(each for each in part if isinstance(each, dict | list))
    return schema


def _outside_reference(schema: object) -> str:
    """The first reference to another document: it would be fetched from an address of the server's choice."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            for key, value in part.items():
                if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
                    return value
                waiting.append(value)
        elif isinstance(part, list | tuple):
            waiting.extend(part)
    return ""


def full_names(server: str, names: Sequence[str]) -> dict[str, str]:
    """`mcp__server__tool` for each tool: of allowed characters, at most 64 of them, and unique in the server.

    The same tools get the same names in every process, whatever order they are listed in: a name that had to be
    cut, or that another one takes, ends in a hash of the whole.
    """
    taken: dict[str, str] = {}
    for name in sorted(names):
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", f"mcp__{server}__{name}")
        if len(plain) > MAX_NAME or plain in taken.values():
            digest = hashlib.sha256(f"{server}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
            plain = f"{plain[: MAX_NAME - 9]}_{digest}"
        taken[name] = plain
    return taken
