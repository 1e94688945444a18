"""What the patterns of permission rules fit: texts, commands, addresses."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from satchel.tools.programs import RUNS_ANYTHING, SUBCOMMANDS, words_to_spell_out
from satchel.tools.shell import words_text

__all__ = [
    "Fits",
    "between_stars",
    "command_pattern",
    "covers",
    "escaped",
    "fit",
    "literal",
    "url_fits",
    "url_may_fit",
    "url_spellings",
]

Fits: TypeAlias = Callable[[str], bool]
_DEFAULT_PORTS = {"http": 80, "https": 443}


def fit(pattern: str) -> Fits:
    """A test whether a whole text fits a pattern with `*`; its time grows with the text's length alone."""
    optional_arguments = pattern.endswith(" *") and not pattern.endswith("\\ *")
    whole = between_stars(pattern)
    without = between_stars(pattern[:-2]) if optional_arguments else None

    def fits(text: str) -> bool:
        return _matches(whole, text) or (without is not None and _matches(without, text))

    return fits


def between_stars(pattern: str) -> list[str]:
    """The literal pieces of a pattern, one more than it has stars."""
    pieces = [""]
    for piece in re.findall(r"\\[\\*]|.", pattern, re.DOTALL):
        if piece == "*":
            pieces.append("")
        else:
            pieces[-1] += piece[-1]
    return pieces


def _matches(pieces: Sequence[str], text: str) -> bool:
    first, *middle = pieces
    if not middle:
        return text == first
    *middle, last = middle
    if not text.startswith(first) or len(text) < len(first) + len(last) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        # The earliest place is always good enough: what follows can only gain by it.
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def literal(pattern: str) -> str | None:
    """The one text that a pattern without stars fits, or None."""
    pieces = between_stars(pattern)
    return pieces[0] if len(pieces) == 1 else None


def escaped(text: str) -> str:
    """A text as a pattern that fits it alone."""
    return re.sub(r"[\\*]", r"\\\g<0>", text)


def covers(pattern: str, words: Sequence[str]) -> bool:
    """Whether an allow rule's pattern covers a command, with its own words for what starts another program."""
    text = words_text(words)
    if not fit(pattern)(text):
        return False
    count = words_to_spell_out(words)
    written = between_stars(pattern)[0]
    return not count or written == text or written.startswith(words_text(words[:count]) + " ")


def url_fits(pattern: str, url: str) -> bool:
    """Whether an allow rule's pattern fits an address: a `*` in its host stands for a part of the host alone."""
    scheme, separator, rest = pattern.partition("://")
    parts = re.fullmatch(r"([^:/?#\\]+)://([^/?#\\]*)(.*)", url.strip(), re.DOTALL)
    if not separator or parts is None:
        return fit(pattern)(url)
    host, slash, path = rest.partition("/")
    if not (fit(scheme.lower())(parts[1].lower()) and fit(host.lower())(parts[2].lower())):
        return False
    if not slash:
        return host.endswith("*") or parts[3] in ("", "/")
    return fit(f"/{path}")(parts[3] or "/")


def url_may_fit(pattern: str, url: str) -> bool:
    """Whether the pattern of a rule that denies or asks concerns an address, in any of its spellings."""
    fits = fit(pattern)
    return fits(url) or any(map(fits, url_spellings(url)))


def url_spellings(url: str) -> Iterator[str]:
    """The ways to write an address that lead to the same place, as far as is known: for rules that deny or ask.

    What may be written in capitals stands in small letters; the port that goes without saying, the dot at the end of a
    name and escapes are left out, `..` is followed, and a path stands where there is none.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
        host = unquote(parts.hostname or "").lower().rstrip(".")
    except ValueError:
        return
    scheme = parts.scheme.lower()
    named = f"[{host}]" if ":" in host else host
    netloc = named if port in (None, _DEFAULT_PORTS.get(scheme)) else f"{named}:{port}"
    for path in (parts.path or "/", _walked(unquote(parts.path))):
        yield parts._replace(scheme=scheme, netloc=netloc, path=path).geturl()


def _walked(path: str) -> str:
    """A path whose dots were followed; what stands behind its last slash stays there."""
    walked = posixpath.normpath(f"/{path.lstrip('/')}")
    return f"{walked}/" if path.endswith("/") and walked != "/" else walked


def command_pattern(words: Sequence[str]) -> str:
    """The narrowest pattern that fits a command and those most like it."""
    program = words[0]
    if program.rsplit("/", 1)[-1] in RUNS_ANYTHING or len(words) == 1 or words_to_spell_out(words):
        return escaped(words_text(words))
    if program in SUBCOMMANDS:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9:_-]*", words[1]):
            return escaped(words_text(words))
        return f"{escaped(program)} {words[1]} *"
    # Quoted where its name needs that, as the command is when the rule is compared with it.
    return f"{escaped(words_text(words[:1]))} *"
