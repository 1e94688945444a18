"""Permission rules as sentences, for people who don't know how rules are written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from satchel.config import PermissionRule
from satchel.runtime.lines import one_line
from satchel.runtime.rules import read_rule
from satchel.tools import Rule
from satchel.tools.visible import visible

_DOES: Final[Mapping[str, tuple[str, str]]] = {
    "*": ("use any tool", "use any tool with {}"),
    "bash": ("run any command", "run {}"),
    "browser": ("use the browser", "use the browser for {}"),
    "file_*": ("read, write and change any file", "read, write and change {}"),
    "file_edit": ("change any file", "change {}"),
    "file_read": ("read any file", "read {}"),
    "file_write": ("write any file", "write {}"),
    "glob": ("list the files of any folder", "list the files in {}"),
    "grep": ("search any file", "search {}"),
    "web_fetch": ("open any web address", "open {}"),
    "web_search": ("search the web", "search the web for {}"),
}
"""What a tool does, for all calls and for those that fit a pattern."""
_SERVER: Final = re.compile(r"mcp__(?P<server>.+?)__(?!_)(?P<tool>.+)")
_MOST_CHARS: Final = 1_000_000
"""Nothing of a rule is hidden: its end may be what matters."""


def sentence(rule: PermissionRule) -> str:
    """A rule as a sentence, with what is written in the rule between backticks."""
    read = read_rule(rule)
    does = _does(read)
    match rule.action:
        case "deny":
            return f"Satchel may never {does}."
        case "ask":
            return f"Satchel always asks before it may {does}."
        case "allow":
            return f"{_allows(read, does)}."


def _does(rule: Rule) -> str:
    server = _SERVER.fullmatch(rule.tool)
    if rule.tool in _DOES:
        every, some = _DOES[rule.tool]
    elif server is not None:
        tool = "every tool" if server["tool"] == "*" else f"the tool {_code(server['tool'])}"
        every = f"use {tool} of the MCP server {_code(server['server'])}"
        some = f"{every} with {{}}"
    elif rule.tool.startswith("cap_"):
        name = rule.tool.removeprefix("cap_")
        every = "run every capability" if name == "*" else f"run the capability {_code(name)}"
        some = f"{every} with {{}}"
    else:
        every = f"use {_code(rule.tool)}"
        some = f"{every} with {{}}"
    return every if rule.pattern is None else some.replace("{}", _code(rule.pattern))


def _allows(rule: Rule, does: str) -> str:
    options = rule.options
    reach = [
        f"{verb} {_listed(values)}"
        for verb, values in (
            ("reach", options.network),
            ("read", options.read),
            ("write", options.write),
            ("get", options.secrets),
        )
        if values
    ]
    if options.state:
        reach.append("keep files from one run to the next")
    if rule.needs_box and rule.pattern is None and not options.boxed:
        return f"In the sandbox, {'every tool' if rule.tool == '*' else _code(rule.tool)} may {_and(reach)}"
    # A star stands for any words, so what it covers runs in the sandbox.
    if options.boxed is False:
        where = " outside the sandbox"
    else:
        is_boxed = options.boxed or rule.needs_box or (rule.tool == "bash" and not rule.holds_outside)
        where = " in the sandbox" if is_boxed else ""
    return f"Satchel may {does}{where} without asking{f', and may {_and(reach)} then' if reach else ''}"


def _listed(values: Sequence[str]) -> str:
    return _and([_code(value) for value in values])


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _code(text: str) -> str:
    return f"`{one_line(visible(text.replace('`', '´')), _MOST_CHARS)}`"
