"""Keyed hashes of forgotten words: they recognise words that come again, and without the key no guess can be tested."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final

from satchel.errors import StorageUnwritable

KEY_FILE: Final = "forgotten.key"
"""The key's file in the home, or beside a database that is opened without one."""
_KEY_BYTES: Final = 32
_MARK: Final = "k"
UNKEYED_BELOW: Final = _MARK
"""Hashes that an older version stored without a key are hexadecimal digits, which sort before this."""


class WordHasher:
    """Hashes words with the key of one home (HMAC-SHA-256)."""

    def __init__(self, key: Path | bytes | None) -> None:
        """Take the key, or its file, which is made when it is first needed; None is a key for this process only."""
        self._given = key

    @property
    def mark(self) -> str:
        """What the key is recognised by, without telling it."""
        return self._mac("mark", "")[:32]

    def content(self, text: str) -> str:
        """Hash a memory's words, as hexadecimal digits."""
        return self._mac("content", text)

    def words(self, session: str, content: str, *, turn: int | None = None) -> str:
        """Hash words that were said in a session, or in one turn of it, for its tombstones."""
        digest = hashlib.sha256(content.encode()).hexdigest()
        where = (session,) if turn is None else (session, str(turn))
        text = "".join(f"{len(part)}:{part};" for part in ("words", *where, digest))
        return self.rekeyed(hashlib.blake2b(text.encode(), digest_size=16).hexdigest())

    def rekeyed(self, unkeyed: str) -> str:
        """Turn what an older version stored into what `words` returns now."""
        return _MARK + self._mac("words", unkeyed)

    def key_for(self, purpose: str) -> bytes:
        """Another key, of 32 bytes, for all who have this one."""
        return bytes.fromhex(self._mac("derived", purpose))

    def signed(self, text: str, *, of: str) -> str:
        """A text with the proof that somebody with this key wrote it about something."""
        return f"{self.key_for(f'{of}: {text}').hex()} {text}"

    def proven(self, signed: str, *, of: str) -> str:
        """The text that was `signed`; "" if it was not, or about something else."""
        text = signed.partition(" ")[2]
        return text if hmac.compare_digest(self.signed(text, of=of).encode(), signed.encode()) else ""

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()

    @cached_property
    def _key(self) -> bytes:
        if isinstance(self._given, Path):
            return _key_in(self._given)
        return self._given or secrets.token_bytes(_KEY_BYTES)


def _key_in(file: Path) -> bytes:
    """Read the key, or make one; of two processes that make one at the same time, both get the first.

    Raises:
        StorageUnwritable: The file can't be read or written.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(secrets.token_bytes(_KEY_BYTES))
                stream.flush()
                os.fsync(stream.fileno())
            with suppress(FileExistsError):
                os.link(temporary, file)
        key = file.read_bytes()
    except OSError as error:
        raise StorageUnwritable(
            f"{file}, the key for hashes of forgotten words, can't be used: {error.strerror}."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    if len(key) < _KEY_BYTES:
        raise StorageUnwritable(f"{file} holds no key. Remove it, and Satchel makes a new one.")
    return key
