"""One conversation in a server, and several clients in other processes: they see the same, and nothing is lost."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.clock import SystemClock
from satchel.errors import NotFound, SatchelError, ServerUnavailable
from satchel.events import (
    Event,
    Final,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Record,
    TextDelta,
    TurnEnd,
    TurnStart,
    is_transient,
)
from satchel.plain import as_json
from satchel.runtime import remote as remote_module
from satchel.runtime.commands import COMMANDS, CommandResult, find_command
from satchel.runtime.hosting import LocalHost
from satchel.runtime.remote import RemoteHost, RemoteSession
from satchel.runtime.server_api import ServerApi
from satchel.runtime.serving import announced
from satchel.runtime.serving import serving as running_server
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.requirements import requirement
from tests.runtime.world import settings_in
from tests.server.world import WORDS, World, chat, process, serving

pytestmark = pytest.mark.anyio

WAIT_S = 240


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server whose sessions ask for permission."""
    with serving(
        tmp_path_factory.mktemp("asking"), agent__mode="ask", server__requests_per_s=10_000
    ) as world:
        yield world


@asynccontextmanager
async def host(folder: Path) -> AsyncIterator[RemoteHost]:
    """What a face in another process has of the server."""
    settings = settings_in(folder)
    found = running_server(settings.home)
    assert found is not None
    with anyio.fail_after(WAIT_S):
        async with RemoteHost.connected(found, settings=settings, clock=SystemClock()) as remote:
            yield remote


@asynccontextmanager
async def following(session: RemoteSession, after_seq: int | None = None) -> AsyncIterator[list[Record]]:
    """What a client sees while the block runs."""
    seen: list[Record] = []
    subscription = session.subscribe(after_seq)

    async def read() -> None:
        async for record in subscription:
            seen.append(record)  # noqa: PERF401 - what has come by now is looked at meanwhile

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        yield seen
        group.cancel_scope.cancel()


async def until(
    session: RemoteSession, wanted: Callable[[Event], bool], after_seq: int | None = None
) -> Record:
    """Wait for an event."""
    subscription = session.subscribe(after_seq)
    async for record in subscription:
        if wanted(record.event):
            await subscription.aclose()
            return record
    raise AssertionError("the session ended")


async def told(session: RemoteSession, words: str) -> None:
    """Wait until the client is told something of its connection."""
    await until(session, lambda event: isinstance(event, Notice) and words in event.text)


