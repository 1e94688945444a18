"""Checks values against the table of settings; each error names the place, the value and what is allowed."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

from satchel.config.rule_texts import RuleOptions, options_problem
from satchel.config.settings import SETTINGS, McpServerSettings, PermissionRule, RuleAction, Setting
from satchel.errors import ConfigError

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | Mapping[str, str] | None
KeyPath: TypeAlias = tuple[str | int, ...]
Where: TypeAlias = Callable[[KeyPath], str]
"""Describes the place of a key ("config.toml, line 3"). Called only for errors."""

_BY_KEY: Final = {setting.key: setting for setting in SETTINGS}
_TOP: Final = tuple(setting.key for setting in SETTINGS if "." not in setting.key)
_SECTIONS: Final = tuple(dict.fromkeys(s.key.split(".")[0] for s in SETTINGS if "." in s.key))
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})
MODEL_KEYS: Final = ("model", "small_model", "memory.extractor")
"""The settings that name a language model."""
_PROVIDER: Final = re.compile(r"[A-Za-z0-9_-]+")
_NAMED: Final = {"providers": "provider", "mcp_servers": "MCP server"}
"""Sections with one subsection per name, and what the names stand for."""
_PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DATABASES: Final = ("sqlite:///", "postgresql://", "postgres://")
_NAMES_OF_SECRETS: Final = (".env_api_key", ".oauth_env_client_secret")
"""Settings that hold the name of a variable with a secret. A common mistake is to write the secret itself."""
_RULE_PARTS: Final = ("action", "tool", *(each.name for each in fields(RuleOptions)))
_RULE_TOOL: Final = "permissions.N.tool"
_RULE: Final = re.compile(r"[A-Za-z0-9_*-]+(\(.*\))?", re.DOTALL)
# A control character or a lone surrogate in an address, a name or a path is a mistake or an attack.
_NOT_TEXT: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
# The command that a rule is about may have several lines.
_NOT_LINES: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def setting_named(key: str, where: str) -> Setting:
    """Find a setting by its dotted key; `providers.deepseek.kind` finds `providers.NAME.kind`.

    Raises:
        ConfigError: There is no such setting; the message names the closest one.
    """
    section, _, rest = key.partition(".")
    name, _, part = rest.rpartition(".")
    if section in _NAMED and _PROVIDER_NAME.fullmatch(name):
        key, shown = f"{section}.NAME.{part}", key
    else:
        shown = key
    if key in _BY_KEY and not key.startswith("permissions."):
        return _BY_KEY[key]
    keys = [setting.key for setting in SETTINGS if not setting.key.startswith("permissions.")]
    close = closest(key, keys)
    raise ConfigError(
        f"{where}: there is no setting {_quoted(shown)}.{close or ' `satchel config show` lists them.'}"
    )


def check_tables(tables: Mapping[str, Any], where: Where) -> Iterator[tuple[str, Setting, Value]]:
    """Check the content of a file, except for `permissions` (see `check_rules`).

    Yields:
        The dotted key, its setting and its value, in the order of the file.

    Raises:
        ConfigError: A section or a key is unknown, or a value is not allowed.
    """
    for name, value in tables.items():
        if name in _TOP:
            yield name, _BY_KEY[name], check_value(_BY_KEY[name], value, _at(where, (name,)))
        elif name == "permissions":
            continue
        elif name in _NAMED:
            for entry, table in _table(value, where, (name,)).items():
                if not _PROVIDER_NAME.fullmatch(entry):
                    raise ConfigError(
                        f"{where((name, entry))}: {'an' if name == 'mcp_servers' else 'a'} {_NAMED[name]} can't be "
                        f"called {_quoted(entry)}: a name consists of letters, digits, - and _."
                    )
                yield from _check_section(_table(table, where, (name, entry)), (name, entry), where)
        elif name in _SECTIONS:
            yield from _check_section(_table(value, where, (name,)), (name,), where)
        else:
            kind = "section" if isinstance(value, dict) else "setting"
            raise ConfigError(
                f"{where((name,))}: there is no {kind} {_quoted(name)}.{closest(name, (*_TOP, *_SECTIONS))} "
                f"There are the settings {', '.join(_TOP)} and the sections {', '.join(_SECTIONS)}."
            )


def _check_section(
    table: Mapping[str, Any], path: tuple[str, ...], where: Where
) -> Iterator[tuple[str, Setting, Value]]:
    pattern = f"{path[0]}.NAME" if path[0] in _NAMED else path[0]
    for name, value in table.items():
        setting = _BY_KEY.get(f"{pattern}.{name}")
        at = (*path, name)
        if setting is None:
            known = [key.removeprefix(f"{pattern}.") for key in _BY_KEY if key.startswith(f"{pattern}.")]
            hint = closest(name, known)
            if path[0] == "providers" and "key" in name.lower():
                # For `api_key = "sk-…"`, say where keys belong, without repeating the value.
                hint = (
                    " Keys are never stored in this file: put the key into an environment variable, and the variable's "
                    "name into env_api_key."
                )
            raise ConfigError(
                f"{where(at)}: [{'.'.join(path)}] has no setting {_quoted(name)}.{hint} It has: "
                f"{', '.join(known)}."
            )
        yield ".".join(at), setting, check_value(setting, value, _at(where, at))


def check_mcp_server(server: McpServerSettings, where: str) -> None:
    """Check an entry as a whole: its name, and that it has either a program or an address.

    Raises:
        ConfigError: It is not allowed.
    """
    if "__" in server.name or server.name.strip("_") != server.name:
        # Otherwise mcp__SERVER__TOOL would be ambiguous, and a rule for one server could match another.
        raise ConfigError(
            f"{where}: an MCP server can't be called {server.name!r}: a name can't begin or end with an "
            "underscore, or contain two in a row."
        )
    if bool(server.command) == bool(server.url):
        both = "both" if server.command else "neither"
        raise ConfigError(
            f"{where}: [mcp_servers.{server.name}] needs a command (a program to start) or a url, but has {both}."
        )


def check_rules(rules: object, where: Where) -> tuple[PermissionRule, ...]:
    """Check the list of permission rules.

    Raises:
        ConfigError: It is not a list of tables with `action` and `tool`, or one of the two is not allowed.
    """
    if not isinstance(rules, list):
        raise ConfigError(
            f"{where(('permissions',))}: write permissions as [[permissions]] tables, one for each rule."
        )
    return tuple(_check_rule(table, ("permissions", position), where) for position, table in enumerate(rules))


def _check_rule(table: object, path: KeyPath, where: Where) -> PermissionRule:
    if not isinstance(table, dict):
        raise ConfigError(f"{where(path)}: a permission is a table with action and tool.")
    values: dict[str, Value] = {}
    for name in table:
        if name not in _RULE_PARTS:
            raise ConfigError(
                f"{where((*path, name))}: [[permissions]] has no setting {_quoted(name)}.{closest(name, _RULE_PARTS)} "
                f"It has: {', '.join(_RULE_PARTS)}."
            )
        values[name] = check_value(_BY_KEY[f"permissions.N.{name}"], table[name], _at(where, (*path, name)))
    for name in ("action", "tool"):
        if name not in values:
            raise ConfigError(
                f"{where(path)}: [[permissions]] needs {name}: {_BY_KEY[f'permissions.N.{name}'].doc}"
            )
    said: dict[str, Any] = {name: value for name, value in values.items() if name not in ("action", "tool")}
    options = RuleOptions(**said)
    if options and values["action"] != "allow":
        raise ConfigError(
            f"{where(path)}: only a permission that allows has network, read, write, boxed, secrets and state. A rule "
            "that denies or asks holds for every matching call."
        )
    problem = options_problem(options, tool=str(values["tool"]))
    if problem:
        raise ConfigError(f"{where(path)}: {problem}")
    return PermissionRule(
        action=cast("RuleAction", values["action"]), tool=str(values["tool"]), options=options
    )


def check_value(setting: Setting, value: object, where: Callable[[], str]) -> Value:
    """Check a value and convert it to the setting's type.

    Args:
        setting: The setting.
        value: As parsed from TOML; None for an optional setting that is left out.
        where: Describes the file, line and key; the error message begins with it.

    Raises:
        ConfigError: It is not allowed; the message says what is.
    """
    if value is None and setting.optional:
        return None
    if not _fits(setting, value):
        shown = "this value" if is_secret(setting) else _short(value)
        hint = closest(value, setting.choices) if setting.choices and isinstance(value, str) else ""
        raise ConfigError(f"{where()}: {shown} is not allowed; use {setting.allowed}.{hint}")
    if isinstance(value, str):
        _check_form(setting, value, where)
    if setting.kind == "float":
        return float(cast("float", value))
    if setting.kind == "words":
        return tuple(cast("Iterable[str]", value))
    if setting.kind == "table":
        return dict(cast("Mapping[str, str]", value))
    return cast("Value", value)


def _fits(setting: Setting, value: object) -> bool:
    if setting.kind == "bool" or isinstance(value, bool):
        return setting.kind == "bool" and isinstance(value, bool)
    match setting.kind:
        case "int" | "float":
            types = int if setting.kind == "int" else (int, float)
            if not isinstance(value, types) or not math.isfinite(value):
                return False
            return (setting.low is None or value >= setting.low) and (
                setting.high is None or value <= setting.high
            )
        case "text":
            return (
                isinstance(value, str)
                and not (_NOT_LINES if setting.key == _RULE_TOOL else _NOT_TEXT).search(value)
                and (not setting.choices or value in setting.choices)
            )
        case "table":
            # A line break in a header or a variable would turn it into two.
            return isinstance(value, Mapping) and all(
                isinstance(word, str) and not _NOT_TEXT.search(word)
                for pair in value.items()
                for word in pair
            )
        case "words":
            return isinstance(value, list | tuple) and all(
                isinstance(word, str) and word and not _NOT_TEXT.search(word) for word in value
            )


def _check_form(setting: Setting, value: str, where: Callable[[], str]) -> None:
    """Check the format of a text. Errors don't repeat addresses and keys, which may contain a secret."""
    if setting.key.endswith(_NAMES_OF_SECRETS) and value and not _VARIABLE.fullmatch(value):
        raise ConfigError(
            f"{where()}: this is not the name of an environment variable. Never write a secret here: put it "
            'into a variable, and write the variable\'s name here, such as "DEEPSEEK_API_KEY".'
        )
    if setting.key.endswith(".url") and value and not value.startswith("${") and not is_address(value):
        raise ConfigError(
            f'{where()}: this is not an address; use one such as "https://mcp.example.com/mcp".'
        )
    if setting.key.endswith(".base_url") and value and not is_address(value):
        raise ConfigError(f'{where()}: this is not an address; use one such as "https://api.example.com/v1".')
    if setting.key == "database" and "://" in value and not value.startswith(_DATABASES):
        raise ConfigError(
            f"{where()}: the database is a SQLite file or on a PostgreSQL server; use a path, "
            "sqlite:/// and a path, or postgresql:// and a server."
        )
    if setting.key == "permissions.N.tool" and not _RULE.fullmatch(value):
        raise ConfigError(
            f"{where()}: {_short(value)} is not a rule; use a tool's name, or a name and a pattern: "
            "bash(git *)."
        )
    # Whether a provider without a model is enough depends on its entry: see `check_provider_alone`.
    if setting.key in MODEL_KEYS and value and not (all(value.partition(":")) or _PROVIDER.fullmatch(value)):
        raise _not_a_model(value, where)


