"""A prompt's content blocks as a message: the user's words and the attachments."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from acp.schema import (
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from satchel.errors import UsageError
from satchel.tools.visible import visible
from satchel.wording import cut_text

__all__ = ["PromptContent", "read_prompt"]

_MOST_ATTACHED_CHARS: Final = 18_000
"""The most of one attachment: a hook adds at most 20,000 characters to a message."""
_MOST_URI_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptContent:
    """What a prompt says.

    Attributes:
        text: The user's words, with the addresses of what they mention.
        attached: The content of files and other resources that the editor sends along; "" if there is none.
        files: Pictures that it sends along: name and bytes.
    """

    text: str
    attached: str
    files: tuple[tuple[str, bytes], ...] = ()


def read_prompt(blocks: Sequence[Any]) -> PromptContent:
    """Read the blocks of a prompt.

    Raises:
        UsageError: There is a block that a message can't contain, such as sound, or nothing at all.
    """
    words, attached, files = [], [], []
    for block in blocks:
        match block:
            case TextContentBlock():
                words.append(block.text)
            case ResourceContentBlock():
                words.append(f"[{visible(block.name)}]({visible(block.uri[:_MOST_URI_CHARS])})")
            case EmbeddedResourceContentBlock():
                uri = visible(block.resource.uri[:_MOST_URI_CHARS])
                words.append(f"({uri}, attached)")
                attached.append(f"[{uri}]\n{_text_of(block.resource)}")
            case ImageContentBlock():
                name = (block.uri or "").rstrip("/").rpartition("/")[2]
                try:
                    files.append((name or "picture", base64.b64decode(block.data, validate=True)))
                except binascii.Error as error:
                    raise UsageError("The picture isn't valid base64.") from error
            case _:
                kind = getattr(block, "type", "?")
                raise UsageError(
                    f"Satchel's messages are text and pictures: a block of the type {kind} can't be sent. Send the "
                    "file's address as a resource_link instead."
                )
    text = "\n".join(words).strip()
    if not text and not files:
        raise UsageError("The prompt has no text.")
    return PromptContent(text=text, attached="\n\n".join(attached), files=tuple(files))


def _text_of(resource: TextResourceContents | BlobResourceContents) -> str:
    if isinstance(resource, TextResourceContents):
        text = resource.text
    else:
        try:
            text = base64.b64decode(resource.blob, validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            return "(not text; left out)"
    return cut_text(text, _MOST_ATTACHED_CHARS)
