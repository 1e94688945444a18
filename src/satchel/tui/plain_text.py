"""Text that can't control a terminal."""

from __future__ import annotations

# All C0 and C1 controls except newline and tab, DEL, Unicode's line and paragraph separators, and the characters that
# change the direction of writing.
_CONTROLS = {
    code: "\ufffd"
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
    if code not in (0x09, 0x0A)
}


def plain(text: str) -> str:
    """The text with control characters replaced, so that models, tools and files can't control the terminal."""
    return text.replace("\r\n", "\n").translate(_CONTROLS)


def is_plain(char: str) -> bool:
    """Whether a character can't control the terminal."""
    return ord(char) not in _CONTROLS
