"""What models do in the background costs: calls and tokens a message, for lives that are lived conversation by
conversation, with a scripted model in place of gate, extractor and page.

    python benchmarks/background.py [LIFE.json …] [--reply-tokens 120]

Each conversation is read when it has ended, as `satchel memory work` does, and then the page is brought up to date if
that is due. The scripted model finds worth in everything and writes down each sentence of the user that is no question,
two a message at most (in the life that the issue on memory tells of, a real one found 1.3), takes every fact to the
page, and the oldest off it when it is nearly full. Tokens are estimated as everywhere; those of schemas, which
providers count differently, are not in them. A reply of the assistant has `--reply-tokens`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.messages import Message
from satchel.models import ModelRequest, ScriptedModel

LIVES = Path(__file__).with_name("lived")
_MOST_FACTS = 2
_LEAST_WORDS = 4
_ROOM = re.compile(r"^on the page \(([\d,]+) of ([\d,]+) letters\):", re.MULTILINE)
_NOTE = re.compile(r"^(\S+) \d\d-\d\d (.*)$", re.MULTILINE)
_REPLY = "That is a sentence of an answer in which the assistant explains something at some length. "


def answer(request: ModelRequest) -> str:
    """What the scripted model says to one request."""
    schema = request.response_schema or {}
    lines = [json.loads(line) for message in request.messages for line in _objects(message)]
    if "worth" in schema.get("properties", {}):
        return json.dumps({"worth": True, "reason": "it tells something of the user"})
    said = [line for line in lines if line.get("speaker") == "user" and "read_before" not in line]
    facts = [_fact(sentence) for line in said for sentence in _told(line["text"])]
    return json.dumps({"facts": facts, "off": _off(request.messages[0].text)}, ensure_ascii=False)


def _objects(message: Message) -> list[str]:
    return [line for line in message.text.splitlines() if line.startswith("{")]


def _told(text: str) -> list[str]:
    sentences = re.split(r"(?<=[.!?])\s+|\n+", text)
    told = [one for one in sentences if not one.endswith("?") and len(one.split()) >= _LEAST_WORDS]
    return told[:_MOST_FACTS]


def _fact(sentence: str) -> dict[str, Any]:
    return {
        "content": sentence,
        "quote": sentence,
        "importance": 3,
        "memory_type": "fact",
        "tags": ["home"],
        "time": "lasting",
        "relation": "new",
        "cues": ["planning the week", "talking about family"],
        "section": "user",
        "spheres": ["home"],
    }


def _off(text: str) -> list[str]:
    """The oldest notes of a page that is nearly full."""
    found = _ROOM.search(text)
    if found is None:
        return []
    used, room = (int(one.replace(",", "")) for one in found.groups())
    over, off = used - int(0.9 * room), []
    for id, words in _NOTE.findall(text[found.end() :].partition("not on the page")[0]):
        if over > 0:
            over -= len(words)
            off.append(id)
    return off


async def live(told: Mapping[str, Any], reply_tokens: int) -> tuple[Counter[str], Counter[str], str]:
    """Live a life; gives calls and tokens by purpose, and what is known in the end."""
    clock, model = ManualClock(), ScriptedModel(answer)
    reply = (_REPLY * reply_tokens)[: int(3.5 * reply_tokens)]
    async with Memory.open(":memory:", embedder="none", clock=clock, back_fill=False) as memory:
        for number, messages in groupby(told["messages"], key=lambda message: message["conversation"]):
            for message in messages:
                clock.at = datetime.fromisoformat(message["at"])
                texts = [("user", message["text"]), ("assistant", reply)]
                await memory.add_episodes(
                    Episode(
                        session=f"c{number}",
                        turn=message["n"],
                        speaker=speaker,
                        text=text,
                        said_at=clock.at,
                        trust="user" if speaker == "user" else "agent",
                    )
                    for speaker, text in texts
                    if text
                )
            clock.at += timedelta(minutes=10)
            await memory.distill(model=model)
        spent = await memory.spent()
        facts, page = await memory.count(kind="fact"), await memory.page(budget_tokens=100_000)
    known = f"{facts} facts, page of {page.tokens if page else 0:,} tokens"
    calls: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for row in spent:
        calls[row.purpose] += row.calls
        tokens[row.purpose] += row.usage.total_tokens
    return calls, tokens, known


async def main() -> None:
    """Live all of them and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("lives", type=Path, nargs="*", default=sorted(LIVES.glob("*.json")))
    parser.add_argument("--reply-tokens", type=int, default=120)
    arguments = parser.parse_args()
    print("| life | messages | calls a message | tokens a message | of these | in the end |")
    print("|---|---|---|---|---|---|")
    for path in arguments.lives:
        told = json.loads(path.read_text(encoding="utf-8"))
        calls, tokens, known = await live(told, arguments.reply_tokens)
        messages = len(told["messages"])
        parts = ", ".join(f"{name} {calls[name]} calls {tokens[name]:,}" for name in sorted(calls))
        means = f"{calls.total() / messages:.2f} | {tokens.total() / messages:,.0f}"
        print(f"| {path.stem} | {messages} | {means} | {parts} | {known} |")


if __name__ == "__main__":
    anyio.run(main)
