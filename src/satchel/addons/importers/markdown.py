"""Reads Markdown: each section is a memory, dated by the front matter, the file's name or the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from satchel.addons.importers.transcripts import moment_of
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.parts import LeftOut, Part, fact, stable_id

_MAX_BYTES = 64 << 20
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_KEY = re.compile(r"([A-Za-z][\w -]{0,40}):[ \t]*(.*)")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_DATES = ("date", "created", "created_at", "created at", "published", "updated", "modified", "last_modified")
_FROM_OUTSIDE = ("source", "url", "link", "canonical_url", "clipped")
_DATED_NAME = re.compile(r"(?<!\d)(\d{4}-\d\d-\d\d)(?!\d)")


def read(stream: BinaryIO, file: SourceFile) -> Iterator[Part]:
    """Read the sections of a file, in order."""
    raw = stream.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        yield LeftOut(reason="a Markdown file of more than 64 MB", where=file.name)
        return
    if b"\x00" in raw[:4096]:
        yield LeftOut(reason="a file that is not text", where=file.name)
        return
    text = _decoded(raw).replace("\r\n", "\n").replace("\r", "\n")
    head, body = _front_matter(text)
    at = next((moment for name in _DATES if (moment := moment_of(_first(head.get(name)))) is not None), None)
    if at is None and (found := _DATED_NAME.search(file.base)) is not None:
        at = moment_of(found[1])  # diaries name their pages by day
    tags = tuple(tag.lstrip("#") for name in ("tags", "tag", "keywords") for tag in _listed(head.get(name)))
    clipped = any(_first(head.get(name)).startswith(("http://", "https://")) for name in _FROM_OUTSIDE)
    session = f"markdown:{file.base}"
    seen: dict[tuple[str, str], int] = {}
    empty = True
    for position, section in enumerate(_sections(body)):
        words = section.text.strip()
        if not words:
            continue
        empty = False
        path = " > ".join(section.path)
        again = seen.get((path, words), 0)
        seen[path, words] = again + 1
        yield fact(
            stable_id("markdown", file.base, path, words, *([again] if again else [])),
            f"{path}\n{words}" if path else words,
            at=at or file.modified_at,
            session=session,
            turn=1,
            position=position,
            # Text clipped from a page is somebody else's; notes are the user's own.
            trust="outside" if clipped else "user",
            tags=tags,
        )
    if empty:
        yield LeftOut(reason="a Markdown file without text", where=file.name)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        foreign = sum(byte > 0x7F for byte in raw[:65536])
        if foreign < 0.2 * min(len(raw), 65536):
            # A few accented letters in Latin text: too little to detect an encoding from.
            return raw.decode("cp1252", "replace")
        # Imported when used: most files are UTF-8, and loading it takes time.
        from charset_normalizer import from_bytes  # noqa: PLC0415

        best = from_bytes(raw[: 1 << 20]).best()
        return raw.decode(best.encoding if best is not None else "cp1252", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    path: tuple[str, ...]
    text: str


def _sections(body: str) -> Iterator[_Section]:
    """The text below each heading, with the path of headings. Headings in code blocks are ignored."""
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in body.split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or (line.strip().startswith(fence) and not line.strip().strip(fence[0]))):
            fence = "" if fence else mark[1]
        found = None if fence or mark else _HEADING.fullmatch(line)
        if found is None:
            lines.append(line)
            continue
        yield _Section(path=tuple(title for _, title in path), text="\n".join(lines))
        lines = []
        level, title = len(found[1]), (found[2] or "").strip()
        path = [(above, name) for above, name in path if above < level]
        if title:
            path.append((level, title))
    yield _Section(path=tuple(title for _, title in path), text="\n".join(lines))


def _front_matter(text: str) -> tuple[dict[str, list[str]], str]:
    """The simple keys of YAML front matter in lower case, and the text after it."""
    if not text.startswith("---\n"):
        return {}, text
    end = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE).search(text, 4)
    if end is None or end.start() > 64_000:
        return {}, text
    found: dict[str, list[str]] = {}
    key = ""
    for line in text[4 : end.start()].split("\n"):
        item = _ITEM.fullmatch(line)
        if item is not None and key:
            found[key].append(_bare(item[1]))
            continue
        pair = _KEY.fullmatch(line)
        if pair is not None:
            key = pair[1].strip().lower()
            value = pair[2].strip()
            if value.startswith("[") and value.endswith("]"):
                found[key] = [_bare(part) for part in value[1:-1].split(",")]
            else:
                found[key] = [_bare(value)] if value else []
    return found, text[end.end() :]


def _bare(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _first(values: list[str] | None) -> str:
    return values[0] if values else ""


def _listed(values: list[str] | None) -> list[str]:
    """Tags from a list, or from a line where commas or spaces separate them."""
    if not values:
        return []
    if len(values) == 1:
        values = re.split(r"[,\s]+", values[0]) if "," not in values[0] else values[0].split(",")
    return [value.strip() for value in values if value.strip()]
