"""The weights of the Universal Sentence Encoder, unpacked into arrays that are mapped, and what is computed with them.

The module is loaded when something is embedded first: numpy takes 0.1 s.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from satchel.messages import clean_text
from satchel.models.embedding.rows import MULTIPLICATIONS_AT_ONCE
from satchel.models.embedding.unigram import Unigram

if TYPE_CHECKING:
    from satchel.models.port import Vectors

UNPACKED: Final = "unpacked-1"
"""The folder of the unpacked arrays, beside the files that were fetched; another number for another layout."""

_MAX_CHARS: Final = 32_768
"""Texts are truncated to this length; memory embeds passages, which are far shorter."""

_UNKNOWN, _BEGIN, _END = 0, 1, 2
_CHUNKS = 17
WIDTH = 512
_BRANCH = 256
_WINDOWS: Final = ((2, 0), (3, 1), (5, 2))
"""The size of each window, and how many of its pieces stand before the one that it belongs to."""

_ROWS_IN_BLOCK = 16
"""Of a product. Measured: 20 pieces take 54 µs of CPU each for 512 x 768 in blocks, and 229 µs with the threads."""

DAMAGED = (
    OSError,
    ValueError,
    KeyError,
    IndexError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)
"""What reading a damaged file raises."""


# The files.


def unpacked(folder: Path) -> Path:
    """The folder with arrays that can be mapped, made once: inflating them at each start would take a second."""
    place = folder / UNPACKED
    if not place.is_dir():
        for leftover in folder.glob(f".{UNPACKED}.*"):
            # From a process that was killed, or one that is at it now, which then makes its own again.
            shutil.rmtree(leftover, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{UNPACKED}.", dir=folder))
        try:
            _unpack(folder, fresh)
            # Another process may have been faster.
            with contextlib.suppress(OSError):
                fresh.rename(place)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return place


def _unpack(folder: Path, place: Path) -> None:
    # numpy doesn't close a file that it can't read.
    with (folder / "weights.npz").open("rb") as stream, np.load(stream, allow_pickle=False) as packed:
        rows, width = packed["q1"].shape
        table = np.lib.format.open_memmap(
            place / "table.npy", mode="w+", dtype=np.uint8, shape=(_CHUNKS * rows, width)
        )
        for chunk in range(_CHUNKS):
            table[chunk::_CHUNKS] = packed[f"q{chunk + 1}"]
        table.flush()
        arrays = {name: packed[name] for name in packed.files if name[0] != "q"}
    pieces, scores, charsmap = _read_pieces((folder / "sp.model").read_bytes())
    np.savez(
        place / "arrays.npz",
        scores=np.array(scores, np.float32),
        charsmap=np.frombuffer(charsmap, np.uint8),
        pieces=np.frombuffer("\n".join(pieces).encode(), np.uint8),
        **arrays,
    )


def _read_pieces(data: bytes) -> tuple[list[str], list[float], bytes]:
    """The pieces of words, their scores, and the table of characters' replacements, of a SentencePiece model."""
    pieces: list[str] = []
    scores: list[float] = []
    charsmap = b""
    for number, value in _fields(data):
        if number == 1:
            found = dict(_fields(value))
            pieces.append(found[1].decode())
            scores.append(struct.unpack("<f", found[2])[0] if 2 in found else 0.0)
        elif number == 3:
            charsmap = dict(_fields(value)).get(2, b"")
    if not pieces or not charsmap or any("\n" in piece for piece in pieces):
        raise ValueError("sp.model is not a SentencePiece model")
    return pieces, scores, charsmap


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message in Protocol Buffers' format, with their bytes; those of numbers are empty.

    Raises:
        ValueError: It isn't one.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        elif kind == 0:
            _, at = _varint(data, at)
            size = 0
        else:
            raise ValueError("sp.model has an unknown kind of field")
        if at + size > len(data):
            raise ValueError("sp.model is truncated")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # The highest bit says that another byte follows.
            return value, at
        shift += 7


# Computing.


class _Branch(NamedTuple):
    """The two layers that look at windows of one size, with biases."""

    first: Any
    first_bias: Any
    second: Any
    second_bias: Any


