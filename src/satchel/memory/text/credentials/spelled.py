"""Secrets that are spelled out: "the PIN is four seven one one", "the password is h u n t e r 2", a passphrase of
words, a value on a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from satchel.memory.text.credentials.secret import (
    PUNCTUATION_END,
    SAID_OF_IT,
    Secret,
    is_placeholder,
    is_random,
    spans,
)
from satchel.memory.text.credentials.spoken import kind_of
from satchel.memory.text.languages import function_words

_NAME: Final = (
    r"\b(?P<name>pass ?(?:word|phrase|code)|pwd|pw|passwd|passwort|kennwort|mot de passe|contraseña|wachtwoord|senha"
    r"|pin|puk|geheimzahl|clave|código|codice|code|combination|kombination"
    r"|(?:api|secret|wifi|wi-fi|wlan|access|network) key)\b"
)
_OF: Final = (
    r"(?:\s+(?:for|of|to|on|at|in|für|vom|zum|bei|beim|der|pour|de|du|del|para)\s+[^\n.:;=!?]{1,40}?)?"
)
_PHRASE_HINTS: Final = ("phrase", "type", "typing", "enter")
_IS: Final = r"\s*(?:\s(?:is|was|ist|lautet|est|es|è|is now)\s*:?|[:=])\s*"
_DIGIT: Final = (
    r"(?:zero|oh|one|two|three|four|five|six|seven|eight|nine|null|eins|zwei|zwo|drei|vier|fünf|sechs|sieben|acht|neun"
    r"|zéro|un|deux|trois|quatre|cinq|sept|huit|neuf|cero|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve)"
)
_BETWEEN: Final = r"(?:\s*[,-]\s*|\s+)"
# Four digits in words, as people say a PIN.
_IN_WORDS: Final = re.compile(
    rf"{_NAME}{_OF}{_IS}(?P<value>{_DIGIT}(?:{_BETWEEN}{_DIGIT}){{3,15}})\b", re.IGNORECASE
)
# One character after the other: five, because "a b c d" are four choices.
_BY_LETTER: Final = re.compile(
    rf"{_NAME}{_OF}{_IS}(?P<value>[\w!?#$%@](?:(?:[ \t]|-|, ?)[\w!?#$%@]){{4,40}})(?![^\s.,;!?])",
    re.IGNORECASE,
)
# Four plain words to the end of the clause, none of which only joins others: of a passphrase, or typed to get in.
_PHRASE: Final = re.compile(
    r"\b(?:pass ?phrase\b[^\n.!?]{0,60}?(?:\s(?:is|was|ist|lautet|type|enter|say)|[:=])\s*(?:(?:type|enter)\s+)?"
    r"|(?P<opens>(?:to|i|we)\s+(?:(?:log|sign)[ -]?(?:in|on)(?:to)?|(?:unlock|decrypt)))\b[^\n.!?]{0,40}?"
    r"\b(?<!in to )(?:type|enter|typing|entering)\b:?\s+(?:the words:?\s+)?)[\"'“‘]?"
    r"(?P<value>[^\W\d_]{3,14}(?:[ -][^\W\d_]{3,14}){3,11})(?=[\"'”’]?\s*(?:[.,;!?\n]|\Z))",
    re.IGNORECASE,
)
# Not of a code, which is a program more often than not.
_ON_NEXT_LINE: Final = re.compile(
    r"\b(?P<name>pass ?(?:word|phrase|code)|pwd|passwort|kennwort|(?:api|secret|wifi|wi-fi|wlan|access|network) key)\b"
    r"[^\n.!?(){}=]{0,40}[ \t]*\n\s*(?:> ?)?(?P<value>[^\W_][^\s(){}`;=<>]{5,60})[ \t]*(?=\n|\Z)",
    re.IGNORECASE,
)
# Beside an account in a file of settings, "pass" is a password, even a plain word.
_BESIDE_USER: Final = re.compile(
    r"^[ \t-]*(?:user(?:name)?|login|account)[ \t]*:[^\n]*\n[ \t]*pass[ \t]*:[ \t]+(?P<mark>[\"']?)"
    r"(?P<value>[^\n\"'#]{4,100}?)(?P=mark)[ \t]*(?=\n|\Z)",
    re.IGNORECASE | re.MULTILINE,
)
# Alone, it is one if it looks like one: "pass: 12" counts, and "PASS: " begins the result of a test.
_ALONE: Final = re.compile(
    r"^[ \t-]*(?-i:[Pp]ass)[ \t]*:[ \t]+(?P<mark>[\"']?)(?P<value>[^\s\"'#]{6,100})(?P=mark)[ \t]*(?=\n|\Z)",
    re.IGNORECASE | re.MULTILINE,
)
# What passed: an address, a test, a moment, a file. A slash alone may be one of Base64.
_PASSED: Final = re.compile(
    r"\w+://|\S*::|\d{4}-\d\d-\d\d|(?:[\w.-]+/)+[\w.-]*\.[a-z]\w{0,4}\Z|[a-z\d_.-]+(?:/[a-z\d_.-]+)+\Z"
)
_LOCK: Final = re.compile(
    r"\b(?:safe|vault|lock|locker|padlock|suitcase)\b[^\n.]{0,40}?\b(?:opens?|unlocks?)\b[^\n\d.]{0,20}"
    r"(?P<value>\d{1,2}(?:[ -]\d{1,2}){2,5})\b",
    re.IGNORECASE,
)


def find_phrases(text: str) -> Iterator[Secret]:
    """The secrets in a text that are phrases, stand in a line "pass:", or open a lock."""
    lowered = text.lower()
    if any(hint in lowered for hint in _PHRASE_HINTS):
        yield from spans("password", (m for m in _PHRASE.finditer(text) if _is_phrase(m)), "value")
    if "pass" in lowered:
        alone = (m for m in _ALONE.finditer(text) if is_random(m["value"]) and not _PASSED.match(m["value"]))
        found = (m for m in (*_BESIDE_USER.finditer(text), *alone) if not is_placeholder(m["value"]))
        yield from spans("password", found, "value")
    yield from spans("code", _LOCK.finditer(text), "value")


def find_spelled(text: str) -> Iterator[Secret]:
    """The secrets in a text that are spelled out, or stand on the line after their name."""
    for match in (*_IN_WORDS.finditer(text), *_BY_LETTER.finditer(text)):
        joined = "".join(char for char in match["value"] if char not in " ,-\t")
        # "code: A B C D E" are choices; letters alone are a password where the name says so.
        if is_random(joined) or joined.isdigit() or _kind(match["name"]) != "code" or len(joined) > 12:
            yield Secret(kind=_kind(match["name"]), start=match.start("value"), end=match.end("value"))
    for match in _ON_NEXT_LINE.finditer(text):
        value = match["value"].rstrip(PUNCTUATION_END)
        if is_random(value) and not is_placeholder(value):
            start = match.start("value")
            yield Secret(kind=_kind(match["name"]), start=start, end=start + len(value))


def _is_phrase(match: re.Match[str]) -> bool:
    words, joining = re.split("[ -]", match["value"].lower()), function_words()
    # To log in, people type what a form asks for, too: "your email address", "valid admin credentials here".
    is_asked_for = match["opens"] is not None and (
        any(is_placeholder(word) for word in words) or sum(map(bool, map(SAID_OF_IT.fullmatch, words))) > 1
    )
    return not is_asked_for and not any(word in joining for word in words)


def _kind(name: str) -> str:
    lowered = name.lower()
    return (
        "pin"
        if lowered in ("pin", "puk", "geheimzahl")
        else "code"
        if lowered.endswith(("code", "ion"))
        else kind_of(name)
    )
