"""The picture of the desktop's clipboard: terminals paste text only."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from anyio import move_on_after
from anyio.to_thread import run_sync

from satchel.config import Settings
from satchel.errors import SandboxError
from satchel.sandbox.process import run_process
from satchel.sessions.attachments import MOST_BYTES, uploads_folder
from satchel.tools.kept import write_kept

_PROGRAMS: Final = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
"""What prints the picture: under Wayland, X11 and macOS."""
_LIMIT_S: Final = 2.0


async def picture_in_clipboard(settings: Settings) -> Path | None:
    """Write the picture of the clipboard to a file, which `remove_sent` removes; None if there is none, or no program
    that prints it within `_LIMIT_S`.
    """
    with move_on_after(_LIMIT_S):
        for argv in _PROGRAMS:
            with suppress(SandboxError, OSError):  # the program is not there, or the home can't take it
                ran = await run_process(
                    argv,
                    cwd=settings.home,
                    environ=settings.environ,
                    max_output_bytes=MOST_BYTES,
                    grace_s=0.1,
                )
                content = ran.stdout.data
                if ran.exit_code == 0 and not ran.stdout.omitted and content.startswith(b"\x89PNG"):
                    name = f"clipboard-{hashlib.sha256(content).hexdigest()[:8]}.png"
                    await run_sync(write_kept, path := uploads_folder(settings.home) / name, content)
                    return path.resolve()
    return None
