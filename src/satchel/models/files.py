"""What a model gets of an attached file: a picture, a document, its text, or a sentence that says why it gets none."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from satchel.messages import MOST_TEXT, FileBlock, Message
from satchel.models.port import FileReader
from satchel.wording import cut_text

__all__ = ["MOST_PICTURE", "FilePart", "Takes", "less", "part_of"]

Takes: TypeAlias = Literal["all", "pictures", "text"]
"""What an endpoint takes, which is tried: all kinds at first, and less after it has refused a kind."""

_ABOUT_FILES: Final = re.compile(
    r"image|vision|visual|modal|media|\bfile|document|pdf|content", re.IGNORECASE
)

MOST_PICTURE: Final = 3_700_000
"""Bytes of a picture that every provider takes: Anthropic documents 5 MB in base64, others more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A part of a message.

    Attributes:
        content: The text, or the bytes in base64.
    """

    kind: Literal["picture", "document", "text"]
    content: str
    media_type: str = ""
    name: str = ""


def part_of(file: FileBlock, read: FileReader | None, *, takes: Takes) -> FilePart:
    """What is sent of a file.

    Args:
        file: Which.
        read: Reads its bytes.
        takes: What the endpoint takes.
    """
    if read is None or (content := read(file)) is None:
        return _sentence(file, "It isn't there any more.")
    if file.is_picture:
        if takes == "text":
            if twin := read(file.text_twin):
                return FilePart(kind="text", content=f"[{file.name}: {twin.decode('utf-8', 'replace')}]")
            return _sentence(file, "You can't see pictures here.")
        if small := read(file.small_twin):
            return _encoded(file.small_twin, "picture", small)
        if not file.is_image:
            return _sentence(file, "You can't be shown pictures of this format.")
        if len(content) > MOST_PICTURE:
            most = f"{MOST_PICTURE / 1_000_000:.3g} MB"
            return _sentence(file, f"The picture has more than the {most} that you can be sent.")
        return _encoded(file, "picture", content)
    if file.media_type == "application/pdf" and takes == "all":
        return _encoded(file, "document", content)
    text = content if file.media_type.startswith("text/") else read(file.text_twin)
    if text is not None:
        shown = cut_text(
            text.decode("utf-8", "replace"), MOST_TEXT, what="more characters; a tool can read them"
        )
        return FilePart(kind="text", content=f"[{file.name}]\n{shown}")
    return _sentence(file, "You can't be shown what is in it; a tool may read it.")


def less(takes: Takes, refusal: str, messages: Iterable[Message]) -> Takes | None:
    """What an endpoint takes that refused a request; None if the refusal is about something else.

    Args:
        takes: What was sent.
        refusal: What it said. Endpoints of text models say "image input is not supported", "unknown content type",
            "content must be a string" and the like.
        messages: Those of the request.
    """
    files = [file for message in messages for file in (*message.files, *message.result_files)]
    if takes == "text" or not _ABOUT_FILES.search(refusal):
        return None
    if takes == "all" and any(file.media_type == "application/pdf" for file in files):
        return "pictures"
    return "text" if any(file.is_picture for file in files) else None


def _encoded(file: FileBlock, kind: Literal["picture", "document"], content: bytes) -> FilePart:
    return FilePart(
        kind=kind, content=b64encode(content).decode("ascii"), media_type=file.media_type, name=file.name
    )


def _sentence(file: FileBlock, why: str) -> FilePart:
    return FilePart(kind="text", content=f"[{file.name}: {file.media_type}. {why}]")
