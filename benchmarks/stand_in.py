"""A stand-in for a language model that needs no understanding: it shows how much a recording asks, and how.

It takes each sentence that is long enough for a fact, puts each fact on the page while there is room, keeps the newest
lines of the notes file, and finds nothing when it judges. What it answers has about the length of a model's answers; it
means nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

from satchel.messages import TextBlock, Usage
from satchel.models.port import Completion, ModelEvent, ModelRequest

_FACTS = 3
_NOTES_CHARS = 2_800
_FACT = {
    "importance": 3,
    "memory_type": "fact",
    "tags": ["daily life"],
    "time": "lasting",
    "cues": ["planning the coming week", "a visit to the doctor"],
    "section": "running",
    "spheres": ["home"],
}


class StandIn:
    """A `ChatModel`; it tells tasks apart by the form of the answer that is asked for."""

    provider = "stand-in"
    model = "stand-in"
    context_window: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `ChatModel`."""
        said = request.messages[0].text
        known = (request.response_schema or {}).get("properties", {})
        if request.response_schema is None:
            text = _notes(said)
        elif "facts" in known:
            titles = ["A day at home"] * len(re.findall("^conversation ", said, re.MULTILINE))
            answer = {"facts": _facts(_objects(said)), "off": [], "titles": titles}
            text = json.dumps(answer, ensure_ascii=False)
        elif "worth" in known:
            text = json.dumps({"worth": True, "reason": "it may be"})
        else:
            text = json.dumps({"verdicts": _verdicts(_objects(said))})
        yield Completion(
            blocks=(TextBlock(text=text),),
            stop_reason="end_turn",
            usage=Usage(),
            provider=self.provider,
            model=self.model,
        )

    async def aclose(self) -> None:
        """There is nothing to close."""


def _objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def _facts(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**_FACT, "content": sentence, "quote": sentence}
        for line in lines
        if "text" in line and not line.get("read_before")
        for sentence in re.split(r"(?<=[.!?])\s+", line["text"])[:_FACTS]
        if len(sentence.split()) >= 4
    ]


def _notes(said: str) -> str:
    file, _, conversation = said.partition("\n\nThe conversation of ")
    day, *lines = conversation.splitlines()
    kept = [line for line in file.splitlines()[1:] if line != "(empty)"]
    kept += [f"- {day.strip(':')}: {line[12:160]}" for line in lines]
    while sum(len(line) + 1 for line in kept) > _NOTES_CHARS:
        kept.pop(0)
    return "\n".join(kept)


def _verdicts(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"n": line["n"], "column": letter, "needs": "n" * len(line["needs"]), "wrong": [], "private": []}
        for line in lines
        for letter in line.get("columns", ())
    ]
