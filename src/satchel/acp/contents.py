"""A prompt's content blocks as a message: the user's words and the attachments."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from acp.schema import (
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from satchel.errors import UsageError
from satchel.tools.kept import media_type_of
from satchel.tools.visible import visible
from satchel.wording import cut_text

_MOST_ATTACHED_CHARS: Final = 18_000
"""The most of one attachment: a hook adds at most 20,000 characters to a message."""
_MOST_URI_CHARS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptContent:
    """What a prompt says.

    Attributes:
        text: The user's words, with the addresses of what they mention.
        attached: The content of files and other resources that the editor sends along; "" if there is none.
        files: Pictures and other files that it sends along: name and bytes.
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
                content = _content_of(block.resource)
                if isinstance(content, bytes):
                    files.append((_name_in(uri) or "file", content))
                else:
                    words.append(f"({uri}, attached)")
                    attached.append(f"[{uri}]\n{cut_text(content, _MOST_ATTACHED_CHARS)}")
            case ImageContentBlock():
                files.append((_name_in(block.uri or "") or "picture", _decoded(block.data)))
            case _:
                kind = getattr(block, "type", "?")
                raise UsageError(
                    f"Satchel's messages are text, pictures and files: a block of the type {kind} can't be sent. Send "
                    "the file's address as a resource_link instead."
                )
    text = "\n".join(words).strip()
    if not text and not files:
        raise UsageError("The prompt has no text.")
    return PromptContent(text=text, attached="\n\n".join(attached), files=tuple(files))


def _content_of(resource: TextResourceContents | BlobResourceContents) -> str | bytes:
    """The text of a resource, or the bytes of one that is none."""
    if isinstance(resource, TextResourceContents):
        return resource.text
    content = _decoded(resource.blob)
    return content.decode() if media_type_of(content) == "text/plain" else content


def _name_in(uri: str) -> str:
    return unquote(uri.rstrip("/").rpartition("/")[2])


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise UsageError("A picture or a resource isn't valid base64.") from error
