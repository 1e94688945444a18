"""What was found out about models: kept in one file, so that it is found out once per model and endpoint."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from satchel.clock import Clock

__all__ = ["AbilityStore"]

# Servers and models are upgraded: what was found out is asked anew after a month.
KEPT_FOR: Final = timedelta(days=30)

# One entry per model and endpoint; what is larger is not ours.
_MAX_FILE_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    native_tools: bool
    at: datetime


class AbilityStore:
    """Whether a model at an endpoint takes tool definitions.

    The file is a hint, never a truth to rely on: one that is missing, broken or cannot be written costs one
    refused request more, no error. Two processes that write at the same time may lose one entry of the two;
    it is found out again. Entries are forgotten 30 days after they were written.
    """

    def __init__(self, path: Path | None, *, clock: Clock) -> None:
        """Take the file's path; nothing is read before the first question.

        Args:
            path: A JSON file; its folder need not exist. None keeps everything in memory.
            clock: Tells how old an entry is.
        """
        self._path = path
        self._clock = clock
        self._found: dict[str, _Found] | None = None
        self._writers = anyio.CapacityLimiter(1)

    def native_tools(self, *, endpoint: str, model: str) -> bool | None:
        """Whether the model takes tool definitions there, or None where that is not known (any more)."""
        if self._found is None:
            self._found = self._read()
        found = self._found.get(_key(endpoint, model))
        if found is None or not self._is_fresh(found):
            return None
        return found.native_tools

    async def remember_native_tools(self, *, endpoint: str, model: str, native: bool) -> None:
        """Keep what was found out, for this process and, where the file can be written, for later ones."""
        if self.native_tools(endpoint=endpoint, model=model) is native:
            return
        found = _Found(native_tools=native, at=self._clock.now())
        key = _key(endpoint, model)
        self._found = {**(self._found or {}), key: found}
        if self._path is not None:
            await anyio.to_thread.run_sync(self._write, self._path, key, found, limiter=self._writers)

    def _is_fresh(self, found: _Found) -> bool:
        age = self._clock.now() - found.at
        return -KEPT_FOR < age < KEPT_FOR

    def _read(self) -> dict[str, _Found]:
        if self._path is None:
            return {}
        try:
            if self._path.stat().st_size > _MAX_FILE_BYTES:
                return {}
            value = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        entries = value.get("models") if isinstance(value, dict) else None
        if not isinstance(entries, dict):
            return {}
        return {
            key: found for key, entry in entries.items() if (found := _found_from_json(entry)) is not None
        }

    def _write(self, path: Path, key: str, found: _Found) -> None:
        # What other processes wrote meanwhile is kept.
        entries = {
            name: entry for name, entry in {**self._read(), key: found}.items() if self._is_fresh(entry)
        }
        value = {
            "version": 1,
            "models": {
                name: {"native_tools": entry.native_tools, "at": entry.at.isoformat()}
                for name, entry in sorted(entries.items())
            },
        }
        # A full disk or a read-only home costs a refused request next time, nothing more.
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(value, file, indent=1)
                Path(temporary).replace(path)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise


def _key(endpoint: str, model: str) -> str:
    return f"{model} @ {endpoint}"


def _found_from_json(entry: Any) -> _Found | None:
    match entry:
        case {"native_tools": bool(native), "at": str(at)}:
            try:
                when = datetime.fromisoformat(at)
            except ValueError:
                return None
            return _Found(native_tools=native, at=when) if when.tzinfo is not None else None
        case _:
            return None
