"""The languages: their words and phrases, read from data files, and the parser that finds the phrases in a text.

A file has `[words]`, tables of a symbol's words by their value, and rules, one a line:

    symbol: pattern -> meaning name=value

A pattern has words, `<symbol>` or `<symbol:argument>` (without a value where the argument is `_`), `[what may be left
out]` and `(one | another)`; what stands before `^` must be there and is no part of the phrase. The meaning is a method
of `meanings.Circumstances`; its arguments are what the symbols mean and the values behind it. Without a meaning, that
of the one symbol is taken. A text is searched for the symbol `mention`, from each token on for the longest one; of two
rules for the same tokens the first one counts. A search never goes farther than `_LONGEST` tokens, so that a text takes
linear time.

`common` are words by which the language is known, `joins` and `breaks` words between two dates (see `resolving.py`),
and `[signs]` regular expressions about a clause, in which `¤` stands for the date (see `tenses.py`).

`sayings` are proverbs and set phrases: a day in one of them is unknown.

`[guards]` say which company makes a phrase unsure, so that it stays unknown: each has the kinds of phrases that it is
about ("any" for all), and regular expressions about the text around one, with the phrase as `‹phrase›`: `never`, which
must not be found, and `needs`, which must be. In them, `{common}` is any of the common words, `{verb}` any verb of the
signs, `{past}` one of the past, and every other name in braces a pattern of `[macros]`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from satchel.memory.text.dates.spans import NO_PHRASE
from satchel.memory.text.lexicon import plain

LANGUAGES: Final = ("en", "de", "es", "fr", "zh")

_LONGEST: Final = 24
"""Tokens in a phrase; the longest range of two full dates has 16."""
_APOSTROPHE: Final = "['\N{RIGHT SINGLE QUOTATION MARK}]"
_TOKEN: Final = re.compile(
    r"[\u3007\u3400-\u9fff]|\d+|(?:[^\W\d_\u3007\u3400-\u9fff]+[\u0300-\u036f]*)+|[^\w\s]|_"
)
_SIGNS: Final = str.maketrans("\u2018\u2019\u2010\u2011\u2012\u2013\u2014\uff5e~\u3001", "''-------,")
_PATTERN: Final = re.compile(r"<(\w+)(?::(\w+))?>|([\[\]()|^])|([^\s<>\[\]()|^]+)")
_NAMES: Final[Mapping[str, str]] = {
    "weekday": "weekday", "shortday": "weekday", "month": "month", "shortmonth": "month", "unit": "unit",
}  # fmt: skip
"""The symbols whose words are names, and of what."""
_STANDING_FOR: Final = frozenset({"", "same", "strong"})
"""The meanings that are those of their only symbol."""
_MACRO: Final = re.compile(r"\{([a-z]+)\}")
_DIGITS: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "int": (1, 4, 1, 9999),
    "d": (1, 2, 1, 31),
    "dd": (2, 2, 0, 99),
    "yyyy": (4, 4, 1500, 2199),
    "digits": (1, 9, 0, 999_999_999),
}
"""The symbols that stand for digits: the least and most characters, the least and greatest number."""


class Token(NamedTuple):
    """A word, a number, a sign or a Chinese character; `word` is in lower case and without accents."""

    word: str
    start: int
    end: int


class Phrase(NamedTuple):
    """A phrase that was found: its tokens from `start` up to `end`, what it means, and by which rule.

    `kind` is the meaning's method; where a phrase stands for another one ("in" before a month), that one's.
    """

    start: int
    end: int
    value: Any
    kind: str = ""


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, in order; white space is none."""
    return [Token(_normal(match.group()), match.start(), match.end()) for match in _TOKEN.finditer(text)]


def _normal(word: str) -> str:
    if word.isascii():
        return "-" if word == "~" else word.lower()
    return plain(word.translate(_SIGNS))


@dataclass(slots=True)
class _Node:
    """A state after the first elements of some rules."""

    words: dict[str, _Node] = field(default_factory=dict)
    symbols: dict[tuple[str, str], _Node] = field(default_factory=dict)
    marked: _Node | None = None
    ends: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)

    def after(self, element: str) -> _Node:
        """The state after one more element, made if it isn't there."""
        if element == "^":
            self.marked = self.marked or _Node()
            return self.marked
        if element.startswith("<"):
            symbol, _, name = element[1:-1].partition(":")
            return self.symbols.setdefault((symbol, name), _Node())
        return self.words.setdefault(element, _Node())


