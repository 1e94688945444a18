"""Sets up other agents: which of their files get which entries, and how the entries are removed.

A plan is made first, for all files; nothing is written before every file could be read and changed. An entry of ours is
recognised by its command, `… satchel hook` or `satchel mcp`; everything else stays as it is.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import tomlkit
import yaml

from satchel.clock import Clock
from satchel.config import ensure_home, mask_text
from satchel.config.home import locked_folder, replace_file
from satchel.errors import ConfigError, StorageUnwritable, UsageError
from satchel.runtime.other_agents import jsonc

Agent: TypeAlias = Literal["claude-code", "codex", "goose", "generic"]

_NAME: Final = "satchel"
_MOST_BYTES: Final = 64 << 20
"""Large, because Claude Code keeps its history in the file that lists MCP servers."""
_HOOK: Final = re.compile(r"(?:\A|[\s/'\"])satchel['\"]? hook\s*\Z")
"""A command of Satchel, with any path and any variables before it."""
_TIMEOUTS_S: Final[Mapping[str, int]] = {
    "SessionStart": 10,
    "UserPromptSubmit": 10,
    "Stop": 10,
    # Without a timeout, Claude Code ends it after 1.5 s.
    "SessionEnd": 20,
    "PreCompact": 10,
}
_EVENTS: Final[Mapping[Agent, Sequence[str]]] = {
    "claude-code": ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd", "PreCompact"),
    "codex": ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact"),
    # What hooks of SessionStart print is not read, and there is no compaction.
    "goose": ("UserPromptSubmit", "Stop", "SessionEnd"),
}

AGENTS: Final[Mapping[Agent, str]] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "goose": "goose",
    "generic": "any agent that reads a list of MCP servers (.mcp.json)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How other agents start Satchel.

    Attributes:
        command: "satchel", or its path where it is not on the PATH.
        environ: Variables that it needs, such as another SATCHEL_HOME.
    """

    command: str
    environ: Mapping[str, str]

    @property
    def hook(self) -> str:
        """The command of a hook, for a shell."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.environ.items()]
        return " ".join([*settings, shlex.quote(self.command), "hook"])


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A change of one file.

    Attributes:
        before: What it holds; None if it doesn't exist.
        after: What it will hold; None removes it.
        is_ours: Whether nothing is in it but entries of ours.
    """

    path: Path
    before: str | None
    after: str | None
    is_ours: bool = False

    @property
    def is_change(self) -> bool:
        """Whether anything changes."""
        return self.before != self.after


_Edit: TypeAlias = Callable[[str, str], str]
"""Changes the text of a file; the second is its name in messages."""


def plan(
    agent: Agent,
    program: Program,
    *,
    environ: Mapping[str, str],
    project: Path | None = None,
    file: Path | None = None,
    remove: bool = False,
) -> tuple[FileChange, ...]:
    """The changes that connect an agent, or disconnect it. The files of `project` are
    changed instead of the user's, which `environ` says the place of; `file` is the list of MCP servers of `generic`.

    Raises:
        ConfigError: A file can't be read, has an unexpected form, or has an entry `satchel` of another program.
        UsageError: The agent has no such files.
    """
    given: dict[str, Any] = {"environ": environ, "project": project, "file": file}
    changes: list[FileChange] = []
    taking_out = dict(_edits(agent, program, **given, remove=True))
    for path, edit in _edits(agent, program, **given, remove=remove):
        before = _read(path)
        if before is None and remove:
            continue
        is_ours = (
            before is not None and not _is_empty(before) and _is_empty(taking_out[path](before, str(path)))
        )
        after: str | None = edit(before or "", str(path))
        if remove and is_ours:
            after = None
        changes.append(FileChange(path=path, before=before, after=after, is_ours=is_ours))
    return tuple(change for change in changes if change.is_change)


def _is_empty(text: str) -> bool:
    return text.strip() in ("", "{}")


