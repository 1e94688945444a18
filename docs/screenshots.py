"""Takes the pictures in docs/images: starts a server on sample data and a scripted model, and opens its pages.

Run it with `make screenshots`; `make screenshots ARGS="chat sessions"` chooses pages, and ARGS="--every FOLDER" takes all
pages at 390, 1280 and 1920 pixels, light and dark. It needs the package playwright and Chromium. Any error on a page's console, any request to elsewhere and any page that is wider than its window ends it.

The user, her words and her files are invented.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Final

import anyio
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from satchel.capabilities import Provenance, Wanted
from satchel.capabilities.package import Draft
from satchel.clock import ManualClock
from satchel.config import load
from satchel.events import BuildPosted
from satchel.memory import Episode
from satchel.messages import Usage
from satchel.models import Call, ModelRequest, Reply, ScriptedModel
from satchel.models.embedding import fetch_weights
from satchel.runtime import Satchel
from satchel.server.listening import served
from satchel.server.open_sessions import OpenSessions
from satchel.tools.web.chromium import find_chromium

IMAGES: Final = Path(__file__).parent / "images"
WIDE: Final = (1280, 900)
WIDEST: Final = (1920, 1080)
PHONE: Final = (390, 844)
NOW: Final = datetime(2026, 11, 20, 9, 46, tzinfo=timezone(timedelta(hours=1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One page.

    Attributes:
        name: Of the picture, to which the width and the scheme are added.
        path: Of the page; `{main}` is the id of the session that is going on, `{memory}` that of a memory.
        act: What is done on the page before the picture is taken.
        is_whole: The whole page, not only what is seen without scrolling.
        dark: Also in the dark.
    """

    name: str
    path: str
    act: Callable[[Page], Awaitable[None]] | None = None
    is_whole: bool = True
    dark: bool = False


async def _open_note(page: Page) -> None:
    await page.locator(".recalled summary:visible").last.click()


async def _to_the_answer(page: Page) -> None:
    await page.locator(".turn .said h3, .turn .said table").first.scroll_into_view_if_needed()


async def _run(page: Page) -> None:
    await page.get_by_label("Amount").fill("8340")
    await page.get_by_role("button", name="Run", exact=True).click()
    await page.locator("#result").wait_for()
    await _hide_places(page)


async def _hide_places(page: Page) -> None:
    """Where the sample is, and the interpreter, are nobody's business and change with each run."""
    places = [[tempfile.gettempdir() + "/satchel-[^/]*", "~"], [re.escape(sys.executable), "python"]]
    await page.evaluate(_REPLACE, places)


_REPLACE: Final = """places => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const [place, words] of places) {
      texts.currentNode.data = texts.currentNode.data.replaceAll(new RegExp(place, "g"), words);
    }
  }
}"""


SHOTS: Final[Sequence[Shot]] = (
    Shot(name="chat", path="/chat/{main}", act=_open_note, dark=True),
    Shot(name="new", path="/", is_whole=False),
    Shot(name="sessions", path="/sessions"),
    Shot(name="memories", path="/memories"),
    Shot(name="memory", path="/memories/{memory}?message=Which%20dinner%20suits%20a%20vegetarian%3F"),
    Shot(name="recalled", path="/memories/recalled?message=Which%20dinner%20suits%20Tove%20and%20Emil%3F"),
    Shot(name="capabilities", path="/capabilities"),
    Shot(name="capability", path="/capabilities/price_with_vat", act=_run),
    Shot(name="usage", path="/usage"),
    Shot(name="settings", path="/settings", act=_hide_places, is_whole=False),
    Shot(name="doctor", path="/doctor", act=_hide_places),
    Shot(name="login", path="/login", is_whole=False),
)


# What she has said, and when. `make screenshots` is the only reader.

