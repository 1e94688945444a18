"""Stores what Satchel has learnt about models in one file, so that it learns it once per model and endpoint."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.config.home import replacing

__all__ = ["AbilityStore"]

# Servers and models are upgraded, so this is tried again after a month.
KEPT_FOR: Final = timedelta(days=30)

# One entry per model and endpoint; a larger file is not ours.
_MAX_FILE_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    native_tools: bool
    at: datetime


class AbilityStore:
    """Whether a model at an endpoint supports tool definitions.

    The file is only a hint. If it is missing, broken or not writable, the cost is one more refused request, not an
    error. If two processes write at the same time, one entry may be lost and is learnt again. Entries expire 30 days
    after they were written.
    """

    def __init__(self, path: Path | None, *, clock: Clock) -> None:
        """Store the path; nothing is read before the first query.

        Args:
            path: A JSON file, whose folder need not exist. None keeps everything in memory.
            clock: Determines the age of an entry.
        """
        self._path = path
        self._clock = clock
        self._found: dict[str, _Found] | None = None
        self._writers = anyio.CapacityLimiter(1)

    def native_tools(self, *, endpoint: str, model: str) -> bool | None:
        """Whether the model supports tool definitions at that endpoint; None if that is not known or too old."""
        if self._found is None:
            self._found = self._read()
        found = self._found.get(_key(endpoint, model))
        if found is None or not self._is_fresh(found):
            return None
        return found.native_tools

    async def remember_native_tools(self, *, endpoint: str, model: str, native: bool) -> None:
        """Store the result for this process and, if the file is writable, for later ones."""
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
        # Keep what other processes have written meanwhile.
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
        # With a full disk or a read-only home, the cost is one refused request next time.
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(path, durable=False) as file:
                file.write(json.dumps(value, indent=1).encode())


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
