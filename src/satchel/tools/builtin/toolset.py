"""All built-in tools, in the order in which models see them. A new one is its module and a line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from satchel.tools.boxed import Workspaces
from satchel.tools.builtin.ask_user import ASK_USER
from satchel.tools.builtin.bash import BASH
from satchel.tools.builtin.delegate import DELEGATE
from satchel.tools.builtin.fence import Fence
from satchel.tools.builtin.file_edit import FILE_EDIT
from satchel.tools.builtin.file_read import FILE_READ
from satchel.tools.builtin.file_write import FILE_WRITE
from satchel.tools.builtin.glob import GLOB
from satchel.tools.builtin.grep import GREP
from satchel.tools.builtin.jobs import JOBS
from satchel.tools.builtin.propose_plan import PROPOSE_PLAN
from satchel.tools.builtin.record import BuiltIn, ToolParts
from satchel.tools.builtin.think import THINK
from satchel.tools.builtin.todo import TODO
from satchel.tools.port import Toolset
from satchel.tools.registry import StaticToolset

BUILT_IN: Final[Mapping[str, BuiltIn]] = {
    tool.name: tool
    for tool in (
        BASH,
        FILE_READ,
        FILE_WRITE,
        FILE_EDIT,
        GLOB,
        GREP,
        THINK,
        TODO,
        ASK_USER,
        JOBS,
        PROPOSE_PLAN,
        DELEGATE,
    )
}


def builtin_tools(
    *,
    home: Path | None = None,
    withheld: Sequence[str] = (),
    bash_timeout_s: float = 30.0,
    boxes: Workspaces | None = None,
) -> Toolset:
    """The built-in tools. The file tools never write to `home`, SATCHEL_HOME. `bash_timeout_s` is the limit of a
    command that sets none (`[agent] tool_timeout_s`). For `withheld`, see `Fence`.
    """
    given = ToolParts(
        fence=Fence(home=home, withheld=tuple(withheld)), bash_timeout_s=bash_timeout_s, boxes=boxes
    )
    return StaticToolset(tuple(tool.make(given) for tool in BUILT_IN.values()))
