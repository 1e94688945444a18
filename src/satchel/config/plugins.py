"""Plugins: installed packages that offer tools, search engines, language models, importers, sandboxes or routes.

A package offers them by entry points of the group "satchel", each of which names a module with one or more of the
functions in `Hook`. Nothing of it is imported before the user enabled it by name. What was enabled is pinned in
SATCHEL_HOME/plugins.json, by version and a hash of the package's files; a package that has changed since is not loaded
until it is enabled again. Once loaded, its code can do what Satchel can.

Parts of Satchel that its rooms don't know (`satchel.addons`) are entry points of Satchel's own package. They need no
pin: whoever installed Satchel enabled them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from satchel.config.home import ensure_home, replace_file
from satchel.errors import NotFound

Hook: TypeAlias = Literal["tools", "search_engines", "providers", "importers", "sandboxes", "routers"]
"""The functions of a plugin's module. `tools`, `search_engines` and `routers` give sequences, the others mappings by
name."""

PluginState: TypeAlias = Literal["enabled", "disabled", "changed"]

_GROUP: Final = "satchel"
_OURS: Final = "satchel"
"""The name of Satchel's own package."""
_OF_OURS: Final[tuple[Hook, ...]] = ("sandboxes", "routers")
"""What `offered` gives of its parts. For anything else it looks nothing up, which would take 20 ms of every start."""
_FILE: Final = "plugins.json"
_NOT_CODE: Final = (".pyc", "/RECORD", "/INSTALLER", "/REQUESTED", "/direct_url.json")
"""What installers write anew, by the ends of paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A package with entry points of the group.

    Attributes:
        name: The package's, as pip writes it.
        digest: SHA-256 over the paths and contents of its files, in hexadecimal.
        state: "changed": it was enabled in another version, or with other files.
    """

    name: str
    version: str
    digest: str
    state: PluginState
    entries: tuple[EntryPoint, ...]


def find_plugins(home: Path) -> tuple[Plugin, ...]:
    """All installed plugins, by name. Nothing of them is imported."""
    return tuple(_plugins(_pins(home)))


def enable(home: Path, name: str) -> Plugin:
    """Let a plugin be loaded from now on, as it is.

    Raises:
        NotFound: No such plugin is installed.
        StorageUnwritable: The home can't be written.
    """
    found = _named(find_plugins(home), name)
    _write(home, {**_pins(home), found.name: {"version": found.version, "digest": found.digest}})
    return found


def disable(home: Path, name: str) -> None:
    """Let a plugin not be loaded any more; what runs keeps it until it ends.

    Raises:
        NotFound: It is not enabled.
        StorageUnwritable: The home can't be written.
    """
    pins = _pins(home)
    if name not in pins:
        raise NotFound(f"There is no enabled plugin {name!r}. `satchel plugin list` shows them.")
    _write(home, {other: pin for other, pin in pins.items() if other != name})


def offered(home: Path, hook: Hook) -> Iterator[tuple[str, Any]]:
    """What Satchel's own package and the enabled plugins offer by one of their functions: the package's name and what
    the function gave.

    What fails is left out; see `problems`.
    """
    ours = _own() if hook in _OF_OURS else ()
    for name, module in (*ours, *_loaded(home, _text(home)).modules):
        function = getattr(module, hook, None)
        if function is None:
            continue
        try:
            yield name, function()
        # A boundary: the plugin is somebody else's code.
        except Exception as error:  # noqa: BLE001
            note_problem(home, name, f"Its function {hook} failed: {type(error).__name__}: {error}")


def offered_by_satchel(hook: Hook) -> Iterator[Any]:
    """What the parts of Satchel's own package offer by one of their functions; no home is needed."""
    return (getattr(module, hook)() for _, module in _own() if hasattr(module, hook))


def plugin_providers(home: Path) -> tuple[str, ...]:
    """The names of the providers that enabled plugins offer."""
    return tuple(name for _, providers in offered(home, "providers") for name in providers)


def note_problem(home: Path, name: str, text: str) -> None:
    """Note why something of a plugin can't be used, for `problems`."""
    _loaded(home, _text(home)).problems[name] = text


