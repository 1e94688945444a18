"""What an MCP server says of itself and its tools: read, checked, named for the model, and identified by a hash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from satchel.errors import UsageError
from satchel.tools.input_schema import check_schema
from satchel.tools.port import Annotations
from satchel.tools.visible import hidden_in, hidden_in_schema, visible, visible_schema

SERVER, RESOURCES, PROMPTS = "(server)", "(resources)", "(prompts)"
"""Names that no tool can have, under which is pinned what else a server says: its instructions, and that it offers
resources or prompts."""
RESERVED = frozenset({SERVER, RESOURCES, PROMPTS})
MAX_INSTRUCTIONS = 2_000
"""Characters of a server's instructions that go into the prompt: they are sent with every request."""

OUTPUT_SCHEMA_KEY = "satchel/outputSchema"
"""Where a tool's output schema is moved to in its `_meta`."""
MAX_NAME = 64
"""Characters of a tool's name that every provider accepts."""
MAX_DESCRIPTION = 4_000
"""Characters of a description that go into the prompt; the longest of the reference servers has 2,600."""
MAX_SCHEMA = 65_536
"""Characters of one input schema as JSON."""
MAX_LISTED_NAME = 300
"""Characters of a name in a server's list; ours for it is cut to `MAX_NAME`."""
MAX_TOOLS = 1_000
"""Tools of one server; the rest is left out with a reason."""
_SHORT = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class McpDefinition:
    """One tool of a server, as the server describes it; or, under a reserved name, what else it says.

    Attributes:
        name: The server's own name for it.
        hints: `readOnlyHint` and the like, as far as they are booleans: the server's claims about itself.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    hints: Mapping[str, bool]

    @property
    def sha256(self) -> str:
        """The hash of everything that a model or a permission could depend on, in hexadecimal."""
        written = json.dumps(
            [self.name, self.description, self.input_schema, self.hints], sort_keys=True, ensure_ascii=True
        )
        return hashlib.sha256(written.encode()).hexdigest()

    @property
    def annotations(self) -> Annotations:
        """The hints in Satchel's terms; a missing hint gets the cautious value."""
        is_read_only = self.hints.get("readOnlyHint", False)
        return Annotations(
            read_only=is_read_only,
            destructive=self.hints.get("destructiveHint", True) and not is_read_only,
            idempotent=self.hints.get("idempotentHint", False),
            open_world=self.hints.get("openWorldHint", True),
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON data; `read_listing` reads it back."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": dict(self.input_schema),
            "annotations": dict(self.hints),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolListing:
    """The tools of a server, sorted by name, and one sentence for each that was left out."""

    tools: tuple[McpDefinition, ...] = ()
    problems: tuple[str, ...] = ()


def read_listing(server: str, raw: Iterable[object], *, is_known: bool = False) -> ToolListing:
    """Read a server's list of tools, or what was stored of it. Nothing in it is trusted. Each entry has `name`,
    `description`, `inputSchema` and `annotations`, as in the protocol. If it `is_known`, because this function read it
    before, the slow check of its schema is skipped.
    """
    found: dict[str, McpDefinition] = {}
    problems: list[str] = []
    for position, entry in enumerate(raw):
        if position >= MAX_TOOLS:
            problems.append(
                f"MCP server {server}: it lists more than {MAX_TOOLS:,} tools; the rest is left out."
            )
            break
        definition = _read(entry, is_known=is_known)
        if isinstance(definition, str):
            name = entry.get("name", "") if isinstance(entry, Mapping) else ""
            problems.append(left_out(server, str(name), definition))
        elif definition.name in found:
            problems.append(f"MCP server {server}: the tool {definition.name[:_SHORT]!r} is listed twice.")
        else:
            found[definition.name] = definition
    return ToolListing(tools=tuple(found[name] for name in sorted(found)), problems=tuple(problems))


def about_server(instructions: str, *, resources: bool, prompts: bool) -> tuple[McpDefinition, ...]:
    """What a server says beside its tools, in the form in which those are pinned. The instructions are cut to
    `MAX_INSTRUCTIONS` characters.
    """
    text = visible(instructions.strip())
    if len(text) > MAX_INSTRUCTIONS:
        text = f"{text[:MAX_INSTRUCTIONS]} […]"
    said = {SERVER: bool(text), RESOURCES: resources, PROMPTS: prompts}
    return tuple(
        McpDefinition(
            name=name,
            description=text if name == SERVER else "",
            input_schema={"type": "object"},
            hints={},
        )
        for name, is_said in said.items()
        if is_said
    )


def left_out(server: str, tool: str, reason: str) -> str:
    """The sentence about a tool that is not offered."""
    return f"MCP server {server}: the tool '{visible(tool[:_SHORT])}' was left out: {reason}."


def readable(entry: object) -> dict[str, Any] | str:
    """The parts of a listed tool that the protocol allows and Satchel uses; or why it is not a tool."""
    if not isinstance(entry, Mapping):
        return "it is not an object"
    name, schema = entry.get("name"), entry.get("inputSchema")
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_LISTED_NAME:
        return f"a name has 1 to {MAX_LISTED_NAME} characters"
    hidden = hidden_in(name)
    if hidden:
        return f"its name contains the invisible character {hidden}"
    if not isinstance(schema, Mapping):
        return "it has no input schema"
    kind = schema.get("type", "object")
    if kind != "object":
        return f"its input schema is of type {str(kind)[:_SHORT]!r} and must be 'object'"
    found: dict[str, Any] = {"name": name, "inputSchema": {**schema, "type": "object"}}
    found |= {key: entry[key] for key in ("title", "description") if isinstance(entry.get(key), str)}
    output, hints = entry.get("outputSchema"), entry.get("annotations")
    if isinstance(output, Mapping):
        # Not where the SDK would find it, and match a stranger's patterns as Python does, for ever if need be.
        found["_meta"] = {OUTPUT_SCHEMA_KEY: {**output}}
    execution = entry.get("execution")
    if isinstance(execution, Mapping) and execution.get("taskSupport") in ("optional", "required"):
        found["execution"] = {"taskSupport": execution["taskSupport"]}
    if isinstance(hints, Mapping):
        found["annotations"] = {
            key: value for key, value in hints.items() if key.endswith("Hint") and isinstance(value, bool)
        }
    return found


def _read(entry: object, *, is_known: bool) -> McpDefinition | str:
    """The definition, or what is wrong with it."""
    found = readable(entry)
    if isinstance(found, str):
        return found
    name, description = found["name"], visible(found.get("description", ""))
    if name in RESERVED and not is_known:
        return "its name is reserved"
    schema, hints = found["inputSchema"], found.get("annotations", {})
    checked = dict(schema) if is_known else _schema(schema)
    if isinstance(checked, str):
        return checked
    return McpDefinition(
        name=name,
        description=description
        if len(description) <= MAX_DESCRIPTION
        else f"{description[:MAX_DESCRIPTION]} …",
        input_schema=checked,
        hints=dict(sorted(hints.items())),
    )


def _schema(schema: Mapping[str, Any]) -> dict[str, Any] | str:
    # Some endpoints refuse the dialect's address, and every validator here speaks the newest one.
    try:
        cleaned: dict[str, Any] = visible_schema({k: v for k, v in schema.items() if k != "$schema"})
        size = len(json.dumps(cleaned))
    except (RecursionError, ValueError, TypeError):
        return "its input schema is nested too deeply or is not JSON"
    if size > MAX_SCHEMA:
        return f"its input schema has {size:,} characters and may have {MAX_SCHEMA:,}"
    hidden = hidden_in_schema(cleaned)
    if hidden:
        return f"a name or a value in its input schema contains the invisible character {hidden}"
    try:
        check_schema(cleaned)
    except UsageError as error:
        return str(error)
    return cleaned


def sampling_name(server: str) -> str:
    """What permission rules call a server's requests to the model; no tool has this name."""
    return f"mcp__{server}__sampling"


def full_names(server: str, names: Sequence[str]) -> dict[str, str]:
    """`mcp__server__tool` for each tool: of allowed characters, at most 64 of them, and unique in the server.

    The same tools get the same names in every process, whatever order they are listed in: a name that had to be
    cut, or that something else has, ends in a hash of the whole.
    """
    # A rule that allows a tool of this name would allow the server to use the model.
    sampling = sampling_name(server)
    taken: dict[str, str] = {}
    for name in sorted(names):
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", f"mcp__{server}__{name}")
        if len(plain) > MAX_NAME or plain == sampling or plain in taken.values():
            digest = hashlib.sha256(f"{server}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
            plain = f"{plain[: MAX_NAME - 9]}_{digest}"
        taken[name] = plain
    return taken
