"""Lists what trusting a project folder would allow, to show it before the user decides."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from satchel.config.check import check_rules, check_tables
from satchel.config.trusted import ProjectContent, TrustRecord
from satchel.wording import shown

GrantKind: TypeAlias = Literal["setting", "server", "rule", "tool", "skill", "instructions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Something that a project brings.

    Attributes:
        text: A description in one line. Control characters are escaped; nothing is masked or left out.
        is_new: It is new or has changed since the user trusted the folder.
    """

    kind: GrantKind
    text: str
    is_new: bool = True


def grants_of(content: ProjectContent, before: TrustRecord | None = None) -> tuple[Grant, ...]:
    """Everything that trusting a project allows: settings, servers, rules, tools, instructions. `before` is what it
    brought when the user trusted it; None if they never did.

    Raises:
        ConfigError: Its settings are invalid; the message names file, line and key.
    """
    old = before or TrustRecord()
    now = content.record
    found = [
        Grant(kind=kind, text=text, is_new=now.settings != old.settings)
        for kind, text in _of_settings(content)
    ]
    for path, digest in now.tools.items():
        place = Path(path)
        name = place.relative_to(content.folder) if place.is_relative_to(content.folder) else place
        found.append(Grant(kind="tool", text=shown(str(name)), is_new=old.tools.get(path) != digest))
    for path, digest in now.skills.items():
        folder = Path(path).parent.relative_to(content.folder)
        text = shown(
            f"{folder.name}, from {folder.parent}: the model reads it, and its scripts run in the sandbox"
        )
        found.append(Grant(kind="skill", text=text, is_new=old.skills.get(path) != digest))
    if now.instructions:
        lines = content.instructions.count("\n") + 1
        text = f"AGENTS.md, {lines:,} {'line' if lines == 1 else 'lines'}, becomes part of every prompt"
        if not content.instructions:
            text = "AGENTS.md is too long and is not used"
        found.append(Grant(kind="instructions", text=text, is_new=now.instructions != old.instructions))
    return tuple(found)


def _of_settings(content: ProjectContent) -> Iterator[tuple[GrantKind, str]]:
    file = content.settings
    if file is None:
        return
    servers: dict[str, dict[str, object]] = {}
    for key, _, value in check_tables(file.tables, file.where):
        if key.startswith("mcp_servers."):
            _, name, part = key.split(".")
            servers.setdefault(name, {})[part] = value
        else:
            yield "setting", f"{key} = {_written(value)}"
    for name, parts in servers.items():
        yield "server", f"{name}: {_server(parts)}"
    for rule in check_rules(file.tables.get("permissions", []), file.where):
        yield "rule", shown(f"{rule.action} {rule.text}")


def _server(parts: Mapping[str, object]) -> str:
    if not parts.get("command"):
        words = [f"connects to {shown(str(parts.get('url', '')))}"]
    else:
        arguments = parts.get("args", ())
        typed = [str(parts["command"]), *(arguments if isinstance(arguments, tuple) else ())]
        words = [
            f"runs {' '.join(_written(word) if ' ' in word or not word else shown(word) for word in typed)}"
        ]
    words += [
        f"{part} {_written(value)}" for part, value in parts.items() if part not in ("command", "args", "url")
    ]
    return ", ".join(words)


def _written(value: object) -> str:
    plain = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
    return shown(json.dumps(plain, ensure_ascii=False))
