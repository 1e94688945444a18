"""A thousand capabilities: what they cost in the prompt, how long a lookup takes, and what opening the catalogue costs.

    python benchmarks/capabilities.py [--many 1000] [--lookups 200]

Prints the length of a first request with ten and with many capabilities (their ratio must stay below 1.15), the time of
`lookup_capability` by words and by meaning (95th percentile below 20 ms), and the time to open
the catalogue and to make its tools.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import anyio

from satchel.capabilities import Access, Catalogue, Draft, Lookup, Provenance, Wanted
from satchel.clock import SystemClock
from satchel.config import load
from satchel.models import ScriptedModel
from satchel.models.embedding import open_embedder
from satchel.runtime import Satchel

TASKS = (
    "Look up the current {} for a city", "Convert {} from one unit into another", "Count the {} in a text",
    "Draw a chart of {} as an image", "Check whether a {} is valid", "List the next {} at a place and a time",
    "Summarise the {} of a month as a table", "Find the {} with a given number", "Compare two {} line by line",
    "Translate the names of {} into German",
)  # fmt: skip
THINGS = (
    "weather", "tides", "exchange rates", "trains", "recipes", "invoices", "postcodes", "birds", "stars", "holidays",
    "shares", "words", "bank holidays", "pollen", "books", "songs", "chess games", "matches", "flights", "ferries",
)  # fmt: skip
QUERIES = (
    "weather in Austin tomorrow", "how many words are in this", "trains from here to Ulm", "is this postcode right",
    "what do shares cost", "a picture of the exchange rates", "tides", "books by number", "birds in German", "ferries",
)  # fmt: skip


def draft(number: int) -> Draft:
    """A capability with a realistic description and schema."""
    about = TASKS[number % len(TASKS)].format(THINGS[number // len(TASKS) % len(THINGS)])
    return Draft(
        code='def run(args: dict) -> str:\n    return args["what"]\n',
        description=f"{about}, number {number}. Gives a short text with the source and the time of the data.",
        input_schema={
            "type": "object",
            "properties": {
                "what": {"type": "string", "description": "What is looked for"},
                "unit": {"type": "string", "enum": ["metric", "imperial"]},
            },
            "required": ["what"],
        },
        cases='{"name": "a", "input": {"what": "x"}, "expect": {"equals": "x"}}\n'
        '{"name": "b", "input": {}, "expect": {"error": "what"}}\n',
    )


async def fill(catalogue: Catalogue, count: int) -> None:
    """Register so many, as if their cases had passed."""
    for number in range(count):
        name = f"capability_{number}"
        await catalogue.request(Wanted(name=name, description="x"))
        staged = await catalogue.stage(name, draft(number), provenance=Provenance())
        await catalogue.approve(name, Access())
        await catalogue.commit(staged, checks=[])


async def prompt_length(home: Path, count: int) -> int:
    """The characters of system text and tools in the first request of a session."""
    model = ScriptedModel(["Hello."])
    settings = load({"HOME": str(home), "PATH": "/usr/bin:/bin"}, cwd=home, home=home / "s")
    async with Satchel.open(settings, model=model, embedder="none") as satchel:
        assert satchel.capabilities is not None
        await fill(satchel.capabilities.catalogue, count)
        await (await satchel.session()).run_turn("Hello")
    request = model.requests[0]
    tools = [
        {"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in request.tools
    ]
    return len(request.system) + len(json.dumps(tools))


async def lookups(home: Path, count: int) -> None:
    """Print how long lookups, opening and the first update of the tools take."""
    clock = SystemClock()
    settings = load({"HOME": str(home), "PATH": "/usr/bin:/bin"}, cwd=home, home=home / "s")
    async with Satchel.open(settings, model=ScriptedModel([]), embedder="none") as satchel:
        assert satchel.capabilities is not None
        assert satchel.home.database is not None
        began = time.perf_counter()
        catalogue = await Catalogue.open(satchel.home.database, home=settings.home, clock=clock)
        opened = time.perf_counter()
        await satchel.capabilities.tools.tools()
        made = time.perf_counter()
        print(
            f"open the catalogue {1000 * (opened - began):.0f} ms, make its tools {1000 * (made - opened):.0f} ms"
        )
        embedder = open_embedder("minilm", home=home, environ=dict(os.environ), clock=clock)
        for name, arm in (("words", "none"), ("words and meaning", embedder)):
            lookup = Lookup(catalogue, satchel.home.database, embedder=arm)
            began = time.perf_counter()
            await lookup.search("something")
            first = time.perf_counter() - began
            times, cpu = [], []
            for number in range(count):
                began, used = time.perf_counter(), time.process_time()
                await lookup.search(QUERIES[number % len(QUERIES)])
                times.append(1000 * (time.perf_counter() - began))
                cpu.append(1000 * (time.process_time() - used))
            times.sort()
            cpu.sort()
            print(
                f"lookup by {name}: p50 {statistics.median(times):.1f} ms, p95 {times[int(0.95 * count)]:.1f} ms; "
                f"CPU p50 {statistics.median(cpu):.1f} ms, p95 {cpu[int(0.95 * count)]:.1f} ms "
                f"(the first, which reads all: {first:.1f} s)"
            )
        await embedder.aclose()


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--lookups", type=int, default=200)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        few = await prompt_length(Path(tempfile.mkdtemp(dir=folder)), 10)
        large = Path(tempfile.mkdtemp(dir=folder))
        many = await prompt_length(large, options.many)
        print(f"prompt: {few:,} characters with 10, {many:,} with {options.many:,}: {many / few:.3f} x")
        await lookups(large, options.lookups)


if __name__ == "__main__":
    anyio.run(main)
