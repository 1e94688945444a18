"""The tool `web_fetch`: returns a page as text, in parts if it is long."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from satchel.errors import SatchelError
from satchel.tools.display import Display, ShownResult, any_result, fields
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Tool, ToolContext, ToolResult
from satchel.tools.web.fetching import Fetcher
from satchel.tools.web.reader import read_apart
from satchel.tools.web.reading import PageContent, needs_parser, read_page
from satchel.wording import one_line

WEB_FETCH = "web_fetch"
"""The tool's name."""

READS_THE_WEB = Annotations(read_only=True, destructive=False, idempotent=True, open_world=True)

_SHOWN_CHARS = 20_000
"""The most characters of one result: below the default of `[agent] max_result_chars`."""
_KEPT = 4
"""How many pages a session keeps, so that the next part of one needs no new request."""
_SPARE_S = 1.0
"""Part of the call's time limit that is kept for returning the result."""
_STATE = "web_fetch.pages"
_DESCRIPTION = """Fetch a web page, PDF, text or JSON as readable text. A long one comes in parts: call again with the \
`offset` that the result names. For forms and scripts: tool_search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    url: str
    status: int
    is_cut: bool
    reading: PageContent


def fetch_tool(fetcher: Fetcher) -> Tool:
    """Make the tool."""

    async def get(url: str, context: ToolContext) -> _Fetched:
        began_s = anyio.current_time()
        # Once the session has read something from outside, the permission covers this host, not one that it redirects
        # to.
        await context.progress({"status": "fetching"})
        page = await fetcher.get(url, leaves_host=not context.untrusted)
        await context.progress({"status": "reading", "bytes": len(page.body)})
        if needs_parser(page):
            left_s = max(1.0, context.timeout_s - (anyio.current_time() - began_s) - _SPARE_S)
            reading = await read_apart(page, environ=context.environ, timeout_s=left_s)
        else:
            reading = await context.blocking(read_page, page)
        return _Fetched(url=page.url, status=page.status, is_cut=page.is_cut, reading=reading)

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        url, offset = input["url"].strip(), input.get("offset", 0)
        kept: OrderedDict[str, _Fetched] = context.state.setdefault(_STATE, OrderedDict())
        # Later parts come from the kept page; offset 0 fetches it again.
        found = kept.get(url) if offset else None
        if found is None:
            try:
                found = kept[url] = await get(url, context)
            except SatchelError as error:
                # The message may quote the server, such as the target of a redirect.
                return ToolResult(text=str(error), is_error=True, untrusted=True)
            kept.move_to_end(url)
            while len(kept) > _KEPT:
                kept.popitem(last=False)
        return _result(url, offset, found)

    return function_tool(
        call,
        name=WEB_FETCH,
        description=_DESCRIPTION,
        properties={
            "url": {"type": "string"},
            "offset": {"type": "integer", "minimum": 0},
        },
        required=["url"],
        seldom=("offset",),
        annotations=READS_THE_WEB,
        timeout_s=30.0,
        pattern_key="url",
    )


def _result(url: str, offset: int, found: _Fetched) -> ToolResult:
    text = found.reading.text
    end = min(len(text), offset + _SHOWN_CHARS)
    if offset and offset >= len(text):
        return ToolResult(
            text=f"{url} has only {len(text):,} characters; there is nothing at {offset:,}.", is_error=True
        )
    heading = [f"Title: {' '.join(found.reading.title.split())}"] if found.reading.title else []
    heading.append(f"URL: {found.url}" + ("" if found.url == url else f" (redirected from {url})"))
    if found.status >= 400:
        heading.append(f"The server answered with status {found.status}: this is its error page.")
    if offset or end < len(text):
        more = f"; to continue: offset={end}" if end < len(text) else "; this is the end"
        heading.append(f"Characters {offset:,} to {end:,} of {len(text):,}{more}")
    if found.is_cut:
        heading.append("The page is too long to be read completely: its end is missing.")
    return ToolResult(
        text="\n".join([*heading, "", text[offset:end]]),
        is_error=found.status >= 400,
        data={
            "url": found.url,
            "status": found.status,
            "title": found.reading.title,
            "text": text[offset:end],
            "characters": len(text),
            "is_cut": found.is_cut,
        },
        untrusted=True,
    )


def _show(input: Mapping[str, Any], text: str) -> ShownResult:
    heading = text.partition("\n\n")[0]
    parts = dict(re.findall(r"^(Title|URL): (.*)$", heading, re.MULTILINE))
    notes = re.findall(r"^(Characters .*?|The server answered .*?)(?:;.*|:.*)?$", heading, re.MULTILINE)
    if "URL" not in parts:
        return any_result(input, text)
    title = [one_line(parts["Title"], 60)] if "Title" in parts else []
    return ShownResult(summary=" · ".join([*title, short_address(parts["URL"].split(" ")[0]), *notes]))


def short_address(url: str) -> str:
    """An address as people write it."""
    return one_line(re.sub(r"^https?://(?:www\.)?", "", url).removesuffix("/"), 100)


DISPLAY: Final = Display(
    call=fields("url"), result=_show, shows_errors=True, kind="fetch", question="Open this page?"
)
