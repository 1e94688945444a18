"""The tool `file_write`: writes a whole file, and never overwrites what the model has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from satchel.errors import NotFound, SatchelError, UsageError
from satchel.tools.builtin.changes import Keep, keeper
from satchel.tools.builtin.diff import CHANGE_FIELDS, proposed_change, show_change, unified_diff
from satchel.tools.builtin.fence import Fence, Place
from satchel.tools.builtin.record import TEXT, BuiltIn
from satchel.tools.builtin.seen import Seen, last_seen, look, read_whole, remember
from satchel.tools.display import Display, fields
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Effect, Tool, ToolContext, ToolResult
from satchel.wording import counted

DESCRIPTION = """Write a whole text file, creating it and its folders if needed. An existing one is replaced only if \
you have read it. To change a part, use file_edit."""


def file_write_tool(fence: Fence) -> Tool:
    """Make the tool."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        place = fence.locate(input["path"], context, writing=True)
        keep = keeper(context, place)
        result, seen = await context.blocking(
            _write, place, input["content"], last_seen(context, place.path), keep
        )
        remember(context, place.path, seen)
        return result

    def effects(input: Mapping[str, Any], context: ToolContext) -> list[Effect]:
        return fence.locate(input["path"], context, writing=True).effects(writes=True)

    def fails(input: Mapping[str, Any], context: ToolContext) -> str:
        with suppress(SatchelError, OSError):  # it is new, or can't be reached, which the call says
            place = fence.locate(input["path"], context, writing=True)
            if last_seen(context, place.path) is None and place.path.stat().st_size and place.path.is_file():
                return _unread(place)
        return ""

    return function_tool(
        call,
        name="file_write",
        description=DESCRIPTION,
        properties={
            "path": {"type": "string"},
            "content": {"type": "string"},
        },
        required=["path", "content"],
        annotations=Annotations(read_only=False, destructive=True, idempotent=True, open_world=False),
        effects=effects,
        fails=fails,
        pattern_key="path",
    )


def _write(place: Place, content: str, seen: Seen | None, keep: Keep) -> tuple[ToolResult, Seen]:
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"The content can't be written as UTF-8: character {error.start + 1} is a lone surrogate."
        ) from error
    try:
        before, state = read_whole(place)
    except NotFound:
        keep(None, data)
        written = place.replace(data, expected=None)
        lines = content.count("\n") + (content != "" and not content.endswith("\n"))
        text = f"Created {place.name}: {counted(lines, 'line')}, {counted(len(data), 'byte')}."
        return ToolResult(text=text, data={"path": str(place.path), "created": True}), look(written, data)
    now = look(state, before)
    if before and seen is None:
        raise UsageError(_unread(place))
    if seen is not None and not seen.is_still(now):
        raise UsageError(f"{place.name} has changed since it was read. Read it again, then write.")
    if before == data:
        return ToolResult(text=f"{place.name} already has this content."), now
    keep(before, data)
    written = place.replace(data, expected=state)
    change = unified_diff(before.decode(errors="replace"), content, place.name)
    return (
        ToolResult(
            text=f"Replaced {place.name}.\n{change}", data={"path": str(place.path), "created": False}
        ),
        look(written, data),
    )


def _unread(place: Place) -> str:
    return (
        f"{place.name} exists and was not read in this session. Read it first, so that you know what is replaced, "
        "or use file_edit."
    )


FILE_WRITE: Final = BuiltIn(
    name="file_write",
    make=lambda given: file_write_tool(given.fence),
    display=Display(
        call=fields("path"),
        result=show_change,
        kind="edit",
        question="Write this file?",
        proposes=(CHANGE_FIELDS, proposed_change),
    ),
    described="Write a whole text file as UTF-8, creating it and its folders if needed. Replaces an existing file.",
    returns={**TEXT, "path": {"type": "string"}, "created": {"type": "boolean"}},
)
