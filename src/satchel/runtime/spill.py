"""Stores the whole text of a long result in a file beside the session's log."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from satchel.errors import StorageUnwritable
from satchel.loop import Spill, ToolPool

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def spill_into(folder: Path, pool: ToolPool, *, clean: Callable[[str], Awaitable[str]]) -> Spill:
    """A function that writes results to files and returns their paths. The folder is created with the first file;
    `clean` removes what the session's log may not contain, such as secrets.
    """

    def write(call_id: str, text: str) -> str:
        name = _UNSAFE.sub("-", call_id)[:80] or "result"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for number in range(1, 10_000):
                path = folder / (f"{name}.txt" if number == 1 else f"{name}-{number}.txt")
                try:
                    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                except FileExistsError:
                    continue
                with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                    file.write(text)
                return str(path)
        except OSError as error:
            raise StorageUnwritable(
                f"The result of a tool can't be stored in {folder}: {error.strerror}."
            ) from error
        raise StorageUnwritable(f"{folder} already contains 10,000 results of the call {call_id}.")

    async def spill(call_id: str, text: str) -> str:
        return await pool.run(write, call_id, await clean(text))

    return spill
