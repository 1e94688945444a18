"""The tool `file_read`: a page of a text file with line numbers, a picture, a document, or what any other file is."""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, BinaryIO, Final

from satchel.errors import SandboxError, UsageError
from satchel.tools.boxed import Workspaces
from satchel.tools.builtin.content import SAMPLE_BYTES, Encoding, describe_binary, detect_encoding
from satchel.tools.builtin.fence import Fence, Place, describe_kind
from satchel.tools.builtin.record import TEXT, BuiltIn
from satchel.tools.builtin.seen import WHOLE_BYTES, Seen, look, remember
from satchel.tools.builtin.viewing import (
    MOST_PICTURE,
    DocumentReader,
    is_picture,
    notebook_text,
)
from satchel.tools.display import Display, ShownResult
from satchel.tools.documents.reading import NoText
from satchel.tools.documents.texts import document_kind
from satchel.tools.function import function_tool
from satchel.tools.kept import keep_seen
from satchel.tools.port import Annotations, Effect, Tool, ToolContext, ToolResult
from satchel.wording import counted, one_line, shown

PAGE_LINES = 2000
PAGE_CHARS = 26_000
"""A page with line numbers and footer stays below the 30,000 characters that a result may have by default."""
LINE_CHARS = 2000
"""Longer lines are cut, so that one line does not fill the page."""
CHUNK_BYTES = 1_048_576
LONG_LINE_BYTES = 4 * PAGE_CHARS
"""Bytes of a line that are kept in memory: what can be shown, at most four bytes for each character."""
FOLDER_ENTRIES = 100
_NOT_TEXT: Final = " is not text: "
NULS = re.compile("\0{2,}")

DESCRIPTION = """Read text, documents, pictures. Returns lines as `number<TAB>text`, at most 2000 or about 26,000 \
characters. Read a file before you overwrite it."""


