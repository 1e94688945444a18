"""Whether a memory is worth showing before a message: the judgement between a search, which always finds something, and
a model, which should have what it needs and little else.

Two logistic regressions with a dozen explained features each: one for every line, and one for the message, because what
is one's own life and what is the world's is told better from the whole. Their weights are data
(`data/surface_weights.json`), fitted by `benchmarks/fit_surfacing.py`; docs/concepts/retrieval.md has the figures on
persons that were left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from satchel.memory.data_files import read_lines, read_text_file
from satchel.memory.text.lexicon import words_of

if TYPE_CHECKING:
    from satchel.memory.find.candidates.arrays import Floats
    from satchel.memory.find.candidates.evidence import Evidence
    from satchel.memory.find.relevance import RelevanceGate
    from satchel.memory.records import MemoryRecord

LINE_FEATURES: Final[Mapping[str, str]] = {
    "message": "the cosine of its best passage and the message, on the embedder's own scale",
    "context": "the same with what was said before the message",
    "part": "the best cosine with a part of a long message",
    "ahead": "how far it is above the third best",
    "words": "words in common (BM25)",
    "covered": "how much of the message's information its words contain",
    "cue": "the cosine of its best cue, 0 without cues",
    "cue_and_meaning": "the product of cue and meaning",
    "has_cues": "whether it has cues",
    "called": "how much it is about what such a situation calls for",
    "source": "the best cosine among what was said in the same turn",
    "fact": "whether it is a fact and no turn",
    "own": "whether it is a turn of the user's own",
    "need": "how much the message's words are like those that need memory",
    "personal": "how much the message is like those that memory can help with",
}
"""What is known of one memory and one message, in words."""

MESSAGE_FEATURES: Final[Mapping[str, str]] = {
    "best": "the log-odds of its best line",
    "second": "those of its second",
    "expected": "the logarithm of the number of lines that help, as expected",
    "meaning": "the best cosine with a memory",
    "words": "the best memory's words in common",
    "covered": "the most of its information that a memory contains",
    "cue": "the best cue",
    "called": "the best association",
    "need": "as for a line",
    "personal": "as for a line",
    "length": "the logarithm of its number of words",
}
"""What is known of one message."""

_MOST_WORDS = 20.0

_MOST_NEED_WORDS = 60
_READ_CHARS = 2_000
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
    found = json.loads(read_text_file("surface_weights.json"))
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
    text = text[:_READ_CHARS]
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


def is_assistants(record: MemoryRecord) -> bool:
    """Whether a model said it."""
    return record.trust == "agent" or (record.speaker or "").casefold() == "assistant"


def line_features(
    evidence: Evidence,
    records: Sequence[MemoryRecord],
    *,
    gate: RelevanceGate | None,
    message: Floats | None,
    need: float,
) -> dict[str, Any]:
    """Measure the memories of the evidence: arrays of shape (n,) by name, see `LINE_FEATURES`. `message` is the
    message's vector, and `need` by `need_of`.
    """
    found: dict[str, Any] = {
        "words": np.minimum(evidence.words, _MOST_WORDS) / 10,
        "covered": evidence.share,
        "fact": np.array([record.kind != "episode" for record in records], dtype=np.float64),
        "own": np.array(
            [record.kind == "episode" and not is_assistants(record) for record in records], dtype=np.float64
        ),
        "need": np.full(len(records), need),
    }
    if gate is None or message is None or not len(evidence.cosines):
        return found
    scale = max(gate.deviation, 1e-6)
    cosines = np.nan_to_num((evidence.cosines - gate.mean) / scale, nan=0.0)
    nearest = cosines[:2].max(axis=0)
    has_cues = evidence.cues > 0
    cue = np.where(has_cues, (evidence.cues - gate.mean) / scale, 0.0)
    found |= {
        "message": cosines[0],
        "context": cosines[1],
        "part": cosines.max(axis=0),
        "ahead": nearest - (0.0 if evidence.third is None else (evidence.third - gate.mean) / scale),
        "cue": cue,
        "cue_and_meaning": cue * nearest / 10,
        "has_cues": has_cues.astype(np.float64),
        "called": evidence.called * 10,
        "source": _best_of_turn(nearest, records),
        "personal": np.full(len(records), gate.personal(message)),
    }
    return found


def _best_of_turn(values: Any, records: Sequence[MemoryRecord]) -> Any:
    """For each memory, its value or the greatest of what it comes from: of a fact its turn, of the user's turn its
    facts. An answer has its own alone: "Noted." says nothing of what it answers.
    """
    best: dict[object, float] = {}
    for record, value in zip(records, values.tolist(), strict=True):
        if record.source.session is not None and not is_assistants(record):
            own = (record.source.session, record.source.turn, record.kind == "episode")
            best[own] = max(value, best.get(own, value))
    return np.array(
        [
            value
            if is_assistants(record)
            else max(
                value, best.get((record.source.session, record.source.turn, record.kind != "episode"), value)
            )
            for record, value in zip(records, values.tolist(), strict=True)
        ]
    )


def message_features(lines: Mapping[str, Any], log_odds: Any, *, text: str, need: float) -> dict[str, float]:
    """Measure the message, see `MESSAGE_FEATURES`; `log_odds` are those of its lines, shape (n,), n > 0."""
    ordered = np.sort(log_odds)[::-1]
    found = {
        "best": float(ordered[0]),
        "second": float(ordered[1]) if len(ordered) > 1 else float(ordered[0]) - 2.0,
        "expected": math.log(float((1 / (1 + np.exp(-ordered))).sum())),
        "words": float(lines["words"].max()),
        "covered": float(lines["covered"].max()),
        "need": need,
        "length": math.log(len(text[:_READ_CHARS].split()) + 1),
    }
    if "message" in lines:
        found |= {
            "meaning": float(np.maximum(lines["message"], lines["context"]).max()),
            "cue": float(lines["cue"].max()),
            "called": float(lines["called"].max()),
            "personal": float(lines["personal"][0]),
        }
    return found


def sureness(weights: NeedWeights, lines: Mapping[str, Any], *, text: str, need: float) -> Any:
    """How sure each line should be shown, shape (n,): 0 to 1, and 0.5 from where it is shown by default.

    It takes both: that the line is needed and that the message concerns the user's life. What a message lacks is taken
    from its lines, so that one that is needed beyond doubt is shown all the same: "Is Mara allergic to shellfish?"
    could be asked of the world.
    """
    log_odds = np.clip(weights.line.log_odds(lines), -20, 20)
    if not len(log_odds):
        return log_odds
    message = weights.message.log_odds(message_features(lines, log_odds, text=text, need=need))
    from_ = np.where((lines["fact"] > 0) | lines["told"], weights.line_from, weights.turn_from)
    sure = log_odds - from_ + min(message - weights.message_from, 0.0)
    return 1 / (1 + np.exp(-np.clip(sure, -30, 30)))
