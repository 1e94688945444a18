"""Reads Gemini's activity of Google Takeout (`MyActivity.json`): what the user asked, and the answers.

The export has no conversations: what was asked within half an hour of the last question is taken as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any, BinaryIO, Final

from satchel.addons.importers.transcripts import TurnNumbering, moment_of, place_of
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.json_stream import elements
from satchel.memory.transfer.parts import ImportedFile, LeftOut, Part, stable_id

_GAP: Final = timedelta(minutes=30)
_BEFORE: Final = {
    "p": "\n\n",
    "br": "\n",
    "li": "\n- ",
    "table": "\n",
    "tr": "\n",
    "pre": "\n\n```\n",
} | {f"h{level}": "\n\n" + "#" * level + " " for level in range(1, 7)}
_AFTER: Final = {"pre": "\n```\n", "tr": "|"}
_TAG: Final = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*+)([^<>]*+)>")
"""Python's own parser of HTML takes a minute for 20 kB that are made for that."""
_HREF: Final = re.compile(r"""\bhref\s*+=\s*+(?:"([^"]*)"|'([^']*)')""")
_AROUND: Final = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`"}


def is_activity(found: Mapping[str, Any]) -> bool:
    """Whether an object is something that was done in Gemini."""
    products = found.get("products")
    names = [found.get("header"), *(products if isinstance(products, list) else ())]
    return isinstance(found.get("title"), str) and any(str(name).startswith("Gemini") for name in names)


def read(stream: BinaryIO, file: SourceFile) -> Iterator[Part]:
    """Read the questions and answers, the oldest first."""
    asked: list[tuple[datetime, int, Mapping[str, Any]]] = []
    for number, element in elements(stream, file.name):
        where = f"{file.name}#{number}"
        if isinstance(element, LeftOut):
            yield element
        elif not is_activity(element) or (at := moment_of(element.get("time"))) is None:
            yield LeftOut(reason="an element that is no activity with a time", where=where)
        elif not element.get("safeHtmlItem") and not element["title"].startswith("Prompted "):
            yield LeftOut(reason="an activity that is no question", where=where, expected=True)
        else:
            asked.append((at, -number, element))  # the file has the newest first
    transcript, last = TurnNumbering(""), None
    for at, number, one in sorted(asked, key=lambda each: each[:2]):
        moment = at.astimezone(UTC).isoformat()  # the same wherever it is imported
        if last is None or at - last > _GAP:
            yield from transcript.conversation()
            transcript = TurnNumbering(place_of("gemini", stable_id("gemini", moment)))
        last = at
        answers = one.get("safeHtmlItem")
        words = [
            _text(each["html"])
            for each in (answers if isinstance(answers, list) else ())
            if isinstance(each, Mapping) and "html" in each
        ]
        for role, text in (
            ("user", one["title"].removeprefix("Prompted ")),
            ("assistant", "\n\n".join(words)),
        ):
            yield transcript.episode(
                text,
                role=role,
                at=at,
                modified_at=file.modified_at,
                where=f"{file.name}#{-number}",
                names=("gemini", moment, role),
                files=list(_files(one, file)) if role == "user" else (),
            )
    yield from transcript.conversation()


def _files(element: Mapping[str, Any], file: SourceFile) -> Iterator[ImportedFile]:
    attached = element.get("attachedFiles")
    for name in [*(attached if isinstance(attached, list) else ()), element.get("imageFile")]:
        if isinstance(name, str) and (read_file := file.others().get(name)) is not None:
            yield ImportedFile(name=name, read=read_file)


class _Words:
    """Markdown of simple HTML."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._link = ""
        self._is_code = False
        self._columns: int | None = None  # of a table, until its first row has ended

    def begin(self, tag: str, attributes: str) -> None:
        """Take the beginning of an element."""
        self._is_code = self._is_code or tag == "pre"
        self.words.append(_BEFORE.get(tag) or self._around(tag))
        if tag == "table":
            self._columns = 0
        elif tag in ("td", "th"):
            self.words.append("| ")
            self._columns = self._columns + 1 if self._columns is not None else None
        elif tag == "a" and (link := _HREF.search(attributes)):
            self._link = _plain(link[1] or link[2] or "")
            self.words.append("[")

    def end(self, tag: str) -> None:
        """Take the end of an element."""
        self.words.append(_AFTER.get(tag) or self._around(tag))
        self._is_code = self._is_code and tag != "pre"
        if tag in ("td", "th"):
            self.words.append(" ")
        elif tag == "tr" and self._columns:
            self.words.append("\n" + "|---" * self._columns + "|")
            self._columns = None
        elif tag == "a" and self._link:
            self.words.append(f"]({self._link})")
            self._link = ""

    def _around(self, tag: str) -> str:
        return "" if self._is_code else _AROUND.get(tag, "")


def _plain(text: str) -> str:
    try:
        return unescape(text)
    except ValueError:  # the number of a character with thousands of digits
        return text


def _text(html: object) -> str:
    parser, text, at = _Words(), str(html), 0
    for tag in _TAG.finditer(text):
        parser.words.append(_plain(text[at : tag.start()]))
        at = tag.end()
        if tag[1]:
            parser.end(tag[2].lower())
        else:
            parser.begin(tag[2].lower(), tag[3])
    parser.words.append(_plain(text[at:]))
    return "".join(parser.words).strip()
