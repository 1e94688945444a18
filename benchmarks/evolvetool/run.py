"""EvolveTool-Bench with Satchel as its agent; README.md beside this says what is measured and how.

    python benchmarks/evolvetool/run.py CHECKOUT DOMAIN/SESSION --base-url URL --model NAME [--key-env VARIABLE]

CHECKOUT is a checkout of the benchmark, and DOMAIN/SESSION one of its modules, such as data_transform/session_1. Each
session has an empty home, in which each task is a conversation of its own.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Collection
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from satchel import Satchel
from satchel.config import load
from satchel.events import Action, AskUser, BuildPosted, Final, QuestionAsked, TurnEnd

_TASK_S = 3600
_ADAPTER = """def {name}(**inputs: object) -> object:
    {bind}text = run(inputs)
    return json.loads(text) if text[:1] in ("[", "{{") else text


import json

{code}
"""
"""The harness calls the first function with a test's inputs by name and compares what it returns with data."""
_BY_PLACE = "inputs = dict(zip({fields!r}, inputs.values()))\n    "
"""Gives inputs to the fields of the schema in their order, whatever the test calls them."""
_CONFIG = """model = "bench:{model}"

[providers.bench]
kind = "openai"
base_url = "{url}"
{key}
[background]
models = "off"

[memory]
embedder = "none"
"""


class Agent:
    """One Satchel with an empty home, as the benchmark's `AgentSystem`."""

    def __init__(self, home: Path, work: Path, portal: BlockingPortal, opened: ExitStack) -> None:
        """`opened` closes what `setup` opens."""
        self._home, self._work, self._portal, self._opened = home, work, portal, opened
        self._known: set[str] = set()
        self._seeds: list[Any] = []
        self.log: list[dict[str, Any]] = []

    def setup(self, seed_tools: list[dict[str, str]]) -> None:
        """Open the home; the seed tools are the caller's own functions."""
        for tool in seed_tools:
            space: dict[str, Any] = {}
            exec(tool["implementation"].strip(), space)  # noqa: S102 - the benchmark's own code
            self._seeds.append(space[tool["name"]])
        settings = load({**os.environ, "SATCHEL_HOME": str(self._home)}, cwd=self._work)
        self._satchel = self._opened.enter_context(
            self._portal.wrap_async_context_manager(Satchel.open(settings, upkeep="none"))
        )

    def run_task(self, task_description: str) -> dict[str, Any]:
        """Begin a conversation with a task, and wait until nothing more comes."""
        return self._portal.call(self._run, task_description)

    def get_library(self, *, by_place: bool = False) -> list[dict[str, str]]:
        """The newest active version of each capability, from its documented folder; `by_place`: see `_BY_PLACE`."""
        tools = []
        for record in sorted(self._home.glob("capabilities/*/record.json")):
            stands = json.loads(record.read_text())["capability"]
            if stands["status"] != "active":
                continue
            folder = record.parent / f"v{stands['version']}"
            name = stands["name"]
            # The harness puts the code behind imports of its own, where this one is a syntax error.
            code = (folder / "main.py").read_text().replace("from __future__ import annotations\n", "")
            bind = (
                _BY_PLACE.format(fields=[*json.loads(stands["input_schema"])["properties"]])
                if by_place
                else ""
            )
            tools.append(
                {
                    "name": name,
                    "implementation": _ADAPTER.format(name=name, bind=bind, code=code),
                    "test_suite": (folder / "tests" / "cases.jsonl").read_text(),
                }
            )
        return tools

    async def _spent(self) -> tuple[int, int, int]:
        rows = await self._satchel.usage()
        return (
            sum(row.calls for row in rows),
            sum(row.usage.input_tokens for row in rows),
            sum(row.usage.output_tokens for row in rows),
        )

    async def _run(self, task: str) -> dict[str, Any]:
        before, began = await self._spent(), time.monotonic()
        used: list[str] = []
        with anyio.fail_after(_TASK_S):
            output, questions = await self._converse(task, used)
        spent = [now - then for now, then in zip(await self._spent(), before, strict=True)]
        created = [tool for tool in self.get_library() if tool["name"] not in self._known]
        self._known.update(tool["name"] for tool in created)
        self.log.append(
            {
                "requests": spent[0],
                "input_tokens": spent[1],
                "output_tokens": spent[2],
                "questions": questions,
                "used": used,
                "created": [tool["name"] for tool in created],
                "seconds": round(time.monotonic() - began, 1),
                "output": output,
            }
        )
        return {"output": output, "tools_created": created, "tools_used": used, "llm_calls": spent[0]}

    async def _converse(self, task: str, used: list[str]) -> tuple[str, int]:
        """The last answer, and how many questions were answered yes."""
        output, questions = "", 0
        asked: tuple[str, ...] | None = None
        session = await self._satchel.session(interactive=True, cwd=self._work, tools=self._seeds)
        async with aclosing(session.subscribe()) as records:
            await session.start(task)
            async for record in records:
                match record.event:
                    case Action(tool=tool, input=given):
                        # The harness knows a capability by its name.
                        is_by_name = tool == "execute_capability"
                        used.append(given["name"] if is_by_name else re.sub("^cap_", "", tool))
                    case QuestionAsked(id=id, kind="permission"):
                        questions += 1
                        await session.answer(id, consent="session", by="benchmark")
                    case (
                        QuestionAsked(id=id, options=options)
                        | BuildPosted(id=id, kind="question", options=options)
                    ):
                        questions += 1
                        await session.answer(id, _yes(options), by="benchmark")
                    case AskUser(options=options):
                        questions, asked = questions + 1, options
                    case Final(text=text, status="done"):
                        output = text or output
                    case TurnEnd() if asked is not None:
                        answer, asked = _yes(asked), None
                        await session.start(answer)
                    case TurnEnd() | BuildPosted(kind="complete" | "error") if not (
                        await session.awaits_build() or session.running
                    ):
                        break
                    case _:
                        pass
        await session.aclose()
        return output, questions


