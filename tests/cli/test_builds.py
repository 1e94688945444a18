"""A capability that is asked for at a terminal, built by a worker in a process of its own, answered about and used."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.builder.worker import WORKER
from satchel.sandbox.detached import is_working
from tests.builder.world import CASES, GREET, SCHEMA
from tests.cli.conftest import serving
from tests.cli.programs import calls, satchel, speaks
from tests.cli.terminals import CTRL_D, ENTER, terminal
from tests.models.loopback import Answer, Asked, as_json
from tests.requirements import requirement

UNSAFE = {"SATCHEL_SANDBOX_ALLOW_UNSAFE": "true"}
"""Where the tests run, there may be no sandbox."""


def answer(asked: Asked, **question: str) -> Answer:
    """The model of the conversation and that of the Builder, which asks one question."""
    if asked.path.endswith("/models"):
        return as_json({"data": [{"id": "m-1"}]})
    messages = asked.body["messages"]
    rounds = sum(message["role"] == "assistant" for message in messages)
    start = 10 * len(messages)
    if "You are the Builder" in str(messages[0]["content"]):
        return _build(rounds, start, **question)
    last = messages[-1]
    if last["role"] == "tool":
        return speaks(f"It gave: {str(last['content'])[:60]}")
    if "tool" in str(last["content"]) and "is ready" not in str(last["content"]):
        wanted = {"name": "greet", "description": "Greet a city."}
        return calls(("request_capability", wanted), start=start)
    return calls(("execute_capability", {"name": "greet", "input": {"city": "Rome"}}), start=start)


def _build(rounds: int, start: int, **question: str) -> Answer:
    plan: list[list[tuple[str, Any]]] = [
        [
            ("report_progress", {"text": "I write the greeting."}),
            ("ask_user", {"question": "Which greeting?", "options": ["Hello", "Hi"], **question}),
        ],
        [
            ("write_file", {"path": "main.py", "content": GREET}),
            ("write_file", {"path": "tests/cases.jsonl", "content": CASES}),
            ("run_code", {"code": 'from main import run; run({"city": "Austin"})'}),
            ("register_capability", {"description": "Greet a city.", "input_schema": SCHEMA}),
        ],
    ]
    return calls(*plan[min(rounds, 1)], start=start)


@contextmanager
def workers_end(home: Path) -> Iterator[None]:
    """Ends the worker that was started in the background; it would leave ten seconds later."""
    try:
        yield
    finally:
        lock = home / "locks" / "worker"
        if is_working(home, WORKER):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(lock.read_text()), signal.SIGTERM)


@requirement("builder:question", "capabilities:announced")
def test_a_chat_shows_progress_asks_announces_and_uses_what_a_worker_builds(tmp_path: Path) -> None:
    with (
        serving(answer) as server,
        workers_end(tmp_path / "home"),
        terminal(tmp_path, "chat", "--plain", server=server, SATCHEL_SANDBOX_ALLOW_UNSAFE="true") as screen,
    ):
        screen.say("Make yourself a tool that greets cities.")
        # The worker may be faster than the answer.
        screen.see("greet: I write the greeting.")
        screen.see("greet asks: Which greeting?")
        screen.answer("1. Hello", "1")
        screen.see("“Hello”")
        screen.see("greet is ready")
        # The turn that asked for it goes on without another message.
        screen.see("It gave: Hello, Rome!")
        screen.type(CTRL_D)
        assert screen.leave() == 0


@requirement("builder:worker:replaced")
def test_an_answer_to_a_build_whose_worker_was_killed_starts_another_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with (
        serving(answer) as server,
        workers_end(home),
        terminal(tmp_path, "chat", "--plain", server=server, SATCHEL_SANDBOX_ALLOW_UNSAFE="true") as screen,
    ):
        screen.say("Make yourself a tool that greets cities.")
        screen.see("1. Hello")
        screen.see("Type a number, or /answer and your own words. /skip leaves it to the Builder.")
        os.kill(int((home / "locks" / "worker").read_text()), signal.SIGKILL)
        screen.type("1", ENTER)
        screen.see("greet is ready")
        screen.see("It gave: Hello, Rome!")
        screen.type(CTRL_D)
        assert screen.leave() == 0


@requirement("builder:goes-on")
def test_ask_waits_for_what_it_had_built_asks_and_finishes(tmp_path: Path) -> None:
    with (
        serving(answer) as server,
        workers_end(tmp_path / "home"),
        terminal(
            tmp_path, "ask", "Make a tool and greet Rome.", server=server, SATCHEL_SANDBOX_ALLOW_UNSAFE="true"
        ) as screen,
    ):
        screen.see("greet asks: Which greeting?")
        screen.answer("answer?", "1")
        screen.see("“Hello”")
        screen.see("greet is ready")
        screen.see("It gave: Hello, Rome!")
        assert screen.leave() == 0


@requirement("builder:goes-on", "builder:question")
def test_ask_asks_again_after_what_is_neither_yes_nor_no(tmp_path: Path) -> None:
    look = ("run_code", {"code": "print(1)", "hosts": ["api.example.org"]})

    def reply(asked: Asked) -> Answer:
        messages = asked.body.get("messages") or [{"content": ""}]
        is_first = "You are the Builder" in str(messages[0]["content"]) and len(messages) == 2
        return calls(look) if is_first else answer(asked)

    with (
        serving(reply) as server,
        workers_end(tmp_path / "home"),
        terminal(
            tmp_path, "ask", "Make a tool and greet Rome.", server=server, SATCHEL_SANDBOX_ALLOW_UNSAFE="true"
        ) as screen,
    ):
        screen.see("greet asks: Do you allow this")
        screen.see("Answer yes or no. The build waits for it.")
        screen.answer("answer?", "sure, but only today")
        screen.see("Nothing was decided. Answer yes or no to: Do you allow this")
        screen.answer("answer?", "no")
        screen.see("greet is ready")
        screen.see("It gave: Hello, Rome!")
        assert screen.leave() == 0


@requirement("builder:goes-on")
@pytest.mark.anyio
async def test_ask_in_a_script_prints_the_answer_that_needed_a_new_tool(tmp_path: Path) -> None:
    environ = {**UNSAFE, "SATCHEL_BUILDER_QUESTION_WAIT_S": "1"}
    with serving(partial(answer, default="Hello")) as server, workers_end(tmp_path / "home"):
        ran = await satchel(tmp_path, "ask", "Make a tool and greet Rome.", server=server, environ=environ)
        assert ran.code == 0, ran.err
        assert ran.out.splitlines()[-1] == "It gave: Hello, Rome!"


@requirement("builder:question")
@pytest.mark.anyio
async def test_who_cannot_answer_learns_that_a_build_waits_and_anybody_answers_it_after_the_worker_has_gone(
    tmp_path: Path,
) -> None:
    environ, home = {**UNSAFE, "SATCHEL_BUILDER_QUESTION_WAIT_S": "0"}, tmp_path / "home"
    with serving(answer) as server, workers_end(home):

        async def run(*words: str) -> Any:
            ran = await satchel(tmp_path, *words, server=server, environ=environ)
            assert ran.code == 0, ran.err
            return ran

        how = "It waits for your answer, now or later (/answer TEXT, or satchel capability answer greet TEXT): Which greeting?"
        asked = await run("ask", "Make a tool and greet Rome.")
        assert how in asked.err
        with suppress(ProcessLookupError, ValueError):
            os.kill(int((home / "locks" / "worker").read_text()), signal.SIGKILL)
        assert how in (await run("capability", "build", "greet", "Greet a city.")).err
        assert (await run("capability", "list", "--status", "waiting", "--json")).json[0]["name"] == "greet"
        assert (await run("capability", "list", "--status", "active", "--json")).json == []
        listed = await run("capability", "list")
        assert listed.out.split()[:2] == ["greet", "waiting"]
        assert "It waits for your answer: Which greeting?" in listed.err
        assert (await run("capability", "show", "greet", "--json")).json["questions"] == ["Which greeting?"]
        assert "has your answer to: Which greeting?" in (await run("capability", "answer", "greet", "2")).err
        with anyio.fail_after(120):
            while (await run("capability", "show", "greet", "--json")).json["status"] == "building":
                pass
        assert (await run("capability", "run", "greet", '{"city": "Rome"}')).out == "Hello, Rome!\n"
        none = await satchel(tmp_path, "capability", "answer", "greet", "1", server=server, environ=environ)
        assert (none.code, "asks nothing now" in none.err) == (3, True)


@requirement("builder:question")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_command_that_builds_asks_until_the_question_is_answered_there_or_elsewhere(
    tmp_path: Path, elsewhere: bool
) -> None:
    command = ("capability", "build", "greet", "Greet a city.")
    with (
        serving(answer) as server,
        workers_end(tmp_path / "home"),
        terminal(tmp_path, *command, server=server, SATCHEL_SANDBOX_ALLOW_UNSAFE="true") as screen,
    ):
        screen.see("Your answer (Hello, Hi):")
        if elsewhere:
            screen.type("Hel")
            run = partial(satchel, tmp_path, server=server, environ=UNSAFE)
            assert anyio.run(run, "capability", "answer", "greet", "2").code == 0
        else:
            screen.type("2", ENTER)
        screen.see("greet is ready")
        screen.see("greet  active, version 1")
        assert screen.leave() == 0


@requirement("loop:request-capability:build-id", "builder:brief")
@pytest.mark.anyio
async def test_ask_names_the_build_and_answers_its_question_in_the_session(tmp_path: Path) -> None:
    with serving(answer) as server, workers_end(tmp_path / "home"):

        async def ask(*words: str) -> Any:
            ran = await satchel(tmp_path, "ask", "--json", *words, server=server, environ=UNSAFE)
            assert ran.code == 0, ran.err
            return ran.json

        told = await ask("The boat is the Kittiwake.")
        first = await ask("--session", told["session_id"], "Make yourself a tool that greets cities.")
        assert first["status"] == "done"
        assert first["build_id"]
        with anyio.fail_after(280):
            while True:
                second = await ask("--session", first["session_id"], "Hello")
                if "has your answer" in second["text"]:
                    break
        assert second["build_id"] == first["build_id"]
        builder = next(one for one in server.asked if "You are the Builder" in str(one.body))
        # The first message is not told any more where the worker began late, after four others.
        assert "What was said before, in the conversation that asks:\\nUser: " in str(
            builder.body["messages"][1]
        )
        with anyio.fail_after(280):
            while "Hello, Rome!" not in (await ask("--session", first["session_id"], "Greet Rome"))["text"]:
                pass


WEATHER = """\
import json
from pathlib import Path


