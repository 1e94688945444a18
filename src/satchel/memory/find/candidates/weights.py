"""What each signal counts in the score of a memory.

Provenance: not fitted. What compares texts counts 1, and what only hints a fraction. They were chosen by looking at the
development sets, and the figures hardly depend on them: docs/decisions/0035-ranking.md has what doubling, halving and
leaving out each of them costs on every set. That of `cue` is from docs/decisions/0037-cues.md: each of 20 persons left
out, the others choose 3; 2 is nearly as good and leaves more to what is said in so many words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SIGNALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "words": "words in common (BM25), those of the turns beside it counting less",
        "meaning": "how far the cosine of its best passage stands out",
        "match": "the question's tokens, found in it or in the question that it answers",
        "asked": "the question's tokens, found in the question before alone",
        "echo": "the question's words, found in the question before; only without tokens",
        "cue": "how far the cosine of its best cue stands out",
        "session": "the best of the same session",
        "speaker": "said by the one whom the question names; where it names nobody, not by an assistant",
        "date": "said on a day that the question names, or soon after",
    }
)
"""The signals, in words."""

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "words": 1.0,
        "meaning": 1.0,
        "match": 1.0,
        "asked": 1.0,
        "echo": 1.0,
        "cue": 2.0,
        "session": 1.0,
        "speaker": 0.2,
        "date": 0.4,
    }
)
"""Of what is known of a question and a store: without an embedder there is no `meaning`, for example."""
