"""Reads a provider's answer from a copy of the bytes that were sent to the client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from satchel.plain import json_in

_MOST_BYTES: Final = 16_000_000
"""The most of an answer that is kept for reading, also after decompression. The longest streams have about 1 MB."""
_MOST_ARGUMENTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAnswer:
    """A provider's answer.

    Attributes:
        text: What the model says.
        is_final: The answer is complete, and calls no tool of the client.
        arguments: Texts among the arguments of its calls.
    """

    text: str = ""
    is_final: bool = False
    arguments: tuple[str, ...] = ()


class AnswerCollector:
    """Collects the bytes of a provider's answer."""

    def __init__(self, headers: httpx2.Headers) -> None:
        """`headers` are those of the answer."""
        self._headers = headers
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, piece: bytes) -> None:
        """Take the next piece."""
        self._size += len(piece)
        if self._size <= _MOST_BYTES:
            self._pieces.append(piece)

    def read(self) -> ProviderAnswer:
        """The answer; empty if it can't be read."""
        if self._size > _MOST_BYTES:
            return ProviderAnswer()
        kept = [
            (name, self._headers[name])
            for name in ("content-encoding", "content-type")
            if name in self._headers
        ]
        try:
            body = _text_of(httpx2.Response(200, headers=kept, content=iter(self._pieces)))
            if "event-stream" in self._headers.get("content-type", ""):
                # `splitlines` would also end a line at U+2028 and the like, which JSON may contain as they are.
                return _read_stream(_events(body.split("\n")))
            return _read_message(json.loads(body))
        # The bytes are from outside: badly compressed, cut, or in an unexpected form. Nobody waits for this.
        except (httpx2.DecodingError, ValueError, RecursionError, AttributeError, TypeError):
            return ProviderAnswer()


def _text_of(response: httpx2.Response) -> str:
    """The decompressed text.

    Raises:
        ValueError: It is too long: a few KB can be decompressed to gigabytes.
    """
    pieces: list[str] = []
    size = 0
    for piece in response.iter_text():
        size += len(piece)
        if size > _MOST_BYTES:
            raise ValueError("too long")
        pieces.append(piece)
    return "".join(pieces)


def _events(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        if line.startswith("data:"):
            event = json_in(line[5:])
            if isinstance(event, dict):
                yield event


def _read_stream(events: Iterable[Mapping[str, Any]]) -> ProviderAnswer:
    texts: dict[int, str] = {}
    inputs: dict[int, str] = {}
    reason, is_complete = None, False
    for event in events:
        match event:
            case {"type": "content_block_start", "index": int(index), "content_block": {"type": "text"}}:
                texts[index] = ""
            case {"type": "content_block_start", "index": int(index), "content_block": {"type": "tool_use"}}:
                inputs[index] = ""
            case {"type": "content_block_delta", "index": int(index), "delta": {"text": str(text)}}:
                texts[index] = texts.get(index, "") + text
            case {"type": "content_block_delta", "index": int(index), "delta": {"partial_json": str(text)}}:
                inputs[index] = inputs.get(index, "") + text
            case {"type": "message_delta", "delta": {"stop_reason": str(why)}}:
                reason = why
            case {"type": "message_stop"}:
                is_complete = True
            case _:
                pass
    return _answer_of(
        texts.values(), [json_in(text) for text in inputs.values()], reason if is_complete else None
    )


def _read_message(message: Mapping[str, Any]) -> ProviderAnswer:
    blocks = [block for block in message["content"] if isinstance(block, dict)]
    return _answer_of(
        [str(block.get("text", "")) for block in blocks if block.get("type") == "text"],
        [block.get("input") for block in blocks if block.get("type") == "tool_use"],
        message.get("stop_reason"),
    )


def _answer_of(texts: Iterable[str], inputs: Iterable[Any], reason: object) -> ProviderAnswer:
    arguments = [
        value
        for input in inputs
        if isinstance(input, dict)
        for value in input.values()
        if isinstance(value, str) and value.strip()
    ]
    return ProviderAnswer(
        text="\n".join(text for text in texts if text.strip()),
        is_final=reason in ("end_turn", "stop_sequence", "max_tokens"),
        arguments=tuple(arguments[:_MOST_ARGUMENTS]),
    )
