"""Files of the user that a call gives to a capability: where its schema says "format": "file", a copy for one run."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

import anyio
import anyio.to_thread

from satchel.errors import StorageUnwritable, UsageError
from satchel.messages import IMAGES, FileBlock
from satchel.tools import ToolContext
from satchel.tools.builtin.fence import Fence, Place
from satchel.tools.kept import FOLDER

FileReader: TypeAlias = Callable[[str], bytes]
"""Reads the file that a call names, in a thread. Raises a `SatchelError` if it may not be read, or can't."""

FORMAT: Final = "file"
_HASH: Final = 16
"""Digits before the names of kept files."""
_MOST_BYTES: Final = 64 << 20
"""Of one file."""
_MOST_FILES: Final = 32


@asynccontextmanager
async def given_files(
    schema: Mapping[str, Any], input: Mapping[str, Any], read: FileReader | None
) -> AsyncIterator[tuple[Mapping[str, Any], Path | None]]:
    """The input with the paths of copies in place of those that it names, and the folder of the copies, or None.

    Raises:
        UsageError: A file is named, and there is nowhere to read it from.
        SatchelError: See `FileReader`.
    """
    names = _named(schema, input)
    if not names:
        yield input, None
        return
    if read is None:
        raise UsageError(
            "It takes a file, which can be named in a conversation or with `satchel capability run`."
        )
    folder = Path(await anyio.to_thread.run_sync(partial(tempfile.mkdtemp, prefix="satchel-files-")))
    try:
        copies = await anyio.to_thread.run_sync(_copied, names, read, folder / "given")
        yield {key: _replaced(value, copies.get(key, {})) for key, value in input.items()}, folder / "given"
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))


def in_session(fence: Fence, context: ToolContext, text: str) -> bytes:
    """Read a file as `file_read` may without asking: in the session's folder, and what is kept with this session, where
    the name is enough if the folder has no such file.

    A `FileReader`, once `fence` and `context` are given.
    """
    place = fence.locate(text, context)
    if "/" not in text and not place.path.exists():
        names = {FileBlock(sha256="", media_type=kind, name=text, size=0).file_name for kind in ("", *IMAGES)}
        kept = [path for path in (context.spill_dir / FOLDER).glob("*") if path.name[_HASH:] in names]
        if kept:
            place = fence.locate(str(max(kept, key=lambda path: path.stat().st_mtime)), context)
    if not fence.search_filter(replace(place, parts=()), context)(place.path):
        raise UsageError(f"{place.name} may not be read without asking: a rule says so, or it may hold keys.")
    return content_of(place)


def below(folder: Path, text: str) -> bytes:
    """Read a file of a capability's own folder, as its cases name them. A `FileReader`, once `folder` is given."""
    parts = PurePosixPath(text).parts
    if not parts or ".." in parts or text.startswith("/"):
        raise UsageError(f"{text[:80]!r} is no file of the capability.")
    return content_of(Place(root=folder, parts=parts, name=text))


def as_typed(text: str) -> bytes:
    """Read any file that the user names on the command line. A `FileReader`."""
    path = Path(os.path.realpath(Path(text).expanduser()))
    return content_of(Place(root=Path("/"), parts=path.parts[1:], name=text))


def content_of(place: Place) -> bytes:
    """A regular file, at most 64 MiB."""
    descriptor = place.open()
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"{place.name} is not a regular file.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(_MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{place.name} is larger than {_MOST_BYTES >> 20} MiB.")
    return content


def _named(schema: Mapping[str, Any], input: Mapping[str, Any]) -> Mapping[str, list[str]]:
    """The files that the input names, by property: its value, or the values of its list."""
    found = {}
    properties = schema.get("properties")
    for key, said in properties.items() if isinstance(properties, Mapping) else ():
        value = input.get(key)
        if not isinstance(said, Mapping):
            continue
        items = said.get("items")
        if said.get("format") == FORMAT and isinstance(value, str):
            found[key] = [value]
        elif isinstance(items, Mapping) and items.get("format") == FORMAT and isinstance(value, list):
            found[key] = [each for each in value if isinstance(each, str)]
    return found


def _copied(
    names: Mapping[str, list[str]], read: FileReader, folder: Path
) -> Mapping[str, Mapping[str, str]]:
    texts = list(dict.fromkeys(text for values in names.values() for text in values))
    if len(texts) > _MOST_FILES:
        raise UsageError(f"At most {_MOST_FILES} files can be given in one call.")
    copies = {}
    try:
        # The code may run as another user. Nobody else gets here: the folder around it is the owner's.
        _readable_folder(folder)
        for number, text in enumerate(texts):
            # A folder for each: two files may have the same name, and the code may look at a name's ending.
            path = folder / str(number) / (PurePosixPath(text).name or "file")
            _readable_folder(path.parent)
            path.write_bytes(read(text))
            path.chmod(0o644)
            copies[text] = str(path)
    except OSError as error:
        raise StorageUnwritable(
            f"A copy in {folder.parent} could not be written: {error.strerror}."
        ) from error
    return {key: {text: copies[text] for text in values} for key, values in names.items()}


def _readable_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)


def _replaced(value: Any, copies: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_replaced(each, copies) for each in value]
    return copies.get(value, value) if isinstance(value, str) else value
