"""The forms of secrets, and where a text has them; its patterns take 15 ms to load.

Services and headers (`tokens`), keys with a value (`settings`), passwords on command lines (`shells`) and in sentences
(`spoken`), cards, accounts and numbers of persons (`numbers`). A long random text alone is
no secret: hashes of commits, checksums and ids stay as they are (docs/guides/privacy.md has what was measured).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from satchel.memory.text.credentials.numbers import find_numbers
from satchel.memory.text.credentials.secret import Secret
from satchel.memory.text.credentials.settings import find_in_files, find_settings
from satchel.memory.text.credentials.shells import find_in_commands
from satchel.memory.text.credentials.spoken import find_spoken, find_unnamed
from satchel.memory.text.credentials.tokens import find_tokens

__all__ = ["Secret", "candidates"]

_NAMES: Final = (
    "pass", "secret", "key", "token", "credential", "kennw", "psk", "auth", "pw", "contrase", "wachtwoord",
    "senha", "pin", "geheimz", "clave", "cod", "cód", "combo", "ombina", "cvv", "cvc", "puk", "login", "log-in",
    "admin", "root", "mdp", "parol", "hasło", "lösenord", "adgangskode", "salasana", "jelszó", "heslo", "şifre",
    "пароль", "кодовое", "密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "암호",
)  # fmt: skip
"""Parts of the names of secrets, one of which stands before whatever has a name: few texts have any."""


def candidates(text: str) -> Iterator[Secret]:
    """Whatever looks like a secret; they may overlap, and come in no order."""
    yield from find_tokens(text)
    lowered = text.lower()
    if any(name in lowered for name in _NAMES):
        yield from find_settings(text)
        yield from find_spoken(text)
    yield from find_in_files(text)
    yield from find_in_commands(text)
    yield from find_unnamed(text)
    yield from find_numbers(text)
