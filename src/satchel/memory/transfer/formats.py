"""The formats of files to import, and which of them a file has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from satchel.config.plugins import offered_by_satchel
from satchel.memory.transfer import own_format
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.json_stream import elements, lines
from satchel.memory.transfer.parts import LeftOut, Part

Reader: TypeAlias = Callable[[BinaryIO, SourceFile], Iterator[Part]]


class NamedReader(NamedTuple):
    """A reader of a format that is not Satchel's, with the format's name."""

    name: str
    read: Reader


class Format(NamedTuple):
    """A format, and how its files are recognised: those with none of the three functions, by their suffixes.

    Attributes:
        prefix: What the names begin with.
        is_line: Whether a line of JSON is one of its lines.
        is_element: Whether an element of a long JSON array is one of its elements.
        is_whole: Whether a file as a whole is in the format.
        other_files: Names in the folders of that program, of files with something else; they are ignored.
    """

    read: Reader
    suffixes: tuple[str, ...]
    prefix: str = ""
    is_line: Callable[[Mapping[str, Any]], bool] | None = None
    is_element: Callable[[Mapping[str, Any]], bool] | None = None
    is_whole: Callable[[BinaryIO], bool] | None = None
    other_files: tuple[str, ...] = ()


_MAX_EXAMINED = 50  # Lines or elements: the first ones of a transcript may not identify it.


@cache
def formats() -> Mapping[str, Format]:
    """All formats by their names: Satchel's own, then those that its package offers as a plugin would."""
    own = Format(own_format.read, (".jsonl",), is_line=own_format.is_own_line)
    found: dict[str, Format] = {"satchel": own}
    for importers in offered_by_satchel("importers"):
        found |= importers
    return found


def may_be(file: SourceFile, source: str) -> bool:
    """Whether the name of a file in a folder or an archive fits a format, or any one for "auto"."""
    base = file.base.lower()
    if any(base in one.other_files for one in formats().values()):
        return False
    if source == "auto":
        return True
    wanted = formats()[source]
    return base.startswith(wanted.prefix) and base.endswith(wanted.suffixes)


def format_of(file: SourceFile) -> str | None:
    """The name of the format of a file, or None if it is unknown."""
    base = file.base.lower()
    for name, one in formats().items():
        if one[3:6] == (None,) * 3 and base.endswith(one.suffixes):
            return name
    with file.open() as stream:
        begin = stream.read(1 << 16).lstrip()[:1]
    if begin == b"[":
        return _of_elements(file)
    if begin != b"{":
        return None
    with file.open() as stream:
        for looked, (_, line) in enumerate(lines(stream, file.name)):
            if isinstance(line, LeftOut):
                break  # A JSON object on several lines.
            for name, one in formats().items():
                if one.is_line is not None and one.is_line(line):
                    return name
            if looked >= _MAX_EXAMINED:
                return None
    found = _of_elements(file)
    for name, one in formats().items() if found is None else ():
        if one.is_whole is not None:
            with file.open() as stream:
                if one.is_whole(stream):
                    return name
    return found


def _of_elements(file: SourceFile) -> str | None:
    with file.open() as stream:
        for looked, (_, element) in enumerate(elements(stream, file.name)):
            if not isinstance(element, LeftOut):
                for name, one in formats().items():
                    if one.is_element is not None and one.is_element(element):
                        return name
            if looked >= _MAX_EXAMINED:
                return None
    return None
