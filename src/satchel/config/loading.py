"""Reads the settings from the user's file, a trusted project's file, the environment and command-line options."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from satchel.config.agreed import read_agreement
from satchel.config.check import (
    MODEL_KEYS,
    Value,
    check_mcp_server,
    check_provider_alone,
    check_rules,
    check_tables,
    check_value,
    closest,
    setting_named,
    value_of_text,
)
from satchel.config.home import default_home, home_of
from satchel.config.keys import stored_keys
from satchel.config.providers import BASE_URL_VARIABLES, builtin_providers
from satchel.config.settings import (
    SECTIONS,
    SETTINGS,
    McpServerSettings,
    PermissionRule,
    ProviderSettings,
    Settings,
)
from satchel.config.toml_file import TomlFile, read_toml
from satchel.config.trusted import SKILL_FOLDERS, TrustRecord, read_project, trust_record
from satchel.errors import ConfigError

_BY_VARIABLE: Final = {
    setting.env: setting for setting in SETTINGS if not re.search(r"\.(NAME|N)\.", setting.key)
}
_SECTION_PREFIXES: Final = tuple(
    {f"SATCHEL_{s.key.split('.')[0].upper()}_" for s in SETTINGS if "." in s.key}
)
_NAMED_PARTS: Final = {
    section: tuple(s.key.split(".")[2] for s in SETTINGS if s.key.startswith(f"{section}."))
    for section in ("providers", "mcp_servers")
}
"""The keys of the sections that exist once per name."""
SEARCH_KEYS: Final = ("BRAVE_API_KEY", "TAVILY_API_KEY")
"""Variables with keys for web search. They are kept secret like the keys of model providers."""


_FOR_LIBRARIES: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""When numpy is loaded, OpenBLAS starts a thread per processor. Each spins for 40 ms of CPU time before it sleeps,
which is longer than a search takes."""
_GIVEN: Final[set[str]] = set()
_DEFAULTS: Final = "SATCHEL_DEFAULTS"
"""With several people: the administrator's settings, as the text of a file, which each person's own override."""


def prepare_libraries() -> None:
    """Configure libraries that are not loaded yet, unless the user did.

    They read the environment of this process. `process_environ`, and so every started process, doesn't contain it.
    """
    for name, value in _FOR_LIBRARIES.items():
        if name not in os.environ:
            os.environ[name] = value
            _GIVEN.add(name)


def replace_environ(environ: Mapping[str, str]) -> None:
    """Take another environment, in a process that becomes another one's. Libraries stay configured."""
    os.environ.clear()
    os.environ.update(environ)


def process_environ() -> dict[str, str]:
    """A copy of this process's environment, for a program to pass to `load`."""
    return {name: value for name, value in os.environ.items() if name not in _GIVEN}


def load(
    environ: Mapping[str, str],
    *,
    cwd: Path,
    home: Path | None = None,
    overrides: Mapping[str, Any] = {},
) -> Settings:
    """Read the settings. Nothing is written, and no folder needs to exist.

    Later sources override earlier ones: the defaults, SATCHEL_DEFAULTS, the user's file, the project's file if the user
    trusts the folder, the environment, `overrides`.

    Args:
        environ: The environment, usually `process_environ()`.
        cwd: The working directory. The project is searched from here upwards.
        home: SATCHEL_HOME. None takes it from `environ`, or `~/.satchel` if it is not set there.
        overrides: Values by dotted key ("agent.mode"), such as a command's options. None values are ignored.

    Raises:
        ConfigError: A file is invalid, a key is unknown or a value is not allowed; the message names file, line and
            key.
    """
    cwd = cwd.resolve()
    home = home_of(environ, cwd) if home is None else home.expanduser().resolve()
    project = _find_project(cwd, homes={home, default_home(environ)})
    record = None if project is None else trust_record(home, project)
    # The files of a project that was never trusted are not even read.
    content = None if project is None or record is None else read_project(project)
    changes = content.changes_since(record) if content is not None and record is not None else ()
    trusted = content is not None and not changes
    found = _Found(providers=builtin_providers(environ))
    for name, variable in BASE_URL_VARIABLES.items():
        if environ.get(variable, "").strip():
            found.set(f"providers.{name}.base_url", found.providers[name].base_url, variable)
    if shared := environ.get(_DEFAULTS):
        found.read_file(_shared_settings(shared))
    config_path = home / "config.toml"
    file = read_toml(config_path)
    if file is not None:
        found.read_file(file)
    agreement = read_agreement(home)
    found.permissions = (*found.permissions, *agreement.rules)
    if content is not None and trusted and content.settings is not None:
        found.read_file(content.settings, project=project)
    found.read_environ(environ)
    for key, value in overrides.items():
        if value is not None:
            found.set(key, value, "the command line")
    found.check_providers()
    found.check_models()
    found.check_mcp_servers()
    stored = stored_keys(home)
    secrets = stored.below(_secrets(environ, {*stored, *SEARCH_KEYS}, found.providers))
    return Settings(
        home=home,
        config_path=config_path,
        cwd=cwd,
        project=project,
        project_trusted=trusted,
        project_changes=changes,
        project_instructions=content.instructions if content is not None and trusted else "",
        project_tools=(record or TrustRecord()).tools if trusted else {},
        project_skills=(record or TrustRecord()).skills if trusted else {},
        model=found.text("model"),
        small_model=found.text("small_model"),
        database=found.text("database"),
        providers=found.providers,
        mcp_servers=found.mcp_servers,
        **{name: section(**found.section(name)) for name, section in SECTIONS.items()},
        permissions=found.permissions,
        environ={name: value for name, value in environ.items() if name not in secrets},
        sources=found.sources,
        secrets=secrets,
        stored={name: stored.place(name) for name in stored if not environ.get(name)},
        agreed=agreement.number,
    )


