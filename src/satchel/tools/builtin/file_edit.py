"""The tool `file_edit`: replaces exact pieces of a text file or applies a patch, or explains why it can't."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from satchel.errors import UsageError
from satchel.tools.builtin.changes import Keep, keeper
from satchel.tools.builtin.content import SAMPLE_BYTES, Encoding, describe_binary, detect_encoding
from satchel.tools.builtin.diff import CHANGE_FIELDS, proposed_change, show_change, unified_diff
from satchel.tools.builtin.fence import Fence, Place
from satchel.tools.builtin.patch import apply_patch
from satchel.tools.builtin.record import TEXT, BuiltIn
from satchel.tools.builtin.seen import Seen, last_seen, look, read_whole, remember
from satchel.tools.display import Display, fields
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Effect, Tool, ToolContext, ToolResult

LISTED_LINES = 10
COMPARED_LINES = 2000
"""Lines that are compared with a text that was not found, to show the nearest."""

DESCRIPTION = """Replace an exact text in a file. `old` must occur exactly once, with its white \
space and without line numbers, unless `replace_all` is true. Several at once: `edits`, [{old, new}], or `patch`, a \
unified diff. Returns the diff."""

_CHANGE: Final[Mapping[str, Any]] = {
    "old": {"type": "string"},
    "new": {"type": "string"},
    "replace_all": {"type": "boolean"},
}

Rewrite: TypeAlias = Callable[[Place, str], tuple[str, str, int]]
"""Makes the new text of a file from the old; returns it, what was inserted, and how many places changed."""


def file_edit_tool(fence: Fence) -> Tool:
    """Make the tool."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        place = fence.locate(input["path"], context, writing=True)
        result, seen = await context.blocking(
            _edit,
            place,
            _rewriter(input),
            last_seen(context, place.path),
            keeper(context, place),
        )
        remember(context, place.path, seen)
        return replace(result, untrusted=fence.is_outside(place, context))

    def effects(input: Mapping[str, Any], context: ToolContext) -> list[Effect]:
        return fence.locate(input["path"], context, writing=True).effects(writes=True)

    return function_tool(
        call,
        name="file_edit",
        description=DESCRIPTION,
        properties={
            "path": {"type": "string"},
            **_CHANGE,
            "edits": {
                "type": "array",
                "maxItems": 100,
                "items": {
                    "type": "object",
                    "properties": _CHANGE,
                    "required": ["old", "new"],
                    "additionalProperties": False,
                },
            },
            "patch": {"type": "string"},
        },
        required=["path"],
        seldom=("replace_all", "edits", "patch"),
        annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=False),
        effects=effects,
        pattern_key="path",
    )


def _rewriter(input: Mapping[str, Any]) -> Rewrite:
    given = [name for name in ("old", "edits", "patch") if input.get(name)]
    if len(given) > 1 or (given in ([], ["old"]) and not {"old", "new"} <= set(input)):
        raise UsageError("Give `old` and `new`, or `edits`, or `patch`.")
    if given == ["patch"]:
        return partial(_patched, patch=input["patch"])
    return partial(_replaced, changes=input.get("edits") or [input])


def _edit(place: Place, rewrite: Rewrite, seen: Seen | None, keep: Keep) -> tuple[ToolResult, Seen]:
    data, state = read_whole(place)
    now = look(state, data)
    if seen is not None and not seen.is_still(now):
        raise UsageError(f"{place.name} has changed since it was read. Read it again, then edit.")
    encoding = detect_encoding(data[:SAMPLE_BYTES])
    if encoding is None:
        raise UsageError(f"{place.name} is not text: {describe_binary(data[:SAMPLE_BYTES], len(data))}.")
    text = _decode(place, data, encoding)
    changed, inserted, count = rewrite(place, text)
    if changed == text:
        raise UsageError("The changes leave the file as it is: there is nothing to do.")
    written = _encode(place, changed, inserted, encoding)
    keep(data, written)
    after = place.replace(written, expected=state)
    times = "once" if count == 1 else f"{count} times"
    change = unified_diff(text, changed, place.name)
    result = ToolResult(
        text=f"Replaced {times} in {place.name}.\n{change}", data={"path": str(place.path), "replaced": count}
    )
    return result, look(after, written)


def _patched(_place: Place, text: str, *, patch: str) -> tuple[str, str, int]:
    return apply_patch(text, patch)


def _replaced(place: Place, text: str, *, changes: Sequence[Mapping[str, Any]]) -> tuple[str, str, int]:
    """Make the changes one after the other, each in what the ones before it left."""
    inserted = []
    total = 0
    for number, change in enumerate(changes, 1):
        try:
            text, new, count = _replace(
                place, text, change["old"], change["new"], replace_all=change.get("replace_all", False)
            )
        except UsageError as error:
            if len(changes) == 1:
                raise
            raise UsageError(f"Nothing was written. Change {number} of {len(changes)}: {error}") from error
        inserted.append(new)
        total += count
    return text, "".join(inserted), total


