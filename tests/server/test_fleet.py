"""Two servers with one database: one is a process of its own that is killed in the end."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import psycopg
import pytest

from satchel.clock import ManualClock
from satchel.runtime import Satchel
from satchel.runtime.build_answers import Heard
from satchel.sessions import SessionStore
from satchel.storage import Database
from tests.postgresql import Server, server_of
from tests.requirements import requirement
from tests.server import world
from tests.server.browsers import HTML
from tests.server.world import chat, events_in, process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return server_of(tmp_path_factory)


@requirement("storage:postgres:servers")
def test_a_conversation_goes_on_at_whichever_server_is_asked(server: Server, tmp_path: Path) -> None:
    url = server.copy(tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (there / "home").mkdir(parents=True, mode=0o700)
    with world.serving(here, database=url) as near, near.client() as client:
        shutil.copy(near.home / "forgotten.key", there / "home")
        with process(there, "held", database=url) as (running, other):
            id = chat(client, "The heron")[-1].data["sessionId"]
            with client.stream("GET", f"/api/sessions/{id}/events") as following:
                followed = events_in(following.iter_lines())
                assert chat(other, "The owl", session_id=id)[-1].data["turn"] == 2
                assert chat(client, "The kestrel", session_id=id)[-1].data["turn"] == 3
                seen = [next(followed) for _ in range(2)]
                while seen[-1].name != "turn_end" or seen[-1].data["turn"] != 3:
                    seen.append(next(followed))
            assert [event.data["turn"] for event in seen if event.name == "turn_start"] == [2, 3]
            gone = chat(client, "The wren")[-1].data["sessionId"]
            with client.stream("GET", f"/api/sessions/{gone}/events") as following:
                assert other.delete(f"/api/sessions/{gone}").status_code == 200
                assert list(events_in(following.iter_lines()))[-1].name == "session_end"
            assert other.patch(f"/api/sessions/{id}", json={"title": "Birds"}).json()["title"] == "Birds"
            with other.stream("POST", "/api/chat", json={"message": "hold it", "session_id": id}) as held:
                assert next(events_in(held.iter_lines())).name == "start"
                assert [info["turns"] for info in client.get("/api/sessions").json()] == [4]
                assert client.get("/api/sessions/search", params={"q": "kestrel"}).json()
                assert "hold it" in client.get(f"/api/sessions/{id}").text
                running.kill()
        done = chat(client, "What was said?", session_id=id)[-1].data
        events = client.get(f"/api/sessions/{id}").json()["events"]
    assert (done["turn"], done["status"]) == (5, "done")
    starts = [str(event) for event in events if event["type"] == "turn_start"]
    for start, words in zip(starts, ("heron", "owl", "kestrel", "hold", "What was"), strict=True):
        assert words in start


@contextmanager
def two_servers(server: Server, tmp_path: Path) -> Iterator[tuple[httpx2.Client, httpx2.Client]]:
    """Clients of a server in this process, and of another one with the same key, token and database."""
    url = server.copy(tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (there / "home").mkdir(parents=True, mode=0o700)
    with world.serving(here, database=url) as near, near.client() as client:
        for file in ("forgotten.key", "token"):
            shutil.copy(near.home / file, there / "home")
        with process(there, "held", database=url) as (_, other):
            yield client, other


@requirement("storage:postgres:servers")
def test_a_question_is_answered_at_whichever_server_is_asked_and_once(server: Server, tmp_path: Path) -> None:
    asks = {"message": "echo heron", "mode": "ask", "interactive": True}
    with two_servers(server, tmp_path) as (client, other):
        with other.stream("POST", "/api/chat", json=asks) as running:
            events = events_in(running.iter_lines())
            id = next(events).data["sessionId"]
            question = next(event.data["id"] for event in events if event.name == "question")
            at = f"/api/sessions/{id}/answer"
            assert client.get(f"/api/sessions/{id}/state").json()["questions"][0]["id"] == question
            wrong = client.post(at, json={"id": "another", "consent": "once"})
            assert (wrong.status_code, wrong.json()["code"]) == (404, "not_found")
            assert client.post(at, json={"id": question, "consent": "once", "by": "near"}).json() == {
                "turn": None
            }
            again = client.post(at, json={"id": question, "consent": "no"})
            assert again.status_code in (400, 404)
            rest = list(events)
        assert [event.data["by"] for event in rest if event.name == "answered"] == ["near"]
        (result,) = (event.data["result"] for event in rest if event.name == "tool_result")
        assert result.endswith("\nheron")
        assert rest[-1].data["status"] == "done"
        assert chat(client, "The owl", session_id=id)[-1].data["turn"] == 2


@requirement("storage:postgres:servers")
def test_each_server_says_what_runs_and_asks_at_another(server: Server, tmp_path: Path) -> None:
    asks = {"message": "echo heron", "mode": "ask", "interactive": True}
    with two_servers(server, tmp_path) as (client, other):
        host = f"{client.base_url.host}:{client.base_url.port}"
        token = client.headers["authorization"].removeprefix("Bearer ")
        sends = {"accept": HTML, "origin": f"http://{host}", "authorization": ""}
        logged_in = client.post("/login", data={"token": token}, headers=sends)
        cookie = logged_in.headers["set-cookie"].partition(";")[0]
        client.cookies.clear()

        def marks() -> list[str]:
            sends = {"accept": HTML, "authorization": "", "cookie": cookie}
            page = client.get(f"{logged_in.headers['location']}sessions", headers=sends)
            assert page.status_code == 200
            return re.findall(r'data-state="(\w+)"', page.text)

        with other.stream("POST", "/api/chat", json={"message": "hold it"}) as running:
            events = events_in(running.iter_lines())
            at = f"/api/sessions/{next(events).data['sessionId']}"
            shown = client.get(at).json()
            assert (shown["running"], shown["questions"]) == (True, [])
            assert marks() == ["running"]
            assert client.post(f"{at}/cancel").json() == {"cancelled": True}
            assert list(events)[-1].name == "response"
        assert client.get(at).json()["running"] is False
        with other.stream("POST", "/api/chat", json=asks) as running:
            events = events_in(running.iter_lines())
            at = f"/api/sessions/{next(events).data['sessionId']}"
            id = next(event.data["id"] for event in events if event.name == "question")
            shown = client.get(at).json()
            assert (shown["running"], [one["id"] for one in shown["questions"]]) == (True, [id])
            assert shown["questions"] == other.get(at).json()["questions"]
            assert marks() == ["asks"]
            client.post(f"{at}/answer", json={"id": id, "consent": "no"}).raise_for_status()
            list(events)
        asked = chat(other, "Ask me")[-1].data
        assert asked["status"] == "asking"
        at = f"/api/sessions/{asked['sessionId']}"
        assert [one["question"] for one in client.get(at).json()["questions"]] == ["Which city?"]
        chat(other, "Bern", session_id=asked["sessionId"])
        assert client.get(at).json()["questions"] == []
        assert marks() == []


@requirement("storage:postgres:servers")
def test_a_turn_is_stopped_and_messages_stand_in_line_at_whichever_server_is_asked(
    server: Server, tmp_path: Path
) -> None:
    with (
        two_servers(server, tmp_path) as (client, other),
        other.stream("POST", "/api/chat", json={"message": "hold it"}) as running,
    ):
        events = events_in(running.iter_lines())
        id = next(events).data["sessionId"]
        at = f"/api/sessions/{id}"
        said = [client.post(f"{at}/turns", json={"text": text}).json() for text in ("And I?", "And you?")]
        assert [one["turn"] for one in said] == [0, 0]
        assert all(one["waiting"] for one in said)
        back = client.post(f"{at}/command", json={"text": "/back"})
        assert "And you?" in back.text
        with client.stream("POST", "/api/chat", json={"message": "The owl", "session_id": id}) as waiting:
            waited = events_in(waiting.iter_lines())
            assert (first := next(waited)).name == "waiting"
            assert client.post(f"{at}/cancel").json() == {"cancelled": True}
            assert list(events)[-1].data["status"] == "cancelled"
            rest = list(waited)
            assert (rest[0].name, rest[-1].name) == ("start", "response")
            assert (rest[-1].data["status"], rest[-1].data["turn"]) == ("done", 3)
            again = {"message": "The owl", "session_id": id}
            resumed = client.post("/api/chat", json=again, headers={"last-event-id": rest[0].id})
            assert list(events_in(resumed.iter_lines()))[-1].data == rest[-1].data
        # A message that is taken back ends the request that waits for it.
        with other.stream("POST", "/api/chat", json={"message": "hold it", "session_id": id}) as held:
            assert next(events_in(held.iter_lines())).name == "start"
            with client.stream("POST", "/api/chat", json=again) as waiting:
                waited = events_in(waiting.iter_lines())
                assert next(waited).data["id"] != first.data["id"]
                assert "The owl" in client.post(f"{at}/command", json={"text": "/back"}).text
                assert [event.data["status"] for event in waited] == ["cancelled"]


@requirement("storage:postgres:servers", "builder:question")
def test_what_is_said_beside_a_message_reaches_who_sent_it_to_another_server(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def heard(*_: object, **__: object) -> Heard:
        return Heard(note="greet still asks: Which greeting?", is_message=True)

    with two_servers(server, tmp_path) as (client, other):
        id = chat(client, "Leave a command running")[-1].data["sessionId"]
        monkeypatch.setattr("satchel.server.routes.chat.hear_line", heard)
        events = chat(other, "And now?", session_id=id)
        assert events[0].data["text"] == "greet still asks: Which greeting?"
        assert (events[-1].data["status"], events[-1].data["turn"]) == ("done", 2)


@requirement("storage:postgres:servers")
def test_clients_that_keep_the_history_go_on_where_something_runs_in_their_conversation(
    server: Server, tmp_path: Path
) -> None:
    with two_servers(server, tmp_path) as (client, other):
        said: list[dict[str, str]] = []

        def complete(at: httpx2.Client, text: str) -> tuple[str, int]:
            said.append({"role": "user", "content": text})
            answer = at.post("/v1/chat/completions", json={"messages": said})
            assert answer.status_code == 200, answer.text
            said.append(answer.json()["choices"][0]["message"])
            about = answer.json()["satchel"]
            assert answer.headers["x-satchel-session"] == about["session_id"]
            return about["session_id"], about["turn"]

        id, _ = complete(other, "Leave a command running")
        assert [complete(client, "The owl"), complete(client, "The wren")] == [(id, 2), (id, 3)]
        streams = {"stream": True, "messages": [*said, {"role": "user", "content": "count"}]}
        with client.stream("POST", "/v1/chat/completions", json=streams) as answer:
            assert answer.headers["x-satchel-session"] == id
            lines = [line for line in answer.iter_lines() if line]
        assert (world.WORDS in lines[1], lines[-1]) == (True, "data: [DONE]")
        first = other.post("/v1/responses", json={"input": "Leave a command running"}).json()
        next_one = client.post(
            "/v1/responses", json={"input": "The kestrel", "previous_response_id": first["id"]}
        ).json()
        assert next_one["satchel"] | {"memories": []} == first["satchel"] | {"memories": [], "turn": 2}
        shown = client.get(f"/v1/responses/{next_one['id']}").json()
        assert shown["output"][0]["content"][0]["text"] == "I see."


@requirement("storage:postgres:servers")
def test_the_answer_to_an_interrupt_goes_on_with_the_run_at_the_server_that_has_it(
    server: Server, tmp_path: Path
) -> None:
    def run(at: httpx2.Client, text: str, **more: Any) -> list[Any]:
        messages = [{"id": text, "role": "user", "content": text}]
        body = {"threadId": "t", "runId": text, "messages": messages, **more}
        with at.stream("POST", "/api/agui", json=body) as answer:
            assert answer.status_code == 200, answer.read()
            return [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]

    with two_servers(server, tmp_path) as (client, other):
        id = run(other, "Hello")[-1]["result"]["sessionId"]
        other.post("/api/sessions", json={"session_id": id, "mode": "ask"}).raise_for_status()
        [interrupt] = run(other, "echo heron")[-1]["outcome"]["interrupts"]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"consent": "once"}}
        wrong = {"threadId": "t", "runId": "w", "messages": [], "resume": [{**answer, "interruptId": "x"}]}
        assert client.post("/api/agui", json=wrong).status_code == 404
        events = run(client, "echo heron", resume=[answer])
        assert [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"][0].endswith(
            "heron"
        )
        assert events[-1]["result"] == {"sessionId": id, "turn": 2, "status": "done"}
        [asked] = run(other, "Ask me")[-1]["outcome"]["interrupts"]
        answer = {"interruptId": asked["id"], "status": "resolved", "payload": {"text": "Bern"}}
        assert run(client, "Ask me", resume=[answer])[-1]["result"]["turn"] == 4


@requirement("storage:postgres:servers")
def test_a_client_that_keeps_the_history_is_told_where_it_was_while_a_turn_runs_there(
    server: Server, tmp_path: Path
) -> None:
    with two_servers(server, tmp_path) as (client, other):
        said = [{"role": "user", "content": "Hello"}]
        first = other.post("/v1/chat/completions", json={"messages": said}).json()
        id = first["satchel"]["session_id"]
        said += [first["choices"][0]["message"], {"role": "user", "content": "The owl"}]
        with other.stream("POST", "/api/chat", json={"message": "hold it", "session_id": id}) as running:
            assert next(events_in(running.iter_lines())).name == "start"
            for at in (client, other):
                answer = at.post("/v1/chat/completions", json={"messages": said})
                about = answer.json()["satchel"]
                assert (about["instead_of"], answer.headers["x-satchel-instead-of"]) == (id, id)
                assert about["session_id"] not in (id, "")
            other.post(f"/api/sessions/{id}/cancel").raise_for_status()
        assert "instead_of" not in first["satchel"]


_STEALS = """
CREATE TABLE stolen AS SELECT * FROM conversation_requests;
CREATE FUNCTION steal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO stolen SELECT NEW.*; RETURN NEW; END $$;
CREATE TRIGGER steal AFTER INSERT ON conversation_requests FOR EACH ROW EXECUTE FUNCTION steal();
"""
_AGAIN = """
INSERT INTO conversation_requests (session_id, epoch, last_seq, at, content)
SELECT session_id, {}, last_seq, at, content FROM stolen
"""


@requirement("storage:postgres:servers")
def test_who_copies_rows_has_no_request_carried_out_again(server: Server, tmp_path: Path) -> None:
    url = server.copy(tmp_path)
    with (
        two_servers(server, tmp_path) as (client, other),
        psycopg.connect(url, autocommit=True) as thief,
    ):
        with other.stream("POST", "/api/chat", json={"message": "hold it"}) as running:
            events = events_in(running.iter_lines())
            id = next(events).data["sessionId"]
            thief.execute(_STEALS)
            said = client.post(f"/api/sessions/{id}/turns", json={"text": "Send the parcel"})
            assert said.json()["waiting"]
            thief.execute("DROP TRIGGER steal ON conversation_requests")
            thief.execute(_AGAIN.format("epoch"))
            # What came after has been carried out, so what was copied was taken before.
            client.post(f"/api/sessions/{id}/turns", json={"text": "The owl"}).raise_for_status()
            assert other.post(f"/api/sessions/{id}/cancel").json() == {"cancelled": True}
            list(events)
        with other.stream("POST", "/api/chat", json={"message": "hold on", "session_id": id}) as running:
            events = events_in(running.iter_lines())
            while next(events).name != "start":
                pass
            newest = f"(SELECT epoch FROM conversations WHERE session_id = '{id}')"
            thief.execute(_AGAIN.format(newest))
            client.post(f"/api/sessions/{id}/turns", json={"text": "The wren"}).raise_for_status()
            other.post(f"/api/sessions/{id}/cancel")
            list(events)
        done = chat(other, "What was said?", session_id=id)[-1].data
    assert done["text"].count("Send the parcel") == 1


@requirement("storage:postgres:servers")
def test_a_file_that_was_sent_is_found_by_whichever_server_gets_its_message(
    server: Server, tmp_path: Path
) -> None:
    with two_servers(server, tmp_path) as (client, other):
        content = b"The parcel weighs seven stone.\n"
        file = client.post("/api/attachments", params={"filename": "note.txt"}, content=content).json()
        attached = [{"sha256": file["sha256"], "filename": "note.txt"}]
        done = chat(other, "I send it", attachments=attached)
        start = other.get(f"/api/sessions/{done[-1].data['sessionId']}").json()["events"][1]
        assert [block["size"] for block in start["message"]["blocks"] if block["type"] == "file"] == [
            len(content)
        ]
        assert not [*tmp_path.rglob("uploads/*")]
        again = client.post("/api/chat", json={"message": "Once more", "attachments": attached})
        assert (again.status_code, "isn't here any more" in again.text) == (404, True)


@requirement("storage:postgres:servers")
def test_the_mode_that_was_chosen_stays_when_the_servers_change(server: Server, tmp_path: Path) -> None:
    with two_servers(server, tmp_path) as (client, other):
        at = f"/api/sessions/{chat(client, 'The heron', mode='plan')[-1].data['sessionId']}"
        assert chat(other, "The owl", session_id=at.rpartition("/")[2])[-1].data["turn"] == 2
        assert other.get(f"{at}/state").json()["mode"] == "plan"
        other.post(
            "/api/sessions", json={"session_id": at.rpartition("/")[2], "mode": "auto"}
        ).raise_for_status()
        assert client.get(f"{at}/state").json()["mode"] == "auto"


@requirement("storage:postgres:servers")
def test_a_browser_is_logged_in_and_out_at_all_servers(server: Server, tmp_path: Path) -> None:
    with two_servers(server, tmp_path) as (client, other):
        token = client.headers.pop("authorization").removeprefix("Bearer ")
        link = other.post("/login/link").json()["path"]
        del other.headers["authorization"]
        # As behind a balancer, which has one address.
        host = {"host": f"127.0.0.1:{client.base_url.port}", "accept": HTML}
        origin = {**host, "origin": f"http://{host['host']}"}
        assert other.post("/login", data={"token": token[:-1]}, headers=origin).status_code == 403
        logged_in = other.post("/login", data={"token": token}, headers=origin)
        place, cookie = logged_in.headers["location"], logged_in.headers["set-cookie"].partition(";")[0]
        pages = []
        for one in (client, other):
            one.cookies.clear()
            pages.append(one.get(place, headers={**host, "cookie": cookie}))
            assert pages[-1].status_code == 200
            assert one.get(place, headers=host).headers["location"].startswith("/login")
        found = re.search(r'name="form_token" value="(\w+)"', pages[1].text)
        form = {"form_token": found[1] if found else ""}
        theirs = client.get(link, headers=host)
        assert theirs.headers["location"].startswith("/s/")
        assert other.get(link, headers=host).status_code == 403
        once_more = other.post("/login", data={"token": token}, headers=origin)
        others = once_more.headers["location"], once_more.headers["set-cookie"].partition(";")[0]
        sends = {**origin, "cookie": cookie}
        assert client.post(f"{place}logout", data={"form_token": "f"}, headers=sends).status_code == 403
        assert client.post(f"{place}logout", data=form, headers=sends).headers["location"] == "/login?ended=1"
        for one in (client, other):
            one.cookies.clear()
            assert one.get(place, headers={**host, "cookie": cookie}).status_code == 303
        mine = theirs.headers["location"], theirs.headers["set-cookie"].partition(";")[0]
        page = other.get(mine[0], headers={**host, "cookie": mine[1]})
        found = re.search(r'name="form_token" value="(\w+)"', page.text)
        form = {"form_token": found[1] if found else ""}
        sends = {**origin, "cookie": mine[1]}
        assert other.post(f"{mine[0]}logout/everywhere", data=form, headers=sends).status_code == 303
        for one in (client, other):
            one.cookies.clear()
            for at, known in (mine, others):
                assert one.get(at, headers={**host, "cookie": known}).status_code == 303


@pytest.mark.anyio
@requirement("storage:postgres:servers")
async def test_a_conversation_that_is_long_in_closing_keeps_no_other_from_being_handed_over(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.copy(tmp_path)
    reached, hand_over = threading.Event(), Satchel.hand_over
    with world.serving(tmp_path, database=url) as near, near.client() as client:
        slow, other = (chat(client, "The heron")[-1].data["sessionId"] for _ in range(2))

        async def closing(satchel: Satchel, session_id: str) -> bool:
            if session_id == slow:
                reached.set()
                await anyio.sleep_forever()
            return await hand_over(satchel, session_id)

        monkeypatch.setattr(Satchel, "hand_over", closing)
        async with Database.open(url) as database, anyio.create_task_group() as group:
            store = SessionStore(tmp_path / "there", database, clock=ManualClock())
            group.start_soon(store.open, slow)
            assert await anyio.to_thread.run_sync(partial(reached.wait, 60))
            async with await store.open(other) as journal:
                assert journal.session_id == other
            group.cancel_scope.cancel()
