"""What a server offers beside its tools: resources to read, and prompts that a user runs as commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from satchel.tools.visible import hidden_in, visible

MAX_OFFERS = 1_000
"""Resources, templates or prompts of one server."""
MAX_ARGUMENTS = 20
"""Arguments of one prompt: the user types them."""
MAX_NAME = 100
"""Characters of an argument's name."""
MAX_URI = 2_000
"""Characters of an address, or of a prompt's name."""
MAX_TEXT = 500
"""Characters of a title or description: a line in a list."""
_STRINGS = ("name", "title", "description", "uri", "uriTemplate", "mimeType")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpResource:
    """Something that a server lets be read.

    Attributes:
        uri: Its address; of a template with `{placeholders}`, to be filled in by whoever reads it.
        size: Bytes, or None where the server doesn't say.
    """

    server: str
    uri: str
    name: str
    description: str = ""
    mime_type: str = ""
    size: int | None = None
    is_template: bool = False

    @property
    def mention(self) -> str:
        """How a user names it in a message."""
        return f"@{self.server}:{self.uri}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """One argument of a prompt; always a text."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class McpPrompt:
    """A prompt that a server offers, which the user runs as a command.

    Attributes:
        name: The server's own name for it.
    """

    server: str
    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()

    @property
    def command(self) -> str:
        """Its name as a command, without the slash: `mcp__SERVER__PROMPT`."""
        return re.sub(r"[^a-zA-Z0-9_.-]", "_", f"mcp__{self.server}__{self.name}")

    @property
    def usage(self) -> str:
        """The command with its arguments: `/mcp__files__review PATH [FOCUS]`."""
        words = [a.name.upper() if a.required else f"[{a.name.upper()}]" for a in self.arguments]
        return " ".join([f"/{self.command}", *words])


def readable_offer(entry: object, *, key: str) -> dict[str, Any] | None:
    """The parts of a listed resource, template or prompt that the protocol allows and Satchel uses; None for junk.
    `key` is the field that names it: "uri", "uriTemplate" or "name".
    """
    if not isinstance(entry, Mapping):
        return None
    found: dict[str, Any] = {name: entry[name] for name in _STRINGS if isinstance(entry.get(name), str)}
    identity = found.get(key, "")
    found.setdefault("name", identity)
    if not identity or len(identity) > MAX_URI or hidden_in(identity) or hidden_in(found["name"]):
        return None
    if isinstance(entry.get("size"), int) and not isinstance(entry["size"], bool):
        found["size"] = entry["size"]
    if isinstance(entry.get("arguments"), list):
        found["arguments"] = [
            {
                **{name: part[name] for name in ("name", "description") if isinstance(part.get(name), str)},
                "required": part.get("required") is True,
            }
            for part in entry["arguments"][:MAX_ARGUMENTS]
            if isinstance(part, Mapping) and _is_name(part.get("name"))
        ]
    return found


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and not hidden_in(name)


def resource_from(server: str, raw: Mapping[str, Any]) -> McpResource:
    """A resource or a template out of the protocol's form (`readable_offer`)."""
    return McpResource(
        server=server,
        uri=raw.get("uri") or raw["uriTemplate"],
        name=_line(raw.get("title") or raw["name"]),
        description=_line(raw.get("description", "")),
        mime_type=_line(raw.get("mimeType", "")),
        size=raw.get("size"),
        is_template="uriTemplate" in raw,
    )


def prompt_from(server: str, raw: Mapping[str, Any]) -> McpPrompt:
    """A prompt out of the protocol's form (`readable_offer`)."""
    return McpPrompt(
        server=server,
        name=raw["name"],
        description=_line(raw.get("description") or raw.get("title", "")),
        arguments=tuple(
            PromptArgument(
                name=part["name"],
                description=_line(part.get("description", "")),
                required=bool(part.get("required")),
            )
            for part in raw.get("arguments", ())
        ),
    )


def _line(text: str) -> str:
    line = visible(" ".join(text.split()))
    return line if len(line) <= MAX_TEXT else f"{line[:MAX_TEXT]} …"
