"""Hooks of other agents without a server: what they are told, what is queued, and that nothing fails them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from satchel.clock import ManualClock
from satchel.config import load
from satchel.config.brief import read_brief
from satchel.memory import Episode, Memory
from satchel.memory.glance import glance, space_of
from satchel.runtime.home import Home
from satchel.runtime.other_agents.capturing import renew_standing, take_queue
from satchel.runtime.other_agents.hook import answer_hook
from satchel.runtime.other_agents.notebook import has_queue, queued
from satchel.storage.reading import reading
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
            **more,
        }

    def raw(self, payload: bytes) -> str:
        return answer_hook(payload, environ=self.environ, cwd=self.home, clock=self.clock)

    def hook(self, **payload: Any) -> str:
        return self.raw(json.dumps(payload).encode())

    def says(self, event: str, **payload: Any) -> str:
        """What Claude Code is told."""
        answer = self.hook(hook_event_name=event, **{**CLAUDE, **payload})
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


async def remember(agent: Agent, *facts: str, keep: bool = True) -> list[str]:
    async with agent.open() as home:
        ids = [await home.memory.add(fact) for fact in facts]
        await home.memory.keep_up()
        if keep:
            await renew_standing(home.memory, home.settings, clock=agent.clock)
    return ids


async def capture(agent: Agent) -> list[tuple[str, int | None, str, str]]:
    """Take the queue, and return what is in memory: session, turn, speaker and words."""
    told: list[str] = []
    async with agent.open() as home:
        await take_queue(home.memory, home.settings, clock=agent.clock, tell=told.append)
        records = await home.memory.list(kind="episode")
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
    await remember(agent, ALLERGY, keep=False)
    answer = agent.hook(**payload)
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
            assert answer.startswith("<satchel-memory>\n")
            assert ALLERGY in answer
        case _:
            assert answer == ""


@requirement("agents:hook:once")
async def test_a_memory_is_shown_once_in_a_conversation_and_again_after_compaction(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    await remember(agent, ALLERGY, keep=False)
    assert ALLERGY in agent.says("UserPromptSubmit", prompt=COOKING)
    assert agent.says("UserPromptSubmit", prompt=COOKING) == ""
    assert ALLERGY in agent.says("UserPromptSubmit", prompt=COOKING, session_id="s2")
    agent.says("PreCompact", trigger="auto")
    assert ALLERGY in agent.says("UserPromptSubmit", prompt=COOKING)
    assert agent.says("UserPromptSubmit", prompt="How tall is the Eiffel Tower?") == ""


@requirement("agents:hook:profile")
async def test_a_session_begins_with_the_profile_and_the_agenda(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    _, name, _ = await remember(
        agent,
        ALLERGY,
        "My name is Ann and I live in Graz.",
        "I have a dentist appointment on 25 November 2026.",
    )
    begun = agent.hook(hook_event_name="SessionStart", source="startup", **CLAUDE)
    assert "no server is running" in json.loads(begun)["systemMessage"]
    told = json.loads(begun)["hookSpecificOutput"]["additionalContext"]
    assert "My name is Ann" in told
    assert "Wed 2026-11-25" in told
    # It stands there already, so it is neither shown again with a prompt nor when the session is resumed.
    assert agent.says("UserPromptSubmit", prompt=COOKING) == ""
    assert agent.hook(hook_event_name="SessionStart", source="resume", **CLAUDE) == ""
    assert "My name is Ann" in agent.says("SessionStart", source="compact")
    # An agent that begins without a session's start is told with the first prompt.
    assert "My name is Ann" in agent.says("UserPromptSubmit", prompt="Hello.", session_id="s3")
    # No words are kept beside the store: what is forgotten is gone from here as well.
    async with agent.open() as home:
        await home.forget([name])
    assert "Ann" not in (agent.home / "agents" / "standing.json").read_text()
    assert "My name is Ann" not in agent.says("SessionStart", source="startup", session_id="s4")
    # An appointment that is over is not ahead.
    agent.clock.advance(timedelta(days=3).total_seconds())
    assert "2026-11-25" not in agent.says("SessionStart", source="startup", session_id="s5")


@requirement("memory:page:agents")
async def test_a_session_begins_with_the_page_where_there_is_one(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    fact, _ = await remember(agent, ALLERGY, "My name is Ann and I live in Graz.")
    async with agent.open() as home:
        await home.memory.edit_page("# How to answer\nAnswer in French\n")
    told = agent.says("SessionStart", source="startup")
    assert '- "Answer in French"' in told
    assert "My name is Ann" not in told
    assert ALLERGY in agent.says("UserPromptSubmit", prompt=COOKING)
    async with agent.open() as home:
        (line,) = (await home.memory.page()).memories
        await home.memory.pin(fact)
        assert (await home.memory.page()).text in agent.says(
            "SessionStart", source="startup", session_id="s2"
        )
        await home.forget([line.id])
    told = agent.says("SessionStart", source="startup", session_id="s3")
    assert "French" not in told
    assert ALLERGY in told


@requirement("agents:hook:by-words")
async def test_without_a_server_the_same_is_shown_as_by_words_alone(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    said = (
        "We chose PostgreSQL for the bookings because of its row locks.",
        "My bike is a green Gazelle with seven gears.",
        "What is the capital of Portugal?",
        "The router stands behind the red door in the hall.",
        "Our landlord is Mr Okafor; his number is on the fridge.",
    )
    async with agent.open() as home:
        memory: Memory = home.memory
        await memory.add_episodes(
            Episode(session=f"e{n}", turn=1, speaker="user", text=text, said_at=NOW - timedelta(days=n + 1))
            for n, text in enumerate(said)
        )
        await memory.add(ALLERGY)
        (turn,) = await memory.add_episodes(
            [
                Episode(
                    session="e9", turn=1, speaker="user", text="Mara works at the town library.", said_at=NOW
                )
            ]
        )
        old = await memory.add("Mara works at the town library.", session="e9", turn=1)
        await memory.link(old, turn, "derived_from")
        new = await memory.add("Mara works at a bank now.")
        await memory.supersede(old, new)
        for exclude in ((), (new,)):
            known = await memory.surface("Where does Mara work?", exclude=exclude)
            # The turn with the old value never stands alone, though the new one was shown before.
            assert (turn in [hit.memory.id for hit in known.memories]) == (not exclude)
            with reading(agent.home / "satchel.db", busy_timeout_ms=100, is_late=lambda: False) as rows:
                space = space_of(rows)
                assert space is not None
                seen = glance(
                    rows,
                    "Where does Mara work?",
                    space=space,
                    now=NOW,
                    budget_tokens=500,
                    limit=8,
                    exclude=exclude,
                )
            assert seen.text == known.text
        for message in (COOKING, "Which database did we choose for the bookings?", "Where is the router?",
                        "Where does Mara work?", "What colour is my bike?", "How tall is the Eiffel Tower?"):  # fmt: skip
            known = await memory.surface(message)
            with reading(agent.home / "satchel.db", busy_timeout_ms=100, is_late=lambda: False) as rows:
                space = space_of(rows)
                assert space is not None
                seen = glance(rows, message, space=space, now=NOW, budget_tokens=500, limit=8)
            assert seen.text == known.text, message


@requirement("agents:hook:capture")
async def test_only_the_words_of_both_sides_are_captured_and_each_once(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    await remember(agent, ALLERGY, keep=False)
    shown = agent.says("UserPromptSubmit", prompt=COOKING)
    path = tmp_path / "t.jsonl"
    first = (
        user(f"UserPromptSubmit hook additional context: {shown}", "u0", isMeta=True),
        user(f"{COOKING}\n{shown}", "u1"),
        user("<system-reminder>Be brief.</system-reminder>", "u2"),
        assistant("Leave shellfish out.", "u3"),
        user("look at that file", "u4", isSidechain=True),
    )
    transcript(path, *first)
    agent.says("Stop", transcript_path=str(path), stop_hook_active=False)
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
    agent.says("Stop", transcript_path=str(path))
    agent.says("SessionEnd", transcript_path=str(path), reason="other")
    assert [one.transcript for one in queued(agent.home)] == [str(path)]
    captured = await capture(agent)
    assert captured[:2] == expected
    assert [one[2] for one in captured[2:]] == ["user", "assistant"]
    assert "a1B2" not in captured[2][3]


@requirement("agents:hook:capture")
async def test_the_work_of_another_agents_agents_is_not_what_the_user_said(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    await remember(agent, ALLERGY, keep=False)
    path = transcript(tmp_path / "agent-7.jsonl", user("I am allergic to nuts.", "u1"))
    assert agent.says("UserPromptSubmit", prompt=COOKING, agent_id="a7") == ""
    agent.says("Stop", transcript_path=str(path), agent_id="a7")
    assert not has_queue(agent.home)
    agent.says("Stop", transcript_path=str(path))
    assert await capture(agent) == []
    assert agent.says("UserPromptSubmit", prompt=COOKING, source="loop_wakeup") == ""


@requirement("agents:hook:capture")
async def test_agents_without_a_transcript_are_captured_from_their_events(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    agent.hook(
        event="UserPromptSubmit", session_id="g", message=f"My token is {secret} <private>hush</private>"
    )
    agent.hook(event="Stop", session_id="g", last_assistant_message="I see.")
    agent.hook(event="UserPromptSubmit", session_id="g", message="My bike is green.")
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
    await remember(agent, ALLERGY, keep=False)
    path = transcript(tmp_path / "t.jsonl", user("My bike is green.", "u1"))
    (agent.home / "config.toml").write_text("[memory]\ncapture = false\n")
    assert ALLERGY in agent.says("UserPromptSubmit", prompt=COOKING)
    agent.says("Stop", transcript_path=str(path))
    assert not has_queue(agent.home)
    (agent.home / "config.toml").write_text("[memory]\nenabled = false\n")
    assert agent.says("UserPromptSubmit", prompt=COOKING, session_id="s2") == ""
    # A project that the user trusts may switch it off, too; what waits is then not captured.
    (agent.home / "config.toml").unlink()
    project = tmp_path / "project"
    (project / ".satchel").mkdir(parents=True)
    (project / ".satchel" / "config.toml").write_text("[memory]\ncapture = false\n")
    agent.says("Stop", transcript_path=str(path), cwd=str(project))
    assert has_queue(agent.home)  # nobody trusts it yet
    from satchel.config import trust  # noqa: PLC0415

    trust(agent.home, load(agent.environ, cwd=project).project or project)
    agent.says("Stop", transcript_path=str(path), cwd=str(project))
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
    assert agent.raw(payload) == ""
    assert not has_queue(agent.home)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(agent.home) for path in written)


@requirement("agents:hook:never-blocks")
async def test_an_unusable_home_is_reported_in_the_log(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    await remember(agent, ALLERGY, keep=False)
    database = agent.home / "satchel.db"
    with closing(sqlite3.connect(database)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
        other.execute("BEGIN EXCLUSIVE")
        assert agent.says("UserPromptSubmit", prompt=COOKING) == ""
        assert "locked" in agent.log
    database.write_bytes(b"no database at all" * 100)
    assert agent.says("UserPromptSubmit", prompt=COOKING) == ""
    database.unlink()
    assert agent.says("UserPromptSubmit", prompt=COOKING) == ""
    (agent.home / "config.toml").write_text("[memory\n")
    assert agent.says("UserPromptSubmit", prompt=COOKING) == ""
    assert "config.toml is not TOML" in agent.log
    assert COOKING not in agent.log
    # No home at all: nothing is made.
    agent.environ["SATCHEL_HOME"] = str(tmp_path / "none")
    assert agent.says("UserPromptSubmit", prompt=COOKING) == ""
    assert not (tmp_path / "none").exists()


@requirement("agents:hook:queue")
async def test_half_written_queue_files_are_ignored(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    path = transcript(tmp_path / "t.jsonl", user("My bike is green.", "u1"))
    agent.says("Stop", transcript_path=str(path))
    folder = agent.home / "agents" / "queue"
    (folder / ".half.json.77").write_text('{"key": "clau')
    (folder / "broken.json").write_text('{"key": "clau')
    (folder / "empty.json").write_text("{}")
    (agent.home / "agents" / "standing.json").write_text('{"profile": [["x"')
    assert [one[3] for one in await capture(agent)] == ["My bike is green."]
    assert sorted(one.name for one in folder.iterdir()) == [".half.json.77"]
    # A transcript that grew while it was read stays in the queue.
    agent.says("Stop", transcript_path=str(path))
    [waiting] = queued(agent.home)
    assert waiting.transcript == str(path)


async def test_the_few_settings_of_a_hook_are_those_of_the_whole_program(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for text, environ in (
        ("", {}),
        (
            'database = "other.db"\n[memory]\nlimit = 3\nsurface_threshold = 1\nworker = "off"\nprofile_tokens = 10\n',
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
            limit=memory.limit,
            threshold=memory.surface_threshold,
            profile_tokens=memory.profile_tokens,
            page_tokens=memory.page_tokens,
            agenda_tokens=memory.agenda_tokens,
            worker=memory.worker == "auto",
        )
