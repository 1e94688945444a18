"""web_fetch: pages within limits, as text."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from satchel.config import RuleAction
from satchel.tools import ModeGate, PlannedCall, Tool, ToolContext, parse_rule
from satchel.tools.web.addresses import AddressRules
from satchel.tools.web.fetch import fetch_tool
from satchel.tools.web.fetching import Fetcher
from tests.models.loopback import Answer, Asked, Loopback, loopback
from tests.requirements import requirement
from tests.tools.web.conftest import use

pytestmark = pytest.mark.anyio

PAGE = """<!doctype html><html><head><title>Tides at Kerry</title><script>steal()</script></head><body>
<nav><a href="/">Home</a></nav><article><h1>Tides at Kerry</h1><p>High water comes twice a day on this coast, and the
spring tides are highest in March. See <a href="/table">the table</a>.</p><p>Boats leave from the old pier two hours
before high water, and come back with the ebb in the evening.</p></article></body></html>"""


def tool_for(server: Loopback, **limits: Any) -> Tool:
    return fetch_tool(Fetcher(AddressRules(allow_private=[f"127.0.0.1:{server.port}"]), **limits))


def page(text: str | bytes, kind: str = "text/html; charset=utf-8", **headers: str) -> Answer:
    body = text.encode() if isinstance(text, str) else text
    return Answer(kind=kind, pieces=(body,), headers=headers)


def moved(to: str, status: int = 302) -> Answer:
    return Answer(status=status, headers={"location": to})


@requirement("web:fetch", "web:untrusted")
async def test_a_page_is_read_as_text_with_its_title_and_address_and_marked_as_from_outside(
    context: ToolContext,
) -> None:
    async with loopback([page(PAGE)]) as server:
        result = await use(tool_for(server), context, url=f"{server.url}/kerry#tides")
    assert not result.is_error
    assert result.untrusted
    assert result.text.startswith(f"Title: Tides at Kerry\nURL: {server.url}/kerry (redirected from")
    assert "High water comes twice a day" in result.text
    assert "steal" not in result.text
    asked = server.asked[0]
    assert asked.headers["host"] == f"127.0.0.1:{server.port}"
    assert "cookie" not in asked.headers
    assert asked.headers["accept-encoding"] == "gzip"


@requirement("web:progress")
async def test_fetching_reports_when_the_page_is_there_and_how_long_it_is(
    context: ToolContext, progress: list[Mapping[str, Any]]
) -> None:
    async with loopback([page("twelve bytes", "text/plain")]) as server:
        await use(tool_for(server), context, url=server.url)
    assert progress == [{"status": "fetching"}, {"status": "reading", "bytes": 12}]


@requirement("web:fetch")
async def test_a_long_text_comes_in_parts_of_one_fetch(context: ToolContext) -> None:
    text = "".join(f"{number:09d}\n" for number in range(4500))
    async with loopback([page(text, "text/plain")]) as server:
        tool, url = tool_for(server), f"{server.url}/long.txt"
        first = await use(tool, context, url=url)
        assert "Characters 0 to 20,000 of 45,000; to continue: offset=20000" in first.text
        last = await use(tool, context, url=url, offset=40_000)
        assert "Characters 40,000 to 45,000 of 45,000; this is the end" in last.text
        beyond = await use(tool, context, url=url, offset=45_000)
    assert last.data["text"] == text[40_000:]
    assert beyond.is_error
    assert len(server.asked) == 1


@requirement("web:fetch:private")
@pytest.mark.parametrize(
    "to",
    [
        "http://127.0.0.1:1/",
        "http://169.254.169.254/latest/",
        "http://[::1]:1/",
        "//localhost:1/",
        "http://2130706433:1/",
    ],
)
async def test_a_redirect_to_a_private_address_is_refused(to: str, context: ToolContext) -> None:
    async with loopback([moved(to)]) as server:
        result = await use(tool_for(server), context, url=server.url)
    assert result.is_error
    assert "not a public address" in result.text


@pytest.mark.parametrize("to", ["file:///etc/passwd", "javascript:alert(1)", "http://[::1"])
async def test_a_redirect_to_what_is_no_page_is_an_error(to: str, context: ToolContext) -> None:
    async with loopback([moved(to)]) as server:
        result = await use(tool_for(server), context, url=server.url)
    assert result.is_error


@requirement("web:untrusted:asked")
async def test_in_a_session_that_read_something_from_outside_no_redirect_leads_to_another_host(
    context: ToolContext,
) -> None:
    def answer(asked: Asked) -> Answer:
        return (
            page("There.", "text/plain") if asked.path == "/there" else moved(asked.path[1:] or "/there", 307)
        )

    async with loopback(answer) as server, loopback([page("Elsewhere.", "text/plain")]) as other:
        tool = fetch_tool(Fetcher(AddressRules(allow_private=["127.0.0.1"])))
        context.untrusted = True
        inside = await use(tool, context, url=server.url)
        outside = await use(tool, context, url=f"{server.url}/{other.url}/?secret")
        context.untrusted = False
        before = await use(tool, context, url=f"{server.url}/{other.url}/?secret")
    assert (inside.is_error, outside.is_error, before.is_error) == (False, True, False)
    assert "redirects to another host" in outside.text
    assert len(other.asked) == 1


async def test_redirects_are_followed_and_reported_up_to_a_limit(context: ToolContext) -> None:
    def answer(asked: Asked) -> Answer:
        return page("There.", "text/plain") if asked.path == "/there" else moved("/there", 307)

    async with loopback(answer) as server:
        result = await use(tool_for(server), context, url=server.url)
        assert f"URL: {server.url}/there (redirected from {server.url})\n\nThere." in result.text
    async with loopback(lambda _: moved("/again")) as server:
        result = await use(tool_for(server), context, url=server.url)
        assert "redirects more than 5 times" in result.text
        assert len(server.asked) == 6


@requirement("web:fetch")
async def test_of_a_body_without_end_the_first_part_is_read(context: ToolContext) -> None:
    async with loopback([Answer(kind="text/plain", pieces=[b"x" * 65_536] * 800)]) as server:
        result = await use(tool_for(server), context, url=server.url)
    assert result.data["characters"] == 10_000_000
    assert result.data["is_cut"]
    assert "its end is missing" in result.text


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_bomb_is_unpacked_no_further_than_the_limit(
    pack: Callable[[bytes], bytes], context: ToolContext
) -> None:
    encoding = "gzip" if pack is gzip.compress else "deflate"
    bomb = pack(b"0" * 100_000_000)
    async with loopback([page(bomb, "text/plain", **{"content-encoding": encoding})]) as server:
        result = await use(tool_for(server, max_bytes=1_000_000), context, url=server.url)
    assert result.data["characters"] == 1_000_000
    assert result.data["is_cut"]


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "zstd"])
async def test_a_packing_that_was_not_asked_for_is_an_error(encoding: str, context: ToolContext) -> None:
    async with loopback([page(b"x", **{"content-encoding": encoding})]) as server:
        result = await use(tool_for(server), context, url=server.url)
    assert result.is_error
    assert "not requested" in result.text


async def test_a_body_that_only_claims_to_be_packed_is_an_error(context: ToolContext) -> None:
    async with loopback([page(b"plain", **{"content-encoding": "gzip"})]) as server:
        result = await use(tool_for(server), context, url=server.url)
    assert "can't be decompressed" in result.text


@requirement("web:fetch")
async def test_a_server_that_drips_is_left_when_the_time_is_up(context: ToolContext) -> None:
    never = Answer(kind="text/plain", pieces=(b"a", b"b"), hold=anyio.Event())
    async with loopback([never]) as server:
        result = await use(tool_for(server, timeout_s=0.2), context, url=server.url)
    assert result.is_error
    assert "did not answer completely within 0.2 s" in result.text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("Grüße aus Köln".encode(), "text/plain"),
        ("Grüße aus Köln".encode("latin-1"), "text/plain; charset=iso-8859-1"),
        ("Grüße aus Köln".encode(), "text/plain; charset=no-such-charset"),
        ("Grüße aus Köln".encode("utf-16"), 'text/plain; charset="utf-16"'),
    ],
)
async def test_text_is_decoded_as_it_says_or_else_as_it_looks(
    body: bytes, kind: str, context: ToolContext
) -> None:
    async with loopback([page(body, kind)]) as server:
        result = await use(tool_for(server), context, url=server.url)
    assert result.data["text"] == "Grüße aus Köln"


def pdf_saying(words: str) -> bytes:
    writer = PdfWriter()
    sheet = writer.add_blank_page(width=300, height=100)
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    sheet[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F1"): writer._add_object(font)})}
    )
    content = DecodedStreamObject()
    content.set_data(f"BT /F1 12 Tf 10 50 Td ({words}) Tj ET".encode())
    sheet[NameObject("/Contents")] = writer._add_object(content)
    writer.add_metadata({"/Title": "A report"})
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


@requirement("web:fetch")
async def test_a_pdf_is_read_whatever_it_is_called(context: ToolContext) -> None:
    async with loopback([page(pdf_saying("Rainfall was low"), "application/octet-stream")]) as server:
        result = await use(tool_for(server), context, url=server.url)
    assert result.text.startswith("Title: A report\n")
    assert result.data["text"] == "[page 1]\nRainfall was low"


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (b"%PDF-1.4 and then nothing", "application/pdf", "can't be read"),
        (b"\x89PNG\r\n\0\0", "image/png", "has no text to read"),
        (b"\0\1\2", "", "has no text to read"),
        (b"<html><body><script>render()</script></body></html>", "text/html", "no text without its scripts"),
        (b"<html>" + b"<div>" * 100_000, "text/html", "no text without its scripts"),
    ],
)
async def test_what_has_no_text_is_an_error_that_says_what_it_is(
    body: bytes, kind: str, says: str, context: ToolContext
) -> None:
    async with loopback([page(body, kind)]) as server:
        result = await use(tool_for(server), context, url=server.url)
    assert result.is_error
    assert says in result.text


async def test_a_parser_that_takes_too_long_is_ended_with_its_process(context: ToolContext) -> None:
    context.timeout_s = 0.1  # less than the second that a parser always gets, so that it gets no more
    async with loopback([page("<html>" + "<p>word word word word</p>" * 300_000)]) as server:
        result = await use(tool_for(server), context, url=server.url)
    assert result.is_error
    assert "could not be read within 1 s" in result.text


@pytest.mark.parametrize(
    ("action", "rule", "url", "runs"),
    [
        ("allow", "web_fetch(https://docs.example/*)", "https://docs.example/a?b=1&c=2;d#$(e)", True),
        ("allow", "web_fetch(https://docs.example/*)", "https://other.example/", False),
        ("allow", "web_fetch(https://docs.example/*)", "https://docs.example.evil/", False),
        ("allow", "web_fetch", "https://other.example/", True),
        ("deny", "web_fetch(https://docs.example/*)", "HTTPS://Docs.Example", False),
        ("deny", "web_fetch(https://docs.example/*)", "https://other.example/", True),
    ],
)
async def test_a_rule_is_compared_with_the_address_as_it_is(
    action: RuleAction, rule: str, url: str, runs: bool
) -> None:
    spec = fetch_tool(Fetcher(AddressRules())).spec
    gate = ModeGate(
        "ask" if action == "allow" else "auto", rules=[parse_rule(action, rule)], cwd=Path("/tmp")
    )
    call = PlannedCall(call_id="c", spec=spec, input={"url": url})
    (decision,) = await gate.decide([call])
    assert decision.allowed is runs
    (suggested,) = gate.suggest(call)
    again = ModeGate("ask", rules=[parse_rule("allow", suggested)], cwd=Path("/tmp"))
    assert (await again.decide([call]))[0].allowed or "/" not in url.partition("://")[2]


async def test_an_error_page_is_shown_as_one(context: ToolContext) -> None:
    async with loopback([Answer(status=404, kind="text/plain", pieces=(b"no such page",))]) as server:
        result = await use(tool_for(server), context, url=server.url)
    assert result.is_error
    assert result.untrusted
    assert "status 404" in result.text
    assert "no such page" in result.text


async def test_a_host_that_nobody_answers_at_is_an_error(context: ToolContext) -> None:
    tool = fetch_tool(Fetcher(AddressRules(allow_private=["127.0.0.1"])))
    result = await use(tool, context, url="http://127.0.0.1:9/")
    assert result.is_error
    assert "could not be fetched" in result.text
