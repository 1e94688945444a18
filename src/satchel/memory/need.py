"""What judging goes by: the fitted weights, and how much a message is like those that need memory. Needs no numpy."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from satchel.memory.data_files import read_lines, read_text_file
from satchel.memory.stems import words_of

__all__ = [
    "READ_CHARS",
    "Logistic",
    "NeedWeights",
    "asked_about",
    "need_of",
    "need_words",
    "read_weights",
    "shipped_weights",
]

_MOST_NEED_WORDS = 60
READ_CHARS = 2_000
_MOST_ASKED_CHARS = 160
_PLACES = {
    "what": r"(?P<what>\S.*?)",
    "name": r"(?P<what>(?-i:[A-ZÄÖÜÁÉÍÓÚÑ])[\w'’-]+(?: (?-i:[A-ZÄÖÜÁÉÍÓÚÑ])[\w'’-]+)?)",
    "short": r"(?P<what>\w{1,12}?)",
}


class Logistic(NamedTuple):
    """A logistic regression: of each feature by name its weight, and the bias."""

    weights: Mapping[str, float]
    bias: float

    def log_odds(self, features: Mapping[str, Any]) -> Any:
        """The log-odds, for one row or for many."""
        return self.bias + sum(weight * features[name] for name, weight in self.weights.items())


class NeedWeights(NamedTuple):
    """What judging goes by.

    Attributes:
        line: Whether a memory is needed; `message`: whether the message concerns the user's life at all.
        line_from: The log-odds of a line from which it is shown by default; `turn_from` those of a turn from whose
            session no facts were drawn, which may be out of date; `message_from` those of a message that takes nothing
            from its lines.
        need: Of the words of a message, how much each speaks for a need of memory, and under "" the bias.
    """

    line: Logistic
    message: Logistic
    line_from: float
    turn_from: float
    message_from: float
    need: Mapping[str, float]


@cache
def shipped_weights(*, with_vectors: bool) -> NeedWeights:
    """The fitted weights, with an embedder or by words alone."""
    return read_weights(json.loads(read_text_file("surface_weights.json")), with_vectors=with_vectors)


def read_weights(found: Mapping[str, Any], *, with_vectors: bool) -> NeedWeights:
    """Weights as the file has them."""
    part = found["with_vectors" if with_vectors else "by_words"]
    return NeedWeights(
        line=Logistic(part["line"]["weights"], part["line"]["bias"]),
        message=Logistic(part["message"]["weights"], part["message"]["bias"]),
        line_from=part["line_from"],
        turn_from=part["turn_from"],
        message_from=part["message_from"],
        need=found["need"],
    )


def need_words(text: str) -> frozenset[str]:
    """The words of a message, pairs of them, and its outer form, as far as they tell what kind of message it is."""
    text = text[:READ_CHARS]
    words = words_of(text)[:_MOST_NEED_WORDS]
    found = {*words, *(f"{one} {two}" for one, two in zip(words, words[1:], strict=False))}
    found.add(f"length {min(int(math.log2(len(words) + 1)), 7)}")
    if words:
        found.add(f"begins {words[0]}")
    if re.search(r"[?？؟]\s*$", text):
        found.add("ends ?")
    if ":" in text and len(words) > 30:
        found.add("long :")
    if re.search(r"[\"“„«「]", text):
        found.add("quotes")
    return frozenset(found)


def asked_about(text: str) -> str:
    """Reduce a short question about what is known of something to "What about …?"; return other texts unchanged.

    The words that only ask occur in no answer, and would hide the one word that counts.
    """
    if len(text) <= _MOST_ASKED_CHARS:
        for pattern in _asks():
            if match := pattern.fullmatch(text):
                return f"What about {match['what']}?"
    return text


@cache
def _asks() -> tuple[re.Pattern[str], ...]:
    return tuple(
        re.compile(rf"\s*{line.format(**_PLACES)}[\s.?!。？！]*", re.IGNORECASE | re.DOTALL)
        for line in read_lines("asks_what_is_known.txt")
    )


def need_of(text: str, weights: Mapping[str, float]) -> float:
    """How much a message's words are like those that need memory: about 0 to 1, whatever the embedder."""
    words = need_words(text)
    known = [weights[word] for word in words if word in weights]
    return weights.get("", 0.0) + sum(known) / math.sqrt(len(words) + 1)
