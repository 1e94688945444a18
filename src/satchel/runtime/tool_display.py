"""How every face shows a tool's call and its result, by the tool's name: without a session, as a log is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from satchel.capabilities import skill_tools
from satchel.capabilities import toolset as capability_tools
from satchel.capabilities.records import tool_name
from satchel.events import Observation
from satchel.memory import toolset as memory_tools
from satchel.tools import deferral
from satchel.tools.builtin.toolset import BUILT_IN
from satchel.tools.display import Display, Line, ShownResult, any_result
from satchel.tools.mcp import resources
from satchel.tools.web import browser, fetch, search
from satchel.wording import one_line

DISPLAYS: Final[Mapping[str, Display]] = {
    **{name: tool.display for name, tool in BUILT_IN.items()},
    "browser": browser.DISPLAY,
    "run_skill": skill_tools.DISPLAY,
    "web_fetch": fetch.DISPLAY,
    "web_search": search.DISPLAY,
    **capability_tools.DISPLAYS,
    **deferral.DISPLAYS,
    **memory_tools.DISPLAYS,
    **resources.DISPLAYS,
}
"""Satchel's own tools (DESIGN 6), by name."""
_MOST_COUNTED: Final = 1e15
_FRAME: Final = "[What follows came from outside."


def display_of(tool: str) -> Display:
    """How a tool is shown; one that is not Satchel's own by what its text looks like."""
    return DISPLAYS.get(tool) or Display(kind="execute" if tool.startswith(tool_name("")) else "other")


def describe_call(tool: str, input: Mapping[str, Any]) -> str:
    """A call's input in one line: what the tool will do, in the fields that say it."""
    return one_line(display_of(tool).call(input))


def describe_progress(data: Mapping[str, Any]) -> str:
    """A tool's progress: its newest line of output, an MCP server's numbers, or whatever else it reports."""
    match data:
        case {"stream": _, "text": str(text)}:
            return text.rstrip().rpartition("\n")[2]
        case {"bytes": int(count)} if _is_number(count):
            return f"{count:,} bytes of output"
        case {"progress": done, "total": total, "message": message} if _is_number(done):
            far = f"{done:g} of {total:g}" if _is_number(total) else f"{done:g}"
            return f"{far} · {message}" if message else far
        case {"progress": None, "message": str(message)}:
            return message  # a task of an MCP server says how it is, and gives no numbers
        case {"progress": str(text)}:
            return text
        case {"status": str(status), **more}:
            return f"{status} {describe_call('', more)}"
        case {"progress": dict(fields)}:
            return describe_call("", fields)
        case {"progress": other}:
            return str(other)
        case _:
            return describe_call("", data)


def _is_number(value: object) -> bool:
    """Whether it can be printed as a number: a tool may report anything, and Python refuses to print some integers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST_COUNTED


def show_observation(event: Observation, input: Mapping[str, Any]) -> ShownResult:
    """A call's result as the session has it. `input` is empty where the call never started."""
    shown = show_result(event.tool, input, text_for_people(event), is_error=event.is_error)
    files = (Line(text=f"{file.name} ({file.media_type}, {file.size:,} bytes)") for file in event.files)
    return replace(shown, lines=(*shown.lines, *files))


def text_for_people(event: Observation) -> str:
    """The whole result without the frame that is there for the model; people see "from outside" elsewhere."""
    if event.untrusted and event.text.startswith(_FRAME):
        return event.text.partition("\n")[2]
    return event.text


def show_result(tool: str, input: Mapping[str, Any], text: str, *, is_error: bool = False) -> ShownResult:
    """A call's result. `text` is what the model got, without the frame around what came from outside, or the reason of
    a failure.
    """
    display = display_of(tool)
    show = any_result if is_error and not display.shows_errors else display.result
    return show(input, text.strip("\n"))