MEMORIES: Final[Sequence[tuple[str, datetime]]] = tuple(
    (words, datetime(year, month, day, 12, tzinfo=NOW.tzinfo))
    for words, (year, month, day) in (
        ("Tove runs a bicycle workshop, Hjulverket, in Majorna in Gothenburg.", (2025, 2, 3)),
        ("My invoices are in Swedish kronor and include 25 % VAT.", (2025, 6, 11)),
        (
            "I report the VAT of the workshop every quarter, by the 12th of the second month after it.",
            (2026, 1, 19),
        ),
        ("Emil, Tove’s son, can’t eat gluten. He has coeliac disease.", (2025, 5, 12)),
        ("Tove is vegetarian since March 2026.", (2026, 3, 8)),
        ("Letters to customers are signed Tove Almqvist, Hjulverket.", (2026, 1, 19)),
        ("Tove prefers short answers with the figures first.", (2025, 9, 2)),
        ("Ragnhild from the accountant’s office answers on Thursdays only.", (2026, 10, 22)),
        (
            "Tove’s cargo bike is a Tern with a Bosch motor; its battery was replaced in April 2026.",
            (2026, 4, 27),
        ),
        ("Birthe’s seventieth birthday is on 5 December 2026, with dinner for fourteen.", (2026, 10, 3)),
        ("I meet Ragnhild about the accounts on Thursday, 26 November at 10:00.", (2026, 11, 12)),
        ("Ida plays her cello at school on Tuesday, 24 November at 18:30.", (2026, 11, 9)),
    )
)

_TAGS: Final = {"food": "vegetarian", "health": "gluten", "workshop": "workshop", "dates": " November"}
_NO_SALMON: Final = (
    "No salmon. I’ve stopped eating fish as well, so it’s vegetarian from now on. Emil still may."
)

INVOICES: Final = {
    "invoices/2026-10-06-lind.csv": "item,amount\nchain and cassette,1480\nlabour,900\n",
    "invoices/2026-10-14-ferry-school.csv": "item,amount\nservice of six bikes,7200\nbrake pads,1140\n",
    "invoices/2026-10-29-osman.csv": "item,amount\nwheel built by hand,3875\n",
}


def _reply(request: ModelRequest, clock: ManualClock) -> Reply | str:
    """What the model says; each answer takes some seconds of the clock."""
    said = next((m.text for m in reversed(request.messages) if m.role == "user" and m.text), "").lower()
    round = 0
    for message in reversed(request.messages):
        if message.role == "user" and message.text:
            break
        round += message.role == "assistant"
    clock.advance(2.4)
    usage = Usage(input_tokens=14_210, output_tokens=260, cache_read_tokens=12_500, cost_usd=0.019)
    if "vat" in said and "october" in said:
        if round == 0:
            return Reply(
                text="I read the invoices first.",
                calls=[
                    Call(name="glob", input={"pattern": "invoices/2026-10-*.csv"}, id="g1"),
                    Call(name="file_read", input={"path": "invoices/2026-10-14-ferry-school.csv"}, id="r1"),
                    Call(name="file_read", input={"path": "invoices/2026-09-30.csv"}, id="r2"),
                ],
                usage=usage,
            )
        return Reply(text=_VAT, usage=usage)
    if "reminder" in said:
        if round == 0:
            return Reply(
                text="A small tool can watch the dates from now on; meanwhile I write the reminder.",
                calls=[
                    Call(
                        name="file_write",
                        input={"path": "letters/osman-reminder.md", "content": _LETTER},
                        id="w1",
                    )
                ],
                usage=usage,
            )
        return Reply(text="It is written.", usage=usage)
    for words, answer in _ANSWERS.items():
        if words in said:
            return Reply(text=answer, usage=usage)
    return Reply(text="Noted.", usage=usage)


