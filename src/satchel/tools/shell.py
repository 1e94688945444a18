"""Reads a shell command for permission rules: which programs it starts, with which words. Nothing is run.

A command is read in two ways. `read_commands` is strict: it accepts plain commands joined by `;`, `&&`, `||`,
`|`, `|&`, `&` and newlines, and returns None for everything else, so that a rule that allows never covers a
construct that was not understood. `possible_commands` is generous: it yields everything that might be a
command, so that a rule that denies finds it. The generous reading can be evaded (`x=rm; $x -rf /`); only a
sandbox contains a hostile command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=.*", re.DOTALL)
WRAPPERS = frozenset([
    "bwrap", "builtin", "busybox", "chroot", "chrt", "command", "doas", "env", "eval", "exec", "firejail",
    "flock", "ionice", "ltrace", "nice", "nohup", "nsenter", "parallel", "prlimit", "proot", "runuser",
    "script", "setpriv", "setsid", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset",
    "time", "timeout", "toybox", "unbuffer", "unshare", "valgrind", "watch", "xargs", "xvfb-run",
])  # fmt: skip
"""Programs whose arguments are another command; a rule that denies looks behind them."""
MAX_CHARS = 65_536
"""Longer commands are not read; a command that a person could judge is far shorter."""
MAX_STRICT_CHARS = 4_096
"""Where the strict reading stops: the parser's time for hostile input grows faster than the input (0.2 s for
4,096 characters of `a=(`, 49 s for 60,000 of `a|`)."""
MAX_STARTS = 256
"""How many words after a wrapper are tried as the start of its command."""
RESERVED = frozenset([
    "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "time", "until", "while", "{", "}",
])  # fmt: skip
EXEC_OPTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
"""The options of `find` that are followed by a command."""
HARMLESS_REDIRECTION = re.compile(r"[12]?>&[12]|[12]?>{1,2}[ \t]*/dev/null|<[ \t]*/dev/null")
"""`2>&1`, `>/dev/null` and the like. `&>` is not among them: other shells read it as `&` followed by `>`."""
STRUCTURE = frozenset({"program", "list", "pipeline", "redirected_statement", "command", "command_name"})
"""The grammar's nodes that are read through to their children."""
WORDS = frozenset({"word", "number", "raw_string", "string", "concatenation"})
"""The grammar's nodes that are words of a command."""
OPERATORS = frozenset({";", "&", "&&", "||", "|", "|&"})
CONTINUES = frozenset({"&&", "||", "|", "|&"})
"""The operators that must be followed by a command."""
CUTS = re.compile(r"[;&|\n\r(){}`<>!]|\$\(")
REDIRECTION = re.compile(r"""(?:\d+|&(?=>))?[<>]{1,3}[&|]?[ \t]*(?:'[^']*'|"[^"]*"|\\.|[^\s;&|<>()'"\\])*""")
"""Any redirection with its target; the words after it belong to the command before it."""
BLANK = re.compile(r"\$\{?IFS\}?(?:\$\d)?")
"""Expansions that a shell turns into white space."""
SPECIAL = re.compile(r"[\s'\"\\$`;&|<>(){}*?\[!]|\A[#~]|\A\Z")
"""What must be quoted in a word so that it stands for itself."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command.

    Attributes:
        expands: It holds an unquoted glob or tilde, so that the program may get other words in its place.
    """

    text: str
    expands: bool = False


Words: TypeAlias = tuple[Word, ...]
"""The words of one simple command, the program's name first; never empty."""


@lru_cache(maxsize=64)  # each rule that denies or asks reads the same commands again
def read_commands(command: str) -> tuple[Words, ...] | None:
    """The simple commands of a command line, in order, or None where any part of it was not understood.

    Understood are plain and quoted words, globs in arguments, the operators that join commands, and
    redirections to /dev/null or between 1 and 2. Not understood, among everything else, are expansions (`$`,
    backticks, braces), other redirections, here-documents, compound commands, functions, assignments, comments,
    line continuations, control characters, a program's name with a glob or a tilde, and a line of more than
    `MAX_STRICT_CHARS`.
    """
    if len(command) > MAX_STRICT_CHARS:
        return None
    try:
        source = command.encode()
    except UnicodeEncodeError:
        return None
    root = _parser().parse(source).root_node
    pieces = None if root.has_error else _pieces(root)
    return None if pieces is None else _joined(source, pieces)


@cache
def _parser() -> Parser:
    import tree_sitter  # noqa: PLC0415  - 0.02 s; only a session that runs commands needs it
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


@dataclass(frozen=True, slots=True)
class _Piece:
    """An operator, a redirection or a word, and where the command that it belongs to starts."""

    node: Node
    command_start: int


def _pieces(root: Node) -> list[_Piece] | None:
    """The pieces of a tree in their order, or None where it holds a construct that is not understood."""
    pieces: list[_Piece] = []
    # Not by recursion: a list of 800 commands is a tree 800 levels deep.
    waiting = [_Piece(root, 0)]
    while waiting:
        piece = waiting.pop()
        node = piece.node
        if node.type in STRUCTURE:
            start = node.start_byte if node.type == "command" else piece.command_start
            waiting.extend(_Piece(child, start) for child in reversed(node.children))
        elif node.type in WORDS or node.type in OPERATORS or node.type == "file_redirect":
            pieces.append(piece)
        else:
            return None
    return pieces


