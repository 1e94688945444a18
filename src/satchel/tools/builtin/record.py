"""What the list of built-in tools has of each: how it is made, how it is shown, and what it is as a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from satchel.tools.boxed import Workspaces
from satchel.tools.builtin.fence import Fence
from satchel.tools.display import Display
from satchel.tools.port import Tool

TEXT: Final[Mapping[str, Any]] = {"text": {"type": "string"}}
"""What a program prints that prints a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParts:
    """What built-in tools are made with.

    Attributes:
        bash_timeout_s: The time limit of a `bash` command that sets none; at least 120 is used.
    """

    fence: Fence
    bash_timeout_s: float = 30.0
    boxes: Workspaces | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """One built-in tool.

    Attributes:
        returns: JSON Schema of each field that it prints as a program in `libexec/`; None if it is none.
        described: Its description as a program, where that differs because there is no session.
    """

    name: str
    make: Callable[[ToolParts], Tool]
    display: Display
    returns: Mapping[str, Any] | None = None
    described: str = ""