def run(args: dict) -> str:
    if not args.get("city"):
        raise ValueError("city is missing")
    return json.dumps({"city": args["city"], "sky": Path(__file__).with_name("sky.txt").read_text()})\
"""
RUN_MD = """\
# weather_lookup

Look up current weather for a city.

## Usage
This capability is called automatically by Izzy when relevant.

## Input
```json
{"type": "object", "properties": {"city": {"type": "string", "description": "City name"}}, "required": ["city"]}
```
"""
WEATHER_CASES = (
    '{"name": "Austin", "input": {"city": "Austin"}, "expect": {"contains": "Austin"}}\n'
    '{"name": "no city", "input": {}, "expect": {"error": "city"}}\n'
)


def foreign(tmp_path: Path, **files: str) -> Path:
    """A capability's folder of seed-0, without cases."""
    folder = tmp_path / "weather-lookup"
    folder.mkdir()
    manifest = {
        "name": "weather_lookup",
        "description": "Look up current weather for a city",
        "version": 2,
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
        "created_at": "2025-02-14T00:00:00Z",
        "updated_at": "2025-02-14T00:00:00Z",
    }
    given = {
        "main.py": WEATHER,
        "requirements.txt": "",
        "RUN.md": RUN_MD,
        "manifest.json": json.dumps(manifest),
        "sky.txt": "clear",
        **files,
    }
    for name, content in given.items():
        if content or name == "requirements.txt":
            (folder / name).write_text(content)
    return folder


