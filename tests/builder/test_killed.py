"""Builds whose process dies, at every event of their logs and at random moments of a real worker."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.builder.queue import BuildQueue
from satchel.builder.records import CANCELLED, Build
from satchel.builder.tasks import build_task
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.records import Wanted
from satchel.clock import SystemClock
from satchel.conversation import INTERRUPTED
from satchel.events import Event, Observation, TurnStart
from satchel.messages import ToolResultBlock
from satchel.models.port import ModelRequest
from satchel.models.scripted import Call, Reply
from satchel.runtime import Satchel
from satchel.sessions import SessionStore
from satchel.storage import Database
from tests.builder.kill_worker import settings_of
from tests.builder.world import CASES, GREET, World, open_world, register, tries, write
from tests.capabilities.world import make_database
from tests.cli.conftest import serving
from tests.cli.programs import calls
from tests.killing import Killing, Line
from tests.models.loopback import Answer, Asked
from tests.requirements import requirement

SEED = 20261122


class Killed(BaseException):
    """The program is gone."""


def reply(request: ModelRequest) -> Reply:
    """Goes on from what the conversation says, as a model does."""
    results = [
        block
        for message in request.messages
        for block in message.blocks
        if isinstance(block, ToolResultBlock)
    ]
    done = len(results)
    last = results[-1].content if results else ""
    if done and (last == INTERRUPTED or last.startswith("Refused")):
        return Reply(calls=[tries()])
    asked = Call(name="ask_user", input={"question": "Which greeting?"})
    progress = Call(name="report_progress", input={"text": "I begin."})
    plan = [
        [progress, write("main.py", GREET)],
        [asked],
        [write("tests/cases.jsonl", CASES), tries()],
    ]
    rounds = sum(message.role == "assistant" for message in request.messages)
    return Reply(calls=plan[rounds] if rounds < len(plan) else [register()])


@requirement("builder:durable")
@pytest.mark.anyio
async def test_a_build_that_is_cut_after_any_event_of_its_log_ends_the_same(tmp_path: Path) -> None:
    async def run(home: Path, at: int) -> tuple[World, Build, bool]:
        """A first life that ends before the event `at` is written, and a second one."""
        count = 0

        async with open_world(home, reply, question_wait_s=30.0) as world:

            async def kill(events: Sequence[Event]) -> None:
                nonlocal count
                count += len(events)
                if count > at:
                    raise Killed

            world.before_log = kill
            build = await world.request()
            is_killed = False
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(answer_first, world.queue, build.id)
                    await world.builder.build(build.id)
            except* Killed:
                is_killed = True
        async with open_world(home, reply, question_wait_s=30.0) as world:
            world.model._calls = 100  # the ids of a provider are unique
            async with anyio.create_task_group() as group:
                group.start_soon(answer_first, world.queue, build.id)
                build = await world.builder.build(build.id)
                group.cancel_scope.cancel()
            await check(world.queue, world.catalogue, world.sessions, build)
            return world, build, is_killed

    at = 0
    while True:
        _, build, is_killed = await run(tmp_path / str(at), at)
        assert build.status == "active", f"cut before event {at}"
        if not is_killed:
            break
        at += 1
    assert at > 20


async def answer_first(queue: BuildQueue, build_id: str) -> None:
    while True:
        for question in await queue.open_questions():
            if question.build_id == build_id:
                await queue.answer(build_id, question.id, "Hello", by="test")
        await anyio.sleep(0.02)
        if (await queue.get(build_id)).has_ended:
            return


async def check(
    queue: BuildQueue, catalogue: Catalogue, sessions: SessionStore, build: Build, *, answer: str = "Hello"
) -> None:
    """What a user sees of a build, whatever happened to it."""
    messages = await queue.messages(build.id)
    # Each time that it was laid aside, the user was told.
    kinds = Counter(message.type for message in messages if not message.id.startswith("waits:"))
    assert kinds == {"progress": 1, "question": 1, "answer": 1, "complete": 1}, [m.text for m in messages]
    versions = await catalogue.versions(build.name)
    assert [version.number for version in versions] == [1]
    assert versions[0].provenance.build_id == build.id
    log = await sessions.load(build.session_id)
    told = [
        event.text if isinstance(event, Observation) else event.message.text
        for event in (record.event for record in log.records)
        if (isinstance(event, Observation) and event.tool == "ask_user") or isinstance(event, TurnStart)
    ]
    heard = [text for text in told if text == answer or f"\nThey answer: {answer}\n" in text]
    assert len(heard) == 1, "the answer reached the model, once"
    capability = await catalogue.get(build.name)
    assert (capability.status, capability.build_id) == ("active", "")


class Cut:
    """A queue whose writer is gone before or after its write number `at`. `told` is awaited after each, as the user."""

    WRITES = ("begin", "tell", "give_up", "lay_aside", "mark_read", "end")

    def __init__(
        self, queue: BuildQueue, at: int, told: Callable[[str], Awaitable[None]], *, is_before: bool
    ) -> None:
        self.queue, self.left, self.told, self.is_before = queue, at, told, is_before

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.queue, name)
        if name not in self.WRITES:
            return method

        async def write(*args: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0 and self.is_before:
                raise Killed
            done = await method(*args, **named)
            await self.told(named.get("type", name))
            if self.left == 0:
                raise Killed
            return done

        return write


@requirement("builder:durable", "builder:question")
@pytest.mark.anyio
@pytest.mark.parametrize("moment", ["question", "give_up", "waiting"], ids=["early", "late", "open"])
async def test_a_build_that_is_cut_around_any_write_gets_the_answer_once_whenever_it_comes(
    tmp_path: Path, moment: str
) -> None:
    """The answer comes while the build looks for it, after the default was taken, or when the build waits."""
    asked = {"question": "Which greeting?", **({"default": "Hi"} if moment == "give_up" else {})}

    def answered(request: ModelRequest) -> Reply:
        rounds = sum(message.role == "assistant" for message in request.messages)
        plan = [
            [Call(name="ask_user", input=asked)],
            [write("main.py", GREET), write("tests/cases.jsonl", CASES), tries()],
        ]
        return Reply(calls=plan[rounds] if rounds < len(plan) else [register()])

    async def answer_it(queue: BuildQueue, id: str) -> None:
        messages = await queue.messages(id)
        question = next((message for message in messages if message.type == "question"), None)
        if question is not None and not any(message.type == "answer" for message in messages):
            await queue.answer(id, question.id, "Servus", by="test")

    async def lives(home: Path, at: int, is_before: bool) -> bool:
        """From the request to the end, through a death at the write number `at`; whether there was one."""
        build_id, life, left, is_killed = "", 0, at, False
        while True:
            async with open_world(home, answered) as world:
                queue = world.queue
                build_id = build_id or (await world.request()).id
                world.model._calls = 100 * life  # the ids of a provider are unique

                async def told(what: str, queue: BuildQueue = queue, id: str = build_id) -> None:
                    if what == moment:
                        await answer_it(queue, id)

                if life:
                    await answer_it(queue, build_id)
                world.queue = cut = Cut(queue, left, told, is_before=is_before)  # type: ignore[assignment]
                try:
                    await world.builder.build(build_id)
                except* Killed:
                    is_killed = True
                left = 0 if is_killed else cut.left
                build = await queue.get(build_id)
                if build.has_ended:
                    kinds = Counter(message.type for message in await queue.messages(build_id))
                    assert (build.status, kinds["question"], kinds["answer"], kinds["complete"]) == (
                        "active", 1, 1, 1,
                    ), f"cut at write {at}: {build.outcome}"  # fmt: skip
                    log = await world.sessions.load(build.session_id)
                    texts = [
                        event.text if isinstance(event, Observation) else event.message.text
                        for event in (record.event for record in log.records)
                        if isinstance(event, Observation | TurnStart)
                    ]
                    assert sum(text.count("Servus") for text in texts) == 1, f"cut at write {at}: {texts}"
                    return is_killed
            life += 1
            assert life < 5

    for is_before in (False, True):
        at = 1
        while await lives(tmp_path / f"{at}-{is_before}", at, is_before):
            at += 1
        assert at > 4


async def opened(home: Path, use: Any) -> Any:
    clock = SystemClock()
    async with Database.open(home / "satchel.db", clock=clock) as database:
        queue = BuildQueue(database, clock=clock, user_id="default")
        catalogue = await Catalogue.open(database, home=home, clock=clock)
        return await use(queue, catalogue, SessionStore(home / "sessions", database, clock=clock))


async def _add(queue: BuildQueue, catalogue: Catalogue, name: str) -> None:
    now = SystemClock().now()
    wanted = Wanted(name=name, description=f"Greet a city ({name}).")
    requested = await catalogue.request(wanted)
    build = Build(
        id=requested.build_id,
        capability_id=requested.capability.id,
        name=name,
        kind="build",
        task=build_task(wanted),
        asked_by="s1",
        session_id=f"build-{requested.build_id}",
        model="openai:m-1",
        created_at=now,
        updated_at=now,
    )
    await queue.add(build)


def _ended(builds: int) -> Callable[[list[Line]], bool]:
    """Whether a worker has told of the end of so many builds."""

    def is_over(lines: list[Line]) -> bool:
        told = [text for what, *words in lines if what == "said" for text in words]
        return sum(": active." in text or ": failed." in text for text in told) == builds

    return is_over


CANCELS = 4


@requirement("builder:cancel")
def test_a_cancelled_build_stays_cancelled_whoever_is_killed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is killed at a random moment around the cancelling; every second time the canceller dies half way."""
    # The workers are those that are killed, and no others.
    monkeypatch.setattr("satchel.runtime.builds.start_working", lambda *_, **__: None)
    chance = random.Random(SEED)
    with serving(_never_ends) as server, Killing("tests.builder.kill_worker") as killing:
        for number in range(CANCELS):
            anyio.run(_request_one, tmp_path, f"greet_{number}")
            canceller = threading.Thread(
                target=anyio.run, args=(_cancel, tmp_path, server.url, f"greet_{number}", bool(number % 2))
            )
            canceller.start()
            killing.round(after=2, later_s=chance.uniform(0.0, 2.0), home=str(tmp_path), url=server.url)
            canceller.join()
        # A last worker finds what is left.
        if left := anyio.run(_open, tmp_path):
            killing.round(after=_ended(left), home=str(tmp_path), url=server.url)
    anyio.run(_check_cancelled, tmp_path)


