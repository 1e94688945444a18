"""The tools that a session offers: their definitions as sent, and the check of what a model sends back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from satchel.errors import UsageError
from satchel.models.port import ToolDefinition
from satchel.tools.port import Tool

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

__all__ = ["Toolbox"]

_MOST_PROBLEMS = 5
"""Told to a model at once: enough to mend a call in one go, little enough to be read."""
_MOST_CHARS = 300
"""Of one problem: the checker quotes the value, which may be a whole file."""
_MOST_NAMES = 40
"""Listed when nothing resembles an unknown name."""


class Toolbox:
    """Tools in a fixed order, for one session. Every schema is compiled once, when its tool is first
    called.
    """

    def __init__(self, tools: Sequence[Tool] = (), *, deferred: Sequence[Tool] = ()) -> None:
        """Take the tools.

        Args:
            tools: Those that a model is told of.
            deferred: Those that it has to look for; they can be called all the same.

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
        self._validators: dict[str, Draft202012Validator] = {}
        self.definitions: tuple[ToolDefinition, ...] = tuple(tool.spec.definition for tool in tools)
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
            self._size = sum(
                len(tool.name) + len(tool.description) + len(json.dumps(tool.input_schema, default=str)) + 48
                for tool in self.definitions
            )
        return self._size

    def unknown(self, name: str) -> str:
        """What the model is told when it asks for a tool that is not here."""
        # Only used when a model went wrong; difflib takes a few milliseconds to import.
        from difflib import get_close_matches  # noqa: PLC0415

        text = f"Unknown tool: {name[:_MOST_CHARS]}"
        close = get_close_matches(name[:64], self._tools, n=3)
        if close:
            return f"{text}. Did you mean {' or '.join(close)}?"
        if not self._tools:
            return f"{text}. There are no tools in this conversation."
        names = list(self._tools)
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"{text}. The tools are: {', '.join(names[:_MOST_NAMES])}{more}."

    def problem(self, tool: Tool, input: Mapping[str, Any]) -> str | None:
        """What is wrong with an input, with the JSON path of each mistake, or None where it fits the
        schema.
        """
        errors = sorted(self._validator(tool).iter_errors(input), key=lambda error: error.json_path)
        if not errors:
            return None
        lines = [f"- {line}" for error in errors[:_MOST_PROBLEMS] for line in _lines(error)]
        if len(errors) > _MOST_PROBLEMS:
            lines.append(f"- and {len(errors) - _MOST_PROBLEMS} more")
        return f"The input of {tool.spec.name} is not valid, so it was not run:\n" + "\n".join(lines)

    def _validator(self, tool: Tool) -> Draft202012Validator:
        name = tool.spec.name
        validator = self._validators.get(name)
        if validator is None:
            # Imported when a tool is first called: 60 ms that a conversation without tools never pays.
            from jsonschema import Draft202012Validator  # noqa: PLC0415

            schema = tool.spec.input_schema
            _refuse_outside_references(schema)
            Draft202012Validator.check_schema(schema)
            validator = self._validators[name] = Draft202012Validator(schema)
        return validator


def _refuse_outside_references(schema: Any) -> None:
    """The validator would fetch them from the network, at an address that the tool's author chose."""
    if isinstance(schema, Mapping):
        for key, part in schema.items():
            if key in ("$ref", "$dynamicRef") and isinstance(part, str) and not part.startswith("#"):
                raise UsageError(f"The schema refers to {part!r}, outside of itself; only '#…' is allowed.")
            _refuse_outside_references(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _refuse_outside_references(part)


def _lines(error: ValidationError) -> Iterator[str]:
    """One error in words, a line for each place that has to change."""
    path = error.json_path
    match error.validator:
        case "required":
            missing = error.message.split("' is a required")[0].removeprefix("'")
            yield f"{path}.{missing}: is missing"
        case "anyOf" | "oneOf" if error.context:
            # The branch that came furthest says more than "fits none of them".
            from jsonschema.exceptions import best_match  # noqa: PLC0415 - see Toolbox._validator

            best = best_match(error.context)
            yield f"{best.json_path}: {_short(best.message)} (or another of the allowed forms)"
        case _:
            yield f"{path}: {_short(error.message)}"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS // 2]} … {text[-_MOST_CHARS // 2 :]}"