def is_connected(agent: Agent, *, environ: Mapping[str, str], project: Path | None = None) -> bool:
    """Whether an agent has Satchel's entries."""
    try:
        return bool(
            plan(agent, Program(command=_NAME, environ={}), environ=environ, project=project, remove=True)
        )
    except (ConfigError, UsageError):
        return False


def diff_of(change: FileChange) -> str:
    """A change as a unified diff. What looks like a key is masked: such files may hold those of other programs."""
    before, after = change.before or "", change.after or ""
    lines = difflib.unified_diff(
        before.splitlines(),
        after.splitlines(),
        fromfile="/dev/null" if change.before is None else str(change.path),
        tofile="/dev/null" if change.after is None else str(change.path),
        lineterm="",
        n=2,
    )
    return mask_text("\n".join(lines))


def apply(changes: Sequence[FileChange], *, home: Path, clock: Clock) -> tuple[Path, ...]:
    """Make the changes, each file atomically. The old content is copied into SATCHEL_HOME/agents/backups.

    Returns:
        The backups.

    Raises:
        ConfigError: A file has changed since the plan was made.
        StorageUnwritable: A file can't be written; it and the ones after it are unchanged.
    """
    backups: list[Path] = []
    for change in changes:
        _make_folders(change.path.parent)
        with locked_folder(change.path.parent):
            if _read(change.path) != change.before:
                raise ConfigError(
                    f"{change.path} has just been changed by somebody else. Run the command again."
                )
            after = change.after
            if after is None and change.path.suffix == ".json" and _was_there(change.path, home):
                after = "{}\n"  # The file is not ours to remove.
            if change.before is not None:
                end = ".own" if change.is_ours else ""
                backups.append(_back_up(change.path, change.before, home=home, clock=clock, end=end))
            if after is not None:
                replace_file(change.path, after)
                continue
            try:
                change.path.unlink()
            except OSError as error:
                raise StorageUnwritable(f"{change.path} can't be removed: {error.strerror}.") from error
        _remove_empty(change.path.parent)
    return tuple(backups)


def _edits(
    agent: Agent,
    program: Program,
    *,
    environ: Mapping[str, str],
    project: Path | None,
    file: Path | None,
    remove: bool,
) -> list[tuple[Path, _Edit]]:
    hooks = _hooks_edit(_EVENTS.get(agent, ()), program, remove=remove)
    servers = _servers_edit(program, remove=remove)
    user = Path(environ.get("HOME") or Path.home())
    match agent:
        case "claude-code":
            if project is not None:
                return [(project / ".claude" / "settings.json", hooks), (project / ".mcp.json", servers)]
            # With this variable, Claude Code keeps both files in that folder.
            own = environ.get("CLAUDE_CONFIG_DIR", "").strip()
            folder = Path(own) if own else user / ".claude"
            return [(folder / "settings.json", hooks), ((folder if own else user) / ".claude.json", servers)]
        case "codex":
            folder = (
                project / ".codex"
                if project is not None
                else Path(environ.get("CODEX_HOME") or user / ".codex")
            )
            return [
                (folder / "hooks.json", hooks),
                (folder / "config.toml", _toml_edit(program, remove=remove)),
            ]
        case "goose":
            plugin = (project or user) / ".agents" / "plugins" / _NAME
            edits: list[tuple[Path, _Edit]] = [
                (plugin / "plugin.json", _manifest_edit(remove=remove)),
                (plugin / "hooks" / "hooks.json", hooks),
            ]
            if project is None:
                config = Path(environ.get("XDG_CONFIG_HOME") or user / ".config") / "goose" / "config.yaml"
                edits.append((config, _yaml_edit(program, remove=remove)))
            return edits
        case "generic":
            if file is None and project is None:
                raise UsageError(
                    "Say where the list of MCP servers is: --file PATH, or --project for its .mcp.json."
                )
            return [(file or (project or Path()) / ".mcp.json", servers)]


# JSON


def _hooks_edit(events: Sequence[str], program: Program, *, remove: bool) -> _Edit:
    def edit(text: str, where: str) -> str:
        text = _without_hooks(text, where, events if not remove else (), program)
        return text if remove else _with_hooks(text, where, events, program)

    return edit