def _joined(source: bytes, pieces: Sequence[_Piece]) -> tuple[Words, ...] | None:
    """The commands that the pieces make, or None where bash might see others.

    The grammar is more lenient than bash: it takes a line continuation for a blank, and gives a redirection more
    words than its target. So the tree only says what each piece is. What separates two pieces is checked here, byte
    by byte, and must agree with the tree.
    """
    commands: list[Words] = []
    words: list[Word] = []
    at, start, operator = 0, -1, ";"
    is_open = False
    for piece in pieces:
        node, gap = piece.node, source[at : piece.node.start_byte]
        if gap.strip(b" \t\n"):
            return None
        is_operator = node.type in OPERATORS
        if is_open and b"\n" in gap and not is_operator:
            if not words:
                return None
            commands.append(tuple(words))
            words, is_open, operator = [], False, "\n"
        text = source[node.start_byte : node.end_byte].decode()
        if is_operator:
            if not words or b"\n" in gap:
                return None
            commands.append(tuple(words))
            words, operator = [], node.type
        elif is_open and not gap:
            return None
        elif node.type == "file_redirect":
            if not HARMLESS_REDIRECTION.fullmatch(text):
                return None
        else:
            word = _unquoted(text)
            if word is None or (words and start != piece.command_start):
                return None
            if not words and not _names_a_program(word):
                return None
            words.append(word)
            start = piece.command_start
        is_open = not is_operator
        at = node.end_byte
    if source[at:].strip(b" \t\n") or (is_open and not words) or (not is_open and operator in CONTINUES):
        return None
    if words:
        commands.append(tuple(words))
    return tuple(commands) or None


def _names_a_program(word: Word) -> bool:
    return not (word.expands or not word.text or word.text in RESERVED or ASSIGNMENT.fullmatch(word.text))


def possible_commands(command: str) -> Iterator[list[str]]:
    """The words of everything in a command line that might be run as a command, more rather than fewer.

    Args:
        command: At most `MAX_CHARS`; the caller takes a longer one for any command.
    """
    joined = BLANK.sub(" ", command.replace("\\\n", ""))
    readings = [[word.text for word in words] for words in read_commands(command) or ()]
    for text in (joined, REDIRECTION.sub(" ", joined)):
        readings += [[word.text for word in words] for words in read_commands(text) or ()]
        # Quotes are read as cuts (for `sh -c 'rm x'`), and removed (for a name written r""m).
        bare = re.sub(r"[\"'\\]", "", text)
        readings += [part.split() for part in CUTS.split(re.sub(r"[\"']", ";", text).replace("\\", ""))]
        readings += [part.split() for part in CUTS.split(bare)]
        # A comma may separate the words of a brace expansion: `{rm,-r,x}`.
        readings += [part.replace(",", " ").split() for part in re.findall(r"\{([^{}]*)\}", bare)]
    for words in readings:
        for start in _starts(words):
            program, *arguments = words[start:]
            yield [program, *arguments]
            if "/" in program:
                yield [program.rstrip("/").rsplit("/", 1)[-1], *arguments]


def words_text(words: Sequence[str]) -> str:
    """The words as one line that the pattern of a rule that denies is compared with.

    A word that is empty or holds white space is put in single quotes; nothing else is quoted.
    """
    return " ".join(f"'{word}'" if not word or re.search(r"\s", word) else word for word in words)


def command_text(words: Sequence[Word]) -> str:
    """The command as one line that the pattern of a rule that allows is compared with.

    It is quoted where it has to be and nowhere else, so that different commands have different texts: `rm *` and
    `rm '*'`, `rm 'a b'` and `rm a b`.
    """
    return " ".join(map(_quoted, words))


def _quoted(word: Word) -> str:
    if word.expands:
        return re.sub(r"[\s'\"\\$`;&|<>(){}!]", r"\\\g<0>", word.text)
    if SPECIAL.search(word.text):
        return "'" + word.text.replace("'", "'\\''") + "'"
    return word.text


def _unquoted(source: str) -> Word | None:
    """A word without its quotes, or None where it holds what is not understood."""
    text, expands, at = "", False, 0
    if source.startswith("#"):
        return None
    while at < len(source):
        char = source[at]
        if char in "$`(){}<>;&|" or char.isspace() or not char.isprintable():
            return None
        if char == "'":
            end = source.find("'", at + 1)
            if end < 0 or "\0" in source[at:end]:
                return None
            text, at = text + source[at + 1 : end], end + 1
        elif char == '"':
            quoted = _double_quoted(source, at + 1)
            if quoted is None:
                return None
            text, at = text + quoted[0], quoted[1]
        elif char == "\\":
            if at + 1 >= len(source) or source[at + 1] in "\n\r\0":
                return None
            text, at = text + source[at + 1], at + 2
        else:
            # A tilde stands for a folder at the start of a word, and in what looks like an assignment or a list.
            expands = expands or char in "*?[" or (char == "~" and text[-1:] in ("", "=", ":"))
            text, at = text + char, at + 1
    return Word(text, expands)


def _double_quoted(source: str, at: int) -> tuple[str, int] | None:
    """The text up to the closing quote and the place after it; None with an expansion in it, or left open."""
    text = ""
    while at < len(source):
        char = source[at]
        if char == '"':
            return text, at + 1
        if char in "$`\0":
            return None
        if char == "\\" and at + 1 < len(source):
            follows = source[at + 1]
            if follows in "\n\0":
                return None
            text += follows if follows in '$`"\\' else char + follows
            at += 2
        else:
            text += char
            at += 1
    return None


def _starts(words: Sequence[str]) -> list[int]:
    """Where a command may begin: at the first word; after assignments, reserved words, wrappers, `-exec`."""
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
