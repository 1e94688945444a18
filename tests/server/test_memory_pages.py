"""The pages of memories: found, read, corrected, forgotten; hostile words run nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from satchel.errors import NotFound, UsageError
from satchel.memory import Episode
from satchel.runtime.importing import import_into
from satchel.runtime.lately import Lately
from satchel.server import page_import
from satchel.server.pages import site
from tests.requirements import requirement
from tests.server.browsers import at, browser, open_page, read, said, send, ticked, words_of
from tests.server.world import World, chat, serving

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \"'><b>bold</b> & {{ 7 * 7 }} \u202etxt"


@pytest.fixture
def page_of(world: World) -> Iterator[httpx2.Client]:
    with browser(world) as client:
        yield client


def remember(world: World, content: str, **more: Any) -> str:
    async def add() -> str:
        return await world.app.service.memory.add(content, **more)

    id: str = world.call(add)
    return id


def call(world: World, name: str, *args: Any, **more: Any) -> Any:
    async def ask() -> Any:
        return await getattr(world.app.service.memory, name)(*args, **more)

    return world.call(ask)


def listed(page: Any) -> list[str]:
    return [words_of(link) for link in page.cssselect(".memories a.said")]


def post(client: httpx2.Client, page: Any, path: str, **fields: str) -> httpx2.Response:
    """Send a form with these fields, as a page has several with the same address."""
    token = page.cssselect('input[name="form_token"]')[0].get("value")
    return client.post(
        path,
        data={"form_token": token, **fields},
        headers={"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin"},
    )


@requirement("web-pages:memories")
def test_memories_are_searched_with_scores_and_browsed_with_filters(
    world: World, page_of: httpx2.Client
) -> None:
    oboe = remember(world, "The oboe is in the attic.", tags=["attic"], said_at="2025-05-12T10:00:00+02:00")
    old = remember(world, "The oboe is in the shed.", said_at="2024-01-01T10:00:00+02:00")
    call(world, "supersede", old, oboe)
    page = open_page(page_of, "/memories?q=oboe")
    assert listed(page) == ["The oboe is in the attic."]
    [row] = page.cssselect(".memories li")
    assert "Score " in words_of(row)
    assert "Why it was found" in words_of(row)
    past = open_page(page_of, "/memories?q=oboe&show=all")
    assert set(listed(past)) == {"The oboe is in the attic.", "The oboe is in the shed."}
    [gone] = past.cssselect(".memories li.past")
    assert "No longer. Replaced by The oboe is in the attic." in words_of(gone)
    assert listed(open_page(page_of, "/memories?tag=attic")) == ["The oboe is in the attic."]
    assert listed(open_page(page_of, "/memories?since=2025-05-12&until=2025-05-12")) == [
        "The oboe is in the attic."
    ]
    assert listed(open_page(page_of, "/memories?as_of=2024-02-01")) == ["The oboe is in the shed."]
    call(world, "edit", oboe, priority=0.0)
    assert listed(open_page(page_of, "/memories?show=faded")) == ["The oboe is in the attic."]
    assert "Nothing about “zzqq xxyy”" in words_of(open_page(page_of, "/memories?q=zzqq+xxyy"))


@requirement("web-pages:memories", "web-pages:charts")
def test_browsing_goes_page_by_page_and_begins_with_what_is_kept_over_time(tmp_path: Path) -> None:
    with serving(tmp_path, server__requests_per_s=10_000) as world, browser(world) as client:
        empty = open_page(client, "/memories")
        assert "Nothing is remembered yet" in words_of(empty)
        assert empty.cssselect(".chart") == []

        async def fill() -> None:
            await world.app.service.memory.add_episodes(
                Episode(
                    session=f"s{n % 3}",
                    turn=n // 3 + 1,
                    speaker="user",
                    text=f"Message number {n}.",
                    said_at=datetime(2026, 9 + n % 3, 1 + n // 3, 12, n, tzinfo=UTC),
                )
                for n in range(45)
            )

        world.call(fill)
        remember(world, "Ida plays the cello.", said_at="2026-11-05T12:00:00+00:00")
        call(world, "pin", remember(world, "Nora eats no meat.", said_at="2026-08-01T12:00:00+00:00"))
        seen: list[str] = []
        path = "/memories?show=all"
        for _ in range(4):
            page = open_page(client, path)
            seen += listed(page)
            links = page.cssselect('.pager a[rel="next"]')
            path = links[0].get("href") if links else ""
        assert path == ""
        assert len(seen) == len(set(seen)) == 47
        first = open_page(client, "/memories")
        assert "47 memories, facts first, those said last before others." in words_of(first)
        assert "Nora eats no meat." in words_of(first.get_element_by_id("profile"))
        rows = [" ".join(map(words_of, row)) for row in first.cssselect(".chart ~ details tbody tr")]
        assert [row for row in rows if "2026" in row and not row.endswith("0 0 0")][::-1] == [
            "August 2026 0 1 0",
            "September 2026 15 0 0",
            "October 2026 15 0 0",
            "November 2026 15 1 0",
        ]
        [title] = first.cssselect(".chart svg title")
        assert title.text == "Memories by the month in which they were said"
        unlisted = "are not listed"
        assert unlisted not in words_of(first)
        assert "2 of 47 memories" in words_of(fewer := open_page(client, "/memories?kind=fact"))
        assert unlisted not in words_of(fewer)
        remember(world, "Ida plays the cello in spring.", speaker="assistant", kind="episode")
        assert (
            "What models said, the messages behind a fact, and what no longer holds are not listed."
            in words_of(open_page(client, "/memories"))
        )
        second = open_page(client, "/memories?page=2")
        assert second.cssselect(".chart") == []


@requirement("web-pages:memories")
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("kind=dream", "There is no 'dream' here."),
        ("since=never", "'never' is not a day. Write it as 2026-11-23."),
        ("until=0001-01-01", "is not a day"),
        ("page=0", "'0' is not a number from 1 to 1,000,000."),
        ("page=99999999999999999999", "is not a number"),
        ("page=-1", "is not a number"),
        ("show=%00", "here."),
    ],
)
def test_an_invalid_query_is_answered_with_its_problem(
    page_of: httpx2.Client, query: str, words: str
) -> None:
    page = open_page(page_of, f"/memories?q=kept+words&{query}", 422)
    assert words in words_of(page.cssselect('[role="alert"]')[0])
    assert page.get_element_by_id("q").get("value") == "kept words"


@requirement("web-pages:memories")
def test_a_memory_is_added_and_a_refused_form_keeps_what_was_typed(page_of: httpx2.Client) -> None:
    page = open_page(page_of, "/memories")
    answer = send(
        page_of,
        page,
        "/memories",
        {"content": "The key is under the third pot.", "tags": "home, keys", "pin": "on"},
    )
    assert answer.status_code == 303
    shown = open_page(page_of, answer.headers["location"])
    assert words_of(shown.cssselect("h1")[0]) == "The key is under the third pot."
    assert said(shown) == "Remembered."
    assert "pinned" in words_of(shown.cssselect("dl.facts")[0])
    assert "home, keys" in words_of(shown.cssselect("dl.facts")[0])
    refused = send(page_of, page, "/memories", {"content": "  ", "tags": "home"})
    again = read(refused, 422)
    assert again.get_element_by_id("new").get("aria-invalid") == "true"
    assert words_of(again.get_element_by_id("new-e"))
    assert again.get_element_by_id("new-tags").get("value") == "home"


@requirement("web-pages:memory")
def test_a_memory_shows_what_it_rests_on_and_its_neighbours_drawn_and_as_a_list(
    world: World, page_of: httpx2.Client
) -> None:
    async def fill() -> tuple[str, str, str]:
        memory = world.app.service.memory
        [turn] = await memory.add_episodes(
            [
                Episode(
                    session="dinners",
                    turn=2,
                    speaker="user",
                    text="No salmon. I’ve stopped eating fish as well. Emil still may.",
                )
            ]
        )
        fact = await memory.add(
            "Nora eats neither meat nor fish.",
            session="dinners",
            turn=2,
            quote="I’ve stopped eating fish as well.",
        )
        await memory.link(fact, turn, "derived_from")
        other = await memory.add("Family dinners need a vegetarian dish.")
        await memory.link(other, fact, "derived_from")
        return fact, turn, other

    fact, turn, other = world.call(fill)
    page = open_page(page_of, f"/memories/{fact}")
    [quote] = page.cssselect(".quote mark")
    assert quote.text == "I’ve stopped eating fish as well."
    assert "No salmon." in words_of(page.cssselect(".quote")[0])
    assert page.cssselect('a[href="/chat/dinners#turn-2"]')
    [drawing] = page.cssselect(".graph svg")
    drawn = {link.get("href") for link in drawing.cssselect("a")}
    told = {link.get("href") for link in page.cssselect(".side .links")[0].cssselect("a")}
    assert drawn == told == {f"/memories/{turn}", f"/memories/{other}"}
    assert drawing.get("aria-label").endswith("The list below says the same.")
    assert len(drawing.cssselect("path.thread")) == 2
    assert "led to Family dinners need" in words_of(page.cssselect(".side .links")[0])


@requirement("web-pages:memory")
def test_a_memory_is_corrected_and_the_history_takes_it_back(world: World, page_of: httpx2.Client) -> None:
    id = remember(world, "The dentist is in Viborg.", tags=["health"])
    page = open_page(page_of, f"/memories/{id}")
    answer = send(
        page_of,
        page,
        f"/memories/{id}",
        {
            "content": "The dentist is in Aarhus.",
            "tags": "health, town",
            "valid_from": "2026-03-08",
            "why": "moved",
        },
    )
    assert (answer.status_code, answer.headers["location"]) == (303, f"/memories/{id}")
    after = open_page(page_of, f"/memories/{id}")
    assert words_of(after.cssselect("h1")[0]) == "The dentist is in Aarhus."
    assert said(after).startswith("Saved.")
    record = call(world, "get", id)
    assert (record.tags, record.valid_from.date().isoformat()) == (("health", "town"), "2026-03-08")
    newest = words_of(after.cssselect(".history li")[0])
    assert "moved" in newest
    assert "words: The dentist is in Viborg. became The dentist is in Aarhus." in newest
    change = after.cssselect('.history input[name="change"]')[0].get("value")
    undone = post(page_of, after, f"/memories/{id}/undo", change=change)
    assert undone.status_code == 303
    assert call(world, "get", id).content == "The dentist is in Viborg."
    again = open_page(page_of, f"/memories/{id}")
    assert said(again).startswith("Undone.")
    strange = remember(world, "Another one.")
    assert post(page_of, again, f"/memories/{strange}/undo", change=change).status_code == 404


@requirement("web-pages:memory")
def test_a_correction_that_can_not_be_stored_keeps_what_was_typed(
    world: World, page_of: httpx2.Client
) -> None:
    id = remember(world, "The bus leaves at 7:10.")
    page = open_page(page_of, f"/memories/{id}")
    for fields, problem in (
        ({"content": ""}, "There are no words in this"),
        ({"content": "Later.", "importance": "9"}, "it goes from 1 (trivial) to 5 (critical)"),
        ({"content": "Later.", "valid_from": "soon"}, "'soon' is not a day"),
        ({"content": "Later.", "valid_from": "2026-02-01", "valid_to": "2026-01-01"}, "before"),
        ({"content": "Later.", "memory_type": "rumour"}, "rumour"),
    ):
        refused = read(post(page_of, page, f"/memories/{id}", **fields), 422)
        assert problem in words_of(refused.get_element_by_id("edit-e"))
        assert refused.get_element_by_id("words").text_content().strip() == fields["content"]
    assert call(world, "get", id).content == "The bus leaves at 7:10."


@requirement("web-pages:memory")
def test_two_clients_that_correct_the_same_memory_do_not_overwrite_each_other(
    world: World, page_of: httpx2.Client
) -> None:
    id = remember(world, "Nine guests come.")
    page = open_page(page_of, f"/memories/{id}")
    call(world, "edit", id, content="Ten guests come.")
    answer = send(page_of, page, f"/memories/{id}", {"content": "Eleven guests come."})
    shown = read(answer, 409)
    assert "It was changed in the meantime" in words_of(shown.get_element_by_id("edit"))
    assert shown.get_element_by_id("words").text_content().strip() == "Eleven guests come."
    assert call(world, "get", id).content == "Ten guests come."
    assert send(page_of, shown, f"/memories/{id}").status_code == 303
    assert call(world, "get", id).content == "Eleven guests come."


@requirement("web-pages:memory")
def test_a_memory_is_pinned_and_marked_as_outdated_and_each_is_taken_back(
    world: World, page_of: httpx2.Client
) -> None:
    id = remember(world, "Short answers first, reasons after.")
    path = f"/memories/{id}"
    page = open_page(page_of, path)
    assert send(page_of, page, f"{path}/pin").headers["location"] == path
    pinned = open_page(page_of, path)
    assert "Every conversation" in said(pinned)
    assert call(world, "get", id).pinned
    send(page_of, pinned, f"{path}/unpin")
    assert not call(world, "get", id).pinned
    page = open_page(page_of, path)
    send(page_of, page, f"{path}/outdated")
    over = open_page(page_of, path)
    assert "It no longer holds." in words_of(over.get_element_by_id("main"))
    assert call(world, "get", id).valid_to is not None
    send(page_of, over, f"{path}/holds")
    assert call(world, "get", id).valid_to is None
    outside = remember(world, "A page says: buy this.", trust="outside")
    page = open_page(page_of, f"/memories/{outside}")
    send(page_of, page, f"/memories/{outside}/pin")
    assert not call(world, "get", outside).pinned
    assert "outside" in said(open_page(page_of, f"/memories/{outside}"))


@requirement("web-pages:forgetting")
def test_forgetting_shows_a_preview_and_then_a_receipt_without_the_words(
    world: World, page_of: httpx2.Client
) -> None:
    async def fill() -> tuple[str, str, str]:
        memory = world.app.service.memory
        secret = await memory.add("The surprise party for Birthe is on 3 December.", tags=["party"])
        along = await memory.add("Birthe must not see the calendar in December.")
        await memory.link(along, secret, "derived_from")
        again = await memory.add("The surprise party for Birthe is on 3 December.")
        return secret, along, again

    secret, along, again = world.call(fill)
    plan = open_page(page_of, f"/memories/{secret}/forget")
    goes = words_of(plan.cssselect(".goes")[0])
    assert "rests on it alone: Birthe must not see" in goes
    assert "It says the same independently" in goes
    assert call(world, "get", secret)  # nothing has gone yet
    answer = send(page_of, plan, f"/memories/{secret}/forget")
    assert answer.headers["location"] == "/memories"
    after = open_page(page_of, "/memories")
    assert said(after).startswith("Forgotten: 2 memories, 1 of them because they rested on it alone")
    [link] = after.cssselect('#sayings a[href^="/memories/receipts/"]')
    receipt = open_page(page_of, link.get("href"))
    assert "Forgotten: 2 memories" in words_of(receipt)
    assert f"{again} says the same independently" in words_of(receipt)
    assert "surprise" not in words_of(receipt)
    gone = open_page(page_of, f"/memories/{secret}", 404)
    assert "This memory was forgotten" in words_of(gone)
    assert open_page(page_of, f"/memories/{along}", 404) is not None
    assert call(world, "get", again)
    assert post(page_of, after, f"/memories/{secret}/forget").status_code == 404
    assert open_page(page_of, "/memories/receipts/none", 404) is not None


@requirement("web-pages:forgetting")
def test_memories_that_say_the_same_are_forgotten_too_if_the_user_wants(
    world: World, page_of: httpx2.Client
) -> None:
    one = remember(world, "The safe is behind the third painting.")
    same = remember(world, "The safe is behind the third painting.")
    other = remember(world, "The painting is by Ancher.")
    plan = open_page(page_of, f"/memories/{one}/forget")
    # A page can't have something else forgotten along with it.
    answer = send(page_of, plan, f"/memories/{one}/forget", {"restated": "on"})
    assert answer.status_code == 303
    for id in (one, same):
        open_page(page_of, f"/memories/{id}", 404)
    plan = open_page(page_of, f"/memories/{other}/forget")
    kept = remember(world, "Nothing to do with it.")
    post(page_of, plan, f"/memories/{other}/forget", restated="on", also=kept)
    assert call(world, "get", kept)


@requirement("web-pages:recall")
def test_a_trial_message_shows_what_it_would_recall_and_why_without_counting_as_use(
    world: World, page_of: httpx2.Client
) -> None:
    id = remember(world, "Theodora keeps her bassoon in Skagen.")
    page = open_page(page_of, "/memories/recalled?message=Where+is+Theodora's+bassoon%3F")
    [row] = [row for row in page.cssselect("#now .memories li") if "Skagen" in words_of(row)]
    assert "sure 0." in words_of(row)
    assert "what the message says" in words_of(row)
    one = open_page(page_of, f"/memories/{id}?message=Where+is+Theodora's+bassoon%3F")
    assert "It would be shown, sure 0." in words_of(one.get_element_by_id("why-said"))
    not_it = open_page(page_of, f"/memories/{id}?message=How+much+is+seven+times+eight%3F")
    assert "It would not be shown" in words_of(not_it.get_element_by_id("why-said"))
    assert call(world, "get", id).access_count == 0


@requirement("web-pages:recall", "web-pages:forgetting")
def test_what_was_shown_to_a_model_is_listed_with_its_message_until_it_is_forgotten(tmp_path: Path) -> None:
    with serving(tmp_path, server__requests_per_s=10_000) as world, browser(world) as client:
        assert "No model has been shown a memory yet." in words_of(open_page(client, "/memories/recalled"))
        id = remember(world, "Ottoline’s harpsichord is tuned in March.")
        call(world, "pin", id)
        with world.client() as program:
            session = chat(program, "When is Ottoline’s harpsichord tuned?")[0].data["sessionId"]
        page = open_page(client, "/memories/recalled")
        row = page.cssselect("tbody tr")[-1]
        assert "Always in mind: When is Ottoline’s harpsichord tuned?" in words_of(row)
        assert "Ottoline’s harpsichord is tuned in March." in words_of(row)
        assert row.cssselect(f'a[href="/chat/{session}#turn-1"]')
        one = open_page(client, f"/memories/{id}")
        assert "When is Ottoline’s harpsichord tuned?" in words_of(one.cssselect(".side")[0])
        assert "in the profile, today" in words_of(one.cssselect(".side")[0])
        send(client, open_page(client, f"/memories/{id}/forget"), f"/memories/{id}/forget")
        assert "is tuned in March" not in open_page(client, "/memories/recalled").text_content()


@requirement("web-pages:recall")
def test_logs_are_read_again_only_when_they_have_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.client() as client:
        chat(client, "Which colour has Ingeborg’s kayak?")
    sessions = world.satchel.sessions
    load, read = sessions.load, []

    async def counted(id: str, **more: Any) -> Any:
        read.append(id)
        return await load(id, **more)

    monkeypatch.setattr(sessions, "load", counted)
    lately = Lately(sessions)
    first = world.call(lately.surfaced)
    count = len(read)
    assert count > 0
    assert world.call(lately.surfaced) == first
    assert len(read) == count
    with world.client() as client:
        chat(client, "And whose is it?")
    world.call(lately.surfaced)
    assert len(read) == count + 1


@requirement("web-pages:hostile")
def test_hostile_words_are_only_text_wherever_a_memory_is_shown(world: World, page_of: httpx2.Client) -> None:
    async def fill() -> str:
        memory = world.app.service.memory
        id = await memory.add(
            HOSTILE, tags=[HOSTILE[:60]], speaker=HOSTILE[:80], session='"><script>x</script>', turn=1
        )
        await memory.edit(id, importance=4, why=HOSTILE)
        other = await memory.add(f"{HOSTILE} too")
        await memory.link(id, other, "<i>relation</i>")
        await memory.pin(id)
        return id

    id = world.call(fill)
    for path in (
        "/memories?show=all",
        f"/memories?q={'%3Cscript%3Ealert(1)%3C/script%3E'}",
        f"/memories/{id}",
        f"/memories/{id}?message=%3Cscript%3Ealert(3)%3C/script%3E",
        f"/memories/{id}/forget",
        "/memories/recalled?message=%3Cscript%3E",
        "/memories?tag=%3Cscript%3E&session=%22%3E%3Cscript%3Ex%3C/script%3E",
    ):
        page = open_page(page_of, path)
        assert [script.get("src", "").startswith("/static/") for script in page.cssselect("script")] == [True]
        assert page.cssselect("main img, main iframe, main b b, [onerror], [onclick], [style]") == []
        assert "49" not in page.text_content() or "{{ 7 * 7 }}" in page.text_content()
        for link in page.cssselect("main a[href]"):
            assert link.get("href").startswith(("/", "#", "?"))
    shown = open_page(page_of, f"/memories/{id}")
    assert "<script>alert(1)</script>" in shown.cssselect("h1")[0].text_content()


@requirement("web-pages:hostile")
@pytest.mark.parametrize(
    "id",
    ["nothing", "m0000000000000000", "..%2f..%2fetc%2fpasswd", "%2e%2e", "%00", "'", "x" * 5000, "%ff%fe"],
    ids=lambda id: id[:30],
)
def test_unknown_ids_are_not_found(page_of: httpx2.Client, id: str) -> None:
    for path in (f"/memories/{id}", f"/memories/{id}/forget", f"/memories/receipts/{id}"):
        answer = page_of.get(path)
        assert answer.status_code == 404, (path, answer.status_code)
        assert "Traceback" not in answer.text


@requirement("web-pages:page")
def test_the_page_about_the_user_is_shown_first_edited_compared_and_restored_without_a_script(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, server__requests_per_s=10_000) as world, browser(world) as client:
        empty = open_page(client, "/memories/page")
        assert "Nothing stands on it yet" in words_of(empty)
        assert "How to answer, Who the user is, People" in words_of(empty)
        text = "# People\nLinh can't stand dairy\n# Running\nLock closed (until 2999-01-01)"
        assert post(client, empty, "/memories/page", text=text, base="0").status_code == 303
        shown = open_page(client, "/memories/page")
        assert "Saved as version 1." in words_of(shown)
        assert [words_of(link) for link in shown.cssselect(".standing a.said")] == [
            "Linh can't stand dairy",
            "Lock closed",
        ]
        again = "# People\nLinh loves coriander\n"
        assert post(client, shown, "/memories/page", text=again, base="1").status_code == 303
        shown = open_page(client, "/memories/page")
        changes = words_of(shown.cssselect("pre")[0])
        assert "+ Linh loves coriander" in changes
        assert "- Linh can't stand dairy" in changes
        first = open_page(client, "/memories")
        assert "Linh loves coriander" in words_of(first.get_element_by_id("profile"))
        refused = post(client, shown, "/memories/page", text="# Nonsense\n<b>x</b>", base="2")
        assert refused.status_code == 422
        assert "&lt;b&gt;x&lt;/b&gt;" in refused.text
        assert "no section" in refused.text
        assert post(client, shown, "/memories/page/restore", number="1").status_code == 303
        first = open_page(client, "/memories")
        assert "Linh can't stand dairy" in words_of(first.get_element_by_id("profile"))
        assert "Linh loves coriander" not in words_of(first.get_element_by_id("profile"))


@requirement("memory:list:folded", "web-pages:memories", "http:memories")
def test_lists_have_a_fact_once_with_the_turns_that_it_rests_on(world: World, page_of: httpx2.Client) -> None:
    turn, echo = call(
        world,
        "add_episodes",
        [
            Episode(session="walk", turn=1, speaker="user", text="We named the terrier Bobik."),
            Episode(session="walk", turn=1, speaker="assistant", text="Noted, Bobik.", trust="agent"),
        ],
    )
    fact = remember(world, "The user's dog is called Bobik.", session="walk", turn=1)

    page = read(page_of.get("/memories", params={"session": "walk"}))
    assert listed(page) == ["The user's dog is called Bobik."]
    (row,) = page.cssselect(".memories li")
    assert [link.get("href") for link in row.cssselect("details p.said a")] == [
        f"/memories/{turn}",
        f"/memories/{echo}",
    ]
    assert listed(read(page_of.get("/memories", params={"q": "Bobik", "session": "walk"}))) == listed(page)
    assert listed(read(page_of.get("/memories", params={"kind": "episode", "session": "walk"}))) != []

    with world.client() as client:
        every = client.get("/api/memories", params={"session": "walk"})
        assert {one["id"] for one in every.json()} == {turn, echo, fact}
        assert every.headers["x-total-count"] == "3"
        folded = client.get("/api/memories", params={"session": "walk", "folded": True})
        assert [(one["id"], one["evidence"]) for one in folded.json()] == [(fact, [turn, echo])]
        assert folded.headers["x-total-count"] == "1"
        (hit,) = client.get(
            "/api/memories/search", params={"q": "Bobik", "session": "walk", "folded": True}
        ).json()
        assert (hit["memory"]["id"], hit["memory"]["evidence"]) == (fact, [turn, echo])


@requirement("web-pages:memories:many")
def test_several_memories_are_changed_or_forgotten_at_once_and_it_can_be_taken_back(
    world: World, page_of: httpx2.Client
) -> None:
    memory = world.app.service.memory
    ids = [
        world.call(memory.add, f"The marmot number {number} whistles.") for number in ("one", "two", "three")
    ]

    def press(do: str, chosen: Sequence[str], path: str = "/memories?q=marmot+whistles") -> Any:
        page = open_page(page_of, path)
        answer = ticked(page_of, page, chosen, do)
        assert answer.headers["location"] == path
        return open_page(page_of, answer.headers["location"])

    assert "Tick the boxes" in said(press("pin", []))
    told = press("pin", ids[:2])
    assert "Pinned: 2 memories." in said(told)
    assert [world.call(memory.get, id).pinned for id in ids] == [True, True, False]
    [changes] = told.xpath("//div[@id='sayings']//input[@name='ids']/@value")
    send(page_of, told, "/memories/many", {"ids": changes})
    assert [world.call(memory.get, id).pinned for id in ids] == [False, False, False]
    assert "Confidential: 3 memories." in said(press("confidential", ids))
    assert {world.call(memory.get, id).discretion for id in ids} == {"confidential"}
    assert "No longer holding: 1 memory." in said(press("outdated", ids[2:]))
    ended = world.call(memory.get, ids[2]).valid_to
    assert ended is not None
    told = press("holds", ids[2:], "/memories?q=marmot+whistles&show=all")
    [changes] = told.xpath("//div[@id='sayings']//input[@name='ids']/@value")
    send(page_of, told, "/memories/many", {"ids": changes})
    assert world.call(memory.get, ids[2]).valid_to == ended
    asked = press("forget", ids[:2])
    assert "Forget 2 memories for good?" in said(asked)
    assert world.call(memory.get, ids[0])
    answer = send(page_of, asked, "/memories/many", {"confirmed": "1"})
    assert "can’t be restored" in said(open_page(page_of, answer.headers["location"]))
    for id in ids[:2]:
        with pytest.raises(NotFound):
            world.call(memory.get, id)
    assert world.call(memory.get, ids[2])


@requirement("web-pages:memories:many")
def test_nothing_else_is_done_and_no_other_site_is_led_to(world: World, page_of: httpx2.Client) -> None:
    id = world.call(world.app.service.memory.add, "The heron stands still.")
    page = open_page(page_of, "/memories?q=heron")
    assert ticked(page_of, page, [id], "explode").status_code == 400
    answer = ticked(page_of, page, [id], "unpin", back="//elsewhere.example/memories")
    assert answer.headers["location"] == "/memories"
    assert "No longer pinned: 0 memories." in said(open_page(page_of, "/memories"))
    headers = {"origin": at(page_of), "sec-fetch-site": "same-origin"}
    assert page_of.post(f"/memories/{id}/explode", headers=headers).status_code in (403, 404)


def _facts(world: World, *said: tuple[str, str], **more: Any) -> list[str]:
    """Facts, each with the turn that it rests on."""
    ids = []
    for number, (fact, words) in enumerate(said):
        session = f"{fact[:12]}-{number}"
        call(world, "add_episodes", [Episode(session=session, turn=1, speaker="user", text=words)])
        ids.append(remember(world, fact, session=session, turn=1, **more))
    return ids


@requirement("web-pages:memories:merged")
def test_facts_become_one_that_rests_on_what_both_rest_on_and_it_is_taken_back(
    world: World, page_of: httpx2.Client
) -> None:
    first, second = _facts(
        world,
        ("Ottilie lives in Graz.", "My aunt Ottilie lives in Graz."),
        ("Ottilie keeps bees.", "You know, Ottilie keeps bees."),
    )
    call(world, "edit", first, discretion="confidential", tags=["aunt"])
    call(world, "link", first, second, "may_replace")
    path = "/memories?named=Ottilie"
    answer = ticked(page_of, open_page(page_of, path), [first, second], "merge")
    form = open_page(page_of, answer.headers["location"])
    assert "Ottilie keeps bees." in words_of(form.get_element_by_id("merged"))
    answer = post(page_of, form, "/memories/merge", id=first, content="x", back=path)
    assert "two facts or more" in words_of(read(answer, 422).get_element_by_id("merged-e"))
    answer = page_of.post(
        "/memories/merge",
        data={
            **dict(form.forms[-1].form_values()),
            "id": [first, second],
            "content": "Aunt Ottilie: Graz, bees.",
        },
        headers={"origin": at(page_of), "sec-fetch-site": "same-origin"},
    )
    assert answer.headers["location"] == path
    page = open_page(page_of, path)
    assert listed(page) == ["Aunt Ottilie: Graz, bees."]
    assert "2 turns behind it" in words_of(page.cssselect(".memories")[0])
    assert "May no longer hold" not in words_of(page.cssselect(".memories")[0])
    merged = call(world, "get", second)
    assert (merged.discretion, merged.tags) == ("confidential", ("aunt",))
    [changes] = page.xpath("//div[@id='sayings']//input[@name='ids']/@value")
    send(page_of, page, "/memories/many", {"ids": changes})
    assert {one.content for one in call(world, "list", named="Ottilie", kind="fact")} == {
        "Ottilie lives in Graz.",
        "Ottilie keeps bees.",
    }
    assert call(world, "get", first).valid_to is None
    # What holds while one of them does; and undoing takes back all of it, or nothing.
    ended = remember(world, "User works at Acme.", valid_to="2025-01-01T00:00:00+00:00")
    holds = remember(world, "User works at Bolt.", trust="agent")
    kept, done = call(world, "merge", [ended, holds], "User works at Bolt since 2026.")
    assert (kept, call(world, "get", kept).valid_to) == (ended, None)
    call(world, "edit", kept, content="User works at Bolt.")
    with pytest.raises(UsageError, match="later change"):
        call(world, "undo", *done)
    assert call(world, "get", holds).valid_to is not None
    [turn] = call(world, "list", named="Ottilie", kind="episode", limit=1)
    with pytest.raises(UsageError, match="only facts"):
        call(world, "merge", [first, turn.id], "Both.")


@requirement("web-pages:memories:merged")
def test_a_card_corrects_and_moves_its_memory(world: World, page_of: httpx2.Client) -> None:
    id = remember(world, "The kayak is red.", spheres=["home", "person:ida"])
    page = open_page(page_of, "/memories?q=kayak")
    post(page_of, page, "/memories/many", id=id, do="correct", content="The kayak is blue.", sphere="")
    post(page_of, page, "/memories/many", id=id, do="sphere", content="The kayak is blue.", sphere="leisure")
    changed = call(world, "get", id)
    assert (changed.content, changed.spheres) == ("The kayak is blue.", ("leisure", "person:ida"))
    assert listed(open_page(page_of, "/memories?sphere=leisure")) == ["The kayak is blue."]
    other = remember(world, "The paddle is long.")
    refused = page_of.post(
        "/memories/many",
        data={
            "form_token": page.cssselect('input[name="form_token"]')[0].get("value"),
            "id": [id, other],
            "do": "correct",
        },
        headers={"origin": at(page_of), "sec-fetch-site": "same-origin"},
    )
    assert refused.status_code == 400


@requirement("web-pages:memories:ways")
def test_names_parts_of_life_and_days_lead_to_what_speaks_of_them(tmp_path: Path) -> None:
    with serving(tmp_path, server__requests_per_s=10_000) as world, browser(world) as client:
        when = {"said_at": "2026-03-04T10:00:00+00:00"}
        remember(world, "On Monday the user met Ida in Porto.", spheres=["leisure"], **when)
        remember(world, "Ida's cat sleeps in Porto.", said_at="2026-03-07T10:00:00+00:00")
        remember(world, "The user has no idaho potatoes.", **when)
        remember(world, "Rosa (aunt of User): bakes", **when)
        ways = open_page(client, "/memories").cssselect(".ways")[0]
        rows = dict(
            zip(map(words_of, ways.cssselect("dt")), map(words_of, ways.cssselect("dd")), strict=True)
        )
        assert (rows["People and places"], rows["Parts of life"]) == ("Ida 2, Porto 2, Rosa 1", "leisure 1")
        links = {words_of(link): link.get("href") for link in ways.cssselect("a")}
        about = {"On Monday the user met Ida in Porto.", "Ida's cat sleeps in Porto."}
        assert set(listed(open_page(client, links["Ida"]))) == about
        assert set(listed(open_page(client, links["Porto"]))) == about
        assert listed(open_page(client, links["7 Mar 2026"])) == ["Ida's cat sleeps in Porto."]
        assert listed(open_page(client, links["leisure"])) == ["On Monday the user met Ida in Porto."]


@requirement("web-pages:memories:review")
def test_what_was_learnt_is_reviewed_one_by_one_and_not_shown_again(tmp_path: Path) -> None:
    with serving(tmp_path, server__requests_per_s=10_000) as world, browser(world) as client:
        remember(world, "Stored by hand.")
        ids = _facts(world, ("The lamp is on.", "Lamp on."), ("The door is shut.", "Door shut."))

        def shown_words() -> str:
            return " ".join(
                words_of(one) for one in open_page(client, "/memories/review").cssselect(".memory-words")
            )

        assert "Review 2 facts learnt this week" in words_of(open_page(client, "/memories"))
        page = open_page(client, "/memories/review")
        assert shown_words() == "The lamp is on."
        assert "Lamp on." in words_of(page)
        post(client, page, "/memories/review", id=ids[0], do="keep")
        page = open_page(client, "/memories/review")
        assert "The door is shut." in words_of(page.cssselect(".memory-words")[0])
        # Taking it back brings it back.
        assert "Kept: The lamp is on." in said(page)
        send(client, page, "/memories/many")
        assert shown_words() == "The lamp is on."
        post(client, page, "/memories/review", id=ids[0], do="change", content="The lamp is off.")
        assert call(world, "get", ids[0]).content == "The lamp is off."
        post(client, page, "/memories/review", id=ids[1], do="keep")
        assert "Nothing is left to look at" in words_of(open_page(client, "/memories/review"))
        assert "looked at it and kept it" in words_of(open_page(client, f"/memories/{ids[1]}"))
        # Forgetting leads back to what is left.
        ids = _facts(world, ("The cat is grey.", "Grey cat."), ("The key is new.", "New key."))
        [link] = open_page(client, "/memories/review").cssselect("a[data-key=f]")
        answer = send(client, open_page(client, link.get("href")), f"/memories/{ids[0]}/forget")
        assert (answer.status_code, answer.headers["location"]) == (303, "/memories/review")
        assert shown_words() == "The key is new."
        _facts(world, ("The hat is red.", "Red hat."), ("The coat is blue.", "Blue coat."))
        page = open_page(client, "/memories/review?later=1")
        assert words_of(page.cssselect(".memory-words")[0]) == "The hat is red."
        [link] = page.cssselect("a[data-key=f]")
        answer = send(
            client, open_page(client, link.get("href")), f"/memories/{link.get('href').split('/')[2]}/forget"
        )
        assert answer.headers["location"] == "/memories/review?later=1"


@requirement("web-pages:memories:moved", "web-pages:forgery", "sessions:imported")
def test_memories_are_downloaded_and_imported_by_a_form_with_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with serving(tmp_path / "a", server__requests_per_s=10_000) as world, browser(world) as client:
        remember(world, "The atlas is on the shelf.")
        written = client.get("/memories/export").content
    with serving(tmp_path / "b", server__requests_per_s=10_000) as world, browser(world) as client:
        page = open_page(client, "/memories/move")
        token = page.cssselect('input[name="form_token"]')[0].get("value")

        def sent(content: bytes, name: str, token: str = token) -> httpx2.Response:
            return client.post(
                "/memories/move",
                data={"form_token": token},
                files={"file": (name, content)},
                headers={"origin": at(client), "sec-fetch-site": "same-origin"},
            )

        assert sent(written, "m.jsonl", "wrong").status_code == 403
        assert call(world, "count") == 0
        assert "unknown" in words_of(read(sent(b"\0nonsense", "../../x.bin"), 422))
        assert sent(written, "m.jsonl").headers["location"] == "/memories"
        page = open_page(client, "/memories")
        assert "Imported 1 memory; 0 known" in said(page)
        assert listed(page) == ["The atlas is on the shelf."]
        # What takes longer is followed on a page of its own.
        monkeypatch.setattr("satchel.server.pages.memory._IMPORT_WAIT_S", 0.0)
        asked = {
            "sender": "human",
            "uuid": "m1",
            "text": "Are my tomatoes ill?",
            "created_at": "2025-06-01T10:00:01Z",
        }
        asked_later = {**asked, "uuid": "m2", "text": "And today?", "created_at": "2025-06-03T10:00:01Z"}
        found = [{"uuid": "c1a0dead-1", "name": "Tomatoes", "chat_messages": [asked, asked_later]}]
        assert sent(json.dumps(found).encode(), "conversations.json").headers["location"] == "/memories/move"
        while "Imported 1 new conversation, 2 memories" not in words_of(open_page(client, "/memories/move")):
            pass  # the test's own limit ends a wait in vain
        page = open_page(client, "/sessions")
        assert "Tomatoes 2 turns, from Claude 3 June 2025" in words_of(page)  # in no folder
        assert page.cssselect('.head a[href="/memories/move"]')
        # Where another day begins, it is said.
        for path in ("/chat/claude:c1a0dead-1", "/sessions/claude:c1a0dead-1/export?form=html"):
            times = [words_of(each)[:-5] for each in open_page(client, path).cssselect(".turn > .time")]
            assert times == ["", "3 Jun 2025 "]
        # One that ends while the page is made is under way there, and over on the next.
        real_import, real_around = import_into, site._surroundings

        async def held_import(*args: Any, **more: Any) -> Any:
            await world.held.wait()
            return await real_import(*args, **more)

        async def around(service: Any, now: Any) -> Any:
            world.held.go_on.set()
            if service.importing.is_running:
                await service.importing._over.wait()
            return await real_around(service, now)

        monkeypatch.setattr(page_import, "import_into", held_import)
        monkeypatch.setattr(site, "_surroundings", around)
        assert sent(written, "m.jsonl").headers["location"] == "/memories/move"
        page = open_page(client, "/memories/move")
        assert "The import is under way" in words_of(page)
        assert page.cssselect("#importing[data-running]")
        assert "Imported 0 memories; 1 known" in words_of(open_page(client, "/memories/move"))
