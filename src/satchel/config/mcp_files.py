"""MCP servers in files: reads the files of other programs, adds entries to a settings file and removes them.

Other programs' files are `.mcp.json`, Claude Desktop's and VS Code's.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from satchel.addresses import host_and_port, is_loopback
from satchel.config.check import check_mcp_server, check_tables
from satchel.config.home import ensure_home, locked_folder, replace_file
from satchel.config.setting import written
from satchel.config.settings import McpServerSettings
from satchel.config.toml_file import read_toml
from satchel.config.write import editing
from satchel.errors import ConfigError, NotFound

_MAX_BYTES = 1_000_000
"""The largest file of another program; usual ones have a page or two."""
_REFERENCE = re.compile(r"\$\{(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedServers:
    """The contents of such a file.

    Attributes:
        servers: In the order of the file; each is checked like one in a settings file.
        skipped: Why the other entries can't be used, one sentence each.
        written_out: Which values of `env` and `headers` the file contains in plain text, as "NAME.env.KEY".
    """

    servers: tuple[McpServerSettings, ...]
    skipped: tuple[str, ...]
    written_out: tuple[str, ...]


def read_mcp_file(path: Path) -> ImportedServers:
    """Read a file of another program. Nothing is written or started.

    Raises:
        NotFound: There is no such file.
        ConfigError: It can't be read, or contains no servers.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from error
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_BYTES:,} bytes, too large for a list of MCP servers.")
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}.") from error
    found = _section(value)
    if found is None:
        raise ConfigError(
            f'{path} contains no MCP servers: it needs a section "mcpServers" (or "servers") with an entry for each.'
        )
    servers: list[McpServerSettings] = []
    skipped: list[str] = []
    for name, entry in found.items():
        try:
            servers.append(_server(name, entry, path))
        except ConfigError as error:
            skipped.append(str(error))
    written_out = [place for server in servers for place in plain_values(server)]
    return ImportedServers(servers=tuple(servers), skipped=tuple(skipped), written_out=tuple(written_out))


def plain_values(server: McpServerSettings) -> list[str]:
    """The values of `env` and `headers` in plain text, without a reference to a variable, as "NAME.env.KEY"."""
    return [
        f"{server.name}.{part}.{key}"
        for part, values in (("env", server.env), ("headers", server.headers))
        for key, text in values.items()
        if text and not _REFERENCE.search(text)
    ]


def _section(value: Any) -> Mapping[str, Any] | None:
    if not isinstance(value, dict):
        return None
    inner = value.get("mcp")
    for place in (value, inner if isinstance(inner, dict) else {}):
        for key in ("mcpServers", "servers"):
            if isinstance(place.get(key), dict):
                found: dict[str, Any] = place[key]
                return found
    return None


def _server(name: str, entry: Any, path: Path) -> McpServerSettings:
    """Convert one entry, and check it like one in a settings file.

    Raises:
        ConfigError: It can't be used.
    """
    if not isinstance(entry, dict):
        raise ConfigError(f"{path}: {name!r} is not an entry for a server.")
    # Other programs allow any name; here a name is part of a key.
    plain = re.sub(r"__+", "_", re.sub(r"[^A-Za-z0-9_-]+", "-", name))[:64].strip("-_")
    table: dict[str, Any] = {}
    for key in ("command", "args", "cwd", "url"):
        if entry.get(key):
            table[key] = _ours(entry[key])
    if table.get("url"):
        table.pop("command", None)
        table.pop("args", None)
        if str(entry.get("type", "")).lower() == "sse":
            table["transport"] = "sse"
        if entry.get("headers"):
            table["headers"] = _ours(entry["headers"])
    elif entry.get("env"):
        table["env"] = _ours(entry["env"])
    if entry.get("disabled") is True:
        table["enabled"] = False
    if not table.get("command") and not table.get("url"):
        raise ConfigError(f"{path}: {name!r} has neither a command nor a url.")
    # VS Code's file is in a subfolder of the project.
    folder = path.absolute().parent
    return new_mcp_server(
        plain, table, place=str(path), folder=folder.parent if folder.name == ".vscode" else folder
    )