async def until_true(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what other threads and connections do
        await anyio.sleep(0.01)


def ends(records: list[Record]) -> int:
    return sum(isinstance(record.event, TurnEnd) for record in records)


def said(records: list[Record]) -> str:
    return "".join(record.event.text for record in records if isinstance(record.event, TextDelta))


@requirement("shared:follow", "shared:permission", "clients:follow", "clients:answer")
async def test_two_terminals_and_a_program_share_a_conversation_and_one_answer_settles_a_question(
    asking: World,
) -> None:
    async with host(asking.home.parent) as one_host, host(asking.home.parent) as two_host:
        one = await one_host.session(interactive=True)
        two = await two_host.session(one.id[:8], interactive=True)
        assert two.id == one.id
        async with following(one) as first, following(two) as second:
            running = await one.start("Please echo hello")
            asked = (await until(two, lambda event: isinstance(event, QuestionAsked), 0)).event
            assert isinstance(asked, QuestionAsked)
            assert [call.input for call in asked.calls] == [{"command": "echo hello"}]
            assert one.open_questions == (asked,)
            late = await two_host.session(one.id, interactive=True)
            with asking.client() as program:
                shown = program.get(f"/api/sessions/{one.id}/state").json()
                assert [question["id"] for question in shown["questions"]] == [asked.id]
                answer = {"id": asked.id, "consent": "once", "by": "a program"}
                assert program.post(f"/api/sessions/{one.id}/answer", json=answer).status_code == 200
            result = await running.result()
            assert (result.status, result.text) == ("done", "It is done.")
            assert [(step.tool, step.input, step.is_error) for step in result.steps] == [
                ("bash", {"command": "echo hello"}, False)
            ]
            assert not one.open_questions
            assert not two.open_questions
            with pytest.raises(NotFound, match="is open in this session"):
                await two.answer(asked.id, consent="no", by="two")
            # A client that hasn't read the end of a turn may miss pieces of it when the next one begins.
            await until_true(lambda: ends(first) == ends(second) == 1)
            again = await two.start("Count")
            assert (await again.result()).text == WORDS
            await until_true(lambda: ends(first) == ends(second) == 2)
            await until_true(lambda: first[-1].seq == one.last_seq == two.last_seq == second[-1].seq)
        assert [record for record in first if not is_transient(record.event)] == [
            record for record in second if not is_transient(record.event)
        ]
        assert said(first) == said(second) == f"Let me see.It is done.{WORDS}"
        answered = [record.event for record in first if isinstance(record.event, QuestionAnswered)]
        assert [(event.id, event.by) for event in answered] == [(asked.id, "a program")]
        assert (one.turns, two.turns, two.running) == (2, 2, None)
        # Who came in the middle of a turn counts what it used once.
        await until_true(lambda: late.last_seq == one.last_seq)
        assert one.usage == two.usage == late.usage
        with asking.client() as program:
            assert as_json(one.usage) == program.get(f"/api/sessions/{one.id}/state").json()["usage"]


@requirement("shared:follow")
async def test_a_message_is_answered_while_the_end_of_the_turn_before_it_is_still_on_its_way(
    asking: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host(asking.home.parent) as one_host, host(asking.home.parent) as two_host:
        one = await one_host.session()
        two = await two_host.session(one.id)
        late: list[Record] = []
        take = two._take

        def take_the_start(record: Record) -> None:
            if isinstance(record.event, TurnStart) and record.event.turn == 1:
                take(record)
            else:
                late.append(record)

        post, is_sent = two._post, anyio.Event()

        async def post_and_tell(what: str, body: Mapping[str, Any]) -> Any:
            answer = await post(what, body)
            is_sent.set()
            return answer

        monkeypatch.setattr(two, "_take", take_the_start)
        monkeypatch.setattr(two, "_post", post_and_tell)
        await (await one.start("Count")).result()
        await until_true(lambda: two.running is not None)
        async with anyio.create_task_group() as group:

            async def say() -> None:
                running = await two.start("Count")
                assert (running.number, (await running.result()).turn) == (2, 2)

            group.start_soon(say)
            await is_sent.wait()
            await anyio.wait_all_tasks_blocked()
            await until_true(lambda: any(isinstance(record.event, TurnStart) for record in late))
            monkeypatch.setattr(two, "_take", take)
            for record in late:
                take(record)


@requirement("shared:follow", "clients:stop", "clients:leave")
async def test_any_client_can_stop_a_turn_and_leaving_does_not_stop_it(asking: World) -> None:
    async with host(asking.home.parent) as one_host:
        one = await one_host.session(interactive=True)
        async with host(asking.home.parent) as two_host:
            two = await two_host.session(one.id)
            running = await two.start("hold it")
            await until(two, lambda event: isinstance(event, TextDelta))
        await until_true(lambda: one.running is not None)
        mine = one.running
        assert mine is not None
        assert not running.is_over
        mine.cancel()
        assert (await mine.result()).status == "cancelled"
        asking.held.reached.clear()
        with pytest.raises(NotFound):
            await one_host.session("none-such")


@requirement("clients:line")
async def test_a_message_waits_in_the_server_and_its_sender_may_take_it_back(asking: World) -> None:
    asking.held.go_on.clear()
    asking.held.reached.clear()
    async with host(asking.home.parent) as one_host, host(asking.home.parent) as two_host:
        one = await one_host.session(interactive=True)
        running = await one.start("hold it")
        await until(one, lambda event: isinstance(event, TextDelta))
        two = await two_host.session(one.id)
        second = await two.start("Second")
        third = await two.start("Third")
        assert (second.waits, third.waits) == (True, True)
        await until_true(lambda: [message.text for message in one.waiting] == ["Second", "Third"])
        third.cancel()
        assert (await third.result()).status == "cancelled"
        asking.held.go_on.set()
        assert (await running.result()).text == WORDS
        assert ((await second.result()).text, second.number) == ("I see.", 2)
        assert not two.waiting


@requirement("shared:follow")
async def test_a_conversation_is_deleted_whoever_follows_it(asking: World) -> None:
    async with host(asking.home.parent) as one_host, host(asking.home.parent) as two_host:
        one = await one_host.session()
        await (await one.start("Count")).result()
        two = await two_host.session(one.id)
        async with following(two):
            with asking.client() as program:
                assert program.delete(f"/api/sessions/{one.id}").status_code == 200
                assert program.get(f"/api/sessions/{one.id}/state").status_code == 404
        with pytest.raises(NotFound):
            await one.start("Are you there?")


@requirement("shared:commands")
async def test_every_command_has_the_same_effect_in_the_server(asking: World) -> None:
    """Each command once, with the arguments that it needs: the same lines, and the same that is left to the face."""
    arguments = {
        "help": "mode", "tool": "bash", "run": 'file_read {"path": "none"}', "memory": "shellfish", "mode": "plan",
        "pin": "{id}", "unpin": "{id}", "forget": "{id}", "model": "none", "resume": "abc",
    }  # fmt: skip
    with asking.client() as client:
        added = client.post("/api/memories", json={"content": "Mara is allergic to shellfish."}).json()["id"]
    told: list[str] = []
    async with host(asking.home.parent) as remote:
        session = await remote.session(interactive=True)
        for name in COMMANDS:
            text = f"/{name} {arguments.get(name, '')}".strip().replace("{id}", added)
            found = find_command(text)
            assert found is not None
            shown: list[Event] = []
            try:
                there: CommandResult | str = await remote.command(
                    session, *found, show=shown.append, tell=told.append
                )
            except SatchelError as error:
                there = f"{type(error).__name__}: {error}"
            here = asking.call(_run_here, asking, session.id, text)
            if isinstance(there, CommandResult) and there.confirm is not None:
                assert there.confirm.question == "Forget this memory permanently?"
                assert (await there.confirm.proceed()).lines[0].text == f"Forgotten: {added}"
            if name == "run":
                assert [event.type for event in shown] == ["permission", "action", "observation"]
            if name not in ("usage", "sessions"):
                assert _comparable(there) == _comparable(here), name
        assert (session.mode, session.model_name) == ("plan", "none")
        assert told == ["Refreshing tools..."]


async def _run_here(world: World, session_id: str, text: str) -> CommandResult | str:
    found = find_command(text)
    assert found is not None
    session = await world.satchel.session(session_id)
    try:
        return await LocalHost(world.satchel).command(
            session, *found, show=lambda _: None, tell=lambda _: None
        )
    except SatchelError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        await session.aclose()


def _comparable(result: CommandResult | str) -> Any:
    if isinstance(result, str):
        return result
    confirm = result.confirm.question if result.confirm is not None else None
    return result.lines, result.events, confirm, result.change, result.message, result.resumes, result.leaves


@requirement("shared:commands")
async def test_completions_history_and_earlier_exchanges_come_from_the_server(asking: World) -> None:
    async with host(asking.home.parent) as remote:
        session = await remote.session()
        assert await remote.exchanges(session, 3) == []
        assert ("/mode", COMMANDS["mode"].help) in await remote.completions("/mo", session)
        assert [word for word, _ in await remote.completions("/mode p", session)] == ["plan"]
        for name in ("plan.md", ".plan", "my plan.md", "plans/list.txt"):
            (session.cwd / name).parent.mkdir(exist_ok=True)
            (session.cwd / name).write_text("pears")
        for typed, offered in (
            ("Look at @pl", ["@plan.md", "@plans/"]),
            ("@plans/", ["@plans/list.txt"]),
            ("@../", []),
        ):
            assert [word for word, _ in await remote.completions(typed, session)] == offered
        await (await session.start("A message that is told from others")).result()
        assert "A message that is told from others" in [text async for text in remote.said_before()]
        (exchange,) = await remote.exchanges(session, 3)
        assert (exchange.said, exchange.answer, exchange.status) == (
            "A message that is told from others",
            "I see.",
            "done",
        )
        assert session.id in [listed.id for listed in await remote.sessions()]


@requirement("shared:once")
async def test_a_message_whose_acknowledgement_is_lost_is_stored_once(
    asking: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ServerApi.post
    losing = ["before", "after"]

    async def unreliable(api: ServerApi, path: str, body: Any) -> Any:
        if path.endswith("/turns") and losing:
            if losing.pop(0) == "after":
                await real(api, path, body)
            raise ServerUnavailable("The connection broke.")
        return await real(api, path, body)

    monkeypatch.setattr(ServerApi, "post", unreliable)
    async with host(asking.home.parent) as remote:
        session = await remote.session()
        running = await session.start("Count")
        assert (await running.result()).text == WORDS
        assert losing == []
        assert (session.turns, [each.said for each in await remote.exchanges(session, 9)]) == (1, ["Count"])


@requirement("shared:killed")
async def test_a_server_that_is_killed_in_a_turn_and_started_again_goes_on_with_nothing_lost_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "_RETURN_S", WAIT_S)  # however long the server takes to start
    with ExitStack() as stack:
        server, _ = stack.enter_context(process(tmp_path, "held"))
        async with host(tmp_path) as remote:
            session = await remote.session(interactive=True)
            assert (await (await session.start("Hello")).result()).text == "I see."
            async with following(session, 0) as seen:
                running = await session.start("hold it")
                await until(session, lambda event: isinstance(event, TextDelta))
                server.kill()
                await told(session, "Waiting until it is back")
                stack.enter_context(process(tmp_path, "free"))
                await told(session, "The server is back")
                with pytest.raises(SatchelError, match="stopped during this turn"):
                    await running.result()
                assert session.is_interrupted
                again = await session.resume()
                assert (again.number, (await again.result()).text) == (2, WORDS)
                assert (await (await session.start("Count")).result()).text == WORDS
                await until_true(lambda: seen[-1].seq == session.last_seq)
    logged = [record for record in seen if not is_transient(record.event) and record.event.type != "notice"]
    assert [record.seq for record in logged] == sorted({record.seq for record in logged})
    assert [record.event.turn for record in logged if isinstance(record.event, TurnStart)] == [1, 2, 3]
    assert [record.event.text for record in logged if isinstance(record.event, Final)] == [
        "I see.",
        WORDS,
        WORDS,
    ]


@requirement("shared:killed")
async def test_who_reads_what_was_said_before_waits_for_a_server_that_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "_RETURN_S", WAIT_S)
    with ExitStack() as stack:
        server, _ = stack.enter_context(process(tmp_path, "free"))
        async with host(tmp_path) as first:
            session = await first.session(interactive=True)
            assert (await (await session.start("Hello")).result()).text == "I see."
        async with host(tmp_path) as remote:
            again = await remote.session(session.id, interactive=True)
            server.kill()
            server.wait(60)
            async with following(again, 0) as seen:
                await told(again, "Waiting until it is back")
                stack.enter_context(process(tmp_path, "free"))
                await until_true(lambda: any(isinstance(record.event, Final) for record in seen))


@requirement("shared:killed")
async def test_a_message_waits_for_a_server_that_is_started_again_and_an_unused_session_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_module, "_RETURN_S", WAIT_S)  # however long the server takes to start
    with ExitStack() as stack:
        server, _ = stack.enter_context(process(tmp_path, "free"))
        async with host(tmp_path) as remote:
            session = await remote.session(private=True)
            server.send_signal(signal.SIGTERM)
            await told(session, "Waiting until it is back")
            assert server.wait(280) == 0
            async with anyio.create_task_group() as group:
                group.start_soon(_say, session, "Count")
                await anyio.wait_all_tasks_blocked()
                stack.enter_context(process(tmp_path, "free"))
            assert (session.turns, session.private) == (1, True)