def check_provider_alone(value: str, models: Mapping[str, str], where: Callable[[], str]) -> None:
    """Check a value of one of `MODEL_KEYS` that may name only a provider. `models` are the default models, by provider.

    Raises:
        ConfigError: It names only a provider, and that has no default model or doesn't exist.
    """
    if value not in ("", "none") and ":" not in value and not models.get(value):
        raise _not_a_model(value, where)


def _not_a_model(value: str, where: Callable[[], str]) -> ConfigError:
    return ConfigError(
        f'{where()}: {_short(value)} is not a model; use "provider:model" such as '
        '"anthropic:claude-sonnet-5-5", "gguf:/path/model.gguf", or "none"; or a provider whose entry names a model.'
    )


def check_provider(model: str, known: Iterable[str], where: Callable[[], str]) -> None:
    """Check that the provider of a model exists. The model is "provider:model", "none" or "".

    Raises:
        ConfigError: There is no such provider; the message lists those that exist, and says how to add one.
    """
    name = model.partition(":")[0].strip()
    names = tuple(known)
    if name and name not in names:
        raise ConfigError(
            f"{where()}: there is no provider {_quoted(name)}.{closest(name, names)} There are: {', '.join(names)}. "
            f"To add one: satchel config set providers.{name}.base_url https://api.example.com/v1"
        )