def _wanted(event: str, program: Program) -> dict[str, Any]:
    return {"type": "command", "command": program.hook, "timeout": _TIMEOUTS_S[event]}


def _without_hooks(text: str, where: str, keep: Sequence[str], program: Program) -> str:
    """Remove Satchel's hooks, except those that are equal to an entry of `keep`."""
    while True:
        root = _object(jsonc.parse(text, where), where, "the file")
        hooks = root.get("hooks")
        if hooks is None:
            return text
        found = _outdated(_object(hooks, where, '"hooks"'), where, keep, program)
        if found is None:
            return text
        event, group_at, hook_at = found
        groups = hooks.get(event)
        assert groups is not None
        group = groups.items[group_at]
        inner = group.get("hooks")
        assert inner is not None
        if len(inner.parts) > 1:
            text = jsonc.without_item(text, inner, hook_at)
        elif len(groups.parts) > 1:
            text = jsonc.without_item(text, groups, group_at)
        elif len(hooks.parts) > 1:
            text = jsonc.without_member(text, hooks, event)
        else:
            text = jsonc.without_member(text, root, "hooks")


def _outdated(
    hooks: jsonc.Node, where: str, keep: Sequence[str], program: Program
) -> tuple[str, int, int] | None:
    for event, _, groups in hooks.parts:
        seen = False
        for group_at, group in enumerate(_array(groups, where, f'"hooks"."{event}"').items):
            inner = group.get("hooks") if group.kind == "object" else None
            for hook_at, hook in enumerate(inner.items if inner is not None else ()):
                command = hook.get("command") if hook.kind == "object" else None
                if command is None or not isinstance(command.value, str) or not _HOOK.search(command.value):
                    continue
                if event in keep and not seen and hook.plain() == _wanted(event, program):
                    seen = True
                    continue
                return event, group_at, hook_at
    return None


def _with_hooks(text: str, where: str, events: Sequence[str], program: Program) -> str:
    for event in events:
        group = {"hooks": [_wanted(event, program)]}
        root = jsonc.parse(text, where)
        hooks = root.get("hooks")
        if hooks is None:
            text = jsonc.with_member(text, root, "hooks", {event: [group]})
            continue
        groups = hooks.get(event)
        if groups is None:
            text = jsonc.with_member(text, hooks, event, [group])
        elif not any(_HOOK.search(command) for command in _commands(groups.plain())):
            text = jsonc.with_item(text, groups, group)
    return text


def _commands(groups: Any) -> list[str]:
    return [
        str(hook.get("command", ""))
        for group in groups
        if isinstance(group, dict) and isinstance(group.get("hooks"), list)
        for hook in group["hooks"]
        if isinstance(hook, dict)
    ]


def _servers_edit(program: Program, *, remove: bool) -> _Edit:
    entry: dict[str, Any] = {"type": "stdio", "command": program.command, "args": ["mcp"]}
    if program.environ:
        entry["env"] = dict(program.environ)

    def edit(text: str, where: str) -> str:
        root = _object(jsonc.parse(text, where), where, "the file")
        servers = root.get("mcpServers")
        if servers is None:
            return text if remove else jsonc.with_member(text, root, "mcpServers", {_NAME: entry})
        known = _object(servers, where, '"mcpServers"').get(_NAME)
        if known is None:
            return text if remove else jsonc.with_member(text, servers, _NAME, entry)
        if not _is_ours(known.plain()):
            return text if remove else _refuse(where, "mcpServers")
        if not remove:
            return text if known.plain() == entry else jsonc.with_value(text, known, entry)
        if len(servers.parts) > 1:
            return jsonc.without_member(text, servers, _NAME)
        return jsonc.without_member(text, root, "mcpServers")

    return edit


