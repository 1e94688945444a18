"""Decides which words a star in a rule that allows may stand for, by the table in `satchel.tools.programs`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal, TypeAlias

from satchel.tools.programs import ASSIGNMENT, PROGRAMS, SPELLED_OUT, WRAPPERS, ProgramUsage
from satchel.tools.shell import Word, Words

__all__ = ["proposed_head", "star_may_cover"]

_Value: TypeAlias = Literal["none", "required", "attached"]
_NUMBER = re.compile(r"-\d+[A-Za-z]?")
_GLOB = ("*", "?", "[")
_FROM_STDIN = Word("*", expands=True)
"""What `xargs` appends: words that are not known yet, like those of a glob."""


def star_may_cover(words: Sequence[Word], spelled: int) -> bool:
    """Whether a star may cover the words of a simple command that a rule does not spell out.

    Args:
        words: At least one.
        spelled: How many of the words, counted from the first, the rule spells out.

    Returns:
        For a program in the table, whether the table lists all the other words. For any other program, whether the
        rule spells out its name.
    """
    name = _base(words[0].text)
    usage = PROGRAMS.get(name)
    if usage is None:
        return spelled > 0 and name not in SPELLED_OUT and name not in WRAPPERS
    return _Reading(words, spelled).fits(usage)


def proposed_head(words: Words) -> str | None:
    """The words at the start of a rule for a command and those like it, such as `git log`; None if there is none."""
    usage, count = PROGRAMS.get(words[0].text), 1
    if usage is not None and usage.subcommands and len(words) > 1:
        usage, count = usage.subcommands.get(words[1].text), 2
    if usage is None or not usage.proposed or not star_may_cover(words, count):
        return None
    return " ".join(word.text for word in words[:count])


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1]


@cache
def _options(text: str) -> Mapping[str, _Value]:
    """Parse the table's notation: `-abc`, `-n=`, `-M[=]`, `--all`, `--width=`, `--color[=]`."""
    options: dict[str, _Value] = {}
    for entry in text.split():
        name = entry.removesuffix("[=]").removesuffix("=")
        value: _Value = "none" if name == entry else "attached" if entry.endswith("[=]") else "required"
        options |= {name: value} if name.startswith("--") else {f"-{letter}": value for letter in name[1:]}
    return options


@cache
def _whole_words(text: str) -> Mapping[str, int]:
    """Parse the table's notation for whole words, `-print -name=`: how many values follow each."""
    # `=` and `!=` are words themselves.
    return {
        entry.rstrip("=") if entry.startswith("-") else entry: entry.count("=")
        if entry.startswith("-")
        else 0
        for entry in text.split()
    }