class UseModel(NamedTuple):
    """The weights in the shapes that they are multiplied in; `table` is mapped, one byte for each number."""

    tokenizer: Unigram
    table: Any
    scale: Any
    lowest: Any
    projection: Any
    projection_bias: Any
    branch_gain: Any
    branch_shift: Any
    branches: tuple[_Branch, ...]
    gain: Any
    shift: Any
    pooled: Any
    pooled_bias: Any
    dense: Mapping[str, Any]
    epsilon: float

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """The pieces of each text, with the marks of its beginning and its end."""
        return [
            [_BEGIN, *(self.tokenizer.encode(clean_text(text[:_MAX_CHARS])) or [_UNKNOWN]), _END]
            for text in texts
        ]

    def embed(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """Embed texts given as pieces: shape (len(texts), 512), not normalised."""
        lengths = np.array([len(pieces) for pieces in texts], np.int64)
        starts = np.cumsum(lengths) - lengths
        ids = np.fromiter(chain.from_iterable(texts), np.int64, count=int(lengths.sum()))
        count = len(ids)
        found = np.empty((count, WIDTH + len(_WINDOWS) * _BRANCH), np.float32)
        chunk = ids % _CHUNKS
        found[:, :WIDTH] = self.table[ids] * self.scale[chunk, None] + self.lowest[chunk, None]
        inner = _product(found[:, :WIDTH], self.projection) + self.projection_bias
        inner = _normalised(inner, self.branch_gain, self.branch_shift, self.epsilon)
        # What a window sees beyond the ends of its text is a row of zeros, the last one.
        padded = np.zeros((count + 1, _BRANCH), np.float32)
        first, last = np.repeat(starts, lengths)[:, None], np.repeat(starts + lengths, lengths)[:, None]
        for number, (size, before) in enumerate(_WINDOWS):
            at = np.arange(count)[:, None] + np.arange(-before, size - before)
            at = np.where((at >= first) & (at < last), at, count)
            branch = self.branches[number]
            state = inner[:, number * _BRANCH : (number + 1) * _BRANCH]
            for weights, bias in (
                (branch.first, branch.first_bias),
                (branch.second, branch.second_bias),
            ):
                padded[:count] = state
                seen = padded[at].reshape(count, size * _BRANCH)
                state = np.maximum(_product(seen, weights) + bias, 0) + state
            place = WIDTH + number * _BRANCH
            found[:, place : place + _BRANCH] = state
        found = _normalised(found, self.gain, self.shift, self.epsilon)
        size_of = lengths.astype(np.float32)[:, None]
        # The sum may be projected instead of each row, which is less work.
        mean = _product(np.add.reduceat(found, starts, axis=0), self.pooled) + size_of * self.pooled_bias
        mean /= np.sqrt(size_of)
        return self._dense_layers(mean)

    def _dense_layers(self, mean: Any) -> Vectors:
        dense = self.dense
        hidden = np.maximum(_product(mean, dense["d0"]), 0)
        hidden = np.maximum(_product(mean, dense["p1"]) + _product(hidden, dense["d1"]), 0)
        deeper = np.maximum(_product(hidden, dense["d2"]), 0)
        found: Vectors = np.tanh(_product(hidden, dense["p3"]) + _product(deeper, dense["d3"]))
        return found


def load(place: Path) -> UseModel:
    """The model of a folder that `unpacked` gave.

    Raises:
        ValueError: The files don't belong together, or one of `DAMAGED`.
    """
    with (place / "arrays.npz").open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
        arrays = {name: kept[name] for name in kept.files}
    sizes = [size for size, _ in _WINDOWS]

    def joined(name: str, *, axis: int = 0) -> Any:
        return np.concatenate([arrays[f"{name}{size}"] for size in sizes], axis=axis)

    table = np.load(place / "table.npy", mmap_mode="r", allow_pickle=False)
    pieces = arrays["pieces"].tobytes().decode().split("\n")
    if len(pieces) > len(table) or len(pieces) != len(arrays["scores"]):
        raise ValueError("the tables don't belong together")
    return UseModel(
        tokenizer=Unigram(pieces, arrays["scores"].tolist(), arrays["charsmap"].tobytes()),
        table=table,
        scale=arrays["scale"],
        lowest=arrays["lo"],
        projection=joined("proj", axis=1),
        projection_bias=joined("proj_b"),
        branch_gain=joined("ln_g"),
        branch_shift=joined("ln_b"),
        branches=tuple(
            _Branch(*(arrays[f"{name}_{size}"] for name in ("w1", "b1", "w2", "b2"))) for size in sizes
        ),
        gain=arrays["ln_g"],
        shift=arrays["ln_b"],
        pooled=arrays["cnn_W"],
        pooled_bias=arrays["cnn_b"],
        dense={name: arrays[name] for name in ("d0", "d1", "d2", "d3", "p1", "p3")},
        epsilon=float(arrays["eps"]),
    )


def _normalised(rows: Any, gain: Any, shift: Any, epsilon: float) -> Any:
    """Rows with mean 0 and variance 1, then scaled and shifted."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", rows, rows) / rows.shape[1]
    return rows / np.sqrt(variance + epsilon)[:, None] * gain + shift


def _product(rows: Any, columns: Any) -> Any:
    """`rows @ columns` on the calling thread alone, for matrices that are both large: block by block."""
    count, depth = rows.shape
    height = min(count, _ROWS_IN_BLOCK)
    width = max(1, MULTIPLICATIONS_AT_ONCE // (height * depth))
    found = np.empty((count, columns.shape[1]), np.float32)
    for top in range(0, count, height):
        for left in range(0, columns.shape[1], width):
            np.matmul(
                rows[top : top + height],
                columns[:, left : left + width],
                out=found[top : top + height, left : left + width],
            )
    return found
