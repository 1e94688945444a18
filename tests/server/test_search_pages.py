"""One search over everything, a conversation as a file for others, and what phones need."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, Page

from satchel.errors import StorageError
from satchel.memory import Episode
from tests.requirements import requirement
from tests.server.browsers import browser, logged_in_window, open_page, words_of
from tests.server.test_attachments import PNG, sent
from tests.server.world import World, chat


@pytest.fixture
def page_client(world: World) -> Iterator[httpx2.Client]:
    with browser(world) as client:
        yield client


def groups_of(page: Any) -> dict[str, list[tuple[str, str]]]:
    """The results by kind: where each leads, without the browser's place, and its words."""
    return {
        words_of(part.cssselect("h2")[0]): [
            (re.sub(r"^/s/\w+", "", link.get("href")), words_of(link)) for link in part.cssselect("a.said")
        ]
        for part in page.cssselect("#everything section")
    }


@requirement("web-pages:search")
def test_one_search_finds_conversations_memories_documents_and_settings(
    world: World, client: httpx2.Client, page_client: httpx2.Client
) -> None:
    memory = world.satchel.memory
    assert memory is not None
    id = chat(client, "The zephyr valve of the boiler leaks.")[0].data["sessionId"]
    kept = world.call(memory.add, "The zephyr valve was replaced in May.")
    store = partial(memory.put_document, title="Manual", digest="d" * 64, written_at="2026-05-01")
    world.call(store, "/notes/manual.md", [(1, "", "Zephyr valves open at 3 bar.")])
    found = groups_of(open_page(page_client, "/search?q=zephyr+valve"))
    assert (f"/chat/{id}", "The zephyr valve of the boiler leaks.") in found["Conversations"]
    assert (f"/memories/{kept}", "The zephyr valve was replaced in May.") in found["Memories"]
    assert [words for _, words in found["Documents"]] == [
        "Manual (manual.md, page 1) Zephyr valves open at 3 bar."
    ]
    told = {group["name"]: group["results"] for group in client.get("/api/search?q=zephyr+valve").json()}
    assert told["Memories"][0]["path"] == f"/memories/{kept}"
    assert list(told) == ["Conversations", "Memories", "Documents"]
    # What models said, however often, is found among the conversations and hides no memory.
    answers = [
        Episode(session="chatgpt:valves", turn=turn, speaker="assistant", text="Zephyr valve, zephyr valve.")
        for turn in range(1, 80)
    ]
    world.call(memory.add_episodes, answers)
    assert [path for path, _ in groups_of(open_page(page_client, "/search?q=zephyr+valve"))["Memories"]] == [
        path for path, _ in found["Memories"]
    ]
    settings = groups_of(open_page(page_client, "/search?q=day+dollars"))["Settings"]
    assert ("/settings?q=budget.day_usd", "Most that a day may cost, in dollars") in settings
    assert ("/usage", "Usage") in groups_of(open_page(page_client, "/search?q=cost"))["Settings"]
    assert "Nothing about" in words_of(open_page(page_client, "/search?q=qqqqzz"))


