"""The chat in a browser without scripts, and what it is sent while it is open."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx2
import pytest
from lxml import html

from satchel.builder.records import Build
from satchel.errors import ModelRejected, NoSandbox
from satchel.events import Action, Assistant, Event, Observation, Record, SessionStart, TurnStart
from satchel.memory.show.reasons import shared_word
from satchel.messages import Message, TextBlock, ToolUseBlock, Usage
from satchel.models import Call, Reply, ScriptedModel
from satchel.models.port import Retrying
from satchel.server import open_sessions
from satchel.server.pages.assets import asset_url
from satchel.server.pages.transcript import Transcript
from satchel.sessions import SessionInfo
from tests.capabilities.world import draft, register
from tests.requirements import requirement
from tests.server.browsers import at, browser, open_page, read, said, send, words_of
from tests.server.world import WORDS, World, chat, events_in
from tests.server.world import serving as server_in


def begin(client: httpx2.Client, message: str, **fields: str) -> str:
    """Begin a session by the form. Returns the path of its page."""
    answer = send(client, open_page(client, "/"), "/chat", {"message": message, **fields})
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"]).partition("#")[0]


def parts(client: httpx2.Client, path: str, *, until: Callable[[Any], bool], **query: str) -> list[Any]:
    """What a page is sent, up to an event; the connection is closed then."""
    found: list[Any] = []
    with client.stream("GET", f"{path}/events", params=query or {"first": "0", "after": "0"}) as answer:
        assert answer.status_code == 200
        for event in events_in(answer.iter_lines()):
            found.append(event)
            if until(event):
                return found
    return found


def over(event: Any) -> bool:
    return event.name == "state" and not event.data["running"] and event.data["turn"] > 0


def wait_until_over(client: httpx2.Client, path: str) -> Any:
    """The page of a session whose turn has ended."""
    parts(client, path, until=over)
    return open_page(client, path)


def asks(event: Any) -> bool:
    return event.name == "state" and bool(event.data["asks"])


@pytest.fixture
def held(world: World) -> Iterator[World]:
    """The next answer with "hold" in its message waits for `go_on`."""
    world.held.reached.clear()
    world.held.go_on.clear()
    yield world
    world.held.go_on.set()


@requirement("web-pages:chat")
def test_a_conversation_works_without_scripts(world: World) -> None:
    with browser(world) as client:
        path = begin(client, "Please echo hi for <b>me</b>", mode="bypass")
        page = wait_until_over(client, path)
        [turn] = page.find_class("turn")
        assert "<b>me</b>" in words_of(turn)
        [call] = turn.xpath(".//ol[@class='steps']/li")
        assert call.get("data-state") == "done"
        assert "echo hi" in words_of(call)
        assert [words_of(each) for each in turn.xpath(".//*[@class='items']/*[@class='said']")] == [
            "Let me see.",
            "It is done.",
        ]
        answer = send(client, page, path, {"message": "And now?"})
        assert answer.headers["location"] == f"{path}#turn-2"
        page = wait_until_over(client, path)
        assert [each.get("id") for each in page.find_class("turn")] == ["turn-1", "turn-2"]
        assert page.xpath("//article/h2/text()") == ["Turn 1", "Turn 2"]
        [entry] = page.xpath("//aside//a[@aria-current='page'][contains(@href, '/chat/')]")
        assert entry.get("href") == path


@requirement("web-pages:chat:permission")
@pytest.mark.parametrize(("consent", "state"), [("once", "done"), ("no", "failed")])
def test_a_call_waits_for_permission_and_gets_the_answer(world: World, consent: str, state: str) -> None:
    with browser(world) as client:
        path = begin(client, "echo permitted\u3164", mode="ask")
        parts(client, path, until=asks)
        page = open_page(client, path)
        [ask] = page.find_class("ask")
        assert "Run this command?" in words_of(ask)
        assert "echo permitted<U+3164>" in words_of(ask)  # a filler, which nobody sees
        assert "waits for you" in words_of(open_page(client, "/sessions"))
        # It would take a half-written answer away.
        assert page.xpath("//noscript/meta[@http-equiv='refresh']") == []
        answer = send(client, page, f"{path}/answer", {"consent": consent})
        assert answer.status_code == 303
        page = wait_until_over(client, path)
        assert not page.find_class("ask")
        [call] = page.xpath("//ol[@class='steps']/li")
        assert call.get("data-state") == state
        again = send_answer(client, page, path, ask)
        assert again.status_code in (400, 404)  # it had its answer


@requirement("web-pages:chat:permission")
def test_a_turn_that_is_stopped_while_it_asks_asks_no_more(world: World) -> None:
    with browser(world) as client:
        path = begin(client, "echo permitted", mode="ask")
        parts(client, path, until=asks)
        page = open_page(client, path)
        assert page.find_class("ask")
        [token] = page.xpath("//meta[@name='form-token']/@content")
        origin = {"origin": str(client.base_url).rstrip("/")}
        client.post(f"{path}/stop", data={"form_token": token}, headers=origin)
        page = wait_until_over(client, path)
        assert not page.find_class("ask")
        assert "waits for you" not in words_of(open_page(client, path))


def send_answer(client: httpx2.Client, page: Any, path: str, ask: Any) -> httpx2.Response:
    [token] = page.xpath("//meta[@name='form-token']/@content")
    [question] = ask.xpath(".//input[@name='question']/@value")
    return client.post(
        f"{path}/answer",
        data={"form_token": token, "question": question, "consent": "once"},
        headers={"origin": str(client.base_url).rstrip("/")},
    )


@requirement("web-pages:chat:stream")
def test_the_streamed_page_equals_the_page_loaded_afterwards(
    held: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing_yet(service: Any, id: str) -> Transcript:
        """The log before the turn, which ends while it is read."""
        monkeypatch.setattr(service.sessions, "turns_of", lambda _: [])
        return Transcript()

    with browser(held) as client, browser(held) as other:
        path = begin(client, "hold it")
        assert held.held.reached.wait(120)
        partly = parts(
            client, path, until=lambda event: event.name in ("write", "put") and "one" in str(event.data)
        )
        assert partly[-1].name == "put"  # the reader came in the middle and gets what is there
        running = open_page(client, path)
        assert running.xpath("//*[@id='stop'][not(@hidden)]")
        assert running.xpath("//noscript/meta[@http-equiv='refresh']")
        with monkeypatch.context() as patch:
            patch.setattr("satchel.server.pages.chat.read_transcript", nothing_yet)
            [comes_again] = open_page(client, path).xpath("//noscript/meta[@http-equiv='refresh']/@content")
            monkeypatch.undo()
        assert comes_again.endswith("#turn-1")  # the turn has begun, and the log does not have it yet
        assert "at work" in words_of(open_page(other, "/sessions"))
        answer = send(client, running, path, {"message": "Later"})
        assert answer.status_code == 303
        assert "Later waits for its turn" in words_of(open_page(other, path))
        send(client, running, path, {"message": "/back"})
        assert "Later was taken back" in words_of(open_page(other, path))
        held.held.go_on.set()
        page = wait_until_over(client, path)
        assert [words_of(each) for each in page.xpath("//*[@class='items']/*[@class='said']")] == [WORDS]
        # Whoever follows from the beginning ends with the same turn, drawn from the log.
        whole = parts(client, path, until=over)
        drawn = [
            event.data["html"] for event in whole if event.name == "put" and event.data["id"] == "turn-1"
        ]
        assert words_of(html.fragment_fromstring(drawn[-1])) == words_of(page.get_element_by_id("turn-1"))


@requirement("web-pages:chat:stream")
def test_a_reader_that_returns_gets_only_what_is_new(world: World) -> None:
    with browser(world) as client:
        path = begin(client, "count")
        events = parts(client, path, until=over)
        last = [event.id for event in events if event.id][-1]
        again = client.stream("GET", f"{path}/events", headers={"last-event-id": last})
        with again as answer:
            first = next(events_in(answer.iter_lines()))
        assert (first.name, first.data["running"], first.data["turn"]) == ("state", False, 1)
        for wrong in ("x", "1", "1.x", "-1.2", "1.99999999999999999", "١.٢"):
            refused = client.get(
                f"{path}/events", headers={b"last-event-id": wrong.encode(), b"accept": b"*/*"}
            )
            assert refused.status_code == 400
        assert client.get("/chat/unknown/events").status_code == 404
        assert client.get(f"{path}/events?after=-1").status_code == 422


@requirement("web-pages:chat:stop")
def test_a_stopped_turn_keeps_what_was_said(held: World) -> None:
    with browser(held) as client:
        path = begin(client, "hold it")
        assert held.held.reached.wait(120)
        page = open_page(client, path)
        [button] = page.xpath("//*[@id='stop']")
        answer = send_to(client, page, button.get("formaction"))
        assert answer.status_code == 303
        page = wait_until_over(client, path)
        assert "You stopped it. Everything up to here is kept." in words_of(page.get_element_by_id("turn-1"))
        assert send_to(client, page, button.get("formaction")).status_code == 404


def send_to(client: httpx2.Client, page: Any, path: str, **fields: str) -> httpx2.Response:
    """Post to a path that a button names."""
    [token] = page.xpath("//meta[@name='form-token']/@content")
    return client.post(
        path, data={"form_token": token, **fields}, headers={"origin": str(client.base_url).rstrip("/")}
    )


@requirement("web-pages:chat:builder")
def test_a_build_is_shown_from_its_request_on_and_its_question_answered(world: World) -> None:
    builds, sessions = world.satchel.builds, world.satchel.sessions
    assert builds is not None
    asking = ToolUseBlock(id="c1", name="request_capability", input={"name": "weather"})
    building = {"status": "building", "build_id": "b-first", "capability_id": "c-page"}
    more = ToolUseBlock(id="c3", name="request_capability", input={"name": "tides"})
    asked: tuple[Event, ...] = (
        SessionStart(session_id="asked", cwd="/", provider="scripted", model="scripted", version="0"),
        TurnStart(turn=1, message=Message(role="user", blocks=(TextBlock(text="The weather?"),))),
        Assistant(turn=1, round=1, blocks=(asking, more), stop_reason="tool_use", provider="", model="",
            usage=Usage()),
        Action(turn=1, round=1, call_id="c1", tool=asking.name, input={"name": "weather"}),
        Observation(turn=1, round=1, call_id="c1", tool=asking.name, text="{}", data=building),
        # Another tool's result draws no card.
        Action(turn=1, round=1, call_id="c2", tool="mcp_x", input={}),
        Observation(turn=1, round=1, call_id="c2", tool="mcp_x", text="", data={**building, "build_id": "b-none"}),
        Action(turn=1, round=1, call_id="c3", tool=more.name, input={"name": "tides"}),
        Observation(turn=1, round=1, call_id="c3", tool=more.name, text="{}", data={**building, "build_id": "b-tides"}),
    )  # fmt: skip
    now = datetime(2026, 11, 23, tzinfo=UTC)
    records = [Record(seq=seq, at=now, event=event) for seq, event in enumerate(asked, 1)]
    world.call(sessions.write, sessions.place("asked", "/", now), "asked", records)
    queue = builds.queue
    first = Build(
        id="b-first", capability_id="c-page", name="weather", kind="build", task="Build it.",
        asked_by="", session_id="build-b-first", model="scripted:scripted", status="running",
        created_at=now, updated_at=now,
    )  # fmt: skip
    world.call(queue.add, first)
    world.call(queue.add, replace(first, id="b-tides", session_id="build-b-tides"))
    with browser(world) as client:
        page = open_page(client, "/chat/asked")
        card, _ = page.find_class("build")
        assert "Building weather under way" in words_of(card)

        # A branch goes on without the news of it, also on a page that is open: of a log, and of an open conversation.
        def ends(event: Any, id: str, why: str) -> bool:
            if event.name == "state":
                world.call(queue.end, id, "failed", why)
            return event.name == "put" and why in event.data["html"]

        parts(client, "/chat/asked", until=lambda event: ends(event, "b-first", "It was too hard."))
        send_to(client, page, "/chat/asked", message="Hello")
        wait_until_over(client, "/chat/asked")
        parts(client, "/chat/asked", until=lambda event: ends(event, "b-tides", "There is no sea."))
        card, _ = open_page(client, "/chat/asked").find_class("build")
        assert "Could not build weather failed" in words_of(card)
        assert "It was too hard." in words_of(card)
        path = begin(client, "Hello")
        wait_until_over(client, path)
        build = replace(first, id="b-page", asked_by=path.removeprefix("/chat/"), session_id="build-b-page")

        async def tell() -> None:
            await queue.add(build)
            await queue.tell("b-page", id="p1", type="progress", payload={"text": "<i>Looking</i> around."})
            payload = {"text": "Which city?", "options": ["Ulm", "<b>Bonn</b>"]}
            await queue.tell("b-page", id="q1", type="question", payload=payload)

        world.call(tell)
        parts(client, path, until=asks)
        page = open_page(client, path)
        [card] = page.find_class("build")
        assert "Building weather waits for you" in words_of(card)
        assert "<i>Looking</i> around." in words_of(card)
        assert [each.get("value") for each in card.xpath(".//button[@name='option']")] == [
            "Ulm",
            "<b>Bonn</b>",
        ]
        # Once it was laid aside, another message is no answer, and the page says what still asks.
        world.call(queue.lay_aside, "b-page")
        send_to(client, page, path, message="What time is it?")
        page = open_page(client, path)
        assert "weather still asks: Which city? (Ulm, <b>Bonn</b>) To answer: /answer TEXT" in said(page)
        page = wait_until_over(client, path)
        answer = send(client, page, f"{path}/answer", {"text": "Köln"})
        assert answer.status_code == 303
        messages = world.call(queue.messages, "b-page")
        assert messages[-1].payload["text"] == "Köln"


@requirement("web-pages:chat:memory")
def test_what_was_remembered_is_shown_with_its_reason_and_corrected_in_place(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("remembers")
    with (
        server_in(folder, memory__surface_threshold=0.0) as world,
        browser(world) as client,
    ):
        memory = world.satchel.memory
        assert memory is not None
        ids = [
            # Not the user's own: what they said last stands there whole.
            world.call(
                lambda words=words, n=n: memory.add(
                    words, kind="episode", speaker="Ann", session="earlier", turn=n
                )
            )
            for n, words in enumerate(
                ("Zelda's piano is tuned in May. <img src=x>", "The piano room is cold."), 1
            )
        ]
        pinned = world.call(memory.add, "The user is left-handed.")
        world.call(memory.pin, pinned)
        path = begin(client, "What about Zelda's piano?")
        page = wait_until_over(client, path)
        [always] = page.xpath("//aside//details[summary[starts-with(., 'Always in mind')]]")
        assert always.xpath(f".//li[@data-memory='{pinned}']//a/@href") == [f"/memories/{pinned}"]
        assert "You said so on" in words_of(always)
        notes = {note.get("data-memory"): note for note in page.find_class("note")}
        assert set(ids) <= set(notes)
        note = notes[ids[0]]
        assert "<img src=x>" in words_of(note)
        assert re.search(r"said so on \d+ \w+, and it is about Zelda's", words_of(note))
        assert note.xpath(".//a[@href='/chat/earlier#turn-1']")

        at = f"{path}/memories/{ids[0]}"
        send_to(client, page, at, do="outdated")
        page = open_page(client, path)
        assert "held until now" in said(page)
        assert [note.get("data-memory") for note in page.find_class("past")] == [ids[0]]
        assert world.call(memory.get, ids[0]).valid_to is not None
        send(client, page, page.xpath("//*[@id='sayings']//form/@action")[0])
        assert world.call(memory.get, ids[0]).valid_to is None

        send_to(client, page, at, do="wrong", content="Zelda's piano is tuned in June.")
        assert world.call(memory.get, ids[0]).content == "Zelda's piano is tuned in June."
        assert send_to(client, page, at, do="wrong", content=" ").status_code == 400
        assert send_to(client, page, at, do="sing").status_code == 400

        send_to(client, page, at, do="forget")
        page = open_page(client, path)
        assert "Forget “Zelda's piano is tuned in June.” for good? What goes: 1 memory" in said(page)
        assert world.call(memory.get, ids[0])  # nothing went before it was confirmed
        send(client, page, at, {"do": "forget", "confirmed": "1"})
        page = open_page(client, path)
        assert "Forgotten: 1 memory" in said(page)
        assert send_to(client, page, at, do="outdated").status_code == 404


def test_a_reason_names_the_most_telling_word() -> None:
    said = "Is there a dinner where Signe can sit, near the station?"
    assert shared_word(said, "Signe walks with a stick; the dinner was late.") == "Signe"
    assert shared_word(said, "Emil can't eat gluten.") == ""
    assert shared_word("", "") == ""


@requirement("tools:bash:background:user")
def test_a_background_command_is_seen_and_stopped_on_the_page_and_keeps_its_session_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_sessions, "_IDLE_S", 0.0)
    monkeypatch.setattr(open_sessions, "_LOOK_S", 0.001)
    with server_in(tmp_path) as world, browser(world) as client:
        path = begin(client, "Hello")
        page = wait_until_over(client, path)

        def typed(line: str) -> str:
            assert send(client, page, path, {"message": line}).status_code == 303
            return said(open_page(client, path))

        run = json.dumps({"command": "echo listens; sleep 1000", "background": True})
        assert "Background command 1 is running." in typed(f"/run bash {run}")
        assert "running for" in typed("/jobs")
        assert "listens" in typed("/jobs 1")
        assert "was stopped by the user" in typed("/jobs stop 1")


@requirement("sessions:branches")
def test_a_message_is_answered_again_and_said_otherwise_in_branches_that_lead_to_each_other(
    world: World,
) -> None:
    with browser(world) as client:
        path = begin(client, "Say this: \n\nfirst")
        page = wait_until_over(client, path)
        send(client, page, path, {"message": "What was said?"})
        page = wait_until_over(client, path)
        fields: dict[str, str]
        places = []
        for fields in ({"turn": "2"}, {"turn": "2", "message": "Count to ten"}):
            answer = client.post(
                f"{path}/branch",
                data={"form_token": page.xpath("//meta[@name='form-token']/@content")[0], **fields},
                headers={"origin": at(client), "sec-fetch-site": "same-origin"},
            )
            place, _, turn = answer.headers["location"].partition("#")
            assert turn == "turn-2"
            places.append(place)
            parts(client, place, until=lambda each: over(each) and each.data["turn"] == 2)
        again, other = (open_page(client, place) for place in places)
        assert "user: Say this" in words_of(again.get_element_by_id("turn-2"))
        assert WORDS in words_of(other.get_element_by_id("turn-2"))
        assert "first" in words_of(other.get_element_by_id("turn-1"))
        # What was said stays, and each leads to the others.
        page = open_page(client, path)
        assert "What was said?" in words_of(page.get_element_by_id("turn-2"))
        seen, step = [path], "next"
        while beside := versions_beside(client, seen[-1]).get(step):
            seen.append(beside)
        assert len(seen) == 3
        assert {*seen} == {path, *places}
        assert versions_beside(client, seen[1]) == {"prev": path, "next": seen[2]}
        assert "2 of 3" in words_of(open_page(client, seen[1]).find_class("branches")[0])
        assert versions_beside(client, path, turn=1) == {}
        for shown in (page, again, other):
            assert shown.xpath("//form[contains(@action, '/branch')]")
    with world.client() as program:
        made = program.post(f"/api/sessions/{path[6:]}/branches", json={"turn": 3})
        assert (made.status_code, made.json()["branch_of"], made.json()["turns"]) == (201, path[6:], 2)
        assert program.post(f"/api/sessions/{path[6:]}/branches", json={"turn": 9}).status_code == 404


@requirement("sessions:branches")
def test_a_page_that_is_opened_while_its_turn_begins_shows_it_once_and_leaves_the_field_empty(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with browser(world) as client, world.client() as program:
        path = begin(client, "Which beans climb?")
        wait_until_over(client, path)
        place = "/chat/" + program.post(f"/api/sessions/{path[6:]}/branches", json={"turn": 1}).json()["id"]
        page = open_page(client, place)
        assert page.get_element_by_id("message").text == "Which beans climb?"
        assert len(page.find_class("branches")) == 1
        before: SessionInfo = world.call(world.satchel.sessions.info, place[6:])
        send(client, page, place, {"message": "Which peas climb?"})
        wait_until_over(client, place)

        async def read_before(_id: str) -> SessionInfo:
            """What a page has read when the turn begins."""
            return before

        monkeypatch.setattr(world.satchel.sessions, "info", read_before)
        page = open_page(client, place)
        assert page.get_element_by_id("message").text is None
        assert len(page.find_class("branches")) == 1


def versions_beside(client: httpx2.Client, path: str, *, turn: int = 2) -> dict[str, str]:
    """The links to the versions of a message before and after the one on this page."""
    links = open_page(client, path).xpath(f"//*[@id='turn-{turn}']//*[contains(@class, 'branches')]/a")
    return {link.get("rel"): link.get("href").partition("#")[0] for link in links}


@requirement("sessions:branches:one")
def test_a_conversation_and_its_branches_are_one_entry_and_are_filed_exported_and_deleted_together(
    world: World,
) -> None:
    with browser(world) as client:

        def twice_over(event: Any) -> bool:
            return over(event) and event.data["turn"] == 2

        def posted(to: str, **fields: str) -> str:
            token = open_page(client, "/sessions").xpath("//meta[@name='form-token']/@content")[0]
            headers = {"origin": at(client), "sec-fetch-site": "same-origin"}
            answer = client.post(to, data={"form_token": token, **fields}, headers=headers)
            return str(answer.headers["location"])

        def do(what: str, id: str, **fields: str) -> Any:
            return open_page(client, posted("/sessions", id=id, do=what, **fields))

        path = begin(client, "Marigolds and beans")
        wait_until_over(client, path)
        page = open_page(client, path)
        send(client, page, path, {"message": "What of the zinnias?"})
        parts(client, path, until=twice_over)
        place = posted(f"{path}/branch", turn="2", message="What of the dahlias?")
        newest = place.partition("#")[0]
        parts(client, newest, until=twice_over)
        # One entry, under the conversation's title, that opens the branch used last.
        entries = open_page(client, "/sessions").xpath("//ul[@class='ledger']/li")
        (entry,) = [each for each in entries if "Marigolds" in words_of(each)]
        assert entry.xpath(".//h3/a/@href") == [newest]
        assert "2 branches" in words_of(entry)
        assert not [each for each in entries if "dahlias" in words_of(each)]
        (rail,) = open_page(client, path).xpath("//*[@id='rail-list']//a[@aria-current]")
        assert (rail.get("href"), words_of(rail)) == (newest, "Marigolds and beans")
        assert words_of(open_page(client, newest).xpath("//h1")[0]) == "Marigolds and beans"
        # Words are found in either branch, and open it.
        for word, place in (("zinnias", path), ("dahlias", newest)):
            found = open_page(client, f"/sessions?q={word}")
            assert f"{place}#turn-2" in found.xpath("//ol[@class='hits']//a/@href")
            assert "in “Marigolds and beans”" in words_of(found)
        results = open_page(client, "/search?q=marigolds").xpath("//ul[@class='hits']//a/@href")
        assert results[0] == newest
        assert not [each for each in results if each.startswith(path)]
        with world.client() as program:
            assert [
                one["branches"] for one in program.get("/api/sessions").json() if one["id"] == newest[6:]
            ] == [[path[6:], newest[6:]]]
            spare = program.post(f"/api/sessions/{path[6:]}/branches", json={"turn": 2}).json()["id"]
            assert program.delete(f"/api/sessions/{spare}", params={"only": True}).json() == {"id": spare}
        # It is named, filed and exported with its branches.
        posted(f"/sessions/{newest[6:]}/rename", title="Garden")
        assert words_of(open_page(client, path).xpath("//h1")[0]) == "Garden"
        for form in ("markdown", "html", "json"):
            text = client.get(f"/sessions/{newest[6:]}/export?form={form}").text
            assert ("zinnias" in text, "dahlias" in text) == (True, True), form
            assert form == "json" or text.count("Marigolds") == 1
        assert "Archived: “Garden” with 2 branches" in said(do("archive", newest[6:]))
        assert "Garden" not in words_of(open_page(client, "/sessions"))
        do("unarchive", path[6:])
        assert "for good" in said(do("delete", newest[6:]))
        assert "with 2 branches" in said(do("delete", newest[6:]))
        do("delete", newest[6:], confirmed="1")
        assert [client.get(each).status_code for each in (path, newest)] == [404, 404]


@requirement("web-pages:chat:permission")
def test_a_change_that_waits_for_permission_is_shown_as_a_diff(tmp_path: Path) -> None:
    edits = [{"old": "a\nred\nz", "new": "a\ngreen\u200b\nz"}, {"old": "x", "new": "y", "replace_all": True}]
    change = Reply(calls=[Call(name="file_edit", input={"path": "list.txt", "edits": edits})])
    with (
        server_in(tmp_path, lambda _held: ScriptedModel([change, "Done."])) as world,
        browser(world) as client,
    ):
        path = begin(client, "Change it", mode="ask")
        parts(client, path, until=asks)
        lines = open_page(client, path).cssselect(".ask pre span")
    assert [(line.get("data-style"), line.text) for line in lines] == [
        ("plain", " a"), ("removed", "-red"), ("added", "+green<U+200B>"), ("plain", " z"), ("plain", "…"),
        ("plain", "everywhere:"), ("removed", "-x"), ("added", "+y"),
    ]  # fmt: skip


@requirement("tools:undo")
def test_what_an_undo_did_stands_in_the_conversation_and_nowhere_else(tmp_path: Path) -> None:
    writes = Reply(calls=[Call(name="file_write", input={"path": "list.txt", "content": "pears"})])
    with (
        server_in(tmp_path, lambda _held: ScriptedModel([writes, "Written."]), agent__mode="ask") as world,
        browser(world) as client,
    ):
        path = begin(client, "Make a list", mode="bypass")
        for command, words in (
            ("/undo", "Undone: the file changes"),
            ("/redo", "Done again: the file changes"),
        ):
            send(client, wait_until_over(client, path), path, {"message": command})
            page = open_page(client, path)
            assert words_of(page).count(words) == 1
            assert words in words_of(page.get_element_by_id("turn-1"))


@requirement("sessions:rewind")
def test_a_conversation_goes_back_with_its_files_by_a_button_and_over_http(tmp_path: Path) -> None:
    writes = Reply(calls=[Call(name="file_write", input={"path": "list.txt", "content": "pears"})])
    model = ScriptedModel(["Hello.", writes, "Written."])
    with server_in(tmp_path, lambda _held: model, agent__mode="ask") as world, browser(world) as client:
        path = begin(client, "Good day", mode="bypass")
        page = wait_until_over(client, path)
        send(client, page, path, {"message": "Make a list"})
        parts(client, path, until=lambda each: over(each) and each.data["turn"] == 2)
        with world.client() as program:
            found = program.get(f"/api/sessions/{path[6:]}/files", params={"turn": 2}).json()
            assert found["conflicts"] == []
            (file,) = found["files"]
            Path(file).write_text("mine")
            refused = program.post(f"/api/sessions/{path[6:]}/branches", json={"turn": 2, "files": True})
            assert refused.status_code == 400
            assert file in refused.text
            assert program.get(f"/api/sessions/{path[6:]}/files?turn=2").json()["conflicts"] == [file]
            Path(file).write_text("pears")
        page = open_page(client, path)
        (form,) = [each for each in page.get_element_by_id("turn-2").forms if each.action.endswith("/rewind")]
        data = dict(form.form_values())
        headers = {"origin": at(client), "sec-fetch-site": "same-origin"}
        asked = open_page(client, client.post(form.action, data=data, headers=headers).headers["location"])
        assert file in said(asked)
        assert Path(file).exists()
        (yes,) = [each for each in asked.forms if "confirmed" in each.fields]
        answer = client.post(yes.action, data=dict(yes.form_values()), headers=headers)
        place = answer.headers["location"]
        assert not Path(file).exists()
        page = open_page(client, place)
        assert page.get_element_by_id("message").text.strip() == "Make a list"
        assert "Good day" in words_of(page)
        assert f"Put back: {file}" in said(page)
        assert page.xpath("//select[@name='mode']/option[@selected]/@value") == ["bypass"]
        assert page.xpath("//article[@id='turn-2']") == []
        with world.client() as program:
            assert "Make a list" in program.get(f"/api/sessions/{path[6:]}").text
            made = program.post(f"/api/sessions/{path[6:]}/branches", json={"turn": 1, "files": True})
            assert (made.status_code, made.json()["turns"]) == (201, 0)


@requirement("sessions:titles")
def test_a_title_that_comes_after_the_answer_reaches_the_page(world: World) -> None:
    with browser(world) as client:
        path = begin(client, "Hello")
        wait_until_over(client, path)
        world.call(world.satchel.rename, path[6:], "Greetings")
        states = parts(client, path, until=lambda each: each.data.get("title") == "Greetings")
        assert states[-1].name == "state"


@requirement("web-pages:chat:commands")
def test_commands_work_in_the_browser(world: World) -> None:
    with browser(world) as client:
        page = open_page(client, "/")
        send(client, page, "/chat", {"message": "/help"})
        page = open_page(client, "/")
        assert "/compact" in said(page)
        path = begin(client, "Hello")
        page = wait_until_over(client, path)
        send(client, page, path, {"message": "/mode plan"})
        page = open_page(client, path)
        assert "Mode plan from now on." in said(page)
        assert page.xpath("//select[@name='mode']/option[@selected]/@value") == ["plan"]
        # A title, by command, by the form in the chat and by the one in the list. Markup in it is text.
        rename = f"/sessions{path[5:]}/rename"
        for place, action, field, typed, title in (
            (path, path, "message", "/rename By command", "By command"),
            (path, rename, "title", "<b>Chat</b> & co", "<b>Chat</b> & co"),
            ("/sessions", rename, "title", "my password is hunter2!x9", "my password is [redacted:password]"),
        ):
            assert send(client, open_page(client, place), action, {field: typed}).status_code == 303
            page = open_page(client, path)
            assert words_of(page.get_element_by_id("chat-head").find("h1")) == title
            assert title in words_of(page.get_element_by_id("rail-list"))
        # Pinned, archived and brought back, from the chat and by command.
        send(client, page, path, {"message": "/sessions pin"})
        page = open_page(client, path)
        assert "1 conversation pinned." in said(page)
        assert words_of(page.get_element_by_id("rail-list").find(".//h3")) == "Pinned"
        [filing] = [form for form in page.forms if "in_chat" in form.fields and "id" in form.fields]
        headers = {"origin": at(client), "sec-fetch-site": "same-origin"}
        answer = client.post(
            "/sessions", data={**dict(filing.form_values()), "do": "archive"}, headers=headers
        )
        assert answer.headers["location"] == path
        page = open_page(client, path)
        assert "Archived: “my password is [redacted:password]”. Undo" in said(page)
        assert "hunter2" not in words_of(page)
        assert not page.xpath(f"//*[@id='rail-list']//a[@href='{path}']")
        assert page.xpath("//*[@id='chat-head']//a[@href='/sessions?archived=true']")
        send(client, page, path, {"message": f"/sessions unarchive {path[6:12]}"})
        assert open_page(client, path).xpath(f"//*[@id='rail-list']//a[@href='{path}']")
        assert "/sessions burn is unknown" in words_of(
            read(send(client, page, path, {"message": "/sessions burn"}), 400)
        )
        refused = send(client, page, rename, {"title": "x" * 61})
        assert "A title has at most 60 characters" in words_of(read(refused, 400))
        assert send(client, page, path, {"message": "/new"}).headers["location"] == "/"
        assert send(client, page, path, {"message": "/private"}).headers["location"] == "/?private=true"
        assert send(client, page, path, {"message": f"/resume {path[6:10]}"}).headers["location"] == path
        refused = send(client, page, path, {"message": "/hepl"})
        assert "There is no command /hepl. /help lists the commands." in words_of(read(refused, 400))
        # It asks before it forgets.
        memory = world.satchel.memory
        assert memory is not None
        id = world.call(memory.add, "Forget me.")
        send(client, page, path, {"message": f"/forget {id}"})
        page = open_page(client, path)
        assert "Forget this memory permanently?" in said(page)
        send(client, page, path, {"message": f"/forget {id}", "confirmed": "1"})
        assert id in said(open_page(client, path))


@requirement("web-pages:copy")
def test_an_answer_is_there_in_markdown_for_the_clipboard(world: World) -> None:
    with browser(world) as client:
        path = begin(client, "Count to ten")
        wait_until_over(client, path)
        assert client.get(f"{path}/turns/1.md").text == WORDS
        assert client.get(f"{path}/turns/2.md").status_code == 404


@requirement("web-pages:artifacts")
def test_html_that_the_model_wrote_is_shown_where_it_reaches_nothing(world: World) -> None:
    code = "<p title=\"a\">&amp;</p><script>fetch('/api/sessions')</script>"
    with browser(world) as client:
        path = begin(client, f"Say this: `x`\n\n```html\n{code}\n```\n\n```python\nx\n```")
        wait_until_over(client, path)
        shown = client.get(f"{path}/turns/1/code/0")
        page = html.document_fromstring(shown.text)
        # Never a page of its own, which a script could lead to another address: a frame of one without scripts.
        [frame] = page.xpath("//iframe")
        assert (frame.get("srcdoc"), frame.get("sandbox")) == (f"{code}\n", "allow-scripts")
        assert not page.xpath("//script")
        policy = shown.headers["content-security-policy"]
        assert policy.startswith("sandbox allow-scripts; default-src 'none';")
        assert not re.search("(connect|frame)-src", policy)
        assert "allow-same-origin" not in policy
        assert [client.get(f"{path}/turns/1/code/{n}").status_code for n in (1, 2)] == [404, 404]
        assert "frame-src 'self'" in client.get(path).headers["content-security-policy"]


@requirement("web-pages:chat:private")
def test_a_session_off_the_record_leaves_no_memory(world: World) -> None:
    memory = world.satchel.memory
    assert memory is not None
    with browser(world) as client:
        before = world.call(memory.count)
        page = open_page(client, "/?private=true")
        assert page.xpath("//input[@name='private']/@checked")
        path = begin(client, "My locker is 4711.", private="on")
        page = wait_until_over(client, path)
        assert "off the record" in words_of(page.xpath("//main/header")[0])
        path = begin(client, "Hello")
        page = wait_until_over(client, path)
        after = world.call(memory.count)
        send(client, page, path, {"message": "This once is private.", "private": "on"})
        wait_until_over(client, path)
        assert world.call(memory.count) == after > before


@requirement("web-pages:chat")
@pytest.mark.parametrize(
    "message",
    [
        "x" * 100_000,
        "line\n" * 5000,
        "/etc/passwd is a file",
        "<script>alert(1)</script>",
        "日本語 ‮abc",
        "\x00\x01",
    ],
)
def test_long_and_odd_messages_arrive_as_they_are(world: World, message: str) -> None:
    with browser(world) as client:
        path = begin(client, message)
        page = wait_until_over(client, path)
        [shown] = page.xpath("//*[@data-said]")
        assert (
            "".join(shown.text_content().split()) == "".join(message.replace("\x00", "�").split())
            or "\x00" in message
        )
        assert not page.xpath("//main//script")
        assert bool(page.find_class("you-fold")) == (len(message) > 600)


@requirement("web-pages:chat")
def test_an_empty_message_an_unknown_session_and_a_stranger_get_pages_that_say_so(world: World) -> None:
    with browser(world) as client:
        page = open_page(client, "/")
        assert "The message is empty" in words_of(read(send(client, page, "/chat", {"message": " "}), 400))
        missing = open_page(client, "/chat/zzz", 404)
        assert "There is no conversation 'zzz'." in words_of(missing)
        assert "satchel session" not in words_of(missing)
        assert missing.xpath("//a[@href='/sessions']")
        for odd in ("/chat/..%2f..%2ftoken", "/chat/%00", "/sessions/..%2ftoken/export"):
            assert client.get(odd).status_code in (400, 404)


@requirement("web-pages:chat")
def test_that_a_model_was_slow_is_no_longer_shown_when_it_has_answered(tmp_path: Path) -> None:
    slow = [Retrying(attempt=1, delay_s=0.0, reason="The model is busy.")]
    replies = [
        Reply(text="Here I am.", retrying=slow),
        Reply(retrying=slow, error=ModelRejected("It gave up.")),
    ]
    model = ScriptedModel(lambda request: replies["again" in request.messages[-1].text])
    with server_in(tmp_path, lambda _: model) as world, browser(world) as client, world.client() as program:
        id = chat(program, "Hello")[0].data["sessionId"]
        chat(program, "Hello again", session_id=id)
        notes = open_page(client, f"/chat/{id}").cssselect(".items > .notice")
        shown = [words_of(note) for note in notes if note.get("hidden") is None]
        assert ["busy" in words for words in shown] == [True, False]


@requirement("web-pages:chat:elsewhere")
def test_a_session_that_another_process_has_open_is_shown_with_a_notice(world: World) -> None:
    import fcntl  # noqa: PLC0415
    import os  # noqa: PLC0415

    with world.client() as program:
        id = chat(program, "Hello")[0].data["sessionId"]
    world.call(world.app.service.sessions.close, id)
    lock = world.home / "sessions" / ".locks" / id
    with lock.open("w") as file, browser(world) as client:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(str(os.getppid()))
        file.flush()
        page = open_page(client, f"/chat/{id}")
        assert page.get_element_by_id("elsewhere").get("hidden") is None
        answer = send(client, page, f"/chat/{id}", {"message": "Hello?"})
        assert "open" in words_of(read(answer, 409))


@requirement("web-pages:chat")
def test_scripts_get_json(world: World) -> None:
    with browser(world) as client:
        page = open_page(client, "/")
        [token] = page.xpath("//meta[@name='form-token']/@content")
        headers = {"origin": world.url, "accept": "application/json", "x-form-token": token}
        answer = client.post("/chat", data={"message": "Hello"}, headers=headers).json()
        assert answer["turn"] == 1
        assert re.fullmatch(r"/chat/[0-9a-f]+#turn-1", answer["to"])
        problem = client.post("/chat", data={"message": ""}, headers=headers)
        assert (problem.status_code, problem.json()["detail"]) == (400, "The message is empty.")
        told = client.post("/chat", data={"message": "/usage"}, headers=headers).json()
        assert "This conversation" in told["html"]
        assert json.dumps(told).count("<script") == 0


def test_the_package_contains_what_the_pages_need() -> None:
    here = Path(__file__).parents[2] / "src" / "satchel" / "server" / "pages"
    assert {path.suffix for path in (here / "static").iterdir()} == {
        ".css",
        ".gz",
        ".html",
        ".js",
        ".png",
        ".svg",
        ".txt",
        ".webmanifest",
    }
    for path in (here / "templates").iterdir():
        text = path.read_text(encoding="utf-8")
        if path.name == "shared.html":  # a file that stands alone, with a policy of its own
            text = text.replace("<style>{{ style }}</style>", "")
        # What the content security policy forbids, and what would be fetched from elsewhere.
        assert not re.search(
            r"<script(?![^>]*\bsrc=\"\{\{ asset)|<style|\sstyle=|\son\w+=|https?://|\|\s*safe", text
        ), path


@requirement("web-pages:diagrams")
def test_the_script_of_diagrams_is_the_one_that_the_decision_names(world: World) -> None:
    said = Path(__file__).parents[2] / "docs" / "decisions" / "0100-diagrams.md"
    script = gzip.decompress(files("satchel.server.pages").joinpath("static", "mermaid.js.gz").read_bytes())
    assert hashlib.sha256(script).hexdigest() in said.read_text(encoding="utf-8")
    assert not re.search(rb"</?script", script)  # it stands in a document
    with browser(world) as client:
        answer = client.get(asset_url("diagram.html"))
        assert script in answer.content
        assert answer.headers["content-security-policy"].startswith(
            "sandbox allow-scripts; default-src 'none'"
        )


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000 1f15c4890000000d49444154789c636060f8cf0000030101"
    "00c9fe92ef0000000049454e44ae426082".replace(" ", "")
)
DRAWS = draft(
    code=f"""
