"""Stores what Satchel has learnt about models in one file, so that it learns it once per model and endpoint."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from satchel.clock import Clock
from satchel.config.home import replacing

# Servers and models are upgraded, so this is tried again after a month.
KEPT_FOR: Final = timedelta(days=30)

# One entry per model and endpoint; a larger file is not ours.
_MAX_FILE_BYTES: Final = 1_000_000


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
        self._found: dict[str, Any] | None = None
        self._writers = anyio.CapacityLimiter(1)

    def native_tools(self, *, endpoint: str, model: str) -> bool | None:
        """Whether the model supports tool definitions at that endpoint; None if that is not known or too old."""
        if self._found is None:
            self._found = self._read()
        entry = self._found.get(_key(endpoint, model), {})
        return bool(entry["native_tools"]) if self._is_fresh(entry) else None

    async def remember_native_tools(self, *, endpoint: str, model: str, native: bool) -> None:
        """Store the result for this process and, if the file is writable, for later ones."""
        if self.native_tools(endpoint=endpoint, model=model) is native:
            return
        fresh = {_key(endpoint, model): {"native_tools": native, "at": self._clock.now().isoformat()}}
        self._found = {**(self._found or {}), **fresh}
        if self._path is not None:
            await anyio.to_thread.run_sync(self._write, self._path, fresh, limiter=self._writers)

    def _is_fresh(self, entry: object) -> bool:
        if not isinstance(entry, dict) or not isinstance(entry.get("native_tools"), bool):
            return False
        # Also false for what is no time, or has no zone.
        with suppress(ValueError, TypeError):
            return abs(self._clock.now() - datetime.fromisoformat(entry.get("at", ""))) < KEPT_FOR
        return False

    def _read(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, RecursionError):
            if self._path is not None and self._path.stat().st_size <= _MAX_FILE_BYTES:
                value = json.loads(self._path.read_bytes())
                if isinstance(value, dict) and isinstance(value.get("models"), dict):
                    return dict(value["models"])
        return {}

    def _write(self, path: Path, fresh: dict[str, Any]) -> None:
        # Keep what other processes have written meanwhile.
        entries = {
            name: entry for name, entry in sorted({**self._read(), **fresh}.items()) if self._is_fresh(entry)
        }
        # With a full disk or a read-only home, the cost is one refused request next time.
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(path, durable=False) as file:
                file.write(json.dumps({"version": 1, "models": entries}, indent=1).encode())


def _key(endpoint: str, model: str) -> str:
    return f"{model} @ {endpoint}"
