"""Remembers documents: finds files, has them read in the sandbox, and keeps memory the same as the folder."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from anyio import CancelScope
from anyio.to_thread import run_sync

from satchel.errors import NotFound, UsageError
from satchel.memory import Memory, StoredDocument
from satchel.messages import FileBlock
from satchel.runtime.sandboxes import Sandboxes
from satchel.sessions.attachments import MOST_BYTES, plain_name
from satchel.tools.builtin.tree import FoundPath, walk
from satchel.tools.documents.reading import KINDS, PICTURES, Document, check_readable, read_document
from satchel.tools.kept import media_type_of, write_kept

_MOST_FILES: Final = 10_000
_MOST_PATH_CHARS: Final = 900
_KEPT: Final = re.compile(r"documents/[0-9a-f]{16}/[^/]+")
_REMOVED_AT_ONCE: Final = 500
"""Passages; a document goes whole. Others may write to memory between two such groups."""
_MOST_READINGS: Final = 3
"""How often a file is read that changes meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentOutcome:
    """What became of one file.

    Attributes:
        outcome: "removed": it was remembered and is no longer there. "failed": it was left as it was.
        error: Why it failed; else "".
        note: Which of its pages were not read, in a sentence; "" for none.
    """

    path: str
    outcome: Literal["added", "replaced", "unchanged", "removed", "failed"]
    passages: int = 0
    error: str = ""
    note: str = ""


async def add_documents(
    paths: Sequence[Path],
    *,
    memory: Memory,
    sandboxes: Sandboxes,
    done: Callable[[DocumentOutcome], None] = lambda _: None,
) -> tuple[DocumentOutcome, ...]:
    """Remember files, and the files below folders, one after another.

    A file that is remembered already is read again if its bytes have changed. Documents that are remembered from below
    one of the folders and are no longer there are removed. `below` says what of a folder is read. `done` is called
    after each file.

    Raises:
        NotFound: Nothing is at one of the paths; nothing was stored.
        UsageError: They are more than 10,000 files; nothing was stored.
        NoSandbox: There is no sandbox.
        StorageError: Memory could not be written. The files before are stored.
    """
    files = await run_sync(_files, paths)
    known = {one.path: one for one in await memory.documents()}
    outcomes = []
    for file in files:
        outcomes.append(await add_document(file, known.get(str(file)), memory, sandboxes))
        done(outcomes[-1])
    removed = await remove_documents(await run_sync(_gone, paths, list(known.values())), memory)
    for outcome in removed:
        done(outcome)
    return (*outcomes, *removed)


async def remember_sent(
    content: bytes, name: str, *, home: Path, memory: Memory, sandboxes: Sandboxes
) -> DocumentOutcome:
    """Remember a document that a client sent, and keep its bytes below `home` until a passage of it is forgotten.

    Its path is relative to the home, `documents/HASH/NAME`, so that a restored backup finds it. The same bytes are one
    document, under the first name.

    Raises:
        UsageError: It is empty, longer than `MOST_BYTES`, or can't be read as a document; nothing was stored.
        NoSandbox: There is no sandbox.
        StorageError: Memory could not be written.
        OSError: The copy could not be written.
    """
    if not content or len(content) > MOST_BYTES:
        raise UsageError(
            f"A document may have {MOST_BYTES >> 20} MB at most." if content else "The file is empty."
        )
    home = await run_sync(home.resolve)
    digest = hashlib.sha256(content).hexdigest()
    file = FileBlock(
        sha256=digest, media_type=media_type_of(content), name=plain_name(name), size=len(content)
    )
    folder = f"documents/{digest[:16]}/"
    known = next((one for one in await memory.documents() if one.path.startswith(folder)), None)
    path = home / (known.path if known else folder + file.file_name.removeprefix(f"{digest[:16]}-"))
    if path.suffix[1:].lower() not in KINDS:
        raise UsageError(
            f"{file.name} is {file.media_type} by its bytes. Read are: {', '.join(sorted(KINDS))}."
        )
    is_there = await run_sync(path.is_file)
    try:
        await run_sync(write_kept, path, content)
        # The sandbox of root runs as another user. Nobody else gets through the home.
        await run_sync(path.chmod, 0o644)
        outcome = await add_document(path, known if is_there else None, memory, sandboxes, home=home)
        if outcome.error:
            raise UsageError(outcome.error.replace(str(path), file.name))
    except BaseException:
        if not is_there:
            # It may be stored all the same: a full disk can refuse the journal after the database.
            with CancelScope(shield=True):
                if all(one.path != str(path.relative_to(home)) for one in await memory.documents()):
                    await run_sync(remove_kept, path)
        raise
    return outcome


def kept_document(home: Path, path: str) -> Path | None:
    """Where the bytes of a document are that a client sent; None for a document of the user's own folders."""
    return home / path if _KEPT.fullmatch(path) else None


def remove_kept(path: Path) -> None:
    """Remove the bytes of a document that a client sent, if they are there. Blocks.

    Raises:
        OSError: They can't be removed.
    """
    path.unlink(missing_ok=True)
    with suppress(OSError):  # another name of the same bytes is in it, or it is gone
        path.parent.rmdir()


