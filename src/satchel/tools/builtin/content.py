"""Recognises a file's content: text and its encoding, or another known format."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from satchel.tools.kept import media_type_of

SAMPLE_BYTES = 65_536
"""Bytes at the beginning of a file that are examined."""
CERTAIN_BYTES = 32
"""With fewer non-ASCII bytes, single-byte encodings can't be told apart; Western European is assumed."""
CANDIDATES = [
    "cp1252",
    "cp1250",
    "cp1251",
    "koi8_r",
    "cp1253",
    "cp1255",
    "cp1256",
    "shift_jis",
    "euc_jp",
    "gb18030",
    "big5",
    "euc_kr",
]
"""The usual encodings of text without a byte-order mark. With more candidates, short texts would be mistaken for
exotic ones."""
HOLE = re.compile(rb"\0{512,}")
BOMS = (
    # Longer marks first: the mark of UTF-32-LE begins with that of UTF-16-LE.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
NEVER_TEXT = (
    b"%PDF-", b"\xff\xd8\xff", b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c",
    b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe", b"\x93NUMPY", b"\x1aE\xdf\xa3",
)  # fmt: skip
"""Beginnings of binary files that may not contain a NUL byte in the sample: PDF, JPEG, gzip, xz, Zstandard, 7-Zip,
Java and macOS programs, NumPy, Matroska."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text file's encoding: the codec's name, and the byte-order mark at the beginning, or b""."""

    name: str
    bom: bytes = b""

    @property
    def is_wide(self) -> bool:
        """Whether a line break takes more than one byte."""
        return self.name.startswith(("utf-16", "utf-32"))

    @property
    def errors(self) -> str:
        """The error handler that preserves undecodable bytes."""
        return "surrogateescape" if self.name == "utf-8" else "strict"


def detect_encoding(sample: bytes) -> Encoding | None:
    """The encoding of a file that begins with `sample`; None if it is not text."""
    for bom, name in BOMS:
        if sample.startswith(bom):
            return Encoding(name, bom)
    if sample and not sample.strip(b"\0"):
        return None
    # A sparse file, or a log that was truncated while open, has a run of NULs between its lines.
    sample = HOLE.sub(b"", sample)
    if b"\0" in sample or sample.startswith(NEVER_TEXT):
        return None
    # The sample may end in the middle of a character.
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    try:
        decoder.decode(sample)
    except UnicodeDecodeError:
        return _guess(sample)
    return Encoding("utf-8")


def describe_binary(head: bytes, size: int) -> str:
    """A description of a file that is not text, with its size."""
    kind = media_type_of(head)
    what = kind if kind.startswith(("image/", "audio/", "application/pdf")) else "binary"
    return f"{what}, {size:,} bytes"


def _guess(sample: bytes) -> Encoding | None:
    controls = sum(sample.count(byte) for byte in (*range(8), *range(14, 27), *range(28, 32)))
    # Text has hardly any control characters; in compressed or compiled data one byte in nine is one.
    if controls > len(sample) / 100:
        return None
    if sum(byte > 127 for byte in sample) >= CERTAIN_BYTES:
        # Imported when used: most files are UTF-8 and never need it.
        from charset_normalizer import from_bytes  # noqa: PLC0415

        best = from_bytes(sample, cp_isolation=CANDIDATES).best()
        if best is not None:
            return Encoding(codecs.lookup(best.encoding).name)
    try:
        sample.decode("cp1252")
    except UnicodeDecodeError:
        return Encoding("iso8859-1")
    return Encoding("cp1252")