def adopting(asked: Asked) -> Answer:
    """The Builder of a program that it was given; it tries to change it."""
    if asked.path.endswith("/models"):
        return as_json({"data": [{"id": "m-1"}]})
    messages = asked.body["messages"]
    rounds = sum(message["role"] == "assistant" for message in messages)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    plan: list[list[tuple[str, Any]]] = [
        [("run_command", {"command": "cat main.py RUN.md"})],
        [
            ("write_file", {"path": "tests/cases.jsonl", "content": WEATHER_CASES}),
            ("write_file", {"path": "main.py", "content": WEATHER + "\n# changed\n"}),
            ("run_code", {"code": 'from main import run; run({"city": "Ulm"})'}),
            ("register_capability", {"description": "The weather of a city.", "input_schema": schema}),
        ],
    ]
    return calls(*plan[min(rounds, 1)], start=10 * len(messages))


@requirement("capabilities:import:given")
@pytest.mark.anyio
@pytest.mark.parametrize("without", [{}, {"manifest.json": "", "RUN.md": ""}])
async def test_a_folder_without_cases_becomes_a_capability_around_its_unchanged_program(
    tmp_path: Path, without: dict[str, str]
) -> None:
    folder = foreign(tmp_path, **without)
    with serving(adopting) as server, workers_end(tmp_path / "home"):

        async def command(*words: str) -> Any:
            return await satchel(tmp_path, "capability", *words, server=server, environ=UNSAFE)

        refused = await command("import", str(folder))
        assert refused.code == 4
        assert "it has no cases (tests/cases.jsonl)" in refused.err
        assert f"satchel capability import {folder} --yes" in refused.err
        assert (await command("list", "--json")).json == []
        imported = await command("import", str(folder), "--yes", "--json")
        assert imported.code == 0, imported.err
        assert (imported.json["name"], imported.json["status"]) == ("weather_lookup", "active")
        shown = (await command("show", "weather_lookup", "--json")).json
        assert shown["source"] == WEATHER + "\n"
        assert {"SKILL.md", "manifest.json", "tests/cases.jsonl", "sky.txt"} <= set(shown["files"])
        ran = await command("run", "weather_lookup", '{"city": "Ulm"}')
        assert ran.out == '{"city": "Ulm", "sky": "clear"}\n'
        again = await command("import", str(folder), "--yes")
        assert again.code == 2
        assert "weather_lookup is there already, and is active" in again.err


