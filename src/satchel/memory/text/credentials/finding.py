"""The forms of secrets, and where a text has them; its patterns take 15 ms to load.

Services and headers (`tokens`), keys with a value (`settings`), passwords on command lines (`shells`), in sentences
(`spoken`) and spelled out (`spelled`), cards, accounts and numbers of persons (`numbers`). A long random text alone is
no secret: hashes of commits, checksums and ids stay as they are (docs/guides/privacy.md has what was measured).
"""

from __future__ import annotations

from collections.abc import Iterator

from satchel.memory.text.credentials.numbers import find_numbers
from satchel.memory.text.credentials.secret import Secret
from satchel.memory.text.credentials.settings import find_settings
from satchel.memory.text.credentials.shells import find_in_commands
from satchel.memory.text.credentials.spelled import find_spelled
from satchel.memory.text.credentials.spoken import find_spoken
from satchel.memory.text.credentials.tokens import find_tokens

__all__ = ["candidates"]


def candidates(text: str) -> Iterator[Secret]:
    """Whatever looks like a secret; they may overlap, and come in no order."""
    yield from find_tokens(text)
    yield from find_settings(text)
    yield from find_in_commands(text)
    yield from find_spoken(text)
    yield from find_spelled(text)
    yield from find_numbers(text)
