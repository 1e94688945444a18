"""How pages are made: Jinja templates in which everything is escaped, and the headers that every page has.

Nothing here knows the service, so that the gate can refuse a browser with a page. `satchel.server.pages.site` adds what
the pages of somebody who is logged in have around them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse
from starlette.types import Scope

from satchel.errors import UsageError
from satchel.events import SurfacedMemory
from satchel.memory.show.reasons import said_words, shared_word
from satchel.runtime.lines import counted, one_line
from satchel.runtime.tool_display import display_of
from satchel.server.browser_access import FORM_TOKEN_FIELD, form_token_of, within
from satchel.server.pages.assets import asset_url
from satchel.server.pages.markdown import markdown
from satchel.tools.documents.reading import is_document
from satchel.tools.visible import visible
from satchel.wording import NO, YES

State: TypeAlias = Literal["done", "running", "asks", "failed", "warn", "on", "off", "past", "waits", "pin"]
"""A mark, which is drawn in the layout, and its colour."""

_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # With no-referrer, browsers send `Origin: null` with forms. Other sites get no referrer from this one either.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
}
PICTURES: Final = {
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}
"""What is shown as a picture, by the ending of its name. Not SVG, which can hold scripts."""
_MOST_FIELDS: Final = 1000
_LINK: Final = re.compile(r"""(<img src="|<[a-z][^<>]*\s(?:href|action|formaction)=")(/[^"]*)""")
"""Where a tag leads on this server. Text has no `<`, and no value of an attribute has `"`: it is found in tags only."""
THEME_COOKIE: Final = "satchel_theme"
THEMES: Final = ("light", "dark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """A message for the next page, shown once: that something was saved, and how to undo it.

    Attributes:
        text: A sentence or two.
        state: The mark before it.
        meta: A short addition in small type, such as the number of a receipt.
        action: Where the button at the end posts to; "" for no button.
        label: The words of the button.
        fields: What else the button posts.
        link: Where a link at the end leads, and `link_label` its words.
        raw: Output that is shown as it is below.
    """

    text: str
    state: State = "done"
    meta: str = ""
    action: str = ""
    label: str = "Undo"
    fields: Mapping[str, str] = field(default_factory=dict)
    link: str = ""
    link_label: str = "Show"
    raw: str = ""


def rendered(scope: Scope, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """A page without navigation; see `site.page` for pages of logged-in users."""
    return HTMLResponse(text_of_template(scope, template, **context), status, _HEADERS)


def text_of_template(scope: Scope, template: str, **context: Any) -> str:
    """A template's HTML. Every template has `form_token`, `path` and `theme`, besides what is given.

    Templates name paths without the place of a browser: links and forms get it here.
    """
    html = standalone(
        template, form_token=form_token_of(scope), path=scope["path"], theme=_theme(scope), **context
    )
    return _LINK.sub(lambda found: found[1] + within(scope, found[2]), html)


def standalone(template: str, **context: Any) -> str:
    """A template's HTML, for a file that no server is behind."""
    html = _environment().get_template(template).render(**context)
    # Tools may return lone surrogates, which UTF-8 can't encode.
    return html.encode("utf-8", "replace").decode()


def _theme(scope: Scope) -> str:
    """What the user chose for this browser: "light", "dark", or "" for what the system has."""
    chosen = HTTPConnection(scope).cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else ""


def wants_page(scope: Scope) -> bool:
    """Whether the request is a browser's: browsers ask for HTML when they open a page or send a form."""
    return "text/html" in HTTPConnection(scope).headers.get("accept", "")


def error_page(scope: Scope, status: int, detail: str) -> HTMLResponse:
    """The page that a browser gets instead of a problem in JSON. `detail` says what happened and what to do."""
    phrase = HTTPStatus(status).phrase
    title = _TITLES.get(status) or phrase
    if detail == phrase:  # of a path without a route
        detail = "There is no page at this address. What it showed may have been deleted or forgotten."
    elif status == 404:
        detail = _COMMAND.sub("", detail)
    return rendered(scope, "error.html", status=status, title=title, detail=detail)


_COMMAND: Final = re.compile(r" [^.]*`satchel [^`]*`[^.]*\.")
"""The sentence that advises a command line: the page itself has ways on."""
_TITLES: Final = {
    400: "That can’t be done",
    403: "That is not allowed",
    404: "There is nothing here",
    409: "Something else is in progress",
    421: "Not the name of this server",
    422: "Something is missing or invalid",
    429: "Too many requests",
    500: "Something went wrong in Satchel",
    503: "Not available now",
}


class Form:
    """The fields that a form sent."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        """In the order of the form; line breaks are "\\r\\n", as browsers send them."""
        self._fields = [(name, value.replace("\r\n", "\n")) for name, value in fields]

    def get(self, name: str, default: str = "") -> str:
        """The first value of a field, without blanks around it; `default` where there is none."""
        return next((value.strip() for key, value in self._fields if key == name), default)

    def all(self, name: str) -> list[str]:
        """All values of a field, such as of several check boxes."""
        return [value for key, value in self._fields if key == name]

    def has(self, name: str) -> bool:
        """Whether the field was sent at all: a check box only is if it is checked."""
        return any(key == name for key, _ in self._fields)

    @property
    def items(self) -> list[tuple[str, str]]:
        """All fields but the form token."""
        return [(name, value) for name, value in self._fields if name != FORM_TOKEN_FIELD]


async def form_of(request: Request) -> Form:
    """The fields of a form that was posted (application/x-www-form-urlencoded). The gate has checked where it is from.

    Raises:
        UsageError: It has too many fields.
    """
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return Form(parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError as error:
        raise UsageError(f"The form can't be read: it has more than {_MOST_FIELDS} fields.") from error


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("satchel.server.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["asset"] = asset_url
    environment.globals["plain_words"] = json.dumps({"yes": sorted(YES), "no": sorted(NO)})
    filters = (
        counted, display_of, is_document, markdown, one_line, said_where, shared_word, _bearing, _said_on, _sentence,
        _clock, _day, _is_picture, _is_shared, _memory_path, _money, _near,
        _number, _seconds, _short_day, _short_path, _ticked, _took, _when,
    )  # fmt: skip
    environment.filters.update({each.__name__.removeprefix("_"): each for each in filters})
    environment.filters["iso"] = datetime.isoformat
    environment.filters["visible"] = visible
    return environment


def said_where(kind: str) -> str:
    """Who said a passage that was found in a log, by its `LogPassage.kind`: "You"."""
    return {"user": "You", "assistant": "Satchel", "input": "Given to a tool"}.get(kind, "From a tool")


def _bearing(word: str) -> str:
    """How a memory bears on a message with which it shares a word: "it is about Jonas", "it mentions “owe”"."""
    return f"it is about {word}" if word[:1].isupper() else f"it mentions “{word}”"


def _is_shared(id: str) -> bool:
    """Whether an id is that of something that is shared, SPACE/ID."""
    return "/" in id


def _memory_path(id: str) -> str:
    """Where a memory is told of."""
    return f"/spaces#{id}" if _is_shared(id) else f"/memories/{id}"


def _said_on(memory: SurfacedMemory, now: datetime) -> str:
    """Who said a shown memory and when; "" in logs that don't say it."""
    return "" if memory.said_at is None else said_words(memory.said_by, memory.said_at, now)


def _sentence(words: str) -> str:
    """Words with a capital at their beginning; `capitalize` takes those of names away."""
    return words[:1].upper() + words[1:]


def _number(value: float) -> str:
    """3214 as "3,214"."""
    return f"{value:,}"


def _is_picture(path: str) -> bool:
    return PurePosixPath(path).suffix.lower() in PICTURES


def _money(usd: float) -> str:
    """An amount in dollars: to the cent, and smaller ones as exactly as they matter."""
    if 0 < usd < 0.0005:
        return "under $0.001"
    return f"${usd:,.3f}" if 0 < usd < 0.1 else f"${usd:,.2f}"


def _seconds(ms: float) -> str:
    """A duration in milliseconds: "0.3 s", "11 s", "2 min 5 s"."""
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def _clock(at: datetime) -> str:
    """The time of day: "9:38"."""
    return f"{at.hour}:{at:%M}"


def _day(at: datetime) -> str:
    """A date: "12 May 2025"."""
    return f"{at.day} {at:%B %Y}"


def _short_day(at: date) -> str:
    """A short date: "12 May 2025", "4 Mar 2026"."""
    return f"{at.day} {at:%b %Y}"


def _took(ms: float) -> str:
    """A duration, also a very short one: "40 ms", "0.3 s", "10 min"."""
    if ms < 100:
        return f"{ms:.0f} ms"
    return _seconds(ms).removesuffix(" 0 s")


def _ticked(text: str) -> Markup:
    """A message of the program with its `commands` set as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return Markup("{}").format(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    )


def _short_path(path: str, own_folder: str) -> str:
    """A path, with "~" for the user's own folder."""
    is_below = bool(own_folder) and path.startswith(f"{own_folder}/")
    return f"~{path.removeprefix(own_folder)}" if is_below else path


def _near(day: date, now: datetime) -> str:
    """A day of this week: "today", "tomorrow", "Thursday 26 Nov"."""
    days = (day - now.date()).days
    return {0: "today", 1: "tomorrow"}.get(days, f"{day:%A} {day.day} {day:%b}")


def _when(at: datetime, now: datetime) -> Markup:
    """A `<time>`: of today the time, of yesterday the word with the time, otherwise the date."""
    days = (now.date() - at.date()).days
    words = {0: f"today {_clock(at)}", 1: f"yesterday {_clock(at)}"}.get(days, _day(at))
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(timespec="minutes"), words)
