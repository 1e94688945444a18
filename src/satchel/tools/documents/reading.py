"""Reads a document in the sandbox, and splits its text into passages at headings and pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any, Final

from anyio.to_thread import run_sync

from satchel.errors import UsageError
from satchel.sandbox.port import Limits, PythonEntry, RunSpec, Sandbox, Status
from satchel.tools.documents.tables import is_row, may_stand_in_table, table_head
from satchel.tools.kept import HEIF, media_type_of
from satchel.wording import counted, install_extra

_OCR: Final = "rapidocr"
PICTURES: Final = ("avif", "bmp", "heic", "heif", "jpeg", "jpg", "png", "tif", "tiff", "webp")
"""The suffixes of pictures whose words are read."""
KINDS: Final = {
    **dict.fromkeys(
        ("csv", "epub", "htm", "html", "markdown", "md", "odp", "ods", "odt", "svg", "tsv", "txt", "xhtml"),
        "",
    ),
    **dict.fromkeys(PICTURES, _OCR),
    "docx": "docx",
    "pdf": "pypdfium2",
    "pptx": "pptx",
    "xlsx": "openpyxl",
}
"""The suffixes that are read, and the package that each needs: of the extra `ocr` for pictures, else `documents`."""
_MOST_BYTES: Final = 200_000_000
_SMALL_BYTES: Final = 100_000
_LIMITS: Final = Limits(wall_s=600, cpu_s=500, memory_mb=1024, tmp_mb=16, result_kb=65_536)
_OCR_LIMITS: Final = replace(_LIMITS, wall_s=1_800, cpu_s=1_700, memory_mb=1536)
_PASSAGE_CHARS: Final = 1_200
"""About 300 tokens: what the embedders read at once, and what fits what is shown for a message."""
_BREAKS: Final = ("\n\n", "\n", ". ", "? ", "! ", "; ", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPart:
    """A part of a document.

    Attributes:
        page: Counted from 1; None for documents without pages.
        heading: That it stands under, with those above it; "" for none.
    """

    page: int | None
    heading: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The title of a document, or its file's name, and its passages in order.

    Attributes:
        note: Which pages were not read, in a sentence; "" for none.
    """

    title: str
    passages: Sequence[DocumentPart]
    note: str = ""


class NoText(UsageError):
    """Its text can't be had, though nothing is wrong with it: the pages may be pictures, or a package is missing."""


async def read_document(path: Path, sandbox: Sandbox) -> Document:
    """Read a document as passages, with the words in pictures of pages if the extra is there; see `read_sections`."""
    title, sections, unread = await _read(path, sandbox, ocr=True)
    why = "they take too long" if _has_ocr() else f"that needs a package. Type: {install_extra('ocr')}"
    note = (
        f"{counted(unread, 'page is a picture', 'pages are pictures')} and not read: {why}" if unread else ""
    )
    return replace(_document(title, sections), note=note)


def is_document(name: str) -> bool:
    """Whether a file of this name is of a kind that can be read here."""
    kind = PurePath(name).suffix[1:].lower()
    return kind in KINDS and (kind not in PICTURES or _has_ocr())


def _has_ocr() -> bool:
    """Whether words in pictures can be read."""
    return find_spec(_OCR) is not None


async def read_small(paths: Sequence[Path], sandbox: Sandbox) -> dict[Path, Document]:
    """Read small documents in one run of the sandbox, which takes longer to start than most notes to read. All `paths`
    are `is_small`.

    Returns:
        Those that could be read. `read_document` says of the others why not.

    Raises:
        SandboxError: The sandbox failed.
    """
    found: dict[Path, Document] = {}
    with suppress(UsageError):
        for path, answer in zip(paths, await _answers(paths, None, sandbox, ocr=False), strict=True):
            with suppress(UsageError):
                found[path] = _document(*_sections(path, answer)[:2])
    return found


def is_small(path: Path, size: int) -> bool:
    """Whether a file of so many bytes may be read together with others: it is text, and needs no package."""
    return size <= _SMALL_BYTES and KINDS.get(path.suffix[1:].lower()) == ""


def _document(title: str, sections: Sequence[DocumentPart]) -> Document:
    passages = [replace(section, text=part) for section in sections for part in _parts(section.text)]
    return Document(title=title, passages=passages)


