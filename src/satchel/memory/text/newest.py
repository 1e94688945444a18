"""Newest of a kind: which statements give an attribute that has one value at a time, of which the newest holds.

Nothing is marked and nothing is written. When memories are shown, a statement that agrees with an older one in
everything but its value stands alone, and the older value on its line, as what was said earlier. So an imperfect
judgement hides nothing. What somebody can have several of (allergies, children, languages) is no such attribute, and
neither is whatever isn't known to be one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from satchel.memory.data_files import read_lines, read_text_file
from satchel.memory.records import TRUST_RANK

if TYPE_CHECKING:
    from satchel.memory.records import MemoryRecord


_MOST_CHARS: Final = 300
"""A longer memory states more than one value."""
_MOST_VALUE_WORDS: Final = 10
_MOST_AFTER: Final = 4
"""Words that stand after a number: "mg of ramipril"."""
_WORD: Final = re.compile(r"[^\W_]+(?:[.\-/:+@&][^\W_]+)*", re.UNICODE)
_SENTENCE_END: Final = re.compile(r"[.!?…][\"'”’)]*\s+(?=[\"'“‘(]?[A-ZÀ-ÞΑ-ЯÄÖÜ])|[。！？]\s*(?=.)|\n")
_ABBREVIATED: Final = re.compile(r"(?:^|[\s.])(?:\d{1,2}|[A-Za-z]|[A-Z][a-z]{1,2}|St|Mr|Mrs|Dr|Nr|No|vs)$")
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_ASKS: Final = re.compile(r"[?？]")


class Attribute(NamedTuple):
    """What one statement says: a value, and all but that in a form that is equal for equal attributes."""

    of: tuple[str, ...]
    value: str


class _Words(NamedTuple):
    """A sentence: its words in lower case, and where each stands."""

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


class _Frame(NamedTuple):
    """How an attribute is stated: the words before the value and those after it."""

    before: tuple[frozenset[str], ...]
    after: tuple[str, ...]


@lru_cache(maxsize=5_000)
def attribute_of(text: str) -> Attribute | None:
    """The attribute with one value at a time that a text states, and nothing else; None where it states none."""
    text = text.strip()
    if len(text) > _MOST_CHARS or _ASKS.search(text) or _is_several(text):
        return None
    text = text.rstrip(" .!…。！")
    if _HAN.search(text):
        return _in_chinese(text)
    words = _read(text)
    if any(word in _data().never and text[span[0]].islower() for word, span in zip(*words, strict=True)):
        return None
    for read in (_by_frame, _by_description, _by_number):
        found = read(text, words)
        if found is not None:
            return found
    return None


def newest_of_each(memories: Sequence[MemoryRecord]) -> dict[int, tuple[int, ...]]:
    """For each memory that is the newest of a kind, by its place: the places of the older ones, newest first.

    An older one is told by a newer one of the same speaker, and by none that is trusted less.
    """
    kinds: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for at, memory in enumerate(memories):
        found = attribute_of(memory.content)
        if found is not None:
            speaker = memory.speaker if memory.kind == "episode" else None
            kinds.setdefault((found.of, speaker or ""), []).append(at)
    told: dict[int, tuple[int, ...]] = {}
    for places in kinds.values():
        if len(places) < 2:
            continue
        places.sort(key=lambda at: (memories[at].said_at, at), reverse=True)
        newest = max(
            places, key=lambda at: TRUST_RANK[memories[at].trust]
        )  # The first of several is the newest.
        older = [at for at in places if memories[at].said_at < memories[newest].said_at]
        if older:
            told[newest] = tuple(older)
    return told


def _is_several(text: str) -> bool:
    return any(
        not _ABBREVIATED.search(text[: match.start()])
        for match in _SENTENCE_END.finditer(text)
        if match.end() < len(text)
    )


def _read(text: str) -> _Words:
    """The words of a text, without those that only say that it holds now; "The user" is "user"."""
    found = [(match.group().lower(), match.span()) for match in _WORD.finditer(text)]
    kept = [(word, span) for word, span in found if word not in _data().now]
    if len(kept) > 1 and kept[0][0] == "the" and kept[1][0] == "user":
        kept = kept[1:]
    return _Words(tuple(word for word, _ in kept), tuple(span for _, span in kept))


def _attribute(text: str, words: _Words, start: int, end: int) -> Attribute | None:
    """All words but those from `start` to `end`, which are the value; None if that can't be one."""
    if not 0 < end - start <= _MOST_VALUE_WORDS or words.words[start] in _data().a:
        return None
    value = text[words.spans[start][0] : words.spans[end - 1][1] if end < len(words.words) else len(text)]
    return Attribute((*words.words[:start], "_", *words.words[end:]), value)


