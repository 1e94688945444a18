"""How a tool's call and its result are shown to people: what a tool says of itself, and the lines that tools share.

The functions are pure. They work from the text that a model got, so that a session read from its log looks as it did
live; a face adds colour and cuts lines to its width.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias

from satchel.plain import json_in
from satchel.wording import LINE_CHARS, counted, one_line

Style: TypeAlias = Literal["plain", "added", "removed", "active"]
Kind: TypeAlias = Literal["read", "edit", "delete", "search", "execute", "think", "fetch", "other"]

_HEAD, _TAIL = 5, 5
"""Lines of output shown from its beginning and from its end: together a third of a small terminal."""
_DEPTH = 6
"""Levels of nested data that get lines of their own; what lies deeper is shown as compact JSON."""
_READABLE_LINES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a result; `style` says what it means, and a face chooses the colour."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownResult:
    """A result for people.

    Attributes:
        summary: What came of the call, in a few words; "" where the lines say it all.
        lines: At most a couple of dozen; a line "… 37 more lines" marks what was left out.
    """

    summary: str
    lines: tuple[Line, ...] = ()


def readable(value: Any) -> list[str]:
    """JSON data as lines of `key: value`, nested data indented below its key."""
    return list(islice(_readable(value, 0), _READABLE_LINES))


def _readable(value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if depth >= _DEPTH or not isinstance(value, (dict, list)) or not value:
        first, *rest = str(compact(value)).splitlines() or [""]
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


def compact(value: Any) -> str:
    """A value as text: JSON, unless it is a string."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return f"({type(value).__name__})"  # it holds itself, or a number too long to print


def ends(rows: Sequence[str], *, head: int = _HEAD, tail: int = _TAIL) -> tuple[Line, ...]:
    """The first and the last lines, and how many lie between."""
    hidden = len(rows) - head - tail
    if hidden <= 1:  # a line that says "1 more line" takes as much room as the line
        return tuple(Line(text=row[:LINE_CHARS]) for row in rows)
    shown = [*rows[:head], f"… {hidden:,} more lines", *(rows[-tail:] if tail else ())]
    return tuple(Line(text=row[:LINE_CHARS]) for row in shown)


def _data_in(text: str) -> Any:
    """The JSON object or list that a text is, or None."""
    return json_in(text) if text.startswith(("{", "[")) else None


def any_result(_input: Mapping[str, Any], text: str) -> ShownResult:
    """A result as its text looks: JSON as `key: value`, everything else as its first and last lines."""
    text = text.strip()
    data = _data_in(text)
    if isinstance(data, dict) and data.get("tool_success") is True and "result" in data:
        data = data["result"]  # the envelope of an executable says nothing that the heading does not
    elif isinstance(data, dict) and data.get("tool_success") is False:
        output = "\n".join(str(data.get(name) or "").strip() for name in ("stdout", "stderr"))
        return ShownResult(
            summary=one_line(str(data.get("error", ""))), lines=ends(output.strip().splitlines())
        )
    rows = text.splitlines() if data is None else readable(data)
    if not rows:
        return ShownResult(summary="no output")
    if len(rows) == 1:
        return ShownResult(summary=one_line(rows[0]))
    return ShownResult(summary=counted(len(rows), "line"), lines=ends(rows))


def every_field(input: Mapping[str, Any]) -> str:
    """An input whatever it holds: its only text, or all of its fields with their names."""
    if len(input) == 1:
        (value,) = input.values()
        if isinstance(value, str):
            return value
    return ", ".join(f"{name}: {compact(value)}" for name, value in input.items())


def fields(*names: str) -> Callable[[Mapping[str, Any]], str]:
    """Shows these fields of an input, those that are there, in this order."""

    def describe(input: Mapping[str, Any]) -> str:
        return " ".join(compact(input[name]) for name in names if input.get(name) not in (None, "", []))

    return describe


def describe_search(input: Mapping[str, Any]) -> str:
    """A search in files: its pattern, and where it looks."""
    where = input.get("path") or ""
    also = f" ({input['glob']})" if input.get("glob") else ""
    return f"{input.get('pattern', '')}{f' in {where}' if where else ''}{also}"


def show_found(rows: Sequence[str], what: str, *, nothing: str) -> ShownResult:
    """What a search found: how many rows, and the note in brackets at their end. A result that found nothing begins
    with `nothing`.
    """
    if not rows or rows[0].startswith(nothing):
        return ShownResult(summary=one_line("\n".join(rows)))
    found = sum(1 for row in rows if not row.startswith("["))
    note = rows[-1].strip("[]") if rows[-1].startswith("[") else ""
    return ShownResult(summary=counted(found, what) + (f" ({one_line(note, 80)})" if note else ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """How a tool is shown in every face. The default is for tools of which nothing is known.

    Attributes:
        call: Its input in a few words: what the call will do, in the fields that say it.
        result: What came of it, from the input and the text that a model got.
        shows_errors: `result` understands a failed call's text too.
        kind: What it does, in an editor's words.
        question: The heading of the question whether a call may run; "" names the tool.
        replaces: The input fields with a text of the file `path` and with what takes its place: an editor shows them
            as a change, which needs no result.
        proposes: The input fields that say what the call changes, and what shows them as lines to the user who decides;
            no lines if it can't.
        is_plan: The input's `items` are the plan of the conversation, which an editor shows in a place of its own.
        is_question: Its call is a question to the user, which an event of its own shows.
    """

    call: Callable[[Mapping[str, Any]], str] = every_field
    result: Callable[[Mapping[str, Any], str], ShownResult] = any_result
    shows_errors: bool = False
    kind: Kind = "other"
    question: str = ""
    replaces: tuple[str, str] | None = None
    proposes: tuple[Collection[str], Callable[[Mapping[str, Any]], tuple[Line, ...]]] = ((), lambda _: ())
    is_plan: bool = False
    is_question: bool = False
