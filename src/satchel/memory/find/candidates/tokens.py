"""Late interaction: compares the tokens of a question with those of memories.

The vector of a passage represents its topic; the vector of a token represents a word in its context. Each token of the
question is matched with the most similar token of a memory (MaxSim), and an answer is also matched by the question
before it. docs/concepts/retrieval.md reports what each part contributes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from satchel.memory.find.candidates.arrays import Floats, Ints, Matrix
from satchel.memory.text.lexicon import hash_stem, question_spans, words_of
from satchel.models.embedding import product

if TYPE_CHECKING:
    from satchel.models.port import TokenVectors

_OWN_QUESTION = 0.5
"""The weight of a token in a question of the memory itself: such a memory has the topic, but no answer."""
_ANSWERED = 0.95
"""The weight of a token in a question of the previous turn, which the memory answers."""

ALIKE = 0.6
"""The cosine of two tokens at which a logistic curve has one half. Unrelated tokens have cosines of .2 to .4, and many
of those are not a match. .55 to .65 work equally well."""
SOFTNESS = 0.1
"""The width of the curve; .05 to .1 work equally well."""

_STOP_WEIGHT = 2.0
"""The weight of a function word in a question: "when" and "who" matter. Other words have their rarity (1 to 9)."""
_STOP_SHARE = 0.5
"""The maximum weight of all function words in a question, relative to that of the other words."""

_PUNCTUATION = frozenset(".,!?'\"-:;()[]…’“”*/&")
_TOKENS_AT_ONCE = 20_000
"""The number of memories' tokens in one matrix product: with a question of 254 tokens it takes 20 MB."""
_WORD = re.compile(r"[^\W_]+")


class Bag(NamedTuple):
    """The tokens of a memory: how many each passage has (at least 1), for each a byte that is 1 in a question, and the
    vectors as int8, row by row.
    """

    counts: Sequence[int]
    asks: bytes
    vectors: bytes


def pack(parts: Sequence[str], tokens: Sequence[TokenVectors]) -> bytes:
    """Serialise the tokens of a memory, except function words and punctuation, which are half of them.

    The format: the number of passages as uint16, the number of tokens of each passage as uint16, a byte for each token
    that says whether it is in a question, and the vectors as int8.

    Args:
        parts: The passages.
        tokens: The tokens of each passage.
    """
    counts, asks, rows = [], bytearray(), []
    for text, found in zip(parts, tokens, strict=True):
        spans = found.spans.tolist()
        kept = [
            at for at, (start, end) in enumerate(spans) if end > start and not _is_filler(text, start, end)
        ]
        kept = kept or [at for at, (start, end) in enumerate(spans) if end > start]
        questions = question_spans(text)
        asks.extend(
            any(start <= spans[at][0] < end for start, end in questions) if questions else 0 for at in kept
        )
        # A passage without tokens gets a row of zeros, which matches nothing.
        rows.append(found.vectors[kept] if kept else np.zeros((1, found.vectors.shape[1]), np.float32))
        if not kept:
            asks.append(0)
        counts.append(len(rows[-1]))
    head = np.array([len(counts), *counts], dtype="<u2").tobytes()
    return head + bytes(asks) + np.round(np.concatenate(rows) * 127).astype(np.int8).tobytes()


def _is_filler(text: str, start: int, end: int) -> bool:
    piece = text[start:end]
    if piece in _PUNCTUATION:
        return True
    # A piece of a longer word: the "t" in "cats".
    if start and text[start - 1].isalnum() and piece[0].isalnum():
        return False
    return hash_stem(piece.lower()) == 0


def unpack(packed: bytes) -> Bag:
    """The inverse of `pack`."""
    passages = packed[0] | packed[1] << 8
    if passages == 1:  # A fast path for most memories: a search unpacks hundreds.
        total = packed[2] | packed[3] << 8
        return Bag((total,), packed[4 : 4 + total], packed[4 + total :])
    head = 2 + 2 * passages
    counts = np.frombuffer(packed[2:head], dtype="<u2").tolist()
    total = sum(counts)
    return Bag(counts, packed[head : head + total], packed[head + total :])


class QuestionTokens(NamedTuple):
    """The tokens of a question: unit rows, (n, d), and weights, (n,), with the sum 1."""

    vectors: Matrix
    weights: Floats


def weigh(text: str, tokens: TokenVectors, rarity: Callable[[int], float]) -> QuestionTokens:
    """Weigh the tokens of a question by the rarity of their words; the pieces of a word share its weight.

    `text` is the question as it was embedded; `rarity` gives that of a stem in the store, by its hash.
    """
    words = [(match.start(), match.end(), match.group()) for match in _WORD.finditer(text)]
    kept: list[int] = []
    word_of: list[int | None] = []
    for at, (start, end) in enumerate(tokens.spans.tolist()):
        if end <= start:
            continue
        word = next((place for place, (first, last, _) in enumerate(words) if first <= start < last), None)
        if word is None and words:
            continue  # Punctuation.
        kept.append(at)
        word_of.append(word)
    weights = np.ones(len(kept), dtype=np.float32)
    stops = np.zeros(len(kept), dtype=np.bool_)
    for place, word in enumerate(word_of):
        if word is None:
            continue
        stems = [hash_stem(part) for part in words_of(words[word][2])]
        stems = [stem for stem in stems if stem]
        if stems:
            weights[place] = max(map(rarity, stems)) / word_of.count(word) ** 0.5
        else:
            weights[place], stops[place] = _STOP_WEIGHT, True
    content, function = float(weights[~stops].sum()), float(weights[stops].sum())
    if content > 0 and function > _STOP_SHARE * content:
        weights[stops] *= _STOP_SHARE * content / function
    return QuestionTokens(
        vectors=tokens.vectors[kept], weights=weights / np.float32(max(float(weights.sum()), 1e-9))
    )