def _by_frame(text: str, words: _Words) -> Attribute | None:
    """An attribute by the words in which it is stated: "lives in _"."""
    all_words = words.words
    for at in range(len(all_words) - 1):
        for frame in _data().frames.get(all_words[at], ()):
            start = at + len(frame.before)
            end = len(all_words) - len(frame.after)
            if start >= end or all_words[end:] != frame.after:
                continue
            if not all(word in some for word, some in zip(all_words[at:start], frame.before, strict=True)):
                continue
            start = _after_kind(all_words, start)
            shape = _shape(text, words, start, end)
            if all_words[at] in _data().bare and len(frame.before) == 2 and shape != "number":
                continue  # "is in therapy", "is on insulin"
            if _names_one_of_several(text, words, at):
                return None
            found = _attribute(text, words, start, end)
            return found and Attribute((*found.of, shape), found.value)
    return _by_kind(text, words)


def _names_one_of_several(text: str, words: _Words, end: int) -> bool:
    """Whether the first words are about one of whom there may be several: "my daughter". Names don't count."""
    data = _data()
    capital = [
        text[start].isupper() and word not in data.whose | data.the
        for word, (start, _) in zip(words.words[:end], words.spans, strict=False)
    ]
    return any(
        data.is_several(word) and not (at and capital[at] and capital[at - 1])
        for at, word in enumerate(words.words[:end])
    )


def _after_kind(words: tuple[str, ...], start: int) -> int:
    """Where the value begins: behind "the city of" if that stands before it."""
    data = _data()
    if len(words) > start + 3 and words[start] in data.the and words[start + 1] in data.kinds:
        return start + 3
    return start


def _by_kind(text: str, words: _Words) -> Attribute | None:
    """An attribute whose value is a definite description: "plays the position of _"."""
    data = _data()
    for at in range(2, len(words.words) - 3):
        if (
            words.words[at] in data.the
            and words.words[at + 1] in data.kinds
            and words.words[at + 2] in data.links
            and not set(words.words[at + 3 :]) & data.copulas
            and not _names_one_of_several(text, words, at)
        ):
            return _attribute(text, words, at + 3, len(words.words))
    return None


def _by_description(text: str, words: _Words) -> Attribute | None:
    """An attribute by a definite description in the singular: "The capital of X is _", "my address is _"."""
    data = _data()
    places = [at for at, word in enumerate(words.words) if word in data.copulas]
    if not places or places[-1] < 2:
        return None
    at = places[-1]
    subject = words.words[:at]
    linked = next((place for place, word in enumerate(subject) if place >= 2 and word in data.links), None)
    is_definite = subject[0] in data.the
    if is_definite and linked is not None:
        place = linked - 1
    elif is_definite or any(word in data.whose for word in subject[:-1]):
        place = at - 1
    else:
        return None
    start = at + 1
    shape = _shape(text, words, start, len(words.words))
    noun = subject[place]
    is_only = subject[place - 1] in data.only
    # "The project deadline" is about a deadline.
    is_compound = place == 2 and not linked and data.is_attribute(noun)
    if not is_only and not is_compound and _names_one_of_several(text, words, at):
        return None
    if shape == "words" and not is_only and noun not in data.plain:
        return None  # "My school is nice."
    if not is_only and not data.is_attribute(noun) and (linked is None or not is_definite):
        return None
    if start < len(words.words) and words.words[start] in data.links | data.the and shape == "words":
        return None
    found = _attribute(text, words, start, len(words.words))
    # "Pop music" and "Australian hip hop" are both types of music.
    return found and Attribute((*found.of, "plain" if noun in data.plain else shape), found.value)


