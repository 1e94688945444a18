"""Masks possible secrets in settings that are shown.

If in doubt, it masks: even a package's name with a long number in it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

MASK: Final = "***"
_SECRET_NAME: Final = re.compile(
    r"pass(w|phrase|code|$)|pwd|secret|token|key|auth|bearer|credential|cookie|session|signature|\bpat\b|\bsig\b|dsn|pin$",
    re.IGNORECASE,
)
"""Words in the name of an option or a variable whose value is a secret."""
_TOKEN: Final = re.compile(
    # At least 16 letters and digits, with at least one of each, as in keys, hashes and UUIDs.
    r"(?<![\w+-])(?=[\w+=-]{0,99}\d)(?=[\w+=-]{0,99}[A-Za-z])[\w+=-]{16,}"
    # The prefixes of services' keys. Shorter ones are probably examples, but may be real.
    r"|\b(?:sk|pk|rk|gh[oprsu]|xox[a-z]|glpat|hf|npm|pypi|AKIA|AIza)[-_]?[A-Za-z0-9][\w-]{5,}"
)
_AFTER_NAME: Final = re.compile(
    r"(?P<name>(?<![\w-])[\w-]{0,64}(?:password|passwd|pwd|secret|token|key|authorization|credential|cookie)[\w-]{0,64}"
    r"[\"']?\s{0,9}[=:]\s{0,9}[\"']?(?:bearer\s{1,9}|basic\s{1,9})?|\bbearer\s{1,9}|\bbasic\s{1,9})"
    r"(?P<value>[^\s\"',;&]+)",
    re.IGNORECASE,
)
"""A name and a value in one text, as in a header or in code. Bounded, so that no text takes long to match."""
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"\'<>]+")


def mask_arguments(arguments: Sequence[str]) -> list[str]:
    """A program's arguments with possible secrets replaced by `***`.

    These are `--token X`, `--key=X`, `-e NAME=X`, keys, and passwords and queries in addresses. A short word without
    such a mark is shown.
    """
    shown: list[str] = []
    hides_next = False
    for argument in arguments:
        is_option = re.fullmatch(r"--?[A-Za-z][\w.-]*", argument) is not None
        name, separator, _ = argument.partition("=")
        if hides_next and not is_option:
            shown.append(MASK)
            hides_next = False
            continue
        hides_next = is_option and _SECRET_NAME.search(argument.lstrip("-")) is not None
        if is_option:
            shown.append(argument)
        elif separator and re.fullmatch(r"-{0,2}[\w.-]+", name):
            is_secret = _SECRET_NAME.search(name) is not None or name.isupper()
            value = argument[len(name) + 1 :]
            shown.append(f"{name}={MASK if is_secret and value else mask_text(value)}")
        else:
            shown.append(mask_text(argument))
    return shown


def masked_command(command: str, arguments: Sequence[str]) -> str:
    """A command as it would be typed in a shell, with `***` for what may be a secret."""
    return " ".join(map(_quoted, [command, *mask_arguments(arguments)]))


def _quoted(word: str) -> str:
    # Quotes around MASK alone would say nothing: nobody runs a command without its secrets.
    bare = word.replace(MASK, "x")
    return word if shlex.quote(bare) == bare else shlex.quote(word)


def mask_text(text: str) -> str:
    """A text with `***` for keys, for what follows words such as "password", and for secrets in addresses."""
    text = _URL.sub(lambda found: mask_address(found[0]), text)
    text = _AFTER_NAME.sub(lambda found: f"{found['name']}{MASK}", text)
    return _TOKEN.sub(MASK, text)


def mask_address(address: str) -> str:
    """The address with `***` for possible secrets: the password before the host, keys in the path, the query."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return MASK
    host = parts.netloc.rpartition("@")[2]
    user = parts.username if parts.password else None
    netloc = f"{user + ':' if user else ''}{MASK}@{host}" if "@" in parts.netloc else host
    return parts._replace(
        netloc=netloc, path=_TOKEN.sub(MASK, parts.path), query=MASK if parts.query else "", fragment=""
    ).geturl()
