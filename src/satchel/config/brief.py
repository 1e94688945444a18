"""The few settings that a hook of another agent needs, read in two milliseconds; `load` takes fifty.

Where only `load` can tell, because a project that the user trusts has settings of its own, the caller is told so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from satchel.config.home import home_of
from satchel.errors import ConfigError

_MAX_BYTES: Final = 1_000_000
_FALSE: Final = ("0", "false", "no", "off")
_TRUE: Final = ("1", "true", "yes", "on")


class BriefSettings(NamedTuple):
    """Settings of memory, as in `MemorySettings`.

    Attributes:
        home: SATCHEL_HOME.
        database: The file; None for another database, which only the whole program can open.
        server: The URL of a database on a server, or "".
        in_full: Whether `load` may find something else here.
    """

    home: Path
    database: Path | None
    enabled: bool = True
    capture: bool = True
    budget_tokens: int = 500
    worker: bool = True
    in_full: bool = False
    server: str = ""

    @property
    def keeps_memory(self) -> bool:
        """Whether what is said becomes memory."""
        return self.enabled and self.capture


def environment() -> Mapping[str, str]:
    """This process's environment, not copied."""
    return os.environ


def read_brief(environ: Mapping[str, str], *, cwd: Path) -> BriefSettings:
    """Read the settings. Nothing is written, and no folder needs to exist.

    Raises:
        ConfigError: The file or a variable holds what can't be used; `load` says it better.
    """
    home = home_of(environ, cwd)
    table = _table(home / "config.toml")
    memory = table.get("memory", {})
    if not isinstance(memory, dict):
        raise ConfigError(f"{home}/config.toml: [memory] is not a table.")

    def setting(name: str, kind: type, default: Any) -> Any:
        text = environ.get(f"SATCHEL_MEMORY_{name.upper()}", "").strip()
        value = _of_text(text, kind) if text else memory.get(name, default)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise ConfigError(f"memory.{name} can't be {value!r}.")
        return value

    place = environ.get("SATCHEL_DATABASE", "").strip() or table.get("database", "")
    return BriefSettings(
        home=home,
        database=None
        if "://" in str(place)
        else home / (Path(str(place)).expanduser() if place else "satchel.db"),
        enabled=setting("enabled", bool, True),
        capture=setting("capture", bool, True),
        budget_tokens=setting("budget_tokens", int, 500),
        worker=setting("worker", str, "auto") == "auto",
        in_full=_may_be_a_project(cwd),
        server=str(place) if str(place).startswith("postgres") else "",
    )


def _table(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from error
    # Reading TOML takes four milliseconds, and few files say anything about memory.
    if b"memory" not in raw and b"database" not in raw:
        return {}
    import tomllib  # noqa: PLC0415

    try:
        return tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from error


def _of_text(text: str, kind: type) -> Any:
    if kind is bool:
        return True if text.lower() in _TRUE else False if text.lower() in _FALSE else text
    try:
        return kind(text)
    except ValueError:
        return text


def _may_be_a_project(cwd: Path) -> bool:
    return any((folder / ".satchel" / "config.toml").is_file() for folder in (cwd, *cwd.parents))
