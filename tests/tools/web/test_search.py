"""web_search: several engines behind one port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from ddgs.ddgs import DDGS

from satchel.tools import ToolContext
from satchel.tools.web.engines import DuckDuckGo, Engine, brave, searxng, tavily, usable_engines
from satchel.tools.web.search import search_tool
from tests.models.loopback import Answer, Loopback, as_json, loopback
from tests.requirements import requirement
from tests.tools.web.conftest import use

pytestmark = pytest.mark.anyio

ANSWERS = {
    "searxng": {
        "results": [{"url": "https://a.example/", "title": "A", "content": "About  a."}, {"title": "no url"}]
    },
    "brave": {"web": {"results": [{"url": "https://a.example/", "title": "A", "description": "About a."}]}},
    "tavily": {"results": [{"url": "https://a.example/", "title": "A", "content": "About a.", "score": 0.9}]},
}


def engine(name: str, server: Loopback) -> Engine:
    match name:
        case "searxng":
            return searxng(server.url + "/")
        case "brave":
            return brave("key-b", url=server.url + "/res/v1/web/search")
        case _:
            return tavily("key-t", url=server.url + "/search")


@requirement("web:progress")
async def test_a_search_reports_which_engine_is_asked_and_how_many_results_it_found(
    context: ToolContext, progress: list[Mapping[str, Any]]
) -> None:
    down = Answer(status=500)
    async with loopback([down, as_json(ANSWERS["tavily"])]) as server:
        engines = [engine("searxng", server), engine("tavily", server)]
        await use(search_tool(engines), context, query="what is a?")
    assert progress == [
        {"status": "searching", "engine": "searxng"},
        {"status": "searching", "engine": "tavily"},
        {"status": "found", "engine": "tavily", "count": 1},
    ]


@requirement("web:search", "web:untrusted")
@pytest.mark.parametrize("name", ANSWERS)
async def test_every_engine_gives_the_same_form_and_it_is_marked_as_from_outside(
    name: str, context: ToolContext
) -> None:
    async with loopback([as_json(ANSWERS[name])]) as server:
        result = await use(search_tool([engine(name, server)]), context, query="what is a?", limit=3)
    assert result.text == "1. A\n   https://a.example/\n   About a."
    assert result.data == [{"url": "https://a.example/", "title": "A", "text": "About a."}]
    assert result.untrusted
    asked = server.asked[0]
    match name:
        case "searxng":
            assert asked.path == "/search?q=what+is+a%3F&format=json"
        case "brave":
            assert asked.path == "/res/v1/web/search?q=what+is+a%3F&count=3"
            assert asked.headers["x-subscription-token"] == "key-b"
        case _:
            assert asked.body == {"query": "what is a?", "max_results": 3}
            assert asked.headers["authorization"] == "Bearer key-t"


@requirement("web:search")
async def test_duckduckgo_is_asked_through_its_library(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def text(self: DDGS, query: str, **options: Any) -> list[dict[str, str]]:
        assert (query, options) == ("a", {"max_results": 2, "backend": "duckduckgo"})
        return [{"href": "https://a.example/", "title": "A", "body": "About a."}]

    monkeypatch.setattr(DDGS, "text", text)
    result = await use(search_tool([DuckDuckGo()]), context, query="a", limit=2)
    assert result.text == "1. A\n   https://a.example/\n   About a."


@requirement("web:search")
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(status=403, pieces=(b"no",)), "refused the key in BRAVE_API_KEY"),
        (Answer(status=429), "rejected the request"),
        (Answer(status=500, pieces=(b"oh",)), "answered with status 500"),
        (Answer(kind="application/json", pieces=(b"<html>",)), "did not answer with JSON"),
        (Answer(kind="application/json", pieces=(b"[" * 100_000,)), "did not answer with JSON"),
        (as_json([1]), "JSON of another form"),
        (as_json({"web": {"results": 7}}), "JSON of another form"),
        (Answer(kind="application/json", pieces=[b"x" * 100_000] * 50), "more than 4,000,000 bytes"),
    ],
)
async def test_a_failing_engine_is_reported_and_the_next_one_is_used(
    answer: Answer, says: str, context: ToolContext
) -> None:
    async with loopback([answer, answer]) as broken, loopback([as_json(ANSWERS["tavily"])]) as works:
        first = engine("brave", broken)
        both = await use(search_tool([first, engine("tavily", works)]), context, query="a")
        alone = await use(search_tool([first]), context, query="a")
    assert not both.is_error
    assert "https://a.example/" in both.text
    assert says in both.text
    assert alone.is_error
    assert says in alone.text


async def test_nothing_found_is_no_error(context: ToolContext) -> None:
    async with loopback([as_json({"results": []}), as_json({})]) as server:
        result = await use(search_tool([engine("searxng", server)]), context, query="a")
    assert not result.is_error
    assert result.text == "searxng found nothing for 'a'."


@requirement("web:search")
@pytest.mark.parametrize(
    ("url", "keys", "wanted", "expected"),
    [
        ("", {}, "auto", ["duckduckgo"]),
        ("http://127.0.0.1:8080", {"TAVILY_API_KEY": "t"}, "auto", ["searxng", "tavily", "duckduckgo"]),
        ("", {"BRAVE_API_KEY": "b"}, "auto", ["brave", "duckduckgo"]),
        ("", {"BRAVE_API_KEY": "b"}, "tavily", []),
        ("", {"BRAVE_API_KEY": "b", "TAVILY_API_KEY": "t"}, "tavily", ["tavily"]),
    ],
)
def test_the_engines_that_are_set_up_are_used_in_their_order(
    url: str, keys: dict[str, str], wanted: str, expected: Sequence[str]
) -> None:
    found = usable_engines(searxng_url=url, secret=keys.get, wanted=wanted)
    assert [entry.name for entry in found if entry.engine is not None] == expected
    assert all(entry.text for entry in found)
