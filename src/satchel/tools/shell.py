"""Reads a shell command far enough to say which programs it would start: for permission rules, not for
running.

Two readings of one command. `simple_commands` is strict: it understands plain commands joined by `;`, `&&`,
`||`, `|`, `&` and newlines, and gives None for everything else, so that an allow rule never covers what was
not understood. `possible_commands` is generous: it gives everything that might be a command, so that a deny
rule finds it. It can still be fooled (`x=rm; $x -rf /`); what holds a hostile command is a sandbox, not a
rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from satchel.tools.programs import ASSIGNMENT, WRAPPERS

__all__ = ["MAX_CHARS", "possible_commands", "simple_commands", "words_text"]

MAX_CHARS = 65_536
"""Longer commands are not read; a command line that a person could judge is far shorter."""
MAX_STARTS = 256
"""How many words behind a wrapper are tried as the beginning of its command."""
RESERVED = frozenset(
    [
        "!",
        "[[",
        "]]",
        "case",
        "coproc",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "time",
        "until",
        "while",
        "{",
        "}",
    ],
)
EXEC_OPTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
"""What `find` is told a command by."""
HARMLESS_REDIRECTION = re.compile(
    r"(?:[12]?>&[12]|&?[12]?>{1,2}[ \t]*/dev/null|<[ \t]*/dev/null)(?=[ \t\n;&|]|\Z)"
)
"""`2>&1`, `>/dev/null` and the like, at the start of a word: they write nothing that lasts."""
CONTINUES = frozenset({"&&", "||", "|", "|&"})
"""After these a command has to follow."""
CUTS = re.compile(r"[;&|\n\r(){}`<>!]|\$\(")
BLANK = re.compile(r"\$\{?IFS\}?(?:\$\d)?")
"""What a shell makes white space of."""


def simple_commands(command: str) -> list[list[str]] | None:
    """The words of each simple command, without quotes, in order; None where any part was not understood.

    Not understood are: an expansion (`$`, backticks), a redirection other than to /dev/null or between 1 and
    2, parentheses, braces, a comment, a line continuation, a reserved word, a leading assignment, a command
    word with a glob or a tilde, a control character, an open quote, an empty part, more than `MAX_CHARS`.
    """
    if len(command) > MAX_CHARS:
        return None
    parts: list[list[str]] = []
    words: list[str] = []
    owed = False
    at = 0
    while at < len(command):
        char = command[at]
        if char in " \t":
            at += 1
        elif redirection := HARMLESS_REDIRECTION.match(command, at):
            at = redirection.end()
        elif char in "\n;&|":
            operator = command[at : at + 2] if command[at : at + 2] in CONTINUES else char
            at += len(operator)
            if words:
                parts.append(words)
                words = []
                owed = operator in CONTINUES
            elif operator != "\n":
                return None
        else:
            read = _read_word(command, at)
            if read is None:
                return None
            word, at, is_plain = read
            if not words and (not is_plain or not word or word in RESERVED or ASSIGNMENT.fullmatch(word)):
                return None
            words.append(word)
    if words:
        parts.append(words)
    elif owed:
        return None
    return parts or None


def possible_commands(command: str) -> Iterator[list[str]]:
    """The words of everything in it that might be run as a command, more rather than fewer.

    Args:
        command: At most `MAX_CHARS`; who has a longer one should take it for anything.
    """
    joined = BLANK.sub(" ", command.replace("\\\n", ""))
    # Quotes are read as they are, cut at (for `sh -c 'rm x'`), and taken away (for a name that is written
    # r""m). A comma may be one of braces: `{rm,-r,x}`.
    cut = [fragment.split() for fragment in CUTS.split(re.sub(r"[\"']", ";", joined).replace("\\", ""))]
    bare = [fragment.split() for fragment in CUTS.split(re.sub(r"[\"'\\]", "", joined))]
    braced = [
        inner.replace(",", " ").split()
        for inner in re.findall(r"\{([^{}]*)\}", re.sub(r"[\"'\\]", "", joined))
    ]
    for words in [*(simple_commands(command) or ()), *cut, *bare, *braced]:
        for start in _starts(words):
            program, *arguments = words[start:]
            yield [program, *arguments]
            if "/" in program:
                yield [program.rstrip("/").rsplit("/", 1)[-1], *arguments]


def words_text(words: Sequence[str]) -> str:
    """The words as one line that a rule's pattern is compared with.

    A word with white space in it, and an empty one, stands in single quotes; nothing else is quoted.
    """
    return " ".join(f"'{word}'" if not word or re.search(r"\s", word) else word for word in words)


def _read_word(command: str, at: int) -> tuple[str, int, bool] | None:
    """One word from `at`: without its quotes, where it ends, and whether it has no glob and no tilde
    unquoted.

    None where it holds what is not understood.
    """
    word, is_plain = "", True
    if command[at] == "#":
        return None
    while at < len(command) and (char := command[at]) not in " \t\n;&|":
        if char in "$`(){}<>" or ord(char) < 32 or ord(char) == 127:
            return None
        if char == "'":
            end = command.find("'", at + 1)
            if end < 0 or "\0" in command[at:end]:
                return None
            word, at = word + command[at + 1 : end], end + 1
        elif char == '"':
            quoted = _double_quoted(command, at + 1)
            if quoted is None:
                return None
            word, at = word + quoted[0], quoted[1]
        elif char == "\\":
            if at + 1 >= len(command) or command[at + 1] in "\n\r\0":
                return None
            word, at = word + command[at + 1], at + 2
        else:
            is_plain = is_plain and char not in "*?[~"
            word, at = word + char, at + 1
    return word, at, is_plain


def _double_quoted(command: str, at: int) -> tuple[str, int] | None:
    """The text up to the closing quote and the place after it; None with an expansion in it, or left open."""
    text = ""
    while at < len(command):
        char = command[at]
        if char == '"':
            return text, at + 1
        if char in "$`\0":
            return None
        if char == "\\" and at + 1 < len(command):
            follows = command[at + 1]
            if follows in "\n\0":
                return None
            text += follows if follows in '$`"\\' else char + follows
            at += 2
        else:
            text += char
            at += 1
    return None


def _starts(words: Sequence[str]) -> list[int]:
    """Where a command may begin: at the first word; behind assignments, reserved words, wrappers, `-exec`."""
    starts: list[int] = []
    leading, wrapped = True, False
    for at, word in enumerate(words):
        if leading or wrapped or words[at - 1] in EXEC_OPTIONS:
            starts.append(at)
        if leading and word.rsplit("/", 1)[-1] in WRAPPERS:
            # What follows may be options of the wrapper, their values, or the command: each word is tried.
            wrapped = True
        if not (word in RESERVED or ASSIGNMENT.fullmatch(word)):
            leading = False
        if len(starts) == MAX_STARTS:
            break
    return starts
