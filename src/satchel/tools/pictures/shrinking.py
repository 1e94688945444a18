"""Makes a JPEG of pictures that some providers don't take, in the sandbox: large ones, and those in other formats."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from anyio.to_thread import run_sync

from satchel.errors import SandboxError
from satchel.messages import FileBlock
from satchel.models.files import MOST_PICTURE, SMALL_BYTES
from satchel.sandbox.port import Limits, PythonEntry, RunSpec, Sandbox, Status
from satchel.tools.kept import HEIF, kept_path, write_kept
from satchel.wording import install_extra

_LONGEST_SIDE: Final = 2_000
"""Pixels, as the page's own: Anthropic refuses larger ones in a request with more than 20, and shows models less."""
_TAKEN_BY_ALL: Final = frozenset({"image/jpeg", "image/png"})
"""xAI documents no others, Gemini no GIF, OpenAI and Mistral none that moves, and llama.cpp reads no WebP."""
_LIMITS: Final = Limits(wall_s=60, cpu_s=50, memory_mb=1024, tmp_mb=16, result_kb=32_768)
"""The result holds the twenty pictures that a message may have."""


async def make_smaller(
    files: Sequence[FileBlock], spill_dir: Path, sandbox: Callable[[], Awaitable[Sandbox]]
) -> list[str]:
    """Put a JPEG beside each picture of a session that is large or that some provider doesn't take; models get that.

    Beside one that can't be read stands an empty file instead: no model is sent it, because a refusal would count as
    one of all pictures.

    Returns:
        Why there is no JPEG of a picture, a sentence for each.
    """
    troubles = []
    large = [file for file in dict.fromkeys(files) if await run_sync(_needs_one, spill_dir, file)]
    for file, made in zip(large, await _shrunk(large, spill_dir, sandbox), strict=True):
        why: Exception | None = None if isinstance(made, bytes) else made
        try:
            if isinstance(made, bytes | _Unreadable):
                small = made if isinstance(made, bytes) else b""
                await run_sync(write_kept, kept_path(spill_dir, file.small_twin), small)
        except OSError as error:
            why = error
        if isinstance(why, _Unreadable):
            troubles.append(f"{file.name} can't be shown to models. {why}")
        elif why is not None and (
            not file.is_image or file.size > MOST_PICTURE
        ):  # others are sent as they are
            what = f"has {file.size / 1_000_000:.3g} MB" if file.is_image else f"is {file.media_type}"
            troubles.append(
                f"{file.name} {what}, which some providers don't take, and was not converted. {why}"
            )
    return troubles


class _Unreadable(Exception):
    """It is no picture, or one that takes too much to read."""


def _needs_one(spill_dir: Path, file: FileBlock) -> bool:
    if not file.is_picture or kept_path(spill_dir, file.small_twin).exists():
        return False
    try:
        with kept_path(spill_dir, file).open("rb") as picture:
            head = picture.read(24)
    except OSError:
        return False  # it is gone; models are told
    if file.media_type not in _TAKEN_BY_ALL or file.size > SMALL_BYTES:
        return True
    # Of pictures with few bytes, it is screenshots that have many pixels. PNG's first chunk says how many.
    pixels = struct.unpack(">8x8xII", head.ljust(24, b"\0"))
    return file.media_type == "image/png" and max(pixels) > _LONGEST_SIDE


async def _shrunk(
    files: Sequence[FileBlock], spill_dir: Path, sandbox: Callable[[], Awaitable[Sandbox]]
) -> list[bytes | Exception]:
    """The smaller picture of each, or why there is none. One run makes all, because one takes long to start."""
    if not files:
        return []
    found = find_spec("PIL")
    lacks_heif = find_spec("pillow_heif") is None and any(file.media_type in HEIF for file in files)
    try:
        if found is None or found.origin is None or lacks_heif:
            raise ImportError(f"A package is missing. Type: {install_extra('documents')}")
        paths = [await run_sync(kept_path(spill_dir, file).resolve) for file in files]
        for path in paths:
            # The sandbox of a root user is another user. The home around the file stays closed to others.
            await run_sync(path.chmod, 0o644)
        entry = PythonEntry(
            code_dir=Path(__file__).with_name("guest"),
            args={"paths": [str(path) for path in paths], "most": SMALL_BYTES},
        )
        layer = Path(found.origin).parents[1]
        spec = RunSpec(entry=entry, layer=layer, limits=_LIMITS, read_only=tuple(paths))
        result = await (await sandbox()).run(spec)
        if result.status is Status.MEMORY:
            raise _Unreadable("It takes more memory than a picture may use.")
        if result.status is not Status.OK or result.result is None:
            raise ValueError(str(result.error))
        return [_checked(answer) for answer in json.loads(result.result)]
    except (SandboxError, OSError, ImportError, ValueError, _Unreadable) as error:
        if len(files) == 1:
            return [error]
        # One that ends the run, for its memory or its time, keeps no other out.
        return [small for file in files for small in await _shrunk([file], spill_dir, sandbox)]


def _checked(answer: Mapping[str, str]) -> bytes | Exception:
    """Only that it is a JPEG is trusted: models and browsers get it as one."""
    content = base64.b64decode(answer.get("jpeg", ""))
    return content if content.startswith(b"\xff\xd8\xff") else _Unreadable(answer.get("error", ""))
