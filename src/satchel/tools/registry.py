"""The tools that a session offers, in a fixed order; toolsets from a list and from another toolset."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from satchel.tools.port import Tool, Toolset, ToolSpec

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The tool names that both wire formats accept."""


class Registry:
    """Tools by name. It is immutable: a refresh creates a new one.

    Attributes:
        problems: Why tools were left out, one sentence each.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        """Register the tools in order. If two have the same name, the first is used."""
        self._tools: dict[str, Tool] = {}
        problems: list[str] = []
        for tool in tools:
            problem = self._problem(tool.spec)
            if problem:
                problems.append(problem)
                continue
            self._tools[tool.spec.name] = tool
        self.problems: tuple[str, ...] = tuple(problems)

    @classmethod
    async def load(cls, toolsets: Sequence[Toolset]) -> Registry:
        """Register the tools of each toolset, in order."""
        return cls([tool for toolset in toolsets for tool in await toolset.tools()])

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools, in the order in which they were registered."""
        return tuple(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """The tool with exactly this name, or None."""
        return self._tools.get(name)

    def close_matches(self, name: str) -> tuple[str, ...]:
        """Up to three known names that resemble a misspelt one, best first."""
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
                f"The tool {spec.name!r} ({whence}) was left out: {kept} already has a tool with that name."
            )
        return ""


@dataclass(frozen=True, slots=True)
class StaticToolset:
    """A toolset made of a list of tools."""

    contents: Sequence[Tool]

    async def tools(self) -> Sequence[Tool]:
        """The tools."""
        return self.contents


@dataclass(frozen=True, slots=True)
class _Filtered:
    inner: Toolset
    keep: Callable[[ToolSpec], bool]

    async def tools(self) -> Sequence[Tool]:
        return [tool for tool in await self.inner.tools() if self.keep(tool.spec)]


def filtered(toolset: Toolset, keep: Callable[[ToolSpec], bool]) -> Toolset:
    """The toolset without the tools for which `keep` returns False. `keep` is called on every listing."""
    return _Filtered(toolset, keep)
