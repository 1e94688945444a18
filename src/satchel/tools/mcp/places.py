"""Where a server is: its entry with the environment filled in, and the environment that it gets itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from satchel.config import McpServerSettings
from satchel.errors import ConfigError

__all__ = ["Lookup", "environment", "filled_in"]

Lookup: TypeAlias = Callable[[str], str | None]
"""The value of an environment variable, or None where it is not set."""

_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")

_NEEDED = (
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SYSTEMROOT",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
)
"""What every program may need and nobody keeps a secret in; LC_* besides."""


def filled_in(entry: McpServerSettings, lookup: Lookup) -> McpServerSettings:
    """The entry with every `${NAME}` replaced.

    Raises:
        ConfigError: A variable is not set and has no default; names it, and no value.
    """

    def fill(text: str) -> str:
        def value(match: re.Match[str]) -> str:
            found = lookup(match["name"])
            if found is None:
                found = match["default"]
            if found is None:
                raise ConfigError(
                    f"[mcp_servers.{entry.name}] needs the environment variable {match['name']}, which is not set."
                )
            return found

        return _REFERENCE.sub(value, text)

    return replace(
        entry,
        command=fill(entry.command),
        args=tuple(fill(argument) for argument in entry.args),
        env={name: fill(value) for name, value in entry.env.items()},
        cwd=fill(entry.cwd),
        url=fill(entry.url),
        headers={name: fill(value) for name, value in entry.headers.items()},
    )


def environment(entry: McpServerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """What a server's program gets: what every program needs, and what its entry (filled in) names."""
    needed = {name: value for name, value in environ.items() if name in _NEEDED or name.startswith("LC_")}
    return {**needed, **entry.env}
