"""Whether the terminal's background is dark."""

from __future__ import annotations

import re
import select
import sys
from collections.abc import Mapping
from os import read

__all__ = ["is_dark"]

_WAIT_S = 0.2
"""Terminals answer within milliseconds. On a slow line, the default is used."""
_ANSWER = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)")


def is_dark(environ: Mapping[str, str]) -> bool:
    """Ask the terminal, or read COLORFGBG; dark if neither answers."""
    asked = _asked()
    if asked is not None:
        return asked
    ground = environ.get("COLORFGBG", "").rpartition(";")[2]
    return not (ground.isdigit() and int(ground) in (7, 15))


def _asked() -> bool | None:
    # Not available on every system, and only useful with a terminal.
    import termios  # noqa: PLC0415
    import tty  # noqa: PLC0415

    fd = sys.stdin.fileno()
    try:
        before = termios.tcgetattr(fd)
        tty.setcbreak(fd, termios.TCSADRAIN)
    except termios.error:
        return None
    try:
        # Every terminal answers the second question, so there is no wait if it doesn't understand the first.
        sys.stdout.write("\x1b]11;?\x1b\\\x1b[c")
        sys.stdout.flush()
        answer = b""
        while select.select([fd], [], [], _WAIT_S)[0] and len(answer) < 1024:
            answer += read(fd, 256)
            if re.search(rb"\x1b\[\?[\d;]*c", answer):
                break
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
    found = _ANSWER.search(answer)
    if found is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    brightness: float = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return brightness < 0.5  # the weights of Rec. 709