@requirement("capabilities:import:given")
@pytest.mark.anyio
async def test_without_a_model_the_import_says_what_is_missing_and_takes_cases_that_the_user_writes(
    tmp_path: Path,
) -> None:
    folder = foreign(tmp_path)
    refused = await satchel(tmp_path, "capability", "import", str(folder), "--yes", environ=UNSAFE)
    assert refused.code == 2
    for words in ("it has no cases (tests/cases.jsonl)", "needs a language model", '{"name": "Austin"'):
        assert words in refused.err
    (folder / "tests").mkdir()
    (folder / "tests" / "cases.jsonl").write_text(WEATHER_CASES)
    imported = await satchel(tmp_path, "capability", "import", str(folder), "--yes", environ=UNSAFE)
    assert imported.code == 0, imported.err
    assert imported.out.splitlines()[-1] == "weather_lookup  active, version 1"
    assert "SKILL.md and manifest.json are made from its other files." in imported.err


@requirement("builder:cancel")
def test_a_build_is_cancelled_in_the_conversation_and_its_question_is_gone(tmp_path: Path) -> None:
    with (
        serving(answer) as server,
        workers_end(tmp_path / "home"),
        terminal(tmp_path, "chat", "--plain", server=server, SATCHEL_SANDBOX_ALLOW_UNSAFE="true") as screen,
    ):
        screen.say("/cancel")
        screen.answer("0 builds under way", "Make yourself a tool that greets cities.")
        screen.answer("greet asks: Which greeting?", "/cancel")
        screen.see("The build of greet is cancelled.")
        screen.answer("It was cancelled by the user.", "/skip")
        screen.see("No build asks you anything now.")
        screen.type(CTRL_D)
        assert screen.leave() == 0


@requirement("builder:cancel")
@pytest.mark.anyio
async def test_the_command_line_cancels_by_name_and_by_build_and_says_why_it_can_not(tmp_path: Path) -> None:
    with serving(answer) as server, workers_end(tmp_path / "home"):

        async def run(*words: str) -> Any:
            return await satchel(tmp_path, "capability", *words, server=server, environ=UNSAFE)

        begun = await run("build", "greet", "Greet a city.", "--no-wait", "--json")
        cancelled = await run("cancel", "cap_greet", "--json")
        assert (cancelled.code, cancelled.json["status"]) == (0, "failed")
        assert cancelled.json["reasons"] == ["It was cancelled by the user."]
        again = await run("cancel", "greet")
        assert (again.code, "is not being built" in again.err) == (2, True)
        ended = await run("cancel", begun.json["build_id"])
        assert (ended.code, "has ended (failed)" in ended.err) == (2, True)
        assert (await run("cancel", "nothing")).code == 3
        second = await run("build", "greet", "Greet a city.", "--no-wait", "--json")
        assert second.json["build_id"] != begun.json["build_id"]
        assert (await run("cancel", second.json["build_id"])).code == 0


@requirement("builder:story")
@pytest.mark.anyio
async def test_a_build_that_failed_is_shown_with_its_reason_and_where_its_story_is(tmp_path: Path) -> None:
    def gives_up(asked: Asked) -> Answer:
        if asked.path.endswith("/models"):
            return as_json({"data": [{"id": "m-1"}]})
        return speaks("Cannot build: nobody knows the greeting of this city.")

    with serving(gives_up) as server, workers_end(tmp_path / "home"):

        async def run(*words: str) -> Any:
            return await satchel(tmp_path, *words, server=server, environ=UNSAFE)

        built = await run("capability", "build", "greet", "Greet a city.")
        assert built.code == 1
        shown = await run("capability", "show", "greet")
        assert "Cannot build: nobody knows the greeting of this city." in shown.err
        [story] = re.findall(r"satchel session show (build-\S+)", shown.err)
        assert story in built.err
        assert "Cannot build" in (await run("session", "show", story)).out


@requirement("builder:goes-on")
@pytest.mark.anyio
async def test_ask_does_not_wait_for_a_build_that_nobody_can_begin(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "logs").write_text("no folder")
    with serving(answer) as server:
        ran = await satchel(tmp_path, "ask", "Make a tool and greet Rome.", server=server, environ=UNSAFE)
    assert ran.code == 0
    assert "To build it: satchel worker --once" in ran.err
