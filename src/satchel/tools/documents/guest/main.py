"""Reads the text of a document. It runs in the sandbox and imports nothing of Satchel, because its input is hostile.

`run` returns JSON, for each file: `title`, `sections`, a list of [page or null, heading, text], and `unread`, how many
pages are pictures that were not read; or `error`, a sentence, with `is_empty` if there is nothing to read.
"""

from __future__ import annotations

import csv
import json
import posixpath
import re
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

_MOST_PAGES = 5_000
_MOST_CHARS = 10_000_000
_TOO_LONG = f"It has more than {_MOST_CHARS:,} characters of text."
_MOST_EXPANDED_BYTES = 300_000_000
"""Of all parts of an archive together. Real documents with many pictures stay below it."""
_MOST_ROWS = 100_000
_MOST_REPEATED = 100
"""Of a cell or row of a spreadsheet."""

_SIDE = 1_600
"""Pixels of the longer side of a page whose picture is read: a dense page of a manual takes 560 MB; with 2,000, 780."""
_MOST_PIXELS = 80_000_000
"""Of a picture: more than phones take."""
_PICTURES_S = 1_500.0
"""How long pictures of pages are read, on the clock: the sandbox ends the run after 1,800 s, and all would be lost.
A page takes 2 to 9 s of a processor."""
_FEW_CHARS = 20
"""A page with fewer characters may be a scan with a stamp or a page number."""
_BY_MACHINE = "read from a picture"

_LETTERS = {
    **{0xFB00 + at: letters for at, letters in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))},
    **dict.fromkeys((0, 0x0D)),
}
"""Typeset PDFs hold "proﬁle" with one character for two letters, which nobody types in a question."""
_DIVIDED = "\ufffe"
"""What PDFium gives for a hyphen at the end of a line."""

Section = tuple[int | None, str, str]


class UnreadableDocument(Exception):
    """Why a document can't be read, as a sentence for the user."""


def run(args: dict[str, Any]) -> str:
    """Read `files`, each a path and a kind, which is a suffix without its dot; with the words in pictures if `ocr`."""
    pictures = _Pictures(_PICTURES_S if args["ocr"] else 0.0)
    return json.dumps([_read(Path(path), kind, pictures) for path, kind in args["files"]])


def _read(path: Path, kind: str, pictures: _Pictures) -> dict[str, Any]:
    try:
        if kind == "pdf":
            title, sections = _pdf(path, pictures)
        elif kind in _READERS:
            title, sections = _READERS[kind](path)
        else:
            title, sections = "", _picture(path, pictures)
        taken, chars = [], 0
        for section in sections:
            chars += len(section[2])
            if chars > _MOST_CHARS:
                raise UnreadableDocument(_TOO_LONG)
            if section[2].strip():
                taken.append(section)
        if not taken:
            may_be = "; its pages may be pictures" if pictures.unread else ""
            return {"error": f"It has no text{may_be}.", "is_empty": True}
    except UnreadableDocument as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "Reading it takes more memory than a document may use."}
    # A boundary: a parser may raise anything for a broken or hostile file.
    except Exception as error:  # noqa: BLE001
        return {"error": f"It is damaged, or not what its name says ({type(error).__name__})."}
    return {"title": " ".join(title.split())[:200], "sections": taken, "unread": pictures.unread}


class _Pictures:
    """Reads words in pictures for some seconds, which may be 0.

    Attributes:
        unread: How many pages came too late.
    """

    def __init__(self, seconds: float) -> None:
        self.unread = 0
        self._until = time.monotonic() + seconds

    def words(self, picture: Any) -> str:
        """The lines of a picture (`PIL.Image.Image`), from above."""
        import numpy

        picture.thumbnail((_SIDE, _SIDE))
        found = _recogniser()(numpy.asarray(picture.convert("RGB"))[:, :, ::-1])
        return "\n".join(found.txts or ())

    def is_late(self) -> bool:
        """Whether the next page comes too late; it is counted."""
        late = time.monotonic() > self._until
        self.unread += late
        return late

    def page(self, page: Any, images: Sequence[Any]) -> str:
        """The words of a page of a PDF with images; "" if it is too late."""
        if self.is_late():
            return ""
        # Drawn with as many pixels as its picture has: enlarged, words run together.
        side = min(max(max(each.get_px_size()) for each in images), 4_000)
        return self.words(page.render(scale=side / max(1.0, *page.get_size())).to_pil())


