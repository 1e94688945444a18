"""The tools that are always there: the shell, files, search, and a few to think and to ask with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.tools.builtin.toolset import builtin_tools as builtin_tools

__getattr__ = on_demand(__name__)
