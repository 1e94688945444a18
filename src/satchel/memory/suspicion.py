"""A first look at a text: whether it is worth searching for secrets at all. Nearly no text is."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["may_hold_secrets"]

# Cheap and too broad: a text without any of these has no secret, and the detectors need not be loaded for it. Words are
# looked for one by one: one expression for all of them takes ten times as long.
_WORDS: Final = (
    *("passw", "passphrase", "passcode", "contraseñ", "mot de passe", "pwd", "secret", "token", "credential"),
    *("bearer", "authorization", "social security", "key", "putty", "cvv"),
    *("seed phrase", "recovery phrase", "mnemonic phrase", "backup phrase"),
    *("seed words", "recovery words", "mnemonic words", "backup words"),
    *("seed code", "recovery code", "mnemonic code", "backup code"),
)
_WHOLE_WORDS: Final = re.compile(r"\b(?:pin|ssn)\b|_pass\b")
_SHAPES: Final = re.compile(
    r"(?<![\w-])[\w-]{20}|://[^\s/]*@|\d{4}[ -]?\d{4}[ -]?\d|\d{4}[ -]\d{6}[ -]\d"
    # Bank accounts and Artifactory's tokens are in capitals, and nearly no text has such a word.
    r"|[A-Z]{2}\d{2} ?[A-Z0-9]{4} ?[A-Z0-9]{4}|AP[0-9A-F]\w{8}"
)


def may_hold_secrets(text: str) -> bool:
    """Whether it is worth looking; False is certain, and cheap."""
    folded = text.casefold()
    return (
        any(map(folded.__contains__, _WORDS))
        or _WHOLE_WORDS.search(folded) is not None
        or _SHAPES.search(text) is not None
    )
