"""The browser tool, in a real Chromium, on pages of loopback."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from satchel.tools import Tool, ToolContext, ToolResult
from satchel.tools.web.addresses import AddressRules
from satchel.tools.web.browser import browser_tool
from satchel.tools.web.chromium import Chromium, find_chromium, has_playwright
from satchel.tools.web.gateway import Spawn
from tests.models.loopback import Answer, Asked, Loopback, loopback
from tests.requirements import requirement
from tests.tools.web.conftest import use

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not has_playwright() or find_chromium("", os.environ) is None,
        reason="the browser tool is NOT tested: it needs the package playwright and Chromium (apt-get install chromium)",
    ),
]

FORM = """<!doctype html><title>Order</title><h1>Order tea</h1>
<form action="/ordered"><label>Name <input name="name"></label>
<select name="kind" aria-label="Kind"><option value="g">Green</option><option value="b">Black</option></select>
<label><input type="checkbox" name="milk"> Milk</label><button>Send</button></form>
<script>document.querySelector('h1').textContent += ' today'</script>"""


def html(text: str) -> Answer:
    return Answer(kind="text/html; charset=utf-8", pieces=(text.encode(),))


def shop(asked: Asked) -> Answer:
    match asked.path.partition("?")[0]:
        case "/":
            return html(FORM)
        case "/ordered":
            return html(f"<title>Thanks</title><p>Ordered: {asked.path.partition('?')[2]}</p>")
        case _:
            return Answer(status=404, kind="text/plain", pieces=(b"nothing here",))


class World:
    """A browser tool that may reach one server, and a session's state that is closed at the end."""

    def __init__(self, tool: Tool, context: ToolContext) -> None:
        self._tool = tool
        self.context = context

    async def __call__(self, action: str, **input: Any) -> ToolResult:
        return await use(self._tool, self.context, action=action, **input)

    async def ref(self, role: str) -> str:
        line = next(line for line in (await self("read")).text.splitlines() if f"- {role}" in line)
        return line.partition("[ref=")[2].partition("]")[0]


