"""The pages of capabilities and builds: looked at, run from a form, approved, compared, built."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx2
import pytest

from satchel.builder.asking import consent_id
from satchel.builder.records import Build
from satchel.capabilities import Wanted
from satchel.capabilities.cases import number_pattern
from tests.capabilities.world import GREET, cases
from tests.requirements import requirement
from tests.server.browsers import browser, open_page, read, said, send, words_of
from tests.server.world import World, register

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["area", "hours"],
    "additionalProperties": False,
    "properties": {
        "area": {"enum": ["DK1", "DK2"], "title": "Price area", "description": "<b>West</b> or east"},
        "hours": {"type": "integer", "minimum": 1, "maximum": 12},
        "share": {"type": "number"},
        "tax": {"type": "boolean", "default": True},
        "urgent": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "days": {"type": "array", "items": {"enum": ["Mon", "Tue"]}},
        "place": {"type": "object", "required": ["lat"], "properties": {"lat": {"type": "number"}}},
        "extra": {"oneOf": [{"type": "string"}, {"type": "array"}]},
    },
}
CODE = """\
import json

def run(args: dict) -> str:
    print("<i>working</i>")
    if args["hours"] == 7:
        raise RuntimeError("<script>alert(7)</script>")
    return json.dumps({"given": args, "markup": "<script>alert(1)</script>"}, ensure_ascii=False)
