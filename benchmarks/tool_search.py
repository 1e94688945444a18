"""Whether the right tool is found among a thousand, and the length of the prompt compared with a dozen tools.

We wrote the requests ourselves (`data/tool_requests.json`, with the tools that are right for each). The definitions
come from the public package `bfcl-eval`, which is not part of the project. Run `pip download --no-deps bfcl-eval`, then

    python benchmarks/tool_search.py bfcl_eval-*.whl [--definitions 1000] [--words]

The output is JSON: the share of requests with a right tool among the first, the first five and the first eight,
compared with a plain count of common words; and the bytes of all definitions in a prompt with a dozen tools and with
all of them.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

from satchel.clock import SystemClock
from satchel.config import load, process_environ
from satchel.loop import Toolbox
from satchel.models.embedding import open_embedder
from satchel.models.port import Embedder
from satchel.runtime.tool_index import ToolIndex
from satchel.tools import Tool, ToolContext, ToolResult, function_tool
from satchel.tools.deferral import Bridge, document_of, split_tools

REQUESTS = Path(__file__).parent / "data" / "tool_requests.json"


def definitions_in(wheel: Path) -> Iterator[Mapping[str, Any]]:
    """Every function in the package's data, each name once."""
    seen: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith(".json") or "/data/" not in name or "possible_answer" in name:
                continue
            for line in archive.read(name).decode().splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if not isinstance(entry, dict):
                    continue
                for found in [entry] if "multi_turn_func_doc" in name else entry.get("function", []):
                    # The bridge's own names can't be used for tools behind it.
                    if found["name"] not in seen and not found["name"].startswith("tool_"):
                        seen.add(found["name"])
                        yield found


def name_of(name: str) -> str:
    """The name in the characters that endpoints accept."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


async def nothing(_: Mapping[str, Any], __: ToolContext) -> ToolResult:
    """Do nothing: the tools are never called."""
    return ToolResult(text="")


def tools_of(wheel: Path, requests: Sequence[Mapping[str, Any]], *, most: int) -> list[Tool]:
    """The tools that the requests name, followed by others, `most` in all."""
    wanted = {name for request in requests for name in request["tools"]}
    found = sorted(definitions_in(wheel), key=lambda entry: entry["name"] not in wanted)[:most]
    tools: dict[str, Tool] = {}
    for entry in found:
        properties = entry.get("parameters", {}).get("properties", {})
        tool = function_tool(
            nothing,
            name=name_of(entry["name"]),
            description=entry["description"],
            properties=properties,
            source="mcp",
        )
        tools.setdefault(tool.spec.name, tool)
    return list(tools.values())


def by_common_words(query: str, tools: Sequence[Tool], *, limit: int) -> list[str]:
    """The baseline: ranks tools by the number of the query's words in their text."""
    words = set(re.findall(r"\w+", query.lower()))
    scored = [(len(words & set(re.findall(r"\w+", document_of(t.spec).lower()))), t.spec.name) for t in tools]
    return [name for _, name in sorted(scored, key=lambda pair: -pair[0])[:limit]]


def shares(found: Sequence[Sequence[str]], requests: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The share of requests with a right tool among the first one, five and eight."""
    right = [{name_of(name) for name in request["tools"]} for request in requests]
    return {
        f"hit@{k}": round(
            sum(bool(set(names[:k]) & ok) for names, ok in zip(found, right, strict=True)) / len(right), 3
        )
        for k in (1, 5, 8)
    }


async def main() -> None:
    """Run the benchmark and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--definitions", type=int, default=1000)
    parser.add_argument("--words", action="store_true", help="search without the embedding model")
    given = parser.parse_args()
    requests = json.loads(REQUESTS.read_text(encoding="utf-8"))
    tools = tools_of(given.wheel, requests, most=given.definitions)
    settings = load(process_environ(), cwd=Path.cwd())
    clock = SystemClock()
    embedder: Embedder | str = "none"
    if not given.words:
        embedder = open_embedder("minilm", home=settings.home, environ=settings.environ, clock=clock)
    with tempfile.TemporaryDirectory() as folder:
        index = ToolIndex(Path(folder) / "tools.db", embedder=embedder, clock=clock, home=settings.home)
        found = [list(await index.find(request["request"], tools, limit=8)) for request in requests]
    plain = [by_common_words(request["request"], tools, limit=8) for request in requests]
    offered, deferred = split_tools(tools, defer_above=30)
    bridge = Toolbox((*offered, *Bridge(index).tools), deferred=deferred)
    dozen = Toolbox(tools[:12])
    print(
        json.dumps(
            {
                "requests": len(requests),
                "definitions": len(tools),
                "search": shares(found, requests),
                "common words (baseline)": shares(plain, requests),
                "prompt bytes": {
                    "a dozen, whole": dozen.size,
                    "all, whole": Toolbox(tools).size,
                    "all, behind the bridge": bridge.size,
                    "bridge / a dozen": round(bridge.size / dozen.size, 3),
                },
                "missed": [
                    request["request"]
                    for request, names in zip(requests, found, strict=True)
                    if not {name_of(name) for name in request["tools"]} & set(names)
                ],
                "versions": {"satchel": version("satchel")},
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    anyio.run(main)
