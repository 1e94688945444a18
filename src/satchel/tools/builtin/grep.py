"""The tool `grep`: searches file contents with ripgrep, or with Python's `re` if that is not installed."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import anyio

from satchel.errors import UsageError
from satchel.sandbox.process import ProcessResult, StreamName, run_process
from satchel.tools.builtin.content import SAMPLE_BYTES, describe_binary, detect_encoding
from satchel.tools.builtin.fence import Fence, Place
from satchel.tools.builtin.record import TEXT, BuiltIn
from satchel.tools.builtin.ripgrep import SAME_FILES, find_ripgrep
from satchel.tools.builtin.tree import GlobPattern, walked
from satchel.tools.display import Display, ShownResult, describe_search, show_found
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Tool, ToolContext, ToolResult

Mode: TypeAlias = Literal["content", "files", "count"]

DEFAULT_LIMIT = 200
MAX_CHARS = 26_000
"""Below the default of `[agent] max_result_chars`, so that results fit."""
MAX_COLUMNS = 500
MAX_FILE_BYTES = 67_108_864
"""Larger files are only searched if `path` names them."""
SPARE_S = 3.0
"""Part of the call's time limit that is kept for ending the search and returning its result."""
CUT_LINE = re.compile(r" \[\.\.\. (?:omitted end of long line|\d+ more match(?:es)?)\]$")
LINE = re.compile(rb"(?P<line>\d+)(?P<sign>[:-])(?P<text>.*)", re.DOTALL)
REMARK = re.compile(
    rb"\A(?s:.*?): (?:WARNING: stopped searching binary file after match|binary file matches) "
    rb"\(found [^\n]* byte around offset \d+\)\n"
)
"""ripgrep's message about a file that contains a NUL, printed among the records."""

DESCRIPTION = """Search file contents for a regular expression. Returns `file:line:text`, sorted by path; `output` \
"files" returns only names, "count" the matching lines per file. Skips binary, hidden and ignored files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The parameters of a search."""

    pattern: str
    mode: Mode
    ignore_case: bool
    context_lines: int
    limit: int
    glob: str


@dataclass(slots=True, kw_only=True)
class _Found:
    """The result so far: the rows to show, and why the search ended early, or ""."""

    rows: list[str] = field(default_factory=list)
    matches: int = 0
    chars: int = 0
    ended: str = ""


