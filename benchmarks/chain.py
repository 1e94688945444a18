"""A chain of fifty calls in one turn: the cost of the last ten rounds compared with the first ten.

    python benchmarks/chain.py [--chains 5]

Each round sends the whole conversation, so the number of bytes grows, but the work of the loop must not. The baseline
is a hand-written loop over the bare SDK.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
from loopback import endpoint
from turn_cpu import QUESTION, SCHEMA, SYSTEM, environment, look, versions

from satchel.clock import SystemClock
from satchel.config import ProviderSettings
from satchel.conversation import Conversation
from satchel.events import Assistant, Event
from satchel.loop import PrefixWatch, TokenEstimator, TurnInput, TurnLimits, run_turn
from satchel.messages import Message, TextBlock
from satchel.models.openai.client import OpenAIModel

LENGTH = 50
Marks = list[tuple[float, float]]
"""CPU and wall time, in seconds, at the start and after each answer of a chain."""


def mark() -> tuple[float, float]:
    """The CPU and wall time now, in seconds."""
    return time.process_time(), time.perf_counter()


def satchel(address: str) -> Callable[[], Awaitable[Marks]]:
    """A chain in Satchel's loop."""
    provider = ProviderSettings(name="openai", kind="openai", base_url=f"{address}/v1")
    model = OpenAIModel(provider, f"chain-{LENGTH}", api_key="k", clock=SystemClock())
    shop = environment()

    async def chain() -> Marks:
        marks = [mark()]

        async def emit(events: Sequence[Event]) -> None:
            if any(isinstance(event, Assistant) for event in events):
                marks.append(mark())

        outcome = await run_turn(
            TurnInput(
                message=Message(role="user", blocks=(TextBlock(text=QUESTION),)),
                conversation=Conversation(),
                turn=1,
                model=model,
                system=SYSTEM,
                environment=shop,
                emit=emit,
                clock=SystemClock(),
                # The endpoint requests the same call each time; stopping such repetition is not measured here.
                limits=TurnLimits(max_rounds=LENGTH + 1, max_repeats=LENGTH + 1, max_stale=LENGTH + 1),
                estimator=TokenEstimator(),
                watch=PrefixWatch(),
            )
        )
        assert outcome.status == "done", outcome.text
        return marks

    return chain


def bare(address: str) -> Callable[[], Awaitable[Marks]]:
    """A chain in a hand-written loop over the SDK."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{address}/v1", api_key="k")
    tools: Any = [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}
    ]

    async def chain() -> Marks:
        marks = [mark()]
        messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
        while True:
            options: Any = {"stream": True, "stream_options": {"include_usage": True}}
            chunks = await client.chat.completions.create(
                model=f"chain-{LENGTH}", messages=messages, tools=tools, **options
            )
            call = {"id": "", "arguments": ""}
            async for chunk in chunks:
                for choice in chunk.choices:
                    for part in choice.delta.tool_calls or ():
                        call["id"] += part.id or ""
                        call["arguments"] += part.function.arguments or ""
            marks.append(mark())
            if not call["id"]:
                return marks
            function = {"name": "look", "arguments": call["arguments"]}
            asked = {"id": call["id"], "type": "function", "function": function}
            messages += [
                {"role": "assistant", "content": None, "tool_calls": [asked]},
                {
                    "role": "tool",
                    "tool_call_id": call["id"],
                    "content": look(**json.loads(call["arguments"])),
                },
            ]

    return chain


def figures(chains: Sequence[Marks]) -> dict[str, float]:
    """Medians over the chains: CPU of the whole, of the first and the last ten rounds, in ms, and their
    ratio.
    """

    def cpu(start: int, end: int) -> float:
        return statistics.median((marks[end][0] - marks[start][0]) * 1000 for marks in chains)

    # The first answer is left out because it opens the connection and compiles the schema.
    first, last = cpu(1, 11), cpu(LENGTH - 10, LENGTH)
    return {
        "cpu_ms": round(cpu(0, LENGTH + 1), 1),
        "first_ten_cpu_ms": round(first, 2),
        "last_ten_cpu_ms": round(last, 2),
        "last_to_first": round(last / first, 3),
    }


def main() -> None:
    """Run the benchmark and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chains", type=int, default=5)
    arguments = parser.parse_args()
    with endpoint() as address:

        async def run() -> dict[str, list[Marks]]:
            contenders = {"openai SDK": bare(address), "satchel": satchel(address)}
            found: dict[str, list[Marks]] = {name: [] for name in contenders}
            for number in range(arguments.chains + 1):
                for name, chain in contenders.items():
                    marks = await chain()
                    if number:
                        found[name].append(marks)
            return found

        found = anyio.run(run)
    measured = {name: figures(chains) for name, chains in found.items()}
    result = {
        "what": f"CPU of a turn with a chain of {LENGTH} calls",
        "versions": versions(),
        "chains": arguments.chains,
        "figures": measured,
        "satchel_to_sdk": round(measured["satchel"]["cpu_ms"] / measured["openai SDK"]["cpu_ms"], 3),
        "aim": "the last ten rounds cost at most 1.3 times the first ten",
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