def _find_project(cwd: Path, *, homes: set[Path]) -> Path | None:
    """The nearest folder from `cwd` upwards with files for Satchel, or else with skills for any agent.

    SATCHEL_HOME itself doesn't count as one, and the user's own `.claude/skills` don't make their home a project.
    """
    for folder in (cwd, *cwd.parents):
        marker = folder / ".satchel"
        if marker.is_dir() and marker.resolve() not in homes:
            return folder
        if (folder / "AGENTS.md").is_file():
            return folder
    user_homes = {home.parent for home in homes}
    for folder in (cwd, *cwd.parents):
        if folder not in user_homes and any((folder / name).is_dir() for name in SKILL_FOLDERS):
            return folder
    return None


def _secrets(
    environ: Mapping[str, str], names: set[str], providers: Mapping[str, ProviderSettings]
) -> dict[str, str]:
    names = names | {provider.env_api_key for provider in providers.values()}
    return {name: environ[name] for name in names if environ.get(name)}


def own_rules(path: Path) -> tuple[PermissionRule, ...]:
    """The permission rules in the user's own settings file as it is now, and those that machines share.

    Raises:
        ConfigError: A file is invalid.
    """
    file = read_toml(path)
    written = () if file is None else check_rules(file.tables.get("permissions", []), file.where)
    return (*written, *read_agreement(path.parent).rules)


