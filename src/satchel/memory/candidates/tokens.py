"""Late interaction: how the tokens of a question are compared with those of memories.

A pooled vector says what a passage is about as a whole; a token's says what one word means where it stands. For
each token of the question the best of a memory's tokens counts (MaxSim). Two things are added, since what is said
in a conversation leans on what was said before it: a token of the turn before counts nearly as much as one's own,
and a turn that answers a question is matched by that question. docs/concepts/retrieval.md has what each is worth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from satchel.memory.candidates.arrays import Floats, Ints, Matrix
from satchel.memory.lexicon import hash_stem, question_spans, words_of
from satchel.models.embedding import product

if TYPE_CHECKING:
    from satchel.models.port import TokenVectors

__all__ = ["Bag", "Match", "QuestionTokens", "match", "pack", "unpack", "weigh"]

CARRY = 0.9
"""What a token of the turn before is worth beside one's own; `CARRY_QUESTION` one of its questions."""
CARRY_QUESTION = 0.95

ALIKE = 0.6
"""The cosine of two tokens that counts half: above it they soon say the same, below it they soon have nothing in
common. Between any two tokens is a cosine of .2 to .4, and ten words that are a little like the question's are no
match. .55 to .65 do as well; `SOFTNESS` says how soon, and .05 to .1 do as well."""
SOFTNESS = 0.1

_STOP_WEIGHT = 2.0
"""Of a function word of a question, beside the rarity of others (1 to 9): "when" and "who" ask something of what
stands around them."""
_STOP_SHARE = 0.5
"""All function words of a question together weigh at most so much of the others."""

_PUNCTUATION = frozenset(".,!?'\"-:;()[]…’“”*/&")
_TOKENS_AT_ONCE = 20_000
"""Of memories, in one product: a question of 254 tokens then takes 20 MB, also against pages."""
_WORD = re.compile(r"[^\W_]+")


class Bag(NamedTuple):
    """The tokens of one memory.

    Attributes:
        counts: How many tokens each of its passages has; none has 0.
        asks: One byte for each token: 1 where it stands in a question.
        vectors: int8, row after row.
    """

    counts: Sequence[int]
    asks: bytes
    vectors: bytes


def pack(parts: Sequence[str], tokens: Sequence[TokenVectors]) -> bytes:
    """What is kept of the tokens of a memory: a uint16 with the number of passages, one for each passage with its
    number of tokens, a byte for each token that says whether it stands in a question, and its vector as int8.

    Function words and punctuation are left out: they have no part in what a memory is found by, and are half of
    it.

    Args:
        parts: The passages, as they were embedded.
        tokens: Theirs.
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
        # A text without any token still is a passage: one row of zeros, which nothing is like.
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
    # The "t" in "cats" is no word.
    if start and text[start - 1].isalnum() and piece[0].isalnum():
        return False
    return hash_stem(piece.lower()) == 0


def unpack(packed: bytes) -> Bag:
    """What `pack` packed."""
    passages = packed[0] | packed[1] << 8
    if passages == 1:  # Most memories; a search unpacks hundreds.
        total = packed[2] | packed[3] << 8
        return Bag((total,), packed[4 : 4 + total], packed[4 + total :])
    head = 2 + 2 * passages
    counts = np.frombuffer(packed[2:head], dtype="<u2").tolist()
    total = sum(counts)
    return Bag(counts, packed[head : head + total], packed[head + total :])


class QuestionTokens(NamedTuple):
    """The tokens of a question.

    Attributes:
        vectors: Shape (n, d), unit rows.
        weights: Shape (n,), together 1.
    """

    vectors: Matrix
    weights: Floats


def weigh(text: str, tokens: TokenVectors, rarity: Callable[[int], float]) -> QuestionTokens:
    """Say how much each token of a question counts: the rarity of its word, shared by the word's pieces.

    Args:
        text: The question, as it was embedded.
        tokens: Its tokens.
        rarity: Of a stem, by its hash, in the store that is searched.
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
    telling, filling = float(weights[~stops].sum()), float(weights[stops].sum())
    if telling > 0 and filling > _STOP_SHARE * telling:
        weights[stops] *= _STOP_SHARE * telling / filling
    return QuestionTokens(
        vectors=tokens.vectors[kept], weights=weights / np.float32(max(float(weights.sum()), 1e-9))
    )


class Match(NamedTuple):
    """How well the tokens of a question are found in each memory; 0 and more, 1 where each is found as it is.

    Attributes:
        window: In the memory and the turn before it.
        reply: The same, but in the memory's own statements and the questions before it.
        asked: In the questions of the turn before alone.
        known: Whether the memory has tokens at all.
    """

    window: Floats
    reply: Floats
    asked: Floats
    known: Any


