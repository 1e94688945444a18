"""A permission rule as one line, such as `bash(npm *) network=registry.npmjs.org write=~/notes boxed=true`.

The options follow the tool and its pattern. Their values never hold a parenthesis or white space, which are written as
`%29`, so the last parenthesis of a line always ends the pattern, whatever the pattern holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from satchel.config.setting import setting
from satchel.errors import UsageError

_OPTION: Final = re.compile(r"(?:network|read|write|boxed|secrets|state)=[^\s()]*")
_HOST: Final = re.compile(
    r"\*|(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?(?P<port>:\d{1,5})?|\[[0-9a-f:.]+\](?P<port6>:\d{1,5})?",
    re.IGNORECASE,
)
_SECRET: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CAPABILITY: Final = "cap_"
"""The names of capabilities' tools begin with this."""
_PLAIN: Final = "/~+:@!$&;*[]?"
"""Characters that stay as they are in a path: only white space, parentheses, commas, `%` and quotes need escaping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """What a rule says about the sandbox of the calls that it allows, and about what capabilities may reach."""

    network: tuple[str, ...] = setting(
        (),
        "Hosts that matching calls may reach from the sandbox: api.example.org, *.example.org:443, or * "
        "for every public address.",
    )
    read: tuple[str, ...] = setting(
        (),
        "Files and folders that matching calls may read from the sandbox, in addition to the workspace "
        "and the system's folders.",
    )
    write: tuple[str, ...] = setting(
        (), "Files and folders that matching calls may write from the sandbox, in addition to the workspace."
    )
    boxed: bool | None = setting(
        None, "Whether matching calls run in the sandbox. If not set, they do in mode auto."
    )
    secrets: tuple[str, ...] = setting(
        (), "Environment variables that matching capabilities (cap_NAME) may get, without a question."
    )
    state: bool = setting(
        False, "Whether matching capabilities may keep files from one run to the next, without a question."
    )

    def __bool__(self) -> bool:
        return self != RuleOptions()


def rule_text(tool: str, options: RuleOptions) -> str:
    """Write a rule as one line."""
    words = [tool]
    for name in ("network", "read", "write", "secrets"):
        values = getattr(options, name)
        if values:
            words.append(f"{name}={','.join(quote(value, safe=_PLAIN) for value in values)}")
    if options.boxed is not None:
        words.append(f"boxed={'true' if options.boxed else 'false'}")
    if options.state:
        words.append("state=true")
    return " ".join(words)


def rule_options(text: str) -> tuple[str, RuleOptions]:
    """Split a line into the tool with its pattern, and the options.

    Raises:
        UsageError: An option's value is not allowed; says which are.
    """
    tool, words = _split(text)
    if not words:
        return text, RuleOptions()
    lists: dict[str, list[str]] = {"network": [], "read": [], "write": [], "secrets": []}
    switches: dict[str, bool] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name in ("boxed", "state"):
            if value not in ("true", "false"):
                raise UsageError(f"{word!r} is not allowed in the rule {text!r}: {name} is true or false.")
            switches[name] = value == "true"
            continue
        values = [unquote(part) for part in value.split(",") if part]
        if not values:
            raise UsageError(
                f"{word!r} is not allowed in the rule {text!r}: it takes values separated by commas."
            )
        lists[name].extend(values)
    said: dict[str, Any] = {**{name: tuple(values) for name, values in lists.items()}, **switches}
    options = RuleOptions(**said)
    problem = options_problem(options, tool=tool)
    if problem:
        raise UsageError(f"The rule {text!r} can't be used: {problem}")
    return tool, options


def _split(text: str) -> tuple[str, list[str]]:
    """The tool, and the words of the options after it."""
    words: list[str] = []
    rest = text.rstrip()
    while True:
        parts = rest.rsplit(None, 1)
        if len(parts) < 2 or not _OPTION.fullmatch(parts[1]):
            return rest, words
        words.insert(0, parts[1])
        rest = parts[0].rstrip()


def options_problem(options: RuleOptions, *, tool: str) -> str:
    """What is wrong with the options of a rule about `tool`, as a sentence, or ""."""
    problems: Sequence[str] = [
        *(host_problem(host) for host in options.network),
        *(path_problem(path) for path in (*options.read, *options.write)),
        *(_secret_problem(name) for name in options.secrets),
    ]
    if (options.secrets or options.state) and not tool.startswith(_CAPABILITY):
        return "secrets and state belong to rules about capabilities, such as cap_weather_lookup or cap_*."
    if options.boxed is False and (options.network or options.read or options.write):
        return "Calls that run outside the sandbox reach everything: leave out network, read and write, or boxed."
    return next((problem for problem in problems if problem), "")


def host_problem(host: str) -> str:
    """What is wrong with a host in `network`, as a sentence, or ""."""
    match = _HOST.fullmatch(host)
    port = match["port"] or match["port6"] if match is not None else None
    if match is None or ".." in host or (port and not 0 < int(port[1:]) < 65_536):
        return (
            f"{host!r} is not a host. Write api.example.org, api.example.org:8443, *.example.org, or * for every "
            "public address."
        )
    return ""


def _secret_problem(name: str) -> str:
    return "" if _SECRET.fullmatch(name) else f"{name!r} is not the name of an environment variable."


def path_problem(path: str) -> str:
    """What is wrong with a path in `read` or `write`, as a sentence, or ""."""
    if "*" in path or not path.strip():
        return f"{path!r} is not a path. `read` and `write` name files and folders, with all in them, and take no *."
    return ""
