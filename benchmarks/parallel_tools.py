"""A round with eight tools that block for 200 ms each, compared with a round with one of them.

    python benchmarks/parallel_tools.py [--rounds 10]

The tools sleep in a thread, like a library without async support. Frameworks that are installed are measured too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import anyio
from loopback import endpoint
from turn_cpu import LAST_WORD, SYSTEM, Contender, environment, satchel, versions

from satchel.clock import SystemClock
from satchel.config import ProviderSettings
from satchel.loop import Toolbox
from satchel.models.openai.client import OpenAIModel
from satchel.tools.function import function_tool
from satchel.tools.port import ToolContext, ToolResult

BLOCK_S = 0.2


def blocking_look(place: str) -> str:
    """Block for 200 ms, then answer."""
    time.sleep(BLOCK_S)
    return f"Rain at {place}."


def our_turn(address: str, calls: int) -> Contender:
    """A turn of Satchel's loop with `calls` calls in one round."""
    provider = ProviderSettings(name="openai", kind="openai", base_url=f"{address}/v1")
    model = OpenAIModel(provider, f"fan-{calls}", api_key="k", clock=SystemClock())

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text=await context.blocking(blocking_look, input["place"]))

    tool = function_tool(
        call, name="look", description="Looks.", properties={"place": {"type": "string"}}, required=["place"]
    )
    return satchel(model, replace(environment(), tools=Toolbox([tool])))


def pydantic_ai(address: str) -> Contender:
    """The same in pydantic-ai."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("fan-8", provider=OpenAIProvider(base_url=f"{address}/v1", api_key="k"))
    agent = Agent(model, system_prompt=SYSTEM)
    agent.tool_plain(name="look")(blocking_look)

    async def turn() -> None:
        assert LAST_WORD in (await agent.run("Look.")).output

    return turn


def openai_agents(address: str) -> Contender:
    """The same in openai-agents."""
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{address}/v1", api_key="k")
    model = OpenAIChatCompletionsModel(model="fan-8", openai_client=client)
    tool = function_tool(name_override="look")(blocking_look)
    agent = Agent(name="a", instructions=SYSTEM, model=model, tools=[tool])

    async def turn() -> None:
        assert LAST_WORD in (await Runner.run(agent, "Look.")).final_output

    return turn


def langgraph(address: str) -> Contender:
    """The same in langgraph."""
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="fan-8", base_url=f"{address}/v1", api_key="k")
    agent = create_agent(model, [tool("look")(blocking_look)], system_prompt=SYSTEM)

    async def turn() -> None:
        result = await agent.ainvoke({"messages": [{"role": "user", "content": "Look."}]})
        assert LAST_WORD in result["messages"][-1].content

    return turn


OPTIONAL = {
    "pydantic-ai": ("pydantic_ai", pydantic_ai),
    "openai-agents": ("agents", openai_agents),
    "langgraph": ("langgraph", langgraph),
}


async def measure(contenders: Mapping[str, Contender], *, rounds: int) -> dict[str, float]:
    """The median wall time of a turn in ms."""
    wall: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in contenders.values():
        await turn()
    for _ in range(rounds):
        for name, turn in contenders.items():
            started_s = time.perf_counter()
            await turn()
            wall[name].append((time.perf_counter() - started_s) * 1000)
    return {name: round(statistics.median(values), 1) for name, values in wall.items()}


def main() -> None:
    """Run the benchmark and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    with endpoint() as address:

        async def run() -> dict[str, float]:
            contenders = {"satchel, 1 call": our_turn(address, 1), "satchel, 8 calls": our_turn(address, 8)}
            for name, (module, make) in OPTIONAL.items():
                if find_spec(module) is not None:
                    contenders[f"{name}, 8 calls"] = make(address)
            return await measure(contenders, rounds=arguments.rounds)

        figures = anyio.run(run)
    eight = figures["satchel, 8 calls"]
    result = {
        "what": "wall time of a turn whose one round has calls that block for 200 ms each",
        "versions": versions(),
        "rounds": arguments.rounds,
        "wall_ms": figures,
        "ratio_to_200_ms": round(eight / (BLOCK_S * 1000), 3),
        "ratio_to_one_call": round(eight / figures["satchel, 1 call"], 3),
        "aim": "at most 1.15 times 200 ms",
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