def is_address(text: str) -> bool:
    """Whether the text is the address of a server."""
    try:
        address = urlsplit(text)
        return address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        return False


def value_of_text(setting: Setting, text: str, where: Callable[[], str]) -> Value:
    """Parse the value of an environment variable or of a command's argument.

    Args:
        setting: The setting.
        where: As in `check_value`.
        text: Numbers and text as they are; booleans as true, yes, on, 1 and their opposites; lists with commas or as in
            TOML; tables as in TOML. Empty text leaves an optional setting out.

    Raises:
        ConfigError: It is not allowed; the message says what is.
    """
    text = text.strip()
    value: object = text
    if setting.optional and not text:
        value = None
    elif setting.kind == "bool" and text.lower() in _TRUE | _FALSE:
        value = text.lower() in _TRUE
    elif setting.kind == "words" and text.startswith("["):
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            value = tomllib.loads(f"list = {text}")["list"]
    elif setting.kind == "words":
        value = tuple(word.strip() for word in text.split(",") if word.strip())
    elif setting.kind == "table":
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            value = tomllib.loads(f"table = {text}")["table"]
    elif setting.kind in ("int", "float"):
        try:
            value = int(text) if setting.kind == "int" else float(text)
        except ValueError:
            value = text
    return check_value(setting, value, where)


