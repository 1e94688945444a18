"""The tool `file_read`: a page of a text file with line numbers, a picture, a document, or what any other file is."""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from satchel.errors import SandboxError, UsageError
from satchel.tools.boxed import Workspaces
from satchel.tools.builtin.content import SAMPLE_BYTES, Encoding, describe_binary, detect_encoding
from satchel.tools.builtin.fence import Fence, Place, describe_kind
from satchel.tools.builtin.record import TEXT, BuiltIn
from satchel.tools.builtin.seen import WHOLE_BYTES, Seen, last_seen, look, remember
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One line, cut to `LONG_LINE_BYTES`, and the offsets at which it and the next line begin."""

    data: bytes
    start: int
    end: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class _Memory:
    """A file that was read into memory."""

    data: bytes

    def read(self, at: int, count: int) -> bytes:
        """Up to `count` bytes from an offset; b"" at the end."""
        return self.data[at : at + count]

    def skip_hole(self, at: int) -> int:
        """The next offset from `at` on at which there may be a line break."""
        return at


@dataclass(frozen=True, slots=True)
class _Disk:
    """A file of which only the needed parts are read."""

    handle: int
    size: int

    def read(self, at: int, count: int) -> bytes:
        """As in `_Memory`."""
        return os.pread(self.handle, count, at)

    def skip_hole(self, at: int) -> int:
        """As in `_Memory`. Reading through a hole of a sparse file would take as long as reading data."""
        try:
            return os.lseek(self.handle, at, os.SEEK_DATA)
        except OSError:
            return self.size


_Source: TypeAlias = _Memory | _Disk


def file_read_tool(fence: Fence, boxes: Workspaces | None) -> Tool:
    """Make the tool; documents are read in the sandbox of `boxes`."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        place = fence.locate(input["path"], context)
        page = _Page(
            place=place,
            offset=input.get("offset", 1),
            limit=input.get("limit", PAGE_LINES),
            column=input.get("column", 1),
            before=last_seen(context, place.path),
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

    def __init__(self, *, place: Place, offset: int, limit: int, column: int, before: Seen | None) -> None:
        self.seen: Seen | None = None
        self.kind = ""
        self.content = b""
        self.pictures: Mapping[str, bytes] = {}
        self.place = place
        self._offset = offset or 1
        self._limit = min(limit, PAGE_LINES)
        self._column = column
        self._before = before

    def read(self) -> ToolResult:
        """Read only what is shown."""
        handle = self.place.open()
        try:
            state = os.fstat(handle)
            if stat.S_ISDIR(state.st_mode):
                raise UsageError(self._folder(handle))
            if not stat.S_ISREG(state.st_mode):
                raise UsageError(f"{self.place.name} is {describe_kind(state.st_mode)}, not a regular file.")
            head = os.pread(handle, SAMPLE_BYTES, 0)
            encoding = detect_encoding(head)
            if state.st_size <= 8 * WHOLE_BYTES and (kind := document_kind(head, self.place.path.suffix)):
                self.kind, self.content = kind, _read_all(handle, 8 * WHOLE_BYTES)
            elif encoding is None and is_picture(head) and state.st_size <= MOST_PICTURE:
                self.pictures = {self.place.path.name: _read_all(handle, MOST_PICTURE)}
            if self.kind or encoding is None:
                return ToolResult(text=f"{self.place.name}{_NOT_TEXT}{describe_binary(head, state.st_size)}.")
            if state.st_size <= WHOLE_BYTES or encoding.is_wide:
                return self._whole(handle, state, encoding)
            return self._part(handle, state, encoding)
        except OSError as error:
            raise self.place.failure(error) from error
        finally:
            os.close(handle)

    def _whole(self, handle: int, state: os.stat_result, encoding: Encoding) -> ToolResult:
        if state.st_size > 8 * WHOLE_BYTES:
            raise UsageError(
                f"{self.place.name} has {state.st_size:,} bytes of {encoding.name}, too many to read in pages. "
                f"Convert it: iconv -f {encoding.name} -t utf-8."
            )
        raw = _read_all(handle, 8 * WHOLE_BYTES)
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

        source = _Memory(data)
        start, number = _find_line(source, first, at=0, number=1)
        return self._show(source, start, number, encoding, total=total)

    def _part(self, handle: int, state: os.stat_result, encoding: Encoding) -> ToolResult:
        begin = len(encoding.bom)

        source = _Disk(handle, state.st_size)
        self.seen = look(state, None)
        if self._offset < 0:
            start = _find_from_end(source, state.st_size, -self._offset, begin)
            return self._show(source, start, self._offset, encoding, total=None)
        at, number = begin, 1
        known = self._before
        if (
            known is not None
            and known.is_still(self.seen)
            and known.next_line <= self._offset
            and known.next_byte
        ):
            at, number = known.next_byte, known.next_line
        start, number = _find_line(source, self._offset, at=at, number=number)
        if number < self._offset or not source.read(start, 1):
            raise UsageError(
                f"{self.place.name} has {number - (not source.read(start, 1)):,} lines; there is no line "
                f"{self._offset:,}."
            )
        return self._show(source, start, number, encoding, total=None)

    def _show(
        self, source: _Source, start: int, number: int, encoding: Encoding, *, total: int | None
    ) -> ToolResult:
        rows: list[str] = []
        room = PAGE_CHARS
        first, column = number, self._column
        if column > 1:
            start = _skip_columns(source, start, column - 1, encoding)
        at_end = True
        go_on = ""
        for line in _lines(source, start):
            if len(rows) == self._limit:
                at_end = False
                break
            text = NULS.sub(_count_nuls, line.data.decode(encoding.name, "replace").removesuffix("\r"))
            # A call that names a column wants to see that line.
            allowed = room if column > 1 and not rows else LINE_CHARS
            if len(text) > allowed or line.is_cut:
                go_on = f"offset={number}, column={column + allowed}"
                text = f"{text[:allowed]} [… line continues: {go_on}]"
            if len(text) > room and rows:
                at_end = False
                break
            rows.append(f"{number:>6}\t{text}")
            room -= len(text) + 8
            column = 1
            number += 1
            start = line.end
            if number == 0:
                break
        if self.seen is not None and total is None and number > 0:
            self.seen = replace(self.seen, next_line=number, next_byte=start)
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


def _read_all(handle: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    at = 0
    while at <= limit and (chunk := os.pread(handle, CHUNK_BYTES, at)):
        chunks.append(chunk)
        at += len(chunk)
    return b"".join(chunks)


def _find_line(source: _Source, wanted: int, *, at: int, number: int) -> tuple[int, int]:
    """The offset at which a line begins, and its number.

    Args:
        source: The file.
        wanted: The line's number. In a file with fewer lines, the result is its end and the number of the line there.
        at: An offset before it, at which line `number` begins.
        number: See `at`.
    """
    while number < wanted and (chunk := source.read(at := source.skip_hole(at), CHUNK_BYTES)):
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


def _find_from_end(source: _Source, size: int, lines: int, begin: int) -> int:
    """The offset at which the last `lines` lines of a file begin."""
    end = size
    # The line break at the end of the last line does not begin another line.
    if source.read(size - 1, 1) == b"\n":
        end -= 1
    while end > begin:
        start = max(begin, end - CHUNK_BYTES)
        chunk = source.read(start, end - start)
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


def _lines(source: _Source, at: int) -> Iterator[_Line]:
    """The lines from an offset at which one begins."""
    buffer, base, here = b"", at, 0
    while True:
        place = buffer.find(b"\n", here)
        if place < 0 and len(buffer) - here < LONG_LINE_BYTES:
            more = source.read(base + len(buffer), CHUNK_BYTES)
            if more:
                base, buffer, here = base + here, buffer[here:] + more, 0
                continue
            if here < len(buffer):
                yield _Line(data=buffer[here:], start=base + here, end=base + len(buffer), is_cut=False)
            return
        if place >= 0 and place - here <= LONG_LINE_BYTES:
            yield _Line(data=buffer[here:place], start=base + here, end=base + place + 1, is_cut=False)
            here = place + 1
            continue
        start, data = base + here, buffer[here : here + LONG_LINE_BYTES]
        end = _find_line(source, 2, at=start, number=1)[0]
        yield _Line(data=data, start=start, end=end, is_cut=True)
        buffer, base, here = b"", end, 0


def _skip_columns(source: _Source, at: int, columns: int, encoding: Encoding) -> int:
    """The offset of a character in the line that begins at `at`, or the end of a shorter line."""
    decoder = codecs.getincrementaldecoder(encoding.name)("surrogateescape")
    while chunk := source.read(at, CHUNK_BYTES):
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
