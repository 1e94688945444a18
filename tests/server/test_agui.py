"""The agent behind AG-UI: each event is read with the protocol's own models."""

from __future__ import annotations

import io
from base64 import b64decode, b64encode
from collections.abc import Iterator
from mimetypes import MimeTypes
from typing import Any

import httpx2
import pytest
from ag_ui.core import Event, RunAgentInput
from PIL import Image
from pydantic import TypeAdapter

from satchel.errors import StorageError
from satchel.sessions.attachments import uploads_folder
from tests.requirements import requirement
from tests.server.test_attachments import PNG, asked
from tests.server.world import World, serving

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("agui")
    with serving(folder, server__requests_per_s=10_000, agent__mode="ask") as world:
        yield world


def run(client: httpx2.Client, thread: str, *messages: Any, **more: Any) -> list[Any]:
    """Run the agent, and read the events strictly: what the models don't know fails."""
    request = RunAgentInput(
        thread_id=thread, run_id=f"run-{len(messages)}", messages=list(messages), state={}, **more
    )
    body = request.model_dump(by_alias=True, exclude_none=True, mode="json")
    events = []
    with client.stream("POST", "/api/agui", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: "):
                event = EVENT.validate_json(line[6:])
                assert not event.model_extra
                events.append(event)
    assert events[0].type == "RUN_STARTED"
    assert events[-1].type in ("RUN_FINISHED", "RUN_ERROR")
    assert sum(event.type.startswith("RUN_") for event in events) == 2
    return events


def user(text: Any, id: str = "u1") -> Any:
    return {"id": id, "role": "user", "content": text}


def texts(events: list[Any]) -> list[str]:
    """The messages, each whole."""
    found: dict[str, str] = {}
    ended = set()
    for event in events:
        match event.type:
            case "TEXT_MESSAGE_START":
                found[event.message_id] = ""
            case "TEXT_MESSAGE_CONTENT":
                assert event.message_id not in ended
                found[event.message_id] += event.delta
            case "TEXT_MESSAGE_END":
                ended.add(event.message_id)
            case _:
                pass
    assert ended == set(found)
    return list(found.values())


@requirement("http:agui")
def test_a_thread_goes_on_in_one_session_whatever_history_the_front_end_sends(
    world: World, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(client, "t1", user("My bicycle is red."))
    assert texts(first) == ["I see."]
    end = first[-1]
    assert (end.thread_id, end.run_id, end.outcome.type) == ("t1", "run-1", "success")
    assert end.usage[0].total_tokens == end.usage[0].input_tokens + end.usage[0].output_tokens > 0
    answer = {"id": "a1", "role": "assistant", "content": "Edited by the front end."}
    second = run(client, "t1", user("My bicycle is red."), answer, user("What was said?", "u2"))
    assert texts(second) == ["user: My bicycle is red. | assistant: I see."]
    assert (second[-1].result["sessionId"], second[-1].result["turn"]) == (end.result["sessionId"], 2)
    label = {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}}
    paper = {"type": "document", "source": {"type": "data", "value": "aGk=", "mimeType": "application/pdf"}}
    # A system without mime.types has only Python's own table.
    own = MimeTypes()
    monkeypatch.setattr("satchel.tools.kept.guess_extension", own.guess_extension)
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    assert own.guess_extension(word) is None
    letter = {"type": "document", "source": {"type": "data", "value": "aGk=", "mimeType": word}}
    run(client, "t2", user([label, paper, letter, {"type": "text", "text": "What is it?"}]))
    assert [(file.name, file.size) for file in asked(world, "What is it?")] == [
        ("picture", 2),
        ("file.pdf", 2),
        ("file.docx", 2),
    ]

    def viewed(thread: str, picture: bytes) -> Any:
        (world.satchel.settings.cwd / "a.png").write_bytes(picture)
        [result] = [e for e in run(client, thread, user("view")) if e.type == "TOOL_CALL_RESULT"]
        return result.content

    assert b64decode(viewed("t3", PNG)[1].source.value) == PNG
    Image.new("RGB", (2600, 40)).save(wide := io.BytesIO(), "PNG")
    assert viewed("t4", wide.getvalue())[1].source.mime_type == "image/jpeg"
    with monkeypatch.context() as change:
        change.setattr("satchel.addons.agui.runs._MOST_PICTURES", 80)
        assert isinstance(viewed("t5", PNG), str)
    # The thread comes with every request: what was sent in it must not make it too long.
    monkeypatch.setattr("satchel.addons.agui.runs._MOST_IN_THREAD", 99)
    [first, second] = (
        [event.content for event in run(client, "t6", *thread) if event.type == "TOOL_CALL_RESULT"]
        for thread in ([user("view")], [user([label]), answer, user("view", "u2")])
    )
    assert (isinstance(first[0], list), isinstance(second[0], str)) == (True, True)
    other = run(client, "t2", user("Hello"))
    assert other[-1].result["sessionId"] != end.result["sessionId"]


@requirement("http:agui")
def test_a_permission_ends_the_run_and_its_answer_continues_the_turn(client: httpx2.Client) -> None:
    events = run(client, "p1", user("Please echo hello"))
    assert texts(events) == ["Let me see."]
    (asked,) = events[-1].outcome.interrupts
    assert (asked.reason, asked.tool_call_id) == ("permission", "c1")
    assert "echo hello" in asked.message
    assert asked.response_schema["properties"]["consent"]["enum"] == ["no", "once", "session", "always"]
    busy = client.post("/api/agui", json={"threadId": "p1", "runId": "x", "messages": [user("And now?")]})
    assert busy.status_code == 409
    answer = {"interruptId": asked.id, "status": "resolved", "payload": {"consent": "once"}}
    rest = run(client, "p1", user("Please echo hello"), resume=[answer])
    kinds = [event.type for event in rest if event.type.startswith("TOOL_")]
    assert kinds == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]
    result = next(event for event in rest if event.type == "TOOL_CALL_RESULT")
    assert "hello" in result.content
    assert texts(rest) == ["It is done."]
    assert rest[-1].result["turn"] == 1
    late = client.post("/api/agui", json={"threadId": "p1", "runId": "x", "messages": [], "resume": [answer]})
    assert late.status_code == 404
    refused = run(client, "p2", user("Please echo hello"))
    (asked,) = refused[-1].outcome.interrupts
    cancelled = {"interruptId": asked.id, "status": "cancelled"}
    rest = run(client, "p2", user("Please echo hello"), resume=[cancelled])
    assert "Refused" in next(event for event in rest if event.type == "TOOL_CALL_RESULT").content


