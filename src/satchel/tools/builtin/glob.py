"""The tool `glob`: finds files by name."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any, Final

from satchel.errors import UsageError
from satchel.tools.builtin.fence import Fence, Place
from satchel.tools.builtin.record import TEXT, BuiltIn
from satchel.tools.builtin.tree import MAX_ENTRIES, FoundPath, GlobPattern, walked
from satchel.tools.display import Display, describe_search, show_found
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Tool, ToolContext, ToolResult
from satchel.wording import shown

SHOWN = 200
MAGIC = frozenset("*?[{")
DESCRIPTION = (
    """Find files by a glob pattern, newest first (at most 200). Skips `.git`, links and ignored files."""
)


def glob_tool(fence: Fence) -> Tool:
    """Make the tool."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        above, pattern = _split(input["pattern"])
        base = fence.locate(input.get("path", "."), context)
        place = fence.locate(str(base.path / above), context)
        may_show = fence.search_filter(base, context)
        # The permission for this call was decided by its `path`.
        if not place.path.is_relative_to(base.path):
            raise UsageError(
                f"{shown(input['pattern'])} leads outside of {base.name}. Give the folder as `path`."
            )
        wants_folders = pattern.endswith("/")
        found = await _find(place, pattern, context)
        hits = [hit for hit in found if hit.is_folder == wants_folders and may_show(place.path / hit.path)]
        hits.sort(key=lambda hit: (-hit.mtime_ns, hit.path))
        names = [fence.name(place.path / hit.path, context) + ("/" if hit.is_folder else "") for hit in hits]
        if not names:
            hint = ""
            if "**" not in pattern:
                hint = (
                    f" Only this folder was searched; **/{shown(pattern)} also searches the folders below it."
                )
            return ToolResult(text=f"Nothing in {place.name} matches {shown(pattern)}.{hint}", data=[])
        rows = names[:SHOWN]
        if len(found) >= MAX_ENTRIES:
            rows.append(f"[stopped after {MAX_ENTRIES:,} files; use a narrower pattern or path]")
        elif len(names) > SHOWN:
            rows.append(f"[{SHOWN} of {len(names):,}; use a narrower pattern or path to see the others]")
        return ToolResult(
            text="\n".join(rows), data=names[:SHOWN], untrusted=fence.is_outside(place, context)
        )

    return function_tool(
        call,
        name="glob",
        description=DESCRIPTION,
        properties={
            "pattern": {"type": "string", "description": "Such as src/**/*.{ts,tsx}"},
            "path": {"type": "string"},
        },
        required=["pattern"],
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        pattern_key="path",
    )


def _split(pattern: str) -> tuple[str, str]:
    """The leading folders of a pattern without wildcards, and the rest: ("src/app", "*.py")."""
    if not pattern.strip("/"):
        raise UsageError("The pattern is empty. For example, **/*.py finds all Python files.")
    folder_slash = "/" if pattern.endswith("/") else ""
    names = pattern.removesuffix("/").split("/")
    plain = 0
    while plain < len(names) - 1 and not MAGIC & set(names[plain]):
        plain += 1
    rest = names[plain:]
    if ".." in rest:
        raise UsageError("`..` can't follow `*`, `?`, `[` or `{`. Give the folder as `path`.")
    above = "/".join(names[:plain])
    return (above or "/") if pattern.startswith("/") else above, "/".join(rest) + folder_slash


async def _find(place: Place, pattern: str, context: ToolContext) -> list[FoundPath]:
    compiled = GlobPattern(pattern)
    if not stat.S_ISDIR((await context.blocking(_state, place)).st_mode):
        raise UsageError(f"{place.name} is not a folder.")
    return await walked(place.path, context, pattern=compiled)


def _state(place: Place) -> os.stat_result:
    handle = place.open()
    try:
        return os.fstat(handle)
    finally:
        os.close(handle)


GLOB: Final = BuiltIn(
    name="glob",
    make=lambda given: glob_tool(given.fence),
    display=Display(
        call=describe_search,
        result=lambda _, text: show_found(text.splitlines(), "path", nothing="Nothing in "),
        kind="search",
    ),
    returns={**TEXT, "data": {"type": "array", "items": {"type": "string"}}},
)