def _yes(options: tuple[str, ...]) -> str:
    return next((option for option in options if option.lower().startswith("yes")), (*options, "Yes.")[0])


def _published(checkout: Path) -> list[str]:
    """The table of results in the benchmark's README."""
    lines = (checkout / "README.md").read_text().splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("| System |"))
    table = lines[begin:]
    return table[: next((i for i, line in enumerate(table) if not line.startswith("|")), len(table))]


def main() -> None:
    """Run one session, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("session", help="such as data_transform/session_1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--key-env", default="", help="the environment variable with the key")
    parser.add_argument("--home", type=Path, help="an empty folder to keep; otherwise a temporary one")
    parser.add_argument("--json", type=Path, help="where each task's figures and answer go")
    given = parser.parse_args()
    sys.path.insert(0, str(given.checkout / "src"))
    runner = importlib.import_module("evolvetool_bench.harness.runner")
    quality = importlib.import_module("evolvetool_bench.evaluation.run_quality")
    module = f"evolvetool_bench.domains.{given.session.replace('/', '.')}"
    session = importlib.import_module(module).create_session()
    with ExitStack() as opened:
        home = given.home or Path(opened.enter_context(tempfile.TemporaryDirectory()))
        work = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        home.mkdir(parents=True, exist_ok=True)
        if any(home.iterdir()):
            sys.exit(f"{home} is not empty.")
        key = f'api_key_env = "{given.key_env}"\n' if given.key_env else ""
        (home / "config.toml").write_text(_CONFIG.format(model=given.model, url=given.base_url, key=key))
        if given.session.startswith("api_"):
            mock = importlib.import_module("evolvetool_bench.domains.api_orchestration.mock_server")
            server, _ = mock.start_mock_server(18080)
            opened.callback(mock.stop_mock_server, server)
        portal = opened.enter_context(start_blocking_portal())
        agent = Agent(home, work, portal, opened)
        result = quality.evaluate_session_tools(runner.run_session(agent, session), session.tasks)
        # The names of the tests' inputs stand nowhere in most tasks: the same once more without them.
        placed = copy.deepcopy(result)
        library = {tool["name"]: tool["implementation"] for tool in agent.get_library(by_place=True)}
        for tool in placed.tools_created:
            tool.implementation = library[tool.name]
        quality.evaluate_session_tools(placed, session.tasks)
    # Where a task has no expected answer, the harness takes any of more than 20 characters.
    compared = {task.id for task in session.tasks if task.verify or task.expected is not None}
    _report(given, {"by name": result, "by place": placed}, agent, compared)


def _report(
    given: argparse.Namespace, results: dict[str, Any], agent: Agent, compared: Collection[str]
) -> None:
    tasks = [
        {
            "task": task.task_id,
            "passed": task.passed,
            "compared": task.task_id in compared,
            "reused": task.tool_reused,
            **spent,
        }
        for task, spent in zip(results["by name"].task_results, agent.log, strict=False)
    ]
    axes = ("name", "correctness", "robustness", "generality", "code_quality")
    found = {
        how: {
            "figures": result.summary(),
            "tools": [{axis: getattr(tool, axis) for axis in axes} for tool in result.tools_created],
        }
        for how, result in results.items()
    }
    if given.json:
        given.json.write_text(json.dumps({"inputs": found, "tasks": tasks}, indent=1))
    print("\n| task | passed | requests | tokens in | tokens out | questions | used | created |")
    print("|---|---|---|---|---|---|---|---|")
    for task in tasks:
        cells = (
            task["task"],
            ("yes" if task["passed"] else "no") + ("" if task["compared"] else " (by length)"),
            *(task[key] for key in ("requests", "input_tokens", "output_tokens", "questions")),
            *(", ".join(task[key]) for key in ("used", "created")),
        )
        print("|", " | ".join(map(str, cells)), "|")
    print("\n" + "\n".join(_published(given.checkout)))
    for how, one in found.items():
        figures = one["figures"]
        print(
            f"| Satchel, {given.session} alone, inputs {how} | {given.model} | {figures['evolvetool_score']:.3f} "
            f"| {100 * figures['task_completion']:.1f} | {figures['tools_created']} "
            f"| {100 * figures['reuse_rate']:.1f} | {100 * figures['library_health']:.1f} |"
        )
    for how, one in found.items():
        figures = one["figures"]
        print(f"{how}: TQS {figures['mean_tool_quality']:.3f}, regressions {figures['regression_rate']:.0%}")
        print(*one["tools"], sep="\n")


if __name__ == "__main__":
    main()
