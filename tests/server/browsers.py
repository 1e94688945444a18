"""Browsers without a window: what they send, and what stands on the pages they get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
from lxml import html

from tests.server.world import World

HTML = "text/html,application/xhtml+xml,*/*;q=0.8"


@contextmanager
def browser(world: World, *, logged_in: bool = True) -> Iterator[httpx2.Client]:
    """A browser that keeps cookies and follows nothing by itself."""
    with httpx2.Client(
        base_url=world.url, headers={"accept": HTML}, timeout=120, trust_env=False, follow_redirects=False
    ) as client:
        if logged_in:
            port = world.url.rpartition(":")[2]
            client.cookies.set(f"satchel_{port}", world.app.browsers.log_in(), domain="127.0.0.1")
        yield client


def read(answer: httpx2.Response, status: int = 200) -> Any:
    """The page in an answer, as elements."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return html.document_fromstring(answer.text)


def open_page(client: httpx2.Client, path: str, status: int = 200) -> Any:
    """Open a page."""
    return read(client.get(path), status)


def words_of(element: Any) -> str:
    """What is read in an element, with single blanks."""
    return " ".join(element.text_content().split())


def said(page: Any) -> str:
    """What the program says once at the top of a page."""
    return words_of(page.get_element_by_id("sayings"))


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
        headers={"origin": str(client.base_url).rstrip("/"), "sec-fetch-site": "same-origin", **headers},
    )
