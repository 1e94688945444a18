"""Titles of conversations: who makes them, when, and when nobody does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.clock import local_day
from satchel.errors import ModelRejected
from satchel.events import Event, ModelCalled, SessionTitled
from satchel.messages import Usage
from satchel.models import ModelRequest, Reply, ScriptedModel
from satchel.runtime import Satchel, Session
from tests.postgresql import server_of
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


@requirement("sessions:titles:forgotten")
@pytest.mark.parametrize("is_on_server", [False, True])
@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize("when", ["asked", "answered"])
async def test_no_model_names_a_conversation_in_which_something_was_forgotten(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    when: str,
    is_elsewhere: bool,
    is_on_server: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The words are forgotten here or by another process, while the title is being made or just before it is logged."""
    settings: dict[str, Any] = {"background__titles": "auto"}
    if is_on_server:
        server = server_of(tmp_path_factory)
        settings["database"] = server.url(server.schema_for(tmp_path))
    reached, go_on = anyio.Event(), anyio.Event()

    async def wait() -> None:
        if when == "asked":
            reached.set()
            await go_on.wait()

    model = naming(Reply(text="Tangerine", chunk=3, between=wait), "Tangerine")
    async with (
        opened(tmp_path, model, **settings) as satchel,
        opened(tmp_path, model, **settings) as other,
    ):
        session = await satchel.session(interactive=True)
        log = session._hub.log
        record = log.record

        async def recorded_later(*events: Event) -> Any:
            if any(isinstance(event, SessionTitled) for event in events):
                reached.set()
                with anyio.CancelScope(shield=is_elsewhere):
                    await go_on.wait()
            return await record(*events)

        monkeypatch.setattr(log, "record", recorded_later)
        await session.run_turn("Anna is citrus.")
        await reached.wait()
        assert (await (other if is_elsewhere else satchel).forget(query="citrus")).store.forgotten
        go_on.set()
        for _ in range(2):
            await session.run_turn("Go on.")
            assert await titles(satchel) == await titles(other) == ["[forgotten]"]
        assert (await satchel.sessions.part(most=9)).infos[0].title == "[forgotten]"
        assert await satchel.sessions.search("tangerine") == []
        await session.aclose()
        session = await other.session(session.id, interactive=True)
        await session.run_turn("And now?")
        assert "Tangerine" not in str(await other.sessions.records(session.id))
    assert asked(model) == 1
