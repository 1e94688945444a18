"""`satchel config`: shows and changes the settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import click

from satchel.cli.commands import CommandGroup, SettingKey, Text, confirm, json_option, said_json
from satchel.cli.output import is_terminal, say, tell
from satchel.cli.settings import read_settings
from satchel.config import (
    Grant,
    Settings,
    add_mcp_servers,
    grants_of,
    mask_address,
    masked_command,
    project_files,
    read_mcp_file,
    read_project,
    set_value,
    show_settings,
    trust,
    trust_record,
    untrust,
    write_initial,
)
from satchel.errors import NotFound


@click.group(cls=CommandGroup)
def config() -> None:
    """Show and change the settings."""


@config.command()
@click.argument("key", required=False, type=SettingKey)
@json_option
def show(key: str | None) -> None:
    """Show all settings, or those whose key begins with KEY, and where each was set. Secrets are never shown."""
    shown = [
        entry
        for entry in show_settings(read_settings())
        if key is None or f"{entry.key}.".startswith(f"{key}.")
    ]
    if key is not None and not shown:
        raise NotFound(f"There is no setting {key!r}. `satchel config show` lists all of them.")
    if said_json(shown):
        return
    for entry in shown:
        origin = "" if entry.source == "default" else f"   ({entry.source})"
        say(f"{entry.key} = {_written(entry.value)}{origin}")
        if key is not None:
            tell(f"  {entry.doc}")


def _written(value: Any) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


@config.command()
@json_option
def path() -> None:
    """Print the path of the settings file."""
    place = read_settings().config_path
    if not said_json({"path": str(place), "exists": place.exists()}):
        say(str(place))


@config.command("set")
@click.argument("key", type=SettingKey)
@click.argument("value", type=Text)
@json_option
def set_(key: str, value: str) -> None:
    """Set KEY to VALUE in the settings file; an empty VALUE removes an optional setting.

    Separate the elements of a list with commas. API keys are no settings: set their variables, or paste them on the
    web pages.
    """
    settings = read_settings()
    left = ""
    if key == "database":
        from satchel.runtime.moving import check_place  # noqa: PLC0415 - the rest needs no database

        left = anyio.run(check_place, settings, value)
    now = set_value(settings.config_path, key, value, providers=settings.providers)
    if key.startswith("providers.") and key.endswith(".base_url"):
        left = _key_that_moves(settings, key.split(".")[1], value)
    shown = list(now) if isinstance(now, tuple) else now
    if not said_json({"key": key, "value": shown, "path": str(settings.config_path)}):
        tell(f"{key} = {_written(shown)} in {settings.config_path}")
    if left:
        tell(f"! {left}")


def _key_that_moves(settings: Settings, name: str, address: str) -> str:
    """A warning if the key of a provider goes to another host from now on; otherwise ""."""
    before = settings.providers.get(name)
    if before is None or not address or not settings.secret(before.env_api_key):
        return ""
    if _host_of(before.base_url) == _host_of(address):
        return ""
    given = f", which was given for {mask_address(before.base_url)}," if before.base_url else ""
    return (
        f"The key in {before.env_api_key}{given} is sent to the new address from now on. For another "
        f"key: satchel config set providers.{name}.env_api_key VARIABLE"
    )


def _host_of(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


_GRANTS = (
    ("setting", "Settings"),
    ("server", "MCP servers, which are started or connected to"),
    ("rule", "Permission rules"),
    ("tool", "Tools, which the model may ask to run"),
    ("skill", "Skills"),
    ("instructions", "Instructions"),
)


@config.command("trust")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--remove", is_flag=True, help="Stop trusting the folder.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def trust_(folder: Path | None, remove: bool, yes: bool) -> None:
    """Use what a project brings: its .satchel/config.toml, .satchel/tools, AGENTS.md and skills.

    FOLDER is the project's folder; the default is the project of the working directory. Everything that this allows
    is shown first, and on a terminal you are asked to confirm. Trust covers the current content: if the settings or
    AGENTS.md change, the folder is ignored until you trust it again, and a new or changed tool or skill is not used.
    Subfolders are not covered.
    """
    settings = read_settings()
    wanted = (folder or settings.project or settings.cwd).resolve()
    if not wanted.is_dir():
        raise NotFound(f"There is no folder {str(wanted)!r}.")
    files = list(project_files(wanted))
    if remove:
        if not untrust(settings.home, wanted):
            raise NotFound(f"{wanted} was not trusted.")
        if not said_json({"folder": str(wanted), "trusted": False, "files": files}):
            tell(f"{wanted} is no longer trusted.")
        return
    before, content = trust_record(settings.home, wanted), read_project(wanted)
    grants = grants_of(content, before)
    _show_grants(wanted, grants, is_known=before is not None)
    if not yes:
        confirm(f"Trust {wanted} with this?", doing="trusting")
    # Trust what was shown, even if it has changed since.
    trust(settings.home, wanted, content)
    if not said_json({"folder": str(wanted), "trusted": True, "files": files, "grants": grants}):
        tell(f"{wanted} is trusted.")


def _show_grants(folder: Path, grants: Sequence[Grant], *, is_known: bool) -> None:
    if not grants:
        tell(f"{folder} brings no settings, tools, skills or instructions.")
        return
    if is_known:
        count = sum(grant.is_new for grant in grants)
        tell(
            f"{folder}: entries marked with + are new or have changed since you trusted it ({count} of {len(grants)})."
        )
    else:
        tell(f"Trusting {folder} turns on:")
    for kind, title in _GRANTS:
        of_kind = [grant for grant in grants if grant.kind == kind]
        if of_kind:
            tell(f"  {title}:")
        for grant in of_kind:
            tell(f"  {'+' if grant.is_new else ' '} {grant.text}")


@config.command("import-mcp")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def import_mcp(file: Path, yes: bool) -> int:
    """Add the MCP servers in FILE, such as a .mcp.json or Claude Desktop's file, to your settings.

    The new entries are shown first, without the values of variables and headers, and on a terminal you are asked to
    confirm. A server whose name is already in your settings is not changed.
    """
    settings = read_settings()
    found = read_mcp_file(file)
    known = settings.mcp_servers
    fresh = tuple(server for server in found.servers if server.name not in known)
    for reason in found.skipped:
        tell(f"! {reason}")
    for server in found.servers:
        if server.name in known:
            tell(f"  {server.name} is already in your settings and is not changed.")
    for server in fresh:
        what = masked_command(server.command, server.args) if server.command else mask_address(server.url)
        tell(f"+ {server.name}: {what}")
        for part, values in (("env", server.env), ("headers", server.headers)):
            if values:
                tell(f"    {part}: {', '.join(values)}")
    for place in found.written_out:
        if place.split(".")[0] in {server.name for server in fresh}:
            tell(
                f"! The value of {place} would be in plain text in your settings. "
                "Use a ${VARIABLE} to keep it out of them."
            )
    if fresh and not yes:
        confirm("These programs will be started with your permissions. Add them?", doing="adding them")
    added = add_mcp_servers(settings.config_path, fresh) if fresh else ()
    if not said_json({"added": list(added), "skipped": list(found.skipped)}):
        tell(f"{len(added)} added to {settings.config_path}." if added else "Nothing to add.")
    return 1 if found.skipped and not found.servers else 0


@config.command()
@click.option("--model", type=Text, metavar="PROVIDER:MODEL", help="The model that answers.")
@click.option("--no-capture", is_flag=True, help="Don't store conversations as memories.")
@json_option
def init(model: str | None, no_capture: bool) -> None:
    """Write a first settings file. On a terminal and without options, this asks two questions first."""
    settings = read_settings()
    values: dict[str, object] = {"model": model, "memory.capture": False if no_capture else None}
    if model is None and not no_capture and is_terminal(sys.stdin):
        # It brings the whole runtime, for which Tab after `config set` would wait.
        from satchel.cli.wizard import ask_settings  # noqa: PLC0415

        values = ask_settings(settings)
    written = write_initial(settings.config_path, values, providers=settings.providers)
    if not said_json({"path": str(written)}):
        tell(f"Written to {written}.")
