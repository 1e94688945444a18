"""Which of a repository's settings neither start a program nor lead git elsewhere: those that git itself writes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_SECTION: Final = re.compile(r'[ \t]*\[([A-Za-z0-9-]+)(?:[ \t]+"((?:[^"\\]|\\["\\])*)")?\][ \t]*')
_ENTRY: Final = re.compile(r"[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*([^\x00-\x08\x0b-\x1f]*))?")
_ANY_SECTION: Final = re.compile(r'\s*\[((?:[^\]"]|"(?:[^"\\]|\\.)*")*)\]')
_CONTINUED: Final = re.compile(r"\\\r?\n")
_ESCAPED: Final = re.compile(r'\\(["\\])')
_HARMLESS: Final = re.compile(
    r"core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol|"
    r"quotepath|abbrev|longpaths|sparsecheckout|sparsecheckoutcone)|"
    r"extensions\.(?:objectformat|compatobjectformat|refstorage|partialclone|relativeworktrees)|"
    r"remote\..+\.(?:url|pushurl|fetch|mirror|tagopt|prune|promisor|partialclonefilter)|"
    r"branch\..+\.(?:remote|merge|rebase|pushremote|description)|submodule\.(?:.+\.(?:url|active)|active)|"
    r"user\.(?:name|email)|init\.defaultbranch|pull\.(?:rebase|ff)|merge\.(?:conflictstyle|ff)|push\.default|gc\.auto|"
    r"lfs\.repositoryformatversion",
    re.IGNORECASE,
)
"""What `git init`, `clone`, `remote`, `branch` and `submodule` write, and who the author is."""


def setting_lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line of a file of git settings, with the section that it is in; a section's own line is in itself."""
    section = ""
    for line in text.split("\n"):
        if (match := _SECTION.fullmatch(line)) is not None:
            name, below = match.groups()
            section = name if below is None else f"{name}.{below}"
        yield section, line


def settings_in(text: str) -> Iterator[tuple[str, str]]:
    """The settings in a file, as far as their form is plain: keys in small letters, and values without their quotes."""
    section = ""
    for line in _CONTINUED.sub(" ", text).split("\n"):
        begins = _ANY_SECTION.match(line)
        if begins is not None:
            name, quote, below = begins[1].partition('"')
            section = f"{name.strip()}.{below[:-1]}" if quote else name.strip()
        key, equals, value = line[begins.end() if begins is not None else 0 :].partition("=")
        if equals:
            plain = value if '"' in value else re.split(r"\s[#;]", value)[0]
            yield f"{section}.{key.strip()}".lower(), _ESCAPED.sub(r"\1", plain.strip().strip('"'))


def is_harmless_key(key: str) -> bool:
    """Whether a setting neither starts a program nor names a file: a key such as `core.bare`."""
    return _HARMLESS.fullmatch(key) is not None or key.lower() == "core.worktree"


def harmless_text(text: str, *, folder: Path, top: Path, agreed: Callable[[tuple[str, str]], bool]) -> str:
    """The settings without the lines that may start a program or lead git elsewhere.

    Whatever isn't plainly one setting on one line is left out.

    Args:
        text: Of the file.
        folder: The git folder that it is in.
        top: A working tree that the settings name must be in this folder.
        agreed: Whether a line was there before; see `setting_lines`.
    """
    return "\n".join(
        line
        for section, line in setting_lines(text)
        if _is_harmless(section, line, folder, top) or agreed((section, line))
    )


def _is_harmless(section: str, line: str, folder: Path, top: Path) -> bool:
    if not line.strip(" \t") or _SECTION.fullmatch(line):
        return True
    match = _ENTRY.fullmatch(line)
    if match is None or line.endswith("\\"):
        return False
    key, value = f"{section}.{match[1]}", match[2] or ""
    if key.lower() == "core.worktree":
        tree = os.path.normpath(folder / value)
        return '"' not in value and os.path.realpath(tree) == tree and Path(tree).is_relative_to(top)
    return _HARMLESS.fullmatch(key) is not None