@requirement("web-pages:search")
def test_a_kind_that_can_not_be_searched_says_so_and_the_others_are_shown(
    world: World, client: httpx2.Client, page_client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise StorageError("The database is away.")

    chat(client, "A walrus came by.")
    monkeypatch.setattr(world.satchel.memory, "search", fail)
    page = open_page(page_client, "/search?q=walrus")
    assert groups_of(page)["Conversations"]
    assert "The database is away." in words_of(page.cssselect("#everything")[0])


@requirement("web-pages:search")
def test_control_k_searches_while_one_types_and_the_arrow_keys_lead_to_a_result(
    world: World, client: httpx2.Client, chromium: Browser
) -> None:
    id = chat(client, "The ocelot sleeps on the radiator.")[0].data["sessionId"]
    with logged_in_window(chromium, world) as window:
        page = window.new_page()
        page.goto("./")
        page.keyboard.press("Control+k")
        page.keyboard.type("ocelot")
        page.wait_for_selector("dialog #everything a.said")
        page.keyboard.type("x")  # for which nothing is there yet
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.value") == "ocelotx"
        page.keyboard.press("Backspace")
        page.keyboard.press("Enter")  # the best, as soon as it is there
        page.wait_for_url(f"**/chat/{id}*")
        page.keyboard.press("Control+k")
        page.keyboard.type("ocelot")
        page.wait_for_selector("dialog #everything:not([aria-busy]) a.said")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.className") == "said"
        page.keyboard.press("Escape")
        # Who has closed the search is led nowhere by what comes late.
        page.evaluate("addEventListener('click', () => { window.led = true })")
        page.keyboard.press("Control+k")
        page.keyboard.type("ocelots")
        page.keyboard.press("Backspace")
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog #everything:not([aria-busy]) a.said", state="attached")
        assert page.evaluate("window.led") is None
        # Nor is who gets no answer led to what was found before.
        page.keyboard.press("Control+k")
        page.route("**/search?*", lambda route: route.abort())
        page.keyboard.type("ocelo")
        page.wait_for_selector("dialog #everything:has-text('does not answer')")
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog #everything:not([aria-busy]):has-text('does not answer')")
        assert page.evaluate("window.led") is None
        page.unroute("**/search?*")
        page.keyboard.press("Enter")  # asks again
        page.wait_for_selector("dialog[open]", state="detached")
        page.wait_for_url(f"**/chat/{id}*")
        page.locator("h1").click()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.closest('dialog') !== null")
        page.keyboard.type("radiator")
        page.keyboard.press("Escape")
        assert page.locator("dialog[open]").count() == 0  # once is enough, also with words in the field
        page.focus("#message")
        page.keyboard.press("/")
        assert page.input_value("#message") == "/"


@requirement("sessions:shared-file")
def test_a_shared_file_has_what_was_said_and_pictures_and_nothing_that_is_private(
    world: World, client: httpx2.Client, page_client: httpx2.Client
) -> None:
    memory = world.satchel.memory
    assert memory is not None
    world.call(memory.add, "The secret lagoon is behind the mill.")
    picture = sent(client, PNG, "lagoon.png")
    id = chat(client, "Is the <lagoon> behind the mill? $x^2$", attachments=[picture])[0].data["sessionId"]
    answer = page_client.get(f"/sessions/{id}/export?form=html")
    assert "Is%20the%20%3Clagoon%3E" in answer.headers["content-disposition"]  # its title
    text = answer.text
    assert "Is the &lt;lagoon&gt; behind the mill?" in text
    assert 'src="data:image/png;base64,' in text
    assert "default-src 'none'; img-src data:" in text
    assert "secret lagoon" not in text
    assert not re.findall(r"<script|<link|https?:|/s/\w{32}|url\(", text)
    asked = chat(client, "Ask me something.")[0].data["sessionId"]
    assert page_client.get(f"/sessions/{asked}/export?form=html").text.count("Which city?") == 1
    assert "Share as a file" in page_client.get(f"/chat/{id}").text


@requirement("sessions:shared-file")
def test_a_shared_file_uses_the_width_of_the_window(
    client: httpx2.Client, page_client: httpx2.Client, chromium: Browser
) -> None:
    id = chat(client, "Is the lagoon behind the mill? " * 4)[0].data["sessionId"]
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.set_content(page_client.get(f"/sessions/{id}/export?form=html").text)
    box = page.locator(".you").bounding_box()
    page.close()
    assert box is not None
    assert box["width"] > 500


def shares(page: Page, origin: str) -> None:
    """Do what a phone does when another app shares a file and words with the pages."""
    page.evaluate(
        """origin => {
            const form = document.createElement("form");
            Object.assign(form, { method: "post", enctype: "multipart/form-data", action: `${origin}/share` });
            for (const [name, value] of [["title", "A page"], ["text", "Look"], ["url", "example.org/x"]])
                form.append(Object.assign(document.createElement("input"), { name, value }));
            const chosen = new DataTransfer();
            chosen.items.add(new File(["shared bytes"], "shared.txt", { type: "text/plain" }));
            const files = Object.assign(document.createElement("input"), { type: "file", name: "files" });
            files.files = chosen.files;
            form.append(files);
            document.body.append(form);
            form.submit();
        }""",
        origin,
    )


def uploads(world: World) -> int:
    folder = Path(world.home, "uploads")
    return len(list(folder.iterdir())) if folder.exists() else 0


@requirement("web-pages:phone")
def test_what_another_app_shares_waits_in_the_field_and_no_file_is_sent_without_a_click(
    world: World, chromium: Browser
) -> None:
    with logged_in_window(chromium, world) as window:
        page = window.new_page()
        page.goto("./sessions")
        page.evaluate("navigator.serviceWorker.ready.then(() => null)")
        shares(page, world.url)
        page.get_by_role("button", name="Attach", exact=True).and_(page.locator("#told button")).wait_for()
        page.wait_for_function("message.value === 'A page\\nLook\\nexample.org/x'")
        assert page.locator("#attached li").count() == 0
        assert uploads(world) == 0
        page.locator("#told button").click()
        page.wait_for_selector("#attached input[name=attached]", state="attached")
        assert "shared.txt" in page.inner_text("#attached")
        page.wait_for_function("async () => !(await caches.keys()).length")
        page.locator("form[action$='/logout'] button").click()
        page.wait_for_url("**/login*")
        page.wait_for_function("async () => !(await navigator.serviceWorker.getRegistrations()).length")


@requirement("web-pages:phone")
def test_the_server_itself_takes_nothing_that_is_shared(world: World, page_client: httpx2.Client) -> None:
    before = uploads(world)
    for url in (f"{world.url}/share", "/share"):
        answer = page_client.post(url, files={"files": ("a.txt", b"a")}, headers={"origin": world.url})
        assert answer.status_code in (401, 403)
    assert uploads(world) == before


@requirement("web-pages:phone")
def test_the_pages_are_installable_and_have_targets_for_a_finger(world: World, chromium: Browser) -> None:
    with logged_in_window(chromium, world, viewport={"width": 390, "height": 800}, has_touch=True) as window:
        page = window.new_page()
        page.goto("./?message=Look")
        assert page.input_value("#message") == "Look"
        devtools = window.new_cdp_session(page)
        manifest = devtools.send("Page.getAppManifest")
        assert manifest["errors"] == []
        assert json.loads(manifest["data"])["share_target"]["action"] == "/share"
        errors = devtools.send("Page.getInstallabilityErrors")["installabilityErrors"]
        icons = {
            icon["sizes"]: window.request.get(
                f"{world.url}{urlsplit(manifest['url']).path.rpartition('/')[0]}/{icon['src']}"
            )
            for icon in json.loads(manifest["data"])["icons"]
        }
        assert {size: icon.headers["content-type"] for size, icon in icons.items()} == {
            "any": "image/svg+xml",
            "192x192": "image/png",
            "512x512": "image/png",
        }
        # A test's window keeps nothing, which is the only reason.
        assert [error["errorId"] for error in errors] == ["in-incognito"]
        low = page.eval_on_selector_all(
            ".composer :is(button, select, label):not([hidden])",
            "all => all.map(e => [e.textContent, e.offsetHeight]).filter(([, h]) => h > 1 && h < 44)",
        )
        assert low == []
        page.click("header.bar >> text=Search")
        page.wait_for_url("**/search")
