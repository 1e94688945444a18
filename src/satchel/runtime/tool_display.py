"""How a tool's call and its result are shown to people: one table for every face.

The functions are pure. They work from the text that a model got, so that a session read from its log looks as it did
live; a face adds colour and cuts lines to its width.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from satchel.events import Observation
from satchel.runtime.lines import counted, one_line

__all__ = [
    "Line",
    "Shown",
    "describe_call",
    "describe_progress",
    "readable",
    "show_observation",
    "show_result",
]

Style: TypeAlias = Literal["plain", "added", "removed", "active"]

_HEAD, _TAIL = 5, 5
"""Lines of output shown from its beginning and from its end: together a third of a small terminal."""
_DIFF_LINES = 16
_LIST_LINES = 5
_TODO_LINES = 20
_DEPTH = 6
"""Levels of nested data that get lines of their own; what lies deeper is shown as compact JSON."""
_READABLE_LINES = 200
_MOST_COUNTED: Final = 1e15
_LINE_CHARS = 400
"""A face cuts lines to its own width; this bounds what it has to look at."""

_FRAME: Final = "[What follows came from outside."
_TODO: Final[Mapping[str, tuple[str, Style]]] = {
    "[x] ": ("✔ ", "plain"),
    "[~] ": ("▸ ", "active"),
    "[ ] ": ("☐ ", "plain"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a result; `style` says what it means, and a face chooses the colour."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A result for people.

    Attributes:
        summary: What came of the call, in a few words; "" where the lines say it all.
        lines: At most a couple of dozen; a line "… 37 more lines" marks what was left out.
    """

    summary: str
    lines: tuple[Line, ...] = ()


def describe_call(tool: str, input: Mapping[str, Any]) -> str:
    """A call's input in one line: what the tool will do, in the fields that say it."""
    entry = _TABLE.get(tool)
    if entry is not None and entry.call is not None:
        return one_line(entry.call(input))
    if len(input) == 1:
        (value,) = input.values()
        if isinstance(value, str):
            return one_line(value)
    return one_line(", ".join(f"{name}: {_compact(value)}" for name, value in input.items()))


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


def show_observation(event: Observation, input: Mapping[str, Any]) -> Shown:
    """A call's result as the session has it.

    Args:
        event: What the log holds.
        input: The call's, from its `Action`; empty where it never started.
    """
    return show_result(event.tool, input, text_for_people(event), is_error=event.is_error)


def text_for_people(event: Observation) -> str:
    """The whole result without the frame that is there for the model; people see "from outside" elsewhere."""
    if event.untrusted and event.text.startswith(_FRAME):
        return event.text.partition("\n")[2]
    return event.text


def show_result(tool: str, input: Mapping[str, Any], text: str, *, is_error: bool = False) -> Shown:
    """A call's result.

    Args:
        tool: Its name. A tool that is not in the table is shown by what its text looks like: JSON as `key: value`,
            everything else as its first and last lines.
        input: What it was called with.
        text: What the model got, without the frame around what came from outside.
        is_error: The call failed; then `text` is its reason.
    """
    entry = _TABLE.get(tool)
    if entry is not None and (entry.shows_errors or not is_error):
        return entry.result(input, text.strip("\n"))
    return _any_result(text)


def readable(value: Any) -> list[str]:
    """JSON data as lines of `key: value`, nested data indented below its key."""
    lines: list[str] = []
    for line in _readable(value, 0):
        if len(lines) == _READABLE_LINES:
            break
        lines.append(line)
    return lines