def document_named(name: str, documents: Sequence[StoredDocument]) -> StoredDocument:
    """The document at a path, or the only one whose file or title is called so.

    Raises:
        NotFound: There is none.
        UsageError: There are several.
    """
    path = str(Path(name).expanduser().resolve())
    found = [one for one in documents if one.path in (name, path)]
    found = found or [one for one in documents if name in (Path(one.path).name, one.title)]
    if not found:
        raise NotFound(f"No document {name!r} is remembered. `satchel memory documents` lists them.")
    if len(found) > 1:
        raise UsageError(f"Several documents are called {name!r}: {', '.join(one.path for one in found)}.")
    return found[0]


async def remove_documents(
    documents: Sequence[StoredDocument], memory: Memory
) -> tuple[DocumentOutcome, ...]:
    """Remove documents whose files are gone, if they are as they were. Their words elsewhere stay.

    Raises:
        StorageError: Memory could not be written. Of many, some may be removed.
    """
    groups: list[list[str]] = []
    room = 0
    for one in documents:
        if not groups or one.passages > room:
            groups.append([])
            room = _REMOVED_AT_ONCE
        groups[-1].append(one.source)
        room -= one.passages
    for sources in groups:
        await memory.remove_documents(sources)
    return tuple(DocumentOutcome(path=one.path, outcome="removed") for one in documents)


async def add_document(
    file: Path,
    known: StoredDocument | None,
    memory: Memory,
    sandboxes: Sandboxes,
    *,
    home: Path | None = None,
    ready: tuple[str, Document] | None = None,
) -> DocumentOutcome:
    """Remember one file by its path, which is relative to `home` if that is given.

    `ready` is what was read of it, and the hash of the bytes then. It is read again if it has changed since. One that
    is `known`, and was forgotten meanwhile, stays forgotten.
    """
    name = str(file.relative_to(home) if home else file)
    try:
        # The path is the document's name in the store, which keeps no characters that nobody sees.
        if not str(file).isprintable() or len(str(file)) > _MOST_PATH_CHARS:
            raise UsageError(f"{file} has a path with unprintable characters, or a very long one. Rename it.")
        await run_sync(check_readable, file)  # first: a hash of gigabytes takes minutes
        digest, written_at = await run_sync(digest_of, file)
        if known is not None and known.digest == digest:
            return DocumentOutcome(path=name, outcome="unchanged", passages=known.passages)
        for _ in range(_MOST_READINGS):
            if ready is not None and ready[0] == digest:
                document = ready[1]
            else:
                document = await read_document(file, await sandboxes.get())
            before, (digest, written_at) = digest, await run_sync(digest_of, file)
            if before == digest:
                break
        else:
            raise UsageError(f"{file} changes while it is read. Add it again when it is finished.")
        passages = [(one.page, one.heading, one.text) for one in document.passages]
        stored = await memory.put_document(
            name,
            passages,
            title=document.title,
            digest=digest,
            written_at=written_at,
            again=known is not None,
        )
    except (NotFound, UsageError, OSError) as error:
        reason = f"{file} can't be read: {error.strerror}." if isinstance(error, OSError) else str(error)
        return DocumentOutcome(path=name, outcome="failed", error=reason)
    outcome: Literal["added", "replaced"] = "added" if known is None else "replaced"
    return DocumentOutcome(path=name, outcome=outcome, passages=stored, note=document.note)


def digest_of(file: Path) -> tuple[str, datetime]:
    """The beginning of the hash of a file's bytes, and when it was written."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()[:32]
        return digest, datetime.fromtimestamp(os.fstat(stream.fileno()).st_mtime, UTC)


def _files(paths: Sequence[Path]) -> list[Path]:
    files: dict[Path, None] = {}
    for path in paths:
        real = path.expanduser().resolve()
        if real.is_dir():
            found = [real / one.path for one in below(real)]
        elif real.is_file():
            found = [real]
        else:
            raise NotFound(f"There is no file or folder {path}.")
        for file in found:
            files[file] = None
            if len(files) > _MOST_FILES:
                raise UsageError(
                    f"These are more than {_MOST_FILES:,} documents. Add folders of fewer; nothing was stored."
                )
    return list(files)


def _gone(paths: Sequence[Path], known: Sequence[StoredDocument]) -> list[StoredDocument]:
    """The documents from below one of the folders that are no longer there.

    Of an empty folder, none: that is what a disk that is not mounted looks like.
    """
    folders = [
        real for path in paths if (real := path.expanduser().resolve()).is_dir() and any(real.iterdir())
    ]
    return [
        one
        for one in known
        if any(Path(one.path).is_relative_to(folder) for folder in folders) and is_gone(Path(one.path))
    ]


def below(folder: Path) -> Iterator[FoundPath]:
    """The documents below a folder, which is a path without symbolic links. Blocks.

    One rule leaves out the rest: hidden files, `node_modules`, what a `.gitignore` names, links, and other kinds.
    Pictures are read only by their own names: a folder of photos would take hours for no words.
    """
    for one in walk(folder, skips=lambda name: name.startswith(".") or name == "node_modules"):
        kind = Path(one.path).suffix[1:].lower()
        if not one.is_folder and kind in KINDS and kind not in PICTURES:
            yield one


def is_gone(file: Path) -> bool:
    """Whether a document's file is surely no longer there: an error of a disk or of permissions doesn't say so."""
    try:
        return not stat.S_ISREG(file.lstat().st_mode) or file.resolve() != file
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