def _by_number(text: str, words: _Words) -> Attribute | None:
    """An attribute whose value is one number: "takes 20 mg of ramipril", "is 41 years old"."""
    data = _data()
    numbers = [at for at, word in enumerate(words.words) if word[0].isdecimal()]
    if len(numbers) != 1 or numbers[0] < 2:
        return None
    at = numbers[0]
    is_version = at + 1 == len(words.words) and words.words[at - 2] in data.versions
    if not is_version and words.words[at - 1] not in data.numbers or len(words.words) - at - 1 > _MOST_AFTER:
        return None
    if _names_one_of_several(text, words, at):
        return None
    return _attribute(text, words, at, at + 1)


def _shape(text: str, words: _Words, start: int, end: int) -> str:
    """What a value looks like: two that look different are hardly values of one attribute."""
    if start >= end:
        return "words"
    some = words.words[start:end]
    if any(any(char.isdecimal() for char in word) or word in _data().calendar for word in some):
        return "number"
    names = [text[span[0]].isupper() for span in words.spans[start:end]]
    return "name" if any(names) else "words"


def _in_chinese(text: str) -> Attribute | None:
    data = _data()
    if any(word in text for word in data.chinese_several) or re.search("[不没未也还另]|如果|要是", text):
        return None
    for now in ("现在", "目前", "如今", "新的", "新"):
        text = text.replace(now, "")
    for before, after in data.chinese:
        at = text.find(before)
        end = len(text) - len(after)
        if at > 0 and text.endswith(after) and 0 < end - at - len(before) <= 2 * _MOST_VALUE_WORDS:
            return Attribute((text[:at], before, "_", after), text[at + len(before) : end])
    number = data.chinese_number.search(text)
    if number is not None and number.start() > 1:
        return Attribute((text[: number.start()], "_", number.group(2)), number.group())
    subject, is_, value = text.partition("是")
    if is_ and "的" not in subject and any(value.endswith(f"的{role}") for role in data.chinese_roles):
        return Attribute(("_", is_, value), subject)
    if is_ and "的" in subject[1:-1] and 0 < len(value) <= 2 * _MOST_VALUE_WORDS and "的" not in value:
        return Attribute((subject, is_, "_"), value)
    return None


class _Data:
    """`data/newest.json`, ready for use."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        def some(name: str) -> frozenset[str]:
            return frozenset(found[name].split())

        self.now, self.never, self.copulas, self.kinds = (
            some("now"),
            some("not"),
            some("copulas"),
            some("kinds"),
        )
        self.a, self.the, self.links, self.whose = some("a"), some("the"), some("links"), some("whose")
        self.numbers, self.only, self.versions = some("numbers"), some("only"), some("versions")
        self.plain = some("plain")
        self.bare = self.copulas | {"am", "bin", "está", "estoy", "suis"}
        self.attributes, self.several_exact = some("attributes"), some("several")
        self.calendar = frozenset(word.lower() for word in read_lines("calendar_names.txt"))
        self.frames: dict[str, list[_Frame]] = {}
        for line in found["one"]:
            before, _, after = line.partition("_")
            frame = _Frame(
                tuple(frozenset(word.lower().split("/")) for word in before.split()),
                tuple(after.lower().split()),
            )
            for word in frame.before[0]:
                self.frames.setdefault(word, []).append(frame)
        chinese = found["chinese"]
        self.chinese = [(line.partition("_")[0], line.partition("_")[2]) for line in chinese["one"]]
        self.chinese_several = chinese["several"].split()
        self.chinese_roles = chinese["roles"].split()
        self.chinese_number = re.compile(
            rf"(\d[\d.,]*|[一二三四五六七八九十百千]+)({'|'.join(chinese['units'].split())})$"
        )

    def is_several(self, noun: str) -> bool:
        """Whether somebody can have several of these, or anything can be said of one."""
        return noun in self.several_exact or noun.endswith("s") and noun[:-1] in self.several_exact

    def is_attribute(self, noun: str) -> bool:
        """Whether a noun, or the last part of a German compound, names an attribute with one value at a time."""
        return noun in self.attributes or any(
            len(word) > 4 and noun.endswith(word) for word in self.attributes
        )


@cache
def _data() -> _Data:
    return _Data(json.loads(read_text_file("newest.json")))