class Language:
    """One language: its words, its phrases, and the patterns of its tenses."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.signs: Mapping[str, re.Pattern[str]] = {
            name: _compiled(pattern) for name, pattern in data["signs"].items()
        }
        self.order: Any = data.get("order")
        self.joins = frozenset(token.word for token in tokens_of(data["joins"]))
        self.ranges = frozenset(token.word for token in tokens_of(data["ranges"]))
        self.moving = frozenset(token.word for token in tokens_of(data["moving"]))
        self.breaks = frozenset(token.word for token in tokens_of(data["breaks"]))
        self._data = data
        self._guards: dict[str, list[tuple[re.Pattern[str], bool]]] = {}

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """Every word that speaks for this language: the common ones and those of dates."""
        common = {token.word for token in tokens_of(self._data["common"])}
        return frozenset(word for word in common | self.words.keys() | self._literals if word.isalpha())

    @cached_property
    def words(self) -> dict[str, list[tuple[tuple[str, ...], str, Any]]]:
        """The words of symbols, by their first one: all words of each, the symbol, and what it means."""
        found: dict[str, list[tuple[tuple[str, ...], str, Any]]] = {}
        for symbol, values in self._data["words"].items():
            for value, forms in values.items():
                meant = int(value) if value.lstrip("-").isdigit() else value
                for form in forms.split(","):
                    words = tuple(token.word for token in tokens_of(form))
                    found.setdefault(words[0], []).append((words, symbol, meant))
        return found

    @cached_property
    def rules(self) -> dict[str, _Node]:
        """The rules for each symbol."""
        heads: dict[str, _Node] = {}
        for priority, line in enumerate(self._data["grammar"]["rules"].splitlines()):
            head, _, rest = line.partition(":")
            pattern, _, meaning = rest.partition("->")
            if not pattern or head.startswith("#"):
                continue
            name, *constants = meaning.split() or [""]
            given = dict(constant.split("=") for constant in constants)
            end = (priority, name, {key: _constant(value) for key, value in given.items()})
            for elements in _expanded(_PATTERN.finditer(pattern)):
                node = heads.setdefault(head.strip(), _Node())
                for element in elements:
                    node = node.after(element)
                node.ends.append(end)
        return heads

    @cached_property
    def _literals(self) -> set[str]:
        found: set[str] = set()
        nodes = list(self.rules.values())
        while nodes:
            node = nodes.pop()
            found |= node.words.keys()
            nodes += [*node.words.values(), *node.symbols.values(), *([node.marked] if node.marked else [])]
        return found

    @cached_property
    def begun(self) -> Mapping[str, frozenset[str]]:
        """The symbols that can begin with a word; "0" stands for all digits."""
        begun: dict[str, set[str]] = {"0": set(_DIGITS)}
        for word, meant in self.words.items():
            begun.setdefault(_key(word), set()).update(symbol for _, symbol, _ in meant)
        above: dict[str, set[str]] = {}
        for head, node in self.rules.items():
            for word in node.words:
                begun.setdefault(_key(word), set()).add(head)
            for symbol, _ in node.symbols:
                above.setdefault(symbol, set()).add(head)
        for symbols in begun.values():
            more = list(symbols)
            while more:
                added = above.get(more.pop(), set()) - symbols
                symbols |= added
                more += added
        return {word: frozenset(symbols) for word, symbols in begun.items()}

    def names(self) -> Iterator[tuple[str, int, str]]:
        """Names of weekdays, months and units of time: ("weekday", 0, "monday"), and the like."""
        for entries in self.words.values():
            for words, symbol, value in entries:
                kind = _NAMES.get(symbol)
                if kind is not None and len(words) == 1 and len(words[0]) > 1:
                    yield kind, value if isinstance(value, int) else 0, words[0]

    @cached_property
    def dated(self) -> frozenset[str]:
        """The words of which every mention has one, besides digits: neither common nor numbers and the like."""
        light = {
            word for word, meant in self.words.items() if all(of in self._data["light"] for _, of, _ in meant)
        }
        common = {token.word for token in tokens_of(self._data["common"])}
        words = self.words.keys() | self._literals
        return frozenset(word for word in words if word.isalpha()) - light - common

    @cached_property
    def sayings(self) -> re.Pattern[str]:
        """Proverbs and set phrases, in which no day is meant."""
        lines = sorted((line for line in self._data["sayings"].splitlines() if line), key=len, reverse=True)
        return _compiled("|".join(r"\s+".join(map(re.escape, line.split())) for line in lines))

    def is_sure(self, kind: str, around: str) -> bool:
        """Whether nothing around a phrase speaks against it; in `around`, it stands as `‹phrase›`."""
        if kind not in self._guards:
            self._guards[kind] = self._guards_of(kind)
        return all((pattern.search(around) is None) is is_never for pattern, is_never in self._guards[kind])

    def _guards_of(self, kind: str) -> list[tuple[re.Pattern[str], bool]]:
        """What must and what mustn't be around a phrase of a kind; compiled when one is found."""
        verbs = (self._data["signs"].get(tense, "(?!)") for tense in ("past", "future", "present"))
        macros = {
            "common": rf"(?:{'|'.join(map(re.escape, self._data['common'].split()))})\b",
            "past": f"(?:{self._data['signs']['past']})",
            "verb": f"(?:{'|'.join(verbs)})",
            **self._data["macros"],
        }
        found: list[tuple[re.Pattern[str], bool]] = []
        for guard in self._data["guards"].values():
            for sign in (
                guard.keys() & {"never", "needs"} if {"any", kind} & set(guard["kinds"].split()) else ()
            ):
                pattern = guard[sign]
                while (filled := _MACRO.sub(lambda match: macros[match[1]], pattern)) != pattern:
                    pattern = filled
                found.append((_compiled(pattern), sign == "never"))
        return found

    def can_begin(self, token: Token) -> bool:
        """Whether a mention can begin with the token."""
        return "mention" in self.begun.get(_key(token.word), ())

    def find(
        self, tokens: list[Token], at: int, meanings: object, *, symbol: str = "mention"
    ) -> Phrase | None:
        """The longest phrase for a symbol that begins with the token `at`; `meanings` has a method for each one in the
        rules.
        """
        limit = min(at + _LONGEST, len(tokens))
        found = _Search(self, tokens, limit, meanings).symbol(symbol, at)
        return max(found, key=lambda phrase: phrase.end, default=None)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("'", _APOSTROPHE), re.IGNORECASE | re.VERBOSE | re.DOTALL)


