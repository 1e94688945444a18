"""The tools that a session offers: their definitions as sent, and the check of what a model sends back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from satchel.errors import UsageError
from satchel.models.port import ToolDefinition
from satchel.tools.input_schema import InputSchema
from satchel.tools.port import Tool

_MOST_CHARS = 300
"""Of an unknown name that is repeated to the model."""


class Toolbox:
    """Tools in a fixed order, for one session. Every schema is compiled once, when its tool is first
    called.
    """

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        *,
        deferred: Sequence[Tool] = (),
        definitions: Sequence[ToolDefinition] | None = None,
    ) -> None:
        """A model has to look for those that are `deferred`. `definitions` is what it is told instead of those of
        `tools`: what it was told before.

        Raises:
            UsageError: Two have the same name.
        """
        self._tools: dict[str, Tool] = {}
        for tool in (*tools, *deferred):
            if tool.spec.name in self._tools:
                raise UsageError(
                    f"Two tools are called {tool.spec.name!r}; a model could not tell them apart."
                )
            self._tools[tool.spec.name] = tool
        self._schemas: dict[str, InputSchema] = {}
        self.definitions: tuple[ToolDefinition, ...] = tuple(
            (tool.spec.definition for tool in tools) if definitions is None else definitions
        )
        self._size: int | None = None

    def __iter__(self) -> Iterator[Tool]:
        """The tools in order."""
        return iter(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """The tool of that name."""
        return self._tools.get(name)

    @property
    def size(self) -> int:
        """Of all definitions in a request, in bytes."""
        if self._size is None:
            self._size = sum(tool.size for tool in self.definitions)
        return self._size

    def unknown(self, name: str) -> str:
        """What the model is told when it asks for a tool that is not here."""
        # Only used when a model went wrong; difflib takes a few milliseconds to import.
        from difflib import get_close_matches  # noqa: PLC0415

        text = f"Unknown tool: {name[:_MOST_CHARS]}"
        close = get_close_matches(name[:64], self._tools, n=3)
        if close:
            return f"{text}. Did you mean {' or '.join(close)}?"
        return f"{text}. Call only tools that you were given."

    def problem(self, tool: Tool, input: Mapping[str, Any]) -> str | None:
        """What is wrong with an input, with the JSON path of each mistake, or None where it fits the
        schema.
        """
        name = tool.spec.name
        schema = self._schemas.get(name)
        if schema is None:
            schema = self._schemas[name] = InputSchema(tool.spec.input_schema)
        try:
            problems = schema.problems(input)
        except UsageError as error:
            return f"{name} was not run: {error}."
        if not problems:
            return None
        lines = [f"- {line}" for line in problems]
        return f"The input of {name} is not valid, so it was not run:\n" + "\n".join(lines)
