"""The difference between two versions, as people read it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping


def difference(before: Mapping[str, bytes], after: Mapping[str, bytes], *, names: tuple[str, str]) -> str:
    """A unified diff of all files, by path; "" if they are the same. `names` are what both are called in the headings,
    such as "v1" and "v2".
    """
    parts: list[str] = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        old_lines, new_lines = _lines(old), _lines(new)
        if old_lines is None or new_lines is None:
            parts.append(f"{path}: binary files differ\n")
            continue
        heads = (
            f"{names[0]}/{path}" if old is not None else "/dev/null",
            f"{names[1]}/{path}" if new is not None else "/dev/null",
        )
        parts += [
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(old_lines, new_lines, *heads)
        ]
    return "".join(parts)


def _lines(content: bytes | None) -> list[str] | None:
    """The lines of a text; None for other data."""
    if content is None:
        return []
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.splitlines(keepends=True)