def _manifest_edit(*, remove: bool) -> _Edit:
    wanted = {
        "name": _NAME,
        "version": "1.0.0",
        "description": "Captures conversations for Satchel. Made by `satchel connect goose`.",
    }

    def edit(text: str, where: str) -> str:
        if text.strip() and jsonc.parse(text, where).plain().get("name") != _NAME:
            return text if remove else _refuse(where, "plugins")
        return "" if remove else json.dumps(wanted, indent=2) + "\n"

    return edit


def _is_ours(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    command, args = entry.get("command", entry.get("cmd")), entry.get("args")
    return isinstance(command, str) and command.rpartition("/")[2] == _NAME and args == ["mcp"]


def _refuse(where: str, section: str) -> str:
    raise ConfigError(
        f"{where} has an entry {_NAME!r} in {section} that Satchel did not make. Rename or remove it, and try again. "
        "Nothing was changed."
    )


def _object(node: jsonc.Node, where: str, what: str) -> jsonc.Node:
    if node.kind != "object":
        raise ConfigError(f"{where}: {what} is not an object. Nothing was changed.")
    return node


def _array(node: jsonc.Node, where: str, what: str) -> jsonc.Node:
    if node.kind != "array":
        raise ConfigError(f"{where}: {what} is not a list. Nothing was changed.")
    return node


# TOML


def _toml_edit(program: Program, *, remove: bool) -> _Edit:
    entry: dict[str, Any] = {"command": program.command, "args": ["mcp"]}
    if program.environ:
        entry["env"] = dict(program.environ)
    block = tomlkit.dumps({"mcp_servers": {_NAME: entry}})

    def edit(text: str, where: str) -> str:
        before = _toml(text, where)
        servers = before.pop("mcp_servers", {})
        known = servers.get(_NAME) if isinstance(servers, dict) else None
        if (known is None and remove) or (known == entry and not remove):
            return text
        if known is not None and not _is_ours(known):
            return text if remove else _refuse(where, "mcp_servers")
        rest = {name: server for name, server in servers.items() if name != _NAME}
        # What somebody added to the entry, such as which tools ask, is not removed without a word.
        has_more = known is not None and bool(known.keys() - {"command", "args", "env"})
        if known is not None:
            document = tomlkit.parse(text)
            section: Any = document["mcp_servers"] if rest else document
            del section[_NAME if rest else "mcp_servers"]
            text = document.as_string()
        text = f"{text.rstrip()}\n" if text.strip() else ""
        if not remove:
            # Appended as text: tomlkit can't add to every form that an existing section may have.
            text, rest = (f"{text}\n{block}" if text else block), {**rest, _NAME: entry}
        try:
            after = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            after = {}
        if has_more or after.pop("mcp_servers", {}) != rest or after != before:
            raise ConfigError(
                f"{where}: [mcp_servers] is written in a form that can't be changed here. Edit the file yourself:\n"
                f"{block}"
            )
        return text

    return edit


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{where} is not TOML: {error}. Nothing was changed.") from error


# YAML


def _yaml_edit(program: Program, *, remove: bool) -> _Edit:
    entry: dict[str, Any] = {
        "enabled": True,
        "type": "stdio",
        "name": _NAME,
        "description": "Memory and tools of Satchel",
        "cmd": program.command,
        "args": ["mcp"],
        "envs": dict(program.environ),
        "timeout": 300,
    }

    def edit(text: str, where: str) -> str:
        before = _yaml(text, where)
        extensions = before.get("extensions") or {}
        if not isinstance(extensions, dict):
            raise ConfigError(f"{where}: `extensions` is not a mapping. Nothing was changed.")
        known = extensions.get(_NAME)
        if (known is None and remove) or (known == entry and not remove):
            return text
        if known is not None and not _is_ours(known):
            return text if remove else _refuse(where, "extensions")
        if known is not None:
            text = _without_yaml(text)
        rest = {name: one for name, one in extensions.items() if name != _NAME}
        if not remove:
            text = _with_yaml(text, entry, rest)
            rest = {**rest, _NAME: entry}
        elif not rest:
            text = re.sub(r"^extensions:[ \t]*(?:\n|\Z)", "", text, flags=re.MULTILINE)
        after = _yaml(text, where)
        if {**after, "extensions": after.get("extensions") or {}} != {**before, "extensions": rest}:
            raise ConfigError(
                f"{where}: `extensions` is written in a form that can't be changed here. `goose configure` adds an "
                f"extension with the command: {program.command} mcp"
            )
        return text

    return edit


def _yaml(text: str, where: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text) if text.strip() else {}
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{where}{place}: this is not YAML. Nothing was changed.") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{where} is not a mapping. Nothing was changed.")
    return found