def spawn_in(group: anyio.abc.TaskGroup) -> Spawn:
    def spawn(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        group.start_soon(function)

    return spawn


def world_for(server: Loopback, context: ToolContext, group: anyio.abc.TaskGroup) -> World:
    executable = find_chromium("", os.environ)
    assert executable is not None
    rules = AddressRules(allow_private=[f"127.0.0.1:{server.port}"])
    return World(browser_tool(rules, executable=executable, spawn=spawn_in(group)), context)


@pytest.fixture
async def group() -> AsyncIterator[anyio.abc.TaskGroup]:
    async with anyio.create_task_group() as group:
        yield group
        # What a test that failed left open must not keep the others waiting.
        group.cancel_scope.cancel()


@requirement("web:browser", "web:untrusted", "web:progress")
async def test_a_form_is_read_filled_and_sent(
    context: ToolContext, progress: list[Mapping[str, Any]], group: anyio.abc.TaskGroup
) -> None:
    async with loopback(shop) as server:
        browser = world_for(server, context, group)
        opened = await browser("open", url=server.url)
        assert opened.untrusted
        assert opened.text.startswith(f"Title: Order\nURL: {server.url}/\n\n")
        assert 'heading "Order tea today"' in opened.text
        typed = await browser("type", ref=await browser.ref('textbox "Name"'), text="Ann & Bob")
        assert "Ann & Bob" in typed.text
        await browser("select", ref=await browser.ref('combobox "Kind"'), text="Black")
        await browser("click", ref=await browser.ref('checkbox "Milk"'))
        sent = await browser("click", ref=await browser.ref('button "Send"'))
        assert sent.text.startswith("Title: Thanks\n")
        assert "Ordered: name=Ann+%26+Bob&kind=b&milk=on" in sent.text
        back = await browser("back")
        assert back.text.startswith("Title: Order\n")
        again = await browser("type", ref=await browser.ref('textbox "Name"'), text="Cy\n")
        assert "Ordered: name=Cy" in again.text
        shot = await browser("screenshot")
        closed = await browser("close")
        after = await browser("read")
    assert Path(shot.data["path"]).read_bytes().startswith(b"\x89PNG")
    assert Path(shot.data["path"]).parent == context.spill_dir
    assert closed.text == "The browser is closed."
    reported = [str(data["status"]) for data in progress]
    assert reported[:3] == ["starting the browser", "opening the page", "reading the page"]
    assert {"typing", "selecting", "clicking", "going back", "taking a screenshot"} <= set(reported)
    assert after.is_error
    assert context.state == {}


@requirement("web:browser", "web:fetch:private")
async def test_nothing_that_a_page_does_reaches_a_private_address(
    context: ToolContext, group: anyio.abc.TaskGroup
) -> None:
    async with loopback(lambda _: html("SECRET")) as secret:

        def trap(asked: Asked) -> Answer:
            match asked.path:
                case "/moved":
                    return Answer(status=302, headers={"location": f"{secret.url}/redirect"})
                case "/frames":
                    return html(
                        f"<title>Frames</title><iframe src='{secret.url}/frame'></iframe><img src='{secret.url}/img'>"
                        f"<a href='{secret.url}/link'>go</a>"
                        f"<script>fetch('{secret.url}/fetch', {{mode: 'no-cors'}}).catch(() => 0);"
                        f"new WebSocket('{secret.url.replace('http', 'ws')}/socket');</script>"
                    )
                case _:
                    return Answer(status=404)

        async with loopback(trap) as server:
            browser = world_for(server, context, group)
            frames = await browser("open", url=f"{server.url}/frames")
            assert frames.text.startswith("Title: Frames\n")
            assert "SECRET" not in frames.text
            clicked = await browser("click", ref=await browser.ref('link "go"'))
            moved = await browser("open", url=f"{server.url}/moved")
            direct = await browser("open", url=secret.url)
            file = await browser("open", url="file:///etc/passwd")
            await browser("close")
        assert secret.asked == []
    for result in (clicked, moved, direct):
        assert result.is_error
        assert "not a public address" in result.text
    assert file.is_error


@requirement("web:browser")
async def test_a_site_that_asks_for_a_password_does_not_get_the_gateways(
    context: ToolContext, group: anyio.abc.TaskGroup
) -> None:
    def site(asked: Asked) -> Answer:
        if asked.path == "/":
            return html("<title>Hello</title><img src='/locked'>")
        if asked.path == "/free":
            return html("<title>Free</title>")
        return Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="satchel"'})

    async with loopback(site) as server:
        browser = world_for(server, context, group)
        assert (await browser("open", url=server.url)).text.startswith("Title: Hello\n")
        # What the browser does about a page that it could not have must not come between it and the next.
        for _ in range(3):
            assert (await browser("open", url=f"{server.url}/locked")).is_error
            assert (await browser("open", url=f"{server.url}/free")).text.startswith("Title: Free\n")
        await browser("close")
        assert sum(asked.path == "/locked" for asked in server.asked) >= 4
        assert not any(
            {"authorization", "proxy-authorization"} & asked.headers.keys() for asked in server.asked
        )


async def test_what_is_missing_or_gone_is_said(context: ToolContext, group: anyio.abc.TaskGroup) -> None:
    async with loopback(shop) as server:
        browser = world_for(server, context, group)
        assert (await browser("read")).text == "No page is open. Open one with its url."
        assert (await browser("click")).text == "click needs ref."
        await browser("open", url=server.url)
        gone = await browser("click", ref="e999")
        assert gone.is_error
        assert "Read the page again" in gone.text
        assert (await browser("back")).is_error
        chromium: Chromium = context.state["browser"]
        assert chromium._browser is not None
        await chromium._browser.close()  # as when it crashed
        assert "Open one with its url" in (await browser("read")).text
        assert (await browser("open", url=server.url)).text.startswith("Title: Order\n")
        await browser("close")


async def test_a_program_that_is_no_browser_costs_an_error(
    context: ToolContext, group: anyio.abc.TaskGroup
) -> None:
    rules = AddressRules(allow_private=["127.0.0.1"])
    tool = browser_tool(rules, executable="/bin/false", spawn=spawn_in(group))
    result = await use(tool, context, action="open", url="http://127.0.0.1:9/")
    assert result.is_error
    assert "/bin/false could not be started" in result.text
    assert context.state == {}


async def test_a_long_page_comes_in_parts(context: ToolContext, group: anyio.abc.TaskGroup) -> None:
    rows = "".join(f"<p>row {number:05d}</p>" for number in range(3000))
    async with loopback(lambda _: html(f"<title>Long</title>{rows}")) as server:
        browser = world_for(server, context, group)
        first = await browser("open", url=server.url)
        assert "to continue, read with offset=20000]" in first.text
        second = await browser("read", offset=20_000)
        await browser("close")
    assert "row 00000" in first.text
    assert "row 00000" not in second.text
    assert second.untrusted