def grep_tool(fence: Fence) -> Tool:
    """Make the tool."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        place = fence.locate(input.get("path", "."), context)
        search = _Search(
            pattern=input["pattern"],
            mode=input.get("output", "content"),
            ignore_case=input.get("ignore_case", False),
            context_lines=input.get("context", 0),
            limit=input.get("limit", DEFAULT_LIMIT),
            glob=input.get("glob", ""),
        )
        if "\0" in search.pattern or "\n" in search.pattern:
            raise UsageError("The pattern contains a line break or a NUL, but lines are searched one by one.")
        found = await _run(fence, place, search, context)
        if not found.rows:
            where = f"'{place.name}'" + (f" ({search.glob})" if search.glob else "")
            ended = f" {found.ended}" if found.ended else ""
            return ToolResult(text=f"No match for {search.pattern!r} in {where}.{ended}", data={"matches": 0})
        rows = [*found.rows, *([f"[{found.ended}]"] if found.ended else [])]
        return ToolResult(
            text="\n".join(rows),
            data={"matches": found.matches, "is_complete": not found.ended},
            untrusted=fence.is_outside(place, context),
        )

    return function_tool(
        call,
        name="grep",
        description=DESCRIPTION,
        properties={
            "pattern": {"type": "string", "minLength": 1},
            "path": {"type": "string"},
            "glob": {
                "type": "string",
                "description": "Only in such files: *.py, src/**/*.ts",
            },
            "ignore_case": {"type": "boolean"},
            "context": {
                "type": "integer",
                "minimum": 0,
                "maximum": 100,
                "description": "Lines around",
            },
            "output": {"enum": ["content", "files", "count"]},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1000,
                "description": f"Default: {DEFAULT_LIMIT}",
            },
        },
        required=["pattern"],
        seldom=("context", "output", "limit"),
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        pattern_key="path",
    )


async def _run(fence: Fence, place: Place, search: _Search, context: ToolContext) -> _Found:
    is_folder = stat.S_ISDIR((await context.blocking(_state, place)).st_mode)
    is_wanted = _filter(place, search.glob, fence.search_filter(place, context))
    ripgrep = find_ripgrep(context.environ)
    if ripgrep is not None:
        found, result = await _by_ripgrep(
            ripgrep, fence, place, search, is_wanted, context, is_folder=is_folder
        )
        # Python supports look-around and other syntax that ripgrep does not.
        if result is None or result.exit_code != 2 or found.rows or b"regex" not in result.stderr.data:
            return found
    try:
        re.compile(search.pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"The pattern {search.pattern!r} is not a regular expression: {error}.") from error
    return await _by_worker(fence, place, search, is_wanted, context, is_folder=is_folder)


def _state(place: Place) -> os.stat_result:
    handle = place.open()
    try:
        state = os.fstat(handle)
        if stat.S_ISREG(state.st_mode) and detect_encoding(head := os.pread(handle, SAMPLE_BYTES, 0)) is None:
            raise UsageError(
                f"{place.name} is not text: {describe_binary(head, state.st_size)}. Use `grep -a` in bash "
                "to search it anyway."
            )
    except OSError as error:
        raise place.failure(error) from error
    finally:
        os.close(handle)
    if not stat.S_ISDIR(state.st_mode) and not stat.S_ISREG(state.st_mode):
        raise UsageError(f"{place.name} is neither a file nor a folder.")
    return state


def _filter(place: Place, glob: str, may_show: Callable[[Path], bool]) -> Callable[[str], bool]:
    """A predicate for the files to search, by their path below `place`."""
    pattern = GlobPattern(glob if "/" in glob else f"**/{glob}") if glob else None
    verdicts: dict[str, bool] = {}

    def is_wanted(path: str) -> bool:
        if path not in verdicts:
            fits = pattern is None or pattern.matches(path or place.path.name)
            verdicts[path] = fits and may_show(place.path / path)
        return verdicts[path]

    return is_wanted


async def _by_ripgrep(
    ripgrep: str,
    fence: Fence,
    place: Place,
    search: _Search,
    is_wanted: Callable[[str], bool],
    context: ToolContext,
    *,
    is_folder: bool,
) -> tuple[_Found, ProcessResult | None]:
    argv = [
        ripgrep,
        *SAME_FILES,
        "--no-heading",
        "--with-filename",
        "--sort=path",
        f"--max-columns={MAX_COLUMNS}",
    ]
    argv.append("--max-columns-preview")
    if is_folder:
        argv.append(f"--max-filesize={MAX_FILE_BYTES}")
    match search.mode:
        case "content":
            argv += ["--line-number", f"--context={search.context_lines}"]
        case "files":
            argv.append("--files-with-matches")
        case "count":
            argv.append("--count")
    if search.ignore_case:
        argv.append("--ignore-case")
    if re.fullmatch(r"[A-Za-z0-9_.*?-]+", search.glob):
        # This only saves reading files; `is_wanted` decides which ones are wanted. A glob would override .gitignore.
        argv += [f"--type-add=satchel:{search.glob}", "--type=satchel"]
    argv += ["--regexp", search.pattern, "--", "./" if is_folder else str(place.path)]
    cwd = place.path if is_folder else place.path.parent
    return await _collect(argv, None, cwd, fence, place, search, is_wanted, context)


async def _by_worker(
    fence: Fence,
    place: Place,
    search: _Search,
    is_wanted: Callable[[str], bool],
    context: ToolContext,
    *,
    is_folder: bool,
) -> _Found:
    files = [""]
    if is_folder:
        found = await walked(
            place.path, context, is_wanted=lambda each: not each.is_folder and is_wanted(each.path)
        )
        files = [each.path for each in found]
    job = {
        "base": str(place.path),
        "files": files,
        "pattern": search.pattern,
        "ignore_case": search.ignore_case,
        "context": search.context_lines,
        "mode": search.mode,
        "max_file_bytes": MAX_FILE_BYTES if is_folder else 0,
        "max_columns": MAX_COLUMNS,
    }
    argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name("grep_worker.py"))]
    answer, result = await _collect(
        argv, json.dumps(job).encode(), Path("/"), fence, place, search, is_wanted, context
    )
    if result is not None and result.exit_code and not answer.rows:
        raise UsageError(f"The search failed: {result.stderr.text.strip().splitlines()[-1][:300]}")
    return answer


async def _collect(
    argv: Sequence[str],
    stdin: bytes | None,
    cwd: Path,
    fence: Fence,
    place: Place,
    search: _Search,
    is_wanted: Callable[[str], bool],
    context: ToolContext,
) -> tuple[_Found, ProcessResult | None]:
    """Run a search and read its records as they arrive. Returns None if it was stopped after enough records."""
    found = _Found()
    reader = _Reader(fence, place, search, is_wanted, context, found)
    result: ProcessResult | None = None
    limit_s = max(1.0, context.timeout_s - SPARE_S)
    with anyio.CancelScope() as enough:

        async def read_chunk(stream: StreamName, chunk: bytes) -> None:
            if stream == "stdout" and not reader.feed(chunk):
                enough.cancel()

        result = await run_process(
            argv,
            cwd=cwd,
            environ=context.environ,
            stdin=stdin,
            timeout_s=limit_s,
            max_output_bytes=8192,
            on_output=read_chunk,
            grace_s=0.2,
        )
        if result.timed_out:
            found.ended = f"stopped after {limit_s:g} s; narrow the path, the glob or the pattern"
    reader.finish()
    return found, result


@dataclass(slots=True, eq=False)
class _Reader:
    """Turns the records of a search, by ripgrep or by the worker, into rows."""

    fence: Fence
    place: Place
    search: _Search
    is_wanted: Callable[[str], bool]
    context: ToolContext
    found: _Found
    _rest: bytes = field(default=b"", init=False)
    _names: dict[str, str] = field(default_factory=dict, init=False)

    def feed(self, chunk: bytes) -> bool:
        """Process a piece of output; returns False when there are enough rows.

        A record is not always a line, because a path may contain line breaks. It begins with "./" or "/", and its path
        ends at the NUL.
        """
        data, at = self._rest + chunk, 0
        wanted = True
        while wanted:
            if data.startswith(b"--\n", at):
                self._separate()
                at += 3
                continue
            nul = data.find(b"\0", at)
            end = nul if self.search.mode == "files" else data.find(b"\n", nul)
            if nul < 0 or end < 0:
                break
            path = self._path(REMARK.sub(b"", data[at:nul]))
            wanted = not self.is_wanted(path) or self._add_row(path, data[nul + 1 : end])
            at = end + 1
        self._rest = data[at:]
        return wanted

    def finish(self) -> None:
        """Process what is left after the last record."""
        if self.found.rows and self.found.rows[-1] == "--":
            self.found.rows.pop()
        if REMARK.search(self._rest) and not self.search.glob and not self.found.ended:
            name = self.fence.name(self.place.path, self.context)
            self.found.ended = f"{name} contains NULs; `grep -a` in bash also shows the matches after them"

    def _separate(self) -> None:
        if self.found.rows and self.found.rows[-1] != "--":
            self.found.rows.append("--")

    def _add_row(self, path: str, rest: bytes) -> bool:
        """Add the row of a record; False when there are enough rows."""
        found, mode, name = self.found, self.search.mode, self._name(path)
        is_match = True
        row = name
        if mode == "count":
            row = f"{name}:{rest.decode()}"
        elif mode == "content":
            match = LINE.fullmatch(rest)
            if match is None:
                return True
            sign = match["sign"].decode()
            is_match = sign == ":"
            text = CUT_LINE.sub(" […]", match["text"].decode("utf-8", "replace").removesuffix("\r"))
            row = f"{name}{sign}{match['line'].decode()}{sign}{text}"
        if is_match and found.matches == self.search.limit:
            found.ended = (
                f"the first {found.matches}; there are more: narrow the pattern, the path or the glob"
            )
            return False
        found.rows.append(row)
        found.matches += is_match
        found.chars += len(row) + 1
        if found.chars > MAX_CHARS:
            found.ended = (
                f"the first {found.matches}; the rest is too long: narrow the pattern, the path or the glob"
            )
            return False
        return True

    def _path(self, raw: bytes) -> str:
        path = os.fsdecode(raw)
        return "" if path == str(self.place.path) else path.removeprefix("./")

    def _name(self, path: str) -> str:
        if path not in self._names:
            self._names[path] = self.fence.name(self.place.path / path, self.context)
        return self._names[path]


def _show(input: Mapping[str, Any], text: str) -> ShownResult:
    what = "line" if input.get("output", "content") == "content" else "file"
    return show_found([row for row in text.splitlines() if row != "--"], what, nothing="No match for ")


GREP: Final = BuiltIn(
    name="grep",
    make=lambda given: grep_tool(given.fence),
    display=Display(call=describe_search, result=_show, kind="search"),
    returns={**TEXT, "matches": {"type": "integer"}, "is_complete": {"type": "boolean"}},
)
