"""Lives that are lived message by message: what stands before a model, beside the plainest ways to remember.

    python benchmarks/lived.py [FOLDER] [--only LIFE ...] [--misses]

A file of FOLDER (benchmarks/lived) is one life: the messages of one person over three weeks and two late returns, each
with what a good friend would have in mind (`needed`, with the earlier messages that say it), noted before anything was
run, by an author who had seen no code. Each message is asked when its time has come, with only what was said before it
in the store; then it is stored as the user's turn. There is no language model: this is what memory does alone.

    needed    needs whose messages all stand before the model, over all needs that an earlier conversation answers
    unasked   the same, of needs that the message doesn't ask for
    quiet     messages that need nothing and get no line
    lines     surfaced or found, mean over all messages
    tokens    of all that stands there beyond the conversation itself, estimated, mean over all messages

A need counts by the messages that say it, not by reading what is shown; whether an outdated value stands beside it, or
something private is shown, is not judged here: `wrong` and `private` in the files are for judges who read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from satchel.clock import ManualClock
from satchel.memory import Episode, Memory
from satchel.memory.framing import estimate_tokens

FOLDER = Path(__file__).with_name("lived")
LAST_TURNS = 10
FIRST_HITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What stands before the model: the numbers of the messages it comes from, and what it costs."""

    messages: frozenset[int]
    lines: int
    tokens: int


Way: TypeAlias = Callable[[Memory, "Life", Mapping[str, Any]], Awaitable[Before]]


@dataclass(slots=True)
class Life:
    """A life as far as it was lived.

    Attributes:
        said: The messages so far.
        standing: Of the conversation that is going on: the messages in profile and agenda, the ids of their memories,
            and their tokens.
    """

    said: list[Mapping[str, Any]]
    standing: tuple[frozenset[int], frozenset[str], int] = (frozenset(), frozenset(), 0)


async def satchel(memory: Memory, life: Life, message: Mapping[str, Any]) -> Before:
    """The program: profile and agenda of the conversation's beginning, and what is surfaced for the message."""
    here = [one for one in life.said if one["conversation"] == message["conversation"]]
    if not here:
        blocks = (await memory.profile(), await memory.agenda())
        memories = [line.memory for block in blocks for line in block.memories]
        life.standing = (
            frozenset(number for one in memories if (number := one.source.turn) is not None),
            frozenset(one.id for one in memories),
            sum(estimate_tokens(block.text) for block in blocks if block),
        )
    standing, ids, tokens = life.standing
    context = await memory.surface(
        [*(one["text"] for one in here[-2:]), message["text"]],
        exclude_session=f"c{message['conversation']}",
        standing=ids,
    )
    numbers = [hit.memory.source.turn for hit in context.memories]
    return Before(
        messages=standing | {number for number in numbers if number is not None},
        lines=len(numbers),
        tokens=tokens + estimate_tokens(context.text),
    )


async def first_hits(memory: Memory, life: Life, message: Mapping[str, Any]) -> Before:
    """Plain search: the first hits for the message's words, always."""
    del life
    hits = await memory.search(message["text"], limit=FIRST_HITS)
    return Before(
        messages=frozenset(number for hit in hits if (number := hit.memory.source.turn) is not None),
        lines=len(hits),
        tokens=sum(estimate_tokens(hit.memory.content) for hit in hits),
    )


async def last_turns(memory: Memory, life: Life, message: Mapping[str, Any]) -> Before:
    """What was said last, whatever it was."""
    del memory, message
    return _all_of(life.said[-LAST_TURNS:])


async def everything(memory: Memory, life: Life, message: Mapping[str, Any]) -> Before:
    """All that was ever said, in every request."""
    del memory, message
    return _all_of(life.said)


def _all_of(said: Sequence[Mapping[str, Any]]) -> Before:
    return Before(
        messages=frozenset(one["n"] for one in said),
        lines=len(said),
        tokens=sum(estimate_tokens(one["text"]) for one in said),
    )


WAYS: Mapping[str, Way] = {
    "Satchel, no language model": satchel,
    f"first {FIRST_HITS} of a search": first_hits,
    f"the last {LAST_TURNS} messages": last_turns,
    "everything": everything,
}


@dataclass(slots=True)
class Counts:
    """What is added up over messages."""

    needs: int = 0
    found: int = 0
    unasked: int = 0
    found_unasked: int = 0
    quiet: int = 0
    kept_quiet: int = 0
    lines: int = 0
    tokens: int = 0
    messages: int = 0

    def add(self, message: Mapping[str, Any], before: Before, earlier: set[int]) -> list[str]:
        """Count one message, and give what it needed and did not get."""
        missed = []
        for need in message["needed"]:
            wanted = set(need["from"]) & earlier
            if not wanted:
                continue  # It was said in this conversation, which the model has.
            got = wanted <= before.messages
            self.needs += 1
            self.found += got
            self.unasked += not need["asked"]
            self.found_unasked += got and not need["asked"]
            if not got:
                missed.append(need["what"])
        if not message["needed"]:
            self.quiet += 1
            self.kept_quiet += not before.lines
        self.lines += before.lines
        self.tokens += before.tokens
        self.messages += 1
        return missed

    def row(self) -> str:
        """The figures as cells of a table."""
        shares = (
            (self.found, self.needs),
            (self.found_unasked, self.unasked),
            (self.kept_quiet, self.quiet),
        )
        cells = [f"{part / whole:.2f} of {whole}" if whole else "–" for part, whole in shares]
        return " | ".join(
            (*cells, f"{self.lines / self.messages:.1f}", f"{self.tokens / self.messages:,.0f}")
        )


async def live(told: Mapping[str, Any], counts: Sequence[Mapping[str, Counts]], *, misses: bool) -> None:
    """Live one life in a store of its own, and add what it counts to each of `counts`."""
    clock = ManualClock()
    life = Life([])
    async with Memory.open(":memory:", clock=clock, back_fill=False) as memory:
        for message in told["messages"]:
            clock.at = datetime.fromisoformat(message["at"])
            earlier = {one["n"] for one in life.said if one["conversation"] != message["conversation"]}
            for name, way in WAYS.items():
                before = await way(memory, life, message)
                missed = [some[name].add(message, before, earlier) for some in counts][0]
                if misses and way is satchel and missed:
                    print(f"{told['life']} {message['n']}: {message['text'][:100]!r} misses {missed}")
            await memory.add_episodes(
                [
                    Episode(
                        session=f"c{message['conversation']}",
                        turn=message["n"],
                        speaker="user",
                        text=message["text"],
                        said_at=clock.at,
                    )
                ]
            )
            life.said.append(message)


def main() -> None:
    """Print a table of all ways, for each life and over all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--misses", action="store_true", help="print what Satchel missed")
    options = parser.parse_args()
    total = {way: Counts() for way in WAYS}
    for path in sorted(options.folder.glob("*.json")):
        if not options.only or path.stem in options.only:
            counts = {way: Counts() for way in WAYS}
            anyio.run(partial(live, json.loads(path.read_text()), [counts, total], misses=options.misses))
            print_table(path.stem, counts)
    print_table("all", total)


def print_table(name: str, counts: Mapping[str, Counts]) -> None:
    """Print the figures of each way."""
    print(f"\n{name}\n| | needed | unasked | quiet | lines | tokens |\n|---|---|---|---|---|---|")
    for way, counted in counts.items():
        print(f"| {way} | {counted.row()} |")


if __name__ == "__main__":
    main()