from importlib.resources import files
from pathlib import Path

def run(args: dict) -> str:
    Path("out/a b").mkdir()
    Path("out/a b/one.png").write_bytes({PNG!r})
    Path("out/two.svg").write_text("<svg onload='alert(1)'/>")
    return "Drawn."
"""
)


@requirement("web-pages:made-files")
def test_a_picture_that_a_capability_made_is_shown_and_other_files_are_downloads(tmp_path: Path) -> None:
    def script(_: Any) -> ScriptedModel:
        return ScriptedModel([Reply(calls=[Call(name="cap_greet", input={"city": "Ulm"}, id="d1")]), "Done."])

    async def prepare() -> None:
        assert world.satchel.capabilities is not None
        try:
            await world.satchel.parts.sandboxes.get()
        except NoSandbox as error:
            pytest.skip(f"WHAT CAPABILITIES MAKE WAS NOT SHOWN: {error}")
        await register(world.satchel.capabilities.catalogue, spoilt=DRAWS)

    with server_in(tmp_path, script) as world:
        world.call(prepare)
        with browser(world) as client:
            path = begin(client, "Draw")
            page = wait_until_over(client, path)
            # Not in the fold of the steps.
            [shown] = page.xpath("//img[not(ancestor::details)]/@src")
            assert shown.endswith("/made/d1/a%20b/one.png")
            picture = client.get(shown)
            assert (picture.content, picture.headers["content-type"]) == (PNG, "image/png")
            assert picture.headers["content-security-policy"] == "default-src 'none'; sandbox"
            [link] = page.xpath("//*[@class='made']/a[@download]/@href")
            drawing = client.get(link)
            assert drawing.headers["content-type"] == "application/octet-stream"
            assert drawing.headers["content-disposition"].startswith("attachment; filename*=UTF-8''two.svg")
            framed = client.get(f"{link}?framed=1")
            assert framed.headers["content-security-policy"].startswith(
                "sandbox allow-scripts; default-src 'none'"
            )
            [frame] = html.document_fromstring(framed.text).xpath("//iframe")
            assert frame.get("srcdoc") == "<svg onload='alert(1)'/>"
            for other in ("../../config.toml", "%2e%2e/%2e%2e/token", "a b", "none.png", "a b/../two.svg/"):
                assert client.get(shown.replace("a%20b/one.png", other)).status_code in (400, 403, 404), other
