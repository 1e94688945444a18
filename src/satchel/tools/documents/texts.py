"""The text of a document as a whole, for models: with its headings and pages, and beside an attached document."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path, PurePath
from typing import Final

import anyio
from anyio.to_thread import run_sync

from satchel.errors import SandboxError, UsageError
from satchel.messages import FileBlock
from satchel.sandbox.port import Sandbox
from satchel.tools.documents.reading import DocumentPart, NoText, read_sections
from satchel.tools.kept import kept_path, write_kept, write_text

_ZIPPED: Final = frozenset({"docx", "epub", "odp", "ods", "odt", "pptx", "xlsx"})
_PATIENCE_S: Final = 20.0
"""How long a message waits for the texts of its documents; a tool can still read one that takes longer."""


def document_kind(head: bytes, suffix: str) -> str:
    """The suffix, without its dot, of a document whose text can be read; "" for every other file."""
    if head.startswith(b"%PDF-"):
        return "pdf"
    kind = suffix[1:].lower()
    return kind if kind in _ZIPPED and head.startswith(b"PK") else ""


async def text_of_document(
    content: bytes, kind: str, name: str, folder: Path, sandbox: Callable[[], Awaitable[Sandbox]]
) -> tuple[str, int]:
    """The text of a document with its headings and pages, and the number of its pages; 0 if it has none. Errors call it
    `name`; while it is read, a copy is in `folder`.

    Raises:
        UsageError: It can't be read; says why.
        NoText: See there.
        SandboxError: The sandbox failed.
    """
    path = await run_sync(_copy, folder, content, kind)
    try:
        _, sections = await read_sections(path, await sandbox())
    except UsageError as error:
        raise type(error)(str(error).replace(str(path), name)) from error
    finally:
        path.unlink(missing_ok=True)
    text = _with_places(sections, "slide" if kind == "pptx" else "page")
    return text, max((section.page or 0 for section in sections), default=0)


async def write_texts(
    files: Sequence[FileBlock], spill_dir: Path, sandbox: Callable[[], Awaitable[Sandbox]]
) -> list[str]:
    """Put the text of each document of a session beside it, for models that don't take the document.

    Beside a PDF that is locked or damaged stands an empty text: no model is sent it, because a refusal would count as
    one of all documents.

    Returns:
        Why there is no text of a document that no model takes, a sentence for each; and which one took too long.
    """
    troubles, name = [], ""
    with anyio.move_on_after(_PATIENCE_S) as patience:
        for file in files:
            kind, name = "", file.name
            if await run_sync(kept_path(spill_dir, file.text_twin).exists):
                continue
            try:
                content = await run_sync(kept_path(spill_dir, file).read_bytes)
                if kind := document_kind(content[:8], PurePath(name).suffix):
                    text, _ = await text_of_document(content, kind, name, spill_dir, sandbox)
                    await run_sync(write_text, spill_dir, file, text)
            except FileNotFoundError:
                pass  # it is gone; models are told
            except (SandboxError, OSError, UsageError) as error:
                is_locked = kind == "pdf" and isinstance(error, UsageError) and not isinstance(error, NoText)
                if is_locked:
                    await run_sync(write_kept, kept_path(spill_dir, file.text_twin), b"")
                if is_locked or kind not in ("", "pdf"):
                    troubles.append(f"The model can't be sent what {name} says. {error}")
    if patience.cancelled_caught:
        troubles.append(
            f"{name} was not read within {_PATIENCE_S:g} s: the model can't be sent its text, nor that of the "
            "documents after it. A tool can read them."
        )
    return troubles


def _copy(folder: Path, content: bytes, kind: str) -> Path:
    """The parser gets bytes that were read through the fence: the path may lead elsewhere by now."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, path = tempfile.mkstemp(dir=folder.resolve(), suffix=f".{kind}")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        # The sandbox of a root user is another user. The folder around the file stays closed to others.
        os.fchmod(handle, 0o644)
    return Path(path)


def _with_places(sections: Sequence[DocumentPart], unit: str) -> str:
    lines: list[str] = []
    for section in sections:
        place = f"{unit} {section.page}" if section.page is not None else ""
        if named := ": ".join(part for part in (place, section.heading) if part):
            lines.append(f"[{named}]")
        lines += [line.rstrip() for line in section.text.strip().splitlines()]
    return "\n".join(lines) + "\n"
