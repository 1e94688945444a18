"""What distilling costs and finds, with a language model that answers: for each conversation, what the gate says and
what the extractor writes down, beside what somebody noted by hand.

    python benchmarks/distilling.py FOLDER --model openai:NAME [--persons en-3,en-8,work-1,de-1,es-1]

FOLDER holds lives, as for `lives.py`. Of each person, the fifth and the tenth conversation are read, and a message that
tells nothing about them: about the world, a task, or small talk in turn; and a pasted log. The gate is right about a
conversation if it says yes to those that a note rests on. Whether each fact is right, missed or invented is for a
reader to say, who gets both lists. The model is asked at OPENAI_BASE_URL, many conversations at once.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio

from satchel.clock import ManualClock
from satchel.config import load
from satchel.memory import Episode, Memory
from satchel.models import AbilityStore, ChatModel, open_model

_KINDS = ("world", "task", "chat")
_LINES = 200


@dataclass(slots=True, kw_only=True)
class Read:
    """A conversation, what was noted by hand, and what came out."""

    name: str
    episodes: list[Episode]
    noted: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    spent: list[tuple[str, int, int, int]] = field(default_factory=list)

    @property
    def gate_said_yes(self) -> bool:
        """Whether the extractor was asked; it always is about a conversation that is one window."""
        return any(purpose == "extract" for purpose, *_ in self.spent)


def conversations(folder: Path, persons: list[str]) -> Iterator[Read]:
    """What is read."""
    for number, person in enumerate(persons):
        life = json.loads((folder / f"{person}.json").read_text(encoding="utf-8"))
        sessions: dict[str, list[dict[str, Any]]] = {}
        for memory in life["memories"]:
            sessions.setdefault(memory["session"], []).append(memory)
        for session, turns in list(sessions.items())[4:10:5]:
            ids = {turn["id"] for turn in turns}
            yield Read(
                name=f"{person} {session}",
                episodes=[_episode(session, turn) for turn in turns],
                noted=[fact["text"] for fact in life["facts"] if ids & set(fact["sources"])],
            )
        kind = _KINDS[number % len(_KINDS)]
        message = next(message for message in life["messages"] if message["kind"] == kind)
        said = {**message, "turn": 0, "speaker": "user", "said_at": message["at"]}
        yield Read(name=f"{person} {kind}", episodes=[_episode(message["id"], said)])
    yield Read(name="log", episodes=[_log()])


def _episode(session: str, turn: dict[str, Any]) -> Episode:
    return Episode(
        session=session,
        turn=turn["turn"],
        speaker=turn["speaker"],
        text=turn["text"],
        said_at=datetime.fromisoformat(turn["said_at"]),
        trust="user" if turn["speaker"] == "user" else "agent",
    )


def _log() -> Episode:
    lines = [
        f"2026-11-21T04:{number // 60:02}:{number % 60:02}Z web-{number % 3} nginx: "
        f"upstream 10.0.0.{number % 9} timed out"
        for number in range(_LINES)
    ]
    text = "what does this mean\n" + "\n".join(lines)
    return Episode(
        session="log",
        turn=0,
        speaker="user",
        text=text,
        said_at=datetime.fromisoformat("2026-11-21T05:00+00:00"),
    )


async def read(one: Read, model: ChatModel) -> None:
    """Distil a conversation in a store of its own."""
    clock = ManualClock(
        at=max(episode.said_at for episode in one.episodes if isinstance(episode.said_at, datetime))
    )
    async with Memory.open(":memory:", embedder="none", clock=clock) as memory:
        await memory.add_episodes(one.episodes)
        report = await memory.distill(model=model)
        one.found = [fact.content for fact in await memory.list(kind="fact")]
        one.results = [
            {
                "outcome": window.outcome,
                "reason": window.reason,
                "dropped": list(window.dropped),
                "error": window.error,
            }
            for window in report.windows
        ]
        one.spent = [
            (row.purpose, row.calls, row.usage.input_tokens, row.usage.output_tokens)
            for row in await memory.spent()
        ]


async def main() -> None:
    """Read all of them and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--persons", default="en-3,en-8,work-1,de-1,es-1")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        settings = load(dict(os.environ), cwd=Path(home), home=Path(home))
        abilities = AbilityStore(Path(home) / "abilities.json", clock=ManualClock())
        model = open_model(arguments.model, settings, abilities=abilities, clock=ManualClock())
        reads = list(conversations(arguments.folder, arguments.persons.split(",")))
        async with anyio.create_task_group() as group:
            for one in reads:
                group.start_soon(read, one, model)
        await model.aclose()
    for one in reads:
        print(
            f"\n## {one.name}: noted {len(one.noted)}, gate {'yes' if one.gate_said_yes else 'no'}, {one.spent}"
        )
        for result in one.results:
            print(f"   {json.dumps(result, ensure_ascii=False)}")
        for text in one.noted:
            print(f"   noted  {text}")
        for text in one.found:
            print(f"   found  {text}")
    right = sum(one.gate_said_yes == bool(one.noted) for one in reads)
    turns = sum(len(one.episodes) for one in reads)
    print(f"\ngate right: {right} of {len(reads)}; {turns} turns")
    for purpose in ("gate", "extract"):
        rows = [numbers for one in reads for name, *numbers in one.spent if name == purpose]
        calls, tokens_in, tokens_out = (sum(row[part] for row in rows) for part in range(3))
        print(f"{purpose}: {calls} calls, {tokens_in:,} tokens in, {tokens_out:,} out")


if __name__ == "__main__":
    anyio.run(main)
