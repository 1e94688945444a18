"""Whether the terminal's background is dark."""

from __future__ import annotations

import re
import select
import sys
from collections.abc import Mapping
from os import read

_WAIT_S = 0.2
"""Terminals answer within milliseconds. On a slow line, the default is used."""
_ANSWER = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)")
_ANSWERS = re.compile(rb"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|\[[0-?]*[ -/]*[@-~]|.)")
"""The answers to both questions, and keys that are no text, such as arrows."""


def ask_background(environ: Mapping[str, str]) -> tuple[bool, str]:
    """Ask the terminal, or read COLORFGBG; dark if neither answers.

    Returns:
        Whether it is dark, and what the user typed while the program started, which stands before the answer.
    """
    answer = _asked()
    typed = _ANSWERS.sub(b"", answer).decode(errors="ignore")
    typed = "".join(each for each in typed if each.isprintable() or each == "\n")
    if found := _ANSWER.search(answer):
        red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
        brightness: float = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        return brightness < 0.5, typed  # the weights of Rec. 709
    ground = environ.get("COLORFGBG", "").rpartition(";")[2]
    return not (ground.isdigit() and int(ground) in (7, 15)), typed


def _asked() -> bytes:
    # Not available on every system, and only useful with a terminal.
    import termios  # noqa: PLC0415
    import tty  # noqa: PLC0415

    fd = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(fd)
        tty.setcbreak(fd, termios.TCSADRAIN)
    except termios.error:
        return b""
    answer = b""
    try:
        # Every terminal answers the second question, so there is no wait if it doesn't understand the first.
        sys.stdout.write("\x1b]11;?\x1b\\\x1b[c")
        sys.stdout.flush()
        while select.select([fd], [], [], _WAIT_S)[0] and len(answer) < 1024:
            answer += read(fd, 256)
            if re.search(rb"\x1b\[\?[\d;]*c", answer):
                break
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
    return answer