class Match(NamedTuple):
    """How well each memory matches a question, (n,), 0 to 1: by its statements, its own questions, which count half,
    and those of the turn before; by the latter alone (`asked`); and whether its tokens are `known`.
    """

    match: Floats
    asked: Floats
    known: Any


# All numbers here are finite, but a BLAS may set the flag for what it reads beyond a short row (seen once).
@np.errstate(invalid="ignore")
def match(
    question: QuestionTokens, bags: Sequence[Bag | None], *, own: Ints, previous: Ints, gate: Floats
) -> Match:
    """Compare a question with memories.

    `bags` are the tokens of the memories and of the turns before them. `own` and `previous` are the places of a memory
    and of its previous turn in `bags`, -1 for none; `gate` is how much the previous turn counts, 0 to 1.
    """
    have = np.array([place for place, bag in enumerate(bags) if bag is not None], dtype=np.int64)
    count = len(own)
    if not len(have) or not len(question.weights):
        nothing = np.zeros(count, dtype=np.float32)
        return Match(match=nothing, asked=nothing, known=np.zeros(count, dtype=np.bool_))
    filled = [bag for bag in bags if bag is not None]
    stated, asking = (
        np.concatenate(blocks, axis=1) for blocks in zip(*_compare(question.vectors, filled), strict=True)
    )
    passages = np.array([len(bag.counts) for bag in filled], dtype=np.int64)
    starts = np.cumsum(passages) - passages
    # For a whole memory, each token takes the best passage. An additional column of zeros stands for "no memory".
    blank = np.zeros((len(question.weights), 1), dtype=np.float32)
    questions = np.concatenate([np.maximum.reduceat(asking, starts, axis=1), blank], axis=1)
    place_of = np.full(len(bags) + 1, -1, dtype=np.int64)
    place_of[have] = np.arange(len(have))
    own, previous = place_of[own], place_of[previous]
    known = own >= 0
    at = np.flatnonzero(known)
    # The columns of the passages of all memories that have tokens.
    sizes = passages[own[at]]
    first = np.cumsum(sizes) - sizes
    columns = np.repeat(starts[own[at]] - first, sizes) + np.arange(int(sizes.sum()))
    owner = np.repeat(at, sizes)
    matched = np.zeros(count, dtype=np.float32)
    if len(at):
        mine = np.maximum(stated, np.float32(_OWN_QUESTION) * asking)[:, columns]
        answered = (np.float32(_ANSWERED) * gate)[owner] * questions[:, previous[owner]]
        matched[at] = np.maximum.reduceat(question.weights @ np.maximum(mine, answered), first)
    asked = gate * (question.weights @ questions)[previous]
    return Match(match=matched, asked=asked.astype(np.float32), known=known)


def _compare(wanted: Matrix, bags: Sequence[Bag]) -> Iterator[tuple[Any, Any]]:
    """How well each passage matches each token of the question, as blocks of shape (question tokens, passages): against
    the tokens outside questions, and those in questions.
    """
    for block in _blocks(bags):
        counts = np.fromiter(chain.from_iterable(bag.counts for bag in block), dtype=np.int64)
        starts = np.cumsum(counts) - counts
        asks = np.frombuffer(b"".join(bag.asks for bag in block), dtype=np.bool_)
        stored = np.frombuffer(b"".join(bag.vectors for bag in block), dtype=np.int8)
        found = stored.reshape(len(asks), -1).astype(np.float32)
        cosines = product(found, (wanted / np.float32(127)).T).T
        if asks.any():
            stated = np.maximum.reduceat(np.where(asks, np.float32(-1), cosines), starts, axis=1)
            asking = np.maximum.reduceat(np.where(asks, cosines, np.float32(-1)), starts, axis=1)
        else:
            stated = np.maximum.reduceat(cosines, starts, axis=1)
            asking = np.full_like(stated, -1)
        yield _match_strength(stated), _match_strength(asking)


def _match_strength(cosines: Any) -> Any:
    """Map the cosine of the most similar token to a strength of 0 to 1."""
    least, most = _logistic(np.float32(0)), _logistic(np.float32(1))
    return (_logistic(np.clip(cosines, 0, 1)) - least) / (most - least)


def _logistic(cosines: Any) -> Any:
    return 1 / (1 + np.exp((np.float32(ALIKE) - cosines) / np.float32(SOFTNESS)))


def _blocks(bags: Sequence[Bag]) -> Iterator[list[Bag]]:
    """Group bags into blocks of at most `_TOKENS_AT_ONCE` tokens; a larger bag is a block of its own."""
    block: list[Bag] = []
    size = 0
    for bag in bags:
        if block and size + len(bag.asks) > _TOKENS_AT_ONCE:
            yield block
            block, size = [], 0
        block.append(bag)
        size += len(bag.asks)
    if block:
        yield block