@requirement("http:agui")
def test_a_question_is_an_interrupt_and_its_answer_the_next_run(client: httpx2.Client) -> None:
    events = run(client, "q1", user("Ask me"))
    (asked,) = events[-1].outcome.interrupts
    assert (asked.reason, asked.message) == ("question", "Which city?")
    answer = {"interruptId": asked.id, "status": "resolved", "payload": {"text": "Bern"}}
    rest = run(client, "q1", user("Ask me"), resume=[answer])
    assert texts(rest) == ["It is done."]
    session = rest[-1].result["sessionId"]
    log = client.get(f"/api/sessions/{session}").json()["events"]
    assert [e["message"]["blocks"][0]["text"] for e in log if e["type"] == "turn_start"] == ["Ask me", "Bern"]


@requirement("http:agui")
def test_a_part_that_fails_is_told_and_the_run_goes_on(
    world: World, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise StorageError("The database is locked.")

    monkeypatch.setattr(world.satchel.memory, "surface", fail)
    events = run(client, "f1", user("Hello"))
    told = [event.value for event in events if event.type == "CUSTOM" and event.name == "satchel.notice"]
    assert told == [{"part": "memory", "text": "The database is locked."}]
    assert texts(events) == ["I see."]


@requirement("http:agui")
def test_tools_of_the_front_end_are_left_to_it(client: httpx2.Client) -> None:
    events = run(client, "w1", user("How is the weather?"), tools=[WEATHER])
    assert events[-1].outcome.pending_tool_call_ids == ["w1"]
    assert [event.delta for event in events if event.type == "TOOL_CALL_ARGS"] == ['{"city": "Bern"}']
    assert texts(events) == ["One moment."]
    call = {
        "id": "w1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'},
    }
    history = [
        user("How is the weather?"),
        {"id": "a", "role": "assistant", "content": "One moment.", "toolCalls": [call]},
        {"id": "r", "role": "tool", "toolCallId": "w1", "content": "sunny"},
    ]
    assert texts(run(client, "w1", *history, tools=[WEATHER])) == ["It is done."]
    # A thread that is not known here is taken over whole.
    assert texts(run(client, "w2", *history, tools=[WEATHER])) == ["It is done."]


@requirement("http:agui", "http:hostile")
def test_failures_are_errors_of_the_run_or_of_the_request(client: httpx2.Client, world: World) -> None:
    failed = run(client, "f1", user("Please fail"))[-1]
    assert failed.type == "RUN_ERROR"
    assert "refused the request" in failed.message
    for body, status in [
        ({}, 422),
        ({"threadId": "x", "runId": "r", "messages": []}, 400),
        ({"threadId": "x", "runId": "r", "messages": [{"role": "wizard"}]}, 400),
        ({"threadId": "x", "runId": "r", "messages": [user([{"type": "image", "source": {"type": "data", "value": "?"}}])]}, 400),
        ({"threadId": "x", "runId": "r", "messages": [user([{"type": "image", "source": {"type": "url", "value": "file:///etc/passwd"}}])]}, 400),
        ({"threadId": "x", "runId": "r", "messages": [user("x")], "resume": [{"interruptId": "i"}]}, 422),
        ({"threadId": "nope", "runId": "r", "messages": [], "resume": [{"interruptId": "i", "status": "resolved"}]}, 404),
    ]:  # fmt: skip
        answer = client.post("/api/agui", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    # Files of a message that is refused don't wait for it.
    pictures = [{"type": "image", "source": {"type": "data", "value": b64encode(PNG + bytes([n])).decode(), "mimeType": "image/png"}} for n in range(21)]  # fmt: skip
    body = {
        "threadId": "many",
        "runId": "r",
        "messages": [user([{"type": "text", "text": "See"}, *pictures])],
    }
    assert "20 files at most" in client.post("/api/agui", json=body).text
    assert [*uploads_folder(world.home).iterdir()] == []
    # Threads are sent as a whole, with their pictures.
    assert client.post("/api/agui", content=b" " * 17_000_000).status_code == 422
    assert client.post("/api/agui", json={}, headers={"authorization": "Bearer no"}).status_code == 401
    # An unknown field is kept, as the protocol wants it.
    body = {"threadId": "x", "runId": "r", "messages": [user("Hello")], "aNewField": {"x": 1}, "state": None}
    assert client.post("/api/agui", json=body).status_code == 200
