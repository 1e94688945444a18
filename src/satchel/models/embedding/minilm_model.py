"""The weights of all-MiniLM-L6-v2, mapped from the file that they came in, and what is computed with them.

The module is loaded when something is embedded first: numpy takes 0.1 s. Arrays hold a token in each column, so that
every product has a matrix of the file on its left, as it lies there, and nothing is copied or repacked.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from satchel.models.embedding.rows import MULTIPLICATIONS_AT_ONCE

if TYPE_CHECKING:
    from satchel.models.port import Vectors

_LAYERS, _HEADS, _WIDTH = 6, 12, 384
_HEAD: Final = _WIDTH // _HEADS
_EPSILON: Final = 1e-12
_COLUMNS: Final = 16
"""Tokens in one product. Measured with 20 tokens: products of 32 rows by 16 tokens reach 63 billion multiplications
and additions a second, one undivided product 44, because OpenBLAS packs nothing for small ones."""

# erf(x) for |x| <= 4 as x·P(x²)/Q(x²), which float32 can't tell from the exact value; Eigen and XLA use these numbers.
_ABOVE: Final = tuple(
    np.float32(number)
    for number in (
        -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
        -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
    )
)  # fmt: skip
_BELOW: Final = tuple(
    np.float32(number)
    for number in (
        -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
        -1.42647390514189e-02,
    )
)  # fmt: skip

DAMAGED = (OSError, ValueError, KeyError, TypeError, struct.error)
"""What reading a damaged file raises."""


class _Dense(NamedTuple):
    """`weight` (out, in) and `bias` (out, 1)."""

    weight: Any
    bias: Any


class _Layer(NamedTuple):
    query: _Dense
    key: _Dense
    value: _Dense
    attended: _Dense
    attended_norm: _Dense
    inner: _Dense
    outer: _Dense
    norm: _Dense


class MiniLm(NamedTuple):
    """The weights; all are mapped, so only what is used is read."""

    words: Any
    positions: Any
    norm: _Dense
    layers: tuple[_Layer, ...]

    def hidden(self, texts: Sequence[Sequence[int]]) -> list[Vectors]:
        """The last hidden state of each text, given as ids of tokens: shape (tokens, 384) each."""
        lengths = [len(ids) for ids in texts]
        ends = np.cumsum(lengths).tolist()
        spans = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        rows = self.words[np.concatenate(texts)]
        rows += np.concatenate([self.positions[:length] for length in lengths])
        states = _normalised(np.ascontiguousarray(rows.T), self.norm)
        for layer in self.layers:
            query, key, value = (_product(part, states) for part in (layer.query, layer.key, layer.value))
            query *= np.float32(_HEAD**-0.5)
            mixed = np.empty_like(states)
            for span in spans:
                _attend(query[:, span], key[:, span], value[:, span], mixed[:, span])
            mixed = _product(layer.attended, mixed)
            mixed += states
            states = _normalised(mixed, layer.attended_norm)
            # A few tokens at a time: their 1,536 numbers stay in the processor's cache between the two products.
            deeper = np.empty_like(states)
            for left in range(0, states.shape[1], _COLUMNS):
                some = slice(left, left + _COLUMNS)
                deeper[:, some] = _product(layer.outer, _gelu(_product(layer.inner, states[:, some])))
            deeper += states
            states = _normalised(deeper, layer.norm)
        return [states[:, span].T for span in spans]


def load(path: Path) -> MiniLm:
    """Map the weights of a file in the format safetensors.

    Raises:
        ValueError: It isn't one, or another of `DAMAGED`.
    """
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        table = json.loads(stream.read(length))
    data = np.memmap(path, np.uint8, mode="r", offset=8 + length)

    def tensor(name: str) -> Any:
        begin, end = table[name]["data_offsets"]
        return np.asarray(data[begin:end]).view("<f4").reshape(table[name]["shape"])

    def dense(name: str) -> _Dense:
        return _Dense(tensor(f"{name}.weight"), tensor(f"{name}.bias")[:, None])

    def layer(name: str) -> _Layer:
        return _Layer(
            query=dense(f"{name}.attention.self.query"),
            key=dense(f"{name}.attention.self.key"),
            value=dense(f"{name}.attention.self.value"),
            attended=dense(f"{name}.attention.output.dense"),
            attended_norm=dense(f"{name}.attention.output.LayerNorm"),
            inner=dense(f"{name}.intermediate.dense"),
            outer=dense(f"{name}.output.dense"),
            norm=dense(f"{name}.output.LayerNorm"),
        )

    return MiniLm(
        words=tensor("embeddings.word_embeddings.weight"),
        # There is one segment only, so its vector belongs to every position.
        positions=tensor("embeddings.position_embeddings.weight")
        + tensor("embeddings.token_type_embeddings.weight")[0],
        norm=dense("embeddings.LayerNorm"),
        layers=tuple(layer(f"encoder.layer.{number}") for number in range(_LAYERS)),
    )


def _product(dense: _Dense, columns: Any) -> Any:
    """`weight @ columns + bias` on the calling thread alone: shape (out, n)."""
    weight, bias = dense
    height, depth = weight.shape
    count = columns.shape[1]
    found = np.empty((height, count), np.float32)
    # A stack of products of some rows each. A power of two divides every height.
    rows = 1 << (max(1, MULTIPLICATIONS_AT_ONCE // (depth * _COLUMNS)).bit_length() - 1)
    stack = weight.reshape(-1, rows, depth)
    into = found.reshape(-1, rows, count)
    for left in range(0, count, _COLUMNS):
        some = slice(left, left + _COLUMNS)
        np.matmul(stack, columns[:, some], out=into[:, :, some])
    found += bias
    return found


def _attend(query: Any, key: Any, value: Any, into: Any) -> None:
    """Mix the values of one text, each array of shape (384, tokens), as the keys answer the queries."""
    count = query.shape[1]
    query, key, value = (part.reshape(_HEADS, _HEAD, count) for part in (query, key, value))
    into = into.reshape(_HEADS, _HEAD, count)
    step = max(1, MULTIPLICATIONS_AT_ONCE // (_HEAD * count))
    for left in range(0, count, step):
        some = slice(left, left + step)
        weights = np.matmul(key.transpose(0, 2, 1), query[:, :, some])
        weights -= weights.max(axis=1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=1, keepdims=True)
        np.matmul(value, weights, out=into[:, :, some])


def _normalised(columns: Any, norm: _Dense) -> Any:
    """Columns with mean 0 and variance 1, then scaled and shifted."""
    columns = columns - columns.mean(axis=0)
    columns /= np.sqrt(np.einsum("ij,ij->j", columns, columns) / _WIDTH + _EPSILON)
    columns *= norm.weight[:, None]
    columns += norm.bias
    return columns


def _gelu(values: Any) -> Any:
    """`x · (1 + erf(x / √2)) / 2`."""
    scaled = np.clip(values * np.float32(math.sqrt(0.5)), -4, 4)
    square = scaled * scaled
    above, below = _polynomial(_ABOVE, square), _polynomial(_BELOW, square)
    above *= scaled
    above /= below
    above += 1
    above *= values
    above *= np.float32(0.5)
    return above


def _polynomial(numbers: Sequence[Any], at: Any) -> Any:
    total = at * numbers[0]
    for number in numbers[1:-1]:
        total += number
        total *= at
    total += numbers[-1]
    return total
