"""The CPU cost of a turn with one tool call, compared with the bare official SDKs in the same run.

    python benchmarks/turn_cpu.py [--turns 20] [--batches 15]

A turn is two requests with one tool call between them; it is streamed unless stated otherwise. The contenders take
turns with their batches, so that other load on the machine affects all of them; a figure is the median of the batches.
Frameworks that are installed are measured too. The endpoint runs in its own process and is not counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
from loopback import endpoint

from satchel.clock import SystemClock
from satchel.config import ProviderSettings
from satchel.conversation import Conversation
from satchel.events import Event
from satchel.loop import CallEnvironment, PrefixWatch, TokenEstimator, Toolbox, ToolPool, TurnInput, run_turn
from satchel.messages import Message, TextBlock
from satchel.models.anthropic.client import AnthropicModel
from satchel.models.openai.client import OpenAIModel
from satchel.models.port import ChatModel
from satchel.tools.function import function_tool
from satchel.tools.permissions import Decision, PlannedCall
from satchel.tools.port import ToolContext, ToolResult

Contender = Callable[[], Awaitable[object]]

SYSTEM = "You answer with the help of tools. " * 20
QUESTION = "What is the weather here?"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"place": {"type": "string", "description": "Where to look."}},
    "required": ["place"],
    "additionalProperties": False,
}
LAST_WORD = "word19"


def look(place: str) -> str:
    """The function that the tool calls."""
    return f"Rain at {place}."


class Open:
    """A gate that allows every call."""

    async def decide(self, calls: Sequence[PlannedCall]) -> Sequence[Decision]:
        """See `Gate`."""
        return [Decision(allowed=True, by="mode") for _ in calls]


def environment() -> CallEnvironment:
    """The environment of the tool's calls."""

    async def call(input: Mapping[str, Any], _: ToolContext) -> ToolResult:
        return ToolResult(text=look(input["place"]))

    async def spill(call_id: str, text: str) -> str:
        raise AssertionError(f"{call_id}: {len(text)}")

    tool = function_tool(
        call,
        name="look",
        description="Looks at the weather.",
        properties=SCHEMA["properties"],
        required=["place"],
    )
    here = Path.cwd()
    return CallEnvironment(
        tools=Toolbox([tool]),
        gate=Open(),
        pool=ToolPool(),
        spill=spill,
        session_id="s",
        cwd=here,
        roots=(here,),
        spill_dir=here,
    )


def satchel(model: ChatModel, shop: CallEnvironment) -> Contender:
    """A turn of Satchel's loop; the events are discarded."""
    clock, estimator = SystemClock(), TokenEstimator()

    async def emit(events: Sequence[Event]) -> None:
        pass

    async def turn() -> None:
        outcome = await run_turn(
            TurnInput(
                message=Message(role="user", blocks=(TextBlock(text=QUESTION),)),
                conversation=Conversation(),
                turn=1,
                model=model,
                system=SYSTEM,
                environment=shop,
                emit=emit,
                clock=clock,
                estimator=estimator,
                watch=PrefixWatch(),
            )
        )
        assert outcome.status == "done", outcome
        assert LAST_WORD in outcome.text

    return turn


def bare_openai(address: str, *, stream: bool = True) -> Contender:
    """The same in a hand-written loop over the openai SDK."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=f"{address}/v1", api_key="k")
    tools: Any = [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}
    ]

    async def turn() -> None:
        messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
        while True:
            text, calls = "", {}
            if not stream:
                answer = await client.chat.completions.create(model="chain-1", messages=messages, tools=tools)
                message = answer.choices[0].message
                text = message.content or ""
                for number, made in enumerate(message.tool_calls or ()):
                    assert made.type == "function"
                    wire = {"id": made.id, "name": made.function.name, "arguments": made.function.arguments}
                    calls[number] = wire
            else:
                options: Any = {"stream": True, "stream_options": {"include_usage": True}}
                chunks = await client.chat.completions.create(
                    model="chain-1", messages=messages, tools=tools, **options
                )
                async for chunk in chunks:
                    for choice in chunk.choices:
                        text += choice.delta.content or ""
                        for part in choice.delta.tool_calls or ():
                            call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                            call["id"] += part.id or ""
                            call["name"] += part.function.name or ""
                            call["arguments"] += part.function.arguments or ""
            if not calls:
                assert LAST_WORD in text
                return
            asked = [
                {
                    "id": c["id"],
                    "type": "function",
                    "function": {"name": c["name"], "arguments": c["arguments"]},
                }
                for c in calls.values()
            ]
            messages.append({"role": "assistant", "content": text or None, "tool_calls": asked})
            for call in calls.values():
                result = look(**json.loads(call["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    return turn


def bare_anthropic(address: str) -> Contender:
    """The same in a hand-written loop over the anthropic SDK."""
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(base_url=address, api_key="k")
    tools: Any = [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}]

    async def turn() -> None:
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        while True:
            stream = await client.messages.create(
                model="chain-1", max_tokens=1000, system=SYSTEM, messages=messages, tools=tools, stream=True
            )
            text, calls = "", {}
            async for event in stream:
                if event.type == "content_block_start" and event.content_block.type == "tool_use":
                    block = event.content_block
                    calls[event.index] = {"id": block.id, "name": block.name, "arguments": ""}
                elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                    calls[event.index]["arguments"] += event.delta.partial_json
                elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                    text += event.delta.text
            if not calls:
                assert LAST_WORD in text
                return
            inputs = {c["id"]: json.loads(c["arguments"]) for c in calls.values()}
            asked = [
                {"type": "tool_use", "id": c["id"], "name": c["name"], "input": inputs[c["id"]]}
                for c in calls.values()
            ]
            results = [
                {"type": "tool_result", "tool_use_id": id, "content": look(**input)}
                for id, input in inputs.items()
            ]
            messages += [{"role": "assistant", "content": asked}, {"role": "user", "content": results}]

    return turn


def pydantic_ai(address: str) -> Contender:
    """The same in pydantic-ai."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("chain-1", provider=OpenAIProvider(base_url=f"{address}/v1", api_key="k"))
    agent = Agent(model, system_prompt=SYSTEM)
    agent.tool_plain(look)

    async def turn() -> None:
        async with agent.run_stream(QUESTION) as run:
            assert LAST_WORD in await run.get_output()

    return turn