def _key(word: str) -> str:
    return "0" if word.isdecimal() else word


def _constant(value: str) -> int | str:
    return int(value) if value.lstrip("-").isdigit() else value


def _expanded(parts: Iterator[re.Match[str]]) -> list[list[str]]:
    """Every sequence of elements that a pattern allows, up to its closing bracket."""
    branches: list[list[str]] = []
    current: list[list[str]] = [[]]
    for part in parts:
        symbol, name, sign, words = part.groups()
        if sign in ("[", "("):
            inner = _expanded(parts) + ([[]] if sign == "[" else [])
            current = [left + right for left in current for right in inner]
        elif sign in ("]", ")"):
            break
        elif sign == "|":
            branches += current
            current = [[]]
        else:
            elements = [f"<{symbol}:{name or symbol}>"] if symbol else None
            elements = elements or ([sign] if sign else [token.word for token in tokens_of(words)])
            current = [left + elements for left in current]
    return branches + current


@dataclass(slots=True)
class _Search:
    """The search for phrases from one token on; what was found for a symbol at a place is kept."""

    language: Language
    tokens: list[Token]
    limit: int
    meanings: object
    found: dict[tuple[str, int], list[Phrase]] = field(default_factory=dict)

    def symbol(self, symbol: str, at: int) -> list[Phrase]:
        """Every phrase for a symbol from a token on, one for each end."""
        key = (symbol, at)
        if key not in self.found:
            if symbol in self.language.rules:
                best: dict[int, tuple[int, Phrase]] = {}
                self._walk(self.language.rules[symbol], at, at, {}, "", best)
                self.found[key] = [phrase for _, phrase in best.values()]
            else:
                self.found[key] = list(self._terminals(symbol, at))
        return self.found[key]

    def _terminals(self, symbol: str, at: int) -> Iterator[Phrase]:
        word = self.tokens[at].word
        if symbol in _DIGITS:
            shortest, longest, least, greatest = _DIGITS[symbol]
            if shortest <= len(word) <= longest and word.isdecimal() and least <= int(word) <= greatest:
                yield Phrase(at, at + 1, int(word))
            return
        for words, of, value in self.language.words.get(word, ()):
            if of == symbol and words == tuple(token.word for token in self.tokens[at : at + len(words)]):
                yield Phrase(at, at + len(words), value)

    def _walk(
        self,
        node: _Node,
        start: int,
        at: int,
        arguments: dict[str, Any],
        kind: str,
        best: dict[int, tuple[int, Phrase]],
    ) -> None:
        for priority, name, constants in node.ends:
            if at in best and best[at][0] <= priority:
                continue
            try:
                value = getattr(self.meanings, name or "same")(**arguments, **constants)
            except (ValueError, OverflowError):
                value = None  # 31 April, or before year 1
            if value is not NO_PHRASE:
                stands_for = kind if name in _STANDING_FOR else name
                best[at] = (priority, Phrase(start, at, value, stands_for))
        if node.marked is not None:
            self._walk(node.marked, at, at, arguments, kind, best)
        if at >= self.limit:
            return
        word = self.tokens[at].word
        if word in node.words:
            self._walk(node.words[word], start, at + 1, arguments, kind, best)
        begun = self.language.begun.get(_key(word), frozenset())
        for (symbol, name), after in node.symbols.items() if begun else ():
            for phrase in self.symbol(symbol, at) if symbol in begun else ():
                more, of = (
                    (arguments, kind) if name == "_" else ({**arguments, name: phrase.value}, phrase.kind)
                )
                self._walk(after, phrase.start if start == at else start, phrase.end, more, of, best)


@lru_cache(maxsize=len(LANGUAGES))
def language(name: str) -> Language:
    """One of `LANGUAGES`, read once."""
    data = (files("satchel.memory.text.dates") / "languages" / f"{name}.toml").read_text(encoding="utf-8")
    return Language(tomllib.loads(data))
