"""A message over HTTP: the events of its turn, and what becomes of it when the reader leaves, comes back or stops it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from satchel.events import Notice, TurnEnd
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.server import open_sessions
from satchel.server.routes import sessions as session_routes
from satchel.server.turn_stream import TurnPosition as PlaceInTurn
from satchel.server.turn_stream import turn_events
from satchel.sessions import SessionStore
from tests.requirements import requirement
from tests.runtime.test_builds import thinks
from tests.runtime.world import opened
from tests.server.world import WORDS, Sent, World, chat, events_in, serving, text_of
from tests.sessions.worlds import said, started


@contextmanager
def streaming(client: httpx2.Client, message: str, **more: object) -> Iterator[Iterator[Sent]]:
    """The events of a turn while it runs; leaving the block leaves the stream."""
    with client.stream("POST", "/api/chat", json={"message": message, **more}) as answer:
        assert answer.status_code == 200
        yield events_in(answer.iter_lines())


@requirement("http:chat:sse")
def test_a_turn_is_streamed_in_the_shapes_of_the_seed(client: httpx2.Client) -> None:
    events = chat(client, "Please echo hello")
    assert [event.name for event in events if event.name != "tool_progress"] == [
        "start",
        "text_delta",
        "tool_start",
        "tool_result",
        "text_delta",
        "response",
    ]
    by_name = {event.name: event.data for event in events}
    assert (by_name["tool_start"]["name"], by_name["tool_start"]["input"]) == (
        "bash",
        {"command": "echo hello"},
    )
    assert by_name["tool_result"]["name"] == "bash"
    assert by_name["tool_result"]["isError"] is False
    assert "hello" in by_name["tool_result"]["result"]
    response = by_name["response"]
    assert (response["text"], response["status"]) == ("It is done.", "done")
    assert (response["buildId"], response["pendingQuestion"]) == (None, None)
    assert [(call["name"], call["isError"]) for call in response["toolCalls"]] == [("bash", False)]
    assert all(event.id for event in events)
    progress = [event.data for event in events if event.name == "tool_progress"]
    assert all(data["name"] == "bash" and isinstance(data["data"], dict) for data in progress)


@requirement("http:chat:sse")
@pytest.mark.anyio
async def test_every_call_has_one_start_and_one_end_under_one_name_whatever_becomes_of_it(
    tmp_path: Path,
) -> None:
    calls = [
        Call(name="bash", input={"command": "rm x"}),  # refused: nobody can be asked
        Call(name="nosuch", input={"a": 1}),
        Call(name="file_read", input={"path": 5}),
        Call(name="execute_capability", input={"name": "none", "input": {}}),
        Call(name="glob", input={"pattern": "*"}),
    ]
    model = ScriptedModel([Reply(calls=calls), "Done."])
    async with opened(tmp_path, model, agent__mode="ask") as satchel:
        running = await (await satchel.session()).start("Go")
        place = PlaceInTurn(session_id="s", first=running.after_seq, seq=running.after_seq)
        events = [event async for event in turn_events(running.records(), start=place)]
        shown = [
            (event.name, event.data["name"], event.data["callId"])
            for event in events
            if "tool_" in event.name
        ]
        starts = {(name, id) for kind, name, id in shown if kind == "tool_start"}
        ends = {(name, id) for kind, name, id in shown if kind == "tool_result"}
        assert len(shown) == 2 * len(calls)
        assert starts == ends
        assert sorted(name for name, _ in starts) == sorted(call.name for call in calls)
        inputs = {event.data["name"]: event.data["input"] for event in events if event.name == "tool_start"}
        assert (inputs["bash"], inputs["nosuch"]) == ({"command": "rm x"}, {"a": 1})
        # Nobody who speaks HTTP has a command line.
        assert " --" not in str([event.data for event in events if event.name == "tool_result"])
        # Who has only the start of a call gets its end after it.
        start = next(
            event for event in events if event.name == "tool_start" and event.data["name"] == "nosuch"
        )
        rest = [
            event async for event in turn_events(running.records(), start=PlaceInTurn.parse(start.id or ""))
        ]
        assert "nosuch" in [event.data["name"] for event in rest if event.name == "tool_result"]


@requirement("http:chat:sse")
def test_memory_that_is_shown_to_the_model_is_an_event(client: httpx2.Client) -> None:
    added = client.post(
        "/api/memories", json={"content": "My sister Mara is allergic to shellfish.", "speaker": "user"}
    ).json()
    events = chat(client, "What is my sister Mara allergic to?")
    shown = [memory for event in events if event.name == "memory" for memory in event.data["memories"]]
    contents = {memory["id"]: memory["content"] for memory in shown}
    assert contents[added["id"]] == "My sister Mara is allergic to shellfish."
    client.delete(f"/api/memories/{added['id']}")


@requirement("http:chat:sse")
def test_a_conversation_goes_on_in_its_session_and_its_model_can_be_changed(client: httpx2.Client) -> None:
    first = chat(client, "Hello")[-1].data
    second = chat(client, "Count", session_id=first["sessionId"])[-1].data
    assert (second["sessionId"], second["turn"], second["text"]) == (first["sessionId"], 2, WORDS)
    third = chat(client, "Hello", session_id=first["sessionId"], model="none")[-1].data
    assert third["turn"] == 3
    refused = client.post(
        "/api/chat", json={"message": "x", "session_id": first["sessionId"], "mode": "plan"}
    )
    assert refused.status_code == 400


@requirement("http:chat:resume")
def test_from_every_id_the_rest_comes_and_nothing_twice(client: httpx2.Client) -> None:
    events = [event for event in chat(client, "Please echo hello") if event.name != "tool_progress"]
    for place, event in enumerate(events[:-1], start=1):
        rest = chat(client, "Please echo hello", headers={"last-event-id": event.id})
        assert [(one.name, one.data) for one in rest] == [(one.name, one.data) for one in events[place:]]
    assert chat(client, "", headers={"last-event-id": events[-1].id}) == []


@requirement("http:chat:resume")
@pytest.mark.parametrize(
    ("id", "status"),
    [
        ("7", 400),
        ("", 400),
        ("a.b.c.d", 400),
        ("../../token.1.2.0", 400),
        ("nosuchsession.1.2.0", 404),
        ("nosuchsession.2.1.0", 400),
        ("1" * 100, 400),
    ],
)
def test_an_invalid_id_begins_no_turn(client: httpx2.Client, id: str, status: int) -> None:
    before = client.get("/api/sessions").headers["x-total-count"]
    answer = client.post("/api/chat", json={"message": "Hello"}, headers={"last-event-id": id})
    assert answer.status_code == status
    assert client.get("/api/sessions").headers["x-total-count"] == before


@requirement("clients:line")
def test_a_message_that_comes_during_a_turn_says_that_it_waits_and_is_answered_after_it(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as world, world.client() as client, streaming(client, "hold it") as events:
        session = next(events).data["sessionId"]
        assert world.held.reached.wait(120)
        with streaming(client, "count", session_id=session) as later:
            waits = next(later)
            assert (waits.name, waits.data["sessionId"]) == ("waiting", session)
            turns = f"/api/sessions/{session}/turns"
            begun = client.post(turns, json={"text": "never"})
            assert (begun.status_code, begun.json()["turn"]) == (201, 0)
            state = client.get(f"/api/sessions/{session}/state").json()
            assert [one["text"] for one in state["waiting"]] == ["count", "never"]
            back = client.post(f"/api/sessions/{session}/command", json={"text": "/back"})
            assert "never" in back.text
            for n in range(9):
                assert client.post(turns, json={"text": f"more {n}"}).status_code == 201
            full = client.post(turns, json={"text": "too many"})
            assert (full.status_code, full.json()["code"]) == (429, "line_full")
            world.held.go_on.set()
            assert list(events)[-1].data["text"] == WORDS
            rest = list(later)
        assert [event.name for event in rest[:1]] == ["start"]
        assert (rest[-1].data["turn"], rest[-1].data["text"]) == (2, WORDS)


@requirement("clients:line")
def test_a_message_that_waits_is_kept_for_the_next_start_of_a_server_that_is_stopped(tmp_path: Path) -> None:
    with serving(tmp_path) as world, world.client() as client:
        with streaming(client, "hold it") as events:
            session = next(events).data["sessionId"]
            assert world.held.reached.wait(120)
        client.post(f"/api/sessions/{session}/turns", json={"text": "count"})
        world.call(world.stop)
    with serving(tmp_path) as world, world.client() as client:
        state = client.get(f"/api/sessions/{session}/state").json()
        assert [one["text"] for one in state["waiting"]] == ["count"]


@requirement("http:chat:leave", "http:chat:resume")
def test_a_client_that_leaves_in_the_middle_finds_the_whole_answer_when_it_returns(tmp_path: Path) -> None:
    with serving(tmp_path) as world, world.client() as client:
        with streaming(client, "hold it") as events:
            start, first = next(events), next(events)
            session = start.data["sessionId"]
        assert world.held.reached.wait(120)
        other = {"message": "And me", "session_id": session, "model": "none"}
        busy = client.post("/api/chat", json=other)
        assert (busy.status_code, busy.json()["code"]) == (409, "conflict")
        assert client.get(f"/api/sessions/{session}").json()["running"] is True
        with client.stream(
            "POST", "/api/chat", json={"message": "hold it"}, headers={"last-event-id": first.id}
        ) as answer:
            world.held.go_on.set()
            rest = list(events_in(answer.iter_lines()))
        assert first.data["text"] + text_of(rest) == WORDS
        assert rest[-1].data["text"] == WORDS
        shown = client.get(f"/api/sessions/{session}").json()
        assert [event["text"] for event in shown["events"] if event["type"] == "final"] == [WORDS]


@requirement("http:sessions")
def test_a_turn_is_cancelled_and_ends_its_stream(tmp_path: Path) -> None:
    with serving(tmp_path) as world, world.client() as client, world.client() as other:
        with streaming(client, "hold it") as events:
            session = next(events).data["sessionId"]
            assert world.held.reached.wait(120)
            assert other.post(f"/api/sessions/{session}/cancel").json() == {"cancelled": True}
            rest = list(events)
        assert (rest[-1].name, rest[-1].data["status"]) == ("response", "cancelled")
        assert other.post(f"/api/sessions/{session}/cancel").json() == {"cancelled": False}
        assert chat(other, "Hello", session_id=session)[-1].data["status"] == "done"


@requirement("http:sessions")
def test_a_question_of_an_interactive_turn_is_answered_by_another_client(tmp_path: Path) -> None:
    with serving(tmp_path, agent__mode="ask") as world, world.client() as client, world.client() as other:
        with streaming(client, "Please echo hello", interactive=True) as events:
            session = next(events).data["sessionId"]
            question = next(event for event in events if event.name == "question").data
            assert question["calls"][0]["input"] == {"command": "echo hello"}
            waiting = other.get(f"/api/sessions/{session}").json()["questions"]
            assert [one["id"] for one in waiting] == [question["id"]]
            answer = {"id": question["id"], "consent": "once", "by": "the other"}
            assert other.post(f"/api/sessions/{session}/answer", json=answer).json() == {"turn": None}
            rest = list(events)
        assert [event.data["by"] for event in rest if event.name == "answered"] == ["the other"]
        assert [call["isError"] for call in rest[-1].data["toolCalls"]] == [False]
        late = other.post(f"/api/sessions/{session}/answer", json=answer)
        assert late.status_code in (400, 404)
        refused = chat(client, "Please echo hello")[-1].data
        assert [call["isError"] for call in refused["toolCalls"]] == [True]


@requirement("http:sessions", "clients:replay")
def test_a_session_is_followed_from_any_event_by_any_number_of_clients(
    client: httpx2.Client, world: World
) -> None:
    session = chat(client, "Hello")[-1].data["sessionId"]
    with (
        world.client() as one,
        world.client() as two,
        one.stream("GET", f"/api/sessions/{session}/events?after=0") as first,
        two.stream("GET", f"/api/sessions/{session}/events", headers={"last-event-id": "2"}) as second,
    ):
        everything, later = events_in(first.iter_lines()), events_in(second.iter_lines())
        chat(client, "Count", session_id=session)
        client.post(f"/api/sessions/{session}/post", json={"text": "The build is done.", "source": "ci"})

        def until_posted(events: Iterator[Sent]) -> list[Sent]:
            seen = []
            for event in events:
                seen.append(event)
                if event.name == "posted":
                    return seen
            raise AssertionError("the stream ended")

        whole, part = until_posted(everything), until_posted(later)
    logged = [event for event in whole if event.data["type"] not in ("text_delta", "tool_progress")]
    assert [int(event.id) for event in logged] == list(range(1, len(logged) + 1))
    assert all(event.name == event.data["type"] and int(event.id) == event.data["seq"] for event in whole)
    assert [event.id for event in part if event.data["type"] != "text_delta"] == [
        event.id for event in logged[2:]
    ]
    assert whole[-1].data["text"] == "The build is done."


@requirement("builder:goes-on")
def test_a_conversation_goes_on_after_a_build_for_whoever_looks_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A build takes longer than a session stays open that nobody uses.
    monkeypatch.setattr(open_sessions, "_IDLE_S", 0.0)
    monkeypatch.setattr(open_sessions, "_LOOK_S", 0.001)
    with (
        serving(
            tmp_path, lambda _: ScriptedModel(thinks), agent__mode="bypass", sandbox__allow_unsafe=True
        ) as world,
        world.client() as client,
    ):
        response = chat(client, "Make yourself a tool that greets cities.", interactive=True)[-1].data
        session = response["sessionId"]
        # Nobody follows the session now.
        with client.stream("GET", f"/api/builder/status?buildId={response['buildId']}") as news:
            question = next(event for event in events_in(news.iter_lines()) if event.name == "question")
            body = {
                "build_id": response["buildId"],
                "question_id": question.data["id"],
                "answer": "Hello",
            }
            assert client.post("/api/builder/answer", json=body).status_code < 300
        with client.stream("GET", f"/api/sessions/{session}/events?after=0") as answer:
            finals = (event.data["text"] for event in events_in(answer.iter_lines()) if event.name == "final")
            assert next(text for text in finals if "building" not in text) == "It says: Hello, Rome!"


@requirement("builder:goes-on")
def test_what_goes_on_after_a_build_asks_whoever_comes_back_for_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_sessions, "_IDLE_S", 0.0)
    monkeypatch.setattr(open_sessions, "_LOOK_S", 0.001)

    def acts(request: ModelRequest) -> Reply | str:
        reply = thinks(request)
        uses = isinstance(reply, Reply) and any(call.name == "execute_capability" for call in reply.calls)
        return Reply(calls=[Call(name="bash", input={"command": "echo x"}, id="b")]) if uses else reply

    (tmp_path / "home").mkdir(mode=0o700)
    rule = '[[permissions]]\naction = "allow"\ntool = "request_capability"\n'
    (tmp_path / "home" / "config.toml").write_text(rule)
    more = {"agent__mode": "ask", "builder__question_wait_s": 0.0, "sandbox__allow_unsafe": True}
    with serving(tmp_path, lambda _: ScriptedModel(acts), **more) as world, world.client() as client:
        asked = chat(client, "Make yourself a tool that greets cities.", interactive=True)[-1].data
        at = f"/api/sessions/{asked['sessionId']}"
        # No client follows, and one that can't answer is there.
        with client.stream("GET", f"{at}/events?after=0") as news:
            of_bash = (
                event
                for event in events_in(news.iter_lines())
                if event.data.get("calls") or (event.data.get("tool"), event.name) == ("bash", "observation")
            )
            question = next(of_bash)
            assert question.name == "question_asked"
            body = {"id": question.data["id"], "consent": "once"}
            assert client.post(f"{at}/answer", json=body).status_code < 300
            assert not next(event for event in of_bash if event.name == "observation").data["is_error"]


@requirement("builder:late")
def test_an_answer_to_a_build_is_no_message_however_early_or_late(tmp_path: Path) -> None:
    with (
        serving(
            tmp_path, lambda _: ScriptedModel(thinks), agent__mode="bypass", sandbox__allow_unsafe=True
        ) as world,
        world.client() as client,
    ):
        asked = chat(client, "Make yourself a tool that greets cities.", interactive=True)[-1].data
        session = asked["sessionId"]
        with client.stream("GET", f"/api/builder/status?buildId={asked['buildId']}") as news:
            next(event for event in events_in(news.iter_lines()) if event.name == "question")
        other = chat(client, "What is new?", session_id=session)
        shown = next(event.data["text"] for event in other if event.name == "notice")
        assert shown.startswith("greet still asks: "), "it goes to the model, and the question is shown again"
        assert other[-1].data["turn"] == 2
        [heard] = chat(client, "Hello", session_id=session)
        assert (heard.name, heard.data["status"], heard.data["turn"]) == ("response", "done", 0)
        if not heard.data["text"].endswith("has your answer."):  # it was shown only now, so the user is asked
            assert heard.data["text"].endswith("If that is your answer, send it again.")
            [heard] = chat(client, "Hello", session_id=session)
        assert heard.data["text"] == "The Builder of greet has your answer."


@requirement("builder:late")
def test_a_client_that_hears_all_from_the_model_answers_a_build_too(tmp_path: Path) -> None:
    seen: list[str] = []

    def hears(request: ModelRequest) -> Reply | str:
        newest = request.messages[-1].text
        if newest.startswith("Hello"):
            seen.append(str(request.messages[-1]))
            return "It has it."
        return thinks(request)

    messages: list[dict[str, str]] = []
    with (
        serving(
            tmp_path, lambda _: ScriptedModel(hears), agent__mode="bypass", sandbox__allow_unsafe=True
        ) as world,
        world.client() as client,
    ):

        def say(text: str) -> None:
            messages.append({"role": "user", "content": text})
            answer = client.post("/v1/chat/completions", json={"model": "satchel", "messages": messages})
            messages.append(answer.json()["choices"][0]["message"])

        say("Make yourself a tool that greets cities.")
        build_id = client.get("/api/capabilities/greet").json()["build_id"]
        with client.stream("GET", f"/api/builder/status?buildId={build_id}") as news:
            next(event for event in events_in(news.iter_lines()) if event.name == "question")
        say("Hello there, what is new?")
        assert (
            "This is no answer to a build that waits for the user. Tell them. greet still asks: "
            in seen.pop()
        )
        say("Hello")
        if "asks just now" in seen[0]:  # it was shown only now, so the user is asked
            say("Hello")
    assert "The Builder of greet asked for this, and has it now." in seen[-1]


@requirement("http:sessions")
@pytest.mark.parametrize(("after", "status"), [("999999", 400), ("-1", 422), ("x", 422), ("9" * 40, 422)])
def test_a_session_can_not_be_followed_from_an_unknown_event(
    client: httpx2.Client, after: str, status: int
) -> None:
    session = chat(client, "Hello")[-1].data["sessionId"]
    assert client.get(f"/api/sessions/{session}/events?after={after}").status_code == status


@requirement("http:sessions", "clients:leave")
def test_a_session_of_another_process_is_followed_from_its_log_and_not_written(
    client: httpx2.Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_routes, "_LOOK_S", 0.001)
    session = chat(client, "Hello")[-1].data["sessionId"]
    world.call(world.app.service.sessions.close, session)
    # Another store locks the session as another process does.
    elsewhere = SessionStore(world.home / "sessions", None, clock=world.satchel.clock)
    journal = world.call(elsewhere.open, session)
    try:
        with client.stream("GET", f"/api/sessions/{session}/events?after=0") as answer:
            events = events_in(answer.iter_lines())
            known = client.get(f"/api/sessions/{session}").json()["last_seq"]
            seen = [next(events).data["seq"] for _ in range(known)]
            world.call(journal.append, [Notice(part="test", text="From elsewhere.")])
            assert next(events).data["text"] == "From elsewhere."
            world.call(journal.aclose)
            for _ in range(20):  # meanwhile the stream looks again and again
                client.get(f"/api/sessions/{session}")
            journal = world.call(elsewhere.open, session)
            world.call(journal.append, [Notice(part="test", text="Again.")])
            assert next(events).data["text"] == "Again."
        assert seen == list(range(1, known + 1))
        refused = client.post("/api/chat", json={"message": "And here", "session_id": session})
        assert (refused.status_code, refused.json()["code"]) == (409, "session_in_use")
        assert int(refused.headers["retry-after"]) >= 1
    finally:
        world.call(journal.aclose)
    assert chat(client, "And here", session_id=session)[-1].data["status"] == "done"


@requirement("http:chat:resume")
def test_a_turn_that_was_cut_off_ends_as_interrupted_while_another_process_keeps_its_session(
    client: httpx2.Client, world: World
) -> None:
    session = chat(client, "Hello")[-1].data["sessionId"]
    world.call(world.app.service.sessions.close, session)
    elsewhere = SessionStore(world.home / "sessions", None, clock=world.satchel.clock)
    journal = world.call(elsewhere.open, session)
    try:
        before = client.get(f"/api/sessions/{session}").json()["last_seq"]
        world.call(journal.append, [said("And?", turn=2), started(session)])
        place = str(PlaceInTurn(session_id=session, first=before, seq=before))
        start, *_, end = chat(client, "And?", headers={"last-event-id": place})
        assert (start.data["turn"], end.data["turn"], end.data["status"]) == (2, 2, "interrupted")
    finally:
        world.call(journal.aclose)


@requirement("http:stop")
def test_a_stop_ends_running_turns_validly_and_tells_their_readers(tmp_path: Path) -> None:
    with serving(tmp_path) as world, world.client() as client, world.client() as follower:
        with streaming(client, "hold it") as events:
            session = next(events).data["sessionId"]
            assert world.held.reached.wait(120)
            with follower.stream("GET", f"/api/sessions/{session}/events?after=0") as following:
                world.call(world.stop)
                rest = list(events)
                last = list(events_in(following.iter_lines()))[-1]
        assert (rest[-1].name, rest[-1].data["status"]) == ("response", "cancelled")
        assert last.name == "turn_end"
        assert client.get("/readyz").status_code == 503
        assert client.post("/api/chat", json={"message": "And me"}).status_code == 503
        records = world.call(world.satchel.sessions.records, session)
        assert [record.event.status for record in records if isinstance(record.event, TurnEnd)] == [
            "cancelled"
        ]