def problems(home: Path) -> Mapping[str, str]:
    """Why enabled plugins are not loaded, or not as a whole, by name."""
    return dict(_loaded(home, _text(home)).problems)


@dataclass(frozen=True, slots=True)
class _Loaded:
    modules: tuple[tuple[str, Any], ...]
    problems: dict[str, str]


@cache
def _own() -> tuple[tuple[str, Any], ...]:
    """The modules of Satchel's own package; they import nothing heavy."""
    with suppress(PackageNotFoundError):
        return tuple((_OURS, entry.load()) for entry in distribution(_OURS).entry_points.select(group=_GROUP))
    return ()


@lru_cache(maxsize=8)
def _loaded(home: Path, pinned: str) -> _Loaded:
    """The modules of the enabled plugins, imported once for what the file says."""
    modules: list[tuple[str, Any]] = []
    problems: dict[str, str] = {}
    pins = _pins(home) if pinned else {}
    found = {plugin.name: plugin for plugin in _plugins(pins, only=pins)} if pins else {}
    for name in pins:
        plugin = found.get(name)
        if plugin is None:
            problems[name] = "It is enabled and not installed."
        elif plugin.state == "changed":
            problems[name] = (
                f"It has changed since you enabled it, so it is not loaded. To look at it and enable it again: "
                f"satchel plugin enable {name}"
            )
        else:
            for entry in plugin.entries:
                try:
                    modules.append((name, entry.load()))
                # A boundary, as above.
                except Exception as error:  # noqa: BLE001
                    problems[name] = f"{entry.value} can't be imported: {type(error).__name__}: {error}"
    return _Loaded(tuple(modules), problems)


def _plugins(pins: Mapping[str, Any], *, only: Mapping[str, Any] | None = None) -> Iterator[Plugin]:
    seen: set[str] = set()
    for package in sorted(distributions(), key=lambda one: one.name or ""):
        name = package.name
        if not name or name == _OURS or name in seen or (only is not None and name not in only):
            continue
        entries = tuple(entry for entry in package.entry_points if entry.group == _GROUP)
        if not entries:
            continue
        seen.add(name)
        digest = _digest(package, entries)
        pin = pins.get(name)
        same = isinstance(pin, dict) and (pin.get("version"), pin.get("digest")) == (package.version, digest)
        state: PluginState = "disabled" if pin is None else "enabled" if same else "changed"
        yield Plugin(name=name, version=package.version, digest=digest, state=state, entries=entries)


def _digest(package: Distribution, entries: Sequence[EntryPoint]) -> str:
    """A hash over the files that the package lists, and over the source of the packages that it names.

    An editable installation lists only a link to the source.
    """
    files = {str(path): Path(str(path.locate())) for path in package.files or ()}
    for top in sorted({entry.module.partition(".")[0] for entry in entries}):
        spec = find_spec(top)
        for folder in spec.submodule_search_locations or () if spec is not None else ():
            files |= {f"{top}/{path.relative_to(folder)}": path for path in Path(folder).rglob("*.py")}
        if spec is not None and spec.origin and not spec.submodule_search_locations:
            files[spec.origin.rpartition("/")[2]] = Path(spec.origin)
    whole = hashlib.sha256()
    for name, path in sorted(files.items()):
        if name.endswith(_NOT_CODE) or not path.is_file():
            continue
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{len(name)}:{name}={content};".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _named(plugins: Sequence[Plugin], name: str) -> Plugin:
    for plugin in plugins:
        if plugin.name == name:
            return plugin
    there = ", ".join(plugin.name for plugin in plugins) or "none"
    raise NotFound(f"No plugin {name!r} is installed beside Satchel. Installed: {there}.")


def _text(home: Path) -> str:
    try:
        return (home / _FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _pins(home: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(home) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _write(home: Path, pins: Mapping[str, Any]) -> None:
    ensure_home(home)
    replace_file(home / _FILE, json.dumps(pins, indent=1, ensure_ascii=False) + "\n")
