"""All built-in tools, in the order in which models see them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from satchel.tools.boxed import Workspaces
from satchel.tools.builtin.ask_user import ask_user_tool
from satchel.tools.builtin.bash import bash_tool
from satchel.tools.builtin.fence import Fence
from satchel.tools.builtin.file_edit import file_edit_tool
from satchel.tools.builtin.file_read import file_read_tool
from satchel.tools.builtin.file_write import file_write_tool
from satchel.tools.builtin.glob import glob_tool
from satchel.tools.builtin.grep import grep_tool
from satchel.tools.builtin.think import think_tool
from satchel.tools.builtin.todo import todo_tool
from satchel.tools.port import Toolset
from satchel.tools.registry import StaticToolset

__all__ = ["builtin_tools"]


def builtin_tools(
    *,
    home: Path | None = None,
    withheld: Sequence[str] = (),
    bash_timeout_s: float = 30.0,
    boxes: Workspaces | None = None,
) -> Toolset:
    """The built-in tools.

    Args:
        home: SATCHEL_HOME, which the file tools never write to; None for programs without one.
        withheld: See `Fence`.
        bash_timeout_s: The time limit of a `bash` command that sets none (`[agent] tool_timeout_s`).
        boxes: Where boxed commands run; None if none do.
    """
    fence = Fence(home=home, withheld=tuple(withheld))
    return StaticToolset(
        (
            bash_tool(default_timeout_s=bash_timeout_s, boxes=boxes),
            file_read_tool(fence),
            file_write_tool(fence),
            file_edit_tool(fence),
            glob_tool(fence),
            grep_tool(fence),
            think_tool(),
            todo_tool(),
            ask_user_tool(),
        )
    )