async def _say(session: RemoteSession, text: str) -> None:
    assert (await (await session.start(text)).result()).text == WORDS


@requirement("shared:version")
def test_a_server_of_another_version_is_reported_and_not_used(run: Run, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    with announced(tmp_path / "home", "http://127.0.0.1:9"):
        content = json.dumps({"url": "http://127.0.0.1:9", "pid": 1, "version": "0.0.9"})
        (tmp_path / "home" / "serve.json").write_text(content)
        ran = run("chat", stdin="Hello\n", environ={"SATCHEL_MODEL": "none"})
    assert ran.code == 0
    assert "The server at http://127.0.0.1:9 is Satchel version 0.0.9, and this is" in ran.err
    assert "in the server" not in ran.out


@requirement("shared:follow")
def test_a_chat_runs_in_the_running_server_unless_the_user_declines(
    asking: World, run: Run, tmp_path: Path
) -> None:
    environ = {"SATCHEL_HOME": str(asking.home), "SATCHEL_MODEL": "none"}
    shared = run("chat", stdin="Count\n", environ=environ)
    assert (shared.code, WORDS in shared.out) == (0, True)
    assert f"in the server at {asking.url}" in shared.out
    for words, more in ((["chat", "--no-server"], {}), (["chat"], {"SATCHEL_SERVER_JOIN": "false"})):
        own = run(*words, stdin="Count\n", environ={**environ, **more})
        assert (own.code, WORDS in own.out, "in the server" in own.out) == (0, False, False)


@requirement("shared:follow")
def test_ask_continues_a_session_that_is_open_in_the_server(asking: World, run: Run) -> None:
    environ = {"SATCHEL_HOME": str(asking.home), "SATCHEL_MODEL": "none"}
    with asking.client() as client:
        session = chat(client, "Hello")[-1].data["sessionId"]
        ran = run("ask", "--session", session, "--json", "echo hello", environ=environ)
        assert ran.code == 4, ran.err  # nobody can be asked
        assert (ran.json["session_id"], ran.json["turn"], ran.json["status"]) == (session, 2, "done")
        assert [(step["tool"], step["input"], step["was_refused"]) for step in ran.json["steps"]] == [
            ("bash", {"command": "echo hello"}, True)
        ]
        assert client.get(f"/api/sessions/{session}/state").json()["turns"] == 2