@cache
def _recogniser() -> Any:
    """Takes a second. The sandbox grants few threads, and one page is little work."""
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(1)
    options = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    # Lines one by one: of six at a time, the longest makes the memory of all.
    return RapidOCR(params={"Global.log_level": "error", "Rec.rec_batch_num": 1, **options})


def _picture(path: Path, pictures: _Pictures) -> Iterator[Section]:
    from PIL import Image, ImageOps

    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener(thumbnails=False)
    Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit warns first
    with Image.open(path, formats=("PNG", "JPEG", "WEBP", "TIFF", "BMP", "AVIF", "HEIF")) as opened:
        # A scan of several pages is one TIFF; the frames of other formats are a film.
        pages = getattr(opened, "n_frames", 1) if opened.format == "TIFF" else 1
        for page in range(pages):
            opened.seek(page)
            if opened.width * opened.height > _MOST_PIXELS:  # before it is unpacked
                raise UnreadableDocument(f"It has more than {_MOST_PIXELS // 1_000_000} million pixels.")
            opened.draft("RGB", (_SIDE, _SIDE))  # a JPEG is unpacked at the size that is needed
            if page and pictures.is_late():
                continue
            yield (
                page + 1 if pages > 1 else None,
                _BY_MACHINE,
                pictures.words(ImageOps.exif_transpose(opened)),
            )


def _pdf(path: Path, pictures: _Pictures) -> tuple[str, Iterator[Section]]:
    from page_tables import Tables
    from pypdfium2 import PdfDocument, PdfiumError, raw

    try:
        document = PdfDocument(path)
    except PdfiumError as error:
        if error.err_code == raw.FPDF_ERR_PASSWORD:
            raise UnreadableDocument("It is encrypted and needs a password.") from error
        raise
    if len(document) > _MOST_PAGES:
        raise UnreadableDocument(f"It has {len(document):,} pages; at most {_MOST_PAGES:,} are read.")
    document.init_forms()
    headings: dict[int, list[str]] = {}
    for mark in document.get_toc():
        if (place := mark.get_dest()) is not None and (title := " ".join(mark.get_title().split())):
            headings.setdefault(place.get_index(), []).append(title)

    def pages() -> Iterator[Section]:
        heading, chars = "", 0
        tables = Tables()
        for at in range(len(document)):
            page = document[at]
            if document.formenv is not None:
                # What is filled into a form becomes text of the page, which is then loaded anew.
                page.flatten()
                page.close()
                page = document[at]
            textpage = page.get_textpage()
            text = tables.read(textpage.get_text_range(), textpage).translate(_LETTERS)
            chars += len(text)
            if chars > _MOST_CHARS:  # pages can share their words, and all are held below
                raise UnreadableDocument(_TOO_LONG)
            text = re.sub(r"\.(?: ?\.){4,}", "…", text)  # the dots of a table of contents
            if len(text.strip()) < _FEW_CHARS and (
                images := list(page.get_objects((raw.FPDF_PAGEOBJ_IMAGE,)))
            ):
                read = pictures.page(page, images)
                if len(read) > len(text.strip()):
                    heading = headings.get(at, [heading])[0]
                    yield at + 1, " › ".join(filter(None, (heading, _BY_MACHINE))), read
                    continue
            for heading, part in _at_titles(text, heading, headings.get(at, ())):  # noqa: B020
                yield at + 1, heading, part
            page.close()

    return document.get_metadata_dict().get("Title", ""), _whole_words(list(pages()))