def _with_yaml(text: str, entry: Mapping[str, Any], rest: Mapping[str, Any]) -> str:
    """Add our extension as the first one, in the indentation of the others."""
    body = yaml.safe_dump(dict(entry), sort_keys=False, allow_unicode=True).splitlines()
    header = re.search(r"^extensions:[ \t]*(?:\{[ \t]*\}|~|null)?[ \t]*(?:#[^\n]*)?$", text, re.MULTILINE)
    if header is None:
        start = "" if not text or text.endswith("\n") else "\n"
        lines = [f"  {_NAME}:", *(f"    {line}" for line in body)]
        return f"{text}{start}extensions:\n" + "\n".join(lines) + "\n"
    step = "  "
    following = re.match(r"\n(?:[ \t]*(?:#[^\n]*)?\n)*([ \t]+)\S", text[header.end() :]) if rest else None
    if following is not None:
        step = following[1]
    lines = [f"{step}{_NAME}:", *(f"{step}  {line}" for line in body)]
    head = re.sub(r"[ \t]*(?:\{[ \t]*\}|~|null)", "", header[0], count=1)
    return text[: header.start()] + head + "\n" + "\n".join(lines) + text[header.end() :]


def _without_yaml(text: str) -> str:
    """Take our extension out: its line and those that are indented further."""
    kept: list[str] = []
    inside = -1
    is_below = False
    for line in text.splitlines(keepends=True):
        indent = len(line) - len(line.lstrip(" "))
        if inside >= 0:
            if not line.strip() or indent > inside:
                continue
            inside = -1
        if line[:1] not in (" ", "#", "\n", "\r"):
            is_below = line.startswith("extensions:")
        if is_below and indent and re.match(rf"[ ]+['\"]?{_NAME}['\"]?:[ \t]*(?:#.*)?$", line.rstrip("\r\n")):
            inside = indent
            continue
        kept.append(line)
    return "".join(kept)


# Files


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from error
    if len(raw) > _MOST_BYTES:
        raise ConfigError(f"{path} is larger than {_MOST_BYTES >> 20} MB, too large for a file of settings.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start}). Nothing was changed.") from error


def _make_folders(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageUnwritable(f"The folder {folder} can't be made: {error.strerror}.") from error


def _remove_empty(folder: Path) -> None:
    """Remove the plugin's own folders when nothing is left in them."""
    while folder.name in ("hooks", _NAME):
        with suppress(OSError):
            folder.rmdir()
        if folder.exists():
            return
        folder = folder.parent


def _backup_name(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", str(path)).strip("-")[-100:]


def _was_there(path: Path, home: Path) -> bool:
    """Whether a file was there before Satchel wrote to it."""
    backups = (home / "agents" / "backups").glob(f"{_backup_name(path)}.*")
    return any(not backup.name.endswith(".own") for backup in backups)


def _back_up(path: Path, text: str, *, home: Path, clock: Clock, end: str) -> Path:
    folder = ensure_home(ensure_home(ensure_home(home) / "agents") / "backups")
    stem = f"{_backup_name(path)}.{clock.now():%Y%m%d-%H%M%S}"
    backup = folder / f"{stem}{end}"
    number = 1
    while True:
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1
            backup = folder / f"{stem}-{number}{end}"
            continue
        except OSError as error:
            raise StorageUnwritable(f"The backup {backup} can't be written: {error.strerror}.") from error
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return backup