def openai_agents(address: str) -> Contender:
    """The same in openai-agents."""
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{address}/v1", api_key="k")
    model = OpenAIChatCompletionsModel(model="chain-1", openai_client=client)
    agent = Agent(name="a", instructions=SYSTEM, model=model, tools=[function_tool(look)])

    async def turn() -> None:
        run = Runner.run_streamed(agent, QUESTION)
        async for _ in run.stream_events():
            pass
        assert LAST_WORD in run.final_output

    return turn


def langgraph(address: str) -> Contender:
    """The same in langgraph."""
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="chain-1", base_url=f"{address}/v1", api_key="k", streaming=True)
    agent = create_agent(model, [look], system_prompt=SYSTEM)

    async def turn() -> None:
        last: Any = None
        async for mode, part in agent.astream(
            {"messages": [{"role": "user", "content": QUESTION}]}, stream_mode=["messages", "values"]
        ):
            if mode == "values":
                last = part
        assert LAST_WORD in last["messages"][-1].content

    return turn


OPTIONAL = {
    "pydantic-ai": ("pydantic_ai", pydantic_ai),
    "openai-agents": ("agents", openai_agents),
    "langgraph": ("langgraph", langgraph),
}


async def measure(
    contenders: Mapping[str, Contender], *, turns: int, batches: int
) -> dict[str, dict[str, float]]:
    """CPU and wall time of a turn in ms, as medians of the batches."""
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    wall: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in contenders.values():
        for _ in range(max(3, turns // 2)):
            await turn()
    for _ in range(batches):
        for name, turn in contenders.items():
            cpu_s, wall_s = time.process_time(), time.perf_counter()
            for _ in range(turns):
                await turn()
            cpu[name].append((time.process_time() - cpu_s) / turns * 1000)
            wall[name].append((time.perf_counter() - wall_s) / turns * 1000)
    return {
        name: {
            "cpu_ms": round(statistics.median(cpu[name]), 3),
            "wall_ms": round(statistics.median(wall[name]), 3),
        }
        for name in contenders
    }


def versions() -> dict[str, str]:
    """The versions of everything that is compared."""
    found = {"python": platform.python_version()}
    for name in ("satchel", "openai", "anthropic", "anyio", "pydantic-ai-slim", "openai-agents", "langgraph"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    """Run the benchmark and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--batches", type=int, default=15)
    arguments = parser.parse_args()
    with endpoint() as address:

        async def run() -> dict[str, dict[str, float]]:
            openai = ProviderSettings(name="openai", kind="openai", base_url=f"{address}/v1")
            anthropic = ProviderSettings(name="anthropic", kind="anthropic", base_url=address)
            clock, shop = SystemClock(), environment()
            contenders: dict[str, Contender] = {
                "openai SDK": bare_openai(address),
                "satchel over openai": satchel(
                    OpenAIModel(openai, "chain-1", api_key="k", clock=clock), shop
                ),
                "openai SDK, not streamed": bare_openai(address, stream=False),
                "satchel over openai, not streamed": satchel(
                    OpenAIModel(replace(openai, stream=False), "chain-1", api_key="k", clock=clock), shop
                ),
                "anthropic SDK": bare_anthropic(address),
                "satchel over anthropic": satchel(
                    AnthropicModel(anthropic, "chain-1", api_key="k", clock=clock), shop
                ),
            }
            for name, (module, make) in OPTIONAL.items():
                if find_spec(module) is not None:
                    contenders[name] = make(address)
            return await measure(contenders, turns=arguments.turns, batches=arguments.batches)

        figures = anyio.run(run)
    baseline = figures["openai SDK"]["cpu_ms"]
    ratios = {name: round(values["cpu_ms"] / baseline, 3) for name, values in figures.items()}
    result = {
        "what": "CPU of a turn with two streamed requests and one tool call",
        "versions": versions(),
        "turns": arguments.turns * arguments.batches,
        "figures": figures,
        "ratio_to_openai_sdk": ratios,
        "satchel_over_openai_to_sdk": ratios["satchel over openai"],
        "satchel_over_anthropic_to_sdk": round(
            figures["satchel over anthropic"]["cpu_ms"] / figures["anthropic SDK"]["cpu_ms"], 3
        ),
        "satchel_over_openai_to_sdk_not_streamed": round(
            figures["satchel over openai, not streamed"]["cpu_ms"]
            / figures["openai SDK, not streamed"]["cpu_ms"],
            3,
        ),
        "aim": "at most 1.3 times the bare SDK",
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
