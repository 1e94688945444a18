"""The browsers that are logged in to a home's server, and the codes that log one in."""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64decode
from collections.abc import Callable
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from satchel.clock import Clock
from satchel.config.home import locked_folder, replace_file

BROWSERS_FILE: Final = "browsers.json"
CODE_LASTS_S: Final = 600.0
"""How long a login link works: enough to walk to another window, and over before a terminal's history is read."""

LOGIN_LASTS: Final = timedelta(days=30)
MOST_BROWSERS: Final = 100
MOST_CODES: Final = 20
SECRET_BYTES: Final = 32
_LOGINS: Final = "logins"
"""Not "browsers", the earlier name: cookies of then were sent to every port of the host, so they no longer log in."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}")


class Browsers:
    """Knows which browsers have logged in.

    A browser sends a random value that is made for it, never the token of the home. The file holds only digests of
    these values, so that its reader can't log in with them. With another token, all browsers have to log in again.
    """

    def __init__(self, home: Path, *, token: str, clock: Clock, file: str = BROWSERS_FILE) -> None:
        """Read the file in `home`, which only its owner can read; one that is missing or broken holds no browser."""
        self._home = home
        self._file = home / file
        self._token = digest_of(token)
        self._token_text = token
        self._clock = clock
        self._until = self._read()
        self._codes: dict[str, float] = {}

    def is_token(self, given: str) -> bool:
        """Whether this is the token of the home. The time tells nothing of it."""
        return compare_digest(digest_of(given), self._token)

    def holds_token(self, text: str) -> bool:
        """Whether the token of the home is in a text, also if it was encoded for an address or for basic auth there."""
        token, plain = self._token_text, unquote(text)
        return (
            token in text or token in plain or any(token in _decoded(word) for word in _BASE64.findall(plain))
        )

    # One-time codes

    def make_code(self) -> str:
        """A code that logs in one browser within `CODE_LASTS_S`. It is only in the memory of this process."""
        now_s = self._clock.monotonic_s()
        fresh = [(code, until_s) for code, until_s in self._codes.items() if until_s > now_s]
        self._codes = dict(fresh[-(MOST_CODES - 1) :])
        code = secrets.token_urlsafe(SECRET_BYTES)
        self._codes[digest_of(code)] = now_s + CODE_LASTS_S
        return code

    def use_code(self, code: str) -> bool:
        """Whether the code logs in; it does so once."""
        until_s = self._codes.pop(digest_of(code), None)
        return until_s is not None and until_s > self._clock.monotonic_s()

    # Browsers

    def log_in(self) -> str:
        """Remember a browser for thirty days. Returns what it has to send.

        Raises:
            StorageUnwritable: The file can't be written.
        """
        value = secrets.token_urlsafe(SECRET_BYTES)
        self.keep(value)
        return value

    def keep(self, value: str) -> None:
        """Remember the browser that sends this value for thirty days. Errors as in `log_in`."""
        until = self._clock.now() + LOGIN_LASTS
        self._change(lambda known: known.update({digest_of(value): until}))

    def knows(self, value: str) -> bool:
        """Whether the browser that sends this value is logged in."""
        until = self._until.get(digest_of(value))
        return until is not None and until > self._clock.now()

    async def known(self, value: str) -> bool:
        """`knows`, for the loop of events."""
        return self.knows(value)

    def log_out(self, value: str) -> None:
        """Forget a browser; one that is not known is none. Errors as in `log_in`."""
        self._change(lambda known: known.pop(digest_of(value), None))

    def log_out_all(self) -> None:
        """Forget every browser. Errors as in `log_in`."""
        self._change(lambda known: known.clear())

    def _change(self, change: Callable[[dict[str, datetime]], Any]) -> None:
        with locked_folder(self._home):
            known, now = self._read(), self._clock.now()
            change(known)
            # The sort is stable: of two that end at the same time, the later one is newer.
            lasting = sorted((each for each in known.items() if each[1] > now), key=lambda each: each[1])
            self._until = dict(lasting[-MOST_BROWSERS:])
            content = {
                "token": self._token,
                _LOGINS: {digest: until.isoformat() for digest, until in self._until.items()},
            }
            replace_file(self._file, json.dumps(content, indent=2) + "\n")

    def _read(self) -> dict[str, datetime]:
        try:
            content = json.loads(self._file.read_bytes())
            if content["token"] != self._token:
                return {}
            return {str(key): datetime.fromisoformat(until) for key, until in content[_LOGINS].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}


def _decoded(word: str) -> str:
    try:
        return b64decode(word + "===", altchars=b"-_").decode("latin-1")
    except ValueError:
        return ""


def digest_of(text: str) -> str:
    """What is kept of a secret with 256 random bits."""
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
