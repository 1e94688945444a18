"""Makes a JPEG of pictures that some providers or all don't take: large ones, and those in other formats."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from anyio.to_thread import run_sync

from satchel.errors import SandboxError
from satchel.messages import FileBlock
from satchel.models.files import MOST_PICTURE
from satchel.sandbox.port import Limits, PythonEntry, RunSpec, Sandbox, Status
from satchel.tools.kept import HEIF, kept_path, write_kept
from satchel.wording import install_extra

__all__ = ["SMALL_BYTES", "make_smaller"]

SMALL_BYTES: Final = 1_000_000
"""Each request repeats the pictures of its conversation, and Anthropic takes 32 MB: 24 of this size in base64."""
_LONGEST_SIDE: Final = 2_000
"""Pixels, as the page's own: Anthropic refuses larger ones in a request with more than 20, and shows models less."""
_LIMITS: Final = Limits(wall_s=60, cpu_s=50, memory_mb=1024, tmp_mb=16, result_kb=8_192)


async def make_smaller(
    files: Sequence[FileBlock], spill_dir: Path, sandbox: Callable[[], Awaitable[Sandbox]]
) -> list[str]:
    """Put a JPEG beside each picture of a session that is large or in a format of no provider; models get that.

    Returns:
        Why there is no JPEG of a picture, a sentence for each.
    """
    troubles = []
    for file in files:
        small = kept_path(spill_dir, file.small_twin)
        if not file.is_picture or await run_sync(small.exists):
            continue
        try:
            if not await run_sync(_fits, spill_dir, file):
                await run_sync(
                    write_kept, small, await _shrunk(file, kept_path(spill_dir, file), await sandbox())
                )
        except FileNotFoundError:
            continue  # it is gone; models are told
        except (SandboxError, OSError, ValueError) as error:
            if file.is_image and file.size <= MOST_PICTURE:
                continue  # models get it as it is
            what = f"has {file.size / 1_000_000:.3g} MB" if file.is_image else f"is {file.media_type}"
            troubles.append(
                f"{file.name} {what}, which some providers don't take, and was not converted. {error}"
            )
    return troubles


def _fits(spill_dir: Path, file: FileBlock) -> bool:
    if not file.is_image or file.size > SMALL_BYTES:
        return False
    with kept_path(spill_dir, file).open("rb") as picture:
        head = picture.read(24)
    # Of pictures with few bytes, it is screenshots that have many pixels. PNG's first chunk says how many.
    return (
        file.media_type != "image/png"
        or max(struct.unpack(">8x8xII", head.ljust(24, b"\0"))) <= _LONGEST_SIDE
    )


async def _shrunk(file: FileBlock, path: Path, sandbox: Sandbox) -> bytes:
    """The smaller picture.

    Raises:
        ValueError: There is none; the message says why.
        SandboxError, OSError: It could not be read.
    """
    found = find_spec("PIL")
    lacks = file.media_type in HEIF and find_spec("pillow_heif") is None
    if found is None or found.origin is None or lacks:
        raise ValueError(f"A package is missing. Type: {install_extra('documents')}")
    path = await run_sync(path.resolve)
    # The sandbox of a root user is another user. The home around the file stays closed to others.
    await run_sync(path.chmod, 0o644)
    entry = PythonEntry(
        code_dir=Path(__file__).with_name("guest"), args={"path": str(path), "most": SMALL_BYTES}
    )
    result = await sandbox.run(
        RunSpec(entry=entry, layer=Path(found.origin).parents[1], limits=_LIMITS, read_only=(path,))
    )
    if result.status is not Status.OK or result.result is None:
        raise ValueError(str(result.error))
    answer = json.loads(result.result)
    if "error" in answer:
        raise ValueError(str(answer["error"]))
    # Only that it is a JPEG is trusted: models and browsers get it as one.
    content = base64.b64decode(answer["jpeg"])
    if not content.startswith(b"\xff\xd8\xff"):
        raise ValueError("It was not read.")
    return content
