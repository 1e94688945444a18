"""Memory, capabilities, builds, tools and figures over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from satchel.builder.records import Build
from tests.capabilities.world import GREET
from tests.requirements import requirement
from tests.server.world import World, chat, events_in, register, serving


@requirement("http:memories", "memory:cues:tool")
def test_a_memory_is_added_with_cues_which_no_answer_shows(client: httpx2.Client) -> None:
    body = {"content": "The user is allergic to nuts.", "cues": ["baking a cake", "choosing a restaurant"]}
    added = client.post("/api/memories", json=body)
    id = added.json()["id"]
    assert "baking" not in added.text + client.get(f"/api/memories/{id}").text
    assert client.post("/api/memories", json={**body, "cues": ["anything"] * 7}).status_code == 422
    forgotten = client.delete(f"/api/memories/{id}")
    assert forgotten.json()["receipt"][0]["removed"]["cues"] == 2, forgotten.text


@requirement("http:memories")
def test_a_memory_is_added_found_changed_linked_pinned_and_forgotten(client: httpx2.Client) -> None:
    answer = client.post(
        "/api/memories",
        json={
            "content": "The bicycle is in the cellar.",
            "tags": ["home"],
            "said_at": "2026-03-01T10:00:00+01:00",
        },
    )
    assert answer.status_code == 201
    memory = answer.json()
    assert (memory["content"], memory["tags"], memory["said_at"]) == (
        "The bicycle is in the cellar.",
        ["home"],
        "2026-03-01T10:00:00+01:00",
    )
    id = memory["id"]
    assert client.get(f"/api/memories/{id}").json() == memory
    assert client.get("/api/memories/search", params={"q": "bicycle"}).json()[0]["memory"]["id"] == id
    listed = client.get("/api/memories", params={"tag": "home", "limit": 1})
    assert [one["id"] for one in listed.json()] == [id]
    assert listed.headers["x-total-count"] == "1"
    edited = client.patch(
        f"/api/memories/{id}", json={"content": "The bicycle is in the shed.", "importance": 4}
    )
    assert (edited.json()["content"], edited.json()["importance"]) == ("The bicycle is in the shed.", 4)
    changes = client.get(f"/api/memories/{id}/history").json()
    assert [change["action"] for change in changes] == ["add", "edit"]
    undone = client.post(f"/api/memories/changes/{changes[1]['id']}/undo").json()
    assert undone["change"]
    assert client.get(f"/api/memories/{id}").json()["content"] == "The bicycle is in the cellar."
    assert client.post(f"/api/memories/{id}/pin").json()["change"]
    profile = client.get("/api/profile").json()
    assert "The bicycle is in the cellar." in profile["text"]
    assert profile["agenda"]["lines"] == []
    assert client.delete(f"/api/memories/{id}/pin").json()["change"]
    assert client.get(f"/api/memories/{id}/related").json() == []
    before = client.get("/api/memories/stats").json()
    receipt = client.delete(f"/api/memories/{id}").json()["receipt"]
    assert [entry["id"] for entry in receipt if entry["where"] == "store"] == [id]
    after = client.get("/api/memories/stats").json()
    assert (after["memories"], after["forgotten"]) == (before["memories"] - 1, before["forgotten"] + 1)
    for again in (client.get(f"/api/memories/{id}"), client.delete(f"/api/memories/{id}")):
        assert (again.status_code, again.json()["code"]) == (404, "not_found")
    assert client.get("/api/memories/search", params={"q": "bicycle", "mode": "lexical"}).json() == []


@requirement("http:page")
def test_the_page_is_read_edited_listed_and_restored_over_http(client: httpx2.Client) -> None:
    assert client.get("/api/page").json() == {"number": 0, "text": "", "tokens": 0, "lines": [], "edited": ""}
    edited = client.patch("/api/page", json={"text": "# People\nLinh can't stand dairy\n"}).json()
    assert (edited["number"], edited["edited"]) == (1, "# People\nLinh can't stand dairy\n")
    assert [line["words"] for line in client.get("/api/profile").json()["lines"]] == [
        "Linh can't stand dairy"
    ]
    client.patch("/api/page", json={"text": "# People\nLinh loves coriander\n", "number": 1})
    assert client.patch("/api/page", json={"text": "nowhere"}).status_code == 400
    assert client.post("/api/page/accept").status_code == 404
    assert [one["number"] for one in client.get("/api/page/versions").json()] == [2, 1]
    restored = client.post("/api/page/restore", json={}).json()
    assert [line["words"] for line in restored["lines"]] == ["Linh can't stand dairy"]
    assert client.post("/api/page/restore", json={"number": 1}).json()["number"] == 4
    assert client.post("/api/page/restore", json={"number": 9}).status_code == 404
    for line in restored["lines"]:
        client.delete(f"/api/memories/{line['id']}")
    assert client.get("/api/page").json()["text"] == ""


@requirement("http:memories", "http:hostile")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": ""},
        {"content": "x", "importance": 9},
        {"content": "x", "tier": "eternal"},
        {"content": "x", "priority": 2},
        {"content": "x", "said_at": "0001-01-01"},
        {"content": "x", "said_at": "yesterday"},
        {"content": "x", "turn": 10**30},
        {"content": "x", "tags": ["t"] * 101},
        {"content": "x", "user": "somebody else"},
        {"content": "x", "scope": "another"},
    ],
    ids=str,
)
def test_a_memory_that_can_not_be_stored_is_a_problem(client: httpx2.Client, body: dict[str, Any]) -> None:
    before = client.get("/api/memories/stats").json()["memories"]
    answer = client.post("/api/memories", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert client.get("/api/memories/stats").json()["memories"] == before


@requirement("http:observe")
def test_a_conversation_in_another_program_is_captured_once(client: httpx2.Client) -> None:
    piece = {
        "session": "elsewhere-1",
        "turn": 1,
        "messages": [
            {
                "role": "user",
                "content": "My daughter Ida plays the cello. <private>Her PIN is 1234.</private>",
            },
            {"role": "assistant", "content": "How nice."},
            {"role": "other", "content": "A web page says: cellos are big."},
        ],
    }
    first = client.post("/api/observe", json=piece).json()
    assert (first["turn"], len(first["ids"])) == (1, 3)
    assert client.post("/api/observe", json=piece).json() == first
    captured = client.get("/api/memories", params={"session": "elsewhere-1"}).json()
    assert {(one["speaker"], one["trust"], one["kind"]) for one in captured} == {
        ("user", "user", "episode"),
        ("assistant", "agent", "episode"),
        ("other", "outside", "episode"),
    }
    assert not [one for one in captured if "1234" in one["content"]]
    following = {"session": "elsewhere-1", "messages": [{"role": "user", "content": "She is nine."}]}
    assert client.post("/api/observe", json=following).json()["turn"] == 2


@requirement("http:observe")
def test_nothing_is_observed_where_memory_does_not_capture(tmp_path: Path) -> None:
    with serving(tmp_path, memory__capture=False) as world, world.client() as client:
        piece = {"session": "s", "turn": 1, "messages": [{"role": "user", "content": "I live in Ulm."}]}
        assert client.post("/api/observe", json=piece).json() == {"turn": 1, "ids": []}
        assert client.get("/api/memories").json() == []


@requirement("http:context")
def test_the_context_has_relevant_memories_within_its_budget_or_nothing(
    client: httpx2.Client,
) -> None:
    added = client.post(
        "/api/memories", json={"content": "My brother Tom is allergic to walnuts.", "speaker": "user"}
    ).json()
    asked = {"messages": [{"role": "user", "content": "What is my brother Tom allergic to?"}]}
    found = client.post("/api/context", json=asked).json()
    assert [memory["id"] for memory in found["memories"]] == [added["id"]]
    assert "walnuts" in found["text"]
    assert 0 < found["tokens"] <= 500
    nothing = {"text": "", "tokens": 0, "memories": []}
    assert client.post("/api/context", json={**asked, "exclude": [added["id"]]}).json() == nothing
    assert client.post("/api/context", json={**asked, "budget_tokens": 1}).json() == nothing
    assert client.post("/api/context", json={"messages": [{"content": "Hello!"}]}).json() == nothing
    client.delete(f"/api/memories/{added['id']}")


@requirement("http:sessions", "sessions:filing")
def test_conversations_are_listed_read_in_pages_found_and_deleted(client: httpx2.Client) -> None:
    session = chat(client, "Tell me of zebras")[-1].data["sessionId"]
    listed = client.get("/api/sessions", params={"limit": 1}).json()
    assert (listed[0]["id"], listed[0]["title"]) == (session, "Tell me of zebras")
    whole = client.get(f"/api/sessions/{session}").json()
    page = client.get(f"/api/sessions/{session}", params={"after": 1, "limit": 2}).json()
    assert [event["seq"] for event in whole["events"]] == list(range(1, whole["last_seq"] + 1))
    assert page["events"] == whole["events"][1:3]
    assert client.get("/api/sessions/search", params={"q": "zebras"}).json()[0]["session"] == session
    path = f"/api/sessions/{session}"
    chat(client, "Tell me of gnus")
    assert client.get("/api/sessions").json()[0]["id"] != session
    pinned = client.patch(path, json={"pinned": True, "title": "Zebras"}).json()
    assert (pinned["title"], pinned["pinned"], pinned["archived"]) == ("Zebras", True, False)
    assert client.get("/api/sessions").json()[0] == pinned
    assert client.patch(path, json={"archived": True}).json()["pinned"]
    assert session not in {one["id"] for one in client.get("/api/sessions").json()}
    archive = client.get("/api/sessions", params={"archived": True})
    assert (archive.headers["x-total-count"], [one["id"] for one in archive.json()]) == ("1", [session])
    assert client.delete(path).json() == {"id": session}
    assert client.get(path).status_code == 404


@requirement("http:tools")
def test_tools_and_usage_are_listed(client: httpx2.Client) -> None:
    chat(client, "Hello")
    tools = {tool["name"]: tool for tool in client.get("/api/tools").json()}
    assert tools["bash"]["status"] == "available"
    assert client.get("/api/tools/bash").json() == tools["bash"]
    assert tools["bash"]["input_schema"]["required"] == ["command"]
    assert client.get("/api/tools/nothing").status_code == 404
    usage = client.get("/api/usage").json()
    assert usage[0]["model"] == "scripted:scripted"
    assert usage[0]["calls"] >= 1


HALF = b'{"input": {"city": "\\ud800"}}'


@requirement("http:capabilities")
@pytest.mark.usefixtures("sandboxed")
def test_a_capability_is_shown_run_tested_disabled_and_rolled_back(
    world: World, client: httpx2.Client
) -> None:
    world.call(register, world, "greet")
    world.call(partial(register, world, "greet", code=GREET.code.replace('"!"', '"!" + ""')))
    at = "/api/capabilities/greet"
    shown = client.get(at).json()
    assert (shown["status"], shown["version"], len(shown["versions"])) == ("active", 2, 2)
    assert "def run" in shown["source"]
    ran = client.post(f"{at}/run", json={"input": {"city": "Ulm"}}).json()
    assert (ran["status"], ran["result"]) == ("ok", "Hello, Ulm!")
    assert client.post(f"{at}/run", json={"input": {}}).json()["status"] == "bad_input"
    assert client.post(f"{at}/run", content=HALF).status_code == 422
    tested = client.post(f"{at}/test").json()
    assert (tested["passed"], [case["passed"] for case in tested["checks"]]) == (True, [True, True])
    assert client.post(f"{at}/rollback").json()["version"] == 1
    assert client.post(f"{at}/activate", json={"version": 2}).json()["version"] == 2
    assert client.post(f"{at}/activate", json={"version": 7}).status_code in (400, 404)
    assert client.post(f"{at}/disable").json()["status"] == "disabled"
    refused = client.post(f"{at}/run", json={"input": {"city": "Ulm"}})
    assert (refused.status_code, refused.json()["code"]) == (403, "refused")
    assert client.post(f"{at}/enable").json()["status"] == "active"
    assert [one["active"] for one in client.get(f"{at}/versions").json()] == [False, True]
    assert [one["name"] for one in client.get("/api/capabilities?status=active").json()] == ["greet"]
    assert client.delete(at).json()["name"] == "greet"
    assert client.get(at).status_code == 404


@requirement("http:capabilities")
@pytest.mark.usefixtures("sandboxed")
def test_what_a_capability_wants_to_reach_is_approved_by_the_version_that_was_seen(
    world: World, client: httpx2.Client
) -> None:
    world.call(partial(register, world, "wishes", secrets=("NO_SUCH_KEY",)))
    at = "/api/capabilities/wishes"
    waiting = client.get(f"{at}/approval").json()
    assert waiting["version"] == 1
    assert any("NO_SUCH_KEY" in sentence for sentence in waiting["may"])
    unseen = client.post(f"{at}/approve", json={"version": 2})
    assert (unseen.status_code, client.get(at).json()["status"]) == (409, "proposed")
    assert client.post(f"{at}/approve", json={"version": 1}).json()["registered"] == 1
    client.delete(at)


@requirement("http:capabilities")
def test_a_build_without_a_language_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with serving(tmp_path, builder__model="none") as world, world.client() as client:
        wish = {"name": "weather", "description": "Look up the weather."}
        answer = client.post("/api/capabilities", json=wish)
        assert answer.status_code in (202, 400)
        assert (
            client.post("/api/capabilities", json={"name": "No Name", "description": "x"}).status_code == 400
        )


@requirement("http:builder:status")
def test_a_builds_messages_are_followed_from_any_of_them_and_its_question_is_answered(
    world: World, client: httpx2.Client
) -> None:
    builds = world.satchel.builds
    assert builds is not None
    queue = builds.queue
    now = datetime(2026, 11, 23, tzinfo=UTC)
    build = Build(
        id="b-1",
        capability_id="c-1",
        name="weather",
        kind="build",
        task="Build it.",
        asked_by="",
        session_id="build-b-1",
        model="scripted:scripted",
        status="running",
        created_at=now,
        updated_at=now,
    )

    async def begin() -> None:
        await queue.add(build)
        await queue.tell("b-1", id="p1", type="progress", payload={"text": "Looking around."})
        await queue.tell("b-1", id="q1", type="question", payload={"text": "Which city?", "options": ["Ulm"]})

    async def end() -> None:
        await queue.end("b-1", "active", "It is ready.")

    world.call(begin)
    with client.stream("GET", "/api/builder/status?buildId=b-1") as answer:
        events = events_in(answer.iter_lines())
        progress, question = next(events), next(events)
        assert (progress.name, progress.data["payload"]["text"]) == ("progress", "Looking around.")
        assert (question.name, question.data["payload"]["options"]) == ("question", ["Ulm"])
        given = {"build_id": "b-1", "question_id": question.data["id"], "answer": "Ulm"}
        with world.client() as other:
            assert other.post("/api/builder/answer", json=given).json()["payload"]["text"] == "Ulm"
            assert other.post("/api/builder/answer", json=given).status_code == 400
        world.call(end)
        rest = list(events)
    assert [event.name for event in rest] == ["answer", "complete"]
    with client.stream(
        "GET", "/api/builder/status?buildId=b-1", headers={"last-event-id": question.id}
    ) as answer:
        assert [event.id for event in events_in(answer.iter_lines())] == [event.id for event in rest]
    assert client.get("/api/builder/status?buildId=none").status_code == 404
    assert client.get("/api/builder/status").status_code == 422


@requirement("http:openapi")
def test_the_description_names_every_status_and_the_token(client: httpx2.Client) -> None:
    described = client.get("/openapi.json").json()
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    expected = {
        "400",
        "401",
        "403",
        "404",
        "405",
        "408",
        "409",
        "413",
        "421",
        "422",
        "429",
        "431",
        "500",
        "502",
        "503",
        "507",
    }
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert expected <= set(operation["responses"]), (method, path)
            kind = "application/json" if path.startswith("/v1/") else "application/problem+json"
            assert list(operation["responses"]["422"]["content"]) == [kind]
            assert operation["summary"]
            assert operation["description"]
            good = [status for status in operation["responses"] if status < "400"]
            assert len(good) == 1, (method, path)
            if not path.startswith("/v1/"):
                problem = operation["responses"]["404"]["content"]["application/problem+json"]["schema"]
                assert problem == {"$ref": "#/components/schemas/Problem"}
            for kind, media in operation["responses"][good[0]].get("content", {}).items():
                if kind == "text/event-stream":
                    assert media["schema"]["type"] == "object", (method, path)
    assert {"post"} == set(described["paths"]["/api/chat"])


@requirement("http:openapi")
def test_every_body_that_is_described_has_an_example_that_fits(client: httpx2.Client) -> None:
    described = client.get("/openapi.json").json()
    bodies = {
        (path, method): operation["requestBody"]["content"]["application/json"]
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        if "requestBody" in operation
    }
    assert len(bodies) >= 20
    for where, body in bodies.items():
        schema = body["schema"]
        options = [
            described["components"]["schemas"][option["$ref"].rpartition("/")[2]]
            for option in (schema, *schema.get("anyOf", ()))
            if "$ref" in option
        ]
        [example] = [body["example"]] if "example" in body else options[0]["examples"]
        jsonschema.validate(example, {**schema, "components": described["components"]})
        assert example, where


@requirement("http:openapi")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/memories", "GET, POST"),
        ("OPTIONS", "/api/memories/x", "DELETE, GET, PATCH"),
        ("PUT", "/v1/messages", "POST"),
        ("DELETE", "/v1/models", "GET"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_refused_with_those_that_it_has(
    client: httpx2.Client, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, path, json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert client.request(method, "/api/nothing").status_code == 404


@requirement("documents:http")
def test_documents_are_added_listed_and_forgotten_over_http(client: httpx2.Client, tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "attic.md").write_text("# Attic\nThe sledge hangs behind the chimney.")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7")
    outcomes = client.post("/api/memory/documents", json={"paths": [str(folder)]}).json()
    assert [one["outcome"] for one in outcomes] == ["added", "failed"]
    assert [one["title"] for one in client.get("/api/memory/documents").json()] == ["Attic"]
    found = client.get("/api/memories/search", params={"q": "sledge chimney", "mode": "lexical"}).json()
    assert [hit["memory"]["trust"] for hit in found] == ["outside"]
    page = client.get(f"/memories/{found[0]['memory']['id']}").text
    assert f'Part 1 of the document <span dir="auto">“{folder}/attic.md”' in page
    gone = client.delete("/api/memory/documents", params={"document": "attic.md"}).json()["receipt"]
    assert len(gone) == 1
    assert client.get("/api/memory/documents").json() == []
    assert client.delete("/api/memory/documents", params={"document": "attic.md"}).status_code == 404
    assert client.post("/api/memory/documents", json={"paths": ["relative"]}).status_code == 422


@requirement("http:openapi")
@pytest.mark.parametrize(
    "path",
    [
        "/api/memory/documents",
        "/api/projects",
        "/api/sessions",
        "/api/sessions/search?q=hello",
        "/api/memories",
        "/api/memories/search?q=hello",
        "/api/memories/stats",
        "/api/profile",
        "/api/tools",
        "/api/capabilities",
        "/api/usage",
        "/readyz",
    ],
)
def test_answers_fit_their_description(client: httpx2.Client, path: str) -> None:
    chat(client, "Hello, I live in Ulm.")
    described = client.get("/openapi.json").json()
    answers = described["paths"][path.partition("?")[0]]["get"]["responses"]
    schema = answers["200"]["content"]["application/json"]["schema"]
    assert schema.get("type") == "array" or "$ref" in schema
    found = client.get(path).json()
    assert found != {}
    jsonschema.validate(found, {**schema, "components": described["components"]})