def new_mcp_server(
    name: str, table: Mapping[str, Any], *, place: str, folder: Path | None = None
) -> McpServerSettings:
    """Make an entry and check it like one in a settings file.

    Args:
        name: Its name.
        table: Its keys, as in TOML. An address may be without its scheme.
        place: Where it comes from, for error messages.
        folder: The folder that a relative `command` or `cwd` refers to. They are made absolute, because the entry goes
            into a file in another folder. None leaves them unchanged.

    Raises:
        ConfigError: It is not allowed.
    """
    values: dict[str, Any] = {}
    url = table.get("url")
    if isinstance(url, str) and url and not re.match(r"\$\{|[A-Za-z][A-Za-z0-9+.-]*://", url):
        host, _ = host_and_port(url.partition("/")[0])
        table = {**table, "url": f"{'http' if is_loopback(host) else 'https'}://{url}"}
    for key, _, value in check_tables({"mcp_servers": {name: table}}, lambda _: place):
        values[key.split(".")[2]] = value
    server = McpServerSettings(name=name, **values)
    check_mcp_server(server, place)
    if folder is None:
        return server
    return replace(
        server,
        command=_absolute(server.command, folder) if "/" in server.command else server.command,
        cwd=_absolute(server.cwd, folder) if server.cwd else "",
    )


def _absolute(path: str, folder: Path) -> str:
    # A path that begins with a variable counts as absolute: the variable's value is not known yet.
    return path if path.startswith(("/", "~", "$")) else os.path.normpath(folder / path)


def _ours(value: Any) -> Any:
    """The value with references in our syntax: VS Code writes ${env:NAME}."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda m: f"${{{m['name']}{m['default'] or ''}}}", value)
    if isinstance(value, list):
        return [_ours(each) for each in value]
    if isinstance(value, dict):
        return {key: _ours(each) for key, each in value.items()}
    return value


def add_mcp_servers(path: Path, servers: tuple[McpServerSettings, ...]) -> tuple[str, ...]:
    """Add entries to a settings file. An entry whose name the file has already is left unchanged. The file is created
    if it doesn't exist.

    Returns:
        The names that were added.

    Raises:
        ConfigError: The file is invalid; it is unchanged.
        StorageUnwritable: It can't be written; it is unchanged.
    """
    # Imported on demand: it takes longer than everything else here, and few commands write.
    import tomlkit  # noqa: PLC0415

    ensure_home(path.parent)
    with locked_folder(path.parent):
        file = read_toml(path)
        if file is not None:
            for _ in check_tables(file.tables, file.where):
                pass
        known = file.tables.get("mcp_servers", {}) if file is not None else {}
        fresh = {server.name: server for server in servers if server.name not in known}
        if not fresh:
            return ()
        added = tomlkit.document()
        section = tomlkit.table(is_super_table=True)
        for name, server in fresh.items():
            section.append(name, _table(server))
        added.append("mcp_servers", section)
        # Appended as text: tomlkit can't add to every form that an existing section may have.
        before = file.text.rstrip("\n") if file is not None else ""
        text = f"{before}\n\n{tomlkit.dumps(added)}" if before else tomlkit.dumps(added)
        _replace(path, text, names={*known, *fresh})
    return tuple(fresh)


def remove_mcp_server(path: Path, name: str) -> None:
    """Remove an entry from a settings file, and change nothing else in it.

    Raises:
        NotFound: The file has no such entry.
        ConfigError: The file is invalid; it is unchanged.
        StorageUnwritable: It can't be written; it is unchanged.
    """
    with editing(path) as (file, document):
        if file is None or name not in file.tables.get("mcp_servers", {}):
            raise NotFound(f"{path} has no [mcp_servers.{name}].")
        del document["mcp_servers"][name]
        if not document["mcp_servers"]:
            del document["mcp_servers"]


def change_mcp_server(path: Path, server: McpServerSettings) -> None:
    """Change what an entry of a settings file runs or connects to, and with which values; the rest of it stays. Errors
    as in `remove_mcp_server`.
    """
    with editing(path) as (file, document):
        if file is None or server.name not in file.tables.get("mcp_servers", {}):
            raise NotFound(f"{path} has no [mcp_servers.{server.name}].")
        entry, wanted = document["mcp_servers"][server.name], _table(server)
        for part in ("command", "args", "env", "url", "headers"):
            if part in wanted:
                entry[part] = wanted[part]
            else:
                entry.pop(part, None)


def _replace(path: Path, text: str, *, names: set[str]) -> None:
    """Write the file, after checking that it then contains exactly these servers."""
    try:
        found = tomllib.loads(text).get("mcp_servers", {})
    except tomllib.TOMLDecodeError:
        found = None
    if found is None or set(found) != names:
        raise ConfigError(
            f"{path}: [mcp_servers] is written in a form that can't be changed here. Edit the file yourself."
        )
    replace_file(path, text)


def _table(server: McpServerSettings) -> Any:
    import tomlkit  # noqa: PLC0415  see add_mcp_servers

    table = tomlkit.table()
    for name, value in written(server).items():
        if isinstance(value, Mapping):
            inline = tomlkit.inline_table()
            inline.update(dict(value))
            value = inline
        table.add(name, value)
    return table
