"""Hooks of other agents: what they are told, what is queued, and that nothing fails them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from satchel.clock import ManualClock
from satchel.config import load
from satchel.config.brief import read_brief
from satchel.memory import Memory
from satchel.runtime import Satchel
from satchel.runtime.home import Home
from satchel.runtime.other_agents.capturing import take_queue
from satchel.runtime.other_agents.hook import answer_hook
from satchel.runtime.other_agents.notebook import has_queue, queued
from satchel.server.listening import served
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)
ALLERGY = "My sister Mara is allergic to shellfish."
COOKING = "What should I keep in mind when I cook for Mara?"
CLAUDE = {"session_id": "s1", "transcript_path": "/nowhere/t.jsonl", "cwd": "/"}


class Agent:
    """Another agent, whose hook runs here."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        self.clock = ManualClock(NOW)
        self.environ = {
            "HOME": str(folder),
            "SATCHEL_HOME": str(self.home),
            "SATCHEL_MEMORY_EMBEDDER": "none",
            "SATCHEL_MEMORY_SECOND_EMBEDDER": "none",
            "SATCHEL_MEMORY_WORKER": "off",
            "SATCHEL_SERVER_PORT": "0",
            **more,
        }

    async def raw(self, payload: bytes) -> str:
        def answer() -> str:
            return answer_hook(payload, environ=self.environ, cwd=self.home, clock=self.clock)

        return await anyio.to_thread.run_sync(answer)

    async def hook(self, **payload: Any) -> str:
        return await self.raw(json.dumps(payload).encode())

    async def says(self, event: str, **payload: Any) -> str:
        """What Claude Code is told."""
        answer = await self.hook(hook_event_name=event, **{**CLAUDE, **payload})
        return (
            str(json.loads(answer).get("hookSpecificOutput", {}).get("additionalContext", ""))
            if answer
            else ""
        )

    @property
    def log(self) -> str:
        path = self.home / "logs" / "hook.log"
        return path.read_text() if path.exists() else ""

    def open(self) -> Any:
        return Home.open(load(self.environ, cwd=self.home), clock=self.clock)

    @asynccontextmanager
    async def served(self, *facts: str) -> AsyncIterator[tuple[Memory, list[str]]]:
        """A server of the home, which remembers some facts."""
        settings = load(self.environ, cwd=self.home)
        async with Satchel.open(settings, clock=self.clock, upkeep="none") as satchel, served(satchel):
            assert satchel.memory is not None
            ids = [await satchel.memory.add(fact) for fact in facts]
            await satchel.memory.keep_up()
            yield satchel.memory, ids


async def capture(agent: Agent) -> list[tuple[str, int | None, str, str]]:
    """Take the queue, and return what is in memory: session, turn, speaker and words."""
    told: list[str] = []
    async with agent.open() as home:
        await take_queue(home, clock=agent.clock, tell=told.append)
        records = await home.memory.list(kind="episode")
        # What is captured from a transcript is a conversation, too.
        captured = {
            one.source.session for one in records if (one.source.session or "").startswith("claude-code:s")
        }
        assert captured <= {info.id for info in await home.sessions.list()}
    found = [(one.source.session or "", one.source.turn, one.speaker, one.content.strip()) for one in records]
    return sorted(found, key=lambda one: (one[0], one[1] or 0, one[2] == "assistant"))


def transcript(path: Path, *lines: dict[str, Any]) -> Path:
    common = {"sessionId": "s1", "timestamp": "2026-11-23T08:00:00Z"}
    path.write_text("".join(json.dumps({**common, **line}) + "\n" for line in lines))
    return path


def user(text: str, uuid: str, **more: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}, **more}


def assistant(text: str, uuid: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "uuid": uuid, "message": {"role": "assistant", "content": content}, **more}


