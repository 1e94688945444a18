"""The tools that one session offers, in a fixed order, and the small wrappers that toolsets compose by."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from satchel.models.port import ToolDefinition
from satchel.tools.port import Tool, Toolset, ToolSpec

__all__ = ["Registry", "StaticToolset", "filtered"]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What both wire formats accept as the name of a tool."""


class Registry:
    """Tools by name. It never changes: a refresh makes a new one.

    Attributes:
        definitions: What a model is told, computed once: the same tools give the same bytes on every request.
        problems: Why a tool was left out, one sentence each, in the order found.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        """Take the tools in the order given; of two with one name, the first."""
        self._tools: dict[str, Tool] = {}
        definitions: list[ToolDefinition] = []
        problems: list[str] = []
        for tool in tools:
            problem = self._problem(tool.spec)
            if problem:
                problems.append(problem)
                continue
            self._tools[tool.spec.name] = tool
            definitions.append(_frozen(tool.spec))
        self.definitions: tuple[ToolDefinition, ...] = tuple(definitions)
        self.problems: tuple[str, ...] = tuple(problems)

    @classmethod
    async def load(cls, toolsets: Sequence[Toolset]) -> Registry:
        """Ask each toolset for its tools, in the order given."""
        return cls([tool for toolset in toolsets for tool in await toolset.tools()])

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools, in the order of `definitions`."""
        return tuple(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """The tool of exactly that name, or None."""
        return self._tools.get(name)

    def close_matches(self, name: str) -> tuple[str, ...]:
        """Up to three names that a misspelt one may have meant, best first."""
        by_folded = {known.casefold().replace("-", "_"): known for known in self._tools}
        found = difflib.get_close_matches(name.casefold().replace("-", "_"), by_folded, n=3, cutoff=0.6)
        return tuple(by_folded[folded] for folded in found)

    def _problem(self, spec: ToolSpec) -> str:
        whence = spec.origin or spec.source
        if not NAME.fullmatch(spec.name):
            return (
                f"The tool {spec.name[:80]!r} ({whence}) was left out: a name has 1 to 64 letters, digits, "
                "underscores and hyphens."
            )
        if spec.input_schema.get("type") != "object":
            return (
                f"The tool {spec.name!r} ({whence}) was left out: its input schema is not of type 'object'."
            )
        first = self._tools.get(spec.name)
        if first is not None:
            kept = first.spec.origin or first.spec.source
            return (
                f"The tool {spec.name!r} ({whence}) was left out: {kept} has one of that name and came first."
            )
        return ""


@dataclass(frozen=True, slots=True)
class StaticToolset:
    """A toolset that is a list of tools."""

    contents: Sequence[Tool]

    async def tools(self) -> Sequence[Tool]:
        """The list."""
        return self.contents


@dataclass(frozen=True, slots=True)
class _Filtered:
    inner: Toolset
    keep: Callable[[ToolSpec], bool]

    async def tools(self) -> Sequence[Tool]:
        return [tool for tool in await self.inner.tools() if self.keep(tool.spec)]


def filtered(toolset: Toolset, keep: Callable[[ToolSpec], bool]) -> Toolset:
    """The same toolset without the tools that `keep` is false for; asked each time, so that it stays
    current.
    """
    return _Filtered(toolset, keep)


def _frozen(spec: ToolSpec) -> ToolDefinition:
    """A copy that no one else holds, so that nobody can change the bytes of a running session's prompt."""
    definition = spec.definition
    return ToolDefinition(
        name=definition.name,
        description=definition.description,
        input_schema=json.loads(json.dumps(definition.input_schema)),
    )
