"""Reads the export of Claude's app (`conversations.json`): what the user and the model said in each conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from satchel.addons.importers.transcripts import TurnNumbering, moment_of, place_of, plain_text, whole
from satchel.memory.transfer.files import SourceFile
from satchel.memory.transfer.json_stream import elements
from satchel.memory.transfer.parts import ImportedFile, LeftOut, Part, stable_id


def is_conversation(found: Mapping[str, Any]) -> bool:
    """Whether an object is a conversation of Claude."""
    return isinstance(found.get("chat_messages"), list)


def read(stream: BinaryIO, file: SourceFile) -> Iterator[Part]:
    """Read the messages of every conversation, without tools and thinking."""
    for number, element in elements(stream, file.name):
        if isinstance(element, LeftOut):
            yield element
        elif is_conversation(element):
            where = f"{file.name}#{number}"
            yield from whole(_conversation(element, file, where), where)
        else:
            yield LeftOut(reason="an element that is not a conversation", where=f"{file.name}#{number}")


def _conversation(found: Mapping[str, Any], file: SourceFile, where: str) -> Iterator[Part]:
    messages = [one for one in found["chat_messages"] if isinstance(one, Mapping)]
    name = found.get("uuid") or stable_id(*(one.get("uuid") for one in messages[:1]))
    transcript = TurnNumbering(place_of("claude", name))
    last = moment_of(found.get("created_at"))
    for message in messages:
        last = moment_of(message.get("created_at")) or last
        text = plain_text(message.get("content")) or message.get("text")
        yield transcript.episode(
            text if isinstance(text, str) else "",
            role="user" if message.get("sender") == "human" else "assistant",
            at=last,
            modified_at=file.modified_at,
            where=f"{where} {message.get('uuid')}"[:200],
            names=("claude", name, message["uuid"]) if message.get("uuid") else (),
            files=list(_files(message, file)),
            model=found.get("model"),
        )
    yield from transcript.conversation(found.get("name"))


def _files(message: Mapping[str, Any], file: SourceFile) -> Iterator[ImportedFile]:
    """What was attached: of documents, the export has the text; of other files mostly the name alone."""
    for one in message.get("attachments") or ():
        if isinstance(one, Mapping) and isinstance(text := one.get("extracted_content"), str) and text:
            name = str(one.get("file_name") or "pasted.txt")
            yield ImportedFile(
                name=name if name.endswith((".txt", ".md", ".csv")) else f"{name}.txt",
                read=lambda text=text: text.encode("utf-8", "replace"),  # type: ignore[misc]
            )
    for one in message.get("files") or ():
        name = str(one.get("file_name")) if isinstance(one, Mapping) else ""
        if name and (read_file := file.others().get(name)) is not None:
            yield ImportedFile(name=name, read=read_file)
