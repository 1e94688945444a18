"""What each signal counts in the score of a memory; docs/concepts/retrieval.md explains each.

Provenance: not fitted. What compares texts counts 1, and what only hints a fraction. They were chosen by looking at the
development sets, and the figures hardly depend on them: docs/decisions/0035-ranking.md has what doubling, halving and
leaving out each of them costs on every set. That of `cue` is from docs/decisions/0037-cues.md: each of 20 persons left
out, the others choose 3; 2 is nearly as good and leaves more to what is said in so many words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

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
