"""What the patterns of permission rules match: texts, commands, addresses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from satchel.addresses import DEFAULT_PORTS, ascii_host
from satchel.tools.shell import Words, command_text
from satchel.tools.urls import PlainUrl, plain_url

_PRINTS = frozenset({
    "basename", "cat", "cd", "cmp", "cut", "date", "df", "dirname", "du", "echo", "egrep", "false", "fgrep", "grep",
    "head", "id", "ls", "nl", "pwd", "readlink", "realpath", "stat", "tail", "tr", "true", "uname",
    "wc", "which",
})  # fmt: skip
"""Programs that only print, whatever words follow: no option starts a program or writes a file. `printf` and `test` are
not among them, since bash expands what their words name."""
_GIT_PRINTS = frozenset({"blame", "describe", "diff", "log", "ls-files", "shortlog", "show", "status"})
"""The same of git's subcommands, but for files in the sandbox that `--output` names and programs that settings name."""
Matcher: TypeAlias = Callable[[str], bool]


def matcher(pattern: str) -> Matcher:
    """Compile a pattern with `*` into a test of whole texts, which takes time in proportion to the text's length."""
    optional_arguments = pattern.endswith(" *") and not pattern.endswith("\\ *")
    whole = between_stars(pattern)
    without = between_stars(pattern[:-2]) if optional_arguments else None

    def matches(text: str) -> bool:
        return _match_pieces(whole, text) or (without is not None and _match_pieces(without, text))

    return matches


def between_stars(pattern: str) -> list[str]:
    """The literal text between a pattern's stars: one piece more than it has stars."""
    pieces = [""]
    for piece in re.findall(r"\\[\\*]|.", pattern, re.DOTALL):
        if piece == "*":
            pieces.append("")
        else:
            pieces[-1] += piece[-1]
    return pieces


def _match_pieces(pieces: Sequence[str], text: str) -> bool:
    first, *middle = pieces
    if not middle:
        return text == first
    *middle, last = middle
    if not text.startswith(first) or len(text) < len(first) + len(last) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        # Taking the earliest place is enough: it leaves the most text for the pieces that follow.
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def literal(pattern: str) -> str | None:
    """The only text that a pattern without stars matches; None for a pattern with stars."""
    pieces = between_stars(pattern)
    return pieces[0] if len(pieces) == 1 else None


def escaped(text: str) -> str:
    """Turn a text into a pattern that matches only that text."""
    return re.sub(r"[\\*]", r"\\\g<0>", text)


def covers(pattern: str, words: Words) -> bool:
    """Whether the pattern of a rule that allows matches one simple command, its stars any words."""
    return matcher(pattern)(command_text(words))


def has_star(pattern: str) -> bool:
    """Whether a pattern matches more than one text."""
    return len(between_stars(pattern)) > 1


def url_matches(pattern: str, url: str) -> bool:
    """Whether the pattern of a rule that allows matches a URL.

    A `*` in the host stands only for a part of the host, and every reading of the path must match.
    """
    scheme, separator, rest = pattern.partition("://")
    found = plain_url(url)
    if found is None:
        return False
    if not separator:
        return all(matcher(pattern)(spelling) for spelling in _spellings(found))
    netloc, slash, path = rest.partition("/")
    if not (
        matcher(scheme.lower())(found.scheme) and matcher(_plain_netloc(netloc, found.scheme))(found.netloc)
    ):
        return False
    if not slash:
        return netloc.endswith("*") or (set(found.paths) == {"/"} and not found.query)
    matches = matcher(f"/{path}")
    return all(matches(f"{each}{found.query}") for each in found.paths)


def url_may_match(pattern: str, url: str) -> bool:
    """Whether the pattern of a rule that denies or asks matches a URL in any of its spellings."""
    scheme, separator, rest = pattern.partition("://")
    netloc, slash, path = rest.partition("/")
    patterns = [pattern]
    if separator:
        patterns.append(f"{scheme.lower()}://{_plain_netloc(netloc, scheme.lower())}{slash}{path}")
    found = plain_url(url)
    spellings = [url, *(_spellings(found) if found is not None else ())]
    return any(matcher(each)(spelling) for each in patterns for spelling in spellings)


def _spellings(url: PlainUrl) -> list[str]:
    """The URL with each reading of its path."""
    return [f"{url.scheme}://{url.netloc}{path}{url.query}" for path in url.paths]


def _plain_netloc(pattern: str, scheme: str) -> str:
    """A pattern of a host and a port, spelled as a plain URL spells them; labels with a star stay."""
    host, colon, port = pattern.rpartition(":") if re.search(r":[0-9*]*$", pattern) else (pattern, "", "")
    labels = host.lower().removesuffix(".").split(".")
    plain = ".".join(label if label.isascii() else _plain_host(label) for label in labels)
    if not colon or port == str(DEFAULT_PORTS.get(scheme, "")):
        return _plain_host(plain)
    return f"{_plain_host(plain)}:{port}"


def _plain_host(host: str) -> str:
    is_bracketed = host.startswith("[")
    try:
        plain = ascii_host(host.strip("[]"))
    except ValueError:
        return host
    return f"[{plain}]" if is_bracketed else plain


def proposed_pattern(words: Words) -> str | None:
    """A pattern for a command and those like it that only print; None if only the command itself is to be allowed."""
    texts = [word.text for word in words]
    count = 2 if texts[0] == "git" and len(texts) > 1 and texts[1] in _GIT_PRINTS else 1
    if count == 1 and not only_prints(words):
        return None
    head = " ".join(texts[:count])
    return head if len(texts) == count else f"{head} *"


def only_prints(words: Words) -> bool:
    """Whether a command writes no file, starts no program and reaches no network, so that it may stand beside one that
    is granted more.
    """
    return words[0].text in _PRINTS
