"""What each sign that a memory fits a question is worth: the learned part of the search, as data.

Provenance: fitted so that the first memory that answers comes early (a softmax over the candidates of each question),
each weight held at 0 or above, on three long conversations (495 questions, LoCoMo, CC BY-NC 4.0, not shipped) together
with the pages, facts and messages of benchmarks/data, each set counting half of a conversation; then rounded. Weights
learned on two of the conversations and tried on the third differ by less than .01 in every figure; what is lost on the
pages and the facts where those are left out stands in docs/concepts/retrieval.md. `WITHOUT_TOKENS` was fitted before,
all sets counting the same. None is negative: no memory is pushed down for what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["SIGNALS", "WITHOUT_TOKENS", "WITH_TOKENS"]

SIGNALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lexical": "words in common (BM25), those of the turns beside it counting less",
        "session": "words in common with the best of the same session",
        "session_dense": "the cosines of the best of the same session",
        "dense": "the cosine of its best passage",
        "match": "the question's tokens, found in it and in the turn before",
        "reply": "the question's tokens, found in its statements and in the question before",
        "asked": "the question's tokens, found in the question before alone",
        "echo": "the question's words, found in the question before",
        "speaker": "said by the one whom the question names",
        "time": "speaks of a time, where the question asks when",
        "date": "said on a day that the question names, or soon after",
        "statement": "does not end in a question itself",
        "page_lexical": "of a long text: `lexical`, once more",
        "page_dense": "of a long text: `dense`, once more",
        "page_words": "of a long text: the share of the question's words that it has, cubed",
    }
)
"""The signs, in words. Every one is 0 to 1."""

WITH_TOKENS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "lexical": 0.3,
        "session": 2.5,
        "session_dense": 1.4,
        "dense": 1.8,
        "match": 2.8,
        "reply": 2.0,
        "asked": 1.4,
        "speaker": 1.1,
        "time": 1.7,
        "date": 2.9,
        "statement": 0.5,
        "page_lexical": 0.7,
        "page_dense": 2.2,
        "page_words": 2.2,
    }
)
"""Where the embedder gives a vector for each token."""

WITHOUT_TOKENS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "lexical": 2.2,
        "session": 2.8,
        "dense": 4.2,
        "echo": 3.5,
        "speaker": 1.1,
        "time": 2.0,
        "date": 3.0,
        "statement": 0.9,
        "page_lexical": 0.8,
        "page_dense": 2.2,
        "page_words": 2.0,
    }
)
"""Where it gives one for each passage alone, and where there is no embedder: then `dense` is 0."""
