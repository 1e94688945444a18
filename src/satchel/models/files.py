"""What a model gets of an attached file: a picture, a document, its text, or a sentence that says why it gets none."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from satchel.messages import MOST_TEXT, Block, FileBlock, Message, TextBlock, ToolResultBlock
from satchel.models.port import FileReader
from satchel.wording import cut_text

Takes: TypeAlias = Literal["all", "pictures", "text"]
"""What an endpoint takes, which is tried: all kinds at first, and less after it has refused a kind."""

_ABOUT_FILES: Final = re.compile(
    r"image|vision|visual|modal|media|\bfile|document|pdf|content", re.IGNORECASE
)

MOST_PICTURE: Final = 3_700_000
"""Bytes of a picture that every provider takes: Anthropic documents 5 MB in base64, others more."""

SMALL_BYTES: Final = 1_000_000
"""What is sent of a picture is made as small as this, because each request repeats the pictures of its conversation."""

_MOST_NAMED: Final = re.compile(
    r"(?:at most|up to|max\w*)\D{0,20}(\d{1,4})\b(?!\.\d|\s*(?:[kmg]i?b|bytes|pixels|px|tokens)\b)",
    re.IGNORECASE,
)
"""As in "at most 1 image(s) may be provided", "supports up to 5 images", "too many images: maximum is 20"; not as in
"image too large: maximum is 5 MB".
"""


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
        small = read(file.small_twin)
        if small:
            return _encoded(file.small_twin, "picture", small)
        if small is not None:
            return _sentence(file, "It can't be read as a picture.")
        if not file.is_image:
            return _sentence(file, "You can't be shown pictures of this format.")
        if len(content) > MOST_PICTURE:
            most = f"{MOST_PICTURE / 1_000_000:.3g} MB"
            return _sentence(file, f"The picture has more than the {most} that you can be sent.")
        return _encoded(file, "picture", content)
    text = content if file.media_type.startswith("text/") else read(file.text_twin)
    if file.media_type == "application/pdf":
        if text == b"":
            return _sentence(file, "It can't be read: it is locked or damaged.")
        if takes == "all":
            return _encoded(file, "document", content)
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


def most_named(refusal: str, messages: Iterable[Message]) -> int | None:
    """How many pictures an endpoint takes that refused a request with more; None if that isn't what it said."""
    named = [int(number) for number in _MOST_NAMED.findall(refusal)] if "image" in refusal.lower() else []
    pictures = sum(len(_pictures(message)) for message in messages)
    return max((number for number in named if 0 < number < pictures), default=None)


def with_newest_pictures(
    messages: Sequence[Message], read: FileReader | None, *, most: int | None, most_mb: float | None
) -> Sequence[Message]:
    """The messages with as many of their pictures as one request may have, the newest; with words in place of others.

    When there are too many, those of older messages are left out until half of the room is free, so that this happens
    seldom: it changes what the provider has cached.

    Args:
        messages: Of the request.
        read: Reads the bytes of a file.
        most: How many pictures it may have; None for any number.
        most_mb: How large they may be together; None for any size.
    """

    def are_too_many(pictures: Sequence[tuple[int, FileBlock]], share: float) -> bool:
        size = sum(min(file.size, SMALL_BYTES) for _, file in pictures)
        return (most is not None and len(pictures) > share * most) or (
            most_mb is not None and size > share * most_mb * 1_000_000
        )

    kept: list[tuple[int, FileBlock]] = []
    gone: dict[int, set[int]] = {}
    for at, message in enumerate(messages):
        kept += ((at, file) for file in _pictures(message))
        share = 0.5 if are_too_many(kept, 1) else 1
        while kept and are_too_many(kept, share if kept[0][0] < at else 1):
            place, file = kept.pop(0)
            gone.setdefault(place, set()).add(id(file))
    return [
        _without(message, gone[at], read) if at in gone else message for at, message in enumerate(messages)
    ]


def _pictures(message: Message) -> list[FileBlock]:
    return [file for file in (*message.result_files, *message.files) if file.is_picture]


def _without(message: Message, gone: Collection[int], read: FileReader | None) -> Message:
    """The message with words in place of the files that have these ids."""

    def words(file: FileBlock) -> str:
        twin = read(file.text_twin) if read is not None else None
        said = (
            twin.decode("utf-8", "replace")
            if twin
            else "It isn't shown to you any more: there are newer pictures."
        )
        return f"[{file.name}: {said}]"

    blocks: list[Block] = []
    for block in message.blocks:
        if isinstance(block, ToolResultBlock):
            told = [words(file) for file in block.files if id(file) in gone]
            files = tuple(file for file in block.files if id(file) not in gone)
            blocks.append(replace(block, content="\n\n".join([block.content, *told]), files=files))
        elif id(block) in gone and isinstance(block, FileBlock):
            blocks.append(TextBlock(text=words(block), origin="notice"))
        else:
            blocks.append(block)
    return replace(message, blocks=tuple(blocks))


def _encoded(file: FileBlock, kind: Literal["picture", "document"], content: bytes) -> FilePart:
    return FilePart(
        kind=kind, content=b64encode(content).decode("ascii"), media_type=file.media_type, name=file.name
    )


def _sentence(file: FileBlock, why: str) -> FilePart:
    return FilePart(kind="text", content=f"[{file.name}: {file.media_type}. {why}]")
