"""Finds words in a text however they are spelt: the normal form of a text, and where each part of it stood.

The frame of a memory (`memory.framing.quoted`) leaves out what nobody sees and writes the rest on one line; JSON and
HTML escape; a model composes letters, widens them or writes them in another case. In the normal form all are equal.
"""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Final

FORGOTTEN: Final = "[forgotten]"
"""Stands where words were forgotten."""

_BLOCK_CHARS: Final = 4_000
"""A text is brought into its normal form in blocks, so that places are looked up only where something was found."""
_ESCAPE_CHARS: Final = 40
"""No escape is longer, but for repeated backslashes and ampersands."""
_LONG_CHARS: Final = 2_000
"""Longer words are not made into an expression, which takes seconds to compile for 400 KB."""
_PART_WEIGHT: Final = 32
"""So many letters in a row, or a third as many signs of other scripts, are a quotation and not a coincidence."""
_SHOWN_WHOLE_WEIGHT: Final = 160
"""Shorter words are shown whole, so a part of them is no excerpt: two memories may begin in the same way. A line has 70
tokens (`memory.framing`), which are more letters than that; what is left of a budget is rarely less.
"""
_MOST_IN_PARTS: Final = 600_000
"""Characters of one text whose parts are known: nothing after them is ever shown as an excerpt."""

_CUT: Final = re.compile(r"^ ?| ?\.\.\. ?| ?$")
"""Where a text was cut, in normal form; passages in the data of a result are cut at both ends."""
_LEAST_AT_A_CUT: Final = 12
"""So many characters beside a cut are recognised: a shown memory that repeats words may be cut within them."""
_MOST_AT_A_CUT: Final = 2_000
"""More than an excerpt has on either side."""

_ESCAPE = re.compile(
    r"\\+u([dD][89abAB][0-9a-fA-F]{2})\\+u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?:&|\\+u0026)(?:amp;)*(#[0-9]{1,7};|#[xX][0-9a-fA-F]{1,6};|[a-zA-Z][a-zA-Z0-9]{1,31};)"
    r"|\\+(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|([bfnrtBFNRT]))?"
)
"""A character as JSON, HTML and Python escape it, once or several times."""
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn"))
_IGNORED = frozenset(
    map(chr, (0xFFFD, 0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)))
) | frozenset(map(chr, (0x3164, 0xFFA0, *range(0xE0100, 0xE01F0))))
"""Marks that change nothing visible, and what stands for a character that could not be stored."""
_ALIKE = {"‹": "<", "›": ">", "`": "'", "´": "'"} | dict.fromkeys("‘’‚‛", "'") | dict.fromkeys("“”„‟", '"')
"""What frames and models write for another character."""
_SPACES = re.compile("  +")
_SHOWN_LINE = re.compile(r'^([^"\n]+)"(?:[^"\\\n]|\\.)*"$', re.MULTILINE)
"""A memory in a block: where it comes from, and its words."""


def is_unseen(char: str) -> bool:
    """Whether a character is a control or format character: bidirectional overrides, zero-width marks, tags that only
    models see. White space is seen.
    """
    return unicodedata.category(char) in _UNSEEN and not char.isspace()