@dataclass(slots=True, kw_only=True)
class _Found:
    """The values read so far, each with its source."""

    providers: dict[str, ProviderSettings]
    mcp_servers: dict[str, McpServerSettings] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    permissions: tuple[PermissionRule, ...] = ()
    places: dict[str, str] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """The value of a text setting, or "" if it is not set."""
        return str(self.values.get(key) or "")

    def section(self, name: str) -> dict[str, Any]:
        """The values found for one section, by the last part of their keys."""
        prefix = f"{name}."
        return {
            key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)
        }

    def set(self, key: str, value: object, source: str) -> None:
        """Check a value and store it."""
        setting = setting_named(key, source)
        self.keep(key, check_value(setting, value, lambda: f"{source}: {key}"), source)

    def keep(self, key: str, value: Value, source: str) -> None:
        """Store a checked value under its dotted key."""
        if key.startswith("providers."):
            _, name, part = key.split(".")
            known = self.providers.get(name) or ProviderSettings(name=name, kind="openai")
            self.providers[name] = replace(known, **{part: cast("Any", value)})
            self.places.setdefault(name, source)
        elif key.startswith("mcp_servers."):
            _, name, part = key.split(".")
            server = self.mcp_servers.get(name) or McpServerSettings(name=name)
            self.mcp_servers[name] = replace(server, **{part: cast("Any", value)})
            self.places.setdefault(f"mcp_servers.{name}", source)
        else:
            self.values[key] = value
            self.places[f"settings.{key}"] = source
        self.sources[key] = source

    def read_file(self, file: TomlFile, *, project: Path | None = None) -> None:
        """Read a file, overriding the values read so far. Without a project, it is the user's file."""
        checked = list(check_tables(file.tables, file.where))
        for name in file.tables.get("mcp_servers", {}):
            # An entry in a nearer file is a different server: it inherits nothing, least of all secrets.
            self.mcp_servers[name] = McpServerSettings(name=name, base=project)
            self.places[f"mcp_servers.{name}"] = file.where(("mcp_servers", name))
        for key, _, value in checked:
            self.keep(key, value, str(file.path))
        for name in file.tables.get("providers", {}):
            self.places[name] = file.where(("providers", name))
        for key in MODEL_KEYS:
            section, _, name = key.rpartition(".")
            if name in (file.tables.get(section, {}) if section else file.tables):
                self.places[f"settings.{key}"] = f"{file.where(tuple(key.split('.')))}: {key}"
        if "permissions" in file.tables:
            # The rules of the nearer file come first.
            self.permissions = (*check_rules(file.tables["permissions"], file.where), *self.permissions)
            self.sources["permissions"] = str(file.path)

    def read_environ(self, environ: Mapping[str, str]) -> None:
        """Read SATCHEL_<SECTION>_<KEY>. Other variables may begin with SATCHEL_ too."""
        for name, value in sorted(environ.items()):
            if name in _BY_VARIABLE:
                setting = _BY_VARIABLE[name]
                self.keep(setting.key, value_of_text(setting, value, partial(str, name)), name)
            elif name == "SATCHEL_PERMISSIONS":
                self.permissions = (*_rules_of_text(value), *self.permissions)
                self.sources["permissions"] = name
            elif name.startswith(("SATCHEL_PROVIDERS_", "SATCHEL_MCP_SERVERS_")):
                section = "providers" if name.startswith("SATCHEL_PROVIDERS_") else "mcp_servers"
                key = self._named_key(section, name)
                self.keep(key, value_of_text(setting_named(key, name), value, partial(str, name)), name)
            elif name.startswith(_SECTION_PREFIXES):
                raise ConfigError(
                    f"The environment variable {name} is not a setting.{closest(name, _BY_VARIABLE)} "
                    f"There are: {', '.join(_BY_VARIABLE)}."
                )

    def _named_key(self, section: str, variable: str) -> str:
        """`providers.deepseek.base_url` for SATCHEL_PROVIDERS_DEEPSEEK_BASE_URL."""
        prefix = f"SATCHEL_{section.upper()}_"
        rest = variable.removeprefix(prefix)
        known_names = self.providers if section == "providers" else self.mcp_servers
        for part in _NAMED_PARTS[section]:
            name = rest.removesuffix(f"_{part.upper()}")
            if name and name != rest:
                # A provider's name may contain characters that a variable's name can't.
                spelled = {re.sub(r"[^A-Z0-9]", "_", known.upper()): known for known in known_names}
                return f"{section}.{spelled.get(name, name.lower())}.{part}"
        raise ConfigError(
            f"The environment variable {variable} is not a setting. Use {prefix}NAME_KEY, where "
            f"KEY is one of: "
            f"{', '.join(part.upper() for part in _NAMED_PARTS[section])}."
        )

    def check_models(self) -> None:
        """Check models that name only a provider: its entry has to name a model."""
        models = {name: provider.model for name, provider in self.providers.items()}
        for key in MODEL_KEYS:
            check_provider_alone(
                self.text(key), models, partial(str, self.places.get(f"settings.{key}", key))
            )

    def check_providers(self) -> None:
        """Check that providers that are not built in have an address."""
        for name, provider in self.providers.items():
            if (
                not provider.builtin
                and provider.kind in ("openai", "anthropic", "ollama")
                and not provider.base_url
            ):
                raise ConfigError(
                    f'{self.places[name]}: [providers.{name}] needs a base_url, such as "https://api.example.com/v1".'
                )

    def check_mcp_servers(self) -> None:
        """Check the entries of MCP servers as a whole."""
        for name, server in self.mcp_servers.items():
            check_mcp_server(server, self.places[f"mcp_servers.{name}"])


def _shared_settings(text: str) -> TomlFile:
    try:
        return TomlFile(path=Path("the administrator's settings"), text=text, tables=tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError):
        raise ConfigError(f"{_DEFAULTS} is not the text of a settings file.") from None


def _rules_of_text(text: str) -> tuple[PermissionRule, ...]:
    """The rules in SATCHEL_PERMISSIONS, a list in TOML's syntax."""
    try:
        rules = tomllib.loads(f"permissions = {text}")["permissions"]
    except (tomllib.TOMLDecodeError, RecursionError):
        raise ConfigError(
            'SATCHEL_PERMISSIONS is not a list in TOML\'s syntax, such as [{action = "allow", tool = "bash(git *)"}].'
        ) from None
    return check_rules(rules, lambda _: "SATCHEL_PERMISSIONS")