def file_read_tool(fence: Fence, boxes: Workspaces | None) -> Tool:
    """Make the tool; documents are read in the sandbox of `boxes`."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        place = fence.locate(input["path"], context)
        page = _Page(
            place=place,
            offset=input.get("offset", 1),
            limit=input.get("limit", PAGE_LINES),
            column=input.get("column", 1),
        )
        result = await context.blocking(page.read)
        if page.kind and boxes is not None and context.session_id:
            reader = DocumentReader(context, boxes.sandbox)
            result = await _document(page, reader, result.text, is_first="offset" not in input)
        elif page.pictures and context.session_id:
            files = await context.blocking(keep_seen, context.spill_dir, page.pictures)
            result = replace(result, text=result.text.replace(_NOT_TEXT, ": ", 1), files=files)
        if page.seen is not None:
            remember(context, place.path, page.seen)
        return replace(result, untrusted=fence.is_outside(place, context))

    def effects(input: Mapping[str, Any], context: ToolContext) -> list[Effect]:
        return fence.locate(input["path"], context).effects(writes=False)

    return function_tool(
        call,
        name="file_read",
        description=DESCRIPTION,
        properties={
            "path": {"type": "string"},
            "offset": {
                "type": "integer",
                "description": "First line, from 1; -50: the last 50 lines",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "description": "Lines",
            },
            "column": {
                "type": "integer",
                "minimum": 1,
                "description": "The first character of line `offset`, to continue a line that was cut",
            },
        },
        required=["path"],
        seldom=("column",),
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        effects=effects,
        pattern_key="path",
    )


class _Page:
    """One call: what it asks for, and what it has seen of the file. `read` blocks.

    Attributes:
        kind: What document it is; its bytes are in `content`. "" for every other file.
        pictures: What there is to see in it, by name.
    """

    def __init__(self, *, place: Place, offset: int, limit: int, column: int) -> None:
        self.seen: Seen | None = None
        self.kind = ""
        self.content = b""
        self.pictures: Mapping[str, bytes] = {}
        self.place = place
        self._offset = offset or 1
        self._limit = min(limit, PAGE_LINES)
        self._column = column

    def read(self) -> ToolResult:
        """Read only what is shown."""
        handle = self.place.open()
        try:
            state = os.fstat(handle)
            if stat.S_ISDIR(state.st_mode):
                raise UsageError(self._folder(handle))
            if not stat.S_ISREG(state.st_mode):
                raise UsageError(f"{self.place.name} is {describe_kind(state.st_mode)}, not a regular file.")
            with open(handle, "rb", closefd=False) as file:
                return self._read(file, state)
        except OSError as error:
            raise self.place.failure(error) from error
        finally:
            os.close(handle)

    def _read(self, file: BinaryIO, state: os.stat_result) -> ToolResult:
        head = file.read(SAMPLE_BYTES)
        encoding = detect_encoding(head)
        if state.st_size <= 8 * WHOLE_BYTES and (kind := document_kind(head, self.place.path.suffix)):
            self.kind, self.content = kind, _part_of(file, 0, 8 * WHOLE_BYTES)
        elif encoding is None and is_picture(head) and state.st_size <= MOST_PICTURE:
            self.pictures = {self.place.path.name: _part_of(file, 0, MOST_PICTURE)}
        if self.kind or encoding is None:
            return ToolResult(text=f"{self.place.name}{_NOT_TEXT}{describe_binary(head, state.st_size)}.")
        if state.st_size <= WHOLE_BYTES or encoding.is_wide:
            return self._whole(file, state, encoding)
        return self._large(file, state, encoding)

    def _whole(self, file: BinaryIO, state: os.stat_result, encoding: Encoding) -> ToolResult:
        if state.st_size > 8 * WHOLE_BYTES:
            raise UsageError(
                f"{self.place.name} has {state.st_size:,} bytes of {encoding.name}, too many to read in pages. "
                f"Convert it: iconv -f {encoding.name} -t utf-8."
            )
        raw = _part_of(file, 0, 8 * WHOLE_BYTES)
        self.seen = look(state, raw)
        data = raw[len(encoding.bom) :]
        if encoding.is_wide:
            data = data.decode(encoding.name, "replace").encode()
            encoding = Encoding("utf-8")
        elif self.place.path.suffix == ".ipynb" and (cells := notebook_text(data)) is not None:
            text, self.pictures = cells
            data, encoding = text.encode("utf-8", "replace"), Encoding("utf-8")
        return self.lines(data, encoding)

    def lines(self, data: bytes, encoding: Encoding) -> ToolResult:
        """The wanted lines of a text that is in memory."""
        total = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
        if not total:
            return ToolResult(text=f"{self.place.name} is empty.")
        first = max(1, total + 1 + self._offset) if self._offset < 0 else self._offset
        if first > total:
            raise UsageError(f"{self.place.name} has only {total:,} lines; there is no line {first:,}.")
        file = io.BytesIO(data)
        start, number = _find_line(file, first, at=0)
        return self._show(file, start, number, encoding, total=total)

    def _large(self, file: BinaryIO, state: os.stat_result, encoding: Encoding) -> ToolResult:
        begin = len(encoding.bom)
        self.seen = look(state, None)
        if self._offset < 0:
            start = _find_from_end(file, state.st_size, -self._offset, begin)
            return self._show(file, start, self._offset, encoding, total=None)
        start, number = _find_line(file, self._offset, at=begin)
        if not _part_of(file, start, 1):
            total = number - (_part_of(file, start - 1, 1) == b"\n")
            raise UsageError(f"{self.place.name} has {total:,} lines; there is no line {self._offset:,}.")
        return self._show(file, start, number, encoding, total=None)

    def _show(
        self, file: BinaryIO, start: int, number: int, encoding: Encoding, *, total: int | None
    ) -> ToolResult:
        rows: list[str] = []
        room = PAGE_CHARS
        first, column = number, self._column
        if column > 1:
            start = _skip_columns(file, start, column - 1, encoding)
        at_end = True
        go_on = ""
        for line, is_cut in _lines(file, start):
            if len(rows) == self._limit:
                at_end = False
                break
            text = NULS.sub(_count_nuls, line.decode(encoding.name, "replace").removesuffix("\r"))
            # A call that names a column wants to see that line.
            allowed = room if column > 1 and not rows else LINE_CHARS
            if len(text) > allowed or is_cut:
                go_on = f"offset={number}, column={column + allowed}"
                text = f"{text[:allowed]} [… line continues: {go_on}]"
            if len(text) > room and rows:
                at_end = False
                break
            rows.append(f"{number:>6}\t{text}")
            room -= len(text) + 8
            column = 1
            number += 1
            if number == 0:
                break
        footer = self._footer(first, number - 1, at_end=at_end, total=total)
        return ToolResult(text="\n".join([*rows, *([footer] if footer else [])]))

    def _footer(self, first: int, last: int, *, at_end: bool, total: int | None) -> str:
        if at_end:
            return "" if first == 1 else "[end of the file]"
        of = "" if total is None else f" of {total:,}"
        return f"[lines {first} to {last}{of}; continue with offset={last + 1}]"

    def _folder(self, handle: int) -> str:
        names = sorted(os.listdir(handle))
        listed = ", ".join(shown(name) for name in names[:FOLDER_ENTRIES])
        more = f" and {len(names) - FOLDER_ENTRIES:,} more" if len(names) > FOLDER_ENTRIES else ""
        holds = f" It contains: {listed}{more}." if names else " It is empty."
        return f"{self.place.name} is a folder.{holds} Use glob to find files in it."


async def _document(page: _Page, reader: DocumentReader, what: str, *, is_first: bool) -> ToolResult:
    """A PDF as it is, with its text for a model that can't see it; the text of a long one, and of other documents.
    `is_first`: the call asks for no particular lines.
    """
    pages, lines, why = 0, "", "With offset, its text comes in lines."
    try:
        text, pages = await reader.read(page.content, page.kind, page.place.name)
        lines = page.lines(text.encode("utf-8", "replace"), Encoding("utf-8")).text
    except (NoText, SandboxError) as error:
        if page.kind != "pdf":
            raise
        why = str(error)
    if page.kind == "pdf" and (is_first or not lines):
        file = await reader.shown(page.content, page.place.path.name, lines, pages)
        if file is not None:
            return ToolResult(text=f"{what.replace(_NOT_TEXT, ': ')} {why}", files=(file,))
    return ToolResult(text=lines or why, is_error=not lines)


def _count_nuls(run: re.Match[str]) -> str:
    return f"[… {len(run[0]):,} NUL characters]"


def _part_of(file: BinaryIO, at: int, count: int) -> bytes:
    file.seek(at)
    return file.read(count)


def _past_hole(file: BinaryIO, at: int) -> int:
    """The next offset with data: reading through a hole of a sparse file would take as long as reading data."""
    try:
        return file.seek(at, os.SEEK_DATA)
    except ValueError:
        return at  # in memory
    except OSError:
        return file.seek(0, os.SEEK_END)


def _find_line(file: BinaryIO, wanted: int, *, at: int) -> tuple[int, int]:
    """The offset at which a line begins, and its number; line 1 begins `at`. In a file with fewer lines, its end and
    the number of the line there.
    """
    number = 1
    while number < wanted and (chunk := _part_of(file, at := _past_hole(file, at), CHUNK_BYTES)):
        breaks = chunk.count(b"\n")
        if number + breaks < wanted:
            number += breaks
            at += len(chunk)
            continue
        place = -1
        for _ in range(wanted - number):
            place = chunk.index(b"\n", place + 1)
        return at + place + 1, wanted
    return at, number


def _find_from_end(file: BinaryIO, size: int, lines: int, begin: int) -> int:
    """The offset at which the last `lines` lines of a file begin."""
    end = size
    # The line break at the end of the last line does not begin another line.
    if _part_of(file, size - 1, 1) == b"\n":
        end -= 1
    while end > begin:
        start = max(begin, end - CHUNK_BYTES)
        chunk = _part_of(file, start, end - start)
        breaks = chunk.count(b"\n")
        if breaks < lines:
            lines -= breaks
            end = start
            continue
        place = len(chunk)
        for _ in range(lines):
            place = chunk.rindex(b"\n", 0, place)
        return start + place + 1
    return begin


def _lines(file: BinaryIO, at: int) -> Iterator[tuple[bytes, bool]]:
    """The lines from an offset at which one begins, and whether they are cut to `LONG_LINE_BYTES`."""
    file.seek(at)
    while line := file.readline(LONG_LINE_BYTES + 1):
        is_cut = len(line) > LONG_LINE_BYTES and not line.endswith(b"\n")
        yield line[:LONG_LINE_BYTES].removesuffix(b"\n"), is_cut
        if is_cut:
            file.seek(_find_line(file, 2, at=file.tell())[0])


def _skip_columns(file: BinaryIO, at: int, columns: int, encoding: Encoding) -> int:
    """The offset of a character in the line that begins at `at`, or the end of a shorter line."""
    decoder = codecs.getincrementaldecoder(encoding.name)("surrogateescape")
    while chunk := _part_of(file, at, CHUNK_BYTES):
        line, *rest = chunk.split(b"\n", 1)
        text = decoder.decode(line)
        pending = len(decoder.getstate()[0])
        if len(text) >= columns:
            return at + len(text[:columns].encode(encoding.name, "surrogateescape"))
        if rest:
            return at + len(line)
        columns -= len(text)
        # A character that the chunk splits is read again in full.
        at += len(line) - pending
        decoder.reset()
        if len(chunk) < CHUNK_BYTES:
            break
    return at


def _describe(input: Mapping[str, Any]) -> str:
    start, limit = input.get("offset"), input.get("limit")
    part = f" from line {start}" if start else ""
    lines = f", {counted(limit, 'line')}" if isinstance(limit, int) and limit else ""
    return f"{input.get('path', '')}{part}{lines}"


def _show(_input: Mapping[str, Any], text: str) -> ShownResult:
    rows = text.splitlines()
    numbered = sum(1 for row in rows if re.match(r" *-?\d+\t", row))
    if not numbered:
        return ShownResult(summary=one_line(text))
    part = re.fullmatch(r"\[(lines .*?)(?:; (?:continue|go on) with .*)?\]", rows[-1])
    return ShownResult(summary=part[1] if part else counted(numbered, "line"))


FILE_READ: Final = BuiltIn(
    name="file_read",
    make=lambda given: file_read_tool(given.fence, given.boxes),
    display=Display(call=_describe, result=_show, kind="read"),
    returns=TEXT,
)