def _replace(place: Place, text: str, old: str, new: str, *, replace_all: bool) -> tuple[str, str, int]:
    if not old:
        raise UsageError("`old` is empty. Give the text to replace; use file_write for a new file.")
    if old == new:
        raise UsageError("`old` and `new` are identical: there is nothing to do.")
    old, new = _with_line_ends_of(text, old, new)
    count = text.count(old)
    if count == 0:
        raise UsageError(f"`old` is not in {place.name}.{_nearest(text, old)}")
    if count > 1 and not replace_all:
        raise UsageError(
            f"`old` occurs {count} times in {place.name}: {_line_numbers(text, old)}. Include more of the text around "
            "the occurrence that you mean, or set replace_all."
        )
    return text.replace(old, new), new, count


def _decode(place: Place, data: bytes, encoding: Encoding) -> str:
    try:
        return data[len(encoding.bom) :].decode(encoding.name, encoding.errors)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{place.name} seems to be {encoding.name}, but byte {error.start + 1:,} is not valid in it. Use bash to "
            "change the file."
        ) from error


def _encode(place: Place, text: str, new: str, encoding: Encoding) -> bytes:
    try:
        # What is inserted must be valid; what was there before is written back unchanged.
        new.encode(encoding.name)
        return encoding.bom + text.encode(encoding.name, encoding.errors)
    except UnicodeEncodeError as error:
        char = new[error.start : error.start + 1] if error.object == new else ""
        raise UsageError(
            f"`new` contains {char!r}, which {encoding.name}, the encoding of {place.name}, can't represent."
        ) from error


def _with_line_ends_of(text: str, old: str, new: str) -> tuple[str, str]:
    """Both texts with the file's line endings, where the file uses CRLF and they don't."""
    breaks, windows = text.count("\n"), text.count("\r\n")
    if not windows or "\r\n" in old:
        return old, new
    if "\n" in old and old not in text:
        old = old.replace("\n", "\r\n")
    # A single-line `old` does not show its line ending: the file's most common one decides.
    if "\r\n" not in new and ("\r\n" in old or ("\n" not in old and windows * 2 >= breaks)):
        new = new.replace("\n", "\r\n")
    return old, new


def _line_numbers(text: str, old: str) -> str:
    numbers: list[str] = []
    at = -1
    end = 0
    line = 1
    while len(numbers) < LISTED_LINES and (at := text.find(old, end)) >= 0:
        line += text.count("\n", end, at)
        numbers.append(str(line))
        line += old.count("\n")
        end = at + len(old)
    more = ", …" if text.find(old, end) >= 0 else ""
    return f"lines {', '.join(numbers)}{more}"


def _nearest(text: str, old: str) -> str:
    """A hint at what may have been meant, for a text that was not found."""
    lines = text.splitlines()
    wanted = old.splitlines()
    if wanted and all(re.match(r"\s*-?\d+\t", line) for line in wanted if line):
        return " It seems to begin with line numbers: leave them out."
    at = _same_but_for_space(lines, wanted)
    if at is not None:
        found = "\n".join(lines[at : at + len(wanted)])
        return f" With different white space it is at line {at + 1}:\n{found}"
    probe = max(wanted, key=lambda line: len(line.strip()), default="")
    if not probe.strip():
        return ""
    # Of long lines only the beginning is compared: the time grows with the square of the length.
    candidates = {
        line.strip()[:200]: number for number, line in reversed(list(enumerate(lines[:COMPARED_LINES], 1)))
    }
    close = difflib.get_close_matches(probe.strip()[:200], candidates, n=3, cutoff=0.6)
    if not close:
        return " Nothing similar is there either: read the file again."
    shown = "\n".join(f"{candidates[line]:>6}\t{lines[candidates[line] - 1][:200]}" for line in close)
    return f" The nearest lines are:\n{shown}"


def _same_but_for_space(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The index of `wanted` in `lines` if white space is ignored, or None."""
    bare = ["".join(line.split()) for line in wanted]
    if not any(bare):
        return None
    there = ["".join(line.split()) for line in lines]
    for at in range(len(there) - len(bare) + 1):
        if there[at] == bare[0] and there[at : at + len(bare)] == bare:
            return at
    return None


FILE_EDIT: Final = BuiltIn(
    name="file_edit",
    make=lambda given: file_edit_tool(given.fence),
    display=Display(
        call=fields("path"),
        result=show_change,
        kind="edit",
        question="Change this file?",
        replaces=("old", "new"),
        proposes=(CHANGE_FIELDS, proposed_change),
    ),
    returns={**TEXT, "path": {"type": "string"}, "replaced": {"type": "integer"}},
)