class _Folds(dict[int, str]):
    """The normal form of each character, by its number, as `str.translate` asks for it."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
        if char.isspace():
            plain = " "
        elif is_unseen(char) or char in _IGNORED:
            plain = ""
        self[code] = "".join(" " if one.isspace() else _ALIKE.get(one, one) for one in plain)
        return self[code]


_FOLDS = _Folds({ord(char): alike for char, alike in _ALIKE.items()})


def _unescaped(found: re.Match[str]) -> str:
    high, low, entity, *codes, letter = found.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if entity:
        return html.unescape(f"&{entity}")
    code = next((int(code, 16) for code in codes if code), None)
    if code is not None:
        return chr(code) if code <= 0x10FFFF else ""
    if found[0][0] != "\\":
        return "&"
    return "" if letter in (None, "b", "B") else " "


def _fold(text: str, escapes: bool) -> str:
    if escapes and ("\\" in text or "&" in text):
        text = _ESCAPE.sub(_unescaped, text)
    plain = text.translate(_FOLDS)
    if not plain.isascii():
        plain = unicodedata.normalize("NFD", plain)
    return _SPACES.sub(" ", plain) if "  " in plain else plain


def normal_form(text: str) -> str:
    """The text as it is compared: compatibility forms decomposed (NFKD), cases folded, escapes undone, one space for
    each gap, and nothing that nobody sees.
    """
    return _fold(text, escapes=True).strip()


def without_lines(block: str, gone: Collection[int], *, of: int) -> str:
    """A block that a model was shown, without the words of some of its memories, whatever they are.

    Args:
        block: Each of its memories has a line of its own, in their order.
        gone: Which go, counted from 0.
        of: How many the block has. Where it has another number of lines, it is of an unknown form and stays.
    """
    lines = list(_SHOWN_LINE.finditer(block))
    for number in sorted(gone, reverse=True) if len(lines) == of else ():
        line = lines[number]
        block = f'{block[: line.start()]}{line[1]}"{FORGOTTEN}"{block[line.end() :]}'
    return block


class _Folded:
    """A text in its normal form, and where each character of it stood."""

    def __init__(self, text: str, *, escapes: bool) -> None:
        self._text = text
        self._escapes = escapes
        self._begins = [0, *self._cuts()]
        blocks = [_fold(text[begin:end], escapes) for begin, end in self._bounds()]
        self._plain_begins = [0]
        for block in blocks[:-1]:
            self._plain_begins.append(self._plain_begins[-1] + len(block))
        self.plain = "".join(blocks)
        self._known: tuple[int, list[tuple[int, int]]] = (-1, [])

    def _bounds(self) -> Iterator[tuple[int, int]]:
        return zip(self._begins, (*self._begins[1:], len(self._text)), strict=True)

    def _cuts(self) -> Iterator[int]:
        """Places before a letter that belongs to no escape, so that the forms of both sides make the form of both."""
        text = self._text
        at = _BLOCK_CHARS
        while at < len(text):
            plain = _FOLDS[ord(text[at])] if text[at].isalnum() else ""
            before = text[at - _ESCAPE_CHARS : at]
            if (
                plain
                and plain[0] != " "
                and not unicodedata.combining(plain[0])
                and "\\" not in before
                and "&" not in before
            ):
                yield at
                at += _BLOCK_CHARS
            else:
                at += 1

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where in the text a part of the normal form stood, with what changes only its looks."""
        begin, stop = self._place(start)[0], self._place(end - 1)[1]
        text = self._text
        # A backslash belongs to what it escapes.
        while begin and (not _FOLDS[ord(text[begin - 1])] or text[begin - 1] == "\\"):
            begin -= 1
        while stop < len(text) and _is_mark(text[stop]):
            stop += 1
        return begin, stop

    def _place(self, at: int) -> tuple[int, int]:
        number = bisect_right(self._plain_begins, at) - 1
        if self._known[0] != number:
            self._known = (number, list(self._places(number)))
        return self._known[1][at - self._plain_begins[number]]

    def _places(self, number: int) -> Iterator[tuple[int, int]]:
        begin = self._begins[number]
        end = self._begins[number + 1] if number + 1 < len(self._begins) else len(self._text)
        was_space = False
        for start, stop, piece in self._pieces(begin, end):
            for char in piece.translate(_FOLDS):
                if not (was_space and char == " "):
                    yield start, stop
                was_space = char == " "

    def _pieces(self, begin: int, end: int) -> Iterator[tuple[int, int, str]]:
        """The characters from `begin` to `end`, and from where to where each stands, escapes undone."""
        at = begin
        block = self._text[begin:end]
        for found in _ESCAPE.finditer(block) if self._escapes else ():
            yield from ((i, i + 1, self._text[i]) for i in range(at, begin + found.start()))
            at = begin + found.end()
            yield begin + found.start(), at, _unescaped(found)
        yield from ((i, i + 1, self._text[i]) for i in range(at, end))


def _is_mark(char: str) -> bool:
    """Whether a character belongs to the one before it, or is not seen."""
    return char != "\\" and all(unicodedata.combining(one) for one in _FOLDS[ord(char)])


