"""Searches files for a regular expression if ripgrep is not installed. A stand-alone program that uses only the
standard library.

It runs in its own process because `re` can take forever on a hostile expression and holds the interpreter's lock; a
process can be stopped. It reads a job as JSON from stdin (`base`, `files`, `pattern`, `ignore_case`, `context`,
`mode`, `max_file_bytes`, `max_columns`) and writes what `rg --null` would: `path NUL line:text`, with `-` for
context, `path NUL` per file in mode "files", `path NUL count` in mode "count".
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import stat
import sys
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO

LINE_BYTES = 1_048_576
SNIFFED_BYTES = 8192


def open_file(path: str, max_file_bytes: int) -> BinaryIO | None:
    """Open the file for reading; None if it is not a regular file, too large, or no longer there."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    state = os.fstat(handle)
    fits = stat.S_ISREG(state.st_mode) and (not max_file_bytes or state.st_size <= max_file_bytes)
    # A folder on the path may have become a symlink since the list was made. Not every system can tell.
    with contextlib.suppress(FileNotFoundError):
        fits = fits and str(Path(f"/proc/self/fd/{handle}").readlink()) == path
    if not fits:
        os.close(handle)
        return None
    file = os.fdopen(handle, "rb")
    head = file.read(SNIFFED_BYTES)
    file.seek(0)
    if head[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        text = file.read(LINE_BYTES * 64).decode("utf-16", "replace")
        file.close()
        return io.BytesIO(text.encode("utf-8", "replace"))
    if b"\0" in head:
        file.close()
        return None
    return file


def search(job: dict[str, Any], out: BinaryIO) -> None:
    """Run the job."""
    regex = re.compile(job["pattern"], re.IGNORECASE if job["ignore_case"] else 0)
    around, mode, columns = job["context"], job["mode"], job["max_columns"]
    printed_any = False

    def show(name: bytes, number: int, sign: bytes, text: str) -> None:
        cut = text if len(text) <= columns else text[:columns] + " [... omitted end of long line]"
        out.write(name + b"\0%d" % number + sign + cut.encode("utf-8", "replace") + b"\n")

    for relative in job["files"]:
        path = f"{job['base']}/{relative}" if relative else job["base"]
        file = open_file(path, job["max_file_bytes"])
        if file is None:
            continue
        name = os.fsencode(f"./{relative}" if relative else path)
        count, number, last_shown, after = 0, 0, 0, 0
        before: deque[tuple[int, str]] = deque(maxlen=around)
        with file:
            while line := file.readline(LINE_BYTES):
                number += 1
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                if regex.search(text):
                    count += 1
                    if mode == "files":
                        break
                    if mode == "content":
                        first = before[0][0] if before else number
                        if around and printed_any and (last_shown == 0 or first > last_shown + 1):
                            out.write(b"--\n")
                        for at, earlier in before:
                            show(name, at, b"-", earlier)
                        before.clear()
                        show(name, number, b":", text)
                        printed_any, last_shown, after = True, number, around
                elif after:
                    show(name, number, b"-", text)
                    last_shown, after = number, after - 1
                elif around:
                    before.append((number, text))
                # Skip the rest of a longer line.
                while not line.endswith(b"\n") and (line := file.readline(LINE_BYTES)):
                    pass
        if count and mode == "files":
            out.write(name + b"\0")
        elif count and mode == "count":
            out.write(name + b"\0%d\n" % count)
        out.flush()


if __name__ == "__main__":
    try:
        search(json.loads(sys.stdin.buffer.read()), sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(1)
