"""Writes settings to a TOML file without changing the rest of it, comments included."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from satchel.config.check import (
    MODEL_KEYS,
    Value,
    check_provider,
    check_provider_alone,
    check_rules,
    check_tables,
    check_value,
    setting_named,
    value_of_text,
)
from satchel.config.home import ensure_home, locked_folder, replace_file
from satchel.config.plugins import plugin_providers
from satchel.config.providers import builtin_providers
from satchel.config.setting import written
from satchel.config.settings import PermissionRule
from satchel.config.toml_file import TomlFile, read_toml
from satchel.errors import ConfigError, NotFound

_HEADER: Final = """\
# Settings of Satchel. `satchel config show` lists all of them with their values, `satchel config set KEY
# VALUE` changes one. API keys do not belong here: `satchel config init` and the web pages take them.

"""


@contextmanager
def editing(path: Path, *, dry_run: bool = False) -> Iterator[tuple[TomlFile | None, Any]]:
    """A file, None if it doesn't exist, and its tomlkit document, which the block changes. At the end of the block the
    file is written, unless it is a `dry_run`; the file and its folder are created if they don't exist.

    Raises:
        ConfigError: The file is invalid, or can't be changed in this way; it is unchanged.
        StorageUnwritable: The file can't be written; it is unchanged.
    """
    # Imported on demand: it takes longer than everything else here, and few commands write.
    import tomlkit  # noqa: PLC0415
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    ensure_home(path.parent)
    with locked_folder(path.parent):
        file = read_toml(path)
        if file is not None:
            # Errors in the file are reported now, with their line, rather than at the next start.
            for _ in check_tables(file.tables, file.where):
                pass
        before = file.text if file is not None else _HEADER
        document = tomlkit.parse(before)
        try:
            yield file, document
            text = tomlkit.dumps(document).rstrip("\n")
            text = f"{text}\n" if text else ""
            tomllib.loads(text)
        except (TOMLKitError, tomllib.TOMLDecodeError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{path} can't be changed without damaging the rest of it ({error}). Edit the file yourself."
            ) from error
        if text != before and not dry_run:
            replace_file(path, text)


def set_value(
    path: Path, key: str, value: object, *, providers: Iterable[str] = (), dry_run: bool = False
) -> Value:
    """Set one key in a file; see `set_values`. Returns the value that is now in the file; None if it was removed."""
    return set_values(path, {key: value}, providers=providers, dry_run=dry_run)[key]


def set_values(
    path: Path, values: Mapping[str, object], *, providers: Iterable[str] = (), dry_run: bool = False
) -> Mapping[str, Value]:
    """Set keys in a file, all in one step. The file and its folder are created if they don't exist.

    Args:
        path: The file, such as `Settings.config_path`.
        values: By dotted key: "agent.max_rounds", "providers.deepseek.base_url". Text is read like an environment
            variable. None removes the key, as does empty text for an optional setting.
        providers: Providers that exist besides the built-in ones and those in the file: the environment's.
        dry_run: Only check.

    Returns:
        What is now in the file, by key; None for what was removed.

    Raises:
        ConfigError: The file is invalid, a key is unknown or a value is not allowed; the file is unchanged.
        StorageUnwritable: The file can't be written; it is unchanged.
    """
    checked = {key: _checked(key, value) for key, value in values.items()}
    added = [key.split(".")[1] for key in values if key.startswith("providers.")]
    with editing(path, dry_run=dry_run) as (file, document):
        for key, value in checked.items():
            if key in MODEL_KEYS and isinstance(value, str):
                entries = file.tables.get("providers", {}) if file is not None else {}
                models = {name: str(entry.get("model", "")) for name, entry in entries.items()}
                check_provider_alone(value, models, partial(str, key))
                known = dict.fromkeys(
                    [*builtin_providers({}), *entries, *added, *providers, *plugin_providers(path.parent)]
                )
                check_provider(value, known, partial(str, key))
            _put(document, key.split("."), list(value) if isinstance(value, tuple) else value)
    return checked


def _checked(key: str, value: object) -> Value:
    setting = setting_named(key, "config set")
    if value is None:
        return None
    if isinstance(value, str):
        return value_of_text(setting, value, lambda: key)
    return check_value(setting, value, lambda: key)


def _put(document: Any, parts: list[str], value: Any) -> None:
    import tomlkit  # noqa: PLC0415  see `editing`

    table = document
    for position, part in enumerate(parts[:-1]):
        if part not in table:
            if value is None:
                return
            # [providers.deepseek] needs no empty [providers] above it.
            table.add(part, tomlkit.table(is_super_table=position == 0 and len(parts) > 2))
        table = table[part]
    if value is None:
        table.pop(parts[-1], None)
    else:
        table[parts[-1]] = value


def add_permission(path: Path, rule: PermissionRule) -> None:
    """Append a permission rule as a `[[permissions]]` table, unless the file has it already. The file is created if it
    doesn't exist.

    Raises:
        ConfigError: The file is invalid, or the rule would make it so; it is unchanged.
        StorageUnwritable: The file can't be written; it is unchanged.
    """
    import tomlkit  # noqa: PLC0415  see `editing`

    table = {"action": rule.action, "tool": rule.tool, **written(rule.options)}
    check_rules([table], lambda _: "This rule can't be kept in a settings file")
    with editing(path) as (_, document):
        rules: Any = document.setdefault("permissions", tomlkit.aot())
        if all(dict(other) != table for other in rules):
            entry = tomlkit.table()
            entry.update(table)
            rules.append(entry)


def remove_permission(path: Path, rule: PermissionRule) -> None:
    """Remove a permission rule from a file, and change nothing else in it.

    Raises:
        NotFound: The file has no such rule.
        ConfigError: The file is invalid; it is unchanged.
        StorageUnwritable: The file can't be written; it is unchanged.
    """
    with editing(path) as (file, document):
        rules = check_rules(file.tables.get("permissions", []), file.where) if file is not None else ()
        if rule not in rules:
            raise NotFound(f"{path} has no rule {rule.action} {rule.text}.")
        for position in reversed(range(len(rules))):
            if rules[position] == rule:
                del document["permissions"][position]
        if not document["permissions"]:
            del document["permissions"]


def write_initial(path: Path, values: Mapping[str, object], *, providers: Iterable[str] = ()) -> Path:
    """Write the first settings file, as the first start does. The file must not exist. Values are by dotted key, and
    None is left out.

    Returns:
        `path`.

    Raises:
        ConfigError: The file exists, a key is unknown or a value is not allowed; nothing was written.
        StorageUnwritable: It can't be written.
    """
    added = [key.split(".")[1] for key in values if key.startswith("providers.")]
    known = dict.fromkeys([*builtin_providers({}), *added, *providers])
    with editing(path) as (file, document):
        if file is not None or path.is_symlink():
            raise ConfigError(f"{path} already exists. Change it with `satchel config set KEY VALUE`.")
        for key, value in values.items():
            if value is not None:
                checked = check_value(setting_named(key, str(path)), value, partial(str, key))
                if key in MODEL_KEYS and isinstance(checked, str):
                    check_provider(checked, known, partial(str, key))
                _put(document, key.split("."), list(checked) if isinstance(checked, tuple) else checked)
    return path