@requirement("agents:hook:answers")
@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"hook_event_name": "UserPromptSubmit", **CLAUDE, "prompt": COOKING}, "additionalContext"),
        (
            {"hook_event_name": "UserPromptSubmit", "turn_id": "t", **CLAUDE, "prompt": COOKING},
            "additionalContext",
        ),
        (
            {"hook_event_name": "pre_llm_call", "session_id": "h", "extra": {"user_message": COOKING}},
            "context",
        ),
        ({"event_type": "UserPromptSubmit", "session_id": "l", "prompt": COOKING}, "plain"),
        ({"event": "UserPromptSubmit", "session_id": "g", "message": COOKING}, ""),
    ],
    ids=["claude-code", "codex", "hermes", "letta", "goose"],
)
async def test_each_agent_gets_the_answer_in_its_own_form(
    tmp_path: Path, payload: dict[str, Any], expected: str
) -> None:
    agent = Agent(tmp_path)
    async with agent.served(ALLERGY):
        answer = await agent.hook(**payload)
    match expected:
        case "additionalContext":
            found = json.loads(answer)
            assert found.keys() == {"hookSpecificOutput"}
            assert found["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}
            assert found["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
            assert ALLERGY in found["hookSpecificOutput"]["additionalContext"]
        case "context":
            assert ALLERGY in json.loads(answer)["context"]
        case "plain":
            assert answer.startswith("<satchel-")
            assert ALLERGY in answer
        case _:
            assert answer == ""


@requirement("agents:hook:once")
async def test_a_memory_is_shown_once_in_a_conversation_and_again_after_compaction(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    async with agent.served(ALLERGY):
        assert ALLERGY in await agent.says("UserPromptSubmit", prompt=COOKING)
        assert await agent.says("UserPromptSubmit", prompt=COOKING) == ""
        assert ALLERGY in await agent.says("UserPromptSubmit", prompt=COOKING, session_id="s2")
        await agent.says("PreCompact", trigger="auto")
        assert ALLERGY in await agent.says("UserPromptSubmit", prompt=COOKING)
        assert await agent.says("UserPromptSubmit", prompt="How tall is the Eiffel Tower?") == ""


@requirement("agents:hook:profile")
async def test_a_session_begins_with_the_profile_and_the_agenda(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    said = ALLERGY, "My name is Ann and I live in Graz.", "I have a dentist appointment on 25 November 2026."
    async with agent.served(*said) as (memory, (_, name, _)):
        told = await agent.says("SessionStart", source="startup")
        assert "My name is Ann" in told
        assert "Wed 2026-11-25" in told
        # It stands there already, so it is neither shown again with a prompt nor when the session is resumed.
        assert await agent.says("UserPromptSubmit", prompt=COOKING) == ""
        assert await agent.hook(hook_event_name="SessionStart", source="resume", **CLAUDE) == ""
        assert "My name is Ann" in await agent.says("SessionStart", source="compact")
        # An agent that begins without a session's start is told with the first prompt.
        assert "My name is Ann" in await agent.says("UserPromptSubmit", prompt="Hello.", session_id="s3")
        await memory.forget([name])
        assert "My name is Ann" not in await agent.says("SessionStart", source="startup", session_id="s4")
        # An appointment that is over is not ahead.
        agent.clock.advance(timedelta(days=3).total_seconds())
        assert "2026-11-25" not in await agent.says("SessionStart", source="startup", session_id="s5")


@requirement("memory:page:agents")
async def test_a_session_begins_with_the_page_where_there_is_one(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    async with agent.served(ALLERGY, "My name is Ann and I live in Graz.") as (memory, (fact, _)):
        await memory.edit_page("# How to answer\nAnswer in French\n")
        told = await agent.says("SessionStart", source="startup")
        assert '- "Answer in French"' in told
        assert "My name is Ann" not in told
        assert ALLERGY in await agent.says("UserPromptSubmit", prompt=COOKING)
        page = await memory.page()
        assert page is not None
        (line,) = page.memories
        await memory.pin(fact)
        page = await memory.page()
        assert page is not None
        assert page.text in await agent.says("SessionStart", source="startup", session_id="s2")
        await memory.forget([line.id])
        told = await agent.says("SessionStart", source="startup", session_id="s3")
        assert "French" not in told
        assert ALLERGY in told


@requirement("agents:hook:server")
async def test_without_a_server_that_may_be_started_a_session_says_so_and_nothing_is_told(
    tmp_path: Path,
) -> None:
    agent = Agent(tmp_path)
    async with agent.open() as home:
        await home.memory.add(ALLERGY)
    begun = json.loads(await agent.hook(hook_event_name="SessionStart", source="startup", **CLAUDE))
    assert begun.keys() == {"systemMessage"}
    assert "no server is running" in begun["systemMessage"]
    assert await agent.says("UserPromptSubmit", prompt=COOKING) == ""
    assert "no server answers" in agent.log
    assert COOKING not in agent.log


@requirement("agents:hook:capture")
async def test_only_the_words_of_both_sides_are_captured_and_each_once(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    async with agent.served(ALLERGY):
        shown = await agent.says("UserPromptSubmit", prompt=COOKING)
    path = tmp_path / "t.jsonl"
    first = (
        user(f"UserPromptSubmit hook additional context: {shown}", "u0", isMeta=True),
        user(f"{COOKING}\n{shown}", "u1"),
        user("<system-reminder>Be brief.</system-reminder>", "u2"),
        assistant("Leave shellfish out.", "u3"),
        user("look at that file", "u4", isSidechain=True),
    )
    transcript(path, *first)
    await agent.says("Stop", transcript_path=str(path), stop_hook_active=False)
    expected = [
        ("claude-code:s1", 1, "user", COOKING),
        ("claude-code:s1", 1, "assistant", "Leave shellfish out."),
    ]
    assert await capture(agent) == expected
    assert not has_queue(agent.home)
    # The transcript has grown: only what is new is added, and the end of the session repeats nothing.
    transcript(
        path, *first, user("And my key is sk-ant-api03-" + "a1B2" * 20, "u5"), assistant("Noted.", "u6")
    )
    await agent.says("Stop", transcript_path=str(path))
    await agent.says("SessionEnd", transcript_path=str(path), reason="other")
    assert [one.transcript for one in queued(agent.home)] == [str(path)]
    captured = await capture(agent)
    assert captured[:2] == expected
    assert [one[2] for one in captured[2:]] == ["user", "assistant"]
    assert "a1B2" not in captured[2][3]


@requirement("agents:hook:capture")
async def test_the_work_of_another_agents_agents_is_not_what_the_user_said(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    path = transcript(tmp_path / "agent-7.jsonl", user("I am allergic to nuts.", "u1"))
    async with agent.served(ALLERGY):
        assert await agent.says("UserPromptSubmit", prompt=COOKING, agent_id="a7") == ""
        assert await agent.says("UserPromptSubmit", prompt=COOKING, source="loop_wakeup") == ""
        assert ALLERGY in await agent.says("UserPromptSubmit", prompt=COOKING)
    await agent.says("Stop", transcript_path=str(path), agent_id="a7")
    assert not has_queue(agent.home)
    await agent.says("Stop", transcript_path=str(path))
    assert await capture(agent) == []


@requirement("agents:hook:capture")
async def test_agents_without_a_transcript_are_captured_from_their_events(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    await agent.hook(
        event="UserPromptSubmit", session_id="g", message=f"My token is {secret} <private>hush</private>"
    )
    await agent.hook(event="Stop", session_id="g", last_assistant_message="I see.")
    await agent.hook(event="UserPromptSubmit", session_id="g", message="My bike is green.")
    # Nothing secret or private is written, not even into the queue.
    waiting = "".join(path.read_text() for path in (agent.home / "agents" / "queue").iterdir())
    assert secret not in waiting
    assert "hush" not in waiting
    captured = await capture(agent)
    assert [one[:3] for one in captured] == [
        ("goose:g", 1, "user"), ("goose:g", 1, "assistant"), ("goose:g", 2, "user"),
    ]  # fmt: skip
    assert captured[2][3] == "My bike is green."


@requirement("agents:hook:off")
async def test_where_memory_is_off_nothing_is_shown_or_queued(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    path = transcript(tmp_path / "t.jsonl", user("My bike is green.", "u1"))
    async with agent.served(ALLERGY):
        (agent.home / "config.toml").write_text("[memory]\ncapture = false\n")
        assert ALLERGY in await agent.says("UserPromptSubmit", prompt=COOKING)
        await agent.says("Stop", transcript_path=str(path))
        assert not has_queue(agent.home)
        (agent.home / "config.toml").write_text("[memory]\nenabled = false\n")
        assert await agent.says("UserPromptSubmit", prompt=COOKING, session_id="s2") == ""
    # A project that the user trusts may switch it off, too; what waits is then not captured.
    (agent.home / "config.toml").unlink()
    project = tmp_path / "project"
    (project / ".satchel").mkdir(parents=True)
    (project / ".satchel" / "config.toml").write_text("[memory]\ncapture = false\n")
    await agent.says("Stop", transcript_path=str(path), cwd=str(project))
    assert has_queue(agent.home)  # nobody trusts it yet
    from satchel.config import trust  # noqa: PLC0415

    trust(agent.home, load(agent.environ, cwd=project).project or project)
    await agent.says("Stop", transcript_path=str(path), cwd=str(project))
    assert await capture(agent) == []


HOSTILE = {
    "nothing": b"",
    "no JSON": b"garbage",
    "a list": b"[1, 2]",
    "no event": b'{"session_id": "s"}',
    "an unknown event": b'{"hook_event_name": "Dance", "session_id": "s"}',
    "no session": b'{"hook_event_name": "UserPromptSubmit", "prompt": "Mara?"}',
    "wrong types": b'{"hook_event_name": "UserPromptSubmit", "session_id": 7, "prompt": ["Mara"], "cwd": {}}',
    "deep": b'{"hook_event_name":' + b"[" * 100_000,
    "invalid UTF-8": b'{"hook_event_name": "UserPromptSubmit", "session_id": "\xff", "prompt": "\xff\xfe Mara"}',
    "a lone surrogate": b'{"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "Mara \\ud800"}',
    "too large": b'{"hook_event_name": "' + b"a" * (9 << 20) + b'"}',
    "a path as the session": b'{"hook_event_name": "PreCompact", "session_id": "../../../evil", "transcript_path": "/x"}',
    "no transcript": b'{"hook_event_name": "Stop", "session_id": "s"}',
    "a relative transcript": b'{"hook_event_name": "Stop", "session_id": "s", "transcript_path": "t.jsonl"}',
    "a missing transcript": b'{"hook_event_name": "Stop", "session_id": "s", "transcript_path": "/nowhere/t.jsonl"}',
    "a device": b'{"hook_event_name": "Stop", "session_id": "s", "transcript_path": "/dev/zero"}',
    "a NUL": b'{"hook_event_name": "Stop", "session_id": "s", "transcript_path": "/tmp/\\u0000"}',
}


@requirement("agents:hook:never-blocks")
@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
async def test_an_invalid_payload_gets_an_empty_answer(tmp_path: Path, payload: bytes) -> None:
    agent = Agent(tmp_path)
    assert await agent.raw(payload) == ""
    assert not has_queue(agent.home)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(agent.home) for path in written)


@requirement("agents:hook:never-blocks")
async def test_an_unusable_home_is_reported_in_the_log(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    (agent.home / "config.toml").write_text("[memory\n")
    assert await agent.says("UserPromptSubmit", prompt=COOKING) == ""
    assert "config.toml is not TOML" in agent.log
    assert COOKING not in agent.log
    # No home at all: nothing is made.
    agent.environ["SATCHEL_HOME"] = str(tmp_path / "none")
    assert await agent.says("UserPromptSubmit", prompt=COOKING) == ""
    assert not (tmp_path / "none").exists()


@requirement("agents:hook:queue")
async def test_half_written_queue_files_are_ignored(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    path = transcript(tmp_path / "t.jsonl", user("My bike is green.", "u1"))
    await agent.says("Stop", transcript_path=str(path))
    folder = agent.home / "agents" / "queue"
    (folder / ".half.json.77").write_text('{"key": "clau')
    (folder / "broken.json").write_text('{"key": "clau')
    (folder / "empty.json").write_text("{}")
    assert [one[3] for one in await capture(agent)] == ["My bike is green."]
    assert sorted(one.name for one in folder.iterdir()) == [".half.json.77"]
    # A transcript that grew while it was read stays in the queue.
    await agent.says("Stop", transcript_path=str(path))
    [waiting] = queued(agent.home)
    assert waiting.transcript == str(path)


async def test_the_few_settings_of_a_hook_are_those_of_the_whole_program(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for text, environ in (
        ("", {}),
        (
            'database = "other.db"\n[memory]\nbudget_tokens = 3\nworker = "off"\n',
            {},
        ),
        (
            "[memory]\nenabled = false\n",
            {"SATCHEL_MEMORY_ENABLED": "yes", "SATCHEL_MEMORY_BUDGET_TOKENS": "77"},
        ),
        ('model = "none"\n', {"SATCHEL_DATABASE": "/tmp/elsewhere.db", "SATCHEL_MEMORY_CAPTURE": "off"}),
    ):
        (home / "config.toml").write_text(text)
        given = {"HOME": str(tmp_path), "SATCHEL_HOME": str(home), **environ}
        settings, brief = load(given, cwd=home), read_brief(given, cwd=home)
        memory, place = settings.memory, settings.database_location
        assert isinstance(place, Path)
        assert brief == brief._replace(
            home=settings.home,
            database=place,
            enabled=memory.enabled,
            capture=memory.capture,
            budget_tokens=memory.budget_tokens,
            worker=memory.worker == "auto",
        )
