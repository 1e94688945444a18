"""A server's result as a tool's result: text as it is, everything else as a description and a file."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from satchel.messages import FileBlock
from satchel.plain import json_in
from satchel.tools.kept import keep, kept_path, suffix_of
from satchel.tools.mcp.offers import MAX_URI
from satchel.tools.port import ToolContext, ToolResult
from satchel.tools.visible import visible

_MOST_BLOCKS = 1_000
"""Blocks of one result; the rest is left out with a note."""


async def tool_result(raw: Mapping[str, Any], context: ToolContext) -> ToolResult:
    """Turn a protocol result into the result that a model gets.

    Images, sound and other bytes are files of the result. The text names them too.
    """
    content = raw.get("content")
    blocks: Sequence[Any] = content if isinstance(content, list) else ()
    files: list[FileBlock] = []
    parts = [
        await block_text(block, context, files)
        for block in blocks[:_MOST_BLOCKS]
        if isinstance(block, Mapping)
    ]
    if len(blocks) > _MOST_BLOCKS:
        parts.append(f"[{len(blocks) - _MOST_BLOCKS:,} more parts were left out]")
    data = raw.get("structuredContent")
    if data is not None:
        try:
            written = json.dumps(data, ensure_ascii=False, indent=1)
        except (ValueError, RecursionError):
            # Nothing can be done with what JSON can't hold: Python reads longer numbers and deeper data than it writes.
            data, written = None, ""
            parts.append("[structured content that is nested too deeply, or holds a number that is too long]")
        if written and not _says(parts, data):
            parts.append(visible(written))
    is_error = raw.get("isError") is True
    text = "\n".join(part for part in parts if part)
    if not text:
        text = "The tool failed without a message." if is_error else "(done; the tool returned nothing)"
    return ToolResult(text=text, is_error=is_error, data=data, untrusted=True, files=tuple(files))


def _says(parts: Sequence[str], data: Any) -> bool:
    """Whether the text already holds the structured content: servers send both, for older clients."""
    if any(json_in(part) == data for part in parts):
        return True
    # {"result": "text"} is how the SDK wraps a plain value.
    return isinstance(data, Mapping) and len(data) == 1 and str(next(iter(data.values()))) == "\n".join(parts)


async def block_text(block: Mapping[str, Any], context: ToolContext, files: list[FileBlock]) -> str:
    """One block of content as text; bytes are saved in a file, which is added to `files` and named in the text."""
    match block.get("type"):
        case "text":
            return visible(str(block.get("text", "")))
        case "image" | "audio" as kind:
            return await _kept(kind, block.get("data"), block.get("mimeType"), context, files)
        case "resource_link":
            named = block.get("title") or block.get("name") or ""
            told = [f"[link to a resource: {named} {block.get('uri', '')}".rstrip()]
            told += [str(block[key]) for key in ("mimeType", "description") if block.get(key)]
            return visible(", ".join(told)) + "]"
        case "resource":
            resource = block.get("resource")
            return (
                await resource_text(resource, context, files)
                if isinstance(resource, Mapping)
                else "[an empty resource]"
            )
        case other:
            return f"[a part of the unknown type {str(other)[:40]!r}]"


async def resource_text(resource: Mapping[str, Any], context: ToolContext, files: list[FileBlock]) -> str:
    """The contents of a resource as text, under its address; see `block_text`."""
    uri = visible(str(resource.get("uri", ""))[:MAX_URI])
    if isinstance(resource.get("text"), str):
        return f"[resource {uri}]\n{visible(resource['text'])}"
    kept = await _kept("resource", resource.get("blob"), resource.get("mimeType"), context, files)
    return f"{kept[:-1]}, from {uri}]"


async def _kept(kind: str, data: Any, mime_type: Any, context: ToolContext, files: list[FileBlock]) -> str:
    """Save bytes in a file; a note with their type, size and path."""
    mime = visible(str(mime_type or "application/octet-stream")[:80])
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return f"[{kind}, {mime}: its data is not base64]"
    suffix = suffix_of(mime) or ".bin"
    try:
        file = await context.blocking(keep, context.spill_dir, f"{kind}{suffix}", content)
    except OSError as error:
        return f"[{kind}, {mime}, {len(content):,} bytes, which could not be saved: {error.strerror}]"
    if file not in files:
        files.append(file)
    return f"[{kind}, {mime}, {len(content):,} bytes, in {kept_path(context.spill_dir, file)}]"