class _Words:
    """Words in one normal form."""

    def __init__(self, words: Iterable[str], *, escapes: bool) -> None:
        self.escapes = escapes
        forms = sorted({_fold(one, escapes).strip() for one in words} - {""}, key=len, reverse=True)
        # The longest first, so that a shorter one does not leave the rest of a longer one.
        self.forms = tuple(forms)
        self._long = [form for form in forms if len(form) > _LONG_CHARS]
        short = [re.escape(form) for form in forms if len(form) <= _LONG_CHARS]
        self._pattern = re.compile("|".join(short)) if short else None

    def found(self, plain: str) -> Iterator[tuple[int, int]]:
        """Where in a text in normal form the words stand."""
        for form in self._long:
            at = plain.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = plain.find(form, at + len(form))
        if self._pattern is not None:
            yield from (found.span() for found in self._pattern.finditer(plain))

    def parts(self, plain: str) -> Iterator[tuple[int, int]]:
        """Where parts of the words stand that are long enough to be a quotation."""
        grams, size = self._grams
        at = 0
        while at + size <= len(plain):
            form = grams.get(plain[at : at + size])
            if form is not None:
                end = _grown(plain, at, at + size, form, 1)
                start = _grown(plain, at, end, form, -1)
                if _weight(plain[start:end]) >= _PART_WEIGHT:
                    yield start, end
                    at = end
                    continue
            at += size

    def at_cuts(self, plain: str) -> Iterator[tuple[int, int]]:
        """Where an excerpt begins with the end of the words, or ends with their beginning."""
        for cut in _CUT.finditer(plain):
            for form in self.forms:
                most = min(len(form), _MOST_AT_A_CUT)
                after = plain[cut.end() : cut.end() + most]
                for size in range(len(after), _LEAST_AT_A_CUT - 1, -1):
                    if form.endswith(after[:size]):
                        yield cut.end(), cut.end() + size
                        break
                before = plain[max(0, cut.start() - most) : cut.start()]
                for size in range(len(before), _LEAST_AT_A_CUT - 1, -1):
                    if form.startswith(before[-size:]):
                        yield cut.start() - size, cut.start()
                        break

    @cached_property
    def _grams(self) -> tuple[dict[str, str], int]:
        """Runs of characters, and of which words each is a part; any long part has one at a multiple of its length."""
        long = [form[:_MOST_IN_PARTS] for form in self.forms if _weight(form) > _SHOWN_WHOLE_WEIGHT]
        size = 16 if all(_weight(form) < 1.5 * len(form) for form in long) else 5
        return {form[at : at + size]: form for form in long for at in range(len(form) - size + 1)}, size


def _weight(text: str) -> int:
    return len(text) if text.isascii() else sum(1 if char < "\u0250" else 3 for char in text)


def _grown(plain: str, start: int, end: int, form: str, side: int) -> int:
    """How far a part that stands in `form` can be extended to one side and still stands there."""
    low, step = 0, 16
    most = len(plain) - end if side > 0 else start

    def stands(more: int) -> bool:
        piece = plain[start : end + more] if side > 0 else plain[start - more : end]
        return piece in form

    while low < most and stands(min(most, low + step)):
        low, step = min(most, low + step), step * 2
    high = min(most, low + step)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if stands(middle) else (low, middle - 1)
    return end + low if side > 0 else start - low


class Finder:
    """Finds words in texts, however they are spelt there."""

    def __init__(self, words: Collection[str], *, parts: bool = False) -> None:
        """Prepare the search.

        Args:
            words: What to look for.
            parts: Find parts of long ones too that are long enough to be a quotation.
        """
        self._parts = parts
        self._words = _Words(words, escapes=True)
        self._wanted = words
        # What nobody sees has no other spelling.
        self._unseen = sorted(
            {one for one in map(str.strip, words) if one and not normal_form(one)}, key=len, reverse=True
        )

    @cached_property
    def _raw(self) -> _Words:
        """For "new" in "C:\\new", where it seems to be the end of an escape."""
        return _Words(self._wanted, escapes=False)

    def finds(self, text: str) -> bool:
        """Whether the words stand in the text; parts of them don't count."""
        ways = (self._words, self._raw) if "\\" in text or "&" in text else (self._words,)
        return any(
            any(True for _ in words.found(_fold(text, words.escapes))) for words in ways if words.forms
        ) or any(one in text for one in self._unseen)

    def subn(self, text: str, replacement: str) -> tuple[str, int, str]:
        """Replace the words.

        Returns:
            The text, the number of places, and the normal form of the words that were found first; "" if they were
            found in part, or can't be seen.
        """
        text, count, first = self._sub(text, replacement, self._words)
        if "\\" in text or "&" in text:
            text, more, other = self._sub(text, replacement, self._raw)
            count, first = count + more, first or normal_form(other)
        for unseen in self._unseen:
            count += text.count(unseen)
            text = text.replace(unseen, replacement)
        return text, count, first

    def _sub(self, text: str, replacement: str, words: _Words) -> tuple[str, int, str]:
        if not text or not words.forms:
            return text, 0, ""
        folded = _Folded(text, escapes=words.escapes)
        found = list(words.found(folded.plain))
        first = folded.plain[slice(*min(found))] if found else ""
        if self._parts and words is self._words:
            found += [*words.parts(folded.plain), *words.at_cuts(folded.plain)]
        if not found:
            return text, 0, ""
        spans: list[tuple[int, int]] = []
        for start, end in sorted(folded.span(start, end) for start, end in found):
            if spans and start < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
        begins = (0, *(end for _, end in spans))
        ends = (*(start for start, _ in spans), len(text))
        kept = (text[begin:end] for begin, end in zip(begins, ends, strict=True))
        return replacement.join(kept), len(spans), first
