"""Recognises a file's content: text and its encoding, an image and its size, or another known format."""

from __future__ import annotations

import codecs
import re
import struct
from dataclasses import dataclass

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
MAGIC = (
    (b"%PDF-", "a PDF document"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program"),
    (b"PK\x03\x04", "a ZIP archive (or a document, book or package that is one)"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "gzip-compressed"),
    (b"BZh", "bzip2-compressed"),
    (b"\xfd7zXZ\x00", "xz-compressed"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xca\xfe\xba\xbe", "a Java class or a macOS program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"\x00asm", "WebAssembly"),
    (b"PAR1", "a Parquet table"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"GGUF", "a GGUF language model"),
    (b"OggS", "Ogg audio or video"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"\x1aE\xdf\xa3", "Matroska or WebM video"),
    (b"wOF2", "a web font"),
    (b"\x00\x01\x00\x00\x00", "a TrueType font"),
    (b"OTTO", "an OpenType font"),
)

NEVER_TEXT = (b"%PDF-", b"\xff\xd8\xff", *(magic for magic, _ in MAGIC if max(magic) > 127))
"""Beginnings of binary files that may not contain a NUL byte in the sample."""


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
    what = _image(head) or next((words for magic, words in MAGIC if head.startswith(magic)), "")
    if not what and head[257:262] == b"ustar":
        what = "a tar archive"
    if not what and head[4:8] == b"ftyp":
        what = "MP4 video or audio"
    return f"{what or 'binary'}, {size:,} bytes"


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


def _image(head: bytes) -> str:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        return "a PNG image, {} × {} pixels".format(*struct.unpack(">II", head[16:24]))
    if head[:6] in {b"GIF87a", b"GIF89a"} and len(head) >= 10:
        return "a GIF image, {} × {} pixels".format(*struct.unpack("<HH", head[6:10]))
    if head.startswith(b"BM") and len(head) >= 26:
        return "a BMP image, {} × {} pixels".format(*map(abs, struct.unpack("<ii", head[18:26])))
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp(head)
    if head.startswith(b"\xff\xd8\xff"):
        return _jpeg(head)
    if head[:4] in {b"II*\x00", b"MM\x00*"}:
        return "a TIFF image"
    if head[4:12] in {b"ftypavif", b"ftypheic"}:
        return "an AVIF or HEIC image"
    return "an icon" if head.startswith(b"\x00\x00\x01\x00") else ""


def _webp(head: bytes) -> str:
    match head[12:16]:
        case b"VP8X":
            width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = (value & 0x3FFF for value in struct.unpack("<HH", head[26:30]))
    return f"a WebP image, {width} × {height} pixels"


def _jpeg(head: bytes) -> str:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        # The frame headers SOF0 to SOF15, without the tables DHT, JPG and DAC among them.
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return f"a JPEG image, {width} × {height} pixels"
        at += 2 + length
    return "a JPEG image"