_VAT: Final = """\
**2,919 kr** for October, if the invoice of 29 October counts as sent that day.

| invoice | with VAT | VAT |
|---|---:|---:|
| Lind, 6 October | 2,380 kr | 476 kr |
| Ferry school, 14 October | 8,340 kr | 1,668 kr |
| Osman, 29 October | 3,875 kr | 775 kr |
| **all** | **14,595 kr** | **2,919 kr** |

The part in a price with 25 % VAT is a fifth of it, so a column does it:

```python
vat = sum(amount for amount in amounts) / 5   # 14_595 / 5 == 2_919
```

It is due with the whole quarter on **12 February**.
"""
_LETTER: Final = """\
Hej Osman,

fakturan från den 29 oktober på 3 875 kr är ännu inte betald. Kan du titta på det den här veckan?

Vänliga hälsningar
Tove Almqvist, Hjulverket
"""
_ANSWERS: Final = {
    "dishwasher": "After 22:00 tonight: the price falls to 0.31 kr then.",
    "battery": "The drain of 4 % a day is the display, which stays on under *Settings, Standby*. Set it to two minutes.",
    "rye bread": "Ten grams less salt, and an hour more. Your third loaf had the right crumb.",
    "school": "The letter asks for two things: a packed lunch on Thursday, and a signature by Friday.",
}
EARLIER: Final = (
    (timedelta(hours=1, minutes=20), "When should I run the dishwasher tonight?"),
    (timedelta(days=1, hours=2), "Why does the battery of the Tern drain overnight?"),
    (timedelta(days=4), "Rye bread, fourth try: the crumb was dense again"),
    (timedelta(days=9, hours=3), "What does the letter from the school want from me?"),
    (timedelta(days=33), "Which chain fits the new cassette, 11 or 12 speed?"),
)