def is_secret(setting: Setting) -> bool:
    """Whether a value of this setting may contain a password. Such values are never shown."""
    return setting.key == "database" or setting.key.endswith(
        (".base_url", *_NAMES_OF_SECRETS, ".url", ".args", ".env", ".headers")
    )


def closest(word: str, known: Iterable[str]) -> str:
    """` Did you mean …?` with the closest known word, or "" if none is close."""
    # difflib's default cutoff, 0.6, tolerates one wrong or missing letter in words of at least four letters.
    spelled = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), spelled, n=1)
    return f' Did you mean "{spelled[found[0]]}"?' if found else ""


def _table(value: object, where: Where, path: KeyPath) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        name = ".".join(str(part) for part in path)
        raise ConfigError(f"{where(path)}: {name} is a section. Write [{name}], with its settings below.")
    return value


def _at(where: Where, path: KeyPath) -> Callable[[], str]:
    return lambda: f"{where(path)}: {'.'.join(str(part) for part in path)}"


def _quoted(name: str) -> str:
    return f'"{_cut(name)}"'


def _short(value: object) -> str:
    return _cut(
        f'"{value}"'
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else repr(value)
    )


def _cut(text: str) -> str:
    """At most 60 characters, on one line, for error messages."""
    text = text.encode("unicode_escape").decode() if _NOT_TEXT.search(text) else text
    return text if len(text) <= 60 else f"{text[:57]}…"