async def read_sections(path: Path, sandbox: Sandbox) -> tuple[str, Sequence[DocumentPart]]:
    """Read a document: its title, or its file's name, and its pages and what stands under each heading, in order.

    Pictures of pages are not read: a model that asks for a document may see them itself. The path leads to a regular
    file, without links on the way. The parser runs without a network, and with this file as the only one of the user's.

    Raises:
        UsageError: It is of an unknown kind, too large, encrypted or damaged, or a package is missing.
        NoText: It has no text.
        SandboxError: The sandbox failed.
    """
    title, sections, _ = await _read(path, sandbox, ocr=False)
    return title, sections


def check_readable(path: Path) -> None:
    """Refuse a file of an unknown kind, or one that is too large. Blocks.

    Raises:
        UsageError: It is one.
        OSError: It can't be looked at.
    """
    if path.suffix[1:].lower() not in KINDS:
        raise UsageError(f"{path} is not of a kind that is read: {', '.join(sorted(KINDS))}.")
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise UsageError(f"{path} has {size:,} bytes; a document has at most {_MOST_BYTES:,}.")


async def _read(path: Path, sandbox: Sandbox, *, ocr: bool) -> tuple[str, Sequence[DocumentPart], int]:
    await run_sync(check_readable, path)
    kind = path.suffix[1:].lower()
    [answer] = await _answers([path], await run_sync(_layer, path), sandbox, ocr=ocr and _has_ocr())
    try:
        return _sections(path, answer)
    except NoText as error:
        if kind == "pdf" and not _has_ocr():
            raise NoText(f"{error} To read words in pictures, type: {install_extra('ocr')}") from error
        raise


def _layer(path: Path) -> Path | None:
    """Where the packages are that read a file; None if it needs none. Blocks.

    Raises:
        NoText: One is missing.
        OSError: The file can't be read.
    """
    if not (package := KINDS[path.suffix[1:].lower()]):
        return None
    packages = [package]
    if package == _OCR:
        with path.open("rb") as file:
            packages += ["pillow_heif"] * (media_type_of(file.read(16)) in HEIF)  # whatever its suffix
    layer = None
    for each in packages:
        found = find_spec(each)
        if found is None or found.origin is None:
            extra = "ocr" if package == _OCR else "documents"
            raise NoText(f"{path} needs a package that is missing. Type: {install_extra(extra)}")
        layer = Path(found.origin).parents[1]
    return layer


async def _answers(
    paths: Sequence[Path], layer: Path | None, sandbox: Sandbox, *, ocr: bool
) -> list[dict[str, Any]]:
    """What the guest says of each file."""
    files = [[str(path), path.suffix[1:].lower()] for path in paths]
    entry = PythonEntry(code_dir=Path(__file__).with_name("guest"), args={"files": files, "ocr": ocr})
    result = await sandbox.run(
        RunSpec(entry=entry, layer=layer, limits=_OCR_LIMITS if ocr else _LIMITS, read_only=tuple(paths))
    )
    if result.status is not Status.OK or result.result is None:
        raise UsageError(f"{paths[0]} could not be read: {result.error}")
    answers: list[dict[str, Any]] = json.loads(result.result)
    return answers


def _sections(path: Path, answer: Mapping[str, Any]) -> tuple[str, Sequence[DocumentPart], int]:
    # Only the shape is trusted: what the parser says is the document's.
    if "error" in answer:
        reason = f"{path} could not be read. {answer['error']}"
        raise NoText(reason) if answer.get("is_empty") else UsageError(reason)
    sections = [
        DocumentPart(page=page, heading=heading, text=text) for page, heading, text in answer["sections"]
    ]
    return answer["title"].strip() or path.name, sections, answer["unread"]


def _parts(text: str) -> Iterator[str]:
    """Parts of at most `_PASSAGE_CHARS` characters, cut at a paragraph, line, sentence or word.

    A table that is cut goes on under its head; see `table_head`.
    """
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()
    start = 0
    head = ""
    while start < len(text):
        room = _PASSAGE_CHARS - len(head)
        least, end = start + room // 2, start + room
        if end < len(text):
            cuts = (text.rfind(mark, least, end) + len(mark) for mark in _BREAKS)
            end = next((cut for cut in cuts if cut > least), end)
        part = text[start:end]
        if part.strip():
            yield head + part.strip()
        following = text[end : end + _PASSAGE_CHARS].split("\n", 2)[:2]
        goes_on = part.endswith("\n") and may_stand_in_table(following[0]) and any(map(is_row, following))
        head = table_head(part[:-1].split("\n"), head.rstrip("\n")) if goes_on else ""
        head = head and f"{head}\n"
        start = end