_BUILD: Final = (
    (0, "Wrote main.py and five cases"),
    (46, "Four of five cases pass"),
    (21, "Fixing the case for an invoice without a date"),
    (8, "Which folder holds the invoices that are paid?"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A server with her data."""

    satchel: Satchel
    url: str
    link: str
    main: str
    memory: str


@asynccontextmanager
async def sample(folder: Path) -> AsyncIterator[Sample]:
    """Serve a home in a folder, with what she has said, and a turn that waits for her."""
    clock = ManualClock(at=NOW)
    work = folder / "hjulverket"
    for name, text in INVOICES.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, encoding="utf-8")
    settings = load(
        {"HOME": str(folder), "PATH": os.environ["PATH"], "OLLAMA_HOST": "127.0.0.1:9"},
        cwd=work,
        home=folder / "home",
        overrides={
            "memory.distill": "off",
            "memory.second_embedder": "none",
            "memory.worker": "off",
            "server.port": 0,
            "server.requests_per_s": 100_000,
            "budget.day_usd": 3.0,
        },
    )
    fetch_weights(settings.home, environ=dict(os.environ))
    model = ScriptedModel(
        lambda request: _reply(request, clock), provider="anthropic", model="claude-sonnet-4-5"
    )
    async with (
        Satchel.open(settings, model=model, clock=clock) as satchel,
        served(satchel) as (url, app),
    ):
        memory = await _remember(satchel, clock)
        await _make_tools(satchel, clock)
        main = await _talk(app.service.sessions, clock)
        yield Sample(satchel, url, f"{url}/login?code={app.browsers.make_code()}", main, memory)


async def _remember(satchel: Satchel, clock: ManualClock) -> str:
    """Returns the id of the memory that has a page in the pictures."""
    memory = satchel.memory
    assert memory is not None
    ids: dict[str, str] = {}
    for words, at in MEMORIES:
        clock.at = at
        tags = [tag for tag, sign in _TAGS.items() if sign in words]
        if "VAT" in words:  # said in a conversation; no fact, which would stand in the profile
            spoken = Episode(session="accounts", turn=len(ids), speaker="user", text=words, said_at=at)
            [ids[words]] = await memory.add_episodes([spoken])
        else:
            ids[words] = await memory.add(words, said_at=at, importance=4, tags=tags)
    [vegetarian] = [id for words, id in ids.items() if "vegetarian" in words]
    clock.at = datetime(2025, 2, 3, 19, 4, tzinfo=NOW.tzinfo)
    fish = await memory.add("Tove eats fish but no meat.", said_at=clock.at, tags=["food"])
    clock.at = datetime(2026, 3, 8, 17, 14, tzinfo=NOW.tzinfo)
    [turn] = await memory.add_episodes(
        [Episode(session="dinners", turn=2, speaker="user", text=_NO_SALMON, said_at=clock.at)]
    )
    await memory.link(vegetarian, turn, "derived_from")
    await memory.supersede(fish, vegetarian)
    clock.at = datetime(2026, 3, 9, 8, 30, tzinfo=NOW.tzinfo)
    dinners = await memory.add("Dinners for guests need a vegetarian main course.", tags=["food", "guests"])
    await memory.link(dinners, vegetarian, "derived_from")
    await memory.link(vegetarian, next(id for words, id in ids.items() if "gluten" in words), "related", 0.7)
    clock.at = datetime(2026, 4, 1, 9, 12, tzinfo=NOW.tzinfo)
    await memory.edit(vegetarian, content="Tove is vegetarian: no meat, no fish.", why="no fish either")
    await memory.pin(next(id for words, id in ids.items() if "short answers" in words))
    for ago, words in EARLIER[::-1]:
        clock.at = NOW - ago
        session = await satchel.session()
        await session.run_turn(words)
        await session.aclose()
    return vegetarian


async def _make_tools(satchel: Satchel, clock: ManualClock) -> None:
    """Two capabilities with runs, one of which failed, and one that waits for her."""
    parts = satchel.capabilities
    assert parts is not None
    for number, (name, draft) in enumerate(_TOOLS.items()):
        clock.at = NOW - timedelta(days=40 - number * 9)
        await parts.catalogue.request(Wanted(name=name, description=draft.description))
        await parts.registrar.register(
            name, draft, provenance=Provenance(model="anthropic:claude-sonnet-4-5")
        )
    for number in range(14):
        clock.at = NOW - timedelta(days=14 - number)
        await parts.runner.run("price_with_vat", {"amount": 0 if number == 6 else 480 + number})
    for number in range(5):
        clock.at = NOW - timedelta(days=5 - number)
        await parts.runner.run("label_text", {"name": "Osman", "number": number})


_NUMBER: Final = {"type": "number", "description": "In kronor, without VAT."}
_TOOLS: Final = {
    "price_with_vat": Draft(
        description="Adds 25 % VAT to an amount, and says both parts.",
        code="def run(args: dict) -> str:\n"
        '    amount = args["amount"]\n'
        "    if not amount:\n"
        '        raise RuntimeError("there is nothing to add it to")\n'
        '    return f"{amount * 1.25:,.2f} kr, of which {amount * 0.25:,.2f} kr are VAT"\n',
        input_schema={
            "type": "object",
            "required": ["amount"],
            "properties": {
                "amount": _NUMBER,
                "rounding": {
                    "enum": ["none", "krona"],
                    "default": "none",
                    "description": "How it is rounded.",
                },
                "on_invoice": {"type": "boolean", "default": True, "title": "As on the invoice"},
            },
        },
        cases='{"name": "a hundred", "input": {"amount": 100}, "expect": {"contains": "125.00 kr"}}\n'
        '{"name": "no amount", "input": {}, "expect": {"error": "amount"}}\n',
    ),
    "label_text": Draft(
        description="Writes the text of a label for a bicycle that was repaired.",
        code="def run(args: dict) -> str:\n    return f\"{args['number']:04d} {args['name']}\"\n",
        input_schema={
            "type": "object",
            "required": ["name", "number"],
            "properties": {"name": {"type": "string"}, "number": {"type": "integer", "minimum": 0}},
        },
        cases='{"name": "Osman", "input": {"name": "Osman", "number": 7}, "expect": {"equals": "0007 Osman"}}\n'
        '{"name": "no name", "input": {"number": 7}, "expect": {"error": "name"}}\n',
    ),
    "exchange_rate": Draft(
        description="Looks up today’s rate of a currency.",
        code='def run(args: dict) -> str:\n    return "11.42"\n',
        input_schema={
            "type": "object",
            "required": ["currency"],
            "properties": {"currency": {"type": "string"}},
        },
        cases='{"name": "euro", "input": {"currency": "EUR"}, "expect": {"contains": "."}}\n'
        '{"name": "no currency", "input": {}, "expect": {"error": "currency"}}\n',
        hosts=("api.rates.example:443",),
    ),
}


async def _talk(sessions: OpenSessions, clock: ManualClock) -> str:
    """A session with a turn that is over and one that waits for an answer."""
    clock.at = NOW
    async with sessions.used(None, interactive=True) as session:
        await session.run_turn("How much VAT do I owe for October? The invoices are in the folder.")
        clock.at = NOW + timedelta(minutes=7)
        running = await session.start(
            "Then write Osman a reminder for the open invoice. And warn me from now on when an invoice is 21 days old."
        )
        sessions.follow_turn(session, running, interactive=True)
        async for event in running.events():
            if event.type == "question_asked":
                break
        for number, (seconds, words) in enumerate(_BUILD):
            clock.advance(seconds)
            is_last = number == len(_BUILD) - 1
            await session._hub.log.record(
                BuildPosted(
                    id=f"build-{number}",
                    build_id="b1",
                    number=number,
                    capability="invoice_watch",
                    kind="question" if is_last else "progress",
                    text=words,
                    question_id="q1" if is_last else "",
                    options=("invoices/paid", "none") if is_last else (),
                )
            )
        return session.id


async def take(
    sample: Sample, browser: Browser, shots: Sequence[Shot], images: Path, *, every: bool
) -> list[str]:
    """Take the pictures, `every` one of them or those of the docs. Returns what was wrong with the pages."""
    wrong: list[str] = []
    login = await browser.new_context()
    page = await login.new_page()
    await page.goto(sample.link)
    state, here = await login.storage_state(), page.url.removesuffix("/")
    await login.close()
    for shot in shots:
        for size, scheme in product((WIDE, PHONE, WIDEST), ("light", "dark")):
            if not every and (size == WIDEST or (scheme == "dark" and not shot.dark)):
                continue
            context = await browser.new_context(
                viewport={"width": size[0], "height": size[1]},
                color_scheme="dark" if scheme == "dark" else "light",
                storage_state=None if shot.path == "/login" else state,
                locale="en-GB",
                reduced_motion="reduce",
            )
            page = await context.new_page()
            name = f"{shot.name}-{size[0]}{'-dark' if scheme == 'dark' else ''}"
            _watch(page, sample.url, name, wrong)
            at = sample.url if shot.path == "/login" else here
            await page.goto(at + shot.path.format(main=sample.main, memory=sample.memory))
            if shot.act is not None:
                await shot.act(page)
            width = await page.evaluate("document.documentElement.scrollWidth")
            if width > size[0]:
                wrong.append(f"{name}: it is {width} pixels wide")
            if shot.is_whole:
                # As high as the page, so that what sticks to the window's edge is at the end.
                height = await page.evaluate("document.documentElement.scrollHeight")
                await page.set_viewport_size({"width": size[0], "height": max(size[1], height)})
            await page.evaluate("scrollTo(0, 0)")
            await page.screenshot(path=images / f"{name}.png")
            await context.close()
            print(f"{name}.png written")
    return wrong


def _watch(page: Page, url: str, name: str, wrong: list[str]) -> None:
    def logged(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(f"{name}: {message.text}")

    page.on("console", logged)
    page.on("pageerror", lambda error: wrong.append(f"{name}: {error}"))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith((url, "data:")) else wrong.append(f"{name} asks {request.url}")
        ),
    )


async def main(chosen: Sequence[str]) -> int:
    """Take the pictures that were chosen, or all."""
    every, images = chosen[:1] == ["--every"], IMAGES
    if every:
        images, chosen = Path(chosen[1]), chosen[2:]
    executable = find_chromium("", os.environ)
    if executable is None:
        print("screenshots: Chromium is needed (apt-get install chromium)", file=sys.stderr)
        return 1
    images.mkdir(exist_ok=True)
    shots = [shot for shot in SHOTS if not chosen or re.split(r"-\d", shot.name)[0] in chosen]
    with tempfile.TemporaryDirectory(prefix="satchel-") as folder:
        async with async_playwright() as playwright, sample(Path(folder)) as there:
            browser = await playwright.chromium.launch(
                executable_path=executable,
                args=["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"],
            )
            wrong = await take(there, browser, shots, images, every=every)
            await browser.close()
    for line in wrong:
        print(f"screenshots: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1:]))
