"""Where a server is and where it starts: its entry filled in, its program, its folder and its environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from satchel.config import McpServerSettings
from satchel.config.home import expanded
from satchel.errors import ConfigError

Lookup: TypeAlias = Callable[[str], str | None]
"""Returns the value of an environment variable, or None if it is not set."""

_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")

_NEEDED = (
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "PATH",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "SYSTEMROOT",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
)
"""Variables that programs need and that hold no secrets; LC_* are passed on as well."""


_RUNNERS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("npx", "bunx", "pnpx", "npm", "pnpm", "yarn", "bun"), ("registry.npmjs.org",)),
    **dict.fromkeys(("uvx", "uv", "pipx"), ("pypi.org", "files.pythonhosted.org")),
}
"""Programs that fetch the server that they start, and from where."""


def fetched_from(entry: McpServerSettings) -> tuple[str, ...]:
    """The hosts from which an entry's program fetches the server when it first starts; none if it is there already."""
    return _RUNNERS.get(Path(entry.command).name, ())


def filled_in(entry: McpServerSettings, lookup: Lookup) -> McpServerSettings:
    """The entry with every `${NAME}` replaced.

    Raises:
        ConfigError: A variable is not set and has no default. The message names it and holds no value.
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
    """The environment of a server's program: what every program needs, and what its entry (filled in) names."""
    needed = {name: value for name, value in environ.items() if name in _NEEDED or name.startswith("LC_")}
    return {**needed, **entry.env}


def program(entry: McpServerSettings, home: Path, environ: Mapping[str, str]) -> str:
    """The program of an entry (filled in), to be run in any folder.

    A name without a slash is found on the PATH. A relative path starts at the folder whose settings name it: the
    project's, or SATCHEL_HOME.
    """
    if "/" not in entry.command:
        return entry.command
    return str((entry.base or home) / expanded(entry.command, environ.get("HOME", "/")))


def folder(entry: McpServerSettings, start: Path, environ: Mapping[str, str]) -> Path:
    """The folder in which an entry's program (filled in) starts.

    Args:
        entry: `cwd` may be relative: to the project's folder, where a project's settings hold it, else to `start`.
        start: Where programs start that name no folder.
        environ: Of the program, for `~`.
    """
    return (entry.base or start) / expanded(entry.cwd, environ.get("HOME", "/"))