def match(
    question: QuestionTokens, bags: Sequence[Bag | None], *, own: Ints, previous: Ints, gate: Floats
) -> Match:
    """Compare a question with memories.

    Args:
        question: The tokens that are looked for.
        bags: Those of the memories and of what was said before them; None where a memory has none yet.
        own: For each memory that is compared, its place in `bags`.
        previous: For each of them, the place in `bags` of what was said before it, or -1.
        gate: How much what was said before it counts for each.
    """
    have = np.array([place for place, bag in enumerate(bags) if bag is not None], dtype=np.int64)
    count = len(own)
    if not len(have) or not len(question.weights):
        nothing = np.zeros(count, dtype=np.float32)
        return Match(window=nothing, reply=nothing, asked=nothing, known=np.zeros(count, dtype=np.bool_))
    filled = [bag for bag in bags if bag is not None]
    every, stated, asking = (
        np.concatenate(blocks, axis=1) for blocks in zip(*_compare(question.vectors, filled), strict=True)
    )
    passages = np.array([len(bag.counts) for bag in filled], dtype=np.int64)
    starts = np.cumsum(passages) - passages
    # Of a memory as a whole the best passage counts, token by token. One more column stands for "none".
    blank = np.zeros((len(question.weights), 1), dtype=np.float32)
    whole = np.concatenate([np.maximum.reduceat(every, starts, axis=1), blank], axis=1)
    questions = np.concatenate([np.maximum.reduceat(asking, starts, axis=1), blank], axis=1)
    place_of = np.full(len(bags) + 1, -1, dtype=np.int64)
    place_of[have] = np.arange(len(have))
    own, previous = place_of[own], place_of[previous]
    known = own >= 0
    at = np.flatnonzero(known)
    # The passages of the memories that are compared, one after the other.
    sizes = passages[own[at]]
    first = np.cumsum(sizes) - sizes
    columns = np.repeat(starts[own[at]] - first, sizes) + np.arange(int(sizes.sum()))
    owner = np.repeat(at, sizes)
    window = np.zeros(count, dtype=np.float32)
    reply = np.zeros(count, dtype=np.float32)
    if len(at):
        for found, own_part, before, carry in (
            (window, every, whole, CARRY),
            (reply, stated, questions, CARRY_QUESTION),
        ):
            handed = (np.float32(carry) * gate)[owner] * before[:, previous[owner]]
            scores = question.weights @ np.maximum(own_part[:, columns], handed)
            found[at] = np.maximum.reduceat(scores, first)
    asked = gate * (question.weights @ questions)[previous]
    return Match(window=window, reply=reply, asked=asked.astype(np.float32), known=known)


def _compare(wanted: Matrix, bags: Sequence[Bag]) -> Iterator[tuple[Any, Any, Any]]:
    """For each passage of some memories, how well each token that is wanted is found in it: shape (tokens wanted,
    passages); of all its tokens, of those outside of questions, and of those in questions.
    """
    for block in _blocks(bags):
        counts = np.fromiter(chain.from_iterable(bag.counts for bag in block), dtype=np.int64)
        starts = np.cumsum(counts) - counts
        asks = np.frombuffer(b"".join(bag.asks for bag in block), dtype=np.bool_)
        stored = np.frombuffer(b"".join(bag.vectors for bag in block), dtype=np.int8)
        found = stored.reshape(len(asks), -1).astype(np.float32)
        cosines = product(found, (wanted / np.float32(127)).T).T
        every = np.maximum.reduceat(cosines, starts, axis=1)
        if asks.any():
            stated = np.maximum.reduceat(np.where(asks, np.float32(-1), cosines), starts, axis=1)
            asking = np.maximum.reduceat(np.where(asks, cosines, np.float32(-1)), starts, axis=1)
        else:
            stated, asking = every, np.full_like(every, -1)
        yield _found(every), _found(stated), _found(asking)


def _found(cosines: Any) -> Any:
    """How far a token is found, 0 to 1, by the cosine of the nearest."""
    least, most = _logistic(np.float32(0)), _logistic(np.float32(1))
    return (_logistic(np.clip(cosines, 0, 1)) - least) / (most - least)


def _logistic(cosines: Any) -> Any:
    return 1 / (1 + np.exp((np.float32(ALIKE) - cosines) / np.float32(SOFTNESS)))


def _blocks(bags: Sequence[Bag]) -> Iterator[list[Bag]]:
    """Some bags at a time, `_TOKENS_AT_ONCE` at most unless one has more."""
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