def _never_ends(asked: Asked) -> Answer:
    number = 100 * len(asked.body["messages"])
    program = "import time; time.sleep(300)"
    return calls(
        ("write_file", {"path": "main.py", "content": GREET}),
        ("write_file", {"path": "tests/cases.jsonl", "content": CASES}),
        ("run_code", {"code": program, "timeout_s": 120}),
        start=number,
    )


async def _request_one(home: Path, name: str) -> None:
    await make_database(home)

    async def use(queue: BuildQueue, catalogue: Catalogue, _: SessionStore) -> None:
        await _add(queue, catalogue, name)

    await opened(home, use)


async def _open(home: Path) -> int:
    """How many builds have not ended."""

    async def use(queue: BuildQueue, *_: object) -> int:
        return len(await queue.open_builds())

    found: int = await opened(home, use)
    return found


async def _cancel(home: Path, url: str, name: str, half_way: bool) -> None:
    async with Satchel.open(settings_of(str(home), url)) as satchel:
        builds = satchel.builds
        assert builds is not None
        capability = await builds.catalogue.get(name)
        # If the worker is killed before it begins, a build that waits is cancelled.
        with anyio.move_on_after(2):
            while (await builds.queue.get(capability.build_id)).status == "queued":  # noqa: ASYNC110 - a row is no event
                await anyio.sleep(0.05)
        if half_way:
            await builds.catalogue.fail(name, [CANCELLED], build_id=capability.build_id)
        else:
            await builds.cancel(name)


async def _check_cancelled(home: Path) -> None:
    async def use(queue: BuildQueue, catalogue: Catalogue, _: SessionStore) -> None:
        for number in range(CANCELS):
            capability = await catalogue.get(f"greet_{number}")
            assert (capability.status, capability.reasons) == ("failed", (CANCELLED,))
            assert await catalogue.versions(capability.id) == ()
            (build,) = await queue.of_capability(capability.id)
            assert (build.status, build.outcome) == ("failed", CANCELLED)
            assert [(m.type, m.text) for m in await queue.messages(build.id)] == [("error", CANCELLED)]

    await opened(home, use)
    # What is left is the catalogue's own record, perhaps one that a kill left half written, and no file of a capability.
    names = [path.name for path in (home / "capabilities").rglob("*") if path.is_file()]
    assert [name for name in names if not name.startswith("..catalogue.")] == [".catalogue"]
    assert _working_in(home / "builds") == []


def _working_in(folder: Path) -> list[str]:
    """The processes that work in a folder, or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            place = (process / "cwd").readlink()
        except OSError:
            continue
        if place.is_relative_to(folder):
            found.append(process.name)
    return found