class _Reading:
    """One command, parsed as its program would parse it. A word that the table does not list is not covered."""

    def __init__(self, words: Sequence[Word], spelled: int) -> None:
        self._words = words
        self._spelled = spelled
        self._at = 1
        self._has_script = False

    def fits(self, usage: ProgramUsage) -> bool:
        """Whether the table lists the remaining words, except those that the rule spells out."""
        if usage.free:
            return True
        if usage.bundle and not self._fits_bundle(usage):
            return False
        operands, options_ended = 0, False
        while self._at < len(self._words):
            word = self._words[self._at]
            if usage.words and (word.text.startswith("-") or word.text in _whole_words(usage.words)):
                if not self._fits_whole_word(usage, word):
                    return False
            elif not options_ended and word.text == "--":
                options_ended = True
                self._at += 1
            elif not options_ended and word.text.startswith("-") and word.text != "-":
                if not self._fits_option(usage, word):
                    return False
            elif usage.subcommands:
                self._at += 1
                inner = usage.subcommands.get(word.text)
                return inner is not None and not word.expands and self.fits(inner)
            elif usage.runs is not None and ASSIGNMENT.fullmatch(word.text):
                self._at += 1
            elif operands == usage.runs:
                return self._fits_command(
                    self._at, [*self._words[self._at :], *([_FROM_STDIN] if usage.appends else [])]
                )
            else:
                if not self._fits_operand(usage, word, operands, options_ended=options_ended):
                    return False
                operands += 1
                if operands == usage.rest_after:
                    return True
        return True

    def _fits_operand(self, usage: ProgramUsage, word: Word, operands: int, *, options_ended: bool) -> bool:
        self._at += 1
        if self._at <= self._spelled:
            return True
        allowed = usage.first if operands == 0 and usage.first and not self._has_script else usage.operands
        if usage.most is not None and operands >= usage.most:
            return False
        if allowed and not re.fullmatch(allowed, word.text, re.DOTALL):
            return False
        # A glob stands for names that are not known: one may look like an option, and there may be any number.
        may_be_an_option = word.text.startswith(_GLOB) and not options_ended
        return not (word.expands and (may_be_an_option or allowed or usage.most is not None))

    def _fits_option(self, usage: ProgramUsage, word: Word) -> bool:
        if word.expands:
            return False
        if word.text.startswith("--"):
            name, equals, value = word.text.partition("=")
            kind = self._kind(usage, name)
            self._at += 1
            return self._fits_value(usage, name, kind, value if equals else None)
        letters = word.text[1:]
        if letters.isdigit() and "-#" in _options(usage.options):
            self._at += 1
            return True
        kinds = [self._kind(usage, f"-{letter}") for letter in letters]
        self._at += 1
        for at, (letter, kind) in enumerate(zip(letters, kinds, strict=True)):
            if kind != "none":
                return self._fits_value(usage, f"-{letter}", kind, letters[at + 1 :] or None)
        return True

    def _kind(self, usage: ProgramUsage, name: str) -> _Value | None:
        """Whether the option at this place takes a value; None if a star may not cover it."""
        kind = _options(usage.options).get(name)
        if kind is None and self._at < self._spelled:
            kind = _options(usage.spelled).get(name)
        if kind is None and usage.negatable and f"--{name.removeprefix('--no-')}" in _options(usage.options):
            kind = "none"
        return kind

    def _fits_value(self, usage: ProgramUsage, name: str, kind: _Value | None, attached: str | None) -> bool:
        """Whether an option's value is acceptable, after the option itself was consumed."""
        if kind is None or kind == "none":
            return kind is not None and attached is None
        value = attached
        if value is None:
            if kind == "attached" or self._at >= len(self._words):
                return True
            word = self._words[self._at]
            self._at += 1
            # Another version of the program may take no value here: then this word must not be an option.
            if word.expands or (re.match("-.", word.text) and not _NUMBER.fullmatch(word.text)):
                return self._at <= self._spelled
            value = word.text
        if self._at <= self._spelled:
            self._has_script = self._has_script or name in usage.script_options
            return True
        if name not in _options(usage.options):
            return False
        if name in usage.script_options:
            self._has_script = True
            return re.fullmatch(usage.first, value, re.DOTALL) is not None
        return not usage.values or re.fullmatch(usage.values, value, re.DOTALL) is not None

    def _fits_bundle(self, usage: ProgramUsage) -> bool:
        """Check options without a dash, as in `tar cfC a.tar folder`; their values follow in the same order."""
        letters = self._words[1].text if len(self._words) > 1 else "-"
        if letters.startswith("-"):
            return True
        kinds = [self._kind(usage, f"-{letter}") for letter in letters]
        self._at += 1
        return not self._words[1].expands and all(
            self._fits_value(usage, f"-{letter}", kind, None)
            for letter, kind in zip(letters, kinds, strict=True)
        )

    def _fits_whole_word(self, usage: ProgramUsage, word: Word) -> bool:
        """Check one word of an expression and its values, as in `find . -name '*.py'`."""
        if word.text in usage.execs:
            end = next(
                (
                    at
                    for at in range(self._at + 1, len(self._words))
                    if self._words[at].text == ";"
                    or (self._words[at].text == "+" and self._words[at - 1].text == "{}")
                ),
                len(self._words),
            )
            start, self._at = self._at + 1, end + 1
            return self._fits_command(start, self._words[start:end])
        values = _whole_words(usage.words).get(word.text)
        if values is None:
            return False
        taken = self._words[self._at : self._at + values + 1]
        self._at += values + 1
        return not any(word.expands for word in taken)

    def _fits_command(self, start: int, words: Sequence[Word]) -> bool:
        """Check a command that this one starts: the rule must spell out its program."""
        return start < self._spelled and bool(words) and star_may_cover(words, self._spelled - start)
