"""Browsers without a window: what they send, and what stands on the pages they get."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from lxml import html

from satchel.server.browser_access import place_for
from tests.server.world import NO_AUTHORITIES, World

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

_PLACE = re.compile(r"/s/[0-9a-f]{32}(?=/)")
HTML = "text/html,application/xhtml+xml,*/*;q=0.8"
WAIT_MS = 120_000
"""How long a real browser waits for what a test expects on a page."""


@contextmanager
def browser(world: World, *, logged_in: bool = True) -> Iterator[httpx2.Client]:
    """A browser that keeps cookies and follows nothing by itself.

    One that is logged in is at its place: it asks for "/sessions" below it, and what leads there reads "/sessions" in
    the headers and in `read`.
    """
    value = world.app.browsers.log_in() if logged_in else ""
    place = place_for(value) if logged_in else ""
    with httpx2.Client(
        base_url=world.url + place,
        headers={"accept": HTML},
        timeout=120,
        trust_env=False,
        follow_redirects=False,
        verify=NO_AUTHORITIES,
        event_hooks={"response": [_outside_of_places]},
    ) as client:
        if logged_in:
            port = world.url.rpartition(":")[2]
            client.cookies.set(f"satchel_{port}", value, domain="127.0.0.1", path=place)
        yield client


def logged_in_window(chromium: Browser, world: World, **options: Any) -> BrowserContext:
    """A real browser's window that is logged in; relative addresses lead to its place."""
    value, port = world.app.browsers.log_in(), world.url.rpartition(":")[2]
    here = world.url + place_for(value)
    context = chromium.new_context(base_url=f"{here}/", **options)
    context.set_default_timeout(WAIT_MS)
    context.add_cookies([{"name": f"satchel_{port}", "value": value, "url": here}])
    return context


def at(client: httpx2.Client) -> str:
    """The origin of the server that a browser is at."""
    return str(client.base_url.copy_with(path="/")).rstrip("/")


def _outside_of_places(answer: httpx2.Response) -> None:
    if place := _PLACE.match(answer.headers.get("location", "")):
        answer.headers["location"] = answer.headers["location"].removeprefix(place[0])


def read(answer: httpx2.Response, status: int = 200) -> Any:
    """The page in an answer, as elements; links lead to paths outside of the browser's place."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    place = _PLACE.match(answer.url.path)
    return html.document_fromstring(answer.text.replace(f'"{place[0]}/', '"/') if place else answer.text)


def open_page(client: httpx2.Client, path: str, status: int = 200) -> Any:
    """Open a page."""
    return read(client.get(path), status)


def words_of(element: Any) -> str:
    """What is read in an element, with single blanks."""
    return " ".join(element.text_content().split())


def said(page: Any) -> str:
    """What the program says once at the top of a page."""
    return words_of(page.get_element_by_id("sayings"))


def ticked(client: httpx2.Client, page: Any, ids: Sequence[str], do: str, **fields: str) -> httpx2.Response:
    """Tick the boxes of sessions on their page, and press a button of the form that they belong to."""
    boxes = {box.get("value") for box in page.xpath("//input[@name='id'][@form='many']")}
    assert boxes >= set(ids), boxes
    form = page.get_element_by_id("many")
    return client.post(
        form.get("action"),
        data={**dict(form.form_values()), "id": list(ids), "do": do, **fields},
        headers={"origin": at(client), "sec-fetch-site": "same-origin"},
    )


def send(
    client: httpx2.Client, page: Any, action: str, fields: Mapping[str, str] | None = None, **headers: str
) -> httpx2.Response:
    """Send the form of a page that posts to `action`, as a browser does: with its hidden fields and the origin.

    `fields` are what the user filled in, and the button that was pressed.
    """
    forms = [each for each in page.forms if each.get("action") == action and each.method == "POST"]
    [form] = [each for each in forms if len(forms) == 1 or set(fields or {}) <= set(each.fields.keys())]
    filled = {key: value for key, value in form.form_values() if key not in (fields or {})}
    return client.post(
        action,
        data={**filled, **(fields or {})},
        headers={"origin": at(client), "sec-fetch-site": "same-origin", **headers},
    )
