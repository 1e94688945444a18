"""The tools that are always there: the shell, files, search, and a few to think and to ask with."""

from satchel.tools.builtin.toolset import builtin_tools as builtin_tools
