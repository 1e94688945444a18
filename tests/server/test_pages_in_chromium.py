"""The pages of memories and capabilities in a real browser: with scripts, wide and on a phone."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from satchel.capabilities import Wanted
from satchel.errors import NoSandbox
from satchel.memory import Episode
from satchel.tools.web import find_chromium, has_playwright
from tests.capabilities.world import BY_BUILDER, GREET
from tests.requirements import requirement
from tests.server.browsers import WAIT_MS, logged_in_window
from tests.server.world import World, chat
from tests.tools.mcp.conftest import STRANGER

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.skipif(
    not has_playwright() or find_chromium("", os.environ) is None,
    reason="the pages are NOT tested in a browser: it needs the package playwright and Chromium (apt-get install chromium)",
)

SETTINGS = (
    "/settings",
    "/settings?section=memory",
    "/settings?section=memory&from=12",
    "/settings?section=sandbox",
    "/settings?q=a",
    "/settings/servers",
    "/settings/servers/good",
    "/settings/servers/good/edit",
    "/settings/permissions",
)
WITH_TARGETS = {"rules": {"target-size": {"enabled": True}}}
"""The rules that axe has on anyway, and that what is pressed is 24 pixels high, or as far from the next (WCAG 2.5.8)."""
LONG = "kvist-cykler-prøvestand-nordvestre-hal-5GHz-gæst-2026-" * 8


@pytest.fixture(scope="module")
def filled(world: World) -> dict[str, str]:
    """A home with odd words in it. Returns the ids and names that pages need."""

    async def fill() -> dict[str, str]:
        memory, parts = world.app.service.memory, world.satchel.capabilities
        assert parts is not None
        world.satchel.home.projects.create("Kitchen", instructions=LONG)
        fact = await memory.add("Nora is vegetarian: no meat, no fish.", tags=["food", LONG[:60]])
        [turn] = await memory.add_episodes(
            [Episode(session="dinners", turn=1, speaker="user", text="No salmon for me, please.")]
        )
        await memory.link(fact, turn, "derived_from")
        for other in (
            "我妹妹住在上海,她在一家做自行车电池的公司工作。",
            "أختي تسكن في القاهرة وتعمل في مستشفى الأطفال.",
            LONG,
        ):
            await memory.link(fact, await memory.add(other), "elaborates")
        await memory.add(
            "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script> said the page."
        )
        await parts.catalogue.request(Wanted(name="greet", description=f"{GREET.description} {LONG}"))
        made = await parts.registrar.register("greet", GREET, provenance=BY_BUILDER)
        return {"memory": fact, "capability": made.capability.name}

    path = world.home / "config.toml"
    path.write_text(
        f"[mcp_servers.good]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps([str(STRANGER), 'good', '.', 'x' * 60])}\n"
        + 'env = { STRANGER_KEY = "sk-good" }\n'
        + '[[permissions]]\naction = "allow"\ntool = "bash(git *)"\n'
    )
    try:
        found: dict[str, str] = world.call(fill)
    except NoSandbox as error:
        pytest.skip(f"THE PAGES WERE NOT OPENED IN A BROWSER: {error}")
    return found


@pytest.fixture(scope="module")
def logged_in(chromium: Browser, world: World) -> Iterator[BrowserContext]:
    """A window that is logged in."""
    context = logged_in_window(chromium, world)
    yield context
    context.close()


@pytest.fixture
def tab(logged_in: BrowserContext, world: World) -> Iterator[tuple[Page, list[str]]]:
    """A tab, and what went wrong in it: messages of its console, and requests to elsewhere."""
    page = logged_in.new_page()
    wrong: list[str] = []
    bad = ("error", "warning")
    # "[DOM]" begins what Chromium advises about forms with passwords.
    page.on("console", lambda m: wrong.append(m.text) if m.type in bad or "[DOM]" in m.text else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith((world.url, "data:")) else wrong.append(r.url))
    yield page, wrong
    page.close()


@requirement("web-pages:chromium")
def test_a_memory_is_found_corrected_and_forgotten_and_a_capability_run_from_its_form(
    world: World, tab: tuple[Page, list[str]], filled: dict[str, str]
) -> None:
    page, wrong = tab
    page.goto("memories")
    page.evaluate("window.notReloaded = true")
    page.get_by_label("Search memories").fill("vegetarian")
    page.keyboard.press("Enter")
    page.locator("#results").get_by_role("link", name="Nora is vegetarian").wait_for()
    page.locator(".found", has_text="best first").wait_for()
    assert page.evaluate("window.notReloaded")  # a part of the page was replaced
    assert "q=vegetarian" in page.url
    page.locator("#results").get_by_role("link", name="Nora is vegetarian").click()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Words").fill("Nora eats fish again.")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name="Nora eats fish again.").wait_for()
    page.get_by_text("Saved.").wait_for()
    page.locator("#sayings").get_by_role("button", name="Undo").click()
    page.get_by_role("heading", name="Nora is vegetarian: no meat, no fish.").wait_for()
    page.get_by_role("link", name="Forget…").click()
    page.get_by_text("It can’t be undone").wait_for()
    page.get_by_role("button", name="Forget for good").click()
    page.get_by_text("Forgotten: 1 memory").wait_for()
    page.goto("memories?q=vegetarian")
    page.get_by_role("heading", name="Nothing about").wait_for()

    page.goto(f"capabilities/{filled['capability']}")
    page.get_by_label("City").fill("<b>Ulm</b>")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Hello, <b>Ulm</b>!").wait_for()
    assert page.get_by_label("City").input_value() == "<b>Ulm</b>"
    assert wrong == []


@requirement("web-pages:chromium", "web-pages:settings:search")
def test_every_page_fits_a_wide_and_a_narrow_window_and_can_be_read_aloud(
    world: World, tab: tuple[Page, list[str]], filled: dict[str, str]
) -> None:
    from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415

    (page, wrong), axe = tab, Axe()

    async def again(words: str) -> str:
        memory = world.app.service.memory
        fact = await memory.add(words)
        for other in await memory.list(limit=6):
            if other.id != fact:
                await memory.link(fact, other.id, "related")
        return fact

    fact = world.call(partial(again, f"{LONG} is the name of the network."))
    for number in range(15):  # a page of long ones
        world.call(
            partial(
                world.app.service.memory.add,
                f"Pump {number} " + "must be oiled with the valve closed, and then " * 9,
            )
        )
    with world.client() as client:
        notes = world.home.parent / LONG[:100]
        notes.mkdir()
        (notes / "note.md").write_text("The network is slow.")
        assert client.post("/api/memory/folders", json={"path": str(notes)}).status_code == 200
        assert client.post("/api/memory/documents", json={"paths": [str(notes)]}).status_code == 200
    # What it advises of the login comes later, if at all.
    page.goto(f"{world.url}/login?ended=1")
    fields = "[...document.forms].filter((form) => !form.querySelector('[autocomplete=username]'))"
    assert page.evaluate(f"{fields}.length") == 0
    for path in (
        "/",
        "/sessions",
        "/setup",
        "/setup/ollama",
        "/memories",
        "/search?q=the",
        "/memories?q=network",
        "/memories?since=2000-01-01",
        f"/memories/{fact}?message=network",
        f"/memories/{fact}/forget",
        "/memories/recalled?message=which+network",
        "/memories/page",
        "/memories/documents",
        "/memories/review",
        "/memories/move",
        f"/memories/merge?ids={fact}",
        "/capabilities",
        f"/capabilities/{filled['capability']}",
        "/projects",
        f"/projects/{world.satchel.home.projects.all()[0].id}",
        "/usage",
        *SETTINGS,
        "/doctor",
    ):
        for width in (1280, 320, 390):  # 320: a page at 400 % on a wide window
            page.set_viewport_size({"width": width, "height": 800})
            if width == 1280:
                page.goto(path.removeprefix("/"))
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            if width == 320:
                continue
            assert page.evaluate("document.documentElement.scrollHeight") <= 5 * 800, path
            page.emulate_media(color_scheme="dark" if width == 1280 else "light", reduced_motion="reduce")
            found = axe.run(page, options=WITH_TARGETS).response["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], (path, width)
        assert page.title() != "run", path
    assert wrong == []


@requirement("web-pages:servers", "web-pages:rules")
def test_a_server_is_added_and_a_rule_removed_in_a_browser(world: World, tab: tuple[Page, list[str]]) -> None:
    from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415

    page, wrong = tab
    page.goto("settings/servers")
    page.locator("#p-name").fill("extra")
    page.get_by_label("Command").fill(f"'{sys.executable}' '{STRANGER}' good")
    page.get_by_role("button", name="Show what it runs").click()
    page.get_by_role("heading", name="Add extra?").wait_for()
    assert [one["id"] for one in Axe().run(page).response["violations"]] == []
    page.get_by_role("button", name="Save and test it").click()
    page.get_by_text("extra works: 1 tool").wait_for()
    page.get_by_text("Remove…").click()
    page.get_by_role("button", name="Remove extra").click()
    page.get_by_text("extra was removed").wait_for()
    page.goto("settings/permissions")
    page.get_by_label("Tool and pattern").fill("bash(make *)")
    page.get_by_role("button", name="Add rule").click()
    page.get_by_text("Added. Satchel may run").wait_for()
    page.get_by_role("button", name="Remove the rule allow bash(make *)").click()
    page.get_by_text("Removed, and no longer in force").wait_for()
    page.goto("settings")
    page.get_by_label("Search all settings").fill("locale")
    page.locator("#found").get_by_label("Where you live").wait_for()
    assert wrong == []


@requirement("web-pages:keyboard")
def test_the_keyboard_skips_to_the_content_and_leaves_a_menu(
    world: World, tab: tuple[Page, list[str]]
) -> None:
    page, wrong = tab
    with world.client() as client:
        chat(client, "The keys hang by the door.")
    page.goto("sessions")
    page.evaluate("window.notReloaded = true")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    first = page.locator("main").get_by_role("link", name="Import from ChatGPT, Claude and others")
    assert first.evaluate("link => link === document.activeElement")  # the first in the content
    assert page.evaluate("window.notReloaded")
    menu = page.locator("details.menu").first
    menu.locator("summary").press("Enter")
    page.keyboard.press("Tab")
    assert menu.evaluate("menu => menu.open && menu.contains(document.activeElement)")
    page.keyboard.press("Escape")
    assert menu.evaluate("menu => !menu.open && document.activeElement === menu.firstElementChild")
    menu.locator("summary").press("Enter")
    page.keyboard.press("Shift+Tab")
    assert not menu.evaluate("menu => menu.open")  # it would cover what has the focus now
    page.set_viewport_size({"width": 390, "height": 800})
    page.get_by_role("button", name="Menu").press("Enter")
    rail = page.locator("#rail:popover-open")
    rail.get_by_role("button", name="Log out everywhere").focus()
    page.keyboard.press("Tab")
    rail.wait_for(state="detached")
    assert first.evaluate("link => link === document.activeElement")
    page.set_viewport_size({"width": 1280, "height": 800})
    # A part of the page that was replaced is still another address, which Back leaves.
    page.get_by_label("Search what was said").fill("keys")
    page.wait_for_url("**/sessions?q=keys")
    page.go_back()
    page.locator("#many").wait_for()
    assert wrong == []
    # A form that was refused has the focus where it is wrong.
    page.goto("setup")
    page.get_by_label("Address", exact=True).fill("127.0.0.1:1")
    page.keyboard.press("Enter")
    page.get_by_text("cannot be reached").wait_for()
    assert page.evaluate("document.activeElement.id") == "base_url"


@requirement("web-pages:login:place")
def test_a_service_on_another_port_gets_no_login_and_the_plain_address_leads_home(
    chromium: Browser, world: World
) -> None:
    got: list[dict[str, str]] = []

    class Neighbour(BaseHTTPRequestHandler):
        """Another service on this machine, which keeps what browsers send it."""

        def do_GET(self) -> None:
            got.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
            self.send_response(200)
            self.send_header("content-type", "text/html")
            # A cookie of this name from here must not take the place of ours.
            self.send_header("set-cookie", f"satchel_{world.url.rpartition(':')[2]}=theirs; Path=/")
            self.end_headers()
            self.wfile.write(
                f"<a href='{world.url}/memories'>go</a><img src='{world.url}/memories'>".encode()
            )

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    neighbour = ThreadingHTTPServer(("127.0.0.1", 0), Neighbour)
    threading.Thread(target=neighbour.serve_forever, daemon=True).start()
    context = chromium.new_context()
    context.set_default_timeout(WAIT_MS)
    try:
        page = context.new_page()
        page.goto(f"{world.url}/login?code={world.app.browsers.make_code()}&next=/memories")
        page.get_by_role("heading", name="Memories", exact=True).wait_for()
        place = re.fullmatch(rf"{re.escape(world.url)}(/s/[0-9a-f]{{32}})/memories", page.url)
        assert place is not None
        # The user goes from our page to a page of theirs, which opens an address of ours.
        page.evaluate("url => { location.href = url }", f"http://127.0.0.1:{neighbour.server_port}/visited")
        page.get_by_role("link", name="go").wait_for()
        # The plain address, from there and by hand: the browser is led to its place.
        page.get_by_role("link", name="go").click()
        page.wait_for_url(f"{world.url}{place[1]}/memories")
        page.goto(f"{world.url}/usage")
        page.wait_for_url(f"{world.url}{place[1]}/usage")
        sent = [cookie.get("value", "") for cookie in context.cookies(page.url)]
        # When it has logged out, its old address leads to the login page and not round in circles.
        page.get_by_role("button", name="Log out", exact=True).click()
        page.get_by_label("Token").wait_for()
        page.goto(f"{world.url}{place[1]}/usage")
        page.get_by_label("Token").wait_for()
        assert page.url == f"{world.url}/login?ended=1&next=/usage"
    finally:
        context.close()
        neighbour.shutdown()
        neighbour.server_close()
    assert "/visited" in [each["path"] for each in got]
    values = set(sent) - {"theirs"}
    assert len(values) == 1
    assert not [secret for secret in (*values, place[1]) if secret in str(got)]
