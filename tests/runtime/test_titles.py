"""Titles of conversations: who makes them, when, and when nobody does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.clock import local_day
from satchel.errors import ModelRejected
from satchel.events import Event, ModelCalled, SessionTitled
from satchel.memory import Episode
from satchel.messages import Usage
from satchel.models import ModelRequest, Reply, ScriptedModel
from satchel.runtime import Satchel, Session
from tests.requirements import requirement
from tests.runtime.world import logged, opened

pytestmark = pytest.mark.anyio


def is_title(request: ModelRequest) -> bool:
    return request.system.startswith("You name conversations.")


def naming(*titles: str | Reply) -> ScriptedModel:
    """A model that answers "I see.", and requests for a title with the next of these."""
    left = list(titles)

    def reply(request: ModelRequest) -> Reply | str:
        return left.pop(0) if is_title(request) else "I see."

    return ScriptedModel(reply)


def asked(model: ScriptedModel) -> int:
    return sum(map(is_title, model.requests))


@asynccontextmanager
async def conversation(
    folder: Path, model: ScriptedModel, *, interactive: bool = True, private: bool = False, **overrides: Any
) -> AsyncIterator[tuple[Satchel, Session]]:
    settings = {"background__titles": "auto", **overrides}
    async with opened(folder, model, **settings) as satchel:
        yield satchel, await satchel.session(interactive=interactive, private=private)


async def until(session: Session, is_last: Callable[[Event], bool]) -> None:
    """Wait for an event of the session."""
    subscription = session.subscribe(0)
    async for record in subscription:
        if is_last(record.event):
            break
    await subscription.aclose()


async def titles(satchel: Satchel) -> Sequence[str]:
    return [info.title for info in await satchel.sessions.list()]


@requirement("sessions:titles")
async def test_the_small_model_names_a_conversation_once_and_its_cost_is_counted(tmp_path: Path) -> None:
    model = naming(
        Reply(text='Title: "**Sourdough for beginners**."\nBecause …', usage=Usage(input_tokens=7))
    )
    async with conversation(tmp_path, model) as (satchel, session):
        await session.run_turn("How do I keep a sourdough alive? " * 200)
        await until(session, lambda event: isinstance(event, SessionTitled))
        await session.run_turn("And in summer?")
        assert await titles(satchel) == ["Sourdough for beginners"]
        today = await satchel.home.background_day(local_day(satchel.clock.now()))
        assert today.kinds["title"] == (1, Usage(input_tokens=7))
        assert [row.calls for row in await satchel.usage() if row.purpose == "title"] == [1]
        [request] = filter(is_title, model.requests)
        [message] = request.messages
        assert message.text.endswith("Assistant: I see.")
        assert len(message.text) < 2_000
        # It changes no place in the list, and a new index has it from the log.
        [info] = await satchel.sessions.list()
        assert await satchel.sessions.info(session.id) == info
    async with opened(tmp_path, model, background__titles="auto") as satchel:
        session = await satchel.session(session.id, interactive=True)
        await session.run_turn("Thanks.")
    assert asked(model) == 1


@requirement("sessions:titles")
async def test_what_is_off_the_record_is_told_to_no_small_model_then_or_later(tmp_path: Path) -> None:
    model = naming(Reply(text="Title: Nothing"))
    async with conversation(tmp_path, model) as (_, session):
        await session.run_turn("The test was positive.", memory=False)
        await session.run_turn("What does that mean?")
    async with opened(tmp_path, model, background__titles="auto") as satchel:
        session = await satchel.session(session.id, interactive=True)
        await session.run_turn("Thanks.")
    assert asked(model) == 0


@requirement("sessions:titles")
async def test_a_greeting_is_named_by_what_comes_after_it_and_a_failure_is_tried_again(
    tmp_path: Path,
) -> None:
    failed = anyio.Event()

    async def fail() -> None:
        failed.set()
        raise ModelRejected("Not now.")

    model = naming("-", Reply(text="No", chunk=1, between=fail), "Tides at Saint-Malo")
    async with conversation(tmp_path, model) as (satchel, session):
        await session.run_turn("Hello!")
        await until(session, lambda event: isinstance(event, ModelCalled))
        assert await titles(satchel) == ["Hello!"]
        await session.run_turn("How high is the tide?")
        await failed.wait()
        await session.run_turn("And tomorrow?")
        await until(session, lambda event: isinstance(event, SessionTitled))
        assert await titles(satchel) == ["Tides at Saint-Malo"]


@requirement("sessions:titles")
async def test_a_title_of_the_user_stays_even_if_it_comes_while_a_model_thinks(tmp_path: Path) -> None:
    reached, go_on = anyio.Event(), anyio.Event()

    async def wait() -> None:
        reached.set()
        await go_on.wait()

    model = naming(Reply(text="A title by a model", chunk=3, between=wait))
    async with conversation(tmp_path, model) as (satchel, session):
        await session.run_turn("Hello!")
        await reached.wait()
        await satchel.rename(session.id, "Mine")
        go_on.set()
        await until(session, lambda event: isinstance(event, ModelCalled))
        await session.run_turn("What is the tide?")
    async with opened(tmp_path, model) as satchel:
        assert await titles(satchel) == ["Mine"]
    assert "A title by" not in logged(session).read_text()


@requirement("sessions:titles")
@pytest.mark.parametrize(
    "options",
    [
        {"background__models": "off"},
        {"background__titles": "off"},
        {"background__day_tokens": 0},
        {"interactive": False},  # a program asks
        {"private": True},
    ],
)
async def test_no_model_is_asked_where_nobody_wants_it(tmp_path: Path, options: dict[str, Any]) -> None:
    model = naming()
    async with conversation(tmp_path, model, **options) as (satchel, session):
        await session.run_turn("What is the tide?")
        assert await titles(satchel) == ["What is the tide?"]
    assert asked(model) == 0


@requirement("sessions:titles:read")
async def test_whoever_reads_conversations_for_facts_names_those_without_a_title(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> str:
        if not request.system.startswith("You keep what"):
            return "I see."
        return json.dumps({"facts": [], "titles": left.pop(0)})

    left = [['"The tide at Saint-Malo."', "Moths in flour", "Sourdough", "A test"], ["Another title"]]
    model = ScriptedModel(reply)
    async with conversation(tmp_path, model, memory__distill="auto") as (satchel, session):
        await session.run_turn("When is the tide at Saint-Malo?")
        moths = await satchel.session(interactive=True)
        await moths.run_turn("Moths ate my flour.")
        await satchel.rename(moths.id, "Mine")
        await moths.aclose()
        bread = await satchel.session(interactive=True)
        await bread.run_turn("My sourdough is called Olga.")
        await bread.aclose()
        ill = await satchel.session(interactive=True)
        await ill.run_turn("It was positive.", memory=False)  # off the record
        await ill.run_turn("I am going to the doctor.")
        await ill.aclose()
        # Until the day is over, its first words name it, and no small model is asked.
        assert await titles(satchel) == [
            "It was positive.",
            "My sourdough is called Olga.",
            "Mine",
            "When is the tide at Saint-Malo?",
        ]
        await satchel.distilling.run()
        assert await titles(satchel) == ["It was positive.", "Sourdough", "Mine", "The tide at Saint-Malo"]
        # It goes with the words that it was made of, and another reading gives no other.
        await satchel.forget(query="Olga")
        assert "Sourdough" not in await titles(satchel)
        await session.run_turn("And tomorrow?")
        await satchel.distilling.run()
        assert "The tide at Saint-Malo" in await titles(satchel)
    assert (asked(model), left) == (0, [])


@requirement("sessions:titles:read")
async def test_each_window_names_its_conversations_before_the_next_is_read(tmp_path: Path) -> None:
    seen: list[str] = []

    def reply(request: ModelRequest) -> Reply | str:
        if not request.system.startswith("You keep what"):
            return "I see."
        answer = json.dumps({"facts": [], "titles": ["Sourdough"]})
        return Reply(text=answer, chunk=20, between=look) if "moths" in request.messages[0].text else answer

    async with conversation(tmp_path, ScriptedModel(reply), memory__distill="auto") as (satchel, session):

        async def look() -> None:
            seen.extend(await titles(satchel))

        await session.run_turn("My sourdough is called Olga. " * 150)
        await (await satchel.session()).run_turn("I have moths. " * 200)
        await satchel.distilling.run()
    assert "Sourdough" in seen


@requirement("sessions:titles:read")
async def test_a_name_that_another_id_begins_with_names_nothing(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: json.dumps({"facts": [], "titles": ["", "Bread"]}))
    async with conversation(tmp_path, model, memory__distill="auto") as (satchel, session):
        await session.run_turn("Hello!")
        await session.aclose()
        assert satchel.home.memory is not None
        said = Episode(session=session.id[:4], turn=1, speaker="user", text="My sourdough is called Olga.")
        await satchel.home.memory.add_episodes([said])
        await satchel.distilling.run()
        assert await titles(satchel) == ["Hello!"]


@requirement("sessions:titles:forgotten")
@pytest.mark.parametrize("state", ["closed", "opened for its title", "idle", "busy"])
@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_words_that_are_forgotten_after_they_were_read_name_nothing(
    tmp_path: Path, state: str, is_elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = anyio.Event(), anyio.Event()

    async def wait() -> None:
        reached.set()
        await go_on.wait()

    def reply(request: ModelRequest) -> Reply | str:
        if request.system.startswith("You keep what"):
            return json.dumps({"facts": [], "titles": ["Tangerine"]})
        return (
            Reply(text="I see.", chunk=3, between=wait) if "tide" in request.messages[-1].text else "I see."
        )

    model = ScriptedModel(reply)
    async with (
        conversation(tmp_path, model, memory__distill="auto") as (satchel, session),
        opened(tmp_path, model) as other,
        anyio.create_task_group() as group,
    ):
        await session.run_turn("My sister Anna behaves like citrus, and I resent that.")
        if state in ("closed", "opened for its title"):
            await session.aclose()
        elif state == "busy":
            group.start_soon(session.run_turn, "How high is the tide?")
            await reached.wait()

        async def forget() -> None:
            await (other if is_elsewhere else satchel).forget(query="citrus")

        name, open_log = satchel.distilling.name, satchel.sessions.open
        assert name is not None

        async def name_later(session_id: str, title: str) -> None:
            await forget()
            await name(session_id, title)

        async def open_before(session_id: str, **options: Any) -> Any:
            journal = await open_log(session_id, **options)
            await forget()
            return journal

        if state == "opened for its title":
            monkeypatch.setattr(satchel.sessions, "open", open_before)
        else:
            satchel.distilling.name = name_later
        try:
            await satchel.distilling.run()
        finally:
            go_on.set()
    assert "Tangerine" not in logged(session).read_text()


@requirement("sessions:titles:read")
async def test_nobody_names_conversations_that_are_read_where_titles_are_off(tmp_path: Path) -> None:
    model = ScriptedModel(
        lambda request: (
            '{"facts": [], "titles": ["Bread"]}' if request.system.startswith("You keep") else "I see."
        )
    )
    async with conversation(tmp_path, model, memory__distill="auto", background__titles="off") as (
        satchel,
        session,
    ):
        await session.run_turn("My sourdough is called Olga.")
        await satchel.distilling.run()
        assert await titles(satchel) == ["My sourdough is called Olga."]


@requirement("sessions:titles:forgotten")
async def test_a_title_goes_with_the_words_that_it_was_made_of(tmp_path: Path) -> None:
    model = naming("Anna, the selfish tangerine")
    async with conversation(tmp_path, model) as (satchel, session):
        await session.run_turn("My sister Anna behaves like citrus, and I resent that.")
        await until(session, lambda event: isinstance(event, SessionTitled))
        await satchel.forget(query="citrus")
        assert "tangerine" not in logged(session).read_text()
        [title] = await titles(satchel)
        assert "citrus" not in title
        assert "[forgotten]" in title
        # What the user called it is theirs.
        await satchel.rename(session.id, "Family")
        await session.run_turn("My brother Karl is a marmot.")
        await satchel.forget(query="marmot")
        assert await titles(satchel) == ["Family"]
    home = tmp_path / "home"
    assert [f for f in home.rglob("*") if f.is_file() and b"tangerine" in f.read_bytes()] == []