def _readable(value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if depth >= _DEPTH or not isinstance(value, (dict, list)) or not value:
        first, *rest = str(_compact(value)).splitlines() or [""]
        yield f"{indent}{first}"
        yield from (f"{indent}  {line}" for line in rest)
        return
    pairs = value.items() if isinstance(value, dict) else (("-", item) for item in value)
    for name, item in pairs:
        head = "- " if isinstance(value, list) else f"{one_line(str(name), 80)}: "
        below = list(_readable(item, depth + 1))
        if isinstance(item, (dict, list)) and item and isinstance(value, dict):
            yield f"{indent}{head.rstrip()}"
            yield from below
        else:
            yield f"{indent}{head}{below[0].strip()}"
            yield from below[1:]


def _compact(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return f"({type(value).__name__})"  # it holds itself, or a number too long to print


def _ends(rows: Sequence[str], *, head: int = _HEAD, tail: int = _TAIL) -> tuple[Line, ...]:
    """The first and the last lines, and how many lie between."""
    hidden = len(rows) - head - tail
    if hidden <= 1:  # a line that says "1 more line" takes as much room as the line
        return tuple(Line(text=row[:_LINE_CHARS]) for row in rows)
    shown = [*rows[:head], f"… {hidden:,} more lines", *(rows[-tail:] if tail else ())]
    return tuple(Line(text=row[:_LINE_CHARS]) for row in shown)


def _data_in(text: str) -> Any:
    """The JSON object or list that a text is, or None."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _any_result(text: str) -> Shown:
    text = text.strip()
    data = _data_in(text)
    if isinstance(data, dict) and data.get("tool_success") is True and "result" in data:
        data = data["result"]  # the envelope of an executable says nothing that the heading does not
    elif isinstance(data, dict) and data.get("tool_success") is False:
        output = "\n".join(str(data.get(name) or "").strip() for name in ("stdout", "stderr"))
        return Shown(summary=one_line(str(data.get("error", ""))), lines=_ends(output.strip().splitlines()))
    rows = text.splitlines() if data is None else readable(data)
    if not rows:
        return Shown(summary="no output")
    if len(rows) == 1:
        return Shown(summary=one_line(rows[0]))
    return Shown(summary=counted(len(rows), "line"), lines=_ends(rows))


def _bash(_input: Mapping[str, Any], text: str) -> Shown:
    outcome, *rows = text.splitlines() or [""]
    if not outcome.startswith(("exit code:", "stopped after", "ended by signal")):
        return _any_result(text)  # refused, cancelled or failed before a command ran
    if rows and rows[0] == "stdout:":
        del rows[0]
    summary = "" if outcome == "exit code: 0" else outcome.replace("exit code: ", "exit code ")
    return Shown(summary=summary if rows else f"{summary}, no output".lstrip(", "), lines=_ends(rows))


def _change(_input: Mapping[str, Any], text: str) -> Shown:
    summary, *rows = text.splitlines() or [""]
    rows = [row for row in rows if not row.startswith(("--- ", "+++ "))]
    styles: Mapping[str, Style] = {"+": "added", "-": "removed"}
    lines = [Line(text=row[:_LINE_CHARS], style=styles.get(row[:1], "plain")) for row in rows[:_DIFF_LINES]]
    if len(rows) > _DIFF_LINES:
        lines.append(Line(text=f"… {counted(len(rows) - _DIFF_LINES, 'more line')}"))
    return Shown(summary=one_line(summary), lines=tuple(lines))


def _file_read(_input: Mapping[str, Any], text: str) -> Shown:
    rows = text.splitlines()
    numbered = sum(1 for row in rows if re.match(r" *-?\d+\t", row))
    if not numbered:
        return Shown(summary=one_line(text))
    part = re.fullmatch(r"\[(lines .*?)(?:; (?:continue|go on) with .*)?\]", rows[-1])
    return Shown(summary=part[1] if part else counted(numbered, "line"))


def _glob(_input: Mapping[str, Any], text: str) -> Shown:
    rows = text.splitlines()
    if text.startswith("Nothing in ") or not rows:
        return Shown(summary=one_line(text))
    found = [row for row in rows if not row.startswith("[")]
    return Shown(summary=_found(found, rows, "path"))


def _grep(input: Mapping[str, Any], text: str) -> Shown:
    rows = text.splitlines()
    if text.startswith("No match for ") or not rows:
        return Shown(summary=one_line(text))
    found = [row for row in rows if row != "--" and not row.startswith("[")]
    return Shown(
        summary=_found(found, rows, "line" if input.get("output", "content") == "content" else "file")
    )


def _found(found: Sequence[str], rows: Sequence[str], what: str) -> str:
    note = rows[-1].strip("[]") if rows[-1].startswith("[") else ""
    return counted(len(found), what) + (f" ({one_line(note, 80)})" if note else "")


def _todo(_input: Mapping[str, Any], text: str) -> Shown:
    rows = text.splitlines()
    signs = [row[:4] for row in rows]
    if not all(sign in _TODO for sign in signs):
        return Shown(summary=one_line(text))
    lines = [Line(text=_TODO[row[:4]][0] + row[4:], style=_TODO[row[:4]][1]) for row in rows[:_TODO_LINES]]
    if len(rows) > _TODO_LINES:
        lines.append(Line(text=f"… {len(rows) - _TODO_LINES} more"))
    return Shown(summary=f"{signs.count('[x] ')} of {len(rows)} done", lines=tuple(lines))


def _web_search(_input: Mapping[str, Any], text: str) -> Shown:
    found = re.findall(r"^\d+\. (.*)\n   (\S+)", text, re.MULTILINE)
    if not found:
        return Shown(summary=one_line(text))
    lines = [
        Line(text=f"{one_line(title, 60)} · {_short_address(url)}") for title, url in found[:_LIST_LINES]
    ]
    if len(found) > _LIST_LINES:
        lines.append(Line(text=f"… {len(found) - _LIST_LINES} more"))
    return Shown(summary=counted(len(found), "result"), lines=tuple(lines))


def _web_page(_input: Mapping[str, Any], text: str) -> Shown:
    heading = text.partition("\n\n")[0]
    parts = dict(re.findall(r"^(Title|URL): (.*)$", heading, re.MULTILINE))
    notes = re.findall(r"^(Characters .*?|The server answered .*?)(?:;.*|:.*)?$", heading, re.MULTILINE)
    if "URL" not in parts:
        return _any_result(text)
    title = [one_line(parts["Title"], 60)] if "Title" in parts else []
    return Shown(summary=" · ".join([*title, _short_address(parts["URL"].split(" ")[0]), *notes]))


def _short_address(url: str) -> str:
    return one_line(re.sub(r"^https?://(?:www\.)?", "", url).removesuffix("/"), 100)


def _memories(_input: Mapping[str, Any], text: str) -> Shown:
    rows = text.splitlines()
    found = [re.sub(r"^- \S+ \(score [\d.]+\) ", "", row) for row in rows if row.startswith("- ")]
    if not found:
        return _any_result(text)
    return Shown(
        summary=counted(len(found), "memory", "memories"), lines=_ends(found, head=_LIST_LINES, tail=0)
    )


def _nothing(_input: Mapping[str, Any], text: str) -> Shown:
    return Shown(summary="" if text == "Noted." else one_line(text))


def _field(*names: str, join: str = " ") -> Callable[[Mapping[str, Any]], str]:
    """Shows these fields of an input, those that are there, in this order."""

    def describe(input: Mapping[str, Any]) -> str:
        return join.join(_compact(input[name]) for name in names if input.get(name) not in (None, "", []))

    return describe


def _describe_read(input: Mapping[str, Any]) -> str:
    start, limit = input.get("offset"), input.get("limit")
    part = f" from line {start}" if start else ""
    lines = f", {counted(limit, 'line')}" if isinstance(limit, int) and limit else ""
    return f"{input.get('path', '')}{part}{lines}"


def _describe_search(input: Mapping[str, Any]) -> str:
    where = input.get("path") or ""
    also = f" ({input['glob']})" if input.get("glob") else ""
    return f"{input.get('pattern', '')}{f' in {where}' if where else ''}{also}"


def _describe_todo(input: Mapping[str, Any]) -> str:
    items = input.get("items")
    return counted(len(items), "step") if isinstance(items, list) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One tool: how its call and its result are shown; `call` of None lists the fields.

    Attributes:
        shows_errors: `result` understands a failed call's text too.
    """

    result: Callable[[Mapping[str, Any], str], Shown]
    call: Callable[[Mapping[str, Any]], str] | None = None
    shows_errors: bool = False


def _plain_result(_input: Mapping[str, Any], text: str) -> Shown:
    return _any_result(text)


_TABLE: Final[Mapping[str, _Entry]] = {
    "bash": _Entry(result=_bash, call=_field("command"), shows_errors=True),
    "file_read": _Entry(result=_file_read, call=_describe_read),
    "file_write": _Entry(result=_change, call=_field("path")),
    "file_edit": _Entry(result=_change, call=_field("path")),
    "glob": _Entry(result=_glob, call=_describe_search),
    "grep": _Entry(result=_grep, call=_describe_search),
    "todo": _Entry(result=_todo, call=_describe_todo),
    "think": _Entry(result=_nothing, call=_field("thought")),
    "web_search": _Entry(result=_web_search, call=_field("query")),
    "web_fetch": _Entry(result=_web_page, call=_field("url"), shows_errors=True),
    "browser": _Entry(result=_plain_result, call=_field("action", "url", "ref", "text")),
    "recall_memory": _Entry(result=_memories, call=_field("query", "keywords")),
    "deep_memory": _Entry(result=_plain_result, call=_field("query")),
    "store_memory": _Entry(result=_plain_result, call=_field("content")),
    "forget_memory": _Entry(result=_memories, call=_field("query", "ids")),
    "tool_search": _Entry(result=_plain_result, call=_field("query")),
}
"""Tool → how it is shown. A tool that is missing here is shown by what its text looks like."""