"""
CASES = cases(
    {"name": "two hours", "input": {"area": "DK1", "hours": 2}, "expect": {"contains": "DK1"}},
    {"name": "no hours", "input": {"area": "DK1"}, "expect": {"error": "hours"}},
    {
        "name": "its number",
        "input": {"area": "DK1", "hours": 2},
        "expect": {
            "matches": number_pattern("2"),
            "lacks": ["DE", "FR"],
            "json": {"type": "object", "properties": {"markup": {"type": "string"}}},
        },
    },
)


@pytest.fixture
def client(sandboxed: World) -> Iterator[httpx2.Client]:
    with browser(sandboxed) as client:
        yield client


@pytest.fixture(scope="module")
def prices(sandboxed: World) -> str:
    sandboxed.call(partial(register, sandboxed, "prices", code=CODE, input_schema=SCHEMA, cases=CASES))
    parts = sandboxed.satchel.capabilities
    assert parts is not None
    sandboxed.call(parts.runner.run, "prices", {"area": "DK1", "hours": 2})
    return "/capabilities/prices"


def problem_of(page: Any, name: str) -> str:
    """What is said to be wrong with the field of a form."""
    [field] = page.xpath(f'//*[@name="{name}"]')
    assert field.get("aria-invalid") == "true"
    id = field.get("aria-describedby").split()[-1]
    return words_of(page.get_element_by_id(id))


@requirement("web-pages:capability-form")
def test_cases_are_shown_as_sentences(client: httpx2.Client, prices: str) -> None:
    rows = [
        [words_of(cell) for cell in row.cssselect("td")][1:3]
        for row in open_page(client, prices).cssselect("#cases tbody tr")
    ]
    given = "area: DK1 hours: 2"
    assert rows == [
        [given, "It says “DK1”."],
        ["area: DK1", "It is refused, and the complaint says “hours”."],
        [
            given,
            "It does not say “DE” or “FR”. It gives the number 2. It is data: {markup?: string}.",
        ],
    ]


@requirement("web-pages:capability-form")
def test_a_form_is_made_of_the_schema_and_its_fields_become_the_input(
    client: httpx2.Client, prices: str
) -> None:
    page = open_page(client, prices)
    assert [label.text_content() for label in page.cssselect('label[for="in-61726561"] span')] == [
        "Price area"
    ]
    answer = send(
        client,
        page,
        f"{prices}/run",
        {
            "in/area": '"DK2"',
            "in/hours": " 3 ",
            "in/share": "0.5",
            "in/urgent": "false",
            "in/names": "Ida\r\n\r\n Emil <b>",
            "in/days": '"Tue"',
            "in/place/lat": "-56.2",
            "in/extra": '["a", null]',
        },
    )
    assert answer.status_code == 303, answer.text
    ran = open_page(client, answer.headers["location"])
    result = json.loads(ran.cssselect("#result pre")[0].text_content())
    assert result["given"] == {
        "area": "DK2",
        "hours": 3,
        "share": 0.5,
        "tax": True,
        "urgent": False,
        "names": ["Ida", " Emil <b>"],
        "days": ["Tue"],
        "place": {"lat": -56.2},
        "extra": ["a", None],
    }
    assert result["markup"] == "<script>alert(1)</script>"
    assert [script.get("src", "").startswith("/static/") for script in ran.cssselect("script")] == [True]
    # What was sent stands in the form again.
    assert ran.get_element_by_id("in-686f757273").get("value") == "3"
    assert words_of(ran.cssselect('select[name="in/area"] option[selected]')[0]) == "DK2"
    assert "<i>working</i>" in ran.cssselect("#result details pre")[0].text_content()


@requirement("web-pages:capability-form")
def test_invalid_input_is_reported_at_its_field_and_nothing_runs(
    world: World, client: httpx2.Client, prices: str
) -> None:
    async def runs() -> int:
        parts = world.satchel.capabilities
        assert parts is not None
        return len(await parts.catalogue.runs("prices", limit=200))

    before = world.call(runs)
    page = open_page(client, prices)
    unreadable = read(
        send(client, page, f"{prices}/run", {"in/hours": "three", "in/extra": "[1,", "in/names": "Ida"}), 422
    )
    assert problem_of(unreadable, "in/area") == "This is required."
    assert problem_of(unreadable, "in/hours") == "Write a whole number, such as 3."
    assert problem_of(unreadable, "in/extra").startswith("This is not JSON:")
    assert unreadable.get_element_by_id("in-686f757273").get("value") == "three"
    assert unreadable.cssselect('textarea[name="in/names"]')[0].text_content().strip() == "Ida"
    too_many = read(send(client, page, f"{prices}/run", {"in/area": '"DK1"', "in/hours": "14"}), 422)
    assert problem_of(too_many, "in/hours") == "14 is greater than the maximum of 12."
    forged = read(send(client, page, f"{prices}/run", {"in/area": '"DK9"', "in/hours": "1"}), 422)
    assert problem_of(forged, "in/area") == "Choose one of the values."
    raw = read(
        send(client, page, f"{prices}/run", {"as": "json", "json": '{"area": "DK1", "hours": 99}'}), 422
    )
    assert "99 is greater than the maximum of 12" in problem_of(raw, "json")
    assert client.get(f"{prices}/run").headers["location"] == prices  # the address of the form, opened again
    for wrong in ("[1]", "{", '{"hours": NaN}', "[" * 100_000):
        page_again = read(send(client, page, f"{prices}/run", {"as": "json", "json": wrong}), 422)
        assert page_again.get_element_by_id("raw").text_content().strip() == wrong
    assert world.call(runs) == before


@requirement("web-pages:capability-form")
def test_input_can_be_json_and_a_failure_is_shown_as_text(client: httpx2.Client, prices: str) -> None:
    page = open_page(client, prices)
    answer = send(client, page, f"{prices}/run", {"as": "json", "json": '{"area": "DK1", "hours": 7}'})
    failed = open_page(client, answer.headers["location"])
    result = failed.get_element_by_id("result")
    assert "error" in words_of(result)
    assert "<script>alert(7)</script>" in result.text_content()
    assert failed.cssselect("main script") == []
    assert failed.get_element_by_id("in-686f757273").get("value") == "7"
    other = open_page(client, f"{prices}?run=nothing")
    assert other.cssselect("#result") == []


@requirement("web-pages:capabilities")
def test_capabilities_are_listed_with_their_state_and_runs_and_found(
    world: World, client: httpx2.Client, prices: str
) -> None:
    world.call(partial(register, world, "greet"))
    page = open_page(client, "/capabilities")
    [row] = [
        row for row in page.cssselect(".catalogue li") if row.cssselect('a[href="/capabilities/prices"]')
    ]
    assert "Active" in words_of(row)
    [spark] = row.cssselect("svg.spark")
    assert "good" in spark.get("aria-label")
    assert spark.get("aria-label").endswith(words_of(row.cssselect(".runs p")[0]))
    found = open_page(client, "/capabilities?q=greet+a+city")
    assert [words_of(link) for link in found.cssselect(".catalogue h3")][0] == "greet"
    assert "Nothing for “zzqq”" in words_of(open_page(client, "/capabilities?q=zzqq"))
    off = open_page(client, "/capabilities/greet")
    send(client, off, "/capabilities/greet/disable")
    switched = open_page(client, "/capabilities/greet")
    assert said(switched).startswith("Switched off.")
    assert switched.cssselect('form[action$="/run"]') == []
    only_off = open_page(client, "/capabilities?show=off")
    assert [words_of(link) for link in only_off.cssselect(".catalogue h3")] == ["greet"]
    send(client, only_off, "/capabilities/greet/enable")
    assert "Active, v" in words_of(open_page(client, "/capabilities/greet"))
    assert "There is no 'everything' here." in words_of(
        open_page(client, "/capabilities?show=everything", 422)
    )


@requirement("web-pages:capabilities")
def test_versions_are_compared_tested_activated_and_rolled_back(world: World, client: httpx2.Client) -> None:
    world.call(partial(register, world, "hello"))
    world.call(
        partial(
            register, world, "hello", code=GREET.code.replace("Hello", "Hello").replace('"!"', '"!" + ""')
        )
    )
    at = "/capabilities/hello"
    page = open_page(client, f"{at}?from=1&to=2")
    [difference] = page.cssselect("pre.diff")
    assert [words_of(line) for line in difference.cssselect(".line.added") if "return" in words_of(line)] == [
        'added: + return "Hello, " + args["city"] + "!" + ""'
    ]
    assert "added:" in difference.text_content()  # not by colour alone
    tested = send(client, page, f"{at}/test")
    after = open_page(client, tested.headers["location"])
    assert said(after) == "2 cases passed."
    assert [words_of(cell) for cell in after.cssselect("#cases td:last-child")] == ["passed", "passed"]
    send(client, after, f"{at}/rollback")
    assert "Active, v1" in words_of(open_page(client, at))
    send(client, open_page(client, at), f"{at}/activate")
    back = open_page(client, at)
    assert "Active, v2" in words_of(back)
    assert said(back).startswith("v2 is in use.")
    for wrong in ("?version=9", "?from=1&to=9", "?from=7&to=1"):
        open_page(client, at + wrong, 404)
    for wrong in ("?version=x", "?version=-1", "?from=0", "?from=99999999999999999"):
        assert open_page(client, at + wrong, 422).cssselect("main > .error")
    gone = open_page(client, f"{at}/remove")
    assert "2 versions with their files" in words_of(gone)
    assert send(client, gone, f"{at}/remove").headers["location"] == "/capabilities"
    open_page(client, at, 404)


@requirement("web-pages:capabilities", "builder:question")
def test_a_change_that_asks_is_among_what_waits_for_the_user(world: World, client: httpx2.Client) -> None:
    world.call(partial(register, world, "louder"))
    parts = world.satchel.capabilities
    assert parts is not None

    async def begin() -> None:
        requested = await parts.catalogue.rebuild("louder")
        now = world.satchel.clock.now()
        build = Build(
            id=requested.build_id,
            capability_id=requested.capability.id,
            name="louder",
            kind="repair",
            task="Repair it.",
            asked_by="",
            session_id="build-louder",
            model="scripted:other",
            created_at=now,
            updated_at=now,
        )
        await parts.builds.queue.add(build)
        payload = {"text": "How loud?", "options": ["loud", "louder"]}
        await parts.builds.queue.tell(build.id, id="q1", type="question", payload=payload)

    world.call(begin)
    listed = open_page(client, "/capabilities?show=attention")
    assert "Waits for your answer: How loud?" in words_of(listed)
    assert "waiting for you" in words_of(listed.get_element_by_id("rail-pages"))
    own = words_of(open_page(client, "/capabilities/louder"))
    assert "Active, v1" in own
    assert "It waits for your answer." in own
    world.call(partial(parts.builds.cancel, "louder"))


@requirement("web-pages:capabilities")
def test_of_a_skill_that_is_removed_the_page_counts_how_often_it_was_read(
    world: World, client: httpx2.Client
) -> None:
    changes = {"code": "", "input_schema": {}, "cases": "", "is_skill": True, "document": "- Be short."}
    world.call(partial(register, world, "brief_notes", **changes))
    assert world.satchel.capabilities is not None
    world.call(partial(world.satchel.capabilities.catalogue.note_read, "brief_notes"))
    page = words_of(open_page(client, "/capabilities/brief_notes/remove"))
    assert "The records of 1 reading, and" in page


@requirement("web-pages:capabilities")
def test_what_a_capability_wants_to_reach_is_approved_by_the_version_that_was_shown(
    world: World, client: httpx2.Client
) -> None:
    world.call(partial(register, world, "wishes", secrets=("NO_SUCH_KEY",), state=True))
    at = "/capabilities/wishes"
    page = open_page(client, at)
    asked = page.get_element_by_id("approve")
    assert "gets the value of NO_SUCH_KEY from your environment" in words_of(asked)
    assert "keeps files of its own" in words_of(asked)
    assert "None of it" not in words_of(asked)
    unseen = send(client, page, f"{at}/approve", {"version": "2"})
    assert unseen.status_code == 303
    after = open_page(client, at)
    assert "not the one that was shown" in said(after)
    assert "Waits for you" in words_of(after)
    send(client, after, f"{at}/approve")
    approved = open_page(client, at)
    assert said(approved).startswith("Approved")
    # Without its secret its cases failed, so it may do nothing yet.
    assert "no version is in use" in words_of(approved.cssselect(".sentences")[0])


@requirement("web-pages:build")
def test_a_build_is_followed_on_its_page_and_its_question_is_answered(
    world: World, client: httpx2.Client
) -> None:
    builds = world.satchel.builds
    assert builds is not None
    now = world.satchel.clock.now()

    async def begin() -> str:
        wanted = Wanted(name="train_watch", description="When the next train leaves.")
        requested = await builds.catalogue.request(wanted, model="", build_id="wb-1")
        await builds.queue.add(
            Build(
                id="wb-1",
                capability_id=requested.capability.id,
                name="train_watch",
                kind="build",
                task="Build it.",
                asked_by="",
                session_id="build-wb-1",
                model="scripted:scripted",
                status="running",
                created_at=now,
                updated_at=now,
            )
        )
        tell = partial(builds.queue.tell, "wb-1")
        await tell(id="p1", type="progress", payload={"text": "Wrote <b>main.py</b>."})
        await tell(id="q1", type="question", payload={"text": "Which station?", "options": ["Ulm", "Bonn"]})
        return requested.capability.id

    capability = world.call(begin)
    listed = open_page(client, "/capabilities?show=attention")
    assert "Not built yet Waits for you" in words_of(listed)
    assert re.search(
        r"Capabilities *, \d waiting for you *\d", words_of(listed.get_element_by_id("rail-pages"))
    )
    own = words_of(open_page(client, "/capabilities/train_watch"))
    assert "It waits for your answer." in own
    assert "is being built" not in own
    at = "/builds/wb-1"
    page = open_page(client, at)
    assert "Wrote <b>main.py</b>." in page.cssselect(".steps")[0].text_content()
    assert "Waits for your answer" in words_of(page)
    assert [button.text_content() for button in page.cssselect('button[name="choice"]')] == ["Ulm", "Bonn"]
    assert (
        page.cssselect('noscript meta[http-equiv="refresh"]') == []
    )  # it would take a half-written answer away
    world.call(partial(builds.queue.lay_aside, "wb-1"))
    assert "/answer TEXT" not in words_of(open_page(client, at))
    nothing = send(client, page, f"{at}/answer")
    assert nothing.status_code == 303
    assert said(open_page(client, at)).startswith("Write an answer")
    send(client, page, f"{at}/answer", {"answer": "Bonn, please"})
    answered = open_page(client, at)
    assert "You: Bonn, please" in words_of(answered)
    assert answered.cssselect('noscript meta[http-equiv="refresh"]')
    send(client, page, f"{at}/answer", {"choice": "Ulm"})
    assert "has been answered already" in said(open_page(client, at))
    page_of_it = open_page(client, "/capabilities/train_watch")
    assert "The Builder is at work, and is told this as well." in words_of(page_of_it)
    told = send(client, page_of_it, "/capabilities/train_watch/repair", {"wish": "And buses."})
    assert "The Builder is told as well: And buses." in words_of(open_page(client, told.headers["location"]))
    consent = partial(builds.queue.tell, "wb-1", id=consent_id("host=trains.example"), type="question")
    world.call(
        partial(consent, payload={"text": "May it connect to trains.example?", "options": ["yes", "no"]})
    )
    asked = open_page(client, at).cssselect(".ask")[0]
    assert [words_of(button) for button in asked.cssselect("button")] == ["yes", "no"]
    assert "The build waits for your answer." in words_of(asked)
    forged = send(client, page, f"{at}/answer", {"question": "q9", "answer": "x"})
    assert forged.status_code == 404
    world.call(partial(builds.queue.end, "wb-1", "failed", "The page wants a login."))
    world.call(partial(builds.catalogue.remove, capability))
    ended = open_page(client, at)
    assert "Failed" in words_of(ended)
    assert "data-running" not in ended.get_element_by_id("build").attrib
    send(client, answered, f"{at}/cancel")
    assert "has ended" in said(open_page(client, at))
    open_page(client, "/builds/none", 404)


@requirement("web-pages:build")
def test_a_build_request_that_is_refused_keeps_its_words(client: httpx2.Client) -> None:
    page = open_page(client, "/capabilities")
    for name, description, problem in (
        ("No Name!", "It says when the bins are emptied.", "can't be the name of a capability"),
        ("bin_days", "   ", "Describe what it should do."),
    ):
        refused = read(send(client, page, "/capabilities", {"name": name, "description": description}), 422)
        assert problem in words_of(refused.get_element_by_id("name-e"))
        assert refused.get_element_by_id("name").get("value") == name
        assert refused.get_element_by_id("want").text_content().strip() == description.strip()


@requirement("web-pages:hostile")
@pytest.mark.parametrize(
    "name",
    ["nothing", "..%2f..%2fetc", "%2e%2e", "%00", "<script>", "x" * 5000, "a/b", "%ff", "none%2frun"],
    ids=lambda name: name[:20],
)
def test_unknown_names_are_not_found(client: httpx2.Client, name: str) -> None:
    for path in (f"/capabilities/{name}", f"/capabilities/{name}/remove", f"/builds/{name}"):
        answer = client.get(path)
        assert answer.status_code in (404, 405, 422), (path, answer.status_code)
        assert "<script>" not in answer.text
    assert client.get("/capabilities/prices/runs/none/0").status_code == 404
    assert client.get("/capabilities/prices/runs/none/x").status_code in (404, 422)