def _at_titles(text: str, above: str, titles: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Split a page at the titles of the outline that begin on it, as far as they are lines of it."""
    start, is_split = 0, False
    for title in titles:
        words = r"\s+".join(re.escape(word) for word in title.split())
        found = re.compile(rf"^[\w.]{{0,10}}\s*{words}[ \t]*$", re.MULTILINE | re.IGNORECASE).search(
            text, start
        )
        if found is not None:
            if is_split or found.start():
                yield above, text[start : found.start()]
            start, above, is_split = found.start(), title, True
    yield above if is_split or not titles else titles[0], text[start:]


def _whole_words(sections: Sequence[Section]) -> Iterator[Section]:
    """Put words together that the ends of lines divide, with a hyphen if the document has it within a line."""
    hyphened = {each.lower() for *_, text in sections for each in re.findall(r"\w+-\w+", text)}

    def join(found: re.Match[str]) -> str:
        word = f"{found[1]}-{found[2]}"
        is_divided = found[1][-1].islower() and found[2][0].islower() and word.lower() not in hyphened
        return found[1] + found[2] if is_divided else word

    for page, heading, text in sections:
        yield page, heading, re.sub(rf"(\w+){_DIVIDED}(\w+)", join, text).replace(_DIVIDED, "-")


def _unpacked(path: Path) -> None:
    """Refuse an archive that expands too far. The sizes are those at which `zipfile` stops reading."""
    with zipfile.ZipFile(path) as archive:
        if sum(part.file_size for part in archive.infolist()) > _MOST_EXPANDED_BYTES:
            raise UnreadableDocument(f"It expands to more than {_MOST_EXPANDED_BYTES // 1_000_000} MB.")


def _table(rows: Iterable[Iterable[object]]) -> str:
    lines, chars = [], 0
    for row in rows:
        if line := " | ".join(map(_cell, row)).rstrip(" |"):
            lines.append(line)
            chars += len(line)
        if chars > _MOST_CHARS:  # a few bytes of a spreadsheet can repeat a cell very often
            raise UnreadableDocument(_TOO_LONG)
    return "\n".join(lines)


def _cell(value: object) -> str:
    # Spreadsheets keep 27.3 as 27.299999999999997, and a day as its midnight.
    words = "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)
    return " ".join(words.removesuffix(" 00:00:00").split())


def _docx(path: Path) -> tuple[str, Iterator[Section]]:
    from docx import Document
    from docx.table import Table

    _unpacked(path)
    document = Document(str(path))

    def lines() -> Iterator[str]:
        for block in document.iter_inner_content():
            if isinstance(block, Table):
                yield "\n" + _table([cell.text for cell in row.cells] for row in block.rows) + "\n"
            elif level := re.fullmatch(r"(?:Title|Heading (\d))", (block.style and block.style.name) or ""):
                yield "#" * int(level[1] or 1) + " " + " ".join(block.text.split())
            else:
                yield block.text + "\n"

    return document.core_properties.title or "", _by_heading("\n".join(lines()))


def _pptx(path: Path) -> tuple[str, Iterator[Section]]:
    from pptx import Presentation

    _unpacked(path)
    deck = Presentation(str(path))

    def slides() -> Iterator[Section]:
        for number, slide in enumerate(deck.slides, 1):
            title = slide.shapes.title
            parts = list(_shapes(slide.shapes))
            if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
                parts.append(slide.notes_slide.notes_text_frame.text)
            yield number, "" if title is None else " ".join(title.text.split()), "\n".join(parts)

    return deck.core_properties.title or "", slides()


def _shapes(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from _shapes(shape.shapes)
        elif shape.has_text_frame:
            yield shape.text_frame.text
        elif shape.has_table:
            yield _table([cell.text for cell in row.cells] for row in shape.table.rows)


def _xlsx(path: Path) -> tuple[str, Iterator[Section]]:
    from openpyxl import load_workbook

    _unpacked(path)
    book = load_workbook(path, read_only=True, data_only=True)

    def sheets() -> Iterator[Section]:
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # some programs write that it has one cell
            rows = (row for at, row in enumerate(sheet.iter_rows(values_only=True)) if at < _MOST_ROWS)
            yield None, sheet.title, _table(rows)

    return book.properties.title or "", sheets()


def _odf(path: Path) -> tuple[str, Iterator[Section]]:
    """A text, spreadsheet or presentation of OpenDocument."""
    _unpacked(path)
    with zipfile.ZipFile(path) as archive:
        content = _xml(archive.read("content.xml"))
        about = _xml(archive.read("meta.xml")).iter() if "meta.xml" in archive.namelist() else ()
    title = next((at.text for at in about if at.tag.endswith("}title")), None)
    body = next(at for at in content.iter() if at.tag.endswith("}body"))

    def sections() -> Iterator[Section]:
        for at in body:
            match _odf_kind(at):
                case "spreadsheet":
                    for sheet in at:
                        if _odf_kind(sheet) == "table":
                            yield None, _odf_value(sheet, "name"), _odf_table(sheet)
                case "presentation":
                    for number, page in enumerate((each for each in at if _odf_kind(each) == "page"), 1):
                        named = (part for part in page if _odf_value(part, "class") == "title")
                        head = " ".join("\n".join(_odf_lines(next(named, ()))).split())
                        yield number, head, "\n".join(_odf_lines(page))
                case _:
                    yield from _by_heading("\n".join(_odf_lines(at)))

    return title or "", sections()


def _odf_kind(at: ElementTree.Element) -> str:
    return at.tag.rpartition("}")[2]


def _odf_value(at: ElementTree.Element, name: str) -> str:
    """The attribute of this name, in whatever namespace; "" for none."""
    return next((value for key, value in at.attrib.items() if key.rpartition("}")[2] == name), "")


def _odf_lines(parent: Iterable[ElementTree.Element]) -> Iterator[str]:
    for at in parent:
        match _odf_kind(at):
            case "tracked-changes" | "annotation":  # what was deleted, and remarks
                continue
            case "h":
                level = min(int(_odf_value(at, "outline-level") or 1), 6)
                yield "#" * level + " " + " ".join(_odf_words(at).split())
            case "p":
                yield _odf_words(at) + "\n"
            case "table":
                yield "\n" + _odf_table(at) + "\n"
            case _:
                yield from _odf_lines(at)


def _odf_table(at: ElementTree.Element) -> str:
    def cells(row: ElementTree.Element) -> Iterator[str]:
        for cell in row:
            yield from ["\n".join(_odf_lines(cell))] * _odf_times(cell, "number-columns-repeated")

    return _table(cells(row) for row in _odf_rows(at) for _ in range(_odf_times(row, "number-rows-repeated")))


def _odf_times(at: ElementTree.Element, name: str) -> int:
    """How often a cell or row stands there. What fills the sheet to its end counts once."""
    times = int(_odf_value(at, name) or 1)
    return times if times <= _MOST_REPEATED else 1


def _odf_rows(at: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The rows of a table itself, which may stand in groups; those of a table in a cell are the cell's."""
    for part in at:
        kind = _odf_kind(part)
        if kind == "table-row":
            yield part
        elif kind != "table":
            yield from _odf_rows(part)


def _odf_words(at: ElementTree.Element) -> str:
    """The text of a paragraph, in which blanks, tabs and line breaks are elements."""
    kind = _odf_kind(at)
    if kind in ("annotation", "note-citation"):  # a remark at its margin, the number of a footnote
        return ""
    blank = {"s": " ", "tab": " ", "line-break": "\n"}.get(kind, "")
    words = (at.text or "") + "".join(_odf_words(part) + (part.tail or "") for part in at)
    return f" ({' '.join(words.split())})" if kind == "note-body" else blank + words


def _csv(path: Path) -> tuple[str, Iterator[Section]]:
    lines = _decoded(path).splitlines()
    delimiter = "\t" if path.suffix == ".tsv" else max(",;\t", key=lines[0].count) if lines else ","
    return "", iter([(None, "", _table(csv.reader(lines[:_MOST_ROWS], delimiter=delimiter)))])


def _epub(path: Path) -> tuple[str, Iterator[Section]]:
    _unpacked(path)
    with zipfile.ZipFile(path) as book:
        container = _xml(book.read("META-INF/container.xml"))
        package = next(at.get("full-path", "") for at in container.iter() if at.tag.endswith("}rootfile"))
        root = _xml(book.read(package))
        found = [at.text for at in root.iter() if at.tag.endswith("}title") and at.text]
        items = {at.get("id"): at.get("href", "") for at in root.iter() if at.tag.endswith("}item")}
        sections: list[Section] = []
        for at in root.iter():
            if at.tag.endswith("}itemref"):
                href = unquote(items.get(at.get("idref"), ""))
                name = posixpath.normpath(posixpath.join(posixpath.dirname(package), href))
                sections += _by_heading(_Html.read(book.read(name).decode("utf-8", "replace")).text)
    return found[0] if found else "", iter(sections)


def _xml(content: bytes) -> ElementTree.Element:
    # An entity can expand without end, and no document needs one of its own.
    if b"<!ENTITY" in content.replace(b"\0", b""):  # also in UTF-16
        raise UnreadableDocument("It declares XML entities.")
    return ElementTree.fromstring(content)


def _svg(path: Path) -> tuple[str, Iterator[Section]]:
    """The words of a drawing, and those that describe it for who can't see it."""
    named = [
        (name, " ".join(" ".join(at.itertext()).split()))
        for at in _xml(path.read_bytes()).iter()
        if (name := at.tag.rpartition("}")[2]) in ("title", "desc", "text", "foreignObject")
    ]
    title = next((words for name, words in named if name == "title"), "")
    words = [words for name, words in named if name != "title"]
    return title, iter([(None, "", "\n".join(words) or title)])


def _html(path: Path) -> tuple[str, Iterator[Section]]:
    page = _Html.read(_decoded(path))
    return page.title, _by_heading(page.text)


def _text(path: Path) -> tuple[str, Iterator[Section]]:
    return "", iter([(None, "", _decoded(path))])


def _markdown(path: Path) -> tuple[str, Iterator[Section]]:
    text = _decoded(path)
    # A "#" in the front matter is a comment, and no heading.
    front = re.match(r"---\s*\n.*?\n---[ \t\r]*(?:\n|\Z)", text, re.DOTALL)
    text, above = (text[front.end() :], front[0].strip().strip("-")) if front else (text, "")
    named = re.search(r"^title:[ \t]*(.+)", above, re.MULTILINE)
    first = re.search(r"^# +(.+)", text, re.MULTILINE)
    title = named[1].strip("\"' ") if named else first[1].strip(" #") if first else ""
    return title, iter([(None, "", above.strip()), *_by_heading(text)])


def _decoded(path: Path) -> str:
    content = path.read_bytes()
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if content.startswith(mark):
            return content.decode(name, "replace")
    if b"\0" in content[:4000]:
        raise UnreadableDocument("It is not text.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _by_heading(text: str) -> Iterator[Section]:
    """Split Markdown at its headings. A heading is given with those above it: "Care › Cleaning"."""
    above: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = re.match(r" {0,3}(```+|~~~+)", line)
        if mark and (not fence or line.strip().startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence else re.match(r"(#{1,6})[ \t]+(.*)", line)
        if heading is None:
            lines.append(line)
            continue
        yield None, " › ".join(name for _, name in above), "\n".join(lines)
        lines = []
        above = [one for one in above if one[0] < len(heading[1])]
        above.append((len(heading[1]), heading[2].strip(" #")))
    yield None, " › ".join(name for _, name in above), "\n".join(lines)


class _Html(HTMLParser):
    """Turns the visible text of a page into lines, headings as Markdown's and cells between bars."""

    _HIDDEN = frozenset({"script", "style", "template", "noscript", "svg"})
    _BLOCKS = frozenset(
        ("p", "div", "li", "tr", "br", "section", "article", "blockquote", "pre", "dt", "dd", "table")
    )

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._pieces: list[str] = []
        self._hidden = 0
        self._in_title = False

    @classmethod
    def read(cls, html: str) -> _Html:
        """The parsed page."""
        page = cls()
        page.feed(html)
        page.close()
        return page

    @property
    def text(self) -> str:
        """The lines."""
        lines = (" ".join(line.split()) for line in "".join(self._pieces).split("\n"))
        return re.sub(
            r"\n{3,}", "\n\n", "\n".join(line.removeprefix("|").rstrip(" |").lstrip() for line in lines)
        )

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in self._HIDDEN:
            self._hidden += 1
        elif tag == "title":
            self._in_title = True
        elif re.fullmatch("h[1-6]", tag):
            self._pieces.append("\n\n" + "#" * int(tag[1]) + " ")
        elif tag in ("td", "th"):
            self._pieces.append(" | ")
        elif tag in self._BLOCKS:
            self._pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        elif tag == "title":
            self._in_title = False
        # The next row of a table begins a line.
        elif tag != "tr" and (tag in self._BLOCKS or re.fullmatch("h[1-6]", tag)):
            self._pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._hidden:
            # A line break of the source is a blank on the page.
            self._pieces.append(" ".join(data.split("\n")))


_READERS = {
    "docx": _docx,
    **dict.fromkeys(("odp", "ods", "odt"), _odf),
    "pptx": _pptx,
    "xlsx": _xlsx,
    "epub": _epub,
    "html": _html,
    "htm": _html,
    "xhtml": _html,
    "svg": _svg,
    "md": _markdown,
    "markdown": _markdown,
    "txt": _text,
    "csv": _csv,
    "tsv": _csv,
}
